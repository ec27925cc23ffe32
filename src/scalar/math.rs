//! The float functions that implement [`Unary`] and [`Binary`], as plain Rust functions.
//!
//! Each exists for f64 and for f32. The f32 version computes in f64 and rounds once, so it is correctly rounded except
//! for rare ties, which is at least as accurate as torch. Compiled code calls these functions through the tables if it
//! has no vector code of its own.

use super::zeta::{zeta, zeta_f32};
use super::{Binary, Unary};
use std::f64::consts::{FRAC_1_SQRT_2, PI, SQRT_2};

const FRAC_2_SQRT_PI: f64 = std::f64::consts::FRAC_2_SQRT_PI;
/// Half the logarithm of 2 pi.
const HALF_LN_2PI: f64 = 0.918_938_533_204_672_8;

macro_rules! unary_table {
    ($($op:ident => $f:expr,)*) => {
        /// `op` on f64. `None` for operations that do not map floats to floats (`Not`, `BitNot`, the predicates).
        pub(crate) fn f64_unary(op: Unary) -> Option<fn(f64) -> f64> {
            Some(match op {
                $(Unary::$op => $f,)*
                _ => return None,
            })
        }

        /// `op` on f32, computed in f64 and rounded once.
        pub(crate) fn f32_unary(op: Unary) -> Option<fn(f32) -> f32> {
            Some(match op {
                $(Unary::$op => |x| $f(x as f64) as f32,)*
                _ => return None,
            })
        }
    };
}

unary_table! {
    Neg => |x: f64| -x,
    Abs => f64::abs,
    Sign => sign,
    Floor => f64::floor,
    Ceil => f64::ceil,
    Round => f64::round_ties_even,
    Trunc => f64::trunc,
    Sqrt => f64::sqrt,
    Rsqrt => |x: f64| 1.0 / x.sqrt(),
    Recip => |x: f64| 1.0 / x,
    Exp => f64::exp,
    Exp2 => f64::exp2,
    Expm1 => f64::exp_m1,
    Log => f64::ln,
    Log2 => f64::log2,
    Log10 => f64::log10,
    Log1p => f64::ln_1p,
    Sin => f64::sin,
    Cos => f64::cos,
    Tan => f64::tan,
    Asin => f64::asin,
    Acos => f64::acos,
    Atan => f64::atan,
    Sinh => f64::sinh,
    Cosh => f64::cosh,
    Tanh => f64::tanh,
    Asinh => libm::asinh,
    // libm's acosh has finite values below 1.
    Acosh => |x: f64| if x < 1.0 { f64::NAN } else { libm::acosh(x) },
    Atanh => libm::atanh,
    Erf => libm::erf,
    Erfc => libm::erfc,
    Erfcx => erfcx,
    Erfinv => erfinv,
    Lgamma => libm::lgamma,
    Digamma => digamma,
    I0 => |x: f64| bessel_i(0, x.abs(), true),
    I0e => |x: f64| bessel_i(0, x.abs(), false),
    I1 => |x: f64| extend_odd(bessel_i(1, x.abs(), true), x),
    I1e => |x: f64| extend_odd(bessel_i(1, x.abs(), false), x),
    Ndtri => ndtri,
    Sigmoid => |x: f64| 1.0 / (1.0 + (-x).exp()),
}

macro_rules! binary_table {
    ($($op:ident => $f:expr,)*) => {
        /// `op` on f64. `None` for the bitwise operations and `Gcd`.
        pub(crate) fn f64_binary(op: Binary) -> Option<fn(f64, f64) -> f64> {
            Some(match op {
                $(Binary::$op => $f,)*
                Binary::Nextafter => nextafter64,
                _ => return None,
            })
        }

        /// `op` on f32: arithmetic in f32 (which equals computing in f64 and rounding once), the rest computed in f64.
        pub(crate) fn f32_binary(op: Binary) -> Option<fn(f32, f32) -> f32> {
            // torch computes these in several f32 steps, whose rounding decides between two integers.
            match op {
                Binary::FloorDiv => return Some(floor_div32),
                Binary::Mod => return Some(mod32),
                Binary::TruncDiv => return Some(|x, y| (x / y).trunc()),
                Binary::Nextafter => return Some(nextafter32),
                Binary::Zeta => return Some(|x, y| zeta_f32(x as f64, y as f64) as f32),
                _ => {}
            }
            Some(match op {
                $(Binary::$op => |x, y| $f(x as f64, y as f64) as f32,)*
                _ => return None,
            })
        }
    };
}

