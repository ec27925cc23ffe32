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

#[cfg(target_arch = "x86_64")]
fn detect() -> Isa {
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    match avx2 {
        true if is_x86_feature_detected!("avx512f") => Isa::Avx512,
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
            #[target_feature(enable = "avx512f,avx2,fma")]
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
