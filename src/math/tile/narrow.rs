//! Tiles for the few output channels of a narrow group: half a vector of columns, or a vector over several groups of
//! four.
//!
//! Here every multiply-add has its own load, so the loop's other instructions matter. Two pointers and four distances
//! address all rows of A, and the multiply-add itself broadcasts the element of A.

use super::{Kernels, Sums, TileFn, TileJob, finish_tile, init_sums};
use crate::math::isa::per_isa;
use crate::math::simd::Simd;

/// The addresses of the rows of A that [`accumulate_step`] reads.
struct RowAddresses {
    /// One row before row 0, and one row before row 8.
    base: [*const u8; 2],
    /// The distances of one, three, five and seven rows.
    rows: [usize; 4],
}

/// Computes a tile of `R` rows and half a vector of columns.
///
/// # Safety
/// As for [`TileFn`].
#[inline(always)]
pub(super) unsafe fn run_half_tile<S: Simd, const R: usize, const UNIT: bool>(t: &TileJob) {
    // SAFETY: the caller upholds the contract of `TileFn`.
    unsafe {
        let mut acc = init_sums::<S, R, 0, true>(t);
        let row = 4 * if UNIT { 1 } else { t.a_row };
        let rows = [row, 3 * row, 5 * row, 7 * row];
        let mut b = t.b;
        for s in 0..t.segment_count {
            let mut a = t.a.add(*t.segments.add(s)).cast::<u8>();
            let row_addresses = |a: *const u8| RowAddresses {
                base: [a.wrapping_sub(row), a.wrapping_add(7 * row)],
                rows,
            };
            let mut left = t.run;
            while left >= 4 && t.a_k == 1 {
                accumulate_step::<S, R, 0>(&mut acc.half, &row_addresses(a), b);
                accumulate_step::<S, R, 4>(&mut acc.half, &row_addresses(a), b.wrapping_add(t.b_k));
                accumulate_step::<S, R, 8>(&mut acc.half, &row_addresses(a), b.wrapping_add(2 * t.b_k));
                accumulate_step::<S, R, 12>(&mut acc.half, &row_addresses(a), b.wrapping_add(3 * t.b_k));
                a = a.wrapping_add(16);
                b = b.wrapping_add(4 * t.b_k);
                left -= 4;
            }
            for _ in 0..left {
                accumulate_step::<S, R, 0>(&mut acc.half, &row_addresses(a), b);
                a = a.wrapping_add(4 * t.a_k);
                b = b.wrapping_add(t.b_k);
            }
        }
        finish_tile::<S, R, 0, true>(t, &mut acc);
    }
}

/// Adds one product index, whose elements of A are `AT` bytes after the start of the rows.
#[inline(always)]
unsafe fn accumulate_step<S: Simd, const R: usize, const AT: usize>(
    acc: &mut [<S::Half as Simd>::V; R],
    a: &RowAddresses,
    b: *const f32,
) {
    // SAFETY: the caller provides `R` rows and half a vector of B.
    unsafe {
        let b = S::Half::load(b);
        // Row, pointer, distance, multiple of the distance.
        macro_rules! rows {
            ($($r:literal $base:literal $by:literal $times:literal;)*) => { $(
                if $r < R {
                    acc[$r] = S::half_fma_at::<$times, AT>(a.base[$base], a.rows[$by], b, acc[$r]);
                }
            )* };
        }
        rows! {
            0 0 0 1; 1 0 0 2; 2 0 1 1; 3 0 0 4; 4 0 2 1; 5 0 1 2; 6 0 3 1; 7 0 0 8;
            8 1 0 1; 9 1 0 2; 10 1 1 1; 11 1 0 4; 12 1 2 1; 13 1 1 2;
        }
    }
}

