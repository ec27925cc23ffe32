//! Depthwise convolution of bf16, channels last, in place: row by row.

use super::taps::{RowAffine, RowJob, row_kernel};
use super::{cut_channels, finished_part, run_parts};
use crate::math::contract::{ColumnAffine, Constant, Conv, ConvArgs, ConvConstants, ConvPlan, PlanError};
use crate::math::scratch;
use crate::parallel::Pool;
use crate::target::Isa;
use crate::tensor::AlignedBytes;
use half::bf16;
use std::sync::Arc;

/// A plan of such a convolution with constant parameters.
pub(super) struct RowDepthwise {
    conv: Conv,
    isa: Isa,
    out: [usize; 3],
    /// The weights in the order of the kernels' blocks, tap by tap.
    weight: Arc<AlignedBytes>,
    /// The bias in the same order, or zeros.
    bias: Vec<f32>,
    kernel: unsafe fn(&RowJob),
}

impl RowDepthwise {
    pub(super) fn new(
        isa: Isa,
        conv: &Conv,
        constants: ConvConstants,
        weight: Constant,
    ) -> Result<RowDepthwise, PlanError> {
        let channels = conv.in_channels;
        let block = 2 * isa.lanes();
        let bias = match constants.bias.filter(|_| conv.bias) {
            Some(b) => b.with_bytes(|bytes| in_blocks(channels, block, |c| element(bytes, c))),
            None => vec![0.0; channels.next_multiple_of(block)],
        };
        let kernel = match (conv.kernel[2], conv.stride[2]) {
            (3, 1) => row_kernel::<3, 1>(isa),
            (3, _) => row_kernel::<3, 2>(isa),
            (5, 1) => row_kernel::<5, 1>(isa),
            (5, _) => row_kernel::<5, 2>(isa),
            _ => row_kernel::<7, 1>(isa),
        };
        Ok(RowDepthwise {
            isa,
            out: conv.output_size().ok_or(PlanError::Size)?,
            weight: pack_weight(conv, block, weight),
            bias,
            kernel,
            conv: conv.clone(),
        })
    }

    /// Computes rows `r0..r1` of channels `c0..c1` of an image.
    ///
    /// # Safety
    /// `args` is as for [`ConvPlan::run`]; no other thread writes this part.
    unsafe fn run_part(
        &self,
        (args, affine): (&ConvArgs, Option<RowAffine>),
        image: usize,
        [r0, r1]: [usize; 2],
        [c0, c1]: [usize; 2],
    ) {
        let (c, channels, width) = (&self.conv, self.conv.in_channels, self.out[2]);
        let x = args.x.cast::<u16>();
        let x = x.wrapping_add(image * c.input[1] * c.input[2] * channels + c0);
        let y = args.y.cast::<u16>();
        let y = y.wrapping_add(image * self.out[1] * width * channels + c0);
        for r in r0..r1 {
            // SAFETY: guaranteed by the caller; parts begin with whole blocks.
            unsafe { (self.kernel)(&self.row_job(r, x, y, [c0, c1], affine)) };
        }
        if let (Some(tail), None) = (&args.tail, affine) {
            let data = y.wrapping_add(r0 * width * channels).cast();
            // SAFETY: the part is finished and belongs to this thread.
            unsafe {
                tail.run(&finished_part(
                    c,
                    self.out,
                    (data, channels),
                    image,
                    ([r0, r1], [c0, c1]),
                ))
            };
        }
    }

    /// Copies the operands of a tail to a buffer, in the order of the kernels' blocks.
    ///
    /// # Safety
    /// There is one of each for each channel. The buffer has room for two padded rows.
    unsafe fn order_affine(&self, a: &ColumnAffine, buffer: &mut [f32]) -> RowAffine {
        let (channels, block) = (self.conv.in_channels, 2 * self.isa.lanes());
        let (scale, shift) = buffer.split_at_mut(channels.next_multiple_of(block));
        for (to, from) in [(&mut *scale, a.scale), (&mut *shift, a.shift)] {
            // SAFETY: guaranteed by the caller.
            let from = unsafe { std::slice::from_raw_parts(from, channels) };
            to.chunks_exact_mut(block)
                .zip(from.chunks(block))
                .for_each(|(to, from)| order_block(from, to));
        }
        RowAffine {
            scale: scale.as_ptr(),
            shift: shift.as_ptr(),
            bounds: a.bounds,
        }
    }

