//! Kernels for several instruction sets: one generic body, compiled for each.

/// Defines `fn $name(isa: Isa) -> $ty`, which returns the pointer to `$body::<Level>` compiled with that level's
/// instructions enabled. `$body` is an `#[inline(always)]` function that is generic over [`super::simd::Simd`].
macro_rules! per_isa {
    ($(#[$doc:meta])* $vis:vis fn $name:ident = $body:ident $(<$($g:ident : $gt:ty),*>)? ( $($arg:ident : $t:ty),* $(,)? ) $(-> $ret:ty)?) => {
        $(#[$doc])*
        $vis fn $name $(<$(const $g: $gt),*>)? (isa: $crate::target::Isa) -> unsafe fn($($t),*) $(-> $ret)? {
            unsafe fn portable $(<$(const $g: $gt),*>)? ($($arg: $t),*) $(-> $ret)? {
                // SAFETY: the caller keeps the body's promises; the portable level needs no CPU feature.
                unsafe { $body::<$crate::math::simd::Portable $($(, $g)*)?>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            unsafe fn avx2 $(<$(const $g: $gt),*>)? ($($arg: $t),*) $(-> $ret)? {
                // SAFETY: as above; the caller chose this level because the machine supports it.
                unsafe { $body::<$crate::math::simd::Avx2 $($(, $g)*)?>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512vl,avx2,fma")]
            unsafe fn avx512 $(<$(const $g: $gt),*>)? ($($arg: $t),*) $(-> $ret)? {
                // SAFETY: as above; the caller chose this level because the machine supports it.
                unsafe { $body::<$crate::math::simd::Avx512 $($(, $g)*)?>($($arg),*) }
            }
            match isa {
                #[cfg(target_arch = "x86_64")]
                $crate::target::Isa::Avx512 => avx512 $(::<$($g),*>)?,
                #[cfg(target_arch = "x86_64")]
                $crate::target::Isa::Avx2 => avx2 $(::<$($g),*>)?,
                _ => portable $(::<$($g),*>)?,
            }
        }
    };
}
pub(crate) use per_isa;
