//! Writes graphs as JSON for Netron: ONNX's `ModelProto` in the JSON form that Netron reads.
//!
//! The nodes are those of the graph, in their own domain (`fxc`). The file shows the graph and is not a model that an
//! ONNX runtime can run. Attributes become initializers with external data; called graphs become functions.

use super::model_explorer::parameter_names;
use crate::graph::{Arg, Graph, GraphModule, NodeId, Opcode, pyrepr};
use crate::types::{DType, Dim, TensorType, Type, Val};
use serde_json::{Value, json};
use std::collections::HashMap;

const DOMAIN: &str = "fxc";

/// The model.
pub(crate) fn from_module(m: &GraphModule) -> Value {
    let entry = m.entry_name();
    let functions: Vec<Value> = m
        .graphs
        .iter()
        .filter(|(name, _)| Some(*name) != entry)
        .map(|(name, g)| function_object(m, name, g))
        .collect();
    let empty = Graph::new();
    let g = m.entry().unwrap_or(&empty);
    json!({
        "ir_version": 10,
        "producer_name": "fxc",
        "producer_version": env!("CARGO_PKG_VERSION"),
        "opset_import": [{"domain": DOMAIN, "version": 1}],
        "graph": graph_object(m, g),
        "functions": functions,
    })
}

fn graph_object(m: &GraphModule, g: &Graph) -> Value {
    let calls = g.iter().filter(|&n| g[n].op().is_call());
    let typed = g.iter().filter(|&n| g[n].op().is_call() && g[n].meta.ty.is_some());
    let read = g.iter().filter(|&n| g[n].op() == Opcode::GetAttr);
    json!({
        "name": m.name,
        "node": calls.map(|n| node_object(m, g, n)).collect::<Vec<_>>(),
        "input": g.placeholders().into_iter().map(|n| value_info(g, n)).collect::<Vec<_>>(),
        "output": returned_nodes(g).into_iter().map(|n| value_info(g, n)).collect::<Vec<_>>(),
        "initializer": read.map(|n| initializer_object(m, g, n)).collect::<Vec<_>>(),
        "value_info": typed.map(|n| value_info(g, n)).collect::<Vec<_>>(),
    })
}

fn function_object(m: &GraphModule, name: &str, g: &Graph) -> Value {
    let names = |nodes: Vec<NodeId>| nodes.into_iter().map(|n| g[n].name().to_string()).collect::<Vec<_>>();
    let calls = g
        .iter()
        .filter(|&n| g[n].op().is_call() || g[n].op() == Opcode::GetAttr);
    json!({
        "name": name,
        "domain": DOMAIN,
        "input": names(g.placeholders()),
        "output": names(returned_nodes(g)),
        "node": calls.map(|n| node_object(m, g, n)).collect::<Vec<_>>(),
        "opset_import": [{"domain": DOMAIN, "version": 1}],
    })
}

/// The nodes that the graph returns.
fn returned_nodes(g: &Graph) -> Vec<NodeId> {
    g.output().map(|o| g[o].inputs()).unwrap_or_default()
}

fn node_object(m: &GraphModule, g: &Graph, n: NodeId) -> Value {
    let node = &g[n];
    let names: HashMap<usize, String> = parameter_names(m, g, n);
    let mut inputs: Vec<&str> = vec![];
    let mut attributes: Vec<Value> = vec![];
    let mut add = |name: &str, a: &Arg| match a {
        Val::Leaf(i) => inputs.push(g[*i].name()),
        _ => {
            inputs.extend(a.leaves().into_iter().map(|i| g[*i].name()));
            attributes.push(attribute_object(g, name, a));
        }
    };
    for (i, a) in node.args().iter().enumerate() {
        let name = names.get(&i).cloned().unwrap_or_else(|| format!("args[{i}]"));
        add(&name, a);
    }
    node.kwargs().iter().for_each(|(k, a)| add(k, a));
    let loc = node.meta.loc.as_ref();
    json!({
        "name": node.name(),
        "op_type": node.target(),
        "domain": DOMAIN,
        "input": inputs,
        "output": [node.name()],
        "attribute": attributes,
        "doc_string": loc.map_or(String::new(), |l| format!("{}:{} in {}", l.file, l.line, l.function)),
    })
}

