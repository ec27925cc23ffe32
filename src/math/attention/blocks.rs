//! f32 attention in blocks: for a block of keys, packed once, all queries of the chunk run over it, a few rows at a time:
//! scores on register tiles, the running softmax, and the weighted values added to the result in place.

use super::row::{EndJob, RowsJob, end, scale, softmax};
use crate::math::contract::{Attention, AttentionArgs, AttentionMask, AttentionPlan};
use crate::math::matmul::dot::{self, DotJob};
use crate::math::pack::pack_panel;
use crate::math::scratch::{self, Scratch, SharedPtr};
use crate::math::tile::{Init, Kernels, ONE_SEGMENT, TileJob, Tiles};
use crate::parallel::Pool;
use crate::target::Isa;
use crate::types::DType;

/// Keys of one block.
const KEYS: usize = 256;
/// From one row of scores to the next: not a multiple of a power of two, so that rows do not share cache sets.
const SCORE_ROW: usize = KEYS + 16;
/// Tiles of queries that are scored together.
const TILES: usize = 4;
/// The most queries for which keys are not packed.
const FEW: usize = 4;
/// Multiply-adds of the smallest chunk worth handing out.
const SMALLEST: f64 = 200e3;
/// The fewest queries for which packing the keys anew pays.
const RANGE: usize = 112;

/// A plan of an f32 attention.
pub(super) struct BlockedAttention {
    desc: Attention,
    kernels: &'static Kernels,
}

/// The operands of one head.
struct HeadOperands {
    q: *const f32,
    k: *const f32,
    v: *const f32,
    /// Bias and mask from the head's first query on.
    masks: [Option<(AttentionMask, *const u8)>; 2],
    out: *mut f32,
}

/// Working memory of one thread.
struct Work {
    /// A block of keys, packed.
    keys: Scratch,
    /// The last columns of the values, packed.
    values: Scratch,
    /// Scores of some tiles of queries, and after them a row of each mask.
    scores: Scratch,
    /// Of each query the greatest score, the sum of weights, and what earlier results are multiplied by.
    state: Scratch,
}

/// A block of keys.
struct KeyBlock {
    /// The first key.
    first: usize,
    /// How many.
    count: usize,
    /// Packed keys, panel after panel; not used for few queries.
    keys: *const f32,
    /// The last columns of the values, if they do not fill a panel.
    last_values: *const f32,
}

impl BlockedAttention {
    /// Plans `desc`, whose extents were checked.
    pub(super) fn new(isa: Isa, desc: &Attention) -> BlockedAttention {
        BlockedAttention {
            desc: desc.clone(),
            kernels: Kernels::for_isa(isa),
        }
    }

