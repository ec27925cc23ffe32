//! Convolutions.
//!
//! | case (f32) | method |
//! | --- | --- |
//! | 1x1, stride 1, channels first | a matrix product `W · X`, weights packed as A ([`pointwise`]) |
//! | 1x1, stride 1, channels last | a matrix product `X · Wᵀ`, weights packed as B ([`pointwise`]) |
//! | one channel per group, wide rows, channels first | along the rows of the planes ([`plane`]) |
//! | one channel per group, otherwise | over vectors of channels ([`channels`]) |
//! | 3x3, stride 1, constant weights, many channels, unless exact | Winograd's transforms ([`winograd`]) |
//! | transposed, channels-last result or enough channels | register tiles, one phase of the strides at a time ([`phases`]) |
//! | transposed, otherwise | a matrix product, then overlapping sums ([`transposed`]) |
//! | groups, one or two dimensions | register tiles on some channels of some padded rows at a time ([`grouped`]) |
//! | everything else | register tiles on padded channels-last input, without unfolding ([`direct`]) |
//!
//! A 1x1 convolution and the depthwise convolution that reads its result can be fused ([`expand`]).
//!
//! bf16 is multiplied in pairs and bytes in groups of four ([`pairs`]), unless groups are too narrow, or Winograd's transforms save
//! more than pairs do. With few input channels, channels first, the shifted rows of planes are the factors ([`pairs::lines`]).
//! Transposed convolutions of bf16 with many input channels, channels first, are products of pairs and overlapping sums
//! ([`transposed`]). Other convolutions of bf16, f16 and bytes are computed in f32 and rounded once ([`adapt`]). Integers and f64 are
//! multiplied as matrices ([`unfolded`]) unless there is one channel to a group; those are computed plane by plane ([`general`]).

mod adapt;
mod channels;
mod direct;
mod expand;
mod general;
mod grouped;
mod overlap;
mod padded;
mod pairs;
mod panels;
mod phases;
mod plane;
mod pointwise;
mod row;
mod run_blocks;
mod strip;
mod taps;
#[cfg(test)]
mod tests;
mod transposed;
mod unfolded;
mod visible;
mod winograd;

use super::contract::{Constant, Conv, ConvArgs, ConvConstants, ConvLayout, ConvPlan, PlanError, Precision};
use super::matmul::packed::to_aligned_f32;
use super::pairs::PairKernels;
use crate::parallel::Pool;
use crate::target::Isa;
use crate::tensor::AlignedBytes;
use crate::types::DType;
use std::sync::Arc;

pub(super) use expand::plan as plan_expansion;
pub(crate) use plane::NARROWEST_ROW;

/// Plans a convolution for the instruction sets of `pairs`, which the machine must support. With `exact`, every result is a
/// sum of products.
pub(super) fn plan(
    pairs: PairKernels,
    exact: bool,
    precision: Precision,
    conv: &Conv,
    constants: ConvConstants,
) -> Result<Box<dyn ConvPlan>, PlanError> {
    let isa = pairs.isa;
    let extents = conv.extents().ok_or(PlanError::Size)?;
    check_constant_len(conv, constants.weight, extents[1])?;
    check_constant_len(conv, constants.bias, extents[2])?;
    if let Some(input) = conv.bytes {
        return plan_bytes(pairs.for_bytes(input), conv, constants, extents);
    }
    let narrow = precision == Precision::Bf16 || conv.exact_in_bf16 && pairs.are_faster_than_f32();
    let rate = product_rate(&pairs, precision, conv);
    let winograd = constants.weight.filter(|_| !exact);
    let winograd = winograd.and_then(|w| winograd::choose_way(conv, w.has_room(), rate));
    let adapt = || -> Result<Box<dyn ConvPlan>, PlanError> {
        Ok(Box::new(adapt::Adapted::new(isa, exact, conv, constants, extents)?))
    };
    match conv.dtype {
        DType::F32 if narrow && winograd.is_none() && pairs::is_applicable(&pairs, conv) => {
            pairs::plan(pairs, conv, constants, || plan_f32(isa, exact, conv, constants))
        }
        DType::F32 if narrow => match pairs::phases::PairPhases::new(pairs, conv, constants)? {
            Some(plan) => Ok(Box::new(plan)),
            None => plan_f32(isa, exact, conv, constants),
        },
        DType::F32 => plan_f32(isa, exact, conv, constants),
        DType::BF16 => plan_bf16(pairs, winograd, conv, constants, adapt),
        DType::F16 => adapt(),
        _ if unfolded::is_applicable(conv) => Ok(Box::new(unfolded::UnfoldedConv::new(isa, conv, constants))),
        DType::F64 | DType::I64 | DType::I32 | DType::I16 | DType::I8 | DType::U8 => {
            Ok(Box::new(general::GeneralConv::new(conv, constants)))
        }
        d => Err(PlanError::Dtype(d)),
    }
}

