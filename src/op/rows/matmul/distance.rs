//! Distances, similarities and products of vectors.

use crate::op::emit::ints_val;
use crate::op::{Build, Call, Op, OpBuilder, OpError, OpId, OpResult, Sizes, Traced, wrap_dim};
use crate::types::{Dim, Val};

pub(super) fn rows() -> Vec<Op> {
    let mut v = pairwise_rows();
    v.extend(weight_norm_rows());
    v.extend(cross_rows());
    v.extend(linalg_cross_rows());
    v.extend(power_rows());
    v
}

/// Distances between corresponding rows.
fn pairwise_rows() -> Vec<Op> {
    vec![
        Op::composite(
            "cosine_similarity(Tensor x1, Tensor x2, int dim=1, float eps=1e-08) -> Tensor",
            cosine_similarity,
        )
        .doc("the cosine similarity x1 · x2 / (max(|x1|, eps) * max(|x2|, eps)) along a dim")
        .spelled("aten.@ torch.@ torch.nn.functional.@")
        .module("CosineSimilarity(dim=1, eps=1e-08) = cosine_similarity($0, $1, dim, eps)"),
        Op::composite(
            "pairwise_distance(Tensor x1, Tensor x2, float p=2.0, float eps=1e-06, bool keepdim=False) -> Tensor",
            |b, c| {
                let d = b.call(OpId::Sub, vec![c.get("x1").clone(), c.get("x2").clone()])?;
                let d = b.add(d, c.get("eps").clone())?;
                last_dim_norm(b, &d, c.get("p"), c.bool("keepdim")?).map(Val::Leaf)
            },
        )
        .doc("the p-norm of x1 - x2 + eps along the last dim")
        .spelled("aten.@ torch.@ torch.nn.functional.@")
        .module("PairwiseDistance(p=2.0, eps=1e-06, keepdim=False) = pairwise_distance($0, $1, p, eps, keepdim)"),
    ]
}

fn weight_norm_rows() -> Vec<Op> {
    vec![
        Op::composite("_weight_norm(Tensor v, Tensor g, int dim=0) -> Tensor", |b, c| {
            weight_norm(b, c).map(|(w, _)| w.into())
        })
        .doc("g * v / |v|, with the norm over all dims but one")
        .spelled("aten.@ torch.@"),
        Op::composite(
            "_weight_norm_interface(Tensor v, Tensor g, int dim=0) -> (Tensor, Tensor)",
            |b, c| weight_norm(b, c).map(|(w, n)| Val::Tuple(vec![w.into(), n.into()])),
        )
        .doc("g * v / |v| and the norm")
        .spelled("aten.@"),
    ]
}

