//! Convolutions of integers, which wrap, and of f64: products of the weight with lines of padded planes of the input ([`lines`]) or, where
//! lines are short, with its windows ([`windows`]), or, if transposed, with the input, whose results are added where they overlap
//! ([`overlaps`]).

mod lines;
mod overlaps;
mod windows;

use super::adapt::run_channels_first;
use super::general::padded::Padding;
use crate::math::contract::{Conv, ConvArgs, ConvConstants, ConvPlan};
use crate::math::lanes::{LaneElement, Product, StridedColumns, multiply, with_lane_element};
use crate::math::number::clamp_elements;
use crate::math::scratch::SharedPtr;
use crate::parallel::Pool;
use crate::target::Isa;
use crate::tensor::AlignedBytes;
use crate::types::DType;
use std::sync::Arc;
use windows::Windows;

/// The smallest number of multiply-adds that another thread is worth.
const SMALLEST: usize = 200_000;
/// The smallest number of pixels of a part of an image.
const PART: usize = 64;

/// A plan of such a convolution.
pub(super) struct UnfoldedConv {
    isa: Isa,
    conv: Conv,
    sizes: Sizes,
    /// How planes are padded, if lines of them are multiplied.
    padding: Option<Padding>,
    weight: Option<Arc<AlignedBytes>>,
    bias: Option<Arc<AlignedBytes>>,
}

/// Sizes that follow from a convolution's parameters.
#[derive(Clone, Copy)]
struct Sizes {
    /// The size of the output.
    out: [usize; 3],
    in_pixels: usize,
    out_pixels: usize,
    /// The elements of a kernel.
    taps: usize,
    /// The channels of a group: of the input, and of the output.
    group_in: usize,
    group_out: usize,
}

/// The operands, channels first.
struct Operands<T> {
    x: *const T,
    weight: *const T,
    bias: *const T,
    y: SharedPtr<T>,
}

// SAFETY: chunks only read the inputs, and write disjoint parts of the output.
unsafe impl<T> Sync for Operands<T> {}

/// Whether products are worth their packing: the windows of an input channel are multiplied more than once, or there are several
/// channels to a sum.
pub(super) fn is_applicable(c: &Conv) -> bool {
    let multiplies = matches!(
        c.dtype,
        DType::F64 | DType::I64 | DType::I32 | DType::I16 | DType::I8 | DType::U8
    );
    multiplies && (c.out_channels / c.groups >= 2 || c.in_channels / c.groups >= 4)
}

impl UnfoldedConv {
    /// Plans `conv`, whose parameters were already checked.
    pub(super) fn new(isa: Isa, conv: &Conv, constants: ConvConstants) -> UnfoldedConv {
        let out = conv.output_size().unwrap_or_default();
        UnfoldedConv {
            isa,
            sizes: Sizes {
                out,
                in_pixels: conv.input.iter().product(),
                out_pixels: out.iter().product(),
                taps: conv.kernel.iter().product(),
                group_in: conv.in_channels / conv.groups,
                group_out: conv.out_channels / conv.groups,
            },
            padding: lines::padding_of(conv),
            conv: conv.clone(),
            weight: constants.weight.map(|w| w.aligned_bytes()),
            bias: constants.weight.and(constants.bias).map(|b| b.aligned_bytes()),
        }
    }

    /// Computes the output, channels first.
    ///
    /// # Safety
    /// The operands are those of the convolution, channels first.
    unsafe fn run_as<T: LaneElement>(&self, pool: &Pool, args: &ConvArgs) {
        let constant = |c: &Option<Arc<AlignedBytes>>, given| c.as_ref().map_or(given, |c| c.bytes().as_ptr());
        let operands = Operands::<T> {
            x: args.x.cast(),
            weight: constant(&self.weight, args.weight).cast(),
            bias: constant(&self.bias, args.bias).cast(),
            y: SharedPtr(args.y.cast()),
        };
        // SAFETY: guaranteed by the caller.
        unsafe {
            match &self.padding {
                Some(padding) => lines::run(self, padding, pool, &operands),
                None if self.conv.transposed => overlaps::run(self, pool, &operands),
                None => self.run_windows(pool, &operands),
            }
        }
    }