/// Plans a bf16 convolution: by Winograd's method, if that is the fastest, as products of pairs, or by `adapt`, which plans it
/// in f32.
fn plan_bf16(
    pairs: PairKernels,
    winograd: Option<winograd::WinogradWay>,
    conv: &Conv,
    constants: ConvConstants,
    adapt: impl FnOnce() -> Result<Box<dyn ConvPlan>, PlanError>,
) -> Result<Box<dyn ConvPlan>, PlanError> {
    if let Some(way) = winograd.filter(|_| !conv.bias || constants.bias.is_some()) {
        let [weight, bias] = [constants.weight, constants.bias].map(|c| Some(c?.widen_from(conv.dtype)));
        let method = Box::new(winograd::Winograd::new(pairs.isa, conv, way)?);
        return Ok(Box::new(F32ConvPlan::new(method, conv, ConvConstants { weight, bias })));
    }
    if pairs::lines::is_applicable(&pairs, conv) {
        return Ok(Box::new(pairs::lines::LineConv::new(conv, constants)?));
    }
    if pairs::is_applicable(&pairs, conv) {
        return pairs::plan(pairs, conv, constants, adapt);
    }
    if let Some(w) = pairs::upsample::applicable_weight(conv, &constants) {
        return Ok(Box::new(pairs::upsample::Bf16Upsample::new(pairs, conv, constants, w)?));
    }
    if let Some(plan) = pairs::phases::PairPhases::new(pairs, conv, constants)? {
        return Ok(Box::new(plan));
    }
    match pairs::depthwise::applicable_weight(conv, &constants) {
        Some(w) => pairs::depthwise::plan(&pairs, conv, constants, w),
        None => adapt(),
    }
}

/// Plans a convolution of bytes, whose extents are given.
fn plan_bytes(
    pairs: PairKernels,
    conv: &Conv,
    constants: ConvConstants,
    extents: [usize; 4],
) -> Result<Box<dyn ConvPlan>, PlanError> {
    // See the descriptor: others do not exist.
    if constants.weight.is_none() || conv.bias || conv.dtype != DType::I32 {
        return Err(PlanError::Dtype(conv.dtype));
    }
    if pairs::is_applicable(&pairs, conv) {
        // Bytes have no special values, which need another plan.
        return pairs::plan(pairs, conv, constants, || Err(PlanError::Dtype(conv.dtype)));
    }
    match pairs::depthwise::applicable_weight(conv, &constants) {
        Some(w) => pairs::depthwise::plan(&pairs, conv, constants, w),
        None => Ok(Box::new(adapt::Adapted::new(
            pairs.isa, true, conv, constants, extents,
        )?)),
    }
}

/// The number of bytes beyond the weight itself that a constant weight of `conv` occupies if allowed
/// ([`Constant::with_room`]).
pub(super) fn extra_weight_bytes(pairs: PairKernels, exact: bool, precision: Precision, conv: &Conv) -> usize {
    match exact {
        true => 0,
        false => winograd::extra_weight_bytes(conv, product_rate(&pairs, precision, conv)),
    }
}

/// How many products take the time of one of f32, if `conv` is computed as a sum of products.
fn product_rate(pairs: &PairKernels, precision: Precision, conv: &Conv) -> usize {
    match conv.dtype {
        DType::BF16 => pairs.rate(),
        DType::F32 if precision == Precision::Bf16 || conv.exact_in_bf16 => pairs.rate(),
        _ => 1,
    }
}

