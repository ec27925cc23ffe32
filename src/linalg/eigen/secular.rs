//! Eigenvalues and eigenvectors of a diagonal matrix plus one of rank one: the roots of the secular equation (Li 1993, LAPACK's `laed4`),
//! and vectors that are orthogonal because they belong exactly to a matrix nearby (Gu and Eisenstat 1995).

use crate::linalg::LANES;
use crate::linalg::real::Real;
use crate::linalg::threads::in_parts;
use crate::linalg::vectors::{add_lanes, dot};
use crate::tensor::wide_function;
use std::ops::Range;

/// The maximum number of steps per root. Five are common. At worst, each step halves the interval.
const STEPS: usize = 100;

/// `diag(d) + strength z z^T`, where `d` is strictly ascending, `z` has no zeros and a length of about one, and the strength is positive.
pub(super) struct RankOne<'a> {
    pub(super) d: &'a [f64],
    pub(super) z: &'a [f64],
    pub(super) strength: f64,
}

/// The eigenvalues in ascending order.
pub(super) struct Roots {
    pub(super) values: Vec<f64>,
    /// For each eigenvalue, the index of an element of `d` next to it, and the distance from there. The distance is more exact than the
    /// eigenvalue.
    places: Vec<(usize, f64)>,
    /// The z for which these eigenvalues are exact (Gu and Eisenstat).
    z: Vec<f64>,
}

/// The roots of the secular equation.
pub(super) fn secular_roots(m: &RankOne<'_>) -> Roots {
    let n = m.d.len();
    let places = in_parts(n, 1, ROOT_WORK * n, |roots| places_of(m, roots));
    let z = in_parts(n, 1, DIVISION_WORK * n, |elements| exact_z(m, &places, elements));
    let values = places.iter().map(|(origin, shift)| m.d[*origin] + shift).collect();
    Roots { values, places, z }
}

/// What finding a root and changing an element of z cost per pole, in multiplications.
const ROOT_WORK: usize = 64;
const DIVISION_WORK: usize = 8;

