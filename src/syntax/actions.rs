//! The actions of the FXIR grammar. They build the syntax tree, and report mistakes that the grammar accepts in order
//! to give them a better message.

use super::ast::*;
use super::errors;
use super::token::Token;
use crate::diag::{Code, Diagnostic, nearest};
use crate::source::{FileId, Span};
use lalrpop_util::ErrorRecovery;
use std::sync::Arc;

/// The state of the parser: the file, and the errors found so far.
pub(super) struct Cx {
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

impl Cx {
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
            let at = value.span;
            let known = match (&*key.text, value.kind) {
                ("frame", ValueKind::Name(n)) => origin.frame.replace(Name::new(n, at)).is_none(),
                ("scope", ValueKind::Name(n)) => origin.scope.replace(Name::new(n, at)).is_none(),
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

    /// Reports `x = …` without `%`, which means `%x = …`.
    pub(super) fn missing_percent(&mut self, name: &str, l: usize, r: usize) -> Name {
        let span = self.span(l, r);
        let d = Diagnostic::new(Code::E0009, format!("`%` is missing before the node `{name}`"))
            .at(span, "a node's name begins with `%`")
            .fix(
                Span {
                    end: span.start,
                    ..span
                },
                "%",
                "write the name with `%`",
            );
        self.errors.push(d);
        Name::new(name, span)
    }

    /// Reports `%y = relu(%x)`, without an opcode.
    pub(super) fn missing_opcode(&mut self, name: &str, args: Args, l: usize, r: usize) -> Option<Op> {
        let span = self.span(l, r);
        if nearest(name, OPCODES).is_some() {
            self.unknown_opcode(name, None, None, l, r);
            return None;
        }
        let d = Diagnostic::new(Code::E0010, format!("an opcode is missing before `{name}`"))
            .at(span, "expected an opcode before the target")
            .help("use call_function, call_method or call_module")
            .fix(span, format!("call_function {name}"), "to call a function");
        self.errors.push(d);
        let (kind, target) = (CallKind::Function, Name::new(name, span));
        Some(Op::Call { kind, target, args })
    }

    /// Reports the unknown opcode in `%y = call_fn relu(%x)`.
    pub(super) fn unknown_opcode(
        &mut self,
        name: &str,
        target: Option<Name>,
        args: Option<Args>,
        l: usize,
        r: usize,
    ) -> Option<Op> {
        let span = self.span(l, r);
        let mut d = Diagnostic::new(Code::E0010, format!("unknown opcode `{name}`"))
            .at(span, "not one of torch.fx's six opcodes")
            .help(format!("the opcodes are {}", OPCODES.join(", ")));
        let near = match name {
            "call" | "call_func" | "invoke" | "apply" => Some("call_function"),
            _ => nearest(name, OPCODES),
        };
        if let Some(near) = near {
            d = d.suggest(span, near, "there is an opcode with a similar name");
        }
        self.errors.push(d);
        let kind = match near? {
            "call_function" => CallKind::Function,
            "call_method" => CallKind::Method,
            "call_module" => CallKind::Module,
            _ => return None,
        };
        let (target, args) = (target?, args?);
        Some(Op::Call { kind, target, args })
    }

    /// `(v)`: parenthesised arithmetic, or a tuple without its comma.
    pub(super) fn in_parens(&mut self, v: Value, l: usize, r: usize) -> Value {
        let span = self.span(l, r);
        let grouped = matches!(
            v.kind,
            ValueKind::Unary(..) | ValueKind::Binary(..) | ValueKind::Complex(..) | ValueKind::Call(..)
        );
        if !grouped {
            self.one_tuple(span, v.span);
            return Value::new(ValueKind::Tuple(vec![v]), span);
        }
        Value { span, ..v }
    }

    /// `(T)` as a type: a tuple without its comma.
    pub(super) fn type_in_parens(&mut self, t: Type, l: usize, r: usize) -> Type {
        let span = self.span(l, r);
        self.one_tuple(span, t.span);
        ty(TypeKind::Tuple(vec![t]), span)
    }

    fn one_tuple(&mut self, span: Span, inner: Span) {
        let after = Span {
            start: inner.end,
            ..inner
        };
        let d = Diagnostic::new(Code::E0011, "a tuple with one element needs a trailing comma")
            .at(span, "parentheses around a single value")
            .help("if this is not meant as a tuple, remove the parentheses")
            .suggest(after, ",", "add the comma");
        self.errors.push(d);
    }

    /// `name(args)` as a value: `slice`, `range`, `device`, `opaque`, or a function in a rule's condition.
    pub(super) fn call(&mut self, name: Name, list: Vec<Arg>, l: usize, r: usize) -> Value {
        let span = self.span(l, r);
        let args = self.args(list);
        match known_call(&name.text, &args) {
            Ok(Some(kind)) => return Value::new(kind, span),
            Ok(None) => {}
            Err(usage) => {
                let d = Diagnostic::new(Code::E0012, format!("invalid arguments for `{}`", name.text))
                    .at(span, "unknown key or invalid value")
                    .help(format!("write {usage}"));
                self.errors.push(d);
            }
        }
        Value::new(ValueKind::Call(name, args), span)
    }
}

/// Returns the texts of two string values.
fn string_pair(a: &Value, b: &Value) -> Option<(Arc<str>, Arc<str>)> {
    match (&a.kind, &b.kind) {
        (ValueKind::Str(a), ValueKind::Str(b)) => Some((a.clone(), b.clone())),
        _ => None,
    }
}

/// Whether calls of `name` are literals.
pub(super) fn is_value_call(name: &str) -> bool {
    matches!(
        name,
        "slice" | "range" | "device" | "torch.device" | "opaque" | "torch.Size" | "float"
    )
}

/// The literal that a call of `name` denotes; `Err` is the correct syntax.
fn known_call(name: &str, args: &Args) -> Result<Option<ValueKind>, &'static str> {
    let none = |span| Value::new(ValueKind::None, span);
    let int = |i, span| Value::new(ValueKind::Int(i), span);
    let p = &args.positional[..];
    if !is_value_call(name) {
        return Ok(None);
    }
    let kind = match (name, p, args.keyword.is_empty()) {
        ("slice", [b], true) => ValueKind::Slice(Box::new([none(b.span), b.clone(), none(b.span)])),
        ("slice", [a, b], true) => ValueKind::Slice(Box::new([a.clone(), b.clone(), none(b.span)])),
        ("slice", [a, b, c], true) => ValueKind::Slice(Box::new([a.clone(), b.clone(), c.clone()])),
        ("slice", ..) => return Err("`slice(start, stop, step)`"),
        ("range", [b], true) => ValueKind::Range(Box::new([int(0, b.span), b.clone(), int(1, b.span)])),
        ("range", [a, b], true) => ValueKind::Range(Box::new([a.clone(), b.clone(), int(1, b.span)])),
        ("range", [a, b, c], true) => ValueKind::Range(Box::new([a.clone(), b.clone(), c.clone()])),
        ("range", ..) => return Err("`range(start, stop, step)`"),
        ("torch.Size", [Value { kind, .. }], true) => match kind {
            ValueKind::List(v) | ValueKind::Tuple(v) => ValueKind::Tuple(v.clone()),
            _ => return Err("`torch.Size([2, 3])`, which is a tuple"),
        },
        ("float", [v], true) => ValueKind::Float(eval_float(&v.kind).ok_or("`float(\"inf\")` or `float(\"nan\")`")?),
        ("float", ..) => return Err("`float(\"inf\")` or `float(\"nan\")`"),
        ("torch.Size", ..) => return Err("`torch.Size([2, 3])`, which is a tuple"),
        (
            "opaque",
            [
                Value {
                    kind: ValueKind::Str(s),
                    ..
                },
            ],
            true,
        ) => ValueKind::Opaque(s.clone()),
        ("opaque", ..) => return Err("`opaque(\"text\")`"),
        _ => {
            return eval_device(args)
                .map(Some)
                .ok_or("`device(\"cpu\")` or `device(\"cuda:0\")`");
        }
    };
    Ok(Some(kind))
}

/// The result of Python's `float(…)` for a literal.
fn eval_float(v: &ValueKind) -> Option<f64> {
    match v {
        ValueKind::Float(x) => Some(*x),
        ValueKind::Int(i) => Some(*i as f64),
        ValueKind::Str(s) => match s.trim().to_ascii_lowercase().trim_start_matches('+') {
            "nan" | "-nan" => Some(f64::NAN),
            "inf" | "infinity" => Some(f64::INFINITY),
            "-inf" | "-infinity" => Some(f64::NEG_INFINITY),
            text => text.parse().ok(),
        },
        _ => None,
    }
}

/// `device("cuda:0")`, `device("cuda", 0)` or `device(type="cuda", index=0)`.
fn eval_device(args: &Args) -> Option<ValueKind> {
    let given = |i: usize, name: &str| {
        let by_name = || args.keyword.iter().find(|(k, _)| &*k.text == name).map(|(_, v)| v);
        args.positional.get(i).or_else(by_name)
    };
    let known = |k: &Name| matches!(&*k.text, "type" | "index");
    if args.positional.len() + args.keyword.len() > 2 || !args.keyword.iter().all(|(k, _)| known(k)) {
        return None;
    }
    let ValueKind::Str(kind) = &given(0, "type")?.kind else {
        return None;
    };
    match given(1, "index").map(|v| &v.kind) {
        None => Some(ValueKind::Device(kind.clone())),
        Some(ValueKind::Int(i)) => Some(ValueKind::Device(format!("{kind}:{i}").into())),
        Some(_) => None,
    }
}
