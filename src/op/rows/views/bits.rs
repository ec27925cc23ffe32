//! Views of a tensor's bytes as another dtype.

use crate::op::rows::pointwise::convert::want_held;
use crate::op::view::BITS;
use crate::op::{Meaning, Op, OpError, OpResult};
use crate::tensor::Tensor;
use crate::types::{DType, Dim, TensorType, Val};

pub(super) fn rows() -> Vec<Op> {
    let view = Op::new(
        (BITS.name(), "view_dtype(Tensor self, ScalarType dtype) -> Tensor"),
        |c, _| {
            let (from, shape) = c.shaped("self")?;
            let to = c.opt_dtype("dtype").unwrap_or(from);
            want_held(to)?;
            Ok(Val::Leaf(TensorType::new(to, bit_shape(from, to, shape)?)))
        },
        Meaning::Routine(|c| {
            let x = c.leaf("self")?;
            let to = c.opt_dtype("dtype").unwrap_or(x.dtype());
            let shape = bit_shape(x.dtype(), to, x.ty().shape.as_deref().unwrap_or_default())?;
            let shape: Vec<usize> = shape.iter().filter_map(|d| d.as_const().map(|d| d as usize)).collect();
            let mut out = Tensor::zeros(to, &shape);
            out.bytes_mut().copy_from_slice(x.bytes());
            Ok(Val::Leaf(out))
        }),
    );
    vec![
        view.doc("the same bytes reinterpreted as another dtype")
            .spelled("aten.view.dtype aten.view_copy.dtype Tensor.view")
            .aliasing(),
    ]
}

/// The shape of a tensor whose bytes are reinterpreted as another dtype: the last dim shrinks or grows.
fn bit_shape(from: DType, to: DType, shape: &[Dim]) -> OpResult<Vec<Dim>> {
    let (f, t) = (from.size() as i64, to.size() as i64);
    let mut out = shape.to_vec();
    if f == t {
        return Ok(out);
    }
    let Some(last) = out.last_mut() else {
        return Err(OpError::shape(format!(
            "self.dim() cannot be 0 to view {} as {} (different element sizes)",
            from.scalar_type_name(),
            to.scalar_type_name()
        )));
    };
    if f < t && last.as_const().is_some_and(|n| n % (t / f) != 0) {
        return Err(OpError::shape(format!(
            "self.size(-1) must be divisible by {} to view {} as {} (different element sizes), but got {last}",
            t / f,
            from.scalar_type_name(),
            to.scalar_type_name()
        )));
    }
    *last = last.mul(&Dim::Const(f)).floordiv(&Dim::Const(t));
    Ok(out)
}
