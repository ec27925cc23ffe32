//! Mistakes in the statements of a body and in their arguments.

use super::expr::{self, SlipExpr};
use super::{ItemContext, Mender, is_adjacent};
use crate::diag::nearest::fold_name;
use crate::diag::{Code, Diagnostic};
use crate::syntax::actions::OPCODES;
use crate::syntax::lexer::Spanned;
use crate::syntax::token::Token;

/// The opcode that a word means, if it differs only in case or by a hyphen.
fn opcode_token(word: &str) -> Option<Token<'static>> {
    let folded = fold_name(&word.replace('-', "_"));
    let known = OPCODES.into_iter().find(|o| fold_name(o) == folded && *o != "output")?;
    Some(match known {
        "placeholder" => Token::Placeholder,
        "get_attr" => Token::GetAttr,
        "call_function" => Token::CallFunction,
        "call_method" => Token::CallMethod,
        _ => Token::CallModule,
    })
}

impl<'s> Mender<'s, '_, '_> {
    /// Repairs mistakes in the words of a statement itself. Returns false if the next token is taken unchanged.
    pub(super) fn statement_slip(&mut self) -> bool {
        let c = self.c;
        let after_assign = matches!(self.out.last(), Some((_, Token::Assign, _)));
        match &c.tokens[self.index].1 {
            Token::Ident("return") if self.may_begin() => self.mend_return(),
            Token::Output if self.may_begin() => {
                self.take_token();
                self.mend_output();
            }
            Token::Module | Token::Const | Token::Param | Token::Buffer
                if self.may_begin() && c.first_on_line(self.index) =>
            {
                if self.has_output {
                    // The body is not closed. That is reported when its brackets are balanced.
                    self.open.clear();
                    return self.item_slip();
                }
                self.item_in_body();
            }
            Token::Ident(_) if self.skip_python() => {}
            Token::Ident(_)
                if self.may_begin() && c.gap_before(self.index).contains(';') && !c.first_on_line(self.index) =>
            {
                self.semicolon_comment();
            }
            Token::Node(_) if self.may_begin() => self.mend_head(),
            Token::CallFunction | Token::CallMethod | Token::CallModule if after_assign => {
                self.take_token();
                self.mend_target();
            }
            Token::Placeholder if after_assign => {
                self.take_token();
                self.mend_placeholder();
            }
            _ => return after_assign && self.right_side(),
        }
        true
    }

    /// Replaces `return` by `output`.
    fn mend_return(&mut self) {
        let (start, _, end) = self.c.tokens[self.index];
        let span = self.c.span(start, end);
        let d = Diagnostic::new(Code::E0001, "a graph ends with `output`, not `return`").at(span, "");
        self.report(d.fix(span, "output", "write `output`"));
        self.replace(1, Token::Output);
        self.mend_output();
    }

    /// Repairs a declaration inside a body.
    fn item_in_body(&mut self) {
        let c = self.c;
        let (start, _, end) = c.tokens[self.index];
        let next = c.next_line(self.index);
        self.moved.extend_from_slice(&c.tokens[self.index..next]);
        let word = c.slice(start..end);
        let d = Diagnostic::new(Code::E0001, format!("`{word}` is not allowed in a graph")).at(c.span(start, end), "");
        self.report(d.help("declarations go outside graphs: move the line before `graph`"));
        self.index = next;
    }

    /// Repairs a comment that begins with a semicolon.
    fn semicolon_comment(&mut self) {
        let start = self.c.tokens[self.index - 1].2 + self.c.gap_before(self.index).find(';').unwrap_or(0);
        self.retract_errors(start, start + 1);
        let line_end = self.c.line_end(start);
        self.skip_to(line_end);
        let span = self.c.span(start, start + 1);
        let d = Diagnostic::new(Code::E0001, "`;` does not start a comment").at(span, "comments start with `#`");
        self.report(d.fix(span, "#", "write the comment with `#`"));
    }

