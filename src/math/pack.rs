//! Packing: copies parts of a matrix into the order in which the register tile reads them.
//!
//! A *panel* interleaves `width` rows (of A) or columns (of B): for each product index, its `width` elements are
//! adjacent. One routine serves both operands; only the names of the strides differ.

use super::transpose::transpose;

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
            transpose(src, line, count, kc, dst, width);
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
