//! Checks: ops that raise an error or return nothing.

use crate::op::rows::python::truth_value;
use crate::op::{Call, Effect, Meaning, MemoryUse, Op, OpBuilder, OpError, OpId, OpResult, Sizes};
use crate::types::{DType, Dim, ScalarKind, TensorType, Type, Val};

/// The rows. Passes remove a check only if inference has proved that it holds.
pub(crate) fn rows() -> Vec<Op> {
    [assert_rows(), assert_scalar_rows(), range_rows(), check_rows()]
        .into_iter()
        .flatten()
        .collect()
}

/// `torch._assert` and the assertions of exported programs.
fn assert_rows() -> Vec<Op> {
    vec![
        Op::new(
            "_assert_tensor_metadata(Tensor a, SymInt[]? size=None, SymInt[]? stride=None, ScalarType? dtype=None, *, \
             Device? device=None, Layout? layout=None) -> ()",
            check_metadata,
            Meaning::Host,
        )
        .memory(MemoryUse::Checks)
        .doc("checks a tensor's dtype, layout and sizes; ignores the device")
        .spelled("aten.@")
        .effect(Effect::External),
        Op::new(
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
                    None => Err(ambiguous_truth(x.numel())),
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
        .effect(Effect::External),
    ]
}

fn assert_scalar_rows() -> Vec<Op> {
    vec![
        Op::new(
            "_assert_scalar(Any condition, str message='') -> ()",
            check_scalar,
            Meaning::Host,
        )
        .doc("checks that a number is nonzero")
        .spelled("aten.@ torch._assert")
        .effect(Effect::External),
    ]
}

/// Bounds of symbolic sizes.
fn range_rows() -> Vec<Op> {
    vec![
        Op::new(
            "sym_constrain_range(Any size, *, Any min=None, Any max=None) -> ()",
            |c, _| check_range(c, i64::MIN),
            Meaning::Host,
        )
        .doc("checks that a number is within bounds")
        .spelled("aten.@ torch.@")
        .effect(Effect::External),
        Op::new(
            "sym_constrain_range_for_size(Any size, *, Any min=None, Any max=None) -> ()",
            |c, _| match c.get("max").as_int() {
                Some(max) if max <= 2 => Err(OpError::value(format!(
                    "Max value to constrain_range_for_size must be greater than 2. got: {max}"
                ))),
                _ => check_range(c, 0),
            },
            Meaning::Host,
        )
        .doc("checks that a size is within bounds; the default lower bound is 0")
        .spelled("aten.@ torch.@")
        .effect(Effect::External),
    ]
}

/// `torch._check` and its variants.
fn check_rows() -> Vec<Op> {
    vec![
        Op::new(
            "_check(Any cond, Any message=None) -> ()",
            check_condition,
            Meaning::Host,
        )
        .doc("checks that a bool is true")
        .spelled("torch.@ torch._check_value torch._check_index torch._check_type torch._check_not_implemented")
        .effect(Effect::External),
        Op::new(
            "_check_is_size(Any i, Any message=None, *, Any max=None) -> ()",
            |c, _| match (c.get("i").as_int(), c.get("max").as_int()) {
                (Some(i), max) if i < 0 || max.is_some_and(|max| i > max) => Err(failed_check(c)),
                _ => Ok(Val::None),
            },
            Meaning::Host,
        )
        .doc("checks that a number is a valid size")
        .spelled("torch.@")
        .effect(Effect::External),
        Op::composite("_check_tensor_all(Tensor cond, Any message=None) -> ()", |b, c| {
            let all = b.all(c.leaf("cond")?)?;
            b.call(OpId::_AssertTensor, vec![all.into(), Val::str(&check_message(c))])
        })
        .doc("checks that all elements are true")
        .spelled("torch.@")
        .effect(Effect::External),
    ]
}

/// The message of a failed check: the given text, or torch's own.
fn check_message<T>(c: &Call<T>) -> String {
    match c.get("message") {
        Val::Str(s) => s.to_string(),
        _ => "Expected cond to be True, but got False. (Could this error message be improved? If so, please report an enhancement \
              request to PyTorch.)"
            .into(),
    }
}

fn failed_check<T>(c: &Call<T>) -> OpError {
    OpError::value(check_message(c))
}

fn check_condition(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<Type> {
    match c.get("cond") {
        Val::Bool(false) => Err(failed_check(c)),
        Val::Bool(true) | Val::Any(ScalarKind::Bool) | Val::Unknown => Ok(Val::None),
        Val::Leaf(_) => Err(OpError::arg("cond", "cond must be a bool, but got a Tensor")
            .help("`torch._check_tensor_all` checks that all elements are true")),
        v => Err(OpError::arg(
            "cond",
            format!("cond must be a bool, but got {}", v.kind_name()),
        )),
    }
}

/// Checks a range. Missing bounds default to `least` and the largest integer.
fn check_range(c: &Call<TensorType>, least: i64) -> OpResult<Type> {
    let bound = |name: &str, default: i64| match c.get(name) {
        Val::None => Some(default),
        v => v.as_int(),
    };
    let (Some(size), Some(min), Some(max)) = (c.get("size").as_int(), bound("min", least), bound("max", i64::MAX))
    else {
        return Ok(Val::None);
    };
    if min > max {
        let title = format!("Max must be greater than or equal to min. Got min={min} max={max}");
        return Err(OpError::value(title));
    }
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
            type_name(x.dtype)
        )));
    }
    if let Val::TorchName(layout) = c.get("layout")
        && layout.trim_start_matches("torch.") != "strided"
    {
        let title = format!(
            "Tensor layout mismatch! Expected: {}, Got: Strided",
            layout_name(layout)
        );
        return Err(OpError::value(title));
    }
    if let (false, Some(shape)) = (c.is_none("size"), &x.shape) {
        let want = c.dims("size")?;
        let listed = |s: &[Dim]| s.iter().map(Dim::to_string).collect::<Vec<_>>().join(", ");
        let text = || {
            format!(
                "Tensor sizes mismatch! Expected: [{}], Got: [{}]",
                listed(&want),
                listed(shape)
            )
        };
        if want.len() != shape.len() {
            return Err(OpError::shape(text()));
        }
        for (w, s) in want.iter().zip(shape) {
            sizes.unify_dims(w, s, text)?;
        }
    }
    Ok(Val::None)
}

