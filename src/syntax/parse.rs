//! Entry points of the parser: from text to syntax tree.

use super::actions::FxirContext;
use super::ast::{File, Item, Type, Value};
use super::errors::unexpected_token;
use super::lexer::{Lexed, Spanned, lex};
use super::slips::Mended;
use super::token::Token;
use super::{bare, check, delimiters, module_repr, pasted, python_text, slips, torch_text, torchscript};
use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::source::{FileId, Sources, Span};
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

#[allow(missing_docs, unreachable_pub, clippy::all, unused_qualifications, reason = "LALRPOP writes it")]
#[rustfmt::skip]
mod grammar {
    include!(concat!(env!("OUT_DIR"), "/fxir.rs"));
}

/// Parses `file`. The tree has everything that could be read; it is complete only if there are no errors.
pub fn parse(sources: &Sources, file: FileId) -> (File, Diagnostics) {
    parse_text(file, &sources.get(file).text)
}

/// [`parse`] of a text that is not in a source store.
///
/// The text is first read unchanged. Only if that fails are common mistakes repaired, which leads to better messages.
/// The result for a correct text therefore never depends on repairs.
pub fn parse_text(file: FileId, text: &str) -> (File, Diagnostics) {
    let (tree, cx) = as_meant(file, text, false);
    if cx.errors.is_empty() || exceeds_limits(&cx.errors) {
        return (tree, sorted_findings(cx));
    }
    let (mended, explained) = as_meant(file, text, true);
    match explained.errors.is_empty() {
        true => (tree, sorted_findings(cx)),
        false => (mended, sorted_findings(explained)),
    }
}

/// Whether the text nests too deeply or is too large. No repair helps.
fn exceeds_limits(errors: &[Diagnostic]) -> bool {
    errors.iter().any(|d| matches!(d.code, Code::E0008 | Code::E0114))
}

/// Reads the text unchanged or, if that gives fewer errors, with pasted surroundings removed.
fn as_meant(file: FileId, text: &str, mend: bool) -> (File, FxirContext) {
    let (tree, cx) = read_checked(file, text, false, mend);
    if cx.errors.is_empty() && !pasted::is_commented_program(text) || exceeds_limits(&cx.errors) {
        return (tree, cx);
    }
    let clean = pasted::clean(text);
    let (mut again, mut second) = read_checked(file, clean.as_ref().map_or(text, |c| &c.text), true, mend);
    let better = second.errors.len() < cx.errors.len() || cx.errors.is_empty() && second.errors.is_empty();
    if !better || again.items.len() < tree.items.len() {
        return (tree, cx);
    }
    if let Some(clean) = clean {
        clean.restore(&mut again, &mut second.errors);
    }
    again.pasted = true;
    (again, second)
}

/// Parses a piece of FXIR without any of torch's texts.
pub(super) fn parse_fxir(file: FileId, text: &str) -> (File, Diagnostics) {
    let (tokens, mut cx) = lex_balanced(file, text);
    let items = grammar::FileParser::new().parse(&mut cx, tokens.unwrap_or_default());
    let items = items.unwrap_or_else(|e| {
        cx.errors.push(unexpected_token(file, e));
        vec![]
    });
    let tree = File {
        items,
        ..File::default()
    };
    (tree, sorted_findings(cx))
}

/// Reads and checks the tree. Prose is skipped in pasted text. With `mend`, common mistakes are repaired and reported.
fn read_checked(file: FileId, text: &str, is_pasted: bool, mend: bool) -> (File, FxirContext) {
    let (mut tree, mut cx) = read_tree(file, text, is_pasted, mend);
    check::check(&mut tree, &mut cx.errors);
    (tree, cx)
}

/// [`parse_text`] without the checks of names.
#[cfg(test)]
pub(super) fn parse_unchecked(file: FileId, text: &str) -> (File, Diagnostics) {
    let (tree, cx) = read_tree(file, text, false, false);
    (tree, sorted_findings(cx))
}

