//! Contractions: sums of products, which have kernels of their own.

use crate::types::TensorType;

/// A contraction, computed by `math::contract`.
#[derive(Clone, Debug, PartialEq)]
pub enum Contraction {
    /// A product of matrices.
    MatMul(MatrixProduct),
    /// A convolution.
    Conv(Convolution),
}

/// `out[…, m, n] = beta * bias + alpha * Σ_k a[…, m, k] * b[…, k, n]` with broadcast batch dims. Both operands have
/// rank 2 or more; products of vectors are decomposed.
#[derive(Clone, Debug, PartialEq)]
pub struct MatrixProduct {
    /// Parameter of the left operand, `[…, M, K]` (or `[…, K, M]` if `a_transposed`).
    pub a: usize,
    /// Parameter of the right operand, `[…, K, N]` (or `[…, N, K]` if `b_transposed`).
    pub b: usize,
    /// Parameter of the addend, broadcast over the result.
    pub bias: Option<usize>,
    /// Whether the left operand's last two dims are swapped.
    pub a_transposed: bool,
    /// Whether the right operand's last two dims are swapped.
    pub b_transposed: bool,
    /// Factor of the product.
    pub alpha: f64,
    /// Factor of the addend; a factor of 0 ignores NaN in it.
    pub beta: f64,
    /// The result's type.
    pub out: TensorType,
}

/// A convolution over 1 to 3 spatial dims.
#[derive(Clone, Debug, PartialEq)]
pub struct Convolution {
    /// Parameter of the input, `[N, C, …]`.
    pub input: usize,
    /// Parameter of the weight, `[O, C / groups, …]`, or `[C, O / groups, …]` if transposed.
    pub weight: usize,
    /// Parameter of the bias, `[O]`.
    pub bias: Option<usize>,
    /// Per spatial dim.
    pub stride: Vec<usize>,
    /// Per spatial dim, on both sides; not negative.
    pub padding: Vec<usize>,
    /// Per spatial dim.
    pub dilation: Vec<usize>,
    /// Whether the convolution is transposed.
    pub transposed: bool,
    /// Per spatial dim; for transposed convolutions only.
    pub output_padding: Vec<usize>,
    /// Number of groups.
    pub groups: usize,
    /// The result's type.
    pub out: TensorType,
}

impl Contraction {
    /// The result's type.
    pub fn out(&self) -> &TensorType {
        match self {
            Contraction::MatMul(p) => &p.out,
            Contraction::Conv(c) => &c.out,
        }
    }

    /// The parameters that are operands: both factors, then the addend, if any.
    pub fn operands_mut(&mut self) -> impl Iterator<Item = &mut usize> {
        let (factors, addend) = match self {
            Contraction::MatMul(p) => ([&mut p.a, &mut p.b], p.bias.as_mut()),
            Contraction::Conv(c) => ([&mut c.input, &mut c.weight], c.bias.as_mut()),
        };
        factors.into_iter().chain(addend)
    }
}
