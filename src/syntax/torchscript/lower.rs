//! TorchScript's graph as statements.

use super::tree::{Attr, Node, Script, Ty, Typed};
use crate::diag::{Code, Diagnostic};
use crate::source::Span;
use crate::syntax::actions::stmt;
use crate::syntax::ast::{Args, Body, CallKind, Dialect, Graph, Loc, Name, Op, Stmt, Type, TypeKind, Value, ValueKind};
use crate::syntax::token::unescape;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What a value is.
#[derive(Clone)]
enum Bound {
    /// A value of the graph, and whether it is a number of Python's.
    Value(Value, bool),
    /// The module of this path; the root's is empty.
    Module(Arc<str>),
}

struct Lower<'a> {
    env: HashMap<Arc<str>, Bound>,
    used: HashSet<Arc<str>>,
    /// Numbers behind the names that are taken.
    counts: HashMap<String, usize>,
    stmts: Vec<Stmt>,
    broken: Vec<Arc<str>>,
    errors: &'a mut Vec<Diagnostic>,
}

/// The graph of a script.
pub fn lower(script: &Script, errors: &mut Vec<Diagnostic>) -> Graph {
    let mut l = Lower {
        env: HashMap::new(),
        used: HashSet::new(),
        counts: HashMap::new(),
        stmts: vec![],
        broken: vec![],
        errors,
    };
    for i in &script.inputs {
        l.input(i);
    }
    for n in &script.nodes {
        l.node(n);
    }
    let mut results: Vec<Value> = script.results.iter().map(|r| l.value(r)).collect();
    let value = match results.len() {
        1 => results.remove(0),
        _ => Value::new(ValueKind::Tuple(results), script.span),
    };
    l.stmts.push(stmt(None, None, Op::Output { value }, None, script.span));
    let end = |at: u32| Span::new(script.span.file, at as usize, at as usize);
    Graph {
        name: None,
        updates: vec![],
        body: Body {
            stmts: l.stmts,
            broken: l.broken,
            open: end(script.span.start),
            close: end(script.span.end),
        },
        dialect: Dialect::Script,
        signature: None,
        span: script.span,
    }
}

