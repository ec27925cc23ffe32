//! Triangular solutions for few right-hand sides. Each of them is a line of neighbouring elements, so that the triangle, which is larger,
//! is read once, in the dtype and order that it is stored in.

use super::lines::{LANES, add_lanes};
use super::real::Real;
use crate::tensor::wide_function;

/// What a stored square matrix means in an equation.
#[derive(Clone, Copy)]
pub(super) struct Triangle {
    /// Whether the upper triangle of the stored matrix counts, else the lower.
    pub upper: bool,
    /// Whether the equation has the transposed matrix.
    pub transposed: bool,
    /// Whether the diagonal counts as 1.
    pub unit: bool,
}

/// The rows of the triangle that are handled at once.
const ROWS: usize = 4;
/// The lines that are handled at once: unknowns of a line wait for each other.
const LINES: usize = 4;
/// The lines whose products with rows are in registers at once.
const PAIR: usize = 2;

wide_function! {
    /// [`solve_lines_of`].
    pub(super) fn solve_lines = solve_lines_of<T: Real>(a: &[T], lines: &mut [T], n: usize, t: Triangle)
}

/// Solves `A x = b` in place of each of the lines, which have `n` elements.
#[inline(always)]
fn solve_lines_of<T: Real>(a: &[T], lines: &mut [T], n: usize, t: Triangle) {
    if n == 0 {
        return;
    }
    let (groups, rest) = lines.split_at_mut(lines.len() / (LINES * n) * LINES * n);
    for group in groups.chunks_exact_mut(LINES * n) {
        let (first, second) = group.split_at_mut(PAIR * n);
        let ((w, x), (y, z)) = (first.split_at_mut(n), second.split_at_mut(n));
        solve_group::<T, LINES, PAIR>(a, [w, x, y, z], n, t);
    }
    let (pair, last) = rest.split_at_mut(rest.len() / (PAIR * n) * PAIR * n);
    for pair in pair.chunks_exact_mut(PAIR * n) {
        let (x, y) = pair.split_at_mut(n);
        solve_group::<T, PAIR, PAIR>(a, [x, y], n, t);
    }
    for line in last.chunks_exact_mut(n) {
        solve_group::<T, 1, 1>(a, [line], n, t);
    }
}

/// Solves for `N` lines, whose products with rows are computed for `P` lines at once.
#[inline(always)]
fn solve_group<T: Real, const N: usize, const P: usize>(a: &[T], mut lines: [&mut [T]; N], n: usize, t: Triangle) {
    let descending = t.upper != t.transposed;
    let count = n.div_ceil(ROWS);
    for step in 0..count {
        let start = ROWS * if descending { count - 1 - step } else { step };
        let end = n.min(start + ROWS);
        let known = if descending { end..n } else { 0..start };
        // Rows of a transposed matrix are subtracted as soon as their unknowns are known, others when theirs are needed.
        if !t.transposed && end - start == ROWS {
            for part in lines.as_chunks_mut::<P>().0 {
                subtract_known::<T, P>(a, n, start, known.clone(), part);
            }
        } else if !t.transposed {
            for (i, line) in (start..end).flat_map(|i| (0..N).map(move |r| (i, r))) {
                let mut sum = T::ZERO;
                for j in known.clone() {
                    sum += a[i * n + j] * lines[line][j];
                }
                lines[line][i] -= sum;
            }
        }
        match (end - start == ROWS, descending) {
            (true, true) => solve_whole_corner::<T, N, true>(a, &mut lines, n, start, t),
            (true, false) => solve_whole_corner::<T, N, false>(a, &mut lines, n, start, t),
            _ => solve_corner(a, &mut lines, n, start, end, t),
        }
        if t.transposed {
            let rest = if descending { 0..start } else { end..n };
            subtract_rows::<T, N>(a, n, start, end, rest.start, rest.end, &mut lines);
        }
    }
}

/// Subtracts from [`ROWS`] elements of each line, from `start` on, the products of their rows and the known elements.
#[inline(always)]
fn subtract_known<T: Real, const N: usize>(
    a: &[T],
    n: usize,
    start: usize,
    known: std::ops::Range<usize>,
    lines: &mut [&mut [T]; N],
) {
    let sums = inner_products::<T, N>(a, n, start, known.start, known.end, lines);
    for (line, sums) in lines.iter_mut().zip(sums) {
        for (x, sum) in line[start..start + ROWS].iter_mut().zip(sums) {
            *x -= sum;
        }
    }
}

