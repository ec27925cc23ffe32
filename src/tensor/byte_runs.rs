//! Copies of strided elements to row-major ones.

use super::blocks::transpose_tile;

/// The elements of a strided tensor as runs of neighbouring bytes.
pub(super) struct ByteRuns {
    /// Sizes and strides (in bytes) of the dimensions outside a run, of which no two are one.
    outer: Vec<(usize, isize)>,
    run: usize,
    /// The number of bytes of an element.
    size: usize,
}

impl ByteRuns {
    pub(super) fn new(shape: &[usize], strides: &[isize], size: usize) -> ByteRuns {
        let mut outer: Vec<(usize, isize)> = vec![];
        for (&n, &stride) in shape.iter().zip(strides) {
            let stride = stride * size as isize;
            match outer.last_mut() {
                _ if n == 1 => {}
                // The dim before continues where this one ends.
                Some((count, before)) if *before == stride.wrapping_mul(n as isize) => {
                    (*count, *before) = (*count * n, stride)
                }
                _ => outer.push((n, stride)),
            }
        }
        let run = match outer.last() {
            Some(&(n, stride)) if stride == size as isize => {
                outer.pop();
                n * size
            }
            _ => size,
        };
        ByteRuns { outer, run, size }
    }

    /// Copies all elements to `to` in row-major order.
    ///
    /// # Safety
    /// `from` must have all elements that the runs reach, `to` must have room for them, and there must be at least one.
    pub(super) unsafe fn copy(&self, from: *const u8, to: *mut u8) {
        // SAFETY: the caller's contract.
        unsafe {
            match (self.run == self.size, self.size) {
                (true, 1) => self.copy_elements::<u8>(from, to.cast()),
                (true, 2) => self.copy_elements::<u16>(from, to.cast()),
                (true, 4) => self.copy_elements::<u32>(from, to.cast()),
                (true, 8) => self.copy_elements::<u64>(from, to.cast()),
                _ => self.copy_runs(from, to),
            }
        }
    }

    /// [`ByteRuns::copy`], run by run.
    ///
    /// # Safety
    /// As for [`ByteRuns::copy`].
    unsafe fn copy_runs(&self, from: *const u8, mut to: *mut u8) {
        let mut index = vec![0usize; self.outer.len()];
        let mut offset = 0isize;
        loop {
            // SAFETY: the caller's contract.
            unsafe {
                std::ptr::copy_nonoverlapping(from.offset(offset), to, self.run);
                to = to.add(self.run);
            }
            let mut d = self.outer.len();
            loop {
                if d == 0 {
                    return;
                }
                d -= 1;
                let (n, stride) = self.outer[d];
                index[d] += 1;
                offset += stride;
                if index[d] < n {
                    break;
                }
                offset -= stride * n as isize;
                index[d] = 0;
            }
        }
    }

    /// [`ByteRuns::copy`] of elements that have no neighbours along the last dim: in tiles of that dim and the one whose elements are
    /// closest to each other, so that cache lines of both sides are used completely.
    ///
    /// # Safety
    /// As for [`ByteRuns::copy`], with elements of the size of `T` at `to`.
    unsafe fn copy_elements<T: Copy>(&self, from: *const u8, to: *mut T) {
        let mut dims: Vec<Dim> = vec![];
        let mut elements = 1;
        for &(n, stride) in self.outer.iter().rev() {
            let place = elements;
            dims.push(Dim { n, stride, place });
            elements *= n;
        }
        let one = Dim {
            n: 1,
            stride: 0,
            place: 0,
        };
        let last = if dims.is_empty() { one } else { dims.remove(0) };
        let closest = (0..dims.len()).min_by_key(|&d| dims[d].stride.unsigned_abs());
        let close = closest.map_or(one, |d| dims.remove(d));
        let tiles = dims.iter().map(|d| d.n).product();
        for mut rest in 0..tiles {
            let (mut offset, mut place) = (0, 0);
            for d in &dims {
                offset += (rest % d.n) as isize * d.stride;
                place += rest % d.n * d.place;
                rest /= d.n;
            }
            // SAFETY: the index is within the dims, whose elements both sides have.
            unsafe { copy_tiles(from.wrapping_offset(offset), to.wrapping_add(place), close, last) };
        }
    }
}

