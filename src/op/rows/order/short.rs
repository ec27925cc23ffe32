//! The order of many short lines at once: a sorting network compares the same two places of all of them in vectors.

use super::{Placed, Ties, rank_of_f32, rank_of_f64, rank_of_i64, with_ranks};
use crate::op::rows::fill::units_per_part;
use crate::op::rows::lines::DimLines;
use crate::parallel::Pool;
use crate::tensor::{Element, Tensor, WideLoop, run_wide, widen_f16};
use crate::types::DType;
use std::ops::Range;

/// The lines that are ordered at once.
const LANES: usize = 64;

/// The fewest lines for which this is faster than to order each of them.
const FEWEST_LINES: usize = 32;

/// The longest lines, if a rank and a place are one word of the processor, and if they are not.
const LONGEST: usize = 128;
const LONGEST_WIDE: usize = 16;

/// Parts of the orders of short lines.
pub(in crate::op::rows) struct ShortOrders {
    /// For each [`LANES`] lines, the places that are first in them, then those that are next, and so on.
    places: Vec<u8>,
    /// The number of places of a line.
    len: usize,
}

impl ShortOrders {
    /// The elements in this part of each line's order; `None` unless there are many lines, and all of them are short.
    pub(in crate::op::rows) fn new(
        t: &Tensor,
        lines: &DimLines,
        descending: bool,
        (wanted, ties): (Range<usize>, Ties),
        pool: &Pool,
    ) -> Option<ShortOrders> {
        let dtype = t.dtype();
        let longest = if dtype.size() < 8 { LONGEST } else { LONGEST_WIDE };
        let count = lines.outer * lines.inner;
        if lines.len > longest || lines.len == 0 || count < FEWEST_LINES || wanted.is_empty() {
            return None;
        }
        let len = wanted.len();
        let mut places = vec![0; count.div_ceil(LANES) * LANES * len];
        with_ranks!(dtype, dtype.size() < 8, |P, E, rank| {
            let orders = Orders {
                elements: t.as_slice::<E>(),
                rank,
                lines,
                descending,
                wanted,
                ties,
            };
            orders.find::<P>(&mut places, pool)
        }, else return None);
        Some(ShortOrders { places, len })
    }

    /// The place of the element that is number `k` of the wanted ones of a line.
    #[inline(always)]
    pub(in crate::op::rows) fn place(&self, line: usize, k: usize) -> usize {
        self.places[(line / LANES * self.len + k) * LANES + line % LANES] as usize
    }
}

/// The lines whose orders are wanted.
struct Orders<'a, E, F> {
    elements: &'a [E],
    rank: F,
    lines: &'a DimLines,
    descending: bool,
    wanted: Range<usize>,
    ties: Ties,
}