/// Chooses the method for an f32 convolution whose parameters were already checked.
fn plan_f32(isa: Isa, exact: bool, conv: &Conv, constants: ConvConstants) -> Result<Box<dyn ConvPlan>, PlanError> {
    let first = conv.input_layout == ConvLayout::ChannelsFirst && conv.output_layout == ConvLayout::ChannelsFirst;
    if conv.transposed && phases::is_applicable(conv) {
        let method = Box::new(phases::Phases::new(isa, conv)?);
        return Ok(Box::new(F32ConvPlan::new(method, conv, constants)));
    }
    if conv.transposed && first {
        return Ok(Box::new(transposed::Transposed::new(isa, conv, constants)?));
    }
    if conv.transposed {
        return Ok(Box::new(adapt::Relaid::new(isa, exact, conv, constants)?));
    }
    if pointwise::is_applicable(conv, isa) {
        return Ok(Box::new(pointwise::PointwiseConv::new(isa, conv, constants)));
    }
    let depthwise = conv.groups == conv.in_channels && conv.in_channels > 1;
    let winograd = constants.weight.filter(|_| !exact);
    let winograd = winograd.and_then(|w| winograd::choose_way(conv, w.has_room(), 1));
    let method: Box<dyn Method> = if let Some(way) = winograd {
        Box::new(winograd::Winograd::new(isa, conv, way)?)
    } else if depthwise && plane::is_applicable(conv) {
        Box::new(plane::Plane::new(isa, conv))
    } else if depthwise && conv.groups == conv.out_channels {
        Box::new(channels::DepthwiseChannels::new(isa, conv)?)
    } else if grouped::is_applicable(conv) {
        Box::new(grouped::Grouped::new(isa, conv)?)
    } else {
        Box::new(direct::Direct::new(isa, conv)?)
    };
    Ok(Box::new(F32ConvPlan::new(method, conv, constants)))
}

fn check_constant_len(conv: &Conv, bytes: Option<Constant>, n: usize) -> Result<(), PlanError> {
    match bytes {
        Some(b) if b.len() != n * conv.factor_size() => Err(PlanError::Constant {
            need: n * conv.factor_size(),
            got: b.len(),
        }),
        _ => Ok(()),
    }
}

/// A method of computing an f32 convolution. Weights are prepared in a separate step because they may be dynamic.
trait Method: Send + Sync {
    /// The number of elements of the prepared weights; 0 if they are used without preparation.
    fn packed_len(&self) -> usize;
    /// What the prepared form depends on besides channels, groups and kernel: words that identify it uniquely.
    fn packing_key(&self) -> [usize; 2];
    /// Prepares the weights, which are in torch's order, into `packed`.
    fn pack_weight(&self, pool: &Pool, weight: &[f32], packed: &mut [f32]);
    /// Computes the output from prepared weights.
    ///
    /// # Safety
    /// The operands are valid for the convolution; `bias` is null or holds one element per output channel.
    unsafe fn run(&self, pool: &Pool, operands: &ConvOperands);
    /// The method's name, for reports.
    fn name(&self) -> String;
}

/// The addresses of a [`Method`]'s operands.
#[derive(Clone, Copy)]
struct ConvOperands {
    x: *const f32,
    weight: *const f32,
    bias: *const f32,
    y: *mut f32,
    tail: Option<super::contract::TileTail>,
}

// SAFETY: a method's chunks only read the inputs and write disjoint parts of the output.
unsafe impl Send for ConvOperands {}
// SAFETY: as above.
unsafe impl Sync for ConvOperands {}

/// The weight and bias of a convolution, packed when they are constant.
struct ConvParameters {
    weight_len: usize,
    has_bias: bool,
    weight: Option<Arc<AlignedBytes>>,
    bias: Option<Vec<f32>>,
}

impl ConvParameters {
    fn new(method: &dyn Method, conv: &Conv, constants: ConvConstants) -> ConvParameters {
        let [_, weight_len, ..] = conv.extents().unwrap_or_default();
        ConvParameters {
            weight_len,
            has_bias: conv.bias,
            bias: constant_bias(conv, &constants),
            weight: constants.weight.map(|w| prepare_weight(method, conv, w)),
        }
    }

