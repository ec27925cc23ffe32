//! Copies with a list of indices for each dim, such as padding by the elements at the edges or by a constant.
//!
//! The last dims are a block: a line of the result, or a whole image if lines are short. A block is copied in runs of elements that are
//! neighbours in the operand, too, or at listed places where runs are short.

use crate::op::rows::fill::{units_per_part, with_word};
use crate::parallel::Pool;
use crate::tensor::{Places, Scalar, Tensor, ViewMut};
use std::ops::Range;

/// Blocks of fewer elements are joined with the dim before.
const SHORT: usize = 64;
/// The greatest block of joined dims.
const MOST: usize = 1 << 14;
/// A run of at least this many elements is copied by itself.
const LONG: usize = 16;

/// The index, or place, of what is no element of the operand.
pub(super) const OUTSIDE: usize = usize::MAX;

/// The indices of the operand for those of the result along a dim: neighbours between others, which may be [`OUTSIDE`].
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

/// Writes the elements of `x` at `indices`, for each dim. All are within the dims of `x`, or outside, for which `fill` is written.
pub(super) fn copy_indices(
    x: &Tensor,
    indices: &[DimIndices],
    fill: Option<Scalar>,
    out: &mut ViewMut<'_>,
    pool: &Pool,
) {
    let size = x.dtype().size();
    if out.bytes_mut().is_empty() {
        return;
    }
    if let Some(value) = fill {
        // Copies read it there, as an element.
        value.write(out.bytes_mut(), 0);
    }
    let Some((block, rest)) = Block::of_last_dims(x.shape(), indices) else {
        out.bytes_mut().copy_from_slice(x.bytes());
        return;
    };
    let mut strides = vec![block.extent; rest.len()];
    for d in (1..rest.len()).rev() {
        strides[d - 1] = strides[d] * x.shape()[d];
    }
    let outer: Vec<Vec<usize>> = rest
        .iter()
        .zip(strides)
        .map(|(dim, stride)| dim.list().iter().map(|i| scaled(*i, stride)).collect())
        .collect();
    with_word!(size, x.bytes(), out.bytes_mut(), |src, dst| {
        let fill = dst[0];
        copy_blocks(src, dst, &outer, (&block, fill), size, pool);
    });
}

/// The sum of two places, or outside if either is.
fn add_places(a: usize, b: usize) -> usize {
    match a == OUTSIDE || b == OUTSIDE {
        true => OUTSIDE,
        false => a + b,
    }
}

/// The place of an index, or outside if it is.
fn scaled(index: usize, stride: usize) -> usize {
    match index {
        OUTSIDE => OUTSIDE,
        index => index * stride,
    }
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
    /// As many that are outside.
    Fill(usize),
    /// Elements at these places.
    Listed(Vec<usize>),
    /// The same, within a length that i32 can express.
    Checked(Places<Vec<i32>>, usize),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Piece::Run(_, n) | Piece::Fill(n) | Piece::Checked(_, n) => *n,
            Piece::Listed(list) => list.len(),
        }
    }
}

impl Block {
    /// The block of the last dims of a tensor of this shape, and the indices of the other dims. `None` if there are no dims.
    fn of_last_dims<'i>(shape: &[usize], indices: &'i [DimIndices]) -> Option<(Block, &'i [DimIndices])> {
        let (last, rest) = indices.split_last()?;
        let (mut extent, mut dims) = (shape[rest.len()], rest.len());
        if last.len() >= SHORT {
            return Some((Block::of_line(last, extent), rest));
        }
        let mut places = last.list();
        while dims > 0 && places.len() < SHORT && rest[dims - 1].len().saturating_mul(places.len()) <= MOST {
            dims -= 1;
            let list = rest[dims].list();
            places = list
                .iter()
                .flat_map(|i| places.iter().map(move |p| add_places(scaled(*i, extent), *p)))
                .collect();
            extent *= shape[dims];
        }
        Some((Block::new(places, extent), &rest[..dims]))
    }

    /// A line along the last dim.
    fn of_line(dim: &DimIndices, extent: usize) -> Block {
        let mut pieces = vec![];
        push_pieces(&dim.before, extent, &mut pieces);
        pieces.push(Piece::Run(dim.inside.start, dim.inside.len()));
        push_pieces(&dim.after, extent, &mut pieces);
        Block {
            len: dim.len(),
            extent,
            pieces,
        }
    }

    fn new(places: Vec<usize>, extent: usize) -> Block {
        let mut pieces = vec![];
        push_pieces(&places, extent, &mut pieces);
        Block {
            len: places.len(),
            extent,
            pieces,
        }
    }

    /// Copies the block that starts at the first element of `src`.
    #[inline]
    fn copy<T: Copy + Default>(&self, src: &[T], fill: T, mut to: &mut [T]) {
        for piece in &self.pieces {
            let (now, rest) = to.split_at_mut(piece.len());
            to = rest;
            match piece {
                Piece::Run(from, n) => now.copy_from_slice(&src[*from..][..*n]),
                Piece::Fill(_) => now.fill(fill),
                Piece::Listed(list) => now.iter_mut().zip(list).for_each(|(o, &p)| *o = src[p]),
                Piece::Checked(places, n) => places.part(0..*n).gather(src, now),
            }
        }
    }
}