impl<E: Element, F> Orders<'_, E, F> {
    /// Writes the wanted places of all lines.
    fn find<P: Placed>(&self, places: &mut [u8], pool: &Pool)
    where
        F: Fn(E) -> P::Rank + Copy + Sync,
    {
        let n = self.lines.len;
        let network = exchanges(n);
        let block = LANES * self.wanted.len();
        // An element takes about as many exchanges as lines have places.
        let blocks = units_per_part(places.len() / block, 4 * LANES * n * size_of::<P>(), pool);
        pool.run_parts(places, blocks * block, |part, places| {
            self.order_blocks::<P>(part * blocks, &network, places)
        });
    }

    /// Writes the wanted places of some blocks of lines, from number `first` on.
    fn order_blocks<P: Placed>(&self, first: usize, network: &[(u8, u8)], places: &mut [u8])
    where
        F: Fn(E) -> P::Rank + Copy,
    {
        let n = self.lines.len;
        let mut elements = vec![[self.elements[0]; LANES]; n];
        let mut placed = vec![[P::new(P::Rank::default(), 0); LANES]; n];
        let mut line = vec![P::new(P::Rank::default(), 0); n];
        let distinct = match self.ties.is_stable(n) {
            true => 0..0,
            false => Ties::pairs_that_differ(&self.wanted, n),
        };
        // Whether torch's algorithm runs for all lanes, so that the network is in vain.
        let mut arranges_all = self.ties.is_unsorted(self.wanted.end, n);
        for (b, places) in places.chunks_exact_mut(LANES * self.wanted.len()).enumerate() {
            self.read((first + b) * LANES, &mut elements);
            let mut tied = [arranges_all; LANES];
            let order = OrderLanes {
                elements: &elements,
                rank: self.rank,
                descending: self.descending,
                network,
                placed: &mut placed,
                wanted: self.wanted.clone(),
                places: &mut *places,
                distinct: distinct.clone(),
                tied: &mut tied,
            };
            if !arranges_all {
                run_wide(order);
            }
            for (lane, _) in tied.iter().enumerate().filter(|(_, is_tied)| **is_tied) {
                self.arrange_lane(lane, &elements, &mut line, places);
            }
            arranges_all |= 2 * tied.iter().filter(|is_tied| **is_tied).count() > LANES;
        }
    }

    /// Writes the wanted places of a lane in which elements are equal.
    fn arrange_lane<P: Placed>(&self, lane: usize, elements: &[[E; LANES]], line: &mut [P], places: &mut [u8])
    where
        F: Fn(E) -> P::Rank,
    {
        for (k, (to, row)) in line.iter_mut().zip(elements).enumerate() {
            let rank = (self.rank)(row[lane]);
            *to = P::new(if self.descending { !rank } else { rank }, k);
        }
        self.ties.arrange(line, &self.wanted);
        for (to, p) in places[lane..].iter_mut().step_by(LANES).zip(&line[self.wanted.clone()]) {
            *to = p.place() as u8;
        }
    }

    /// Reads lines from number `first` on, as many as there are lanes or lines.
    fn read(&self, first: usize, out: &mut [[E; LANES]]) {
        let (n, inner) = (self.lines.len, self.lines.inner);
        let count = (self.lines.outer * inner - first).min(LANES);
        let (mut o, mut i, mut lane) = (first / inner, first % inner, 0);
        // Runs of lines that are neighbours.
        while lane < count {
            let run = (inner - i).min(count - lane);
            let lines = &self.elements[o * n * inner..][..n * inner];
            match run {
                1 => (out.iter_mut().zip(lines[i..].iter().step_by(inner))).for_each(|(row, &x)| row[lane] = x),
                _ => (out.iter_mut().zip(lines.chunks_exact(inner)))
                    .for_each(|(row, from)| row[lane..lane + run].copy_from_slice(&from[i..i + run])),
            }
            (o, i, lane) = (o + 1, 0, lane + run);
        }
    }
}

/// Orders the elements of each lane.
struct OrderLanes<'a, P, E, F> {
    elements: &'a [[E; LANES]],
    rank: F,
    descending: bool,
    network: &'a [(u8, u8)],
    placed: &'a mut [[P; LANES]],
    wanted: Range<usize>,
    /// The wanted places of all lanes, one after the other.
    places: &'a mut [u8],
    /// The places in the order whose elements must differ from the next ones.
    distinct: Range<usize>,
    /// The lanes in which some do not.
    tied: &'a mut [bool; LANES],
}

