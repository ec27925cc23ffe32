//! Singular values of matrices side by side, by the algorithm for a single one ([`implicit_qr`](crate::linalg::svd::implicit_qr)).

use super::blocks::Blocks;
use super::qr::{reflect_vector, scaled_reflection};
use super::{Interleaved, Lanes};
use crate::linalg::LANES;
use crate::linalg::svd::implicit_qr::{STEPS, TINY, diagonalise as diagonalise_one};
use crate::linalg::vectors::end_of_element;
use crate::tensor::wide_function;

/// Bidiagonal matrices: their diagonals, and the elements above them with zeros at the end.
#[derive(Default)]
pub(super) struct Bidiagonals {
    pub(super) diagonal: Vec<Lanes>,
    pub(super) above: Vec<Lanes>,
    /// Scratch memory: a reflection's vector, and sums of columns.
    scratch: [Vec<Lanes>; 2],
}

wide_function! {
    /// Makes matrices bidiagonal that have no more columns than rows. They are overwritten.
    pub(super) fn bidiagonal = bidiagonal_body(a: &mut Interleaved, out: &mut Bidiagonals)
}

#[inline(always)]
fn bidiagonal_body(a: &mut Interleaved, out: &mut Bidiagonals) {
    let n = a.columns;
    out.diagonal.clear();
    out.above.clear();
    let [v, sums] = &mut out.scratch;
    for k in 0..n {
        v.clear();
        for i in k..a.rows {
            v.push(a.v[i * n + k]);
        }
        let (tau, beta) = scaled_reflection(v);
        out.diagonal.push(beta);
        if k + 1 == n {
            out.above.push([0.0; LANES]);
            break;
        }
        reflect_columns(&mut a.v[k * n..], [n, k + 1], v, &tau, sums);
        let (upper, rest) = a.v.split_at_mut((k + 1) * n);
        let row = &mut upper[k * n + k + 1..];
        let (tau, beta) = scaled_reflection(row);
        out.above.push(beta);
        for other in rest.chunks_exact_mut(n) {
            reflect_vector(&mut other[k + 1..], row, &tau);
        }
    }
}

/// Reflects the columns from `column` on of rows of `n` elements. Both passes read the rows in the order in which they are stored.
#[inline(always)]
fn reflect_columns(rows: &mut [Lanes], [n, column]: [usize; 2], v: &[Lanes], tau: &Lanes, sums: &mut Vec<Lanes>) {
    sums.clear();
    sums.resize(n - column, [0.0; LANES]);
    for (row, v) in rows.chunks_exact(n).zip(v) {
        for (sum, x) in sums.iter_mut().zip(&row[column..]) {
            for l in 0..LANES {
                sum[l] += v[l] * x[l];
            }
            end_of_element();
        }
    }
    for (row, v) in rows.chunks_exact_mut(n).zip(v) {
        let mut factor = *v;
        for l in 0..LANES {
            factor[l] *= tau[l];
        }
        for (sum, x) in sums.iter().zip(&mut row[column..]) {
            for l in 0..LANES {
                x[l] -= factor[l] * sum[l];
            }
            end_of_element();
        }
    }
}

wide_function! {
    /// Replaces the diagonals of bidiagonal matrices by their singular values, in any order, with any signs.
    pub(in crate::linalg) fn diagonalise = implicit_qr(s: &mut [Lanes], e: &mut [Lanes])
}

#[inline(always)]
fn implicit_qr(s: &mut [Lanes], e: &mut [Lanes]) {
    let end = (s.len() - 1) as f64;
    let mut blocks = Blocks {
        first: [0.0; LANES],
        last: [end; LANES],
    };
    for _ in 0..STEPS * s.len() {
        let zeros = find_blocks(s, e, &mut blocks);
        for (l, zero) in zeros.into_iter().enumerate() {
            if zero && blocks.first[l] < blocks.last[l] {
                diagonalise_lane(s, e, l);
                (blocks.first[l], blocks.last[l]) = (0.0, 0.0);
            }
        }
        if !(0..LANES).any(|l| blocks.first[l] < blocks.last[l]) {
            break;
        }
        qr_step(s, e, &blocks);
    }
}

/// Zeros on the diagonal are rare. Matrices that have one are left to the function for a single matrix.
#[cold]
fn diagonalise_lane(s: &mut [Lanes], e: &mut [Lanes], lane: usize) {
    let column = |x: &[Lanes]| x.iter().map(|x| x[lane]).collect::<Vec<f64>>();
    let (mut one, mut above) = (column(s), column(e));
    diagonalise_one(&mut one, &mut above);
    for i in 0..s.len() {
        (s[i][lane], e[i][lane]) = (one[i], 0.0);
    }
}

