//! Pools of many small planes: a vector holds an element of each of several planes, so that all windows are vector code, whatever their sizes.

use super::planes::Divisor;
use super::window::{Planes, PoolWindow};
use crate::op::rows::dense::Number;
use crate::tensor::WideLoop;

/// The number of planes that are pooled at once.
pub(super) const LANES: usize = 16;

/// Larger planes would not stay in the cache, and have rows that are long enough for vectors.
const LARGEST: usize = 2048;

impl Planes {
    /// How many of `count` planes are pooled in lanes; the others are pooled one by one.
    pub(super) fn in_lanes(&self, count: usize) -> usize {
        match self.is_small() {
            true => count / LANES * LANES,
            false => 0,
        }
    }

    /// Whether planes are pooled in lanes where there are enough of them. Long windows are vector code without that.
    pub(super) fn is_small(&self) -> bool {
        self.plane() <= LARGEST && !self.has_long_windows()
    }

    /// Whether the rows of all windows have at least as many elements as a vector.
    pub(super) fn has_long_windows(&self) -> bool {
        let is_long = |w: &PoolWindow| w.step == 1 && w.end >= w.start + LANES;
        self.windows[2].iter().all(is_long)
    }

    /// The windows of element `o` of a result's plane.
    #[inline(always)]
    fn windows_of(&self, o: usize) -> [&PoolWindow; 3] {
        let [depths, heights, widths] = &self.windows;
        let line = o / widths.len();
        [
            &depths[line / heights.len()],
            &heights[line % heights.len()],
            &widths[o % widths.len()],
        ]
    }
}

/// Copies the planes of a group to lanes.
#[inline(always)]
fn load_lanes<T: Number>(x: &[T], block: &mut [[T; LANES]]) {
    let n = block.len();
    for lane in 0..LANES {
        let plane = &x[lane * n..][..n];
        for k in 0..n {
            block[k][lane] = plane[k];
        }
    }
}

/// The sums of a window's elements, in order.
// Loops without closures, which would not be compiled for wide vectors.
#[inline(always)]
fn sum_window<T: Number>(block: &[[T; LANES]], size: [usize; 3], window: [&PoolWindow; 3]) -> [T; LANES] {
    let [depth, height, width] = window;
    let mut sums = [T::default(); LANES];
    for i in depth.start..depth.end {
        for j in height.start..height.end {
            let at = (i * size[1] + j) * size[2];
            for k in width.start..width.end {
                let v = &block[at + k];
                for lane in 0..LANES {
                    sums[lane] = sums[lane].add(v[lane]);
                }
            }
        }
    }
    sums
}

/// The maxima of a window's elements, and their places in their plane.
#[inline(always)]
fn largest_of_window<T: Number>(
    block: &[[T; LANES]],
    size: [usize; 3],
    window: [&PoolWindow; 3],
) -> ([T; LANES], [i32; LANES]) {
    let [depth, height, width] = window;
    let first = (depth.start * size[1] + height.start) * size[2] + width.start;
    let (mut best, mut place) = ([T::LOWEST; LANES], [first as i32; LANES]);
    let mut i = depth.start;
    while i < depth.end {
        let mut j = height.start;
        while j < height.end {
            let mut k = width.start;
            while k < width.end {
                let at = (i * size[1] + j) * size[2] + k;
                let v = &block[at];
                for lane in 0..LANES {
                    let beats = v[lane].beats(best[lane]);
                    best[lane] = if beats { v[lane] } else { best[lane] };
                    place[lane] = if beats { at as i32 } else { place[lane] };
                }
                k += width.step;
            }
            j += height.step;
        }
        i += depth.step;
    }
    (best, place)
}

/// The means of whole groups of planes.
pub(super) struct MeanLanes<'a, T> {
    pub planes: &'a Planes,
    pub divisor: Divisor,
    pub x: &'a [T],
    pub out: &'a mut [T],
}

