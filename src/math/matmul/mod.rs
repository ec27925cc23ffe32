//! Matrix products.
//!
//! f32 has its own kernels: [`native`] with packed operands, register tiles and blocking, [`dot`] for a few rows times a
//! transposed dynamic matrix, and [`small`] for matrices, one or many, that are too small for either. [`pairs`] multiplies
//! pairs of bf16 and groups of four bytes, and [`lines`] bf16 of few rows or few product indices,
//! [`pair_dots`] that of few rows times contiguous columns. A constant B of integers times
//! scales is packed as [`integers`]. Integers and small or narrow products of f64 are multiplied in lanes ([`in_lanes`]), other f64 by
//! the `gemm` crate ([`other`]), and f16 is converted to and from f32 ([`half`]).

pub(crate) mod dot;
mod grid;
mod grouped;
mod half;
mod in_lanes;
mod integers;
mod lines;
pub(crate) mod native;
mod other;
pub(crate) mod packed;
mod pair_dots;
pub(crate) mod pairs;
mod small;
#[cfg(test)]
mod tests;
mod tiled;

use super::contract::{BatchDim, MatMul, MatMulConstants, MatMulPlan, PlanError, Precision, Tile, TileTail};
use super::pairs::PairKernels;
use crate::types::DType;

pub(super) use grouped::plan as plan_grouped;

/// Plans a product for the instruction sets of `pairs`, which the machine must support.
pub(super) fn plan(
    pairs: PairKernels,
    precision: Precision,
    desc: &MatMul,
    constants: MatMulConstants,
) -> Result<Box<dyn MatMulPlan>, PlanError> {
    let extents = check_operands(desc, constants)?;
    if let Some(input) = desc.bytes {
        // See the descriptor: others do not exist.
        if desc.addend.is_some() || desc.alpha != 1.0 || desc.dtype != DType::I32 {
            return Err(PlanError::Dtype(desc.dtype));
        }
        let pairs = pairs.for_bytes(input);
        return Ok(Box::new(pairs::PairMatMulPlan::new(pairs, desc, constants)));
    }
    if let Some(plan) = plan_unpacked_bf16(pairs, desc, constants, extents) {
        return Ok(plan);
    }
    if let Some(plan) = plan_pairs(pairs, precision, desc, constants) {
        return Ok(Box::new(plan));
    }
    match desc.dtype {
        DType::BF16 | DType::F16 => Ok(half::plan(&pairs, desc, constants, extents)),
        DType::F32 if small::is_applicable(desc, pairs.isa, &constants) => {
            Ok(Box::new(small::SmallPlan::new(pairs.isa, desc)))
        }
        DType::F32 => {
            let plan = native::F32MatMulPlan::with_quads(pairs.isa, pairs.has_quads, desc, constants);
            Ok(Box::new(plan))
        }
        DType::F64 if !in_lanes::suits_doubles(desc) => Ok(Box::new(other::OtherPlan::new(desc, constants))),
        DType::F64 | DType::I64 | DType::I32 | DType::I16 | DType::I8 | DType::U8 => {
            Ok(Box::new(in_lanes::LanePlan::new(pairs.isa, desc, constants)))
        }
        d => Err(PlanError::Dtype(d)),
    }
}

/// A plan that does not pack pairs, if the operands are bf16 and that is faster.
fn plan_unpacked_bf16(
    pairs: PairKernels,
    desc: &MatMul,
    constants: MatMulConstants,
    extents: [usize; 4],
) -> Option<Box<dyn MatMulPlan>> {
    if desc.dtype != DType::BF16 {
        return None;
    }
    if lines::is_applicable(&pairs, desc, &constants) {
        return Some(Box::new(lines::LinePlan::new(desc)));
    }
    if pair_dots::is_applicable(&pairs, desc, &constants) {
        return Some(Box::new(pair_dots::PairDotsPlan::new(pairs, desc)));
    }
    let in_f32 = half::is_faster_in_f32(pairs.isa, desc, &constants);
    in_f32.then(|| half::plan(&pairs, desc, constants, extents))
}

