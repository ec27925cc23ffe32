//! f64 attention. A block of queries of one head has scores with all keys at once: the products, in [`lanes`](crate::math::lanes), then
//! take little time beside the exponentials, and no running softmax is needed.

use super::heads::HeadOperands;
use crate::math::contract::{Attention, AttentionArgs, AttentionMask, AttentionPlan};
use crate::math::functions;
use crate::math::lanes::{Product, ProductMethod, StridedColumns, multiply_by};
use crate::math::scratch::{self, SharedPtr};
use crate::parallel::Pool;
use crate::target::Isa;
use crate::tensor::{WideLoop, run_wide};
use crate::types::DType;
use std::ptr::{null, null_mut};

/// The maximum number of queries in a block.
const QUERIES: usize = 64;
/// The maximum number of scores of a block of several queries: half of a 1 MB L2 cache.
const SCORES: usize = 64 << 10;
/// The number of partial sums of a row, which does not depend on the machine.
const PARTS: usize = 16;

/// A plan of an f64 attention.
pub(super) struct DoubleAttention {
    desc: Attention,
    isa: Isa,
    /// The number of queries in a block. It does not depend on the number of threads, because the order of sums depends on it.
    block: usize,
    /// How scores and weighted sums are computed.
    methods: [ProductMethod; 2],
}

impl DoubleAttention {
    /// Plans `desc`, whose extents were already checked.
    pub(super) fn new(isa: Isa, desc: &Attention) -> DoubleAttention {
        let d = desc;
        let block = (SCORES / d.keys.max(1)).clamp(1, QUERIES).min(d.queries.max(1));
        let plan = DoubleAttention {
            methods: [ProductMethod::Packed; 2],
            desc: desc.clone(),
            isa,
            block,
        };
        let (scores, keys) = plan.score_product(null(), null(), [block, d.keys], null_mut());
        let (weighted, values) = plan.value_product(null(), null(), [block, d.keys], null_mut());
        DoubleAttention {
            methods: [
                ProductMethod::for_product(isa, &scores, &keys),
                ProductMethod::for_product(isa, &weighted, &values),
            ],
            ..plan
        }
    }

    /// The product of some queries with some keys, whose scores are rows of as many elements as there are keys.
    fn score_product(
        &self,
        queries: *const f64,
        keys: *const f64,
        [rows, seen]: [usize; 2],
        scores: *mut f64,
    ) -> (Product<f64>, StridedColumns<f64>) {
        let d = &self.desc;
        let product = Product {
            m: rows,
            n: seen,
            k: d.size,
            a: queries,
            a_strides: [d.q[2], 1],
            c: scores,
            c_row: d.keys,
            add: false,
        };
        let columns = StridedColumns {
            start: keys,
            strides: [1, d.k[2]],
        };
        (product, columns)
    }

    /// The product of the weights of some keys, in rows for each query, with the values of these keys.
    fn value_product(
        &self,
        weights: *const f64,
        values: *const f64,
        [rows, seen]: [usize; 2],
        out: *mut f64,
    ) -> (Product<f64>, StridedColumns<f64>) {
        let d = &self.desc;
        let product = Product {
            m: rows,
            n: d.value_size,
            k: seen,
            a: weights,
            a_strides: [d.keys, 1],
            c: out,
            c_row: d.out[2],
            add: false,
        };
        let columns = StridedColumns {
            start: values,
            strides: [d.v[2], 1],
        };
        (product, columns)
    }

    /// Computes the queries `q0..q1`.
    ///
    /// # Safety
    /// The operands are valid, `scores` has a row of `keys` elements for each query, and no other thread writes these results.
    unsafe fn run_block(&self, h: &HeadOperands<f64>, [q0, q1]: [usize; 2], scores: &mut [f64]) {
        let (d, rows) = (&self.desc, q1 - q0);
        let seen = d.visible_keys(q1 - 1);
        let (product, keys) = self.score_product(h.q.wrapping_add(q0 * d.q[2]), h.k, [rows, seen], scores.as_mut_ptr());
        let mut sums = [0.0; QUERIES];
        // SAFETY: guaranteed by the caller.
        unsafe {
            multiply_by(self.isa, self.methods[0], &product, keys);
            for (r, sum) in sums.iter_mut().enumerate().take(rows) {
                let row = &mut scores[r * d.keys..][..seen];
                self.weigh_row(h, q0 + r, row, sum);
            }
            let out = h.out.wrapping_add(q0 * d.out[2]);
            let (product, values) = self.value_product(scores.as_ptr(), h.v, [rows, seen], out);
            multiply_by(self.isa, self.methods[1], &product, values);
            for (r, &sum) in sums.iter().enumerate().take(rows) {
                let out = std::slice::from_raw_parts_mut(h.out.add((q0 + r) * d.out[2]), d.value_size);
                out.iter_mut()
                    .for_each(|y| *y = if sum == 0.0 { d.of_masked() } else { *y / sum });
            }
        }
    }

