//! Statements outside of any graph. A file of such statements is the graph `main`.
//!
//! ```text
//! %x = placeholder x
//! %y = call_function relu(%x)
//! output %y
//! ```

use super::lexer::Spanned;
use super::token::Token;
use std::ops::Range;

/// An item or a statement outside of all braces.
struct TopLevelPiece {
    range: Range<usize>,
    statement: bool,
}

/// Wraps the statements that are outside of any graph in `graph main { … }`, after the items between them. A text that
/// has a graph keeps its tokens, unless the statements outside have inputs and a result and there is no graph `main`.
pub(super) fn wrap_in_graph(tokens: Vec<Spanned<'_>>) -> Vec<Spanned<'_>> {
    let pieces = split_pieces(&tokens);
    let statements = || pieces.iter().filter(|p| p.statement).map(|p| p.range.clone());
    let (Some(first), Some(last)) = (statements().next(), statements().next_back()) else {
        return tokens;
    };
    if !is_graph(&tokens, &pieces) {
        return tokens;
    }
    let (start, end) = (tokens[first.start].0, tokens[last.end - 1].2);
    let head = 0..pieces.first().map_or(0, |p| p.range.start);
    let items = pieces.iter().filter(|p| !p.statement).map(|p| p.range.clone());
    let mut out = Vec::with_capacity(tokens.len() + 4);
    let copy = |out: &mut Vec<_>, r: Range<usize>| out.extend_from_slice(&tokens[r]);
    copy(&mut out, head);
    items.for_each(|r| copy(&mut out, r));
    out.push((start, Token::Graph, start));
    out.push((start, Token::Ident("main"), start));
    out.push((start, Token::LBrace, start));
    statements().for_each(|r| copy(&mut out, r));
    out.push((end, Token::RBrace, end));
    out
}

/// Whether the statements outside of graphs are intended as a graph.
fn is_graph(tokens: &[Spanned<'_>], pieces: &[TopLevelPiece]) -> bool {
    let graphs: Vec<&TopLevelPiece> = pieces
        .iter()
        .filter(|p| !p.statement && tokens[p.range.start].1 == Token::Graph)
        .collect();
    let is_main = |p: &&TopLevelPiece| {
        tokens
            .get(p.range.start + 1)
            .is_some_and(|t| t.1 == Token::Ident("main"))
    };
    if graphs.is_empty() {
        return true;
    }
    let mut outside = pieces
        .iter()
        .filter(|p| p.statement)
        .flat_map(|p| &tokens[p.range.clone()]);
    let mut has = |token: Token<'_>| outside.any(|t| t.1 == token);
    !graphs.iter().any(is_main) && has(Token::Placeholder) && has(Token::Output)
}

/// Splits the tokens outside of all braces into items and statements.
fn split_pieces(tokens: &[Spanned<'_>]) -> Vec<TopLevelPiece> {
    let mut out: Vec<TopLevelPiece> = vec![];
    let mut depth = 0usize;
    for (i, (_, token, _)) in tokens.iter().enumerate() {
        let begins = (depth == 0).then(|| classify_piece_start(tokens, i)).flatten();
        if let Some(statement) = begins {
            if let Some(last) = out.last_mut() {
                last.range.end = i;
            }
            out.push(TopLevelPiece {
                range: i..tokens.len(),
                statement,
            });
        }
        match token {
            Token::LParen | Token::LBracket | Token::LBrace => depth += 1,
            Token::RParen | Token::RBracket | Token::RBrace => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    out
}

/// Whether the token, which is outside of all brackets, begins a statement (`Some(true)`) or an item (`Some(false)`).
fn classify_piece_start(tokens: &[Spanned<'_>], i: usize) -> Option<bool> {
    use Token::*;
    let next = |n: usize| tokens.get(i + n).map(|t| &t.1);
    // A word after an opcode or a keyword is a name.
    let before = i.checked_sub(1).map(|b| &tokens[b].1);
    let free = before.is_none_or(|t| t.ends_value() || *t == Dots);
    match &tokens[i].1 {
        // This continues a one-line rule.
        Node(_) if before == Some(&FatArrow) => None,
        Node(_) if before == Some(&Colon) && i > 2 && tokens[i - 3].1 == Rewrite => None,
        Node(_) if matches!(next(1), Some(Assign | Colon)) => Some(true),
        Ident(_) if free && next(1) == Some(&Assign) && next(2).is_some_and(Token::is_opcode) => Some(true),
        Output if free && next(1) != Some(&Assign) => Some(true),
        t if free && t.begins_item() => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::source::FileId;
    use crate::syntax::ast::{File, Item};
    use crate::syntax::{format, parse_text};

    fn read(text: &str) -> (File, Vec<String>) {
        let (tree, found) = parse_text(FileId(0), text);
        (tree, found.iter().map(|d| d.title.clone()).collect())
    }

    fn formatted(text: &str) -> String {
        let (tree, found) = read(text);
        assert!(found.is_empty(), "{text}: {found:?}");
        format(&tree, text)
    }

    #[test]
    fn statements_alone_are_main() {
        let text = "# a model\n%x = placeholder x\n%y = placeholder y  # the other\n\n%add = call_function add(%x, %y)\noutput %add\n";
        let want = "# a model\ngraph main {\n    %x = placeholder x\n    %y = placeholder y  # the other\n\n    %add = call_function add(%x, %y)\n    output %add\n}\n";
        assert_eq!(formatted(text), want);
        assert_eq!(formatted(want), want);
    }

    #[test]
    fn items_may_stand_between_statements() {
        let text = "%x : f32[N, 4] = placeholder x\nmodule l = Linear(4, 2)\n%output = call_module l(%x)\noutput %output\ndim N in 1..\nconst c : f32[] = 1.0\n";
        let out = formatted(text);
        for item in ["module l = ", "dim N in ", "const c : ", "graph main {"] {
            assert_eq!(out.matches(item).count(), 1, "{item}: {out}");
        }
        assert_eq!(formatted(&out), out);
    }

    #[test]
    fn words_of_items_are_names_in_statements() {
        let text = "%dim = placeholder dim  %module = get_attr param  %buffer = call_method output(%dim, %module)  output %buffer";
        let (tree, found) = read(text);
        assert!(found.is_empty(), "{found:?}");
        assert!(matches!(&tree.items[..], [Item::Graph(g)] if g.body.stmts.len() == 4));
    }

    #[test]
    fn other_graphs_may_stand_beside_main() {
        let helper = "graph twice { %x = placeholder x  %y = call_function add(%x, %x)  output %y }\n";
        let text = format!("{helper}%x = placeholder x\n%y = call_function twice(%x)\noutput %y\n");
        let (tree, found) = read(&text);
        assert!(found.is_empty() && tree.items.len() == 2, "{found:?}");
        // Statements that are outside because of an extra closing brace are not a graph.
        let (_, found) = read("graph net { %x = placeholder x } %y = call_function relu(%x) output %y }");
        assert!(!found.is_empty());
        let (_, found) = read("graph main { %x = placeholder x output %x } %x = placeholder x output %x");
        assert!(!found.is_empty());
    }

    #[test]
    fn slips_are_reported_as_in_a_graph() {
        for (text, titles) in [
            (
                "%x = placeholder x\n%y = relu(%x)\noutput %y",
                vec!["an opcode is missing before `relu`"],
            ),
            (
                "x = placeholder x\noutput %x",
                vec!["`%` is missing before the node `x`"],
            ),
            ("%x = placeholder x\noutput [%x", vec!["`[` is not closed"]),
            ("%x = placeholder x\noutput %x }", vec!["unmatched `}`"]),
        ] {
            assert_eq!(read(text).1, titles, "{text}");
        }
    }
}
