//! The actions of the FXIR grammar. They build the syntax tree, and report mistakes that the grammar accepts in order
//! to give them a better message.

mod calls;
mod mistakes;

pub(super) use self::calls::is_value_call;
use super::ast::*;
use super::errors;
use super::token::Token;
use crate::diag::{Code, Diagnostic};
use crate::source::{FileId, Span};
use lalrpop_util::ErrorRecovery;
use std::sync::Arc;

/// The state of the parser: the file, and the errors found so far.
pub(super) struct FxirContext {
    /// The file being parsed.
    pub file: FileId,
    /// The errors, in the order in which they were found.
    pub errors: Vec<Diagnostic>,
}

/// One argument of a call, before positional and keyword arguments are separated.
pub(super) enum Arg {
    /// `value`
    Positional(Value),
    /// `name=value`
    Keyword(Name, Value),
}

/// The opcodes of statements.
pub(super) const OPCODES: [&str; 6] = [
    "placeholder",
    "get_attr",
    "call_function",
    "call_method",
    "call_module",
    "output",
];

/// Makes a statement that was not printed by torch.
pub(super) fn make_stmt(name: Option<Name>, ty: Option<Type>, op: Op, loc: Option<Loc>, span: Span) -> Stmt {
    Stmt {
        name,
        ty,
        op,
        loc,
        origin: None,
        torch: None,
        span,
    }
}

/// The content of `loc(…)`: the line, and the rest of the origin.
pub(super) type Traced = (Option<Loc>, Option<Box<Origin>>);

/// Makes a statement of FXIR.
pub(super) fn stmt_from(name: Option<Name>, ty: Option<Type>, op: Op, loc: Option<Traced>, span: Span) -> Stmt {
    let (loc, origin) = loc.unwrap_or_default();
    Stmt {
        origin,
        ..make_stmt(name, ty, op, loc, span)
    }
}

/// The signature of an exported program.
pub(super) fn signature(
    inputs: Vec<Spec>,
    outputs: Vec<Spec>,
    ranges: Option<Vec<(Arc<str>, Arc<str>)>>,
    span: Span,
) -> Item {
    Item::Signature(Signature {
        specs: inputs.into_iter().chain(outputs).collect(),
        ranges: ranges.unwrap_or_default(),
        span,
    })
}

/// Makes a graph of FXIR.
pub(super) fn graph(
    name: Name,
    attribute: Option<Name>,
    updates: Option<Vec<Update>>,
    called: Option<Called>,
    body: Body,
    span: Span,
) -> Item {
    Item::Graph(Graph {
        name: Some(name),
        attribute,
        updates: updates.unwrap_or_default(),
        called,
        body,
        dialect: Dialect::Fxir,
        signature: None,
        span,
    })
}

/// Makes a rewrite rule; a one-line rule has no parameter list.
pub(super) fn rewrite(
    mark: Option<RewriteMark>,
    name: Name,
    params: Option<Vec<RewriteParam>>,
    pattern: Body,
    replacement: Body,
    condition: Option<Value>,
    span: Span,
) -> Item {
    Item::Rewrite(Rewrite {
        mark,
        name,
        one_line: params.is_none(),
        params: params.unwrap_or_default(),
        pattern,
        replacement,
        condition,
        span,
    })
}

/// Makes one side of a one-line rule.
pub(super) fn side(value: Value) -> Body {
    let Span { file, start, end } = value.span;
    Body {
        open: Span {
            file,
            start,
            end: start,
        },
        close: Span { file, start: end, end },
        stmts: vec![make_stmt(
            None,
            None,
            Op::Output { value },
            None,
            Span { file, start, end },
        )],
        broken: vec![],
    }
}

/// `%n : f32[2] = relu(%x)` inside a one-line rule.
pub(super) fn binding(name: Name, ty: Option<Type>, value: Option<Value>, span: Span) -> Value {
    Value::new(ValueKind::Bound(Box::new(Binding { name, ty, value })), span)
}

/// Makes a type with its span.
pub(super) fn ty(kind: TypeKind, span: Span) -> Type {
    Type { kind, span }
}

