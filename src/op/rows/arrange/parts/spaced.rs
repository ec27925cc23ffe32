//! Evenly spaced numbers between bounds that are tensors.

use crate::op::{Build, Call, Op, OpBuilder, OpError, OpResult, Traced, wrap_dim};
use crate::types::{DType, Dim, Val};

/// Overloads that take tensors where numbers are usual.
pub(super) fn by_tensors() -> Vec<Op> {
    vec![
        Op::composite(
            "narrow_at(Tensor self, int dim, Tensor start, SymInt length) -> Tensor",
            |b, c| {
                let (x, start) = (c.leaf("self")?, c.leaf("start")?);
                let dim = wrap_dim(c.int("dim")?, x.rank()?)?;
                if start.ty.numel().as_const().is_some_and(|n| n != 1) || !start.dtype().is_int() {
                    return Err(OpError::arg("start", "start must be an 0-dim integral Tensor."));
                }
                let Some(size) = x.shape()?.get(dim).cloned() else {
                    return Err(OpError::shape("narrow() cannot be applied to a 0-dim tensor."));
                };
                let start = b.reshape(start, &[Dim::Const(1)])?;
                let start = b.to_dtype(&start, DType::I64)?;
                let negative = b.lt(&start, Val::int(0))?;
                let wrapped = b.add(&start, Val::Int(size))?;
                let start = b.r#where(negative, wrapped, start)?;
                let places = b.arange(Val::int(0), Val::Int(c.dims("length")?[0].clone()))?;
                let places = b.add(&places, &start)?;
                b.index_select(x, Val::int(dim as i64), places).map(Val::Leaf)
            },
        )
        .doc("`length` elements along a dim, starting at an index given by a tensor")
        .spelled("aten.narrow.Tensor torch.narrow Tensor.narrow"),
        tensor_bounds("linspace_between", "linspace", false),
        tensor_bounds("logspace_between", "logspace", true),
    ]
}

/// `linspace` and `logspace` with tensors as bounds.
fn tensor_bounds(name: &'static str, torch: &'static str, powers: bool) -> Op {
    let (rule, paths): (crate::op::Decompose, _) = match powers {
        true => (|b, c| spaced_values(b, c, true), LOG),
        false => (|b, c| spaced_values(b, c, false), LIN),
    };
    let (schema, forms) = match powers {
        true => (
            "logspace(Any start, Any end, int steps, float base=10., *, ScalarType? dtype=None) -> Tensor",
            LOG_FORMS,
        ),
        false => (
            "linspace(Any start, Any end, int steps, *, ScalarType? dtype=None) -> Tensor",
            LIN_FORMS,
        ),
    };
    let op = Op::composite((name, schema), rule).doc(match torch {
        "linspace" => "linspace between numbers in tensors",
        _ => "logspace between numbers in tensors",
    });
    paths
        .into_iter()
        .zip(forms)
        .fold(op, |op, (path, schema)| op.form(path, schema))
}

const LIN: [&str; 3] = [
    "aten.linspace.Tensor_Tensor torch.linspace",
    "aten.linspace.Tensor_Scalar torch.linspace",
    "aten.linspace.Scalar_Tensor torch.linspace",
];

const LIN_FORMS: [&str; 3] = [
    "linspace(Tensor start, Tensor end, int steps, *, ScalarType? dtype=None) -> Tensor",
    "linspace(Tensor start, Scalar end, int steps, *, ScalarType? dtype=None) -> Tensor",
    "linspace(Scalar start, Tensor end, int steps, *, ScalarType? dtype=None) -> Tensor",
];

const LOG: [&str; 3] = [
    "aten.logspace.Tensor_Tensor torch.logspace",
    "aten.logspace.Tensor_Scalar torch.logspace",
    "aten.logspace.Scalar_Tensor torch.logspace",
];

const LOG_FORMS: [&str; 3] = [
    "logspace(Tensor start, Tensor end, int steps, float base=10., *, ScalarType? dtype=None) -> Tensor",
    "logspace(Tensor start, Scalar end, int steps, float base=10., *, ScalarType? dtype=None) -> Tensor",
    "logspace(Scalar start, Tensor end, int steps, float base=10., *, ScalarType? dtype=None) -> Tensor",
];

/// The values are computed in f64, as with bounds that are numbers. Integers are exact as far as f64 is.
fn spaced_values(b: &mut dyn Build, c: &Call<Traced>, powers: bool) -> OpResult<Val<Traced>> {
    let steps = c.int("steps")?;
    if steps < 0 {
        return Err(OpError::arg("steps", "number of steps must be non-negative"));
    }
    let dtype = c.opt_dtype("dtype").unwrap_or(DType::F32);
    let row = if powers { "logspace" } else { "linspace" };
    let bounds = range_bounds(b, c, dtype, row)?;
    let places = b.arange(Val::int(0), Val::int(steps))?;
    let forward = b.to_dtype(&places, DType::F64)?;
    let backward = b.rsub(&forward, Val::Float((steps - 1) as f64))?;
    let width = b.sub(&bounds[1], &bounds[0])?;
    let step = b.div(&width, Val::Float((steps - 1).max(1) as f64))?;
    let (up, down) = (b.mul(&forward, &step)?, b.mul(&backward, &step)?);
    let (up, down) = (b.add(&bounds[0], &up)?, b.sub(&bounds[1], &down)?);
    let out = if steps > 1 {
        let first = b.lt(&places, Val::int(steps / 2))?;
        b.r#where(first, up, down)?
    } else {
        up
    };
    let out = match powers {
        true => {
            let base = b.full(&[], c.get("base").clone(), DType::F64)?;
            b.pow(&base, &out)?
        }
        false => out,
    };
    b.to_dtype(&out, dtype).map(Val::Leaf)
}

/// `start` and `end` in f64, truncated if the result has integers.
fn range_bounds(b: &mut dyn Build, c: &Call<Traced>, dtype: DType, row: &str) -> OpResult<Vec<Traced>> {
    let mut bounds = vec![];
    for name in ["start", "end"] {
        bounds.push(match c.get(name) {
            Val::Leaf(t) if t.rank()? > 0 => {
                let title = format!("{row} only supports 0-dimensional {name} and end tensors");
                return Err(OpError::arg(name, title));
            }
            Val::Leaf(t) => b.to_dtype(t, DType::F64)?,
            v => b.full(&[], v.clone(), DType::F64)?,
        });
    }
    if !dtype.is_float() {
        for bound in &mut bounds {
            let whole = b.to_dtype(bound, dtype)?;
            *bound = b.to_dtype(&whole, DType::F64)?;
        }
    }
    Ok(bounds)
}
