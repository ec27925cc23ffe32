//! The factors of symbolic sizes: variables, and functions that are not expanded.

use super::{Dim, SizeExpr, SizeValue};
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Atom {
    Var(Arc<str>),
    FloorDiv(Box<Dim>, Box<Dim>),
    Mod(Box<Dim>, Box<Dim>),
    Max(Box<Dim>, Box<Dim>),
    Min(Box<Dim>, Box<Dim>),
    /// An integer computed by another function.
    Expr(SizeExpr),
}

impl Atom {
    pub(super) fn is_nonnegative(&self) -> bool {
        match self {
            Atom::Var(_) => true,
            Atom::FloorDiv(a, b) | Atom::Min(a, b) => a.is_nonnegative() && b.is_nonnegative(),
            Atom::Mod(_, b) => b.is_nonnegative(),
            Atom::Max(a, b) => a.is_nonnegative() || b.is_nonnegative(),
            Atom::Expr(_) => false,
        }
    }

    pub(super) fn eval(&self, bind: &dyn Fn(&str) -> Option<i64>) -> Option<i64> {
        let pair = |a: &Dim, b: &Dim| Some((a.eval(bind)?, b.eval(bind)?));
        match self {
            Atom::Var(v) => bind(v),
            Atom::FloorDiv(a, b) => pair(a, b).and_then(|(a, b)| (b != 0).then(|| floor_div(a, b))),
            Atom::Mod(a, b) => pair(a, b).and_then(|(a, b)| (b != 0).then(|| a - floor_div(a, b) * b)),
            Atom::Max(a, b) => pair(a, b).map(|(a, b)| a.max(b)),
            Atom::Min(a, b) => pair(a, b).map(|(a, b)| a.min(b)),
            Atom::Expr(e) => match e.eval(bind)? {
                SizeValue::Int(i) => Some(i),
                SizeValue::Float(_) => None,
            },
        }
    }

    pub(super) fn substitute(&self, bind: &dyn Fn(&str) -> Option<Dim>) -> Dim {
        match self {
            Atom::Var(v) => bind(v).unwrap_or_else(|| Dim::from_atom(self.clone())),
            Atom::FloorDiv(a, b) => a.substitute(bind).floordiv(&b.substitute(bind)),
            Atom::Mod(a, b) => a.substitute(bind).modulo(&b.substitute(bind)),
            Atom::Max(a, b) => a.substitute(bind).max_of(&b.substitute(bind)),
            Atom::Min(a, b) => a.substitute(bind).min_of(&b.substitute(bind)),
            Atom::Expr(e) => e.substitute(bind).into_dim().unwrap_or(Dim::Unknown),
        }
    }
}

pub(super) fn floor_div(a: i64, b: i64) -> i64 {
    let q = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) {
        q - 1
    } else {
        q
    }
}