fn check_scalar(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<Type> {
    match truth_value(c.get("condition")) {
        Some(false) => Err(OpError::value(c.str("message")?)),
        _ => Ok(Val::None),
    }
}

/// The error for testing the truth of a tensor that does not have exactly one element.
pub(in crate::op::rows) fn ambiguous_truth(elements: usize) -> OpError {
    let how_many = if elements == 0 {
        "no values"
    } else {
        "more than one value"
    };
    OpError::shape(format!("Boolean value of Tensor with {how_many} is ambiguous"))
}

/// The C++ name of a dtype in torch.
fn type_name(d: DType) -> String {
    let name = match d {
        DType::F64 => "double",
        DType::F32 => "float",
        DType::I64 => "long int",
        DType::I32 => "int",
        DType::I16 => "short int",
        DType::I8 => "signed char",
        DType::U8 => "unsigned char",
        DType::U16 => "short unsigned int",
        DType::U32 => "unsigned int",
        DType::U64 => "long unsigned int",
        DType::B8 => "bool",
        d => return format!("c10::{}", d.scalar_type_name()),
    };
    name.into()
}

/// The name of a layout in messages: `SparseCsr` for `torch.sparse_csr`.
fn layout_name(layout: &str) -> String {
    let words = layout.trim_start_matches("torch.").split('_').filter(|w| *w != "coo");
    let capital = |w: &str| {
        let (first, rest) = w.split_at_checked(1).unwrap_or(("", w));
        first.to_uppercase() + rest
    };
    words.map(capital).collect()
}
