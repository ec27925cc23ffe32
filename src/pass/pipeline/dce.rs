//! Removes dead code: unused values.
//!
//! Effects, random draws, writes, nodes whose declared sizes are checked at run time, and the graph's interface stay.
//! Constants that the pass `fold` made and that no node reads any more are removed as well.
//!
#![doc = include_str!("../examples/dce.md")]

use crate::diag::Diagnostic;
use crate::graph::purity::canonical_effect;
use crate::graph::{AttributeKind, Graph, GraphModule, NodeId, Opcode, is_impure};
use crate::op::Effect;
use crate::pass::{PassContext, canonical_op, each_graph};
use std::collections::HashSet;
use std::sync::Arc;

/// See the module.
pub(crate) fn run(module: &mut GraphModule, _cx: &mut PassContext) -> Result<usize, Diagnostic> {
    let changed = each_graph(module, |module, graph| {
        let mut changed = 0;
        // From the end: erasing a node may leave earlier ones without users.
        for n in graph.ids().into_iter().rev() {
            if graph[n].users().len() == 0 && is_dead(module, graph, n) {
                changed += graph.erase_node(n).is_ok() as usize;
            }
        }
        Ok(changed)
    })?;
    let used: HashSet<Arc<str>> = module
        .graphs
        .values()
        .flat_map(|g| g.iter().map(|n| &g[n]))
        .filter(|n| matches!(n.op(), Opcode::GetAttr | Opcode::CallModule))
        .map(|n| n.target().into())
        .collect();
    module
        .attributes
        .retain(|k, a| a.kind != AttributeKind::Constant || !k.starts_with("_folded_") || used.contains(k));
    Ok(changed)
}

fn is_dead(module: &GraphModule, graph: &Graph, n: NodeId) -> bool {
    // The declared sizes were used to type other nodes, and only running this node can check them.
    if graph[n].meta.claimed {
        return false;
    }
    match canonical_op(graph, n) {
        Some(op) => canonical_effect(op, graph, n, module) == Effect::Pure,
        None => !is_impure(graph, n, Some(module)),
    }
}
