//! Starts threads.

use std::hint::black_box;
use std::io;
use std::thread::{Builder, JoinHandle};

/// More than what a thread allocates before its first line.
const ROOM: usize = 256 << 10;

/// Starts a thread. If the system has no memory for it, that is an error, as far as it can be foreseen: a thread whose stack takes the last
/// memory would be ended with the process by the C library, which has no way to report it.
pub(crate) fn start_thread(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let mut room: Vec<u8> = vec![];
    room.try_reserve_exact(ROOM)?;
    let started = Builder::new().name(name.into()).spawn(run);
    drop(black_box(room));
    started
}
