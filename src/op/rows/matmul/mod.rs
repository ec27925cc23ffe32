//! Matrix products.

mod all_pairs;
mod descriptors;
mod distance;
mod dynamic;
mod einsum;
mod experts;
mod grouped;
mod pdist;
mod products;

use descriptors::{addmm, addmv, baddbmm, bmm, dot, linear, matmul, mm, mv, same_batch};

use crate::op::pointwise::not_implemented;
use crate::op::rows::spell::list_text;
use crate::op::{
    Build, Call, Contraction, Decompose, Meaning, Op, OpBuilder, OpError, OpId, OpResult, Sizes, Traced, TypeRule,
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
        matrix_product_rows(),
        vector_product_rows(),
        linear_rows(),
        matrix_addend_rows(),
        vector_addend_rows(),
        products::rows(),
        grouped::rows(),
        experts::rows(),
        einsum::rows(),
        all_pairs::rows(),
        distance::rows(),
        dynamic::rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Products whose operands are matrices.
fn matrix_product_rows() -> Vec<Op> {
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
    ]
}

/// Products whose operands may be vectors.
fn vector_product_rows() -> Vec<Op> {
    vec![
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
    ]
}

fn linear_rows() -> Vec<Op> {
    vec![
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

/// Products of matrices with an addend.
fn matrix_addend_rows() -> Vec<Op> {
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
    ]
}

/// Other products with an addend.
fn vector_addend_rows() -> Vec<Op> {
    vec![
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
    Op::new((name, schema), rule, Meaning::Decompose(f)).multiplies()
}

/// Whether the product is a sum of products of f32 or f64: a loop that runs on all threads, and whose blocks of sums are more exact than
/// the sums of a matrix product.
fn is_inner_product(x: &Traced, y: &Traced) -> OpResult<bool> {
    let vectors = x.rank()? == 1 && y.rank()? == 1 && x.shape()? == y.shape()?;
    Ok(vectors && matches!(x.dtype(), DType::F32 | DType::F64))
}

/// `x @ y` where a vector on the left is a row and a vector on the right is a column; the result lacks that dim.
fn as_matrices(b: &mut dyn Build, x: &Traced, y: &Traced) -> OpResult<Traced> {
    if is_inner_product(x, y)? {
        let terms = b.mul(x, y)?;
        return b.sum(terms);
    }
    let (row, column) = (x.rank()? == 1, y.rank()? == 1);
    let x = if row { b.unsqueeze(x, 0)? } else { x.clone() };
    let y = if column { b.unsqueeze(y, 1)? } else { y.clone() };
    let mut out = b.product(&x, &y)?;
    if column {
        let last = out.rank()? - 1;
        out = b.squeeze(&out, last)?;
    }
    if row {
        let dim = out.rank()? - if column { 1 } else { 2 };
        out = b.squeeze(&out, dim)?;
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
            let title = "output with shape {} doesn't match the broadcast shape {}";
            let title = title
                .replacen("{}", &list_text(&shape), 1)
                .replacen("{}", &list_text(bias), 1);
            return Err(OpError::shape(title));
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
