//! Blocked f32 attention. Each block of keys is packed once. Then all queries of the chunk run over it, a few rows at a
//! time: scores on register tiles, the running softmax, and the weighted values added to the result in place.

mod products;

use super::heads::{HeadOperands, RangeRules, ScoreRows, for_each_range};
use super::masks::spread_rows;
use super::row::{EndJob, end, scale};
use crate::math::contract::{Attention, AttentionArgs, AttentionPlan};
use crate::math::pack::pack_panel;
use crate::math::scratch::{self, Scratch};
use crate::math::tile::{Kernels, Tiles};
use crate::parallel::Pool;
use crate::target::Isa;

/// The number of keys in a block.
const KEYS: usize = 256;
/// The stride between rows of scores. It is not a multiple of a power of two, so that rows do not share cache sets.
const SCORE_ROW: usize = KEYS + 16;
/// The number of query tiles that are scored together.
const TILES: usize = 4;
/// Keys are not packed for this many queries or fewer.
const FEW: usize = 4;
/// The minimum number of queries that pays for packing the keys again.
const RANGE: usize = 112;

/// A plan of an f32 attention.
pub(super) struct BlockedAttention {
    desc: Attention,
    kernels: &'static Kernels,
}

/// The working memory of one thread.
struct Work {
    /// The current block of keys, packed.
    keys: Scratch,
    /// The last columns of the values, packed.
    values: Scratch,
    /// The scores of some tiles of queries, followed by rows of masks.
    scores: Scratch,
    /// For each query: the greatest score, the sum of weights, and the factor that rescales earlier results.
    state: Scratch,
}

/// A block of keys.
struct KeyBlock {
    /// The index of the first key.
    first: usize,
    /// The number of keys.
    count: usize,
    /// The packed keys, panel after panel. Unused for few queries.
    keys: *const f32,
    /// The last columns of the values, packed, if they do not fill a panel.
    last_values: *const f32,
}

impl BlockedAttention {
    /// Plans `desc`, whose extents were already checked.
    pub(super) fn new(isa: Isa, desc: &Attention) -> BlockedAttention {
        BlockedAttention {
            desc: desc.clone(),
            kernels: Kernels::for_isa(isa),
        }
    }

    /// Allocates working memory for up to `rows` queries.
    fn alloc_work(&self, rows: usize) -> Work {
        let (d, nr) = (&self.desc, self.kernels.nr);
        let few = d.queries <= FEW;
        Work {
            keys: scratch::take_buffer(if few { 0 } else { KEYS.next_multiple_of(nr) * d.size }),
            values: scratch::take_buffer(if d.value_size % nr > 0 { KEYS * nr } else { 0 }),
            scores: scratch::take_buffer((1 + spread_rows(d)) * TILES * self.kernels.mr * SCORE_ROW),
            state: scratch::take_buffer(3 * rows),
        }
    }

    /// Computes queries `q0..q1` of one head.
    ///
    /// # Safety
    /// The head's operands are valid. No other thread writes these rows. The working memory suffices for this many
    /// queries.
    unsafe fn run_range(&self, h: &HeadOperands<f32>, q0: usize, q1: usize, w: &mut Work) {
        let d = &self.desc;
        let (max, rest) = w.state[..3 * (q1 - q0)].split_at_mut(q1 - q0);
        let (sum, rescale) = rest.split_at_mut(q1 - q0);
        max.fill(f32::NEG_INFINITY);
        sum.fill(0.0);
        let state = [max, sum, rescale].map(|s| s.as_mut_ptr());
        let mut first = 0;
        // A causal row sees no key after the last row's.
        // SAFETY: the rows lie in the mask.
        let seen = unsafe { d.keys_to_read(&h.masks[1], q0..q1) };
        while first < seen {
            let count = KEYS.min(seen - first);
            // SAFETY: the buffers hold a block; the rows are this chunk's.
            unsafe {
                let block = self.pack_key_block(h, first, count, w);
                let tiles = Tiles::new(q1 - q0, self.kernels.mr);
                for t in (0..tiles.count()).step_by(TILES) {
                    let (r0, r1) = (tiles.start(t), tiles.start((t + TILES).min(tiles.count())));
                    if d.visible_keys(q0 + r1 - 1) > first {
                        self.attend_rows(h, &block, q0 + r0, r1 - r0, &mut w.scores, state.map(|s| s.add(r0)));
                    }
                }
            }
            first += count;
        }
        // SAFETY: the rows are this chunk's.
        unsafe {
            let job = EndJob {
                out: h.out.add(q0 * d.out[2]),
                row: d.out[2],
                rows: q1 - q0,
                size: d.value_size,
                sum: state[1],
                masked: d.of_masked() as f32,
            };
            end(self.kernels.isa)(&job);
        }
    }

    /// Packs the parts of a block of keys that need packing.
    ///
    /// # Safety
    /// As for [`BlockedAttention::run_range`].
    unsafe fn pack_key_block(&self, h: &HeadOperands<f32>, first: usize, count: usize, w: &mut Work) -> KeyBlock {
        let (d, nr) = (&self.desc, self.kernels.nr);
        let rest = d.value_size % nr;
        // SAFETY: the keys and values lie in the operands, their copies in the buffers.
        unsafe {
            if d.queries > FEW {
                for p in 0..count.div_ceil(nr) {
                    let (src, n) = (h.k.add((first + p * nr) * d.k[2]), nr.min(count - p * nr));
                    pack_panel(src, d.k[2], 1, n, nr, d.size, w.keys.as_mut_ptr().add(p * nr * d.size));
                }
            }
            if rest > 0 {
                let src = h.v.add(first * d.v[2] + d.value_size - rest);
                pack_panel(src, 1, d.v[2], rest, nr, count, w.values.as_mut_ptr());
            }
        }
        KeyBlock {
            first,
            count,
            keys: w.keys.as_ptr(),
            last_values: w.values.as_ptr(),
        }
    }

    /// Processes `n` rows from query `q` on against one block of keys. `state` holds each row's maximum, sum and
    /// factor.
    ///
    /// # Safety
    /// As for [`BlockedAttention::run_range`].
    unsafe fn attend_rows(
        &self,
        h: &HeadOperands<f32>,
        b: &KeyBlock,
        q: usize,
        n: usize,
        scores: &mut [f32],
        state: [*mut f32; 3],
    ) {
        let d = &self.desc;
        let s = scores.as_mut_ptr();
        // SAFETY: the scores hold all rows; the rows lie in q and the result.
        unsafe {
            self.score_rows(h, b, q, n, s);
            self.weigh_rows(h, b, q, n, s, state);
            for r in 0..n {
                let by = *state[2].add(r);
                if b.first > 0 && by != 1.0 {
                    scale(self.kernels.isa)(h.out.add((q + r) * d.out[2]), d.value_size, by);
                }
            }
            self.add_values(h, b, q, n, s);
        }
    }

    /// Replaces the scores of `n` rows by weights, and updates their `state`.
    ///
    /// # Safety
    /// As for [`BlockedAttention::attend_rows`].
    unsafe fn weigh_rows(
        &self,
        h: &HeadOperands<f32>,
        b: &KeyBlock,
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
        let room = s.wrapping_add(TILES * self.kernels.mr * SCORE_ROW);
        // SAFETY: guaranteed by the caller; the room is after the scores.
        unsafe { rows.weigh(self.kernels.isa, &self.desc, &h.masks, room) };
    }
}

impl AttentionPlan for BlockedAttention {
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
        format!("attention f32 in blocks {}", self.kernels.isa)
    }
}
