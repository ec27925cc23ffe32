//! The loops of resampling. A line of the operand is resampled along the last dim once; sums of such lines are lines of the result.

use super::resample_bytes::Taps;
use crate::op::rows::fill::{units_per_part, with_word};
use crate::parallel::Pool;
use crate::tensor::{Places, Tensor, ViewMut, gather_weighted, with_wide_vectors};
use smallvec::SmallVec;
use std::ops::{Add, Mul};

/// Resamples planes of `size` by copies of elements; each index of `along` has one tap.
pub(super) fn resample_nearest(x: &Tensor, size: [usize; 3], along: &[Vec<Taps>], out: &mut ViewMut<'_>, pool: &Pool) {
    let columns: Vec<usize> = along[2].iter().map(|t| t[0].0).collect();
    let lines: Vec<usize> = along[0]
        .iter()
        .flat_map(|d| along[1].iter().map(|h| d[0].0 * size[1] + h[0].0))
        .collect();
    let (src, dst) = (x.bytes(), out.bytes_mut());
    with_word!(x.dtype().size(), src, dst, |src, dst| {
        let n = lines.len() * columns.len();
        let planes = units_per_part(dst.len() / n, n * x.dtype().size(), pool);
        let plane: usize = size.iter().product();
        pool.run_parts(dst, planes * n, |i, dst| {
            let src = src[i * planes * plane..].chunks_exact(plane);
            src.zip(dst.chunks_exact_mut(n))
                .for_each(|(x, out)| copy_plane(x, size[2], &lines, &columns, out));
        });
    });
}

/// Copies the elements at `columns` of each of `lines`, which have `width` elements.
fn copy_plane<T: Copy>(x: &[T], width: usize, lines: &[usize], columns: &[usize], out: &mut [T]) {
    let n = columns.len();
    let whole = n == width && columns.iter().enumerate().all(|(i, &c)| i == c);
    for (k, &line) in lines.iter().enumerate() {
        let from = &x[line * width..][..width];
        let (done, rest) = out.split_at_mut(k * n);
        let to = &mut rest[..n];
        if whole {
            to.copy_from_slice(from);
        } else if k > 0 && lines[k - 1] == line {
            to.copy_from_slice(&done[(k - 1) * n..]);
        } else {
            to.iter_mut().zip(columns).for_each(|(o, &c)| *o = from[c]);
        }
    }
}

/// The arithmetic of a blend.
pub(super) trait Weight:
    Copy + Default + PartialEq + Send + Sync + Add<Output = Self> + Mul<Output = Self> + 'static
{
    fn from_f64(x: f64) -> Self;
}

impl Weight for f32 {
    fn from_f64(x: f64) -> f32 {
        x as f32
    }
}

impl Weight for f64 {
    fn from_f64(x: f64) -> f64 {
        x
    }
}

/// The taps of all elements of a line.
enum LineTaps<T> {
    /// Every element has the same number of taps: their places and weights, tap by tap.
    Even(Vec<Places<Vec<i32>>>, Vec<Vec<T>>),
    Uneven(Vec<Vec<(usize, T)>>),
}

impl<T: Weight> LineTaps<T> {
    /// The taps in lines of `n` elements.
    fn new(taps: &[Taps], n: usize) -> LineTaps<T> {
        let count = taps[0].len();
        let narrow = taps.iter().flatten().all(|t| i32::try_from(t.0).is_ok());
        if !narrow || !matches!(count, 1 | 2 | 4) || taps.iter().any(|t| t.len() != count) {
            let converted = |t: &Taps| t.iter().map(|&(i, w)| (i, T::from_f64(w))).collect();
            return LineTaps::Uneven(taps.iter().map(converted).collect());
        }
        let places = |k: usize| Places::new(n, taps.iter().map(|t| t[k].0 as i32).collect());
        let weights = |k: usize| taps.iter().map(|t| T::from_f64(t[k].1)).collect();
        LineTaps::Even((0..count).map(places).collect(), (0..count).map(weights).collect())
    }

    /// The sums of a line's elements from `first` on.
    fn apply(&self, line: &[T], first: usize, out: &mut [T]) {
        let range = first..first + out.len();
        match self {
            LineTaps::Even(p, w) => {
                let (p, w) = (|k: usize| p[k].part(range.clone()), |k: usize| &w[k][range.clone()]);
                match self.count() {
                    1 if w(0).iter().all(|w| *w == T::from_f64(1.0)) => p(0).gather(line, out),
                    1 => gather_weighted(line, [p(0)], [w(0)], out),
                    2 => gather_weighted(line, [0, 1].map(p), [0, 1].map(w), out),
                    _ => gather_weighted(line, [0, 1, 2, 3].map(p), [0, 1, 2, 3].map(w), out),
                }
            }
            LineTaps::Uneven(taps) => {
                for (o, taps) in out.iter_mut().zip(&taps[range]) {
                    *o = taps.iter().fold(T::default(), |s, &(k, w)| s + line[k] * w);
                }
            }
        }
    }

