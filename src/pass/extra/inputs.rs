//! Removes unused inputs.
//!
//! This changes the graph's interface, since callers pass fewer arguments. Therefore it is not a pass of the pipeline.
//!
#![doc = include_str!("../examples/dead-inputs.md")]

use crate::diag::Diagnostic;
use crate::graph::{GraphModule, Mutation, Opcode};
use crate::pass::PassContext;

/// See the module. Only the entry graph's interface may change: other graphs are called by position.
pub(crate) fn run(module: &mut GraphModule, _cx: &mut PassContext) -> Result<usize, Diagnostic> {
    let Some(graph) = module.entry_mut() else { return Ok(0) };
    let mut changed = 0;
    for n in graph.ids() {
        let node = &graph[n];
        let written = Mutation::Input(node.target().into());
        let dead = node.op() == Opcode::Placeholder && node.users().len() == 0 && !graph.mutations.contains(&written);
        if dead {
            changed += graph.erase_node(n).is_ok() as usize;
        }
    }
    Ok(changed)
}
