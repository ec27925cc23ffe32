//! `torch.tensor` for arguments other than a number: nested lists, and tensors.

use crate::op::emit::{dims_val, list_val};
use crate::op::{Build, Call, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::types::{Category, DType, Dim, Val};

/// The maximum nesting depth of lists.
const DEEPEST: usize = 64;

/// The row.
pub(super) fn row() -> Op {
    Op::composite("tensor_of(Any data, ScalarType? dtype=None) -> Tensor", |b, c| {
        let (data, dtype) = (c.get("data"), c.opt_dtype("dtype"));
        if let Val::Leaf(x) = data {
            let copy = b.clone(x)?;
            return b.to_dtype(&copy, dtype.unwrap_or(x.dtype())).map(Val::Leaf);
        }
        let dtype = dtype.or(infer_dtype(data, DEEPEST)).unwrap_or(DType::F32);
        stack_nested(b, c, data, dtype, DEEPEST).map(Val::Leaf)
    })
    .doc("a tensor from nested lists of numbers, whose Python types determine the default dtype")
    .spelled("torch.tensor torch.as_tensor")
}

/// The dtype that torch infers from the numbers in a list.
fn infer_dtype(data: &Val<Traced>, depth: usize) -> Option<DType> {
    let dtype = |c: Category| match c {
        Category::Bool => DType::B8,
        Category::Int => DType::I64,
        _ => DType::F32,
    };
    match data {
        Val::Leaf(t) => Some(t.dtype()),
        Val::Bool(_) => Some(dtype(Category::Bool)),
        Val::Int(_) => Some(dtype(Category::Int)),
        Val::Float(_) => Some(dtype(Category::Float)),
        v if depth > 0 => {
            let items = v.items()?.iter().filter_map(|v| infer_dtype(v, depth - 1));
            items.reduce(|a, b| crate::types::promote_types(a, b).unwrap_or(a))
        }
        _ => None,
    }
}

fn stack_nested(
    b: &mut dyn Build,
    c: &Call<Traced>,
    data: &Val<Traced>,
    dtype: DType,
    depth: usize,
) -> OpResult<Traced> {
    match data {
        Val::Leaf(t) if t.ty.rank() == Some(0) => b.to_dtype(t, dtype),
        Val::List(items) | Val::Tuple(items) if depth > 0 => {
            if items.is_empty() {
                return b.op(OpId::Full, [dims_val(&[Dim::Const(0)]), Val::int(0), Val::DType(dtype)]);
            }
            let parts: OpResult<Vec<Traced>> = items.iter().map(|v| stack_nested(b, c, v, dtype, depth - 1)).collect();
            b.op(OpId::Stack, [list_val(&parts?), Val::int(0)])
        }
        Val::Bool(_) | Val::Int(_) | Val::Float(_) => b.op(OpId::Tensor, [data.map(Clone::clone), Val::DType(dtype)]),
        v => Err(OpError::arg(
            "data",
            format!("`{}` cannot create a tensor from a {}", c.op.name, v.kind_name()),
        )),
    }
}
