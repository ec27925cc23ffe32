//! Softmax and related functions.

use crate::op::{Build, Call, MemoryOrder, Op, OpBuilder, OpId, OpResult, SoftmaxPart, Traced, wrap_dim};
use crate::types::{DType, Val};

pub(crate) fn rows() -> Vec<Op> {
    [softmax_rows(), log_softmax_rows(), softmin_rows()]
        .into_iter()
        .flatten()
        .collect()
}

fn softmax_rows() -> Vec<Op> {
    vec![
        Op::composite(
            "softmax(Tensor self, int? dim, ScalarType? dtype=None) -> Tensor",
            |b, c| by_dim(b, c, SOFTMAX),
        )
        .new_memory()
        .order(MemoryOrder::RowMajor)
        .doc("exp(x) / sum(exp(x)) along a dim")
        .spelled("aten.@.int aten.special_softmax.default torch.@ Tensor.@ torch.special.@")
        .form(
            "torch.nn.functional.softmax",
            "softmax(Tensor self, int? dim=None, int _stacklevel=3, ScalarType? dtype=None) -> Tensor",
        )
        .module("Softmax(dim=None) = softmax(input, dim)")
        .module("Softmax2d() = softmax(input, -3)"),
        Op::composite(
            "_softmax(Tensor self, int dim, bool half_to_float) -> Tensor",
            |b, c| half_to_float(b, c, SOFTMAX),
        )
        .order(MemoryOrder::RowMajor)
        .doc("exp(x) / sum(exp(x)) along a dim")
        .spelled("aten.@ torch.@"),
        Op::composite(
            "_safe_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
            safe_softmax,
        )
        .doc("softmax that yields zeros for rows that are all -inf")
        .spelled("aten.@"),
    ]
}

fn log_softmax_rows() -> Vec<Op> {
    vec![
        Op::composite(
            "log_softmax(Tensor self, int? dim, ScalarType? dtype=None) -> Tensor",
            |b, c| by_dim(b, c, LOG_SOFTMAX),
        )
        .new_memory()
        .order(MemoryOrder::RowMajor)
        .doc("x - log(sum(exp(x))) along a dim")
        .spelled(
            "aten.log_softmax.int aten.special_log_softmax.default torch.log_softmax Tensor.log_softmax \
             torch.special.log_softmax",
        )
        .form(
            "torch.nn.functional.log_softmax",
            "log_softmax(Tensor self, int? dim=None, int _stacklevel=3, ScalarType? dtype=None) -> Tensor",
        )
        .module("LogSoftmax(dim=None) = log_softmax(input, dim)"),
        Op::composite(
            "_log_softmax(Tensor self, int dim, bool half_to_float) -> Tensor",
            |b, c| half_to_float(b, c, LOG_SOFTMAX),
        )
        .order(MemoryOrder::RowMajor)
        .doc("x - log(sum(exp(x))) along a dim")
        .spelled("aten.@ torch.@"),
    ]
}

fn softmin_rows() -> Vec<Op> {
    vec![
        Op::composite(
            "softmin(Tensor self, int? dim, ScalarType? dtype=None) -> Tensor",
            |b, c| {
                let negated: SoftmaxKernel = ("softmax", |b, x, d| {
                    let x = b.neg(x)?;
                    softmax(b, &x, d)
                });
                by_dim(b, c, negated)
            },
        )
        .doc("softmax of -x along a dim")
        .form(
            "torch.nn.functional.softmin",
            "softmin(Tensor self, int? dim=None, int _stacklevel=3, ScalarType? dtype=None) -> Tensor",
        )
        .module("Softmin(dim=None) = softmin(input, dim)"),
    ]
}

