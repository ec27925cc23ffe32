//! Conversions between dtypes, and between tensors and numbers.

use super::assertions::ambiguous_truth;
use crate::op::layout::has_format;
use crate::op::pointwise::pointwise;
use crate::op::{Build, Call, DtypeRule, Meaning, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::tensor::Scalar;
use crate::types::{Category, DType, Dim, ScalarKind, TensorType, Val};

pub(crate) fn rows() -> Vec<Op> {
    let mut v = vec![
        to_dtype(),
        convert_stored(),
        to_row(),
        to_copy(),
        copy_row(),
        type_as(),
        item_row(),
    ];
    v.extend([first_number(), class_name()]);
    v.extend(python_numbers());
    v
}

fn to_dtype() -> Op {
    pointwise(
        "to_dtype(Tensor self, ScalarType dtype) -> Tensor",
        DtypeRule::Given,
        "self",
    )
    .same_elements()
    .doc("every element converted to a dtype")
    .spelled("prims.convert_element_type.default prims.convert_element_type")
}

/// A row of its own, because scalar expressions do not support dtypes that are only stored.
fn convert_stored() -> Op {
    Op::new(
        "convert_stored(Tensor self, ScalarType dtype) -> Tensor",
        |c, _| {
            let x = c.leaf("self")?;
            let to = c.opt_dtype("dtype").unwrap_or(x.dtype);
            want_held(x.dtype).and_then(|()| want_held(to))?;
            Ok(Val::Leaf(TensorType {
                dtype: to,
                shape: x.shape.clone(),
            }))
        },
        Meaning::Routine(|c| {
            let x = c.leaf("self")?;
            Ok(Val::Leaf(x.to(c.opt_dtype("dtype").unwrap_or(x.dtype()))))
        }),
    )
    .doc("every element converted from or to a storage-only dtype: 8-bit floats, `u16`, `u32`, `u64`")
}

/// Rejects dtypes that are not computed with: those that only occur in files and types.
pub(in crate::op::rows) fn want_computed(dtype: DType) -> OpResult<()> {
    if dtype.is_computed() {
        return Ok(());
    }
    Err(OpError::dtype(format!(
        "fxc does not support torch.{}",
        dtype.torch_name()
    )))
}

/// Rejects dtypes that tensors cannot hold: those that only occur in types.
pub(in crate::op::rows) fn want_held(dtype: DType) -> OpResult<()> {
    match dtype.is_held() {
        true => Ok(()),
        false => want_computed(dtype),
    }
}

/// `to` with the parameters that say where and how the result is stored; they have no effect here.
const TO: &str = "to(Tensor self, ScalarType? dtype=None, *, Tensor? other=None, Device? device=None, Layout? layout=None, \
                  bool? pin_memory=None, bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) -> Tensor";

/// Methods that convert to a fixed dtype.
const DTYPE_METHODS: [(&str, DType); 10] = [
    ("Tensor.double", DType::F64),
    ("Tensor.float", DType::F32),
    ("Tensor.half", DType::F16),
    ("Tensor.bfloat16", DType::BF16),
    ("Tensor.long", DType::I64),
    ("Tensor.int", DType::I32),
    ("Tensor.short", DType::I16),
    ("Tensor.char", DType::I8),
    ("Tensor.byte", DType::U8),
    ("Tensor.bool", DType::B8),
];

fn to_row() -> Op {
    let mut op = Op::composite(("to", TO), convert_tensor)
        .doc("the tensor converted to a dtype, or to another tensor's dtype")
        .form(
            "aten.to.dtype Tensor.to",
            "to(Tensor self, ScalarType dtype, bool non_blocking=False, bool copy=False, MemoryFormat? \
             memory_format=None) -> Tensor",
        )
        .form(
            "aten.to.device Tensor.to",
            "to(Tensor self, Device? device=None, ScalarType? dtype=None, bool non_blocking=False, bool copy=False, \
             MemoryFormat? memory_format=None) -> Tensor",
        )
        .form(
            "aten.to.other Tensor.to",
            "to(Tensor self, Tensor other, bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) -> \
             Tensor",
        )
        .form(
            "aten.to.dtype_layout",
            "to(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, \
             bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) -> Tensor",
        )
        .form("Tensor.type", "type(Tensor self, ScalarType dtype, bool non_blocking=False) -> Tensor")
        .aliasing()
        .same_object(|c, layout| {
            let same = c.is_none("memory_format") || has_format(c, layout) == Some(true);
            same && c.get("copy").as_int() == Some(0)
        });
    for (path, dtype) in DTYPE_METHODS {
        let schema = "to(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor";
        op = op.form_with(path, schema, &[("dtype", Val::DType(dtype))]);
    }
    op
}

fn to_copy() -> Op {
    Op::composite("_to_copy(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, \
         bool non_blocking=False, MemoryFormat? memory_format=None) -> Tensor",
        |b, c| {
            let x = c.leaf("self")?;
            match c.opt_dtype("dtype") {
                Some(d) if d != x.dtype() => b.to_dtype(x, d).map(Val::Leaf),
                _ => b.clone(x).map(Val::Leaf),
            }
        },
    )
    .same_elements()
    .doc("a copy converted to a dtype")
    .spelled("aten.@")
}

/// In-place calls of this row write new values of buffers and inputs back.
fn copy_row() -> Op {
    Op::composite(
        "copy(Tensor self, Tensor src, bool non_blocking=False) -> Tensor",
        |b, c| {
            let (to, src) = (c.leaf("self")?, c.leaf("src")?);
            let src = b.expand(src, to.shape()?)?;
            match src.dtype() == to.dtype() {
                true => b.clone(&src).map(Val::Leaf),
                false => b.to_dtype(&src, to.dtype()).map(Val::Leaf),
            }
        },
    )
    .doc("the elements of another tensor, broadcast and converted")
    .spelled("aten.@")
    .inplace("aten.@_ Tensor.@_")
}

fn type_as() -> Op {
    Op::composite("type_as(Tensor self, Tensor other) -> Tensor", |b, c| {
        b.to_dtype(c.leaf("self")?, c.leaf("other")?.dtype()).map(Val::Leaf)
    })
    .doc("the tensor converted to the other tensor's dtype")
    .spelled("aten.@ Tensor.@")
    .aliasing()
}

fn convert_tensor(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("self")?;
    let dtype = c
        .opt_leaf("other")
        .map(Traced::dtype)
        .or(c.opt_dtype("dtype"))
        .unwrap_or(x.dtype());
    // A call that returns its operand itself is not decomposed.
    let moves = matches!(c.get("memory_format"), Val::TorchName(f) if !f.ends_with("preserve_format"));
    if dtype == x.dtype() && (moves || c.bool("copy")?) {
        return b.clone(x).map(Val::Leaf);
    }
    b.to_dtype(x, dtype).map(Val::Leaf)
}

fn item_row() -> Op {
    Op::new(
        "item(Tensor self) -> Scalar",
        |c, _| {
            let x = c.leaf("self")?;
            if let Some(n) = x.numel().as_const().filter(|&n| n != 1) {
                return Err(OpError::shape(format!(
                    "a Tensor with {n} elements cannot be converted to Scalar"
                )));
            }
            Ok(Val::Any(match x.dtype.category() {
                Category::Bool => ScalarKind::Bool,
                Category::Int => ScalarKind::Int,
                _ => ScalarKind::Float,
            }))
        },
        Meaning::Routine(|c| {
            let x = c.leaf("self")?;
            let v = x.item().ok_or_else(|| {
                OpError::shape(format!(
                    "a Tensor with {} elements cannot be converted to Scalar",
                    x.numel()
                ))
            })?;
            match v {
                Scalar::Int(DType::U64, i) if i < 0 => Err(OpError::value(format!(
                    "{v} exceeds the signed 64-bit range that fxc uses for Python ints"
                ))),
                v => Ok(scalar_to_val(v)),
            }
        }),
    )
    .doc("the single element as a number")
    .spelled("aten.@ Tensor.@")
}

/// torch's kernel behind `item` does not check that there is only one element.
fn first_number() -> Op {
    Op::composite("_local_scalar_dense(Tensor self) -> Scalar", |b, c| {
        let x = c.leaf("self")?;
        if x.ty.numel() == Dim::Const(0) {
            return Err(OpError::shape("_local_scalar_dense: Empty tensor not supported"));
        }
        let flat = b.reshape(x, &[Dim::Const(-1)])?;
        let first = b.select(&flat, 0, Dim::Const(0))?;
        b.call(OpId::Item, vec![first.into()])
    })
    .doc("the first element as a number")
    .spelled("aten.@")
}

/// torch's class name for tensors of a dtype: `torch.FloatTensor`.
fn class_name() -> Op {
    Op::new(
        "type_name(Tensor self, ScalarType? dtype=None, bool non_blocking=False) -> str",
        |c, _| {
            Ok(Val::str(&format!(
                "torch.{}Tensor",
                c.leaf("self")?.dtype.scalar_type_name()
            )))
        },
        Meaning::Host,
    )
    .doc("the name of torch's tensor class for the dtype")
    .spelled("Tensor.type")
}

/// Python's `int`, `float`, `bool` and `not` of a tensor with one element.
fn python_numbers() -> Vec<Op> {
    vec![
        Op::composite("item_int(Tensor self) -> int", |b, c| of_item(b, c, OpId::SymInt))
            .doc("the single element as an int, truncated")
            .spelled("builtins.int Tensor.__int__"),
        Op::composite("item_float(Tensor self) -> float", |b, c| of_item(b, c, OpId::SymFloat))
            .doc("the single element as a float")
            .spelled("builtins.float Tensor.__float__"),
        Op::composite("item_bool(Tensor self) -> bool", |b, c| {
            let elements = c.leaf("self")?.ty.numel();
            match elements.as_const() {
                Some(n) if n != 1 => Err(ambiguous_truth(n as usize)),
                _ => of_item(b, c, OpId::SymBool),
            }
        })
        .doc("whether the single element is nonzero")
        .spelled("builtins.bool Tensor.__bool__"),
        Op::composite("item_not(Tensor self) -> bool", |b, c| of_item(b, c, OpId::SymNot))
            .doc("whether the single element is zero")
            .spelled("operator.not_"),
    ]
}

fn of_item(b: &mut dyn Build, c: &Call<Traced>, function: OpId) -> OpResult<Val<Traced>> {
    let number = b.call(OpId::Item, vec![c.leaf("self")?.into()])?;
    b.call(function, vec![number])
}

/// A scalar as a Python number.
pub(in crate::op::rows) fn scalar_to_val<T>(v: Scalar) -> Val<T> {
    match v {
        Scalar::Bool(b) => Val::Bool(b),
        Scalar::Int(_, i) => Val::int(i),
        v => Val::Float(v.to_f64()),
    }
}
