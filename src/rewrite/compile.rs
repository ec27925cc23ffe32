//! Compiles rules from their syntax to [`Rule`]s. Both sides become graphs and go through inference like any graph, so
//! unknown ops, invalid arguments and impossible shapes are reported at their location in the rule.

mod names;
mod nested;

use super::Rule;
use super::pattern::{Hole, Pattern};
use crate::diag::words;
use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::graph::{Arg, Graph, GraphModule, NodeId, Opcode};
use crate::infer::{self, InferOptions};
use crate::source::Span;
use crate::syntax::ast::{self, BinaryOp, Item, Op, Value, ValueKind};
use crate::syntax::resolve;
use crate::types::{DType, Val};
use names::RuleNames;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The function that names a set of alternatives in a pattern.
const EITHER: &str = "either";

/// Compiles the rules of a file, in order. A rule with errors is left out; the diagnostics have its errors.
pub fn compile(file: &ast::File) -> (Vec<Rule>, Diagnostics) {
    let mut out = Diagnostics::new();
    let mut rules: Vec<Rule> = vec![];
    let mut first: HashMap<Arc<str>, Span> = HashMap::new();
    for item in &file.items {
        let Item::Rewrite(r) = item else { continue };
        if let Some(&s) = first.get(&r.name.text) {
            let d = Diagnostic::new(Code::E0103, format!("rule `{}` is declared twice", r.name.text));
            out.push(d.at(r.name.span, "declared again here").see(s, "first declared here"));
            continue;
        }
        first.insert(r.name.text.clone(), r.name.span);
        rules.extend(compile_rule(r, &mut out));
    }
    (rules, out)
}

fn compile_rule(r: &ast::Rewrite, out: &mut Diagnostics) -> Option<Rule> {
    let mut findings = Diagnostics::new();
    let mut names = RuleNames::default();
    names.add_parameters(r, &mut findings);
    let pattern = RuleSide::build(r, &names, false, &mut findings);
    let unnamed = pattern.unnamed.clone();
    let pattern = pattern.into_pattern(&r.pattern, &mut findings);
    let fault = pattern.fault().or_else(|| pattern.search_fault());
    if let Some(e) = fault.filter(|_| !findings.has_errors()) {
        let d = Diagnostic::new(Code::E0801, format!("the rule `{}` can never match: {e}", r.name.text));
        findings.push(d.at(r.name.span, "this rule"));
    }
    names.add_nodes(&pattern, &unnamed);
    let replacement = RuleSide::build(r, &names, true, &mut findings);
    let replacement = replacement.into_pattern(&r.replacement, &mut findings);
    if let Some(e) = replacement.fault() {
        let title = format!("the rule `{}` cannot be applied: {e}", r.name.text);
        findings.push(Diagnostic::new(Code::E0801, title).at(r.name.span, "this rule"));
    }
    let (a, b) = (pattern.outputs.len(), replacement.outputs.len());
    if a != b && !findings.has_errors() {
        let (name, results) = (&r.name.text, words::count(a, "result"));
        let title = format!("the pattern of `{name}` has {results}, but its replacement has {b}");
        let d = Diagnostic::new(Code::E0801, title);
        findings.push(d.at(r.name.span, "the numbers of results must be equal"));
    }
    if let Some(c) = &r.condition {
        names.check_condition(c, &mut findings);
    }
    let failed = findings.has_errors();
    out.extend(findings);
    (!failed).then(|| Rule {
        name: r.name.text.clone(),
        mark: r.mark,
        pattern,
        replacement,
        condition: r.condition.clone(),
        span: Some(r.name.span),
    })
}

/// A named call.
struct NamedCall<'b> {
    op: Opcode,
    target: &'b ast::Name,
    args: &'b ast::Args,
    name: &'b str,
    ty: Option<&'b ast::Type>,
    span: Span,
}

/// One side of a rule while its graph is built.
struct RuleSide<'a> {
    graph: Graph,
    holes: HashMap<NodeId, Hole>,
    /// Holes and nodes by name.
    known: HashMap<String, NodeId>,
    names: &'a RuleNames,
    replacement: bool,
    /// Whether calls can be nested, as in a one-line rule.
    nests: bool,
    /// The names of nodes in such a side. Calls without a name do not get any of these.
    mentioned: HashSet<Arc<str>>,
    /// Calls without a name.
    unnamed: HashSet<NodeId>,
    out: &'a mut Diagnostics,
}

impl<'a> RuleSide<'a> {
    fn build(r: &ast::Rewrite, names: &'a RuleNames, replacement: bool, out: &'a mut Diagnostics) -> Built {
        let body = if replacement { &r.replacement } else { &r.pattern };
        let mut s = RuleSide {
            graph: Graph::new(),
            holes: HashMap::new(),
            known: HashMap::new(),
            names,
            replacement,
            nests: r.one_line,
            mentioned: nested::mentioned_names(body),
            unnamed: HashSet::new(),
            out,
        };
        // A pattern has all parameters, so that unused ones are detected; a replacement has only those it uses.
        if !replacement {
            for (name, hole, span) in &names.holes {
                s.add_hole(name, hole.clone(), Some(*span));
            }
        }
        for stmt in &body.stmts {
            s.compile_stmt(stmt);
        }
        Built {
            graph: s.graph,
            holes: s.holes,
            unnamed: s.unnamed,
        }
    }

