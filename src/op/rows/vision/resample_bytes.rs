//! Resizing byte images in integer arithmetic.

use crate::op::rows::fill::units_per_part;
use crate::parallel::Pool;
use crate::tensor::{Tensor, WideLoop, run_wide};
use smallvec::{SmallVec, smallvec};

/// For one index of the result along a dim: operand indices with weights.
pub(in crate::op::rows) type Taps = SmallVec<[(usize, f64); 4]>;

/// Interpolates byte images like torch (and Pillow): the last dim first, then the one before it, with a byte image in
/// between. Weights are 16-bit fixed-point numbers with as many fractional bits as the largest weight permits.
pub(in crate::op::rows) fn fixed_point(x: &Tensor, along: &[Vec<Taps>], out: &mut [u8], pool: &Pool) {
    let [h, w] = [x.shape()[2], x.shape()[3]];
    let (rows, columns) = (FixedTaps::new(&along[0]), FixedTaps::new(&along[1]));
    let plane = rows.taps.len() * columns.taps.len();
    let planes = units_per_part(out.len() / plane, plane, pool);
    let x = x.as_slice::<u8>();
    pool.run_parts(out, planes * plane, |i, out| {
        let mut narrow = vec![0; h * columns.taps.len()];
        let x = x[i * planes * h * w..].chunks_exact(h * w);
        for (x, out) in x.zip(out.chunks_exact_mut(plane)) {
            columns.blend_columns(x, w, &mut narrow);
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
