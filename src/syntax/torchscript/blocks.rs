//! `prim::If` and `prim::Loop`: evaluated where the text determines the control flow, else lowered to calls of graphs.
//!
//! A branch that raises is an assertion. A loop with a known trip count is unrolled, a loop over the rows of a tensor
//! is a `scan` ([`rows`](super::rows)), and any other loop is a `while_loop` that carries the iteration number if its
//! body reads it.

use super::known::bool_value;
use super::lower::{BoundValue, ScriptLowerer, function_call};
use super::objects::{Objects, is_identical};
use super::tree::{Block, Node, Typed};
use super::uses::free_names;
use crate::source::Span;
use crate::syntax::actions::make_stmt;
use crate::syntax::ast::{Op, Stmt, Value, ValueKind};
use std::sync::Arc;

/// The maximum trip count of an unrolled loop, and the maximum number of nodes in a script after unrolling.
const MAX_TURNS: i64 = 1024;
pub(super) const MAX_WORK: usize = 30_000;

/// A block as the statements of a graph.
pub(super) struct Turn {
    /// The statements. They may use nodes of the enclosing graph.
    pub stmts: Vec<Stmt>,
    /// The names of its inputs.
    pub inputs: Vec<Arc<str>>,
    /// Its results.
    pub results: Vec<Value>,
}

/// The state before an attempt to lower a loop, to restore it if the attempt fails.
pub(super) struct Checkpoint {
    stmts: usize,
    graphs: usize,
    errors: usize,
    broken: usize,
    objects: Objects,
}

impl Checkpoint {
    /// The number of errors.
    pub(super) fn error_count(&self) -> usize {
        self.errors
    }
}

