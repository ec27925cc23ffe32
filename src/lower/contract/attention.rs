//! Lowers calls of attention to one step.

use super::{Contract, broadcast_to, unsigned_strides};
use crate::lower::ir::same_dim;
use crate::lower::ir::{Attend, Def, Special, Tir, ValueId};
use crate::math::contract::{Attention, AttentionMask};
use crate::op::{Call, IndexMap, OpId, OpResult};
use crate::program::BufferOperand;
use crate::types::{DType, TensorType};

/// Builds the step. `out` is the result's shape in the layout that `options` specifies.
pub(in crate::lower) fn attention_step(
    operands: &[BufferOperand],
    dtype: DType,
    options: &Attend,
    out: &[usize],
) -> Contract {
    let (q, k, v) = (&operands[0], &operands[1], &operands[2]);
    let strides = crate::tensor::contiguous_strides(out);
    let full = [q.shape[0], q.shape[1], q.shape[2], k.shape[2]];
    let added: Vec<BufferOperand> = operands[3..].iter().map(|o| broadcast_to(o, &full)).collect();
    let mut rest = added.iter();
    let [mask, bias] = options.masks.map(|dtype| Some(describe_mask(dtype?, rest.next()?)));
    let [batch, heads, queries, keys] = full;
    let desc = Attention {
        dtype,
        batch,
        heads,
        kv_heads: k.shape[1],
        queries,
        keys,
        size: q.shape[3],
        value_size: v.shape[3],
        q: leading_strides(q),
        k: leading_strides(k),
        v: leading_strides(v),
        out: match options.rows_first {
            true => [strides[0], strides[2], strides[1]],
            false => [strides[0], strides[1], strides[2]],
        },
        bias,
        mask,
        safe: options.safe,
        causal: options.causal,
        scale: options.scale,
        skips_hidden: false,
    };
    let operands = [q.clone(), k.clone(), v.clone()].into_iter().chain(added).collect();
    Contract::Attention(Box::new(desc), operands)
}

fn describe_mask(dtype: DType, mask: &BufferOperand) -> AttentionMask {
    let s = unsigned_strides(mask);
    AttentionMask {
        dtype,
        strides: [s[0], s[1], s[2], s[3]],
    }
}

/// The strides of the first three dims; 0 for dims of size 1.
fn leading_strides(o: &BufferOperand) -> [usize; 3] {
    std::array::from_fn(|d| match o.shape[d] {
        1 => 0,
        _ => o.strides[d].max(0) as usize,
    })
}

/// Recognises `scaled_dot_product_attention` and `biased_attention` that can run as one step: rank 3 or 4, equal batch
/// sizes, no dropout.
pub(in crate::lower) fn recognise_attention(
    tir: &mut Tir,
    types: &Call<TensorType>,
    ids: &Call<ValueId>,
) -> OpResult<Option<ValueId>> {
    let biased = types.op.is(OpId::BiasedAttention);
    let (dtype, q) = types.fixed_type("query")?;
    let (_, k) = types.fixed_type("key")?;
    let (_, v) = types.fixed_type("value")?;
    let rank = q.len();
    let dropped = !biased && ids.f64("dropout_p")? != 0.0;
    let shares_heads = !biased && ids.bool("enable_gqa")?;
    let float = matches!(dtype, DType::F32 | DType::F64 | DType::F16 | DType::BF16);
    // Dropout draws random numbers between the two products.
    if dropped || !float || !fits_one_step([&q, &k, &v], shares_heads) {
        return Ok(None);
    }
    let scores = [&q[..rank - 1], &k[rank - 2..rank - 1]].concat();
    let names: &[&str] = if biased { &["mask", "bias"] } else { &["attn_mask"] };
    let Some(args) = push_operands(tir, ids, names, &scores, dtype)? else {
        return Ok(None);
    };
    let options = Attend {
        masks: [3, 4].map(|i| args.get(i).map(|&m| tir.value(m).dtype)),
        causal: !biased && ids.bool("is_causal")?,
        scale: match ids.get("scale") {
            s if s.is_none() => 1.0 / (q[rank - 1] as f64).sqrt(),
            _ => ids.f64("scale")?,
        },
        safe: !biased || ids.bool("safe")?,
        rows_first: tir.users_swap_dims_1_2 && rank == 4,
    };
    let result: Vec<usize> = [&q[..rank - 1], &v[rank - 1..]].concat();
    push_attention(tir, dtype, result, args, options).map(Some)
}

