//! The exact text form of expressions, for the tensor IR and its tests.
//!
//! ```text
//! t0 = sub(a0, a1); mul(t0, exp(t0))
//! ```
//!
//! `a0` is the first operand, `i0` the innermost index of the output, `f32(0.5)` a constant, and `f64.cast(x)` a
//! conversion. A value that is used more than once has a name. Operations are written by their
//! [mnemonics](ScalarOp::mnemonic). The language of the op table ([`parse`](super::parse::parse)) is different: it
//! infers dtypes, while this one states them.

use super::{Ref, ScalarExpr, ScalarNode, ScalarOp};
use crate::diag::words::count;
use crate::tensor::Scalar;
use crate::types::{DType, write_float};
use std::collections::HashMap;
use std::fmt::{self, Write};

impl fmt::Display for ScalarExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut uses = vec![0usize; self.len()];
        for (_, node, _) in self.nodes() {
            if let ScalarNode::Op(op) = node {
                op.operands().for_each(|r| uses[r.0 as usize] += 1);
            }
        }
        let mut texts: Vec<String> = Vec::with_capacity(self.len());
        let mut names = 0;
        for (r, node, _) in self.nodes() {
            let mut text = print_node(node, &texts);
            let leaf = matches!(
                node,
                ScalarNode::Arg(_) | ScalarNode::Index(_) | ScalarNode::Op(ScalarOp::Const(_))
            );
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

fn print_node(node: ScalarNode, texts: &[String]) -> String {
    match node {
        ScalarNode::Arg(n) => format!("a{n}"),
        ScalarNode::Index(d) => format!("i{d}"),
        ScalarNode::Op(ScalarOp::Const(s)) => print_constant(s),
        ScalarNode::Op(op) => {
            let args: Vec<&str> = op.operands().map(|r| &*texts[r.0 as usize]).collect();
            format!("{}({})", op.mnemonic(), args.join(", "))
        }
    }
}

/// A constant with its dtype: `f32(0.5)`, `i64(3)`.
pub(crate) fn print_constant(s: Scalar) -> String {
    let mut out = s.dtype().to_string();
    let _ = match s {
        Scalar::F64(x) => write!(out, "({})", write_float(x)),
        s => write!(out, "({s})"),
    };
    out
}

/// Parses a constant that [`print_constant`] printed.
pub(crate) fn parse_constant(text: &str) -> Option<Scalar> {
    let (dtype, value) = text.strip_suffix(')')?.split_once('(')?;
    let dtype = DType::from_short(dtype)?;
    Some(match value {
        "True" => Scalar::Bool(true),
        "False" => Scalar::Bool(false),
        _ if dtype.is_float() => Scalar::from_f64(dtype, value.to_lowercase().parse().ok()?),
        _ => Scalar::Int(DType::I64, value.parse().ok()?).cast(dtype),
    })
}

/// Parses the output of [`ScalarExpr`]'s `Display`, for operands of the dtypes `args`. Returns an error message if it
/// is invalid.
pub(crate) fn parse_expr(text: &str, args: &[DType]) -> Result<ScalarExpr, String> {
    let mut p = ExprParser {
        rest: text,
        args,
        expr: ScalarExpr::new(),
        names: HashMap::new(),
    };
    loop {
        let (before, start) = (p.rest, p.take_word());
        if start.starts_with('t') && p.eat("=") {
            let value = p.parse_value()?;
            p.names.insert(start.to_string(), value);
            p.expect(";")?;
            continue;
        }
        p.rest = before;
        let root = p.parse_value()?;
        p.expr.roots.push(root);
        if !p.eat(",") {
            break;
        }
    }
    match p.rest.trim() {
        "" => Ok(p.expr),
        rest => Err(format!("unexpected `{rest}` after the expression")),
    }
}

struct ExprParser<'a> {
    rest: &'a str,
    args: &'a [DType],
    expr: ScalarExpr,
    names: HashMap<String, Ref>,
}

impl<'a> ExprParser<'a> {
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

    fn take_word(&mut self) -> &'a str {
        self.rest = self.rest.trim_start();
        let part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let end = self.rest.find(|c| !part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn parse_value(&mut self) -> Result<Ref, String> {
        let word = self.take_word();
        if let Some(&r) = self.names.get(word) {
            return Ok(r);
        }
        if !self.eat("(") {
            return self.parse_leaf(word);
        }
        if DType::from_short(word).is_some() {
            let end = self.rest.find(')').ok_or("missing `)` after a constant")?;
            let text = format!("{word}({})", &self.rest[..end]);
            self.rest = &self.rest[end + 1..];
            let value = parse_constant(&text).ok_or_else(|| format!("`{text}` is not a constant"))?;
            return Ok(self.expr.constant(value));
        }
        let mut args = vec![self.parse_value()?];
        while self.eat(",") {
            args.push(self.parse_value()?);
        }
        self.expect(")")?;
        self.build_call(word, &args)
    }

    fn parse_leaf(&mut self, word: &str) -> Result<Ref, String> {
        let number = |prefix: char| word.strip_prefix(prefix)?.parse::<u32>().ok();
        match (number('a'), number('i')) {
            (Some(n), _) => match self.args.get(n as usize) {
                Some(&d) => Ok(self.expr.arg(n, d)),
                None => Err(format!("unknown operand `{word}`")),
            },
            (_, Some(d)) => Ok(self.expr.out_index(d)),
            _ => Err(format!("`{word}` is not a value")),
        }
    }

    fn build_call(&mut self, word: &str, args: &[Ref]) -> Result<Ref, String> {
        let d = |i: usize| self.expr.dtype(args[i]);
        let fits = |op: &ScalarOp<Ref>| match op {
            ScalarOp::Binary(..) | ScalarOp::Compare(..) => d(0) == d(1),
            ScalarOp::Fma(..) => d(0) == d(1) && d(1) == d(2),
            ScalarOp::Select(..) => d(0) == DType::B8 && d(1) == d(2),
            _ => true,
        };
        let op = ScalarOp::from_mnemonic(word, args).filter(fits);
        let op = op.map(|op| self.expr.op(op));
        op.ok_or_else(|| format!("`{word}` does not accept {}", count(args.len(), "operand")))
    }
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
        assert_eq!(error("add(a0, a1)"), Err("`add` does not accept 2 operands".into()));
        assert_eq!(error("a7"), Err("unknown operand `a7`".into()));
        assert_eq!(error("exp(a0"), Err("expected `)` before ``".into()));
        assert_eq!(error("f32(x)"), Err("`f32(x)` is not a constant".into()));
        assert_eq!(error("a0 a0"), Err("unexpected `a0` after the expression".into()));
    }
}
