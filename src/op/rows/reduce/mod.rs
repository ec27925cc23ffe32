//! Reductions: a combination of the elements along some dims, with a scalar expression before it and one after it.

mod columns;
mod cumulative;
mod element_runs;
mod extrema;
mod half_order;
mod hash;
mod histogram;
mod mode;
mod moments;
mod packed;
mod running;
mod runs;
mod scan;
mod short_medians;
mod statistics;
mod sums;

pub(in crate::op::rows) use self::sums::sum_dtype;
use self::sums::{product_rows, sum_rows};
use crate::op::{Call, Combine, Meaning, Op, OpError, OpResult, Reduction, wrap_dim};
use crate::scalar::{DTypeSettings, ParsedValue, ScalarExpr, UntypedNumber, parse};
use crate::types::{DType, Dim, TensorType, Type, Val};

/// What a reduction computes, apart from the dims.
pub(in crate::op::rows) struct Spec {
    pub combine: Combine,
    /// The dtype to which the operand is converted first.
    pub common: DType,
    pub acc: DType,
    pub result: DType,
    /// The expression before combining; the element is `x`.
    pub pre: &'static str,
    /// The expression after combining; the combined value is `x`, the number of combined elements is `n`.
    pub post: &'static str,
    /// A number that the expressions refer to as `p`.
    pub p: f64,
    /// Whether an empty list of dims reduces nothing (`any`, `all`) instead of everything.
    pub empty_is_none: bool,
}

impl Spec {
    pub(super) fn new(combine: Combine, common: DType, acc: DType, result: DType) -> Spec {
        Spec {
            combine,
            common,
            acc,
            result,
            pre: "x",
            post: "x",
            p: 0.0,
            empty_is_none: false,
        }
    }

    pub(super) fn with_texts(self, pre: &'static str, post: &'static str) -> Spec {
        Spec { pre, post, ..self }
    }
}

pub(in crate::op::rows) type SpecOf = fn(&Call<TensorType>) -> OpResult<Spec>;

/// The maximum rank for reductions of some dims: torch keeps the dims in a 64-bit mask.
const MOST_DIMS: usize = 64;

/// The reduced dims of a call, sorted: those of `dim`, or all.
pub(in crate::op::rows) fn reduced_dims<T>(c: &Call<T>, rank: usize, empty_is_none: bool) -> OpResult<Vec<usize>> {
    let requested = match c.op.schema.index_of("dim") {
        Some(_) => c.opt_ints("dim")?,
        None => None,
    };
    if rank > MOST_DIMS && requested.is_some() {
        return Err(OpError::shape(format!(
            "only tensors with up to {MOST_DIMS} dims are supported"
        )));
    }
    let all = || (0..rank).collect();
    let Some(requested) = requested else { return Ok(all()) };
    if requested.is_empty() {
        return Ok(if empty_is_none { vec![] } else { all() });
    }
    let mut dims = vec![];
    for d in requested {
        let d = wrap_dim(d, rank)?;
        if dims.contains(&d) {
            return Err(OpError::arg(
                "dim",
                format!("dim {d} appears multiple times in the list of dims"),
            ));
        }
        dims.push(d);
    }
    dims.sort_unstable();
    // A 0-dim tensor accepts a dim but has none to reduce.
    dims.retain(|&d| d < rank);
    Ok(dims)
}

/// The shape of a reduction's result.
pub(in crate::op::rows) fn reduced_shape<D: Clone + From<usize>>(shape: &[D], dims: &[usize], keepdim: bool) -> Vec<D> {
    let keep = |i: &usize| keepdim || !dims.contains(i);
    let reduced_size = |i: usize| {
        if dims.contains(&i) {
            D::from(1)
        } else {
            shape[i].clone()
        }
    };
    (0..shape.len()).filter(keep).map(reduced_size).collect()
}

fn keeps_dim<T>(c: &Call<T>) -> OpResult<bool> {
    match c.op.schema.index_of("keepdim") {
        Some(_) => c.bool("keepdim"),
        None => Ok(false),
    }
}

