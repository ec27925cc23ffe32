//! Python's expressions on nodes (`%x + %y`, `%x[0]`, `%x.relu()`, a call inside of a call) as the statements they stand for.

use super::{Cursor, adjacent};
use crate::syntax::token::Token;

/// An expression as it was read.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expr {
    /// What FXIR writes so as well.
    Plain(String),
    /// What is a statement of its own: `call_function operator.add`, its arguments, those by name last.
    Call(String, Vec<(Option<String>, Expr)>),
    /// A tuple or list.
    Items(&'static str, Vec<Expr>, &'static str),
}

impl Expr {
    /// Whether it holds a call.
    pub(super) fn has_call(&self) -> bool {
        match self {
            Expr::Plain(_) => false,
            Expr::Call(..) => true,
            Expr::Items(_, items, _) => items.iter().any(Expr::has_call),
        }
    }

    /// The value as FXIR, with a statement in `out` for each call in it. `fresh` makes names of nodes.
    pub(super) fn write(&self, out: &mut Vec<String>, fresh: &mut dyn FnMut() -> String) -> String {
        match self {
            Expr::Plain(text) => text.clone(),
            Expr::Call(..) => {
                let call = self.call(out, fresh);
                let name = fresh();
                out.push(format!("%{name} = {call}"));
                format!("%{name}")
            }
            Expr::Items(open, items, close) => {
                let texts: Vec<String> = items.iter().map(|i| i.write(out, fresh)).collect();
                let comma = if texts.len() == 1 && *open == "(" { "," } else { "" };
                format!("{open}{}{comma}{close}", texts.join(", "))
            }
        }
    }

    /// The call that this is, without a name for its result.
    pub(super) fn call(&self, out: &mut Vec<String>, fresh: &mut dyn FnMut() -> String) -> String {
        let Expr::Call(head, args) = self else {
            return self.write(out, fresh);
        };
        let args: Vec<String> = args
            .iter()
            .map(|(k, v)| match k {
                Some(k) => format!("{k}={}", v.write(out, fresh)),
                None => v.write(out, fresh),
            })
            .collect();
        format!("{head}({})", args.join(", "))
    }
}

/// Python's infix operators: what each is called, and how tightly it binds.
fn infix(sign: &str) -> Option<(&'static str, u8)> {
    Some(match sign {
        "==" => ("eq", 1),
        "!=" => ("ne", 1),
        "<" => ("lt", 1),
        "<=" => ("le", 1),
        ">" => ("gt", 1),
        ">=" => ("ge", 1),
        "|" => ("or_", 2),
        "^" => ("xor", 3),
        "&" => ("and_", 4),
        "+" => ("add", 5),
        "-" => ("sub", 5),
        "*" => ("mul", 6),
        "/" => ("truediv", 6),
        "//" => ("floordiv", 6),
        "%" => ("mod", 6),
        "@" => ("matmul", 6),
        "**" => ("pow", 8),
        _ => return None,
    })
}

/// How deep an expression may nest to be read here.
const DEEPEST: usize = 32;

/// Reads the expression at token `at`: what it is, and the token after it.
pub(super) fn read(c: &Cursor<'_, '_>, at: usize) -> Option<(Expr, usize)> {
    sum(c, at, 0, 0)
}

fn sum(c: &Cursor<'_, '_>, at: usize, least: u8, depth: usize) -> Option<(Expr, usize)> {
    if depth > DEEPEST {
        return None;
    }
    let (mut left, mut next) = unary(c, at, depth)?;
    while let Some((sign, behind)) = sign(c, next) {
        let Some((name, binds)) = infix(sign).filter(|(_, b)| *b > least) else {
            break;
        };
        let least = if sign == "**" { binds - 1 } else { binds };
        let (right, end) = sum(c, behind, least, depth + 1)?;
        left = match (&left, &right) {
            // Arithmetic on sizes is FXIR's too.
            (Expr::Plain(a), Expr::Plain(b)) if !a.contains('%') && !b.contains('%') => {
                Expr::Plain(format!("{a} {sign} {b}"))
            }
            _ => Expr::Call(
                format!("call_function operator.{name}"),
                vec![(None, left), (None, right)],
            ),
        };
        next = end;
    }
    Some((left, next))
}

