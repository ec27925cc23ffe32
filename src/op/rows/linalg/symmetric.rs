//! Eigenvalues of symmetric matrices: Householder's reduction to a tridiagonal matrix, and the implicit QL algorithm
//! (Martin, Reinsch and Wilkinson 1968; Dubrulle 1970).

use super::lines::{LANES, add_lanes, add_scaled, dot, magnitude, scaled_reflection};
use super::matrix::Matrix;
use super::reflections::basis_of_rows;
use crate::tensor::wide_function;

/// The maximum number of steps per eigenvalue. Two are common.
const STEPS: usize = 60;

/// What counts as zero next to elements of a magnitude of about one: far below their rounding errors, and so large that no product of four
/// such numbers underflows. Else rotations of what is left of a matrix of low rank would not be orthogonal.
const TINY: f64 = 1e-30;

/// The eigenvalues of a symmetric matrix of finite numbers in ascending order.
pub(in crate::op::rows) fn symmetric_eigenvalues(m: &Matrix) -> Vec<f64> {
    let (mut values, _) = decompose(m, false);
    values.sort_by(f64::total_cmp);
    values
}

/// The eigenvalues of a symmetric matrix of finite numbers in ascending order, and its eigenvectors as columns.
pub(in crate::op::rows) fn symmetric_eigen(m: &Matrix) -> (Vec<f64>, Matrix) {
    let (values, vectors) = decompose(m, true);
    let mut order: Vec<usize> = (0..m.rows).collect();
    order.sort_by(|&i, &j| values[i].total_cmp(&values[j]));
    let vectors = Matrix::from_fn(m.rows, m.rows, |i, j| vectors.at(order[j], i));
    (order.iter().map(|&i| values[i]).collect(), vectors)
}

wide_function! {
    /// The eigenvalues, and on request the eigenvectors as rows.
    fn decompose = decompose_body(m: &Matrix, with_vectors: bool) -> (Vec<f64>, Matrix)
}

#[inline(always)]
fn decompose_body(m: &Matrix, with_vectors: bool) -> (Vec<f64>, Matrix) {
    let scale = magnitude(&m.v);
    let mut a = m.clone();
    a.v.iter_mut().for_each(|x| *x /= scale);
    let (mut diagonal, mut subdiagonal, taus) = tridiagonal(&mut a);
    let mut vectors = Matrix::zeros(0, 0);
    if with_vectors {
        vectors = basis_of_rows(&a, &taus);
        implicit_ql(&mut diagonal, &mut subdiagonal, &mut vectors);
    } else {
        root_free_ql(&mut diagonal, &mut subdiagonal);
    }
    diagonal.iter_mut().for_each(|x| *x *= scale);
    (diagonal, vectors)
}

/// Reduces `a` to a tridiagonal matrix. Returns its diagonal, the elements below it (with a 0 at the end) and the
/// factors of the reflections, whose vectors replace the rows of `a` right of the diagonal.
#[inline(always)]
fn tridiagonal(a: &mut Matrix) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let n = a.rows;
    let (mut subdiagonal, mut taus) = (vec![0.0; n], vec![0.0; n]);
    // The update `v w^T + w v^T` of a step, which the next step subtracts from rows as it reads them.
    let (mut v, mut w, mut next) = (vec![0.0; n], vec![0.0; n], vec![0.0; n]);
    for k in 0..n.saturating_sub(1) {
        let (upper, lower) = a.v.split_at_mut((k + 1) * n);
        let row = &mut upper[k * n..];
        update_row(&mut row[k..], v[k], w[k], &v[k..], &w[k..]);
        let u = &mut row[k + 1..];
        let (tau, beta) = scaled_reflection(u);
        (taus[k], subdiagonal[k]) = (tau, beta);
        for (i, row) in (k + 1..n).zip(lower.chunks_exact_mut(n)) {
            next[i] = tau * update_and_dot(&mut row[k + 1..], v[i], w[i], &v[k + 1..], &w[k + 1..], u);
        }
        let next = &mut next[k + 1..];
        let half = tau / 2.0 * dot(next, u);
        add_scaled(next, -half, u);
        w[k + 1..].copy_from_slice(next);
        // Without a reflection, nothing is subtracted.
        v[k + 1..].copy_from_slice(u);
        if tau == 0.0 {
            v[k + 1..].fill(0.0);
        }
    }
    if let Some(last) = n.checked_sub(1) {
        update_row(&mut a.v[last * n + last..], v[last], w[last], &v[last..], &w[last..]);
    }
    ((0..n).map(|i| a.at(i, i)).collect(), subdiagonal, taus)
}