    fn add_hole(&mut self, name: &str, hole: Hole, span: Option<Span>) -> Option<NodeId> {
        let n = self
            .graph
            .create_named(Opcode::Placeholder, name, vec![], vec![], name)
            .ok()?;
        // Placeholders come first, even if the hole is found later.
        if let Some(first) = self.graph.first().filter(|&f| f != n) {
            let last = self.holes.keys().copied().max().filter(|l| self.graph.is_live(*l));
            match last {
                Some(l) => self.graph.move_after(n, l),
                None => self.graph.move_before(n, first),
            }
        }
        let meta = self.graph.meta_mut(n);
        meta.span = span;
        if let Hole::Value(ty) = &hole
            && *ty != Val::Unknown
        {
            meta.ty = Some(ty.clone());
            meta.declared = true;
        }
        self.holes.insert(n, hole);
        self.known.insert(name.to_string(), n);
        Some(n)
    }

    fn compile_stmt(&mut self, s: &ast::Stmt) {
        let (op, target, args) = match &s.op {
            Op::Placeholder { target, .. } => {
                let d = Diagnostic::new(Code::E0801, "a rule's parameters must follow its name");
                let help = format!("write `rewrite name(%{})`, with a type if it has one", target.text);
                let d = d.at(s.span, "placeholders are not allowed in a rule");
                return self.out.push(d.help(help));
            }
            Op::GetAttr { target } => (Opcode::GetAttr, target, &ast::Args::default()),
            Op::Output { value } => {
                let v = match self.nests {
                    true => self.compile_result(value),
                    false => self.value(value),
                };
                let n = self.graph.set_output(v);
                self.graph.meta_mut(n).span = Some(s.span);
                return;
            }
            Op::Call { kind, target, args } => match kind {
                ast::CallKind::Function => (Opcode::CallFunction, target, args),
                ast::CallKind::Method => (Opcode::CallMethod, target, args),
                ast::CallKind::Module => return self.report_module_call(target),
            },
        };
        let Some(name) = &s.name else { return };
        let call = NamedCall {
            op,
            target,
            args,
            name: &name.text,
            ty: s.ty.as_ref(),
            span: s.span,
        };
        self.call(call, name.span);
    }

    fn report_module_call(&mut self, target: &ast::Name) {
        let d = Diagnostic::new(Code::E0801, "a rule cannot call a module")
            .at(target.span, "modules are specific to one model")
            .help("use the op that the module calls: a pattern with `linear` also matches modules");
        self.out.push(d);
    }

    /// Creates the node of a call, or the hole of alternatives; `named` is the span of its name.
    fn call(&mut self, c: NamedCall, named: Span) -> Option<NodeId> {
        if c.op.is_call() && &*c.target.text == EITHER && !self.replacement {
            return self.either_of(&c, named);
        }
        let args = c.args.positional.iter().map(|v| self.value(v)).collect();
        let keyword = c.args.keyword.iter();
        let kwargs = keyword.map(|(k, v)| (k.text.clone(), self.value(v))).collect();
        let Ok(n) = self.graph.create_named(c.op, &c.target.text, args, kwargs, c.name) else {
            self.defined_twice(c.name, named);
            return None;
        };
        self.known.insert(c.name.to_string(), n);
        let ty = c.ty.map(|t| resolve::ty(t, self.out));
        let meta = self.graph.meta_mut(n);
        meta.span = Some(c.span);
        meta.declared = ty.as_ref().is_some_and(|t| *t != Val::Unknown);
        meta.ty = ty.filter(|t| *t != Val::Unknown);
        let text = self.graph.text_mut(n);
        text.target_span = Some(c.target.span);
        text.arg_spans = c.args.positional.iter().map(|v| v.span).collect();
        Some(n)
    }

    fn defined_twice(&mut self, name: &str, span: Span) {
        let d = Diagnostic::new(Code::E0103, format!("`%{name}` is defined twice"));
        self.out.push(d.at(span, "defined again here"));
    }

    fn value(&mut self, v: &Value) -> Arg {
        let seq = |s: &mut Self, x: &[Value]| x.iter().map(|x| s.value(x)).collect::<Vec<_>>();
        match &v.kind {
            ValueKind::Node(n) => self.resolve_name(n, v.span),
            ValueKind::Literal(n) => self.resolve_name(&format!("${n}"), v.span),
            ValueKind::Rest(n) => self.resolve_name(&format!("*{n}"), v.span),
            ValueKind::List(x) => Val::List(seq(self, x)),
            ValueKind::Tuple(x) => Val::Tuple(seq(self, x)),
            ValueKind::Dict(x) => Val::Dict(x.iter().map(|(k, x)| (self.value(k), self.value(x))).collect()),
            ValueKind::Slice(x) => Val::Slice(Box::new([0, 1, 2].map(|i| self.value(&x[i])))),
            ValueKind::Range(x) => Val::Range(Box::new([0, 1, 2].map(|i| self.value(&x[i])))),
            ValueKind::Binary(BinaryOp::Or, ..) if !self.replacement => self.either_hole(v),
            ValueKind::Call(f, args) if self.is_op(f) => self.compile_nested(f, args, v.span),
            ValueKind::Bound(b) => self.compile_bound(b, v.span),
            ValueKind::Unary(..) | ValueKind::Binary(..) | ValueKind::Call(..) => self.computed_hole(v),
            ValueKind::Name(n) if self.is_size(n) => self.computed_hole(v),
            _ => resolve::value(v, &mut |_, _| None, self.out),
        }
    }

