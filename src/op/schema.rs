//! Parser of torch's schema strings: `gelu(Tensor self, *, str approximate='none') -> Tensor`.

use crate::types::{Val, write_float, write_str};
use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

/// The leaf type of values without leaves, as in defaults of schemas.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NoLeaf {}

/// A default value.
pub(crate) type Literal = Val<NoLeaf>;

/// The type of a parameter.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names are torch's")]
pub enum ParamType {
    Tensor,
    /// `int` or `SymInt`.
    Int,
    Float,
    /// torch's `Scalar`: a Python number.
    Number,
    Bool,
    Str,
    DType,
    Device,
    Layout,
    MemoryFormat,
    Generator,
    /// Any value (`getattr`, `getitem`, higher-order ops).
    Any,
    Optional(Box<ParamType>),
    /// A list. If it has a fixed length, a single item stands for that many copies.
    List(Box<ParamType>, Option<usize>),
}

/// One parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// Its name: `self`, `dim`.
    pub name: String,
    /// Its type.
    pub ty: ParamType,
    /// Its default, if it has one.
    pub default: Option<Literal>,
    /// Whether the parameter comes after the `*`.
    pub keyword_only: bool,
    /// Whether the op writes to it (`Tensor(a!)`).
    pub mutated: bool,
    /// Whether the type is `SymInt`, alone or in a list. torch allows symbolic values for it, and accepts other values
    /// than for an `int`.
    pub symbolic: bool,
}

/// A schema.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    /// The op's name as in the schema, with the overload if there is one.
    pub name: String,
    /// Parameters in order.
    pub params: Vec<Param>,
    /// The number of results; a list counts as one.
    pub results: usize,
}

impl Schema {
    /// Parses a schema of the op table. These are part of the program, so an invalid one is a bug and panics (a test
    /// parses all).
    pub fn parse(text: &str) -> Schema {
        Schema::try_parse(text).unwrap_or_else(|problem| panic!("schema {text:?}: {problem}"))
    }

    /// Parses a schema that a user wrote.
    pub fn try_parse(text: &str) -> Result<Schema, String> {
        SchemaParser { text, rest: text }.parse_schema()
    }

    /// The position of the parameter `name`.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.params.iter().position(|p| p.name == name)
    }
}

/// A row's schema, parsed on first use. A run uses few of the table's rows.
#[derive(Clone, Debug)]
pub struct LazySchema {
    text: &'static str,
    /// A name that replaces the one in the text: rows that share a text have different names.
    name: Option<&'static str>,
    parsed: OnceLock<Schema>,
}

impl LazySchema {
    /// A schema of the table, by its text.
    pub(super) fn new(text: &'static str) -> LazySchema {
        LazySchema {
            text,
            name: None,
            parsed: OnceLock::new(),
        }
    }

    /// The schema under another name.
    pub(super) fn with_name(mut self, name: &'static str) -> LazySchema {
        self.name = Some(name);
        self
    }
}

impl From<Schema> for LazySchema {
    fn from(schema: Schema) -> LazySchema {
        LazySchema {
            text: "",
            name: None,
            parsed: OnceLock::from(schema),
        }
    }
}

impl Deref for LazySchema {
    type Target = Schema;

    fn deref(&self) -> &Schema {
        self.parsed.get_or_init(|| {
            let mut schema = Schema::parse(self.text);
            if let Some(name) = self.name {
                schema.name = name.to_string();
            }
            schema
        })
    }
}

/// Parses a Python literal as in schemas and module forms.
pub(super) fn parse_literal(text: &str) -> Result<Literal, String> {
    let mut p = SchemaParser { text, rest: text };
    let v = p.parse_literal()?;
    match p.rest.trim() {
        "" => Ok(v),
        rest => Err(format!("unexpected {rest:?}")),
    }
}

struct SchemaParser<'a> {
    text: &'a str,
    rest: &'a str,
}

impl<'a> SchemaParser<'a> {
    fn eat(&mut self, token: &str) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(token) {
            Some(r) => {
                self.rest = r;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.eat(token) {
            Ok(())
        } else {
            Err(format!("expected {token:?} before {:?}", self.rest))
        }
    }

    fn parse_word(&mut self) -> Result<&'a str, String> {
        self.rest = self.rest.trim_start();
        let end = self
            .rest
            .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'))
            .unwrap_or(self.rest.len());
        if end == 0 {
            return Err(format!("expected a name before {:?} in {:?}", self.rest, self.text));
        }
        let (w, r) = self.rest.split_at(end);
        self.rest = r;
        Ok(w)
    }

    fn parse_schema(mut self) -> Result<Schema, String> {
        let name = self.parse_word()?.to_string();
        self.expect("(")?;
        let mut params = vec![];
        let mut keyword_only = false;
        while !self.eat(")") {
            if !params.is_empty() || keyword_only {
                self.expect(",")?;
            }
            if self.eat("*") {
                keyword_only = true;
                continue;
            }
            params.push(self.parse_param(keyword_only)?);
        }
        self.expect("->")?;
        let results = if self.eat("(") {
            let inner = self.rest.trim_end().strip_suffix(')').ok_or("unclosed results")?;
            if inner.trim().is_empty() {
                0
            } else {
                inner.split(',').count()
            }
        } else {
            1
        };
        Ok(Schema { name, params, results })
    }

    fn parse_param(&mut self, keyword_only: bool) -> Result<Param, String> {
        self.rest = self.rest.trim_start();
        let symbolic = self.rest.starts_with("SymInt");
        let (ty, mutated) = self.param_type()?;
        let name = self.parse_word()?.to_string();
        let default = if self.eat("=") {
            Some(self.parse_literal()?)
        } else {
            None
        };
        Ok(Param {
            name,
            ty,
            default,
            keyword_only,
            mutated,
            symbolic,
        })
    }

