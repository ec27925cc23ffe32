//! Transposed convolution into channels-last output. Outputs that are a multiple of the stride apart use the same taps.
//! Each *phase* of the strides is therefore an ordinary convolution of stride 1 over the input, on register tiles that
//! write every `stride`-th pixel of the output. Nothing is computed twice, and no sums are accumulated in memory. (Shi
//! et al., "Is the deconvolution layer the same as a convolutional layer?", 2016.)

use super::adapt::run_tail;
use super::padded::Padded;
use super::panels::{self, Panel};
use super::row::{PixelRow, bias_at};
use super::strip::{ChunkCut, Load, cut_chunks};
use super::{ConvOperands, Method};
use crate::math::contract::{Conv, PlanError};
use crate::math::scratch;
use crate::math::tile::Kernels;
use crate::parallel::Pool;
use crate::target::Isa;

/// The maximum number of phases.
const PHASES: usize = 64;

/// The outputs `first + j * stride` of each dimension.
struct Phase {
    first: [usize; 3],
    /// The number of outputs along each dimension.
    count: [usize; 3],
    /// The taps that overlap the input for these outputs, as positions in the kernel.
    taps: Vec<usize>,
    /// For output `j`, the offset of the pixel under each tap from pixel `j` of the padded input.
    segments: Vec<usize>,
    /// The offset of the phase's weights, in product indices.
    depth: usize,
}

/// The method.
pub(super) struct Phases {
    conv: Conv,
    kernels: &'static Kernels,
    padded: Padded,
    out: [usize; 3],
    phases: Vec<Phase>,
    panels: Vec<Panel>,
    load: Load,
}

/// The taps of one dimension that outputs `phase + j * stride` use, each with its distance from input `j`.
fn phase_taps(c: &Conv, d: usize, phase: usize) -> impl Iterator<Item = (usize, isize)> {
    let (stride, dilation, from) = (c.stride[d], c.dilation[d], phase + c.padding[d]);
    (0..c.kernel[d]).filter_map(move |t| {
        let place = from as isize - (t * dilation) as isize;
        (place.rem_euclid(stride as isize) == 0).then_some((t, place.div_euclid(stride as isize)))
    })
}

/// The number of outputs of a dimension that belong to a phase.
fn output_count(c: &Conv, out: [usize; 3], d: usize, phase: usize) -> usize {
    out[d].saturating_sub(phase).div_ceil(c.stride[d])
}

/// The number of rows around the input that windows reach, along each dimension.
fn input_margin(c: &Conv, out: [usize; 3]) -> [usize; 3] {
    [0, 1, 2].map(|d| {
        let of_phase = |p: usize| {
            let last = output_count(c, out, d, p) as isize - 1;
            let beyond = |(_, e): (usize, isize)| (-e).max(last + e - (c.input[d] as isize - 1));
            phase_taps(c, d, p).map(beyond).max().unwrap_or(0)
        };
        let most = (0..c.stride[d].min(out[d])).map(of_phase).max();
        most.unwrap_or(0).max(0) as usize
    })
}

/// Whether the method supports `conv`, which is transposed: there must be few phases, and the border must not dominate.
pub(super) fn is_applicable(conv: &Conv) -> bool {
    let Some(out) = conv.output_size() else { return false };
    let phases = conv.stride.iter().try_fold(1usize, |a, &s| a.checked_mul(s));
    let small = |n: usize| n < 1 << 24;
    let sane = [conv.kernel, conv.dilation, conv.padding, out, conv.input]
        .iter()
        .flatten()
        .all(|&n| small(n));
    sane && phases.is_some_and(|p| p <= PHASES) && {
        let margin = input_margin(conv, out);
        (0..3).all(|d| margin[d] <= conv.input[d] + 4)
    }
}

