//! Functions of one element as vector code: [`lane_function`] gives the function that applies an operation to a run of elements.
//!
//! Every function is straight-line arithmetic on f64 ([`Function::eval`]). The compiler turns the loop over a block of
//! elements into vectors of each [`Isa`]. f32 elements are computed in f64, rounded once, with shorter polynomials; so
//! their results are within 0.51 ULP. Results do not depend on the level or on an element's place: all products that
//! are added use fused operations.
//!
//! Most algorithms and coefficients are those of FreeBSD's msun (fdlibm). `tools/fit_functions.py` makes the rest.

#![allow(
    clippy::excessive_precision,
    reason = "coefficients stand as their sources print them"
)]

mod bessel;
mod erf;
mod exp;
mod gamma;
mod hyperbolic;
mod inverse;
mod log;
mod power;
mod trig;

use crate::scalar::{Binary, Unary};
use crate::target::Isa;

/// A function of one or two elements; a function of one ignores `y`.
trait Function {
    /// The value. With `WIDE`, the result is for f64, otherwise it will be rounded to f32.
    fn eval<const WIDE: bool>(x: f64, y: f64) -> f64;
    /// Whether [`Function::eval`] does not handle these operands.
    #[inline(always)]
    fn is_far(_x: f64, _y: f64) -> bool {
        false
    }
    /// The value where [`Function::is_far`].
    fn eval_far(x: f64, _y: f64) -> f64 {
        x
    }
}

/// The type of elements.
trait Number: Copy {
    const WIDE: bool;
    fn to_f64(self) -> f64;
    fn from_f64(x: f64) -> Self;
}

impl Number for f32 {
    const WIDE: bool = false;
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self as f64
    }
    #[inline(always)]
    fn from_f64(x: f64) -> f32 {
        x as f32
    }
}

impl Number for f64 {
    const WIDE: bool = true;
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self
    }
    #[inline(always)]
    fn from_f64(x: f64) -> f64 {
        x
    }
}

#[inline(always)]
fn eval<F: Function, T: Number>(x: f64, y: f64) -> f64 {
    match T::WIDE {
        true => F::eval::<true>(x, y),
        false => F::eval::<false>(x, y),
    }
}

/// Computes a block of `N` elements, the first `m` of which exist.
#[inline(always)]
unsafe fn run_block<F: Function, T: Number, const N: usize>(m: usize, x: *const T, y: *const T, out: *mut T) {
    let (mut a, mut b, mut r) = ([1.0; N], [1.0; N], [0.0; N]);
    // SAFETY: the caller provides `m` elements of each.
    unsafe {
        if m == N {
            (0..N).for_each(|i| a[i] = (*x.add(i)).to_f64());
            (0..N).for_each(|i| b[i] = (*y.add(i)).to_f64());
        } else {
            (0..m).for_each(|i| (a[i], b[i]) = ((*x.add(i)).to_f64(), (*y.add(i)).to_f64()));
        }
    }
    for i in 0..N {
        r[i] = eval::<F, T>(a[i], b[i]);
    }
    if (0..N).fold(false, |far, i| far | F::is_far(a[i], b[i])) {
        let far = |i: &usize| F::is_far(a[*i], b[*i]);
        (0..N).filter(far).for_each(|i| r[i] = F::eval_far(a[i], b[i]));
    }
    // SAFETY: as above.
    unsafe {
        if m == N {
            (0..N).for_each(|i| *out.add(i) = T::from_f64(r[i]));
        } else {
            (0..m).for_each(|i| *out.add(i) = T::from_f64(r[i]));
        }
    }
}

/// Computes `n` elements.
#[inline(always)]
unsafe fn run<F: Function, T: Number>(n: usize, x: *const T, y: *const T, out: *mut T) {
    const LONG: usize = 32;
    const SHORT: usize = 8;
    let mut at = 0;
    // SAFETY: the caller provides `n` elements of each.
    unsafe {
        while n - at >= LONG {
            run_block::<F, T, LONG>(LONG, x.add(at), y.add(at), out.add(at));
            at += LONG;
        }
        while at < n {
            let m = (n - at).min(SHORT);
            run_block::<F, T, SHORT>(m, x.add(at), y.add(at), out.add(at));
            at += m;
        }
    }
}

/// Applies a function to `n` elements: `out[i] = f(x[i], y[i])`. A function of one does not look at the values of `y`, but reads them.
///
/// # Safety
/// The machine has the level's instructions. The pointers are to `n` elements of the function's type; `out` may be one of
/// the operands.
pub type LaneFn = unsafe extern "C" fn(n: usize, x: *const u8, y: *const u8, out: *mut u8);

