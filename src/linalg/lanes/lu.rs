//! LU factors of small matrices side by side, and solutions by them.

use super::Interleaved;
use super::vectors::{divide, subtract_product, subtract_rows};
use crate::linalg::LANES;
use crate::linalg::vectors::end_of_element;
use crate::tensor::wide_function;

/// The pivots of [`lu`]: the 1-based pivot rows, and the 1-based positions of the first zero pivots (0 if there is none).
#[derive(Default)]
pub(in crate::linalg) struct Pivots {
    pub(in crate::linalg) rows: Vec<[usize; LANES]>,
    pub(in crate::linalg) singular: [usize; LANES],
}

impl Pivots {
    /// The sign of the permutation in a lane.
    pub(in crate::linalg) fn sign(&self, lane: usize) -> f64 {
        let swaps = self.rows.iter().enumerate().filter(|(k, p)| p[lane] != k + 1).count();
        if swaps % 2 == 0 { 1.0 } else { -1.0 }
    }
}

wide_function! {
    /// In-place LU factorisations with row pivoting.
    pub(in crate::linalg) fn lu = lu_body(a: &mut Interleaved, pivots: &mut Pivots)
}

#[inline(always)]
fn lu_body(a: &mut Interleaved, pivots: &mut Pivots) {
    pivots.rows.clear();
    pivots.singular = [0; LANES];
    for k in 0..a.rows.min(a.columns) {
        let found = pivot_rows(a, k);
        for (l, &p) in found.iter().enumerate() {
            if p != k {
                a.swap_rows(l, p, k);
            }
        }
        pivots.rows.push(found.map(|p| p + 1));
        let pivot = a.v[k * a.columns + k];
        let zero = pivot.map(|p| p == 0.0);
        if !zero.contains(&true) {
            eliminate(a, k);
            continue;
        }
        for (first, zero) in pivots.singular.iter_mut().zip(zero) {
            if zero && *first == 0 {
                *first = k + 1;
            }
        }
        eliminate_some(a, k, &zero);
    }
}

/// The row with the largest magnitude in column `k`, from row `k` on, of each matrix.
#[inline(always)]
fn pivot_rows(a: &Interleaved, k: usize) -> [usize; LANES] {
    let n = a.columns;
    let mut most = a.v[k * n + k].map(f64::abs);
    // Row numbers are f64 as well, so that the same masks select them.
    let mut place = [k as f64; LANES];
    for i in k + 1..a.rows {
        let x = &a.v[i * n + k];
        for l in 0..LANES {
            let larger = x[l].abs() > most[l];
            most[l] = if larger { x[l].abs() } else { most[l] };
            place[l] = if larger { i as f64 } else { place[l] };
        }
    }
    place.map(|p| p as usize)
}

/// Eliminates column `k` from the columns after it.
#[inline(always)]
fn eliminate(a: &mut Interleaved, k: usize) {
    let n = a.columns;
    let (upper, lower) = a.v.split_at_mut((k + 1) * n);
    let (pivot, right) = (upper[k * n + k], &upper[k * n + k + 1..]);
    for row in lower.chunks_exact_mut(n) {
        divide(&mut row[k], &pivot);
        let f = row[k];
        for (y, x) in row[k + 1..].iter_mut().zip(right) {
            subtract_product(y, &f, x);
            end_of_element();
        }
    }
}

/// [`eliminate`] except in the lanes whose pivot is zero.
fn eliminate_some(a: &mut Interleaved, k: usize, zero: &[bool; LANES]) {
    let n = a.columns;
    for (i, l) in (k + 1..a.rows).flat_map(|i| (0..LANES).map(move |l| (i, l))) {
        if zero[l] {
            continue;
        }
        let f = a.v[i * n + k][l] / a.v[k * n + k][l];
        a.v[i * n + k][l] = f;
        for j in k + 1..n {
            a.v[i * n + j][l] -= f * a.v[k * n + j][l];
        }
    }
}

wide_function! {
    /// Solves `A X = B` in place of `b` with the results of [`lu`].
    pub(in crate::linalg) fn solve_factored = solve_factored_body(factors: &Interleaved, pivots: &Pivots, b: &mut Interleaved)
}

#[inline(always)]
fn solve_factored_body(factors: &Interleaved, pivots: &Pivots, b: &mut Interleaved) {
    for (k, found) in pivots.rows.iter().enumerate() {
        for (l, &p) in found.iter().enumerate() {
            if p != k + 1 {
                b.swap_rows(l, p - 1, k);
            }
        }
    }
    let (n, r) = (factors.columns, b.columns);
    for i in 0..n {
        let (known, rest) = b.v.split_at_mut(i * r);
        subtract_rows(&mut rest[..r], &factors.v[i * n..i * n + i], known);
    }
    for i in (0..n).rev() {
        let (rest, known) = b.v.split_at_mut((i + 1) * r);
        let row = &mut rest[i * r..];
        subtract_rows(row, &factors.v[i * n + i + 1..(i + 1) * n], known);
        for x in row.iter_mut() {
            divide(x, &factors.v[i * n + i]);
            end_of_element();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{equal, samples, side_by_side};
    use super::*;
    use crate::linalg::lu::{lu as lu_of_one, solve_factored as solve_one};

    #[test]
    fn lanes_have_the_factors_of_their_matrices() {
        for (rows, columns) in [(1, 1), (3, 3), (4, 2), (2, 5), (8, 8)] {
            let all = samples(rows, columns);
            let (mut a, mut pivots) = (side_by_side(&all), Pivots::default());
            lu(&mut a, &mut pivots);
            for (l, m) in all.iter().enumerate() {
                let mut m = m.clone();
                let (found, singular) = lu_of_one(&mut m);
                assert_eq!(pivots.singular[l], singular);
                assert!(pivots.rows.iter().zip(&found).all(|(x, y)| x[l] == *y));
                equal(&a, l, &m);
            }
        }
    }

    #[test]
    fn lanes_have_the_solutions_of_their_equations() {
        let (mut all, right) = (samples(5, 5), samples(5, 2));
        for m in all.iter_mut() {
            (0..5).for_each(|i| m.set(i, i, m.at(i, i) + 30.0));
        }
        let (mut a, mut b, mut pivots) = (side_by_side(&all), side_by_side(&right), Pivots::default());
        lu(&mut a, &mut pivots);
        solve_factored(&a, &pivots, &mut b);
        for l in (0..LANES).filter(|l| pivots.singular[*l] == 0) {
            let (mut m, mut r) = (all[l].clone(), right[l].clone());
            let found = lu_of_one(&mut m).0;
            solve_one(&m, &found, &mut r);
            for (x, y) in b.v.iter().zip(&r.v) {
                assert!((x[l] - y).abs() <= 1e-9 * y.abs().max(1.0) || (x[l].is_nan() && y.is_nan()));
            }
        }
    }
}
