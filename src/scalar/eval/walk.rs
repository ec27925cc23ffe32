//! Evaluates expressions over whole tensors, reading broadcast operands in blocks.

use super::{BlockEvaluator, EvalError, Lane, LaneSource};
use crate::scalar::ScalarExpr;
use crate::tensor::{Tensor, byte_len, contiguous_strides, round_to_bf16, round_to_f16};
use crate::types::DType;
use half::{bf16, f16};

/// The number of elements evaluated at a time. A dozen f64 values for each fit the L1 cache.
const BLOCK: usize = 1024;

/// The results of `expr` over a whole tensor of `shape`. Argument `n` is `operands[n]`, broadcast to `shape`. Panics if
/// an operand's shape does not broadcast or its dtype is not the argument's.
pub(crate) fn eval_tensors(expr: &ScalarExpr, operands: &[&Tensor], shape: &[usize]) -> Result<Vec<Tensor>, EvalError> {
    for &r in &expr.roots {
        byte_len(expr.dtype(r), shape).ok_or(EvalError::TooLarge)?;
    }
    let roots = expr.roots.iter();
    let mut out: Vec<Tensor> = roots.map(|&r| Tensor::zeros(expr.dtype(r), shape)).collect();
    let total: usize = shape.iter().product();
    let walks: Vec<OperandWalk> = operands.iter().map(|t| OperandWalk::new(t.shape(), shape)).collect();
    let mut e = BlockEvaluator::new(expr);
    let mut start = 0;
    while start < total {
        let n = BLOCK.min(total - start);
        e.run(n, &mut |source, lane| match source {
            LaneSource::Arg(k) => walks[k as usize].load_lane(operands[k as usize], shape, start, n, lane),
            LaneSource::Index(d) => fill_indices(shape, d, start, n, lane.int_mut()),
        })?;
        for (t, &r) in out.iter_mut().zip(&expr.roots) {
            store_lane(e.lane(r), t, start);
        }
        start += n;
    }
    Ok(out)
}

fn fill_indices(shape: &[usize], d: u32, start: usize, n: usize, out: &mut Vec<i64>) {
    let (size, inner) = match shape.len().checked_sub(1 + d as usize) {
        Some(i) => (shape[i], shape[i + 1..].iter().product::<usize>()),
        None => (1, 1),
    };
    out.clear();
    out.extend((start..start + n).map(|i| (i / inner % size) as i64));
}

/// How an operand is read for a result of another shape.
enum OperandWalk {
    /// Element for element.
    Same,
    /// One element for all elements of the result.
    One,
    /// With these strides, one per dimension of the result; 0 where the operand is broadcast.
    Strided(Vec<usize>),
}

impl OperandWalk {
    fn new(operand: &[usize], shape: &[usize]) -> OperandWalk {
        let lead = shape.len().checked_sub(operand.len());
        let lead = lead.unwrap_or_else(|| panic!("{operand:?} does not broadcast to {shape:?}"));
        if operand.iter().all(|&d| d == 1) {
            return OperandWalk::One;
        }
        if operand == &shape[lead..] && shape[..lead].iter().all(|&d| d == 1) {
            return OperandWalk::Same;
        }
        let strides = contiguous_strides(operand);
        let stride = |i: usize| {
            let j = i.checked_sub(lead)?;
            assert!(operand[j] == 1 || operand[j] == shape[i], "{operand:?} to {shape:?}");
            (operand[j] != 1).then(|| strides[j])
        };
        OperandWalk::Strided((0..shape.len()).map(|i| stride(i).unwrap_or(0)).collect())
    }

    fn load_lane(&self, t: &Tensor, shape: &[usize], start: usize, n: usize, lane: &mut Lane) {
        match self {
            OperandWalk::One => lane.fill(t.get(0), n),
            OperandWalk::Same => gather_lane(t, start..start + n, lane),
            OperandWalk::Strided(strides) => {
                gather_lane(t, operand_positions(shape, strides, start, n).into_iter(), lane)
            }
        }
    }
}

