//! Singular vectors of a bidiagonal matrix `B` as eigenvectors of `B^T B`. The squares are exact enough in f64 for matrices of f32 whose
//! singular values do not differ too much.

use super::bidiagonal::Bidiagonal;
use crate::linalg::eigen::divide::{Eigen, tridiagonal_eigen};
use crate::linalg::matrix::Matrix;
use crate::linalg::real::Real;

/// The minimum number of columns. Rotations are as fast for fewer.
const FEWEST: usize = 33;

/// The least singular value relative to the largest. Rounding errors of squares in f64, relative to the square of this, are about those of
/// f32.
const LEAST: f64 = 1e-4;

/// The left vectors, the singular values in descending order, and the right vectors. `None` if they would not be exact enough, or if
/// rotations are as fast.
pub(super) fn gram_svd<T: Real>(b: &Bidiagonal<T>) -> Option<(Matrix<T>, Vec<f64>, Matrix<T>)> {
    let (s, e, n) = (&b.diagonal, &b.above, b.diagonal.len());
    if !T::NARROW || n < FEWEST {
        return None;
    }
    let above = |i: usize| if i > 0 { e[i - 1] } else { 0.0 };
    let mut diagonal: Vec<f64> = (0..n).map(|i| s[i] * s[i] + above(i) * above(i)).collect();
    let mut beside: Vec<f64> = (0..n).map(|i| s[i] * e[i]).collect();
    let Eigen { values, vectors } = tridiagonal_eigen::<f64>(&mut diagonal, &mut beside);
    let (least, most) = (values[0], values[n - 1]);
    if least.is_nan() || least <= most * LEAST * LEAST {
        return None;
    }
    let (mut left, mut right) = (Matrix::zeros(n, n), Matrix::zeros(n, n));
    let (mut all, mut line) = (vec![], vec![0.0; n]);
    for j in 0..n {
        let v = vectors.row(n - 1 - j);
        for i in 0..n {
            line[i] = s[i] * v[i] + if i + 1 < n { e[i] * v[i + 1] } else { 0.0 };
        }
        let length = line.iter().map(|x| x * x).sum::<f64>().sqrt();
        all.push(length);
        for (y, x) in left.v[j * n..(j + 1) * n].iter_mut().zip(&line) {
            *y = T::nearest(x / length);
        }
        for (y, x) in right.v[j * n..(j + 1) * n].iter_mut().zip(v) {
            *y = T::nearest(*x);
        }
    }
    // The lengths for equal eigenvalues may differ by rounding errors.
    for j in 1..n {
        all[j] = all[j].min(all[j - 1]);
    }
    Some((left.transposed(), all, right.transposed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn singular_vectors_multiply_back() {
        let n = 40usize;
        let b = |least: f64| Bidiagonal::<f32> {
            diagonal: (0..n)
                .map(|i| if i == 7 { least } else { 1.0 + (i * 5 % 7) as f64 / 4.0 })
                .collect(),
            above: (0..n).map(|i| if i + 1 < n { 0.3 } else { 0.0 }).collect(),
            left: vec![],
            right: vec![],
        };
        assert!(gram_svd(&b(0.0)).is_none());
        let b = b(0.5);
        let (u, s, v) = gram_svd(&b).expect("a matrix with a small condition number");
        assert!(s.is_sorted_by(|x, y| x >= y));
        for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let want = match j.wrapping_sub(i) {
                0 => b.diagonal[i],
                1 => b.above[i],
                _ => 0.0,
            };
            let got: f64 = (0..n)
                .map(|k| f64::from(u.at(i, k)) * s[k] * f64::from(v.at(j, k)))
                .sum();
            assert!((got - want).abs() < 1e-6, "{i} {j}: {got} {want}");
            let product: f64 = (0..n).map(|k| f64::from(u.at(k, i)) * f64::from(u.at(k, j))).sum();
            assert!((product - (i == j) as u8 as f64).abs() < 1e-6, "{i} {j}");
        }
    }
}