impl ScriptLowerer<'_> {
    pub(super) fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            stmts: self.stmts.len(),
            graphs: self.graphs.len(),
            errors: self.errors.len(),
            broken: self.broken.len(),
            objects: self.objects.clone(),
        }
    }

    pub(super) fn rollback(&mut self, to: Checkpoint) {
        self.stmts.truncate(to.stmts);
        self.graphs.truncate(to.graphs);
        self.errors.truncate(to.errors);
        self.broken.truncate(to.broken);
        self.objects = to.objects;
    }

    /// `prim::If`.
    pub(super) fn lower_if(&mut self, n: &Node) {
        let ([yes, no], Some(condition)) = (&n.blocks[..], n.args.first()) else {
            return self.report_unreadable(n, "`prim::If` expects a condition and two blocks");
        };
        let value = self.operand_value(condition);
        let raises = |b: &Block| b.nodes.iter().any(|n| &*n.op == "prim::RaiseException");
        match &value.kind {
            ValueKind::Bool(true) => self.inline_block(n, yes),
            ValueKind::Bool(false) => self.inline_block(n, no),
            _ if raises(no) => {
                self.lower_assert(n, value, no);
                self.inline_block(n, yes);
            }
            _ if raises(yes) => {
                let op = function_call("operator.not_", vec![value], n.span);
                let name = self.push_stmt(op, "", "not_", None, n);
                self.lower_assert(n, Value::new(ValueKind::Node(name), n.span), yes);
                self.inline_block(n, no);
            }
            _ if self.branch_on_items(n, &value, yes, no) => {}
            _ => self.emit_cond(n, value, yes, no),
        }
    }

    /// Lowers the nodes of a block in place.
    fn inline_block(&mut self, n: &Node, block: &Block) {
        for inner in &block.nodes {
            self.lower_node(inner);
        }
        for (o, r) in n.outputs.iter().zip(&block.results) {
            if let Some(bound) = self.lookup_bound(r) {
                self.env.insert(o.name.clone(), bound);
            }
            if let Some(ty) = self.types.get(&r.name).cloned() {
                self.types.insert(o.name.clone(), ty);
            }
        }
    }

    /// The binding of a name. An undefined name is reported and bound to `None`.
    fn lookup_bound(&mut self, v: &Typed) -> Option<BoundValue> {
        let bound = self.env.get(&v.name).cloned();
        bound.or_else(|| Some(BoundValue::Value(self.operand_value(v), false)))
    }

    /// An assertion: the block `raising` raises if the condition is not true. It determines the message.
    fn lower_assert(&mut self, n: &Node, condition: Value, raising: &Block) {
        let mut text = ValueKind::Str("the script raises an exception here".into());
        for inner in &raising.nodes {
            // Messages are constants, or built from constants.
            if matches!(&*inner.op, "prim::Constant" | "aten::format" | "aten::add") {
                self.known_text(inner);
            }
            if let ("prim::RaiseException", Some(a)) = (&*inner.op, inner.args.first())
                && let kind @ ValueKind::Str(_) = self.operand_value(a).kind
            {
                text = kind;
            }
        }
        let text = Value::new(text, n.span);
        self.push_stmt(
            function_call("torch._assert", vec![condition, text], n.span),
            "",
            "assert",
            None,
            n,
        );
    }

    fn known_text(&mut self, n: &Node) {
        if &*n.op == "prim::Constant" {
            self.lower_node(n);
        } else if n.args.iter().all(|a| self.env.contains_key(&a.name)) {
            self.bind_known(n);
        }
    }

    /// `prim::RaiseException` that is not in an assertion.
    pub(super) fn lower_raise(&mut self, n: &Node) {
        let text = n.args.first().map(|a| self.operand_value(a));
        let text = text.unwrap_or_else(|| Value::new(ValueKind::Str("".into()), n.span));
        let never = bool_value(false, n.span);
        self.push_stmt(
            function_call("torch._assert", vec![never, text], n.span),
            "",
            "assert",
            None,
            n,
        );
    }

    /// A branch on a runtime value.
    fn emit_cond(&mut self, n: &Node, condition: Value, yes: &Block, no: &Block) {
        let (mut yes, mut no) = (self.lower_turn(yes, None, &[]), self.lower_turn(no, None, &[]));
        let outputs = self.common_results(n, &mut yes, &mut no);
        if yes.stmts.is_empty() && no.stmts.is_empty() && outputs.is_empty() {
            return;
        }
        let result = |t: &Turn| {
            let value = match &t.results[..] {
                [single] => single.clone(),
                many => Value::new(ValueKind::Tuple(many.to_vec()), n.span),
            };
            make_stmt(None, None, Op::Output { value }, None, n.span)
        };
        let (a, b) = (result(&yes), result(&no));
        let captured = free_names(yes.stmts.iter().chain([&a]).chain(&no.stmts).chain([&b]), &[]);
        let then = self.graph_of("then", yes.stmts, vec![], &captured, a, n);
        let otherwise = self.graph_of("else", no.stmts, vec![], &captured, b, n);
        let make_value = |kind| Value::new(kind, n.span);
        let operands = captured.into_iter().map(|c| make_value(ValueKind::Node(c))).collect();
        let args = vec![
            self.truth_tensor(condition),
            make_value(ValueKind::Graph(then)),
            make_value(ValueKind::Graph(otherwise)),
            make_value(ValueKind::Tuple(operands)),
        ];
        let wish = if let [single] = &outputs[..] { &*single.name } else { "" };
        let name = self.push_stmt(function_call("torch.cond", args, n.span), wish, "cond", None, n);
        let result = make_value(ValueKind::Node(name.clone()));
        match &outputs[..] {
            [] => {}
            [single] => self.bind(single, result.kind, single.ty.is_number()),
            many => self.emit_items(n, many, result),
        }
        outputs.iter().for_each(|o| self.note_maybe_none(o));
    }

    /// Notes the value of an output that may be `None`, because one of the branches returned it.
    fn note_maybe_none(&mut self, o: &Typed) {
        if let (true, Some(BoundValue::Value(v, _))) = (o.ty.may_be_none(), self.env.get(&o.name))
            && let ValueKind::Node(name) = &v.kind
        {
            self.maybe_none.insert(name.clone());
        }
    }

    /// Removes results that are the same literal in both branches; they are known after the branch. Returns the other
    /// outputs, which `cond` returns.
    fn common_results<'n>(&mut self, n: &'n Node, yes: &mut Turn, no: &mut Turn) -> Vec<&'n Typed> {
        let (a, b) = (std::mem::take(&mut yes.results), std::mem::take(&mut no.results));
        let mut left = vec![];
        for ((o, a), b) in n.outputs.iter().zip(a).zip(b) {
            if is_identical(&a.kind, &b.kind) {
                self.bind(o, a.kind, o.ty.is_number());
                continue;
            }
            left.push(o);
            yes.results.push(a);
            no.results.push(b);
        }
        left
    }

    /// The tensor that a bool was converted from, if any.
    pub(super) fn truth_tensor(&self, v: Value) -> Value {
        match &v.kind {
            ValueKind::Node(name) => self.truths.get(name).cloned().unwrap_or(v),
            _ => v,
        }
    }

    /// Lowers a block to a separate graph. `first` is the value of its first parameter, the iteration number; without
    /// it, that parameter is an input, if there is one.
    pub(super) fn lower_turn(&mut self, block: &Block, first: Option<Value>, carried: &[BoundValue]) -> Turn {
        let around = std::mem::take(&mut self.stmts);
        self.objects.level += 1;
        let mut inputs = vec![];
        let mut params = block.inputs.iter();
        if let (Some(value), Some(p)) = (first, params.as_slice().first()) {
            self.bind(p, value.kind, true);
            params.next();
        }
        for (i, p) in params.enumerate() {
            let number = p.ty.is_number() || matches!(carried.get(i), Some(BoundValue::Value(_, true)));
            let name = self.node_name(&p.name, "carried");
            self.bind(p, ValueKind::Node(name.clone()), number);
            self.types.insert(p.name.clone(), p.ty.clone());
            if p.ty.may_be_none() {
                self.maybe_none.insert(name.clone());
            }
            inputs.push(name);
        }
        for n in &block.nodes {
            self.lower_node(n);
        }
        let results = block.results.iter().map(|r| self.operand_value(r)).collect();
        self.objects.level -= 1;
        let stmts = std::mem::replace(&mut self.stmts, around);
        Turn { stmts, inputs, results }
    }

    /// `prim::Loop`.
    pub(super) fn lower_loop(&mut self, n: &Node) {
        let ([body], [count, start, rest @ ..]) = (&n.blocks[..], &n.args[..]) else {
            return self.report_unreadable(n, "`prim::Loop` expects a count, a condition and a block");
        };
        if body.inputs.len() != rest.len() + 1 || body.results.len() != rest.len() + 1 || n.outputs.len() != rest.len()
        {
            return self.report_unreadable(n, "the block's values do not match the loop-carried values");
        }
        let (count, start) = (self.operand_value(count), self.operand_value(start));
        let carried: Vec<BoundValue> = rest.iter().filter_map(|v| self.lookup_bound(v)).collect();
        if let (ValueKind::Int(count), ValueKind::Bool(start)) = (&count.kind, &start.kind)
            && self.unroll(n, body, *count, *start, &carried)
        {
            return;
        }
        let always = matches!(start.kind, ValueKind::Bool(true));
        if always && self.lower_scan(n, body, &count, &carried) {
            return;
        }
        self.while_loop(n, body, count, start, &carried);
    }

    /// Unrolls a loop with a known trip count. Returns false without any effect if the count is not known.
    fn unroll(&mut self, n: &Node, body: &Block, count: i64, start: bool, carried: &[BoundValue]) -> bool {
        let save = self.checkpoint();
        let (mut state, mut goes_on, mut turn) = (carried.to_vec(), start, 0);
        while goes_on && turn < count {
            if turn == MAX_TURNS || self.work > MAX_WORK {
                self.rollback(save);
                return false;
            }
            self.bind(&body.inputs[0], ValueKind::Int(turn), true);
            for (p, v) in body.inputs[1..].iter().zip(state) {
                self.env.insert(p.name.clone(), v);
                self.types.insert(p.name.clone(), p.ty.clone());
            }
            for n in &body.nodes {
                self.lower_node(n);
            }
            let next = self.operand_value(&body.results[0]);
            state = body.results[1..].iter().filter_map(|r| self.lookup_bound(r)).collect();
            let ValueKind::Bool(b) = next.kind else {
                self.rollback(save);
                return false;
            };
            (goes_on, turn) = (b, turn + 1);
        }
        for (o, v) in n.outputs.iter().zip(state) {
            self.env.insert(o.name.clone(), v);
        }
        true
    }

    /// The bound value.
    pub(super) fn bound_value(&self, b: &BoundValue, span: Span) -> Value {
        match b {
            BoundValue::Value(v, _) => v.clone(),
            BoundValue::Object(id) => Value::new(self.objects.value(*id), span),
            BoundValue::Module(_) => Value::new(ValueKind::None, span),
        }
    }
}
