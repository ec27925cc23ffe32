//! Converts expressions of generated Python to values of a graph, and to nodes that compute them.

use super::lower::FunctionLowerer;
use super::names;
use super::tree::{Arg, Expr, ExprKind};
use crate::source::Span;
use crate::syntax::ast::{Args, BinaryOp, CallKind, Name, Op, UnaryOp, Value, ValueKind};
use crate::syntax::resolve::{is_torch_name, is_torch_symbol};
use std::sync::Arc;

/// Python types that may be arguments.
const TYPES: [&str; 8] = ["int", "float", "bool", "str", "complex", "list", "tuple", "dict"];

impl FunctionLowerer<'_> {
    /// The value of an expression. Intermediate results become nodes.
    pub(super) fn lower_value(&mut self, e: &Expr) -> Value {
        if let Some(v) = self.lower_literal(e) {
            return v;
        }
        let all = |this: &mut Self, v: &[Expr]| v.iter().map(|x| this.lower_value(x)).collect::<Vec<_>>();
        let kind = match &e.kind {
            ExprKind::Tuple(v) => ValueKind::Tuple(all(self, v)),
            ExprKind::List(v) => ValueKind::List(all(self, v)),
            ExprKind::Dict(v) => ValueKind::Dict(
                v.iter()
                    .map(|(k, x)| (self.lower_value(k), self.lower_value(x)))
                    .collect(),
            ),
            ExprKind::Slice(parts) => {
                let mut part = |i: usize| match &parts[i] {
                    Some(x) => self.lower_value(x),
                    None => Value::new(ValueKind::None, e.span),
                };
                ValueKind::Slice(Box::new([part(0), part(1), part(2)]))
            }
            ExprKind::Call(f, args) if self.is_value_call(f) => self.value_call(e, f, args),
            ExprKind::Name(n) => self.free_name(n),
            _ => match self.child_graph(e) {
                Some(graph) => ValueKind::Graph(graph),
                None => match self.lower_operation(e) {
                    Some(op) => ValueKind::Node(self.emit(op, e.span)),
                    None => self.report_unreadable(e.span, "a graph cannot contain this value"),
                },
            },
        };
        Value::new(kind, e.span)
    }

    /// A value that contains no other values.
    fn lower_literal(&self, e: &Expr) -> Option<Value> {
        let kind = match &e.kind {
            ExprKind::None => ValueKind::None,
            ExprKind::Bool(b) => ValueKind::Bool(*b),
            ExprKind::Ellipsis => ValueKind::Ellipsis,
            ExprKind::Int(i) => ValueKind::Int(*i),
            ExprKind::Float(x) => ValueKind::Float(*x),
            ExprKind::Imag(x) => ValueKind::Complex(0.0, *x),
            ExprKind::Str(s) => ValueKind::Str(s.clone()),
            ExprKind::Object(s) => ValueKind::Opaque(s.clone()),
            ExprKind::Name(n) => match self.lookup_name(n) {
                Some(v) => return Some(Value::new(v.kind.clone(), e.span)),
                None => return None,
            },
            ExprKind::Attr(..) => {
                let path = self.global_path(e)?;
                match path.strip_prefix("torch.ops.") {
                    // In arguments, torch prints overloads without `torch.ops.`.
                    Some(op) => ValueKind::Opaque(op.into()),
                    None if is_torch_name(&path) => ValueKind::Name(path.into()),
                    None => ValueKind::Opaque(path.into()),
                }
            }
            ExprKind::Unary("neg", x) if as_non_finite(x).is_some() => ValueKind::Float(-as_non_finite(x)?),
            ExprKind::Binary(op @ ("add" | "sub"), a, b) => match (as_real(a), as_imaginary(b)) {
                (Some(re), Some(im)) => ValueKind::Complex(re, if *op == "sub" { -im } else { im }),
                _ => return self.lower_size(e),
            },
            _ => return self.lower_size(e),
        };
        Some(Value::new(kind, e.span))
    }

    /// Arithmetic on symbolic sizes: `2*s96 + 1`.
    fn lower_size(&self, e: &Expr) -> Option<Value> {
        let kind = match &e.kind {
            ExprKind::Int(i) => ValueKind::Int(*i),
            ExprKind::Name(n) if is_torch_symbol(n) && self.lookup_name(n).is_none() => ValueKind::Name(n.clone()),
            ExprKind::Unary("neg", a) => ValueKind::Unary(UnaryOp::Neg, Box::new(self.lower_size(a)?)),
            ExprKind::Binary(op, a, b) => {
                let op = match *op {
                    "add" => BinaryOp::Add,
                    "sub" => BinaryOp::Sub,
                    "mul" => BinaryOp::Mul,
                    "floordiv" => BinaryOp::FloorDiv,
                    "mod" => BinaryOp::Mod,
                    "pow" => BinaryOp::Pow,
                    _ => return None,
                };
                ValueKind::Binary(op, Box::new(self.lower_size(a)?), Box::new(self.lower_size(b)?))
            }
            _ => return None,
        };
        Some(Value::new(kind, e.span))
    }

    /// The value of a name that the function does not bind.
    fn free_name(&self, n: &Arc<str>) -> ValueKind {
        match &**n {
            "inf" => ValueKind::Float(f64::INFINITY),
            "nan" => ValueKind::Float(f64::NAN),
            "Ellipsis" => ValueKind::Ellipsis,
            "NoneType" => ValueKind::Opaque("<class 'NoneType'>".into()),
            t if TYPES.contains(&t) => ValueKind::Opaque(format!("<class '{t}'>").into()),
            n if is_torch_symbol(n) => ValueKind::Name(n.into()),
            // The name is resolved together with the nodes.
            _ => ValueKind::Node(n.clone()),
        }
    }

    /// Whether a call of `f` is a literal and not a computation.
    fn is_value_call(&self, f: &Expr) -> bool {
        let path = self.global_path(f);
        matches!(
            path.as_deref(),
            Some("slice" | "range" | "device" | "torch.device" | "complex" | "torch.Size" | "torch.Tensor")
        )
    }

    fn value_call(&mut self, e: &Expr, f: &Expr, args: &[Arg]) -> ValueKind {
        let path = self.global_path(f).unwrap_or_default();
        let positional: Vec<&Expr> = args.iter().filter_map(as_positional).collect();
        match &*path {
            "slice" | "range" if (1..=3).contains(&positional.len()) => {
                let items = positional.iter().map(|x| self.lower_value(x)).collect();
                slice_or_range(&path, items, e.span)
            }
            "device" | "torch.device" => self.device(e, &positional, args),
            "complex" => match (
                positional.first().and_then(|x| as_real(x)),
                positional.get(1).and_then(|x| as_real(x)),
            ) {
                (Some(re), Some(im)) => ValueKind::Complex(re, im),
                _ => self.report_unreadable(e.span, "a complex number is written `complex(0.0, 1.0)`"),
            },
            "torch.Size" if positional.len() == 1 => match self.lower_value(positional[0]).kind {
                ValueKind::List(v) | ValueKind::Tuple(v) => ValueKind::Tuple(v),
                kind => kind,
            },
            // torch prints tensors this way, without their values.
            _ => ValueKind::Opaque(self.source_text(e.span).into()),
        }
    }

    fn device(&mut self, e: &Expr, positional: &[&Expr], args: &[Arg]) -> ValueKind {
        let keyword = |name: &str| {
            args.iter().find_map(|a| match a {
                Arg::Keyword(k, v) if *k.text == *name => Some(v),
                _ => None,
            })
        };
        let kind = keyword("type").or(positional.first().copied());
        let index = keyword("index").or(positional.get(1).copied());
        match (kind.map(|k| &k.kind), index.map(|i| &i.kind)) {
            (Some(ExprKind::Str(t)), None) => ValueKind::Device(t.clone()),
            (Some(ExprKind::Str(t)), Some(ExprKind::Int(i))) => ValueKind::Device(format!("{t}:{i}").into()),
            _ => self.report_unreadable(e.span, "a device is written `device(type='cpu', index=0)`"),
        }
    }

    /// The operation of an expression; `None` if it is not an operation.
    pub(super) fn lower_operation(&mut self, e: &Expr) -> Option<Op> {
        let operator = |this: &mut Self, name: &str, operands: &[&Expr]| {
            let values = operands.iter().map(|x| this.lower_value(x)).collect();
            Some(call_op(CallKind::Function, &format!("operator.{name}"), e.span, values))
        };
        match &e.kind {
            ExprKind::Unary(op, a) => operator(self, op, &[a]),
            ExprKind::Binary(op, a, b) => operator(self, op, &[a, b]),
            ExprKind::Index(a, i) => operator(self, "getitem", &[a, i]),
            ExprKind::Attr(base, name) => match self.self_path(e) {
                Some(path) => Some(Op::GetAttr {
                    target: Name::new(path, e.span),
                }),
                None => {
                    let name = Value::new(ValueKind::Str(name.text.clone()), name.span);
                    let values = vec![self.lower_value(base), name];
                    Some(call_op(CallKind::Function, "builtins.getattr", e.span, values))
                }
            },
            ExprKind::Call(..) if self.self_path(e).is_some() => Some(Op::GetAttr {
                target: Name::new(self.self_path(e)?, e.span),
            }),
            ExprKind::Call(f, args) => self.lower_call(f, args),
            _ => None,
        }
    }

    fn lower_call(&mut self, f: &Expr, args: &[Arg]) -> Option<Op> {
        if let Some(graph) = self.child_graph(f) {
            return Some(self.finish_call(CallKind::Function, &graph, f.span, vec![], args));
        }
        if let Some(path) = self.self_path(f) {
            return Some(self.finish_call(CallKind::Module, &path, f.span, vec![], args));
        }
        if let Some(path) = self.global_path(f) {
            let target = names::function_path(&path, self.wrapped);
            return Some(self.finish_call(CallKind::Function, &target, f.span, vec![], args));
        }
        let (base, method) = match &f.kind {
            ExprKind::Attr(base, name) => (base.as_ref(), name.text.clone()),
            _ => match_getattr(f)?,
        };
        let first = self.lower_value(base);
        Some(self.finish_call(CallKind::Method, &method, f.span, vec![first], args))
    }

    fn finish_call(&mut self, kind: CallKind, target: &str, span: Span, first: Vec<Value>, list: &[Arg]) -> Op {
        let mut args = Args {
            positional: first,
            keyword: vec![],
        };
        for a in list {
            match a {
                Arg::Positional(e) => args.positional.push(self.lower_value(e)),
                Arg::Keyword(k, e) => {
                    let value = self.lower_value(e);
                    args.keyword.push((Name::new(k.text.clone(), k.span), value));
                }
                Arg::Keywords(e) => self.spread_keywords(e, &mut args),
            }
        }
        let target = Name::new(target, span);
        Op::Call { kind, target, args }
    }

    /// Expands `**{"from": 1}`, which fxc writes for keywords that are not identifiers.
    fn spread_keywords(&mut self, e: &Expr, args: &mut Args) {
        let ExprKind::Dict(entries) = &e.kind else {
            self.report_unreadable(e.span, "`**` is only supported on a dict literal");
            return;
        };
        for (k, v) in entries {
            match &k.kind {
                ExprKind::Str(s) => {
                    let value = self.lower_value(v);
                    args.keyword.push((Name::new(s.clone(), k.span), value));
                }
                _ => {
                    self.report_unreadable(k.span, "an argument's name must be a string");
                }
            }
        }
    }

    /// The path `a.b` of `self.a.b`, where parts that are not identifiers are written `getattr(self.a, "0")`.
    pub(super) fn self_path(&self, e: &Expr) -> Option<String> {
        let (base, name) = match &e.kind {
            ExprKind::Attr(base, name) => (base.as_ref(), name.text.clone()),
            _ => match_getattr(e)?,
        };
        match &base.kind {
            ExprKind::Name(n) if self.is_self(n) => Some(name.to_string()),
            _ => Some(format!("{}.{name}", self.self_path(base)?)),
        }
    }

    /// The path of a value from outside: a name that the function does not bind, with attributes.
    pub(super) fn global_path(&self, e: &Expr) -> Option<String> {
        match &e.kind {
            ExprKind::Name(n) if self.lookup_name(n).is_none() && !self.is_self(n) => Some(n.to_string()),
            ExprKind::Attr(base, name) => Some(format!("{}.{}", self.global_path(base)?, name.text)),
            ExprKind::Call(..) => {
                let (base, name) = match_getattr(e)?;
                matches!(base.kind, ExprKind::Name(_) | ExprKind::Attr(..)).then_some(())?;
                Some(format!("{}.{name}", self.global_path(base)?))
            }
            _ => None,
        }
    }
}

