//! Bounds on sizes: of the expressions that describe them, and of their values.

use super::{Atom, Dim, SizeExpr};
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
    /// The size, or unknown if its expression is too large.
    pub(super) fn bounded(self) -> Dim {
        match take_atoms_of_dim(&self, &mut MAX_ATOMS.clone()) {
            Some(()) => self,
            None => Dim::Unknown,
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
