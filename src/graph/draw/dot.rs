//! Graphviz's dot output, as torch's `FxGraphDrawer` produces it (`torch/fx/passes/graph_drawer.py`). Each node is a
//! record with its name, opcode, target, literal arguments and number of users. The opcode determines the fill colour;
//! for functions and methods it is derived from the MD5 of the target. Netron and every Graphviz tool can open the
//! file.
//!
//! There are three additions to torch's output: characters with a meaning in record labels (`<`, `>`, `|`, `\`) are
//! escaped, modules show their declaration, and nodes of known type show dtype and shape.

use super::svg::Groups;
use crate::graph::torch::form::torch_form;
use crate::graph::torch::pyrepr::{self, Style};
use crate::graph::{Arg, AttributeKind, Graph, GraphModule, Node, NodeId, Opcode, torch_print};
use crate::types::{TensorType, Type, Val};
use indexmap::IndexMap;
use md5::{Digest, Md5};
use std::fmt::Write;

/// Lists longer than this are truncated, as torch does.
const MAX_LIST: usize = 8;

/// Fill colours of functions and methods.
const COLOURS: [&str; 16] = [
    "CadetBlue1",
    "Coral",
    "DarkOliveGreen1",
    "DarkSeaGreen1",
    "GhostWhite",
    "Khaki1",
    "LavenderBlush1",
    "LightSkyBlue",
    "MistyRose1",
    "MistyRose2",
    "PaleTurquoise2",
    "PeachPuff1",
    "Salmon",
    "Thistle1",
    "Thistle3",
    "Wheat1",
];

/// The dot text of `graph`, called `name`, with the parameters and buffers that `module` declares for its submodules.
pub fn dot(graph: &Graph, name: &str, module: Option<&GraphModule>) -> String {
    with_groups(graph, name, module, &Groups::new())
}

/// [`dot`] with a frame around the nodes of each group.
pub fn with_groups(graph: &Graph, name: &str, module: Option<&GraphModule>, groups: &Groups) -> String {
    let frames = group_clusters(graph, groups);
    let graph = torch_form(graph, module);
    let mut out = format!("digraph {} {{\nrankdir=TB;\n", quote_id(name));
    for n in graph.iter() {
        let node = &graph[n];
        let _ = writeln!(
            out,
            "{} [label={}, shape=record, fillcolor={}, style=\"filled,rounded\", fontcolor=\"#000000\"];",
            quote_id(node.name()),
            quote_text(&node_label(&graph, n, module)),
            node_colour(&graph, n)
        );
        if let (Opcode::CallModule, Some(m)) = (node.op(), module) {
            write_weights(&mut out, node, m);
        }
    }
    for n in graph.iter() {
        for user in graph[n].users() {
            let _ = writeln!(
                out,
                "{} -> {};",
                quote_id(graph[n].name()),
                quote_id(graph[user].name())
            );
        }
    }
    out.push_str(&frames);
    out.push_str("}\n");
    out
}

/// One cluster for each group, in the order of their first nodes.
fn group_clusters(graph: &Graph, groups: &Groups) -> String {
    let mut members: IndexMap<&str, Vec<&str>> = IndexMap::new();
    for n in graph.iter() {
        if let Some(g) = groups.get(&n) {
            members.entry(g).or_default().push(graph[n].name());
        }
    }
    let mut out = String::new();
    for (i, (group, names)) in members.iter().enumerate() {
        let names: Vec<String> = names.iter().map(|n| quote_id(n)).collect();
        let _ = writeln!(
            out,
            "subgraph cluster_{i} {{ label={}; {}; }}",
            quote_text(&escape_label(group)),
            names.join("; ")
        );
    }
    out
}

fn node_label(graph: &Graph, n: NodeId, module: Option<&GraphModule>) -> String {
    let node = &graph[n];
    let mut out = format!("{{name=%{}|op_code={}\\n", node.name(), node.op());
    let declared = module.and_then(|m| m.modules.get(node.target()));
    if let (Opcode::CallModule, Some(m)) = (node.op(), declared) {
        let show = |v: &crate::op::Literal| pyrepr::repr(v, &|leaf| match *leaf {});
        let mut args: Vec<String> = m.args.iter().map(show).collect();
        args.extend(m.kwargs.iter().map(|(k, v)| format!("{k}={}", show(v))));
        let _ = write!(
            out,
            "\\n{}\\n|{}\\n",
            escape_label(&m.class),
            escape_label(&args.join(", "))
        );
    } else {
        let target = match node.op() {
            Opcode::CallFunction => qualified_name(&torch_print::pretty_target(graph, n)),
            _ => node.target().to_string(),
        };
        let _ = write!(out, "|target={}\\n", escape_label(&target));
        let (args, kwargs) = literal_arguments(graph, node);
        out.push_str(&label_section("|args=(\\l", &args, ",\\n)\\l"));
        out.push_str(&label_section("|kwargs={\\l", &kwargs, ",\\n}\\l"));
        let _ = write!(out, "|num_users={}\\n", node.users().len());
    }
    if let Some(ty) = &node.meta.ty {
        type_label(&mut out, ty);
    }
    out + "}"
}

