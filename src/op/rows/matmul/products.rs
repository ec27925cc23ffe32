//! Products that become matrix products by reshaping: outer, inner, tensordot, bilinear, kron.

use crate::op::emit::dims_val;
use crate::op::rows::spell::list_text;
use crate::op::{Build, Call, Op, OpBuilder, OpError, OpId, OpResult, Traced, wrap_dim};
use crate::types::{DType, Dim, Val, promote_types};

/// Rows that are products after reshaping.
pub(super) fn rows() -> Vec<Op> {
    [vector_product_rows(), matrix_product_rows()]
        .into_iter()
        .flatten()
        .collect()
}

/// Products of vectors and along pairs of dims.
fn vector_product_rows() -> Vec<Op> {
    vec![
        Op::composite("outer(Tensor self, Tensor vec2) -> Tensor", outer)
            .doc("the outer product of two vectors")
            .spelled("aten.@ aten.ger.default torch.@ torch.ger Tensor.@ Tensor.ger"),
        Op::composite("inner(Tensor self, Tensor other) -> Tensor", inner)
            .doc("sums of products along the last dims")
            .spelled("aten.@ torch.@ Tensor.@"),
        Op::composite(
            "tensordot(Tensor self, Tensor other, Any dims_self=2, int[]? dims_other=None) -> Tensor",
            tensordot,
        )
        .doc("sums of products along pairs of dims")
        .spelled("aten.@")
        .form(
            "torch.tensordot torch.functional.tensordot",
            "tensordot(Tensor a, Tensor b, Any dims_self=2) -> Tensor",
        ),
        Op::composite(
            "addr(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
            addr,
        )
        .doc("beta * self + alpha * outer(vec1, vec2)")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ Tensor.@_"),
        Op::composite("vecdot(Tensor x, Tensor y, *, int dim=-1) -> Tensor", vecdot)
            .doc("sums of products along a dim")
            .spelled("aten.linalg_vecdot.default torch.linalg.@"),
    ]
}

