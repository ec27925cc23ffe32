//! Transposes of small tiles, in blocks of 16 bytes by as many lines as 16 bytes have elements. [`wide`] transposes blocks of
//! whole vectors where a tile has them.
//!
//! A block's registers, one after the other, are a vector whose positions have a line and an element in it. Interleaving
//! the first half of the registers with the second moves the top bit of the line to the bottom of the position. After as
//! many such steps as a line has bits, line and element have changed places. These instructions are part of every x86-64.

use super::Element;

/// Copies a tile of `rows` by `columns` elements: element (r, c) of the result, at `dst + r * row + c * SIZE`, is the one
/// at `src + c * line + r * SIZE`. Strides are in bytes and may be negative.
///
/// # Safety
/// All those places are readable at `src` and writable at `dst`, and they do not overlap.
pub(crate) type TransposeFn =
    unsafe extern "C" fn(src: *const u8, line: isize, dst: *mut u8, row: isize, rows: usize, columns: usize);

#[cfg(target_arch = "x86_64")]
mod wide;

/// Transposes a matrix of `rows` by `columns`: `dst[c * dst_row + r] = src[r * src_row + c]`.
///
/// # Panics
/// If one of the matrices does not fit its slice or a row of the other, or an element has more than 8 bytes.
pub(crate) fn transpose_into<T: Element>(
    src: &[T],
    src_row: usize,
    [rows, columns]: [usize; 2],
    dst: &mut [T],
    dst_row: usize,
) {
    if rows == 0 || columns == 0 {
        return;
    }
    // A number of elements that overflows fits no slice.
    let fits = |len: usize, row: usize, count: usize, width: usize| {
        let end = row.checked_mul(count - 1).and_then(|last| last.checked_add(width));
        width <= row && end.is_some_and(|end| end <= len)
    };
    assert!(fits(src.len(), src_row, rows, columns) && fits(dst.len(), dst_row, columns, rows));
    let size = size_of::<T>();
    let [line, row] = [src_row, dst_row].map(|n| (n * size) as isize);
    // SAFETY: every row of both matrices lies in its slice; the slices do not overlap, because one is mutable.
    unsafe { transpose_tile(size)(src.as_ptr().cast(), line, dst.as_mut_ptr().cast(), row, columns, rows) };
}

/// The transpose of tiles whose elements have 1, 2, 4 or 8 bytes.
pub(crate) fn transpose_tile(size: usize) -> TransposeFn {
    match size {
        1 => tile::<u8>,
        2 => tile::<u16>,
        4 => tile::<u32>,
        8 => tile::<u64>,
        _ => panic!("unsupported element size: {size} bytes"),
    }
}

/// An element that moves in blocks.
trait Word: Copy {
    /// The number of rows and columns of a block.
    const SIDE: usize = 16 / size_of::<Self>();

    /// Transposes one block of `SIDE` rows and at most as many columns. Rows of the result are written whole, from the first to the
    /// last.
    ///
    /// # Safety
    /// As for [`TransposeFn`], with `SIDE` rows, and `SIDE` columns of the result.
    unsafe fn block(src: *const u8, line: isize, dst: *mut u8, row: isize, columns: usize);

    /// Transposes the blocks of whole vectors of the target that a tile of `[rows, columns]` has, and returns the number of rows and
    /// columns that they cover.
    ///
    /// # Safety
    /// As for [`TransposeFn`].
    #[inline(always)]
    unsafe fn whole_blocks(_: *const u8, _: isize, _: *mut u8, _: isize, _: [usize; 2]) -> [usize; 2] {
        [0, 0]
    }
}

/// The least number of bytes of a row and of a column of a tile with blocks of whole vectors.
const LEAST: usize = 32;

/// See [`TransposeFn`].
unsafe extern "C" fn tile<T: Word>(src: *const u8, line: isize, dst: *mut u8, row: isize, rows: usize, columns: usize) {
    let size = size_of::<T>();
    // SAFETY: whole blocks, the columns after them and the rows below are the tile, for which the caller vouches.
    unsafe {
        if rows.min(columns) * size < LEAST || is_padded(size, row, columns) {
            return narrow_tile::<T>(src, line, dst, row, rows, columns);
        }
        let [above, left] = T::whole_blocks(src, line, dst, row, [rows, columns]);
        if left < columns {
            let (src, dst) = (src.offset(left as isize * line), dst.add(left * size));
            narrow_tile::<T>(src, line, dst, row, above, columns - left);
        }
        if above < rows {
            let (src, dst) = (src.add(above * size), dst.offset(above as isize * row));
            narrow_tile::<T>(src, line, dst, row, rows - above, columns);
        }
    }
}

