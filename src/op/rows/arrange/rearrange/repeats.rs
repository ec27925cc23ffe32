//! Repeated tensors and elements.

use crate::op::emit::dims_val;
use crate::op::rows::spell::list_text;
use crate::op::{Build, Call, Meaning, Op, OpBuilder, OpError, OpId, OpResult, Traced, wrap_dim};
use crate::tensor::Tensor;
use crate::types::{DType, Dim, TensorType, Val};

pub(super) fn repeat_rows() -> Vec<Op> {
    vec![
        Op::composite("repeat(Tensor self, SymInt[] repeats) -> Tensor", |b, c| {
            repeat(b, c.leaf("self")?, &c.dims("repeats")?, false)
        })
        .doc("the whole tensor repeated along every dim")
        .spelled("aten.@ Tensor.@"),
        Op::composite("tile(Tensor self, SymInt[] dims) -> Tensor", |b, c| {
            repeat(b, c.leaf("self")?, &c.dims("dims")?, true)
        })
        .doc("the whole tensor repeated along the last dims")
        .spelled("aten.@ torch.@ Tensor.@"),
        Op::composite(
            "repeat_interleave(Tensor self, SymInt repeats, int? dim=None, *, SymInt? output_size=None) -> Tensor",
            repeat_interleave,
        )
        .doc("every element (or slice along a dim) repeated consecutively")
        .spelled("aten.@.self_int torch.@ Tensor.@"),
        Op::composite(
            "repeat_interleave_by(Tensor self, Tensor repeats, int? dim=None, *, SymInt? output_size=None) -> Tensor",
            repeat_interleave_by,
        )
        .doc("every element (or slice along a dim) repeated by the counts in a tensor")
        .spelled("aten.repeat_interleave.self_Tensor torch.repeat_interleave Tensor.repeat_interleave"),
    ]
}

pub(super) fn repeat_index_rows() -> Vec<Op> {
    vec![
        Op::new(
            "repeat_indices(Tensor repeats, *, SymInt? output_size=None) -> Tensor",
            |c, _| {
                let (d, shape) = c.shaped("repeats")?;
                if shape.len() != 1 {
                    return Err(OpError::shape("repeat_interleave only accept 1D vector as repeat"));
                }
                if !matches!(d, DType::I64 | DType::I32) {
                    return Err(OpError::dtype("repeats has to be Long or Int tensor"));
                }
                let n = if c.is_none("output_size") {
                    Dim::Unknown
                } else {
                    c.dims("output_size")?[0].clone()
                };
                Ok(Val::Leaf(TensorType::new(d, vec![n])))
            },
            Meaning::Routine(repeat_indices),
        )
        .doc("the index of every element, repeated by the element's value")
        .spelled("aten.repeat_interleave.Tensor torch.repeat_interleave"),
    ]
}

/// Repeats by inserting a dim before each dim, expanding it, and merging the two.
fn repeat(b: &mut dyn Build, x: &Traced, times: &[Dim], tile: bool) -> OpResult<Val<Traced>> {
    let shape = x.shape()?.to_vec();
    let one = Dim::Const(1);
    let mut times = times.to_vec();
    if tile {
        while times.len() < shape.len() {
            times.insert(0, one.clone());
        }
    }
    let Some(lead) = times.len().checked_sub(shape.len()) else {
        return Err(OpError::shape(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor",
        ));
    };
    let whole: Vec<Dim> = times
        .iter()
        .enumerate()
        .map(|(i, t)| i.checked_sub(lead).map_or(t.clone(), |j| t.mul(&shape[j])))
        .collect();
    if let Some(bad) = whole.iter().find(|d| d.as_const().is_some_and(|d| d < 0)) {
        return Err(OpError::shape(format!(
            "Trying to create tensor with negative dimension {bad}: {}",
            list_text(&whole)
        )));
    }
    let (mut split, mut repeated, mut out) = (vec![], vec![], vec![]);
    for (i, t) in times.iter().enumerate() {
        let n = i.checked_sub(lead).map_or(one.clone(), |j| shape[j].clone());
        split.extend([one.clone(), n.clone()]);
        repeated.extend([t.clone(), n.clone()]);
        out.push(t.mul(&n));
    }
    let y = b.reshape(x, &split)?;
    expand_and_copy(b, &y, &repeated, &out)
}

