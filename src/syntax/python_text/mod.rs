//! Reads the Python that torch prints: `gm.code`, `gm.print_readable()` and `print(exported_program)`.
//!
//! ```text
//! class GraphModule(torch.nn.Module):
//!     def forward(self, x: "f32[4, 4]"):
//!         # File: model.py:8 in forward, code: y = self.lin(x)
//!         lin: "f32[4, 5]" = self.lin(x);  x = None
//!         add: "f32[4, 5]" = lin + 1;  lin = None
//!         return (add,)
//! ```
//!
//! [`regions`] finds such text in a file. [`lexer`] and the LALRPOP grammar `grammar/python.lalrpop` parse it into a
//! [`tree`], and `lower` converts each function to the statements of a graph: an infix operator becomes a call of the
//! function in `operator`, `self.a.b(x)` a call of the module `a.b`, a bare `self.w` a `get_attr`. torch writes one
//! node per statement; nested expressions become nodes with generated names. Nested classes are the graphs of
//! submodules. `# File: …` comments give the origins of the nodes after them.

pub(crate) mod lexer;
mod lower;
mod names;
pub(crate) mod regions;
mod signature;
pub(crate) mod token;
pub(crate) mod tree;
mod value;

use super::ast::{Dialect, Graph, Item, Name, Signature};
use super::torch_text::FoundItems;
use crate::diag::{Code, Diagnostic};
use crate::source::{FileId, Span};
use lalrpop_util::{ErrorRecovery, ParseError};
use lexer::lex;
use lower::FunctionContext;
use regions::{PythonRegion, RegionKind};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use token::Token;
use tree::{Class, Def, Expr, ExprKind, PythonContext, Top};

pub(super) use signature::specs_of;

#[allow(missing_docs, unreachable_pub, clippy::all, unused_qualifications, reason = "LALRPOP writes it")]
#[rustfmt::skip]
mod grammar {
    include!(concat!(env!("OUT_DIR"), "/python.rs"));
}

/// Reads every piece of generated Python in `text`.
pub(crate) fn read<'a>(file: FileId, text: Cow<'a, str>) -> FoundItems<'a> {
    let regions = regions::find_regions(&text);
    let mut items = FoundItems {
        graphs: vec![],
        errors: vec![],
        rest: text,
    };
    if regions.is_empty() {
        return items;
    }
    let mut rest = items.rest.as_bytes().to_vec();
    let mut names = HashSet::new();
    for r in &regions {
        let mut reader = PythonReader {
            file,
            text: &items.rest,
            wrapped: vec![],
            comments: vec![],
            names: &mut names,
            graphs: vec![],
            errors: vec![],
        };
        reader.read_region(r);
        items.graphs.extend(reader.graphs.into_iter().map(Item::Graph));
        items.errors.append(&mut reader.errors);
        super::torch_text::blank_out(&mut rest[r.range.clone()]);
    }
    items.rest = Cow::Owned(String::from_utf8(rest).unwrap_or_default());
    items
}

struct PythonReader<'a> {
    file: FileId,
    text: &'a str,
    wrapped: Vec<String>,
    comments: Vec<std::ops::Range<usize>>,
    /// Names of the graphs of submodules in the whole text.
    names: &'a mut HashSet<Arc<str>>,
    graphs: Vec<Graph>,
    errors: Vec<Diagnostic>,
}

