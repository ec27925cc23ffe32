//! The thread pool that runs every kernel.
//!
//! A [`Pool`] owns its worker threads for its whole life. [`Pool::run`] distributes the chunks `0..n` of one job. The
//! calling thread and every second worker claim chunks one by one from the front, the other workers from the back. A
//! thread that the system delays therefore costs one chunk, not a share of the job. On two cores, each also finds in
//! its cache what it wrote when the previous job went over the same data. Between jobs a worker spins for at most
//! [`SPIN`] and then sleeps: waking a sleeping thread costs 50 µs or more, a spinning hand-off about 0.2 µs. A graph
//! that runs kernel after kernel thus keeps its workers awake. `wake.rs` sees to it that a worker wakes on a processor
//! of its own.
//!
//! The caller chooses a job's number of chunks. Kernels choose partitions that do not affect results: one chunk
//! computes each output element, in an order that does not depend on the partition. Results are therefore bit-identical
//! for every number of threads.

mod cancel;
mod columns;
pub(crate) use columns::Columns;
mod lent;
mod priority;
mod products;
mod start;
mod wake;

pub use cancel::CancelToken;
pub(crate) use priority::yield_to_others;
pub(crate) use start::start_thread;

use crate::target::{thread_target, with_target};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::*, fence};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};
use wake::Sleeper;

/// How long an idle worker spins before it sleeps.
pub(crate) const SPIN: Duration = Duration::from_micros(200);

/// The number of bits of each of the two chunk numbers in [`PoolState::state`]. The remaining bits hold the job's
/// number.
const CHUNK_BITS: u32 = 16;
/// The maximum number of chunks in a round. A larger job runs in several rounds.
const MAX_CHUNKS: usize = (1 << CHUNK_BITS) - 1;

/// The state in which chunks `from..to` of a job are unclaimed.
fn pack_state(job: u64, from: usize, to: usize) -> u64 {
    (job << CHUNK_BITS | from as u64) << CHUNK_BITS | to as u64
}

/// The job's number, and the range of unclaimed chunks.
fn unpack_state(state: u64) -> (u64, usize, usize) {
    let chunk = |x: u64| x as usize & MAX_CHUNKS;
    (job_of(state), chunk(state >> CHUNK_BITS), chunk(state))
}

fn job_of(state: u64) -> u64 {
    state >> (2 * CHUNK_BITS)
}

/// A value on its own cache line, so that a thread that spins on one counter does not slow writers of another.
#[repr(align(64))]
struct CacheLine<T>(T);

/// The state that the caller and the workers share.
struct PoolState {
    /// The job's number (32 bits) and the range of unclaimed chunks, see [`pack_state`]. A compare-and-swap claims the
    /// first or the last of them. It succeeds only while the job that it read is current and has chunks left; the
    /// fields below are then that job's.
    state: CacheLine<AtomicU64>,
    /// The number of chunks that have not finished, whether claimed or not.
    pending: CacheLine<AtomicUsize>,
    data: AtomicPtr<()>,
    /// A [`ChunkCall`].
    call: AtomicPtr<()>,
    quit: AtomicBool,
    /// The first panic of a chunk, to be resumed in the caller.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

type ChunkCall = unsafe fn(*const (), usize);

/// Runs chunk `i` of the job whose closure is at `data`.
///
/// # Safety
/// `data` points to a live `F`.
unsafe fn call_closure<F: Fn(usize)>(data: *const (), i: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe { (*data.cast::<F>())(i) }
}

struct PoolWorker {
    sleeper: Arc<Sleeper>,
    thread: Thread,
    handle: Option<JoinHandle<()>>,
}

/// The first element of a slice whose parts several threads write.
struct SharedPtr<T>(*mut T);

impl<T> SharedPtr<T> {
    /// The address of element `i`, which is within the slice.
    fn at(&self, i: usize) -> *mut T {
        self.0.wrapping_add(i)
    }
}

// SAFETY: each thread uses elements of its own.
unsafe impl<T: Send> Sync for SharedPtr<T> {}

/// A fixed set of threads that run jobs in chunks.
pub struct Pool {
    shared: Arc<PoolState>,
    workers: Vec<PoolWorker>,
    /// The number of threads that were requested.
    asked: usize,
    /// The process that owns the threads. A forked process has none of them.
    process: u32,
    /// Set while a job runs. A job that is started meanwhile (from a chunk, or from another thread) runs inline.
    busy: AtomicBool,
}

impl Pool {
    /// The pool of `threads` threads that all models of this process share. If models that run one after the other had
    /// their own workers, the previous model's would spin for a while beside the next model's. If models run at the
    /// same time, one of them uses all threads and the others run on their callers. A forked process has its own pools;
    /// models that were compiled before the fork must not run there.
    pub fn shared(threads: usize) -> Arc<Pool> {
        static POOLS: Mutex<Vec<Weak<Pool>>> = Mutex::new(Vec::new());
        let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|p| p.strong_count() > 0);
        let existing = pools
            .iter()
            .filter_map(Weak::upgrade)
            .find(|p| p.asked == threads && p.process == std::process::id());
        existing.unwrap_or_else(|| {
            let pool = Arc::new(Pool::new(threads));
            pools.push(Arc::downgrade(&pool));
            pool
        })
    }

