//! Mistakes in placeholders: brackets around the name, a missing name, a type at the wrong end.

use super::Mender;
use crate::diag::{Code, Diagnostic};
use crate::syntax::token::Token;

impl<'s> Mender<'s, '_, '_> {
    /// Repairs what follows `placeholder`.
    pub(super) fn mend_placeholder(&mut self) {
        let c = self.c;
        let index = self.index;
        let word = |i: usize| c.token(i).is_some_and(|t| t.word().is_some());
        let brackets = matches!(c.token(index), Some(Token::LParen))
            && word(index + 1)
            && matches!(c.token(index + 2), Some(Token::RParen));
        if brackets {
            let span = c.span(c.tokens[index - 1].2, c.tokens[index + 2].2);
            let name = c.slice(c.tokens[index + 1].0..c.tokens[index + 1].2);
            let d = Diagnostic::new(Code::E0001, "a placeholder's name takes no parentheses").at(span, "");
            self.report(d.fix(span, format!(" {name}"), "write only the name"));
            self.index += 1;
            self.take_token();
            self.index += 1;
        } else if c.first_on_line(index) || matches!(c.token(index), Some(Token::RBrace) | None) {
            let Some(name) = self.defined_name() else { return };
            let end = c.tokens[index - 1].2;
            let d = Diagnostic::new(Code::E0001, "the parameter's name is missing")
                .at(c.span(end, end), "expected a name here");
            self.report(d.fix(c.span(end, end), format!(" {name}"), "use the node's name"));
            self.insert(Token::Ident(name));
        } else if word(index) || matches!(c.token(index), Some(Token::Path(_) | Token::Str(_))) {
            self.take_token();
        }
        self.type_behind(index);
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
        let (Some(Token::Colon), Some((i, Token::Node(_), Token::Assign))) = (c.token(self.index), head) else {
            return;
        };
        let (name_end, end) = (self.out[i].2, c.next_line(self.index));
        let ty = c.slice(c.tokens[self.index].2..c.tokens[end - 1].2).trim();
        let before = c.slice(name_end..c.tokens[placeholder].2);
        let span = c.span(name_end, c.tokens[end - 1].2);
        let d = Diagnostic::new(Code::E0001, "the type must follow the node's name, before `=`");
        let d = d.at(
            c.span(c.tokens[self.index].0, c.tokens[end - 1].2),
            "no type is allowed here",
        );
        self.report(d.fix(span, format!(" : {ty}{before}"), "move it there"));
        let moved: Vec<_> = c.tokens[self.index..end].to_vec();
        self.out.splice(i + 1..i + 1, moved);
        self.index = end;
    }
}
