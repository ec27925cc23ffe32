//! The choice of how to compute a product with B in memory.

use super::LaneElement;
use super::blocks::{Product, SMALL, StridedColumns};
use crate::target::Isa;

/// The maximum number of rows that multiply B where it is.
const FEW_ROWS: usize = 8;
/// The maximum number of columns that are multiplied as dot products with any number of rows: a panel would be mostly empty.
const FEW_COLUMNS: usize = 4;

/// How a product with B in memory is computed, whose elements are their own lanes. The order of sums of f64 depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::math) enum ProductMethod {
    /// Dot products of rows of A and columns of B, both contiguous along the product index.
    Dots,
    /// Sums of rows of B, which are contiguous.
    Sums,
    /// Tiles that read rows of B, which are contiguous, where they are.
    InPlace,
    /// Tiles that read packed panels of B.
    Packed,
}

impl ProductMethod {
    /// The fastest method for a product, or for the transposed one if that is what [`multiply_by`](super::multiply_by) computes. No
    /// element is read.
    pub(in crate::math) fn for_product<T: LaneElement>(
        isa: Isa,
        p: &Product<T>,
        b: &StridedColumns<T>,
    ) -> ProductMethod {
        let (p, b) = p.transposed(b).unwrap_or((*p, *b));
        let ([m, n, k], a_k, [b_k, b_col]) = ([p.m, p.n, p.k], p.a_strides[1], b.strides);
        let few = m <= FEW_ROWS;
        let small = k.saturating_mul(n).saturating_mul(size_of::<T>()) <= SMALL;
        let contiguous = |stride: usize| stride == 1 || k <= 1;
        let columns = contiguous(b_k) && (n == 1 || b_col != 1);
        let lanes = T::kernels(isa).lanes;
        if columns && contiguous(a_k) && (few || n <= FEW_COLUMNS && k >= lanes) {
            return ProductMethod::Dots;
        }
        match b_col == 1 || n == 1 {
            true if m <= 4 && n > 2 * lanes => ProductMethod::Sums,
            true if few || small => ProductMethod::InPlace,
            _ => ProductMethod::Packed,
        }
    }
}
