//! Control flow: the graphs are run as often as it says.

use super::cell::Cell;
use super::{Frame, Hooks, Interpreter, eval, plain};
use crate::control::{ControlError, run};
use crate::diag::Diagnostic;
use crate::graph::NodeId;
use crate::infer::{self, Resolved, graph_inputs};
use crate::op::control::parts;
use crate::op::{Call, OpError};
use crate::types::Val;

/// An error of the call itself, or one that a graph reported with its place.
enum Fail {
    Op(OpError),
    Inside(Box<Diagnostic>),
}

impl From<ControlError> for Fail {
    fn from(e: ControlError) -> Fail {
        Fail::Op(OpError::value(e.0))
    }
}

impl From<OpError> for Fail {
    fn from(e: OpError) -> Fail {
        Fail::Op(e)
    }
}

impl Interpreter<'_> {
    pub(super) fn control(
        &mut self,
        frame: &mut Frame<'_>,
        n: NodeId,
        resolved: &Resolved,
        call: &Call<Cell>,
        hooks: &mut dyn Hooks,
    ) -> Result<Val<Cell>, Diagnostic> {
        let result = self.control_value(call, hooks);
        result.map_err(|e| match e {
            Fail::Inside(d) => *d,
            Fail::Op(e) => {
                let ty = |i: NodeId| frame.env[i].as_ref().map_or(Val::Unknown, eval::type_of);
                infer::op_error(frame.graph, n, resolved, e, &ty)
            }
        })
    }

    fn control_value(&mut self, call: &Call<Cell>, hooks: &mut dyn Hooks) -> Result<Val<Cell>, Fail> {
        let p = parts(&call.map(|c| c.fresh().tensor().clone()))?;
        let module = self.module.clone();
        let mut callee = |i: usize, inputs: Vec<super::Value>| -> Result<super::Value, Fail> {
            let name = &p.graphs[i];
            let Some(graph) = module.graphs.get(name) else {
                return Err(OpError::value(format!("there is no graph `{name}`")).into());
            };
            let inputs = graph_inputs(graph, &inputs, &[])
                .map_err(|e| OpError::value(format!("arguments do not fit the graph `{name}`: {e}")))?;
            let inputs = inputs.iter().map(|v| v.map(|t| Cell::new(t.clone()))).collect();
            let result = self.graph(name, inputs, hooks).map_err(|d| Fail::Inside(Box::new(d)))?;
            Ok(plain(&result))
        };
        let result = run(&p, &mut callee)?;
        Ok(result.map(|t| Cell::new(t.clone())))
    }
}
