//! Mistakes outside of bodies: unknown words at the start of an item, declarations with a missing part.

use super::Mender;
use crate::diag::{Code, Diagnostic, nearest};
use crate::syntax::token::Token;

/// Words for a graph in other languages.
const GRAPHS: [&str; 9] = [
    "func", "fn", "function", "fun", "def", "model", "net", "program", "subgraph",
];

/// Words for a rewrite rule in other tools.
const RULES: [&str; 5] = ["rule", "pattern", "replace", "transform", "peephole"];

const KEYWORDS: [&str; 8] = [
    "graph",
    "module",
    "const",
    "param",
    "buffer",
    "weights",
    "rewrite",
    "pointwise",
];

fn keyword_token(word: &str) -> Token<'static> {
    match word {
        "module" => Token::Module,
        "const" => Token::Const,
        "param" => Token::Param,
        "buffer" => Token::Buffer,
        "weights" => Token::Weights,
        "rewrite" => Token::Rewrite,
        "pointwise" => Token::Pointwise,
        _ => Token::Graph,
    }
}

impl<'s> Mender<'s, '_, '_> {
    /// Repairs mistakes at the level of items. Returns false if the next token is taken unchanged.
    pub(super) fn item_slip(&mut self) -> bool {
        let c = self.c;
        match c.tokens[self.index].1 {
            Token::Ident(word) if c.first_on_line(self.index) => self.mend_misspelt(word) || self.skip_python(),
            Token::Graph if c.first_on_line(self.index) => self.graph_parameters(),
            Token::Module if c.first_on_line(self.index) => self.mend_module(),
            Token::Const if c.first_on_line(self.index) => self.mend_constant(),
            Token::Exact | Token::Fast if c.first_on_line(self.index) => self.rule_after_word(),
            Token::Minus if self.is_rule() => self.mend_arrow(),
            Token::Ident("if" | "when" | "iff") if self.is_rule() => self.mend_condition(),
            _ => false,
        }
    }

    fn is_rule(&self) -> bool {
        matches!(self.item, super::ItemContext::Rewrite | super::ItemContext::OneLine)
    }

    fn is_label(&self, index: usize) -> bool {
        let label = |t: &Token<'_>| t.word().is_some() || matches!(t, Token::Path(_) | Token::Str(_));
        self.c.token(index).is_some_and(label)
    }

    /// `func main {`, `grpah main {`, `modul fc = …`.
    fn mend_misspelt(&mut self, word: &str) -> bool {
        let c = self.c;
        let (start, _, end) = c.tokens[self.index];
        if !self.is_label(self.index + 1) || c.first_on_line(self.index + 1) {
            return false;
        }
        let after = c.token(self.index + 2);
        let graph = GRAPHS.contains(&word) && matches!(after, Some(Token::LBrace));
        let declares = matches!(
            after,
            Some(Token::LBrace | Token::Assign | Token::Colon | Token::LParen)
        );
        let near = nearest(word, KEYWORDS).filter(|_| declares);
        let rule = RULES.contains(&word) && matches!(after, Some(Token::LParen | Token::Colon));
        let Some(meant) = near.or(graph.then_some("graph")).or(rule.then_some("rewrite")) else {
            return false;
        };
        self.item_begins_with(meant, start, end);
        true
    }

    /// `exact rule name(…) {`, `fast rewrit name(…) {`.
    fn rule_after_word(&mut self) -> bool {
        let c = self.c;
        let Some((start, Token::Ident(word), end)) = c.tokens.get(self.index + 1).cloned() else {
            return false;
        };
        if !RULES.contains(&word) && nearest(word, ["rewrite"]).is_none() {
            return false;
        }
        self.take_token();
        self.item_begins_with("rewrite", start, end);
        true
    }

    /// `} -> {` in a rule.
    fn mend_arrow(&mut self) -> bool {
        let c = self.c;
        let arrow = matches!(c.token(self.index + 1), Some(Token::Greater)) && super::is_adjacent(&c, self.index + 1);
        if !arrow {
            return false;
        }
        let span = c.span(c.tokens[self.index].0, c.tokens[self.index + 1].2);
        let d = Diagnostic::new(Code::E0001, "`=>` must precede a rule's replacement").at(span, "");
        self.report(d.fix(span, "=>", "write `=>`"));
        self.replace(2, Token::FatArrow);
        true
    }

    /// `} if $a == 1` in a rule.
    fn mend_condition(&mut self) -> bool {
        let (start, _, end) = self.c.tokens[self.index];
        let span = self.c.span(start, end);
        let d = Diagnostic::new(Code::E0001, "`where` must precede a rule's condition").at(span, "");
        self.report(d.fix(span, "where", "write `where`"));
        self.replace(1, Token::Where);
        true
    }

