//! Writes graphs as JSON, for other programs.
//!
//! `{"name", "graphs": [{"name", "entry", "nodes": [{"name", "op", "target", "args", "kwargs", "type", "users", "modules", "from",
//! "custom", "loc"}]}],
//! "modules": {…}, "attributes": {…}, "dims": {…}, "weights"}`. An argument is a JSON value where JSON has it; else an
//! object of one key: `{"node": "x"}`, `{"tuple": […]}`, `{"slice": [a, b, c]}`, `{"range": […]}`, `{"dtype": "f32"}`,
//! `{"device": "cpu"}`, `{"torch": "strided"}`, `{"graph": "helper"}`, `{"float": "inf"}`, `{"complex": [re, im]}`,
//! `{"size": "2*N"}`, `{"dict": [[k, v], …]}`, `{"ellipsis": true}`, `{"opaque": text}`.

use crate::graph::{Arg, Attribute, AttributeKind, Graph, GraphModule, ModuleDecl, ModuleFrame};
use crate::op::write_literal;
use crate::types::{Val, write_float};
use serde_json::{Map, Value, json};

/// The whole module.
pub(crate) fn from_module(m: &GraphModule) -> Value {
    let entry = m.entry_name();
    let graphs: Vec<Value> = m
        .graphs
        .iter()
        .map(|(name, g)| json!({"name": &**name, "entry": Some(name) == entry, "nodes": node_objects(g)}))
        .collect();
    let modules: Map<String, Value> = m
        .modules
        .iter()
        .map(|(path, d)| (path.to_string(), module_object(d)))
        .collect();
    let attributes: Map<String, Value> = m
        .attributes
        .iter()
        .map(|(path, a)| (path.to_string(), attribute_object(a)))
        .collect();
    let dims: Map<String, Value> = m
        .dims
        .iter()
        .map(|(name, r)| (name.to_string(), json!({"min": r.min, "max": r.max})))
        .collect();
    json!({
        "name": m.name,
        "graphs": graphs,
        "modules": modules,
        "attributes": attributes,
        "dims": dims,
        "weights": m.weights.as_ref().map(|(p, _)| p),
    })
}

fn module_object(d: &ModuleDecl) -> Value {
    let args: Vec<String> = d.args.iter().map(write_literal).collect();
    let kwargs = d.kwargs.iter();
    let kwargs: Map<String, Value> = kwargs.map(|(k, v)| (k.to_string(), write_literal(v).into())).collect();
    json!({"class": &*d.class, "args": args, "kwargs": kwargs})
}

fn attribute_object(a: &Attribute) -> Value {
    let kind = match a.kind {
        AttributeKind::Parameter => "parameter",
        AttributeKind::Buffer => "buffer",
        AttributeKind::Constant => "constant",
    };
    let value = a.value.as_ref().map(|v| v.ty().to_string());
    let ty = value.or_else(|| a.ty.as_ref().map(|t| t.to_string()));
    json!({"kind": kind, "type": ty})
}

fn node_objects(g: &Graph) -> Vec<Value> {
    let object = |n| {
        let node = &g[n];
        let kwargs: Map<String, Value> = node
            .kwargs()
            .iter()
            .map(|(k, v)| (k.to_string(), arg_value(g, v)))
            .collect();
        let mut o = json!({
            "name": node.name(),
            "op": node.op().name(),
            "target": node.target(),
            "args": node.args().iter().map(|a| arg_value(g, a)).collect::<Vec<_>>(),
            "kwargs": kwargs,
            "users": node.users().map(|u| g[u].name()).collect::<Vec<_>>(),
        });
        if let Some(t) = &node.meta.ty {
            o["type"] = t.to_string().into();
        }
        if !node.meta.modules.is_empty() {
            let frame = |m: &ModuleFrame| json!({"path": &*m.path, "class": &*m.class});
            o["modules"] = node.meta.modules.iter().map(frame).collect();
        }
        if !node.meta.provenance.is_empty() {
            o["from"] = node.meta.provenance.iter().map(|p| Value::from(&**p)).collect();
        }
        if !node.meta.custom.is_empty() {
            let pairs = node.meta.custom.iter();
            o["custom"] = Value::Object(pairs.map(|(k, v)| (k.to_string(), (&**v).into())).collect());
        }
        if let Some(l) = &node.meta.loc {
            o["loc"] = json!({"file": &*l.file, "line": l.line, "function": &*l.function});
        }
        o
    };
    g.iter().map(object).collect()
}

fn arg_value(g: &Graph, a: &Arg) -> Value {
    let seq = |v: &[Arg]| v.iter().map(|x| arg_value(g, x)).collect::<Vec<_>>();
    match a {
        Val::Leaf(n) => json!({"node": g[*n].name()}),
        Val::None => Value::Null,
        Val::Bool(b) => (*b).into(),
        Val::Int(d) => d.as_const().map_or_else(|| json!({"size": d.to_string()}), Value::from),
        Val::Float(x) if x.is_finite() => (*x).into(),
        Val::Float(x) => json!({"float": write_float(*x)}),
        Val::Complex(re, im) => json!({"complex": [write_float(*re), write_float(*im)]}),
        Val::Str(s) => (**s).into(),
        Val::DType(d) => json!({"dtype": d.short_name()}),
        Val::Device(s) => json!({"device": &**s}),
        Val::TorchName(s) => json!({"torch": &**s}),
        Val::Ellipsis => json!({"ellipsis": true}),
        Val::Graph(s) => json!({"graph": &**s}),
        Val::List(v) => seq(v).into(),
        Val::Tuple(v) => json!({"tuple": seq(v)}),
        Val::Dict(v) => {
            json!({"dict": v.iter().map(|(k, x)| json!([arg_value(g, k), arg_value(g, x)])).collect::<Vec<_>>()})
        }
        Val::Slice(v) => json!({"slice": seq(&v[..])}),
        Val::Range(v) => json!({"range": seq(&v[..])}),
        Val::Opaque(s) => json!({"opaque": &**s}),
        Val::Any(_) | Val::Unknown => json!({"opaque": "?"}),
    }
}
