//! Checks that the targets of nodes exist (attributes, modules and graphs) and that graphs do not call themselves.

use crate::diag::{Code, Diagnostic, Diagnostics, NameIndex};
use crate::graph::torch::form::graph_names;
use crate::graph::{Gaps, Graph, GraphModule, ModuleDecl, NodeId, Opcode};
use crate::op::modules;
use std::cell::OnceCell;
use std::sync::Arc;

/// The names of a module, indexed once for repeated lookups.
pub(super) struct KnownTargets<'m> {
    module: Option<&'m GraphModule>,
    /// The parts that could not be read.
    pub(super) gaps: &'m Gaps,
    modules: OnceCell<NameIndex<'m>>,
    attributes: OnceCell<NameIndex<'m>>,
    graphs: OnceCell<NameIndex<'m>>,
}

impl<'m> KnownTargets<'m> {
    pub(super) fn new(module: Option<&'m GraphModule>, gaps: &'m Gaps) -> KnownTargets<'m> {
        KnownTargets {
            module,
            gaps,
            modules: OnceCell::new(),
            attributes: OnceCell::new(),
            graphs: OnceCell::new(),
        }
    }

    fn near_module(&self, name: &str) -> Option<&'m str> {
        let names = || NameIndex::new(self.module.iter().flat_map(|m| m.modules.keys()).map(|k| &**k));
        self.modules.get_or_init(names).nearest(name)
    }

    fn near_attribute(&self, name: &str) -> Option<&'m str> {
        let names = || NameIndex::new(self.module.iter().flat_map(|m| m.attributes.keys()).map(|k| &**k));
        self.attributes.get_or_init(names).nearest(name)
    }

    fn near_graph(&self, name: &str) -> Option<&'m str> {
        let names = || NameIndex::new(self.module.iter().flat_map(|m| m.graphs.keys()).map(|k| &**k));
        self.graphs.get_or_init(names).nearest(name)
    }
}

/// Checks what one node refers to in its module.
pub(super) fn check_targets(g: &Graph, n: NodeId, m: &GraphModule, known: &KnownTargets<'_>) -> Diagnostics {
    let mut out = Diagnostics::new();
    let node = &g[n];
    let mut graphs = vec![];
    node.args()
        .iter()
        .chain(node.kwargs().iter().map(|(_, v)| v))
        .for_each(|v| graph_names(v, &mut graphs));
    for name in graphs {
        if !m.graphs.contains_key(&name) && !known.gaps.may_declare(&name) {
            out.push(unknown_graph(g, n, &name, known));
        }
    }
    let target = node.target();
    let declares = !m.modules.is_empty() || !m.attributes.is_empty();
    // `print(gm)` shows modules, but no parameters.
    let declares_attributes = declares && !(m.printed && m.attributes.is_empty());
    if known.gaps.may_declare(target) {
        return out;
    }
    match node.op() {
        // Text without declarations cannot be checked. torch's own `print(graph)` never has any.
        Opcode::CallModule
            if declares && !is_module(m, target) && !modules::is_guards(target) && !m.graphs.contains_key(target) =>
        {
            out.push(unknown_module(g, n, m, known));
        }
        // With a weights file, the attributes are those in the file. Binding the file reports missing ones.
        Opcode::GetAttr if m.weights.is_none() && declares_attributes && !is_known(m, target) => {
            out.push(unknown_attribute(g, n, m, known));
        }
        _ => {}
    }
    out
}

fn is_module(m: &GraphModule, target: &str) -> bool {
    m.modules.contains_key(target)
}

/// Whether `get_attr` can read the target: an attribute, a graph or a module.
fn is_known(m: &GraphModule, target: &str) -> bool {
    m.attributes.contains_key(target) || m.graphs.contains_key(target) || is_module(m, target) || is_weight(m, target)
}

/// Whether the target is a parameter or buffer that the constructor of a declared module creates.
fn is_weight(m: &GraphModule, target: &str) -> bool {
    let mut modules = target.rmatch_indices('.').filter_map(|(i, _)| {
        let decl = m.modules.get(&target[..i])?;
        Some((decl, &target[i + 1..]))
    });
    let sizes = |(decl, name): (&ModuleDecl, &str)| modules::attribute_sizes(decl.constructed(), name);
    modules.next().and_then(sizes).is_some()
}

fn unknown_graph(g: &Graph, n: NodeId, name: &str, known: &KnownTargets<'_>) -> Diagnostic {
    let d = Diagnostic::new(Code::E0110, format!("unknown graph `{name}`"))
        .at_opt(g[n].meta.span, format!("`@{name}` is used here"));
    match known.near_graph(name) {
        Some(near) => d.help(format!("there is a graph with a similar name: `@{near}`")),
        None => d.help(format!("add `graph {name} {{ … }}` to the file")),
    }
}

