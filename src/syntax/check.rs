//! What the grammar lets through and no graph can mean: bare names that are nothing, arithmetic where no size stands,
//! names of a rule outside of rules. Checked on the tree, so that the whole file is reported in one run.

use super::ast::*;
use super::resolve::{is_torch_name, is_torch_symbol};
use crate::diag::{Code, Diagnostic, nearest};
use crate::source::Span;
use crate::types::DType;
use std::collections::BTreeSet;

/// Adds to `errors` what is wrong with the values of `file`.
pub fn check(file: &File, errors: &mut Vec<Diagnostic>) {
    let mut sizes = BTreeSet::new();
    file.items.iter().for_each(|i| sizes_of(i, &mut sizes));
    let mut c = Check {
        sizes,
        errors,
        nodes: BTreeSet::new(),
        rule: false,
    };
    for item in &file.items {
        match item {
            Item::Const(x) => x.value.iter().for_each(|v| c.value(v)),
            Item::Graph(g) => c.body(&g.body),
            Item::Rewrite(r) => c.rewrite(r),
            Item::Module(m) => c.module(m),
            Item::Weights(_) | Item::Tensor(_) | Item::Dim(_) | Item::Guard(_) | Item::Pointwise(_) => {}
            Item::Signature(_) | Item::Frame(_) | Item::Scope(_) => {}
        }
    }
}

/// The names of symbolic sizes an item declares or uses in a type.
fn sizes_of(item: &Item, sizes: &mut BTreeSet<String>) {
    fn body(b: &Body, sizes: &mut BTreeSet<String>) {
        b.stmts.iter().filter_map(|s| s.ty.as_ref()).for_each(|t| ty(t, sizes));
    }
    fn ty(t: &Type, sizes: &mut BTreeSet<String>) {
        match &t.kind {
            TypeKind::Tensor { shape, .. } => shape.iter().flatten().for_each(|v| names(v, sizes)),
            TypeKind::Tuple(v) | TypeKind::List(v) => v.iter().for_each(|t| ty(t, sizes)),
            TypeKind::Dict(v) => v.iter().for_each(|(_, t)| ty(t, sizes)),
            TypeKind::Size(v) => names(v, sizes),
            TypeKind::Word(_) | TypeKind::Python(_) | TypeKind::Unknown => {}
        }
    }
    fn names(v: &Value, sizes: &mut BTreeSet<String>) {
        match &v.kind {
            ValueKind::Name(n) => {
                sizes.insert(n.to_string());
            }
            ValueKind::Unary(_, a) => names(a, sizes),
            ValueKind::Binary(_, a, b) => {
                names(a, sizes);
                names(b, sizes);
            }
            ValueKind::Call(_, args) => args.iter().for_each(|a| names(a, sizes)),
            _ => {}
        }
    }
    match item {
        Item::Dim(d) => {
            sizes.insert(d.name.text.to_string());
        }
        Item::Guard(g) => names(&g.condition, sizes),
        Item::Const(c) => ty(&c.ty, sizes),
        Item::Tensor(t) => ty(&t.ty, sizes),
        Item::Graph(g) => body(&g.body, sizes),
        Item::Rewrite(r) => {
            for p in &r.params {
                if let RewriteParam::Node(_, Some(t)) = p {
                    ty(t, sizes);
                }
            }
            body(&r.pattern, sizes);
            body(&r.replacement, sizes);
        }
        Item::Weights(_) | Item::Module(_) | Item::Pointwise(_) => {}
        Item::Signature(_) | Item::Frame(_) | Item::Scope(_) => {}
    }
}

struct Check<'e> {
    sizes: BTreeSet<String>,
    errors: &'e mut Vec<Diagnostic>,
    /// The nodes of the body at hand, for "did you mean".
    nodes: BTreeSet<String>,
    /// Whether a rewrite rule is at hand, where literals and conditions may stand.
    rule: bool,
}

