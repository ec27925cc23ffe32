//! Rotations of the rows of a matrix. They wait until there are many of them. Then all of them pass over a few columns at a time, which
//! stay in a near cache.

use super::matrix::Matrix;
use super::real::Real;
use super::threads::run_each;
use super::vectors::{dot, load};
use crate::tensor::wide_function;

/// The number of vectors that the columns of a strip fill.
const VECTORS: usize = 4;
/// The number of columns of f64 that are rotated together: [`VECTORS`] of eight.
const WIDTH: usize = 32;

/// The number of columns of f32 that are rotated together.
const NARROW_WIDTH: usize = 2 * WIDTH;

/// The number of columns of f64 in a strip of a small matrix, of which a batch may have many.
const SMALL_WIDTH: usize = 8;

/// The maximum number of rotations that wait. They have to stay in a near cache too.
const MOST: usize = 2048;

/// The rotation `x' = cos x + sin y, y' = cos y - sin x` of two rows.
struct Rotation<T> {
    x: usize,
    y: usize,
    cos: T,
    sin: T,
}

/// A matrix whose rows are rotated. It is stored in strips of columns, whose rows are neighbours.
pub(super) struct RotatedRows<T> {
    rows: usize,
    columns: usize,
    width: usize,
    strips: Vec<T>,
    waiting: Vec<Rotation<T>>,
}

impl<T: Real> RotatedRows<T> {
    pub(super) fn new(m: &Matrix<T>) -> RotatedRows<T> {
        let width = match T::NARROW {
            true => NARROW_WIDTH,
            false if m.columns <= SMALL_WIDTH => SMALL_WIDTH,
            false => WIDTH,
        };
        let mut strips = vec![T::ZERO; m.rows * m.columns.next_multiple_of(width)];
        for (i, row) in m.v.chunks_exact(m.columns.max(1)).enumerate() {
            for (s, part) in row.chunks(width).enumerate() {
                strips[(s * m.rows + i) * width..][..part.len()].copy_from_slice(part);
            }
        }
        RotatedRows {
            rows: m.rows,
            columns: m.columns,
            width,
            strips,
            waiting: vec![],
        }
    }

    /// Rotates rows `x` and `y`, which are different.
    #[inline(always)]
    pub(super) fn rotate(&mut self, x: usize, y: usize, cos: f64, sin: f64) {
        let (cos, sin) = (T::nearest(cos), T::nearest(sin));
        self.waiting.push(Rotation { x, y, cos, sin });
        if self.waiting.len() == MOST {
            self.apply();
        }
    }

    fn apply(&mut self) {
        let (width, waiting, size) = (self.width, &self.waiting, self.rows * self.width);
        let mut strips: Vec<&mut [T]> = self.strips.chunks_exact_mut(size.max(1)).collect();
        run_each(&mut strips, width * waiting.len(), |strip| {
            rotate_strip(strip, width, waiting)
        });
        self.waiting.clear();
    }

    /// The matrix whose columns are the rows with these indices, which are orthonormal, after all rotations.
    pub(super) fn finish(mut self, order: &[usize]) -> Matrix<T> {
        self.apply();
        let scales = self.scales();
        let mut out = Matrix::zeros(self.columns, order.len());
        if order.is_empty() {
            return out;
        }
        for (i, line) in out.v.chunks_exact_mut(order.len()).enumerate() {
            let (strip, place) = (&self.strips[i / self.width * self.rows * self.width..], i % self.width);
            for (y, j) in line.iter_mut().zip(order) {
                *y = strip[*j * self.width + place] * scales[*j];
            }
        }
        out
    }

    /// The factors that make the length of each row 1. Many rotations whose cosines were rounded to 1 make rows of f32 longer.
    fn scales(&self) -> Vec<T> {
        if !T::NARROW {
            return vec![T::ONE; self.rows];
        }
        let mut squares = vec![0.0; self.rows];
        for strip in self.strips.chunks_exact((self.rows * self.width).max(1)) {
            for (square, part) in squares.iter_mut().zip(strip.chunks_exact(self.width)) {
                let sum: f64 = dot(part, part).into();
                *square += sum;
            }
        }
        squares.iter().map(|x| T::nearest(1.0 / x.sqrt())).collect()
    }
}

