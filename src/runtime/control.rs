//! Steps that run programs: control flow.

use super::executable::{Executable, RunError};
use crate::diag::{Code, Diagnostic};
use crate::op::control::{Parts, parts, run};
use crate::op::{Call, OpError};
use crate::tensor::Tensor;
use crate::types::Val;

/// An error of the step, or one of a program it ran.
enum Fail {
    Op(OpError),
    Inside(RunError),
}

impl From<OpError> for Fail {
    fn from(e: OpError) -> Fail {
        Fail::Op(e)
    }
}

/// The tensors of the result of a control-flow call, flattened.
pub(super) fn evaluate(call: &Call<Tensor>, graphs: &mut [Executable]) -> Result<Vec<Tensor>, RunError> {
    let result = parts(call).map_err(Fail::Op).and_then(|p| flow(&p, graphs));
    match result {
        Ok(v) => Ok(v.leaves().into_iter().cloned().collect()),
        Err(Fail::Inside(d)) => Err(d),
        Err(Fail::Op(e)) => {
            let mut d = Diagnostic::new(e.code, e.title);
            (d.notes, d.help) = (e.notes, e.help);
            d.notes.push(format!("while running `{}`", call.op.name));
            Err(Box::new(d))
        }
    }
}

fn flow(p: &Parts<Tensor>, graphs: &mut [Executable]) -> Result<Val<Tensor>, Fail> {
    run(p, &mut |i, inputs: Vec<Val<Tensor>>| {
        let graph = graphs
            .get_mut(i)
            .ok_or_else(|| OpError::new(Code::E0603, "a program is missing"))?;
        // Inputs that are no tensors were fixed when the program was made.
        let tensors: Vec<Tensor> = inputs.iter().filter_map(|v| v.as_leaf().cloned()).collect();
        graph.run(&tensors).map_err(Fail::Inside)
    })
}