binary_table! {
    Add => |x: f64, y: f64| x + y,
    Sub => |x: f64, y: f64| x - y,
    Mul => |x: f64, y: f64| x * y,
    Div => |x: f64, y: f64| x / y,
    FloorDiv => floor_div64,
    TruncDiv => |x: f64, y: f64| (x / y).trunc(),
    Mod => mod64,
    Fmod => |x: f64, y: f64| x % y,
    Pow => f64::powf,
    Atan2 => f64::atan2,
    Max => max64,
    Min => min64,
    Fmax => |x: f64, y: f64| if x.is_nan() { y } else if y.is_nan() { x } else { max64(x, y) },
    Fmin => |x: f64, y: f64| if x.is_nan() { y } else if y.is_nan() { x } else { min64(x, y) },
    Copysign => f64::copysign,
    Hypot => libm::hypot,
    Zeta => zeta,
}

/// The value of an odd function, from its value at the magnitude. -0.0 gives 0.0, as in torch.
fn extend_odd(v: f64, x: f64) -> f64 {
    if x < 0.0 { -v } else { v }
}

fn sign(x: f64) -> f64 {
    if x > 0.0 {
        1.0
    } else if x < 0.0 {
        -1.0
    } else {
        0.0
    }
}

fn max64(x: f64, y: f64) -> f64 {
    if x.is_nan() || (!y.is_nan() && x >= y) { x } else { y }
}

fn min64(x: f64, y: f64) -> f64 {
    if x.is_nan() || (!y.is_nan() && x <= y) { x } else { y }
}

macro_rules! floor_div {
    ($t:ty, $div:ident, $rem:ident, $next:ident, $bits:ty) => {
        /// torch's `div_floor_floating`: Python's algorithm, except that `x / 0` follows IEEE 754.
        fn $div(x: $t, y: $t) -> $t {
            if y == 0.0 {
                return x / y;
            }
            let rem = x % y;
            let mut q = (x - rem) / y;
            if rem != 0.0 && (y < 0.0) != (rem < 0.0) {
                q -= 1.0;
            }
            if q == 0.0 {
                return (0.0 as $t).copysign(x / y);
            }
            let floor = q.floor();
            if q - floor > 0.5 { floor + 1.0 } else { floor }
        }

        /// Remainder with the divisor's sign: `fmod`, then one correction.
        fn $rem(x: $t, y: $t) -> $t {
            let rem = x % y;
            if rem != 0.0 && (y < 0.0) != (rem < 0.0) {
                rem + y
            } else {
                rem
            }
        }

        /// The next representable number from `x` towards `y`.
        fn $next(x: $t, y: $t) -> $t {
            if x.is_nan() || y.is_nan() {
                return <$t>::NAN;
            }
            if x == y {
                return y;
            }
            if x == 0.0 {
                return <$t>::from_bits(1).copysign(y);
            }
            let up = (x < y) == (x > 0.0);
            <$t>::from_bits(if up { x.to_bits() + 1 } else { x.to_bits() - 1 })
        }
    };
}
floor_div!(f64, floor_div64, mod64, nextafter64, u64);
floor_div!(f32, floor_div32, mod32, nextafter32, u32);

/// `exp(x²) erfc(x)`: the product while both factors are far from overflow and underflow, and the continued fraction of
/// `erfc` beyond (Abramowitz & Stegun 7.1.14).
pub(crate) fn erfcx(x: f64) -> f64 {
    if x < 10.0 {
        // Splitting x² exactly keeps the relative error of the exponential to 1 or 2 ULP.
        let hi = f64::from_bits(x.to_bits() & !0x7ff_ffff);
        let lo = (x - hi) * (x + hi);
        return if x < -26.7 {
            f64::INFINITY
        } else {
            (hi * hi).exp() * lo.exp() * libm::erfc(x)
        };
    }
    if x > 1e8 || x.is_nan() {
        return FRAC_2_SQRT_PI / 2.0 / x;
    }
    let mut t = x;
    for k in (1..=30).rev() {
        t = x + k as f64 / 2.0 / t;
    }
    FRAC_2_SQRT_PI / 2.0 / t
}

/// The inverse of `erf`: Winitzki's closed form, then three steps of Halley's method, which use `erfc` near ±1 because
/// `erf` has no digits left there.
pub(crate) fn erfinv(y: f64) -> f64 {
    let a = y.abs();
    if a.is_nan() || a > 1.0 {
        return f64::NAN;
    }
    if a == 1.0 {
        return f64::INFINITY.copysign(y);
    }
    if a < 1e-8 {
        return y * (1.0 / FRAC_2_SQRT_PI);
    }
    let l = (-a * a).ln_1p();
    let b = 2.0 / (PI * 0.147) + l / 2.0;
    let mut x = ((b * b - l / 0.147).sqrt() - b).sqrt();
    for _ in 0..3 {
        let err = if a > 0.5 {
            (1.0 - a) - libm::erfc(x)
        } else {
            libm::erf(x) - a
        };
        let d = err / (FRAC_2_SQRT_PI * (-x * x).exp());
        x -= d / (1.0 + x * d);
    }
    x.copysign(y)
}

