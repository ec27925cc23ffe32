//! Eigenvalues and singular values of batches of small matrices, in groups of one matrix per lane.

use super::implicit_qr::{self, Bidiagonals};
use super::jacobi::orthogonalise;
use super::ql::{self, Tridiagonals};
use super::scales::scale;
use super::{Interleaved, groups, places};
use crate::linalg::LANES;
use crate::linalg::bands::{append_ascending, append_descending};
use crate::linalg::batch::Matrices;
use crate::linalg::eigen::{Found, checked};
use crate::linalg::matrix::Matrix;
use crate::linalg::svd::{Svd, complete_basis};
use crate::linalg::threads::{Join, in_parts, work_of};
use crate::types::DType;

/// The maximum number of rows or columns for eigenvalues and singular values. Eight larger matrices of f64 do not stay in the second cache.
const MAX_SIZE: usize = 64;

/// Whether the eigenvalues or singular values of matrices should be found side by side. The limit is higher than for factorisations,
/// because the loops for a single matrix wait for square roots. For such large matrices, few lanes may be idle.
pub(in crate::linalg) fn suits(all: &Matrices) -> bool {
    let idle = all.count.next_multiple_of(LANES) - all.count;
    let fills_lanes = all.count > 0 && idle <= all.count / 4;
    super::suits(all.count, all.rows, all.columns) || (fills_lanes && all.rows.max(all.columns) <= MAX_SIZE)
}

/// The memory in which the eigenvalues of a group are computed.
struct Group {
    m: Interleaved,
    t: Tridiagonals,
    /// The powers of two that the matrices were divided by; NaN for one that is not finite.
    scales: [f64; LANES],
}

/// Returns what calls of `f` made of it with the tridiagonal matrices of each group, and its number of matrices.
/// Only one triangle counts.
fn each_group<R: Default + Join>(
    all: &Matrices,
    lower: bool,
    f: impl Fn(&mut R, &mut Group, usize) + Sync,
) -> Found<R> {
    in_parts(all.count, LANES, spectrum_work(all), |range| {
        let mut group = Group {
            m: Interleaved::zeros(0, 0),
            t: Tridiagonals::default(),
            scales: [1.0; LANES],
        };
        let (mut found, mut undefined) = (R::default(), vec![]);
        for first in groups(range.clone()) {
            let count = (range.end - first).min(LANES);
            all.interleave(places(first, all.count), false, &mut group.m);
            mirror(&mut group.m, lower);
            group.scales = scale(&mut group.m);
            undefined.extend((0..count).filter(|l| group.scales[*l].is_nan()).map(|l| first + l));
            ql::tridiagonal(&mut group.m, &mut group.t);
            f(&mut found, &mut group, count);
        }
        (found, undefined)
    })
}

/// The work for the eigenvalues or singular values of a matrix: that of four factorisations, and square roots and divisions.
fn spectrum_work(all: &Matrices) -> usize {
    let least = all.rows.min(all.columns);
    work_of(all.rows, all.columns)
        .saturating_add(least * least * 8)
        .saturating_mul(4)
}

/// Copies one triangle to the other.
fn mirror(m: &mut Interleaved, lower: bool) {
    let n = m.columns;
    for i in 0..n {
        for j in 0..i {
            let (below, above) = (i * n + j, j * n + i);
            let (from, to) = if lower { (below, above) } else { (above, below) };
            m.v[to] = m.v[from];
        }
    }
}

/// The eigenvalues of each matrix in ascending order.
pub(in crate::linalg) fn eigenvalues<E>(
    all: &Matrices,
    lower: bool,
    check: &dyn Fn(usize) -> Result<(), E>,
) -> Result<Vec<f64>, E> {
    let found = each_group::<Vec<f64>>(all, lower, |out, group, count| {
        let Group { t, scales, .. } = group;
        ql::diagonalise(&mut t.diagonal, &mut t.below);
        for (l, scale) in scales.iter().enumerate().take(count) {
            append_ascending(t.diagonal.iter().map(|x| x[l]), *scale, out);
        }
    });
    checked(found, check)
}

