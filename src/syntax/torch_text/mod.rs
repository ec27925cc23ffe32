//! Reads the output of `print(gm.graph)`, torch 1.7 to 2.15, and the "Graph fragment" lines of Inductor's comments.
//!
//! This text has unquoted strings, so it has its own reader (`value` describes how tokens and strings are
//! distinguished). A token is taken for a literal only if printing the literal restores the token; all others are
//! strings. The resulting graph therefore prints as the original text, byte for byte.

mod literal;
mod regions;
mod repr;
mod value;

use super::actions::make_stmt;
use super::ast::*;
use crate::diag::{Code, Diagnostic};
use crate::source::{FileId, Span};
use regions::{GraphRegion, OPENERS, indent_len};
use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use value::TorchReader;

/// The result of [`read`].
#[derive(Debug)]
pub(crate) struct FoundItems<'a> {
    /// The graphs that torch printed.
    pub graphs: Vec<Item>,
    /// Errors in those graphs.
    pub errors: Vec<Diagnostic>,
    /// The text with those graphs blanked out, so that all other bytes keep their offsets.
    pub rest: Cow<'a, str>,
}

/// Reads every graph that torch printed in `text`.
pub(crate) fn read(file: FileId, text: Cow<'_, str>) -> FoundItems<'_> {
    let regions = regions::find_regions(&text);
    let mut graphs = vec![];
    let mut errors = vec![];
    if regions.is_empty() {
        let rest = text;
        return FoundItems { graphs, errors, rest };
    }
    let mut rest = text.as_bytes().to_vec();
    for r in &regions {
        let mut reader = TorchReader::new(file, &text);
        graphs.push(Item::Graph(read_graph(&mut reader, r)));
        errors.append(&mut reader.errors);
        blank_out(&mut rest[r.range.clone()]);
    }
    FoundItems {
        graphs,
        errors,
        rest: Cow::Owned(String::from_utf8(rest).unwrap_or_default()),
    }
}

/// Blanks out text that has been read, except for newlines.
pub(super) fn blank_out(bytes: &mut [u8]) {
    bytes.iter_mut().filter(|b| **b != b'\n').for_each(|b| *b = b' ');
}

fn read_graph<'a>(r: &mut TorchReader<'a>, region: &GraphRegion) -> Graph {
    let mut stmts = vec![];
    let text = r.text;
    if let Some(h) = region.header.as_ref().filter(|_| region.whole) {
        header_params(r, h.clone(), &mut stmts);
    }
    for s in &region.stmts {
        let line = &text[s.clone()];
        r.defined.extend(defined_name(line));
    }
    for s in &region.stmts {
        stmts.extend(read_statement(r, s.clone(), region.whole));
    }
    let span = r.span(region.range.start, region.range.end);
    let end = |offset: usize| r.span(offset, offset);
    Graph {
        name: None,
        attribute: None,
        updates: vec![],
        called: None,
        body: Body {
            broken: broken_nodes(r, &stmts),
            stmts,
            open: end(region.range.start),
            close: end(region.range.end),
        },
        dialect: Dialect::Torch(TorchPrint {
            header: region
                .header
                .as_ref()
                .map(|h| header_text(&text[h.clone()], region.whole)),
            fragment: !region.whole,
        }),
        signature: None,
        span,
    }
}

/// The line before the statements: Inductor's unchanged, torch's without indentation or comment sign.
fn header_text(line: &str, whole: bool) -> Arc<str> {
    match whole {
        true => line[indent_len(line)..].trim_end().into(),
        false => line.into(),
    }
}

/// The nodes whose statements could not be read.
fn broken_nodes(r: &TorchReader<'_>, stmts: &[Stmt]) -> Vec<Arc<str>> {
    let read: HashSet<&str> = stmts.iter().filter_map(|s| s.name.as_ref()).map(|n| &*n.text).collect();
    r.defined
        .iter()
        .filter(|n| !read.contains(**n))
        .map(|n| Arc::from(*n))
        .collect()
}

/// The name of the node that a statement defines.
fn defined_name(line: &str) -> Option<&str> {
    let rest = line[indent_len(line)..].strip_prefix('%')?;
    let end = rest.find(|c: char| !is_ident(c)).unwrap_or(rest.len());
    Some(&rest[..end])
}

