//! `lint`: checks that graphs are well-formed.
//!
//! torch's `Graph.lint()` checks ownership, definition order, duplicate names and, with an owning module, that targets
//! exist. Its texts are the `note:` lines here. It does not detect a missing, second or misplaced output, misplaced or
//! repeated placeholders, a `call_method` without a receiver, inconsistent users, graphs that call themselves, or dead
//! code. This lint reports all findings at once, each with the node and its location.

mod targets;

use crate::diag::words::count;
use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::graph::purity::is_impure;
use crate::graph::{Gaps, Graph, GraphModule, NodeId, Opcode, pyrepr};
use crate::source::Span;
use std::collections::{HashMap, HashSet};
use targets::{KnownTargets, check_cycles, check_targets};

/// Checks every graph of a module. The findings include warnings (dead code).
pub fn lint(module: &GraphModule) -> Diagnostics {
    lint_around(module, &Gaps::default())
}

/// [`lint`] of a module with parts that could not be read. Consequences of those parts are not reported.
pub(crate) fn lint_around(module: &GraphModule, gaps: &Gaps) -> Diagnostics {
    let mut out = Diagnostics::new();
    let known = KnownTargets::new(Some(module), gaps);
    for (name, graph) in &module.graphs {
        out.extend(lint_with(name, graph, Some(module), &known));
    }
    check_cycles(module, &mut out);
    out
}

/// Checks one graph, called `name` in messages. Without a `module`, the targets of attributes, modules and graphs are
/// not checked, as in torch.
pub fn lint_graph(name: &str, graph: &Graph, module: Option<&GraphModule>) -> Diagnostics {
    lint_with(name, graph, module, &KnownTargets::new(module, &Gaps::default()))
}

fn lint_with(name: &str, graph: &Graph, module: Option<&GraphModule>, known: &KnownTargets<'_>) -> Diagnostics {
    let mut lint = Lint {
        name,
        graph,
        module,
        known,
        out: Diagnostics::new(),
    };
    let sound = lint.check_links();
    lint.check_order();
    lint.check_interface();
    lint.check_calls();
    // Only if all users are known is a node without users certainly dead.
    if sound && !known.gaps.in_graph(name) {
        lint.check_dead_code();
    }
    lint.out
}

/// A note with the node's location in the user's Python.
pub(crate) fn place_note(graph: &Graph, n: NodeId) -> Option<String> {
    let loc = graph[n].meta.loc.as_ref()?;
    let function = if loc.function.is_empty() {
        String::new()
    } else {
        format!(" in {}", loc.function)
    };
    Some(format!(
        "`%{}` comes from {}:{}{function}",
        graph[n].name(),
        loc.file,
        loc.line
    ))
}

struct Lint<'a, 'k> {
    name: &'a str,
    graph: &'a Graph,
    module: Option<&'a GraphModule>,
    known: &'a KnownTargets<'k>,
    out: Diagnostics,
}

impl Lint<'_, '_> {
    /// A diagnostic at the node's statement.
    fn at_node(&self, code: Code, n: NodeId, title: String, text: &str) -> Diagnostic {
        let d = Diagnostic::new(code, title).at_opt(self.graph[n].meta.span, text);
        match place_note(self.graph, n) {
            Some(place) => d.note(place),
            None => d,
        }
    }

    /// Checks that arguments are live nodes of this graph and that users are consistent. False if an argument cannot
    /// even be looked up.
    fn check_links(&mut self) -> bool {
        let g = self.graph;
        let mut sound = true;
        let mut users: HashMap<NodeId, HashSet<NodeId>> = HashMap::new();
        for n in g.iter() {
            for i in g[n].inputs() {
                users.entry(i).or_default().insert(n);
                if !g.is_live(i) {
                    sound = false;
                    let d = self.foreign_arg(n, i);
                    self.out.push(d);
                }
            }
        }
        for n in g.iter() {
            let real = users.remove(&n).unwrap_or_default();
            if real.len() != g[n].users().len() || !g[n].users().all(|u| real.contains(&u)) {
                let title = format!("the recorded users of `%{}` do not match its actual users", g[n].name());
                let d = self.at_node(Code::E0109, n, title, "");
                self.out
                    .push(d.note("the graph was changed without its editing methods, which maintain the users"));
            }
        }
        sound
    }

