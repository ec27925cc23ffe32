//! The input as blocks read it: padded channels-last images.

use super::planes::interleave_planes;
use super::window::{COPY, Window};
use crate::math::contract::ConvLayout;
use crate::math::pairs::pack::{Source, pack_row};
use crate::math::scratch::{Scratch, SharedPtr};
use crate::math::transpose::permute;
use crate::parallel::Pool;
use crate::types::DType;
use std::sync::atomic::{AtomicBool, Ordering};

impl Window {
    /// The elements of the input.
    fn source(&self, p: *const u8) -> Source {
        match self.kernels.are_bytes() {
            true => Source::Bytes(p),
            false => Source::new(p, self.conv.dtype == DType::F32),
        }
    }

    pub(super) fn words(elements: usize, size: usize) -> usize {
        (elements * size + COPY).div_ceil(4)
    }

    /// The length of the buffer for a padded image.
    pub(super) fn buffer_len(&self) -> usize {
        match self.in_place {
            true => 0,
            false => Window::words(self.image + self.spare(), self.kernels.row_element()),
        }
    }

    /// The number of elements after a padded image that the last pixel's segments read.
    fn spare(&self) -> usize {
        if self.segments.reads_others(&self.conv, &self.panels) {
            self.segments.run
        } else {
            0
        }
    }

    /// Whether the input must become channels last first.
    fn moves_channels(&self) -> bool {
        let first = self.conv.input_layout == ConvLayout::ChannelsFirst;
        first && self.conv.in_channels > 1 && !self.segments.interleaves(&self.conv)
    }

    /// The length of the buffer for a channels-last image without padding.
    pub(super) fn relaid_len(&self) -> usize {
        let pixels: usize = self.conv.input.iter().product();
        match self.moves_channels() {
            true => Window::words(pixels * self.conv.in_channels, self.conv.factor_size()),
            false => 0,
        }
    }

    /// Prepares an image. Returns its first element.
    ///
    /// # Safety
    /// `x` is the input; the buffers have the lengths above.
    pub(super) unsafe fn prepare(
        &self,
        pool: &Pool,
        x: *const u8,
        image: usize,
        [padded, relaid]: [&mut Scratch; 2],
    ) -> *const u8 {
        let (c, size) = (&self.conv, self.conv.factor_size());
        let pixels: usize = c.input.iter().product();
        // SAFETY: guaranteed by the caller.
        unsafe {
            let mut x = x.add(image * pixels * c.in_channels * size);
            if self.moves_channels() {
                let (shape, strides) = ([pixels, c.in_channels], [1, pixels]);
                permute(pool, size, &shape, &strides, x, relaid.as_mut_ptr().cast());
                x = relaid.as_ptr().cast();
            }
            if self.in_place {
                return x;
            }
            let lines = self.size[0] * self.size[1];
            let line_len = self.size[2] * self.segments.pixel;
            let per = (16384 / line_len.max(1)).max(1);
            let (src, dst) = (SharedPtr(x.cast_mut()), SharedPtr(padded.as_mut_ptr().cast::<u8>()));
            pool.run(lines.div_ceil(per), |i| {
                for line in i * per..((i + 1) * per).min(lines) {
                    let to = dst.get().add(line * line_len * self.kernels.row_element());
                    self.fill_line(self.source(src.get()), line, to);
                }
            });
            let end = dst.get().add(self.image * self.kernels.row_element());
            end.write_bytes(0, self.spare() * self.kernels.row_element());
            padded.as_ptr().cast()
        }
    }

    /// Whether the elements of a prepared image of bf16 are finite.
    ///
    /// # Safety
    /// `x` is a prepared image.
    pub(super) unsafe fn is_finite(&self, pool: &Pool, x: *const u8) -> bool {
        const CHUNK: usize = 32 << 10;
        let (x, found) = (SharedPtr(x.cast_mut()), AtomicBool::new(false));
        pool.run(self.image.div_ceil(CHUNK), |i| {
            let len = CHUNK.min(self.image - i * CHUNK);
            // SAFETY: guaranteed by the caller.
            let bits = unsafe { std::slice::from_raw_parts(x.get().cast::<u16>().add(i * CHUNK), len) };
            if !are_finite(bits) {
                found.store(true, Ordering::Relaxed);
            }
        });
        !found.into_inner()
    }

    /// Fills a line of the padded image.
    ///
    /// # Safety
    /// `src` is a channels-last image, or one whose planes are interleaved; `dst` is writable for a padded line.
    unsafe fn fill_line(&self, src: Source, line: usize, dst: *mut u8) {
        let (c, size) = (&self.conv, self.kernels.row_element());
        let inside = |d: usize, at: usize| at.checked_sub(self.padding[d]).filter(|&p| p < c.input[d]);
        let source = (inside(0, line / self.size[1]), inside(1, line % self.size[1]));
        let (pixel, width) = (self.segments.pixel, c.input[2]);
        let (len, pad) = (self.size[2] * pixel, self.padding[2] * pixel);
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (Some(z), Some(y)) = source else {
                return dst.write_bytes(0, len * size);
            };
            dst.write_bytes(0, pad * size);
            dst.add((len - pad) * size).write_bytes(0, pad * size);
            let (dst, channels) = (dst.add(pad * size), c.in_channels);
            if self.segments.interleaves(c) {
                let plane: usize = c.input.iter().product();
                let row = (z * c.input[1] + y) * width;
                return interleave_planes(&self.kernels, src.skip(row), [plane, channels, pixel], width, dst);
            }
            let src = src.skip((z * c.input[1] + y) * width * channels);
            if pixel == channels {
                return pack_row(&self.kernels, src, 1, width * channels, width * channels, dst);
            }
            for p in 0..width {
                let dst = dst.add(p * pixel * size);
                pack_row(&self.kernels, src.skip(p * channels), 1, channels, pixel, dst);
            }
        }
    }
}

/// Whether bf16 elements are finite numbers.
fn are_finite(bits: &[u16]) -> bool {
    const EXPONENT: u16 = 0x7f80;
    // Without a branch for each element, so that the loop consists of vectors.
    let chunk = |c: &[u16]| c.iter().fold(false, |found, x| found | (x & EXPONENT == EXPONENT));
    !bits.chunks(1024).any(chunk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn infinities_and_nan_are_found() {
        let mut bits = vec![0x7f7f; 3000];
        assert!(are_finite(&bits));
        for special in [0x7f80, 0xff80, 0x7fc0, 0xff81] {
            bits[2500] = special;
            assert!(!are_finite(&bits));
        }
    }
}
