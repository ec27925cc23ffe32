//! Ops that split a tensor into a list of slices.

use crate::op::emit::list_val;
use crate::op::rows::spell::list_text;
use crate::op::{Build, Call, Op, OpError, OpResult, Traced, wrap_dim};
use crate::types::{Dim, Val};

pub(super) fn rows() -> Vec<Op> {
    [split_rows(), even_split_rows(), along_named_dims()]
        .into_iter()
        .flatten()
        .collect()
}

/// Pieces of given sizes along a dim.
fn split_rows() -> Vec<Op> {
    vec![
        Op::composite("split(Tensor self, SymInt split_size, int dim=0) -> Tensor[]", split)
            .same_elements()
            .doc("pieces of `split_size` elements along a dim; the last may be smaller")
            .spelled(
                "aten.split.Tensor torch.split Tensor.split torch.functional.split aten.unsafe_split.Tensor \
                 torch.unsafe_split Tensor.unsafe_split aten.split_copy.Tensor torch.split_copy",
            )
            .aliasing(),
        Op::composite(
            "split_with_sizes(Tensor self, SymInt[] split_sizes, int dim=0) -> Tensor[]",
            split_with_sizes,
        )
        .same_elements()
        .doc("pieces of the given sizes along a dim")
        .spelled(
            "aten.split_with_sizes.default aten.unsafe_split_with_sizes.default aten.split_with_sizes_copy.default \
             torch.split_with_sizes Tensor.split_with_sizes torch.split_with_sizes_copy torch.unsafe_split_with_sizes \
             Tensor.unsafe_split_with_sizes",
        )
        .form(
            "aten.split.sizes aten.split.default torch.split Tensor.split torch.functional.split",
            "split(Tensor self, SymInt[] split_sizes, int dim=0) -> Tensor[]",
        )
        .aliasing(),
    ]
}

/// A given number of pieces along a dim, all slices, or pieces between indices.
fn even_split_rows() -> Vec<Op> {
    vec![
        Op::composite("chunk(Tensor self, int chunks, int dim=0) -> Tensor[]", chunk)
            .same_elements()
            .doc("at most `chunks` pieces of equal size along a dim; the last may be smaller")
            .spelled("aten.@ aten.unsafe_chunk.default torch.@ Tensor.@ torch.unsafe_chunk Tensor.unsafe_chunk")
            .aliasing(),
        Op::composite("unbind(Tensor self, int dim=0) -> Tensor[]", unbind)
            .same_elements()
            .doc("the slices at every index of a dim")
            .spelled("aten.@.int aten.@_copy.int torch.@_copy torch.@ Tensor.@")
            .aliasing(),
        Op::composite("tensor_split(Tensor self, SymInt sections, int dim=0) -> Tensor[]",
            tensor_split,
        )
        .doc("`sections` pieces whose sizes differ by at most one")
        .spelled("aten.@.sections aten.@.tensor_indices_or_sections torch.@ Tensor.@")
        .aliasing(),
        Op::composite("tensor_split_at(Tensor self, SymInt[] indices, int dim=0) -> Tensor[]",
            tensor_split_at,
        )
        .doc("the pieces between the given indices")
        .spelled("aten.tensor_split.indices aten.tensor_split.tensor_indices_or_sections torch.tensor_split Tensor.tensor_split")
        .aliasing(),
    ]
}

fn along_named_dims() -> Vec<Op> {
    vec![
        aliasing_row(
            "hsplit",
            "hsplit(Tensor self, Any indices_or_sections) -> Tensor[]",
            |b, c| side_split(b, c, 1),
        )
        .doc("tensor_split along dim 1 (dim 0 for a vector)")
        .spelled("aten.@.int aten.@.array torch.@ Tensor.@")
        .form("Tensor.hsplit", "hsplit(Tensor self, int[] indices) -> Tensor[]"),
        aliasing_row(
            "vsplit",
            "vsplit(Tensor self, Any indices_or_sections) -> Tensor[]",
            |b, c| side_split(b, c, 0),
        )
        .doc("tensor_split along dim 0")
        .spelled("aten.@.int aten.@.array torch.@ Tensor.@")
        .form("Tensor.vsplit", "vsplit(Tensor self, int[] indices) -> Tensor[]"),
        aliasing_row(
            "dsplit",
            "dsplit(Tensor self, Any indices_or_sections) -> Tensor[]",
            |b, c| side_split(b, c, 2),
        )
        .doc("tensor_split along dim 2")
        .spelled("aten.@.int aten.@.array torch.@ Tensor.@")
        .form("Tensor.dsplit", "dsplit(Tensor self, int[] indices) -> Tensor[]"),
    ]
}