fn read_tree(file: FileId, text: &str, is_pasted: bool, mend: bool) -> (File, FxirContext) {
    let torch = read_torch_texts(file, text);
    let mut rest = torch.rest;
    if is_pasted && (torch.graphs > 0 || rest.lines().any(pasted::is_bare)) {
        rest = pasted::without_prose(&rest).into();
    }
    let mut lexed = lex(file, &rest);
    if mend {
        lexed.tokens = slips::pair_brackets(file, &rest, lexed.tokens, &mut lexed.errors);
    }
    // Statements outside of graphs are a graph only if there are no torch graphs; otherwise they are leftovers.
    if torch.graphs == 0 {
        lexed.tokens = bare::wrap_in_graph(lexed.tokens);
    }
    let tokens = lexed.tokens;
    let Mended { tokens, lost } = match mend {
        true => slips::mend(file, &rest, tokens, &mut lexed.errors),
        false => Mended { tokens, lost: vec![] },
    };
    let (tokens, mut cx) = balance_tokens(file, &rest, tokens, lexed.errors);
    let tokens = tokens.unwrap_or_default();
    let defined = collect_definitions(&tokens, lost);
    let (bounds, declared) = (statement_starts(&tokens), collect_declarations(&tokens));
    let before = cx.errors.len();
    let mut items = parse_tokens(file, &mut cx, tokens);
    forget_consequences(&mut cx.errors, before, &bounds);
    items.iter_mut().for_each(|i| note_broken(i, &defined));
    let lost = names_not_in(declared, &items);
    cx.errors.extend(torch.errors);
    items.extend(torch.items);
    items.sort_by_key(|i| i.span().start);
    let tree = File {
        items,
        comments: lexed.comments,
        lost,
        pasted: false,
        span: Span::new(file, 0, text.len()),
    };
    (tree, cx)
}

/// What torch printed in a file.
struct TorchTexts<'a> {
    /// The graphs and declared modules.
    items: Vec<Item>,
    /// The number of graphs among the items.
    graphs: usize,
    /// Errors in the graphs.
    errors: Vec<Diagnostic>,
    /// The text with torch's texts blanked out.
    rest: Cow<'a, str>,
}

fn read_torch_texts(file: FileId, text: &str) -> TorchTexts<'_> {
    let script = torchscript::read(file, text);
    let torch = torch_text::read(file, script.rest);
    let python = python_text::read(file, torch.rest);
    let modules = module_repr::read(file, python.rest);
    let graphs = [script.graphs, torch.graphs, python.graphs];
    let mut items: Vec<Item> = graphs.into_iter().flatten().collect();
    let graphs = items.len();
    items.extend(modules.graphs);
    TorchTexts {
        items,
        graphs,
        errors: [script.errors, torch.errors, python.errors]
            .into_iter()
            .flatten()
            .collect(),
        rest: modules.rest,
    }
}

fn parse_tokens(file: FileId, cx: &mut FxirContext, tokens: Vec<Spanned<'_>>) -> Vec<Item> {
    grammar::FileParser::new().parse(cx, tokens).unwrap_or_else(|e| {
        cx.errors.push(unexpected_token(file, e));
        vec![]
    })
}

/// Parses one type, such as `f32[N, 3]`.
pub fn parse_type(file: FileId, text: &str) -> (Option<Type>, Diagnostics) {
    let (tokens, mut cx) = lex_balanced(file, text);
    let result = tokens.and_then(|t| {
        let result = grammar::TypeParser::new().parse(&mut cx, t);
        result.map_err(|e| cx.errors.push(unexpected_token(file, e))).ok()
    });
    (result, sorted_findings(cx))
}

/// Parses one value, such as `(%x, 1e-05)`.
pub fn parse_value(file: FileId, text: &str) -> (Option<Value>, Diagnostics) {
    let (tokens, mut cx) = lex_balanced(file, text);
    let result = tokens.and_then(|t| {
        let result = grammar::ValueParser::new().parse(&mut cx, t);
        result.map_err(|e| cx.errors.push(unexpected_token(file, e))).ok()
    });
    result.iter().for_each(|v| check::check_calls(v, &mut cx.errors));
    (result, sorted_findings(cx))
}

/// The names that statements define, with their offsets. `lost` has those without tokens.
fn collect_definitions(tokens: &[Spanned<'_>], lost: Vec<(usize, Arc<str>)>) -> Vec<(usize, Arc<str>)> {
    let name = |(offset, token, _): &Spanned<'_>| match token {
        Token::NodeDef(n) | Token::BareDef(n) => Some((*offset, Arc::from(*n))),
        _ => None,
    };
    let mut out: Vec<_> = tokens.iter().filter_map(name).chain(lost).collect();
    out.sort_by_key(|d| d.0);
    out
}

