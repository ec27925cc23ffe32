//! Resampling of small planes, such as the last features of a network. Lines are shorter than vectors, so that the elements of whole
//! planes, or of several, are computed together.

use super::resample_axis::{Axis, EvenTaps};
use super::resample_lines::{LineTaps, OuterLine, OuterTaps, Weight};
use crate::tensor::with_wide_vectors;

/// Lines of the result that have fewer elements are short.
const SHORT: usize = 32;
/// The least number of elements that are computed together, if there are so many, and the greatest.
const ENOUGH: usize = 128;
const MOST: usize = 1024;

/// The taps of the elements of one plane, and of several.
pub(super) struct SmallPlanes<T> {
    several: PlaneTaps<T>,
    one: PlaneTaps<T>,
}

/// The taps of the elements of some planes: for each tap along the rows, those of the line it refers to, and its weight.
struct PlaneTaps<T> {
    rows: Vec<(LineTaps<T>, Vec<T>)>,
    /// The numbers of elements of these planes, of the operand and of the result.
    from: usize,
    to: usize,
}

impl<T: Weight> SmallPlanes<T> {
    /// `None` unless planes, of which there are `count`, are small and each element has the same number of taps. `outer` has the taps
    /// of the outer two dims.
    pub(super) fn new(size: [usize; 3], outer: &OuterTaps<T>, columns: &Axis, count: usize) -> Option<SmallPlanes<T>> {
        let flat = size[0] == 1 && matches!(&outer[0][..], [(_, true)]);
        let (first, _) = outer[1].first()?;
        let even = outer[1].iter().all(|(t, _)| t.len() == first.len());
        let blends = outer[1].iter().any(|(_, copies)| !copies);
        let n = outer[1].len().checked_mul(columns.len())?;
        let small = columns.len() < SHORT && n <= MOST && size[1].checked_mul(size[2])? <= 16 * MOST;
        if !flat || !even || !blends || !small {
            return None;
        }
        let taps = columns.even_taps::<T>()?;
        let together = ENOUGH.div_ceil(n).min(count.max(1));
        let planes = |several: usize| PlaneTaps::new(several, count / several, size, &outer[1], &taps);
        Some(SmallPlanes {
            several: planes(together),
            one: planes(1),
        })
    }

    /// Resamples as many planes as fill `out`.
    pub(super) fn blend(&self, x: &[T], out: &mut [T]) {
        let mut part = vec![T::default(); self.several.to];
        let whole = out.len() / self.several.to;
        let (most, rest) = out.split_at_mut(whole * self.several.to);
        self.several.blend(x, most, &mut part);
        self.one.blend(&x[whole * self.several.from..], rest, &mut part);
    }
}

impl<T: Weight> PlaneTaps<T> {
    fn new(planes: usize, uses: usize, size: [usize; 3], rows: &OuterLine<T>, columns: &EvenTaps<T>) -> PlaneTaps<T> {
        let plane = size[1] * size[2];
        let width = columns.places[0].len();
        let lines = || (0..planes).flat_map(|p| rows.iter().map(move |r| (p * plane, &r.0)));
        let count = rows.first().map_or(0, |r| r.0.len());
        let taps_of = |k: usize| {
            let starts: Vec<i32> = lines().map(|(p, r)| (p + r[k].0 * size[2]) as i32).collect();
            let shifted = |list: &Vec<i32>| starts.iter().flat_map(|s| list.iter().map(move |p| s + p)).collect();
            let repeated = |list: &Vec<T>| list.repeat(starts.len());
            let taps = EvenTaps {
                places: columns.places.iter().map(shifted).collect(),
                weights: columns.weights.iter().map(repeated).collect(),
            };
            let weights = lines().flat_map(|(_, r)| vec![r[k].1; width]).collect();
            (LineTaps::even(taps, planes * plane, uses), weights)
        };
        PlaneTaps {
            rows: (0..count).map(taps_of).collect(),
            from: planes * plane,
            to: planes * rows.len() * width,
        }
    }

    fn blend(&self, x: &[T], out: &mut [T], part: &mut [T]) {
        for (x, out) in x.chunks_exact(self.from).zip(out.chunks_exact_mut(self.to)) {
            let part = &mut part[..out.len()];
            for (k, (taps, weights)) in self.rows.iter().enumerate() {
                taps.apply(x, 0, part);
                add_products(part, weights, out, k == 0);
            }
        }
    }
}

/// `out += x * w`, or `out = x * w` at the first.
fn add_products<T: Weight>(x: &[T], w: &[T], out: &mut [T], first: bool) {
    let terms = out.iter_mut().zip(x).zip(w);
    with_wide_vectors(|| match first {
        true => terms.for_each(|((o, &x), &w)| *o = x * w),
        false => terms.for_each(|((o, &x), &w)| *o = *o + x * w),
    });
}
