//! Products of integers, which wrap, and those of f64 that are small or have few rows or columns: see [`lanes`](crate::math::lanes).

use super::other::finish_rows;
use super::{Offsets, Rect, run_tail};
use crate::math::contract::{Activation, MatMul, MatMulArgs, MatMulConstants, MatMulPlan};
use crate::math::lanes::{
    LaneElement, Product, ProductMethod, StridedColumns, multiply, multiply_by, with_lane_element,
};
use crate::math::scratch::SharedPtr;
use crate::parallel::Pool;
use crate::target::Isa;
use crate::tensor::AlignedBytes;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The number of multiply-adds in a chunk of small matrices.
const TOGETHER: usize = 100_000;
/// The maximum number of multiply-adds of matrices that plain loops multiply.
const TINY: usize = 64;
/// The smallest number of multiply-adds that another thread is worth.
const SMALLEST: usize = 200_000;
/// The smallest number of rows or columns of a part of a matrix.
const PART: usize = 32;

/// A plan of such a product. Constants are copied, not packed.
pub(super) struct LanePlan {
    isa: Isa,
    desc: MatMul,
    /// How elements that are their own lanes are multiplied. It is that of a whole matrix, because the parts of a matrix depend on the
    /// number of threads, and the sums must not.
    method: ProductMethod,
    a: Option<Arc<AlignedBytes>>,
    b: Option<Arc<AlignedBytes>>,
}

/// The parts of one matrix: along its rows, and along its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parts {
    rows: usize,
    cols: usize,
}

impl Parts {
    /// Parts of a matrix of a batch, so that each thread finds some.
    fn new(d: &MatMul, threads: usize) -> Parts {
        let whole = Parts { rows: 1, cols: 1 };
        let macs = d.m.saturating_mul(d.n).saturating_mul(d.k.max(1));
        let wanted = (4 * threads).div_ceil(d.batch_size().max(1)).min(macs / SMALLEST);
        if threads == 1 || wanted < 2 {
            return whole;
        }
        match d.m >= d.n {
            true => Parts {
                rows: wanted.min(d.m / PART).max(1),
                ..whole
            },
            false => Parts {
                cols: wanted.min(d.n / PART).max(1),
                ..whole
            },
        }
    }
}

impl Parts {
    /// Part `i` of a batch.
    fn rect(&self, d: &MatMul, i: usize) -> Rect {
        let per = self.rows * self.cols;
        let part = |i: usize, n: usize, all: usize| [i * all / n, (i + 1) * all / n];
        let [row, row_end] = part(i % per / self.cols, self.rows, d.m);
        let [col, col_end] = part(i % self.cols, self.cols, d.n);
        Rect {
            batch: i / per,
            row,
            col,
            rows: row_end - row,
            cols: col_end - col,
        }
    }
}

/// The numbers of product indices of large products that are mostly stores, which `gemm` does in larger tiles.
const SHALLOW: RangeInclusive<usize> = 2..=24;
/// The minimum number of rows and of columns of such a product.
const WIDE: usize = 64;

/// Whether a product of f64 is faster in lanes than with the `gemm` crate.
pub(super) fn suits_doubles(d: &MatMul) -> bool {
    d.m < WIDE || d.n < WIDE || !SHALLOW.contains(&d.k)
}

/// How a whole matrix of the product is multiplied, if its elements are their own lanes.
fn choose_method<T: LaneElement>(isa: Isa, d: &MatMul) -> ProductMethod {
    let product = Product {
        m: d.m,
        n: d.n,
        k: d.k,
        a: std::ptr::null::<T>(),
        a_strides: d.a,
        c: std::ptr::null_mut(),
        c_row: d.c_row,
        add: false,
    };
    let columns = StridedColumns {
        start: std::ptr::null(),
        strides: d.b,
    };
    ProductMethod::for_product(isa, &product, &columns)
}

impl LanePlan {
    /// Plans `desc`, whose extents were already checked.
    pub(super) fn new(isa: Isa, desc: &MatMul, constants: MatMulConstants) -> LanePlan {
        LanePlan {
            isa,
            method: with_lane_element!(desc.dtype, T => choose_method::<T>(isa, desc)),
            desc: desc.clone(),
            a: constants.a.map(|a| a.aligned_bytes()),
            b: constants.b.filter(|_| constants.a.is_none()).map(|b| b.aligned_bytes()),
        }
    }

