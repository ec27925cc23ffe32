//! The kernels: tiles of sums in registers, sums of rows, and dot products.

use super::LaneElement;
use super::vectors::*;
use crate::math::number::Number;

/// Some rows of A times a panel of B, at most two vectors wide.
pub(in crate::math) struct PanelJob<T: LaneElement> {
    pub rows: usize,
    pub cols: usize,
    pub k: usize,
    pub a: *const T::Lane,
    /// The strides of A between rows and product indices. `None` if A is packed: the product indices of tiles of
    /// [`Kernels::rows`], then of smaller powers of two, one tile after the other.
    pub a_strides: Option<[usize; 2]>,
    pub b: *const T::Lane,
    /// The stride of B between product indices. Its columns are contiguous.
    pub b_row: usize,
    /// Where the row of B for each product index begins; null if they are [`PanelJob::b_row`] apart.
    pub b_places: *const usize,
    /// Whether rows of B are padded to whole vectors.
    pub b_padded: bool,
    pub c: *mut T,
    pub c_row: usize,
    /// Whether to add to C.
    pub add: bool,
}

/// A few rows of A times B, of which neither is packed.
pub(in crate::math) struct RowsJob<E> {
    pub rows: usize,
    pub cols: usize,
    pub k: usize,
    pub a: *const E,
    pub a_strides: [usize; 2],
    pub b: *const E,
    /// The stride of B between product indices for sums of rows, between columns for dot products. The other is 1.
    pub b_step: usize,
    pub c: *mut E,
    /// The strides of C between rows and columns. Sums of rows need contiguous columns.
    pub c_strides: [usize; 2],
    /// Whether to add to C. Sums of rows always do.
    pub add: bool,
}

/// The kernels of one instruction set.
pub(in crate::math) struct Kernels<T: LaneElement> {
    /// The number of elements in a vector.
    pub lanes: usize,
    /// The number of rows of the tallest tile, a power of two.
    pub rows: usize,
    /// Computes a [`PanelJob`].
    pub panel: unsafe fn(&PanelJob<T>),
    /// Computes a [`RowsJob`] as sums of rows of B.
    pub sums: unsafe fn(&RowsJob<T::Lane>),
    /// Computes a [`RowsJob`] as dot products; A and B are contiguous along the product index.
    pub dots: unsafe fn(&RowsJob<T::Lane>),
}

#[inline(always)]
pub(super) unsafe fn panel_body<T: LaneElement, L: Lanes<Element = T::Lane>>(j: &PanelJob<T>) {
    let mut row = 0;
    while row < j.rows {
        let rows = L::ROWS.min(1 << (j.rows - row).ilog2());
        // SAFETY: the operands are valid for the job; a tile has at most `L::ROWS` rows.
        unsafe {
            match rows {
                8 => tile_row::<T, L, 8>(j, row),
                4 => tile_row::<T, L, 4>(j, row),
                2 => tile_row::<T, L, 2>(j, row),
                _ => tile_row::<T, L, 1>(j, row),
            }
        }
        row += rows;
    }
}

/// Computes `R` rows of the panel.
#[inline(always)]
unsafe fn tile_row<T: LaneElement, L: Lanes<Element = T::Lane>, const R: usize>(j: &PanelJob<T>, row: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if R > L::ROWS {
            return;
        }
        if !j.b_places.is_null() {
            // Such rows are always as long as the panel is wide.
            return tile::<T, L, R, 2, PLACED>(j, row, 0);
        }
        if j.cols > L::COUNT && (j.cols == 2 * L::COUNT || j.b_padded) {
            return tile::<T, L, R, 2, WHOLE>(j, row, 0);
        }
        let mut col = 0;
        while col < j.cols {
            match j.cols - col >= L::COUNT || j.b_padded {
                true => tile::<T, L, R, 1, WHOLE>(j, row, col),
                false => tile::<T, L, R, 1, PART>(j, row, col),
            }
            col += L::COUNT;
        }
    }
}

/// Where a tile reads vectors of B: whole ones in rows that are [`PanelJob::b_row`] apart, a part of one in such rows, or whole ones at
/// [`PanelJob::b_places`].
const WHOLE: u8 = 0;
const PART: u8 = 1;
const PLACED: u8 = 2;