    fn is_size(&self, n: &str) -> bool {
        DType::from_short(n).is_none() && !resolve::is_torch_name(n)
    }

    fn computed_hole(&mut self, v: &Value) -> Arg {
        self.names.check_condition(v, self.out);
        let name = format!("{v}");
        if let Some(&n) = self.known.get(&name) {
            return Val::Leaf(n);
        }
        let n = self.add_hole(&name, Hole::Computed(v.clone()), Some(v.span));
        n.map_or(Val::Unknown, Val::Leaf)
    }

    /// `%a or %b or 1`: a hole for the first of these that matches. It is placed after its alternatives.
    fn either_hole(&mut self, v: &Value) -> Arg {
        let name = format!("{v}");
        if let Some(&n) = self.known.get(&name) {
            return Val::Leaf(n);
        }
        let list = self.operands_of_or(v);
        self.add_alternatives(&name, list, v.span)
            .map_or(Val::Unknown, Val::Leaf)
    }

    fn operands_of_or(&mut self, v: &Value) -> Vec<Arg> {
        let mut list = vec![];
        let mut rest = v;
        while let ValueKind::Binary(BinaryOp::Or, a, b) = &rest.kind {
            list.push(&**b);
            rest = a;
        }
        list.push(rest);
        list.into_iter().rev().map(|v| self.value(v)).collect()
    }

    /// `%r = call_function either(%a, %b, 1)`: a named hole for alternatives.
    fn either_of(&mut self, c: &NamedCall, named: Span) -> Option<NodeId> {
        if let Some((k, _)) = c.args.keyword.first() {
            let d = Diagnostic::new(Code::E0801, "`either` takes no keyword arguments");
            self.out.push(d.at(k.span, "pass alternatives by position"));
        }
        let list: Vec<Arg> = c.args.positional.iter().map(|v| self.value(v)).collect();
        if list.is_empty() {
            let d = Diagnostic::new(Code::E0801, "`either` without alternatives matches nothing");
            self.out.push(d.at(c.span, "an alternative is missing"));
        }
        let node = self.add_alternatives(c.name, list, c.span);
        if node.is_none() {
            self.defined_twice(c.name, named);
        }
        node
    }

    fn add_alternatives(&mut self, name: &str, list: Vec<Arg>, span: Span) -> Option<NodeId> {
        let node = self.graph.create_named(Opcode::Placeholder, name, vec![], vec![], name);
        let n = node.ok()?;
        self.graph.meta_mut(n).span = Some(span);
        self.holes.insert(n, Hole::Either(list));
        self.known.insert(name.to_string(), n);
        Some(n)
    }

    fn resolve_name(&mut self, name: &str, span: Span) -> Arg {
        if self.replacement && self.names.sometimes.contains(name) {
            let sign = if name.starts_with(['$', '*']) { "" } else { "%" };
            let title = format!("only some alternatives of the pattern bind `{sign}{name}`");
            let help = format!("give the value for the other alternatives: `default({sign}{name}, None)`");
            self.out.push(
                Diagnostic::new(Code::E0802, title)
                    .at(span, "this use requires it in every alternative")
                    .help(help),
            );
            return Val::Unknown;
        }
        if let Some(&n) = self.known.get(name) {
            return Val::Leaf(n);
        }
        let hole = self.names.hole(name).filter(|_| self.replacement);
        let node = match hole {
            Some(h) => self.add_hole(name, h, Some(span)),
            None => {
                self.out.push(self.names.unbound_error(name, span));
                None
            }
        };
        node.map_or(Val::Unknown, Val::Leaf)
    }
}

/// A side as a graph without types.
struct Built {
    graph: Graph,
    holes: HashMap<NodeId, Hole>,
    unnamed: HashSet<NodeId>,
}

impl Built {
    /// Runs inference and makes the pattern. Adds inference errors to `out`.
    fn into_pattern(self, body: &ast::Body, out: &mut Diagnostics) -> Pattern {
        if self.graph.output().is_none() {
            let d = Diagnostic::new(Code::E0104, "one side of the rule has no output");
            out.push(d.at(body.close, "it ends here without `output`"));
        }
        let mut module = GraphModule::new("rule", self.graph);
        out.extend(infer::infer(&mut module, &InferOptions::default()));
        let graph = module.graphs.swap_remove("rule").unwrap_or_default();
        Pattern::new(graph, self.holes)
    }
}
