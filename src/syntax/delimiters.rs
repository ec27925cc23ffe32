//! Balances brackets before parsing.
//!
//! An unclosed bracket is reported with the position of its opening and closed at the end of its statement; a stray
//! closing bracket is reported and removed. The parser therefore sees no bracket errors, and its recovery stays inside
//! one statement. The same walk limits the nesting depth of a file, and marks the tokens that identify a statement or a
//! body ([`Token::NodeDef`], [`Token::BareDef`], [`Token::BodyOpen`], [`Token::BodyClose`]).

use super::lexer::Spanned;
use super::token::Token;
use crate::diag::{Code, Diagnostic};
use crate::source::{FileId, Span};

/// The maximum number of brackets and operators that are open at the same place.
pub(crate) const MAX_DEPTH: usize = 256;

struct OpenBracket<'s> {
    token: Token<'s>,
    span: Span,
    /// The number of operators since the last separator in this bracket. Each may nest the tree by one level.
    operators: usize,
    /// For a body, the name of its owner.
    owner: Option<String>,
}

struct BracketWalk<'s> {
    file: FileId,
    out: Vec<Spanned<'s>>,
    stack: Vec<OpenBracket<'s>>,
    /// The number of open brackets and operators.
    depth: usize,
    top_operators: usize,
    /// Whether a bracket of the current statement was reported. Consequences are then not reported.
    said: bool,
    /// Whether the current body already has an output.
    has_output: bool,
    /// Whether the current item is a one-line rule.
    one_line: bool,
    errors: Vec<Diagnostic>,
}

/// Balances `tokens`. Returns no tokens if they nest too deeply to be parsed.
pub(crate) fn balance<'s>(
    file: FileId,
    tokens: Vec<Spanned<'s>>,
    end: usize,
) -> (Option<Vec<Spanned<'s>>>, Vec<Diagnostic>) {
    let mut w = BracketWalk {
        file,
        out: Vec::with_capacity(tokens.len() + 8),
        stack: vec![],
        depth: 0,
        top_operators: 0,
        said: false,
        has_output: false,
        one_line: false,
        errors: vec![],
    };
    for i in 0..tokens.len() {
        let next = |n: usize| tokens.get(i + n).map(|t| &t.1);
        let (start, token, stop) = tokens[i].clone();
        w.process_token((start, token, stop), next(1), next(2));
        if w.depth > MAX_DEPTH {
            w.errors.push(too_deep(Span::new(file, start, stop)));
            return (None, w.errors);
        }
    }
    w.close_down_to(0, end);
    (Some(w.out), w.errors)
}

/// The diagnostic for nesting beyond [`MAX_DEPTH`].
pub(crate) fn too_deep(span: Span) -> Diagnostic {
    Diagnostic::new(Code::E0008, "the nesting is too deep")
        .at(
            span,
            format!("more than {MAX_DEPTH} brackets and operators are open here"),
        )
        .help("split the value into several nodes")
}

impl<'s> BracketWalk<'s> {
    fn process_token(
        &mut self,
        (start, token, stop): Spanned<'s>,
        next: Option<&Token<'s>>,
        after: Option<&Token<'s>>,
    ) {
        use Token::*;
        let defines = matches!(next, Some(Assign | Colon));
        self.has_output |= token == Output;
        match token {
            LParen | LBracket | LBrace => self.open(start, token, stop),
            RParen | RBracket | RBrace => self.close(start, token, stop),
            Node(name) if defines && self.statement_may_begin() => {
                self.begin_statement(start);
                self.out.push((start, NodeDef(name), stop));
            }
            Node(name) if defines && self.one_line && !self.is_key() => self.out.push((start, NodeDef(name), stop)),
            Ident(name) if defines && self.bare_name_may_begin() => {
                self.begin_statement(start);
                self.out.push((start, BareDef(name), stop));
            }
            // Inside brackets, these words are names only after `,` or the opening bracket.
            Output | Loc if self.out.last().is_some_and(|t| t.1.ends_value()) => {
                let body = self.stack.iter().rposition(|o| o.owner.is_some());
                if body.is_some() {
                    self.begin_statement(start);
                }
                self.out.push((start, token, stop));
            }
            _ => {
                if begins_header(&token, next, after, self.has_output) && !self.stack.is_empty() && !self.after_opcode()
                {
                    self.close_down_to(0, start);
                }
                self.process_other_token((start, token, stop));
            }
        }
    }

