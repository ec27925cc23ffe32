//! Writes parts of the tree as canonical text: a statement, type or value on one line.

use super::ast::*;
use super::token::RESERVED;
use crate::types::{write_complex, write_float, write_str};
use std::fmt::{self, Display, Formatter, Write};

/// Whether `s` lexes as one identifier.
pub(crate) fn is_identifier(s: &str) -> bool {
    !s.is_empty()
        && !s.starts_with(|c: char| c.is_ascii_digit())
        && s.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Whether `s` lexes as an identifier or a dotted path, and is not an operator.
fn is_path(s: &str) -> bool {
    let mut parts = s.split('.');
    let word = |p: &str| !p.is_empty() && p.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    parts.next().is_some_and(is_identifier) && parts.all(word) && !RESERVED.contains(&s)
}

/// Writes a target, or the name of a declaration: bare if it lexes as a path, else as a string.
pub(crate) fn write_label(s: &str) -> String {
    if is_path(s) { s.to_string() } else { write_str(s) }
}

/// Writes a placeholder's target, which may begin with `*` or `**`.
fn write_parameter(s: &str) -> String {
    let stars = s.len() - s.trim_start_matches('*').len();
    let rest = &s[stars..];
    if (1..=2).contains(&stars) && is_identifier(rest) && !RESERVED.contains(&rest) {
        s.to_string()
    } else {
        write_label(s)
    }
}

fn write_keyword(s: &str) -> String {
    if is_identifier(s) && !RESERVED.contains(&s) {
        s.to_string()
    } else {
        write_str(s)
    }
}

fn write_list<T>(
    f: &mut Formatter<'_>,
    items: &[T],
    mut put: impl FnMut(&mut Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (i, x) in items.iter().enumerate() {
        f.write_str(if i > 0 { ", " } else { "" })?;
        put(f, x)?;
    }
    Ok(())
}

fn write_tuple<T: Display>(f: &mut Formatter<'_>, items: &[T]) -> fmt::Result {
    f.write_char('(')?;
    write_list(f, items, |f, x| x.fmt(f))?;
    f.write_str(if items.len() == 1 { ",)" } else { ")" })
}

impl Display for Args {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('(')?;
        write_list(f, &self.positional, |f, x| x.fmt(f))?;
        if !self.positional.is_empty() && !self.keyword.is_empty() {
            f.write_str(", ")?;
        }
        write_list(f, &self.keyword, |f, (k, v)| {
            write!(f, "{}={v}", write_keyword(&k.text))
        })?;
        f.write_char(')')
    }
}

impl Display for Loc {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", write_str(&self.file), self.line)?;
        if let Some(name) = &self.function {
            write!(f, " in {}", write_label(name))?;
        }
        self.code.iter().try_for_each(|c| write!(f, " {}", write_str(c)))
    }
}

impl Display for Origin {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut parts = vec![];
        parts.extend(self.frame.iter().map(|n| format!("frame={}", n.text)));
        parts.extend(self.scope.iter().map(|n| format!("scope={}", n.text)));
        let call = self.call.iter();
        parts.extend(call.map(|(a, b)| format!("call=({}, {})", write_str(a), write_str(b))));
        if !self.custom.is_empty() {
            let pairs = self
                .custom
                .iter()
                .map(|(k, v)| format!("{}: {}", write_str(k), write_str(v)));
            parts.push(format!("custom={{{}}}", pairs.collect::<Vec<_>>().join(", ")));
        }
        f.write_str(&parts.join(", "))
    }
}

impl Display for FrameDecl {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "frame {} = ", self.name.text)?;
        self.parent.iter().try_for_each(|p| write!(f, "{} > ", p.text))?;
        self.place.fmt(f)
    }
}

impl Display for ScopeDecl {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "scope {} = ", self.name.text)?;
        self.parent.iter().try_for_each(|p| write!(f, "{} > ", p.text))?;
        write!(
            f,
            "{} : {}",
            write_label(&self.path.text),
            write_label(&self.class.text)
        )
    }
}