/// The literal arguments, which edges do not show. Like torch, this excludes arguments with a `%` in their text.
fn literal_arguments(graph: &Graph, node: &Node) -> (Vec<String>, Vec<String>) {
    let show = |v: &Arg| {
        Some(short_arg(graph, v))
            .filter(|text| !text.contains('%'))
            .map(|text| escape_label(&text))
    };
    let args = node.args().iter().filter_map(show).collect();
    let kwargs = node
        .kwargs()
        .iter()
        .filter_map(|(k, v)| show(v).map(|v| format!("{k}: {v}")));
    (args, kwargs.collect())
}

/// torch's `_format_arg(v, max_list_len=8)`.
fn short_arg(graph: &Graph, v: &Arg) -> String {
    let leaf = |n: &NodeId, style: Style| match style {
        Style::Plain => format!("%{}", graph[*n].name()),
        _ => graph[*n].name().to_string(),
    };
    let plain = |v: &Arg| pyrepr::write_val(v, Style::Plain, &leaf);
    match v {
        Val::List(items) | Val::Tuple(items) if items.len() > MAX_LIST => {
            let first: Vec<String> = items[..MAX_LIST].iter().map(plain).collect();
            let (open, close) = if matches!(v, Val::List(_)) {
                ('[', ']')
            } else {
                ('(', ')')
            };
            format!("{open}{}, ...[total_len={}]{close}", first.join(", "), items.len())
        }
        _ => plain(v),
    }
}

fn label_section(open: &str, items: &[String], close: &str) -> String {
    let text = match items {
        [] => return String::new(),
        [single] => {
            let strip = |s: &str| s.replace("\\l", "").replace("\\n", "");
            format!("{}{single}{}", strip(open), strip(close))
        }
        _ => format!("{open}{}{close}", items.join(",\\n")),
    };
    // Escapes the braces of the section itself; those of the items have been escaped already.
    match text.strip_prefix("|kwargs={") {
        Some(rest) => {
            let brace = rest.rfind('}').unwrap_or(rest.len());
            format!("|kwargs=\\{{{}\\{}", &rest[..brace], &rest[brace..])
        }
        None => text,
    }
}

fn type_label(out: &mut String, ty: &Type) {
    match ty {
        Val::Leaf(t) => {
            let dims = |s: &[crate::types::Dim]| s.iter().map(pyrepr::dim_repr).collect::<Vec<_>>().join(", ");
            let shape = match &t.shape {
                None => "*".to_string(),
                Some(s) if s.len() == 1 => format!("({},)", dims(s)),
                Some(s) => format!("({})", dims(s)),
            };
            let _ = write!(out, "|dtype={}\\n|shape={shape}\\n", pyrepr::dtype_repr(t.dtype));
        }
        Val::Tuple(v) | Val::List(v) => v.iter().for_each(|t| type_label(out, t)),
        Val::Dict(v) => v.iter().for_each(|(_, t)| type_label(out, t)),
        _ => {}
    }
}

/// Writes the parameters and buffers of the submodule that `node` calls as separate nodes.
fn write_weights(out: &mut String, node: &Node, module: &GraphModule) {
    let prefix = format!("{}.", node.target());
    for (path, a) in &module.attributes {
        let Some(name) = path.strip_prefix(&prefix) else {
            continue;
        };
        let full = format!("{}.{name}", node.name());
        let op = if a.kind == AttributeKind::Parameter {
            "get_parameter"
        } else {
            "get_buffer"
        };
        let ty = match &a.ty {
            Some(Val::Leaf(t)) => tensor_label(t),
            _ => String::new(),
        };
        let text = format!("{{{}|op_code={op}\\n{ty}}}", escape_label(&full));
        let _ = writeln!(
            out,
            "{0} [label={1}, fillcolor=Salmon, style=\"filled,rounded\", fontcolor=\"#000000\", shape=record];\n{0} -> {2};",
            quote_id(&full),
            quote_text(&text),
            quote_id(node.name())
        );
    }
}

fn tensor_label(t: &TensorType) -> String {
    let dims = t.shape.as_ref().map_or("*".into(), |s| {
        s.iter().map(pyrepr::dim_repr).collect::<Vec<_>>().join(", ")
    });
    format!("{}[{dims}]\\n", pyrepr::dtype_repr(t.dtype))
}

/// torch's `_get_qualified_name` of a function, from the path that `print(graph)` writes.
fn qualified_name(path: &str) -> String {
    match (path.strip_prefix("builtins."), path.strip_prefix("operator.")) {
        (Some(name), _) => name.into(),
        (_, Some(name)) => format!("_operator.{name}"),
        _ => path.into(),
    }
}

