//! Fuses a 1x1 convolution with the depthwise convolution that alone reads its result (the first half of an inverted
//! residual block). Works in bands: some rows of some channels of the first result are computed, the depthwise
//! convolution reads them while they are in the thread's cache, and the next band overwrites them. The first result,
//! often the largest tensor of its network, never exists in memory as a whole.
//!
//! The sums are bit-identical to those of the separate convolutions ([`direct`](super::direct),
//! [`channels`](super::channels)).

#[cfg(test)]
mod tests;

use super::channels::{Band, DepthwiseChannels};
use super::direct::Direct;
use super::row::bias_at;
use super::{ConvParameters, check_constant_len};
use crate::math::contract::{Conv, ConvConstants, Expansion, ExpansionArgs, ExpansionPlan, PlanError, Tile, TileTail};
use crate::math::scratch::{self, SharedPtr};
use crate::math::tile::{Init, Kernels, ONE_SEGMENT, Prefetch, TileJob, Tiles};
use crate::parallel::Pool;
use crate::target::Isa;

/// The size of a band in bytes: a quarter of a 1 MB L2 cache, which also holds weights and input.
const BAND: usize = 256 << 10;
/// The number of multiply-adds in the smallest chunk worth distributing.
const SMALLEST: f64 = 200e3;

/// Plans `desc`. Returns an error if [`crate::math::contract::Expansion::is_supported`] does not hold.
pub(crate) fn plan(
    isa: Isa,
    desc: &Expansion,
    constants: [ConvConstants; 2],
) -> Result<Box<dyn ExpansionPlan>, PlanError> {
    if !desc.is_supported() {
        return Err(PlanError::Size);
    }
    for (conv, c) in [&desc.first, &desc.second].into_iter().zip(&constants) {
        let extents = conv.extents().ok_or(PlanError::Size)?;
        check_constant_len(conv, c.weight, extents[1])?;
        check_constant_len(conv, c.bias, extents[2])?;
    }
    let [first, second] = constants;
    let (one, two) = (
        Direct::new(isa, &desc.first)?,
        DepthwiseChannels::new(isa, &desc.second)?,
    );
    let kernels = Kernels::for_isa(isa);
    Ok(Box::new(Expand {
        parameters: [
            ConvParameters::new(&one, &desc.first, first),
            ConvParameters::new(&two, &desc.second, second),
        ],
        panels: desc.first.out_channels.div_ceil(kernels.nr),
        out: desc.second.output_size().ok_or(PlanError::Size)?,
        first: desc.first.clone(),
        second: desc.second.clone(),
        one,
        two,
        kernels,
    }))
}

/// The plan.
struct Expand {
    first: Conv,
    second: Conv,
    one: Direct,
    two: DepthwiseChannels,
    parameters: [ConvParameters; 2],
    kernels: &'static Kernels,
    /// The number of panels of channels between the convolutions.
    panels: usize,
    /// Sizes of the second output.
    out: [usize; 3],
}

/// The addresses of the operands, with prepared weights.
#[derive(Clone, Copy)]
struct ExpandOperands {
    x: *const f32,
    weights: [*const f32; 2],
    biases: [*const f32; 2],
    y: *mut f32,
    middle: Option<TileTail>,
    tail: Option<TileTail>,
}

/// Some output rows of an image, for some panels.
struct ExpandPart {
    image: usize,
    rows: [usize; 2],
    panels: [usize; 2],
}

/// How the work is split: groups of panels times parts of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ExpandCut {
    panels: usize,
    rows: usize,
}

impl Expand {
    /// The size in bytes of one row of a band with this many panels.
    fn row_bytes(&self, panels: usize) -> usize {
        4 * self.second.input[2] * panels * self.kernels.nr
    }

    /// The number of output rows that a band of this many panels covers.
    fn band_rows(&self, panels: usize) -> usize {
        let rows = BAND / self.row_bytes(panels).max(1);
        rows.saturating_sub(self.second.kernel[1]) / self.second.stride[1] + 1
    }