/// The operand's positions for elements `start..start + n` of the row-major result.
fn operand_positions(shape: &[usize], strides: &[usize], start: usize, n: usize) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    let mut rest = start;
    for i in (0..shape.len()).rev() {
        index[i] = rest % shape[i];
        rest /= shape[i];
    }
    let last = shape.len() - 1;
    let mut out = Vec::with_capacity(n);
    while out.len() < n {
        let base: usize = index.iter().zip(strides).map(|(i, s)| i * s).sum();
        let run = (shape[last] - index[last]).min(n - out.len());
        out.extend((0..run).map(|j| base + j * strides[last]));
        index[last] += run;
        for i in (1..=last).rev() {
            if index[i] == shape[i] {
                index[i] = 0;
                index[i - 1] += 1;
            }
        }
    }
    out
}

fn gather_lane(t: &Tensor, positions: impl Iterator<Item = usize>, lane: &mut Lane) {
    fn gather_elements<T: Copy, U>(
        x: &[T],
        positions: impl Iterator<Item = usize>,
        out: &mut Vec<U>,
        f: impl Fn(T) -> U,
    ) {
        out.clear();
        out.extend(positions.map(|i| f(x[i])));
    }
    match t.dtype() {
        DType::F64 => gather_elements(t.as_slice::<f64>(), positions, lane.f64_mut(), |v| v),
        DType::F32 => gather_elements(t.as_slice::<f32>(), positions, lane.f32_mut(), |v| v),
        DType::F16 => gather_elements(t.as_slice::<f16>(), positions, lane.f32_mut(), f16::to_f32),
        DType::BF16 => gather_elements(t.as_slice::<bf16>(), positions, lane.f32_mut(), bf16::to_f32),
        DType::I64 => gather_elements(t.as_slice::<i64>(), positions, lane.int_mut(), |v| v),
        DType::I32 => gather_elements(t.as_slice::<i32>(), positions, lane.int_mut(), |v| v as i64),
        DType::I16 => gather_elements(t.as_slice::<i16>(), positions, lane.int_mut(), |v| v as i64),
        DType::I8 => gather_elements(t.as_slice::<i8>(), positions, lane.int_mut(), |v| v as i64),
        DType::U8 => gather_elements(t.as_slice::<u8>(), positions, lane.int_mut(), |v| v as i64),
        DType::B8 => gather_elements(t.bytes(), positions, lane.bool_mut(), |v| v != 0),
        d => panic!("{d} has no scalars"),
    }
}

fn store_lane(lane: &Lane, t: &mut Tensor, start: usize) {
    fn store_elements<T: Copy, U>(x: &[T], out: &mut [U], start: usize, f: impl Fn(T) -> U) {
        for (o, &v) in out[start..start + x.len()].iter_mut().zip(x) {
            *o = f(v);
        }
    }
    match (t.dtype(), lane) {
        (DType::F64, Lane::F64(x)) => store_elements(x, t.as_mut_slice::<f64>(), start, |v| v),
        (DType::F32, Lane::F32(x)) => store_elements(x, t.as_mut_slice::<f32>(), start, |v| v),
        (DType::F16, Lane::F32(x)) => store_elements(x, t.as_mut_slice::<f16>(), start, round_to_f16),
        (DType::BF16, Lane::F32(x)) => store_elements(x, t.as_mut_slice::<bf16>(), start, round_to_bf16),
        (DType::I64, Lane::Int(x)) => store_elements(x, t.as_mut_slice::<i64>(), start, |v| v),
        (DType::I32, Lane::Int(x)) => store_elements(x, t.as_mut_slice::<i32>(), start, |v| v as i32),
        (DType::I16, Lane::Int(x)) => store_elements(x, t.as_mut_slice::<i16>(), start, |v| v as i16),
        (DType::I8, Lane::Int(x)) => store_elements(x, t.as_mut_slice::<i8>(), start, |v| v as i8),
        (DType::U8, Lane::Int(x)) => store_elements(x, t.as_mut_slice::<u8>(), start, |v| v as u8),
        (DType::B8, Lane::Bool(x)) => store_elements(x, t.bytes_mut(), start, |v| v as u8),
        (d, l) => panic!("{d} results from {l:?}"),
    }
}