/// The operator before token `at`, which may be one that FXIR has not, and the token after it.
fn sign<'t>(c: &Cursor<'t, '_>, at: usize) -> Option<(&'t str, usize)> {
    let gap = c.gap(at).trim();
    if matches!(gap, "@" | "&" | "|" | "^") && !c.first_on_line(at) {
        return Some((gap, at));
    }
    let (start, token, end) = c.tokens.get(at)?;
    let operator = token.is_operator() && !matches!(token, Token::In | Token::And | Token::Or | Token::Not);
    // A word after `//` is a comment's.
    let comment = *token == Token::SlashSlash
        && !matches!(
            c.token(at + 1),
            Some(Token::Node(_) | Token::Int(_) | Token::Float(_) | Token::LParen)
        );
    (operator && !comment && gap.is_empty() && !c.first_on_line(at)).then(|| (c.slice(*start..*end), at + 1))
}

fn unary(c: &Cursor<'_, '_>, at: usize, depth: usize) -> Option<(Expr, usize)> {
    let name = match c.tokens.get(at)?.1 {
        Token::Minus => "neg",
        _ if c.gap(at).trim() == "~" => "invert",
        _ => return postfix(c, at, depth),
    };
    let (operand, next) = sum(c, at + (name == "neg") as usize, 7, depth + 1)?;
    let plain = match &operand {
        Expr::Plain(text) if !text.contains('%') && name == "neg" => Some(format!("-{text}")),
        _ => None,
    };
    let call = || Expr::Call(format!("call_function operator.{name}"), vec![(None, operand.clone())]);
    Some((plain.map_or_else(call, Expr::Plain), next))
}

fn postfix(c: &Cursor<'_, '_>, at: usize, depth: usize) -> Option<(Expr, usize)> {
    let (mut value, mut next) = primary(c, at, depth)?;
    loop {
        let Some((start, token, _)) = c.tokens.get(next) else {
            return Some((value, next));
        };
        let gap = c.gap(next);
        // `f32[2]` is a type, and sizes have no methods.
        let of_node = match &value {
            Expr::Plain(text) => text.starts_with('%'),
            Expr::Call(..) => true,
            Expr::Items(..) => false,
        };
        if !of_node {
            return Some((value, next));
        }
        if *token == Token::LBracket && adjacent(c, next) {
            let (index, end) = subscript(c, next + 1, depth + 1)?;
            value = Expr::Call(
                "call_function operator.getitem".into(),
                vec![(None, value), (None, index)],
            );
            next = end;
        } else if gap == "." && token.word().is_some() {
            let name = c.slice(*start..c.tokens[next].2);
            next += 1;
            if matches!(c.tokens.get(next), Some((_, Token::LParen, _))) && adjacent(c, next) {
                let (mut args, end) = arguments(c, next + 1, depth + 1)?;
                args.insert(0, (None, value));
                value = Expr::Call(format!("call_method {name}"), args);
                next = end;
            } else {
                let name = Expr::Plain(format!("\"{name}\""));
                value = Expr::Call("call_function getattr".into(), vec![(None, value), (None, name)]);
            }
        } else {
            return Some((value, next));
        }
    }
}

/// Calls that FXIR has as values.
fn is_literal_call(name: &str) -> bool {
    crate::syntax::actions::is_value_call(name) || crate::syntax::resolve::is_size_function(name)
}

fn primary(c: &Cursor<'_, '_>, at: usize, depth: usize) -> Option<(Expr, usize)> {
    if depth > DEEPEST || !c.gap(at).trim().is_empty() && c.gap(at).trim() != "~" && !is_sign(c.gap(at).trim()) {
        return None;
    }
    let (start, token, end) = c.tokens.get(at)?;
    let text = c.slice(*start..*end);
    match token {
        Token::Node(_) | Token::Int(_) | Token::Float(_) | Token::Imag(_) | Token::Str(_) | Token::Literal(_) => {
            Some((Expr::Plain(text.into()), at + 1))
        }
        Token::Ident(_) | Token::Path(_) => {
            let called = matches!(c.tokens.get(at + 1), Some((_, Token::LParen, _))) && adjacent(c, at + 1);
            if !called {
                return Some((Expr::Plain(text.into()), at + 1));
            }
            let (args, next) = arguments(c, at + 2, depth + 1)?;
            if is_literal_call(text) {
                return Some((Expr::Plain(c.slice(*start..c.tokens[next - 1].2).into()), next));
            }
            Some((Expr::Call(format!("call_function {text}"), args), next))
        }
        Token::LParen => {
            let (items, next, comma) = items(c, at + 1, &Token::RParen, depth + 1)?;
            let grouped = items.len() == 1 && !comma;
            match grouped {
                true => match items.into_iter().next()? {
                    Expr::Plain(t) => Some((Expr::Plain(format!("({t})")), next)),
                    call => Some((call, next)),
                },
                false => Some((Expr::Items("(", items, ")"), next)),
            }
        }
        Token::LBracket => {
            let (items, next, _) = items(c, at + 1, &Token::RBracket, depth + 1)?;
            Some((Expr::Items("[", items, "]"), next))
        }
        _ => None,
    }
}

