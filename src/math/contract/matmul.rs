//! The descriptor of matrix products.

use super::{Activation, ByteInput, Constant, TileTail, strided_extent};
use crate::parallel::Pool;
use crate::types::DType;
use serde::{Deserialize, Serialize};

/// One batch dimension: its size, and each operand's stride along it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// The strides of the matrix that is added to a product: a bias, or the first operand of `addmm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addend {
    /// The stride between rows; 0 for a bias per column.
    pub row: usize,
    /// The stride between columns; 0 for a bias per row.
    pub col: usize,
}

/// `C = activation(alpha * (A · B) + beta * addend)` for a batch of matrices (`mm`, `bmm`, `addmm`, `baddbmm`,
/// `linear`).
///
/// f32 accumulates in f32 and f64 in f64. Integers wrap. f16 and bf16 accumulate in f32 and round once. As in torch,
/// the addend is not read if `beta == 0`, and `k == 0` gives `beta * addend`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MatMul {
    /// The dtype of every operand, unless the factors are [`bytes`](Self::bytes).
    pub dtype: DType,
    /// Batch dimensions, outermost first.
    pub batch: Vec<BatchDim>,
    /// The number of rows of A and C.
    pub m: usize,
    /// The number of columns of B and C.
    pub n: usize,
    /// The number of columns of A and rows of B (the product size).
    pub k: usize,
    /// The strides of A: between rows, and between product indices.
    pub a: [usize; 2],
    /// The strides of B: between product indices, and between columns.
    pub b: [usize; 2],
    /// The stride between rows of C, at least `n`. Columns of C are contiguous.
    pub c_row: usize,
    /// The strides of the addend, if there is one.
    pub addend: Option<Addend>,
    /// The factor of the product.
    pub alpha: f64,
    /// The factor of the addend.
    pub beta: f64,
    /// The activation, which is applied last.
    pub activation: Activation,
    /// If B is a constant that is computed from integers ([`Tensor::quantized`](crate::tensor::Tensor::quantized)): the
    /// number of consecutive product indices that share a scale. Plans then keep the integers and not B.
    pub quantized: Option<usize>,
    /// Whether bf16 represents all elements of the factors exactly. Products of pairs are then exact, and sums are
    /// rounded as those of f32. The units that multiply pairs take denormal numbers for zeros.
    pub exact_in_bf16: bool,
    /// Whether all elements of A, of f32, are integers from -128 to 127.
    pub a_is_i8: bool,
    /// For products of bytes: the dtype of A. B is i8, [`dtype`](Self::dtype) is that of the result, i32, and there is neither an
    /// addend nor an activation.
    pub bytes: Option<ByteInput>,
}

impl MatMul {
    /// `A[m, k] · B[k, n]`, contiguous and row-major.
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
            quantized: None,
            exact_in_bf16: false,
            a_is_i8: false,
            bytes: None,
        }
    }

    /// `linear(x[m, k], w[n, k])`: B is the transpose of row-major `w`.
    pub fn linear(dtype: DType, m: usize, n: usize, k: usize) -> MatMul {
        MatMul {
            b: [1, k],
            ..MatMul::new(dtype, m, n, k)
        }
    }

    /// The number of elements that each of A, B, addend and C spans. `None` if one does not fit the address space. A
    /// plan reads and writes only within these.
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

    /// The same product of `rows` rows and one matrix, without an addend.
    pub(crate) fn single(&self, rows: usize) -> MatMul {
        MatMul {
            a: self.a,
            b: self.b,
            ..MatMul::new(self.dtype, rows, self.n, self.k)
        }
    }

    /// The size of an element of A and B in bytes.
    pub fn factor_size(&self) -> usize {
        if self.bytes.is_some() { 1 } else { self.dtype.size() }
    }

    /// The number of matrices in the batch.
    pub fn batch_size(&self) -> usize {
        self.batch.iter().map(|d| d.size).product()
    }
}

/// The addresses of a [`MatMul`]'s operands.
#[derive(Clone, Copy)]
pub struct MatMulArgs {
    /// A. Not read if it is constant.
    pub a: *const u8,
    /// B. Not read if it is constant.
    pub b: *const u8,
    /// The addend. Not read if there is none.
    pub addend: *const u8,
    /// C. It must not overlap any other operand.
    pub c: *mut u8,
    /// The function to run on finished tiles.
    pub tail: Option<TileTail>,
}

/// The constant operands of a [`MatMul`], as bytes of the descriptor's dtype. They must span at least its extents.
#[derive(Clone, Copy, Default)]
pub struct MatMulConstants<'a> {
    /// A.
    pub a: Option<Constant<'a>>,
    /// B; ignored if A is constant too.
    pub b: Option<Constant<'a>>,
}

/// A plan that computes a [`MatMul`].
pub trait MatMulPlan: Send + Sync {
    /// Computes C.
    ///
    /// # Safety
    /// Every operand that is read is valid for the descriptor's extents and aligned to its dtype; C is writable and
    /// overlaps no other operand.
    unsafe fn run(&self, pool: &Pool, args: &MatMulArgs);
    /// A description of the method, for reports: `packed 14x32 avx512`.
    fn describe(&self) -> String;
}
