//! The L D L^T factorisation of symmetric matrices that need not be positive definite (Bunch and Kaufman 1977; LAPACK's `sytf2` and
//! `sytrs`), in f64.

use super::batch::{Matrices, Results};
use super::matrix::Matrix;
use super::threads::parts_of;

/// The factors of every matrix, and what [`ldl`] returns for it.
pub(crate) fn factors_of_all(matrices: &Matrices) -> (Results, Vec<i64>, Vec<usize>) {
    let (all, pivots, info) = parts_of(matrices, false, |range| {
        let (mut all, mut pivots, mut info, mut m) = (vec![], vec![], vec![], Matrix::zeros(0, 0));
        for i in range {
            matrices.read(i, &mut m);
            let (found, singular) = ldl(&mut m);
            all.extend_from_slice(&m.v);
            pivots.extend(found);
            info.push(singular);
        }
        (all, pivots, info)
    });
    (Results::F64(all), pivots, info)
}

/// In-place L D L^T factorisation of the lower triangle (`sytf2`, Bunch and Kaufman), where D has blocks of size 1 and
/// 2. Returns the 1-based pivot rows, with two negative entries for a block of 2, and the 1-based position of the first
/// zero block (0 if there is none).
pub(super) fn ldl(a: &mut Matrix) -> (Vec<i64>, usize) {
    let n = a.rows;
    let (mut pivots, mut singular, mut k) = (vec![0; n], 0, 0);
    for j in 0..n {
        (0..j).for_each(|i| a.set(i, j, 0.0));
    }
    while k < n {
        let Some((p, wide)) = choose_pivot(a, k) else {
            singular = if singular == 0 { k + 1 } else { singular };
            pivots[k] = k as i64 + 1;
            k += 1;
            continue;
        };
        let target = k + wide as usize;
        if p != target {
            swap_symmetric(a, target, p, k);
        }
        if wide {
            eliminate_pair(a, k);
            pivots[k] = -(p as i64 + 1);
            pivots[k + 1] = -(p as i64 + 1);
            k += 2;
        } else {
            eliminate_one(a, k);
            pivots[k] = p as i64 + 1;
            k += 1;
        }
    }
    (pivots, singular)
}

/// The row to swap with, and whether the block at `k` has size 2. `None` if the column is zero or begins with NaN.
fn choose_pivot(a: &Matrix, k: usize) -> Option<(usize, bool)> {
    // Bunch and Kaufman's constant, which bounds the growth of elements.
    let threshold = (1.0 + 17f64.sqrt()) / 8.0;
    let n = a.rows;
    let diagonal = a.at(k, k).abs();
    let largest = (k + 1..n).fold(None, |best: Option<usize>, i| match best {
        Some(b) if a.at(b, k).abs() >= a.at(i, k).abs() => Some(b),
        _ => Some(i),
    });
    let column = largest.map_or(0.0, |i| a.at(i, k).abs());
    if diagonal.max(column) == 0.0 || diagonal.is_nan() {
        return None;
    }
    let Some(i) = largest.filter(|_| diagonal < threshold * column) else {
        return Some((k, false));
    };
    let left = (k..i).map(|j| a.at(i, j).abs());
    let row = left.chain((i + 1..n).map(|j| a.at(j, i).abs())).fold(0.0, f64::max);
    if diagonal >= threshold * column * (column / row) {
        Some((k, false))
    } else {
        Some((i, a.at(i, i).abs() < threshold * row))
    }
}

/// Swaps rows and columns `first` and `p` of the lower triangle, from column `first` on.
fn swap_symmetric(a: &mut Matrix, first: usize, p: usize, k: usize) {
    let n = a.columns;
    let mut exchange = |x: (usize, usize), y: (usize, usize)| a.v.swap(x.0 * n + x.1, y.0 * n + y.1);
    (p + 1..n).for_each(|i| exchange((i, first), (i, p)));
    (first + 1..p).for_each(|i| exchange((i, first), (p, i)));
    exchange((first, first), (p, p));
    if first > k {
        exchange((first, k), (p, k));
    }
}

