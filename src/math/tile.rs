//! The register tile: the inner kernel of matrix products and of direct convolution.
//!
//! One call computes `R x (V * LANES)` elements of `C = A · B`, which stay in registers throughout. If the last AVX-512
//! vector would be half empty, the tile ends with half a vector: processors that execute 512 bits in two steps then
//! execute only one. Rows of A are read element by element and broadcast; B is read as vectors. The product index runs
//! over segments of A. A matrix product has one segment. A direct convolution has one for each contiguous run of input
//! (a kernel row, or a kernel tap).
//!
//! The sum of every element follows the order of the product index, whatever `R` and `V` are and wherever a caller
//! splits the index. Results therefore do not depend on how a problem is split into tiles.

pub(super) mod narrow;
mod prefetch;
mod split;

#[cfg(target_arch = "x86_64")]
use super::simd::{Avx2, Avx512};
use super::simd::{Portable, Simd};
use crate::target::Isa;
pub(super) use prefetch::Prefetch;
pub(super) use split::{Tiles, block_size};

/// The initial values of the accumulators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Init {
    /// Zero.
    Zero,
    /// The elements of C, which hold the sum over an earlier part of the product index.
    Output,
    /// [`TileJob::bias`], one element for each column.
    Bias,
    /// [`TileJob::bias`], one element for each row.
    RowBias,
    /// [`TileJob::bias`], one element for each element of C, with the same stride between rows.
    Matrix,
}

/// The operands of one tile. All strides are in elements.
pub(super) struct TileJob {
    /// Row 0 of A, before the segment's offset.
    pub a: *const f32,
    /// The stride between rows of A. Kernels with `unit` rows ignore it and use 1.
    pub a_row: usize,
    /// The stride between product indices within a segment.
    pub a_k: usize,
    /// The offset of each segment from `a`.
    pub segments: *const usize,
    /// The number of segments.
    pub segment_count: usize,
    /// The number of product indices in a segment.
    pub run: usize,
    /// Row 0 of B's panel. Full vectors are read, whatever `cols` is.
    pub b: *const f32,
    /// The stride between product indices of B.
    pub b_k: usize,
    /// The stride between panels of two vectors, for kernels with more than two vectors.
    pub b_panel: usize,
    /// The first element of C.
    pub c: *mut f32,
    /// The stride between rows of C. Columns are contiguous.
    pub c_row: usize,
    /// The number of columns to store, at most `V * LANES`.
    pub cols: usize,
    /// The initial values.
    pub init: Init,
    /// The bias, for [`Init::Bias`], [`Init::RowBias`] and [`Init::Matrix`].
    pub bias: *const f32,
    /// The bounds to clamp the results to, if any. NaN stays NaN.
    pub clamp: Option<(f32, f32)>,
    /// What the tile prefetches.
    pub next: Prefetch,
}

/// The one segment of a plain matrix product.
pub(super) static ONE_SEGMENT: [usize; 1] = [0];

/// A tile kernel.
///
/// # Safety
/// The machine supports the kernel's instructions, and the job's pointers are valid for the tile: A for `R` rows over
/// all segments, B for `V * LANES` elements at every product index, C (and the bias) for `cols` columns.
pub(super) type TileFn = unsafe fn(&TileJob);

/// The accumulators of a tile: `R` rows of `V` vectors, followed by half a vector if `H`.
struct Sums<S: Simd, const R: usize, const V: usize, const H: bool> {
    whole: [[S::V; V]; R],
    half: [<S::Half as Simd>::V; R],
}

#[inline(always)]
unsafe fn body<S: Simd, const R: usize, const V: usize, const H: bool, const UNIT: bool>(t: &TileJob) {
    // SAFETY: the caller upholds the contract of `TileFn`.
    unsafe {
        if V == 0 {
            return narrow::run_half_tile::<S, R, UNIT>(t);
        }
        let mut acc = init_sums::<S, R, V, H>(t);
        let (row, a_k, b_k) = (if UNIT { 1 } else { t.a_row }, t.a_k, t.b_k);
        let (mut b, mut next) = (t.b, t.next);
        for s in 0..t.segment_count {
            let mut a = t.a.add(*t.segments.add(s));
            for _ in 0..t.run {
                next.issue();
                let mut bv = [S::splat(0.0); V];
                for v in 0..V {
                    bv[v] = S::load(b.add(v / 2 * t.b_panel + v % 2 * S::LANES));
                }
                let last = if H {
                    S::Half::load(b.add(V * S::LANES))
                } else {
                    S::Half::splat(0.0)
                };
                for r in 0..R {
                    let x = *a.add(r * row);
                    // One broadcast serves both: two would need more registers than there are.
                    let x = if H { S::splat_for_both(x) } else { S::splat(x) };
                    for v in 0..V {
                        acc.whole[r][v] = S::fma(x, bv[v], acc.whole[r][v]);
                    }
                    if H {
                        acc.half[r] = S::Half::fma(S::lower_half(x), last, acc.half[r]);
                    }
                }
                a = a.wrapping_add(a_k);
                b = b.wrapping_add(b_k);
            }
        }
        finish_tile::<S, R, V, H>(t, &mut acc);
    }
}