    /// Processes a token that is neither a bracket nor the start of a statement.
    fn process_other_token(&mut self, (start, token, stop): Spanned<'s>) {
        use Token::*;
        if token == FatArrow && self.one_line {
            let end = self.out.last().map_or(start, |t| t.2);
            self.close_down_to(0, end);
        }
        if self.stack.is_empty() {
            let begins = token == Colon && matches!(self.out[..], [.., (_, Rewrite, _), _]);
            self.one_line = begins || self.one_line && !token.begins_item();
        }
        if token.is_operator() {
            self.count_operator();
        } else if matches!(token, Comma | Assign | Colon | FatArrow)
            || token == Where && self.stack.is_empty()
            || token.begins_item()
        {
            self.reset_operators();
        }
        self.out.push((start, token, stop));
    }

    /// Whether a name followed by `=` or `:` begins a statement here; as a dict key it does not.
    fn statement_may_begin(&self) -> bool {
        self.stack.iter().any(|o| o.owner.is_some()) && !self.is_key()
    }

    /// Whether the next token is a dict key.
    fn is_key(&self) -> bool {
        let in_dict = self
            .stack
            .last()
            .is_some_and(|o| o.owner.is_none() && o.token == Token::LBrace);
        in_dict && matches!(self.out.last(), Some((_, Token::LBrace | Token::Comma, _)))
    }

    fn bare_name_may_begin(&self) -> bool {
        let after_statement = |t: &Token<'_>| t.ends_value() || *t == Token::BodyOpen;
        self.stack.last().is_some_and(|o| o.owner.is_some())
            && self.out.last().is_some_and(|t| after_statement(&t.1))
            && !self.after_opcode()
    }

    fn after_opcode(&self) -> bool {
        match &self.out[..] {
            [.., (_, Token::Placeholder, _), (_, Token::Star | Token::StarStar, _)] => true,
            [.., (_, t, _)] => t.is_opcode(),
            [] => false,
        }
    }

    fn begin_statement(&mut self, offset: usize) {
        let body = self.stack.iter().rposition(|o| o.owner.is_some());
        if let Some(body) = body {
            self.close_down_to(body + 1, offset);
            self.said = false;
        }
        self.reset_operators();
    }

    fn open(&mut self, start: usize, token: Token<'s>, stop: usize) {
        let owner = (token == Token::LBrace && self.stack.is_empty())
            .then(|| self.body_owner())
            .flatten();
        let kind = if owner.is_some() {
            Token::BodyOpen
        } else {
            token.clone()
        };
        if owner.is_some() {
            self.has_output = false;
            self.reset_operators();
        }
        self.out.push((start, kind, stop));
        self.stack.push(OpenBracket {
            token,
            span: Span::new(self.file, start, stop),
            operators: 0,
            owner,
        });
        self.depth += 1;
    }

    /// The owner of the body that a `{` here opens; `None` if it opens a dict.
    fn body_owner(&self) -> Option<String> {
        use Token::*;
        let (before, last) = match &self.out[..] {
            [] => return Some("this body".into()),
            [(_, last, _)] => (None, last),
            [.., (_, before, _), (_, last, _)] => (Some(before), last),
        };
        match (before, last) {
            (Some(Graph), t) if t.word().is_some() => t.word().map(|name| format!("graph `{name}`")),
            (_, FatArrow) => (!self.one_line).then(|| "the rule's replacement".into()),
            (_, Path(_) | Str(_) | BodyClose | RParen) => Some("this body".into()),
            (_, t) => t.word().map(|_| "this body".into()),
        }
    }