    /// Repairs what follows `output`, which must be one value.
    fn mend_output(&mut self) {
        let c = self.c;
        if let Some((start, Token::Assign, end)) = c.tokens.get(self.index) {
            let span = c.span(c.tokens[self.index - 1].2, *end);
            let d = Diagnostic::new(Code::E0001, "`output` takes its value without `=`");
            self.report(d.at(c.span(*start, *end), "").fix(span, "", "remove it"));
            self.index += 1;
        }
        if self.item == ItemContext::Graph && self.mend_nested() {
            return;
        }
        let (end, several) = self.output_extent();
        if !several || end == self.index {
            return;
        }
        let span = c.span(c.tokens[self.index].0, c.tokens[end - 1].2);
        let text = c.slice(span.range());
        let d = Diagnostic::new(Code::E0001, "`output` takes one value; return several as a tuple")
            .at(span, "several values");
        self.report(d.fix(span, format!("({text})"), "write a tuple"));
        self.insert(Token::LParen);
        self.open.push(Token::LParen);
        while self.index < end {
            if self.open.len() > 1 && self.argument_slip() {
                continue;
            }
            self.take_token();
        }
        self.insert(Token::RParen);
        self.close(&Token::LParen);
    }

    /// The token after the value of `output`, and whether there are several values.
    fn output_extent(&self) -> (usize, bool) {
        let c = self.c;
        let (mut depth, mut i, mut several) = (0usize, self.index, false);
        while let Some(token) = c.token(i) {
            match token {
                Token::LParen | Token::LBracket | Token::LBrace => depth += 1,
                Token::RParen | Token::RBracket | Token::RBrace if depth > 0 => depth -= 1,
                Token::RBrace | Token::Loc => break,
                Token::Comma if depth == 0 => several = true,
                _ => {}
            }
            if depth == 0 && i > self.index && c.first_on_line(i) {
                break;
            }
            i += 1;
        }
        (i, several)
    }

    /// Repairs the head of a statement: `%y`, `%y : f32[2]` and `=`.
    fn mend_head(&mut self) {
        let c = self.c;
        let index = self.index;
        let arrow = matches!(
            (c.token(index + 1), c.token(index + 2)),
            (Some(Token::Less), Some(Token::Minus))
        ) && is_adjacent(&c, index + 2);
        let walrus = matches!(
            (c.token(index + 1), c.token(index + 2)),
            (Some(Token::Colon), Some(Token::Assign))
        ) && is_adjacent(&c, index + 2);
        self.take_token();
        if arrow || walrus {
            let span = c.span(c.tokens[index + 1].0, c.tokens[index + 2].2);
            let sign = c.slice(span.range());
            let d = Diagnostic::new(Code::E0001, format!("a statement uses `=`, not `{sign}`")).at(span, "");
            self.report(d.fix(span, "=", "write `=`"));
            self.replace(2, Token::Assign);
            return;
        }
        let opcode = c
            .token(self.index)
            .is_some_and(|t| t.is_opcode() && *t != Token::Output)
            && !c.first_on_line(self.index);
        if opcode {
            let end = c.tokens[index].2;
            let d = Diagnostic::new(Code::E0001, "missing `=`")
                .at(c.span(end, c.tokens[self.index].0), "expected `=` here");
            self.report(d.fix(c.span(end, end), " =", "write `=`"));
            self.insert(Token::Assign);
        }
    }

    /// Repairs the target of a call: `torch.relu`.
    fn mend_target(&mut self) {
        let c = self.c;
        let Some((start, token, end)) = c.tokens.get(self.index) else {
            return;
        };
        let span = c.span(*start, *end);
        match token {
            Token::Node(name) if c.gap_before(self.index + 1) != "." && self.has_statement(name) => {
                let d = Diagnostic::new(Code::E0001, format!("a target is a name, not a node: `%{name}`")).at(span, "");
                self.report(d.help("call an op, a method or a module, and pass the node as an argument"));
                return self.lose_statement(c.next_line(self.index));
            }
            Token::Node(name) if c.gap_before(self.index + 1) != "." => {
                let d = Diagnostic::new(Code::E0001, format!("a target is a name, not a node: `%{name}`")).at(span, "");
                self.report(d.fix(span, *name, "write the name without `%`"));
                self.replace(1, Token::Ident(name));
            }
            Token::Node(_) => return self.mend_receiver(),
            Token::GraphRef(name) => {
                let d = Diagnostic::new(Code::E0001, format!("a target is written without `@`: `{name}`"));
                self.report(d.at(span, "").fix(span, *name, "write the name without `@`"));
                self.replace(1, Token::Ident(name));
            }
            Token::Ident(_) | Token::Path(_) if self.mend_colons() => {}
            Token::Ident(_) | Token::Path(_) | Token::Str(_) => self.take_token(),
            _ => return,
        }
        self.missing_brackets();
    }

