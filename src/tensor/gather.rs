//! Vector code that reads elements at computed positions. Bounds are checked for a whole run before the first read,
//! because checking each element would cost more than the read.

use super::wide::with_wide_vectors;

/// The positions in a tensor that a line of indices refers to: `index[j] * along + j * step` for column `j`. Indices
/// must be below `size`.
#[derive(Clone, Copy)]
pub(crate) struct IndexedLine<'a> {
    /// The indices.
    pub index: &'a [i64],
    /// The size of the indexed dim.
    pub size: usize,
    /// The distance of neighbouring elements along the indexed dim.
    pub along: usize,
    /// The distance between the positions of neighbouring columns with the same index.
    pub step: usize,
}

impl IndexedLine<'_> {
    /// Whether all indices are below the size. Panics if valid indices could refer to positions outside of a tensor
    /// of `len` elements.
    fn is_within(&self, len: usize) -> bool {
        let (Some(last), Some(most)) = (self.index.len().checked_sub(1), self.size.checked_sub(1)) else {
            return self.index.is_empty();
        };
        // As unsigned numbers, negative indices are large.
        let largest = with_wide_vectors(|| self.index.iter().fold(0, |m, &i| (i as u64).max(m)));
        let along = most.checked_mul(self.along);
        let end = along.and_then(|a| a.checked_add(last.checked_mul(self.step)?));
        let within = largest < self.size as u64;
        assert!(!within || end.is_some_and(|p| p < len), "the line is within the tensor");
        within
    }

    /// Reads an element for each index. Returns false, and writes nothing, if an index is out of bounds. Panics if
    /// `src` is too short for indices below the size, or if `out` and the indices differ in length.
    pub(crate) fn gather<T: Copy>(&self, src: &[T], out: &mut [T]) -> bool {
        assert_eq!(self.index.len(), out.len());
        let within = self.is_within(src.len());
        if within {
            // SAFETY: all indices are below the size, and the position of the largest index in the last column is
            // within `src`.
            with_wide_vectors(|| unsafe { read_line(src, self.index, self.along, self.step, out) });
        }
        within
    }

    /// Combines element `j * shift` of `src` with the element that index `j` refers to, in order. Returns false, and
    /// writes nothing, if an index is out of bounds. Panics if `dst` or `src` is too short.
    pub(crate) fn scatter<T: Copy>(&self, dst: &mut [T], src: &[T], shift: usize, combine: impl Fn(T, T) -> T) -> bool {
        if !self.is_within(dst.len()) {
            return false;
        }
        let last = self.index.len().saturating_sub(1).checked_mul(shift);
        assert!(self.index.is_empty() || last.is_some_and(|p| p < src.len()));
        for (j, &i) in self.index.iter().enumerate() {
            // SAFETY: the positions in both tensors were checked.
            unsafe {
                let to = dst.get_unchecked_mut(i as usize * self.along + j * self.step);
                *to = combine(*to, *src.get_unchecked(j * shift));
            }
        }
        true
    }
}

/// # Safety
/// All positions are within `src`.
#[inline(always)]
unsafe fn read_line<T: Copy>(src: &[T], index: &[i64], along: usize, step: usize, out: &mut [T]) {
    match (along, step) {
        (1, 0) => index.iter().zip(out).for_each(|(&i, o)| {
            // SAFETY: guaranteed by the caller.
            *o = unsafe { *src.get_unchecked(i as usize) }
        }),
        _ => index.iter().zip(out).enumerate().for_each(|(j, (&i, o))| {
            // SAFETY: guaranteed by the caller.
            *o = unsafe { *src.get_unchecked(i as usize * along + j * step) }
        }),
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

    fn line(index: &[i64], size: usize, along: usize, step: usize) -> IndexedLine<'_> {
        IndexedLine {
            index,
            size,
            along,
            step,
        }
    }

    #[test]
    fn lines_are_read_or_refused_as_a_whole() {
        let src: Vec<i32> = (0..40).collect();
        let mut out = [0; 17];
        let index: Vec<i64> = (0..17).map(|i| i * 3 % 5).collect();
        assert!(line(&index, 5, 4, 1).gather(&src, &mut out));
        let want: Vec<i32> = index.iter().zip(0..).map(|(&i, j)| i as i32 * 4 + j).collect();
        assert_eq!(out[..], want);
        for bad in [5, -1, i64::MAX, i64::MIN] {
            let mut index = index.clone();
            index[13] = bad;
            assert!(!line(&index, 5, 4, 1).gather(&src, &mut out));
            assert!(!line(&index, 5, 4, 1).scatter(&mut out, &src, 1, |_, b| b));
        }
        assert_eq!(out[..], want);
        assert!(line(&[], 0, 1, 1).gather(&src[..0], &mut []));
        assert!(!line(&[0], 0, 1, 1).gather(&src[..0], &mut out[..1]));
    }

    #[test]
    fn elements_are_combined_in_order() {
        let mut dst = vec![1i64; 6];
        let index = [2, 0, 2, 1];
        assert!(line(&index, 3, 2, 0).scatter(&mut dst, &[10, 0, 20, 0, 30, 0, 40], 2, |a, b| 2 * a + b));
        assert_eq!(dst, [22, 1, 42, 1, 2 * 12 + 30, 1]);
        assert!(line(&index, 3, 2, 0).scatter(&mut dst, &[7], 0, |_, b| b));
        assert_eq!(dst, [7, 1, 7, 1, 7, 1]);
    }

    #[test]
    #[should_panic(expected = "within the tensor")]
    fn a_line_that_leaves_the_tensor_is_a_mistake_of_the_caller() {
        line(&[0, 1], 3, 4, 0).gather(&[0u8; 8], &mut [0; 2]);
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
