//! The dtypes of pointwise calls: promotion, and torch's errors.

use super::{Call, DtypeRule, Meaning, Op, OpError, OpResult, ParamType, Pointwise};
use crate::diag::words::with_article;
use crate::op::OpId;
use crate::scalar::UntypedNumber;
use crate::types::{Category, DType, Promotion, ScalarKind, TensorType, Type, Val, result_type};

/// The dtypes of a pointwise call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dtypes {
    /// The dtype that operands are converted to: the promoted dtype.
    pub common: DType,
    /// The dtype of the computation.
    pub compute: DType,
    /// The dtype of the result.
    pub result: DType,
}

impl Dtypes {
    fn from_dtype(d: DType) -> Dtypes {
        Dtypes {
            common: d,
            compute: d.compute_dtype(),
            result: d,
        }
    }

    fn to_bool(d: DType) -> Dtypes {
        Dtypes {
            result: DType::B8,
            ..Dtypes::from_dtype(d)
        }
    }
}

/// The row's pointwise meaning. Panics if the row is not pointwise.
pub(super) fn pointwise_meaning(op: &Op) -> &Pointwise {
    match &op.meaning {
        Meaning::Pointwise(p) => p,
        _ => panic!("{} is not pointwise", op.name),
    }
}

/// Whether a parameter is a condition, which is b8 independently of the others.
pub(super) fn is_condition(name: &str) -> bool {
    matches!(name, "condition" | "mask")
}

pub(super) fn is_tensor_param(ty: &ParamType) -> bool {
    match ty {
        ParamType::Tensor => true,
        ParamType::Optional(t) => is_tensor_param(t),
        _ => false,
    }
}

/// The values that take part in promotion.
fn promoting_args(call: &Call<TensorType>) -> impl Iterator<Item = &Type> {
    let params = call.op.schema.params.iter().zip(&call.args);
    params
        .filter(|(p, v)| is_tensor_param(&p.ty) && !is_condition(&p.name) && !v.is_none())
        .map(|(_, v)| v)
}

/// The category of a number; `None` for other values.
fn category_of<T>(v: &Val<T>) -> Option<Category> {
    Some(match v {
        Val::Bool(_) | Val::Any(ScalarKind::Bool) => Category::Bool,
        Val::Int(_) | Val::Any(ScalarKind::Int) => Category::Int,
        Val::Float(_) | Val::Any(ScalarKind::Float) => Category::Float,
        Val::Complex(..) => Category::Complex,
        _ => return None,
    })
}

/// The promoted dtype of the tensor parameters.
fn promoted_dtype(call: &Call<TensorType>) -> OpResult<DType> {
    let mut operands = vec![];
    for v in promoting_args(call) {
        operands.push(match v {
            Val::Leaf(t) if t.rank() == Some(0) => Promotion::ZeroDim(t.dtype),
            Val::Leaf(t) => Promotion::Dimensioned(t.dtype),
            v => match category_of(v) {
                Some(c) => Promotion::Number(c),
                None => {
                    return Err(refused_operands(
                        call,
                        format!("{} is not a valid operand", with_article(v.kind_name())),
                    ));
                }
            },
        });
    }
    let d = result_type(operands.iter().copied()).ok_or_else(|| no_promotion(call, &operands))?;
    if !d.is_computed() {
        return Err(refused_operands(
            call,
            format!("fxc does not support {}", d.torch_name()),
        ));
    }
    Ok(d)
}

fn no_promotion(call: &Call<TensorType>, operands: &[Promotion]) -> OpError {
    let dtypes: Vec<&str> = operands
        .iter()
        .filter_map(|o| match o {
            Promotion::Dimensioned(d) | Promotion::ZeroDim(d) => Some(d.torch_name()),
            Promotion::Number(_) => None,
        })
        .collect();
    refused_operands(
        call,
        format!("Promotion for {} types is not supported", dtypes.join(", ")),
    )
}

pub(super) fn refused_operands(call: &Call<TensorType>, reason: String) -> OpError {
    OpError::dtype(format!("invalid operands for `{}`: {reason}", call.op.name))
}

/// torch's error for a kernel that does not support a dtype.
pub(crate) fn not_implemented(kernel: &str, d: DType) -> OpError {
    OpError::dtype(format!("\"{kernel}\" not implemented for '{}'", d.scalar_type_name()))
}

/// The dtypes of a call, or torch's error.
pub(crate) fn call_dtypes(call: &Call<TensorType>) -> OpResult<Dtypes> {
    check_conditions(call)?;
    if let Some(t) = call
        .args
        .iter()
        .filter_map(Val::as_leaf)
        .find(|t| !t.dtype.is_computed())
    {
        return Err(refused_operands(
            call,
            format!("fxc does not support {}", t.dtype.torch_name()),
        ));
    }
    dtypes_by_rule(call, pointwise_meaning(call.op).dtypes)
}

