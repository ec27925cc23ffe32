//! Tensors of Python classes among the lifted inputs.
//!
//! A quantized weight of torchao is one parameter of a class whose attributes are tensors. Exported graphs compute with the attributes,
//! which they read with `export.access_subclass_inner_tensor(weight, "qdata")`. Each attribute becomes an input of its own,
//! `weight.qdata`, as if the module had registered it.

use super::{InputSpec, Signature};
use crate::graph::{Graph, NodeId, Opcode};
use crate::types::Val;

const ACCESS: &str = "torch.ops.export.access_subclass_inner_tensor.default";

/// How deep tensors of Python classes may contain each other.
pub(crate) const MAX_PART_DEPTH: usize = 16;
/// The longest name of an input, in bytes. Each part of an input repeats its name.
const MAX_NAME: usize = 1 << 12;

/// An input and its specification, and how many tensors contain it.
type Input = (NodeId, InputSpec, usize);

/// Replaces inputs whose attributes are read by the attributes.
pub(super) fn split_inputs(graph: &mut Graph, signature: &mut Signature) {
    let nodes = graph.placeholders();
    if nodes.len() != signature.inputs.len() || graph.find_calls(ACCESS).is_empty() {
        return;
    }
    let specs = std::mem::take(&mut signature.inputs);
    let inputs = nodes.into_iter().zip(specs).map(|(node, spec)| (node, spec, 0));
    let mut left: Vec<Input> = inputs.rev().collect();
    while let Some((input, spec, depth)) = left.pop() {
        // An attribute may have attributes itself, so the parts are looked at too.
        let parts = match spec.attribute_kind() {
            Some(_) if depth < MAX_PART_DEPTH => split_input(graph, input, &spec, depth + 1),
            _ => vec![],
        };
        if parts.is_empty() || graph[input].users().len() > 0 || graph.erase_node(input).is_err() {
            signature.inputs.push(spec);
        }
        left.extend(parts);
    }
}

/// Makes an input at `depth` of each attribute of `input` that is read, after it, and returns them in reverse.
fn split_input(graph: &mut Graph, input: NodeId, spec: &InputSpec, depth: usize) -> Vec<Input> {
    let mut parts = vec![];
    let users: Vec<NodeId> = graph[input].users().filter(|u| graph[*u].target() == ACCESS).collect();
    for user in users.into_iter().rev() {
        let (Some(Val::Str(attribute)), Some(path)) = (graph[user].args().get(1).cloned(), &spec.target) else {
            continue;
        };
        if spec.name.len().max(path.len()) + attribute.len() >= MAX_NAME {
            continue;
        }
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
        parts.push((part, part_spec, depth));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A graph that reads attributes of `p_w` one from the other, and returns the last.
    fn chain(attributes: &[&str]) -> (Graph, Signature) {
        let mut graph = Graph::new();
        let mut last = graph.placeholder("p_w", None);
        for a in attributes {
            last = graph.call_function(ACCESS, vec![Val::Leaf(last), Val::str(a)], vec![]);
        }
        graph.set_output(Val::Leaf(last));
        let spec = InputSpec {
            name: "p_w".into(),
            kind: "PARAMETER".into(),
            target: Some("w".into()),
            persistent: None,
            constant: None,
        };
        let signature = Signature {
            inputs: vec![spec],
            ..Signature::default()
        };
        (graph, signature)
    }

    /// The inputs' names and attributes, and the number of reads that are left.
    fn split(attributes: &[&str]) -> (Vec<(String, String)>, usize) {
        let (mut graph, mut signature) = chain(attributes);
        split_inputs(&mut graph, &mut signature);
        let names: Vec<&str> = graph.placeholders().into_iter().map(|n| graph[n].name()).collect();
        let specs = signature.inputs.iter();
        let inputs = specs.map(|s| (s.name.to_string(), s.target.as_deref().unwrap_or("").to_string()));
        let inputs: Vec<_> = inputs.collect();
        assert!(inputs.iter().map(|(name, _)| name.as_str()).eq(names));
        (inputs, graph.find_calls(ACCESS).len())
    }

    #[test]
    fn attributes_of_attributes_are_inputs() {
        let one = |name: &str, target: &str| vec![(name.to_string(), target.to_string())];
        assert_eq!(split(&["qdata"]), (one("p_w_qdata", "w.qdata"), 0));
        assert_eq!(split(&["inner", "qdata"]), (one("p_w_inner_qdata", "w.inner.qdata"), 0));
    }

    /// Names of parts repeat those of the whole, so depth and length are bounded.
    #[test]
    fn deep_and_long_names_stay_reads() {
        let (inputs, left) = split(&["a"; 20]);
        assert_eq!((inputs.len(), left), (1, 20 - MAX_PART_DEPTH));
        let long = "a".repeat(MAX_NAME);
        assert_eq!(split(&[&long]).1, 1);
    }
}