fn aliasing_row(name: &'static str, schema: &'static str, f: crate::op::Decompose) -> Op {
    Op::composite((name, schema), f).aliasing()
}

/// The operand, the dim and its size.
fn split_operand(c: &Call<Traced>, op: &str) -> OpResult<(Traced, usize, Dim)> {
    let x = c.leaf("self")?.clone();
    let rank = x.rank()?;
    if rank == 0 {
        return Err(OpError::shape(format!("{op} expects at least a 1-dimensional tensor")));
    }
    let dim = wrap_dim(c.int("dim")?, rank)?;
    let size = x.shape()?[dim].clone();
    Ok((x, dim, size))
}

/// The size of a dim that determines the number of results and must therefore be known.
fn known_size(size: &Dim, op: &str) -> OpResult<i64> {
    size.as_const().ok_or_else(|| {
        OpError::new(
            crate::diag::Code::E0304,
            format!("{op}: the number of results depends on the size {size}"),
        )
        .help("make this size constant, or specify the sizes of the pieces")
    })
}

/// The maximum number of tensors that one call may return.
const MOST: i64 = 1 << 20;

/// The number of tensors that a call returns; an error if it exceeds the limit.
fn check_count(count: i64, op: &str) -> OpResult<i64> {
    match count <= MOST {
        true => Ok(count),
        false => Err(OpError::shape(format!("{op} would return {count} tensors"))),
    }
}

/// The slices between consecutive bounds.
fn slices_between(b: &mut dyn Build, x: &Traced, dim: usize, bounds: &[Dim]) -> OpResult<Val<Traced>> {
    let parts = bounds
        .windows(2)
        .map(|w| b.slice(x, dim, w[0].clone(), w[1].clone(), 1));
    Ok(list_val(&parts.collect::<OpResult<Vec<_>>>()?))
}

/// Pieces of `piece` elements; at least one piece.
fn equal_pieces(b: &mut dyn Build, x: &Traced, dim: usize, size: &Dim, piece: i64) -> OpResult<Val<Traced>> {
    let n = known_size(size, "split")?;
    if piece == 0 && n != 0 {
        return Err(OpError::shape(format!(
            "split_size can only be 0 if dimension size is 0, but got dimension size of {n}"
        )));
    }
    let count = if piece == 0 {
        1
    } else {
        check_count((n.saturating_sub(1).max(0) / piece).saturating_add(1), "split")?
    };
    let bounds: Vec<Dim> = (0..=count)
        .map(|i| Dim::Const((i.saturating_mul(piece)).min(n)))
        .collect();
    slices_between(b, x, dim, &bounds)
}

fn split(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, dim, size) = split_operand(c, "split")?;
    let want = c.dims("split_size")?.into_iter().next().unwrap_or(Dim::Unknown);
    // Symbolic sizes can be divided: `[2*N]` split by `N` gives two pieces.
    if want.as_const().is_none() {
        let count = check_count(known_size(&size.floordiv(&want), "split")?, "split")?;
        let bounds: Vec<Dim> = (0..=count).map(|i| want.mul(&Dim::Const(i))).collect();
        return slices_between(b, &x, dim, &bounds);
    }
    let piece = c.int("split_size")?;
    if piece < 0 {
        return Err(OpError::shape(format!(
            "split expects split_size be non-negative, but got split_size={piece}"
        )));
    }
    equal_pieces(b, &x, dim, &size, piece)
}

fn split_with_sizes(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, dim, size) = split_operand(c, "split_with_sizes")?;
    let sizes = c.dims("split_sizes")?;
    let mut bounds = vec![Dim::Const(0)];
    for s in &sizes {
        if s.as_const().is_some_and(|s| s < 0) {
            return Err(OpError::shape(format!(
                "split_with_sizes expects split_sizes have only non-negative entries, but got split_sizes={}",
                list_text(&sizes)
            )));
        }
        let end = bounds[bounds.len() - 1].add(s);
        bounds.push(end);
    }
    let total = &bounds[bounds.len() - 1];
    if total.sub(&size).as_const().is_some_and(|d| d != 0) {
        return Err(OpError::shape(format!(
            "split_with_sizes expects split_sizes to sum exactly to {size} (input tensor's size at dimension {dim}), but got \
             split_sizes={}",
            list_text(&sizes)
        )));
    }
    slices_between(b, &x, dim, &bounds)
}

