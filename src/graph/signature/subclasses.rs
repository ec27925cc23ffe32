//! Tensors of Python classes among the lifted inputs.
//!
//! A quantized weight of torchao is one parameter of a class whose attributes are tensors. Exported graphs compute with the attributes,
//! which they read with `export.access_subclass_inner_tensor(weight, "qdata")`. Each attribute becomes an input of its own,
//! `weight.qdata`, as if the module had registered it.

use super::{InputSpec, Signature};
use crate::graph::{Graph, NodeId, Opcode};
use crate::types::Val;

const ACCESS: &str = "torch.ops.export.access_subclass_inner_tensor.default";

/// An input and its specification.
type Input = (NodeId, InputSpec);

/// Replaces inputs whose attributes are read by the attributes.
pub(super) fn split_inputs(graph: &mut Graph, signature: &mut Signature) {
    let nodes = graph.placeholders();
    if nodes.len() != signature.inputs.len() || graph.find_calls(ACCESS).is_empty() {
        return;
    }
    let specs = std::mem::take(&mut signature.inputs);
    let mut left: Vec<Input> = nodes.into_iter().zip(specs).rev().collect();
    while let Some((input, spec)) = left.pop() {
        // An attribute may have attributes itself, so the parts are looked at too. Each part removes a read.
        let parts = match spec.attribute_kind() {
            Some(_) => split_input(graph, input, &spec),
            None => vec![],
        };
        if parts.is_empty() || graph[input].users().len() > 0 || graph.erase_node(input).is_err() {
            signature.inputs.push(spec);
        }
        left.extend(parts);
    }
}

/// Makes an input of each attribute of `input` that is read, after it, and returns them in reverse.
fn split_input(graph: &mut Graph, input: NodeId, spec: &InputSpec) -> Vec<Input> {
    let mut parts = vec![];
    let users: Vec<NodeId> = graph[input].users().filter(|u| graph[*u].target() == ACCESS).collect();
    for user in users.into_iter().rev() {
        let (Some(Val::Str(attribute)), Some(path)) = (graph[user].args().get(1).cloned(), &spec.target) else {
            continue;
        };
        let name = format!("{}_{attribute}", spec.name);
        let create = |g: &mut Graph| g.create_node(Opcode::Placeholder, &name, vec![], vec![], Some(&name));
        let Ok(part) = graph.inserting_after(Some(input), create) else {
            continue;
        };
        let (name, meta) = (graph[part].name().to_string(), graph[user].meta.clone());
        graph.set_target(part, Opcode::Placeholder, &name);
        *graph.meta_mut(part) = meta;
        graph.replace_all_uses_with(user, part);
        // The read has no users left.
        let _ = graph.erase_node(user);
        let part_spec = InputSpec {
            name: name.into(),
            target: Some(format!("{path}.{attribute}").into()),
            ..spec.clone()
        };
        parts.push((part, part_spec));
    }
    parts
}