    fn foreign_arg(&self, n: NodeId, i: NodeId) -> Diagnostic {
        let erased = (i.as_u32() as usize) < self.graph.id_bound();
        let arg = if erased {
            self.graph[i].name().to_string()
        } else {
            format!("{i:?}")
        };
        let problem = if erased {
            "was erased"
        } else {
            "belongs to another graph"
        };
        let name = self.graph[n].name();
        self.at_node(Code::E0109, n, format!("argument `%{arg}` of `%{name}` {problem}"), "used here").note(format!(
            "torch.fx: Argument '{arg}' of Node '{name}' does not belong to this Graph, but was used as an argument! If \
             you are copying nodes from another graph, make sure to use ``arg_transform`` on node_copy() to remap values"
        ))
    }

    /// Checks that names are legal and unique, and that definitions precede uses.
    fn check_order(&mut self) {
        let g = self.graph;
        let mut seen: HashMap<&str, NodeId> = HashMap::new();
        let mut defined: HashSet<NodeId> = HashSet::new();
        for n in g.iter() {
            for i in g[n].inputs() {
                if g.is_live(i) && !defined.contains(&i) {
                    let d = self.used_early(n, i);
                    self.out.push(d);
                }
            }
            defined.insert(n);
            let name = g[n].name();
            let legal = name.is_ascii() && pyrepr::is_identifier(name);
            if !legal && !self.known.gaps.covers(g[n].meta.span) {
                let d = self.at_node(Code::E0107, n, format!("`{name}` is not a valid node name"), "");
                self.out
                    .push(d.help("a name must be a letter or underscore followed by letters, digits and underscores"));
            }
            if let Some(first) = seen.insert(name, n) {
                let mut d = self.at_node(
                    Code::E0103,
                    n,
                    format!("`%{name}` is defined twice"),
                    "defined again here",
                );
                if let Some(span) = g[first].meta.span {
                    d = d.see(span, "first defined here");
                }
                self.out.push(d.note(format!("torch.fx: Node redefined name {name}!")));
            }
        }
    }

    fn used_early(&self, n: NodeId, i: NodeId) -> Diagnostic {
        let g = self.graph;
        let (user, arg) = (g[n].name(), g[i].name());
        let title = match n == i {
            true => format!("`%{user}` uses itself"),
            false => format!("`%{arg}` is used before it is defined"),
        };
        let place = g[n].args().iter().position(|v| v.leaves().contains(&&i));
        let span = place
            .and_then(|p| g.text(n).arg_spans.get(p).copied())
            .or(g[n].meta.span);
        let mut d = Diagnostic::new(Code::E0102, title).at_opt(span, "used here");
        if let (Some(def), true) = (g[i].meta.span, n != i) {
            d = d.see(def, "defined here");
        }
        let d = d.note(format!(
            "torch.fx: Argument '{arg}' of Node '{user}' was used before it has been defined! Please check that Nodes in \
             the graph are topologically ordered"
        ));
        if n == i {
            d
        } else {
            d.help(format!("move the definition of `%{arg}` above `%{user}`"))
        }
    }

    /// Checks that there is one output, at the end, with one argument, and that placeholders come first, each name
    /// once.
    fn check_interface(&mut self) {
        let g = self.graph;
        let outputs = g.find_nodes(Opcode::Output, None);
        match outputs[..] {
            [] if self.known.gaps.in_graph(self.name) => {}
            [] => self.report_missing_output(),
            [first, ref others @ ..] => {
                for &n in others {
                    let title = format!("graph `{}` has a second output", self.name);
                    let mut d = self.at_node(Code::E0104, n, title, "unreachable");
                    if let Some(span) = g[first].meta.span {
                        d = d.see(span, "the graph returns here");
                    }
                    self.out
                        .push(d.help("return both values in one tuple: `output (%a, %b)`"));
                }
                self.check_after(first);
            }
        }
        for &n in &outputs {
            let node = &g[n];
            if node.args().len() != 1 || !node.kwargs().is_empty() {
                let values = count(node.args().len(), "value");
                let title = format!("the output of graph `{}` has {values}", self.name);
                let d = self.at_node(Code::E0104, n, title, "");
                self.out
                    .push(d.help("an output takes one argument; return several values as a tuple, a list or a dict"));
            }
        }
        self.check_placeholders();
    }

