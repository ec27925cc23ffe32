//! Batch and instance normalisation in training, which write to some of their arguments.
//!
//! `batch_norm(x, weight, bias, running_mean, running_var, training=True, …)` writes new running statistics to the given tensors; a
//! module also counts its batches. The functional form returns the new values as results, and the interpreter and
//! functionalisation write them back.

use super::Call;
use super::emit::call_of;
use crate::op::OpId;
use crate::types::Val;

/// The parameters that are written to: `running_mean` and `running_var` in all of these ops, and `num_batches_tracked`
/// in those that count batches.
const WRITTEN: [usize; 3] = [3, 4, 10];

/// The parameter that says whether statistics are means over all batches, which requires the number of batches.
const CUMULATIVE: usize = 11;

/// How a row updates running statistics.
#[derive(Clone, Copy, Debug)]
pub struct RunningStats {
    /// The op that also returns the new statistics, as its last two results.
    pub form: OpId,
    /// The op to use instead if the parameter `verify` is true.
    pub verified: Option<OpId>,
    /// The op to use instead if batches are counted: it also takes and returns their number.
    pub tracked: Option<OpId>,
    /// The parameter that must be true for an update; `None` if the row always updates.
    pub training: Option<&'static str>,
}

/// The functional form of a call that updates running statistics.
pub(crate) struct Functional<T> {
    /// The functional call. The op's own results come first, the new statistics last.
    pub call: Call<T>,
    /// The number of the op's own results.
    results: usize,
}

/// The functional form of a call that updates running statistics; `None` for other calls.
pub(crate) fn functional_form<T: Clone>(call: &Call<T>) -> Option<Functional<T>> {
    let running = call.op.facts.running?;
    let is_true = |p: &str| {
        let argument = call.op.schema.index_of(p).and_then(|i| call.args.get(i));
        matches!(argument, Some(Val::Bool(true)))
    };
    let is_tensor = |&p: &usize| matches!(call.args.get(p), Some(Val::Leaf(_)));
    let [statistics @ .., counter] = WRITTEN;
    let cumulative = matches!(call.args.get(CUMULATIVE), Some(Val::Bool(true)));
    let tracked = running.tracked.filter(|_| is_tensor(&counter) || cumulative);
    let verified = running.verified.filter(|_| is_true("verify"));
    let training = running.training.is_none_or(is_true);
    (training && statistics.iter().all(is_tensor)).then(|| {
        let mut args: Vec<Val<T>> = call.args.iter().take(8).cloned().collect();
        if tracked.is_some() {
            args.extend([call.args[counter].clone(), Val::Bool(cumulative)]);
        }
        Functional {
            call: call_of(tracked.or(verified).unwrap_or(running.form).op(), args),
            results: running.form.op().schema.results - statistics.len(),
        }
    })
}

impl<T: Clone> Functional<T> {
    /// The result of the original `call`, taken from the results of its functional form.
    pub(crate) fn own_result(&self, call: &Call<T>, results: &[Val<T>]) -> Val<T> {
        match call.op.schema.results {
            1 => results.first().cloned().unwrap_or(Val::Unknown),
            _ => Val::Tuple(results.get(..self.results).unwrap_or_default().to_vec()),
        }
    }

    /// The parameters of the op that are written to, with their new values.
    pub(crate) fn written_params(&self, results: &[Val<T>]) -> Vec<(usize, Val<T>)> {
        WRITTEN
            .into_iter()
            .zip(results.iter().skip(self.results).cloned())
            .collect()
    }
}
