//! Comparison of declared types with inferred ones.

use super::solve::{Contradiction, EquationOrigin, Solver};
use crate::diag::Diagnostic;
use crate::types::{Dim, ScalarKind, TensorType, Type, Val};

/// Why two types do not agree.
#[derive(Clone, Debug)]
pub(super) enum Mismatch {
    /// Different kinds, dtypes, ranks or lengths.
    Kind,
    /// Sizes that cannot be equal.
    Size(Contradiction),
}

impl Mismatch {
    /// Notes that explain a mismatch which the two types do not show.
    pub(super) fn notes(&self) -> Vec<String> {
        match self {
            Mismatch::Kind => vec![],
            Mismatch::Size(c) => c.why.clone().into_iter().collect(),
        }
    }

    /// Adds labels where the sizes involved were determined.
    pub(super) fn label(&self, d: Diagnostic) -> Diagnostic {
        match self {
            Mismatch::Size(c) => super::solve::label_causes(d, c.because.clone()),
            Mismatch::Kind => d,
        }
    }
}

/// Merges `a` (declared) and `b` (found). Unknown parts of either are filled in from the other; pairs of symbolic sizes
/// become equations.
pub(super) fn merge_types(a: &Type, b: &Type, solver: &mut Solver, origin: &EquationOrigin) -> Result<Type, Mismatch> {
    match (a, b) {
        (Val::Unknown, t) | (t, Val::Unknown) => Ok(t.clone()),
        (Val::Leaf(x), Val::Leaf(y)) => merge_tensors(x, y, solver, origin).map(Val::Leaf),
        (Val::List(x) | Val::Tuple(x), Val::List(y)) => {
            merge_items(x, y, matches!(a, Val::List(_)), solver, origin).map(Val::List)
        }
        (Val::List(x) | Val::Tuple(x), Val::Tuple(y)) => {
            merge_items(x, y, matches!(a, Val::List(_)), solver, origin).map(Val::Tuple)
        }
        (Val::Dict(x), Val::Dict(y)) => {
            if x.len() != y.len() {
                return Err(Mismatch::Kind);
            }
            let items = x.iter().zip(y).map(|((k, x), (l, y))| {
                if k != l {
                    return Err(Mismatch::Kind);
                }
                Ok((k.clone(), merge_types(x, y, solver, origin)?))
            });
            Ok(Val::Dict(items.collect::<Result<Vec<_>, _>>()?))
        }
        (Val::Int(x), Val::Int(y)) => merge_dims(x, y, solver, origin).map(Val::Int),
        (Val::Any(k), v) | (v, Val::Any(k)) => {
            if scalar_kind(v) == Some(*k) {
                Ok(v.clone())
            } else {
                Err(Mismatch::Kind)
            }
        }
        _ if a.kind_name() == b.kind_name() => Ok(b.clone()),
        _ => Err(Mismatch::Kind),
    }
}

/// Merges the items `x` (declared, in a list if `list`) and `y` (found).
fn merge_items(
    x: &[Type],
    y: &[Type],
    list: bool,
    solver: &mut Solver,
    origin: &EquationOrigin,
) -> Result<Vec<Type>, Mismatch> {
    // `[T]` declares a list of any length whose items are `T`.
    let item_type = list && x.len() == 1 && y.len() != 1;
    if x.len() != y.len() && !item_type {
        return Err(Mismatch::Kind);
    }
    let declared = |i: usize| if item_type { &x[0] } else { &x[i] };
    let items = y.iter().enumerate();
    items
        .map(|(i, y)| merge_types(declared(i), y, solver, origin))
        .collect()
}

/// Whether the declared type has sizes that are unknown in `inferred`, the type of the op's own result.
pub(super) fn says_more(declared: &Type, inferred: &Type) -> bool {
    match (declared, inferred) {
        (Val::Leaf(d), Val::Leaf(f)) => match (&d.shape, &f.shape) {
            (Some(_), None) => true,
            (Some(d), Some(f)) => d
                .iter()
                .zip(f)
                .any(|(d, f)| d.as_const().is_some() && *f == Dim::Unknown),
            _ => false,
        },
        (Val::List(d) | Val::Tuple(d), Val::List(f) | Val::Tuple(f)) => d.iter().zip(f).any(|(d, f)| says_more(d, f)),
        _ => false,
    }
}

/// Whether a value of type `have` matches the declared type. Sizes are compared only if both are known.
pub fn matches_declared(declared: &Type, have: &Type) -> bool {
    match (declared, have) {
        (Val::Leaf(d), Val::Leaf(h)) => match (&d.shape, &h.shape) {
            (Some(x), Some(y)) => {
                let differs =
                    |(x, y): (&Dim, &Dim)| matches!((x.as_const(), y.as_const()), (Some(x), Some(y)) if x != y);
                d.dtype == h.dtype && x.len() == y.len() && !x.iter().zip(y).any(differs)
            }
            _ => d.dtype == h.dtype,
        },
        (Val::List(d) | Val::Tuple(d), Val::List(h) | Val::Tuple(h)) => {
            d.len() == h.len() && d.iter().zip(h).all(|(d, h)| matches_declared(d, h))
        }
        _ => true,
    }
}

fn scalar_kind(v: &Type) -> Option<ScalarKind> {
    match v {
        Val::Int(_) => Some(ScalarKind::Int),
        Val::Float(_) => Some(ScalarKind::Float),
        Val::Bool(_) => Some(ScalarKind::Bool),
        Val::Str(_) => Some(ScalarKind::Str),
        Val::Any(k) => Some(*k),
        _ => None,
    }
}

fn merge_dims(a: &Dim, b: &Dim, solver: &mut Solver, origin: &EquationOrigin) -> Result<Dim, Mismatch> {
    match (a, b) {
        (Dim::Unknown, d) | (d, Dim::Unknown) => Ok(d.clone()),
        _ => {
            solver.equate(a, b, origin).map_err(Mismatch::Size)?;
            Ok(solver.apply_dim(b))
        }
    }
}

fn merge_tensors(
    a: &TensorType,
    b: &TensorType,
    solver: &mut Solver,
    origin: &EquationOrigin,
) -> Result<TensorType, Mismatch> {
    if a.dtype != b.dtype {
        return Err(Mismatch::Kind);
    }
    let shape = match (&a.shape, &b.shape) {
        (None, s) | (s, None) => s.clone(),
        (Some(x), Some(y)) => {
            if x.len() != y.len() {
                return Err(Mismatch::Kind);
            }
            let dims = x.iter().zip(y).map(|(x, y)| merge_dims(x, y, solver, origin));
            Some(dims.collect::<Result<Vec<_>, _>>()?)
        }
    };
    Ok(TensorType { dtype: a.dtype, shape })
}
