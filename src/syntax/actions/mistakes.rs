//! Mistakes that the grammar accepts in order to explain them.

use super::{FxirContext, OPCODES, ty};
use crate::diag::{Code, Diagnostic, nearest};
use crate::source::Span;
use crate::syntax::ast::*;

impl FxirContext {
    /// Reports `x = …` without `%`, which means `%x = …`.
    pub(in crate::syntax) fn missing_percent(&mut self, name: &str, l: usize, r: usize) -> Name {
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
    pub(in crate::syntax) fn missing_opcode(&mut self, name: &str, args: Args, l: usize, r: usize) -> Option<Op> {
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
    pub(in crate::syntax) fn unknown_opcode(
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
    pub(in crate::syntax) fn in_parens(&mut self, v: Value, l: usize, r: usize) -> Value {
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
    pub(in crate::syntax) fn type_in_parens(&mut self, t: Type, l: usize, r: usize) -> Type {
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
}
