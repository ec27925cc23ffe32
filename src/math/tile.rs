//! The register tile: the inner kernel of matrix products and of direct convolution.
//!
//! One call computes `R x (V * LANES)` elements of `C = A · B` and keeps them in registers throughout. Rows of A are read
//! element by element and broadcast; B is read as vectors. The product index runs over segments of A: a matrix product
//! has one, a direct convolution has one for each run of input that is contiguous (a kernel row, or a kernel tap).
//!
//! The sum of every element is formed in the order of the product index, whatever `R` and `V` are and wherever a
//! caller splits the index, so results do not depend on how a problem is cut into tiles.

use super::isa::Isa;
#[cfg(target_arch = "x86_64")]
use super::simd::{Avx2, Avx512};
use super::simd::{Portable, Simd};

/// What the accumulators start from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Init {
    /// Zero.
    Zero,
    /// The elements of C: an earlier part of the product index was added there.
    Output,
    /// [`TileJob::bias`], one element for each column.
    Bias,
    /// [`TileJob::bias`], one element for each row.
    RowBias,
}

/// One tile. All strides are in elements.
pub struct TileJob {
    /// Row 0 of A, before the segment's offset.
    pub a: *const f32,
    /// From one row of A to the next; ignored (taken as 1) by kernels with `unit` rows.
    pub a_row: usize,
    /// From one product index to the next within a segment.
    pub a_k: usize,
    /// Where each segment begins, from `a`.
    pub segments: *const usize,
    /// How many segments.
    pub segment_count: usize,
    /// Product indices of one segment.
    pub run: usize,
    /// Row 0 of B's panel: full vectors are read, whatever `cols` is.
    pub b: *const f32,
    /// From one product index to the next.
    pub b_k: usize,
    /// From a panel of two vectors to the next, for kernels with more than two vectors.
    pub b_panel: usize,
    /// The first element of C.
    pub c: *mut f32,
    /// From one row of C to the next; columns are contiguous.
    pub c_row: usize,
    /// How many columns to store: at most `V * LANES`.
    pub cols: usize,
    /// What to start from.
    pub init: Init,
    /// For [`Init::Bias`] and [`Init::RowBias`].
    pub bias: *const f32,
    /// Bounds to clamp the results to, if any; NaN stays.
    pub clamp: Option<(f32, f32)>,
}

/// The one segment of a plain matrix product.
pub static ONE_SEGMENT: [usize; 1] = [0];

/// A tile kernel.
///
/// # Safety
/// The machine has the kernel's instructions, and the job's pointers are valid for the tile: A for `R` rows over all
/// segments, B for `V * LANES` elements at every product index, C (and the bias) for `cols` columns.
pub type TileFn = unsafe fn(&TileJob);

#[inline(always)]
unsafe fn body<S: Simd, const R: usize, const V: usize, const UNIT: bool>(t: &TileJob) {
    // SAFETY: the caller keeps the promises of `TileFn`.
    unsafe {
        let mut acc = [[S::splat(0.0); V]; R];
        start::<S, R, V>(t, &mut acc);
        let row = if UNIT { 1 } else { t.a_row };
        let (a_k, b_k) = (t.a_k, t.b_k);
        let mut b = t.b;
        for s in 0..t.segment_count {
            let mut a = t.a.add(*t.segments.add(s));
            for _ in 0..t.run {
                let mut bv = [S::splat(0.0); V];
                for v in 0..V {
                    bv[v] = S::load(b.add(v / 2 * t.b_panel + v % 2 * S::LANES));
                }
                for r in 0..R {
                    let x = S::splat(*a.add(r * row));
                    for v in 0..V {
                        acc[r][v] = S::fma(x, bv[v], acc[r][v]);
                    }
                }
                a = a.wrapping_add(a_k);
                b = b.wrapping_add(b_k);
            }
        }
        finish::<S, R, V>(t, &mut acc);
    }
}

