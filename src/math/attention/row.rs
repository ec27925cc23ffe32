//! The running softmax over rows of scores, vectorised.

use super::masks::MaskRows;
use crate::math::isa::per_isa;
use crate::math::simd::{Bf16, Simd};

/// Rows of scores against one block of keys.
pub(super) struct RowsJob {
    /// The scores, `q · k`, which are replaced by `exp(score - max)`. Kernels read and write whole vectors of the
    /// widest level (16 elements): `width` rounded up.
    pub scores: *mut f32,
    /// The stride from one row of scores to the next.
    pub row: usize,
    /// The number of rows.
    pub rows: usize,
    /// The number of elements of a row to write. Elements after the row's keys become 0.
    pub width: usize,
    /// The number of the block's keys visible to the first row, clamped to `0..=width`.
    pub keys: isize,
    /// The number of additional keys that each row sees compared with the row before.
    pub more: isize,
    /// The factor of the scores.
    pub scale: f32,
    /// Masks that are added to the scaled scores, with as many elements as there are keys.
    pub masks: [MaskRows; 2],
    /// For each row, the greatest score of the earlier blocks; initially minus infinity.
    pub max: *mut f32,
    /// For each row, the sum over the earlier blocks, relative to `max`.
    pub sum: *mut f32,
    /// For each row, the factor that rescales earlier results.
    pub rescale: *mut f32,
}

impl RowsJob {
    /// The number of keys visible to row `r`.
    #[inline(always)]
    fn visible_keys(&self, r: usize) -> usize {
        let n = self.keys.saturating_add(r as isize * self.more);
        n.clamp(0, self.width as isize) as usize
    }
}

/// Rows of a result that are to be divided by their sums.
pub(super) struct EndJob {
    /// The first row.
    pub out: *mut f32,
    /// The stride from one row to the next.
    pub row: usize,
    /// The number of rows.
    pub rows: usize,
    /// The number of elements in a row.
    pub size: usize,
    /// The sums of the weights. A row whose sum is 0 has only masked keys.
    pub sum: *const f32,
    /// The value of the elements of such a row.
    pub masked: f32,
}

/// `exp` for arguments at or below 0, within 1 ULP. NaN stays NaN; results below 2^-126 become 0.
///
/// # Safety
/// The machine supports the level.
#[inline(always)]
pub(crate) unsafe fn exp<S: Simd>(x: S::V) -> S::V {
    // SAFETY: plain arithmetic on vectors.
    unsafe {
        let least = S::splat(-87.33);
        let y = S::max(S::splat(-88.0), x);
        // Adding 1.5 * 2^23 rounds x / ln 2 to an integer.
        let magic = S::splat(12582912.0);
        let n = S::sub(S::fma(y, S::splat(std::f32::consts::LOG2_E), magic), magic);
        let n = S::max(S::splat(-126.0), n);
        // ln 2 in two parts (Cody and Waite).
        let r = S::fma(n, S::splat(-0.693_359_4), y);
        let r = S::fma(n, S::splat(2.121_944_4e-4), r);
        // The minimax polynomial of Cephes' expf.
        let mut p = S::splat(1.987_569_1e-4);
        for c in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_65, 0.5] {
            p = S::fma(p, r, S::splat(c));
        }
        let p = S::add(S::fma(S::mul(r, r), p, r), S::splat(1.0));
        S::select_lt(x, least, S::splat(0.0), S::mul(p, S::pow2(n)))
    }
}

/// The lane numbers.
static LANES: [f32; 16] = [0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.];

/// Scales and masks all rows before computing the exponentials of the first. The other rows hide the latency of a row's
/// maximum.
#[inline(always)]
unsafe fn softmax_body<S: Bf16>(j: &RowsJob) {
    // SAFETY: the caller provides whole vectors of scores for `width`, each mask's keys, and `rows` elements of state.
    unsafe {
        for r in 0..j.rows {
            let (old, max) = (*j.max.add(r), scale_and_mask_row::<S>(j, r));
            *j.rescale.add(r) = if old == f32::NEG_INFINITY {
                0.0
            } else {
                first_lane::<S>(exp::<S>(S::splat(old - score_shift(max))))
            };
            *j.max.add(r) = max;
        }
        for r in 0..j.rows {
            let row = j.scores.add(r * j.row);
            let (keys, by) = (j.visible_keys(r), S::splat(score_shift(*j.max.add(r))));
            let mut sum = S::splat(0.0);
            let mut i = 0;
            while i < keys {
                let x = exp::<S>(S::sub(S::load(row.add(i)), by));
                S::store(row.add(i), x);
                sum = S::add(sum, x);
                i += S::LANES;
            }
            while i < j.width {
                S::store(row.add(i), S::splat(0.0));
                i += S::LANES;
            }
            let earlier = *j.sum.add(r) * *j.rescale.add(r);
            *j.sum.add(r) = earlier + S::sum_lanes(sum);
        }
    }
}