    /// The number of taps of each element, if it is the same for all.
    fn count(&self) -> usize {
        match self {
            LineTaps::Even(p, _) => p.len(),
            LineTaps::Uneven(_) => 0,
        }
    }
}

/// Lines of a plane that have been resampled. The lines that one line of the result needs are neighbours, so that they have different
/// slots.
struct LineCache<T> {
    lines: Vec<T>,
    held: Vec<usize>,
    /// The numbers of slots along the outer two dims.
    slots: [usize; 2],
    width: usize,
}

impl<T: Weight> LineCache<T> {
    fn new(along: &OuterTaps<T>, width: usize) -> LineCache<T> {
        let most = |d: usize| along[d].iter().map(|t| t.0.len()).max().unwrap_or(1).max(1);
        let slots = [most(0), most(1)];
        LineCache {
            lines: vec![T::default(); slots[0] * slots[1] * width],
            held: vec![usize::MAX; slots[0] * slots[1]],
            slots,
            width,
        }
    }

    fn line(&mut self, plane: &[T], size: [usize; 3], at: [usize; 2], taps: &LineTaps<T>) -> &[T] {
        let slot = at[0] % self.slots[0] * self.slots[1] + at[1] % self.slots[1];
        let line = at[0] * size[1] + at[1];
        let kept = &mut self.lines[slot * self.width..][..self.width];
        if self.held[slot] != line {
            self.held[slot] = line;
            taps.apply(&plane[line * size[2]..][..size[2]], 0, kept);
        }
        kept
    }
}

/// Taps of the outer two dims. The bool says that there is one tap of weight 1.
type OuterTaps<T> = [Vec<(SmallVec<[(usize, T); 4]>, bool)>; 2];

/// Resamples planes of `size` by weighted sums along each dim, innermost dim first.
pub(super) fn blend_taps<T: Weight>(x: &[T], size: [usize; 3], along: &[Vec<Taps>], out: &mut [T], pool: &Pool) {
    let columns = LineTaps::<T>::new(&along[2], size[2]);
    let converted = |t: &Taps| {
        let taps: SmallVec<[(usize, T); 4]> = t.iter().map(|&(i, w)| (i, T::from_f64(w))).collect();
        let copies = matches!(taps[..], [(_, w)] if w == T::from_f64(1.0));
        (taps, copies)
    };
    let outer: OuterTaps<T> = [0, 1].map(|d| along[d].iter().map(converted).collect());
    let (plane, n) = (
        size.iter().product::<usize>(),
        along.iter().map(Vec::len).product::<usize>(),
    );
    let planes = units_per_part(out.len() / n, n * size_of::<T>(), pool);
    pool.run_parts(out, planes * n, |i, out| {
        if [0, 1].iter().all(|&d| outer[d].iter().all(|t| t.1)) {
            return blend_lines(&x[i * planes * plane..], size, &outer, &columns, along[2].len(), out);
        }
        let mut cache = LineCache::new(&outer, along[2].len());
        let mut part = vec![T::default(); along[2].len()];
        let x = x[i * planes * plane..].chunks_exact(plane);
        for (x, out) in x.zip(out.chunks_exact_mut(n)) {
            cache.held.fill(usize::MAX);
            blend_plane(x, size, &outer, &columns, &mut cache, &mut part, out);
        }
    });
}

/// The number of elements of a line that are blended in all lines, while their taps are in the cache.
const COLUMNS: usize = 1024;

/// Blends planes along the last dim only.
fn blend_lines<T: Weight>(
    x: &[T],
    size: [usize; 3],
    outer: &OuterTaps<T>,
    columns: &LineTaps<T>,
    width: usize,
    out: &mut [T],
) {
    let plane: usize = size.iter().product();
    for first in (0..width).step_by(COLUMNS) {
        let mut outs = out.chunks_exact_mut(width);
        for x in x.chunks_exact(plane) {
            for ((planes, _), (rows, _)) in outer[0].iter().flat_map(|p| outer[1].iter().map(move |r| (p, r))) {
                let Some(out) = outs.next() else { return };
                let line = planes[0].0 * size[1] + rows[0].0;
                let end = width.min(first + COLUMNS);
                columns.apply(&x[line * size[2]..][..size[2]], first, &mut out[first..end]);
            }
        }
    }
}

