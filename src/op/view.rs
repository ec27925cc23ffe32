//! Views: the mapping from each element of the result to an element of the operand, for known and for symbolic sizes.
//!
//! A view row declares one [`ViewRule`]; the type rule and [`Meaning::View`](super::Meaning::View) follow from it. Because operands
//! are dense and row-major, every view is an offset and a stride per dim of the result ([`View::offset_and_strides`]). Loops and
//! the inverse ([`write_through`]) use this form.

use super::emit::{dims_val, ints_val};
use super::layout::contiguous_dims;
use super::sharing::{expanded_write_error, is_expanded};
use super::{AffineIndex, Build, Call, IndexMap, OpError, OpResult, Sizes, Traced, View};
use crate::diag::Code;
use crate::op::OpId;
use crate::tensor::contiguous_strides;
use crate::types::{Dim, TensorType, Type, Val};

/// A view whose sizes may be symbolic.
#[derive(Clone, Debug, PartialEq)]
pub struct DimView {
    /// The result's shape.
    pub shape: Vec<Dim>,
    /// The operand's element for each element of the result.
    pub map: DimMap,
}

/// [`IndexMap`] with symbolic offsets and strides.
#[derive(Clone, Debug, PartialEq)]
pub enum DimMap {
    /// The element at the same row-major position.
    Reshape,
    /// An index per dim of the operand.
    Affine(Vec<DimIndex>),
    /// Strides over the operand's storage (`as_strided`).
    Strided {
        /// The position of the first element; if absent, that of the operand.
        offset: Option<Dim>,
        /// One stride per dim of the result.
        strides: Vec<Dim>,
    },
}

/// [`AffineIndex`] with a symbolic offset.
#[derive(Clone, Debug, PartialEq)]
pub struct DimIndex {
    /// Constant part.
    pub offset: Dim,
    /// Pairs of a result dim and its coefficient.
    pub terms: Vec<(usize, i64)>,
}

/// The rule of a view row: the view of the parameter `self`.
pub(crate) type ViewRule = fn(&Call<TensorType>, &mut Sizes) -> OpResult<DimView>;

impl DimIndex {
    /// The index along dim `d` of the result.
    pub fn along_dim(d: usize) -> DimIndex {
        DimIndex {
            offset: Dim::Const(0),
            terms: vec![(d, 1)],
        }
    }

    /// A constant index.
    pub fn constant(offset: Dim) -> DimIndex {
        DimIndex { offset, terms: vec![] }
    }
}

impl DimView {
    /// The same elements in the same order, with another shape.
    pub fn reshape(shape: Vec<Dim>) -> DimView {
        DimView {
            shape,
            map: DimMap::Reshape,
        }
    }

    /// A permutation: dim `i` of the result is dim `dims[i]` of the operand.
    pub fn permute(shape: &[Dim], dims: &[usize]) -> DimView {
        let mut map = vec![DimIndex::constant(Dim::Const(0)); shape.len()];
        for (i, &d) in dims.iter().enumerate() {
            map[d] = DimIndex::along_dim(i);
        }
        DimView {
            shape: dims.iter().map(|&d| shape[d].clone()).collect(),
            map: DimMap::Affine(map),
        }
    }

    /// The view for constant sizes, with operand parameter `operand`; E0304 if a size is unknown.
    pub fn fix(&self, operand: usize) -> OpResult<View> {
        let known = |d: &Dim| {
            d.as_const()
                .ok_or_else(|| OpError::new(Code::E0304, format!("a size of the view is unknown: {d}")))
        };
        let sizes = self.shape.iter().map(|d| {
            let c = known(d)?;
            usize::try_from(c).map_err(|_| OpError::shape(format!("a size of the view is negative: {c}")))
        });
        let map = match &self.map {
            DimMap::Reshape => IndexMap::Reshape,
            DimMap::Affine(v) => {
                let index = |x: &DimIndex| {
                    Ok(AffineIndex {
                        offset: known(&x.offset)?,
                        terms: x.terms.clone(),
                    })
                };
                IndexMap::Affine(v.iter().map(index).collect::<OpResult<_>>()?)
            }
            DimMap::Strided { offset, strides } => IndexMap::Strided {
                offset: offset.as_ref().map(known).transpose()?,
                strides: strides.iter().map(known).collect::<OpResult<_>>()?,
            },
        };
        Ok(View {
            operand,
            map,
            shape: sizes.collect::<OpResult<_>>()?,
        })
    }

