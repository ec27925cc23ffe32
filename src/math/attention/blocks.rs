//! f32 attention in blocks: for a block of keys, packed once, all queries of the chunk run over it, a few rows at a time:
//! scores on register tiles, the running softmax, and the weighted values added to the result in place.

use super::row::{RowJob, scale, softmax};
use crate::math::contract::{Attention, AttentionArgs, AttentionPlan};
use crate::math::isa::Isa;
use crate::math::matmul::dot::{self, DotJob};
use crate::math::pack::pack_panel;
use crate::math::scratch::{self, Shared};
use crate::math::tile::{Init, Kernels, ONE_SEGMENT, TileJob, Tiles};
use crate::parallel::Pool;
use crate::types::DType;

/// Keys of one block.
const KEYS: usize = 256;
/// From one row of scores to the next: not a multiple of a power of two, so that rows do not share cache sets.
const SCORE_ROW: usize = KEYS + 16;
/// Tiles of queries that are scored together.
const TILES: usize = 4;
/// The most queries for which keys are not packed.
const FEW: usize = 4;
/// The fewest queries for which packing the keys anew pays.
const RANGE: usize = 112;

/// A plan of an f32 attention.
pub struct Blocks {
    desc: Attention,
    kernels: &'static Kernels,
}

/// The operands of one head.
struct Head {
    q: *const f32,
    k: *const f32,
    v: *const f32,
    /// The mask of the head's first query, and whether it is b8.
    mask: Option<(*const u8, bool)>,
    out: *mut f32,
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

impl Blocks {
    /// Plans `desc`, whose extents were checked.
    pub fn new(isa: Isa, desc: &Attention) -> Blocks {
        Blocks {
            desc: desc.clone(),
            kernels: Kernels::of(isa),
        }
    }

    /// The operands of head `i` of all.
    ///
    /// # Safety
    /// `args` is as for [`AttentionPlan::run`].
    unsafe fn head(&self, args: &AttentionArgs, i: usize) -> Head {
        let d = &self.desc;
        let (b, h) = (i / d.heads, i % d.heads);
        let kv = d.kv_head(h);
        let at = |s: &[usize; 3], h: usize| b * s[0] + h * s[1];
        // SAFETY: the head lies in every operand.
        unsafe {
            Head {
                q: args.q.cast::<f32>().add(at(&d.q, h)),
                k: args.k.cast::<f32>().add(at(&d.k, kv)),
                v: args.v.cast::<f32>().add(at(&d.v, kv)),
                mask: d.mask.map(|m| {
                    let (size, b8) = (m.dtype.size(), m.dtype == DType::B8);
                    (args.mask.add(d.mask_at(b, h, 0) * size), b8)
                }),
                out: args.out.cast::<f32>().add(at(&d.out, h)),
            }
        }
    }

    /// Queries `q0..q1` of one head.
    ///
    /// # Safety
    /// The head's operands are valid; no other thread writes these rows.
    unsafe fn range(&self, h: &Head, q0: usize, q1: usize) {
        let (d, nr) = (&self.desc, self.kernels.nr);
        let few = d.queries <= FEW;
        let rest = d.value_size % nr;
        let mut keys = scratch::take(if few { 0 } else { KEYS.next_multiple_of(nr) * d.size });
        let mut values = scratch::take(if rest > 0 { KEYS * nr } else { 0 });
        let mut scores = scratch::take((TILES * self.kernels.mr + 1) * SCORE_ROW);
        let mut state = scratch::take(2 * (q1 - q0));
        let (max, sum) = state.split_at_mut(q1 - q0);
        max.fill(f32::NEG_INFINITY);
        sum.fill(0.0);
        let mut first = 0;
        // Causal rows see no key beyond the last row's.
        let seen = d.visible(q1 - 1);
        while first < seen {
            let count = KEYS.min(seen - first);
            // SAFETY: the buffers hold a block; the rows are this chunk's.
            unsafe {
                if !few {
                    for p in 0..count.div_ceil(nr) {
                        let (src, n) = (h.k.add((first + p * nr) * d.k[2]), nr.min(count - p * nr));
                        pack_panel(src, d.k[2], 1, n, nr, d.size, keys.as_mut_ptr().add(p * nr * d.size));
                    }
                }
                if rest > 0 {
                    let src = h.v.add(first * d.v[2] + d.value_size - rest);
                    pack_panel(src, 1, d.v[2], rest, nr, count, values.as_mut_ptr());
                }
                let block = KeyBlock {
                    first,
                    count,
                    keys: keys.as_ptr(),
                    last_values: values.as_ptr(),
                };
                let tiles = Tiles::new(q1 - q0, self.kernels.mr);
                for t in (0..tiles.count()).step_by(TILES) {
                    let (r0, r1) = (tiles.start(t), tiles.start((t + TILES).min(tiles.count())));
                    if d.visible(q0 + r1 - 1) > first {
                        self.rows(h, &block, q0, r0, r1, &mut scores, max, sum);
                    }
                }
            }
            first += count;
        }
        for (r, &sum) in sum.iter().enumerate() {
            // SAFETY: the row is this chunk's.
            unsafe {
                let out = h.out.add((q0 + r) * d.out[2]);
                if sum == 0.0 {
                    out.write_bytes(0, d.value_size);
                } else {
                    scale(self.kernels.isa)(out, d.value_size, 1.0 / sum);
                }
            }
        }
    }

