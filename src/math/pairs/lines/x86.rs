//! Tiles of `vdpbf16ps`.

mod products;

use super::{AHEAD, COLS, LineJob};
use crate::math::simd::prefetch;
use products::{add_products, splat_last, splat_pair};
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

/// A part of a product: the row and the column it begins with, and the number of its columns.
#[derive(Clone, Copy)]
struct Place {
    row: usize,
    col: usize,
    cols: usize,
}

type TileFn = unsafe fn(&LineJob, Place);

/// Computes rows `row..end` and columns `first..last`.
///
/// # Safety
/// They lie in the product, whose operands are valid. The machine has the instructions.
pub(super) unsafe fn multiply_tile(j: &LineJob, [row, end]: [usize; 2], [first, last]: [usize; 2]) {
    let rows = end - row;
    let place = |col: usize, cols: usize| Place { row, col, cols };
    let mut col = first;
    // SAFETY: guaranteed by the caller.
    unsafe {
        for (width, most) in [(4, 2), (2, 6), (1, super::TILE)] {
            if rows > most || last - col < width * COLS {
                continue;
            }
            let tile = wide_tile_of(rows, width);
            while last - col >= width * COLS {
                tile(j, place(col, width * COLS));
                col += width * COLS;
            }
        }
        match last - col {
            0 => {}
            n if n <= COLS / 2 => narrow_tile_of(rows)(j, place(col, n)),
            // Some columns are computed again: that is faster than vectors with masks.
            _ if last - first >= COLS => wide_tile_of(rows, 1)(j, place(last - COLS, COLS)),
            n => masked_tile_of(rows)(j, place(col, n)),
        }
    }
}

/// The kernel `$tile` for a number of rows.
macro_rules! by_rows {
    ($rows:expr, $($r:literal)*, $tile:ident) => {
        match $rows {
            $($r => $tile::<$r>,)*
            n => panic!("no tile of {n} rows"),
        }
    };
    ($rows:expr, $($r:literal)*, $tile:ident, $width:literal, $masked:literal) => {
        match $rows {
            $($r => $tile::<$r, $width, $masked>,)*
            n => panic!("no tile of {n} rows"),
        }
    };
}

/// The kernel for `width` times [`COLS`] columns: four times of up to 2 rows, twice of up to 6, or once.
fn wide_tile_of(rows: usize, width: usize) -> TileFn {
    match width {
        4 => by_rows!(rows, 1 2, wide_tile, 4, false),
        2 => by_rows!(rows, 1 2 3 4 5 6, wide_tile, 2, false),
        _ => by_rows!(rows, 1 2 3 4 5 6 7 8 9 10 11 12, wide_tile, 1, false),
    }
}

/// The kernel for less than [`COLS`] columns.
fn masked_tile_of(rows: usize) -> TileFn {
    by_rows!(rows, 1 2 3 4 5 6 7 8 9 10 11 12, wide_tile, 1, true)
}

/// The kernel for at most half as many columns.
fn narrow_tile_of(rows: usize) -> TileFn {
    by_rows!(rows, 1 2 3 4 5 6 7 8 9 10 11 12, narrow_tile)
}

