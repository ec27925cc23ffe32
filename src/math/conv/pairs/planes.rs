//! Interleaves the planes of a few channels into pixels.

use super::segments::PLANES;
use crate::math::pairs::PairKernels;
use crate::math::pairs::pack::{Source, pack_row};
use crate::math::scratch;
use crate::tensor::wide_function;

/// Writes a row of `width` pixels of [`PLANES`] elements from rows of `channels` planes that are `plane` elements apart,
/// with zeros for the other channels.
///
/// # Safety
/// The source has the planes' rows; `dst` is writable for the pixels, and rows are not widened.
pub(super) unsafe fn interleave_planes(
    kernels: &PairKernels,
    src: Source,
    [plane, channels]: [usize; 2],
    width: usize,
    dst: *mut u8,
) {
    let size = kernels.row_element();
    // The rows of the planes in the elements of the pixels.
    let mut rows = scratch::take_buffer((PLANES * width * size).div_ceil(4));
    let first = rows.as_mut_ptr().cast::<u8>();
    // SAFETY: guaranteed by the caller; the buffer has the rows.
    unsafe {
        for c in 0..PLANES {
            let row = first.add(c * width * size);
            match c < channels {
                true => pack_row(kernels, src.skip(c * plane), 1, width, width, row),
                false => row.write_bytes(0, width * size),
            }
        }
        let row = |c: usize| first.add(c * width * size).cast_const();
        match size {
            1 => {
                let planes = [0, 1, 2, 3].map(|c| std::slice::from_raw_parts(row(c), width));
                interleave_bytes(planes, std::slice::from_raw_parts_mut(dst.cast(), width));
            }
            _ => {
                let planes = [0, 1, 2, 3].map(|c| std::slice::from_raw_parts(row(c).cast(), width));
                interleave_pairs(planes, std::slice::from_raw_parts_mut(dst.cast(), width));
            }
        }
    }
}

wide_function! {
    /// Interleaves elements of 16 bits.
    fn interleave_pairs = interleave(planes: [&[u16]; PLANES], pixels: &mut [[u16; PLANES]])
}

wide_function! {
    /// Interleaves bytes.
    fn interleave_bytes = interleave(planes: [&[u8]; PLANES], pixels: &mut [[u8; PLANES]])
}

#[inline(always)]
fn interleave<T: Copy>([a, b, c, d]: [&[T]; PLANES], pixels: &mut [[T; PLANES]]) {
    let planes = a.iter().zip(b).zip(c.iter().zip(d));
    for (to, ((&a, &b), (&c, &d))) in pixels.iter_mut().zip(planes) {
        *to = [a, b, c, d];
    }
}
