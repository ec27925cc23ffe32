//! Equations between symbolic sizes.

use crate::diag::Diagnostic;
use crate::graph::{DimRange, Graph, NodeId};
use crate::source::Span;
use crate::types::{Dim, TensorType, Type, Val};
use indexmap::IndexMap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The origin of an equation: what demands it, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EquationOrigin {
    /// The text of the error that torch would raise, or the declaration.
    pub what: String,
    /// The node's name.
    pub node: String,
    /// The location of the node.
    pub span: Option<Span>,
}

impl EquationOrigin {
    /// The demand `demand` of node `n`.
    pub fn new(graph: &Graph, n: NodeId, demand: impl Into<String>) -> EquationOrigin {
        EquationOrigin {
            what: demand.into(),
            node: graph[n].name().to_string(),
            span: graph[n].meta.span,
        }
    }

    /// The annotation of node `n`.
    pub fn from_annotation(graph: &Graph, n: NodeId) -> EquationOrigin {
        EquationOrigin::new(graph, n, format!("the annotation of `%{}`", graph[n].name()))
    }
}

/// An equation that could be neither solved nor decided. It must be checked when the sizes are known.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Guard {
    /// The left side.
    pub left: Dim,
    /// The right side.
    pub right: Dim,
    /// What demands the equation.
    pub origin: EquationOrigin,
}

/// An equation that cannot hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contradiction {
    /// The left side with known sizes substituted.
    pub left: Dim,
    /// The right side with known sizes substituted.
    pub right: Dim,
    /// The reason, if the sides do not simply differ: a declared range, or no integer solution.
    pub why: Option<String>,
    /// The bound variables in the equation, their values, and what bound them.
    pub because: Vec<(Arc<str>, Dim, EquationOrigin)>,
}

/// Solves equations that are linear in one variable; keeps the others as guards.
#[derive(Clone, Debug, Default)]
pub struct Solver {
    ranges: IndexMap<Arc<str>, DimRange>,
    /// Variables that are determined. No value contains a bound variable.
    bound: IndexMap<Arc<str>, (Dim, EquationOrigin)>,
    guards: Vec<Guard>,
}

impl Solver {
    /// A solver for sizes with these declared bounds.
    pub fn new(ranges: IndexMap<Arc<str>, DimRange>) -> Solver {
        Solver {
            ranges,
            ..Solver::default()
        }
    }

    /// The size with bound variables substituted.
    pub fn apply_dim(&self, d: &Dim) -> Dim {
        if self.bound.is_empty() {
            return d.clone();
        }
        d.substitute(&|v| self.bound.get(v).map(|(d, _)| d.clone()))
    }

    /// The type with bound variables substituted.
    pub fn apply(&self, ty: &Type) -> Type {
        if self.bound.is_empty() {
            return ty.clone();
        }
        self.apply_ints(ty.map(|t| TensorType {
            dtype: t.dtype,
            shape: t.shape.as_ref().map(|s| s.iter().map(|d| self.apply_dim(d)).collect()),
        }))
    }

    fn apply_ints(&self, ty: Type) -> Type {
        let seq = |v: Vec<Type>| v.into_iter().map(|x| self.apply_ints(x)).collect();
        match ty {
            Val::Int(d) => Val::Int(self.apply_dim(&d)),
            Val::List(v) => Val::List(seq(v)),
            Val::Tuple(v) => Val::Tuple(seq(v)),
            Val::Dict(v) => Val::Dict(v.into_iter().map(|(k, x)| (k, self.apply_ints(x))).collect()),
            Val::Slice(v) => Val::Slice(Box::new(v.map(|x| self.apply_ints(x)))),
            Val::Range(v) => Val::Range(Box::new(v.map(|x| self.apply_ints(x)))),
            t => t,
        }
    }

    /// Adds the equation `a` = `b`.
    pub fn equate(&mut self, a: &Dim, b: &Dim, origin: &EquationOrigin) -> Result<(), Contradiction> {
        let (left, right) = (self.apply_dim(a), self.apply_dim(b));
        if left == right || left == Dim::Unknown || right == Dim::Unknown {
            return Ok(());
        }
        let contradiction = |s: &Solver, reason: Option<String>| Contradiction {
            left: left.clone(),
            right: right.clone(),
            why: reason,
            because: s.causes_of(a, b),
        };
        let diff = left.sub(&right);
        if diff.as_const().is_some() {
            return Err(contradiction(self, None));
        }
        if let Some((v, coef, rest)) = diff.as_linear() {
            let value = rest
                .checked_neg()
                .and_then(|r| (r.checked_rem(coef)? == 0).then(|| r / coef))
                .ok_or_else(|| format!("no integer `{v}` makes {left} equal to {right}"))
                .and_then(|value| self.out_of_range(v, value).map_or(Ok(value), Err));
            let value = value.map_err(|reason| contradiction(self, Some(reason)))?;
            self.bind(v.into(), Dim::Const(value), origin);
            return Ok(());
        }
        for (x, y) in [(&left, &right), (&right, &left)] {
            // A variable that is also on the other side cannot be replaced by that side.
            if let Some(v) = x.as_var()
                && !mentions_var(y, v)
            {
                self.bind(v.into(), y.clone(), origin);
                return Ok(());
            }
        }
        self.add_guard(left, right, origin);
        Ok(())
    }

