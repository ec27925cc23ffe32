//! The input as blocks read it: padded channels-last images, and rows of gathered taps.

use super::panels::{Panels, are_finite};
use crate::math::contract::{Conv, ConvLayout, PlanError};
use crate::math::pairs::PairKernels;
use crate::math::pairs::pack::{Source, pack_row, packed_row};
use crate::math::scratch::{self, Scratch, SharedPtr};
use crate::math::transpose::permute;
use crate::parallel::Pool;
use crate::types::DType;
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of bytes that one step of [`copy_elements`] copies. Buffers have as many spare bytes.
const COPY: usize = 32;

/// The geometry of the padded input, in elements.
pub(super) struct Window {
    kernels: PairKernels,
    conv: Conv,
    /// Depth, height and width of the output.
    pub out: [usize; 3],
    /// Depth, height and width with padding.
    size: [usize; 3],
    pub panels: Panels,
    /// The stride between padded pixels.
    pub pixel: usize,
    /// The number of product indices of a tap, with padding. If taps are gathered: without, as these are padded together.
    pub run: usize,
    /// The number of elements in a padded image.
    pub image: usize,
    /// Whether taps are gathered into rows.
    pub gathers: bool,
    /// Whether the input is read where it is.
    in_place: bool,
    /// The offset of each segment from a pixel's first element, in bytes: the taps, or one segment.
    segments: Vec<usize>,
}

/// The pixels of some output rows, as the rows of A.
pub(super) struct ChunkPixels<'a> {
    window: &'a Window,
    first: *const u8,
    /// The first output row.
    line: usize,
    /// The stride between pixels of an output row, in elements.
    pub step: usize,
    /// The offsets of the segments, in bytes.
    pub segments: &'a [usize],
    /// The number of product indices in a segment.
    pub run: usize,
    _gathered: Scratch,
}

impl Window {
    /// The window of `conv`. Returns an error if its size does not fit the address space.
    pub(super) fn new(kernels: PairKernels, conv: &Conv) -> Result<Window, PlanError> {
        let out = conv.output_size().ok_or(PlanError::Size)?;
        let mut size = [0; 3];
        for d in 0..3 {
            let padding = conv.padding[d].checked_mul(2).ok_or(PlanError::Size)?;
            size[d] = conv.input[d].checked_add(padding).ok_or(PlanError::Size)?;
        }
        let (channels, panels) = (conv.in_channels, Panels::new(conv));
        let padded = kernels.padded_run(panels.span());
        let gathers = conv.groups == 1 && 4 * padded > 5 * channels;
        let run = if gathers { channels } else { padded };
        // The elements after those of a panel's groups belong to other groups or pixels, and are multiplied by zeros.
        let pixel = if conv.groups == 1 { run } else { channels };
        let image = size.iter().try_fold(pixel, |a, &s| a.checked_mul(s));
        let fits = |&n: &usize| n.checked_mul(4).is_some_and(|b| b < isize::MAX as usize / 2);
        let image = image.filter(fits).ok_or(PlanError::Size)?;
        let taps: usize = conv.kernel.iter().product();
        taps.checked_mul(run).filter(fits).ok_or(PlanError::Size)?;
        let mut window = Window {
            kernels,
            conv: conv.clone(),
            out,
            size,
            panels,
            pixel,
            run,
            image,
            gathers,
            in_place: false,
            segments: vec![0],
        };
        let last = panels.first_input(panels.count().saturating_sub(1));
        window.in_place = !gathers
            && pixel == channels
            && last + run <= channels
            && conv.padding == [0; 3]
            && (conv.dtype == DType::BF16 || kernels.are_bytes())
            && !kernels.widens_rows()
            && conv.input_layout == ConvLayout::ChannelsLast;
        if !gathers {
            window.segments = window.tap_offsets();
        }
        Ok(window)
    }

