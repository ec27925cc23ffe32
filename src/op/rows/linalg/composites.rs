//! Composite rows of linear algebra: pseudo-inverses, ranks, condition numbers, tensor equations.

mod old_forms;

use self::old_forms::{determinant_rows, nuclear_norm_rows, triangular_solve_rows};
use super::errors::checked_inverse;
use super::spectra::scaled_product;
use crate::op::emit::ints_val;
use crate::op::{Build, Call, Op, OpBuilder, OpError, OpId, OpResult, Traced, wrap_dim};
use crate::types::{DType, Dim, Val};

pub(crate) fn rows() -> Vec<Op> {
    [
        pseudo_inverses(),
        rank_rows(),
        tensor_inverse_rows(),
        triangular_solve_rows(),
        determinant_rows(),
        nuclear_norm_rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn pseudo_inverses() -> Vec<Op> {
    vec![
        Op::composite(
            "linalg_pinv(Tensor self, *, Any atol=None, Any rtol=None, bool hermitian=False) -> Tensor",
            |b, c| pinv(b, c, c.get("atol"), c.get("rtol")),
        )
        .doc("the pseudo-inverse; singular values up to max(atol, rtol * the largest) are treated as 0")
        .form(
            "aten.linalg_pinv.atol_rtol_tensor torch.linalg.pinv",
            "linalg_pinv(Tensor self, *, Tensor? atol=None, Tensor? rtol=None, bool hermitian=False) -> Tensor",
        )
        .form(
            "aten.linalg_pinv.atol_rtol_float torch.linalg.pinv",
            "linalg_pinv(Tensor self, *, float? atol=None, float? rtol=None, bool hermitian=False) -> Tensor",
        ),
        Op::composite(
            "linalg_pinv_rcond(Tensor self, Any rcond=1e-15, bool hermitian=False) -> Tensor",
            |b, c| pinv(b, c, &Val::Float(0.0), c.get("rcond")),
        )
        .doc("the pseudo-inverse; singular values up to rcond * the largest are treated as 0")
        .form(
            "aten.linalg_pinv.default torch.linalg.pinv",
            "linalg_pinv(Tensor self, float rcond, bool hermitian=False) -> Tensor",
        )
        .form(
            "aten.linalg_pinv.rcond_tensor torch.linalg.pinv",
            "linalg_pinv(Tensor self, Tensor rcond, bool hermitian=False) -> Tensor",
        )
        .form(
            "aten.pinverse.default torch.pinverse Tensor.pinverse",
            "pinverse(Tensor self, float rcond=1e-15) -> Tensor",
        ),
    ]
}

fn rank_rows() -> Vec<Op> {
    vec![
        Op::composite(
            "linalg_matrix_rank(Tensor input, *, Any atol=None, Any rtol=None, bool hermitian=False) -> Tensor",
            |b, c| matrix_rank(b, c, c.get("atol"), c.get("rtol")),
        )
        .doc("the number of singular values above max(atol, rtol * the largest)")
        .form(
            "aten.linalg_matrix_rank.atol_rtol_tensor torch.linalg.matrix_rank",
            "linalg_matrix_rank(Tensor input, *, Tensor? atol=None, Tensor? rtol=None, bool hermitian=False) -> Tensor",
        )
        .form(
            "aten.linalg_matrix_rank.atol_rtol_float torch.linalg.matrix_rank",
            "linalg_matrix_rank(Tensor input, *, float? atol=None, float? rtol=None, bool hermitian=False) -> Tensor",
        ),
        Op::composite(
            "linalg_matrix_rank_above(Tensor input, Any tol, bool hermitian=False) -> Tensor",
            |b, c| matrix_rank(b, c, c.get("tol"), &Val::Float(0.0)),
        )
        .doc("the number of singular values above tol")
        .form(
            "aten.linalg_matrix_rank.default torch.linalg.matrix_rank",
            "linalg_matrix_rank(Tensor input, float tol, bool hermitian=False) -> Tensor",
        )
        .form(
            "aten.linalg_matrix_rank.tol_tensor torch.linalg.matrix_rank",
            "linalg_matrix_rank(Tensor input, Tensor tol, bool hermitian=False) -> Tensor",
        ),
        Op::composite("linalg_cond(Tensor self, Any p=None) -> Tensor", cond)
            .doc("the condition number: the norm of a matrix times that of its inverse")
            .spelled("torch.linalg.cond")
            .form(
                "aten.linalg_cond.default",
                "linalg_cond(Tensor self, Scalar? p=None) -> Tensor",
            )
            .form("aten.linalg_cond.p_str", "linalg_cond(Tensor self, str p) -> Tensor"),
    ]
}

fn tensor_inverse_rows() -> Vec<Op> {
    vec![
        Op::composite("linalg_tensorinv(Tensor self, int ind=2) -> Tensor", tensorinv)
            .doc("the inverse of a tensor as a map from its last dims to its first `ind`")
            .spelled("aten.@ torch.linalg.tensorinv"),
        Op::composite(
            "linalg_tensorsolve(Tensor self, Tensor other, int[]? dims=None) -> Tensor",
            tensorsolve,
        )
        .doc("the solution X of tensordot(self, X, X.ndim) = other")
        .spelled("aten.@ torch.linalg.tensorsolve"),
        Op::composite("linalg_vander(Tensor x, *, SymInt? N=None) -> Tensor", |b, c| {
            let x = c.leaf("x")?;
            let columns = match (c.is_none("N"), x.shape()?.last()) {
                (false, _) => c.dims("N")?[0].clone(),
                (true, Some(n)) => n.clone(),
                (true, None) => {
                    return Err(OpError::shape("Dimension specified as -1 but tensor has no dimensions"));
                }
            };
            if columns.as_const().is_some_and(|n| n <= 1) {
                return Err(OpError::arg(
                    "N",
                    format!("linalg.vander: N must be greater than 1. Got {columns}."),
                ));
            }
            let x = b.atleast_1d(x)?;
            power_columns(b, &x, &columns).map(Val::Leaf)
        })
        .doc("the powers 0 to N - 1 of every element, along a new last dim")
        .spelled("aten.@ torch.linalg.vander"),
    ]
}

/// The numbers of rows and columns of the matrices.
fn matrix_sizes(x: &Traced, op: &str) -> OpResult<(Dim, Dim)> {
    match x.shape()? {
        [.., m, n] => Ok((m.clone(), n.clone())),
        _ => Err(OpError::shape(format!(
            "{op}: The input tensor must be a matrix or batch of matrices"
        ))),
    }
}

/// The machine epsilon times the larger size of a matrix.
fn default_tolerance(x: &Traced) -> OpResult<f64> {
    let (m, n) = matrix_sizes(x, "linalg")?;
    let epsilon = if x.dtype() == DType::F64 {
        f64::EPSILON
    } else {
        f32::EPSILON as f64
    };
    let greater = m.as_const().zip(n.as_const()).map(|(m, n)| m.max(n));
    let greater = greater.ok_or_else(|| OpError::shape("the sizes of the matrices must be known"))?;
    Ok(epsilon * greater as f64)
}

/// The threshold up to which singular values count as 0, with a last dim of size 1. `rtol` defaults to 0 if `atol` is
/// given, else to the machine epsilon times the larger size.
fn singular_tolerance(
    b: &mut dyn Build,
    x: &Traced,
    values: &Traced,
    atol: &Val<Traced>,
    rtol: &Val<Traced>,
) -> OpResult<Traced> {
    let default = default_tolerance(x)?;
    let last = values.rank()? - 1;
    let top = b.reduce(OpId::Amax, values, &[last], true)?;
    let column = |b: &mut dyn Build, v: &Val<Traced>| -> OpResult<Val<Traced>> {
        Ok(match v {
            Val::Leaf(t) => b.unsqueeze(t, t.rank()?)?.into(),
            v => v.clone(),
        })
    };
    let relative = match (atol, rtol) {
        (_, Val::Leaf(_) | Val::Float(_) | Val::Int(_)) => column(b, rtol)?,
        (Val::Leaf(t), _) => {
            let positive = b.gt(t, Val::int(0))?;
            let r = b.r#where(positive, Val::Float(0.0), Val::Float(default))?;
            let r = b.to_dtype(&r, x.dtype())?;
            b.unsqueeze(&r, r.rank()?)?.into()
        }
        (a, _) if a.as_f64().is_some_and(|a| a > 0.0) => Val::Float(0.0),
        _ => Val::Float(default),
    };
    let relative = b.mul(&top, relative)?;
    let absolute = match column(b, atol)? {
        Val::None => return Ok(relative),
        Val::Leaf(t) => b.to_dtype(&t, x.dtype())?,
        number => b.full(&[], number, x.dtype())?,
    };
    b.maximum(&absolute, &relative)
}

fn pinv(b: &mut dyn Build, c: &Call<Traced>, atol: &Val<Traced>, rtol: &Val<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("self")?;
    let (m, n) = matrix_sizes(x, "linalg.pinv")?;
    if x.ty.numel() == Dim::Const(0) {
        let lead = &x.shape()?[..x.rank()? - 2];
        return b.full(&[lead, &[n, m]].concat(), Val::int(0), x.dtype()).map(Val::Leaf);
    }
    let (left, values, right) = if c.bool("hermitian")? {
        let v = b.call_many(OpId::LinalgEigh, [x.into()])?;
        (v[1].clone(), v[0].clone(), v[1].clone())
    } else {
        let v = b.call_many(OpId::LinalgSvd, [x.into(), Val::Bool(false)])?;
        let rank = x.rank()?;
        (b.transpose(&v[2], rank - 2, rank - 1)?, v[1].clone(), v[0].clone())
    };
    let sizes = b.abs(&values)?;
    let least = singular_tolerance(b, x, &sizes, atol, rtol)?;
    let significant = b.gt(&sizes, &least)?;
    let inverse = b.reciprocal(&values)?;
    let inverse = b.r#where(significant, inverse, Val::Float(0.0))?;
    scaled_product(b, &left, &inverse, &right).map(Val::Leaf)
}

fn matrix_rank(b: &mut dyn Build, c: &Call<Traced>, atol: &Val<Traced>, rtol: &Val<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("input")?;
    matrix_sizes(x, "linalg.matrix_rank")?;
    if x.ty.numel() == Dim::Const(0) {
        let lead = &x.shape()?[..x.rank()? - 2];
        return b.full(lead, Val::int(0), DType::I64).map(Val::Leaf);
    }
    let values = match c.bool("hermitian")? {
        true => {
            let v = b.linalg_eigvalsh(x)?;
            b.abs(&v)?
        }
        false => b.linalg_svdvals(x)?,
    };
    let least = singular_tolerance(b, x, &values, atol, rtol)?;
    let above = b.gt(&values, &least)?;
    b.op(OpId::Sum, [above.into(), ints_val(&[-1])]).map(Val::Leaf)
}

/// For norms of singular values, computed from these; otherwise from the inverse, whose norm is inf if the matrix is
/// singular.
fn cond(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, p) = (c.leaf("self")?, c.get("p"));
    let rank = x.rank()?;
    matrix_sizes(x, "linalg.cond")?;
    let lead = x.shape()?[..rank - 2].to_vec();
    let spectral = p.is_none() || p.as_f64().is_some_and(|p| p.abs() == 2.0);
    if x.ty.numel() == Dim::Const(0) {
        return b.full(&lead, Val::int(0), x.dtype()).map(Val::Leaf);
    }
    if spectral {
        let s = b.linalg_svdvals(x)?;
        let end = s.shape()?[rank - 2].sub(&Dim::Const(1));
        let (top, low) = (b.select(&s, rank - 2, Dim::Const(0))?, b.select(&s, rank - 2, end)?);
        let (over, under) = if p.as_f64() == Some(-2.0) {
            (low, top)
        } else {
            (top, low)
        };
        return b.div(&over, &under).map(Val::Leaf);
    }
    if p.as_str() == Some("nuc") {
        let s = b.linalg_svdvals(x)?;
        let inverse = b.reciprocal(&s)?;
        let (x, y) = (
            b.reduce(OpId::Sum, &s, &[rank - 2], false)?,
            b.reduce(OpId::Sum, &inverse, &[rank - 2], false)?,
        );
        return b.mul(&x, &y).map(Val::Leaf);
    }
    let inverse = b.call_many(OpId::LinalgInvEx, [x.into()])?;
    let singular = b.gt(&inverse[1], Val::int(0))?;
    let singular = b.unsqueeze(&singular, rank - 2)?;
    let singular = b.unsqueeze(&singular, rank - 1)?;
    let inverse = b.r#where(singular, Val::Float(f64::INFINITY), &inverse[0])?;
    let norm = |b: &mut dyn Build, m: &Traced| b.op(OpId::LinalgMatrixNorm, [m.into(), p.clone()]);
    let (norm_of_inverse, norm_of_x) = (norm(b, &inverse)?, norm(b, x)?);
    b.mul(&norm_of_inverse, &norm_of_x).map(Val::Leaf)
}

fn dims_product(dims: &[Dim]) -> Dim {
    dims.iter().fold(Dim::Const(1), |p, d| p.mul(d))
}

fn tensorinv(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, ind) = (c.leaf("self")?, c.int("ind")?);
    let shape = x.shape()?.to_vec();
    if ind <= 0 {
        return Err(OpError::arg("ind", "Expected a strictly positive integer for 'ind'"));
    }
    let (rows, columns) = shape.split_at((ind as usize).min(shape.len()));
    let (m, n) = (dims_product(rows), dims_product(columns));
    if m.sub(&n).as_const().is_some_and(|d| d != 0) {
        return Err(OpError::shape(format!(
            "Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got {n} != {m}"
        )));
    }
    let square = b.reshape(x, &[n, m])?;
    let inverse = checked_inverse(b, "inv", &square)?;
    b.reshape(&inverse, &[columns, rows].concat()).map(Val::Leaf)
}

