//! Conversions to and from 16-bit floats that have no effect.

use super::KernelBuilder;
use super::simplify::Clamp;
use crate::kernel::Value;
use crate::scalar::ScalarOp;
use crate::tensor::Scalar;
use crate::types::DType;

impl KernelBuilder {
    /// A conversion of `x` to a 16-bit float where `x` was rounded to it before. Without clamps between, this is the rounded value.
    /// Clamps to numbers of bf16 and rounding may change places, except that the sign of a zero may differ for a denormal
    /// number: so only if these are flushed.
    pub(super) fn rounded_once(&mut self, to: DType, x: Value) -> Option<Value> {
        let (inner, clamps) = self.split_clamps(x);
        let &ScalarOp::Cast(DType::F32, narrow) = self.ops.get(&inner)? else {
            return None;
        };
        if self.dtype(narrow) != to {
            return None;
        }
        if clamps.is_empty() {
            return Some(narrow);
        }
        if to != DType::BF16 {
            return None;
        }
        let &ScalarOp::Cast(DType::BF16, wide) = self.ops.get(&narrow)? else {
            return None;
        };
        let is_narrow = |c: &Clamp| self.f32_constant(c.bound).is_some_and(|c| c.to_bits() << 16 == 0);
        if !self.flushes || self.dtype(wide) != DType::F32 || !clamps.iter().all(is_narrow) {
            return None;
        }
        let clamped = self.clamp_again(wide, &clamps);
        Some(self.define_op(ScalarOp::Cast(DType::BF16, clamped)))
    }

    /// A conversion to a 16-bit float of a choice between such floats that were widened, as the choice between the floats.
    pub(super) fn selected_narrow(&mut self, to: DType, x: Value) -> Option<Value> {
        let &ScalarOp::Select(c, a, b) = self.ops.get(&x)? else {
            return None;
        };
        let (a, b) = (self.before_widening(to, a)?, self.before_widening(to, b)?);
        Some(self.select(c, a, b))
    }

    /// The 16-bit float whose value `x` has, if `x` was widened from one or is a constant.
    fn before_widening(&mut self, narrow: DType, x: Value) -> Option<Value> {
        match *self.ops.get(&x)? {
            ScalarOp::Cast(DType::F32, from) if self.dtype(from) == narrow => Some(from),
            ScalarOp::Const(Scalar::F32(c)) => {
                let rounded = Scalar::from_f64(narrow, c.into());
                (rounded.to_f64() == f64::from(c)).then(|| self.constant(rounded))
            }
            _ => None,
        }
    }

    /// `x`, an operation on the sign bits of 16-bit floats, on widened operands. Those of other operations are the same values.
    pub(super) fn widened_first(&mut self, x: Value) -> Option<Value> {
        if !matches!(self.dtype(x), DType::F16 | DType::BF16) {
            return None;
        }
        let op = *self.ops.get(&x)?;
        if !matches!(op, ScalarOp::Unary(..) | ScalarOp::Binary(..)) {
            return None;
        }
        let widened = op.map(|v| self.cast(DType::F32, v));
        Some(self.op(widened))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalar::{Binary, Unary};

    /// Whether a kernel that clamps a rounded number clamps the number itself.
    fn clamps_first(flushes: bool, highest: f32) -> bool {
        let mut k = KernelBuilder::new("clamp");
        if flushes {
            k.flush_denormals();
        }
        let (x, y) = (k.input("x", DType::F32, &[8]), k.output("y", DType::BF16, &[8]));
        k.parallel_vector(8, |k, i| {
            let x = k.load(x, i);
            let rounded = k.cast(DType::BF16, x);
            let highest = k.constant(Scalar::F32(highest));
            let wide = k.cast(DType::F32, rounded);
            let clamped = k.binary(Binary::Min, wide, highest);
            k.store(y, i, clamped);
        });
        let k = k.finish().unwrap();
        // `v0` is the number.
        k.to_string().contains("min(v0")
    }

    #[test]
    fn rounded_numbers_are_not_rounded_again() {
        assert!(clamps_first(true, 6.0));
        assert!(!clamps_first(false, 6.0));
        assert!(!clamps_first(true, 6.01), "bf16 has no 6.01");
        let mut k = KernelBuilder::new("twice");
        let (x, y) = (k.input("x", DType::F32, &[8]), k.output("y", DType::BF16, &[8]));
        k.parallel_vector(8, |k, i| {
            let x = k.load(x, i);
            let once = k.cast(DType::BF16, x);
            let wide = k.cast(DType::F32, once);
            assert_eq!(k.cast(DType::BF16, wide), once);
            k.store(y, i, once);
        });
    }

    #[test]
    fn halves_are_selected_without_conversions() {
        let mut k = KernelBuilder::new("k");
        let (x, c) = (k.input("x", DType::F16, &[8]), k.input("c", DType::B8, &[8]));
        let y = k.output("y", DType::F16, &[8]);
        k.parallel_vector(8, |k, i| {
            let (x, c) = (k.load(x, i), k.load(c, i));
            let wide = k.cast(DType::F32, x);
            let mut selected = |other: f32| {
                let other = k.constant(Scalar::F32(other));
                let chosen = k.select(c, wide, other);
                let narrow = k.cast(DType::F16, chosen);
                k.ops[&narrow]
            };
            assert!(matches!(selected(0.5), ScalarOp::Select(_, a, _) if a == x));
            assert!(matches!(selected(0.1), ScalarOp::Cast(..)), "0.1 would be rounded");
            k.store(y, i, x);
        });
        k.finish().expect("a kernel");
    }

    #[test]
    fn signs_of_halves_are_widened_before_they_change() {
        let mut k = KernelBuilder::new("k");
        let (x, y) = (k.input("x", DType::F16, &[8]), k.output("y", DType::F32, &[8]));
        k.parallel_vector(8, |k, i| {
            let x = k.load(x, i);
            let (wide, negated) = (k.cast(DType::F32, x), k.unary(Unary::Neg, x));
            let widened = k.cast(DType::F32, negated);
            assert_eq!(k.unary(Unary::Neg, wide), widened);
            k.store(y, i, widened);
        });
        k.finish().expect("a kernel");
    }
}
