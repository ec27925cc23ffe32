//! Symbolic sizes in a normal form.
//!
//! A [`Dim`] is a constant, an unknown (`?`), or a polynomial over atoms with integer coefficients. An atom is a size
//! variable (`N`), a floor division or remainder that did not simplify, or an integer computed in another way, such as
//! `TruncToInt(1.5*ToFloat(N))`: a [`SizeExpr`]. Equal polynomials are equal values, so `==` decides equality of sizes
//! as far as the normal form does.

mod atom;
mod bounds;
mod expr;
mod fixed;
mod functions;
mod print;

pub(crate) use bounds::watch_overflow;
pub use expr::SizeExpr;
pub(super) use expr::SizeValue;
pub use functions::SizeFn;

use self::atom::{Atom, floor_div};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A size: constant, symbolic, or unknown.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dim {
    /// A known size, or any known integer that a symbolic computation yields.
    Const(i64),
    /// A polynomial with at least one variable, as a sorted list of terms.
    Poly(Arc<[DimTerm]>),
    /// A size that is unknown until run time: `?`.
    Unknown,
}

/// `coef * product(factors)`. The constant term has no factors.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DimTerm {
    factors: Vec<Atom>,
    coef: i64,
}

/// Products with more terms than this are not expanded.
const MAX_TERMS: usize = 1024;

type Terms = BTreeMap<Vec<Atom>, i64>;

impl From<i64> for Dim {
    fn from(v: i64) -> Dim {
        Dim::Const(v)
    }
}

impl From<usize> for Dim {
    fn from(v: usize) -> Dim {
        Dim::Const(v as i64)
    }
}

impl Dim {
    /// The size variable `name`.
    pub fn var(name: &str) -> Dim {
        Dim::from_atom(Atom::Var(name.into()))
    }

    /// The value, if this is a constant.
    pub fn as_const(&self) -> Option<i64> {
        match self {
            Dim::Const(c) => Some(*c),
            _ => None,
        }
    }