/// The names that items of a file declare, as far as the tokens show.
fn collect_declarations(tokens: &[Spanned<'_>]) -> Vec<Arc<str>> {
    let mut out = vec![];
    for pair in tokens.windows(2) {
        let names = pair[0].1.begins_item() && !matches!(pair[0].1, Token::Weights);
        match &pair[1].1 {
            Token::Path(s) if names => out.push(Arc::from(*s)),
            Token::Str(s) if names => out.push(s.clone()),
            t if names => out.extend(t.word().map(Arc::from)),
            _ => {}
        }
    }
    out
}

/// The names that no item in `items` declares.
fn names_not_in(mut names: Vec<Arc<str>>, items: &[Item]) -> Vec<Arc<str>> {
    let name = |i: &Item| match i {
        Item::Module(m) => Some(m.name.text.clone()),
        Item::Const(c) => Some(c.name.text.clone()),
        Item::Tensor(t) => Some(t.name.text.clone()),
        Item::Dim(d) => Some(d.name.text.clone()),
        Item::Graph(g) => g.name.as_ref().map(|n| n.text.clone()),
        Item::Rewrite(r) => Some(r.name.text.clone()),
        _ => None,
    };
    let present: HashSet<Arc<str>> = items.iter().filter_map(name).collect();
    names.retain(|n| !present.contains(n));
    names
}

/// The offsets at which statements and items begin.
fn statement_starts(tokens: &[Spanned<'_>]) -> Vec<usize> {
    let begins = |t: &Token<'_>| matches!(t, Token::NodeDef(_) | Token::BareDef(_) | Token::Output) || t.begins_item();
    tokens.iter().filter(|t| begins(&t.1)).map(|t| t.0).collect()
}

/// Removes the parser's errors, those from `parsed` on, that follow an earlier error in the same statement. One mistake
/// gives one error.
fn forget_consequences(errors: &mut Vec<Diagnostic>, parsed: usize, bounds: &[usize]) {
    let place = |d: &Diagnostic| d.labels.first().map_or(0, |l| l.span.range().start);
    let statement = |offset: usize| bounds.partition_point(|&b| b <= offset);
    let causes: HashSet<usize> = errors[..parsed].iter().map(|d| statement(place(d))).collect();
    let mut i = 0;
    errors.retain(|d| {
        i += 1;
        i <= parsed || d.code != Code::E0001 || !causes.contains(&statement(place(d)))
    });
}

/// Records for the bodies of `item` which defined names have no statement there.
fn note_broken(item: &mut Item, defined: &[(usize, Arc<str>)]) {
    let bodies = match item {
        Item::Graph(g) => vec![&mut g.body],
        Item::Rewrite(r) if !r.one_line => vec![&mut r.pattern, &mut r.replacement],
        _ => vec![],
    };
    for b in bodies {
        let from = defined.partition_point(|d| d.0 < b.open.end as usize);
        let to = defined.partition_point(|d| d.0 < b.close.start as usize).max(from);
        let read: HashSet<&str> = b
            .stmts
            .iter()
            .filter_map(|s| s.name.as_ref())
            .map(|n| &*n.text)
            .collect();
        let lost = defined[from..to].iter().filter(|(_, n)| !read.contains(&**n));
        b.broken = lost.map(|(_, n)| n.clone()).collect();
    }
}

/// Tokenizes and balances brackets; no tokens if the text nests too deeply.
fn lex_balanced(file: FileId, text: &str) -> (Option<Vec<Spanned<'_>>>, FxirContext) {
    let Lexed { tokens, errors, .. } = lex(file, text);
    balance_tokens(file, text, tokens, errors)
}

fn balance_tokens<'s>(
    file: FileId,
    text: &str,
    tokens: Vec<Spanned<'s>>,
    mut errors: Vec<Diagnostic>,
) -> (Option<Vec<Spanned<'s>>>, FxirContext) {
    let (tokens, unbalanced) = delimiters::balance(file, tokens, text.trim_end().len());
    // An unclosed string includes the rest of its line, with all closing brackets.
    let open: Vec<u32> = errors
        .iter()
        .filter(|e| e.code == Code::E0003)
        .map(|e| e.labels[0].span.start)
        .collect();
    let swallowed = |d: &Diagnostic| {
        let offset = d.labels[0].span.start;
        let same_line = |&s: &u32| offset < s && !text[offset as usize..s as usize].contains('\n');
        d.code == Code::E0006 && open.iter().any(same_line)
    };
    errors.extend(unbalanced.into_iter().filter(|d| !swallowed(d)));
    (tokens, FxirContext { file, errors })
}

/// Sorts errors by position.
fn sorted_findings(mut cx: FxirContext) -> Diagnostics {
    cx.errors.sort_by_key(|d| d.labels.first().map_or(0, |l| l.span.start));
    let mut out = Diagnostics::new();
    out.extend(cx.errors);
    out
}

#[cfg(test)]
mod tests;
