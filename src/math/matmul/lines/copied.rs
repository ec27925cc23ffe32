//! Copies of factors whose rows are not contiguous.

use crate::math::contract::MatMul;
use crate::math::scratch::{self, Scratch};
use crate::math::transpose::permute;
use crate::parallel::Pool;

/// The maximum number of batch dimensions of a copied factor.
const DIMS: usize = 8;

/// A factor of a product.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Factor {
    A,
    B,
}

/// The rows of a factor, in row-major order: those of one matrix, or those of each matrix of the batch.
pub(super) struct CopiedRows {
    /// The sizes and strides of what is copied.
    shape: Vec<usize>,
    strides: Vec<usize>,
    /// The number of elements of a matrix if there is one for each of the batch, else 0.
    step: usize,
}

impl CopiedRows {
    /// The copy of a factor, unless its rows are contiguous.
    pub(super) fn new(d: &MatMul, factor: Factor) -> Option<CopiedRows> {
        let (size, strides) = match factor {
            Factor::A => ([d.m, d.k], d.a),
            Factor::B => ([d.k, d.n], d.b),
        };
        if strides[1] == 1 || size[1] == 1 {
            return None;
        }
        let along = d.batch.iter().map(|b| if factor == Factor::A { b.a } else { b.b });
        let along: Vec<usize> = along.collect();
        let is_one = along.iter().all(|&s| s == 0);
        let batch = d.batch.iter().map(|b| b.size).zip(along).filter(|_| !is_one);
        let (shape, steps): (Vec<usize>, Vec<usize>) = batch.chain(size.into_iter().zip(strides)).unzip();
        Some(CopiedRows {
            shape,
            strides: steps,
            step: if is_one { 0 } else { size[0].saturating_mul(size[1]) },
        })
    }

    /// Whether the copy is no larger than the factor.
    pub(super) fn is_possible(&self) -> bool {
        let repeats = self.shape.iter().zip(&self.strides).any(|(&n, &s)| n > 1 && s == 0);
        !repeats && self.shape.len() <= DIMS + 2
    }

    /// The offset of matrix `batch` in the copy.
    #[inline]
    pub(super) fn offset(&self, batch: usize) -> usize {
        batch * self.step
    }

    /// Copies the factor at `src`.
    ///
    /// # Safety
    /// It has the descriptor's extent.
    pub(super) unsafe fn copy(&self, pool: &Pool, src: *const u8) -> Scratch {
        let len: usize = self.shape.iter().product();
        let mut copied = scratch::take_buffer(len.div_ceil(2));
        // SAFETY: guaranteed by the caller; the buffer has the elements.
        unsafe { permute(pool, 2, &self.shape, &self.strides, src, copied.as_mut_ptr().cast()) };
        copied
    }
}