fn dtypes_by_rule(call: &Call<TensorType>, rule: DtypeRule) -> OpResult<Dtypes> {
    let (float, bool) = (|d: DType| d.is_float(), |d: DType| d == DType::B8);
    let refuse = |d: DType, bad: bool, kernel: &str| match bad {
        true => Err(not_implemented(kernel, d)),
        false => Ok(Dtypes::from_dtype(d)),
    };
    match rule {
        DtypeRule::Promote => promoted_dtype(call).map(Dtypes::from_dtype),
        DtypeRule::PromoteFloat => promoted_dtype(call).map(|d| Dtypes::from_dtype(d.to_float())),
        DtypeRule::WideFloat(k) => promoted_dtype(call).and_then(|d| refuse(d.to_float(), d.compute_dtype() != d, k)),
        DtypeRule::FloatOnly(k) => promoted_dtype(call).and_then(|d| refuse(d, !float(d), k)),
        DtypeRule::NoBool(k) => promoted_dtype(call).and_then(|d| refuse(d, bool(d), k)),
        DtypeRule::NoBoolMessage(text) => match promoted_dtype(call)? {
            DType::B8 => Err(OpError::dtype(text)),
            d => Ok(Dtypes::from_dtype(d)),
        },
        DtypeRule::Subtract => subtract_dtypes(call),
        DtypeRule::IntOrBool(k) => promoted_dtype(call).and_then(|d| refuse(d, float(d), k)),
        DtypeRule::IntOnly(k) => promoted_dtype(call).and_then(|d| refuse(d, !d.is_int(), k)),
        DtypeRule::Division => match call.get("rounding_mode").as_str() {
            None => promoted_dtype(call).map(|d| Dtypes::from_dtype(d.to_float())),
            Some(mode) => promoted_dtype(call).and_then(|d| refuse(d, bool(d), &format!("div_{mode}_cpu"))),
        },
        DtypeRule::Addcdiv => addcdiv_dtypes(call),
        DtypeRule::BoolToInt => promoted_dtype(call).map(|d| Dtypes::from_dtype(if bool(d) { DType::I64 } else { d })),
        DtypeRule::Double => promoted_dtype(call).map(|_| Dtypes::from_dtype(DType::F64)),
        DtypeRule::Compare | DtypeRule::Predicate => promoted_dtype(call).map(Dtypes::to_bool),
        DtypeRule::Logical => promoted_dtype(call).map(|_| Dtypes::from_dtype(DType::B8)),
        DtypeRule::Given => given_dtypes(call, DType::F32),
        DtypeRule::GivenByValue => given_dtypes(call, default_of_numbers(call)),
        DtypeRule::First => first_tensor(call).map(|t| Dtypes::from_dtype(t.dtype)),
        DtypeRule::Same(k) => same_dtypes(call, k),
    }
}

/// `addcdiv` refuses to divide integers by integers.
fn addcdiv_dtypes(call: &Call<TensorType>) -> OpResult<Dtypes> {
    let integral = |p| call.opt_leaf(p).is_none_or(|t| !t.dtype.is_float());
    match integral("tensor1") && integral("tensor2") {
        true => Err(OpError::dtype(INTEGER_ADDCDIV)),
        false => promoted_dtype(call).map(Dtypes::from_dtype),
    }
}

/// torch's error text.
const INTEGER_ADDCDIV: &str = "Integer division with addcdiv is no longer supported, and in a future  release addcdiv \
     will perform a true division of tensor1 and tensor2. The historic addcdiv behavior can be implemented as (input + \
     value * torch.trunc(tensor1 / tensor2)).to(input.dtype) for integer inputs and as (input + value * tensor1 / \
     tensor2) for float inputs. The future addcdiv behavior is just the latter implementation: (input + value * \
     tensor1 / tensor2), for all dtypes.";

fn check_conditions(call: &Call<TensorType>) -> OpResult<()> {
    for (p, v) in call.op.schema.params.iter().zip(&call.args) {
        let Val::Leaf(t) = v else { continue };
        // `where` still accepts u8, which used to be torch's boolean type.
        let fits = t.dtype == DType::B8 || (t.dtype == DType::U8 && p.name == "condition");
        if is_condition(&p.name) && !fits {
            let title = match &*p.name {
                "condition" => format!(
                    "where expected condition to be a boolean tensor, but got a tensor with dtype {}",
                    t.dtype.scalar_type_name()
                ),
                _ => format!(
                    "masked_fill_ only supports boolean masks, but got mask with dtype {}",
                    t.dtype.cpp_name()
                ),
            };
            return Err(OpError::dtype(title));
        }
    }
    Ok(())
}

