//! Forms of linear algebra that torch has deprecated or uses internally.

use crate::op::emit::ints_val;
use crate::op::{Op, OpBuilder, OpError, OpId};
use crate::types::Val;

pub(super) fn triangular_solve_rows() -> Vec<Op> {
    vec![
        Op::composite("triangular_solve(Tensor self, Tensor A, bool upper=True, bool transpose=False, bool unitriangular=False) -> (Tensor, \
             Tensor)",
            |b, c| {
                let (rhs, a) = (c.leaf("self")?, c.leaf("A")?);
                let rank = a.rank()?;
                if rank < 2 {
                    return Err(OpError::shape("torch.triangular_solve: Expected A to have at least 2 dimensions"));
                }
                let (upper, turned) = (c.bool("upper")?, c.bool("transpose")?);
                let m = if turned { b.transpose(a, rank - 2, rank - 1)? } else { a.clone() };
                let args = [m.into(), rhs.into(), Val::Bool(upper != turned), Val::Bool(true), c.get("unitriangular").clone()];
                let x = b.op(OpId::LinalgSolveTriangular, args)?;
                let lead = x.shape()?[..x.rank()? - 2].to_vec();
                let full = [lead, a.shape()?[rank - 2..].to_vec()].concat();
                let copy = b.expand(a, &full)?;
                let copy = b.clone(&copy)?;
                Ok(Val::Tuple(vec![x.into(), copy.into()]))
            },
        )
        .doc("the solution X of A X = self for triangular A, and a copy of A")
        .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

/// Determinants with LU factors.
pub(super) fn determinant_rows() -> Vec<Op> {
    vec![
        Op::composite("_linalg_det(Tensor A) -> (Tensor, Tensor, Tensor)", |b, c| {
            let d = b.linalg_det(c.get("A").clone())?;
            let v = b.call_many(OpId::LinalgLuFactorEx, [c.get("A").clone()])?;
            Ok(Val::Tuple([&d, &v[0], &v[1]].map(Val::from).to_vec()))
        })
        .doc("the determinant, and the LU factors")
        .spelled("aten.@"),
        Op::composite(
            "_linalg_slogdet(Tensor A) -> (Tensor, Tensor, Tensor, Tensor)",
            |b, c| {
                let d = b.call_many(OpId::LinalgSlogdet, [c.get("A").clone()])?;
                let v = b.call_many(OpId::LinalgLuFactorEx, [c.get("A").clone()])?;
                Ok(Val::Tuple([&d[0], &d[1], &v[0], &v[1]].map(Val::from).to_vec()))
            },
        )
        .doc("the determinant's sign and the logarithm of its magnitude, and the LU factors")
        .spelled("aten.@"),
    ]
}

pub(super) fn nuclear_norm_rows() -> Vec<Op> {
    vec![
        Op::composite(
            "nuclear_norm(Tensor self, int[2]? dim=None, bool keepdim=False) -> Tensor",
            |b, c| {
                let x = c.leaf("self")?;
                let dims = match c.opt_ints("dim")? {
                    Some(d) => d,
                    None if x.rank()? == 2 => vec![0, 1],
                    None => return Err(OpError::shape("Expected a tensor with 2 dimensions")),
                };
                b.call(
                    OpId::LinalgMatrixNorm,
                    vec![x.into(), Val::str("nuc"), ints_val(&dims), c.get("keepdim").clone()],
                )
            },
        )
        .doc("the sum of the singular values")
        .spelled("aten.@.dim torch.@")
        .form(
            "aten.nuclear_norm.default torch.nuclear_norm",
            "nuclear_norm(Tensor self, bool keepdim=False) -> Tensor",
        ),
    ]
}
