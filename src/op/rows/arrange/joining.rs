//! Ops that join several tensors into one.

use crate::op::emit::{dims_val, ints_val, list_val};
use crate::op::rows::dense::zeros;
use crate::op::rows::spell::list_text;
use crate::op::{Build, Call, Meaning, Op, OpBuilder, OpError, OpId, OpResult, Sizes, Traced, wrap_dim};
use crate::tensor::{Tensor, copy_rows};
use crate::types::{DType, Dim, Promotion, TensorType, Type, Val, result_type};

pub(crate) fn rows() -> Vec<Op> {
    [joining_rows(), of_least_rank(), stack_rows(), grid_rows()]
        .into_iter()
        .flatten()
        .collect()
}

fn joining_rows() -> Vec<Op> {
    vec![
        Op::new("cat(Tensor[] tensors, int dim=0) -> Tensor",
            cat_type,
            Meaning::Routine(cat),
        )
        .same_elements()
        .doc("the concatenation of tensors along a dim")
        .spelled("aten.@ aten.concat.default aten.concatenate.default torch.@ torch.concat torch.concatenate",
        ),
        Op::composite("pad_sequence(Tensor[] sequences, bool batch_first=False, float padding_value=0., str padding_side='right') -> Tensor",
            pad_sequence,
        )
        .doc("sequences of different lengths in one tensor, padded to the longest")
        .spelled("aten.@ torch.nn.utils.rnn.@"),
        Op::composite("stack(Tensor[] tensors, int dim=0) -> Tensor", stack)
            .same_elements()
            .doc("tensors stacked along a new dim")
            .spelled("aten.@ torch.@"),
    ]
}

fn of_least_rank() -> Vec<Op> {
    vec![
        Op::composite("atleast_1d_all(Tensor[] tensors) -> Tensor[]", |b, c| {
            map_tensors(b, c, OpId::Atleast1d)
        })
        .doc("each tensor with at least one dim")
        .aliasing()
        .spelled("aten.atleast_1d.Sequence torch.atleast_1d"),
        Op::composite("atleast_2d_all(Tensor[] tensors) -> Tensor[]", |b, c| {
            map_tensors(b, c, OpId::Atleast2d)
        })
        .doc("each tensor with at least two dims")
        .aliasing()
        .spelled("aten.atleast_2d.Sequence torch.atleast_2d"),
        Op::composite("atleast_3d_all(Tensor[] tensors) -> Tensor[]", |b, c| {
            map_tensors(b, c, OpId::Atleast3d)
        })
        .doc("each tensor with at least three dims")
        .aliasing()
        .spelled("aten.atleast_3d.Sequence torch.atleast_3d"),
    ]
}

fn stack_rows() -> Vec<Op> {
    vec![
        Op::composite("hstack(Tensor[] tensors) -> Tensor", |b, c| {
            side_by_side(b, c, OpId::Atleast1d, 1)
        })
        .doc("the concatenation of tensors along dim 1 (dim 0 for vectors)")
        .spelled("aten.@ torch.@"),
        Op::composite("vstack(Tensor[] tensors) -> Tensor", |b, c| {
            side_by_side(b, c, OpId::Atleast2d, 0)
        })
        .doc("tensors stacked vertically, with vectors as rows")
        .spelled("aten.@ torch.@ aten.row_stack.default torch.row_stack"),
        Op::composite("dstack(Tensor[] tensors) -> Tensor", |b, c| {
            side_by_side(b, c, OpId::Atleast3d, 2)
        })
        .doc("the concatenation of tensors along dim 2")
        .spelled("aten.@ torch.@"),
        Op::composite("column_stack(Tensor[] tensors) -> Tensor", column_stack)
            .doc("vectors as columns and matrices, concatenated horizontally")
            .spelled("aten.@ torch.@"),
    ]
}