fn subtract_dtypes(call: &Call<TensorType>) -> OpResult<Dtypes> {
    let is_bool = |v: &Type| match v {
        Val::Leaf(t) => t.dtype == DType::B8,
        v => category_of(v) == Some(Category::Bool),
    };
    match promoting_args(call).filter(|v| is_bool(v)).count() {
        0 => promoted_dtype(call).map(Dtypes::from_dtype),
        1 => Err(OpError::dtype(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, \
             use the `~` or `logical_not()` operator instead.",
        )),
        _ => Err(OpError::dtype(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` \
             operator instead.",
        )),
    }
}

/// The first tensor argument.
fn first_tensor(call: &Call<TensorType>) -> OpResult<&TensorType> {
    let t = call.args.iter().find_map(Val::as_leaf);
    let t = t.ok_or_else(|| refused_operands(call, "no operand is a tensor".into()))?;
    if !t.dtype.is_computed() {
        let d = t.dtype.torch_name();
        return Err(refused_operands(call, format!("fxc does not support {d}")));
    }
    Ok(t)
}

fn given_dtypes(call: &Call<TensorType>, default: DType) -> OpResult<Dtypes> {
    let explicit = call.op.schema.index_of("dtype").and_then(|_| call.opt_dtype("dtype"));
    let d = match explicit {
        Some(d) => d,
        None => call.args.iter().find_map(Val::as_leaf).map_or(default, |t| t.dtype),
    };
    if !d.is_computed() {
        return Err(refused_operands(
            call,
            format!("fxc does not support {}", d.torch_name()),
        ));
    }
    Ok(Dtypes::from_dtype(d))
}

/// The dtype of a tensor that torch creates from the call's `Scalar` arguments.
fn default_of_numbers(call: &Call<TensorType>) -> DType {
    let params = call.op.schema.params.iter().zip(&call.args);
    let numbers = params.filter(|(p, _)| matches!(p.ty, ParamType::Number));
    match numbers.filter_map(|(_, v)| category_of(v)).max() {
        Some(Category::Int) => DType::I64,
        Some(Category::Bool) => DType::B8,
        _ => DType::F32,
    }
}

fn same_dtypes(call: &Call<TensorType>, kernel: &str) -> OpResult<Dtypes> {
    let d = first_tensor(call)?.dtype;
    if !d.is_float() {
        return Err(not_implemented(kernel, d));
    }
    for (p, v) in call.op.schema.params.iter().zip(&call.args) {
        // A 0-dim weight counts as a number, so its dtype may differ.
        let number = matches!(v, Val::Leaf(t) if t.rank() == Some(0)) && p.name == "weight";
        if let Val::Leaf(t) = v
            && t.dtype != d
            && !number
        {
            return Err(OpError::dtype(format!(
                "expected dtype {} for `{}` but got dtype {}",
                d.cpp_name(),
                p.name,
                t.dtype.cpp_name()
            )));
        }
    }
    Ok(Dtypes::from_dtype(d))
}

/// Rejects numbers that the dtype cannot hold, as torch does where it converts them directly. Where it first makes
/// 0-dim tensors of them, they wrap around instead.
pub(super) fn check_numbers(call: &Call<TensorType>, d: DType) -> OpResult<()> {
    for (p, v) in call.op.schema.params.iter().zip(&call.args) {
        let converted = matches!(p.ty, ParamType::Number) && !call.op.is(OpId::Arange)
            || matches!(
                (call.op.id(), &*p.name),
                (Some(OpId::Fill | OpId::MaskedFill), "value") | (Some(OpId::Pow), "exponent")
            )
            || call.op.is(OpId::Where);
        let as_float = d.is_half() && !call.op.is(OpId::MaskedFill);
        if let Some(n) = number_of(v)
            && converted
            && overflows(n, if as_float { DType::F32 } else { d })
        {
            return Err(overflow_error(d));
        }
    }
    Ok(())
}

/// c10's `overflows`: whether `dtype` cannot hold the number. Negative numbers may wrap around in unsigned types;
/// infinities fit floats.
pub(crate) fn overflows(n: UntypedNumber, dtype: DType) -> bool {
    let x = n.to_f64();
    match (dtype, n) {
        (DType::B8, _) => false,
        (DType::U8, UntypedNumber::Int(i)) => !(-255..=255).contains(&i),
        (d, UntypedNumber::Int(_)) if d.is_int() => n.to_scalar(d).to_i64() != n.to_scalar(DType::I64).to_i64(),
        (d, _) if d.is_int() => {
            let half = 2f64.powi(d.size() as i32 * 8 - 1);
            let (low, high) = if d == DType::U8 {
                (0.0, 255.0)
            } else {
                (-half, half - 1.0)
            };
            !(low..=high).contains(&x)
        }
        (d, _) => x.is_finite() && n.to_scalar(d).to_f64().is_infinite(),
    }
}

/// torch's error for a number that `dtype` cannot hold.
pub(crate) fn overflow_error(dtype: DType) -> OpError {
    let name = match dtype {
        DType::U8 => "uint8_t",
        DType::I8 => "int8_t",
        DType::I16 => "int16_t",
        DType::I64 => "int64_t",
        d => d.cpp_name(),
    };
    OpError::value(format!("value cannot be converted to type {name} without overflow"))
}

/// The value as a constant number.
pub(crate) fn number_of<T>(v: &Val<T>) -> Option<UntypedNumber> {
    match v {
        Val::Bool(b) => Some(UntypedNumber::Bool(*b)),
        Val::Int(d) => d.as_const().map(UntypedNumber::Int),
        Val::Float(x) => Some(UntypedNumber::Float(*x)),
        _ => None,
    }
}