impl<P: Placed, E: Element, F: Fn(E) -> P::Rank> WideLoop for OrderLanes<'_, P, E, F> {
    #[inline(always)]
    fn run(self) {
        for (k, (placed, elements)) in self.placed.iter_mut().zip(self.elements).enumerate() {
            for j in 0..LANES {
                let rank = (self.rank)(elements[j]);
                placed[j] = P::new(if self.descending { !rank } else { rank }, k);
            }
        }
        for &(a, b) in self.network {
            let [a, b] = self
                .placed
                .get_disjoint_mut([a as usize, b as usize])
                .expect("two places of a line");
            for j in 0..LANES {
                let (x, y) = (a[j], b[j]);
                a[j] = if y < x { y } else { x };
                b[j] = if y < x { x } else { y };
            }
        }
        for k in self.distinct {
            let (a, b) = (&self.placed[k], &self.placed[k + 1]);
            for j in 0..LANES {
                self.tied[j] |= a[j].rank() == b[j].rank();
            }
        }
        let placed = self.placed[self.wanted].iter();
        for (placed, places) in placed.zip(self.places.as_chunks_mut::<LANES>().0) {
            for j in 0..LANES {
                places[j] = placed[j].place() as u8;
            }
        }
    }
}

/// The pairs of places to compare and exchange so that `n` elements are in order (Knuth's merge exchange, Algorithm 5.2.2 M).
fn exchanges(n: usize) -> Vec<(u8, u8)> {
    let mut pairs = vec![];
    let top = n.next_power_of_two() / 2;
    let mut p = top;
    while p > 0 {
        let (mut q, mut r, mut d) = (top, 0, p);
        loop {
            let compared = (0..n.saturating_sub(d)).filter(|i| i & p == r);
            pairs.extend(compared.map(|i| (i as u8, (i + d) as u8)));
            if q == p {
                break;
            }
            (d, q, r) = (q - p, q / 2, p);
        }
        p /= 2;
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::SplitMix;

    #[test]
    fn exchanges_order_zeros_and_ones() {
        // A network that orders all lines of two values orders all lines.
        for n in 1..=14 {
            let network = exchanges(n);
            for bits in 0..1u32 << n {
                let mut v: Vec<u32> = (0..n).map(|k| bits >> k & 1).collect();
                for &(a, b) in &network {
                    if v[a as usize] > v[b as usize] {
                        v.swap(a as usize, b as usize);
                    }
                }
                assert!(v.is_sorted(), "{n} elements");
            }
        }
    }

    /// The places of a line's elements in order, found by a stable sort.
    fn sorted_places(n: usize, descending: bool, at: impl Fn(usize) -> f64) -> Vec<usize> {
        let mut places: Vec<usize> = (0..n).collect();
        places.sort_by_key(|&k| {
            let rank = rank_of_f64(at(k));
            if descending { !rank } else { rank }
        });
        places
    }

    #[test]
    fn short_lines_are_ordered_as_single_ones() {
        let mut random = SplitMix::new(7);
        for (outer, n, inner) in [
            (100, 7, 1),
            (1, 3, 200),
            (5, 12, 13),
            (40, 128, 1),
            (9, 100, 70),
            (70, 1, 1),
        ] {
            let number = |_| match random.next_below(20) {
                0 => f32::NAN,
                1 => -0.0,
                x => (x % 9) as f32,
            };
            let v: Vec<f32> = (0..outer * n * inner).map(number).collect();
            let t = Tensor::from_slice(&[outer, n, inner], &v);
            let (lines, wanted) = (DimLines::new(t.shape(), 1), n / 3..n);
            for (dtype, descending) in [
                (DType::F32, false),
                (DType::F32, true),
                (DType::F64, true),
                (DType::BF16, false),
            ] {
                let orders = ShortOrders::new(
                    &t.to(dtype),
                    &lines,
                    descending,
                    (wanted.clone(), Ties::Stable),
                    &Pool::new(2),
                );
                assert_eq!(orders.is_none(), n > LONGEST_WIDE && dtype == DType::F64);
                let Some(orders) = orders else { continue };
                for line in 0..outer * inner {
                    let at = |k: usize| v[(line / inner * n + k) * inner + line % inner] as f64;
                    let got: Vec<usize> = (0..wanted.len()).map(|k| orders.place(line, k)).collect();
                    let want = &sorted_places(n, descending, at)[wanted.clone()];
                    assert_eq!(got, want, "{dtype} [{outer}, {n}, {inner}]");
                }
            }
        }
    }
}
