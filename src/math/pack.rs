//! Packing: copies parts of a matrix into the order in which the register tile reads them.
//!
//! A *panel* interleaves `width` rows (of A) or columns (of B): for each product index, its `width` elements are
//! adjacent. One routine serves both operands; only the names of the strides differ.

/// Packs `count` lines (rows of A, columns of B) of `kc` elements each into `dst[k * width + line]`, padding lines
/// `count..width` with zeros. `line` and `k` are the source's strides from one line to the next and along a line.
///
/// # Safety
/// `src` is readable at `l * line + i * k` for `l < count`, `i < kc`; `dst` is writable for `kc * width`;
/// `count <= width`.
pub(super) unsafe fn pack_panel(
    src: *const f32,
    line: usize,
    k: usize,
    count: usize,
    width: usize,
    kc: usize,
    dst: *mut f32,
) {
    // SAFETY: each helper reads and writes within what the caller promised.
    unsafe {
        if line == 1 {
            for i in 0..kc {
                copy_elements(src.add(i * k), dst.add(i * width), count);
            }
        } else if k == 1 {
            transpose_lines(src, line, count, width, kc, dst);
        } else {
            for i in 0..kc {
                for l in 0..count {
                    *dst.add(i * width + l) = *src.add(l * line + i * k);
                }
            }
        }
        if count < width {
            for i in 0..kc {
                dst.add(i * width + count).write_bytes(0, width - count);
            }
        }
    }
}

/// Copies `n` elements in a loop: for so few, `memcpy` costs more than it saves.
///
/// # Safety
/// Both are valid for `n` elements and do not overlap.
#[inline(always)]
unsafe fn copy_elements(src: *const f32, dst: *mut f32, n: usize) {
    let whole = n / 4 * 4;
    // SAFETY: the blocks and the rest cover `n` elements.
    unsafe {
        for i in (0..whole).step_by(4) {
            dst.add(i)
                .cast::<[f32; 4]>()
                .write_unaligned(src.add(i).cast::<[f32; 4]>().read_unaligned());
        }
        for i in whole..n {
            *dst.add(i) = *src.add(i);
        }
    }
}

/// [`pack_panel`] for contiguous lines: a transpose in 4x4 blocks.
///
/// # Safety
/// As for [`pack_panel`] with `k == 1`.
unsafe fn transpose_lines(src: *const f32, line: usize, count: usize, width: usize, kc: usize, dst: *mut f32) {
    let (lines4, kc4) = (count / 4 * 4, kc / 4 * 4);
    // SAFETY: the blocks and the two remainders cover `count` lines of `kc` elements.
    unsafe {
        // The part of the destination that all lines write stays in the L1 cache.
        for block in (0..kc4).step_by(64) {
            for l in (0..lines4).step_by(4) {
                for i in (block..kc4.min(block + 64)).step_by(4) {
                    transpose_4x4(src.add(l * line + i), line, dst.add(i * width + l), width);
                }
            }
        }
        for q in 0..lines4 {
            for i in kc4..kc {
                *dst.add(i * width + q) = *src.add(q * line + i);
            }
        }
        for l in lines4..count {
            for i in 0..kc {
                *dst.add(i * width + l) = *src.add(l * line + i);
            }
        }
    }
}

/// Transposes four rows of four f32.
///
/// # Safety
/// `src` is readable for four rows `src_row` apart, `dst` writable for four rows `dst_row` apart.
#[inline(always)]
pub(super) unsafe fn transpose_4x4(src: *const f32, src_row: usize, dst: *mut f32, dst_row: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::*;
        // SAFETY: SSE is part of x86-64; the caller gives the memory.
        unsafe {
            let mut r0 = _mm_loadu_ps(src);
            let mut r1 = _mm_loadu_ps(src.add(src_row));
            let mut r2 = _mm_loadu_ps(src.add(2 * src_row));
            let mut r3 = _mm_loadu_ps(src.add(3 * src_row));
            _MM_TRANSPOSE4_PS(&mut r0, &mut r1, &mut r2, &mut r3);
            _mm_storeu_ps(dst, r0);
            _mm_storeu_ps(dst.add(dst_row), r1);
            _mm_storeu_ps(dst.add(2 * dst_row), r2);
            _mm_storeu_ps(dst.add(3 * dst_row), r3);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    for i in 0..4 {
        for j in 0..4 {
            // SAFETY: the caller provides the memory.
            unsafe { *dst.add(j * dst_row + i) = *src.add(i * src_row + j) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_interleave_lines() {
        for (count, width, kc) in [(1, 1, 1), (14, 14, 9), (5, 8, 7), (32, 32, 33), (3, 32, 4)] {
            for (line, k) in [(1, 40), (50, 1), (100, 3)] {
                let src: Vec<f32> = (0..count * line + kc * k).map(|i| i as f32).collect();
                let mut dst = vec![-1.0; kc * width];
                // SAFETY: both arrays are large enough.
                unsafe { pack_panel(src.as_ptr(), line, k, count, width, kc, dst.as_mut_ptr()) };
                for i in 0..kc {
                    for l in 0..width {
                        let want = if l < count { src[l * line + i * k] } else { 0.0 };
                        assert_eq!(dst[i * width + l], want);
                    }
                }
            }
        }
    }
}