/// `R` rows by `W` times [`COLS`] columns, or less if `MASKED`. In each group of eight columns, the first of two vectors has the
/// first four, as `vpunpcklwd` leaves them.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,avx2,fma")]
unsafe fn wide_tile<const R: usize, const W: usize, const MASKED: bool>(j: &LineJob, at: Place) {
    // SAFETY: the caller provides the operands; masks restrict reads to existing columns.
    unsafe {
        let mask = if MASKED { (1u32 << at.cols) - 1 } else { u32::MAX };
        let (a, b) = (j.a.add(at.row * j.a_row), j.b.add(at.col));
        let (offsets, count) = (j.lines.offsets.as_ptr(), j.lines.count);
        let mut acc = [[[_mm512_setzero_ps(); 2]; W]; R];
        if j.starts_with_addend() {
            for r in 0..R {
                for w in 0..W {
                    acc[r][w] = wide_addend::<MASKED>(j, [at.row + r, at.col + w * COLS], mask);
                }
            }
        }
        for k in (0..count / 2 * 2).step_by(2) {
            let lines = [*offsets.add(k), *offsets.add(k + 1)].map(|at| b.wrapping_add(at));
            if R <= 6 && !MASKED {
                prefetch_lines::<W>(b, offsets.add(k + AHEAD));
            }
            add_lines::<R, W, MASKED, true>((a.add(k), j.a_row), lines, mask, &mut acc);
        }
        if count % 2 == 1 {
            let last = b.add(*offsets.add(count - 1));
            add_lines::<R, W, MASKED, false>((a.add(count - 1), j.a_row), [last; 2], mask, &mut acc);
        }
        store_wide::<R, W, MASKED>(j, at, mask, &acc);
    }
}

/// Finishes and stores the sums of a tile.
#[inline(always)]
unsafe fn store_wide<const R: usize, const W: usize, const MASKED: bool>(
    j: &LineJob,
    at: Place,
    mask: u32,
    acc: &[[[__m512; 2]; W]; R],
) {
    // SAFETY: the caller provides the columns.
    unsafe {
        if j.ends_with_sums() && !MASKED {
            for r in 0..R {
                for w in 0..W {
                    let c = j.c.add((at.row + r) * j.c_row + at.col + w * COLS);
                    _mm512_storeu_si512(c.cast(), round_wide(acc[r][w]));
                }
            }
            return;
        }
        // Through memory: the rest is too long to be repeated for each register.
        let mut sums = [[[MaybeUninit::<__m512>::uninit(); 2]; W]; R];
        for r in 0..R {
            for w in 0..W {
                sums[r][w][0].write(acc[r][w][0]);
                sums[r][w][1].write(acc[r][w][1]);
            }
        }
        for r in 0..R {
            for w in 0..W {
                let [low, high] = sums[r][w];
                let place = [at.row + r, at.col + w * COLS];
                finish_wide::<MASKED>(j, place, mask, [low.assume_init(), high.assume_init()]);
            }
        }
    }
}

/// Adds the products with two lines, or only with the first one unless `PAIR`. `a` is the element of row 0 and the stride between
/// rows.
#[inline(always)]
unsafe fn add_lines<const R: usize, const W: usize, const MASKED: bool, const PAIR: bool>(
    (a, a_row): (*const u16, usize),
    [even, odd]: [*const u16; 2],
    mask: u32,
    acc: &mut [[[__m512; 2]; W]; R],
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut columns = [[_mm512_setzero_si512(); 2]; W];
        for w in 0..W {
            let x = load_line::<MASKED>(even.add(w * COLS), mask);
            let mut y = _mm512_setzero_si512();
            if PAIR {
                y = load_line::<MASKED>(odd.add(w * COLS), mask);
            }
            columns[w] = [_mm512_unpacklo_epi16(x, y), _mm512_unpackhi_epi16(x, y)];
        }
        for r in 0..R {
            let x = if PAIR {
                splat_pair(a.add(r * a_row))
            } else {
                splat_last(a.add(r * a_row))
            };
            for w in 0..W {
                acc[r][w][0] = add_products(acc[r][w][0], x, columns[w][0]);
                acc[r][w][1] = add_products(acc[r][w][1], x, columns[w][1]);
            }
        }
    }
}

/// [`COLS`] elements of a line, or those of the mask.
#[inline(always)]
unsafe fn load_line<const MASKED: bool>(p: *const u16, mask: u32) -> __m512i {
    // SAFETY: the caller provides the elements.
    unsafe {
        match MASKED {
            true => _mm512_maskz_loadu_epi16(mask, p.cast()),
            false => _mm512_loadu_si512(p.cast()),
        }
    }
}