fn chunk(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, dim, size) = split_operand(c, "chunk")?;
    let chunks = c.int("chunks")?;
    if chunks <= 0 {
        return Err(OpError::shape(format!(
            "chunk expects `chunks` to be greater than 0, got: {chunks}"
        )));
    }
    let least = size.as_const().filter(|&n| n > 0).unwrap_or(chunks);
    check_count(chunks.min(least), "chunk")?;
    let piece = size.add(&Dim::Const(chunks - 1)).floordiv(&Dim::Const(chunks));
    let Some(n) = size.as_const() else {
        // A symbolic size that is a multiple of `chunks` gives `chunks` pieces.
        let each = size
            .exact_div(&Dim::Const(chunks))
            .ok_or_else(|| known_size(&size, "chunk").unwrap_err())?;
        let bounds: Vec<Dim> = (0..=chunks).map(|i| each.mul(&Dim::Const(i))).collect();
        return slices_between(b, &x, dim, &bounds);
    };
    if n == 0 {
        let bounds = vec![Dim::Const(0); chunks as usize + 1];
        return slices_between(b, &x, dim, &bounds);
    }
    equal_pieces(b, &x, dim, &size, piece.as_const().unwrap_or(1))
}

fn unbind(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("self")?;
    if x.rank()? == 0 {
        return Err(OpError::shape("Dimension specified as 0 but tensor has no dimensions"));
    }
    let dim = wrap_dim(c.int("dim")?, x.rank()?)?;
    let n = check_count(known_size(&x.shape()?[dim], "unbind")?, "unbind")?;
    let parts = (0..n).map(|i| b.select(x, dim, Dim::Const(i)));
    Ok(list_val(&parts.collect::<OpResult<Vec<_>>>()?))
}

/// Bounds of `sections` pieces whose sizes differ by at most one.
fn even_bounds(size: &Dim, sections: i64) -> OpResult<Vec<Dim>> {
    if sections <= 0 {
        return Err(OpError::shape(format!(
            "number of sections must be larger than 0, got {sections}"
        )));
    }
    check_count(sections, "tensor_split")?;
    if let Some(each) = size.exact_div(&Dim::Const(sections)) {
        return Ok((0..=sections).map(|i| each.mul(&Dim::Const(i))).collect());
    }
    let n = known_size(size, "tensor_split")?;
    let (each, larger) = (n / sections, n % sections);
    Ok((0..=sections).map(|i| Dim::Const(i * each + i.min(larger))).collect())
}

fn tensor_split(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, dim, size) = split_operand(c, "tensor_split")?;
    let bounds = even_bounds(&size, c.int("sections")?)?;
    slices_between(b, &x, dim, &bounds)
}

fn split_at(b: &mut dyn Build, x: &Traced, dim: usize, size: &Dim, ends: &[Dim]) -> OpResult<Val<Traced>> {
    let mut parts = vec![];
    let mut start = Dim::Const(0);
    for end in ends {
        parts.push(b.slice(x, dim, start, end.clone(), 1)?);
        start = end.clone();
    }
    parts.push(b.slice(x, dim, start, size.clone(), 1)?);
    Ok(list_val(&parts))
}

fn tensor_split_at(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, dim, size) = split_operand(c, "tensor_split")?;
    split_at(b, &x, dim, &size, &c.dims("indices")?)
}

fn side_split(b: &mut dyn Build, c: &Call<Traced>, axis: usize) -> OpResult<Val<Traced>> {
    let x = c.leaf("self")?;
    let rank = x.rank()?;
    let need = [2, 1, 3][axis];
    if rank < need {
        return Err(OpError::shape(format!(
            "torch.{} requires a tensor with at least {need} dimension, but got a tensor with {rank} dimensions!",
            c.op.name
        )));
    }
    let dim = if rank == 1 { 0 } else { axis };
    let size = x.shape()?[dim].clone();
    let sections_or_indices = c.get("indices_or_sections");
    if sections_or_indices.items().is_some() {
        return split_at(b, x, dim, &size, &c.dims("indices_or_sections")?);
    }
    let sections = c.int("indices_or_sections")?;
    if sections <= 0 || size.as_const().is_some_and(|n| n % sections != 0) {
        return Err(OpError::shape(format!(
            "torch.{} attempted to split along dimension {dim}, but the size of the dimension {size} is not divisible by the \
             split_size {sections}!",
            c.op.name
        )));
    }
    let bounds = even_bounds(&size, sections)?;
    slices_between(b, x, dim, &bounds)
}
