//! Orthogonal polynomials of degree n as torch computes them, in the operand's own dtype: closed forms where torch uses
//! them and recurrences elsewhere, with the multiply-adds that torch's compiler generates, so that overflow and loss of
//! precision match torch's.
//!
//! A recurrence ends at NaN. Where the values stay finite (Laguerre's, and Legendre's within [-1, 1]) torch counts up to the degree, for
//! centuries if it is large; here [`MOST_STEPS`] bounds it.

use crate::tensor::Element;

/// The largest number of steps of a recurrence, which take about half a second. Tests take fewer.
pub(crate) const MOST_STEPS: i64 = if cfg!(test) { 1 << 20 } else { 1 << 26 };

/// The number of steps after which a recurrence asks whether to go on.
const BLOCK: i64 = 1 << 16;

/// Converts a degree given as a float by truncation as x86 does it: NaN and out-of-range values become far less than 0.
pub(crate) fn degree(n: f64) -> i64 {
    if n.abs() < 9_223_372_036_854_775_807.0 {
        n as i64
    } else {
        i64::MIN
    }
}

/// The number of places whose recurrences run at the same time.
const PLACES: usize = 32;

/// The largest degree whose recurrence does not look for NaN, where it could end.
const MOST_IN_BLOCKS: i64 = 1 << 10;

/// The families of `torch.special`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
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