fn grid_rows() -> Vec<Op> {
    vec![
        Op::composite(
            "meshgrid(Tensor[] tensors, *, str? indexing=None) -> Tensor[]",
            meshgrid,
        )
        .doc("coordinate grids from coordinate vectors")
        .aliasing()
        .spelled("aten.@.indexing aten.@ torch.@ torch.functional.@"),
        Op::composite("broadcast_tensors(Tensor[] tensors) -> Tensor[]", broadcast_tensors)
            .doc("tensors expanded to their common shape")
            .aliasing()
            .spelled("aten.@ torch.@ torch.functional.@"),
        Op::composite("cartesian_prod(Tensor[] tensors) -> Tensor", cartesian_prod)
            .aliasing()
            .doc("all combinations of elements of vectors, as rows")
            .spelled("aten.@ torch.@ torch.functional.@"),
    ]
}

/// torch still accepts `[0]` in a list of tensors of any rank.
fn is_legacy_empty(shape: &[Dim]) -> bool {
    matches!(shape, [Dim::Const(0)])
}

fn cat_type(c: &Call<TensorType>, sizes: &mut Sizes) -> OpResult<Type> {
    let tensors = c.leaves("tensors")?;
    if tensors.is_empty() {
        return Err(OpError::shape("torch.cat(): expected a non-empty list of Tensors"));
    }
    let promotions = tensors.iter().map(|t| match t.rank() {
        Some(0) => Promotion::ZeroDim(t.dtype),
        _ => Promotion::Dimensioned(t.dtype),
    });
    let dtype = result_type(promotions).ok_or_else(|| OpError::dtype("cat: these dtypes have no common dtype"))?;
    let mut shapes = vec![];
    for (i, t) in tensors.iter().enumerate() {
        let Some(s) = t.shape.as_deref() else {
            return Ok(Val::Leaf(TensorType { dtype, shape: None }));
        };
        if s.is_empty() {
            return Err(OpError::shape(format!(
                "zero-dimensional tensor (at position {i}) cannot be concatenated"
            )));
        }
        shapes.push((i, s));
    }
    shapes.retain(|(_, s)| !is_legacy_empty(s));
    let shape = match shapes.first() {
        Some((_, first)) => concatenated_shape(&shapes, wrap_dim(c.int("dim")?, first.len())?, sizes)?,
        None => vec![Dim::Const(0)],
    };
    Ok(Val::Leaf(TensorType::new(dtype, shape)))
}

/// The shape of the tensors, each with its position in the list, after concatenation along `dim`.
fn concatenated_shape(shapes: &[(usize, &[Dim])], dim: usize, sizes: &mut Sizes) -> OpResult<Vec<Dim>> {
    let mut out = shapes[0].1.to_vec();
    for &(n, s) in &shapes[1..] {
        if s.len() != out.len() {
            return Err(OpError::shape(format!(
                "Tensors must have same number of dimensions: got {} and {}",
                out.len(),
                s.len()
            )));
        }
        for d in 0..s.len() {
            out[d] = if d == dim {
                out[d].add(&s[d])
            } else {
                let want = out[d].clone();
                sizes.unify_dims(&want, &s[d], || {
                    format!(
                        "Sizes of tensors must match except in dimension {dim}. Expected size {want} but got size {} for tensor \
                         number {n} in the list.",
                        s[d]
                    )
                })?
            };
        }
    }
    Ok(out)
}

fn cat(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let ty = cat_type(&c.types(), &mut Sizes::default())?;
    let ty = ty
        .as_leaf()
        .cloned()
        .ok_or_else(|| OpError::arg("tensors", "cat takes tensors"))?;
    let shape = ty.fixed_shape().unwrap_or_default();
    let mut out = zeros(ty.dtype, &shape)?;
    let dim = wrap_dim(c.int("dim")?, shape.len())?;
    let tensors: Vec<Tensor> = c.leaves("tensors")?.iter().map(|t| t.to(ty.dtype)).collect();
    let inner: usize = shape[dim + 1..].iter().product::<usize>() * ty.dtype.size();
    let row = shape[dim] * inner;
    let dst = out.bytes_mut();
    let mut offset = 0;
    for t in &tensors {
        let run = t.shape().get(dim).map_or(0, |n| n * inner);
        if t.rank() == shape.len() && t.numel() > 0 {
            copy_runs(&mut dst[offset..], row, t.bytes(), run);
            offset += run;
        }
    }
    Ok(Val::Leaf(out))
}

