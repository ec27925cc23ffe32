//! Random tensors, drawn from the stream in [`crate::op::random`], with the same values as in torch.

mod distributions;
mod dropout;
mod gumbel;
mod multinomial;

use crate::op::pointwise::not_implemented;
use crate::op::random::{self, Generator};
use crate::op::rows::creation::size_arg;
use crate::op::rows::dense::zeros;
use crate::op::{Call, DrawOrder, Effect, Meaning, MemoryOrder, Op, OpError, OpResult};
use crate::parallel::Pool;
use crate::tensor::{Scalar, Tensor, ViewMut, byte_len};
use crate::types::{DType, Dim, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    let random = [float_rows(), integer_rows(), bounded_integer_rows(), fill_rows()]
        .into_iter()
        .flatten();
    let rest = [distributions::rows(), gumbel::rows(), dropout::rows()];
    random
        .map(|op| op.effect(Effect::Random))
        .chain(rest.into_iter().flatten())
        .collect()
}

/// The result type: the given `size` or else the tensor's shape; the given `dtype`, else the tensor's, else the
/// default.
fn random_type(c: &Call<TensorType>, default: DType) -> OpResult<TensorType> {
    let has = |name| c.op.schema.index_of(name).is_some();
    let like = c.args.iter().find_map(Val::as_leaf);
    let requested = if has("dtype") { c.opt_dtype("dtype") } else { None };
    let dtype = requested.or(like.map(|t| t.dtype)).unwrap_or(default);
    if !dtype.is_computed() {
        return Err(not_implemented(c.op.name, dtype));
    }
    let shape = match (has("size"), like) {
        (true, _) => Some(size_arg(c)?),
        (false, Some(t)) => t.shape.clone(),
        (false, None) => Some(c.dims("n")?),
    };
    Ok(TensorType { dtype, shape })
}

pub(in crate::op::rows) fn float_type(c: &Call<TensorType>) -> OpResult<Type> {
    let t = random_type(c, DType::F32)?;
    match t.dtype.is_float() {
        true => Ok(Val::Leaf(t)),
        false => Err(not_implemented(kernel_name(c.op.name), t.dtype)),
    }
}

/// The name of torch's kernel for an op.
fn kernel_name(op: &str) -> &'static str {
    match op {
        "rand" | "rand_like" | "uniform" => "check_uniform_bounds",
        "exponential" => "exponential_cpu",
        _ => "normal_kernel_cpu",
    }
}

/// The dtype, the sizes and the number of elements of the call's result.
pub(in crate::op::rows) fn result_spec(c: &Call<Tensor>) -> OpResult<(DType, Vec<usize>, usize)> {
    let ty = c.op.result_type(&c.map(Tensor::ty), &mut Default::default())?;
    let t = ty.as_leaf().and_then(|t| Some((t.dtype, t.fixed_shape()?)));
    let (dtype, shape) = t.ok_or_else(|| OpError::shape(format!("the sizes of `{}` are unknown", c.op.name)))?;
    let bytes = byte_len(dtype, &shape).ok_or_else(|| OpError::shape("the result's size in bytes overflows"))?;
    let n = bytes / dtype.size();
    Ok((dtype, shape, n))
}

/// A tensor of the call's type whose elements are drawn one by one.
pub(in crate::op::rows) fn draw_elements(
    c: &Call<Tensor>,
    draw: &mut dyn FnMut(&mut Generator, DType) -> Scalar,
) -> OpResult<Val<Tensor>> {
    let (dtype, shape, _) = result_spec(c)?;
    let t = random::with_stream(|g| Tensor::from_fn(dtype, &shape, |_| draw(g, dtype)));
    Ok(Val::Leaf(t))
}

