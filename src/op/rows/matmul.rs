//! Matrix products.

use super::views::list_text;
use crate::op::emit::dims_val;
use crate::op::{Build, Call, Contraction, Meaning, Op, OpError, OpResult, Sizes, Traced, wrap_dim};
use crate::types::{DType, Dim, TensorType, Type, Val};

/// A contraction row: its type rule and its meaning follow from one rule.
macro_rules! contract_op {
    ($name:literal, $schema:literal, $rule:path) => {
        Op::new(
            $name,
            $schema,
            |c, s| contracted($rule(c, s)?),
            Meaning::Contract(|c| $rule(c, &mut Sizes::default())),
        )
    };
}
pub(super) use contract_op;

/// The type of a contraction's result.
pub(super) fn contracted(c: Contraction) -> OpResult<Type> {
    let (Contraction::MatMul { out, .. } | Contraction::Conv { out, .. }) = c;
    Ok(Val::Leaf(out))
}

/// The rows.
pub fn rows() -> Vec<Op> {
    let mut v = products();
    v.extend(with_addend());
    v
}

fn products() -> Vec<Op> {
    vec![
        contract_op!("mm", "mm(Tensor self, Tensor mat2) -> Tensor", mm)
            .doc("product of two matrices")
            .spelled("aten.mm.default torch.mm Tensor.mm torch.spmm"),
        contract_op!("bmm", "bmm(Tensor self, Tensor mat2) -> Tensor", bmm)
            .doc("products of two batches of matrices")
            .spelled("aten.bmm.default torch.bmm Tensor.bmm"),
        contract_op!("matmul", "matmul(Tensor self, Tensor other) -> Tensor", matmul)
            .doc("product of matrices or vectors, batch dims broadcast")
            .spelled(
                "aten.matmul.default aten.linalg_matmul.default torch.matmul torch.linalg.matmul Tensor.matmul \
                 Tensor.__matmul__ operator.matmul operator.imatmul",
            ),
        contract_op!("mv", "mv(Tensor self, Tensor vec) -> Tensor", mv)
            .doc("product of a matrix and a vector")
            .spelled("aten.mv.default torch.mv Tensor.mv"),
        contract_op!("dot", "dot(Tensor self, Tensor tensor) -> Tensor", dot)
            .doc("inner product of two vectors")
            .spelled("aten.dot.default torch.dot Tensor.dot")
            .form("aten.vdot.default torch.vdot Tensor.vdot", "vdot(Tensor self, Tensor tensor) -> Tensor"),
        contract_op!("linear", "linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor", linear)
            .doc("input @ weight.T + bias")
            .spelled("aten.linear.default torch.nn.functional.linear torch._C._nn.linear")
            .module("Linear(in_features, out_features, bias=True) = linear(input, @weight, @bias if bias)")
            .module("NonDynamicallyQuantizableLinear(in_features, out_features, bias=True) = linear(input, @weight, @bias if bias)"),
    ]
}

fn with_addend() -> Vec<Op> {
    vec![
        contract_op!(
            "addmm",
            "addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
            addmm
        )
        .doc("beta * self + alpha * mat1 @ mat2")
        .spelled("aten.addmm.default torch.addmm Tensor.addmm")
        .inplace("aten.addmm_.default Tensor.addmm_"),
        contract_op!(
            "baddbmm",
            "baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
            baddbmm
        )
        .doc("beta * self + alpha * batch1 @ batch2, matrix by matrix")
        .spelled("aten.baddbmm.default torch.baddbmm Tensor.baddbmm")
        .inplace("aten.baddbmm_.default Tensor.baddbmm_"),
        contract_op!(
            "addmv",
            "addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
            addmv
        )
        .doc("beta * self + alpha * mat @ vec")
        .spelled("aten.addmv.default torch.addmv Tensor.addmv")
        .inplace("aten.addmv_.default Tensor.addmv_"),
        Op::composite(
            "addbmm",
            "addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
            addbmm,
        )
        .doc("beta * self + alpha * the sum of batch1 @ batch2 over the batch")
        .spelled("aten.addbmm.default torch.addbmm Tensor.addbmm")
        .inplace("aten.addbmm_.default Tensor.addbmm_"),
    ]
}

/// The name that torch's messages of products use for a dtype: `float`, `long int`.
fn c_name(d: DType) -> &'static str {
    match d {
        DType::F64 => "double",
        DType::F32 => "float",
        DType::F16 => "c10::Half",
        DType::BF16 => "c10::BFloat16",
        DType::I64 => "long int",
        DType::I32 => "int",
        DType::I16 => "short int",
        DType::I8 => "signed char",
        DType::U8 => "unsigned char",
        DType::B8 => "bool",
        d => d.torch_name(),
    }
}

