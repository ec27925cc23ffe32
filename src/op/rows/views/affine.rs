//! Views with affine indices: permuting and expanding.

use super::{self_shape, view_op};
use crate::op::rows::spell::list_text;
use crate::op::view::{DimIndex, DimMap, DimView, view_type};
use crate::op::{Call, Meaning, MemoryOrder, Op, OpError, OpId, OpResult, Sizes, wrap_dim};
use crate::types::{DType, Dim, TensorType};

pub(super) fn rows() -> Vec<Op> {
    let mut v = permutation_rows();
    v.extend(transposition_rows());
    v.extend(flip_rows());
    v.extend(expand_rows());
    v
}

fn permutation_rows() -> Vec<Op> {
    vec![
        view_op!("permute(Tensor self, int[] dims) -> Tensor", permute)
            .doc("the dims permuted")
            .spelled("aten.@ aten.@_copy torch.@ torch.@_copy Tensor.@"),
        view_op!("transpose(Tensor self, int dim0, int dim1) -> Tensor",
            transpose
        )
        .doc("two dims swapped")
        .spelled(
            "aten.transpose.int aten.transpose_copy.int torch.transpose_copy torch.transpose Tensor.transpose aten.swapdims.default \
                 torch.swapdims Tensor.swapdims",
        )
        .form(
            "aten.swapaxes.default torch.swapaxes Tensor.swapaxes",
            "swapaxes(Tensor self, int dim0, int dim1) -> Tensor",
        )
        .inplace("aten.@_ Tensor.@_ aten.swapdims_.default Tensor.swapdims_")
        .inplace_form(
            "aten.swapaxes_.default Tensor.swapaxes_",
            "swapaxes(Tensor self, int dim0, int dim1) -> Tensor",
        ),
    ]
}

/// `t`, `numpy_T`, `mT` and `movedim`.
fn transposition_rows() -> Vec<Op> {
    vec![
        view_op!("t(Tensor self) -> Tensor", t)
            .doc("the transpose of a matrix; vectors and 0-d tensors are unchanged")
            .spelled("aten.@ aten.@_copy torch.@ torch.@_copy Tensor.@")
            .inplace("aten.@_ Tensor.@_"),
        view_op!("numpy_T(Tensor self) -> Tensor", numpy_t)
            .doc("all dims in reverse order: `x.T`")
            .spelled("aten.@"),
        view_op!("mT(Tensor self) -> Tensor", m_t)
            .doc("the last two dims swapped")
            .same_object(|c, _| c.args[0].as_leaf().is_some_and(|x| x.rank() == Some(0)))
            .spelled("aten.@ aten.mH.default aten.adjoint.default torch.adjoint Tensor.adjoint aten.matrix_H.default"),
        view_op!(
            "movedim(Tensor self, int[1] source, int[1] destination) -> Tensor",
            movedim
        )
        .doc("some dims moved to other positions")
        .spelled(
            "aten.movedim.int aten.movedim.intlist torch.movedim Tensor.movedim aten.moveaxis.int \
                 aten.moveaxis.intlist torch.moveaxis Tensor.moveaxis",
        ),
    ]
}

