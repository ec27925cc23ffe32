//! The speed at which the machine reads memory, for comparison.

use crate::driver::thread_count;
use crate::parallel::Pool;
use crate::tensor::{AlignedBytes, is_available};
use std::hint::black_box;
use std::time::Instant;

/// Weights below this size, in bytes, may stay in the caches, so that the speed of memory says nothing.
pub(super) const SMALLEST: usize = 64 << 20;
/// The size of the memory that is read.
const BYTES: usize = 256 << 20;
/// The number of parts that threads read.
const PARTS: usize = 64;
/// The best of this many reads counts.
const ROUNDS: usize = 5;

/// The bytes per second that `threads` threads read, in the best of a few rounds. `None` without memory for it.
pub(super) fn measure_read(threads: usize) -> Option<f64> {
    if !is_available(BYTES) {
        return None;
    }
    // In huge pages, as packed weights are. Not zeros, which may be one page.
    let mut bytes = AlignedBytes::zeroed(BYTES);
    bytes.bytes_mut().fill(1);
    let words = bytes.bytes().as_chunks::<8>().0;
    let pool = Pool::shared(thread_count(threads));
    let read = || {
        let start = Instant::now();
        pool.run(PARTS, |i| {
            let part = &words[i * words.len() / PARTS..(i + 1) * words.len() / PARTS];
            black_box(sum(part));
        });
        BYTES as f64 / start.elapsed().as_secs_f64()
    };
    (0..ROUNDS).map(|_| read()).reduce(f64::max)
}

/// A sum in several parts, so that additions do not wait for each other.
fn sum(words: &[[u8; 8]]) -> u64 {
    let mut sums = [0u64; 32];
    for block in words.as_chunks::<32>().0 {
        sums.iter_mut()
            .zip(block)
            .for_each(|(s, w)| *s = s.wrapping_add(u64::from_ne_bytes(*w)));
    }
    sums.iter().fold(0, |a, b| a.wrapping_add(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_reads_every_word() {
        let words: Vec<[u8; 8]> = (0..320u64).map(u64::to_ne_bytes).collect();
        assert_eq!(sum(&words), 320 * 319 / 2);
    }
}
