//! Graphs for other programs: SVG, and JSON in the published formats of Model Explorer and Netron.

use crate::support::{Dir, fxc, root};
use serde_json::Value;
use std::collections::HashSet;

const MODELS: [&str; 4] = ["mlp.fxir", "attention.fxir", "control_flow.fxir", "symbolic_batch.fxir"];

fn printed(model: &str, form: &str, more: &[&str]) -> String {
    let path = root().join("examples").join(model);
    let mut args = vec!["print", path.to_str().unwrap(), "--format", form];
    args.extend(more);
    let ran = fxc(&args);
    assert_eq!(ran.code, 0, "{model} {form}: {}", ran.err);
    ran.out
}

fn keys(v: &Value, allowed: &[&str]) {
    for k in v.as_object().unwrap().keys() {
        assert!(allowed.contains(&k.as_str()), "`{k}` is not a field of the format: {v}");
    }
}

fn items<'v>(v: &'v Value, key: &str) -> &'v [Value] {
    v[key].as_array().map_or(&[], Vec::as_slice)
}

/// The classes of Model Explorer's `graph_builder.py`: `GraphCollection`, `Graph`, `GraphNode`, `IncomingEdge`, `MetadataItem`,
/// `KeyValue`.
#[test]
fn model_explorer_reads_its_own_form() {
    for model in MODELS {
        let fused: &[&str] = if model == "control_flow.fxir" {
            &[]
        } else {
            &["--fused"]
        };
        for more in [&["--typed"][..], fused] {
            let collection: Value = serde_json::from_str(&printed(model, "model-explorer", more)).unwrap();
            keys(&collection, &["label", "graphs", "graphSorting"]);
            assert!(collection["label"].is_string());
            let ids: HashSet<&str> = items(&collection, "graphs")
                .iter()
                .map(|g| g["id"].as_str().unwrap())
                .collect();
            for graph in items(&collection, "graphs") {
                explorer_graph(graph, &ids);
            }
            let first = &items(&collection, "graphs")[0];
            let grouped = items(first, "nodes").iter().any(|n| n["namespace"] != "");
            assert_eq!(grouped, more == ["--fused"], "{model} {more:?}");
        }
    }
}

fn explorer_graph(graph: &Value, graphs: &HashSet<&str>) {
    keys(graph, &["id", "nodes", "groupNodeAttributes"]);
    let mut nodes = HashSet::new();
    for n in items(graph, "nodes") {
        assert!(nodes.insert(n["id"].as_str().unwrap()), "twice: {n}");
    }
    for n in items(graph, "nodes") {
        keys(
            n,
            &[
                "id",
                "label",
                "namespace",
                "subgraphIds",
                "attrs",
                "incomingEdges",
                "outputsMetadata",
                "inputsMetadata",
            ],
        );
        assert!(
            items(n, "subgraphIds")
                .iter()
                .all(|s| graphs.contains(s.as_str().unwrap()))
        );
        for e in items(n, "incomingEdges") {
            keys(e, &["sourceNodeId", "sourceNodeOutputId", "targetNodeInputId"]);
            assert!(nodes.contains(e["sourceNodeId"].as_str().unwrap()));
        }
        let metadata = items(n, "outputsMetadata").iter().chain(items(n, "inputsMetadata"));
        let pairs = metadata.flat_map(|m| {
            keys(m, &["id", "attrs"]);
            items(m, "attrs")
        });
        for p in pairs.chain(items(n, "attrs")) {
            keys(p, &["key", "value"]);
            assert!(p["key"].is_string() && p["value"].is_string(), "{p}");
        }
    }
}

/// The messages of `onnx.proto` (ModelProto, GraphProto, NodeProto, AttributeProto, ValueInfoProto, TensorProto), which
/// Netron's `onnx.JsonReader` follows.
#[test]
fn netron_reads_onnx_in_json() {
    for model in MODELS {
        let m: Value = serde_json::from_str(&printed(model, "netron", &["--typed"])).unwrap();
        keys(
            &m,
            &[
                "ir_version",
                "producer_name",
                "producer_version",
                "opset_import",
                "graph",
                "functions",
            ],
        );
        // Netron recognises the format by these.
        assert!(m.get("framework").is_none() && m["graph"].is_object() && m["opset_import"].is_array());
        let graph = &m["graph"];
        keys(graph, &["name", "node", "input", "output", "initializer", "value_info"]);
        assert!(!items(graph, "node").is_empty());
        let mut values: HashSet<&str> = HashSet::new();
        for v in items(graph, "input") {
            keys(v, &["name", "type"]);
            values.insert(v["name"].as_str().unwrap());
        }
        for t in items(graph, "initializer") {
            keys(
                t,
                &["name", "doc_string", "data_type", "dims", "raw_data", "data_location"],
            );
            values.insert(t["name"].as_str().unwrap());
        }
        onnx_nodes(items(graph, "node"), values);
        for f in items(&m, "functions") {
            keys(f, &["name", "domain", "input", "output", "node", "opset_import"]);
            let inputs = items(f, "input").iter().map(|v| v.as_str().unwrap()).collect();
            onnx_nodes(items(f, "node"), inputs);
        }
    }
}

fn onnx_nodes<'v>(nodes: &'v [Value], mut values: HashSet<&'v str>) {
    for n in nodes {
        keys(
            n,
            &[
                "name",
                "op_type",
                "domain",
                "input",
                "output",
                "attribute",
                "doc_string",
            ],
        );
        for i in items(n, "input") {
            assert!(values.contains(i.as_str().unwrap()), "{i} is not defined: {n}");
        }
        values.extend(items(n, "output").iter().map(|o| o.as_str().unwrap()));
        for a in items(n, "attribute") {
            let field = match a["type"].as_i64() {
                Some(1) => "f",
                Some(2) => "i",
                Some(3) => "s",
                Some(7) => "ints",
                t => panic!("{t:?}: {a}"),
            };
            keys(a, &["name", "type", field]);
            assert!(a.get(field).is_some());
        }
    }
}

#[test]
fn drawings_have_every_node_and_its_step() {
    for model in MODELS {
        let text = printed(model, "svg", &["--typed"]);
        assert!(text.starts_with("<svg xmlns=") && text.ends_with("</svg>\n"));
        let nodes = printed(model, "json", &["--typed"]);
        let json: Value = serde_json::from_str(&nodes).unwrap();
        let entry = items(&json, "graphs").iter().find(|g| g["entry"] == true).unwrap();
        assert_eq!(text.matches("<g id=").count(), items(entry, "nodes").len(), "{model}");
    }
    let fused = printed("mlp.fxir", "svg", &["--fused"]);
    assert!(fused.contains(">[step 0]</text>"), "{fused}");
    let dot = printed("mlp.fxir", "dot", &["--fused"]);
    assert!(dot.contains("subgraph cluster_0 { label=\"step 0\";"), "{dot}");
}

#[test]
fn sizes_are_bound_where_graphs_are_lowered() {
    let dir = Dir::new("drawings");
    let path = dir.file(
        "n.fxir",
        "graph g {\n    %x : f32[N, 3] = placeholder x\n    %y = call_function relu(%x)\n    output %y\n}\n",
    );
    let ran = fxc(&["print", &path, "--fused", "--dim", "N=5"]);
    assert!(ran.code == 0 && ran.out.contains("f32[5, 3]"), "{}{}", ran.out, ran.err);
    assert_eq!(fxc(&["print", &path, "--fused", "--dim", "M=5"]).code, 1);
}
