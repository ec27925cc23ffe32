//! Resampling by weighted sums along each dim, innermost dim first, in the type of the elements or in a wider one.

use super::resample_axis::Axis;
use super::resample_bytes::Taps;
use super::resample_lines::{LineTaps, OuterLine, OuterTaps, PlaneBlend, Weight};
use super::resample_small::SmallPlanes;
use crate::op::rows::fill::units_per_part;
use crate::op::rows::narrow::Narrow;
use crate::parallel::Pool;
use smallvec::SmallVec;

/// A blend of planes of one size, with the taps of all dims.
enum Blend<T> {
    /// Elements of several lines are computed together.
    Small(SmallPlanes<T>),
    Lines(PlaneBlend<T>),
}

impl<T: Weight> Blend<T> {
    /// The blend of `count` planes.
    fn new(size: [usize; 3], axes: &[Axis], count: usize) -> Blend<T> {
        let outer: OuterTaps<T> = [0, 1].map(|d| outer_taps(axes[d].taps()));
        if let Some(small) = SmallPlanes::new(size, &outer, &axes[2], count) {
            return Blend::Small(small);
        }
        Blend::Lines(PlaneBlend {
            size,
            outer,
            columns: LineTaps::new(&axes[2], size[2], count * size[0] * size[1]),
            width: axes[2].len(),
        })
    }

    /// Resamples as many planes as fill `out`.
    fn run(&self, x: &[T], out: &mut [T]) {
        match self {
            Blend::Small(planes) => planes.blend(x, out),
            Blend::Lines(planes) => planes.run(x, 0, out),
        }
    }
}

fn outer_taps<T: Weight>(taps: Vec<Taps>) -> OuterLine<T> {
    let converted = |t: &Taps| {
        let taps: SmallVec<[(usize, T); 4]> = t.iter().map(|&(i, w)| (i, T::from_f64(w))).collect();
        let copies = matches!(taps[..], [(_, w)] if w == T::from_f64(1.0));
        (taps, copies)
    };
    taps.iter().map(converted).collect()
}

/// The numbers of elements of a plane of the operand, and of the result.
fn plane_sizes(size: [usize; 3], axes: &[Axis]) -> [usize; 2] {
    [size.iter().product(), axes.iter().map(Axis::len).product()]
}

/// About the number of bytes that a thread could copy while it computes `n` elements: each is a sum of all its taps.
fn cost_of(axes: &[Axis], n: usize) -> usize {
    const BYTES_OF_A_TAP: usize = 8;
    axes.iter().fold(n.saturating_mul(BYTES_OF_A_TAP), |cost, a| {
        cost.saturating_mul(a.most_taps())
    })
}

/// Resamples planes of `size`.
pub(super) fn blend_taps<T: Weight>(x: &[T], size: [usize; 3], axes: &[Axis], out: &mut [T], pool: &Pool) {
    let [plane, n] = plane_sizes(size, axes);
    match Blend::new(size, axes, x.len() / plane) {
        Blend::Small(blend) => {
            let planes = units_per_part(out.len() / n, cost_of(axes, n), pool);
            pool.run_parts(out, planes * n, |i, out| blend.blend(&x[i * planes * plane..], out));
        }
        Blend::Lines(blend) => {
            let width = blend.width;
            let lines = units_per_part(out.len() / width, cost_of(axes, width), pool);
            pool.run_parts(out, lines * width, |i, out| blend.run(x, i * lines, out));
        }
    }
}

/// The number of elements, of operand and result, that are widened at once if planes are small.
const AT_ONCE: usize = 32 << 10;

