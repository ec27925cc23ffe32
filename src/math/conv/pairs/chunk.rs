//! Chunks of a convolution: some output rows of an image and some panels of channels.

use super::PairConv;
use super::window::ChunkPixels;
use crate::math::contract::{ColumnAffine, Tile, TileTail};
use crate::math::pairs::pack::Source;
use crate::math::pairs::store::{Destination, StoreJob, applies_affine};
use crate::math::pairs::{COLS, PairBlocks, PairJob, SumRows, prefetched_part};
use crate::math::scratch;
use std::ops::Range;

/// The operands of one image.
#[derive(Clone, Copy)]
pub(super) struct ImageOperands {
    /// The padded input.
    pub x: *const u8,
    pub weight: *const u16,
    pub bias: Option<Source>,
    /// The channels-last output.
    pub y: *mut u8,
    pub image: usize,
    pub tail: Option<TileTail>,
}

// SAFETY: chunks only read the inputs and write disjoint parts of the output.
unsafe impl Send for ImageOperands {}
// SAFETY: as above.
unsafe impl Sync for ImageOperands {}

/// Neighbouring output pixels that a tile computes.
#[derive(Clone, Copy)]
struct PixelTile {
    /// The first pixel's elements of the input.
    address: *const u8,
    /// The output row.
    line: usize,
    /// The first pixel, in its row, and the number of pixels.
    column: usize,
    count: usize,
}

impl PixelTile {
    const EMPTY: PixelTile = PixelTile {
        address: std::ptr::null(),
        line: 0,
        column: 0,
        count: 0,
    };

    /// The index of the first pixel in an image of this width.
    fn first(&self, width: usize) -> usize {
        self.line * width + self.column
    }
}

impl PairConv {
    /// Whether sums are kept in working memory, because the tail makes elements of another size from them.
    fn sums_wait(&self, o: &ImageOperands) -> bool {
        self.kernels.are_bytes() && o.tail.is_some()
    }

    /// The tail, if blocks can apply it before they store their sums.
    #[inline]
    fn column_affine(&self, o: &ImageOperands) -> Option<ColumnAffine> {
        o.tail?.affine.filter(|_| applies_affine(&self.kernels, self.is_wide()))
    }

    /// Computes the output rows `l0..l1` for the panels `p0..p1`.
    ///
    /// # Safety
    /// The operands are valid; no other thread writes this part.
    pub(super) unsafe fn run_chunk(&self, o: &ImageOperands, [l0, l1]: [usize; 2], [p0, p1]: [usize; 2]) {
        let (per_line, width) = (self.tiles.count(), self.window.out[2]);
        // SAFETY: guaranteed by the caller.
        let pixels = unsafe { self.window.chunk_pixels(o.x, [l0, l1]) };
        let panels = &self.window.panels;
        let first_col = panels.start(p0);
        let cols = panels.start(p1) - first_col;
        let waiting = if self.sums_wait(o) { (l1 - l0) * width * cols } else { 0 };
        let mut sums = scratch::take_buffer(waiting);
        let to = match waiting {
            0 => Destination::result(o.y, self.conv.out_channels),
            _ => Destination::waiting_sums(sums.as_mut_ptr(), [l0 * width, first_col], cols),
        };
        let mut blocks = self.kernels.begin();
        let len = self.window.panel_words();
        let tile = |i: usize| match i < l1 * per_line {
            true => self.pixel_tile(&pixels, i / per_line, i % per_line),
            false => PixelTile::EMPTY,
        };
        for p in p0..p1 {
            let panel = o.weight.wrapping_add(p * len);
            for i in (l0 * per_line..l1 * per_line).step_by(2) {
                // SAFETY: the tiles lie in the chunk.
                unsafe {
                    let next = prefetched_part(panel, len, (i - l0 * per_line) / 2, p + 1 == p1);
                    self.run_block(&mut blocks, (o, &to), &pixels, [tile(i), tile(i + 1)], p, [panel, next]);
                }
            }
        }
        // SAFETY: the part is finished and belongs to this thread.
        unsafe { self.run_chunk_tail(o, &to, [l0 * width, l1 * width], [first_col, cols]) };
    }

    /// Tile `t` of an output row.
    fn pixel_tile(&self, pixels: &ChunkPixels, line: usize, t: usize) -> PixelTile {
        let first = self.tiles.start(t);
        PixelTile {
            address: pixels.at(line, first),
            line,
            column: first,
            count: self.tiles.start(t + 1) - first,
        }
    }

    /// Runs the tail, if there is one, on `cols` channels, from `col` on, of the finished pixels `first..end`.
    ///
    /// # Safety
    /// As for [`PairConv::run_chunk`].
    unsafe fn run_chunk_tail(
        &self,
        o: &ImageOperands,
        to: &Destination,
        [first, end]: [usize; 2],
        [col, cols]: [usize; 2],
    ) {
        let Some(tail) = o.tail.as_ref().filter(|_| self.column_affine(o).is_none()) else {
            return;
        };
        let channels = self.conv.out_channels;
        let pixels: usize = self.window.out.iter().product();
        let part = Tile {
            data: to.at([first, col], self.conv.dtype.size()),
            data_stride: to.row,
            offset: (o.image * pixels + first) * channels + col,
            batch: o.image,
            row: first,
            col,
            rows: end - first,
            cols,
            row_stride: channels,
        };
        // SAFETY: guaranteed by the caller.
        unsafe { tail.run(&part) };
    }