/// The eigenvalues of each matrix in ascending order, and the eigenvectors as columns. They are NaN if the matrix is not finite, except
/// for a single element.
pub(in crate::linalg) fn eigenvectors<E>(
    all: &Matrices,
    lower: bool,
    check: &dyn Fn(usize) -> Result<(), E>,
) -> Result<(Vec<f64>, Vec<f64>), E> {
    let n = all.rows;
    let found = each_group::<(Vec<f64>, Vec<f64>)>(all, lower, |(values, out), group, count| {
        let (mut vectors, mut order) = (Interleaved::zeros(0, 0), vec![]);
        ql::basis(&group.m, &group.t, &mut vectors);
        ql::diagonalise_vectors(&mut group.t, &mut vectors);
        let d = &group.t.diagonal;
        for (l, scale) in group.scales.iter().copied().enumerate().take(count) {
            order.clear();
            order.extend(0..n);
            order.sort_by(|&i: &usize, &j: &usize| (d[i][l] * scale).total_cmp(&(d[j][l] * scale)));
            values.extend(order.iter().map(|&i| d[i][l] * scale));
            if scale.is_nan() && n > 1 {
                out.extend(std::iter::repeat_n(f64::NAN, n * n));
                continue;
            }
            for i in 0..n {
                out.extend(order.iter().map(|&j| vectors.v[j * n + i][l]));
            }
        }
    });
    checked(found, check)
}

/// The singular values of matrices of finite numbers in descending order.
pub(in crate::linalg) fn singular_values(all: &Matrices) -> Vec<f64> {
    if all.rows.min(all.columns) == 0 {
        return vec![];
    }
    in_parts(all.count, LANES, spectrum_work(all), |range| {
        let (mut m, mut b, mut out) = (Interleaved::zeros(0, 0), Bidiagonals::default(), vec![]);
        for first in groups(range.clone()) {
            all.interleave(places(first, all.count), all.rows < all.columns, &mut m);
            let scales = scale(&mut m);
            implicit_qr::bidiagonal(&mut m, &mut b);
            implicit_qr::diagonalise(&mut b.diagonal, &mut b.above);
            for (l, scale) in scales.iter().enumerate().take(range.end - first) {
                append_descending(b.diagonal.iter().map(|x| x[l]), *scale, &mut out);
            }
        }
        out
    })
}

/// Vectors count as orthogonal up to this cosine: a few rounding errors of f64; for f32, far less than one rounding error.
fn largest_cosine(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 1e-11,
        _ => 1e-15,
    }
}

/// U, the singular values and V of the group of matrices that begins with the matrix `first`; they are finite.
pub(in crate::linalg) fn svd_of_group(all: &Matrices, first: usize) -> Vec<Svd<f64>> {
    let (mut a, mut v) = (Interleaved::zeros(0, 0), Interleaved::zeros(0, 0));
    // The columns of a matrix that has no more columns than rows are rotated as rows.
    let tall = all.rows >= all.columns;
    all.interleave(places(first, all.count), tall, &mut a);
    let scales = scale(&mut a);
    v.set_eye(a.rows);
    orthogonalise(&mut a, &mut v, largest_cosine(all.dtype()));
    let count = (all.count - first).min(LANES);
    let lane = |l: usize| {
        let (left, values, right) = svd_of_lane(&a, &v, l, scales[l]);
        match tall {
            true => (left, values, right),
            false => (right, values, left),
        }
    };
    (0..count).map(lane).collect()
}

