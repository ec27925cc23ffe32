//! Duplicate slices and segments of a dim: unique rows, runs of equal slices, segment reductions.

use super::element_runs::element_runs;
use crate::op::pointwise::not_implemented;
use crate::op::rows::dense::{sizes_around, to_i64_indices, zeros};
use crate::op::rows::index::combine::with_cell;
use crate::op::rows::index::sort::float_order;
use crate::op::{Call, Meaning, Op, OpError, OpId, OpResult, wrap_dim};
use crate::tensor::{Scalar, Tensor};
use crate::types::{DType, Dim, TensorType, Type, Val};
use std::cmp::Ordering;
use std::ops::Range;

pub(super) fn rows() -> Vec<Op> {
    vec![
        Op::new("unique_consecutive(Tensor self, bool return_inverse=False, bool return_counts=False, int? dim=None) -> (Tensor, \
             Tensor, Tensor)",
            |c, _| unique_type(c),
            Meaning::Routine(|c| unique(c, false)),
        )
        .doc("the first of every run of equal elements (or slices along a dim), the run index of each element, and the run lengths")
        .spelled("aten.@"),
        Op::new("unique_dim(Tensor self, int dim, bool sorted=True, bool return_inverse=False, bool return_counts=False) -> (Tensor, \
             Tensor, Tensor)",
            |c, _| unique_type(c),
            Meaning::Routine(|c| unique(c, true)),
        )
        .doc("the sorted unique slices along a dim, the index of each slice among them, and their counts")
        .spelled("aten.@"),
        Op::composite("unique_consecutive_as_asked(Tensor input, bool return_inverse=False, bool return_counts=False, int? dim=None) -> Any",
            |b, c| {
                let v = b.call_many(OpId::UniqueConsecutive, c.args.clone())?;
                let asked = [true, c.bool("return_inverse")?, c.bool("return_counts")?];
                let mut out: Vec<Val<_>> = v.iter().zip(asked).filter(|(_, a)| *a).map(|(t, _)| t.into()).collect();
                Ok(if out.len() == 1 { out.swap_remove(0) } else { Val::Tuple(out) })
            },
        )
        .doc("the first of every run of equal elements, and on request the inverse indices and counts")
        .spelled("torch.unique_consecutive torch.functional.unique_consecutive Tensor.unique_consecutive"),
        Op::new("segment_reduce(Tensor data, str reduce, *, Tensor? lengths=None, Tensor? indices=None, Tensor? offsets=None, int \
             axis=0, bool unsafe=False, Scalar? initial=None) -> Tensor",
            |c, _| segments_type(c),
            Meaning::Routine(segment_reduce),
        )
        .doc("the sum, mean, product, maximum or minimum of each segment of a dim")
        .spelled("aten.@ torch.@"),
    ]
}

fn unique_type(c: &Call<TensorType>) -> OpResult<Type> {
    let x = c.leaf("self")?;
    let dim = c.opt_int("dim")?;
    let (mut shape, mut inverse) = (vec![Dim::Unknown], x.shape.clone());
    if let Some(dim) = dim {
        let (_, sizes) = c.shaped("self")?;
        let dim = wrap_dim(dim, sizes.len())?;
        shape = sizes.to_vec();
        inverse = Some(vec![shape.get(dim).cloned().unwrap_or(Dim::Const(1))]);
        if let Some(n) = shape.get_mut(dim) {
            *n = Dim::Unknown;
        }
    }
    let indices = |requested: bool, shape: Option<Vec<Dim>>| match requested {
        true => TensorType {
            dtype: DType::I64,
            shape,
        },
        false => TensorType::new(DType::I64, vec![Dim::Const(0)]),
    };
    // For unique slices, torch always returns both.
    let by_slices = c.op.is(OpId::UniqueDim) || dim.is_some();
    let all = [
        TensorType::new(x.dtype, shape),
        indices(by_slices || c.bool("return_inverse")?, inverse),
        indices(by_slices || c.bool("return_counts")?, Some(vec![Dim::Unknown])),
    ];
    Ok(Val::Tuple(all.map(Val::Leaf).to_vec()))
}

fn compare_scalars(a: Scalar, b: Scalar) -> Ordering {
    match (a, b) {
        (Scalar::Int(_, a), Scalar::Int(_, b)) => a.cmp(&b),
        _ => float_order(a.to_f64(), b.to_f64()),
    }
}

/// The slices of a tensor along a dim.
struct DimSlices<'a> {
    x: &'a Tensor,
    /// The number of slices.
    count: usize,
    /// The number of elements before and after the dim.
    outer: usize,
    inner: usize,
}

