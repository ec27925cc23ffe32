//! Products of rows of 8-bit integers with integers, by `vpdpbusd`: the sums of each group are exact.
//!
//! Such rows are activations that were quantized with a scale and a zero point for each row; the graph multiplies the scale and subtracts
//! the zero point's share after the product. With one byte for an element, this takes a third of the multiplications of
//! [digits](super::digits).

use super::digits::split_nibbles;
use super::form::StoredWidth;
use super::kernels::{AHEAD, FewRows, ProductJob, multiply_in_fours};
use crate::math::scratch::{self, Scratch};
use crate::math::simd::{Avx512, prefetch};
use std::arch::x86_64::*;

/// The number of lanes of a vector.
const LANES: usize = 16;
/// Rows of integers from -128 to 127, as bytes.
pub(in crate::math::matmul) struct SmallRows {
    k: usize,
    groups: usize,
    /// A byte for each element.
    bytes: Scratch,
    /// For each row and group of product indices, the sum of the elements, as i32.
    sums: Scratch,
}

impl SmallRows {
    /// The rows of A, whose length is `k`, with the sums of groups of `group` elements, which is a multiple of 32.
    ///
    /// # Safety
    /// The pointers of `rows` are valid, and the elements are integers from -128 to 127. The machine has AVX-512.
    pub(super) unsafe fn new(rows: &FewRows, k: usize, group: usize) -> SmallRows {
        let groups = k / group;
        let mut small = SmallRows {
            k,
            groups,
            bytes: scratch::take_buffer((rows.count * k).div_ceil(4)),
            sums: scratch::take_buffer(rows.count * groups),
        };
        for (r, g) in (0..rows.count).flat_map(|r| (0..groups).map(move |g| (r, g))) {
            let x = rows
                .a
                .wrapping_add(r * rows.a_strides[0] + g * group * rows.a_strides[1]);
            // SAFETY: guaranteed by the caller; the buffers have the group.
            unsafe {
                let to = small.bytes.as_mut_ptr().cast::<i8>().add(r * k + g * group);
                let sum = narrow(x, rows.a_strides[1], group, to);
                *small.sums.as_mut_ptr().cast::<i32>().add(r * groups + g) = sum;
            }
        }
        small
    }

    fn row(&self, r: usize) -> SmallRow {
        SmallRow {
            bytes: self.bytes.as_ptr().cast::<i8>().wrapping_add(r * self.k),
            sums: self.sums.as_ptr().cast::<i32>().wrapping_add(r * self.groups),
        }
    }
}

/// A row of [`SmallRows`].
#[derive(Clone, Copy)]
struct SmallRow {
    bytes: *const i8,
    sums: *const i32,
}

/// Converts `len` elements, a multiple of 16, that are `stride` apart, and returns their sum.
///
/// # Safety
/// The pointers are valid. The machine has AVX-512.
#[target_feature(enable = "avx512f,avx512vl,avx2,fma")]
unsafe fn narrow(x: *const f32, stride: usize, len: usize, to: *mut i8) -> i32 {
    let mut sum = _mm512_setzero_si512();
    let mut block = [0f32; LANES];
    for i in (0..len).step_by(LANES) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let mut at = x.add(i * stride);
            if stride != 1 {
                for (l, to) in block.iter_mut().enumerate() {
                    *to = *at.add(l * stride);
                }
                at = block.as_ptr();
            }
            let v = _mm512_cvtps_epi32(_mm512_loadu_ps(at));
            sum = _mm512_add_epi32(sum, v);
            _mm_storeu_si128(to.add(i).cast(), _mm512_cvtepi32_epi8(v));
        }
    }
    _mm512_reduce_add_epi32(sum)
}

/// Multiplies all rows of a job with its panel, whose integers are in groups of four.
///
/// # Safety
/// The job's pointers are valid, and `small` has its rows. The machine has AVX-512 VNNI.
pub(super) unsafe fn multiply(j: &ProductJob, small: &SmallRows) {
    // SAFETY: guaranteed by the caller.
    unsafe { multiply_in_fours!(j, small) }
}

