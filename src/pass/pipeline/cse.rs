//! Computes equal values once.
//!
//! Two nodes are equal if they call the same op with arguments that are equal bit for bit: 1, 1.0 and True differ, and
//! so do 0.0 and -0.0. Operands of commutative ops may be swapped. Random and effectful ops are never merged.
//!
#![doc = include_str!("../examples/cse.md")]

use crate::diag::Diagnostic;
use crate::graph::purity::canonical_effect;
use crate::graph::{Graph, GraphModule, NodeId, Opcode};
use crate::op::Effect;
use crate::pass::build::write_key;
use crate::pass::{PassContext, canonical_op, each_graph};
use std::collections::HashMap;

/// See the module.
pub(crate) fn run(module: &mut GraphModule, _cx: &mut PassContext) -> Result<usize, Diagnostic> {
    each_graph(module, |module, graph| {
        let mut seen: HashMap<String, NodeId> = HashMap::new();
        let mut changed = 0;
        for n in graph.ids() {
            let Some(key) = value_key(module, graph, n) else {
                continue;
            };
            match seen.get(&key) {
                Some(&first) if graph[first].meta.ty == graph[n].meta.ty => {
                    graph.replace_all_uses_with(n, first);
                    changed += graph.erase_node(n).is_ok() as usize;
                }
                Some(_) => {}
                None => {
                    seen.insert(key, n);
                }
            }
        }
        Ok(changed)
    })
}

fn value_key(module: &GraphModule, graph: &Graph, n: NodeId) -> Option<String> {
    let node = &graph[n];
    // A functional graph never writes to an attribute, so all reads are equal.
    if node.op() == Opcode::GetAttr {
        return Some(format!("get_attr {}", node.target()));
    }
    let op = canonical_op(graph, n).filter(|op| canonical_effect(op, graph, n, module) == Effect::Pure)?;
    let mut parts: Vec<String> = vec![];
    for a in node.args() {
        let mut s = String::new();
        write_key(a, &mut s);
        parts.push(s);
    }
    // Only if there are no arguments besides the two operands: `add(a, b, alpha=2)` is not `add(b, a, alpha=2)`.
    if op.commutative && parts.len() == 2 && node.kwargs().is_empty() {
        parts.sort();
    }
    let mut key = format!("{} {}", op.name, parts.concat());
    for (k, v) in node.kwargs() {
        key.push_str(&format!("{k}="));
        write_key(v, &mut key);
    }
    Some(key)
}
