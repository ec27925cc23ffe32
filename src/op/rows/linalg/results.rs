//! Tensors of results.

use crate::linalg::batch::Results;
use crate::linalg::real::Real;
use crate::op::rows::dense::zeros;
use crate::op::{Call, OpError, OpResult, Sizes};
use crate::tensor::{Element, Scalar, Tensor};
use crate::types::{DType, Val};

/// A tensor of these results in row-major order.
pub(in crate::op::rows) fn tensor_from_results(dtype: DType, shape: &[usize], v: Results) -> OpResult<Tensor> {
    match v {
        Results::F32(v) => tensor_from_slice(dtype, shape, &v),
        Results::F64(v) => tensor_from_slice(dtype, shape, &v),
    }
}

/// [`tensor_from_numbers`] for numbers in memory.
fn tensor_from_slice<T: Real>(dtype: DType, shape: &[usize], v: &[T]) -> OpResult<Tensor> {
    if matches!(dtype, DType::F16 | DType::BF16) {
        return tensor_from_slice(T::DTYPE, shape, v).map(|t| t.to(dtype));
    }
    if dtype != T::DTYPE {
        return tensor_from_numbers(dtype, shape, v.iter().copied());
    }
    let mut out = zeros(dtype, shape)?;
    let n = out.numel().min(v.len());
    out.as_mut_slice::<T>()[..n].copy_from_slice(&v[..n]);
    Ok(out)
}

/// A tensor of these numbers in row-major order.
pub(in crate::op::rows) fn tensor_from_numbers<T: Real>(
    dtype: DType,
    shape: &[usize],
    v: impl IntoIterator<Item = T>,
) -> OpResult<Tensor> {
    let mut out = zeros(dtype, shape)?;
    let n = out.numel();
    let v = v.into_iter().take(n);
    match dtype {
        DType::F32 => write(&mut out, v, |x| x.into() as f32),
        DType::F64 => write(&mut out, v, |x| x.into()),
        // Pivots and error codes.
        DType::I32 => write(&mut out, v.map(|x| x.into()), |x: f64| {
            match x.abs() < f64::from(i32::MAX) {
                true => x as i32,
                false => Scalar::F64(x).cast(DType::I32).to_i64() as i32,
            }
        }),
        _ => v.enumerate().for_each(|(i, x)| out.set(i, Scalar::F64(x.into()))),
    }
    Ok(out)
}

fn write<N, T: Element>(out: &mut Tensor, v: impl Iterator<Item = N>, convert: impl Fn(N) -> T) {
    out.as_mut_slice().iter_mut().zip(v).for_each(|(y, x)| *y = convert(x));
}

/// Packs several results into tensors of the types that the op's rule computes.
pub(in crate::op::rows) fn pack_results(c: &Call<Tensor>, values: Vec<Results>) -> OpResult<Val<Tensor>> {
    let ty = c.op.result_type(&c.types(), &mut Sizes::default())?;
    let mut out = vec![];
    for (t, v) in ty.leaves().into_iter().zip(values) {
        let shape = t
            .fixed_shape()
            .ok_or_else(|| OpError::shape("the sizes of a result are unknown"))?;
        out.push(Val::Leaf(tensor_from_results(t.dtype, &shape, v)?));
    }
    Ok(Val::Tuple(out))
}
