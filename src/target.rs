//! Processors as sets of features.
//!
//! A [`Target`] is the set of features that code may use. It determines everything else: the instruction set of the
//! hand-written kernels of [`math`](crate::math) ([`Target::isa`]), the vector width of generated code, and
//! Cranelift's flags. Only this file queries the processor.
//!
//! Sets are only partially ordered: a processor may have AVX-512 VNNI without AVX-512 BF16, or the reverse. Therefore
//! code checks for the features that it needs, never for a minimum level.

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::fmt;
use std::sync::OnceLock;

macro_rules! features {
    ($($feature:ident $name:tt $shown:literal $cranelift:expr $(, $detect:expr)?;)*) => {
        /// A feature of a processor that code can need.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "the names are the vendors'")]
        #[repr(u8)]
        pub enum Feature {
            $($feature),*
        }

        impl Feature {
            /// All features.
            pub const ALL: &[Feature] = &[$(Feature::$feature),*];

            /// Rust's name of the feature, which `--target` takes too.
            pub fn name(self) -> &'static str {
                match self { $(Feature::$feature => $name),* }
            }

            /// The vendor's name, for messages.
            pub fn shown(self) -> &'static str {
                match self { $(Feature::$feature => $shown),* }
            }

            /// Cranelift's flag, if Cranelift uses the feature.
            pub fn cranelift(self) -> Option<&'static str> {
                match self { $(Feature::$feature => $cranelift),* }
            }

            #[cfg(target_arch = "x86_64")]
            fn is_detected(self) -> bool {
                match self { $(Feature::$feature => detect!($name $(, $detect)?)),* }
            }

            #[cfg(not(target_arch = "x86_64"))]
            fn is_detected(self) -> bool {
                false
            }
        }
    };
}

/// Whether the processor has a feature: by Rust's macro, or by an expression for features that the macro of stable Rust
/// does not know.
#[cfg(target_arch = "x86_64")]
macro_rules! detect {
    ($name:tt) => {
        is_x86_feature_detected!($name)
    };
    ($name:tt, $detect:expr) => {
        $detect
    };
}

features! {
    Sse3 "sse3" "SSE3" Some("has_sse3");
    Ssse3 "ssse3" "SSSE3" Some("has_ssse3");
    Sse41 "sse4.1" "SSE4.1" Some("has_sse41");
    Sse42 "sse4.2" "SSE4.2" Some("has_sse42");
    Popcnt "popcnt" "POPCNT" Some("has_popcnt");
    Avx "avx" "AVX" Some("has_avx");
    Avx2 "avx2" "AVX2" Some("has_avx2");
    Fma "fma" "FMA" Some("has_fma");
    F16c "f16c" "F16C" None;
    Bmi1 "bmi1" "BMI1" Some("has_bmi1");
    Bmi2 "bmi2" "BMI2" Some("has_bmi2");
    Lzcnt "lzcnt" "LZCNT" Some("has_lzcnt");
    Avx512F "avx512f" "AVX-512 F" Some("has_avx512f");
    Avx512Dq "avx512dq" "AVX-512 DQ" Some("has_avx512dq");
    Avx512Vl "avx512vl" "AVX-512 VL" Some("has_avx512vl");
    Avx512Bw "avx512bw" "AVX-512 BW" None;
    Avx512Cd "avx512cd" "AVX-512 CD" None;
    Avx512Vnni "avx512vnni" "AVX-512 VNNI" None;
    Avx512Bf16 "avx512bf16" "AVX-512 BF16" None;
    Avx512Fp16 "avx512fp16" "AVX-512 FP16" None;
    AmxTile "amx-tile" "AMX-TILE" None, has_amx(24);
    AmxBf16 "amx-bf16" "AMX-BF16" None, has_amx(22);
    AmxInt8 "amx-int8" "AMX-INT8" None, has_amx(25);
}

/// Whether the processor has the part of AMX that a bit of EDX in leaf 7 of CPUID reports, and can save its registers. A
/// process needs the system's permission besides (`math/pairs/amx.rs` asks for it).
#[cfg(target_arch = "x86_64")]
fn has_amx(bit: u32) -> bool {
    use std::arch::x86_64::__cpuid_count;
    /// The tiles' configuration and their data, in the mask of states.
    const TILES: u32 = 3 << 17;
    cfg!(target_os = "linux")
        && is_x86_feature_detected!("avx512f")
        && __cpuid_count(7, 0).edx & 1 << bit != 0
        && __cpuid_count(0xd, 0).eax & TILES == TILES
}

use Feature::*;

