//! Ops that move elements by composing several views: rolling, repeating, shuffling.

mod repeats;

use self::repeats::{repeat_index_rows, repeat_rows};
use crate::op::emit::ints_val;
use crate::op::rows::spell::list_text;
use crate::op::{Build, Call, Op, OpBuilder, OpError, OpId, OpResult, Traced, wrap_dim};
use crate::types::{Dim, Val};

pub(super) fn rows() -> Vec<Op> {
    let mut v = vec![
        Op::composite("roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor", roll)
            .doc("elements shifted cyclically along dims")
            .spelled("aten.@ torch.@ Tensor.@"),
        Op::composite("rot90(Tensor self, int k=1, int[] dims=[0, 1]) -> Tensor", rot90)
            .doc("a rotation by k quarter turns in the plane of two dims")
            .spelled("aten.@ torch.@ Tensor.@"),
    ];
    v.extend(repeat_rows());
    v.extend(repeat_index_rows());
    v.extend(shuffle_rows());
    v.extend(diagonal_rows());
    v.extend(trace_rows());
    v
}

fn shuffle_rows() -> Vec<Op> {
    vec![
        Op::composite(
            "pixel_shuffle(Tensor self, int upscale_factor) -> Tensor",
            pixel_shuffle,
        )
        .doc("channels rearranged into blocks of pixels")
        .spelled("aten.@ torch.@ torch.nn.functional.@")
        .module("PixelShuffle(upscale_factor) = pixel_shuffle(input, upscale_factor)"),
        Op::composite(
            "pixel_unshuffle(Tensor self, int downscale_factor) -> Tensor",
            pixel_unshuffle,
        )
        .doc("blocks of pixels rearranged into channels")
        .spelled("aten.@ torch.@ torch.nn.functional.@")
        .module("PixelUnshuffle(downscale_factor) = pixel_unshuffle(input, downscale_factor)"),
        Op::composite("channel_shuffle(Tensor self, SymInt groups) -> Tensor", channel_shuffle)
            .doc("channels interleaved across groups")
            .spelled(
                "aten.channel_shuffle.default torch.channel_shuffle torch.nn.functional.channel_shuffle \
                 aten.native_channel_shuffle.default torch.native_channel_shuffle",
            )
            .module("ChannelShuffle(groups) = channel_shuffle(input, groups)"),
    ]
}

