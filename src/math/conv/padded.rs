//! The input as the channels-last kernels read it: `[image][depth][height][width][channel]`, including the padding.
//!
//! Copying costs about 1 / (output channels * taps) of the work. In return, the kernels need not test for the border.

use super::strip::{ChunkOrder, Load, cut_chunks};
use crate::math::contract::{Conv, ConvLayout, PlanError};
use crate::math::isa::per_isa;
use crate::math::scratch::{self, SharedPtr};
use crate::math::simd::Simd;
use crate::math::transpose::transpose;
use crate::parallel::Pool;
use crate::target::Isa;

/// The number of bytes of padded input to prepare at once, which stay in the last-level cache until they are used.
const AT_ONCE: usize = 4 << 20;

/// The geometry of the padded input.
#[derive(Clone, Debug)]
pub(super) struct Padded {
    isa: Isa,
    layout: ConvLayout,
    channels: usize,
    input: [usize; 3],
    padding: [usize; 3],
    /// Keep only every `step`-th row: a kernel of size 1 never reads the others.
    step: [usize; 3],
    /// Depth, height and width with padding.
    pub size: [usize; 3],
    /// The stride that remains for the kernels.
    pub stride: [usize; 3],
    /// The stride between pixels: the channels, plus a gap if their number would put the pixels of a tile into the same
    /// sets of the L1 cache.
    pub pixel: usize,
    /// The number of elements in one image.
    pub image: usize,
    /// Whether the input can be read without copying.
    pub in_place: bool,
}

impl Padded {
    /// The input of `conv` with its padding. Returns an error if its size does not fit the address space.
    pub(super) fn new(isa: Isa, conv: &Conv) -> Result<Padded, PlanError> {
        Padded::with_padding(isa, conv, conv.padding)
    }

    /// The input of `conv` with `padding` instead of its own. Kernels that handle the border themselves pass 0.
    pub(super) fn with_padding(isa: Isa, conv: &Conv, padding: [usize; 3]) -> Result<Padded, PlanError> {
        let (mut step, mut stride) = ([1; 3], conv.stride);
        let out = conv.output_size().ok_or(PlanError::Size)?;
        let mut size = [0; 3];
        for d in 0..3 {
            size[d] = padding[d]
                .checked_mul(2)
                .and_then(|p| p.checked_add(conv.input[d]))
                .ok_or(PlanError::Size)?;
            if d < 2 && conv.kernel[d] == 1 && conv.padding[d] == 0 && conv.stride[d] > 1 {
                (step[d], stride[d], size[d]) = (conv.stride[d], 1, out[d]);
            }
        }
        let layout = conv.input_layout;
        let in_place =
            padding == [0; 3] && step == [1; 3] && (layout == ConvLayout::ChannelsLast || conv.in_channels == 1);
        let alias = conv.in_channels.is_multiple_of(512) && !in_place;
        let pixel = conv.in_channels + if alias { 16 } else { 0 };
        let image = size.iter().try_fold(pixel, |a, &s| a.checked_mul(s));
        // Kernels that load whole vectors may read one row more.
        let fits = |&n: &usize| n.checked_mul(4).is_some_and(|b| b < isize::MAX as usize / 2);
        let image = image.filter(fits).ok_or(PlanError::Size)?;
        Ok(Padded {
            isa,
            layout,
            channels: conv.in_channels,
            input: conv.input,
            padding,
            step,
            size,
            stride,
            pixel,
            image,
            in_place,
        })
    }

    /// The number of images, out of `batch`, to prepare at once.
    pub(super) fn images_at_once(&self, batch: usize) -> usize {
        match self.in_place {
            true => batch,
            // Make the parts as equal as possible.
            false => {
                let most = (AT_ONCE / (4 * self.image).max(1)).max(1);
                batch.div_ceil(batch.div_ceil(most).max(1)).max(1)
            }
        }
    }

    /// Calls `f` for each group of images that is prepared at once, with its address, the index of the first image, and
    /// the number of images.
    ///
    /// # Safety
    /// `x` holds `batch` images.
    pub(super) unsafe fn for_each_batch(
        &self,
        pool: &Pool,
        batch: usize,
        x: *const f32,
        f: impl Fn(*const f32, usize, usize),
    ) {
        let together = self.images_at_once(batch);
        let mut buffer = scratch::take_buffer(if self.in_place { 0 } else { together * self.image });
        for image in (0..batch).step_by(together) {
            let count = together.min(batch - image);
            // SAFETY: guaranteed by the caller; the buffer holds the images.
            unsafe {
                let x = x.add(image * self.channels * self.input.iter().product::<usize>());
                if self.in_place {
                    f(x, image, count);
                } else {
                    self.fill_images(pool, x, count, buffer.as_mut_ptr());
                    f(buffer.as_ptr(), image, count);
                }
            }
        }
    }