/// Query, key, value and the masks of these names, with four dims each; `None` if the step cannot read a mask. `scores` is the
/// shape that masks broadcast to.
fn push_operands(
    tir: &mut Tir,
    ids: &Call<ValueId>,
    masks: &[&str],
    scores: &[usize],
    dtype: DType,
) -> OpResult<Option<Vec<ValueId>>> {
    let mut operands = vec![];
    for name in ["query", "key", "value"] {
        operands.push(four_dims(tir, *ids.leaf(name)?)?);
    }
    for m in masks.iter().filter_map(|name| ids.opt_leaf(name)) {
        match four_of_mask(tir, *m, scores, dtype)? {
            Some(m) => operands.push(m),
            None => return Ok(None),
        }
    }
    Ok(Some(operands))
}

/// Whether one step computes attention of these shapes: rank 3 or 4, equal batch sizes, no empty dims. With
/// `shares_heads`, several heads of the query may share one of the key.
fn fits_one_step([q, k, v]: [&[usize]; 3], shares_heads: bool) -> bool {
    let rank = q.len();
    let same = (3..=4).contains(&rank) && k.len() == rank && v.len() == rank && k[..rank - 1] == v[..rank - 1];
    if !same || [q, k, v].iter().any(|s| s.contains(&0)) {
        return false;
    }
    q[0] == k[0] && (rank == 3 || q[1] == k[1] || (shares_heads && q[1].is_multiple_of(k[1])))
}

/// Pushes the attention's value and a view of it in torch's order.
fn push_attention(
    tir: &mut Tir,
    dtype: DType,
    result: Vec<usize>,
    args: Vec<ValueId>,
    options: Attend,
) -> OpResult<ValueId> {
    let mut out = result.clone();
    out.splice(0..0, vec![1; 4 - out.len()]);
    if options.rows_first {
        out.swap(1, 2);
    }
    let def = Def::Special {
        args,
        special: Special::Attention(options),
    };
    let y = tir.push(dtype, &out, def)?;
    if !options.rows_first {
        return tir.view(y, IndexMap::Reshape, &result);
    }
    tir.view(y, IndexMap::Affine([0, 2, 1, 3].map(same_dim).to_vec()), &result)
}

/// The mask as a view of rank 4, for scores of shape `full`; `None` if it has another dtype or does not broadcast.
fn four_of_mask(tir: &mut Tir, m: ValueId, full: &[usize], dtype: DType) -> OpResult<Option<ValueId>> {
    let (mt, ms) = (tir.value(m).dtype, tir.value(m).shape.clone());
    let skip = full.len().checked_sub(ms.len());
    let fits = skip.is_some_and(|skip| ms.iter().enumerate().all(|(d, &s)| s == 1 || s == full[d + skip]));
    if !fits || (mt != DType::B8 && mt != dtype) {
        return Ok(None);
    }
    // At rank 3 the heads are the first dim: align the mask with the four dims.
    let mut shape = vec![1; full.len() - ms.len()];
    shape.extend(&ms);
    shape.splice(0..0, vec![1; 4 - shape.len()]);
    tir.view(m, IndexMap::Reshape, &shape).map(Some)
}

/// `v` with four dims. Its last dim is contiguous and no stride is negative.
fn four_dims(tir: &mut Tir, v: ValueId) -> OpResult<ValueId> {
    let mut shape = tir.value(v).shape.clone();
    shape.splice(0..0, vec![1; 4 - shape.len()]);
    let v = tir.view(v, IndexMap::Reshape, &shape)?;
    let good = tir.access(v).is_some_and(|a| {
        let ok = |(&s, &d): (&i64, &usize)| s >= 0 || d == 1;
        (a.strides[3] == 1 || shape[3] == 1) && a.strides.iter().zip(&shape).all(ok)
    });
    if good { Ok(v) } else { tir.copy(v) }
}
