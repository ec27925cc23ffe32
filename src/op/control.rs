//! Splits control-flow calls of the table into their parts: see [`crate::control`].

use super::{Call, OpError, OpResult};
use crate::control::{Control, ControlCall};
use crate::types::Val;
use std::sync::Arc;

/// Splits a call into its parts.
pub fn control_parts<T: Clone>(call: &Call<T>) -> OpResult<ControlCall<T>> {
    let control = call.op.control();
    let control = control.ok_or_else(|| OpError::refused("not a control-flow op"))?;
    let (graph, list) = (|name| graph_argument(call, name), |name| list_argument(call, name));
    let (mut predicate, mut carried, mut rows, mut extra) = (None, vec![], vec![], vec![]);
    let graphs = match control {
        Control::Cond => {
            predicate = Some(call.get("pred").clone());
            carried = list("operands")?;
            vec![graph("true_fn")?, graph("false_fn")?]
        }
        Control::While => {
            (carried, extra) = (list("carried_inputs")?, list("additional_inputs")?);
            vec![graph("cond_fn")?, graph("body_fn")?]
        }
        Control::Scan => {
            (carried, rows, extra) = (list("init")?, list("xs")?, list("additional_inputs")?);
            vec![graph("combine_fn")?]
        }
        Control::Map => {
            (rows, extra) = (list("xs")?, list("pos_args")?);
            vec![graph("f")?]
        }
        Control::AssociativeScan => {
            (rows, extra) = (list("xs")?, list("additional_inputs")?);
            vec![graph("combine_fn")?]
        }
    };
    if rows.is_empty() && iterates(control) {
        let title = format!("`{}` requires a tensor to iterate over", call.op.name);
        return Err(OpError::arg("xs", title));
    }
    Ok(ControlCall {
        control,
        graphs,
        predicate,
        carried,
        rows,
        extra,
    })
}

/// Whether calls run a graph for each row of tensors.
fn iterates(control: Control) -> bool {
    matches!(control, Control::Scan | Control::Map | Control::AssociativeScan)
}

fn wrong_argument<T: Clone>(call: &Call<T>, name: &str, expected: &str) -> OpError {
    let (op, found) = (call.op.name, call.get(name).kind_name());
    OpError::arg(
        name,
        format!("argument `{name}` of `{op}` must be {expected}, not {found}"),
    )
}

fn graph_argument<T: Clone>(call: &Call<T>, name: &str) -> OpResult<Arc<str>> {
    match call.get(name) {
        Val::Graph(g) => Ok(g.clone()),
        v => {
            // The text does not declare the attribute: `print(graph)` shows the name of a nested graph, not its
            // contents.
            let help = match v {
                Val::Unknown => "print(graph) omits nested graphs; use print_readable(), which includes them",
                _ => "refer to a graph in this file as `@name`",
            };
            Err(wrong_argument(call, name, "a graph").help(help))
        }
    }
}

fn list_argument<T: Clone>(call: &Call<T>, name: &str) -> OpResult<Vec<Val<T>>> {
    match call.get(name) {
        Val::None => Ok(vec![]),
        Val::List(v) | Val::Tuple(v) => Ok(v.clone()),
        _ => Err(wrong_argument(call, name, "a tuple or list").help("write a tuple: `(%x,)`")),
    }
}
