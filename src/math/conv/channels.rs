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
/// The most input pixels in a row under a tile: five taps, two apart.
const MOST: usize = (PIXELS - 1) * 2 + 5;

/// The method.
pub struct Channels {
    conv: Conv,
    isa: Isa,
    input: Padded,
    output: Output,
    out: [usize; 3],
    load: Load,
    kernel: unsafe fn(&Job),
    /// Whether the kernel looks after the border at the ends of a row itself.
    whole_rows: bool,
}

impl Channels {
    /// Plans `conv`, which has as many groups as input and output channels.
    pub fn new(isa: Isa, conv: &Conv) -> Result<Channels, PlanError> {
        // The border is looked after here: a padded copy would cost as much as the convolution.
        let input = Padded::with(isa, conv, [0; 3])?;
        let out = conv.output().ok_or(PlanError::Size)?;
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
        let kernel = match (conv.kernel[2], conv.dilation[2], input.stride[2]) {
            (3, 1, 1) => kernel::<3, 1>(isa),
            (3, 1, 2) => kernel::<3, 2>(isa),
            (5, 1, 1) => kernel::<5, 1>(isa),
            (5, 1, 2) => kernel::<5, 2>(isa),
            (7, 1, 1) => kernel::<7, 1>(isa),
            _ => kernel::<0, 0>(isa),
        };
        let whole_rows = matches!(conv.kernel[2], 3 | 5 | 7)
            && conv.dilation[2] == 1
            && (input.stride[2] == 1 || (input.stride[2] == 2 && conv.kernel[2] < 7));
        Ok(Channels {
            conv: conv.clone(),
            isa,
            input,
            output,
            out,
            load,
            kernel,
            whole_rows,
        })
    }

    /// The taps along dimension `d` that meet the input when the window of output place `at` is computed, and the
    /// input place of the first.
    fn taps(&self, d: usize, at: usize) -> ([usize; 2], usize) {
        let c = &self.conv;
        // Where rows were dropped because no tap meets them, each output row has its own input row.
        let (begin, pad) = (
            at * self.input.stride[d],
            if self.input.stride[d] == c.stride[d] {
                c.padding[d]
            } else {
                0
            },
        );
        let first = pad.saturating_sub(begin).div_ceil(c.dilation[d]);
        let end = (self.input.size[d] + pad)
            .saturating_sub(begin)
            .div_ceil(c.dilation[d])
            .min(c.kernel[d]);
        let place = (begin + first * c.dilation[d]).saturating_sub(pad);
        ([first.min(end), end], place)
    }

    /// Rows `r0..r1` of one image at `x`, for panels `p0..p1`.
    ///
    /// # Safety
    /// The operands are valid; no other thread writes this part.
    unsafe fn chunk(&self, o: &Operands, x: *const f32, image: usize, [r0, r1]: [usize; 2], [p0, p1]: [usize; 2]) {
        let (c, pixel) = (self.conv.in_channels, self.input.pixel);
        let (c0, c1) = (p0 * self.load.panel_cols, (p1 * self.load.panel_cols).min(c));
        let ow = self.out[2];
        let part = Part {
            image,
            pixel: r0 * ow,
            pixels: (r1 - r0) * ow,
            channel: c0,
            channels: c1 - c0,
        };
        let [_, dil_h, dil_w] = self.conv.dilation;
        // SAFETY: the part lies in the output; every pointer below lies in its operand.
        unsafe {
            let strip = self.output.begin(o.y, &part);
            for r in r0..r1 {
                let (depth, z) = self.taps(0, r / self.out[1]);
                let (height, y) = self.taps(1, r % self.out[1]);
                let mut job = Job {
                    x: x.add(c0),
                    step: [
                        self.input.at(self.conv.dilation[0], 0, 0),
                        self.input.at(0, dil_h, 0),
                        dil_w * pixel,
                    ],
                    pixel: self.input.stride[2] * pixel,
                    pixels: 1,
                    before: 0,
                    width: self.input.size[2],
                    taps: [depth, height, [0, 0]],
                    kernel: self.conv.kernel,
                    weight: o.weight.add(c0),
                    weight_tap: c,
                    bias: if o.bias.is_null() { o.bias } else { o.bias.add(c0) },
                    y: strip.base,
                    y_pixel: strip.row,
                    channels: c1 - c0,
                    clamp: self.conv.activation.bounds(),
                };
                if self.whole_rows {
                    job.taps[2] = [0, self.conv.kernel[2]];
                    job.before = self.conv.padding[2];
                    job.pixels = ow;
                    job.x = x.wrapping_add(self.input.at(z, y, 0) + c0);
                    job.y = strip.base.add((r - r0) * ow * strip.row);
                    (self.kernel)(&job);
                    continue;
                }
                let mut p = 0;
                while p < ow {
                    let (width, w) = self.taps(2, p);
                    job.taps[2] = width;
                    // All pixels that see the whole kernel go together; those at the border one by one.
                    job.pixels = 1;
                    if width == [0, self.conv.kernel[2]] {
                        let whole = |p: usize| self.taps(2, p).0 == width;
                        job.pixels = (p + 1..ow).find(|&p| !whole(p)).unwrap_or(ow) - p;
                    }
                    job.x = x.wrapping_add(self.input.at(z, y, w) + c0);
                    job.y = strip.base.add(((r - r0) * ow + p) * strip.row);
                    (self.kernel)(&job);
                    p += job.pixels;
                }
            }
            self.output.finish(strip, &part, o);
        }
    }

