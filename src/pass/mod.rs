//! Passes over graphs. [`PIPELINE`] lists those that run by default, in order.
//!
//! A pass takes a module whose nodes have types ([`infer`](crate::infer::infer)) and leaves one whose nodes have types.
//! A canonical graph stays canonical: every call is a `call_function` of a row's name with its arguments in the
//! schema's order. A new node keeps the source location of the node it replaces and records that node's name.

pub mod build;
mod extra;
pub mod features;
mod library;
pub mod manager;
pub mod observer;
mod pipeline;
pub mod quantize;
pub mod tutorial;
mod verify;

#[cfg(test)]
mod example_tests;
#[cfg(test)]
mod tests;

pub use extra::named_arguments;
pub use library::decompose::{decompose, decompose_node};
pub use library::specialize::specialize;
pub use library::{fusions, partition, sizes, sources, specialize, split, split_by, support};
pub use manager::PassManager;
pub(crate) use pipeline::fold::uniform_value;
pub use pipeline::functionalize::functionalize;
pub use pipeline::normalize::normalize;
pub use pipeline::simplify;
pub use verify::verify_canonical;

use crate::budget;
use crate::diag::limits::{check_time, too_many_nodes};
use crate::diag::{Diagnostic, Diagnostics};
use crate::graph::{Graph, GraphModule, NodeId, Opcode};
use crate::op::{self, Op};
use extra::{assert_sizes, batch_linear, canonicalise, inputs, merge_matmul, merge_rows, reinplace, respell};
use pipeline::{batch_norm, cse, dce, fold, functionalize, identities, inline, normalize, recognise, recurrent};
use std::time::{Duration, Instant};
use verify::verify;

/// One pass.
pub struct Pass {
    /// Its name: `--print-after cse`.
    pub name: &'static str,
    /// Its purpose, in one line.
    pub reason: &'static str,
    /// A graph before and after, in Markdown.
    pub example: &'static str,
    /// Changes the module. Returns the number of changes.
    pub run: fn(&mut GraphModule, &mut PassContext) -> Result<usize, Diagnostic>,
}

macro_rules! pass {
    ($name:literal, $reason:literal, $run:path) => {
        Pass {
            name: $name,
            reason: $reason,
            example: include_str!(concat!("examples/", $name, ".md")),
            run: $run,
        }
    };
}

/// The passes that run by default, in order.
#[rustfmt::skip]
pub const PIPELINE: &[Pass] = &[
    pass!("inline", "inlines called graphs, so that other passes see across calls", inline::run),
    // Before `normalize`: a canonical graph writes nothing in place.
    pass!("functionalize", "replaces in-place writes by new values, so that every name has one value and order does not matter", functionalize::run),
    pass!("normalize", "replaces functions, methods and modules by canonical ops with bound arguments", normalize::run),
    // Before the passes that match several nodes: a clone or a dropout between the nodes would hide the pattern.
    pass!("identities", "removes identities: dropout in evaluation, clones, views to the same shape", identities::run),
    pass!("recurrent", "rerolls an unrolled LSTM or GRU into one op, before its repeated weights are folded one by one", recurrent::run),
    pass!("simplify", "applies the built-in rewrite rules: x * 1, -(-x), views of views", simplify::run),
    pass!("fold", "evaluates constant expressions", fold::run),
    pass!("cse", "eliminates common subexpressions", cse::run),
    pass!("dce", "removes unused values", dce::run),
    // After `fold`, because it needs constant weights and statistics.
    pass!("batch-norm", "folds batch normalisation into the weights of the preceding convolution or matrix product", batch_norm::run),
    pass!("recognise", "recognises attention and rolls that are written as several ops, and replaces them by one op with a kernel", recognise::run),
    pass!("clean", "removes values that batch-norm and recognise left unused", clean),
];

/// Passes that run only on request: they change the interface, the names or the spelling of ops.
#[rustfmt::skip]
pub const EXTRA: &[Pass] = &[
    pass!("merge-matmul", "merges matrix products of one operand with several weights", merge_matmul::run),
    pass!("merge-rows", "merges matrix products of several operands with one weight", merge_rows::run),
    pass!("batch-linear", "combines small matrix products of equal sizes into one batched product", batch_linear::run),
    pass!("dead-inputs", "removes unused inputs", inputs::run),
    pass!("canonicalise", "normalises order and names, so that equal graphs print identically", canonicalise::run),
    pass!("assert-sizes", "adds the bounds of symbolic sizes to the graph as assertions", assert_sizes::run),
    pass!("reinplace", "lets pointwise ops overwrite operands that are not used again, for runs in PyTorch", reinplace::run),
    pass!("named-arguments", "passes every argument by name, including defaults, for tools that read graphs", named_arguments::run),
    pass!("respell", "replaces canonical ops by torch functions, so that the graph's Python runs in PyTorch", respell::run),
];

/// Transformations that take more arguments than a list of pass names can give: name, where to find it, purpose.
#[rustfmt::skip]
pub const LIBRARY: &[(&str, &str, &str)] = &[
    ("specialize", "fxc opt --fix, --dim; pass::specialize", "replaces inputs by literals and symbolic sizes by numbers"),
    ("decompose", "pass::decompose", "replaces composite ops by the ops they consist of, except those the caller keeps"),
    ("split_module", "pass::split", "splits a graph into sub-graphs by a number for each call"),
    ("split_by_tags", "pass::split_by", "splits a graph into sub-graphs by a tag for each call"),
    ("split_by_size", "pass::split_by", "splits a graph into sub-graphs of limited size"),
    ("split_const_subgraphs", "pass::split_by", "moves computations on constants into a sub-graph that runs once"),
    ("partition", "pass::partition", "groups the calls that a backend supports into acyclic sub-graphs"),
];

