//! Depthwise convolution along the rows of channels-first planes. Lanes are neighbouring output pixels of one row.

mod tall;

use super::{ConvOperands, Method};
use crate::math::contract::{Conv, ConvLayout, Tile};
use crate::math::isa::per_isa;
use crate::math::scratch;
use crate::math::simd::Simd;
use crate::parallel::Pool;
use crate::target::Isa;

/// The minimum output width for which rows fill vectors well enough.
pub(crate) const NARROWEST_ROW: usize = 24;
/// The number of elements that kernels may read beyond the padded plane.
const SLACK: usize = 64;
/// The approximate number of multiply-adds in a chunk.
const CHUNK: usize = 100_000;

/// The method.
pub(super) struct Plane {
    conv: Conv,
    isa: Isa,
    out: [usize; 2],
    /// Padded height and width.
    size: [usize; 2],
}

/// Whether the method supports `conv`, which is depthwise: at most two dimensions, channels first, strides of 1 or 2.
pub(super) fn is_applicable(conv: &Conv) -> bool {
    let flat = conv.input[0] == 1 && conv.kernel[0] == 1 && conv.padding[0] == 0;
    let fits = |d: usize| conv.padding[d] <= 1024 && conv.input[d] <= 1 << 20;
    flat && conv.input_layout == ConvLayout::ChannelsFirst
        && conv.output_layout == ConvLayout::ChannelsFirst
        && conv.stride[2] <= 2
        && fits(1)
        && fits(2)
        && conv.output_size().is_some_and(|o| o[2] >= NARROWEST_ROW)
}

impl Plane {
    /// Plans `conv`, for which [`is_applicable`] holds.
    pub(super) fn new(isa: Isa, conv: &Conv) -> Plane {
        let [_, oh, ow] = conv.output_size().unwrap_or_default();
        Plane {
            conv: conv.clone(),
            isa,
            out: [oh, ow],
            size: [conv.input[1] + 2 * conv.padding[1], conv.input[2] + 2 * conv.padding[2]],
        }
    }

    /// Copies the plane at `x` into the interior of a padded plane. [`Plane::zero_border`] writes the padding.
    ///
    /// # Safety
    /// `x` is a plane of the input, `dst` a padded plane.
    unsafe fn copy_plane(&self, x: *const f32, dst: *mut f32) {
        let (w, [_, ph, pw]) = (self.conv.input[2], self.conv.padding);
        for y in 0..self.conv.input[1] {
            // SAFETY: row `y` lies in both.
            unsafe { std::ptr::copy_nonoverlapping(x.add(y * w), dst.add((y + ph) * self.size[1] + pw), w) };
        }
    }

    /// Zeroes the padding of a plane.
    fn zero_border(&self, plane: &mut [f32]) {
        let (h, [_, ph, pw]) = (self.conv.input[1], self.conv.padding);
        for (y, row) in plane.chunks_exact_mut(self.size[1]).take(self.size[0]).enumerate() {
            if y < ph || y >= ph + h {
                row.fill(0.0);
            } else {
                row[..pw].fill(0.0);
                row[self.size[1] - pw..].fill(0.0);
            }
        }
    }

    /// Computes output planes `first..end`, counted over all images.
    ///
    /// # Safety
    /// The operands are valid; no other thread writes these planes.
    unsafe fn run_planes(&self, o: &ConvOperands, first: usize, end: usize) {
        let c = &self.conv;
        let times = c.out_channels / c.in_channels;
        let (pixels, taps) = (c.input[1] * c.input[2], c.kernel[1] * c.kernel[2]);
        let mut plane = scratch::take_buffer(self.size[0] * self.size[1] + SLACK);
        self.zero_border(&mut plane);
        let kernel = self.select_kernel();
        let mut columns = scratch::take_buffer(if self.is_tall() { taps } else { 0 });
        let mut held = usize::MAX;
        for p in first..end {
            let channel = p % c.out_channels;
            let source = p / c.out_channels * c.in_channels + channel / times;
            // SAFETY: the planes lie in their operands.
            unsafe {
                if source != held {
                    self.copy_plane(o.x.add(source * pixels), plane.as_mut_ptr());
                    held = source;
                }
                let y = o.y.add(p * self.out[0] * self.out[1]);
                let mut weight = o.weight.add(channel * taps);
                if self.is_tall() {
                    self.move_to_columns(weight, &mut columns);
                    weight = columns.as_ptr();
                }
                let bias = if o.bias.is_null() { 0.0 } else { *o.bias.add(channel) };
                kernel(&self.plane_job(plane.as_ptr(), weight, bias, y));
                if let Some(tail) = &o.tail {
                    tail.run(&self.plane_tile(p, y));
                }
            }
        }
    }

