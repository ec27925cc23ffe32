//! Waking workers on processors of their own.
//!
//! Linux may queue a worker that wakes on the processor of the thread that woke it, although others are idle. The caller
//! of a job does not sleep, so the worker waits for the next tick of the scheduler: 4 ms, in which jobs of a model run on
//! the caller alone. The caller notices that a worker is late and has the system move it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::*, fence};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// A worker that has not run for this long after it was woken is moved. Waking an idle processor can take as long.
const LATE: Duration = Duration::from_micros(50);

/// [`Sleeper::woken`] of a worker that was moved since it fell asleep.
const MOVED: u64 = u64::MAX;

/// Whether a worker sleeps, as the worker and the caller see it.
#[derive(Default)]
pub(super) struct Sleeper {
    asleep: AtomicBool,
    /// The system's number of the worker's thread; 0 before it runs and where threads have none.
    thread: AtomicI32,
    /// When the worker was woken, in ns after [`since_start`]'s start; 0 while nothing woke it.
    woken: AtomicU64,
}

impl Sleeper {
    /// Sleeps until `awaited` returns a value. The worker's thread calls it. No call of [`Sleeper::wake`] is lost that follows the
    /// change which `awaited` sees, if a sequentially consistent fence is between the two.
    pub(super) fn sleep_until<T>(&self, awaited: impl Fn() -> Option<T>) -> T {
        self.thread.store(thread_number(), Relaxed);
        loop {
            self.woken.store(0, Relaxed);
            self.asleep.store(true, Relaxed);
            fence(SeqCst);
            if let Some(found) = awaited() {
                self.asleep.store(false, Relaxed);
                return found;
            }
            std::thread::park();
        }
    }

    /// Wakes the worker if it sleeps, and returns whether it slept.
    pub(super) fn wake(&self, worker: &Thread) -> bool {
        let asleep = self.asleep.load(Relaxed);
        if asleep {
            worker.unpark();
            // A failure means that an earlier job woke it.
            let _ = self.woken.compare_exchange(0, since_start(), Relaxed, Relaxed);
        }
        asleep
    }

    /// Moves the worker to another processor than the calling thread's, once, if it is late.
    pub(super) fn move_if_late(&self) {
        if !self.asleep.load(Relaxed) {
            return;
        }
        let woken = self.woken.load(Relaxed);
        let late = woken != 0 && woken != MOVED && since_start().saturating_sub(woken) > LATE.as_nanos() as u64;
        if late && self.woken.compare_exchange(woken, MOVED, Relaxed, Relaxed).is_ok() {
            leave_this_processor(self.thread.load(Relaxed));
        }
    }
}

/// Nanoseconds after the first call, at least 1.
fn since_start() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    1 + START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

#[cfg(target_os = "linux")]
fn thread_number() -> i32 {
    // SAFETY: the call has no preconditions.
    unsafe { libc::gettid() }
}

#[cfg(not(target_os = "linux"))]
fn thread_number() -> i32 {
    0
}

/// Has the system queue the thread on another of the processors that it may use: forbids the calling thread's processor and allows
/// it again. Does nothing if the thread may use no other, or if the system refuses.
#[cfg(target_os = "linux")]
fn leave_this_processor(thread: i32) {
    const SIZE: usize = size_of::<libc::cpu_set_t>();
    // 0 would be the calling thread.
    if thread == 0 {
        return;
    }
    // SAFETY: the sets are of the stated size, the processor's number is checked against it, and the calls only read and change where
    // the system runs a thread.
    unsafe {
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        let known = libc::sched_getaffinity(thread, SIZE, &mut allowed) == 0;
        let Ok(here) = usize::try_from(libc::sched_getcpu()) else {
            return;
        };
        if !known || here >= SIZE * 8 || libc::CPU_COUNT(&allowed) < 2 || !libc::CPU_ISSET(here, &allowed) {
            return;
        }
        let mut others = allowed;
        libc::CPU_CLR(here, &mut others);
        if libc::sched_setaffinity(thread, SIZE, &others) == 0 {
            libc::sched_setaffinity(thread, SIZE, &allowed);
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn leave_this_processor(_: i32) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// The processors that a thread may use.
    fn allowed(thread: i32) -> libc::cpu_set_t {
        // SAFETY: the call writes a set of the stated size.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            assert_eq!(libc::sched_getaffinity(thread, size_of_val(&set), &mut set), 0);
            set
        }
    }

    #[test]
    fn a_late_worker_is_moved_once_and_may_use_the_same_processors_after() {
        let (sleeper, quit) = (Arc::new(Sleeper::default()), Arc::new(AtomicBool::new(false)));
        let (own, end) = (sleeper.clone(), quit.clone());
        let worker = std::thread::spawn(move || own.sleep_until(|| end.load(SeqCst).then_some(())));
        while !sleeper.asleep.load(SeqCst) {
            std::thread::yield_now();
        }
        let thread = sleeper.thread.load(SeqCst);
        let before = allowed(thread);
        // As if it had been woken later than now, then a while ago.
        sleeper.woken.store(since_start() + 3_600_000_000_000, SeqCst);
        sleeper.move_if_late();
        assert_ne!(sleeper.woken.load(SeqCst), MOVED);
        sleeper.woken.store(1, SeqCst);
        std::thread::sleep(2 * LATE);
        sleeper.move_if_late();
        assert_eq!(sleeper.woken.load(SeqCst), MOVED);
        // SAFETY: the call only compares the sets.
        assert!(unsafe { libc::CPU_EQUAL(&before, &allowed(thread)) });
        quit.store(true, SeqCst);
        fence(SeqCst);
        assert!(sleeper.wake(worker.thread()));
        worker.join().expect("no panic");
        assert!(!sleeper.wake(&std::thread::current()));
    }
}
