//! Attention of bf16, with both products as blocks of pairs (see [`pairs`](crate::math::pairs)).
//!
//! The loops are those of [`blocks`](super::blocks). Scores, the running softmax and the weighted sums are f32. Weights are
//! rounded to bf16 for the second product only, as in torch's kernel; the sum that divides them is of the unrounded ones. Few queries
//! are multiplied with keys and values where these are ([`few`]).

mod few;
mod products;

use self::products::PanelProduct;
use super::heads::{HeadOperands, RangeRules, ScoreRows, for_each_range};
use super::masks::spread_rows;
use super::row::{EndJob, end, scale};
use crate::math::contract::{Attention, AttentionArgs, AttentionPlan};
use crate::math::pairs::pack::{Source, narrow_row, pack_row, packed_row};
use crate::math::pairs::{COLS, PairBlocks, PairKernels, padded_run};
use crate::math::scratch::{self, Scratch};
use crate::math::tile::Tiles;
use crate::parallel::Pool;

/// The number of keys in a block.
const KEYS: usize = 256;
/// The stride between rows of scores. It is not a multiple of a power of two, so that rows do not share cache sets.
const SCORE_ROW: usize = KEYS + 16;
/// The minimum number of queries that pays for packing the keys again.
const RANGE: usize = 128;

/// A plan of a bf16 attention.
pub(super) struct Bf16Attention {
    desc: Attention,
    kernels: PairKernels,
}

/// The working memory of one thread.
struct Work {
    blocks: PairBlocks,
    /// The current block of keys and values, as panels of pairs.
    keys: Scratch,
    values: Scratch,
    /// The queries, if they are not read in place.
    queries: Scratch,
    /// The scores of a block of queries, followed by rows of masks.
    scores: Scratch,
    /// The weights of a block of queries as rows of a product.
    weights: Scratch,
    /// The weighted sums of all queries.
    sums: Scratch,
    /// For each query: the greatest score, the sum of weights, and the factor that rescales earlier results.
    state: Scratch,
}

/// A block of keys.
#[derive(Clone, Copy)]
struct KeyBlock {
    first: usize,
    count: usize,
}

/// Rows of an operand: the first, and the stride in elements.
#[derive(Clone, Copy)]
struct Rows {
    first: *const u8,
    row: usize,
}

impl Bf16Attention {
    /// Plans `desc`, whose extents were already checked.
    pub(super) fn new(kernels: PairKernels, desc: &Attention) -> Bf16Attention {
        Bf16Attention {
            desc: desc.clone(),
            kernels,
        }
    }

    /// The maximum number of queries in a block.
    fn block_rows(&self) -> usize {
        2 * self.kernels.rows
    }

    /// Whether products read queries where they are.
    fn queries_in_place(&self) -> bool {
        let d = &self.desc;
        let aligned = d.q.iter().all(|s| s.is_multiple_of(32));
        !self.kernels.widens_rows() && d.size == padded_run(d.size) && aligned
    }

    fn alloc_work(&self, rows: usize) -> Work {
        let (d, size) = (&self.desc, self.kernels.row_element());
        let panels = |n: usize, depth: usize| n.div_ceil(COLS) * COLS * padded_run(depth) / 2;
        let row = packed_row(padded_run(d.size) * size) / 4;
        Work {
            blocks: self.kernels.begin(),
            keys: scratch::take_buffer(panels(KEYS, d.size)),
            values: scratch::take_buffer(panels(d.value_size, KEYS)),
            queries: scratch::take_buffer(if self.queries_in_place() { 0 } else { rows * row }),
            scores: scratch::take_buffer((1 + spread_rows(d)) * self.block_rows() * SCORE_ROW),
            weights: scratch::take_buffer(self.block_rows() * packed_row(KEYS * size) / 4),
            sums: scratch::take_buffer(rows * d.value_size),
            state: scratch::take_buffer(3 * rows),
        }
    }

    /// Computes queries `q0..q1` of one head.
    ///
    /// # Safety
    /// The head's operands are valid. No other thread writes these rows. The working memory suffices for this many
    /// queries.
    unsafe fn run_range(&self, h: &HeadOperands<u16>, q0: usize, q1: usize, w: &mut Work) {
        let (d, n) = (&self.desc, q1 - q0);
        let state = [0, 1, 2].map(|i| w.state.as_mut_ptr().wrapping_add(i * n));
        w.state[..n].fill(f32::NEG_INFINITY);
        w.state[n..2 * n].fill(0.0);
        // SAFETY: guaranteed by the caller; the buffers hold the rows.
        unsafe {
            // A causal row sees no key after the last row's.
            let seen = d.keys_to_read(&h.masks[1], q0..q1);
            if seen == 0 {
                w.sums[..n * d.value_size].fill(0.0);
            }
            if self.has_few_queries() {
                self.run_few(h, [q0, n, seen], state, w);
                return self.write_rows(h, q0, n, state[1], w);
            }
            let queries = self.query_rows(h, q0, n, w);
            let blocks = Tiles::new(n, self.block_rows());
            for first in (0..seen).step_by(KEYS) {
                let block = KeyBlock {
                    first,
                    count: KEYS.min(seen - first),
                };
                self.pack_key_block(h, block, w);
                for t in 0..blocks.count() {
                    let (r, rows) = (blocks.start(t), blocks.start(t + 1) - blocks.start(t));
                    if d.visible_keys(q0 + r + rows - 1) > first {
                        let state = state.map(|s| s.add(r));
                        self.attend_rows(h, block, queries, [q0, r, rows], state, w);
                    }
                }
            }
            self.write_rows(h, q0, n, state[1], w);
        }
    }

