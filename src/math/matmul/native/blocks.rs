//! The blocks of a product: which operands of a chunk are packed, and the tiles of each block of product indices.

use super::{F32MatMulPlan, MatrixOperands, Start, add_after};
use crate::math::matmul::grid;
use crate::math::pack::pack_panel;
use crate::math::scratch;
use crate::math::tile::{Init, ONE_SEGMENT, Prefetch, TileJob, block_size};

/// The number of columns after which the tail runs. Together with the rows of a slab they are still in the L2 cache.
const TAIL_COLS: usize = 256;
/// The maximum number of elements of whole rows that wait for the tail, which runs best over contiguous rows.
const TAIL_ROWS: usize = 160 << 10;

/// The maximum number of elements of a block of B that is read again for each tile, if the result takes more time than the
/// product: a few product indices of columns that fit the L1 cache.
const SHALLOW: usize = 8 << 10;
/// The maximum number of product indices of such a block.
const SHALLOW_DEPTH: usize = 16;

/// What a chunk packs, and how it divides the product indices.
struct ChunkLayout {
    pack_a: bool,
    /// The number of panels of B that are packed, the last ones of the chunk.
    packed_panels: usize,
    /// The maximum number of product indices in a block.
    kc: usize,
}

/// One block of product indices, and its packed parts.
struct ProductBlock {
    k0: usize,
    k1: usize,
    kc: usize,
    m0: usize,
    a: Option<*const f32>,
    b: *const f32,
    /// The index of the first panel in `b`.
    b_first: usize,
}

/// One panel of B, or two adjacent ones that tiles multiply at once.
struct PanelGroup {
    first: usize,
    count: usize,
    cols: usize,
    /// The half vectors that the columns fill; see [`Kernels::half_vectors`](crate::math::tile::Kernels).
    halves: usize,
    /// The panels' first element in this block, and the strides between product indices and between panels.
    b: *const f32,
    b_k: usize,
    b_panel: usize,
}

impl F32MatMulPlan {
    /// Computes the tiles and panels of one chunk.
    ///
    /// # Safety
    /// The operands are valid for the descriptor; no other thread writes this chunk's part of C.
    pub(super) unsafe fn run_chunk(&self, x: &MatrixOperands, tiles: [usize; 2], [p0, p1]: [usize; 2]) {
        let (d, nr) = (&self.desc, self.kernels.nr);
        let layout = self.lay_out_chunk(tiles, [p0, p1]);
        let (pack_a, kc) = (layout.pack_a, layout.kc);
        let [m0, m1] = tiles.map(|t| self.tiles.start(t));
        let mut a_buf = scratch::take_buffer(if pack_a { (m1 - m0) * kc } else { 0 });
        let mut b_buf = scratch::take_buffer(layout.packed_panels * nr * kc);
        let b_first = p1 - layout.packed_panels;
        let mut k0 = 0;
        loop {
            let k1 = (k0 + kc).min(d.k);
            // SAFETY: the buffers hold a block; the operands are valid for it.
            unsafe {
                if pack_a {
                    self.pack_tiles(x.a.add(k0 * d.a[1]), tiles, k1 - k0, kc, a_buf.as_mut_ptr());
                }
                self.pack_panels(x, [b_first, p1], [k0, k1], nr * kc, b_buf.as_mut_ptr());
                let block = ProductBlock {
                    k0,
                    k1,
                    kc,
                    m0,
                    a: pack_a.then_some(a_buf.as_ptr()),
                    b: b_buf.as_ptr(),
                    b_first,
                };
                self.run_block(x, &block, tiles, [p0, p1]);
            }
            k0 = k1;
            if k0 >= d.k {
                break;
            }
        }
    }

    /// Packs the product indices `k0..k1` of the panels `first..end`, which are `len` elements apart in `dst`.
    ///
    /// # Safety
    /// As for [`F32MatMulPlan::run_chunk`]; `dst` has room for the panels.
    unsafe fn pack_panels(
        &self,
        x: &MatrixOperands,
        [first, end]: [usize; 2],
        [k0, k1]: [usize; 2],
        len: usize,
        dst: *mut f32,
    ) {
        let (b, nr) = (self.desc.b, self.kernels.nr);
        for j in first..end {
            // SAFETY: guaranteed by the caller.
            unsafe {
                let dst = dst.add((j - first) * len);
                if let Some(packed) = &self.integers {
                    packed.unpack(self.kernels.isa, j, [k0, k1], dst);
                    continue;
                }
                let src = x.b.add(k0 * b[0] + j * nr * b[1]);
                pack_panel(src, b[1], b[0], self.panel_width(j), nr, k1 - k0, dst);
            }
        }
    }

