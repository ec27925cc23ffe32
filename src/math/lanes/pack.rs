//! Packing of both factors of a product.

use super::LaneElement;
use crate::tensor::transpose_tile;

/// The number of columns of A that are packed at once if they are contiguous: few enough for the first cache and the pages whose
/// addresses it knows.
const COLUMNS: usize = 4;

/// Copies rows of `cols` elements, `step` apart, to the rows of `dst`.
///
/// # Safety
/// There is a row in `src` for each in `dst`.
pub(super) unsafe fn pack_rows<T: LaneElement>(
    src: *const T,
    step: usize,
    cols: usize,
    dst: &mut [T::Lane],
    width: usize,
) {
    for (k, row) in dst.chunks_exact_mut(width).enumerate() {
        // SAFETY: guaranteed by the caller.
        let src = unsafe { std::slice::from_raw_parts(src.add(k * step), cols) };
        for (to, x) in row.iter_mut().zip(src) {
            *to = x.widen();
        }
    }
}

/// Copies elements that are `step` apart to elements that are `width` apart.
///
/// # Safety
/// There is an element in `src` for each row of `dst`.
pub(super) unsafe fn pack_column<T: LaneElement>(src: *const T, step: usize, dst: &mut [T::Lane], width: usize) {
    for (k, to) in dst.iter_mut().step_by(width).enumerate() {
        // SAFETY: guaranteed by the caller.
        *to = unsafe { (*src.add(k * step)).widen() };
    }
}

/// [`pack_column`] for `cols` columns that are contiguous and `step` elements apart. Elements are their own lanes.
///
/// # Safety
/// There is an element in each column for each row of `dst`.
pub(super) unsafe fn pack_contiguous_columns<T: LaneElement>(
    src: *const T,
    step: usize,
    cols: usize,
    dst: &mut [T::Lane],
    width: usize,
) {
    let (size, rows) = (size_of::<T>(), dst.len() / width);
    let [line, row] = [step, width].map(|n| (n * size) as isize);
    // SAFETY: guaranteed by the caller.
    unsafe { transpose_tile(size)(src.cast(), line, dst.as_mut_ptr().cast(), row, rows, cols) };
}

/// Packs `m` rows of A in the order of the tiles.
///
/// # Safety
/// The rows have `k` product indices, and `dst` has room for them.
pub(super) unsafe fn pack_tiles<T: LaneElement>(
    a: *const T,
    strides: [usize; 2],
    [m, k]: [usize; 2],
    tallest: usize,
    dst: *mut T::Lane,
) {
    // Contiguous columns are read one after the other, a few of them for all tiles.
    let together = if strides[0] == 1 { COLUMNS } else { k };
    for k0 in (0..k).step_by(together) {
        let ks = [k0, k.min(k0 + together)];
        let mut row = 0;
        while row < m {
            let rows = tallest.min(1 << (m - row).ilog2());
            // SAFETY: guaranteed by the caller.
            unsafe {
                let (a, dst) = (a.add(row * strides[0]), dst.add(row * k));
                match rows {
                    8 => pack_tile::<T, 8>(a, strides, ks, dst),
                    4 => pack_tile::<T, 4>(a, strides, ks, dst),
                    2 => pack_tile::<T, 2>(a, strides, ks, dst),
                    _ => pack_tile::<T, 1>(a, strides, ks, dst),
                }
            }
            row += rows;
        }
    }
}

/// Packs some product indices of `R` rows of A.
///
/// # Safety
/// As for [`pack_tiles`].
unsafe fn pack_tile<T: LaneElement, const R: usize>(
    a: *const T,
    [row, step]: [usize; 2],
    [k0, k1]: [usize; 2],
    dst: *mut T::Lane,
) {
    for i in k0..k1 {
        for r in 0..R {
            // SAFETY: guaranteed by the caller.
            unsafe { *dst.add(i * R + r) = (*a.add(r * row + i * step)).widen() };
        }
    }
}
