//! Sums over padded planes: a plane of the input is copied with zeros around it, so that every element of a kernel reads neighbouring
//! elements for neighbouring pixels, and the sums of these stay in registers.

use crate::math::contract::Conv;
use crate::math::lanes::LaneElement;
use crate::math::number::Number;
use crate::tensor::{WideLoop, run_wide};

/// The number of sums that are computed at once.
pub(in crate::math::conv) const BLOCK: usize = 32;

/// The maximum size of a padded plane, in sizes of the planes of the input and the output together.
const LARGEST: usize = 16;

/// How planes are padded. A row is divided by the stride: first its elements 0, `stride`, …, then 1, `stride + 1`, ….
pub(in crate::math::conv) struct Padding {
    input: [usize; 3],
    pub out: [usize; 3],
    /// The zeros before each dim.
    before: [usize; 3],
    /// The stride along rows.
    step: usize,
    /// The number of elements of each part of a padded row, and of a padded plane.
    pub part: usize,
    pub len: usize,
    /// The rows of a padded plane in each depth.
    height: usize,
    /// Where each element of a kernel reads, relative to the pixel.
    pub taps: Vec<usize>,
    /// Where lines of pixels begin: rows, or, if these are neighbours in the padded plane, rows of a depth with what is between them.
    pub lines: Vec<usize>,
    /// The number of sums of a line, in whole blocks.
    pub line: usize,
    /// The rows in a line.
    pub rows: usize,
}

impl Padding {
    /// `None` if the convolution is transposed, or if padded planes are much larger than those of the input and the output.
    pub(in crate::math::conv) fn new(c: &Conv) -> Option<Padding> {
        let out = c.output_size().filter(|_| !c.transposed)?;
        let size = |d: usize| c.padding[d].checked_mul(2)?.checked_add(c.input[d]);
        let (depth, height, width) = (size(0)?, size(1)?, size(2)?);
        let step = c.stride[2];
        let part = width.div_ceil(step);
        let row = part.checked_mul(step)?;
        let len = depth.checked_mul(height)?.checked_mul(row)?;
        let planes = c.input.iter().product::<usize>() + out.iter().product::<usize>();
        if out.contains(&0) || c.input.contains(&0) || len > planes.saturating_mul(LARGEST) {
            return None;
        }
        let rows = if step == 1 && c.stride[1] == 1 { out[1] } else { 1 };
        let at = |[d, h, w]: [usize; 3]| (d * height + h) * row + w % step * part + w / step;
        let indices = |[d, h, w]: [usize; 3]| {
            let rows = (0..d).flat_map(move |d| (0..h).map(move |h| (d, h)));
            rows.flat_map(move |(d, h)| (0..w).map(move |w| [d, h, w]))
        };
        let scaled = |v: [usize; 3], by: [usize; 3]| [v[0] * by[0], v[1] * by[1], v[2] * by[2]];
        Some(Padding {
            input: c.input,
            out,
            before: c.padding,
            step,
            part,
            len: len + BLOCK,
            height,
            taps: indices(c.kernel).map(|t| at(scaled(t, c.dilation))).collect(),
            lines: indices([out[0], out[1] / rows, 1])
                .map(|i| at(scaled(i, c.stride)))
                .collect(),
            line: ((rows - 1) * row + out[2]).next_multiple_of(BLOCK),
            rows,
        })
    }

    /// Makes a padded plane of a plane of the input.
    pub(in crate::math::conv) fn fill<T: LaneElement>(&self, x: &[T], padded: &mut [T::Lane]) {
        let is_dense = self.before == [0; 3] && self.step == 1;
        let first = if is_dense { self.len - BLOCK } else { 0 };
        padded[first..].fill(T::Lane::default());
        self.copy(x, padded);
    }

    /// Copies a plane of the input to a padded one.
    fn copy<T: LaneElement>(&self, x: &[T], padded: &mut [T::Lane]) {
        let [_, height, width] = self.input;
        let row = self.part * self.step;
        for (i, x) in x.chunks_exact(width).enumerate() {
            let (d, h) = (i / height + self.before[0], i % height + self.before[1]);
            let to = &mut padded[(d * self.height + h) * row..][..row];
            if self.step == 1 {
                let to = &mut to[self.before[2]..][..width];
                to.iter_mut().zip(x).for_each(|(to, x)| *to = x.widen());
                continue;
            }
            for (w, x) in x.iter().enumerate() {
                let w = w + self.before[2];
                to[w % self.step * self.part + w / self.step] = x.widen();
            }
        }
    }

    /// Copies the sums of pixels to a plane of the output.
    fn take_pixels<T: LaneElement>(&self, sums: &[T::Lane], y: &mut [T]) {
        for (i, y) in y.chunks_exact_mut(self.out[2]).enumerate() {
            let sums = &sums[i / self.rows * self.line + i % self.rows * self.part..][..y.len()];
            y.iter_mut().zip(sums).for_each(|(y, &sum)| *y = T::narrow(sum));
        }
    }
}

/// The sums of a plane of the output.
pub(super) struct PaddedSums<'a, T: LaneElement> {
    padding: &'a Padding,
    padded: Vec<T::Lane>,
    sums: Vec<T::Lane>,
}

impl<'a, T: LaneElement> PaddedSums<'a, T> {
    /// Sums that begin with `start`.
    pub(super) fn new(padding: &'a Padding, start: T) -> PaddedSums<'a, T> {
        PaddedSums {
            padding,
            padded: vec![T::Lane::default(); padding.len],
            sums: vec![start.widen(); padding.lines.len() * padding.line],
        }
    }

    /// Adds the products of planes of the input with their kernels, and writes the sums to the plane of the output.
    pub(super) fn add_all<'b>(mut self, operands: impl Iterator<Item = (&'b [T], &'b [T])>, y: &mut [T])
    where
        T: 'b,
    {
        let p = self.padding;
        for (x, w) in operands {
            p.copy(x, &mut self.padded);
            let weight: Vec<T::Lane> = w.iter().map(|w| w.widen()).collect();
            run_wide(SumLines {
                padding: p,
                padded: &self.padded,
                weight: &weight,
                sums: &mut self.sums,
            });
        }
        p.take_pixels(&self.sums, y);
    }
}

/// Adds the products of a padded plane with a kernel to sums.
struct SumLines<'a, L> {
    padding: &'a Padding,
    padded: &'a [L],
    weight: &'a [L],
    sums: &'a mut [L],
}

impl<L: Number> WideLoop for SumLines<'_, L> {
    #[inline(always)]
    fn run(self) {
        let p = self.padding;
        let weight = &self.weight[..p.taps.len()];
        for (&first, line) in p.lines.iter().zip(self.sums.chunks_exact_mut(p.line)) {
            for (b, block) in line.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
                let x = &self.padded[first + b * BLOCK..];
                let mut sums = *block;
                for t in 0..weight.len() {
                    let x = &x[p.taps[t]..][..BLOCK];
                    for k in 0..BLOCK {
                        sums[k] = sums[k].add(x[k].mul(weight[t]));
                    }
                }
                *block = sums;
            }
        }
    }
}