/// The derivative of `lgamma`: reflection, recurrence up to 10, and the asymptotic series (Abramowitz & Stegun 6.3.18).
/// ±0 gives ∓∞ and a negative integer gives NaN, as in torch.
pub(crate) fn digamma(x: f64) -> f64 {
    if x == 0.0 {
        return f64::INFINITY.copysign(-x);
    }
    if x < 0.0 {
        // The tangent has period pi.
        let r = x - x.round_ties_even();
        return if r == 0.0 {
            f64::NAN
        } else {
            digamma(1.0 - x) - PI / (PI * r).tan()
        };
    }
    let (mut x, mut sum) = (x, 0.0);
    while x < 10.0 {
        sum -= 1.0 / x;
        x += 1.0;
    }
    if x == f64::INFINITY {
        return x;
    }
    // B(2k) / 2k
    const B: [f64; 8] = [
        1.0 / 12.0,
        -1.0 / 120.0,
        1.0 / 252.0,
        -1.0 / 240.0,
        1.0 / 132.0,
        -691.0 / 32760.0,
        1.0 / 12.0,
        -3617.0 / 8160.0,
    ];
    let z = 1.0 / (x * x);
    let tail = B.iter().rev().fold(0.0, |acc, b| (acc + b) * z);
    sum + x.ln() - 0.5 / x - tail
}

/// The modified Bessel function of the first kind of order 0 or 1 at `x >= 0`, multiplied by `exp(-x)` unless `full`:
/// the power series below 20 and the asymptotic series above (Abramowitz & Stegun 9.6.10, 9.7.1).
pub(super) fn bessel_i(order: u32, x: f64, full: bool) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x < 20.0 {
        let q = x * x / 4.0;
        let mut term = if order == 1 { x / 2.0 } else { 1.0 };
        let mut sum = term;
        for k in 1.. {
            term *= q / (k as f64 * (k + order) as f64);
            sum += term;
            if term <= sum * 1e-18 {
                break;
            }
        }
        return if full { sum } else { sum * (-x).exp() };
    }
    let mu = 4.0 * (order * order) as f64;
    let (mut term, mut sum) = (1.0, 1.0);
    for k in 1..30 {
        let odd = (2 * k - 1) as f64;
        let next = -term * (mu - odd * odd) / (k as f64 * 8.0 * x);
        if next.abs() >= f64::abs(term) || next.abs() < 1e-18 {
            break;
        }
        term = next;
        sum += term;
    }
    // The product 2 pi x may overflow.
    let scaled = sum / ((2.0 * PI).sqrt() * x.sqrt());
    // Multiply by two factors: exp(x) overflows before the function does.
    if full {
        scaled * (x / 2.0).exp() * (x / 2.0).exp()
    } else {
        scaled
    }
}

/// The inverse of the normal distribution function: an initial estimate (Abramowitz & Stegun 26.2.23), then Halley's
/// method on a form of the distribution function that does not underflow.
pub(crate) fn ndtri(p: f64) -> f64 {
    if !(0.0..=1.0).contains(&p) {
        return f64::NAN;
    }
    if p == 0.0 || p == 1.0 {
        return if p == 0.0 { f64::NEG_INFINITY } else { f64::INFINITY };
    }
    if (0.25..=0.75).contains(&p) {
        return SQRT_2 * erfinv(2.0 * p - 1.0);
    }
    let q = p.min(1.0 - p);
    let t = (-2.0 * q.ln()).sqrt();
    let mut x = (2.515517 + t * (0.802853 + t * 0.010328)) / (1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308))) - t;
    for _ in 0..4 {
        // (Φ(x) - q) / φ(x) with x < 0.
        let d = (PI / 2.0).sqrt() * erfcx(-x * FRAC_1_SQRT_2) - (q.ln() + x * x / 2.0 + HALF_LN_2PI).exp();
        x -= d / (1.0 + x * d / 2.0);
    }
    if p < 0.5 { x } else { -x }
}

/// The greatest common divisor of the magnitudes. The lowest integer is its own magnitude, which gives the signs that torch's
/// loop gives: `gcd(2^63 - 1, -2^63)` is -1.
pub(crate) fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.wrapping_abs(), b.wrapping_abs());
    while a != 0 {
        (a, b) = (b.wrapping_rem(a), a);
    }
    b
}

#[cfg(test)]
mod tests;
