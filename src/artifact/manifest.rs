//! What a file says of itself, as JSON: readers of other versions take what they know.

use super::BUILD;
use crate::target::{Feature, Target};
use crate::types::DType;
use serde::{Deserialize, Serialize};

/// What is in a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// The version of fxc that wrote it.
    pub fxc: String,
    /// The model's name.
    pub name: String,
    /// Whether the graph is an exported program.
    #[serde(default)]
    pub exported: bool,
    /// The native parts, in order.
    #[serde(default)]
    pub native: Vec<NativeEntry>,
}

/// A native part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct NativeEntry {
    /// The build of fxc that made it: see [`BUILD`].
    pub build: String,
    /// The architecture and system.
    pub platform: String,
    /// The features that the processor must have.
    pub features: Vec<String>,
    /// How the code was made.
    pub options: CodeOptions,
    /// The values of symbolic sizes.
    #[serde(default)]
    pub sizes: Vec<(String, i64)>,
    /// The inputs, for people.
    #[serde(default)]
    pub inputs: Vec<String>,
    /// Kernels, and contractions.
    #[serde(default)]
    pub steps: [usize; 2],
    /// Bytes of intermediate values.
    #[serde(default)]
    pub arena: usize,
}

/// Options that results depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct CodeOptions {
    /// No algorithm takes the place of another that rounds differently.
    pub exact: bool,
    /// Rewrites may change rounding.
    pub fast_math: bool,
    /// Passes that did not run.
    pub skipped: Vec<String>,
}

/// A weight's place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WeightRecord {
    /// Its path in the module.
    pub name: String,
    /// What the module has it as: `parameter`, `buffer` or `constant`.
    #[serde(default)]
    pub kind: String,
    pub dtype: DType,
    pub shape: Vec<usize>,
    /// The first byte in the file.
    pub at: u64,
    /// How many bytes.
    pub len: u64,
}

/// The architecture and system that code runs on.
fn platform() -> String {
    let abi = if cfg!(windows) { "windows" } else { "sysv" };
    format!("{}-{}-{abi}", std::env::consts::ARCH, std::env::consts::OS)
}

impl NativeEntry {
    /// Of this build and this platform, for processors with the features of `target`.
    pub(crate) fn new(target: Target, options: CodeOptions) -> NativeEntry {
        NativeEntry {
            build: BUILD.into(),
            platform: platform(),
            features: target.features().map(|f| f.name().to_string()).collect(),
            options,
            ..NativeEntry::default()
        }
    }

    /// Whether this build of fxc made it: then it can be read, if not run.
    pub(crate) fn is_of_this_build(&self) -> bool {
        self.build == BUILD && self.platform == platform()
    }

    /// Its features as a target; `None` if this version does not know one.
    pub(crate) fn target(&self) -> Option<Target> {
        let known = |name: &String| Feature::ALL.iter().copied().find(|f| f.name() == name);
        let features: Option<Vec<Feature>> = self.features.iter().map(known).collect();
        Some(features?.into_iter().fold(Target::default(), Target::with))
    }

    /// Why the part cannot run in this process on a processor with the features of `host`; `None` if it can.
    pub(crate) fn why_unfit(&self, host: Target) -> Option<String> {
        if self.build != BUILD {
            return Some(format!("it was compiled by fxc {}, but this is {BUILD}", self.build));
        }
        if self.platform != platform() {
            return Some(format!(
                "it was compiled for {}, but this is {}",
                self.platform,
                platform()
            ));
        }
        let Some(target) = self.target() else {
            return Some("it requires a processor feature that this version does not know".into());
        };
        let missing = target.features().find(|&f| !host.has(f));
        missing.map(|f| format!("it requires {}, which this processor lacks", f.shown()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fit_their_build_and_processors_with_their_features() {
        let host = Target::native();
        let part = NativeEntry::new(host, CodeOptions::default());
        assert_eq!(part.why_unfit(host), None);
        assert_eq!(part.target(), Some(host));
        let other = |change: &dyn Fn(&mut NativeEntry)| {
            let mut part = part.clone();
            change(&mut part);
            part.why_unfit(host).unwrap_or_default()
        };
        assert!(other(&|p| p.build = "0.0.1".into()).contains("fxc 0.0.1"));
        assert!(other(&|p| p.platform = "vax".into()).contains("for vax"));
        assert!(other(&|p| p.features.push("avx9".into())).contains("does not know"));
        if let Some(f) = Feature::ALL.iter().copied().find(|&f| !host.has(f)) {
            assert!(other(&|p| p.features.push(f.name().into())).contains(f.shown()));
        }
    }

    #[test]
    fn unknown_entries_of_a_manifest_are_left_alone() {
        let read: Manifest = serde_json::from_str(r#"{"fxc": "9", "name": "m", "more": [1]}"#).unwrap();
        assert!(read.fxc == "9" && read.native.is_empty());
    }
}
