//! Checks for trees that the grammar accepts but that have no meaning: undefined bare names, arithmetic where no size
//! is expected, names of a rule outside of rules. They run on the tree, so one run reports the errors of the whole
//! file.

use super::ast::*;
use super::names;
use super::resolve::{is_size_function, is_torch_name, is_torch_symbol};
use crate::diag::{Code, Diagnostic, NameIndex, nearest};
use crate::source::Span;
use crate::types::DType;
use std::collections::BTreeSet;

/// Checks the values of `file` and adds errors to `errors`. An invalid value is replaced by the intended one, or by an
/// unknown one that causes no further errors.
pub(super) fn check(file: &mut File, errors: &mut Vec<Diagnostic>) {
    let mut sizes = BTreeSet::new();
    file.items.iter().for_each(|i| sizes_of(i, &mut sizes));
    let shorts = DType::all().map(DType::short_name);
    let torch: Vec<String> = names::torch_dtypes().collect();
    let mut known: Vec<&str> = sizes.iter().map(String::as_str).collect();
    shorts.for_each(|s| known.push(s));
    known.extend(torch.iter().map(String::as_str));
    let mut c = ValueChecker {
        sizes: &sizes,
        known: NameIndex::new(known),
        errors,
        nodes: BTreeSet::new(),
        rule: false,
        nests: false,
    };
    for item in &mut file.items {
        match item {
            Item::Const(x) => x.value.iter_mut().for_each(|v| c.check_value(v)),
            Item::Graph(g) => c.check_body(&mut g.body),
            Item::Rewrite(r) => c.check_rewrite(r),
            Item::Module(m) => c.check_module(m),
            Item::Weights(_) | Item::Tensor(_) | Item::Dim(_) | Item::Guard(_) | Item::Pointwise(_) => {}
            Item::Signature(_) | Item::Frame(_) | Item::Scope(_) => {}
        }
    }
}

fn collect_from_body(b: &Body, sizes: &mut BTreeSet<String>) {
    b.stmts
        .iter()
        .filter_map(|s| s.ty.as_ref())
        .for_each(|t| collect_from_type(t, sizes));
}

fn collect_from_type(t: &Type, sizes: &mut BTreeSet<String>) {
    match &t.kind {
        TypeKind::Tensor { shape, .. } => shape.iter().flatten().for_each(|v| collect_names(v, sizes)),
        TypeKind::Tuple(v) | TypeKind::List(v) => v.iter().for_each(|t| collect_from_type(t, sizes)),
        TypeKind::Dict(v) => v.iter().for_each(|(_, t)| collect_from_type(t, sizes)),
        TypeKind::Size(v) => collect_names(v, sizes),
        TypeKind::Word(_) | TypeKind::Python(_) | TypeKind::OptionalTensor | TypeKind::Unknown => {}
    }
}

fn collect_names(v: &Value, sizes: &mut BTreeSet<String>) {
    match &v.kind {
        ValueKind::Name(n) => {
            sizes.insert(n.to_string());
        }
        ValueKind::Unary(_, a) => collect_names(a, sizes),
        ValueKind::Binary(_, a, b) => {
            collect_names(a, sizes);
            collect_names(b, sizes);
        }
        ValueKind::Tuple(args) => args.iter().for_each(|a| collect_names(a, sizes)),
        ValueKind::Call(_, args) => args.positional.iter().for_each(|a| collect_names(a, sizes)),
        _ => {}
    }
}

/// Collects the names of symbolic sizes that an item declares or uses in a type.
fn sizes_of(item: &Item, sizes: &mut BTreeSet<String>) {
    match item {
        Item::Dim(d) => {
            sizes.insert(d.name.text.to_string());
        }
        Item::Guard(g) => collect_names(&g.condition, sizes),
        Item::Const(c) => collect_from_type(&c.ty, sizes),
        Item::Tensor(t) => collect_from_type(&t.ty, sizes),
        Item::Graph(g) => collect_from_body(&g.body, sizes),
        Item::Rewrite(r) => {
            for p in &r.params {
                if let RewriteParam::Node(_, Some(t)) = p {
                    collect_from_type(t, sizes);
                }
            }
            for side in [&r.pattern, &r.replacement] {
                collect_from_body(side, sizes);
                // Types inside a one-line rule.
                side.result().into_iter().for_each(|v| {
                    v.visit(&mut |v| {
                        if let ValueKind::Bound(b) = &v.kind {
                            b.ty.iter().for_each(|t| collect_from_type(t, sizes));
                        }
                    });
                });
            }
        }
        Item::Weights(_) | Item::Module(_) | Item::Pointwise(_) => {}
        Item::Signature(_) | Item::Frame(_) | Item::Scope(_) => {}
    }
}

