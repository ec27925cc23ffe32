//! Transposes and permutations: copies in which source and destination cannot both be contiguous.
//!
//! Vectors of the source's contiguous dimension become vectors of the result's in the registers of [`transpose_tile`].

use super::scratch::SharedPtr;
use crate::parallel::Pool;
use crate::tensor::transpose_tile;

/// The approximate number of elements in a chunk of a permutation.
const CHUNK: usize = 16 * 1024;

/// `dst[c * dst_row + r] = src[r * src_row + c]` for `r < rows`, `c < cols`.
///
/// # Safety
/// `src` is readable and `dst` writable at these places, and they do not overlap.
pub(crate) unsafe fn transpose(
    src: *const f32,
    src_row: usize,
    rows: usize,
    cols: usize,
    dst: *mut f32,
    dst_row: usize,
) {
    let [line, row] = [src_row, dst_row].map(|n| (n * size_of::<f32>()) as isize);
    // SAFETY: guaranteed by the caller.
    unsafe { transpose_tile(size_of::<f32>())(src.cast(), line, dst.cast(), row, cols, rows) };
}

/// Copies the strided array at `src` into row-major order at `dst`. Element `(i0, i1, …)` of `shape` is read at offset
/// `Σ i * strides`, in elements. `size` is an element's size in bytes: 1, 2, 4, 8 or 16.
///
/// # Safety
/// `src` is readable at all those elements, `dst` writable for as many as the shape has; both aligned to the element
/// and not overlapping.
pub(crate) unsafe fn permute(
    pool: &Pool,
    size: usize,
    shape: &[usize],
    strides: &[usize],
    src: *const u8,
    dst: *mut u8,
) {
    let p = Permutation::new(shape, strides);
    // SAFETY: guaranteed by the caller.
    unsafe {
        match size {
            1 => p.run::<u8>(pool, src, dst),
            2 => p.run::<u16>(pool, src, dst),
            4 => p.run::<u32>(pool, src, dst),
            8 => p.run::<u64>(pool, src, dst),
            16 => p.run::<u128>(pool, src, dst),
            _ => panic!("unsupported element size: {size} bytes"),
        }
    }
}

/// The maximum number of dimensions after merging.
const MAX_DIMS: usize = 16;

/// A permutation without dimensions of size 1, and with neighbours merged where the strides allow.
struct Permutation {
    dims: [(usize, usize); MAX_DIMS],
    count: usize,
}

impl Permutation {
    fn new(shape: &[usize], strides: &[usize]) -> Permutation {
        let mut p = Permutation {
            dims: [(1, 0); MAX_DIMS],
            count: 0,
        };
        for (&n, &s) in shape.iter().zip(strides) {
            if n == 1 {
                continue;
            }
            let last = &mut p.dims[p.count.saturating_sub(1)];
            if p.count > 0 && last.1 == n * s {
                *last = (last.0 * n, s);
            } else {
                assert!(p.count < MAX_DIMS, "at most {MAX_DIMS} dimensions after merging");
                p.dims[p.count] = (n, s);
                p.count += 1;
            }
        }
        p
    }

    /// Splits off two inner dimensions: the last one, and the one that is contiguous in the source if it is a different
    /// one.
    unsafe fn run<T: Copy>(&self, pool: &Pool, src: *const u8, dst: *mut u8) {
        let dims = &self.dims[..self.count];
        let total: usize = dims.iter().map(|d| d.0).product();
        if total == 0 {
            return;
        }
        let Some((&(cols, col_stride), outer)) = dims.split_last() else {
            // SAFETY: one element.
            return unsafe { *dst.cast::<T>() = *src.cast::<T>() };
        };
        let contiguous = outer.iter().rposition(|d| d.1 == 1).filter(|_| col_stride != 1);
        let mut out = [0; MAX_DIMS];
        let mut step = cols;
        for i in (0..outer.len()).rev() {
            out[i] = step;
            step *= outer[i].0;
        }
        let rows = contiguous.map_or(1, |i| outer[i].0);
        let row_out = contiguous.map_or(0, |i| out[i]);
        let matrices = total / (rows * cols);
        let (part, together) = cut_matrices(matrices, rows, cols);
        let parts = cols.div_ceil(part);
        let (src, dst) = (SharedPtr(src.cast_mut().cast::<T>()), SharedPtr(dst.cast::<T>()));
        pool.run(matrices.div_ceil(together) * parts, |chunk| {
            let (first, c0) = (chunk / parts * together, chunk % parts * part);
            for m in first..(first + together).min(matrices) {
                let (from, to) = matrix_offsets(outer, &out, contiguous, m);
                let n = part.min(cols - c0);
                // SAFETY: the places are those of the permutation; chunks write different ones.
                unsafe {
                    let s = src.get().cast_const().add(from + c0 * col_stride);
                    copy_matrix(s, col_stride, rows, n, dst.get().add(to + c0), row_out);
                }
            }
        });
    }
}