impl Lower<'_> {
    fn input(&mut self, i: &Typed) {
        if i.ty.is_module() {
            self.env.insert(i.name.clone(), Bound::Module("".into()));
            return;
        }
        let name = self.node_name(&i.name, "input");
        let target = Name::new(name.clone(), i.span);
        let op = Op::Placeholder {
            target: target.clone(),
            default: None,
        };
        self.stmts.push(stmt(Some(target), ty(&i.ty, i.span), op, None, i.span));
        self.bind(i, ValueKind::Node(name), i.ty.is_number());
    }

    fn node(&mut self, n: &Node) {
        if n.has_blocks {
            for o in &n.outputs {
                let name = self.node_name(&o.name, "value");
                self.broken.push(name.clone());
                self.bind(o, ValueKind::Node(name), false);
            }
            return;
        }
        match &*n.op {
            "prim::Constant" => self.constant(n),
            "prim::GetAttr" => self.get_attr(n),
            "prim::CallMethod" | "prim::CallFunction" => self.called(n),
            "prim::ListConstruct" => self.construct(n, ValueKind::List),
            "prim::TupleConstruct" => self.construct(n, ValueKind::Tuple),
            "prim::DictConstruct" => {
                let values: Vec<Value> = n.args.iter().map(|a| self.value(a)).collect();
                let pairs = values.chunks_exact(2).map(|p| (p[0].clone(), p[1].clone()));
                self.bind_all(n, ValueKind::Dict(pairs.collect()), false);
            }
            "prim::ListUnpack" | "prim::TupleUnpack" => self.unpack(n),
            // Tensors of no dimensions that stand for Python's numbers.
            "prim::NumToTensor"
            | "aten::Int"
            | "aten::Float"
            | "aten::Bool"
            | "aten::ScalarImplicit"
            | "aten::IntImplicit"
            | "aten::FloatImplicit"
            | "prim::unchecked_cast"
            | "prim::unchecked_unwrap_optional"
                if n.args.len() == 1 && (self.is_number(&n.args[0]) || n.op.starts_with("prim::unchecked")) =>
            {
                let value = self.value(&n.args[0]);
                self.bind_all(n, value.kind, !n.op.starts_with("prim::unchecked"));
            }
            _ => self.operation(n),
        }
    }

    fn constant(&mut self, n: &Node) {
        let Some(out) = n.outputs.first() else { return };
        let Some(value) = n.attrs.first() else {
            self.bind(out, ValueKind::None, false);
            return;
        };
        if &*value.name == "name" {
            // A function, which `prim::CallFunction` calls.
            let path = format!("torch.nn.functional.{}", self.string(value));
            self.bind(out, ValueKind::Opaque(path.into()), false);
            return;
        }
        match literal(&value.text, &out.ty, value.span, self.errors) {
            Some(kind) => self.bind(out, kind, true),
            None => {
                // The text does not hold the tensor: it is an attribute of the name that the value has.
                let path = out.name.strip_prefix("self.").unwrap_or(&out.name).to_string();
                let path = match path.starts_with(|c: char| c.is_ascii_digit()) && !path.contains('.') {
                    true => format!("constant_{path}"),
                    false => path,
                };
                self.attribute(n, out, path.into());
            }
        }
    }

    fn get_attr(&mut self, n: &Node) {
        let (Some(out), Some(base), Some(attr)) = (n.outputs.first(), n.args.first(), n.attrs.first()) else {
            self.unreadable(n, "`prim::GetAttr` reads an attribute of a module");
            return;
        };
        let name = self.string(attr);
        let path: Arc<str> = match self.env.get(&base.name) {
            Some(Bound::Module(p)) if p.is_empty() => name.as_str().into(),
            Some(Bound::Module(p)) => format!("{p}.{name}").into(),
            _ => return self.unreadable(n, "only modules have attributes here"),
        };
        if out.ty.is_module() {
            self.env.insert(out.name.clone(), Bound::Module(path));
        } else if name == "training" {
            self.bind(out, ValueKind::Bool(false), true);
        } else if out.ty.is_number() || matches!(&*out.ty.name, "str" | "List" | "Optional" | "") {
            let why =
                format!("the text does not hold the value of `{path}`; freeze the module with `torch.jit.freeze`");
            self.unreadable(n, &why);
        } else {
            self.attribute(n, out, path);
        }
    }

    fn attribute(&mut self, n: &Node, out: &Typed, path: Arc<str>) {
        let op = Op::GetAttr {
            target: Name::new(path.clone(), out.span),
        };
        let wish = path.replace('.', "_");
        let name = self.push(op, &wish, "attribute", ty(&out.ty, out.span), n);
        self.bind(out, ValueKind::Node(name), false);
    }

    /// A module's `forward`, or a function.
    fn called(&mut self, n: &Node) {
        let Some(callee) = n.args.first() else {
            return self.unreadable(n, "a call names what it calls");
        };
        let values: Vec<Value> = n.args[1..].iter().map(|a| self.value(a)).collect();
        let (kind, path) = match self.env.get(&callee.name).cloned() {
            Some(Bound::Module(path)) => (CallKind::Module, path),
            Some(Bound::Value(v, _)) => match v.kind {
                ValueKind::Opaque(path) => (CallKind::Function, path),
                _ => return self.unreadable(n, "only modules and functions are called"),
            },
            None => return self.unreadable(n, "what is called is not defined"),
        };
        let method = n.attrs.first().map(|a| self.string(a));
        if kind == CallKind::Module && (method.as_deref() != Some("forward") || path.is_empty()) {
            return self.unreadable(
                n,
                "only the method `forward` of a sub-module can be called; print `inlined_graph`",
            );
        }
        self.call(n, kind, &path, values, false);
    }

    fn construct(&mut self, n: &Node, kind: fn(Vec<Value>) -> ValueKind) {
        let values = n.args.iter().map(|a| self.value(a)).collect();
        self.bind_all(n, kind(values), false);
    }

    fn unpack(&mut self, n: &Node) {
        let Some(from) = n.args.first().map(|a| self.value(a)) else {
            return self.unreadable(n, "an operand is missing");
        };
        match from.kind {
            ValueKind::List(v) | ValueKind::Tuple(v) if v.len() == n.outputs.len() => {
                for (o, v) in n.outputs.iter().zip(v) {
                    self.bind(o, v.kind, o.ty.is_number());
                }
            }
            _ => self.items(n, from),
        }
    }

    /// Each result as an item of `from`.
    fn items(&mut self, n: &Node, from: Value) {
        for (i, o) in n.outputs.iter().enumerate() {
            let index = Value::new(ValueKind::Int(i as i64), o.span);
            let op = function("operator.getitem", vec![from.clone(), index], o.span);
            let name = self.push(op, &o.name, "getitem", ty(&o.ty, o.span), n);
            self.bind(o, ValueKind::Node(name), o.ty.is_number());
        }
    }

    fn operation(&mut self, n: &Node) {
        let values: Vec<Value> = n.args.iter().map(|a| self.value(a)).collect();
        let numbers = !n.args.is_empty() && n.args.iter().all(|a| self.is_number(a));
        let Some(op) = n.op.strip_prefix("aten::") else {
            return self.primitive(n, values);
        };
        if numbers && let Some(operator) = on_numbers(op) {
            // `aten::add` has a factor for its second operand, which is 1.
            let count = if matches!(operator, "neg" | "not_") { 1 } else { 2 };
            let values = values.into_iter().take(count).collect();
            return self.call(n, CallKind::Function, &format!("operator.{operator}"), values, true);
        }
        match op {
            "size" | "dim" | "numel" | "stride" => {
                self.call(n, CallKind::Method, op, values, n.outputs[0].ty.is_number())
            }
            "len" => self.call(n, CallKind::Function, "builtins.len", values, true),
            "__getitem__" => self.call(n, CallKind::Function, "operator.getitem", values, false),
            _ => {
                let path = match n.op.split_once("::") {
                    Some((_, name)) => format!("torch.ops.aten.{name}"),
                    None => n.op.to_string(),
                };
                self.call(n, CallKind::Function, &path, values, false);
            }
        }
    }

    /// An operator of another namespace.
    fn primitive(&mut self, n: &Node, mut values: Vec<Value>) {
        match &*n.op {
            "prim::TupleIndex" => self.call(n, CallKind::Function, "operator.getitem", values, false),
            "prim::dtype" | "prim::device" | "prim::shape" if values.len() == 1 => {
                let name = n.op["prim::".len()..].into();
                values.push(Value::new(ValueKind::Str(name), n.span));
                self.call(n, CallKind::Function, "builtins.getattr", values, false);
            }
            op if op.starts_with("prim::") => self.unreadable(n, "this operator has no form in a graph of torch.fx"),
            op => {
                let path = format!("torch.ops.{}", op.replace("::", "."));
                self.call(n, CallKind::Function, &path, values, false);
            }
        }
    }

    /// A call with the node's results.
    fn call(&mut self, n: &Node, kind: CallKind, target: &str, positional: Vec<Value>, number: bool) {
        let op = Op::Call {
            kind,
            target: Name::new(target, n.span),
            args: Args {
                positional,
                keyword: vec![],
            },
        };
        let short = target
            .rsplit('.')
            .find(|p| !p.starts_with(|c: char| c.is_ascii_digit()))
            .unwrap_or("call");
        match &n.outputs[..] {
            [one] => {
                // A tensor that stands for a number of Python's has no type that the number has.
                let known = ty(&one.ty, one.span).filter(|_| !number);
                let name = self.push(op, &one.name, short, known, n);
                self.bind(one, ValueKind::Node(name), number || one.ty.is_number());
            }
            _ => {
                let name = self.push(op, "", short, None, n);
                self.items(n, Value::new(ValueKind::Node(name), n.span));
            }
        }
    }

    /// Adds a statement called `wish`, or after `short` if that is but a number; gives its name.
    fn push(&mut self, op: Op, wish: &str, short: &str, ty: Option<Type>, n: &Node) -> Arc<str> {
        let name = self.node_name(wish, short);
        let loc = n.place.as_deref().and_then(|p| loc(p, n.span));
        let named = Some(Name::new(name.clone(), n.span));
        self.stmts.push(stmt(named, ty, op, loc, n.span));
        name
    }

    fn node_name(&mut self, wish: &str, short: &str) -> Arc<str> {
        let wish = if wish.bytes().all(|b| b.is_ascii_digit()) {
            short
        } else {
            wish
        };
        let legal = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let mut base: String = wish.chars().map(legal).collect();
        if base.starts_with(|c: char| c.is_ascii_digit()) {
            base.insert(0, '_');
        }
        let mut name: Arc<str> = base.as_str().into();
        while !self.used.insert(name.clone()) {
            let count = self.counts.entry(base.clone()).or_default();
            *count += 1;
            name = format!("{base}_{count}").into();
        }
        name
    }

    fn bind(&mut self, out: &Typed, kind: ValueKind, number: bool) {
        let bound = Bound::Value(Value::new(kind, out.span), number);
        self.env.insert(out.name.clone(), bound);
    }

    fn bind_all(&mut self, n: &Node, kind: ValueKind, number: bool) {
        for o in &n.outputs {
            self.bind(o, kind.clone(), number);
        }
    }

    fn value(&mut self, v: &Typed) -> Value {
        let kind = match self.env.get(&v.name) {
            Some(Bound::Value(value, _)) => value.kind.clone(),
            Some(Bound::Module(_)) => {
                let d = Diagnostic::new(Code::E0013, "a module stands where a value is expected");
                self.errors
                    .push(d.at(v.span, "this is a module").help("print `inlined_graph`"));
                ValueKind::None
            }
            None => ValueKind::Node(v.name.clone()),
        };
        Value::new(kind, v.span)
    }

    fn is_number(&self, v: &Typed) -> bool {
        matches!(self.env.get(&v.name), Some(Bound::Value(_, true)))
    }

    /// The text of a string attribute.
    fn string(&mut self, attr: &Attr) -> String {
        let body = attr.text.strip_prefix('"').and_then(|t| t.strip_suffix('"'));
        let body = body.unwrap_or(&attr.text);
        unescape(body, attr.span.file, attr.span.start as usize, self.errors)
    }

    fn unreadable(&mut self, n: &Node, why: &str) {
        let d = Diagnostic::new(Code::E0013, format!("`{}` cannot be read", n.op));
        self.errors.push(d.at(n.span, why));
        for o in &n.outputs {
            self.bind(o, ValueKind::None, false);
        }
    }
}

