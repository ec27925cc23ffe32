//! Cancellation of work that another thread no longer needs.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A token that stops calls and compilations. Whoever holds a clone may cancel it, and the work ends at its next step.
///
/// ```
/// let token = fxc::CancelToken::new();
/// let for_another_thread = token.clone();
/// for_another_thread.cancel();
/// assert!(token.is_cancelled());
/// ```
#[derive(Clone, Default)]
pub struct CancelToken(Arc<CancelState>);

#[derive(Default)]
struct CancelState {
    cancelled: AtomicBool,
    poll: OnceLock<Poll>,
}

/// A callback that the working thread polls.
struct Poll {
    ask: Box<dyn Fn() -> bool + Send + Sync>,
    every: Duration,
    begin: Instant,
    /// The time of the next call, in nanoseconds since `begin`.
    next: AtomicU64,
}

impl CancelToken {
    /// A token that is not cancelled.
    pub fn new() -> CancelToken {
        CancelToken::default()
    }

    /// A token that is also cancelled once `ask` returns true. The working thread calls `ask` between steps, at most
    /// once in every `every`. A host that has its own signals (Python) can check for them there.
    pub fn polling(every: Duration, ask: impl Fn() -> bool + Send + Sync + 'static) -> CancelToken {
        let poll = Poll {
            ask: Box::new(ask),
            every,
            begin: Instant::now(),
            next: AtomicU64::new(0),
        };
        let token = CancelToken::new();
        // Setting a new cell always succeeds.
        let _ = token.0.poll.set(poll);
        token
    }

    /// Cancels the work that has this token. The work stops at its next step.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Relaxed);
    }

    /// Resets the token, so that later work runs again.
    pub fn reset(&self) {
        self.0.cancelled.store(false, Relaxed);
    }

    /// Whether the work should stop.
    pub fn is_cancelled(&self) -> bool {
        let state = &*self.0;
        if !state.cancelled.load(Relaxed) && state.poll.get().is_some_and(Poll::is_due_and_true) {
            self.cancel();
        }
        state.cancelled.load(Relaxed)
    }
}

impl Poll {
    fn is_due_and_true(&self) -> bool {
        let now = self.begin.elapsed();
        if now.as_nanos() < u128::from(self.next.load(Relaxed)) {
            return false;
        }
        let next = (now + self.every).as_nanos();
        self.next.store(next.try_into().unwrap_or(u64::MAX), Relaxed);
        (self.ask)()
    }
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CancelToken {{ cancelled: {} }}", self.0.cancelled.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn a_poll_is_asked_no_more_often_than_wanted() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let token = CancelToken::polling(Duration::from_secs(3600), move || count.fetch_add(1, Relaxed) > 0);
        assert!((0..100).all(|_| !token.is_cancelled()));
        assert_eq!(asked.load(Relaxed), 1);
        let eager = CancelToken::polling(Duration::ZERO, || true);
        assert!(eager.is_cancelled());
    }
}
