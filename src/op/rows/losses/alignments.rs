//! The probability of all alignments of a label sequence with the steps of a sample (Graves et al. 2006): the forward variables over the
//! labels, with a blank before, between and after them.

use crate::tensor::{Tensor, WideLoop, run_wide};
use crate::types::DType;

/// The sizes of a batch of log-probabilities, step by step.
#[derive(Clone, Copy)]
pub(super) struct LogProbs {
    pub batch: usize,
    pub classes: usize,
    pub blank: usize,
}

impl LogProbs {
    /// -log of the probability of all alignments of the labels with the first `steps` steps of a sample.
    pub(super) fn loss(self, log_probs: &Tensor, sample: usize, steps: usize, labels: &[usize]) -> f64 {
        match log_probs.dtype() {
            DType::F32 => self
                .of_values(log_probs.as_slice::<f32>())
                .alignment_loss(sample, steps, labels),
            _ => {
                let wide = log_probs.to(DType::F64);
                self.of_values(wide.as_slice::<f64>())
                    .alignment_loss(sample, steps, labels)
            }
        }
    }

    fn of_values<T>(self, values: &[T]) -> Values<'_, T> {
        Values { values, sizes: self }
    }
}

/// Log-probabilities with their sizes.
struct Values<'a, T> {
    values: &'a [T],
    sizes: LogProbs,
}

impl<T: Copy + Into<f64>> Values<'_, T> {
    fn at(&self, sample: usize, step: usize, class: usize) -> f64 {
        self.values[(step * self.sizes.batch + sample) * self.sizes.classes + class].into()
    }

    fn alignment_loss(&self, sample: usize, steps: usize, labels: &[usize]) -> f64 {
        if steps == 0 {
            return if labels.is_empty() { 0.0 } else { f64::INFINITY };
        }
        let linear = self.linear_loss(sample, steps, labels);
        linear.unwrap_or_else(|| self.logarithmic_loss(sample, steps, labels))
    }

    /// The loss by sums of probabilities, which need one exponential for each label and step. `None` if they are too far apart.
    fn linear_loss(&self, sample: usize, steps: usize, labels: &[usize]) -> Option<f64> {
        let mut forward = Forward::new(labels);
        for t in 0..steps {
            forward.blank = probability(self.at(sample, t, self.sizes.blank))?;
            for (p, &label) in forward.probabilities.iter_mut().zip(labels) {
                *p = probability(self.at(sample, t, label))?;
            }
            forward.advance();
        }
        forward.loss()
    }

    /// The loss by logarithms of sums.
    #[expect(clippy::needless_range_loop, reason = "places are numbers in the formula")]
    fn logarithmic_loss(&self, sample: usize, steps: usize, labels: &[usize]) -> f64 {
        const NEVER: f64 = f64::NEG_INFINITY;
        let label = |s: usize| {
            if s.is_multiple_of(2) {
                self.sizes.blank
            } else {
                labels[s / 2]
            }
        };
        let places = 2 * labels.len() + 1;
        let mut alpha = vec![NEVER; places];
        (0..places.min(2)).for_each(|s| alpha[s] = self.at(sample, 0, label(s)));
        for t in 1..steps {
            // The values before place `s`, of the step before.
            let (mut last, mut last_but_one) = (NEVER, NEVER);
            for s in 0..places {
                let skips = s > 1 && label(s - 2) != label(s);
                let sum = log_sum([alpha[s], last, if skips { last_but_one } else { NEVER }]);
                (last, last_but_one) = (alpha[s], last);
                alpha[s] = sum + self.at(sample, t, label(s));
            }
        }
        let end = |back: usize| places.checked_sub(back).map_or(NEVER, |s| alpha[s]);
        -log_sum([end(1), end(2), NEVER])
    }
}

fn log_sum(terms: [f64; 3]) -> f64 {
    let top = terms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let top = if top == f64::NEG_INFINITY { 0.0 } else { top };
    terms.iter().map(|x| (x - top).exp()).sum::<f64>().ln() + top
}

