//! Dropout: the identity in evaluation mode, random zeros in training mode.

use crate::op::{Build, Call, DrawOrder, Effect, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::types::{DType, Dim, Val};

const ALPHA: f64 = 1.7580993408473766;

pub(super) fn rows() -> Vec<Op> {
    let random = |op: Op| op.effect(Effect::Random);
    [dropout_rows(), feature_dropout_rows(), alpha_and_depth()]
        .into_iter()
        .flatten()
        .map(random)
        .collect()
}

fn dropout_rows() -> Vec<Op> {
    vec![
        Op::composite("dropout(Tensor input, float p, bool train) -> Tensor", |b, c| {
            plain_dropout(b, c, false)
        })
        .dropout()
        .draws(DrawOrder::OfOperand)
        .doc("in training, the input with elements zeroed with probability p and the others scaled; else the input")
        .spelled("aten.@ torch.@")
        .form("torch.nn.functional.dropout", F_DROPOUT)
        .inplace("aten.@_ torch.@_")
        .module("Dropout(p=0.5, inplace=False) = dropout(input, p, training)")
        .aliasing()
        .same_object(|c, _| c.get("train").as_int() == Some(0)),
        Op::composite(
            "native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)",
            native_dropout,
        )
        .dropout()
        .draws(DrawOrder::OfOperand)
        .doc("dropout, and the mask of the kept elements")
        .spelled("aten.@ torch.@"),
    ]
}

fn feature_dropout_rows() -> Vec<Op> {
    vec![
        Op::composite(
            "feature_dropout(Tensor input, float p, bool train) -> Tensor",
            |b, c| plain_dropout(b, c, true),
        )
        .dropout()
        .doc("dropout of whole channels")
        .spelled("aten.@ torch.@")
        .form(
            "torch.nn.functional.dropout1d torch.nn.functional.dropout2d torch.nn.functional.dropout3d",
            F_DROPOUT,
        )
        .inplace("aten.@_ torch.@_")
        .module("Dropout1d(p=0.5, inplace=False) = feature_dropout(input, p, training)")
        .module("Dropout2d(p=0.5, inplace=False) = feature_dropout(input, p, training)")
        .module("Dropout3d(p=0.5, inplace=False) = feature_dropout(input, p, training)")
        .aliasing()
        .same_object(|c, _| c.get("train").as_int() == Some(0)),
    ]
}

/// Alpha dropout, which keeps mean and variance, and stochastic depth, which drops whole branches.
fn alpha_and_depth() -> Vec<Op> {
    vec![
        Op::composite("alpha_dropout(Tensor input, float p, bool train) -> Tensor", |b, c| {
            alpha_dropout(b, c, false)
        })
        .dropout()
        .draws(DrawOrder::OfOperand)
        .doc("dropout that sets elements to SELU's negative limit and preserves mean and variance")
        .spelled("aten.@ torch.@")
        .form("torch.nn.functional.alpha_dropout", F_ALPHA)
        .inplace("aten.@_ torch.@_")
        .module("AlphaDropout(p=0.5, inplace=False) = alpha_dropout(input, p, training)")
        .aliasing()
        .same_object(|c, _| c.get("train").as_int() == Some(0)),
        Op::composite(
            "feature_alpha_dropout(Tensor input, float p, bool train) -> Tensor",
            |b, c| alpha_dropout(b, c, true),
        )
        .dropout()
        .doc("alpha_dropout of whole channels")
        .spelled("aten.@ torch.@")
        .form("torch.nn.functional.feature_alpha_dropout", F_ALPHA)
        .inplace("aten.@_ torch.@_")
        .module("FeatureAlphaDropout(p=0.5, inplace=False) = feature_alpha_dropout(input, p, training)")
        .aliasing()
        .same_object(|c, _| c.get("train").as_int() == Some(0)),
        Op::composite(
            "stochastic_depth(Tensor input, float p, str mode, bool training=True) -> Tensor",
            stochastic_depth,
        )
        .doc("in training, the input with whole items or the whole batch zeroed with probability p; else the input")
        .spelled("torchvision.ops.@.@ torchvision.ops.@")
        .module("StochasticDepth(p, mode) = alias(input)")
        .module("DropPath(drop_prob=0.0, scale_by_keep=True) = alias(input)")
        .aliasing(),
    ]
}

/// Functions are traced with the current value of `training`; the default is training mode.
const F_DROPOUT: &str = "dropout(Tensor input, float p=0.5, bool train=True, bool inplace=False) -> Tensor";
const F_ALPHA: &str = "alpha_dropout(Tensor input, float p=0.5, bool train=False, bool inplace=False) -> Tensor";

fn dropout_probability(c: &Call<Traced>) -> OpResult<f64> {
    let p = c.f64("p")?;
    if (0.0..=1.0).contains(&p) {
        return Ok(p);
    }
    Err(OpError::arg(
        "p",
        format!("dropout probability has to be between 0 and 1, but got {p}"),
    ))
}

/// A mask of shape `shape` in the tensor's dtype whose elements are 1 with probability `1 - p`, else 0.
fn keep_mask(b: &mut dyn Build, x: &Traced, shape: &[Dim], p: f64) -> OpResult<Traced> {
    let empty = b.full(shape, Val::int(0), x.dtype())?;
    b.op(OpId::Bernoulli, [empty.into(), Val::Float(1.0 - p)])
}

/// The shape of a mask per item and channel.
fn feature_shape(x: &Traced) -> OpResult<Vec<Dim>> {
    if x.rank()? < 2 {
        return Err(OpError::shape(
            "Feature dropout requires at least 2 dimensions in the input",
        ));
    }
    let shape = x.shape()?.iter().enumerate();
    Ok(shape
        .map(|(i, d)| if i < 2 { d.clone() } else { Dim::Const(1) })
        .collect())
}

/// The random numbers of a dropout.
enum Draw {
    /// None: this is the result.
    Needless(Traced),
    /// The mask of elements to keep.
    Mask(Traced),
}

fn draw_mask(b: &mut dyn Build, c: &Call<Traced>, feature: bool) -> OpResult<Draw> {
    let (x, p) = (c.leaf("input")?, dropout_probability(c)?);
    if !c.bool("train")? || p == 0.0 {
        return Ok(Draw::Needless(x.clone()));
    }
    if p == 1.0 {
        return b.mul(x, Val::int(0)).map(Draw::Needless);
    }
    let shape = if feature {
        feature_shape(x)?
    } else {
        x.shape()?.to_vec()
    };
    keep_mask(b, x, &shape, p).map(Draw::Mask)
}

fn plain_dropout(b: &mut dyn Build, c: &Call<Traced>, feature: bool) -> OpResult<Val<Traced>> {
    let (x, p, mask) = match draw_mask(b, c, feature)? {
        Draw::Needless(result) => return Ok(result.into()),
        Draw::Mask(mask) => (c.leaf("input")?, dropout_probability(c)?, mask),
    };
    let mask = b.div(&mask, Val::Float(1.0 - p))?;
    b.mul(x, &mask).map(Val::Leaf)
}

fn native_dropout(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, p) = (c.leaf("input")?, dropout_probability(c)?);
    let train = c.is_none("train") || c.bool("train")?;
    if !train || p == 0.0 {
        let ones = b.full(x.shape()?, Val::Bool(true), DType::B8)?;
        return Ok(Val::Tuple(vec![b.clone(x)?.into(), ones.into()]));
    }
    let mask = keep_mask(b, x, x.shape()?, p)?;
    let scale = if p == 1.0 { 0.0 } else { 1.0 / (1.0 - p) };
    let y = b.mul(x, &mask)?;
    let y = b.mul(&y, Val::Float(scale))?;
    let mask = b.to_dtype(&mask, DType::B8)?;
    Ok(Val::Tuple(vec![y.into(), mask.into()]))
}

