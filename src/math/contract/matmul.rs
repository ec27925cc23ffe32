//! The descriptor of matrix products.

use super::{Activation, Constant, TileTail, strided_extent};
use crate::parallel::Pool;
use crate::types::DType;

/// One dimension of a batch: its size and each operand's stride along it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchDim {
    /// The size.
    pub size: usize,
    /// Stride of A.
    pub a: usize,
    /// Stride of B.
    pub b: usize,
    /// Stride of C.
    pub c: usize,
    /// Stride of the addend.
    pub addend: usize,
}

/// The matrix that is added to a product: a bias, or the first operand of `addmm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addend {
    /// From one row to the next; 0 for a bias per column.
    pub row: usize,
    /// From one column to the next; 0 for a bias per row.
    pub col: usize,
}

/// `C = activation(alpha * (A · B) + beta * addend)` for a batch of matrices (`mm`, `bmm`, `addmm`, `baddbmm`, `linear`).
///
/// f32 sums in f32; f64 in f64; integers wrap; f16 and bf16 sum in f32 and round once. As in torch, `beta == 0` or no
/// addend means that the addend is not read, `k == 0` gives `beta * addend`.
#[derive(Clone, Debug, PartialEq)]
pub struct MatMul {
    /// Dtype of every operand.
    pub dtype: DType,
    /// Batch dimensions, outermost first.
    pub batch: Vec<BatchDim>,
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A, rows of B.
    pub k: usize,
    /// Strides of A: from row to row, from product index to product index.
    pub a: [usize; 2],
    /// Strides of B: from product index to product index, from column to column.
    pub b: [usize; 2],
    /// From one row of C to the next, at least `n`; columns of C are contiguous.
    pub c_row: usize,
    /// The strides of the addend, if there is one.
    pub addend: Option<Addend>,
    /// Factor of the product.
    pub alpha: f64,
    /// Factor of the addend.
    pub beta: f64,
    /// Applied last.
    pub activation: Activation,
}

impl MatMul {
    /// `A[m, k] · B[k, n]`, all row-major and without gaps.
    pub fn new(dtype: DType, m: usize, n: usize, k: usize) -> MatMul {
        MatMul {
            dtype,
            batch: vec![],
            m,
            n,
            k,
            a: [k, 1],
            b: [n, 1],
            c_row: n,
            addend: None,
            alpha: 1.0,
            beta: 1.0,
            activation: Activation::None,
        }
    }

    /// `linear(x[m, k], w[n, k])`: B is the transpose of row-major `w`.
    pub fn linear(dtype: DType, m: usize, n: usize, k: usize) -> MatMul {
        MatMul {
            b: [1, k],
            ..MatMul::new(dtype, m, n, k)
        }
    }

    /// How many elements each of A, B, addend and C spans, or `None` if one does not fit the address space. A plan
    /// reads and writes within these.
    pub fn extents(&self) -> Option<[usize; 4]> {
        let dims = |f: fn(&BatchDim) -> usize| self.batch.iter().map(move |d| (d.size, f(d)));
        let size = self.dtype.size();
        let addend = self.addend.unwrap_or(Addend { row: 0, col: 0 });
        Some([
            strided_extent(size, dims(|d| d.a).chain([(self.m, self.a[0]), (self.k, self.a[1])]))?,
            strided_extent(size, dims(|d| d.b).chain([(self.k, self.b[0]), (self.n, self.b[1])]))?,
            match self.addend {
                None => 0,
                Some(_) => strided_extent(
                    size,
                    dims(|d| d.addend).chain([(self.m, addend.row), (self.n, addend.col)]),
                )?,
            },
            strided_extent(size, dims(|d| d.c).chain([(self.m, self.c_row), (self.n, 1)]))?,
        ])
    }

    /// How many matrices the batch has.
    pub fn batch_size(&self) -> usize {
        self.batch.iter().map(|d| d.size).product()
    }
}

/// Where the operands of a [`MatMul`] are.
#[derive(Clone, Copy)]
pub struct MatMulArgs {
    /// A; not read if it was constant.
    pub a: *const u8,
    /// B; not read if it was constant.
    pub b: *const u8,
    /// The addend; not read if there is none.
    pub addend: *const u8,
    /// C; overlaps no other operand.
    pub c: *mut u8,
    /// What to run on finished tiles.
    pub tail: Option<TileTail>,
}

/// Constant operands of a [`MatMul`], as bytes of the descriptor's dtype, of at least its extents.
#[derive(Clone, Copy, Default)]
pub struct MatMulConstants<'a> {
    /// A.
    pub a: Option<Constant<'a>>,
    /// B; ignored if A is constant too.
    pub b: Option<Constant<'a>>,
}

/// A [`MatMul`] ready to run.
pub trait MatMulPlan: Send + Sync {
    /// Computes C.
    ///
    /// # Safety
    /// Every operand that is read is valid for the descriptor's extents and aligned to its dtype; C is writable and
    /// overlaps no other operand.
    unsafe fn run(&self, pool: &Pool, args: &MatMulArgs);
    /// How it computes, for reports: `packed 14x32 avx512`.
    fn describe(&self) -> String;
}
