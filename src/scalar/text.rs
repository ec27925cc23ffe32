//! Expressions as text that says exactly what they are, for the tensor IR and its tests.
//!
//! ```text
//! t0 = sub(a0, a1); mul(t0, exp(t0))
//! ```
//!
//! `a0` is the first operand, `i0` the innermost index of the output, `f32(0.5)` a constant, `f64.cast(x)` a conversion. A value that
//! is used more than once has a name. Operations have the names of [`Unary`], [`Binary`] and [`Compare`] in lower case. The language
//! of the op table ([`parse`](super::parse::parse)) is another one: it chooses dtypes, this one states them.

use super::parse::names::{BINARY, INFIX, Infix, UNARY};
use super::{Binary, Compare, Expr, Node, Ref, Unary};
use crate::tensor::Scalar;
use crate::types::{DType, write_float};
use std::collections::HashMap;
use std::fmt::{self, Write};

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut uses = vec![0usize; self.len()];
        for (_, node, _) in self.nodes() {
            operands(node).for_each(|r| uses[r.0 as usize] += 1);
        }
        let mut texts: Vec<String> = Vec::with_capacity(self.len());
        let mut names = 0;
        for (r, node, _) in self.nodes() {
            let mut text = written(node, &texts);
            let leaf = matches!(node, Node::Arg(_) | Node::Index(_) | Node::Const(_));
            if uses[r.0 as usize] > 1 && !leaf {
                write!(f, "t{names} = {text}; ")?;
                text = format!("t{names}");
                names += 1;
            }
            texts.push(text);
        }
        let roots: Vec<&str> = self.roots.iter().map(|r| &*texts[r.0 as usize]).collect();
        f.write_str(&roots.join(", "))
    }
}

fn operands(node: Node) -> impl Iterator<Item = Ref> {
    let all = match node {
        Node::Arg(_) | Node::Index(_) | Node::Const(_) => [None; 3],
        Node::Unary(_, x) | Node::Cast(_, x) => [Some(x), None, None],
        Node::Binary(_, x, y) | Node::Compare(_, x, y) => [Some(x), Some(y), None],
        Node::Fma(x, y, z) | Node::Select(x, y, z) => [Some(x), Some(y), Some(z)],
    };
    all.into_iter().flatten()
}

fn written(node: Node, texts: &[String]) -> String {
    let head = match node {
        Node::Arg(n) => return format!("a{n}"),
        Node::Index(d) => return format!("i{d}"),
        Node::Const(s) => return constant(s),
        Node::Unary(op, _) => name(op),
        Node::Binary(op, ..) => name(op),
        Node::Compare(op, ..) => name(op),
        Node::Fma(..) => "fma".into(),
        Node::Select(..) => "select".into(),
        Node::Cast(d, _) => format!("{d}.cast"),
    };
    let args: Vec<&str> = operands(node).map(|r| &*texts[r.0 as usize]).collect();
    format!("{head}({})", args.join(", "))
}

pub(crate) fn name(op: impl fmt::Debug) -> String {
    format!("{op:?}").to_lowercase()
}

/// A constant with its dtype: `f32(0.5)`, `i64(3)`.
pub fn constant(s: Scalar) -> String {
    let mut out = s.dtype().to_string();
    let _ = match s {
        Scalar::F64(x) => write!(out, "({})", write_float(x)),
        s => write!(out, "({s})"),
    };
    out
}

/// The constant that [`constant`] writes so.
pub fn parse_constant(text: &str) -> Option<Scalar> {
    let (dtype, value) = text.strip_suffix(')')?.split_once('(')?;
    let dtype = DType::from_short(dtype)?;
    Some(match value {
        "True" => Scalar::Bool(true),
        "False" => Scalar::Bool(false),
        _ if dtype.is_float() => Scalar::from_f64(dtype, value.to_lowercase().parse().ok()?),
        _ => Scalar::Int(DType::I64, value.parse().ok()?).cast(dtype),
    })
}

/// Reads what [`Expr`]'s `Display` writes, for operands of the dtypes `args`; the message says what is wrong.
pub fn parse_expr(text: &str, args: &[DType]) -> Result<Expr, String> {
    let mut p = Parser {
        rest: text,
        args,
        expr: Expr::new(),
        names: HashMap::new(),
    };
    loop {
        let (before, start) = (p.rest, p.word());
        if start.starts_with('t') && p.eat("=") {
            let value = p.value()?;
            p.names.insert(start.to_string(), value);
            p.expect(";")?;
            continue;
        }
        p.rest = before;
        let root = p.value()?;
        p.expr.roots.push(root);
        if !p.eat(",") {
            break;
        }
    }
    match p.rest.trim() {
        "" => Ok(p.expr),
        more => Err(format!("`{more}` after the expression")),
    }
}

struct Parser<'a> {
    rest: &'a str,
    args: &'a [DType],
    expr: Expr,
    names: HashMap<String, Ref>,
}

