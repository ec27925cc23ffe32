//! Timing for the benchmarks.

// Each benchmark uses only some of these functions.
#![allow(dead_code)]

use std::time::Instant;

/// The number of rounds in a measurement.
const ROUNDS: usize = 31;
/// The minimum duration of a round in seconds. It is shorter than a time slice, so that some rounds are undisturbed on
/// a busy machine.
const ROUND_SECONDS: f64 = 0.001;

/// The number of calls of `f` in one round.
fn calls(f: &mut dyn FnMut()) -> usize {
    f();
    let t = Instant::now();
    f();
    let once = t.elapsed().as_secs_f64();
    (ROUND_SECONDS / once.max(1e-9)).ceil().clamp(1.0, 1e6) as usize
}

/// The seconds per call of `f`, averaged over `calls` calls.
fn round(f: &mut dyn FnMut(), calls: usize) -> f64 {
    let t = Instant::now();
    (0..calls).for_each(|_| f());
    t.elapsed().as_secs_f64() / calls as f64
}

/// The seconds per call of `f`: the median and the minimum over the rounds.
pub fn time(mut f: impl FnMut()) -> [f64; 2] {
    let calls = calls(&mut f);
    let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| round(&mut f, calls)).collect();
    rounds.sort_by(f64::total_cmp);
    [rounds[ROUNDS / 2], rounds[0]]
}

/// The seconds per call of `f` and of `g`, measured alternately: the minimum over the rounds.
pub fn race(mut f: impl FnMut(), mut g: impl FnMut()) -> [f64; 2] {
    let both = [calls(&mut f), calls(&mut g)];
    let mut least = [f64::INFINITY; 2];
    for _ in 0..ROUNDS {
        least[0] = least[0].min(round(&mut f, both[0]));
        least[1] = least[1].min(round(&mut g, both[1]));
    }
    least
}