/// The pieces of elements at these places.
fn push_pieces(places: &[usize], extent: usize, pieces: &mut Vec<Piece>) {
    let follows = |a: &usize, b: &usize| match (*a, *b) {
        (OUTSIDE, b) => b == OUTSIDE,
        (a, b) => a + 1 == b,
    };
    let mut listed = vec![];
    for run in places.chunk_by(follows) {
        let piece = match run[0] {
            OUTSIDE => Piece::Fill(run.len()),
            first if run.len() >= LONG => Piece::Run(first, run.len()),
            _ => {
                listed.extend_from_slice(run);
                continue;
            }
        };
        pieces.extend(Piece::listed(std::mem::take(&mut listed), extent));
        pieces.push(piece);
    }
    pieces.extend(Piece::listed(listed, extent));
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
    (block, fill): (&Block, T),
    size: usize,
    pool: &Pool,
) {
    let blocks = units_per_part(dst.len() / block.len, block.len * size, pool);
    pool.run_parts(dst, blocks * block.len, |part, dst| {
        let blocks = CopyBlocks {
            src,
            dst,
            offsets,
            block,
            fill,
            first: part * blocks,
        };
        blocks.copy();
    });
}

/// Writes blocks from block `first` on.
struct CopyBlocks<'a, T> {
    src: &'a [T],
    dst: &'a mut [T],
    offsets: &'a [Vec<usize>],
    block: &'a Block,
    fill: T,
    first: usize,
}

impl<T: Copy + Default> CopyBlocks<'_, T> {
    fn copy(self) {
        let (block, len) = (self.block, self.block.len);
        // Blocks along the last of these dims follow each other without looking at the others.
        let (line, outer) = self
            .offsets
            .split_last()
            .map_or((&[0][..], &[][..]), |(l, o)| (&l[..], o));
        // The index of the current block along each dim.
        let mut at = vec![0; outer.len()];
        let (mut rest, mut first) = (self.first / line.len(), self.first % line.len());
        for d in (0..outer.len()).rev() {
            at[d] = rest % outer[d].len();
            rest /= outer[d].len();
        }
        let mut to = self.dst;
        while !to.is_empty() {
            let bases = at.iter().zip(outer).map(|(&i, list)| list[i]);
            let base = bases.fold(0, add_places);
            let (now, rest) = to.split_at_mut(((line.len() - first) * len).min(to.len()));
            for k in 0..now.len() / len {
                let to = &mut now[k * len..][..len];
                match add_places(base, line[first + k]) {
                    OUTSIDE => to.fill(self.fill),
                    at => block.copy(&self.src[at..][..block.extent], self.fill, to),
                }
            }
            (to, first) = (rest, 0);
            advance(&mut at, outer);
        }
    }
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
        let outside = |n: usize, m: usize| DimIndices {
            before: vec![OUTSIDE; m],
            inside: 0..n,
            after: vec![OUTSIDE; m / 2],
        };
        for (shape, indices) in [
            (vec![2, 3, 5, 7], vec![run(2, 0), run(3, 0), run(5, 2), run(7, 3)]),
            (vec![3, 100], vec![run(3, 1), run(100, 9)]),
            (vec![6, 4, 90], vec![run(6, 0), list(4, 9), list(90, 200)]),
            (vec![70], vec![run(70, 4)]),
            (vec![2, 3], vec![run(2, 0), none()]),
            (
                vec![2, 3, 28, 30],
                vec![run(2, 0), run(3, 0), outside(28, 2), outside(30, 3)],
            ),
            (
                vec![3, 2, 5, 80],
                vec![outside(3, 1), outside(2, 3), run(5, 1), outside(80, 70)],
            ),
        ] {
            for d in [DType::U8, DType::F16, DType::F32, DType::F64] {
                let n: usize = shape.iter().product();
                let x: Vec<i64> = (0..n as i64).map(|i| i % 120).collect();
                let x = Tensor::from_slice(&shape, &x).to(d);
                let sizes: Vec<usize> = indices.iter().map(DimIndices::len).collect();
                let lists: Vec<Vec<usize>> = indices.iter().map(DimIndices::list).collect();
                for threads in [1, 2] {
                    let mut out = Tensor::zeros(d, &sizes);
                    let fill = Scalar::from_i64(d, 3);
                    copy_indices(
                        &x,
                        &indices,
                        Some(fill),
                        &mut ViewMut::from(&mut out),
                        &Pool::new(threads),
                    );
                    for i in 0..out.numel() {
                        let (mut rest, mut place, mut stride) = (i, 0, 1);
                        for k in (0..shape.len()).rev() {
                            place = add_places(place, scaled(lists[k][rest % sizes[k]], stride));
                            rest /= sizes[k];
                            stride *= shape[k];
                        }
                        let want = if place == OUTSIDE { fill } else { x.get(place) };
                        assert_eq!(out.get(i), want, "{d} {shape:?} {i}");
                    }
                }
            }
        }
    }
}