/// The x86-64 micro-architecture levels, with the features that each adds to the previous one.
const LEVELS: [(&str, &[Feature]); 3] = [
    ("x86-64-v2", &[Sse3, Ssse3, Sse41, Sse42, Popcnt]),
    ("x86-64-v3", &[Avx, Avx2, Fma, F16c, Bmi1, Bmi2, Lzcnt]),
    ("x86-64-v4", &[Avx512F, Avx512Dq, Avx512Vl, Avx512Bw, Avx512Cd]),
];

/// An instruction set that kernels are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// The baseline of the architecture, which the Rust compiler vectorises for.
    Portable,
    /// x86-64 with AVX2 and FMA: 8 lanes of f32, 16 registers.
    Avx2,
    /// x86-64 with AVX-512 F, DQ and VL: 16 lanes of f32, 32 registers, masks.
    Avx512,
}

impl Isa {
    /// All instruction sets, the widest vectors first. A target uses the first whose features it has.
    const BY_PREFERENCE: [Isa; 3] = [Isa::Avx512, Isa::Avx2, Isa::Portable];

    /// The features that it requires.
    const fn needed_features(self) -> &'static [Feature] {
        match self {
            Isa::Portable => &[],
            Isa::Avx2 => &[Avx2, Fma],
            Isa::Avx512 => &[Avx2, Fma, Avx512F, Avx512Bw, Avx512Dq, Avx512Vl],
        }
    }

    /// Every instruction set that this machine can run, the narrowest vectors first.
    pub fn available() -> Vec<Isa> {
        let runs = |isa: &Isa| Target::native().has_all(isa.needed_features());
        Isa::BY_PREFERENCE.into_iter().rev().filter(runs).collect()
    }

    /// Lanes of f32 in one vector.
    pub fn lanes(self) -> usize {
        match self {
            Isa::Portable => 4,
            Isa::Avx2 => 8,
            Isa::Avx512 => 16,
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        })
    }
}

/// The instructions that multiply pairs of bf16, or groups of four bytes, the fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PairUnit {
    /// AMX: tiles of 16 by 16 sums.
    Tiles,
    /// AVX-512 BF16 (`vdpbf16ps`) or AVX-512 VNNI (`vpdpbusd`).
    Dots,
    /// None: elements are widened in registers.
    Widening,
}

impl PairUnit {
    const BY_PREFERENCE: [PairUnit; 3] = [PairUnit::Tiles, PairUnit::Dots, PairUnit::Widening];

    /// The features that products of bf16 require besides those of [`Isa::Avx512`].
    fn features_for_pairs(self) -> &'static [Feature] {
        match self {
            PairUnit::Tiles => &[AmxTile, AmxBf16, Avx512Bf16],
            PairUnit::Dots => &[Avx512Bf16],
            PairUnit::Widening => &[],
        }
    }

    /// The features that products of bytes require besides those of [`Isa::Avx512`].
    fn features_for_bytes(self) -> &'static [Feature] {
        match self {
            PairUnit::Tiles => &[AmxTile, AmxInt8],
            PairUnit::Dots => &[Avx512Vnni],
            PairUnit::Widening => &[],
        }
    }
}

/// The features that code may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Target {
    /// One bit per feature, by index.
    features: u32,
}

impl Target {
    /// All features of this machine.
    pub fn native() -> Target {
        static NATIVE: OnceLock<Target> = OnceLock::new();
        *NATIVE.get_or_init(|| {
            let found = Feature::ALL.iter().copied().filter(|f| f.is_detected());
            found.fold(Target::default(), Target::with)
        })
    }

    /// Parses a target: `native` or an x86-64 level (`x86-64-v3`), followed by features to add or remove
    /// (`x86-64-v4+avx512bf16`, `native-avx512f`). Returns an error if the text is invalid or this machine lacks a
    /// feature.
    pub fn parse(text: &str) -> Result<Target, String> {
        let base = ["native"].into_iter().chain(LEVELS.iter().map(|l| l.0));
        let base = base.into_iter().find(|b| text.starts_with(b));
        let base = base.ok_or("valid targets are x86-64-v2, x86-64-v3, x86-64-v4 and native")?;
        let mut target = Target::from_level(base);
        let mut rest = &text[base.len()..];
        while let Some(sign) = rest.chars().next() {
            let words = &rest[sign.len_utf8()..];
            let feature = leading_feature(words);
            target = match (sign, feature) {
                ('+', Some(f)) => target.with(f),
                ('-', Some(f)) => target.without(f),
                _ => return Err(unknown_feature(words)),
            };
            rest = &words[feature.map_or(0, |f| f.name().len())..];
        }
        match Target::native().missing_feature(target) {
            Some(feature) => Err(format!("this machine does not support {}", feature.shown())),
            None => Ok(target),
        }
    }

