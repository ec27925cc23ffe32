//! Views whose indices are affine: permuting, stretching, slicing, windows, strides.

use super::views::{list_text, self_shape, view_op};
use crate::op::view::{DimIndex, DimMap, DimView, view_type};
use crate::op::{Call, Meaning, Op, OpError, OpResult, Sizes, wrap_dim};
use crate::types::{DType, Dim, TensorType};

/// The rows.
pub fn rows() -> Vec<Op> {
    let mut v = permutations();
    v.extend(parts());
    v.extend(stretched());
    v
}

fn permutations() -> Vec<Op> {
    vec![
        view_op!("permute", "permute(Tensor self, int[] dims) -> Tensor", permute)
            .doc("the dims in another order")
            .spelled("aten.permute.default aten.permute_copy.default torch.permute Tensor.permute"),
        view_op!(
            "transpose",
            "transpose(Tensor self, int dim0, int dim1) -> Tensor",
            transpose
        )
        .doc("two dims swapped")
        .spelled(
            "aten.transpose.int aten.transpose_copy.int torch.transpose Tensor.transpose aten.swapdims.default \
                 torch.swapdims Tensor.swapdims",
        )
        .form(
            "aten.swapaxes.default torch.swapaxes Tensor.swapaxes",
            "swapaxes(Tensor self, int dim0, int dim1) -> Tensor",
        )
        .inplace("aten.transpose_.default Tensor.transpose_ Tensor.swapdims_")
        .inplace_form(
            "aten.swapaxes_.default Tensor.swapaxes_",
            "swapaxes(Tensor self, int dim0, int dim1) -> Tensor",
        ),
        view_op!("t", "t(Tensor self) -> Tensor", t)
            .doc("a matrix transposed; vectors and 0-d tensors stay")
            .spelled("aten.t.default aten.t_copy.default torch.t Tensor.t")
            .inplace("aten.t_.default Tensor.t_"),
        view_op!("numpy_T", "numpy_T(Tensor self) -> Tensor", numpy_t)
            .doc("all dims in reverse order: `x.T`")
            .spelled("aten.numpy_T.default"),
        view_op!("mT", "mT(Tensor self) -> Tensor", m_t)
            .doc("the last two dims swapped")
            .spelled("aten.mT.default aten.adjoint.default torch.adjoint Tensor.adjoint aten.matrix_H.default"),
        view_op!(
            "movedim",
            "movedim(Tensor self, int[1] source, int[1] destination) -> Tensor",
            movedim
        )
        .doc("some dims moved to other places")
        .spelled(
            "aten.movedim.int aten.movedim.intlist torch.movedim Tensor.movedim aten.moveaxis.int \
                 aten.moveaxis.intlist torch.moveaxis Tensor.moveaxis",
        ),
        view_op!("flip", "flip(Tensor self, int[] dims) -> Tensor", flip)
            .doc("some dims in reverse order")
            .spelled("aten.flip.default torch.flip Tensor.flip")
            .form_with(
                "aten.flipud.default torch.flipud Tensor.flipud",
                "flipud(Tensor self) -> Tensor",
                &[("dims", crate::op::emit::ints_val(&[0]))],
            )
            .form_with(
                "aten.fliplr.default torch.fliplr Tensor.fliplr",
                "fliplr(Tensor self) -> Tensor",
                &[("dims", crate::op::emit::ints_val(&[1]))],
            )
            .copies(),
    ]
}

