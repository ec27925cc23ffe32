//! Instantiates pointwise ops: dtypes, shapes and expressions for arguments of given types.

pub(crate) use super::promotion::{Dtypes, call_dtypes, not_implemented, number_of, overflow_error, overflows};

use super::promotion::{check_numbers, is_condition, is_tensor_param, pointwise_meaning, refused_operands};
use super::{
    Call, DtypeRule, ExprText, Meaning, Op, OpError, OpResult, ParamType, Pointwise, PointwiseCall, RowDeclaration,
    ShapeRule, Sizes, number,
};
use crate::diag::Code;
use crate::scalar::{DTypeSettings, ParsedValue, ScalarExpr, UntypedNumber, parse};
use crate::types::{Category, DType, Dim, TensorType, Type, Val};

/// A pointwise row with a fixed expression, whose result has the broadcast shape.
pub(crate) fn pointwise(declared: impl Into<RowDeclaration>, dtypes: DtypeRule, text: &'static str) -> Op {
    pointwise_row(declared, dtypes, ShapeRule::Broadcast, ExprText::Fixed(text))
}

/// A pointwise row whose expression depends on the arguments.
pub(crate) fn pointwise_by(
    declared: impl Into<RowDeclaration>,
    dtypes: DtypeRule,
    text: fn(&Call<TensorType>) -> OpResult<&'static str>,
) -> Op {
    pointwise_row(declared, dtypes, ShapeRule::Broadcast, ExprText::By(text))
}

/// A row that creates a tensor from numbers and indices.
pub(crate) fn creation_row(
    declared: impl Into<RowDeclaration>,
    dtypes: DtypeRule,
    shape: fn(&Call<TensorType>) -> OpResult<Vec<Dim>>,
    text: &'static str,
) -> Op {
    pointwise_row(declared, dtypes, ShapeRule::By(shape), ExprText::Fixed(text))
}

/// A pointwise row.
pub(crate) fn pointwise_row(
    declared: impl Into<RowDeclaration>,
    dtypes: DtypeRule,
    shape: ShapeRule,
    expr: ExprText,
) -> Op {
    let meaning = Pointwise {
        dtypes,
        shape,
        expr,
        wide_numbers: false,
    };
    Op::new(declared, pointwise_rule, Meaning::Pointwise(meaning))
}

impl Op {
    /// Sets [`Pointwise::wide_numbers`]. Panics on a row that is not pointwise.
    pub fn wide_numbers(mut self) -> Op {
        let Meaning::Pointwise(p) = &mut self.meaning else {
            panic!("{} is not pointwise", self.name)
        };
        p.wide_numbers = true;
        self
    }
}

/// The type rule of pointwise ops. If all arguments are Python numbers, the result is a Python number, as for Python's
/// operators.
pub(crate) fn pointwise_rule(call: &Call<TensorType>, sizes: &mut Sizes) -> OpResult<Type> {
    let p = pointwise_meaning(call.op);
    if call.args.iter().any(|v| matches!(v, Val::Unknown)) {
        return Ok(Val::Unknown);
    }
    let tensors = call.args.iter().filter_map(Val::as_leaf);
    if matches!(p.shape, ShapeRule::Broadcast) && tensors.clone().next().is_none() {
        return call
            .op
            .id()
            .and_then(|id| number::eval_op(id, &call.args))
            .unwrap_or_else(|| {
                let name = call.op.schema.params.first().map_or("self", |p| &p.name);
                Err(OpError::arg(
                    name,
                    format!("`{}` requires a tensor operand", call.op.name),
                ))
            });
    }
    if let ExprText::By(f) = p.expr {
        f(call)?;
    }
    let dtypes = call_dtypes(call)?;
    check_numbers(call, dtypes.common)?;
    let dtype = dtypes.result;
    let shape = match p.shape {
        ShapeRule::By(f) => Some(f(call)?),
        ShapeRule::Broadcast => {
            let mut shape = Some(vec![]);
            for t in tensors {
                shape = match (shape, &t.shape) {
                    (Some(a), Some(b)) => Some(sizes.broadcast(&a, b)?),
                    _ => None,
                };
            }
            shape
        }
    };
    Ok(Val::Leaf(TensorType { dtype, shape }))
}

