//! Work shared out to threads: the matrices of a batch, and the parts of a large matrix.
//!
//! The threads are those of the pool that the caller lent ([`Pool::lend`]). Parts of a batch depend on their number, because each matrix
//! is computed on its own; so may parts of loops that compute each element on its own. Parts of a product depend only on the sizes of the
//! matrices: a product of other sizes may be summed in another order.

use super::LANES;
use super::batch::Matrices;
use super::matrix::Matrix;
use super::real::Real;
use crate::parallel::{Columns, Pool};
use crate::tensor::{Factor, add_product, matmul, subtract_from_columns};
use std::ops::Range;

/// The least number of multiplications, or accesses to memory that take as long, for which a part is worth another thread: about 10 µs.
const LEAST_WORK: usize = 1 << 15;

/// The least number of multiplications in a part of a matrix product, and of rows: the other factor is copied for every part.
const PRODUCT_WORK: usize = 1 << 19;
const PRODUCT_ROWS: usize = 96;

/// How many multiplications take as long as reading and writing an element.
pub(super) const MOVED: usize = 8;

/// Results for some matrices of a batch, which those for the matrices after them extend.
pub(super) trait Join: Send {
    fn join(&mut self, later: Self);
}

impl<T: Send> Join for Vec<T> {
    fn join(&mut self, mut later: Self) {
        self.append(&mut later);
    }
}

impl<A: Join, B: Join> Join for (A, B) {
    fn join(&mut self, later: Self) {
        self.0.join(later.0);
        self.1.join(later.1);
    }
}

impl<A: Join, B: Join, C: Join> Join for (A, B, C) {
    fn join(&mut self, later: Self) {
        self.0.join(later.0);
        self.1.join(later.1);
        self.2.join(later.2);
    }
}

/// Calls `f` for ranges that make up `0..count`, on the threads, and joins the results in their order. The ranges begin at multiples of
/// `step`; `work` is that for one index. Fewer steps than threads are left to one call, which may use all threads for each.
pub(super) fn in_parts<R: Join>(count: usize, step: usize, work: usize, f: impl Fn(Range<usize>) -> R + Sync) -> R {
    Pool::with_lent(|pool| {
        let (steps, threads) = (count.div_ceil(step), pool.threads());
        let parts = (count.saturating_mul(work) / LEAST_WORK).min(steps).min(4 * threads);
        if threads == 1 || steps < threads || parts < 2 {
            return f(0..count);
        }
        let part = steps.div_ceil(parts);
        let len = part * step;
        let mut all: Vec<Option<R>> = (0..steps.div_ceil(part)).map(|_| None).collect();
        pool.run_parts(&mut all, 1, |i, slot| {
            slot[0] = Some(f(i * len..count.min((i + 1) * len)));
        });
        let joined = all.into_iter().flatten().reduce(|mut all, later| {
            all.join(later);
            all
        });
        joined.unwrap_or_else(|| f(0..0))
    })
}

/// [`in_parts`] for matrices that are factorised, in groups of one per lane or alone.
pub(super) fn parts_of<R: Join>(all: &Matrices, side_by_side: bool, f: impl Fn(Range<usize>) -> R + Sync) -> R {
    let step = if side_by_side { LANES } else { 1 };
    in_parts(all.count, step, work_of(all.rows, all.columns), f)
}

/// For how many of `count` results a part allocates memory: the first is extended by the others.
pub(super) fn room(part: &Range<usize>, count: usize) -> usize {
    if part.start == 0 { count } else { part.len() }
}

/// Whether there is only one thread, for which work need not be divided.
pub(super) fn is_single() -> bool {
    Pool::with_lent(|pool| pool.threads() == 1)
}

/// The work of a factorisation, and of reading and writing.
pub(super) fn work_of(rows: usize, columns: usize) -> usize {
    let size = rows.saturating_mul(columns);
    size.saturating_mul(rows.min(columns) / 3 + MOVED)
}

/// The number of rows in each part of a product, for this number of multiplications in a row. The number of parts is a power of two, which
/// as many threads finish at the same time.
fn rows_per_part(rows: usize, work: usize) -> usize {
    let most = (rows / PRODUCT_ROWS).min(rows.saturating_mul(work) / PRODUCT_WORK);
    let parts = 1usize << most.max(1).ilog2();
    match parts {
        1 => rows,
        _ => rows.div_ceil(parts).next_multiple_of(16),
    }
}

/// The width of strips of columns: at most `most`, and an even number of strips, so that two threads finish at the same time.
pub(super) fn strip_width(columns: usize, most: usize) -> usize {
    match columns.div_ceil(most.max(1)) {
        0 | 1 => columns.max(1),
        strips => columns.div_ceil(strips.next_multiple_of(2)).next_multiple_of(16),
    }
}