/// A call with positional arguments.
pub(super) fn call_op(kind: CallKind, target: &str, span: Span, positional: Vec<Value>) -> Op {
    Op::Call {
        kind,
        target: Name::new(target, span),
        args: Args {
            positional,
            keyword: vec![],
        },
    }
}

/// Destructures `getattr(base, "name")`.
fn match_getattr(e: &Expr) -> Option<(&Expr, Arc<str>)> {
    let ExprKind::Call(f, args) = &e.kind else { return None };
    match (&f.kind, &args[..]) {
        (ExprKind::Name(n), [Arg::Positional(base), Arg::Positional(name)]) if **n == *"getattr" => match &name.kind {
            ExprKind::Str(s) => Some((base, s.clone())),
            _ => None,
        },
        _ => None,
    }
}

fn as_positional(a: &Arg) -> Option<&Expr> {
    match a {
        Arg::Positional(e) => Some(e),
        _ => None,
    }
}

fn into_triple(items: Vec<Value>) -> Option<Box<[Value; 3]>> {
    <[Value; 3]>::try_from(items).ok().map(Box::new)
}

fn as_real(e: &Expr) -> Option<f64> {
    match &e.kind {
        ExprKind::Int(i) => Some(*i as f64),
        ExprKind::Float(x) => Some(*x),
        ExprKind::Unary("neg", x) => Some(-as_non_finite(x)?),
        _ => as_non_finite(e),
    }
}