    /// The operands of head `i` of all.
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
                q: args.q.cast::<f32>().add(at(&d.q, h)),
                k: args.k.cast::<f32>().add(at(&d.k, kv)),
                v: args.v.cast::<f32>().add(at(&d.v, kv)),
                masks: [(d.bias, args.bias), (d.mask, args.mask)]
                    .map(|(m, data)| m.map(|m| (m, data.add(m.row_offset(b, h, 0) * m.dtype.size())))),
                out: args.out.cast::<f32>().add(at(&d.out, h)),
            }
        }
    }

    /// Working memory for ranges of up to `rows` queries.
    fn alloc_work(&self, rows: usize) -> Work {
        let (d, nr) = (&self.desc, self.kernels.nr);
        let few = d.queries <= FEW;
        Work {
            keys: scratch::take_buffer(if few { 0 } else { KEYS.next_multiple_of(nr) * d.size }),
            values: scratch::take_buffer(if d.value_size % nr > 0 { KEYS * nr } else { 0 }),
            scores: scratch::take_buffer((TILES * self.kernels.mr + 2) * SCORE_ROW),
            state: scratch::take_buffer(3 * rows),
        }
    }

    /// Queries `q0..q1` of one head.
    ///
    /// # Safety
    /// The head's operands are valid; no other thread writes these rows; the working memory is for as many.
    unsafe fn run_range(&self, h: &HeadOperands, q0: usize, q1: usize, w: &mut Work) {
        let d = &self.desc;
        let (max, rest) = w.state[..3 * (q1 - q0)].split_at_mut(q1 - q0);
        let (sum, rescale) = rest.split_at_mut(q1 - q0);
        max.fill(f32::NEG_INFINITY);
        sum.fill(0.0);
        let state = [max, sum, rescale].map(|s| s.as_mut_ptr());
        let mut first = 0;
        // Causal rows see no key beyond the last row's.
        let seen = d.visible_keys(q1 - 1);
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

    /// Packs what has to be packed of a block of keys.
    ///
    /// # Safety
    /// As for [`BlockedAttention::run_range`].
    unsafe fn pack_key_block(&self, h: &HeadOperands, first: usize, count: usize, w: &mut Work) -> KeyBlock {
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

    /// `n` rows from query `q` on against one block of keys; `state` is their maximum, sum and factor.
    ///
    /// # Safety
    /// As for [`BlockedAttention::run_range`].
    unsafe fn attend_rows(
        &self,
        h: &HeadOperands,
        b: &KeyBlock,
        q: usize,
        n: usize,
        scores: &mut [f32],
        state: [*mut f32; 3],
    ) {
        let d = &self.desc;
        let s = scores.as_mut_ptr();
        let spread = s.wrapping_add(TILES * self.kernels.mr * SCORE_ROW);
        // Rows whose masks have to be spread first are taken one by one.
        let direct = |(m, _): &(AttentionMask, *const u8)| m.dtype != DType::B8 && m.strides[3] == 1;
        let step = if h.masks.iter().flatten().all(direct) { n } else { 1 };
        // SAFETY: the scores hold all rows; the rows lie in q and the result.
        unsafe {
            self.score_rows(h, b, q, n, s);
            for r in (0..n).step_by(step) {
                let keys = d.visible_keys(q + r + step - 1).saturating_sub(b.first).min(b.count);
                let masks = [0, 1].map(|i| match &h.masks[i] {
                    Some(m) => {
                        let spread = spread.wrapping_add(i * SCORE_ROW);
                        (mask_row(m, q + r, b.first, keys, spread), m.0.strides[2])
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
            for r in 0..n {
                let by = *state[2].add(r);
                if b.first > 0 && by != 1.0 {
                    scale(self.kernels.isa)(h.out.add((q + r) * d.out[2]), d.value_size, by);
                }
            }
            self.add_values(h, b, q, n, s);
        }
    }

    /// `scores = q · kᵀ` for `n` rows from query `row` on.
    ///
    /// # Safety
    /// As for [`BlockedAttention::attend_rows`].
    unsafe fn score_rows(&self, h: &HeadOperands, b: &KeyBlock, row: usize, n: usize, scores: *mut f32) {
        let (d, nr) = (&self.desc, self.kernels.nr);
        // SAFETY: the caller's promise.
        unsafe {
            let q = h.q.add(row * d.q[2]);
            if d.queries <= FEW {
                let job = DotJob {
                    a: q,
                    a_row: d.q[2],
                    rows: n,
                    b: h.k.add(b.first * d.k[2]),
                    b_col: d.k[2],
                    cols: b.count,
                    k: d.size,
                    c: scores,
                    c_row: SCORE_ROW,
                };
                dot::kernel(self.kernels.isa)(&job);
                return;
            }
            for p in 0..b.count.div_ceil(nr) {
                let cols = nr.min(b.count - p * nr);
                let keys = b.keys.add(p * nr * d.size);
                self.run_tiles(
                    (q, d.q[2], d.size),
                    (keys, nr),
                    (scores.add(p * nr), SCORE_ROW, cols),
                    n,
                    Init::Zero,
                );
            }
        }
    }

    /// Adds `weights · v` to `n` rows of the result from query `row` on.
    ///
    /// # Safety
    /// As for [`BlockedAttention::attend_rows`].
    unsafe fn add_values(&self, h: &HeadOperands, b: &KeyBlock, row: usize, n: usize, weights: *const f32) {
        let (d, nr) = (&self.desc, self.kernels.nr);
        let init = if b.first == 0 { Init::Zero } else { Init::Output };
        for p in 0..d.value_size.div_ceil(nr) {
            let cols = nr.min(d.value_size - p * nr);
            // SAFETY: the caller's promise.
            unsafe {
                let values = match cols == nr {
                    true => (h.v.add(b.first * d.v[2] + p * nr), d.v[2]),
                    false => (b.last_values, nr),
                };
                let out = h.out.add(row * d.out[2] + p * nr);
                self.run_tiles((weights, SCORE_ROW, b.count), values, (out, d.out[2], cols), n, init);
            }
        }
    }

    /// `n` rows of one panel: A as (pointer, row stride, product size), B as (pointer, stride), C as (pointer, row
    /// stride, columns).
    ///
    /// # Safety
    /// The parts are valid.
    unsafe fn run_tiles(
        &self,
        a: (*const f32, usize, usize),
        b: (*const f32, usize),
        c: (*mut f32, usize, usize),
        n: usize,
        init: Init,
    ) {
        let halves = self.kernels.half_vectors(c.2);
        let tiles = Tiles::new(n, self.kernels.mr);
        for t in 0..tiles.count() {
            let (r, rows) = (tiles.start(t), tiles.start(t + 1) - tiles.start(t));
            let job = TileJob {
                a: a.0.wrapping_add(r * a.1),
                a_row: a.1,
                a_k: 1,
                segments: ONE_SEGMENT.as_ptr(),
                segment_count: 1,
                run: a.2,
                b: b.0,
                b_k: b.1,
                b_panel: 0,
                c: c.0.wrapping_add(r * c.1),
                c_row: c.1,
                cols: c.2,
                init,
                bias: std::ptr::null(),
                clamp: None,
            };
            // SAFETY: the caller's promise.
            unsafe { self.kernels.tile_kernel(rows, halves, false)(&job) };
        }
    }
}

/// What a mask adds to the scores of one row: where it lies, or in `spread` if it is b8 or not contiguous.
///
/// # Safety
/// The row lies in the mask; `spread` holds `keys` elements.
unsafe fn mask_row(
    &(m, data): &(AttentionMask, *const u8),
    row: usize,
    first: usize,
    keys: usize,
    spread: *mut f32,
) -> *const f32 {
    let (at, step) = (row * m.strides[2] + first * m.strides[3], m.strides[3]);
    // SAFETY: the caller's promise.
    unsafe {
        if m.dtype == DType::B8 {
            for i in 0..keys {
                *spread.add(i) = if *data.add(at + i * step) == 0 {
                    f32::NEG_INFINITY
                } else {
                    0.0
                };
            }
            return spread;
        }
        let mask = data.cast::<f32>().add(at);
        if step == 1 {
            return mask;
        }
        for i in 0..keys {
            *spread.add(i) = *mask.add(i * step);
        }
        spread
    }
}

impl AttentionPlan for BlockedAttention {
    unsafe fn run(&self, pool: &Pool, args: &AttentionArgs) {
        let d = &self.desc;
        let heads = d.batch * d.heads;
        if heads == 0 || d.queries == 0 || d.value_size == 0 {
            return;
        }
        let macs = heads as f64 * d.queries as f64 * d.keys as f64 * (d.size + d.value_size) as f64;
        // Few heads: cut the queries too, though each part packs the keys anew.
        let mut parts = 1;
        while pool.threads() > 1 && heads * parts < 4 * pool.threads() && d.queries / (2 * parts) >= RANGE {
            parts *= 2;
        }
        let step = d.queries.div_ceil(parts);
        let parts = d.queries.div_ceil(step);
        let of_macs = |n: f64| (n * heads as f64 / macs.max(1.0)).clamp(1.0, heads as f64) as usize;
        let together = match parts {
            // Working memory is taken once for a chunk: more small heads, if there are enough for all threads.
            1 => of_macs(SMALLEST).max(of_macs(4.0 * SMALLEST).min(heads / (4 * pool.threads()))),
            _ => 1,
        };
        let shared = SharedPtr(args as *const AttentionArgs as *mut AttentionArgs);
        pool.run((heads * parts).div_ceil(together), |i| {
            let mut work = self.alloc_work(step);
            for i in i * together..((i + 1) * together).min(heads * parts) {
                // SAFETY: the caller's promise; chunks own disjoint rows.
                unsafe {
                    let h = self.head_operands(&*shared.get(), i / parts);
                    let q0 = i % parts * step;
                    self.run_range(&h, q0, (q0 + step).min(d.queries), &mut work);
                }
            }
        });
    }

    fn describe(&self) -> String {
        format!("attention f32 in blocks {}", self.kernels.isa)
    }
}