/// Prefetches from two lines: rows of a large matrix are too far apart for the processor to foresee.
#[inline(always)]
unsafe fn prefetch_lines<const W: usize>(b: *const u16, offsets: *const usize) {
    for i in 0..2 {
        // SAFETY: the caller provides two offsets.
        let line = b.wrapping_add(unsafe { *offsets.add(i) });
        for w in 0..W {
            prefetch(line.wrapping_add(w * COLS).cast());
        }
    }
}

/// Scales sums, adds the addend unless sums started with it, and clamps.
#[inline(always)]
unsafe fn finish(j: &LineJob, mut y: __m512, addend: __m512) -> __m512 {
    // SAFETY: the caller runs on a machine with the instructions.
    unsafe {
        if j.alpha != 1.0 {
            y = _mm512_mul_ps(_mm512_set1_ps(j.alpha), y);
        }
        if j.addend.is_some() && !j.starts_with_addend() {
            y = _mm512_add_ps(y, _mm512_mul_ps(_mm512_set1_ps(j.beta), addend));
        }
        if let Some((lo, hi)) = j.clamp {
            y = _mm512_min_ps(_mm512_set1_ps(hi), _mm512_max_ps(_mm512_set1_ps(lo), y));
        }
        y
    }
}

/// A bf16 in all lanes, as f32.
#[inline(always)]
unsafe fn splat_wide(p: *const u16) -> __m512 {
    // SAFETY: the caller provides the element.
    unsafe { _mm512_set1_ps(f32::from_bits((*p as u32) << 16)) }
}

/// Rounds the two vectors of [`COLS`] columns, and moves these into order.
#[inline(always)]
unsafe fn round_wide([low, high]: [__m512; 2]) -> __m512i {
    // SAFETY: the caller runs on a machine with the instructions.
    unsafe {
        let both: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(high, low));
        _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), both)
    }
}

/// The addend of up to [`COLS`] columns.
#[inline(always)]
unsafe fn wide_addend<const MASKED: bool>(j: &LineJob, [row, col]: [usize; 2], mask: u32) -> [__m512; 2] {
    // SAFETY: the caller provides the columns.
    unsafe {
        match j.addend {
            Some((p, [s_row, 0])) => [splat_wide(p.add(row * s_row)); 2],
            Some((p, [s_row, _])) => {
                let x = load_line::<MASKED>(p.add(row * s_row + col), mask);
                let zero = _mm512_setzero_si512();
                // An element behind zeros is an f32.
                let halves = [_mm512_unpacklo_epi16(zero, x), _mm512_unpackhi_epi16(zero, x)];
                [_mm512_castsi512_ps(halves[0]), _mm512_castsi512_ps(halves[1])]
            }
            None => [_mm512_setzero_ps(); 2],
        }
    }
}

/// Finishes and stores the sums of up to [`COLS`] columns.
#[inline(always)]
unsafe fn finish_wide<const MASKED: bool>(j: &LineJob, [row, col]: [usize; 2], mask: u32, sums: [__m512; 2]) {
    // SAFETY: the caller provides the columns.
    unsafe {
        let addend = match j.addend.is_some() && !j.starts_with_addend() {
            true => wide_addend::<MASKED>(j, [row, col], mask),
            false => [_mm512_setzero_ps(); 2],
        };
        let (low, high) = (finish(j, sums[0], addend[0]), finish(j, sums[1], addend[1]));
        let in_order = round_wide([low, high]);
        let c = j.c.add(row * j.c_row + col);
        match MASKED {
            true => _mm512_mask_storeu_epi16(c.cast(), mask, in_order),
            false => _mm512_storeu_si512(c.cast(), in_order),
        }
    }
}

