//! Views of a part: slices, single indices, diagonals, windows, strided views.

use super::{self_shape, view_op};
use crate::op::emit::dims_val;
use crate::op::layout::StridedWindow;
use crate::op::rows::spell::list_text;
use crate::op::sharing::always_shared;
use crate::op::view::{DimIndex, DimMap, DimView, view_type};
use crate::op::{Build, Call, Meaning, MemoryUse, Op, OpBuilder, OpError, OpId, OpResult, Sizes, Traced, wrap_dim};
use crate::tensor::contiguous_strides;
use crate::types::{Dim, TensorType, Val};

pub(super) fn rows() -> Vec<Op> {
    [slice_rows(), window_rows()].into_iter().flatten().collect()
}

fn slice_rows() -> Vec<Op> {
    vec![
        view_op!(
            "slice(Tensor self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor",
            slice
        )
        .doc("the elements from start to end (exclusive) in steps along a dim")
        .spelled("aten.@.Tensor aten.@_copy.Tensor torch.@_copy"),
        view_op!("select(Tensor self, int dim, SymInt index) -> Tensor", select)
            .doc("the elements at one index of a dim, which is removed")
            .spelled("aten.@.int aten.@_copy.int torch.@_copy torch.@ Tensor.@"),
        view_op!(
            "narrow(Tensor self, int dim, SymInt start, SymInt length) -> Tensor",
            narrow
        )
        .doc("`length` elements from `start` along a dim")
        .spelled("aten.@ aten.@_copy torch.@_copy Tensor.@_copy torch.@ Tensor.@"),
        view_op!(
            "diagonal(Tensor self, int offset=0, int dim1=0, int dim2=1) -> Tensor",
            diagonal
        )
        .doc("the diagonal over two dims, as the last dim")
        .spelled("aten.@ aten.@_copy torch.@_copy torch.@ Tensor.@"),
    ]
}

/// Views of sliding windows and of strided memory.
fn window_rows() -> Vec<Op> {
    vec![
        view_op!(
            "unfold(Tensor self, int dimension, int size, int step) -> Tensor",
            unfold
        )
        .doc("windows of `size` elements every `step` along a dim; the window is the last dim")
        .spelled("aten.@ aten.@_copy torch.@_copy Tensor.@"),
        view_op!(
            "as_strided(Tensor self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor",
            as_strided
        )
        .memory(MemoryUse::Window)
        .doc("a strided view of the memory of a tensor")
        .spelled("aten.@ aten.@_copy torch.@_copy torch.@ Tensor.@")
        .inplace("aten.@_ torch.@_ Tensor.@_"),
        strided_row(),
        Op::composite(
            "fill_diagonal(Tensor self, Scalar fill_value, bool wrap=False) -> Tensor",
            fill_diagonal,
        )
        .doc("the tensor with its main diagonal filled with a value; `wrap` repeats the diagonal in tall matrices")
        .inplace("aten.@_ Tensor.@_")
        .shared_writes(always_shared),
    ]
}

/// For a matrix, the diagonal is a single view. In general it is every `Σ strides`-th element of the tensor in
/// row-major order.
fn fill_diagonal(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("self")?;
    let shape = x.shape()?.to_vec();
    if shape.len() < 2 {
        return Err(OpError::shape("dimensions must larger than 1"));
    }
    let known: Option<Vec<usize>> = shape.iter().map(|d| usize::try_from(d.as_const()?).ok()).collect();
    if shape.len() == 2 && !c.bool("wrap")? {
        let diagonal = b.diagonal(x)?;
        let src = b.full(diagonal.shape()?, c.get("fill_value").clone(), x.dtype())?;
        let filled = b.diagonal_scatter(x, src)?;
        return Ok(filled.into());
    }
    let sizes = known.ok_or_else(|| OpError::shape("fill_diagonal_ requires known sizes"))?;
    if shape.len() > 2 && sizes.iter().any(|n| *n != sizes[0]) {
        return Err(OpError::shape("all dimensions of input must be of equal length"));
    }
    let step: usize = contiguous_strides(&sizes).iter().sum();
    let numel: usize = sizes.iter().product();
    let count = match sizes.len() {
        2 => numel.div_ceil(step.max(1)),
        _ => sizes[0],
    };
    let dims = |n: usize| vec![Dim::Const(n as i64)];
    let src = b.full(&dims(count), c.get("fill_value").clone(), x.dtype())?;
    let args = [
        x.into(),
        (&src).into(),
        dims_val(&dims(count)),
        dims_val(&dims(step)),
        Val::int(0),
    ];
    b.op(OpId::StridedScatter, args).map(Val::Leaf)
}

/// A copy in row-major order: the elements of a view may begin anywhere in its storage, which `as_strided` reads.
pub(in crate::op::rows) fn copy_in_rows(b: &mut dyn Build, x: &Traced) -> OpResult<Traced> {
    let contiguous = b.contiguous(x)?;
    b.clone(&contiguous)
}

