//! Products whose rows of B are anywhere in memory, such as the lines that the elements of a convolution's kernel read. Nothing of B is
//! packed.

use super::LaneElement;
use super::blocks::DEPTH;
use super::pack::pack_tiles;
use super::tile::PanelJob;
use crate::math::scratch::{self, Scratch};
use crate::target::Isa;

/// Rows of A in the order of the tiles, some product indices after the other.
pub(in crate::math) struct PackedRows<T> {
    isa: Isa,
    /// The rows, the product indices, and how many of these follow one another.
    sizes: [usize; 3],
    rows: Scratch,
    /// [`PackedRows`] are those of one type.
    element: std::marker::PhantomData<T>,
}

/// Rows of B.
pub(in crate::math) struct PlacedRows<'a, L> {
    /// What `places` refer to.
    pub start: *const L,
    /// Where the row for each product index begins.
    pub places: &'a [usize],
}

impl<T: LaneElement> PackedRows<T> {
    /// Packs `m` contiguous rows of `k` elements each.
    ///
    /// # Safety
    /// They are readable, and the machine has the instruction set.
    pub(in crate::math) unsafe fn pack(isa: Isa, a: *const T, [m, k]: [usize; 2]) -> PackedRows<T> {
        let depth = k.div_ceil(k.div_ceil(DEPTH).max(1)).max(1);
        let lanes = (m * k * size_of::<T::Lane>()).div_ceil(size_of::<f32>());
        let mut rows = scratch::take_buffer(lanes);
        for first in (0..k).step_by(depth) {
            let some = depth.min(k - first);
            // SAFETY: guaranteed by the caller; the buffer holds all rows.
            unsafe {
                let to = rows.as_mut_ptr().cast::<T::Lane>().add(m * first);
                pack_tiles(a.add(first), [k, 1], [m, some], T::kernels(isa).rows, to);
            }
        }
        PackedRows {
            isa,
            sizes: [m, k, depth],
            rows,
            element: std::marker::PhantomData,
        }
    }

    /// The number of columns that are computed together; products have whole multiples of it.
    pub(in crate::math) fn width(isa: Isa) -> usize {
        2 * T::kernels(isa).lanes
    }

    /// Writes the products of the rows with `cols` columns to `c`, whose rows are `c_row` apart.
    ///
    /// # Safety
    /// There are as many rows of B as product indices, and they have `cols` elements from their places on, a multiple of
    /// [`PackedRows::width`]. `c` has room.
    pub(in crate::math) unsafe fn multiply(&self, b: &PlacedRows<T::Lane>, cols: usize, c: *mut T, c_row: usize) {
        let [m, k, depth] = self.sizes;
        let kernels = T::kernels(self.isa);
        let width = Self::width(self.isa);
        for col in (0..cols).step_by(width) {
            for first in (0..k).step_by(depth) {
                // SAFETY: guaranteed by the caller.
                unsafe {
                    (kernels.panel)(&PanelJob {
                        rows: m,
                        cols: width,
                        k: depth.min(k - first),
                        a: self.rows.as_ptr().cast::<T::Lane>().add(m * first),
                        a_strides: None,
                        b: b.start.add(col),
                        b_row: 0,
                        b_places: b.places[first..].as_ptr(),
                        b_padded: true,
                        c: c.add(col),
                        c_row,
                        add: first > 0,
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: LaneElement>(m: usize, k: usize) {
        let isa = crate::target::Target::native().isa();
        let cols = 3 * PackedRows::<T>::width(isa);
        let a: Vec<T> = (0..m * k).map(|i| T::from_f64((i * 7 % 11) as f64)).collect();
        let b: Vec<T::Lane> = (0..k + cols)
            .map(|i| T::from_f64((i * 5 % 13) as f64).widen())
            .collect();
        // Rows overlap, and are in no order.
        let places: Vec<usize> = (0..k).map(|p| p * 3 % k).collect();
        let mut c = vec![T::default(); m * (cols + 1)];
        let rows = PlacedRows {
            start: b.as_ptr(),
            places: &places,
        };
        // SAFETY: the vectors hold the operands.
        unsafe { PackedRows::pack(isa, a.as_ptr(), [m, k]).multiply(&rows, cols, c.as_mut_ptr(), cols + 1) };
        for (i, &got) in c.iter().enumerate() {
            let (row, col) = (i / (cols + 1), i % (cols + 1));
            let term = |p: usize| a[row * k + p].mul(T::narrow(b[places[p] + col]));
            let want = (0..k).fold(T::default(), |s, p| s.add(term(p)));
            assert!(got == if col < cols { want } else { T::default() }, "{m} {k} {i}");
        }
    }

    #[test]
    fn rows_of_any_place_are_multiplied() {
        for (m, k) in [(1, 1), (7, 10), (12, 300), (16, 128)] {
            check::<u8>(m, k);
            check::<i8>(m, k);
            check::<i16>(m, k);
            check::<i32>(m, k);
            check::<i64>(m, k);
            check::<f64>(m, k);
        }
    }
}
