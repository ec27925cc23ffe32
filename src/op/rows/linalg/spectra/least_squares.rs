//! Least-squares solutions.

use super::{dims_of, is_vector};
use crate::linalg::batch::Matrices;
use crate::linalg::svd::LeastSquares;
use crate::op::rows::dense::broadcast_position;
use crate::op::rows::linalg::factors::with_least;
use crate::op::rows::linalg::results::tensor_from_numbers;
use crate::op::rows::linalg::want_matrices;
use crate::op::{Call, OpError, OpResult, Sizes};
use crate::tensor::Tensor;
use crate::types::{DType, Dim, TensorType, Type, Val};

pub(super) fn lstsq_type(c: &Call<TensorType>, sizes: &mut Sizes) -> OpResult<Type> {
    let (d, a) = want_matrices(c, "self")?;
    let (bd, b) = c.shaped("b")?;
    if bd != d {
        return Err(OpError::dtype(
            "torch.linalg.lstsq: Expected input and other to have the same dtype",
        ));
    }
    let driver = driver_name(c)?;
    let vector = is_vector(a, b);
    if !vector && b.len() < 2 {
        return Err(OpError::shape(
            "torch.linalg.lstsq: other must have at least 1 dimension",
        ));
    }
    let (m, n) = (&a[a.len() - 2], &a[a.len() - 1]);
    let (lead_b, columns): (&[Dim], &[Dim]) = if vector {
        (&b[..b.len() - 1], &[])
    } else {
        (&b[..b.len() - 2], &b[b.len() - 1..])
    };
    let title = || "torch.linalg.lstsq: input.size(-2) should match other.size(-2)".to_string();
    sizes.unify_dims(m, &b[lead_b.len()], title)?;
    let lead = sizes.broadcast(&a[..a.len() - 2], lead_b)?;
    let x = [&lead[..], std::slice::from_ref(n), columns].concat();
    let residuals = residual_shape(driver, [m, n], &lead, columns);
    let ranks = if driver == "gels" { empty_shape() } else { lead.clone() };
    let values = match driver {
        "gelsd" | "gelss" => [&lead[..], &with_least(a)?[a.len() - 2..]].concat(),
        _ => empty_shape(),
    };
    let tensor = |d: DType, s: Vec<Dim>| Val::Leaf(TensorType::new(d, s));
    Ok(Val::Tuple(vec![
        tensor(d, x),
        tensor(d, residuals),
        tensor(DType::I64, ranks),
        tensor(d, values),
    ]))
}

/// The shape of a result that a driver does not compute.
fn empty_shape() -> Vec<Dim> {
    vec![Dim::Const(0)]
}

/// The shape of the residuals. They are returned only for matrices of full rank with more rows than columns.
fn residual_shape(driver: &str, [m, n]: [&Dim; 2], lead: &[Dim], columns: &[Dim]) -> Vec<Dim> {
    let overdetermined = m.sub(n).as_const().is_some_and(|d| d > 0);
    match driver {
        "gels" if overdetermined => [lead, columns].concat(),
        "gelsd" | "gelss" if overdetermined => vec![Dim::Unknown; lead.len() + columns.len()],
        _ => empty_shape(),
    }
}

fn driver_name<T>(c: &Call<T>) -> OpResult<&str> {
    let name = if c.is_none("driver") { "gelsy" } else { c.str("driver")? };
    match ["gels", "gelsy", "gelsd", "gelss"].contains(&name) {
        true => Ok(name),
        false => Err(OpError::arg(
            "driver",
            "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)",
        )),
    }
}

/// The threshold for singular values, relative to the largest; `None` for `gels`, which assumes full rank.
fn effective_rcond(c: &Call<Tensor>, driver: &str, dtype: DType, longest: usize) -> OpResult<Option<f64>> {
    let rcond = if !c.is_none("rcond") {
        c.f64("rcond")?
    } else if dtype == DType::F32 {
        f64::from(f32::EPSILON) * longest as f64
    } else {
        f64::EPSILON * longest as f64
    };
    Ok((driver != "gels").then_some(rcond))
}

pub(super) fn lstsq(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (a, b) = (c.leaf("self")?, c.leaf("b")?);
    let ty = lstsq_type(&c.types(), &mut Sizes::default())?;
    let types = ty.leaves();
    let fixed = |i: usize| types.get(i).and_then(|t| t.fixed_shape()).unwrap_or_default();
    let (shape_x, shape_ranks, shape_values) = (fixed(0), fixed(2), fixed(3));
    let driver = driver_name(c)?;
    let vector = is_vector(&dims_of(a), &dims_of(b));
    let b = match vector {
        true => b.reshape(&[b.shape(), &[1]].concat()),
        false => b.clone(),
    };
    let (m, n) = (a.shape()[a.rank() - 2], a.shape()[a.rank() - 1]);
    let rcond = effective_rcond(c, driver, a.dtype(), m.max(n))?;
    let lead = &shape_x[..shape_x.len() - 2 + vector as usize];
    let (mut x, mut left, mut ranks, mut values) = (vec![], vec![], vec![], vec![]);
    for solved in solve_all(a, &b, lead, rcond) {
        x.extend(solved.x);
        left.extend(solved.rest);
        ranks.push(solved.rank as f64);
        values.extend(solved.values);
    }
    let full = driver == "gels" || ranks.iter().all(|r| *r == n as f64);
    let shape_left = match m > n && driver != "gelsy" && full {
        true => [lead, if vector { &[] } else { &shape_x[shape_x.len() - 1..] }].concat(),
        false => vec![0],
    };
    Ok(Val::Tuple(vec![
        Val::Leaf(tensor_from_numbers(a.dtype(), &shape_x, x)?),
        Val::Leaf(tensor_from_numbers(a.dtype(), &shape_left, left)?),
        Val::Leaf(tensor_from_numbers(DType::I64, &shape_ranks, ranks)?),
        Val::Leaf(tensor_from_numbers(a.dtype(), &shape_values, values)?),
    ]))
}

/// The solutions for batches of matrices, which are broadcast to `lead`.
fn solve_all(a: &Tensor, b: &Tensor, lead: &[usize], rcond: Option<f64>) -> Vec<LeastSquares> {
    let (all_a, all_b) = (Matrices::of(a).all(), Matrices::of(b).all());
    let (own_a, own_b) = (&a.shape()[..a.rank() - 2], &b.shape()[..b.rank() - 2]);
    let pair = |i: usize| {
        let (a, b) = (broadcast_position(own_a, lead, i), broadcast_position(own_b, lead, i));
        (&all_a[a], &all_b[b])
    };
    LeastSquares::solve_all(lead.iter().product(), pair, rcond)
}
