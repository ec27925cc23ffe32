//! Affine expressions of loop variables, and the indices and conditions built from them.

use super::{Value, Var};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, Mul, Neg, Sub};

/// `base + Σ stride * variable`. The terms are sorted by variable and have nonzero strides. Arithmetic saturates, so an
/// absurdly large shape gives an index that the verifier rejects, not a wrapped one that it accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Affine {
    /// The constant part.
    pub base: i64,
    terms: Vec<(Var, i64)>,
}

impl Affine {
    /// `base + Σ stride * var`; repeated variables add up.
    pub fn new(base: i64, terms: impl IntoIterator<Item = (Var, i64)>) -> Affine {
        let mut sum = Affine::from(base);
        terms.into_iter().for_each(|(v, s)| sum.add_term(v, s));
        sum
    }

    fn add_term(&mut self, v: Var, stride: i64) {
        match self.terms.binary_search_by_key(&v, |t| t.0) {
            Ok(i) => {
                self.terms[i].1 = self.terms[i].1.saturating_add(stride);
                if self.terms[i].1 == 0 {
                    self.terms.remove(i);
                }
            }
            Err(i) if stride != 0 => self.terms.insert(i, (v, stride)),
            Err(_) => {}
        }
    }

    /// The index of a strided view: `base + Σ strides[d] * vars[d]`. The slices have one length.
    pub fn from_strides(base: i64, vars: &[Var], strides: &[i64]) -> Affine {
        assert_eq!(vars.len(), strides.len(), "one stride per variable");
        Affine::new(base, vars.iter().copied().zip(strides.iter().copied()))
    }

    /// The row-major linear index of `vars` within `shape`.
    pub fn row_major(vars: &[Var], shape: &[usize]) -> Affine {
        let strides: Vec<i64> = crate::tensor::contiguous_strides(shape)
            .iter()
            .map(|&s| s as i64)
            .collect();
        Affine::from_strides(0, vars, &strides)
    }

    /// The variables with their strides, sorted.
    pub fn terms(&self) -> &[(Var, i64)] {
        &self.terms
    }

    /// The stride of `v`, 0 if it does not occur.
    pub fn stride(&self, v: Var) -> i64 {
        self.terms.iter().find(|t| t.0 == v).map_or(0, |t| t.1)
    }

    /// Whether no variable occurs.
    pub fn is_const(&self) -> bool {
        self.terms.is_empty()
    }

    /// The expression without its term in `v`.
    pub fn without(&self, v: Var) -> Affine {
        Affine {
            base: self.base,
            terms: self.terms.iter().copied().filter(|t| t.0 != v).collect(),
        }
    }

    /// The value under an assignment of the variables.
    pub fn eval(&self, value: impl Fn(Var) -> i64) -> i64 {
        self.terms
            .iter()
            .fold(self.base, |a, &(v, s)| a.wrapping_add(s.wrapping_mul(value(v))))
    }

    /// Smallest and largest value when each variable runs over `0..extent(v)` (extents at least 1).
    pub fn value_range(&self, extent: impl Fn(Var) -> usize) -> (i128, i128) {
        let mut lo = self.base as i128;
        let mut hi = lo;
        for &(v, s) in &self.terms {
            let span = s as i128 * (extent(v) as i128 - 1);
            lo += span.min(0);
            hi += span.max(0);
        }
        (lo, hi)
    }
}

impl From<i64> for Affine {
    fn from(base: i64) -> Affine {
        Affine { base, terms: vec![] }
    }
}

impl From<Var> for Affine {
    fn from(v: Var) -> Affine {
        Affine {
            base: 0,
            terms: vec![(v, 1)],
        }
    }
}

impl From<&Affine> for Affine {
    fn from(a: &Affine) -> Affine {
        a.clone()
    }
}

impl<T: Into<Affine>> Add<T> for Affine {
    type Output = Affine;
    fn add(mut self, other: T) -> Affine {
        let other = other.into();
        // Saturated, because an offset that wrapped around could pass the verifier.
        self.base = self.base.saturating_add(other.base);
        match self.terms.is_empty() {
            true => self.terms = other.terms,
            false => other.terms.into_iter().for_each(|(v, s)| self.add_term(v, s)),
        }
        self
    }
}

