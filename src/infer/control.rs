//! Types of control flow. Each graph is inferred for the types it is called with, and the results must agree.

use super::call::has_unknown;
use super::{EquationOrigin, Infer, NodeTypes, check_bytes, report};
use crate::control::{Control, ControlCall, result_items};
use crate::diag::Code;
use crate::graph::{Graph, GraphModule, NodeId};
use crate::infer::Resolved;
use crate::op::control::control_parts;
use crate::op::{Call, OpError, OpResult};
use crate::types::{Dim, ScalarKind, TensorType, Type, Val};
use std::collections::HashSet;
use std::sync::Arc;

/// The number of loop iterations that inference evaluates before it gives up.
const MAX_TURNS: usize = 1024;

impl Infer<'_> {
    /// The type of a control-flow call.
    pub(super) fn infer_control(&mut self, graph: &Graph, n: NodeId, resolved: &Resolved, types: &NodeTypes) -> Type {
        let Some(call) = resolved.types() else {
            return Val::Unknown;
        };
        match self.control_type(graph, n, &call) {
            Ok(ty) => ty,
            Err(e) => {
                let ty = |i: NodeId| self.lookup(types, i);
                let d = report::op_error(graph, n, resolved, e, &ty);
                self.diagnostics.push(d);
                Val::Unknown
            }
        }
    }

    fn control_type(&mut self, graph: &Graph, n: NodeId, call: &Call<TensorType>) -> OpResult<Type> {
        let p = control_parts(call)?;
        if let (Control::Cond, Some(Val::Bool(b))) = (p.control, &p.predicate) {
            self.untaken.insert(p.graphs[usize::from(*b)].clone());
        }
        let operands = [&p.carried[..], &p.rows, &p.extra].concat();
        if operands.iter().chain(&p.predicate).any(has_unknown) {
            return Ok(Val::Unknown);
        }
        match p.control {
            Control::Cond => self.infer_cond(graph, n, &p),
            Control::While => self.while_loop(graph, n, &p),
            Control::Scan => self.infer_scan(graph, n, &p),
            Control::Map => {
                let (rows, count) = self.scan_row_types(graph, n, &p)?;
                let result = self.infer_callee(&p.graphs[0], &[&rows[..], &p.extra].concat())?;
                stacked_type(&result, &count)
            }
            Control::AssociativeScan => {
                let (rows, _) = self.scan_row_types(graph, n, &p)?;
                let result = self.infer_callee(&p.graphs[0], &[&rows[..], &rows, &p.extra].concat())?;
                self.agree_all(graph, n, &p.graphs[0], &result_items(&result), &rows)?;
                Ok(Val::Tuple(p.rows.clone()))
            }
        }
    }

    /// The result type of the graph `name` for positional inputs.
    fn infer_callee(&mut self, name: &Arc<str>, inputs: &[Type]) -> OpResult<Type> {
        let Some(callee) = self.module.graphs.get(name) else {
            // Lint reports the missing graph.
            return Ok(Val::Unknown);
        };
        let inputs = super::graph_inputs(callee, inputs, &[])
            .map_err(|e| OpError::new(Code::E0203, format!("invalid arguments for the graph `{name}`: {e}")))?;
        if let Some((_, ty)) = self.memo.get(name).and_then(|m| m.iter().find(|(i, _)| *i == inputs)) {
            return Ok(ty.clone());
        }
        let ty = self.infer_graph(name, Some(&inputs));
        self.memo.entry(name.clone()).or_default().push((inputs, ty.clone()));
        Ok(self.solver.apply(&ty))
    }

    /// Whether a graph is a branch that is never taken, or is called from one.
    pub(super) fn is_untaken(&self, name: &Arc<str>) -> bool {
        self.untaken
            .iter()
            .any(|u| u == name || calls_transitively(self.module, u, name))
    }

    fn infer_cond(&mut self, graph: &Graph, n: NodeId, p: &ControlCall<TensorType>) -> OpResult<Type> {
        if let Some(predicate) = &p.predicate {
            one_bool(predicate, "the predicate of `cond`")?;
        }
        // If the predicate is known, only the branch taken determines the type.
        if let Some(Val::Bool(b)) = &p.predicate {
            return self.infer_callee(&p.graphs[usize::from(!b)], &p.carried);
        }
        let yes = self.infer_callee(&p.graphs[0], &p.carried)?;
        let no = self.infer_callee(&p.graphs[1], &p.carried)?;
        self.agree_types(graph, n, &yes, &no).map_err(|reason| {
            let [a, b] = [&p.graphs[0], &p.graphs[1]];
            OpError::shape(format!("the branches of `cond` return different types: {reason}"))
                .note(format!("`{a}` returns {yes}"))
                .note(format!("`{b}` returns {no}"))
        })
    }

    fn while_loop(&mut self, graph: &Graph, n: NodeId, p: &ControlCall<TensorType>) -> OpResult<Type> {
        match self.eval_counted_loop(p) {
            Some(known) => {
                // Its graphs still need types that hold in every iteration.
                let _ = self.without_diagnostics(|cx| cx.any_turn(graph, n, p));
                Ok(known)
            }
            None => self.any_turn(graph, n, p),
        }
    }

    /// The carried values after the last iteration of a loop over known numbers; `None` if the loop carries anything
    /// else.
    fn eval_counted_loop(&mut self, p: &ControlCall<TensorType>) -> Option<Type> {
        if p.carried.is_empty() || !p.carried.iter().all(is_number) {
            return None;
        }
        let before = self.done.len();
        let last = self.without_diagnostics(|cx| cx.eval_loop_turns(p));
        self.done.truncate(before);
        last
    }

    fn eval_loop_turns(&mut self, p: &ControlCall<TensorType>) -> Option<Type> {
        let mut carried = p.carried.clone();
        for _ in 0..MAX_TURNS {
            let inputs = [&carried[..], &p.extra].concat();
            match self.infer_callee(&p.graphs[0], &inputs).ok()? {
                Val::Bool(true) => {}
                Val::Bool(false) => return Some(Val::Tuple(carried)),
                _ => return None,
            }
            carried = result_items(&self.infer_callee(&p.graphs[1], &inputs).ok()?);
            if carried.len() != p.carried.len() || !carried.iter().all(is_number) {
                return None;
            }
        }
        None
    }

    /// The type of a loop whose iterations are not evaluated.
    fn any_turn(&mut self, graph: &Graph, n: NodeId, p: &ControlCall<TensorType>) -> OpResult<Type> {
        // Numbers may change from one iteration to the next.
        let carried: Vec<Type> = p.carried.iter().map(any_number).collect();
        let inputs = [&carried[..], &p.extra].concat();
        let test = self.infer_callee(&p.graphs[0], &inputs)?;
        one_bool(&test, &format!("the result of the test `{}`", p.graphs[0]))?;
        let body = self.infer_callee(&p.graphs[1], &inputs)?;
        self.agree_all(graph, n, &p.graphs[1], &result_items(&body), &carried)?;
        Ok(Val::Tuple(carried))
    }

    fn infer_scan(&mut self, graph: &Graph, n: NodeId, p: &ControlCall<TensorType>) -> OpResult<Type> {
        let (rows, count) = self.scan_row_types(graph, n, p)?;
        let result = self.infer_callee(&p.graphs[0], &[&p.carried[..], &rows, &p.extra].concat())?;
        if result == Val::Unknown {
            return Ok(Val::Unknown);
        }
        let mut out = result_items(&result);
        let stacked_from = p.carried.len().min(out.len());
        let rest = out.split_off(stacked_from);
        self.agree_all(graph, n, &p.graphs[0], &out, &p.carried)?;
        let mut all = p.carried.clone();
        for v in &rest {
            all.push(stacked_type(v, &count)?);
        }
        Ok(Val::Tuple(all))
    }

    /// The types of the rows, and their count.
    fn scan_row_types(&mut self, graph: &Graph, n: NodeId, p: &ControlCall<TensorType>) -> OpResult<(Vec<Type>, Dim)> {
        let mut count: Option<Dim> = None;
        let mut rows = vec![];
        for v in &p.rows {
            let shape = v.as_leaf().and_then(|t| Some((t.dtype, t.shape.as_deref()?)));
            let Some((dtype, [first, rest @ ..])) = shape else {
                return Err(OpError::shape(format!(
                    "cannot iterate over {v}: expected a tensor with at least one dimension"
                )));
            };
            match &count {
                None => count = Some(first.clone()),
                Some(c) => self
                    .equate_dims(graph, n, c, first)
                    .map_err(|()| OpError::shape(format!("the tensors to iterate over have {c} and {first} rows")))?,
            }
            rows.push(Val::Leaf(TensorType::new(dtype, rest.to_vec())));
        }
        Ok((rows, count.unwrap_or(Dim::Unknown)))
    }

    /// Checks that the results of a graph have the types of the carried values.
    fn agree_all(&mut self, graph: &Graph, n: NodeId, name: &str, results: &[Type], want: &[Type]) -> OpResult<()> {
        if results == [Val::Unknown] {
            return Ok(());
        }
        if results.len() != want.len() {
            let title = format!(
                "`{name}` returns {} values, but the loop carries {}",
                results.len(),
                want.len()
            );
            return Err(OpError::shape(title));
        }
        for (i, (f, w)) in results.iter().zip(want).enumerate() {
            self.agree_types(graph, n, f, w).map_err(|reason| {
                OpError::shape(format!("`{name}` returns {f} for carried value {i}, which is {w}"))
                    .note(reason)
                    .help("a carried value must keep its dtype and shape")
            })?;
        }
        Ok(())
    }

    fn equate_dims(&mut self, graph: &Graph, n: NodeId, a: &Dim, b: &Dim) -> Result<(), ()> {
        let origin = EquationOrigin::new(graph, n, "these values must have the same shape".to_string());
        match (a, b) {
            _ if a == b => Ok(()),
            (Dim::Unknown, _) | (_, Dim::Unknown) => Ok(()),
            _ => self.solver.equate(a, b, &origin).map_err(|_| ()),
        }
    }

    fn agree_tensors(
        &mut self,
        graph: &Graph,
        n: NodeId,
        x: &TensorType,
        y: &TensorType,
    ) -> Result<TensorType, String> {
        let differ = || format!("{x} and {y}");
        if x.dtype != y.dtype {
            return Err(differ());
        }
        let (Some(s), Some(t)) = (&x.shape, &y.shape) else {
            return Ok(TensorType {
                dtype: x.dtype,
                shape: None,
            });
        };
        if s.len() != t.len() {
            return Err(differ());
        }
        for (d, e) in s.iter().zip(t) {
            self.equate_dims(graph, n, d, e).map_err(|()| differ())?;
        }
        Ok(x.clone())
    }

    /// The common type of two values, or why there is none.
    fn agree_types(&mut self, graph: &Graph, n: NodeId, a: &Type, b: &Type) -> Result<Type, String> {
        match (a, b) {
            (Val::Unknown, t) | (t, Val::Unknown) => Ok(t.clone()),
            (Val::Leaf(x), Val::Leaf(y)) => self.agree_tensors(graph, n, x, y).map(Val::Leaf),
            (Val::List(x) | Val::Tuple(x), Val::List(y) | Val::Tuple(y)) => {
                if x.len() != y.len() {
                    return Err(format!("{} and {} values", x.len(), y.len()));
                }
                let items = x.iter().zip(y).map(|(x, y)| self.agree_types(graph, n, x, y));
                let items = items.collect::<Result<Vec<_>, _>>()?;
                Ok(if matches!(a, Val::List(_)) {
                    Val::List(items)
                } else {
                    Val::Tuple(items)
                })
            }
            (Val::Dict(x), Val::Dict(y)) if x.len() == y.len() && x.iter().zip(y).all(|(x, y)| x.0 == y.0) => {
                let entries = x
                    .iter()
                    .zip(y)
                    .map(|(x, y)| Ok((x.0.clone(), self.agree_types(graph, n, &x.1, &y.1)?)));
                entries.collect::<Result<Vec<_>, String>>().map(Val::Dict)
            }
            _ if a == b => Ok(a.clone()),
            _ if any_number(a) == any_number(b) => Ok(any_number(a)),
            _ => Err(format!("{a} and {b}")),
        }
    }
}

