//! Reductions. Sums are accumulated in f64 (sums of f64 with compensation) and rounded once to the accumulator's dtype;
//! integers wrap.

use crate::op::view::strided_positions;
use crate::op::{Combine, OpError, OpResult, Reduction};
use crate::scalar::eval_tensors;
use crate::tensor::{Scalar, Tensor, contiguous_strides};
use crate::types::{Category, DType};

/// The reduction of `x`.
pub(super) fn eval_reduction(r: &Reduction, x: &Tensor) -> OpResult<Tensor> {
    let single_result = |t: Vec<Tensor>| {
        t.into_iter()
            .next()
            .ok_or_else(|| OpError::value("the expression has no result"))
    };
    let mapped = single_result(eval_tensors(&r.pre, &[x], x.shape()).map_err(OpError::from_eval_error)?)?;
    let reduced_shape: Vec<usize> = (0..x.rank())
        .map(|d| if r.dims.contains(&d) { 1 } else { x.shape()[d] })
        .collect();
    let dense = contiguous_strides(&reduced_shape);
    let strides: Vec<i64> = (0..x.rank())
        .map(|d| if r.dims.contains(&d) { 0 } else { dense[d] as i64 })
        .collect();
    let combined = match r.acc.category() {
        Category::Bool | Category::Int => reduce_ints(r, &mapped, &strides, reduced_shape.iter().product()),
        _ if r.combine == Combine::Sum && mapped.dtype() == DType::F64 => {
            sum_f64(&mapped, &strides, reduced_shape.iter().product())
        }
        _ if r.combine == Combine::Prod && r.acc == DType::F32 => {
            multiply_f32(&mapped, &strides, reduced_shape.iter().product())
        }
        _ => reduce_floats(r, &mapped, &strides, reduced_shape.iter().product()),
    };
    let shape = r
        .out
        .fixed_shape()
        .ok_or_else(|| OpError::shape("the size of a reduction is unknown"))?;
    let combined = Tensor::from_fn(r.acc, &shape, |i| combined[i]);
    single_result(eval_tensors(&r.post, &[&combined], &shape).map_err(OpError::from_eval_error)?)
}

fn reduce_floats(r: &Reduction, x: &Tensor, strides: &[i64], n: usize) -> Vec<Scalar> {
    let (start, f): (f64, fn(f64, f64) -> f64) = match r.combine {
        Combine::Sum => (0.0, |a, b| a + b),
        Combine::Prod => (1.0, |a, b| a * b),
        Combine::Max => (f64::NEG_INFINITY, |a, b| if b > a || b.is_nan() { b } else { a }),
        Combine::Min => (f64::INFINITY, |a, b| if b < a || b.is_nan() { b } else { a }),
        Combine::Any => (0.0, |a, b| (a != 0.0 || b != 0.0) as u8 as f64),
        Combine::All => (1.0, |a, b| (a != 0.0 && b != 0.0) as u8 as f64),
    };
    let mut acc = vec![start; n];
    if x.dtype() == DType::F32 {
        let v = x.as_slice::<f32>();
        strided_positions(x.shape(), 0, strides, &mut |i, p| acc[p] = f(acc[p], v[i] as f64));
    } else {
        strided_positions(x.shape(), 0, strides, &mut |i, p| acc[p] = f(acc[p], x.get(i).to_f64()));
    }
    acc.into_iter().map(Scalar::F64).collect()
}

/// Compensated sums of f64 (Neumaier's): torch's cascade is more accurate than sequential additions.
fn sum_f64(x: &Tensor, strides: &[i64], n: usize) -> Vec<Scalar> {
    let mut acc = vec![(0f64, 0f64); n];
    let v = x.as_slice::<f64>();
    strided_positions(x.shape(), 0, strides, &mut |i, p| {
        let (sum, lost) = acc[p];
        let next = sum + v[i];
        let missed = match sum.abs() >= v[i].abs() {
            true => sum - next + v[i],
            false => v[i] - next + sum,
        };
        // Infinity minus infinity is NaN, which is not a rounding error.
        acc[p] = (next, if missed.is_nan() { 0.0 } else { lost + missed });
    });
    let total = |(sum, lost): (f64, f64)| Scalar::F64(if sum.is_finite() { sum + lost } else { sum });
    acc.into_iter().map(total).collect()
}

/// Products of f32 in f32, so that they overflow where torch's do.
fn multiply_f32(x: &Tensor, strides: &[i64], n: usize) -> Vec<Scalar> {
    let mut acc = vec![1f32; n];
    let v = x.as_slice::<f32>();
    strided_positions(x.shape(), 0, strides, &mut |i, p| acc[p] *= v[i]);
    acc.into_iter().map(Scalar::F32).collect()
}

fn reduce_ints(r: &Reduction, x: &Tensor, strides: &[i64], n: usize) -> Vec<Scalar> {
    let (start, f): (i64, fn(i64, i64) -> i64) = match r.combine {
        Combine::Sum => (0, i64::wrapping_add),
        Combine::Prod => (1, i64::wrapping_mul),
        Combine::Max => (i64::MIN, i64::max),
        Combine::Min => (i64::MAX, i64::min),
        Combine::Any => (0, |a, b| (a != 0 || b != 0) as i64),
        Combine::All => (1, |a, b| (a != 0 && b != 0) as i64),
    };
    let mut acc = vec![start; n];
    strided_positions(x.shape(), 0, strides, &mut |i, p| acc[p] = f(acc[p], x.get(i).to_i64()));
    // Integers wrap to the accumulator's dtype.
    acc.into_iter().map(|v| Scalar::from_i64(r.acc, v)).collect()
}
