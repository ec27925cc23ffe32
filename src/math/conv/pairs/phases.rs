//! Transposed convolutions in pairs. As in [`phases`](crate::math::conv::phases), outputs that are a multiple of the stride apart use the
//! same taps: each phase is a plain convolution of stride 1, channels last. Its pixels are then copied to every `stride`-th pixel of the
//! output.

use super::window::Window;
use super::{PairConv, constant_bias, is_applicable, weight};
use crate::math::contract::{Conv, ConvArgs, ConvConstants, ConvLayout, ConvPlan, PlanError};
use crate::math::conv::adapt::run_tail;
use crate::math::conv::phases::{output_count, phase_taps};
use crate::math::pairs::PairKernels;
use crate::math::scratch::{self, Scratch, SharedPtr};
use crate::math::transpose::permute;
use crate::parallel::Pool;
use std::borrow::Cow;
use std::ops::Range;

/// The maximum number of phases.
const PHASES: usize = 64;
/// The fewest output channels of a group that fill panels well enough.
const CHANNELS: usize = 16;

/// The outputs of one dimension that are a multiple of the stride apart.
struct Line {
    /// The first one.
    first: usize,
    count: usize,
    /// The taps, in the order of the inputs that they see.
    taps: Vec<usize>,
    /// The distance of the first of these inputs from input `j`, for output `j` of the phase.
    distance: isize,
}

/// The outputs of all dimensions that use the same taps.
struct Phase {
    lines: [Line; 3],
    /// The plain convolution. It has a few more outputs than the phase.
    plan: PairConv,
}

/// The plan.
pub(in crate::math::conv) struct PairPhases {
    conv: Conv,
    out: [usize; 3],
    phases: Vec<Phase>,
}

/// Phase `p` of dimension `d`; `None` if it has no taps, or gaps between them.
fn line(c: &Conv, out: [usize; 3], d: usize, p: usize) -> Option<Line> {
    let mut taps: Vec<(usize, isize)> = phase_taps(c, d, p).collect();
    taps.sort_by_key(|&(_, distance)| distance);
    let &(_, distance) = taps.first()?;
    let dense = taps.iter().zip(distance..).all(|(&(_, d), next)| d == next);
    dense.then(|| Line {
        first: p,
        count: output_count(c, out, d, p),
        taps: taps.into_iter().map(|(tap, _)| tap).collect(),
        distance,
    })
}

impl Line {
    /// The padding at both ends of `input` elements with which the plain convolution has all outputs.
    fn padding(&self, input: usize) -> usize {
        let last = self.distance + (self.count + self.taps.len()) as isize - 1;
        (-self.distance).max(last - input as isize).max(0) as usize
    }
}

/// The phases of `conv` with the plain convolution of each; `None` if it has other phases or too many of them.
fn phases_of(conv: &Conv) -> Option<Vec<([Line; 3], Conv)>> {
    let out = conv.output_size()?;
    let count = conv.stride.iter().try_fold(1usize, |a, &s| a.checked_mul(s))?;
    let small = |n: &usize| *n < 1 << 24;
    let sizes = [conv.kernel, conv.dilation, conv.padding, out, conv.input];
    if count > PHASES || !sizes.iter().flatten().all(small) {
        return None;
    }
    let [_, s1, s2] = conv.stride;
    let firsts = (0..count).map(|i| [i / (s1 * s2), i / s2 % s1, i % s2]);
    let has_outputs = |first: &[usize; 3]| (0..3).all(|d| first[d] < out[d]);
    firsts
        .filter(has_outputs)
        .map(|first| phase(conv, out, first))
        .collect()
}

fn phase(conv: &Conv, out: [usize; 3], first: [usize; 3]) -> Option<([Line; 3], Conv)> {
    let lines = [
        line(conv, out, 0, first[0])?,
        line(conv, out, 1, first[1])?,
        line(conv, out, 2, first[2])?,
    ];
    let plain = Conv {
        kernel: [0, 1, 2].map(|d| lines[d].taps.len()),
        stride: [1; 3],
        dilation: [1; 3],
        padding: [0, 1, 2].map(|d| lines[d].padding(conv.input[d])),
        output_padding: [0; 3],
        transposed: false,
        input_layout: ConvLayout::ChannelsLast,
        output_layout: ConvLayout::ChannelsLast,
        ..conv.clone()
    };
    // Padding that is wider than the image costs more than it saves.
    let narrow = (0..3).all(|d| plain.padding[d] <= conv.input[d] + 4);
    narrow.then_some((lines, plain))
}