/// `a * (x * mask + ALPHA * a * (mask - 1)) + ALPHA * a * p`, as in torch's `Dropout.cpp`.
fn alpha_dropout(b: &mut dyn Build, c: &Call<Traced>, feature: bool) -> OpResult<Val<Traced>> {
    let (x, p, mask) = match draw_mask(b, c, feature)? {
        Draw::Needless(result) => return Ok(result.into()),
        Draw::Mask(mask) => (c.leaf("input")?, dropout_probability(c)?, mask),
    };
    let a = 1.0 / ((ALPHA * ALPHA * p + 1.0) * (1.0 - p)).sqrt();
    let dropped = b.add(&mask, Val::Float(-1.0))?;
    let dropped = b.mul(&dropped, Val::Float(ALPHA * a))?;
    let dropped = b.add(&dropped, Val::Float(ALPHA * a * p))?;
    let scaled = b.mul(&mask, Val::Float(a))?;
    let y = b.mul(x, &scaled)?;
    b.add(&y, &dropped).map(Val::Leaf)
}

fn stochastic_depth(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, p) = (c.leaf("input")?, dropout_probability(c)?);
    let mode = c.str("mode")?;
    if mode != "batch" && mode != "row" {
        return Err(OpError::arg(
            "mode",
            format!("mode has to be either 'batch' or 'row', but got {mode}"),
        ));
    }
    if !c.bool("training")? || p == 0.0 {
        return Ok(x.into());
    }
    let mut shape = vec![Dim::Const(1); x.rank()?];
    if let (Some(slot), Some(n), "row") = (shape.first_mut(), x.shape()?.first(), mode) {
        *slot = n.clone();
    }
    let mask = keep_mask(b, x, &shape, p)?;
    let mask = if p < 1.0 {
        b.div(&mask, Val::Float(1.0 - p))?
    } else {
        mask
    };
    b.mul(x, &mask).map(Val::Leaf)
}
