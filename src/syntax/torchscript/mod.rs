//! TorchScript's text, as printed for `torch.jit.trace(model, inputs).graph` and `.inlined_graph`.
//!
//! ```text
//! graph(%self : __torch__.M,
//!       %x : Float(2, 4, strides=[4, 1], requires_grad=0, device=cpu)):
//!   %lin : __torch__.torch.nn.modules.linear.Linear = prim::GetAttr[name="lin"](%self)
//!   %3 : Tensor = prim::CallMethod[name="forward"](%lin, %x)
//!   %4 : int = prim::Constant[value=1]() # model.py:7:0
//!   %5 : Float(2, 5, strides=[5, 1], requires_grad=1, device=cpu) = aten::add(%3, %4, %4) # model.py:7:0
//!   return (%5)
//! ```
//!
//! Hand-written scripts are accepted, too: without types, header, brackets or result, or with constants among the
//! operands (`typing` infers what is missing).
//!
//! Constants, lists and tuples are arguments here and not nodes; a chain of `prim::GetAttr` is a path; a call of a
//! module's method `forward` is a `call_module`. `aten::add` does not name its overload, which the graph builder
//! determines from the arguments. Comments become the locations of nodes.

mod attributes;
mod blocks;
mod calls;
mod dicts;
mod known;
mod lists;
mod literal;
mod lower;
mod memos;
mod numbers;
mod objects;
mod operators;
mod regions;
mod rows;
pub(crate) mod token;
pub(crate) mod tree;
mod typing;
mod uses;
mod while_loop;

use super::ast::Item;
use super::torch_text::FoundItems;
use crate::diag::{Code, Diagnostic};
use crate::source::{FileId, Span};
use lalrpop_util::ParseError;
use logos::Logos;
use std::borrow::Cow;
use std::ops::Range;
use token::Token;
use tree::{Script, TorchscriptContext};

#[allow(missing_docs, unreachable_pub, clippy::all, unused_qualifications, reason = "LALRPOP writes it")]
#[rustfmt::skip]
mod grammar {
    include!(concat!(env!("OUT_DIR"), "/torchscript.rs"));
}

/// Reads every graph that TorchScript printed in `text`.
pub(crate) fn read(file: FileId, text: &str) -> FoundItems<'_> {
    let mut items = FoundItems {
        graphs: vec![],
        errors: vec![],
        rest: Cow::Borrowed(text),
    };
    if !text.contains("::") {
        return items;
    }
    let regions = regions::find_regions(text);
    if regions.is_empty() {
        return items;
    }
    let sequences = super::module_repr::find_sequences(text);
    let mut rest = text.as_bytes().to_vec();
    let mut scripts = 0;
    for range in regions {
        let mut cx = TorchscriptContext {
            file,
            errors: vec![],
            literals: vec![],
            constants: 0,
        };
        if let Some(mut script) = parse_script(&mut cx, text, range.clone()) {
            scripts += 1;
            typing::complete(&mut script);
            let graphs = lower::lower(&script, scripts, &sequences, &mut cx.errors);
            items.graphs.extend(graphs.into_iter().map(Item::Graph));
        }
        items.errors.append(&mut cx.errors);
        super::torch_text::blank_out(&mut rest[range]);
    }
    items.rest = Cow::Owned(String::from_utf8(rest).unwrap_or_default());
    items
}

fn parse_script(cx: &mut TorchscriptContext, text: &str, range: Range<usize>) -> Option<Script> {
    let mut tokens = vec![];
    let mut lexer = Token::lexer(&text[range.clone()]);
    while let Some(token) = lexer.next() {
        let (from, to) = (range.start + lexer.span().start, range.start + lexer.span().end);
        match token {
            Ok(t) => tokens.push((from, t, to)),
            Err(()) => {
                let d = stray_text(cx, text, from, to);
                cx.errors.extend(d);
            }
        }
    }
    // Comments are kept only after a node.
    let mut out: Vec<(usize, Token<'_>, usize)> = vec![];
    for t in tokens {
        let behind_node = matches!(
            out.last(),
            Some((_, Token::RParen | Token::RBracket | Token::Constant(_), _))
        );
        if !matches!(t.1, Token::Place(_)) || behind_node {
            out.push(t);
        }
    }
    if too_deep(&out, cx) {
        return None;
    }
    match grammar::ScriptParser::new().parse(cx, out) {
        Ok(script) => Some(script),
        Err(e) => {
            let d = unexpected_token(cx.file, e);
            cx.errors.push(d);
            None
        }
    }
}

/// Reports text that is not a token. For dots that mark an omission, only the first is reported.
fn stray_text(cx: &TorchscriptContext, text: &str, from: usize, to: usize) -> Option<Diagnostic> {
    let span = cx.span(from, to);
    if text[..from].ends_with('.') {
        return None;
    }
    if text[from..].starts_with("..") || text[from..].starts_with('…') {
        let d = Diagnostic::new(Code::E0013, "part of the graph is omitted");
        return Some(d.at(span, "omitted here").help("paste the complete graph"));
    }
    let piece: String = text[from..to].chars().take(20).collect();
    let d = Diagnostic::new(Code::E0013, format!("unrecognised text `{}`", piece.escape_debug()));
    Some(d.at(span, "this does not occur in TorchScript's output"))
}

/// Reports blocks that nest too deeply.
fn too_deep(tokens: &[(usize, Token<'_>, usize)], cx: &mut TorchscriptContext) -> bool {
    let mut depth = 0usize;
    for (start, t, end) in tokens {
        match t {
            Token::Name(n) if n.starts_with("block") => depth += 1,
            Token::Arrow => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > super::delimiters::MAX_DEPTH {
            cx.errors.push(super::delimiters::too_deep(cx.span(*start, *end)));
            return true;
        }
    }
    false
}

fn unexpected_token(file: FileId, error: ParseError<usize, Token<'_>, ()>) -> Diagnostic {
    let (title, start, end) = match &error {
        ParseError::UnrecognizedToken { token, .. } | ParseError::ExtraToken { token } => {
            (format!("unexpected {}", token.1), token.0, token.2)
        }
        ParseError::UnrecognizedEof { location, .. } | ParseError::InvalidToken { location } => {
            ("unexpected end of input".into(), *location, *location)
        }
        ParseError::User { .. } => ("invalid syntax".into(), 0, 0),
    };
    let expected = match &error {
        ParseError::UnrecognizedToken { expected, .. } | ParseError::UnrecognizedEof { expected, .. } => {
            let words: Vec<&str> = expected.iter().take(4).map(|e| e.trim_matches('"')).collect();
            words.join(", ")
        }
        _ => "the end of the input".into(),
    };
    Diagnostic::new(Code::E0013, format!("invalid TorchScript: {title}"))
        .at(Span::new(file, start, end), format!("expected {expected}"))
        .help("paste the complete output of `print(torch.jit.trace(model, inputs).graph)`")
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod block_tests;

#[cfg(test)]
mod list_tests;

#[cfg(test)]
mod number_tests;

#[cfg(test)]
mod written_tests;