impl<'a> Parser<'a> {
    fn eat(&mut self, token: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(token);
        rest.map(|r| self.rest = r).is_some()
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        match self.eat(token) {
            true => Ok(()),
            false => Err(format!("expected `{token}` before `{}`", self.rest.trim())),
        }
    }

    fn word(&mut self) -> &'a str {
        self.rest = self.rest.trim_start();
        let part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let end = self.rest.find(|c| !part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn value(&mut self) -> Result<Ref, String> {
        let word = self.word();
        if let Some(&r) = self.names.get(word) {
            return Ok(r);
        }
        if !self.eat("(") {
            return self.leaf(word);
        }
        if DType::from_short(word).is_some() {
            let end = self.rest.find(')').ok_or("a constant without `)`")?;
            let text = format!("{word}({})", &self.rest[..end]);
            self.rest = &self.rest[end + 1..];
            let value = parse_constant(&text).ok_or_else(|| format!("`{text}` is not a constant"))?;
            return Ok(self.expr.constant(value));
        }
        let mut args = vec![self.value()?];
        while self.eat(",") {
            args.push(self.value()?);
        }
        self.expect(")")?;
        self.call(word, &args)
    }

    fn leaf(&mut self, word: &str) -> Result<Ref, String> {
        let number = |prefix: char| word.strip_prefix(prefix)?.parse::<u32>().ok();
        match (number('a'), number('i')) {
            (Some(n), _) => match self.args.get(n as usize) {
                Some(&d) => Ok(self.expr.arg(n, d)),
                None => Err(format!("there is no operand `{word}`")),
            },
            (_, Some(d)) => Ok(self.expr.out_index(d)),
            _ => Err(format!("`{word}` is not a value")),
        }
    }

    fn call(&mut self, word: &str, args: &[Ref]) -> Result<Ref, String> {
        let same = |e: &Expr, x: Ref, y: Ref| e.dtype(x) == e.dtype(y);
        let e = &mut self.expr;
        let found = match *args {
            [x] => match (word.strip_suffix(".cast").and_then(DType::from_short), unary(word)) {
                (Some(d), _) => Some(e.cast(d, x)),
                (_, Some(op)) => Some(e.unary(op, x)),
                _ => None,
            },
            [x, y] if same(e, x, y) => match (binary(word), compare(word)) {
                (Some(op), _) => Some(e.binary(op, x, y)),
                (_, Some(op)) => Some(e.compare(op, x, y)),
                _ => None,
            },
            [x, y, z] if word == "fma" && same(e, x, y) && same(e, y, z) => Some(e.fma(x, y, z)),
            [c, x, y] if word == "select" && e.dtype(c) == DType::B8 && same(e, x, y) => Some(e.select(c, x, y)),
            _ => None,
        };
        found.ok_or_else(|| format!("`{word}` does not take these {} operands", args.len()))
    }
}

pub(crate) fn unary(word: &str) -> Option<Unary> {
    let all = UNARY.iter().map(|u| u.1).chain([Unary::Not, Unary::BitNot]);
    all.into_iter().find(|op| name(op) == word)
}

pub(crate) fn binary(word: &str) -> Option<Binary> {
    let infix = INFIX.iter().filter_map(|i| match i.2 {
        Infix::Binary(op) => Some(op),
        Infix::Compare(_) => None,
    });
    let all = BINARY.iter().map(|b| b.1).chain(infix);
    all.into_iter().find(|op| name(op) == word)
}

pub(crate) fn compare(word: &str) -> Option<Compare> {
    Compare::ALL.into_iter().find(|op| name(op) == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(text: &str, args: &[DType]) {
        let e = parse_expr(text, args).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(e.to_string(), text);
    }

    #[test]
    fn texts_come_back() {
        let f = DType::F32;
        round_trip("add(a0, f32(0.1))", &[f]);
        round_trip("t0 = sub(a0, a1); mul(t0, exp(t0))", &[f, f]);
        round_trip("select(lt(a0, f32(-inf)), fma(a0, a0, a1), f32(NaN))", &[f, f]);
        round_trip("f64.cast(i0), not(isnan(a0))", &[f]);
        round_trip("bf16.cast(mul(f32.cast(a0), f32(1e-8)))", &[DType::BF16]);
        round_trip("floordiv(a0, i64(-3))", &[DType::I64]);
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text: &str| parse_expr(text, &[DType::F32, DType::I64]).map(|e| e.to_string());
        assert_eq!(error("add(a0, a1)"), Err("`add` does not take these 2 operands".into()));
        assert_eq!(error("a7"), Err("there is no operand `a7`".into()));
        assert_eq!(error("exp(a0"), Err("expected `)` before ``".into()));
        assert_eq!(error("f32(x)"), Err("`f32(x)` is not a constant".into()));
        assert_eq!(error("a0 a0"), Err("`a0` after the expression".into()));
    }
}
