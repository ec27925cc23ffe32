//! The places and weights from which resampling computes the elements along a dim.

use super::cubic::{SLOPE, cubic_weights};
use super::resample::ResampleMode;
use super::resample_bytes::Taps;
use super::resample_lines::Weight;
use crate::tensor::{WideLoop, f64_to_i32, run_wide};
use smallvec::smallvec;

/// Rounds to the dtype that torch computes coordinates in.
fn round_to(single: bool, x: f64) -> f64 {
    if single { x as f32 as f64 } else { x }
}

fn source_step(n: usize, out: usize, align: bool, scale: Option<f64>, single: bool) -> f64 {
    let r = |x| round_to(single, x);
    if align {
        return if out > 1 {
            r(r((n - 1) as f64) / r((out - 1) as f64))
        } else {
            0.0
        };
    }
    match scale {
        Some(s) if s > 0.0 => r(1.0 / s),
        _ => r(n as f64 / out as f64),
    }
}

/// The parameter of the cubic weights with antialiasing.
const SMOOTH_SLOPE: f64 = -0.5;

/// A dim of an image that is resampled.
#[derive(Clone)]
pub(super) struct Axis {
    mode: ResampleMode,
    /// The sizes of the operand and the result.
    n: usize,
    out: usize,
    /// The distance in the operand of neighbouring elements of the result.
    step: f64,
    align: bool,
    /// Whether coordinates are rounded to f32.
    single: bool,
}

/// Places and weights of all elements along a dim, tap by tap.
pub(super) struct EvenTaps<T> {
    pub(super) places: Vec<Vec<i32>>,
    pub(super) weights: Vec<Vec<T>>,
}

impl Axis {
    pub(super) fn new(mode: ResampleMode, n: usize, out: usize, align: bool, scale: Option<f64>, single: bool) -> Axis {
        let step = source_step(n, out, align, scale, single);
        Axis {
            mode,
            n,
            out,
            step,
            align,
            single,
        }
    }

    /// A dim that stays as it is.
    pub(super) fn unchanged(n: usize) -> Axis {
        Axis::new(ResampleMode::Nearest, n, n, false, None, false)
    }

    /// The number of elements of the result.
    pub(super) fn len(&self) -> usize {
        self.out
    }

    /// The number of taps, if it is the same for all elements.
    fn even_count(&self) -> Option<usize> {
        match self.mode {
            ResampleMode::Nearest | ResampleMode::NearestExact => Some(1),
            ResampleMode::Linear if self.n == self.out => Some(1),
            ResampleMode::Linear => Some(2),
            ResampleMode::Cubic => Some(4),
            ResampleMode::LinearSmooth | ResampleMode::CubicSmooth => None,
        }
    }

    /// The most taps of an element, about.
    pub(super) fn most_taps(&self) -> usize {
        // With antialiasing, the filter has the width of as many elements as lie between two of the result.
        let wide = |taps: f64| (taps * self.step.max(1.0)).ceil() as usize;
        let of_mode = || {
            wide(if self.mode == ResampleMode::LinearSmooth {
                2.0
            } else {
                4.0
            })
        };
        self.even_count().unwrap_or_else(of_mode).clamp(1, self.n.max(1))
    }

    /// The taps of all elements if they have the same number of them, and places fit i32.
    pub(super) fn even_taps<T: Weight>(&self) -> Option<EvenTaps<T>> {
        let count = self.even_count()?;
        i32::try_from(self.n).ok()?;
        let mut taps = EvenTaps {
            places: vec![vec![0; self.out]; count],
            weights: vec![vec![T::default(); self.out]; count],
        };
        match self.single {
            true => run_wide(FillTaps::<T, true>(self, &mut taps)),
            false => run_wide(FillTaps::<T, false>(self, &mut taps)),
        }
        Some(taps)
    }

    /// The place of each element of nearest interpolation. `None` if i32 cannot express them.
    pub(super) fn nearest_places(&self) -> Option<Vec<i32>> {
        i32::try_from(self.n).ok()?;
        let mut places = vec![0; self.out];
        match self.single {
            true => run_wide(FillNearest::<true>(self, &mut places)),
            false => run_wide(FillNearest::<false>(self, &mut places)),
        }
        Some(places)
    }