impl Display for Spec {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = self.name.as_ref().map_or("", |n| &n.text);
        write!(f, "{} : {}", write_label(name), self.kind.text)?;
        self.target.iter().try_for_each(|t| write!(f, " {}", write_label(t)))?;
        f.write_str(match self.persistent {
            Some(true) => " persistent",
            Some(false) => " non_persistent",
            None => "",
        })
    }
}

/// Has one line per entry: a program may have hundreds of inputs.
impl Display for Signature {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let block = |f: &mut Formatter<'_>, output: bool| {
            f.write_char('(')?;
            let mut specs = self.specs.iter().filter(|s| s.is_output() == output).peekable();
            let end = if specs.peek().is_some() { "\n)" } else { ")" };
            specs.try_for_each(|s| write!(f, "\n    {s},"))?;
            f.write_str(end)
        };
        f.write_str("signature ")?;
        block(f, false)?;
        f.write_str(" => ")?;
        block(f, true)?;
        if !self.ranges.is_empty() {
            let ranges = self
                .ranges
                .iter()
                .map(|(n, r)| format!("{} = {}", write_label(n), write_str(r)));
            write!(f, " where ({})", ranges.collect::<Vec<_>>().join(", "))?;
        }
        Ok(())
    }
}

impl Display for Op {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Op::Placeholder { target, default } => {
                write!(f, "placeholder {}", write_parameter(&target.text))?;
                default.iter().try_for_each(|v| write!(f, " = {v}"))
            }
            Op::GetAttr { target } => write!(f, "get_attr {}", write_label(&target.text)),
            Op::Call { kind, target, args } => write!(f, "{} {}{args}", kind.opcode(), write_label(&target.text)),
            Op::Output { value } => write!(f, "output {value}"),
        }
    }
}

impl Display for Stmt {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "%{}", name.text)?;
            self.ty.iter().try_for_each(|t| write!(f, " : {t}"))?;
            f.write_str(" = ")?;
        }
        self.op.fmt(f)?;
        match (&self.loc, &self.origin) {
            (Some(l), Some(o)) => write!(f, "  loc({l}, {o})"),
            (Some(l), None) => write!(f, "  loc({l})"),
            (None, Some(o)) => write!(f, "  loc({o})"),
            (None, None) => Ok(()),
        }
    }
}

impl Display for Type {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.kind {
            TypeKind::Tensor { dtype, shape } => {
                write!(f, "{}[", dtype.text)?;
                match shape {
                    None => f.write_char('*')?,
                    Some(s) => write_list(f, s, |f, x| x.fmt(f))?,
                }
                f.write_char(']')
            }
            TypeKind::Word(w) => f.write_str(w),
            kind @ (TypeKind::Python(_) | TypeKind::OptionalTensor) => {
                f.write_str(&write_str(&kind.annotation().unwrap_or_default()))
            }
            TypeKind::Size(_) => f.write_str("int"),
            TypeKind::Unknown => f.write_char('?'),
            TypeKind::Tuple(v) => write_tuple(f, v),
            TypeKind::List(v) => {
                f.write_char('[')?;
                write_list(f, v, |f, x| x.fmt(f))?;
                f.write_char(']')
            }
            TypeKind::Dict(v) => {
                f.write_char('{')?;
                write_list(f, v, |f, (k, t)| write!(f, "{k}: {t}"))?;
                f.write_char('}')
            }
        }
    }
}

/// The precedence of a value. An operand in a context of higher precedence needs parentheses.
fn precedence(v: &Value) -> u8 {
    use BinaryOp::*;
    match &v.kind {
        ValueKind::Binary(Or, ..) => 1,
        ValueKind::Binary(And, ..) => 2,
        ValueKind::Unary(UnaryOp::Not, _) => 3,
        ValueKind::Binary(Eq | Ne | Lt | Le | Gt | Ge | In | NotIn, ..) => 4,
        ValueKind::Binary(Add | Sub, ..) => 5,
        ValueKind::Binary(Mul | Div | FloorDiv | Mod, ..) => 6,
        ValueKind::Unary(UnaryOp::Neg, _) | ValueKind::Int(..0) => 7,
        ValueKind::Float(x) if x.is_sign_negative() => 7,
        ValueKind::Binary(Pow, ..) => 8,
        _ => 9,
    }
}