/// Resamples planes in a wider type. Some planes at a time are widened and rounded, so that they stay in the cache.
pub(super) fn blend_narrow<T: Narrow<Wide: Weight>>(
    x: &[T],
    size: [usize; 3],
    axes: &[Axis],
    out: &mut [T],
    pool: &Pool,
) {
    let [plane, n] = plane_sizes(size, axes);
    let planes = units_per_part(out.len() / n, cost_of(axes, n), pool);
    let some = (AT_ONCE / (plane + n)).clamp(1, planes);
    let blend = Blend::<T::Wide>::new(size, axes, x.len() / plane);
    pool.run_parts(out, planes * n, |i, out| {
        let mut wide = vec![T::Wide::default(); some * plane];
        let mut results = vec![T::Wide::default(); some * n];
        let x = x[i * planes * plane..].chunks(some * plane);
        for (x, out) in x.zip(out.chunks_mut(some * n)) {
            let count = out.len() / n;
            let (wide, results) = (&mut wide[..count * plane], &mut results[..out.len()]);
            T::widen(&x[..wide.len()], wide);
            blend.run(wide, results);
            T::round(results, out);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::rows::vision::resample::ResampleMode;
    use half::bf16;

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
    fn planes_are_the_sums_of_their_elements() {
        use ResampleMode::{Cubic, CubicSmooth, Linear, LinearSmooth};
        let axis = |mode, n: usize, out: usize| Axis::new(mode, n, out, false, None, false);
        let same = Axis::unchanged;
        for (size, axes) in [
            ([4, 5, 20], [same(4), same(5), axis(Linear, 20, 33)]),
            // Longer lines than are blended at once.
            ([1, 3, 900], [same(1), same(3), axis(Linear, 900, 2100)]),
            ([4, 5, 20], [same(4), axis(Linear, 5, 11), axis(LinearSmooth, 20, 7)]),
            (
                [4, 5, 20],
                [axis(Linear, 4, 7), axis(Cubic, 5, 9), axis(Linear, 20, 40)],
            ),
            ([4, 5, 20], [axis(Linear, 4, 3), same(5), same(20)]),
            ([1, 5, 20], [same(1), axis(CubicSmooth, 5, 9), same(20)]),
            // Small planes, together and one by one.
            ([1, 7, 6], [same(1), axis(Linear, 7, 3), axis(Linear, 6, 5)]),
            ([1, 7, 6], [same(1), axis(Cubic, 7, 3), axis(Cubic, 6, 4)]),
            ([1, 7, 6], [same(1), axis(Cubic, 7, 16), axis(Linear, 6, 6)]),
            ([1, 7, 6], [same(1), axis(LinearSmooth, 7, 3), axis(Linear, 6, 5)]),
        ] {
            let n: usize = size.iter().product();
            let x: Vec<f64> = (0..23 * n).map(|i| (i * 37 % 101) as f64).collect();
            let along = [0, 1, 2].map(|d| axes[d].taps());
            let want = by_elements(&x, size, &along);
            for threads in [1, 2] {
                let mut got = vec![0.0; want.len()];
                blend_taps(&x, size, &axes, &mut got, &Pool::new(threads));
                assert!(got == want);
            }
        }
    }

    /// Numbers of planes that are no multiple of those that are widened at once.
    #[test]
    fn planes_of_halves_are_those_of_f32_rounded() {
        let axis = |n, out| Axis::new(ResampleMode::Linear, n, out, false, None, true);
        for (count, size, out) in [
            (700, [1, 7, 6], [3, 5]),
            (3, [1, 90, 101], [180, 51]),
            (19, [1, 40, 33], [20, 70]),
        ] {
            let axes = [Axis::unchanged(1), axis(size[1], out[0]), axis(size[2], out[1])];
            let n: usize = size.iter().product();
            let x: Vec<bf16> = (0..count * n).map(|i| bf16::from_f32((i * 37 % 101) as f32)).collect();
            let wide: Vec<f32> = x.iter().map(|v| v.to_f32()).collect();
            let mut want = vec![0.0; count * out[0] * out[1]];
            blend_taps(&wide, size, &axes, &mut want, &Pool::new(1));
            for threads in [1, 2] {
                let mut got = vec![bf16::ZERO; want.len()];
                blend_narrow(&x, size, &axes, &mut got, &Pool::new(threads));
                assert!(got.iter().zip(&want).all(|(g, w)| *g == bf16::from_f32(*w)));
            }
        }
    }
}