/// Computes a tile of `R` rows and `W` vectors.
#[inline(always)]
unsafe fn tile<T: LaneElement, L: Lanes<Element = T::Lane>, const R: usize, const W: usize, const B: u8>(
    j: &PanelJob<T>,
    row: usize,
    col: usize,
) {
    let cols = (j.cols - col).min(W * L::COUNT);
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (mut a, [a_row, a_k]) = match j.a_strides {
            Some([r, k]) => (j.a.add(row * r), [r, k]),
            None => (j.a.add(row * j.k), [1, R]),
        };
        let mut b = j.b.add(col);
        let mut sums = [[L::zero(); W]; R];
        for i in 0..j.k {
            if B == PLACED {
                b = j.b.add(*j.b_places.add(i));
            }
            let mut y = [L::factor(L::splat(T::Lane::default())); W];
            for w in 0..W {
                let at = b.add(w * L::COUNT);
                y[w] = L::factor(if B == PART {
                    L::load_first(at, cols)
                } else {
                    L::load(at)
                });
            }
            for r in 0..R {
                let x = L::splat(*a.add(r * a_row));
                for w in 0..W {
                    sums[r][w] = L::add_product(sums[r][w], x, y[w]);
                }
            }
            (a, b) = (a.wrapping_add(a_k), b.wrapping_add(j.b_row));
        }
        for r in 0..R {
            store_row::<T, L, W>(j, sums[r], j.c.add((row + r) * j.c_row + col), cols);
        }
    }
}

/// Stores the first `cols` elements of a row of a tile.
#[inline(always)]
unsafe fn store_row<T: LaneElement, L: Lanes<Element = T::Lane>, const W: usize>(
    j: &PanelJob<T>,
    sums: [L::Sum; W],
    c: *mut T,
    cols: usize,
) {
    for w in 0..W {
        let left = (cols - w * L::COUNT).min(L::COUNT);
        // SAFETY: guaranteed by the caller.
        unsafe { store::<T, L>(L::finish(sums[w]), c.add(w * L::COUNT), left, j.add) };
    }
}

/// Stores the first `n` elements of `v`, or adds them to what is there.
#[inline(always)]
unsafe fn store<T: LaneElement, L: Lanes<Element = T::Lane>>(v: L::V, c: *mut T, n: usize, add: bool) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if !T::IS_LANE {
            return store_narrow::<T, L>(v, c, n, add);
        }
        let c = c.cast::<T::Lane>();
        match (n == L::COUNT, add) {
            (true, true) => L::store(L::add(v, L::load(c)), c),
            (true, false) => L::store(v, c),
            (false, true) => L::store_first(L::add(v, L::load_first(c, n)), c, n),
            (false, false) => L::store_first(v, c, n),
        }
    }
}

/// [`store`] of elements that are not their own lanes.
#[inline(always)]
unsafe fn store_narrow<T: LaneElement, L: Lanes<Element = T::Lane>>(v: L::V, c: *mut T, n: usize, add: bool) {
    let (mut elements, mut narrow) = ([T::Lane::default(); 32], [T::default(); 32]);
    // SAFETY: guaranteed by the caller.
    unsafe {
        L::store(v, elements.as_mut_ptr());
        // Where numbers are constant, the compiler makes vectors of these loops.
        for i in 0..L::COUNT {
            narrow[i] = T::narrow(elements[i]);
        }
        if add {
            let (mut before, whole) = ([T::default(); 32], n == L::COUNT);
            c.copy_to_nonoverlapping(before.as_mut_ptr(), if whole { L::COUNT } else { n });
            for i in 0..L::COUNT {
                narrow[i] = narrow[i].add(before[i]);
            }
        }
        match n == L::COUNT {
            true => c.copy_from_nonoverlapping(narrow.as_ptr(), L::COUNT),
            false => c.copy_from_nonoverlapping(narrow.as_ptr(), n),
        }
    }
}

/// The number of columns whose sums stay in the first cache while rows of B are added to them.
const SUMS: usize = 1024;
/// The number of rows of B that are added at once.
const TOGETHER: usize = 4;