/// The dtype that both operands have.
pub(super) fn same_dtype(a: DType, b: DType) -> OpResult<DType> {
    if a != b {
        return Err(OpError::dtype(format!(
            "expected m1 and m2 to have the same dtype, but got: {} != {}",
            c_name(a),
            c_name(b)
        ))
        .help("convert one of them with `to`: products do not promote"));
    }
    if a == DType::B8 {
        return Err(OpError::dtype("\"addmm_impl_cpu_\" not implemented for 'Bool'"));
    }
    Ok(a)
}

fn cannot_multiply(a: &[Dim], b: &[Dim], b_transposed: bool) -> String {
    let fold = |s: &[Dim]| match s {
        [k] => (Dim::Const(1), k.clone()),
        [lead @ .., k] => (lead.iter().fold(Dim::Const(1), |p, d| p.mul(d)), k.clone()),
        [] => (Dim::Const(1), Dim::Const(1)),
    };
    let (m, k) = fold(a);
    let (k2, n) = match b {
        [k] => (k.clone(), Dim::Const(1)),
        [.., x, y] if b_transposed => (y.clone(), x.clone()),
        [.., x, y] => (x.clone(), y.clone()),
        [] => (Dim::Const(1), Dim::Const(1)),
    };
    format!("mm: mat1 and mat2 shapes cannot be multiplied ({m}x{k} and {k2}x{n})")
}

/// Parameters of a product.
struct Product<'a> {
    a: &'a str,
    b: &'a str,
    bias: Option<&'a str>,
    b_transposed: bool,
}

impl Product<'_> {
    /// The contraction, by the rules of `matmul`: an operand of rank 1 is a row on the left, a column on the right, and
    /// the result lacks that dim.
    fn build(&self, c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Contraction> {
        let (da, a) = c.shaped(self.a)?;
        let (db, b) = c.shaped(self.b)?;
        let dtype = same_dtype(da, db)?;
        let shape = matmul_shape(a, b, self.b_transposed, s)?;
        let factor = |name: &str| {
            if self.bias.is_some() && c.op.schema.index_of(name).is_some() {
                c.f64(name)
            } else {
                Ok(1.0)
            }
        };
        let (alpha, beta) = (factor("alpha")?, factor("beta")?);
        let bias = match self.bias.filter(|n| !c.is_none(n)) {
            Some(name) => {
                self.check_bias(c, name, dtype, &shape, s)?;
                c.op.schema.index_of(name)
            }
            None => None,
        };
        let index = |name: &str| c.op.schema.index_of(name).unwrap_or_default();
        Ok(Contraction::MatMul {
            a: index(self.a),
            b: index(self.b),
            bias,
            a_transposed: false,
            b_transposed: self.b_transposed && b.len() > 1,
            alpha,
            beta,
            out: TensorType::new(dtype, shape),
        })
    }

    fn check_bias(&self, c: &Call<TensorType>, name: &str, dtype: DType, out: &[Dim], s: &mut Sizes) -> OpResult<()> {
        let (d, bias) = c.shaped(name)?;
        if d != dtype {
            return Err(OpError::dtype(format!(
                "self and mat2 must have the same dtype, but got {} and {}",
                d.scalar_type_name(),
                dtype.scalar_type_name()
            )));
        }
        let fits = |i: usize, have: &Dim, s: &mut Sizes| {
            if *have == Dim::Const(1) {
                return Ok(());
            }
            let want = &out[i];
            s.equal(want, have, || {
                format!(
                    "The expanded size of the tensor ({want}) must match the existing size ({have}) at non-singleton dimension \
                     {i}.  Target sizes: {}.  Tensor sizes: {}",
                    list_text(out),
                    list_text(bias)
                )
            })
            .map(|_| ())
        };
        let Some(lead) = out.len().checked_sub(bias.len()) else {
            return Err(OpError::shape(format!(
                "the addend has shape {}, which does not broadcast to {}",
                list_text(bias),
                list_text(out)
            )));
        };
        bias.iter()
            .enumerate()
            .try_for_each(|(j, have)| fits(lead + j, have, s))
    }
}

