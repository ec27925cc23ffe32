//! Control flow: runs the graphs as often as the call requires.

use super::cell::TensorCell;
use super::{GraphFrame, Hooks, Interpreter, eval, to_runtime_value};
use crate::control::{ControlError, run_control};
use crate::diag::Diagnostic;
use crate::graph::NodeId;
use crate::infer::{self, Resolved, graph_inputs};
use crate::op::control::control_parts;
use crate::op::{Call, OpError};
use crate::types::Val;

/// An error of the call itself, or one that a graph reported with its location.
enum ControlFailure {
    Op(OpError),
    Inside(Box<Diagnostic>),
}

impl From<ControlError> for ControlFailure {
    fn from(e: ControlError) -> ControlFailure {
        ControlFailure::Op(OpError::value(e.0))
    }
}

impl From<OpError> for ControlFailure {
    fn from(e: OpError) -> ControlFailure {
        ControlFailure::Op(e)
    }
}

impl Interpreter<'_> {
    pub(super) fn run_control_op(
        &mut self,
        frame: &mut GraphFrame<'_>,
        n: NodeId,
        resolved: &Resolved,
        call: &Call<TensorCell>,
        hooks: &mut dyn Hooks,
    ) -> Result<Val<TensorCell>, Diagnostic> {
        let result = self.control_value(call, hooks);
        result.map_err(|e| match e {
            ControlFailure::Inside(d) => *d,
            ControlFailure::Op(e) => {
                let ty = |i: NodeId| frame.env[i].as_ref().map_or(Val::Unknown, eval::type_of);
                infer::op_error(frame.graph, n, resolved, e, &ty)
            }
        })
    }

    fn control_value(
        &mut self,
        call: &Call<TensorCell>,
        hooks: &mut dyn Hooks,
    ) -> Result<Val<TensorCell>, ControlFailure> {
        let p = control_parts(&call.map(|c| c.fresh().tensor().clone()))?;
        let module = self.module.clone();
        let mut callee = |i: usize, inputs: Vec<super::RuntimeValue>| -> Result<super::RuntimeValue, ControlFailure> {
            let name = &p.graphs[i];
            let Some(graph) = module.graphs.get(name) else {
                return Err(OpError::value(format!("unknown graph `{name}`")).into());
            };
            let inputs = graph_inputs(graph, &inputs, &[])
                .map_err(|e| OpError::value(format!("invalid arguments for the graph `{name}`: {e}")))?;
            let inputs = inputs.iter().map(|v| v.map(|t| TensorCell::new(t.clone()))).collect();
            let result = self
                .run_graph(name, inputs, hooks)
                .map_err(|d| ControlFailure::Inside(Box::new(d)))?;
            Ok(to_runtime_value(&result))
        };
        let result = run_control(&p, &mut callee)?;
        Ok(result.map(|t| TensorCell::new(t.clone())))
    }
}