#[inline(always)]
pub(super) unsafe fn sums_body<L: Lanes>(j: &RowsJob<L::Element>) {
    let mut first = 0;
    while first < j.cols {
        let end = j.cols.min(first + SUMS);
        let mut k = 0;
        while k < j.k {
            let some = if j.k - k >= TOGETHER { TOGETHER } else { 1 };
            for row in 0..j.rows {
                // SAFETY: the operands are valid for the job.
                unsafe {
                    match some {
                        TOGETHER => add_rows::<L, TOGETHER>(j, row, k, first, end),
                        _ => add_rows::<L, 1>(j, row, k, first, end),
                    }
                }
            }
            k += some;
        }
        first = end;
    }
}

/// Adds the products of `K` rows of B to the columns `col..end` of one row.
#[inline(always)]
unsafe fn add_rows<L: Lanes, const K: usize>(
    j: &RowsJob<L::Element>,
    row: usize,
    k: usize,
    mut col: usize,
    end: usize,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let a = j.a.add(row * j.a_strides[0] + k * j.a_strides[1]);
        let (b, c) = (j.b.add(k * j.b_step), j.c.add(row * j.c_strides[0]));
        let mut x = [L::factor(L::splat(*a)); K];
        for i in 1..K {
            x[i] = L::factor(L::splat(*a.add(i * j.a_strides[1])));
        }
        while col + L::COUNT <= end {
            let mut sum = L::zero();
            for i in 0..K {
                sum = L::add_product(sum, L::load(b.add(i * j.b_step + col)), x[i]);
            }
            let c = c.add(col);
            L::store(L::add(L::load(c), L::finish(sum)), c);
            col += L::COUNT;
        }
        if col < end {
            let n = end - col;
            let mut sum = L::zero();
            for i in 0..K {
                sum = L::add_product(sum, L::load_first(b.add(i * j.b_step + col), n), x[i]);
            }
            let c = c.add(col);
            L::store_first(L::add(L::load_first(c, n), L::finish(sum)), c, n);
        }
    }
}

#[inline(always)]
pub(super) unsafe fn dots_body<L: Lanes<Element: LaneElement>>(j: &RowsJob<L::Element>) {
    let mut col = 0;
    while col < j.cols {
        let cols = if j.cols - col >= 4 { 4 } else { 1 };
        for row in 0..j.rows {
            // SAFETY: the operands are valid for the job.
            unsafe {
                match cols {
                    4 => dot_tile::<L, 4>(j, row, col),
                    _ => dot_tile::<L, 1>(j, row, col),
                }
            }
        }
        col += cols;
    }
}

/// Computes `C` dot products of one row.
#[inline(always)]
unsafe fn dot_tile<L: Lanes<Element: LaneElement>, const C: usize>(j: &RowsJob<L::Element>, row: usize, col: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (a, b) = (j.a.add(row * j.a_strides[0]), j.b.add(col * j.b_step));
        let mut sums = [[L::zero(); 2]; C];
        let mut k = 0;
        while k + 2 * L::COUNT <= j.k {
            for h in 0..2 {
                let at = k + h * L::COUNT;
                let x = L::factor(L::load(a.add(at)));
                for c in 0..C {
                    sums[c][h] = L::add_product(sums[c][h], L::load(b.add(c * j.b_step + at)), x);
                }
            }
            k += 2 * L::COUNT;
        }
        while k < j.k {
            let n = (j.k - k).min(L::COUNT);
            let x = L::factor(L::load_first(a.add(k), n));
            for c in 0..C {
                sums[c][0] = L::add_product(sums[c][0], L::load_first(b.add(c * j.b_step + k), n), x);
            }
            k += n;
        }
        for c in 0..C {
            let mut lanes = [L::Element::default(); 32];
            L::store(L::add(L::finish(sums[c][0]), L::finish(sums[c][1])), lanes.as_mut_ptr());
            let c = j.c.add(row * j.c_strides[0] + (col + c) * j.c_strides[1]);
            let mut sum = if j.add { *c } else { L::Element::default() };
            for i in 0..L::COUNT {
                sum = sum.add(lanes[i]);
            }
            *c = sum;
        }
    }
}