/// An argument as `AttributeProto`: a number, a text, a list of these, and anything else in Python syntax.
fn attribute_object(g: &Graph, name: &str, a: &Arg) -> Value {
    let ints = |v: &[Arg]| v.iter().map(|x| x.as_int()).collect::<Option<Vec<i64>>>();
    match a {
        Val::Int(d) if d.as_const().is_some() => json!({"name": name, "type": 2, "i": d.as_const()}),
        Val::Bool(b) => json!({"name": name, "type": 2, "i": *b as i64}),
        Val::Float(x) if x.is_finite() && (*x as f32).is_finite() => json!({"name": name, "type": 1, "f": x}),
        Val::List(v) | Val::Tuple(v) if !v.is_empty() && ints(v).is_some() => {
            json!({"name": name, "type": 7, "ints": ints(v)})
        }
        Val::Str(s) => text_attribute(name, s),
        a => text_attribute(name, &pyrepr::repr(a, &|n: &NodeId| format!("%{}", g[*n].name()))),
    }
}

fn text_attribute(name: &str, s: &str) -> Value {
    json!({"name": name, "type": 3, "s": encode_base64(s.as_bytes())})
}

fn value_info(g: &Graph, n: NodeId) -> Value {
    let node = &g[n];
    match &node.meta.ty {
        Some(t) => json!({"name": node.name(), "type": value_type(t)}),
        None => json!({"name": node.name()}),
    }
}

/// `TypeProto`. Only tensors and lists of tensors have one.
fn value_type(t: &Type) -> Value {
    match t {
        Val::Leaf(t) => tensor_type(t),
        Val::List(v) | Val::Tuple(v) => match v.first() {
            Some(first) => json!({"sequence_type": {"elem_type": value_type(first)}}),
            None => json!({}),
        },
        _ => json!({}),
    }
}

fn tensor_type(t: &TensorType) -> Value {
    let dim = |d: &Dim| match d {
        Dim::Const(c) => json!({"dim_value": c}),
        Dim::Unknown => json!({}),
        d => json!({"dim_param": d.to_string()}),
    };
    let mut out = json!({"elem_type": elem_type(t.dtype)});
    if let Some(shape) = &t.shape {
        out["shape"] = json!({"dim": shape.iter().map(dim).collect::<Vec<_>>()});
    }
    json!({"tensor_type": out})
}

/// `TensorProto.DataType`. There is none for complex numbers of halves.
fn elem_type(d: DType) -> i32 {
    match d {
        DType::F32 => 1,
        DType::U8 => 2,
        DType::I8 => 3,
        DType::U16 => 4,
        DType::I16 => 5,
        DType::I32 => 6,
        DType::I64 => 7,
        DType::B8 => 9,
        DType::F16 => 10,
        DType::F64 => 11,
        DType::U32 => 12,
        DType::U64 => 13,
        DType::C64 => 14,
        DType::C128 => 15,
        DType::BF16 => 16,
        DType::F8E4M3FN => 17,
        DType::F8E4M3FNUZ => 18,
        DType::F8E5M2 => 19,
        DType::F8E5M2FNUZ => 20,
        DType::F8E8M0FNU => 24,
        DType::C32 => 0,
    }
}

/// A parameter, buffer or constant: its type, and that its data is external.
fn initializer_object(m: &GraphModule, g: &Graph, n: NodeId) -> Value {
    let path = g[n].target();
    let declared = m.attributes.get(path);
    let value_type = declared.and_then(|a| a.value.as_ref().map(|v| v.ty()));
    let ty = value_type.or_else(|| declared?.ty.as_ref()?.as_leaf().cloned());
    let ty = ty.or_else(|| g[n].meta.ty.as_ref()?.as_leaf().cloned());
    let dims = |t: &TensorType| {
        t.shape
            .iter()
            .flatten()
            .map(|d| d.as_const().unwrap_or(0))
            .collect::<Vec<_>>()
    };
    json!({
        "name": g[n].name(),
        "doc_string": path,
        "data_type": ty.as_ref().map_or(0, |t| elem_type(t.dtype)),
        "dims": ty.as_ref().map(dims).unwrap_or_default(),
        // External data without a location, for which Netron would look.
        "raw_data": "",
        "data_location": 1,
    })
}

/// Standard base64 with padding, the form of bytes in protobuf's JSON.
fn encode_base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let b = [0, 1, 2].map(|i| chunk.get(i).copied().unwrap_or(0) as u32);
        let word = b[0] << 16 | b[1] << 8 | b[2];
        for i in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * i) & 63) as usize] as char;
            out.push(if i <= chunk.len() { letter } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_in_base64() {
        for (text, want) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("fooba?", "Zm9vYmE/"),
        ] {
            assert_eq!(encode_base64(text.as_bytes()), want);
        }
    }
}