    /// Creates a pool of `threads` threads, including the caller of [`Pool::run`]; 0 counts as 1. If the system refuses
    /// to create a thread, the pool has fewer.
    pub fn new(threads: usize) -> Pool {
        let shared = Arc::new(PoolState {
            state: CacheLine(AtomicU64::new(0)),
            pending: CacheLine(AtomicUsize::new(0)),
            data: AtomicPtr::new(std::ptr::null_mut()),
            call: AtomicPtr::new(std::ptr::null_mut()),
            quit: AtomicBool::new(false),
            panic: Mutex::new(None),
        });
        let workers = (1..threads).map_while(|i| spawn_worker(i, &shared)).collect();
        Pool {
            shared,
            workers,
            asked: threads,
            process: std::process::id(),
            busy: AtomicBool::new(false),
        }
    }

    /// The number of threads that run a job, including the caller.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `f(0)` … `f(chunks - 1)`, each once and in no particular order, on this thread and the workers. Returns
    /// when all calls have returned. Does not allocate. Runs inline if there is only one chunk or one thread, or if the
    /// pool is already running a job. A panic of `f` is resumed here after the other chunks have finished.
    pub fn run<F: Fn(usize) + Sync>(&self, chunks: usize, f: F) {
        if chunks <= 1 || self.workers.is_empty() || self.busy.swap(true, Acquire) {
            (0..chunks).for_each(f);
            return;
        }
        // A chunk may run on another thread, whose target is the machine.
        let target = thread_target();
        let mut first = 0;
        let mut outcome = Ok(());
        while first < chunks && outcome.is_ok() {
            let n = (chunks - first).min(MAX_CHUNKS);
            outcome = self.run_round(n, &|i: usize| with_target(target, || f(first + i)));
            first += n;
        }
        self.busy.store(false, Release);
        if let Err(panic) = outcome {
            resume_unwind(panic);
        }
    }

    /// Calls `f(i, part)` for each part of `len` elements of `data`, the last of which may be shorter, as [`Pool::run`] does. Panics if
    /// `len` is 0.
    pub fn run_parts<T: Send>(&self, data: &mut [T], len: usize, f: impl Fn(usize, &mut [T]) + Sync) {
        let (n, first) = (data.len(), SharedPtr(data.as_mut_ptr()));
        self.run(n.div_ceil(len), |i| {
            let from = i * len;
            // SAFETY: the parts are within the slice, which is borrowed for the run, and each is given to one call.
            let part = unsafe { std::slice::from_raw_parts_mut(first.at(from), len.min(n - from)) };
            f(i, part);
        });
    }