    /// The taps of each element.
    pub(super) fn taps(&self) -> Vec<Taps> {
        (0..self.out).map(|i| self.taps_of(i)).collect()
    }

    fn taps_of(&self, i: usize) -> Taps {
        let last = self.n - 1;
        match self.mode {
            ResampleMode::Nearest | ResampleMode::NearestExact => {
                let place = match self.single {
                    true => self.nearest::<true>(i as f64),
                    false => self.nearest::<false>(i as f64),
                };
                smallvec![(place as usize, 1.0)]
            }
            ResampleMode::Linear if self.n == self.out => smallvec![(i, 1.0)],
            ResampleMode::Linear => {
                let (place, t) = match self.single {
                    true => self.linear::<true>(i as f64),
                    false => self.linear::<false>(i as f64),
                };
                let place = (place as usize).min(last);
                smallvec![(place, round_to(self.single, 1.0 - t)), ((place + 1).min(last), t)]
            }
            ResampleMode::Cubic => {
                let source = match self.single {
                    true => self.source::<true>(i as f64),
                    false => self.source::<false>(i as f64),
                };
                let below = source.floor();
                let w = cubic_weights(round_to(self.single, source - below), SLOPE);
                let place = |k: usize| (below as i64 - 1 + k as i64).clamp(0, last as i64) as usize;
                (0..4).map(|k| (place(k), round_to(self.single, w[k]))).collect()
            }
            ResampleMode::LinearSmooth | ResampleMode::CubicSmooth => smooth_taps(self.mode, self.n, self.step, i),
        }
    }

    /// The place of element `i` in nearest interpolation.
    #[inline(always)]
    fn nearest<const SINGLE: bool>(&self, i: f64) -> f64 {
        let shift = if self.mode == ResampleMode::NearestExact {
            0.5
        } else {
            0.0
        };
        let source = round_to(SINGLE, self.step * (i + shift));
        source.floor().min((self.n - 1) as f64)
    }

    /// The coordinate of element `i` in the operand.
    #[inline(always)]
    fn source<const SINGLE: bool>(&self, i: f64) -> f64 {
        match self.align {
            true => round_to(SINGLE, self.step * i),
            false => round_to(SINGLE, round_to(SINGLE, self.step * (i + 0.5)) - 0.5),
        }
    }

    /// The place below element `i`, and the distance from it.
    #[inline(always)]
    fn linear<const SINGLE: bool>(&self, i: f64) -> (f64, f64) {
        let source = self.source::<SINGLE>(i).max(0.0);
        let place = source.floor().min((self.n - 1) as f64);
        (place, round_to(SINGLE, source - place).clamp(0.0, 1.0))
    }
}

/// The number of elements whose indices are converted to f64 together: their distance from the first of them is an i32, for whose
/// conversion every instruction set has a vector instruction.
const TOGETHER: usize = 1 << 16;

/// Fills the places of nearest interpolation.
struct FillNearest<'a, const SINGLE: bool>(&'a Axis, &'a mut [i32]);

impl<const SINGLE: bool> WideLoop for FillNearest<'_, SINGLE> {
    #[inline(always)]
    #[expect(
        clippy::needless_range_loop,
        reason = "loops over indices become vector code more often"
    )]
    fn run(self) {
        let (axis, mut rest, mut first) = (self.0.clone(), self.1, 0.0);
        while !rest.is_empty() {
            let (places, after) = rest.split_at_mut(rest.len().min(TOGETHER));
            for k in 0..places.len() {
                places[k] = f64_to_i32(axis.nearest::<SINGLE>(first + k as i32 as f64));
            }
            first += TOGETHER as f64;
            rest = after;
        }
    }
}

