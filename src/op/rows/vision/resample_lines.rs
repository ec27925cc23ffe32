//! The loops of resampling. A line of the operand is resampled along the last dim once; sums of such lines are lines of the result.

use super::resample_axis::{Axis, EvenTaps};
use crate::op::rows::fill::{units_per_part, with_word};
use crate::op::{OpError, OpResult};
use crate::parallel::Pool;
use crate::tensor::{Offsets, Places, Tensor, ViewMut, Windows, gather_weighted, with_wide_vectors};
use smallvec::SmallVec;
use std::ops::{Add, Mul};

/// Resamples planes of `size` by copies of elements; each index of `along` has one tap.
pub(super) fn resample_nearest(
    x: &Tensor,
    size: [usize; 3],
    axes: &[Axis],
    out: &mut ViewMut<'_>,
    pool: &Pool,
) -> OpResult<()> {
    let [Some(planes), Some(rows), Some(columns)] = [0, 1, 2].map(|d| axes[d].nearest_places()) else {
        return Err(OpError::shape(
            "dims of more than 2^31 - 1 elements cannot be resampled",
        ));
    };
    let line = |d: i32, h: i32| d as usize * size[1] + h as usize;
    let lines = planes.iter().flat_map(|&d| rows.iter().map(move |&h| line(d, h)));
    let lines: Vec<usize> = lines.collect();
    let n = lines.len() * columns.len();
    let small = (columns.len() < SHORT && n <= SMALL).then(|| {
        let line = |&l: &usize| columns.iter().map(move |&c| l * size[2] + c as usize);
        Offsets::new(lines.iter().flat_map(line).collect())
    });
    let columns = Columns::new(columns, size[2], x.numel() / size[2], x.dtype().size());
    let (src, dst) = (x.bytes(), out.bytes_mut());
    with_word!(x.dtype().size(), src, dst, |src, dst| {
        let planes = units_per_part(dst.len() / n, n * x.dtype().size(), pool);
        let plane: usize = size.iter().product();
        pool.run_parts(dst, planes * n, |i, dst| {
            let src = src[i * planes * plane..].chunks_exact(plane);
            let planes = src.zip(dst.chunks_exact_mut(n));
            match &small {
                Some(places) => planes.for_each(|(x, out)| places.gather(x, out)),
                None => planes.for_each(|(x, out)| copy_plane(x, size[2], &lines, &columns, out)),
            }
        });
    });
    Ok(())
}

/// Planes of at most this many elements, in lines of fewer than [`SHORT`], are copied by one list of places.
const SMALL: usize = 256;
const SHORT: usize = 16;

/// The places in a line of the operand of the elements of one of the result.
struct Columns {
    places: Vec<i32>,
    /// Whether these are all elements in their order.
    whole: bool,
    windows: Option<Windows>,
}

impl Columns {
    /// For `uses` lines of `width` elements of `size` bytes.
    fn new(places: Vec<i32>, width: usize, uses: usize, size: usize) -> Columns {
        let whole = places.len() == width && places.iter().enumerate().all(|(i, &c)| i == c as usize);
        let several = !whole && uses >= SEVERAL;
        let windows = several.then(|| Windows::new(width, std::slice::from_ref(&places), size));
        Columns {
            whole,
            windows: windows.flatten(),
            places,
        }
    }
}

