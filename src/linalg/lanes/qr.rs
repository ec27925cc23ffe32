//! Householder reflections of small matrices side by side.

use super::vectors::dot;
use super::{Interleaved, Lanes};
use crate::linalg::LANES;
use crate::linalg::vectors::end_of_element;
use crate::tensor::wide_function;

wide_function! {
    /// In-place QR factorisations, as [`householder_qr`](crate::linalg::qr::householder_qr). `taus` gets the factors of the reflections.
    pub(in crate::linalg) fn householder_qr = householder_qr_body(a: &mut Interleaved, taus: &mut Vec<Lanes>)
}

#[inline(always)]
fn householder_qr_body(a: &mut Interleaved, taus: &mut Vec<Lanes>) {
    let n = a.columns;
    let mut v = vec![];
    taus.clear();
    for k in 0..a.rows.min(n) {
        v.clear();
        for i in k..a.rows {
            v.push(a.v[i * n + k]);
        }
        let (tau, beta) = reflection(&mut v);
        taus.push(tau);
        reflect(a, k, k + 1, &v, &tau);
        a.v[k * n + k] = beta;
        for i in k + 1..a.rows {
            a.v[i * n + k] = v[i - k];
        }
    }
}

wide_function! {
    /// Multiplies `c` from the left by the product of the reflections, or by its transpose.
    pub(in crate::linalg) fn apply_reflections = apply_body(vectors: &Interleaved, taus: &[Lanes], c: &mut Interleaved, transposed: bool)
}

#[inline(always)]
fn apply_body(vectors: &Interleaved, taus: &[Lanes], c: &mut Interleaved, transposed: bool) {
    let n = taus.len().min(vectors.columns).min(c.rows);
    let mut v = vec![];
    for step in 0..n {
        let k = if transposed { step } else { n - 1 - step };
        v.clear();
        v.push([1.0; LANES]);
        for i in k + 1..c.rows {
            v.push(vectors.v[i * vectors.columns + k]);
        }
        reflect(c, k, 0, &v, &taus[k]);
    }
}

/// Turns vectors into reflections that map them to `[beta, 0, …]`. Returns tau and beta.
#[inline(always)]
fn reflection(x: &mut [Lanes]) -> (Lanes, Lanes) {
    let alpha = std::mem::replace(&mut x[0], [1.0; LANES]);
    let mut squares = [0.0; LANES];
    for x in x[1..].iter() {
        for l in 0..LANES {
            squares[l] += x[l] * x[l];
        }
    }
    let (mut tau, mut beta, mut divisor) = ([0.0; LANES], alpha, [1.0; LANES]);
    for l in 0..LANES {
        let below = squares[l].sqrt();
        if below != 0.0 {
            beta[l] = -alpha[l].hypot(below).copysign(alpha[l]);
            tau[l] = (beta[l] - alpha[l]) / beta[l];
            divisor[l] = alpha[l] - beta[l];
        }
    }
    for x in x[1..].iter_mut() {
        for l in 0..LANES {
            x[l] /= divisor[l];
        }
    }
    (tau, beta)
}

/// A sum of squares below this counts as zero, as in [`Real::NOTHING`](super::real::Real::NOTHING).
const NOTHING: f64 = 1e-280;

/// [`reflection`] for vectors of matrices whose elements are finite and about one, as
/// [`scaled_reflection`](crate::linalg::householder::scaled_reflection).
#[inline(always)]
pub(super) fn scaled_reflection(x: &mut [Lanes]) -> (Lanes, Lanes) {
    let alpha = std::mem::replace(&mut x[0], [1.0; LANES]);
    let squares = dot(&x[1..], &x[1..]);
    let (mut tau, mut beta, mut inverse) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
    for l in 0..LANES {
        let reflects = squares[l] >= NOTHING;
        let length = -(alpha[l] * alpha[l] + squares[l]).sqrt().copysign(alpha[l]);
        beta[l] = if reflects { length } else { alpha[l] };
        tau[l] = if reflects { (length - alpha[l]) / length } else { 0.0 };
        inverse[l] = if reflects { 1.0 / (alpha[l] - length) } else { 0.0 };
    }
    for x in x[1..].iter_mut() {
        for l in 0..LANES {
            x[l] *= inverse[l];
        }
        end_of_element();
    }
    (tau, beta)
}

/// Applies reflections to vectors.
#[inline(always)]
pub(super) fn reflect_vector(x: &mut [Lanes], v: &[Lanes], tau: &Lanes) {
    let mut factor = dot(x, v);
    for l in 0..LANES {
        factor[l] *= tau[l];
    }
    for (x, v) in x.iter_mut().zip(v) {
        for l in 0..LANES {
            x[l] -= factor[l] * v[l];
        }
        end_of_element();
    }
}

/// Applies reflections from the left to the columns from `column` on of the rows from `row` on.
#[inline(always)]
fn reflect(a: &mut Interleaved, row: usize, column: usize, v: &[Lanes], tau: &Lanes) {
    let n = a.columns;
    let active = tau.map(|t| t != 0.0);
    for j in column..n {
        let mut sum = [0.0; LANES];
        for (i, v) in v.iter().enumerate() {
            let x = &a.v[(row + i) * n + j];
            for l in 0..LANES {
                sum[l] += v[l] * x[l];
            }
        }
        for (i, v) in v.iter().enumerate() {
            let x = &mut a.v[(row + i) * n + j];
            for l in 0..LANES {
                let y = x[l] + -tau[l] * v[l] * sum[l];
                x[l] = if active[l] { y } else { x[l] };
            }
            end_of_element();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::matrix::Matrix;
    use crate::linalg::qr::{apply_reflections as apply_to_one, householder_qr as qr_of_one};

    fn close(a: &Interleaved, lane: usize, m: &Matrix) {
        let far = |(x, y): (&Lanes, &f64)| (x[lane] - y).abs() > 1e-12 * y.abs().max(1.0);
        assert!(!a.v.iter().zip(&m.v).any(far), "lane {lane}: {:?}", m.v);
    }

    #[test]
    fn lanes_have_the_reflections_of_their_matrices() {
        for (rows, columns) in [(1, 1), (3, 3), (5, 2), (2, 4), (10, 9)] {
            // The first matrix is upper triangular, the second has a column of zeros.
            let element = |l: usize, i: usize, j: usize| match (l, i > j, j) {
                (0, true, _) | (1, _, 0) => 0.0,
                _ => ((i * 7 + j * 5 + i * j + 3 * l) % 11) as f64 - 4.0,
            };
            let mut a = Interleaved::zeros(rows, columns);
            for (e, x) in a.v.iter_mut().enumerate() {
                *x = std::array::from_fn(|l| {
                    let diagonal = 30.0 * (l > 1 && e / columns == e % columns) as u8 as f64;
                    element(l, e / columns, e % columns) + diagonal
                });
            }
            let (start, mut taus, mut turned) = (a.clone(), vec![], a.clone());
            householder_qr(&mut a, &mut taus);
            apply_reflections(&a, &taus, &mut turned, true);
            for l in 0..LANES {
                let mut m = Matrix::from_fn(rows, columns, |i, j| start.at(i, j)[l]);
                let mut c = m.clone();
                let found = qr_of_one(&mut m);
                close(&a, l, &m);
                apply_to_one(&m, &found, &mut c, true);
                close(&turned, l, &c);
                assert!(taus.iter().zip(&found).all(|(x, y)| (x[l] - y).abs() < 1e-12));
            }
        }
    }
}
