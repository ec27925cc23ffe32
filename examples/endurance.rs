//! Compiles, runs, cancels and drops models in several threads for a long time, and prints what the process holds meanwhile.
//!
//!     cargo run --release --example endurance -- 600
//!
//! The argument is the number of seconds. Exit code 1 if memory, threads or open files grow, or if a result is wrong. Linux only: the
//! figures come from /proc.

use fxc::{CancelToken, Compiled, Error, Model, Options, Tensor};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Threads that work at the same time.
const WORKERS: u64 = 4;

/// How often a line of figures is printed.
const PERIOD: Duration = Duration::from_secs(5);

/// What all threads use.
struct Shared {
    /// One model for all threads; its sizes change from call to call.
    shared: Compiled,
    stop: AtomicBool,
    models: AtomicU64,
    calls: AtomicU64,
    cancelled: AtomicU64,
    refused: AtomicU64,
}

/// Random numbers of a thread (an LCG, whose high bits are used).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

fn ones(shape: &[usize]) -> Tensor {
    Tensor::from_slice(shape, &vec![1f32; shape.iter().product()])
}

/// A model of symbolic batch, with weights of its own: each is new to the cache of kernels and of packed weights.
fn network(r: &mut Random) -> (String, usize) {
    let (inputs, hidden) = (8 + r.below(56) as usize, 8 + r.below(120) as usize);
    let activation = ["torch.relu", "torch.tanh", "torch.nn.functional.gelu", "torch.sigmoid"][r.below(4) as usize];
    let scale = 1 + r.below(1000);
    let text = format!(
        "graph main {{
    %x : f32[N, {inputs}] = placeholder x
    %w = call_function torch.full([{inputs}, {hidden}], {scale}.0)
    %a = call_function torch.matmul(%x, %w)
    %b = call_function {activation}(%a)
    %c = call_function torch.softmax(%b, 1)
    %d = call_function torch.sum(%c, [1])
    output %d
}}
"
    );
    (text, inputs)
}

/// Rows of a table by indices, of which some are beyond it.
const LOOKUP: &str = "graph main {
    %x : f32[N, 4] = placeholder x
    %i : i64[M] = placeholder i
    %r = call_function torch.nn.functional.embedding(%i, %x)
    output %r
}
";

/// Long enough to be cancelled: thousands of steps in a loop.
const LOOP: &str = "graph main {
    %x : f32[64] = placeholder x
    %n : i64[] = placeholder n
    %zero = call_function torch.zeros([], dtype=i64)
    %loop = call_function torch.while_loop(@more, @step, (%zero, %x), (%n,))
    %r = call_function operator.getitem(%loop, 1)
    output %r
}
graph more {
    %i : i64[] = placeholder i
    %x : f32[64] = placeholder x
    %n : i64[] = placeholder n
    %r = call_function operator.lt(%i, %n)
    output %r
}
graph step {
    %i : i64[] = placeholder i
    %x : f32[64] = placeholder x
    %n : i64[] = placeholder n
    %j = call_function operator.add(%i, 1)
    %y = call_function torch.cos(%x)
    output (%j, %y)
}
";

/// A new model, called at some sizes and dropped.
fn use_new_model(s: &Shared, r: &mut Random) -> Result<(), Error> {
    let (text, inputs) = network(r);
    let compiled = Model::from_text(&text)?.compile(&Options::new().threads(1 + r.below(2) as usize).cache(false))?;
    s.models.fetch_add(1, Relaxed);
    for _ in 0..1 + r.below(3) {
        let rows = 1 + r.below(300) as usize;
        let out = compiled.run([("x", ones(&[rows, inputs])).into()])?;
        s.calls.fetch_add(1, Relaxed);
        let sums = out[0].as_slice::<f32>();
        assert!(
            sums.len() == rows && sums.iter().all(|x| (x - 1.0).abs() < 1e-4),
            "{text}"
        );
    }
    Ok(())
}

/// The shared model, at a size that depends on the time; a third of the calls have an index that is refused.
fn use_shared_model(s: &Shared, r: &mut Random) {
    let (rows, count) = (1 + r.below(60) as usize, 1 + r.below(200) as usize);
    let bad = r.below(3) == 0;
    let mut indices: Vec<i64> = (0..count).map(|i| (i % rows) as i64).collect();
    indices[count / 2] += if bad { rows as i64 } else { 0 };
    let result = s.shared.run([
        ("x", ones(&[rows, 4])).into(),
        ("i", Tensor::from_slice(&[count], &indices)).into(),
    ]);
    s.calls.fetch_add(1, Relaxed);
    assert_eq!(result.is_err(), bad, "{rows} rows, {count} indices");
    s.refused.fetch_add(bad as u64, Relaxed);
}

