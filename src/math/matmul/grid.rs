//! How a product is cut into chunks for the threads.
//!
//! The cut does not affect results: each element of C is computed by one chunk, and its sum runs in the order of the
//! product index whatever the chunk.

use crate::math::tile::Tiles;

/// Multiply-adds below which a product stays on one thread (about 2 µs).
const ALONE: f64 = 100e3;
/// Multiply-adds of the smallest chunk worth handing out.
const SMALLEST: f64 = 200e3;
/// Rows of A per slab: with [`KC_PACKED`] product indices they fill two thirds of a 1 MB L2 cache.
const SLAB_ROWS: usize = 224;
/// The fewest row tiles of a slab that a tail asks for: panels of B should serve some.
const FEWEST_TILES: usize = 4;
/// Columns of a block of B that is packed on the way.
const GROUP_COLS: usize = 512;
/// The most product indices of a block when B is packed on the way: its group of columns shares the cache.
pub const KC: usize = 384;
/// The most product indices of a block when B is packed already. The result is read and written again for every block.
pub const KC_PACKED: usize = 768;

/// A cut: slabs of row tiles times groups of column panels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    tiles: usize,
    panels: usize,
    tiles_per_slab: usize,
    panels_per_group: usize,
}

/// The operands' part in choosing a cut.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Row tiles.
    pub tiles: Tiles,
    /// Rows of the tallest tile.
    pub mr: usize,
    /// Column panels.
    pub panels: usize,
    /// Columns of a panel.
    pub nr: usize,
    /// The product size.
    pub k: usize,
    /// Whether A is packed already.
    pub a_packed: bool,
    /// Whether B is packed already, or need not be.
    pub b_packed: bool,
    /// Rows of a slab, about, if they should be fewer than what a cache holds of A.
    pub slab_rows: usize,
    /// How many chunks each thread should find.
    pub chunks_per_thread: usize,
}

impl Grid {
    /// The cut of one matrix for `threads` threads when the batch has `batch` matrices.
    pub fn new(s: Shape, threads: usize, batch: usize) -> Grid {
        let tiles = s.tiles.count();
        let slab = if s.a_packed {
            tiles
        } else {
            (SLAB_ROWS / s.mr).min(tiles)
        };
        let slab = match tiles < 2 * FEWEST_TILES {
            // Two short slabs would read all of B twice.
            true => slab,
            false => slab.min((s.slab_rows / s.mr).max(FEWEST_TILES)),
        };
        let group = if s.b_packed {
            s.panels
        } else {
            (GROUP_COLS / s.nr).min(s.panels)
        };
        let mut g = Grid {
            tiles,
            panels: s.panels,
            tiles_per_slab: slab.max(1),
            panels_per_group: group.max(1),
        };
        let macs = (tiles * s.mr) as f64 * (s.panels * s.nr) as f64 * s.k as f64;
        if threads > 1 && macs * batch as f64 > ALONE {
            while batch * g.chunks() < s.chunks_per_thread * threads && macs / g.chunks() as f64 > SMALLEST && g.split()
            {
            }
        }
        g.even()
    }

    /// Halves the chunks along one side; false if they cannot be smaller.
    fn split(&mut self) -> bool {
        if self.tiles_per_slab > 4 || (self.tiles_per_slab > 1 && self.panels_per_group <= 4) {
            self.tiles_per_slab = self.tiles_per_slab.div_ceil(2);
        } else if self.panels_per_group > 1 {
            self.panels_per_group = self.panels_per_group.div_ceil(2);
        } else {
            return false;
        }
        true
    }

    /// Makes the chunks as equal as their number allows.
    fn even(mut self) -> Grid {
        self.tiles_per_slab = self.tiles.div_ceil(self.slabs().max(1)).max(1);
        self.panels_per_group = self.panels.div_ceil(self.groups().max(1)).max(1);
        self
    }

    fn slabs(&self) -> usize {
        self.tiles.div_ceil(self.tiles_per_slab)
    }

    fn groups(&self) -> usize {
        self.panels.div_ceil(self.panels_per_group)
    }

    /// Chunks of one matrix.
    pub fn chunks(&self) -> usize {
        self.slabs() * self.groups()
    }

    /// The row tiles and the column panels of chunk `i`, as half-open ranges.
    pub fn chunk(&self, i: usize) -> ([usize; 2], [usize; 2]) {
        // Neighbouring chunks share their panels of B, which are the larger part.
        let (group, slab) = (i / self.slabs(), i % self.slabs());
        let range = |i: usize, step: usize, end: usize| [i * step, ((i + 1) * step).min(end)];
        (
            range(slab, self.tiles_per_slab, self.tiles),
            range(group, self.panels_per_group, self.panels),
        )
    }
}

/// How product indices `0..k` are cut into blocks of at most `most`, evenly: the size of a block.
pub fn block(k: usize, most: usize) -> usize {
    k.div_ceil(k.div_ceil(most).max(1)).max(1)
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
                let shape = Shape {
                    tiles,
                    mr: 14,
                    panels,
                    nr: 32,
                    k,
                    a_packed,
                    b_packed,
                    slab_rows: usize::MAX,
                    chunks_per_thread: 4,
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
    fn blocks_are_even() {
        assert_eq!(
            (block(0, 384), block(384, 384), block(385, 384), block(1000, 384)),
            (1, 384, 193, 334)
        );
    }
}
