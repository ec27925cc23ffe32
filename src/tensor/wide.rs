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

/// A loop with its operands. The compiler leaves large closures out of the functions that have vector instructions; it cannot do so with
/// a `run` that is marked `#[inline(always)]`.
pub trait WideLoop {
    /// Runs the loop.
    fn run(self);
}

/// [`with_wide_vectors`] for loops of any size.
pub fn run_wide(l: impl WideLoop) {
    #[cfg(target_arch = "x86_64")]
    {
        let common = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        let wide = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq");
        if common && wide && is_x86_feature_detected!("avx512vl") {
            // SAFETY: the machine has the features.
            return unsafe { loop_avx512(l) };
        }
        if common {
            // SAFETY: the machine has the features.
            return unsafe { loop_avx2(l) };
        }
    }
    l.run();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
fn loop_avx512(l: impl WideLoop) {
    l.run();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn loop_avx2(l: impl WideLoop) {
    l.run();
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