    /// Computes and stores two tiles of panel `p`.
    ///
    /// # Safety
    /// As for [`PairConv::run_chunk`].
    #[inline]
    unsafe fn run_block(
        &self,
        blocks: &mut PairBlocks,
        (o, to): (&ImageOperands, &Destination),
        pixels: &ChunkPixels,
        tiles: [PixelTile; 2],
        p: usize,
        [panel, next]: [*const u16; 2],
    ) {
        let panels = &self.window.panels;
        let first_input = panels.first_input(p) * self.kernels.row_element();
        let used = self.segments_of(&tiles);
        let job = PairJob {
            a: tiles.map(|t| t.address.wrapping_add(first_input)),
            rows: tiles.map(|t| t.count),
            a_row: pixels.step * self.kernels.row_element(),
            segments: &pixels.segments()[used.clone()],
            groups: self.window.segments.run / self.kernels.group(),
            b: panel.wrapping_add(used.start * self.segment_words()),
            cols: panels.cols(p),
            adds: false,
            next,
        };
        // SAFETY: guaranteed by the caller.
        unsafe {
            if self.kernels.are_bytes() && self.kernels.writes_exactly(job.cols) {
                return blocks.compute_into(&job, to.sum_rows([tiles[0].first(self.window.out[2]), panels.start(p)]));
            }
            let stores = tiles.map(|tile| self.store_job((o, to), &tile, p));
            stores.iter().for_each(StoreJob::prefetch);
            let mut sums = match &self.window.visible {
                Some(columns) => self.sum_visible_taps(blocks, &job, &tiles, (columns, used.start)),
                None => blocks.compute(&job),
            };
            for store in stores {
                StoreJob { sums, ..store }.run(&self.kernels);
                sums = sums.add(store.rows * COLS);
            }
        }
    }

    /// The length of a segment in a panel of the weight, in words of 16 bits.
    fn segment_words(&self) -> usize {
        self.kernels.panel_words(self.window.segments.run)
    }

    /// The segments that both tiles multiply: those of one output row or of two.
    fn segments_of(&self, [a, b]: &[PixelTile; 2]) -> Range<usize> {
        let used = self.window.segments_of(a.line);
        if b.count == 0 || b.line == a.line {
            return used;
        }
        let also = self.window.segments_of(b.line);
        used.start.min(also.start)..used.end.max(also.end)
    }

    /// The sums of both tiles of a job whose segments are taps. Each tap is multiplied only with the pixels that see the image through it:
    /// `columns` says which, and `first` is the job's first tap.
    ///
    /// # Safety
    /// As for [`PairConv::run_chunk`].
    unsafe fn sum_visible_taps(
        &self,
        blocks: &mut PairBlocks,
        job: &PairJob,
        tiles: &[PixelTile; 2],
        (columns, first): (&[Range<usize>], usize),
    ) -> *const f32 {
        let sums = blocks.begin_sums(tiles[0].count + tiles[1].count);
        let mut row = 0;
        for (tile, &a) in tiles.iter().zip(&job.a).filter(|(tile, _)| tile.count > 0) {
            for i in (0..job.segments.len()).filter(|i| self.window.sees_image(tile.line, first + i)) {
                let seen = &columns[(first + i) % columns.len()];
                let start = seen.start.max(tile.column);
                let end = seen.end.min(tile.column + tile.count);
                if start >= end {
                    continue;
                }
                let at = start - tile.column;
                let part = PairJob {
                    a: [a.wrapping_add(at * job.a_row), std::ptr::null()],
                    rows: [end - start, 0],
                    segments: &job.segments[i..i + 1],
                    b: job.b.wrapping_add(i * self.segment_words()),
                    adds: true,
                    ..*job
                };
                let to = SumRows {
                    first: sums.at(row + at, 0),
                    ..sums
                };
                // SAFETY: the pixels that see the image have the tap's elements in it.
                unsafe { blocks.compute_into(&part, to) };
            }
            row += tile.count;
        }
        sums.first
    }

    /// The job that stores the sums of a tile of panel `p`, once they are known.
    #[inline]
    fn store_job(&self, (o, to): (&ImageOperands, &Destination), tile: &PixelTile, p: usize) -> StoreJob {
        let first_col = self.window.panels.start(p);
        let (pixels, pixel): (usize, _) = (self.window.out.iter().product(), tile.first(self.window.out[2]));
        let first = (o.image * pixels + pixel) * self.conv.out_channels + first_col;
        StoreJob {
            sums: std::ptr::null(),
            rows: tile.count,
            cols: self.window.panels.cols(p),
            c: to.at([pixel, first_col], self.conv.dtype.size()),
            c_row: to.row,
            wide: self.is_wide(),
            addend: o.bias.map(|b| (b.skip(first_col), [0, 1])),
            alpha: 1.0,
            beta: 1.0,
            clamp: self.conv.activation.bounds(),
            affine: self.column_affine(o).map(|a| a.part(first, first_col)),
        }
    }
}
