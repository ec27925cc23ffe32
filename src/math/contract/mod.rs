//! The interface between the compiler and the routines that Cranelift cannot express well: matrix products,
//! convolutions and attention.
//!
//! A *descriptor* ([`MatMul`], [`Conv`], [`Attention`]) specifies what to compute, with sizes and strides. A
//! [`Library`] turns a descriptor and its constant operands into a *plan*, with packed operands and chosen kernels and
//! blocking. A plan can run any number of times, on raw memory and a [`Pool`](crate::parallel::Pool). It allocates
//! nothing after the first run. Everything behind the interface can be replaced: another library implements
//! [`Library`], and nothing else changes.
//!
//! All strides are in elements of the operand's dtype. A stride of 0 repeats an operand along a dimension.
//!
//! Results do not depend on the number of threads. They depend on the instruction set only through the rounding of
//! fused multiply-adds.

mod attention;
mod constant;
mod conv;
mod grouped;
mod matmul;
mod recurrent;

pub use attention::*;
pub use constant::*;
pub use conv::*;
pub use grouped::*;
pub use matmul::*;
pub use recurrent::*;

use crate::types::DType;
use serde::{Deserialize, Serialize};
use std::ffi::c_void;
use std::fmt;

/// The function applied to each element of a result before it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Activation {
    /// The identity.
    #[default]
    None,
    /// `max(x, 0)`. NaN stays NaN.
    Relu,
    /// `min(max(x, lo), hi)`, as in `relu6` and `hardtanh`. NaN stays NaN.
    Clamp(f32, f32),
}

impl Activation {
    /// The bounds if this is a clamp (a ReLU is one), else `None`.
    pub fn bounds(self) -> Option<(f32, f32)> {
        match self {
            Activation::None => None,
            Activation::Relu => Some((0.0, f32::INFINITY)),
            Activation::Clamp(lo, hi) => Some((lo, hi)),
        }
    }
}

/// What f32 products and convolutions multiply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Precision {
    /// f32.
    #[default]
    #[serde(rename = "f32")]
    F32,
    /// Operands that are rounded to bf16. Sums, biases, activations and results are f32. Convolutions with groups and
    /// attention stay f32.
    #[serde(rename = "bf16")]
    Bf16,
}

impl Precision {
    /// Parses `f32` or `bf16`.
    pub fn parse(text: &str) -> Result<Precision, String> {
        match text {
            "f32" => Ok(Precision::F32),
            "bf16" => Ok(Precision::Bf16),
            _ => Err("valid precisions are f32 and bf16".into()),
        }
    }

    /// The name that [`Precision::parse`] accepts.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
        }
    }
}

/// The dtype of the input of a product of bytes. The weight is i8, and the sums are i32, which wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ByteInput {
    /// u8.
    Unsigned,
    /// i8.
    Signed,
}

impl ByteInput {
    /// The dtype itself.
    pub fn dtype(self) -> DType {
        match self {
            ByteInput::Unsigned => DType::U8,
            ByteInput::Signed => DType::I8,
        }
    }
}

/// A finished rectangle of a result, passed to a [`TileTail`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Tile {
    /// The first element, of the result's dtype: in the result, or in working memory of the contraction.
    pub data: *mut u8,
    /// The stride between rows of `data`, in elements.
    pub data_stride: usize,
    /// The offset of the first element from the start of the result, in elements.
    pub offset: usize,
    /// The index of the matrix in the batch (row-major over the batch dimensions), or of the convolution's image.
    pub batch: usize,
    /// The first row: of the matrix; or, for a convolution, the channel (channels first) or the flat pixel (channels
    /// last).
    pub row: usize,
    /// The first column: of the matrix; or, for a convolution, the flat pixel (channels first) or the channel (channels
    /// last).
    pub col: usize,
    /// The number of rows.
    pub rows: usize,
    /// The number of columns. The elements of a row are contiguous.
    pub cols: usize,
    /// The stride between rows of the result, in elements.
    pub row_stride: usize,
}

