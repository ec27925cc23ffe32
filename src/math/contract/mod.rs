//! The seam between the compiler and the routines that Cranelift cannot express well: matrix products, convolutions and
//! attention.
//!
//! A *descriptor* ([`MatMul`], [`Conv`], [`Attention`]) says what is to be computed, with sizes and strides. A
//! [`Library`] turns it, and those operands that are constant, into a *plan*: operands packed, kernels and blocking
//! chosen. A plan runs as often as one likes on raw memory, on a [`Pool`](crate::parallel::Pool), allocating nothing after the first call.
//! Everything behind the seam can be replaced: another library implements [`Library`], and nothing else changes.
//!
//! All strides are in elements, of the dtype of the operand. 0 repeats an operand along a dimension.
//!
//! Results do not depend on the number of threads, and depend on the instruction set only by the rounding of fused
//! multiply-adds.

mod attention;
mod constant;
mod conv;
mod matmul;
mod recurrent;

pub use attention::*;
pub use constant::*;
pub use conv::*;
pub use matmul::*;
pub use recurrent::*;

use crate::types::DType;
use std::ffi::c_void;
use std::fmt;

/// What is done to each element of a result before it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Activation {
    /// Nothing.
    #[default]
    None,
    /// `max(x, 0)`; NaN stays.
    Relu,
    /// `min(max(x, lo), hi)`, as `relu6` and `hardtanh`; NaN stays.
    Clamp(f32, f32),
}

impl Activation {
    /// The bounds of the clamp that this is, if it is one.
    pub fn bounds(self) -> Option<(f32, f32)> {
        match self {
            Activation::None => None,
            Activation::Relu => Some((0.0, f32::INFINITY)),
            Activation::Clamp(lo, hi) => Some((lo, hi)),
        }
    }
}

/// A finished rectangle of a result, for a [`TileTail`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Tile {
    /// Its first element, of the result's dtype.
    pub data: *mut u8,
    /// The index of that element, counted in elements from the start of the result.
    pub offset: usize,
    /// Which matrix of the batch (row-major over the batch dimensions); for a convolution the image.
    pub batch: usize,
    /// Its first row: of the matrix; for a convolution the channel (channels first) or the flat pixel (channels last).
    pub row: usize,
    /// Its first column: of the matrix; for a convolution the flat pixel (channels first) or the channel (channels last).
    pub col: usize,
    /// How many rows.
    pub rows: usize,
    /// How many columns; elements of a row are contiguous.
    pub cols: usize,
    /// From one row to the next, in elements.
    pub row_stride: usize,
}

/// A pointwise function that runs on every tile of a result when it is finished and still in cache: a fused kernel.
///
/// Every element of the result belongs to exactly one tile. Tiles come in any order and from several threads at once.
#[derive(Clone, Copy)]
pub struct TileTail {
    /// The function: reads and writes the tile in place.
    pub call: unsafe extern "C" fn(context: *const c_void, tile: *const Tile),
    /// Passed to every call.
    pub context: *const c_void,
}

// SAFETY: whoever makes a tail promises that it may be called from several threads (see the type).
unsafe impl Send for TileTail {}
// SAFETY: as above.
unsafe impl Sync for TileTail {}

impl TileTail {
    /// Runs the function on a tile.
    ///
    /// # Safety
    /// The tile is finished, valid, and used by nothing else.
    pub unsafe fn run(&self, tile: &Tile) {
        // SAFETY: the caller's promise; the function accepts every finished tile.
        unsafe { (self.call)(self.context, tile) };
    }
}

/// One past the greatest element index of a strided operand; 0 if it is empty. `None` if its bytes exceed `isize`.
pub(crate) fn strided_extent(size: usize, dims: impl Iterator<Item = (usize, usize)>) -> Option<usize> {
    let mut last = Some(0usize);
    let mut empty = false;
    for (n, stride) in dims {
        empty |= n == 0;
        let step = n.saturating_sub(1).checked_mul(stride);
        last = last.and_then(|l| l.checked_add(step?));
    }
    if empty {
        return Some(0);
    }
    let n = last?.checked_add(1)?;
    (n.checked_mul(size)? <= isize::MAX as usize).then_some(n)
}

/// Why a library makes no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// torch has no such operation for this dtype either, or this library has not.
    Dtype(DType),
    /// A size or an index does not fit the address space, or the parameters are not legal.
    Size,
    /// A constant operand does not have the length that the descriptor says, in bytes.
    Constant {
        /// What the descriptor needs.
        need: usize,
        /// What was given.
        got: usize,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::Dtype(d) => write!(f, "no kernel for {d}"),
            PlanError::Size => f.write_str("sizes that are not legal or do not fit the address space"),
            PlanError::Constant { need, got } => write!(f, "a constant operand of {got} bytes where {need} are needed"),
        }
    }
}

impl std::error::Error for PlanError {}

/// A maker of plans.
pub trait Library: Send + Sync {
    /// Its name, for reports.
    fn name(&self) -> &'static str;
    /// Plans a matrix product.
    fn plan_matmul(&self, desc: &MatMul, constants: MatMulConstants) -> Result<Box<dyn MatMulPlan>, PlanError>;
    /// Plans a convolution.
    fn plan_conv(&self, desc: &Conv, constants: ConvConstants) -> Result<Box<dyn ConvPlan>, PlanError>;
    /// Bytes beyond the weight's own that a plan of `desc` with a constant weight would keep to be faster, if there is room
    /// ([`Constant::with_room`]); 0 if it has no use for more. The plans of a program share what room there is.
    fn extra_weight_bytes(&self, _desc: &Conv) -> usize {
        0
    }
    /// Plans an expansion for which [`Expansion::is_supported`] holds.
    fn plan_expansion(
        &self,
        desc: &Expansion,
        constants: [ConvConstants; 2],
    ) -> Result<Box<dyn ExpansionPlan>, PlanError>;
    /// Plans an attention.
    fn plan_attention(&self, desc: &Attention) -> Result<Box<dyn AttentionPlan>, PlanError>;
    /// Plans a recurrent layer.
    fn plan_recurrent(
        &self,
        desc: &Recurrent,
        constants: RecurrentConstants,
    ) -> Result<Box<dyn RecurrentPlan>, PlanError>;
}