    /// The input rows, first and end, that output row `r` needs.
    pub fn needs(&self, r: usize) -> [usize; 2] {
        let ([first, end], place) = self.taps(1, r);
        [place, place + end - first]
    }

    /// Output row `r` from a band of input rows.
    ///
    /// # Safety
    /// The convolution is the second of an [`Expansion`](crate::math::contract::Expansion); the band has the rows that [`Channels::needs`] tells; pointers lead to the band's channels.
    pub unsafe fn band_row(&self, r: usize, b: &Band) {
        let (taps, place) = self.taps(1, r);
        let row = self.input.size[2] * b.pixel;
        let job = Job {
            x: b.x.wrapping_add((place - b.first) * row),
            step: [0, row, b.pixel],
            pixel: self.input.stride[2] * b.pixel,
            pixels: self.out[2],
            before: self.conv.padding[2],
            width: self.input.size[2],
            taps: [[0, 1], taps, [0, self.conv.kernel[2]]],
            kernel: self.conv.kernel,
            weight: b.weight,
            weight_tap: self.conv.in_channels,
            bias: b.bias,
            y: b.y,
            y_pixel: b.y_pixel,
            channels: b.channels,
            clamp: self.conv.activation.bounds(),
        };
        // SAFETY: the caller's promise.
        unsafe { (self.kernel)(&job) };
    }

    /// All chunks of `count` images from `image` on, at `x`.
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
            // SAFETY: the images are `count`; chunks own disjoint parts of the output.
            unsafe { self.chunk(o, x.get().add(n * self.input.image), image + n, rows, panels) };
        });
    }
}

impl Method for Channels {
    fn packed_len(&self) -> usize {
        self.conv.kernel.iter().product::<usize>() * self.conv.in_channels
    }

    fn packing(&self) -> [usize; 2] {
        [2, 0]
    }

    /// Tap after tap, the channels side by side.
    fn pack(&self, _: &Pool, weight: &[f32], packed: &mut [f32]) {
        let (c, taps) = (self.conv.in_channels, self.conv.kernel.iter().product::<usize>());
        for t in 0..taps {
            for i in 0..c {
                packed[t * c + i] = weight[i * taps + t];
            }
        }
    }

    unsafe fn run(&self, pool: &Pool, o: &Operands) {
        let together = self.input.images_at_once(self.conv.batch);
        let c = cut(
            &Load {
                images: together,
                ..self.load
            },
            pool.threads(),
        );
        // SAFETY: the caller's promise.
        unsafe {
            self.input.each(pool, self.conv.batch, o.x, |x, image, count| {
                self.images(pool, o, x, image, count, c)
            })
        };
    }

    fn name(&self) -> String {
        format!("depthwise over channels {}", self.isa)
    }
}

