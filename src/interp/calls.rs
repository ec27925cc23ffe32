//! Runs calls of ops and graphs.

use super::Interpreter;
use super::eval;
use crate::diag::{Code, Diagnostic};
use crate::graph::{Graph, NodeId};
use crate::infer::{self, Callee, Operand, Resolved, graph_inputs};
use crate::interp::cell::TensorCell;
use crate::interp::frame::{GraphFrame, write_result};
use crate::interp::hooks::Hooks;
use crate::op::{Call, OpError, OpResult, running};
use crate::types::Val;

impl Interpreter<'_> {
    pub(super) fn run_call(
        &mut self,
        frame: &mut GraphFrame<'_>,
        n: NodeId,
        resolved: &Resolved,
        hooks: &mut dyn Hooks,
    ) -> Result<Val<TensorCell>, Diagnostic> {
        if let Callee::Graph(name) = &resolved.callee {
            let inputs = self.inputs_of_graph(frame, n, name, resolved)?;
            return self.run_graph(name, inputs, hooks);
        }
        let call = self.with_operands(frame, n, |fetch| resolved.apply(fetch))?;
        let call = call.ok_or_else(|| Diagnostic::new(Code::E0201, "not an op"))?;
        if call.op.control().is_some() {
            return self.run_control_op(frame, n, resolved, &call, hooks);
        }
        let out: Vec<Val<TensorCell>> = resolved
            .out
            .iter()
            .map(|(o, _)| self.fetch_operand(frame, n, o))
            .collect::<Result<_, _>>()?;
        let result =
            eval::apply_in_draw_order(&call, resolved.is_inplace()).unwrap_or_else(|| apply_with_writes(&call));
        let result = result.and_then(|v| match &out[..] {
            [_, ..] => write_all(&out, v),
            _ if resolved.copies_result() => Ok(v.map(|c| TensorCell::new(c.fresh().tensor().clone()))),
            _ if resolved.is_inplace() => frame.store_in_place(&call, v),
            _ => Ok(v),
        });
        result.map_err(|e| {
            let ty = |i: NodeId| frame.env[i].as_ref().map_or(Val::Unknown, eval::type_of);
            infer::op_error(frame.graph, n, resolved, e, &ty)
        })
    }

    /// The inputs of the graph `name` that node `n` calls.
    fn inputs_of_graph(
        &mut self,
        frame: &GraphFrame<'_>,
        n: NodeId,
        name: &str,
        resolved: &Resolved,
    ) -> Result<Vec<Val<TensorCell>>, Diagnostic> {
        let (args, kwargs) = self.with_operands(frame, n, |fetch| {
            let args: Vec<_> = resolved.args.iter().map(|a| infer::map_leaves(a, fetch)).collect();
            let kwargs = resolved.kwargs.iter();
            let kwargs: Vec<_> = kwargs.map(|(k, a)| (k.clone(), infer::map_leaves(a, fetch))).collect();
            (args, kwargs)
        })?;
        graph_inputs(&self.module.graphs[name], &args, &kwargs).map_err(|e| {
            let title = format!("invalid arguments for the graph `{name}`: {e}");
            Diagnostic::new(Code::E0203, title).at_opt(frame.graph[n].meta.span, "")
        })
    }

    /// The result of `build`, which is called with a function that returns operands' values, or the first error of these.
    fn with_operands<R>(
        &mut self,
        frame: &GraphFrame<'_>,
        n: NodeId,
        build: impl FnOnce(&mut Fetch<'_>) -> R,
    ) -> Result<R, Diagnostic> {
        let mut missing = None;
        let built = build(&mut |o| match self.fetch_operand(frame, n, o) {
            Ok(v) => v,
            Err(e) => {
                missing.get_or_insert(e);
                Val::Unknown
            }
        });
        missing.map_or(Ok(built), Err)
    }

    fn fetch_operand(&mut self, frame: &GraphFrame<'_>, n: NodeId, o: &Operand) -> Result<Val<TensorCell>, Diagnostic> {
        match o {
            Operand::Node(i) => frame.fetch_arg(n, &Val::Leaf(*i)),
            Operand::Item(i, path) => {
                let mut v = frame.fetch_arg(n, &Val::Leaf(*i))?;
                for &i in path {
                    v = v.items().and_then(|x| x.get(i)).cloned().unwrap_or(Val::Unknown);
                }
                Ok(v)
            }
            Operand::Attr(path) => self.load_attribute(frame.graph, n, path).map(Val::Leaf),
        }
    }
}

/// Returns the value of an operand.
type Fetch<'a> = dyn FnMut(&Operand) -> Val<TensorCell> + 'a;

/// Returns an error if a value does not have the type declared for its node and only a run can tell.
pub(super) fn check_claim(graph: &Graph, n: NodeId, value: &Val<TensorCell>) -> Result<(), Diagnostic> {
    let meta = &graph[n].meta;
    let Some(declared) = meta.ty.as_ref().filter(|_| meta.claimed) else {
        return Ok(());
    };
    let have = eval::type_of(value);
    if infer::matches_declared(declared, &have) {
        return Ok(());
    }
    let title = format!(
        "`%{}` is annotated {declared}, but its value is {have}",
        graph[n].name()
    );
    Err(Diagnostic::new(Code::E0502, title).at_opt(meta.span, "its size is data-dependent"))
}

/// The result of a call. Also performs the call's writes to its arguments.
fn apply_with_writes(call: &Call<TensorCell>) -> OpResult<Val<TensorCell>> {
    let Some(functional) = running::functional_form(call) else {
        return eval::apply_op(call);
    };
    let results = eval::apply_op(&functional.call)?;
    let items = results.items().unwrap_or_default();
    for (param, v) in functional.written_params(items) {
        if let Val::Leaf(target) = &call.args[param] {
            write_result(target, v)?;
        }
    }
    Ok(functional.own_result(call, items))
}

/// Writes a call's results to the tensors of `out=`, and returns these.
fn write_all(out: &[Val<TensorCell>], result: Val<TensorCell>) -> OpResult<Val<TensorCell>> {
    let store = |target: &Val<TensorCell>, v: Val<TensorCell>| match target {
        Val::Leaf(target) => write_result(target, v),
        _ => Err(OpError::arg("out", "`out` must be tensors")),
    };
    match (out, result) {
        (_, Val::List(v) | Val::Tuple(v)) if v.len() == out.len() => {
            let written = out.iter().zip(v).map(|(t, v)| store(t, v));
            written.collect::<OpResult<Vec<_>>>().map(Val::Tuple)
        }
        ([target], v @ Val::Leaf(_)) => store(target, v),
        (_, v) => Err(infer::wrong_number(out.len(), v.items().map_or(1, <[_]>::len))),
    }
}
