//! Python expressions on nodes (`%x + %y`, `%x[0]`, `%x.relu()`, nested calls), and the statements they represent.

use super::{Cursor, is_adjacent};
use crate::syntax::token::Token;

/// A parsed expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SlipExpr {
    /// A value that FXIR can write in the same way.
    Plain(String),
    /// A value that needs its own statement: `call_function operator.add` and its arguments, those by keyword last.
    Call(String, Vec<(Option<String>, SlipExpr)>),
    /// A tuple or list.
    Items(&'static str, Vec<SlipExpr>, &'static str),
}

impl SlipExpr {
    /// Whether it holds a call.
    pub(super) fn has_call(&self) -> bool {
        match self {
            SlipExpr::Plain(_) => false,
            SlipExpr::Call(..) => true,
            SlipExpr::Items(_, items, _) => items.iter().any(SlipExpr::has_call),
        }
    }

    /// Writes the value as FXIR and adds a statement to `out` for each call in it. `fresh` generates names of nodes.
    pub(super) fn write_value(&self, out: &mut Vec<String>, fresh: &mut dyn FnMut() -> String) -> String {
        match self {
            SlipExpr::Plain(text) => text.clone(),
            SlipExpr::Call(..) => {
                let call = self.write_call(out, fresh);
                let name = fresh();
                out.push(format!("%{name} = {call}"));
                format!("%{name}")
            }
            SlipExpr::Items(open, items, close) => {
                let texts: Vec<String> = items.iter().map(|i| i.write_value(out, fresh)).collect();
                let comma = if texts.len() == 1 && *open == "(" { "," } else { "" };
                format!("{open}{}{comma}{close}", texts.join(", "))
            }
        }
    }

    /// Writes the call, without a name for its result.
    pub(super) fn write_call(&self, out: &mut Vec<String>, fresh: &mut dyn FnMut() -> String) -> String {
        let SlipExpr::Call(head, args) = self else {
            return self.write_value(out, fresh);
        };
        let args: Vec<String> = args
            .iter()
            .map(|(k, v)| match k {
                Some(k) => format!("{k}={}", v.write_value(out, fresh)),
                None => v.write_value(out, fresh),
            })
            .collect();
        format!("{head}({})", args.join(", "))
    }
}

/// Python's infix operators: the name and the precedence of each.
fn infix_operator(sign: &str) -> Option<(&'static str, u8)> {
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

/// The maximum nesting depth of an expression here.
const DEEPEST: usize = 32;

/// Parses the expression at token `index`. Returns it and the token after it.
pub(super) fn parse_expr(c: &Cursor<'_, '_>, index: usize) -> Option<(SlipExpr, usize)> {
    parse_binary(c, index, 0, 0)
}

fn parse_binary(c: &Cursor<'_, '_>, index: usize, least: u8, depth: usize) -> Option<(SlipExpr, usize)> {
    if depth > DEEPEST {
        return None;
    }
    let (mut left, mut next) = parse_unary(c, index, depth)?;
    while let Some((sign, operand)) = operator_at(c, next) {
        let Some((name, binds)) = infix_operator(sign).filter(|(_, b)| *b > least) else {
            break;
        };
        let least = if sign == "**" { binds - 1 } else { binds };
        let (right, end) = parse_binary(c, operand, least, depth + 1)?;
        left = match (&left, &right) {
            // FXIR has arithmetic on sizes, too.
            (SlipExpr::Plain(a), SlipExpr::Plain(b)) if !a.contains('%') && !b.contains('%') => {
                SlipExpr::Plain(format!("{a} {sign} {b}"))
            }
            _ => SlipExpr::Call(
                format!("call_function operator.{name}"),
                vec![(None, left), (None, right)],
            ),
        };
        next = end;
    }
    Some((left, next))
}

/// The operator before token `index`, which may be one that FXIR lacks, and the token after it.
fn operator_at<'t>(c: &Cursor<'t, '_>, index: usize) -> Option<(&'t str, usize)> {
    let gap = c.gap_before(index).trim();
    if matches!(gap, "@" | "&" | "|" | "^") && !c.first_on_line(index) {
        return Some((gap, index));
    }
    let (start, token, end) = c.tokens.get(index)?;
    let operator = token.is_operator() && !matches!(token, Token::In | Token::And | Token::Or | Token::Not);
    // `//` before a word begins a comment.
    let comment = *token == Token::SlashSlash
        && !matches!(
            c.token(index + 1),
            Some(Token::Node(_) | Token::Int(_) | Token::Float(_) | Token::LParen)
        );
    (operator && !comment && gap.is_empty() && !c.first_on_line(index)).then(|| (c.slice(*start..*end), index + 1))
}

