//! Singular values and vectors of small matrices side by side, by the rotations for a single one ([`jacobi`](crate::linalg::svd::jacobi)).

use super::{Interleaved, Lanes};
use crate::linalg::LANES;
use crate::linalg::svd::jacobi::SWEEPS;
use crate::linalg::vectors::end_of_element;
use crate::tensor::wide_function;

wide_function! {
    /// Rotates the rows of `a`, and those of `v` with them, until those of `a` are orthogonal: until the cosines of their angles are at
    /// most `near`. Elements should be of about one.
    pub(super) fn orthogonalise = orthogonalise_body(a: &mut Interleaved, v: &mut Interleaved, near: f64)
}

#[inline(always)]
fn orthogonalise_body(a: &mut Interleaved, v: &mut Interleaved, near: f64) {
    for _ in 0..SWEEPS {
        let mut turned = false;
        for p in 0..a.rows {
            for q in p + 1..a.rows {
                turned |= rotate_pair(a, v, (p, q), near);
            }
        }
        if !turned {
            break;
        }
    }
}

/// Makes rows `p` and `q` orthogonal. Returns false if they were in all lanes.
#[inline(always)]
fn rotate_pair(a: &mut Interleaved, v: &mut Interleaved, (p, q): (usize, usize), near: f64) -> bool {
    let (x, y) = a.two_rows(p, q);
    let (mut xx, mut yy, mut xy) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
    for (x, y) in x.iter().zip(y.iter()) {
        for l in 0..LANES {
            xx[l] += x[l] * x[l];
            yy[l] += y[l] * y[l];
            xy[l] += x[l] * y[l];
        }
    }
    let (mut cos, mut sin, mut any) = ([1.0; LANES], [0.0; LANES], [0.0; LANES]);
    for l in 0..LANES {
        let turns = xy[l].abs() > near * (xx[l].sqrt() * yy[l].sqrt());
        // The rotation that makes `[[xx, xy], [xy, yy]]` diagonal.
        let ratio = (yy[l] - xx[l]) / (2.0 * xy[l]);
        let t = 1f64.copysign(ratio) / (ratio.abs() + (ratio * ratio + 1.0).sqrt());
        let c = 1.0 / (t * t + 1.0).sqrt();
        cos[l] = if turns { c } else { 1.0 };
        sin[l] = if turns { c * t } else { 0.0 };
        any[l] = if turns { 1.0 } else { 0.0 };
    }
    if any == [0.0; LANES] {
        return false;
    }
    turn(x, y, &cos, &sin);
    let (x, y) = v.two_rows(p, q);
    turn(x, y, &cos, &sin);
    true
}

#[inline(always)]
fn turn(x: &mut [Lanes], y: &mut [Lanes], cos: &Lanes, sin: &Lanes) {
    for (x, y) in x.iter_mut().zip(y) {
        let (a, b) = (*x, *y);
        for l in 0..LANES {
            x[l] = cos[l] * a[l] - sin[l] * b[l];
            y[l] = sin[l] * a[l] + cos[l] * b[l];
        }
        end_of_element();
    }
}