    /// Keeps an equation for run time, unless it is already kept.
    fn add_guard(&mut self, left: Dim, right: Dim, origin: &EquationOrigin) {
        if !self.guards.iter().any(|g| g.left == left && g.right == right) {
            let origin = origin.clone();
            self.guards.push(Guard { left, right, origin });
        }
    }

    fn bind(&mut self, var: Arc<str>, value: Dim, origin: &EquationOrigin) {
        // Keeps values free of bound variables, so that `apply_dim` substitutes only once.
        for (d, _) in self.bound.values_mut() {
            *d = d.substitute(&|v| (v == &*var).then(|| value.clone()));
        }
        self.bound.insert(var, (value, origin.clone()));
    }

    fn out_of_range(&self, var: &str, value: i64) -> Option<String> {
        if value < 0 {
            return Some(format!("`{var}` would be {value}, but a size cannot be negative"));
        }
        let r = self.ranges.get(var)?;
        let outside = value < r.min || r.max.is_some_and(|m| value > m);
        outside.then(|| match r.max {
            Some(max) => format!("`{var}` would be {value}, but its declared range is {}..{max}", r.min),
            None => format!("`{var}` would be {value}, but its declared minimum is {}", r.min),
        })
    }

    fn causes_of(&self, a: &Dim, b: &Dim) -> Vec<(Arc<str>, Dim, EquationOrigin)> {
        let mut vars = BTreeSet::new();
        a.visit_vars(&mut |v| {
            vars.insert(v.to_string());
        });
        b.visit_vars(&mut |v| {
            vars.insert(v.to_string());
        });
        vars.iter()
            .filter_map(|v| {
                let (k, (d, o)) = self.bound.get_key_value(v.as_str())?;
                Some((k.clone(), d.clone(), o.clone()))
            })
            .collect()
    }

    /// Adds to `d` the origins of the determined sizes in `ty`.
    pub fn explain(&self, ty: &Type, d: Diagnostic) -> Diagnostic {
        let dims = ty.leaves().into_iter().filter_map(|t| t.shape.as_ref()).flatten();
        let because = dims.flat_map(|dim| self.causes_of(dim, dim)).collect();
        label_causes(d, because)
    }

    /// Checks the guards again with the current bindings. Drops those that hold and returns those that cannot hold.
    pub fn check_guards(&mut self) -> Vec<(EquationOrigin, Contradiction)> {
        let guards = std::mem::take(&mut self.guards);
        let mut bad = vec![];
        for g in guards {
            if let Err(e) = self.equate(&g.left, &g.right, &g.origin) {
                bad.push((g.origin, e));
            }
        }
        bad
    }

    /// The equations that are still undecided.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// The determined variables and their values.
    pub fn solved(&self) -> Vec<(Arc<str>, Dim)> {
        self.bound.iter().map(|(k, (d, _))| (k.clone(), d.clone())).collect()
    }
}

/// Adds labels at the origins of these sizes.
pub(super) fn label_causes(mut d: Diagnostic, because: Vec<(Arc<str>, Dim, EquationOrigin)>) -> Diagnostic {
    for (var, value, origin) in because {
        let text = format!("this determines `{var}` to be {value}: {}", origin.what);
        d = match origin.span {
            Some(s) if d.labels.iter().any(|l| l.span == s && l.text == text) => d,
            Some(s) => d.see(s, text),
            None if d.notes.contains(&text) => d,
            None => d.note(text),
        };
    }
    d
}

fn mentions_var(d: &Dim, var: &str) -> bool {
    let mut mentioned = false;
    d.visit_vars(&mut |v| mentioned |= v == var);
    mentioned
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(what: &str) -> EquationOrigin {
        EquationOrigin {
            what: what.into(),
            node: "x".into(),
            span: None,
        }
    }

    #[test]
    fn solves_linear_equations_and_finds_contradictions() {
        let (n, m) = (Dim::var("N"), Dim::var("M"));
        let mut s = Solver::default();
        let two_n = n.mul(&Dim::Const(2));
        assert!(
            s.equate(&two_n.add(&Dim::Const(1)), &Dim::Const(9), &origin("first"))
                .is_ok()
        );
        assert_eq!(s.apply_dim(&n), Dim::Const(4));
        let e = s.equate(&n, &Dim::Const(5), &origin("second")).unwrap_err();
        assert_eq!(e.because[0].2.what, "first");
        assert!(
            s.equate(&m.mul(&Dim::Const(2)), &Dim::Const(3), &origin("odd"))
                .is_err()
        );
        assert!(s.equate(&m.mul(&m), &Dim::Const(9), &origin("square")).is_ok());
        assert_eq!(s.guards().len(), 1);
        assert!(s.equate(&m, &Dim::Const(2), &origin("m")).is_ok());
        assert_eq!(s.check_guards().len(), 1);
    }

    #[test]
    fn ranges_bound_what_a_variable_can_be() {
        let range = DimRange {
            min: 1,
            max: Some(8),
            span: None,
        };
        let mut s = Solver::new(IndexMap::from([("N".into(), range)]));
        assert!(s.equate(&Dim::var("N"), &Dim::Const(9), &origin("x")).is_err());
        assert!(s.equate(&Dim::var("N"), &Dim::Const(8), &origin("x")).is_ok());
    }
}
