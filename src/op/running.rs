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

/// How a row updates running statistics.
#[derive(Clone, Copy, Debug)]
pub struct RunningStats {
    /// The op that also gives the new statistics, as its last two results.
    pub form: OpId,
    /// That op where the parameter `verify` is true.
    pub verified: Option<OpId>,
    /// That op where batches are counted: it takes and gives their number too.
    pub tracked: Option<OpId>,
    /// The parameter without which nothing is updated; `None` if the row always trains.
    pub training: Option<&'static str>,
}

/// The functional form of a call that updates running statistics.
pub struct Functional<T> {
    /// The call. Its first results are those of the op, its last ones the new statistics.
    pub call: Call<T>,
    /// How many results the op has.
    own: usize,
}

/// The functional form of a call that updates running statistics, `None` for other calls.
pub fn functional_form<T: Clone>(call: &Call<T>) -> Option<Functional<T>> {
    let running = call.op.facts.running?;
    let is_true = |p: &str| {
        let given = call.op.schema.index_of(p).and_then(|i| call.args.get(i));
        matches!(given, Some(Val::Bool(true)))
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
            own: running.form.op().schema.results - statistics.len(),
        }
    })
}

impl<T: Clone> Functional<T> {
    /// The result of `call`, which this is the form of, among the form's results.
    pub fn own_result(&self, call: &Call<T>, results: &[Val<T>]) -> Val<T> {
        match call.op.schema.results {
            1 => results.first().cloned().unwrap_or(Val::Unknown),
            _ => Val::Tuple(results.get(..self.own).unwrap_or_default().to_vec()),
        }
    }

    /// The parameters of the op that are written to, with what is written.
    pub fn written_params(&self, results: &[Val<T>]) -> Vec<(usize, Val<T>)> {
        WRITTEN
            .into_iter()
            .zip(results.iter().skip(self.own).cloned())
            .collect()
    }
}