/// The shape of `a @ b` by the rules of `torch.matmul`.
pub(super) fn matmul_shape(a: &[Dim], b: &[Dim], b_transposed: bool, s: &mut Sizes) -> OpResult<Vec<Dim>> {
    if a.is_empty() || b.is_empty() {
        return Err(OpError::shape(format!(
            "both arguments to matmul need to be at least 1D, but they are {}D and {}D",
            a.len(),
            b.len()
        )));
    }
    let (lead_a, m, ka) = match a {
        [k] => (&a[..0], None, k),
        [lead @ .., m, k] => (lead, Some(m), k),
        [] => unreachable!("checked above"),
    };
    let (lead_b, kb, n) = match b {
        [k] => (&b[..0], k, None),
        [lead @ .., n, k] if b_transposed => (lead, k, Some(n)),
        [lead @ .., k, n] => (lead, k, Some(n)),
        [] => unreachable!("checked above"),
    };
    s.equal(ka, kb, || match (a, b) {
        ([x], [y]) => format!(
            "inconsistent tensor size, expected tensor [{x}] and src [{y}] to have the same number of elements, but got {x} \
             and {y} elements respectively"
        ),
        ([.., m, k], [v]) => format!("size mismatch, got input ({m}), mat ({m}x{k}), vec ({v})"),
        _ if lead_b.is_empty() => cannot_multiply(a, b, b_transposed),
        _ => format!(
            "Expected size for first two dimensions of batch2 tensor to be: [{}, {ka}] but got: [{}, {kb}].",
            lead_b[0], lead_b[0]
        ),
    })?;
    let mut out = s.broadcast(lead_a, lead_b)?;
    out.extend(m.cloned());
    out.extend(n.cloned());
    Ok(out)
}

fn want_rank(c: &Call<TensorType>, names: [&str; 2], rank: usize) -> OpResult<()> {
    for name in names {
        let got = c.shaped(name)?.1.len();
        if got != rank {
            return Err(OpError::shape(match rank {
                2 => format!("{}: {name} must be a matrix, got {got}-D tensor", c.op.name),
                1 => {
                    let ranks = names.map(|n| c.shaped(n).map_or(0, |t| t.1.len()));
                    format!("1D tensors expected, but got {}D and {}D tensors", ranks[0], ranks[1])
                }
                _ => format!("{name} must be a 3D tensor"),
            }));
        }
    }
    Ok(())
}

const fn plain<'a>(a: &'a str, b: &'a str) -> Product<'a> {
    Product {
        a,
        b,
        bias: None,
        b_transposed: false,
    }
}