    /// Rows `r0..r1` (counted from query `q0`) against one block of keys.
    ///
    /// # Safety
    /// As for [`Blocks::range`].
    unsafe fn rows(
        &self,
        h: &Head,
        b: &KeyBlock,
        q0: usize,
        r0: usize,
        r1: usize,
        scores: &mut [f32],
        max: &mut [f32],
        sum: &mut [f32],
    ) {
        let d = &self.desc;
        let s = scores.as_mut_ptr();
        let spread = s.wrapping_add(TILES * self.kernels.mr * SCORE_ROW);
        // SAFETY: the scores hold all rows; the rows lie in q and the result.
        unsafe {
            self.score(h, b, q0 + r0, r1 - r0, s);
            for r in r0..r1 {
                let scores = s.add((r - r0) * SCORE_ROW);
                let keys = d.visible(q0 + r).saturating_sub(b.first).min(b.count);
                let mask = self.mask_row(h, q0 + r, b.first, keys, spread);
                let mut job = RowJob {
                    scores,
                    keys,
                    width: b.count,
                    scale: d.scale as f32,
                    mask,
                    max: max[r],
                    sum: sum[r],
                    rescale: 1.0,
                };
                softmax(self.kernels.isa)(&mut job);
                (max[r], sum[r]) = (job.max, job.sum);
                if b.first > 0 && job.rescale != 1.0 {
                    scale(self.kernels.isa)(h.out.add((q0 + r) * d.out[2]), d.value_size, job.rescale);
                }
            }
            self.add_values(h, b, q0 + r0, r1 - r0, s);
        }
    }

    /// What the mask adds to the scores of one row; null without a mask. A b8 mask, and one that is not contiguous, is
    /// written to `spread`.
    ///
    /// # Safety
    /// The row lies in the mask; `spread` holds `keys` elements.
    unsafe fn mask_row(&self, h: &Head, row: usize, first: usize, keys: usize, spread: *mut f32) -> *const f32 {
        let (Some((mask, b8)), Some(m)) = (h.mask, self.desc.mask) else {
            return std::ptr::null();
        };
        let (at, step) = (row * m.strides[2] + first * m.strides[3], m.strides[3]);
        // SAFETY: the caller's promise.
        unsafe {
            if b8 {
                for i in 0..keys {
                    *spread.add(i) = if *mask.add(at + i * step) == 0 {
                        f32::NEG_INFINITY
                    } else {
                        0.0
                    };
                }
                return spread;
            }
            let mask = mask.cast::<f32>().add(at);
            if step == 1 {
                return mask;
            }
            // Spread the mask in the row behind the scores.
            for i in 0..keys {
                *spread.add(i) = *mask.add(i * step);
            }
            spread
        }
    }

    /// `scores = q · kᵀ` for `n` rows from query `row` on.
    ///
    /// # Safety
    /// As for [`Blocks::rows`].
    unsafe fn score(&self, h: &Head, b: &KeyBlock, row: usize, n: usize, scores: *mut f32) {
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
                self.tiles(
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
    /// As for [`Blocks::rows`].
    unsafe fn add_values(&self, h: &Head, b: &KeyBlock, row: usize, n: usize, weights: *const f32) {
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
                self.tiles((weights, SCORE_ROW, b.count), values, (out, d.out[2], cols), n, init);
            }
        }
    }

    /// `n` rows of one panel: A as (pointer, row stride, product size), B as (pointer, stride), C as (pointer, row
    /// stride, columns).
    ///
    /// # Safety
    /// The parts are valid.
    unsafe fn tiles(
        &self,
        a: (*const f32, usize, usize),
        b: (*const f32, usize),
        c: (*mut f32, usize, usize),
        n: usize,
        init: Init,
    ) {
        let halves = self.kernels.halves(c.2);
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
            unsafe { self.kernels.tile(rows, halves, false)(&job) };
        }
    }
}

impl AttentionPlan for Blocks {
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
        let together = if parts > 1 {
            1
        } else {
            (200e3 * heads as f64 / macs.max(1.0)).clamp(1.0, heads as f64) as usize
        };
        let shared = Shared(args as *const AttentionArgs as *mut AttentionArgs);
        pool.run((heads * parts).div_ceil(together), |i| {
            for i in i * together..((i + 1) * together).min(heads * parts) {
                // SAFETY: the caller's promise; chunks own disjoint rows.
                unsafe {
                    let h = self.head(&*shared.get(), i / parts);
                    let q0 = i % parts * step;
                    self.range(&h, q0, (q0 + step).min(d.queries));
                }
            }
        });
    }

    fn describe(&self) -> String {
        format!("attention f32 in blocks {}", self.kernels.isa)
    }
}
