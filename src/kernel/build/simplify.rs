//! Operations that the builder replaces by cheaper ones with the same results.
//!
//! Quantization rounds, adds a zero point, clamps and converts to an integer. If the zero point is 0, some of these steps change
//! no result, and neither does a ReLU before them.

use super::KernelBuilder;
use crate::kernel::{Value, Var};
use crate::scalar::{Binary, Compare, ScalarOp, Unary};
use crate::tensor::Scalar;
use crate::types::DType;

/// A bound that a value is clamped to: max or min, and whether the bound is the first operand.
#[derive(Clone, Copy)]
pub(super) struct Clamp {
    op: Binary,
    pub(super) bound: Value,
    bound_first: bool,
}

impl KernelBuilder {
    /// A value that equals `op` and takes fewer instructions, if there is one.
    pub(super) fn simplify(&mut self, op: &ScalarOp<Value>) -> Option<Value> {
        match *op {
            ScalarOp::Cast(to, x) if self.dtype(x) == to => Some(x),
            ScalarOp::Cast(to @ (DType::BF16 | DType::F16), x) => {
                self.rounded_once(to, x).or_else(|| self.selected_narrow(to, x))
            }
            ScalarOp::Cast(DType::F32, x) => self.widened_first(x),
            ScalarOp::Compare(op, x, y) if self.dtype(x) == DType::I64 => self.compare_in_32_bits(op, x, y),
            ScalarOp::Cast(to, x) if to.is_int() && self.dtype(x) == DType::F32 => self.rounded_integer(to, x),
            // `x + 0` would turn -0 to 0, but `x - 0` is x.
            ScalarOp::Binary(Binary::Sub, x, y) if self.f32_constant(y) == Some(0.0) && !self.is_minus_zero(y) => {
                Some(x)
            }
            ScalarOp::Binary(Binary::Add, x, y) if self.dtype(x) == DType::I64 => self.moved_index(x, y),
            _ => None,
        }
    }

    /// The sum of an index and a constant, as an index. Both are far from the ends of i64, where sums wrap.
    fn moved_index(&mut self, x: Value, y: Value) -> Option<Value> {
        let constant = |v: Value| match self.ops.get(&v) {
            Some(&ScalarOp::Const(Scalar::Int(_, c))) => Some(c),
            _ => None,
        };
        let (index, by) = match (self.indices.get(&x), self.indices.get(&y)) {
            (Some(a), None) => (a, constant(y)?),
            (None, Some(a)) => (a, constant(x)?),
            _ => return None,
        };
        let (least, greatest) = index.value_range(|v| self.kernel.extents[v.0 as usize]);
        let near = |n: i128| n.abs() < 1 << 60;
        if ![least, greatest, by as i128].into_iter().all(near) {
            return None;
        }
        let moved = index.clone() + by;
        Some(self.index(moved))
    }

    /// A comparison of an index with another or with a constant, in half as many bytes if their values fit.
    fn compare_in_32_bits(&mut self, op: Compare, x: Value, y: Value) -> Option<Value> {
        let is_constant = |v: Value| matches!(self.ops.get(&v), Some(ScalarOp::Const(_)));
        if !self.fits_32_bits(x) || !self.fits_32_bits(y) || is_constant(x) && is_constant(y) {
            return None;
        }
        let [x, y] = [x, y].map(|v| match self.ops.get(&v) {
            Some(&ScalarOp::Const(Scalar::Int(_, c))) => self.constant(Scalar::Int(DType::I32, c)),
            _ => self.cast(DType::I32, v),
        });
        Some(self.compare(op, x, y))
    }

    /// Whether an i64 is a constant or an index between the ends of i32.
    fn fits_32_bits(&self, v: Value) -> bool {
        let fits = |x: i128| i32::try_from(x).is_ok();
        if let Some(ScalarOp::Const(Scalar::Int(_, c))) = self.ops.get(&v) {
            return fits(*c as i128);
        }
        let extent = |v: Var| self.kernel.extents[v.0 as usize];
        self.indices.get(&v).is_some_and(|a| {
            let (least, greatest) = a.value_range(extent);
            fits(least) && fits(greatest)
        })
    }

    /// `x` with clamps, the last of which comes first.
    pub(super) fn clamp_again(&mut self, x: Value, clamps: &[Clamp]) -> Value {
        clamps.iter().rev().fold(x, |x, c| {
            let [a, b] = if c.bound_first { [c.bound, x] } else { [x, c.bound] };
            self.binary(c.op, a, b)
        })
    }

    pub(super) fn f32_constant(&self, v: Value) -> Option<f32> {
        match self.ops.get(&v) {
            Some(ScalarOp::Const(Scalar::F32(c))) => Some(*c),
            _ => None,
        }
    }

