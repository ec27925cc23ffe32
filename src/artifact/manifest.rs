//! The description of a compiled model, as JSON: readers of other versions use the entries that they know.

use super::BUILD;
use super::json::Json;
use crate::math::contract::Precision;
use crate::target::{Feature, Target};
use crate::types::DType;
use serde::{Deserialize, Serialize};

/// The content of the manifest.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Manifest {
    /// The version of fxc that wrote it.
    pub fxc: String,
    /// The model's name.
    pub name: String,
    /// Whether the model is an exported program.
    pub exported: bool,
    /// The Python calling convention of the entry graph, if the model's archive records it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<CallRecord>,
    /// The native parts, in order.
    pub native: Vec<NativeEntry>,
}

/// A calling convention, in torch's format. See `CallSpec`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct CallRecord {
    /// The nesting of `(args, kwargs)`.
    pub inputs: String,
    /// The nesting of the result.
    pub results: String,
    /// The names of the parameters.
    pub names: Option<Vec<String>>,
}

/// A native part.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct NativeEntry {
    /// The build of fxc that compiled it. See [`BUILD`].
    pub build: String,
    /// The architecture and system.
    pub platform: String,
    /// The processor features that it requires.
    pub features: Vec<String>,
    /// The options that it was compiled with.
    pub options: CodeOptions,
    /// The values of symbolic sizes.
    pub sizes: Vec<(String, i64)>,
    /// The input types, for messages.
    pub inputs: Vec<String>,
    /// The numbers of kernels and contractions.
    pub steps: [usize; 2],
    /// Bytes of intermediate values.
    pub arena: usize,
}

/// Options that affect results.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct CodeOptions {
    /// Whether algorithms that round differently are excluded.
    pub exact: bool,
    /// What f32 products and convolutions multiply.
    pub precision: Precision,
    /// Whether rewrites may change rounding.
    pub fast_math: bool,
    /// Disabled passes.
    pub skipped: Vec<String>,
}

/// The location of a weight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WeightRecord {
    /// Its path in the module.
    pub name: String,
    /// What the weight is in the module: `parameter`, `buffer` or `constant`.
    #[serde(default)]
    pub kind: String,
    pub dtype: DType,
    pub shape: Vec<usize>,
    /// Offset in the file.
    pub at: u64,
    /// Length in bytes.
    pub len: u64,
}

impl Manifest {
    /// Reads a manifest. Unknown entries are ignored.
    pub(crate) fn from_json(text: &str) -> Result<Manifest, String> {
        let json = Json::parse(text)?;
        let native = json.get("native").and_then(Json::as_list).unwrap_or_default();
        Ok(Manifest {
            fxc: required_text(&json, "fxc")?,
            name: required_text(&json, "name")?,
            exported: json.get("exported").and_then(Json::as_bool).unwrap_or(false),
            call: json.get("call").and_then(CallRecord::from_json),
            native: native.iter().map(NativeEntry::from_json).collect::<Result<_, _>>()?,
        })
    }
}

fn required_text(json: &Json, key: &str) -> Result<String, String> {
    let text = json.get(key).and_then(Json::as_str);
    text.map(String::from).ok_or_else(|| format!("`{key}` is missing"))
}

/// The strings of a list; empty if the key is missing.
fn texts(json: &Json, key: &str) -> Vec<String> {
    let items = json.get(key).and_then(Json::as_list).unwrap_or_default();
    items.iter().filter_map(Json::as_str).map(String::from).collect()
}

impl CallRecord {
    fn from_json(json: &Json) -> Option<CallRecord> {
        let text = |key| Some(json.get(key)?.as_str()?.to_string());
        Some(CallRecord {
            inputs: text("inputs")?,
            results: text("results")?,
            names: json.get("names").and_then(Json::as_list).map(|_| texts(json, "names")),
        })
    }
}

impl CodeOptions {
    fn from_json(json: &Json) -> CodeOptions {
        let flag = |key| json.get(key).and_then(Json::as_bool).unwrap_or(false);
        let precision = json.get("precision").and_then(Json::as_str);
        let precision = precision.and_then(|p| Precision::parse(p).ok());
        CodeOptions {
            exact: flag("exact"),
            precision: precision.unwrap_or_default(),
            fast_math: flag("fast_math"),
            skipped: texts(json, "skipped"),
        }
    }
}

