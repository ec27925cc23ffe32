//! Every op of the table has a recorded case: no op is only said to be right.

use super::cases;
use fxc::graph::GraphModule;
use fxc::infer;
use fxc::internals::driver::Session;
use fxc::internals::import::read_pt2;
use fxc::internals::op;
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

pub(super) fn add_text(text: &str, ops: &mut BTreeSet<&'static str>) {
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
    let without: Vec<&str> = spelled.map(|op| op.name).filter(|name| !ops.contains(name)).collect();
    assert!(
        without.is_empty(),
        "ops without a case in tests/data: {}",
        without.join(" ")
    );
}
