//! Unpacks panels of integers to pairs of bf16.

use super::PackedIntegers;
use crate::math::isa::per_isa;
use crate::math::pairs::COLS;
use crate::math::simd::Simd;
use crate::target::Isa;
use crate::tensor::round_to_bf16;

/// The number of product indices that are unpacked at a time.
const PAIR_BLOCK: usize = 64;

impl PackedIntegers {
    /// Writes panel `j` in pairs of bf16, padded to `run` product indices, as
    /// [`pack_pairs`](crate::math::pairs::pack::pack_pairs) does. Each element is rounded once.
    ///
    /// # Safety
    /// As for [`PackedIntegers::unpack`]; the panel has [`COLS`] columns, and `dst` has room for `run` product indices.
    pub(in crate::math::matmul) unsafe fn unpack_pairs(&self, isa: Isa, j: usize, run: usize, dst: *mut u16) {
        // The f32 elements of a block stay in the L1 cache.
        let mut block = [0f32; PAIR_BLOCK * COLS];
        for start in (0..run).step_by(PAIR_BLOCK) {
            let (filled, end) = (self.k.min(start + PAIR_BLOCK), run.min(start + PAIR_BLOCK));
            block[filled.saturating_sub(start) * COLS..].fill(0.0);
            // SAFETY: the block has room for the product indices; the caller provides room for them as pairs.
            unsafe {
                if filled > start {
                    self.unpack(isa, j, [start, filled], block.as_mut_ptr());
                }
                let out = std::slice::from_raw_parts_mut(dst.add(start * COLS).cast::<u32>(), (end - start) / 2 * COLS);
                pairing_kernel(isa)(&block, out);
            }
        }
    }
}

/// Rounds rows of [`COLS`] elements to bf16, and joins the elements of each two rows.
#[inline(always)]
unsafe fn pair_rows<S: Simd>(rows: &[f32], out: &mut [u32]) {
    for (rows, out) in rows.chunks_exact(2 * COLS).zip(out.chunks_exact_mut(COLS)) {
        let (even, odd) = rows.split_at(COLS);
        for ((out, even), odd) in out.iter_mut().zip(even).zip(odd) {
            let [even, odd] = [round_to_bf16(*even), round_to_bf16(*odd)].map(|x| u32::from(x.to_bits()));
            *out = even | odd << 16;
        }
    }
}

per_isa! {
    /// The kernel that joins rows in pairs.
    fn pairing_kernel = pair_rows(rows: &[f32], out: &mut [u32])
}
