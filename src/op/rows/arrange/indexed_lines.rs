//! Copies with a list of indices for each dim, such as padding by the elements at the edges.
//!
//! The last dims are a block: a line of the result, or a whole image if lines are short. A block is copied in runs of elements that are
//! neighbours in the operand, too, or at listed places where runs are short.

use crate::op::rows::fill::{units_per_part, with_word};
use crate::parallel::Pool;
use crate::tensor::{Places, Tensor, ViewMut, copy_row};
use std::ops::Range;

/// Blocks of fewer elements are joined with the dim before.
const SHORT: usize = 64;
/// The greatest block of joined dims.
const MOST: usize = 1 << 14;
/// A run of at least this many elements is copied by itself.
const LONG: usize = 16;

/// The indices of the operand for those of the result along a dim: neighbours between others.
pub(super) struct DimIndices {
    pub(super) before: Vec<usize>,
    pub(super) inside: Range<usize>,
    pub(super) after: Vec<usize>,
}

impl DimIndices {
    fn len(&self) -> usize {
        self.before.len() + self.inside.len() + self.after.len()
    }

    fn list(&self) -> Vec<usize> {
        let all = self.before.iter().copied().chain(self.inside.clone());
        all.chain(self.after.iter().copied()).collect()
    }
}

/// Writes the elements of `x` at `indices`, for each dim. All are within the dims of `x`.
pub(super) fn copy_indices(x: &Tensor, indices: &[DimIndices], out: &mut ViewMut<'_>, pool: &Pool) {
    let size = x.dtype().size();
    if out.bytes_mut().is_empty() {
        return;
    }
    let Some((last, rest)) = indices.split_last() else {
        return;
    };
    let (mut extent, mut dims) = (x.shape()[rest.len()], rest.len());
    let mut block = Block::of_line(last, extent);
    if last.len() < SHORT {
        let mut places = last.list();
        while dims > 0 && places.len() < SHORT && rest[dims - 1].len().saturating_mul(places.len()) <= MOST {
            dims -= 1;
            let list = rest[dims].list();
            places = list
                .iter()
                .flat_map(|i| places.iter().map(move |p| i * extent + p))
                .collect();
            extent *= x.shape()[dims];
        }
        block = Block::new(places, extent);
    }
    let mut strides = vec![extent; dims];
    for d in (1..dims).rev() {
        strides[d - 1] = strides[d] * x.shape()[d];
    }
    let outer: Vec<Vec<usize>> = indices[..dims]
        .iter()
        .zip(strides)
        .map(|(dim, stride)| dim.list().iter().map(|i| i * stride).collect())
        .collect();
    with_word!(size, x.bytes(), out.bytes_mut(), |src, dst| {
        copy_blocks(src, dst, &outer, &block, size, pool);
    });
}

/// The places of the elements of a block.
struct Block {
    len: usize,
    extent: usize,
    pieces: Vec<Piece>,
}

/// Consecutive elements of a block.
enum Piece {
    /// As many elements, from a place of the operand on.
    Run(usize, usize),
    /// Elements at these places.
    Listed(Vec<usize>),
    /// The same, within a length that i32 can express.
    Checked(Places<Vec<i32>>, usize),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Piece::Run(_, n) | Piece::Checked(_, n) => *n,
            Piece::Listed(list) => list.len(),
        }
    }
}

impl Block {
    /// A line along the last dim.
    fn of_line(dim: &DimIndices, extent: usize) -> Block {
        let run = Piece::Run(dim.inside.start, dim.inside.len());
        let pieces = [
            Piece::listed(dim.before.clone(), extent),
            Some(run),
            Piece::listed(dim.after.clone(), extent),
        ];
        Block {
            len: dim.len(),
            extent,
            pieces: pieces.into_iter().flatten().collect(),
        }
    }

    fn new(places: Vec<usize>, extent: usize) -> Block {
        let len = places.len();
        let (mut pieces, mut listed) = (vec![], vec![]);
        for run in places.chunk_by(|a, b| a + 1 == *b) {
            if run.len() < LONG {
                listed.extend_from_slice(run);
                continue;
            }
            pieces.extend(Piece::listed(std::mem::take(&mut listed), extent));
            pieces.push(Piece::Run(run[0], run.len()));
        }
        pieces.extend(Piece::listed(listed, extent));
        Block { len, extent, pieces }
    }