fn as_imaginary(e: &Expr) -> Option<f64> {
    match &e.kind {
        ExprKind::Imag(x) => Some(*x),
        ExprKind::Name(n) if **n == *"nanj" => Some(f64::NAN),
        ExprKind::Name(n) if **n == *"infj" => Some(f64::INFINITY),
        _ => None,
    }
}

fn as_non_finite(e: &Expr) -> Option<f64> {
    match &e.kind {
        ExprKind::Name(n) if **n == *"inf" => Some(f64::INFINITY),
        ExprKind::Name(n) if **n == *"nan" => Some(f64::NAN),
        _ => None,
    }
}

/// `slice(…)` or `range(…)` of one to three items.
fn slice_or_range(path: &str, mut items: Vec<Value>, span: Span) -> ValueKind {
    let none = Value::new(ValueKind::None, span);
    if items.len() == 1 {
        items.insert(0, none.clone());
    }
    if path == "slice" {
        items.resize(3, none);
        return into_triple(items).map_or(ValueKind::None, ValueKind::Slice);
    }
    let int = |i| Value::new(ValueKind::Int(i), span);
    if matches!(items[0].kind, ValueKind::None) {
        items[0] = int(0);
    }
    items.resize(3, int(1));
    into_triple(items).map_or(ValueKind::None, ValueKind::Range)
}