/// A fused pointwise kernel (an epilogue). It runs on every tile of a result when the tile is finished and still in
/// cache.
///
/// Every element of the result belongs to exactly one tile. Tiles arrive in any order and from several threads at once.
#[derive(Clone, Copy)]
pub struct TileTail {
    /// The function. It reads and writes the tile in place.
    pub call: unsafe extern "C" fn(context: *const c_void, tile: *const Tile),
    /// The context passed to every call.
    pub context: *const c_void,
    /// An equivalent affine form, if there is one. A plan may apply it to sums in registers instead of calling the function.
    pub affine: Option<ColumnAffine>,
}

/// A tail of a bf16 matrix: `x * scale[column] + shift[column]` of its elements `x`, in f32. If there is an addend, the value is rounded
/// to bf16 and added to it. Then it is clamped, and rounded to bf16.
#[derive(Clone, Copy, Debug)]
pub struct ColumnAffine {
    /// One f32 for each column.
    pub scale: *const f32,
    /// One f32 for each column.
    pub shift: *const f32,
    /// bf16 elements with the offsets of the result's, or null.
    pub addend: *const u16,
    /// The bounds, if any. NaN stays NaN.
    pub bounds: Option<(f32, f32)>,
}

impl ColumnAffine {
    /// The same function of the matrix that begins at element `offset`, in column `col`.
    pub(crate) fn part(self, offset: usize, col: usize) -> ColumnAffine {
        ColumnAffine {
            scale: self.scale.wrapping_add(col),
            shift: self.shift.wrapping_add(col),
            addend: if self.addend.is_null() {
                self.addend
            } else {
                self.addend.wrapping_add(offset)
            },
            bounds: self.bounds,
        }
    }
}

// SAFETY: whoever creates a tail guarantees that it may be called from several threads (see the type).
unsafe impl Send for TileTail {}
// SAFETY: as above.
unsafe impl Sync for TileTail {}

impl TileTail {
    /// A tail without an affine form.
    pub fn new(call: unsafe extern "C" fn(*const c_void, *const Tile), context: *const c_void) -> TileTail {
        TileTail {
            call,
            context,
            affine: None,
        }
    }

    /// Runs the function on a tile.
    ///
    /// # Safety
    /// The tile is finished, valid, and used by nothing else.
    pub unsafe fn run(&self, tile: &Tile) {
        // SAFETY: guaranteed by the caller; the function accepts every finished tile.
        unsafe { (self.call)(self.context, tile) };
    }
}

/// One past the greatest element index of a strided operand; 0 if the operand is empty. `None` if its size in bytes
/// exceeds `isize`.
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

/// Why a library cannot plan an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// The dtype is not supported, by torch or by this library.
    Dtype(DType),
    /// A size or an index does not fit the address space, or the parameters are invalid.
    Size,
    /// A constant operand does not have the length in bytes that the descriptor requires.
    Constant {
        /// The required length.
        need: usize,
        /// The given length.
        got: usize,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::Dtype(d) => write!(f, "dtype {d} is not supported"),
            PlanError::Size => f.write_str("invalid sizes, or sizes that exceed the address space"),
            PlanError::Constant { need, got } => {
                write!(f, "a constant operand has {got} bytes, but {need} are expected")
            }
        }
    }
}

impl std::error::Error for PlanError {}

/// A library that makes plans.
pub trait Library: Send + Sync {
    /// The library's name, for reports.
    fn name(&self) -> &'static str;
    /// Plans a matrix product.
    fn plan_matmul(&self, desc: &MatMul, constants: MatMulConstants) -> Result<Box<dyn MatMulPlan>, PlanError>;
    /// Plans products of groups of rows. `b` are their matrices, if they are constant.
    fn plan_grouped(&self, desc: &Grouped, b: Option<Constant>) -> Result<Box<dyn GroupedPlan>, PlanError>;
    /// Plans a convolution.
    fn plan_conv(&self, desc: &Conv, constants: ConvConstants) -> Result<Box<dyn ConvPlan>, PlanError>;
    /// The number of bytes, beyond the weight itself, that a faster plan of `desc` with a constant weight would keep if
    /// allowed ([`Constant::with_room`]). 0 if there is no such plan. A program's plans share a budget for these bytes.
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
