//! Random tensors of further distributions, including those whose parameters are tensors.

use super::multinomial::{multinomial, multinomial_type};
use super::{draw_elements, float_type};
use crate::op::emit::dims_val;
use crate::op::random;
use crate::op::{Build, Call, DrawOrder, Effect, Meaning, Op, OpBuilder, OpError, OpId, OpResult, Sizes, Traced};
use crate::parallel::Pool;
use crate::tensor::{Scalar, Tensor, ViewMut};
use crate::types::{DType, Dim, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    let rows = [
        normal_rows(),
        count_rows(),
        fill_rows(),
        cauchy_rows(),
        log_normal_rows(),
        bounded_rows(),
        bernoulli_rows(),
    ]
    .into_iter()
    .flatten();
    rows.map(|op| op.effect(Effect::Random)).collect()
}

/// Forms of random ops with bounds, and with probabilities in addition to the tensor.
fn bounded_rows() -> Vec<Op> {
    vec![
        Op::composite("random_between(Tensor self, int from, int? to) -> Tensor", |b, c| {
            if c.is_none("to") {
                return b.call(OpId::RandomFrom, vec![c.get("self").clone(), c.get("from").clone()]);
            }
            b.call(
                OpId::RandintLike,
                vec![c.get("self").clone(), c.get("from").clone(), c.get("to").clone()],
            )
        })
        .draws(DrawOrder::InPlace)
        .doc("uniform random integers between two bounds, with self's shape")
        .spelled("aten.random.from")
        .inplace("aten.random_.from")
        .form_with(
            "aten.random.to",
            "random(Tensor self, int to) -> Tensor",
            &[("from", Val::Int(Dim::Const(0)))],
        )
        .inplace_form_with(
            "aten.random_.to Tensor.random_",
            "random(Tensor self, int to) -> Tensor",
            &[("from", Val::Int(Dim::Const(0)))],
        )
        .inplace_form("Tensor.random_", "random(Tensor self, int from, int? to) -> Tensor"),
        Op::new(
            "random_from(Tensor self, int from) -> Tensor",
            same_type,
            Meaning::Routine(from_bound),
        )
        .doc("uniform random integers from a lower bound up to the largest of the dtype, with self's shape"),
    ]
}

fn bernoulli_rows() -> Vec<Op> {
    vec![
        Op::composite("bernoulli_with(Tensor self, Tensor p) -> Tensor", |b, c| {
            let (x, p) = (c.leaf("self")?, c.leaf("p")?);
            let p = b.expand(p, x.shape()?)?;
            let out = b.bernoulli(p)?;
            b.to_dtype(&out, x.dtype()).map(Val::Leaf)
        })
        .doc("Bernoulli random numbers with probabilities from a tensor, with self's shape")
        .spelled("aten.bernoulli.Tensor")
        .inplace("aten.bernoulli_.Tensor Tensor.bernoulli_"),
    ]
}

/// The number of significant bits of a float dtype.
fn mantissa_digits(dtype: DType) -> u32 {
    match dtype {
        DType::F64 => 53,
        DType::F32 => 24,
        DType::F16 => 11,
        _ => 8,
    }
}

/// The least integer from `from` on that the float dtype represents (torch's `update_from`).
fn held_from(dtype: DType, from: i64) -> i64 {
    let next = Scalar::Int(DType::I64, from.saturating_add(1)).cast(dtype).to_i64();
    if next >= from {
        return from;
    }
    let digits = mantissa_digits(dtype);
    let top = from.saturating_add(1).unsigned_abs().ilog2();
    next.saturating_add(1i64 << (top + 1).saturating_sub(digits).min(62))
}

