//! Losses that process each sample separately: connectionist temporal classification, and margins between sets of
//! classes.

use super::alignments::LogProbs;
use crate::op::pointwise::not_implemented;
use crate::op::rows::dense::{to_i64_indices, zeros};
use crate::op::rows::fill::units_per_part;
use crate::op::{Call, Meaning, Op, OpError, OpId, OpResult};
use crate::parallel::Pool;
use crate::tensor::{Scalar, Tensor, with_wide_vectors};
use crate::types::{DType, Dim, TensorType, Type, Val};
use std::ops::Range;

const CTC: &str = "ctc_loss(Tensor log_probs, Tensor targets, Any input_lengths, Any target_lengths, int blank=0, Any \
                   reduction=1, bool zero_infinity=False) -> Tensor";
const MULTILABEL: &str =
    "multilabel_margin_loss_forward(Tensor self, Tensor target, int reduction) -> (Tensor, Tensor)";

pub(super) fn rows() -> Vec<Op> {
    [ctc_rows(), multilabel_rows()].into_iter().flatten().collect()
}

fn ctc_rows() -> Vec<Op> {
    vec![
        Op::new(("ctc_loss", CTC), |c, _| ctc_type(c), Meaning::Routine(ctc_loss))
            .doc("-log of the probability of all alignments of the targets with the log_probs")
            .form(
                "aten.ctc_loss.IntList",
                "ctc_loss(Tensor log_probs, Tensor targets, int[] input_lengths, int[] target_lengths, int blank=0, int \
                 reduction=1, bool zero_infinity=False) -> Tensor",
            )
            .form(
                "aten.ctc_loss.Tensor",
                "ctc_loss(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank=0, int \
                 reduction=1, bool zero_infinity=False) -> Tensor",
            )
            .form(
                "torch.ctc_loss",
                "ctc_loss(Tensor log_probs, Tensor targets, Any input_lengths, Any target_lengths, int blank=0, int reduction=0, \
                 bool zero_infinity=False) -> Tensor",
            )
            .form(
                "torch.nn.functional.ctc_loss",
                "ctc_loss(Tensor log_probs, Tensor targets, Any input_lengths, Any target_lengths, int blank=0, str \
                 reduction='mean', bool zero_infinity=False) -> Tensor",
            )
            .module(
                "CTCLoss(blank=0, reduction='mean', zero_infinity=False) = ctc_loss($0:log_probs, $1:targets, \
                 $2:input_lengths, $3:target_lengths, blank, reduction, zero_infinity)",
            ),
    ]
}

fn multilabel_rows() -> Vec<Op> {
    vec![
        Op::new(
            ("multilabel_margin_loss_forward", MULTILABEL),
            |c, _| multilabel_type(c),
            Meaning::Routine(multilabel_margin_loss),
        )
        .doc("multilabel_margin_loss, and a mask of the target classes")
        .spelled("aten.multilabel_margin_loss_forward.default"),
        Op::composite(
            "multilabel_margin_loss(Tensor self, Tensor target, Any reduction=1) -> Tensor",
            |b, c| {
                let how = super::parse_reduction(c)? as i64;
                let args = [c.get("self").clone(), c.get("target").clone(), Val::int(how)];
                let mut both = b.call_many(OpId::MultilabelMarginLossForward, args)?;
                Ok(both.swap_remove(0).into())
            },
        )
        .doc("max(0, 1 - self[target] + self[other]) summed over targets (up to the first -1) and other classes")
        .form(
            "aten.multilabel_margin_loss.default torch._C._nn.multilabel_margin_loss",
            "multilabel_margin_loss(Tensor self, Tensor target, int reduction=1) -> Tensor",
        )
        .form(
            "torch.nn.functional.multilabel_margin_loss",
            "multilabel_margin_loss(Tensor self, Tensor target, Any size_average=None, Any reduce=None, str \
             reduction='mean') -> Tensor",
        )
        .module(
            "MultiLabelMarginLoss(size_average=None, reduce=None, reduction='mean') = multilabel_margin_loss($0:input, \
             $1:target, reduction)",
        ),
    ]
}

/// The reduction, as torch's number for it.
fn parse_reduction<T>(c: &Call<T>) -> OpResult<i64> {
    let v = c.get("reduction");
    match (v.as_int(), v.as_str()) {
        (_, Some("none")) => Ok(0),
        (_, Some("mean")) => Ok(1),
        (_, Some("sum")) => Ok(2),
        (Some(n @ 0..=2), _) => Ok(n),
        _ => Err(OpError::arg("reduction", "reduction must be 'none', 'mean' or 'sum'")),
    }
}

/// Returns one result per sample, or a single one.
fn reduce_losses(values: &[f64], reduction: i64, dtype: DType, shape: &[usize]) -> OpResult<Tensor> {
    let total: f64 = values.iter().sum();
    let whole = [if reduction == 1 {
        total / values.len() as f64
    } else {
        total
    }];
    let (shape, values): (&[usize], &[f64]) = if reduction == 0 { (shape, values) } else { (&[], &whole) };
    let mut out = zeros(dtype, shape)?;
    values.iter().enumerate().for_each(|(i, v)| out.set(i, Scalar::F64(*v)));
    Ok(out)
}