#[inline(always)]
unsafe fn start<S: Simd, const R: usize, const V: usize>(t: &TileJob, acc: &mut [[S::V; V]; R]) {
    // SAFETY: the caller keeps the promises of `TileFn`.
    unsafe {
        match t.init {
            Init::Zero => {}
            Init::Output => {
                for r in 0..R {
                    for v in 0..V {
                        acc[r][v] = load::<S, V>(t.c.add(r * t.c_row), v, t.cols);
                    }
                }
            }
            Init::RowBias => {
                for r in 0..R {
                    let x = S::splat(*t.bias.add(r));
                    for v in 0..V {
                        acc[r][v] = x;
                    }
                }
            }
            Init::Bias => {
                for v in 0..V {
                    let x = load::<S, V>(t.bias, v, t.cols);
                    for r in 0..R {
                        acc[r][v] = x;
                    }
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn load<S: Simd, const V: usize>(p: *const f32, v: usize, cols: usize) -> S::V {
    // SAFETY: `cols` elements are readable from `p`.
    unsafe {
        if cols == V * S::LANES {
            S::load(p.add(v * S::LANES))
        } else {
            S::load_first(p.wrapping_add(v * S::LANES), lanes_of::<S>(v, cols))
        }
    }
}

/// How many of `cols` columns fall into vector `v`.
#[inline(always)]
fn lanes_of<S: Simd>(v: usize, cols: usize) -> usize {
    cols.saturating_sub(v * S::LANES).min(S::LANES)
}

#[inline(always)]
unsafe fn finish<S: Simd, const R: usize, const V: usize>(t: &TileJob, acc: &mut [[S::V; V]; R]) {
    // SAFETY: the caller keeps the promises of `TileFn`.
    unsafe {
        if let Some((lo, hi)) = t.clamp {
            let (lo, hi) = (S::splat(lo), S::splat(hi));
            for r in 0..R {
                for v in 0..V {
                    acc[r][v] = S::min(hi, S::max(lo, acc[r][v]));
                }
            }
        }
        let full = t.cols == V * S::LANES;
        for r in 0..R {
            let c = t.c.add(r * t.c_row);
            for v in 0..V {
                if full {
                    S::store(c.add(v * S::LANES), acc[r][v]);
                } else {
                    S::store_first(c.wrapping_add(v * S::LANES), lanes_of::<S>(v, t.cols), acc[r][v]);
                }
            }
        }
    }
}

/// The tile kernels of one level.
pub struct Kernels {
    /// The level.
    pub isa: Isa,
    /// The most rows of a tile of two vectors.
    pub mr: usize,
    /// Columns of a panel of B: two vectors.
    pub nr: usize,
    /// The most rows of a tile of four vectors.
    pub mr_wide: usize,
    table: fn(usize, usize, bool) -> TileFn,
}

impl Kernels {
    /// The kernels of `isa`.
    pub fn of(isa: Isa) -> &'static Kernels {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => &AVX512,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => &AVX2,
            _ => &PORTABLE,
        }
    }

    /// The kernel for `rows` rows and `vectors` vectors (1, 2, or 4 as two panels); `unit` when rows of A are adjacent.
    pub fn tile(&self, rows: usize, vectors: usize, unit: bool) -> TileFn {
        (self.table)(rows, vectors, unit)
    }
}

macro_rules! table {
    ($name:ident, $table:ident, $simd:ident, $isa:expr, ($($feature:literal)?), mr = $mr:literal [$($r:literal)*], wide = $wide:literal [$($w:literal)*]) => {
        fn $table(rows: usize, vectors: usize, unit: bool) -> TileFn {
            $(#[target_feature(enable = $feature)])?
            unsafe fn f<const R: usize, const V: usize, const UNIT: bool>(t: &TileJob) {
                // SAFETY: the promises of `TileFn`.
                unsafe { body::<$simd, R, V, UNIT>(t) }
            }
            match (rows, vectors, unit) {
                $(($r, 1, false) => f::<$r, 1, false>,
                ($r, 1, true) => f::<$r, 1, true>,
                ($r, 2, false) => f::<$r, 2, false>,
                ($r, 2, true) => f::<$r, 2, true>,)*
                $(($w, 4, false) => f::<$w, 4, false>,
                ($w, 4, true) => f::<$w, 4, true>,)*
                _ => panic!("no tile of {rows} rows and {vectors} vectors"),
            }
        }
        static $name: Kernels = Kernels {
            isa: $isa,
            mr: $mr,
            nr: 2 * <$simd as Simd>::LANES,
            mr_wide: $wide,
            table: $table,
        };
    };
}

#[cfg(target_arch = "x86_64")]
table!(AVX512, avx512_table, Avx512, Isa::Avx512, ("avx512f,avx2,fma"),
    mr = 14 [1 2 3 4 5 6 7 8 9 10 11 12 13 14], wide = 6 [1 2 3 4 5 6]);
#[cfg(target_arch = "x86_64")]
table!(AVX2, avx2_table, Avx2, Isa::Avx2, ("avx2,fma"), mr = 6 [1 2 3 4 5 6], wide = 2 [1 2]);
table!(PORTABLE, portable_table, Portable, Isa::Portable, (), mr = 4 [1 2 3 4], wide = 2 [1 2]);

/// Cuts `rows` rows into the fewest tiles of at most `most` rows, as evenly as can be: tile `i` begins at row
/// `start(i)`.
#[derive(Clone, Copy, Debug)]
pub struct Tiles {
    rows: usize,
    count: usize,
}

impl Tiles {
    /// The cut.
    pub fn new(rows: usize, most: usize) -> Tiles {
        Tiles {
            rows,
            count: rows.div_ceil(most),
        }
    }

    /// How many tiles.
    pub fn count(self) -> usize {
        self.count
    }

    /// The first row of tile `i`; `start(count())` is the number of rows.
    #[inline]
    pub fn start(self, i: usize) -> usize {
        if self.count == 0 {
            return 0;
        }
        let (small, larger) = (self.rows / self.count, self.rows % self.count);
        i * small + i.min(larger)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_even_and_cover_the_rows() {
        for rows in 0..200 {
            let t = Tiles::new(rows, 14);
            assert_eq!(t.start(t.count()), rows);
            for i in 0..t.count() {
                let h = t.start(i + 1) - t.start(i);
                assert!((1..=14).contains(&h) && rows / t.count() <= h);
            }
        }
    }

    #[test]
    fn every_kernel_sums_its_tile() {
        for isa in Isa::available() {
            let k = Kernels::of(isa);
            for vectors in [1, 2, 4] {
                for rows in 1..=if vectors == 4 { k.mr_wide } else { k.mr } {
                    for unit in [false, true] {
                        let width = vectors * isa.lanes();
                        for cols in [1, width - 1, width] {
                            check(k, rows, vectors, unit, cols);
                        }
                    }
                }
            }
        }
    }

    /// Two segments of five; small integers, so that every sum is exact.
    fn check(k: &Kernels, rows: usize, vectors: usize, unit: bool, cols: usize) {
        let (run, nr) = (5, k.nr);
        let (a_row, a_k) = if unit { (1, rows) } else { (run + 2, 1) };
        let seg = rows * (run + 2);
        let a: Vec<f32> = (0..2 * seg).map(|i| (i % 7) as f32 - 3.0).collect();
        let b: Vec<f32> = (0..2 * run * nr * 2).map(|i| (i % 5) as f32 - 2.0).collect();
        let bias: Vec<f32> = (0..cols.max(rows)).map(|i| i as f32).collect();
        let mut c = vec![1.0f32; rows * (cols + 1)];
        let segments = [0, seg];
        for (init, clamp) in [
            (Init::Zero, None),
            (Init::Output, None),
            (Init::Bias, Some((-3.0, 9.0))),
            (Init::RowBias, None),
        ] {
            let before = c.clone();
            let job = TileJob {
                a: a.as_ptr(),
                a_row,
                a_k,
                segments: segments.as_ptr(),
                segment_count: 2,
                run,
                b: b.as_ptr(),
                b_k: nr,
                b_panel: 2 * run * nr,
                c: c.as_mut_ptr(),
                c_row: cols + 1,
                cols,
                init,
                bias: bias.as_ptr(),
                clamp,
            };
            // SAFETY: the level is available, and the arrays hold what the job describes.
            unsafe { k.tile(rows, vectors, unit)(&job) };
            for r in 0..rows {
                for j in 0..cols {
                    let mut want = match init {
                        Init::Zero => 0.0,
                        Init::Output => before[r * (cols + 1) + j],
                        Init::Bias => bias[j],
                        Init::RowBias => bias[r],
                    };
                    for (s, &at) in segments.iter().enumerate() {
                        for i in 0..run {
                            let (panel, col) = if vectors == 4 { (j / nr, j % nr) } else { (0, j) };
                            let y = b[panel * 2 * run * nr + (s * run + i) * nr + col];
                            want += a[at + r * a_row + i * a_k] * y;
                        }
                    }
                    if let Some((lo, hi)) = clamp {
                        want = want.clamp(lo, hi);
                    }
                    assert_eq!(
                        c[r * (cols + 1) + j],
                        want,
                        "{} {rows}x{vectors} {unit} {cols} {r},{j}",
                        k.isa
                    );
                }
                assert_eq!(c[r * (cols + 1) + cols], 1.0, "nothing beyond the columns is written");
            }
        }
    }
}
