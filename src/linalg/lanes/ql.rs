//! Eigenvalues and eigenvectors of symmetric matrices side by side, by the algorithms for a single one ([`ql`](crate::linalg::eigen::ql)).

use super::blocks::Blocks;
use super::qr::{reflect_vector, scaled_reflection};
use super::vectors::dot;
use super::{Interleaved, Lanes};
use crate::linalg::LANES;
use crate::linalg::eigen::ql::STEPS;
use crate::linalg::vectors::end_of_element;
use crate::tensor::wide_function;

/// Tridiagonal matrices: their diagonals, the elements below them (with zeros at the end), and the factors of the reflections that lead to
/// them.
#[derive(Default)]
pub(super) struct Tridiagonals {
    pub(super) diagonal: Vec<Lanes>,
    pub(super) below: Vec<Lanes>,
    taus: Vec<Lanes>,
    /// Scratch memory.
    line: Vec<Lanes>,
}

wide_function! {
    /// Reduces symmetric matrices, of which both triangles count, to tridiagonal ones. The vectors of the reflections replace their rows
    /// right of the diagonal.
    pub(super) fn tridiagonal = tridiagonal_body(a: &mut Interleaved, out: &mut Tridiagonals)
}

#[inline(always)]
fn tridiagonal_body(a: &mut Interleaved, out: &mut Tridiagonals) {
    let n = a.columns;
    out.diagonal.clear();
    out.below.clear();
    out.taus.clear();
    out.line.resize(n, [0.0; LANES]);
    for k in 0..n {
        let (upper, rest) = a.v.split_at_mut((k + 1) * n);
        let row = &mut upper[k * n + k..];
        out.diagonal.push(row[0]);
        let (tau, beta) = match k + 1 < n {
            true => scaled_reflection(&mut row[1..]),
            false => ([0.0; LANES], [0.0; LANES]),
        };
        out.taus.push(tau);
        out.below.push(beta);
        if k + 2 < n {
            reflect_both_sides(rest, k + 1, &row[1..], &tau, &mut out.line[..n - k - 1]);
        }
    }
}

/// Reflects the columns from `from` on of these rows, and the rows themselves: subtracts `v w^T + w v^T`.
#[inline(always)]
fn reflect_both_sides(rows: &mut [Lanes], from: usize, v: &[Lanes], tau: &Lanes, w: &mut [Lanes]) {
    let n = from + v.len();
    for (row, w) in rows.chunks_exact(n).zip(w.iter_mut()) {
        *w = dot(&row[from..], v);
        for l in 0..LANES {
            w[l] *= tau[l];
        }
    }
    let mut half = dot(w, v);
    for l in 0..LANES {
        half[l] *= -0.5 * tau[l];
    }
    for (w, v) in w.iter_mut().zip(v) {
        for l in 0..LANES {
            w[l] += half[l] * v[l];
        }
        end_of_element();
    }
    for (i, row) in rows.chunks_exact_mut(n).enumerate() {
        let (by_v, by_w) = (v[i], w[i]);
        for ((x, v), w) in row[from..].iter_mut().zip(v).zip(w.iter()) {
            for l in 0..LANES {
                x[l] -= by_v[l] * w[l] + by_w[l] * v[l];
            }
            end_of_element();
        }
    }
}

wide_function! {
    /// The transposed products of the reflections that [`tridiagonal`] left.
    pub(super) fn basis = basis_body(a: &Interleaved, t: &Tridiagonals, out: &mut Interleaved)
}

#[inline(always)]
fn basis_body(a: &Interleaved, t: &Tridiagonals, out: &mut Interleaved) {
    let n = a.columns;
    out.set_eye(n);
    for k in (0..n.saturating_sub(2)).rev() {
        let v = &a.v[k * n + k + 1..(k + 1) * n];
        for row in out.v[(k + 1) * n..].chunks_exact_mut(n) {
            reflect_vector(&mut row[k + 1..], v, &t.taus[k]);
        }
    }
}

wide_function! {
    /// Replaces the diagonals of tridiagonal matrices by their eigenvalues, in any order; the rows of `vectors` are rotated with them.
    pub(super) fn diagonalise_vectors = implicit_ql(t: &mut Tridiagonals, vectors: &mut Interleaved)
}

