//! The layers of torch.nn's Transformer: attention and feed-forward blocks, each with a norm and a residual connection.

mod stacks;

use self::stacks::{decode_layers, decode_stack, encode_stack, last_norm, run_layers, shared_args};
use crate::op::emit::dims_val;
use crate::op::{Build, Call, Effect, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::types::Val;

pub(super) fn rows() -> Vec<Op> {
    vec![
        encoder_layer(),
        decoder_layer(),
        encoder_stack(),
        decoder_stack(),
        transformer_row(),
    ]
}

fn encoder_layer() -> Op {
    Op::composite("transformer_encoder_layer(Tensor src, int nhead, Any activation, float eps, bool batch_first, bool \
         norm_first, float dropout, bool training, Tensor self_attn_in, Tensor? self_attn_in_bias, Tensor self_attn_out, Tensor? \
         self_attn_out_bias, Tensor linear1, Tensor? linear1_bias, Tensor linear2, Tensor? linear2_bias, Tensor \
         norm1, Tensor? norm1_bias, Tensor norm2, Tensor? norm2_bias, Tensor? src_mask=None, Tensor? \
         src_key_padding_mask=None, Any is_causal=None) -> Tensor",
        encode_layer,
    )
    .effect(Effect::Random)
    .doc("self-attention, then two linear layers with an activation between them")
    .module(
        "TransformerEncoderLayer(d_model, nhead, dim_feedforward=2048, dropout=0.1, activation='relu', \
         layer_norm_eps=1e-05, batch_first=False, norm_first=False, bias=True) = transformer_encoder_layer($0:src, \
         nhead, activation, layer_norm_eps, batch_first, norm_first, dropout, training, @self_attn.in_proj_weight[3 * d_model, d_model], \
         @self_attn.in_proj_bias?[3 * d_model] if bias, @self_attn.out_proj.weight[d_model, d_model], \
         @self_attn.out_proj.bias?[d_model] if bias, @linear1.weight[dim_feedforward, d_model], \
         @linear1.bias?[dim_feedforward] if bias, @linear2.weight[d_model, dim_feedforward], \
         @linear2.bias?[d_model] if bias, @norm1.weight[d_model], @norm1.bias?[d_model] if bias, @norm2.weight[d_model], \
         @norm2.bias?[d_model] if bias, \
         $1:src_mask?, $2:src_key_padding_mask?, $3:is_causal?)",
    )
}

fn decoder_layer() -> Op {
    Op::composite("transformer_decoder_layer(Tensor tgt, Tensor memory, int nhead, Any activation, float eps, bool \
         batch_first, bool norm_first, float dropout, bool training, Tensor self_attn_in, Tensor? self_attn_in_bias, Tensor self_attn_out, \
         Tensor? self_attn_out_bias, Tensor cross_attn_in, Tensor? cross_attn_in_bias, Tensor cross_attn_out, \
         Tensor? cross_attn_out_bias, Tensor linear1, Tensor? linear1_bias, Tensor linear2, Tensor? linear2_bias, \
         Tensor norm1, Tensor? norm1_bias, Tensor norm2, Tensor? norm2_bias, Tensor norm3, Tensor? norm3_bias, \
         Tensor? tgt_mask=None, Tensor? memory_mask=None, Tensor? tgt_key_padding_mask=None, Tensor? \
         memory_key_padding_mask=None, Any tgt_is_causal=None, Any memory_is_causal=None) -> Tensor",
        decode_layer,
    )
    .effect(Effect::Random)
    .doc("self-attention, attention to the memory, then two linear layers with an activation between them")
    .module(
        "TransformerDecoderLayer(d_model, nhead, dim_feedforward=2048, dropout=0.1, activation='relu', \
         layer_norm_eps=1e-05, batch_first=False, norm_first=False, bias=True) = transformer_decoder_layer($0:tgt, \
         $1:memory, nhead, activation, layer_norm_eps, batch_first, norm_first, dropout, training, @self_attn.in_proj_weight[3 * d_model, \
         d_model], \
         @self_attn.in_proj_bias?[3 * d_model] if bias, @self_attn.out_proj.weight[d_model, d_model], \
         @self_attn.out_proj.bias?[d_model] if bias, \
         @multihead_attn.in_proj_weight[3 * d_model, d_model], @multihead_attn.in_proj_bias?[3 * d_model] if bias, \
         @multihead_attn.out_proj.weight[d_model, d_model], \
         @multihead_attn.out_proj.bias?[d_model] if bias, @linear1.weight[dim_feedforward, d_model], \
         @linear1.bias?[dim_feedforward] if bias, @linear2.weight[d_model, dim_feedforward], @linear2.bias?[d_model] if bias, \
         @norm1.weight[d_model], @norm1.bias?[d_model] if bias, @norm2.weight[d_model], @norm2.bias?[d_model] if bias, \
         @norm3.weight[d_model], @norm3.bias?[d_model] if bias, $2:tgt_mask?, \
         $3:memory_mask?, $4:tgt_key_padding_mask?, $5:memory_key_padding_mask?, $6:tgt_is_causal?, \
         $7:memory_is_causal?)",
    )
}

fn encoder_stack() -> Op {
    Op::composite("transformer_encoder(Tensor src, int nhead, Any activation, float eps, bool batch_first, bool norm_first, \
         float dropout, bool training, Tensor?[] layers, Tensor? norm=None, Tensor? norm_bias=None, float? norm_eps=None, Tensor? mask=None, \
         Tensor? src_key_padding_mask=None, Any is_causal=None) -> Tensor",
        |b, c| encode_stack(b, c).map(Val::Leaf),
    )
    .effect(Effect::Random)
    .doc("consecutive encoder layers and an optional final norm; `layers` contains the weights of each in turn")
    .module(
        "TransformerEncoder(encoder_layer=None, num_layers, norm=None, enable_nested_tensor=True, mask_check=True) \
         = transformer_encoder($0:src, %layers.0 is TransformerEncoderLayer.nhead, %layers.0 is \
         TransformerEncoderLayer.activation, %layers.0 is TransformerEncoderLayer.layer_norm_eps, %layers.0 is \
         TransformerEncoderLayer.batch_first, %layers.0 is TransformerEncoderLayer.norm_first, %layers.0 is TransformerEncoderLayer.dropout, training, @each num_layers of \
         layers.* is TransformerEncoderLayer, @norm.weight?, @norm.bias?, %norm is LayerNorm.eps?, $1:mask?, \
         $2:src_key_padding_mask?, $3:is_causal?)",
    )
}

fn decoder_stack() -> Op {
    Op::composite("transformer_decoder(Tensor tgt, Tensor memory, int nhead, Any activation, float eps, bool batch_first, \
         bool norm_first, float dropout, bool training, Tensor?[] layers, Tensor? norm=None, Tensor? norm_bias=None, float? norm_eps=None, \
         Tensor? tgt_mask=None, Tensor? memory_mask=None, Tensor? tgt_key_padding_mask=None, Tensor? \
         memory_key_padding_mask=None, Any tgt_is_causal=None, Any memory_is_causal=None) -> Tensor",
        |b, c| decode_stack(b, c).map(Val::Leaf),
    )
    .effect(Effect::Random)
    .doc("consecutive decoder layers and an optional final norm; `layers` contains the weights of each in turn")
    .module(
        "TransformerDecoder(decoder_layer=None, num_layers, norm=None) = transformer_decoder($0:tgt, $1:memory, \
         %layers.0 is TransformerDecoderLayer.nhead, %layers.0 is TransformerDecoderLayer.activation, %layers.0 is \
         TransformerDecoderLayer.layer_norm_eps, %layers.0 is TransformerDecoderLayer.batch_first, %layers.0 is \
         TransformerDecoderLayer.norm_first, %layers.0 is TransformerDecoderLayer.dropout, training, @each num_layers of layers.* is TransformerDecoderLayer, \
         @norm.weight?, @norm.bias?, %norm is LayerNorm.eps?, $2:tgt_mask?, $3:memory_mask?, \
         $4:tgt_key_padding_mask?, $5:memory_key_padding_mask?, $6:tgt_is_causal?, $7:memory_is_causal?)",
    )
}

fn transformer_row() -> Op {
    Op::composite("transformer(Tensor src, Tensor tgt, int nhead, Any activation, float eps, bool batch_first, bool \
         norm_first, float dropout, bool training, Tensor?[] encoder, Tensor encoder_norm, Tensor? encoder_norm_bias, Tensor?[] decoder, Tensor \
         decoder_norm, Tensor? decoder_norm_bias, Tensor? src_mask=None, Tensor? tgt_mask=None, Tensor? \
         memory_mask=None, Tensor? src_key_padding_mask=None, Tensor? tgt_key_padding_mask=None, Tensor? \
         memory_key_padding_mask=None, Any src_is_causal=None, Any tgt_is_causal=None, Any memory_is_causal=None) \
         -> Tensor",
        transformer,
    )
    .effect(Effect::Random)
    .doc("a decoder of `tgt` with an encoder's result for `src` as its memory; both end with a norm")
    .module(
        "Transformer(d_model=512, nhead=8, num_encoder_layers=6, num_decoder_layers=6, dim_feedforward=2048, \
         dropout=0.1, activation='relu', custom_encoder=None, custom_decoder=None, layer_norm_eps=1e-05, \
         batch_first=False, norm_first=False, bias=True) = transformer($0:src, $1:tgt, nhead, activation, \
         layer_norm_eps, batch_first, norm_first, dropout, training, @each num_encoder_layers of encoder.layers.* is \
         TransformerEncoderLayer, @encoder.norm.weight[d_model], @encoder.norm.bias?[d_model] if bias, \
         @each num_decoder_layers of \
         decoder.layers.* is TransformerDecoderLayer, @decoder.norm.weight[d_model], \
         @decoder.norm.bias?[d_model] if bias, $2:src_mask?, \
         $3:tgt_mask?, $4:memory_mask?, $5:src_key_padding_mask?, $6:tgt_key_padding_mask?, \
         $7:memory_key_padding_mask?, $8:src_is_causal?, $9:tgt_is_causal?, $10:memory_is_causal?)",
    )
}

fn cloned_arg(c: &Call<Traced>, name: &str) -> Val<Traced> {
    c.get(name).clone()
}

/// The arguments of multi-head attention after its three inputs, in the order of its schema.
fn attention_options(c: &Call<Traced>, which: &str, masks: [&str; 2]) -> Vec<Val<Traced>> {
    let part = |name: &str| cloned_arg(c, &format!("{which}_{name}"));
    let mut args = vec![
        cloned_arg(c, "nhead"),
        cloned_arg(c, "batch_first"),
        Val::Bool(false),
        part("in"),
        part("in_bias"),
    ];
    args.extend([Val::None, Val::None]);
    args.extend([part("out"), part("out_bias")]);
    args.extend([Val::None, Val::None, Val::None]);
    args.extend([cloned_arg(c, masks[1]), Val::Bool(false), cloned_arg(c, masks[0])]);
    args.extend([Val::None, Val::None]);
    args.extend([cloned_arg(c, "dropout"), cloned_arg(c, "training")]);
    args
}

/// The attention block whose parameters begin with `which`, from `x` to `memory`.
fn attend_to(
    b: &mut dyn Build,
    c: &Call<Traced>,
    which: &str,
    x: &Traced,
    memory: &Traced,
    masks: [&str; 2],
) -> OpResult<Traced> {
    let mut args: Vec<Val<Traced>> = [x, memory, memory].map(Val::from).to_vec();
    args.extend(attention_options(c, which, masks));
    let out = b.call(OpId::MultiheadAttention, args)?;
    let first = out.items().and_then(|v| v.first()).and_then(Val::as_leaf).cloned();
    let first = first.ok_or_else(|| OpError::arg("nhead", "attention returns a tensor"))?;
    if !c.bool("batch_first")? || first.rank()? != 3 {
        return apply_dropout(b, c, &first);
    }
    // torch computes with the length first, and draws random numbers in memory order.
    let y = b.transpose(&first, 0, 1)?;
    let y = apply_dropout(b, c, &y)?;
    b.transpose(&y, 0, 1)
}

fn apply_dropout(b: &mut dyn Build, c: &Call<Traced>, x: &Traced) -> OpResult<Traced> {
    b.dropout(x, cloned_arg(c, "dropout"), cloned_arg(c, "training"))
}

fn layer_norm(b: &mut dyn Build, c: &Call<Traced>, name: &str, x: &Traced) -> OpResult<Traced> {
    let size = x.shape()?.last().cloned();
    let size = size.ok_or_else(|| OpError::shape("a transformer layer expects sequences"))?;
    let (weight, bias) = (cloned_arg(c, name), cloned_arg(c, &format!("{name}_bias")));
    b.op(
        OpId::LayerNorm,
        [x.into(), dims_val(&[size]), weight, bias, cloned_arg(c, "eps")],
    )
}

fn feed_forward(b: &mut dyn Build, c: &Call<Traced>, x: &Traced) -> OpResult<Traced> {
    let activation = match c.get("activation").as_str() {
        Some("relu") => OpId::Relu,
        Some("gelu") => OpId::Gelu,
        _ => {
            return Err(OpError::arg(
                "activation",
                "the activation of a transformer layer must be 'relu' or 'gelu'",
            )
            .help("export the model, or convert it with torch2fxir.py"));
        }
    };
    let y = b.op(
        OpId::Linear,
        [x.into(), cloned_arg(c, "linear1"), cloned_arg(c, "linear1_bias")],
    )?;
    let y = b.unary(activation, &y)?;
    let y = apply_dropout(b, c, &y)?;
    let y = b.op(
        OpId::Linear,
        [y.into(), cloned_arg(c, "linear2"), cloned_arg(c, "linear2_bias")],
    )?;
    apply_dropout(b, c, &y)
}

/// Adds a residual block to `x`. The norm comes before the block or after the sum.
fn add_residual(
    b: &mut dyn Build,
    c: &Call<Traced>,
    name: &str,
    x: &Traced,
    part: &dyn Fn(&mut dyn Build, &Traced) -> OpResult<Traced>,
) -> OpResult<Traced> {
    if c.bool("norm_first")? {
        let normed = layer_norm(b, c, name, x)?;
        let y = part(b, &normed)?;
        return b.add(x, &y);
    }
    let y = part(b, x)?;
    let sum = b.add(x, &y)?;
    layer_norm(b, c, name, &sum)
}

fn encode_layer(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let x = add_residual(b, c, "norm1", c.leaf("src")?, &|b, x| {
        attend_to(b, c, "self_attn", x, x, ["src_mask", "src_key_padding_mask"])
    })?;
    add_residual(b, c, "norm2", &x, &|b, x| feed_forward(b, c, x)).map(Val::Leaf)
}

fn decode_layer(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let memory = c.leaf("memory")?;
    let x = add_residual(b, c, "norm1", c.leaf("tgt")?, &|b, x| {
        attend_to(b, c, "self_attn", x, x, ["tgt_mask", "tgt_key_padding_mask"])
    })?;
    let x = add_residual(b, c, "norm2", &x, &|b, x| {
        attend_to(
            b,
            c,
            "cross_attn",
            x,
            memory,
            ["memory_mask", "memory_key_padding_mask"],
        )
    })?;
    add_residual(b, c, "norm3", &x, &|b, x| feed_forward(b, c, x)).map(Val::Leaf)
}

fn transformer(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let masks = ["src_mask", "src_key_padding_mask", "src_is_causal"]
        .map(|n| cloned_arg(c, n))
        .to_vec();
    let memory = run_layers(
        b,
        c,
        OpId::TransformerEncoderLayer,
        c.leaf("src")?,
        "encoder",
        (shared_args(c), masks),
    )?;
    let norm = |n: &str| {
        (
            cloned_arg(c, n),
            cloned_arg(c, &format!("{n}_bias")),
            cloned_arg(c, "eps"),
        )
    };
    let (weight, bias, eps) = norm("encoder_norm");
    let memory = last_norm(b, memory, weight, bias, eps)?;
    let x = decode_layers(b, c, Val::Leaf(memory), "decoder")?;
    let (weight, bias, eps) = norm("decoder_norm");
    last_norm(b, x, weight, bias, eps).map(Val::Leaf)
}
