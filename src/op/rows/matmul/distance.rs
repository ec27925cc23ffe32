//! Distances, similarities and products of vectors.

use crate::op::emit::ints_val;
use crate::op::{Build, Call, Op, OpBuilder, OpError, OpId, OpResult, Sizes, Traced, wrap_dim};
use crate::types::{Dim, Val};

pub(super) fn rows() -> Vec<Op> {
    let mut v = pairwise_rows();
    v.extend(all_pairs_rows());
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

/// Distances between all pairs of rows.
fn all_pairs_rows() -> Vec<Op> {
    vec![
        Op::composite(
            "cdist(Tensor x1, Tensor x2, float p=2.0, Any compute_mode=None) -> Tensor",
            cdist,
        )
        .doc("the p-norm distances between all rows of two matrices")
        .spelled("aten.@ aten._cdist_forward.default torch.@ torch.functional.@"),
        Op::composite("_euclidean_dist(Tensor x1, Tensor x2) -> Tensor", euclidean_dist)
            .doc("the Euclidean distances between all rows of two matrices, by one matrix product")
            .spelled("aten.@ torch.@"),
        Op::composite("pdist(Tensor self, float p=2.0) -> Tensor", pdist)
            .doc("the p-norm distances between all pairs of rows")
            .spelled("aten.@ torch.@ torch.nn.functional.@"),
        Op::composite("_pdist_forward(Tensor self, float p=2.0) -> Tensor", |b, c| {
            let x = c.leaf("self")?;
            // A single row has no pairs, so the result is empty.
            match x.shape()?.first() {
                Some(Dim::Const(0 | 1)) => b.full(&[Dim::Const(0)], Val::int(0), x.dtype()).map(Val::Leaf),
                _ => pdist(b, c),
            }
        })
        .doc("the p-norm distances between all pairs of rows, for inputs that are known to have pairs")
        .spelled("aten.@"),
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
fn last_dim_norm(b: &mut dyn Build, x: &Traced, p: &Val<Traced>, keepdim: bool) -> OpResult<Traced> {
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

/// `|x|² - 2xy + |y|²` as one matrix product, as in torch.
fn euclidean_dist(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, y) = (c.leaf("x1")?, c.leaf("x2")?);
    let norms = |b: &mut dyn Build, t: &Traced| {
        let squares = b.mul(t, t)?;
        let last = t
            .rank()?
            .checked_sub(1)
            .ok_or_else(|| OpError::shape("_euclidean_dist: X has no rows"))?;
        let norms = b.reduce(OpId::Sum, &squares, &[last], true)?;
        let ones = b.full(norms.shape()?, Val::int(1), norms.dtype())?;
        OpResult::Ok((norms, ones, last))
    };
    let (x_norms, x_ones, last) = norms(b, x)?;
    let (y_norms, y_ones, y_last) = norms(b, y)?;
    if y_last == 0 {
        return Err(OpError::shape("_euclidean_dist: X2 has no rows"));
    }
    let scaled = b.mul(x, Val::int(-2))?;
    let left = b.cat(&[scaled, x_norms, x_ones], last)?;
    let right = b.cat(&[y.clone(), y_ones, y_norms], y_last)?;
    let right = b.transpose(&right, y_last - 1, y_last)?;
    let squares = b.matmul(&left, &right)?;
    let squares = b.op(OpId::Clamp, [squares.into(), Val::int(0)])?;
    b.sqrt(&squares).map(Val::Leaf)
}

fn cdist(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, y) = (c.leaf("x1")?, c.leaf("x2")?);
    for (name, t) in [("X1", x), ("X2", y)] {
        if t.rank()? < 2 {
            return Err(OpError::shape(format!(
                "cdist only supports at least 2D tensors, {name} got: {}D",
                t.rank()?
            )));
        }
    }
    let (m, n) = (x.shape()?.last().cloned(), y.shape()?.last().cloned());
    if let (Some(m), Some(n)) = (&m, &n)
        && m.sub(n).as_const().is_some_and(|d| d != 0)
    {
        return Err(OpError::shape(format!(
            "X1 and X2 must have the same number of columns. X1: {m} X2: {n}"
        )));
    }
    if is_distance_product(c, x, y)? {
        return b.op(OpId::_EuclideanDist, [x.into(), y.into()]).map(Val::Leaf);
    }
    let (rx, ry) = (x.rank()?, y.rank()?);
    let (x, y) = (b.unsqueeze(x, rx - 1)?, b.unsqueeze(y, ry - 2)?);
    let d = b.sub(&x, &y)?;
    last_dim_norm(b, &d, c.get("p"), false).map(Val::Leaf)
}

/// The number of rows above which torch computes Euclidean distances by a matrix product.
const DISTANCE_ROWS: i64 = 25;

/// Whether torch computes the distances by a matrix product, which rounds differently: `compute_mode` may forbid or demand it, and by
/// default the number of rows decides.
fn is_distance_product(c: &Call<Traced>, x: &Traced, y: &Traced) -> OpResult<bool> {
    let (xs, ys) = (x.shape()?, y.shape()?);
    let is_large = |shape: &[Dim]| shape[shape.len() - 2].as_const().is_some_and(|n| n > DISTANCE_ROWS);
    let has_columns = xs.last().and_then(Dim::as_const).is_some_and(|n| n > 0);
    let mode = c.get("compute_mode");
    let wanted = match (mode.as_str(), mode.as_int()) {
        (Some("use_mm_for_euclid_dist"), _) | (_, Some(1)) => true,
        (Some("donot_use_mm_for_euclid_dist"), _) | (_, Some(2)) => false,
        _ => is_large(xs) || is_large(ys),
    };
    Ok(wanted && has_columns && x.dtype() == y.dtype() && c.get("p").as_f64() == Some(2.0))
}

fn pdist(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("self")?;
    let [n, _] = x.shape()? else {
        return Err(OpError::shape(format!(
            "pdist only supports 2D tensors, got: {}D",
            x.rank()?
        )));
    };
    let n = n.clone();
    let pairs = b.op(
        OpId::TriuIndices,
        [Val::Int(n.clone()), Val::Int(n.clone()), Val::int(1)],
    )?;
    // All distances, from which those above the diagonal are taken: copies of the rows of each pair would take longer.
    let sides = [b.unsqueeze(x, 1)?, b.unsqueeze(x, 0)?];
    let d = b.sub(&sides[0], &sides[1])?;
    let all = last_dim_norm(b, &d, c.get("p"), false)?;
    let all = b.ravel(&all)?;
    let [row, column] = [b.select(&pairs, 0, Dim::Const(0))?, b.select(&pairs, 0, Dim::Const(1))?];
    let first = b.mul(&row, Val::Int(n))?;
    let index = b.add(&first, &column)?;
    b.index_select(all, Val::int(0), index).map(Val::Leaf)
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