fn parts() -> Vec<Op> {
    vec![
        view_op!(
            "slice",
            "slice(Tensor self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor",
            slice
        )
        .doc("the elements from start up to end in steps along a dim")
        .spelled("aten.slice.Tensor aten.slice_copy.Tensor"),
        view_op!("select", "select(Tensor self, int dim, SymInt index) -> Tensor", select)
            .doc("the elements at one index of a dim, which goes")
            .spelled("aten.select.int aten.select_copy.int torch.select Tensor.select"),
        view_op!(
            "narrow",
            "narrow(Tensor self, int dim, SymInt start, SymInt length) -> Tensor",
            narrow
        )
        .doc("`length` elements from `start` along a dim")
        .spelled("aten.narrow.default aten.narrow_copy.default torch.narrow Tensor.narrow"),
        view_op!(
            "diagonal",
            "diagonal(Tensor self, int offset=0, int dim1=0, int dim2=1) -> Tensor",
            diagonal
        )
        .doc("the diagonal of two dims, as the last dim")
        .spelled("aten.diagonal.default aten.diagonal_copy.default torch.diagonal Tensor.diagonal"),
        view_op!(
            "unfold",
            "unfold(Tensor self, int dimension, int size, int step) -> Tensor",
            unfold
        )
        .doc("windows of `size` elements every `step` along a dim; the window is the last dim")
        .spelled("aten.unfold.default aten.unfold_copy.default Tensor.unfold"),
        view_op!(
            "as_strided",
            "as_strided(Tensor self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor",
            as_strided
        )
        .doc("any sizes and strides over the elements in row-major order")
        .spelled("aten.as_strided.default aten.as_strided_copy.default torch.as_strided Tensor.as_strided"),
    ]
}

fn stretched() -> Vec<Op> {
    vec![
        view_op!(
            "expand",
            "expand(Tensor self, SymInt[] size, *, bool implicit=False) -> Tensor",
            expand
        )
        .doc("dims of size 1 stretched, and new ones in front; -1 keeps a size")
        .spelled("aten.expand.default aten.expand_copy.default Tensor.expand")
        .form(
            "aten.broadcast_to.default torch.broadcast_to Tensor.broadcast_to",
            "broadcast_to(Tensor self, SymInt[] size) -> Tensor",
        ),
        view_op!("expand_as", "expand_as(Tensor self, Tensor other) -> Tensor", expand_as)
            .doc("stretched to the other tensor's shape")
            .spelled("aten.expand_as.default Tensor.expand_as"),
    ]
}