    /// Runs one round of at most [`MAX_CHUNKS`] chunks. Returns only when no thread uses `f` any more.
    fn run_round<F: Fn(usize) + Sync>(&self, chunks: usize, f: &F) -> Result<(), Box<dyn Any + Send>> {
        let s = &*self.shared;
        let call: ChunkCall = call_closure::<F>;
        s.data.store(std::ptr::from_ref(f).cast_mut().cast(), Relaxed);
        s.call.store(call as *mut (), Relaxed);
        s.pending.0.store(chunks, Relaxed);
        let job = (job_of(s.state.0.load(Relaxed)) + 1) & u32::MAX as u64;
        s.state.0.store(pack_state(job, 0, chunks), Release);
        // After the fence, either a worker that goes to sleep sees the new job, or this thread sees that it is asleep.
        fence(SeqCst);
        let woken = (self.workers.iter()).fold(false, |any, w| w.sleeper.wake(&w.thread) | any);
        run_chunks(s, job, true, || {
            if woken {
                self.workers.iter().for_each(|w| w.sleeper.move_if_late());
            }
        });
        let mut spins = 0u32;
        while s.pending.0.load(Acquire) != 0 {
            std::hint::spin_loop();
            spins += 1;
            if spins > 10_000 {
                // The system may have preempted a worker in the middle of a chunk.
                std::thread::yield_now();
            }
        }
        match s.panic.lock().unwrap_or_else(|e| e.into_inner()).take() {
            Some(p) => Err(p),
            None => Ok(()),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // The threads belong to another process, so they cannot be joined here.
            return;
        }
        self.shared.quit.store(true, SeqCst);
        for w in &mut self.workers {
            w.thread.unpark();
            if let Some(h) = w.handle.take() {
                // A worker catches the panics of its chunks, so joining cannot fail.
                let _ = h.join();
            }
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({})", self.threads())
    }
}

fn spawn_worker(i: usize, shared: &Arc<PoolState>) -> Option<PoolWorker> {
    let sleeper = Arc::new(Sleeper::default());
    let (s, own) = (shared.clone(), sleeper.clone());
    let handle = start_thread(&format!("fxc-{i}"), move || run_worker(&s, &own, i.is_multiple_of(2))).ok()?;
    Some(PoolWorker {
        sleeper,
        thread: handle.thread().clone(),
        handle: Some(handle),
    })
}

/// The main loop of a worker: waits for a new job, helps with it, and waits again.
fn run_worker(s: &PoolState, sleeper: &Sleeper, front: bool) {
    let mut last = 0;
    loop {
        let Some(job) = next_job(s, sleeper, last) else { return };
        run_chunks(s, job, front, || {});
        last = job;
    }
}

/// Waits for a job other than `last`: spins for [`SPIN`], then sleeps. `None` when the pool is dropped.
fn next_job(s: &PoolState, sleeper: &Sleeper, last: u64) -> Option<u64> {
    let start = Instant::now();
    let mut spins = 0u32;
    loop {
        let job = job_of(s.state.0.load(Acquire));
        if job != last {
            return Some(job);
        }
        if s.quit.load(Relaxed) {
            return None;
        }
        std::hint::spin_loop();
        spins += 1;
        if spins.is_multiple_of(128) && start.elapsed() > SPIN {
            break;
        }
    }
    sleeper.sleep_until(|| {
        let job = job_of(s.state.0.load(Acquire));
        match job != last {
            true => Some(Some(job)),
            false => s.quit.load(SeqCst).then_some(None),
        }
    })
}

/// Claims and runs chunks of `job`, from the front or from the back, until none are left. Calls `after` after each.
fn run_chunks(s: &PoolState, job: u64, front: bool, after: impl Fn()) {
    let mut state = s.state.0.load(Acquire);
    loop {
        let (current, from, to) = unpack_state(state);
        if current != job || from == to {
            return;
        }
        let (data, call) = (s.data.load(Relaxed), s.call.load(Relaxed));
        let (chunk, next) = match front {
            true => (from, pack_state(job, from + 1, to)),
            false => (to - 1, pack_state(job, from, to - 1)),
        };
        if let Err(now) = s.state.0.compare_exchange(state, next, AcqRel, Acquire) {
            state = now;
            continue;
        }
        let run = AssertUnwindSafe(|| {
            // SAFETY: `call` was stored from a `Call`. The claim succeeded, so the fields read before it are those of
            // the current job, whose caller keeps the closure alive until `pending` is zero; this chunk still counts.
            unsafe {
                let call = std::mem::transmute::<*mut (), ChunkCall>(call);
                call(data, chunk);
            }
        });
        if let Err(p) = catch_unwind(run) {
            s.panic.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(p);
        }
        s.pending.0.fetch_sub(1, Release);
        after();
        state = s.state.0.load(Acquire);
    }
}

#[cfg(test)]
mod tests;