impl<T: Number> WideLoop for MeanLanes<'_, T> {
    #[inline(always)]
    fn run(self) {
        // A block for large planes would take long to clear.
        if self.x.is_empty() {
            return;
        }
        let (p, n) = (self.planes, self.planes.out_plane());
        let mut block = vec![[T::default(); LANES]; p.plane()];
        let groups = self.x.chunks_exact(LANES * p.plane());
        for (x, out) in groups.zip(self.out.chunks_exact_mut(LANES * n)) {
            load_lanes(x, &mut block);
            for o in 0..n {
                let window = p.windows_of(o);
                let mut sums = sum_window(&block, p.size, window);
                self.divisor.divide_all(&mut sums, window);
                for lane in 0..LANES {
                    out[lane * n + o] = sums[lane];
                }
            }
        }
    }
}

/// The maxima of whole groups of planes, and their places.
pub(super) struct MaxLanes<'a, T> {
    pub planes: &'a Planes,
    pub x: &'a [T],
    pub out: &'a mut [T],
    pub places: &'a mut [i64],
}

impl<T: Number> WideLoop for MaxLanes<'_, T> {
    #[inline(always)]
    fn run(self) {
        // A block for large planes would take long to clear.
        if self.x.is_empty() {
            return;
        }
        let (p, n) = (self.planes, self.planes.out_plane());
        let mut block = vec![[T::default(); LANES]; p.plane()];
        let groups = self.x.chunks_exact(LANES * p.plane());
        let outs = self.out.chunks_exact_mut(LANES * n);
        for ((x, out), places) in groups.zip(outs).zip(self.places.chunks_exact_mut(LANES * n)) {
            load_lanes(x, &mut block);
            for o in 0..n {
                let (best, place) = largest_of_window(&block, p.size, p.windows_of(o));
                for lane in 0..LANES {
                    out[lane * n + o] = best[lane];
                    places[lane * n + o] = i64::from(place[lane]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::rows::fill::fill_new;
    use crate::op::{Call, Meaning, by_name};
    use crate::tensor::{Scalar, SplitMix, Tensor};
    use crate::types::Val;

    fn pool(name: &str, x: &Tensor, sizes: &[i64]) -> Vec<Tensor> {
        let op = by_name(name).expect("a row");
        let mut args = vec![Val::Leaf(x.clone())];
        args.extend(sizes.iter().map(|&n| Val::List(vec![Val::int(n); 2])));
        if name.starts_with("max") {
            args.push(Val::List(vec![Val::int(1); 2]));
        }
        if sizes.len() > 1 {
            args.push(Val::Bool(false));
        }
        if name.starts_with("avg") {
            args.extend([Val::Bool(false), Val::None]);
        }
        let Meaning::Fill(fill) = op.meaning else {
            panic!("not a fill")
        };
        let out = fill_new(&Call { op, args }, fill).expect("a result");
        out.leaves().into_iter().cloned().collect()
    }

    #[test]
    fn planes_in_lanes_have_the_results_of_single_planes() {
        let mut random = SplitMix::new(29);
        let values = [1.0f32, 0.0, -0.0, 3.5, -2.25, f32::NAN, f32::NEG_INFINITY, 0.1, 7.7];
        let (count, h, w) = (LANES * 2 + 3, 7, 9);
        let x: Vec<f32> = (0..count * h * w).map(|_| random.pick(&values)).collect();
        let all = Tensor::from_slice(&[count, h, w], &x);
        let cases: [(&str, &[i64]); 6] = [
            ("max_pool2d_with_indices", &[3, 2, 1]),
            ("max_pool2d_with_indices", &[5, 1, 2]),
            ("avg_pool2d", &[3, 2, 1]),
            ("avg_pool2d", &[2, 2, 0]),
            ("adaptive_avg_pool2d", &[4]),
            ("adaptive_max_pool2d_with_indices", &[2]),
        ];
        for (name, sizes) in cases {
            let together = pool(name, &all, sizes);
            for (i, plane) in x.chunks_exact(h * w).enumerate() {
                let alone = pool(name, &Tensor::from_slice(&[1, h, w], plane), sizes);
                for (a, b) in together.iter().zip(&alone) {
                    // The bits of NaN are not those of a single plane.
                    let bits = |t: &Tensor, i| Some(t.get(i)).filter(|v| !v.to_f64().is_nan()).map(Scalar::bits);
                    let n = b.numel();
                    (0..n).for_each(|k| assert_eq!(bits(a, i * n + k), bits(b, k), "{name} {sizes:?}"));
                }
            }
        }
    }
}
