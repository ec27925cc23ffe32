//! Mistakes in arguments, and expressions that become separate statements.

use super::expr::{self, SlipExpr};
use super::{ItemContext, Mender};
use crate::diag::{Code, Diagnostic};
use crate::source::Span;
use crate::syntax::token::Token;

impl<'s> Mender<'s, '_, '_> {
    /// Adds the statements for an expression at `span`; `value` replaces the expression.
    pub(super) fn as_statements(&mut self, d: Diagnostic, span: Span, before: Vec<String>, value: &str) -> Diagnostic {
        let c = self.c;
        if before.is_empty() {
            return d.fix(span, value, "call the op");
        }
        // The new statements go to the start of the line, if the statement begins there.
        let line = c.slice(0..span.range().start).rfind('\n').map_or(0, |i| i + 1);
        let head = self.out.iter().rev().take_while(|t| t.0 >= line).last();
        let head =
            head.filter(|t| c.slice(line..t.0).trim().is_empty() && matches!(t.1, Token::Node(_) | Token::Output));
        let Some(start) = head.map(|t| t.0) else {
            return d.help(format!("write each call as a separate statement: `{}`", before[0]));
        };
        let indent = c.line_indent(start);
        let mut text: String = before.iter().map(|s| format!("{s}\n{indent}")).collect();
        text.push_str(c.slice(start..span.range().start));
        text.push_str(value);
        d.fix(
            c.span(start, span.range().end),
            text,
            "write each call as a separate statement",
        )
    }

    /// Repairs mistakes in arguments. Returns false if the next token is taken unchanged.
    pub(super) fn argument_slip(&mut self) -> bool {
        let c = self.c;
        let index = self.index;
        let (start, token, end) = &c.tokens[index];
        let (start, end) = (*start, *end);
        let Some((before_end, before)) = self.out.last().map(|t| (t.2, t.1.clone())) else {
            return false;
        };
        let inner = self.open.last().cloned();
        if self.in_type || self.item == ItemContext::Other || self.open.first() != Some(&Token::LBrace) {
            return false;
        }
        if *token == Token::Comma && before == Token::Comma {
            let d = Diagnostic::new(Code::E0001, "two commas in a row")
                .at(c.span(start, end), "a value is missing before this comma");
            self.report(d.fix(c.span(before_end, end), "", "remove one"));
            self.index += 1;
            return true;
        }
        let key = matches!(before, Token::LParen | Token::Comma) && inner == Some(Token::LParen);
        if key && token.word().is_some() && self.mend_keyword_colon() {
            return true;
        }
        let begins = matches!(
            before,
            Token::LParen | Token::LBracket | Token::Comma | Token::Assign | Token::Colon
        );
        if begins && self.item == ItemContext::Graph && self.mend_nested() {
            return true;
        }
        if matches!(token, Token::Node(_)) && before.ends_value() && !c.first_on_line(index) {
            let d = Diagnostic::new(Code::E0001, "missing comma").at(c.span(before_end, start), "expected `,` here");
            self.report(d.fix(c.span(before_end, before_end), ",", "add the comma"));
            self.insert(Token::Comma);
            self.take_token();
            return true;
        }
        false
    }

    /// Repairs `name: value`, a keyword argument written with a colon.
    fn mend_keyword_colon(&mut self) -> bool {
        let (c, index) = (self.c, self.index);
        let is_colon = |i: usize| matches!(c.token(i), Some(Token::Colon));
        if !is_colon(index + 1) || is_colon(index + 2) {
            return false;
        }
        let colon = c.span(c.tokens[index + 1].0, c.tokens[index + 1].2);
        let d = Diagnostic::new(Code::E0001, "keyword arguments are written `name=value`").at(colon, "expected `=`");
        let until = c.tokens.get(index + 2).map_or(colon.range().end, |t| t.0);
        self.report(d.fix(c.span(c.tokens[index].2, until), "=", "write `=`"));
        self.take_token();
        self.replace(1, Token::Assign);
        true
    }

    /// Repairs an argument that is an expression on nodes.
    pub(super) fn mend_nested(&mut self) -> bool {
        let c = self.c;
        let index = self.index;
        // Fast path: most arguments are a node or a literal before `,` or a bracket.
        let simple =
            |t: Option<&Token<'_>>| matches!(t, Some(Token::Comma | Token::RParen | Token::RBracket | Token::RBrace));
        let Some(token) = c.token(index) else { return false };
        let sign = c.gap_before(index).trim() == "~";
        if !sign && simple(c.token(index + 1)) && c.gap_before(index + 1).trim().is_empty()
            || simple(Some(token))
            || matches!(token, Token::LBracket | Token::LBrace)
        {
            return false;
        }
        let Some((value, next)) = expr::parse_expr(&c, index).filter(|(v, _)| matches!(v, SlipExpr::Call(..))) else {
            return false;
        };
        let ends = self.open.len() == 1 && (c.first_on_line(next) || c.token(next).is_none_or(|t| *t == Token::Loc));
        if !simple(c.token(next)) && !ends {
            return false;
        }
        let span = c.span(c.tokens[index].0, c.tokens[next - 1].2);
        let name = self.statement_name();
        let mut before = vec![];
        let mended = self.write_expr(name, &mut before, |out, fresh| value.write_value(out, fresh));
        let d = Diagnostic::new(Code::E0012, "an argument cannot be a call or an expression on nodes");
        let d = self.as_statements(d.at(span, "write this as a separate statement"), span, before, &mended);
        self.report(d);
        let lost = c.slice(span.range());
        self.lost.push((span.range().start, lost.into()));
        let end = c.tokens[next - 1].2;
        self.out.push((span.range().start, Token::Node(lost), end));
        self.index = next;
        self.retract_errors(span.range().start, end);
        true
    }

    /// The name of the current statement's node, or a name for the graph's result.
    fn statement_name(&self) -> &'s str {
        let head = self.out.windows(2).rev().find_map(|w| match (&w[0].1, &w[1].1) {
            (Token::Node(n), Token::Assign | Token::Colon) => Some(Some(*n)),
            (Token::Output, _) => Some(None),
            _ => None,
        });
        head.flatten().unwrap_or("result")
    }
}
