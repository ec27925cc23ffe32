//! Sizes of results and parameters (torch's `graph_manipulation`), and types from actual values (`ShapeProp`).

use crate::diag::Diagnostic;
use crate::graph::{Graph, GraphModule, NodeId, Opcode};
use crate::interp::{Interpreter, RuntimeValue};
use crate::tensor::byte_len;
use crate::types::Type;
use std::collections::HashMap;

/// Bytes of one node (torch's `size_bytes`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeSize {
    /// Bytes of its result.
    pub output: usize,
    /// Bytes of the parameters and buffers of the module it calls, or of the attribute it reads.
    pub parameters: usize,
}

impl NodeSize {
    /// The sum of both.
    pub fn total(&self) -> usize {
        self.output.saturating_add(self.parameters)
    }
}

/// The bytes of all tensors of a type. Symbolic and unknown sizes count as 1.
pub fn bytes_of(ty: &Type) -> usize {
    let leaves = ty.leaves().into_iter().filter_map(|t| {
        let dims = t.shape.iter().flatten();
        let shape: Vec<usize> = dims.map(|d| d.as_const().map_or(1, |c| c.max(0) as usize)).collect();
        byte_len(t.dtype, &shape)
    });
    leaves.fold(0, usize::saturating_add)
}

/// The size of a node.
pub fn size_of(module: &GraphModule, graph: &Graph, n: NodeId) -> NodeSize {
    let node = &graph[n];
    let output = node.meta.ty.as_ref().map_or(0, bytes_of);
    let below = |path: &str| match node.op() {
        Opcode::CallModule => path.strip_prefix(node.target()).is_some_and(|r| r.starts_with('.')),
        Opcode::GetAttr => path == node.target(),
        _ => false,
    };
    let attributes = module.attributes.iter().filter(|(path, _)| below(path));
    let types = attributes.map(|(_, a)| match (&a.value, &a.ty) {
        (Some(v), _) => v.bytes().len(),
        (None, Some(t)) => bytes_of(t),
        (None, None) => 0,
    });
    NodeSize {
        output,
        parameters: types.fold(0, usize::saturating_add),
    }
}

/// The sizes of all nodes of the entry graph (torch's `get_size_of_all_nodes`).
pub fn size_of_all_nodes(module: &GraphModule) -> HashMap<NodeId, NodeSize> {
    let graph = module.entry();
    let each = |g: &Graph| g.iter().map(|n| (n, size_of(module, g, n))).collect();
    graph.map(each).unwrap_or_default()
}

/// Replaces the opcode and target of every node that has those of `from` (torch's `replace_target_nodes_with`). Returns
/// their number.
pub fn replace_target_nodes_with(graph: &mut Graph, from: (Opcode, &str), to: (Opcode, &str)) -> usize {
    let nodes = graph.find_nodes(from.0, Some(from.1));
    nodes.iter().for_each(|&n| graph.set_target(n, to.0, to.1));
    nodes.len()
}

/// Runs the entry graph and gives every node the type of its value (torch's `ShapeProp`). If there are no inputs to run
/// with, use [`infer`](crate::infer::infer()), which corresponds to `FakeTensorProp`.
///
/// # Errors
/// Whatever the run reports.
pub fn shape_prop(module: &mut GraphModule, inputs: Vec<RuntimeValue>) -> Result<RuntimeValue, Diagnostic> {
    let mut interpreter = Interpreter::new(module);
    interpreter.keep_values();
    let result = interpreter.run(inputs)?;
    let types: Vec<(NodeId, Type)> = interpreter.env().iter().map(|(n, v)| (*n, v.map(|t| t.ty()))).collect();
    if let Some(graph) = module.entry_mut() {
        types.into_iter().for_each(|(n, ty)| graph.meta_mut(n).ty = Some(ty));
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Tensor;
    use crate::types::Val;

    #[test]
    fn types_and_bytes_come_from_values() {
        let g = Graph::trace(&["x"], |t, p| {
            let y = p[0].method("sum", (0,)) * t.attribute("w");
            (y.clone(), y.method("double", ()))
        });
        let mut m = GraphModule::new("g", g);
        m.add_parameter("w", Tensor::from_slice(&[3], &[1f32, 2.0, 3.0]));
        let x = Tensor::from_slice(&[2, 3], &[0f32; 6]);
        shape_prop(&mut m, vec![Val::Leaf(x)]).unwrap();
        let g = m.entry().unwrap();
        let ty = |n: &str| g[g.find(n).unwrap()].meta.ty.as_ref().unwrap().to_string();
        assert_eq!((ty("sum_1").as_str(), ty("double").as_str()), ("f32[3]", "f64[3]"));
        let sizes = size_of_all_nodes(&m);
        let of = |n: &str| sizes[&g.find(n).unwrap()];
        assert_eq!(of("w").total(), 24);
        assert_eq!((of("double").output, of("output").output), (24, 36));
        let g = m.entry_mut().unwrap();
        let changed = replace_target_nodes_with(g, (Opcode::CallMethod, "double"), (Opcode::CallMethod, "half"));
        assert_eq!((changed, g.find_calls("half").len()), (1, 1));
    }
}
