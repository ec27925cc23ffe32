//! Ops that torch implements as a whole: attention and an encoder layer, which its modules call if no gradients are
//! needed.

use crate::op::emit::dims_val;
use crate::op::{Build, Call, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::types::{DType, Dim, Val};

pub(super) fn rows() -> Vec<Op> {
    vec![
        Op::composite("_masked_softmax(Tensor self, Tensor mask, int? dim=None, int? mask_type=None) -> Tensor",
            |b, c| {
                let last = Val::int(-1);
                let dim = if c.is_none("dim") { &last } else { c.get("dim") };
                masked_softmax(b, c.leaf("self")?, c.leaf("mask")?, dim, c.opt_int("mask_type")?).map(Val::Leaf)
            },
        )
        .doc("softmax over the elements that a bool mask keeps; mask types: `[rows, columns]` (0), `[batch, columns]` (1) or all dims (2)")
        .spelled("aten.@ torch.@"),
        Op::composite("_native_multi_head_attention(Tensor query, Tensor key, Tensor value, int embed_dim, int num_head, Tensor qkv_weight, \
             Tensor qkv_bias, Tensor proj_weight, Tensor proj_bias, Tensor? mask=None, bool need_weights=True, bool \
             average_attn_weights=True, int? mask_type=None) -> Any",
            native_attention,
        )
        .doc("multi-head attention on sequences `[batch, length, embedding]`: the output, and the weights on request")
        .spelled("aten.@ torch.@"),
        Op::composite("_transformer_encoder_layer_fwd(Tensor src, int embed_dim, int num_heads, Tensor qkv_weight, Tensor qkv_bias, Tensor \
             proj_weight, Tensor proj_bias, bool use_gelu, bool norm_first, float eps, Tensor norm_weight_1, Tensor \
             norm_bias_1, Tensor norm_weight_2, Tensor norm_bias_2, Tensor ffn_weight_1, Tensor ffn_bias_1, Tensor \
             ffn_weight_2, Tensor ffn_bias_2, Tensor? mask=None, int? mask_type=None) -> Tensor",
            encoder_layer,
        )
        .doc("a transformer encoder layer: self-attention, then two linear layers with an activation between them")
        .spelled("aten.@ torch.@"),
    ]
}

/// Softmax along `dim` over the scores that are not masked. A row that is fully masked gives NaN.
fn masked_softmax(
    b: &mut dyn Build,
    scores: &Traced,
    mask: &Traced,
    dim: &Val<Traced>,
    kind: Option<i64>,
) -> OpResult<Traced> {
    let (s, m) = (scores.shape()?.to_vec(), mask.shape()?.to_vec());
    let fits = |a: &Dim, b: &Dim| a.sub(b).as_const().is_none_or(|d| d == 0);
    let one = Dim::Const(1);
    let (shape, matches) = match (kind, &s[..], &m[..]) {
        (Some(0), [_, _, rows, _], [a, b]) => (vec![a.clone(), b.clone()], fits(rows, a) && fits(rows, b)),
        (Some(1), [batch, _, rows, _], [a, b]) => {
            let shape = vec![a.clone(), one.clone(), one, b.clone()];
            (shape, fits(batch, a) && fits(rows, b))
        }
        _ => (
            m.clone(),
            s.len() == m.len() && s.iter().zip(&m).all(|(a, b)| fits(a, b)),
        ),
    };
    if !matches {
        return Err(OpError::arg(
            "mask",
            match (kind, m.len(), s.len()) {
                (Some(0), 2, 4) => "For mask_type == 0 mask shape should be (L, L)",
                (Some(1), 2, 4) => "For mask_type == 1 mask shape should be (B, L)",
                _ => "For mask_type == 2 mask shape should match input shape",
            },
        ));
    }
    let mask = b.reshape(mask, &shape)?;
    let left = b.masked_fill(scores, &mask, Val::Float(f64::NEG_INFINITY))?;
    b.softmax(left, dim.clone())
}

/// Query, key and value as `[batch, heads, length, embedding / heads]`.
fn project_qkv(b: &mut dyn Build, c: &Call<Traced>, heads: i64) -> OpResult<[Traced; 3]> {
    let embed = c.int("embed_dim")?;
    let [q, k, v] = [("query", 0), ("key", 1), ("value", 2)].map(|(name, part)| {
        let x = c.leaf(name)?;
        let [from, to] = [part, part + 1].map(|i: i64| Dim::Const(embed.saturating_mul(i)));
        let weight = b.slice(c.leaf("qkv_weight")?, 0, from.clone(), to.clone(), 1)?;
        let bias = b.slice(c.leaf("qkv_bias")?, 0, from, to, 1)?;
        let y = b.op(OpId::Linear, [x.into(), weight.into(), bias.into()])?;
        let [batch, len, _] = y.shape()? else {
            return Err(OpError::arg(name, "attention expects sequences with 3 dims"));
        };
        let shape = [batch.clone(), len.clone(), Dim::Const(heads), Dim::Const(embed / heads)];
        let y = b.reshape(&y, &shape)?;
        b.permute(&y, &[0, 2, 1, 3])
    });
    Ok([q?, k?, v?])
}

fn native_attention(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (embed, heads) = (c.int("embed_dim")?, c.int("num_head")?);
    if heads <= 0 || embed <= 0 {
        return Err(OpError::arg("num_head", "attention requires at least one head"));
    }
    let [q, k, v] = project_qkv(b, c, heads)?;
    let q = b.mul(&q, Val::Float(1.0 / ((embed / heads) as f64).sqrt()))?;
    let kt = b.transpose(&k, 2, 3)?;
    let scores = b.matmul(&q, &kt)?;
    let weights = match c.opt_leaf("mask") {
        None => b.softmax(&scores, Val::int(-1))?,
        Some(mask) => {
            let kind = c.opt_int("mask_type")?;
            let kind = kind.ok_or_else(|| OpError::arg("mask_type", "Mask Type should be defined"))?;
            let mask = b.to_dtype(mask, DType::B8)?;
            masked_softmax(b, &scores, &mask, &Val::int(-1), Some(kind))?
        }
    };
    let out = b.matmul(&weights, &v)?;
    let out = b.permute(&out, &[0, 2, 1, 3])?;
    let out = b.reshape(&out, c.leaf("query")?.shape()?)?;
    let [weight, bias] = ["proj_weight", "proj_bias"].map(|name| c.get(name).clone());
    let out = b.op(OpId::Linear, [out.into(), weight, bias])?;
    // For empty inputs torch returns no weights.
    let empty = c.leaf("query")?.shape()?.contains(&Dim::Const(0));
    let weights = match (c.bool("need_weights")? && !empty, c.bool("average_attn_weights")?) {
        (false, _) => Val::None,
        (true, false) => weights.into(),
        (true, true) => b.reduce(OpId::Mean, &weights, &[1], false)?.into(),
    };
    Ok(Val::Tuple(vec![out.into(), weights]))
}

/// The layer norm with the `i`-th set of parameters.
fn layer_norm(b: &mut dyn Build, c: &Call<Traced>, i: usize, x: &Traced) -> OpResult<Traced> {
    let [weight, bias] = ["weight", "bias"].map(|part| c.get(&format!("norm_{part}_{i}")).clone());
    let size = dims_val(&[Dim::Const(c.int("embed_dim")?)]);
    b.op(OpId::LayerNorm, [x.into(), size, weight, bias, c.get("eps").clone()])
}

fn self_attention(b: &mut dyn Build, c: &Call<Traced>, x: &Traced) -> OpResult<Traced> {
    let parameters = [
        "embed_dim",
        "num_heads",
        "qkv_weight",
        "qkv_bias",
        "proj_weight",
        "proj_bias",
        "mask",
    ];
    let mut args: Vec<Val<Traced>> = [x, x, x].map(Val::from).to_vec();
    args.extend(parameters.map(|name| c.get(name).clone()));
    args.extend([Val::Bool(false), Val::Bool(false), c.get("mask_type").clone()]);
    let out = b.call(OpId::_NativeMultiHeadAttention, args)?;
    let first = out.items().and_then(|v| v.first()).and_then(Val::as_leaf).cloned();
    first.ok_or_else(|| OpError::arg("num_heads", "attention returns a tensor"))
}

fn feed_forward(b: &mut dyn Build, c: &Call<Traced>, x: &Traced) -> OpResult<Traced> {
    let linear = |b: &mut dyn Build, x: &Traced, i: usize| {
        let [weight, bias] = ["weight", "bias"].map(|part| c.get(&format!("ffn_{part}_{i}")).clone());
        b.op(OpId::Linear, [x.into(), weight, bias])
    };
    let y = linear(b, x, 1)?;
    let y = b.unary(if c.bool("use_gelu")? { OpId::Gelu } else { OpId::Relu }, &y)?;
    linear(b, &y, 2)
}

fn encoder_layer(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    type Part = fn(&mut dyn Build, &Call<Traced>, &Traced) -> OpResult<Traced>;
    let first = c.bool("norm_first")?;
    let mut x = c.leaf("src")?.clone();
    for (i, part) in [(1, self_attention as Part), (2, feed_forward)] {
        let before = if first { layer_norm(b, c, i, &x)? } else { x.clone() };
        let y = part(b, c, &before)?;
        x = b.add(&y, &x)?;
        if !first {
            x = layer_norm(b, c, i, &x)?;
        }
    }
    Ok(x.into())
}
