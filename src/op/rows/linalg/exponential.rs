//! The exponential of matrices by scaling and squaring: a matrix is halved until it is small, its Taylor polynomial of degree 16 is computed
//! from powers (Paterson and Stockmeyer 1973), and the result is squared as often.

use super::interleaved::{self, Interleaved, LANES};
use super::interleaved_products;
use super::lines::divide_all;
use super::matrix::Matrix;
use super::real::Real;
use super::transfer::{Matrices, Results};
use crate::tensor::{Tensor, wide_function};
use crate::types::DType;

/// The powers besides the identity that the polynomial is a sum of, and the degree of its blocks.
const POWERS: usize = 4;

/// The largest norm for which the terms after degree 16 are below the rounding errors of the results' dtype.
fn small_norm(dtype: DType) -> f64 {
    if dtype == DType::F64 { 0.75 } else { 2.5 }
}

/// The exponentials of all matrices of a tensor.
pub(super) fn matrix_exponentials<T: Real>(x: &Tensor) -> Results {
    let (all, small) = (Matrices::of(x), small_norm(x.dtype()));
    let mut out: Vec<T> = Vec::with_capacity(x.numel());
    if interleaved::suits(all.count, all.rows, all.columns) {
        let mut work = Workspace::default();
        for first in interleaved::groups(all.count) {
            all.interleave(interleaved::places(first, all.count), false, &mut work.powers[0]);
            work.exponentials(small);
            work.sum.append((all.count - first).min(LANES), false, &mut out);
        }
        return T::results(out);
    }
    let mut m = Matrix::<T>::zeros(0, 0);
    for i in 0..all.count {
        all.read(i, &mut m);
        out.append(&mut matrix_exp(&mut m, small).v);
    }
    T::results(out)
}

/// How often a matrix of this norm has to be halved.
fn halvings_for(norm: f64, small: f64) -> i32 {
    if norm.is_finite() && norm > small {
        (norm / small).log2().ceil() as i32
    } else {
        0
    }
}

/// The coefficient of a power in the exponential's series.
fn coefficient(degree: usize) -> f64 {
    1.0 / (1..=degree).map(|k| k as f64).product::<f64>()
}

/// The exponential of `m`, which is overwritten.
fn matrix_exp<T: Real>(m: &mut Matrix<T>, small: f64) -> Matrix<T> {
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
    /// Adds the terms of the powers whose coefficients begin with that of `degree`, up to the third or the fourth power.
    fn add_powers = add_powers_body<T: Real>(sum: &mut [T], n: usize, powers: [&[T]; POWERS], degree: usize, fourth: bool)
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

/// The powers of small matrices and the polynomial, side by side.
struct Workspace {
    powers: [Interleaved; POWERS],
    sum: Interleaved,
    product: Interleaved,
}

impl Default for Workspace {
    fn default() -> Workspace {
        let none = || Interleaved::zeros(0, 0);
        Workspace {
            powers: std::array::from_fn(|_| none()),
            sum: none(),
            product: none(),
        }
    }
}

impl Workspace {
    /// Replaces `sum` by the exponentials of the first powers.
    fn exponentials(&mut self, small: f64) {
        let n = self.powers[0].rows;
        let mut norms = [0.0; LANES];
        for j in 0..n {
            for (l, norm) in norms.iter_mut().enumerate() {
                let sum = (0..n).map(|i| self.powers[0].at(i, j)[l].abs()).sum::<f64>();
                *norm = f64::max(*norm, sum);
            }
        }
        let halvings = norms.map(|norm| halvings_for(norm, small));
        let scale = halvings.map(|h| 2f64.powi(h));
        for x in self.powers[0].v.iter_mut() {
            (0..LANES).for_each(|l| x[l] /= scale[l]);
        }
        let [first, square, cube, fourth] = &mut self.powers;
        interleaved_products::multiply(first, first, square);
        interleaved_products::multiply(square, first, cube);
        interleaved_products::multiply(square, square, fourth);
        self.sum.clone_from(fourth);
        self.sum.v.fill([0.0; LANES]);
        self.add_terms(n, 12, true);
        for k in [8, 4, 0] {
            interleaved_products::multiply(&self.sum, &self.powers[3], &mut self.product);
            std::mem::swap(&mut self.sum, &mut self.product);
            self.add_terms(n, k, false);
        }
        self.square(halvings);
    }

    fn add_terms(&mut self, n: usize, degree: usize, fourth: bool) {
        let powers = std::array::from_fn(|p| self.powers[p].v.as_flattened());
        add_powers(self.sum.v.as_flattened_mut(), 0, powers, degree, fourth);
        let one = coefficient(degree);
        for i in 0..n {
            self.sum.v[i * n + i].iter_mut().for_each(|x| *x += one);
        }
    }

    /// Squares each matrix as often as its lane says.
    fn square(&mut self, times: [i32; LANES]) {
        for k in 0..times.into_iter().max().unwrap_or(0) {
            interleaved_products::multiply(&self.sum, &self.sum, &mut self.product);
            for (x, y) in self.sum.v.iter_mut().zip(&self.product.v) {
                for l in 0..LANES {
                    x[l] = if times[l] > k { y[l] } else { x[l] };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::symmetric::symmetric_eigen;
    use super::*;

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
            let far = got
                .v
                .iter()
                .zip(&want.v)
                .map(|(x, y)| (x - y).abs())
                .fold(0.0, f64::max);
            assert!(far < near * most, "{scale} {small}: {far}");
        }
    }

    #[test]
    fn lanes_have_the_exponentials_of_their_matrices() {
        let all: Vec<Matrix> = (0..LANES)
            .map(|l| Matrix::from_fn(3, 3, |i, j| (i * j + l) as f64 * l as f64 * 0.3 - 0.5))
            .collect();
        let mut work = Workspace::default();
        work.powers[0] = Interleaved::zeros(3, 3);
        for (e, x) in work.powers[0].v.iter_mut().enumerate() {
            *x = std::array::from_fn(|l| all[l].v[e]);
        }
        work.exponentials(0.75);
        for (l, m) in all.into_iter().enumerate() {
            let mut m = m;
            let want = matrix_exp(&mut m, 0.75);
            for (x, y) in work.sum.v.iter().zip(&want.v) {
                assert!((x[l] - y).abs() <= 1e-12 * y.abs().max(1.0), "lane {l}: {x:?} {y}");
            }
        }
    }
}