fn flip_rows() -> Vec<Op> {
    vec![
        view_op!("flip(Tensor self, int[] dims) -> Tensor", flip)
            .order(MemoryOrder::First)
            .doc("the elements in reverse order along the given dims")
            .spelled("aten.@ torch.@ Tensor.@")
            .form_with(
                "aten.fliplr.default torch.fliplr Tensor.fliplr",
                "fliplr(Tensor self) -> Tensor",
                &[("dims", crate::op::emit::ints_val(&[1]))],
            )
            .copies(),
        Op::composite("flipud(Tensor self) -> Tensor", |b, c| {
            let x = c.leaf("self")?;
            if x.rank()? == 0 {
                return Err(OpError::shape("Input must be >= 1-d."));
            }
            b.call(OpId::Flip, vec![x.into(), crate::op::emit::ints_val(&[0])])
        })
        .doc("the elements in reverse order along the first dim")
        .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

fn expand_rows() -> Vec<Op> {
    vec![
        view_op!(
            "expand(Tensor self, SymInt[] size, *, bool implicit=False) -> Tensor",
            expand
        )
        .doc("dims of size 1 expanded and new leading dims added; -1 keeps a size")
        .spelled("aten.@ aten.@_copy torch.@_copy Tensor.@")
        .form(
            "aten.broadcast_to.default torch.broadcast_to Tensor.broadcast_to",
            "broadcast_to(Tensor self, SymInt[] size) -> Tensor",
        ),
        view_op!("expand_as(Tensor self, Tensor other) -> Tensor", expand_as)
            .doc("the tensor expanded to the other tensor's shape")
            .spelled("aten.@ Tensor.@"),
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

fn transposed_view(shape: &[Dim], a: usize, b: usize) -> DimView {
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
    Ok(transposed_view(&shape, a, b))
}

fn t(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<DimView> {
    let shape = self_shape(c)?;
    match shape.len() {
        0 | 1 => Ok(transposed_view(&shape, 0, 0)),
        2 => Ok(transposed_view(&shape, 0, 1)),
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
        0 => Ok(transposed_view(&shape, 0, 0)),
        1 => Err(OpError::shape(
            "tensor.mT is only supported on matrices or batches of matrices. Got 1-D tensor.",
        )),
        n => Ok(transposed_view(&shape, n - 2, n - 1)),
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
    for (parameter, v) in [("source", &from), ("destination", &to)] {
        if (0..v.len()).any(|i| v[..i].contains(&v[i])) {
            return Err(OpError::shape(format!(
                "movedim: repeated dim in `{parameter}` ({v:?})"
            )));
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
    let mut map: Vec<DimIndex> = (0..shape.len()).map(DimIndex::along_dim).collect();
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

/// The view that expands `old` to `size`, where -1 keeps the old size.
fn expanded_view(dtype: DType, old: &[Dim], size: &[Dim], sizes: &mut Sizes) -> OpResult<DimView> {
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
    let negative = |d: &Dim| d.as_const().is_some_and(|c| c < 0);
    if let Some(i) = size[..lead].iter().position(negative) {
        return Err(OpError::shape(format!(
            "The expanded size of the tensor ({}) isn't allowed in a leading, non-existing dimension {i}",
            size[i]
        )));
    }
    let mut shape = size[..lead].to_vec();
    let mut map = vec![];
    for (i, have) in (lead..).zip(old) {
        shape.push(expanded_size(old, size, i, sizes)?);
        map.push(match have {
            Dim::Const(1) => DimIndex::constant(Dim::Const(0)),
            _ => DimIndex::along_dim(i),
        });
    }
    Ok(DimView {
        shape,
        map: DimMap::Affine(map),
    })
}

/// The size of dim `i` of `old` expanded to `size`.
fn expanded_size(old: &[Dim], size: &[Dim], i: usize, sizes: &mut Sizes) -> OpResult<Dim> {
    let (want, have) = (&size[i], &old[i + old.len() - size.len()]);
    if *want == Dim::Const(-1) {
        return Ok(have.clone());
    }
    if want == have || *have == Dim::Const(1) {
        return Ok(want.clone());
    }
    sizes.unify_dims(want, have, || {
        format!(
            "The expanded size of the tensor ({want}) must match the existing size ({have}) at non-singleton \
             dimension {i}.  Target sizes: {}.  Tensor sizes: {}",
            list_text(size),
            list_text(old)
        )
    })
}

fn expand(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<DimView> {
    expanded_view(c.leaf("self")?.dtype, &self_shape(c)?, &c.dims("size")?, s)
}

fn expand_as(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<DimView> {
    expanded_view(c.leaf("self")?.dtype, &self_shape(c)?, c.shaped("other")?.1, s)
}
