//! The blocks of a product: what is multiplied where it is, and what is packed first.

use super::LaneElement;
use super::few::multiply_few;
use super::method::ProductMethod;
use super::pack::{pack_column, pack_contiguous_columns, pack_rows, pack_tiles};
use super::tile::{Kernels, PanelJob, RowsJob};
use crate::math::scratch::{self, Scratch};
use crate::target::Isa;

/// The maximum number of product indices in a block. A panel of B then fits half of the first cache.
pub(super) const DEPTH: usize = 128;
/// The maximum number of rows of A that are packed at once: with [`DEPTH`] product indices they fit the second cache.
const ROWS: usize = 128;
/// The number of elements of B that are packed at once.
const PACKED: usize = 64 << 10;
/// The number of bytes of B that any number of rows multiplies where it is, or after packing before the next rows: they fit half of the
/// first cache.
pub(super) const SMALL: usize = 16 << 10;

/// A product `C = A · B`, or one that is added to C.
#[derive(Clone, Copy)]
pub(in crate::math) struct Product<T> {
    /// The rows of A and C.
    pub m: usize,
    /// The columns of B and C.
    pub n: usize,
    /// The product size.
    pub k: usize,
    /// A.
    pub a: *const T,
    /// The strides of A between rows and product indices.
    pub a_strides: [usize; 2],
    /// C, whose columns are contiguous.
    pub c: *mut T,
    /// The stride of C between rows.
    pub c_row: usize,
    /// Whether to add to C.
    pub add: bool,
}

impl<T: LaneElement> Product<T> {
    /// The transposed product by one column, which has one row. `None` if there are more columns or elements of C are not contiguous.
    pub(super) fn transposed(&self, b: &StridedColumns<T>) -> Option<(Product<T>, StridedColumns<T>)> {
        if self.n != 1 || self.m == 1 || self.c_row != 1 {
            return None;
        }
        let product = Product {
            m: 1,
            n: self.m,
            a: b.start,
            a_strides: [0, b.strides[0]],
            ..*self
        };
        let columns = StridedColumns {
            start: self.a,
            strides: [self.a_strides[1], self.a_strides[0]],
        };
        Some((product, columns))
    }
}

/// B: where panels of its columns come from.
pub(in crate::math) trait Columns<T: LaneElement> {
    /// Writes some product indices (the first and the end) of some columns (the first and their number) to `dst`, where product indices
    /// are `width` elements apart, and zeros to the rest of the width.
    ///
    /// # Safety
    /// The columns are those of a valid matrix, and `dst` has room.
    unsafe fn pack(&self, ks: [usize; 2], columns: [usize; 2], width: usize, dst: *mut T::Lane);

    /// The matrix, if it is in memory.
    fn in_memory(&self) -> Option<StridedColumns<T>> {
        None
    }
}

/// B in memory, with its strides between product indices and between columns.
#[derive(Clone, Copy)]
pub(in crate::math) struct StridedColumns<T> {
    /// The first element.
    pub start: *const T,
    /// The strides.
    pub strides: [usize; 2],
}

impl<T: LaneElement> Columns<T> for StridedColumns<T> {
    unsafe fn pack(&self, [k0, k1]: [usize; 2], [first, cols]: [usize; 2], width: usize, dst: *mut T::Lane) {
        let [k_step, step] = self.strides;
        // SAFETY: guaranteed by the caller.
        unsafe {
            let src = self.start.add(k0 * k_step + first * step);
            let dst = std::slice::from_raw_parts_mut(dst, (k1 - k0) * width);
            if cols < width {
                dst.fill(T::Lane::default());
            }
            match step {
                1 => pack_rows(src, k_step, cols, dst, width),
                _ if T::IS_LANE && k_step == 1 => pack_contiguous_columns(src, step, cols, dst, width),
                _ => (0..cols).for_each(|c| pack_column(src.add(c * step), k_step, &mut dst[c..], width)),
            }
        }
    }

    fn in_memory(&self) -> Option<StridedColumns<T>> {
        Some(*self)
    }
}

