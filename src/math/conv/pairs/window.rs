//! The geometry of the input as blocks read it, and rows of gathered taps.

use super::panels::Panels;
use super::segments::{Segments, TapForm};
use crate::math::contract::{Conv, PlanError};
use crate::math::conv::visible::{visible_pixels, visible_segments, visible_taps};
use crate::math::pairs::PairKernels;
use crate::math::pairs::pack::packed_row;
use crate::math::scratch::{self, Scratch};
use crate::types::DType;
use std::ops::Range;

/// The number of bytes that one step of [`copy_elements`] copies. Buffers have as many spare bytes.
pub(super) const COPY: usize = 32;

/// The geometry of the padded input, in elements.
pub(super) struct Window {
    pub kernels: PairKernels,
    pub conv: Conv,
    /// Depth, height and width of the output.
    pub out: [usize; 3],
    /// Depth, height and width of a prepared image.
    pub size: [usize; 3],
    /// The padding of a prepared image.
    pub padding: [usize; 3],
    /// For each column of the kernel, the pixels of an output row that see the image through it, if products with padding are left out.
    /// Segments are taps then, and the image has no padding.
    pub visible: Option<Vec<Range<usize>>>,
    pub panels: Panels,
    pub segments: Segments,
    /// The number of elements in a prepared image.
    pub image: usize,
    /// Whether the input is read where it is.
    pub in_place: bool,
    /// The offset of each segment from a pixel's first element, in bytes.
    offsets: Vec<usize>,
}

/// The pixels of some output rows, as the rows of A.
pub(super) struct ChunkPixels<'a> {
    window: &'a Window,
    first: *const u8,
    /// The first output row.
    line: usize,
    /// The stride between pixels of an output row, in elements.
    pub step: usize,
    _gathered: Scratch,
}

impl Window {
    /// The window of `conv`. Returns an error if its size does not fit the address space.
    pub(super) fn new(kernels: PairKernels, conv: &Conv) -> Result<Window, PlanError> {
        let out = conv.output_size().ok_or(PlanError::Size)?;
        let panels = Panels::new(&kernels, conv);
        let segments = Segments::new(&kernels, conv, &panels);
        let visible = visible_columns(&kernels, conv, &segments, out[2]);
        let padding = if visible.is_some() { [0; 3] } else { conv.padding };
        let mut size = [0; 3];
        for d in 0..3 {
            let both = padding[d].checked_mul(2).ok_or(PlanError::Size)?;
            size[d] = conv.input[d].checked_add(both).ok_or(PlanError::Size)?;
        }
        let image = size.iter().try_fold(segments.pixel, |a, &s| a.checked_mul(s));
        let fits = |&n: &usize| n.checked_mul(4).is_some_and(|b| b < isize::MAX as usize / 2);
        let image = image.filter(fits).ok_or(PlanError::Size)?;
        Some(segments.depth()).filter(fits).ok_or(PlanError::Size)?;
        let last = panels.first_input(panels.count().saturating_sub(1));
        let in_place = segments.form == TapForm::Single
            && segments.pixel == conv.in_channels
            && last + segments.run <= conv.in_channels
            && padding == [0; 3]
            && (conv.dtype == DType::BF16 || kernels.are_bytes())
            && !kernels.widens_rows();
        let mut window = Window {
            kernels,
            conv: conv.clone(),
            out,
            size,
            padding,
            visible,
            panels,
            segments,
            image,
            in_place,
            offsets: vec![],
        };
        window.offsets = window.segment_offsets();
        Ok(window)
    }

    /// The offset of each segment from the first one, in bytes.
    fn segment_offsets(&self) -> Vec<usize> {
        let ([kd, kh, kw], dilation) = (self.conv.kernel, self.conv.dilation);
        let [kd, kh, kw] = match self.segments.form {
            TapForm::Single => [kd, kh, kw],
            TapForm::Rows => [kd, kh, 1],
            TapForm::Gathered => [1; 3],
        };
        let mut offsets = vec![];
        for (d, h) in (0..kd).flat_map(|d| (0..kh).map(move |h| (d, h))) {
            let tap = |w: usize| self.offset([d * dilation[0], h * dilation[1], w * dilation[2]]);
            offsets.extend((0..kw).map(|w| tap(w) * self.kernels.row_element()));
        }
        offsets
    }