unsafe extern "C" fn portable<F: Function, T: Number>(n: usize, x: *const u8, y: *const u8, out: *mut u8) {
    // SAFETY: see `LaneFn`.
    unsafe { run::<F, T>(n, x.cast(), y.cast(), out.cast()) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe extern "C" fn avx2<F: Function, T: Number>(n: usize, x: *const u8, y: *const u8, out: *mut u8) {
    // SAFETY: see `LaneFn`.
    unsafe { run::<F, T>(n, x.cast(), y.cast(), out.cast()) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx2,fma")]
unsafe extern "C" fn avx512<F: Function, T: Number>(n: usize, x: *const u8, y: *const u8, out: *mut u8) {
    // SAFETY: see `LaneFn`.
    unsafe { run::<F, T>(n, x.cast(), y.cast(), out.cast()) }
}

fn compiled<F: Function, T: Number>(isa: Isa) -> LaneFn {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::<F, T>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::<F, T>,
        _ => portable::<F, T>,
    }
}

/// An operation of one element, or of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneOp {
    /// Of one.
    Unary(Unary),
    /// Of two.
    Binary(Binary),
}

macro_rules! lane_functions {
    (unary: $($u:ident = $f:ty),*; binary: $($b:ident = $g:ty),*) => {
        /// The operations that have vector code.
        pub const LANE_OPS: &[LaneOp] = &[$(LaneOp::Unary(Unary::$u),)* $(LaneOp::Binary(Binary::$b),)*];

        /// The vector code of an operation on f64 elements if `wide`, else on f32 elements.
        pub fn lane_function(op: LaneOp, wide: bool, isa: Isa) -> Option<LaneFn> {
            Some(match (op, wide) {
                $((LaneOp::Unary(Unary::$u), false) => compiled::<$f, f32>(isa),
                (LaneOp::Unary(Unary::$u), true) => compiled::<$f, f64>(isa),)*
                $((LaneOp::Binary(Binary::$b), false) => compiled::<$g, f32>(isa),
                (LaneOp::Binary(Binary::$b), true) => compiled::<$g, f64>(isa),)*
                _ => return None,
            })
        }
    };
}

lane_functions! {
    unary:
        Exp = exp::Exp, Exp2 = exp::Exp2, Expm1 = exp::Expm1, Sigmoid = exp::Sigmoid,
        Log = log::Log, Log2 = log::Log2, Log10 = log::Log10, Log1p = log::Log1p,
        Sin = trig::Sin, Cos = trig::Cos, Tan = trig::Tan,
        Asin = inverse::Asin, Acos = inverse::Acos, Atan = inverse::Atan,
        Sinh = hyperbolic::Sinh, Cosh = hyperbolic::Cosh, Tanh = hyperbolic::Tanh,
        Asinh = hyperbolic::Asinh, Acosh = hyperbolic::Acosh, Atanh = hyperbolic::Atanh,
        Erf = erf::Erf, Erfc = erf::Erfc, Erfcx = erf::Erfcx, Erfinv = erf::Erfinv, Ndtri = erf::Ndtri,
        Lgamma = gamma::Lgamma, Digamma = gamma::Digamma,
        I0 = bessel::I0, I0e = bessel::I0e, I1 = bessel::I1, I1e = bessel::I1e;
    binary:
        Atan2 = inverse::Atan2, Pow = power::Pow, Hypot = power::Hypot, Zeta = gamma::Zeta
}

// Building blocks.

/// 1.5 * 2^52. Adding it rounds a small float to an integer, whose value is then in the low bits.
const MAGIC: f64 = 6755399441055744.0;

#[inline(always)]
fn fma(a: f64, b: f64, c: f64) -> f64 {
    a.mul_add(b, c)
}

/// `c ? a : b`, both computed.
#[inline(always)]
fn pick(c: bool, a: f64, b: f64) -> f64 {
    if c { a } else { b }
}

/// The polynomial with these coefficients, from the highest power down.
#[inline(always)]
fn horner<const N: usize>(x: f64, c: &[f64; N]) -> f64 {
    let mut p = c[0];
    let mut i = 1;
    while i < N {
        p = fma(p, x, c[i]);
        i += 1;
    }
    p
}

/// The upper 21 bits of the significand, so that a square is exact.
#[inline(always)]
fn upper_half(x: f64) -> f64 {
    f64::from_bits(x.to_bits() & !0xffff_ffff)
}

#[cfg(test)]
mod tests;