    /// Divides the sums of `n` rows by `sum`, the sums of their weights, and writes them to the result from query `q0` on.
    ///
    /// # Safety
    /// As for [`Bf16Attention::run_range`].
    unsafe fn write_rows(&self, h: &HeadOperands<u16>, q0: usize, n: usize, sum: *const f32, w: &mut Work) {
        let d = &self.desc;
        let job = EndJob {
            out: w.sums.as_mut_ptr(),
            row: d.value_size,
            rows: n,
            size: d.value_size,
            sum,
            masked: d.of_masked() as f32,
        };
        // SAFETY: guaranteed by the caller.
        unsafe {
            end(self.kernels.isa)(&job);
            for r in 0..n {
                let out = h.out.add((q0 + r) * d.out[2]);
                narrow_row(self.kernels.isa)(w.sums.as_ptr().add(r * d.value_size), d.value_size, out);
            }
        }
    }

    /// Processes `n` rows, from row `r` of the chunk's on, against one block of keys. `state` holds each row's maximum,
    /// sum and factor.
    ///
    /// # Safety
    /// As for [`Bf16Attention::run_range`].
    unsafe fn attend_rows(
        &self,
        h: &HeadOperands<u16>,
        b: KeyBlock,
        queries: Rows,
        [q0, r, n]: [usize; 3],
        state: [*mut f32; 3],
        w: &mut Work,
    ) {
        let d = &self.desc;
        let (scores, out) = (
            w.scores.as_mut_ptr(),
            w.sums.as_mut_ptr().wrapping_add(r * d.value_size),
        );
        let first = queries.first.wrapping_add(r * queries.row * self.kernels.row_element());
        let score = self.score_product(Rows { first, ..queries }, n, b, w);
        // SAFETY: guaranteed by the caller.
        unsafe {
            self.multiply(&mut w.blocks, &score);
            self.weigh_rows(h, b, q0 + r, n, scores, state);
            let a = self.pack_weights(b, n, out, state[2], w);
            let add_values = PanelProduct {
                a,
                panels: w.values.as_ptr().cast(),
                run: padded_run(b.count),
                cols: d.value_size,
                out,
                out_row: d.value_size,
                // Every row sees a key of the first block.
                adds: b.first > 0,
                ..score
            };
            self.multiply(&mut w.blocks, &add_values);
        }
    }

    /// The product of `n` rows of queries with a block of keys, which becomes their scores.
    fn score_product(&self, queries: Rows, n: usize, b: KeyBlock, w: &mut Work) -> PanelProduct {
        PanelProduct {
            a: queries,
            rows: n,
            panels: w.keys.as_ptr().cast(),
            run: padded_run(self.desc.size),
            cols: b.count,
            out: w.scores.as_mut_ptr(),
            out_row: SCORE_ROW,
            adds: false,
        }
    }

    /// Packs the weights of `n` rows as rows of a product, and scales the rows' earlier results in `out` by `factors`.
    ///
    /// # Safety
    /// As for [`Bf16Attention::attend_rows`].
    unsafe fn pack_weights(&self, b: KeyBlock, n: usize, out: *mut f32, factors: *const f32, w: &mut Work) -> Rows {
        let size = self.desc.value_size;
        let row = packed_row(KEYS * self.kernels.row_element()) / self.kernels.row_element();
        let run = padded_run(b.count);
        let first = w.weights.as_mut_ptr().cast::<u8>();
        for i in 0..n {
            // SAFETY: guaranteed by the caller.
            unsafe {
                let by = *factors.add(i);
                if b.first > 0 && by != 1.0 {
                    scale(self.kernels.isa)(out.add(i * size), size, by);
                }
                let weights = Source::Wide(w.scores.as_mut_ptr().add(i * SCORE_ROW));
                let packed = first.add(i * row * self.kernels.row_element());
                pack_row(&self.kernels, weights, 1, b.count, run, packed);
            }
        }
        Rows { first, row }
    }

    /// Replaces the scores of `n` rows by weights, and updates their `state`.
    ///
    /// # Safety
    /// As for [`Bf16Attention::attend_rows`].
    unsafe fn weigh_rows(
        &self,
        h: &HeadOperands<u16>,
        b: KeyBlock,
        q: usize,
        n: usize,
        s: *mut f32,
        state: [*mut f32; 3],
    ) {
        let rows = ScoreRows {
            scores: s,
            row: SCORE_ROW,
            query: q,
            rows: n,
            key: b.first,
            keys: b.count,
            state,
        };
        let room = s.wrapping_add(self.block_rows() * SCORE_ROW);
        // SAFETY: guaranteed by the caller; the room is after the scores.
        unsafe { rows.weigh(self.kernels.isa, &self.desc, &h.masks, room) };
    }
}

impl AttentionPlan for Bf16Attention {
    unsafe fn run(&self, pool: &Pool, args: &AttentionArgs) {
        let rules = RangeRules {
            least: RANGE,
            groups_heads: true,
        };
        let allocate = |queries| self.alloc_work(queries);
        // SAFETY: guaranteed by the caller; ranges own different rows of the result.
        unsafe {
            for_each_range((&self.desc, args), pool, rules, allocate, |head, [q0, q1], work| {
                self.run_range(head, q0, q1, work)
            })
        };
    }

    fn describe(&self) -> String {
        format!("attention bf16 in blocks {}", self.kernels)
    }
}
