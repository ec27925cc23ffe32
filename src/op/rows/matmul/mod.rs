//! Matrix products.

mod distance;
mod dynamic;
mod einsum;
mod grouped;
mod products;

use crate::op::pointwise::not_implemented;
use crate::op::rows::spell::list_text;
use crate::op::{
    Build, Call, Contraction, Decompose, MatrixProduct, Meaning, Op, OpBuilder, OpError, OpId, OpResult, Sizes, Traced,
    TypeRule,
};
use crate::types::{DType, Dim, TensorType, Type, Val};

/// A contraction row. One rule provides both its type rule and its meaning.
macro_rules! contract_op {
    ($schema:literal, $rule:path) => {
        Op::new(
            $schema,
            |c, s| contracted($rule(c, s)?),
            Meaning::Contract(|c| $rule(c, &mut Sizes::default())),
        )
    };
}
pub(in crate::op::rows) use contract_op;

/// The type of a contraction's result.
pub(in crate::op::rows) fn contracted(c: Contraction) -> OpResult<Type> {
    if !c.out().dtype.is_computed() {
        return Err(not_implemented("addmm_impl_cpu_", c.out().dtype));
    }
    Ok(Val::Leaf(match c {
        Contraction::MatMul(p) => p.out,
        Contraction::Conv(c) => c.out,
    }))
}

