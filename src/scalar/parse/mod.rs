//! The text of scalar expressions: `t = exp(-abs(self)); where(self >= 0, 1, t) / (1 + t)`.
//!
//! The language is Python's expressions over the names that the caller defines:
//!
//! * numbers, `inf`, `nan`, `pi`, `True`, `False`;
//! * `** - + ~ * / // % << >> & ^ |` and the comparisons, with Python's precedence;
//! * `name = value;` before the result;
//! * calls of the functions of [`Unary`](super::Unary) and [`Binary`](super::Binary) in lower case: `exp(x)`, `isnan(x)`,
//!   `truncdiv(a, b)`, `fmax(a, b)`;
//! * `where(cond, a, b)` and `fma(a, b, c)`;
//! * `f32(x)`, `i64(x)`, …: conversion to a dtype; `compute(x)`: to the dtype that the expression computes in; `rounded(x)`:
//!   to the result's dtype and back, which changes values only for f16 and bf16;
//! * `given(name, default)`: the named input if it exists, otherwise the default;
//! * `largest()`: the largest finite number of the result's dtype.
//!
//! `i0`, `i1`, … are the i64 indices along the last, second to last, … dimension of the result.
//!
//! A number has no dtype until it is combined with a value that has one. Arithmetic on numbers alone is done in f64 and
//! i64, and the result is rounded once. Operands of two dtypes are an error, except that a b8 is converted to the
//! other's dtype.

mod fold;
pub(in crate::scalar) mod names;
mod typing;

use super::{Ref, ScalarExpr, Unary};
use crate::diag::nearest;
use crate::tensor::Scalar;
use crate::types::DType;
use names::{BINARY, INFIX, Infix, PREFIX_POWER, UNARY};

/// The maximum nesting depth of parentheses and operators.
const MAX_DEPTH: u32 = 200;

/// A number that does not have a dtype yet.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names are self-explanatory")]
pub(crate) enum UntypedNumber {
    Int(i64),
    Float(f64),
    Bool(bool),
}

impl UntypedNumber {
    /// The number as f64.
    pub(crate) fn to_f64(self) -> f64 {
        match self {
            UntypedNumber::Int(i) => i as f64,
            UntypedNumber::Float(x) => x,
            UntypedNumber::Bool(b) => b as u8 as f64,
        }
    }

    /// The number as an element of `dtype`: rounded once, with integers wrapped, and floats truncated for an integer
    /// dtype.
    pub(crate) fn to_scalar(self, dtype: DType) -> Scalar {
        match self {
            UntypedNumber::Int(i) => Scalar::from_i64(dtype, i),
            UntypedNumber::Float(x) => Scalar::from_f64(dtype, x),
            UntypedNumber::Bool(b) => Scalar::Bool(b).cast(dtype),
        }
    }

    /// The value of an element as a number.
    pub(crate) fn from_scalar(v: Scalar) -> UntypedNumber {
        match v {
            Scalar::Int(_, i) => UntypedNumber::Int(i),
            Scalar::Bool(b) => UntypedNumber::Bool(b),
            _ => UntypedNumber::Float(v.to_f64()),
        }
    }

    fn is_true(self) -> bool {
        self.to_f64() != 0.0
    }
}

/// The meaning of a name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ParsedValue {
    /// A value of the expression.
    Value(Ref),
    /// A number.
    Number(UntypedNumber),
}

/// The dtypes that a text refers to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DTypeSettings {
    /// The dtype of `compute(x)`, and of numbers that are not combined with a typed value.
    pub compute: DType,
    /// The dtype of `rounded(x)`.
    pub storage: DType,
}

/// An error in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParseError {
    /// Byte offset into the text.
    pub offset: usize,
    /// The description of the error.
    pub message: String,
}

impl std::fmt::Display for ParseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (at byte {})", self.message, self.offset)
    }
}

type Result<T> = std::result::Result<T, ParseError>;

/// Parses `text` into `expr` and returns its value there, which is not yet a root. `input` resolves names. It may add
/// values to the expression, and is called again for each occurrence of a name.
pub(crate) fn parse(
    text: &str,
    settings: DTypeSettings,
    expr: &mut ScalarExpr,
    input: &mut dyn FnMut(&str, &mut ScalarExpr) -> Option<ParsedValue>,
) -> Result<Ref> {
    let mut p = FormulaParser {
        text,
        offset: 0,
        settings,
        expr,
        input,
        locals: vec![],
        depth: 0,
    };
    let v = p.parse_program()?;
    Ok(p.typed_ref(v, settings.compute))
}

struct FormulaParser<'a> {
    text: &'a str,
    offset: usize,
    settings: DTypeSettings,
    expr: &'a mut ScalarExpr,
    input: &'a mut dyn FnMut(&str, &mut ScalarExpr) -> Option<ParsedValue>,
    locals: Vec<(&'a str, ParsedValue)>,
    depth: u32,
}