#[inline(always)]
unsafe fn init_sums<S: Simd, const R: usize, const V: usize, const H: bool>(t: &TileJob) -> Sums<S, R, V, H> {
    // SAFETY: the caller upholds the contract of `TileFn`.
    unsafe {
        let mut acc = Sums {
            whole: [[S::splat(0.0); V]; R],
            half: [S::Half::splat(0.0); R],
        };
        match t.init {
            Init::Zero => {}
            Init::Output => {
                for r in 0..R {
                    acc.load_row(r, t, t.c.add(r * t.c_row));
                }
            }
            Init::Matrix => {
                for r in 0..R {
                    acc.load_row(r, t, t.bias.add(r * t.c_row));
                }
            }
            Init::RowBias => {
                for r in 0..R {
                    acc.whole[r] = [S::splat(*t.bias.add(r)); V];
                    acc.half[r] = S::Half::splat(*t.bias.add(r));
                }
            }
            Init::Bias => {
                acc.load_row(0, t, t.bias);
                for r in 1..R {
                    acc.whole[r] = acc.whole[0];
                    acc.half[r] = acc.half[0];
                }
            }
        }
        acc
    }
}

impl<S: Simd, const R: usize, const V: usize, const H: bool> Sums<S, R, V, H> {
    /// Reads the columns of row `r` from `p`.
    #[inline(always)]
    unsafe fn load_row(&mut self, r: usize, t: &TileJob, p: *const f32) {
        // SAFETY: the caller provides the tile's columns.
        unsafe {
            for v in 0..V {
                self.whole[r][v] = load_columns::<S>(p, v * S::LANES, t.cols);
            }
            if H {
                self.half[r] = load_columns::<S::Half>(p, V * S::LANES, t.cols);
            }
        }
    }
}

/// Loads the vector from column `at` on, of `cols`. Columns after the last are 0.
#[inline(always)]
unsafe fn load_columns<S: Simd>(p: *const f32, at: usize, cols: usize) -> S::V {
    // SAFETY: `cols` elements are readable from `p`.
    unsafe {
        if at + S::LANES <= cols {
            S::load(p.add(at))
        } else {
            S::load_first(p.wrapping_add(at), cols.saturating_sub(at))
        }
    }
}

#[inline(always)]
unsafe fn store_columns<S: Simd>(p: *mut f32, at: usize, cols: usize, v: S::V) {
    // SAFETY: `cols` elements are writable from `p`.
    unsafe {
        if at + S::LANES <= cols {
            S::store(p.add(at), v);
        } else {
            S::store_first(p.wrapping_add(at), cols.saturating_sub(at), v);
        }
    }
}

#[inline(always)]
unsafe fn clamp_vector<S: Simd>(lo: f32, hi: f32, v: S::V) -> S::V {
    // SAFETY: the arithmetic is that of the level.
    unsafe { S::min(S::splat(hi), S::max(S::splat(lo), v)) }
}

#[inline(always)]
unsafe fn finish_tile<S: Simd, const R: usize, const V: usize, const H: bool>(t: &TileJob, acc: &mut Sums<S, R, V, H>) {
    // SAFETY: the caller upholds the contract of `TileFn`.
    unsafe {
        if let Some((lo, hi)) = t.clamp {
            for r in 0..R {
                for v in 0..V {
                    acc.whole[r][v] = clamp_vector::<S>(lo, hi, acc.whole[r][v]);
                }
                acc.half[r] = clamp_vector::<S::Half>(lo, hi, acc.half[r]);
            }
        }
        // Test once, so that the stores of a full tile follow each other directly.
        let half = if H { S::Half::LANES } else { 0 };
        if t.cols == V * S::LANES + half {
            for r in 0..R {
                let c = t.c.add(r * t.c_row);
                for v in 0..V {
                    S::store(c.add(v * S::LANES), acc.whole[r][v]);
                }
                if H {
                    S::Half::store(c.add(V * S::LANES), acc.half[r]);
                }
            }
            return;
        }
        for r in 0..R {
            let c = t.c.add(r * t.c_row);
            for v in 0..V {
                store_columns::<S>(c, v * S::LANES, t.cols, acc.whole[r][v]);
            }
            if H {
                store_columns::<S::Half>(c, V * S::LANES, t.cols, acc.half[r]);
            }
        }
    }
}

