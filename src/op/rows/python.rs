//! Python's own functions on tensors, sizes and sequences: attributes, `len`, `getitem` on lists and dicts.

mod items;
mod numbers;

use self::items::{getattr, item_of};
pub(in crate::op::rows) use self::numbers::truth_value;
use self::numbers::{aggregate_rows, conversion_rows, extremum_rows, math_rows};
use crate::op::{Call, Meaning, MemoryUse, Op, OpError, OpResult, RowDeclaration, Sizes, TypeRule, wrap_dim};
use crate::types::{Category, DType, Dim, ScalarKind, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    let mut v: Vec<Op> = [
        size_rows(),
        kind_rows(),
        comparison_rows(),
        sequence_rows(),
        memory_rows(),
        extremum_rows(),
        conversion_rows(),
        math_rows(),
        aggregate_rows(),
    ]
    .into_iter()
    .flatten()
    .collect();
    v.push(
        Op::composite("getattr(Any self, str name) -> Any", getattr)
            .doc("an attribute: shape, ndim, dtype, device, T, mT, …")
            .spelled("builtins.@")
            .aliasing(),
    );
    v.push(
        Op::composite("item_of(Any self, Any index) -> Any", item_of)
            .same_elements()
            .doc("an item of a list, tuple or dict")
            .spelled("operator.getitem"),
    );
    v
}

fn size_rows() -> Vec<Op> {
    vec![
        host("size(Tensor self, int? dim=None) -> Any", size_type)
            .doc("the shape, or the size of a dim")
            .spelled("Tensor.@ aten.sym_size.default aten.sym_size.int aten.@ aten.@.int"),
        host("numel(Tensor self) -> int", |c, _| {
            Ok(Val::Int(c.leaf("self")?.numel()))
        })
        .doc("the number of elements")
        .spelled("Tensor.@ Tensor.nelement torch.@ aten.sym_numel.default aten.@"),
        host("stride(Tensor self, int? dim=None) -> Any", stride_type)
            .memory(MemoryUse::Asks)
            .doc("the strides of the contiguous tensor, or the stride of a dim")
            .spelled("Tensor.@ aten.sym_stride.default aten.sym_stride.int"),
        host("dim(Tensor self) -> int", |c, _| {
            Ok(Val::int(c.shaped("self")?.1.len() as i64))
        })
        .doc("the number of dims")
        .spelled("Tensor.@ Tensor.ndimension aten.@"),
        host("len(Any self) -> int", len_type)
            .doc("the number of items")
            .spelled("builtins.@ Tensor.__len__"),
    ]
}

fn kind_rows() -> Vec<Op> {
    vec![
        host("is_floating_point(Tensor self) -> bool", |c, _| {
            Ok(Val::Bool(c.leaf("self")?.dtype.is_float()))
        })
        .doc("whether the dtype is floating-point")
        .spelled("torch.@ Tensor.@ aten.@"),
        host("is_complex(Tensor self) -> bool", |c, _| {
            Ok(Val::Bool(c.leaf("self")?.dtype.category() == Category::Complex))
        })
        .doc("whether the dtype is complex")
        .spelled("torch.@ Tensor.@"),
        host("is_signed(Tensor self) -> bool", |c, _| {
            Ok(Val::Bool(!matches!(
                c.leaf("self")?.dtype,
                DType::U8 | DType::B8 | DType::U16 | DType::U32 | DType::U64
            )))
        })
        .doc("whether the dtype is signed")
        .spelled("torch.@ Tensor.@ aten.@"),
        host("element_size(Tensor self) -> int", |c, _| {
            Ok(Val::int(c.leaf("self")?.dtype.size() as i64))
        })
        .doc("the size of an element in bytes")
        .spelled("Tensor.@"),
        host(
            "is_contiguous(Tensor self, MemoryFormat memory_format=contiguous_format) -> bool",
            |_, _| Ok(Val::Bool(true)),
        )
        .memory(MemoryUse::Asks)
        .doc("True, since all fxc tensors are contiguous")
        .spelled("Tensor.@ aten.@ aten.@.memory_format aten.sym_is_contiguous.default"),
    ]
}