    /// Offset and strides over the row-major elements of an operand of shape `operand`; for `as_strided`, over its
    /// storage.
    pub fn offset_and_strides(&self, operand: &[Dim]) -> (Dim, Vec<Dim>) {
        match &self.map {
            DimMap::Reshape => (Dim::Const(0), contiguous_dims(&self.shape)),
            DimMap::Strided { offset, strides } => (offset.clone().unwrap_or(Dim::Const(0)), strides.clone()),
            DimMap::Affine(map) => {
                let mut offset = Dim::Const(0);
                let mut strides = vec![Dim::Const(0); self.shape.len()];
                for (x, s) in map.iter().zip(contiguous_dims(operand)) {
                    offset = offset.add(&x.offset.mul(&s));
                    for &(d, c) in &x.terms {
                        strides[d] = strides[d].add(&s.mul(&Dim::Const(c)));
                    }
                }
                (offset, strides)
            }
        }
    }

    /// The permutation (from result dim to operand dim) if the view only permutes dims. It may also leave out elements
    /// at the ends of dims; the caller must compare sizes if that matters.
    fn as_permutation(&self) -> Option<Vec<usize>> {
        let DimMap::Affine(map) = &self.map else { return None };
        let mut dims = vec![usize::MAX; map.len()];
        for (d, x) in map.iter().enumerate() {
            match &x.terms[..] {
                [(i, 1)] if x.offset == Dim::Const(0) && *i < dims.len() => dims[*i] = d,
                _ => return None,
            }
        }
        (self.shape.len() == map.len() && !dims.contains(&usize::MAX)).then_some(dims)
    }
}

impl View {
    /// Offset and strides, in elements, over the row-major elements of an operand of shape `operand`: element `out[i]`
    /// is the operand's element `offset + Σ i[d] * strides[d]`.
    pub fn offset_and_strides(&self, operand: &[usize]) -> (i64, Vec<i64>) {
        match &self.map {
            IndexMap::Reshape => {
                let s = contiguous_strides(&self.shape);
                (0, s.into_iter().map(|s| s as i64).collect())
            }
            IndexMap::Strided { offset, strides } => (offset.unwrap_or(0), strides.clone()),
            IndexMap::Affine(map) => {
                let dense: Vec<i64> = contiguous_strides(operand).into_iter().map(|s| s as i64).collect();
                compose_affine(map, 0, &dense, self.shape.len())
            }
        }
    }

    /// Calls `f(i, p)` for each element `i` of the result in row-major order, where `p` is the position of the
    /// operand's element.
    pub fn for_each(&self, operand: &[usize], mut f: impl FnMut(usize, usize)) {
        let (offset, strides) = self.offset_and_strides(operand);
        strided_positions(&self.shape, offset, &strides, &mut f);
    }
}

/// Offset and strides of an affine view of `rank` dims, for an operand with this offset and these strides. Sums
/// saturate, because the stride of a dim of one element may be arbitrarily large (`x[::2**62]`).
pub(crate) fn compose_affine(map: &[AffineIndex], offset: i64, operand: &[i64], rank: usize) -> (i64, Vec<i64>) {
    let (mut offset, mut strides) = (offset, vec![0i64; rank]);
    for (index, &s) in map.iter().zip(operand) {
        offset = offset.saturating_add(index.offset.saturating_mul(s));
        for &(d, c) in &index.terms {
            strides[d] = strides[d].saturating_add(c.saturating_mul(s));
        }
    }
    (offset, strides)
}

/// Calls `f(i, offset + Σ index[d] * strides[d])` for each index of `shape` in row-major order; `i` counts from 0.
pub(crate) fn strided_positions(shape: &[usize], offset: i64, strides: &[i64], f: &mut dyn FnMut(usize, usize)) {
    strided_rows(shape, offset, strides, |first, base, n, step| {
        let mut p = base;
        for i in first..first + n {
            f(i, p as usize);
            // The value after the last element is not used, so it may wrap around.
            p = p.wrapping_add(step);
        }
    });
}

/// Calls `f(i, p, n, step)` for each row along the last dim of `shape`: it has `n` elements, whose positions as of
/// [`strided_positions`] begin with element `i` at `p` and are `step` apart.
pub(crate) fn strided_rows(shape: &[usize], offset: i64, strides: &[i64], mut f: impl FnMut(usize, i64, usize, i64)) {
    if shape.contains(&0) {
        return;
    }
    let (inner, step) = match (shape.last(), strides.last()) {
        (Some(&n), Some(&s)) => (n, s),
        _ => (1, 0),
    };
    let outer = shape.len().saturating_sub(1);
    let mut index = vec![0usize; outer];
    let mut base = offset;
    let mut i = 0;
    loop {
        f(i, base, inner, step);
        i += inner;
        let mut d = outer;
        loop {
            if d == 0 {
                return;
            }
            d -= 1;
            index[d] += 1;
            base = base.wrapping_add(strides[d]);
            if index[d] < shape[d] {
                break;
            }
            base = base.wrapping_sub(strides[d].wrapping_mul(shape[d] as i64));
            index[d] = 0;
        }
    }
}

