//! The running softmax of rows of scores, on vectors.

use crate::math::isa::per_isa;
use crate::math::simd::Simd;

/// Some rows of scores of one block of keys.
pub(super) struct RowsJob {
    /// The scores, `q · k`; replaced by `exp(score - max)`. Whole vectors of the widest level (16 elements) are read and
    /// written: `width` rounded up.
    pub scores: *mut f32,
    /// From one row of scores to the next.
    pub row: usize,
    /// How many rows.
    pub rows: usize,
    /// How many elements of a row to write: those beyond its keys become 0.
    pub width: usize,
    /// How many keys the first row sees of this block, if it is more than none and at most `width`.
    pub keys: isize,
    /// How many more each row sees than the one before.
    pub more: isize,
    /// Factor of the scores.
    pub scale: f32,
    /// Added to the scaled scores one after the other, if not null: as many elements as there are keys, and the distance from
    /// one row to the next.
    pub masks: [(*const f32, usize); 2],
    /// For each row the greatest score of the earlier blocks, minus infinity at first.
    pub max: *mut f32,
    /// For each row the sum of the earlier blocks, relative to `max`.
    pub sum: *mut f32,
    /// For each row what earlier results have to be multiplied by.
    pub rescale: *mut f32,
}

impl RowsJob {
    /// How many keys row `r` sees.
    #[inline(always)]
    fn visible_keys(&self, r: usize) -> usize {
        let n = self.keys.saturating_add(r as isize * self.more);
        n.clamp(0, self.width as isize) as usize
    }
}

/// The rows of a result that are to be divided by their sums.
pub(super) struct EndJob {
    /// The first row.
    pub out: *mut f32,
    /// From one row to the next.
    pub row: usize,
    /// How many rows.
    pub rows: usize,
    /// Elements of a row.
    pub size: usize,
    /// The sums of the weights; a row whose weights are all 0 has only masked keys.
    pub sum: *const f32,
    /// What such a row becomes.
    pub masked: f32,
}

/// `exp` for arguments at or below 0; NaN stays, results below 2^-126 are 0. Within 1 ULP.
///
/// # Safety
/// The machine has the level.
#[inline(always)]
pub(crate) unsafe fn exp<S: Simd>(x: S::V) -> S::V {
    // SAFETY: plain arithmetic on vectors.
    unsafe {
        let least = S::splat(-87.33);
        let y = S::max(S::splat(-88.0), x);
        // Round x / ln 2 by adding 1.5 * 2^23.
        let magic = S::splat(12582912.0);
        let n = S::sub(S::fma(y, S::splat(std::f32::consts::LOG2_E), magic), magic);
        let n = S::max(S::splat(-126.0), n);
        // ln 2 in two parts (Cody and Waite).
        let r = S::fma(n, S::splat(-0.693_359_4), y);
        let r = S::fma(n, S::splat(2.121_944_4e-4), r);
        // Minimax polynomial of Cephes' expf.
        let mut p = S::splat(1.987_569_1e-4);
        for c in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_65, 0.5] {
            p = S::fma(p, r, S::splat(c));
        }
        let p = S::add(S::fma(S::mul(r, r), p, r), S::splat(1.0));
        S::select_lt(x, least, S::splat(0.0), S::mul(p, S::pow2(n)))
    }
}

/// The numbers of lanes.
static LANES: [f32; 16] = [0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.];

/// All rows are scaled and masked before the exponentials of the first are taken: what a row's greatest score waits for,
/// other rows fill.
#[inline(always)]
unsafe fn softmax_body<S: Simd>(j: &RowsJob) {
    // SAFETY: the caller gives whole vectors of scores for `width`, each mask's keys, and `rows` elements of state.
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

/// What is taken off the scores of a row: if all are masked so far any finite number serves, exp(-inf) is 0.
#[inline(always)]
fn score_shift(max: f32) -> f32 {
    if max == f32::NEG_INFINITY { 0.0 } else { max }
}

/// Scales and masks row `r`; lanes after its last key become minus infinity. Gives the greatest score so far.
#[inline(always)]
unsafe fn scale_and_mask_row<S: Simd>(j: &RowsJob, r: usize) -> f32 {
    // SAFETY: as in `body`.
    unsafe {
        let (row, keys) = (j.scores.add(r * j.row), j.visible_keys(r));
        let masks = j.masks.map(|(m, step)| if m.is_null() { m } else { m.add(r * step) });
        let scale = S::splat(j.scale);
        let mut max = S::splat(*j.max.add(r));
        let mut i = 0;
        while i < keys {
            let n = (keys - i).min(S::LANES);
            let whole = n == S::LANES;
            let mut x = S::mul(scale, S::load(row.add(i)));
            for mask in masks {
                if !mask.is_null() {
                    let m = mask.add(i);
                    x = S::add(x, if whole { S::load(m) } else { S::load_first(m, n) });
                }
            }
            if !whole {
                let nothing = S::splat(f32::NEG_INFINITY);
                x = S::select_lt(S::load(LANES.as_ptr()), S::splat(n as f32), x, nothing);
            }
            S::store(row.add(i), x);
            // `max` with a NaN is the other operand: a row that has one sums to NaN all the same.
            max = S::max(x, max);
            i += S::LANES;
        }
        S::max_lane(max)
    }
}

#[inline(always)]
unsafe fn end_body<S: Simd>(j: &EndJob) {
    for r in 0..j.rows {
        // SAFETY: the caller gives the rows and their sums.
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
    // SAFETY: the caller gives `n` elements.
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
    /// The kernel of one level: updates `max`, `sum` and `rescale`, and turns the scores into weights.
    pub(super) fn softmax = softmax_body(j: &RowsJob)
}
per_isa! {
    /// Divides rows by their sums.
    pub(super) fn end = end_body(j: &EndJob)
}
per_isa! {
    /// Multiplies `n` elements by a number.
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
                    masks: [(std::ptr::null(), 0); 2],
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