/// Calls `f` for parts of rows of a row-major matrix with the first row of each. `work` is that for a row, in loops that have vectors.
pub(super) fn run_rows<T: Send>(v: &mut [T], stride: usize, work: usize, f: impl Fn(usize, &mut [T]) + Sync) {
    let rows = v.len() / stride.max(1);
    let parts = rows.saturating_mul(work) / (2 * LEAST_WORK);
    run_row_blocks(v, stride, rows.div_ceil(parts.max(1)).max(1), f);
}

/// Calls `f` for every item, on the threads if `work`, that for one, is enough.
pub(super) fn run_each<I: Send>(items: &mut [I], work: usize, f: impl Fn(&mut I) + Sync) {
    match work < LEAST_WORK {
        true => items.iter_mut().for_each(f),
        false => Pool::with_lent(|pool| pool.run_parts(items, 1, |_, item| item.iter_mut().for_each(&f))),
    }
}

/// Calls `f` for blocks of so many rows of a row-major matrix with the first row of each.
pub(super) fn run_row_blocks<T: Send>(v: &mut [T], stride: usize, rows: usize, f: impl Fn(usize, &mut [T]) + Sync) {
    if !v.is_empty() {
        Pool::with_lent(|pool| pool.run_parts(v, rows * stride, |i, part| f(i * rows, part)));
    }
}

