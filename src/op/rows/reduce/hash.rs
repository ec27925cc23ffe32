//! `hash_tensor`: hashes the bits of many elements into one number.

use super::{reduced_dims, reduced_shape};
use crate::op::promotion::not_implemented;
use crate::op::{Call, Meaning, Op, OpError, OpResult};
use crate::tensor::{Scalar, Tensor};
use crate::types::{DType, Dim, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    vec![
        Op::new(
            "hash_tensor(Tensor self, int[1]? dim=None, *, bool keepdim=False, int mode=0) -> Tensor",
            |c, _| hash_type(c),
            Meaning::Routine(hash_tensor),
        )
        .doc("the exclusive or of the elements' bits (of floats as f64, of integers as i64) along dims, as a `u64`")
        .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

fn hash_type(c: &Call<TensorType>) -> OpResult<Type> {
    let x = c.leaf("self")?;
    if !x.dtype.is_computed() {
        return Err(not_implemented("xor_sum_cpu", x.dtype));
    }
    let mode = c.int("mode")?;
    if mode != 0 {
        return Err(OpError::arg("mode", format!("Unknown hash_tensor mode: {mode}")));
    }
    let shape = match &x.shape {
        None => None,
        Some(shape) => {
            let dims = reduced_dims(c, shape.len(), false)?;
            check_not_empty(c, shape, &dims)?;
            Some(reduced_shape(shape, &dims, c.bool("keepdim")?))
        }
    };
    Ok(Val::Leaf(TensorType {
        dtype: DType::U64,
        shape,
    }))
}

/// Returns torch's error for hashing no elements.
fn check_not_empty(c: &Call<TensorType>, shape: &[Dim], dims: &[usize]) -> OpResult<()> {
    if !shape.contains(&Dim::Const(0)) {
        return Ok(());
    }
    if c.ints("dim")?.is_empty() {
        return Err(OpError::shape(
            "hash_tensor: Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the \
             'dim' argument.",
        ));
    }
    match dims.iter().find(|&&d| shape[d] == Dim::Const(0)) {
        Some(d) => Err(OpError::shape(format!(
            "hash_tensor: Expected reduction dim {d} to have non-zero size."
        ))),
        None => Ok(()),
    }
}

fn hash_tensor(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let x = c.leaf("self")?;
    let dims = reduced_dims(c, x.rank(), false)?;
    let reduced = reduced_shape(x.shape(), &dims, true);
    let mut out = vec![0i64; reduced.iter().product()];
    let mut position = vec![0usize; x.rank()];
    for i in 0..x.numel() {
        let place = position
            .iter()
            .zip(&reduced)
            .fold(0, |p, (&a, &n)| p * n + if n == 1 { 0 } else { a });
        out[place] ^= scalar_bits(x.get(i));
        for (a, &n) in position.iter_mut().zip(x.shape()).rev() {
            *a += 1;
            if *a < n {
                break;
            }
            *a = 0;
        }
    }
    let shape = reduced_shape(x.shape(), &dims, c.bool("keepdim")?);
    let values: Vec<Scalar> = out.into_iter().map(|v| Scalar::Int(DType::U64, v)).collect();
    Ok(Val::Leaf(Tensor::from_scalars(DType::U64, &shape, &values)))
}

fn scalar_bits(v: Scalar) -> i64 {
    match v {
        Scalar::Int(_, x) => x,
        Scalar::Bool(b) => b as i64,
        v => v.to_f64().to_bits() as i64,
    }
}
