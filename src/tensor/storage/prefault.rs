//! Slabs whose pages are provided before they are needed. Packing the weights of a model writes each page once, and clearing
//! the pages takes the system longer than packing. A caller that first has other work on one thread lets another thread write them.

use super::slab::{BUFFERS, SIZE, Slab};
use crate::budget;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// The distance between writes: no system has smaller pages.
const PAGE: usize = 4 << 10;

/// Slabs that wait for buffers.
static READY: Mutex<Vec<Slab>> = Mutex::new(vec![]);

/// Memory for packed weights, which a thread makes available. Dropping it returns what has not been used; if there are several,
/// the first one to be dropped does so for all.
pub struct Prefault {
    is_over: Arc<AtomicBool>,
}

impl Prefault {
    /// Starts a thread for buffers of these sizes. Without a second processor or enough memory, nothing happens.
    pub fn start(sizes: &[usize]) -> Prefault {
        let is_over = Arc::new(AtomicBool::new(false));
        let in_slabs = sizes.iter().filter(|s| BUFFERS.contains(s));
        let slabs = in_slabs.fold(0usize, |sum, &s| sum.saturating_add(s)).div_ceil(SIZE);
        let is_useful = std::thread::available_parallelism().is_ok_and(|n| n.get() > 1);
        if is_useful && budget::allows_bytes(slabs.saturating_mul(SIZE)) {
            let of_thread = is_over.clone();
            // Without the thread, packing takes longer.
            let _ = std::thread::Builder::new()
                .name("fxc prefault".into())
                .spawn(move || provide(slabs, &of_thread));
        }
        Prefault { is_over }
    }
}

impl Drop for Prefault {
    fn drop(&mut self) {
        let mut ready = READY.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_over.store(true, Relaxed);
        ready.clear();
    }
}

/// Writes to the pages of slabs, until enough are ready or nobody needs them.
fn provide(slabs: usize, is_over: &AtomicBool) {
    for _ in 0..slabs {
        let Some(mut slab) = Slab::map() else { return };
        for at in (0..SIZE).step_by(PAGE) {
            if is_over.load(Relaxed) {
                return;
            }
            slab.touch(at);
        }
        let mut ready = READY.lock().unwrap_or_else(PoisonError::into_inner);
        // Read while the list is locked: what is pushed after the end of `Prefault` would stay.
        if is_over.load(Relaxed) {
            return;
        }
        ready.push(slab);
    }
}

/// A slab with pages.
pub(super) fn take_ready() -> Option<Slab> {
    READY.lock().unwrap_or_else(PoisonError::into_inner).pop()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::AlignedBytes;
    use std::time::{Duration, Instant};

    fn count() -> usize {
        READY.lock().unwrap().len()
    }

    #[test]
    fn slabs_are_provided_and_returned() {
        let memory = Prefault::start(&[SIZE / 5; 6]);
        let until = Instant::now() + Duration::from_secs(60);
        let cores = std::thread::available_parallelism().unwrap().get();
        while cores > 1 && count() == 0 && Instant::now() < until {
            std::thread::yield_now();
        }
        // Buffers in them are zeros, like others.
        for _ in 0..10 {
            let mut b = AlignedBytes::zeroed_in_huge_pages(SIZE / 5);
            assert!(b.bytes().iter().all(|&x| x == 0));
            b.bytes_mut().fill(1);
        }
        drop(memory);
        assert_eq!(count(), 0);
    }
}
