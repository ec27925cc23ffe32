//! The pool that work without one in its signature may use.

use super::Pool;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::LazyLock;

thread_local! {
    static LENT: Cell<Option<NonNull<Pool>>> = const { Cell::new(None) };
}

/// Takes a pool back when it is dropped: gives the thread the one that it had before.
struct Restore(Option<NonNull<Pool>>);

impl Drop for Restore {
    fn drop(&mut self) {
        LENT.set(self.0);
    }
}

impl Pool {
    /// Calls `work`, which may use this pool through [`Pool::with_lent`] on the calling thread.
    pub(crate) fn lend<R>(&self, work: impl FnOnce() -> R) -> R {
        let _restore = Restore(LENT.replace(Some(NonNull::from(self))));
        work()
    }

    /// The pool without other threads. Making one takes as long as some work that needs one.
    pub(crate) fn alone() -> &'static Pool {
        static ALONE: LazyLock<Pool> = LazyLock::new(|| Pool::new(1));
        &ALONE
    }

    /// Calls `f` with the pool that this thread was lent, or with one that has no other threads. A worker was lent none: what it runs
    /// is a part of a job already.
    pub(crate) fn with_lent<R>(f: impl FnOnce(&Pool) -> R) -> R {
        match LENT.get() {
            // SAFETY: `lend` borrows the pool until it takes it back, which this thread cannot do before `f` returns.
            Some(pool) => f(unsafe { pool.as_ref() }),
            None => f(Pool::alone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_lent_for_a_call() {
        let lent = || Pool::with_lent(Pool::threads);
        let (two, three) = (Pool::new(2), Pool::new(3));
        assert_eq!(lent(), 1);
        two.lend(|| {
            assert_eq!(lent(), 2);
            assert_eq!(three.lend(lent), 3);
            assert_eq!(lent(), 2);
            std::thread::scope(|s| assert_eq!(s.spawn(lent).join().expect("no panic"), 1));
        });
        let panics = std::panic::AssertUnwindSafe(|| two.lend(|| panic!("in work")));
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!(lent(), 1);
    }
}
