//! Assignments and `return`.

use super::{FunctionLowerer, name_of};
use crate::source::Span;
use crate::syntax::actions::make_stmt;
use crate::syntax::ast::{CallKind, Name, Op, Type, Value, ValueKind};
use crate::syntax::python_text::lower::flattened::flattened_params;
use crate::syntax::python_text::tree::{Arg, Def, Expr, ExprKind, Simple};
use crate::syntax::python_text::value::call_op;
use std::sync::Arc;

impl FunctionLowerer<'_> {
    pub(super) fn lower_assign(&mut self, s: &Simple, targets: &[Expr], ty: Option<&Expr>, value: &Expr) {
        if let [target] = targets
            && let ExprKind::Index(base, index) = &target.kind
        {
            let values = vec![self.lower_value(base), self.lower_value(index), self.lower_value(value)];
            let written = values[0].clone();
            self.start_pending(
                call_op(CallKind::Function, "operator.setitem", s.span, values),
                s.span,
                written,
                None,
            );
            return;
        }
        if let [target] = targets
            && let ExprKind::Tuple(names) = &target.kind
        {
            self.lower_unpack(s, names, value);
            return;
        }
        let names: Vec<(Arc<str>, Span)> = targets.iter().filter_map(|t| Some((name_of(t)?, t.span))).collect();
        if names.len() != targets.len() {
            self.report_unreadable(s.span, "only a name can be assigned to here");
            return;
        }
        let ty = ty.and_then(|t| self.lower_annotation(t));
        let bound = self.lower_assigned_value(s, &names[0], ty, value);
        for (name, _) in names {
            self.env.insert(name, bound.clone());
        }
    }

    /// The new value of an assignment's first target.
    fn lower_assigned_value(&mut self, s: &Simple, first: &(Arc<str>, Span), ty: Option<Type>, value: &Expr) -> Value {
        if let ExprKind::Name(n) = &value.kind
            && let Some(&i) = self.params.get(n)
            && self.stmts.iter().all(|s| matches!(s.op, Op::Placeholder { .. }))
            && !self.params.contains_key(&first.0)
        {
            // `l_x_ = L_x_`: the node's name differs from the parameter's.
            self.params.remove(n);
            self.defined.remove(n);
            self.defined.insert(first.0.clone());
            self.stmts[i].name = Some(Name::new(first.0.clone(), first.1));
            self.bind_node(n, first.0.clone(), first.1);
            return Value::new(ValueKind::Node(first.0.clone()), first.1);
        }
        if let Some(graph) = self.child_graph(value) {
            return Value::new(ValueKind::Graph(graph), value.span);
        }
        let plain = self.is_plain(value);
        match (!plain).then(|| self.lower_operation(value)).flatten() {
            Some(op) => {
                let name = self.free_for(&first.0);
                let mut node = make_stmt(Some(Name::new(name.clone(), first.1)), ty, op, self.loc.clone(), s.span);
                node.ty = node.ty.or_else(|| self.annotated.remove(&first.0));
                self.stmts.push(node);
                Value::new(ValueKind::Node(name), first.1)
            }
            None => self.lower_value(value),
        }
    }

    /// Whether an expression is a value that needs no node.
    fn is_plain(&self, e: &Expr) -> bool {
        match &e.kind {
            ExprKind::Attr(..) => self.global_path(e).is_some(),
            ExprKind::Call(..) | ExprKind::Index(..) | ExprKind::Unary(..) | ExprKind::Binary(..) => false,
            _ => true,
        }
    }

    /// The flattened arguments of `forward`, which replace its parameters as the graph's inputs.
    fn lower_flattened_inputs(&mut self, s: &Simple, names: &[Expr], value: &Expr) {
        self.stmts.retain(|s| !matches!(s.op, Op::Placeholder { .. }));
        self.flattened = flattened_params(value);
        for e in names {
            // torch also flattens the module itself, which is not an input of the graph.
            let Some(name) = name_of(e).filter(|n| !self.is_self(n)) else {
                continue;
            };
            let ty = self.annotated.remove(&name);
            let target = Name::new(name.clone(), e.span);
            self.bind_node(&name, name.clone(), e.span);
            let op = Op::Placeholder {
                target: target.clone(),
                default: None,
            };
            self.stmts.push(make_stmt(Some(target), ty, op, None, s.span));
        }
    }

    /// `a, b, = fx_pytree.tree_flatten_spec(…)` names the placeholders; any other tuple is unpacked.
    fn lower_unpack(&mut self, s: &Simple, names: &[Expr], value: &Expr) {
        if let ExprKind::Call(f, _) = &value.kind
            && self
                .global_path(f)
                .is_some_and(|p| p.ends_with("tree_flatten_spec") || p.ends_with("tree_leaves"))
        {
            return self.lower_flattened_inputs(s, names, value);
        }
        let from = self.lower_value(value);
        for (i, e) in names.iter().enumerate() {
            let Some(name) = name_of(e) else {
                self.report_unreadable(e.span, "only a name can be assigned to here");
                continue;
            };
            let index = Value::new(ValueKind::Int(i as i64), e.span);
            let op = call_op(
                CallKind::Function,
                "operator.getitem",
                e.span,
                vec![from.clone(), index],
            );
            let node = self.free_for(&name);
            let loc = self.loc.clone();
            self.stmts
                .push(make_stmt(Some(Name::new(node.clone(), e.span)), None, op, loc, e.span));
            self.bind_node(&name, node, e.span);
        }
    }

    pub(super) fn lower_return(&mut self, s: &Simple, value: Option<&Expr>, def: &Def) {
        // `return pytree.tree_unflatten([add], self._out_spec)`: the list is the graph's result.
        let unflattened = value.and_then(|v| match &v.kind {
            ExprKind::Call(f, args) if self.global_path(f).is_some_and(|p| p.ends_with("tree_unflatten")) => {
                match args.first() {
                    Some(Arg::Positional(e)) => Some(e),
                    _ => None,
                }
            }
            _ => None,
        });
        self.unflattened |= unflattened.is_some();
        let value = match unflattened.or(value) {
            Some(e) => self.lower_value(e),
            None => Value::new(ValueKind::None, s.span),
        };
        let ty = def.returns.as_ref().and_then(|t| self.lower_annotation(t));
        self.stmts.push(make_stmt(None, ty, Op::Output { value }, None, s.span));
    }
}
