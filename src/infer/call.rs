//! Types of single calls, as inference and the passes ask for them.

use super::report;
use super::resolve::resolve_node;
use super::resolved::{Callee, Operand, Resolved, arg_type, attribute_type, is_value, kwarg_refs, result_type};
use crate::diag::{Code, Diagnostic};
use crate::graph::{Graph, GraphModule, NodeId, Opcode};
use crate::op::{Call, Meaning, OpError, ParamType, Sizes};
use crate::types::{DType, ScalarKind, TensorType, Type, Val, promote_types};

/// The type of one node, computed from the types stored in its inputs; a pass calls this for a node it created.
/// Equations between symbolic sizes are assumed to hold.
pub fn infer_node(module: &GraphModule, graph: &Graph, node: NodeId) -> Result<Type, Diagnostic> {
    let ty = |n: NodeId| graph[n].meta.ty.clone().unwrap_or(Val::Unknown);
    let n = &graph[node];
    match n.op() {
        Opcode::Placeholder => Ok(ty(node)),
        Opcode::Output => Ok(n.args().first().map_or(Val::None, |a| arg_type(a, &ty))),
        Opcode::GetAttr => Ok(attribute_type(module, n.target())),
        _ => {
            let resolved = resolve_node(module, graph, node)?;
            match &resolved.callee {
                Callee::Graph(name) => Ok(module.graphs.get(name).map_or(Val::Unknown, result_type)),
                Callee::Op(_) => {
                    let mut sizes = Sizes::default();
                    call_type(&resolved, &mut sizes).map_err(|e| report::op_error(graph, node, &resolved, e, &ty))
                }
            }
        }
    }
}

/// The result type of a resolved op call. If an argument's type is unknown, so is the result's.
pub fn call_type(resolved: &Resolved, sizes: &mut Sizes) -> Result<Type, OpError> {
    let (Callee::Op(spelling), Some(call)) = (&resolved.callee, resolved.types()) else {
        return Ok(Val::Unknown);
    };
    let mut silent = false;
    for (v, p) in call.args.iter().zip(&call.op.schema.params) {
        if has_unknown(v) {
            if p.ty != ParamType::Any {
                return Ok(Val::Unknown);
            }
            silent = true;
        }
    }
    let checked = match silent {
        true => Ok(()),
        false => spelling.check_demands(&resolved.arg_types, &kwarg_refs(&resolved.kwarg_types)),
    };
    let result = checked.and_then(|()| call.op.result_type(&call, sizes));
    if silent {
        return Ok(result.unwrap_or(Val::Unknown));
    }
    let ty = result?;
    check_result(&call, &ty)?;
    if !resolved.out.is_empty() {
        return out_type(&resolved.out, ty);
    }
    // Python's in-place operators do not mutate numbers: they return a new value.
    let is_number = call.args.first().is_some_and(|v| v.as_leaf().is_none());
    if spelling.inplace && !(is_number && spelling.path().is_some_and(|p| p.starts_with("operator."))) {
        inplace_type(&call, ty)
    } else {
        Ok(ty)
    }
}

/// Returns an error if fxc cannot represent or compute the result of a call.
fn check_result(call: &Call<TensorType>, ty: &Type) -> Result<(), OpError> {
    if is_complex(call, ty) {
        let title = "value cannot be converted to type double without overflow: fxc has no complex numbers";
        return Err(OpError::new(Code::E0202, title));
    }
    if matches!(call.op.meaning, Meaning::Host) && call.args.iter().all(is_value) && !is_value(ty) {
        // With known Python values as arguments, the result is known now or never.
        let title = format!("`{}` cannot be evaluated for these arguments", call.op.name);
        return Err(OpError::new(Code::E0202, title));
    }
    check_bytes(ty, call.op.name)
}

/// Whether a complex number is among the arguments of a call that returns tensors of type `ty`. fxc has no complex
/// tensors.
fn is_complex(call: &Call<TensorType>, ty: &Type) -> bool {
    let mut arguments = call.op.schema.params.iter().zip(&call.args);
    !ty.leaves().is_empty() && arguments.any(|(p, v)| p.ty != ParamType::Any && matches!(v, Val::Complex(..)))
}

pub(super) fn has_unknown(v: &Type) -> bool {
    match v {
        Val::Unknown => true,
        Val::List(v) | Val::Tuple(v) => v.iter().any(has_unknown),
        Val::Dict(v) => v.iter().any(|(_, x)| has_unknown(x)),
        Val::Slice(v) | Val::Range(v) => v.iter().any(has_unknown),
        _ => false,
    }
}

