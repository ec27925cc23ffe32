//! The text of scalar expressions: `t = exp(-abs(self)); where(self >= 0, 1, t) / (1 + t)`.
//!
//! The language is Python's expressions over the names the caller knows: numbers, `inf`, `nan`, `pi`, `True`, `False`;
//! `** - + ~ * / // % << >> & ^ |` and the comparisons, with Python's precedence; `name = value;` before the result;
//! and calls of
//!
//! * the functions of [`Unary`] and [`Binary`] in lower case: `exp(x)`, `isnan(x)`, `truncdiv(a, b)`, `fmax(a, b)`;
//! * `where(cond, a, b)` and `fma(a, b, c)`;
//! * `f32(x)`, `i64(x)`, …: conversion to a dtype; `compute(x)`: to the dtype the expression computes in; `rounded(x)`:
//!   through the result's dtype and back, which changes something only for f16 and bf16;
//! * `given(name, default)`: the named input if there is one, else the default;
//! * `largest()`: the largest finite number of the result's dtype.
//!
//! `i0`, `i1`, … are the indices along the last, second to last, … dimension of the result: i64 values.
//!
//! A number has no dtype until it meets a value that has one; arithmetic on numbers alone is done in f64 and i64, and
//! the outcome is rounded once. Operands of two dtypes are an error except that a b8 becomes the other's dtype.

use super::math::{f64_binary, f64_unary};
use super::{Binary, Compare, Expr, Ref, Unary};
use crate::diag::nearest;
use crate::tensor::Scalar;
use crate::types::{Category, DType};

/// How deeply parentheses and operators may nest.
const MAX_DEPTH: u32 = 200;

/// A number that has no dtype yet.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Number {
    Int(i64),
    Float(f64),
    Bool(bool),
}

impl Number {
    /// The number as f64.
    pub fn to_f64(self) -> f64 {
        match self {
            Number::Int(i) => i as f64,
            Number::Float(x) => x,
            Number::Bool(b) => b as u8 as f64,
        }
    }

    /// The number as an element of `dtype`: rounded once, integers wrapped, floats truncated for an integer dtype.
    pub fn to_scalar(self, dtype: DType) -> Scalar {
        match self {
            Number::Int(i) => Scalar::from_i64(dtype, i),
            Number::Float(x) => Scalar::from_f64(dtype, x),
            Number::Bool(b) => Scalar::Bool(b).cast(dtype),
        }
    }

    /// The number with the value of an element.
    pub fn from_scalar(v: Scalar) -> Number {
        match v {
            Scalar::Int(_, i) => Number::Int(i),
            Scalar::Bool(b) => Number::Bool(b),
            _ => Number::Float(v.to_f64()),
        }
    }

    fn is_true(self) -> bool {
        self.to_f64() != 0.0
    }
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Input {
    /// A value of the expression.
    Value(Ref),
    /// A number.
    Number(Number),
}

/// What a text's dtypes are.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The dtype of `compute(x)`, and of numbers that meet nothing typed.
    pub compute: DType,
    /// The dtype of `rounded(x)`.
    pub storage: DType,
}

/// What is wrong with a text, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Byte offset into the text.
    pub offset: usize,
    /// What is wrong.
    pub message: String,
}

impl std::fmt::Display for ParseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (at byte {})", self.message, self.offset)
    }
}

type Result<T> = std::result::Result<T, ParseError>;

