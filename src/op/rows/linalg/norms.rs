//! Norms of vectors and matrices.

use crate::op::emit::ints_val;
use crate::op::pointwise::number_of;
use crate::op::rows::reduce::{Spec, reduce, reduced_dims, reduced_type, reduction, spec_of};
use crate::op::{Build, Call, Combine, Meaning, Op, OpBuilder, OpError, OpId, OpResult, Traced, wrap_dim};
use crate::types::{Dim, TensorType, Val};

fn norm_order(c: &Call<TensorType>) -> OpResult<f64> {
    match c.get("ord") {
        Val::None => Ok(2.0),
        Val::Str(s) if &**s == "fro" => Ok(2.0),
        v => number_of(v).map(|n| n.to_f64()).ok_or_else(|| {
            let title = format!("the order of a norm must be a number, not {}", v.kind_name());
            OpError::arg("ord", title)
        }),
    }
}

/// Whether each result is the norm of one element: its absolute value, as in torch, and not a root of a power that may overflow.
fn reduces_one_element(c: &Call<TensorType>) -> OpResult<bool> {
    let Some(shape) = &c.leaf("self")?.shape else {
        return Ok(false);
    };
    let dims = reduced_dims(c, shape.len(), false)?;
    Ok(dims.iter().all(|&d| shape[d] == Dim::Const(1)))
}

/// The p-norm of all elements, `(Σ |x|^p)^(1/p)`, and its limits.
fn norm_spec(c: &Call<TensorType>) -> OpResult<Spec> {
    let d = c.leaf("self")?.dtype;
    if !d.is_float() {
        return Err(OpError::dtype(format!(
            "linalg.vector_norm: Expected a floating point or complex tensor as input. Got {}",
            d.scalar_type_name()
        )));
    }
    let result = c.opt_dtype("dtype").unwrap_or(d);
    if !result.is_float() || result.size() < d.size() {
        return Err(OpError::dtype(format!(
            "linalg.vector_norm: the dtype of the input ({}) should be convertible without narrowing to the specified \
             dtype ({})",
            d.scalar_type_name(),
            result.scalar_type_name()
        )));
    }
    let p = norm_order(c)?;
    let spec = Spec::new(Combine::Sum, result, result.compute_dtype(), result);
    let single = reduces_one_element(c)?;
    let spec = if p == 2.0 && !single {
        spec.with_texts("x * x", "sqrt(x)")
    } else if p == 1.0 || single && p != 0.0 {
        spec.with_texts("abs(x)", "x")
    } else if p == 0.0 {
        spec.with_texts("x != 0", "x")
    } else if p.is_infinite() {
        let combine = if p > 0.0 { Combine::Max } else { Combine::Min };
        Spec { combine, ..spec }.with_texts("abs(x)", "x")
    } else {
        spec.with_texts("abs(x) ** p", "x ** (1 / p)")
    };
    Ok(Spec { p, ..spec })
}

pub(super) fn rows() -> Vec<Op> {
    [vector_norm_rows(), matrix_norm_rows()].into_iter().flatten().collect()
}

fn vector_norm_rows() -> Vec<Op> {
    vec![
        reduce!(
            "linalg_vector_norm(Tensor self, Any ord=2, int[1]? dim=None, bool keepdim=False, *, ScalarType? \
             dtype=None) -> Tensor",
            norm_spec
        )
        .doc("the p-norm over the given dims, or over all")
        .form(
            "aten.linalg_vector_norm.default torch.linalg.vector_norm",
            "linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, ScalarType? \
             dtype=None) -> Tensor",
        )
        .form(
            "aten.frobenius_norm.dim torch.frobenius_norm",
            "frobenius_norm(Tensor self, int[1] dim, bool keepdim=False) -> Tensor",
        )
        .form("aten.norm.Scalar", "norm(Tensor self, Scalar ord=2) -> Tensor")
        .form(
            "aten.norm.ScalarOpt_dim",
            "norm(Tensor self, Scalar? ord, int[1] dim, bool keepdim=False) -> Tensor",
        )
        .form(
            "aten.norm.ScalarOpt_dim_dtype",
            "norm(Tensor self, Scalar? ord, int[1] dim, bool keepdim, *, ScalarType dtype) -> Tensor",
        )
        .form(
            "aten.norm.ScalarOpt_dtype",
            "norm(Tensor self, Scalar? ord, *, ScalarType dtype) -> Tensor",
        ),
        Op::composite(
            "norm(Tensor self, Any p='fro', Any dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
            norm,
        )
        .doc("the p-norm over the given dims, or over all; `nuc` is the nuclear norm of matrices")
        .spelled("torch.@ torch.functional.@ Tensor.@"),
    ]
}

