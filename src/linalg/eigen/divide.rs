//! Divide and conquer for the eigenvectors of large tridiagonal matrices: the results of both halves are joined by matrix products (Cuppen
//! 1981; LAPACK's `stedc`).

use super::secular::{RankOne, Roots, secular_roots};
use super::undivided_eigen;
use crate::linalg::matrix::Matrix;
use crate::linalg::real::Real;
use crate::linalg::threads::{add_product_by_rows, run_each};
use crate::tensor::Factor;

/// The largest matrix that is not divided.
const WHOLE: usize = 16;

/// Eigenvalues in ascending order, and the eigenvectors as rows.
pub(in crate::linalg) struct Eigen<T> {
    pub(in crate::linalg) values: Vec<f64>,
    pub(in crate::linalg) vectors: Matrix<T>,
}

/// The results for a tridiagonal matrix of elements of about one. The elements beside the diagonal have a zero at the end.
pub(in crate::linalg) fn tridiagonal_eigen<T: Real>(d: &mut [f64], e: &mut [f64]) -> Eigen<T> {
    let n = d.len();
    if n <= WHOLE {
        return undivided_eigen(d, e);
    }
    let middle = n / 2;
    let beside = std::mem::take(&mut e[middle - 1]);
    d[middle - 1] -= beside.abs();
    d[middle] -= beside.abs();
    let ((d, other_d), (e, other_e)) = (d.split_at_mut(middle), e.split_at_mut(middle));
    let mut halves = [(d, e, None), (other_d, other_e, None)];
    // Both are as much work, and few threads divide it further.
    run_each(&mut halves, n * n * n / 8, |(d, e, found)| {
        *found = Some(tridiagonal_eigen::<T>(d, e))
    });
    match halves {
        [(.., Some(first)), (.., Some(second))] => join(&[first, second], beside),
        _ => unreachable!("both halves were computed"),
    }
}

/// Which half of an eigenvector may have elements other than zero.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    First,
    Both,
    Second,
}

/// The eigenvalues and eigenvectors of both halves. In the basis of the eigenvectors, the whole matrix is `diag(d) + strength z z^T`.
struct Halves<T> {
    d: Vec<f64>,
    z: Vec<f64>,
    parts: Vec<Part>,
    vectors: Matrix<T>,
    strength: f64,
}

/// Joins the results for the halves of a matrix. `beside` is the element next to the diagonal that was cut.
fn join<T: Real>(halves: &[Eigen<T>; 2], beside: f64) -> Eigen<T> {
    let middle = halves[0].values.len();
    let mut all = Halves::new(halves, beside);
    let (kept, rest) = all.deflate();
    let d: Vec<f64> = kept.iter().map(|&i| all.d[i]).collect();
    let z: Vec<f64> = kept.iter().map(|&i| all.z[i]).collect();
    let m = RankOne {
        d: &d,
        z: &z,
        strength: all.strength,
    };
    let roots = secular_roots(&m);
    let fresh = all.multiply(&m, &roots, &kept, middle);
    all.sorted(&roots.values, &fresh, &rest)
}

impl<T: Real> Halves<T> {
    fn new([first, second]: &[Eigen<T>; 2], beside: f64) -> Halves<T> {
        let (p, q) = (first.values.len(), second.values.len());
        let n = p + q;
        let mut vectors = Matrix::zeros(n, n);
        for i in 0..p {
            vectors.v[i * n..i * n + p].copy_from_slice(first.vectors.row(i));
        }
        for i in 0..q {
            vectors.v[(p + i) * n + p..(p + i + 1) * n].copy_from_slice(second.vectors.row(i));
        }
        // The sum of squares of z is one.
        let weight = |x: T, sign: f64| sign * std::f64::consts::FRAC_1_SQRT_2 * x.into();
        let above = (0..p).map(|i| weight(first.vectors.at(i, p - 1), 1.0));
        let below = (0..q).map(|i| weight(second.vectors.at(i, 0), 1f64.copysign(beside)));
        Halves {
            d: [&first.values[..], &second.values[..]].concat(),
            z: above.chain(below).collect(),
            parts: (0..n).map(|i| if i < p { Part::First } else { Part::Second }).collect(),
            vectors,
            strength: 2.0 * beside.abs(),
        }
    }

    /// Separates the eigenvectors that change (the first list, in ascending order of `d`) from those that remain. An eigenvector remains if
    /// its element of z is negligible. If two eigenvalues are equal, a rotation makes one of their elements zero.
    fn deflate(&mut self) -> (Vec<usize>, Vec<usize>) {
        let mut order: Vec<usize> = (0..self.d.len()).collect();
        order.sort_by(|&i, &j| self.d[i].total_cmp(&self.d[j]));
        let most = self.d.iter().chain(&self.z).fold(0.0, |m: f64, x| m.max(x.abs()));
        let precision = if T::NARROW {
            f64::from(f32::EPSILON)
        } else {
            f64::EPSILON
        };
        let near = 4.0 * precision * most;
        let (mut kept, mut rest): (Vec<usize>, Vec<usize>) = (vec![], vec![]);
        for j in order {
            if self.strength * self.z[j].abs() <= near {
                rest.push(j);
                continue;
            }
            if let Some(&i) = kept.last()
                && self.rotate_if_equal(i, j, near)
            {
                kept.pop();
                rest.push(i);
            }
            kept.push(j);
        }
        (kept, rest)
    }