fn unknown_module(g: &Graph, n: NodeId, m: &GraphModule, known: &KnownTargets<'_>) -> Diagnostic {
    let target = g[n].target();
    let span = g.target_span(n);
    let d = Diagnostic::new(Code::E0106, format!("unknown module `{target}`"));
    let d = d.at_opt(span, "not declared").note(torch_text(g, n, m));
    match known.near_module(target) {
        Some(near) => suggest_near(d, span, near, "there is a module with a similar name"),
        None => d.help(format!("declare it: `module {target} = Class(…)`")),
    }
}

fn unknown_attribute(g: &Graph, n: NodeId, m: &GraphModule, known: &KnownTargets<'_>) -> Diagnostic {
    let target = g[n].target();
    let span = g.target_span(n);
    let d = Diagnostic::new(
        Code::E0106,
        format!("unknown attribute `{target}`: no parameter, buffer or constant has this name"),
    );
    let d = d.at_opt(span, "not declared").note(torch_text(g, n, m));
    match known.near_attribute(target) {
        Some(near) => suggest_near(d, span, near, "there is an attribute with a similar name"),
        None => d.help(format!("declare it: `param {target} : f32[…]`, `buffer` or `const`")),
    }
}

fn suggest_near(d: Diagnostic, span: Option<crate::source::Span>, name: &str, help: &str) -> Diagnostic {
    match span {
        Some(s) => d.suggest(s, name, help),
        None => d.help(format!("{help}: `{name}`")),
    }
}

/// torch's text, which names the first part of the path that does not exist.
fn torch_text(g: &Graph, n: NodeId, m: &GraphModule) -> String {
    let (node, target) = (g[n].name(), g[n].target());
    let known = |path: &str| {
        let inside = |k: &Arc<str>| **k == *path || k.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
        m.modules.keys().chain(m.attributes.keys()).any(inside)
    };
    let mut prefix = "";
    for (i, c) in target.char_indices().chain([(target.len(), '.')]) {
        if c != '.' {
            continue;
        }
        let atom = target[prefix.len()..i].trim_start_matches('.');
        if !known(&target[..i]) {
            return format!(
                "torch.fx: Node {node} target {target} references nonexistent attribute {atom} of {prefix}"
            );
        }
        if g[n].op() == Opcode::CallModule && m.attributes.contains_key(&target[..i]) {
            return format!("torch.fx: Node {node} target {target} {atom} of {prefix} does not reference an nn.Module");
        }
        prefix = &target[..i];
    }
    format!("torch.fx: `{target}` is a module without its own forward method")
}

/// Reports graphs that call themselves, directly or through others, each cycle once.
pub(super) fn check_cycles(m: &GraphModule, out: &mut Diagnostics) {
    let calls: Vec<Vec<(usize, NodeId)>> = m.graphs.values().map(|g| calls_of(g, m)).collect();
    // Depth-first with an explicit stack: 0 is not visited, 1 is on the path, 2 is done.
    let mut state = vec![0u8; calls.len()];
    for root in 0..calls.len() {
        if state[root] != 0 {
            continue;
        }
        let mut path = vec![(root, 0)];
        state[root] = 1;
        while let Some((g, i)) = path.last_mut() {
            let Some(&(callee, node)) = calls[*g].get(*i) else {
                state[*g] = 2;
                path.pop();
                continue;
            };
            *i += 1;
            match state[callee] {
                0 => {
                    state[callee] = 1;
                    path.push((callee, 0));
                }
                1 => {
                    let caller = *g;
                    let start = path.iter().position(|(p, _)| *p == callee).unwrap_or(0);
                    let cycle: Vec<usize> = path[start..].iter().map(|(p, _)| *p).collect();
                    out.push(cycle_found(m, caller, node, &cycle));
                }
                _ => {}
            }
        }
    }
}

fn cycle_found(m: &GraphModule, caller: usize, node: NodeId, cycle: &[usize]) -> Diagnostic {
    let name = |i: usize| m.graphs.get_index(i).map_or("", |(k, _)| &**k);
    let span = m.graphs.get_index(caller).and_then(|(_, g)| g[node].meta.span);
    let first = name(cycle[0]);
    let mut names: Vec<String> = cycle.iter().map(|&i| format!("`{}`", name(i))).collect();
    names.push(format!("`{first}`"));
    Diagnostic::new(Code::E0111, format!("graph `{first}` calls itself"))
        .at_opt(span, "this call completes the cycle")
        .note(format!("the call cycle is {}", names.join(" → ")))
        .help("graphs are inlined, so recursion is not possible; use `while_loop` or `scan` for a loop")
}

/// The graphs that `g` calls or names, by index, each with the node that does.
fn calls_of(g: &Graph, m: &GraphModule) -> Vec<(usize, NodeId)> {
    let mut out = vec![];
    for n in g.iter() {
        let node = &g[n];
        let mut names: Vec<Arc<str>> = vec![];
        if matches!(node.op(), Opcode::CallFunction | Opcode::CallModule | Opcode::GetAttr) {
            names.push(node.target().into());
        }
        node.args()
            .iter()
            .chain(node.kwargs().iter().map(|(_, v)| v))
            .for_each(|v| graph_names(v, &mut names));
        out.extend(names.iter().filter_map(|name| Some((m.graphs.get_index_of(name)?, n))));
    }
    out
}
