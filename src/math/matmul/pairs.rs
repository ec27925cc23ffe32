//! bf16 products, f32 products with operands that are rounded to bf16, and products of bytes.
//!
//! Sums are f32, or i32 of bytes. The blocks are those of [`pairs`](crate::math::pairs). A panel of B is read once for all rows of a chunk,
//! which stay in the L2 cache. A constant B is packed when the plan is made, in 16 bits; a dynamic one in every chunk. Rows
//! of A are read in place where they are bf16, contiguous and aligned.

mod chunk;

use super::grid::{Grid, GridShape};
use super::grouped::PackedProduct;
use super::integers::{self, PackedIntegers};
use super::packed::Packed;
use super::tiled::{PageRelease, TiledProduct};
use crate::math::contract::{Constant, MatMul, MatMulArgs, MatMulConstants};
use crate::math::pairs::pack::{Source, pack_panel_of};
use crate::math::pairs::{COLS, PairKernels};
use crate::math::tile::Tiles;
use crate::target::{Isa, PairUnit};
use crate::tensor::AlignedBytes;
use crate::types::DType;
use std::sync::Arc;

/// A plan of such a product.
pub(crate) struct PairMatMulPlan {
    desc: MatMul,
    kernels: PairKernels,
    /// Pairs of tiles: the rows of one block.
    blocks: Tiles,
    a: Option<Arc<AlignedBytes>>,
    b: Option<Packed>,
    /// B, if it is packed as integers. Each chunk unpacks the panels that it multiplies.
    integers: Option<PackedIntegers>,
}

impl PairMatMulPlan {
    /// Plans `desc`, whose extents were already checked. Its dtype is bf16 or f32.
    pub(crate) fn new(kernels: PairKernels, desc: &MatMul, constants: MatMulConstants) -> PairMatMulPlan {
        let mut plan = PairMatMulPlan {
            desc: desc.clone(),
            kernels,
            blocks: Tiles::new(desc.m, 2 * kernels.rows),
            a: None,
            b: None,
            integers: None,
        };
        match (constants.a, constants.b) {
            (Some(a), _) => plan.a = Some(a.aligned_bytes()),
            (None, Some(b)) => plan.b = Some(plan.pack_constant(b)),
            (None, None) => {}
        }
        plan
    }

    /// Plans `desc` with a B of integers. `None` if the kernels or the form of B do not fit, and for few rows, for which
    /// unpacking would take longer than multiplying.
    pub(crate) fn with_integers(
        kernels: PairKernels,
        desc: &MatMul,
        constants: MatMulConstants,
    ) -> Option<PairMatMulPlan> {
        // Other instruction sets pack integers in narrower panels.
        let fits = constants.a.is_none() && kernels.isa == Isa::Avx512 && kernels.are_faster_than_f32();
        let b = constants.b.filter(|_| fits && desc.m > integers::ROWS)?;
        let packed = PackedIntegers::new(desc, desc.quantized?, COLS, kernels.has_quads, b)?;
        if desc.m <= packed.most_rows(true) {
            return None;
        }
        let mut plan = PairMatMulPlan::new(kernels, desc, MatMulConstants::default());
        plan.integers = Some(packed);
        Some(plan)
    }

    fn is_wide(&self) -> bool {
        self.desc.dtype == DType::F32
    }

    /// The elements of A or B.
    fn source(&self, p: *const u8) -> Source {
        match self.kernels.are_bytes() {
            true => Source::Bytes(p),
            false => Source::new(p, self.is_wide()),
        }
    }

    fn panels(&self) -> usize {
        self.desc.n.div_ceil(COLS)
    }

    /// The number of columns of panel `j`.
    fn panel_cols(&self, j: usize) -> usize {
        (self.desc.n - j * COLS).min(COLS)
    }

    /// The number of product indices with padding.
    fn run(&self) -> usize {
        self.kernels.padded_run(self.desc.k)
    }

