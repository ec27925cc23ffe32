//! Scaled dot-product attention.
//!
//! f32 runs in blocks with the running softmax of Milakov and Gimelshein (2018), as in FlashAttention ([`blocks`]).
//! Scores exist for only one block of queries and keys at a time. bf16 multiplies pairs the same way
//! ([`pairs`]), and f16 is computed in f32. f64 has the scores of a block of queries with all keys ([`doubles`]).

mod blocks;
mod doubles;
mod heads;
mod masks;
mod pairs;
mod row;
#[cfg(test)]
mod tests;

use super::contract::{Attention, AttentionArgs, AttentionMask, AttentionPlan, PlanError};
use super::convert::{narrow_row, widen_elements};
use super::pairs::PairKernels;
use super::scratch::{self, Scratch, SharedPtr};
use crate::parallel::Pool;
use crate::target::Isa;
use crate::types::DType;
pub(super) use row::exp;
use std::ops::Range;

/// Plans an attention for the instruction sets of `kernels`, which the machine must support.
pub(super) fn plan(kernels: PairKernels, desc: &Attention) -> Result<Box<dyn AttentionPlan>, PlanError> {
    let isa = kernels.isa;
    let extents = desc.extents().ok_or(PlanError::Size)?;
    let merged = desc.with_merged_heads();
    let desc = merged.as_ref().unwrap_or(desc);
    for m in [desc.bias, desc.mask].into_iter().flatten() {
        if m.dtype != DType::B8 && m.dtype != desc.dtype {
            return Err(PlanError::Dtype(m.dtype));
        }
    }
    match desc.dtype {
        DType::F32 => Ok(Box::new(blocks::BlockedAttention::new(isa, desc))),
        DType::F64 => Ok(Box::new(doubles::DoubleAttention::new(isa, desc))),
        DType::BF16 => Ok(Box::new(pairs::Bf16Attention::new(kernels, desc))),
        DType::F16 => Ok(Box::new(HalfAttention::new(isa, desc, extents))),
        d => Err(PlanError::Dtype(d)),
    }
}

/// Computations on the descriptor that all methods share.
impl Attention {
    /// The key head that query head `h` uses.
    fn kv_head(&self, h: usize) -> usize {
        h / (self.heads / self.kv_heads)
    }

    /// The maximum number of keys visible to query `row`.
    fn visible_keys(&self, row: usize) -> usize {
        if self.causal { self.keys.min(row + 1) } else { self.keys }
    }

    /// The same attention with one query of several heads as the queries of one head, if these heads share keys: a step of
    /// text generation then reads and packs keys and values once for all of them.
    fn with_merged_heads(&self) -> Option<Attention> {
        let merged = self.heads / self.kv_heads.max(1);
        let fits = self.queries == 1 && merged > 1 && !self.causal;
        let rows = |[batch, head, _]: [usize; 3]| [batch, merged * head, head];
        let mask = |m: AttentionMask| {
            let [batch, head, _, key] = m.strides;
            let strides = [batch, merged * head, head, key];
            AttentionMask { strides, ..m }
        };
        fits.then(|| Attention {
            heads: self.kv_heads,
            queries: merged,
            q: rows(self.q),
            out: rows(self.out),
            bias: self.bias.map(mask),
            mask: self.mask.map(mask),
            ..self.clone()
        })
    }

    /// The number of keys that are read for the queries `rows`: those visible to the last one, without the keys after the last one
    /// that the mask shows to any of them, if these need not be read.
    ///
    /// # Safety
    /// The mask, which starts at the head's first query, has these rows.
    unsafe fn keys_to_read(&self, mask: &Option<(AttentionMask, *const u8)>, rows: Range<usize>) -> usize {
        let visible = self.visible_keys(rows.end - 1);
        let Some((m, data)) = mask.filter(|(m, _)| self.skips_hidden && m.dtype == DType::B8) else {
            return visible;
        };
        // All queries may share one row of the mask.
        let rows = if m.strides[2] == 0 {
            rows.end - 1..rows.end
        } else {
            rows
        };
        let mut shown = 0;
        for row in rows {
            // SAFETY: guaranteed by the caller.
            let last = unsafe { last_shown(data.add(row * m.strides[2]), m.strides[3], shown..visible) };
            shown = last.map_or(shown, |key| key + 1);
        }
        shown
    }