fn node_colour(graph: &Graph, n: NodeId) -> &'static str {
    match graph[n].op() {
        Opcode::Placeholder => "\"AliceBlue\"",
        Opcode::CallModule => "LemonChiffon1",
        Opcode::GetAttr => "LightGrey",
        Opcode::Output => "PowderBlue",
        _ => {
            // torch's drawer picks colours by MD5, so an op has the same colour in its drawings and in ours.
            let hash = Md5::digest(torch_print::pretty_target(graph, n));
            let first = u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]);
            COLOURS[first as usize % COLOURS.len()]
        }
    }
}

/// Escapes text for a record label.
fn escape_label(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    for c in s.chars() {
        if matches!(c, '{' | '}' | '<' | '>' | '|' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn quote_text(s: &str) -> String {
    format!(
        "\"{}\"",
        s.replace('"', "\\\"").replace('\n', "\\n").replace('\r', "\\r")
    )
}

/// A dot identifier, quoted if necessary.
fn quote_id(s: &str) -> String {
    const KEYWORDS: [&str; 6] = ["graph", "subgraph", "digraph", "node", "edge", "strict"];
    let plain = s.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && s.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !KEYWORDS.contains(&s.to_ascii_lowercase().as_str());
    if plain {
        s.into()
    } else {
        quote_text(&s.replace('\\', "\\\\"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_as_torch_does() {
        let mut g = Graph::new();
        let leaf = Val::Leaf;
        let x = g.placeholder("x", None);
        g.placeholder("y", Some(Val::int(3)));
        let add = g.call_function("operator.add", vec![leaf(x), leaf(x)], vec![]);
        let dim = vec![("dim".into(), Val::int(-1))];
        let list = Val::List(vec![leaf(x), leaf(add)]);
        let cat = g.call_function("torch.cat", vec![list], dim);
        let view = g.call_method("view", vec![leaf(cat), Val::int(-1), Val::int(8)], vec![]);
        let range = vec![
            ("min".into(), Val::Float(f64::NEG_INFINITY)),
            ("max".into(), Val::Float(1e-5)),
        ];
        let clamp = g.call_function("torch.clamp", vec![leaf(view)], range);
        let get = g.call_function("builtins.getattr", vec![leaf(clamp), Val::str("shape")], vec![]);
        g.set_output(leaf(get));
        let want = r##"digraph m {
rankdir=TB;
x [label="{name=%x|op_code=placeholder\n|target=x\n|num_users=2\n}", shape=record, fillcolor="AliceBlue", style="filled,rounded", fontcolor="#000000"];
y [label="{name=%y|op_code=placeholder\n|target=y\n|args=(3,)|num_users=0\n}", shape=record, fillcolor="AliceBlue", style="filled,rounded", fontcolor="#000000"];
add [label="{name=%add|op_code=call_function\n|target=_operator.add\n|num_users=1\n}", shape=record, fillcolor=Wheat1, style="filled,rounded", fontcolor="#000000"];
cat [label="{name=%cat|op_code=call_function\n|target=torch.cat\n|kwargs=\{dim: -1,\}|num_users=1\n}", shape=record, fillcolor=CadetBlue1, style="filled,rounded", fontcolor="#000000"];
view [label="{name=%view|op_code=call_method\n|target=view\n|args=(\l-1,\n8,\n)\l|num_users=1\n}", shape=record, fillcolor=DarkOliveGreen1, style="filled,rounded", fontcolor="#000000"];
clamp [label="{name=%clamp|op_code=call_function\n|target=torch.clamp\n|kwargs=\{\lmin: -inf,\nmax: 1e-05,\n\}\l|num_users=1\n}", shape=record, fillcolor=Coral, style="filled,rounded", fontcolor="#000000"];
getattr_1 [label="{name=%getattr_1|op_code=call_function\n|target=getattr\n|args=(shape,)|num_users=1\n}", shape=record, fillcolor=DarkSeaGreen1, style="filled,rounded", fontcolor="#000000"];
output [label="{name=%output|op_code=output\n|target=output\n|num_users=0\n}", shape=record, fillcolor=PowderBlue, style="filled,rounded", fontcolor="#000000"];
x -> add;
x -> cat;
add -> cat;
cat -> view;
view -> clamp;
clamp -> getattr_1;
getattr_1 -> output;
}
"##;
        assert_eq!(dot(&g, "m", None), want);
    }

    #[test]
    fn groups_have_frames() {
        let g = Graph::trace(&["x"], |_, p| p[0].method("exp", ()).method("sin", ()));
        let of = |n: &str| (g.find(n).unwrap(), "step 0".into());
        let text = with_groups(&g, "m", None, &Groups::from([of("exp"), of("sin")]));
        assert!(
            text.ends_with("subgraph cluster_0 { label=\"step 0\"; exp; sin; }\n}\n"),
            "{text}"
        );
    }

    #[test]
    fn labels_hold_any_text() {
        let mut g = Graph::new();
        let odd = Val::str("a|b\"<c>\n{d}\\");
        g.call_function("f", vec![odd], vec![]);
        let text = dot(&g, "a b", None);
        assert!(text.contains(r#"|args=(a\|b\"\<c\>\n\{d\}\\,)|"#), "{text}");
        assert!(text.starts_with("digraph \"a b\" {"));
    }
}