fn parse_unary(c: &Cursor<'_, '_>, index: usize, depth: usize) -> Option<(SlipExpr, usize)> {
    let name = match c.tokens.get(index)?.1 {
        Token::Minus => "neg",
        _ if c.gap_before(index).trim() == "~" => "invert",
        _ => return parse_postfix(c, index, depth),
    };
    let (operand, next) = parse_binary(c, index + (name == "neg") as usize, 7, depth + 1)?;
    let plain = match &operand {
        SlipExpr::Plain(text) if !text.contains('%') && name == "neg" => Some(format!("-{text}")),
        _ => None,
    };
    let call = || SlipExpr::Call(format!("call_function operator.{name}"), vec![(None, operand.clone())]);
    Some((plain.map_or_else(call, SlipExpr::Plain), next))
}

fn parse_postfix(c: &Cursor<'_, '_>, first: usize, depth: usize) -> Option<(SlipExpr, usize)> {
    let (mut value, mut next) = parse_primary(c, first, depth)?;
    loop {
        let Some((start, token, _)) = c.tokens.get(next) else {
            return Some((value, next));
        };
        let gap = c.gap_before(next);
        // `f32[2]` is a type, and sizes have no methods.
        let of_node = match &value {
            SlipExpr::Plain(text) => text.starts_with('%'),
            SlipExpr::Call(..) => true,
            SlipExpr::Items(..) => false,
        };
        if !of_node {
            return Some((value, next));
        }
        if *token == Token::LBracket && is_adjacent(c, next) {
            let (index, end) = parse_subscript(c, next + 1, depth + 1)?;
            value = SlipExpr::Call(
                "call_function operator.getitem".into(),
                vec![(None, value), (None, index)],
            );
            next = end;
        } else if gap == "." && token.word().is_some() {
            let name = c.slice(*start..c.tokens[next].2);
            next += 1;
            if matches!(c.tokens.get(next), Some((_, Token::LParen, _))) && is_adjacent(c, next) {
                let (mut args, end) = parse_arguments(c, next + 1, depth + 1)?;
                args.insert(0, (None, value));
                value = SlipExpr::Call(format!("call_method {name}"), args);
                next = end;
            } else {
                let name = SlipExpr::Plain(format!("\"{name}\""));
                value = SlipExpr::Call("call_function getattr".into(), vec![(None, value), (None, name)]);
            }
        } else {
            return Some((value, next));
        }
    }
}

/// Whether FXIR has calls of `name` as values.
fn is_literal_call(name: &str) -> bool {
    crate::syntax::actions::is_value_call(name) || crate::syntax::resolve::is_size_function(name)
}

fn parse_primary(c: &Cursor<'_, '_>, index: usize, depth: usize) -> Option<(SlipExpr, usize)> {
    if depth > DEEPEST
        || !c.gap_before(index).trim().is_empty()
            && c.gap_before(index).trim() != "~"
            && !is_sign(c.gap_before(index).trim())
    {
        return None;
    }
    let (start, token, end) = c.tokens.get(index)?;
    let text = c.slice(*start..*end);
    match token {
        Token::Node(_) | Token::Int(_) | Token::Float(_) | Token::Imag(_) | Token::Str(_) | Token::Literal(_) => {
            Some((SlipExpr::Plain(text.into()), index + 1))
        }
        Token::Ident(_) | Token::Path(_) => parse_name(c, index, depth),
        Token::LParen => {
            let (items, next, comma) = parse_items(c, index + 1, &Token::RParen, depth + 1)?;
            let grouped = items.len() == 1 && !comma;
            match grouped {
                true => match items.into_iter().next()? {
                    SlipExpr::Plain(t) => Some((SlipExpr::Plain(format!("({t})")), next)),
                    call => Some((call, next)),
                },
                false => Some((SlipExpr::Items("(", items, ")"), next)),
            }
        }
        Token::LBracket => {
            let (items, next, _) = parse_items(c, index + 1, &Token::RBracket, depth + 1)?;
            Some((SlipExpr::Items("[", items, "]"), next))
        }
        _ => None,
    }
}

