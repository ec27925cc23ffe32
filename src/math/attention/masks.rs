//! Masks, as rows of values that are added to scores.

use super::heads::ScoreRows;
use crate::math::contract::{Attention, AttentionMask};
use crate::math::simd::Bf16;
use crate::types::DType;
use half::bf16;

/// A mask, and its elements from the head's first query on.
pub(super) type HeadMask = (AttentionMask, *const u8);

/// The values for rows of scores.
#[derive(Clone, Copy)]
pub(super) struct MaskRows {
    /// The first row, or null if nothing is added.
    values: *const u8,
    /// The stride between rows, in bytes.
    row: usize,
    /// Whether values are bf16 rather than f32.
    are_bf16: bool,
}

impl MaskRows {
    /// Nothing is added.
    pub(super) const NONE: MaskRows = MaskRows {
        values: std::ptr::null(),
        row: 0,
        are_bf16: false,
    };

    /// Adds `n` values of row `r`, from the `i`-th on, to the first lanes of `x`.
    ///
    /// # Safety
    /// The rows have these values, and the machine supports the level.
    #[inline(always)]
    pub(super) unsafe fn add<S: Bf16>(&self, x: S::V, [r, i, n]: [usize; 3]) -> S::V {
        if self.values.is_null() {
            return x;
        }
        let row = self.values.wrapping_add(r * self.row);
        let (wide, narrow) = (row.cast::<f32>().wrapping_add(i), row.cast::<u16>().wrapping_add(i));
        // SAFETY: guaranteed by the caller.
        unsafe {
            let values = match (self.are_bf16, n == S::LANES) {
                (false, true) => S::load(wide),
                (false, false) => S::load_first(wide, n),
                (true, true) => S::load_bf16(narrow),
                (true, false) => S::load_bf16_first(narrow, n),
            };
            S::add(x, values)
        }
    }
}

/// The number of rows of working memory that masks need for each row of scores.
pub(super) fn spread_rows(d: &Attention) -> usize {
    let masks = [&d.bias, &d.mask];
    let all_direct = masks.into_iter().flatten().all(is_direct);
    if all_direct { 0 } else { masks.len() }
}

/// Whether kernels read the values of a mask where they are.
fn is_direct(m: &AttentionMask) -> bool {
    m.strides[3] == 1 && matches!(m.dtype, DType::F32 | DType::BF16)
}

/// The values that a mask adds to `scores`. They are written to `room` unless kernels read them in the mask; of row `r` there are `seen(r)`.
///
/// # Safety
/// The mask has these queries and keys, and `room` as many rows as the scores, with their stride.
pub(super) unsafe fn mask_rows(
    mask: &HeadMask,
    scores: &ScoreRows,
    seen: impl Fn(usize) -> usize,
    room: *mut f32,
) -> MaskRows {
    let (m, data) = mask;
    if is_direct(m) {
        let first = scores.query * m.strides[2] + scores.key;
        return MaskRows {
            values: data.wrapping_add(first * m.dtype.size()),
            row: m.strides[2] * m.dtype.size(),
            are_bf16: m.dtype == DType::BF16,
        };
    }
    // All queries may share one row of the mask.
    let rows = if m.strides[2] == 0 { 1 } else { scores.rows };
    for r in 0..rows {
        let keys = seen(if rows == 1 { scores.rows - 1 } else { r });
        let row = room.wrapping_add(r * scores.row);
        // SAFETY: guaranteed by the caller.
        unsafe {
            spread_row(
                mask,
                scores.query + r,
                scores.key,
                std::slice::from_raw_parts_mut(row, keys),
            )
        };
    }
    MaskRows {
        values: room.cast_const().cast(),
        row: if rows == 1 { 0 } else { scores.row * size_of::<f32>() },
        are_bf16: false,
    }
}

/// Writes the values of query `query` for keys from `first` on.
///
/// # Safety
/// The mask has the query and the keys.
unsafe fn spread_row(&(m, data): &HeadMask, query: usize, first: usize, values: &mut [f32]) {
    let at = query * m.strides[2] + first * m.strides[3];
    let shown = |b: u8| if b == 0 { f32::NEG_INFINITY } else { 0.0 };
    // SAFETY: guaranteed by the caller.
    unsafe {
        match m.dtype {
            DType::B8 => spread_elements(data.add(at), m.strides[3], shown, values),
            DType::BF16 => spread_elements(data.cast::<bf16>().add(at), m.strides[3], bf16::to_f32, values),
            _ => spread_elements(data.cast::<f32>().add(at), m.strides[3], |x| x, values),
        }
    }
}

/// Widens elements that are `step` apart.
///
/// # Safety
/// There are as many as values.
unsafe fn spread_elements<T: Copy>(from: *const T, step: usize, widen: impl Fn(T) -> f32, values: &mut [f32]) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if step == 1 {
            let from = std::slice::from_raw_parts(from, values.len());
            return values.iter_mut().zip(from).for_each(|(v, &x)| *v = widen(x));
        }
        for (i, v) in values.iter_mut().enumerate() {
            *v = widen(*from.add(i * step));
        }
    }
}