pub(super) fn rows() -> Vec<Op> {
    [
        product_rows(),
        with_addend(),
        products::rows(),
        grouped::rows(),
        einsum::rows(),
        distance::rows(),
        dynamic::rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn product_rows() -> Vec<Op> {
    vec![
        contract_op!("mm(Tensor self, Tensor mat2) -> Tensor", mm)
            .new_memory()
            .doc("the product of two matrices")
            .spelled("aten.@ torch.@ Tensor.@ torch.spmm"),
        contract_op!("bmm(Tensor self, Tensor mat2) -> Tensor", bmm)
            .new_memory()
            .doc("the products of two batches of matrices")
            .spelled("aten.@ torch.@ Tensor.@"),
        contract_op!("product(Tensor self, Tensor other) -> Tensor", matmul)
            .doc("the products of batches of matrices with broadcast batch dims"),
        contract_op!(
            "affine(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
            linear
        )
        .doc("input @ weight.T + bias for an input of rank 2 or more"),
        vector_op(
            "matmul",
            "matmul(Tensor self, Tensor other) -> Tensor",
            |c, s| contracted(matmul(c, s)?),
            |b, c| as_matrices(b, c.leaf("self")?, c.leaf("other")?).map(Val::Leaf),
        )
        .new_memory()
        .doc("the product of matrices or vectors with broadcast batch dims")
        .spelled(
            "aten.matmul.default aten.linalg_matmul.default torch.matmul torch.linalg.matmul Tensor.matmul \
                 Tensor.__matmul__ operator.matmul operator.imatmul",
        ),
        vector_op(
            "mv",
            "mv(Tensor self, Tensor vec) -> Tensor",
            |c, s| contracted(mv(c, s)?),
            |b, c| as_matrices(b, c.leaf("self")?, c.leaf("vec")?).map(Val::Leaf),
        )
        .doc("the product of a matrix and a vector")
        .spelled("aten.@ torch.@ Tensor.@"),
        vector_op(
            "dot",
            "dot(Tensor self, Tensor tensor) -> Tensor",
            |c, s| contracted(dot(c, s)?),
            |b, c| as_matrices(b, c.leaf("self")?, c.leaf("tensor")?).map(Val::Leaf),
        )
        .doc("the inner product of two vectors")
        .spelled("aten.@ torch.@ Tensor.@")
        .form(
            "aten.vdot.default torch.vdot Tensor.vdot",
            "vdot(Tensor self, Tensor tensor) -> Tensor",
        ),
        vector_op(
            "linear",
            "linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
            linear_type,
            linear_of_vectors,
        )
        .new_memory()
        .doc("input @ weight.T + bias")
        .spelled("aten.@ torch.nn.functional.@ torch._C._nn.@")
        .module(
            "Linear(in_features, out_features, bias=True) = linear(input, @weight[out_features, in_features], \
             @bias[out_features] if bias)",
        )
        .module(
            "NonDynamicallyQuantizableLinear(in_features, out_features, bias=True) = linear(input, \
             @weight[out_features, in_features], @bias[out_features] if bias)",
        ),
    ]
}

fn with_addend() -> Vec<Op> {
    vec![
        contract_op!(
            "addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
            addmm
        )
        .new_memory()
        .doc("beta * self + alpha * mat1 @ mat2")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ Tensor.@_"),
        contract_op!(
            "baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
            baddbmm
        )
        .new_memory()
        .doc("beta * self + alpha * batch1 @ batch2, matrix by matrix")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ Tensor.@_"),
        vector_op(
            "addmv",
            "addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
            |c, s| contracted(addmv(c, s)?),
            |b, c| {
                let (bias, v) = (c.leaf("self")?, c.leaf("vec")?);
                let column = b.unsqueeze(v, 1)?;
                let bias = if bias.rank()? == 1 {
                    b.unsqueeze(bias, 1)?
                } else {
                    bias.clone()
                };
                let (beta, alpha) = (c.get("beta").clone(), c.get("alpha").clone());
                let y = b.op(
                    OpId::Addmm,
                    [bias.into(), c.get("mat").clone(), column.into(), beta, alpha],
                )?;
                b.squeeze(&y, 1).map(Val::Leaf)
            },
        )
        .doc("beta * self + alpha * mat @ vec")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ torch.@_ Tensor.@_"),
        Op::composite(
            "addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
            addbmm,
        )
        .doc("beta * self + alpha * the sum of batch1 @ batch2 over the batch")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ Tensor.@_"),
    ]
}

/// A row that torch also defines for vectors. It becomes a matrix product after reshaping; its own type rule has
/// torch's messages.
fn vector_op(name: &'static str, schema: &'static str, rule: TypeRule, f: Decompose) -> Op {
    Op::new((name, schema), rule, Meaning::Decompose(f))
}

/// `x @ y` where a vector on the left is a row and a vector on the right is a column; the result lacks that dim.
fn as_matrices(b: &mut dyn Build, x: &Traced, y: &Traced) -> OpResult<Traced> {
    let (row, column) = (x.rank()? == 1, y.rank()? == 1);
    let x = if row { b.unsqueeze(x, 0)? } else { x.clone() };
    let y = if column { b.unsqueeze(y, 1)? } else { y.clone() };
    let mut out = b.product(&x, &y)?;
    if column {
        let last = out.rank()? - 1;
        out = b.squeeze(&out, last)?;
    }
    if row {
        let at = out.rank()? - if column { 1 } else { 2 };
        out = b.squeeze(&out, at)?;
    }
    Ok(out)
}

/// Whether torch adds the bias in a separate step: if the bias is not a vector, the input is not a matrix, and the bias
/// has another dtype or a higher rank. Such a bias may have leading dims of size 1.
fn is_added(c: &Call<TensorType>) -> OpResult<bool> {
    let Some(bias) = c.opt_leaf("bias") else {
        return Ok(false);
    };
    let (rank, dtype) = (c.shaped("bias")?.1.len(), c.leaf("input")?.dtype);
    let x = c.shaped("input")?.1.len();
    Ok(x != 2 && rank != 1 && (bias.dtype != dtype || rank > x))
}

fn linear_type(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Type> {
    if !is_added(c)? {
        return contracted(linear(c, s)?);
    }
    let out = contracted(linear(&without_bias(c), s)?)?;
    let (bias, shape) = (c.shaped("bias")?.1, out.as_leaf().and_then(|t| t.shape.clone()));
    if let Some(shape) = shape {
        let lead = bias.len().saturating_sub(shape.len());
        let broadcast = s.broadcast(&bias[lead..], &shape)?;
        if broadcast != shape || bias[..lead].iter().any(|d| *d != Dim::Const(1)) {
            let what = "output with shape {} doesn't match the broadcast shape {}";
            let what = what
                .replacen("{}", &list_text(&shape), 1)
                .replacen("{}", &list_text(bias), 1);
            return Err(OpError::shape(what));
        }
    }
    Ok(out)
}

fn without_bias<T: Clone>(c: &Call<T>) -> Call<T> {
    let mut args = c.args.clone();
    if let Some(bias) = c.op.schema.index_of("bias") {
        args[bias] = Val::None;
    }
    Call { op: c.op, args }
}

fn linear_of_vectors(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    if is_added(&c.types())? {
        let out = linear_of_vectors(b, &without_bias(c))?;
        let (Val::Leaf(out), bias) = (out, c.leaf("bias")?) else {
            return Err(OpError::shape("linear returns a tensor"));
        };
        let lead = bias.rank()?.saturating_sub(out.rank()?);
        let shape = bias.shape()?[lead..].to_vec();
        let bias = b.reshape(bias, &shape)?;
        let bias = b.to_dtype(&bias, out.dtype())?;
        return b.add(&out, &bias).map(Val::Leaf);
    }
    let (x, w) = (c.leaf("input")?, c.leaf("weight")?);
    let (row, column) = (x.rank()? == 1, w.rank()? == 1);
    let x = if row { b.unsqueeze(x, 0)? } else { x.clone() };
    let w = if column { b.unsqueeze(w, 0)? } else { w.clone() };
    let mut out = b.op(OpId::Affine, [x.into(), w.into(), c.get("bias").clone()])?;
    if column {
        let last = out.rank()? - 1;
        out = b.squeeze(&out, last)?;
    }
    if row {
        out = b.squeeze(&out, 0)?;
    }
    Ok(out.into())
}

/// The dtype of both operands, which must be equal.
pub(in crate::op::rows) fn same_dtype(a: DType, b: DType) -> OpResult<DType> {
    if a != b {
        return Err(OpError::dtype(format!(
            "expected m1 and m2 to have the same dtype, but got: {} != {}",
            a.cpp_name(),
            b.cpp_name()
        ))
        .help("convert one of them with `to`: matrix products do not promote dtypes"));
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

/// The parameters of a product.
struct ProductParams<'a> {
    a: &'a str,
    b: &'a str,
    bias: Option<&'a str>,
    b_transposed: bool,
}

impl ProductParams<'_> {
    /// The contraction by the rules of `matmul`: an operand of rank 1 is a row on the left or a column on the right,
    /// and the result lacks that dim.
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
        Ok(Contraction::MatMul(MatrixProduct {
            a: index(self.a),
            b: index(self.b),
            bias,
            a_transposed: false,
            b_transposed: self.b_transposed && b.len() > 1,
            alpha,
            beta,
            out: TensorType::new(dtype, shape),
        }))
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
            s.unify_dims(want, have, || {
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
pub(in crate::op::rows) fn matmul_shape(a: &[Dim], b: &[Dim], b_transposed: bool, s: &mut Sizes) -> OpResult<Vec<Dim>> {
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
    s.unify_dims(ka, kb, || match (a, b) {
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
                _ => {
                    let which = if name == names[0] { "batch1" } else { "batch2" };
                    format!("{which} must be a 3D tensor")
                }
            }));
        }
    }
    Ok(())
}

const fn plain_product<'a>(a: &'a str, b: &'a str) -> ProductParams<'a> {
    ProductParams {
        a,
        b,
        bias: None,
        b_transposed: false,
    }
}

fn mm(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Contraction> {
    want_rank(c, ["self", "mat2"], 2)?;
    plain_product("self", "mat2").build(c, s)
}

/// Requires equal batch sizes; batches are not broadcast.
fn same_batch(c: &Call<TensorType>, names: [&str; 2], s: &mut Sizes) -> OpResult<()> {
    want_rank(c, names, 3)?;
    let (a, b) = (c.shaped(names[0])?.1, c.shaped(names[1])?.1);
    s.unify_dims(&a[0], &b[0], || {
        format!(
            "Expected size for first two dimensions of batch2 tensor to be: [{}, {}] but got: [{}, {}].",
            a[0], a[2], b[0], b[1]
        )
    })?;
    Ok(())
}

fn bmm(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Contraction> {
    same_batch(c, ["self", "mat2"], s)?;
    plain_product("self", "mat2").build(c, s)
}

fn matmul(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Contraction> {
    plain_product("self", "other").build(c, s)
}

fn mv(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Contraction> {
    let (a, v) = (c.shaped("self")?.1.len(), c.shaped("vec")?.1.len());
    if (a, v) != (2, 1) {
        return Err(OpError::shape(format!(
            "vector + matrix @ vector expected, got {}, {a}, {v}",
            1
        )));
    }
    plain_product("self", "vec").build(c, s)
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
    plain_product("self", "tensor").build(c, s)
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
    ProductParams {
        a: "input",
        b: "weight",
        bias: Some("bias"),
        b_transposed: true,
    }
    .build(c, s)
}

fn addmm(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Contraction> {
    want_rank(c, ["mat1", "mat2"], 2)?;
    ProductParams {
        a: "mat1",
        b: "mat2",
        bias: Some("self"),
        b_transposed: false,
    }
    .build(c, s)
}

fn baddbmm(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Contraction> {
    same_batch(c, ["batch1", "batch2"], s)?;
    ProductParams {
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
    ProductParams {
        a: "mat",
        b: "vec",
        bias: Some("self"),
        b_transposed: false,
    }
    .build(c, s)
}

/// The sum over the batch is a single product, with the batch merged into the inner dim.
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
    b.call(OpId::Addmm, args)
}
