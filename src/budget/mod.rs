//! What the work on a model may use: memory, nodes and time.
//!
//! A file of a few bytes can describe values of any size, so every stage asks here before it makes something whose size
//! is not in proportion to the file: [`allows_bytes`] before it allocates a tensor, [`max_nodes`] before it copies a graph,
//! [`is_late`] between nodes, passes and steps. Limits hold for the process ([`set_process_limits`], the command line) or
//! for the work of one thread ([`with_limits`], the library). Without limits, memory is limited by what the machine has.
//!
//! The counted memory is that of tensors, and, in programs whose allocator counts (`CountingAllocator`), all of the heap.

mod machine;

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Limits on the work on a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of memory; `None` for what the machine has available.
    pub memory: Option<usize>,
    /// Nodes of a model's graphs and items of its nested values; `None` for [`Limits::NODES`].
    pub nodes: Option<usize>,
    /// The time from the start of the work; `None` for any time.
    pub time: Option<Duration>,
}

impl Limits {
    /// The default limit of nodes. Ten times the nodes of the largest models that were exported whole.
    pub const NODES: usize = 1_000_000;
}

/// Limits with a point in time.
#[derive(Clone, Copy)]
struct Active {
    memory: usize,
    nodes: usize,
    until: Option<Instant>,
}

impl Active {
    const NONE: Active = Active {
        memory: usize::MAX,
        nodes: Limits::NODES,
        until: None,
    };

    fn starting_now(limits: &Limits) -> Active {
        Active {
            memory: limits.memory.unwrap_or(usize::MAX),
            nodes: limits.nodes.unwrap_or(Limits::NODES),
            until: limits.time.and_then(|t| Instant::now().checked_add(t)),
        }
    }
}

thread_local! {
    static OF_THREAD: Cell<Option<Active>> = const { Cell::new(None) };
}

static OF_PROCESS: OnceLock<Active> = OnceLock::new();

/// The memory that the process holds, as far as it is counted.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// The memory that the process may hold: its limit, or what the machine had when the limits were set.
static CEILING: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Requests below this size do not read how much memory the machine has at the moment.
const SMALL: usize = 64 << 20;

/// Sets the limits of the process, once, and starts its time.
#[cfg(feature = "cli")]
pub(crate) fn set_process_limits(limits: &Limits) {
    let limits = Active::starting_now(limits);
    let machine = machine::available_memory().map_or(usize::MAX, |free| free.saturating_add(held_bytes()));
    CEILING.store(limits.memory.min(machine), Relaxed);
    let _ = OF_PROCESS.set(limits);
}

/// Runs `f` with limits for this thread. Inner limits take the place of outer ones.
pub(crate) fn with_limits<R>(limits: &Limits, f: impl FnOnce() -> R) -> R {
    if *limits == Limits::default() {
        return f();
    }
    struct Restore(Option<Active>);
    impl Drop for Restore {
        fn drop(&mut self) {
            OF_THREAD.set(self.0);
        }
    }
    let _restore = Restore(OF_THREAD.replace(Some(Active::starting_now(limits))));
    f()
}

fn active() -> Active {
    OF_THREAD
        .get()
        .unwrap_or_else(|| OF_PROCESS.get().copied().unwrap_or(Active::NONE))
}

/// The number of nodes that a model may have.
pub(crate) fn max_nodes() -> usize {
    active().nodes
}

/// Whether the time is over.
pub(crate) fn is_late() -> bool {
    end_of_time().is_some_and(|end| Instant::now() >= end)
}

/// When the time of this thread's work ends. Work that other threads help with asks before it starts: limits are the thread's.
pub(crate) fn end_of_time() -> Option<Instant> {
    active().until
}

/// Counts memory that was allocated.
pub(crate) fn add_held(bytes: usize) -> usize {
    HELD.fetch_add(bytes, Relaxed).wrapping_add(bytes)
}

/// Counts memory that was freed.
pub(crate) fn subtract_held(bytes: usize) {
    HELD.fetch_sub(bytes, Relaxed);
}

/// The counted memory of the process, in bytes.
pub(crate) fn held_bytes() -> usize {
    // Threads count in batches of their own, so the sum may be below zero for a moment.
    (HELD.load(Relaxed) as isize).max(0) as usize
}

/// The memory that the process may hold, in bytes. Allocates nothing: allocators ask.
pub(crate) fn max_held() -> usize {
    CEILING.load(Relaxed)
}

/// The memory limit of this thread's work, in bytes: the process may not hold more. `usize::MAX` without a limit.
pub(crate) fn memory_limit() -> usize {
    active().memory.min(max_held())
}

/// Whether this many more bytes may be allocated: within the limits, and available.
pub(crate) fn allows_bytes(bytes: usize) -> bool {
    let after = held_bytes().saturating_add(bytes);
    if after > memory_limit() {
        return false;
    }
    bytes < SMALL || machine::available_memory().is_none_or(|free| bytes <= free)
}

/// The size of an allocation that was refused where its caller cannot return an error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefusedBytes(pub usize);

/// Unwinds to [`catch_refusal`], without a message of a panic.
pub(crate) fn refuse_bytes(bytes: usize) -> ! {
    resume_unwind(Box::new(RefusedBytes(bytes)))
}

/// Runs `f`; `Err` if an allocation in it was refused. Other panics go on.
pub(crate) fn catch_refusal<R>(f: impl FnOnce() -> R) -> Result<R, RefusedBytes> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic: Box<dyn Any + Send>| match panic.downcast::<RefusedBytes>() {
        Ok(refused) => *refused,
        Err(other) => resume_unwind(other),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_a_thread_end_with_the_work() {
        let limits = Limits {
            memory: Some(held_bytes() + (1 << 30)),
            nodes: Some(7),
            time: Some(Duration::ZERO),
        };
        with_limits(&limits, || {
            assert_eq!(max_nodes(), 7);
            assert!(is_late());
            assert!(!allows_bytes(1 << 40));
        });
        assert_eq!(max_nodes(), Limits::NODES);
        assert!(!is_late());
        assert!(allows_bytes(1 << 10));
    }

    #[test]
    fn no_machine_has_all_addresses() {
        assert!(machine::available_memory().is_none() || !allows_bytes(usize::MAX));
    }

    #[test]
    fn only_refusals_are_caught() {
        assert_eq!(catch_refusal(|| 3).expect("no refusal"), 3);
        let refused = catch_refusal(|| refuse_bytes(5)).expect_err("a refusal").0;
        assert_eq!(refused, 5);
        let other = catch_unwind(|| catch_refusal(|| resume_unwind(Box::new("other"))).is_ok());
        assert!(other.is_err());
    }
}
