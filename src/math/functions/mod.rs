//! Functions of one element as vector code: [`lane_function`] gives the function that applies an operation to a run of elements.
//!
//! Every function is straight-line arithmetic on f64 ([`Function::eval`]). The compiler turns the loop over a block of
//! elements into vectors of each [`Isa`]. f32 elements are computed in f64, rounded once, with shorter polynomials; so
//! their results are within 0.51 ULP. Results do not depend on the level or on an element's place: all products that
//! are added use fused operations.
//!
//! Kernels compute most f32 functions in place (`codegen/formulas/`); what is here serves f64 and the others.
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
mod inverse_erf;
mod load;
mod log;
mod neighbour;
mod number;
mod power;
mod trig;

pub(crate) use exp::{exp, exp2, expm1, sigmoid};
pub(crate) use log::{log, log1p};
pub(crate) use number::{Arithmetic, Number, SPLIT_BIAS};

use crate::scalar::{Binary, Unary};
use crate::target::Isa;
use load::Load;

/// A function of one or two elements; a function of one ignores `y`.
trait Function {
    /// Whether the function has two operands.
    const BINARY: bool = false;
    /// The value. With `WIDE`, the result is for f64, otherwise it will be rounded to f32.
    fn eval<const WIDE: bool>(x: f64, y: f64) -> f64;
    /// Whether [`Function::eval_common`] does not handle these operands: the top bit says so. Words are combined in vectors, bools
    /// are not.
    #[inline(always)]
    fn uncommon<const WIDE: bool>(_x: f64, _y: f64) -> u64 {
        u64::MAX
    }
    /// The value of common operands, with less work than [`Function::eval`] and the same bits. It is used for blocks of such
    /// operands.
    #[inline(always)]
    fn eval_common<const WIDE: bool>(x: f64, y: f64) -> f64 {
        Self::eval::<WIDE>(x, y)
    }
    /// Whether the value may be other than NaN: the top bit says so. Blocks of operands outside of the domain take no time.
    #[inline(always)]
    fn in_domain(_x: f64, _y: f64) -> u64 {
        u64::MAX
    }
    /// Whether [`Function::eval`] does not handle these operands: the top bit says so.
    #[inline(always)]
    fn far(_x: f64, _y: f64) -> u64 {
        0
    }
    /// The value of operands that are [`Function::far`].
    fn eval_far<const WIDE: bool>(x: f64, _y: f64) -> f64 {
        x
    }
}

/// The type of elements.
trait FloatElement: Copy {
    const WIDE: bool;
    fn from_f64(x: f64) -> Self;
}

impl FloatElement for f32 {
    const WIDE: bool = false;
    #[inline(always)]
    fn from_f64(x: f64) -> f32 {
        x as f32
    }
}

impl FloatElement for f64 {
    const WIDE: bool = true;
    #[inline(always)]
    fn from_f64(x: f64) -> f64 {
        x
    }
}

/// Whether the top bit of `f` is set for any of the elements.
#[inline(always)]
fn any<const N: usize>(f: impl Fn(f64, f64) -> u64, a: &[f64; N], b: &[f64; N]) -> bool {
    // Eight words at a time, as they stand in a vector.
    let mut words = [0; 8];
    for i in (0..N).step_by(8) {
        for j in 0..8 {
            words[j] |= f(a[i + j], b[i + j]);
        }
    }
    words.into_iter().fold(0, |all, w| all | w) >> 63 == 1
}

/// Computes a block of `N` elements, which is a multiple of 8.
#[inline(always)]
fn run_block<F: Function, const WIDE: bool, const N: usize>(a: [f64; N], b: [f64; N]) -> [f64; N] {
    let mut r = [0.0; N];
    // Loops that are this plain become vector code; iterators with closures do not always.
    if !any(F::uncommon::<WIDE>, &a, &b) {
        for i in 0..N {
            r[i] = F::eval_common::<WIDE>(a[i], b[i]);
        }
        return r;
    }
    if !any(F::in_domain, &a, &b) {
        return [f64::NAN; N];
    }
    for i in 0..N {
        r[i] = F::eval::<WIDE>(a[i], b[i]);
    }
    if any(F::far, &a, &b) {
        let far = |i: &usize| F::far(a[*i], b[*i]) >> 63 == 1;
        (0..N).filter(far).for_each(|i| r[i] = F::eval_far::<WIDE>(a[i], b[i]));
    }
    r
}