/// The results for the matrix in a lane from its orthogonal columns, which are the rows of `a`.
fn svd_of_lane(a: &Interleaved, v: &Interleaved, lane: usize, scale: f64) -> Svd<f64> {
    let (n, m) = (a.rows, a.columns);
    let length = |m: &Interleaved, j: usize| {
        let row = &m.v[j * m.columns..(j + 1) * m.columns];
        row.iter().map(|x| x[lane] * x[lane]).sum::<f64>().sqrt()
    };
    // Rounding errors of rotations change the lengths of rows, by the same factors on both sides.
    let unit: Vec<f64> = (0..n).map(|j| length(v, j)).collect();
    let lengths: Vec<f64> = (0..n).map(|j| length(a, j) / unit[j]).collect();
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&i, &j| lengths[j].total_cmp(&lengths[i]));
    let most = order.first().map_or(0.0, |&j| lengths[j]);
    let tiny = most * f64::EPSILON * m as f64;
    let known = order.iter().take_while(|&&j| lengths[j] > tiny).count();
    let left = Matrix::from_fn(m, n, |i, j| match j < known {
        true => a.at(order[j], i)[lane] / (lengths[order[j]] * unit[order[j]]),
        false => 0.0,
    });
    let right = Matrix::from_fn(n, n, |i, j| v.at(order[j], i)[lane] / unit[order[j]]);
    let values = order.iter().map(|&j| lengths[j] * scale).collect();
    (complete_basis(left, known, n), values, right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::testing::far;
    use crate::tensor::Tensor;

    const COUNT: usize = 11;

    /// Zeros, multiples of the identity, low ranks, and very different scales.
    fn element(k: usize, i: usize, j: usize) -> f64 {
        let wave = ((i * j + i + j + k) % (k + 2)) as f64 - (k % 2) as f64;
        match k {
            0 => 0.0,
            1 => (i == j) as u8 as f64 * 3.0,
            2 => 0.1f64.powi(3 * i.max(j) as i32),
            3 => wave * 1e-200,
            4 => wave * 1e200,
            _ => wave,
        }
    }

    fn samples(rows: usize, columns: usize) -> Matrices {
        let all = (0..COUNT).flat_map(|k| Matrix::from_fn(rows, columns, |i, j| element(k, i, j)).v);
        Matrices::of(&Tensor::from_slice(&[COUNT, rows, columns], &all.collect::<Vec<f64>>()))
    }

    fn check(m: &Matrix, left: &Matrix, values: &[f64], right: &Matrix) {
        let most = values.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
        let scaled = Matrix::from_fn(left.rows, values.len(), |i, j| left.at(i, j) * values[j]);
        assert!(far(&scaled.times(&right.transposed()), m) <= 1e-13 * most, "{:?}", m.v);
        for q in [left, right] {
            assert!(
                far(&q.transposed().times(q), &Matrix::eye(values.len())) < 1e-13,
                "{:?}",
                m.v
            );
        }
    }

    #[test]
    fn eigenvectors_multiply_back() {
        for n in [1, 2, 3, 7, 16, 24] {
            let all = samples(n, n);
            let never = |_| -> Result<(), ()> { panic!("all are finite") };
            let (values, vectors) = super::eigenvectors(&all, true, &never).expect("eigenvectors");
            let alone = super::eigenvalues(&all, false, &never).expect("eigenvalues");
            for (k, s) in values.chunks_exact(n).enumerate() {
                let v = Matrix {
                    rows: n,
                    columns: n,
                    v: vectors[k * n * n..(k + 1) * n * n].to_vec(),
                };
                check(&all.matrix(k), &v, s, &v);
                let most = s.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
                let near = |(x, y): (&f64, &f64)| (x - y).abs() <= 1e-13 * most;
                assert!(s.is_sorted() && s.iter().zip(&alone[k * n..]).all(near), "{n} {k}");
            }
        }
    }

    #[test]
    fn singular_vectors_multiply_back() {
        for (rows, columns) in [(1, 1), (3, 3), (2, 5), (9, 4), (16, 16), (24, 23)] {
            let (all, n) = (samples(rows, columns), rows.min(columns));
            let alone = super::singular_values(&all);
            let groups = groups(0..COUNT).flat_map(|first| svd_of_group(&all, first));
            for (k, (u, s, v)) in groups.enumerate() {
                check(&all.matrix(k), &u, &s, &v);
                let near = |(x, y): (&f64, &f64)| (x - y).abs() <= 1e-13 * s[0];
                assert!(
                    s.is_sorted_by(|x, y| x >= y) && s.iter().zip(&alone[k * n..]).all(near),
                    "{rows} {columns} {k}"
                );
            }
        }
    }
}