    /// Calls `f` with the addresses of the prepared weight and of the bias (or null), for a run with this weight and
    /// bias.
    ///
    /// # Safety
    /// What is not constant is valid for the convolution.
    unsafe fn with_prepared(
        &self,
        method: &dyn Method,
        pool: &Pool,
        given: [*const u8; 2],
        f: impl FnOnce(*const f32, *const f32),
    ) {
        let bias = bias_of(self.has_bias, &self.bias, given[1]);
        let n = if self.weight.is_some() { 0 } else { method.packed_len() };
        let mut packed = super::scratch::take_buffer(n);
        let weight = match &self.weight {
            Some(w) => w.bytes().as_ptr().cast(),
            None if n == 0 => given[0].cast(),
            None => {
                // SAFETY: the caller provides the weights.
                let raw = unsafe { std::slice::from_raw_parts(given[0].cast::<f32>(), self.weight_len) };
                method.pack_weight(pool, raw, &mut packed);
                packed.as_ptr()
            }
        };
        f(weight, bias);
    }
}

/// A plan of a convolution that is computed in f32.
struct F32ConvPlan {
    dtype: DType,
    method: Box<dyn Method>,
    empty: bool,
    parameters: ConvParameters,
}

impl F32ConvPlan {
    fn new(method: Box<dyn Method>, conv: &Conv, constants: ConvConstants) -> F32ConvPlan {
        F32ConvPlan {
            dtype: conv.dtype,
            empty: conv.extents().unwrap_or_default()[3] == 0,
            parameters: ConvParameters::new(&*method, conv, constants),
            method,
        }
    }
}

/// The bias, if both it and the weight are constant.
fn constant_bias(conv: &Conv, constants: &ConvConstants) -> Option<Vec<f32>> {
    match (constants.weight, constants.bias) {
        (Some(_), Some(b)) if conv.bias => Some(b.with_bytes(|b| to_aligned_f32(b).into_owned())),
        _ => None,
    }
}

/// The bias to use: the constant, the argument, or null.
fn bias_of(conv_has_bias: bool, constant: &Option<Vec<f32>>, given: *const u8) -> *const f32 {
    match constant {
        Some(b) => b.as_ptr(),
        None if conv_has_bias => given.cast(),
        None => std::ptr::null(),
    }
}

/// The prepared form of constant weights.
fn prepare_weight(method: &dyn Method, conv: &Conv, weight: Constant) -> Arc<AlignedBytes> {
    let n = method.packed_len();
    let mut key = [3, n, conv.in_channels, conv.out_channels, conv.groups].to_vec();
    key.extend(method.packing_key());
    key.extend(&conv.kernel);
    weight.get_or_pack(&key, |bytes| {
        let weight = to_aligned_f32(bytes);
        let mut bytes = AlignedBytes::zeroed_in_huge_pages(4 * if n == 0 { weight.len() } else { n });
        // SAFETY: the buffer is aligned and of this many f32.
        let out = unsafe {
            let len = bytes.bytes().len() / 4;
            std::slice::from_raw_parts_mut(bytes.bytes_mut().as_mut_ptr().cast::<f32>(), len)
        };
        match n {
            0 => out.copy_from_slice(&weight),
            _ => method.pack_weight(Pool::alone(), &weight, out),
        }
        bytes
    })
}

impl ConvPlan for F32ConvPlan {
    unsafe fn run(&self, pool: &Pool, args: &ConvArgs) {
        if self.empty {
            return;
        }
        let run = |weight, bias| {
            let operands = ConvOperands {
                x: args.x.cast(),
                weight,
                bias,
                y: args.y.cast(),
                tail: args.tail,
            };
            // SAFETY: guaranteed by the caller.
            unsafe { self.method.run(pool, &operands) };
        };
        // SAFETY: as above.
        unsafe {
            self.parameters
                .with_prepared(&*self.method, pool, [args.weight, args.bias], run)
        };
    }

    fn describe(&self) -> String {
        let how = if self.parameters.weight.is_some() {
            "packed"
        } else {
            "dynamic"
        };
        format!("conv {} {} {how}", self.dtype, self.method.name())
    }
}