/// A call of a function.
fn function(target: &str, positional: Vec<Value>, span: Span) -> Op {
    Op::Call {
        kind: CallKind::Function,
        target: Name::new(target, span),
        args: Args {
            positional,
            keyword: vec![],
        },
    }
}

/// What `operator` calls an ATen operator on Python's numbers.
fn on_numbers(op: &str) -> Option<&'static str> {
    Some(match op {
        "add" => "add",
        "sub" => "sub",
        "mul" => "mul",
        "div" => "truediv",
        "floordiv" | "floor_divide" => "floordiv",
        "remainder" => "mod",
        "pow" => "pow",
        "neg" => "neg",
        "eq" => "eq",
        "ne" => "ne",
        "lt" => "lt",
        "le" => "le",
        "gt" => "gt",
        "ge" => "ge",
        "__and__" => "and_",
        "__or__" => "or_",
        "__not__" => "not_",
        _ => return None,
    })
}

/// The literal that a constant is; `None` for a tensor whose elements the text does not hold as numbers of Python's.
fn literal(text: &str, ty: &Ty, span: Span, errors: &mut Vec<Diagnostic>) -> Option<ValueKind> {
    let text = text.trim();
    // A tensor of no dimensions that tracing made of a number.
    let number = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
    if let Some(body) = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')) {
        let body = unescape(body, span.file, span.start as usize, errors);
        return Some(match &*ty.name {
            "Device" => ValueKind::Device(body.into()),
            _ => ValueKind::Str(body.into()),
        });
    }
    if let Some(inner) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
        let item = |t: &str| number_of(t.trim(), false).map(|k| Value::new(k, span));
        let items = inner
            .split(',')
            .filter(|t| !t.trim().is_empty())
            .map(item)
            .collect::<Option<Vec<_>>>()?;
        return Some(ValueKind::List(items));
    }
    if &*ty.name == "NoneType" {
        return Some(ValueKind::None);
    }
    let float = matches!(&*ty.name, "float" | "Float" | "Double" | "Half" | "BFloat16");
    match (number_of(number, float)?, &*ty.name) {
        (ValueKind::Int(i), "bool" | "Bool") => Some(ValueKind::Bool(i != 0)),
        (kind, _) => Some(kind),
    }
}

