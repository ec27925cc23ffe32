//! Conversions between f32 and f16 or bf16.

use super::scratch::SharedPtr;
use crate::parallel::Pool;
use crate::types::DType;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// The number of elements in a chunk.
const CHUNK: usize = 16 * 1024;

/// Converts `dst.len()` elements of the 16-bit `dtype` from `src`.
///
/// # Safety
/// `src` is readable for these elements and aligned to 2 bytes, unless `dst` is empty.
pub(super) unsafe fn widen_elements(pool: &Pool, dtype: DType, src: *const u8, dst: &mut [f32]) {
    let n = dst.len();
    let (to, from) = (SharedPtr(dst.as_mut_ptr()), SharedPtr(src.cast_mut()));
    pool.run(n.div_ceil(CHUNK), |i| {
        let (at, len) = (i * CHUNK, CHUNK.min(n - i * CHUNK));
        // SAFETY: the part lies in both; chunks do not overlap.
        unsafe {
            let dst = std::slice::from_raw_parts_mut(to.get().add(at), len);
            match dtype {
                DType::F16 => {
                    std::slice::from_raw_parts(from.get().cast::<f16>().add(at), len).convert_to_f32_slice(dst)
                }
                _ => std::slice::from_raw_parts(from.get().cast::<bf16>().add(at), len).convert_to_f32_slice(dst),
            }
        }
    });
}

/// [`widen_elements`] for bytes of any alignment. `bytes` has two for each element of `dst`.
pub(super) fn widen_bytes(dtype: DType, bytes: &[u8], dst: &mut [f32]) {
    for (x, b) in dst.iter_mut().zip(bytes.chunks_exact(2)) {
        let bits = u16::from_le_bytes([b[0], b[1]]);
        *x = match dtype {
            DType::F16 => f16::from_bits(bits).to_f32(),
            _ => bf16::from_bits(bits).to_f32(),
        };
    }
}

/// Rounds `src` to 16-bit `dtype` (to nearest, ties to even) at `dst`.
///
/// # Safety
/// `dst` is writable for as many elements and aligned to 2 bytes.
pub(super) unsafe fn narrow_row(dtype: DType, src: &[f32], dst: *mut u8) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match dtype {
            DType::F16 => std::slice::from_raw_parts_mut(dst.cast::<f16>(), src.len()).convert_from_f32_slice(src),
            _ => std::slice::from_raw_parts_mut(dst.cast::<bf16>(), src.len()).convert_from_f32_slice(src),
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
        unsafe { narrow_row(dtype, part, to.get().add(2 * i * CHUNK)) };
    });
}
