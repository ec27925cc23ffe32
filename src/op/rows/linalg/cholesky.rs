//! Cholesky factors, and solutions by them.

use super::blocks;
use super::errors::{call_check_errors, check_diagonal, check_info};
use super::interleaved::{self, Interleaved, LANES};
use super::matrix::{Matrix, tensor_from_numbers};
use super::real::{Real, in_dtype};
use super::solutions::cholesky_solve;
use super::transfer::Matrices;
use super::{left_solution_type, want_square, with_info};
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
    let matrices = Matrices::of(c.leaf("self")?);
    in_dtype!(matrices, cholesky_in(c, &matrices))
}

fn cholesky_in<T: Real>(c: &Call<Tensor>, matrices: &Matrices) -> OpResult<Val<Tensor>> {
    let (a, upper) = (c.leaf("self")?, c.bool("upper")?);
    let (mut all, mut info) = (Vec::with_capacity(a.numel()), vec![]);
    if interleaved::suits(matrices.count, matrices.rows, matrices.columns) {
        let mut m = Interleaved::zeros(0, 0);
        for first in interleaved::groups(matrices.count) {
            let count = (matrices.count - first).min(LANES);
            matrices.interleave(interleaved::places(first, matrices.count), upper, &mut m);
            let minors = interleaved::cholesky(&mut m);
            info.extend(minors[..count].iter().map(|m| *m as f64));
            m.append(count, upper, &mut all);
        }
    } else {
        let mut m = Matrix::<T>::zeros(0, 0);
        for i in 0..matrices.count {
            match upper {
                true => matrices.read_transposed(i, &mut m),
                false => matrices.read(i, &mut m),
            }
            info.push(blocks::cholesky(&mut m) as f64);
            match upper {
                true => all.append(&mut m.transposed().v),
                false => all.extend_from_slice(&m.v),
            }
        }
    }
    if c.bool("check_errors")? {
        check_info("linalg.cholesky_ex", &info, a)?;
    }
    let out = tensor_from_numbers(a.dtype(), a.shape(), all)?;
    let info = tensor_from_numbers(DType::I32, &a.shape()[..a.rank() - 2], info)?;
    Ok(Val::Tuple(vec![Val::Leaf(out), Val::Leaf(info)]))
}
