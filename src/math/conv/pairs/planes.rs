//! Interleaves the planes of a few channels into pixels.

use super::segments::PLANES;
use crate::math::pairs::PairKernels;
use crate::math::pairs::pack::{Source, pack_row};
use crate::math::scratch;
use crate::tensor::wide_function;

/// Writes a row of `width` pixels of `pixel` elements from rows of `channels` planes that are `plane` elements apart, with zeros for the
/// other channels.
///
/// # Safety
/// The source has the planes' rows; `dst` is writable for the pixels, and rows are not widened.
pub(super) unsafe fn interleave_planes(
    kernels: &PairKernels,
    src: Source,
    [plane, channels, pixel]: [usize; 3],
    width: usize,
    dst: *mut u8,
) {
    let size = kernels.row_element();
    // The rows of the planes in the elements of the pixels.
    let mut rows = scratch::take_buffer((PLANES * width * size).div_ceil(4));
    let first = rows.as_mut_ptr().cast::<u8>();
    // SAFETY: guaranteed by the caller; the buffer has the rows.
    unsafe {
        for c in 0..pixel {
            let row = first.add(c * width * size);
            match c < channels {
                true => pack_row(kernels, src.skip(c * plane), 1, width, width, row),
                false => row.write_bytes(0, width * size),
            }
        }
        let first = first.cast_const();
        match (size, pixel) {
            (1, _) => interleave_bytes(split_rows(first, width), pixels_at(dst, width)),
            (_, 2) => interleave_two(split_rows(first.cast(), width), pixels_at(dst, width)),
            (_, 3) => interleave_three(split_rows(first.cast(), width), pixels_at(dst, width)),
            _ => interleave_four(split_rows(first.cast(), width), pixels_at(dst, width)),
        }
    }
}

/// `P` rows of `width` elements, one after the other.
///
/// # Safety
/// They may be read.
unsafe fn split_rows<'a, T, const P: usize>(first: *const T, width: usize) -> [&'a [T]; P] {
    // SAFETY: guaranteed by the caller.
    std::array::from_fn(|c| unsafe { std::slice::from_raw_parts(first.add(c * width), width) })
}

/// `width` pixels.
///
/// # Safety
/// They may be written, and nothing else refers to them.
unsafe fn pixels_at<'a, T, const P: usize>(dst: *mut u8, width: usize) -> &'a mut [[T; P]] {
    // SAFETY: guaranteed by the caller.
    unsafe { std::slice::from_raw_parts_mut(dst.cast(), width) }
}

wide_function! {
    fn interleave_two = interleave(planes: [&[u16]; 2], pixels: &mut [[u16; 2]])
}

wide_function! {
    fn interleave_three = interleave(planes: [&[u16]; 3], pixels: &mut [[u16; 3]])
}

wide_function! {
    fn interleave_four = interleave(planes: [&[u16]; PLANES], pixels: &mut [[u16; PLANES]])
}

wide_function! {
    fn interleave_bytes = interleave(planes: [&[u8]; PLANES], pixels: &mut [[u8; PLANES]])
}

#[inline(always)]
fn interleave<T: Copy, const P: usize>(planes: [&[T]; P], pixels: &mut [[T; P]]) {
    let planes = planes.map(|p| &p[..pixels.len()]);
    for (i, to) in pixels.iter_mut().enumerate() {
        *to = planes.map(|p| p[i]);
    }
}