/// The name of torch's kernel, and the computation along a dim.
type SoftmaxKernel = (&'static str, fn(&mut dyn Build, &Traced, usize) -> OpResult<Traced>);

const SOFTMAX: SoftmaxKernel = ("softmax", softmax);
const LOG_SOFTMAX: SoftmaxKernel = ("log_softmax", log_softmax);

/// Computes in at least f32 and returns the result in the dtype `out`.
fn in_dtype(b: &mut dyn Build, x: &Traced, dim: i64, out: DType, f: SoftmaxKernel) -> OpResult<Val<Traced>> {
    let d = wrap_dim(dim, x.rank()?)?;
    if !out.is_float() {
        let last = if d + 1 >= x.rank()? { "_lastdim" } else { "" };
        let kernel = format!("{}{last}_kernel_impl", f.0);
        return Err(crate::op::pointwise::not_implemented(&kernel, out));
    }
    // A 0-dim tensor is a row of one element.
    if x.rank()? == 0 {
        let row = b.unsqueeze(x, 0)?;
        let y = in_dtype(b, &row, 0, out, f)?;
        let y = y.as_leaf().cloned().unwrap_or(row);
        return b.squeeze(&y, 0).map(Val::Leaf);
    }
    let wide = b.to_dtype(x, out.compute_dtype())?;
    let y = f.1(b, &wide, d)?;
    b.to_dtype(&y, out).map(Val::Leaf)
}

fn by_dim(b: &mut dyn Build, c: &Call<Traced>, f: SoftmaxKernel) -> OpResult<Val<Traced>> {
    let x = c.leaf("self")?;
    let out = c.opt_dtype("dtype").unwrap_or(x.dtype());
    let x = b.to_dtype(x, out)?;
    let dim = match c.opt_int("dim")? {
        Some(dim) => dim,
        // The default dim of `torch.nn.functional`.
        None => i64::from(!matches!(x.rank()?, 0 | 1 | 3)),
    };
    in_dtype(b, &x, dim, out, f)
}

fn half_to_float(b: &mut dyn Build, c: &Call<Traced>, f: SoftmaxKernel) -> OpResult<Val<Traced>> {
    let x = c.leaf("self")?;
    let out = if c.bool("half_to_float")? {
        DType::F32
    } else {
        x.dtype()
    };
    in_dtype(b, x, c.int("dim")?, out, f)
}

/// `exp(x - max) / sum`, which cannot overflow.
pub(in crate::op::rows) fn softmax(b: &mut dyn Build, x: &Traced, dim: usize) -> OpResult<Traced> {
    let e = subtract_max(b, x, dim)?;
    let e = softmax_exp(b, &e)?;
    let sum = b.reduce(OpId::Sum, &e, &[dim], true)?;
    let share = b.div(&e, &sum)?;
    b.note_softmax(&share, SoftmaxPart::Share);
    Ok(share)
}

/// `exp` of the given difference `x - max`.
pub(in crate::op::rows) fn softmax_exp(b: &mut dyn Build, difference: &Traced) -> OpResult<Traced> {
    let e = b.exp(difference)?;
    b.note_softmax(&e, SoftmaxPart::Exponential);
    Ok(e)
}

/// `x - max`. An empty row has no maximum, and is returned unchanged.
fn subtract_max(b: &mut dyn Build, x: &Traced, dim: usize) -> OpResult<Traced> {
    if x.shape()?[dim] == crate::types::Dim::Const(0) {
        return Ok(x.clone());
    }
    let max = b.reduce(OpId::Amax, x, &[dim], true)?;
    b.sub(x, &max)
}

fn log_softmax(b: &mut dyn Build, x: &Traced, dim: usize) -> OpResult<Traced> {
    let s = subtract_max(b, x, dim)?;
    let e = softmax_exp(b, &s)?;
    let sum = b.reduce(OpId::Sum, &e, &[dim], true)?;
    let log = b.log(&sum)?;
    b.sub(&s, &log)
}

fn safe_softmax(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let y = by_dim(b, c, SOFTMAX)?;
    let (x, y) = (c.leaf("self")?, y.as_leaf().cloned().unwrap_or(c.leaf("self")?.clone()));
    masked_rows(b, x, &y, wrap_dim(c.int("dim")?, x.rank()?)?).map(Val::Leaf)
}

/// `y`, with zeros in the rows where all of `x` is -inf.
pub(in crate::op::rows) fn masked_rows(b: &mut dyn Build, x: &Traced, y: &Traced, dim: usize) -> OpResult<Traced> {
    let masked = b.eq(x, Val::Float(f64::NEG_INFINITY))?;
    let rows = if x.rank()? == 0 {
        masked
    } else {
        b.reduce(OpId::All, &masked, &[dim], true)?
    };
    b.r#where(rows, Val::int(0), y)
}
