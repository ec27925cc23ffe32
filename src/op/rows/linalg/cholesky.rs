//! Cholesky factors, and solutions by them.

use super::with_info;
use crate::op::rows::linalg::blocks::cholesky_of;
use crate::op::rows::linalg::errors::{call_check_errors, check_diagonal, check_info};
use crate::op::rows::linalg::matrix::{tensor_from_numbers, tensor_to_matrices};
use crate::op::{Call, Meaning, Op, OpError, OpId, OpResult};
use crate::tensor::Tensor;
use crate::types::{DType, Dim, Val};

/// Cholesky factors.
pub(super) fn cholesky_rows() -> Vec<Op> {
    vec![
        Op::new(
            "linalg_cholesky_ex(Tensor self, *, bool upper=False, bool check_errors=False) -> (Tensor, Tensor)",
            |c, _| with_info(c),
            Meaning::Routine(cholesky),
        )
        .doc("the lower triangular L with L L^T = self, and 0 or the order of the first minor that is not positive")
        .spelled("aten.@ torch.linalg.cholesky_ex"),
        Op::composite("linalg_cholesky(Tensor self, *, bool upper=False) -> Tensor", |b, c| {
            let v = b.call_many(OpId::LinalgCholeskyEx, c.args.clone())?;
            call_check_errors(b, "linalg.cholesky", &v[1], c.leaf("self")?)?;
            Ok((&v[0]).into())
        })
        .doc("the lower triangular L with L L^T = self")
        .spelled("aten.@ torch.linalg.cholesky")
        .form(
            "aten.cholesky.default torch.cholesky Tensor.cholesky",
            "cholesky(Tensor self, bool upper=False) -> Tensor",
        ),
    ]
}

/// Solutions and inverses by Cholesky factors.
pub(super) fn cholesky_solution_rows() -> Vec<Op> {
    vec![
        Op::composite(
            "cholesky_solve(Tensor self, Tensor input2, bool upper=False) -> Tensor",
            |b, c| {
                let (rhs, l) = (c.leaf("self")?, c.leaf("input2")?);
                let rank = l.rank()?;
                if rank < 2 {
                    return Err(OpError::shape("cholesky_solve requires matrices"));
                }
                let t = b.transpose(l, rank - 2, rank - 1)?;
                let (lower, upper) = if c.bool("upper")? { (&t, l) } else { (l, &t) };
                let y = b.op(
                    OpId::LinalgSolveTriangular,
                    [lower.into(), rhs.into(), Val::Bool(false)],
                )?;
                b.op(OpId::LinalgSolveTriangular, [upper.into(), y.into(), Val::Bool(true)])
                    .map(Val::Leaf)
            },
        )
        .doc("the solution X of L L^T X = self")
        .spelled("aten.@ torch.@ Tensor.@"),
        Op::composite("cholesky_inverse(Tensor self, bool upper=False) -> Tensor", |b, c| {
            let l = c.leaf("self")?;
            check_diagonal(b, l)?;
            let n = l.shape()?.last().cloned().unwrap_or(Dim::Const(0));
            let eye = b.op(OpId::Eye, [Val::Int(n.clone()), Val::Int(n), Val::DType(l.dtype())])?;
            let eye = b.expand(&eye, l.shape()?)?;
            b.op(OpId::CholeskySolve, [eye.into(), l.into(), c.get("upper").clone()])
                .map(Val::Leaf)
        })
        .doc("the inverse of L L^T")
        .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

fn cholesky(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (a, upper) = (c.leaf("self")?, c.bool("upper")?);
    let (mut all, mut info) = (vec![], vec![]);
    for m in tensor_to_matrices(a) {
        let m = if upper { m.transposed() } else { m };
        let (l, minor) = cholesky_of(&m);
        info.push(minor as f64);
        all.extend(if upper { l.transposed().v } else { l.v });
    }
    if c.bool("check_errors")? {
        check_info("linalg.cholesky_ex", &info, a)?;
    }
    let out = tensor_from_numbers(a.dtype(), a.shape(), all)?;
    let info = tensor_from_numbers(DType::I32, &a.shape()[..a.rank() - 2], info)?;
    Ok(Val::Tuple(vec![Val::Leaf(out), Val::Leaf(info)]))
}