/// The architecture and system of this process.
fn platform() -> String {
    let abi = if cfg!(windows) { "windows" } else { "sysv" };
    format!("{}-{}-{abi}", std::env::consts::ARCH, std::env::consts::OS)
}

impl NativeEntry {
    fn from_json(json: &Json) -> Result<NativeEntry, String> {
        let count = |v: Option<&Json>| v.and_then(Json::as_int).unwrap_or(0).max(0) as usize;
        let items = |key| json.get(key).and_then(Json::as_list).unwrap_or_default();
        let size = |v: &Json| {
            let [name, size] = v.as_list()? else { return None };
            Some((name.as_str()?.to_string(), size.as_int()?))
        };
        let features = json.get("features").ok_or("`features` is missing")?;
        let features = features.as_list().ok_or("`features` is not a list")?;
        let name = |f: &Json| f.as_str().map(String::from).ok_or("a feature is not a name");
        Ok(NativeEntry {
            build: required_text(json, "build")?,
            platform: required_text(json, "platform")?,
            features: features.iter().map(name).collect::<Result<_, _>>()?,
            options: CodeOptions::from_json(json.get("options").ok_or("`options` is missing")?),
            sizes: items("sizes").iter().filter_map(size).collect(),
            inputs: texts(json, "inputs"),
            steps: [0, 1].map(|i| count(items("steps").get(i))),
            arena: count(json.get("arena")),
        })
    }

    /// The entry for code of this build and platform, for processors with the features of `target`.
    pub(crate) fn new(target: Target, options: CodeOptions) -> NativeEntry {
        NativeEntry {
            build: BUILD.into(),
            platform: platform(),
            features: target.features().map(|f| f.name().to_string()).collect(),
            options,
            ..NativeEntry::default()
        }
    }

    /// Whether this build of fxc compiled it. Otherwise it cannot be decoded.
    pub(crate) fn is_of_this_build(&self) -> bool {
        self.build == BUILD && self.platform == platform()
    }

    /// The required features; `None` if this version does not know one of them.
    pub(crate) fn target(&self) -> Option<Target> {
        let known = |name: &String| Feature::ALL.iter().copied().find(|f| f.name() == name);
        let features: Option<Vec<Feature>> = self.features.iter().map(known).collect();
        Some(features?.into_iter().fold(Target::default(), Target::with))
    }

    /// The reason why the part cannot run in this process on a processor with the features of `host`, if there is
    /// one.
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
    fn manifests_are_read_as_they_were_written() {
        let options = CodeOptions {
            exact: true,
            precision: Precision::Bf16,
            fast_math: true,
            skipped: vec!["cse".into()],
        };
        let part = NativeEntry {
            sizes: vec![("N".into(), 8), ("M".into(), -1)],
            inputs: vec!["f32[8]".into()],
            steps: [3, 4],
            arena: 1 << 40,
            ..NativeEntry::new(Target::native(), options)
        };
        let manifest = Manifest {
            fxc: BUILD.into(),
            name: "a \"name\"\n".into(),
            exported: true,
            call: Some(CallRecord {
                inputs: "[1, {\"type\": \"tuple\"}]".into(),
                results: "*".into(),
                names: Some(vec!["x".into()]),
            }),
            native: vec![
                part.clone(),
                NativeEntry::new(Target::default(), CodeOptions::default()),
            ],
        };
        let text = serde_json::to_string(&manifest).unwrap();
        assert_eq!(Manifest::from_json(&text).unwrap(), manifest);
        assert!(Manifest::from_json(&text.replace("features", "f")).is_err());
    }

    #[test]
    fn unknown_entries_of_a_manifest_are_left_alone() {
        let read = Manifest::from_json(r#"{"fxc": "9", "name": "m", "more": [1]}"#).unwrap();
        assert!(read.fxc == "9" && read.native.is_empty());
    }
}