/// Copies the runs of `from`, each to the beginning of a row.
fn copy_runs(to: &mut [u8], row: usize, from: &[u8], run: usize) {
    match run {
        // The halves of bytes of a large weight are joined one by one, which must not take a call for each.
        1 => to.iter_mut().step_by(row).zip(from).for_each(|(to, from)| *to = *from),
        _ => {
            let rows = to.chunks_mut(row).zip(from.chunks_exact(run));
            copy_rows(run, rows.map(|(to, from)| (from, &mut to[..run])));
        }
    }
}

fn tensor_args(c: &Call<Traced>) -> OpResult<Vec<Traced>> {
    Ok(c.leaves("tensors")?.into_iter().cloned().collect())
}

fn pad_sequence(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let sequences = c.leaves("sequences")?;
    let left = match c.str("padding_side")? {
        "left" => true,
        "right" => false,
        side => {
            return Err(OpError::arg(
                "padding_side",
                format!("Expected padding_side to be one of left or right, but got {side}."),
            ));
        }
    };
    let known = |t: &Traced| {
        let length = t.size(0)?.as_const();
        length.ok_or_else(|| OpError::shape("pad_sequence requires known lengths"))
    };
    let lengths = sequences.iter().map(|t| known(t)).collect::<OpResult<Vec<i64>>>()?;
    let longest = lengths.iter().copied().max();
    let longest = longest.ok_or_else(|| OpError::arg("sequences", "received an empty list of sequences"))?;
    let mut padded = vec![];
    for (t, n) in sequences.into_iter().zip(lengths) {
        let mut pad = vec![0; 2 * t.rank()? - 2];
        pad.extend(if left { [longest - n, 0] } else { [0, longest - n] });
        let value = c.get("padding_value").clone();
        padded.push(b.op(OpId::ConstantPadNd, [t.into(), ints_val(&pad), value])?);
    }
    let dim = if c.bool("batch_first")? { 0 } else { 1 };
    b.op(OpId::Stack, [list_val(&padded), Val::int(dim)]).map(Val::Leaf)
}

fn stack(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let v = tensor_args(c)?;
    let Some(first) = v.first() else {
        return Err(OpError::shape("stack expects a non-empty TensorList"));
    };
    let dim = wrap_dim(c.int("dim")?, first.rank()? + 1)?;
    for (i, t) in v.iter().enumerate() {
        let (p, q) = (first.shape()?, t.shape()?);
        let differ = p
            .iter()
            .zip(q)
            .any(|(a, b)| a.sub(b).as_const().is_some_and(|d| d != 0));
        if p.len() != q.len() || differ {
            return Err(OpError::shape(format!(
                "stack expects each tensor to be equal size, but got {} at entry 0 and {} at entry {i}",
                list_text(p),
                list_text(q)
            )));
        }
    }
    let wide = v.iter().map(|t| b.unsqueeze(t, dim)).collect::<OpResult<Vec<_>>>()?;
    b.cat(&wide, dim).map(Val::Leaf)
}

/// Applies a unary op to each tensor of a list.
fn map_tensors(b: &mut dyn Build, c: &Call<Traced>, op: OpId) -> OpResult<Val<Traced>> {
    let tensors = c.leaves("tensors")?;
    let all = tensors.iter().map(|t| b.unary(op, t).map(Val::Leaf));
    all.collect::<OpResult<Vec<_>>>().map(Val::Tuple)
}