impl<'a> FormulaParser<'a> {
    fn error_at<T>(&self, offset: usize, message: impl Into<String>) -> Result<T> {
        Err(ParseError {
            offset,
            message: message.into(),
        })
    }

    fn skip_space(&mut self) -> &'a str {
        let rest = &self.text[self.offset..];
        self.offset += rest.len() - rest.trim_start().len();
        &self.text[self.offset..]
    }

    fn eat(&mut self, token: &str) -> bool {
        let found = self.skip_space().starts_with(token);
        if found {
            self.offset += token.len();
        }
        found
    }

    fn expect(&mut self, token: &str) -> Result<()> {
        if self.eat(token) {
            return Ok(());
        }
        let next = self.skip_space().chars().next();
        let next = next.map_or("the end of the expression".to_string(), |c| format!("`{c}`"));
        self.error_at(self.offset, format!("expected `{token}` before {next}"))
    }

    /// `name = value;`* value
    fn parse_program(&mut self) -> Result<ParsedValue> {
        loop {
            let start = self.offset;
            if let Some(name) = self.take_word()
                && self.skip_space().starts_with('=')
                && !self.skip_space().starts_with("==")
            {
                self.offset += 1;
                let v = self.parse_value(0)?;
                self.expect(";")?;
                self.locals.push((name, v));
                continue;
            }
            self.offset = start;
            let v = self.parse_value(0)?;
            return match self.skip_space() {
                "" => Ok(v),
                _ => self.error_at(self.offset, format!("unexpected `{}`", &self.text[self.offset..])),
            };
        }
    }

    fn take_word(&mut self) -> Option<&'a str> {
        let rest = self.skip_space();
        let is = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = rest.find(|c| !is(c)).unwrap_or(rest.len());
        if end == 0 || rest.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        self.offset += end;
        Some(&rest[..end])
    }

    /// Parses a value whose operators bind more tightly than `power`.
    fn parse_value(&mut self, power: u8) -> Result<ParsedValue> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.error_at(self.offset, format!("more than {MAX_DEPTH} levels of nesting"));
        }
        let v = self.parse_infix(power);
        self.depth -= 1;
        v
    }

    fn parse_infix(&mut self, power: u8) -> Result<ParsedValue> {
        let mut left = self.parse_prefix()?;
        let mut compared = false;
        loop {
            let rest = self.skip_space();
            let Some(&(text, p, op)) = INFIX.iter().find(|(t, ..)| rest.starts_with(t)) else {
                return Ok(left);
            };
            // `**` is right-associative, all other operators are left-associative.
            if p <= power {
                return Ok(left);
            }
            let offset = self.offset;
            if compared && p == 1 {
                return self.error_at(offset, "comparisons do not chain; write `(a < b) & (b < c)`");
            }
            compared = p == 1;
            self.offset += text.len();
            // In Python the exponent may have a sign: `2 ** -x`.
            let right = self.parse_value(if p == 9 { PREFIX_POWER - 1 } else { p })?;
            left = match op {
                Infix::Binary(op) => self.build_binary(offset, op, left, right)?,
                Infix::Compare(op) => self.build_compare(offset, op, left, right)?,
            };
        }
    }

    fn parse_prefix(&mut self) -> Result<ParsedValue> {
        let rest = self.skip_space();
        let offset = self.offset;
        match rest.chars().next() {
            None => self.error_at(offset, "expected a value at the end of the expression"),
            Some('(') => {
                self.offset += 1;
                let v = self.parse_value(0)?;
                self.expect(")")?;
                Ok(v)
            }
            Some(c @ ('-' | '+' | '~')) => {
                self.offset += 1;
                let v = self.parse_value(PREFIX_POWER)?;
                match c {
                    '-' => self.build_unary(offset, Unary::Neg, v),
                    '~' => self.build_unary(offset, Unary::BitNot, v),
                    _ => Ok(v),
                }
            }
            Some(c) if c.is_ascii_digit() || c == '.' => self.parse_number(rest),
            Some(_) => match self.take_word() {
                Some(w) if self.eat("(") => self.parse_call(offset, w),
                Some(w) => self.resolve_name(offset, w),
                None => self.error_at(offset, format!("unexpected `{}`", rest.chars().next().unwrap_or(' '))),
            },
        }
    }

    fn parse_number(&mut self, rest: &str) -> Result<ParsedValue> {
        let bytes = rest.as_bytes();
        let mut end = 0;
        while end < bytes.len() {
            let c = bytes[end];
            let sign = matches!(c, b'+' | b'-') && end > 0 && matches!(bytes[end - 1], b'e' | b'E');
            if !(c.is_ascii_alphanumeric() || c == b'.' || c == b'_' || sign) {
                break;
            }
            end += 1;
        }
        let word = &rest[..end];
        let parsed = match word.parse::<i64>() {
            Ok(i) => Some(UntypedNumber::Int(i)),
            Err(_) => word.parse().ok().map(UntypedNumber::Float),
        };
        match parsed {
            Some(n) => {
                self.offset += end;
                Ok(ParsedValue::Number(n))
            }
            None => self.error_at(self.offset, format!("`{word}` is not a number")),
        }
    }

    fn resolve_name(&mut self, offset: usize, word: &str) -> Result<ParsedValue> {
        if let Some((_, v)) = self.locals.iter().rev().find(|(n, _)| *n == word) {
            return Ok(*v);
        }
        if let Some(v) = (self.input)(word, self.expr) {
            return Ok(v);
        }
        let index = word.strip_prefix('i').and_then(|d| d.parse::<u32>().ok());
        match (word, index) {
            ("inf", _) => Ok(ParsedValue::Number(UntypedNumber::Float(f64::INFINITY))),
            ("nan", _) => Ok(ParsedValue::Number(UntypedNumber::Float(f64::NAN))),
            ("pi", _) => Ok(ParsedValue::Number(UntypedNumber::Float(std::f64::consts::PI))),
            ("True", _) => Ok(ParsedValue::Number(UntypedNumber::Bool(true))),
            ("False", _) => Ok(ParsedValue::Number(UntypedNumber::Bool(false))),
            (_, Some(d)) if d < 64 => Ok(ParsedValue::Value(self.expr.out_index(d))),
            _ => self.error_at(offset, format!("unknown name `{word}`")),
        }
    }

    /// `given(name, default)`: the input if it exists.
    fn parse_given(&mut self) -> Result<ParsedValue> {
        let Some(name) = self.take_word() else {
            return self.error_at(self.offset, "`given` expects a name and a default");
        };
        let input = (self.input)(name, self.expr);
        self.expect(",")?;
        let default = self.parse_value(0)?;
        self.expect(")")?;
        Ok(input.unwrap_or(default))
    }

    /// The arguments of a call, after the opening parenthesis.
    fn parse_arguments(&mut self) -> Result<Vec<ParsedValue>> {
        let mut args = vec![];
        while !self.eat(")") {
            if !args.is_empty() {
                self.expect(",")?;
            }
            args.push(self.parse_value(0)?);
        }
        Ok(args)
    }

    fn parse_call(&mut self, offset: usize, word: &str) -> Result<ParsedValue> {
        if word == "given" {
            return self.parse_given();
        }
        let args = self.parse_arguments()?;
        let unary = UNARY.iter().find(|f| f.0 == word).map(|f| f.1);
        let binary = BINARY.iter().find(|f| f.0 == word).map(|f| f.1);
        let dtype = DType::from_short(word).filter(|d| d.is_computed());
        let arity = match word {
            "largest" => 0,
            "rounded" | "compute" => 1,
            "where" | "fma" => 3,
            _ if unary.is_some() || dtype.is_some() => 1,
            _ if binary.is_some() => 2,
            _ => return self.unknown_function(offset, word),
        };
        if args.len() != arity {
            let (takes, found) = (crate::diag::words::count(arity, "value"), args.len());
            return self.error_at(offset, format!("`{word}` takes {takes}, not {found}"));
        }
        match (word, &args[..]) {
            ("largest", _) => {
                let x = names::largest_finite(self.settings.storage);
                Ok(ParsedValue::Number(UntypedNumber::Float(x)))
            }
            ("rounded", &[x]) => Ok(self.round_to_storage(x)),
            ("compute", &[x]) => Ok(self.build_cast(self.settings.compute, x)),
            ("where", &[condition, x, y]) => self.build_select(offset, condition, x, y),
            ("fma", &[x, y, z]) => self.build_fma(offset, x, y, z),
            _ => match (unary, binary, dtype) {
                (Some(op), ..) => self.build_unary(offset, op, args[0]),
                (_, Some(op), _) => self.build_binary(offset, op, args[0], args[1]),
                (.., Some(d)) => Ok(self.build_cast(d, args[0])),
                _ => self.unknown_function(offset, word),
            },
        }
    }

    fn unknown_function(&self, offset: usize, word: &str) -> Result<ParsedValue> {
        let known = UNARY.iter().map(|f| f.0).chain(BINARY.iter().map(|f| f.0));
        let known = known.chain(["where", "fma", "rounded", "compute", "given", "largest"]);
        let hint = nearest(word, known).map_or(String::new(), |n| format!("; did you mean `{n}`?"));
        self.error_at(offset, format!("unknown function `{word}`{hint}"))
    }
}

#[cfg(test)]
mod tests;