/// The call's expression, with promotion and rounding as explicit casts, and the parameters that are its operands.
pub(crate) fn instantiate(call: &Call<TensorType>) -> OpResult<PointwiseCall> {
    let p = pointwise_meaning(call.op);
    let Val::Leaf(out) = pointwise_rule(call, &mut Sizes::default())? else {
        let reason = "no operand is a tensor with a known type";
        return Err(refused_operands(call, reason.into()));
    };
    let dtypes = call_dtypes(call)?;
    let text = match p.expr {
        ExprText::Fixed(t) => t,
        ExprText::By(f) => f(call)?,
    };
    let settings = DTypeSettings {
        compute: dtypes.compute,
        storage: dtypes.common,
    };
    let mut expr = ScalarExpr::new();
    let mut operands: Vec<usize> = vec![];
    let mut failed = None;
    let value = parse(text, settings, &mut expr, &mut |name, expr| {
        let i = call.op.schema.index_of(name).filter(|&i| !call.args[i].is_none())?;
        match param_input(call, i, dtypes, p.wide_numbers, &mut operands, expr) {
            Ok(v) => Some(v),
            Err(e) => {
                failed = Some(e);
                None
            }
        }
    });
    if let Some(e) = failed {
        return Err(e);
    }
    let value =
        value.map_err(|e| not_implemented(&format!("{}_cpu", call.op.name), dtypes.common).note(e.to_string()))?;
    expr.roots = vec![expr.cast(dtypes.result, value)];
    Ok(PointwiseCall { expr, operands, out })
}

/// The input of the expression for parameter `i`.
fn param_input(
    call: &Call<TensorType>,
    i: usize,
    dtypes: Dtypes,
    wide_numbers: bool,
    operands: &mut Vec<usize>,
    expr: &mut ScalarExpr,
) -> OpResult<ParsedValue> {
    let param = &call.op.schema.params[i];
    let condition = is_condition(&param.name);
    if let Val::Leaf(t) = &call.args[i] {
        let n = operands.iter().position(|&o| o == i).unwrap_or_else(|| {
            operands.push(i);
            operands.len() - 1
        });
        let arg = expr.arg(n as u32, t.dtype);
        if condition {
            return Ok(ParsedValue::Value(expr.cast(DType::B8, arg)));
        }
        // torch does not round the 0-dim operands of some ops to the common dtype.
        let keep = wide_numbers && t.rank() == Some(0) && t.dtype.is_float() && dtypes.common.is_float();
        let arg = if keep { arg } else { expr.cast(dtypes.common, arg) };
        return Ok(ParsedValue::Value(expr.cast(dtypes.compute, arg)));
    }
    let n = number_of(&call.args[i]).ok_or_else(|| unknown_number(call, &param.name, &call.args[i]))?;
    let promotes = is_tensor_param(&param.ty);
    let scalar = promotes || matches!(&param.ty, ParamType::Number);
    Ok(ParsedValue::Number(match dtypes.common.category() {
        Category::Float if promotes && !wide_numbers => UntypedNumber::from_scalar(n.to_scalar(dtypes.common)),
        Category::Int | Category::Bool if scalar => UntypedNumber::from_scalar(n.to_scalar(dtypes.common)),
        _ => n,
    }))
}

