//! What the package knows of its process: how many threads models run on, forks, and signals.

use fxc::CancelToken;
use fxc::diag::Code;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// The threads of models that do not say otherwise; 0 until [`set_num_threads`].
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// How many forks this process is away from the one that imported the package.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// How many threads are within the library.
static BUSY: AtomicUsize = AtomicUsize::new(0);

/// Whether another thread was within the library when this process was forked off.
static FORKED_BUSY: AtomicBool = AtomicBool::new(false);

/// How many threads models run on that are compiled from now on.
#[pyfunction]
pub(crate) fn get_num_threads() -> usize {
    match THREADS.load(Relaxed) {
        0 => default_threads(),
        n => n,
    }
}

/// Sets how many threads models run on. Models whose own number was not given follow with their next call.
#[pyfunction]
pub(crate) fn set_num_threads(threads: usize) -> PyResult<()> {
    if threads == 0 {
        return Err(PyValueError::new_err("the number of threads must be positive"));
    }
    THREADS.store(threads, Relaxed);
    Ok(())
}

/// `OMP_NUM_THREADS` if it is set, as job schedulers do; else the processors that the process may use.
fn default_threads() -> usize {
    let set = std::env::var("OMP_NUM_THREADS").ok();
    // A list is for nested regions; its first number is for the outermost.
    let first = set.as_deref().and_then(|s| s.split(',').next()?.trim().parse().ok());
    first
        .filter(|&n| n > 0)
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()))
}

/// What compiled code belongs to: a process, because threads do not survive a fork, and a number of threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Era {
    forks: u64,
    pub(crate) threads: usize,
}

impl Era {
    /// The present one, for a model that wants so many threads (0: the default).
    pub(crate) fn now(threads: usize) -> Era {
        Era {
            forks: FORKS.load(Relaxed),
            threads: match threads {
                0 => THREADS.load(Relaxed),
                n => n,
            },
        }
    }

    /// How many threads code of this era is compiled for.
    pub(crate) fn thread_count(self) -> usize {
        match self.threads {
            0 => default_threads(),
            n => n,
        }
    }

    /// Whether it is of this process. Code that is not has threads that do not exist, so that it may be neither called nor dropped.
    pub(crate) fn is_of_this_process(self) -> bool {
        self.forks == FORKS.load(Relaxed)
    }
}

/// Called in a process that was just forked off.
#[pyfunction]
pub(crate) fn _after_fork_in_child() {
    if BUSY.swap(0, Relaxed) > 0 {
        FORKED_BUSY.store(true, Relaxed);
    }
    FORKS.fetch_add(1, Relaxed);
}

thread_local! {
    /// When this thread's work began.
    static BEGIN: Cell<Option<Instant>> = const { Cell::new(None) };
    /// What a signal's handler raised while this thread worked.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// The thread that Python gives signals to.
static MAIN_THREAD: OnceLock<ThreadId> = OnceLock::new();

/// Work that takes less looks for no signals: they can wait so long.
const UNNOTICED: Duration = Duration::from_millis(100);

/// A token that ends work when a signal's handler raises an exception, as that of Ctrl-C does.
pub(crate) fn signal_token() -> CancelToken {
    CancelToken::polling(Duration::from_millis(20), || {
        let here = MAIN_THREAD.get() == Some(&std::thread::current().id());
        let is_long = BEGIN.get().is_some_and(|b| b.elapsed() > UNNOTICED);
        here && is_long
            && Python::attach(|py| match py.check_signals() {
                Ok(()) => false,
                Err(e) => {
                    RAISED.set(Some(e));
                    true
                }
            })
    })
}

/// Called when the package is imported, and in processes that are forked off.
pub(crate) fn note_main_thread(py: Python<'_>) -> PyResult<()> {
    let threading = py.import("threading")?;
    let main = threading.call_method0("main_thread")?;
    if threading.call_method0("current_thread")?.is(&main) {
        // A fork keeps the thread that it was called on, under its id.
        MAIN_THREAD.get_or_init(|| std::thread::current().id());
    }
    Ok(())
}

/// Counts a thread as within the library.
struct Within;

impl Drop for Within {
    fn drop(&mut self) {
        BUSY.fetch_sub(1, Relaxed);
    }
}

/// Runs work that may be cancelled by a [`signal_token`], until it is done or a signal's handler raises an exception.
pub(crate) fn interruptible<R: Send>(
    py: Python<'_>,
    token: &CancelToken,
    mut work: impl FnMut() -> Result<R, fxc::Error> + Send,
) -> PyResult<Result<R, fxc::Error>> {
    loop {
        BEGIN.set(Some(Instant::now()));
        let done = detached(py, &mut work)?;
        if let Some(raised) = RAISED.take() {
            token.reset();
            return Err(raised);
        }
        match done {
            // The signal was for the main thread, which has the same token.
            Err(e) if e.code() == Some(Code::E0512) => token.reset(),
            done => return Ok(done),
        }
    }
}

/// An error in a process that was forked off while another thread was within the library: it must not wait for a lock.
pub(crate) fn refuse_after_busy_fork() -> PyResult<()> {
    if FORKED_BUSY.load(Relaxed) {
        return Err(PyRuntimeError::new_err(
            "this process was forked while another thread was running fxc, so fxc's locks are held forever; \
             fork while no model runs, or start processes with the method \"spawn\"",
        ));
    }
    Ok(())
}

/// Runs work of the library without the interpreter's lock.
pub(crate) fn detached<R: Send>(py: Python<'_>, work: impl FnOnce() -> R + Send) -> PyResult<R> {
    refuse_after_busy_fork()?;
    BUSY.fetch_add(1, Relaxed);
    let within = Within;
    let result = py.detach(work);
    drop(within);
    Ok(result)
}
