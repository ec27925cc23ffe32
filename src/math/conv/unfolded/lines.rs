//! Products with lines of padded planes: every element of a kernel reads neighbouring elements of a line for neighbouring pixels, so
//! nothing is copied for each of them. A line may be all rows of a plane: the products between its rows are not used.

use super::{Operands, UnfoldedConv};
use crate::math::contract::Conv;
use crate::math::conv::general::padded::{BLOCK, Padding};
use crate::math::lanes::{LaneElement, PackedRows, PlacedRows};
use crate::math::number::clamp_elements;
use crate::math::scratch;
use crate::parallel::Pool;

/// The number of bytes of products that are computed before they are stored: they stay in the first cache.
const AT_ONCE: usize = 16 << 10;

/// Sums of fewer terms, except those of bytes, take less time than to store the products twice.
const SHORTEST: usize = 16;

/// How to pad planes, if multiplying their lines is faster than multiplying windows: no more than a third of the products is not used.
pub(super) fn padding_of(c: &Conv) -> Option<Padding> {
    let taps: usize = c.kernel.iter().product();
    let pixels: usize = c.output_size()?.iter().product();
    let terms = (c.in_channels / c.groups).saturating_mul(taps);
    let is_short = c.dtype.size() > 1 && terms < SHORTEST;
    let in_place = taps == 1 && c.padding == [0; 3] && c.dtype.size() > 1;
    if in_place || is_short || c.out_channels / c.groups < 2 || c.in_channels < c.groups {
        return None;
    }
    let padding = Padding::new(c)?;
    let products = padding.lines.len().saturating_mul(padding.line);
    let most = c
        .input
        .iter()
        .product::<usize>()
        .saturating_mul(4)
        .saturating_add(64 * BLOCK);
    (products.saturating_mul(2) <= pixels.saturating_mul(3) && padding.len <= most).then_some(padding)
}

/// Computes a convolution.
///
/// # Safety
/// The operands are those of the convolution, channels first.
pub(super) unsafe fn run<T: LaneElement>(conv: &UnfoldedConv, padding: &Padding, pool: &Pool, o: &Operands<T>) {
    let (c, s) = (&conv.conv, &conv.sizes);
    let planes = (0..s.group_in).map(|i| i * padding.len);
    let places: Vec<usize> = planes.flat_map(|p| padding.taps.iter().map(move |t| p + t)).collect();
    let (blocks, parts) = (padding.lines.len() * padding.line / BLOCK, conv.parts(pool));
    pool.run(c.batch * c.groups * parts, |i| {
        let (image, group, part) = (i / parts / c.groups, i / parts % c.groups, i % parts);
        let columns = [part, part + 1].map(|p| p * blocks / parts * BLOCK);
        let job = LinesJob {
            conv,
            padding,
            places: &places,
            image,
            group,
        };
        // SAFETY: guaranteed by the caller; chunks own disjoint columns of disjoint planes.
        unsafe { job.run(o, columns) };
    });
}

/// A group of an image.
struct LinesJob<'a> {
    conv: &'a UnfoldedConv,
    padding: &'a Padding,
    /// Where each product index reads.
    places: &'a [usize],
    image: usize,
    group: usize,
}

impl LinesJob<'_> {
    /// Computes some columns of the lines, which follow one another.
    ///
    /// # Safety
    /// As for [`run`]; nothing else writes the pixels.
    unsafe fn run<T: LaneElement>(&self, o: &Operands<T>, [mut column, end]: [usize; 2]) {
        let (s, p) = (&self.conv.sizes, self.padding);
        let mut planes = scratch::take_buffer((s.group_in * p.len * size_of::<T::Lane>()).div_ceil(4));
        let most = (AT_ONCE / (s.group_out * size_of::<T>()))
            .next_multiple_of(BLOCK)
            .max(BLOCK);
        let mut products = scratch::take_buffer((s.group_out * most * size_of::<T>()).div_ceil(4));
        let products = products.as_mut_ptr().cast::<T>();
        // SAFETY: the buffers have these sizes and any bits are elements; the rest is guaranteed by the caller.
        unsafe {
            let planes = std::slice::from_raw_parts_mut(planes.as_mut_ptr().cast(), s.group_in * p.len);
            self.fill_planes(o, planes);
            let k = self.places.len();
            let first = self.group * s.group_out * k;
            let weight = PackedRows::<T>::pack(self.conv.isa, o.weight.add(first), [s.group_out, k]);
            while column < end {
                let (line, from) = (column / p.line, column % p.line);
                let count = most.min(p.line - from).min(end - column);
                let rows = PlacedRows {
                    start: planes.as_ptr().add(p.lines[line] + from),
                    places: self.places,
                };
                weight.multiply(&rows, count, products, count);
                self.store(o, products, line, [from, from + count]);
                column += count;
            }
        }
    }

    /// Makes padded planes of those of the input.
    ///
    /// # Safety
    /// As for [`run`].
    unsafe fn fill_planes<T: LaneElement>(&self, o: &Operands<T>, planes: &mut [T::Lane]) {
        let (c, s) = (&self.conv.conv, &self.conv.sizes);
        let first = self.image * c.in_channels + self.group * s.group_in;
        for (i, plane) in planes.chunks_exact_mut(self.padding.len).enumerate() {
            // SAFETY: guaranteed by the caller.
            let x = unsafe { std::slice::from_raw_parts(o.x.add((first + i) * s.in_pixels), s.in_pixels) };
            self.padding.fill(x, plane);
        }
    }

    /// Stores the products of the columns `from..to` of a line that are pixels.
    ///
    /// # Safety
    /// As for [`LinesJob::run`].
    unsafe fn store<T: LaneElement>(&self, o: &Operands<T>, products: *const T, line: usize, [from, to]: [usize; 2]) {
        let (c, s, p) = (&self.conv.conv, &self.conv.sizes, self.padding);
        let width = p.out[2];
        let rows = match p.rows {
            1 => 0..1,
            n => from / p.part..to.div_ceil(p.part).min(n),
        };
        let bounds = c.activation.bounds().map(|b| [b.0, b.1].map(|b| T::bound(b as f64)));
        for i in 0..s.group_out {
            let channel = self.group * s.group_out + i;
            for row in rows.clone() {
                let start = row * p.part;
                let (first, last) = (from.max(start), to.min(start + width));
                if first >= last {
                    continue;
                }
                let pixel = (line * p.rows + row) * width + first - start;
                let plane = self.image * c.out_channels + channel;
                // SAFETY: guaranteed by the caller; the products are those of these columns.
                let (y, sums, bias) = unsafe {
                    (
                        std::slice::from_raw_parts_mut(o.y.get().add(plane * s.out_pixels + pixel), last - first),
                        std::slice::from_raw_parts(products.add(i * (to - from) + first - from), last - first),
                        if c.bias { *o.bias.add(channel) } else { T::default() },
                    )
                };
                match c.bias {
                    true => y.iter_mut().zip(sums).for_each(|(y, sum)| *y = sum.add(bias)),
                    false => y.copy_from_slice(sums),
                }
                if let Some([lo, hi]) = bounds {
                    clamp_elements(y, lo, hi);
                }
            }
        }
    }
}
