//! Steps that run other programs: control flow.

use super::executable::{Executable, RunError};
use crate::control::{ControlCall, ControlError, run_control};
use crate::diag::{Code, Diagnostic};
use crate::tensor::Tensor;
use crate::types::Val;

/// An error of the step, or of a program that it runs.
enum StepFailure {
    Step(ControlError),
    Inside(RunError),
}

impl From<ControlError> for StepFailure {
    fn from(e: ControlError) -> StepFailure {
        StepFailure::Step(e)
    }
}

/// The tensors of the result of the control-flow call of `op`, flattened.
pub(super) fn run_control_call(
    op: &str,
    parts: &ControlCall<Tensor>,
    graphs: &mut [Executable],
) -> Result<Vec<Tensor>, RunError> {
    match run_graphs(parts, graphs) {
        Ok(v) => Ok(v.leaves().into_iter().cloned().collect()),
        Err(StepFailure::Inside(d)) => Err(d),
        Err(StepFailure::Step(e)) => {
            let d = Diagnostic::new(Code::E0502, e.0);
            Err(Box::new(d.note(format!("while running `{op}`"))))
        }
    }
}

fn run_graphs(parts: &ControlCall<Tensor>, graphs: &mut [Executable]) -> Result<Val<Tensor>, StepFailure> {
    run_control(parts, &mut |i, inputs: Vec<Val<Tensor>>| {
        let graph = graphs
            .get_mut(i)
            .ok_or_else(|| ControlError("a graph's program is missing".into()))?;
        // Inputs that are not tensors are constants of the program.
        let tensors = inputs.into_iter().filter_map(|v| match v {
            Val::Leaf(t) => Some(t),
            _ => None,
        });
        graph.run_in_place(tensors.collect()).map_err(StepFailure::Inside)
    })
}