fn is_sign(gap: &str) -> bool {
    matches!(gap, "@" | "&" | "|" | "^")
}

/// Expressions up to `close`, the token after it, and whether there was a comma.
fn items(c: &Cursor<'_, '_>, mut at: usize, close: &Token<'_>, depth: usize) -> Option<(Vec<Expr>, usize, bool)> {
    let (mut out, mut comma) = (vec![], false);
    loop {
        if c.tokens.get(at)?.1 == *close {
            return Some((out, at + 1, comma));
        }
        let (item, next) = sum(c, at, 0, depth + 1)?;
        out.push(item);
        at = next;
        if c.tokens.get(at)?.1 == Token::Comma {
            comma = true;
            at += 1;
        } else if c.tokens[at].1 != *close {
            return None;
        }
    }
}

type Arguments = Vec<(Option<String>, Expr)>;

/// A call's arguments and the token after the bracket.
fn arguments(c: &Cursor<'_, '_>, mut at: usize, depth: usize) -> Option<(Arguments, usize)> {
    let mut out = vec![];
    loop {
        let (start, token, end) = c.tokens.get(at)?;
        if *token == Token::RParen {
            return Some((out, at + 1));
        }
        let named = token.word().is_some() && matches!(c.tokens.get(at + 1), Some((_, Token::Assign, _)));
        let key = named.then(|| c.slice(*start..*end).to_string());
        let (value, next) = sum(c, at + 2 * named as usize, 0, depth + 1)?;
        out.push((key, value));
        at = next;
        match c.tokens.get(at)?.1 {
            Token::Comma => at += 1,
            Token::RParen => {}
            _ => return None,
        }
    }
}

/// What stands in a subscript's brackets, and the token after them.
fn subscript(c: &Cursor<'_, '_>, mut at: usize, depth: usize) -> Option<(Expr, usize)> {
    let (mut items, mut comma) = (vec![], false);
    loop {
        let (item, next) = index(c, at, depth)?;
        items.push(item);
        at = next + 1;
        match c.tokens.get(next)?.1 {
            Token::Comma => comma = true,
            Token::RBracket => break,
            _ => return None,
        }
        if c.tokens.get(at)?.1 == Token::RBracket {
            at += 1;
            break;
        }
    }
    match (items.len(), comma) {
        (1, false) => Some((items.pop()?, at)),
        _ => Some((Expr::Items("(", items, ")"), at)),
    }
}

/// One index: a value, `a:b:c`, or `...`.
fn index(c: &Cursor<'_, '_>, mut at: usize, depth: usize) -> Option<(Expr, usize)> {
    if c.slice(c.tokens.get(at)?.0..c.text.len()).starts_with("...") {
        return Some((Expr::Plain("Ellipsis".into()), at + 1));
    }
    let ends = |at: usize| {
        matches!(
            c.tokens.get(at),
            Some((_, Token::Colon | Token::Comma | Token::RBracket, _))
        )
    };
    let mut parts: Vec<Expr> = vec![];
    let mut colons = 0;
    loop {
        if ends(at) {
            parts.push(Expr::Plain("None".into()));
        } else {
            let (value, next) = sum(c, at, 0, depth + 1)?;
            parts.push(value);
            at = next;
        }
        match c.tokens.get(at)?.1 {
            Token::Colon if colons < 2 => {
                colons += 1;
                at += 1;
            }
            _ => break,
        }
    }
    if colons == 0 {
        return parts.pop().map(|v| (v, at));
    }
    let args = parts.into_iter().map(|v| v.write(&mut vec![], &mut String::new));
    let args: Vec<String> = args.collect();
    Some((Expr::Plain(format!("slice({})", args.join(", "))), at))
}