/// Norms of vectors or matrices, and of matrices alone.
fn matrix_norm_rows() -> Vec<Op> {
    vec![
        Op::composite("linalg_norm(Tensor self, Any ord=None, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
            linalg_norm,
        )
        .doc("a norm of vectors, of matrices (two dims and an ord), or of all elements")
        .spelled("torch.linalg.norm")
        .form(
            "aten.linalg_norm.default",
            "linalg_norm(Tensor self, Scalar? ord=None, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> \
             Tensor",
        )
        .form(
            "aten.linalg_norm.ord_str",
            "linalg_norm(Tensor self, str ord, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
        ),
        Op::composite("linalg_matrix_norm(Tensor self, Any ord='fro', int[] dim=[-2, -1], bool keepdim=False, *, ScalarType? dtype=None) \
             -> Tensor",
            matrix_norm,
        )
        .doc("a matrix norm: fro, nuc, inf, -inf, 1, -1, 2 or -2")
        .spelled("aten.@.str_ord torch.linalg.matrix_norm")
        .form(
            "aten.linalg_matrix_norm.default",
            "linalg_matrix_norm(Tensor self, Scalar ord, int[] dim=[-2, -1], bool keepdim=False, *, ScalarType? dtype=None) -> \
             Tensor",
        ),
    ]
}

/// `torch.norm`: a vector norm except for `nuc`; without a dim, over all elements.
fn norm(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, p, dim, keep) = (c.get("self"), c.get("p"), c.get("dim"), c.get("keepdim"));
    if p.as_str() == Some("nuc") {
        let x = match c.opt_dtype("dtype") {
            Some(d) => b.to_dtype(c.leaf("self")?, d)?.into(),
            None => x.clone(),
        };
        return b.call(OpId::NuclearNorm, vec![x, dim.clone(), keep.clone()]);
    }
    let args = vec![x.clone(), p.clone(), dim.clone(), keep.clone(), c.get("dtype").clone()];
    b.call(OpId::LinalgVectorNorm, args)
}

fn linalg_norm(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let rank = c.leaf("self")?.rank()?;
    let dims = c.opt_ints("dim")?;
    let whole = c.is_none("ord");
    let vector = match &dims {
        Some(d) => d.len() == 1 || whole,
        None => whole || rank == 1,
    };
    let arg = |n: &str| c.get(n).clone();
    if vector {
        let ord = if whole { Val::int(2) } else { arg("ord") };
        return b.call(
            OpId::LinalgVectorNorm,
            vec![arg("self"), ord, arg("dim"), arg("keepdim"), arg("dtype")],
        );
    }
    if dims.is_none() && rank != 2 {
        return Err(OpError::shape(format!(
            "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {rank}D."
        )));
    }
    let dims = dims.unwrap_or(vec![0, 1]);
    let dims = ints_val(&dims);
    b.call(
        OpId::LinalgMatrixNorm,
        vec![arg("self"), arg("ord"), dims, arg("keepdim"), arg("dtype")],
    )
}

