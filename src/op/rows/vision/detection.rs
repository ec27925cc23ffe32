//! Non-maximum suppression, and what the ops of object detectors (torchvision's C++ ops) share.

use super::suppress::kept_boxes;
use crate::op::rows::spell::list_text;
use crate::op::{Call, Meaning, Op, OpError, OpResult, Sizes};
use crate::tensor::{Element, Tensor};
use crate::types::{DType, Dim, TensorType, Type, Val};
use std::ops::{Add, Div, Mul, Sub};

pub(super) fn rows() -> Vec<Op> {
    vec![
        Op::new("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
            nms_type,
            Meaning::Routine(|c| by_dtype(c, "dets", nms::<f32>, nms::<f64>)),
        )
        .doc("non-maximum suppression: indices of boxes `[x1, y1, x2, y2]` by descending score, without those that overlap a kept box by more than an IoU threshold")
        .spelled("torchvision.@.default torchvision.ops.boxes.@"),
    ]
}

/// The float types in which routines on boxes compute.
pub(super) trait BoxReal:
    Element + PartialOrd + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    const ZERO: Self;
    fn from_f64(x: f64) -> Self;
    fn to_f64(self) -> f64;
    fn larger(self, other: Self) -> Self;
}

macro_rules! reals {
    ($($t:ty),*) => { $(impl BoxReal for $t {
        const ZERO: $t = 0.0;
        fn from_f64(x: f64) -> $t { x as $t }
        fn to_f64(self) -> f64 { self as f64 }
        fn larger(self, other: $t) -> $t { self.max(other) }
    })* };
}
reals!(f32, f64);

pub(super) type BoxRoutine = fn(&Call<Tensor>) -> OpResult<Val<Tensor>>;

/// Runs the routine for the type in which the dtype of argument `by` is computed, and converts float results back to
/// that dtype.
pub(super) fn by_dtype(c: &Call<Tensor>, by: &str, single: BoxRoutine, double: BoxRoutine) -> OpResult<Val<Tensor>> {
    let dtype = c.leaf(by)?.dtype();
    if !dtype.is_float() {
        return Err(crate::op::pointwise::not_implemented(c.op.name, dtype));
    }
    let (compute, run) = match dtype {
        DType::F64 => (DType::F64, double),
        _ => (DType::F32, single),
    };
    let result = run(&c.map(|t| if t.dtype().is_float() { t.to(compute) } else { t.clone() }))?;
    Ok(result.map(|t| if t.dtype().is_float() { t.to(dtype) } else { t.clone() }))
}

fn nms_type(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Type> {
    let (_, boxes) = c.shaped("dets")?;
    let (_, scores) = c.shaped("scores")?;
    let four = matches!(boxes, [_, n] if n.as_const().is_none_or(|n| n == 4));
    if !four || scores.len() != 1 {
        return Err(OpError::shape(format!(
            "nms(): boxes should be [N, 4] and scores [N], got {} and {}",
            list_text(boxes),
            list_text(scores)
        )));
    }
    s.unify_dims(&boxes[0], &scores[0], || {
        format!(
            "nms(): boxes and scores should have the same number of elements, got {} and {}",
            boxes[0], scores[0]
        )
    })?;
    Ok(Val::Leaf(TensorType::new(DType::I64, vec![Dim::Unknown])))
}

fn nms<T: BoxReal>(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    nms_type(&c.types(), &mut Sizes::default())?;
    let (boxes, scores) = (c.leaf("dets")?, c.leaf("scores")?.to(T::DTYPE));
    let limit = c.f64("iou_threshold")?;
    let kept = kept_boxes(boxes.as_slice::<T>(), scores.as_slice::<T>(), limit);
    Ok(Val::Leaf(Tensor::from_slice(&[kept.len()], &kept)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::op::by_name;

    pub(in crate::op::rows) fn run(op: &str, args: Vec<Val<Tensor>>) -> Val<Tensor> {
        let op = by_name(op).expect("a row");
        let Meaning::Routine(f) = op.meaning else {
            panic!("a routine")
        };
        f(&Call { op, args }).unwrap_or_else(|e| panic!("{e:?}"))
    }

    pub(in crate::op::rows) fn of(shape: &[usize], v: &[f32]) -> Val<Tensor> {
        Val::Leaf(Tensor::from_slice(shape, v))
    }

    // The expected values are those of torchvision 0.29.
    #[test]
    fn boxes_that_overlap_are_dropped() {
        let boxes = [0., 0., 10., 10., 1., 1., 11., 11., 20., 20., 30., 30., 0., 0., 10., 9.];
        let scores = of(&[4], &[0.5, 0.9, 0.1, 0.6]);
        let kept = run("nms", vec![of(&[4, 4], &boxes), scores.clone(), Val::Float(0.5)]);
        assert_eq!(kept.as_leaf().unwrap().as_slice::<i64>(), [1, 2]);
        let kept = run("nms", vec![of(&[4, 4], &boxes), scores, Val::Float(0.7)]);
        assert_eq!(kept.as_leaf().unwrap().as_slice::<i64>(), [1, 3, 2]);
    }
}
