//! Chooses the next token from the scores of a model.

use crate::tensor::SplitMix;

/// How to choose a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sampling {
    /// Divides the scores; 0 takes the greatest score.
    pub temperature: f64,
    /// Only this many tokens with the greatest scores are candidates; 0 means all.
    pub top_k: usize,
    /// Only the most probable tokens are candidates whose probabilities add up to this; 1 means all.
    pub top_p: f64,
}

/// Chooses tokens, with its own random numbers.
pub(super) struct Sampler {
    sampling: Sampling,
    random: SplitMix,
    /// The candidates of one choice: weights, and tokens. Kept, so that later choices do not allocate.
    candidates: Vec<(f64, usize)>,
}

/// The number of candidates that are sorted first. The probabilities of a few tokens mostly add up to `top_p`.
const SORTED_FIRST: usize = 256;

impl Sampler {
    pub(super) fn new(sampling: Sampling, seed: u64) -> Sampler {
        Sampler {
            sampling,
            random: SplitMix::new(seed),
            candidates: vec![],
        }
    }

    /// Chooses a token. `scores` has the score of each token of the vocabulary. `None` if it is empty.
    pub(super) fn choose(&mut self, scores: &[f32]) -> Option<usize> {
        let greatest = index_of_greatest(scores)?;
        if self.sampling.temperature <= 0.0 || !scores[greatest].is_finite() {
            return Some(greatest);
        }
        self.weigh(scores, f64::from(scores[greatest]));
        self.keep_top_k();
        let total = self.candidates.iter().map(|c| c.0).sum();
        let total = self.keep_top_p(total);
        let mut rest = self.next_unit() * total;
        for &(weight, token) in &self.candidates {
            rest -= weight;
            if rest < 0.0 {
                return Some(token);
            }
        }
        // The sum was rounded.
        self.candidates.last().map(|c| c.1).or(Some(greatest))
    }

    /// Uniform in [0, 1), with all bits of an f64: with 24 bits, rare tokens of a large vocabulary would never be chosen.
    fn next_unit(&mut self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Makes every token a candidate, whose weight is its probability times a common factor.
    fn weigh(&mut self, scores: &[f32], greatest: f64) {
        let by = 1.0 / self.sampling.temperature;
        let weight = |x: f32| ((f64::from(x) - greatest) * by).exp();
        self.candidates.clear();
        let weights = scores.iter().enumerate().filter(|(_, x)| !x.is_nan());
        self.candidates.extend(weights.map(|(token, &x)| (weight(x), token)));
    }

    /// Keeps the `top_k` heaviest candidates, and those that are as heavy as the lightest of them.
    fn keep_top_k(&mut self) {
        let k = self.sampling.top_k;
        if k == 0 || k >= self.candidates.len() {
            return;
        }
        let (_, last, _) = self.candidates.select_nth_unstable_by(k - 1, heaviest_first);
        let least = last.0;
        self.candidates.retain(|c| c.0 >= least);
        self.candidates.sort_unstable_by(heaviest_first);
    }

    /// Keeps the fewest of the heaviest candidates that have `top_p` of the total weight, and returns their weight.
    fn keep_top_p(&mut self, total: f64) -> f64 {
        let wanted = self.sampling.top_p * total;
        if self.sampling.top_p >= 1.0 {
            return total;
        }
        let n = self.candidates.len();
        let mut sorted = SORTED_FIRST;
        loop {
            if sorted < n {
                self.candidates.select_nth_unstable_by(sorted, heaviest_first);
            }
            let first = &mut self.candidates[..sorted.min(n)];
            first.sort_unstable_by(heaviest_first);
            let mut sum = 0.0;
            for (i, candidate) in first.iter().enumerate() {
                sum += candidate.0;
                if sum >= wanted {
                    self.candidates.truncate(i + 1);
                    return sum;
                }
            }
            if sorted >= n {
                return sum;
            }
            sorted *= 8;
        }
    }
}

/// Heavier candidates first, and among equal ones the lower token, so that the result does not depend on how they are sorted.
fn heaviest_first(a: &(f64, usize), b: &(f64, usize)) -> std::cmp::Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

/// The index of the first greatest score. NaN is the greatest, as for torch.argmax.
fn index_of_greatest(scores: &[f32]) -> Option<usize> {
    if let Some(nan) = scores.iter().position(|x| x.is_nan()) {
        return Some(nan);
    }
    let mut greatest = None;
    for (i, &x) in scores.iter().enumerate() {
        if greatest.is_none_or(|g: usize| x > scores[g]) {
            greatest = Some(i);
        }
    }
    greatest
}

#[cfg(test)]
mod tests {
    use super::*;