/// The operands' extents. Returns an error unless the sizes are valid and constants span them.
fn check_operands(desc: &MatMul, constants: MatMulConstants) -> Result<[usize; 4], PlanError> {
    let extents = desc.extents().ok_or(PlanError::Size)?;
    if desc.c_row < desc.n && desc.m > 1 {
        return Err(PlanError::Size);
    }
    for (constant, n) in [(constants.a, extents[0]), (constants.b, extents[1])] {
        let (need, got) = (n * desc.factor_size(), constant.map(|c| c.len()));
        if let Some(got) = got.filter(|&got| got < need) {
            return Err(PlanError::Constant { need, got });
        }
    }
    Ok(extents)
}

/// A plan that multiplies pairs of bf16, if the operands are bf16, or f32 that may be rounded to bf16.
fn plan_pairs(
    pairs: PairKernels,
    precision: Precision,
    desc: &MatMul,
    constants: MatMulConstants,
) -> Option<pairs::PairMatMulPlan> {
    if desc.exact_in_bf16 && pairs.are_faster_than_f32() && desc.m > integers::ROWS {
        // Unpacking integers in every call would take longer than reading pairs.
        return Some(pairs::PairMatMulPlan::new(pairs, desc, constants));
    }
    let pairs_multiply = desc.dtype == DType::BF16 || desc.dtype == DType::F32 && precision == Precision::Bf16;
    match (pairs_multiply, desc.quantized) {
        (false, _) => None,
        (true, None) => Some(pairs::PairMatMulPlan::new(pairs, desc, constants)),
        // Integers are exact in f32, and reading them is cheaper than reading pairs.
        (true, Some(_)) => pairs::PairMatMulPlan::with_integers(pairs, desc, constants),
    }
}

/// Offsets of A, B, C and the addend of one matrix of a batch, in elements.
#[derive(Clone, Copy, Default, Debug)]
struct Offsets {
    a: usize,
    b: usize,
    c: usize,
    addend: usize,
}

impl Offsets {
    /// The strides along a dimension of the batch.
    fn along(d: BatchDim) -> Offsets {
        Offsets {
            a: d.a,
            b: d.b,
            c: d.c,
            addend: d.addend,
        }
    }

    /// The offsets of matrix `index`, row-major over the batch dimensions.
    fn for_matrix(desc: &MatMul, mut index: usize) -> Offsets {
        let mut o = Offsets::default();
        for d in desc.batch.iter().rev() {
            let i = index % d.size;
            index /= d.size;
            o.a += i * d.a;
            o.b += i * d.b;
            o.c += i * d.c;
            o.addend += i * d.addend;
        }
        o
    }
}

/// A rectangle of one matrix of a result.
#[derive(Clone, Copy, Debug)]
struct Rect {
    batch: usize,
    row: usize,
    col: usize,
    rows: usize,
    cols: usize,
}

/// Runs `tail` on a rectangle of the matrix that starts `offset` elements into the result at `c`.
///
/// # Safety
/// The rectangle lies in the result and is finished; nothing else uses it.
unsafe fn run_tail(desc: &MatMul, tail: &TileTail, c: *mut u8, offset: usize, r: Rect) {
    let first = offset + r.row * desc.c_row + r.col;
    // SAFETY: the rectangle lies in the result.
    unsafe { run_tail_on(desc, tail, [first, desc.c_row], c.add(first * desc.dtype.size()), r) };
}

/// Runs `tail` on a rectangle that begins with element `first` of the result and whose elements are at `data`, with the
/// given stride between rows.
///
/// # Safety
/// The rectangle lies in the result; its elements are finished, and nothing else uses them.
unsafe fn run_tail_on(desc: &MatMul, tail: &TileTail, [first, data_stride]: [usize; 2], data: *mut u8, r: Rect) {
    let tile = Tile {
        data,
        data_stride,
        offset: first,
        batch: r.batch,
        row: r.row,
        col: r.col,
        rows: r.rows,
        cols: r.cols,
        row_stride: desc.c_row,
    };
    // SAFETY: the tail accepts any finished tile.
    unsafe { tail.run(&tile) };
}
