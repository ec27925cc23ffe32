//! Matrices that have been reduced to two diagonals: tridiagonal ones, whose eigenvalues are found, and bidiagonal ones, whose singular
//! values are. One matrix is handled alone, several side by side.

use super::LANES;
use super::lanes::Lanes;

/// A matrix of two diagonals, divided by a power of two.
pub(super) struct Band {
    pub(super) diagonal: Vec<f64>,
    /// The elements beside the diagonal, with a zero at the end.
    pub(super) beside: Vec<f64>,
    pub(super) scale: f64,
}

impl Band {
    /// Stands for a matrix with infinities or NaN. Its values become NaN.
    pub(super) fn undefined(n: usize) -> Band {
        Band {
            diagonal: vec![0.0; n],
            beside: vec![0.0; n],
            scale: f64::NAN,
        }
    }
}

/// Replaces the diagonals by eigenvalues or singular values in any order. `one` computes those of a single matrix, and `many` those of one
/// matrix per lane. All matrices have the same size.
pub(super) fn diagonalise_all(all: &mut [Band], one: fn(&mut [f64], &mut [f64]), many: fn(&mut [Lanes], &mut [Lanes])) {
    let (mut diagonal, mut beside) = (vec![], vec![]);
    for group in all.chunks_mut(LANES) {
        let last = group.len() - 1;
        if last == 0 || group[0].diagonal.is_empty() {
            group.iter_mut().for_each(|b| one(&mut b.diagonal, &mut b.beside));
            continue;
        }
        diagonal.clear();
        beside.clear();
        for k in 0..group[0].diagonal.len() {
            diagonal.push(std::array::from_fn(|l| group[l.min(last)].diagonal[k]));
            beside.push(std::array::from_fn(|l| group[l.min(last)].beside[k]));
        }
        many(&mut diagonal, &mut beside);
        for (l, band) in group.iter_mut().enumerate() {
            band.diagonal.iter_mut().zip(&diagonal).for_each(|(y, x)| *y = x[l]);
        }
    }
}

/// Appends eigenvalues in ascending order.
pub(super) fn append_ascending(values: impl Iterator<Item = f64>, scale: f64, out: &mut Vec<f64>) {
    let start = out.len();
    out.extend(values.map(|x| x * scale));
    out[start..].sort_unstable_by(f64::total_cmp);
}

/// Appends singular values in descending order. Their signs do not matter.
pub(super) fn append_descending(values: impl Iterator<Item = f64>, scale: f64, out: &mut Vec<f64>) {
    let start = out.len();
    out.extend(values.map(|x| x.abs() * scale));
    out[start..].sort_unstable_by(|x, y| y.total_cmp(x));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::{eigen, lanes, svd};

    /// Groups that are not full, blocks, and zeros on the diagonal and beside it.
    fn samples(n: usize, count: usize) -> Vec<Band> {
        let element = |k: usize, i: usize| ((k * 3 + i * 7 + i * i) % (k + 2)) as f64 - 0.5 * (k % 3) as f64;
        (0..count)
            .map(|k| Band {
                diagonal: (0..n).map(|i| element(k, i) / 4.0).collect(),
                beside: (0..n)
                    .map(|i| if i + 1 < n { element(k + 1, i) / 5.0 } else { 0.0 })
                    .collect(),
                scale: 2.0,
            })
            .collect()
    }

    #[test]
    fn lanes_have_the_values_of_their_matrices() {
        type One = fn(&mut [f64], &mut [f64]);
        type Many = fn(&mut [Lanes], &mut [Lanes]);
        let pairs: [(One, Many); 2] = [
            (eigen::ql::diagonalise, lanes::ql::diagonalise),
            (svd::implicit_qr::diagonalise, lanes::implicit_qr::diagonalise),
        ];
        for ((one, many), n) in pairs.into_iter().flat_map(|p| [1, 2, 3, 17, 40].map(|n| (p, n))) {
            let (mut all, mut each) = (samples(n, 19), samples(n, 19));
            diagonalise_all(&mut all, one, many);
            each.iter_mut().for_each(|b| one(&mut b.diagonal, &mut b.beside));
            for (x, y) in all.iter().zip(&each) {
                let (mut got, mut want) = (vec![], vec![]);
                append_descending(x.diagonal.iter().copied(), x.scale, &mut got);
                append_descending(y.diagonal.iter().copied(), y.scale, &mut want);
                assert!(got.iter().zip(&want).all(|(x, y)| (x - y).abs() < 1e-13), "{n}");
            }
        }
    }
}
