//! Attention of bf16, with both products as blocks of pairs (see [`pairs`](crate::math::pairs)).
//!
//! The loops are those of [`blocks`](super::blocks). Scores, the running softmax and the weighted sums are f32. Weights are
//! rounded to bf16 for the second product only, as in torch's kernel; the sum that divides them is of the unrounded ones.

mod products;

use super::row::{EndJob, RowsJob, end, scale, softmax};
use crate::math::contract::{Attention, AttentionArgs, AttentionMask, AttentionPlan};
use crate::math::pairs::pack::{Source, narrow_row, pack_row, packed_row};
use crate::math::pairs::{COLS, PairBlocks, PairKernels, padded_run};
use crate::math::scratch::{self, Scratch, SharedPtr};
use crate::parallel::Pool;
use crate::types::DType;
use half::bf16;

/// The number of keys in a block.
const KEYS: usize = 256;
/// The stride between rows of scores. It is not a multiple of a power of two, so that rows do not share cache sets.
const SCORE_ROW: usize = KEYS + 16;
/// The number of multiply-adds in the smallest chunk worth distributing.
const SMALLEST: f64 = 200e3;
/// The minimum number of queries that pays for packing the keys again.
const RANGE: usize = 128;

/// A plan of a bf16 attention.
pub(super) struct Bf16Attention {
    desc: Attention,
    kernels: PairKernels,
}

/// The operands of one head.
struct HeadOperands {
    q: *const u16,
    k: *const u16,
    v: *const u16,
    /// Bias and mask, starting at the head's first query.
    masks: [Option<(AttentionMask, *const u8)>; 2],
    out: *mut u16,
}

/// The working memory of one thread.
struct Work {
    blocks: PairBlocks,
    /// The current block of keys and values, as panels of pairs.
    keys: Scratch,
    values: Scratch,
    /// The queries, if they are not read in place.
    queries: Scratch,
    /// The scores of a block of queries, followed by one row of each mask.
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
        let row = packed_row(padded_run(d.size)) * size / 4;
        Work {
            blocks: self.kernels.begin(),
            keys: scratch::take_buffer(panels(KEYS, d.size)),
            values: scratch::take_buffer(panels(d.value_size, KEYS)),
            queries: scratch::take_buffer(if self.queries_in_place() { 0 } else { rows * row }),
            scores: scratch::take_buffer((self.block_rows() + 2) * SCORE_ROW),
            weights: scratch::take_buffer(self.block_rows() * packed_row(KEYS) * size / 4),
            sums: scratch::take_buffer(rows * d.value_size),
            state: scratch::take_buffer(3 * rows),
        }
    }

    /// The operands of head `i`, counted over the batch.
    ///
    /// # Safety
    /// `args` is as for [`AttentionPlan::run`].
    unsafe fn head_operands(&self, args: &AttentionArgs, i: usize) -> HeadOperands {
        let d = &self.desc;
        let (b, h) = (i / d.heads, i % d.heads);
        let kv = d.kv_head(h);
        let at = |s: &[usize; 3], h: usize| b * s[0] + h * s[1];
        // SAFETY: the head lies in every operand.
        unsafe {
            HeadOperands {
                q: args.q.cast::<u16>().add(at(&d.q, h)),
                k: args.k.cast::<u16>().add(at(&d.k, kv)),
                v: args.v.cast::<u16>().add(at(&d.v, kv)),
                masks: [(d.bias, args.bias), (d.mask, args.mask)]
                    .map(|(m, data)| m.map(|m| (m, data.add(m.row_offset(b, h, 0) * m.dtype.size())))),
                out: args.out.cast::<u16>().add(at(&d.out, h)),
            }
        }
    }

    /// Computes queries `q0..q1` of one head.
    ///
    /// # Safety
    /// The head's operands are valid. No other thread writes these rows. The working memory suffices for this many
    /// queries.
    unsafe fn run_range(&self, h: &HeadOperands, q0: usize, q1: usize, w: &mut Work) {
        let (d, n) = (&self.desc, q1 - q0);
        let state = [0, 1, 2].map(|i| w.state.as_mut_ptr().wrapping_add(i * n));
        w.state[..n].fill(f32::NEG_INFINITY);
        w.state[n..2 * n].fill(0.0);
        w.sums[..n * d.value_size].fill(0.0);
        // SAFETY: guaranteed by the caller; the buffers hold the rows.
        unsafe {
            let queries = self.query_rows(h, q0, n, w);
            // A causal row sees no key after the last row's.
            let seen = d.keys_to_read(&h.masks[1], q0..q1);
            for first in (0..seen).step_by(KEYS) {
                let block = KeyBlock {
                    first,
                    count: KEYS.min(seen - first),
                };
                self.pack_key_block(h, block, w);
                for r in (0..n).step_by(self.block_rows()) {
                    let rows = self.block_rows().min(n - r);
                    if d.visible_keys(q0 + r + rows - 1) > first {
                        let state = state.map(|s| s.add(r));
                        self.attend_rows(h, block, queries, [q0, r, rows], state, w);
                    }
                }
            }
            let job = EndJob {
                out: w.sums.as_mut_ptr(),
                row: d.value_size,
                rows: n,
                size: d.value_size,
                sum: state[1],
                masked: d.of_masked() as f32,
            };
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
        h: &HeadOperands,
        b: KeyBlock,
        queries: Rows,
        [q0, r, n]: [usize; 3],
        state: [*mut f32; 3],
        w: &mut Work,
    ) {
        let (d, size) = (&self.desc, self.kernels.row_element());
        let scores = w.scores.as_mut_ptr();
        let run = padded_run(b.count);
        let weights = Rows {
            first: w.weights.as_ptr().cast(),
            row: packed_row(KEYS),
        };
        let q = Rows {
            first: queries.first.wrapping_add(r * queries.row * size),
            ..queries
        };
        let out = w.sums.as_mut_ptr().wrapping_add(r * d.value_size);
        // SAFETY: guaranteed by the caller.
        unsafe {
            let keys = (w.keys.as_ptr().cast(), padded_run(d.size));
            self.multiply(&mut w.blocks, q, n, keys, b.count, (scores, SCORE_ROW), false);
            self.weigh_rows(h, b, q0 + r, n, scores, state);
            for i in 0..n {
                let by = *state[2].add(i);
                if b.first > 0 && by != 1.0 {
                    scale(self.kernels.isa)(out.add(i * d.value_size), d.value_size, by);
                }
                let row = w.weights.as_mut_ptr().cast::<u8>().add(i * weights.row * size);
                pack_row(
                    &self.kernels,
                    Source::Wide(scores.add(i * SCORE_ROW)),
                    1,
                    b.count,
                    run,
                    row,
                );
            }
            let values = (w.values.as_ptr().cast(), run);
            self.multiply(
                &mut w.blocks,
                weights,
                n,
                values,
                d.value_size,
                (out, d.value_size),
                true,
            );
        }
    }

    /// Replaces the scores of `n` rows by weights, and updates their `state`.
    ///
    /// # Safety
    /// As for [`Bf16Attention::attend_rows`].
    unsafe fn weigh_rows(&self, h: &HeadOperands, b: KeyBlock, q: usize, n: usize, s: *mut f32, state: [*mut f32; 3]) {
        let d = &self.desc;
        let spread = s.wrapping_add(self.block_rows() * SCORE_ROW);
        // Masks are expanded row by row.
        let step = if h.masks.iter().flatten().next().is_none() {
            n
        } else {
            1
        };
        for r in (0..n).step_by(step) {
            let keys = d.visible_keys(q + r + step - 1).saturating_sub(b.first).min(b.count);
            // SAFETY: the scores hold all rows and one row of each mask; the rows lie in the masks.
            unsafe {
                let masks = [0, 1].map(|i| match &h.masks[i] {
                    Some(m) => {
                        let spread = spread.wrapping_add(i * SCORE_ROW);
                        spread_mask(m, q + r, b.first, keys, spread);
                        (spread.cast_const(), 0)
                    }
                    None => (std::ptr::null(), 0),
                });
                let job = RowsJob {
                    scores: s.add(r * SCORE_ROW),
                    row: SCORE_ROW,
                    rows: step,
                    width: b.count,
                    keys: d.visible_keys(q + r) as isize - b.first as isize,
                    more: d.causal as isize,
                    scale: d.scale as f32,
                    masks,
                    max: state[0].add(r),
                    sum: state[1].add(r),
                    rescale: state[2].add(r),
                };
                softmax(self.kernels.isa)(&job);
            }
        }
    }
}