pub(in crate::op::rows) fn reduced_type(c: &Call<TensorType>, spec: Spec) -> OpResult<Type> {
    let t = c.leaf("self")?;
    for d in [t.dtype, spec.result] {
        if !d.is_computed() {
            return Err(OpError::dtype(format!(
                "`{}` does not support {}",
                c.op.name,
                d.torch_name()
            )));
        }
    }
    let rank_free = c.op.schema.index_of("dim").is_none() || c.is_none("dim");
    let shape = match &t.shape {
        None if rank_free && !keeps_dim(c)? => Some(vec![]),
        None => None,
        Some(shape) => {
            let dims = reduced_dims(c, shape.len(), spec.empty_is_none)?;
            check_not_empty(c, &spec, shape, &dims)?;
            Some(reduced_shape(shape, &dims, keeps_dim(c)?))
        }
    };
    Ok(Val::Leaf(TensorType {
        dtype: spec.result,
        shape,
    }))
}

/// The maximum of no elements is an error.
fn check_not_empty(c: &Call<TensorType>, spec: &Spec, shape: &[Dim], dims: &[usize]) -> OpResult<()> {
    let extremum = matches!(spec.combine, Combine::Max | Combine::Min);
    let name = c.op.name;
    if !shape.contains(&Dim::Const(0)) || !(extremum || spec.p < 0.0) {
        return Ok(());
    }
    if name == "linalg_vector_norm" {
        let empty = dims.is_empty() || dims.iter().any(|&d| shape[d] == Dim::Const(0));
        return match empty {
            false => Ok(()),
            true => Err(OpError::shape(format!(
                "linalg.vector_norm cannot compute the {} norm on an empty tensor because the operation does not have \
                 an identity",
                spec.p
            ))),
        };
    }
    let dim = c.op.schema.index_of("dim").map(|i| &c.args[i]);
    let all = dim.is_none_or(|d| d.is_none() || d.items().is_some_and(|v| v.is_empty()));
    if all {
        return Err(OpError::shape(format!(
            "{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with \
             the 'dim' argument."
        )));
    }
    match dims.iter().find(|&&d| shape[d] == Dim::Const(0)) {
        Some(d) => Err(OpError::shape(format!(
            "{name}(): Expected reduction dim {d} to have non-zero size."
        ))),
        None => Ok(()),
    }
}

pub(in crate::op::rows) fn reduction(c: &Call<TensorType>, spec: Spec) -> OpResult<Reduction> {
    let (dtype, shape) = c.fixed_type("self")?;
    let dims = reduced_dims(c, shape.len(), spec.empty_is_none)?;
    let count: usize = dims.iter().map(|&d| shape[d]).product();
    let pre = parse_expression(spec.pre, [dtype, spec.common, spec.acc], spec.p, count)?;
    let post = parse_expression(spec.post, [spec.acc, spec.acc, spec.result], spec.p, count)?;
    let keepdim = keeps_dim(c)?;
    let out = TensorType::with_fixed_shape(spec.result, &reduced_shape(&shape, &dims, keepdim));
    Ok(Reduction {
        operand: c.op.schema.index_of("self").unwrap_or(0),
        dims,
        keepdim,
        combine: spec.combine,
        pre,
        post,
        acc: spec.acc,
        out,
    })
}

/// An expression of one argument `x`, which is converted from the first dtype to the second, computed in it, and
/// converted to the third.
fn parse_expression(text: &str, [from, common, to]: [DType; 3], p: f64, n: usize) -> OpResult<ScalarExpr> {
    let mut e = ScalarExpr::new();
    let compute = common.compute_dtype();
    let settings = DTypeSettings {
        compute,
        storage: common,
    };
    let value = parse(text, settings, &mut e, &mut |name, e| match name {
        "x" => {
            let x = e.arg(0, from);
            let x = e.cast(common, x);
            Some(ParsedValue::Value(e.cast(compute, x)))
        }
        "p" => Some(ParsedValue::Number(UntypedNumber::Float(p))),
        "n" => Some(ParsedValue::Number(UntypedNumber::Int(n as i64))),
        _ => None,
    });
    let value = value.map_err(|e| OpError::dtype(format!("{text}: {e}")))?;
    e.roots = vec![e.cast(to, value)];
    Ok(e)
}