impl Phases {
    /// Plans `conv`, which is transposed, has channels-last output, and for which [`is_applicable`] holds.
    pub(super) fn new(isa: Isa, conv: &Conv) -> Result<Phases, PlanError> {
        let kernels = Kernels::for_isa(isa);
        let out = conv.output_size().ok_or(PlanError::Size)?;
        let margin = input_margin(conv, out);
        // A plain convolution over the same input, used only for its border.
        let plain = Conv {
            kernel: [1; 3],
            stride: [1; 3],
            dilation: [1; 3],
            padding: margin,
            output_padding: [0; 3],
            transposed: false,
            ..conv.clone()
        };
        let padded = Padded::with_padding(isa, &plain, margin)?;
        let panels = panels::cut_panels(conv, kernels.nr);
        let phases = list_phases(conv, out, &padded, margin);
        let load = Load {
            rows: out[0].div_ceil(conv.stride[0]) * out[1].div_ceil(conv.stride[1]),
            row_pixels: out[2].div_ceil(conv.stride[2]),
            panels: panels.len(),
            panel_cols: kernels.nr,
            images: conv.batch.saturating_mul(phases.len()),
            macs: conv.macs(),
            weights: conv.extents().map_or(0, |e| e[1]) / phases.len().max(1),
            input: conv.batch.saturating_mul(padded.image),
            buffered: false,
        };
        Ok(Phases {
            conv: conv.clone(),
            kernels,
            padded,
            out,
            phases,
            panels,
            load,
        })
    }

    /// A hash of the order of the taps.
    fn tap_order_hash(&self) -> usize {
        let taps = self.phases.iter().flat_map(|p| &p.taps);
        taps.fold(0, |a: usize, &t| {
            (a.wrapping_mul(0x0100_0000_01b3) ^ (t + 1)) & 0xffff_ffff
        }) << 8
    }

    /// The number of input channels of a group.
    fn run_len(&self) -> usize {
        self.conv.in_channels / self.conv.groups
    }

    /// The number of product indices of all phases.
    fn product_depth(&self) -> usize {
        self.phases.iter().map(|p| p.taps.len()).sum::<usize>() * self.run_len()
    }

    /// Computes rows `r0..r1` of a phase of one image, padded at `x`, for panels `p0..p1`.
    ///
    /// # Safety
    /// The operands are valid; no other thread writes this part.
    unsafe fn run_chunk(
        &self,
        o: &ConvOperands,
        x: *const f32,
        image: usize,
        phase: &Phase,
        [r0, r1]: [usize; 2],
        [p0, p1]: [usize; 2],
    ) {
        let (c, nr) = (&self.conv, self.kernels.nr);
        let [_, oh, ow] = self.out;
        for (p, panel) in self.panels.iter().enumerate().take(p1).skip(p0) {
            let halves = self.kernels.half_vectors(panel.cols);
            for r in r0..r1.min(phase.count[0] * phase.count[1]) {
                let (d, h) = (r / phase.count[1], r % phase.count[1]);
                let to = (phase.first[0] + d * c.stride[0]) * oh + phase.first[1] + h * c.stride[1];
                let pixel = image * self.out.iter().product::<usize>() + to * ow + phase.first[2];
                // SAFETY: the row lies in the output, its windows in the padded image, the panel in the weights.
                unsafe {
                    let row = PixelRow {
                        x: x.add(self.padded.pixel_offset(d, h, 0) + panel.input),
                        x_pixel: self.padded.pixel,
                        segments: &phase.segments,
                        run: self.run_len(),
                        weight: (o.weight.add((p * self.product_depth() + phase.depth) * nr), nr),
                        y: o.y.add(pixel * c.out_channels + panel.channel),
                        y_pixel: c.stride[2] * c.out_channels,
                        pixels: phase.count[2],
                        cols: panel.cols,
                        bias: bias_at(o.bias, panel.channel),
                        activation: c.activation,
                        is_first: true,
                        is_last: true,
                        next: None,
                    };
                    row.run(self.kernels, |rows| self.kernels.tile_kernel(rows, halves, false));
                }
            }
        }
    }

    /// Computes all chunks of `count` images from `image` on, padded at `x`.
    ///
    /// # Safety
    /// The operands are valid.
    unsafe fn run_images(&self, pool: &Pool, o: &ConvOperands, x: *const f32, image: usize, count: usize, c: ChunkCut) {
        let (row_chunks, panel_chunks) = (self.load.rows.div_ceil(c.rows), self.panels.len().div_ceil(c.panels));
        let x = scratch::SharedPtr(x.cast_mut());
        pool.run(count * self.phases.len() * row_chunks * panel_chunks, |i| {
            let (r, rest) = (i % row_chunks, i / row_chunks);
            let (p, rest) = (rest % panel_chunks, rest / panel_chunks);
            let (phase, n) = (rest % self.phases.len(), rest / self.phases.len());
            let rows = [r * c.rows, (r + 1) * c.rows];
            let panels = [p * c.panels, ((p + 1) * c.panels).min(self.panels.len())];
            // SAFETY: there are `count` padded images; chunks own disjoint parts of the output.
            unsafe {
                let x = x.get().add(n * self.padded.image);
                self.run_chunk(o, x, image + n, &self.phases[phase], rows, panels);
            }
        });
    }
}

