//! Matrices read from tensors, and results for tensors.

use super::LANES;
use super::lanes::{Interleaved, Lanes, MAX_SIZE};
use super::matrix::Matrix;
use super::real::Real;
use crate::tensor::Tensor;
use crate::types::DType;

/// The matrices in the last two dims of a tensor. They are read one after the other, so that all can use the same memory.
pub(crate) struct Matrices {
    numbers: Tensor,
    /// The number of matrices.
    pub count: usize,
    /// The number of rows of each.
    pub rows: usize,
    /// The number of columns of each.
    pub columns: usize,
}

impl Matrices {
    pub(crate) fn of(t: &Tensor) -> Matrices {
        let numbers = match t.dtype() {
            DType::F32 | DType::F64 => t.clone(),
            // f32 has the numbers of both halves, and more digits than their results.
            DType::F16 | DType::BF16 => t.to(DType::F32),
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

    /// Whether to compute in f32, as torch does for tensors of f32. Small matrices take no longer in f64.
    pub(super) fn are_narrow(&self) -> bool {
        self.numbers.dtype() == DType::F32 && self.rows.max(self.columns) > MAX_SIZE
    }

    /// The dtype of the elements: f32 or f64.
    pub(crate) fn dtype(&self) -> DType {
        self.numbers.dtype()
    }

    /// The elements of matrix `i`. `T` must be the type of [`dtype`](Self::dtype).
    pub(crate) fn stored<T: Real>(&self, i: usize) -> &[T] {
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
    pub(crate) fn all<T: Real>(&self) -> Vec<Matrix<T>> {
        (0..self.count).map(|i| self.matrix(i)).collect()
    }

    /// Whether matrix `i` has neither infinities nor NaN.
    pub(crate) fn is_finite(&self, i: usize) -> bool {
        match self.numbers.dtype() {
            DType::F32 => self.stored::<f32>(i).iter().all(|x| x.is_finite()),
            _ => self.stored::<f64>(i).iter().all(|x| x.is_finite()),
        }
    }

    /// Replaces `out` by the matrices at these places, one per lane, transposed or not.
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

/// Writes the matrices that start at `starts` to the lanes. They are transposed if their number of columns is given.
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

/// Results in the dtype that they were computed in.
pub(crate) enum Results {
    F32(Vec<f32>),
    F64(Vec<f64>),
}

impl From<Vec<f64>> for Results {
    fn from(v: Vec<f64>) -> Results {
        Results::F64(v)
    }
}

/// Pivots and error codes. f64 represents all row numbers exactly.
impl From<Vec<usize>> for Results {
    fn from(v: Vec<usize>) -> Results {
        Results::F64(v.into_iter().map(|x| x as f64).collect())
    }
}