impl<'a> DimSlices<'a> {
    fn new(x: &'a Tensor, dim: usize) -> OpResult<DimSlices<'a>> {
        let (outer, count, inner) = sizes_around(x.shape(), dim);
        if count > 0 && outer * inner == 0 {
            return Err(OpError::shape(
                "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied",
            ));
        }
        Ok(DimSlices { x, count, outer, inner })
    }

    /// Element `k` of a slice.
    fn element(&self, slice: usize, k: usize) -> Scalar {
        let (o, i) = (k / self.inner, k % self.inner);
        self.x.get((o * self.count + slice) * self.inner + i)
    }

    fn compare(&self, a: usize, b: usize) -> Ordering {
        let mut parts = (0..self.outer * self.inner).map(|k| compare_scalars(self.element(a, k), self.element(b, k)));
        parts.find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
    }

    /// Whether two slices are equal. NaN is unequal to itself, so slices that contain NaN are always distinct.
    fn are_equal(&self, a: usize, b: usize) -> bool {
        (0..self.outer * self.inner).all(|k| {
            let (p, q) = (self.element(a, k), self.element(b, k));
            p == q || p.to_f64() == q.to_f64()
        })
    }

    /// The given slices, with `shape`.
    fn gather(&self, slices: &[usize], shape: &[usize]) -> Tensor {
        let (m, inner) = (slices.len(), self.inner);
        Tensor::from_fn(self.x.dtype(), shape, |p| {
            let (o, slice, i) = (p / (m * inner), p / inner % m, p % inner);
            self.element(slices[slice], o * inner + i)
        })
    }
}

/// Groups equal slices along the dim (equal elements without a dim), sorting the slices first if `sorted`.
fn unique(c: &Call<Tensor>, sorted: bool) -> OpResult<Val<Tensor>> {
    let input = c.leaf("self")?;
    let by_slices = c.opt_int("dim")?;
    if !sorted && by_slices.is_none() {
        with_cell!(input.dtype(), T => return element_runs::<T>(c, input), else ());
    }
    let (x, dim) = match by_slices {
        Some(d) => (input.clone(), wrap_dim(d, input.rank())?),
        None => (input.reshape(&[input.numel()]), 0),
    };
    let slices = DimSlices::new(&x, dim)?;
    let mut order: Vec<usize> = (0..slices.count).collect();
    if sorted {
        order.sort_by(|&a, &b| slices.compare(a, b));
    }
    let SliceGroups { first, inverse, counts } = group_slices(&order, |a, b| slices.are_equal(a, b));
    let mut shape = x.shape().to_vec();
    if let Some(size) = shape.get_mut(dim) {
        *size = first.len();
    }
    let inverse_shape = match by_slices {
        Some(_) => vec![slices.count],
        None => input.shape().to_vec(),
    };
    let optional = |name: &str, shape: &[usize], values: &[i64]| -> OpResult<Val<Tensor>> {
        Ok(Val::Leaf(match by_slices.is_some() || c.bool(name)? {
            true => Tensor::from_slice(shape, values),
            false => Tensor::zeros(DType::I64, &[0]),
        }))
    };
    Ok(Val::Tuple(vec![
        Val::Leaf(slices.gather(&first, &shape)),
        optional("return_inverse", &inverse_shape, &inverse)?,
        optional("return_counts", &[first.len()], &counts)?,
    ]))
}

/// Groups of equal slices.
struct SliceGroups {
    /// The first slice of each group.
    first: Vec<usize>,
    /// The group of each slice.
    inverse: Vec<i64>,
    /// The number of slices in each group.
    counts: Vec<i64>,
}

/// Groups slices that are equal and adjacent in `order`.
fn group_slices(order: &[usize], same: impl Fn(usize, usize) -> bool) -> SliceGroups {
    let (mut first, mut inverse, mut counts) = (vec![], vec![0i64; order.len()], vec![]);
    for (k, &i) in order.iter().enumerate() {
        if k == 0 || !same(order[k - 1], i) {
            first.push(i);
            counts.push(0);
        }
        inverse[i] = first.len() as i64 - 1;
        counts[first.len() - 1] += 1;
    }
    SliceGroups { first, inverse, counts }
}

fn segments_type(c: &Call<TensorType>) -> OpResult<Type> {
    let (d, x) = c.shaped("data")?;
    if !d.is_float() {
        return Err(not_implemented("segment_reduce_lengths_cpu", d));
    }
    if !["sum", "mean", "max", "min", "prod"].contains(&c.str("reduce")?) {
        return Err(OpError::arg("reduce", "unsupported reduction"));
    }
    let axis = wrap_dim(c.int("axis")?, x.len())?;
    let count = match (c.opt_leaf("lengths"), c.opt_leaf("offsets")) {
        (Some(t), None) => t.shape.as_ref().and_then(|s| s.last()).cloned(),
        (None, Some(t)) => t.shape.as_ref().and_then(|s| s.last()).map(|n| n.sub(&Dim::Const(1))),
        _ => {
            return Err(OpError::arg(
                "lengths",
                "segment_reduce(): Either lengths or offsets must be defined.",
            ));
        }
    };
    let Some(count) = count.filter(|_| axis < x.len()) else {
        return Err(OpError::shape(
            "segment_reduce(): lengths must have a dim for each up to axis",
        ));
    };
    if count == Dim::Const(-1) {
        return Err(no_offsets());
    }
    let mut shape = x.to_vec();
    shape[axis] = count;
    Ok(Val::Leaf(TensorType::new(d, shape)))
}

fn segment_reduce(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let x = c.leaf("data")?;
    let axis = wrap_dim(c.int("axis")?, x.rank())?;
    let (outer, n, inner) = sizes_around(x.shape(), axis);
    let (lengths, offsets) = match c.opt_leaf("lengths") {
        Some(t) => (t, false),
        None => (c.leaf("offsets")?, true),
    };
    let lengths = to_i64_indices(lengths, "segment_reduce(): lengths must be integers")?;
    let width = lengths.shape().last().copied().unwrap_or(0);
    let Some(count) = width.checked_sub(offsets as usize) else {
        return Err(no_offsets());
    };
    if lengths.numel() != outer * width {
        return Err(OpError::shape(
            "segment_reduce(): Expected all rows of lengths along axis to have the data's sizes",
        ));
    }
    let reduction = SegmentReduction::from_call(c)?;
    let mut shape = x.shape().to_vec();
    shape[axis] = count;
    let mut out = zeros(x.dtype(), &shape)?;
    for o in 0..outer {
        let row = &lengths.as_slice::<i64>()[o * width..(o + 1) * width];
        let bounds = match offsets {
            true => segments_between(row, n)?,
            false => segments_of_lengths(row, n, c.bool("unsafe")?)?,
        };
        for (s, segment) in bounds.into_iter().enumerate() {
            for i in 0..inner {
                let values = segment.clone().map(|k| x.get((o * n + k) * inner + i).to_f64());
                out.set((o * count + s) * inner + i, Scalar::F64(reduction.reduce(values)));
            }
        }
    }
    Ok(Val::Leaf(out))
}

/// Segments lie between neighbouring offsets, so that no offsets would make -1 segments.
fn no_offsets() -> OpError {
    OpError::shape("Trying to create tensor with negative dimension -1")
}

fn lengths_error() -> OpError {
    OpError::value("segment_reduce(): Expected all rows of lengths along axis to sum to data.size(axis)")
}

/// The segment of `n` elements that begins at `begin`.
fn checked_segment(begin: i64, len: i64, n: usize) -> OpResult<Range<usize>> {
    let end = begin.saturating_add(len);
    match begin < 0 || len < 0 || end > n as i64 {
        true => Err(lengths_error()),
        false => Ok(begin as usize..end as usize),
    }
}

/// The segments between neighbouring offsets.
fn segments_between(offsets: &[i64], n: usize) -> OpResult<Vec<Range<usize>>> {
    offsets
        .windows(2)
        .map(|w| checked_segment(w[0], w[1] - w[0], n))
        .collect()
}

/// Adjacent segments of the given lengths. Unless `partial`, they contain all `n` elements.
fn segments_of_lengths(lengths: &[i64], n: usize, partial: bool) -> OpResult<Vec<Range<usize>>> {
    let mut out: Vec<Range<usize>> = vec![];
    for &len in lengths {
        let begin = out.last().map_or(0, |s| s.end);
        out.push(checked_segment(begin as i64, len, n)?);
    }
    match partial || out.last().map_or(0, |s| s.end) == n {
        true => Ok(out),
        false => Err(lengths_error()),
    }
}

/// How the elements of a segment are reduced.
struct SegmentReduction<'a> {
    kind: &'a str,
    initial: Option<f64>,
}

