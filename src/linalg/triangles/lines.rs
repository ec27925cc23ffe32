//! Triangular equations with few right-hand sides. Each of them is a line of neighbouring elements, so that the triangle, which is larger,
//! is read once, in the dtype and the order that it is stored in.

use crate::linalg::real::Real;
use crate::linalg::vectors::{add_scaled, inner_products};
use crate::tensor::wide_function;
use std::ops::Range;

/// How a stored square matrix enters an equation.
#[derive(Clone, Copy)]
pub(in crate::linalg) struct Triangle {
    /// Whether A is the upper triangle of the stored matrix. Otherwise it is the lower one.
    pub upper: bool,
    /// Whether the equation has the transpose of A.
    pub transposed: bool,
    /// Whether the diagonal counts as 1.
    pub unit: bool,
}

/// The number of rows of the triangle that are read together.
const ROWS: usize = 4;

/// The number of lines that are solved together. The unknowns of one line wait for each other; those of others do not.
const LINES: usize = 4;

wide_function! {
    /// Solves `A x = b` in place of each of the lines, which have `n` elements.
    pub(in crate::linalg) fn solve_lines = solve_lines_of<T: Real>(a: &[T], lines: &mut [T], n: usize, t: Triangle)
}

#[inline(always)]
fn solve_lines_of<T: Real>(a: &[T], lines: &mut [T], n: usize, t: Triangle) {
    if n == 0 {
        return;
    }
    let (groups, rest) = lines.split_at_mut(lines.len() / (LINES * n) * LINES * n);
    for group in groups.chunks_exact_mut(LINES * n) {
        let (first, second) = group.split_at_mut(2 * n);
        let ((w, x), (y, z)) = (first.split_at_mut(n), second.split_at_mut(n));
        solve_group::<T, LINES>(a, [w, x, y, z], n, t);
    }
    let (pair, last) = rest.split_at_mut(rest.len() / (2 * n) * 2 * n);
    for pair in pair.chunks_exact_mut(2 * n) {
        let (x, y) = pair.split_at_mut(n);
        solve_group::<T, 2>(a, [x, y], n, t);
    }
    for line in last.chunks_exact_mut(n) {
        solve_group::<T, 1>(a, [line], n, t);
    }
}

/// Solves for `N` lines.
#[inline(always)]
fn solve_group<T: Real, const N: usize>(a: &[T], lines: [&mut [T]; N], n: usize, t: Triangle) {
    match t.upper != t.transposed {
        true => solve_blocks::<T, N, true>(a, lines, n, t),
        false => solve_blocks::<T, N, false>(a, lines, n, t),
    }
}

/// Solves for blocks of [`ROWS`] unknowns, from the last to the first if `DESCENDING`.
///
/// Either way, the stored rows are read from left to right. Those of a transposed matrix are subtracted from all other unknowns as soon as
/// their own are known. Products of others with the unknowns of the block before, which are known last, are left to the corner: then the
/// sums over all unknowns before these do not wait for its divisions.
#[inline(always)]
fn solve_blocks<T: Real, const N: usize, const DESCENDING: bool>(
    a: &[T],
    mut lines: [&mut [T]; N],
    n: usize,
    t: Triangle,
) {
    let (count, mut near) = (n.div_ceil(ROWS), None);
    for step in 0..count {
        let start = ROWS * if DESCENDING { count - 1 - step } else { step };
        let end = n.min(start + ROWS);
        let whole = end - start == ROWS;
        let before = if whole && !t.transposed { near } else { None };
        if !t.transposed {
            let left = if before.is_some() { ROWS } else { 0 };
            let known = if DESCENDING { end + left..n } else { 0..start - left };
            subtract_known(a, n, start..end, &known, &mut lines);
        }
        near = match whole {
            true => Some(solve_whole_corner::<T, N, DESCENDING>(
                a, &mut lines, n, start, before, t,
            )),
            false => {
                solve_corner(a, &mut lines, n, start, end, t);
                None
            }
        };
        if t.transposed {
            let rest = if DESCENDING { 0..start } else { end..n };
            subtract_found(a, n, start..end, &rest, &mut lines);
        }
    }
}

