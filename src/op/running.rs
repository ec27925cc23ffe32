//! Batch and instance normalisation in training: ops that write to some of their arguments.
//!
//! `batch_norm(x, weight, bias, running_mean, running_var, training=True, …)` leaves new running statistics in the tensors
//! it was given; a module counts its batches too. Its functional form gives them as results; the interpreter and functionalisation write them back.

use super::Call;
use super::emit::call_of;
use crate::op::OpId;
use crate::types::Val;

/// The parameters that are written to: `running_mean` and `running_var` in all of these ops, and `num_batches_tracked`.
const WRITTEN: [usize; 3] = [3, 4, 10];

/// The parameter that says whether statistics are means over all batches, which takes their number.
const CUMULATIVE: usize = 11;

/// The functional form of a call that updates running statistics.
pub struct Functional<T> {
    /// The call. Its first results are those of the op, its last ones the new statistics.
    pub call: Call<T>,
    /// How many results the op has.
    own: usize,
}

/// The functional form of a call that updates running statistics, `None` for other calls.
pub fn functional<T: Clone>(call: &Call<T>) -> Option<Functional<T>> {
    let verify = call.op.schema.index_of("verify").and_then(|i| call.args.get(i));
    let verified = matches!(verify, Some(Val::Bool(true)));
    let is_tensor = |&p: &usize| matches!(call.args.get(p), Some(Val::Leaf(_)));
    let [statistics @ .., counter] = WRITTEN;
    let cumulative = matches!(call.args.get(CUMULATIVE), Some(Val::Bool(true)));
    let (form, own) = match call.op.id() {
        Some(OpId::BatchNorm) if is_tensor(&counter) || cumulative => (OpId::TrackedBatchNorm, 3),
        Some(OpId::BatchNorm) if verified => (OpId::VerifiedBatchNorm, 3),
        Some(OpId::BatchNorm | OpId::NativeBatchNorm) => (OpId::_NativeBatchNormLegitFunctional, 3),
        Some(OpId::_BatchNormWithUpdate) => (OpId::_BatchNormWithUpdateFunctional, 4),
        Some(OpId::InstanceNorm) if verified => (OpId::VerifiedInstanceNorm, 1),
        Some(OpId::InstanceNorm) => (OpId::_InstanceNormFunctional, 1),
        _ => return None,
    };
    let always = call.op.schema.index_of("training").is_none() && own == 4;
    let training = always || matches!(call.args.get(5), Some(Val::Bool(true)));
    (training && statistics.iter().all(is_tensor)).then(|| {
        let mut args: Vec<Val<T>> = call.args.iter().take(8).cloned().collect();
        if form == OpId::TrackedBatchNorm {
            args.extend([call.args[counter].clone(), Val::Bool(cumulative)]);
        }
        Functional {
            call: call_of(form.op(), args),
            own,
        }
    })
}

impl<T: Clone> Functional<T> {
    /// The result of `call`, which this is the form of, among the form's results.
    pub fn own(&self, call: &Call<T>, results: &[Val<T>]) -> Val<T> {
        match call.op.id() {
            Some(OpId::NativeBatchNorm | OpId::_BatchNormWithUpdate) => {
                Val::Tuple(results.get(..self.own).unwrap_or_default().to_vec())
            }
            _ => results.first().cloned().unwrap_or(Val::Unknown),
        }
    }

    /// The parameters of the op that are written to, with what is written.
    pub fn writes(&self, results: &[Val<T>]) -> Vec<(usize, Val<T>)> {
        WRITTEN
            .into_iter()
            .zip(results.iter().skip(self.own).cloned())
            .collect()
    }
}
