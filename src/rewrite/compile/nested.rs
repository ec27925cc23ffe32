//! One-line rules such as `relu(%n = abs(%x)) => %n`, in which calls are nested. Each call becomes a node, as if it
//! were a separate statement.

use super::{NamedCall, RuleSide};
use crate::diag::{Code, Diagnostic};
use crate::graph::namer::candidate_name;
use crate::graph::{Arg, Opcode};
use crate::rewrite::condition::FUNCTIONS;
use crate::source::Span;
use crate::syntax::ast::{self, Args, BinaryOp, Binding, Name, RewriteParam, Value, ValueKind};
use crate::types::Val;
use std::collections::HashSet;
use std::sync::Arc;

/// The default name of a side's result, unless the rule names it or uses this name for something else.
const RESULT: &str = "r";

/// The parameters of a one-line rule: the names in its pattern that it does not bind to a call, in source order.
pub(super) fn implied_parameters(pattern: &ast::Body) -> Vec<RewriteParam> {
    let mut nodes = HashSet::new();
    let mut typed = HashSet::new();
    visit_values(pattern, &mut |v| {
        if let ValueKind::Bound(b) = &v.kind {
            let set = if b.value.is_some() { &mut nodes } else { &mut typed };
            set.insert(b.name.text.clone());
        }
    });
    let mut seen: HashSet<String> = HashSet::new();
    let mut out = vec![];
    visit_values(pattern, &mut |v| match &v.kind {
        ValueKind::Bound(b) if b.value.is_none() => out.push(RewriteParam::Node(b.name.clone(), b.ty.clone())),
        ValueKind::Node(n) if !nodes.contains(n) && !typed.contains(n) && seen.insert(format!("%{n}")) => {
            out.push(RewriteParam::Node(Name::new(&**n, v.span), None));
        }
        ValueKind::Literal(n) if seen.insert(format!("${n}")) => {
            out.push(RewriteParam::Literal(Name::new(&**n, v.span)));
        }
        ValueKind::Rest(n) if seen.insert(format!("*{n}")) => out.push(RewriteParam::Rest(Name::new(&**n, v.span))),
        _ => {}
    });
    out
}

/// The names of nodes in a side.
pub(super) fn mentioned_names(side: &ast::Body) -> HashSet<Arc<str>> {
    let mut out = HashSet::new();
    visit_values(side, &mut |v| match &v.kind {
        ValueKind::Node(n) => out.extend([n.clone()]),
        ValueKind::Bound(b) => out.extend([b.name.text.clone()]),
        _ => {}
    });
    out
}

fn visit_values<'a>(side: &'a ast::Body, f: &mut dyn FnMut(&'a Value)) {
    side.result().into_iter().for_each(|v| v.visit(f));
}