    /// Prepares images and calls `run` for each chunk of them: with the address of the chunk's image, the image's index, and the
    /// chunk's rows and panels. `load` is the work of all images.
    ///
    /// # Safety
    /// `x` holds `batch` images.
    pub(super) unsafe fn for_each_chunk(
        &self,
        pool: &Pool,
        (batch, load): (usize, Load),
        order: ChunkOrder,
        x: *const f32,
        run: impl Fn(*const f32, usize, [usize; 2], [usize; 2]) + Sync,
    ) {
        let images = self.images_at_once(batch);
        let cut = cut_chunks(&Load { images, ..load }, pool.threads());
        let run_images = |x: *const f32, first: usize, count: usize| {
            let x = SharedPtr(x.cast_mut());
            cut.for_each_chunk(pool, count, [load.rows, load.panels], order, |n, rows, panels| {
                run(x.get().wrapping_add(n * self.image), first + n, rows, panels);
            });
        };
        // SAFETY: guaranteed by the caller.
        unsafe { self.for_each_batch(pool, batch, x, run_images) };
    }

    /// The offset of pixel `(d, h, w)` in the padded image.
    pub(super) fn pixel_offset(&self, d: usize, h: usize, w: usize) -> usize {
        ((d * self.size[1] + h) * self.size[2] + w) * self.pixel
    }

    /// Fills `dst` with `count` padded images from `x`.
    ///
    /// # Safety
    /// `x` is readable for the images, `dst` writable for `count` padded ones.
    pub(super) unsafe fn fill_images(&self, pool: &Pool, x: *const f32, count: usize, dst: *mut f32) {
        let rows = count * self.size[0] * self.size[1];
        let per = (8192 / (self.size[2] * self.pixel).max(1)).max(1);
        let (src, dst) = (SharedPtr(x.cast_mut()), SharedPtr(dst));
        pool.run(rows.div_ceil(per), |i| {
            for r in i * per..((i + 1) * per).min(rows) {
                // SAFETY: only this chunk writes row `r`.
                unsafe { self.fill_row(src.get(), r, dst.get().add(r * self.size[2] * self.pixel)) };
            }
        });
    }

    /// Fills row `r`, counted over all padded rows.
    ///
    /// # Safety
    /// As for [`Padded::fill_images`]; `dst` is where the row begins.
    unsafe fn fill_row(&self, x: *const f32, r: usize, dst: *mut f32) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.fill_channels(x, r, [0, self.channels], self.pixel, dst) };
    }

    /// Fills some channels of row `r`, counted over all padded rows. `channels` has the first channel and their number.
    /// Pixels are `pixel` apart in `dst`.
    ///
    /// # Safety
    /// `x` is readable for the row's image; `dst` is writable for the padded row.
    pub(super) unsafe fn fill_channels(
        &self,
        x: *const f32,
        r: usize,
        [c0, n]: [usize; 2],
        pixel: usize,
        dst: *mut f32,
    ) {
        let [_, h, w] = self.input;
        let (image, row) = (r / (self.size[0] * self.size[1]), r % (self.size[0] * self.size[1]));
        let source = |d: usize, at: usize| {
            (at * self.step[d])
                .checked_sub(self.padding[d])
                .filter(|&p| p < self.input[d])
        };
        let (z, y) = (source(0, row / self.size[1]), source(1, row % self.size[1]));
        let (row_len, pad) = (self.size[2] * pixel, self.padding[2] * pixel);
        // SAFETY: the row lies in the padded buffer; the source row lies in the image.
        unsafe {
            let (Some(z), Some(y)) = (z, y) else {
                dst.write_bytes(0, row_len);
                return;
            };
            dst.write_bytes(0, pad);
            dst.add(row_len - pad).write_bytes(0, pad);
            let (c, plane) = (self.channels, self.input.iter().product::<usize>());
            let (src, dst) = (x.add(image * c * plane), dst.add(pad));
            let pixels = src.add((z * h + y) * w * c + c0);
            match self.layout {
                ConvLayout::ChannelsFirst => {
                    let rows = src.add(c0 * plane + (z * h + y) * w);
                    transpose(rows, plane, n, w, dst, pixel);
                }
                ConvLayout::ChannelsLast if c == pixel && n == c => std::ptr::copy_nonoverlapping(pixels, dst, w * c),
                ConvLayout::ChannelsLast => copy_pixels(self.isa)(pixels, c, n, w, dst, pixel),
            }
        }
    }
}

/// Copies `n` channels of `count` pixels.
#[inline(always)]
unsafe fn copy_pixels_body<S: Simd>(
    src: *const f32,
    src_pixel: usize,
    n: usize,
    count: usize,
    dst: *mut f32,
    dst_pixel: usize,
) {
    let whole = n / S::LANES * S::LANES;
    // SAFETY: the caller provides the pixels.
    unsafe {
        for p in 0..count {
            let (src, dst) = (src.add(p * src_pixel), dst.add(p * dst_pixel));
            for c in (0..whole).step_by(S::LANES) {
                S::store(dst.add(c), S::load(src.add(c)));
            }
            if whole < n {
                S::store_first(dst.add(whole), n - whole, S::load_first(src.add(whole), n - whole));
            }
        }
    }
}

per_isa! {
    /// See [`copy_pixels_body`].
    fn copy_pixels = copy_pixels_body(src: *const f32, src_pixel: usize, n: usize, count: usize, dst: *mut f32, dst_pixel: usize)
}