impl PairPhases {
    /// Plans `conv`; `None` if it is not transposed, or another method suits it better.
    pub(in crate::math::conv) fn new(
        kernels: PairKernels,
        conv: &Conv,
        constants: ConvConstants,
    ) -> Result<Option<PairPhases>, PlanError> {
        let enough = conv.out_channels / conv.groups.max(1) >= CHANNELS;
        // A large weight that is not constant takes longer to reorder than the products take in f32.
        let [_, nw, _, ny] = conv.extents().ok_or(PlanError::Size)?;
        let enough = enough && (constants.weight.is_some() || nw <= ny);
        if !conv.transposed || conv.bytes.is_some() || !enough || !kernels.are_faster_than_f32() {
            return Ok(None);
        }
        let Some(parts) = phases_of(conv) else {
            return Ok(None);
        };
        let mut phases = vec![];
        for (lines, plain) in parts {
            let window = Window::new(kernels, &plain)?;
            if !is_applicable(&kernels, &plain) || window.segments.reads_others(&plain, &window.panels) {
                return Ok(None);
            }
            let weight = constants.weight.map(|w| {
                let first = lines.each_ref().map(|l| l.first);
                let order = [first, conv.stride, conv.padding, conv.kernel, conv.dilation].concat();
                weight::pack_constant((&kernels, &plain, &window), w, &order, |bytes, size| {
                    Cow::Owned(phase_weight(conv, &lines, bytes, size))
                })
            });
            let constants = (weight, constant_bias(conv, &constants));
            phases.push(Phase {
                plan: PairConv::new(kernels, &plain, window, constants),
                lines,
            });
        }
        Ok(Some(PairPhases {
            conv: conv.clone(),
            out: conv.output_size().ok_or(PlanError::Size)?,
            phases,
        }))
    }
}

/// The weight of a phase in the order of a plain convolution, `[out, in / groups, taps]`, from that of `conv`, which is
/// `[in, out / groups, taps]`. Elements have `size` bytes.
fn phase_weight(conv: &Conv, lines: &[Line; 3], weight: &[u8], size: usize) -> Vec<u8> {
    let [_, kh, kw] = conv.kernel;
    let [d, h, w] = lines.each_ref().map(|l| &l.taps);
    let pairs = d.iter().flat_map(|d| h.iter().map(move |h| d * kh + h));
    let order: Vec<usize> = pairs.flat_map(|row| w.iter().map(move |w| row * kw + w)).collect();
    let taps: usize = conv.kernel.iter().product();
    let [inputs, outputs] = [conv.in_channels, conv.out_channels].map(|n| n / conv.groups);
    let mut out = Vec::with_capacity(conv.out_channels * inputs * order.len() * size);
    for o in 0..conv.out_channels {
        for i in 0..inputs {
            let input = o / outputs * inputs + i;
            let from = &weight[(input * outputs + o % outputs) * taps * size..][..taps * size];
            for &tap in &order {
                out.extend_from_slice(&from[tap * size..][..size]);
            }
        }
    }
    out
}

/// What a run writes, channels last.
#[derive(Clone, Copy)]
struct LastOutputs {
    y: SharedPtr<u8>,
    /// The pixels of a phase.
    pixels: SharedPtr<u8>,
}

impl PairPhases {
    /// The number of output pixels of the plain convolution of each phase, at most.
    fn most_pixels(&self) -> usize {
        let sizes = self.phases.iter().map(|p| p.plan.window.out.iter().product());
        sizes.max().unwrap_or(0)
    }

    /// Computes a phase and copies its pixels to the output.
    ///
    /// # Safety
    /// `args` is as for [`ConvPlan::run`], with a channels-last input, and the outputs are valid.
    unsafe fn run_phase(&self, pool: &Pool, args: &ConvArgs, phase: &Phase, o: LastOutputs) {
        let c = &self.conv;
        let mut given = vec![];
        // SAFETY: the caller provides the weight; the buffer has room for the plain convolution's output.
        unsafe {
            if phase.plan.weight.is_none() {
                let len = c.extents().map_or(0, |e| e[1]) * c.dtype.size();
                let weight = std::slice::from_raw_parts(args.weight, len);
                given = phase_weight(c, &phase.lines, weight, c.dtype.size());
            }
            let plain = ConvArgs {
                weight: given.as_ptr(),
                y: o.pixels.get(),
                tail: None,
                ..*args
            };
            phase.plan.run(pool, &plain);
        }
        let rows = c.batch * phase.lines[0].count * phase.lines[1].count;
        let per = (rows / (4 * pool.threads())).clamp(1, 64);
        pool.run(rows.div_ceil(per), |part| {
            // SAFETY: the rows lie in the output, and no other chunk writes them.
            unsafe { self.copy_rows(phase, o, part * per..rows.min((part + 1) * per)) };
        });
    }

