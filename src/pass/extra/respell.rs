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

#[cfg(test)]
mod tests {
    use crate::interp::tests::module;
    use crate::pass::{PassOptions, by_name, run_pass};

    /// The targets of the calls after the pass.
    fn respelled(call: &str) -> Vec<String> {
        let mut m = module(&format!(
            "graph g {{ %x : f32[2, 2] = placeholder x\n%y = {call}\noutput %y }}"
        ));
        let pass = by_name("respell").expect("a pass");
        let options = PassOptions {
            verify_each: true,
            ..PassOptions::default()
        };
        run_pass(pass, &mut m, &options).expect("torch accepts the call");
        let graph = m.entry().expect("a graph");
        let calls = graph.iter().filter(|&n| graph[n].op().is_call());
        calls.map(|n| graph[n].target().to_string()).collect()
    }

    #[test]
    fn the_spelling_is_one_whose_demands_the_arguments_meet() {
        // `linalg.multi_dot` takes at least two tensors.
        assert_eq!(
            respelled("call_function multi_dot([%x, %x])"),
            ["torch.ops.aten.linalg_multi_dot.default"]
        );
        assert_eq!(
            respelled("call_function multi_dot([%x])"),
            ["torch.ops.aten.chain_matmul.default"]
        );
    }
}