    /// The offset of each tap from the first one, in bytes.
    fn tap_offsets(&self) -> Vec<usize> {
        let ([kd, kh, kw], dilation) = (self.conv.kernel, self.conv.dilation);
        let mut taps = vec![];
        for (d, h) in (0..kd).flat_map(|d| (0..kh).map(move |h| (d, h))) {
            let tap = |w: usize| self.offset([d * dilation[0], h * dilation[1], w * dilation[2]]);
            taps.extend((0..kw).map(|w| tap(w) * self.kernels.row_element()));
        }
        taps
    }

    fn offset(&self, [d, h, w]: [usize; 3]) -> usize {
        ((d * self.size[1] + h) * self.size[2] + w) * self.pixel
    }

    /// The number of product indices, including padding.
    pub(super) fn depth(&self) -> usize {
        let taps: usize = self.conv.kernel.iter().product();
        match self.gathers {
            true => self.kernels.padded_run(taps * self.pixel),
            false => taps * self.run,
        }
    }

    /// The length of a panel of the weight, in words of 16 bits.
    pub(super) fn panel_words(&self) -> usize {
        self.kernels.panel_words(self.depth())
    }

    /// The stride between gathered rows, in elements.
    pub(super) fn gathered_row(&self) -> usize {
        let size = self.kernels.row_element();
        packed_row(self.depth() * size) / size
    }

    /// The elements of the input.
    fn source(&self, p: *const u8) -> Source {
        match self.kernels.are_bytes() {
            true => Source::Bytes(p),
            false => Source::new(p, self.conv.dtype == DType::F32),
        }
    }

    fn words(elements: usize, size: usize) -> usize {
        (elements * size + COPY).div_ceil(4)
    }

    /// The length of the buffer for a padded image.
    pub(super) fn buffer_len(&self) -> usize {
        match self.in_place {
            true => 0,
            false => Window::words(self.image + self.spare(), self.kernels.row_element()),
        }
    }

    /// The number of elements after a padded image that the last pixel's last panel reads.
    fn spare(&self) -> usize {
        if self.pixel < self.run { self.run } else { 0 }
    }

    /// Whether the input must become channels last first.
    fn moves_channels(&self) -> bool {
        self.conv.input_layout == ConvLayout::ChannelsFirst && self.conv.in_channels > 1
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
            let line_len = self.size[2] * self.pixel;
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
    /// `src` is a channels-last image; `dst` is writable for a padded line.
    unsafe fn fill_line(&self, src: Source, line: usize, dst: *mut u8) {
        let (c, size) = (&self.conv, self.kernels.row_element());
        let inside = |d: usize, at: usize| at.checked_sub(c.padding[d]).filter(|&p| p < c.input[d]);
        let source = (inside(0, line / self.size[1]), inside(1, line % self.size[1]));
        let (len, pad, width) = (self.size[2] * self.pixel, c.padding[2] * self.pixel, c.input[2]);
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (Some(z), Some(y)) = source else {
                return dst.write_bytes(0, len * size);
            };
            dst.write_bytes(0, pad * size);
            dst.add((len - pad) * size).write_bytes(0, pad * size);
            let (dst, channels) = (dst.add(pad * size), c.in_channels);
            let src = src.skip((z * c.input[1] + y) * width * channels);
            if self.pixel == channels {
                return pack_row(&self.kernels, src, 1, width * channels, width * channels, dst);
            }
            for p in 0..width {
                let dst = dst.add(p * self.pixel * size);
                pack_row(&self.kernels, src.skip(p * channels), 1, channels, self.pixel, dst);
            }
        }
    }

    /// The first element under output pixel `(line, 0)`.
    fn line_offset(&self, line: usize) -> usize {
        let stride = self.conv.stride;
        self.offset([line / self.out[1] * stride[0], line % self.out[1] * stride[1], 0])
    }

