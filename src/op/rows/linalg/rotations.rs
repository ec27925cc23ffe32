//! Rotations of the rows of a matrix, which wait until there are many of them. Then they pass over a few columns at a time, which stay in a
//! near cache.

use super::lines::dot;
use super::matrix::Matrix;
use super::real::Real;
use crate::tensor::wide_function;

/// The columns of f64 that are rotated together: four vectors.
const WIDTH: usize = 32;
/// The columns of f32 that are rotated together.
const NARROW_WIDTH: usize = 2 * WIDTH;
/// The columns of small matrices of f64, of which there may be many.
const SMALL_WIDTH: usize = 8;
/// The number of rotations that wait: they stay in a near cache too.
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
        for strip in self.strips.chunks_exact_mut((self.rows * self.width).max(1)) {
            rotate_strip(strip, self.width, &self.waiting);
        }
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

    /// What makes each row's length 1: many rotations with cosines that are rounded to 1 make rows of f32 longer.
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
        SMALL_WIDTH => rotate_columns::<T, SMALL_WIDTH>(strip, rotations),
        WIDTH => rotate_columns::<T, WIDTH>(strip, rotations),
        _ => rotate_columns::<T, NARROW_WIDTH>(strip, rotations),
    }
}

/// Most rotations come in sweeps over neighbouring rows, where each has a row in common with the one before it. This row stays in
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

/// Rotations whose rows `x` are the next ones' rows `y` (falling), or the reverse. The first has `row` in common with none.
#[inline(always)]
fn rotate_sweep<T: Real, const N: usize, const FALLING: bool>(strip: &mut [T], sweep: &[Rotation<T>], mut row: usize) {
    let mut held = [T::ZERO; N];
    held.copy_from_slice(&strip[row * N..][..N]);
    for r in sweep {
        let (other, sin) = if FALLING { (r.x, r.sin) } else { (r.y, -r.sin) };
        let mut fresh = [T::ZERO; N];
        fresh.copy_from_slice(&strip[other * N..][..N]);
        let out = &mut strip[row * N..][..N];
        for l in 0..N {
            out[l] = r.cos * held[l] - sin * fresh[l];
            held[l] = r.cos * fresh[l] + sin * held[l];
        }
        row = other;
    }
    strip[row * N..][..N].copy_from_slice(&held);
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
