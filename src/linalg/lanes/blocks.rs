//! The blocks of banded matrices that the next steps work on. Lanes whose block does not contain a row wait for the others.

use super::Lanes;
use crate::linalg::LANES;
use crate::linalg::eigen::ql::TINY;
use std::ops::Range;

/// The first and the last row of each lane's block. They are equal if nothing is left to do. Row numbers are f64, so that masks of one
/// width select both rows and elements.
pub(super) struct Blocks {
    pub(super) first: Lanes,
    pub(super) last: Lanes,
}

impl Blocks {
    /// The first row of each block.
    #[inline(always)]
    pub(super) fn first_rows(&self) -> [usize; LANES] {
        self.first.map(|x| x as usize)
    }

    /// All rows that are in a block and not its last.
    #[inline(always)]
    pub(super) fn rows(&self) -> Range<usize> {
        let (mut low, mut high) = (f64::INFINITY, 0.0);
        for l in 0..LANES {
            if self.first[l] < self.last[l] {
                low = self.first[l].min(low);
                high = self.last[l].max(high);
            }
        }
        low as usize..high as usize
    }

    /// Moves every block on to the first one that is not diagonal. Returns false if there are none. `SQUARES` says that `e` has squares.
    #[inline(always)]
    pub(super) fn find<const SQUARES: bool>(&mut self, d: &[Lanes], e: &[Lanes]) -> bool {
        let end = d.len() - 1;
        let start = self.first.iter().fold(end as f64, |x, y| x.min(*y)) as usize;
        let (mut first, mut last) = (self.first, [end as f64; LANES]);
        for k in start..end {
            let (x, y, below, at) = (&d[k], &d[k + 1], &e[k], k as f64);
            for l in 0..LANES {
                let bound = TINY + f64::EPSILON * (x[l].abs() + y[l].abs());
                let size = if SQUARES { below[l] } else { below[l].abs() };
                let small = size <= if SQUARES { bound * bound } else { bound };
                let (begins, inside) = (first[l] == at, first[l] < at && at < last[l]);
                first[l] = if small && begins { at + 1.0 } else { first[l] };
                last[l] = if small && inside { at } else { last[l] };
            }
        }
        (self.first, self.last) = (first, last);
        (0..LANES).any(|l| first[l] < last[l])
    }
}
