//! The clock of the benchmarks.

// Each benchmark uses some of it.
#![allow(dead_code)]

use std::time::Instant;

/// Rounds of one measurement.
const ROUNDS: usize = 31;
/// Seconds of one round at least: shorter than a time slice, so that on a busy machine some rounds are undisturbed.
const ROUND_SECONDS: f64 = 0.001;

/// How often to call `f` in one round.
fn calls(f: &mut dyn FnMut()) -> usize {
    f();
    let t = Instant::now();
    f();
    let once = t.elapsed().as_secs_f64();
    (ROUND_SECONDS / once.max(1e-9)).ceil().clamp(1.0, 1e6) as usize
}

/// Seconds of a call of `f`, over this many.
fn round(f: &mut dyn FnMut(), calls: usize) -> f64 {
    let t = Instant::now();
    (0..calls).for_each(|_| f());
    t.elapsed().as_secs_f64() / calls as f64
}

/// Seconds of one call of `f`: the median and the least of the rounds.
pub fn time(mut f: impl FnMut()) -> [f64; 2] {
    let calls = calls(&mut f);
    let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| round(&mut f, calls)).collect();
    rounds.sort_by(f64::total_cmp);
    [rounds[ROUNDS / 2], rounds[0]]
}

/// Seconds of one call of each, measured in turns: the least of the rounds.
pub fn race(mut f: impl FnMut(), mut g: impl FnMut()) -> [f64; 2] {
    let both = [calls(&mut f), calls(&mut g)];
    let mut least = [f64::INFINITY; 2];
    for _ in 0..ROUNDS {
        least[0] = least[0].min(round(&mut f, both[0]));
        least[1] = least[1].min(round(&mut g, both[1]));
    }
    least
}