/// Writes the values that a mask adds to the scores of one row.
///
/// # Safety
/// The row lies in the mask; `spread` holds `keys` elements.
unsafe fn spread_mask(
    &(m, data): &(AttentionMask, *const u8),
    row: usize,
    first: usize,
    keys: usize,
    spread: *mut f32,
) {
    let (at, step) = (row * m.strides[2] + first * m.strides[3], m.strides[3]);
    for i in 0..keys {
        // SAFETY: guaranteed by the caller.
        unsafe {
            *spread.add(i) = match m.dtype {
                DType::B8 if *data.add(at + i * step) == 0 => f32::NEG_INFINITY,
                DType::B8 => 0.0,
                _ => (*data.cast::<bf16>().add(at + i * step)).to_f32(),
            };
        }
    }
}

impl AttentionPlan for Bf16Attention {
    unsafe fn run(&self, pool: &Pool, args: &AttentionArgs) {
        let d = &self.desc;
        let heads = d.batch * d.heads;
        if heads == 0 || d.queries == 0 || d.value_size == 0 {
            return;
        }
        let macs = heads as f64 * d.queries as f64 * d.keys as f64 * (d.size + d.value_size) as f64;
        // With few heads, split the queries too, although each part packs the keys again.
        let mut parts = 1;
        while pool.threads() > 1 && heads * parts < 4 * pool.threads() && d.queries / (2 * parts) >= RANGE {
            parts *= 2;
        }
        let step = d.queries.div_ceil(parts);
        let parts = d.queries.div_ceil(step);
        let together = match parts {
            1 => (SMALLEST * heads as f64 / macs.max(1.0)).clamp(1.0, heads as f64) as usize,
            _ => 1,
        };
        let shared = SharedPtr(args as *const AttentionArgs as *mut AttentionArgs);
        pool.run((heads * parts).div_ceil(together), |i| {
            let mut work = self.alloc_work(step);
            for i in i * together..((i + 1) * together).min(heads * parts) {
                // SAFETY: guaranteed by the caller; chunks own disjoint rows.
                unsafe {
                    let h = self.head_operands(&*shared.get(), i / parts);
                    let q0 = i % parts * step;
                    self.run_range(&h, q0, (q0 + step).min(d.queries), &mut work);
                }
            }
        });
    }

    fn describe(&self) -> String {
        format!("attention bf16 in blocks {}", self.kernels)
    }
}