/// The phases that have outputs.
fn list_phases(c: &Conv, out: [usize; 3], padded: &Padded, margin: [usize; 3]) -> Vec<Phase> {
    let mut phases = vec![];
    let mut depth = 0;
    let all = c.stride.iter().product();
    for i in 0..all {
        let first = [
            i / (c.stride[1] * c.stride[2]),
            i / c.stride[2] % c.stride[1],
            i % c.stride[2],
        ];
        let counts = [0, 1, 2].map(|d| output_count(c, out, d, first[d]));
        if counts.contains(&0) {
            continue;
        }
        let mut p = Phase {
            first,
            count: counts,
            taps: vec![],
            segments: vec![],
            depth,
        };
        let place = |d: usize, e: isize| (margin[d] as isize + e) as usize;
        for (td, ed) in phase_taps(c, 0, first[0]) {
            for (th, eh) in phase_taps(c, 1, first[1]) {
                for (tw, ew) in phase_taps(c, 2, first[2]) {
                    p.taps.push((td * c.kernel[1] + th) * c.kernel[2] + tw);
                    p.segments
                        .push(padded.pixel_offset(place(0, ed), place(1, eh), place(2, ew)));
                }
            }
        }
        depth += p.taps.len() * (c.in_channels / c.groups);
        phases.push(p);
    }
    phases
}

impl Method for Phases {
    fn packed_len(&self) -> usize {
        self.panels.len() * self.kernels.nr * self.product_depth()
    }

    fn packing_key(&self) -> [usize; 2] {
        [9 + self.tap_order_hash(), self.kernels.nr]
    }

    /// Packs panel after panel, phase after phase: for each tap and input channel, the panel's output channels side by
    /// side.
    fn pack_weight(&self, pool: &Pool, weight: &[f32], packed: &mut [f32]) {
        let (nr, depth, gi) = (self.kernels.nr, self.product_depth(), self.run_len());
        let taps: usize = self.conv.kernel.iter().product();
        let group_outputs = self.conv.out_channels / self.conv.groups;
        let dst = scratch::SharedPtr(packed.as_mut_ptr());
        pool.run(self.panels.len(), |p| {
            let panel = &self.panels[p];
            // SAFETY: panel `p` belongs to this chunk.
            let out = unsafe { std::slice::from_raw_parts_mut(dst.get().add(p * depth * nr), depth * nr) };
            let lines = self
                .phases
                .iter()
                .flat_map(|f| f.taps.iter().flat_map(move |&t| (0..gi).map(move |i| (t, i))));
            for ((tap, i), out) in lines.zip(out.chunks_exact_mut(nr)) {
                // Weights are `[in, out / groups, taps]`.
                let from = ((panel.input + i) * group_outputs + panel.channel % group_outputs) * taps + tap;
                for (j, out) in out.iter_mut().enumerate() {
                    *out = if j < panel.cols { weight[from + j * taps] } else { 0.0 };
                }
            }
        });
    }

    unsafe fn run(&self, pool: &Pool, o: &ConvOperands) {
        let together = self.padded.images_at_once(self.conv.batch);
        let images = together * self.phases.len();
        let c = cut_chunks(&Load { images, ..self.load }, pool.threads());
        // SAFETY: guaranteed by the caller.
        unsafe {
            self.padded
                .for_each_batch(pool, self.conv.batch, o.x, |x, image, count| {
                    self.run_images(pool, o, x, image, count, c)
                });
            run_tail(pool, &self.conv, o.y.cast(), o.tail);
        }
    }

    fn name(&self) -> String {
        format!("transposed in {} phases {}", self.phases.len(), self.kernels.isa)
    }
}
