//! Resizing byte images in integer arithmetic.

use crate::op::rows::fill::units_per_part;
use crate::parallel::Pool;
use crate::tensor::{Tensor, WideLoop, Windows, run_wide};
use smallvec::{SmallVec, smallvec};

/// For one index of the result along a dim: operand indices with weights.
pub(in crate::op::rows) type Taps = SmallVec<[(usize, f64); 4]>;

/// Shorter lines are computed element by element: starting vectors for each of them takes longer.
const SHORT: usize = 16;

/// Interpolates byte images like torch (and Pillow): the last dim first, then the one before it, with a byte image in
/// between. Weights are 16-bit fixed-point numbers with as many fractional bits as the largest weight permits.
pub(in crate::op::rows) fn fixed_point(x: &Tensor, along: &[Vec<Taps>], out: &mut [u8], pool: &Pool) {
    let [h, w] = [x.shape()[2], x.shape()[3]];
    let (rows, columns) = (FixedTaps::new(&along[0]), FixedTaps::new(&along[1]));
    let near = NearTaps::new(&columns, w).filter(|_| columns.taps.len() >= SHORT);
    let plane = rows.taps.len() * columns.taps.len();
    let planes = units_per_part(out.len() / plane, plane, pool);
    let x = x.as_slice::<u8>();
    pool.run_parts(out, planes * plane, |i, out| {
        let mut narrow = vec![0; h * columns.taps.len()];
        let x = x[i * planes * h * w..].chunks_exact(h * w);
        for (x, out) in x.zip(out.chunks_exact_mut(plane)) {
            match &near {
                Some(near) => near.blend_columns(&columns, x, w, &mut narrow),
                None => columns.blend_columns(x, w, &mut narrow),
            }
            rows.blend_rows(&narrow, columns.taps.len(), out);
        }
    });
}

/// Taps with fixed-point weights. Sums fit i32: weights add up to `1 << digits`, at most 2 ** 22, and negative ones are small.
struct FixedTaps {
    taps: Vec<SmallVec<[(usize, i32); 4]>>,
    digits: u32,
    half: i32,
}

impl FixedTaps {
    fn new(taps: &[Taps]) -> FixedTaps {
        let merged: Vec<Taps> = taps.iter().map(merge_taps).collect();
        let largest = merged.iter().flatten().map(|t| t.1).fold(0.0, f64::max);
        let digits = (0..22)
            .find(|d| (0.5 + largest * f64::from(1 << (d + 1))) as i64 >= 1 << 15)
            .unwrap_or(22);
        let whole = |w: f64| (w * f64::from(1 << digits)).round() as i32;
        FixedTaps {
            taps: merged
                .iter()
                .map(|t| t.iter().map(|&(i, w)| (i, whole(w))).collect())
                .collect(),
            digits,
            half: if digits > 0 { 1 << (digits - 1) } else { 0 },
        }
    }

    /// Interpolates each row of `width` bytes.
    fn blend_columns(&self, x: &[u8], width: usize, out: &mut [u8]) {
        for (row, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(self.taps.len())) {
            for (o, taps) in out.iter_mut().zip(&self.taps) {
                let sum = taps.iter().fold(self.half, |s, &(i, w)| s + row[i] as i32 * w);
                *o = (sum >> self.digits).clamp(0, 255) as u8;
            }
        }
    }

    /// Interpolates between rows of `width` bytes.
    fn blend_rows(&self, x: &[u8], width: usize, out: &mut [u8]) {
        if width < SHORT {
            return self.blend_short_rows(x, width, out);
        }
        let mut sums = vec![0; width];
        for (out, taps) in out.chunks_exact_mut(width).zip(&self.taps) {
            sums.fill(self.half);
            for &(i, weight) in taps {
                let row = &x[i * width..][..width];
                run_wide(AddBytes {
                    sums: &mut sums,
                    row,
                    weight,
                });
            }
            run_wide(RoundSums {
                sums: &sums,
                digits: self.digits,
                out,
            });
        }
    }
}

impl FixedTaps {
    /// [`FixedTaps::blend_rows`], element by element.
    fn blend_short_rows(&self, x: &[u8], width: usize, out: &mut [u8]) {
        for (out, taps) in out.chunks_exact_mut(width).zip(&self.taps) {
            for (j, o) in out.iter_mut().enumerate() {
                let term = |&(i, w): &(usize, i32)| x[i * width + j] as i32 * w;
                let sum = taps.iter().map(term).fold(self.half, |s, t| s + t);
                *o = (sum >> self.digits).clamp(0, 255) as u8;
            }
        }
    }
}

/// The taps of a line, all with the same number of terms, so that these are computed in vectors.
struct NearTaps {
    windows: Windows,
    /// The weights, term by term; 0 for terms that an element does not have.
    weights: Vec<Vec<i32>>,
}

