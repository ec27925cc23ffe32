//! Passes every argument by name, defaults included (torch.fx's `NormalizeArgs`).
//!
//! For programs that look up arguments by parameter without having to handle positions and defaults.
//!
#![doc = include_str!("../examples/named-arguments.md")]

use crate::diag::Diagnostic;
use crate::graph::{Arg, Graph, GraphModule, NodeId};
use crate::infer::{self, Operand};
use crate::op::Op;
use crate::pass::build::full_args;
use crate::pass::{PassContext, canonical_op, each_graph};
use crate::types::Val;
use std::sync::Arc;

/// See the module.
pub fn run(module: &mut GraphModule, _cx: &mut PassContext) -> Result<usize, Diagnostic> {
    each_graph(module, |_, graph| {
        let mut changed = 0;
        for n in graph.ids() {
            let Some(op) = canonical_op(graph, n) else { continue };
            let Ok(args) = full_args(op, graph, n) else { continue };
            let named: Vec<(Arc<str>, Arg)> = op
                .schema
                .params
                .iter()
                .zip(args)
                .map(|(p, a)| (Arc::from(p.name.as_str()), a))
                .collect();
            if graph[n].args().is_empty() && graph[n].kwargs() == named {
                continue;
            }
            graph.set_args(n, vec![]);
            graph.set_kwargs(n, named);
            changed += 1;
        }
        Ok(changed)
    })
}

/// An op and its arguments by parameter.
pub type Named = (&'static Op, Vec<(Arc<str>, Val<Operand>)>);

/// The op that a call resolves to, in any spelling, and its arguments by parameter with defaults (torch's
/// `Node.normalized_arguments`). A module's parameters are given by path. `None` for a node that is not a call of an
/// op.
///
/// # Errors
/// Whatever inference reports of an invalid call.
pub fn normalized_arguments(module: &GraphModule, graph: &Graph, n: NodeId) -> Result<Option<Named>, Diagnostic> {
    if !graph[n].op().is_call() {
        return Ok(None);
    }
    let Some(call) = infer::resolve_node(module, graph, n)?.call() else {
        return Ok(None);
    };
    let names = call.op.schema.params.iter().map(|p| Arc::from(p.name.as_str()));
    Ok(Some((call.op, names.zip(call.args).collect())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::infer::{InferOptions, infer};
    use crate::types::{DType, TensorType};

    #[test]
    fn any_spelling_has_its_arguments_by_name() {
        let g = Graph::trace(&["x"], |_, p| p[0].method_with("add", (1,), &[]));
        let mut m = GraphModule::new("g", g);
        let inputs = vec![Val::Leaf(TensorType::with_fixed_shape(DType::F32, &[2]))];
        assert!(infer(&mut m, &InferOptions { inputs }).is_empty());
        let g = m.entry().unwrap();
        let (op, args) = normalized_arguments(&m, g, g.find("add").unwrap()).unwrap().unwrap();
        let names: Vec<&str> = args.iter().map(|(k, _)| &**k).collect();
        assert_eq!((op.name, &names[..]), ("add", &["self", "other", "alpha"][..]));
        assert_eq!(args[2].1, Val::int(1));
        assert!(normalized_arguments(&m, g, g.find("x").unwrap()).unwrap().is_none());
    }
}
