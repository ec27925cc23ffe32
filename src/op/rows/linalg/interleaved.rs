//! Small matrices side by side: each lane of a vector has a matrix of its own, and a loop over elements handles all of them. Every lane
//! computes what the routines for a single matrix compute, in the same order.

use super::lines::end_of_element;
use super::real::Real;
use crate::tensor::wide_function;

/// The number of matrices side by side.
pub(super) const LANES: usize = 8;

/// An element of each matrix.
pub(super) type Lanes = [f64; LANES];

/// The largest number of rows or columns: more elements do not stay in the first cache.
pub(super) const MOST: usize = 24;
/// Fewer matrices leave most lanes idle.
const FEWEST: usize = 4;

/// Whether matrices of a batch should be handled side by side.
pub(super) fn suits(count: usize, rows: usize, columns: usize) -> bool {
    count >= FEWEST && rows.max(columns) <= MOST
}

/// The first index of each group of matrices.
pub(super) fn groups(count: usize) -> impl Iterator<Item = usize> {
    (0..count).step_by(LANES)
}

/// The indices of a group's matrices. Lanes that are left over have the last matrix.
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
    fn swap_rows(&mut self, lane: usize, p: usize, q: usize) {
        let n = self.columns;
        for j in 0..n {
            let x = self.v[p * n + j][lane];
            self.v[p * n + j][lane] = self.v[q * n + j][lane];
            self.v[q * n + j][lane] = x;
        }
    }
}

/// `y - f x` in every lane.
#[inline(always)]
fn subtract_product(y: &mut Lanes, f: &Lanes, x: &Lanes) {
    for l in 0..LANES {
        y[l] -= f[l] * x[l];
    }
}

#[inline(always)]
pub(super) fn divide(y: &mut Lanes, x: &Lanes) {
    for l in 0..LANES {
        y[l] /= x[l];
    }
}

/// What [`lu`] finds besides the factors: the 1-based pivot rows, and the 1-based positions of the first zero pivots (0 where there is none).
#[derive(Default)]
pub(super) struct Pivots {
    pub(super) rows: Vec<[usize; LANES]>,
    pub(super) singular: [usize; LANES],
}

impl Pivots {
    /// The sign of the permutation in a lane.
    pub(super) fn sign(&self, lane: usize) -> f64 {
        let swaps = self.rows.iter().enumerate().filter(|(k, p)| p[lane] != k + 1).count();
        if swaps % 2 == 0 { 1.0 } else { -1.0 }
    }
}

wide_function! {
    /// In-place LU factorisations with row pivoting.
    pub(super) fn lu = lu_body(a: &mut Interleaved, pivots: &mut Pivots)
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
    // Numbers of the elements' width are selected with them.
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
    pub(super) fn solve_factored = solve_factored_body(factors: &Interleaved, pivots: &Pivots, b: &mut Interleaved)
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

/// Subtracts from `row` the product of each factor and its row of `known`.
#[inline(always)]
pub(super) fn subtract_rows(row: &mut [Lanes], factors: &[Lanes], known: &[Lanes]) {
    if let [x] = row {
        for (f, k) in factors.iter().zip(known) {
            subtract_product(x, f, k);
        }
        return;
    }
    let r = row.len().max(1);
    for (f, k) in factors.iter().zip(known.chunks_exact(r)) {
        for (y, x) in row.iter_mut().zip(k) {
            subtract_product(y, f, x);
            end_of_element();
        }
    }
}

wide_function! {
    /// Replaces the lower triangles by their Cholesky factors, and the upper ones by zeros. Returns the order of the first leading minor
    /// that is not positive (0 where there is none).
    pub(super) fn cholesky = cholesky_body(a: &mut Interleaved) -> [usize; LANES]
}

#[inline(always)]
fn cholesky_body(a: &mut Interleaved) -> [usize; LANES] {
    let n = a.columns;
    let mut minor = [0; LANES];
    for j in 0..n {
        let (upper, lower) = a.v.split_at_mut((j + 1) * n);
        let (known, rest) = upper[j * n..].split_at_mut(j);
        for x in known.iter() {
            subtract_product(&mut rest[0], x, x);
        }
        let square = rest[0];
        for l in 0..LANES {
            // NaN does not count as positive.
            let positive = square[l] > 0.0;
            minor[l] = if positive || minor[l] > 0 { minor[l] } else { j + 1 };
        }
        let d = square.map(f64::sqrt);
        rest[0] = d;
        for row in lower.chunks_exact_mut(n) {
            let (before, below) = row.split_at_mut(j);
            for (x, y) in before.iter().zip(known.iter()) {
                subtract_product(&mut below[0], x, y);
            }
            divide(&mut below[0], &d);
        }
    }
    clear(a, &minor);
    minor
}

/// Writes zeros to what the factors do not contain: what is above the diagonal, and what comes after a minor that is not positive.
#[inline(always)]
fn clear(a: &mut Interleaved, minor: &[usize; LANES]) {
    let n = a.columns;
    for i in 0..n {
        a.v[i * n + i + 1..(i + 1) * n].fill([0.0; LANES]);
    }
    for (l, &minor) in minor.iter().enumerate() {
        let known = if minor > 0 { minor - 1 } else { n };
        for (i, j) in (0..n).flat_map(|i| (known..n).map(move |j| (i, j))) {
            a.v[i * n + j][l] = 0.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::blocks::{cholesky as cholesky_of_one, lu as lu_of_one};
    use super::super::factorize::solve_factored as solve_one;
    use super::super::matrix::Matrix;
    use super::*;

    /// Different matrices in the lanes; some are singular, or have NaN.
    fn samples(n: usize, columns: usize) -> Vec<Matrix> {
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

    fn side_by_side(all: &[Matrix]) -> Interleaved {
        let mut out = Interleaved::zeros(all[0].rows, all[0].columns);
        for (e, x) in out.v.iter_mut().enumerate() {
            *x = std::array::from_fn(|l| all[l].v[e]);
        }
        out
    }

    fn equal(a: &Interleaved, lane: usize, m: &Matrix) {
        let same = |(x, y): (&Lanes, &f64)| x[lane] == *y || (x[lane].is_nan() && y.is_nan());
        assert!(a.v.iter().zip(&m.v).all(same), "lane {lane}: {:?}", m.v);
    }

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

    #[test]
    fn lanes_have_the_cholesky_factors_of_their_matrices() {
        for n in [1, 2, 5, 9] {
            let positive = |m: &Matrix| Matrix::from_fn(n, n, |i, j| m.at(i, j) + 30.0 * (i == j) as u8 as f64);
            let mut all: Vec<Matrix> = samples(n, n).iter().map(positive).collect();
            all[4].set(n - 1, n - 1, -1.0);
            let mut a = side_by_side(&all);
            let minors = cholesky(&mut a);
            for (l, m) in all.into_iter().enumerate() {
                let mut m = m;
                assert_eq!(minors[l], cholesky_of_one(&mut m));
                equal(&a, l, &m);
            }
        }
    }
}
