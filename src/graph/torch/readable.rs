//! `gm.print_readable()` and `print(exported_program)` of torch 2.15, byte for byte (`torch/fx/graph_module.py`,
//! `torch/export/exported_program.py`).
//!
//! ```text
//! class Net(torch.nn.Module):
//!     def forward(self, x: "f32[4, 4]"):
//!         # File: net.py:8 in forward, code: return self.act(x)
//!         act: "f32[4, 4]" = self.act(x);  x = None
//!         return act
//! ```

use super::form::graph_names;
use crate::graph::{Frame, Graph, GraphModule, Meta, Opcode, pyrepr, python};
use crate::types::Val;
use std::fmt::Write;
use std::sync::Arc;

/// The maximum depth at which nested modules are shown.
const MAX_DEPTH: usize = 32;

/// `print_readable()` of the entry graph, with the graphs that it uses as nested classes. Empty if there is no graph.
pub fn print_readable(module: &GraphModule) -> String {
    let Some(graph) = module.entry() else {
        return String::new();
    };
    let name = match (&graph.signature, &*module.name) {
        (None, name) if pyrepr::is_identifier(name) => name,
        _ => "GraphModule",
    };
    class_text(graph, name, module, 0)
}

/// `print(exported_program)`: the class, its signature and the ranges of its sizes. Without a signature, all inputs and
/// results are the user's.
pub fn print_program(module: &GraphModule) -> String {
    let code = print_readable(module).replace('\n', "\n    ");
    let (signature, ranges) = match module.entry() {
        Some(g) => (signature_lines(g).replace('\n', "\n    "), range_list(g)),
        None => Default::default(),
    };
    format!("ExportedProgram:\n    {code}\nGraph signature:{signature}\nRange constraints: {{{ranges}}}\n")
}

fn class_text(graph: &Graph, name: &str, module: &GraphModule, depth: usize) -> String {
    let code = python::verbose_code(graph, Some(module)).source;
    let code = format!("class {name}(torch.nn.Module):\n{}", code.trim_start_matches('\n'));
    let mut children = vec![String::new()];
    if depth < MAX_DEPTH {
        let graphs = used_graphs(graph, module);
        children.extend(graphs.iter().map(|n| {
            let g = &module.graphs[n];
            class_text(g, g.attribute.as_deref().unwrap_or(n), module, depth + 1)
        }));
    }
    indent_lines(&code) + &indent_lines(&children.join("\n"))
}

/// The graphs that a graph names or calls, each once, in order of first use.
fn used_graphs(graph: &Graph, module: &GraphModule) -> Vec<Arc<str>> {
    let mut out = vec![];
    for n in graph.iter() {
        let node = &graph[n];
        if matches!(node.op(), Opcode::CallFunction | Opcode::CallModule | Opcode::GetAttr) {
            out.push(node.target().into());
        }
        for v in node.args().iter().chain(node.kwargs().iter().map(|(_, v)| v)) {
            graph_names(v, &mut out);
        }
    }
    let mut seen = std::collections::HashSet::new();
    out.retain(|n| module.graphs.contains_key(n) && seen.insert(n.clone()));
    out
}

/// torch's `_addindent`: indents all lines but the first by four spaces, and empties blank lines.
fn indent_lines(text: &str) -> String {
    let mut lines = text.split('\n');
    let mut out = lines.next().unwrap_or_default().to_string();
    for line in lines {
        out.push('\n');
        if !line.trim().is_empty() {
            out.push_str("    ");
            out.push_str(line);
        }
    }
    out
}

fn signature_lines(graph: &Graph) -> String {
    let mut out = "\n# inputs\n".to_string();
    let mut lines: Vec<String> = vec![];
    match &graph.signature {
        Some(s) => {
            lines.extend(s.inputs.iter().map(|i| {
                let persistent = match i.persistent {
                    Some(p) => format!(" persistent={}", if p { "True" } else { "False" }),
                    None => String::new(),
                };
                format!("{}: {}{}{persistent}", i.name, i.kind, target_suffix(&i.target))
            }));
            let _ = write!(out, "{}\n\n# outputs\n", lines.join("\n"));
            let outputs = s
                .outputs
                .iter()
                .map(|o| format!("{}: {}{}", o.name, o.kind, target_suffix(&o.target)));
            lines = outputs.collect();
        }
        None => {
            let inputs = graph.placeholders().into_iter();
            lines.extend(inputs.map(|n| format!("{}: USER_INPUT", graph[n].name())));
            let _ = write!(out, "{}\n\n# outputs\n", lines.join("\n"));
            let results = graph.output().into_iter().flat_map(|o| graph[o].inputs());
            lines = results.map(|n| format!("{}: USER_OUTPUT", graph[n].name())).collect();
        }
    }
    let _ = writeln!(out, "{}", lines.join("\n"));
    out
}