fn fill_unit(_: &Call<Tensor>, outs: &mut [ViewMut<'_>], _: &Pool) -> OpResult<()> {
    random::with_stream(|g| g.fill_uniform(&mut outs[0], 0.0, 1.0));
    Ok(())
}

fn fill_standard_normal(_: &Call<Tensor>, outs: &mut [ViewMut<'_>], _: &Pool) -> OpResult<()> {
    random::with_stream(|g| g.fill_normal(&mut outs[0], 0.0, 1.0));
    Ok(())
}

fn float_rows() -> Vec<Op> {
    vec![
        Op::new(
            "rand(SymInt[] size, *, ScalarType? dtype=None) -> Tensor",
            |c, _| float_type(c),
            Meaning::Fill(fill_unit),
        )
        .doc("uniform random numbers in [0, 1)")
        .spelled("aten.@ aten.@.generator torch.@"),
        Op::new(
            "rand_like(Tensor self, *, ScalarType? dtype=None) -> Tensor",
            |c, _| float_type(c),
            Meaning::Fill(fill_unit),
        )
        .order(MemoryOrder::Operands)
        .draws(DrawOrder::OfOperand)
        .doc("uniform random numbers in [0, 1), with self's shape")
        .spelled("aten.@ aten.@.generator torch.@"),
        Op::new(
            "randn(SymInt[] size, *, ScalarType? dtype=None) -> Tensor",
            |c, _| float_type(c),
            Meaning::Fill(fill_standard_normal),
        )
        .doc("standard normal random numbers")
        .spelled("aten.@ aten.@.generator torch.@"),
        Op::new(
            "randn_like(Tensor self, *, ScalarType? dtype=None) -> Tensor",
            |c, _| float_type(c),
            Meaning::Fill(fill_standard_normal),
        )
        .order(MemoryOrder::Operands)
        .doc("standard normal random numbers, with self's shape")
        .spelled("aten.@ aten.@.generator torch.@"),
    ]
}

fn integer_type(c: &Call<TensorType>) -> OpResult<Type> {
    if c.op.schema.index_of("high").is_some() {
        some_between(c.int("low")?, c.int("high")?)?;
    }
    random_type(c, DType::I64).map(Val::Leaf)
}

fn draw_integers(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], _: &Pool) -> OpResult<()> {
    draw_between(outs, c.int("low")?, c.int("high")?)
}

fn draw_between(outs: &mut [ViewMut<'_>], low: i64, high: i64) -> OpResult<()> {
    some_between(low, high)?;
    random::with_stream(|g| g.fill_integers(&mut outs[0], low, high.wrapping_sub(low) as u64));
    Ok(())
}

/// Returns an error if there is no integer from `low` up to but excluding `high`.
fn some_between(low: i64, high: i64) -> OpResult<()> {
    match low < high {
        true => Ok(()),
        false => Err(OpError::arg(
            "high",
            format!("random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"),
        )),
    }
}

fn draw_permutation(_: &Call<Tensor>, outs: &mut [ViewMut<'_>], _: &Pool) -> OpResult<()> {
    let dtype = outs[0].dtype();
    if dtype == DType::I64 {
        random::with_stream(|g| g.fill_permutation(outs[0].as_mut_slice()));
        return Ok(());
    }
    let mut order = zeros(DType::I64, outs[0].shape())?;
    random::with_stream(|g| g.fill_permutation(order.as_mut_slice()));
    outs[0].fill_from(&order.to(dtype));
    Ok(())
}

fn integer_rows() -> Vec<Op> {
    vec![
        Op::new(
            "randint(SymInt low, SymInt high, SymInt[] size, *, ScalarType? dtype=None) -> Tensor",
            |c, _| integer_type(c),
            Meaning::Fill(draw_integers),
        )
        .doc("uniform random integers from low to high, exclusive")
        .spelled("aten.@.low aten.@.low_generator torch.@")
        .form_with(
            "aten.randint.default aten.randint.generator torch.randint",
            "randint(SymInt high, SymInt[] size, *, ScalarType? dtype=None) -> Tensor",
            &[("low", Val::Int(Dim::Const(0)))],
        ),
        Op::new(
            "randint_like(Tensor self, SymInt low, SymInt high, *, ScalarType? dtype=None) -> Tensor",
            |c, _| integer_type(c),
            Meaning::Fill(draw_integers),
        )
        .order(MemoryOrder::Operands)
        .draws(DrawOrder::OfOperand)
        .doc("uniform random integers from low to high, exclusive, with self's shape")
        .spelled("aten.@.low_dtype aten.@.low_generator_dtype torch.@")
        .form_with(
            "aten.randint_like.default aten.randint_like.generator torch.randint_like",
            "randint_like(Tensor self, SymInt high, *, ScalarType? dtype=None) -> Tensor",
            &[("low", Val::Int(Dim::Const(0)))],
        ),
    ]
}

/// Integers below a bound that is in a tensor, and permutations.
fn bounded_integer_rows() -> Vec<Op> {
    vec![
        Op::new(
            "randint_like_below(Tensor self, Tensor high, *, ScalarType? dtype=None) -> Tensor",
            |c, _| match c.leaf("high")?.rank() {
                Some(0) | None => random_type(c, DType::I64).map(Val::Leaf),
                Some(_) => Err(OpError::arg("high", "Expected a scalar tensor")),
            },
            Meaning::Fill(|c, outs, _| draw_between(outs, 0, c.leaf("high")?.get(0).to_i64())),
        )
        .order(MemoryOrder::Operands)
        .draws(DrawOrder::OfOperand)
        .doc("uniform random integers from 0 to a number in a tensor, exclusive, with self's shape")
        .spelled("aten.randint_like.Tensor aten.randint_like.Tensor_generator torch.randint_like"),
        Op::new(
            "randperm(SymInt n, *, ScalarType? dtype=None) -> Tensor",
            |c, _| match c.dims("n")?[0].as_const() {
                Some(n) if n < 0 => Err(OpError::arg("n", format!("n must be non-negative, got {n}"))),
                _ => random_type(c, DType::I64).map(Val::Leaf),
            },
            Meaning::Fill(draw_permutation),
        )
        .doc("a random permutation of 0, 1, … n - 1")
        .spelled("aten.@ aten.@.generator torch.@"),
    ]
}

fn fill_rows() -> Vec<Op> {
    vec![bernoulli_row(), uniform_row(), normal_row(), exponential_row()]
}

fn bernoulli_row() -> Op {
    Op::new(
        "bernoulli(Tensor self, float? p=None) -> Tensor",
        |c, _| random_type(c, DType::F32).map(Val::Leaf),
        Meaning::Fill(bernoulli),
    )
    .draws(DrawOrder::InPlace)
    .doc("Bernoulli random numbers with probability p, or with self's elements as probabilities")
    .form(
        "aten.bernoulli.default torch.bernoulli Tensor.bernoulli",
        "bernoulli(Tensor self) -> Tensor",
    )
    .form(
        "aten.bernoulli.p torch.bernoulli Tensor.bernoulli",
        "bernoulli(Tensor self, float p) -> Tensor",
    )
    .inplace_form(
        "aten.bernoulli_.float Tensor.bernoulli_",
        "bernoulli_(Tensor self, float p=0.5) -> Tensor",
    )
}

fn uniform_row() -> Op {
    Op::new(
        "uniform(Tensor self, float from=0., float to=1.) -> Tensor",
        |c, _| float_type(c),
        Meaning::Fill(|c, outs, _| {
            let (a, b) = (c.f64("from")?, c.f64("to")?);
            if a > b {
                return Err(OpError::arg(
                    "from",
                    format!("uniform_ expects to return a [from, to) range, but found from={a} > to={b}"),
                ));
            }
            random::with_stream(|g| g.fill_uniform(&mut outs[0], a, b));
            Ok(())
        }),
    )
    .draws(DrawOrder::InPlace)
    .doc("uniform random numbers between two bounds, with self's shape")
    .spelled("aten.@")
    .inplace("aten.@_ Tensor.@_")
    .inplace_form(
        "torch.nn.init.uniform_",
        "uniform_(Tensor self, float a=0.0, float b=1.0, Generator? generator=None) -> Tensor",
    )
}

fn normal_row() -> Op {
    Op::new(
        "normal_like(Tensor self, float mean=0., float std=1.) -> Tensor",
        |c, _| float_type(c),
        Meaning::Fill(|c, outs, _| {
            let (mean, std) = (c.f64("mean")?, c.f64("std")?);
            if std < 0.0 {
                return Err(OpError::arg(
                    "std",
                    format!("normal expects std >= 0.0, but found std {std}"),
                ));
            }
            random::with_stream(|g| g.fill_normal(&mut outs[0], mean, std));
            Ok(())
        }),
    )
    .order(MemoryOrder::Operands)
    .doc("normal random numbers, with self's shape")
    .spelled("aten.normal_functional.default aten.normal.out")
    .inplace("aten.normal_.default Tensor.normal_")
    .inplace_form(
        "torch.nn.init.normal_",
        "normal_(Tensor self, float mean=0.0, float std=1.0, Generator? generator=None) -> Tensor",
    )
}

fn exponential_row() -> Op {
    Op::new(
        "exponential(Tensor self, float lambd=1.) -> Tensor",
        |c, _| float_type(c),
        Meaning::Fill(|c, outs, _| {
            let lambda = c.f64("lambd")?;
            if lambda <= 0.0 {
                return Err(OpError::arg(
                    "lambd",
                    format!("exponential_ expects lambda > 0.0, but found lambda={lambda}"),
                ));
            }
            random::with_stream(|g| g.fill_exponential(&mut outs[0], lambda));
            Ok(())
        }),
    )
    .draws(DrawOrder::InPlace)
    .doc("exponential random numbers, with self's shape")
    .spelled("aten.@")
    .inplace("aten.@_ Tensor.@_")
}

fn bernoulli(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], _: &Pool) -> OpResult<()> {
    let t = c.leaf("self")?;
    let p = if c.is_none("p") { None } else { Some(c.f64("p")?) };
    let valid = |p: f64| (0.0..=1.0).contains(&p);
    let bad = match (p, t.dtype()) {
        (Some(p), _) => (!valid(p)).then_some(p),
        (None, DType::F64) => t.as_slice::<f64>().iter().copied().find(|&p| !valid(p)),
        (None, _) => {
            let p = t.to(DType::F32);
            p.as_slice::<f32>().iter().map(|&p| p as f64).find(|&p| !valid(p))
        }
    };
    if let Some(p) = bad {
        return Err(OpError::value(format!(
            "bernoulli_ expects p to be in [0, 1], but got p={p}"
        )));
    }
    random::with_stream(|g| match p {
        Some(p) => g.fill_bernoulli(&mut outs[0], p),
        None => g.fill_bernoulli_each(&mut outs[0], t),
    });
    Ok(())
}
