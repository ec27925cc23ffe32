//! The descriptor of products of groups of rows, each with its own matrix: the experts of a mixture.

use super::{MatMul, strided_extent};
use crate::parallel::Pool;
use crate::types::DType;
use serde::{Deserialize, Serialize};
use std::fmt;

/// `C[i] = A[i] · B[g]` for the rows `i` of each group `g`.
///
/// f16 and bf16 accumulate in f32 and round once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grouped {
    /// The dtype of A, B and C: f32, bf16 or f16.
    pub dtype: DType,
    /// The dtype of the integers that tell the groups: i32 or i64.
    pub integers: DType,
    /// How they tell them.
    pub grouping: Grouping,
    /// The number of groups, and of matrices.
    pub groups: usize,
    /// The number of rows of A and C, which are contiguous.
    pub rows: usize,
    /// The number of columns of B and C.
    pub n: usize,
    /// The number of columns of A and rows of B.
    pub k: usize,
    /// The strides of B: between matrices, between product indices, and between columns.
    pub b: [usize; 3],
}

/// Which rows belong to which group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Grouping {
    /// Groups are consecutive, and there is an integer for each: the number of the row after its last one. Rows after the last group become
    /// 0.
    Ends,
    /// There is an integer for each row, the number of its group. With `wrap`, negative numbers count from the end.
    Names {
        /// Whether they do.
        wrap: bool,
    },
}

impl Grouped {
    /// The product of the first `rows` rows with one matrix.
    pub fn product(&self, rows: usize) -> MatMul {
        MatMul {
            b: [self.b[1], self.b[2]],
            ..MatMul::new(self.dtype, rows, self.n, self.k)
        }
    }

    /// The number of elements that B spans. `None` if an operand does not fit the address space.
    pub fn b_extent(&self) -> Option<usize> {
        self.product(self.rows).extents()?;
        let dims = [self.groups, self.k, self.n].into_iter().zip(self.b);
        strided_extent(self.dtype.size(), dims)
    }

    /// The number of integers that tell the groups.
    pub fn integer_count(&self) -> usize {
        match self.grouping {
            Grouping::Ends => self.groups,
            Grouping::Names { .. } => self.rows,
        }
    }

    /// Whether plans pack a constant B. f16 is multiplied in f32, and reading packed matrices of twice the size would take longer than
    /// converting them: few rows belong to each group.
    pub fn packs_constants(&self) -> bool {
        self.dtype != DType::F16
    }

    /// The number of multiply-adds.
    pub fn macs(&self) -> f64 {
        self.rows as f64 * self.n as f64 * self.k as f64
    }
}

/// The addresses of the operands of a [`Grouped`].
#[derive(Clone, Copy)]
pub struct GroupedArgs {
    /// A.
    pub a: *const u8,
    /// B. Not read if the plan has packed it.
    pub b: *const u8,
    /// The integers that tell the groups.
    pub integers: *const u8,
    /// C. It must not overlap any other operand.
    pub c: *mut u8,
}

/// Integers that do not tell groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidGroups {
    /// Ends are not ascending, or not within the rows.
    Ends,
    /// There is no group of this number.
    Name,
}

impl fmt::Display for InvalidGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InvalidGroups::Ends => "grouped_mm: offsets must be ascending and within the rows",
            InvalidGroups::Name => "index out of range",
        })
    }
}

impl std::error::Error for InvalidGroups {}

/// A plan that computes a [`Grouped`].
pub trait GroupedPlan: Send + Sync {
    /// Computes C.
    ///
    /// # Safety
    /// Every operand that is read is valid for the descriptor's extents and aligned to its dtype; C is writable and
    /// overlaps no other operand.
    unsafe fn run(&self, pool: &Pool, args: &GroupedArgs) -> Result<(), InvalidGroups>;
    /// A description of the method, for reports.
    fn describe(&self) -> String;
}
