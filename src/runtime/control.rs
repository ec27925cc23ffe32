//! Steps that run programs: control flow.

use super::executable::{Executable, RunError};
use crate::control::{ControlError, Parts, run};
use crate::diag::{Code, Diagnostic};
use crate::tensor::Tensor;
use crate::types::Val;

/// An error of the step, or one of a program it ran.
enum Fail {
    Step(ControlError),
    Inside(RunError),
}

impl From<ControlError> for Fail {
    fn from(e: ControlError) -> Fail {
        Fail::Step(e)
    }
}

/// The tensors of the result of the control-flow call of `op`, flattened.
pub(super) fn evaluate(op: &str, parts: &Parts<Tensor>, graphs: &mut [Executable]) -> Result<Vec<Tensor>, RunError> {
    match flow(parts, graphs) {
        Ok(v) => Ok(v.leaves().into_iter().cloned().collect()),
        Err(Fail::Inside(d)) => Err(d),
        Err(Fail::Step(e)) => {
            let d = Diagnostic::new(Code::E0502, e.0);
            Err(Box::new(d.note(format!("while running `{op}`"))))
        }
    }
}

fn flow(parts: &Parts<Tensor>, graphs: &mut [Executable]) -> Result<Val<Tensor>, Fail> {
    run(parts, &mut |i, inputs: Vec<Val<Tensor>>| {
        let graph = graphs
            .get_mut(i)
            .ok_or_else(|| ControlError("a program is missing".into()))?;
        // Inputs that are not tensors were fixed when the program was made.
        let tensors: Vec<Tensor> = inputs.iter().filter_map(|v| v.as_leaf().cloned()).collect();
        graph.run(&tensors).map_err(Fail::Inside)
    })
}