    /// The result of a row whose keys are all masked.
    fn of_masked(&self) -> f64 {
        if self.safe || self.keys == 0 { 0.0 } else { f64::NAN }
    }
}

/// The last of `keys` that a row of a mask shows.
///
/// # Safety
/// The row has these keys, `stride` bytes apart.
unsafe fn last_shown(row: *const u8, stride: usize, keys: Range<usize>) -> Option<usize> {
    if stride != 1 {
        // SAFETY: guaranteed by the caller.
        return keys.rev().find(|&key| unsafe { *row.add(key * stride) } != 0);
    }
    // SAFETY: guaranteed by the caller.
    let shown = unsafe { std::slice::from_raw_parts(row.add(keys.start), keys.len()) };
    // Whole parts first: a fold has no early exit, so it becomes vector code.
    let mut end = shown.len();
    for part in shown.rchunks(64) {
        if part.iter().fold(0, |any, &b| any | b) != 0 {
            break;
        }
        end -= part.len();
    }
    let last = shown[..end].iter().rposition(|&b| b != 0);
    last.map(|key| keys.start + key)
}

impl AttentionMask {
    /// The offset in the mask of query `row`.
    fn row_offset(&self, batch: usize, head: usize, row: usize) -> usize {
        batch * self.strides[0] + head * self.strides[1] + row * self.strides[2]
    }
}

/// f16 attention: computed in f32 and rounded once.
struct HalfAttention {
    desc: Attention,
    inner: blocks::BlockedAttention,
    /// The number of elements to convert of q, k, v, bias, mask and result. b8 masks are used without conversion.
    lens: [usize; 6],
}

impl HalfAttention {
    fn new(isa: Isa, desc: &Attention, extents: [usize; 6]) -> HalfAttention {
        let mut inner = Attention {
            dtype: DType::F32,
            ..desc.clone()
        };
        let mut lens = extents;
        for (m, len) in [&mut inner.bias, &mut inner.mask].into_iter().zip(&mut lens[3..5]) {
            match m {
                Some(m) if m.dtype != DType::B8 => m.dtype = DType::F32,
                _ => *len = 0,
            }
        }
        HalfAttention {
            desc: desc.clone(),
            inner: blocks::BlockedAttention::new(isa, &inner),
            lens,
        }
    }
}

impl AttentionPlan for HalfAttention {
    unsafe fn run(&self, pool: &Pool, args: &AttentionArgs) {
        let (d, dtype) = (&self.desc, self.desc.dtype);
        let [mut q, mut k, mut v, mut bias, mut mask, mut out] = self.lens.map(scratch::take_buffer);
        // SAFETY: guaranteed by the caller; the buffers are as long as the operands.
        unsafe {
            widen_elements(pool, dtype, args.q, &mut q);
            widen_elements(pool, dtype, args.k, &mut k);
            widen_elements(pool, dtype, args.v, &mut v);
            widen_elements(pool, dtype, args.bias, &mut bias);
            widen_elements(pool, dtype, args.mask, &mut mask);
            let wide = |m: &Scratch, own: *const u8| if m.is_empty() { own } else { m.as_ptr().cast() };
            let inner = AttentionArgs {
                q: q.as_ptr().cast(),
                k: k.as_ptr().cast(),
                v: v.as_ptr().cast(),
                bias: wide(&bias, args.bias),
                mask: wide(&mask, args.mask),
                out: out.as_mut_ptr().cast(),
            };
            self.inner.run(pool, &inner);
        }
        let to = SharedPtr(args.out);
        pool.run(d.batch * d.heads, |i| {
            for row in 0..d.queries {
                let offset = i / d.heads * d.out[0] + i % d.heads * d.out[1] + row * d.out[2];
                // SAFETY: the row lies in the result, and belongs to this chunk.
                unsafe { narrow_row(dtype, &out[offset..offset + d.value_size], to.get().add(2 * offset)) };
            }
        });
    }

    fn describe(&self) -> String {
        self.inner
            .describe()
            .replace("f32", &format!("{} in f32", self.desc.dtype))
    }
}