fn unknown_number(call: &Call<TensorType>, name: &str, v: &Type) -> OpError {
    let title = format!(
        "the value of `{name}` of `{}` must be a known number, not {}",
        call.op.name,
        v.kind_name()
    );
    OpError {
        code: Code::E0304,
        ..OpError::arg(name, title)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{OpId, all, by_name, emit::call_of};

    /// A sample value for a parameter of this type.
    fn sample(ty: &ParamType, name: &str, tensor: &TensorType) -> Type {
        match ty {
            ParamType::Tensor if is_condition(name) => Val::Leaf(TensorType::with_fixed_shape(DType::B8, &[2, 3])),
            ParamType::Tensor if name == "value" => Val::Leaf(TensorType::with_fixed_shape(tensor.dtype, &[])),
            ParamType::Tensor => Val::Leaf(tensor.clone()),
            ParamType::Optional(t) => sample(t, name, tensor),
            ParamType::Number | ParamType::Int => Val::int(1),
            ParamType::Float => Val::Float(1.0),
            ParamType::Bool => Val::Bool(false),
            ParamType::DType => Val::DType(tensor.dtype),
            ParamType::List(..) => Val::List(vec![Val::int(2), Val::int(3)]),
            _ => Val::None,
        }
    }

    #[test]
    fn every_row_is_an_expression_for_every_dtype_it_takes() {
        for op in all() {
            if !matches!(op.meaning, Meaning::Pointwise(_)) {
                continue;
            }
            let mut taken = 0;
            for d in DType::COMPUTED {
                let tensor = TensorType::with_fixed_shape(d, &[2, 3]);
                let params = op.schema.params.iter();
                let args = params.map(|p| match (&p.default, is_tensor_param(&p.ty)) {
                    (Some(v), false) => crate::op::lift_literal(v),
                    _ => sample(&p.ty, &p.name, &tensor),
                });
                let call = Call {
                    op,
                    args: args.collect(),
                };
                match instantiate(&call) {
                    Ok(p) => {
                        taken += 1;
                        assert_eq!(p.expr.dtype(p.expr.roots[0]), p.out.dtype, "{op:?} of {d}");
                    }
                    Err(e) => assert!(
                        e.notes.is_empty() && !op.doc.is_empty(),
                        "{op:?} of {d}: {} {:?}",
                        e.title,
                        e.notes
                    ),
                }
            }
            assert!(taken > 0, "{op:?} takes no dtype");
        }
    }

    #[test]
    fn bools_are_refused_where_torch_has_no_kernel() {
        let of = |d: DType| Val::Leaf(TensorType::with_fixed_shape(d, &[3]));
        let (bools, floats) = (of(DType::B8), of(DType::F32));
        let result = |op: OpId, args: &[&Type]| {
            let call = call_of(op.op(), args.iter().map(|&v| v.clone()).collect());
            call.op.result_type(&call, &mut Sizes::default()).map_err(|e| e.title)
        };
        for (op, args, kernel) in [
            (OpId::Ldexp, vec![&floats, &bools], "ldexp_cpu_exp"),
            (OpId::Clamp, vec![&bools, &Val::Bool(true)], "clamp_min_scalar_cpu"),
            (
                OpId::Clamp,
                vec![&bools, &Val::None, &Val::Bool(true)],
                "clamp_max_scalar_cpu",
            ),
            (
                OpId::Clamp,
                vec![&bools, &Val::Bool(false), &Val::Bool(true)],
                "clamp_scalar_cpu",
            ),
            (OpId::Clamp, vec![&bools, &bools, &bools], "clamp_cpu"),
        ] {
            let want = format!("\"{kernel}\" not implemented for 'Bool'");
            assert_eq!(result(op, &args), Err(want), "{op} {args:?}");
        }
        assert_eq!(result(OpId::Ldexp, &[&bools, &bools]), Ok(floats.clone()));
        assert_eq!(result(OpId::Clamp, &[&bools, &bools]), Ok(bools.clone()));
        assert_eq!(result(OpId::Clamp, &[&bools, &Val::int(1)]), Ok(of(DType::I64)));
    }

    #[test]
    fn scalar_overloads_refuse_tensors() {
        let x = Val::Leaf(TensorType::with_fixed_shape(DType::F32, &[3]));
        let scalar = Val::Leaf(TensorType::with_fixed_shape(DType::F32, &[]));
        let takes = |path: &str, args: &[&Type]| {
            let args: Vec<Type> = args.iter().map(|&v| v.clone()).collect();
            crate::op::resolve(path, &args, &[]).is_ok()
        };
        for path in [
            "aten.mul.Scalar",
            "aten.pow.Tensor_Scalar",
            "aten.pow.Scalar",
            "aten.eq.Scalar",
        ] {
            assert!(!takes(path, &[&x, &x]), "{path}");
            assert!(!takes(path, &[&x, &scalar]), "{path}");
        }
        assert!(takes("aten.mul.Scalar", &[&x, &Val::Float(2.0)]));
        assert!(takes("aten.pow.Scalar", &[&Val::int(2), &x]));
        assert!(takes("aten.mul.Tensor", &[&x, &x]));
        assert!(takes(
            "aten.mul.Scalar",
            &[&x, &Val::Any(crate::types::ScalarKind::Float)]
        ));
    }

    #[test]
    fn numbers_alone_are_python_s() {
        let call = call_of(OpId::Add.op(), vec![Val::int(2), Val::Float(0.5)]);
        assert_eq!(pointwise_rule(&call, &mut Sizes::default()), Ok(Val::Float(2.5)));
        let call = call_of(OpId::Exp.op(), vec![Val::int(2)]);
        assert!(pointwise_rule(&call, &mut Sizes::default()).is_err());
        assert!(by_name("add").is_some());
    }
}