/// Prepends `head` to `rest`.
pub(super) fn cons<T>(head: T, mut rest: Vec<T>) -> Vec<T> {
    rest.insert(0, head);
    rest
}

/// `a op b`.
pub(super) fn binary(op: BinaryOp, a: Value, b: Value) -> Value {
    let span = a.span.to(b.span);
    Value::new(ValueKind::Binary(op, Box::new(a), Box::new(b)), span)
}

/// `a + b` or `a - b`, which is a complex literal if `a` is real and `b` is imaginary.
pub(super) fn sum(op: BinaryOp, a: Value, b: Value) -> Value {
    if let ValueKind::Complex(0.0, im) = b.kind
        && let Some(re) = real_part(&a)
    {
        let im = if op == BinaryOp::Sub { -im } else { im };
        return Value::new(ValueKind::Complex(re, im), a.span.to(b.span));
    }
    binary(op, a, b)
}

/// The real part of a complex literal, if `a` can be one. Python prints a real part of minus zero as `-0`.
fn real_part(a: &Value) -> Option<f64> {
    match &a.kind {
        ValueKind::Int(i) => Some(*i as f64),
        ValueKind::Float(x) => Some(*x),
        ValueKind::Unary(UnaryOp::Neg, v) if matches!(v.kind, ValueKind::Int(0)) => Some(-0.0),
        _ => None,
    }
}

/// `-v`: a negative literal, or a negation. `-0` stays a negation, because `(-0+1j)` has the real part minus zero.
pub(super) fn negate(v: Value, span: Span) -> Value {
    let kind = match v.kind {
        ValueKind::Int(i) if i != 0 && i != i64::MIN => ValueKind::Int(-i),
        ValueKind::Float(x) => ValueKind::Float(-x),
        ValueKind::Complex(0.0, im) => ValueKind::Complex(0.0, -im),
        kind => ValueKind::Unary(UnaryOp::Neg, Box::new(Value::new(kind, v.span))),
    };
    Value::new(kind, span)
}

/// A bare word as a value: one of Python's constants, or a name.
pub(super) fn word(text: &str, span: Span) -> Value {
    let kind = match text {
        "None" => ValueKind::None,
        "True" => ValueKind::Bool(true),
        "False" => ValueKind::Bool(false),
        "Ellipsis" => ValueKind::Ellipsis,
        "inf" => ValueKind::Float(f64::INFINITY),
        "nan" => ValueKind::Float(f64::NAN),
        "infj" => ValueKind::Complex(0.0, f64::INFINITY),
        "nanj" => ValueKind::Complex(0.0, f64::NAN),
        _ => ValueKind::Name(text.into()),
    };
    Value::new(kind, span)
}

impl FxirContext {
    /// The span of bytes `l..r`.
    pub(super) fn span(&self, l: usize, r: usize) -> Span {
        Span::new(self.file, l, r)
    }

    /// A name at bytes `l..r`.
    pub(super) fn name(&self, text: &str, l: usize, r: usize) -> Name {
        Name::new(text, self.span(l, r))
    }

    /// A value at bytes `l..r`.
    pub(super) fn value(&self, kind: ValueKind, l: usize, r: usize) -> Value {
        Value::new(kind, self.span(l, r))
    }

    /// Reports a syntax error that the parser recovered from.
    pub(super) fn recovered(&mut self, e: ErrorRecovery<usize, Token<'_>, ()>) {
        let d = errors::unexpected_token(self.file, e.error);
        self.errors.push(d);
    }

    /// Separates positional and keyword arguments. Reports a positional argument after a keyword argument.
    pub(super) fn args(&mut self, list: Vec<Arg>) -> Args {
        let mut args = Args::default();
        let mut said = false;
        for a in list {
            match a {
                Arg::Keyword(k, v) => args.keyword.push((k, v)),
                Arg::Positional(v) => {
                    if let Some((k, _)) = args.keyword.last().filter(|_| !said) {
                        said = true;
                        let d = Diagnostic::new(Code::E0014, "positional argument after a keyword argument")
                            .at(v.span, "this argument is positional")
                            .see(k.span, "keyword arguments begin here")
                            .help("move it before the keyword arguments, or write `name=` before it");
                        self.errors.push(d);
                    }
                    args.positional.push(v);
                }
            }
        }
        args
    }