/// The result of an in-place call: the first parameter's type, if the result can be stored there.
pub(crate) fn inplace_type(call: &Call<TensorType>, result: Type) -> Result<Type, OpError> {
    // `x.unsqueeze_(0)` changes the shape of `x`, not its elements.
    if call.op.view.is_some() && call.op.aliases {
        return Ok(result);
    }
    match (call.args.first(), call.op.in_place) {
        (Some(Val::Leaf(target)), Some(check)) => check(call).map(|()| Val::Leaf(target.clone())),
        (Some(Val::Leaf(target)), None) => stored_type(target, result),
        (Some(number), _) => match (scalar_of(number), scalar_of(&result)) {
            (Some(target), Some(value)) => stored_type(&target, Val::Leaf(value)).map(|_| result),
            _ => Ok(result),
        },
        (None, _) => Ok(result),
    }
}

/// The type of the 0-dim tensor that torch makes of a Python number.
fn scalar_of(v: &Type) -> Option<TensorType> {
    let dtype = match v {
        Val::Leaf(t) => return Some(t.clone()),
        Val::Bool(_) | Val::Any(ScalarKind::Bool) => DType::B8,
        Val::Int(_) | Val::Any(ScalarKind::Int) => DType::I64,
        Val::Float(_) | Val::Any(ScalarKind::Float) => DType::F32,
        _ => return None,
    };
    Some(TensorType::with_fixed_shape(dtype, &[]))
}

/// The type of a call that writes its results, of type `result`, to the tensors of `out`.
fn out_type(out: &[(Operand, Type)], result: Type) -> Result<Type, OpError> {
    let stored = |target: &Type, result: Type| match target {
        Val::Leaf(t) => stored_type(t, result),
        _ => Ok(result),
    };
    let Some(items) = result.items() else {
        return match out {
            [(_, target)] => stored(target, result),
            _ => Err(wrong_number(out.len(), 1)),
        };
    };
    if items.len() != out.len() {
        return Err(wrong_number(out.len(), items.len()));
    }
    let items = out.iter().zip(items);
    let items = items
        .map(|((_, t), r)| stored(t, r.clone()))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(match result {
        Val::List(_) => Val::List(items),
        _ => Val::Tuple(items),
    })
}

/// The error of a call with `results` results but `out` tensors to write them to.
pub(crate) fn wrong_number(out: usize, results: usize) -> OpError {
    OpError::arg("out", format!("`out` has {out} tensors, but the op returns {results}"))
}

/// The type of a tensor of type `target` after a result of type `result` is written to it; an error if it cannot be
/// stored.
pub(crate) fn stored_type(target: &TensorType, result: Type) -> Result<Type, OpError> {
    let Val::Leaf(res) = &result else { return Ok(result) };
    if promote_types(target.dtype, res.dtype).is_none_or(|p| p.category() > target.dtype.category()) {
        return Err(OpError::dtype(format!(
            "result type {} can't be cast to the desired output type {}",
            res.dtype.scalar_type_name(),
            target.dtype.scalar_type_name()
        )));
    }
    if let (Some(t), Some(r)) = (target.fixed_shape(), res.fixed_shape())
        && t != r
    {
        return Err(OpError::shape(format!(
            "output with shape {t:?} doesn't match the broadcast shape {r:?}"
        )));
    }
    Ok(Val::Leaf(target.clone()))
}

/// Returns an error if a tensor in `ty` is too large for the address space. Unknown sizes are not checked.
pub(crate) fn check_bytes(ty: &Type, op: &str) -> Result<(), OpError> {
    for t in ty.leaves() {
        let Some(shape) = &t.shape else { continue };
        if shape.iter().any(|d| d.as_const().is_some_and(|c| c < 0)) {
            return Err(OpError::shape(format!(
                "`{op}` returns a tensor with a negative size: {t}"
            )));
        }
        let known: Vec<usize> = shape.iter().filter_map(|d| d.as_const().map(|c| c as usize)).collect();
        if crate::tensor::byte_len(t.dtype, &known).is_none() {
            return Err(OpError::new(
                Code::E0306,
                format!("the result of `{op}`, {t}, exceeds the address space"),
            ));
        }
    }
    Ok(())
}