/// `R` rows from row `row` on, of nibbles or bytes.
#[target_feature(enable = "avx512f,avx512vl,avx512vnni,avx2,fma")]
unsafe fn multiply_rows<const R: usize, const NIBBLES: bool>(j: &ProductJob, small: &SmallRows, row: usize) {
    let mut rows = [small.row(row); R];
    for (r, to) in rows.iter_mut().enumerate() {
        *to = small.row(row + r);
    }
    let mut total = [[_mm512_setzero_ps(); 2]; R];
    // SAFETY: the caller provides operands valid for the job.
    unsafe {
        for g in 0..small.groups {
            j.groups.prefetch_next_panel(g, j.k);
            let acc = multiply_group::<R, NIBBLES>(j, &rows, g);
            let zeros = j.groups.load_zeros::<Avx512>(g);
            let scales = j.groups.load_scales::<Avx512>(g);
            for r in 0..R {
                for v in 0..2 {
                    let mut sum = _mm512_cvtepi32_ps(acc[r][v]);
                    if let Some(zeros) = zeros {
                        let minus = _mm512_set1_ps(-(*rows[r].sums.add(g) as f32));
                        sum = _mm512_fmadd_ps(minus, zeros[v], sum);
                    }
                    total[r][v] = _mm512_fmadd_ps(sum, scales[v], total[r][v]);
                }
            }
        }
        for r in 0..R {
            super::kernels::store_row::<Avx512>(&j.rows, row + r, total[r]);
        }
    }
}

/// The sums of the products of group `g`, without scales and zero points.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512vnni,avx2,fma")]
unsafe fn multiply_group<const R: usize, const NIBBLES: bool>(
    j: &ProductJob,
    rows: &[SmallRow; R],
    g: usize,
) -> [[__m512i; 2]; R] {
    // What the stored integers are off from unsigned ones, and the number of groups of four product indices in a vector.
    let (offset, step) = if NIBBLES { (8, 2) } else { (128, 1) };
    let mut acc = [[_mm512_setzero_si512(); 2]; R];
    // SAFETY: the caller provides the rows and the panel.
    unsafe {
        for r in 0..R {
            acc[r] = [_mm512_set1_epi32(-offset * *rows[r].sums.add(g)); 2];
        }
        let start = g * j.groups.size;
        let data = j.data.add(start * 2 * LANES / step);
        for q in (0..j.groups.size / 4).step_by(step) {
            let at = data.add(q / step * 8 * LANES);
            let w = [
                _mm512_loadu_si512(at.cast()),
                _mm512_loadu_si512(at.add(4 * LANES).cast()),
            ];
            prefetch(at.wrapping_add(AHEAD));
            prefetch(at.wrapping_add(AHEAD + 4 * LANES));
            let i = start + 4 * q;
            if NIBBLES {
                let [low, high] = split_nibbles(w);
                add_quad(&mut acc, low, rows, i);
                add_quad(&mut acc, high, rows, i + 4);
            } else {
                let flip = _mm512_set1_epi8(-128);
                let w = [_mm512_xor_si512(w[0], flip), _mm512_xor_si512(w[1], flip)];
                add_quad(&mut acc, w, rows, i);
            }
        }
    }
    acc
}

/// Adds the products of four product indices from `i` on.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512vnni,avx2,fma")]
unsafe fn add_quad<const R: usize>(acc: &mut [[__m512i; 2]; R], w: [__m512i; 2], rows: &[SmallRow; R], i: usize) {
    for r in 0..R {
        // SAFETY: the caller provides the rows.
        let x = unsafe { rows[r].bytes.add(i).cast::<i32>().read_unaligned() };
        for v in 0..2 {
            acc[r][v] = _mm512_dpbusd_epi32(acc[r][v], w[v], _mm512_set1_epi32(x));
        }
    }
}