/// `as_strided` over row-major elements. Functionalisation lowers a general `as_strided` to this row once it knows the
/// storage.
fn strided_row() -> Op {
    let mut op = Op::composite(
        "strided(Tensor self, SymInt[] size, SymInt[] stride, SymInt storage_offset=0) -> Tensor",
        |b, c| {
            let x = c.leaf("self")?;
            let window = StridedWindow::from_call(&c.types())?;
            window.check_bounds(&x.ty.numel(), x.dtype())?;
            let rows = copy_in_rows(b, x)?;
            let args = [
                (&rows).into(),
                dims_val(&window.size),
                dims_val(&window.strides),
                c.get("storage_offset").clone(),
            ];
            b.op(OpId::AsStrided, args).map(Val::Leaf)
        },
    )
    .doc("a strided view of the elements in row-major order");
    op.view = Some(as_strided);
    op
}

/// A bound of a slice, counted from the front and clamped to `0..=size`. For symbolic sizes, a bound is assumed to be
/// within the dim (torch's exporter makes that a guard), except that a constant end of a symbolic dim is clamped.
fn clamp_bound(bound: &Dim, size: &Dim, end: bool) -> Dim {
    let b = match bound.as_const() {
        Some(i64::MAX) => return size.clone(),
        Some(c) if c < 0 => bound.add(size),
        _ => bound.clone(),
    };
    match (b.as_const(), b.sub(size).as_const()) {
        (Some(c), _) if c <= 0 => Dim::Const(0),
        (_, Some(over)) if over >= 0 => size.clone(),
        (Some(_), None) if end => b.min_of(size),
        _ => b,
    }
}

/// The slice `start..end` with a step along `dim` of `shape`, as its first index and its number of elements.
pub(in crate::op::rows) fn slice_range(
    size: &Dim,
    start: Option<&Dim>,
    end: Option<&Dim>,
    step: i64,
) -> OpResult<(Dim, Dim)> {
    if step <= 0 {
        return Err(OpError::shape("slice step must be positive"));
    }
    let first = start.map_or(Dim::Const(0), |s| clamp_bound(s, size, false));
    let last = end.map_or(size.clone(), |e| clamp_bound(e, size, true));
    let span = last.sub(&first);
    let span = match span.as_const() {
        Some(c) if c <= 0 => Dim::Const(0),
        _ => span,
    };
    let len = span.add(&Dim::Const(step - 1)).floordiv(&Dim::Const(step));
    Ok((if len == Dim::Const(0) { Dim::Const(0) } else { first }, len))
}

/// The view of `len` elements along `dim`, from `first` on, with a step.
pub(in crate::op::rows) fn sliced_view(shape: &[Dim], dim: usize, first: Dim, len: Dim, step: i64) -> DimView {
    let mut map: Vec<DimIndex> = (0..shape.len()).map(DimIndex::along_dim).collect();
    map[dim] = DimIndex {
        offset: first,
        terms: vec![(dim, step)],
    };
    let mut shape = shape.to_vec();
    shape[dim] = len;
    DimView {
        shape,
        map: DimMap::Affine(map),
    }
}