    fn is_minus_zero(&self, v: Value) -> bool {
        self.f32_constant(v).is_some_and(|c| c == 0.0 && c.is_sign_negative())
    }

    /// A conversion of `x` to an integer, if `x` is rounded and clamped: without an addition of 0 between, because the sign of a
    /// zero has no effect, and without a ReLU before whose bounds are beyond those of the integer. Rounding comes last if the bounds
    /// are integers, because processors round and convert at once.
    fn rounded_integer(&mut self, to: DType, x: Value) -> Option<Value> {
        let (rounded, clamps) = self.split_clamps(x);
        let (rounded, mut changed) = match self.ops.get(&rounded) {
            Some(&ScalarOp::Binary(Binary::Add, x, zero)) if self.f32_constant(zero) == Some(0.0) => (x, true),
            _ => (rounded, false),
        };
        let Some(&ScalarOp::Unary(Unary::Round, mut y)) = self.ops.get(&rounded) else {
            return None;
        };
        let range = self.range(&clamps);
        if let Some(without) = range.and_then(|r| self.without_clamps(y, r)) {
            (y, changed) = (without, true);
        }
        let whole = |c: &Clamp| self.f32_constant(c.bound).is_some_and(|c| c.fract() == 0.0);
        let rounds_last = !clamps.is_empty() && clamps.iter().all(whole);
        if !changed && !rounds_last {
            return None;
        }
        let new = match rounds_last {
            true => {
                let clamped = self.clamp_again(y, &clamps);
                self.unary(Unary::Round, clamped)
            }
            false => {
                let rounded = self.unary(Unary::Round, y);
                self.clamp_again(rounded, &clamps)
            }
        };
        Some(self.define_op(ScalarOp::Cast(to, new)))
    }

    /// The least and the greatest number that clamps let through, if they are a maximum with one bound and then a minimum with another.
    fn range(&self, clamps: &[Clamp]) -> Option<[f32; 2]> {
        let [upper, lower] = clamps else { return None };
        let [lowest, highest] = [self.f32_constant(lower.bound)?, self.f32_constant(upper.bound)?];
        (upper.op == Binary::Min && lower.op == Binary::Max && lowest <= highest).then_some([lowest, highest])
    }

    /// What `x` is clamped from, and the bounds, the last first.
    pub(super) fn split_clamps(&self, mut x: Value) -> (Value, Vec<Clamp>) {
        let mut clamps = vec![];
        while let Some(&ScalarOp::Binary(op @ (Binary::Max | Binary::Min), a, b)) = self.ops.get(&x) {
            let is_bound = |v: Value| self.f32_constant(v).is_some_and(|c| !c.is_nan());
            let (inner, bound, bound_first) = match (is_bound(a), is_bound(b)) {
                (_, true) => (a, b, false),
                (true, false) => (b, a, true),
                (false, false) => break,
            };
            clamps.push(Clamp { op, bound, bound_first });
            x = inner;
        }
        (x, clamps)
    }

