//! Eigenvalues and eigenvectors of symmetric matrices: Householder's reduction to a [`mod@tridiagonal`] matrix, whose eigenvalues are found
//! by implicit [`ql`] steps, or, with eigenvectors of more than [`UNDIVIDED`] columns, by [`divide`] and conquer.

pub(super) mod divide;
pub(super) mod ql;
mod secular;
mod tridiagonal;

use self::divide::{Eigen, tridiagonal_eigen};
use self::ql::{diagonalise, diagonalise_narrow, diagonalise_vectors};
use self::tridiagonal::{Tridiagonal, tridiagonal};
use super::bands::{Band, append_ascending, diagonalise_all};
use super::batch::{Matrices, Results};
use super::lanes;
use super::matrix::Matrix;
use super::qr::{apply_reflections_of_rows, basis_of_rows};
use super::real::{Real, in_dtype};
use super::rotations::RotatedRows;
use super::scale::{divide_all, magnitude};
use super::threads::{Join, in_parts, work_of};

/// The eigenvalues of every matrix in ascending order. Only one triangle counts. `check` is called with the index of each matrix with
/// elements that are not finite; unless it returns an error, the eigenvalues are NaN.
pub(crate) fn eigenvalues<E>(
    all: &Matrices,
    lower: bool,
    check: &dyn Fn(usize) -> Result<(), E>,
) -> Result<Vec<f64>, E> {
    match lanes::spectra::suits(all) {
        true => lanes::spectra::eigenvalues(all, lower, check),
        false => in_dtype!(all, T => eigenvalues_in::<T, E>(all, lower, check)),
    }
}

fn eigenvalues_in<T: Real, E>(
    all: &Matrices,
    lower: bool,
    check: &dyn Fn(usize) -> Result<(), E>,
) -> Result<Vec<f64>, E> {
    let found = each_symmetric::<T, Vec<Band>>(all, lower, |bands, n, m| {
        bands.push(m.map_or_else(|| Band::undefined(n), tridiagonal_band));
    });
    Ok(eigenvalues_of_bands::<T>(checked(found, check)?))
}

/// [`eigenvalues`] with the eigenvectors as columns. These are NaN too for a matrix that is not finite, except for a single element.
pub(crate) fn eigenvectors<E>(
    all: &Matrices,
    lower: bool,
    check: &dyn Fn(usize) -> Result<(), E>,
) -> Result<(Vec<f64>, Results), E> {
    if lanes::spectra::suits(all) {
        let (values, vectors) = lanes::spectra::eigenvectors(all, lower, check)?;
        return Ok((values, vectors.into()));
    }
    in_dtype!(all, T => eigenvectors_in::<T, E>(all, lower, check))
}

fn eigenvectors_in<T: Real, E>(
    all: &Matrices,
    lower: bool,
    check: &dyn Fn(usize) -> Result<(), E>,
) -> Result<(Vec<f64>, Results), E> {
    let found = each_symmetric::<T, (Vec<f64>, Vec<T>)>(all, lower, |(values, vectors), n, m| {
        if let Some(m) = m {
            let (s, mut v) = symmetric_eigen(m);
            values.extend(s);
            vectors.append(&mut v.v);
        } else {
            values.extend(std::iter::repeat_n(f64::NAN, n));
            let vector = if n == 1 { T::ONE } else { T::nearest(f64::NAN) };
            vectors.extend(std::iter::repeat_n(vector, n * n));
        }
    });
    let (values, vectors) = checked(found, check)?;
    Ok((values, T::results(vectors)))
}

/// Results for matrices, and the indices of those with elements that are not finite.
pub(super) type Found<R> = (R, Vec<usize>);

/// The results, after a call of `check` for each matrix with elements that are not finite.
pub(super) fn checked<R, E>((results, undefined): Found<R>, check: &dyn Fn(usize) -> Result<(), E>) -> Result<R, E> {
    undefined.into_iter().try_for_each(check)?;
    Ok(results)
}

/// Returns what calls of `f` made of it for the symmetric matrices that the given triangles describe, with these
/// in the upper triangle; with `None` for one with elements that are not finite.
fn each_symmetric<T: Real, R: Default + Join>(
    all: &Matrices,
    lower: bool,
    f: impl Fn(&mut R, usize, Option<&mut Matrix<T>>) + Sync,
) -> Found<R> {
    // A reduction takes four times as long as a factorisation.
    in_parts(
        all.count,
        1,
        work_of(all.rows, all.columns).saturating_mul(4),
        |range| {
            let (n, mut m) = (all.rows, Matrix::zeros(0, 0));
            let (mut found, mut undefined) = (R::default(), vec![]);
            for i in range {
                match lower {
                    true => all.read_transposed(i, &mut m),
                    false => all.read(i, &mut m),
                }
                // The other triangle does not count, whatever it contains.
                for r in 1..n {
                    m.v[r * n..r * n + r].fill(T::ZERO);
                }
                let finite = m.is_finite();
                if !finite {
                    undefined.push(i);
                }
                f(&mut found, n, finite.then_some(&mut m));
            }
            (found, undefined)
        },
    )
}