/// The degree above which torch computes a Chebyshev polynomial in trigonometric form.
fn closed_form_above(family: Family, shifted: bool) -> i64 {
    match family {
        Family::ChebyshevT => 6,
        Family::ChebyshevW if shifted => 4,
        _ if shifted => 6,
        _ => 8,
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
            use super::{BLOCK, MOST_IN_BLOCKS, MOST_STEPS, PLACES, at_end, closed_form_above, parity, twice_and_one};

            #[doc = $doc]
            ///
            /// Recurrences ask `go_on` from time to time. `None` if it says no, or if the degree needs more than [`MOST_STEPS`].
            #[inline(always)]
            pub(super) fn polynomial(
                family: Family,
                shifted: bool,
                x: $t,
                n: i64,
                go_on: &dyn Fn() -> bool,
            ) -> Option<$t> {
                if n < 0 {
                    return Some(0.0);
                }
                match family {
                    ChebyshevT | ChebyshevU | ChebyshevV | ChebyshevW => chebyshev(family, shifted, x, n, go_on),
                    _ if n == 0 => Some(1.0),
                    HermiteH | HermiteHe if n > $hermite_limit => Some($t::NAN),
                    HermiteH => recurrence(x + x, n, go_on, |k, q, p| hermite_h(x, k, q, p)),
                    HermiteHe => recurrence(x, n, go_on, |k, q, p| hermite_he(x, k, q, p)),
                    LaguerreL if x == 0.0 => Some(1.0),
                    LaguerreL => recurrence(1.0 - x, n, go_on, |k, q, p| laguerre(x, k, q, p)),
                    LegendreP if x.abs() == 1.0 => Some((if x > 0.0 { 1 } else { parity(n) }) as $t),
                    LegendreP => recurrence(x, n, go_on, |k, q, p| legendre(x, k, q, p)),
                }
            }

            /// The polynomials of one degree at many places, if there are few steps and no special cases: at the ends of an interval
            /// the recurrence is exact, and NaN stays NaN. Returns whether it is so; then `out` has the values.
            #[inline(always)]
            pub(super) fn fill(family: Family, shifted: bool, n: i64, x: &[$t], out: &mut [$t]) -> bool {
                let most = match family {
                    ChebyshevT | ChebyshevU | ChebyshevV | ChebyshevW => closed_form_above(family, shifted),
                    HermiteH | HermiteHe => $hermite_limit,
                    LaguerreL | LegendreP => MOST_IN_BLOCKS,
                };
                if !(1..=most).contains(&n) {
                    return false;
                }
                let y = |x: $t| if shifted { x + x - 1.0 } else { x };
                match family {
                    ChebyshevT => blocks(x, out, n, y, |x, _, q, p| (y(x) + y(x)).mul_add(q, -p)),
                    ChebyshevU => blocks(
                        x,
                        out,
                        n,
                        |x| y(x) + y(x),
                        |x, _, q, p| (y(x) + y(x)).mul_add(q, -p),
                    ),
                    ChebyshevV => blocks(
                        x,
                        out,
                        n,
                        |x| y(x) + y(x) - 1.0,
                        |x, _, q, p| (y(x) + y(x)).mul_add(q, -p),
                    ),
                    ChebyshevW => blocks(
                        x,
                        out,
                        n,
                        |x| y(x) + y(x) + 1.0,
                        |x, _, q, p| (y(x) + y(x)).mul_add(q, -p),
                    ),
                    HermiteH => blocks(x, out, n, |x| x + x, hermite_h),
                    HermiteHe => blocks(x, out, n, |x| x, hermite_he),
                    LaguerreL => blocks(x, out, n, |x| 1.0 - x, laguerre),
                    LegendreP => blocks(x, out, n, |x| x, legendre),
                }
                true
            }

            /// The recurrence of [`recurrence`] for blocks of places, in vectors.
            #[inline(always)]
            fn blocks(x: &[$t], out: &mut [$t], n: i64, first: impl Fn($t) -> $t, step: impl Fn($t, $t, $t, $t) -> $t) {
                for (x, out) in x.chunks(PLACES).zip(out.chunks_mut(PLACES)) {
                    let (mut at, mut p, mut q) = ([0.0; PLACES], [1.0; PLACES], [0.0; PLACES]);
                    at[..x.len()].copy_from_slice(x);
                    for i in 0..PLACES {
                        q[i] = first(at[i]);
                    }
                    for k in 1..n {
                        for i in 0..PLACES {
                            (p[i], q[i]) = (q[i], step(at[i], k as $t, q[i], p[i]));
                        }
                    }
                    out.copy_from_slice(&q[..out.len()]);
                }
            }

            #[inline(always)]
            fn hermite_h(x: $t, k: $t, q: $t, p: $t) -> $t {
                (x + x).mul_add(q, -((k + k) * p))
            }

            #[inline(always)]
            fn hermite_he(x: $t, k: $t, q: $t, p: $t) -> $t {
                x.mul_add(q, -(k * p))
            }

            #[inline(always)]
            fn laguerre(x: $t, k: $t, q: $t, p: $t) -> $t {
                (k + k + (1.0 - x)).mul_add(q, -(k * p)) / (k + 1.0)
            }

            #[inline(always)]
            fn legendre(x: $t, k: $t, q: $t, p: $t) -> $t {
                ((k + k + 1.0) * x).mul_add(q, -(k * p)) / (k + 1.0)
            }

            /// Chebyshev polynomials: integers at the ends, trigonometric form for large degrees, recurrence otherwise.
            #[inline(always)]
            fn chebyshev(family: Family, shifted: bool, x: $t, n: i64, go_on: &dyn Fn() -> bool) -> Option<$t> {
                let y = if shifted { x + x - 1.0 } else { x };
                let is_at = |end: $t| if shifted { x == (end + 1.0) / 2.0 } else { x == end };
                if is_at(1.0) || is_at(-1.0) {
                    return Some(at_end(family, is_at(1.0), n) as $t);
                }
                if n > closed_form_above(family, shifted) && y.abs() < 1.0 {
                    return Some(by_angle(family, shifted, y, n));
                }
                let first = match family {
                    ChebyshevT => y,
                    ChebyshevU => y + y,
                    ChebyshevV => y + y - 1.0,
                    _ => y + y + 1.0,
                };
                match n {
                    0 => Some(1.0),
                    _ => recurrence(first, n, go_on, |_, q, p| (y + y).mul_add(q, -p)),
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

            /// Iterates `r = step(k, q, p)` for k in `1..n`, from the values of degrees 0 and 1, until NaN.
            #[inline(always)]
            fn recurrence(first: $t, n: i64, go_on: &dyn Fn() -> bool, step: impl Fn($t, $t, $t) -> $t) -> Option<$t> {
                let (mut p, mut q, mut k) = (1.0, first, 1);
                while k < n {
                    let end = n.min(k.saturating_add(BLOCK));
                    for k in k..end {
                        if q.is_nan() {
                            return Some(q);
                        }
                        (p, q) = (q, step(k as $t, q, p));
                    }
                    k = end;
                    if k < n && (k >= MOST_STEPS || !go_on()) {
                        return None;
                    }
                }
                Some(q)
            }
        }

        impl Real for $t {
            #[inline(always)]
            fn polynomial(family: Family, shifted: bool, x: $t, n: i64, go_on: &dyn Fn() -> bool) -> Option<$t> {
                $module::polynomial(family, shifted, x, n, go_on)
            }

            #[inline(always)]
            fn fill(family: Family, shifted: bool, n: i64, x: &[$t], out: &mut [$t]) -> bool {
                $module::fill(family, shifted, n, x, out)
            }
        }
    };
}

/// The types in which torch computes polynomials.
pub(crate) trait Real: Element {
    /// The polynomial of `family` of degree `n` at `x`; `None` if it needs too many steps, or `go_on` says no.
    fn polynomial(family: Family, shifted: bool, x: Self, n: i64, go_on: &dyn Fn() -> bool) -> Option<Self>;

    /// The polynomials of degree `n` at `x`, in vectors. Returns false if the degree needs [`Real::polynomial`].
    fn fill(family: Family, shifted: bool, n: i64, x: &[Self], out: &mut [Self]) -> bool;
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

    fn value(family: Family, shifted: bool, x: f64, n: i64) -> f64 {
        f64::polynomial(family, shifted, x, n, &|| true).expect("few steps")
    }

    #[test]
    fn values_are_torch_s() {
        use Family::*;
        assert_eq!(value(ChebyshevT, false, 0.5, 3), -1.0);
        assert_eq!(value(ChebyshevU, false, 2.0, 3), 56.0);
        assert_eq!(value(ChebyshevV, false, -1.0, 3), -7.0);
        assert_eq!(value(ChebyshevW, true, 1.0, 3), 7.0);
        assert_eq!(value(HermiteH, false, 0.5, 3), -5.0);
        assert_eq!(value(HermiteHe, false, 2.0, 3), 2.0);
        assert_eq!(value(LaguerreL, false, 1.0, 2), -0.5);
        assert_eq!(value(LegendreP, false, 0.5, 2), -0.125);
        assert!((value(ChebyshevT, false, 0.3, 20) - 0.982_130_131_054_892).abs() < 1e-12);
        assert_eq!(f32::polynomial(HermiteH, false, 0.5, -1, &|| true), Some(0.0));
        assert!(f32::polynomial(HermiteH, false, 0.5, 129, &|| true).is_some_and(f32::is_nan));
        assert_eq!((degree(f64::NAN), degree(2.9)), (i64::MIN, 2));
    }

    #[test]
    fn no_degree_takes_forever() {
        use Family::*;
        let huge = i64::MAX;
        // torch's values: the recurrence ends at NaN, or there is a closed form.
        assert!(value(LaguerreL, false, -0.5, huge).is_nan());
        assert!(value(LegendreP, false, 1.5, huge).is_nan());
        assert!(value(ChebyshevU, false, 1.5, huge).is_nan());
        assert!(value(HermiteHe, false, 0.5, huge).is_nan());
        assert!(value(ChebyshevW, true, 0.3, huge).abs() <= 5.0);
        assert_eq!(value(LegendreP, false, -1.0, huge), -1.0);
        // torch would count.
        assert_eq!(f64::polynomial(LegendreP, false, 0.5, huge, &|| false), None);
        let asked = std::cell::Cell::new(0);
        let ask = || asked.replace(asked.get() + 1) < 3;
        assert_eq!(f32::polynomial(LaguerreL, false, 0.5, huge, &ask), None);
        assert_eq!(asked.get(), 4);
    }

    #[test]
    fn recurrences_end_after_the_largest_number_of_steps() {
        use Family::*;
        let blocks = |family, shifted, x| {
            let asked = std::cell::Cell::new(0);
            let ask = || {
                asked.set(asked.get() + 1);
                true
            };
            let value = f32::polynomial(family, shifted, x, i64::MAX, &ask);
            (value, asked.get() * BLOCK)
        };
        for (family, shifted, x) in [
            (LaguerreL, false, 0.5),
            (LegendreP, false, 0.5),
            (ChebyshevT, true, 1e-30),
        ] {
            let (value, steps) = blocks(family, shifted, x);
            assert_eq!(value, None, "{family:?}");
            assert!(steps <= MOST_STEPS, "{family:?}: {steps}");
        }
        // torch has a closed form, or its values end in NaN.
        for (family, x) in [(LaguerreL, 1e30), (ChebyshevU, 0.5), (LegendreP, -1.5)] {
            let (value, steps) = blocks(family, false, x);
            assert!(value.is_some() && steps == 0, "{family:?}: {value:?}, {steps}");
        }
    }

    #[test]
    fn vectors_have_the_values_of_elements() {
        use Family::*;
        let x: Vec<f32> = (0..75)
            .map(|i| [f32::NAN, 1.0, -1.0, 0.0, 0.5, 2e20, i as f32 / 37.0 - 1.0][i % 7])
            .collect();
        for family in [
            ChebyshevT, ChebyshevU, ChebyshevV, ChebyshevW, HermiteH, HermiteHe, LaguerreL, LegendreP,
        ] {
            for (n, shifted) in [
                (1, false),
                (2, true),
                (4, false),
                (6, true),
                (8, false),
                (100, false),
                (129, false),
            ] {
                let mut out = vec![0.0; x.len()];
                if <f32 as Real>::fill(family, shifted, n, &x, &mut out) {
                    let same = |(&x, y): (&f32, &f32)| {
                        let one = f32::polynomial(family, shifted, x, n, &|| true).expect("few steps");
                        one.to_bits() == y.to_bits() || one.is_nan() && y.is_nan()
                    };
                    assert!(x.iter().zip(&out).all(same), "{family:?} {n} {shifted}");
                }
            }
        }
    }
}