/// Computes a product.
///
/// # Safety
/// The machine has the instruction set. The operands are valid for the sizes; C overlaps neither.
pub(in crate::math) unsafe fn multiply<T: LaneElement>(isa: Isa, p: &Product<T>, b: &impl Columns<T>) {
    if p.m == 0 || p.n == 0 || p.k == 0 {
        // SAFETY: guaranteed by the caller.
        return unsafe { clear(p) };
    }
    let kernels = T::kernels(isa);
    // SAFETY: as above.
    unsafe {
        match b.in_memory().filter(|_| T::IN_ANY_ORDER) {
            Some(b) if T::IS_LANE => multiply_by(isa, ProductMethod::for_product(isa, p, &b), p, b),
            Some(b) if multiply_few(p, &b) => {}
            _ => multiply_packed(kernels, p, b),
        }
    }
}

/// Computes a product with B in memory by the given method, which must suit the strides.
///
/// # Safety
/// As for [`multiply`]; elements are their own lanes.
pub(in crate::math) unsafe fn multiply_by<T: LaneElement>(
    isa: Isa,
    method: ProductMethod,
    p: &Product<T>,
    b: StridedColumns<T>,
) {
    let kernels = T::kernels(isa);
    let (p, b) = &p.transposed(&b).unwrap_or((*p, b));
    // SAFETY: guaranteed by the caller.
    unsafe {
        if p.m == 0 || p.n == 0 || p.k == 0 {
            return clear(p);
        }
        match method {
            ProductMethod::Dots if p.m > p.n => (kernels.dots)(&columns_job(p, b)),
            ProductMethod::Dots => (kernels.dots)(&rows_job(p, b, b.strides[1])),
            ProductMethod::Sums => {
                clear(p);
                (kernels.sums)(&rows_job(p, b, b.strides[0]));
            }
            ProductMethod::InPlace => multiply_in_place(kernels, p, b),
            ProductMethod::Packed => multiply_packed(kernels, p, b),
        }
    }
}

/// Sets C to zeros unless it is added to.
///
/// # Safety
/// C is valid.
unsafe fn clear<T: LaneElement>(p: &Product<T>) {
    if !p.add && p.n > 0 {
        for i in 0..p.m {
            // SAFETY: guaranteed by the caller.
            unsafe { std::slice::from_raw_parts_mut(p.c.add(i * p.c_row), p.n).fill(T::default()) };
        }
    }
}

/// The job for kernels of few rows. Its lanes are the elements.
fn rows_job<T: LaneElement>(p: &Product<T>, b: &StridedColumns<T>, b_step: usize) -> RowsJob<T::Lane> {
    RowsJob {
        rows: p.m,
        cols: p.n,
        k: p.k,
        a: p.a.cast(),
        a_strides: p.a_strides,
        b: b.start.cast(),
        b_step,
        c: p.c.cast(),
        c_strides: [p.c_row, 1],
        add: p.add,
    }
}

/// The job of dot products of columns of B with rows of A, of which there are more: kernels read several at a time.
fn columns_job<T: LaneElement>(p: &Product<T>, b: &StridedColumns<T>) -> RowsJob<T::Lane> {
    RowsJob {
        rows: p.n,
        cols: p.m,
        k: p.k,
        a: b.start.cast(),
        a_strides: [b.strides[1], 1],
        b: p.a.cast(),
        b_step: p.a_strides[0],
        c: p.c.cast(),
        c_strides: [1, p.c_row],
        add: p.add,
    }
}

/// Multiplies panels of B, whose rows are contiguous, without packing anything.
///
/// # Safety
/// As for [`multiply`]; elements are their own lanes.
unsafe fn multiply_in_place<T: LaneElement>(kernels: &Kernels<T>, p: &Product<T>, b: &StridedColumns<T>) {
    let width = 2 * kernels.lanes;
    for col in (0..p.n).step_by(width) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            (kernels.panel)(&PanelJob {
                rows: p.m,
                cols: width.min(p.n - col),
                k: p.k,
                a: p.a.cast(),
                a_strides: Some(p.a_strides),
                b: b.start.add(col).cast(),
                b_row: b.strides[0],
                b_places: std::ptr::null(),
                b_padded: false,
                c: p.c.add(col),
                c_row: p.c_row,
                add: p.add,
            });
        }
    }
}

/// A block of a packed product.
struct Block {
    /// The columns.
    cols: [usize; 2],
    /// The product indices.
    ks: [usize; 2],
}

