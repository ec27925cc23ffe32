//! Spells canonical ops as torch does, so that the graph's Python code runs under PyTorch.
//!
//! Uses ATen's overloads where one can express the call, otherwise functions of the torch module. Arithmetic on Python
//! numbers (inputs, sizes) uses Python's own operators, which return numbers where ATen would return tensors. This is
//! the inverse of `normalize`.
//!
#![doc = include_str!("../examples/respell.md")]

use crate::diag::Diagnostic;
use crate::graph::{Graph, GraphModule, NodeId, Opcode};
use crate::op::spell;
use crate::pass::build::full_args;
use crate::pass::{PassContext, canonical_op, each_graph};
use std::sync::Arc;

/// See the module.
pub(crate) fn run(module: &mut GraphModule, cx: &mut PassContext) -> Result<usize, Diagnostic> {
    each_graph(module, |_, graph| {
        let mut changed = 0;
        for n in graph.ids() {
            match respell(graph, n) {
                Some(true) => changed += 1,
                Some(false) => {
                    let node = &graph[n];
                    cx.remarks
                        .push(format!("`%{}`: `{}` has no torch spelling", node.name(), node.target()));
                }
                None => {}
            }
        }
        Ok(changed)
    })
}

/// Whether the node now has torch's spelling; `None` if it is not a canonical op.
fn respell(graph: &mut Graph, n: NodeId) -> Option<bool> {
    let op = canonical_op(graph, n)?;
    let args = full_args(op, graph, n).ok()?;
    let Some(s) = spell::spell_call(op, &args, &|n| graph[*n].meta.ty.clone()) else {
        return Some(false);
    };
    let opcode = if s.method {
        Opcode::CallMethod
    } else {
        Opcode::CallFunction
    };
    graph.set_target(n, opcode, &s.target);
    graph.set_args(n, s.args);
    graph.set_kwargs(n, s.kwargs.into_iter().map(|(k, v)| (Arc::from(k), v)).collect());
    Some(true)
}