    fn close(&mut self, start: usize, token: Token<'s>, stop: usize) {
        let opener = match token {
            Token::RParen => Token::LParen,
            Token::RBracket => Token::LBracket,
            _ => Token::LBrace,
        };
        // A `)` or `]` never closes a body, so only brackets inside the innermost body can match.
        let floor = match token {
            Token::RBrace => 0,
            _ => self.stack.iter().rposition(|o| o.owner.is_some()).map_or(0, |b| b + 1),
        };
        let level = self.stack[floor..].iter().rposition(|o| o.token == opener);
        let Some(level) = level.map(|f| f + floor) else {
            let span = Span::new(self.file, start, stop);
            if !std::mem::replace(&mut self.said, floor > 0) {
                self.errors.push(stray_bracket(&token, span));
            }
            return;
        };
        self.close_down_to(level + 1, start);
        if let Some(open) = self.pop() {
            let kind = if open.owner.is_some() { Token::BodyClose } else { token };
            self.out.push((start, kind, stop));
            if self.stack.is_empty() && open.owner.is_some() {
                self.reset_operators();
            }
        }
    }

    fn pop(&mut self) -> Option<OpenBracket<'s>> {
        let open = self.stack.pop()?;
        self.depth -= 1 + open.operators;
        Some(open)
    }

    /// Closes and reports all brackets above `level` of the stack.
    fn close_down_to(&mut self, level: usize, offset: usize) {
        while self.stack.len() > level {
            let Some(open) = self.pop() else { return };
            let (closer, word) = match (&open.token, open.owner.is_some()) {
                (Token::LParen, _) => (Token::RParen, ")"),
                (Token::LBracket, _) => (Token::RBracket, "]"),
                (_, true) => (Token::BodyClose, "}"),
                _ => (Token::RBrace, "}"),
            };
            let body = open.owner.is_some();
            if body || !std::mem::replace(&mut self.said, true) {
                self.errors
                    .push(unclosed_bracket(&open, word, Span::new(self.file, offset, offset)));
            }
            self.out.push((offset, closer, offset));
        }
    }

    fn operators_mut(&mut self) -> &mut usize {
        match self.stack.last_mut() {
            Some(o) => &mut o.operators,
            None => &mut self.top_operators,
        }
    }

    fn count_operator(&mut self) {
        *self.operators_mut() += 1;
        self.depth += 1;
    }

    fn reset_operators(&mut self) {
        let n = std::mem::take(self.operators_mut());
        self.depth -= n;
    }
}

/// Whether a token, together with the two tokens after it, begins another item of the file. Inside a body this means
/// that the body is not closed. For a declaration that holds only after the body's output; before it, the declaration
/// is misplaced.
fn begins_header(token: &Token<'_>, next: Option<&Token<'_>>, after: Option<&Token<'_>>, has_output: bool) -> bool {
    use Token::*;
    let named = next.is_some_and(|t| t.word().is_some());
    match token {
        Graph => named && matches!(after, Some(LBrace | Updates | Called | As)),
        Rewrite => named && matches!(after, Some(LParen | Colon)),
        Exact | Fast => matches!(next, Some(Rewrite)),
        Module => has_output && named && matches!(after, Some(Assign)),
        Const | Param | Buffer => has_output && named && matches!(after, Some(Colon)),
        Pointwise | Weights => has_output && matches!(next, Some(Str(_))),
        _ => false,
    }
}

fn unclosed_bracket(open: &OpenBracket<'_>, word: &str, next: Span) -> Diagnostic {
    let title = match &open.owner {
        Some(owner) => format!("{owner} is not closed"),
        None => format!("{} is not closed", open.token),
    };
    Diagnostic::new(Code::E0006, title)
        .at(open.span, "opened here")
        .see(next, format!("`{word}` is missing before this"))
        .fix(
            Span {
                end: next.start,
                ..next
            },
            word,
            format!("close it with `{word}`"),
        )
}

fn stray_bracket(token: &Token<'_>, span: Span) -> Diagnostic {
    Diagnostic::new(Code::E0007, format!("unmatched {token}"))
        .at(span, "no bracket of this kind is open here")
        .suggest(span, "", "remove it")
}