// --- connectionist temporal classification -----------------------------------------------------------------------------

fn ctc_type(c: &Call<TensorType>) -> OpResult<Type> {
    let (d, x) = c.shaped("log_probs")?;
    if !matches!(d, DType::F32 | DType::F64) {
        return Err(not_implemented("ctc_loss_cpu", d));
    }
    if x.len() != 2 && x.len() != 3 {
        return Err(OpError::shape("log_probs must have 2 or 3 dims"));
    }
    if c.leaf("targets")?.dtype.is_float() {
        return Err(OpError::dtype("Expected targets to be of an integer dtype"));
    }
    let shape = if parse_reduction(c)? == 0 && x.len() == 3 {
        vec![x[1].clone()]
    } else {
        vec![]
    };
    Ok(Val::Leaf(TensorType::new(d, shape)))
}

/// Sequence lengths, given as a list or a tensor.
fn sequence_lengths(c: &Call<Tensor>, name: &str, batch: usize) -> OpResult<Vec<usize>> {
    let lengths = match c.get(name) {
        Val::Leaf(t) => to_i64_indices(t, "lengths must be integers")?
            .as_slice::<i64>()
            .to_vec(),
        _ => c.ints(name)?,
    };
    if lengths.len() != batch {
        return Err(OpError::shape(format!("{name} must be of size batch_size")));
    }
    let size = |n: &i64| usize::try_from(*n);
    lengths
        .iter()
        .map(size)
        .collect::<Result<_, _>>()
        .map_err(|_| OpError::value(format!("{name} must not be negative")))
}

fn ctc_loss(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (x, targets) = (c.leaf("log_probs")?, c.leaf("targets")?);
    let single = x.rank() == 2;
    let [time, batch, classes] = ctc_sizes(x)?;
    let blank = usize::try_from(c.int("blank")?).ok().filter(|b| *b < classes);
    let blank = blank.ok_or_else(|| OpError::arg("blank", "blank must be in label range"))?;
    let input_lengths = sequence_lengths(c, "input_lengths", batch)?;
    let by_rows = targets.rank() == 2 || single;
    let label_ranges = LabelRanges {
        lengths: sequence_lengths(c, "target_lengths", batch)?,
        labels: targets.numel(),
        row: targets.shape().last().copied().filter(|_| by_rows),
    };
    let reduction = parse_reduction(c)?;
    let sizes = LogProbs { batch, classes, blank };
    let (mut samples, mut end) = (vec![], 0);
    for (number, &steps) in input_lengths.iter().enumerate() {
        let range = label_ranges.of_sample(number, end)?;
        end = range.end;
        check_input_length(steps, time)?;
        samples.push((steps, labels_in(targets, range, classes)?));
    }
    let zero_infinity = c.bool("zero_infinity")?;
    let losses = losses_of_samples(&samples, |number, steps, labels| {
        let loss = match sizes.loss(x, number, steps, labels) {
            f64::INFINITY if zero_infinity => 0.0,
            loss => loss,
        };
        // The mean is of losses per label.
        let divisor = if reduction == 1 { labels.len().max(1) } else { 1 };
        loss / divisor as f64
    });
    let shape: &[usize] = if single { &[] } else { &[batch] };
    reduce_losses(&losses, reduction, x.dtype(), shape).map(Val::Leaf)
}

/// The loss of each sample, of the given number of steps and with these labels, on the threads that were lent.
fn losses_of_samples(samples: &[(usize, Vec<usize>)], loss: impl Fn(usize, usize, &[usize]) -> f64 + Sync) -> Vec<f64> {
    /// What a step costs for each label, beside what copying a byte does.
    const COST: usize = 256;
    let work: usize = samples
        .iter()
        .map(|(steps, labels)| steps.saturating_mul(labels.len() + 1))
        .fold(0, usize::saturating_add);
    let mut losses = vec![0.0; samples.len()];
    Pool::with_lent(|pool| {
        let part = units_per_part(samples.len(), (work / samples.len().max(1)).saturating_mul(COST), pool);
        pool.run_parts(&mut losses, part, |i, losses| {
            for (k, l) in (i * part..).zip(losses) {
                let (steps, labels) = &samples[k];
                *l = loss(k, *steps, labels);
            }
        });
    });
    losses
}

/// The numbers of steps, samples and classes.
fn ctc_sizes(log_probs: &Tensor) -> OpResult<[usize; 3]> {
    match log_probs.shape() {
        [t, n] => Ok([*t, 1, *n]),
        [t, b, n] => Ok([*t, *b, *n]),
        _ => Err(OpError::shape("log_probs must have 2 or 3 dims")),
    }
}

fn check_input_length(steps: usize, time: usize) -> OpResult<()> {
    match steps > time {
        true => Err(OpError::value(format!(
            "Expected input_lengths to have value at most {time}, but got value {steps}"
        ))),
        false => Ok(()),
    }
}