/// A dim: its size, the distance of its elements in bytes, and in elements of the copy.
#[derive(Clone, Copy)]
struct Dim {
    n: usize,
    stride: isize,
    place: usize,
}

/// The numbers of elements of a tile along both dims. Transposed tiles are squares.
const CLOSE: usize = 16;
const LAST: usize = 64;

/// Copies the elements of two dims, of which those of `last` are neighbours in the copy.
///
/// # Safety
/// Both sides have the elements.
unsafe fn copy_tiles<T: Copy>(from: *const u8, to: *mut T, close: Dim, last: Dim) {
    let size = size_of::<T>();
    let is_transposed = close.stride == size as isize && last.stride != 0;
    let rows = if is_transposed { LAST } else { CLOSE };
    let tiles = (0..close.n).step_by(rows).map(|i| (i, rows.min(close.n - i)));
    for (i, rows) in tiles {
        for j in (0..last.n).step_by(LAST) {
            let columns = LAST.min(last.n - j);
            let offset = i as isize * close.stride + j as isize * last.stride;
            let (from, to) = (from.wrapping_offset(offset), to.wrapping_add(i * close.place + j));
            // SAFETY: guaranteed by the caller.
            unsafe {
                if is_transposed {
                    let row = (close.place * size) as isize;
                    transpose_tile(size)(from, last.stride, to.cast(), row, rows, columns);
                    continue;
                }
                for k in 0..rows {
                    let from = from.offset(k as isize * close.stride);
                    copy_line(from, last.stride, to.add(k * close.place), columns);
                }
            }
        }
    }
}

/// Copies `n` elements, `stride` bytes apart, which need not be aligned.
///
/// # Safety
/// Both sides have the elements.
#[inline]
unsafe fn copy_line<T: Copy>(from: *const u8, stride: isize, to: *mut T, n: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if stride == 0 && n > 0 {
            return std::slice::from_raw_parts_mut(to, n).fill(from.cast::<T>().read_unaligned());
        }
        for k in 0..n {
            *to.add(k) = from.offset(k as isize * stride).cast::<T>().read_unaligned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The elements in row-major order, one by one.
    fn by_elements<T: Copy>(shape: &[usize], strides: &[isize], from: &[T], first: usize) -> Vec<T> {
        let n: usize = shape.iter().product();
        let place = |mut i: usize| {
            let mut at = first as isize;
            for d in (0..shape.len()).rev() {
                at += (i % shape[d]) as isize * strides[d];
                i /= shape[d];
            }
            at as usize
        };
        (0..n).map(|i| from[place(i)]).collect()
    }

    fn check<T: Copy + Default + PartialEq>(of: impl Fn(usize) -> T) {
        let data: Vec<T> = (0..200_000).map(of).collect();
        for (shape, strides, first) in [
            (vec![2, 5, 70, 33], vec![5 * 70 * 33, 1, 5 * 33, 5], 0),
            (vec![300, 90], vec![1, 300], 7),
            (vec![90, 300], vec![-300, 1], 89 * 300),
            (vec![40, 70], vec![-1, -40], 40 * 70),
            (vec![3, 1, 4, 130], vec![0, 9, 1, 4], 0),
            (vec![50], vec![3], 1),
            (vec![5, 6, 7], vec![1, 5, 30], 2),
            (vec![], vec![], 5),
        ] {
            let want = by_elements(&shape, &strides, &data, first);
            let mut got = vec![T::default(); want.len()];
            let runs = ByteRuns::new(&shape, &strides, size_of::<T>());
            // SAFETY: all places are within the data, and the copy has room for them.
            unsafe { runs.copy(data[first..].as_ptr().cast(), got.as_mut_ptr().cast()) };
            assert!(got == want, "{shape:?} {strides:?}");
        }
    }

    #[test]
    fn elements_come_in_row_major_order() {
        check(|i| i as u8);
        check(|i| i as u16);
        check(|i| i as f32);
        check(|i| i as f64);
        check(|i| i as u128);
    }
}