fn number_of(text: &str, float: bool) -> Option<ValueKind> {
    match text {
        "inf" => return Some(ValueKind::Float(f64::INFINITY)),
        "-inf" => return Some(ValueKind::Float(f64::NEG_INFINITY)),
        "nan" | "-nan" => return Some(ValueKind::Float(f64::NAN)),
        _ => {}
    }
    if let (Ok(i), false) = (text.parse::<i64>(), float) {
        return Some(ValueKind::Int(i));
    }
    let plain = text
        .bytes()
        .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+' | b'e' | b'E'));
    text.parse::<f64>().ok().filter(|_| plain).map(ValueKind::Float)
}

/// The FXIR type of a tensor whose sizes are known.
fn ty(t: &Ty, span: Span) -> Option<Type> {
    let dtype = t.dtype().filter(|_| t.shaped)?;
    let size = |s: &Option<i64>| {
        let kind = s.map_or(ValueKind::Unknown, ValueKind::Int);
        Value::new(kind, span)
    };
    let kind = TypeKind::Tensor {
        dtype: Name::new(dtype, span),
        shape: Some(t.sizes.iter().map(size).collect()),
    };
    Some(Type { kind, span })
}

/// `# model.py:12:0`
fn loc(comment: &str, span: Span) -> Option<Loc> {
    let place = comment.trim_start_matches('#').trim();
    let (rest, _column) = place.rsplit_once(':')?;
    let (file, line) = rest.rsplit_once(':')?;
    Some(Loc {
        file: file.into(),
        line: line.parse().ok()?,
        function: None,
        code: None,
        span,
    })
}