/// Parses `text` into `expr` and gives its value there (not yet a root). `input` says what a name is; it may add values
/// to the expression, and is asked again at each occurrence.
pub fn parse(
    text: &str,
    settings: Settings,
    expr: &mut Expr,
    input: &mut dyn FnMut(&str, &mut Expr) -> Option<Input>,
) -> Result<Ref> {
    let mut p = Parser {
        text,
        at: 0,
        settings,
        expr,
        input,
        locals: vec![],
        depth: 0,
    };
    let v = p.program()?;
    Ok(p.typed(v, settings.compute))
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    settings: Settings,
    expr: &'a mut Expr,
    input: &'a mut dyn FnMut(&str, &mut Expr) -> Option<Input>,
    locals: Vec<(&'a str, Input)>,
    depth: u32,
}

/// An infix operator.
#[derive(Clone, Copy, Debug)]
enum Infix {
    Compare(Compare),
    Binary(Binary),
}

/// Operators, longer spellings first: text, binding power (comparisons lowest), meaning.
const INFIX: &[(&str, u8, Infix)] = &[
    ("**", 9, Infix::Binary(Binary::Pow)),
    ("//", 7, Infix::Binary(Binary::FloorDiv)),
    ("<<", 5, Infix::Binary(Binary::Shl)),
    (">>", 5, Infix::Binary(Binary::Shr)),
    ("<=", 1, Infix::Compare(Compare::Le)),
    (">=", 1, Infix::Compare(Compare::Ge)),
    ("==", 1, Infix::Compare(Compare::Eq)),
    ("!=", 1, Infix::Compare(Compare::Ne)),
    ("<", 1, Infix::Compare(Compare::Lt)),
    (">", 1, Infix::Compare(Compare::Gt)),
    ("*", 7, Infix::Binary(Binary::Mul)),
    ("/", 7, Infix::Binary(Binary::Div)),
    ("%", 7, Infix::Binary(Binary::Mod)),
    ("+", 6, Infix::Binary(Binary::Add)),
    ("-", 6, Infix::Binary(Binary::Sub)),
    ("&", 4, Infix::Binary(Binary::And)),
    ("^", 3, Infix::Binary(Binary::Xor)),
    ("|", 2, Infix::Binary(Binary::Or)),
];

/// Binding power of unary `-`, `+`, `~`: below `**`, above `*`.
const PREFIX_POWER: u8 = 8;

const UNARY: &[(&str, Unary)] = &[
    ("neg", Unary::Neg),
    ("abs", Unary::Abs),
    ("sign", Unary::Sign),
    ("floor", Unary::Floor),
    ("ceil", Unary::Ceil),
    ("round", Unary::Round),
    ("trunc", Unary::Trunc),
    ("sqrt", Unary::Sqrt),
    ("rsqrt", Unary::Rsqrt),
    ("recip", Unary::Recip),
    ("exp", Unary::Exp),
    ("exp2", Unary::Exp2),
    ("expm1", Unary::Expm1),
    ("log", Unary::Log),
    ("log2", Unary::Log2),
    ("log10", Unary::Log10),
    ("log1p", Unary::Log1p),
    ("sin", Unary::Sin),
    ("cos", Unary::Cos),
    ("tan", Unary::Tan),
    ("asin", Unary::Asin),
    ("acos", Unary::Acos),
    ("atan", Unary::Atan),
    ("sinh", Unary::Sinh),
    ("cosh", Unary::Cosh),
    ("tanh", Unary::Tanh),
    ("asinh", Unary::Asinh),
    ("acosh", Unary::Acosh),
    ("atanh", Unary::Atanh),
    ("erf", Unary::Erf),
    ("erfc", Unary::Erfc),
    ("erfcx", Unary::Erfcx),
    ("erfinv", Unary::Erfinv),
    ("lgamma", Unary::Lgamma),
    ("digamma", Unary::Digamma),
    ("bessel_i0", Unary::I0),
    ("bessel_i0e", Unary::I0e),
    ("bessel_i1", Unary::I1),
    ("bessel_i1e", Unary::I1e),
    ("ndtri", Unary::Ndtri),
    ("sigmoid", Unary::Sigmoid),
    ("isnan", Unary::IsNan),
    ("isinf", Unary::IsInf),
    ("signbit", Unary::SignBit),
];

const BINARY: &[(&str, Binary)] = &[
    ("truncdiv", Binary::TruncDiv),
    ("fmod", Binary::Fmod),
    ("pow", Binary::Pow),
    ("atan2", Binary::Atan2),
    ("max", Binary::Max),
    ("min", Binary::Min),
    ("fmax", Binary::Fmax),
    ("fmin", Binary::Fmin),
    ("copysign", Binary::Copysign),
    ("hypot", Binary::Hypot),
    ("nextafter", Binary::Nextafter),
    ("gcd", Binary::Gcd),
    ("zeta", Binary::Zeta),
];

/// Whether `op` has a value on dtypes of this category.
fn binary_defined(op: Binary, c: Category) -> bool {
    use Binary::*;
    match c {
        Category::Float => !matches!(op, And | Or | Xor | Shl | Shr | Gcd),
        Category::Int => !matches!(op, Div | Atan2 | Copysign | Hypot | Nextafter | Zeta),
        Category::Bool => matches!(op, Add | Mul | Max | Min | Fmax | Fmin | And | Or | Xor | Pow),
        Category::Complex => false,
    }
}

fn unary_defined(op: Unary, c: Category) -> bool {
    use Unary::*;
    match op {
        IsNan | IsInf | SignBit => c != Category::Complex,
        Neg => matches!(c, Category::Int | Category::Float),
        Abs | Sign => c != Category::Complex,
        Floor | Ceil | Round | Trunc => matches!(c, Category::Int | Category::Float),
        Not => c == Category::Bool,
        BitNot => matches!(c, Category::Int | Category::Bool),
        _ => c == Category::Float,
    }
}

impl<'a> Parser<'a> {
    fn error<T>(&self, offset: usize, message: impl Into<String>) -> Result<T> {
        Err(ParseError {
            offset,
            message: message.into(),
        })
    }

    fn rest(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        &self.text[self.at..]
    }

    fn eat(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn expect(&mut self, token: &str) -> Result<()> {
        if self.eat(token) {
            return Ok(());
        }
        let found = self.rest().chars().next();
        let found = found.map_or("the end".to_string(), |c| format!("`{c}`"));
        self.error(self.at, format!("expected `{token}` before {found}"))
    }

    /// `name = value;`* value
    fn program(&mut self) -> Result<Input> {
        loop {
            let start = self.at;
            if let Some(name) = self.word()
                && self.rest().starts_with('=')
                && !self.rest().starts_with("==")
            {
                self.at += 1;
                let v = self.value(0)?;
                self.expect(";")?;
                self.locals.push((name, v));
                continue;
            }
            self.at = start;
            let v = self.value(0)?;
            return match self.rest() {
                "" => Ok(v),
                _ => self.error(self.at, format!("unexpected `{}`", &self.text[self.at..])),
            };
        }
    }

    fn word(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        let is = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = rest.find(|c| !is(c)).unwrap_or(rest.len());
        if end == 0 || rest.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        self.at += end;
        Some(&rest[..end])
    }

    /// A value whose operators bind more tightly than `power`.
    fn value(&mut self, power: u8) -> Result<Input> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.error(self.at, format!("more than {MAX_DEPTH} levels of nesting"));
        }
        let v = self.operand(power);
        self.depth -= 1;
        v
    }

    fn operand(&mut self, power: u8) -> Result<Input> {
        let mut left = self.prefix()?;
        let mut compared = false;
        loop {
            let rest = self.rest();
            let Some(&(text, p, op)) = INFIX.iter().find(|(t, ..)| rest.starts_with(t)) else {
                return Ok(left);
            };
            // `**` binds to the right, everything else to the left.
            if p <= power {
                return Ok(left);
            }
            let at = self.at;
            if compared && p == 1 {
                return self.error(at, "comparisons do not chain; write `(a < b) & (b < c)`");
            }
            compared = p == 1;
            self.at += text.len();
            // Python lets the exponent have a sign: `2 ** -x`.
            let right = self.value(if p == 9 { PREFIX_POWER - 1 } else { p })?;
            left = match op {
                Infix::Binary(op) => self.binary(at, op, left, right)?,
                Infix::Compare(op) => self.compare(at, op, left, right)?,
            };
        }
    }

    fn prefix(&mut self) -> Result<Input> {
        let rest = self.rest();
        let at = self.at;
        match rest.chars().next() {
            None => self.error(at, "expected a value before the end"),
            Some('(') => {
                self.at += 1;
                let v = self.value(0)?;
                self.expect(")")?;
                Ok(v)
            }
            Some(c @ ('-' | '+' | '~')) => {
                self.at += 1;
                let v = self.value(PREFIX_POWER)?;
                match c {
                    '-' => self.unary(at, Unary::Neg, v),
                    '~' => self.unary(at, Unary::BitNot, v),
                    _ => Ok(v),
                }
            }
            Some(c) if c.is_ascii_digit() || c == '.' => self.number(rest),
            Some(_) => match self.word() {
                Some(w) if self.eat("(") => self.call(at, w),
                Some(w) => self.name(at, w),
                None => self.error(at, format!("unexpected `{}`", rest.chars().next().unwrap_or(' '))),
            },
        }
    }

    fn number(&mut self, rest: &str) -> Result<Input> {
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
            Ok(i) => Some(Number::Int(i)),
            Err(_) => word.parse().ok().map(Number::Float),
        };
        match parsed {
            Some(n) => {
                self.at += end;
                Ok(Input::Number(n))
            }
            None => self.error(self.at, format!("`{word}` is not a number")),
        }
    }

    fn name(&mut self, at: usize, word: &str) -> Result<Input> {
        if let Some((_, v)) = self.locals.iter().rev().find(|(n, _)| *n == word) {
            return Ok(*v);
        }
        if let Some(v) = (self.input)(word, self.expr) {
            return Ok(v);
        }
        let index = word.strip_prefix('i').and_then(|d| d.parse::<u32>().ok());
        match (word, index) {
            ("inf", _) => Ok(Input::Number(Number::Float(f64::INFINITY))),
            ("nan", _) => Ok(Input::Number(Number::Float(f64::NAN))),
            ("pi", _) => Ok(Input::Number(Number::Float(std::f64::consts::PI))),
            ("True", _) => Ok(Input::Number(Number::Bool(true))),
            ("False", _) => Ok(Input::Number(Number::Bool(false))),
            (_, Some(d)) if d < 64 => Ok(Input::Value(self.expr.out_index(d))),
            _ => self.error(at, format!("unknown name `{word}`")),
        }
    }

    fn call(&mut self, at: usize, word: &str) -> Result<Input> {
        let mut args = vec![];
        if word == "given" {
            let name = match self.word() {
                Some(name) => name,
                None => return self.error(self.at, "`given` takes a name and a default"),
            };
            args.extend((self.input)(name, self.expr));
            self.expect(",")?;
            args.push(self.value(0)?);
            self.expect(")")?;
            return Ok(args[0]);
        }
        while !self.eat(")") {
            if !args.is_empty() {
                self.expect(",")?;
            }
            args.push(self.value(0)?);
        }
        let arity = |n: usize| match args.len() == n {
            true => Ok(()),
            false => Err(ParseError {
                offset: at,
                message: format!("`{word}` takes {n} values, not {}", args.len()),
            }),
        };
        if let Some(&(_, op)) = UNARY.iter().find(|(n, _)| *n == word) {
            arity(1)?;
            return self.unary(at, op, args[0]);
        }
        if let Some(&(_, op)) = BINARY.iter().find(|(n, _)| *n == word) {
            arity(2)?;
            return self.binary(at, op, args[0], args[1]);
        }
        let dtype = DType::from_short(word).filter(|d| d.is_computed());
        match (word, dtype) {
            ("where", _) => {
                arity(3)?;
                self.select(at, args[0], args[1], args[2])
            }
            ("fma", _) => {
                arity(3)?;
                self.fma(at, args[0], args[1], args[2])
            }
            ("rounded", _) => {
                arity(1)?;
                Ok(self.rounded(args[0]))
            }
            ("largest", _) => {
                arity(0)?;
                Ok(Input::Number(Number::Float(largest(self.settings.storage))))
            }
            ("compute", _) => {
                arity(1)?;
                Ok(self.cast(self.settings.compute, args[0]))
            }
            (_, Some(d)) => {
                arity(1)?;
                Ok(self.cast(d, args[0]))
            }
            _ => self.unknown_function(at, word),
        }
    }

    fn unknown_function(&self, at: usize, word: &str) -> Result<Input> {
        let known = UNARY.iter().map(|f| f.0).chain(BINARY.iter().map(|f| f.0));
        let known = known.chain(["where", "fma", "rounded", "compute", "given", "largest"]);
        let hint = nearest(word, known).map_or(String::new(), |n| format!("; did you mean `{n}`?"));
        self.error(at, format!("unknown function `{word}`{hint}"))
    }

    /// The value, with a number made a constant of `dtype`.
    fn typed(&mut self, v: Input, dtype: DType) -> Ref {
        match v {
            Input::Value(r) => r,
            Input::Number(n) => self.expr.constant(n.to_scalar(dtype)),
        }
    }

    fn cast(&mut self, to: DType, v: Input) -> Input {
        Input::Value(match v {
            Input::Value(r) => self.expr.cast(to, r),
            Input::Number(n) => self.expr.constant(n.to_scalar(to)),
        })
    }

    fn rounded(&mut self, v: Input) -> Input {
        let Settings { compute, storage } = self.settings;
        match v {
            Input::Number(n) if storage.is_float() => Input::Number(Number::Float(n.to_scalar(storage).to_f64())),
            Input::Value(r) if storage != compute && self.expr.dtype(r) == compute => {
                let r = self.expr.cast(storage, r);
                Input::Value(self.expr.cast(compute, r))
            }
            v => v,
        }
    }

    /// Two operands made one dtype.
    fn unify(&mut self, at: usize, x: Input, y: Input) -> Result<(Ref, Ref)> {
        use Input::*;
        match (x, y) {
            (Value(a), Number(n)) => {
                let a = self.beside_number(a, n);
                let d = self.expr.dtype(a);
                Ok((a, self.expr.constant(n.to_scalar(d))))
            }
            (Number(n), Value(b)) => {
                let b = self.beside_number(b, n);
                let d = self.expr.dtype(b);
                Ok((self.expr.constant(n.to_scalar(d)), b))
            }
            (Number(_), Number(_)) => {
                let d = self.settings.compute;
                Ok((self.typed(x, d), self.typed(y, d)))
            }
            (Value(a), Value(b)) => match (self.expr.dtype(a), self.expr.dtype(b)) {
                (c, d) if c == d => Ok((a, b)),
                (DType::B8, d) => Ok((self.expr.cast(d, a), b)),
                (d, DType::B8) => Ok((a, self.expr.cast(d, b))),
                (c, d) => self.error(at, format!("operands of {c} and {d}: convert one, as in `{c}(x)`")),
            },
        }
    }

    /// A b8 beside a number that is no bool becomes what the expression computes in.
    fn beside_number(&mut self, r: Ref, n: Number) -> Ref {
        match (self.expr.dtype(r), n) {
            (DType::B8, Number::Int(_) | Number::Float(_)) => self.expr.cast(self.settings.compute, r),
            _ => r,
        }
    }

    fn unary(&mut self, at: usize, op: Unary, v: Input) -> Result<Input> {
        let r = match v {
            Input::Number(n) => match fold_unary(op, n) {
                Some(n) => return Ok(Input::Number(n)),
                None => self.typed(v, self.settings.compute),
            },
            Input::Value(r) => r,
        };
        let d = self.expr.dtype(r);
        if !unary_defined(op, d.category()) {
            let name = format!("{op:?}").to_lowercase();
            return self.error(
                at,
                format!("`{name}` of {d} is not defined; convert it first, as in `f32(x)`"),
            );
        }
        Ok(Input::Value(self.expr.unary(op, r)))
    }

    fn binary(&mut self, at: usize, op: Binary, x: Input, y: Input) -> Result<Input> {
        if let (Input::Number(a), Input::Number(b)) = (x, y) {
            return match fold_binary(op, a, b) {
                Some(n) => Ok(Input::Number(n)),
                None => self.error(at, format!("`{}` of these numbers is not defined", name_of(op))),
            };
        }
        let (a, b) = self.unify(at, x, y)?;
        let d = self.expr.dtype(a);
        if !binary_defined(op, d.category()) {
            return self.error(at, format!("`{}` of {d} values is not defined", name_of(op)));
        }
        Ok(Input::Value(match (op, d) {
            (Binary::Fmax, DType::B8) => self.expr.binary(Binary::Max, a, b),
            (Binary::Fmin, DType::B8) => self.expr.binary(Binary::Min, a, b),
            // 0 ** 0 is 1.
            (Binary::Pow, DType::B8) => {
                let not = self.expr.unary(Unary::Not, b);
                self.expr.binary(Binary::Or, a, not)
            }
            _ => self.expr.binary(op, a, b),
        }))
    }

    fn compare(&mut self, at: usize, op: Compare, x: Input, y: Input) -> Result<Input> {
        if let (Input::Number(a), Input::Number(b)) = (x, y) {
            return Ok(Input::Number(Number::Bool(fold_compare(op, a, b))));
        }
        let (a, b) = self.unify(at, x, y)?;
        Ok(Input::Value(self.expr.compare(op, a, b)))
    }

    fn select(&mut self, at: usize, c: Input, x: Input, y: Input) -> Result<Input> {
        let c = match c {
            Input::Number(n) => return Ok(if n.is_true() { x } else { y }),
            Input::Value(r) => r,
        };
        if self.expr.dtype(c) != DType::B8 {
            let d = self.expr.dtype(c);
            return self.error(
                at,
                format!("the condition of `where` is {d}, not b8; compare it with something"),
            );
        }
        let (a, b) = self.unify(at, x, y)?;
        Ok(Input::Value(self.expr.select(c, a, b)))
    }

    fn fma(&mut self, at: usize, x: Input, y: Input, z: Input) -> Result<Input> {
        let (a, b) = self.unify(at, x, y)?;
        let (a, c) = self.unify(at, Input::Value(a), z)?;
        if self.expr.dtype(a) != self.expr.dtype(b) || self.expr.dtype(a) == DType::B8 {
            return self.error(at, "operands of `fma` must be numbers of one dtype");
        }
        Ok(Input::Value(self.expr.fma(a, b, c)))
    }
}