fn cross_rows() -> Vec<Op> {
    vec![
        Op::composite("cross(Tensor self, Tensor other, int? dim=None) -> Tensor", |b, c| {
            let (x, y) = (c.leaf("self")?, c.leaf("other")?);
            let shape = Sizes::default().broadcast(x.shape()?, y.shape()?)?;
            let dim = match c.opt_int("dim")? {
                Some(d) => wrap_dim(d, shape.len())?,
                None => shape
                    .iter()
                    .position(|d| *d == Dim::Const(3))
                    .ok_or_else(|| OpError::shape("no dimension of size 3 in input"))?,
            };
            cross(b, x, y, &shape, dim).map(Val::Leaf)
        })
        .doc("the cross product along a dim of size 3")
        .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

fn linalg_cross_rows() -> Vec<Op> {
    vec![
        Op::composite(
            "linalg_cross(Tensor self, Tensor other, *, int dim=-1) -> Tensor",
            |b, c| {
                let (x, y) = (c.leaf("self")?, c.leaf("other")?);
                if x.rank()? != y.rank()? {
                    return Err(OpError::shape(
                        "linalg.cross: inputs must have the same number of dimensions.",
                    ));
                }
                let shape = Sizes::default().broadcast(x.shape()?, y.shape()?)?;
                let dim = wrap_dim(c.int("dim")?, shape.len())?;
                let sizes = [x, y].map(|t| t.shape().ok()?.get(dim)?.as_const());
                if let [Some(n), Some(m)] = sizes
                    && (n, m) != (3, 3)
                {
                    return Err(OpError::shape(format!(
                        "linalg.cross: inputs dimension {} must have length 3. Got {n} and {m}",
                        c.int("dim")?
                    )));
                }
                cross(b, x, y, &shape, dim).map(Val::Leaf)
            },
        )
        .doc("the cross product along a dim of size 3")
        .spelled("aten.@ torch.linalg.cross"),
    ]
}

fn power_rows() -> Vec<Op> {
    vec![
        Op::composite("glu(Tensor self, int dim=-1) -> Tensor", glu)
            .doc("the first half of a dim times the sigmoid of the second")
            .spelled("aten.@ torch.nn.functional.@ torch._C._nn.@")
            .module("GLU(dim=-1) = glu(input, dim)"),
        Op::composite("matrix_power(Tensor self, int n) -> Tensor", matrix_power)
            .doc("the integer power of a square matrix")
            .spelled("aten.@ aten.linalg_matrix_power.default torch.@ torch.linalg.@ Tensor.@"),
    ]
}

/// The p-norm along the last dim.
pub(super) fn last_dim_norm(b: &mut dyn Build, x: &Traced, p: &Val<Traced>, keepdim: bool) -> OpResult<Traced> {
    b.op(
        OpId::LinalgVectorNorm,
        [x.into(), p.clone(), ints_val(&[-1]), Val::Bool(keepdim)],
    )
}

/// Divides both sides by their norms first, as torch does.
fn cosine_similarity(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, y) = (c.leaf("x1")?, c.leaf("x2")?);
    let shape = Sizes::default().broadcast(x.shape()?, y.shape()?)?;
    let dim = wrap_dim(c.int("dim")?, shape.len())? as i64;
    let dtype = crate::types::promote_types(x.dtype(), y.dtype()).unwrap_or(x.dtype());
    if !dtype.is_float() {
        return Err(OpError::dtype(
            "expected common dtype to be floating point, yet common dtype is ".to_string() + dtype.scalar_type_name(),
        ));
    }
    let mut unit = vec![];
    for t in [x, y] {
        let t = b.to_dtype(t, dtype)?;
        let t = b.expand(&t, &shape)?;
        let n = b.op(
            OpId::LinalgVectorNorm,
            [(&t).into(), Val::int(2), ints_val(&[dim]), Val::Bool(true)],
        )?;
        let n = b.binary(OpId::Clamp, &n, c.get("eps").clone())?;
        unit.push(b.div(&t, &n)?);
    }
    let product = b.mul(&unit[0], &unit[1])?;
    b.reduce(OpId::Sum, &product, &[dim as usize], false).map(Val::Leaf)
}

fn weight_norm(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<(Traced, Traced)> {
    let (v, g) = (c.leaf("v")?, c.leaf("g")?);
    let rank = v.rank()?;
    let dims: Vec<i64> = match c.int("dim")? {
        -1 => (0..rank as i64).collect(),
        d => {
            let d = wrap_dim(d, rank)? as i64;
            (0..rank as i64).filter(|&i| i != d).collect()
        }
    };
    let all = c.int("dim")? == -1;
    let n = if dims.is_empty() {
        b.abs(v)?
    } else {
        b.op(
            OpId::LinalgVectorNorm,
            [v.into(), Val::int(2), ints_val(&dims), Val::Bool(!all)],
        )?
    };
    let scale = b.div(g, &n)?;
    Ok((b.mul(v, &scale)?, n))
}

/// `x1 * y2 - x2 * y1` and so on, where each operand is a slice along `dim`.
fn cross(b: &mut dyn Build, x: &Traced, y: &Traced, shape: &[Dim], dim: usize) -> OpResult<Traced> {
    if x.rank()? != y.rank()? {
        return Err(OpError::shape(format!(
            "linalg.cross: inputs must have the same number of dimensions, got {} and {}",
            x.rank()?,
            y.rank()?
        )));
    }
    let Some(size) = shape.get(dim) else {
        return Err(OpError::shape(format!(
            "Dimension specified as {dim} but tensor has no dimensions"
        )));
    };
    if size.as_const().is_some_and(|n| n != 3) {
        return Err(OpError::shape(format!(
            "linalg.cross: inputs dimension {dim} must have length 3. Got {size}"
        )));
    }
    let (x, y) = (b.expand(x, shape)?, b.expand(y, shape)?);
    let component = |b: &mut dyn Build, t: &Traced, i: i64| b.slice(t, dim, Dim::Const(i), Dim::Const(i + 1), 1);
    let mut parts = vec![];
    for (i, j) in [(1, 2), (2, 0), (0, 1)] {
        let (xi, yj) = (component(b, &x, i)?, component(b, &y, j)?);
        let (xj, yi) = (component(b, &x, j)?, component(b, &y, i)?);
        let (p, q) = (b.mul(&xi, &yj)?, b.mul(&xj, &yi)?);
        parts.push(b.sub(&p, &q)?);
    }
    b.cat(&parts, dim)
}

fn glu(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("self")?;
    if x.rank()? == 0 {
        return Err(OpError::shape("glu does not support 0-dimensional tensors"));
    }
    let dim = wrap_dim(c.int("dim")?, x.rank()?)?;
    let n = x.shape()?[dim].clone();
    if n.as_const().is_some_and(|n| n % 2 != 0) {
        return Err(OpError::shape(format!(
            "Halving dimension must be even, but dimension {dim} is size {n}"
        )));
    }
    let half = n.floordiv(&Dim::Const(2));
    let a = b.slice(x, dim, Dim::Const(0), half.clone(), 1)?;
    let g = b.slice(x, dim, half, n, 1)?;
    let g = b.sigmoid(&g)?;
    b.mul(&a, &g).map(Val::Leaf)
}

fn matrix_power(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("self")?;
    let n = c.int("n")?;
    let square = matches!(x.shape()?, [.., p, q] if p.sub(q).as_const().is_none_or(|d| d == 0));
    if !square {
        return Err(OpError::shape(
            "linalg.matrix_power: A must be batches of square matrices",
        ));
    }
    let inverse;
    let x = if n < 0 {
        inverse = b.linalg_inv(x)?;
        &inverse
    } else {
        x
    };
    let n = n
        .checked_abs()
        .ok_or_else(|| OpError::arg("n", "matrix_power: the exponent is too small"))?;
    if n == 0 {
        let size = x.shape()?[x.rank()? - 1].clone();
        let eye = b.eye(Val::Int(size))?;
        let eye = b.to_dtype(&eye, x.dtype())?;
        let shape = x.shape()?.to_vec();
        let y = b.expand(&eye, &shape)?;
        return b.clone(y).map(Val::Leaf);
    }
    // As in torch, the square is rounded first.
    if n == 3 {
        let square = b.matmul(x, x)?;
        return b.matmul(&square, x).map(Val::Leaf);
    }
    power_by_squaring(b, x, n).map(Val::Leaf)
}

/// `x` to the power `n`, which is at least 1.
fn power_by_squaring(b: &mut dyn Build, x: &Traced, mut n: i64) -> OpResult<Traced> {
    let (mut power, mut out) = (x.clone(), None::<Traced>);
    loop {
        if n & 1 == 1 {
            out = Some(match &out {
                Some(o) => b.matmul(o, &power)?,
                None => power.clone(),
            });
        }
        n >>= 1;
        if n == 0 {
            return Ok(out.unwrap_or(power));
        }
        power = b.matmul(&power, &power)?;
    }
}
