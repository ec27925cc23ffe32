//! The running softmax of one row of scores, on vectors.

use crate::math::isa::per_isa;
use crate::math::simd::Simd;

/// One row of scores of one block of keys.
pub struct RowJob {
    /// The scores, `q · k`; replaced by `exp(score - max)`.
    pub scores: *mut f32,
    /// How many keys the row sees in this block.
    pub keys: usize,
    /// How many elements of `scores` to write: those beyond `keys` become 0.
    pub width: usize,
    /// Factor of the scores.
    pub scale: f32,
    /// Added to the scaled scores, if not null: as many elements as `keys`.
    pub mask: *const f32,
    /// The greatest score of the earlier blocks, minus infinity at first.
    pub max: f32,
    /// The sum of the earlier blocks, relative to `max`.
    pub sum: f32,
    /// What earlier results have to be multiplied by.
    pub rescale: f32,
}

/// `exp` for arguments at or below 0; NaN stays, results below 2^-126 are 0. Within 1 ULP.
///
/// # Safety
/// The machine has the level.
#[inline(always)]
pub unsafe fn exp<S: Simd>(x: S::V) -> S::V {
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

#[inline(always)]
unsafe fn body<S: Simd>(j: &mut RowJob) {
    // SAFETY: the caller gives `width` scores and `keys` elements of mask.
    unsafe {
        let scale = S::splat(j.scale);
        let mut max = S::splat(j.max);
        let mut i = 0;
        while i < j.keys {
            let n = (j.keys - i).min(S::LANES);
            let whole = n == S::LANES;
            let p = j.scores.add(i);
            let mut x = S::mul(scale, if whole { S::load(p) } else { S::load_first(p, n) });
            if !j.mask.is_null() {
                let m = j.mask.add(i);
                x = S::add(x, if whole { S::load(m) } else { S::load_first(m, n) });
            }
            if whole {
                S::store(p, x);
                // `max` with a NaN is the other operand: a row that has one sums to NaN all the same.
                max = S::max(x, max);
            } else {
                S::store_first(p, n, x);
                for l in 0..n {
                    max = S::max(S::splat(*p.add(l)), max);
                }
            }
            i += n;
        }
        let greatest = S::greatest(max);
        // All masked so far: any finite number serves, exp(-inf) is 0.
        let shift = if greatest == f32::NEG_INFINITY { 0.0 } else { greatest };
        j.rescale = if j.max == f32::NEG_INFINITY {
            0.0
        } else {
            first::<S>(exp::<S>(S::splat(j.max - shift)))
        };
        let mut sum = S::splat(0.0);
        let mut last = 0.0;
        let v = S::splat(shift);
        i = 0;
        while i < j.keys {
            let n = (j.keys - i).min(S::LANES);
            let p = j.scores.add(i);
            if n == S::LANES {
                let x = exp::<S>(S::sub(S::load(p), v));
                S::store(p, x);
                sum = S::add(sum, x);
            } else {
                S::store_first(p, n, exp::<S>(S::sub(S::load_first(p, n), v)));
                for l in 0..n {
                    last += *p.add(l);
                }
            }
            i += n;
        }
        for i in j.keys..j.width {
            *j.scores.add(i) = 0.0;
        }
        j.sum = j.sum * j.rescale + S::sum(sum) + last;
        j.max = greatest;
    }
}

#[inline(always)]
unsafe fn first<S: Simd>(v: S::V) -> f32 {
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
    pub fn softmax = body(j: &mut RowJob)
}
per_isa! {
    /// Multiplies `n` elements by a number.
    pub fn scale = scale_body(row: *mut f32, n: usize, by: f32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::isa::Isa;

    #[test]
    fn exponentials_are_exact_to_one_ulp() {
        for isa in Isa::available() {
            for i in 0..5_000 {
                let x = -(i as f32) * 0.018;
                let mut row = [x, 0.0];
                let mut j = RowJob {
                    scores: row.as_mut_ptr(),
                    keys: 1,
                    width: 2,
                    scale: 1.0,
                    mask: std::ptr::null(),
                    max: 0.0,
                    sum: 0.0,
                    rescale: 0.0,
                };
                // SAFETY: the level is available; the row has two elements.
                unsafe { softmax(isa)(&mut j) };
                let want = (x as f64).exp();
                let want = if x < -87.33 { 0.0 } else { want };
                assert!(
                    (row[0] as f64 - want).abs() <= want * 1.2e-7,
                    "{isa}: exp({x}) = {}",
                    row[0]
                );
                assert_eq!((row[1], j.max, j.rescale), (0.0, 0.0, 1.0));
            }
        }
    }
}
