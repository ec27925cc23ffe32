//! A matrix in f64, its products and its Cholesky factor.

use super::lines::{add_scaled, dot};
use crate::op::OpResult;
use crate::op::rows::dense::zeros;
use crate::tensor::{Scalar, Tensor, matmul_f64, with_wide_vectors};
use crate::types::DType;

/// A row-major f64 matrix.
#[derive(Clone)]
pub(in crate::op::rows) struct Matrix {
    /// The number of rows.
    pub rows: usize,
    /// The number of columns.
    pub columns: usize,
    /// The elements in row-major order.
    pub v: Vec<f64>,
}

impl Matrix {
    pub(crate) fn at(&self, i: usize, j: usize) -> f64 {
        self.v[i * self.columns + j]
    }

    pub(crate) fn set(&mut self, i: usize, j: usize, x: f64) {
        self.v[i * self.columns + j] = x;
    }

    pub(crate) fn eye(n: usize) -> Matrix {
        let v = (0..n * n).map(|i| (i % (n + 1) == 0) as u8 as f64).collect();
        Matrix { rows: n, columns: n, v }
    }

    pub(crate) fn zeros(rows: usize, columns: usize) -> Matrix {
        let v = vec![0.0; rows * columns];
        Matrix { rows, columns, v }
    }

    pub(crate) fn from_fn(rows: usize, columns: usize, f: impl Fn(usize, usize) -> f64) -> Matrix {
        let v = (0..rows * columns).map(|k| f(k / columns, k % columns)).collect();
        Matrix { rows, columns, v }
    }

    /// The matrix product.
    pub(crate) fn times(&self, other: &Matrix) -> Matrix {
        let mut out = Matrix::zeros(self.rows, other.columns);
        matmul_f64(self.rows, self.columns, other.columns, &self.v, &other.v, &mut out.v);
        out
    }

    pub(crate) fn transposed(&self) -> Matrix {
        let place = |k: usize| self.at(k % self.rows, k / self.rows);
        Matrix {
            rows: self.columns,
            columns: self.rows,
            v: (0..self.v.len()).map(place).collect(),
        }
    }

    /// Swaps two rows.
    pub(crate) fn swap_rows(&mut self, p: usize, k: usize) {
        (0..self.columns).for_each(|j| self.v.swap(p * self.columns + j, k * self.columns + j));
    }

    /// Subtracts `f` times row `k` from row `i`.
    #[inline(always)]
    pub(crate) fn subtract_row(&mut self, i: usize, k: usize, f: f64) {
        self.subtract_row_from(i, k, f, 0);
    }

    /// [`Matrix::subtract_row`] for the columns from `first` on.
    #[inline(always)]
    pub(crate) fn subtract_row_from(&mut self, i: usize, k: usize, f: f64, first: usize) {
        let n = self.columns;
        let (y, x) = match i > k {
            true => {
                let (head, tail) = self.v.split_at_mut(i * n);
                (&mut tail[first..n], &head[k * n + first..(k + 1) * n])
            }
            false => {
                let (head, tail) = self.v.split_at_mut(k * n);
                (&mut head[i * n + first..(i + 1) * n], &tail[first..n])
            }
        };
        add_scaled(y, -f, x);
    }
}

/// The matrices in the last two dims of a tensor.
pub(in crate::op::rows) fn tensor_to_matrices(t: &Tensor) -> Vec<Matrix> {
    let [lead @ .., rows, columns] = t.shape() else {
        return vec![];
    };
    let (n, size) = (lead.iter().product::<usize>(), rows * columns);
    let wide = t.to(DType::F64);
    let numbers = wide.as_slice::<f64>();
    let matrix = |i: usize| Matrix {
        rows: *rows,
        columns: *columns,
        v: numbers[i * size..(i + 1) * size].to_vec(),
    };
    (0..n).map(matrix).collect()
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
        DType::F32 => out.as_mut_slice().iter_mut().zip(v).for_each(|(y, x)| *y = x as f32),
        DType::F64 => out.as_mut_slice().iter_mut().zip(v).for_each(|(y, x)| *y = x),
        _ => v.enumerate().for_each(|(i, x)| out.set(i, Scalar::F64(x))),
    }
    Ok(out)
}

/// The Cholesky factor of the lower triangle, and the order of the first leading minor that is not positive (0 if there
/// is none).
pub(in crate::op::rows) fn cholesky_of(m: &Matrix) -> (Matrix, usize) {
    with_wide_vectors(|| cholesky_rows(m))
}

#[inline(always)]
fn cholesky_rows(m: &Matrix) -> (Matrix, usize) {
    let n = m.rows;
    let mut l = Matrix::zeros(n, n);
    for j in 0..n {
        let (upper, lower) = l.v.split_at_mut((j + 1) * n);
        let row = &mut upper[j * n..];
        let square = m.at(j, j) - dot(&row[..j], &row[..j]);
        // NaN does not count as positive.
        if square.is_nan() || square <= 0.0 {
            return (l, j + 1);
        }
        let d = square.sqrt();
        row[j] = d;
        for (i, below) in lower.chunks_exact_mut(n).enumerate() {
            below[j] = (m.at(j + 1 + i, j) - dot(&below[..j], &row[..j])) / d;
        }
    }
    (l, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(rows: usize, v: &[f64]) -> Matrix {
        Matrix {
            rows,
            columns: v.len() / rows,
            v: v.to_vec(),
        }
    }

    #[test]
    fn factors_multiply_back() {
        assert_eq!(cholesky_of(&matrix(2, &[4.0, 2.0, 2.0, 5.0])).0.v, [2.0, 0.0, 1.0, 2.0]);
        assert_eq!(cholesky_of(&matrix(2, &[1.0, 2.0, 2.0, 1.0])).1, 2);
    }
}