/// The value to subtract from a row's scores. If all keys are masked so far, any finite value works because exp(-inf)
/// is 0.
#[inline(always)]
fn score_shift(max: f32) -> f32 {
    if max == f32::NEG_INFINITY { 0.0 } else { max }
}

/// Scales and masks row `r`. Lanes after its last key become minus infinity. Returns the greatest score so far.
#[inline(always)]
unsafe fn scale_and_mask_row<S: Bf16>(j: &RowsJob, r: usize) -> f32 {
    // SAFETY: as in `softmax_body`.
    unsafe {
        let (row, keys) = (j.scores.add(r * j.row), j.visible_keys(r));
        let scale = S::splat(j.scale);
        let mut max = S::splat(*j.max.add(r));
        let mut i = 0;
        while i < keys {
            let n = (keys - i).min(S::LANES);
            let whole = n == S::LANES;
            let mut x = S::mul(scale, S::load(row.add(i)));
            for mask in &j.masks {
                x = mask.add::<S>(x, [r, i, n]);
            }
            if !whole {
                let nothing = S::splat(f32::NEG_INFINITY);
                x = S::select_lt(S::load(LANES.as_ptr()), S::splat(n as f32), x, nothing);
            }
            S::store(row.add(i), x);
            // `max` ignores a NaN in `x`, but the row's sum becomes NaN anyway.
            max = S::max(x, max);
            i += S::LANES;
        }
        S::max_lane(max)
    }
}

#[inline(always)]
unsafe fn end_body<S: Simd>(j: &EndJob) {
    for r in 0..j.rows {
        // SAFETY: the caller provides the rows and their sums.
        unsafe {
            let (row, sum) = (j.out.add(r * j.row), *j.sum.add(r));
            if sum == 0.0 {
                (0..j.size).for_each(|i| *row.add(i) = j.masked);
            } else {
                scale_body::<S>(row, j.size, 1.0 / sum);
            }
        }
    }
}

#[inline(always)]
unsafe fn first_lane<S: Simd>(v: S::V) -> f32 {
    let mut x = 0.0;
    // SAFETY: one lane is written.
    unsafe { S::store_first(&mut x, 1, v) };
    x
}

#[inline(always)]
unsafe fn scale_body<S: Simd>(row: *mut f32, n: usize, by: f32) {
    // SAFETY: the caller provides `n` elements.
    unsafe {
        let f = S::splat(by);
        let mut i = 0;
        while i + S::LANES <= n {
            S::store(row.add(i), S::mul(f, S::load(row.add(i))));
            i += S::LANES;
        }
        if i < n {
            S::store_first(row.add(i), n - i, S::mul(f, S::load_first(row.add(i), n - i)));
        }
    }
}

per_isa! {
    /// The kernel of one level. Updates `max`, `sum` and `rescale`, and replaces the scores by weights.
    pub(super) fn softmax = softmax_body(j: &RowsJob)
}
per_isa! {
    /// Divides rows by their sums.
    pub(super) fn end = end_body(j: &EndJob)
}
per_isa! {
    /// Multiplies `n` elements by a factor.
    pub(super) fn scale = scale_body(row: *mut f32, n: usize, by: f32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Isa;

    #[test]
    fn exponentials_are_exact_to_one_ulp() {
        for isa in Isa::available() {
            for i in 0..5_000 {
                let x = -(i as f32) * 0.018;
                let mut row = [x; 16];
                let (mut max, mut sum, mut rescale) = (0.0, 0.0, 0.0);
                let j = RowsJob {
                    scores: row.as_mut_ptr(),
                    row: 0,
                    rows: 1,
                    width: 2,
                    keys: 1,
                    more: 0,
                    scale: 1.0,
                    masks: [MaskRows::NONE; 2],
                    max: &mut max,
                    sum: &mut sum,
                    rescale: &mut rescale,
                };
                // SAFETY: the level is available; the row has a vector's elements.
                unsafe { softmax(isa)(&j) };
                let want = (x as f64).exp();
                let want = if x < -87.33 { 0.0 } else { want };
                assert!(
                    (row[0] as f64 - want).abs() <= want * 1.2e-7,
                    "{isa}: exp({x}) = {}",
                    row[0]
                );
                assert_eq!((row[1], max, rescale), (0.0, 0.0, 1.0));
            }
        }
    }
}