fn mm(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Contraction> {
    want_rank(c, ["self", "mat2"], 2)?;
    plain("self", "mat2").build(c, s)
}

/// Batches are not broadcast.
fn same_batch(c: &Call<TensorType>, names: [&str; 2], s: &mut Sizes) -> OpResult<()> {
    want_rank(c, names, 3)?;
    let (a, b) = (c.shaped(names[0])?.1, c.shaped(names[1])?.1);
    s.equal(&a[0], &b[0], || {
        format!(
            "Expected size for first two dimensions of batch2 tensor to be: [{}, {}] but got: [{}, {}].",
            a[0], a[2], b[0], b[1]
        )
    })?;
    Ok(())
}

fn bmm(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Contraction> {
    same_batch(c, ["self", "mat2"], s)?;
    plain("self", "mat2").build(c, s)
}

fn matmul(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Contraction> {
    plain("self", "other").build(c, s)
}

fn mv(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Contraction> {
    let (a, v) = (c.shaped("self")?.1.len(), c.shaped("vec")?.1.len());
    if (a, v) != (2, 1) {
        return Err(OpError::shape(format!(
            "vector + matrix @ vector expected, got {}, {a}, {v}",
            a.saturating_sub(1)
        )));
    }
    plain("self", "vec").build(c, s)
}

fn dot(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Contraction> {
    want_rank(c, ["self", "tensor"], 1)?;
    let (a, b) = (c.shaped("self")?.0, c.shaped("tensor")?.0);
    if a != b {
        return Err(OpError::dtype(format!(
            "dot : expected both vectors to have same dtype, but found {} and {}",
            a.scalar_type_name(),
            b.scalar_type_name()
        )));
    }
    plain("self", "tensor").build(c, s)
}

fn linear(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Contraction> {
    let (x, w) = (c.shaped("input")?.1.len(), c.shaped("weight")?.1.len());
    if x == 0 || w == 0 {
        return Err(OpError::shape(format!(
            "both arguments to linear need to be at least 1D, but they are {x}D and {w}D"
        )));
    }
    if w > 2 {
        return Err(OpError::shape(format!(
            "linear: weight must be a matrix or a vector, got {w}-D tensor"
        )));
    }
    Product {
        a: "input",
        b: "weight",
        bias: Some("bias"),
        b_transposed: true,
    }
    .build(c, s)
}

fn addmm(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Contraction> {
    want_rank(c, ["mat1", "mat2"], 2)?;
    Product {
        a: "mat1",
        b: "mat2",
        bias: Some("self"),
        b_transposed: false,
    }
    .build(c, s)
}

fn baddbmm(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Contraction> {
    same_batch(c, ["batch1", "batch2"], s)?;
    Product {
        a: "batch1",
        b: "batch2",
        bias: Some("self"),
        b_transposed: false,
    }
    .build(c, s)
}

fn addmv(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Contraction> {
    let (b, a, v) = (
        c.shaped("self")?.1.len(),
        c.shaped("mat")?.1.len(),
        c.shaped("vec")?.1.len(),
    );
    if (a, v) != (2, 1) || b > 1 {
        return Err(OpError::shape(format!(
            "vector + matrix @ vector expected, got {b}, {a}, {v}"
        )));
    }
    Product {
        a: "mat",
        b: "vec",
        bias: Some("self"),
        b_transposed: false,
    }
    .build(c, s)
}

/// The sum over the batch is one product with the batch beside the inner dim.
fn addbmm(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    same_batch(&c.types(), ["batch1", "batch2"], &mut Sizes::default())?;
    let (x, y) = (c.leaf("batch1")?, c.leaf("batch2")?);
    let inner = x.shape()?[0].mul(&x.shape()?[2]);
    let (n, p) = (x.shape()?[1].clone(), y.shape()?[2].clone());
    let x = b.permute(x, &[1, 0, 2])?;
    let x = b.reshape(&x, &[n, inner.clone()])?;
    let y = b.reshape(y, &[inner, p])?;
    let args = vec![
        c.get("self").clone(),
        x.into(),
        y.into(),
        c.get("beta").clone(),
        c.get("alpha").clone(),
    ];
    b.call("addmm", args)
}

/// Rows that are products after reshaping.
pub fn composites() -> Vec<Op> {
    vec![
        Op::composite("outer", "outer(Tensor self, Tensor vec2) -> Tensor", outer)
            .doc("all products of an element of one vector with one of the other")
            .spelled("aten.outer.default aten.ger.default torch.outer torch.ger Tensor.outer Tensor.ger"),
        Op::composite("inner", "inner(Tensor self, Tensor other) -> Tensor", inner)
            .doc("sums of products along the last dims")
            .spelled("aten.inner.default torch.inner Tensor.inner"),
        Op::composite(
            "tensordot",
            "tensordot(Tensor self, Tensor other, Any dims_self=2, int[]? dims_other=None) -> Tensor",
            tensordot,
        )
        .doc("sums of products along pairs of dims")
        .spelled("aten.tensordot.default")
        .form(
            "torch.tensordot torch.functional.tensordot",
            "tensordot(Tensor self, Tensor other, Any dims_self=2) -> Tensor",
        ),
        Op::composite(
            "addr",
            "addr(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
            addr,
        )
        .doc("beta * self + alpha * outer(vec1, vec2)")
        .spelled("aten.addr.default torch.addr Tensor.addr"),
        Op::composite(
            "vecdot",
            "linalg_vecdot(Tensor x, Tensor y, *, int dim=-1) -> Tensor",
            vecdot,
        )
        .doc("sums of products along a dim")
        .spelled("aten.linalg_vecdot.default torch.linalg.vecdot"),
        Op::composite("multi_dot", "linalg_multi_dot(Tensor[] tensors) -> Tensor", multi_dot)
            .doc("product of several matrices")
            .spelled("aten.linalg_multi_dot.default torch.linalg.multi_dot aten.chain_matmul.default"),
        Op::composite(
            "bilinear",
            "bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None) -> Tensor",
            bilinear,
        )
        .doc("input1 @ weight[o] @ input2 for every o, plus bias")
        .spelled("aten.bilinear.default torch.bilinear torch.nn.functional.bilinear")
        .module(
            "Bilinear(in1_features, in2_features, out_features, bias=True) = bilinear($0, $1, @weight, @bias if bias)",
        ),
        Op::composite("kron", "kron(Tensor self, Tensor other) -> Tensor", kron)
            .doc("Kronecker product")
            .spelled("aten.kron.default torch.kron Tensor.kron"),
    ]
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
    b.binary("mul", &x, y).map(Val::Leaf)
}

fn addr(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let product = b.call("outer", vec![c.get("vec1").clone(), c.get("vec2").clone()])?;
    let product = b.binary("mul", product, c.get("alpha").clone())?;
    if c.get("beta").as_f64() == Some(0.0) {
        return Ok(product.into());
    }
    let addend = b.binary("mul", c.get("self").clone(), c.get("beta").clone())?;
    b.binary("add", &addend, &product).map(Val::Leaf)
}

fn inner(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, y) = (c.leaf("self")?, c.leaf("other")?);
    if x.rank()? == 0 || y.rank()? == 0 {
        return b.binary("mul", x, y).map(Val::Leaf);
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

/// Sums of products along pairs of dims: `[other dims of x] + [other dims of y]`.
fn contract_dims(b: &mut dyn Build, x: &Traced, y: &Traced, dx: &[i64], dy: &[i64]) -> OpResult<Val<Traced>> {
    if dx.len() != dy.len() {
        return Err(OpError::shape("both dimension lists should have same length"));
    }
    let wrap = |v: &[i64], rank: usize| v.iter().map(|&d| wrap_dim(d, rank)).collect::<OpResult<Vec<_>>>();
    let (dx_, dy_) = (wrap(dx, x.rank()?)?, wrap(dy, y.rank()?)?);
    for (i, j) in dx_.iter().zip(&dy_) {
        let (p, q) = (&x.shape()?[*i], &y.shape()?[*j]);
        if p.sub(q).as_const().is_some_and(|d| d != 0) {
            return Err(OpError::shape(format!(
                "contracted dimensions need to match, but first has size {p} in dim {} and second has size {q} in dim {}",
                dx[0], dy[0]
            )));
        }
    }
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
    let out = b.binary("mm", &px, &py)?;
    b.reshape(&out, &[sx, sy].concat()).map(Val::Leaf)
}

fn tensordot(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, y) = (c.leaf("self")?, c.leaf("other")?);
    let how = c.get("dims_self");
    let list = |v: &Val<Traced>| -> OpResult<Vec<i64>> {
        let items = v.items().unwrap_or_default();
        items
            .iter()
            .map(|x| x.as_int().ok_or_else(|| OpError::arg("dims_self", "dims must be ints")))
            .collect()
    };
    if let Some(n) = how.as_int() {
        let (rx, ry) = (x.rank()? as i64, y.rank()? as i64);
        if n < 0 || n > rx.min(ry) {
            return Err(OpError::shape(format!(
                "tensordot expects 0 <= dims <= {}, but got dims={n}",
                rx.min(ry)
            )));
        }
        let dx: Vec<i64> = (rx - n..rx).collect();
        return contract_dims(b, x, y, &dx, &(0..n).collect::<Vec<_>>());
    }
    if !c.is_none("dims_other") {
        return contract_dims(b, x, y, &list(how)?, &c.ints("dims_other")?);
    }
    match how.items() {
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
    let product = b.call("mul", vec![c.get("x").clone(), c.get("y").clone()])?;
    let product = product
        .as_leaf()
        .cloned()
        .ok_or_else(|| OpError::arg("x", "vecdot needs tensors"))?;
    let dim = wrap_dim(c.int("dim")?, product.rank()?)?;
    let dtype = product.dtype();
    b.op(
        "sum",
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
    if tensors.len() < 2 {
        return Err(OpError::shape(format!(
            "multi_dot(): expected at least 2 tensors but got {}",
            tensors.len()
        )));
    }
    let mut acc = tensors[0].clone();
    for t in &tensors[1..] {
        acc = b.matmul(&acc, t)?;
    }
    Ok(acc.into())
}

/// `x1 @ weight` with the outputs beside the second inputs, then a product with `x2`.
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
    // [i, o * j]
    let w2 = b.permute(w, &[1, 0, 2])?;
    let w2 = b.reshape(&w2, &[i.clone(), o.mul(j)])?;
    let t = b.binary("mm", &x2, &w2)?;
    let t = b.reshape(&t, &[n, o.clone(), j.clone()])?;
    let t = b.binary("bmm", &t, &y2)?;
    let shape = [lead, std::slice::from_ref(o)].concat();
    let t = b.op("reshape", [t.into(), dims_val(&shape)])?;
    match c.opt_leaf("bias") {
        Some(bias) => b.binary("add", &t, bias).map(Val::Leaf),
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
    let product = b.binary("mul", &xs, &ys)?;
    let out: Vec<Dim> = sx.iter().zip(&sy).map(|(p, q)| p.mul(q)).collect();
    b.reshape(&product, &out).map(Val::Leaf)
}
