//! The larger and the smaller of two partial results of a reduction.

use super::lanes::{Emitter, Lanes, RegisterClass};
use super::reduce::ReduceRule;
use crate::kernel::ReduceOp;
use cranelift_codegen::ir::InstBuilder;
use cranelift_codegen::ir::condcodes::FloatCC;

impl Emitter<'_> {
    /// Combines two floats by a rule that takes the larger or the smaller one; `None` for other rules.
    pub(super) fn combine_extremes(&mut self, rule: ReduceRule, x: &Lanes, y: &Lanes) -> Option<Lanes> {
        let class = RegisterClass::from_dtype(rule.dtype);
        match (class, rule.op) {
            (RegisterClass::F32 | RegisterClass::F64, ReduceOp::Max) => Some(self.max_ordering_zeros(class, x, y)),
            (RegisterClass::F32 | RegisterClass::F64, ReduceOp::Min) => Some(self.min_ordering_zeros(x, y)),
            _ => None,
        }
    }

    /// The larger operand, or NaN if either is. -0.0 is below 0.0, so that the lanes of a reduction may be combined in
    /// any order.
    fn max_ordering_zeros(&mut self, c: RegisterClass, x: &Lanes, y: &Lanes) -> Lanes {
        if !cfg!(target_arch = "x86_64") {
            return self.map2(x, y, |e, x, y| e.b.ins().fmax(x, y));
        }
        // Cranelift's `fmax` is a branch on x86, and `widen` has no form for it.
        let (m, n) = (self.max_xy(x, y), self.max_xy(y, x));
        // The two differ only in the signs of zeros, and where an operand is NaN.
        let m = self.band(&m, &n);
        let unordered = self.fcmp(FloatCC::Unordered, x, y);
        let nan = self.float_like(c, x, f64::NAN);
        self.choose(&unordered, &nan, &m)
    }

    /// The smaller operand, or NaN if either is. -0.0 is below 0.0, as in [`Self::max_ordering_zeros`].
    fn min_ordering_zeros(&mut self, x: &Lanes, y: &Lanes) -> Lanes {
        if !cfg!(target_arch = "x86_64") {
            return self.map2(x, y, |e, x, y| e.b.ins().fmin(x, y));
        }
        let (m, n) = (self.min_xy(x, y), self.min_xy(y, x));
        // The two are the operands if either is NaN: all bits of NaN's exponent and some of its mantissa remain set.
        self.bor(&m, &n)
    }
}