/// How matrices are cut into chunks: the number of columns of a chunk, and the number of whole matrices of one. A chunk
/// is several matrices, or some of the columns of one.
fn cut_matrices(matrices: usize, rows: usize, cols: usize) -> (usize, usize) {
    let parts = if matrices >= 8 {
        1
    } else {
        (rows * cols).div_ceil(CHUNK).min(cols.div_ceil(64))
    };
    let part = cols.div_ceil(parts).next_multiple_of(16);
    (part, (CHUNK / (rows * cols)).max(1))
}

/// The offsets of matrix `m` in the source and in the result. `inner` is the outer dimension that belongs to the matrix,
/// if one does; `out` has the result's strides.
fn matrix_offsets(outer: &[(usize, usize)], out: &[usize], inner: Option<usize>, m: usize) -> (usize, usize) {
    let (mut from, mut to, mut rest) = (0, 0, m);
    for i in (0..outer.len()).rev().filter(|&i| Some(i) != inner) {
        let x = rest % outer[i].0;
        rest /= outer[i].0;
        from += x * outer[i].1;
        to += x * out[i];
    }
    (from, to)
}

/// `dst[r * dst_row + c] = src[c * stride + r]` for `rows` contiguous in the source and `cols` in the result.
///
/// # Safety
/// Both are valid at these places.
unsafe fn copy_matrix<T: Copy>(src: *const T, stride: usize, rows: usize, cols: usize, dst: *mut T, dst_row: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if stride == 1 && rows == 1 {
            std::ptr::copy_nonoverlapping(src, dst, cols);
        } else if size_of::<T>() <= 8 {
            let size = size_of::<T>();
            let (line, row) = ((stride * size) as isize, (dst_row * size) as isize);
            transpose_tile(size)(src.cast(), line, dst.cast(), row, rows, cols);
        } else {
            for (r, c) in (0..rows).flat_map(|r| (0..cols).map(move |c| (r, c))) {
                *dst.add(r * dst_row + c) = *src.add(c * stride + r);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check<T: Copy + PartialEq + std::fmt::Debug + 'static>(
        shape: &[usize],
        order: &[usize],
        value: impl Fn(usize) -> T,
    ) {
        // The source is row-major over the shape permuted by `order`.
        let mut strides = vec![0; shape.len()];
        let mut step = 1;
        for &d in order.iter().rev() {
            strides[d] = step;
            step *= shape[d];
        }
        let src: Vec<T> = (0..step).map(&value).collect();
        let mut dst = vec![value(0); step];
        for pool in [Pool::new(1), Pool::new(2)] {
            let size = std::mem::size_of::<T>();
            // SAFETY: both hold every element of the shape.
            unsafe {
                permute(
                    &pool,
                    size,
                    shape,
                    &strides,
                    src.as_ptr().cast(),
                    dst.as_mut_ptr().cast(),
                )
            };
            for (i, got) in dst.iter().enumerate() {
                let (mut rest, mut at) = (i, 0);
                for d in (0..shape.len()).rev() {
                    at += rest % shape[d] * strides[d];
                    rest /= shape[d];
                }
                assert_eq!(*got, src[at], "{shape:?} {order:?} element {i}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 30, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn permutations_move_every_element(
            shape in proptest::collection::vec(0..20usize, 4),
            order in Just(vec![0usize, 1, 2, 3]).prop_shuffle(),
        ) {
            check(&shape, &order, |i| i as f32);
            check(&shape, &order, |i| i as u8);
            check(&shape, &order, |i| i as u16);
            check(&shape, &order, |i| i as u64);
        }
    }

    #[test]
    fn large_transposes() {
        check(&[300, 517], &[1, 0], |i| i as f32);
        check(&[130, 70, 33], &[0, 2, 1], |i| i as f32);
        check(&[517, 300], &[1, 0], |i| i as u64);
    }
}