/// Some rows of some channels of an image, and where one row of output goes.
pub struct Band {
    /// The first channel of the band's first pixel.
    pub x: *const f32,
    /// The image's row that the band begins with.
    pub first: usize,
    /// From one pixel to the next.
    pub pixel: usize,
    /// Weights of the first channel.
    pub weight: *const f32,
    /// Bias of the first channel, or null.
    pub bias: *const f32,
    /// The first channel of the row's first output pixel.
    pub y: *mut f32,
    /// From one output pixel to the next.
    pub y_pixel: usize,
    /// How many channels.
    pub channels: usize,
}

/// Neighbouring pixels of a row that see the same taps, for some channels. Strides are in elements.
struct Job {
    /// Under the first tap of the first pixel; for kernels with shared loads the first input pixel of the row.
    x: *const f32,
    /// From tap to tap along each dimension.
    step: [usize; 3],
    /// From the window of one pixel to that of the next.
    pixel: usize,
    pixels: usize,
    /// For kernels with shared loads: input pixels that are missing in front of the row.
    before: usize,
    /// Input pixels of the row.
    width: usize,
    /// The taps along each dimension that meet the input.
    taps: [[usize; 2]; 3],
    kernel: [usize; 3],
    weight: *const f32,
    weight_tap: usize,
    bias: *const f32,
    y: *mut f32,
    y_pixel: usize,
    channels: usize,
    clamp: Option<(f32, f32)>,
}

/// `K` taps along the row that step by `ST` pixels and share their loads, beyond the ends of the row zeros; `K == 0` for any
/// number and step, and pixels that see all of the taps given.
#[inline(always)]
unsafe fn body<S: Simd, const K: usize, const ST: usize>(j: &Job) {
    let tiles = Tiles::new(j.pixels, PIXELS);
    for t in 0..tiles.count() {
        let (p, rows) = (tiles.start(t), tiles.start(t + 1) - tiles.start(t));
        // SAFETY: the pixels lie in the row.
        unsafe {
            match rows {
                1 => tile::<S, K, ST, 1>(j, p),
                2 => tile::<S, K, ST, 2>(j, p),
                3 => tile::<S, K, ST, 3>(j, p),
                4 => tile::<S, K, ST, 4>(j, p),
                5 => tile::<S, K, ST, 5>(j, p),
                6 => tile::<S, K, ST, 6>(j, p),
                7 => tile::<S, K, ST, 7>(j, p),
                _ => tile::<S, K, ST, 8>(j, p),
            }
        }
    }
}

/// `R` pixels from `p` on, all channels.
#[inline(always)]
unsafe fn tile<S: Simd, const K: usize, const ST: usize, const R: usize>(j: &Job, p: usize) {
    // The places of the tile's `N` input pixels that lie in the row.
    let first = (p * ST) as isize - j.before as isize;
    let n_in = if K > 0 { (R - 1) * ST + K } else { 0 };
    let inside = |i: isize| (i - first).clamp(0, n_in as isize) as usize;
    let (i0, i1) = (inside(0), inside(j.width as isize));
    let x = match K {
        0 => j.x.wrapping_add(p * j.pixel),
        _ => j.x.wrapping_offset(first * j.step[2] as isize),
    };
    let (whole, rest) = (j.channels / S::LANES, j.channels % S::LANES);
    // SAFETY: the pixels and channels lie in the row; masks keep to what is there of the input.
    unsafe {
        if (i0, i1) == (0, n_in) {
            for v in 0..whole {
                vector::<S, K, ST, R, true>(j, x, p, v * S::LANES, S::LANES, &There::new(0, 0, 0));
            }
        } else {
            let there = There::new(i0, i1, S::LANES);
            for v in 0..whole {
                vector::<S, K, ST, R, false>(j, x, p, v * S::LANES, S::LANES, &there);
            }
        }
        if rest > 0 {
            vector::<S, K, ST, R, false>(j, x, p, whole * S::LANES, rest, &There::new(i0, i1, rest));
        }
    }
}

/// What of a tile's input pixels is there: beyond the ends of the row are zeros, without a branch for each of the few pixels there.
struct There<S: Simd> {
    /// The lanes of each pixel.
    masks: [S::Mask; MOST],
    /// Where each is read, in pixels: for those that are not there at one that is. Reading nothing of a page that is not mapped
    /// takes hundreds of cycles.
    at: [usize; MOST],
    /// Whether no pixel is there.
    none: bool,
}

