//! Matrices from tensors, and tensors from their results.

use super::interleaved::{Interleaved, LANES};
use super::matrix::Matrix;
use crate::op::OpResult;
use crate::op::rows::dense::zeros;
use crate::tensor::{Element, Scalar, Tensor};
use crate::types::DType;

/// The matrices in the last two dims of a tensor, which are read one after the other into memory that they share.
pub(super) struct Matrices {
    numbers: Tensor,
    /// The number of matrices.
    pub count: usize,
    /// The number of rows of each.
    pub rows: usize,
    /// The number of columns of each.
    pub columns: usize,
}

/// The elements of matrices in the dtype that they are stored in.
pub(super) enum Numbers<'a> {
    F32(&'a [f32]),
    F64(&'a [f64]),
}

impl Matrices {
    pub(super) fn of(t: &Tensor) -> Matrices {
        let numbers = match t.dtype() {
            DType::F32 | DType::F64 => t.clone(),
            _ => t.to(DType::F64),
        };
        let (count, rows, columns) = match t.shape() {
            [lead @ .., rows, columns] => (lead.iter().product(), *rows, *columns),
            _ => (0, 0, 0),
        };
        Matrices {
            numbers,
            count,
            rows,
            columns,
        }
    }

    /// The elements of matrix `i`.
    pub(super) fn numbers(&self, i: usize) -> Numbers<'_> {
        let size = self.rows * self.columns;
        let range = i * size..(i + 1) * size;
        match self.numbers.dtype() {
            DType::F32 => Numbers::F32(&self.numbers.as_slice()[range]),
            _ => Numbers::F64(&self.numbers.as_slice()[range]),
        }
    }

    /// Replaces `out` by matrix `i`.
    pub(super) fn read(&self, i: usize, out: &mut Matrix) {
        (out.rows, out.columns) = (self.rows, self.columns);
        out.v.clear();
        match self.numbers(i) {
            Numbers::F32(v) => out.v.extend(v.iter().map(|x| f64::from(*x))),
            Numbers::F64(v) => out.v.extend_from_slice(v),
        }
    }

    /// Replaces `out` by the transpose of matrix `i`.
    pub(super) fn read_transposed(&self, i: usize, out: &mut Matrix) {
        self.read(i, out);
        *out = out.transposed();
    }

    /// Replaces `out` by the matrices with these indices, one per lane, transposed or not.
    pub(super) fn interleave(&self, places: [usize; LANES], transposed: bool, out: &mut Interleaved) {
        let (rows, columns, size) = (self.rows, self.columns, self.rows * self.columns);
        let order = if transposed { (columns, rows) } else { (rows, columns) };
        (out.rows, out.columns) = order;
        out.v.clear();
        let starts = places.map(|p| p * size);
        let mut gather = |read: &dyn Fn(usize) -> [f64; LANES]| match transposed {
            true => (0..columns).for_each(|j| out.v.extend((0..rows).map(|i| read(i * columns + j)))),
            false => out.v.extend((0..size).map(read)),
        };
        match self.numbers.dtype() {
            DType::F32 => gather(&|e| element_of(self.numbers.as_slice::<f32>(), &starts, e)),
            _ => gather(&|e| element_of(self.numbers.as_slice::<f64>(), &starts, e)),
        }
    }
}

/// Element `e` of the matrices that start at `starts`.
#[inline(always)]
fn element_of<T: Copy + Into<f64>>(v: &[T], starts: &[usize; LANES], e: usize) -> [f64; LANES] {
    std::array::from_fn(|l| v[starts[l] + e].into())
}

/// The matrices in the last two dims of a tensor.
pub(in crate::op::rows) fn tensor_to_matrices(t: &Tensor) -> Vec<Matrix> {
    let all = Matrices::of(t);
    let matrix = |i: usize| {
        let mut m = Matrix::zeros(0, 0);
        all.read(i, &mut m);
        m
    };
    (0..all.count).map(matrix).collect()
}

/// A tensor of these numbers in row-major order.
pub(in crate::op::rows) fn tensor_from_numbers(
    dtype: DType,
    shape: &[usize],
    v: impl IntoIterator<Item = f64>,
) -> OpResult<Tensor> {
    let mut out = zeros(dtype, shape)?;
    let n = out.numel();
    let v = v.into_iter().take(n);
    match dtype {
        DType::F32 => write(&mut out, v, |x| x as f32),
        DType::F64 => write(&mut out, v, |x| x),
        // Pivots and error codes.
        DType::I32 => write(&mut out, v, |x| match x.abs() < f64::from(i32::MAX) {
            true => x as i32,
            false => Scalar::F64(x).cast(DType::I32).to_i64() as i32,
        }),
        _ => v.enumerate().for_each(|(i, x)| out.set(i, Scalar::F64(x))),
    }
    Ok(out)
}

fn write<T: Element>(out: &mut Tensor, v: impl Iterator<Item = f64>, convert: impl Fn(f64) -> T) {
    out.as_mut_slice().iter_mut().zip(v).for_each(|(y, x)| *y = convert(x));
}
