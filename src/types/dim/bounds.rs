//! Bounds on sizes: of the expressions that describe them, and of their values.

use super::{Atom, Dim, SizeExpr, floor_div};
use std::cell::Cell;

/// The maximal number of atoms in an expression. A product of a size with itself doubles them, so thirty products would have a thousand
/// million. A larger expression is unknown until the variables have values.
const MAX_ATOMS: usize = 4096;

thread_local! {
    static OVERFLOWED: Cell<bool> = const { Cell::new(false) };
}

/// The result of arithmetic on constants that is beyond 64 bits.
pub(super) fn overflowed() -> Dim {
    OVERFLOWED.set(true);
    Dim::Unknown
}

/// Runs `f`. The second result says whether arithmetic on known sizes exceeded 64 bits; its results are [`Dim::Unknown`], but no run will
/// ever know them.
pub(crate) fn watch_overflow<R>(f: impl FnOnce() -> R) -> (R, bool) {
    let outer = OVERFLOWED.replace(false);
    let result = f();
    (result, OVERFLOWED.replace(outer))
}

impl Dim {
    /// A number that the size does not exceed, whatever the values of its variables; `None` without one.
    fn upper_bound(&self) -> Option<i64> {
        match self {
            Dim::Const(c) => Some(*c),
            Dim::Unknown => None,
            Dim::Poly(terms) => terms.iter().try_fold(0i64, |sum, t| {
                let most = match &t.factors[..] {
                    [] => t.coef,
                    [atom] if t.coef > 0 => atom.upper_bound()?.checked_mul(t.coef)?,
                    all if t.coef < 0 && all.iter().all(Atom::is_nonnegative) => 0,
                    _ => return None,
                };
                sum.checked_add(most)
            }),
        }
    }

    /// Whether this is a symbolic size that is 1 or 0, such as that of a slice of one element.
    pub(crate) fn is_at_most_one(&self) -> bool {
        matches!(self, Dim::Poly(_)) && self.upper_bound().is_some_and(|most| most <= 1)
    }

    /// The size, or unknown if its expression is too large.
    pub(super) fn bounded(self) -> Dim {
        match take_atoms_of_dim(&self, &mut MAX_ATOMS.clone()) {
            Some(()) => self,
            None => Dim::Unknown,
        }
    }
}

impl Atom {
    fn upper_bound(&self) -> Option<i64> {
        match self {
            Atom::Var(_) | Atom::Expr(_) => None,
            Atom::Min(a, b) => a.upper_bound().into_iter().chain(b.upper_bound()).min(),
            Atom::Max(a, b) => Some(a.upper_bound()?.max(b.upper_bound()?)),
            Atom::FloorDiv(a, b) => b
                .as_const()
                .filter(|b| *b > 0)
                .and_then(|b| Some(floor_div(a.upper_bound()?, b))),
            Atom::Mod(_, b) => b.as_const().filter(|b| *b > 0).map(|b| b - 1),
        }
    }
}

impl SizeExpr {
    /// The expression, or unknown if it is too large.
    pub(super) fn bounded(self) -> SizeExpr {
        match take_atoms_of_expr(&self, &mut MAX_ATOMS.clone()) {
            Some(()) => self,
            None => SizeExpr::Int(Dim::Unknown),
        }
    }
}

fn take(left: &mut usize) -> Option<()> {
    *left = left.checked_sub(1)?;
    Some(())
}

/// Subtracts the number of atoms of `dim`; `None` if there are more than are left. Stops then, so the parts that expressions share are not
/// counted for ever.
fn take_atoms_of_dim(dim: &Dim, left: &mut usize) -> Option<()> {
    let Dim::Poly(terms) = dim else { return Some(()) };
    for term in terms.iter() {
        take(left)?;
        for atom in &term.factors {
            take(left)?;
            match atom {
                Atom::Var(_) => {}
                Atom::FloorDiv(a, b) | Atom::Mod(a, b) | Atom::Max(a, b) | Atom::Min(a, b) => {
                    take_atoms_of_dim(a, left)?;
                    take_atoms_of_dim(b, left)?;
                }
                Atom::Expr(e) => take_atoms_of_expr(e, left)?,
            }
        }
    }
    Some(())
}

fn take_atoms_of_expr(e: &SizeExpr, left: &mut usize) -> Option<()> {
    take(left)?;
    match e {
        SizeExpr::Int(d) => take_atoms_of_dim(d, left),
        SizeExpr::Float(_) => Some(()),
        SizeExpr::Ratio(a, b) => {
            take_atoms_of_dim(a, left)?;
            take_atoms_of_dim(b, left)
        }
        SizeExpr::Call(_, args) => args.iter().try_for_each(|a| take_atoms_of_expr(a, left)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_that_double_become_unknown() {
        let n = Dim::var("N");
        let square = |d: &Dim, _| d.mul(d);
        assert_ne!((0..8).fold(n.clone(), |d, i| square(&d, i)), Dim::Unknown);
        assert_eq!((0..30).fold(n.clone(), |d, i| square(&d, i)), Dim::Unknown);
        let both = |d: &Dim| d.floordiv(&d.add(&n)).max_of(&d.modulo(&Dim::Const(7)));
        assert_eq!((0..30).fold(n.clone(), |d, _| both(&d)), Dim::Unknown);
        let scaled = |d: &Dim| d.scale_by(1.5).add(&d.scale_by(2.5));
        assert_eq!((0..30).fold(n.clone(), |d, _| scaled(&d)), Dim::Unknown);
    }

    #[test]
    fn upper_bounds_hold_for_all_values() {
        let (n, c) = (Dim::var("N"), Dim::Const);
        assert_eq!(n.upper_bound(), None);
        assert_eq!(c(1).min_of(&n).upper_bound(), Some(1));
        assert_eq!(n.modulo(&c(3)).upper_bound(), Some(2));
        assert_eq!(c(5).sub(&n).upper_bound(), Some(5));
        let part = c(6).min_of(&n).sub(&c(4)).floordiv(&c(2));
        assert_eq!(part.upper_bound(), Some(1));
        assert_eq!(part.mul(&n).upper_bound(), None);
    }

    #[test]
    fn only_arithmetic_on_constants_overflows() {
        let most = Dim::Const(i64::MAX);
        assert_eq!(watch_overflow(|| most.add(&Dim::Const(1))), (Dim::Unknown, true));
        assert_eq!(watch_overflow(|| most.mul(&most)), (Dim::Unknown, true));
        assert_eq!(
            watch_overflow(|| Dim::Unknown.add(&Dim::Const(1))),
            (Dim::Unknown, false)
        );
        let nested = watch_overflow(|| watch_overflow(|| most.add(&most)).1);
        assert_eq!(nested, (true, false));
    }
}
