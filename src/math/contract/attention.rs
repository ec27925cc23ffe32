//! The descriptor of attention.

use super::strided_extent;
use crate::parallel::Pool;
use crate::types::DType;
use serde::{Deserialize, Serialize};

/// The mask of an [`Attention`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttentionMask {
    /// B8 (true keeps a key), or the dtype of the operands (added to the scores).
    pub dtype: DType,
    /// Strides over batch, head, query and key; 0 where the mask is broadcast.
    pub strides: [usize; 4],
}

/// `softmax(scale * q · kᵀ + bias + mask) · v`: `scaled_dot_product_attention` without dropout, with a mask that may
/// come in two parts. q is `[batch, heads, L, E]`, k `[batch, kv_heads, S, E]`, v `[batch, kv_heads, S, Ev]`, and the
/// result `[batch, heads, L, Ev]`. The last dimension of each is contiguous. Query head `h` uses key head
/// `h / (heads / kv_heads)`.
///
/// A row whose keys are all masked gives zeros, as in torch, or NaN, as a softmax written out in the graph does
/// ([`Attention::safe`]). A row with `S == 0` gives zeros. The score matrix is never stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attention {
    /// The dtype of q, k, v and the result: a float.
    pub dtype: DType,
    /// The batch size.
    pub batch: usize,
    /// The number of query heads.
    pub heads: usize,
    /// The number of key and value heads, which divides `heads`.
    pub kv_heads: usize,
    /// The number of queries (L).
    pub queries: usize,
    /// The number of keys (S).
    pub keys: usize,
    /// The size of a query and of a key (E).
    pub size: usize,
    /// The size of a value (Ev).
    pub value_size: usize,
    /// Strides of q over batch, head and row.
    pub q: [usize; 3],
    /// Strides of k.
    pub k: [usize; 3],
    /// Strides of v.
    pub v: [usize; 3],
    /// Strides of the result.
    pub out: [usize; 3],
    /// The tensor that is added to the scores before the mask, if there is one.
    pub bias: Option<AttentionMask>,
    /// The mask, if there is one.
    pub mask: Option<AttentionMask>,
    /// Whether a row whose keys are all masked gives zeros instead of NaN.
    pub safe: bool,
    /// Whether query `i` sees only keys `0..=i`.
    pub causal: bool,
    /// The factor of the scores. torch's default is `1 / sqrt(E)`.
    pub scale: f64,
    /// Whether keys and values after the last key that a b8 mask shows are not read. They are the unused part of a cache: finite, so
    /// that reading them would add zeros.
    pub skips_hidden: bool,
}

impl Attention {
    /// Attention over contiguous row-major operands, with torch's default scale.
    pub fn new(batch: usize, heads: usize, queries: usize, keys: usize, size: usize) -> Attention {
        let strides = |rows: usize| [heads * rows * size, rows * size, size];
        Attention {
            dtype: DType::F32,
            batch,
            heads,
            kv_heads: heads,
            queries,
            keys,
            size,
            value_size: size,
            q: strides(queries),
            k: strides(keys),
            v: strides(keys),
            out: strides(queries),
            bias: None,
            mask: None,
            safe: true,
            causal: false,
            scale: 1.0 / (size as f64).sqrt(),
            skips_hidden: false,
        }
    }

    /// The number of elements that each of q, k, v, bias, mask and result spans. `None` if one does not fit the address
    /// space or `kv_heads` does not divide `heads`.
    pub fn extents(&self) -> Option<[usize; 6]> {
        if self.kv_heads == 0 || !self.heads.is_multiple_of(self.kv_heads) {
            return None;
        }
        let size = self.dtype.size();
        let one = |heads: usize, rows: usize, last: usize, s: [usize; 3]| {
            strided_extent(
                size,
                [(self.batch, s[0]), (heads, s[1]), (rows, s[2]), (last, 1)].into_iter(),
            )
        };
        let mask = |m: Option<AttentionMask>| match m {
            None => Some(0),
            Some(m) => {
                let dims = [self.batch, self.heads, self.queries, self.keys];
                strided_extent(m.dtype.size(), dims.into_iter().zip(m.strides))
            }
        };
        Some([
            one(self.heads, self.queries, self.size, self.q)?,
            one(self.kv_heads, self.keys, self.size, self.k)?,
            one(self.kv_heads, self.keys, self.value_size, self.v)?,
            mask(self.bias)?,
            mask(self.mask)?,
            one(self.heads, self.queries, self.value_size, self.out)?,
        ])
    }
}

/// The addresses of an [`Attention`]'s operands.
#[derive(Clone, Copy)]
pub struct AttentionArgs {
    /// q.
    pub q: *const u8,
    /// k.
    pub k: *const u8,
    /// v.
    pub v: *const u8,
    /// The bias; not read if there is none.
    pub bias: *const u8,
    /// The mask; not read if there is none.
    pub mask: *const u8,
    /// The result. It must not overlap any other operand.
    pub out: *mut u8,
}

/// A plan that computes an [`Attention`].
pub trait AttentionPlan: Send + Sync {
    /// Computes the result.
    ///
    /// # Safety
    /// Every operand that is read is valid for the descriptor's extents and aligned to its dtype; the result is
    /// writable and overlaps no other operand.
    unsafe fn run(&self, pool: &Pool, args: &AttentionArgs);
    /// A description of the method, for reports.
    fn describe(&self) -> String;
}
