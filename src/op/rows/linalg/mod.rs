//! Linear algebra: factorisations, solutions of equations, inverses, determinants, eigenvalues and singular values.
//!
//! The rows are here with their types, torch's requirements and torch's errors. The algorithms are the stage [`linalg`](crate::linalg).

mod cholesky;
pub(super) mod composites;
mod errors;
mod factors;
mod norms;
pub(super) mod results;
mod solutions;
mod spectra;

use self::cholesky::{cholesky_rows, cholesky_solution_rows};
use self::errors::{check_finite, checked_inverse};
use self::results::tensor_from_numbers;
use self::solutions::{determinant, inverse, slogdet, solve, solve_triangular};
use crate::diag::Code;
use crate::linalg::batch::Matrices;
use crate::linalg::svd;
use crate::op::pointwise::not_implemented;
use crate::op::rows::spell::list_text;
use crate::op::{Call, Meaning, Op, OpBuilder, OpError, OpId, OpResult, Sizes};
use crate::tensor::Tensor;
use crate::types::{DType, Dim, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    [
        inverse_rows(),
        determinant_rows(),
        cholesky_rows(),
        cholesky_solution_rows(),
        singular_value_rows(),
        factors::rows(),
        spectra::rows(),
        norms::rows(),
        composites::rows(),
        errors::rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn inverse_rows() -> Vec<Op> {
    vec![
        Op::new("linalg_inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor, Tensor)",
            |c, _| with_info(c),
            Meaning::Routine(inverse),
        )
        .doc("the inverse, and 0 or the index of the zero pivot")
        .spelled("aten.@ torch.linalg.inv_ex"),
        Op::composite("linalg_inv(Tensor A) -> Tensor", |b, c| {
            checked_inverse(b, "linalg.inv", c.leaf("A")?).map(Val::Leaf)
        })
        .doc("the inverse")
        .spelled("aten.@ aten.inverse.default torch.linalg.inv torch.inverse Tensor.inverse"),
        Op::new("linalg_solve(Tensor A, Tensor B, *, bool left=True) -> Tensor",
            solve_type,
            Meaning::Routine(solve),
        )
        .doc("the solution X of A X = B or X A = B")
        .spelled("aten.@ torch.linalg.solve"),
        Op::new("linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False) -> Tensor",
            triangular_type,
            Meaning::Routine(solve_triangular),
        )
        .doc("the solution X of A X = B or X A = B for triangular A")
        .spelled("aten.@ torch.linalg.solve_triangular"),
    ]
}

fn determinant_rows() -> Vec<Op> {
    vec![
        Op::new(
            "linalg_det(Tensor A) -> Tensor",
            scalar_type,
            Meaning::Routine(determinant),
        )
        .doc("the determinant")
        .spelled("aten.@ aten.det.default torch.linalg.det torch.det Tensor.det"),
        Op::new(
            "linalg_slogdet(Tensor A) -> (Tensor, Tensor)",
            |c, s| scalar_type(c, s).map(|t| Val::Tuple(vec![t.clone(), t])),
            Meaning::Routine(slogdet),
        )
        .doc("the determinant's sign and the logarithm of its magnitude")
        .spelled("aten.@ aten.slogdet.default torch.linalg.slogdet torch.slogdet Tensor.slogdet"),
        Op::composite("logdet(Tensor A) -> Tensor", |b, c| {
            let v = b.call_many(OpId::LinalgSlogdet, [c.get("A").clone()])?;
            let negative = b.lt(&v[0], Val::int(0))?;
            b.r#where(negative, Val::Float(f64::NAN), &v[1]).map(Val::Leaf)
        })
        .doc("the logarithm of the determinant")
        .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

fn singular_value_rows() -> Vec<Op> {
    vec![
        Op::new(
            "linalg_svdvals(Tensor A, *, str? driver=None) -> Tensor",
            singular_type,
            Meaning::Routine(singular_values),
        )
        .doc("the singular values in descending order")
        .spelled("aten.@ torch.linalg.svdvals"),
    ]
}

// --- types ---------------------------------------------------------------------------------------------------------

/// The dtype and shape of a batch of matrices.
pub(in crate::op::rows) fn want_matrices<'a>(c: &'a Call<TensorType>, name: &str) -> OpResult<(DType, &'a [Dim])> {
    let (d, shape) = c.shaped(name)?;
    let what = c.op.name.replacen("linalg_", "linalg.", 1);
    if shape.len() < 2 {
        return Err(OpError::shape(format!(
            "{what}: The input tensor {name} must have at least 2 dimensions."
        )));
    }
    if !matches!(d, DType::F32 | DType::F64) {
        return Err(not_implemented(c.op.name, d));
    }
    Ok((d, shape))
}

pub(in crate::op::rows) fn want_square<'a>(c: &'a Call<TensorType>, name: &str) -> OpResult<(DType, &'a [Dim])> {
    let (d, shape) = want_matrices(c, name)?;
    let [.., m, n] = shape else {
        unreachable!("a matrix has two dims")
    };
    if m.sub(n).as_const().is_some_and(|d| d != 0) {
        return Err(OpError::shape(format!(
            "{}: A must be batches of square matrices, but they are {m} by {n} matrices",
            c.op.name.replacen("linalg_", "linalg.", 1)
        )));
    }
    Ok((d, shape))
}

fn operand_name(c: &Call<TensorType>) -> &'static str {
    if c.op.schema.index_of("A").is_some() {
        "A"
    } else {
        "self"
    }
}

fn with_info(c: &Call<TensorType>) -> OpResult<Type> {
    let (d, shape) = want_square(c, operand_name(c))?;
    let info = TensorType::new(DType::I32, shape[..shape.len() - 2].to_vec());
    let out = TensorType::new(d, shape.to_vec());
    Ok(Val::Tuple(vec![Val::Leaf(out), Val::Leaf(info)]))
}

fn scalar_type(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<Type> {
    let (d, shape) = want_square(c, "A")?;
    Ok(Val::Leaf(TensorType::new(d, shape[..shape.len() - 2].to_vec())))
}

fn singular_type(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<Type> {
    let (d, shape) = want_matrices(c, "A")?;
    let [lead @ .., m, n] = shape else {
        unreachable!("a matrix has two dims")
    };
    let least = match (m.as_const(), n.as_const()) {
        (Some(m), Some(n)) => Dim::Const(m.min(n)),
        _ if m == n => m.clone(),
        _ => Dim::Unknown,
    };
    Ok(Val::Leaf(TensorType::new(d, [lead, &[least]].concat())))
}

/// Whether `B` is a batch of vectors, which only `linalg_solve` accepts. E0304 if that depends on sizes that are not known: then neither
/// reading may decide what they are.
pub(in crate::op::rows) fn is_vectors(a: &[Dim], b: &[Dim], left: bool) -> OpResult<bool> {
    if b.len() == 1 || b.len() + 1 != a.len() {
        return Ok(b.len() == 1);
    }
    let fits_matrices = b[b.len() - if left { 2 } else { 1 }] == a[a.len() - 1];
    let differ = |(x, y): (&Dim, &Dim)| x.sub(y).as_const().is_some_and(|d| d != 0);
    match *b == a[..a.len() - 1] {
        false if !fits_matrices && !b.iter().zip(a).any(differ) => {
            let (a, b) = (list_text(a), list_text(b));
            let title = format!("linalg.solve: the sizes of A, {a}, do not say whether B, {b}, is a batch of vectors");
            Err(OpError::new(Code::E0304, title))
        }
        known => Ok(known),
    }
}

fn solve_type(c: &Call<TensorType>, sizes: &mut Sizes) -> OpResult<Type> {
    let (d, a) = want_square(c, "A")?;
    let (bd, b) = c.shaped("B")?;
    if bd != d {
        return Err(OpError::dtype("linalg.solve: Expected A and B to have the same dtype"));
    }
    if is_vectors(a, b, c.bool("left")?)? {
        let n = &a[a.len() - 1];
        if !c.bool("left")? && n.as_const().is_some_and(|n| n != 1) {
            let title =
                format!("linalg.solve: Incompatible shapes of A and B for the equation XA = B ({n}x{n} and {n}x1)");
            return Err(OpError::shape(title));
        }
        let lead = sizes.broadcast(&a[..a.len() - 2], &b[..b.len() - 1])?;
        let n = sizes.unify_dims(&a[a.len() - 1], &b[b.len() - 1], || {
            "linalg.solve: Incompatible shapes of A and B".into()
        })?;
        return Ok(Val::Leaf(TensorType::new(d, [lead, vec![n]].concat())));
    }
    solution_type(c, sizes, d, a, b)
}

fn triangular_type(c: &Call<TensorType>, sizes: &mut Sizes) -> OpResult<Type> {
    let (d, a) = want_square(c, "self")?;
    // torch converts `B` to the dtype of `self`.
    let (_, b) = c.shaped("B")?;
    solution_type(c, sizes, d, a, b)
}

/// The type of `X`: the broadcast batch dims, followed by the last two dims of `B`.
pub(in crate::op::rows) fn solution_type(
    c: &Call<TensorType>,
    sizes: &mut Sizes,
    d: DType,
    a: &[Dim],
    b: &[Dim],
) -> OpResult<Type> {
    side_solution_type(sizes, d, a, b, c.bool("left")?)
}

/// [`solution_type`] for equations from the left.
fn left_solution_type(sizes: &mut Sizes, d: DType, a: &[Dim], b: &[Dim]) -> OpResult<Type> {
    side_solution_type(sizes, d, a, b, true)
}

fn side_solution_type(sizes: &mut Sizes, d: DType, a: &[Dim], b: &[Dim], left: bool) -> OpResult<Type> {
    if b.len() < 2 {
        return Err(OpError::shape("B must have at least 2 dimensions"));
    }
    let (lead_a, lead_b) = (&a[..a.len() - 2], &b[..b.len() - 2]);
    let lead = sizes.broadcast(lead_a, lead_b)?;
    let side = if left { b.len() - 2 } else { b.len() - 1 };
    let what = || "Incompatible shapes of A and B for the equation AX = B".to_string();
    sizes.unify_dims(&a[a.len() - 1], &b[side], what)?;
    Ok(Val::Leaf(TensorType::new(d, [&lead[..], &b[b.len() - 2..]].concat())))
}

// --- values --------------------------------------------------------------------------------------------------------

fn singular_values(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let a = c.leaf("A")?;
    let [lead @ .., m, n] = a.shape() else {
        return Err(OpError::shape("singular values require a matrix"));
    };
    let shape = [lead, &[*m.min(n)]].concat();
    let matrices = Matrices::of(a);
    check_finite("linalg.svd", &matrices, a)?;
    tensor_from_numbers(a.dtype(), &shape, svd::singular_values(&matrices)).map(Val::Leaf)
}