/// A reduction row. One spec provides both its type rule and its meaning.
macro_rules! reduce {
    ($schema:literal, $spec:path) => {
        Op::new(
            $schema,
            |c, _| reduced_type(c, spec_of(c, $spec)?),
            Meaning::Reduce(|c| reduction(c, spec_of(c, $spec)?)),
        )
    };
}
pub(in crate::op::rows) use reduce;

/// The spec of a row for a call.
pub(in crate::op::rows) fn spec_of(c: &Call<TensorType>, f: SpecOf) -> OpResult<Spec> {
    f(c)
}

pub(super) fn rows() -> Vec<Op> {
    [
        sum_rows(),
        product_rows(),
        extremum_rows(),
        logical_rows(),
        moments::rows(),
        scan::rows(),
        statistics::rows(),
        histogram::rows(),
        runs::rows(),
        hash::rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn extremum_spec(c: &Call<TensorType>, combine: Combine) -> OpResult<Spec> {
    let d = c.leaf("self")?.dtype;
    Ok(Spec::new(combine, d, d.compute_dtype(), d))
}

fn max_spec(c: &Call<TensorType>) -> OpResult<Spec> {
    extremum_spec(c, Combine::Max)
}

fn min_spec(c: &Call<TensorType>) -> OpResult<Spec> {
    extremum_spec(c, Combine::Min)
}

fn extremum_rows() -> Vec<Op> {
    vec![
        reduce!(
            "amax(Tensor self, int[1]? dim=[], bool keepdim=False) -> Tensor",
            max_spec
        )
        .doc("the maximum over the given dims, or over all; NaN if any element is NaN")
        .spelled("aten.@ torch.@ Tensor.@"),
        reduce!("max(Tensor self) -> Tensor", max_spec)
            .doc("the maximum; NaN if any element is NaN")
            .spelled("aten.@ torch.@ Tensor.@"),
        reduce!(
            "amin(Tensor self, int[1]? dim=[], bool keepdim=False) -> Tensor",
            min_spec
        )
        .doc("the minimum over the given dims, or over all; NaN if any element is NaN")
        .spelled("aten.@ torch.@ Tensor.@"),
        reduce!("min(Tensor self) -> Tensor", min_spec)
            .doc("the minimum; NaN if any element is NaN")
            .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

fn truth_spec(c: &Call<TensorType>, combine: Combine) -> OpResult<Spec> {
    let d = c.leaf("self")?.dtype;
    // torch keeps u8, which used to be its boolean type.
    let result = if d == DType::U8 { DType::U8 } else { DType::B8 };
    let spec = Spec::new(combine, d, DType::B8, result).with_texts("x != 0", "x");
    Ok(Spec {
        empty_is_none: true,
        ..spec
    })
}

fn any_spec(c: &Call<TensorType>) -> OpResult<Spec> {
    truth_spec(c, Combine::Any)
}

fn all_spec(c: &Call<TensorType>) -> OpResult<Spec> {
    truth_spec(c, Combine::All)
}

fn logical_rows() -> Vec<Op> {
    vec![
        reduce!(
            "any(Tensor self, int[1]? dim=None, bool keepdim=False) -> Tensor",
            any_spec
        )
        .doc("whether any element is nonzero; u8 yields u8")
        .spelled("aten.@.dim aten.@.dims torch.@ Tensor.@")
        .form(
            "aten.any.default aten._is_any_true.default torch._is_any_true",
            "any(Tensor self) -> Tensor",
        ),
        reduce!(
            "all(Tensor self, int[1]? dim=None, bool keepdim=False) -> Tensor",
            all_spec
        )
        .doc("whether all elements are nonzero; u8 yields u8")
        .spelled("aten.@.dim aten.@.dims torch.@ Tensor.@")
        .form(
            "aten.all.default aten._is_all_true.default torch._is_all_true",
            "all(Tensor self) -> Tensor",
        ),
    ]
}
