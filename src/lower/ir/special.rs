//! Operations of the tensor IR with kernels of their own.

use crate::math::contract::{Grouping, RecurrentCell};
use crate::types::DType;

/// Computations that have loop nests of their own.
#[derive(Clone, Debug, PartialEq)]
pub enum Special {
    /// `args` concatenated along a dim.
    Concat {
        /// The dim.
        dim: usize,
    },
    /// Gathers the rows of the table `args[0]` that the integers `args[1]` name, along table dim 0: `out[i…, d…] =
    /// table[ids[i…], d…]`.
    Rows {
        /// Whether negative rows count from the end.
        wrap: bool,
    },
    /// `torch.gather` of few elements: `args[0]` at the indices `args[1]` along a dim.
    Gather {
        /// The dim.
        dim: usize,
    },
    /// `args[0]` with a border of `value`: `before[d]` elements in front along dim `d`.
    Pad {
        /// Elements in front, per dim. A negative number crops.
        before: Vec<i64>,
        /// The border's value.
        value: crate::tensor::Scalar,
    },
    /// Maximum over windows of `args[0]`.
    MaxPool(SpatialWindow),
    /// Mean over windows of `args[0]`.
    AvgPool {
        /// The windows.
        window: SpatialWindow,
        /// Whether the border counts as elements.
        count_include_pad: bool,
        /// The divisor to use instead of the count.
        divisor: Option<i64>,
    },
    /// Running sums or products along a dim.
    Scan {
        /// The dim.
        dim: usize,
        /// Sum or product.
        op: ScanOp,
    },
    /// A recurrent layer over projected inputs, states, recurrent weight, the output's projection and bias. It is a
    /// contraction rather than a kernel.
    Recurrent {
        /// The cell, which determines what a step computes.
        cell: RecurrentCell,
        /// Whether the steps run from last to first.
        reverse: bool,
        /// Whether the output is projected.
        projected: bool,
        /// Whether weights and states are numbers of bf16, as f32.
        in_bf16: bool,
    },
    /// Products of groups of rows, each with its own matrix, over the rows, the matrices and the integers that tell the groups. It is a
    /// contraction rather than a kernel.
    Grouped(Groups),
    /// Attention over q, k, v (of rank 4) and the addends of the scores. It is a contraction rather than a kernel.
    Attention(Attend),
}

/// The operation of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanOp {
    /// The sum so far.
    Sum,
    /// The product so far.
    Product,
}

/// The parameters of an attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attend {
    /// The dtypes of the mask and of a bias that is added before it. Each that is present is an operand after v.
    pub masks: [Option<DType>; 2],
    /// Whether a query sees only the keys up to its own position.
    pub causal: bool,
    /// Factor of the scores.
    pub scale: f64,
    /// Whether a row whose keys are all masked yields zeros rather than NaN.
    pub safe: bool,
    /// Whether the result is `[batch, rows, heads, size]` rather than `[batch, heads, rows, size]`.
    pub rows_first: bool,
}

/// The parameters of products of groups of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// The dtype of the integers that tell the groups.
    pub integers: DType,
    /// How they tell them.
    pub grouping: Grouping,
    /// Whether the rows of the matrices are the columns of the products.
    pub transposed: bool,
}

/// Windows over consecutive dims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpatialWindow {
    /// The first of these dims.
    pub first: usize,
    /// Size per dim.
    pub kernel: Vec<usize>,
    /// Step per dim.
    pub stride: Vec<usize>,
    /// Border per dim.
    pub padding: Vec<usize>,
    /// Distance between elements per dim.
    pub dilation: Vec<usize>,
}