    /// Computes a convolution that is not transposed.
    ///
    /// # Safety
    /// As for [`UnfoldedConv::run_as`].
    unsafe fn run_windows<T: LaneElement>(&self, pool: &Pool, o: &Operands<T>) {
        let (c, s) = (&self.conv, &self.sizes);
        let parts = self.parts(pool);
        pool.run(c.batch * c.groups * parts, |i| {
            let (image, group, part) = (i / parts / c.groups, i / parts % c.groups, i % parts);
            let pixels = [part * s.out_pixels / parts, (part + 1) * s.out_pixels / parts];
            // SAFETY: guaranteed by the caller; chunks own disjoint pixels of disjoint planes.
            unsafe { self.run_chunk(o, image, group, pixels) };
        });
    }

    /// The number of parts of the pixels of a group of an image, so that each thread finds some.
    fn parts(&self, pool: &Pool) -> usize {
        let c = &self.conv;
        if pool.threads() == 1 {
            return 1;
        }
        let units = (c.batch * c.groups).max(1);
        let wanted = (4 * pool.threads()).div_ceil(units);
        let worth = (c.macs() / units as f64) as usize / SMALLEST;
        wanted.min(worth).min(self.sizes.out_pixels / PART).max(1)
    }

    /// Computes some pixels of a group of an image.
    ///
    /// # Safety
    /// As for [`UnfoldedConv::run_as`]; nothing else writes these pixels.
    unsafe fn run_chunk<T: LaneElement>(&self, o: &Operands<T>, image: usize, group: usize, [p0, p1]: [usize; 2]) {
        let (c, s) = (&self.conv, &self.sizes);
        let k = s.group_in * s.taps;
        let channel = group * s.group_out;
        // SAFETY: the offsets lie in the operands.
        unsafe {
            let x = o.x.add((image * c.in_channels + group * s.group_in) * s.in_pixels);
            let y = o.y.get().add((image * c.out_channels + channel) * s.out_pixels + p0);
            if c.bias {
                for i in 0..s.group_out {
                    let row = std::slice::from_raw_parts_mut(y.add(i * s.out_pixels), p1 - p0);
                    row.fill(*o.bias.add(channel + i));
                }
            }
            let product = Product {
                m: s.group_out,
                n: p1 - p0,
                k,
                a: o.weight.wrapping_add(channel * k),
                a_strides: [k, 1],
                c: y,
                c_row: s.out_pixels,
                add: c.bias,
            };
            match self.is_pointwise() {
                true => {
                    let strides = [s.in_pixels, 1];
                    let start = x.add(p0);
                    multiply(self.isa, &product, &StridedColumns { start, strides });
                }
                false => multiply(self.isa, &product, &Windows::new(c, s.out, x, p0)),
            }
            self.clamp(y, p1 - p0, s.group_out);
        }
    }

    /// Whether the windows are the pixels.
    fn is_pointwise(&self) -> bool {
        let c = &self.conv;
        self.sizes.taps == 1 && c.stride == [1; 3] && c.padding == [0; 3]
    }

    /// Applies the activation to the first `pixels` pixels of `planes` planes at `y`.
    ///
    /// # Safety
    /// They lie in the output.
    unsafe fn clamp<T: LaneElement>(&self, y: *mut T, pixels: usize, planes: usize) {
        let Some((lo, hi)) = self.conv.activation.bounds() else {
            return;
        };
        for i in 0..planes {
            // SAFETY: guaranteed by the caller.
            let row = unsafe { std::slice::from_raw_parts_mut(y.add(i * self.sizes.out_pixels), pixels) };
            clamp_elements(row, T::bound(lo as f64), T::bound(hi as f64));
        }
    }
}

impl ConvPlan for UnfoldedConv {
    unsafe fn run(&self, pool: &Pool, args: &ConvArgs) {
        let dtype = self.conv.dtype;
        // SAFETY: guaranteed by the caller.
        let compute = |args: &ConvArgs| unsafe { with_lane_element!(dtype, T => self.run_as::<T>(pool, args)) };
        // SAFETY: as above.
        unsafe { run_channels_first(pool, &self.conv, args, compute) };
    }

    fn describe(&self) -> String {
        let how = match self.padding {
            Some(_) => "lines",
            None if self.conv.transposed => "overlaps",
            None => "windows",
        };
        format!("conv {} {how} {}", self.conv.dtype, self.isa)
    }
}