    /// Splits the work. Splitting panels costs nothing; each split between rows recomputes the rows that both sides
    /// need.
    fn cut_work(&self, threads: usize) -> ExpandCut {
        let height = self.out[1].max(1);
        let c = &self.second;
        let twice = c.kernel[1].saturating_sub(c.stride[1]);
        let fits = (BAND / self.row_bytes(1).max(1) / (c.kernel[1] + c.stride[1])).clamp(1, self.panels);
        let macs = self.first.macs() + self.second.macs();
        let (mut groups, mut parts) = (self.panels.div_ceil(fits), 1);
        loop {
            let chunks = c.batch * groups * parts;
            if threads == 1 || chunks >= 4 * threads || macs / (chunks as f64) < SMALLEST {
                break;
            }
            let dear = |parts: usize, share: usize| parts * twice * share > c.input[1] || 2 * parts > height;
            if !dear(parts + 1, 12) {
                parts += 1;
            } else if groups < self.panels {
                groups += 1;
            } else if !dear(parts + 1, 6) {
                parts += 1;
            } else {
                break;
            }
        }
        ExpandCut {
            panels: self.panels.div_ceil(groups),
            rows: height.div_ceil(parts),
        }
    }

    /// The first channel of a range of panels, and the number of channels.
    fn channel_range(&self, panels: [usize; 2]) -> (usize, usize) {
        let first = panels[0] * self.kernels.nr;
        (
            first,
            (panels[1] * self.kernels.nr).min(self.first.out_channels) - first,
        )
    }

    /// Computes a run of pixels of the first output, for `panels`, into `dst`. Their input starts at `x`.
    ///
    /// # Safety
    /// The pixels lie in the image at `x`; `dst` holds them.
    unsafe fn expand_pixels(
        &self,
        o: &ExpandOperands,
        x: *const f32,
        pixels: usize,
        panels: [usize; 2],
        dst: *mut f32,
    ) {
        let (k, nr, depth) = (self.kernels, self.kernels.nr, self.first.in_channels);
        let (pixel, tiles) = (self.channel_range(panels).1, Tiles::new(pixels, self.kernels.mr));
        for p in panels[0]..panels[1] {
            let next = o.weights[0].wrapping_add((p + 1).min(self.panels - 1) * nr * depth);
            let cols = (self.first.out_channels - p * nr).min(nr);
            for t in 0..tiles.count() {
                let (r, end) = (tiles.start(t), tiles.start(t + 1));
                // SAFETY: the tile's pixels lie in the image and in `dst`, the panel in the weights.
                unsafe {
                    let job = TileJob {
                        a: x.wrapping_add(r * depth),
                        a_row: depth,
                        a_k: 1,
                        segments: ONE_SEGMENT.as_ptr(),
                        segment_count: 1,
                        run: depth,
                        b: o.weights[0].add(p * nr * depth),
                        b_k: nr,
                        b_panel: 0,
                        c: dst.add(r * pixel + (p - panels[0]) * nr),
                        c_row: pixel,
                        cols,
                        init: if o.biases[0].is_null() { Init::Zero } else { Init::Bias },
                        bias: o.biases[0].wrapping_add(p * nr),
                        clamp: self.first.activation.bounds(),
                        next: Prefetch::share(next, nr, depth, t, tiles.count()),
                    };
                    k.tile_kernel(end - r, k.half_vectors(cols), false)(&job);
                }
            }
        }
    }

    /// Computes a part of the second output.
    ///
    /// # Safety
    /// The operands are valid; no other thread writes this part.
    unsafe fn run_part(&self, o: &ExpandOperands, part: &ExpandPart) {
        let c = self.first.in_channels;
        let [_, height, width] = self.second.input;
        let panels = part.panels;
        let row = width * self.channel_range(panels).1;
        let step = self.band_rows(panels[1] - panels[0]).min(part.rows[1] - part.rows[0]);
        let most = (step - 1) * self.second.stride[1] + self.second.kernel[1];
        let mut band = scratch::take_buffer(most * row);
        let mut have = [0usize; 2];
        for r in (part.rows[0]..part.rows[1]).step_by(step) {
            let end = (r + step).min(part.rows[1]);
            let need = [self.two.needed_rows(r)[0], self.two.needed_rows(end - 1)[1]];
            // Keep the rows that the previous band also had.
            let kept = have[1].saturating_sub(need[0]);
            band.copy_within((have[1] - kept - have[0]) * row..(have[1] - have[0]) * row, 0);
            let fresh = need[0] + kept;
            // SAFETY: the rows lie in the image and the band; the part is this thread's.
            unsafe {
                let x = o.x.wrapping_add((part.image * height + fresh) * width * c);
                let dst = band.as_mut_ptr().add(kept * row);
                let rows = need[1].saturating_sub(fresh);
                self.expand_pixels(o, x, rows * width, panels, dst);
                if let Some(tail) = &o.middle {
                    tail.run(&row_tile(dst, rows * row));
                }
                self.run_depthwise(o, part, [r, end], band.as_ptr(), need[0]);
            }
            have = [need[0], need[1].max(fresh)];
        }
    }

