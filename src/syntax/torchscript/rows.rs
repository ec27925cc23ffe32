//! Loops over the rows of tensors that collect their results in lists: `scan`.
//!
//! ```text
//! for i in range(x.size(0)):            %h, %ys = scan(@rows_1, [%h], [%x], ())
//!     h = cell(x[i], h)                 %outs = unbind(%ys)
//!     outs.append(h)
//! ```

use super::blocks::Turn;
use super::lower::{BoundValue, ScriptLowerer, function_call, graph_of};
use super::tree::{Block, Node};
use super::uses::{free_names, node_names, visit_uses};
use crate::syntax::actions::make_stmt;
use crate::syntax::ast::{Name, Op, Stmt, Value, ValueKind};
use std::collections::HashSet;
use std::sync::Arc;

/// A loop over the rows of tensors.
pub(super) struct RowLoop {
    /// The name of the iteration number.
    pub index: Arc<str>,
    /// The node that represents it. If it has any other use, the loop is not of this kind.
    pub turn: Arc<str>,
    /// The tensors that the loop iterates over, and the names of their rows.
    pub along: Vec<(Arc<str>, Arc<str>)>,
    /// The values appended to lists.
    pub collected: Vec<(usize, Value)>,
}

impl ScriptLowerer<'_> {
    /// Records that a number is the row count of a tensor.
    pub(super) fn note_length(&mut self, n: &Node) {
        let first = matches!(
            n.args.get(1).map(|a| self.operand_value(a).kind),
            None | Some(ValueKind::Int(0))
        );
        let along = n.args.first().map(|a| self.operand_value(a).kind);
        let count = n.outputs.first().map(|o| self.operand_value(o).kind);
        if let (true, Some(ValueKind::Node(x)), Some(ValueKind::Node(c))) = (first, along, count)
            && matches!(&*n.op, "aten::size" | "aten::len")
        {
            self.lengths.insert(c, x);
        }
    }

    /// Lowers the read of a tensor's row by the iteration number. Returns false for any other node.
    pub(super) fn lower_row(&mut self, n: &Node) -> bool {
        let selected = match (&*n.op, &n.args[..]) {
            ("aten::select", [x, dim, i]) if self.is_zero(dim) => Some((x, i)),
            ("aten::__getitem__", [x, i]) => Some((x, i)),
            _ => None,
        };
        let (Some((x, i)), Some(out)) = (selected, n.outputs.first()) else {
            return false;
        };
        let tensor = match self.env.get(&x.name) {
            Some(BoundValue::Value(v, false)) => match &v.kind {
                ValueKind::Node(name) => name.clone(),
                _ => return false,
            },
            _ => return false,
        };
        let known = match &self.rows {
            Some(rows) if rows.index == i.name => rows.along.iter().find(|a| a.0 == tensor).map(|a| a.1.clone()),
            _ => return false,
        };
        let row = known.unwrap_or_else(|| self.node_name("", "row"));
        if let Some(rows) = &mut self.rows
            && !rows.along.iter().any(|a| a.0 == tensor)
        {
            rows.along.push((tensor, row.clone()));
        }
        self.bind(out, ValueKind::Node(row), false);
        true
    }

    fn is_zero(&self, v: &super::tree::Typed) -> bool {
        matches!(self.env.get(&v.name), Some(BoundValue::Value(v, _)) if matches!(v.kind, ValueKind::Int(0)))
    }

    /// Records what an iteration appends to a list that is empty before the loop.
    pub(super) fn collect_item(&mut self, id: usize, item: Option<&Value>) -> bool {
        let outside = self.objects.is_empty_outside(id);
        match (&mut self.rows, item) {
            (Some(rows), Some(item)) if outside && !rows.collected.iter().any(|c| c.0 == id) => {
                rows.collected.push((id, item.clone()));
                true
            }
            _ => false,
        }
    }

    /// Lowers a loop to `scan`. Returns false without any effect if that is not possible.
    pub(super) fn lower_scan(&mut self, n: &Node, body: &Block, count: &Value, carried: &[BoundValue]) -> bool {
        let ValueKind::Node(length) = &count.kind else {
            return false;
        };
        let (Some(first), Some(index)) = (self.lengths.get(length).cloned(), body.inputs.first()) else {
            return false;
        };
        // Nested row loops are not supported, because each would have its own rows.
        if self.rows.is_some() {
            return false;
        }
        let save = self.checkpoint();
        let turn: Arc<str> = self.node_name("", "turn");
        self.rows = Some(RowLoop {
            index: index.name.clone(),
            turn: turn.clone(),
            along: vec![],
            collected: vec![],
        });
        let start = Value::new(ValueKind::Node(turn.clone()), n.span);
        let Turn { stmts, inputs, results } = self.lower_turn(body, Some(start), carried);
        let rows = self.rows.take();
        let Some(rows) = rows.filter(|r| r.along.iter().any(|a| a.0 == first)) else {
            self.rollback(save);
            return false;
        };
        let goes_on = matches!(results.first().map(|r| &r.kind), Some(ValueKind::Bool(true)));
        let reads_turn = used_names(&stmts, &results).contains(&rows.turn);
        if !goes_on || reads_turn || self.errors.len() > save.error_count() {
            self.rollback(save);
            return false;
        }
        self.call_scan(n, (stmts, inputs, results), rows, &first, count, carried);
        true
    }

    fn call_scan(
        &mut self,
        n: &Node,
        (stmts, mut inputs, mut results): (Vec<Stmt>, Vec<Arc<str>>, Vec<Value>),
        rows: RowLoop,
        first: &Arc<str>,
        count: &Value,
        carried: &[BoundValue],
    ) {
        results.remove(0);
        results.extend(rows.collected.iter().map(|c| c.1.clone()));
        let make_value = |kind| Value::new(kind, n.span);
        let mut along = vec![];
        for (tensor, _) in &rows.along {
            let whole = make_value(ValueKind::Node(tensor.clone()));
            // The number of iterations is the row count of one tensor. Other tensors may have more rows.
            along.push(match tensor == first {
                true => whole,
                false => self.leading_rows(n, whole, count),
            });
        }
        inputs.extend(rows.along.iter().map(|a| a.1.clone()));
        let output = make_value(ValueKind::List(results));
        let (name, captured) = self.emit_graph("rows", stmts, inputs, output, n);
        let start: Vec<Value> = carried.iter().map(|b| self.bound_value(b, n.span)).collect();
        let args = vec![
            make_value(ValueKind::Graph(name)),
            make_value(ValueKind::List(start)),
            make_value(ValueKind::List(along)),
            make_value(ValueKind::Tuple(captured)),
        ];
        let scan = self.call_node(n, "torch.ops.higher_order.scan", args, "scan");
        self.emit_items(n, &n.outputs.iter().collect::<Vec<_>>(), scan.clone());
        for (i, (list, _)) in rows.collected.iter().enumerate() {
            let item = make_value(ValueKind::Int((carried.len() + i) as i64));
            let stacked = self.call_node(n, "operator.getitem", vec![scan.clone(), item], "getitem");
            let items = self.call_node(n, "torch.unbind", vec![stacked], "unbind");
            self.objects.set_whole(*list, items);
        }
    }

    /// The first `count` rows of a tensor.
    fn leading_rows(&mut self, n: &Node, tensor: Value, count: &Value) -> Value {
        let zero = Value::new(ValueKind::Int(0), n.span);
        self.call_node(
            n,
            "torch.narrow",
            vec![tensor, zero.clone(), zero, count.clone()],
            "narrow",
        )
    }

    /// Adds a call of `function` for the node `n`, named after `word`.
    fn call_node(&mut self, n: &Node, function: &str, args: Vec<Value>, word: &str) -> Value {
        let op = function_call(function, args, n.span);
        Value::new(ValueKind::Node(self.push_stmt(op, "", word, None, n)), n.span)
    }
}