    fn report_missing_output(&mut self) {
        let g = self.graph;
        let title = format!("graph `{}` has no output", self.name);
        let d = Diagnostic::new(Code::E0104, title).at_opt(g.last().and_then(|n| g[n].meta.span), "");
        let last = g.last().map(|n| (g[n].name(), g[n].meta.span));
        self.out.push(match last {
            Some((value, Some(s))) => {
                let end = Span { start: s.end, ..s };
                d.suggest(end, format!("\n    output %{value}"), "return the last value")
            }
            _ => d.help("end the graph with `output %value`"),
        });
    }

    fn check_after(&mut self, output: NodeId) {
        let g = self.graph;
        let mut next = g.next(output);
        while let Some(n) = next {
            if g[n].op() != Opcode::Output {
                let title = format!("`%{}` comes after the output", g[n].name());
                let mut d = self.at_node(Code::E0104, n, title, "unreachable");
                if let Some(span) = g[output].meta.span {
                    d = d.see(span, "the graph returns here");
                }
                self.out.push(d.help("move the output to the end"));
            }
            next = g.next(n);
        }
    }

    fn check_placeholders(&mut self) {
        let g = self.graph;
        let mut before: Option<NodeId> = None;
        let mut targets: HashMap<&str, NodeId> = HashMap::new();
        for n in g.iter() {
            let node = &g[n];
            if node.op() != Opcode::Placeholder {
                // torch's own lowering puts attributes first, which is harmless.
                if node.op() != Opcode::GetAttr {
                    before.get_or_insert(n);
                }
                continue;
            }
            if let Some(b) = before {
                let title = format!("placeholder `%{}` comes after other nodes", node.name());
                let mut d = self.at_node(Code::E0105, n, title, "");
                if let Some(span) = g[b].meta.span {
                    d = d.see(span, "the first node that is not a placeholder");
                }
                self.out
                    .push(d.help("move it to the start of the graph, with the other placeholders"));
            }
            if let Some(first) = targets.insert(node.target(), n) {
                let title = format!("two placeholders are named `{}`", node.target());
                let mut d = self.at_node(Code::E0105, n, title, "");
                if let Some(span) = g[first].meta.span {
                    d = d.see(span, "the first one");
                }
                self.out.push(d.help("give each placeholder a unique name"));
            }
        }
    }

    /// Checks that methods have a receiver and that targets exist.
    fn check_calls(&mut self) {
        let g = self.graph;
        for n in g.iter() {
            let node = &g[n];
            if node.op() == Opcode::CallMethod && node.args().is_empty() {
                let title = format!("method `{}` is called without a receiver", node.target());
                let d = self.at_node(Code::E0108, n, title, "");
                self.out.push(d.help(format!(
                    "pass the receiver as the first argument: `call_method {}(%x)`",
                    node.target()
                )));
            }
            if node.target().is_empty() {
                let d = self.at_node(Code::E0106, n, format!("`%{}` has an empty target", node.name()), "");
                self.out.push(d);
            } else if let Some(m) = self.module {
                self.out.extend(check_targets(g, n, m, self.known));
            }
        }
    }

    /// Warns about each unused node without side effects, but not about nodes that only such nodes use.
    fn check_dead_code(&mut self) {
        let g = self.graph;
        // Unpacking a tuple takes all items, even those that are not used.
        let unpacks = |n: NodeId| matches!(g[n].target(), "operator.getitem" | "_operator.getitem");
        for n in g.iter() {
            if g[n].users().len() == 0 && !unpacks(n) && !is_impure(g, n, self.module) {
                let title = format!("`%{}` is never used", g[n].name());
                let d = self.at_node(Code::L0001, n, title, "this value is never used");
                self.out.push(d.help("remove the node, or return its value"));
            }
        }
    }
}

#[cfg(test)]
mod tests;
