//! Diagnostics for ill-typed calls and annotations.

use super::declared::Mismatch;
use super::resolved::{Callee, Operand, Resolved};
use super::solve::{Contradiction, EquationOrigin};
use crate::diag::words::{clip_text, count, pluralize, with_article};
use crate::diag::{Code, Diagnostic};
use crate::graph::{Graph, NodeId, Opcode, place_note};
use crate::op::{self, BindError, Candidate, OpError, ParamType};
use crate::source::Span;
use crate::types::{Type, Val};

/// Adds the node's location in the user's Python source.
pub(super) fn with_place(d: Diagnostic, graph: &Graph, n: NodeId) -> Diagnostic {
    match place_note(graph, n) {
        Some(p) => d.note(p),
        None => d,
    }
}

/// A node's target as messages show it.
pub(super) fn spell_target(graph: &Graph, n: NodeId) -> String {
    let node = &graph[n];
    match node.op() {
        Opcode::CallMethod => format!("method `{}`", node.target()),
        Opcode::CallModule => format!("module `{}`", node.target()),
        _ => format!("`{}`", node.target()),
    }
}

fn suggest_parameter(d: Diagnostic, nearest: Option<String>, keyword: Option<Span>) -> Diagnostic {
    match (nearest, keyword) {
        (Some(p), Some(s)) => d.suggest(s, p, "there is a parameter with a similar name"),
        (Some(p), None) => d.help(format!("there is a parameter with a similar name: `{p}`")),
        (None, _) => d,
    }
}

/// Arguments that fit no overload (E0202, E0203).
pub(super) fn bind_error(graph: &Graph, n: NodeId, path: &str, candidate: Candidate, e: BindError) -> Diagnostic {
    let meta = &graph[n].meta;
    let name = spell_target(graph, n);
    let d = match e {
        BindError::Missing(p) => Diagnostic::new(Code::E0203, format!("{name} is missing the argument `{p}`"))
            .at_opt(meta.span, format!("`{p}` is missing")),
        BindError::TooMany { given, max } => {
            let most = count(max, "positional argument");
            let title = format!("{name} takes at most {most}, but {given} were given");
            let span = graph.text(n).arg_spans.get(max).copied().or(meta.span);
            Diagnostic::new(Code::E0203, title).at_opt(span, "unexpected argument")
        }
        BindError::UnknownKeyword { name: k, nearest } => {
            let title = format!("{name} has no parameter `{k}`");
            let keyword = keyword_span(graph, n, &k).map(|(name, _)| name);
            let d = Diagnostic::new(Code::E0203, title).at_opt(keyword.or(meta.span), "");
            suggest_parameter(d, nearest, keyword)
        }
        BindError::Twice(p) => {
            let span = keyword_span(graph, n, &p).map(|(name, _)| name).or(meta.span);
            let title = format!("{name} got `{p}` both by position and by keyword");
            Diagnostic::new(Code::E0203, title).at_opt(span, "second value here")
        }
        BindError::WrongType {
            param,
            expected,
            found,
            origin,
        } => {
            let span = argument_span(graph, n, &origin).or(meta.span);
            let (expected, found) = (describe_param_type(&expected), with_article(found));
            let title = format!("argument `{param}` of {name} must be {expected}, not {found}");
            Diagnostic::new(Code::E0202, title).at_opt(span, format!("this is {found}"))
        }
    };
    with_place(note_schemas(d, path, candidate), graph, n)
}

/// The span of the argument that a parameter is bound to.
fn argument_span(graph: &Graph, n: NodeId, origin: &op::ParamOrigin) -> Option<Span> {
    match origin {
        op::ParamOrigin::Positional(i) | op::ParamOrigin::Rest(i) => graph.text(n).arg_spans.get(*i).copied(),
        op::ParamOrigin::Keyword(i) => {
            let (name, _) = graph[n].kwargs().get(*i)?;
            keyword_span(graph, n, name).map(|(_, value)| value)
        }
        op::ParamOrigin::Default(_) => None,
    }
}

/// The spans of the keyword argument `name`: of its name and of its value.
fn keyword_span(graph: &Graph, n: NodeId, name: &str) -> Option<(Span, Span)> {
    let mut spans = graph.text(n).keyword_spans.iter();
    spans.find(|(k, ..)| &**k == name).map(|(_, k, v)| (*k, *v))
}

/// The accepted kinds of a parameter, in words: `an int, a list of ints or None`.
fn describe_param_type(ty: &ParamType) -> String {
    let mut kinds = vec![];
    kinds_of(ty, &mut kinds);
    match kinds.pop() {
        Some(last) if kinds.is_empty() => last,
        Some(last) => format!("{} or {last}", kinds.join(", ")),
        None => String::new(),
    }
}

fn kinds_of(ty: &ParamType, out: &mut Vec<String>) {
    match ty {
        ParamType::Optional(t) => {
            kinds_of(t, out);
            out.push("None".into());
        }
        ParamType::List(t, None) => out.push(format!("a list of {}", pluralize(&t.to_string()))),
        ParamType::List(t, Some(n)) => {
            kinds_of(t, out);
            out.push(match n {
                1 => format!("a list of {}", pluralize(&t.to_string())),
                n => format!("a list of {}", count(*n, &t.to_string())),
            });
        }
        t => out.push(with_article(&t.to_string())),
    }
}

