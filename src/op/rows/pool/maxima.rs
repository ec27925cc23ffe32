//! The maxima of windows and their places. NaN wins, the last of several; of equal numbers the first counts.

use super::window::{Planes, PoolWindow};
use crate::op::rows::dense::Number;
use crate::tensor::WideLoop;
use std::hint::select_unpredictable;

/// The maximum of a part of a row that is at least this long is found in vectors, and then its place.
const LONG: usize = 16;

/// The maxima of consecutive planes, and their places in their plane.
pub(super) struct MaxPlanes<'a, T> {
    pub planes: &'a Planes,
    pub x: &'a [T],
    pub out: &'a mut [T],
    pub places: &'a mut [i64],
}

impl<T: Number> WideLoop for MaxPlanes<'_, T> {
    #[inline(always)]
    fn run(self) {
        let p = self.planes;
        let len = p.out_plane();
        let mut band = Band {
            best: vec![T::LOWEST; p.size[2]],
            rows: vec![0; p.size[2]],
        };
        let outs = self.out.chunks_exact_mut(len).zip(self.places.chunks_exact_mut(len));
        for (x, (out, places)) in self.x.chunks_exact(p.plane()).zip(outs) {
            max_plane(p, x, &mut band, out, places);
        }
    }
}

#[inline(always)]
fn max_plane<T: Number>(p: &Planes, x: &[T], band: &mut Band<T>, out: &mut [T], places: &mut [i64]) {
    let [d, h, w] = p.size;
    let columns = &p.windows[2];
    let n = columns.len();
    let few = i32::try_from(d * h).is_ok();
    let outs = out.chunks_exact_mut(n).zip(places.chunks_exact_mut(n));
    for ((depth, height), (out, places)) in p.rows().zip(outs) {
        let several = depth.end > depth.start + depth.step || height.end > height.start + height.step;
        let present = depth.start < depth.end && height.start < height.end;
        if few && several && present {
            band.fill(x, h, depth, height);
            band.finish(columns, out, places);
            continue;
        }
        let first = (depth.start * h + height.start) * w;
        out.fill(T::LOWEST);
        (places.iter_mut().zip(columns)).for_each(|(place, c)| *place = (first + c.start) as i64);
        for i in (depth.start..depth.end).step_by(depth.step) {
            for j in (height.start..height.end).step_by(height.step) {
                let at = (i * h + j) * w;
                raise_maxima(&x[at..at + w], at, columns, out, places);
            }
        }
    }
}

/// The maxima of the rows of a row of windows, column by column, and the rows that they are in.
struct Band<T> {
    best: Vec<T>,
    rows: Vec<i32>,
}

impl<T: Number> Band<T> {
    /// Finds the maxima of the rows of a plane, which has `h` rows in each depth.
    // Loops without closures, which would not be compiled for wide vectors.
    #[inline(always)]
    fn fill(&mut self, x: &[T], h: usize, depth: &PoolWindow, height: &PoolWindow) {
        let w = self.best.len();
        let first = depth.start * h + height.start;
        self.best.copy_from_slice(&x[first * w..][..w]);
        self.rows.fill(first as i32);
        for i in (depth.start..depth.end).step_by(depth.step) {
            for j in (height.start..height.end).step_by(height.step) {
                let row = i * h + j;
                if row != first {
                    self.raise(&x[row * w..][..w], row as i32);
                }
            }
        }
    }

    /// Adds a row that is further down.
    #[inline(always)]
    fn raise(&mut self, row: &[T], place: i32) {
        let (best, rows) = (&mut self.best[..row.len()], &mut self.rows[..row.len()]);
        for k in 0..row.len() {
            let beats = row[k].beats(best[k]);
            best[k] = if beats { row[k] } else { best[k] };
            rows[k] = if beats { place } else { rows[k] };
        }
    }

    /// Stores the maxima of windows over these columns, and their places.
    #[inline(always)]
    fn finish(&self, columns: &[PoolWindow], out: &mut [T], places: &mut [i64]) {
        let w = self.best.len();
        for ((out, place), c) in out.iter_mut().zip(places).zip(columns) {
            let (mut best, mut row, mut column) = (T::LOWEST, self.rows[0], c.start);
            if c.start < c.end {
                (best, row) = (self.best[c.start], self.rows[c.start]);
            }
            for k in (c.start..c.end).step_by(c.step).skip(1) {
                let (v, r) = (self.best[k], self.rows[k]);
                // In the order of rows, this column is before what was found.
                let before = r < row;
                let wins = (v.beats(best) & !(best.is_nan() & before)) | ((v == best) & before);
                best = select_unpredictable(wins, v, best);
                row = select_unpredictable(wins, r, row);
                column = select_unpredictable(wins, k, column);
            }
            (*out, *place) = (best, (row as usize * w + column) as i64);
        }
    }
}

/// Raises the maxima of a row of windows to those of one row of elements, which begins at `at` in its plane.
#[inline(always)]
fn raise_maxima<T: Number>(row: &[T], at: usize, columns: &[PoolWindow], out: &mut [T], places: &mut [i64]) {
    for ((best, place), c) in out.iter_mut().zip(places).zip(columns) {
        if c.step == 1 && c.end >= c.start + LONG {
            if let Some(k) = winner(&row[c.start..c.end], *best) {
                (*best, *place) = (row[c.start + k], (at + c.start + k) as i64);
            }
            continue;
        }
        for k in (c.start..c.end).step_by(c.step) {
            let beats = row[k].beats(*best);
            *best = select_unpredictable(beats, row[k], *best);
            *place = select_unpredictable(beats, (at + k) as i64, *place);
        }
    }
}