#[inline(always)]
fn implicit_ql(t: &mut Tridiagonals, vectors: &mut Interleaved) {
    let (d, e) = (&mut t.diagonal[..], &mut t.below[..]);
    let zeros = [0.0; LANES];
    let mut blocks = Blocks {
        first: zeros,
        last: zeros,
    };
    for _ in 0..STEPS * d.len() {
        if !blocks.find::<false>(d, e) {
            break;
        }
        ql_step(d, e, vectors, &blocks);
    }
}

/// The last diagonal element of each block, minus Wilkinson's shift.
#[inline(always)]
fn shifted(d: &[Lanes], e: &[Lanes], blocks: &Blocks) -> Lanes {
    let (first, end) = (blocks.first_rows(), d.len() - 2);
    let (mut x, mut next, mut below, mut last) = ([0.0; LANES], [0.0; LANES], [1.0; LANES], [0.0; LANES]);
    for l in 0..LANES {
        let at = first[l].min(end);
        (x[l], next[l], below[l]) = (d[at][l], d[at + 1][l], e[at][l]);
        last[l] = d[blocks.last[l] as usize][l];
    }
    for l in 0..LANES {
        let ratio = (next[l] - x[l]) / (2.0 * below[l]);
        let root = (ratio * ratio + 1.0).sqrt().copysign(ratio);
        last[l] = last[l] - x[l] + below[l] / (ratio + root);
    }
    last
}

/// A step on each block.
#[inline(always)]
fn ql_step(d: &mut [Lanes], e: &mut [Lanes], vectors: &mut Interleaved, blocks: &Blocks) {
    let mut g = shifted(d, e, blocks);
    let (mut sin, mut cos, mut p, mut first) = ([1.0; LANES], [1.0; LANES], [0.0; LANES], blocks.first);
    for i in blocks.rows().rev() {
        let (x, below, at) = (d[i], e[i], i as f64);
        let (mut next, mut new_below) = (d[i + 1], e[i + 1]);
        let (mut turn_cos, mut turn_sin) = ([1.0; LANES], [0.0; LANES]);
        for l in 0..LANES {
            let active = first[l] <= at && at < blocks.last[l];
            let (f, b) = (sin[l] * below[l], cos[l] * below[l]);
            let length = (f * f + g[l] * g[l]).sqrt();
            // The squares of smaller numbers are inexact. The matrix splits here.
            let (splits, moves) = (length < 1e-140, active && length >= 1e-140);
            let (s, c, before) = (f / length, g[l] / length, next[l] - p[l]);
            let r = (x[l] - before) * s + 2.0 * c * b;
            let shift = s * r;
            new_below[l] = if active { length } else { new_below[l] };
            let now = if splits { before } else { before + shift };
            next[l] = if active { now } else { next[l] };
            sin[l] = if moves { s } else { sin[l] };
            cos[l] = if moves { c } else { cos[l] };
            p[l] = if moves { shift } else { p[l] };
            g[l] = if moves { c * r - b } else { g[l] };
            turn_sin[l] = if moves { s } else { 0.0 };
            turn_cos[l] = if moves { c } else { 1.0 };
            first[l] = if active && splits { f64::INFINITY } else { first[l] };
        }
        (d[i + 1], e[i + 1]) = (next, new_below);
        rotate_rows(vectors, i, &turn_cos, &turn_sin);
    }
    end_step(d, e, blocks, [&first, &p, &g]);
}

/// Writes the results of a step for the first and the last row of each block. A block that split has none for its first row.
#[inline(always)]
fn end_step(d: &mut [Lanes], e: &mut [Lanes], blocks: &Blocks, [first, p, g]: [&Lanes; 3]) {
    for l in 0..LANES {
        let (at, last) = (blocks.first[l] as usize, blocks.last[l] as usize);
        if at >= last {
            continue;
        }
        e[last][l] = 0.0;
        if first[l] <= blocks.first[l] {
            d[at][l] -= p[l];
            e[at][l] = g[l];
        }
    }
}