    fn offset(&self, [d, h, w]: [usize; 3]) -> usize {
        ((d * self.size[1] + h) * self.size[2] + w) * self.segments.pixel
    }

    /// Whether taps are gathered into rows.
    pub(super) fn gathers(&self) -> bool {
        self.segments.form == TapForm::Gathered
    }

    /// The length of a panel of the weight, in words of 16 bits.
    pub(super) fn panel_words(&self) -> usize {
        self.kernels.panel_words(self.segments.depth())
    }

    /// The stride between gathered rows, in elements.
    pub(super) fn gathered_row(&self) -> usize {
        let size = self.kernels.row_element();
        packed_row(self.segments.run * size) / size
    }

    /// The first element under output pixel `(line, 0)`. It wraps if that is in padding that the image does not have.
    fn line_offset(&self, line: usize) -> usize {
        let (stride, at) = (self.conv.stride, [line / self.out[1], line % self.out[1]]);
        let without = [0, 1, 2].map(|d| self.conv.padding[d] - self.padding[d]);
        self.offset([at[0] * stride[0], at[1] * stride[1], 0])
            .wrapping_sub(self.offset(without))
    }

    /// Whether segment `i`, which is a tap, sees the image from an output row, apart from the ends of the row.
    pub(super) fn sees_image(&self, line: usize, i: usize) -> bool {
        let c = &self.conv;
        let (row, at) = (i / c.kernel[2], [line / self.out[1], line % self.out[1]]);
        visible_taps(c, 0, at[0]).contains(&(row / c.kernel[1]))
            && visible_taps(c, 1, at[1]).contains(&(row % c.kernel[1]))
    }

    /// The segments that an output row multiplies: without those that contain only padding.
    pub(super) fn segments_of(&self, line: usize) -> Range<usize> {
        match self.gathers() {
            true => 0..1,
            false => visible_segments(&self.conv, [line / self.out[1], line % self.out[1]], self.offsets.len()),
        }
    }

    /// The pixels of output rows `l0..l1` of the image at `x`, gathered if necessary.
    ///
    /// # Safety
    /// `x` is a prepared image.
    pub(super) unsafe fn chunk_pixels(&self, x: *const u8, [l0, l1]: [usize; 2]) -> ChunkPixels<'_> {
        let (size, pixel) = (self.kernels.row_element(), self.segments.pixel);
        if !self.gathers() {
            return ChunkPixels {
                window: self,
                first: x,
                line: l0,
                step: self.conv.stride[2] * pixel,
                _gathered: scratch::take_buffer(0),
            };
        }
        let (row, width) = (self.gathered_row(), self.out[2]);
        let mut gathered = scratch::take_buffer(Window::words((l1 - l0) * width * row, size));
        let dst = gathered.as_mut_ptr().cast::<u8>();
        for (line, w) in (l0..l1).flat_map(|l| (0..width).map(move |w| (l, w))) {
            let offset = self.line_offset(line) + w * self.conv.stride[2] * pixel;
            // SAFETY: the pixel's taps lie in the image, and its row in the buffer. Both have spare bytes at the end.
            unsafe { self.gather_pixel(x.add(offset * size), dst.add(((line - l0) * width + w) * row * size)) };
        }
        ChunkPixels {
            window: self,
            first: gathered.as_ptr().cast(),
            line: l0,
            step: row,
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
        let piece = taps * self.segments.pixel * size;
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
        unsafe { clear_elements(dst.add(written), self.segments.run * size - written) };
    }
}

/// See [`Window::visible`].
fn visible_columns(kernels: &PairKernels, conv: &Conv, segments: &Segments, width: usize) -> Option<Vec<Range<usize>>> {
    if segments.form != TapForm::Single || !kernels.adds_to_sums() {
        return None;
    }
    visible_pixels(conv, width, segments.run / kernels.rate())
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
    /// The offsets of the segments, in bytes.
    pub(super) fn segments(&self) -> &[usize] {
        &self.window.offsets
    }

    /// The first element of an output pixel's row.
    pub(super) fn at(&self, line: usize, pixel: usize) -> *const u8 {
        let w = self.window;
        let element = match w.gathers() {
            true => ((line - self.line) * w.out[2] + pixel) * self.step,
            false => w.line_offset(line).wrapping_add(pixel * self.step),
        };
        self.first.wrapping_add(element.wrapping_mul(w.kernels.row_element()))
    }
}
