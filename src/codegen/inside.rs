//! Loop splitting for guarded loads: groups of lanes run without conditions over the iterations where every guard
//! holds.

use super::analysis::{collect_guards, loop_vars};
use super::state::{End, FunctionLowering, VarAt};
use crate::kernel::{self, Loop, Var};
use cranelift_codegen::ir::InstBuilder;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;

impl FunctionLowering<'_> {
    /// The part of `start..end` in which every condition on the loop's variable holds for all iterations of the inner
    /// loops.
    pub(super) fn inner_range(&mut self, l: &Loop, start: End, end: End) -> (End, End) {
        let conds = self.border_conditions(l);
        let (mut low, mut high) = (start, end);
        for c in &conds {
            let (a, b) = self.solve_condition(c, l);
            low = self.max_or_min_end(low, a, true);
            high = self.max_or_min_end(high, b, false);
        }
        if conds.is_empty() {
            return (start, end);
        }
        // Ensures start <= low <= high <= end even where the conditions never hold.
        low = self.max_or_min_end(low, end, false);
        high = self.max_or_min_end(high, low, true);
        (low, high)
    }

    /// The conditions of guarded loads on the loop's variable, except those that always hold.
    fn border_conditions(&self, l: &Loop) -> Vec<kernel::Cond> {
        let mut conds = vec![];
        collect_guards(&l.body, l.vars[0], &mut conds);
        conds.retain(|c| !self.is_always_true(c));
        conds
    }

    /// Whether the guarded loads of a loop are all out of range outside of [`inner_range`](Self::inner_range): they have one condition
    /// on the loop's variable, and no other variable of the body. Then the loop's iterations there are simpler.
    pub(super) fn has_exact_border(&self, l: &Loop) -> bool {
        let (conds, mut inner) = (self.border_conditions(l), vec![]);
        loop_vars(&l.body, &mut inner);
        let [first, others @ ..] = &conds[..] else { return false };
        let single = others.iter().all(|c| c == first) && inner.iter().all(|&v| first.expr.stride(v) == 0);
        single && l.reduces.is_empty() && l.carries.is_empty() && self.in_step.is_empty()
    }

    /// The larger (or smaller) of two ends.
    pub(super) fn max_or_min_end(&mut self, a: End, b: End, larger: bool) -> End {
        if let (End::Const(x), End::Const(y)) = (a, b) {
            return End::Const(if larger { x.max(y) } else { x.min(y) });
        }
        let (x, y) = (self.end_value(a), self.end_value(b));
        End::At(if larger {
            self.e.b.ins().smax(x, y)
        } else {
            self.e.b.ins().smin(x, y)
        })
    }

    /// The range of the loop's variable in which `lo <= s * var + outer + inner < hi` for all values of the inner variables.
    fn solve_condition(&mut self, c: &kernel::Cond, l: &Loop) -> (End, End) {
        let var = l.vars[0];
        let (mut expr, mut lo, mut hi) = (c.expr.clone(), c.lo, c.hi);
        if expr.stride(var) < 0 {
            (expr, lo, hi) = (-expr, 1i64.saturating_sub(hi), 1i64.saturating_sub(lo));
        }
        let s = expr.stride(var);
        let mut inner = vec![];
        loop_vars(&l.body, &mut inner);
        let mut rest = expr.without(var);
        let (mut least, mut most) = (0i64, 0i64);
        for v in inner {
            let span = rest.stride(v).saturating_mul(self.k.extent(v).max(1) as i64 - 1);
            least = least.saturating_add(span.min(0));
            most = most.saturating_add(span.max(0));
            rest = rest.without(v);
        }
        // s * var >= lo - rest - least, and s * var < hi - rest - most.
        let first = self.floor_quotient(lo.saturating_sub(least).saturating_add(s - 1), &rest, s);
        let last = self.floor_quotient(hi.saturating_sub(most).saturating_add(s - 1), &rest, s);
        (first, last)
    }

    /// `floor((k - rest) / s)`.
    pub(super) fn floor_quotient(&mut self, k: i64, rest: &kernel::Affine, s: i64) -> End {
        let x = -rest.clone() + k;
        let known = |v: &(Var, i64)| matches!(self.vars[v.0.0 as usize], VarAt::Const(_));
        if x.terms().iter().all(known) {
            let value = x.eval(|v| match self.vars[v.0 as usize] {
                VarAt::Const(c) => c,
                VarAt::At(_) | VarAt::Past(..) => 0,
            });
            return End::Const(value.div_euclid(s));
        }
        let v = self.lower_affine(&x);
        if s == 1 {
            return End::At(v);
        }
        if (s as u64).is_power_of_two() {
            return End::At(self.e.b.ins().sshr_imm_u(v, s.trailing_zeros() as i64));
        }
        let d = self.e.b.ins().iconst(I64, s);
        let q = self.e.b.ins().sdiv(v, d);
        let p = self.e.b.ins().imul(q, d);
        let above = self.e.b.ins().icmp(IntCC::SignedGreaterThan, p, v);
        let above = self.e.b.ins().uextend(I64, above);
        End::At(self.e.b.ins().isub(q, above))
    }
}