impl PythonReader<'_> {
    fn read_region(&mut self, region: &PythonRegion) {
        let lexed = lex(self.file, self.text, region);
        self.errors.extend(lexed.errors);
        self.comments = lexed.comments;
        self.wrapped = region
            .lines
            .iter()
            .filter_map(|l| wrapped_name(&self.text[l.clone()]))
            .collect();
        let mut cx = PythonContext {
            file: self.file,
            errors: vec![],
            deep: false,
        };
        let failed = match region.kind {
            RegionKind::Program => match grammar::ExportedParser::new().parse(&mut cx, lexed.tokens) {
                Ok(p) => {
                    let signature = Signature {
                        specs: signature::lower_specs(p.signature),
                        ranges: signature::read_ranges(self.text, p.ranges.as_ref()),
                        span: p.span,
                    };
                    self.read_members(&p.members, None, Some(Box::new(signature)));
                    None
                }
                Err(e) => Some(e),
            },
            RegionKind::Code | RegionKind::Class => match grammar::TextParser::new().parse(&mut cx, lexed.tokens) {
                Ok(members) => {
                    self.read_members(&members, None, None);
                    None
                }
                Err(e) => Some(e),
            },
        };
        self.errors.append(&mut cx.errors);
        self.errors.extend(failed.map(|e| unexpected_token(self.file, e)));
    }

    /// Reads the graphs at one nesting level. Names the nested classes first.
    fn read_members(&mut self, members: &[Top], class: Option<&Class>, mut signature: Option<Box<Signature>>) {
        for m in members {
            match m {
                Top::Class(c) if class.is_none() => self.read_members(&c.members, Some(c), signature.take()),
                Top::Def(d) => self.read_function(d, class, members, signature.take(), None),
                Top::Class(_) | Top::Other => {}
            }
        }
    }

    /// Reads one function, then the graphs of the submodules in the same class.
    fn read_function(
        &mut self,
        def: &Def,
        class: Option<&Class>,
        siblings: &[Top],
        signature: Option<Box<Signature>>,
        name: Option<Arc<str>>,
    ) {
        let inner: Vec<&Class> = match class {
            Some(_) => siblings.iter().filter_map(class_of).collect(),
            None => vec![],
        };
        let children: HashMap<Arc<str>, Arc<str>> = inner
            .iter()
            .map(|c| (c.name.text.clone(), self.graph_name(&c.name.text)))
            .collect();
        let text = FunctionContext {
            file: self.file,
            text: self.text,
            comments: &self.comments,
            wrapped: &self.wrapped,
        };
        let (body, called) = lower::lower(&text, def, &children, &mut self.errors);
        self.graphs.push(Graph {
            name: name.map(|n| Name::new(n, def.name.span)),
            attribute: None,
            updates: vec![],
            called,
            body,
            dialect: Dialect::Python(class.map(|c| c.name.text.clone())),
            signature,
            span: class.map_or(def.span, |c| c.span),
        });
        for c in inner {
            if let Some(d) = c.members.iter().find_map(def_of) {
                let name = children.get(&c.name.text).cloned();
                self.read_function(d, Some(c), &c.members, None, name);
            }
        }
    }

    /// A unique name for the graph of a submodule.
    fn graph_name(&mut self, wish: &Arc<str>) -> Arc<str> {
        let mut name = wish.clone();
        let mut i = 0;
        while &*name == "main" || !self.names.insert(name.clone()) {
            i += 1;
            name = format!("{wish}_{i}").into();
        }
        name
    }
}

fn class_of(t: &Top) -> Option<&Class> {
    match t {
        Top::Class(c) => Some(c),
        _ => None,
    }
}

fn def_of(t: &Top) -> Option<&Def> {
    match t {
        Top::Def(d) => Some(d),
        _ => None,
    }
}

/// The name wrapped by a line `torch.fx._symbolic_trace.wrap("name")`.
fn wrapped_name(line: &str) -> Option<String> {
    let (head, rest) = line.trim().split_once("wrap(\"")?;
    let name = rest.strip_suffix("\")")?;
    head.bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_'))
        .then(|| name.to_string())
}

impl PythonContext {
    /// Reports an error that the parser recovered from.
    pub(crate) fn recovered(&mut self, e: ErrorRecovery<usize, Token<'_>, ()>) {
        let d = unexpected_token(self.file, e.error);
        self.errors.push(d);
    }
}

/// The diagnostic for an unexpected token.
fn unexpected_token(file: FileId, error: ParseError<usize, Token<'_>, ()>) -> Diagnostic {
    let (title, span) = match &error {
        ParseError::UnrecognizedToken { token, .. } | ParseError::ExtraToken { token } => {
            (format!("unexpected {}", token.1), Span::new(file, token.0, token.2))
        }
        ParseError::UnrecognizedEof { location, .. } | ParseError::InvalidToken { location } => {
            ("unexpected end of input".into(), Span::new(file, *location, *location))
        }
        ParseError::User { .. } => ("invalid syntax".into(), Span::new(file, 0, 0)),
    };
    let want = match &error {
        ParseError::UnrecognizedToken { expected, .. } | ParseError::UnrecognizedEof { expected, .. } => {
            expected_words(expected)
        }
        _ => "the end of the input".into(),
    };
    let d = Diagnostic::new(
        Code::E0013,
        format!("invalid syntax for code printed by torch: {title}"),
    );
    d.at(span, format!("expected {want}"))
        .help("paste the unmodified output of gm.code, print_readable() or print(exported_program)")
}

/// Describes LALRPOP's list of expected tokens for a reader.
fn expected_words(expected: &[String]) -> String {
    let has = |t: &str| expected.iter().any(|e| e.trim_matches('"') == t);
    if has("name") && has("string") && has("[") {
        return "an expression".into();
    }
    let mut out = vec![];
    if has("comparison") && has("**") {
        out.push("an operator".to_string());
    }
    let plain = ["the end of the line", "indent", "dedent", "name", "string"];
    for e in expected.iter().map(|e| e.trim_matches('"')) {
        match e {
            "dedent" => out.push("the end of the block".into()),
            "name" => out.push("a name".into()),
            e if plain.contains(&e) => out.push(format!("the {e}").replace("the indentation", "an indented line")),
            "(" | ")" | "]" | "}" | "," | ":" | ";" | "=" => out.push(format!("`{e}`")),
            _ => {}
        }
    }
    match out.len() {
        0 => "something else".into(),
        1 => out.remove(0),
        n => format!("{} or {}", out[..n - 1].join(", "), out[n - 1]),
    }
}

/// The text of a string expression.
fn text_of(e: &Expr) -> Option<Arc<str>> {
    match &e.kind {
        ExprKind::Str(s) => Some(s.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
