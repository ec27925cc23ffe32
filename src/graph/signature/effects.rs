//! Ops whose order torch maintains with effect tokens: `with_effects(token, op, …)` returns the next token and the op's
//! results.
//!
//! The nodes of a graph are ordered, and ops with side effects keep their order, so tokens are not needed and are
//! removed.

use super::Signature;
use crate::graph::{Arg, Graph, NodeId, Opcode};
use crate::types::Val;

const WRAPPER: &str = "torch.ops.higher_order.with_effects";

/// Calls the wrapped ops directly, and removes tokens from inputs and results. The error names the node that does not
/// have torch's form.
pub(super) fn without_tokens(graph: &mut Graph, signature: &mut Signature) -> Result<(), String> {
    if signature.inputs.len() == graph.placeholders().len() {
        tokens_of_results(graph, signature);
    }
    let mut dead = vec![];
    for n in graph.find_calls(WRAPPER) {
        unwrap_effect(graph, n, &mut dead)?;
    }
    let tokens = graph.placeholders().into_iter().zip(&signature.inputs);
    let tokens: Vec<NodeId> = tokens.filter(|(_, s)| &*s.kind == "TOKEN").map(|(n, _)| n).collect();
    signature.inputs.retain(|s| &*s.kind != "TOKEN");
    for n in dead.into_iter().rev().chain(tokens) {
        let name = graph[n].name().to_string();
        graph
            .erase_node(n)
            .map_err(|_| format!("the token `{name}` is used as a value"))?;
    }
    Ok(())
}

fn tokens_of_results(graph: &mut Graph, signature: &mut Signature) {
    let Some(output) = graph.output() else { return };
    let Some(Val::Tuple(values) | Val::List(values)) = graph[output].args().first().cloned() else {
        return;
    };
    if values.len() != signature.outputs.len() {
        return;
    }
    let values = values
        .into_iter()
        .zip(&signature.outputs)
        .filter(|(_, s)| &*s.kind != "TOKEN");
    let values = values.map(|(v, _)| v).collect();
    graph.set_args(output, vec![Val::Tuple(values)]);
    signature.outputs.retain(|s| &*s.kind != "TOKEN");
}

/// Inserts a direct call of the op before the wrapper `n`. The wrapper and what remains of its uses are added to
/// `dead`.
fn unwrap_effect(graph: &mut Graph, n: NodeId, dead: &mut Vec<NodeId>) -> Result<(), String> {
    let Some((Val::Opaque(op), args)) = graph[n]
        .args()
        .get(1)
        .cloned()
        .zip(graph[n].args().get(2..).map(<[Arg]>::to_vec))
    else {
        return Err(format!("`{}` does not specify the op to call", graph[n].name()));
    };
    let (target, kwargs) = (format!("torch.ops.{op}"), graph[n].kwargs().to_vec());
    let call = graph
        .inserting_before(Some(n), |g| g.call_function(&target, args, kwargs))
        .map_err(|e| e.to_string())?;
    let mut meta = graph[n].meta.clone();
    let mut types = match meta.ty.take() {
        Some(Val::Tuple(types)) if !types.is_empty() => types,
        _ => vec![],
    };
    // The tuple has the token and then one or more results.
    let single = types.len() <= 2;
    meta.ty = match types.len() {
        0 | 1 => None,
        2 => types.pop(),
        _ => Some(Val::Tuple(types.split_off(1))),
    };
    *graph.meta_mut(call) = meta;
    dead.push(n);
    replace_items(graph, n, call, single, dead)
}

/// Replaces the items of the wrapper's tuple: item 0 is the token, and the others are the results of `call`, which is the
/// only result itself if `single`.
fn replace_items(
    graph: &mut Graph,
    wrapper: NodeId,
    call: NodeId,
    single: bool,
    dead: &mut Vec<NodeId>,
) -> Result<(), String> {
    for user in graph[wrapper].users().collect::<Vec<_>>() {
        let index = graph[user].args().get(1).and_then(Val::as_int);
        match index {
            Some(0) => dead.push(user),
            Some(1) if single => {
                graph.replace_all_uses_with(user, call);
                dead.push(user);
            }
            Some(i) if graph[user].op() == Opcode::CallFunction => {
                graph.set_args(user, vec![Val::Leaf(call), Val::int(i - 1)]);
            }
            _ => {
                return Err(format!(
                    "`{}` is used without unpacking its items",
                    graph[wrapper].name()
                ));
            }
        }
    }
    Ok(())
}