/// The type of a view of `self`.
pub(crate) fn view_type(call: &Call<TensorType>, view: DimView) -> OpResult<Type> {
    Ok(Val::Leaf(TensorType::new(call.leaf("self")?.dtype, view.shape)))
}

/// The row that reinterprets the bytes of a tensor as another dtype: a view without an index map.
pub(crate) const BITS: OpId = OpId::ViewDtype;

/// The base after a write of `new` through a view: the contents of `base` after `view(base, …).copy_(new)`. `view` is a
/// call of a view row on the base; `new` has the view's shape and the base's dtype.
pub(crate) fn write_through(b: &mut dyn Build, view: &Call<Traced>, new: &Traced) -> OpResult<Traced> {
    let base = view.leaf("self")?.clone();
    if view.op.is(BITS) {
        return b.op(BITS, [new.into(), Val::DType(base.ty.dtype)]);
    }
    let rule = view
        .op
        .view
        .ok_or_else(|| OpError::refused(format!("`{}` is not a view", view.op.name)))?;
    let dim_view = rule(&view.map(|t| t.ty.clone()), &mut Sizes::default())?;
    if matches!(dim_view.map, DimMap::Reshape) {
        return b.reshape(new, base.shape()?);
    }
    if let Some(dims) = whole_permutation(&dim_view, base.shape()?) {
        let mut inverse = vec![0; dims.len()];
        dims.iter().enumerate().for_each(|(i, &d)| inverse[d] = i);
        return b.permute(new, &inverse);
    }
    let scatter = match view.op.id() {
        Some(OpId::Slice) => Some(OpId::SliceScatter),
        Some(OpId::Select) => Some(OpId::SelectScatter),
        Some(OpId::Diagonal) => Some(OpId::DiagonalScatter),
        _ => None,
    };
    if let Some(op) = scatter {
        let mut args = view.args.clone();
        args.insert(1, new.into());
        return b.op(op, args);
    }
    let (offset, strides) = dim_view.offset_and_strides(base.shape()?);
    if is_expanded(&dim_view.shape, &strides) {
        return Err(expanded_write_error());
    }
    let (size, stride) = (dims_val(&dim_view.shape), dims_val(&strides));
    b.op(
        OpId::StridedScatter,
        [(&base).into(), new.into(), size, stride, Val::Int(offset)],
    )
}

/// The order of dims of a view that permutes all elements of its base. A slice from the start also keeps the order of
/// dims, but not all of their elements.
fn whole_permutation(view: &DimView, base: &[Dim]) -> Option<Vec<usize>> {
    let is_whole = |(n, d): (&Dim, &usize)| *n == base[*d] && *n != Dim::Unknown;
    let dims = view.as_permutation()?;
    view.shape.iter().zip(&dims).all(is_whole).then_some(dims)
}

/// The call of the view that `slice_scatter` and similar ops write to. torch writes to a copy of the whole memory.
pub(crate) fn scattered_view<T: Clone>(c: &Call<T>) -> Option<Call<T>> {
    let view = c.op.facts.scatter_to?;
    let mut args = c.args.clone();
    args.remove(1);
    Some(Call { op: view.op(), args })
}

impl dyn Build + '_ {
    /// Permutes the dims.
    pub fn permute(&mut self, x: &Traced, dims: &[usize]) -> OpResult<Traced> {
        if dims.iter().enumerate().all(|(i, &d)| i == d) {
            return Ok(x.clone());
        }
        let dims: Vec<i64> = dims.iter().map(|&d| d as i64).collect();
        self.op(OpId::Permute, [x.into(), ints_val(&dims)])
    }

    /// `x` with another shape, or `x` itself if it already has that shape.
    pub fn reshape(&mut self, x: &Traced, shape: &[Dim]) -> OpResult<Traced> {
        if x.ty.shape.as_deref() == Some(shape) && x.ty.has_known_sizes() {
            return Ok(x.clone());
        }
        // A single unknown size can still be requested as -1.
        let unknown = shape.iter().filter(|d| **d == Dim::Unknown).count() == 1;
        let ask = |d: &Dim| {
            if unknown && *d == Dim::Unknown {
                Dim::Const(-1)
            } else {
                d.clone()
            }
        };
        let shape: Vec<Dim> = shape.iter().map(ask).collect();
        self.op(OpId::Reshape, [x.into(), dims_val(&shape)])
    }
}
