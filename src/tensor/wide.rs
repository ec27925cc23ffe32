//! Plain loops compiled for the machine's vectors.

/// Runs `f` compiled with the widest vector instructions of the machine, so that the compiler vectorises the loops
/// that are inlined into it. Results do not depend on the machine: Rust neither reorders sums nor contracts products.
/// `f` should be a call of functions marked `#[inline(always)]`.
pub fn with_wide_vectors<R>(f: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        let common = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        if common && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") {
            // SAFETY: the machine has the features.
            return unsafe { avx512(f) };
        }
        if common {
            // SAFETY: the machine has the features.
            return unsafe { avx2(f) };
        }
    }
    f()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx2,fma")]
fn avx512<R>(f: impl FnOnce() -> R) -> R {
    f()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2<R>(f: impl FnOnce() -> R) -> R {
    f()
}
