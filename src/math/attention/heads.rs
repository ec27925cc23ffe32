//! What blocked attention of f32 and of bf16 share: the operands of a head, and the split of queries among threads.

use super::masks::{HeadMask, MaskRows, mask_rows};
use super::row::{RowsJob, softmax};
use crate::math::contract::{Attention, AttentionArgs};
use crate::math::scratch::SharedPtr;
use crate::parallel::Pool;
use crate::target::Isa;

/// The number of multiply-adds in the smallest chunk worth distributing.
const SMALLEST: f64 = 200e3;

/// The operands of one head, with elements of `T`.
pub(super) struct HeadOperands<T> {
    pub q: *const T,
    pub k: *const T,
    pub v: *const T,
    /// Bias and mask, starting at the head's first query.
    pub masks: [Option<HeadMask>; 2],
    pub out: *mut T,
}

impl<T> HeadOperands<T> {
    /// The operands of head `i`, counted over the batch.
    ///
    /// # Safety
    /// `args` is as for [`AttentionPlan::run`](crate::math::contract::AttentionPlan::run), with operands of `T`.
    pub(super) unsafe fn of_head(d: &Attention, args: &AttentionArgs, i: usize) -> HeadOperands<T> {
        let (b, h) = (i / d.heads, i % d.heads);
        let kv = d.kv_head(h);
        let first = |s: &[usize; 3], h: usize| b * s[0] + h * s[1];
        // SAFETY: the head lies in every operand.
        unsafe {
            HeadOperands {
                q: args.q.cast::<T>().add(first(&d.q, h)),
                k: args.k.cast::<T>().add(first(&d.k, kv)),
                v: args.v.cast::<T>().add(first(&d.v, kv)),
                masks: [(d.bias, args.bias), (d.mask, args.mask)]
                    .map(|(m, data)| m.map(|m| (m, data.add(m.row_offset(b, h, 0) * m.dtype.size())))),
                out: args.out.cast::<T>().add(first(&d.out, h)),
            }
        }
    }
}

/// How queries may be split into ranges.
#[derive(Clone, Copy)]
pub(super) struct RangeRules {
    /// The minimum number of queries in a range, because each range packs the keys again.
    pub least: usize,
    /// Whether chunks are larger than threads need, so that small heads share one allocation of working memory.
    pub groups_heads: bool,
}

/// Calls `compute` for every range of queries of every head, with the working memory that `allocate` makes once for each chunk,
/// for this many queries. Does nothing if the result is empty.
///
/// # Safety
/// `args` is as for [`AttentionPlan::run`](crate::math::contract::AttentionPlan::run), with operands of `T`.
pub(super) unsafe fn for_each_range<T, W>(
    (d, args): (&Attention, &AttentionArgs),
    pool: &Pool,
    rules: RangeRules,
    allocate: impl Fn(usize) -> W + Sync,
    compute: impl Fn(&HeadOperands<T>, [usize; 2], &mut W) + Sync,
) {
    if d.batch * d.heads == 0 || d.queries == 0 || d.value_size == 0 {
        return;
    }
    let split = QuerySplit::new(d, pool.threads(), rules);
    // SAFETY: guaranteed by the caller.
    unsafe { split.run((d, args), pool, allocate, compute) };
}

/// The split of all heads' queries into chunks.
struct QuerySplit {
    /// The number of parts that the queries of a head are divided into.
    parts: usize,
    /// The number of queries in a part.
    rows: usize,
    /// The number of parts in a chunk.
    together: usize,
}

impl QuerySplit {
    /// The split for `threads` threads.
    fn new(d: &Attention, threads: usize, rules: RangeRules) -> QuerySplit {
        let heads = d.batch * d.heads;
        let macs = heads as f64 * d.queries as f64 * d.keys as f64 * (d.size + d.value_size) as f64;
        let mut parts = 1;
        while threads > 1 && heads * parts < 4 * threads && d.queries / (2 * parts) >= rules.least {
            parts *= 2;
        }
        let rows = d.queries.div_ceil(parts);
        let parts = d.queries.div_ceil(rows);
        let heads_of_macs = |n: f64| (n * heads as f64 / macs.max(1.0)).clamp(1.0, heads as f64) as usize;
        let grouped = match rules.groups_heads {
            true => heads_of_macs(4.0 * SMALLEST).min(heads / (4 * threads)),
            false => 0,
        };
        QuerySplit {
            parts,
            rows,
            together: if parts == 1 {
                heads_of_macs(SMALLEST).max(grouped)
            } else {
                1
            },
        }
    }

    /// See [`for_each_range`].
    ///
    /// # Safety
    /// As for [`for_each_range`].
    unsafe fn run<T, W>(
        &self,
        (d, args): (&Attention, &AttentionArgs),
        pool: &Pool,
        allocate: impl Fn(usize) -> W + Sync,
        compute: impl Fn(&HeadOperands<T>, [usize; 2], &mut W) + Sync,
    ) {
        let all = d.batch * d.heads * self.parts;
        let shared = SharedPtr(args as *const AttentionArgs as *mut AttentionArgs);
        pool.run(all.div_ceil(self.together), |i| {
            let mut work = allocate(self.rows);
            for i in i * self.together..((i + 1) * self.together).min(all) {
                let first = i % self.parts * self.rows;
                // SAFETY: guaranteed by the caller; `args` outlives the job and is only read.
                let head = unsafe { HeadOperands::of_head(d, &*shared.get(), i / self.parts) };
                compute(&head, [first, (first + self.rows).min(d.queries)], &mut work);
            }
        });
    }
}

/// The scores of some queries for one block of keys.
pub(super) struct ScoreRows {
    /// The first score, and the stride between rows.
    pub scores: *mut f32,
    pub row: usize,
    /// The first query, and the number of queries.
    pub query: usize,
    pub rows: usize,
    /// The first key, and the number of keys.
    pub key: usize,
    pub keys: usize,
    /// For each query: the greatest score, the sum of weights, and the factor that rescales earlier results.
    pub state: [*mut f32; 3],
}

impl ScoreRows {
    /// Replaces the scores by weights, and updates the queries' state. `room` is working memory for masks.
    ///
    /// # Safety
    /// The rows have this many scores and states, and the masks as many values as keys that a query sees; there is room for
    /// [`spread_rows`](super::masks::spread_rows) times these rows.
    pub(super) unsafe fn weigh(&self, isa: Isa, d: &Attention, masks: &[Option<HeadMask>; 2], room: *mut f32) {
        let seen = |r: usize| d.visible_keys(self.query + r).saturating_sub(self.key).min(self.keys);
        let masks = [0, 1].map(|i| match &masks[i] {
            // SAFETY: guaranteed by the caller.
            Some(m) => unsafe { mask_rows(m, self, seen, room.wrapping_add(i * self.rows * self.row)) },
            None => MaskRows::NONE,
        });
        let job = RowsJob {
            scores: self.scores,
            row: self.row,
            rows: self.rows,
            width: self.keys,
            keys: d.visible_keys(self.query) as isize - self.key as isize,
            more: d.causal as isize,
            scale: d.scale as f32,
            masks,
            max: self.state[0],
            sum: self.state[1],
            rescale: self.state[2],
        };
        // SAFETY: guaranteed by the caller.
        unsafe { softmax(isa)(&job) };
    }
}