    /// `w` or `w * s`, if `y` is `w` with clamps, or their product with a positive number `s`. Clamps remain unless rounded numbers beyond
    /// their bounds are outside of `range` or at its ends.
    fn without_clamps(&mut self, y: Value, range: [f32; 2]) -> Option<Value> {
        let (clamped, scale) = match self.ops.get(&y) {
            Some(&ScalarOp::Binary(Binary::Mul, a, b)) => match [self.f32_constant(a), self.f32_constant(b)] {
                [_, Some(s)] if s > 0.0 && s.is_finite() => (a, Some((b, s))),
                [Some(s), _] if s > 0.0 && s.is_finite() => (b, Some((a, s))),
                _ => return None,
            },
            _ => (y, None),
        };
        let (mut w, mut clamps) = self.split_clamps(clamped);
        let before = clamps.len();
        clamps.retain(|c| {
            let bound = self.f32_constant(c.bound).expect("a bound is a constant") * scale.map_or(1.0, |(_, s)| s);
            match c.op {
                Binary::Max => bound.round_ties_even() > range[0],
                _ => bound.round_ties_even() < range[1],
            }
        });
        if clamps.len() == before {
            return None;
        }
        w = self.clamp_again(w, &clamps);
        Some(match scale {
            Some((s, _)) => self.binary(Binary::Mul, w, s),
            None => w,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Affine;

    /// The operations of a kernel that quantizes `clamp(x, 0, most)` with a scale of 2 and a zero point to u8.
    fn operations(most: f32, zero: f32, lowest: f32) -> Vec<&'static str> {
        let mut k = KernelBuilder::new("quantize");
        let (x, y) = (k.input("x", DType::F32, &[8]), k.output("y", DType::U8, &[8]));
        k.parallel_vector(8, |k, i| {
            let x = k.load(x, i);
            let mut number = |c: f32| k.constant(Scalar::F32(c));
            let [nothing, most, scale, zero, lowest, highest] = [0.0, most, 0.5, zero, lowest, 255.0].map(&mut number);
            let x = k.binary(Binary::Max, x, nothing);
            let x = k.binary(Binary::Min, x, most);
            let x = k.binary(Binary::Mul, x, scale);
            let x = k.unary(Unary::Round, x);
            let x = k.binary(Binary::Add, x, zero);
            let x = k.binary(Binary::Max, x, lowest);
            let x = k.binary(Binary::Min, x, highest);
            k.store(y, i, x);
        });
        let k = k.finish().unwrap();
        // What the stored value depends on.
        let l = k.parallel_loop().unwrap();
        let mut needed = vec![];
        for s in l.body.iter().rev() {
            match s {
                crate::kernel::Stmt::Store(_, _, v) => needed.push(*v),
                crate::kernel::Stmt::Let(v, i) if needed.contains(v) => i.visit_operands(&mut |x| needed.push(x)),
                _ => {}
            }
        }
        let name = |s: &crate::kernel::Stmt| match s {
            crate::kernel::Stmt::Let(v, crate::kernel::Inst::Op(op)) if needed.contains(v) => match op {
                ScalarOp::Unary(Unary::Round, _) => Some("round"),
                ScalarOp::Binary(Binary::Add, ..) => Some("add"),
                ScalarOp::Binary(Binary::Mul, ..) => Some("mul"),
                ScalarOp::Binary(Binary::Max, ..) => Some("max"),
                ScalarOp::Binary(Binary::Min, ..) => Some("min"),
                ScalarOp::Cast(..) => Some("cast"),
                _ => None,
            },
            _ => None,
        };
        l.body.iter().filter_map(name).collect()
    }

    #[test]
    fn quantization_with_zero_point_0_takes_fewer_steps() {
        assert_eq!(operations(600.0, 0.0, 0.0), ["mul", "max", "min", "round", "cast"]);
        // 255 in steps of 2, which rounding gives 509.5, too.
        assert_eq!(operations(509.5, 0.0, 0.0), ["mul", "max", "min", "round", "cast"]);
        assert_eq!(
            operations(500.0, 0.0, 0.0),
            ["min", "mul", "max", "min", "round", "cast"]
        );
        // Negative numbers are in the range, so the ReLU matters.
        assert_eq!(
            operations(600.0, 0.0, -8.0),
            ["max", "mul", "max", "min", "round", "cast"]
        );
        assert_eq!(
            operations(600.0, 3.0, 0.0),
            ["max", "min", "mul", "round", "add", "max", "min", "cast"]
        );
    }

    /// The dtypes that comparisons of the column with the row of a `rows` x 8 matrix have.
    fn compared_dtypes(rows: usize, base: i64) -> Vec<DType> {
        let mut k = KernelBuilder::new("k");
        let y = k.output("y", DType::B8, &[rows, 8]);
        let mut dtypes = vec![];
        k.map_nest(&[rows, 8], |k, v| {
            let (row, column) = (k.index(Affine::new(base, [(v[0], 1)])), k.index(v[1]));
            let equal = k.compare(Compare::Eq, column, row);
            if let Some(ScalarOp::Compare(_, a, b)) = k.ops.get(&equal) {
                dtypes = vec![k.dtype(*a), k.dtype(*b)];
            }
            k.store(y, Affine::row_major(v, &[rows, 8]), equal);
        });
        k.finish().expect("a kernel");
        dtypes
    }

    #[test]
    fn indices_are_compared_in_32_bits_if_they_fit() {
        assert_eq!(compared_dtypes(8, 0), [DType::I32; 2]);
        assert_eq!(compared_dtypes(8, i32::MAX as i64 - 7), [DType::I32; 2]);
        assert_eq!(compared_dtypes(8, i32::MAX as i64 - 6), [DType::I64; 2]);
    }

    #[test]
    fn indices_moved_by_constants_are_indices() {
        let mut k = KernelBuilder::new("k");
        let y = k.output("y", DType::I64, &[8]);
        k.parallel_vector(8, |k, i| {
            let index = k.index(i);
            let [near, far] = [3, i64::MAX].map(|c| k.constant(Scalar::Int(DType::I64, c)));
            let moved = k.binary(Binary::Add, near, index);
            assert_eq!(moved, k.index(i + 3));
            let wrapped = k.binary(Binary::Add, index, far);
            assert!(!k.indices.contains_key(&wrapped), "the sum wraps");
            k.store(y, i, moved);
        });
        k.finish().expect("a kernel");
    }
}