impl RuleSide<'_> {
    /// Whether a call of `f` is an op and not a function of rules.
    pub(super) fn is_op(&self, f: &Name) -> bool {
        self.nests && !FUNCTIONS.iter().any(|(n, _, _)| *n == &*f.text)
    }

    /// Compiles the result of a side. A call gets a name even if the text has none for it.
    pub(super) fn compile_result(&mut self, v: &Value) -> Arg {
        match &v.kind {
            ValueKind::Call(f, args) if self.is_op(f) => {
                let name = self.fresh_name(RESULT);
                self.call_of(f, args, &name, None, v.span, v.span)
            }
            ValueKind::Call(f, _) => {
                let title = format!("`{}` is a rule function here, not an op", f.text);
                let help = format!("write the op with its module: `torch.{}`", f.text);
                self.out.push(
                    Diagnostic::new(Code::E0801, title)
                        .at(f.span, "this must be an op")
                        .help(help),
                );
                Val::Unknown
            }
            ValueKind::Binary(op, ..) if *op != BinaryOp::Or => {
                let d = Diagnostic::new(
                    Code::E0801,
                    format!("`{}` is arithmetic on numbers, not an op", op.symbol()),
                );
                let d = d.at(v.span, "this must be an op");
                self.out.push(d.help("write the op: `add(%x, %y)`"));
                Val::Unknown
            }
            _ => self.value(v),
        }
    }

    /// Compiles a nested call without a name.
    pub(super) fn compile_nested(&mut self, f: &Name, args: &Args, span: Span) -> Arg {
        let name = self.fresh_name(&candidate_name(&f.text, true));
        let value = self.call_of(f, args, &name, None, span, span);
        if let Val::Leaf(n) = value {
            self.unnamed.insert(n);
        }
        value
    }

    /// Compiles `%n = relu(%x)` or `%x : f32[2]`.
    pub(super) fn compile_bound(&mut self, b: &Binding, span: Span) -> Arg {
        let value = match &b.value {
            None if !self.replacement => return self.resolve_name(&b.name.text, span),
            value => value.as_ref(),
        };
        match value.map(|v| &v.kind) {
            Some(ValueKind::Call(f, args)) if self.is_op(f) => {
                self.call_of(f, args, &b.name.text, b.ty.as_ref(), span, b.name.span)
            }
            Some(ValueKind::Binary(BinaryOp::Or, ..)) if !self.replacement => {
                let list = value.map_or(vec![], |v| self.operands_of_or(v));
                let node = self.add_alternatives(&b.name.text, list, span);
                if node.is_none() {
                    self.defined_twice(&b.name.text, b.name.span);
                }
                node.map_or(Val::Unknown, Val::Leaf)
            }
            _ => {
                let [title, label, help] = match value {
                    None => [
                        "a replacement cannot contain types",
                        "type given here",
                        "move the type to the pattern",
                    ],
                    Some(_) => [
                        "a name for something other than a call",
                        "only calls and alternatives can be named",
                        "remove the name",
                    ],
                };
                self.out
                    .push(Diagnostic::new(Code::E0801, title).at(span, label).help(help));
                Val::Unknown
            }
        }
    }

    fn call_of(
        &mut self,
        target: &Name,
        args: &Args,
        name: &str,
        ty: Option<&ast::Type>,
        span: Span,
        named: Span,
    ) -> Arg {
        let op = Opcode::CallFunction;
        let node = self.call(
            NamedCall {
                op,
                target,
                args,
                name,
                ty,
                span,
            },
            named,
        );
        node.map_or(Val::Unknown, Val::Leaf)
    }

    /// An unused name for a node without one.
    fn fresh_name(&self, base: &str) -> String {
        let free = |n: &String| !self.mentioned.contains(n.as_str()) && !self.known.contains_key(n);
        let numbered = (1..).map(|i| format!("{base}_{i}"));
        std::iter::once(base.to_string())
            .chain(numbered)
            .find(free)
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use crate::diag::Code;
    use crate::graph::GraphModule;
    use crate::infer::{InferOptions, infer};
    use crate::rewrite::{RewriteOptions, Rule, compile, rewrite};
    use crate::source::FileId;
    use crate::syntax::parse_text;

    const MODEL: &str = "graph g { %x : f32[2, 3] = placeholder x  %y : f32[2, 3] = placeholder y
        %n = call_method neg(%x)  %a = call_function torch.abs(%n)  %s = call_function torch.add(%a, %y)
        %c = call_function torch.cat([%s, %x, %y], 1)
        %e = call_function torch.add(%y, %x)  %t = call_function torch.mul(%e, 0.5)
        output (%c, %t) }";

    fn rule(text: &str) -> Rule {
        let (tree, found) = parse_text(FileId(0), text);
        assert!(found.is_empty(), "{text}: {found:#?}");
        let (mut rules, found) = compile(&tree);
        assert!(found.is_empty() && rules.len() == 1, "{text}: {found:#?}");
        rules.remove(0)
    }

    /// The model after applying a rule, and the number of times it fired.
    fn rewritten(text: &str) -> (String, usize) {
        let (tree, _) = parse_text(FileId(0), MODEL);
        let (mut module, _): (GraphModule, _) = crate::graph::build(&tree, "g");
        infer(&mut module, &InferOptions::default());
        let rule = rule(text);
        let report = rewrite(&mut module, &[rule], &RewriteOptions::default()).expect("the rule applies");
        (crate::graph::print::print(&module), report.total())
    }

    #[test]
    fn a_line_means_its_long_form() {
        for (line, long) in [
            (
                "rewrite f: abs(neg(%x)) => abs(%x)",
                "rewrite f(%x) { %n = call_function neg(%x)  %r = call_function abs(%n)  output %r }
                 => { %r = call_function abs(%x)  output %r }",
            ),
            (
                "rewrite f: add(%n = abs(%x : f32[A, B]), %y) => sub(%y, %m = mul(%n, A + B)) where dtype(%r) == dtype(%n)",
                "rewrite f(%x : f32[A, B], %y) { %n = call_function abs(%x)  %r = call_function add(%n, %y)  output %r }
                 => { %m = call_function mul(%n, A + B)  %r = call_function sub(%y, %m)  output %r }
                 where dtype(%r) == dtype(%n)",
            ),
            (
                "rewrite f: cat([add(%x, %y), *%rest], $d) => cat([exp(%x), *%rest], dim=$d) where $d == 1",
                "rewrite f(%x, %y, *%rest, $d) { %a = call_function add(%x, %y)  %r = call_function cat([%a, *%rest], $d)  output %r }
                 => { %exp = call_function exp(%x)  %r = call_function cat([%exp, *%rest], dim=$d)  output %r }
                 where $d == 1",
            ),
            (
                "rewrite f: mul(%e = add(%x, %y) or sub(%x, %y), 0.5 or 2.0) => div(%e, 4.0)",
                "rewrite f(%x, %y) { %a = call_function add(%x, %y)  %b = call_function sub(%x, %y)
                 %e = call_function either(%a, %b)  %r = call_function mul(%e, 0.5 or 2.0)  output %r }
                 => { %r = call_function div(%e, 4.0)  output %r }",
            ),
            (
                "rewrite f: (%a = neg(%x), torch.abs(%a)) => (%m = exp(%x), log(%m))",
                "rewrite f(%x) { %a = call_function neg(%x)  %b = call_function abs(%a)  output (%a, %b) }
                 => { %m = call_function exp(%x)  %log = call_function log(%m)  output (%m, %log) }",
            ),
        ] {
            assert_eq!(rewritten(line), rewritten(long), "{line}");
            assert_eq!(rewritten(line).1, 1, "{line}");
        }
        assert_eq!(rewritten("rewrite f: abs(neg(%r)) => exp(%r)").1, 1);
    }

    #[test]
    fn mistakes_are_found_where_they_are() {
        for (line, code, at, help) in [
            ("f: relu(%x) => %y", Code::E0802, "%y", "use `%y` in the rule's pattern"),
            ("f: relu(%x) => %x where users(%n) == 1", Code::E0802, "%n", "use `%n`"),
            ("f: add(%m, %m = neg(%x)) => %x", Code::E0802, "%m", ""),
            ("f: relu(neg(%x)) => %neg", Code::E0802, "%neg", "use `%neg`"),
            ("f: rleu(%x) => %x", Code::E0201, "rleu", ""),
            ("f: softmax(%x, dmi=1) => %x", Code::E0203, "", ""),
            ("f: max(%x, %y) => %x", Code::E0801, "max", "`torch.max`"),
            ("f: relu(%n = 1) => %x", Code::E0801, "%n = 1", "remove the name"),
            (
                "f: relu(%x) => neg(%x : f32[2])",
                Code::E0801,
                "%x : f32[2]",
                "to the pattern",
            ),
            ("f: add(%n = neg(%x), %n = abs(%x)) => %x", Code::E0103, "%n", ""),
            ("f: relu(%x) => (%x, %x)", Code::E0801, "f", ""),
            ("f: relu(%x) => %x where dtpye(%x) == f32", Code::E0803, "dtpye", ""),
            ("f: relu(%x) => %x where size(%x, dim=1) == 2", Code::E0012, "dim", ""),
            ("f: relu(%x) => %x where (%n = 1, 2) == 2", Code::E0012, "%n = 1", ""),
        ] {
            let text = format!("rewrite {line}\n");
            let (tree, mut found) = parse_text(FileId(0), &text);
            found.extend(compile(&tree).1);
            let first = found
                .iter()
                .next()
                .unwrap_or_else(|| panic!("{line}: nothing is found"));
            let span = first.labels[0].span.range();
            assert_eq!(first.code, code, "{line}: {first:#?}");
            assert!(at.is_empty() || &text[span] == at, "{line}: {first:#?}");
            assert!(format!("{first:?}").contains(help), "{line}: {first:#?}");
        }
    }
}
