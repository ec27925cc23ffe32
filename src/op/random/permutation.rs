//! Random permutations.

use super::Generator;
use crate::tensor::with_wide_vectors;

/// The number of words that are drawn at once.
const WORDS: usize = 1024;

impl Generator {
    /// Fills with a random permutation of 0, 1, … n - 1 (Fisher & Yates).
    pub fn fill_permutation(&mut self, out: &mut [i64]) {
        let n = out.len();
        if n > 1 << 24 {
            out.iter_mut().zip(0..).for_each(|(o, i)| *o = i);
            self.shuffle(out);
            return;
        }
        // Narrow numbers, of which more are in the cache.
        let mut order: Vec<u32> = (0..n as u32).collect();
        self.shuffle(&mut order);
        out.iter_mut().zip(&order).for_each(|(o, &x)| *o = i64::from(x));
    }

    /// Swaps each element but the last with itself or one after it.
    fn shuffle<T>(&mut self, order: &mut [T]) {
        let n = order.len();
        // torch uses 64 bits if 32 bits would be noticeably biased towards small numbers.
        if n >= u32::MAX as usize / 20 {
            for i in 0..n - 1 {
                let place = (self.twister.next_u64() % (n - i) as u64) as usize;
                order.swap(i, i + place);
            }
            return;
        }
        let (mut words, mut i) = ([0; WORDS], 0);
        while i + 1 < n {
            let words = &mut words[..WORDS.min(n - 1 - i)];
            self.twister.fill(words);
            with_wide_vectors(|| take_remainders(words, (n - i) as u32));
            for (k, &place) in words.iter().enumerate() {
                order.swap(i + k, i + k + place as usize);
            }
            i += words.len();
        }
    }
}

/// Replaces words by their remainders by `divisor`, `divisor - 1`, and so on. The quotients of numbers of 32 bits in f64 are exact after
/// rounding down, because quotients below an integer are at least 2^-32 of their size below it.
#[inline(always)]
#[expect(
    clippy::needless_range_loop,
    reason = "loops over indices become vector code more often"
)]
fn take_remainders(words: &mut [u32], divisor: u32) {
    for k in 0..words.len() {
        let (w, d) = (words[k], divisor - k as u32);
        // The low bits of the sum are those of the integer. A conversion would saturate, which is not vector code everywhere.
        let quotient = ((f64::from(w) / f64::from(d)).floor() + (1u64 << 52) as f64).to_bits() as u32;
        words[k] = w.wrapping_sub(quotient.wrapping_mul(d));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remainders_are_exact() {
        for divisor in [1024u32, 1025, 65_537, 214_000_000, u32::MAX] {
            let words: Vec<u32> = (0..1024u32)
                .map(|k| match k % 4 {
                    0 => u32::MAX / (divisor - k) * (divisor - k),
                    1 => (u32::MAX / (divisor - k) * (divisor - k)).wrapping_sub(1),
                    2 => u32::MAX - k,
                    _ => k.wrapping_mul(2_654_435_761),
                })
                .collect();
            let mut got = words.clone();
            take_remainders(&mut got, divisor);
            for (k, w) in words.iter().enumerate() {
                assert_eq!(got[k], w % (divisor - k as u32), "{w} by {divisor} - {k}");
            }
        }
    }

    #[test]
    fn a_permutation_swaps_places_one_by_one() {
        for n in [0usize, 1, 2, 3, 1024, 1025, 1026, 5000] {
            let mut g = Generator::new(11);
            let mut want: Vec<i64> = (0..n as i64).collect();
            for i in 0..n.saturating_sub(1) {
                want.swap(i, i + (g.twister.next_u32() % (n - i) as u32) as usize);
            }
            let (mut h, mut got) = (Generator::new(11), vec![0; n]);
            h.fill_permutation(&mut got);
            assert_eq!(got, want);
            assert_eq!(g.twister.next_u32(), h.twister.next_u32(), "numbers drawn");
        }
    }
}
