//! Splitting numbers and tensors, joining blocks, comparing whole tensors, and masked reads.

mod frexp;
mod spaced;

use self::spaced::by_tensors;
use crate::op::IndexLimit;
use crate::op::emit::ints_val;
use crate::op::rows::dense::zeros;
use crate::op::rows::index::combine::{Cell, with_cell};
use crate::op::rows::pointwise::assertions::ambiguous_truth;
use crate::op::{Build, Call, Meaning, Op, OpBuilder, OpError, OpId, OpResult, Sizes, Traced, wrap_dim};
use crate::tensor::{Tensor, with_wide_vectors};
use crate::types::{DType, Dim, ScalarKind, TensorType, Type, Val, promote_types};

pub(super) fn rows() -> Vec<Op> {
    [
        whole_tensor_rows(),
        taken_apart(),
        by_tensors(),
        masked_index_rows(),
        renorm_rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Comparisons of whole tensors that return a single Python bool.
fn whole_tensor_rows() -> Vec<Op> {
    vec![
        Op::new(
            "equal(Tensor self, Tensor other) -> bool",
            equal_type,
            Meaning::Routine(equal),
        )
        .doc("whether two tensors have the same shape and elements")
        .spelled("aten.@ torch.@ Tensor.@"),
        Op::composite(
            "allclose(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False) -> bool",
            |b, c| {
                let near = b.op(OpId::Isclose, c.args.clone())?;
                all_of(b, &near)
            },
        )
        .doc("whether all elements are close to each other")
        .spelled("aten.@ torch.@ Tensor.@"),
        Op::composite("is_nonzero(Tensor self) -> bool", |b, c| {
            let x = c.leaf("self")?;
            if let Some(n) = x.ty.numel().as_const().filter(|n| *n != 1) {
                return Err(ambiguous_truth(n as usize));
            }
            let hit = b.ne(x, Val::int(0))?;
            all_of(b, &hit)
        })
        .doc("whether the only element is nonzero")
        .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

fn all_of(b: &mut dyn Build, x: &Traced) -> OpResult<Val<Traced>> {
    let all = b.all(x)?;
    b.call(OpId::Item, vec![all.into()])
}

fn equal_type(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<Type> {
    let ((_, x), (_, y)) = (c.shaped("self")?, c.shaped("other")?);
    let differs = |(p, q): (&Dim, &Dim)| p.sub(q).as_const().is_some_and(|d| d != 0);
    Ok(match x.len() != y.len() || x.iter().zip(y).any(differs) {
        true => Val::Bool(false),
        false => Val::Any(ScalarKind::Bool),
    })
}

fn equal(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (x, y) = (c.leaf("self")?, c.leaf("other")?);
    let common = promote_types(x.dtype(), y.dtype()).filter(|_| x.shape() == y.shape());
    let Some(common) = common else {
        return Ok(Val::Bool(false));
    };
    let (x, y) = (x.to(common), y.to(common));
    Ok(Val::Bool(with_cell!(common, T => {
        are_equal(x.as_slice::<T>(), y.as_slice::<T>())
    }, else (0..x.numel()).all(|i| x.get(i) == y.get(i)))))
}

fn are_equal<T: Cell>(x: &[T], y: &[T]) -> bool {
    // All pairs of a part are compared, in vectors.
    const PART: usize = 1024;
    let same = |x: &[T], y: &[T]| with_wide_vectors(|| x.iter().zip(y).fold(true, |all, (p, q)| all & (p == q)));
    x.chunks(PART).zip(y.chunks(PART)).all(|(x, y)| same(x, y))
}

fn combinations_type(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<Type> {
    let (d, x) = c.shaped("self")?;
    let [n] = x else {
        return Err(OpError::shape(format!(
            "Expect a 1D vector, but got shape {:?}",
            c.leaf("self")?
        )));
    };
    let r = c.int("r")?;
    if r < 0 {
        return Err(OpError::arg("r", format!("Expect a non-negative number, but got {r}")));
    }
    if r == 0 {
        return Ok(Val::Leaf(TensorType::new(d, vec![Dim::Const(0)])));
    }
    let rows = match n.as_const() {
        Some(n) => Dim::Const(count_choices(n, r, c.bool("with_replacement")?)?),
        None => Dim::Unknown,
    };
    Ok(Val::Leaf(TensorType::new(d, vec![rows, Dim::Const(r)])))
}

fn taken_apart() -> Vec<Op> {
    vec![
        frexp::row(),
        Op::new(
            "combinations(Tensor self, int r=2, bool with_replacement=False) -> Tensor",
            combinations_type,
            Meaning::Routine(combinations),
        )
        .doc("all combinations of r elements, in order")
        .spelled("aten.@ torch.@"),
        Op::composite(
            "_chunk_cat(Tensor[] tensors, int dim, int num_chunks) -> Tensor",
            chunk_cat,
        )
        .doc("tensors split into chunks (the last one zero-padded), with corresponding chunks concatenated")
        .spelled("aten.@ torch.@"),
    ]
}

/// The number of choices of `r` out of `n`, with repetition if `again`.
fn count_choices(n: i64, r: i64, again: bool) -> OpResult<i64> {
    let n = if again && n > 0 { n.saturating_add(r - 1) } else { n };
    if n < r {
        return Ok(0);
    }
    let mut count: i64 = 1;
    // It equals the number of choices of the elements left out, which may be fewer.
    for k in 0..r.min(n - r) {
        let next = count.checked_mul(n - k).filter(|&c| c < 1 << 40);
        count = next.ok_or_else(|| OpError::shape("combinations: too many combinations"))? / (k + 1);
    }
    Ok(count)
}

fn combinations(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (x, r) = (c.leaf("self")?, c.int("r")? as usize);
    let again = c.bool("with_replacement")?;
    if r == 0 {
        return zeros(x.dtype(), &[0]).map(Val::Leaf);
    }
    let rows = count_choices(x.numel() as i64, r as i64, again)? as usize;
    let mut out = zeros(x.dtype(), &[rows, r])?;
    if rows == 0 {
        return Ok(Val::Leaf(out));
    }
    let mut positions: Vec<usize> = (0..r).map(|k| if again { 0 } else { k }).collect();
    let size = x.dtype().size();
    let mut dst = out.bytes_mut().chunks_exact_mut(size);
    for _ in 0..rows {
        for (p, dst) in positions.iter().zip(&mut dst) {
            dst.copy_from_slice(&x.bytes()[p * size..][..size]);
        }
        // The last position that can still advance; the positions after it restart.
        let most = |k: usize| if again { x.numel() - 1 } else { x.numel() - r + k };
        let Some(k) = (0..r).rev().find(|&k| positions[k] < most(k)) else {
            break;
        };
        positions[k] += 1;
        (k + 1..r).for_each(|j| positions[j] = positions[j - 1] + !again as usize);
    }
    Ok(Val::Leaf(out))
}

fn chunk_cat(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let chunks = c.int("num_chunks")?;
    if chunks < 1 {
        return Err(OpError::arg("num_chunks", "_chunk_cat expects positive num_chunks"));
    }
    let mut parts = vec![];
    let mut dim = 0;
    for t in c.leaves("tensors")? {
        let shape = t.shape()?.to_vec();
        dim = wrap_dim(c.int("dim")?, shape.len())?;
        if shape.iter().any(|d| d.as_const() == Some(0)) {
            return Err(OpError::shape("_chunk_cat expects non-empty tensor"));
        }
        let Some(size) = shape.get(dim).and_then(|n| n.as_const()) else {
            return Err(OpError::shape("_chunk_cat expects tensors with known sizes"));
        };
        let missing = (chunks - size % chunks) % chunks;
        let filled = size.checked_add(missing);
        let filled = filled.ok_or_else(|| OpError::shape("_chunk_cat: the chunks are too large"))?;
        let mut pads = vec![0; 2 * (shape.len() - dim)];
        if let Some(last) = pads.last_mut() {
            *last = missing;
        }
        let padded = b.constant_pad_nd(t, ints_val(&pads))?;
        let rest = shape[dim + 1..]
            .iter()
            .fold(Dim::Const(filled / chunks), |p, d| p.mul(d));
        parts.push(b.reshape(&padded, &[&shape[..dim], &[Dim::Const(chunks), rest]].concat())?);
    }
    b.cat(&parts, dim + 1).map(Val::Leaf)
}

fn masked_index_rows() -> Vec<Op> {
    vec![
        Op::composite(
            "_unsafe_masked_index(Tensor self, Tensor mask, Tensor?[] indices, Scalar fill) -> Tensor",
            |b, c| {
                let (x, mask) = (c.leaf("self")?, c.leaf("mask")?);
                if x.ty.numel() == Dim::Const(0) {
                    let shape = index_shape(c, mask)?;
                    return b.full(&shape, c.get("fill").clone(), x.dtype()).map(Val::Leaf);
                }
                let places = clamp_indices(b, c, x)?;
                let out = b.index(x, places)?;
                let kept = b.logical_not(mask)?;
                b.masked_fill(out, kept, c.get("fill").clone()).map(Val::Leaf)
            },
        )
        .doc("elements at indices, or a fill value where the mask is false; there the indices are clamped")
        .spelled("aten.@ torch.@"),
        Op::composite(
            "_unsafe_masked_index_put_accumulate(Tensor self, Tensor mask, Tensor?[] indices, Tensor values) -> Tensor",
            |b, c| {
                let (x, mask) = (c.leaf("self")?, c.leaf("mask")?);
                if x.ty.numel() == Dim::Const(0) {
                    return b.clone(x).map(Val::Leaf);
                }
                let places = clamp_indices(b, c, x)?;
                let dropped = b.logical_not(mask)?;
                let values = b.masked_fill(c.get("values").clone(), dropped, Val::int(0))?;
                b.op(OpId::IndexPut, [x.into(), places, values.into(), Val::Bool(true)])
                    .map(Val::Leaf)
            },
        )
        .doc("a copy with values added at indices where the mask is true")
        .spelled("aten.@ torch.@"),
    ]
}

/// `embedding_renorm`.
fn renorm_rows() -> Vec<Op> {
    vec![
        Op::composite(
            "embedding_renorm(Tensor self, Tensor indices, float max_norm, float norm_type) -> Tensor",
            |b, c| {
                let (w, at) = (c.leaf("self")?, c.leaf("indices")?);
                let [rows, _] = w.shape()? else {
                    return Err(OpError::shape("embedding_renorm_: 'weight' must be 2-D"));
                };
                let limit = c.get("max_norm").clone();
                let norm = b.op(
                    OpId::LinalgVectorNorm,
                    [w.into(), c.get("norm_type").clone(), ints_val(&[1]), Val::Bool(true)],
                )?;
                let none = b.full(std::slice::from_ref(rows), Val::Bool(false), DType::B8)?;
                let flat = b.ravel(at)?;
                let used = b.index_fill(none, Val::int(0), flat, Val::Bool(true))?;
                let used = b.unsqueeze(&used, 1)?;
                let long = b.gt(&norm, limit.clone())?;
                let long = b.logical_and(&long, &used)?;
                let safe = b.add(&norm, Val::Float(1e-7))?;
                let scale = b.reciprocal(&safe)?;
                let scale = b.mul(&scale, limit)?;
                let scaled = b.mul(w, &scale)?;
                b.r#where(long, scaled, w).map(Val::Leaf)
            },
        )
        .doc("the tensor with the rows selected by indices scaled down to a maximum norm")
        .index_limits(&[("indices", IndexLimit::Rows("self"))])
        .spelled("aten.@")
        .inplace("aten.@_ torch.@_"),
    ]
}

/// The shape of an indexing result: the broadcast of the mask and the indices.
fn index_shape(c: &Call<Traced>, mask: &Traced) -> OpResult<Vec<Dim>> {
    let mut shape = mask.shape()?.to_vec();
    for v in c.get("indices").items().unwrap_or_default() {
        if let Some(t) = v.as_leaf() {
            shape = Sizes::default().broadcast(&shape, t.shape()?)?;
        }
    }
    Ok(shape)
}

/// The indices, clamped to the sizes of their dims.
fn clamp_indices(b: &mut dyn Build, c: &Call<Traced>, x: &Traced) -> OpResult<Val<Traced>> {
    let mut out = vec![];
    for (d, v) in c.get("indices").items().unwrap_or_default().iter().enumerate() {
        out.push(match (v.as_leaf(), x.shape()?.get(d)) {
            (Some(t), Some(n)) => {
                let last = Val::Int(n.sub(&Dim::Const(1)));
                b.op(OpId::Clamp, [t.into(), Val::Int(n.mul(&Dim::Const(-1))), last])?
                    .into()
            }
            _ => v.clone(),
        });
    }
    Ok(Val::List(out))
}
