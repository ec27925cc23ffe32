//! Batches of small matrices: each lane of a vector has a matrix of its own, and a loop over elements handles all of them. Every lane
//! computes what the routine for a single matrix computes, in the same order.

pub(super) mod blocks;
pub(super) mod cholesky;
pub(super) mod exponential;
pub(super) mod implicit_qr;
pub(super) mod jacobi;
pub(super) mod lu;
mod products;
pub(super) mod ql;
pub(super) mod qr;
mod scales;
pub(super) mod spectra;
pub(super) mod triangles;
mod vectors;

use super::LANES;
use super::real::Real;
use std::ops::Range;

/// One element of each matrix.
pub(super) type Lanes = [f64; LANES];

/// The maximum number of rows or columns. Eight larger matrices of f64 do not stay in the first cache.
pub(super) const MAX_SIZE: usize = 24;

/// The minimum number of matrices. Fewer leave most lanes idle.
const MIN_COUNT: usize = 4;

/// Whether matrices of a batch should be handled side by side.
pub(super) fn suits(count: usize, rows: usize, columns: usize) -> bool {
    count >= MIN_COUNT && rows.max(columns) <= MAX_SIZE
}

/// The first index of each group of the matrices in `range`, which begins with a group.
pub(super) fn groups(range: Range<usize>) -> impl Iterator<Item = usize> {
    range.step_by(LANES)
}

/// The indices of the matrices of a group. Surplus lanes repeat the last matrix.
pub(super) fn places(first: usize, count: usize) -> [usize; LANES] {
    std::array::from_fn(|l| (first + l).min(count - 1))
}

/// Matrices of the same sizes, one per lane.
#[derive(Clone)]
pub(super) struct Interleaved {
    /// The number of rows.
    pub rows: usize,
    /// The number of columns.
    pub columns: usize,
    /// The elements in row-major order.
    pub v: Vec<Lanes>,
}

impl Interleaved {
    pub(super) fn zeros(rows: usize, columns: usize) -> Interleaved {
        Interleaved {
            rows,
            columns,
            v: vec![[0.0; LANES]; rows * columns],
        }
    }

    pub(super) fn at(&self, i: usize, j: usize) -> &Lanes {
        &self.v[i * self.columns + j]
    }

    /// Makes every matrix the identity of `n` rows.
    pub(super) fn set_eye(&mut self, n: usize) {
        (self.rows, self.columns) = (n, n);
        self.v.clear();
        self.v
            .extend((0..n * n).map(|i| [(i % (n + 1) == 0) as u8 as f64; LANES]));
    }

    /// Appends the first `count` matrices to `out`, transposed or not.
    pub(super) fn append<T: Real>(&self, count: usize, transposed: bool, out: &mut Vec<T>) {
        for l in 0..count.min(LANES) {
            match transposed {
                true => {
                    (0..self.columns).for_each(|j| out.extend((0..self.rows).map(|i| T::nearest(self.at(i, j)[l]))))
                }
                false => out.extend(self.v.iter().map(|x| T::nearest(x[l]))),
            }
        }
    }

    /// Swaps two rows of the matrix in a lane.
    #[inline(always)]
    pub(super) fn swap_rows(&mut self, lane: usize, p: usize, q: usize) {
        let n = self.columns;
        for j in 0..n {
            let x = self.v[p * n + j][lane];
            self.v[p * n + j][lane] = self.v[q * n + j][lane];
            self.v[q * n + j][lane] = x;
        }
    }

    /// Rows `p` and `q` for writing, where `p < q`.
    #[inline(always)]
    pub(super) fn two_rows(&mut self, p: usize, q: usize) -> (&mut [Lanes], &mut [Lanes]) {
        let n = self.columns;
        let (head, tail) = self.v.split_at_mut(q * n);
        (&mut head[p * n..][..n], &mut tail[..n])
    }
}

/// Tests compare the lanes with the routines for a single matrix.
#[cfg(test)]
mod testing {
    use super::*;
    use crate::linalg::matrix::Matrix;

    /// Different matrices in the lanes; some are singular, or have NaN.
    pub(super) fn samples(n: usize, columns: usize) -> Vec<Matrix> {
        let element = |l: usize, i: usize, j: usize| match (l, i, j) {
            (1, _, 0) => 0.0,
            (2, 1, 0) => f64::NAN,
            (3, _, 1) => 2.0,
            _ => ((i * 7 + j * 5 + i * j + 3 * l) % 11) as f64 - 4.0,
        };
        (0..LANES)
            .map(|l| Matrix::from_fn(n, columns, |i, j| element(l, i, j)))
            .collect()
    }

    pub(super) fn side_by_side(all: &[Matrix]) -> Interleaved {
        let mut out = Interleaved::zeros(all[0].rows, all[0].columns);
        for (e, x) in out.v.iter_mut().enumerate() {
            *x = std::array::from_fn(|l| all[l].v[e]);
        }
        out
    }

    pub(super) fn equal(a: &Interleaved, lane: usize, m: &Matrix) {
        let same = |(x, y): (&Lanes, &f64)| x[lane] == *y || (x[lane].is_nan() && y.is_nan());
        assert!(a.v.iter().zip(&m.v).all(same), "lane {lane}: {:?}", m.v);
    }
}
