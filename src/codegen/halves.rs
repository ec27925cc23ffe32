//! Operations on the sign bits of 16-bit floats, which need no conversions. Kernels have no other operations on such floats.

use super::lanes::{Emitter, Lanes, RegisterClass};
use crate::scalar::Unary;
use cranelift_codegen::ir::InstBuilder;

impl Emitter<'_> {
    /// The negated or absolute value of 16-bit floats.
    pub(super) fn change_sign_bits(&mut self, op: Unary, x: &Lanes) -> Lanes {
        match op {
            Unary::Neg => {
                let sign = self.int_like(RegisterClass::I32, x, 0x8000);
                self.map2(x, &sign, |e, x, y| e.b.ins().bxor(x, y))
            }
            _ => {
                let rest = self.int_like(RegisterClass::I32, x, 0x7fff);
                self.band(x, &rest)
            }
        }
    }

    /// 16-bit floats `x` with the signs of `y`.
    pub(super) fn copy_sign_bits(&mut self, x: &Lanes, y: &Lanes) -> Lanes {
        let [rest, sign] = [0x7fff, 0x8000].map(|bits| self.int_like(RegisterClass::I32, x, bits));
        let (x, y) = (self.band(x, &rest), self.band(y, &sign));
        self.bor(&x, &y)
    }
}