/// Expands `y` to `wide` and copies it to memory of its own, with shape `out`.
fn expand_and_copy(b: &mut dyn Build, y: &Traced, wide: &[Dim], out: &[Dim]) -> OpResult<Val<Traced>> {
    let y = b.op(OpId::Expand, [y.into(), dims_val(wide)])?;
    let y = b.op(OpId::Reshape, [y.into(), dims_val(out)])?;
    b.op(
        OpId::Clone,
        [y.into(), Val::TorchName("torch.contiguous_format".into())],
    )
    .map(Val::Leaf)
}

fn repeat_interleave(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let times = c.dims("repeats")?[0].clone();
    if times.as_const().is_some_and(|t| t < 0) {
        return Err(OpError::shape("Repeats must be non-negative"));
    }
    let (x, dim) = match c.opt_int("dim")? {
        None => (b.ravel(c.leaf("self")?)?, 0),
        Some(d) => (c.leaf("self")?.clone(), wrap_dim(d, c.leaf("self")?.rank()?)?),
    };
    let x = if x.rank()? == 0 { b.unsqueeze(&x, 0)? } else { x };
    let mut out = x.shape()?.to_vec();
    let y = b.unsqueeze(&x, dim + 1)?;
    let mut wide = y.shape()?.to_vec();
    wide[dim + 1] = times.clone();
    out[dim] = out[dim].mul(&times);
    if !c.is_none("output_size") {
        let given = &c.dims("output_size")?[0];
        if given.sub(&out[dim]).as_const().is_some_and(|d| d != 0) {
            return Err(OpError::shape(format!(
                "repeat_interleave: Invalid output_size, expected {} but got {given}",
                out[dim]
            )));
        }
    }
    expand_and_copy(b, &y, &wide, &out)
}

fn repeat_interleave_by(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, dim) = match c.opt_int("dim")? {
        None => (b.ravel(c.leaf("self")?)?, 0),
        Some(d) => (c.leaf("self")?.clone(), wrap_dim(d, c.leaf("self")?.rank()?)?),
    };
    let repeats = c.leaf("repeats")?;
    let n = x.shape()?.get(dim).cloned().unwrap_or(Dim::Const(1));
    let repeats = match repeats.shape()? {
        [] => {
            let r = b.unsqueeze(repeats, 0)?;
            b.expand(&r, &[n])?
        }
        [Dim::Const(1)] => b.expand(repeats, &[n])?,
        [k] if k.sub(&n).as_const().is_none_or(|d| d == 0) => repeats.clone(),
        [k] => {
            return Err(OpError::shape(format!(
                "repeats must have the same size as input along dim, but got repeats.size(0) = {k} and input.size({dim}) = {n}"
            )));
        }
        _ => return Err(OpError::shape("repeats must be 0-dim or 1-dim tensor")),
    };
    let indices = b.op(OpId::RepeatIndices, [repeats.into(), c.get("output_size").clone()])?;
    b.index_select(x, Val::int(dim as i64), indices).map(Val::Leaf)
}

fn repeat_indices(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let r = c.leaf("repeats")?;
    let mut out: Vec<i64> = vec![];
    for (i, &n) in r.to(DType::I64).as_slice::<i64>().iter().enumerate() {
        if n < 0 {
            return Err(OpError::value("repeats can not be negative"));
        }
        if out.len() as i64 + n > isize::MAX as i64 / 16 {
            return Err(OpError::shape("the result of repeat_interleave is too large"));
        }
        out.extend(std::iter::repeat_n(i as i64, n as usize));
    }
    if c.opt_int("output_size")?.is_some_and(|n| n != out.len() as i64) {
        return Err(OpError::value("allocated size does not match required size"));
    }
    Ok(Val::Leaf(Tensor::from_slice(&[out.len()], &out).to(r.dtype())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_the_result_must_be_the_given_one() {
        let indices = |repeats: &[i64], size: Val<Tensor>| {
            let op = crate::op::by_name("repeat_indices").expect("a row");
            let args = vec![Val::Leaf(Tensor::from_slice(&[repeats.len()], repeats)), size];
            let value = repeat_indices(&Call { op, args });
            value.map(|v| v.as_leaf().expect("a tensor").as_slice::<i64>().to_vec())
        };
        for size in [Val::None, Val::int(5)] {
            assert_eq!(indices(&[2, 3], size).unwrap(), [0, 0, 1, 1, 1]);
        }
        assert!(indices(&[0, 0], Val::int(0)).unwrap().is_empty());
        for (repeats, size) in [(&[2, 3][..], 4), (&[2, 3], 6), (&[2, 3], 0), (&[0], 1)] {
            let e = indices(repeats, Val::int(size)).unwrap_err();
            assert_eq!(e.title, "allocated size does not match required size");
        }
    }
}
