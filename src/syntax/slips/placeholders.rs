//! Mistakes in placeholders: brackets around the name, a missing name, a type at the wrong end.

use super::Mender;
use crate::diag::{Code, Diagnostic};
use crate::syntax::token::Token;

impl<'s> Mender<'s, '_, '_> {
    /// Repairs what follows `placeholder`.
    pub(super) fn mend_placeholder(&mut self) {
        let c = self.c;
        let at = self.at;
        let word = |i: usize| c.token(i).is_some_and(|t| t.word().is_some());
        let brackets = matches!(c.token(at), Some(Token::LParen))
            && word(at + 1)
            && matches!(c.token(at + 2), Some(Token::RParen));
        if brackets {
            let span = c.span(c.tokens[at - 1].2, c.tokens[at + 2].2);
            let name = c.slice(c.tokens[at + 1].0..c.tokens[at + 1].2);
            let d = Diagnostic::new(Code::E0001, "a placeholder's name takes no parentheses").at(span, "");
            self.report(d.fix(span, format!(" {name}"), "write only the name"));
            self.at += 1;
            self.take_token();
            self.at += 1;
        } else if c.first_on_line(at) || matches!(c.token(at), Some(Token::RBrace) | None) {
            let Some(name) = self.defined_name() else { return };
            let end = c.tokens[at - 1].2;
            let d = Diagnostic::new(Code::E0001, "the parameter's name is missing")
                .at(c.span(end, end), "expected a name here");
            self.report(d.fix(c.span(end, end), format!(" {name}"), "use the node's name"));
            self.insert(Token::Ident(name));
        } else if word(at) || matches!(c.token(at), Some(Token::Path(_) | Token::Str(_))) {
            self.take_token();
        }
        self.type_behind(at);
    }

    /// The name of the node that the current statement defines.
    pub(super) fn defined_name(&self) -> Option<&'s str> {
        let mut back = self.out.iter().rev();
        back.by_ref().find(|t| t.1 == Token::Assign)?;
        // The search skips the type, which contains no nodes.
        back.find_map(|t| match t.1 {
            Token::Node(n) => Some(n),
            _ => None,
        })
    }

    /// Repairs `%x = placeholder x : f32[2]`, where the type is at the wrong end.
    fn type_behind(&mut self, placeholder: usize) {
        let c = self.c;
        let head = self
            .out
            .len()
            .checked_sub(4)
            .map(|i| (i, &self.out[i].1, &self.out[i + 1].1));
        let (Some(Token::Colon), Some((i, Token::Node(_), Token::Assign))) = (c.token(self.at), head) else {
            return;
        };
        let (name_end, end) = (self.out[i].2, c.next_line(self.at));
        let ty = c.slice(c.tokens[self.at].2..c.tokens[end - 1].2).trim();
        let before = c.slice(name_end..c.tokens[placeholder].2);
        let span = c.span(name_end, c.tokens[end - 1].2);
        let d = Diagnostic::new(Code::E0001, "the type must follow the node's name, before `=`");
        let d = d.at(
            c.span(c.tokens[self.at].0, c.tokens[end - 1].2),
            "no type is allowed here",
        );
        self.report(d.fix(span, format!(" : {ty}{before}"), "move it there"));
        let moved: Vec<_> = c.tokens[self.at..end].to_vec();
        self.out.splice(i + 1..i + 1, moved);
        self.at = end;
    }
}