/// The names of the nodes that statements and results use.
fn used_names(stmts: &[Stmt], results: &[Value]) -> HashSet<Arc<str>> {
    let mut used = HashSet::new();
    let mut add = |n: &Arc<str>| {
        used.insert(n.clone());
    };
    stmts.iter().for_each(|s| visit_uses(s, &mut add));
    results.iter().for_each(|v| node_names(v, &mut add));
    used
}

/// A parameter of a graph.
pub(super) fn placeholder_stmt(name: &Arc<str>, span: crate::source::Span) -> Stmt {
    let target = Name::new(name.clone(), span);
    let op = Op::Placeholder {
        target: target.clone(),
        default: None,
    };
    make_stmt(Some(target), None, op, None, span)
}

impl ScriptLowerer<'_> {
    /// Adds a graph of statements. Returns its name, and the values that it captures from the enclosing graph besides
    /// its inputs.
    pub(super) fn emit_graph(
        &mut self,
        role: &str,
        body: Vec<Stmt>,
        inputs: Vec<Arc<str>>,
        result: Value,
        n: &Node,
    ) -> (Arc<str>, Vec<Value>) {
        let output = make_stmt(None, None, Op::Output { value: result }, None, n.span);
        let captured = free_names(body.iter().chain([&output]), &inputs);
        let name = self.graph_of(role, body, inputs, &captured, output, n);
        let values = captured.into_iter().map(|c| Value::new(ValueKind::Node(c), n.span));
        (name, values.collect())
    }

    /// Adds a graph with these inputs and returns its name.
    pub(super) fn graph_of(
        &mut self,
        role: &str,
        body: Vec<Stmt>,
        inputs: Vec<Arc<str>>,
        captured: &[Arc<str>],
        output: Stmt,
        n: &Node,
    ) -> Arc<str> {
        let name: Arc<str> = format!("{role}_{}_{}", self.number, self.graphs.len() + 1).into();
        let mut stmts: Vec<_> = inputs
            .iter()
            .chain(captured)
            .map(|i| placeholder_stmt(i, n.span))
            .collect();
        stmts.extend(body);
        stmts.push(output);
        self.graphs
            .push(graph_of(Some(Name::new(name.clone(), n.span)), stmts, n.span));
        name
    }
}