    fn param_type(&mut self) -> Result<(ParamType, bool), String> {
        let word = self.parse_word()?;
        let mut ty = match word {
            "Tensor" => ParamType::Tensor,
            "int" | "SymInt" => ParamType::Int,
            "float" => ParamType::Float,
            "Scalar" => ParamType::Number,
            "bool" => ParamType::Bool,
            "str" => ParamType::Str,
            "ScalarType" => ParamType::DType,
            "Device" => ParamType::Device,
            "Layout" => ParamType::Layout,
            "MemoryFormat" => ParamType::MemoryFormat,
            "Generator" => ParamType::Generator,
            "Any" => ParamType::Any,
            _ => return Err(format!("unknown type {word:?}")),
        };
        let mut mutated = false;
        if self.eat("(") {
            let end = self.rest.find(')').ok_or("unclosed alias set")?;
            mutated = self.rest[..end].contains('!');
            self.rest = &self.rest[end + 1..];
        }
        loop {
            if self.rest.starts_with('?') {
                self.rest = &self.rest[1..];
                ty = ParamType::Optional(Box::new(ty));
            } else if self.rest.starts_with('[') {
                let end = self.rest.find(']').ok_or("unclosed list type")?;
                let len = self.rest[1..end].parse().ok();
                self.rest = &self.rest[end + 1..];
                ty = ParamType::List(Box::new(ty), len);
            } else {
                return Ok((ty, mutated));
            }
        }
    }

    fn parse_literal(&mut self) -> Result<Literal, String> {
        self.rest = self.rest.trim_start();
        if self.eat("[") {
            let mut items = vec![];
            while !self.eat("]") {
                if !items.is_empty() {
                    self.expect(",")?;
                }
                items.push(self.parse_literal()?);
            }
            return Ok(Val::List(items));
        }
        for quote in ['\'', '"'] {
            if let Some(r) = self.rest.strip_prefix(quote) {
                let end = r.find(quote).ok_or("unclosed string")?;
                self.rest = &r[end + 1..];
                return Ok(Val::str(&r[..end]));
            }
        }
        let end = self.rest.find([',', ')', ']']).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        Ok(match word.trim() {
            "None" => Val::None,
            "True" => Val::Bool(true),
            "False" => Val::Bool(false),
            "inf" => Val::Float(f64::INFINITY),
            w @ ("contiguous_format" | "preserve_format" | "strided") => Val::TorchName(w.into()),
            w => match w.parse::<i64>() {
                Ok(i) => Val::int(i),
                Err(_) => Val::Float(w.parse().map_err(|_| format!("bad default {w:?}"))?),
            },
        })
    }
}

impl fmt::Display for ParamType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamType::Tensor => f.write_str("Tensor"),
            ParamType::Int => f.write_str("int"),
            ParamType::Float => f.write_str("float"),
            ParamType::Number => f.write_str("number"),
            ParamType::Bool => f.write_str("bool"),
            ParamType::Str => f.write_str("str"),
            ParamType::DType => f.write_str("dtype"),
            ParamType::Device => f.write_str("device"),
            ParamType::Layout => f.write_str("layout"),
            ParamType::MemoryFormat => f.write_str("memory format"),
            ParamType::Generator => f.write_str("generator"),
            ParamType::Any => f.write_str("value"),
            ParamType::Optional(t) => write!(f, "{t}?"),
            ParamType::List(t, None) => write!(f, "{t}[]"),
            ParamType::List(t, Some(n)) => write!(f, "{t}[{n}]"),
        }
    }
}

/// A literal in the syntax of schemas and FXIR.
pub(crate) fn write_literal(v: &Literal) -> String {
    match v {
        Val::None => "None".into(),
        Val::Bool(b) => if *b { "True" } else { "False" }.into(),
        Val::Int(d) => d.to_string(),
        Val::Float(x) => write_float(*x),
        Val::Str(s) => write_str(s),
        Val::TorchName(s) => format!("torch.{s}"),
        Val::List(v) => format!("[{}]", v.iter().map(write_literal).collect::<Vec<_>>().join(", ")),
        _ => v.kind_name().into(),
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name, ParamList(&self.params))
    }
}

impl fmt::Display for LazySchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// The parameters of a schema in schema syntax: `(Tensor self, *, number alpha=1)`.
pub(crate) struct ParamList<'a>(pub &'a [Param]);

impl fmt::Display for ParamList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(")?;
        let mut star = false;
        for (i, p) in self.0.iter().enumerate() {
            f.write_str(if i > 0 { ", " } else { "" })?;
            if p.keyword_only && !star {
                star = true;
                f.write_str("*, ")?;
            }
            write!(f, "{} {}", p.ty, p.name)?;
            if let Some(d) = &p.default {
                write!(f, "={}", write_literal(d))?;
            }
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_torch_schemas() {
        let s = Schema::parse(
            "conv2d.padding(Tensor input, Tensor? bias=None, SymInt[2] stride=1, str padding='valid', Scalar x=1e-05, *, \
             ScalarType? dtype=None, Tensor(a!) out) -> (Tensor, Tensor)",
        );
        assert_eq!(s.params.len(), 7);
        assert_eq!(s.results, 2);
        assert_eq!(s.params[2].ty, ParamType::List(Box::new(ParamType::Int), Some(2)));
        assert_eq!(s.params[4].default, Some(Val::Float(1e-5)));
        assert!(s.params[5].keyword_only && s.params[6].mutated && !s.params[4].keyword_only);
    }
}
