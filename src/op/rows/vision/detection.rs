//! Ops of object detectors: non-maximum suppression, deformable convolution (torchvision's C++ ops).

use crate::op::rows::dense::zeros;
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
        Op::new("deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, \
             SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask) \
             -> Tensor",
            |c, _| deform_type(c),
            Meaning::Routine(|c| by_dtype(c, "input", deform_conv2d::<f32>, deform_conv2d::<f64>)),
        )
        .doc("deformable convolution, with sampling offsets and a mask of weights")
        .spelled("torchvision.@.default"),
    ]
}

/// The float types in which routines on boxes compute.
pub(super) trait Real:
    Element + PartialOrd + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    const ZERO: Self;
    fn from_f64(x: f64) -> Self;
    fn to_f64(self) -> f64;
    fn larger(self, other: Self) -> Self;
    fn smaller(self, other: Self) -> Self;
}

macro_rules! reals {
    ($($t:ty),*) => { $(impl Real for $t {
        const ZERO: $t = 0.0;
        fn from_f64(x: f64) -> $t { x as $t }
        fn to_f64(self) -> f64 { self as f64 }
        fn larger(self, other: $t) -> $t { self.max(other) }
        fn smaller(self, other: $t) -> $t { self.min(other) }
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

fn nms<T: Real>(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    nms_type(&c.types(), &mut Sizes::default())?;
    let (boxes, scores) = (c.leaf("dets")?, c.leaf("scores")?.to(T::DTYPE));
    let limit = c.f64("iou_threshold")?;
    let rows: Vec<&[T]> = boxes.as_slice::<T>().chunks_exact(4).collect();
    let scores = scores.as_slice::<T>();
    let mut order: Vec<usize> = (0..rows.len()).collect();
    // A stable sort with NaN first, as in torch.
    order.sort_by(|&a, &b| scores[b].to_f64().total_cmp(&scores[a].to_f64()));
    let area = |r: &[T]| (r[2] - r[0]) * (r[3] - r[1]);
    let mut dropped = vec![false; rows.len()];
    let mut kept: Vec<i64> = vec![];
    for (n, &i) in order.iter().enumerate() {
        if dropped[i] {
            continue;
        }
        kept.push(i as i64);
        for &j in &order[n + 1..] {
            let (a, b) = (rows[i], rows[j]);
            let side = |lo: usize, hi: usize| (a[hi].smaller(b[hi]) - a[lo].larger(b[lo])).larger(T::ZERO);
            let inner = side(0, 2) * side(1, 3);
            let share = inner / (area(a) + area(b) - inner);
            dropped[j] |= share.to_f64() > limit;
        }
    }
    Ok(Val::Leaf(Tensor::from_slice(&[kept.len()], &kept)))
}

/// The parameters of a deformable convolution.
struct Deform {
    stride: [i64; 2],
    pad: [i64; 2],
    dilation: [i64; 2],
    groups: i64,
    offset_groups: i64,
}

fn deform_params<T: Clone>(c: &Call<T>) -> OpResult<Deform> {
    let pair = |a: &str, b: &str| Ok::<_, OpError>([c.int(a)?, c.int(b)?]);
    let p = Deform {
        stride: pair("stride_h", "stride_w")?,
        pad: pair("pad_h", "pad_w")?,
        dilation: pair("dilation_h", "dilation_w")?,
        groups: c.int("groups")?,
        offset_groups: c.int("offset_groups")?,
    };
    let positive = p
        .stride
        .iter()
        .chain(&p.dilation)
        .chain([&p.groups, &p.offset_groups])
        .all(|&v| v > 0);
    match positive && p.pad.iter().all(|&v| v >= 0) {
        true => Ok(p),
        false => Err(OpError::value(
            "deform_conv2d(): stride, dilation and groups must be positive, padding not negative",
        )),
    }
}

fn deform_type(c: &Call<TensorType>) -> OpResult<Type> {
    let p = deform_params(c)?;
    let (dtype, x) = c.shaped("input")?;
    let ((_, weight), (_, offset)) = (c.shaped("weight")?, c.shaped("offset")?);
    let bad = || {
        let (x, w, o) = (list_text(x), list_text(weight), list_text(offset));
        OpError::shape(format!(
            "deform_conv2d(): the shapes of input {x}, weight {w} and offset {o} do not match"
        ))
    };
    let ([n, channels, sizes @ ..], [out, per_group, kernel @ ..]) = (x, weight) else {
        return Err(bad());
    };
    if sizes.len() != 2 || kernel.len() != 2 || offset.len() != 4 {
        return Err(bad());
    }
    let mut shape = vec![n.clone(), out.clone()];
    let mut taps = 2 * p.offset_groups;
    for d in 0..2 {
        let k = kernel[d].as_const().ok_or_else(bad)?;
        let reach = Dim::Const(2 * p.pad[d] - p.dilation[d] * (k - 1) - 1);
        shape.push(
            sizes[d]
                .add(&reach)
                .floordiv(&Dim::Const(p.stride[d]))
                .add(&Dim::Const(1)),
        );
        taps = taps.saturating_mul(k);
    }
    let fits = |a: &Dim, b: i64| a.as_const().is_none_or(|a| a == b);
    let (i, o) = (per_group.as_const().ok_or_else(bad)?, out.as_const().ok_or_else(bad)?);
    let same = |a: &Dim, b: &Dim| a.as_const().zip(b.as_const()).is_none_or(|(a, b)| a == b);
    let whole = fits(channels, i.saturating_mul(p.groups)) && o % p.groups == 0 && fits(&offset[1], taps);
    let split = channels.as_const().is_none_or(|c| c % p.offset_groups == 0);
    let mask_fits = !c.bool("use_mask")? || matches!(c.shaped("mask")?.1, [_, m, ..] if fits(m, taps / 2));
    if !whole || !split || !mask_fits || !same(&offset[2], &shape[2]) || !same(&offset[3], &shape[3]) {
        return Err(bad());
    }
    Ok(Val::Leaf(TensorType::new(dtype, shape)))
}

fn deform_conv2d<T: Real>(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (ty, p) = (deform_type(&c.types())?, deform_params(c)?);
    let shape = ty.as_leaf().and_then(TensorType::fixed_shape).unwrap_or_default();
    let (x, weight, offset) = (c.leaf("input")?, c.leaf("weight")?, c.leaf("offset")?);
    let (mask, bias, masked) = (c.leaf("mask")?, c.leaf("bias")?, c.bool("use_mask")?);
    let same_mask = !masked || mask.numel() * 2 == offset.numel();
    if !same_mask || bias.numel() != shape[1] || offset.shape()[0] != shape[0] {
        return Err(mismatched_operands());
    }
    let (channels, h, w) = (x.shape()[1], x.shape()[2], x.shape()[3]);
    let (per_group, kh, kw) = (weight.shape()[1], weight.shape()[2], weight.shape()[3]);
    let (oh, ow, taps) = (shape[2], shape[3], kh * kw);
    let (xs, ws, os) = (x.as_slice::<T>(), weight.as_slice::<T>(), offset.as_slice::<T>());
    let (ms, bs) = (mask.as_slice::<T>(), bias.as_slice::<T>());
    let (og, out_per_group) = (p.offset_groups as usize, shape[1] / p.groups as usize);
    let mut out = zeros(T::DTYPE, &shape)?;
    let values = out.as_mut_slice::<T>();
    let mut column = vec![T::ZERO; channels * taps];
    for (n, position) in (0..shape[0]).flat_map(|n| (0..oh * ow).map(move |at| (n, at))) {
        for (ch, tap) in (0..channels * taps).map(|i| (i / taps, i % taps)) {
            let group = (n * og + ch / (channels / og)) * taps + tap;
            let moved = |d: usize, place: usize, k: usize| {
                let base = place as i64 * p.stride[d] - p.pad[d] + k as i64 * p.dilation[d];
                T::from_f64(base as f64) + os[(2 * group + d) * oh * ow + position]
            };
            let (y, x) = (moved(0, position / ow, tap / kw), moved(1, position % ow, tap % kw));
            let weight = match masked {
                true => ms[group * oh * ow + position],
                false => T::from_f64(1.0),
            };
            column[ch * taps + tap] = weight * sample_bilinear(&xs[(n * channels + ch) * h * w..][..h * w], y, x, h, w);
        }
        for o in 0..shape[1] {
            let (from, len) = (o / out_per_group * per_group * taps, per_group * taps);
            let pairs = ws[o * len..][..len].iter().zip(&column[from..]);
            values[(n * shape[1] + o) * oh * ow + position] = pairs.fold(bs[o], |sum, (&a, &b)| sum + a * b);
        }
    }
    Ok(Val::Leaf(out))
}

fn mismatched_operands() -> OpError {
    OpError::shape("deform_conv2d(): the shapes of bias, offset and mask do not match")
}

/// A bilinear sample of a plane, which is zero outside its bounds.
fn sample_bilinear<T: Real>(plane: &[T], y: T, x: T, h: usize, w: usize) -> T {
    let (top, left) = (y.to_f64().floor(), x.to_f64().floor());
    let (dy, dx) = (y - T::from_f64(top), x - T::from_f64(left));
    let corner = |i: i64, j: i64, weight: T| {
        let (r, c) = (top as i64 + i, left as i64 + j);
        let inside = (0..h as i64).contains(&r) && (0..w as i64).contains(&c);
        if inside {
            weight * plane[r as usize * w + c as usize]
        } else {
            T::ZERO
        }
    };
    let one = T::from_f64(1.0);
    corner(0, 0, (one - dy) * (one - dx))
        + corner(0, 1, (one - dy) * dx)
        + corner(1, 0, dy * (one - dx))
        + corner(1, 1, dy * dx)
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