/// Parses a name, or a call of it.
fn parse_name(c: &Cursor<'_, '_>, index: usize, depth: usize) -> Option<(SlipExpr, usize)> {
    let (start, _, end) = c.tokens.get(index)?;
    let text = c.slice(*start..*end);
    let called = matches!(c.tokens.get(index + 1), Some((_, Token::LParen, _))) && is_adjacent(c, index + 1);
    if !called {
        return Some((SlipExpr::Plain(text.into()), index + 1));
    }
    let (args, next) = parse_arguments(c, index + 2, depth + 1)?;
    if is_literal_call(text) {
        return Some((SlipExpr::Plain(c.slice(*start..c.tokens[next - 1].2).into()), next));
    }
    Some((SlipExpr::Call(format!("call_function {text}"), args), next))
}

fn is_sign(gap: &str) -> bool {
    matches!(gap, "@" | "&" | "|" | "^")
}

/// Parses expressions up to `close`. Returns them, the token after `close`, and whether there was a comma.
fn parse_items(
    c: &Cursor<'_, '_>,
    mut index: usize,
    close: &Token<'_>,
    depth: usize,
) -> Option<(Vec<SlipExpr>, usize, bool)> {
    let (mut out, mut comma) = (vec![], false);
    loop {
        if c.tokens.get(index)?.1 == *close {
            return Some((out, index + 1, comma));
        }
        let (item, next) = parse_binary(c, index, 0, depth + 1)?;
        out.push(item);
        index = next;
        if c.tokens.get(index)?.1 == Token::Comma {
            comma = true;
            index += 1;
        } else if c.tokens[index].1 != *close {
            return None;
        }
    }
}

type SlipArgs = Vec<(Option<String>, SlipExpr)>;

/// Parses a call's arguments. Returns them and the token after the bracket.
fn parse_arguments(c: &Cursor<'_, '_>, mut index: usize, depth: usize) -> Option<(SlipArgs, usize)> {
    let mut out = vec![];
    loop {
        let (start, token, end) = c.tokens.get(index)?;
        if *token == Token::RParen {
            return Some((out, index + 1));
        }
        let named = token.word().is_some() && matches!(c.tokens.get(index + 1), Some((_, Token::Assign, _)));
        let key = named.then(|| c.slice(*start..*end).to_string());
        let (value, next) = parse_binary(c, index + 2 * named as usize, 0, depth + 1)?;
        out.push((key, value));
        index = next;
        match c.tokens.get(index)?.1 {
            Token::Comma => index += 1,
            Token::RParen => {}
            _ => return None,
        }
    }
}

/// Parses the content of a subscript. Returns it and the token after the bracket.
fn parse_subscript(c: &Cursor<'_, '_>, mut index: usize, depth: usize) -> Option<(SlipExpr, usize)> {
    let (mut items, mut comma) = (vec![], false);
    loop {
        let (item, next) = parse_index(c, index, depth)?;
        items.push(item);
        index = next + 1;
        match c.tokens.get(next)?.1 {
            Token::Comma => comma = true,
            Token::RBracket => break,
            _ => return None,
        }
        if c.tokens.get(index)?.1 == Token::RBracket {
            index += 1;
            break;
        }
    }
    match (items.len(), comma) {
        (1, false) => Some((items.pop()?, index)),
        _ => Some((SlipExpr::Items("(", items, ")"), index)),
    }
}

/// Parses one index: a value, `a:b:c`, or `...`.
fn parse_index(c: &Cursor<'_, '_>, mut index: usize, depth: usize) -> Option<(SlipExpr, usize)> {
    if c.slice(c.tokens.get(index)?.0..c.text.len()).starts_with("...") {
        return Some((SlipExpr::Plain("Ellipsis".into()), index + 1));
    }
    let ends = |index: usize| {
        matches!(
            c.tokens.get(index),
            Some((_, Token::Colon | Token::Comma | Token::RBracket, _))
        )
    };
    let mut parts: Vec<SlipExpr> = vec![];
    let mut colons = 0;
    loop {
        if ends(index) {
            parts.push(SlipExpr::Plain("None".into()));
        } else {
            let (value, next) = parse_binary(c, index, 0, depth + 1)?;
            parts.push(value);
            index = next;
        }
        match c.tokens.get(index)?.1 {
            Token::Colon if colons < 2 => {
                colons += 1;
                index += 1;
            }
            _ => break,
        }
    }
    if colons == 0 {
        return parts.pop().map(|v| (v, index));
    }
    let args = parts.into_iter().map(|v| v.write_value(&mut vec![], &mut String::new));
    let args: Vec<String> = args.collect();
    Some((SlipExpr::Plain(format!("slice({})", args.join(", "))), index))
}