    /// Copies some rows of a phase to the output.
    ///
    /// # Safety
    /// The outputs are valid, and no other thread writes the rows.
    unsafe fn copy_rows(&self, phase: &Phase, o: LastOutputs, rows: Range<usize>) {
        let (lines, from, to) = (&phase.lines, phase.plan.window.out, self.out);
        let pixel = self.conv.out_channels * self.conv.dtype.size();
        // The plain convolution's first output that belongs to the phase.
        let start = [0, 1, 2].map(|d| (lines[d].distance + phase.plan.conv.padding[d] as isize) as usize);
        let place = |size: [usize; 3], image: usize, at: [usize; 3]| {
            ((image * size[0] + at[0]) * size[1] + at[1]) * size[2] + at[2]
        };
        for row in rows {
            let (image, row) = (
                row / (lines[0].count * lines[1].count),
                row % (lines[0].count * lines[1].count),
            );
            let at = [row / lines[1].count, row % lines[1].count, 0];
            let src = place(from, image, [0, 1, 2].map(|d| start[d] + at[d]));
            let dst = place(
                to,
                image,
                [0, 1, 2].map(|d| lines[d].first + at[d] * self.conv.stride[d]),
            );
            for j in 0..lines[2].count {
                // SAFETY: both pixels lie in their buffers.
                unsafe {
                    let to = o.y.get().add((dst + j * self.conv.stride[2]) * pixel);
                    to.copy_from_nonoverlapping(o.pixels.get().add((src + j) * pixel), pixel);
                }
            }
        }
    }
}

/// A buffer of elements of `size` bytes.
fn take_elements(count: usize, size: usize) -> Scratch {
    scratch::take_buffer((count * size).div_ceil(4))
}

impl ConvPlan for PairPhases {
    unsafe fn run(&self, pool: &Pool, args: &ConvArgs) {
        let (c, size) = (&self.conv, self.conv.dtype.size());
        let [nx, _, _, ny] = c.extents().unwrap_or_default();
        if ny == 0 {
            return;
        }
        let first = |layout: ConvLayout| layout == ConvLayout::ChannelsFirst;
        let [moves_x, moves_y] = [first(c.input_layout), first(c.output_layout)];
        let mut x = take_elements(if moves_x { nx } else { 0 }, size);
        let mut y = take_elements(if moves_y { ny } else { 0 }, size);
        let mut pixels = take_elements(c.batch * self.most_pixels() * c.out_channels, size);
        let last = ConvArgs {
            x: if moves_x { x.as_ptr().cast() } else { args.x },
            ..*args
        };
        let outputs = LastOutputs {
            y: SharedPtr(if moves_y { y.as_mut_ptr().cast() } else { args.y }),
            pixels: SharedPtr(pixels.as_mut_ptr().cast()),
        };
        let swap = |rows: usize, columns: usize| ([c.batch, columns, rows], [rows * columns, 1, columns]);
        // SAFETY: guaranteed by the caller; the buffers are as long as the operands.
        unsafe {
            if moves_x {
                let (shape, strides) = swap(c.in_channels, c.input.iter().product());
                permute(pool, size, &shape, &strides, args.x, x.as_mut_ptr().cast());
            }
            for phase in &self.phases {
                self.run_phase(pool, &last, phase, outputs);
            }
            if moves_y {
                let (shape, strides) = swap(self.out.iter().product(), c.out_channels);
                permute(pool, size, &shape, &strides, y.as_ptr().cast(), args.y);
            }
            run_tail(pool, c, args.y, args.tail);
        }
    }

    fn describe(&self) -> String {
        let how = self.phases.first().map_or("empty".into(), |p| p.plan.describe());
        format!("conv transposed in {} phases, each {how}", self.phases.len())
    }
}
