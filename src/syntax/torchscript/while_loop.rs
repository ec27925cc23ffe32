//! Lowers `prim::Loop` to a `while_loop`.

use super::blocks::Turn;
use super::known::bool_value;
use super::lower::{BoundValue, ScriptLowerer, function_call};
use super::tree::{Block, Node};
use super::uses::free_names;
use crate::syntax::actions::make_stmt;
use crate::syntax::ast::{Name, Op, Stmt, Value, ValueKind};
use std::sync::Arc;

/// The values carried between iterations: the iteration number and whether to continue, if needed, then the values of
/// the script.
#[derive(Default)]
struct Carried {
    /// Their names in the graphs of the loop.
    inputs: Vec<Arc<str>>,
    /// Their values before the first iteration.
    first: Vec<Value>,
    /// Their values after an iteration.
    next: Vec<Value>,
}

impl Carried {
    fn push(&mut self, input: Arc<str>, first: Value, next: Value) {
        self.inputs.push(input);
        self.first.push(first);
        self.next.push(next);
    }
}

impl ScriptLowerer<'_> {
    pub(super) fn while_loop(&mut self, n: &Node, body: &Block, count: Value, start: Value, carried: &[BoundValue]) {
        let make_value = |kind| Value::new(kind, n.span);
        let index: Arc<str> = self.node_name("", "turn");
        let mut turn = self.lower_turn(body, Some(make_value(ValueKind::Node(index.clone()))), carried);
        let goes_on = self.truth_tensor(turn.results.remove(0));
        let counted = !matches!(count.kind, ValueKind::Int(i64::MAX));
        let reads = free_names(turn.stmts.iter(), &turn.inputs).contains(&index);
        let always = matches!(
            (&start.kind, &goes_on.kind),
            (ValueKind::Bool(true), ValueKind::Bool(true))
        );
        let mut loop_state = Carried::default();
        if counted || reads {
            self.carry_index(n, &index, reads, &mut turn, &mut loop_state);
        }
        let flag = self.node_name("", "more");
        if !always {
            let tensor = matches!(&goes_on.kind, ValueKind::Node(_)) && self.is_tensor(&goes_on, &turn);
            let first = match (&start.kind, tensor) {
                (ValueKind::Bool(_), true) => self.emit_scalar(start.kind.clone(), n),
                _ => self.truth_tensor(start),
            };
            loop_state.push(flag.clone(), first, goes_on);
        }
        let count = counted.then_some((&index, &count));
        let (test, result) = self.emit_loop_condition(count, (!always).then_some(&flag), n);
        let before = loop_state.inputs.len();
        loop_state.inputs.extend(turn.inputs);
        loop_state.next.extend(turn.results);
        loop_state
            .first
            .extend(carried.iter().map(|b| self.bound_value(b, n.span)));
        let name = self.push_loop(n, loop_state, (test, result), turn.stmts);
        self.bind_carried(n, &name, before, carried);
    }

    /// Binds the outputs of the loop `name`, whose items from number `first` on are the carried values.
    fn bind_carried(&mut self, n: &Node, name: &Arc<str>, first: usize, carried: &[BoundValue]) {
        let make_value = |kind| Value::new(kind, n.span);
        for (i, (o, b)) in n.outputs.iter().zip(carried).enumerate() {
            let item = make_value(ValueKind::Int((first + i) as i64));
            let op = function_call(
                "operator.getitem",
                vec![make_value(ValueKind::Node(name.clone())), item],
                o.span,
            );
            let item = self.push_stmt(op, &o.name, "getitem", None, n);
            let number = o.ty.is_number() || matches!(b, BoundValue::Value(_, true));
            self.bind(o, ValueKind::Node(item), number);
        }
    }

    /// Carries the iteration number, which starts at 0.
    fn carry_index(&mut self, n: &Node, index: &Arc<str>, reads: bool, turn: &mut Turn, loop_state: &mut Carried) {
        let make_value = |kind| Value::new(kind, n.span);
        let one = make_value(ValueKind::Int(1));
        let add = function_call(
            "operator.add",
            vec![make_value(ValueKind::Node(index.clone())), one],
            n.span,
        );
        let name = self.node_name("", "next_turn");
        let named = Name::new(name.clone(), n.span);
        turn.stmts.push(make_stmt(Some(named), None, add, None, n.span));
        // A Python number if the body needs one. Otherwise a tensor, because that is compiled.
        let first = match reads {
            true => make_value(ValueKind::Int(0)),
            false => self.emit_scalar(ValueKind::Int(0), n),
        };
        loop_state.push(index.clone(), first, make_value(ValueKind::Node(name)));
    }

    /// Emits the call of `torch.while_loop`, with graphs for the condition and the body.
    fn push_loop(&mut self, n: &Node, loop_state: Carried, test: (Vec<Stmt>, Value), body: Vec<Stmt>) -> Arc<str> {
        let make_value = |kind| Value::new(kind, n.span);
        let Carried { inputs, first, next } = loop_state;
        let (test, result) = test;
        let [a, b] = [result, make_value(ValueKind::Tuple(next))]
            .map(|value| make_stmt(None, None, Op::Output { value }, None, n.span));
        let captured = free_names(test.iter().chain([&a]).chain(&body).chain([&b]), &inputs);
        let test = self.graph_of("test", test, inputs.clone(), &captured, a, n);
        let body = self.graph_of("body", body, inputs, &captured, b, n);
        let extra = captured.into_iter().map(|c| make_value(ValueKind::Node(c))).collect();
        let args = vec![
            make_value(ValueKind::Graph(test)),
            make_value(ValueKind::Graph(body)),
            make_value(ValueKind::Tuple(first)),
            make_value(ValueKind::Tuple(extra)),
        ];
        self.push_stmt(
            function_call("torch.while_loop", args, n.span),
            "",
            "while_loop",
            None,
            n,
        )
    }

    /// Whether a condition was converted from a tensor. That tensor then replaces the bool, which `truths` maps to it.
    fn is_tensor(&self, v: &Value, turn: &Turn) -> bool {
        let ValueKind::Node(name) = &v.kind else { return false };
        let statement = turn
            .stmts
            .iter()
            .find(|s| s.name.as_ref().is_some_and(|n| n.text == *name));
        self.truths
            .values()
            .any(|t| matches!(&t.kind, ValueKind::Node(n) if n == name))
            && statement.is_some()
    }

    /// Emits a tensor of no dimensions.
    fn emit_scalar(&mut self, kind: ValueKind, n: &Node) -> Value {
        let args = vec![Value::new(ValueKind::List(vec![]), n.span), Value::new(kind, n.span)];
        let name = self.push_stmt(function_call("torch.full", args, n.span), "", "full", None, n);
        Value::new(ValueKind::Node(name), n.span)
    }

    /// The loop condition: the iteration number is less than the count, and the script's condition is true.
    fn emit_loop_condition(
        &mut self,
        count: Option<(&Arc<str>, &Value)>,
        flag: Option<&Arc<str>>,
        n: &Node,
    ) -> (Vec<Stmt>, Value) {
        let make_value = |kind| Value::new(kind, n.span);
        let mut stmts = vec![];
        let mut add = |l: &mut Self, path: &str, args: Vec<Value>| {
            let name = l.node_name("", path.rsplit('.').next().unwrap_or(path));
            let named = Name::new(name.clone(), n.span);
            stmts.push(make_stmt(
                Some(named),
                None,
                function_call(path, args, n.span),
                None,
                n.span,
            ));
            make_value(ValueKind::Node(name))
        };
        let below = count.map(|(i, c)| {
            add(
                self,
                "operator.lt",
                vec![make_value(ValueKind::Node(i.clone())), c.clone()],
            )
        });
        let flag = flag.map(|f| make_value(ValueKind::Node(f.clone())));
        let result = match (below, flag) {
            (Some(a), Some(b)) => add(self, "operator.and_", vec![a, b]),
            (Some(v), None) | (None, Some(v)) => v,
            (None, None) => bool_value(true, n.span),
        };
        (stmts, result)
    }
}