/// Eliminates column `k` from the columns after it.
fn eliminate_one(a: &mut Matrix, k: usize) {
    let scale = 1.0 / a.at(k, k);
    for j in k + 1..a.rows {
        let f = a.at(j, k) * scale;
        for i in j..a.rows {
            let x = a.at(i, j) - f * a.at(i, k);
            a.set(i, j, x);
        }
    }
    for i in k + 1..a.rows {
        let x = a.at(i, k) * scale;
        a.set(i, k, x);
    }
}

/// Eliminates columns `k` and `k + 1` from the columns after them.
fn eliminate_pair(a: &mut Matrix, k: usize) {
    let off_diagonal = a.at(k + 1, k);
    let (d1, d2) = (a.at(k + 1, k + 1) / off_diagonal, a.at(k, k) / off_diagonal);
    let scale = 1.0 / (d1 * d2 - 1.0) / off_diagonal;
    for j in k + 2..a.rows {
        let (x, y) = (a.at(j, k), a.at(j, k + 1));
        let (p, q) = (scale * (d1 * x - y), scale * (d2 * y - x));
        for i in j..a.rows {
            let v = a.at(i, j) - a.at(i, k) * p - a.at(i, k + 1) * q;
            a.set(i, j, v);
        }
        a.set(j, k, p);
        a.set(j, k + 1, q);
    }
}

/// Solves for `b` in place with the result of [`ldl`] (`sytrs`).
pub(super) fn ldl_solve(a: &Matrix, pivots: &[i64], b: &mut Matrix) {
    let n = a.rows;
    let mut k = 0;
    while k < n {
        let wide = pivots[k] < 0 && k + 1 < n;
        let last = k + wide as usize;
        b.swap_rows(last, row_of(pivots[k], n));
        for (i, c) in (last + 1..n).flat_map(|i| (k..=last).map(move |c| (i, c))) {
            b.subtract_row(i, c, a.at(i, c));
        }
        divide_block(a, b, k, wide);
        k = last + 1;
    }
    let mut k = n;
    while k > 0 {
        let last = k - 1;
        let first = last - (pivots[last] < 0 && last > 0) as usize;
        for (i, c) in (last + 1..n).flat_map(|i| (first..=last).map(move |c| (i, c))) {
            b.subtract_row(c, i, a.at(i, c));
        }
        b.swap_rows(last, row_of(pivots[last], n));
        k = first;
    }
}

/// The row that a pivot refers to.
fn row_of(pivot: i64, n: usize) -> usize {
    (pivot.unsigned_abs() as usize).clamp(1, n) - 1
}

/// Divides rows `k` (and `k + 1`) of `b` by the corresponding block of D.
fn divide_block(a: &Matrix, b: &mut Matrix, k: usize, wide: bool) {
    for j in 0..b.columns {
        if !wide {
            let x = b.at(k, j) / a.at(k, k);
            b.set(k, j, x);
            continue;
        }
        let off_diagonal = a.at(k + 1, k);
        let (d1, d2) = (a.at(k, k) / off_diagonal, a.at(k + 1, k + 1) / off_diagonal);
        let (x, y) = (b.at(k, j) / off_diagonal, b.at(k + 1, j) / off_diagonal);
        let scale = d1 * d2 - 1.0;
        b.set(k, j, (d2 * x - y) / scale);
        b.set(k + 1, j, (d1 * y - x) / scale);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::testing::assert_close;

    #[test]
    fn symmetric_equations_are_solved() {
        // Zeros on the diagonal require blocks of 2.
        let a = Matrix::from_fn(5, 5, |i, j| {
            if i == j {
                (i / 3) as f64
            } else {
                ((i * j + i + j) % 5) as f64
            }
        });
        let x = Matrix::from_fn(5, 2, |i, j| (i + 3 * j) as f64);
        let (mut b, mut f) = (a.times(&x), a.clone());
        let (pivots, singular) = ldl(&mut f);
        assert!(singular == 0 && pivots.iter().any(|p| *p < 0), "{pivots:?}");
        ldl_solve(&f, &pivots, &mut b);
        assert_close(&b, &x, 1e-12);
    }
}
