//! Depthwise convolution over vectors of channels, on padded channels-last input: each output channel meets its own input
//! channel only, so lanes are channels. Any number of dimensions, stride and dilation.

use super::padded::Padded;
use super::strip::{Cut, Load, Output, Part, cut};
use super::{Method, Operands};
use crate::math::contract::{Conv, PlanError};
use crate::math::isa::{Isa, per_isa};
use crate::math::scratch;
use crate::math::simd::Simd;
use crate::math::tile::Tiles;
use crate::parallel::Pool;

/// The most pixels of one tile.
const PIXELS: usize = 8;

/// The method.
pub struct Channels {
    conv: Conv,
    isa: Isa,
    padded: Padded,
    output: Output,
    out: [usize; 3],
    /// Where each tap is, from the pixel's first.
    taps: Vec<usize>,
    load: Load,
}

impl Channels {
    /// Plans `conv`, which has as many groups as input and output channels.
    pub fn new(isa: Isa, conv: &Conv) -> Result<Channels, PlanError> {
        let padded = Padded::new(isa, conv)?;
        let out = conv.output().ok_or(PlanError::Size)?;
        let [kd, kh, kw] = conv.kernel;
        let dil = conv.dilation;
        let taps = (0..kd * kh * kw)
            .map(|t| padded.at(t / (kh * kw) * dil[0], t / kw % kh * dil[1], t % kw * dil[2]))
            .collect();
        let output = Output::new(isa, conv);
        let load = Load {
            rows: out[0] * out[1],
            row_pixels: out[2],
            panels: conv.in_channels.div_ceil(4 * isa.lanes()),
            panel_cols: 4 * isa.lanes(),
            images: conv.batch,
            // A multiply-add costs about four times that of a tile: every one has its own loads.
            macs: 4.0 * conv.macs(),
            weights: 0,
            input: 1,
            buffered: output.is_buffered(),
        };
        Ok(Channels {
            conv: conv.clone(),
            isa,
            padded,
            output,
            out,
            taps,
            load,
        })
    }

    /// Rows `r0..r1` of one image, padded at `x`, for panels `p0..p1`.
    ///
    /// # Safety
    /// The operands are valid; no other thread writes this part.
    unsafe fn chunk(&self, o: &Operands, x: *const f32, image: usize, [r0, r1]: [usize; 2], [p0, p1]: [usize; 2]) {
        let c = self.conv.in_channels;
        let (c0, c1) = (p0 * self.load.panel_cols, (p1 * self.load.panel_cols).min(c));
        let ow = self.out[2];
        let part = Part {
            image,
            pixel: r0 * ow,
            pixels: (r1 - r0) * ow,
            channel: c0,
            channels: c1 - c0,
        };
        // SAFETY: the part lies in the output; every pointer below lies in its operand.
        unsafe {
            let strip = self.output.begin(o.y, &part);
            for r in r0..r1 {
                let (d, h) = (r / self.out[1], r % self.out[1]);
                let at = self.padded.at(d * self.padded.stride[0], h * self.padded.stride[1], 0);
                let job = Job {
                    x: x.add(at + c0),
                    pixel: self.padded.stride[2] * self.padded.pixel,
                    pixels: ow,
                    taps: &self.taps,
                    weight: o.weight.add(c0),
                    weight_tap: c,
                    bias: if o.bias.is_null() { o.bias } else { o.bias.add(c0) },
                    y: strip.base.add((r - r0) * ow * strip.row),
                    y_pixel: strip.row,
                    channels: c1 - c0,
                    clamp: self.conv.activation.bounds(),
                };
                kernel(self.isa)(&job);
            }
            self.output.finish(strip, &part, o);
        }
    }

    /// All chunks of `count` images from `image` on, padded at `x`.
    ///
    /// # Safety
    /// The operands are valid.
    unsafe fn images(&self, pool: &Pool, o: &Operands, x: *const f32, image: usize, count: usize, c: Cut) {
        let (rows, panels) = (self.load.rows, self.load.panels);
        let (row_chunks, panel_chunks) = (rows.div_ceil(c.rows), panels.div_ceil(c.panels));
        let x = scratch::Shared(x.cast_mut());
        pool.run(count * row_chunks * panel_chunks, |i| {
            let (p, rest) = (i % panel_chunks, i / panel_chunks);
            let (r, n) = (rest % row_chunks, rest / row_chunks);
            let rows = [r * c.rows, ((r + 1) * c.rows).min(rows)];
            let panels = [p * c.panels, ((p + 1) * c.panels).min(panels)];
            // SAFETY: the padded images are `count`; chunks own disjoint parts of the output.
            unsafe { self.chunk(o, x.get().add(n * self.padded.image), image + n, rows, panels) };
        });
    }
}