/// Products of several matrices.
fn matrix_product_rows() -> Vec<Op> {
    vec![
        Op::composite("multi_dot(Tensor[] tensors) -> Tensor", multi_dot)
            .doc("the product of several matrices")
            .spelled("aten.linalg_multi_dot.default torch.linalg.@ aten.chain_matmul.default torch.chain_matmul torch.functional.chain_matmul"),
        Op::composite("bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None) -> Tensor",
            bilinear,
        )
        .doc("input1 @ weight[o] @ input2 for every o, plus bias")
        .spelled("aten.@ torch.@ torch.nn.functional.@")
        .module(
            "Bilinear(in1_features, in2_features, out_features, bias=True) = bilinear($0, $1, @weight[out_features, \
             in1_features, in2_features], @bias[out_features] if bias)",
        ),
        Op::composite("_trilinear(Tensor i1, Tensor i2, Tensor i3, int[] expand1, int[] expand2, int[] expand3, int[] sumdim, int \
             unroll_dim=1) -> Tensor",
            trilinear,
        )
        .doc("i1 * i2 * i3, each with new dims at the positions in its `expand`, summed over `sumdim`")
        .spelled("aten.@ torch.@"),
        Op::composite("_weight_int8pack_mm(Tensor self, Tensor mat2, Tensor scales) -> Tensor",
            |b, c| {
                let (x, w) = (c.leaf("self")?, c.leaf("mat2")?);
                let w = b.to_dtype(w, x.dtype())?;
                let w = b.transpose(&w, 0, 1)?;
                let product = b.mm(x, w)?;
                b.mul(&product, c.leaf("scales")?).map(Val::Leaf)
            },
        )
        .doc("self @ mat2.T * scales for an i8 mat2")
        .spelled("aten.@ torch.@"),
        Op::composite("kron(Tensor self, Tensor other) -> Tensor", kron)
            .doc("the Kronecker product")
            .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

/// Builds an `einsum` with a letter for each dim of the product.
fn trilinear(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let total = c.leaf("i1")?.rank()? + c.ints("expand1")?.len();
    if total > 26 {
        return Err(OpError::shape("_trilinear: too many dims"));
    }
    let letter = |d: usize| (b'a' + d as u8) as char;
    let letters = |without: &[usize]| -> String { (0..total).filter(|d| !without.contains(d)).map(letter).collect() };
    let mut operands = vec![];
    let mut texts = vec![];
    for (name, expand) in [("i1", "expand1"), ("i2", "expand2"), ("i3", "expand3")] {
        let text = letters(&distinct_dims(c, expand, total)?);
        if text.len() != c.leaf(name)?.rank()? {
            return Err(OpError::shape("_trilinear: the expanded operands have different ranks"));
        }
        texts.push(text);
        operands.push(Val::from(c.leaf(name)?));
    }
    let summed = distinct_dims(c, "sumdim", total)?;
    let sizes = trilinear_sizes(c, &texts, total)?;
    let missing = |d: usize| sizes[d] == Dim::Const(0) && !texts.concat().contains(letter(d));
    let unrolled = crate::op::wrap_dim(c.int("unroll_dim")?, total)?;
    if (0..total).any(|d| missing(d) && (d == unrolled || !summed.contains(&d))) {
        let remaining = (0..total).filter(|d| !summed.contains(d));
        let shape: Vec<Dim> = remaining.map(|d| sizes[d].clone()).collect();
        return b.full(&shape, Val::int(0), c.leaf("i1")?.dtype()).map(Val::Leaf);
    }
    check_trilinear(c, &texts, &sizes, &summed)?;
    let equation = format!("{}->{}", texts.join(","), letters(&summed));
    b.einsum(Val::str(&equation), Val::List(operands)).map(Val::Leaf)
}

/// The dims in argument `name`, each of which may occur once.
fn distinct_dims(c: &Call<Traced>, name: &str, rank: usize) -> OpResult<Vec<usize>> {
    let mut dims = vec![];
    for d in c.ints(name)? {
        let d = crate::op::wrap_dim(d, rank)?;
        if dims.contains(&d) {
            return Err(OpError::shape(format!(
                "dim {d} appears multiple times in the list of dims"
            )));
        }
        dims.push(d);
    }
    Ok(dims)
}

/// The sizes of a trilinear product: those of the last operand that has the dim, or 0 if no operand has it.
fn trilinear_sizes(c: &Call<Traced>, texts: &[String], total: usize) -> OpResult<Vec<Dim>> {
    let mut sizes = vec![Dim::Const(0); total];
    for (name, text) in ["i1", "i2", "i3"].into_iter().zip(texts) {
        for (letter, n) in text.bytes().zip(c.leaf(name)?.shape()?) {
            sizes[usize::from(letter - b'a')] = n.clone();
        }
    }
    Ok(sizes)
}

/// Returns an error if the product has other sizes along the dims that are not summed.
fn check_trilinear(c: &Call<Traced>, texts: &[String], sizes: &[Dim], summed: &[usize]) -> OpResult<()> {
    for (name, text) in ["i1", "i2", "i3"].into_iter().zip(texts) {
        for (letter, n) in text.bytes().zip(c.leaf(name)?.shape()?) {
            let d = usize::from(letter - b'a');
            let differs = *n != Dim::Const(1) && n.sub(&sizes[d]).as_const().is_some_and(|d| d != 0);
            if differs && !summed.contains(&d) {
                return Err(OpError::shape(format!(
                    "_trilinear: the product has size {n} along dim {d}, the result {}",
                    sizes[d]
                )));
            }
        }
    }
    Ok(())
}

fn outer(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, y) = (c.leaf("self")?, c.leaf("vec2")?);
    for (name, t) in [("self", x), ("vec2", y)] {
        if t.rank()? != 1 {
            return Err(OpError::shape(format!(
                "outer: Expected 1-D argument {name}, but got {}-D",
                t.rank()?
            )));
        }
    }
    let x = b.unsqueeze(x, 1)?;
    b.mul(&x, y).map(Val::Leaf)
}

fn addr(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (addend, x, y) = (c.leaf("self")?, c.leaf("vec1")?, c.leaf("vec2")?);
    let dtype = [x, y]
        .iter()
        .try_fold(addend.dtype(), |d, t| promote_types(d, t.dtype()));
    let dtype = dtype.ok_or_else(|| OpError::dtype("addr: the dtypes have no common dtype"))?;
    // On bools, the sum is `or`, the product is `and`, and factors count as bools. Half types round once.
    let factor = |name: &str| match (dtype, c.get(name).as_f64()) {
        (DType::B8, Some(f)) => Val::Bool(f != 0.0),
        _ => c.get(name).clone(),
    };
    let wide = dtype.compute_dtype();
    let (x, y) = (b.to_dtype(x, wide)?, b.to_dtype(y, wide)?);
    let product = b.outer(&x, &y)?;
    let mut out = b.mul(&product, factor("alpha"))?;
    if c.get("beta").as_f64() != Some(0.0) {
        let addend = b.to_dtype(addend, wide)?;
        let addend = b.mul(&addend, factor("beta"))?;
        out = b.add(&addend, &out)?;
    }
    b.to_dtype(&out, dtype).map(Val::Leaf)
}

fn inner(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, y) = (c.leaf("self")?, c.leaf("other")?);
    if x.rank()? == 0 || y.rank()? == 0 {
        return b.mul(x, y).map(Val::Leaf);
    }
    let (last_x, last_y) = (x.rank()? as i64 - 1, y.rank()? as i64 - 1);
    let (sx, sy) = (x.shape()?, y.shape()?);
    if sx[last_x as usize]
        .sub(&sy[last_y as usize])
        .as_const()
        .is_some_and(|d| d != 0)
    {
        return Err(OpError::shape(format!(
            "inner() the last dimension must match on both input tensors but got shapes {} and {}",
            list_text(sx),
            list_text(sy)
        )));
    }
    contract_dims(b, x, y, &[last_x], &[last_y])
}

