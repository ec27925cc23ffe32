//! Cholesky factors of small matrices side by side.

use super::Interleaved;
use super::vectors::{divide, subtract_product};
use crate::linalg::LANES;
use crate::tensor::wide_function;

wide_function! {
    /// Replaces the lower triangles by their Cholesky factors, and the upper ones by zeros. Returns the order of the first leading minor
    /// that is not positive (0 where there is none).
    pub(in crate::linalg) fn cholesky = cholesky_body(a: &mut Interleaved) -> [usize; LANES]
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
    use super::super::testing::{equal, samples, side_by_side};
    use super::*;
    use crate::linalg::cholesky::cholesky as cholesky_of_one;
    use crate::linalg::matrix::Matrix;

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
