//! The exponential of small matrices side by side.

use super::Interleaved;
use super::products::multiply;
use crate::linalg::LANES;
use crate::linalg::exponential::{POWERS, add_powers, coefficient, halvings_for};

/// The powers of small matrices and the polynomial, side by side.
pub(in crate::linalg) struct Workspace {
    pub(in crate::linalg) powers: [Interleaved; POWERS],
    pub(in crate::linalg) sum: Interleaved,
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
    pub(in crate::linalg) fn exponentials(&mut self, small: f64) {
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
        multiply(first, first, square);
        multiply(square, first, cube);
        multiply(square, square, fourth);
        self.sum.clone_from(fourth);
        self.sum.v.fill([0.0; LANES]);
        self.add_terms(n, 12, true);
        for k in [8, 4, 0] {
            multiply(&self.sum, &self.powers[3], &mut self.product);
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
            multiply(&self.sum, &self.sum, &mut self.product);
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
    use super::*;
    use crate::linalg::exponential::matrix_exp;
    use crate::linalg::matrix::Matrix;

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
