//! The values of inverses, determinants and solutions of equations.

use super::errors::{check_codes, check_info};
use super::is_vectors;
use super::results::{pack_results, tensor_from_numbers, tensor_from_results};
use crate::linalg::batch::{Matrices, Results};
use crate::linalg::equations::Equations;
use crate::linalg::lu;
use crate::op::rows::dense::broadcast_position;
use crate::op::{Call, OpError, OpResult, Sizes};
use crate::tensor::Tensor;
use crate::types::{DType, Dim, TensorType, Val};

pub(super) fn inverse(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let a = c.leaf("A")?;
    let (inverses, info) = lu::inverses(&Matrices::of(a));
    if c.bool("check_errors")? {
        check_info("linalg.inv_ex", &info, a)?;
    }
    pack_results(c, vec![inverses, info.into()])
}

pub(super) fn determinant(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let a = c.leaf("A")?;
    let all = lu::determinants(&Matrices::of(a));
    tensor_from_numbers(a.dtype(), &a.shape()[..a.rank() - 2], all).map(Val::Leaf)
}

pub(super) fn slogdet(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (signs, logarithms) = lu::signs_and_logarithms(&Matrices::of(c.leaf("A")?));
    pack_results(c, vec![signs.into(), logarithms.into()])
}

/// The equations of two batches, whose batch dims are broadcast to those of the result.
pub(super) fn equations<'a>(a: &'a Tensor, b: &'a Tensor) -> OpResult<Equations<'a>> {
    let (own_a, own_b) = (&a.shape()[..a.rank() - 2], &b.shape()[..b.rank() - 2]);
    let lead = Sizes::default().broadcast(&const_dims(own_a), &const_dims(own_b))?;
    let lead: Vec<usize> = lead.iter().filter_map(|d| d.as_const()).map(|d| d as usize).collect();
    let count = lead.iter().product();
    let places = move |i: usize| {
        let place = |own: &[usize]| match own == lead {
            true => i,
            false => broadcast_position(own, &lead, i),
        };
        (place(own_a), place(own_b))
    };
    Ok(Equations {
        a: Matrices::of(a),
        b: Matrices::of(b),
        count,
        places: Box::new(places),
    })
}

/// The only result, of the type that the op's rule computes.
pub(super) fn solution(c: &Call<Tensor>, dtype: DType, x: Results) -> OpResult<Val<Tensor>> {
    let ty = c.op.result_type(&c.types(), &mut Sizes::default())?;
    let shape = ty.as_leaf().and_then(TensorType::fixed_shape);
    let shape = shape.ok_or_else(|| OpError::shape("the sizes of the result are unknown"))?;
    tensor_from_results(dtype, &shape, x).map(Val::Leaf)
}

fn const_dims(shape: &[usize]) -> Vec<Dim> {
    shape.iter().map(|&n| Dim::Const(n as i64)).collect()
}

pub(super) fn solve(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (a, b, left) = (c.leaf("A")?, c.leaf("B")?, c.bool("left")?);
    let vectors = is_vectors(&const_dims(a.shape()), &const_dims(b.shape()), left)?;
    let b = match vectors {
        true => b.reshape(&[b.shape(), &[1]].concat()),
        false => b.clone(),
    };
    let check = |place: usize, singular: usize| {
        let codes = std::iter::repeat_n(0, place).chain([singular as i64]);
        check_codes("torch.linalg.solve", codes, a.rank() == 2)
    };
    let x = equations(a, &b)?.solve(left, &check)?;
    solution(c, a.dtype(), x)
}

pub(super) fn solve_triangular(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (a, b) = (c.leaf("self")?, c.leaf("B")?);
    let (left, upper, unit) = (c.bool("left")?, c.bool("upper")?, c.bool("unitriangular")?);
    solution(c, a.dtype(), equations(a, b)?.solve_triangles(left, upper, unit))
}

/// The solutions of `A X = B` for the product A of a triangular factor and its transpose.
pub(super) fn cholesky_solve(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (b, l, upper) = (c.leaf("self")?, c.leaf("input2")?, c.bool("upper")?);
    solution(c, l.dtype(), equations(l, b)?.solve_by_cholesky(upper))
}