/// Computes a product from packed panels of B, and of A if it is read more than once.
///
/// # Safety
/// As for [`multiply`].
unsafe fn multiply_packed<T: LaneElement>(kernels: &Kernels<T>, p: &Product<T>, b: &impl Columns<T>) {
    let width = 2 * kernels.lanes;
    let depth = p.k.div_ceil(p.k.div_ceil(DEPTH));
    let most = (PACKED / depth / width * width).max(width);
    let mut panels = lanes_buffer::<T>(depth * most.min(p.n.next_multiple_of(width)));
    let mut rows = lanes_buffer::<T>(depth * ROWS.min(p.m));
    for col in (0..p.n).step_by(most) {
        for k in (0..p.k).step_by(depth) {
            let block = Block {
                cols: [col, p.n.min(col + most)],
                ks: [k, p.k.min(k + depth)],
            };
            // SAFETY: guaranteed by the caller; the buffers hold a block.
            unsafe {
                multiply_block(
                    kernels,
                    p,
                    b,
                    &block,
                    [panels.as_mut_ptr().cast(), rows.as_mut_ptr().cast()],
                )
            };
        }
    }
}

/// Working memory for `n` lanes.
fn lanes_buffer<T: LaneElement>(n: usize) -> Scratch {
    scratch::take_buffer((n * size_of::<T::Lane>()).div_ceil(size_of::<f32>()))
}

/// Packs and multiplies one block.
///
/// # Safety
/// As for [`multiply`]; the buffers have room for it.
unsafe fn multiply_block<T: LaneElement>(
    kernels: &Kernels<T>,
    p: &Product<T>,
    b: &impl Columns<T>,
    block: &Block,
    [panels, rows]: [*mut T::Lane; 2],
) {
    let ([c0, c1], [k0, k1]) = (block.cols, block.ks);
    let (width, depth) = (2 * kernels.lanes, k1 - k0);
    let packs_rows = !T::IS_LANE || p.a_strides[1] != 1 || c1 - c0 > width;
    // SAFETY: guaranteed by the caller.
    unsafe {
        for col in (c0..c1).step_by(width) {
            let cols = [col, width.min(c1 - col)];
            b.pack(block.ks, cols, width, panels.add((col - c0) * depth));
        }
        for row in (0..p.m).step_by(ROWS) {
            let count = ROWS.min(p.m - row);
            let a = p.a.add(row * p.a_strides[0] + k0 * p.a_strides[1]);
            if packs_rows {
                pack_tiles(a, p.a_strides, [count, depth], kernels.rows, rows);
            }
            let job = PanelJob {
                rows: count,
                cols: width,
                k: depth,
                a: if packs_rows { rows } else { a.cast() },
                a_strides: (!packs_rows).then_some(p.a_strides),
                b: panels,
                b_row: width,
                b_places: std::ptr::null(),
                b_padded: true,
                c: p.c.add(row * p.c_row + c0),
                c_row: p.c_row,
                add: p.add || k0 > 0,
            };
            multiply_panels(kernels, job, c1 - c0);
        }
    }
}

/// Multiplies by packed panels of `cols` columns, from that of `job` on.
///
/// # Safety
/// As for [`multiply`].
unsafe fn multiply_panels<T: LaneElement>(kernels: &Kernels<T>, job: PanelJob<T>, cols: usize) {
    let width = job.cols;
    let a_row = job.a_strides.map_or(job.k, |s| s[0]);
    // Panels that stay in the first cache are multiplied by a tile of rows at a time: rows of C that are far apart are then stored in
    // longer pieces, of which there are fewer at a time.
    let together = SMALL / (job.k * width * size_of::<T::Lane>()).max(1);
    let (together, rows) = if together > 1 {
        (together, kernels.rows)
    } else {
        (1, job.rows)
    };
    for first in (0..cols).step_by(together * width) {
        for row in (0..job.rows).step_by(rows) {
            for col in (first..cols.min(first + together * width)).step_by(width) {
                // SAFETY: guaranteed by the caller.
                unsafe {
                    (kernels.panel)(&PanelJob {
                        rows: rows.min(job.rows - row),
                        cols: width.min(cols - col),
                        a: job.a.add(row * a_row),
                        b: job.b.add(col * job.k),
                        c: job.c.add(row * job.c_row + col),
                        ..job
                    });
                }
            }
        }
    }
}
