//! The names of a rule, and checks of their use in its expressions.

use super::nested;
use crate::diag::words;
use crate::diag::{Code, Diagnostic, Diagnostics, nearest};
use crate::graph::NodeId;
use crate::rewrite::condition::FUNCTIONS;
use crate::rewrite::pattern::{Hole, Pattern};
use crate::source::Span;
use crate::syntax::ast::{self, RewriteParam, Value, ValueKind};
use crate::syntax::resolve;
use crate::types::{Type, Val};
use std::collections::HashSet;
use std::sync::Arc;

/// The names of a rule.
#[derive(Default)]
pub(super) struct RuleNames {
    /// `%x`, `$a` (with the sign) and `*xs`, each with its hole.
    pub(super) holes: Vec<(Arc<str>, Hole, Span)>,
    /// Nodes of the pattern that the replacement and condition may use, with their types.
    nodes: Vec<(Arc<str>, Type)>,
    /// Parameters and nodes that only some alternatives of the pattern bind.
    pub(super) sometimes: HashSet<Arc<str>>,
    sizes: HashSet<Arc<str>>,
    /// Whether it is a one-line rule. Its parameters are the names in its pattern.
    one_line: bool,
}

impl RuleNames {
    /// Adds the parameters of a rule.
    pub(super) fn add_parameters(&mut self, r: &ast::Rewrite, out: &mut Diagnostics) {
        self.one_line = r.one_line;
        let implied = r.one_line.then(|| nested::implied_parameters(&r.pattern));
        for p in implied.as_ref().unwrap_or(&r.params) {
            let (name, hole, span): (Arc<str>, Hole, Span) = match p {
                RewriteParam::Node(n, ty) => {
                    let ty = ty.as_ref().map_or(Val::Unknown, |t| resolve::ty(t, out));
                    self.sizes_of(&ty);
                    (n.text.clone(), Hole::Value(ty), n.span)
                }
                RewriteParam::Literal(n) => (format!("${}", n.text).into(), Hole::Literal, n.span),
                RewriteParam::Rest(n) => (format!("*{}", n.text).into(), Hole::Rest, n.span),
            };
            if let Some((_, _, first)) = self.holes.iter().find(|(n, _, _)| *n == name) {
                let d = Diagnostic::new(Code::E0103, format!("parameter `{name}` is declared twice"));
                out.push(d.at(span, "declared again here").see(*first, "first declared here"));
                continue;
            }
            self.holes.push((name, hole, span));
        }
    }

    fn sizes_of(&mut self, ty: &Type) {
        for t in ty.leaves() {
            for d in t.shape.iter().flatten() {
                d.visit_vars(&mut |v| {
                    self.sizes.insert(v.into());
                });
            }
        }
    }

    /// Adds the nodes of the pattern.
    pub(super) fn add_nodes(&mut self, p: &Pattern, unnamed: &HashSet<NodeId>) {
        for n in p.calls().filter(|n| !unnamed.contains(n)) {
            let ty = p.graph[n].meta.ty.clone().unwrap_or(Val::Unknown);
            if p.graph[n].meta.declared {
                self.sizes_of(&ty);
            }
            self.nodes.push((p.name(n).into(), ty));
        }
        for (n, hole) in p.holes() {
            if matches!(hole, Hole::Either(_)) {
                self.nodes.push((p.name(n).into(), Val::Unknown));
            }
        }
        self.sometimes = p.sometimes_bound().map(|n| p.name(n).into()).collect();
    }

    /// The hole that a name refers to.
    pub(super) fn hole(&self, name: &str) -> Option<Hole> {
        let param = self
            .holes
            .iter()
            .find(|(n, _, _)| &**n == name)
            .map(|(_, h, _)| h.clone());
        let node = || self.nodes.iter().find(|(n, _)| &**n == name);
        param.or_else(|| node().map(|(_, t)| Hole::Value(t.clone())))
    }

    /// The error for an unbound name.
    pub(super) fn unbound_error(&self, name: &str, span: Span) -> Diagnostic {
        let shown = if name.starts_with(['$', '*']) {
            name.to_string()
        } else {
            format!("%{name}")
        };
        let d = Diagnostic::new(Code::E0802, format!("`{shown}` is not bound"))
            .at(span, "neither a parameter of the rule nor a node in its pattern");
        let known: Vec<&str> = self
            .holes
            .iter()
            .map(|(n, _, _)| &**n)
            .chain(self.nodes.iter().map(|(n, _)| &**n))
            .collect();
        match nearest(name, known) {
            Some(n) => d.help(format!("there is a similar name: `{n}`")),
            None if self.one_line => d.help(format!(
                "use `{shown}` in the rule's pattern, or bind it to a part of the pattern: `{shown} = …`"
            )),
            None => d.help(format!("add `{shown}` to the rule's parameters")),
        }
    }

    /// Reports invalid names and calls in an expression.
    pub(super) fn check_condition(&self, v: &Value, out: &mut Diagnostics) {
        let mut each = |x: &[Value]| x.iter().for_each(|x| self.check_condition(x, out));
        match &v.kind {
            ValueKind::Node(n) if self.hole(n).is_none() && self.hole(&format!("*{n}")).is_none() => {
                out.push(self.unbound_error(n, v.span));
            }
            ValueKind::Literal(n) if self.hole(&format!("${n}")).is_none() => {
                out.push(self.unbound_error(&format!("${n}"), v.span));
            }
            ValueKind::Rest(n) if self.hole(&format!("*{n}")).is_none() => {
                out.push(self.unbound_error(&format!("*{n}"), v.span));
            }
            ValueKind::List(x) | ValueKind::Tuple(x) => each(x),
            ValueKind::Slice(x) | ValueKind::Range(x) => each(&x[..]),
            ValueKind::Unary(_, a) => self.check_condition(a, out),
            ValueKind::Binary(_, a, b) => {
                self.check_condition(a, out);
                self.check_condition(b, out);
            }
            ValueKind::Call(f, args) => {
                each(&args.positional);
                check_call(f, &args.positional, out);
            }
            _ => {}
        }
    }
}

fn check_call(f: &ast::Name, args: &[Value], out: &mut Diagnostics) {
    let arg_count = args.len();
    let of_name = matches!(&*f.text, "bound" | "default");
    let is_name = |v: &Value| {
        let v = &v.kind;
        matches!(v, ValueKind::Node(_) | ValueKind::Literal(_) | ValueKind::Rest(_))
    };
    match FUNCTIONS.iter().find(|(n, _, _)| *n == &*f.text) {
        Some((name, n, _)) if *n == arg_count => {
            if of_name && !args.first().is_some_and(is_name) {
                let d = Diagnostic::new(
                    Code::E0803,
                    format!("`{name}` requires the name of a parameter or node"),
                );
                out.push(d.at(f.span, "called here"));
            }
        }
        Some((name, n, _)) => {
            let d = Diagnostic::new(
                Code::E0803,
                format!("`{name}` takes {}, not {arg_count}", words::count(*n, "argument")),
            );
            out.push(d.at(f.span, "called here"));
        }
        None => {
            let d = Diagnostic::new(Code::E0803, format!("unknown function `{}` in a rule", f.text)).at(f.span, "");
            let names = FUNCTIONS.iter().map(|(n, _, _)| *n);
            out.push(match nearest(&f.text, names.clone()) {
                Some(n) => d.suggest(f.span, n, "there is a function with a similar name"),
                None => d.help(format!("the functions are {}", names.collect::<Vec<_>>().join(", "))),
            });
        }
    }
}
