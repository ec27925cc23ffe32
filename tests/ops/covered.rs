//! Every op of the table has a recorded case: no op is only said to be right.

use super::cases;
use fxc::driver::Session;
use fxc::graph::GraphModule;
use fxc::import::read_pt2;
use fxc::infer;
use fxc::op;
use fxc::types::Val;
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::path::Path;

/// Files of calls, one a case.
const CALLS: [&str; 5] = [
    include_str!("../data/pointwise.json"),
    include_str!("../data/reductions.json"),
    include_str!("../data/views.json"),
    include_str!("../data/index.json"),
    include_str!("../data/nn.json"),
];

/// Files of graphs, one a case.
const GRAPHS: [&str; 2] = [include_str!("../data/opinfo.json"), include_str!("../data/more.json")];

/// Ops without a case, and what holds them instead.
const ELSEWHERE: &[(&str, &str)] = &[
    (
        "empty_permuted",
        "their elements are not defined: tests/torch/opinfo.py compares types",
    ),
    (
        "empty_like",
        "their elements are not defined: tests/torch/opinfo.py compares types",
    ),
    (
        "new_empty",
        "their elements are not defined: tests/torch/opinfo.py compares types",
    ),
    (
        "associative_scan",
        "graphs of models: tests/torch/control_flow.py, traced.py and models.py",
    ),
    (
        "shifted_window_attention",
        "graphs of models: tests/torch/control_flow.py, traced.py and models.py",
    ),
    (
        "patch_merging_pad",
        "graphs of models: tests/torch/control_flow.py, traced.py and models.py",
    ),
    (
        "relative_position_bias",
        "graphs of models: tests/torch/control_flow.py, traced.py and models.py",
    ),
    (
        "grouped_mm",
        "graphs of models: tests/torch/control_flow.py, traced.py and models.py",
    ),
    (
        "lu",
        "graphs of models: tests/torch/control_flow.py, traced.py and models.py",
    ),
    (
        "_assert_tensor",
        "give no tensor, or check one: tests/torch/opinfo.py and more_models.py",
    ),
    (
        "_assert_scalar",
        "give no tensor, or check one: tests/torch/opinfo.py and more_models.py",
    ),
    (
        "sym_constrain_range",
        "give no tensor, or check one: tests/torch/opinfo.py and more_models.py",
    ),
    (
        "torch_size",
        "give no tensor, or check one: tests/torch/opinfo.py and more_models.py",
    ),
    (
        "list",
        "give no tensor, or check one: tests/torch/opinfo.py and more_models.py",
    ),
    (
        "sym_bool",
        "give no tensor, or check one: tests/torch/opinfo.py and more_models.py",
    ),
    (
        "math_round",
        "give no tensor, or check one: tests/torch/opinfo.py and more_models.py",
    ),
    (
        "conv1d_mode",
        "parts of rows that have cases, under names of ATen's: tests/torch/opinfo.py",
    ),
    (
        "conv2d_mode",
        "parts of rows that have cases, under names of ATen's: tests/torch/opinfo.py",
    ),
    (
        "conv3d_mode",
        "parts of rows that have cases, under names of ATen's: tests/torch/opinfo.py",
    ),
    (
        "atleast_1d_all",
        "parts of rows that have cases, under names of ATen's: tests/torch/opinfo.py",
    ),
    (
        "atleast_2d_all",
        "parts of rows that have cases, under names of ATen's: tests/torch/opinfo.py",
    ),
    (
        "atleast_3d_all",
        "parts of rows that have cases, under names of ATen's: tests/torch/opinfo.py",
    ),
    (
        "reflection_pad",
        "parts of rows that have cases, under names of ATen's: tests/torch/opinfo.py",
    ),
    (
        "replication_pad",
        "parts of rows that have cases, under names of ATen's: tests/torch/opinfo.py",
    ),
    (
        "_pad_circular",
        "parts of rows that have cases, under names of ATen's: tests/torch/opinfo.py",
    ),
    (
        "grid_sampler",
        "parts of rows that have cases, under names of ATen's: tests/torch/opinfo.py",
    ),
];

/// Adds the ops that the graphs of a module call.
fn add_graphs(module: &GraphModule, ops: &mut BTreeSet<&'static str>) {
    for graph in module.graphs.values() {
        for n in graph.ids() {
            if !graph[n].op().is_call() {
                continue;
            }
            if let Some(op) = infer::resolve_node(module, graph, n).ok().and_then(|r| r.op()) {
                ops.insert(op.name);
            }
        }
    }
}

fn add_text(text: &str, ops: &mut BTreeSet<&'static str>) {
    let mut session = Session::new();
    let mut model = session.load_text("case", text).expect("a graph that reads");
    let Some(graph) = model.module.entry() else { return };
    let types: Vec<_> = graph
        .placeholders()
        .into_iter()
        .map(|n| graph[n].meta.ty.clone().unwrap_or(Val::Unknown))
        .collect();
    // What is wrong with a case, its own test says.
    let _ = session.check(&mut model.module, &types);
    add_graphs(&model.module, ops);
}

fn covered() -> BTreeSet<&'static str> {
    let mut ops = BTreeSet::new();
    for file in CALLS {
        cases::check_file(file, |case, inputs| {
            if let Ok(call) = cases::resolve(case, inputs) {
                ops.insert(call.op.name);
            }
            None
        });
    }
    for file in GRAPHS {
        let data: Json = serde_json::from_str(file).expect("valid JSON");
        for case in data["cases"].as_array().expect("cases") {
            add_text(case["text"].as_str().expect("a text"), &mut ops);
        }
    }
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    for file in std::fs::read_dir(data).expect("the folder of fixtures") {
        let path = file.expect("an entry").path();
        if path.extension().is_some_and(|e| e == "pt2") {
            let (module, _) = read_pt2(&path).expect("a sound archive");
            add_graphs(&module, &mut ops);
        }
    }
    ops
}

#[test]
fn every_op_has_a_case() {
    let ops = covered();
    // Rows without a spelling are parts of others.
    let spelled = op::all()
        .iter()
        .filter(|op| !op.forms.is_empty() || !op.modules.is_empty());
    let without: Vec<&str> = spelled
        .map(|op| op.name)
        .filter(|name| !ops.contains(name) && !ELSEWHERE.iter().any(|(n, _)| n == name))
        .collect();
    assert!(
        without.is_empty(),
        "ops without a case in tests/data: {}",
        without.join(" ")
    );
    let stale: Vec<_> = ELSEWHERE.iter().filter(|(n, _)| ops.contains(n)).collect();
    assert!(stale.is_empty(), "these have cases: {stale:?}");
}
