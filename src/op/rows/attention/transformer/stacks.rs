//! Stacks of encoder and decoder layers.

use super::cloned_arg;
use crate::op::emit::dims_val;
use crate::op::{Build, Call, OpError, OpId, OpResult, Traced};
use crate::types::Val;

/// Runs the layers of a stack. Each is a call of `layer` with the arguments `before`, its weights, and the arguments
/// `after`.
pub(super) fn run_layers(
    b: &mut dyn Build,
    c: &Call<Traced>,
    layer: OpId,
    x: &Traced,
    layers: &str,
    (before, after): (Vec<Val<Traced>>, Vec<Val<Traced>>),
) -> OpResult<Traced> {
    let row = layer.op();
    let weights = row.schema.params.len() - 1 - before.len() - after.len();
    let all = c.get(layers).items().unwrap_or_default().to_vec();
    if !all.len().is_multiple_of(weights) {
        return Err(OpError::arg(
            layers,
            format!("a layer has {weights} weights and biases, but {} were given", all.len()),
        ));
    }
    let mut x = x.clone();
    for of_layer in all.chunks(weights) {
        let args = [&[Val::Leaf(x)], &before[..], of_layer, &after[..]].concat();
        x = b.op(layer, args)?;
    }
    Ok(x)
}

/// The arguments that all layers share and that come before their weights.
pub(super) fn shared_args(c: &Call<Traced>) -> Vec<Val<Traced>> {
    [
        "nhead",
        "activation",
        "eps",
        "batch_first",
        "norm_first",
        "dropout",
        "training",
    ]
    .map(|n| cloned_arg(c, n))
    .to_vec()
}

/// The norm at the end of a stack.
pub(super) fn last_norm(
    b: &mut dyn Build,
    x: Traced,
    weight: Val<Traced>,
    bias: Val<Traced>,
    eps: Val<Traced>,
) -> OpResult<Traced> {
    if eps.is_none() {
        return Ok(x);
    }
    let size = x.shape()?.last().cloned();
    let size = size.ok_or_else(|| OpError::shape("a transformer expects sequences"))?;
    b.op(OpId::LayerNorm, [(&x).into(), dims_val(&[size]), weight, bias, eps])
}

pub(super) fn encode_stack(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Traced> {
    let masks = ["mask", "src_key_padding_mask", "is_causal"]
        .map(|n| cloned_arg(c, n))
        .to_vec();
    let x = run_layers(
        b,
        c,
        OpId::TransformerEncoderLayer,
        c.leaf("src")?,
        "layers",
        (shared_args(c), masks),
    )?;
    last_norm(
        b,
        x,
        cloned_arg(c, "norm"),
        cloned_arg(c, "norm_bias"),
        cloned_arg(c, "norm_eps"),
    )
}

/// The masks of a decoder, in the order of a decoder layer's parameters.
const DECODER_MASKS: [&str; 6] = [
    "tgt_mask",
    "memory_mask",
    "tgt_key_padding_mask",
    "memory_key_padding_mask",
    "tgt_is_causal",
    "memory_is_causal",
];

pub(super) fn decode_layers(
    b: &mut dyn Build,
    c: &Call<Traced>,
    memory: Val<Traced>,
    layers: &str,
) -> OpResult<Traced> {
    let before = [vec![memory], shared_args(c)].concat();
    let masks = DECODER_MASKS.map(|n| cloned_arg(c, n)).to_vec();
    run_layers(
        b,
        c,
        OpId::TransformerDecoderLayer,
        c.leaf("tgt")?,
        layers,
        (before, masks),
    )
}

pub(super) fn decode_stack(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Traced> {
    let x = decode_layers(b, c, cloned_arg(c, "memory"), "layers")?;
    last_norm(
        b,
        x,
        cloned_arg(c, "norm"),
        cloned_arg(c, "norm_bias"),
        cloned_arg(c, "norm_eps"),
    )
}