struct ParenthesizedOperand<'a>(&'a Value, u8);

impl Display for ParenthesizedOperand<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match precedence(self.0) < self.1 {
            true => write!(f, "({})", self.0),
            false => self.0.fmt(f),
        }
    }
}

fn write_binary(f: &mut Formatter<'_>, op: BinaryOp, v: &Value, a: &Value, b: &Value) -> fmt::Result {
    use BinaryOp::*;
    let p = precedence(v);
    let (left, right) = match op {
        // Comparisons do not chain.
        Eq | Ne | Lt | Le | Gt | Ge | In | NotIn => (p + 1, p + 1),
        // As in Python: `-a**-b**c` is `-(a**(-(b**c)))`.
        Pow => (p + 1, 7),
        _ => (p, p + 1),
    };
    let space = if matches!(op, Mul | Pow) { "" } else { " " };
    write!(
        f,
        "{}{space}{}{space}{}",
        ParenthesizedOperand(a, left),
        op.symbol(),
        ParenthesizedOperand(b, right)
    )
}

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ValueKind::Node(n) => write!(f, "%{n}"),
            ValueKind::Graph(n) => write!(f, "@{n}"),
            ValueKind::Literal(n) => write!(f, "${n}"),
            ValueKind::Rest(n) => write!(f, "*%{n}"),
            ValueKind::None => f.write_str("None"),
            ValueKind::Bool(b) => f.write_str(if *b { "True" } else { "False" }),
            ValueKind::Ellipsis => f.write_str("Ellipsis"),
            ValueKind::Int(i) => write!(f, "{i}"),
            ValueKind::Float(x) => f.write_str(&write_float(*x)),
            ValueKind::Complex(re, im) => f.write_str(&write_complex(*re, *im)),
            ValueKind::Str(s) => f.write_str(&write_str(s)),
            ValueKind::Name(n) => f.write_str(n),
            ValueKind::Device(d) => write!(f, "device({})", write_str(d)),
            ValueKind::Opaque(s) => write!(f, "opaque({})", write_str(s)),
            ValueKind::Unknown => f.write_char('?'),
            ValueKind::List(v) => {
                f.write_char('[')?;
                write_list(f, v, |f, x| x.fmt(f))?;
                f.write_char(']')
            }
            ValueKind::Tuple(v) => write_tuple(f, v),
            ValueKind::Dict(v) => {
                f.write_char('{')?;
                write_list(f, v, |f, (k, x)| write!(f, "{k}: {x}"))?;
                f.write_char('}')
            }
            ValueKind::Slice(v) => write!(f, "slice({}, {}, {})", v[0], v[1], v[2]),
            ValueKind::Range(v) => write!(f, "range({}, {}, {})", v[0], v[1], v[2]),
            ValueKind::Unary(UnaryOp::Neg, a) => write!(f, "-{}", ParenthesizedOperand(a, 7)),
            ValueKind::Unary(UnaryOp::Not, a) => write!(f, "not {}", ParenthesizedOperand(a, 3)),
            ValueKind::Binary(op, a, b) => write_binary(f, *op, self, a, b),
            ValueKind::Call(name, args) => write!(f, "{}{args}", name.text),
            ValueKind::Bound(b) => write_bound(f, b),
        }
    }
}

/// Writes `%name : type = value`, as in a rule of one line.
fn write_bound(f: &mut Formatter<'_>, b: &Binding) -> fmt::Result {
    write!(f, "%{}", b.name.text)?;
    b.ty.iter().try_for_each(|t| write!(f, " : {t}"))?;
    b.value.iter().try_for_each(|v| write!(f, " = {v}"))
}
