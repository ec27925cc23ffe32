//! Routines that write their results to memory of the caller's, and how they move elements: by size, in rows, without looking at dtypes
//! inside their loops.

use super::dense::zeros;
use crate::op::view::{strided_positions, strided_rows};
use crate::op::{Call, FillFn, OpError, OpResult, Sizes};
use crate::parallel::Pool;
use crate::tensor::{Tensor, ViewMut, contiguous_strides, copy_row};
use crate::types::{TensorType, Val};
use std::sync::{Mutex, PoisonError};

/// Runs a [`Meaning::Fill`](crate::op::Meaning::Fill) with new memory for the results, on the threads that were lent.
pub(crate) fn fill_new(call: &Call<Tensor>, fill: FillFn) -> OpResult<Val<Tensor>> {
    let ty = call.op.result_type(&call.types(), &mut Sizes::default())?;
    let many = matches!(ty, Val::Tuple(_));
    let fresh = |t: &TensorType| {
        let shape = t.fixed_shape();
        zeros(
            t.dtype,
            &shape.ok_or_else(|| OpError::shape("the size of the result is not known"))?,
        )
    };
    let mut tensors = ty.leaves().into_iter().map(fresh).collect::<OpResult<Vec<Tensor>>>()?;
    let mut outs: Vec<ViewMut> = tensors.iter_mut().map(ViewMut::from).collect();
    Pool::with_lent(|pool| fill(call, &mut outs, pool))?;
    drop(outs);
    Ok(match many {
        true => Val::Tuple(tensors.into_iter().map(Val::Leaf).collect()),
        false => Val::Leaf(tensors.swap_remove(0)),
    })
}

/// Runs `$body` with the constant `$n`, the number of bytes of an element.
macro_rules! with_size {
    ($size:expr, $n:ident => $body:expr) => {
        match $size {
            1 => {
                const $n: usize = 1;
                $body
            }
            2 => {
                const $n: usize = 2;
                $body
            }
            4 => {
                const $n: usize = 4;
                $body
            }
            8 => {
                const $n: usize = 8;
                $body
            }
            _ => {
                const $n: usize = 16;
                $body
            }
        }
    };
}
pub(super) use with_size;

/// Runs `$body` with operand and result as slices of words that are as large as an element.
macro_rules! with_word {
    ($size:expr, $src:expr, $dst:expr, |$s:ident, $d:ident| $body:expr) => {
        match $size {
            1 => with_word!(@cells u8, $src, $dst, $s, $d, $body),
            2 => with_word!(@cells i16, $src, $dst, $s, $d, $body),
            4 => with_word!(@cells i32, $src, $dst, $s, $d, $body),
            8 => with_word!(@cells i64, $src, $dst, $s, $d, $body),
            _ => {
                let ($s, $d) = ($src.as_chunks::<16>().0, $dst.as_chunks_mut::<16>().0);
                $body
            }
        }
    };
    (@cells $t:ty, $src:expr, $dst:expr, $s:ident, $d:ident, $body:expr) => {{
        let $s = $crate::tensor::cells_of::<$t>($src);
        let $d = $crate::tensor::cells_of_mut::<$t>($dst);
        $body
    }};
}
pub(super) use with_word;

/// A thread handles at least this many bytes, or it is not worth waking.
pub(super) const BYTES_PER_PART: usize = 128 << 10;

/// The number of units of `bytes` each, of `n`, that a thread handles at once.
pub(super) fn units_per_part(n: usize, bytes: usize, pool: &Pool) -> usize {
    let shares = n.div_ceil(4 * pool.threads());
    shares.max(BYTES_PER_PART.div_ceil(bytes.max(1))).max(1)
}

/// The tensor broadcast to `shape`.
pub(super) fn expanded(t: &Tensor, shape: &[usize]) -> Tensor {
    if t.shape() == shape {
        return t.clone();
    }
    let lead = shape.len() - t.rank();
    let own = contiguous_strides(t.shape());
    let stride = |i: usize| match i.checked_sub(lead) {
        Some(j) if t.shape()[j] != 1 => own[j] as i64,
        _ => 0,
    };
    let strides: Vec<i64> = (0..shape.len()).map(stride).collect();
    let mut out = Tensor::zeros(t.dtype(), shape);
    with_size!(t.dtype().size(), N => {
        let (src, dst) = (t.bytes().as_chunks::<N>().0, out.bytes_mut().as_chunks_mut::<N>().0);
        strided_positions(shape, 0, &strides, &mut |i, p| dst[i] = src[p]);
    });
    out
}

/// Calls `f(i, a, b)` for matching parts of two results, the last of which may be shorter, on the threads. Panics if a length is 0.
pub(super) fn run_pairs<A: Send, B: Send>(
    pool: &Pool,
    (a, a_len): (&mut [A], usize),
    (b, b_len): (&mut [B], usize),
    f: impl Fn(usize, &mut [A], &mut [B]) + Sync,
) {
    let mut parts: Vec<_> = a.chunks_mut(a_len).zip(b.chunks_mut(b_len)).collect();
    pool.run_parts(&mut parts, 1, |i, part| {
        if let [(a, b)] = part {
            f(i, a, b);
        }
    });
}

/// Copies all of a tensor to a result of the same size, unless they are the same memory.
pub(super) fn copy_all(from: &Tensor, to: &mut ViewMut<'_>, pool: &Pool) {
    if std::ptr::eq(from.bytes().as_ptr(), to.address().cast_const()) {
        return;
    }
    let (src, dst) = (from.bytes(), to.bytes_mut());
    let len = units_per_part(dst.len(), 1, pool);
    pool.run_parts(dst, len, |i, part| {
        part.copy_from_slice(&src[i * len..i * len + part.len()])
    });
}

/// Copies `src`, row-major elements of `size` bytes, to the places of a view in `dst`.
pub(super) fn write_strided(shape: &[usize], offset: i64, strides: &[i64], src: &[u8], dst: &mut [u8], size: usize) {
    with_size!(size, N => {
        let (src, dst) = (src.as_chunks::<N>().0, dst.as_chunks_mut::<N>().0);
        strided_rows(shape, offset, strides, |first, base, n, step| {
            let row = &src[first..first + n];
            match step {
                1 => copy_row(row, &mut dst[base as usize..][..n]),
                _ => row.iter().enumerate().for_each(|(k, v)| dst[(base + k as i64 * step) as usize] = *v),
            }
        });
    });
}

/// An error of a part of an operation that runs on several threads.
#[derive(Default)]
pub(super) struct FirstError(Mutex<Option<OpError>>);

impl FirstError {
    /// Keeps the error, unless another part failed before.
    pub(super) fn note(&self, result: OpResult<()>) {
        if let Err(e) = result {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
        }
    }

    /// The error of the whole operation.
    pub(super) fn result(self) -> OpResult<()> {
        self.0
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
            .map_or(Ok(()), Err)
    }
}