fn blend_plane<T: Weight>(
    x: &[T],
    size: [usize; 3],
    outer: &OuterTaps<T>,
    columns: &LineTaps<T>,
    cache: &mut LineCache<T>,
    part: &mut [T],
    out: &mut [T],
) {
    let mut lines = out.chunks_exact_mut(part.len());
    for (planes, one_plane) in &outer[0] {
        for (rows, one_row) in &outer[1] {
            let Some(out) = lines.next() else { return };
            if *one_plane && *one_row {
                let line = planes[0].0 * size[1] + rows[0].0;
                columns.apply(&x[line * size[2]..][..size[2]], 0, out);
                continue;
            }
            if *one_plane {
                blend_rows(x, size, planes[0].0, rows, columns, cache, out);
                continue;
            }
            for (k, &(i, w)) in planes.iter().enumerate() {
                blend_rows(x, size, i, rows, columns, cache, part);
                add_scaled(part, w, out, k == 0);
            }
        }
    }
}

/// The weighted sum of some lines of plane `i`.
fn blend_rows<T: Weight>(
    x: &[T],
    size: [usize; 3],
    i: usize,
    rows: &[(usize, T)],
    columns: &LineTaps<T>,
    cache: &mut LineCache<T>,
    out: &mut [T],
) {
    for (k, &(j, w)) in rows.iter().enumerate() {
        add_scaled(cache.line(x, size, [i, j], columns), w, out, k == 0);
    }
}

/// `out += line * w`, or `out = line * w` at the first.
fn add_scaled<T: Weight>(line: &[T], w: T, out: &mut [T], first: bool) {
    let pairs = out.iter_mut().zip(line);
    with_wide_vectors(|| match first {
        true => pairs.for_each(|(o, &v)| *o = v * w),
        false => pairs.for_each(|(o, &v)| *o = *o + v * w),
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;

    /// The sum of each element's taps along all dims, element by element.
    fn by_elements(x: &[f64], size: [usize; 3], along: &[Vec<Taps>]) -> Vec<f64> {
        let mut out = vec![];
        for x in x.chunks_exact(size.iter().product()) {
            for d in &along[0] {
                for h in &along[1] {
                    for w in &along[2] {
                        let line = |i: usize, j: usize| {
                            let terms = w.iter().map(|&(k, w)| x[(i * size[1] + j) * size[2] + k] * w);
                            terms.reduce(|a, b| a + b).unwrap_or_default()
                        };
                        let rows = |i: usize| h.iter().map(|&(j, w)| line(i, j) * w).reduce(|a, b| a + b);
                        let planes = d.iter().map(|&(i, w)| rows(i).unwrap_or_default() * w);
                        out.push(planes.reduce(|a, b| a + b).unwrap_or_default());
                    }
                }
            }
        }
        out
    }

    #[test]
    fn lines_that_are_kept_are_the_right_ones() {
        let size = [4, 5, 20];
        let x: Vec<f64> = (0..3 * 400).map(|i| (i * 37 % 101) as f64).collect();
        let one = |n: usize| -> Vec<Taps> { (0..n).map(|i| smallvec![(i, 1.0)]).collect() };
        let two = |n: usize, out: usize| -> Vec<Taps> {
            let at = |i: usize| (i * n / out, 0.25 * (i % 4) as f64);
            (0..out)
                .map(at)
                .map(|(a, t)| smallvec![(a, 1.0 - t), ((a + 1).min(n - 1), t)])
                .collect()
        };
        let four: Vec<Taps> = (0..9)
            .map(|i| (0..4).map(|k| ((i / 2 + k).min(4), 0.5 - 0.25 * k as f64)).collect())
            .collect();
        let uneven: Vec<Taps> = (0..7)
            .map(|i| (i..(2 * i + 1).min(20)).map(|k| (k, 0.5)).collect())
            .collect();
        for along in [
            [one(4), one(5), two(20, 33)],
            [one(4), two(5, 11), uneven],
            [two(4, 7), four.clone(), two(20, 40)],
            [two(4, 3), one(5), one(20)],
            [one(4), four, one(20)],
        ] {
            let want = by_elements(&x, size, &along);
            for threads in [1, 2] {
                let mut got = vec![0.0; want.len()];
                blend_taps(&x, size, &along, &mut got, &Pool::new(threads));
                assert!(got == want);
            }
        }
    }
}
