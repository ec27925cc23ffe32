//! Index tensors in blocks of neighbours. Positions are computed for a whole block, because the rows of an index tensor may be short.

use crate::tensor::Offsets;
use std::ops::Range;

/// The most elements of a block: their indices, positions and values stay in the first cache.
const MOST: usize = 1024;
/// The least number of blocks, unless they have fewer than [`FEWEST`] elements: positions that are used only once would cost more than
/// they save.
const BLOCKS: usize = 16;
const FEWEST: usize = 64;

/// A dim of an index tensor.
#[derive(Clone, Copy)]
pub(super) struct BlockDim {
    pub size: usize,
    /// The distance of its neighbours in the tensor in which the indices name elements.
    pub to: usize,
    /// The distance of its neighbours in a third tensor.
    pub from: usize,
}

/// The elements of an index tensor in order, as units of the same length, and blocks of some units.
pub(super) struct Blocks {
    /// The dims outside of units, at least one.
    outer: Vec<BlockDim>,
    /// The number of elements of a unit.
    pub unit: usize,
    /// The most units of a block.
    most: usize,
    /// The positions of a block's elements in the tensor in which the indices name elements, for index 0.
    pub to: Offsets,
    /// The positions of a block's elements in the third tensor.
    pub from: Offsets,
}

impl Blocks {
    /// The blocks of an index tensor of these dims.
    pub(super) fn new(dims: impl IntoIterator<Item = BlockDim>) -> Blocks {
        let mut outer = merged(dims);
        let all = outer.iter().fold(1usize, |n, d| n.saturating_mul(d.size));
        let longest = (all / BLOCKS).clamp(FEWEST, MOST);
        // The innermost dim comes first.
        let (mut unit, mut within) = (1, vec![]);
        while let [_, .., d] = outer[..]
            && unit * d.size <= longest
        {
            unit *= d.size;
            within.extend(outer.pop());
        }
        let last = outer[outer.len() - 1];
        let most = (longest / unit).min(last.size).max(1);
        within.push(BlockDim { size: most, ..last });
        let (to, from) = (positions(&within, |d| d.to), positions(&within, |d| d.from));
        Blocks {
            outer,
            unit,
            most,
            to: Offsets::new(to),
            from: Offsets::new(from),
        }
    }

    /// The number of units.
    pub(super) fn count(&self) -> usize {
        self.outer.iter().map(|d| d.size).product()
    }

    /// The first dim, after neighbours with the same distances were merged, and the number of units of each of its places.
    pub(super) fn first(&self) -> (BlockDim, usize) {
        (self.outer[0], self.outer[1..].iter().map(|d| d.size).product())
    }

    /// Calls `f(elements, to, from)` for blocks of these units, with the block's range of elements of the index tensor, and its positions in
    /// the other tensors.
    pub(super) fn for_each<E>(
        &self,
        units: Range<usize>,
        mut f: impl FnMut(Range<usize>, usize, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let last = self.outer[self.outer.len() - 1].size;
        let mut u = units.start;
        while u < units.end {
            let n = self.most.min(last - u % last).min(units.end - u);
            let (to, from) = self.position(u);
            f(u * self.unit..(u + n) * self.unit, to, from)?;
            u += n;
        }
        Ok(())
    }

    /// The position of a unit in both tensors.
    fn position(&self, mut unit: usize) -> (usize, usize) {
        let (mut to, mut from) = (0usize, 0usize);
        for d in self.outer.iter().rev() {
            let i = unit % d.size;
            // Distances have no meaning in a tensor without elements.
            to = to.wrapping_add(i.wrapping_mul(d.to));
            from = from.wrapping_add(i.wrapping_mul(d.from));
            unit /= d.size;
        }
        (to, from)
    }
}

/// The dims, at least one, with neighbours merged that are one dim in all tensors.
fn merged(dims: impl IntoIterator<Item = BlockDim>) -> Vec<BlockDim> {
    let mut out: Vec<BlockDim> = vec![];
    for d in dims {
        let continues = |before: usize, next: usize| before == next.wrapping_mul(d.size);
        match out.last_mut() {
            Some(last) if continues(last.to, d.to) && continues(last.from, d.from) => {
                *last = BlockDim {
                    size: last.size * d.size,
                    ..d
                }
            }
            _ => out.push(d),
        }
    }
    if out.is_empty() {
        out.push(BlockDim {
            size: 1,
            to: 0,
            from: 0,
        });
    }
    out
}

/// The positions of the elements of dims, the innermost of which is the first.
fn positions(dims: &[BlockDim], distance: impl Fn(&BlockDim) -> usize) -> Vec<usize> {
    dims.iter().fold(vec![0], |inner, d| {
        let distance = distance(d);
        let mut all = Vec::with_capacity(inner.len() * d.size);
        for i in 0..d.size {
            let start = i.wrapping_mul(distance);
            all.extend(inner.iter().map(|p| p.wrapping_add(start)));
        }
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The positions of all elements, by blocks and one by one.
    fn all_positions(dims: &[BlockDim]) -> [Vec<(usize, usize)>; 2] {
        let blocks = Blocks::new(dims.iter().copied());
        let mut by_blocks = vec![];
        let done: Result<(), ()> = blocks.for_each(0..blocks.count(), |elements, to, from| {
            assert_eq!(elements.start, by_blocks.len());
            let places = blocks.to.list().iter().zip(blocks.from.list());
            by_blocks.extend(places.take(elements.len()).map(|(t, f)| (to + t, from + f)));
            Ok(())
        });
        assert!(done.is_ok());
        let innermost_first: Vec<BlockDim> = dims.iter().rev().copied().collect();
        let (to, from) = (
            positions(&innermost_first, |d| d.to),
            positions(&innermost_first, |d| d.from),
        );
        [by_blocks, to.into_iter().zip(from).collect()]
    }

    #[test]
    fn blocks_have_all_elements_in_order() {
        let nests: [&[(usize, usize, usize)]; 7] = [
            &[],
            &[(5000, 0, 1)],
            &[(700, 7, 7), (7, 0, 1)],
            &[(700, 0, 7), (7, 1, 1)],
            &[(3, 5000, 3000), (5, 0, 600), (600, 1, 1)],
            &[(3, 9000, 0), (1500, 3, 0), (3, 1, 0)],
            &[(40, 1000, 500), (2, 300, 200), (9, 20, 20), (7, 2, 2), (2, 1, 1)],
        ];
        for nest in nests {
            let dim = |&(size, to, from): &(usize, usize, usize)| BlockDim { size, to, from };
            let [by_blocks, all] = all_positions(&nest.iter().map(dim).collect::<Vec<_>>());
            assert_eq!(by_blocks, all, "{nest:?}");
        }
    }
}
