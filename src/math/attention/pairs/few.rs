//! Attention of few queries, as in the generation of text. Packing keys and values would take longer than multiplying them once, so
//! their elements are widened in registers. The weights are not rounded.

use super::{Bf16Attention, HeadOperands, KEYS, KeyBlock, SCORE_ROW, Work};
use crate::math::attention::row::scale;
use crate::math::isa::per_isa;
use crate::math::pairs::pack::widen_row;
use crate::math::scratch;
use crate::math::simd::Bf16;

/// The most queries for which packing keys and values does not pay.
pub(super) const FEW: usize = 6;

/// Rows of f32 and rows of bf16 that are multiplied. Strides are in elements.
struct RowProduct {
    /// Queries, or the weights of keys.
    a: *const f32,
    a_row: usize,
    rows: usize,
    /// Keys, or values.
    b: *const u16,
    b_row: usize,
    keys: usize,
    /// The size of a key or a value.
    size: usize,
    out: *mut f32,
    out_row: usize,
}

/// The scores of `R` queries from `row` on.
#[inline(always)]
unsafe fn score_rows<S: Bf16, const R: usize>(j: &RowProduct, row: usize) {
    let whole = j.size / S::LANES * S::LANES;
    let mut key = 0;
    while key < j.keys {
        // SAFETY: the caller provides the rows.
        unsafe {
            let mut acc = [[S::splat(0.0); 4]; R];
            let mut at = 0;
            while at < j.size {
                let last = (at == whole).then_some(j.size - whole);
                let mut q = [S::splat(0.0); R];
                for r in 0..R {
                    // Zeros follow the queries.
                    q[r] = S::load(j.a.add((row + r) * j.a_row + at));
                }
                for i in 0..4 {
                    // The last keys that are missing are read again.
                    let x = j.b.add((key + i).min(j.keys - 1) * j.b_row + at);
                    let x = widen::<S>(x, last);
                    for r in 0..R {
                        acc[r][i] = S::fma(q[r], x, acc[r][i]);
                    }
                }
                at += S::LANES;
            }
            for r in 0..R {
                let sums = S::sum_lanes_of_four(acc[r]);
                let to = j.out.add((row + r) * j.out_row + key);
                std::ptr::copy_nonoverlapping(sums.as_ptr(), to, 4.min(j.keys - key));
            }
        }
        key += 4;
    }
}

/// A vector of bf16, of which only the first elements are read if their number is given.
#[inline(always)]
unsafe fn widen<S: Bf16>(p: *const u16, first: Option<usize>) -> S::V {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match first {
            Some(n) => S::load_bf16_first(p, n),
            None => S::load_bf16(p),
        }
    }
}

per_isa! {
    /// The dot products of `R` queries, from `row` on, and keys.
    fn score = score_rows<R: usize>(j: &RowProduct, row: usize)
}

/// Adds `C` vectors of weighted values from column `col` on, for `R` rows from `row` on. The vector has `last` elements, if that is given.
#[inline(always)]
unsafe fn value_rows<S: Bf16, const R: usize, const C: usize>(
    j: &RowProduct,
    [row, col]: [usize; 2],
    last: Option<usize>,
) {
    // SAFETY: the caller provides the rows and columns.
    unsafe {
        let mut acc = [[S::splat(0.0); C]; R];
        for r in 0..R {
            for c in 0..C {
                let from = j.out.add((row + r) * j.out_row + col + c * S::LANES);
                acc[r][c] = match last {
                    Some(n) => S::load_first(from, n),
                    None => S::load(from),
                };
            }
        }
        for key in 0..j.keys {
            let (mut x, values) = ([S::splat(0.0); C], j.b.add(key * j.b_row + col));
            for c in 0..C {
                x[c] = widen::<S>(values.add(c * S::LANES), last);
            }
            for r in 0..R {
                let weight = S::splat(*j.a.add((row + r) * j.a_row + key));
                for c in 0..C {
                    acc[r][c] = S::fma(weight, x[c], acc[r][c]);
                }
            }
        }
        for r in 0..R {
            for c in 0..C {
                let to = j.out.add((row + r) * j.out_row + col + c * S::LANES);
                match last {
                    Some(n) => S::store_first(to, n, acc[r][c]),
                    None => S::store(to, acc[r][c]),
                }
            }
        }
    }
}