impl<S: Simd> There<S> {
    /// The first `n` lanes of pixels `i0..i1`.
    #[inline(always)]
    unsafe fn new(i0: usize, i1: usize, n: usize) -> There<S> {
        // SAFETY: the caller runs on a machine with the level.
        let mut t = unsafe {
            There {
                masks: [S::mask(0); MOST],
                at: [i0; MOST],
                none: i0 >= i1,
            }
        };
        let end = i1.min(MOST);
        for i in i0..end {
            // SAFETY: as above.
            t.masks[i] = unsafe { S::mask(n) };
            t.at[i] = i;
        }
        t
    }
}

/// `R` pixels from `p` on, whose windows begin at `x`, `n` channels from `c` on; of the input only what is `there`, unless `ALL`.
#[inline(always)]
unsafe fn vector<S: Simd, const K: usize, const ST: usize, const R: usize, const ALL: bool>(
    j: &Job,
    x: *const f32,
    p: usize,
    c: usize,
    n: usize,
    there: &There<S>,
) {
    // SAFETY: the caller gives pixels and channels of the row.
    unsafe {
        let start = if j.bias.is_null() {
            S::splat(0.0)
        } else {
            load::<S>(j.bias.add(c), n)
        };
        let mut acc = [start; R];
        let [[d0, d1], [h0, h1], [w0, w1]] = j.taps;
        for d in d0..d1 {
            for h in h0..h1 {
                if K > 0 && !ALL && there.none {
                    break;
                }
                let x = x.wrapping_add((d - d0) * j.step[0] + (h - h0) * j.step[1] + c);
                let w = j
                    .weight
                    .add(((d * j.kernel[1] + h) * j.kernel[2] + w0) * j.weight_tap + c);
                if K > 0 {
                    shared::<S, K, ST, R, ALL>(x, j.step[2], w, j.weight_tap, there, n, &mut acc);
                } else {
                    for t in 0..w1 - w0 {
                        let w = load::<S>(w.add(t * j.weight_tap), n);
                        for r in 0..R {
                            acc[r] = S::fma(load::<S>(x.add(t * j.step[2] + r * j.pixel), n), w, acc[r]);
                        }
                    }
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
            if ALL || n == S::LANES {
                S::store(y, acc[r]);
            } else {
                S::store_first(y, n, acc[r]);
            }
        }
    }
}

/// One row of `K` taps: each input pixel is loaded once for all the outputs it contributes to. Unless `ALL`, of the pixels
/// only what is `there`, and of the weights the first `n`.
#[inline(always)]
unsafe fn shared<S: Simd, const K: usize, const ST: usize, const R: usize, const ALL: bool>(
    x: *const f32,
    step: usize,
    w: *const f32,
    weight_tap: usize,
    there: &There<S>,
    n: usize,
    acc: &mut [S::V; R],
) {
    // SAFETY: the caller gives `(R - 1) * ST + K` pixels, or what is there of them, and `K` weights.
    unsafe {
        let mut wv = [S::splat(0.0); K];
        for k in 0..K {
            let w = w.add(k * weight_tap);
            wv[k] = if ALL { S::load(w) } else { load::<S>(w, n) };
        }
        // Written out, because the compiler gives up on as many steps: then the places of the sums are not known to it.
        macro_rules! pixels {
            ($($i:literal)*) => { $(
                if $i < (R - 1) * ST + K {
                    let v = match ALL {
                        true => S::load(x.wrapping_add($i * step)),
                        false => S::load_masked(x.wrapping_add(there.at[$i] * step), there.masks[$i]),
                    };
                    for r in 0..R {
                        if $i >= r * ST && $i < r * ST + K {
                            acc[r] = S::fma(v, wv[$i - r * ST], acc[r]);
                        }
                    }
                }
            )* };
        }
        pixels!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18);
    }
}

/// The first `n` lanes of a vector.
#[inline(always)]
unsafe fn load<S: Simd>(p: *const f32, n: usize) -> S::V {
    // SAFETY: the caller gives `n` elements.
    unsafe { if n == S::LANES { S::load(p) } else { S::load_first(p, n) } }
}

per_isa! {
    /// See [`body`].
    fn kernel = body<K: usize, ST: usize>(j: &Job)
}