    /// Whether the text has a statement with that name.
    fn has_statement(&mut self, name: &str) -> bool {
        let tokens = self.c.tokens;
        let defined = self.defined.get_or_insert_with(|| {
            let pairs = tokens
                .windows(2)
                .filter(|w| matches!(w[1].1, Token::Assign | Token::Colon));
            let name = |w: &[Spanned<'s>]| match w[0].1 {
                Token::Node(n) => Some(n),
                _ => None,
            };
            pairs.filter_map(name).collect()
        });
        defined.contains(name)
    }

    /// `aten::relu`, `mylib::op.default`.
    fn mend_colons(&mut self) -> bool {
        let c = self.c;
        let mut i = self.index + 1;
        while let (Some(Token::Colon), Some(Token::Colon), Some(Token::Ident(_) | Token::Path(_))) =
            (c.token(i), c.token(i + 1), c.token(i + 2))
        {
            if !(is_adjacent(&c, i) && is_adjacent(&c, i + 1) && is_adjacent(&c, i + 2)) {
                break;
            }
            i += 3;
        }
        if i == self.index + 1 {
            return false;
        }
        let span = c.span(c.tokens[self.index].0, c.tokens[i - 1].2);
        let name = c.slice(span.range()).replace("::", ".");
        let d = Diagnostic::new(Code::E0001, "a target is written with dots, not with `::`").at(span, "");
        self.report(d.fix(span, name.clone(), "use a dot"));
        self.replace(i - self.index, Token::Str(name.into()));
        true
    }

    /// `call_method %x.relu()`: the receiver is the first argument.
    fn mend_receiver(&mut self) {
        let c = self.c;
        let index = self.index;
        let Some((SlipExpr::Call(head, args), next)) = expr::parse_expr(&c, index) else {
            return;
        };
        let span = c.span(c.tokens[index].0, c.tokens[next - 1].2);
        let d = Diagnostic::new(Code::E0001, "a method's receiver must be its first argument").at(span, "");
        let call = self.write_expr("receiver", &mut vec![], |out, fresh| {
            SlipExpr::Call(head.clone(), args).write_call(out, fresh)
        });
        let (opcode, call) = call.split_once(' ').unwrap_or(("", &call));
        let d = match opcode == "call_method" && *c.token(index - 1).unwrap_or(&Token::Not) == Token::CallMethod {
            true => d.fix(span, call, "move the node into the parentheses"),
            false => d.help(format!("write `{opcode} {call}`")),
        };
        self.report(d);
        self.lose_statement(next);
    }

    /// `call_function torch.relu %x`.
    fn missing_brackets(&mut self) {
        let c = self.c;
        let value = matches!(
            c.token(self.index),
            Some(Token::Node(_) | Token::Int(_) | Token::Float(_) | Token::LBracket)
        );
        if !value || c.first_on_line(self.index) {
            return;
        }
        let end = c.next_line(self.index);
        let closes = (self.index..end).find(|&i| *c.token(i).unwrap_or(&Token::Not) == Token::RBrace);
        let end = closes.unwrap_or(end);
        let args = c.span(c.tokens[self.index].0, c.tokens[end - 1].2);
        let span = c.span(c.tokens[self.index - 1].2, args.range().end);
        let d = Diagnostic::new(Code::E0001, "a call's arguments must be in parentheses").at(args, "");
        self.report(d.fix(span, format!("({})", c.slice(args.range())), "add the parentheses"));
        self.insert(Token::LParen);
        self.open.push(Token::LParen);
        while self.index < end {
            if !self.argument_slip() {
                self.take_token();
            }
        }
        self.insert(Token::RParen);
        self.close(&Token::LParen);
    }