/// Copies the elements at `columns` of each of `lines`, which have `width` elements.
fn copy_plane<T: Copy>(x: &[T], width: usize, lines: &[usize], columns: &Columns, out: &mut [T]) {
    let n = columns.places.len();
    for (k, &line) in lines.iter().enumerate() {
        let from = &x[line * width..][..width];
        let (done, rest) = out.split_at_mut(k * n);
        let to = &mut rest[..n];
        if columns.whole {
            to.copy_from_slice(from);
        } else if k > 0 && lines[k - 1] == line {
            to.copy_from_slice(&done[(k - 1) * n..]);
        } else if !columns.windows.as_ref().is_some_and(|w| w.copy(from, 0, to)) {
            let places = to.iter_mut().zip(&columns.places);
            places.for_each(|(o, &c)| *o = from[c as usize]);
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

/// For fewer lines, windows take longer to find than they save.
const SEVERAL: usize = 8;

/// The taps of all elements of a line.
pub(super) enum LineTaps<T> {
    /// Every element has the same number of taps: their places and weights, tap by tap.
    Even(Vec<Places<Vec<i32>>>, Vec<Vec<T>>, Option<Windows>),
    Uneven(Vec<Vec<(usize, T)>>),
}

impl<T: Weight> LineTaps<T> {
    /// The taps in lines of `n` elements, for `uses` lines.
    pub(super) fn new(axis: &Axis, n: usize, uses: usize) -> LineTaps<T> {
        match axis.even_taps() {
            Some(taps) => LineTaps::even(taps, n, uses),
            None => {
                let converted = |t: &[(usize, f64)]| t.iter().map(|&(i, w)| (i, T::from_f64(w))).collect();
                LineTaps::Uneven(axis.taps().iter().map(|t| converted(t)).collect())
            }
        }
    }

    pub(super) fn even(taps: EvenTaps<T>, n: usize, uses: usize) -> LineTaps<T> {
        let windows = (uses >= SEVERAL)
            .then(|| Windows::new(n, &taps.places, size_of::<T>()))
            .flatten();
        let places = taps.places.into_iter().map(|p| Places::new(n, p));
        LineTaps::Even(places.collect(), taps.weights, windows)
    }

    /// The sums of a line's elements from `first` on.
    pub(super) fn apply(&self, line: &[T], first: usize, out: &mut [T]) {
        let range = first..first + out.len();
        match self {
            LineTaps::Even(p, w, windows) => {
                let (p, w) = (|k: usize| p[k].part(range.clone()), |k: usize| &w[k][range.clone()]);
                let near = windows.as_ref();
                match self.count() {
                    1 if w(0).iter().all(|w| *w == T::from_f64(1.0)) => p(0).gather(line, out),
                    1 => gather_weighted(line, [p(0)], [w(0)], out),
                    2 if near.is_some_and(|n| n.sum(line, [0, 1].map(w), first, out)) => {}
                    2 => gather_weighted(line, [0, 1].map(p), [0, 1].map(w), out),
                    _ if near.is_some_and(|n| n.sum(line, [0, 1, 2, 3].map(w), first, out)) => {}
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
            LineTaps::Even(p, ..) => p.len(),
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

    fn line(&mut self, blend: &PlaneBlend<T>, plane: &[T], at: [usize; 2]) -> &[T] {
        let slot = at[0] % self.slots[0] * self.slots[1] + at[1] % self.slots[1];
        let line = at[0] * blend.size[1] + at[1];
        let kept = &mut self.lines[slot * self.width..][..self.width];
        if self.held[slot] != line {
            self.held[slot] = line;
            blend.columns.apply(blend.line(plane, at), 0, kept);
        }
        kept
    }
}

/// Taps of the outer two dims. The bool says that there is one tap of weight 1.
pub(super) type OuterTaps<T> = [OuterLine<T>; 2];

/// The taps along one of these dims, and for each place whether it copies an element.
pub(super) type OuterLine<T> = Vec<(SmallVec<[(usize, T); 4]>, bool)>;

/// The number of elements of a line that are blended in all lines, while their taps are in the cache.
const COLUMNS: usize = 1024;

/// A blend of planes of one size.
pub(super) struct PlaneBlend<T> {
    pub(super) size: [usize; 3],
    pub(super) outer: OuterTaps<T>,
    pub(super) columns: LineTaps<T>,
    /// The length of a line of the result.
    pub(super) width: usize,
}

impl<T: Weight> PlaneBlend<T> {
    /// The number of lines of a plane of the result.
    pub(super) fn lines(&self) -> usize {
        self.outer[0].len() * self.outer[1].len()
    }

    /// Resamples planes: as many lines of the result as fill `out`, from line `first` of the first plane on.
    pub(super) fn run(&self, x: &[T], first: usize, mut out: &mut [T]) {
        if self.outer.iter().all(|taps| taps.iter().all(|t| t.1)) {
            return self.blend_lines(x, first, out);
        }
        let mut cache = LineCache::new(&self.outer, self.width);
        let mut part = vec![T::default(); self.width];
        let mut line = first;
        while !out.is_empty() {
            let (plane, from) = (line / self.lines(), line % self.lines());
            let count = (self.lines() - from).min(out.len() / self.width);
            let now = out.split_off_mut(..count * self.width).unwrap_or_default();
            cache.held.fill(usize::MAX);
            self.blend_plane(self.plane(x, plane), from, &mut cache, &mut part, now);
            line += count;
        }
    }

    fn plane<'x>(&self, x: &'x [T], plane: usize) -> &'x [T] {
        let n: usize = self.size.iter().product();
        &x[plane * n..][..n]
    }

    /// The line of a plane at these places of the outer dims.
    fn line<'x>(&self, x: &'x [T], [i, j]: [usize; 2]) -> &'x [T] {
        &x[(i * self.size[1] + j) * self.size[2]..][..self.size[2]]
    }

    /// [`PlaneBlend::run`] along the last dim only.
    fn blend_lines(&self, x: &[T], first: usize, out: &mut [T]) {
        let [planes, rows] = &self.outer;
        for from in (0..self.width).step_by(COLUMNS) {
            let end = self.width.min(from + COLUMNS);
            for (k, out) in out.chunks_exact_mut(self.width).enumerate() {
                let (x, line) = (self.plane(x, (first + k) / self.lines()), (first + k) % self.lines());
                let line = [planes[line / rows.len()].0[0].0, rows[line % rows.len()].0[0].0];
                self.columns.apply(self.line(x, line), from, &mut out[from..end]);
            }
        }
    }

    /// Blends lines of a plane from line `first` on.
    fn blend_plane(&self, x: &[T], first: usize, cache: &mut LineCache<T>, part: &mut [T], out: &mut [T]) {
        for (k, out) in out.chunks_exact_mut(self.width).enumerate() {
            let n = self.outer[1].len();
            let (planes, one_plane) = &self.outer[0][(first + k) / n];
            let (rows, one_row) = &self.outer[1][(first + k) % n];
            if *one_plane && *one_row {
                self.columns.apply(self.line(x, [planes[0].0, rows[0].0]), 0, out);
                continue;
            }
            if *one_plane {
                self.blend_rows(x, planes[0].0, rows, cache, out);
                continue;
            }
            for (k, &(i, w)) in planes.iter().enumerate() {
                self.blend_rows(x, i, rows, cache, part);
                add_scaled(part, w, out, k == 0);
            }
        }
    }

    /// The weighted sum of some lines of plane `i`.
    fn blend_rows(&self, x: &[T], i: usize, rows: &[(usize, T)], cache: &mut LineCache<T>, out: &mut [T]) {
        for (k, &(j, w)) in rows.iter().enumerate() {
            add_scaled(cache.line(self, x, [i, j]), w, out, k == 0);
        }
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