    const GREEDY: Sampling = Sampling {
        temperature: 0.0,
        top_k: 0,
        top_p: 1.0,
    };

    /// How often each token is chosen among 20,000.
    fn frequencies(sampling: Sampling, scores: &[f32]) -> Vec<f64> {
        let mut sampler = Sampler::new(sampling, 7);
        let mut counts = vec![0; scores.len()];
        (0..20_000).for_each(|_| counts[sampler.choose(scores).unwrap()] += 1);
        counts.into_iter().map(|n| f64::from(n) / 20_000.0).collect()
    }

    fn assert_near(actual: &[f64], expected: &[f64]) {
        let near = actual
            .iter()
            .zip(expected)
            .all(|(a, e)| (a - e).abs() < 0.015 && (*e > 0.0 || *a == 0.0));
        assert!(near, "{actual:?} instead of {expected:?}");
    }

    #[test]
    fn greedy_takes_the_first_greatest_score_as_argmax_does() {
        let mut sampler = Sampler::new(GREEDY, 0);
        assert_eq!(sampler.choose(&[1.0, 3.0, 3.0]), Some(1));
        assert_eq!(sampler.choose(&[1.0, f32::NAN, 3.0, f32::NAN]), Some(1));
        assert_eq!(sampler.choose(&[f32::NEG_INFINITY; 2]), Some(0));
        assert_eq!(sampler.choose(&[]), None);
    }

    #[test]
    fn tokens_are_as_frequent_as_their_probabilities() {
        let scores = [1f32, 2.0, 4.0].map(f32::ln);
        let all = Sampling {
            temperature: 1.0,
            ..GREEDY
        };
        assert_near(&frequencies(all, &scores), &[1.0 / 7.0, 2.0 / 7.0, 4.0 / 7.0]);
        // The weights are the square roots: 1, 1.41 and 2.
        let hot = Sampling {
            temperature: 2.0,
            ..GREEDY
        };
        assert_near(&frequencies(hot, &scores), &[0.2265, 0.3204, 0.4531]);
    }

    #[test]
    fn top_k_and_top_p_leave_the_most_probable_tokens() {
        let scores = [1f32, 2.0, 4.0, 1.0].map(f32::ln);
        let sampling = |top_k, top_p| Sampling {
            temperature: 1.0,
            top_k,
            top_p,
        };
        assert_near(
            &frequencies(sampling(2, 1.0), &scores),
            &[0.0, 1.0 / 3.0, 2.0 / 3.0, 0.0],
        );
        // Tokens that are as probable as the last one stay, as in transformers.
        assert_near(&frequencies(sampling(3, 1.0), &scores), &[0.125, 0.25, 0.5, 0.125]);
        assert_near(&frequencies(sampling(0, 0.5), &scores), &[0.0, 0.0, 1.0, 0.0]);
        assert_near(
            &frequencies(sampling(0, 0.51), &scores),
            &[0.0, 1.0 / 3.0, 2.0 / 3.0, 0.0],
        );
        // Of two thirds and one third, the first suffices.
        assert_near(&frequencies(sampling(2, 0.6), &scores), &[0.0, 0.0, 1.0, 0.0]);
    }

    #[test]
    fn top_p_of_many_equal_tokens_sorts_all_it_needs() {
        let mut sampler = Sampler::new(
            Sampling {
                temperature: 1.0,
                top_k: 0,
                top_p: 0.9,
            },
            3,
        );
        let scores = vec![0f32; 10_000];
        let chosen: Vec<usize> = (0..2_000).map(|_| sampler.choose(&scores).unwrap()).collect();
        assert!(chosen.iter().all(|&t| t < 9_000));
        assert!(chosen.iter().any(|&t| t > 8_000));
    }

    #[test]
    fn a_seed_gives_the_same_tokens() {
        let sampling = Sampling {
            temperature: 1.0,
            ..GREEDY
        };
        let scores = [0f32; 50];
        let tokens = |seed| {
            let mut s = Sampler::new(sampling, seed);
            (0..20).map(|_| s.choose(&scores)).collect::<Vec<_>>()
        };
        assert_eq!(tokens(1), tokens(1));
        assert_ne!(tokens(1), tokens(2));
    }

    #[test]
    fn scores_that_are_not_numbers_are_never_drawn_by_accident() {
        let mut sampler = Sampler::new(
            Sampling {
                temperature: 1.0,
                ..GREEDY
            },
            0,
        );
        assert_eq!(sampler.choose(&[0.0, f32::INFINITY]), Some(1));
        assert_eq!(sampler.choose(&[0.0, f32::NAN]), Some(1));
        assert!((0..100).all(|_| sampler.choose(&[0.0, f32::NEG_INFINITY]) == Some(0)));
    }
}