struct ValueChecker<'e> {
    sizes: &'e BTreeSet<String>,
    /// Candidates for the intended meaning of a bare name.
    known: NameIndex<'e>,
    errors: &'e mut Vec<Diagnostic>,
    /// The nodes of the current body.
    nodes: BTreeSet<String>,
    /// Whether the current item is a rewrite rule, in which literals and conditions are allowed.
    rule: bool,
    /// Whether the current body is a side of a one-line rule, in which calls can be nested and named.
    nests: bool,
}

impl ValueChecker<'_> {
    fn check_rewrite(&mut self, r: &mut Rewrite) {
        self.rule = true;
        self.nests = r.one_line;
        self.check_body(&mut r.pattern);
        self.check_body(&mut r.replacement);
        self.nests = false;
        if let Some(c) = &mut r.condition {
            self.check_value(c);
        }
        self.rule = false;
    }

    fn check_body(&mut self, b: &mut Body) {
        let named = b.stmts.iter().filter_map(|s| s.name.as_ref());
        self.nodes = named.map(|n| n.text.to_string()).collect();
        for s in &mut b.stmts {
            match &mut s.op {
                Op::Placeholder { default, .. } => default.iter_mut().for_each(|v| self.check_value(v)),
                Op::GetAttr { .. } => {}
                Op::Call { args, .. } => {
                    args.positional.iter_mut().for_each(|v| self.check_value(v));
                    args.keyword.iter_mut().for_each(|(_, v)| self.check_value(v));
                }
                Op::Output { value } => self.check_value(value),
            }
        }
    }

    /// torch prints strings of a module without quotes (`padding_mode=circular`), so names are strings there.
    fn check_module(&mut self, m: &mut ModuleDecl) {
        let keyword = m.args.keyword.iter_mut().map(|(_, v)| v);
        for v in m.args.positional.iter_mut().chain(keyword) {
            match &v.kind {
                ValueKind::Name(n) if &**n == "none" || names::foreign_constant(n).is_none() => {}
                _ => self.check_value(v),
            }
        }
    }

    fn check_value(&mut self, v: &mut Value) {
        let span = v.span;
        match &mut v.kind {
            ValueKind::Name(n) => {
                let n = n.clone();
                if let Some(meant) = self.check_name(&n, span) {
                    v.kind = meant;
                }
            }
            ValueKind::Literal(n) if !self.rule => {
                let construct = format!("`${n}`");
                self.report_misplaced(v, &construct);
            }
            ValueKind::Rest(n) if !self.rule => {
                let construct = format!("`*%{n}`");
                self.report_misplaced(v, &construct);
            }
            ValueKind::Unknown => {
                let d = Diagnostic::new(Code::E0012, "`?` is not a value")
                    .at(span, "`?` is an unknown size and is only allowed in types");
                self.errors.push(d);
            }
            ValueKind::List(x) | ValueKind::Tuple(x) => x.iter_mut().for_each(|x| self.check_value(x)),
            ValueKind::Dict(x) => x.iter_mut().for_each(|(k, x)| {
                self.check_value(k);
                self.check_value(x);
            }),
            ValueKind::Slice(x) | ValueKind::Range(x) => x.iter_mut().for_each(|x| self.check_value(x)),
            ValueKind::Unary(..) | ValueKind::Binary(..) => self.check_operation(v),
            ValueKind::Call(..) => self.check_call(v),
            ValueKind::Bound(b) if self.nests => b.value.iter_mut().for_each(|v| self.check_value(v)),
            ValueKind::Bound(b) => {
                let construct = format!("a value named `%{}`", b.name.text);
                self.report_misplaced(v, &construct);
            }
            _ => {}
        }
    }

    fn check_operation(&mut self, v: &mut Value) {
        let sound = match &mut v.kind {
            ValueKind::Unary(UnaryOp::Not, _) if !self.rule => return self.report_misplaced(v, "`not`"),
            ValueKind::Binary(op, ..) if !self.rule && !is_arithmetic(*op) => {
                let construct = format!("`{}`", op.symbol());
                return self.report_misplaced(v, &construct);
            }
            ValueKind::Unary(_, a) => self.check_operand(a),
            ValueKind::Binary(_, a, b) => self.check_operand(a) && self.check_operand(b),
            _ => true,
        };
        if !sound {
            v.kind = ValueKind::Unknown;
        }
    }

    fn check_call(&mut self, v: &mut Value) {
        let ValueKind::Call(f, args) = &mut v.kind else { return };
        if super::actions::is_value_call(&f.text) {
            return; // Reported by the parser.
        }
        if !self.nests {
            self.errors.extend(named_argument(f, args));
        }
        if is_size_function(&f.text) && !self.rule {
            return args.positional.iter_mut().for_each(|a| self.size_operand(a));
        }
        args.positional.iter_mut().for_each(|a| self.check_value(a));
        args.keyword.iter_mut().for_each(|(_, a)| self.check_value(a));
        if self.rule {
            return;
        }
        let known = ["slice", "range", "device", "opaque", "max", "min", "float"];
        let mut d = Diagnostic::new(Code::E0012, format!("`{}(…)` is not a value", f.text))
            .at(f.span, "a call cannot be an argument")
            .help("write the call as a separate statement: `%y = call_function …`");
        if let Some(n) = nearest(&f.text, known) {
            d = d.suggest(f.span, n, "there is a literal with a similar name");
        }
        self.errors.push(d);
        v.kind = ValueKind::Unknown;
    }

    /// Outside of rules, arithmetic is on sizes. Returns false if the operand was reported.
    fn check_operand(&mut self, v: &mut Value) -> bool {
        let size = matches!(
            v.kind,
            ValueKind::Int(_) | ValueKind::Name(_) | ValueKind::Unary(..) | ValueKind::Binary(..) | ValueKind::Call(..)
        );
        if size || self.rule {
            let before = self.errors.len();
            self.check_value(v);
            return self.errors.len() == before;
        }
        let d = Diagnostic::new(Code::E0012, "arithmetic in an argument is only allowed on sizes")
            .at(v.span, "neither an integer nor a symbolic size")
            .help("write the result, or compute it with a call: `%y = call_function operator.mul(%x, 2)`");
        self.errors.push(d);
        false
    }

    /// Checks an operand of a size function. Conditions and floats are allowed, too.
    fn size_operand(&mut self, v: &mut Value) {
        match &mut v.kind {
            ValueKind::Float(_) | ValueKind::Bool(_) => {}
            ValueKind::Unary(_, a) => self.size_operand(a),
            ValueKind::Binary(_, a, b) => [a, b].into_iter().for_each(|x| self.size_operand(x)),
            ValueKind::Tuple(pair) => pair.iter_mut().for_each(|x| self.size_operand(x)),
            _ => {
                self.check_operand(v);
            }
        }
    }

    fn report_misplaced(&mut self, v: &mut Value, construct: &str) {
        let d = Diagnostic::new(Code::E0012, format!("{construct} outside a rewrite rule"))
            .at(v.span, "this syntax is only valid in rewrite rules");
        self.errors.push(d);
        v.kind = ValueKind::Unknown;
    }

    /// Reports an undefined bare name and returns the value to use instead.
    fn check_name(&mut self, n: &str, span: Span) -> Option<ValueKind> {
        if DType::from_short(n).is_some() || is_torch_name(n) || is_torch_symbol(n) || self.sizes.contains(n) {
            return None;
        }
        let d = Diagnostic::new(Code::E0009, format!("unknown name `{n}`"));
        if self.nodes.contains(n) {
            let d = d.at(span, "a node's name begins with `%`");
            self.errors
                .push(d.fix(span, format!("%{n}"), "write the node with `%`"));
            return Some(ValueKind::Node(n.into()));
        }
        if let Some((shown, kind)) = names::foreign_constant(n) {
            let d = d.at(span, "this is not FXIR syntax");
            self.errors.push(d.fix(span, shown, "use FXIR's spelling"));
            return Some(kind);
        }
        let d = d.at(
            span,
            "neither a dtype, a name in the torch module, nor a size declared in this file",
        );
        if let Some(dtype) = names::foreign_dtype(n) {
            let kind = ValueKind::Name(dtype.as_str().into());
            self.errors.push(d.fix(span, dtype, "use torch's name for the dtype"));
            return Some(kind);
        }
        let near = self.known.nearest(n).map(String::from);
        self.errors.push(match near.or_else(|| names::near_dtype(n)) {
            Some(near) => d.suggest(span, near, "there is a similar name"),
            None if n.contains('.') => d.help(format!("write `\"{n}\"` for a string")),
            None => d.help(format!("write `\"{n}\"` for a string, `%{n}` for a node")),
        });
        Some(ValueKind::Unknown)
    }
}

/// Reports keyword arguments of functions of sizes and conditions, which are positional only.
fn named_argument(f: &Name, args: &Args) -> Option<Diagnostic> {
    let (k, _) = args.keyword.first()?;
    let d = Diagnostic::new(Code::E0012, format!("`{}` takes no keyword arguments", f.text));
    Some(d.at(k.span, "this argument is passed by keyword"))
}

/// Runs the checks of [`check`] on the calls in a value that is not from a file.
pub(super) fn check_calls(value: &Value, errors: &mut Vec<Diagnostic>) {
    value.visit(&mut |v| match &v.kind {
        ValueKind::Call(f, args) if !super::actions::is_value_call(&f.text) => errors.extend(named_argument(f, args)),
        _ => {}
    });
}

fn is_arithmetic(op: BinaryOp) -> bool {
    use BinaryOp::*;
    matches!(op, Add | Sub | Mul | FloorDiv | Mod | Pow)
}
