//! Bounds of values whose elements are integers, in any dtype.

use super::{Def, Special, Tir, ValueId};
use crate::scalar::{Binary, Ref, ScalarExpr, ScalarNode, ScalarOp, Unary};
use crate::tensor::Tensor;
use crate::types::{Category, DType};
use std::cell::Cell;

/// The operations that are followed. Quantized operands have fewer than ten.
const STEPS: usize = 100;

/// Bounds of the elements of a value, which are all integers or NaN. An unknown bound is infinite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::lower) struct IntegerRange {
    /// The lower bound.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
}

impl IntegerRange {
    const ALL: IntegerRange = IntegerRange::new(f64::NEG_INFINITY, f64::INFINITY);

    const fn new(low: f64, high: f64) -> IntegerRange {
        IntegerRange { low, high }
    }

    /// Whether bf16 represents all of them.
    pub(in crate::lower) fn is_exact_in_bf16(self) -> bool {
        self.low >= -256.0 && self.high <= 256.0
    }

    fn is_within(self, other: IntegerRange) -> bool {
        self.low >= other.low && self.high <= other.high
    }

    fn union(self, other: IntegerRange) -> IntegerRange {
        IntegerRange::new(self.low.min(other.low), self.high.max(other.high))
    }

    /// The values of a dtype of 8 bits.
    fn of_small_dtype(dtype: DType) -> Option<IntegerRange> {
        match dtype {
            DType::I8 => Some(IntegerRange::new(-128.0, 127.0)),
            DType::U8 => Some(IntegerRange::new(0.0, 255.0)),
            DType::B8 => Some(IntegerRange::new(0.0, 1.0)),
            _ => None,
        }
    }

    /// The range of a constant; `None` if an element is not an integer.
    fn of_constant(t: &Tensor) -> Option<IntegerRange> {
        if let Some(q) = t.quantized() {
            let zero = match &q.zero {
                Some(z) => IntegerRange::of_constant(&z.values)?,
                None => IntegerRange::new(0.0, 0.0),
            };
            let integers = IntegerRange::of_small_dtype(q.integers.dtype())?;
            return q.scale.is_none().then(|| integers.minus(zero));
        }
        let mut range: Option<IntegerRange> = None;
        for x in (0..t.numel()).map(|i| t.get(i).to_f64()) {
            if x.fract() != 0.0 {
                return None;
            }
            let one = IntegerRange::new(x, x);
            range = Some(range.map_or(one, |r| r.union(one)));
        }
        range
    }

    fn minus(self, other: IntegerRange) -> IntegerRange {
        IntegerRange::new(self.low - other.high, self.high - other.low)
    }
}

impl Tir {
    /// Whether bf16 represents all elements of `v`: integers of a small range, and what was converted from bf16.
    pub(in crate::lower) fn is_exact_in_bf16(&self, v: ValueId) -> bool {
        self.is_converted_from_bf16(v) || self.integer_range(v).is_some_and(|r| r.is_exact_in_bf16())
    }

    /// Whether `v` was converted from i8. Bounds are not enough: numbers that were rounded and clamped may be NaN.
    pub(in crate::lower) fn is_converted_from_i8(&self, v: ValueId) -> bool {
        self.converted_dtype(self.viewed(v)) == Some(DType::I8)
    }

    /// The value that `v` is a view of. Views are followed in a loop: a chain of them may be long.
    fn viewed(&self, mut v: ValueId) -> ValueId {
        while let Def::View { arg, .. } = &self.value(v).def {
            v = *arg;
        }
        v
    }

    /// The dtype that a pointwise value was converted from last.
    fn converted_dtype(&self, v: ValueId) -> Option<DType> {
        let Def::Pointwise { expr, .. } = &self.value(v).def else {
            return None;
        };
        match expr.roots[..] {
            [root] => match expr.node(root) {
                ScalarNode::Op(ScalarOp::Cast(_, x)) => Some(expr.dtype(x)),
                _ => None,
            },
            _ => None,
        }
    }