/// A call that another thread cancels while it runs, and one that may end.
fn cancel_a_call(s: &Shared, r: &mut Random) -> Result<(), Error> {
    let token = CancelToken::new();
    let compiled = Model::from_text(LOOP)?.compile(&Options::new().cancel(token.clone()).cache(false))?;
    let call = |n: i64| compiled.run([("x", ones(&[64])).into(), ("n", Tensor::from_slice(&[], &[n])).into()]);
    let wait = Duration::from_micros(r.below(20_000));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(wait);
            token.cancel();
        });
        assert!(call(i64::MAX).is_err(), "a call without end was not cancelled");
    });
    s.cancelled.fetch_add(1, Relaxed);
    token.reset();
    call(3).map(|_| ())
}

fn work(s: &Shared, seed: u64) {
    let mut r = Random(seed);
    while !s.stop.load(Relaxed) {
        let done = match r.below(8) {
            0 => cancel_a_call(s, &mut r),
            1 | 2 => use_new_model(s, &mut r),
            _ => {
                use_shared_model(s, &mut r);
                Ok(())
            }
        };
        if let Err(e) = done {
            panic!("{}", e.report(false));
        }
    }
}

/// What the process holds: resident KiB, threads, open files, mapped regions.
fn held() -> [u64; 4] {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name));
        line.and_then(|l| l.split_whitespace().next()?.parse().ok())
            .unwrap_or(0)
    };
    let files = std::fs::read_dir("/proc/self/fd").map_or(0, |d| d.count() as u64);
    let maps = std::fs::read_to_string("/proc/self/maps").map_or(0, |t| t.lines().count() as u64);
    [field("VmRSS:"), field("Threads:"), files, maps]
}

/// Whether the second half of the figures shows growth over the second quarter.
fn grows(lines: &[[u64; 4]]) -> bool {
    let (quarter, half) = (lines.len() / 4, lines.len() / 2);
    let most = |part: &[[u64; 4]], k: usize| part.iter().map(|l| l[k]).max().unwrap_or(0);
    // Memory, files and mapped regions change with what runs at the time of a line.
    let slack = [64 * 1024, 2 * WORKERS, 4, 200];
    (0..4).any(|k| most(&lines[half..], k) > most(&lines[quarter..half], k) * 11 / 10 + slack[k])
}

fn main() -> ExitCode {
    let seconds = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(600);
    let shared = Model::from_text(LOOKUP).and_then(|m| m.compile(&Options::new().threads(2).cache(false)));
    let s = Shared {
        shared: shared.expect("the model compiles"),
        stop: AtomicBool::new(false),
        models: AtomicU64::new(0),
        calls: AtomicU64::new(0),
        cancelled: AtomicU64::new(0),
        refused: AtomicU64::new(0),
    };
    let (begin, mut lines) = (Instant::now(), vec![]);
    println!(
        "{:>7} {:>9} {:>7} {:>5} {:>5} {:>8} {:>9} {:>9} {:>8}",
        "seconds", "KiB", "threads", "files", "maps", "models", "calls", "cancelled", "refused"
    );
    std::thread::scope(|scope| {
        for i in 0..WORKERS {
            let s = &s;
            scope.spawn(move || work(s, i + 1));
        }
        while begin.elapsed() < Duration::from_secs(seconds) {
            std::thread::sleep(PERIOD);
            let now = held();
            let counts = [&s.models, &s.calls, &s.cancelled, &s.refused].map(|c| c.load(Relaxed));
            println!(
                "{:>7} {:>9} {:>7} {:>5} {:>5} {:>8} {:>9} {:>9} {:>8}",
                begin.elapsed().as_secs(),
                now[0],
                now[1],
                now[2],
                now[3],
                counts[0],
                counts[1],
                counts[2],
                counts[3]
            );
            lines.push(now);
        }
        s.stop.store(true, Relaxed);
    });
    match grows(&lines) {
        true => {
            println!("what the process holds grows");
            ExitCode::FAILURE
        }
        false => ExitCode::SUCCESS,
    }
}
