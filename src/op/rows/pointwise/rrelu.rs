//! Randomised leaky ReLU.

use crate::op::pointwise::not_implemented;
use crate::op::random;
use crate::op::rows::spell::text;
use crate::op::{Build, Call, Effect, Meaning, MemoryOrder, Op, OpError, OpId, OpResult, Sizes, Traced};
use crate::tensor::Tensor;
use crate::types::{DType, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    let mut rows = vec![rrelu_row()];
    rows.extend(rrelu_with_noise());
    rows
}

fn rrelu_row() -> Op {
    let schema = "rrelu(Tensor self, Scalar lower=0.125, Scalar upper=0.33333333333333331, bool training=False) -> \
                  Tensor";
    let of_aten = "rrelu(Tensor self, Scalar lower=0.125, Scalar upper=0.33333333333333331, bool training=False, Generator? \
                   generator=None) -> Tensor";
    Op::composite(("rrelu", schema), rrelu_of)
        .order(MemoryOrder::RowMajor)
        .doc("leaky_relu with the mean of two slopes, or in training with random slopes between them")
        .spelled("torch.rrelu")
        .form("aten.rrelu.default", of_aten)
        .form(
            "torch.nn.functional.rrelu",
            "rrelu(Tensor input, float lower=0.125, float upper=0.3333333333333333, bool training=False, bool \
             inplace=False) -> Tensor",
        )
        .inplace("torch.rrelu_ torch.nn.functional.rrelu_")
        .inplace_form("aten.rrelu_.default", of_aten)
        .module("RReLU(lower=0.125, upper=0.3333333333333333, inplace=False) = rrelu(input, lower, upper, training)")
}

/// `rrelu` that also returns the slopes.
fn rrelu_with_noise() -> [Op; 2] {
    const PARAMS: &str = "Tensor self, Tensor noise, Scalar lower=0.125, Scalar upper=0.33333333333333331, bool training=False, \
                          Generator? generator=None";
    [
        Op::new(
            text!("rrelu_with_noise_functional({PARAMS}) -> (Tensor, Tensor)"),
            noise_type,
            Meaning::Routine(eval_noisy_rrelu),
        )
        .doc("rrelu, and the slope that each element was multiplied by in training")
        .spelled("aten.@")
        .effect(Effect::Random),
        Op::composite(text!("rrelu_with_noise({PARAMS}) -> Tensor"), |b, c| {
            if !c.bool("training")? {
                let slope = Val::Float((c.f64("lower")? + c.f64("upper")?) / 2.0);
                return b.op(OpId::LeakyRelu, [c.leaf("self")?.into(), slope]).map(Val::Leaf);
            }
            // The slopes would have to be written to `noise`.
            Err(OpError::arg(
                "training",
                "rrelu_with_noise in training writes to its argument `noise`, which is not supported",
            )
            .help("use `rrelu_with_noise_functional`, which returns the new value"))
        })
        .doc("rrelu in evaluation")
        .spelled("aten.@"),
    ]
}

fn noise_type(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Type> {
    let x = c.leaf("self")?;
    let noise = c.leaf("noise")?;
    if !x.dtype.is_float() {
        return Err(not_implemented("rrelu_with_noise_out_cpu", x.dtype));
    }
    if let (Some(a), Some(b)) = (&x.shape, &noise.shape)
        && c.bool("training")?
    {
        if a.len() != b.len() {
            return Err(OpError::shape(format!(
                "noise tensor shape must match self tensor shape. Got {} and {}",
                x, noise
            )));
        }
        for (a, b) in a.iter().zip(b) {
            s.unify_dims(a, b, || "`noise` must have the same sizes as `self`".into())?;
        }
    }
    Ok(Val::Tuple(vec![Val::Leaf(x.clone()), Val::Leaf(noise.clone())]))
}

/// As in torch's kernel, draws one number for each element that is not positive, in order.
fn eval_noisy_rrelu(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (x, noise, lower, upper) = (c.leaf("self")?, c.leaf("noise")?, c.f64("lower")?, c.f64("upper")?);
    let wide = x.to(DType::F64);
    let numbers = wide.as_slice::<f64>();
    let mut slopes = vec![(lower + upper) / 2.0; x.numel()];
    let training = c.bool("training")?;
    if training {
        random::with_stream(|g| {
            for (i, slope) in slopes.iter_mut().enumerate() {
                *slope = if numbers[i] <= 0.0 {
                    g.uniform(DType::F64, lower, upper)
                } else {
                    1.0
                };
            }
        });
    }
    let slopes = Tensor::from_slice(x.shape(), &slopes).to(x.dtype());
    let rounded = slopes.to(DType::F64);
    let scaled = |(&v, slope): (&f64, &f64)| if v <= 0.0 { v * slope } else { v };
    let out: Vec<f64> = numbers.iter().zip(rounded.as_slice::<f64>()).map(scaled).collect();
    let out = Tensor::from_slice(x.shape(), &out).to(x.dtype());
    let noise = if training {
        slopes.to(noise.dtype())
    } else {
        noise.clone()
    };
    Ok(Val::Tuple(vec![Val::Leaf(out), Val::Leaf(noise)]))
}

fn rrelu_of(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, lower, upper) = (c.leaf("self")?, c.f64("lower")?, c.f64("upper")?);
    if !c.bool("training")? {
        let slope = Val::Float((lower + upper) / 2.0);
        return b.op(OpId::LeakyRelu, [x.into(), slope]).map(Val::Leaf);
    }
    let noise = b.full(x.shape()?, Val::int(0), x.dtype())?;
    let bounds = [Val::Float(lower), Val::Float(upper), Val::Bool(true)];
    let results = b.call_many(
        OpId::RreluWithNoiseFunctional,
        [vec![x.into(), noise.into()], bounds.to_vec()].concat(),
    )?;
    let out = results.into_iter().next();
    out.map(Val::Leaf)
        .ok_or_else(|| OpError::arg("self", "rrelu returns a tensor"))
}
