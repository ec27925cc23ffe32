//! Helpers for routines on whole tensors: native compute types, index checks, allocation.

use crate::diag::Code;
use crate::op::{Call, OpError, OpResult};
use crate::tensor::{Element, Tensor, byte_len, is_available};
use crate::types::{DType, TensorType};

impl Call<Tensor> {
    /// The call with types as arguments.
    pub fn types(&self) -> Call<TensorType> {
        self.map(Tensor::ty)
    }
}

/// The number types of routines: f32, f64, and i64 for all integers and bools.
pub(super) trait Number: Element + PartialOrd + Default {
    /// The lowest value.
    const LOWEST: Self;
    fn add(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// Division. Integers truncate, and their divisor is never 0.
    fn div(self, other: Self) -> Self;
    fn from_f64(x: f64) -> Self;
    /// Divides all values by `n`, which is not 0. Integers truncate.
    fn divide_all(values: &mut [Self], n: i64);
    fn is_nan(self) -> bool;
    /// Whether `self` replaces `best` as the maximum: greater, or NaN.
    #[inline(always)]
    fn beats(self, best: Self) -> bool {
        (self > best) | self.is_nan()
    }
}

macro_rules! floats {
    ($($t:ty),*) => { $(impl Number for $t {
        const LOWEST: $t = <$t>::NEG_INFINITY;
        fn add(self, o: $t) -> $t { self + o }
        fn mul(self, o: $t) -> $t { self * o }
        fn div(self, o: $t) -> $t { self / o }
        fn from_f64(x: f64) -> $t { x as $t }
        #[inline(always)]
        fn divide_all(values: &mut [$t], n: i64) {
            let by = n as f64 as $t;
            for v in values {
                *v /= by;
            }
        }
        fn is_nan(self) -> bool { <$t>::is_nan(self) }
    })* };
}
floats!(f32, f64);

impl Number for i64 {
    const LOWEST: i64 = i64::MIN;
    fn add(self, o: i64) -> i64 {
        self.wrapping_add(o)
    }
    fn mul(self, o: i64) -> i64 {
        self.wrapping_mul(o)
    }
    fn div(self, o: i64) -> i64 {
        self.wrapping_div(o)
    }
    fn from_f64(x: f64) -> i64 {
        x as i64
    }
    #[inline(always)]
    fn divide_all(values: &mut [i64], n: i64) {
        let mut bits = n.unsigned_abs();
        for v in values.iter() {
            bits |= v.unsigned_abs();
        }
        if bits >> EXACT_BITS == 0 {
            return divide_as_floats(values, n as f64);
        }
        for v in values {
            *v = v.wrapping_div(n);
        }
    }
    fn is_nan(self) -> bool {
        false
    }
}

/// The maximum number of bits of integers that f64 divides exactly.
const EXACT_BITS: u32 = 51;

/// Divides integers of at most [`EXACT_BITS`] bits by one, truncating. A quotient that is no integer is further from the next one than
/// the rounding error, so that floats give the same results, and a processor divides several of these at once.
#[inline(always)]
fn divide_as_floats(values: &mut [i64], by: f64) {
    // Its lowest bit counts ones.
    const BASE: f64 = 3.0 * (1u64 << EXACT_BITS) as f64;
    let bits = BASE.to_bits() as i64;
    for v in values {
        let x = f64::from_bits((*v + bits) as u64) - BASE;
        let quotient = (x / by).trunc() + BASE;
        *v = quotient.to_bits() as i64 - bits;
    }
}

/// The dtype in which routines compute on tensors of `dtype`.
pub(super) fn native(dtype: DType) -> DType {
    match dtype.compute_dtype() {
        d @ (DType::F32 | DType::F64) => d,
        _ => DType::I64,
    }
}

/// Runs `$body` with the type `$t` for the [`native`] dtype of a dtype.
macro_rules! with_number {
    ($dtype:expr, $t:ident => $body:expr) => {
        match $crate::op::rows::dense::native($dtype) {
            $crate::types::DType::F32 => {
                type $t = f32;
                $body
            }
            $crate::types::DType::F64 => {
                type $t = f64;
                $body
            }
            _ => {
                type $t = i64;
                $body
            }
        }
    };
}
pub(super) use with_number;

/// The tensor's elements as i64 indices; E0303 with the message `message` unless it is i64 or i32, or empty.
pub(super) fn to_i64_indices(t: &Tensor, message: &str) -> OpResult<Tensor> {
    if matches!(t.dtype(), DType::I64 | DType::I32) || t.numel() == 0 {
        Ok(t.to(DType::I64))
    } else {
        Err(OpError::dtype(message.to_string()))
    }
}

/// `index` counted from the front; E0502 with torch's text if it is out of bounds.
pub(super) fn in_bounds(index: i64, size: usize, dim: usize) -> OpResult<usize> {
    let n = size as i64;
    if (-n..n).contains(&index) {
        return Ok(if index < 0 { index + n } else { index } as usize);
    }
    Err(OpError::value(format!(
        "index {index} is out of bounds for dimension {dim} with size {size}"
    )))
}

/// Like [`in_bounds`], for an index that must not be negative.
pub(super) fn in_range(index: i64, size: usize, dim: usize) -> OpResult<usize> {
    match usize::try_from(index) {
        Ok(i) if i < size => Ok(i),
        _ => Err(OpError::value(format!(
            "index {index} is out of bounds for dimension {dim} with size {size}"
        ))),
    }
}

/// The sizes before, at and after `dim`: the tensor viewed as `[outer, n, inner]`. A 0-dim tensor counts as one
/// element.
pub(super) fn sizes_around(shape: &[usize], dim: usize) -> (usize, usize, usize) {
    match shape.get(dim) {
        Some(&n) => (shape[..dim].iter().product(), n, shape[dim + 1..].iter().product()),
        None => (1, 1, 1),
    }
}

/// A tensor of zeros; E0302 if its size in bytes overflows, E0509 if memory runs out.
pub(super) fn zeros(dtype: DType, shape: &[usize]) -> OpResult<Tensor> {
    match byte_len(dtype, shape) {
        Some(bytes) if is_available(bytes) => Ok(Tensor::zeros(dtype, shape)),
        Some(_) => {
            let title = format!("not enough memory for a tensor {dtype}{shape:?}");
            Err(OpError::new(Code::E0509, title))
        }
        None => Err(OpError::shape(format!("a tensor of shape {shape:?} is too large"))),
    }
}

/// The batch index, in a tensor with batch dims `shape`, of element `i` of the batch dims `lead` to which it is
/// broadcast.
pub(super) fn broadcast_position(shape: &[usize], lead: &[usize], mut i: usize) -> usize {
    let (mut position, mut stride) = (0, 1);
    for (k, &n) in lead.iter().enumerate().rev() {
        let x = i % n.max(1);
        i /= n.max(1);
        if let Some(&size) = (k + shape.len()).checked_sub(lead.len()).and_then(|j| shape.get(j)) {
            position += if size == 1 { 0 } else { x * stride };
            stride *= size;
        }
    }
    position
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_divided_in_floats_where_these_are_exact() {
        let edge = 1i64 << EXACT_BITS;
        let mut values: Vec<i64> = (-60..60).collect();
        values.extend([edge - 1, 1 - edge, edge - 7, 3 * (edge / 9), 7 - edge]);
        for n in [1, -1, 2, 3, -5, 7, 9, 25, 49, 1000, edge - 1, i64::MAX, i64::MIN] {
            for more in [&[][..], &[edge], &[i64::MIN, i64::MAX]] {
                let mut got = [&values, more].concat();
                let want: Vec<i64> = got.iter().map(|v| v.wrapping_div(n)).collect();
                i64::divide_all(&mut got, n);
                assert_eq!(got, want, "{n}");
            }
        }
    }
}