fn side_by_side(b: &mut dyn Build, c: &Call<Traced>, lift: OpId, dim: usize) -> OpResult<Val<Traced>> {
    let v = tensor_args(c)?;
    let lifted = v.iter().map(|t| b.unary(lift, t)).collect::<OpResult<Vec<_>>>()?;
    let dim = match lifted.first().map(|t| t.rank()) {
        Some(rank) => dim.min(rank?.saturating_sub(1)),
        None => return Err(OpError::shape(format!("{} expects a non-empty TensorList", c.op.name))),
    };
    b.cat(&lifted, dim).map(Val::Leaf)
}

fn column_stack(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let v = tensor_args(c)?;
    let columns = v.iter().map(|t| match t.rank()? {
        0 | 1 => b.reshape(t, &[t.ty.numel(), Dim::Const(1)]),
        _ => Ok(t.clone()),
    });
    let columns = columns.collect::<OpResult<Vec<_>>>()?;
    b.call(OpId::Hstack, vec![list_val(&columns)])
}

fn meshgrid(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let mut v = tensor_args(c)?;
    if v.is_empty() {
        return Err(OpError::shape("meshgrid expects a non-empty TensorList"));
    }
    let xy = match c.get("indexing").as_str() {
        None | Some("ij") => false,
        Some("xy") => true,
        Some(s) => {
            return Err(OpError::arg(
                "indexing",
                format!("torch.meshgrid: indexing must be one of \"xy\" or \"ij\", but received: {s}"),
            ));
        }
    };
    let swap = xy && v.len() >= 2;
    if swap {
        v.swap(0, 1);
    }
    let shape = v.iter().map(grid_size).collect::<OpResult<Vec<Dim>>>()?;
    let mut out = vec![];
    for (i, t) in v.iter().enumerate() {
        let mut sizes = vec![Dim::Const(1); shape.len()];
        sizes[i] = shape[i].clone();
        let t = b.reshape(t, &sizes)?;
        out.push(b.op(OpId::Expand, [t.into(), dims_val(&shape)])?);
    }
    if swap {
        out.swap(0, 1);
    }
    Ok(list_val(&out))
}

/// The size of the grid along the dim of `t`.
fn grid_size(t: &Traced) -> OpResult<Dim> {
    match t.shape()? {
        [] => Ok(Dim::Const(1)),
        [n] => Ok(n.clone()),
        s => Err(OpError::shape(format!(
            "torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {}D",
            s.len()
        ))),
    }
}

fn broadcast_tensors(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let v = tensor_args(c)?;
    let mut shape = vec![];
    let mut sizes = Sizes::default();
    for t in &v {
        shape = sizes.broadcast(&shape, t.shape()?)?;
    }
    let out = v.iter().map(|t| b.expand(t, &shape)).collect::<OpResult<Vec<_>>>()?;
    Ok(list_val(&out))
}

fn cartesian_prod(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let v = tensor_args(c)?;
    if let [single] = &v[..] {
        return Ok(single.into());
    }
    let grid = b.call_many(OpId::Meshgrid, [list_val(&v), Val::str("ij")])?;
    let flat = grid.iter().map(|t| b.ravel(t)).collect::<OpResult<Vec<_>>>()?;
    b.call(OpId::Stack, vec![list_val(&flat), Val::int(1)])
}

/// A 1-dim i64 tensor of constants.
pub(in crate::op::rows) fn constant_indices(b: &mut dyn Build, v: &[i64]) -> OpResult<Traced> {
    if v.is_empty() {
        return b.full(&[Dim::Const(0)], Val::int(0), DType::I64);
    }
    // Consecutive numbers are an arange.
    if v.windows(2).all(|w| w[1] == w[0] + 1) {
        let (start, end) = (v[0], v[v.len() - 1] + 1);
        return b.op(
            OpId::Arange,
            [Val::int(start), Val::int(end), Val::int(1), Val::DType(DType::I64)],
        );
    }
    let parts = v.iter().map(|&i| b.full(&[Dim::Const(1)], Val::int(i), DType::I64));
    let parts = parts.collect::<OpResult<Vec<_>>>()?;
    b.cat(&parts, 0)
}