    /// Decides what a chunk packs. An operand is packed if enough tiles or panels read it again.
    fn lay_out_chunk(&self, [t0, t1]: [usize; 2], [p0, p1]: [usize; 2]) -> ChunkLayout {
        let d = &self.desc;
        let rows = self.tiles.start(t1) - self.tiles.start(t0);
        // Contiguous rows of A can be read in place, unless their stride is a multiple of 2 KiB: then they share a few
        // sets of the L1 cache.
        let enough = match d.a[1] {
            1 if d.a[0].is_multiple_of(512) => 2,
            1 => 16,
            _ => 4,
        };
        let pack_a = self.a.is_none() && rows >= 4 && p1 - p0 >= enough;
        let pack_b = self.b.is_none() && (self.integers.is_some() || t1 - t0 >= 2 || d.b[1] != 1);
        let most = if t1 - t0 == 1 && !pack_a && !pack_b {
            d.k.max(1)
        } else if self.b.is_some() {
            grid::KC_PACKED
        } else {
            grid::KC
        };
        // A partial last panel is always packed because tiles read whole vectors of B.
        let pack_last = self.b.is_none() && self.panel_width(p1 - 1) < self.kernels.nr;
        ChunkLayout {
            pack_a,
            packed_panels: if pack_b { p1 - p0 } else { pack_last as usize },
            kc: block_size(d.k, most),
        }
    }

    /// Multiplies one block of product indices.
    ///
    /// # Safety
    /// As for [`F32MatMulPlan::run_chunk`]; the block's packed parts are filled.
    unsafe fn run_block(&self, x: &MatrixOperands, k: &ProductBlock, [t0, t1]: [usize; 2], panels: [usize; 2]) {
        let depth = k.k1 - k.k0;
        let is_shallow = depth <= SHALLOW_DEPTH && (panels[1] - panels[0]) * self.kernels.nr * depth <= SHALLOW;
        // Tile by tile, the rows of the result are written in long pieces.
        let step = if is_shallow { 1 } else { (t1 - t0).max(1) };
        for t in (t0..t1).step_by(step) {
            // SAFETY: guaranteed by the caller.
            unsafe { self.run_tile_rows(x, k, [t, t + step], panels) };
        }
    }

    /// Multiplies the tiles of one block of product indices with all its panels.
    ///
    /// # Safety
    /// As for [`F32MatMulPlan::run_block`].
    unsafe fn run_tile_rows(&self, x: &MatrixOperands, k: &ProductBlock, tiles: [usize; 2], [p0, p1]: [usize; 2]) {
        let (d, nr) = (&self.desc, self.kernels.nr);
        let last = k.k1 >= d.k;
        let (mut j, mut tailed) = (p0, p0);
        let rows = self.tiles.start(tiles[1]) - self.tiles.start(tiles[0]);
        let whole = p1 - p0 == self.panels() && rows * d.n <= TAIL_ROWS;
        let tail_cols = if whole { usize::MAX } else { TAIL_COLS };
        while j < p1 {
            // SAFETY: guaranteed by the caller; the chunk owns these columns of its rows.
            unsafe {
                let panels = self.next_panels(x, k, tiles, [j, p1]);
                self.run_panels(x, k, tiles, &panels);
                if last && self.start == Start::After {
                    add_after(self.kernels.isa, d, x, self.rect(x.batch, tiles, j * nr, panels.cols));
                }
                j += panels.count;
            }
            if last && (j >= p1 || (j - tailed) * nr >= tail_cols) {
                // SAFETY: these panels are finished and belong to this chunk.
                unsafe { self.run_panel_tail(x, tiles, [tailed, j.min(p1)]) };
                tailed = j;
            }
        }
    }

    /// The panels from `j` on that tiles multiply at once.
    ///
    /// # Safety
    /// As for [`F32MatMulPlan::run_block`].
    #[inline(always)]
    unsafe fn next_panels(
        &self,
        x: &MatrixOperands,
        k: &ProductBlock,
        [t0, t1]: [usize; 2],
        [j, end]: [usize; 2],
    ) -> PanelGroup {
        let (d, nr) = (&self.desc, self.kernels.nr);
        let direct = self.b.is_none() && j < k.b_first;
        // With a single short tile, process two panels at once, so that there are enough independent sums.
        let rows = self.tiles.start(t0 + 1) - self.tiles.start(t0);
        let pair = t1 - t0 == 1 && rows <= self.kernels.mr_wide && j + 1 < end && (!direct || j + 1 < k.b_first);
        // SAFETY: each source is valid for the block.
        let (b, b_k, b_panel) = unsafe {
            match &self.b {
                Some(_) => (x.b.add(j * nr * d.k + k.k0 * nr), nr, nr * d.k),
                None if direct => (x.b.add(k.k0 * d.b[0] + j * nr), d.b[0], nr),
                None => (k.b.add((j - k.b_first) * nr * k.kc), nr, nr * k.kc),
            }
        };
        let cols = match pair {
            true => nr + self.panel_width(j + 1),
            false => self.panel_width(j),
        };
        PanelGroup {
            first: j,
            count: 1 + pair as usize,
            cols,
            halves: if pair { 8 } else { self.kernels.half_vectors(cols) },
            b,
            b_k,
            b_panel,
        }
    }

