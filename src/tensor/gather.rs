//! Reading and writing elements at computed positions. Whether positions can be outside of a tensor is checked for a whole block; of its
//! elements only the indices are compared.

use super::wide::with_wide_vectors;

/// The positions of a block of elements, relative to that of the block.
pub(crate) struct Offsets {
    list: Vec<usize>,
    /// For each position one more than the largest up to it.
    ends: Vec<usize>,
    /// Whether they are 0, 1, 2 and so on.
    are_consecutive: bool,
}

impl Offsets {
    pub(crate) fn new(list: Vec<usize>) -> Offsets {
        let largest = |end: &mut usize, &p: &usize| {
            *end = p.saturating_add(1).max(*end);
            Some(*end)
        };
        let ends = list.iter().scan(0, largest).collect();
        let are_consecutive = list.iter().enumerate().all(|(k, &p)| k == p);
        Offsets {
            list,
            ends,
            are_consecutive,
        }
    }

    pub(crate) fn are_consecutive(&self) -> bool {
        self.are_consecutive
    }

    pub(crate) fn list(&self) -> &[usize] {
        &self.list
    }

    /// One more than the largest of the first `count` positions.
    fn end(&self, count: usize) -> usize {
        count.checked_sub(1).map_or(0, |last| self.ends[last])
    }

    /// Whether the first `count` positions are all that of the block.
    pub(crate) fn are_zero(&self, count: usize) -> bool {
        self.end(count) <= 1
    }

    /// `out[i] = src[list[i]]` for as many positions as `out` has elements. Panics if it has more, or if `src` is too short.
    pub(crate) fn gather<T: Copy>(&self, src: &[T], out: &mut [T]) {
        assert!(self.end(out.len()) <= src.len());
        for (&p, o) in self.list.iter().zip(out) {
            // SAFETY: the positions were checked.
            *o = unsafe { *src.get_unchecked(p) };
        }
    }

    /// Combines element `i` of `src` with the one at position `list[i]` of `dst`, in order. Panics if `src` has more elements than there
    /// are positions, or if `dst` is too short.
    #[inline(always)]
    pub(crate) fn scatter<T: Copy, S: Copy>(&self, dst: &mut [T], src: &[S], combine: impl Fn(T, S) -> T) {
        assert!(self.end(src.len()) <= dst.len());
        for (&p, &x) in self.list.iter().zip(src) {
            // SAFETY: the positions were checked.
            let to = unsafe { dst.get_unchecked_mut(p) };
            *to = combine(*to, x);
        }
    }
}

/// The elements that belong to a block of indices.
pub(crate) enum Sources<'a, T> {
    /// One after the other.
    Consecutive(&'a [T]),
    At(&'a [T], &'a Offsets),
}

/// The most bytes over which a block's reads are spread if they are to be found in a near cache.
const NEAR: usize = 640 << 10;

/// Whether all indices are below `size`.
pub(crate) fn indices_within(index: &[i64], size: usize) -> bool {
    // As unsigned numbers, negative indices are large.
    let largest = with_wide_vectors(|| index.iter().fold(0, |m, &i| (i as u64).max(m)));
    index.is_empty() || largest < size as u64
}

/// The positions in a tensor that a block of indices refers to: `index[j] * along + offsets[j]`. Indices must be below `size`.
#[derive(Clone, Copy)]
pub(crate) struct IndexedBlock<'a> {
    /// The indices.
    pub index: &'a [i64],
    /// The size of the indexed dim.
    pub size: usize,
    /// The distance of neighbouring elements along the indexed dim.
    pub along: usize,
    /// The position that index 0 refers to in each place of the block.
    pub offsets: &'a Offsets,
}