fn diagonal_rows() -> Vec<Op> {
    vec![
        Op::composite(
            "diag_embed(Tensor self, int offset=0, int dim1=-2, int dim2=-1) -> Tensor",
            |b, c| diag_embed(b, c.leaf("self")?, c.int("offset")?, c.int("dim1")?, c.int("dim2")?).map(Val::Leaf),
        )
        .doc("matrices with the last dim as their diagonal and zeros elsewhere")
        .spelled("aten.@ torch.@ Tensor.@"),
        Op::composite("diag(Tensor self, int diagonal=0) -> Tensor", |b, c| {
            let x = c.leaf("self")?;
            let k = c.get("diagonal").clone();
            match x.rank()? {
                1 => diag_embed(b, x, c.int("diagonal")?, 0, 1),
                2 => {
                    let view = b.op(OpId::Diagonal, [x.into(), k])?;
                    b.clone(&view)
                }
                n => return Err(OpError::shape(format!("diag(): Supports 1D or 2D tensors. Got {n}D"))),
            }
            .map(Val::Leaf)
        })
        .doc("the diagonal of a matrix, or a matrix with a vector as its diagonal")
        .spelled("aten.@ torch.@ Tensor.@"),
        Op::composite("diagflat(Tensor self, int offset=0) -> Tensor", |b, c| {
            let flat = b.ravel(c.leaf("self")?)?;
            diag_embed(b, &flat, c.int("offset")?, 0, 1).map(Val::Leaf)
        })
        .doc("a matrix with all elements as its diagonal")
        .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

fn trace_rows() -> Vec<Op> {
    vec![
        Op::composite("trace(Tensor self) -> Tensor", |b, c| {
            let x = c.leaf("self")?;
            if x.rank()? != 2 {
                return Err(OpError::shape("trace: expected a matrix"));
            }
            let d = b.diagonal(x)?;
            b.reduce(OpId::Sum, &d, &[0], false).map(Val::Leaf)
        })
        .doc("the sum of a matrix's diagonal")
        .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

fn roll(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("self")?;
    let (shifts, dims) = (c.dims("shifts")?, c.ints("dims")?);
    if shifts.is_empty() {
        return Err(OpError::shape("`shifts` required"));
    }
    if dims.is_empty() && shifts.len() == 1 {
        let flat = b.ravel(x)?;
        let flat = roll_dim(b, &flat, 0, &shifts[0])?;
        let rolled = b.reshape(&flat, x.shape()?)?;
        return b.clone(rolled).map(Val::Leaf);
    }
    if shifts.len() != dims.len() {
        return Err(OpError::shape(format!(
            "shifts and dimensions must align. shifts: {}, dims:{}",
            shifts.len(),
            dims.len()
        )));
    }
    let mut x = x.clone();
    for (s, &d) in shifts.iter().zip(&dims) {
        let d = wrap_dim(d, x.rank()?)?;
        if x.rank()? == 0 {
            return Err(OpError::shape(format!(
                "Dimension specified as {d} but tensor has no dimensions"
            )));
        }
        x = roll_dim(b, &x, d, s)?;
    }
    b.clone(x).map(Val::Leaf)
}

/// Rolls a dim by swapping two slices.
fn roll_dim(b: &mut dyn Build, x: &Traced, dim: usize, shift: &Dim) -> OpResult<Traced> {
    let n = x.shape()?[dim].clone();
    if n == Dim::Const(0) {
        return Ok(x.clone());
    }
    // The last `shift` elements come first, then the first `n - shift`.
    let cut = match (n.as_const(), shift.as_const()) {
        (Some(n), Some(s)) => Dim::Const((-s).rem_euclid(n)),
        (None, Some(s)) if s >= 0 => n.sub(&Dim::Const(s)),
        (None, Some(s)) => Dim::Const(-s),
        _ => n.sub(shift).modulo(&n),
    };
    if cut == Dim::Const(0) {
        return Ok(x.clone());
    }
    let tail = b.slice(x, dim, cut.clone(), n, 1)?;
    let head = b.slice(x, dim, Dim::Const(0), cut, 1)?;
    b.cat(&[tail, head], dim)
}

fn rot90(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("self")?;
    let rank = x.rank()?;
    let dims = c.ints("dims")?;
    let [p, q] = dims[..] else {
        return Err(OpError::shape(format!(
            "expected total rotation dims == 2, but got dims = {}",
            dims.len()
        )));
    };
    if rank < 2 {
        return Err(OpError::shape(format!(
            "expected total dims >= 2, but got total dims = {rank}"
        )));
    }
    let (p, q) = (wrap_dim(p, rank)?, wrap_dim(q, rank)?);
    if p == q {
        return Err(OpError::shape("expected rotation dims to be different"));
    }
    let flip = |b: &mut dyn Build, x: &Traced, d: &[i64]| b.flip(x, ints_val(d));
    let (pi, qi) = (p as i64, q as i64);
    match c.int("k")?.rem_euclid(4) {
        1 => {
            let y = flip(b, x, &[qi])?;
            b.transpose(&y, p, q)
        }
        2 => flip(b, x, &[pi, qi]),
        3 => {
            let y = flip(b, x, &[pi])?;
            b.transpose(&y, p, q)
        }
        _ => b.clone(x),
    }
    .map(Val::Leaf)
}

/// Splits a shape into the last three dims and those before them.
fn split_image(x: &Traced, op: &str) -> OpResult<(Vec<Dim>, [Dim; 3])> {
    match x.shape()? {
        [lead @ .., c, h, w] => Ok((lead.to_vec(), [c.clone(), h.clone(), w.clone()])),
        s => Err(OpError::shape(format!(
            "{op} expects input to have at least 3 dimensions, but got input with {} dimension(s)",
            s.len()
        ))),
    }
}

fn pixel_shuffle(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("self")?;
    let r = c.int("upscale_factor")?;
    if r <= 0 {
        return Err(OpError::shape(format!(
            "pixel_shuffle expects a positive upscale_factor, but got {r}"
        )));
    }
    let (lead, [ch, h, w]) = split_image(x, "pixel_shuffle")?;
    let square = r
        .checked_mul(r)
        .ok_or_else(|| OpError::shape("upscale factor is too large"))?;
    if ch.as_const().is_some_and(|n| n % square != 0) {
        return Err(OpError::shape(format!(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, but \
             input.size(-3)={ch} is not divisible by {square}"
        )));
    }
    let (k, out_c) = (Dim::Const(r), ch.floordiv(&Dim::Const(square)));
    let y = b.reshape(
        x,
        &[&lead[..], &[out_c.clone(), k.clone(), k.clone(), h.clone(), w.clone()]].concat(),
    )?;
    let n = lead.len();
    let order: Vec<usize> = (0..n).chain([n, n + 3, n + 1, n + 4, n + 2]).collect();
    let y = b.permute(&y, &order)?;
    let y = b.reshape(&y, &[&lead[..], &[out_c, h.mul(&k), w.mul(&k)]].concat())?;
    match r {
        // The other factors have copied.
        1 => b.clone(y).map(Val::Leaf),
        _ => Ok(y.into()),
    }
}

fn pixel_unshuffle(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("self")?;
    let r = c.int("downscale_factor")?;
    if r <= 0 {
        return Err(OpError::shape(format!(
            "pixel_unshuffle expects a positive downscale_factor, but got {r}"
        )));
    }
    let (lead, [ch, h, w]) = split_image(x, "pixel_unshuffle")?;
    let k = Dim::Const(r);
    for (name, dim, d) in [("height", -2, &h), ("width", -1, &w)] {
        if d.as_const().is_some_and(|n| n % r != 0) {
            return Err(OpError::shape(format!(
                "pixel_unshuffle expects {name} to be divisible by downscale_factor, but input.size({dim})={d} is not divisible \
                 by {r}"
            )));
        }
    }
    let (oh, ow) = (h.floordiv(&k), w.floordiv(&k));
    let y = b.reshape(
        x,
        &[&lead[..], &[ch.clone(), oh.clone(), k.clone(), ow.clone(), k.clone()]].concat(),
    )?;
    let n = lead.len();
    let order: Vec<usize> = (0..n).chain([n, n + 2, n + 4, n + 1, n + 3]).collect();
    let y = b.permute(&y, &order)?;
    let y = b.reshape(&y, &[&lead[..], &[ch.mul(&k).mul(&k), oh, ow]].concat())?;
    match r {
        // The other factors have copied.
        1 => b.clone(y).map(Val::Leaf),
        _ => Ok(y.into()),
    }
}

fn channel_shuffle(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("self")?;
    let g = c.int("groups")?;
    let shape = x.shape()?.to_vec();
    if shape.len() < 3 {
        return Err(OpError::shape(format!(
            "channel_shuffle expects input with > 2 dims, but got input with sizes {}",
            list_text(&shape)
        )));
    }
    if g <= 0 || shape[1].as_const().is_some_and(|n| n % g != 0) {
        return Err(OpError::shape(format!(
            "Number of channels must be divisible by groups. Got {} channels and {g} groups.",
            shape[1]
        )));
    }
    let (n, k) = (shape[0].clone(), Dim::Const(g));
    let y = b.reshape(x, &[&[n, k.clone(), shape[1].floordiv(&k)], &shape[2..]].concat())?;
    let y = b.transpose(&y, 1, 2)?;
    b.reshape(&y, &shape).map(Val::Leaf)
}

fn diag_embed(b: &mut dyn Build, x: &Traced, offset: i64, dim1: i64, dim2: i64) -> OpResult<Traced> {
    let rank = x.rank()? + 1;
    let (p, q) = (wrap_dim(dim1, rank)?, wrap_dim(dim2, rank)?);
    if p == q || rank < 2 {
        return Err(OpError::shape(format!(
            "diagonal dimensions cannot be identical {dim1}, {dim2}"
        )));
    }
    let (n, lead) = x
        .shape()?
        .split_last()
        .ok_or_else(|| OpError::shape("diag_embed requires at least one dim"))?;
    let side = n.add(&Dim::Const(offset.saturating_abs()));
    let mut shape = lead.to_vec();
    for d in [p.min(q), p.max(q)] {
        shape.insert(d, side.clone());
    }
    let zeros = b.full(&shape, Val::int(0), x.dtype())?;
    let args = [
        zeros.into(),
        x.into(),
        Val::int(offset),
        Val::int(p as i64),
        Val::int(q as i64),
    ];
    b.op(OpId::DiagonalScatter, args)
}
