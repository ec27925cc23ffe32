//! Writes to tensors whose elements share memory.
//!
//! If an expanded dim repeats elements, most of torch's writes fail. Some skip the check (`fill_`, `masked_fill_`); rows declare
//! these with [`Op::shared_writes`]. Such a write stores each element that it changes and leaves the others alone. For other views
//! with shared memory, the contents after a write depend in torch on the order of a loop, unless all written values are equal.

use super::emit::{dims_val, ints_val};
use super::layout::{Layout, StridedWindow};
use super::view::BITS;
use super::{Build, Call, Op, OpError, OpResult, Traced};
use crate::op::OpBuilder;
use crate::op::OpId;
use crate::types::{DType, Dim, TensorType, Val};

/// Whether a write with these arguments, to a first operand with this layout, skips the check for elements that share
/// memory.
pub(crate) type SharedWrites = fn(&Call<TensorType>, &Layout) -> bool;

/// For [`Op::shared_writes`]: the check is always skipped.
pub(crate) fn always_shared(_: &Call<TensorType>, _: &Layout) -> bool {
    true
}

/// For [`Op::shared_writes`]: the check is skipped unless `value` is a tensor.
pub(crate) fn of_numbers(c: &Call<TensorType>, _: &Layout) -> bool {
    c.opt_leaf("value").is_none()
}

impl Op {
    /// Declares that the op's in-place form skips the check for elements that share memory if `rule` holds.
    pub fn shared_writes(mut self, rule: SharedWrites) -> Op {
        self.shared_writes = Some(rule);
        self
    }
}

/// Whether this call may write to its first operand, with layout `layout`, if elements share memory.
pub(crate) fn takes_shared(c: &Call<TensorType>, layout: &Layout) -> bool {
    c.op.shared_writes.is_some_and(|rule| rule(c, layout))
}

/// Whether torch detects that elements share memory: a dim of more than one element has stride 0.
pub(crate) fn is_expanded(shape: &[Dim], strides: &[Dim]) -> bool {
    let repeats = |(n, s): (&Dim, &Dim)| *s == Dim::Const(0) && !matches!(n, Dim::Const(0 | 1));
    !shape.contains(&Dim::Const(0)) && shape.iter().zip(strides).any(repeats)
}

/// Whether elements may share memory. Unknown sizes count as not shared.
pub(crate) fn may_share(shape: &[Dim], strides: &[Dim]) -> bool {
    if is_expanded(shape, strides) {
        return true;
    }
    let known = |(n, s): (&Dim, &Dim)| Some((s.as_const()?.unsigned_abs(), n.as_const()?.max(0) as u64));
    let Some(mut dims) = shape.iter().zip(strides).map(known).collect::<Option<Vec<_>>>() else {
        return false;
    };
    if dims.iter().any(|d| d.1 == 0) {
        return false;
    }
    dims.retain(|d| d.1 > 1);
    dims.sort_unstable();
    let mut reach = 0u64;
    dims.iter().any(|&(step, n)| {
        let shared = step <= reach;
        reach = reach.saturating_add(step.saturating_mul(n - 1));
        shared
    })
}

/// torch's error for a write to an expanded tensor.
pub(crate) fn expanded_write_error() -> OpError {
    OpError::shape(
        "unsupported operation: more than one element of the written-to tensor refers to a single memory location. \
         Please clone() the tensor before performing the operation.",
    )
}

/// Writes those elements of `new` that differ from the current ones to a window of `base`'s row-major elements.
pub(crate) fn write_changes(
    b: &mut dyn Build,
    base: &Traced,
    window: &StridedWindow,
    new: &Traced,
) -> OpResult<Traced> {
    let shape = base.shape()?.to_vec();
    let count = base.ty.numel();
    let offset = window.offset.clone().unwrap_or(Dim::Const(0));
    let place = [dims_val(&window.size), dims_val(&window.strides), Val::Int(offset)];
    let strided = |b: &mut dyn Build, x: &Traced| b.op(OpId::Strided, [vec![x.into()], place.to_vec()].concat());
    let flat = b.reshape(base, std::slice::from_ref(&count))?;
    let old = strided(b, &flat)?;
    let numbers = b.op(
        OpId::Arange,
        [
            Val::int(0),
            Val::Int(count.clone()),
            Val::int(1),
            Val::DType(DType::I64),
        ],
    )?;
    let positions = strided(b, &numbers)?;
    let (old_bits, new_bits) = (to_integer_bits(b, &old)?, to_integer_bits(b, new)?);
    let changed = b.ne(&old_bits, &new_bits)?;
    // Elements that have not changed are written to an extra element, which is dropped afterwards.
    let nowhere = b.full(&[], Val::Int(count.clone()), DType::I64)?;
    let positions = b.r#where(&changed, &positions, &nowhere)?;
    let extended = b.constant_pad_nd(&flat, ints_val(&[0, 1]))?;
    let (positions, new) = (
        b.reshape(&positions, &[Dim::Const(-1)])?,
        b.reshape(new, &[Dim::Const(-1)])?,
    );
    let all = b.index_put(&extended, Val::List(vec![(&positions).into()]), &new)?;
    let updated = b.op(OpId::Slice, [(&all).into(), Val::int(0), Val::int(0), Val::Int(count)])?;
    b.reshape(&updated, &shape)
}

/// The elements as integers of the same size, so that NaN equals itself and zeros of different sign differ.
fn to_integer_bits(b: &mut dyn Build, x: &Traced) -> OpResult<Traced> {
    let ints = match x.dtype().size() {
        1 => DType::U8,
        2 => DType::I16,
        4 => DType::I32,
        _ => DType::I64,
    };
    match x.dtype() == ints {
        true => Ok(x.clone()),
        false => b.op(BITS, [x.into(), Val::DType(ints)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_places_are_found_by_strides() {
        let dims = |v: &[i64]| v.iter().map(|&n| Dim::Const(n)).collect::<Vec<_>>();
        let share = |shape: &[i64], strides: &[i64]| may_share(&dims(shape), &dims(strides));
        assert!(!share(&[2, 3], &[3, 1]) && !share(&[3, 2], &[1, 3]) && !share(&[2, 3], &[7, 2]));
        assert!(share(&[3, 4], &[0, 1]) && share(&[3, 4], &[1, 1]) && share(&[2, 4], &[3, 1]));
        assert!(!share(&[1, 4], &[0, 1]) && !share(&[0, 4], &[0, 0]) && !share(&[], &[]));
    }
}