fn tensorsolve(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (a, rhs) = (c.leaf("self")?, c.leaf("other")?);
    let rank = a.rank()?;
    let mut a = a.clone();
    if let Some(dims) = c.opt_ints("dims")? {
        let last: Vec<usize> = dims.iter().map(|&d| wrap_dim(d, rank)).collect::<OpResult<_>>()?;
        let order: Vec<usize> = (0..rank)
            .filter(|d| !last.contains(d))
            .chain(last.iter().copied())
            .collect();
        a = b.permute(&a, &order)?;
    }
    let out = a.shape()?[rhs.rank()?.min(rank)..].to_vec();
    let (n, m) = (dims_product(&out), rhs.ty.numel());
    let rows = dims_product(&a.shape()?[..rhs.rank()?.min(rank)]);
    if rows.sub(&n).as_const().is_some_and(|d| d != 0) {
        return Err(OpError::shape(format!(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), but got {n} != \
             {rows}"
        )));
    }
    let square = b.reshape(&a, &[m.clone(), n])?;
    let flat = b.reshape(rhs, &[m])?;
    let x = b.linalg_solve(square, flat)?;
    b.reshape(&x, &out).map(Val::Leaf)
}

/// Computes powers by cumulative products, as torch does.
pub(in crate::op::rows) fn power_columns(b: &mut dyn Build, x: &Traced, columns: &Dim) -> OpResult<Traced> {
    let dtype = if x.dtype().is_float() { x.dtype() } else { DType::I64 };
    let rank = x.rank()?;
    let x = b.to_dtype(x, dtype)?;
    let column = b.unsqueeze(&x, rank)?;
    let ones = b.full(column.shape()?, Val::int(1), dtype)?;
    let shape = [x.shape()?, &[columns.sub(&Dim::Const(1))]].concat();
    let repeated = b.expand(&column, &shape)?;
    let products = b.cumprod(repeated, Val::int(rank as i64))?;
    b.cat(&[ones, products], rank)
}
