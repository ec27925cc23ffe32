//! The clock of the benchmarks.

use std::time::Instant;

/// Rounds of one measurement.
const ROUNDS: usize = 31;
/// Seconds of one round at least: shorter than a time slice, so that on a busy machine some rounds are undisturbed.
const ROUND_SECONDS: f64 = 0.001;

/// Seconds of one call of `f`: the median and the least of the rounds.
pub fn time(mut f: impl FnMut()) -> [f64; 2] {
    f();
    let once = {
        let t = Instant::now();
        f();
        t.elapsed().as_secs_f64()
    };
    let calls = (ROUND_SECONDS / once.max(1e-9)).ceil().clamp(1.0, 1e6) as usize;
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let t = Instant::now();
            (0..calls).for_each(|_| f());
            t.elapsed().as_secs_f64() / calls as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    [rounds[ROUNDS / 2], rounds[0]]
}
