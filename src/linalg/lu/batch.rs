//! LU factors of batches, and inverses and determinants by them.

use super::{inverse_of, lu, pivot_sign};
use crate::linalg::LANES;
use crate::linalg::batch::{Matrices, Results};
use crate::linalg::lanes::lu::Pivots;
use crate::linalg::lanes::{self, Interleaved};
use crate::linalg::matrix::Matrix;
use crate::linalg::real::{Real, in_dtype};

/// LU factors.
pub(super) enum Factors<'a, T> {
    /// Of a matrix: with the pivots and the 1-based position of the first zero pivot (0 if there is none).
    One(&'a Matrix<T>, &'a [usize], usize),
    /// Of matrices side by side: with the number of matrices.
    Many(&'a Interleaved, &'a Pivots, usize),
}

/// Calls `f` with the LU factors of all matrices in their order.
pub(super) fn each_lu<T: Real>(a: &Matrices, mut f: impl FnMut(Factors<T>)) {
    if lanes::suits(a.count, a.rows, a.columns) {
        let (mut m, mut pivots) = (Interleaved::zeros(a.rows, a.columns), Pivots::default());
        for first in lanes::groups(a.count) {
            a.interleave(lanes::places(first, a.count), false, &mut m);
            lanes::lu::lu(&mut m, &mut pivots);
            f(Factors::Many(&m, &pivots, (a.count - first).min(LANES)));
        }
        return;
    }
    let mut m = Matrix::zeros(0, 0);
    for i in 0..a.count {
        a.read(i, &mut m);
        let (pivots, singular) = lu(&mut m);
        f(Factors::One(&m, &pivots, singular));
    }
}

/// The factors of every matrix as LAPACK stores them, the 1-based pivot rows, and the 1-based position of the first zero pivot (0 if there
/// is none).
pub(crate) fn factors_of_all(all: &Matrices) -> (Results, Vec<usize>, Vec<usize>) {
    in_dtype!(all, T => factors_in::<T>(all))
}

fn factors_in<T: Real>(matrices: &Matrices) -> (Results, Vec<usize>, Vec<usize>) {
    let (mut all, mut pivots, mut info) = (Vec::with_capacity(matrices.len()), vec![], vec![]);
    each_lu::<T>(matrices, |factors| match factors {
        Factors::One(m, found, singular) => {
            all.extend_from_slice(&m.v);
            pivots.extend_from_slice(found);
            info.push(singular);
        }
        Factors::Many(m, found, count) => {
            m.append(count, false, &mut all);
            (0..count).for_each(|l| pivots.extend(found.rows.iter().map(|p| p[l])));
            info.extend_from_slice(&found.singular[..count]);
        }
    });
    (T::results(all), pivots, info)
}

/// The inverse of every matrix, and the 1-based position of its first zero pivot (0 if there is none).
pub(crate) fn inverses(all: &Matrices) -> (Results, Vec<usize>) {
    in_dtype!(all, T => inverses_in::<T>(all))
}

fn inverses_in<T: Real>(matrices: &Matrices) -> (Results, Vec<usize>) {
    let (mut all, mut info) = (Vec::with_capacity(matrices.len()), vec![]);
    let mut side_by_side = Interleaved::zeros(0, 0);
    each_lu::<T>(matrices, |factors| match factors {
        Factors::One(m, pivots, singular) => {
            info.push(singular);
            all.append(&mut inverse_of(m, pivots).v);
        }
        Factors::Many(m, pivots, count) => {
            side_by_side.set_eye(matrices.rows);
            lanes::lu::solve_factored(m, pivots, &mut side_by_side);
            info.extend_from_slice(&pivots.singular[..count]);
            side_by_side.append(count, false, &mut all);
        }
    });
    (T::results(all), info)
}

/// The determinant of every matrix.
pub(crate) fn determinants(all: &Matrices) -> Vec<f64> {
    in_dtype!(all, T => determinants_in::<T>(all))
}

fn determinants_in<T: Real>(matrices: &Matrices) -> Vec<f64> {
    let mut all = vec![];
    each_lu::<T>(matrices, |factors| match factors {
        Factors::One(m, pivots, _) => all.push((0..m.rows).fold(pivot_sign(pivots), |d, i| d * m.at(i, i).into())),
        Factors::Many(m, pivots, count) => {
            all.extend((0..count).map(|l| (0..m.rows).fold(pivots.sign(l), |d, i| d * m.at(i, i)[l])))
        }
    });
    all
}

/// The sign of every determinant, and the logarithm of its magnitude.
pub(crate) fn signs_and_logarithms(all: &Matrices) -> (Vec<f64>, Vec<f64>) {
    in_dtype!(all, T => signs_and_logarithms_in::<T>(all))
}

fn signs_and_logarithms_in<T: Real>(matrices: &Matrices) -> (Vec<f64>, Vec<f64>) {
    let (mut signs, mut logs) = (vec![], vec![]);
    let mut push = |sign: f64, diagonal: &mut dyn Iterator<Item = f64>| {
        let (mut s, mut log) = (sign, 0.0);
        for p in diagonal {
            // As in torch, 0 and NaN have the sign 0.
            s *= if p == 0.0 || p.is_nan() { 0.0 } else { p.signum() };
            log += p.abs().ln();
        }
        signs.push(s);
        logs.push(log);
    };
    each_lu::<T>(matrices, |factors| match factors {
        Factors::One(m, pivots, _) => push(pivot_sign(pivots), &mut (0..m.rows).map(|i| m.at(i, i).into())),
        Factors::Many(m, pivots, count) => {
            (0..count).for_each(|l| push(pivots.sign(l), &mut (0..m.rows).map(|i| m.at(i, i)[l])))
        }
    });
    (signs, logs)
}
