//! Conversions between f32 and smaller dtypes.

use super::scratch::SharedPtr;
use crate::parallel::Pool;
use crate::tensor::{round_to_bf16s, round_to_f16s, wide_function, widen_bf16s, widen_f16, widen_f16s};
use crate::types::DType;
use half::{bf16, f16};

/// The number of elements in a chunk.
const CHUNK: usize = 16 * 1024;

/// Converts `dst.len()` elements of `dtype` (f16, bf16, u8 or i8) from `src`.
///
/// # Safety
/// `src` is readable for these elements and aligned to them, unless `dst` is empty.
pub(super) unsafe fn widen_elements(pool: &Pool, dtype: DType, src: *const u8, dst: &mut [f32]) {
    let n = dst.len();
    let (to, from) = (SharedPtr(dst.as_mut_ptr()), SharedPtr(src.cast_mut()));
    pool.run(n.div_ceil(CHUNK), |i| {
        let (at, len) = (i * CHUNK, CHUNK.min(n - i * CHUNK));
        // SAFETY: the part lies in both; chunks do not overlap.
        unsafe {
            let dst = std::slice::from_raw_parts_mut(to.get().add(at), len);
            widen_row(dtype, from.get().add(dtype.size() * at), dst);
        }
    });
}

/// [`widen_elements`] on this thread.
///
/// # Safety
/// As for [`widen_elements`].
pub(super) unsafe fn widen_row(dtype: DType, src: *const u8, dst: &mut [f32]) {
    let n = dst.len();
    if n == 0 {
        return;
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        match dtype {
            DType::F16 => widen_f16s(std::slice::from_raw_parts(src.cast::<f16>(), n), dst),
            DType::U8 => widen_unsigned(std::slice::from_raw_parts(src, n), dst),
            DType::I8 => widen_signed(std::slice::from_raw_parts(src.cast::<i8>(), n), dst),
            _ => widen_bf16s(std::slice::from_raw_parts(src.cast::<bf16>(), n), dst),
        }
    }
}

/// [`widen_elements`] for bytes of any alignment. `bytes` has two for each element of `dst`.
pub(super) fn widen_bytes(dtype: DType, bytes: &[u8], dst: &mut [f32]) {
    for (x, b) in dst.iter_mut().zip(bytes.chunks_exact(2)) {
        let bits = u16::from_le_bytes([b[0], b[1]]);
        *x = match dtype {
            DType::F16 => widen_f16(f16::from_bits(bits)),
            _ => bf16::from_bits(bits).to_f32(),
        };
    }
}

wide_function! {
    /// Converts u8 to f32.
    pub(super) fn widen_unsigned = widen_unsigned_body(src: &[u8], dst: &mut [f32])
}

#[inline(always)]
fn widen_unsigned_body(src: &[u8], dst: &mut [f32]) {
    dst.iter_mut().zip(src).for_each(|(y, &x)| *y = x.into());
}

wide_function! {
    /// Converts i8 to f32.
    pub(super) fn widen_signed = widen_signed_body(src: &[i8], dst: &mut [f32])
}

#[inline(always)]
fn widen_signed_body(src: &[i8], dst: &mut [f32]) {
    dst.iter_mut().zip(src).for_each(|(y, &x)| *y = x.into());
}

wide_function! {
    /// Converts f32 that are integers of at most 2²⁴ to i32.
    pub(super) fn to_integers = to_integers_body(src: &[f32], dst: &mut [i32])
}

#[inline(always)]
#[expect(clippy::manual_clamp, reason = "`clamp` would return NaN")]
fn to_integers_body(src: &[f32], dst: &mut [i32]) {
    const MOST: f32 = 16_777_216.0;
    for (y, &x) in dst.iter_mut().zip(src) {
        // A saturating conversion takes more instructions than these bounds.
        let x = x.max(-MOST).min(MOST);
        // SAFETY: the number fits, and is not NaN.
        *y = unsafe { x.to_int_unchecked() };
    }
}

/// Converts `src` to `dtype` at `dst`: rounds to f16 or bf16 (to nearest, ties to even), or stores integers as i32.
///
/// # Safety
/// `dst` is writable for as many elements and aligned to them.
pub(super) unsafe fn narrow_row(dtype: DType, src: &[f32], dst: *mut u8) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match dtype {
            DType::I32 => to_integers(src, std::slice::from_raw_parts_mut(dst.cast::<i32>(), src.len())),
            DType::F16 => round_to_f16s(src, std::slice::from_raw_parts_mut(dst.cast(), src.len())),
            _ => round_to_bf16s(src, std::slice::from_raw_parts_mut(dst.cast(), src.len())),
        }
    }
}

/// [`narrow_row`] for a whole operand, in chunks.
///
/// # Safety
/// As for [`narrow_row`].
pub(super) unsafe fn narrow_elements(pool: &Pool, dtype: DType, src: &[f32], dst: *mut u8) {
    let to = SharedPtr(dst);
    pool.run(src.len().div_ceil(CHUNK), |i| {
        let part = &src[i * CHUNK..((i + 1) * CHUNK).min(src.len())];
        // SAFETY: the part lies in the destination; chunks do not overlap.
        unsafe { narrow_row(dtype, part, to.get().add(dtype.size() * i * CHUNK)) };
    });
}