    /// The pixels of output rows `l0..l1` of the image at `x`, gathered if necessary.
    ///
    /// # Safety
    /// `x` is a prepared image.
    pub(super) unsafe fn chunk_pixels(&self, x: *const u8, [l0, l1]: [usize; 2]) -> ChunkPixels<'_> {
        let size = self.kernels.row_element();
        if !self.gathers {
            return ChunkPixels {
                window: self,
                first: x,
                line: l0,
                step: self.conv.stride[2] * self.pixel,
                segments: &self.segments,
                run: self.run,
                _gathered: scratch::take_buffer(0),
            };
        }
        let (row, width) = (self.gathered_row(), self.out[2]);
        let mut gathered = scratch::take_buffer(Window::words((l1 - l0) * width * row, size));
        let dst = gathered.as_mut_ptr().cast::<u8>();
        for (line, w) in (l0..l1).flat_map(|l| (0..width).map(move |w| (l, w))) {
            let offset = self.line_offset(line) + w * self.conv.stride[2] * self.pixel;
            // SAFETY: the pixel's taps lie in the image, and its row in the buffer. Both have spare bytes at the end.
            unsafe { self.gather_pixel(x.add(offset * size), dst.add(((line - l0) * width + w) * row * size)) };
        }
        ChunkPixels {
            window: self,
            first: gathered.as_ptr().cast(),
            line: l0,
            step: row,
            segments: &self.segments,
            run: self.depth(),
            _gathered: gathered,
        }
    }

    /// Gathers the taps under one output pixel.
    ///
    /// # Safety
    /// The taps are readable from `x`, and the row is writable, with [`COPY`] more bytes each.
    #[inline]
    unsafe fn gather_pixel(&self, x: *const u8, dst: *mut u8) {
        let (size, [kd, kh, kw], dilation) = (self.kernels.row_element(), self.conv.kernel, self.conv.dilation);
        // Adjacent taps are one piece.
        let (pieces, taps) = if dilation[2] == 1 { (1, kw) } else { (kw, 1) };
        let piece = taps * self.pixel * size;
        let mut written = 0;
        for (d, h) in (0..kd).flat_map(|d| (0..kh).map(move |h| (d, h))) {
            for w in 0..pieces {
                let from = self.offset([d * dilation[0], h * dilation[1], w * dilation[2]]) * size;
                // SAFETY: guaranteed by the caller.
                unsafe { copy_elements(x.add(from), dst.add(written), piece) };
                written += piece;
            }
        }
        // SAFETY: the row is as long.
        unsafe { clear_elements(dst.add(written), self.depth() * size - written) };
    }
}

/// Copies `n` bytes, and up to [`COPY`] more: for so few, `memcpy` costs more than it saves.
///
/// # Safety
/// Both are valid for `n + COPY` bytes and do not overlap.
#[inline(always)]
unsafe fn copy_elements(src: *const u8, dst: *mut u8, n: usize) {
    for i in (0..n).step_by(COPY) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let part = src.add(i).cast::<[u8; COPY]>().read_unaligned();
            dst.add(i).cast::<[u8; COPY]>().write_unaligned(part);
        }
    }
}

/// Writes zeros to `n` bytes, and up to [`COPY`] more.
///
/// # Safety
/// The destination is writable for `n + COPY` bytes.
#[inline(always)]
unsafe fn clear_elements(dst: *mut u8, n: usize) {
    for i in (0..n).step_by(COPY) {
        // SAFETY: guaranteed by the caller.
        unsafe { dst.add(i).cast::<[u8; COPY]>().write_unaligned([0; COPY]) };
    }
}

impl ChunkPixels<'_> {
    /// The first element of an output pixel's row.
    pub(super) fn at(&self, line: usize, pixel: usize) -> *const u8 {
        let w = self.window;
        let element = match w.gathers {
            true => ((line - self.line) * w.out[2] + pixel) * self.step,
            false => w.line_offset(line) + pixel * self.step,
        };
        self.first.wrapping_add(element * w.kernels.row_element())
    }
}
