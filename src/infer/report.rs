//! What inference says when something does not fit.

use super::declared::Mismatch;
use super::resolved::{Operand, Resolved};
use super::solve::{Contradiction, Origin};
use crate::diag::{Code, Diagnostic, Diagnostics, nearest};
use crate::graph::{Graph, GraphModule, NodeId, Opcode, place_note};
use crate::op::{self, BindError, Candidate, OpError};
use crate::source::Span;
use crate::types::{Type, Val};
use indexmap::IndexMap;

fn with_place(d: Diagnostic, graph: &Graph, n: NodeId) -> Diagnostic {
    match place_note(graph, n) {
        Some(p) => d.note(p),
        None => d,
    }
}

/// How a node's target reads in a message.
fn spelled(graph: &Graph, n: NodeId) -> String {
    let node = &graph[n];
    match node.op() {
        Opcode::CallMethod => format!("method `{}`", node.target()),
        Opcode::CallModule => format!("module `{}`", node.target()),
        _ => format!("`{}`", node.target()),
    }
}

/// A spelling that is not in the table (E0201); [`suggest`] adds what may be meant.
pub fn unknown_op(graph: &Graph, n: NodeId) -> Diagnostic {
    let span = graph[n].meta.target_span.or(graph[n].meta.span);
    Diagnostic::new(Code::E0201, format!("unknown op: {}", spelled(graph, n))).at_opt(span, "")
}

/// A module that is not declared (E0201); [`suggest`] adds what may be meant.
pub fn unknown_module(graph: &Graph, n: NodeId) -> Diagnostic {
    let node = &graph[n];
    let span = node.meta.target_span.or(node.meta.span);
    Diagnostic::new(Code::E0201, format!("module `{}` is not declared", node.target())).at_opt(span, "")
}

/// Adds what an unknown name may be meant for. This looks at every name there is, so it is not done for thousands.
pub fn suggest(module: &GraphModule, graph: &Graph, n: NodeId, d: Diagnostic) -> Diagnostic {
    let node = &graph[n];
    if node.op() == Opcode::CallModule {
        if module.modules.contains_key(node.target()) {
            return d;
        }
        return match nearest(node.target(), module.modules.keys().map(|k| &**k)) {
            Some(near) => d.help(format!("a module with a similar name is declared: `{near}`")),
            None => d.help(format!("declare it, for example `module {} = ReLU()`", node.target())),
        };
    }
    let path = op::canonical_path(node.target(), node.op() == Opcode::CallMethod);
    let mut names: Vec<&str> = module.graphs.keys().map(|k| &**k).collect();
    names.extend(module.ops.keys().map(|k| &**k));
    op::spellings().for_each(|s| names.push(s));
    let near = nearest(&path, names).map(str::to_string);
    let Some(near) = near.or_else(|| nearest_by_last_part(&path)) else {
        return d;
    };
    let shown = match node.op() {
        Opcode::CallMethod => near.strip_prefix("Tensor.").unwrap_or(&near).to_string(),
        _ if node.target().starts_with("torch.ops.") && near.starts_with("aten.") => format!("torch.ops.{near}"),
        _ => near,
    };
    match node.meta.target_span {
        Some(s) => d.suggest(s, shown, "an op with a similar name exists"),
        None => d.help(format!("an op with a similar name exists: `{shown}`")),
    }
}

/// A module whose class or constructor arguments are wrong.
pub fn module_error(graph: &Graph, n: NodeId, declared: Option<Span>, e: OpError) -> Diagnostic {
    let node = &graph[n];
    let mut d = Diagnostic::new(e.code, e.title);
    d = match declared {
        Some(s) => d.at(s, format!("called by `%{}`", node.name())),
        None => d.at_opt(node.meta.target_span.or(node.meta.span), ""),
    };
    d.notes.extend(e.notes);
    d.help.extend(e.help);
    d
}

/// The spelling of the same family (`torch.`, `aten.`, `Tensor.` …) whose last part is nearest.
fn nearest_by_last_part(path: &str) -> Option<String> {
    let (head, last) = path.rsplit_once('.')?;
    let family = op::spellings().filter_map(|s| s.rsplit_once('.').filter(|(h, _)| *h == head).map(|(_, l)| l));
    nearest(last, family).map(|l| format!("{head}.{l}"))
}

/// An unknown op and where it is used.
struct Unknown {
    diagnostic: Diagnostic,
    spans: Vec<Option<Span>>,
    places: Vec<String>,
}

/// Unknown ops, collected so that each spelling is reported once with all its uses.
#[derive(Default)]
pub struct Unknowns {
    by_spelling: IndexMap<String, Unknown>,
}

impl Unknowns {
    /// How many uses and places a report shows.
    const SHOWN: usize = 3;
    /// How many names are looked up for what may be meant.
    const SUGGESTED: usize = 30;

    /// Adds a use.
    pub fn add(&mut self, module: &GraphModule, graph: &Graph, n: NodeId, d: Diagnostic) {
        let first = !self.by_spelling.contains_key(&d.title);
        let d = if first && self.by_spelling.len() < Self::SUGGESTED {
            suggest(module, graph, n, d)
        } else {
            d
        };
        let span = graph[n].meta.target_span.or(graph[n].meta.span);
        let place = place_note(graph, n);
        let unknown = self.by_spelling.entry(d.title.clone()).or_insert_with(|| Unknown {
            diagnostic: d,
            spans: vec![],
            places: vec![],
        });
        unknown.spans.push(span);
        unknown.places.extend(place);
    }