/// The probability, if it is 0 or a normal number.
fn probability(log: f64) -> Option<f64> {
    const MOST: f64 = 700.0;
    (log.abs() <= MOST || log == f64::NEG_INFINITY).then(|| log.exp())
}

/// Smaller forward variables become 0.
const TINY: f64 = 1e-270;

/// The forward variables are scaled when the largest leaves the range between this number and its inverse.
const LOW: f64 = 1e-20;

/// The forward variables of a step, up to a common factor.
struct Forward {
    /// Of the blanks before each label, and after the last one.
    blanks: Vec<f64>,
    /// Of the labels.
    labels: Vec<f64>,
    next_blanks: Vec<f64>,
    next_labels: Vec<f64>,
    /// 1 for the labels that may follow the one before them without a blank, else 0.
    skips: Vec<f64>,
    /// The probability of the blank, and of each label, in this step.
    blank: f64,
    probabilities: Vec<f64>,
    /// For each label, the sum of the probabilities of what may come after the label before it.
    growths: Vec<f64>,
    /// The logarithm of the common factor.
    scale: f64,
    /// More than what all that became 0 would add to any sum of the variables.
    lost: f64,
}

impl Forward {
    fn new(labels: &[usize]) -> Forward {
        let n = labels.len();
        let skips = |i: usize| (i > 0 && labels[i] != labels[i - 1]) as u8 as f64;
        let mut blanks = vec![0.0; n + 1];
        // Before the first step, the sequence is before its first blank: the step to it or to the first label is made below.
        blanks[0] = 1.0;
        Forward {
            blanks,
            labels: vec![0.0; n],
            next_blanks: vec![0.0; n + 1],
            next_labels: vec![0.0; n],
            skips: (0..n).map(skips).collect(),
            blank: 0.0,
            probabilities: vec![0.0; n],
            growths: vec![0.0; n],
            scale: 0.0,
            lost: 0.0,
        }
    }

    /// Moves on by one step.
    fn advance(&mut self) {
        let mut step = Extent::default();
        run_wide(Step {
            forward: self,
            extent: &mut step,
        });
        std::mem::swap(&mut self.blanks, &mut self.next_blanks);
        std::mem::swap(&mut self.labels, &mut self.next_labels);
        let flushed = (self.blanks.len() + self.labels.len()) as f64 * TINY;
        self.lost = self.lost * step.growth + if step.is_flushed { flushed } else { 0.0 };
        if step.most > 0.0 && !(LOW..1.0 / LOW).contains(&step.most) {
            let factor = 1.0 / step.most;
            self.blanks
                .iter_mut()
                .chain(&mut self.labels)
                .for_each(|v| *v *= factor);
            self.lost *= factor;
            self.scale += step.most.ln();
        }
    }

    /// The loss after the last step, if what was lost does not change it.
    fn loss(&self) -> Option<f64> {
        let end = self.blanks.last().unwrap_or(&0.0) + self.labels.last().unwrap_or(&0.0);
        (self.lost <= end * f64::EPSILON).then(|| -(end.ln() + self.scale))
    }
}

/// What a step did.
#[derive(Default)]
struct Extent {
    /// The largest new variable.
    most: f64,
    /// The largest factor by which the step increases the sum of what follows from one variable.
    growth: f64,
    is_flushed: bool,
}

struct Step<'a> {
    forward: &'a mut Forward,
    extent: &'a mut Extent,
}

impl WideLoop for Step<'_> {
    #[inline(always)]
    fn run(self) {
        let f = self.forward;
        let n = f.labels.len();
        let (blanks, labels) = (&f.blanks[..n + 1], &f.labels[..n]);
        let (next_blanks, next_labels) = (&mut f.next_blanks[..n + 1], &mut f.next_labels[..n]);
        let (skips, p, blank) = (&f.skips[..n], &f.probabilities[..n], f.blank);
        let growths = &mut f.growths[..n];
        let (first, mut is_flushed) = (product(blanks[0], blank), false);
        next_blanks[0] = first.0;
        for i in 0..n {
            let (v, flushed) = product(blanks[i + 1] + labels[i], blank);
            next_blanks[i + 1] = v;
            is_flushed |= flushed;
        }
        if n > 0 {
            let (v, flushed) = product(labels[0] + blanks[0], p[0]);
            next_labels[0] = v;
            is_flushed |= flushed;
            growths[0] = p[n - 1] + blank;
        }
        for i in 1..n {
            let (v, flushed) = product(labels[i] + blanks[i] + skips[i] * labels[i - 1], p[i]);
            next_labels[i] = v;
            is_flushed |= flushed;
            growths[i] = p[i - 1] + blank + skips[i] * p[i];
        }
        self.extent.most = largest(next_blanks).max(largest(next_labels));
        self.extent.growth = largest(growths).max(blank);
        self.extent.is_flushed = is_flushed | first.1;
    }
}

