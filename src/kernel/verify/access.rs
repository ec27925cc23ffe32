//! Loads and stores: every access lies within its buffer, and different iterations write different elements.

use super::{Checked, Verifier};
use crate::kernel::{Affine, Buf, BufferRole, Cond, Index, LoadGuard, Value, Var};
use crate::types::DType;

impl Verifier<'_> {
    pub(super) fn check_load(&self, b: Buf, i: &Index, guard: Option<&LoadGuard>) -> Checked<DType> {
        let buffer = self.k.buffers.get(b.0 as usize).ok_or("unknown buffer")?;
        if let Some(g) = guard {
            ensure!(
                g.other.dtype() == buffer.dtype,
                "the guard's value does not have dtype {}",
                buffer.dtype
            );
            g.conds.iter().try_for_each(|c| self.check_affine(&c.expr))?;
        }
        self.check_access(b, i, guard.map_or(&[], |g| &g.conds))?;
        Ok(buffer.dtype)
    }

    /// Whether an enclosing loop never runs, so that nothing needs to be proven.
    fn is_unreachable(&self) -> bool {
        self.open
            .iter()
            .any(|o| o.l.vars.iter().any(|&v| self.k.extent(v) == 0))
    }

    fn check_access(&self, b: Buf, i: &Index, conds: &[Cond]) -> Checked {
        let buffer = self.k.buffers.get(b.0 as usize).ok_or("unknown buffer")?;
        self.check_affine(&i.affine)?;
        let mut dynamic = (0i128, 0i128);
        let mut possible = true;
        for &(v, s) in &i.dynamic {
            self.check_used(v)?;
            let n = *self.sizes.get(&v).ok_or(format!("the index v{} is not bounded", v.0))?;
            // A bounded value is at least 0 even for an empty dimension, where index 0 would be out of bounds.
            possible &= n > 0;
            let span = s as i128 * (n.max(1) as i128 - 1);
            dynamic = (dynamic.0 + span.min(0), dynamic.1 + span.max(0));
        }
        if self.is_unreachable() {
            return Ok(());
        }
        ensure!(possible, "the access to {} indexes an empty dimension", buffer.name);
        let Some((lo, hi)) = guarded_range(&i.affine, conds, |v| self.k.extent(v)) else {
            return Ok(());
        };
        let (lo, hi) = (lo + dynamic.0, hi + dynamic.1);
        let n = buffer.numel();
        ensure!(
            lo >= 0 && hi < n as i128,
            "{}[{}] reaches {lo}..={hi} of {n} elements",
            buffer.name,
            i.affine
        );
        Ok(())
    }

    pub(super) fn check_store(&self, b: Buf, i: &Index, v: Value) -> Checked {
        let buffer = self.k.buffers.get(b.0 as usize).ok_or("unknown buffer")?;
        ensure!(
            buffer.role != BufferRole::In,
            "input {} cannot be stored to",
            buffer.name
        );
        let d = self.check_used(v)?;
        ensure!(
            d == buffer.dtype,
            "a value of {d} cannot be stored to {} of {}",
            buffer.name,
            buffer.dtype
        );
        self.check_access(b, i, &[])?;
        if self.is_unreachable() {
            return Ok(());
        }
        for o in &self.open {
            // Local buffers belong to one thread, so parallel iterations do not share them.
            if o.l.vector || (o.l.parallel && buffer.role != BufferRole::Local) {
                ensure!(
                    self.are_disjoint(i, &o.l.vars),
                    "iterations of i{} may write to the same element of {}",
                    o.l.vars[0].0,
                    buffer.name
                );
            }
        }
        Ok(())
    }

    /// Whether different values of `vars` are certain to give different elements. The test: each stride is larger than
    /// what all smaller strides can add up to.
    fn are_disjoint(&self, i: &Index, vars: &[Var]) -> bool {
        let missing = |&v: &Var| self.k.extent(v) > 1 && i.affine.stride(v) == 0;
        if vars.iter().any(missing) {
            return false;
        }
        let affine = i.affine.terms().iter().map(|&(v, s)| (s, self.k.extent(v)));
        let dynamic = i
            .dynamic
            .iter()
            .map(|&(v, s)| (s, self.sizes.get(&v).copied().unwrap_or(usize::MAX)));
        let mut terms: Vec<(u128, u128)> = affine
            .chain(dynamic)
            .filter(|t| t.1 > 1)
            .map(|(s, e)| (s.unsigned_abs() as u128, e as u128))
            .collect();
        terms.sort();
        let mut reach = 0u128;
        terms.into_iter().all(|(s, e)| {
            let free = s > reach;
            reach += s * (e - 1);
            free
        })
    }
}

/// The range of `index` where all `conds` hold, or `None` if they never hold together. Each condition's expression is
/// subtracted from the index as many times as the index contains it, and contributes the range that the condition
/// allows. The loop extents bound the rest.
fn guarded_range(index: &Affine, conds: &[Cond], extent: impl Fn(Var) -> usize + Copy) -> Option<(i128, i128)> {
    let extent = |v| extent(v).max(1);
    let mut rest = index.clone();
    let (mut lo, mut hi) = (0i128, 0i128);
    for c in conds {
        let (a, b) = c.expr.value_range(extent);
        let (a, b) = (a.max(c.lo as i128), b.min(c.hi as i128 - 1));
        if a > b {
            return None;
        }
        let Some(&(v, s)) = c.expr.terms().first() else {
            continue;
        };
        let times = rest.stride(v) / s;
        if times == 0 || rest.stride(v) % s != 0 {
            continue;
        }
        rest = rest - c.expr.clone() * times;
        let (x, y) = (times as i128 * a, times as i128 * b);
        lo += x.min(y);
        hi += x.max(y);
    }
    let (a, b) = rest.value_range(extent);
    Some((lo + a, hi + b))
}