    /// Output plane `p`, counted over all images, at `y`.
    fn plane_tile(&self, p: usize, y: *mut f32) -> Tile {
        let cols = self.out[0] * self.out[1];
        Tile {
            data: y.cast(),
            offset: p * cols,
            batch: p / self.conv.out_channels,
            row: p % self.conv.out_channels,
            col: 0,
            rows: 1,
            cols,
            row_stride: cols,
            data_stride: cols,
        }
    }

    /// Whether several rows of output share what is loaded: see [`tall`].
    fn is_tall(&self) -> bool {
        let c = &self.conv;
        let is_fixed = c.kernel[1..] == [5; 2] && c.dilation[2] == 1 && c.stride[2] == 1;
        let enough = c.kernel[1] >= tall::ROWS && self.out[0] >= tall::ROWS;
        c.stride[1] == 1 && c.dilation[1] == 1 && enough && !is_fixed
    }

    /// Copies the weights of a channel, which are at `weight`, with the taps of a column side by side.
    ///
    /// # Safety
    /// There are as many weights as elements of `columns`.
    unsafe fn move_to_columns(&self, weight: *const f32, columns: &mut [f32]) {
        let [_, height, width] = self.conv.kernel;
        for (b, column) in columns.chunks_exact_mut(height).enumerate() {
            for (a, to) in column.iter_mut().enumerate() {
                // SAFETY: the tap lies in the kernel.
                *to = unsafe { *weight.add(a * width + b) };
            }
        }
    }

    /// The work for the plane `x` with these weights, whose results go to `y`.
    fn plane_job(&self, x: *const f32, weight: *const f32, bias: f32, y: *mut f32) -> PlaneJob {
        let c = &self.conv;
        PlaneJob {
            x,
            x_row: self.size[1],
            kernel: [c.kernel[1], c.kernel[2]],
            dilation: [c.dilation[1], c.dilation[2]],
            stride: [c.stride[1], c.stride[2]],
            weight,
            bias,
            y,
            out: self.out,
            clamp: c.activation.bounds(),
        }
    }

    fn select_kernel(&self) -> unsafe fn(&PlaneJob) {
        let c = &self.conv;
        let square = c.dilation == [1; 3] || (c.dilation[1] == 1 && c.dilation[2] == 1);
        match (square, c.kernel[1], c.kernel[2], c.stride[1], c.stride[2]) {
            (true, 3, 3, 1, 1) => fixed::<3, 1, 4>(self.isa),
            (true, 3, 3, 2, 2) => fixed::<3, 2, 4>(self.isa),
            (true, 5, 5, 1, 1) => fixed::<5, 1, 2>(self.isa),
            (true, 5, 5, 2, 2) => fixed::<5, 2, 2>(self.isa),
            (_, _, _, _, 1) if self.is_tall() => tall::kernel::<1>(self.isa),
            _ if self.is_tall() => tall::kernel::<2>(self.isa),
            (_, _, _, _, 1) => any::<1>(self.isa),
            _ => any::<2>(self.isa),
        }
    }
}

impl Method for Plane {
    fn packed_len(&self) -> usize {
        0
    }

    fn packing_key(&self) -> [usize; 2] {
        [3, 0]
    }

    fn pack_weight(&self, _: &Pool, _: &[f32], _: &mut [f32]) {}

    unsafe fn run(&self, pool: &Pool, o: &ConvOperands) {
        let c = &self.conv;
        let planes = c.batch * c.out_channels;
        let macs = self.out[0] * self.out[1] * c.kernel[1] * c.kernel[2];
        let per = (CHUNK / macs.max(1)).max(1);
        pool.run(planes.div_ceil(per), |i| {
            // SAFETY: guaranteed by the caller; chunks own disjoint planes.
            unsafe { self.run_planes(o, i * per, ((i + 1) * per).min(planes)) };
        });
    }

    fn name(&self) -> String {
        format!("depthwise along rows {}", self.isa)
    }
}

/// One plane.
struct PlaneJob {
    x: *const f32,
    x_row: usize,
    kernel: [usize; 2],
    dilation: [usize; 2],
    stride: [usize; 2],
    weight: *const f32,
    bias: f32,
    y: *mut f32,
    out: [usize; 2],
    clamp: Option<(f32, f32)>,
}

/// Loads a vector of the input with column step `ST`.
#[inline(always)]
unsafe fn load_stepped<S: Simd, const ST: usize>(p: *const f32) -> S::V {
    // SAFETY: the padded plane has slack after it.
    unsafe { if ST == 1 { S::load(p) } else { S::load_even(p) } }
}

#[inline(always)]
unsafe fn store_clamped<S: Simd>(j: &PlaneJob, row: usize, col: usize, v: S::V) {
    // SAFETY: the place lies in the plane; only columns of the row are written.
    unsafe {
        let v = match j.clamp {
            Some((lo, hi)) => S::min(S::splat(hi), S::max(S::splat(lo), v)),
            None => v,
        };
        let y = j.y.add(row * j.out[1] + col);
        if col + S::LANES <= j.out[1] {
            S::store(y, v);
        } else {
            S::store_first(y, j.out[1] - col, v);
        }
    }
}