/// `is_conj`, `is_same_size` and `is_tensor`.
fn comparison_rows() -> Vec<Op> {
    vec![
        host("is_conj(Tensor self) -> bool", |_, _| Ok(Val::Bool(false)))
            .doc("False: fxc has no lazy conjugation or negation and no inference mode")
            .spelled(
                "torch.is_conj Tensor.is_conj aten.is_conj.default torch.is_neg Tensor.is_neg aten.is_neg.default torch.is_inference \
                 Tensor.is_inference aten.is_inference.default",
            ),
        host("is_same_size(Tensor self, Tensor other) -> bool", |c, _| {
            let (a, b) = (c.shaped("self")?.1, c.shaped("other")?.1);
            let apart = |(a, b): (&Dim, &Dim)| a.sub(b).as_const();
            let known: Option<Vec<i64>> = a.iter().zip(b).map(apart).collect();
            Ok(match (a.len() == b.len(), known) {
                (false, _) => Val::Bool(false),
                (true, Some(apart)) => Val::Bool(apart.iter().all(|&d| d == 0)),
                (true, None) => Val::Any(ScalarKind::Bool),
            })
        })
        .doc("whether the shapes are the same")
        .spelled("torch.@ Tensor.@ aten.@"),
        host("is_tensor(Any obj) -> bool", |c, _| {
            Ok(Val::Bool(c.get("obj").as_leaf().is_some()))
        })
        .doc("whether the value is a tensor")
        .spelled("torch.@"),
    ]
}

fn sequence_rows() -> Vec<Op> {
    vec![
        // The items may be tensors, so the row rebuilds the list; it is not a host value.
        Op::composite("torch_size(Any sizes) -> Any", |_, c| {
            let items = c.get("sizes").items();
            let items = items.ok_or_else(|| OpError::arg("sizes", "torch.Size() expects a sequence of ints"))?;
            Ok(Val::Tuple(items.to_vec()))
        })
        .doc("a tuple of sizes")
        .spelled("torch.Size builtins.tuple"),
        Op::composite("list(Any items) -> Any", |_, c| match c.get("items").items() {
            Some(v) => Ok(Val::List(v.to_vec())),
            None => Err(OpError::arg(
                "items",
                format!(
                    "cannot make a list of {}",
                    crate::diag::words::with_article(c.get("items").kind_name())
                ),
            )),
        })
        .doc("a list of the items")
        .spelled("builtins.@"),
    ]
}

fn memory_rows() -> Vec<Op> {
    vec![
        host("storage_offset(Tensor self) -> int", |_, _| Ok(Val::int(0)))
            .memory(MemoryUse::Asks)
            .doc("0, since all fxc tensors start at the beginning of their memory")
            .spelled("Tensor.@ aten.sym_storage_offset.default"),
        host("tensor_get_device(Tensor self) -> int", |_, _| Ok(Val::int(-1)))
            .doc("-1, for the CPU")
            .spelled("Tensor.get_device"),
    ]
}

fn all_sizes(c: &Call<TensorType>, v: Vec<Dim>) -> OpResult<Type> {
    match c.opt_int("dim")? {
        None => Ok(Val::Tuple(v.into_iter().map(Val::Int).collect())),
        Some(d) if v.is_empty() => Err(OpError::shape(format!(
            "Dimension specified as {d} but tensor has no dimensions"
        ))),
        Some(d) => Ok(Val::Int(v[wrap_dim(d, v.len())?].clone())),
    }
}

fn size_type(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<Type> {
    all_sizes(c, c.shaped("self")?.1.to_vec())
}

fn dense_strides(shape: &[Dim]) -> Vec<Dim> {
    let mut out = vec![Dim::Const(1); shape.len()];
    for i in (1..shape.len()).rev() {
        let n = if shape[i] == Dim::Const(0) {
            Dim::Const(1)
        } else {
            shape[i].clone()
        };
        out[i - 1] = out[i].mul(&n);
    }
    out
}

fn stride_type(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<Type> {
    all_sizes(c, dense_strides(c.shaped("self")?.1))
}

fn len_type(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<Type> {
    Ok(match c.get("self") {
        Val::Leaf(t) => match t.shape.as_deref() {
            Some([]) => return Err(OpError::shape("len() of a 0-d tensor")),
            Some([n, ..]) => Val::Int(n.clone()),
            None => Val::Int(Dim::Unknown),
        },
        Val::List(v) | Val::Tuple(v) => Val::int(v.len() as i64),
        Val::Dict(v) => Val::int(v.len() as i64),
        Val::Str(s) => Val::int(s.chars().count() as i64),
        Val::Unknown => Val::Unknown,
        v => {
            return Err(OpError::arg(
                "self",
                format!("object of type '{}' has no len()", v.kind_name()),
            ));
        }
    })
}

/// An op without tensors, or on facts known about them: its type rule computes its value.
fn host(declared: impl Into<RowDeclaration>, rule: TypeRule) -> Op {
    Op::new(declared, rule, Meaning::Host)
}