/// The index of the element that replaces `best` as the maximum in a walk through the elements: the last NaN, or else the first of the
/// largest ones.
#[inline(always)]
#[expect(
    clippy::needless_range_loop,
    reason = "loops over indices become vector code more often"
)]
fn winner<T: Number>(v: &[T], best: T) -> Option<usize> {
    // Maxima of one lane would wait for each other.
    const LANES: usize = 32;
    let (mut most, mut nans) = ([best; LANES], [false; LANES]);
    let (chunks, rest) = v.as_chunks::<LANES>();
    for i in 0..chunks.len() {
        for k in 0..LANES {
            let x = chunks[i][k];
            most[k] = if x > most[k] { x } else { most[k] };
            nans[k] |= x.is_nan();
        }
    }
    for k in 0..rest.len() {
        most[k] = if rest[k] > most[k] { rest[k] } else { most[k] };
        nans[k] |= rest[k].is_nan();
    }
    let (mut top, mut any) = (best, false);
    for k in 0..LANES {
        top = if most[k] > top { most[k] } else { top };
        any |= nans[k];
    }
    if any {
        return v.iter().rposition(|x| x.is_nan());
    }
    // Nothing is above a NaN that came before.
    match top > best {
        true => v.iter().position(|x| *x == top),
        false => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::planes::max_pool;
    use crate::op::{Call, by_name};
    use crate::parallel::Pool;
    use crate::tensor::{SplitMix, Tensor, ViewMut};
    use crate::types::Val;

    /// The maximum of a window and its place, one element after the other.
    fn walk(x: &[f32], w: usize, rows: &[usize], columns: &[usize]) -> (u32, i64) {
        let mut best = (f32::NEG_INFINITY, rows[0] * w + columns[0]);
        for (r, c) in rows.iter().flat_map(|r| columns.iter().map(move |c| (r, c))) {
            let v = x[r * w + c];
            if v > best.0 || v.is_nan() {
                best = (v, r * w + c);
            }
        }
        (best.0.to_bits(), best.1 as i64)
    }

    #[test]
    fn the_winner_is_that_of_a_walk() {
        let mut random = SplitMix::new(13);
        for n in [16, 31, 32, 33, 100, 200] {
            for values in [
                &[1.0f32, 0.0, -0.0, 2.0][..],
                &[1.0, 1.0, 1.0, 1.0, f32::NAN],
                &[f32::NEG_INFINITY],
            ] {
                for best in [f32::NEG_INFINITY, 1.0, 5.0, f32::NAN] {
                    let v: Vec<f32> = (0..n).map(|_| random.pick(values)).collect();
                    let (mut most, mut want) = (best, None);
                    for (k, &x) in v.iter().enumerate() {
                        if x > most || x.is_nan() {
                            (most, want) = (x, Some(k));
                        }
                    }
                    assert_eq!(super::winner(&v, best), want, "{v:?} after {best}");
                }
            }
        }
    }

    /// Few numbers, so that most windows have several maxima, with zeros of both signs and NaN.
    #[test]
    fn maxima_and_places_are_those_of_a_walk_through_the_window() {
        let mut random = SplitMix::new(11);
        for [h, w, kernel, stride, padding, dilation] in [
            [13, 37, 3, 2, 1, 1],
            [9, 21, 2, 1, 0, 2],
            [7, 40, 5, 3, 2, 1],
            [12, 12, 1, 1, 0, 1],
            [20, 33, 9, 4, 4, 1],
            [40, 300, 39, 19, 2, 1],
        ] {
            let x: Vec<f32> = (0..h * w)
                .map(|_| random.pick(&[1.0, 0.0, -0.0, -2.0, 2.0, f32::NEG_INFINITY, f32::NAN, 1.0]))
                .collect();
            let reach = (kernel - 1) * dilation + 1;
            let size = |n: usize| (n + 2 * padding - reach) / stride + 1;
            let within = |i: usize, n: usize| {
                let all = (0..kernel).map(move |k| (i * stride + k * dilation).checked_sub(padding));
                all.flatten().filter(|&at| at < n).collect::<Vec<usize>>()
            };
            let shape = [1, size(h), size(w)];
            let ints = |n: usize| Val::List(vec![Val::int(n as i64); 2]);
            let call = Call {
                op: by_name("max_pool2d_with_indices").expect("a row"),
                args: vec![
                    Val::Leaf(Tensor::from_slice(&[1, h, w], &x)),
                    ints(kernel),
                    ints(stride),
                    ints(padding),
                    ints(dilation),
                    Val::Bool(false),
                ],
            };
            let (mut out, mut places) = (vec![0f32; shape[1] * shape[2]], vec![0i64; shape[1] * shape[2]]);
            let views = [
                ViewMut::from_slice(&shape, &mut out),
                ViewMut::from_slice(&shape, &mut places),
            ];
            max_pool(&call, &mut views.map(|v| v.expect("a view")), &Pool::new(1), 2).expect("results");
            for (i, (v, at)) in out.iter().zip(&places).enumerate() {
                let want = walk(&x, w, &within(i / shape[2], h), &within(i % shape[2], w));
                assert_eq!((v.to_bits(), *at), want, "{h} x {w} by {kernel}: {i}");
            }
        }
    }
}