    /// Multiplies the tiles of `t0..t1` with one group of panels: if there are several tiles, in parts of the panels that
    /// stay in the L1 cache.
    ///
    /// # Safety
    /// As for [`F32MatMulPlan::run_block`].
    #[inline(always)]
    unsafe fn run_panels(&self, x: &MatrixOperands, k: &ProductBlock, [t0, t1]: [usize; 2], p: &PanelGroup) {
        let depth = k.k1 - k.k0;
        let most = if t1 - t0 > 1 { self.kernels.block_depth() } else { depth };
        let step = block_size(depth, most);
        let mut first = k.k0;
        loop {
            let end = (first + step).min(k.k1);
            // SAFETY: guaranteed by the caller.
            unsafe { self.run_tiles(x, k, [t0, t1], p, [first, end]) };
            first = end;
            if first >= k.k1 {
                break;
            }
        }
    }

    /// Multiplies the tiles of `t0..t1` with one group of panels, for the product indices `first..end` of the block.
    ///
    /// # Safety
    /// As for [`F32MatMulPlan::run_block`].
    #[inline(always)]
    unsafe fn run_tiles(
        &self,
        x: &MatrixOperands,
        k: &ProductBlock,
        [t0, t1]: [usize; 2],
        p: &PanelGroup,
        [first, end]: [usize; 2],
    ) {
        let (d, col) = (&self.desc, p.first * self.kernels.nr);
        let clamp = d
            .activation
            .bounds()
            .filter(|_| end >= d.k && self.start != Start::After);
        for t in t0..t1 {
            let (r0, rows) = (self.tiles.start(t), self.tiles.start(t + 1) - self.tiles.start(t));
            // SAFETY: guaranteed by the caller.
            let (a, a_row, a_k) = unsafe { self.tile_rows(x, k, r0, rows) };
            let (init, bias) = self.tile_init(x, first, r0, col);
            let job = TileJob {
                a: a.wrapping_add((first - k.k0) * a_k),
                a_row,
                a_k,
                segments: ONE_SEGMENT.as_ptr(),
                segment_count: 1,
                run: end - first,
                b: p.b.wrapping_add((first - k.k0) * p.b_k),
                b_k: p.b_k,
                b_panel: p.b_panel,
                c: x.c.wrapping_add(r0 * d.c_row + col),
                c_row: d.c_row,
                cols: p.cols,
                init,
                bias,
                clamp,
                next: self.prefetch(k, p, [first, end], [t - t0, t1 - t0]),
            };
            // SAFETY: the job describes valid parts of the operands; the machine has the kernels' level.
            unsafe { self.kernels.tile_kernel(rows, p.halves, a_row == 1)(&job) };
        }
    }

    /// What tile `i` of `count` prefetches, if B is packed: the product indices after `end`, or the panels after `p`.
    #[inline(always)]
    fn prefetch(&self, k: &ProductBlock, p: &PanelGroup, [first, end]: [usize; 2], [i, count]: [usize; 2]) -> Prefetch {
        let next = match end < k.k1 {
            true => p.b.wrapping_add((end - k.k0) * p.b_k),
            false => p.b.wrapping_add(p.count * p.b_panel),
        };
        if self.b.is_none() || (end >= k.k1 && p.first + p.count >= self.panels()) {
            return Prefetch::nothing(p.b);
        }
        Prefetch::share(next, self.kernels.nr, end - first, i, count)
    }

    /// The first element of a tile's rows of A, and the strides between rows and between product indices.
    ///
    /// # Safety
    /// As for [`F32MatMulPlan::run_block`].
    #[inline(always)]
    unsafe fn tile_rows(
        &self,
        x: &MatrixOperands,
        k: &ProductBlock,
        r0: usize,
        rows: usize,
    ) -> (*const f32, usize, usize) {
        let d = &self.desc;
        // SAFETY: each source is valid for the block.
        unsafe {
            match (&self.a, k.a) {
                (Some(_), _) => (x.a.add(r0 * d.k + k.k0 * rows), 1, rows),
                (None, Some(a)) => (a.add((r0 - k.m0) * k.kc), 1, rows),
                (None, None) => (x.a.add(r0 * d.a[0] + k.k0 * d.a[1]), d.a[0], d.a[1]),
            }
        }
    }

    fn tile_init(&self, x: &MatrixOperands, k0: usize, row: usize, col: usize) -> (Init, *const f32) {
        match self.start {
            _ if k0 > 0 => (Init::Output, std::ptr::null()),
            Start::Zero | Start::After => (Init::Zero, std::ptr::null()),
            Start::ColumnBias => (Init::Bias, x.addend.wrapping_add(col)),
            Start::RowBias => (Init::RowBias, x.addend.wrapping_add(row)),
            Start::Matrix => (Init::Matrix, x.addend.wrapping_add(row * self.desc.c_row + col)),
        }
    }
}
