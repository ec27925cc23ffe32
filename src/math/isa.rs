//! Instruction sets: which ones there are kernels for, and which this machine has.

use std::fmt;
use std::sync::OnceLock;

/// A level of vector instructions that the kernels are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// What every machine has; the compiler vectorises with the target's baseline.
    Portable,
    /// x86-64 with AVX2 and FMA: 8 lanes of f32, 16 registers.
    Avx2,
    /// x86-64 with AVX-512 F: 16 lanes of f32, 32 registers, masks.
    Avx512,
}

impl Isa {
    /// The best level of this machine.
    pub fn best() -> Isa {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(detect)
    }

    /// Every level this machine can run, the plainest first.
    pub fn available() -> Vec<Isa> {
        let all = [Isa::Portable, Isa::Avx2, Isa::Avx512];
        all.into_iter().filter(|&i| i <= Isa::best()).collect()
    }

    /// The level of an x86-64 micro-architecture level by its name (`x86-64-v2`, `x86-64-v3`, `x86-64-v4`); the error says
    /// why this machine cannot run it.
    pub fn named(name: &str) -> Result<Isa, String> {
        let isa = match name {
            "x86-64-v2" => Isa::Portable,
            "x86-64-v3" => Isa::Avx2,
            "x86-64-v4" => Isa::Avx512,
            _ => return Err("the targets are x86-64-v2, x86-64-v3, x86-64-v4 and native".into()),
        };
        match lacking(isa) {
            Some(what) => Err(format!("this machine has no {what}")),
            None => Ok(isa),
        }
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

/// What this machine lacks of the x86-64 level that `isa` stands for.
#[cfg(target_arch = "x86_64")]
fn lacking(isa: Isa) -> Option<&'static str> {
    let found = [
        (Isa::Portable, "SSE4.2", is_x86_feature_detected!("sse4.2")),
        (Isa::Portable, "POPCNT", is_x86_feature_detected!("popcnt")),
        (Isa::Avx2, "AVX2", is_x86_feature_detected!("avx2")),
        (Isa::Avx2, "FMA", is_x86_feature_detected!("fma")),
        (Isa::Avx2, "BMI2", is_x86_feature_detected!("bmi2")),
        (Isa::Avx2, "LZCNT", is_x86_feature_detected!("lzcnt")),
        (Isa::Avx512, "AVX-512 F", is_x86_feature_detected!("avx512f")),
        (Isa::Avx512, "AVX-512 DQ", is_x86_feature_detected!("avx512dq")),
        (Isa::Avx512, "AVX-512 VL", is_x86_feature_detected!("avx512vl")),
    ];
    found.into_iter().find(|f| f.0 <= isa && !f.2).map(|f| f.1)
}

#[cfg(not(target_arch = "x86_64"))]
fn lacking(_isa: Isa) -> Option<&'static str> {
    Some("x86-64 processor")
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Isa {
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    match avx2 {
        true if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") => Isa::Avx512,
        true => Isa::Avx2,
        false => Isa::Portable,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Isa {
    Isa::Portable
}

/// Defines `fn $name(isa: Isa) -> $ty` that gives, for each level, the pointer to `$body::<Level>` compiled with that
/// level's instructions switched on. `$body` is an `#[inline(always)]` function generic over [`super::simd::Simd`].
macro_rules! per_isa {
    ($(#[$doc:meta])* $vis:vis fn $name:ident = $body:ident $(<$($g:ident : $gt:ty),*>)? ( $($arg:ident : $t:ty),* $(,)? ) $(-> $ret:ty)?) => {
        $(#[$doc])*
        $vis fn $name $(<$(const $g: $gt),*>)? (isa: $crate::math::isa::Isa) -> unsafe fn($($t),*) $(-> $ret)? {
            unsafe fn portable $(<$(const $g: $gt),*>)? ($($arg: $t),*) $(-> $ret)? {
                // SAFETY: the caller keeps the body's promises; the portable level needs no CPU feature.
                unsafe { $body::<$crate::math::simd::Portable $($(, $g)*)?>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            unsafe fn avx2 $(<$(const $g: $gt),*>)? ($($arg: $t),*) $(-> $ret)? {
                // SAFETY: as above; the caller chose this level because the machine has it.
                unsafe { $body::<$crate::math::simd::Avx2 $($(, $g)*)?>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512vl,avx2,fma")]
            unsafe fn avx512 $(<$(const $g: $gt),*>)? ($($arg: $t),*) $(-> $ret)? {
                // SAFETY: as above; the caller chose this level because the machine has it.
                unsafe { $body::<$crate::math::simd::Avx512 $($(, $g)*)?>($($arg),*) }
            }
            match isa {
                #[cfg(target_arch = "x86_64")]
                $crate::math::isa::Isa::Avx512 => avx512 $(::<$($g),*>)?,
                #[cfg(target_arch = "x86_64")]
                $crate::math::isa::Isa::Avx2 => avx2 $(::<$($g),*>)?,
                _ => portable $(::<$($g),*>)?,
            }
        }
    };
}
pub(crate) use per_isa;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portable_is_always_there() {
        assert_eq!(Isa::available()[0], Isa::Portable);
        assert!(Isa::available().contains(&Isa::best()));
    }
}
