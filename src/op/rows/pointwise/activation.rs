//! Activation functions.

use super::select::effective_bounds;
use crate::op::pointwise::{call_dtypes, number_of, pointwise, pointwise_by};
use crate::op::sharing::always_shared;
use crate::op::{Build, Call, DtypeRule as D, MemoryOrder, Op, OpBuilder, OpError, OpResult, Traced};
use crate::types::{DType, Dim, TensorType, Val};

pub(super) fn rows() -> Vec<Op> {
    [
        rectifier_rows(),
        leaky_rows(),
        clipped_rows(),
        gelu_rows(),
        sigmoid_weighted_rows(),
        log_sigmoid_rows(),
        exponential_rows(),
        shrink_rows(),
        prelu_rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// `F.relu(input, inplace=False)`.
macro_rules! functional {
    ($op:expr, $n:literal, $params:literal) => {
        $op.form(
            concat!("torch.nn.functional.", $n),
            concat!($n, "(Tensor input", $params, ", bool inplace=False) -> Tensor"),
        )
    };
}

/// A row with the ATen spellings and `torch.nn.functional`'s.
macro_rules! activation {
    ($n:literal, $params:literal, $rule:expr, $text:expr, $doc:literal) => {
        functional!(
            pointwise(($n, concat!($n, "(Tensor self", $params, ") -> Tensor")), $rule, $text),
            $n,
            $params
        )
        .doc($doc)
        .spelled(concat!("aten.", $n, ".default"))
        .inplace(concat!("aten.", $n, "_.default"))
    };
}

fn rectifier_rows() -> Vec<Op> {
    vec![
        activation!(
            "relu",
            "",
            D::NoBoolMessage("Boolean inputs not supported for relu"),
            "max(self, 0)",
            "self if it is positive (or NaN), else 0"
        )
        .clamps(|_| Some((0.0, f32::INFINITY)))
        .spelled("torch.relu Tensor.relu")
        .inplace("torch.relu_ torch.nn.functional.relu_ Tensor.relu_")
        .module("ReLU(inplace=False) = relu(input)"),
        activation!(
            "relu6",
            "",
            D::NoBoolMessage("Bool inputs not supported for hardtanh"),
            "min(max(self, 0), 6)",
            "self clamped to [0, 6]"
        )
        .clamps(|_| Some((0.0, 6.0)))
        .module("ReLU6(inplace=False) = relu6(input)"),
    ]
}

fn leaky_rows() -> Vec<Op> {
    vec![
        activation!(
            "leaky_relu",
            ", Scalar negative_slope=0.01",
            D::FloatOnly("leaky_relu_cpu"),
            "where(self > 0, self, self * negative_slope)",
            "self if it is positive, else self times the slope"
        )
        .inplace("torch.nn.functional.leaky_relu_")
        .module("LeakyReLU(negative_slope=0.01, inplace=False) = leaky_relu(input, negative_slope)"),
        activation!(
            "threshold",
            ", Scalar threshold, Scalar value",
            D::NoBool("threshold_cpu"),
            "where(self <= threshold, value, self)",
            "self if it is above the threshold, else the value"
        )
        .spelled("torch.threshold")
        .inplace("torch.threshold_ torch.nn.functional.threshold_")
        .shared_writes(always_shared)
        .module("Threshold(threshold, value, inplace=False) = threshold(input, threshold, value)"),
    ]
}

fn clipped_rows() -> Vec<Op> {
    let hardtanh = "hardtanh(Tensor self, float min_val=-1., float max_val=1.) -> Tensor";
    vec![
        functional!(
            pointwise_by(
                ("hardtanh", hardtanh),
                D::NoBoolMessage("Bool inputs not supported for hardtanh"),
                clip_text
            ),
            "hardtanh",
            ", float min_val=-1., float max_val=1."
        )
        .clamps(|c| Some((c.f64("min_val").ok()? as f32, c.f64("max_val").ok()? as f32)))
        .doc("self clamped between two bounds")
        .spelled("aten.hardtanh.default")
        .inplace("aten.hardtanh_.default")
        .inplace("torch.nn.functional.hardtanh_")
        .module("Hardtanh(min_val=-1.0, max_val=1.0, inplace=False) = hardtanh(input, min_val, max_val)"),
        activation!(
            "hardsigmoid",
            "",
            D::FloatOnly("hardsigmoid_cpu"),
            "min(max(self + 3, 0), 6) / 6",
            "relu6(self + 3) / 6"
        )
        .module("Hardsigmoid(inplace=False) = hardsigmoid(input)"),
        activation!(
            "hardswish",
            "",
            D::FloatOnly("hardswish_cpu"),
            "self * min(max(self + 3, 0), 6) / 6",
            "self * relu6(self + 3) / 6"
        )
        .module("Hardswish(inplace=False) = hardswish(input)"),
    ]
}

fn clip_text(c: &Call<TensorType>) -> OpResult<&'static str> {
    Ok(match effective_bounds(c, "min_val", "max_val")? {
        (true, true) => "min(max(self, min_val), max_val)",
        (true, false) => "max(self, min_val)",
        (false, true) => "min(self, max_val)",
        (false, false) => "self",
    })
}

/// Activations that multiply by a smooth gate, and softplus.
fn gelu_rows() -> Vec<Op> {
    vec![
        pointwise_by(
            "gelu(Tensor self, *, str approximate='none') -> Tensor",
            D::FloatOnly("GeluKernelImpl"),
            |c| match c.str("approximate")? {
                "none" => Ok("self * 0.5 * (1 + erf(self * sqrt(1 / 2)))"),
                "tanh" => Ok("0.5 * self * (1 + tanh(sqrt(2 / pi) * (self + 0.044715 * (self * self * self))))"),
                _ => Err(OpError::arg(
                    "approximate",
                    "approximate argument must be either none or tanh.",
                )),
            },
        )
        .doc("self times the normal cumulative distribution function of self, or its tanh approximation")
        .spelled("aten.@")
        .form(
            "torch.nn.functional.gelu",
            "gelu(Tensor input, str approximate='none') -> Tensor",
        )
        .inplace("aten.@_")
        .module("GELU(approximate='none') = gelu(input, approximate=approximate)"),
    ]
}

/// Activations that multiply by a smooth gate, and softplus.
fn sigmoid_weighted_rows() -> Vec<Op> {
    vec![
        activation!(
            "silu",
            "",
            D::FloatOnly("silu_cpu"),
            "self / (1 + exp(-self))",
            "self * sigmoid(self)"
        )
        .module("SiLU(inplace=False) = silu(input)"),
        activation!(
            "mish",
            "",
            D::FloatOnly("mish_cpu"),
            "self * tanh(log1p(exp(self)))",
            "self * tanh(softplus(self))"
        )
        .module("Mish(inplace=False) = mish(input)"),
        pointwise(
            "softplus(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor",
            D::FloatOnly("softplus_cpu"),
            "where(self * beta > threshold, self, log1p(exp(self * beta)) / beta)",
        )
        .doc("log(1 + exp(beta * self)) / beta; self above the threshold")
        .spelled("aten.@ torch.nn.functional.@")
        .module("Softplus(beta=1.0, threshold=20.0) = softplus(input, beta, threshold)"),
    ]
}

/// `log_sigmoid` and `softsign`.
fn log_sigmoid_rows() -> Vec<Op> {
    vec![
        pointwise(
            "log_sigmoid(Tensor self) -> Tensor",
            D::FloatOnly("log_sigmoid_cpu"),
            "min(self, 0) - log1p(exp(-abs(self)))",
        )
        .order(MemoryOrder::RowMajor)
        .doc("log(sigmoid(self))")
        .spelled("aten.@ torch.nn.functional.logsigmoid")
        .module("LogSigmoid() = log_sigmoid(input)"),
        Op::composite("log_sigmoid_forward(Tensor self) -> (Tensor, Tensor)", |b, c| {
            let x = c.leaf("self")?;
            let out = b.log_sigmoid(x)?;
            let size = b.abs(x)?;
            let power = b.neg(&size)?;
            let buffer = b.exp(&power)?;
            Ok(Val::Tuple(vec![out.into(), buffer.into()]))
        })
        .doc("log_sigmoid, and exp(-|self|) for its gradient")
        .spelled("aten.@"),
        Op::composite("softsign(Tensor self) -> Tensor", |b, c| {
            let size = b.abs(c.leaf("self")?)?;
            let divisor = b.add(&size, Val::int(1))?;
            Ok(b.div(c.leaf("self")?, &divisor)?.into())
        })
        .doc("self / (1 + |self|)")
        .spelled("torch.nn.functional.@")
        .module("Softsign() = softsign(input)"),
    ]
}

/// Exponential units: linear above zero, an exponential below.
fn exponential_rows() -> Vec<Op> {
    vec![
        activation!(
            "elu",
            ", Scalar alpha=1, Scalar scale=1, Scalar input_scale=1",
            D::FloatOnly("elu_cpu"),
            "where(self < 0, expm1(self * input_scale) * (alpha * scale), self * scale)",
            "scale * self, or scale * alpha * expm1(input_scale * self) if self is negative"
        )
        .form(
            "torch.nn.functional.elu",
            "elu(Tensor input, float alpha=1., bool inplace=False) -> Tensor",
        )
        .inplace_form(
            "torch.nn.functional.elu_",
            "elu(Tensor input, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor",
        )
        .module("ELU(alpha=1.0, inplace=False) = elu(input, alpha)"),
        activation!(
            "selu",
            "",
            D::FloatOnly("elu_cpu"),
            "where(self < 0, expm1(self) * (1.6732632423543772 * 1.0507009873554805), self * 1.0507009873554805)",
            "elu with the constants of self-normalising networks"
        )
        .spelled("torch.selu")
        .inplace("torch.selu_ torch.nn.functional.selu_")
        .module("SELU(inplace=False) = selu(input)"),
        activation!(
            "celu",
            ", Scalar alpha=1.",
            D::FloatOnly("elu_cpu"),
            "where(self < 0, expm1(self * (1 / alpha)) * alpha, self)",
            "self, or alpha * expm1(self / alpha) if it is negative"
        )
        .spelled("torch.celu")
        .inplace("torch.celu_ torch.nn.functional.celu_")
        .module("CELU(alpha=1.0, inplace=False) = celu(input, alpha)"),
    ]
}

fn shrink_rows() -> Vec<Op> {
    vec![
        pointwise(
            "hardshrink(Tensor self, Scalar lambd=0.5) -> Tensor",
            D::FloatOnly("hardshrink_cpu"),
            "l = rounded(lambd); where((self >= -l) & (self <= l), 0, self)",
        )
        .doc("0 if |self| <= lambd, else self")
        .spelled("aten.@ torch.@ torch.nn.functional.@ Tensor.@")
        .module("Hardshrink(lambd=0.5) = hardshrink(input, lambd)"),
        pointwise_by(
            "softshrink(Tensor self, Scalar lambd=0.5) -> Tensor",
            D::FloatOnly("softshrink_check"),
            |c| match number_of(c.get("lambd")).map(|n| n.to_f64()) {
                Some(l) if l < 0.0 => Err(OpError::arg(
                    "lambd",
                    format!("lambda must be greater or equal to 0, but found to be {l}"),
                )),
                // For -0.0 in f32 and f64, torch's vectorised kernel returns 0.0.
                _ => Ok(match call_dtypes(c)?.common {
                    DType::F32 | DType::F64 => {
                        "l = rounded(lambd); where(self > l, self - l, where(self < -l, self + l, where(isnan(self), \
                         self, 0)))"
                    }
                    _ => "l = rounded(lambd); where(self > l, self - l, where(self < -l, self + l, self * 0))",
                }),
            },
        )
        .doc("self moved towards 0 by lambd; 0 if |self| <= lambd")
        .spelled("aten.@ torch.nn.functional.@")
        .module("Softshrink(lambd=0.5) = softshrink(input, lambd)"),
        Op::composite("tanhshrink(Tensor self) -> Tensor", |b, c| {
            let tanh = b.tanh(c.leaf("self")?)?;
            Ok(b.sub(c.leaf("self")?, &tanh)?.into())
        })
        .doc("self - tanh(self)")
        .spelled("torch.nn.functional.@")
        .module("Tanhshrink() = tanhshrink(input)"),
    ]
}

fn prelu_rows() -> Vec<Op> {
    vec![
        pointwise(
            "_prelu_kernel(Tensor self, Tensor weight) -> Tensor",
            D::Same("prelu_cpu"),
            "where(self > 0, self, self * weight)",
        )
        .doc("self if it is positive, else self times the weight")
        .spelled("aten.@"),
        Op::composite("prelu(Tensor self, Tensor weight) -> Tensor", prelu)
            .doc("self if it is positive, else self times the channel's weight; channels are dim 1")
            .spelled("aten.@ torch.@ Tensor.@ torch.nn.functional.@")
            .module("PReLU(num_parameters=1, init=0.25) = prelu(input, @weight[num_parameters])"),
    ]
}

fn prelu(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, w) = (c.leaf("self")?, c.leaf("weight")?);
    let weights = w.ty.numel();
    let rank = x.rank()?;
    if w.rank()? > 1 {
        return Err(OpError::shape(format!(
            "prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {}",
            w.rank()?
        )));
    }
    let mut shape = vec![Dim::Const(1); rank];
    if weights.as_const() != Some(1) {
        let channels = x.shape()?.get(1).cloned().unwrap_or(Dim::Const(1));
        if let (Some(n), Some(m)) = (weights.as_const(), channels.as_const())
            && n != m
        {
            return Err(OpError::shape(format!(
                "Mismatch of parameter numbers and input channel size. Found parameter numbers = {n} and channel size \
                 = {m}."
            )));
        }
        if rank >= 2 {
            shape[1] = weights;
        }
    }
    let w = b.view(w, crate::op::emit::dims_val(&shape))?;
    Ok(b._prelu_kernel(x, &w)?.into())
}