    /// The length of a packed panel, in words of 16 bits.
    fn panel_len(&self) -> usize {
        self.kernels.panel_words(self.run())
    }

    fn pack_constant(&self, constant: Constant) -> Packed {
        let d = &self.desc;
        let strides: Vec<usize> = d.batch.iter().map(|b| b.b).collect();
        let (_, form) = self.kernels.describe_factors(self.is_wide());
        let key = [7, d.n, d.k, self.run(), d.b[0], d.b[1], form];
        let item = self.panels() * self.panel_len();
        let size = d.factor_size();
        Packed::in_pairs(d, &strides, item, constant, &key, |b, offset, dst| {
            let mut pages = PageRelease::new(constant, size * offset);
            for j in 0..self.panels() {
                // SAFETY: the constant holds the extents; the panel lies in the item.
                unsafe {
                    let src = self.source(b).skip(offset + j * COLS * d.b[1]);
                    pack_panel_of(
                        src,
                        d.b,
                        self.panel_cols(j),
                        [d.k, self.run()],
                        dst.add(j * self.panel_len()),
                    );
                }
                if d.b == [1, d.k] {
                    pages.advance(size * (offset + (j + 1) * COLS * d.k));
                }
            }
        })
    }

    /// Whether blocks can read rows of A where they are. AMX reads misaligned rows at a third of the speed.
    fn reads_rows_in_place(&self) -> bool {
        let d = &self.desc;
        let aligned = |n: usize| n.is_multiple_of(self.kernels.step());
        !self.is_wide()
            && !self.kernels.widens_rows()
            && d.a[1] == 1
            && d.k == self.run()
            && (aligned(d.a[0]) || d.m == 1)
            && d.batch.iter().all(|b| aligned(b.a))
            && !self.rows_share_sets()
    }

    /// Whether the rows of a tile are in one set of the L1 cache, which has fewer ways, and several panels read them again.
    fn rows_share_sets(&self) -> bool {
        const SET: usize = 4096;
        let is_far = self.desc.a[0].is_multiple_of(SET / self.kernels.row_element());
        self.kernels.unit == PairUnit::Dots && is_far && self.blocks.start(1) > 8 && self.panels() > 1
    }
}

impl TiledProduct for PairMatMulPlan {
    fn desc(&self) -> &MatMul {
        &self.desc
    }

    fn rate(&self) -> usize {
        self.kernels.rate()
    }

    fn choose_grid(&self, threads: usize, matrices: usize) -> Grid {
        let shape = GridShape {
            tiles: self.blocks,
            mr: self.blocks.start(1).max(1),
            panels: self.panels(),
            nr: COLS,
            k: self.desc.k,
            a_packed: self.a.is_some() && self.reads_rows_in_place(),
            b_packed: self.b.is_some(),
            chunks_per_thread: 4,
            rate: self.kernels.rate(),
        };
        Grid::new(shape, threads, matrices)
    }

    unsafe fn run_part(&self, args: &MatMulArgs, matrix: usize, tiles: [usize; 2], panels: [usize; 2]) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.run_chunk(&self.matrix_operands(args, matrix), tiles, panels) };
    }

    fn method(&self) -> String {
        let how = match (&self.a, &self.b) {
            (Some(_), _) => "A constant",
            (_, Some(_)) => "B packed",
            _ if self.integers.is_some() => "B packed as integers",
            _ => "dynamic",
        };
        let (operands, _) = self.kernels.describe_factors(self.is_wide());
        let k = &self.kernels;
        format!("matmul {operands} {how} {}x{COLS} {}", 2 * k.rows, k)
    }
}

impl PackedProduct for PairMatMulPlan {
    fn for_rows(&self, matrix: usize, rows: usize) -> PairMatMulPlan {
        PairMatMulPlan {
            desc: self.desc.single(rows),
            kernels: self.kernels,
            blocks: Tiles::new(rows, 2 * self.kernels.rows),
            a: None,
            b: self.b.as_ref().map(|b| b.single(matrix)),
            integers: None,
        }
    }
}