impl IndexedBlock<'_> {
    /// Panics if valid indices could refer to positions outside of a tensor of `len` elements, or if there are more indices than offsets.
    fn check_extent(&self, len: usize) {
        let most = self.size.saturating_sub(1).checked_mul(self.along);
        let end = most.and_then(|m| m.checked_add(self.offsets.end(self.index.len())));
        let none = self.size == 0 || self.index.is_empty();
        assert!(none || end.is_some_and(|p| p <= len), "the block is within the tensor");
    }

    /// Calls `f(place, position)` for each index, in order. Returns false at an index that is out of bounds. Each index is compared just
    /// before it is used: indices are the larger part of what is read, and reading them twice would cost more.
    #[inline(always)]
    fn for_each(&self, f: impl FnMut(usize, usize)) -> bool {
        let (along, offsets) = (self.along, &self.offsets.list[..self.index.len()]);
        // Positions in a line are the indices.
        match along == 1 && self.offsets.are_zero(self.index.len()) {
            true => self.for_each_at(|_, i| i, f),
            // SAFETY: there is an offset for each index.
            false => self.for_each_at(|j, i| i * along + unsafe { *offsets.get_unchecked(j) }, f),
        }
    }

    /// [`IndexedBlock::for_each`], where `position(place, index)` gives the position.
    #[inline(always)]
    fn for_each_at(&self, position: impl Fn(usize, usize) -> usize, mut f: impl FnMut(usize, usize)) -> bool {
        let size = self.size as u64;
        let (fours, rest) = self.index.as_chunks::<4>();
        for (k, four) in fours.iter().enumerate() {
            // As unsigned numbers, negative indices are large.
            if four.iter().fold(false, |any, &i| any | (i as u64 >= size)) {
                return false;
            }
            for (j, &i) in four.iter().enumerate() {
                f(4 * k + j, position(4 * k + j, i as usize));
            }
        }
        for (j, &i) in (4 * fours.len()..).zip(rest) {
            if i as u64 >= size {
                return false;
            }
            f(j, position(j, i as usize));
        }
        true
    }

    /// Reads an element for each index. Returns false if an index is out of bounds; some elements before it are written. Panics if
    /// `src` is too short for indices below the size, or if `out` and the indices differ in length.
    pub(crate) fn gather<T: Copy>(&self, src: &[T], out: &mut [T]) -> bool {
        assert_eq!(self.index.len(), out.len());
        self.check_extent(src.len());
        if self.size.saturating_mul(self.along).saturating_mul(size_of::<T>()) <= NEAR {
            return match self.along == 1 && self.offsets.are_zero(out.len()) {
                true => self.gather_line(src, out),
                false => self.gather_near(src, out),
            };
        }
        // SAFETY: `out` has a place for each index. The position of the largest index at the largest offset is within `src`.
        let read = |j: usize, p: usize| unsafe { *out.get_unchecked_mut(j) = *src.get_unchecked(p) };
        self.for_each(read)
    }

    /// [`IndexedBlock::gather`] after its checks, where the positions are the indices: these are in the first cache when they are read again.
    fn gather_line<T: Copy>(&self, src: &[T], out: &mut [T]) -> bool {
        let within = indices_within(self.index, self.size);
        if within {
            for (&i, o) in self.index.iter().zip(out) {
                // SAFETY: indices are below the size, which `src` has elements for.
                *o = unsafe { *src.get_unchecked(i as usize) };
            }
        }
        within
    }

    /// [`IndexedBlock::gather`] after its checks, several elements at once: this is faster unless each read waits for memory.
    fn gather_near<T: Copy>(&self, src: &[T], out: &mut [T]) -> bool {
        let (size, along, n) = (self.size as u64, self.along, out.len());
        let (index, last) = self.index.as_chunks::<4>();
        let (offsets, last_offsets) = self.offsets.list[..n].as_chunks::<4>();
        let (out, last_out) = out.as_chunks_mut::<4>();
        for ((i, offset), o) in index.iter().zip(offsets).zip(out) {
            if i.iter().fold(false, |any, &i| any | (i as u64 >= size)) {
                return false;
            }
            // SAFETY: the position of the largest index at the largest offset is within `src`.
            let read = |k: usize| unsafe { *src.get_unchecked(i[k] as usize * along + offset[k]) };
            *o = [read(0), read(1), read(2), read(3)];
        }
        for ((&i, &offset), o) in last.iter().zip(last_offsets).zip(last_out) {
            if i as u64 >= size {
                return false;
            }
            // SAFETY: as above.
            *o = unsafe { *src.get_unchecked(i as usize * along + offset) };
        }
        true
    }

    /// Combines the elements that belong to the indices with those that the indices refer to, in order. Returns false if an index is
    /// out of bounds; some elements before it are written. Panics if `dst` or the sources are too short.
    #[inline(always)]
    pub(crate) fn scatter<T: Copy>(&self, dst: &mut [T], src: Sources<'_, T>, combine: impl Fn(T, T) -> T) -> bool {
        self.check_extent(dst.len());
        let n = self.index.len();
        let mut write = |p: usize, x: T| {
            // SAFETY: the position of the largest index at the largest offset is within `dst`.
            let to = unsafe { dst.get_unchecked_mut(p) };
            *to = combine(*to, x);
        };
        match src {
            Sources::Consecutive(src) => {
                assert!(n <= src.len());
                // SAFETY: there is an element for each index.
                self.for_each(|j, p| write(p, unsafe { *src.get_unchecked(j) }))
            }
            Sources::At(src, from) => {
                assert!(from.end(n) <= src.len());
                // SAFETY: the positions were checked.
                self.for_each(|j, p| write(p, unsafe { *src.get_unchecked(*from.list.get_unchecked(j)) }))
            }
        }
    }
}

