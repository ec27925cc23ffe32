//! Rotations of the rows of a matrix, which wait until there are many of them. Then they pass over a few columns at a time, which stay in a
//! near cache.

use super::lines::LANES;
use super::matrix::Matrix;
use crate::tensor::wide_function;

/// The vectors of columns that are rotated together.
const VECTORS: usize = 4;
/// The columns that are rotated together.
const WIDTH: usize = VECTORS * LANES;
/// A row's elements in these columns.
type Part = [[f64; LANES]; VECTORS];
/// The number of rotations that wait: they stay in a near cache too.
const MOST: usize = 2048;

/// The rotation `x' = cos x + sin y, y' = cos y - sin x` of two rows.
struct Rotation {
    x: usize,
    y: usize,
    cos: f64,
    sin: f64,
}

/// A matrix whose rows are rotated. It is stored in strips of columns, whose rows are neighbours.
pub(super) struct RotatedRows {
    rows: usize,
    columns: usize,
    strips: Vec<Part>,
    waiting: Vec<Rotation>,
}

impl RotatedRows {
    pub(super) fn new(m: &Matrix) -> RotatedRows {
        let mut strips = vec![[[0.0; LANES]; VECTORS]; m.rows * m.columns.div_ceil(WIDTH)];
        for (i, row) in m.v.chunks_exact(m.columns.max(1)).enumerate() {
            for (s, part) in row.chunks(WIDTH).enumerate() {
                strips[s * m.rows + i].as_flattened_mut()[..part.len()].copy_from_slice(part);
            }
        }
        RotatedRows {
            rows: m.rows,
            columns: m.columns,
            strips,
            waiting: vec![],
        }
    }

    /// Rotates rows `x` and `y`, which are different.
    #[inline(always)]
    pub(super) fn rotate(&mut self, x: usize, y: usize, cos: f64, sin: f64) {
        self.waiting.push(Rotation { x, y, cos, sin });
        if self.waiting.len() == MOST {
            self.apply();
        }
    }

    fn apply(&mut self) {
        for strip in self.strips.chunks_exact_mut(self.rows.max(1)) {
            rotate_strip(strip, &self.waiting);
        }
        self.waiting.clear();
    }

    /// The matrix whose columns are the rows with these indices, after all rotations.
    pub(super) fn finish(mut self, order: &[usize]) -> Matrix {
        self.apply();
        let mut out = Matrix::zeros(self.columns, order.len());
        if order.is_empty() {
            return out;
        }
        for (i, line) in out.v.chunks_exact_mut(order.len()).enumerate() {
            let (strip, place) = (&self.strips[i / WIDTH * self.rows..], i % WIDTH);
            for (y, j) in line.iter_mut().zip(order) {
                *y = strip[*j].as_flattened()[place];
            }
        }
        out
    }
}

wide_function! {
    fn rotate_strip = rotate_strip_body(strip: &mut [Part], rotations: &[Rotation])
}

#[inline(always)]
fn rotate_strip_body(strip: &mut [Part], rotations: &[Rotation]) {
    for r in rotations {
        // The rows are different; a vector's elements are in registers before the next ones are read.
        let mut c = 0;
        while c < VECTORS {
            let (x, y) = (strip[r.x][c], strip[r.y][c]);
            let (mut a, mut b) = ([0.0; LANES], [0.0; LANES]);
            for l in 0..LANES {
                a[l] = r.cos * x[l] + r.sin * y[l];
                b[l] = r.cos * y[l] - r.sin * x[l];
            }
            strip[r.x][c] = a;
            strip[r.y][c] = b;
            c += 1;
        }
    }
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
