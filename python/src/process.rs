//! Properties of the process: the default number of threads, forks, and signals.

use crate::errors;
use fxc::diag::Code;
use fxc::internals::driver::run_limited;
use fxc::source::Sources;
use fxc::{CancelToken, Limits};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// The default number of threads of models; 0 until [`set_num_threads`].
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// The number of forks between this process and the one that imported the package.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// The number of threads that are running library code.
static BUSY: AtomicUsize = AtomicUsize::new(0);

/// Whether another thread was running library code when this process was forked.
static FORKED_BUSY: AtomicBool = AtomicBool::new(false);

/// The number of threads for models that are compiled from now on.
#[pyfunction]
pub(crate) fn get_num_threads() -> usize {
    match THREADS.load(Relaxed) {
        0 => default_threads(),
        n => n,
    }
}

/// Sets the number of threads for models. Existing models without their own number use it from their next call on.
#[pyfunction]
pub(crate) fn set_num_threads(threads: usize) -> PyResult<()> {
    if threads == 0 {
        return Err(PyValueError::new_err("the number of threads must be positive"));
    }
    THREADS.store(threads, Relaxed);
    Ok(())
}

/// Waits until compiled models are in the cache, before the process ends.
#[pyfunction]
pub(crate) fn _flush_cache(py: Python<'_>) {
    py.detach(fxc::flush_cache);
}

/// `OMP_NUM_THREADS` if it is set, as by job schedulers; else the number of processors available to the process.
fn default_threads() -> usize {
    let set = std::env::var("OMP_NUM_THREADS").ok();
    // A list is for nested parallel regions. Its first number is for the outermost region.
    let first = set.as_deref().and_then(|s| s.split(',').next()?.trim().parse().ok());
    first
        .filter(|&n| n > 0)
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()))
}

/// The process and number of threads that compiled code belongs to. Threads do not survive a fork.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Era {
    forks: u64,
    pub(crate) threads: usize,
}

impl Era {
    /// The current one, for a model with this number of threads (0: the default).
    pub(crate) fn now(threads: usize) -> Era {
        Era {
            forks: FORKS.load(Relaxed),
            threads: match threads {
                0 => THREADS.load(Relaxed),
                n => n,
            },
        }
    }

    /// The number of threads that code of this era is compiled for.
    pub(crate) fn thread_count(self) -> usize {
        match self.threads {
            0 => default_threads(),
            n => n,
        }
    }

    /// Whether it belongs to this process. The threads of code from another process do not exist here, so such code
    /// must be neither called nor dropped.
    pub(crate) fn is_of_this_process(self) -> bool {
        self.forks == FORKS.load(Relaxed)
    }
}

/// Called in a newly forked process.
#[pyfunction]
pub(crate) fn _after_fork_in_child() {
    if BUSY.swap(0, Relaxed) > 0 {
        FORKED_BUSY.store(true, Relaxed);
    }
    FORKS.fetch_add(1, Relaxed);
}

thread_local! {
    /// The time of the first poll of this thread's work. Most calls are over before it, and do not read the clock.
    static BEGIN: Cell<Option<Instant>> = const { Cell::new(None) };
    /// The exception that a signal handler raised while this thread worked.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// The thread in which Python runs signal handlers.
static MAIN_THREAD: OnceLock<ThreadId> = OnceLock::new();

/// Work shorter than this does not check for signals, which can wait that long.
const UNNOTICED: Duration = Duration::from_millis(100);

/// A token that cancels work when a signal handler raises an exception, such as that of Ctrl-C.
pub(crate) fn signal_token() -> CancelToken {
    CancelToken::polling(Duration::from_millis(20), || {
        let is_main_thread = MAIN_THREAD.get() == Some(&std::thread::current().id());
        let begin = BEGIN.get().unwrap_or_else(Instant::now);
        BEGIN.set(Some(begin));
        let is_long = begin.elapsed() > UNNOTICED;
        is_main_thread
            && is_long
            && Python::attach(|py| match py.check_signals() {
                Ok(()) => false,
                Err(e) => {
                    RAISED.set(Some(e));
                    true
                }
            })
    })
}

/// Called when the package is imported, and in forked processes.
pub(crate) fn note_main_thread(py: Python<'_>) -> PyResult<()> {
    let threading = py.import("threading")?;
    let main = threading.call_method0("main_thread")?;
    if threading.call_method0("current_thread")?.is(&main) {
        // A fork keeps only the thread that called it, which becomes the main thread.
        MAIN_THREAD.get_or_init(|| std::thread::current().id());
    }
    Ok(())
}

/// Counts a thread as running library code.
struct Within;

impl Drop for Within {
    fn drop(&mut self) {
        BUSY.fetch_sub(1, Relaxed);
    }
}

/// Errors of work that can be cancelled.
pub(crate) trait Cancellable {
    /// Whether the work ended because its token was set.
    fn is_cancelled(&self) -> bool;
}

impl Cancellable for fxc::Error {
    fn is_cancelled(&self) -> bool {
        self.code() == Some(Code::E0512)
    }
}

/// Whether others get the interpreter's lock while library code runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gil {
    Release,
    /// For calls of a few microseconds: handing over the lock takes a tenth of such a call.
    Keep,
}

/// Runs work that can be cancelled by a [`signal_token`], until it is done or a signal handler raises an exception.
pub(crate) fn interruptible<R: Send, E: Cancellable + Send>(
    py: Python<'_>,
    token: &CancelToken,
    work: impl FnMut() -> Result<R, E> + Send,
) -> PyResult<Result<R, E>> {
    interruptible_with(py, Gil::Release, token, work)
}

/// [`interruptible`], with or without the interpreter's lock.
pub(crate) fn interruptible_with<R: Send, E: Cancellable + Send>(
    py: Python<'_>,
    gil: Gil,
    token: &CancelToken,
    mut work: impl FnMut() -> Result<R, E> + Send,
) -> PyResult<Result<R, E>> {
    loop {
        BEGIN.set(None);
        let done = within_limits(py, gil, &mut work)?;
        if let Some(raised) = RAISED.take() {
            token.reset();
            return Err(raised);
        }
        match done {
            // The signal was for the main thread, which has the same token.
            Err(e) if e.is_cancelled() => token.reset(),
            done => return Ok(done),
        }
    }
}

/// An error in a process that was forked while another thread was running library code, because waiting for a lock would block forever.
pub(crate) fn refuse_after_busy_fork() -> PyResult<()> {
    if FORKED_BUSY.load(Relaxed) {
        return Err(PyRuntimeError::new_err(
            "this process was forked while another thread was running fxc, so fxc's locks are held forever; \
             fork while no model runs, or start processes with the method \"spawn\"",
        ));
    }
    Ok(())
}

/// Runs library code without the interpreter's lock.
pub(crate) fn detached<R: Send>(py: Python<'_>, work: impl FnOnce() -> R + Send) -> PyResult<R> {
    within_limits(py, Gil::Release, work)
}

/// Runs library code, with or without the interpreter's lock.
fn within_limits<R: Send>(py: Python<'_>, gil: Gil, work: impl FnOnce() -> R + Send) -> PyResult<R> {
    refuse_after_busy_fork()?;
    BUSY.fetch_add(1, Relaxed);
    let within = Within;
    // An allocation that is refused unwinds. Most functions of the library end that themselves; this is for the others.
    let limited = || run_limited(&Limits::default(), work);
    let result = match gil {
        Gil::Release => py.detach(limited),
        Gil::Keep => limited(),
    };
    drop(within);
    result.map_err(|refusal| errors::raise_findings(py, vec![*refusal], &Sources::new()))
}