wide_function! {
    fn rotate_strip = rotate_strip_body<T: Real>(strip: &mut [T], width: usize, rotations: &[Rotation<T>])
}

#[inline(always)]
fn rotate_strip_body<T: Real>(strip: &mut [T], width: usize, rotations: &[Rotation<T>]) {
    match width {
        SMALL_WIDTH => rotate_columns::<T, { SMALL_WIDTH / VECTORS }>(strip, rotations),
        WIDTH => rotate_columns::<T, { WIDTH / VECTORS }>(strip, rotations),
        _ => rotate_columns::<T, { NARROW_WIDTH / VECTORS }>(strip, rotations),
    }
}

/// Most rotations come in sweeps over neighbouring rows, in which each rotation shares a row with the one before it. That row stays in
/// registers.
#[inline(always)]
fn rotate_columns<T: Real, const N: usize>(strip: &mut [T], rotations: &[Rotation<T>]) {
    let mut rest = rotations;
    while let Some(first) = rest.first() {
        let falling = rest.get(1).is_some_and(|next| next.y == first.x);
        let follows = |pair: &[Rotation<T>]| match falling {
            true => pair[1].y == pair[0].x,
            false => pair[1].x == pair[0].y,
        };
        let length = 1 + rest.windows(2).take_while(|pair| follows(pair)).count();
        let (sweep, after) = rest.split_at(length);
        match falling {
            true => rotate_sweep::<T, N, true>(strip, sweep, first.y),
            false => rotate_sweep::<T, N, false>(strip, sweep, first.x),
        }
        rest = after;
    }
}

/// A sweep in which the row `x` of each rotation is the row `y` of the next (falling), or the reverse. `row` is the row of the first
/// rotation that it does not share.
#[inline(always)]
fn rotate_sweep<T: Real, const N: usize, const FALLING: bool>(strip: &mut [T], sweep: &[Rotation<T>], mut row: usize) {
    let width = VECTORS * N;
    let part = |row: usize, v: usize| row * width + v * N..row * width + (v + 1) * N;
    // One array each: the compiler keeps an array of arrays in memory, at whatever alignment the stack has.
    let (mut a, mut b) = (load::<T, N>(&strip[part(row, 0)]), load::<T, N>(&strip[part(row, 1)]));
    let (mut c, mut d) = (load::<T, N>(&strip[part(row, 2)]), load::<T, N>(&strip[part(row, 3)]));
    for r in sweep {
        let (other, sin) = if FALLING { (r.x, r.sin) } else { (r.y, -r.sin) };
        for (v, held) in [&mut a, &mut b, &mut c, &mut d].into_iter().enumerate() {
            let fresh = load::<T, N>(&strip[part(other, v)]);
            strip[part(row, v)].copy_from_slice(&turn(held, fresh, r.cos, sin));
        }
        row = other;
    }
    for (v, held) in [a, b, c, d].into_iter().enumerate() {
        strip[part(row, v)].copy_from_slice(&held);
    }
}

/// Rotates a part of two rows. Returns that of one of them, and leaves the other in `held`.
#[inline(always)]
fn turn<T: Real, const N: usize>(held: &mut [T; N], fresh: [T; N], cos: T, sin: T) -> [T; N] {
    let mut out = [T::ZERO; N];
    for l in 0..N {
        out[l] = cos * held[l] - sin * fresh[l];
        held[l] = cos * fresh[l] + sin * held[l];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_rotated_in_order() {
        for (rows, columns) in [(2, 1), (5, 31), (4, 40), (3, 0)] {
            let mut want = Matrix::from_fn(rows, columns, |i, j| (i * 7 + j) as f64);
            let mut rotated = RotatedRows::new(&want);
            for k in 0..MOST + 3 {
                let (x, y) = (k % rows, (k + 1) % rows);
                let (cos, sin) = ((k as f64).cos(), (k as f64).sin());
                rotated.rotate(x, y, cos, sin);
                for j in 0..columns {
                    let (a, b) = (want.at(x, j), want.at(y, j));
                    want.set(x, j, cos * a + sin * b);
                    want.set(y, j, cos * b - sin * a);
                }
            }
            let order: Vec<usize> = (0..rows).rev().collect();
            let got = rotated.finish(&order);
            assert!(got.v == Matrix::from_fn(columns, rows, |i, j| want.at(order[j], i)).v);
        }
    }
}