/// torch's `random_(from)`. The upper bound is the largest integer of the dtype; for floats, the bound up to which they
/// represent all integers.
fn from_bound(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (from, dtype) = (c.int("from")?, c.leaf("self")?.dtype());
    let (low, high) = match dtype {
        DType::F64 | DType::F32 | DType::BF16 => (i64::MIN, 1 << mantissa_digits(dtype)),
        DType::F16 => (-65504, 1 << mantissa_digits(dtype)),
        DType::I64 => (i64::MIN, i64::MAX),
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        DType::I16 => (i16::MIN.into(), i16::MAX.into()),
        DType::I8 => (i8::MIN.into(), i8::MAX.into()),
        DType::U8 => (0, u8::MAX.into()),
        _ => (0, 1),
    };
    let from = match dtype.is_float() && from != i64::MIN {
        true => held_from(dtype, from),
        false => from,
    };
    if !(low..=high).contains(&from) {
        return Err(OpError::arg(
            "from",
            format!("from is out of bounds for {}", dtype.scalar_type_name()),
        ));
    }
    let span = high.wrapping_sub(from).wrapping_add(1) as u64;
    draw_elements(c, &mut |g, _| Scalar::Int(DType::I64, g.integer_in_span(from, span)))
}

/// The type rule of a result with the operand's type.
fn same_type(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<Type> {
    Ok(Val::Leaf(c.leaf("self")?.clone()))
}

/// Ops that fill a tensor's shape.
fn fill_rows() -> Vec<Op> {
    vec![
        Op::new(
            "geometric(Tensor self, float p) -> Tensor",
            same_type,
            Meaning::Routine(|c| {
                let p = c.f64("p")?;
                if !(0.0 < p && p < 1.0) {
                    let title = format!("geometric_ expects p to be in (0, 1), but got p={p}");
                    return Err(OpError::arg("p", title));
                }
                draw_elements(c, &mut |g, _| {
                    Scalar::F64((g.unit_interval(DType::F64).ln() / (-p).ln_1p()).ceil())
                })
            }),
        )
        .draws(DrawOrder::InPlace)
        .doc("geometric random numbers: the number of trials of probability p until one succeeds, with self's shape")
        .spelled("aten.@")
        .inplace("aten.@_ Tensor.@_"),
    ]
}

fn cauchy_rows() -> Vec<Op> {
    vec![
        Op::new(
            "cauchy(Tensor self, float median=0., float sigma=1.) -> Tensor",
            |c, _| float_type(c),
            Meaning::Routine(|c| {
                let (median, sigma) = (c.f64("median")?, c.f64("sigma")?);
                if sigma <= 0.0 {
                    let title = format!("cauchy_ expects sigma > 0.0, but found sigma={sigma}");
                    return Err(OpError::arg("sigma", title));
                }
                draw_elements(c, &mut |g, _| {
                    let u = g.unit_interval(DType::F64).clamp(f64::EPSILON, 1.0 - f64::EPSILON);
                    Scalar::F64(median + sigma * (std::f64::consts::PI * (u - 0.5)).tan())
                })
            }),
        )
        .draws(DrawOrder::InPlace)
        .doc("Cauchy random numbers, with self's shape")
        .spelled("aten.@")
        .inplace("aten.@_ Tensor.@_"),
    ]
}

/// `log_normal`, and integers that the dtype represents exactly.
fn log_normal_rows() -> Vec<Op> {
    vec![
        Op::new(
            "log_normal(Tensor self, float mean=1., float std=2.) -> Tensor",
            |c, _| float_type(c),
            Meaning::Routine(|c| {
                let (mean, std) = (c.f64("mean")?, c.f64("std")?);
                if std <= 0.0 {
                    let title = format!("log_normal_ expects std > 0.0, but found std={std}");
                    return Err(OpError::arg("std", title));
                }
                draw_elements(c, &mut |g, _| Scalar::F64(g.normal().mul_add(std, mean).exp()))
            }),
        )
        .draws(DrawOrder::InPlace)
        .doc("log-normal random numbers, with self's shape")
        .spelled("aten.@")
        .inplace("aten.@_ Tensor.@_"),
        Op::new(
            "random_whole(Tensor self) -> Tensor",
            same_type,
            Meaning::Routine(|c| draw_elements(c, &mut |g, d| Scalar::Int(DType::I64, g.exact_integer(d)))),
        )
        .draws(DrawOrder::InPlace)
        .doc("uniform random integers from 0 to the largest that the dtype represents exactly, with self's shape")
        .spelled("aten.random.default")
        .inplace("aten.random_.default Tensor.random_"),
    ]
}

/// Normal distributions whose parameters are in tensors.
fn normal_rows() -> Vec<Op> {
    vec![
        Op::composite("normal(Tensor mean, Tensor std) -> Tensor", |b, c| {
            let (mean, std) = (c.leaf("mean")?, c.leaf("std")?);
            let shape = Sizes::default().broadcast(mean.shape()?, std.shape()?)?;
            scaled_normal(b, &shape, mean.dtype(), mean.into(), std.into())
        })
        .doc("normal random numbers, each with its own mean and standard deviation")
        .spelled("aten.@.Tensor_Tensor torch.@"),
        Op::composite("normal_std(float mean, Tensor std) -> Tensor", |b, c| {
            let std = c.leaf("std")?;
            let shape = std.shape()?.to_vec();
            scaled_normal(b, &shape, std.dtype(), c.get("mean").clone(), std.into())
        })
        .doc("normal random numbers with a common mean")
        .spelled("aten.normal.float_Tensor torch.normal"),
        Op::composite("normal_mean(Tensor mean, float std=1.) -> Tensor", |b, c| {
            let mean = c.leaf("mean")?;
            let zeros = b.full(mean.shape()?, Val::Float(0.0), mean.dtype())?;
            // The deviation is passed to the draw, because torch multiplies in f64 for fewer than 16 elements.
            let x = b.op(OpId::NormalLike, [zeros.into(), Val::Float(0.0), c.get("std").clone()])?;
            b.add(x, mean).map(Val::Leaf)
        })
        .doc("normal random numbers with a common standard deviation")
        .spelled("aten.normal.Tensor_float torch.normal"),
        Op::composite(
            "normal_sized(float mean, float std, SymInt[] size, *, ScalarType? dtype=None) -> Tensor",
            |b, c| {
                let dtype = c.opt_dtype("dtype").unwrap_or(DType::F32);
                let zeros = b.full(&c.dims("size")?, Val::Float(0.0), dtype)?;
                b.call(
                    OpId::NormalLike,
                    vec![zeros.into(), c.get("mean").clone(), c.get("std").clone()],
                )
            },
        )
        .doc("normal random numbers")
        .spelled("aten.normal.float_float torch.normal"),
    ]
}

/// Distributions of counts and indices whose parameters are in a tensor.
fn count_rows() -> Vec<Op> {
    vec![
        Op::new(
            "poisson(Tensor self) -> Tensor",
            |c, _| float_type(c),
            Meaning::Fill(poisson),
        )
        .doc("Poisson random numbers with self's elements as means")
        .spelled("torch.@")
        .form(
            "aten.poisson.default",
            "poisson(Tensor self, Generator? generator=None) -> Tensor",
        ),
        Op::new(
            "multinomial(Tensor self, SymInt num_samples, bool replacement=False) -> Tensor",
            multinomial_type,
            Meaning::Fill(multinomial),
        )
        .doc("indices drawn from each row with its elements as weights")
        .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

/// `randn(shape) * std + mean`, in torch's order of operations.
fn scaled_normal(
    b: &mut dyn Build,
    shape: &[Dim],
    dtype: DType,
    mean: Val<Traced>,
    std: Val<Traced>,
) -> OpResult<Val<Traced>> {
    let normal = b.op(OpId::Randn, [dims_val(shape), Val::DType(dtype)])?;
    let x = b.mul(normal, std)?;
    b.add(x, mean).map(Val::Leaf)
}

fn poisson(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], _: &Pool) -> OpResult<()> {
    let t = c.leaf("self")?;
    // NaN is none either.
    let is_rate = |i: usize| t.get(i).to_f64() >= 0.0;
    let are_rates = match t.dtype() {
        DType::F32 => t.as_slice::<f32>().iter().all(|&x| x >= 0.0),
        _ => (0..t.numel()).all(is_rate),
    };
    if !are_rates {
        return Err(OpError::value("invalid Poisson rate, expected rate to be non-negative"));
    }
    random::with_stream(|g| g.fill_poisson(&mut outs[0], t));
    Ok(())
}