/// The largest finite number of a dtype.
fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::MAX,
        DType::F32 => f32::MAX as f64,
        DType::F16 => 65504.0,
        DType::BF16 => half::bf16::MAX.to_f64(),
        DType::B8 => 1.0,
        d => ((1i128 << (8 * d.size() - (d != DType::U8) as usize)) - 1) as f64,
    }
}

fn name_of(op: Binary) -> String {
    let infix = INFIX.iter().find(|(_, _, i)| matches!(i, Infix::Binary(b) if *b == op));
    infix.map_or_else(|| format!("{op:?}").to_lowercase(), |i| i.0.to_string())
}

fn fold_unary(op: Unary, n: Number) -> Option<Number> {
    match (op, n) {
        (Unary::Neg, Number::Int(i)) => Some(Number::Int(i.checked_neg()?)),
        (Unary::Abs, Number::Int(i)) => Some(Number::Int(i.checked_abs()?)),
        (Unary::BitNot, Number::Int(i)) => Some(Number::Int(!i)),
        (Unary::BitNot, Number::Bool(b)) => Some(Number::Bool(!b)),
        (Unary::IsNan, n) => Some(Number::Bool(n.to_f64().is_nan())),
        (Unary::IsInf, n) => Some(Number::Bool(n.to_f64().is_infinite())),
        (Unary::SignBit, n) => Some(Number::Bool(n.to_f64().is_sign_negative())),
        _ => f64_unary(op).map(|f| Number::Float(f(n.to_f64()))),
    }
}