/// All columns of `R` rows from `row` on.
#[inline(always)]
unsafe fn value_columns<S: Bf16, const R: usize>(j: &RowProduct, row: usize) {
    let mut col = 0;
    // SAFETY: guaranteed by the caller.
    unsafe {
        while col + 4 * S::LANES <= j.size {
            value_rows::<S, R, 4>(j, [row, col], None);
            col += 4 * S::LANES;
        }
        while col + S::LANES <= j.size {
            value_rows::<S, R, 1>(j, [row, col], None);
            col += S::LANES;
        }
        if col < j.size {
            value_rows::<S, R, 1>(j, [row, col], Some(j.size - col));
        }
    }
}

per_isa! {
    /// Adds the sums of weighted values to the result, for `R` rows from `row` on.
    fn add_values = value_columns<R: usize>(j: &RowProduct, row: usize)
}

impl RowProduct {
    /// Calls `two` for pairs of rows, and `one` for the last one if their number is odd.
    ///
    /// # Safety
    /// As for the functions.
    unsafe fn run(&self, two: unsafe fn(&RowProduct, usize), one: unsafe fn(&RowProduct, usize)) {
        for row in (0..self.rows).step_by(2) {
            let f = if row + 1 < self.rows { two } else { one };
            // SAFETY: guaranteed by the caller.
            unsafe { f(self, row) };
        }
    }
}

impl Bf16Attention {
    /// Whether the queries are few.
    pub(super) fn has_few_queries(&self) -> bool {
        // Not the number in a range: results must not depend on the number of threads.
        self.desc.queries <= FEW
    }

    /// [`Bf16Attention::run_range`] for few queries: `n` of one head, from `q0` on, which see the first `seen` keys.
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn run_few(
        &self,
        h: &HeadOperands<u16>,
        [q0, n, seen]: [usize; 3],
        state: [*mut f32; 3],
        w: &mut Work,
    ) {
        let (d, isa) = (&self.desc, self.kernels.isa);
        let width = d.size.next_multiple_of(16);
        let mut queries = scratch::take_buffer(n * width);
        queries.fill(0.0);
        w.sums[..n * d.value_size].fill(0.0);
        // SAFETY: guaranteed by the caller; the buffers hold the rows.
        unsafe {
            for r in 0..n {
                widen_row(isa)(h.q.add((q0 + r) * d.q[2]), d.size, queries.as_mut_ptr().add(r * width));
            }
            for first in (0..seen).step_by(KEYS) {
                let block = KeyBlock {
                    first,
                    count: KEYS.min(seen - first),
                };
                let [scored, weighted] = self.few_products(h, block, (queries.as_ptr(), width, n), w);
                scored.run(score::<2>(isa), score::<1>(isa));
                self.weigh_rows(h, block, q0, n, scored.out, state);
                for r in (0..n).filter(|_| first > 0) {
                    scale(isa)(weighted.out.add(r * d.value_size), d.value_size, *state[2].add(r));
                }
                weighted.run(add_values::<2>(isa), add_values::<1>(isa));
            }
        }
    }

    /// The product of `n` widened queries, which are `width` elements apart, with a block of keys, and that of its results with the values.
    fn few_products(
        &self,
        h: &HeadOperands<u16>,
        b: KeyBlock,
        (queries, width, n): (*const f32, usize, usize),
        w: &mut Work,
    ) -> [RowProduct; 2] {
        let d = &self.desc;
        let scores = RowProduct {
            a: queries,
            a_row: width,
            rows: n,
            b: h.k.wrapping_add(b.first * d.k[2]),
            b_row: d.k[2],
            keys: b.count,
            size: d.size,
            out: w.scores.as_mut_ptr(),
            out_row: SCORE_ROW,
        };
        let values = RowProduct {
            a: scores.out,
            a_row: SCORE_ROW,
            b: h.v.wrapping_add(b.first * d.v[2]),
            b_row: d.v[2],
            size: d.value_size,
            out: w.sums.as_mut_ptr(),
            out_row: d.value_size,
            ..scores
        };
        [scores, values]
    }
}
