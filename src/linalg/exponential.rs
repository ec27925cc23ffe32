//! The exponential of matrices by scaling and squaring: a matrix is halved until it is small, its Taylor polynomial of degree 16 is
//! computed from powers (Paterson and Stockmeyer 1973), and the result is squared as often.

use super::LANES;
use super::batch::{Matrices, Results};
use super::lanes;
use super::lanes::exponential::Workspace;
use super::matrix::Matrix;
use super::real::{Real, in_dtype};
use super::scale::divide_all;
use super::threads::{parts_of, room};
use crate::tensor::{Tensor, wide_function};
use crate::types::DType;

/// The polynomial is evaluated in blocks of this degree, so this many powers are needed.
pub(super) const POWERS: usize = 4;

/// The largest norm for which the terms after degree 16 are below rounding errors of the dtype.
fn small_norm(dtype: DType) -> f64 {
    if dtype == DType::F64 { 0.75 } else { 2.5 }
}

/// The exponentials of all matrices of a tensor.
pub(crate) fn exponentials(x: &Tensor) -> Results {
    let all = Matrices::of(x);
    in_dtype!(all, T => exponentials_in::<T>(&all, small_norm(x.dtype())))
}

fn exponentials_in<T: Real>(all: &Matrices, small: f64) -> Results {
    let side_by_side = lanes::suits(all.count, all.rows, all.columns);
    T::results(parts_of(all, side_by_side, |range| {
        let mut out: Vec<T> = Vec::with_capacity(room(&range, all.count) * all.rows * all.columns);
        if side_by_side {
            let mut work = Workspace::default();
            for first in lanes::groups(range.clone()) {
                all.interleave(lanes::places(first, all.count), false, &mut work.powers[0]);
                work.exponentials(small);
                work.sum.append((range.end - first).min(LANES), false, &mut out);
            }
            return out;
        }
        let mut m = Matrix::<T>::zeros(0, 0);
        for i in range {
            all.read(i, &mut m);
            out.append(&mut matrix_exp(&mut m, small).v);
        }
        out
    }))
}

/// How often a matrix with this norm has to be halved.
pub(super) fn halvings_for(norm: f64, small: f64) -> i32 {
    if norm.is_finite() && norm > small {
        (norm / small).log2().ceil() as i32
    } else {
        0
    }
}

/// The coefficient of a power in the exponential's series.
pub(super) fn coefficient(degree: usize) -> f64 {
    1.0 / (1..=degree).map(|k| k as f64).product::<f64>()
}

/// The exponential of `m`, which is overwritten.
pub(super) fn matrix_exp<T: Real>(m: &mut Matrix<T>, small: f64) -> Matrix<T> {
    let n = m.rows;
    let mut sums = vec![0.0; n];
    for row in m.v.chunks_exact(n.max(1)) {
        sums.iter_mut().zip(row).for_each(|(s, x)| *s += (*x).abs().into());
    }
    let halvings = halvings_for(sums.into_iter().fold(0.0, f64::max), small);
    divide_all(&mut m.v, 2f64.powi(halvings));
    let square = m.times(m);
    let cube = square.times(m);
    let fourth = square.times(&square);
    let powers = [&m.v[..], &square.v, &cube.v, &fourth.v];
    let mut sum = Matrix::zeros(n, n);
    add_powers(&mut sum.v, n, powers, 12, true);
    for k in [8, 4, 0] {
        sum = sum.times(&fourth);
        add_powers(&mut sum.v, n, powers, k, false);
    }
    (0..halvings).fold(sum, |m, _| m.times(&m))
}

wide_function! {
    /// Adds a block of the polynomial: the terms from `degree` on, up to the third or the fourth of the powers.
    pub(super) fn add_powers = add_powers_body<T: Real>(sum: &mut [T], n: usize, powers: [&[T]; POWERS], degree: usize, fourth: bool)
}

#[inline(always)]
fn add_powers_body<T: Real>(sum: &mut [T], n: usize, powers: [&[T]; POWERS], degree: usize, fourth: bool) {
    let f: [T; POWERS] = std::array::from_fn(|p| T::nearest(coefficient(degree + 1 + p)));
    let [a, b, c, d] = powers.map(|p| &p[..sum.len()]);
    for i in 0..sum.len() {
        let last = if fourth { f[3] * d[i] } else { T::ZERO };
        sum[i] += f[0] * a[i] + f[1] * b[i] + f[2] * c[i] + last;
    }
    let one = T::nearest(coefficient(degree));
    for i in 0..n {
        sum[i * n + i] += one;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::eigen::symmetric_eigen;
    use crate::linalg::testing::assert_close;

    fn exponential_by_eigenvalues(a: &Matrix) -> Matrix {
        let (values, v) = symmetric_eigen(&mut a.clone());
        let scaled = Matrix::from_fn(a.rows, a.rows, |i, j| v.at(i, j) * values[j].exp());
        scaled.times(&v.transposed())
    }

    #[test]
    fn exponentials_are_those_of_the_eigenvalues() {
        for (scale, small, near) in [(0.3, 0.75, 1e-13), (0.3, 2.5, 1e-8), (2.0, 0.75, 1e-13)] {
            let a = Matrix::from_fn(3, 3, |i, j| (i + j) as f64 * scale);
            let (got, want) = (matrix_exp(&mut a.clone(), small), exponential_by_eigenvalues(&a));
            let most = want.v.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
            assert_close(&got, &want, near * most);
        }
    }
}
