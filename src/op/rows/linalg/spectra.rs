//! Rows of eigenvalues and singular values, and ops based on them: pseudo-inverses, ranks, least squares, roots.

mod least_squares;

use self::least_squares::{lstsq, lstsq_type};
use super::errors::{check_codes, check_finite};
use super::factors::with_least;
use super::results::{pack_results, tensor_from_numbers, tensor_from_results};
use super::{want_matrices, want_square};
use crate::linalg::batch::Matrices;
use crate::linalg::eigen;
use crate::linalg::exponential::exponentials;
use crate::linalg::svd::singular_vectors;
use crate::op::{Build, Call, Meaning, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::tensor::Tensor;
use crate::types::{Dim, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    [
        eigen_rows(),
        symmetric_rows(),
        singular_rows(),
        polar_rows(),
        matrix_function_rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn eigen_rows() -> Vec<Op> {
    vec![
        Op::new(
            "linalg_eigh(Tensor self, str UPLO='L') -> (Tensor, Tensor)",
            |c, _| {
                let (d, shape) = want_square(c, "self")?;
                let values = TensorType::new(d, shape[..shape.len() - 1].to_vec());
                Ok(Val::Tuple(vec![
                    Val::Leaf(values),
                    Val::Leaf(TensorType::new(d, shape.to_vec())),
                ]))
            },
            Meaning::Routine(eigh),
        )
        .doc("the eigenvalues of symmetric matrices in ascending order, and eigenvectors as columns")
        .spelled("aten.@ torch.linalg.eigh"),
        Op::new(
            "linalg_eigvalsh(Tensor self, str UPLO='L') -> Tensor",
            |c, _| {
                let (d, shape) = want_square(c, "self")?;
                Ok(Val::Leaf(TensorType::new(d, shape[..shape.len() - 1].to_vec())))
            },
            Meaning::Routine(eigvalsh),
        )
        .doc("the eigenvalues of symmetric matrices in ascending order")
        .spelled("aten.@ torch.linalg.eigvalsh"),
    ]
}

/// Functions of symmetric matrices by their eigenvectors.
fn symmetric_rows() -> Vec<Op> {
    vec![
        Op::composite(
            "_linalg_eigh(Tensor A, str UPLO='L', bool compute_v=True) -> (Tensor, Tensor)",
            |b, c| {
                if c.bool("compute_v")? {
                    return b.call(OpId::LinalgEigh, c.args[..2].to_vec());
                }
                let values = b.op(OpId::LinalgEigvalsh, c.args[..2].to_vec())?;
                let none = b.full(&[Dim::Const(0)], Val::int(0), values.dtype())?;
                Ok(Val::Tuple(vec![values.into(), none.into()]))
            },
        )
        .doc("the eigenvalues of symmetric matrices, and the eigenvectors on request")
        .spelled("aten.@"),
        Op::composite("linalg_matrix_sqrth(Tensor self) -> Tensor", |b, c| {
            let v = b.call_many(OpId::LinalgEigh, [c.get("self").clone()])?;
            let roots = b.op(OpId::Clamp, [(&v[0]).into(), Val::int(0)])?;
            let roots = b.sqrt(&roots)?;
            scaled_product(b, &v[1], &roots, &v[1]).map(Val::Leaf)
        })
        .doc("the square root of positive definite matrices; negative eigenvalues are treated as 0")
        .spelled("aten.@ torch.linalg.matrix_sqrth"),
    ]
}

fn singular_rows() -> Vec<Op> {
    vec![
        Op::new("linalg_svd(Tensor A, bool full_matrices=True, *, str? driver=None) -> (Tensor, Tensor, Tensor)",
            |c, _| svd_type(c),
            Meaning::Routine(svd),
        )
        .doc("U, the singular values in descending order, and V^T, with A = U S V^T")
        .spelled("aten.@ torch.linalg.svd"),
        Op::composite("_linalg_svd(Tensor A, bool full_matrices=False, bool compute_uv=True, *, str? driver=None) -> (Tensor, Tensor, Tensor)",
            |b, c| {
                if c.bool("compute_uv")? {
                    return b.call(OpId::LinalgSvd, vec![c.get("A").clone(), c.get("full_matrices").clone()]);
                }
                let s = b.linalg_svdvals(c.get("A").clone())?;
                let none = b.full(&[Dim::Const(0)], Val::int(0), s.dtype())?;
                Ok(Val::Tuple(vec![(&none).into(), s.into(), none.into()]))
            },
        )
        .doc("the singular values, and the singular vectors on request")
        .spelled("aten.@"),
        Op::composite("svd(Tensor self, bool some=True, bool compute_uv=True) -> (Tensor, Tensor, Tensor)",
            old_svd,
        )
        .doc("U, the singular values and V; U and V are zeros unless requested")
        .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

fn polar_rows() -> Vec<Op> {
    vec![
        Op::composite("linalg_polar(Tensor A) -> (Tensor, Tensor)", |b, c| {
            let a = c.leaf("A")?;
            if let [.., m, n] = a.shape()?
                && m.sub(n).as_const().is_some_and(|d| d < 0)
            {
                return Err(OpError::shape(format!(
                    "linalg.polar: input must have at least as many rows as columns, but got {m} by {n} matrices"
                )));
            }
            let v = b.call_many(OpId::LinalgSvd, [a.into(), Val::Bool(false)])?;
            let right = b.transpose(&v[2], v[2].rank()? - 2, v[2].rank()? - 1)?;
            let unitary = b.matmul(&v[0], &v[2])?;
            let rest = scaled_product(b, &right, &v[1], &right)?;
            Ok(Val::Tuple(vec![unitary.into(), rest.into()]))
        })
        .doc("the polar decomposition of A: a matrix with orthonormal columns and a positive semidefinite matrix")
        .spelled("aten.@ torch.linalg.polar"),
    ]
}

fn matrix_function_rows() -> Vec<Op> {
    vec![
        Op::new("linalg_matrix_exp(Tensor self) -> Tensor",
            |c, _| exponential_type(c),
            Meaning::Routine(|c| {
                let x = c.leaf("self")?;
                tensor_from_results(x.dtype(), x.shape(), exponentials(x)).map(Val::Leaf)
            }),
        )
        .doc("the exponential of square matrices")
        .spelled(
            "aten.linalg_matrix_exp.default aten.matrix_exp.default torch.matrix_exp torch.linalg.matrix_exp \
             Tensor.matrix_exp",
        ),
        Op::new("linalg_lstsq(Tensor self, Tensor b, float? rcond=None, *, str? driver=None) -> (Tensor, Tensor, Tensor, Tensor)",
            lstsq_type,
            Meaning::Routine(lstsq),
        )
        .doc("the least-squares solution X of A X = B of minimum norm, the squared residuals, ranks and singular values")
        .spelled("aten.@ torch.linalg.lstsq"),
    ]
}

// --- types ---------------------------------------------------------------------------------------------------------

fn svd_type(c: &Call<TensorType>) -> OpResult<Type> {
    let (d, shape) = want_matrices(c, "A")?;
    if !c.is_none("driver") {
        return Err(OpError::arg(
            "driver",
            "torch.linalg.svd: keyword argument `driver=` is only supported on CUDA inputs",
        ));
    }
    let values = with_least(shape)?;
    let (lead, [m, n]) = shape.split_at(shape.len() - 2) else {
        return Err(OpError::shape("a matrix has two dims"));
    };
    let k = values.last().cloned().unwrap_or(Dim::Unknown);
    let (left, right) = if c.bool("full_matrices")? {
        (m.clone(), n.clone())
    } else {
        (k.clone(), k)
    };
    let matrix = |r: Dim, c: Dim| Val::Leaf(TensorType::new(d, [lead, &[r, c]].concat()));
    let s = Val::Leaf(TensorType::new(d, values));
    Ok(Val::Tuple(vec![matrix(m.clone(), left), s, matrix(right, n.clone())]))
}

/// Half-precision inputs are computed in f32.
fn exponential_type(c: &Call<TensorType>) -> OpResult<Type> {
    let d = c.leaf("self")?.dtype;
    let mut wide = c.clone();
    if let Some(Val::Leaf(t)) = wide.args.first_mut() {
        t.dtype = if d.is_float() { d.compute_dtype() } else { d };
    }
    let (_, shape) = want_square(&wide, "self")?;
    Ok(Val::Leaf(TensorType::new(d, shape.to_vec())))
}

/// Whether `b` is a vector, or a batch of vectors.
fn is_vector(a: &[Dim], b: &[Dim]) -> bool {
    b.len() + 1 == a.len() && b.iter().zip(a).all(|(x, y)| x == y)
}

// --- values --------------------------------------------------------------------------------------------------------

/// Whether the lower triangle of symmetric matrices counts.
fn is_lower(c: &Call<Tensor>) -> OpResult<bool> {
    match c.str("UPLO")? {
        "L" | "l" => Ok(true),
        "U" | "u" => Ok(false),
        other => {
            let title = format!("Expected UPLO argument to be 'L' or 'U', but got {other}");
            Err(OpError::arg("UPLO", title))
        }
    }
}

/// The error for the symmetric matrix `i` of `n` columns, which has elements that are not finite.
fn check_symmetric(c: &Call<Tensor>, n: usize, i: usize) -> OpResult<()> {
    // LAPACK returns the number of off-diagonal elements that did not converge to 0. Small matrices are solved by formulas.
    let code = if n > 2 { n as i64 - 1 } else { 0 };
    let is_matrix = c.leaf("self")?.rank() == 2;
    check_codes("linalg.eigh", std::iter::repeat_n(0, i).chain([code]), is_matrix)
}

fn eigh(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (all, lower) = (Matrices::of(c.leaf("self")?), is_lower(c)?);
    let (values, vectors) = eigen::eigenvectors(&all, lower, &|i| check_symmetric(c, all.rows, i))?;
    pack_results(c, vec![values.into(), vectors])
}

fn eigvalsh(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (x, lower) = (c.leaf("self")?, is_lower(c)?);
    let all = Matrices::of(x);
    let values = eigen::eigenvalues(&all, lower, &|i| check_symmetric(c, all.rows, i))?;
    tensor_from_numbers(x.dtype(), &x.shape()[..x.rank() - 1], values).map(Val::Leaf)
}

fn svd(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (a, full) = (c.leaf("A")?, c.bool("full_matrices")?);
    let all = Matrices::of(a);
    check_finite("linalg.svd", &all, a)?;
    let (left, values, right) = singular_vectors(&all, full);
    pack_results(c, vec![left, values.into(), right])
}

/// `left diag(scale) right^T`.
pub(in crate::op::rows) fn scaled_product(
    b: &mut dyn Build,
    left: &Traced,
    scale: &Traced,
    right: &Traced,
) -> OpResult<Traced> {
    let rank = left.rank()?;
    let row = b.unsqueeze(scale, rank - 2)?;
    let scaled = b.mul(left, &row)?;
    let right = b.transpose(right, rank - 2, rank - 1)?;
    b.matmul(&scaled, &right)
}

fn old_svd(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("self")?;
    let rank = x.rank()?;
    let [lead @ .., m, n] = x.shape()? else {
        return Err(OpError::shape(
            "linalg.svd: The input tensor must have at least 2 dimensions.",
        ));
    };
    if c.bool("compute_uv")? {
        let v = b.call_many(OpId::LinalgSvd, [x.into(), Val::Bool(!c.bool("some")?)])?;
        let right = b.transpose(&v[2], rank - 2, rank - 1)?;
        return Ok(Val::Tuple(vec![(&v[0]).into(), (&v[1]).into(), right.into()]));
    }
    let s = b.linalg_svdvals(x)?;
    let u = b.full(&[lead, &[m.clone(), m.clone()]].concat(), Val::int(0), x.dtype())?;
    let v = b.full(&[lead, &[n.clone(), n.clone()]].concat(), Val::int(0), x.dtype())?;
    Ok(Val::Tuple(vec![u.into(), s.into(), v.into()]))
}

fn dims_of(t: &Tensor) -> Vec<Dim> {
    t.shape().iter().map(|&n| Dim::from(n)).collect()
}
