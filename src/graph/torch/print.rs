//! `print(graph)` of torch 2.15, byte for byte (`torch/fx/node.py`, `Node.format_node` and `_format_arg`).
//!
//! ```text
//! graph():
//!     %x : torch.Tensor [num_users=1] = placeholder[target=x]
//!     %relu : [num_users=1] = call_function[target=torch.relu](args = (%x,), kwargs = {})
//!     return relu
//! ```

use super::form::{torch_form, torch_target};
use super::pyrepr::{self, Style};
use crate::graph::{Arg, Graph, GraphModule, Node, NodeId, NodeText, Opcode, TorchForm, TorchLine};
use crate::types::Val;
use std::fmt::Write;

/// torch's text of a graph, without a final newline. `module` determines which names are graphs of the same file.
pub fn print(graph: &Graph, module: Option<&GraphModule>) -> String {
    let graph = torch_form(graph, module);
    let mut lines: Vec<String> = match graph.torch_frame() {
        None => vec!["graph():".into()],
        Some(frame) => frame.header.iter().map(|h| h.to_string()).collect(),
    };
    for n in graph.iter() {
        let line = format_node(&graph, n);
        match graph.text(n).torch.as_deref() {
            None => lines.push(format!("    {line}")),
            // The parameter is in the header, or the text only implies it.
            Some(TorchLine {
                form: None | Some(TorchForm::HeaderParam),
                ..
            }) => {}
            Some(t) => lines.push(format!("{}{line}", t.indent)),
        }
    }
    lines.join("\n")
}

/// One line of [`print()`] without its indentation: torch's `Node.format_node()`, or the older format that the node was
/// read in.
pub fn format_node(graph: &Graph, n: NodeId) -> String {
    let node = &graph[n];
    let name = |n: &NodeId| graph[*n].name().to_string();
    let text = graph.text(n);
    let form = text.torch.as_ref().and_then(|t| t.form).unwrap_or(TorchForm::Bracketed);
    if node.op() == Opcode::Output {
        if form == TorchForm::ReturnPercent
            && let Some(list) = percent_list(graph, node)
        {
            return format!("return {list}");
        }
        let value = node.args().first().map(|v| pyrepr::str_of(v, &name));
        return format!("return {}", value.unwrap_or_default());
    }
    let mut out = format!(
        "%{} : {}{} = ",
        node.name(),
        annotation_text(text),
        users_tag(node, text)
    );
    let _ = match form {
        TorchForm::SelfAttr => write!(out, "self.{}", node.target()),
        TorchForm::CapitalPlaceholder => write!(out, "PlaceHolder[target={}]", node.target()),
        _ => write!(out, "{}[target={}]", node.op(), pretty_target(graph, n)),
    };
    if node.op() == Opcode::Placeholder {
        if let Some(v) = node.args().first() {
            let _ = write!(out, "(default={})", pyrepr::str_of(v, &name));
        }
    } else if node.op().is_call() {
        out.push_str(&format_args(graph, node));
    }
    out
}

fn users_tag(node: &Node, text: &NodeText) -> String {
    let users = node.users().len() as i64;
    match text.torch.as_deref() {
        None => format!("[num_users={users}]"),
        Some(t) => match &t.tag {
            None => String::new(),
            Some(word) => format!("[{word}={}]", (users + t.hidden_users).max(0)),
        },
    }
}

/// `%a,%b`, if the output is a node or a tuple of nodes.
fn percent_list(graph: &Graph, node: &Node) -> Option<String> {
    let value = node.args().first()?;
    let nodes = match value {
        Val::Tuple(v) if v.len() != 1 => &v[..],
        v => std::slice::from_ref(v),
    };
    let names: Option<Vec<String>> = nodes
        .iter()
        .map(|v| v.as_leaf().map(|n| format!("%{}", graph[*n].name())))
        .collect();
    names.map(|n| n.join(","))
}

/// The text between ` : ` and the number of users. Inductor's tensor annotation is not followed by a space.
fn annotation_text(text: &NodeText) -> String {
    match text.annotation.as_deref() {
        None | Some("") => String::new(),
        Some(a) if a.starts_with("Tensor \"") => a.to_string(),
        Some(a) => format!("{a} "),
    }
}