    /// Output row `r` of channels `c0..c1` of an image. `x` and `y` are the first of these channels in the image and in its result.
    fn row_job(&self, r: usize, x: *const u16, y: *mut u16, [c0, c1]: [usize; 2], affine: Option<RowAffine>) -> RowJob {
        let (c, channels) = (&self.conv, self.conv.in_channels);
        let row = c.input[2] * channels;
        let (taps, first) = self.visible_taps(r);
        RowJob {
            x: x.wrapping_add(first * row),
            strides: [row, channels],
            width: c.input[2],
            before: c.padding[2],
            taps,
            weight: self.weight.bytes().as_ptr().cast::<f32>().wrapping_add(c0),
            weight_tap: channels.next_multiple_of(2 * self.isa.lanes()),
            bias: self.bias.as_ptr().wrapping_add(c0),
            y: y.wrapping_add(r * self.out[2] * channels),
            pixels: self.out[2],
            channels: c1 - c0,
            clamp: c.activation.bounds(),
            affine: affine.map(|a| a.skip(c0)),
        }
    }

    /// The rows of the kernel that overlap the input under output row `r`, and the first input row that they read.
    fn visible_taps(&self, r: usize) -> ([usize; 2], usize) {
        let (c, begin) = (&self.conv, r * self.conv.stride[1]);
        let first = c.padding[1].saturating_sub(begin).min(c.kernel[1]);
        let end = (c.input[1] + c.padding[1]).saturating_sub(begin).min(c.kernel[1]);
        ([first, end.max(first)], (begin + first).saturating_sub(c.padding[1]))
    }
}

/// Element `i` of a bf16 constant.
fn element(bytes: &[u8], i: usize) -> f32 {
    bf16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]).to_f32()
}

/// One block of [`in_blocks`].
fn order_block(from: &[f32], to: &mut [f32]) {
    to.fill(0.0);
    let (second, first) = to.split_at_mut(to.len() / 2);
    for (i, pair) in from.chunks(2).enumerate() {
        first[i] = pair[0];
        if let Some(x) = pair.get(1) {
            second[i] = *x;
        }
    }
}

/// Elements in blocks, the last one with zeros: the second elements of the pairs, then the first ones.
fn in_blocks(n: usize, block: usize, element: impl Fn(usize) -> f32) -> Vec<f32> {
    let half = block / 2;
    let place = |i: usize| i / block * block + 2 * (i % half) + usize::from(i % block < half);
    let all = (0..n.next_multiple_of(block)).map(place);
    all.map(|c| if c < n { element(c) } else { 0.0 }).collect()
}

fn pack_weight(conv: &Conv, block: usize, weight: Constant) -> Arc<AlignedBytes> {
    let (channels, taps): (_, usize) = (conv.in_channels, conv.kernel.iter().product());
    weight.get_or_pack(&[14, channels, taps, block], |bytes| {
        let mut packed = AlignedBytes::zeroed(4 * taps * channels.next_multiple_of(block));
        let tap = 4 * channels.next_multiple_of(block);
        for (t, to) in packed.bytes_mut().chunks_exact_mut(tap.max(1)).enumerate() {
            let values = in_blocks(channels, block, |c| element(bytes, c * taps + t));
            for (to, v) in to.chunks_exact_mut(4).zip(values) {
                to.copy_from_slice(&v.to_ne_bytes());
            }
        }
        packed
    })
}

impl ConvPlan for RowDepthwise {
    unsafe fn run(&self, pool: &Pool, args: &ConvArgs) {
        let affine = args.tail.and_then(|t| t.affine).filter(|a| a.addend.is_null());
        let padded = self.conv.in_channels.next_multiple_of(2 * self.isa.lanes());
        let mut operands = scratch::take_buffer(if affine.is_some() { 2 * padded } else { 0 });
        // SAFETY: the tail has its operands.
        let affine = affine.map(|a| unsafe { self.order_affine(&a, &mut operands) });
        let (cut, panel_cols) = cut_channels(&self.conv, self.isa, self.out, pool.threads());
        run_parts(
            pool,
            &self.conv,
            self.out[1],
            [cut.rows, cut.panels * panel_cols],
            args,
            |args, image, rows, cols| {
                // SAFETY: guaranteed by the caller; chunks own disjoint parts of the output.
                unsafe { self.run_part((args, affine), image, rows, cols) };
            },
        );
    }

    fn describe(&self) -> String {
        format!("conv bf16 depthwise in rows {} packed", self.isa)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_the_second_elements_of_pairs_first() {
        assert_eq!(in_blocks(4, 4, |i| i as f32), [1.0, 3.0, 0.0, 2.0]);
        assert_eq!(in_blocks(5, 4, |i| i as f32), [1.0, 3.0, 0.0, 2.0, 0.0, 0.0, 4.0, 0.0]);
        let mut block = [9.0; 4];
        order_block(&[0.0, 1.0, 2.0], &mut block);
        assert_eq!(block, [1.0, 0.0, 0.0, 2.0]);
    }
}
