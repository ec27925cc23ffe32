//! A matrix in f64, with elimination and the Cholesky factor.

use crate::op::OpResult;
use crate::op::rows::dense::zeros;
use crate::tensor::{Scalar, Tensor};
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
        let dot = |i, j| (0..self.columns).map(|k| self.at(i, k) * other.at(k, j)).sum();
        Matrix::from_fn(self.rows, other.columns, dot)
    }

    pub(crate) fn transposed(&self) -> Matrix {
        let place = |k: usize| self.at(k % self.rows, k / self.rows);
        Matrix {
            rows: self.columns,
            columns: self.rows,
            v: (0..self.v.len()).map(place).collect(),
        }
    }

    /// Reduces columns to the identity by elimination with row pivoting, and applies the same steps to `right`. Returns
    /// the determinant's sign, the pivots, and the 1-based position of the first zero pivot (0 if there is none).
    pub(crate) fn eliminate(&mut self, right: &mut Matrix) -> (f64, Vec<f64>, usize) {
        let (mut sign, mut pivots, mut singular) = (1.0, vec![], 0);
        for k in 0..self.rows {
            let larger = |p: usize, i: usize| {
                if self.at(i, k).abs() > self.at(p, k).abs() {
                    i
                } else {
                    p
                }
            };
            let p = (k..self.rows).fold(k, larger);
            if p != k {
                self.swap_rows(p, k);
                right.swap_rows(p, k);
                sign = -sign;
            }
            let pivot = self.at(k, k);
            pivots.push(pivot);
            if pivot == 0.0 {
                singular = if singular == 0 { k + 1 } else { singular };
                continue;
            }
            for i in (0..self.rows).filter(|&i| i != k) {
                let f = self.at(i, k) / pivot;
                if f != 0.0 {
                    self.subtract_row(i, k, f);
                    right.subtract_row(i, k, f);
                }
            }
        }
        for (k, pivot) in pivots.iter().enumerate() {
            (0..right.columns).for_each(|j| right.v[k * right.columns + j] /= pivot);
        }
        (sign, pivots, singular)
    }

    /// Swaps two rows.
    pub(crate) fn swap_rows(&mut self, p: usize, k: usize) {
        (0..self.columns).for_each(|j| self.v.swap(p * self.columns + j, k * self.columns + j));
    }

    /// Subtracts `f` times row `k` from row `i`.
    pub(crate) fn subtract_row(&mut self, i: usize, k: usize, f: f64) {
        for j in 0..self.columns {
            let x = self.at(i, j) - f * self.at(k, j);
            self.set(i, j, x);
        }
    }
}

/// The matrices in the last two dims of a tensor.
pub(in crate::op::rows) fn tensor_to_matrices(t: &Tensor) -> Vec<Matrix> {
    let [lead @ .., rows, columns] = t.shape() else {
        return vec![];
    };
    let (n, size) = (lead.iter().product::<usize>(), rows * columns);
    let matrix = |i: usize| Matrix {
        rows: *rows,
        columns: *columns,
        v: (0..size).map(|k| t.get(i * size + k).to_f64()).collect(),
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
    v.into_iter()
        .take(n)
        .enumerate()
        .for_each(|(i, x)| out.set(i, Scalar::F64(x)));
    Ok(out)
}

/// The Cholesky factor of the lower triangle, and the order of the first leading minor that is not positive (0 if there
/// is none).
pub(in crate::op::rows) fn cholesky_of(m: &Matrix) -> (Matrix, usize) {
    let n = m.rows;
    let mut l = Matrix {
        rows: n,
        columns: n,
        v: vec![0.0; n * n],
    };
    for j in 0..n {
        let square = m.at(j, j) - (0..j).map(|k| l.at(j, k) * l.at(j, k)).sum::<f64>();
        // NaN does not count as positive.
        if square.is_nan() || square <= 0.0 {
            return (l, j + 1);
        }
        let d = square.sqrt();
        l.set(j, j, d);
        for i in j + 1..n {
            let x = m.at(i, j) - (0..j).map(|k| l.at(i, k) * l.at(j, k)).sum::<f64>();
            l.set(i, j, x / d);
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
    fn elimination_gives_inverse_and_determinant() {
        let mut m = matrix(2, &[0.0, 2.0, 4.0, 6.0]);
        let mut right = Matrix::eye(2);
        let (sign, pivots, singular) = m.eliminate(&mut right);
        assert_eq!((sign * pivots[0] * pivots[1], singular), (-8.0, 0));
        assert_eq!(right.v, [-0.75, 0.25, 0.5, 0.0]);
        assert_eq!(matrix(2, &[1.0, 2.0, 2.0, 4.0]).eliminate(&mut Matrix::eye(2)).2, 2);
    }

    #[test]
    fn factors_multiply_back() {
        assert_eq!(cholesky_of(&matrix(2, &[4.0, 2.0, 2.0, 5.0])).0.v, [2.0, 0.0, 1.0, 2.0]);
        assert_eq!(cholesky_of(&matrix(2, &[1.0, 2.0, 2.0, 1.0])).1, 2);
    }
}