    /// Computes a rectangle of the matrix at `o`.
    ///
    /// # Safety
    /// `args` is as for [`MatMulPlan::run`]; nothing else writes the rectangle.
    unsafe fn run_part<T: LaneElement>(&self, args: &MatMulArgs, o: &Offsets, r: Rect) {
        let d = &self.desc;
        let [a, b] = self.factors::<T>(args);
        let c = args.c.cast::<T>().wrapping_add(o.c + r.row * d.c_row + r.col);
        let addend = args.addend.cast::<T>().wrapping_add(o.addend);
        // SAFETY: the operands are valid for the descriptor's extents.
        unsafe {
            let add = d.alpha == 1.0 && start_with_addend(d, addend, c, &r);
            let product = Product {
                m: r.rows,
                n: r.cols,
                k: d.k,
                a: a.wrapping_add(o.a + r.row * d.a[0]),
                a_strides: d.a,
                c,
                c_row: d.c_row,
                add,
            };
            let columns = StridedColumns {
                start: b.wrapping_add(o.b + r.col * d.b[1]),
                strides: d.b,
            };
            match T::IS_LANE {
                true => multiply_by(self.isa, self.method, &product, columns),
                false => multiply(self.isa, &product, &columns),
            }
            if d.alpha != 1.0 || d.activation != Activation::None {
                let beta = if add { 0.0 } else { d.beta };
                let rest = MatMul { beta, ..d.clone() };
                finish_rows(&rest, addend, args.c.cast::<T>().wrapping_add(o.c), &r);
            }
            if let Some(t) = &args.tail {
                run_tail(d, t, args.c, o.c, r);
            }
        }
    }

    /// Computes all matrices.
    ///
    /// # Safety
    /// `args` is as for [`MatMulPlan::run`].
    unsafe fn run_as<T: LaneElement>(&self, pool: &Pool, args: &MatMulArgs) {
        let d = &self.desc;
        let (parts, batch) = (Parts::new(d, pool.threads()), d.batch_size());
        let per = parts.rows * parts.cols;
        let macs = d.m.saturating_mul(d.n).saturating_mul(d.k.max(1));
        let together = if per > 1 { 1 } else { (TOGETHER / macs).clamp(1, batch) };
        let shared = SharedPtr(args as *const MatMulArgs as *mut MatMulArgs);
        pool.run((batch * per).div_ceil(together), |chunk| {
            // SAFETY: guaranteed by the caller; the parts and the matrices are disjoint.
            unsafe {
                match per {
                    1 => self.run_matrices::<T>(&*shared.get(), chunk * together, batch.min((chunk + 1) * together)),
                    _ => {
                        let rect = parts.rect(d, chunk);
                        self.run_part::<T>(&*shared.get(), &Offsets::for_matrix(d, rect.batch), rect);
                    }
                }
            }
        });
    }

    /// Whether plain loops take less time than choosing a kernel for each matrix.
    fn is_tiny(&self, args: &MatMulArgs) -> bool {
        let d = &self.desc;
        let plain = d.alpha == 1.0 && d.activation == Activation::None && args.tail.is_none();
        plain && d.m.saturating_mul(d.n).saturating_mul(d.k) <= TINY
    }

    /// Computes `count` matrices of the batch, of which the first is at `o`.
    ///
    /// # Safety
    /// As for [`LanePlan::run_matrices`]; the matrices are neighbours along the last dimension of the batch.
    unsafe fn run_tiny<T: LaneElement>(&self, args: &MatMulArgs, mut o: Offsets, count: usize) {
        let d = &self.desc;
        let [a, b] = self.factors::<T>(args);
        let (c, addend) = (args.c.cast::<T>(), args.addend.cast::<T>());
        for _ in 0..count {
            let t = TinyProduct {
                desc: d,
                a: a.wrapping_add(o.a),
                b: b.wrapping_add(o.b),
                c: c.wrapping_add(o.c),
                addend: addend.wrapping_add(o.addend),
            };
            // SAFETY: guaranteed by the caller.
            unsafe {
                match d.k {
                    2 => t.run::<2>(),
                    3 => t.run::<3>(),
                    4 => t.run::<4>(),
                    _ => t.run::<0>(),
                }
            }
            if let Some(b) = d.batch.last() {
                (o.a, o.b, o.c, o.addend) = (o.a + b.a, o.b + b.b, o.c + b.c, o.addend + b.addend);
            }
        }
    }

