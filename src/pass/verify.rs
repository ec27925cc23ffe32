//! Checks the module after a pass: it must be sound, typed and, after `normalize`, canonical.

use super::{PIPELINE, Pass, build, canonical_op};
use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::graph::{Graph, GraphModule, NodeId, Opcode, lint};
use crate::infer::{self, InferOptions};

/// Lints the module and infers its types again after a pass. Anything wrong at this point is the pass's fault.
pub(super) fn verify(name: &str, module: &mut GraphModule) -> Result<(), Diagnostics> {
    let mut findings = lint(module);
    if !findings.has_errors() {
        let mut copy = module.clone();
        findings = infer::infer(&mut copy, &InferOptions::default());
    }
    let canonical = |p: &Pass| p.name == "normalize";
    let done = |name: &str| PIPELINE.iter().position(|p| p.name == name);
    if !findings.has_errors() && done(name).is_some() && done(name) >= PIPELINE.iter().position(canonical) {
        findings = verify_canonical(module);
    }
    if !findings.has_errors() {
        return Ok(());
    }
    let blamed = findings.into_iter().filter(Diagnostic::is_error);
    let mut out = Diagnostics::new();
    blamed.for_each(|d| {
        out.push(d.note(format!(
            "the pass `{name}` introduced this error; it is not in the input"
        )))
    });
    Err(out)
}

/// Reports what is not canonical in a module. After `normalize`, every call must be a `call_function` of a row of the
/// op table (or of a graph of the file) with canonical arguments, and nothing may be written to. Calls whose op depends
/// on unknown types may stay as they were.
pub fn verify_canonical(module: &GraphModule) -> Diagnostics {
    let mut out = Diagnostics::new();
    for graph in module.graphs.values() {
        for n in graph.iter().filter(|&n| graph[n].op().is_call()) {
            let node = &graph[n];
            if let Some(reason) = why_not_canonical(module, graph, n) {
                let title = format!("`%{}` (`{}`) is not canonical: {reason}", node.name(), node.target());
                out.push(Diagnostic::new(Code::E0601, title).at_opt(node.meta.span, ""));
            }
        }
    }
    out
}

/// Why a call is not canonical, if it is not.
fn why_not_canonical(module: &GraphModule, graph: &Graph, n: NodeId) -> Option<String> {
    let node = &graph[n];
    let Some(op) = canonical_op(graph, n) else {
        let calls_graph = module.graphs.contains_key(node.target()) && node.op() == Opcode::CallFunction;
        let canonical = calls_graph || infer::is_open(module, graph, n);
        return (!canonical).then(|| "its target is not a canonical op".to_string());
    };
    let args = match build::full_args(op, graph, n) {
        Ok(args) => args,
        Err(e) => return Some(e.title),
    };
    let (positional, kwargs) = build::canonical_args(op, args);
    let canonical = build::same_all(node.args(), &positional) && node.kwargs().len() == kwargs.len();
    (!canonical).then(|| "its arguments are not in the schema's order, or are defaults".to_string())
}