/// The tile kernels of one level.
pub(super) struct Kernels {
    /// The level.
    pub isa: Isa,
    /// The maximum number of rows of a tile with two vectors.
    pub mr: usize,
    /// The number of columns in a panel of B: two vectors.
    pub nr: usize,
    /// The maximum number of rows of a tile with four vectors.
    pub mr_wide: usize,
    /// Whether there are tiles with half a vector.
    has_halves: bool,
    table: fn(usize, usize, bool) -> TileFn,
}

impl Kernels {
    /// The kernels of `isa`.
    pub(super) fn for_isa(isa: Isa) -> &'static Kernels {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => &AVX512,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => &AVX2,
            _ => &PORTABLE,
        }
    }

    /// The kernel for `rows` rows and `halves` half vectors (see [`Kernels::half_vectors`]; 8 for two panels). `unit`
    /// if rows of A are adjacent.
    pub(super) fn tile_kernel(&self, rows: usize, halves: usize, unit: bool) -> TileFn {
        (self.table)(rows, halves, unit)
    }

    /// The number of half vectors that `cols` columns of a panel fill: 1 to 4, or an even number if half vectors gain
    /// nothing.
    pub(super) fn half_vectors(&self, cols: usize) -> usize {
        let step = if self.has_halves { self.nr / 4 } else { self.nr / 2 };
        cols.div_ceil(step).max(1) * (4 * step / self.nr)
    }
}

macro_rules! table {
    ($name:ident, $table:ident, $simd:ident, $isa:expr, ($($feature:literal)?), mr = $mr:literal [$($r:literal)*], wide = $wide:literal [$($w:literal)*],
        halves = $has:literal [$($h:literal)*]) => {
        fn $table(rows: usize, halves: usize, unit: bool) -> TileFn {
            $(#[target_feature(enable = $feature)])?
            unsafe fn f<const R: usize, const V: usize, const H: bool, const UNIT: bool>(t: &TileJob) {
                // SAFETY: the caller upholds the contract of `TileFn`.
                unsafe { body::<$simd, R, V, H, UNIT>(t) }
            }
            match (rows, halves, unit) {
                $(($h, 1, false) => f::<$h, 0, true, false>,
                ($h, 1, true) => f::<$h, 0, true, true>,
                ($h, 3, false) => f::<$h, 1, true, false>,
                ($h, 3, true) => f::<$h, 1, true, true>,)*
                $(($r, 2, false) => f::<$r, 1, false, false>,
                ($r, 2, true) => f::<$r, 1, false, true>,
                ($r, 4, false) => f::<$r, 2, false, false>,
                ($r, 4, true) => f::<$r, 2, false, true>,)*
                $(($w, 8, false) => f::<$w, 4, false, false>,
                ($w, 8, true) => f::<$w, 4, false, true>,)*
                _ => panic!("no tile of {rows} rows and {halves} half vectors"),
            }
        }
        static $name: Kernels = Kernels {
            isa: $isa,
            mr: $mr,
            nr: 2 * <$simd as Simd>::LANES,
            mr_wide: $wide,
            has_halves: $has,
            table: $table,
        };
    };
}

#[cfg(target_arch = "x86_64")]
table!(AVX512, avx512_table, Avx512, Isa::Avx512, ("avx512f,avx512vl,avx2,fma"),
    mr = 14 [1 2 3 4 5 6 7 8 9 10 11 12 13 14], wide = 6 [1 2 3 4 5 6],
    halves = true [1 2 3 4 5 6 7 8 9 10 11 12 13 14]);
#[cfg(target_arch = "x86_64")]
table!(AVX2, avx2_table, Avx2, Isa::Avx2, ("avx2,fma"), mr = 6 [1 2 3 4 5 6], wide = 2 [1 2], halves = false []);
table!(PORTABLE, portable_table, Portable, Isa::Portable, (), mr = 4 [1 2 3 4], wide = 2 [1 2], halves = false []);

impl Kernels {
    /// The largest number of product indices of a block that several tiles multiply: the block of a panel takes two thirds
    /// of a 48 KB L1 cache, so that only A comes from the L2 cache.
    pub(super) fn block_depth(&self) -> usize {
        (8 << 10) / self.nr
    }
}

#[cfg(test)]
mod tests;