wide_function! {
    /// Some of the roots.
    fn places_of = places_of_body(m: &RankOne<'_>, roots: Range<usize>) -> Vec<(usize, f64)>
}

#[inline(always)]
fn places_of_body(m: &RankOne<'_>, roots: Range<usize>) -> Vec<(usize, f64)> {
    let (n, mut out) = (m.d.len(), Vec::with_capacity(roots.len()));
    let mut line = vec![0.0; n];
    for j in roots {
        out.push(match n {
            1 => (0, m.strength * m.z[0] * m.z[0]),
            _ => root(m, j, &mut line),
        });
    }
    out
}

wide_function! {
    /// Some elements of the z for which all roots are exact.
    fn exact_z = exact_z_body(m: &RankOne<'_>, places: &[(usize, f64)], elements: Range<usize>) -> Vec<f64>
}

#[inline(always)]
fn exact_z_body(m: &RankOne<'_>, places: &[(usize, f64)], elements: Range<usize>) -> Vec<f64> {
    let (start, end) = (elements.start, elements.end);
    let mut out = vec![-1.0; elements.len()];
    for (j, &(origin, shift)) in places.iter().enumerate() {
        let (from, pole) = (m.d[origin], m.d[j]);
        if elements.contains(&j) {
            out[j - start] *= (pole - from) - shift;
        }
        for range in [start..end.min(j), start.max(j + 1)..end] {
            if range.is_empty() {
                continue;
            }
            let (z, d) = (&mut out[range.start - start..range.end - start], &m.d[range]);
            for i in 0..z.len() {
                z[i] *= ((d[i] - from) - shift) / (d[i] - pole);
            }
        }
    }
    for (x, z) in out.iter_mut().zip(&m.z[elements]) {
        *x = x.max(0.0).sqrt().copysign(*z);
    }
    out
}

/// The secular function at a point, and the derivatives of its sums over the poles before and after the root.
struct Sums {
    value: f64,
    /// The sum of magnitudes.
    size: f64,
    slopes: [f64; 2],
}

/// An interval that contains a root, and a guess, from an origin.
struct Interval {
    origin: usize,
    low: f64,
    high: f64,
    guess: f64,
}

/// Root `j`, as the index of the pole next to it and the distance from there. `gaps` is scratch memory.
#[inline(always)]
fn root(m: &RankOne<'_>, j: usize, gaps: &mut [f64]) -> (usize, f64) {
    let n = m.d.len();
    let (last, near) = (j + 1 == n, f64::EPSILON * (4.0 + n as f64 / 8.0));
    // The poles that the function is approximated by.
    let pole = if last { n - 2 } else { j };
    let Interval {
        origin,
        mut low,
        mut high,
        guess: mut x,
    } = interval(m, j, gaps);
    set_gaps(m, origin, gaps);
    for _ in 0..STEPS {
        let sums = evaluate(m, gaps, pole, x);
        if sums.value.abs() <= near * sums.size {
            break;
        }
        if sums.value < 0.0 {
            low = x;
        } else {
            high = x;
        }
        let next = x + step(&sums, [gaps[pole] - x, gaps[pole + 1] - x], last);
        let inside = low < next && next < high;
        let next = if inside { next } else { 0.5 * (low + high) };
        if (next - x).abs() <= 0.5 * f64::EPSILON * x.abs() {
            break;
        }
        x = next;
    }
    (origin, x)
}

/// Where root `j` is: between its pole and the next one, next to the nearer of them.
#[inline(always)]
fn interval(m: &RankOne<'_>, j: usize, gaps: &mut [f64]) -> Interval {
    set_gaps(m, j, gaps);
    if j + 1 == m.d.len() {
        let width = m.strength * squares(m.z);
        return Interval {
            origin: j,
            low: 0.0,
            high: 2.0 * width,
            guess: width / 2.0,
        };
    }
    let width = gaps[j + 1];
    let middle = evaluate(m, gaps, j, width / 2.0).value;
    let (origin, low, high) = match middle >= 0.0 {
        true => (j, 0.0, width / 2.0),
        false => (j + 1, -width / 2.0, 0.0),
    };
    let guess = first_guess(m, (j, origin), width, middle);
    let inside = low < guess && guess < high;
    Interval {
        origin,
        low,
        high,
        guess: if inside { guess } else { 0.5 * (low + high) },
    }
}

#[inline(always)]
fn set_gaps(m: &RankOne<'_>, origin: usize, gaps: &mut [f64]) {
    let from = m.d[origin];
    let d = &m.d[..gaps.len()];
    for i in 0..d.len() {
        gaps[i] = d[i] - from;
    }
}

#[inline(always)]
fn squares(z: &[f64]) -> f64 {
    z.iter().fold(0.0, |sum, z| sum + z * z)
}

/// The secular function divided by the strength, at `x` from the origin of the gaps.
#[inline(always)]
fn evaluate(m: &RankOne<'_>, gaps: &[f64], pole: usize, x: f64) -> Sums {
    let (below, above) = gaps.split_at(pole + 1);
    let (z_below, z_above) = m.z.split_at(pole + 1);
    let (p, p_slope) = pole_sums(z_below, below, x);
    let (q, q_slope) = pole_sums(z_above, above, x);
    let constant = 1.0 / m.strength;
    Sums {
        value: constant + (p + q),
        size: constant + p.abs() + q.abs(),
        slopes: [p_slope, q_slope],
    }
}

/// The sums of `z² / (gap - x)` and of `z² / (gap - x)²`.
#[inline(always)]
fn pole_sums(z: &[f64], gaps: &[f64], x: f64) -> (f64, f64) {
    let (mut values, mut slopes) = ([0.0; LANES], [0.0; LANES]);
    let (whole, rest) = (z.len() / LANES * LANES, z.len() % LANES);
    let gaps = &gaps[..z.len()];
    for i in (0..whole).step_by(LANES) {
        let (z, gaps) = (&z[i..i + LANES], &gaps[i..i + LANES]);
        for l in 0..LANES {
            let t = z[l] / (gaps[l] - x);
            values[l] += z[l] * t;
            slopes[l] += t * t;
        }
    }
    for l in 0..rest {
        let t = z[whole + l] / (gaps[whole + l] - x);
        values[l] += z[whole + l] * t;
        slopes[l] += t * t;
    }
    (add_lanes(values), add_lanes(slopes))
}

/// The root of the function with the terms of the poles around it, and a constant for the others, from their sum in the middle.
#[inline(always)]
fn first_guess(m: &RankOne<'_>, (j, origin): (usize, usize), width: f64, middle: f64) -> f64 {
    let (p, q) = (m.z[j] * m.z[j], m.z[j + 1] * m.z[j + 1]);
    let c = middle - (q - p) / (width / 2.0);
    if origin == j {
        let (a, b) = (c * width + p + q, p * width);
        let root = (a * a - 4.0 * b * c).abs().sqrt();
        return if a > 0.0 {
            2.0 * b / (a + root)
        } else {
            (a - root) / (2.0 * c)
        };
    }
    let (a, b) = (c * width - p - q, q * width);
    let root = (a * a + 4.0 * b * c).abs().sqrt();
    if a < 0.0 {
        2.0 * b / (a - root)
    } else {
        -(a + root) / (2.0 * c)
    }
}

/// The distance to the root of a function that has the value and the slopes of these sums, and the two poles at these distances.
#[inline(always)]
fn step(sums: &Sums, [p, q]: [f64; 2], last: bool) -> f64 {
    let (w, [down, up]) = (sums.value, sums.slopes);
    let c = w - p * down - q * up;
    let a = (p + q) * w - p * q * (down + up);
    let b = p * q * w;
    let root = (a * a - 4.0 * b * c).abs().sqrt();
    let out = match last {
        true if a >= 0.0 => (a + root) / (2.0 * c.abs()),
        true => 2.0 * b / (a - root),
        false if a <= 0.0 => (a - root) / (2.0 * c),
        false => 2.0 * b / (a + root),
    };
    // The function rises.
    if w * out > 0.0 { -w / (down + up) } else { out }
}

impl Roots {
    /// Writes the eigenvectors as rows. `order` has the index in `d` of each of their elements.
    pub(super) fn write_vectors<T: Real>(&self, m: &RankOne<'_>, order: &[usize], out: &mut [T]) {
        let (n, mut line) = (m.d.len(), vec![0.0; m.d.len()]);
        for (row, place) in out.chunks_exact_mut(n.max(1)).zip(&self.places) {
            set_vector(m, &self.z, *place, &mut line);
            row.iter_mut().zip(order).for_each(|(y, i)| *y = T::nearest(line[*i]));
        }
    }
}

wide_function! {
    fn set_vector = set_vector_body(m: &RankOne<'_>, z: &[f64], place: (usize, f64), out: &mut [f64])
}

#[inline(always)]
fn set_vector_body(m: &RankOne<'_>, z: &[f64], (origin, shift): (usize, f64), out: &mut [f64]) {
    set_gaps(m, origin, out);
    let z = &z[..out.len()];
    for i in 0..out.len() {
        out[i] = z[i] / (out[i] - shift);
    }
    let length = dot(out, out).sqrt();
    out.iter_mut().for_each(|x| *x /= length);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Poles at distances from 1 to far below rounding errors of their size, and weights of all magnitudes.
    #[test]
    fn eigenvectors_multiply_back() {
        for (n, small) in [1, 2, 3, 9, 20]
            .into_iter()
            .flat_map(|n| [0.5, 1e-6, 1e-12].map(|s| (n, s)))
        {
            let odd = |i: usize| (i % 2) as f64;
            let d: Vec<f64> = (0..n).map(|i| (i / 2) as f64 + odd(i) * small).collect();
            let z: Vec<f64> = (0..n).map(|i| if i % 3 == 0 { 0.3 } else { -small }).collect();
            let m = RankOne {
                d: &d,
                z: &z,
                strength: 1.5,
            };
            let (roots, mut v) = (secular_roots(&m), vec![0.0; n * n]);
            let order: Vec<usize> = (0..n).collect();
            roots.write_vectors(&m, &order, &mut v);
            for (i, k) in (0..n).flat_map(|i| (0..n).map(move |k| (i, k))) {
                let same = (i == k) as u8 as f64;
                let want = 1.5 * z[i] * z[k] + same * d[i];
                let got: f64 = (0..n).map(|j| v[j * n + i] * roots.values[j] * v[j * n + k]).sum();
                assert!((got - want).abs() < 1e-13 * n as f64, "{n} {small}: {got} {want}");
                let product: f64 = (0..n).map(|j| v[i * n + j] * v[k * n + j]).sum();
                assert!((product - same).abs() < 1e-13, "{n} {small}");
            }
        }
    }
}
