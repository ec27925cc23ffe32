//! Matrices from tensors, and tensors from their results.

use super::interleaved::{Interleaved, LANES, Lanes, MOST};
use super::matrix::Matrix;
use super::real::Real;
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

    /// Whether f32 is as exact as what torch computes with. Small matrices take no longer in f64.
    pub(super) fn are_narrow(&self) -> bool {
        self.numbers.dtype() == DType::F32 && self.rows.max(self.columns) > MOST
    }

    /// The dtype of the elements: f32 or f64.
    pub(super) fn dtype(&self) -> DType {
        self.numbers.dtype()
    }

    /// The elements of matrix `i`, whose dtype is `T`'s.
    pub(super) fn stored<T: Real>(&self, i: usize) -> &[T] {
        let size = self.rows * self.columns;
        &self.numbers.as_slice::<T>()[i * size..(i + 1) * size]
    }

    /// Replaces `out` by matrix `i`.
    pub(super) fn read<T: Real>(&self, i: usize, out: &mut Matrix<T>) {
        (out.rows, out.columns) = (self.rows, self.columns);
        out.v.clear();
        match self.numbers.dtype() {
            DType::F32 => out.v.extend(self.stored::<f32>(i).iter().map(|x| T::from(*x))),
            _ => out.v.extend(self.stored::<f64>(i).iter().map(|x| T::nearest(*x))),
        }
    }

    /// Replaces `out` by the transpose of matrix `i`.
    pub(super) fn read_transposed<T: Real>(&self, i: usize, out: &mut Matrix<T>) {
        self.read(i, out);
        *out = out.transposed();
    }

    /// Matrix `i`.
    pub(super) fn matrix<T: Real>(&self, i: usize) -> Matrix<T> {
        let mut m = Matrix::zeros(0, 0);
        self.read(i, &mut m);
        m
    }

    /// All matrices.
    pub(super) fn all<T: Real>(&self) -> Vec<Matrix<T>> {
        (0..self.count).map(|i| self.matrix(i)).collect()
    }

    /// Whether matrix `i` has neither infinities nor NaN.
    pub(super) fn is_finite(&self, i: usize) -> bool {
        match self.numbers.dtype() {
            DType::F32 => self.stored::<f32>(i).iter().all(|x| x.is_finite()),
            _ => self.stored::<f64>(i).iter().all(|x| x.is_finite()),
        }
    }

    /// Replaces `out` by the matrices with these indices, one per lane, transposed or not.
    pub(super) fn interleave(&self, places: [usize; LANES], transposed: bool, out: &mut Interleaved) {
        let (rows, columns, size) = (self.rows, self.columns, self.rows * self.columns);
        (out.rows, out.columns) = if transposed { (columns, rows) } else { (rows, columns) };
        out.v.resize(size, [0.0; LANES]);
        let starts = places.map(|p| p * size);
        let width = transposed.then_some(columns);
        match self.numbers.dtype() {
            DType::F32 => fill_lanes(self.numbers.as_slice::<f32>(), starts, width, &mut out.v),
            _ => fill_lanes(self.numbers.as_slice::<f64>(), starts, width, &mut out.v),
        }
    }
}

/// Writes the elements of the matrices that start at `starts` to the lanes; transposed if their number of columns is given.
fn fill_lanes<T: Copy + Into<f64>>(v: &[T], starts: [usize; LANES], columns: Option<usize>, out: &mut [Lanes]) {
    let all: [&[T]; LANES] = starts.map(|s| &v[s..s + out.len()]);
    let Some(columns) = columns else {
        for (e, x) in out.iter_mut().enumerate() {
            *x = std::array::from_fn(|l| all[l][e].into());
        }
        return;
    };
    let rows = out.len().checked_div(columns).unwrap_or(0);
    for (j, line) in out.chunks_exact_mut(rows.max(1)).enumerate() {
        for (i, x) in line.iter_mut().enumerate() {
            *x = std::array::from_fn(|l| all[l][i * columns + j].into());
        }
    }
}

/// The matrices in the last two dims of a tensor, in f64.
pub(in crate::op::rows) fn tensor_to_matrices(t: &Tensor) -> Vec<Matrix> {
    Matrices::of(t).all()
}

/// Results in the dtype that they were computed in.
pub(in crate::op::rows) enum Results {
    F32(Vec<f32>),
    F64(Vec<f64>),
}

impl From<Vec<f64>> for Results {
    fn from(v: Vec<f64>) -> Results {
        Results::F64(v)
    }
}

/// [`tensor_from_numbers`] for results.
pub(in crate::op::rows) fn tensor_from_results(dtype: DType, shape: &[usize], v: Results) -> OpResult<Tensor> {
    match v {
        Results::F32(v) => tensor_from_numbers(dtype, shape, v),
        Results::F64(v) => tensor_from_numbers(dtype, shape, v),
    }
}

/// A tensor of these numbers in row-major order.
pub(in crate::op::rows) fn tensor_from_numbers<T: Real>(
    dtype: DType,
    shape: &[usize],
    v: impl IntoIterator<Item = T>,
) -> OpResult<Tensor> {
    let mut out = zeros(dtype, shape)?;
    let n = out.numel();
    let v = v.into_iter().take(n);
    match dtype {
        DType::F32 => write(&mut out, v, |x| x.into() as f32),
        DType::F64 => write(&mut out, v, |x| x.into()),
        // Pivots and error codes.
        DType::I32 => write(&mut out, v.map(|x| x.into()), |x: f64| {
            match x.abs() < f64::from(i32::MAX) {
                true => x as i32,
                false => Scalar::F64(x).cast(DType::I32).to_i64() as i32,
            }
        }),
        _ => v.enumerate().for_each(|(i, x)| out.set(i, Scalar::F64(x.into()))),
    }
    Ok(out)
}

fn write<N, T: Element>(out: &mut Tensor, v: impl Iterator<Item = N>, convert: impl Fn(N) -> T) {
    out.as_mut_slice().iter_mut().zip(v).for_each(|(y, x)| *y = convert(x));
}