/// [`solve_corner`] for [`ROWS`] unknowns, of all lines at once.
#[inline(always)]
fn solve_whole_corner<T: Real, const N: usize, const DESCENDING: bool>(
    a: &[T],
    lines: &mut [&mut [T]; N],
    n: usize,
    start: usize,
    t: Triangle,
) {
    let (mut corner, mut x) = ([[T::ZERO; ROWS]; ROWS], [[T::ZERO; N]; ROWS]);
    for i in 0..ROWS {
        let row = &a[(start + i) * n + start..][..ROWS];
        for j in 0..ROWS {
            let (i, j) = if t.transposed { (j, i) } else { (i, j) };
            corner[i][j] = row[if t.transposed { i } else { j }];
        }
        for r in 0..N {
            x[i][r] = lines[r][start + i];
        }
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
}

/// Solves for the unknowns `start..end` after what the others contribute has been subtracted.
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

/// The inner products of the columns `from..to` of [`ROWS`] rows with each of the lines.
#[inline(always)]
fn inner_products<T: Real, const N: usize>(
    a: &[T],
    n: usize,
    start: usize,
    from: usize,
    to: usize,
    lines: &[&mut [T]; N],
) -> [[T; ROWS]; N] {
    let rows: [&[T]; ROWS] = std::array::from_fn(|i| &a[(start + i) * n + from..(start + i) * n + to]);
    let lines: [&[T]; N] = std::array::from_fn(|r| &lines[r][from..to]);
    let mut sums = [[[T::ZERO; LANES]; ROWS]; N];
    let together = (to - from) / LANES * LANES;
    let mut j = 0;
    while j < together {
        for i in 0..ROWS {
            let row = &rows[i][j..j + LANES];
            for r in 0..N {
                let line = &lines[r][j..j + LANES];
                for l in 0..LANES {
                    sums[r][i][l] += row[l] * line[l];
                }
            }
        }
        j += LANES;
    }
    let mut out = [[T::ZERO; ROWS]; N];
    for (r, i) in (0..N).flat_map(|r| (0..ROWS).map(move |i| (r, i))) {
        let mut sum = add_lanes(sums[r][i]);
        for j in together..to - from {
            sum += rows[i][j] * lines[r][j];
        }
        out[r][i] = sum;
    }
    out
}

/// Subtracts from the elements `from..to` of each line the products of the unknowns `start..end` and their rows.
#[inline(always)]
fn subtract_rows<T: Real, const N: usize>(
    a: &[T],
    n: usize,
    start: usize,
    end: usize,
    from: usize,
    to: usize,
    lines: &mut [&mut [T]; N],
) {
    if end - start < ROWS {
        for (i, r) in (start..end).flat_map(|i| (0..N).map(move |r| (i, r))) {
            let (row, f) = (&a[i * n + from..i * n + to], lines[r][i]);
            for (y, x) in lines[r][from..to].iter_mut().zip(row) {
                *y -= f * *x;
            }
        }
        return;
    }
    let rows: [&[T]; ROWS] = std::array::from_fn(|i| &a[(start + i) * n + from..(start + i) * n + to]);
    let factors: [[T; ROWS]; N] = std::array::from_fn(|r| std::array::from_fn(|i| lines[r][start + i]));
    for r in 0..N {
        let (line, f) = (&mut lines[r][from..to], factors[r]);
        for j in 0..line.len() {
            let mut x = line[j];
            for i in 0..ROWS {
                x -= f[i] * rows[i][j];
            }
            line[j] = x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::matrix::Matrix;
    use super::*;

    #[test]
    fn lines_satisfy_their_equations() {
        for (n, count) in [(1, 1), (3, 3), (4, 2), (30, 5), (77, 1)] {
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
                let mut x = right;
                solve_lines(&wide, &mut x, n, t);
                let far = x.iter().zip(&want).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
                assert!(far < 1e-9, "{n} {count} {bits}: {far}");
            }
        }
    }
}