impl<'a> SegmentReduction<'a> {
    fn from_call(c: &'a Call<Tensor>) -> OpResult<Self> {
        let initial = match c.is_none("initial") {
            true => None,
            false => Some(c.f64("initial")?),
        };
        Ok(SegmentReduction {
            kind: c.str("reduce")?,
            initial,
        })
    }

    fn reduce(&self, values: impl ExactSizeIterator<Item = f64>) -> f64 {
        let start = match self.kind {
            "prod" => 1.0,
            "max" => f64::NEG_INFINITY,
            "min" => f64::INFINITY,
            _ => 0.0,
        };
        let len = values.len();
        let total = values.fold(self.initial.unwrap_or(start), |a, v| combine_values(self.kind, a, v));
        match self.kind {
            "mean" if len > 0 => total / len as f64,
            "mean" if self.initial.is_none() => f64::NAN,
            _ => total,
        }
    }
}

fn combine_values(reduce: &str, a: f64, v: f64) -> f64 {
    match reduce {
        "prod" => a * v,
        "max" if a.is_nan() || v > a || v.is_nan() => {
            if a.is_nan() {
                a
            } else {
                v
            }
        }
        "min" if a.is_nan() || v < a || v.is_nan() => {
            if a.is_nan() {
                a
            } else {
                v
            }
        }
        "max" | "min" => a,
        _ => a + v,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_offsets_are_an_error() {
        let leaf = |t: Tensor| Val::Leaf(t);
        let call = Call {
            op: crate::op::by_name("segment_reduce").expect("a row"),
            args: vec![
                leaf(Tensor::from_slice(&[4], &[1.0f32; 4])),
                Val::str("sum"),
                Val::None,
                Val::None,
                leaf(Tensor::from_slice::<i64>(&[0], &[])),
                Val::int(0),
                Val::Bool(true),
                Val::None,
            ],
        };
        let error = segment_reduce(&call).expect_err("torch refuses it");
        assert_eq!(error.title, "Trying to create tensor with negative dimension -1");
    }
}