/// A `K x K` kernel with step `ST` both ways, for `T` rows of output at once. Each vector of input is used for all
/// output rows that it contributes to.
#[inline(always)]
unsafe fn fixed_body<S: Simd, const K: usize, const ST: usize, const T: usize>(j: &PlaneJob) {
    // SAFETY: rows and columns lie in the planes.
    unsafe {
        let mut row = 0;
        while row < j.out[0] {
            let whole = row + T <= j.out[0];
            let mut col = 0;
            while col < j.out[1] {
                if whole {
                    convolve_rows::<S, K, ST, T>(j, row, col);
                } else {
                    convolve_rows::<S, K, ST, 1>(j, row, col);
                }
                col += S::LANES;
            }
            row += if whole { T } else { 1 };
        }
    }
}

#[inline(always)]
unsafe fn convolve_rows<S: Simd, const K: usize, const ST: usize, const T: usize>(
    j: &PlaneJob,
    row: usize,
    col: usize,
) {
    // SAFETY: as in `fixed_body`.
    unsafe {
        let mut acc = [S::splat(j.bias); T];
        let x = j.x.add(row * ST * j.x_row + col * ST);
        for i in 0..(T - 1) * ST + K {
            for k in 0..K {
                let v = load_stepped::<S, ST>(x.add(i * j.x_row + k));
                for t in 0..T {
                    if i >= t * ST && i < t * ST + K {
                        acc[t] = S::fma(v, S::splat(*j.weight.add((i - t * ST) * K + k)), acc[t]);
                    }
                }
            }
        }
        for t in 0..T {
            store_clamped::<S>(j, row + t, col, acc[t]);
        }
    }
}

/// Any kernel with column step `ST`, for about four vectors at once, of one row or of several.
#[inline(always)]
unsafe fn any_body<S: Simd, const ST: usize>(j: &PlaneJob) {
    // SAFETY: rows and columns lie in the planes.
    unsafe {
        match j.out[1].div_ceil(S::LANES) {
            1 => convolve_plane::<S, ST, 4, 1>(j),
            2 => convolve_plane::<S, ST, 2, 2>(j),
            3 => convolve_plane::<S, ST, 1, 3>(j),
            _ => convolve_plane::<S, ST, 1, 4>(j),
        }
    }
}

/// Computes a plane in blocks of `T` rows and `V` vectors. The rows and vectors that remain are computed one by one.
#[inline(always)]
unsafe fn convolve_plane<S: Simd, const ST: usize, const T: usize, const V: usize>(j: &PlaneJob) {
    let mut row = 0;
    while row < j.out[0] {
        let rows = if row + T <= j.out[0] { T } else { 1 };
        let mut col = 0;
        while col < j.out[1] {
            let whole = col + (V - 1) * S::LANES < j.out[1];
            // SAFETY: as in `any_body`.
            unsafe {
                match (rows == T, whole) {
                    (true, true) => convolve_vectors::<S, ST, T, V>(j, row, col),
                    (true, false) => convolve_vectors::<S, ST, T, 1>(j, row, col),
                    (false, true) => convolve_vectors::<S, ST, 1, V>(j, row, col),
                    (false, false) => convolve_vectors::<S, ST, 1, 1>(j, row, col),
                }
            }
            col += if whole { V * S::LANES } else { S::LANES };
        }
        row += rows;
    }
}

#[inline(always)]
unsafe fn convolve_vectors<S: Simd, const ST: usize, const T: usize, const V: usize>(
    j: &PlaneJob,
    row: usize,
    col: usize,
) {
    // SAFETY: as in `any_body`.
    unsafe {
        let mut acc = [[S::splat(j.bias); V]; T];
        let down = j.stride[0] * j.x_row;
        let x = j.x.add(row * down + col * ST);
        for a in 0..j.kernel[0] {
            for b in 0..j.kernel[1] {
                let w = S::splat(*j.weight.add(a * j.kernel[1] + b));
                let x = x.add(a * j.dilation[0] * j.x_row + b * j.dilation[1]);
                for t in 0..T {
                    for v in 0..V {
                        let x = load_stepped::<S, ST>(x.add(t * down + v * S::LANES * ST));
                        acc[t][v] = S::fma(x, w, acc[t][v]);
                    }
                }
            }
        }
        for t in 0..T {
            for v in 0..V {
                store_clamped::<S>(j, row + t, col + v * S::LANES, acc[t][v]);
            }
        }
    }
}

per_isa! {
    /// See [`fixed_body`].
    fn fixed = fixed_body<K: usize, ST: usize, T: usize>(j: &PlaneJob)
}
per_isa! {
    /// See [`any_body`].
    fn any = any_body<ST: usize>(j: &PlaneJob)
}