    /// The native target, or the features of a level and the levels below it.
    fn from_level(name: &str) -> Target {
        let Some(i) = LEVELS.iter().position(|l| l.0 == name) else {
            return Target::native();
        };
        let features = LEVELS[..=i].iter().flat_map(|l| l.1);
        features.fold(Target::default(), |t, &f| t.with(f))
    }

    /// Adds a feature.
    pub fn with(self, feature: Feature) -> Target {
        let features = self.features | 1 << feature as u8;
        Target { features }
    }

    /// Removes a feature.
    pub fn without(self, feature: Feature) -> Target {
        let features = self.features & !(1 << feature as u8);
        Target { features }
    }

    /// Whether it has the feature.
    pub fn has(self, feature: Feature) -> bool {
        self.features & 1 << feature as u8 != 0
    }

    fn has_all(self, features: &[Feature]) -> bool {
        features.iter().all(|&f| self.has(f))
    }

    /// The target for [`Target::parse`], in terms of this machine: `native-avx512f`.
    pub fn relative_name(self) -> String {
        let missing = Target::native().features().filter(|&f| !self.has(f));
        missing.fold("native".to_string(), |text, f| format!("{text}-{}", f.name()))
    }

    /// Its features.
    pub fn features(self) -> impl Iterator<Item = Feature> {
        Feature::ALL.iter().copied().filter(move |&f| self.has(f))
    }

    /// A feature of `other` that this target lacks.
    fn missing_feature(self, other: Target) -> Option<Feature> {
        other.features().find(|&f| !self.has(f))
    }

    /// The instruction set of the hand-written kernels to use.
    #[inline]
    pub fn isa(self) -> Isa {
        // Constants, because short loops ask before each run.
        const AVX512: u32 = bits_of(Isa::Avx512.needed_features());
        const AVX2: u32 = bits_of(Isa::Avx2.needed_features());
        match self.features {
            f if f & AVX512 == AVX512 => Isa::Avx512,
            f if f & AVX2 == AVX2 => Isa::Avx2,
            _ => Isa::Portable,
        }
    }

    /// The features that both have.
    fn common_features(self, other: Target) -> Target {
        let features = self.features & other.features;
        Target { features }
    }

    /// The instructions for products of bf16 to use.
    pub fn pair_unit(self) -> PairUnit {
        self.best_unit(PairUnit::features_for_pairs)
    }

    /// The instructions for products of bytes to use.
    pub fn byte_unit(self) -> PairUnit {
        self.best_unit(PairUnit::features_for_bytes)
    }

    fn best_unit(self, needed: fn(PairUnit) -> &'static [Feature]) -> PairUnit {
        let mut all = PairUnit::BY_PREFERENCE.into_iter();
        let found = all.find(|&u| self.isa() == Isa::Avx512 && self.has_all(needed(u)));
        found.unwrap_or(PairUnit::Widening)
    }
}

/// The bits of features in a [`Target`].
const fn bits_of(features: &[Feature]) -> u32 {
    let (mut bits, mut i) = (0, 0);
    while i < features.len() {
        bits |= 1 << features[i] as u8;
        i += 1;
    }
    bits
}

thread_local! {
    /// The target of the work on this thread; `None` for the machine.
    static OF_THREAD: Cell<Option<Target>> = const { Cell::new(None) };
}

/// Runs `work` for a target: the plain loops of this thread, and of the jobs that it starts, use only the target's features.
/// Functions of tensors have no parameter for it, because they serve readers and the interpreter too.
pub(crate) fn with_target<R>(target: Target, work: impl FnOnce() -> R) -> R {
    struct Restore(Option<Target>);
    impl Drop for Restore {
        fn drop(&mut self) {
            OF_THREAD.set(self.0);
        }
    }
    // Features that the machine lacks are left out, so that callers of `thread_target` may use all that it returns.
    let target = target.common_features(Target::native());
    let _restore = Restore(OF_THREAD.replace(Some(target)));
    work()
}

/// The target of the work on this thread. The machine has all of its features.
#[inline]
pub(crate) fn thread_target() -> Target {
    OF_THREAD.get().unwrap_or_else(Target::native)
}

/// The feature that `text` begins with. Names contain dashes themselves.
fn leading_feature(text: &str) -> Option<Feature> {
    let is_whole = |rest: &str| rest.is_empty() || rest.starts_with(['+', '-']);
    let mut all = Feature::ALL.iter().copied();
    all.find(|f| text.strip_prefix(f.name()).is_some_and(is_whole))
}

fn unknown_feature(word: &str) -> String {
    let names: Vec<&str> = Feature::ALL.iter().map(|f| f.name()).collect();
    let names = names.join(", ");
    format!("`{word}` is not a feature; `+` and `-` after the target accept {names}")
}