fn fold_binary(op: Binary, a: Number, b: Number) -> Option<Number> {
    use Number::*;
    let exact = match (a, b) {
        (Bool(a), Bool(b)) => match op {
            Binary::And => Some(Bool(a && b)),
            Binary::Or => Some(Bool(a || b)),
            Binary::Xor => Some(Bool(a != b)),
            _ => None,
        },
        (Int(a), Int(b)) => fold_ints(op, a, b).map(Int),
        _ => None,
    };
    exact.or_else(|| f64_binary(op).map(|f| Float(f(a.to_f64(), b.to_f64()))))
}

/// Integer arithmetic that is exact and does not overflow; anything else is done in f64.
fn fold_ints(op: Binary, a: i64, b: i64) -> Option<i64> {
    match op {
        Binary::Add => a.checked_add(b),
        Binary::Sub => a.checked_sub(b),
        Binary::Mul => a.checked_mul(b),
        Binary::FloorDiv if b > 0 => Some(a.div_euclid(b)),
        Binary::Mod if b > 0 => Some(a.rem_euclid(b)),
        Binary::Pow => a.checked_pow(u32::try_from(b).ok()?),
        Binary::Max => Some(a.max(b)),
        Binary::Min => Some(a.min(b)),
        Binary::And => Some(a & b),
        Binary::Or => Some(a | b),
        Binary::Xor => Some(a ^ b),
        Binary::Shl if (0..63).contains(&b) => a.checked_mul(1 << b),
        Binary::Shr if (0..63).contains(&b) => Some(a >> b),
        _ => None,
    }
}

