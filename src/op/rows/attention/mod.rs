//! Attention.

mod fused;
mod multihead;
mod transformer;

use crate::op::emit::dims_val;
use crate::op::rows::norms::softmax::{masked_rows, softmax};
use crate::op::rows::spell::list_text;
use crate::op::{Build, Call, Effect, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::types::{DType, Dim, Val};

pub(super) fn rows() -> Vec<Op> {
    // All of these but one have a dropout parameter.
    let random = scaled_dot_products().into_iter().map(|op| op.effect(Effect::Random));
    let rows = random.chain([biased_attention()]);
    rows.chain(fused::rows())
        .chain(multihead::rows())
        .chain(transformer::rows())
        .collect()
}

fn scaled_dot_products() -> Vec<Op> {
    vec![
        Op::composite("scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0., \
             bool is_causal=False, *, float? scale=None, bool enable_gqa=False) -> Tensor",
            |b, c| attention_and_scores(b, c, c.bool("enable_gqa")?).map(|(out, _)| out.into()),
        )
        .doc("softmax(query @ key.T * scale + mask) @ value")
        .spelled(
            "aten.scaled_dot_product_attention.default torch.nn.functional.scaled_dot_product_attention \
             torch._C._nn.scaled_dot_product_attention",
        ),
        Op::composite("_scaled_dot_product_flash_attention_for_cpu(Tensor query, Tensor key, Tensor value, float dropout_p=0., bool \
             is_causal=False, *, Tensor? attn_mask=None, float? scale=None) -> (Tensor, Tensor)",
            |b, c| {
                let (out, scores) = attention_and_scores(b, c, false)?;
                let last = scores.rank()? - 1;
                let lse = b.reduce(OpId::Logsumexp, &scores, &[last], false)?;
                Ok(Val::Tuple(vec![out.into(), lse.into()]))
            },
        )
        .doc("attention, and the logarithms of the softmax denominators")
        .spelled("aten.@"),
        Op::composite("_scaled_dot_product_attention_math(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float \
             dropout_p=0., bool is_causal=False, Tensor? dropout_mask=None, *, float? scale=None, bool enable_gqa=False) -> \
             (Tensor, Tensor)",
            |b, c| {
                let (out, scores) = attention_and_scores(b, c, c.bool("enable_gqa")?)?;
                let last = scores.rank()? - 1;
                let p = softmax(b, &scores, last)?;
                let p = b.to_dtype(&p, out.dtype())?;
                Ok(Val::Tuple(vec![out.into(), p.into()]))
            },
        )
        .doc("attention, and the softmax")
        .spelled("aten.@"),
    ]
}

fn biased_attention() -> Op {
    Op::composite("biased_attention(Tensor query, Tensor key, Tensor value, Tensor? bias, Tensor? mask, *, float scale, bool safe) -> \
         Tensor",
        attend_biased,
    )
    .doc(
        "softmax(query @ key.T * scale + bias + mask) @ value; fully masked rows yield zeros if `safe`, else NaN",
    )
}

fn check_operands(q: &Traced, k: &Traced, v: &Traced) -> OpResult<()> {
    for t in [q, k, v] {
        if t.rank()? < 2 {
            return Err(OpError::shape(
                "scaled_dot_product_attention: Expected query, key, and value to all be  at least 2 dimensional, but got \
                 fewer",
            ));
        }
    }
    if q.dtype() != k.dtype() || q.dtype() != v.dtype() {
        return Err(OpError::dtype(format!(
            "Expected query, key, and value to have the same dtype, but got query.dtype: {} key.dtype: {} and value.dtype: {} \
             instead.",
            q.dtype().torch_name(),
            k.dtype().torch_name(),
            v.dtype().torch_name()
        )));
    }
    crate::op::rows::norms::want_float(q, "scaled_dot_product_attention")
}

/// Keys or values with each head repeated until there are as many heads as queries have (grouped-query attention).
fn repeat_heads(b: &mut dyn Build, t: &Traced, heads: &Dim) -> OpResult<Traced> {
    let shape = t.shape()?.to_vec();
    let head_dim = shape
        .len()
        .checked_sub(3)
        .ok_or_else(|| OpError::shape("enable_gqa requires at least 3 dims"))?;
    let times = heads.floordiv(&shape[head_dim]);
    if times == Dim::Const(1) {
        return Ok(t.clone());
    }
    let mut wide = shape.clone();
    wide.insert(head_dim + 1, times);
    let t = b.unsqueeze(t, head_dim + 1)?;
    let t = b.op(OpId::Expand, [t.into(), dims_val(&wide)])?;
    let mut out = shape;
    out[head_dim] = heads.clone();
    b.reshape(&t, &out)
}

/// The indices `0..n` as a column or a row.
fn position_indices(b: &mut dyn Build, n: &Dim, column: bool) -> OpResult<Traced> {
    let v = b.arange(Val::int(0), Val::Int(n.clone()))?;
    if column { b.unsqueeze(&v, 1) } else { Ok(v) }
}

/// Query, key and value in the compute dtype. Key and value have as many heads as the query.
fn attention_operands(b: &mut dyn Build, c: &Call<Traced>, gqa: bool) -> OpResult<[Traced; 3]> {
    let (q, k, v) = (c.leaf("query")?, c.leaf("key")?, c.leaf("value")?);
    check_operands(q, k, v)?;
    let compute = q.dtype().compute_dtype();
    let (mut k, mut v) = (b.to_dtype(k, compute)?, b.to_dtype(v, compute)?);
    let q = b.to_dtype(q, compute)?;
    if gqa {
        let head_dim = q.rank()?.saturating_sub(3);
        let heads = q.shape()?[head_dim].clone();
        k = repeat_heads(b, &k, &heads)?;
        v = repeat_heads(b, &v, &heads)?;
    }
    Ok([q, k, v])
}

/// `scale * q @ k.T`.
fn scaled_scores(b: &mut dyn Build, q: &Traced, k: &Traced, scale: f64) -> OpResult<Traced> {
    let kr = k.rank()?;
    let kt = b.transpose(k, kr - 2, kr - 1)?;
    let scores = b.matmul(q, &kt)?;
    b.mul(&scores, Val::Float(scale))
}

/// Attention with two addends for the scores (`bias` and `mask`) and a choice of the result for fully masked rows.
fn attend_biased(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let dtype = c.leaf("query")?.dtype();
    let [q, k, v] = attention_operands(b, c, false)?;
    let mut scores = scaled_scores(b, &q, &k, c.f64("scale")?)?;
    for name in ["bias", "mask"] {
        if let Some(m) = c.opt_leaf(name) {
            scores = add_mask(b, &scores, m)?;
        }
    }
    let last = scores.rank()? - 1;
    let mut p = softmax(b, &scores, last)?;
    if c.bool("safe")? {
        p = masked_rows(b, &scores, &p, last)?;
    }
    let out = b.matmul(&p, &v)?;
    b.to_dtype(&out, dtype).map(Val::Leaf)
}

/// The result and the masked, scaled scores.
fn attention_and_scores(b: &mut dyn Build, c: &Call<Traced>, gqa: bool) -> OpResult<(Traced, Traced)> {
    let dtype = c.leaf("query")?.dtype();
    let [q, k, v] = attention_operands(b, c, gqa)?;
    let (rank, kr) = (q.rank()?, k.rank()?);
    let (len, embed) = (q.shape()?[rank - 2].clone(), q.shape()?[rank - 1].clone());
    let scale = match (c.get("scale").as_f64(), embed.as_const()) {
        (Some(s), _) => s,
        (None, Some(e)) => 1.0 / (e as f64).sqrt(),
        (None, None) => return Err(OpError::shape(format!("the embedding size {embed} must be known"))),
    };
    let mut scores = scaled_scores(b, &q, &k, scale)?;
    let mask = c.opt_leaf("attn_mask");
    if c.bool("is_causal")? {
        if mask.is_some() {
            return Err(OpError::arg(
                "is_causal",
                "Explicit attn_mask should not be set when is_causal=True",
            ));
        }
        let (rows, columns) = (
            position_indices(b, &len, true)?,
            position_indices(b, &k.shape()?[kr - 2].clone(), false)?,
        );
        let seen = b.ge(&rows, &columns)?;
        scores = b.r#where(seen, &scores, Val::Float(f64::NEG_INFINITY))?;
    }
    if let Some(mask) = mask {
        scores = add_mask(b, &scores, mask)?;
    }
    let last = scores.rank()? - 1;
    let mut p = softmax(b, &scores, last)?;
    if mask.is_some() {
        p = masked_rows(b, &scores, &p, last)?;
    }
    if c.f64("dropout_p")? > 0.0 {
        p = b.dropout(p, c.get("dropout_p").clone(), Val::Bool(true))?;
    }
    let out = b.matmul(&p, &v)?;
    Ok((b.to_dtype(&out, dtype)?, scores))
}

fn add_mask(b: &mut dyn Build, scores: &Traced, mask: &Traced) -> OpResult<Traced> {
    let (m, s) = (mask.shape()?, scores.shape()?);
    let fits = |(a, b): (&Dim, &Dim)| *a == Dim::Const(1) || a.sub(b).as_const().is_none_or(|d| d == 0);
    if m.len() > s.len() || !m.iter().rev().zip(s.iter().rev()).all(fits) {
        return Err(OpError::shape(format!(
            "the attention mask has shape {}, which does not broadcast to that of the scores, {}",
            list_text(m),
            list_text(s)
        )));
    }
    if mask.dtype() == DType::B8 {
        return b.r#where(mask, scores, Val::Float(f64::NEG_INFINITY));
    }
    if !mask.dtype().is_float() {
        return Err(OpError::dtype(format!(
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: {}",
            mask.dtype().torch_name()
        )));
    }
    let mask = b.to_dtype(mask, scores.dtype())?;
    b.add(scores, &mask)
}