/// Whether the graph `from` refers to the graph `to`, directly or through other graphs.
fn calls_transitively(module: &GraphModule, from: &str, to: &str) -> bool {
    let (mut seen, mut left) = (HashSet::new(), vec![from]);
    while let Some(graph) = left.pop().and_then(|name| module.graphs.get(name)) {
        let args = graph.iter().flat_map(|n| graph[n].args());
        for name in args.filter_map(|a| if let Val::Graph(g) = a { Some(&**g) } else { None }) {
            if name == to {
                return true;
            }
            if seen.insert(name) {
                left.push(name);
            }
        }
    }
    false
}

/// Whether a value is a number that is known at compile time.
fn is_number(v: &Type) -> bool {
    matches!(v, Val::Int(_) | Val::Float(_) | Val::Bool(_))
}

/// The type with numbers and strings of unknown value in place of known ones.
fn any_number(v: &Type) -> Type {
    match v {
        Val::Str(_) => Val::Any(ScalarKind::Str),
        Val::Int(_) => Val::Any(ScalarKind::Int),
        Val::Float(_) => Val::Any(ScalarKind::Float),
        Val::Bool(_) => Val::Any(ScalarKind::Bool),
        v => v.clone(),
    }
}

fn one_bool(ty: &Type, name: &str) -> OpResult<()> {
    let is_single = |t: &TensorType| t.shape.iter().flatten().all(|d| d.as_const().is_none_or(|c| c == 1));
    match ty {
        Val::Bool(_) | Val::Any(ScalarKind::Bool) | Val::Unknown => Ok(()),
        Val::Leaf(t) if is_single(t) => Ok(()),
        ty => Err(OpError::shape(format!(
            "{name} must be a bool or a tensor of one element, not {ty}"
        ))),
    }
}

/// The type of `count` results stacked along a new dim 0.
fn stacked_type(v: &Type, count: &Dim) -> OpResult<Type> {
    let ty = v.try_map(&mut |t: &TensorType| {
        let shape = t.shape.as_ref().map(|s| [std::slice::from_ref(count), s].concat());
        Ok(Val::Leaf(TensorType { dtype: t.dtype, shape }))
    });
    match ty {
        Ok(ty) => check_bytes(&ty, "scan").map(|()| ty),
        Err(e) => {
            let e: OpError = e;
            Err(e)
        }
    }
}