pub(in crate::op::rows) fn slice(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<DimView> {
    let shape = self_shape(c)?;
    if shape.is_empty() {
        return Err(OpError::shape("slice() cannot be applied to a 0-dim tensor."));
    }
    let dim = wrap_dim(c.int("dim")?, shape.len())?;
    let bound = |name: &str| {
        Ok(if c.is_none(name) {
            None
        } else {
            c.dims(name)?.into_iter().next()
        })
    };
    let (start, end) = (bound("start")?, bound("end")?);
    let (first, len) = slice_range(&shape[dim], start.as_ref(), end.as_ref(), c.int("step")?)?;
    Ok(sliced_view(&shape, dim, first, len, c.int("step")?))
}

/// The single size given for the parameter `name`.
pub(in crate::op::rows) fn one_dim(c: &Call<TensorType>, name: &str) -> OpResult<Dim> {
    Ok(c.dims(name)?.into_iter().next().unwrap_or(Dim::Unknown))
}

pub(in crate::op::rows) fn select(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<DimView> {
    let shape = self_shape(c)?;
    if shape.is_empty() {
        return Err(OpError::shape("select() cannot be applied to a 0-dim tensor."));
    }
    let dim = wrap_dim(c.int("dim")?, shape.len())?;
    let mut index = one_dim(c, "index")?;
    if let Some(i) = index.as_const() {
        let size = &shape[dim];
        if size.as_const().is_some_and(|n| i >= n || i < -n) {
            return Err(OpError::shape(format!(
                "select(): index {i} out of range for tensor of size {} at dimension {dim}",
                list_text(&shape)
            )));
        }
        if i < 0 {
            index = index.add(size);
        }
    }
    let mut map = Vec::with_capacity(shape.len());
    for d in 0..shape.len() {
        map.push(match d.cmp(&dim) {
            std::cmp::Ordering::Less => DimIndex::along_dim(d),
            std::cmp::Ordering::Equal => DimIndex::constant(index.clone()),
            std::cmp::Ordering::Greater => DimIndex::along_dim(d - 1),
        });
    }
    let mut shape = shape;
    shape.remove(dim);
    Ok(DimView {
        shape,
        map: DimMap::Affine(map),
    })
}

fn narrow(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<DimView> {
    let shape = self_shape(c)?;
    if shape.is_empty() {
        return Err(OpError::shape("narrow() cannot be applied to a 0-dim tensor."));
    }
    let dim = wrap_dim(c.int("dim")?, shape.len())?;
    let (mut start, length) = (one_dim(c, "start")?, one_dim(c, "length")?);
    if length.as_const().is_some_and(|n| n < 0) {
        return Err(OpError::shape("narrow(): length must be non-negative."));
    }
    if start.as_const().is_some_and(|s| s < 0) {
        start = start.add(&shape[dim]);
    }
    let over = start.add(&length).sub(&shape[dim]);
    if over.as_const().is_some_and(|o| o > 0) || start.as_const().is_some_and(|s| s < 0) {
        return Err(OpError::shape(format!(
            "start ({start}) + length ({length}) exceeds dimension size ({}).",
            shape[dim]
        )));
    }
    Ok(sliced_view(&shape, dim, start, length, 1))
}

pub(in crate::op::rows) fn diagonal(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<DimView> {
    let shape = self_shape(c)?;
    let (a, b) = (
        wrap_dim(c.int("dim1")?, shape.len())?,
        wrap_dim(c.int("dim2")?, shape.len())?,
    );
    if a == b || shape.len() < 2 {
        return Err(OpError::shape(format!(
            "diagonal dimensions cannot be identical {}, {}",
            c.int("dim1")?,
            c.int("dim2")?
        )));
    }
    let (len, skip_a, skip_b) = diagonal_extent(&shape[a], &shape[b], c.int("offset")?);
    let last = shape.len() - 2;
    let mut out = vec![];
    let mut map = vec![];
    for (d, size) in shape.iter().enumerate() {
        if d == a || d == b {
            map.push(DimIndex {
                offset: Dim::Const(if d == a { skip_a } else { skip_b }),
                terms: vec![(last, 1)],
            });
        } else {
            map.push(DimIndex::along_dim(out.len()));
            out.push(size.clone());
        }
    }
    out.push(len);
    Ok(DimView {
        shape: out,
        map: DimMap::Affine(map),
    })
}

/// The length of the diagonal of an `a` by `b` matrix, and the position of its first element.
fn diagonal_extent(a: &Dim, b: &Dim, offset: i64) -> (Dim, i64, i64) {
    let (skip_a, skip_b) = (offset.saturating_neg().max(0), offset.max(0));
    let (a, b) = (a.sub(&Dim::Const(skip_a)), b.sub(&Dim::Const(skip_b)));
    // Without an offset, sizes cannot become negative.
    let len = match offset {
        0 => a.min_of(&b),
        _ => a.min_of(&b).max_of(&Dim::Const(0)),
    };
    // torch does not advance the offset for an empty diagonal, which `storage_offset()` shows.
    match len {
        Dim::Const(0) => (len, 0, 0),
        _ => (len, skip_a, skip_b),
    }
}

fn unfold(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<DimView> {
    let mut shape = self_shape(c)?;
    let dim = wrap_dim(c.int("dimension")?, shape.len())?;
    let (size, step) = (c.int("size")?, c.int("step")?);
    let max = shape.get(dim).cloned().unwrap_or(Dim::Const(1));
    if size < 0 || max.as_const().is_some_and(|m| size > m) {
        return Err(OpError::shape(format!(
            "maximum size for tensor at dimension {dim} is {max} but size is {size}"
        )));
    }
    if step <= 0 {
        return Err(OpError::shape(format!("step is {step} but must be > 0")));
    }
    let rank = shape.len();
    let mut map: Vec<DimIndex> = (0..rank).map(DimIndex::along_dim).collect();
    if rank > 0 {
        map[dim].terms = vec![(dim, step), (rank, 1)];
        shape[dim] = max
            .sub(&Dim::Const(size))
            .floordiv(&Dim::Const(step))
            .add(&Dim::Const(1));
    }
    shape.push(Dim::Const(size));
    Ok(DimView {
        shape,
        map: DimMap::Affine(map),
    })
}

/// The bounds of the window are checked once the storage is known: it may be larger than the operand.
pub(in crate::op::rows) fn as_strided(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<DimView> {
    let window = StridedWindow::from_call(c)?;
    window.check_bounds(&Dim::Unknown, c.leaf("self")?.dtype)?;
    Ok(DimView {
        shape: window.size,
        map: DimMap::Strided {
            offset: window.offset,
            strides: window.strides,
        },
    })
}