/// A matrix norm. The matrices' dims are kept at first, and removed at the end unless `keepdim` is set.
fn matrix_norm(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("self")?;
    let x = match c.opt_dtype("dtype") {
        Some(d) => b.to_dtype(x, d)?,
        None => x.clone(),
    };
    let dims = matrix_dims(c, x.rank()?)?;
    let keep = c.bool("keepdim")?;
    let ord = c.get("ord");
    let out = match (ord.as_str(), ord.as_f64()) {
        (Some("fro"), _) => {
            let dims = ints_val(&dims.map(|d| d as i64));
            let args = [(&x).into(), Val::int(2), dims, Val::Bool(keep)];
            return b.op(OpId::LinalgVectorNorm, args).map(Val::Leaf);
        }
        (None, Some(p)) if p.abs() == 1.0 || p.is_infinite() => norm_of_sums(b, &x, dims, p)?,
        (Some("nuc"), _) => norm_of_singular_values(b, &x, dims, OpId::Sum)?,
        (None, Some(2.0)) => norm_of_singular_values(b, &x, dims, OpId::Amax)?,
        (None, Some(-2.0)) => norm_of_singular_values(b, &x, dims, OpId::Amin)?,
        _ => return Err(OpError::arg("ord", "linalg.matrix_norm: Order not supported.")),
    };
    if keep {
        return Ok(out.into());
    }
    let sizes = out.shape()?.iter().enumerate();
    let rest: Vec<Dim> = sizes
        .filter(|(d, _)| !dims.contains(d))
        .map(|(_, n)| n.clone())
        .collect();
    b.reshape(&out, &rest).map(Val::Leaf)
}

/// The dims that hold rows and columns.
fn matrix_dims(c: &Call<Traced>, rank: usize) -> OpResult<[usize; 2]> {
    let [rows, columns] = c.ints("dim")?[..] else {
        return Err(OpError::arg("dim", "linalg.matrix_norm: dim must be a 2-tuple"));
    };
    if rank < 2 {
        return Err(OpError::shape(
            "linalg.matrix_norm: The input tensor A must have at least 2 dimensions.",
        ));
    }
    let (rows, columns) = (wrap_dim(rows, rank)?, wrap_dim(columns, rank)?);
    match rows == columns {
        true => Err(OpError::arg("dim", "linalg.matrix_norm: dims must be different")),
        false => Ok([rows, columns]),
    }
}

/// The orders ±1 and ±∞: the largest or smallest sum of magnitudes over the columns or rows. Keeps the dims.
fn norm_of_sums(b: &mut dyn Build, x: &Traced, [rows, columns]: [usize; 2], p: f64) -> OpResult<Traced> {
    let (sum, best) = if p.abs() == 1.0 {
        (rows, columns)
    } else {
        (columns, rows)
    };
    let x = b.abs(x)?;
    let sums = b.reduce(OpId::Sum, &x, &[sum], true)?;
    // The maximum over no elements is 0 here.
    let none = sums.shape()?[best] == Dim::Const(0);
    let op = match p > 0.0 {
        true if none => OpId::Sum,
        true => OpId::Amax,
        false => OpId::Amin,
    };
    b.reduce(op, &sums, &[best], true)
}

/// The orders ±2 and the nuclear norm: `op` over the singular values. Keeps the dims.
fn norm_of_singular_values(b: &mut dyn Build, x: &Traced, [rows, columns]: [usize; 2], op: OpId) -> OpResult<Traced> {
    let rank = x.rank()?;
    let rest = (0..rank).filter(|d| ![rows, columns].contains(d));
    let order: Vec<usize> = rest.chain([rows, columns]).collect();
    let m = b.permute(x, &order)?;
    let values = b.linalg_svdvals(m)?;
    // The maximum over no elements is 0 here.
    let none = values.shape()?.last() == Some(&Dim::Const(0));
    let op = if none && op == OpId::Amax { OpId::Sum } else { op };
    let mut out = b.reduce(op, &values, &[rank - 2], false)?;
    for d in [rows.min(columns), rows.max(columns)] {
        out = b.unsqueeze(&out, d)?;
    }
    Ok(out)
}
