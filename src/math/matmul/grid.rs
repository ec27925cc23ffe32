//! Splits a product into chunks for the threads.
//!
//! The split does not affect results: one chunk computes each element of C, and sums in the order of the product index
//! whatever the chunk.

use crate::math::tile::Tiles;
use crate::parallel::Pool;

/// Products with fewer multiply-adds stay on one thread (about 2 µs).
const ALONE: f64 = 100e3;
/// The number of multiply-adds in the smallest chunk worth distributing.
const SMALLEST: f64 = 200e3;
/// The number of rows of A per slab. With [`KC_PACKED`] product indices they fill two thirds of a 1 MB L2 cache.
const SLAB_ROWS: usize = 224;
/// The number of columns in a block of B that is packed during the run.
const GROUP_COLS: usize = 512;
/// The maximum number of product indices in a block if B is packed during the run: its group of columns shares the
/// cache.
pub(super) const KC: usize = 384;
/// The maximum number of product indices in a block if B is already packed. Each block reads and writes the result
/// again.
pub(super) const KC_PACKED: usize = 768;

/// A split into slabs of row tiles times groups of column panels, both as equal as possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    tiles: usize,
    panels: usize,
    slabs: usize,
    groups: usize,
}

/// The properties of the operands that decide the split.
#[derive(Clone, Copy, Debug)]
pub(super) struct GridShape {
    /// The row tiles.
    pub tiles: Tiles,
    /// The number of rows of the tallest tile.
    pub mr: usize,
    /// The number of column panels.
    pub panels: usize,
    /// The number of columns in a panel.
    pub nr: usize,
    /// The product size.
    pub k: usize,
    /// Whether A is already packed.
    pub a_packed: bool,
    /// Whether B is already packed, or need not be.
    pub b_packed: bool,
    /// The desired number of chunks per thread.
    pub chunks_per_thread: usize,
    /// How many multiply-adds take the time of one of f32.
    pub rate: usize,
}

impl Grid {
    /// The split of one matrix for `threads` threads, if the batch has `batch` matrices.
    pub(super) fn new(s: GridShape, threads: usize, batch: usize) -> Grid {
        let tiles = s.tiles.count();
        let slab = if s.a_packed {
            tiles
        } else {
            (SLAB_ROWS / s.mr).min(tiles)
        };
        let group = if s.b_packed {
            s.panels
        } else {
            (GROUP_COLS / s.nr).min(s.panels)
        };
        let mut g = Grid {
            tiles,
            panels: s.panels,
            slabs: tiles.div_ceil(slab.max(1)),
            groups: s.panels.div_ceil(group.max(1)),
        };
        let macs = (tiles * s.mr) as f64 * (s.panels * s.nr) as f64 * s.k as f64 / s.rate as f64;
        if threads > 1 && macs * batch as f64 > ALONE {
            let small = |g: &Grid| macs / g.chunks() as f64 <= SMALLEST;
            while batch * g.chunks() < s.chunks_per_thread * threads && !small(&g) && g.halve_chunks(&s) {}
            g.level_chunks(threads, batch);
        }
        g
    }

    /// Halves the chunks along one side. Returns false if they cannot be smaller.
    fn halve_chunks(&mut self, s: &GridShape) -> bool {
        let (tiles, panels) = (self.tiles.div_ceil(self.slabs), self.panels.div_ceil(self.groups));
        // Every slab packs B again, and every group packs A again.
        // Faster multiply-adds wait for memory instead: the larger operand should be read only once.
        let tall = (s.b_packed && s.rate == 1) || tiles * s.mr >= panels * s.nr;
        if (tiles > 4 && tall) || (tiles > 1 && panels <= 4) {
            self.slabs = self.tiles.div_ceil(tiles.div_ceil(2));
        } else if panels > 1 {
            self.groups = self.panels.div_ceil(panels.div_ceil(2));
        } else if tiles > 1 {
            self.slabs = self.tiles.div_ceil(tiles.div_ceil(2));
        } else {
            return false;
        }
        true
    }