/// Subtracts from the elements `rest` of each line the products of its elements `found` and their rows.
#[inline(always)]
fn subtract_found<T: Real, const N: usize>(
    a: &[T],
    n: usize,
    found: Range<usize>,
    rest: &Range<usize>,
    lines: &mut [&mut [T]; N],
) {
    let row = |i: usize| &a[i * n + rest.start..i * n + rest.end];
    if found.len() < ROWS {
        for (i, line) in found.flat_map(|i| (0..N).map(move |r| (i, r))) {
            let f = lines[line][i];
            add_scaled(&mut lines[line][rest.clone()], -f, row(i));
        }
        return;
    }
    let rows: [&[T]; ROWS] = std::array::from_fn(|i| row(found.start + i));
    for line in lines.iter_mut() {
        let mut f = [T::ZERO; ROWS];
        f.copy_from_slice(&line[found.clone()]);
        let line = &mut line[rest.clone()];
        for j in 0..line.len() {
            let mut x = line[j];
            for i in 0..ROWS {
                x -= f[i] * rows[i][j];
            }
            line[j] = x;
        }
    }
}

/// Subtracts from some elements of each line the products of their rows and the known elements. Each part of a row is read once for all
/// lines; of a single line, each part is read once for all rows.
#[inline(always)]
fn subtract_known<T: Real, const N: usize>(
    a: &[T],
    n: usize,
    unknown: Range<usize>,
    known: &Range<usize>,
    lines: &mut [&mut [T]; N],
) {
    let row = |i: usize| &a[i * n + known.start..i * n + known.end];
    if N == 1 && unknown.len() == ROWS {
        let rows: [&[T]; ROWS] = std::array::from_fn(|i| row(unknown.start + i));
        let sums = products_with(rows, &lines[0][known.clone()]);
        for i in 0..ROWS {
            lines[0][unknown.start + i] -= sums[i];
        }
        return;
    }
    for i in unknown {
        let parts: [&[T]; N] = std::array::from_fn(|r| &lines[r][known.start..known.end]);
        let sums = products_with(parts, row(i));
        for r in 0..N {
            lines[r][i] -= sums[r];
        }
    }
}

/// The inner products of `x` and vectors of its length. Those of f64 are computed for two vectors at a time, with four vectors of sums for
/// each: more of them would wait for loads, which cross cache lines.
#[inline(always)]
fn products_with<T: Real, const N: usize>(vectors: [&[T]; N], x: &[T]) -> [T; N] {
    if T::NARROW || !N.is_multiple_of(2) {
        return inner_products(vectors, x);
    }
    let mut out = [T::ZERO; N];
    for i in 0..N / 2 {
        let [p, q] = inner_products([vectors[2 * i], vectors[2 * i + 1]], x);
        (out[2 * i], out[2 * i + 1]) = (p, q);
    }
    out
}

/// [`solve_corner`] for [`ROWS`] unknowns, of all lines at once. `before` has the unknowns of the block before, whose products remain to be
/// subtracted. Returns the unknowns.
#[inline(always)]
fn solve_whole_corner<T: Real, const N: usize, const DESCENDING: bool>(
    a: &[T],
    lines: &mut [&mut [T]; N],
    n: usize,
    start: usize,
    before: Option<[[T; N]; ROWS]>,
    t: Triangle,
) -> [[T; N]; ROWS] {
    let corner = read_corner(&a[start * n + start..], n, t.transposed);
    let mut x = [[T::ZERO; N]; ROWS];
    for i in 0..ROWS {
        for r in 0..N {
            x[i][r] = lines[r][start + i];
        }
    }
    if let Some(before) = before {
        let place = if DESCENDING { start + ROWS } else { start - ROWS };
        subtract_before::<T, N, DESCENDING>(&a[start * n + place..], n, before, &mut x);
    }
    for step in 0..ROWS {
        let i = if DESCENDING { ROWS - 1 - step } else { step };
        let mut sum = x[i];
        for known in 0..step {
            let j = if DESCENDING { ROWS - 1 - known } else { known };
            for r in 0..N {
                sum[r] -= corner[i][j] * x[j][r];
            }
        }
        for r in 0..N {
            x[i][r] = if t.unit { sum[r] } else { sum[r] / corner[i][i] };
        }
    }
    for (r, line) in lines.iter_mut().enumerate() {
        for i in 0..ROWS {
            line[start + i] = x[i][r];
        }
    }
    x
}

