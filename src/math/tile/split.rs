//! Splits rows into tiles, and product indices into blocks.

/// The size of the blocks that split `n` product indices evenly into blocks of at most `most`.
pub(in crate::math) fn block_size(n: usize, most: usize) -> usize {
    n.div_ceil(n.div_ceil(most.max(1)).max(1)).max(1)
}

/// A split of `rows` rows into the fewest tiles of at most `most` rows, as equal as possible. Tile `i` starts at row
/// `start(i)`.
#[derive(Clone, Copy, Debug)]
pub(in crate::math) struct Tiles {
    rows: usize,
    count: usize,
}

impl Tiles {
    /// Splits `rows` rows.
    pub(in crate::math) fn new(rows: usize, most: usize) -> Tiles {
        Tiles {
            rows,
            count: rows.div_ceil(most),
        }
    }

    /// The number of tiles.
    pub(in crate::math) fn count(self) -> usize {
        self.count
    }

    /// The first row of tile `i`. `start(count())` is the number of rows.
    #[inline]
    pub(in crate::math) fn start(self, i: usize) -> usize {
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
    fn blocks_are_even() {
        assert_eq!(
            (
                block_size(0, 0),
                block_size(384, 384),
                block_size(385, 384),
                block_size(1000, 384)
            ),
            (1, 384, 193, 334)
        );
    }
}