    /// Adds slabs until every thread gets the same number of chunks, if there are only a few for each.
    fn level_chunks(&mut self, threads: usize, batch: usize) {
        let fair = |slabs: usize| (batch * slabs * self.groups).is_multiple_of(threads);
        if self.slabs > 1 && batch * self.chunks() > threads && batch * self.chunks() < 16 * threads {
            let more = (self.slabs..=self.tiles.min(self.slabs + threads)).find(|&n| fair(n));
            self.slabs = more.unwrap_or(self.slabs);
        }
    }

    /// Calls `compute` for every chunk of every matrix of a batch: the matrix, its row tiles and its column panels. `together`
    /// matrices that are one chunk each run as one, because they are too small to be handed out one by one.
    pub(super) fn run_batch(
        &self,
        pool: &Pool,
        batch: usize,
        together: usize,
        compute: impl Fn(usize, [usize; 2], [usize; 2]) + Sync,
    ) {
        let per = self.chunks();
        let together = if per > 1 { 1 } else { together };
        pool.run((batch * per).div_ceil(together), |i| {
            for i in i * together..((i + 1) * together).min(batch * per) {
                let (tiles, panels) = self.chunk(i % per);
                compute(i / per, tiles, panels);
            }
        });
    }

    /// The number of chunks of one matrix.
    pub(super) fn chunks(&self) -> usize {
        self.slabs * self.groups
    }

    /// The row tiles and the column panels of chunk `i`, as half-open ranges.
    pub(super) fn chunk(&self, i: usize) -> ([usize; 2], [usize; 2]) {
        // Neighbouring chunks share their panels of B, the larger part of their operands.
        let (group, slab) = (i / self.slabs, i % self.slabs);
        let range = |i: usize, n: usize, all: usize| [i * all / n, (i + 1) * all / n];
        (
            range(slab, self.slabs, self.tiles),
            range(group, self.groups, self.panels),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_the_matrix_once() {
        for (m, panels, k, threads, batch) in [
            (1, 128, 4096, 2, 1),
            (128, 24, 768, 2, 1),
            (2048, 64, 2048, 4, 1),
            (7, 1, 3, 8, 5),
            (300, 3, 3000, 64, 1),
        ] {
            for (a_packed, b_packed) in [(false, false), (true, false), (false, true)] {
                let tiles = Tiles::new(m, 14);
                let shape = GridShape {
                    tiles,
                    mr: 14,
                    panels,
                    nr: 32,
                    k,
                    a_packed,
                    b_packed,
                    chunks_per_thread: 4,
                    rate: 1,
                };
                let g = Grid::new(shape, threads, batch);
                let mut hit = vec![0; tiles.count() * panels];
                for i in 0..g.chunks() {
                    let ([t0, t1], [p0, p1]) = g.chunk(i);
                    for t in t0..t1 {
                        for p in p0..p1 {
                            hit[t * panels + p] += 1;
                        }
                    }
                }
                assert!(hit.iter().all(|&h| h == 1), "{g:?}");
            }
        }
    }

    #[test]
    fn threads_find_as_much_work() {
        // 37 tiles for two threads: both threads get equally many chunks of equal size.
        let shape = |b_packed| GridShape {
            tiles: Tiles::new(512, 14),
            mr: 14,
            panels: 16,
            nr: 32,
            k: 512,
            a_packed: false,
            b_packed,
            chunks_per_thread: 4,
            rate: 1,
        };
        for b_packed in [false, true] {
            let g = Grid::new(shape(b_packed), 2, 1);
            let work = |i: usize| {
                let ([t0, t1], [p0, p1]) = g.chunk(i);
                (t1 - t0) * (p1 - p0)
            };
            let half = g.chunks() / 2;
            let first: usize = (0..half).map(work).sum();
            assert!(g.chunks().is_multiple_of(2) && (280..=312).contains(&first), "{g:?}");
        }
        // If operands are packed during the run, blocks are roughly square.
        assert!(Grid::new(shape(false), 2, 1).groups > 1);
    }
}