impl Check<'_> {
    fn rewrite(&mut self, r: &Rewrite) {
        self.rule = true;
        self.body(&r.pattern);
        self.body(&r.replacement);
        if let Some(c) = &r.condition {
            self.value(c);
        }
        self.rule = false;
    }

    fn body(&mut self, b: &Body) {
        let named = b.stmts.iter().filter_map(|s| s.name.as_ref());
        self.nodes = named.map(|n| n.text.to_string()).collect();
        for s in &b.stmts {
            match &s.op {
                Op::Placeholder { default, .. } => default.iter().for_each(|v| self.value(v)),
                Op::GetAttr { .. } => {}
                Op::Call { args, .. } => {
                    args.positional.iter().for_each(|v| self.value(v));
                    args.keyword.iter().for_each(|(_, v)| self.value(v));
                }
                Op::Output { value } => self.value(value),
            }
        }
    }

    /// torch prints strings of a module bare (`padding_mode=circular`), so names are strings there.
    fn module(&mut self, m: &ModuleDecl) {
        let keyword = m.args.keyword.iter().map(|(_, v)| v);
        for v in m.args.positional.iter().chain(keyword) {
            if !matches!(v.kind, ValueKind::Name(_)) {
                self.value(v);
            }
        }
    }

    fn value(&mut self, v: &Value) {
        match &v.kind {
            ValueKind::Name(n) => self.name(n, v.span),
            ValueKind::Literal(n) if !self.rule => self.misplaced(v.span, &format!("`${n}`")),
            ValueKind::Rest(n) if !self.rule => self.misplaced(v.span, &format!("`*%{n}`")),
            ValueKind::Unknown => {
                let d = Diagnostic::new(Code::E0012, "`?` is not a value")
                    .at(v.span, "an unknown size stands only in types");
                self.errors.push(d);
            }
            ValueKind::List(x) | ValueKind::Tuple(x) => x.iter().for_each(|x| self.value(x)),
            ValueKind::Dict(x) => x.iter().for_each(|(k, x)| {
                self.value(k);
                self.value(x);
            }),
            ValueKind::Slice(x) | ValueKind::Range(x) => x.iter().for_each(|x| self.value(x)),
            ValueKind::Unary(op, a) => {
                if *op == UnaryOp::Not && !self.rule {
                    return self.misplaced(v.span, "`not`");
                }
                self.operand(a);
            }
            ValueKind::Binary(op, a, b) => {
                if !self.rule && !arithmetic(*op) {
                    return self.misplaced(v.span, &format!("`{}`", op.symbol()));
                }
                self.operand(a);
                self.operand(b);
            }
            ValueKind::Call(f, args) => self.call(f, args),
            _ => {}
        }
    }

    fn call(&mut self, f: &Name, args: &[Value]) {
        if super::actions::is_value_call(&f.text) {
            return; // Reported where it was read.
        }
        let size = matches!(&*f.text, "max" | "min") && args.len() == 2;
        if !size && !self.rule {
            let known = ["slice", "range", "device", "opaque", "max", "min"];
            let mut d = Diagnostic::new(Code::E0012, format!("`{}(…)` is not a value", f.text))
                .at(f.span, "no literal is written so")
                .help("to call an op, give the call a node of its own: `%y = call_function …`");
            if let Some(n) = nearest(&f.text, known) {
                d = d.suggest(f.span, n, "a literal with a similar name exists");
            }
            self.errors.push(d);
        }
        args.iter().for_each(|a| self.value(a));
    }

    /// Outside of rules arithmetic is on sizes.
    fn operand(&mut self, v: &Value) {
        let size = matches!(
            v.kind,
            ValueKind::Int(_) | ValueKind::Name(_) | ValueKind::Unary(..) | ValueKind::Binary(..) | ValueKind::Call(..)
        );
        if !size && !self.rule {
            let d = Diagnostic::new(Code::E0012, "arithmetic on what is not a size")
                .at(v.span, "only integers and symbolic sizes can be computed with here")
                .help("to compute with a node, call an op: `%y = call_function add(%x, 1)`");
            self.errors.push(d);
        } else {
            self.value(v);
        }
    }

    fn misplaced(&mut self, span: Span, what: &str) {
        let d = Diagnostic::new(Code::E0012, format!("{what} outside of a rewrite rule"))
            .at(span, "only rules have literals to match and conditions");
        self.errors.push(d);
    }

    fn name(&mut self, n: &str, span: Span) {
        if DType::from_short(n).is_some() || is_torch_name(n) || is_torch_symbol(n) || self.sizes.contains(n) {
            return;
        }
        let d = Diagnostic::new(Code::E0009, format!("unknown name `{n}`"));
        let d = if self.nodes.contains(n) {
            d.at(span, "a node's name begins with `%`")
                .suggest(span, format!("%{n}"), "to use the node")
        } else {
            let d = d.at(
                span,
                "not a dtype, not a name of the torch module, and no size of this file",
            );
            let shorts = DType::all().map(DType::short).map(String::from);
            let known: Vec<String> = self.sizes.iter().cloned().chain(shorts).collect();
            match nearest(n, known.iter().map(String::as_str)) {
                Some(near) => d.suggest(span, near, "a similar name exists"),
                None => d.help(format!("write `\"{n}\"` for a string, `%{n}` for a node")),
            }
        };
        self.errors.push(d);
    }
}

fn arithmetic(op: BinaryOp) -> bool {
    use BinaryOp::*;
    matches!(op, Add | Sub | Mul | FloorDiv | Mod)
}