impl Method for Channels {
    fn packed_len(&self) -> usize {
        self.taps.len() * self.conv.in_channels
    }

    /// Tap after tap, the channels side by side.
    fn pack(&self, _: &Pool, weight: &[f32], packed: &mut [f32]) {
        let (c, taps) = (self.conv.in_channels, self.taps.len());
        for t in 0..taps {
            for i in 0..c {
                packed[t * c + i] = weight[i * taps + t];
            }
        }
    }

    unsafe fn run(&self, pool: &Pool, o: &Operands) {
        let together = self.padded.images_at_once(self.conv.batch);
        let c = cut(
            &Load {
                images: together,
                ..self.load
            },
            pool.threads(),
        );
        let in_place = self.padded.in_place;
        let mut buffer = scratch::take(if in_place { 0 } else { together * self.padded.image });
        for image in (0..self.conv.batch).step_by(together) {
            let count = together.min(self.conv.batch - image);
            // SAFETY: the caller's promise; the buffer holds the padded images.
            unsafe {
                let x =
                    o.x.add(image * self.conv.in_channels * self.conv.input.iter().product::<usize>());
                if in_place {
                    self.images(pool, o, x, image, count, c);
                } else {
                    self.padded.fill(pool, x, count, buffer.as_mut_ptr());
                    self.images(pool, o, buffer.as_ptr(), image, count, c);
                }
            }
        }
    }

    fn name(&self) -> String {
        format!("depthwise over channels {}", self.isa)
    }
}

/// One row of pixels for some channels. Strides are in elements.
struct Job<'a> {
    x: *const f32,
    /// From the window of one output pixel to that of the next.
    pixel: usize,
    pixels: usize,
    taps: &'a [usize],
    weight: *const f32,
    weight_tap: usize,
    bias: *const f32,
    y: *mut f32,
    y_pixel: usize,
    channels: usize,
    clamp: Option<(f32, f32)>,
}

#[inline(always)]
unsafe fn body<S: Simd>(j: &Job) {
    let tiles = Tiles::new(j.pixels, PIXELS);
    for t in 0..tiles.count() {
        let (p, rows) = (tiles.start(t), tiles.start(t + 1) - tiles.start(t));
        let mut c = 0;
        while c < j.channels {
            let n = (j.channels - c).min(S::LANES);
            // SAFETY: the pixels and channels lie in the row.
            unsafe {
                match rows {
                    1 => tile::<S, 1>(j, p, c, n),
                    2 => tile::<S, 2>(j, p, c, n),
                    3 => tile::<S, 3>(j, p, c, n),
                    4 => tile::<S, 4>(j, p, c, n),
                    5 => tile::<S, 5>(j, p, c, n),
                    6 => tile::<S, 6>(j, p, c, n),
                    7 => tile::<S, 7>(j, p, c, n),
                    _ => tile::<S, 8>(j, p, c, n),
                }
            }
            c += n;
        }
    }
}

/// `R` pixels from `p` on, `n` channels from `c` on.
#[inline(always)]
unsafe fn tile<S: Simd, const R: usize>(j: &Job, p: usize, c: usize, n: usize) {
    // SAFETY: the caller gives pixels and channels of the row.
    unsafe {
        let whole = n == S::LANES;
        let start = match (j.bias.is_null(), whole) {
            (true, _) => S::splat(0.0),
            (_, true) => S::load(j.bias.add(c)),
            (_, false) => S::load_first(j.bias.add(c), n),
        };
        let mut acc = [start; R];
        let x = j.x.add(p * j.pixel + c);
        for (t, &tap) in j.taps.iter().enumerate() {
            let w = j.weight.add(t * j.weight_tap + c);
            if whole {
                let w = S::load(w);
                for r in 0..R {
                    acc[r] = S::fma(S::load(x.add(tap + r * j.pixel)), w, acc[r]);
                }
            } else {
                let w = S::load_first(w, n);
                for r in 0..R {
                    acc[r] = S::fma(S::load_first(x.add(tap + r * j.pixel), n), w, acc[r]);
                }
            }
        }
        if let Some((lo, hi)) = j.clamp {
            let (lo, hi) = (S::splat(lo), S::splat(hi));
            for r in 0..R {
                acc[r] = S::min(hi, S::max(lo, acc[r]));
            }
        }
        for r in 0..R {
            let y = j.y.add((p + r) * j.y_pixel + c);
            if whole {
                S::store(y, acc[r]);
            } else {
                S::store_first(y, n, acc[r]);
            }
        }
    }
}

per_isa! {
    /// The kernel of one level.
    fn kernel = body(j: &Job)
}
