//! Prims: the ops in which PyTorch's decompositions end, and those that only Inductor creates.
//!
//! A prim is an op that accepts its arguments in only one form: tensors of one dtype and shape, dims counted from the front. Most
//! are spellings of other rows; those that differ from every row have rows here.

mod inductor;

use crate::op::emit::{dims_val, ints_val};
use crate::op::rows::spell::text;
use crate::op::{Build, Call, Effect, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::types::{Dim, Val};

pub(super) fn rows() -> Vec<Op> {
    [
        creation_rows(),
        arithmetic_rows(),
        view_rows(),
        reduction_rows(),
        inductor::rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Prims that are spellings of the row with the same name, sorted.
#[rustfmt::skip]
const SAME: &[&str] = &[
    "abs", "acos", "acosh", "add", "as_strided", "as_strided_scatter", "asin", "asinh", "atan", "atan2", "atanh",
    "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "cat", "ceil", "clone", "cos", "cosh", "digamma", "eq",
    "erf", "erfc", "exp", "exp2", "expm1", "floor", "fmax", "fmin", "fmod", "frexp", "gcd", "ge", "gt", "hypot",
    "igamma", "igammac", "isfinite", "item", "le", "lgamma", "log", "log10", "log1p", "log2", "lt", "maximum",
    "minimum", "mul", "ne", "neg", "nextafter", "pow", "reciprocal", "remainder", "reshape", "round", "rsqrt", "sign",
    "signbit", "sin", "sinh", "sqrt", "sub", "tan", "tanh", "trunc", "where",
];

/// Prims that are spellings of a row with another name.
const RENAMED: &[(&str, &str)] = &[
    ("bessel_i0", "i0"),
    ("bessel_i0e", "i0e"),
    ("bessel_i1", "i1"),
    ("bessel_i1e", "i1e"),
    ("bessel_j0", "special_bessel_j0"),
    ("bessel_j1", "special_bessel_j1"),
    ("erf_inv", "erfinv"),
    ("erfcx", "erfcx"),
    ("ndtri", "ndtri"),
    ("zeta", "zeta"),
    ("spherical_bessel_j0", "special_spherical_bessel_j0"),
    ("rev", "flip"),
    ("shift_left", "bitwise_left_shift"),
    ("shift_right_arithmetic", "bitwise_right_shift"),
    ("squeeze", "squeeze"),
    ("transpose", "permute"),
];

/// Adds the prims that are spellings of the row.
pub(super) fn with_prim_spellings(mut op: Op) -> Op {
    let name = op.name;
    if SAME.binary_search(&name).is_ok() {
        op = op.spelled(text!("prims.{name}.default"));
    }
    for (prim, _) in RENAMED.iter().filter(|(_, row)| *row == name) {
        op = op.spelled(text!("prims.{prim}.default"));
    }
    match name {
        "index_put" => op.inplace("prims._unsafe_index_put_.default"),
        "copy" => op.inplace_form("prims.copy_to.default", "copy_to(Tensor self, Tensor src) -> Tensor"),
        "scalar_tensor" => op.form(
            "prims.scalar_tensor.default",
            "scalar_tensor(Scalar s, *, ScalarType? dtype=None, Device? device=None) -> Tensor",
        ),
        "fill" => op.form("prims.fill.default", "fill(Tensor self, Scalar value) -> Tensor"),
        "linalg_svd" => op.form(
            "prims.svd.default",
            "svd(Tensor A, *, bool full_matrices) -> (Tensor, Tensor, Tensor)",
        ),
        _ => op,
    }
}

fn creation_rows() -> Vec<Op> {
    const PLACED: &str = "ScalarType dtype, Device? device=None, bool requires_grad=False";
    vec![
        Op::composite(text!("prims_iota(SymInt length, *, SymInt start, SymInt step, {PLACED}) -> Tensor"),
            iota,
        )
        .doc("start, start + step, …: `length` integers")
        .spelled("prims.iota.default"),
        Op::composite(text!("prims_empty_strided(SymInt[] shape, SymInt[] strides, *, {PLACED}) -> Tensor"),
            empty,
        )
        .doc("an uninitialized tensor; fxc fills it with zeros")
        .spelled("prims.empty_strided.default"),
        Op::composite(text!("prims_empty_permuted(SymInt[] shape, int[] physical_layout, *, {PLACED}) -> Tensor"),
            empty,
        )
        .doc("an uninitialized tensor; fxc fills it with zeros")
        .spelled("prims.empty_permuted.default"),
        Op::composite(text!("prims_normal(SymInt[] shape, *, Scalar mean, Scalar std, {PLACED}, Generator? generator=None) -> Tensor"),
            |b, c| {
                let options = ["mean", "std", "shape", "dtype"].map(|name| c.get(name).clone());
                b.call(OpId::NormalSized, options.to_vec())
            },
        )
        .doc("random numbers of a normal distribution")
        .spelled("prims.normal.default")
        .effect(Effect::Random),
    ]
}

fn one_size(c: &Call<Traced>, name: &str) -> OpResult<Dim> {
    Ok(c.dims(name)?.pop().unwrap_or(Dim::Unknown))
}

fn iota(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (length, start, step) = (one_size(c, "length")?, one_size(c, "start")?, one_size(c, "step")?);
    if length.as_const().is_some_and(|n| n < 0) {
        return Err(OpError::arg("length", "length must be non-negative"));
    }
    if step == Dim::Const(0) {
        return Err(OpError::arg("step", "step must be nonzero"));
    }
    let dtype = c.get("dtype").clone();
    let mut x = b.op(OpId::Arange, [Val::int(0), Val::Int(length), Val::int(1), dtype])?;
    if step != Dim::Const(1) {
        x = b.mul(&x, Val::Int(step))?;
    }
    if start != Dim::Const(0) {
        x = b.add(&x, Val::Int(start))?;
    }
    Ok(x.into())
}

fn empty(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let dtype = c
        .opt_dtype("dtype")
        .ok_or_else(|| OpError::arg("dtype", "expected a dtype"))?;
    b.full(&c.dims("shape")?, Val::int(0), dtype).map(Val::Leaf)
}

fn arithmetic_rows() -> Vec<Op> {
    vec![
        Op::composite("prims_div(Tensor self, Tensor other) -> Tensor", |b, c| {
            let (x, y) = (c.leaf("self")?, c.leaf("other")?);
            let truncated = !x.dtype().is_float();
            let mode = if truncated { Val::str("trunc") } else { Val::None };
            b.op(OpId::Div, [x.into(), y.into(), mode]).map(Val::Leaf)
        })
        .doc("the quotient; integer quotients are rounded towards zero")
        .spelled("prims.div.default"),
        Op::composite("prims_cbrt(Tensor self) -> Tensor", |b, c| {
            let x = c.leaf("self")?;
            let size = b.abs(x)?;
            let root = b.pow(&size, Val::Float(1.0 / 3.0))?;
            b.copysign(&root, x).map(Val::Leaf)
        })
        .doc("the cube root")
        .spelled("prims.cbrt.default"),
        Op::composite(
            "prims_device_put(Tensor a, Device device, bool non_blocking=False) -> Tensor",
            |b, c| b.clone(c.leaf("a")?).map(Val::Leaf),
        )
        .doc("a copy on a device")
        .spelled("prims.device_put.default"),
        Op::composite("prims_copy_strided(Tensor a, SymInt[] stride) -> Tensor", |b, c| {
            b.clone(c.leaf("a")?).map(Val::Leaf)
        })
        .doc("a copy with other strides, which do not affect values")
        .spelled("prims.copy_strided.default")
        .form(
            "prims.inductor_force_stride_order.default",
            "inductor_force_stride_order(Tensor a, SymInt[] stride) -> Tensor",
        ),
    ]
}

fn view_rows() -> Vec<Op> {
    vec![
        Op::composite(
            "prims_broadcast_in_dim(Tensor a, SymInt[] shape, int[] broadcast_dimensions) -> Tensor",
            broadcast_in_dim,
        )
        .aliasing()
        .doc("the tensor expanded to a shape, with each dim at its position in `broadcast_dimensions`")
        .spelled("prims.broadcast_in_dim.default"),
        Op::composite(
            "prims_split_dim(Tensor a, int dim, SymInt outer_length) -> Tensor",
            split_dim,
        )
        .aliasing()
        .doc("one dim split into two")
        .spelled("prims.split_dim.default"),
        Op::composite("prims_collapse(Tensor a, int start, int end) -> Tensor", |b, c| {
            // A number counts as a tensor of one dim.
            let rank = c.leaf("a")?.rank()?.max(1);
            existing_dim(c.int("start")?, rank)?;
            existing_dim(c.int("end")?, rank)?;
            b.op(OpId::Flatten, c.args.clone()).map(Val::Leaf)
        })
        .aliasing()
        .doc("the dims from start to end, inclusive, merged into one")
        .spelled("prims.collapse.default prims.collapse_view.default"),
        Op::composite("prims_view_of(Tensor a) -> Tensor", |b, c| {
            b.op(OpId::Alias, [c.leaf("a")?.into()]).map(Val::Leaf)
        })
        .aliasing()
        .doc("the tensor itself")
        .spelled("prims.view_of.default"),
    ]
}

fn broadcast_in_dim(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, shape, dims) = (c.leaf("a")?, c.dims("shape")?, c.ints("broadcast_dimensions")?);
    let mut sizes = vec![Dim::Const(1); shape.len()];
    let ascends = dims.windows(2).all(|w| w[0] < w[1]);
    let inside = dims.iter().all(|&d| (0..shape.len() as i64).contains(&d));
    if dims.len() != x.rank()? || !ascends || !inside {
        return Err(OpError::arg(
            "broadcast_dimensions",
            "expected a dim of the result for each dim of the operand, in ascending order",
        ));
    }
    for (&d, n) in dims.iter().zip(x.shape()?) {
        sizes[d as usize] = n.clone();
    }
    let x = b.op(OpId::Reshape, [x.into(), dims_val(&sizes)])?;
    b.op(OpId::Expand, [x.into(), dims_val(&shape)]).map(Val::Leaf)
}

/// Prims do not count dims from the end, and a number has none.
fn existing_dim(dim: i64, rank: usize) -> OpResult<usize> {
    let found = usize::try_from(dim).ok().filter(|&d| d < rank);
    found.ok_or_else(|| OpError::shape(format!("idx {dim} is out of bounds for rank {rank}")))
}

fn split_dim(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, outer) = (c.leaf("a")?, one_size(c, "outer_length")?);
    let dim = existing_dim(c.int("dim")?, x.rank()?)?;
    let mut shape = x.shape()?.to_vec();
    let size = shape[dim].clone();
    if let (Some(n), Some(k)) = (size.as_const(), outer.as_const())
        && (k <= 0 || n % k != 0)
    {
        return Err(OpError::shape(format!(
            "Attempting to split dimension of length {n}, but outer length of {k} divides it with a remainder!"
        )));
    }
    shape.splice(dim..=dim, [outer.clone(), size.floordiv(&outer)]);
    b.op(OpId::Reshape, [x.into(), dims_val(&shape)]).map(Val::Leaf)
}

fn reduction_rows() -> Vec<Op> {
    let reduction = |prim: &str, doc| {
        Op::composite(
            (
                text!("prims_{prim}"),
                text!("prims_{prim}(Tensor inp, int[]? dims, *, ScalarType? output_dtype=None) -> Tensor"),
            ),
            reduce_prim,
        )
        .doc(doc)
        .spelled(text!("prims.{prim}.default"))
    };
    vec![
        reduction("sum", "the sum over the given dims, or over all"),
        reduction(
            "prod",
            "the product over the given dims, or over all; the tensor itself for an empty list",
        ),
        reduction("amax", "the maximum over the given dims, or over all"),
        reduction("amin", "the minimum over the given dims, or over all"),
        Op::composite(
            "prims_var(Tensor inp, int[]? dims, float? correction=1, *, ScalarType? output_dtype=None) -> Tensor",
            |b, c| {
                let (x, dims) = (c.leaf("inp")?, c.get("dims").clone());
                let y = b.op(
                    OpId::Var,
                    [x.into(), dims, Val::None, Val::Bool(false), c.get("correction").clone()],
                )?;
                in_dtype(b, c, y)
            },
        )
        .doc("the variance over dims")
        .spelled("prims.var.default"),
    ]
}

/// `y`, converted to the requested dtype, if any.
fn in_dtype(b: &mut dyn Build, c: &Call<Traced>, y: Traced) -> OpResult<Val<Traced>> {
    match c.opt_dtype("output_dtype") {
        Some(d) => b.to_dtype(&y, d).map(Val::Leaf),
        None => Ok(y.into()),
    }
}

fn reduce_prim(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("inp")?;
    let dtype = c.opt_dtype("output_dtype").unwrap_or(x.dtype());
    let all = || (0..x.rank().unwrap_or(0) as i64).collect();
    let mut dims = c.opt_ints("dims")?.unwrap_or_else(all);
    if dims.is_empty() && c.op.is(OpId::PrimsProd) {
        return b.clone(x).map(Val::Leaf);
    }
    let typed = [Val::Bool(false), Val::DType(dtype)];
    let y = match c.op.id() {
        // One dim at a time, the last first.
        Some(OpId::PrimsProd) => {
            dims.sort();
            dims.iter().rev().try_fold(x.clone(), |y, &d| {
                b.op(OpId::Prod, [vec![y.into(), Val::int(d)], typed.to_vec()].concat())
            })?
        }
        Some(OpId::PrimsSum) => b.op(OpId::Sum, [vec![x.into(), ints_val(&dims)], typed.to_vec()].concat())?,
        Some(OpId::PrimsAmax) => b.op(OpId::Amax, [x.into(), ints_val(&dims), Val::Bool(false)])?,
        _ => b.op(OpId::Amin, [x.into(), ints_val(&dims), Val::Bool(false)])?,
    };
    b.to_dtype(&y, dtype).map(Val::Leaf)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_list_that_is_searched_is_sorted() {
        assert!(super::SAME.is_sorted());
    }
}