/// The labels in a range of the targets.
fn labels_in(targets: &Tensor, range: Range<usize>, classes: usize) -> OpResult<Vec<usize>> {
    let class = |i| usize::try_from(targets.get(i).to_i64()).ok().filter(|t| *t < classes);
    let labels: Option<Vec<usize>> = range.map(class).collect();
    labels.ok_or_else(|| OpError::value("a target is not a valid class"))
}

/// Where the labels of each sample are in the targets.
struct LabelRanges {
    /// The number of labels of each sample.
    lengths: Vec<usize>,
    /// The number of labels in the targets.
    labels: usize,
    /// The length of the targets' rows, if there is one row per sample. Otherwise all labels are concatenated.
    row: Option<usize>,
}

impl LabelRanges {
    /// The labels of a sample, where those of the samples before it end at `previous`.
    fn of_sample(&self, number: usize, previous: usize) -> OpResult<Range<usize>> {
        let length = self.lengths[number];
        let start = self.row.map_or(previous, |n| number * n);
        let end = start.checked_add(length);
        let end = end.filter(|&e| e <= self.labels && self.row.is_none_or(|n| length <= n));
        let too_short = || OpError::value("Expected tensor to have size at least the target length at dimension 1");
        Ok(start..end.ok_or_else(too_short)?)
    }
}

// --- margins between sets of classes -----------------------------------------------------------------------------------

fn multilabel_type(c: &Call<TensorType>) -> OpResult<Type> {
    let (d, x) = c.shaped("self")?;
    let (td, target) = c.shaped("target")?;
    if !matches!(d, DType::F32 | DType::F64) {
        return Err(not_implemented("multilabel_margin_loss_forward_out_frame", d));
    }
    if td != DType::I64 {
        return Err(OpError::dtype(format!(
            "expected scalar type Long but found {}",
            td.scalar_type_name()
        )));
    }
    let same = x
        .iter()
        .zip(target)
        .all(|(a, b)| a.sub(b).as_const().is_none_or(|d| d == 0));
    let single = |s: &[Dim]| s.iter().all(|d| *d == Dim::Const(1));
    if x.len() > 2 || x.len() != target.len() && !(single(x) && single(target)) || !same {
        return Err(OpError::shape(
            "inconsistent target size: multilabel_margin_loss takes targets of the input's shape",
        ));
    }
    let rows = if parse_reduction(c)? == 0 && target.len() > 1 {
        vec![x[0].clone()]
    } else {
        vec![]
    };
    let (loss, which) = (TensorType::new(d, rows), TensorType::new(d, target.to_vec()));
    Ok(Val::Tuple(vec![Val::Leaf(loss), Val::Leaf(which)]))
}

fn multilabel_margin_loss(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (x, target) = (c.leaf("self")?, c.leaf("target")?);
    let classes = x.shape().last().copied().unwrap_or(1);
    let batch = if x.rank() == 2 { x.shape()[0] } else { 1 };
    let mut which = zeros(x.dtype(), target.shape())?;
    let (wide, targets) = (x.to(DType::F64), target.as_slice::<i64>());
    let (mut losses, mut labels, mut others) = (vec![], vec![], vec![]);
    for n in 0..batch {
        let row = &wide.as_slice::<f64>()[n * classes..][..classes];
        labels.clear();
        for t in targets[n * classes..][..classes].iter().take_while(|t| **t != -1) {
            let class = usize::try_from(*t).ok().filter(|t| *t < classes);
            labels.push(class.ok_or_else(|| OpError::value("target out of range"))?);
        }
        let mut is_target = vec![false; classes];
        for &k in &labels {
            is_target[k] = true;
            which.set(n * classes + k, Scalar::F64(1.0));
        }
        others.clear();
        others.extend(row.iter().zip(&is_target).filter(|(_, t)| !**t).map(|(v, _)| *v));
        let over = |&k: &usize| sum_of_excesses(1.0 - row[k], &others);
        losses.push(labels.iter().map(over).sum::<f64>() / classes as f64);
    }
    let shape: &[usize] = if target.rank() > 1 { &[batch] } else { &[] };
    let loss = reduce_losses(&losses, parse_reduction(c)?, x.dtype(), shape)?;
    Ok(Val::Tuple(vec![Val::Leaf(loss), Val::Leaf(which)]))
}

/// The sum of `base + v` over the elements where this is positive.
fn sum_of_excesses(base: f64, v: &[f64]) -> f64 {
    // Additions to one sum would wait for each other.
    const LANES: usize = 16;
    let mut sums = [0.0; LANES];
    let (chunks, rest) = v.as_chunks::<LANES>();
    with_wide_vectors(|| {
        for c in chunks {
            for k in 0..LANES {
                sums[k] += (base + c[k]).max(0.0);
            }
        }
    });
    rest.iter().zip(&mut sums).for_each(|(v, s)| *s += (base + v).max(0.0));
    sums.iter().sum()
}
