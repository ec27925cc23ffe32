//! Splits control-flow calls of the table into their parts: see [`crate::control`].

use super::{Call, OpError, OpResult};
use crate::control::{Control, ControlCall};
use crate::types::Val;
use std::sync::Arc;

/// Splits a call into its parts.
pub(crate) fn control_parts<T: Clone>(call: &Call<T>) -> OpResult<ControlCall<T>> {
    let control = call.op.control();
    let control = control.ok_or_else(|| OpError::refused("not a control-flow op"))?;
    let graph = |name| graph_argument(call, name);
    let list = |name: Option<&str>| name.map_or(Ok(vec![]), |name| list_argument(call, name));
    let [carried, rows, extra] = list_names(control);
    let parts = ControlCall {
        control,
        predicate: (control == Control::Cond).then(|| call.get("pred").clone()),
        carried: list(carried)?,
        rows: list(rows)?,
        extra: list(extra)?,
        graphs: graph_names(control)
            .iter()
            .map(|name| graph(name))
            .collect::<OpResult<_>>()?,
    };
    if parts.rows.is_empty() && iterates(control) {
        let title = format!("`{}` requires a tensor to iterate over", call.op.name);
        return Err(OpError::arg("xs", title));
    }
    Ok(parts)
}

/// The parameters of a call's graphs.
fn graph_names(control: Control) -> &'static [&'static str] {
    match control {
        Control::Cond => &["true_fn", "false_fn"],
        Control::While => &["cond_fn", "body_fn"],
        Control::Scan | Control::AssociativeScan => &["combine_fn"],
        Control::Map => &["f"],
    }
}

/// The parameters of the values that are carried, of the rows and of the other operands.
fn list_names(control: Control) -> [Option<&'static str>; 3] {
    match control {
        Control::Cond => [Some("operands"), None, None],
        Control::While => [Some("carried_inputs"), None, Some("additional_inputs")],
        Control::Scan => [Some("init"), Some("xs"), Some("additional_inputs")],
        Control::Map => [None, Some("xs"), Some("pos_args")],
        Control::AssociativeScan => [None, Some("xs"), Some("additional_inputs")],
    }
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
