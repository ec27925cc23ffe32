//! Least-squares solutions of minimal norm by singular values (LAPACK's `gelss`).

use super::svd_of;
use crate::linalg::matrix::Matrix;
use crate::linalg::threads::{in_parts, work_of};

/// The least-squares solution of minimal norm for one matrix and its right-hand sides.
pub(crate) struct LeastSquares {
    pub(crate) x: Vec<f64>,
    /// The residual sum of squares for each right-hand side.
    pub(crate) rest: Vec<f64>,
    pub(crate) rank: usize,
    pub(crate) values: Vec<f64>,
}

impl LeastSquares {
    /// Solves `count` equations, whose matrices and right-hand sides `pair` returns.
    pub(crate) fn solve_all<'a>(
        count: usize,
        pair: impl Fn(usize) -> (&'a Matrix, &'a Matrix) + Sync,
        rcond: Option<f64>,
    ) -> Vec<LeastSquares> {
        // Rotations take many times as long as a factorisation.
        let work = |(a, b): (&Matrix, &Matrix)| work_of(a.rows, a.columns.max(b.columns)).saturating_mul(16);
        let work = if count > 0 { work(pair(0)) } else { 0 };
        let solve = |i: usize| LeastSquares::solve(pair(i).0, pair(i).1, rcond);
        in_parts(count, 1, work, |range| range.map(solve).collect())
    }

    /// Solves by singular values. Those up to `rcond` times the largest count as 0; without `rcond`, only exact zeros
    /// do.
    fn solve(a: &Matrix, b: &Matrix, rcond: Option<f64>) -> LeastSquares {
        let (u, values, v) = svd_of(a);
        let least = rcond.map_or(0.0, |r| r * values.first().copied().unwrap_or(0.0));
        let inverse = |s: f64| if s > least { 1.0 / s } else { 0.0 };
        let parts = u.transposed().times(b);
        let parts = Matrix::from_fn(parts.rows, parts.columns, |i, j| parts.at(i, j) * inverse(values[i]));
        let solution = v.times(&parts);
        let product = a.times(&solution);
        let square = |i: usize, j: usize| (b.at(i, j) - product.at(i, j)).powi(2);
        LeastSquares {
            x: solution.v,
            rest: (0..b.columns)
                .map(|j| (0..b.rows).map(|i| square(i, j)).sum())
                .collect(),
            rank: values.iter().filter(|s| **s > least).count(),
            values,
        }
    }
}