/// `R` rows by at most half of [`COLS`] columns.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,avx2,fma")]
unsafe fn narrow_tile<const R: usize>(j: &LineJob, at: Place) {
    // SAFETY: the caller provides the operands; masks restrict reads to existing columns.
    unsafe {
        let mask = ((1u32 << at.cols) - 1) as __mmask16;
        let (a, b) = (j.a.add(at.row * j.a_row), j.b.add(at.col));
        let (offsets, count) = (j.lines.offsets.as_ptr(), j.lines.count);
        let mut acc = [_mm512_setzero_ps(); R];
        if j.starts_with_addend() {
            for r in 0..R {
                acc[r] = narrow_addend(j, [at.row + r, at.col], mask);
            }
        }
        for k in (0..count / 2 * 2).step_by(2) {
            let lines = [*offsets.add(k), *offsets.add(k + 1)].map(|at| b.wrapping_add(at));
            add_narrow_lines::<R, true>((a.add(k), j.a_row), lines, mask, &mut acc);
        }
        if count % 2 == 1 {
            let last = b.add(*offsets.add(count - 1));
            add_narrow_lines::<R, false>((a.add(count - 1), j.a_row), [last; 2], mask, &mut acc);
        }
        if j.ends_with_sums() {
            for r in 0..R {
                let y: __m256i = std::mem::transmute(_mm512_cvtneps_pbh(acc[r]));
                let c = j.c.add((at.row + r) * j.c_row + at.col);
                _mm256_mask_storeu_epi16(c.cast(), mask, y);
            }
            return;
        }
        let mut sums = [MaybeUninit::<__m512>::uninit(); R];
        for r in 0..R {
            sums[r].write(acc[r]);
        }
        for r in 0..R {
            finish_narrow(j, [at.row + r, at.col], mask, sums[r].assume_init());
        }
    }
}

/// [`add_lines`] for one vector of columns, in order.
#[inline(always)]
unsafe fn add_narrow_lines<const R: usize, const PAIR: bool>(
    (a, a_row): (*const u16, usize),
    [even, odd]: [*const u16; 2],
    mask: __mmask16,
    acc: &mut [__m512; R],
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut columns = load_narrow(even, mask);
        if PAIR {
            columns = _mm512_or_si512(columns, _mm512_slli_epi32::<16>(load_narrow(odd, mask)));
        }
        for r in 0..R {
            let x = if PAIR {
                splat_pair(a.add(r * a_row))
            } else {
                splat_last(a.add(r * a_row))
            };
            acc[r] = add_products(acc[r], x, columns);
        }
    }
}

/// The elements of the mask, each in the lower half of a lane.
#[inline(always)]
unsafe fn load_narrow(p: *const u16, mask: __mmask16) -> __m512i {
    // SAFETY: the caller provides the elements.
    unsafe { _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, p.cast())) }
}

/// The addend of up to half of [`COLS`] columns.
#[inline(always)]
unsafe fn narrow_addend(j: &LineJob, [row, col]: [usize; 2], mask: __mmask16) -> __m512 {
    // SAFETY: the caller provides the columns.
    unsafe {
        match j.addend {
            Some((p, [s_row, 0])) => splat_wide(p.add(row * s_row)),
            Some((p, [s_row, _])) => {
                let x = load_narrow(p.add(row * s_row + col), mask);
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(x))
            }
            None => _mm512_setzero_ps(),
        }
    }
}

/// Finishes and stores the sums of up to half of [`COLS`] columns.
#[inline(always)]
unsafe fn finish_narrow(j: &LineJob, [row, col]: [usize; 2], mask: __mmask16, sums: __m512) {
    // SAFETY: the caller provides the columns.
    unsafe {
        let addend = match j.addend.is_some() && !j.starts_with_addend() {
            true => narrow_addend(j, [row, col], mask),
            false => _mm512_setzero_ps(),
        };
        let y: __m256i = std::mem::transmute(_mm512_cvtneps_pbh(finish(j, sums, addend)));
        _mm256_mask_storeu_epi16(j.c.add(row * j.c_row + col).cast(), mask, y);
    }
}
