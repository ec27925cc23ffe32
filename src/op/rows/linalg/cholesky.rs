//! Cholesky factors, and solutions by them.

use super::errors::{call_check_errors, check_diagonal, check_info};
use super::results::pack_results;
use super::solutions::cholesky_solve;
use super::{left_solution_type, want_square, with_info};
use crate::linalg::batch::Matrices;
use crate::linalg::cholesky::factors_of_all;
use crate::op::{Call, Meaning, Op, OpError, OpId, OpResult};
use crate::tensor::Tensor;
use crate::types::{Dim, Val};

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
        Op::new(
            "cholesky_solve(Tensor self, Tensor input2, bool upper=False) -> Tensor",
            |c, sizes| {
                if c.shaped("input2")?.1.len() < 2 {
                    return Err(OpError::shape("cholesky_solve requires matrices"));
                }
                let (d, l) = want_square(c, "input2")?;
                left_solution_type(sizes, d, l, c.shaped("self")?.1)
            },
            Meaning::Routine(cholesky_solve),
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
    let (factors, info) = factors_of_all(&Matrices::of(a), upper);
    if c.bool("check_errors")? {
        check_info("linalg.cholesky_ex", &info, a)?;
    }
    pack_results(c, vec![factors, info.into()])
}