    /// Reports what follows `=` if it is not an opcode.
    fn right_side(&mut self) -> bool {
        self.mend_opcode() || self.item != ItemContext::Other && self.expression_statement()
    }

    /// Repairs an opcode that is misspelt or has a hyphen.
    fn mend_opcode(&mut self) -> bool {
        let c = self.c;
        let index = self.index;
        let Token::Ident(word) = c.tokens[index].1 else {
            return false;
        };
        let hyphen = matches!(
            (c.token(index + 1), c.token(index + 2)),
            (Some(Token::Minus), Some(Token::Ident(_)))
        ) && is_adjacent(&c, index + 1)
            && is_adjacent(&c, index + 2);
        let n = if hyphen { 3 } else { 1 };
        let span = c.span(c.tokens[index].0, c.tokens[index + n - 1].2);
        let called = matches!(c.token(index + 1), Some(Token::LParen));
        let token = opcode_token(c.slice(span.range())).filter(|_| hyphen || !called && word != "output");
        let Some(token) = token else { return false };
        let right = token.text().unwrap_or_default();
        let d = Diagnostic::new(Code::E0010, format!("unknown opcode `{}`", c.slice(span.range())));
        self.report(d.at(span, "").fix(span, right, "use the opcode's name"));
        self.replace(n, token.clone());
        match token {
            Token::Placeholder => self.mend_placeholder(),
            Token::GetAttr => {}
            _ => self.mend_target(),
        }
        true
    }

    /// Reports a Python expression, or a node's name, in place of a call.
    fn expression_statement(&mut self) -> bool {
        let c = self.c;
        let index = self.index;
        let Some((value, next)) = expr::parse_expr(&c, index) else {
            return false;
        };
        if !self.is_expression_statement(&value, next) {
            return false;
        }
        let span = c.span(c.tokens[index].0, c.tokens[next - 1].2);
        let name = self.defined_name().unwrap_or("value");
        let d = match &value {
            SlipExpr::Call(..) => {
                let mut before = vec![];
                let call = self.write_expr(name, &mut before, |out, fresh| value.write_call(out, fresh));
                let d = Diagnostic::new(Code::E0012, "a statement must be a call, not an expression")
                    .at(span, "Python's expression");
                self.as_statements(d, span, before, &call)
            }
            _ => Diagnostic::new(Code::E0012, "a node cannot have a second name")
                .at(span, "this is not a call")
                .help(format!("use `{}` in place of `%{name}`", c.slice(span.range()))),
        };
        self.report(d);
        self.lose_statement(next);
        true
    }

    /// Whether the expression before token `next` is a whole statement that is not written as a call.
    fn is_expression_statement(&self, value: &SlipExpr, next: usize) -> bool {
        let c = self.c;
        let first = &c.tokens[self.index].1;
        let ends = c
            .token(next)
            .is_none_or(|t| matches!(t, Token::RBrace | Token::Loc | Token::SlashSlash))
            || c.first_on_line(next);
        let node = matches!(first, Token::Node(_));
        let by_name = matches!(first, Token::Ident(_) | Token::Path(_));
        let plain_call = by_name && matches!(value, SlipExpr::Call(_, args) if !args.iter().any(|a| a.1.has_call()));
        let operator =
            matches!(value, SlipExpr::Call(head, _) if !by_name || head.starts_with("call_function operator."));
        ends && (!plain_call || operator) && (value.has_call() || node)
    }

    /// Removes the current statement up to token `next`. Uses of its node are not reported.
    fn lose_statement(&mut self, next: usize) {
        let from = self
            .out
            .iter()
            .rposition(|t| t.1 == Token::Assign)
            .unwrap_or(self.out.len());
        let head = self.out[..from].iter().rposition(|t| matches!(t.1, Token::Node(_)));
        if let Some(i) = head
            && let (offset, Token::Node(name), _) = self.out[i].clone()
        {
            self.out.truncate(i);
            self.lost.push((offset, name.into()));
        }
        let end = self.c.tokens.get(next).map_or(self.c.text.len(), |t| t.0);
        self.skip_to(end);
    }
}