/// Sums of products over pairs of dims. The result has the other dims of `x`, then the other dims of `y`.
fn contract_dims(b: &mut dyn Build, x: &Traced, y: &Traced, dx: &[i64], dy: &[i64]) -> OpResult<Val<Traced>> {
    if dx.len() != dy.len() {
        return Err(OpError::shape("both dimension lists should have same length"));
    }
    let wrap = |v: &[i64], rank: usize| v.iter().map(|&d| wrap_dim(d, rank)).collect::<OpResult<Vec<_>>>();
    let (dx_, dy_) = (wrap(dx, x.rank()?)?, wrap(dy, y.rank()?)?);
    let mut operands = [x.clone(), y.clone()];
    for (&i, &j) in dx_.iter().zip(&dy_) {
        if let Err([p, q]) = match_dims(b, &mut operands, [i, j])? {
            return Err(OpError::shape(format!(
                "contracted dimensions need to match, but first has size {p} in dim {} and second has size {q} in dim {}",
                dx[0], dy[0]
            )));
        }
    }
    let [x, y] = &operands;
    let rest = |t: &Traced, used: &[usize]| Ok((0..t.rank()?).filter(|d| !used.contains(d)).collect::<Vec<_>>());
    let (rx, ry) = (rest(x, &dx_)?, rest(y, &dy_)?);
    let size = |t: &Traced, dims: &[usize]| {
        dims.iter()
            .map(|&d| t.shape().map(|s| s[d].clone()))
            .collect::<OpResult<Vec<_>>>()
    };
    let product = |v: &[Dim]| v.iter().fold(Dim::Const(1), |a, d| a.mul(d));
    let (sx, sy, sk) = (size(x, &rx)?, size(y, &ry)?, size(x, &dx_)?);
    let px = b.permute(x, &[&rx[..], &dx_].concat())?;
    let py = b.permute(y, &[&dy_[..], &ry].concat())?;
    let px = b.reshape(&px, &[product(&sx), product(&sk)])?;
    let py = b.reshape(&py, &[product(&sk), product(&sy)])?;
    let out = b.mm(&px, &py)?;
    b.reshape(&out, &[sx, sy].concat()).map(Val::Leaf)
}

/// Makes a pair of contracted dims equal: a size of 1 is broadcast, so the other operand's elements are summed. Returns the sizes if
/// they do not match.
fn match_dims(b: &mut dyn Build, [x, y]: &mut [Traced; 2], [i, j]: [usize; 2]) -> OpResult<Result<(), [Dim; 2]>> {
    let (p, q) = (x.shape()?[i].clone(), y.shape()?[j].clone());
    let one = Dim::Const(1);
    if p.sub(&q).as_const().is_none_or(|d| d == 0) {
        return Ok(Ok(()));
    }
    if p == one {
        *y = sum_kept(b, y, j)?;
    } else if q == one {
        *x = sum_kept(b, x, i)?;
    } else {
        return Ok(Err([p, q]));
    }
    Ok(Ok(()))
}

/// The sum along `dim`, which is kept with size 1, in the tensor's own dtype.
fn sum_kept(b: &mut dyn Build, t: &Traced, dim: usize) -> OpResult<Traced> {
    let dims = crate::op::emit::ints_val(&[dim as i64]);
    b.op(OpId::Sum, [t.into(), dims, Val::Bool(true), Val::DType(t.dtype())])
}

