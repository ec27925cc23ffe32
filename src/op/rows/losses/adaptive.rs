//! `AdaptiveLogSoftmaxWithLoss`: a softmax over many classes, the rare ones in clusters (Grave et al. 2017,
//! <https://arxiv.org/abs/1609.04309>).

use crate::op::{Build, Call, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::types::{Dim, Val};

pub(super) fn rows() -> Vec<Op> {
    vec![
        Op::composite("adaptive_log_softmax_with_loss(Tensor input, Tensor target, int[] cutoffs, Tensor head, Tensor? head_bias, Tensor[] \
             tails) -> (Tensor, Tensor)",
            with_loss,
        )
        .doc(
            "the log-probabilities of the targets, and their negated mean; `tails` contains two matrices for each cluster of rare \
             classes",
        )
        .module(
            "AdaptiveLogSoftmaxWithLoss(in_features, n_classes, cutoffs, div_value=4.0, head_bias=False) = \
             adaptive_log_softmax_with_loss($0:input, $1:target, cutoffs, @head.weight, @head.bias if head_bias, @each cutoffs of \
             tail.*.0.weight tail.*.1.weight)",
        ),
    ]
}

/// The log-probabilities of all classes for each input row: those of the head's classes, then those of each cluster's
/// classes, to which the head's log-probability of the cluster is added.
fn log_probabilities(b: &mut dyn Build, c: &Call<Traced>, rows: &Traced) -> OpResult<Traced> {
    let cutoffs = c.ints("cutoffs")?;
    let tails = c.leaves("tails")?;
    if cutoffs.is_empty() || tails.len() != 2 * cutoffs.len() {
        return Err(OpError::arg(
            "cutoffs",
            "each cutoff requires a cluster of two matrices",
        ));
    }
    let head = b.op(
        OpId::Linear,
        [rows.into(), c.get("head").clone(), c.get("head_bias").clone()],
    )?;
    let head = b.log_softmax(&head, Val::int(1))?;
    let first = cutoffs[0];
    let mut parts = vec![b.slice(&head, 1, Dim::Const(0), Dim::Const(first), 1)?];
    for (i, pair) in tails.chunks_exact(2).enumerate() {
        let hidden = b.linear(rows, pair[0])?;
        let scores = b.linear(&hidden, pair[1])?;
        let scores = b.log_softmax(&scores, Val::int(1))?;
        let column = first + i as i64;
        let cluster = b.slice(&head, 1, Dim::Const(column), Dim::Const(column + 1), 1)?;
        parts.push(b.add(&scores, &cluster)?);
    }
    let parts = parts.into_iter().map(Val::Leaf).collect();
    b.op(OpId::Cat, [Val::List(parts), Val::int(1)])
}

fn with_loss(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, target) = (c.leaf("input")?, c.leaf("target")?);
    let (rank, of_target) = (x.rank()?, target.rank()?);
    if !matches!((of_target, rank), (1, 2) | (0, 1)) {
        return Err(OpError::shape(
            "0D or 1D target tensor expected, with an input of one dim more",
        ));
    }
    let single = rank == 1;
    let (rows, classes) = match single {
        true => (b.unsqueeze(x, 0)?, b.unsqueeze(target, 0)?),
        false => (x.clone(), target.clone()),
    };
    if let (Some(a), Some(t)) = (rows.shape()?.first(), classes.shape()?.first())
        && let (Some(a), Some(t)) = (a.as_const(), t.as_const())
        && a != t
    {
        return Err(OpError::shape(
            "Input and target should have the same size in the batch dimension.",
        ));
    }
    let all = log_probabilities(b, c, &rows)?;
    let column = b.unsqueeze(&classes, 1)?;
    let chosen = b.gather(&all, Val::int(1), &column)?;
    let out = b.op(OpId::Squeeze, [(&chosen).into(), Val::int(1)])?;
    let mean = b.mean(&out)?;
    let loss = b.neg(&mean)?;
    let out = match single {
        true => b.op(OpId::Squeeze, [(&out).into(), Val::int(0)])?,
        false => out,
    };
    Ok(Val::Tuple(vec![out.into(), loss.into()]))
}