/// The tridiagonal form of a symmetric matrix of finite numbers. Only the upper triangle counts, and is overwritten.
pub(super) fn tridiagonal_band<T: Real>(a: &mut Matrix<T>) -> Band {
    let (t, scale) = scaled_tridiagonal(a);
    Band {
        diagonal: t.diagonal,
        beside: t.below,
        scale,
    }
}

/// The eigenvalues of tridiagonal matrices, each in ascending order.
pub(super) fn eigenvalues_of_bands<T: Real>(mut bands: Vec<Band>) -> Vec<f64> {
    let one = if T::NARROW { diagonalise_narrow } else { diagonalise };
    diagonalise_all(&mut bands, one, lanes::ql::diagonalise);
    let mut out = vec![];
    for band in bands {
        append_ascending(band.diagonal.into_iter(), band.scale, &mut out);
    }
    out
}

/// The largest number of columns for which the eigenvectors of a tridiagonal matrix are found by rotations alone.
const UNDIVIDED: usize = 32;

/// The eigenvalues of a symmetric matrix of finite numbers in ascending order, and its eigenvectors as columns. Only the upper triangle
/// counts, and is overwritten.
pub(super) fn symmetric_eigen<T: Real>(a: &mut Matrix<T>) -> (Vec<f64>, Matrix<T>) {
    let (mut t, scale) = scaled_tridiagonal(a);
    let (mut values, vectors) = match a.rows > UNDIVIDED {
        true => {
            let found = tridiagonal_eigen::<T>(&mut t.diagonal, &mut t.below);
            let mut vectors = found.vectors.transposed();
            apply_reflections_of_rows(a, &t.taus, &mut vectors);
            (found.values, vectors)
        }
        false => rotated_eigen(&mut t.diagonal, &mut t.below, &basis_of_rows(a, &t.taus)),
    };
    values.iter_mut().for_each(|x| *x *= scale);
    (values, vectors)
}

/// The eigenvalues of a tridiagonal matrix in ascending order, and its eigenvectors in a basis, whose rows are rotated to the columns of
/// the result.
fn rotated_eigen<T: Real>(d: &mut [f64], e: &mut [f64], basis: &Matrix<T>) -> (Vec<f64>, Matrix<T>) {
    let mut vectors = RotatedRows::new(basis);
    diagonalise_vectors(d, e, &mut vectors);
    let mut order: Vec<usize> = (0..d.len()).collect();
    order.sort_by(|&i, &j| d[i].total_cmp(&d[j]));
    (order.iter().map(|&i| d[i]).collect(), vectors.finish(&order))
}

/// The eigenvalues of a tridiagonal matrix, and its eigenvectors, by rotations.
pub(super) fn undivided_eigen<T: Real>(d: &mut [f64], e: &mut [f64]) -> Eigen<T> {
    let (values, vectors) = rotated_eigen(d, e, &Matrix::eye(d.len()));
    Eigen {
        values,
        vectors: vectors.transposed(),
    }
}

/// The tridiagonal form of `a` divided by a power of two, and that power.
fn scaled_tridiagonal<T: Real>(a: &mut Matrix<T>) -> (Tridiagonal<T>, f64) {
    let scale = magnitude(&a.v);
    divide_all(&mut a.v, scale);
    (tridiagonal(a), scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::testing::far;

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
                let (values, v) = symmetric_eigen(&mut a.clone());
                let scaled = Matrix::from_fn(n, n, |i, j| v.at(i, j) * values[j]);
                assert!(far(&scaled.times(&v.transposed()), &a) <= 1e-12 * scale, "{n}");
                assert!(far(&v.transposed().times(&v), &Matrix::eye(n)) < 1e-13, "{n}");
                assert!(values.is_sorted());
                let alone = eigenvalues_of_bands::<f64>(vec![tridiagonal_band(&mut a.clone())]);
                let mut band = tridiagonal_band(&mut a.clone());
                diagonalise_narrow(&mut band.diagonal, &mut band.beside);
                let mut narrow = vec![];
                append_ascending(band.diagonal.into_iter(), band.scale, &mut narrow);
                for (found, most) in [(alone, 1e-12), (narrow, 1e-9)] {
                    let far = |(x, y): (&f64, &f64)| (x - y).abs() > most * scale;
                    assert!(!found.iter().zip(&values).any(far), "{n}");
                }
            }
        }
    }

    /// In f32, after so many rotations that rounded cosines would make the vectors longer.
    #[test]
    fn narrow_eigenvectors_multiply_back() {
        for n in [25, 100] {
            let a = Matrix::from_fn(n, n, |i, j| ((i * j + i + j) % 7) as f64 - 1.0);
            let mut narrow = Matrix::from_fn(n, n, |i, j| a.at(i, j) as f32);
            let (values, v) = symmetric_eigen(&mut narrow);
            let v = Matrix::from_fn(n, n, |i, j| f64::from(v.at(i, j)));
            let scaled = Matrix::from_fn(n, n, |i, j| v.at(i, j) * values[j]);
            assert!(far(&scaled.times(&v.transposed()), &a) <= 1e-4, "{n}");
            assert!(far(&v.transposed().times(&v), &Matrix::eye(n)) < 4e-6, "{n}");
        }
    }
}