    /// The first elements of A and B.
    fn factors<T>(&self, args: &MatMulArgs) -> [*const T; 2] {
        let a = self.a.as_ref().map_or(args.a, |c| c.bytes().as_ptr());
        let b = self.b.as_ref().map_or(args.b, |c| c.bytes().as_ptr());
        [a.cast(), b.cast()]
    }

    /// Computes the matrices `first..end` of the batch.
    ///
    /// # Safety
    /// `args` is as for [`MatMulPlan::run`]; nothing else writes these matrices.
    unsafe fn run_matrices<T: LaneElement>(&self, args: &MatMulArgs, first: usize, end: usize) {
        let d = &self.desc;
        let row = d.batch.last().map_or(1, |b| b.size);
        let mut at = first;
        while at < end {
            // Along the last dimension of the batch, the strides are the same: small matrices take less time than a division.
            let count = (row - at % row).min(end - at);
            let mut o = Offsets::for_matrix(d, at);
            if self.is_tiny(args) {
                // SAFETY: guaranteed by the caller.
                unsafe { self.run_tiny::<T>(args, o, count) };
                at += count;
                continue;
            }
            for batch in at..at + count {
                let whole = Rect {
                    batch,
                    row: 0,
                    col: 0,
                    rows: d.m,
                    cols: d.n,
                };
                // SAFETY: guaranteed by the caller.
                unsafe { self.run_part::<T>(args, &o, whole) };
                if let Some(b) = d.batch.last() {
                    (o.a, o.b, o.c, o.addend) = (o.a + b.a, o.b + b.b, o.c + b.c, o.addend + b.addend);
                }
            }
            at += count;
        }
    }
}

/// The product of one small matrix of a batch.
struct TinyProduct<'a, T> {
    desc: &'a MatMul,
    a: *const T,
    b: *const T,
    c: *mut T,
    addend: *const T,
}

impl<T: LaneElement> TinyProduct<'_, T> {
    /// Computes it; `K` is the product size, or 0 if the compiler does not know it.
    ///
    /// # Safety
    /// The operands are valid for the descriptor.
    #[inline(always)]
    unsafe fn run<const K: usize>(&self) {
        let d = self.desc;
        let k = if K == 0 { d.k } else { K };
        let addend = d.addend.filter(|_| d.beta != 0.0);
        let beta = T::from_f64(d.beta);
        for i in 0..d.m {
            for j in 0..d.n {
                // SAFETY: guaranteed by the caller.
                unsafe {
                    let mut sum = addend.map_or(T::default(), |s| beta.mul(*self.addend.add(i * s.row + j * s.col)));
                    let (a, b) = (self.a.add(i * d.a[0]), self.b.add(j * d.b[1]));
                    for p in 0..k {
                        sum = sum.add((*a.add(p * d.a[1])).mul(*b.add(p * d.b[0])));
                    }
                    *self.c.add(i * d.c_row + j) = sum;
                }
            }
        }
    }
}

/// Sets C to `beta * addend` if there is an addend, and returns whether there is.
///
/// # Safety
/// `addend` is that of the matrix, and `c` is the first element of the rectangle.
unsafe fn start_with_addend<T: LaneElement>(d: &MatMul, addend: *const T, c: *mut T, r: &Rect) -> bool {
    let Some(s) = d.addend.filter(|_| d.beta != 0.0) else {
        return false;
    };
    let beta = T::from_f64(d.beta);
    for i in 0..r.rows {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let from = addend.add((r.row + i) * s.row + r.col * s.col);
            let row = std::slice::from_raw_parts_mut(c.add(i * d.c_row), r.cols);
            match (s.col, d.beta == 1.0) {
                (1, true) => row.copy_from_slice(std::slice::from_raw_parts(from, r.cols)),
                (col, _) => {
                    let products = row.iter_mut().enumerate();
                    products.for_each(|(j, c)| *c = beta.mul(*from.add(j * col)));
                }
            }
        }
    }
    true
}

impl MatMulPlan for LanePlan {
    unsafe fn run(&self, pool: &Pool, args: &MatMulArgs) {
        let d = &self.desc;
        if d.m == 0 || d.n == 0 || d.batch_size() == 0 {
            return;
        }
        // SAFETY: guaranteed by the caller.
        unsafe { with_lane_element!(d.dtype, T => self.run_as::<T>(pool, args)) };
    }

    fn describe(&self) -> String {
        format!("matmul {} tiles {}", self.desc.dtype, self.isa)
    }
}
