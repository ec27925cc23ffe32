//! Orthogonal polynomials of degree n as torch computes them, in the operand's own dtype: closed forms where torch uses
//! them and recurrences elsewhere, with the multiply-adds that torch's compiler generates, so that overflow and loss of
//! precision match torch's.

/// Converts a degree given as a float by truncation as x86 does it: NaN and out-of-range values become far less than 0.
pub fn degree(n: f64) -> i64 {
    if n.abs() < 9_223_372_036_854_775_807.0 {
        n as i64
    } else {
        i64::MIN
    }
}

/// The families of `torch.special`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Chebyshev's polynomials of the first kind.
    ChebyshevT,
    /// Chebyshev's polynomials of the second kind.
    ChebyshevU,
    /// Chebyshev's polynomials of the third kind.
    ChebyshevV,
    /// Chebyshev's polynomials of the fourth kind.
    ChebyshevW,
    /// Hermite's polynomials as physicists write them.
    HermiteH,
    /// Hermite's polynomials as statisticians write them.
    HermiteHe,
    /// Laguerre's polynomials.
    LaguerreL,
    /// Legendre's polynomials.
    LegendreP,
}

/// 1 if n is even, -1 if it is odd.
fn parity(n: i64) -> i64 {
    if n % 2 == 0 { 1 } else { -1 }
}

/// The values of Chebyshev polynomials at the ends of their interval, which are integers.
fn at_end(family: Family, top: bool, n: i64) -> i64 {
    let sign = if top { 1 } else { parity(n) };
    match family {
        Family::ChebyshevU => sign.wrapping_mul(n.wrapping_add(1)),
        Family::ChebyshevV if !top => sign.wrapping_mul(twice_and_one(n)),
        Family::ChebyshevW if top => twice_and_one(n),
        _ => sign,
    }
}

/// 2n + 1 modulo 2^64, as in torch.
fn twice_and_one(n: i64) -> i64 {
    n.wrapping_add(n).wrapping_add(1)
}

macro_rules! polynomials {
    ($t:ident in $module:ident, $hermite_limit:literal, $doc:literal) => {
        mod $module {
            use super::Family::{self, *};
            use super::{at_end, parity, twice_and_one};

            #[doc = $doc]
            pub fn polynomial(family: Family, shifted: bool, x: $t, n: i64) -> $t {
                if n < 0 {
                    return 0.0;
                }
                match family {
                    ChebyshevT => chebyshev(family, shifted, x, n, 6),
                    ChebyshevU | ChebyshevV => chebyshev(family, shifted, x, n, if shifted { 6 } else { 8 }),
                    ChebyshevW => chebyshev(family, shifted, x, n, if shifted { 4 } else { 8 }),
                    _ if n == 0 => 1.0,
                    HermiteH | HermiteHe if n > $hermite_limit => $t::NAN,
                    HermiteH => recurrence(x + x, 1..=n - 1, |k, q, p| (x + x).mul_add(q, -((k + k) * p))),
                    HermiteHe => recurrence(x, 1..=n - 1, |k, q, p| x.mul_add(q, -(k * p))),
                    LaguerreL if x == 0.0 => 1.0,
                    LaguerreL => recurrence(1.0 - x, 1..=n - 1, |k, q, p| {
                        (k + k + (1.0 - x)).mul_add(q, -(k * p)) / (k + 1.0)
                    }),
                    LegendreP if x.abs() == 1.0 => (if x > 0.0 { 1 } else { parity(n) }) as $t,
                    LegendreP => recurrence(x, 1..=n - 1, |k, q, p| {
                        ((k + k + 1.0) * x).mul_add(q, -(k * p)) / (k + 1.0)
                    }),
                }
            }

            /// Chebyshev polynomials: integers at the ends, trigonometric form for degrees above `closed`, recurrence
            /// otherwise.
            fn chebyshev(family: Family, shifted: bool, x: $t, n: i64, closed: i64) -> $t {
                let y = if shifted { x + x - 1.0 } else { x };
                let is_at = |end: $t| if shifted { x == (end + 1.0) / 2.0 } else { x == end };
                if is_at(1.0) || is_at(-1.0) {
                    return at_end(family, is_at(1.0), n) as $t;
                }
                if n > closed && y.abs() < 1.0 {
                    return by_angle(family, shifted, y, n);
                }
                let first = match family {
                    ChebyshevT => y,
                    ChebyshevU => y + y,
                    ChebyshevV => y + y - 1.0,
                    _ => y + y + 1.0,
                };
                match n {
                    0 => 1.0,
                    _ => recurrence(first, 2..=n, |_, q, p| (y + y).mul_add(q, -p)),
                }
            }

            /// Chebyshev polynomials between the ends in trigonometric form. `y` is x mapped to [-1, 1].
            fn by_angle(family: Family, shifted: bool, y: $t, n: i64) -> $t {
                let angle = y.acos();
                let half = angle / 2.0;
                let above = n.wrapping_add(1) as $t;
                match family {
                    ChebyshevT => (n as $t * angle).cos(),
                    ChebyshevU if angle.sin() != 0.0 => (above * angle).sin() / angle.sin(),
                    ChebyshevU => above * (above * angle).cos() / y,
                    ChebyshevV if half.sin() != 1.0 => ((n as $t + 0.5) * angle).cos() / half.cos(),
                    ChebyshevV => parity(n) as $t * twice_and_one(n) as $t,
                    _ if half.cos() != 1.0 => ((n as $t + 0.5) * angle).sin() / half.sin(),
                    _ if y > 0.0 && !shifted => twice_and_one(n) as $t,
                    _ => parity(n) as $t,
                }
            }

            /// Iterates `r = step(k, q, p)` from the values of degrees 0 and 1, until NaN.
            fn recurrence(first: $t, ks: std::ops::RangeInclusive<i64>, step: impl Fn($t, $t, $t) -> $t) -> $t {
                let (mut p, mut q) = (1.0, first);
                for k in ks {
                    if q.is_nan() {
                        break;
                    }
                    (p, q) = (q, step(k as $t, q, p));
                }
                q
            }
        }
        pub use $module::polynomial as $t;
    };
}

polynomials!(
    f32 in single,
    128,
    "The polynomial of `family` of degree `n` at `x` in f32; `shifted` ones have the interval [0, 1]."
);
polynomials!(
    f64 in double,
    512,
    "The polynomial of `family` of degree `n` at `x` in f64; `shifted` ones have the interval [0, 1]."
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_torch_s() {
        use Family::*;
        assert_eq!(f64(ChebyshevT, false, 0.5, 3), -1.0);
        assert_eq!(f64(ChebyshevU, false, 2.0, 3), 56.0);
        assert_eq!(f64(ChebyshevV, false, -1.0, 3), -7.0);
        assert_eq!(f64(ChebyshevW, true, 1.0, 3), 7.0);
        assert_eq!(f64(HermiteH, false, 0.5, 3), -5.0);
        assert_eq!(f64(HermiteHe, false, 2.0, 3), 2.0);
        assert_eq!(f64(LaguerreL, false, 1.0, 2), -0.5);
        assert_eq!(f64(LegendreP, false, 0.5, 2), -0.125);
        assert!((f64(ChebyshevT, false, 0.3, 20) - 0.982_130_131_054_892).abs() < 1e-12);
        assert_eq!(f32(HermiteH, false, 0.5, -1), 0.0);
        assert!(f32(HermiteH, false, 0.5, 129).is_nan());
        assert_eq!((degree(f64::NAN), degree(2.9)), (i64::MIN, 2));
    }
}
