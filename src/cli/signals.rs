//! Signals: an interrupted program leaves no incomplete files behind.

use crate::fs::abandon_outputs;
use crate::parallel::start_thread;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Removes incomplete files before a signal ends the program.
pub(super) fn watch() {
    // With a handler, a write beyond `ulimit -f` is an error, which is reported like that of a full disk.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    // Registered by the thread: without it, the signals must keep their effect.
    let _ = start_thread("fxc-signals", || {
        let ignored = ignored_signals();
        let watched = [SIGINT, SIGTERM, SIGHUP]
            .into_iter()
            .filter(|s| ignored >> (s - 1) & 1 == 0);
        let Ok(mut signals) = Signals::new(watched) else { return };
        for signal in signals.forever() {
            abandon_outputs();
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    });
}

/// The signals that this program ignores, because `nohup` or a shell told it to: a bit for each.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok()).unwrap_or(0)
}