/// `out[j] = src[index[j]]`, where negative indices count from the end. Returns false, and writes nothing, if an index is out of bounds.
/// Panics if `index` and `out` differ in length.
pub(crate) fn take_elements<T: Copy>(src: &[T], index: &[i64], out: &mut [T]) -> bool {
    assert_eq!(index.len(), out.len());
    let n = src.len() as i64;
    let from_front = |i: i64| i + if i < 0 { n } else { 0 };
    let within = with_wide_vectors(|| {
        index
            .iter()
            .fold(true, |all, &i| all & ((from_front(i) as u64) < n as u64))
    });
    if within {
        with_wide_vectors(|| {
            index.iter().zip(out).for_each(|(&i, o)| {
                // SAFETY: all indices, counted from the front, are below the length.
                *o = unsafe { *src.get_unchecked(from_front(i) as usize) }
            });
        });
    }
    within
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offsets of columns at distance `step`.
    fn columns(n: usize, step: usize) -> Offsets {
        Offsets::new((0..n).map(|j| j * step).collect())
    }

    fn block<'a>(index: &'a [i64], size: usize, along: usize, offsets: &'a Offsets) -> IndexedBlock<'a> {
        IndexedBlock {
            index,
            size,
            along,
            offsets,
        }
    }

    #[test]
    fn blocks_are_read_if_all_indices_are_within() {
        let src: Vec<i32> = (0..40).collect();
        let (mut out, offsets) = ([0; 17], columns(17, 1));
        let index: Vec<i64> = (0..17).map(|i| i * 3 % 5).collect();
        assert!(block(&index, 5, 4, &offsets).gather(&src, &mut out));
        let want: Vec<i32> = index.iter().zip(0..).map(|(&i, j)| i as i32 * 4 + j).collect();
        assert_eq!(out[..], want);
        for bad in [5, -1, i64::MAX, i64::MIN] {
            let mut index = index.clone();
            index[13] = bad;
            let block = block(&index, 5, 4, &offsets);
            assert!(!block.gather(&src, &mut out));
            assert!(!block.scatter(&mut [0; 40], Sources::Consecutive(&src), |_, b| b));
        }
        // Positions that are the indices themselves.
        let none = columns(17, 0);
        assert!(block(&index, 5, 1, &none).gather(&src[..5], &mut out));
        assert!(index.iter().zip(out).all(|(&i, x)| i == x as i64));
        for bad in [5, -1, i64::MIN] {
            let index = [0, 4, bad, 1];
            assert!(!block(&index, 5, 1, &none).gather(&src[..5], &mut out[..4]));
        }
        assert!(block(&[], 0, 1, &offsets).gather(&src[..0], &mut []));
        assert!(!block(&[0], 0, 1, &offsets).gather(&src[..0], &mut out[..1]));
    }

    #[test]
    fn elements_are_combined_in_order() {
        let mut dst = vec![1i64; 6];
        let (index, offsets) = ([2, 0, 2, 1], columns(4, 0));
        let block = block(&index, 3, 2, &offsets);
        let from = columns(4, 2);
        assert!(
            block.scatter(&mut dst, Sources::At(&[10, 0, 20, 0, 30, 0, 40], &from), |a, b| 2 * a
                + b)
        );
        assert_eq!(dst, [22, 1, 42, 1, 2 * 12 + 30, 1]);
        assert!(block.scatter(&mut dst, Sources::At(&[7], &offsets), |_, b| b));
        assert_eq!(dst, [7, 1, 7, 1, 7, 1]);
        Offsets::new(vec![1, 3, 1]).scatter(&mut dst, &[1, 2, 3], |a, b| 2 * a + b);
        assert_eq!(dst, [7, 9, 7, 4, 7, 1]);
    }

    #[test]
    fn the_first_offsets_need_less_than_all() {
        let offsets = Offsets::new(vec![2, 0, 9]);
        let mut out = [0; 2];
        offsets.gather(&[5, 6, 7], &mut out);
        assert_eq!(out, [7, 5]);
        assert!(block(&[0, 0], 1, 1, &offsets).gather(&[5, 6, 7], &mut out));
        assert_eq!(out, [7, 5]);
    }

    #[test]
    #[should_panic(expected = "within the tensor")]
    fn a_block_that_leaves_the_tensor_is_a_mistake_of_the_caller() {
        block(&[0, 1], 3, 4, &columns(2, 0)).gather(&[0u8; 8], &mut [0; 2]);
    }

    #[test]
    #[should_panic(expected = "src.len()")]
    fn offsets_are_checked() {
        Offsets::new(vec![2, 0]).gather(&[5, 6], &mut [0; 2]);
    }

    #[test]
    fn negative_indices_count_from_the_end() {
        let src = [10u8, 11, 12];
        let mut out = [0; 4];
        assert!(take_elements(&src, &[-1, 0, 2, -3], &mut out));
        assert_eq!(out, [12, 10, 12, 10]);
        for bad in [3, -4, i64::MIN, i64::MAX] {
            assert!(!take_elements(&src, &[0, bad], &mut out[..2]));
        }
        assert!(!take_elements(&src[..0], &[0], &mut out[..1]));
    }
}