    /// Computes rows `r..end` of the second output from a band whose first row is `first`.
    ///
    /// # Safety
    /// As for [`Expand::run_part`].
    unsafe fn run_depthwise(
        &self,
        o: &ExpandOperands,
        part: &ExpandPart,
        [r, end]: [usize; 2],
        band: *const f32,
        first: usize,
    ) {
        let (all, width) = (self.second.out_channels, self.out[2]);
        let (channel, channels) = self.channel_range(part.panels);
        let place = |row: usize| ((part.image * self.out[1] + row) * width) * all + channel;
        for row in r..end {
            let band = Band {
                x: band,
                first,
                pixel: channels,
                weight: o.weights[1].wrapping_add(channel),
                bias: bias_at(o.biases[1], channel),
                y: o.y.wrapping_add(place(row)),
                y_pixel: all,
                channels,
            };
            // SAFETY: the band has the rows that are needed; the output row is this thread's.
            unsafe { self.two.band_row(row, &band) };
        }
        let Some(tail) = &o.tail else { return };
        let tile = Tile {
            data: o.y.wrapping_add(place(r)).cast(),
            offset: place(r),
            batch: part.image,
            row: r * width,
            col: channel,
            rows: (end - r) * width,
            cols: channels,
            row_stride: all,
            data_stride: all,
        };
        // SAFETY: these rows are finished.
        unsafe { tail.run(&tile) };
    }
}

/// A tile of `n` elements in one row.
fn row_tile(data: *mut f32, n: usize) -> Tile {
    Tile {
        data: data.cast(),
        offset: 0,
        batch: 0,
        row: 0,
        col: 0,
        rows: 1,
        cols: n,
        row_stride: n,
        data_stride: n,
    }
}

impl ExpansionPlan for Expand {
    unsafe fn run(&self, pool: &Pool, args: &ExpansionArgs) {
        let cut = self.cut_work(pool.threads());
        let (parts, groups) = (self.out[1].div_ceil(cut.rows), self.panels.div_ceil(cut.panels));
        let chunks = |weights, biases| {
            let o = ExpandOperands {
                x: args.x.cast(),
                weights,
                biases,
                y: args.y.cast(),
                middle: args.middle,
                tail: args.tail,
            };
            let shared = SharedPtr((&raw const o).cast_mut());
            pool.run(self.second.batch * parts * groups, |i| {
                let (g, rest) = (i % groups, i / groups);
                let (r, image) = (rest % parts, rest / parts);
                let part = ExpandPart {
                    image,
                    rows: [r * cut.rows, ((r + 1) * cut.rows).min(self.out[1])],
                    panels: [g * cut.panels, ((g + 1) * cut.panels).min(self.panels)],
                };
                // SAFETY: the operands outlive the job and are only read; chunks own disjoint parts of the output.
                unsafe { self.run_part(&*shared.get(), &part) };
            });
        };
        let [one, two] = &self.parameters;
        // SAFETY: guaranteed by the caller.
        unsafe {
            one.with_prepared(&self.one, pool, [args.weights[0], args.biases[0]], |w1, b1| {
                two.with_prepared(&self.two, pool, [args.weights[1], args.biases[1]], |w2, b2| {
                    chunks([w1, w2], [b1, b2])
                });
            });
        }
    }

    fn describe(&self) -> String {
        let k = self.kernels;
        format!("conv f32 1x1 and depthwise in bands {}x{} {}", k.mr, k.nr, k.isa)
    }
}