/// Subtracts `x w + y v` from a part of a row.
#[inline(always)]
fn update_row(row: &mut [f64], x: f64, y: f64, v: &[f64], w: &[f64]) {
    let both = w.iter().zip(v);
    row.iter_mut().zip(both).for_each(|(a, (w, v))| *a -= x * w + y * v);
}

/// Calls [`update_row`] and returns the inner product of the new row and `u`, in one pass. The sum has the order of [`dot`].
#[inline(always)]
fn update_and_dot(row: &mut [f64], x: f64, y: f64, v: &[f64], w: &[f64], u: &[f64]) -> f64 {
    let together = row.len() / LANES * LANES;
    let (row, last) = row.split_at_mut(together);
    let (v, last_v) = v.split_at(together);
    let (w, last_w) = w.split_at(together);
    let (u, last_u) = u.split_at(together);
    update_row(last, x, y, last_v, last_w);
    let rest: f64 = last.iter().zip(last_u).map(|(a, u)| a * u).sum();
    let mut sums = [0.0; LANES];
    let chunks = row.as_chunks_mut::<LANES>().0.iter_mut().zip(u.as_chunks::<LANES>().0);
    let both = v.as_chunks::<LANES>().0.iter().zip(w.as_chunks::<LANES>().0);
    for ((row, u), (v, w)) in chunks.zip(both) {
        for i in 0..LANES {
            row[i] -= x * w[i] + y * v[i];
            sums[i] += row[i] * u[i];
        }
    }
    add_lanes(sums) + rest
}

/// The eigenvalues of a tridiagonal matrix, in place of its diagonal, without the square root of each rotation (Pal, Walker and Kahan;
/// LAPACK's `sterf`).
#[inline(always)]
fn root_free_ql(d: &mut [f64], e: &mut [f64]) {
    let n = d.len();
    e.iter_mut().for_each(|x| *x *= *x);
    for l in 0..n {
        for _ in 0..STEPS {
            let bound = |m: usize| TINY + f64::EPSILON * (d[m].abs() + d[m + 1].abs());
            let small = |m: &usize| *m + 1 == n || e[*m] <= bound(*m) * bound(*m);
            let m = (l..n).find(small).unwrap_or(n - 1);
            if m == l {
                break;
            }
            root_free_step(d, e, l, m);
        }
    }
}

/// One step with Wilkinson's shift on the block `l..=m`, where `e` has the squares of the elements below the diagonal.
#[inline(always)]
fn root_free_step(d: &mut [f64], e: &mut [f64], l: usize, m: usize) {
    let root = e[l].sqrt();
    let ratio = (d[l + 1] - d[l]) / (2.0 * root);
    let shift = d[l] - root / (ratio + ratio.hypot(1.0).copysign(ratio));
    let (mut cos, mut sin, mut gamma) = (1.0, 0.0, d[m] - shift);
    let mut p = gamma * gamma;
    for i in (l..m).rev() {
        let square = e[i];
        let r = p + square;
        if i + 1 < m {
            e[i + 1] = sin * r;
        }
        let before = (cos, gamma);
        (cos, sin) = (p / r, square / r);
        gamma = cos * (d[i] - shift) - sin * before.1;
        d[i + 1] = before.1 + (d[i] - gamma);
        p = if cos == 0.0 {
            before.0 * square
        } else {
            gamma * gamma / cos
        };
    }
    e[l] = sin * p;
    d[l] = shift + gamma;
}