fn is_ident(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The placeholders of torch 1.7: `graph(x, y : torch.Tensor):`.
fn header_params<'a>(r: &mut TorchReader<'a>, header: Range<usize>, stmts: &mut Vec<Stmt>) {
    let line = &r.text[header.clone()];
    let Some(open) = line.find('(') else { return };
    let Some(close) = line.rfind("):").or(line.rfind(") -> ")) else {
        return;
    };
    let range = header.start + open + 1..header.start + close;
    let Some(params) = r.split_items(range, false) else {
        return;
    };
    for p in params {
        let text = &r.text[p.clone()];
        let (target, annotation) = text
            .split_once(':')
            .map_or((text, ""), |(n, t)| (n.trim_end(), t.trim()));
        let name: String = target.chars().map(|c| if is_ident(c) { c } else { '_' }).collect();
        let span = r.span(p.start, p.end);
        r.headed.insert(name.clone());
        let op = Op::Placeholder {
            target: Name::new(target, span),
            default: None,
        };
        let mut s = make_stmt(
            Some(Name::new(name, span)),
            annotation_type(annotation, span),
            op,
            None,
            span,
        );
        s.torch = Some(Box::new(TorchStmt {
            indent: "".into(),
            annotation: annotation.into(),
            tag: None,
            form: TorchForm::HeaderParam,
        }));
        stmts.push(s);
    }
}

/// Reads one statement; reports an error and returns `None` if that is not possible. In a whole graph torch indents
/// statements by four spaces, so the indentation of pasted text is ignored.
fn read_statement<'a>(r: &mut TorchReader<'a>, range: Range<usize>, whole: bool) -> Option<Stmt> {
    let range = range.start..range.start + r.text[range.clone()].trim_end().len();
    let line = &r.text[range.clone()];
    let indent = indent_len(line);
    let start = range.start + indent;
    let body = &line[indent..];
    let mut out = match body.strip_prefix("return") {
        Some(_) => read_return(r, start..range.end)?,
        None => read_node(r, start..range.end)?,
    };
    if let Some(t) = &mut out.torch {
        t.indent = if whole { "    " } else { &line[..indent] }.into();
    }
    Some(out)
}

fn read_return<'a>(r: &mut TorchReader<'a>, range: Range<usize>) -> Option<Stmt> {
    let text = &r.text[range.clone()];
    let start = range.start + text.len().min("return ".len());
    let (value, form) = match &r.text[start..range.end] {
        t if t.starts_with('%') => (r.percent_list(start..range.end)?, TorchForm::ReturnPercent),
        _ => (r.read_repr(start..range.end)?, TorchForm::Return),
    };
    let mut s = make_stmt(None, None, Op::Output { value }, None, r.span(range.start, range.end));
    s.torch = Some(Box::new(TorchStmt {
        indent: "".into(),
        annotation: "".into(),
        tag: None,
        form,
    }));
    Some(s)
}

/// `%name : TYPE [num_users=N] = OP[target=…](args = …, kwargs = …)`.
fn read_node<'a>(r: &mut TorchReader<'a>, range: Range<usize>) -> Option<Stmt> {
    let text = &r.text[range.clone()];
    let span = r.span(range.start, range.end);
    let name = defined_name(text).filter(|n| !n.is_empty() && !n.starts_with(|c: char| c.is_ascii_digit()));
    let opener = OPENERS.iter().filter_map(|o| text.find(o).map(|i| (i, *o))).min();
    let (Some(name), Some((eq, opener))) = (name, opener) else {
        return r.report_malformed(
            range,
            "expected `%name : [num_users=N] = opcode[target=…](…)` or `return …`",
        );
    };
    let Some(before) = text[..eq].get(name.len() + 1..).and_then(|t| t.strip_prefix(" : ")) else {
        return r.report_malformed(range, "expected ` : ` after the name");
    };
    let (annotation, tag) = users_tag(before);
    let tail = range.start + eq + opener.len()..range.end;
    let (op, form) = match opener {
        " = self." => (self_attr(r, tail), TorchForm::SelfAttr),
        " = placeholder[target=" => (read_placeholder(r, tail)?, TorchForm::Bracketed),
        " = PlaceHolder[target=" => (read_placeholder(r, tail)?, TorchForm::CapitalPlaceholder),
        " = get_attr[target=" => (get_attr(r, tail)?, TorchForm::Bracketed),
        " = call_function[target=" => (read_call(r, CallKind::Function, tail)?, TorchForm::Bracketed),
        " = call_method[target=" => (read_call(r, CallKind::Method, tail)?, TorchForm::Bracketed),
        _ => (read_call(r, CallKind::Module, tail)?, TorchForm::Bracketed),
    };
    let name = Name::new(name, r.span(range.start, range.start + 1 + name.len()));
    let ty = annotation_type(annotation, span);
    let mut s = make_stmt(Some(name), ty, op, None, span);
    s.torch = Some(Box::new(TorchStmt {
        indent: "".into(),
        annotation: annotation.into(),
        tag,
        form,
    }));
    Some(s)
}