/// Sets negligible elements above the diagonal to zero, and finds the last block that is not diagonal. Returns which blocks have a
/// negligible element on the diagonal.
#[inline(always)]
fn find_blocks(s: &[Lanes], e: &mut [Lanes], blocks: &mut Blocks) -> [bool; LANES] {
    let end = blocks.last.iter().fold(0.0, |x: f64, y| x.max(*y)) as usize;
    let (mut first, mut last, mut before): (Lanes, Lanes, Lanes) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
    let mut zero = [-1.0; LANES];
    for k in 0..=end {
        let (x, at, mut above) = (&s[k], k as f64, e[k]);
        let next = &s[(k + 1).min(end)];
        for l in 0..LANES {
            let size = above[l].abs();
            let negligible = size <= TINY + f64::EPSILON * (x[l].abs() + next[l].abs());
            above[l] = if negligible { 0.0 } else { above[l] };
            let (left, right) = (before[l] != 0.0, above[l] != 0.0);
            // A block begins where the element above the diagonal is zero in the previous row, and not in this one.
            let begins = right && !left;
            first[l] = if begins { at } else { first[l] };
            last[l] = if right { at + 1.0 } else { last[l] };
            zero[l] = if begins { -1.0 } else { zero[l] };
            let least = TINY + f64::EPSILON * (before[l].abs() + above[l].abs());
            let vanishes = (left || right) && x[l].abs() <= least;
            zero[l] = if vanishes { at } else { zero[l] };
        }
        e[k] = above;
        before = above;
    }
    (blocks.first, blocks.last) = (first, last);
    zero.map(|k| k >= 0.0)
}

/// The first rotation of each block: its shifted square, and the product right of it.
#[inline(always)]
fn start(s: &[Lanes], e: &[Lanes], blocks: &Blocks) -> (Lanes, Lanes) {
    let mut all = [[0.0; LANES]; 5];
    for l in 0..LANES {
        let (first, last) = (blocks.first[l] as usize, (blocks.last[l] as usize).max(1));
        let of_lane = [s[last][l], s[last - 1][l], e[last - 1][l], s[first][l], e[first][l]];
        for i in 0..5 {
            all[i][l] = of_lane[i];
        }
    }
    let [sp, before, above, x, right] = all;
    let (mut f, mut g) = ([0.0; LANES], [0.0; LANES]);
    for l in 0..LANES {
        let b = ((before[l] + sp[l]) * (before[l] - sp[l]) + above[l] * above[l]) / 2.0;
        let c = (sp[l] * above[l]) * (sp[l] * above[l]);
        let root = (b * b + c).sqrt().copysign(b);
        let shift = if b + root == 0.0 { 0.0 } else { c / (b + root) };
        f[l] = (x[l] + sp[l]) * (x[l] - sp[l]) + shift;
        g[l] = x[l] * right[l];
    }
    (f, g)
}

/// Cosine, sine and length of the rotation that maps `(f, g)` to `(length, 0)`.
#[inline(always)]
fn rotation(f: f64, g: f64) -> (f64, f64, f64) {
    let length = (f * f + g * g).sqrt();
    let inverse = 1.0 / length;
    // The squares of smaller numbers are inexact.
    let exact = length >= 1e-140;
    (
        if exact { f * inverse } else { 1.0 },
        if exact { g * inverse } else { 0.0 },
        if exact { length } else { 0.0 },
    )
}

/// A step on each block with the shift of its last 2 x 2 block.
#[inline(always)]
fn qr_step(s: &mut [Lanes], e: &mut [Lanes], blocks: &Blocks) {
    let (mut f, mut g) = start(s, e, blocks);
    for j in blocks.rows() {
        let (x, next, above, right, at) = (s[j], s[j + 1], e[j], e[j + 1], j as f64);
        let (mut new_x, mut new_next, mut new_above, mut new_right) = (x, next, above, right);
        let mut before = if j > 0 { e[j - 1] } else { above };
        for l in 0..LANES {
            let active = blocks.first[l] <= at && at < blocks.last[l];
            let inner = active && at + 1.0 < blocks.last[l];
            let (cos, sin, length) = rotation(f[l], g[l]);
            before[l] = if active && blocks.first[l] < at {
                length
            } else {
                before[l]
            };
            let (p, q) = (cos * x[l] + sin * above[l], cos * above[l] - sin * x[l]);
            let (down, y) = (sin * next[l], cos * next[l]);
            let (cos, sin, length) = rotation(p, down);
            let (r, z) = (cos * q + sin * y, cos * y - sin * q);
            new_x[l] = if active { length } else { x[l] };
            new_next[l] = if active { z } else { next[l] };
            new_above[l] = if active { r } else { above[l] };
            f[l] = if active { r } else { f[l] };
            g[l] = if inner { sin * right[l] } else { g[l] };
            new_right[l] = if inner { cos * right[l] } else { right[l] };
        }
        if j > 0 {
            e[j - 1] = before;
        }
        (s[j], s[j + 1], e[j], e[j + 1]) = (new_x, new_next, new_above, new_right);
    }
}