impl NearTaps {
    /// For lines of `n` bytes. `None` if there are no instructions for it, or if most elements have taps that are far apart.
    fn new(taps: &FixedTaps, n: usize) -> Option<NearTaps> {
        let terms = taps.taps.iter().map(|t| t.len()).max()?;
        let of_term = |k: usize| {
            taps.taps
                .iter()
                .map(move |t| t.get(k).or(t.first()).map(|&(i, w)| (i, w, k < t.len())))
        };
        let place = |tap: Option<(usize, i32, bool)>| tap.and_then(|t| i32::try_from(t.0).ok());
        let weight = |tap: Option<(usize, i32, bool)>| tap.map_or(0, |(_, w, is_own)| if is_own { w } else { 0 });
        let places: Option<Vec<Vec<i32>>> = (0..terms).map(|k| of_term(k).map(place).collect()).collect();
        Some(NearTaps {
            windows: Windows::new(n, &places?, size_of::<i32>())?,
            weights: (0..terms).map(|k| of_term(k).map(weight).collect()).collect(),
        })
    }

    /// [`FixedTaps::blend_columns`] of these taps.
    fn blend_columns(&self, taps: &FixedTaps, x: &[u8], width: usize, out: &mut [u8]) {
        let (mut wide, mut sums) = (vec![0; width], vec![0; taps.taps.len()]);
        let lines = x.chunks_exact(width).zip(out.chunks_exact_mut(sums.len()));
        for (row, out) in lines {
            run_wide(WidenBytes { row, wide: &mut wide });
            if !self.windows.sum_integers(&wide, &self.weights, taps.half, &mut sums) {
                taps.blend_columns(row, width, out);
                continue;
            }
            run_wide(RoundSums {
                sums: &sums,
                digits: taps.digits,
                out,
            });
        }
    }
}

struct WidenBytes<'a> {
    row: &'a [u8],
    wide: &'a mut [i32],
}

impl WideLoop for WidenBytes<'_> {
    #[inline(always)]
    fn run(self) {
        let n = self.row.len().min(self.wide.len());
        let (row, wide) = (&self.row[..n], &mut self.wide[..n]);
        for k in 0..n {
            wide[k] = row[k].into();
        }
    }
}

struct AddBytes<'a> {
    sums: &'a mut [i32],
    row: &'a [u8],
    weight: i32,
}

impl WideLoop for AddBytes<'_> {
    #[inline(always)]
    fn run(self) {
        let pairs = self.sums.iter_mut().zip(self.row);
        pairs.for_each(|(s, &x)| *s += x as i32 * self.weight);
    }
}

struct RoundSums<'a> {
    sums: &'a [i32],
    digits: u32,
    out: &'a mut [u8],
}

impl WideLoop for RoundSums<'_> {
    #[inline(always)]
    fn run(self) {
        let pairs = self.out.iter_mut().zip(self.sums);
        pairs.for_each(|(o, &s)| *o = (s >> self.digits).clamp(0, 255) as u8);
    }
}

/// Sums the weights of taps with the same index.
fn merge_taps(taps: &Taps) -> Taps {
    let mut out: Taps = smallvec![];
    for &(i, w) in taps {
        match out.iter_mut().find(|t| t.0 == i) {
            Some(t) => t.1 += w,
            None => out.push((i, w)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::rows::vision::resample::ResampleMode;
    use crate::op::rows::vision::resample_axis::Axis;

    #[test]
    fn rows_of_any_length_are_blended() {
        let taps = FixedTaps::new(&Axis::new(ResampleMode::Cubic, 40, 20, false, None, false).taps());
        for width in [1, 5, 15, 16, 33] {
            let x: Vec<u8> = (0..40 * width).map(|i| (i * 89 % 256) as u8).collect();
            let (mut got, mut want) = (vec![0; 20 * width], vec![0; 20 * width]);
            taps.blend_rows(&x, width, &mut got);
            taps.blend_short_rows(&x, width, &mut want);
            assert_eq!(got, want, "{width}");
        }
    }

    /// Lines of bytes are those that the taps give one by one, for all targets.
    #[test]
    fn lines_in_vectors_are_those_of_single_elements() {
        use ResampleMode::{Cubic, CubicSmooth, Linear};
        for (mode, n, m) in [
            (Linear, 50, 85),
            (Cubic, 40, 20),
            (CubicSmooth, 70, 31),
            (Linear, 90, 11),
            (Linear, 1, 7),
        ] {
            let taps = FixedTaps::new(&Axis::new(mode, n, m, false, None, false).taps());
            let x: Vec<u8> = (0..3 * n).map(|i| (i * 97 % 256) as u8).collect();
            let (mut got, mut want) = (vec![0; 3 * m], vec![0; 3 * m]);
            taps.blend_columns(&x, n, &mut want);
            if let Some(near) = NearTaps::new(&taps, n) {
                near.blend_columns(&taps, &x, n, &mut got);
                assert_eq!(got, want, "{mode:?} {n} {m}");
            }
        }
    }
}