/// Splits `TYPE [num_users=N]` before the tag.
fn users_tag(before: &str) -> (&str, Option<UsersTag>) {
    for word in ["num_users", "#users", "users", "uses"] {
        let open = format!("[{word}=");
        if let Some(start) = before.rfind(&open)
            && let Some(digits) = before[start + open.len()..].strip_suffix(']')
            && let Ok(count) = digits.parse()
        {
            let word = word.into();
            return (&before[..start], Some(UsersTag { word, count }));
        }
    }
    (before, None)
}

/// The type for torch's annotation, if FXIR has it: `int`, `Tensor "f32[4, 5][5, 1]cpu"`.
fn annotation_type(annotation: &str, span: Span) -> Option<Type> {
    let text = annotation.trim();
    let kind = match text {
        "int" | "float" | "bool" | "str" => TypeKind::Word(text.into()),
        _ => {
            let inner = text.strip_prefix("Tensor \"")?.strip_suffix('"')?;
            let shape = &inner[..inner.find(']')? + 1];
            let (ty, errors) = super::parse_type(span.file, shape);
            let mut ty = ty.filter(|_| errors.is_empty())?;
            super::spans::visit_type(&mut ty, &mut |s| *s = span);
            ty.kind
        }
    };
    Some(Type { kind, span })
}

fn self_attr(r: &TorchReader<'_>, tail: Range<usize>) -> Op {
    Op::GetAttr {
        target: Name::new(&r.text[tail.clone()], r.span(tail.start, tail.end)),
    }
}

fn read_placeholder<'a>(r: &mut TorchReader<'a>, tail: Range<usize>) -> Option<Op> {
    let text = &r.text[tail.clone()];
    let (target, default) = match text.find("](default=") {
        Some(offset) => {
            let start = tail.start + offset + "](default=".len();
            let Some(raw) = r.text[start..tail.end].strip_suffix(')') else {
                return r.report_malformed(tail, "expected `)` after the default");
            };
            (&text[..offset], Some(r.read_default(start..start + raw.len())?))
        }
        None => match text.strip_suffix(']') {
            Some(t) => (t, None),
            None => return r.report_malformed(tail, "expected `]` after the target"),
        },
    };
    let target = Name::new(target, r.span(tail.start, tail.start + target.len()));
    Some(Op::Placeholder { target, default })
}

fn get_attr<'a>(r: &mut TorchReader<'a>, tail: Range<usize>) -> Option<Op> {
    let Some(target) = r.text[tail.clone()].strip_suffix(']') else {
        return r.report_malformed(tail, "expected `]` after the target");
    };
    Some(Op::GetAttr {
        target: Name::new(target, r.span(tail.start, tail.start + target.len())),
    })
}

/// `TARGET](args = (…), kwargs = {…})`.
fn read_call<'a>(r: &mut TorchReader<'a>, kind: CallKind, tail: Range<usize>) -> Option<Op> {
    const ARGS: &str = "](args = (";
    const KWARGS: &str = "), kwargs = {";
    let text = &r.text[tail.clone()];
    let parts = text.find(ARGS).and_then(|a| {
        let k = text.rfind(KWARGS)?;
        (k + 1 >= a + ARGS.len() && text.ends_with("})")).then_some((a, k))
    });
    let Some((a, k)) = parts else {
        return r.report_malformed(tail, "expected `](args = (…), kwargs = {…})` at the end of the call");
    };
    let target = &text[..a];
    let args = tail.start + a + ARGS.len()..tail.start + k;
    let kwargs = tail.start + k + KWARGS.len()..tail.end - 2;
    let positional = r.read_arguments(target, args)?;
    let keyword = r.read_keywords(kwargs)?;
    Some(Op::Call {
        kind,
        target: Name::new(target, r.span(tail.start, tail.start + a)),
        args: Args { positional, keyword },
    })
}

impl TorchReader<'_> {
    /// Reports that the text in `range` cannot be read.
    fn report_malformed<T>(&mut self, range: Range<usize>, reason: &str) -> Option<T> {
        let first = self.text[range.clone()].lines().next().map_or(0, str::len);
        let span = self.span(range.start, range.start + first);
        let d = Diagnostic::new(Code::E0013, "invalid syntax for a graph printed by torch").at(span, reason);
        self.errors
            .push(d.help("paste the complete, unmodified output of `print(gm.graph)`"));
        None
    }
}

#[cfg(test)]
mod tests;