/// Adds the schemas that are possible for the spelling.
fn note_schemas(mut d: Diagnostic, path: &str, candidate: Candidate) -> Diagnostic {
    let mut shown = op::signature_texts(path);
    if shown.is_empty() {
        let all = op::candidates(path);
        shown = all
            .iter()
            .map(|c| format!("{path}{}", op::ParamList(&c.schema().params)))
            .collect();
    }
    if shown.len() <= 1 {
        let only = shown.pop().unwrap_or_else(|| candidate.schema().to_string());
        return d.note(format!("the schema is {only}"));
    }
    for s in shown.iter().take(4) {
        d = d.note(format!("schema: {s}"));
    }
    d
}

/// The node that an operand belongs to.
fn node_of(o: &Operand) -> Option<NodeId> {
    match o {
        Operand::Node(n) | Operand::Item(n, _) => Some(*n),
        Operand::Attr(_) => None,
    }
}

/// The diagnostic for an error of an op's rule or meaning. It adds the location of the argument at fault, the locations
/// that determine the operands' types, and the user's Python source.
pub(crate) fn op_error(
    graph: &Graph,
    n: NodeId,
    resolved: &Resolved,
    e: OpError,
    ty: &dyn Fn(NodeId) -> Type,
) -> Diagnostic {
    let node = &graph[n];
    let span = e
        .param
        .as_deref()
        .and_then(|p| arg_span(graph, n, resolved, p))
        .or(node.meta.span);
    let mut d = Diagnostic::new(e.code, e.title).at_opt(span, format!("in {}", spell_target(graph, n)));
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
    d.notes.extend(e.notes.into_iter().map(clip_text));
    d.help.extend(e.help.into_iter().map(clip_text));
    d = own_schema(d, n, graph, resolved);
    with_place(d, graph, n)
}

/// Adds the op's schema to an error about an argument (E02xx).
fn own_schema(d: Diagnostic, n: NodeId, graph: &Graph, resolved: &Resolved) -> Diagnostic {
    if !d.code.name().starts_with("E02") {
        return d;
    }
    let path = op::canonical_path(graph[n].target(), graph[n].op() == Opcode::CallMethod);
    match (resolved.op(), op::candidates(&path).first()) {
        (Some(op), Some(c)) if c.op.name == op.name => note_schemas(d, &path, *c),
        (Some(op), _) => d.note(format!("the schema is {}", op.schema)),
        (None, _) => d,
    }
}

/// The span of the argument for parameter `param`.
fn arg_span(graph: &Graph, n: NodeId, resolved: &Resolved, param: &str) -> Option<Span> {
    if let Some((_, value)) = keyword_span(graph, n, param) {
        return Some(value);
    }
    if let (Callee::Op(spelling), true) = (&resolved.callee, graph[n].op() != Opcode::CallModule) {
        return argument_span(graph, n, spelling.origin(param)?);
    }
    let call = resolved.call()?;
    let i = call.op.schema.index_of(param)?;
    if let Some((name, _)) = resolved.kwargs.iter().find(|(_, v)| *v == call.args[i])
        && let Some((_, value)) = keyword_span(graph, n, name)
    {
        return Some(value);
    }
    let pos = resolved.args.iter().position(|a| *a == call.args[i]).unwrap_or(i);
    graph.text(n).arg_spans.get(pos).copied()
}

/// Sizes that cannot be equal (E0305).
pub(super) fn contradiction_error(graph: &Graph, n: NodeId, origin: &EquationOrigin, c: &Contradiction) -> Diagnostic {
    with_place(guard_error(origin, c), graph, n)
}

/// A guard that cannot hold (E0305).
pub(super) fn guard_error(origin: &EquationOrigin, c: &Contradiction) -> Diagnostic {
    let mut d = Diagnostic::new(Code::E0305, origin.what.clone())
        .at_opt(origin.span, format!("{} would have to equal {}", c.left, c.right));
    d.notes.extend(c.why.clone());
    Mismatch::Size(c.clone()).label(d)
}

/// An annotation that contradicts the inferred type (E0301).
pub(super) fn annotation_error(graph: &Graph, n: NodeId, declared: &Type, inferred: &Type, e: &Mismatch) -> Diagnostic {
    let title = format!(
        "`%{}` is annotated {declared}, but its type is {inferred}",
        graph[n].name()
    );
    let mut d = Diagnostic::new(Code::E0301, title).at_opt(graph[n].meta.span, format!("this returns {inferred}"));
    d.notes.extend(e.notes());
    let d = match graph.text(n).type_span {
        Some(s) if matches!(inferred, Val::Leaf(_)) => {
            e.label(d).suggest(s, inferred.to_string(), "use the inferred type")
        }
        _ => e.label(d).help(format!("write `{inferred}`, or remove the annotation")),
    };
    with_place(d, graph, n)
}