    /// `"file":line in function "code"`.
    pub(super) fn loc(
        &mut self,
        file: Arc<str>,
        line: i64,
        function: Option<Name>,
        code: Option<Arc<str>>,
        l: usize,
        r: usize,
    ) -> Loc {
        let span = self.span(l, r);
        let line = u32::try_from(line).unwrap_or_else(|_| {
            let d = Diagnostic::new(Code::E0005, format!("invalid line number {line}"))
                .at(span, "a line number must fit in 32 bits");
            self.errors.push(d);
            0
        });
        Loc {
            file,
            line,
            function: function.map(|n| n.text),
            code,
            span,
        }
    }

    /// `frame=f1, scope=s1, call=("conv2d_1", "function.conv2d"), custom={"stage": "one"}` after a line.
    pub(super) fn origin(&mut self, parts: Vec<(Name, Value)>, l: usize, r: usize) -> Option<Box<Origin>> {
        let mut origin = Origin::default();
        for (key, value) in parts {
            let span = value.span;
            let known = match (&*key.text, value.kind) {
                ("frame", ValueKind::Name(n)) => origin.frame.replace(Name::new(n, span)).is_none(),
                ("scope", ValueKind::Name(n)) => origin.scope.replace(Name::new(n, span)).is_none(),
                ("call", ValueKind::Tuple(v)) => match &v[..] {
                    [a, b] => string_pair(a, b).is_some_and(|p| origin.call.replace(p).is_none()),
                    _ => false,
                },
                ("custom", ValueKind::Dict(v)) => {
                    let pairs: Option<Vec<_>> = v.iter().map(|(k, v)| string_pair(k, v)).collect();
                    origin.custom.extend(pairs.iter().flatten().cloned());
                    pairs.is_some()
                }
                _ => false,
            };
            if !known {
                let d = Diagnostic::new(Code::E0012, format!("invalid source location `{}`", key.text));
                let usage = "write `frame=NAME`, `scope=NAME`, `call=(\"name\", \"function\")` or `custom={\"key\": \"text\"}`, each once";
                self.errors
                    .push(d.at(key.span, "unknown key or invalid value").help(usage));
            }
        }
        let said =
            origin.frame.is_some() || origin.scope.is_some() || origin.call.is_some() || !origin.custom.is_empty();
        if !said && self.errors.is_empty() {
            let d = Diagnostic::new(Code::E0012, "empty source location");
            self.errors.push(
                d.at(self.span(l, r), "no line, frame or module is given")
                    .help("remove it"),
            );
        }
        said.then(|| Box::new(origin))
    }

    /// A line of a signature: `b_mean : BUFFER bn.mean persistent`.
    pub(super) fn spec(&mut self, name: Name, kind: Name, target: Option<(Name, Option<Name>)>) -> Spec {
        let (target, word) = match target {
            Some((t, word)) => (Some(t.text), word),
            None => (None, None),
        };
        let persistent = word.and_then(|w| match &*w.text {
            "persistent" => Some(true),
            "non_persistent" => Some(false),
            _ => {
                let d = Diagnostic::new(Code::E0012, format!("unknown buffer attribute `{}`", w.text));
                self.errors.push(
                    d.at(w.span, "unknown key or invalid value")
                        .help("write `persistent` or `non_persistent`"),
                );
                None
            }
        });
        Spec {
            name: (!name.text.is_empty()).then_some(name),
            kind,
            target,
            persistent,
        }
    }
}

/// Returns the texts of two string values.
fn string_pair(a: &Value, b: &Value) -> Option<(Arc<str>, Arc<str>)> {
    match (&a.kind, &b.kind) {
        (ValueKind::Str(a), ValueKind::Str(b)) => Some((a.clone(), b.clone())),
        _ => None,
    }
}