/// Diagonalises a tridiagonal matrix; the rows of `vectors` are rotated with it.
#[inline(always)]
fn implicit_ql(d: &mut [f64], e: &mut [f64], vectors: &mut Matrix) {
    let n = d.len();
    for l in 0..n {
        for _ in 0..STEPS {
            let small = |m: &usize| *m + 1 == n || e[*m].abs() <= TINY + f64::EPSILON * (d[*m].abs() + d[*m + 1].abs());
            let m = (l..n).find(small).unwrap_or(n - 1);
            if m == l {
                break;
            }
            ql_step(d, e, vectors, l, m);
        }
    }
}

/// One step with Wilkinson's shift on the block `l..=m`.
#[inline(always)]
fn ql_step(d: &mut [f64], e: &mut [f64], vectors: &mut Matrix, l: usize, m: usize) {
    let ratio = (d[l + 1] - d[l]) / (2.0 * e[l]);
    let mut g = d[m] - d[l] + e[l] / (ratio + ratio.hypot(1.0).copysign(ratio));
    let (mut sin, mut cos, mut p) = (1.0, 1.0, 0.0);
    for i in (l..m).rev() {
        let (f, b) = (sin * e[i], cos * e[i]);
        let r = (f * f + g * g).sqrt();
        e[i + 1] = r;
        // The squares of smaller numbers are not exact.
        if r < 1e-140 {
            // The matrix splits here.
            d[i + 1] -= p;
            e[m] = 0.0;
            return;
        }
        (sin, cos) = (f / r, g / r);
        g = d[i + 1] - p;
        let r = (d[i] - g) * sin + 2.0 * cos * b;
        p = sin * r;
        d[i + 1] = g + p;
        g = cos * r - b;
        rotate_rows(vectors, i, cos, sin);
    }
    d[l] -= p;
    e[l] = g;
    e[m] = 0.0;
}

/// Rotates rows `i` and `i + 1`.
#[inline(always)]
fn rotate_rows(m: &mut Matrix, i: usize, cos: f64, sin: f64) {
    let (x, y) = m.v[i * m.columns..(i + 2) * m.columns].split_at_mut(m.columns);
    for (x, y) in x.iter_mut().zip(y) {
        (*x, *y) = (cos * *x - sin * *y, sin * *x + cos * *y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn far(a: &Matrix, b: &Matrix) -> f64 {
        a.v.iter().zip(&b.v).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max)
    }

    #[test]
    fn eigenvectors_multiply_back() {
        // Sizes around the lanes of sums; multiples of the identity, repeated eigenvalues, and very different scales.
        for (n, scale) in [
            (0, 1.0),
            (1, 1.0),
            (2, 1.0),
            (7, 1e200),
            (8, 1e-200),
            (33, 1.0),
            (150, 1.0),
        ] {
            let wave = |i: usize, j: usize| ((i * j + i + j) % 5) as f64 * scale;
            let low_rank = |i: usize, j: usize| (((i * j + i + j) % 7) as f64 - 1.0) * scale;
            let equal = |i: usize, j: usize| ((i == j) as u8 as f64 + (i / 3 == j / 3) as u8 as f64) * scale;
            for a in [
                Matrix::from_fn(n, n, wave),
                Matrix::from_fn(n, n, low_rank),
                Matrix::from_fn(n, n, equal),
                Matrix::zeros(n, n),
            ] {
                let (values, v) = symmetric_eigen(&a);
                let scaled = Matrix::from_fn(n, n, |i, j| v.at(i, j) * values[j]);
                assert!(far(&scaled.times(&v.transposed()), &a) <= 1e-12 * scale, "{n}");
                assert!(far(&v.transposed().times(&v), &Matrix::eye(n)) < 1e-13, "{n}");
                assert!(values.is_sorted());
                let alone = symmetric_eigenvalues(&a);
                assert!(
                    alone.iter().zip(&values).all(|(x, y)| (x - y).abs() <= 1e-12 * scale),
                    "{n}"
                );
            }
        }
    }
}