/// A tile of `R` pixels and one vector of channels in groups of four. Channel `4 g + o` is the sum over the inputs
/// `4 g + i` of a segment (of which `a` is the vector's first) times element `4 g + o` of B at product index `i`. The
/// run is four.
#[inline(always)]
unsafe fn fours_body<S: Simd, const R: usize>(t: &TileJob) {
    // SAFETY: the caller upholds the contract of `TileFn`; segments are followed by whole vectors.
    unsafe {
        let mut acc: Sums<S, R, 1, false> = init_sums(t);
        let mut b = t.b;
        for s in 0..t.segment_count {
            let a = t.a.add(*t.segments.add(s));
            let b4 = [0, 1, 2, 3].map(|i| S::load(b.add(i * S::LANES)));
            for r in 0..R {
                let x = S::spread_fours(S::load(a.add(r * t.a_row)));
                for i in 0..4 {
                    acc.whole[r][0] = S::fma(x[i], b4[i], acc.whole[r][0]);
                }
            }
            b = b.wrapping_add(4 * S::LANES);
        }
        finish_tile::<S, R, 1, false>(t, &mut acc);
    }
}

/// The stride between pixels, in channels, in a row of [`threes_body`].
pub(crate) const PIXEL: usize = 16;

/// A tile of `R` pixels, `ST` apart, and half a vector of columns, for kernels of width three. A segment is a row of
/// the kernel and its run is the channels; B has the three taps for each of them. An element of A is loaded once for
/// all taps that use it.
#[inline(always)]
unsafe fn threes_body<S: Simd, const R: usize, const ST: usize>(t: &TileJob) {
    // SAFETY: the caller upholds the contract of `TileFn`; pixels are `PIXEL` elements apart.
    unsafe {
        let mut acc: Sums<S, R, 0, true> = init_sums(t);
        let mut b = t.b;
        for s in 0..t.segment_count {
            let a = t.a.add(*t.segments.add(s));
            for i in 0..t.run {
                let a = a.add(i);
                let w = [0, 1, 2].map(|k| S::Half::load(b.add(k * S::Half::LANES)));
                // Unrolled by a macro: the compiler would not unroll this many steps.
                macro_rules! pixels {
                    ($($q:literal)*) => { $(
                        if $q < (R - 1) * ST + 3 {
                            let x = S::Half::splat(*a.add($q * PIXEL));
                            for k in 0..3 {
                                if $q >= k && ($q - k) % ST == 0 && ($q - k) / ST < R {
                                    let r = ($q - k) / ST;
                                    acc.half[r] = S::Half::fma(x, w[k], acc.half[r]);
                                }
                            }
                        }
                    )* };
                }
                pixels!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28);
                b = b.wrapping_add(3 * S::Half::LANES);
            }
        }
        finish_tile::<S, R, 0, true>(t, &mut acc);
    }
}

per_isa! {
    /// See [`threes_body`].
    fn tile_of_threes = threes_body<R: usize, ST: usize>(t: &TileJob)
}

per_isa! {
    /// See [`fours_body`].
    fn tile_of_fours = fours_body<R: usize>(t: &TileJob)
}

/// The kernels for each number of rows.
macro_rules! per_rows {
    ($f:ident, $isa:expr, $rows:expr $(, $more:literal)?) => {
        per_rows!(@ $f $isa, $rows, [$($more)?] 1 2 3 4 5 6 7 8 9 10 11 12 13 14)
    };
    (@ $f:ident $isa:expr, $rows:expr, $more:tt $($r:literal)*) => {
        match $rows {
            $($r => per_rows!(= $f $isa, $r $more),)*
            _ => panic!("no tile of {} rows", $rows),
        }
    };
    (= $f:ident $isa:expr, $r:literal []) => { $f::<$r>($isa) };
    (= $f:ident $isa:expr, $r:literal [$more:literal]) => { $f::<$r, $more>($isa) };
}

impl Kernels {
    /// The kernel for `rows` pixels and one vector of channels in groups of four inputs and four outputs.
    pub(crate) fn fours_kernel(&self, rows: usize) -> TileFn {
        per_rows!(tile_of_fours, self.isa, rows)
    }

    /// The kernel for `rows` pixels, one or two apart, at most eight columns and kernels of width three. `None` if the
    /// level has no vectors of eight.
    pub(crate) fn threes_kernel(&self, rows: usize, stride: usize) -> Option<TileFn> {
        match (self.isa.lanes(), stride) {
            (8 | 16, 1) => Some(per_rows!(tile_of_threes, self.isa, rows, 1)),
            (8 | 16, 2) => Some(per_rows!(tile_of_threes, self.isa, rows, 2)),
            _ => None,
        }
    }
}