    fn is_converted_from_bf16(&self, v: ValueId) -> bool {
        let v = self.viewed(v);
        match &self.value(v).def {
            Def::Pointwise { .. } => self.converted_dtype(v) == Some(DType::BF16),
            // The last 16 bits of such an f32 are zeros.
            Def::Constant(t) if t.dtype() == DType::F32 && t.quantized().is_none() => {
                t.as_slice::<f32>().iter().all(|x| x.to_bits() & 0xffff == 0)
            }
            _ => false,
        }
    }

    /// The range of the elements of `v`; `None` unless all are integers.
    pub(in crate::lower) fn integer_range(&self, v: ValueId) -> Option<IntegerRange> {
        let reader = RangeReader {
            tir: self,
            steps: Cell::new(STEPS),
        };
        reader.range_of_value(v)
    }
}

struct RangeReader<'a> {
    tir: &'a Tir,
    /// How many operations may still be followed.
    steps: Cell<usize>,
}

impl RangeReader<'_> {
    fn range_of_value(&self, v: ValueId) -> Option<IntegerRange> {
        let value = self.tir.value(v);
        if let Some(range) = IntegerRange::of_small_dtype(value.dtype) {
            return Some(range);
        }
        let found = match &value.def {
            Def::Pointwise { expr, args } => match expr.roots[..] {
                [root] => self.range_of_node(expr, args, root),
                _ => None,
            },
            Def::View { arg, .. } => self.range_of_value(*arg),
            Def::Constant(t) => IntegerRange::of_constant(t),
            Def::Special { args, special } => match special {
                Special::MaxPool(_) => self.range_of_value(args[0]),
                Special::Pad { value, .. } if value.to_f64() == 0.0 => {
                    let zero = IntegerRange::new(0.0, 0.0);
                    Some(self.range_of_value(args[0])?.union(zero))
                }
                Special::Concat { .. } => {
                    let parts: Option<Vec<_>> = args.iter().map(|&a| self.range_of_value(a)).collect();
                    parts?.into_iter().reduce(IntegerRange::union)
                }
                _ => None,
            },
            _ => None,
        };
        found.or_else(|| or_any_integer(None, value.dtype))
    }

    fn range_of_node(&self, expr: &ScalarExpr, args: &[ValueId], node: Ref) -> Option<IntegerRange> {
        self.steps.set(self.steps.get().checked_sub(1)?);
        let range = |r: Ref| self.range_of_node(expr, args, r);
        let op = match expr.node(node) {
            ScalarNode::Arg(i) => return self.range_of_value(*args.get(i as usize)?),
            ScalarNode::Index(_) => return None,
            ScalarNode::Op(op) => op,
        };
        let found = match op {
            ScalarOp::Const(s) => {
                let x = s.to_f64();
                (x.fract() == 0.0).then(|| IntegerRange::new(x, x))
            }
            ScalarOp::Cast(to, x) => match IntegerRange::of_small_dtype(to) {
                Some(all) => Some(range(x).filter(|r| r.is_within(all)).unwrap_or(all)),
                None => range(x),
            },
            ScalarOp::Unary(Unary::Round | Unary::Floor | Unary::Ceil | Unary::Trunc, x) => {
                Some(range(x).unwrap_or(IntegerRange::ALL))
            }
            ScalarOp::Unary(Unary::Neg, x) => range(x).map(|r| IntegerRange::new(-r.high, -r.low)),
            ScalarOp::Binary(op, x, y) => combine(op, range(x)?, range(y)?),
            ScalarOp::Select(_, x, y) => Some(range(x)?.union(range(y)?)),
            _ => None,
        };
        // The result is one of the operands, so it does not wrap around.
        let is_choice = matches!(
            op,
            ScalarOp::Binary(Binary::Max | Binary::Min, ..) | ScalarOp::Select(..)
        );
        match found {
            Some(range) if is_choice => Some(range),
            found => or_any_integer(found, expr.dtype(node)),
        }
    }
}