/// All passes: those of the pipeline, then the extra ones.
pub fn all_passes() -> impl Iterator<Item = &'static Pass> + Clone {
    PIPELINE.iter().chain(EXTRA)
}

/// How to run the pipeline.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PassOptions {
    /// Whether to lint the graph and infer its types again after each pass.
    pub verify_each: bool,
    /// Results larger than this many bytes are not folded. Those that replace a constant may have 64 times as many.
    pub fold_limit: usize,
    /// Whether rules may change rounding, NaN or signed zeros.
    pub fast_math: bool,
    /// Whether rules report why they did not fire where they nearly matched.
    pub remarks: bool,
    /// Names of passes to skip.
    pub skip: Vec<String>,
    /// How many passes run; bisection uses it to find the pass that is to blame.
    pub limit: Option<usize>,
}

impl Default for PassOptions {
    fn default() -> PassOptions {
        PassOptions {
            verify_each: false,
            fold_limit: 1 << 20,
            fast_math: false,
            remarks: false,
            skip: vec![],
            limit: None,
        }
    }
}

/// What a pass gets besides the module.
#[non_exhaustive]
pub struct PassContext<'o> {
    /// How the pipeline runs.
    pub options: &'o PassOptions,
    /// Reports of optimizations that the pass did not apply, with the reason.
    pub remarks: Vec<String>,
}

/// The record of one pass.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PassRun {
    /// The pass.
    pub name: &'static str,
    /// How many changes it made.
    pub changed: usize,
    /// The number of nodes of all graphs before the pass.
    pub before: usize,
    /// The number of nodes of all graphs after the pass.
    pub after: usize,
    /// How long the pass took.
    pub time: Duration,
    /// What the pass refused, and why.
    pub remarks: Vec<String>,
}

/// The record of a run of the pipeline.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PassReport {
    /// One entry per pass that ran.
    pub runs: Vec<PassRun>,
}

impl PassReport {
    /// The passes that changed something.
    pub fn changed(&self) -> impl Iterator<Item = &PassRun> {
        self.runs.iter().filter(|r| r.changed > 0)
    }
}

/// Runs the pipeline. The module's nodes must have types.
pub fn optimize(module: &mut GraphModule, options: &PassOptions) -> Result<PassReport, Diagnostics> {
    optimize_with(module, options, &mut |_, _| {})
}

/// [`optimize`], with `observe` called after each pass.
pub fn optimize_with(
    module: &mut GraphModule,
    options: &PassOptions,
    observe: &mut dyn FnMut(&PassRun, &GraphModule),
) -> Result<PassReport, Diagnostics> {
    let mut report = PassReport::default();
    let limit = options.limit.unwrap_or(usize::MAX);
    for p in PIPELINE.iter().take(limit) {
        if options.skip.iter().any(|s| s == p.name) {
            continue;
        }
        let run = run_pass(p, module, options)?;
        observe(&run, module);
        report.runs.push(run);
    }
    Ok(report)
}

/// Runs one pass.
pub fn run_pass(p: &Pass, module: &mut GraphModule, options: &PassOptions) -> Result<PassRun, Diagnostics> {
    let mut cx = PassContext {
        options,
        remarks: vec![],
    };
    check_time()?;
    let before = node_count(module);
    let start = Instant::now();
    let changed = (p.run)(module, &mut cx)?;
    if node_count(module) > budget::max_nodes() {
        return Err(too_many_nodes(&format!("the pass `{}` creates", p.name)).into());
    }
    let time = start.elapsed();
    if options.verify_each {
        verify(p.name, module)?;
    }
    Ok(PassRun {
        name: p.name,
        changed,
        before,
        after: node_count(module),
        time,
        remarks: cx.remarks,
    })
}

/// The pass named `name`.
pub fn by_name(name: &str) -> Option<&'static Pass> {
    all_passes().find(|p| p.name == name)
}

fn node_count(module: &GraphModule) -> usize {
    module.graphs.values().map(Graph::len).sum()
}

/// Runs the passes `identities`, `fold`, `cse` and `dce` again.
fn clean(module: &mut GraphModule, cx: &mut PassContext) -> Result<usize, Diagnostic> {
    let mut changed = identities::run(module, cx)?;
    changed += fold::run(module, cx)?;
    changed += cse::run(module, cx)?;
    changed += dce::run(module, cx)?;
    Ok(changed)
}

/// Runs `f` on every graph. The graph is taken out of the module for the duration of the call.
fn each_graph(
    module: &mut GraphModule,
    mut f: impl FnMut(&mut GraphModule, &mut Graph) -> Result<usize, Diagnostic>,
) -> Result<usize, Diagnostic> {
    let names: Vec<_> = module.graphs.keys().cloned().collect();
    let mut changed = 0;
    for name in names {
        let Some(slot) = module.graphs.get_mut(&name) else {
            continue;
        };
        let mut graph = std::mem::take(slot);
        let result = f(module, &mut graph);
        if let Some(slot) = module.graphs.get_mut(&name) {
            *slot = graph;
        }
        changed += result?;
    }
    Ok(changed)
}

/// The op of a canonical node.
fn canonical_op(graph: &Graph, n: NodeId) -> Option<&'static Op> {
    let node = &graph[n];
    if node.op() == Opcode::CallFunction {
        op::by_name(node.target())
    } else {
        None
    }
}