/// [`run_block`] for elements of type `T`.
#[inline(always)]
fn run_typed<F: Function, T: FloatElement, const N: usize>(a: [f64; N], b: [f64; N]) -> [f64; N] {
    match T::WIDE {
        true => run_block::<F, true, N>(a, b),
        false => run_block::<F, false, N>(a, b),
    }
}

/// Computes `N` elements.
#[inline(always)]
unsafe fn run_whole<F: Function, T: FloatElement, L: Load<T>, const N: usize>(x: *const T, y: *const T, out: *mut T) {
    // SAFETY: the caller provides `N` elements of each.
    unsafe {
        let a = L::load(x);
        let b = if F::BINARY { L::load(y) } else { a };
        let r = run_typed::<F, T, N>(a, b);
        (0..N).for_each(|i| *out.add(i) = T::from_f64(r[i]));
    }
}

/// The number of elements that vector functions compute at once: callers pass this many where they can.
pub(crate) const LANES_PER_CALL: usize = 32;

/// Computes `n` elements, a block of [`LANES_PER_CALL`] at a time, and the rest in short blocks.
#[inline(always)]
unsafe fn run<F: Function, T: FloatElement, L: Load<T>>(n: usize, x: *const T, y: *const T, out: *mut T) {
    const SHORT: usize = 8;
    let mut at = 0;
    // SAFETY: the caller provides `n` elements of each.
    unsafe {
        while n - at >= LANES_PER_CALL {
            run_whole::<F, T, L, LANES_PER_CALL>(x.add(at), y.add(at), out.add(at));
            at += LANES_PER_CALL;
        }
        while at < n {
            // A whole block in memory of its own: with the operands and results of a part, the compiler makes scalar code.
            let m = (n - at).min(SHORT);
            let (mut a, mut b, mut r) = (
                [T::from_f64(1.0); SHORT],
                [T::from_f64(1.0); SHORT],
                [T::from_f64(1.0); SHORT],
            );
            std::ptr::copy_nonoverlapping(x.add(at), a.as_mut_ptr(), m);
            std::ptr::copy_nonoverlapping(y.add(at), b.as_mut_ptr(), m);
            run_whole::<F, T, L, SHORT>(a.as_ptr(), b.as_ptr(), r.as_mut_ptr());
            std::ptr::copy_nonoverlapping(r.as_ptr(), out.add(at), m);
            at += m;
        }
    }
}

/// Applies a function to `n` elements: `out[i] = f(x[i], y[i])`. A function of one does not look at the values of `y`, but reads them.
///
/// # Safety
/// The machine has the level's instructions. The pointers are to `n` elements of the function's type; `out` may be one of
/// the operands.
pub(crate) type LaneFn = unsafe extern "C" fn(n: usize, x: *const u8, y: *const u8, out: *mut u8);