/// [`ROWS`] rows and columns, transposed or not. The rows begin `n` elements apart.
#[inline(always)]
fn read_corner<T: Real>(rows: &[T], n: usize, transposed: bool) -> [[T; ROWS]; ROWS] {
    let mut out = [[T::ZERO; ROWS]; ROWS];
    for i in 0..ROWS {
        for j in 0..ROWS {
            let (p, q) = if transposed { (j, i) } else { (i, j) };
            out[p][q] = rows[i * n + j];
        }
    }
    out
}

/// Subtracts the products of [`ROWS`] rows, which begin `n` elements apart, and the unknowns `before`. Those found last come last.
#[inline(always)]
fn subtract_before<T: Real, const N: usize, const DESCENDING: bool>(
    rows: &[T],
    n: usize,
    before: [[T; N]; ROWS],
    x: &mut [[T; N]; ROWS],
) {
    for i in 0..ROWS {
        let row = &rows[i * n..][..ROWS];
        for k in 0..ROWS {
            let j = if DESCENDING { ROWS - 1 - k } else { k };
            for r in 0..N {
                x[i][r] -= row[j] * before[j][r];
            }
        }
    }
}

/// Solves for the unknowns `start..end` after the products with all others have been subtracted.
#[inline(always)]
fn solve_corner<T: Real, const N: usize>(
    a: &[T],
    lines: &mut [&mut [T]; N],
    n: usize,
    start: usize,
    end: usize,
    t: Triangle,
) {
    let descending = t.upper != t.transposed;
    for step in 0..end - start {
        let i = if descending { end - 1 - step } else { start + step };
        let known = if descending { i + 1..end } else { start..i };
        let pivot = a[i * n + i];
        for line in lines.iter_mut() {
            let mut x = line[i];
            for j in known.clone() {
                let place = if t.transposed { j * n + i } else { i * n + j };
                x -= a[place] * line[j];
            }
            line[i] = if t.unit { x } else { x / pivot };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::matrix::Matrix;

    #[test]
    fn lines_satisfy_their_equations() {
        for (n, count) in [(1, 1), (3, 3), (4, 2), (30, 5), (77, 1), (50, 7)] {
            let a = Matrix::from_fn(n, n, |i, j| {
                ((i * 7 + j * 5 + i * j) % 11) as f64 / n as f64 - 0.1 + 3.0 * (i == j) as u8 as f64
            });
            let narrow: Vec<f32> = a.v.iter().map(|x| *x as f32).collect();
            let want: Vec<f64> = (0..n * count).map(|i| (i % 7) as f64 - 2.0).collect();
            for bits in 0..8 {
                let t = Triangle {
                    upper: bits & 1 > 0,
                    transposed: bits & 2 > 0,
                    unit: bits & 4 > 0,
                };
                let inside = |i: usize, j: usize| (if t.upper { i <= j } else { i >= j }) as u8 as f64;
                let m = Matrix::from_fn(n, n, |i, j| match i == j && t.unit {
                    true => 1.0,
                    false => inside(i, j) * f64::from(narrow[i * n + j]),
                });
                let m = if t.transposed { m } else { m.transposed() };
                let product = |i: usize, j: usize| (0..n).map(|k| want[i * n + k] * m.at(k, j)).sum();
                let right = Matrix::from_fn(count, n, product).v;
                let wide: Vec<f64> = narrow.iter().map(|x| f64::from(*x)).collect();
                let mut y: Vec<f32> = right.iter().map(|x| *x as f32).collect();
                let mut x = right;
                solve_lines(&wide, &mut x, n, t);
                let far = x.iter().zip(&want).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
                assert!(far < 1e-9, "{n} {count} {bits}: {far}");
                solve_lines(&narrow, &mut y, n, t);
                let far = y
                    .iter()
                    .zip(&want)
                    .map(|(x, y)| (f64::from(*x) - y).abs())
                    .fold(0.0, f64::max);
                assert!(far < 1e-4, "{n} {count} {bits}: {far}");
            }
        }
    }
}