    /// Treats the next token, a word of another language, as the keyword `meant`.
    fn item_begins_with(&mut self, meant: &'static str, start: usize, end: usize) {
        let c = self.c;
        let word = c.slice(start..end);
        let span = c.span(start, end);
        let d = Diagnostic::new(Code::E0001, format!("`{word}` does not start a top-level item")).at(span, "");
        self.report(d.fix(span, meant, format!("write `{meant}`")));
        self.replace(1, keyword_token(meant));
        self.item = match meant {
            "graph" => super::ItemContext::Graph,
            "rewrite" => super::ItemContext::Rewrite,
            _ => super::ItemContext::Other,
        };
    }

    /// `graph main(%x : f32[2]) {`: parameters are placeholders.
    fn graph_parameters(&mut self) -> bool {
        let c = self.c;
        let index = self.index;
        if !self.is_label(index + 1) || !matches!(c.token(index + 2), Some(Token::LParen)) {
            return false;
        }
        let close = (index + 3..c.tokens.len()).find(|&i| matches!(c.token(i), Some(Token::LBrace)));
        let Some(brace) = close.filter(|&i| *c.token(i - 1).unwrap_or(&Token::Not) == Token::RParen) else {
            return false;
        };
        let params = c.slice(c.tokens[index + 2].2..c.tokens[brace - 1].0);
        let indent = format!("{}    ", c.line_indent(c.tokens[index].0));
        let mut text = " {".to_string();
        for p in split_params(params) {
            let name = p.split(':').next().unwrap_or("").trim().trim_start_matches('%');
            let ty = p
                .split_once(':')
                .map_or(String::new(), |(_, t)| format!(" : {}", t.trim()));
            text.push_str(&format!("\n{indent}%{name}{ty} = placeholder {name}"));
            self.lost.push((c.tokens[brace].2, name.into()));
        }
        let span = c.span(c.tokens[index + 1].2, c.tokens[brace].2);
        let d = Diagnostic::new(
            Code::E0001,
            "a graph's parameters are declared as placeholders in its body",
        );
        let d = d.at(c.span(c.tokens[index + 2].0, c.tokens[brace - 1].2), "");
        self.report(d.fix(span, text, "write a placeholder statement for each"));
        self.take_token();
        self.take_token();
        self.index = brace;
        true
    }

    /// `module act ReLU()`, `module act = ReLU`.
    fn mend_module(&mut self) -> bool {
        let c = self.c;
        let index = self.index;
        if !self.is_label(index + 1) || !(self.is_label(index + 2) || self.is_label(index + 3)) {
            return false;
        }
        let mended = match c.token(index + 2) {
            Some(Token::Assign) => false,
            _ if self.is_label(index + 2) && matches!(c.token(index + 3), Some(Token::LParen)) => {
                let end = c.tokens[index + 1].2;
                let d = Diagnostic::new(Code::E0001, "missing `=`")
                    .at(c.span(end, c.tokens[index + 2].0), "expected `=` here");
                self.report(d.fix(c.span(end, end), " =", "write `=`"));
                true
            }
            _ => return false,
        };
        self.take_token();
        self.take_token();
        match mended {
            true => self.insert(Token::Assign),
            false => self.take_token(),
        }
        self.take_token();
        if !matches!(c.token(self.index), Some(Token::LParen))
            && (c.first_on_line(self.index) || c.token(self.index).is_none())
        {
            let end = self.out.last().map_or(0, |t| t.2);
            let span = c.span(end, end);
            let d = Diagnostic::new(Code::E0001, "the arguments of the module's class are missing")
                .at(span, "expected `(` here");
            self.report(d.fix(span, "()", "write parentheses, even if there are no arguments"));
            self.insert(Token::LParen);
            self.insert(Token::RParen);
        }
        true
    }

    /// `const c = 0.5`, `const c f32[] = 0.5`.
    fn mend_constant(&mut self) -> bool {
        let c = self.c;
        let index = self.index;
        if !self.is_label(index + 1) {
            return false;
        }
        let end = c.tokens[index + 1].2;
        let span = c.span(end, end);
        let (title, text) = match (c.token(index + 2), c.token(index + 3)) {
            (Some(Token::Assign), Some(Token::Int(_))) => ("the constant's type is missing", " : i64[]"),
            (Some(Token::Assign), Some(Token::Float(_) | Token::Minus)) => {
                ("the constant's type is missing", " : f32[]")
            }
            (Some(Token::Ident(_)), Some(Token::LBracket)) => ("missing `:`", " :"),
            _ => return false,
        };
        let d = Diagnostic::new(Code::E0001, title).at(span, "expected `: TYPE` here");
        self.report(d.fix(span, text, "write the type after a colon"));
        self.take_token();
        self.take_token();
        self.insert(Token::Colon);
        if text.len() > 2 {
            self.insert(Token::Ident(&text[3..6]));
            self.insert(Token::LBracket);
            self.insert(Token::RBracket);
        }
        true
    }
}

/// Splits parameters at the commas between them.
fn split_params(params: &str) -> Vec<&str> {
    let (mut out, mut depth, mut from) = (vec![], 0i32, 0);
    for (i, ch) in params.char_indices() {
        match ch {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                out.push(&params[from..i]);
                from = i + 1;
            }
            _ => {}
        }
    }
    out.push(&params[from..]);
    out.retain(|p| !p.trim().is_empty());
    out
}