fn tensordot(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, y) = (c.leaf("self")?, c.leaf("other")?);
    let dims = c.get("dims_self");
    let list = |v: &Val<Traced>| -> OpResult<Vec<i64>> {
        let items = v.items().unwrap_or_default();
        items
            .iter()
            .map(|x| x.as_int().ok_or_else(|| OpError::arg("dims_self", "dims must be ints")))
            .collect()
    };
    if let Some(n) = dims.as_int() {
        let (rx, ry) = (x.rank()? as i64, y.rank()? as i64);
        if n < 0 || n > rx.min(ry) {
            return Err(OpError::shape(format!(
                "tensordot expects dims {} but got dims={n}",
                if n < 0 { ">= 0," } else { "< ndim_a or ndim_b," }
            )));
        }
        let dx: Vec<i64> = (rx - n..rx).collect();
        return contract_dims(b, x, y, &dx, &(0..n).collect::<Vec<_>>());
    }
    if !c.is_none("dims_other") {
        return contract_dims(b, x, y, &list(dims)?, &c.ints("dims_other")?);
    }
    match dims.items() {
        Some([p, q]) => {
            let side = |v: &Val<Traced>| v.as_int().map_or_else(|| list(v), |i| Ok(vec![i]));
            contract_dims(b, x, y, &side(p)?, &side(q)?)
        }
        _ => Err(OpError::arg(
            "dims",
            "tensordot expects dims to be int or two lists of ints",
        )),
    }
}

fn vecdot(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let product = b.call(OpId::Mul, vec![c.get("x").clone(), c.get("y").clone()])?;
    let product = product
        .as_leaf()
        .cloned()
        .ok_or_else(|| OpError::arg("x", "vecdot requires tensors"))?;
    let dim = wrap_dim(c.int("dim")?, product.rank()?)?;
    let dtype = product.dtype();
    b.op(
        OpId::Sum,
        [
            product.into(),
            crate::op::emit::ints_val(&[dim as i64]),
            Val::Bool(false),
            Val::DType(dtype),
        ],
    )
    .map(Val::Leaf)
}

fn multi_dot(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let tensors: Vec<Traced> = c.leaves("tensors")?.into_iter().cloned().collect();
    let Some((first, rest)) = tensors.split_first() else {
        return Err(OpError::shape("chain_matmul(): Expected one or more matrices"));
    };
    let mut acc = first.clone();
    for t in rest {
        acc = b.matmul(&acc, t)?;
    }
    Ok(acc.into())
}

/// `x1 @ weight`, with output and second-input dims merged, followed by a product with `x2`.
fn bilinear(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, y, w) = (c.leaf("input1")?, c.leaf("input2")?, c.leaf("weight")?);
    let [o, i, j] = w.shape()? else {
        return Err(OpError::shape(format!(
            "bilinear(): weight must have 3 dims, got {}",
            w.rank()?
        )));
    };
    let (Some((_, lead)), Some(_)) = (x.shape()?.split_last(), y.shape()?.split_last()) else {
        return Err(OpError::shape("bilinear(): inputs need at least one dim"));
    };
    let n = lead.iter().fold(Dim::Const(1), |a, d| a.mul(d));
    let x2 = b.reshape(x, &[n.clone(), i.clone()])?;
    let y2 = b.reshape(y, &[n.clone(), j.clone(), Dim::Const(1)])?;
    // Shape [i, o * j].
    let w2 = b.permute(w, &[1, 0, 2])?;
    let w2 = b.reshape(&w2, &[i.clone(), o.mul(j)])?;
    let t = b.mm(&x2, &w2)?;
    let t = b.reshape(&t, &[n, o.clone(), j.clone()])?;
    let t = b.bmm(&t, &y2)?;
    let shape = [lead, std::slice::from_ref(o)].concat();
    let t = b.op(OpId::Reshape, [t.into(), dims_val(&shape)])?;
    match c.opt_leaf("bias") {
        Some(bias) => b.add(&t, bias).map(Val::Leaf),
        None => Ok(t.into()),
    }
}

fn kron(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, y) = (c.leaf("self")?, c.leaf("other")?);
    let rank = x.rank()?.max(y.rank()?);
    let pad = |t: &Traced| -> OpResult<Vec<Dim>> {
        let s = t.shape()?;
        Ok([vec![Dim::Const(1); rank - s.len()], s.to_vec()].concat())
    };
    let (sx, sy) = (pad(x)?, pad(y)?);
    let spread = |s: &[Dim], first: bool| -> Vec<Dim> {
        let one = Dim::Const(1);
        s.iter()
            .flat_map(|d| {
                if first {
                    [d.clone(), one.clone()]
                } else {
                    [one.clone(), d.clone()]
                }
            })
            .collect()
    };
    let xs = b.reshape(x, &spread(&sx, true))?;
    let ys = b.reshape(y, &spread(&sy, false))?;
    let product = b.mul(&xs, &ys)?;
    let out: Vec<Dim> = sx.iter().zip(&sy).map(|(p, q)| p.mul(q)).collect();
    b.reshape(&product, &out).map(Val::Leaf)
}
