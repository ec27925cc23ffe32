//! Products with few rows of elements that are not their own lanes: B is read where it is, because packing it would take longer than
//! multiplying it.

use super::LaneElement;
use super::blocks::{Product, StridedColumns};
use crate::math::number::Number;
use crate::tensor::{WideLoop, run_wide};

/// The maximum number of rows.
const ROWS: usize = 4;
/// The number of columns whose sums stay in the first cache.
const SUMS: usize = 2048;

/// Computes a product of few rows, or of one column; returns whether it did.
///
/// # Safety
/// As for [`multiply`](super::multiply).
pub(super) unsafe fn multiply_few<T: LaneElement>(p: &Product<T>, b: &StridedColumns<T>) -> bool {
    let (p, b) = &p.transposed(b).unwrap_or((*p, *b));
    let [b_k, b_col] = b.strides;
    let (columns, rows) = (b_k == 1 && (b_col != 1 || p.n == 1), b_col == 1 || p.n == 1);
    if p.m > ROWS || !(columns || rows) {
        return false;
    }
    for row in 0..p.m {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let a = p.a.add(row * p.a_strides[0]);
            let a: Vec<T::Lane> = (0..p.k).map(|k| (*a.add(k * p.a_strides[1])).widen()).collect();
            let c = std::slice::from_raw_parts_mut(p.c.add(row * p.c_row), p.n);
            if !p.add {
                c.fill(T::default());
            }
            match columns {
                true => run_wide(Dots { a: &a, b, c }),
                false => run_wide(RowSums { a: &a, b, c }),
            }
        }
    }
    true
}

/// Adds rows of B, which are contiguous, times the elements of a row of A.
struct RowSums<'a, T: LaneElement> {
    a: &'a [T::Lane],
    b: &'a StridedColumns<T>,
    c: &'a mut [T],
}

impl<T: LaneElement> WideLoop for RowSums<'_, T> {
    #[inline(always)]
    fn run(self) {
        let mut sums = [T::Lane::default(); SUMS];
        for (block, c) in self.c.chunks_mut(SUMS).enumerate() {
            let n = c.len();
            let sums = &mut sums[..n];
            sums.fill(T::Lane::default());
            let row = |k: usize| {
                let at = k * self.b.strides[0] + block * SUMS;
                // SAFETY: the product is valid.
                unsafe { std::slice::from_raw_parts(self.b.start.add(at), n) }
            };
            let (fours, rest) = self.a.as_chunks::<4>();
            for (k, x) in fours.iter().enumerate() {
                add_rows(*x, [row(4 * k), row(4 * k + 1), row(4 * k + 2), row(4 * k + 3)], sums);
            }
            for (k, x) in rest.iter().enumerate() {
                add_rows([*x], [row(4 * fours.len() + k)], sums);
            }
            for (c, &sum) in c.iter_mut().zip(&*sums) {
                *c = c.add(T::narrow(sum));
            }
        }
    }
}

/// Adds `N` rows times their factors.
#[inline(always)]
fn add_rows<T: LaneElement, const N: usize>(x: [T::Lane; N], rows: [&[T]; N], sums: &mut [T::Lane]) {
    let mut cut = rows;
    for row in &mut cut {
        *row = &row[..sums.len()];
    }
    for j in 0..sums.len() {
        let mut sum = sums[j];
        for i in 0..N {
            sum = sum.add(x[i].mul(cut[i][j].widen()));
        }
        sums[j] = sum;
    }
}

/// Adds dot products of a row of A with columns of B, which are contiguous.
struct Dots<'a, T: LaneElement> {
    a: &'a [T::Lane],
    b: &'a StridedColumns<T>,
    c: &'a mut [T],
}

impl<T: LaneElement> WideLoop for Dots<'_, T> {
    #[inline(always)]
    fn run(self) {
        let a = self.a;
        for (j, c) in self.c.iter_mut().enumerate() {
            // SAFETY: the product is valid.
            let b = unsafe { std::slice::from_raw_parts(self.b.start.add(j * self.b.strides[1]), a.len()) };
            let mut sum = T::Lane::default();
            for k in 0..a.len() {
                sum = sum.add(a[k].mul(b[k].widen()));
            }
            *c = c.add(T::narrow(sum));
        }
    }
}
