//! Plain loops compiled for the vectors of the target ([`with_target`](crate::target::with_target)), which is the machine for
//! work that has no target.

#[cfg(target_arch = "x86_64")]
use crate::target::{Isa, thread_target};

/// Runs `f` compiled with the widest vector instructions of the target, so that the compiler vectorises the loops
/// that are inlined into it. Results do not depend on the machine: Rust neither reorders sums nor contracts products.
/// `f` must be a short loop: the compiler calls a large closure, which then has narrow vectors. [`WideLoop`] and
/// [`wide_function`] are for the others.
pub(crate) fn with_wide_vectors<R>(f: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        match thread_target().isa() {
            // SAFETY: the machine has the features of every thread's target.
            Isa::Avx512 => return unsafe { avx512(f) },
            // SAFETY: as above.
            Isa::Avx2 => return unsafe { avx2(f) },
            Isa::Portable => {}
        }
    }
    f()
}

/// Defines a function as a call of `body`, which must be marked `#[inline(always)]`, compiled for the vectors of the target. It may have
/// one type parameter.
macro_rules! wide_function {
    ($(#[$doc:meta])* $vis:vis fn $name:ident = $body:ident $(<$g:ident: $bound:path>)? ( $($arg:ident : $t:ty),* $(,)? ) $(-> $ret:ty)?) => {
        $(#[$doc])*
        #[allow(unsafe_code, reason = "calls of the function's own copies, after the target was asked")]
        $vis fn $name $(<$g: $bound>)? ($($arg: $t),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
                fn avx512 $(<$g: $bound>)? ($($arg: $t),*) $(-> $ret)? {
                    $body($($arg),*)
                }
                #[target_feature(enable = "avx2,fma")]
                fn avx2 $(<$g: $bound>)? ($($arg: $t),*) $(-> $ret)? {
                    $body($($arg),*)
                }
                match $crate::target::thread_target().isa() {
                    // SAFETY: the machine has the features of every thread's target.
                    $crate::target::Isa::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    $crate::target::Isa::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::target::Isa::Portable => {}
                }
            }
            $body($($arg),*)
        }
    };
}
pub(crate) use wide_function;

/// A loop with its operands. The compiler leaves large closures out of the functions that have vector instructions; it cannot do so with
/// a `run` that is marked `#[inline(always)]`.
pub(crate) trait WideLoop {
    /// Runs the loop.
    fn run(self);
}

/// [`with_wide_vectors`] for loops of any size.
pub(crate) fn run_wide(l: impl WideLoop) {
    #[cfg(target_arch = "x86_64")]
    {
        match thread_target().isa() {
            // SAFETY: the machine has the features of every thread's target.
            Isa::Avx512 => return unsafe { loop_avx512(l) },
            // SAFETY: as above.
            Isa::Avx2 => return unsafe { loop_avx2(l) },
            Isa::Portable => {}
        }
    }
    l.run();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn loop_avx512(l: impl WideLoop) {
    l.run();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn loop_avx2(l: impl WideLoop) {
    l.run();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn avx512<R>(f: impl FnOnce() -> R) -> R {
    f()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2<R>(f: impl FnOnce() -> R) -> R {
    f()
}