/// Whether the rows of a tile follow each other without gaps and have a part of a block at their ends.
fn is_padded(size: usize, row: isize, columns: usize) -> bool {
    row == (columns * size) as isize && !row.unsigned_abs().is_multiple_of(16)
}

/// A tile in blocks of 16 bytes. Rows of blocks are outermost, so that the rows of the result are written whole: a store that
/// misses the cache delays all after it, a load does not.
///
/// The last columns, which are fewer than a block has, come first in a row of blocks if the rows of the result follow each other
/// without gaps. Whole vectors are stored then, whose ends reach into the next rows and are overwritten by these.
///
/// # Safety
/// As for [`TransposeFn`].
unsafe fn narrow_tile<T: Word>(src: *const u8, line: isize, dst: *mut u8, row: isize, rows: usize, columns: usize) {
    let (whole_rows, whole_columns) = (rows / T::SIDE * T::SIDE, columns / T::SIDE * T::SIDE);
    let size = size_of::<T>();
    // The ends of the vectors of these rows stay within the tile.
    let padded_rows = match is_padded(size, row, columns) {
        true => rows.saturating_sub(16usize.div_ceil(columns * size)) / T::SIDE * T::SIDE,
        false => 0,
    };
    let from = |r: usize, c: usize| c as isize * line + (r * size_of::<T>()) as isize;
    let to = |r: usize, c: usize| r as isize * row + (c * size_of::<T>()) as isize;
    // SAFETY: blocks and single elements cover the tile, for which the caller vouches.
    unsafe {
        for r in (0..whole_rows).step_by(T::SIDE) {
            if r < padded_rows {
                let (src, dst) = (src.offset(from(r, whole_columns)), dst.offset(to(r, whole_columns)));
                T::block(src, line, dst, row, columns - whole_columns);
            }
            for c in (0..whole_columns).step_by(T::SIDE) {
                T::block(src.offset(from(r, c)), line, dst.offset(to(r, c)), row, T::SIDE);
            }
        }
        for r in padded_rows..rows {
            let first = if r < whole_rows { whole_columns } else { 0 };
            for c in first..columns {
                let x = src.offset(from(r, c)).cast::<T>().read_unaligned();
                dst.offset(to(r, c)).cast::<T>().write_unaligned(x);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
macro_rules! element {
    ($($T:ty: $low:ident $high:ident $(, $wide:ident)?;)*) => {
        $(impl Word for $T {
            $(#[inline(always)]
            unsafe fn whole_blocks(src: *const u8, line: isize, dst: *mut u8, row: isize, size: [usize; 2]) -> [usize; 2] {
                // SAFETY: guaranteed by the caller.
                unsafe { wide::$wide(src, line, dst, row, size) }
            })?

            #[inline(always)]
            unsafe fn block(src: *const u8, line: isize, dst: *mut u8, row: isize, columns: usize) {
                use std::arch::x86_64::*;
                const SIDE: usize = <$T as Word>::SIDE;
                // SAFETY: SSE2 is part of x86-64; the caller vouches for the lines and rows.
                unsafe {
                    let mut a = [_mm_setzero_si128(); SIDE];
                    for (i, a) in a.iter_mut().enumerate() {
                        if i < columns {
                            *a = _mm_loadu_si128(src.offset(i as isize * line).cast());
                        }
                    }
                    for _ in 0..SIDE.ilog2() {
                        let b = a;
                        for i in 0..SIDE / 2 {
                            a[2 * i] = $low(b[i], b[i + SIDE / 2]);
                            a[2 * i + 1] = $high(b[i], b[i + SIDE / 2]);
                        }
                    }
                    for (i, a) in a.iter().enumerate() {
                        _mm_storeu_si128(dst.offset(i as isize * row).cast(), *a);
                    }
                }
            }
        })*
    };
}

#[cfg(target_arch = "x86_64")]
element! {
    // A block of whole vectors of bytes has more lines than there are registers.
    u8: _mm_unpacklo_epi8 _mm_unpackhi_epi8;
    u16: _mm_unpacklo_epi16 _mm_unpackhi_epi16, whole_blocks_of_u16;
    u32: _mm_unpacklo_epi32 _mm_unpackhi_epi32, whole_blocks_of_u32;
    u64: _mm_unpacklo_epi64 _mm_unpackhi_epi64, whole_blocks_of_u64;
}

#[cfg(not(target_arch = "x86_64"))]
macro_rules! element {
    ($($T:ty)*) => {
        $(impl Word for $T {
            #[inline(always)]
            unsafe fn block(src: *const u8, line: isize, dst: *mut u8, row: isize, columns: usize) {
                let size = size_of::<$T>() as isize;
                for r in 0..Self::SIDE as isize {
                    for c in 0..columns as isize {
                        // SAFETY: the caller vouches for the lines and rows.
                        unsafe {
                            let x = src.offset(c * line + r * size).cast::<$T>().read_unaligned();
                            dst.offset(r * row + c * size).cast::<$T>().write_unaligned(x);
                        }
                    }
                }
            }
        })*
    };
}

#[cfg(not(target_arch = "x86_64"))]
element! { u8 u16 u32 u64 }

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Feature::*;
    use crate::target::{Target, with_target};

    /// Transposes a tile of elements of `size` bytes, its rows in reverse if `backwards`, and checks every byte.
    fn check(target: Target, size: usize, [rows, columns]: [usize; 2], gap: usize, backwards: bool) {
        let (line, row) = ((rows + 3) * size, (columns + gap) * size);
        let src: Vec<u8> = (0..line * columns + 1).map(|i| (i * 31 + i / 251) as u8).collect();
        let mut dst = vec![0xa5; row * rows + 1];
        let last = (rows.max(1) - 1) * row;
        let (first, step) = match backwards {
            true => (last, -(row as isize)),
            false => (0, row as isize),
        };
        // SAFETY: the vectors hold every line and row. One byte in front makes the places unaligned.
        unsafe {
            let (src, dst) = (src.as_ptr().add(1), dst.as_mut_ptr().add(1 + first));
            with_target(target, || {
                transpose_tile(size)(src, line as isize, dst, step, rows, columns)
            });
        }
        let mut expected = vec![0xa5; row * rows + 1];
        for (r, c, b) in (0..rows).flat_map(|r| (0..columns * size).map(move |i| (r, i / size, i % size))) {
            let at = if backwards { rows - 1 - r } else { r };
            expected[1 + at * row + c * size + b] = src[1 + c * line + r * size + b];
        }
        assert_eq!(
            dst, expected,
            "{size} bytes, {rows} x {columns}, backwards: {backwards}"
        );
    }

    #[test]
    fn matrices_are_transposed() {
        let src: Vec<f32> = (0..20 * 33).map(|i| i as f32).collect();
        let mut dst = vec![-1.0; 30 * 25];
        transpose_into(&src, 33, [20, 30], &mut dst, 25);
        for (c, row) in dst.chunks(25).enumerate() {
            for (r, &x) in row.iter().enumerate() {
                assert_eq!(x, if r < 20 { src[r * 33 + c] } else { -1.0 });
            }
        }
    }

    #[test]
    #[should_panic(expected = "assertion failed")]
    fn a_matrix_outside_its_slice_is_refused() {
        transpose_into(&[0.0f32; 11], 4, [3, 4], &mut [0.0; 12], 3);
    }

    #[test]
    #[should_panic(expected = "assertion failed")]
    fn a_matrix_of_too_many_elements_to_count_is_refused() {
        transpose_into(&[0.0f32; 12], usize::MAX, [2, 4], &mut [0.0; 12], 3);
    }

    #[test]
    fn every_element_moves_and_nothing_else_is_written() {
        let targets = [
            &[] as &[_],
            &[Avx2, Fma],
            &[Avx2, Fma, Avx512F, Avx512Dq, Avx512Vl, Avx512Bw],
        ];
        let targets = targets.map(|all| all.iter().fold(Target::default(), |t, &f| t.with(f)));
        for (target, size) in targets.into_iter().flat_map(|t| [1, 2, 4, 8].map(|size| (t, size))) {
            for (rows, columns) in [
                (1, 1),
                (16, 16),
                (64, 16),
                (17, 33),
                (5, 70),
                (32, 2),
                (0, 4),
                (48, 64),
                (70, 5),
                (33, 1),
                (67, 130),
            ] {
                for (gap, backwards) in [(5, false), (5, true), (0, false), (0, true)] {
                    check(target, size, [rows, columns], gap, backwards);
                }
            }
        }
    }
}