fn permute(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<DimView> {
    let shape = self_shape(c)?;
    let dims = c.ints("dims")?;
    if dims.len() != shape.len() {
        return Err(OpError::shape(format!(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired \
             ordering of dimensions i.e. input.dim() = {} is not equal to len(dims) = {}",
            shape.len(),
            dims.len()
        )));
    }
    let dims: Vec<usize> = dims
        .iter()
        .map(|&d| wrap_dim(d, shape.len()))
        .collect::<OpResult<_>>()?;
    if (0..dims.len()).any(|i| dims[..i].contains(&dims[i])) {
        return Err(OpError::shape("permute(): duplicate dims are not allowed."));
    }
    Ok(DimView::permute(&shape, &dims))
}

fn swapped(shape: &[Dim], a: usize, b: usize) -> DimView {
    let mut dims: Vec<usize> = (0..shape.len()).collect();
    if !dims.is_empty() {
        dims.swap(a, b);
    }
    DimView::permute(shape, &dims)
}

fn transpose(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<DimView> {
    let shape = self_shape(c)?;
    let (a, b) = (
        wrap_dim(c.int("dim0")?, shape.len())?,
        wrap_dim(c.int("dim1")?, shape.len())?,
    );
    Ok(swapped(&shape, a, b))
}

fn t(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<DimView> {
    let shape = self_shape(c)?;
    match shape.len() {
        0 | 1 => Ok(swapped(&shape, 0, 0)),
        2 => Ok(swapped(&shape, 0, 1)),
        n => Err(OpError::shape(format!(
            "t() expects a tensor with <= 2 dimensions, but self is {n}D"
        ))),
    }
}

fn numpy_t(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<DimView> {
    let shape = self_shape(c)?;
    let dims: Vec<usize> = (0..shape.len()).rev().collect();
    Ok(DimView::permute(&shape, &dims))
}

fn m_t(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<DimView> {
    let shape = self_shape(c)?;
    match shape.len() {
        0 => Ok(swapped(&shape, 0, 0)),
        1 => Err(OpError::shape(
            "tensor.mT is only supported on matrices or batches of matrices. Got 1-D tensor.",
        )),
        n => Ok(swapped(&shape, n - 2, n - 1)),
    }
}

fn movedim(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<DimView> {
    let shape = self_shape(c)?;
    let (from, to) = (c.ints("source")?, c.ints("destination")?);
    if from.len() != to.len() {
        return Err(OpError::shape(format!(
            "movedim: Invalid source or destination dims: source ({from:?} dims) should contain the same number of dims as \
             destination ({to:?} dims)"
        )));
    }
    let wrap = |v: &[i64]| {
        v.iter()
            .map(|&d| wrap_dim(d, shape.len()))
            .collect::<OpResult<Vec<_>>>()
    };
    let (from, to) = (wrap(&from)?, wrap(&to)?);
    for (what, v) in [("source", &from), ("destination", &to)] {
        if (0..v.len()).any(|i| v[..i].contains(&v[i])) {
            return Err(OpError::shape(format!("movedim: repeated dim in `{what}` ({v:?})")));
        }
    }
    let mut rest = (0..shape.len()).filter(|d| !from.contains(d));
    let place = |i: usize| to.iter().position(|&t| t == i).map(|k| from[k]);
    let dims: Vec<usize> = (0..shape.len())
        .filter_map(|i| place(i).or_else(|| rest.next()))
        .collect();
    Ok(DimView::permute(&shape, &dims))
}

fn flip(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<DimView> {
    let shape = self_shape(c)?;
    let mut map: Vec<DimIndex> = (0..shape.len()).map(DimIndex::dim).collect();
    let mut seen = vec![];
    for d in c.ints("dims")? {
        let d = wrap_dim(d, shape.len())?;
        if seen.contains(&d) {
            return Err(OpError::shape(format!(
                "dim {d} appears multiple times in the list of dims"
            )));
        }
        seen.push(d);
        if d < shape.len() {
            map[d] = DimIndex {
                offset: shape[d].sub(&Dim::Const(1)),
                terms: vec![(d, -1)],
            };
        }
    }
    Ok(DimView {
        shape,
        map: DimMap::Affine(map),
    })
}

/// A bound of a slice within `0..=size`, counted from the front. Where sizes are symbolic, a bound counts as within the
/// dim (torch's exporter makes that a guard), except that a constant end of a symbolic dim is cut off.
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

/// `start..end` with step along `dim` of `shape`, as the first index and the number of elements.
pub(super) fn slice_range(size: &Dim, start: Option<&Dim>, end: Option<&Dim>, step: i64) -> OpResult<(Dim, Dim)> {
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

/// The view that takes `len` elements from `first` in steps along `dim`.
pub(super) fn sliced(shape: &[Dim], dim: usize, first: Dim, len: Dim, step: i64) -> DimView {
    let mut map: Vec<DimIndex> = (0..shape.len()).map(DimIndex::dim).collect();
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

pub(super) fn slice(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<DimView> {
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
    Ok(sliced(&shape, dim, first, len, c.int("step")?))
}

/// The one size given for the parameter `name`.
pub(super) fn one_dim(c: &Call<TensorType>, name: &str) -> OpResult<Dim> {
    Ok(c.dims(name)?.into_iter().next().unwrap_or(Dim::Unknown))
}

pub(super) fn select(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<DimView> {
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
            std::cmp::Ordering::Less => DimIndex::dim(d),
            std::cmp::Ordering::Equal => DimIndex::at(index.clone()),
            std::cmp::Ordering::Greater => DimIndex::dim(d - 1),
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
    Ok(sliced(&shape, dim, start, length, 1))
}

pub(super) fn diagonal(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<DimView> {
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
    let offset = c.int("offset")?;
    let (skip_a, skip_b) = (offset.saturating_neg().max(0), offset.max(0));
    let (na, nb) = (shape[a].sub(&Dim::Const(skip_a)), shape[b].sub(&Dim::Const(skip_b)));
    // Without an offset sizes are not negative anyway.
    let len = match offset {
        0 => na.min_of(&nb),
        _ => na.min_of(&nb).max_of(&Dim::Const(0)),
    };
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
            map.push(DimIndex::dim(out.len()));
            out.push(size.clone());
        }
    }
    out.push(len);
    Ok(DimView {
        shape: out,
        map: DimMap::Affine(map),
    })
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
    let mut map: Vec<DimIndex> = (0..rank).map(DimIndex::dim).collect();
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

pub(super) fn as_strided(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<DimView> {
    let (size, strides) = (c.dims("size")?, c.dims("stride")?);
    if size.len() != strides.len() {
        return Err(OpError::shape("mismatch in length of strides and shape"));
    }
    let offset = if c.is_none("storage_offset") {
        Dim::Const(0)
    } else {
        one_dim(c, "storage_offset")?
    };
    if strides.iter().filter_map(Dim::as_const).any(|s| s < 0) {
        return Err(OpError::shape(format!(
            "as_strided: Negative strides are not supported at the moment, got strides: {}",
            list_text(&strides)
        )));
    }
    let numel = c.leaf("self")?.numel();
    let last = size
        .iter()
        .zip(&strides)
        .fold(offset.clone(), |a, (n, s)| a.add(&n.sub(&Dim::Const(1)).mul(s)));
    let empty = size.contains(&Dim::Const(0));
    let negative = size.iter().chain([&offset]).filter_map(Dim::as_const).any(|x| x < 0);
    let outside = matches!((last.as_const(), numel.as_const()), (Some(l), Some(n)) if l >= n);
    let item = c.leaf("self")?.dtype.size() as i64;
    if negative || (outside && !empty) {
        return Err(OpError::shape(format!(
            "setStorage: sizes {}, strides {}, storage offset {offset}, and itemsize {item} requiring a storage size of {} are out \
             of bounds for storage of size {}",
            list_text(&size),
            list_text(&strides),
            last.add(&Dim::Const(1)).mul(&Dim::Const(item)),
            numel.mul(&Dim::Const(item))
        )));
    }
    Ok(DimView {
        shape: size,
        map: DimMap::Strided { offset, strides },
    })
}

/// The view that stretches `old` to `size`, in which -1 keeps a size.
fn expanded(dtype: DType, old: &[Dim], size: &[Dim], sizes: &mut Sizes) -> OpResult<DimView> {
    let Some(lead) = size.len().checked_sub(old.len()) else {
        return Err(OpError::shape(format!(
            "expand(torch.{}Tensor{{{}}}, size={}): the number of sizes provided ({}) must be greater or equal to the number \
             of dimensions in the tensor ({})",
            dtype.scalar_type_name(),
            list_text(old),
            list_text(size),
            size.len(),
            old.len()
        )));
    };
    let mut shape = vec![];
    let mut map = vec![];
    for (i, want) in size.iter().enumerate() {
        let Some(have) = i.checked_sub(lead).map(|j| &old[j]) else {
            if want.as_const().is_some_and(|c| c < 0) {
                return Err(OpError::shape(format!(
                    "The expanded size of the tensor ({want}) isn't allowed in a leading, non-existing dimension {i}"
                )));
            }
            shape.push(want.clone());
            continue;
        };
        let one = *have == Dim::Const(1);
        if *want == Dim::Const(-1) || want == have {
            shape.push(have.clone());
            map.push(if one {
                DimIndex::at(Dim::Const(0))
            } else {
                DimIndex::dim(i)
            });
        } else if one {
            shape.push(want.clone());
            map.push(DimIndex::at(Dim::Const(0)));
        } else {
            let both = sizes.equal(want, have, || {
                format!(
                    "The expanded size of the tensor ({want}) must match the existing size ({have}) at non-singleton \
                     dimension {i}.  Target sizes: {}.  Tensor sizes: {}",
                    list_text(size),
                    list_text(old)
                )
            })?;
            shape.push(both);
            map.push(DimIndex::dim(i));
        }
    }
    Ok(DimView {
        shape,
        map: DimMap::Affine(map),
    })
}

fn expand(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<DimView> {
    expanded(c.leaf("self")?.dtype, &self_shape(c)?, &c.dims("size")?, s)
}

fn expand_as(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<DimView> {
    expanded(c.leaf("self")?.dtype, &self_shape(c)?, c.shaped("other")?.1, s)
}