fn target_suffix(path: &Option<Arc<str>>) -> String {
    path.as_ref().map_or(String::new(), |t| format!(" target='{t}'"))
}

fn range_list(graph: &Graph) -> String {
    let ranges = graph.signature.iter().flat_map(|s| &s.ranges);
    let texts: Vec<String> = ranges.map(|(name, range)| format!("{name}: {range}")).collect();
    texts.join(", ")
}

/// The annotation of a tensor or a symbolic number: `"f32[s77, 4]"`, `"Sym(s77)"`.
pub(super) fn type_annotation(meta: &Meta) -> Option<String> {
    match meta.ty.as_ref()? {
        Val::Leaf(t) => {
            let sizes = t.shape.as_ref()?.iter().map(pyrepr::dim_repr).collect::<Vec<_>>();
            Some(format!(": \"{}[{}]\"", t.dtype.short_name(), sizes.join(", ")))
        }
        Val::Int(d) if d.as_const().is_none() => Some(format!(": \"Sym({})\"", pyrepr::dim_repr(d))),
        _ => None,
    }
}

/// The comment with the origin of a node.
pub(super) fn origin_comment(meta: &Meta) -> String {
    match (meta.frame.as_deref(), &meta.loc) {
        (Some(frame), _) => innermost_frame(frame),
        (None, Some(l)) => Some(format!("# File: {}:{} in {}", l.file, l.line, l.function)),
        _ => None,
    }
    .unwrap_or_else(|| "# No stacktrace found for following nodes".into())
}

/// torch's `_parse_stack_trace`: the last frame that names a function, with the line of text below it. Below a frame
/// without code, that is the head of the next frame.
fn innermost_frame(frame: &Frame) -> Option<String> {
    let mut below: Option<String> = None;
    for Frame { loc, code, .. } in frame.chain() {
        let code = code.as_deref().map(str::trim);
        if let Some(code) = code.or(below.as_deref())
            && !loc.function.is_empty()
        {
            return Some(format!(
                "# File: {}:{} in {}, code: {code}",
                loc.file, loc.line, loc.function
            ));
        }
        below = Some(format!("File \"{}\", line {}, in {}", loc.file, loc.line, loc.function));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{InputSpec, Loc, OutputSpec, Signature};
    use crate::types::{DType, Dim, TensorType};

    fn module() -> GraphModule {
        let mut g = Graph::new();
        let x = g.placeholder("x", None);
        let y = g.call_function("torch.ops.aten.relu.default", vec![Val::Leaf(x)], vec![]);
        let ty = Val::Leaf(TensorType::new(DType::F32, vec![Dim::var("s77"), Dim::Const(4)]));
        g.meta_mut(x).ty = Some(ty.clone());
        g.meta_mut(y).ty = Some(ty);
        let loc = |file: &str, line, function: &str| Loc {
            file: file.into(),
            line,
            function: function.into(),
        };
        let outer = Frame::new(loc("a.py", 3, "f"), Some("g(x)".into()), None);
        g.meta_mut(y).frame = Frame::new(loc("b c.py", 9, "forward"), Some("return relu(x)".into()), outer);
        g.set_output(Val::Tuple(vec![Val::Leaf(y)]));
        GraphModule::new("Net", g)
    }

    #[test]
    fn classes_as_torch_prints_them() {
        let want = "class Net(torch.nn.Module):\n    def forward(self, x: \"f32[s77, 4]\"):\n        # File: b c.py:9 in forward, code: return relu(x)\n        relu_default: \"f32[s77, 4]\" = torch.ops.aten.relu.default(x);  x = None\n        return (relu_default,)\n";
        assert_eq!(print_readable(&module()), want);
    }

    #[test]
    fn programs_as_torch_prints_them() {
        let mut m = module();
        let g = m.entry_mut().unwrap();
        g.signature = Some(Signature {
            inputs: vec![InputSpec {
                name: "x".into(),
                kind: "BUFFER".into(),
                target: Some("a.x".into()),
                persistent: Some(false),
                constant: None,
            }],
            outputs: vec![OutputSpec {
                name: "relu_default".into(),
                kind: "USER_OUTPUT".into(),
                target: None,
            }],
            ranges: vec![("s77".into(), "VR[2, int_oo]".into())],
            results: None,
        });
        let text = print_program(&m);
        let want = "        return (relu_default,)\n    \nGraph signature:\n    # inputs\n    x: BUFFER target='a.x' persistent=False\n    \n    # outputs\n    relu_default: USER_OUTPUT\n    \nRange constraints: {s77: VR[2, int_oo]}\n";
        assert!(
            text.starts_with("ExportedProgram:\n    class GraphModule(torch.nn.Module):\n        def forward"),
            "{text}"
        );
        assert!(text.ends_with(want), "{text}");
    }
}
