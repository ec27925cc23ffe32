//! Multi-head attention as in `torch.nn`: projections, heads, masks, attention, output projection.

use crate::op::rows::norms::softmax::softmax;
use crate::op::{Build, Call, Effect, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::types::{DType, Dim, Val};

pub(super) fn rows() -> Vec<Op> {
    vec![
        Op::composite("multi_head_attention_forward(Tensor query, Tensor key, Tensor value, int embed_dim_to_check, int num_heads, Tensor? \
             in_proj_weight, Tensor? in_proj_bias, Tensor? bias_k, Tensor? bias_v, bool add_zero_attn, float dropout_p, Tensor \
             out_proj_weight, Tensor? out_proj_bias, bool training=True, Tensor? key_padding_mask=None, bool need_weights=True, \
             Tensor? attn_mask=None, bool use_separate_proj_weight=False, Tensor? q_proj_weight=None, Tensor? k_proj_weight=None, \
             Tensor? v_proj_weight=None, Tensor? static_k=None, Tensor? static_v=None, bool average_attn_weights=True, bool \
             is_causal=False) -> Any",
            functional_forward,
        )
        .doc("multi-head attention on sequences `[length, batch, embedding]`: the output, and the weights on request")
        .spelled("torch.nn.functional.@")
        .effect(Effect::Random),
        Op::composite("multihead_attention(Tensor query, Tensor key, Tensor value, int num_heads, bool batch_first, bool add_zero_attn, \
             Tensor? in_proj_weight, Tensor? in_proj_bias, Tensor? bias_k, Tensor? bias_v, Tensor out_proj_weight, Tensor? \
             out_proj_bias, Tensor? q_proj_weight, Tensor? k_proj_weight, Tensor? v_proj_weight, Any key_padding_mask=None, Any \
             need_weights=None, Any attn_mask=None, Any average_attn_weights=None, Any is_causal=None, float dropout_p=0., bool \
             training=False) -> Any",
            module_forward,
        )
        .doc("the forward method of the module class; sequences may be `[batch, length, embedding]`")
        .effect(Effect::Random)
        .module(
            "MultiheadAttention(embed_dim, num_heads, dropout=0.0, bias=True, add_bias_kv=False, add_zero_attn=False, kdim=None, \
             vdim=None, batch_first=False) = multihead_attention($0:query, $1:key, $2:value, num_heads, batch_first, \
             add_zero_attn, @in_proj_weight?[3 * embed_dim, embed_dim] if not kdim and not vdim, \
             @in_proj_bias?[3 * embed_dim] if \
             bias, @bias_k?[1, 1, embed_dim] if add_bias_kv, @bias_v?[1, 1, embed_dim] if add_bias_kv, \
             @out_proj.weight[embed_dim, embed_dim], @out_proj.bias?[embed_dim] if bias, @q_proj_weight?[embed_dim, \
             embed_dim] if \
             kdim and vdim, @k_proj_weight?[embed_dim, kdim] if kdim and vdim, @v_proj_weight?[embed_dim, \
             vdim] if kdim and vdim, $3:key_padding_mask?, $4:need_weights?, $5:attn_mask?, \
             $6:average_attn_weights?, $7:is_causal?, dropout, training)",
        ),
    ]
}

fn functional_forward(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    if !c.is_none("static_k") || !c.is_none("static_v") {
        return Err(OpError::arg(
            "static_k",
            "multi_head_attention_forward with static keys or values is not supported",
        ));
    }
    multihead_forward(b, c, false)
}

/// `need_weights` and `average_attn_weights` default to True.
fn module_forward(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    multihead_forward(b, c, c.bool("batch_first")?)
}

fn flag_or(c: &Call<Traced>, name: &str, default: bool) -> OpResult<bool> {
    if c.is_none(name) { Ok(default) } else { c.bool(name) }
}

/// The projections of query, key and value. A joint weight consists of the three weights, stacked vertically.
fn project_qkv(b: &mut dyn Build, c: &Call<Traced>, x: [&Traced; 3]) -> OpResult<Vec<Traced>> {
    let embed = x[0].shape()?.last().cloned().unwrap_or(Dim::Unknown);
    let mut out = vec![];
    for (i, (t, name)) in x
        .into_iter()
        .zip(["q_proj_weight", "k_proj_weight", "v_proj_weight"])
        .enumerate()
    {
        let part = |b: &mut dyn Build, w: &Traced| {
            let i = i as i64;
            b.slice(w, 0, embed.mul(&Dim::Const(i)), embed.mul(&Dim::Const(i + 1)), 1)
        };
        let w = match (c.opt_leaf("in_proj_weight"), c.opt_leaf(name)) {
            (Some(w), _) => part(b, w)?,
            (None, Some(w)) => w.clone(),
            (None, None) => return Err(OpError::arg("in_proj_weight", "attention requires an input projection")),
        };
        let bias = match c.opt_leaf("in_proj_bias") {
            Some(v) => part(b, v)?.into(),
            None => Val::None,
        };
        out.push(b.op(OpId::Linear, [t.into(), w.into(), bias])?);
    }
    Ok(out)
}

/// Reshapes `[length, batch, embedding]` to `[batch, heads, length, embedding / heads]`.
fn split_heads(b: &mut dyn Build, x: &Traced, n: i64) -> OpResult<Traced> {
    let [len, batch, embed] = x.shape()? else {
        return Err(OpError::shape("attention expects sequences with 3 dims"));
    };
    let shape = [
        len.clone(),
        batch.clone(),
        Dim::Const(n),
        embed.floordiv(&Dim::Const(n)),
    ];
    let y = b.reshape(x, &shape)?;
    b.permute(&y, &[1, 2, 0, 3])
}

/// Converts a mask to numbers to add: -inf where a bool mask is true.
fn to_additive_mask(b: &mut dyn Build, mask: &Traced, dtype: DType) -> OpResult<Traced> {
    if mask.dtype() != DType::B8 {
        return b.to_dtype(mask, dtype);
    }
    let zeros = b.full(mask.shape()?, Val::int(0), dtype)?;
    b.masked_fill(zeros, mask, Val::Float(f64::NEG_INFINITY))
}

fn multihead_forward(b: &mut dyn Build, c: &Call<Traced>, batch_first: bool) -> OpResult<Val<Traced>> {
    let n = c.int("num_heads")?;
    let order = SequenceOrder {
        unbatched: c.leaf("query")?.rank()? == 2,
        batch_first,
    };
    let x = length_first_inputs(b, c, order)?;
    let embed = x[0].size(2)?.clone();
    if n <= 0 || embed.as_const().is_some_and(|e| e % n != 0) {
        return Err(OpError::shape(format!(
            "embed_dim {embed} not divisible by num_heads {n}"
        )));
    }
    let mut p = project_qkv(b, c, [&x[0], &x[1], &x[2]])?;
    let extra = append_extra_keys(b, c, &mut p, &embed)?;
    let (q, k) = (split_heads(b, &p[0], n)?, split_heads(b, &p[1], n)?);
    let v = split_heads(b, &p[2], n)?;
    let scores = scaled_scores(b, &q, &k)?;
    let scores = add_masks(b, c, scores, n, extra)?;
    let weights = softmax(b, &scores, 3)?;
    let need_weights = flag_or(c, "need_weights", true)?;
    let weights = drop_weights(b, c, weights, need_weights)?;
    let out = b.matmul(&weights, &v)?;
    let out = b.permute(&out, &[2, 0, 1, 3])?;
    let out = b.reshape(&out, x[0].shape()?)?;
    let [weight, bias] = ["out_proj_weight", "out_proj_bias"].map(|name| c.get(name).clone());
    let out = b.op(OpId::Linear, [out.into(), weight, bias])?;
    let out = order.restore_layout(b, out)?;
    let weights = match need_weights {
        true => Val::from(&returned_weights(b, c, weights, order)?),
        false => Val::None,
    };
    Ok(Val::Tuple(vec![out.into(), weights]))
}

/// The products of queries and keys, over the root of the size of a head.
fn scaled_scores(b: &mut dyn Build, q: &Traced, k: &Traced) -> OpResult<Traced> {
    let width = q.size(3)?.as_const();
    let width = width.ok_or_else(|| OpError::shape("the embedding size must be known"))?;
    let q = b.mul(q, Val::Float(1.0 / (width as f64).sqrt()))?;
    let kt = b.transpose(k, 2, 3)?;
    b.matmul(&q, &kt)
}

/// Applies dropout in training. Otherwise torch ignores the probability. If torch returns the weights, it treats a
/// negative probability as zero.
fn drop_weights(b: &mut dyn Build, c: &Call<Traced>, weights: Traced, need_weights: bool) -> OpResult<Traced> {
    if !c.bool("training")? || (need_weights && c.f64("dropout_p")? <= 0.0) {
        return Ok(weights);
    }
    b.dropout(weights, c.get("dropout_p").clone(), Val::Bool(true))
}

/// The layout of the user's sequences; the computation uses `[length, batch, embedding]`.
#[derive(Clone, Copy)]
struct SequenceOrder {
    /// Whether the input is a single sequence without a batch dim.
    unbatched: bool,
    batch_first: bool,
}

impl SequenceOrder {
    fn restore_layout(self, b: &mut dyn Build, out: Traced) -> OpResult<Traced> {
        match self {
            SequenceOrder { unbatched: true, .. } => b.squeeze(&out, 1),
            SequenceOrder { batch_first: true, .. } => b.transpose(&out, 0, 1),
            _ => Ok(out),
        }
    }
}

/// Query, key and value in the layout `[length, batch, embedding]`.
fn length_first_inputs(b: &mut dyn Build, c: &Call<Traced>, order: SequenceOrder) -> OpResult<[Traced; 3]> {
    let mut x = [c.leaf("query")?, c.leaf("key")?, c.leaf("value")?].map(Traced::clone);
    let rank = x[0].rank()?;
    if !(2..=3).contains(&rank) {
        return Err(OpError::shape(format!(
            "query should be unbatched 2D or batched 3D tensor but received {rank}-D query tensor"
        )));
    }
    if x[1].rank()? != rank || x[2].rank()? != rank {
        let title = format!("For {rank}-D `query`, expected `key` and `value` to be {rank}-D");
        return Err(OpError::shape(title));
    }
    for t in &mut x {
        if order.unbatched {
            *t = b.unsqueeze(t, 1)?;
        } else if order.batch_first {
            *t = b.transpose(t, 0, 1)?;
        }
    }
    Ok(x)
}

/// The attention weights as returned to the user: of all heads, or averaged over them.
fn returned_weights(b: &mut dyn Build, c: &Call<Traced>, weights: Traced, order: SequenceOrder) -> OpResult<Traced> {
    let mut weights = weights;
    if flag_or(c, "average_attn_weights", true)? {
        weights = b.reduce(OpId::Mean, &weights, &[1], false)?;
    }
    if order.unbatched {
        weights = b.squeeze(&weights, 0)?;
    }
    Ok(weights)
}

/// Appends the module's own keys and values (learnt ones, and zeros), and returns how many were appended.
fn append_extra_keys(b: &mut dyn Build, c: &Call<Traced>, p: &mut [Traced], embed: &Dim) -> OpResult<i64> {
    let mut extra = 0;
    for (i, name) in [(1, "bias_k"), (2, "bias_v")] {
        if let Some(t) = c.opt_leaf(name) {
            let batch = p[i].size(1)?.clone();
            let row = b.expand(t, &[Dim::Const(1), batch, embed.clone()])?;
            p[i] = b.cat(&[p[i].clone(), row], 0)?;
            extra += (i == 1) as i64;
        }
    }
    if c.bool("add_zero_attn")? {
        for t in &mut p[1..] {
            let batch = t.size(1)?.clone();
            let row = b.full(&[Dim::Const(1), batch, embed.clone()], Val::int(0), t.dtype())?;
            *t = b.cat(&[t.clone(), row], 0)?;
        }
        extra += 1;
    }
    Ok(extra)
}

/// Adds both masks to scores of shape `[batch, heads, length, keys]`. Keys that were appended at the end are never
/// masked.
fn add_masks(b: &mut dyn Build, c: &Call<Traced>, scores: Traced, n: i64, extra: i64) -> OpResult<Traced> {
    let mut scores = scores;
    let shape = scores.shape()?.to_vec();
    let widened = |b: &mut dyn Build, m: &Traced| -> OpResult<Traced> {
        if extra == 0 {
            return Ok(m.clone());
        }
        b.op(
            OpId::ConstantPadNd,
            [m.into(), crate::op::emit::ints_val(&[0, extra]), Val::int(0)],
        )
    };
    if let Some(m) = c.opt_leaf("attn_mask") {
        let m = to_additive_mask(b, m, scores.dtype())?;
        let mut m = widened(b, &m)?;
        if m.rank()? == 3 {
            let keys = m.shape()?[2].clone();
            m = b.reshape(&m, &[shape[0].clone(), Dim::Const(n), shape[2].clone(), keys])?;
        }
        scores = b.add(&scores, &m)?;
    }
    if let Some(m) = c.opt_leaf("key_padding_mask") {
        let m = to_additive_mask(b, m, scores.dtype())?;
        let m = widened(b, &m)?;
        let keys = m.shape()?.last().cloned().unwrap_or(Dim::Unknown);
        let batch = if m.rank()? == 1 {
            Dim::Const(1)
        } else {
            shape[0].clone()
        };
        let m = b.reshape(&m, &[batch, Dim::Const(1), Dim::Const(1), keys])?;
        scores = b.add(&scores, &m)?;
    }
    Ok(scores)
}
