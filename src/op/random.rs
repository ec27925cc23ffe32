//! The random numbers of random ops.
//!
//! One stream for the process, seeded by [`seed`] and by 0 at the start. The numbers are those of SplitMix64 (Steele,
//! Lea & Flood 2014), not those that torch's Mersenne twister would draw: distributions agree with torch, values do not.

use std::sync::atomic::{AtomicU64, Ordering};

static STATE: AtomicU64 = AtomicU64::new(0);

/// SplitMix64's increment: 2^64 over the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Starts the stream anew, as `torch.manual_seed`.
pub fn seed(seed: u64) {
    STATE.store(seed, Ordering::Relaxed);
}

/// The next 64 random bits.
pub fn bits() -> u64 {
    let z = STATE.fetch_add(GOLDEN, Ordering::Relaxed).wrapping_add(GOLDEN);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number in [0, 1) with `digits` random binary digits (at most 53), so that it is exact in a dtype that has as many.
pub fn uniform(digits: u32) -> f64 {
    (bits() >> (64 - digits)) as f64 / (1u64 << digits) as f64
}

/// A number of the standard normal distribution (Box & Muller 1958).
pub fn normal() -> f64 {
    let radius = (-2.0 * (1.0 - uniform(53)).ln()).sqrt();
    radius * (2.0 * std::f64::consts::PI * uniform(53)).cos()
}

/// A whole number in `low..high`, which must not be empty.
pub fn integer(low: i64, high: i64) -> i64 {
    let span = (high as i128 - low as i128) as u128;
    // The top bits of a 128-bit product; the bias is below 2^-63 for spans below 2^63.
    let offset = ((bits() as u128) * span) >> 64;
    (low as i128 + offset as i128) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_distributions() {
        let n = 20_000;
        let mean = |f: &dyn Fn() -> f64| (0..n).map(|_| f()).sum::<f64>() / n as f64;
        assert!((mean(&|| uniform(24)) - 0.5).abs() < 0.02);
        assert!(mean(&normal).abs() < 0.05);
        assert!((mean(&|| normal().powi(2)) - 1.0).abs() < 0.06);
        assert!((0..1000).map(|_| integer(-3, 4)).all(|i| (-3..4).contains(&i)));
        assert_eq!(integer(i64::MAX - 1, i64::MAX), i64::MAX - 1);
    }
}