    /// Makes element `i` of z zero by a rotation with element `j`, unless that would leave more than `near` beside the diagonal.
    fn rotate_if_equal(&mut self, i: usize, j: usize, near: f64) -> bool {
        let length = self.z[i].hypot(self.z[j]);
        let (cos, sin) = (self.z[j] / length, -self.z[i] / length);
        let (x, y) = (self.d[i], self.d[j]);
        if ((y - x) * cos * sin).abs() > near {
            return false;
        }
        (self.z[i], self.z[j]) = (0.0, length);
        self.d[i] = x * cos * cos + y * sin * sin;
        self.d[j] = x * sin * sin + y * cos * cos;
        if self.parts[i] != self.parts[j] {
            (self.parts[i], self.parts[j]) = (Part::Both, Part::Both);
        }
        let (cos, sin) = (T::nearest(cos), T::nearest(sin));
        let (first, second) = self.vectors.two_rows(i.min(j), i.max(j));
        let (a, b) = if i < j { (first, second) } else { (second, first) };
        for (a, b) in a.iter_mut().zip(b) {
            (*a, *b) = (cos * *a + sin * *b, cos * *b - sin * *a);
        }
        true
    }

    /// The eigenvectors that change, as rows: products with those of the halves. Products with the zeros of these are left out.
    fn multiply(&self, m: &RankOne<'_>, roots: &Roots, kept: &[usize], middle: usize) -> Matrix<T> {
        let (k, n) = (kept.len(), self.d.len());
        if k == 0 {
            return Matrix::zeros(0, n);
        }
        let with = |part: Part| (0..k).filter(move |&i| self.parts[kept[i]] == part);
        let order: Vec<usize> = [Part::First, Part::Both, Part::Second]
            .into_iter()
            .flat_map(with)
            .collect();
        let (firsts, seconds) = (with(Part::First).count(), with(Part::Second).count());
        let mut factors = vec![T::ZERO; k * k];
        roots.write_vectors(m, &order, &mut factors);
        let mut packed = Vec::with_capacity(k * n);
        for &i in &order {
            packed.extend_from_slice(self.vectors.row(kept[i]));
        }
        let mut out = Matrix::zeros(k, n);
        for (terms, columns) in [(0..k - seconds, 0..middle), (firsts..k, middle..n)] {
            let left = Factor::at(&factors, k, 0, terms.start);
            let right = Factor::at(&packed, n, terms.start, columns.start);
            let sizes = [k, columns.len(), terms.len()];
            add_product_by_rows(sizes, T::ONE, left, right, (&mut out.v, columns.start, n));
        }
        out
    }

    /// All results in ascending order.
    fn sorted(&self, values: &[f64], fresh: &Matrix<T>, rest: &[usize]) -> Eigen<T> {
        let n = self.d.len();
        let mut all: Vec<(f64, &[T])> = values.iter().enumerate().map(|(i, x)| (*x, fresh.row(i))).collect();
        all.extend(rest.iter().map(|&i| (self.d[i], self.vectors.row(i))));
        all.sort_by(|x, y| x.0.total_cmp(&y.0));
        let mut v = Vec::with_capacity(n * n);
        all.iter().for_each(|x| v.extend_from_slice(x.1));
        Eigen {
            values: all.iter().map(|x| x.0).collect(),
            vectors: Matrix { rows: n, columns: n, v },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Different and equal eigenvalues, halves that do not touch, and halves that are the same.
    #[test]
    fn eigenvectors_multiply_back() {
        for n in [33, 64, 101] {
            let diagonals: [fn(usize) -> f64; 3] =
                [|i| ((i * 7 + i * i) % 11) as f64 / 8.0, |_| 1.0, |i| i as f64 / 64.0];
            let besides: [fn(usize) -> f64; 4] = [|i| ((i * 5) % 7) as f64 / 8.0 - 0.4, |_| 0.5, |_| 0.0, |_| 1e-9];
            for (d, e) in diagonals.into_iter().flat_map(|d| besides.map(|e| (d, e))) {
                let (mut diagonal, mut beside) = ((0..n).map(d).collect::<Vec<_>>(), (0..n).map(e).collect::<Vec<_>>());
                beside[n - 1] = 0.0;
                let Eigen { values, vectors } = tridiagonal_eigen::<f64>(&mut diagonal, &mut beside);
                assert!(values.is_sorted());
                let scaled = Matrix::from_fn(n, n, |i, j| vectors.at(i, j) * values[i]);
                let (got, product) = (
                    vectors.transposed().times(&scaled),
                    vectors.times(&vectors.transposed()),
                );
                for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))) {
                    let want = match i.abs_diff(j) {
                        0 => d(i),
                        1 => e(i.min(j)),
                        _ => 0.0,
                    };
                    assert!((got.at(i, j) - want).abs() < 1e-13, "{n} {i} {j}");
                    assert!((product.at(i, j) - (i == j) as u8 as f64).abs() < 1e-13, "{n} {i} {j}");
                }
            }
        }
    }
}