    /// Copies the block that starts at the first element of `src`.
    #[inline]
    fn copy<T: Copy + Default>(&self, src: &[T], mut to: &mut [T]) {
        for piece in &self.pieces {
            let (now, rest) = to.split_at_mut(piece.len());
            to = rest;
            match piece {
                Piece::Run(from, n) => copy_row(&src[*from..][..*n], now),
                Piece::Listed(list) => now.iter_mut().zip(list).for_each(|(o, &p)| *o = src[p]),
                Piece::Checked(places, n) => places.part(0..*n).gather(src, now),
            }
        }
    }
}

impl Piece {
    /// A few places are read one by one.
    fn listed(list: Vec<usize>, extent: usize) -> Option<Piece> {
        let narrow: Option<Vec<i32>> = list.iter().map(|&p| i32::try_from(p).ok()).collect();
        match narrow {
            _ if list.is_empty() => None,
            Some(places) if list.len() >= 8 => Some(Piece::Checked(Places::new(extent, places), list.len())),
            _ => Some(Piece::Listed(list)),
        }
    }
}

/// Writes blocks, from the sums of the other dims' `offsets` on.
fn copy_blocks<T: Copy + Default + Send + Sync>(
    src: &[T],
    dst: &mut [T],
    offsets: &[Vec<usize>],
    block: &Block,
    size: usize,
    pool: &Pool,
) {
    let blocks = units_per_part(dst.len() / block.len, block.len * size, pool);
    // Blocks along the last of these dims follow each other without looking at the others.
    let (line, outer) = offsets.split_last().map_or((&[0][..], &[][..]), |(l, o)| (&l[..], o));
    pool.run_parts(dst, blocks * block.len, |part, dst| {
        // The index of the current block along each dim.
        let mut at = vec![0; outer.len()];
        let (mut rest, mut first) = (part * blocks / line.len(), part * blocks % line.len());
        for (at, list) in at.iter_mut().zip(outer).rev() {
            *at = rest % list.len();
            rest /= list.len();
        }
        let mut to = dst.chunks_exact_mut(block.len);
        while to.len() > 0 {
            let base: usize = at.iter().zip(outer).map(|(&i, list)| list[i]).sum();
            for (offset, to) in line[first..].iter().zip(&mut to) {
                block.copy(&src[base + offset..][..block.extent], to);
            }
            first = 0;
            advance(&mut at, outer);
        }
    });
}

/// Moves to the next index, in row-major order.
fn advance(at: &mut [usize], lists: &[Vec<usize>]) {
    for (at, list) in at.iter_mut().zip(lists).rev() {
        *at += 1;
        if *at < list.len() {
            break;
        }
        *at = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::DType;

    /// Copies of several sizes, compared with each element by itself.
    #[test]
    fn each_element_is_the_one_at_its_indices() {
        let list = |n: usize, m: usize| DimIndices {
            before: (0..m).map(|i| (i * 5 + i / 7) % n).collect(),
            inside: 1..n.min(2),
            after: vec![],
        };
        let run = |n: usize, before: usize| DimIndices {
            before: (0..before).map(|i| (i * 3) % n).collect(),
            inside: 0..n,
            after: (0..before).map(|i| (i * 2) % n).collect(),
        };
        let none = || DimIndices {
            before: vec![],
            inside: 0..0,
            after: vec![],
        };
        for (shape, indices) in [
            (vec![2, 3, 5, 7], vec![run(2, 0), run(3, 0), run(5, 2), run(7, 3)]),
            (vec![3, 100], vec![run(3, 1), run(100, 9)]),
            (vec![6, 4, 90], vec![run(6, 0), list(4, 9), list(90, 200)]),
            (vec![70], vec![run(70, 4)]),
            (vec![2, 3], vec![run(2, 0), none()]),
        ] {
            for d in [DType::U8, DType::F16, DType::F32, DType::F64] {
                let n: usize = shape.iter().product();
                let x: Vec<i64> = (0..n as i64).map(|i| i % 120).collect();
                let x = Tensor::from_slice(&shape, &x).to(d);
                let sizes: Vec<usize> = indices.iter().map(DimIndices::len).collect();
                let lists: Vec<Vec<usize>> = indices.iter().map(DimIndices::list).collect();
                for threads in [1, 2] {
                    let mut out = Tensor::zeros(d, &sizes);
                    copy_indices(&x, &indices, &mut ViewMut::from(&mut out), &Pool::new(threads));
                    for i in 0..out.numel() {
                        let (mut rest, mut place, mut stride) = (i, 0, 1);
                        for k in (0..shape.len()).rev() {
                            place += lists[k][rest % sizes[k]] * stride;
                            rest /= sizes[k];
                            stride *= shape[k];
                        }
                        assert_eq!(out.get(i), x.get(place), "{d} {shape:?} {i}");
                    }
                }
            }
        }
    }
}
