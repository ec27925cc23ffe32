//! Dense linear algebra: factorisations, solutions, eigenvalues and singular values of real matrices.
//!
//! This stage knows matrices and slices, and nothing of ops: [`op`](crate::op) checks arguments and words errors. Conventions for pivots,
//! signs and storage are LAPACK's, because PyTorch returns what LAPACK returns.
//!
//! # Parts
//!
//! | part | algorithm | LAPACK |
//! |---|---|---|
//! | [`lu`] | row pivoting, in blocks; inverses and determinants | `getrf`, `getrs`, `getri` |
//! | [`cholesky`] | in blocks of columns | `potrf` |
//! | [`ldl`] | Bunch and Kaufman (1977) | `sytf2`, `sytrs` |
//! | [`qr`] | Householder reflections in blocks (Schreiber and Van Loan 1989) | `geqrf`, `ormqr` |
//! | [`triangles`] | substitution; blocks for many right-hand sides | `trtrs` |
//! | [`equations`] | pairs of matrices of broadcast batches, solved by the above | `gesv`, `potrs` |
//! | [`eigen`] | reduction to a tridiagonal matrix; root-free QL for values; QL or divide and conquer for vectors | `sytrd`, `sterf`, `steqr`, `stedc` |
//! | [`svd`] | reduction to a bidiagonal matrix and implicit QR; Jacobi rotations for small matrices; least squares | `gebrd`, `bdsqr`, `gesvj`, `gelss` |
//! | [`exponential`] | scaling and squaring, a Taylor polynomial of degree 16 | |
//! | [`lanes`] | most of the above for batches of small matrices, one matrix per vector lane | |
//!
//! [`threads`] shares out work. [`vectors`], [`householder`], [`rotations`] and [`scale`] are what they share, [`matrix`] is a single matrix, [`batch`] reads matrices
//! from tensors, and [`real`] is the number type.
//!
//! # Which algorithm serves which shapes
//!
//! * **Batches of small matrices** (at least 4, of up to 24 rows and columns) are computed side by side in [`lanes`]. A single small matrix
//!   has no loop that is long enough for vectors. Eigenvalues, eigenvectors of symmetric matrices and singular values without vectors are
//!   computed so up to 64 rows, because loops over the diagonals of a single matrix wait for square roots and divisions.
//! * **Larger matrices** are computed one after the other. Factorisations proceed in blocks, so that most of the work is matrix products
//!   ([`add_product`](crate::tensor::add_product)).
//! * **Numbers**: matrices of f32 with more than 24 rows or columns are computed in f32, as LAPACK does, and all others in f64. Small
//!   matrices take no longer in f64. What takes little time, such as the factors of rotations, is computed in f64 for both.
//!
//! * **Threads** take matrices of a batch. A single large matrix is divided into parts of rows or columns of what is computed: for matrix
//!   products, and for loops whose columns or rows do not depend on each other.
//!
//! Results do not depend on the number of threads. Sums are divided into partial sums in a fixed order, and the loops of this stage never
//! fuse multiplications and additions, so they do not depend on the processor's vectors either.

mod bands;
pub(crate) mod batch;
mod blocks;
pub(crate) mod cholesky;
pub(crate) mod eigen;
pub(crate) mod equations;
pub(crate) mod exponential;
mod householder;
mod lanes;
pub(crate) mod ldl;
pub(crate) mod lu;
mod matrix;
pub(crate) mod qr;
pub(crate) mod real;
mod rotations;
mod scale;
pub(crate) mod svd;
#[cfg(test)]
mod testing;
mod threads;
mod triangles;
mod vectors;

/// The number of f64 in the widest vectors. Inner products have this many partial sums, and this many small matrices are computed side by
/// side.
const LANES: usize = 8;