    /// The variable's name, if this is a single variable.
    pub fn as_var(&self) -> Option<&str> {
        match self {
            Dim::Poly(t) => match &**t {
                [DimTerm { factors, coef: 1 }] => match &factors[..] {
                    [Atom::Var(v)] => Some(v),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        }
    }

    fn from_atom(a: Atom) -> Dim {
        let term = DimTerm {
            factors: vec![a],
            coef: 1,
        };
        Dim::Poly(Arc::new([term])).bounded()
    }

    fn to_terms(&self) -> Terms {
        match self {
            Dim::Const(0) | Dim::Unknown => Terms::new(),
            Dim::Const(c) => Terms::from([(vec![], *c)]),
            Dim::Poly(t) => t.iter().map(|t| (t.factors.clone(), t.coef)).collect(),
        }
    }

    fn from_terms(mut terms: Terms) -> Dim {
        terms.retain(|_, c| *c != 0);
        match terms.len() {
            0 => Dim::Const(0),
            1 if terms.contains_key(&vec![]) => Dim::Const(terms[&vec![]]),
            _ => {
                let terms = terms.into_iter();
                Dim::Poly(terms.map(|(factors, coef)| DimTerm { factors, coef }).collect()).bounded()
            }
        }
    }

    /// `self + other`; unknown on overflow ([`watch_overflow`]), or if the expression is too large.
    pub fn add(&self, other: &Dim) -> Dim {
        match (self, other) {
            (Dim::Const(a), Dim::Const(b)) => a.checked_add(*b).map_or_else(bounds::overflowed, Dim::Const),
            (Dim::Unknown, _) | (_, Dim::Unknown) => Dim::Unknown,
            _ => {
                let mut t = self.to_terms();
                for (k, v) in other.to_terms() {
                    let slot = t.entry(k).or_insert(0);
                    match slot.checked_add(v) {
                        Some(s) => *slot = s,
                        None => return Dim::Unknown,
                    }
                }
                Dim::from_terms(t)
            }
        }
    }

    /// `-self`.
    pub fn neg(&self) -> Dim {
        self.mul(&Dim::Const(-1))
    }

    /// `self - other`.
    pub fn sub(&self, other: &Dim) -> Dim {
        self.add(&other.neg())
    }

    /// `self * other`; unknown on overflow, or if the product has too many terms.
    pub fn mul(&self, other: &Dim) -> Dim {
        match (self, other) {
            (Dim::Const(a), Dim::Const(b)) => a.checked_mul(*b).map_or_else(bounds::overflowed, Dim::Const),
            (Dim::Const(0), _) | (_, Dim::Const(0)) => Dim::Const(0),
            (Dim::Unknown, _) | (_, Dim::Unknown) => Dim::Unknown,
            _ => multiply_terms(&self.to_terms(), &other.to_terms()).map_or(Dim::Unknown, Dim::from_terms),
        }
    }

    /// Floor division, like Python's `//`. Exact if every term divides; unknown for the divisor 0.
    pub fn floordiv(&self, other: &Dim) -> Dim {
        match (self, other) {
            (_, Dim::Const(0)) | (Dim::Unknown, _) | (_, Dim::Unknown) => Dim::Unknown,
            (Dim::Const(a), Dim::Const(b)) => Dim::Const(floor_div(*a, *b)),
            (_, Dim::Const(1)) => self.clone(),
            _ if self == other => Dim::Const(1),
            _ => self
                .exact_div(other)
                .unwrap_or_else(|| Dim::from_atom(Atom::FloorDiv(Box::new(self.clone()), Box::new(other.clone())))),
        }
    }

    /// Remainder with the divisor's sign, like Python's `%`.
    pub fn modulo(&self, other: &Dim) -> Dim {
        match (self, other) {
            (_, Dim::Const(0)) | (Dim::Unknown, _) | (_, Dim::Unknown) => Dim::Unknown,
            (Dim::Const(a), Dim::Const(b)) => Dim::Const(a.wrapping_sub(floor_div(*a, *b).wrapping_mul(*b))),
            (_, Dim::Const(1)) => Dim::Const(0),
            _ if self.exact_div(other).is_some() => Dim::Const(0),
            _ => Dim::from_atom(Atom::Mod(Box::new(self.clone()), Box::new(other.clone()))),
        }
    }

    /// The larger of two sizes.
    pub fn max_of(&self, other: &Dim) -> Dim {
        self.extremum_with(other, true)
    }

    /// The smaller of two sizes.
    pub fn min_of(&self, other: &Dim) -> Dim {
        self.extremum_with(other, false)
    }

    fn extremum_with(&self, other: &Dim, max: bool) -> Dim {
        match (self, other) {
            (Dim::Const(a), Dim::Const(b)) => Dim::Const(if max { *a.max(b) } else { *a.min(b) }),
            (Dim::Unknown, _) | (_, Dim::Unknown) => Dim::Unknown,
            _ if self == other => self.clone(),
            _ => {
                let (a, b) = if self <= other { (self, other) } else { (other, self) };
                let (a, b) = (Box::new(a.clone()), Box::new(b.clone()));
                Dim::from_atom(if max { Atom::Max(a, b) } else { Atom::Min(a, b) })
            }
        }
    }

    /// The quotient rounded up; `other` is not 0.
    pub fn ceil_div(&self, other: &Dim) -> Dim {
        match other.as_const() {
            Some(1..) => self.add(other).sub(&Dim::Const(1)).floordiv(other),
            _ => self.neg().floordiv(other).neg(),
        }
    }

    /// `self * factor`, rounded towards zero, like `int(size * factor)` in Python.
    pub fn scale_by(&self, factor: f64) -> Dim {
        let product = SizeExpr::float(factor).mul(&SizeExpr::Int(self.clone()).to_float());
        product
            .apply_function(SizeFn::TruncToInt)
            .into_dim()
            .unwrap_or(Dim::Unknown)
    }

    /// Whether this is provably nonnegative for all nonnegative values of the variables. Only the signs are considered.
    pub fn is_nonnegative(&self) -> bool {
        match self {
            Dim::Const(c) => *c >= 0,
            Dim::Unknown => false,
            Dim::Poly(terms) => terms
                .iter()
                .all(|t| t.coef >= 0 && t.factors.iter().all(Atom::is_nonnegative)),
        }
    }

    /// The quotient, if `other` is a single term that divides every term of `self`.
    pub fn exact_div(&self, other: &Dim) -> Option<Dim> {
        let d = other.to_terms();
        if d.len() != 1 {
            return (self == other).then_some(Dim::Const(1));
        }
        let (df, dc) = d.into_iter().next()?;
        let mut out = Terms::new();
        for (mut f, c) in self.to_terms() {
            for a in &df {
                let position = f.iter().position(|x| x == a)?;
                f.remove(position);
            }
            if dc == 0 || c.checked_rem(dc)? != 0 {
                return None;
            }
            out.insert(f, c / dc);
        }
        Some(Dim::from_terms(out))
    }

    /// The value if `bind` binds every variable; `None` if it does not, on overflow, or for `?`.
    pub fn eval(&self, bind: &dyn Fn(&str) -> Option<i64>) -> Option<i64> {
        let Dim::Poly(terms) = self else { return self.as_const() };
        let mut sum = 0i64;
        for t in terms.iter() {
            let mut p = t.coef;
            for a in &t.factors {
                p = p.checked_mul(a.eval(bind)?)?;
            }
            sum = sum.checked_add(p)?;
        }
        Some(sum)
    }

    /// Replaces variables: `bind` returns a size for a name, or `None` to keep the variable.
    pub fn substitute(&self, bind: &dyn Fn(&str) -> Option<Dim>) -> Dim {
        let Dim::Poly(terms) = self else { return self.clone() };
        let mut sum = Dim::Const(0);
        for t in terms.iter() {
            let mut p = Dim::Const(t.coef);
            for a in &t.factors {
                p = p.mul(&a.substitute(bind));
            }
            sum = sum.add(&p);
        }
        sum
    }

    /// Calls `f` with the name of every variable.
    pub fn visit_vars(&self, f: &mut dyn FnMut(&str)) {
        let Dim::Poly(terms) = self else { return };
        for a in terms.iter().flat_map(|t| &t.factors) {
            match a {
                Atom::Var(v) => f(v),
                Atom::FloorDiv(a, b) | Atom::Mod(a, b) | Atom::Max(a, b) | Atom::Min(a, b) => {
                    a.visit_vars(f);
                    b.visit_vars(f);
                }
                Atom::Expr(e) => e.visit_vars(f),
            }
        }
    }

    /// Returns `(var, coef, rest)` if `self = coef * var + rest` with constant `coef` and `rest` and no other atom.
    /// Solving an equation for `var` needs this.
    pub fn as_linear(&self) -> Option<(&str, i64, i64)> {
        let Dim::Poly(terms) = self else { return None };
        let mut rest = 0;
        let mut var = None;
        for t in terms.iter() {
            match &t.factors[..] {
                [] => rest = t.coef,
                [Atom::Var(v)] if var.is_none() => var = Some((&**v, t.coef)),
                _ => return None,
            }
        }
        var.map(|(v, c)| (v, c, rest))
    }
}

/// The product of two sums; `None` on overflow, or if it has too many terms. Products are expanded: a product of many
/// sums would have more terms than fit in memory.
fn multiply_terms(a: &Terms, b: &Terms) -> Option<Terms> {
    if a.len() * b.len() > MAX_TERMS {
        return None;
    }
    let mut product = Terms::new();
    for (fa, ca) in a {
        for (fb, cb) in b {
            let mut factors = [&fa[..], &fb[..]].concat();
            factors.sort();
            let sum = product.entry(factors).or_insert(0i64);
            *sum = sum.checked_add(ca.checked_mul(*cb)?)?;
        }
    }
    Some(product)
}

/// Broadcasts two shapes, right-aligned. `Err(dim)` is the first output dim (from the left) whose sizes are known and
/// differ. A symbolic size that is at most 1 is taken for 1. Another and a constant other than 1 yield the constant; two different symbolic
/// sizes yield the first. The caller records these cases as guards.
pub(crate) fn broadcast_dims(a: &[Dim], b: &[Dim]) -> Result<Vec<Dim>, usize> {
    let rank = a.len().max(b.len());
    let aligned = |s: &[Dim], i: usize| (i + s.len()).checked_sub(rank).map(|j| s[j].clone());
    let mut out = Vec::with_capacity(rank);
    for i in 0..rank {
        out.push(match (aligned(a, i), aligned(b, i)) {
            (Some(x), None) | (None, Some(x)) => x,
            (Some(x), Some(y)) if x == y => x,
            (Some(Dim::Const(1)), Some(y)) => y,
            (Some(x), Some(Dim::Const(1))) => x,
            (Some(x), Some(y)) if x.is_at_most_one() && !y.is_at_most_one() => y,
            (Some(x), Some(y)) if y.is_at_most_one() && !x.is_at_most_one() => x,
            (Some(Dim::Const(_)), Some(Dim::Const(_))) => return Err(i),
            (Some(c @ Dim::Const(_)), Some(_)) | (Some(_), Some(c @ Dim::Const(_))) => c,
            (Some(Dim::Unknown), Some(y)) => y,
            (Some(x), Some(_)) => x,
            (None, None) => unreachable!("one of the shapes has the rank"),
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