/// The range that was found for a value of `dtype`. Integers that may have wrapped around can have any value.
fn or_any_integer(found: Option<IntegerRange>, dtype: DType) -> Option<IntegerRange> {
    if dtype.category() != Category::Int {
        return found;
    }
    let all = IntegerRange::of_small_dtype(dtype);
    let limits = all.unwrap_or(NARROW);
    found
        .filter(|r| r.is_within(limits))
        .or(all)
        .or(Some(IntegerRange::ALL))
}

/// The range within which no integer of 16 bits or more wraps around.
const NARROW: IntegerRange = IntegerRange::new(-32768.0, 32767.0);

fn combine(op: Binary, x: IntegerRange, y: IntegerRange) -> Option<IntegerRange> {
    Some(match op {
        Binary::Add => IntegerRange::new(x.low + y.low, x.high + y.high),
        Binary::Sub => x.minus(y),
        Binary::Max | Binary::Fmax => IntegerRange::new(x.low.max(y.low), x.high.max(y.high)),
        Binary::Min | Binary::Fmin => IntegerRange::new(x.low.min(y.low), x.high.min(y.high)),
        // `sub(x, y, alpha=1)` multiplies by 1.
        Binary::Mul if x == IntegerRange::new(1.0, 1.0) => y,
        Binary::Mul if y == IntegerRange::new(1.0, 1.0) => x,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The range of the last value of a text.
    fn range(text: &str) -> Option<IntegerRange> {
        let tir = Tir::parse(text).unwrap();
        tir.integer_range(ValueId(tir.values.len() as u32 - 1))
    }

    #[test]
    fn quantized_numbers_are_small_integers() {
        let quantized = "\
%x: f32[4] = input 0
%q: u8[4] = map(%x) { u8.cast(min(max(round(a0), f32(0.0)), f32(255.0))) }
%f: f32[4] = map(%q) { f32.cast(a0) }
";
        let minus = |zero: &str| range(&format!("{quantized}%y: f32[4] = map(%f) {{ sub(a0, f32({zero})) }}\n"));
        assert_eq!(minus("128.0"), Some(IntegerRange::new(-128.0, 127.0)));
        assert!(minus("0.0").unwrap().is_exact_in_bf16());
        assert!(!minus("-9.0").unwrap().is_exact_in_bf16());
        assert_eq!(minus("0.5"), None);
    }

    /// Only a conversion from i8 excludes NaN.
    #[test]
    fn clamped_numbers_are_not_i8() {
        let text = "\
%x: f32[4] = input 0
%c: f32[4] = map(%x) { min(max(round(a0), f32(-128.0)), f32(127.0)) }
%q: i8[4] = map(%c) { i8.cast(a0) }
%f: f32[4] = map(%q) { f32.cast(a0) }
%v: f32[2, 2] = reshape(%f)
";
        let tir = Tir::parse(text).unwrap();
        let is_i8: Vec<bool> = (0..5).map(|i| tir.is_converted_from_i8(ValueId(i))).collect();
        assert_eq!(is_i8, [false, false, false, true, true]);
        assert_eq!(tir.integer_range(ValueId(1)), tir.integer_range(ValueId(3)));
    }

    #[test]
    fn zero_points_that_are_computed_have_bounds() {
        let text = "\
%x: f32[] = input 0
%z: i64[] = map(%x) { min(max(sub(i64(0), i64.cast(round(a0))), i64(0)), i64(255)) }
";
        assert_eq!(range(text), Some(IntegerRange::new(0.0, 255.0)));
    }

    #[test]
    fn bounds_are_lost_where_integers_wrap() {
        let text = "\
%x: i8[4] = input 0
%y: i8[4] = map(%x) { add(a0, a0) }
";
        assert_eq!(range(text), Some(IntegerRange::new(-128.0, 127.0)));
        assert_eq!(
            range("%x: f32[4] = input 0\n%y: f32[4] = map(%x) { round(a0) }\n"),
            Some(IntegerRange::ALL)
        );
        assert_eq!(
            range("%x: i64[4] = input 0\n%y: f32[4] = map(%x) { f32.cast(a0) }\n"),
            Some(IntegerRange::ALL)
        );
    }
}