/// Calls `f` for strips of `width` columns with their range; for a single one if the work for all columns is little.
pub(super) fn run_columns<T: Send>(
    v: &mut [T],
    stride: usize,
    columns: Range<usize>,
    (width, work): (usize, usize),
    f: impl Fn(Range<usize>, Columns<'_, T>) + Sync,
) {
    let width = if work < 4 * LEAST_WORK {
        columns.len().max(1)
    } else {
        width
    };
    Pool::with_lent(|pool| pool.run_columns_of(v, stride, columns, width, f));
}

/// Some rows of a strip of `width` columns, as a matrix of their own.
pub(super) fn read_strip<T: Real>(strip: &mut Columns<'_, T>, rows: Range<usize>, width: usize) -> Matrix<T> {
    let mut v = Vec::with_capacity(rows.len() * width);
    rows.clone().for_each(|i| v.extend_from_slice(strip.row(i)));
    let rows = rows.len();
    Matrix {
        rows,
        columns: width,
        v,
    }
}

/// Replaces the rows of a strip from `first` on by those of a matrix as wide.
pub(super) fn write_strip<T: Real>(strip: &mut Columns<'_, T>, first: usize, m: &Matrix<T>) {
    for i in 0..m.rows {
        strip.row(first + i).copy_from_slice(m.row(i));
    }
}

/// [`add_product`] on the threads.
pub(super) fn add_product_by_rows<T: Real>(
    [m, n, k]: [usize; 3],
    factor: T,
    a: Factor<'_, T>,
    b: Factor<'_, T>,
    (out, start, out_row): (&mut [T], usize, usize),
) {
    if m == 0 || n == 0 || k == 0 {
        return;
    }
    let rows = rows_per_part(m, n.saturating_mul(k));
    let out = &mut out[start..];
    let end = out.len().min(m.saturating_mul(out_row));
    Pool::with_lent(|pool| {
        pool.run_parts(&mut out[..end], rows * out_row, |i, part| {
            let first = i * rows;
            let sizes = [rows.min(m - first), n, k];
            add_product(sizes, factor, a.after_rows(first), b, (part, 0, out_row));
        });
    });
}

/// [`subtract_from_columns`] on the threads.
pub(super) fn subtract_products<T: Real>(
    v: &mut [T],
    stride: usize,
    columns: Range<usize>,
    known: Range<usize>,
    b: Factor<'_, T>,
) {
    let work = columns.len().saturating_mul(known.len());
    if work == 0 || v.is_empty() {
        return;
    }
    let rows = rows_per_part(v.len() / stride, work);
    Pool::with_lent(|pool| {
        pool.run_parts(v, rows * stride, |_, part| {
            subtract_from_columns(part, stride, columns.clone(), known.clone(), b);
        });
    });
}

impl<T: Real> Matrix<T> {
    /// The matrix product, on the threads.
    pub(super) fn times(&self, other: &Matrix<T>) -> Matrix<T> {
        let mut out = Matrix::zeros(self.rows, other.columns);
        let row = self.columns.saturating_mul(other.columns);
        let rows = rows_per_part(self.rows, row);
        if out.v.is_empty() {
            return out;
        }
        Pool::with_lent(|pool| {
            pool.run_parts(&mut out.v, rows * other.columns, |i, part| {
                let count = part.len() / other.columns;
                let a = &self.v[i * rows * self.columns..][..count * self.columns];
                matmul(count, self.columns, other.columns, a, &other.v, part);
            });
        });
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::batch::Results;
    use crate::linalg::exponential::exponentials;
    use crate::linalg::{cholesky, eigen, equations::Equations, lu, qr, svd};
    use crate::tensor::Tensor;

    /// Symmetric matrices with a large diagonal, whose elements do not repeat.
    fn samples<T: Real>(count: usize, n: usize) -> Tensor {
        let element = |k: usize, i: usize, j: usize| {
            let wave = ((i + j) * 37 + i * j * 11 + k * 5) % 101;
            wave as f64 / 70.0 + (i == j) as u8 as f64 * n as f64
        };
        let size = n * n;
        let all = (0..count * size).map(|e| T::nearest(element(e / size, e % size / n, e % n)));
        Tensor::from_slice(&[count, n, n], &all.collect::<Vec<T>>())
    }

    /// The numbers of results, of which f64 has all digits.
    fn numbers(results: Results) -> Vec<f64> {
        match results {
            Results::F32(v) => v.into_iter().map(f64::from).collect(),
            Results::F64(v) => v,
        }
    }

    fn factors(t: &Tensor) -> Vec<Vec<f64>> {
        let all = Matrices::of(t);
        let (factors, pivots, info) = lu::factors_of_all(&all);
        let (reflected, taus) = qr::factors_of_all(&all);
        let taus = numbers(taus);
        let products = qr::multiply_all(&all, &all, (&taus, all.rows), true, false);
        vec![
            numbers(factors),
            pivots.into_iter().chain(info).map(|x| x as f64).collect(),
            numbers(lu::inverses(&all).0),
            lu::determinants(&all),
            lu::signs_and_logarithms(&all).1,
            numbers(cholesky::factors_of_all(&all, false).0),
            numbers(cholesky::factors_of_all(&all, true).0),
            numbers(reflected),
            numbers(products),
            numbers(exponentials(t)),
        ]
    }

    fn solutions(t: &Tensor) -> Vec<Vec<f64>> {
        let equations = Equations {
            a: Matrices::of(t),
            b: Matrices::of(t),
            count: t.shape()[0],
            places: Box::new(|i| (i, i)),
        };
        let never = |_, _| -> Result<(), ()> { Ok(()) };
        vec![
            numbers(equations.solve(true, &never).expect("solutions")),
            numbers(equations.solve(false, &never).expect("solutions")),
            numbers(equations.solve_triangles(true, true, false)),
            numbers(equations.solve_triangles(false, false, true)),
            numbers(equations.solve_by_cholesky(false)),
        ]
    }

    fn spectra(t: &Tensor) -> Vec<Vec<f64>> {
        let (all, never) = (Matrices::of(t), |_| -> Result<(), ()> { Ok(()) });
        let (values, vectors) = eigen::eigenvectors(&all, true, &never).expect("eigenvectors");
        let (left, singular, right) = svd::singular_vectors(&all, false);
        vec![
            values,
            numbers(vectors),
            eigen::eigenvalues(&all, false, &never).expect("eigenvalues"),
            svd::singular_values(&all),
            numbers(left),
            singular,
            numbers(right),
        ]
    }

    fn check(f: fn(&Tensor) -> Vec<Vec<f64>>, count: usize, n: usize) {
        for t in [samples::<f32>(count, n), samples::<f64>(count, n)] {
            let one = f(&t);
            for threads in [2, 3] {
                for (i, (got, want)) in Pool::new(threads).lend(|| f(&t)).iter().zip(&one).enumerate() {
                    let same = got.len() == want.len() && got.iter().zip(want).all(|(x, y)| x.to_bits() == y.to_bits());
                    assert!(same, "result {i} of {count} x {n} with {threads} threads");
                }
            }
        }
    }

    #[test]
    fn factors_do_not_depend_on_threads() {
        for (count, n) in [(1, 404), (40, 12), (9, 40), (0, 3)] {
            check(factors, count, n);
        }
    }

    #[test]
    fn solutions_do_not_depend_on_threads() {
        for (count, n) in [(1, 200), (40, 12), (9, 40)] {
            check(solutions, count, n);
        }
    }

    #[test]
    fn spectra_do_not_depend_on_threads() {
        for (count, n) in [(1, 130), (40, 7), (9, 40)] {
            check(spectra, count, n);
        }
    }

    #[test]
    fn parts_of_batches_keep_their_order() {
        for (count, step) in [(0, 1), (1, 8), (100, 8), (101, 1), (3, 1)] {
            let numbers = || {
                in_parts(count, step, LEAST_WORK, |part| {
                    part.map(|i| i * i).collect::<Vec<usize>>()
                })
            };
            let want: Vec<usize> = (0..count).map(|i| i * i).collect();
            assert_eq!(numbers(), want);
            assert_eq!(Pool::new(3).lend(numbers), want);
        }
    }
}
