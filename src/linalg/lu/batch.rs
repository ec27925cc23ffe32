//! LU factors of batches, and inverses and determinants by them.

use super::{inverse_of, lu, pivot_sign};
use crate::linalg::LANES;
use crate::linalg::batch::{Matrices, Results};
use crate::linalg::lanes::lu::Pivots;
use crate::linalg::lanes::{self, Interleaved};
use crate::linalg::matrix::Matrix;
use crate::linalg::real::{Real, in_dtype};
use crate::linalg::threads::{Join, parts_of, room};

/// LU factors.
pub(super) enum Factors<'a, T> {
    /// Of a matrix: with the pivots and the 1-based position of the first zero pivot (0 if there is none).
    One(&'a Matrix<T>, &'a [usize], usize),
    /// Of matrices side by side: with the number of matrices.
    Many(&'a Interleaved, &'a Pivots, usize),
}

/// Returns what `start` returns for the number of matrices, after calls of `f` with it and the LU factors of all of them in their order.
/// The last argument of `f` is scratch memory.
fn each_lu<T: Real, R: Join>(
    a: &Matrices,
    start: impl Fn(usize) -> R + Sync,
    f: impl Fn(&mut R, Factors<T>, &mut Interleaved) + Sync,
) -> R {
    let side_by_side = lanes::suits(a.count, a.rows, a.columns);
    parts_of(a, side_by_side, |range| {
        let (mut found, mut scratch) = (start(room(&range, a.count)), Interleaved::zeros(0, 0));
        if side_by_side {
            let (mut m, mut pivots) = (Interleaved::zeros(a.rows, a.columns), Pivots::default());
            for first in lanes::groups(range.clone()) {
                a.interleave(lanes::places(first, a.count), false, &mut m);
                lanes::lu::lu(&mut m, &mut pivots);
                let factors = Factors::Many(&m, &pivots, (range.end - first).min(LANES));
                f(&mut found, factors, &mut scratch);
            }
            return found;
        }
        let mut m = Matrix::zeros(0, 0);
        for i in range {
            a.read(i, &mut m);
            let (pivots, singular) = lu(&mut m);
            f(&mut found, Factors::One(&m, &pivots, singular), &mut scratch);
        }
        found
    })
}

/// The factors of every matrix as LAPACK stores them, the 1-based pivot rows, and the 1-based position of the first zero pivot (0 if there
/// is none).
pub(crate) fn factors_of_all(all: &Matrices) -> (Results, Vec<usize>, Vec<usize>) {
    in_dtype!(all, T => factors_in::<T>(all))
}

fn factors_in<T: Real>(matrices: &Matrices) -> (Results, Vec<usize>, Vec<usize>) {
    let size = matrices.rows * matrices.columns;
    let start = |count: usize| (Vec::with_capacity(count * size), vec![], vec![]);
    let (all, pivots, info) =
        each_lu::<T, (Vec<T>, _, _)>(matrices, start, |(all, pivots, info), factors, _| match factors {
            Factors::One(m, found, singular) => {
                all.extend_from_slice(&m.v);
                pivots.extend_from_slice(found);
                info.push(singular);
            }
            Factors::Many(m, found, count) => {
                m.append(count, false, all);
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
    let size = matrices.rows * matrices.columns;
    let start = |count: usize| (Vec::with_capacity(count * size), vec![]);
    let (all, info) = each_lu::<T, (Vec<T>, _)>(matrices, start, |(all, info), factors, side_by_side| match factors {
        Factors::One(m, pivots, singular) => {
            info.push(singular);
            all.append(&mut inverse_of(m, pivots).v);
        }
        Factors::Many(m, pivots, count) => {
            side_by_side.set_eye(matrices.rows);
            lanes::lu::solve_factored(m, pivots, side_by_side);
            info.extend_from_slice(&pivots.singular[..count]);
            side_by_side.append(count, false, all);
        }
    });
    (T::results(all), info)
}

/// The determinant of every matrix.
pub(crate) fn determinants(all: &Matrices) -> Vec<f64> {
    in_dtype!(all, T => determinants_in::<T>(all))
}

fn determinants_in<T: Real>(matrices: &Matrices) -> Vec<f64> {
    each_lu::<T, Vec<f64>>(matrices, Vec::with_capacity, |all, factors, _| match factors {
        Factors::One(m, pivots, _) => all.push((0..m.rows).fold(pivot_sign(pivots), |d, i| d * m.at(i, i).into())),
        Factors::Many(m, pivots, count) => {
            all.extend((0..count).map(|l| (0..m.rows).fold(pivots.sign(l), |d, i| d * m.at(i, i)[l])))
        }
    })
}

/// The sign of every determinant, and the logarithm of its magnitude.
pub(crate) fn signs_and_logarithms(all: &Matrices) -> (Vec<f64>, Vec<f64>) {
    in_dtype!(all, T => signs_and_logarithms_in::<T>(all))
}

fn signs_and_logarithms_in<T: Real>(matrices: &Matrices) -> (Vec<f64>, Vec<f64>) {
    let all = each_lu::<T, Vec<(f64, f64)>>(matrices, Vec::with_capacity, |all, factors, _| match factors {
        Factors::One(m, pivots, _) => all.push(sign_and_logarithm(
            pivot_sign(pivots),
            (0..m.rows).map(|i| m.at(i, i).into()),
        )),
        Factors::Many(m, pivots, count) => {
            all.extend((0..count).map(|l| sign_and_logarithm(pivots.sign(l), (0..m.rows).map(|i| m.at(i, i)[l]))))
        }
    });
    all.into_iter().unzip()
}

/// The sign of the product of the diagonal's elements and `sign`, and the logarithm of the product's magnitude.
fn sign_and_logarithm(sign: f64, diagonal: impl Iterator<Item = f64>) -> (f64, f64) {
    diagonal.fold((sign, 0.0), |(s, log), p| {
        // As in torch, 0 and NaN have the sign 0.
        let own = if p == 0.0 || p.is_nan() { 0.0 } else { p.signum() };
        (s * own, log + p.abs().ln())
    })
}
