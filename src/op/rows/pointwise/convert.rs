//! Conversions between dtypes, and between tensors and numbers.

use crate::op::pointwise::pointwise;
use crate::op::{Build, Call, DtypeRule, Effect, Meaning, Op, OpError, OpResult, Sizes, Traced};
use crate::tensor::Scalar;
use crate::types::{Category, DType, Kind, TensorType, Type, Val};

/// The rows.
pub fn rows() -> Vec<Op> {
    let mut v = vec![to_dtype(), convert_float8(), to(), to_copy(), copy(), type_as(), item()];
    v.extend(assertions());
    v
}

fn to_dtype() -> Op {
    pointwise(
        "to_dtype",
        "to_dtype(Tensor self, ScalarType dtype) -> Tensor",
        DtypeRule::Given,
        "self",
    )
    .doc("every element converted to a dtype")
    .spelled("prims.convert_element_type.default prims.convert_element_type")
}

/// A step of its own: expressions know nothing of 8-bit floats.
fn convert_float8() -> Op {
    Op::new(
        "convert_float8",
        "convert_float8(Tensor self, ScalarType dtype) -> Tensor",
        |c, _| {
            let x = c.leaf("self")?;
            let to = c.opt_dtype("dtype").unwrap_or(x.dtype);
            for d in [x.dtype, to].into_iter().filter(|d| !d.is_float8()) {
                computed(d)?;
            }
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
    .doc("every element converted from or to an 8-bit float, whose values have no other arithmetic")
}

/// Refuses the dtypes that only stand in files and types.
pub(in crate::op::rows) fn computed(dtype: DType) -> OpResult<()> {
    if dtype.is_computed() {
        return Ok(());
    }
    Err(OpError::dtype(format!(
        "fxc does not compute with torch.{}",
        dtype.torch_name()
    )))
}

/// Parameters that say where and how a result is stored, which changes nothing here.
const TO: &str = "to(Tensor self, ScalarType? dtype=None, *, Tensor? other=None, Device? device=None, Layout? layout=None, \
                  bool? pin_memory=None, bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) -> Tensor";

fn to() -> Op {
    let mut op = Op::composite("to", TO, convert)
        .doc("converted to a dtype, or to another tensor's; itself if it has it")
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
        .aliasing();
    for (path, dtype) in [
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
    ] {
        let schema = "to(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor";
        op = op.form_with(path, schema, &[("dtype", Val::DType(dtype))]);
    }
    op
}

fn to_copy() -> Op {
    Op::composite(
        "_to_copy",
        "_to_copy(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, \
         bool non_blocking=False, MemoryFormat? memory_format=None) -> Tensor",
        |b, c| {
            let x = c.leaf("self")?;
            match c.opt_dtype("dtype") {
                Some(d) if d != x.dtype() => b.to_dtype(x, d).map(Val::Leaf),
                _ => b.op("clone", [x.into()]).map(Val::Leaf),
            }
        },
    )
    .doc("a copy, converted to a dtype")
    .spelled("aten._to_copy.default")
}

/// In place, this is how new values of buffers and inputs reach them.
fn copy() -> Op {
    Op::composite(
        "copy",
        "copy(Tensor self, Tensor src, bool non_blocking=False) -> Tensor",
        |b, c| {
            let (to, src) = (c.leaf("self")?, c.leaf("src")?);
            let src = b.expand(src, to.shape()?)?;
            match src.dtype() == to.dtype() {
                true => b.op("clone", [(&src).into()]).map(Val::Leaf),
                false => b.to_dtype(&src, to.dtype()).map(Val::Leaf),
            }
        },
    )
    .doc("the elements of another tensor, broadcast and converted")
    .spelled("aten.copy.default")
    .inplace("aten.copy_.default Tensor.copy_")
}

fn type_as() -> Op {
    Op::composite("type_as", "type_as(Tensor self, Tensor other) -> Tensor", |b, c| {
        b.to_dtype(c.leaf("self")?, c.leaf("other")?.dtype()).map(Val::Leaf)
    })
    .doc("converted to the other tensor's dtype")
    .spelled("aten.type_as.default Tensor.type_as")
    .aliasing()
}

fn convert(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("self")?;
    let dtype = c
        .opt_leaf("other")
        .map(Traced::dtype)
        .or(c.opt_dtype("dtype"))
        .unwrap_or(x.dtype());
    if dtype == x.dtype() && c.bool("copy")? {
        return b.op("clone", [x.into()]).map(Val::Leaf);
    }
    b.to_dtype(x, dtype).map(Val::Leaf)
}

fn item() -> Op {
    Op::new(
        "item",
        "item(Tensor self) -> Scalar",
        |c, _| {
            let x = c.leaf("self")?;
            if let Some(n) = x.numel().as_const().filter(|&n| n != 1) {
                return Err(OpError::shape(format!(
                    "a Tensor with {n} elements cannot be converted to Scalar"
                )));
            }
            Ok(Val::Any(match x.dtype.category() {
                Category::Bool => Kind::Bool,
                Category::Int => Kind::Int,
                _ => Kind::Float,
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
            Ok(number(v))
        }),
    )
    .doc("the only element as a number")
    .spelled(
        "aten.item.default aten._local_scalar_dense.default Tensor.item builtins.int builtins.float builtins.bool \
         Tensor.__int__ Tensor.__float__ Tensor.__bool__",
    )
}

/// A scalar as a Python number.
pub(in crate::op::rows) fn number<T>(v: Scalar) -> Val<T> {
    match v {
        Scalar::Bool(b) => Val::Bool(b),
        Scalar::Int(_, i) => Val::int(i),
        v => Val::Float(v.to_f64()),
    }
}

fn assertions() -> Vec<Op> {
    vec![
        Op::new(
            "_assert_tensor_metadata",
            "_assert_tensor_metadata(Tensor a, SymInt[]? size=None, SymInt[]? stride=None, ScalarType? dtype=None, *, \
             Device? device=None, Layout? layout=None) -> ()",
            check_metadata,
            Meaning::Host,
        )
        .doc("checks a tensor's dtype and sizes")
        .spelled("aten._assert_tensor_metadata.default")
        .effect(Effect::Effect),
        Op::new(
            "_assert_tensor",
            "_assert_tensor(Tensor condition, str message='') -> ()",
            |_, _| Ok(Val::None),
            Meaning::Routine(|c| {
                let x = c.leaf("condition")?;
                match x.item() {
                    Some(v) if v.to_bool() => Ok(Val::None),
                    Some(_) if c.str("message")?.is_empty() => Err(OpError::value(
                        "Expected Tensor with single nonzero value, but got zero",
                    )),
                    Some(_) => Err(OpError::value(c.str("message")?)),
                    None => Err(OpError::shape(format!(
                        "Boolean value of Tensor with {} values is ambiguous",
                        x.numel()
                    ))),
                }
            }),
        )
        .doc("checks that a one-element tensor is true")
        .form(
            "aten._assert_async.msg",
            "_assert_async(Tensor condition, str message) -> ()",
        )
        .form("aten._assert_async.default", "_assert_async(Tensor condition) -> ()")
        .spelled("torch._assert torch._assert_async")
        .effect(Effect::Effect),
        Op::new(
            "_assert_scalar",
            "_assert_scalar(Any condition, str message='') -> ()",
            check_scalar,
            Meaning::Host,
        )
        .doc("checks that a number is not zero")
        .spelled("aten._assert_scalar.default torch._assert")
        .effect(Effect::Effect),
        Op::new(
            "sym_constrain_range",
            "sym_constrain_range(Any size, *, Any min=None, Any max=None) -> ()",
            |c, _| check_range(c, i64::MIN),
            Meaning::Host,
        )
        .doc("checks that a number is within bounds")
        .spelled("aten.sym_constrain_range.default torch.sym_constrain_range")
        .effect(Effect::Effect),
        Op::new(
            "sym_constrain_range_for_size",
            "sym_constrain_range_for_size(Any size, *, Any min=None, Any max=None) -> ()",
            |c, _| match c.get("max").as_int() {
                Some(max) if max <= 2 => Err(OpError::value(format!(
                    "Max value to constrain_range_for_size must be greater than 2. got: {max}"
                ))),
                _ => check_range(c, 0),
            },
            Meaning::Host,
        )
        .doc("checks that a size is within bounds, which begin at 0 where they are not given")
        .spelled("aten.sym_constrain_range_for_size.default torch.sym_constrain_range_for_size")
        .effect(Effect::Effect),
        Op::new(
            "_check",
            "_check(Any cond, Any message=None) -> ()",
            check_condition,
            Meaning::Host,
        )
        .doc("checks that a bool is true")
        .spelled("torch._check torch._check_value torch._check_index torch._check_type torch._check_not_implemented")
        .effect(Effect::Effect),
        Op::new(
            "_check_is_size",
            "_check_is_size(Any i, Any message=None, *, Any max=None) -> ()",
            |c, _| match (c.get("i").as_int(), c.get("max").as_int()) {
                (Some(i), max) if i < 0 || max.is_some_and(|max| i > max) => Err(failed(c)),
                _ => Ok(Val::None),
            },
            Meaning::Host,
        )
        .doc("checks that a number can be a size")
        .spelled("torch._check_is_size")
        .effect(Effect::Effect),
        Op::composite(
            "_check_tensor_all",
            "_check_tensor_all(Tensor cond, Any message=None) -> ()",
            |b, c| {
                let all = b.op("all", [c.leaf("cond")?.into()])?;
                b.call("_assert_tensor", vec![all.into(), Val::str(&message(c))])
            },
        )
        .doc("checks that all elements are true")
        .spelled("torch._check_tensor_all")
        .effect(Effect::Effect),
    ]
}

/// What a check says: a text that was given, or torch's own.
fn message<T>(c: &Call<T>) -> String {
    match c.get("message") {
        Val::Str(s) => s.to_string(),
        _ => "Expected cond to be True, but got False.".into(),
    }
}

fn failed<T>(c: &Call<T>) -> OpError {
    OpError::value(message(c))
}

fn check_condition(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<Type> {
    match c.get("cond") {
        Val::Bool(false) => Err(failed(c)),
        Val::Bool(true) | Val::Any(Kind::Bool) | Val::Unknown => Ok(Val::None),
        Val::Leaf(_) => Err(OpError::arg("cond", "cond must be a bool, but got a Tensor")
            .help("`torch._check_tensor_all` checks that all elements are true")),
        v => Err(OpError::arg(
            "cond",
            format!("cond must be a bool, but got {}", v.kind_name()),
        )),
    }
}

/// Bounds that are not given are `least` and the largest integer.
fn check_range(c: &Call<TensorType>, least: i64) -> OpResult<Type> {
    let bound = |name: &str, default: i64| match c.get(name) {
        Val::None => Some(default),
        v => v.as_int(),
    };
    let (Some(size), Some(min), Some(max)) = (c.get("size").as_int(), bound("min", least), bound("max", i64::MAX))
    else {
        return Ok(Val::None);
    };
    match (min..=max).contains(&size) {
        true => Ok(Val::None),
        false => Err(OpError::value(format!(
            "Invalid value range for {size} between [{min}, {max}]."
        ))),
    }
}

fn check_metadata(c: &Call<TensorType>, sizes: &mut Sizes) -> OpResult<Type> {
    let x = c.leaf("a")?;
    if let Some(want) = c.opt_dtype("dtype").filter(|&d| d != x.dtype) {
        return Err(OpError::dtype(format!(
            "Tensor dtype mismatch! Expected: {}, Got: {}",
            want.scalar_type_name(),
            x.dtype.scalar_type_name()
        )));
    }
    if let (false, Some(shape)) = (c.is_none("size"), &x.shape) {
        let want = c.dims("size")?;
        let text = || format!("Tensor sizes mismatch! Expected: {want:?}, Got: {shape:?}");
        if want.len() != shape.len() {
            return Err(OpError::shape(text()));
        }
        for (w, s) in want.iter().zip(shape) {
            sizes.equal(w, s, text)?;
        }
    }
    Ok(Val::None)
}

fn check_scalar(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<Type> {
    match c.get("condition").as_int() {
        Some(0) => Err(OpError::value(c.str("message")?)),
        _ => Ok(Val::None),
    }
}