/// A new variable, from a sum of those before it and a probability, and whether it became 0.
#[inline(always)]
fn product(sum: f64, p: f64) -> (f64, bool) {
    let v = sum * p;
    let is_tiny = v < TINY;
    (if is_tiny { 0.0 } else { v }, is_tiny & (sum > 0.0) & (p > 0.0))
}

/// The largest of numbers that are not negative, or 0.
#[inline(always)]
fn largest(v: &[f64]) -> f64 {
    // Maxima of one lane would wait for each other.
    const LANES: usize = 8;
    let mut most = [0f64; LANES];
    let (chunks, rest) = v.as_chunks::<LANES>();
    for c in chunks {
        for k in 0..LANES {
            most[k] = if c[k] > most[k] { c[k] } else { most[k] };
        }
    }
    most.iter().chain(rest).fold(0.0, |a, &b| if b > a { b } else { a })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::SplitMix;

    /// Both ways, where the linear one has an answer; whether it has one.
    fn compare(values: &[f64], batch: usize, classes: usize, labels: &[usize]) -> bool {
        let blank = 0;
        let x = LogProbs { batch, classes, blank }.of_values(values);
        let steps = values.len() / batch / classes;
        let log = x.logarithmic_loss(batch - 1, steps, labels);
        let Some(linear) = x.linear_loss(batch - 1, steps, labels) else {
            return false;
        };
        assert!(
            linear == log || (linear - log).abs() <= 1e-9 * (1.0 + log.abs()),
            "{linear} and {log} of {labels:?} in {steps} steps"
        );
        true
    }

    #[test]
    fn sums_of_probabilities_are_those_of_logarithms() {
        let mut random = SplitMix::new(23);
        for (steps, batch, classes, len) in [
            (1, 1, 2, 0),
            (1, 2, 3, 1),
            (5, 1, 4, 2),
            (60, 3, 20, 20),
            (300, 2, 6, 9),
        ] {
            for spread in [0.5, 5.0, 60.0, 600.0] {
                let values: Vec<f64> = (0..steps * batch * classes)
                    .map(|_| -spread * random.next_unit())
                    .collect();
                let labels: Vec<usize> = (0..len).map(|_| 1 + random.next_below(classes - 1)).collect();
                let is_linear = compare(&values, batch, classes, &labels);
                assert!(is_linear || spread > 5.0);
            }
        }
    }

    #[test]
    fn what_was_lost_counts_when_nothing_else_is_left() {
        let (never, small) = (f64::NEG_INFINITY, -600.0);
        // The blank is likely for two steps, and then the label, which was very unlikely, is all that is possible.
        let values = [0.0, small, 0.0, small, never, small, never, small];
        let sizes = LogProbs {
            batch: 1,
            classes: 2,
            blank: 0,
        };
        let x = sizes.of_values(&values);
        let loss = x.alignment_loss(0, 4, &[1]);
        assert!((loss - 1200.0).abs() < 2.0, "{loss}");
        // A repeated label takes a blank between.
        let loss = x.alignment_loss(0, 4, &[1, 1]);
        assert!((loss - 1800.0).abs() < 2.0, "{loss}");
        assert_eq!(x.alignment_loss(0, 4, &[1, 1, 1]), f64::INFINITY);
        assert_eq!(x.alignment_loss(0, 0, &[]), 0.0);
        let nan = sizes.of_values(&[f64::NAN; 4]);
        assert!(nan.alignment_loss(0, 2, &[1]).is_nan());
    }
}