impl Neg for Affine {
    type Output = Affine;
    fn neg(self) -> Affine {
        self * -1
    }
}

impl<T: Into<Affine>> Sub<T> for Affine {
    type Output = Affine;
    fn sub(self, other: T) -> Affine {
        self + -other.into()
    }
}

impl Mul<i64> for Affine {
    type Output = Affine;
    fn mul(mut self, k: i64) -> Affine {
        self.base = self.base.saturating_mul(k);
        self.terms.iter_mut().for_each(|t| t.1 = t.1.saturating_mul(k));
        self.terms.retain(|t| t.1 != 0);
        self
    }
}

impl<T: Into<Affine>> Add<T> for Var {
    type Output = Affine;
    fn add(self, other: T) -> Affine {
        Affine::from(self) + other
    }
}

impl<T: Into<Affine>> Sub<T> for Var {
    type Output = Affine;
    fn sub(self, other: T) -> Affine {
        Affine::from(self) - other
    }
}

impl Mul<i64> for Var {
    type Output = Affine;
    fn mul(self, k: i64) -> Affine {
        Affine::from(self) * k
    }
}

/// The element of a buffer that an access touches: an affine part plus terms in values that are known only at run time.
/// Each such value is the result of an [`Inst::Bounded`](super::Inst::Bounded), so the verifier can bound the whole
/// index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Index {
    /// The part that depends on loop variables alone.
    pub affine: Affine,
    /// `stride * value` terms.
    pub dynamic: Vec<(Value, i64)>,
}

impl Index {
    /// This index plus `stride * value`, where `value` is a bounded i64.
    pub fn plus_dynamic(mut self, value: Value, stride: i64) -> Index {
        self.dynamic.push((value, stride));
        self
    }
}

impl<T: Into<Affine>> From<T> for Index {
    fn from(a: T) -> Index {
        Index {
            affine: a.into(),
            dynamic: vec![],
        }
    }
}

/// `lo <= expr < hi`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cond {
    /// The expression that is tested.
    pub expr: Affine,
    /// The least value that passes (inclusive lower bound).
    pub lo: i64,
    /// The exclusive upper bound.
    pub hi: i64,
}

impl Cond {
    /// `0 <= expr < size`: an index within a dimension.
    pub fn within(expr: impl Into<Affine>, size: usize) -> Cond {
        Cond {
            expr: expr.into(),
            lo: 0,
            hi: i64::try_from(size).unwrap_or(i64::MAX),
        }
    }

    /// Whether it holds under an assignment.
    pub fn holds(&self, value: impl Fn(Var) -> i64) -> bool {
        (self.lo..self.hi).contains(&self.expr.eval(value))
    }
}

impl fmt::Display for Affine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        let sign = |neg: bool, first: &mut bool| match (std::mem::take(first), neg) {
            (true, false) => "",
            (true, true) => "-",
            (false, false) => " + ",
            (false, true) => " - ",
        };
        for &(v, s) in &self.terms {
            f.write_str(sign(s < 0, &mut first))?;
            match s.unsigned_abs() {
                1 => write!(f, "i{}", v.0)?,
                s => write!(f, "{s} * i{}", v.0)?,
            }
        }
        if self.base != 0 || first {
            f.write_str(sign(self.base < 0, &mut first))?;
            write!(f, "{}", self.base.unsigned_abs())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_up_and_prints() {
        let (i, j) = (Var(0), Var(1));
        let a = i * 8 + j - 3 + i * -8 + j;
        assert_eq!(a.to_string(), "2 * i1 - 3");
        assert_eq!(Affine::from(0).to_string(), "0");
        assert_eq!((Affine::from(5) - j).to_string(), "-i1 + 5");
    }

    #[test]
    fn ranges_hold_every_value() {
        let (i, j) = (Var(0), Var(1));
        let a = i * 3 - j * 2 + 1;
        assert_eq!(a.value_range(|v| if v == i { 4 } else { 5 }), (-7, 10));
        assert_eq!(a.eval(|v| if v == i { 3 } else { 0 }), 10);
    }

    #[test]
    fn saturates() {
        let a = Var(0) * i64::MAX * 2 + i64::MAX;
        assert_eq!(a.stride(Var(0)), i64::MAX);
        assert!(a.value_range(|_| usize::MAX).1 > i64::MAX as i128);
    }
}