unsafe extern "C" fn portable<F: Function, T: FloatElement>(n: usize, x: *const u8, y: *const u8, out: *mut u8)
where
    load::Portable: Load<T>,
{
    // SAFETY: see `LaneFn`.
    unsafe { run::<F, T, load::Portable>(n, x.cast(), y.cast(), out.cast()) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe extern "C" fn avx2<F: Function, T: FloatElement>(n: usize, x: *const u8, y: *const u8, out: *mut u8)
where
    load::Avx2: Load<T>,
{
    // SAFETY: see `LaneFn`.
    unsafe { run::<F, T, load::Avx2>(n, x.cast(), y.cast(), out.cast()) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx2,fma")]
unsafe extern "C" fn avx512<F: Function, T: FloatElement>(n: usize, x: *const u8, y: *const u8, out: *mut u8)
where
    load::Avx512: Load<T>,
{
    // SAFETY: see `LaneFn`.
    unsafe { run::<F, T, load::Avx512>(n, x.cast(), y.cast(), out.cast()) }
}

#[cfg(target_arch = "x86_64")]
fn compiled<F: Function, T: FloatElement>(isa: Isa) -> LaneFn
where
    load::Portable: Load<T>,
    load::Avx2: Load<T>,
    load::Avx512: Load<T>,
{
    match isa {
        Isa::Avx512 => avx512::<F, T>,
        Isa::Avx2 => avx2::<F, T>,
        _ => portable::<F, T>,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn compiled<F: Function, T: FloatElement>(_isa: Isa) -> LaneFn
where
    load::Portable: Load<T>,
{
    portable::<F, T>
}

/// An operation of one element, or of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneOp {
    /// Of one.
    Unary(Unary),
    /// Of two.
    Binary(Binary),
}

macro_rules! lane_functions {
    (unary: $($u:ident = $f:ty),*; binary: $($b:ident = $g:ty),*) => {
        /// The operations that have vector code.
        pub(crate) const LANE_OPS: &[LaneOp] = &[$(LaneOp::Unary(Unary::$u),)* $(LaneOp::Binary(Binary::$b),)*];

        /// The vector code of an operation on f64 elements if `wide`, else on f32 elements.
        pub(crate) fn lane_function(op: LaneOp, wide: bool, isa: Isa) -> Option<LaneFn> {
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
        Erf = erf::Erf, Erfc = erf::Erfc, Erfcx = erf::Erfcx, Erfinv = inverse_erf::Erfinv, Ndtri = inverse_erf::Ndtri,
        Lgamma = gamma::Lgamma, Digamma = gamma::Digamma,
        I0 = bessel::I0, I0e = bessel::I0e, I1 = bessel::I1, I1e = bessel::I1e;
    binary:
        Atan2 = inverse::Atan2, Pow = power::Pow, Hypot = power::Hypot, Zeta = gamma::Zeta, Nextafter = neighbour::Nextafter
}

// Building blocks.

/// 1.5 * 2^52. Adding it rounds a small float to an integer, whose value is then in the low bits.
pub(crate) const MAGIC: f64 = 6755399441055744.0;

#[inline(always)]
fn fma(a: f64, b: f64, c: f64) -> f64 {
    a.mul_add(b, c)
}

/// `c ? a : b`, both computed.
#[inline(always)]
fn pick(c: bool, a: f64, b: f64) -> f64 {
    if c { a } else { b }
}

/// A word whose top bit is set unless `low <= x < high`, for bounds that are not negative.
#[inline(always)]
fn outside(x: f64, low: f64, high: f64) -> u64 {
    let below = x.to_bits().wrapping_sub(low.to_bits());
    let above = high.to_bits().wrapping_sub(1).wrapping_sub(x.to_bits());
    below | above
}

/// The least positive number.
const LEAST: f64 = 5e-324;

/// The polynomial with these coefficients, from the highest power down.
#[inline(always)]
fn horner<const N: usize>(x: f64, c: &[f64; N]) -> f64 {
    x.horner(c)
}

/// [`horner`] as two summands, for a last coefficient that is larger than the rest. The second has the rounding error of the sum.
#[inline(always)]
fn horner_of_two_parts<const N: usize>(x: f64, c: &[f64; N]) -> (f64, f64) {
    let (mut p, mut i) = (c[0], 1);
    while i < N - 1 {
        p = fma(p, x, c[i]);
        i += 1;
    }
    let high = fma(p, x, c[N - 1]);
    (high, fma(p, x, c[N - 1] - high))
}

/// The upper 21 bits of the significand, so that a square is exact.
#[inline(always)]
fn upper_half(x: f64) -> f64 {
    f64::from_bits(x.to_bits() & !0xffff_ffff)
}

#[cfg(test)]
mod tests;