/// Fills the taps of linear interpolation.
#[inline(always)]
fn fill_linear<T: Weight, const SINGLE: bool>(axis: &Axis, [p0, p1]: [&mut [i32]; 2], [w0, w1]: [&mut [T]; 2]) {
    let (axis, last, n) = (axis.clone(), (axis.n - 1) as i32, p0.len());
    for from in (0..n).step_by(TOGETHER) {
        let end = n.min(from + TOGETHER);
        let (p0, p1, w0, w1) = (
            &mut p0[from..end],
            &mut p1[from..end],
            &mut w0[from..end],
            &mut w1[from..end],
        );
        for k in 0..end - from {
            let (place, t) = axis.linear::<SINGLE>(from as f64 + k as i32 as f64);
            p0[k] = f64_to_i32(place);
            p1[k] = (p0[k] + 1).min(last);
            w0[k] = T::from_f64(round_to(SINGLE, 1.0 - t));
            w1[k] = T::from_f64(t);
        }
    }
}

/// Fills the taps of all elements, as [`Axis::taps_of`] does for one.
struct FillTaps<'a, T, const SINGLE: bool>(&'a Axis, &'a mut EvenTaps<T>);

impl<T: Weight, const SINGLE: bool> WideLoop for FillTaps<'_, T, SINGLE> {
    #[inline(always)]
    fn run(self) {
        let FillTaps(axis, EvenTaps { places, weights }) = self;
        let last = (axis.n - 1) as i32;
        match (&mut places[..], &mut weights[..]) {
            ([places], [weights]) => {
                weights.fill(T::from_f64(1.0));
                match axis.mode {
                    ResampleMode::Linear => places.iter_mut().enumerate().for_each(|(i, p)| *p = i as i32),
                    _ => FillNearest::<SINGLE>(axis, places).run(),
                }
            }
            ([p0, p1], [w0, w1]) => {
                fill_linear::<T, SINGLE>(axis, [p0, p1], [w0, w1]);
            }
            (places, weights) => {
                for i in 0..axis.out {
                    let source = axis.source::<SINGLE>(i as f64);
                    let below = source.floor();
                    let w = cubic_weights(round_to(SINGLE, source - below), SLOPE);
                    for k in 0..places.len().min(4) {
                        places[k][i] = (below as i32 - 1 + k as i32).clamp(0, last);
                        weights[k][i] = T::from_f64(round_to(SINGLE, w[k]));
                    }
                }
            }
        }
    }
}

/// The filter stretched by the step and normalised (torch's antialiasing, which is that of Pillow).
fn smooth_taps(mode: ResampleMode, n: usize, step: f64, i: usize) -> Taps {
    let half = if mode == ResampleMode::LinearSmooth { 1.0 } else { 2.0 };
    let wide = step.max(1.0);
    let (support, centre) = (half * wide, step * (i as f64 + 0.5));
    let first = ((centre - support + 0.5) as i64).max(0);
    let end = ((centre + support + 0.5) as i64).min(n as i64);
    let filter = |x: f64| {
        let x = x.abs();
        match mode {
            ResampleMode::LinearSmooth => (1.0 - x).max(0.0),
            _ if x < 1.0 => cubic_weights(x, SMOOTH_SLOPE)[1],
            _ if x < 2.0 => cubic_weights(x - 1.0, SMOOTH_SLOPE)[0],
            _ => 0.0,
        }
    };
    let w: Vec<f64> = (first..end).map(|j| filter((j as f64 - centre + 0.5) / wide)).collect();
    let sum: f64 = w.iter().sum();
    let sum = if sum == 0.0 { 1.0 } else { sum };
    (first..end).zip(w).map(|(j, w)| (j as usize, w / sum)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taps_filled_together_are_those_of_each_element() {
        use ResampleMode::{Cubic, Linear, Nearest, NearestExact};
        for (mode, single) in [Nearest, NearestExact, Linear, Cubic]
            .iter()
            .flat_map(|&m| [(m, false), (m, true)])
        {
            for (n, out, align, scale) in [
                (7, 3, false, Some(0.5)),
                (9, 31, true, None),
                (5, 5, false, None),
                (1, 4, false, None),
            ] {
                let axis = Axis::new(mode, n, out, align, scale, single);
                let even = axis.even_taps::<f64>().expect("an even number of taps");
                for (i, taps) in axis.taps().into_iter().enumerate() {
                    let got = even
                        .places
                        .iter()
                        .zip(&even.weights)
                        .map(|(p, w)| (p[i] as usize, w[i]));
                    assert!(got.eq(taps), "{mode:?} {n} {out} {i}");
                }
            }
        }
    }
}
