//! Statements that write in place: `a += b` and `a[i] = b`. torch names their nodes in the next statement.

use super::{FunctionLowerer, name_of};
use crate::source::Span;
use crate::syntax::actions::make_stmt;
use crate::syntax::ast::{CallKind, Name, Op, Value, ValueKind};
use crate::syntax::python_text::tree::{Expr, ExprKind, Simple};
use crate::syntax::python_text::value::call_op;
use std::sync::Arc;

/// An in-place statement without a name.
pub(super) struct Pending {
    /// Its index in the statements.
    index: usize,
    /// The value that it writes to.
    written: Value,
    /// The name to bind to the result if the text does not name it as torch does.
    rebinds: Option<Arc<str>>,
}

impl FunctionLowerer<'_> {
    /// Adds the node of `a += b` or `a[i] = b`, whose name comes later.
    pub(super) fn start_pending(&mut self, op: Op, span: Span, written: Value, rebinds: Option<Arc<str>>) {
        let loc = self.loc.clone();
        self.stmts.push(make_stmt(None, None, op, loc, span));
        let index = self.stmts.len() - 1;
        self.pending = Some(Pending {
            index,
            written,
            rebinds,
        });
    }

    pub(super) fn in_place(&mut self, s: &Simple, op: &str, target: &Expr, value: &Expr) {
        let name = match op {
            "+" => "iadd",
            "-" => "isub",
            "*" => "imul",
            "/" => "itruediv",
            "//" => "ifloordiv",
            "%" => "imod",
            "@" => "imatmul",
            "&" => "iand",
            "|" => "ior",
            "^" => "ixor",
            "<<" => "ilshift",
            ">>" => "irshift",
            _ => "ipow",
        };
        let values = vec![self.lower_value(target), self.lower_value(value)];
        let written = values[0].clone();
        let variable = name_of(target);
        if variable.is_none() {
            self.report_unreadable(target.span, "only a name can be written to in place");
        }
        let op = call_op(CallKind::Function, &format!("operator.{name}"), s.span, values);
        self.start_pending(op, s.span, written, variable);
    }

    /// torch names the node of `a += b` in the next statement: `iadd = a`, or fxc's `setitem = None`.
    pub(super) fn names_pending(&mut self, name: &Arc<str>, span: Span, value: &Expr) -> bool {
        let Some(Pending { index, written, .. }) = &self.pending else {
            return false;
        };
        let index = *index;
        let same = match (&value.kind, &written.kind) {
            (ExprKind::None, _) => true,
            (ExprKind::Name(n), ValueKind::Node(w)) => self
                .lookup_name(n)
                .is_some_and(|v| matches!(&v.kind, ValueKind::Node(b) if b == w)),
            _ => false,
        };
        if !same {
            return false;
        }
        self.pending = None;
        let name = self.free_for(name);
        self.stmts[index].name = Some(Name::new(name.clone(), span));
        self.bind_node(&name.clone(), name, span);
        true
    }

    /// Handles an in-place node that the text does not name: the text is not from torch, so the target is bound to the
    /// result.
    pub(super) fn settle_pending(&mut self) {
        let Some(Pending {
            index,
            written,
            rebinds,
        }) = self.pending.take()
        else {
            return;
        };
        let Op::Call { target, .. } = &self.stmts[index].op else {
            return;
        };
        let wish = target.text.rsplit('.').next().unwrap_or("iadd").to_string();
        let name = self.fresh_name(&wish);
        self.stmts[index].name = Some(Name::new(name.clone(), written.span));
        if let Some(variable) = rebinds {
            self.bind_node(&variable, name, written.span);
        }
    }
}