fn fold_compare(op: Compare, a: Number, b: Number) -> bool {
    let order = match (a, b) {
        (Number::Int(a), Number::Int(b)) => Some(a.cmp(&b)),
        _ => a.to_f64().partial_cmp(&b.to_f64()),
    };
    match op {
        Compare::Eq => order.is_some_and(|o| o.is_eq()),
        Compare::Ne => order.is_none_or(|o| o.is_ne()),
        Compare::Lt => order.is_some_and(|o| o.is_lt()),
        Compare::Le => order.is_some_and(|o| o.is_le()),
        Compare::Gt => order.is_some_and(|o| o.is_gt()),
        Compare::Ge => order.is_some_and(|o| o.is_ge()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalar::eval;

    fn run(text: &str, compute: DType, x: Scalar) -> Result<Scalar> {
        let mut e = Expr::new();
        let settings = Settings {
            compute,
            storage: compute,
        };
        let r = parse(text, settings, &mut e, &mut |name, e| match name {
            "x" => {
                let x = e.arg(0, x.dtype());
                Some(Input::Value(e.cast(compute, x)))
            }
            "k" => Some(Input::Number(Number::Int(3))),
            _ => None,
        })?;
        e.roots = vec![r];
        Ok(eval(&e, &[x], &[7, 5]).expect("evaluates")[0])
    }

    #[test]
    fn follows_python_s_precedence() {
        let f = |t: &str| run(t, DType::F64, Scalar::F64(2.0)).expect(t).to_f64();
        assert_eq!(f("-x ** 2"), -4.0);
        assert_eq!(f("x ** -1"), 0.5);
        assert_eq!(f("2 ** x ** 3"), 256.0);
        assert_eq!(f("1 - x - 3"), -4.0);
        assert_eq!(f("x * 3 // 4 + 7 % 4"), 4.0);
        assert_eq!(f("where((x > 1) | (x < 0), 10, 20)"), 10.0);
        assert_eq!(f("t = x * x; t / (1 + t)"), 0.8);
        assert_eq!(f("sqrt(k + 1) * min(x, 1e0)"), 2.0);
        assert_eq!(f("(x > 1) + 1"), 2.0);
        assert_eq!(f("compute(i0) + 10 * compute(i1)"), 75.0);
    }

    #[test]
    fn types_numbers_by_what_they_meet() {
        let got = run("x + 300", DType::U8, Scalar::Int(DType::U8, 1));
        assert_eq!(got, Ok(Scalar::Int(DType::U8, 45)));
        // 1 / 3 is folded in f64 and rounded once.
        assert_eq!(run("1 / 3", DType::F32, Scalar::F32(0.0)), Ok(Scalar::F32(1.0 / 3.0)));
        assert_eq!(
            run("x == 2", DType::I32, Scalar::Int(DType::I32, 2)),
            Ok(Scalar::Bool(true))
        );
    }

    #[test]
    fn shares_equal_parts() {
        let mut e = Expr::new();
        let settings = Settings {
            compute: DType::F32,
            storage: DType::F32,
        };
        parse("exp(a) / (1 + exp(a))", settings, &mut e, &mut |_, e| {
            Some(Input::Value(e.arg(0, DType::F32)))
        })
        .expect("parses");
        assert_eq!(e.len(), 5);
    }

    #[test]
    fn errors_are_values_with_offsets() {
        for (text, offset) in [
            ("", 0),
            ("x +", 3),
            ("x + yy", 4),
            ("sin(x", 5),
            ("sinn(x)", 0),
            ("x $ 1", 2),
            ("max(x)", 0),
            ("x < 1 < 2", 6),
            ("x & 1", 2),
            ("i0 + x", 3),
            ("sqrt(i0)", 0),
            ("where(x, 1, 2)", 0),
            ("1.2.3", 0),
            ("t = 1", 5),
            ("é", 0),
        ] {
            let e = run(text, DType::F32, Scalar::F32(1.0)).expect_err(text);
            assert_eq!(e.offset, offset, "{text}: {e}");
        }
        let deep = "(".repeat(100_000);
        assert!(run(&deep, DType::F32, Scalar::F32(1.0)).is_err());
        let long = format!("x{}", " + x".repeat(50_000));
        assert_eq!(run(&long, DType::F64, Scalar::F64(1.0)), Ok(Scalar::F64(50_001.0)));
    }
}