    /// Reports them all.
    pub fn report(&mut self, out: &mut Diagnostics) {
        for (_, unknown) in std::mem::take(&mut self.by_spelling) {
            let Unknown {
                diagnostic: mut d,
                spans,
                places,
            } = unknown;
            for s in spans.iter().skip(1).take(Self::SHOWN - 1).flatten() {
                d = d.see(*s, "also here");
            }
            if spans.len() > Self::SHOWN {
                d = d.note(format!("used {} times in all", spans.len()));
            }
            for p in places.iter().take(Self::SHOWN) {
                d = d.note(p.clone());
            }
            out.push(d);
        }
    }
}

/// Arguments that fit no overload (E0202, E0203).
pub fn bind_error(graph: &Graph, n: NodeId, path: &str, candidate: Candidate, e: BindError) -> Diagnostic {
    let node = &graph[n];
    let name = spelled(graph, n);
    let span = node.meta.span;
    let d = match e {
        BindError::Missing(p) => Diagnostic::new(Code::E0203, format!("{name} is called without `{p}`"))
            .at_opt(span, format!("`{p}` is missing")),
        BindError::TooMany { given, max } => {
            let title = format!("{name} takes at most {max} positional arguments, but {given} are given");
            Diagnostic::new(Code::E0203, title).at_opt(node.meta.arg_spans.get(max).copied().or(span), "")
        }
        BindError::UnknownKeyword { name: k, nearest } => {
            let d = Diagnostic::new(Code::E0203, format!("{name} has no parameter `{k}`")).at_opt(span, "");
            match nearest {
                Some(p) => d.help(format!("a parameter with a similar name exists: `{p}`")),
                None => d,
            }
        }
        BindError::Twice(p) => {
            Diagnostic::new(Code::E0203, format!("{name} is given `{p}` by position and by name")).at_opt(span, "")
        }
        BindError::WrongType {
            param,
            expected,
            found,
            origin,
        } => {
            let span = match origin {
                op::Origin::Positional(i) => node.meta.arg_spans.get(i).copied().or(span),
                _ => span,
            };
            let title = format!("argument `{param}` of {name} must be {expected}, not {found}");
            Diagnostic::new(Code::E0202, title).at_opt(span, format!("this is {found}"))
        }
    };
    with_place(schemas(d, path, candidate), graph, n)
}

/// Adds the schemas that the spelling can have.
fn schemas(mut d: Diagnostic, path: &str, candidate: Candidate) -> Diagnostic {
    let all = op::candidates(path);
    let shown: Vec<String> = all.iter().map(|c| c.schema().to_string()).collect();
    if shown.len() <= 1 {
        return d.note(format!("its schema is {}", candidate.schema()));
    }
    for s in shown.iter().take(4) {
        d = d.note(format!("a schema it has is {s}"));
    }
    d
}

/// The nodes behind an operand.
fn node_of(o: &Operand) -> Option<NodeId> {
    match o {
        Operand::Node(n) | Operand::Item(n, _) => Some(*n),
        Operand::Attr(_) => None,
    }
}

/// An error of an op's rule or meaning, with its place: the argument at fault, where the operands' types come from,
/// and the user's Python.
pub fn op_error(graph: &Graph, n: NodeId, resolved: &Resolved, e: OpError, ty: &dyn Fn(NodeId) -> Type) -> Diagnostic {
    let node = &graph[n];
    let at = e
        .param
        .as_deref()
        .and_then(|p| arg_span(graph, n, resolved, p))
        .or(node.meta.span);
    let mut d = Diagnostic::new(e.code, e.title).at_opt(at, format!("in {}", spelled(graph, n)));
    let mut seen = vec![];
    for v in resolved.args.iter().chain(resolved.kwargs.iter().map(|(_, v)| v)) {
        for i in v.leaves().into_iter().filter_map(node_of) {
            if seen.contains(&i) || !matches!(ty(i), Val::Leaf(_)) {
                continue;
            }
            seen.push(i);
            let text = format!("`%{}` is {}", graph[i].name(), ty(i));
            d = match graph[i].meta.span {
                Some(s) if seen.len() <= 4 => d.see(s, text),
                _ => d.note(text),
            };
        }
    }
    d.notes.extend(e.notes);
    d.help.extend(e.help);
    with_place(d, graph, n)
}

/// Where the argument for parameter `param` is written.
fn arg_span(graph: &Graph, n: NodeId, resolved: &Resolved, param: &str) -> Option<Span> {
    let call = resolved.call()?;
    let i = call.op.schema.index_of(param)?;
    let pos = resolved.args.iter().position(|a| *a == call.args[i]).unwrap_or(i);
    graph[n].meta.arg_spans.get(pos).copied()
}

/// Sizes that cannot be equal (E0305).
pub fn contradiction(graph: &Graph, n: NodeId, origin: &Origin, c: &Contradiction) -> Diagnostic {
    with_place(guard(origin, c), graph, n)
}

/// A guard that cannot hold (E0305).
pub fn guard(origin: &Origin, c: &Contradiction) -> Diagnostic {
    let mut d = Diagnostic::new(Code::E0305, origin.what.clone())
        .at_opt(origin.span, format!("{} would have to equal {}", c.left, c.right));
    d.notes.extend(c.why.clone());
    Mismatch::Size(c.clone()).label(d)
}

/// An annotation that is not what the node gives (E0301).
pub fn declared(graph: &Graph, n: NodeId, declared: &Type, found: &Type, e: &Mismatch) -> Diagnostic {
    let title = format!("`%{}` is annotated {declared} but is {found}", graph[n].name());
    let mut d = Diagnostic::new(Code::E0301, title).at_opt(graph[n].meta.span, format!("this gives {found}"));
    d.notes.extend(e.notes());
    let d = e.label(d).help(format!("write `{found}`, or leave the type out"));
    with_place(d, graph, n)
}