/// Rotates rows `i` and `i + 1`.
#[inline(always)]
fn rotate_rows(a: &mut Interleaved, i: usize, cos: &Lanes, sin: &Lanes) {
    let n = a.columns;
    let (head, tail) = a.v.split_at_mut((i + 1) * n);
    for (x, y) in head[i * n..].iter_mut().zip(&mut tail[..n]) {
        let (a, b) = (*x, *y);
        for l in 0..LANES {
            x[l] = cos[l] * a[l] - sin[l] * b[l];
            y[l] = cos[l] * b[l] + sin[l] * a[l];
        }
        end_of_element();
    }
}

wide_function! {
    /// Replaces the diagonals of tridiagonal matrices by their eigenvalues, in any order.
    pub(in crate::linalg) fn diagonalise = root_free_ql(d: &mut [Lanes], e: &mut [Lanes])
}

#[inline(always)]
fn root_free_ql(d: &mut [Lanes], e: &mut [Lanes]) {
    for x in e.iter_mut() {
        for y in x.iter_mut() {
            *y *= *y;
        }
        end_of_element();
    }
    let zeros = [0.0; LANES];
    let mut blocks = Blocks {
        first: zeros,
        last: zeros,
    };
    for _ in 0..STEPS * d.len() {
        if !blocks.find::<true>(d, e) {
            break;
        }
        root_free_step(d, e, &blocks);
    }
}

/// Wilkinson's shifts, from the squares of the elements below the diagonal.
#[inline(always)]
fn shifts(d: &[Lanes], e: &[Lanes], blocks: &Blocks) -> Lanes {
    let (first, end) = (blocks.first_rows(), d.len() - 2);
    let (mut x, mut next, mut below) = ([0.0; LANES], [0.0; LANES], [1.0; LANES]);
    for l in 0..LANES {
        let at = first[l].min(end);
        (x[l], next[l], below[l]) = (d[at][l], d[at + 1][l], e[at][l]);
    }
    for l in 0..LANES {
        let root = below[l].sqrt();
        let ratio = (next[l] - x[l]) / (2.0 * root);
        x[l] -= root / (ratio + (ratio * ratio + 1.0).sqrt().copysign(ratio));
    }
    x
}

/// A step on each block, where `e` has the squares of the elements below the diagonal.
#[inline(always)]
fn root_free_step(d: &mut [Lanes], e: &mut [Lanes], blocks: &Blocks) {
    let shift = shifts(d, e, blocks);
    let (mut cos, mut sin, mut gamma, mut p) = ([1.0; LANES], [0.0; LANES], [0.0; LANES], [0.0; LANES]);
    for l in 0..LANES {
        gamma[l] = d[blocks.last[l] as usize][l] - shift[l];
        p[l] = gamma[l] * gamma[l];
    }
    for i in blocks.rows().rev() {
        let (x, square, at) = (d[i], e[i], i as f64);
        let (mut next, mut next_square) = (d[i + 1], e[i + 1]);
        for l in 0..LANES {
            let active = blocks.first[l] <= at && at < blocks.last[l];
            let r = p[l] + square[l];
            let inner = active && at + 1.0 < blocks.last[l];
            next_square[l] = if inner { sin[l] * r } else { next_square[l] };
            // The reciprocal of the cosine is computed independently of it, so that neither division waits for the other.
            let (inverse, c, s) = (r / p[l], p[l] / r, square[l] / r);
            let now = c * (x[l] - shift[l]) - s * gamma[l];
            next[l] = if active { gamma[l] + (x[l] - now) } else { next[l] };
            let exact = c != 0.0 && inverse < f64::INFINITY;
            let product = if exact { now * now * inverse } else { cos[l] * square[l] };
            p[l] = if active { product } else { p[l] };
            gamma[l] = if active { now } else { gamma[l] };
            cos[l] = if active { c } else { cos[l] };
            sin[l] = if active { s } else { sin[l] };
        }
        (d[i + 1], e[i + 1]) = (next, next_square);
    }
    for l in 0..LANES {
        let (at, last) = (blocks.first[l] as usize, blocks.last[l] as usize);
        if at < last {
            e[at][l] = sin[l] * p[l];
            d[at][l] = shift[l] + gamma[l];
        }
    }
}
