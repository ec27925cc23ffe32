//! Rows of factorisations with pivots and reflections: LU, QR, LDL, and the solvers based on them.

mod lu;

use self::lu::{lu_rows, lu_solutions, pivots_of};
use super::errors::{call_check_errors, check_info};
use super::results::{pack_results, tensor_from_results};
use super::solutions::{equations, solution};
use super::{want_matrices, want_square};
use crate::linalg::batch::{Matrices, Results};
use crate::linalg::{ldl, qr};
use crate::op::pointwise::not_implemented;
use crate::op::{Build, Call, Meaning, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::tensor::Tensor;
use crate::types::{DType, Dim, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    [
        lu_rows(),
        lu_solutions(),
        householder_rows(),
        qr_rows(),
        ldl_rows(),
        ldl_solution_rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Householder vectors and products with them.
fn householder_rows() -> Vec<Op> {
    vec![
        Op::new(
            "geqrf(Tensor self) -> (Tensor, Tensor)",
            |c, _| {
                let (d, shape) = want_matrices(c, "self")?;
                let tau = with_least(shape)?;
                Ok(pair_type(TensorType::new(d, shape.to_vec()), TensorType::new(d, tau)))
            },
            Meaning::Routine(geqrf),
        )
        .doc("R on and above the diagonal, the Householder vectors below it, and their scale factors")
        .spelled("aten.@ torch.@ Tensor.@"),
        Op::new(
            "ormqr(Tensor self, Tensor input2, Tensor input3, bool left=True, bool transpose=False) -> Tensor",
            |c, _| {
                let (d, x) = want_matrices(c, "self")?;
                let (_, out) = want_matrices(c, "input3")?;
                let side = out.len() - 1 - c.bool("left")? as usize;
                if x[x.len() - 2].sub(&out[side]).as_const().is_some_and(|n| n != 0) {
                    return Err(OpError::shape("torch.ormqr: the sizes of input and other do not match"));
                }
                Ok(Val::Leaf(TensorType::new(d, out.to_vec())))
            },
            Meaning::Routine(ormqr),
        )
        .doc("the product of Q from geqrf's results, or of its transpose, with input3")
        .spelled("aten.@ torch.@ Tensor.@"),
        Op::composite(
            "linalg_householder_product(Tensor input, Tensor tau) -> Tensor",
            householder_product,
        )
        .doc("the first columns of Q from geqrf's results")
        .spelled("aten.@ torch.linalg.householder_product")
        .form(
            "aten.orgqr.default torch.orgqr Tensor.orgqr",
            "orgqr(Tensor input, Tensor tau) -> Tensor",
        ),
    ]
}

fn qr_rows() -> Vec<Op> {
    vec![
        Op::composite("linalg_qr(Tensor A, str mode='reduced') -> (Tensor, Tensor)",
            |b, c| {
                let mode = c.str("mode")?.to_string();
                if !["reduced", "complete", "r"].contains(&&*mode) {
                    return Err(OpError::arg("mode", format!(
                        "qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
                    )));
                }
                qr_factors(b, c.leaf("A")?, &mode)
            },
        )
        .doc("the factors Q (orthonormal columns) and R (upper triangular) with Q R = A")
        .spelled("aten.@ torch.linalg.qr"),
        Op::composite("qr(Tensor self, bool some=True) -> (Tensor, Tensor)", |b, c| {
            qr_factors(b, c.leaf("self")?, if c.bool("some")? { "reduced" } else { "complete" })
        })
        .doc("linalg_qr, reduced or complete")
        .spelled("torch.@ Tensor.@"),
    ]
}

fn ldl_rows() -> Vec<Op> {
    vec![
        Op::new("linalg_ldl_factor_ex(Tensor self, *, bool hermitian=False, bool check_errors=False) -> (Tensor, Tensor, Tensor)",
            |c, _| {
                let (d, shape) = want_square(c, "self")?;
                Ok(factors_type(d, shape, shape[..shape.len() - 1].to_vec()))
            },
            Meaning::Routine(ldl_factor),
        )
        .doc("the Bunch-Kaufman factors L and D of a symmetric matrix, the pivots, and 0 or the index of the first zero in D")
        .spelled("aten.@ torch.linalg.ldl_factor_ex"),
        Op::composite("linalg_ldl_factor(Tensor self, *, bool hermitian=False) -> (Tensor, Tensor)",
            |b, c| {
                let v = b.call_many(OpId::LinalgLdlFactorEx, [c.get("self").clone(), c.get("hermitian").clone()])?;
                call_check_errors(b, "torch.linalg.ldl_factor", &v[2], c.leaf("self")?)?;
                Ok(Val::Tuple(v[..2].iter().map(Val::from).collect()))
            },
        )
        .doc("the Bunch-Kaufman factors L and D of a symmetric matrix, and the pivots")
        .spelled("aten.@ torch.linalg.ldl_factor"),
    ]
}

fn ldl_solution_rows() -> Vec<Op> {
    vec![
        Op::new(
            "linalg_ldl_solve(Tensor LD, Tensor pivots, Tensor B, *, bool hermitian=False) -> Tensor",
            |c, s| {
                let (d, ld) = want_square(c, "LD")?;
                let (_, b) = want_matrices(c, "B")?;
                same_dtype(c, "B", d)?;
                let lead = s.broadcast(&ld[..ld.len() - 2], &b[..b.len() - 2])?;
                Ok(Val::Leaf(TensorType::new(d, [&lead[..], &b[b.len() - 2..]].concat())))
            },
            Meaning::Routine(|c| {
                let (ld, b) = (c.leaf("LD")?, c.leaf("B")?);
                let pivots = pivots_of(c.leaf("pivots")?);
                solution(c, ld.dtype(), equations(ld, b)?.solve_by_ldl(&pivots))
            }),
        )
        .doc("the solution X of A X = B from A's factors")
        .spelled("aten.@ torch.linalg.ldl_solve"),
    ]
}

// --- types ---------------------------------------------------------------------------------------------------------

fn pair_type(a: TensorType, b: TensorType) -> Type {
    Val::Tuple(vec![Val::Leaf(a), Val::Leaf(b)])
}

/// The batch dims, followed by the smaller size of the matrices.
pub(in crate::op::rows) fn with_least(shape: &[Dim]) -> OpResult<Vec<Dim>> {
    let [lead @ .., m, n] = shape else {
        return Err(OpError::shape("a matrix has two dims"));
    };
    let least = match (m.as_const(), n.as_const()) {
        (Some(m), Some(n)) => Dim::Const(m.min(n)),
        _ if m == n => m.clone(),
        _ => m.min_of(n),
    };
    Ok([lead, &[least]].concat())
}

/// The types of factors (of the matrices' shape), pivots, and an info per matrix.
fn factors_type(d: DType, shape: &[Dim], pivots: Vec<Dim>) -> Type {
    let info = TensorType::new(DType::I32, shape[..shape.len() - 2].to_vec());
    let pivots = TensorType::new(DType::I32, pivots);
    let all = [TensorType::new(d, shape.to_vec()), pivots, info];
    Val::Tuple(all.map(Val::Leaf).to_vec())
}

fn same_dtype(c: &Call<TensorType>, name: &str, d: DType) -> OpResult<()> {
    match c.leaf(name)?.dtype == d {
        true => Ok(()),
        false => Err(OpError::dtype(format!(
            "{}: Expected all tensors to have the same dtype",
            c.op.name.replacen("linalg_", "linalg.", 1)
        ))),
    }
}

fn geqrf(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (factors, taus) = qr::factors_of_all(&Matrices::of(c.leaf("self")?));
    pack_results(c, vec![factors, taus])
}

fn ormqr(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (x, tau, other) = (c.leaf("self")?, c.leaf("input2")?, c.leaf("input3")?);
    let (left, transposed) = (c.bool("left")?, c.bool("transpose")?);
    let n = tau.shape().last().copied().unwrap_or(0);
    if n > x.shape()[x.rank() - 1] {
        return Err(OpError::shape(
            "torch.ormqr: input.shape[-1] must be greater than or equal to tau.shape[-1]",
        ));
    }
    let (vectors, others) = (Matrices::of(x), Matrices::of(other));
    let wide = tau.to(DType::F64);
    let taus = wide.as_slice::<f64>();
    let count = vectors.count.min(others.count);
    if n.checked_mul(count).is_none_or(|needed| needed > taus.len()) {
        return Err(OpError::shape("torch.ormqr: tau has fewer batch elements than input"));
    }
    let all = qr::multiply_all(&vectors, &others, (taus, n), left, transposed);
    tensor_from_results(other.dtype(), other.shape(), all).map(Val::Leaf)
}

/// The first columns of the identity, multiplied by the reflections.
fn householder_product(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, tau) = (c.leaf("input")?, c.leaf("tau")?);
    let [lead @ .., m, n] = x.shape()? else {
        return Err(OpError::shape(
            "torch.linalg.householder_product: input must have at least 2 dimensions.",
        ));
    };
    if m.sub(n).as_const().is_some_and(|d| d < 0) {
        return Err(OpError::shape(
            "torch.linalg.householder_product: input.shape[-2] must be greater than or equal to input.shape[-1]",
        ));
    }
    reflected_eye(b, x, tau, lead, m, n).map(Val::Leaf)
}

/// The first `columns` columns of the product of the reflections.
fn reflected_eye(
    b: &mut dyn Build,
    x: &Traced,
    tau: &Traced,
    lead: &[Dim],
    m: &Dim,
    columns: &Dim,
) -> OpResult<Traced> {
    let args = [Val::Int(m.clone()), Val::Int(columns.clone()), Val::DType(x.dtype())];
    let eye = b.op(OpId::Eye, args)?;
    let eye = b.expand(&eye, &[lead, &[m.clone(), columns.clone()]].concat())?;
    b.ormqr(x, tau, eye)
}

fn qr_factors(b: &mut dyn Build, a: &Traced, mode: &str) -> OpResult<Val<Traced>> {
    let shape = a.shape()?.to_vec();
    let [lead @ .., m, _] = &shape[..] else {
        return Err(OpError::shape(
            "linalg.qr: The input tensor A must have at least 2 dimensions.",
        ));
    };
    if !matches!(a.dtype(), DType::F32 | DType::F64) {
        return Err(not_implemented("geqrf_cpu", a.dtype()));
    }
    let least = with_least(&shape)?.pop().unwrap_or(Dim::Unknown);
    let columns = if mode == "complete" { m.clone() } else { least };
    let v = b.call_many(OpId::Geqrf, [a.into()])?;
    let dim = lead.len();
    let r = b.slice(&v[0], dim, Dim::Const(0), columns.clone(), 1)?;
    let r = b.triu(r)?;
    let q = match mode {
        "r" => b.full(&[Dim::Const(0)], Val::int(0), a.dtype())?,
        _ => reflected_eye(b, &v[0], &v[1], lead, m, &columns)?,
    };
    Ok(Val::Tuple(vec![q.into(), r.into()]))
}

fn ldl_factor(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let a = c.leaf("self")?;
    let (factors, pivots, info) = ldl::factors_of_all(&Matrices::of(a));
    if c.bool("check_errors")? {
        check_info("torch.linalg.ldl_factor_ex", &info, a)?;
    }
    let pivots = pivots.into_iter().map(|p| p as f64).collect();
    pack_results(c, vec![factors, Results::F64(pivots), info.into()])
}