fn format_args(graph: &Graph, node: &Node) -> String {
    let leaf = |n: &NodeId, style: Style| match style {
        Style::Plain => format!("%{}", graph[*n].name()),
        _ => graph[*n].name().to_string(),
    };
    let plain = |v: &Arg| pyrepr::write_val(v, Style::Plain, &leaf);
    let args: Vec<String> = node.args().iter().map(plain).collect();
    let comma = if args.len() == 1 { "," } else { "" };
    let kwargs: Vec<String> = node
        .kwargs()
        .iter()
        .map(|(k, v)| format!("{k}: {}", plain(v)))
        .collect();
    format!(
        "(args = ({}{comma}), kwargs = {{{}}})",
        args.join(", "),
        kwargs.join(", ")
    )
}

/// The target as torch prints it: methods, modules and attributes by name, functions by full path.
pub fn pretty_target(graph: &Graph, n: NodeId) -> String {
    let node = &graph[n];
    if let Some(t) = graph.text(n).torch.as_ref().filter(|t| *t.target == *node.target()) {
        return t.written.to_string();
    }
    match node.op() {
        Opcode::CallFunction => match torch_target(node) {
            Some(t) => t.into_owned(),
            None => node.target().to_string(),
        },
        _ => node.target().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::DType;

    fn leaf(n: NodeId) -> Arg {
        Val::Leaf(n)
    }

    #[test]
    fn prints_as_torch_does() {
        let mut g = Graph::new();
        let x = g.placeholder("x", None);
        g.text_mut(x).annotation = Some("torch.Tensor".into());
        g.placeholder("ds", Some(Val::str("a b")));
        let d = Val::Tuple(vec![leaf(x), Val::str("s")]);
        g.placeholder("dx", Some(d));
        g.placeholder("*args", None);
        let w = g.get_attr("blocks.1.w");
        let add = g.call_function("operator.add", vec![leaf(x), leaf(w)], vec![]);
        let slice = Val::Slice(Box::new([leaf(x), Val::None, Val::int(2)]));
        g.call_function(
            "operator.getitem",
            vec![leaf(add), Val::Tuple(vec![slice, Val::Ellipsis])],
            vec![],
        );
        let kwargs = vec![
            ("device".into(), Val::Device("cpu".into())),
            ("dtype".into(), Val::DType(DType::F64)),
            ("s".into(), Val::str("tanh")),
            ("m".into(), Val::TorchName("contiguous_format".into())),
            (
                "d".into(),
                Val::Dict(vec![(Val::str("k"), leaf(x)), (Val::int(1), Val::Float(-0.0))]),
            ),
        ];
        let to = g.call_method("to", vec![leaf(add)], kwargs);
        g.set_output(Val::Dict(vec![(Val::str("a"), leaf(to)), (Val::str("c"), Val::None)]));
        let want = "graph():
    %x : torch.Tensor [num_users=4] = placeholder[target=x]
    %ds : [num_users=0] = placeholder[target=ds](default=a b)
    %dx : [num_users=0] = placeholder[target=dx](default=(x, 's'))
    %_args : [num_users=0] = placeholder[target=*args]
    %blocks_1_w : [num_users=1] = get_attr[target=blocks.1.w]
    %add : [num_users=2] = call_function[target=operator.add](args = (%x, %blocks_1_w), kwargs = {})
    %getitem : [num_users=0] = call_function[target=operator.getitem](args = (%add, (slice(x, None, 2), Ellipsis)), kwargs = {})
    %to : [num_users=1] = call_method[target=to](args = (%add,), kwargs = {device: cpu, dtype: torch.float64, s: tanh, m: torch.contiguous_format, d: {k: %x, 1: -0.0}})
    return {'a': to, 'c': None}";
        assert_eq!(print(&g, None), want);
    }

    #[test]
    fn graphs_as_arguments_become_attributes() {
        let mut g = Graph::new();
        let x = g.placeholder("x", None);
        let branch = |n: &str| Val::Graph(n.into());
        let args = vec![leaf(x), branch("then_0"), branch("else_0"), Val::Tuple(vec![leaf(x)])];
        let cond = g.call_function("torch.ops.higher_order.cond", args, vec![]);
        g.set_output(leaf(cond));
        assert_eq!(
            print(&g, None),
            "graph():
    %x : [num_users=1] = placeholder[target=x]
    %then_0 : [num_users=1] = get_attr[target=then_0]
    %else_0 : [num_users=1] = get_attr[target=else_0]
    %cond : [num_users=1] = call_function[target=torch.ops.higher_order.cond](args = (%x, %then_0, %else_0, (%x,)), kwargs = {})
    return cond"
        );
    }
}