    /// Replaces the products of a query with the keys by the weights of the keys, and writes the sum of these. Keys that the query does
    /// not see have weight 0.
    ///
    /// # Safety
    /// The masks have the query and the keys.
    unsafe fn weigh_row(&self, h: &HeadOperands<f64>, query: usize, row: &mut [f64], sum: &mut f64) {
        let (visible, hidden) = row.split_at_mut(self.desc.visible_keys(query).min(row.len()));
        visible.iter_mut().for_each(|x| *x *= self.desc.scale);
        for mask in h.masks.iter().flatten() {
            // SAFETY: guaranteed by the caller.
            unsafe { add_mask(mask, query, visible) };
        }
        hidden.fill(0.0);
        run_wide(Softmax { row: visible, sum });
    }
}

/// Adds the values of a mask to the scores of a query.
///
/// # Safety
/// The mask has the query and the keys.
unsafe fn add_mask(&(m, data): &(AttentionMask, *const u8), query: usize, scores: &mut [f64]) {
    for (key, x) in scores.iter_mut().enumerate() {
        let at = query * m.strides[2] + key * m.strides[3];
        // SAFETY: guaranteed by the caller.
        unsafe {
            match m.dtype {
                DType::B8 if *data.add(at) == 0 => *x = f64::NEG_INFINITY,
                DType::B8 => {}
                _ => *x += *data.cast::<f64>().add(at),
            }
        }
    }
}

/// Replaces the scores of a row by `exp(score - greatest score)`, and writes their sum.
struct Softmax<'a> {
    row: &'a mut [f64],
    sum: &'a mut f64,
}

impl WideLoop for Softmax<'_> {
    #[inline(always)]
    fn run(self) {
        let mut most = [f64::NEG_INFINITY; PARTS];
        for chunk in self.row.chunks(PARTS) {
            for i in 0..chunk.len() {
                most[i] = if chunk[i] > most[i] { chunk[i] } else { most[i] };
            }
        }
        let max = most.into_iter().fold(f64::NEG_INFINITY, f64::max);
        let shift = if max == f64::NEG_INFINITY { 0.0 } else { max };
        let mut sums = [0.0; PARTS];
        let mut chunks = self.row.chunks_exact_mut(PARTS);
        for chunk in &mut chunks {
            for i in 0..PARTS {
                chunk[i] = functions::exp::<f64, true>(chunk[i] - shift);
                sums[i] += chunk[i];
            }
        }
        for (x, sum) in chunks.into_remainder().iter_mut().zip(&mut sums) {
            *x = functions::exp::<f64, true>(*x - shift);
            *sum += *x;
        }
        *self.sum = sums.iter().sum();
    }
}

impl AttentionPlan for DoubleAttention {
    unsafe fn run(&self, pool: &Pool, args: &AttentionArgs) {
        let d = &self.desc;
        let blocks = d.queries.div_ceil(self.block);
        if d.value_size == 0 {
            return;
        }
        let shared = SharedPtr(args as *const AttentionArgs as *mut AttentionArgs);
        pool.run(d.batch * d.heads * blocks, |i| {
            let (head, first) = (i / blocks, i % blocks * self.block);
            let end = (first + self.block).min(d.queries);
            let len = (end - first) * d.keys;
            let mut buffer = scratch::take_buffer(2 * len);
            // SAFETY: guaranteed by the caller; `args` outlives the job and is only read. The buffer is aligned to 64 bytes and holds
            // `len` f64; blocks own different rows of the result.
            unsafe {
                let scores = std::slice::from_raw_parts_mut(buffer.as_mut_ptr().cast::<f64>(), len);
                let operands = HeadOperands::of_head(d, &*shared.get(), head);
                self.run_block(&operands, [first, end], scores);
            }
        });
    }

    fn describe(&self) -> String {
        format!("attention f64 in blocks {}", self.isa)
    }
}
