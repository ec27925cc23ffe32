//! Runs many seeds: in this process, or in processes of their own, which may crash or hang.

use crate::{Verdict, check_seed, grow, templates::TEMPLATES, ways};
use fxc::internals::driver::files;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// The seeds of a process.
const CHUNK: u64 = 250;

/// How long a process may take for one seed.
const PATIENCE: Duration = Duration::from_secs(120);

/// Prints the graph of a seed and runs it.
pub fn show(seed: u64) {
    let Some(case) = grow::grow(seed) else {
        return println!("seed {seed}: no graph");
    };
    println!("{}", case.text);
    if let Ok(folder) = std::env::var("FXC_GRAPH_FILES") {
        write_case(&case, Path::new(&folder));
    }
    if let Err(failure) = ways::check(&case, seed) {
        panic!("seed {seed}: {}", ways::reduced_report(&case, &failure));
    }
}

/// Writes a graph and its inputs as files for the command line.
fn write_case(case: &grow::Case, folder: &Path) {
    let named = case.inputs.iter().enumerate();
    let tensors: Vec<_> = named.map(|(i, t)| (format!("x{i}"), t.clone())).collect();
    std::fs::create_dir_all(folder).expect("a folder");
    std::fs::write(folder.join("graph.fxir"), &case.text).expect("the folder is writable");
    files::write_tensors(&folder.join("inputs.safetensors"), &tensors).expect("the folder is writable");
}

/// Runs seeds and writes to `file` which one runs, what fails and what was called.
pub fn run_chunk(first: u64, count: u64, file: &Path) {
    let mut lines = String::new();
    let mut called = BTreeSet::new();
    let write =
        |lines: &str, last: String| std::fs::write(file, format!("{lines}{last}\n")).expect("the folder is writable");
    for seed in first..first + count {
        write(&lines, format!("at {seed}"));
        match check_seed(seed) {
            Verdict::Agreed { calls } => called.extend(calls),
            Verdict::Nothing => lines.push_str("nothing\n"),
            Verdict::Failed(report) => lines.push_str(&format!("FAILED {seed}: {}\n", report.replace('\n', "\n    "))),
        }
    }
    let called: Vec<String> = called.into_iter().collect();
    write(&lines, format!("called {}", called.join(" ")));
}

/// A process with some seeds.
struct Worker {
    child: Child,
    file: std::path::PathBuf,
    end: u64,
    /// The last seed it was seen at, and since when.
    at: (u64, Instant),
}

#[derive(Default)]
struct Summary {
    failed: usize,
    nothing: usize,
    called: BTreeSet<String>,
}

/// Runs seeds in two processes at a time, prints what fails, and fails if anything did. Each process runs its graphs on one
/// thread, because the stream of random numbers is the process's.
/// Each graph runs in `ways` ways besides the plain one, unless the environment says otherwise.
pub fn run_all(first: u64, count: u64, ways: usize) {
    let ways = std::env::var("FXC_GRAPH_WAYS").unwrap_or_else(|_| ways.to_string());
    let folder = std::env::temp_dir().join(format!("fxc-graphs-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for reports");
    // A process reads the templates first, so few seeds are not worth one.
    let chunk = CHUNK.min(count.div_ceil(4)).max(1);
    let mut todo: Vec<(u64, u64)> = (0..count.div_ceil(chunk))
        .map(|i| (first + i * chunk, chunk.min(count - i * chunk)))
        .collect();
    todo.reverse();
    let mut workers: Vec<Worker> = vec![];
    let mut summary = Summary::default();
    while !todo.is_empty() || !workers.is_empty() {
        while workers.len() < 2
            && let Some((first, count)) = todo.pop()
        {
            workers.push(start(&folder, (first, count), &ways));
        }
        std::thread::sleep(Duration::from_millis(50));
        let mut running = vec![];
        for mut worker in workers {
            match poll(&mut worker, &mut summary) {
                Some((from, to)) if from < to => todo.push((from, to - from)),
                Some(_) => {}
                None => running.push(worker),
            }
        }
        workers = running;
    }
    let _ = std::fs::remove_dir_all(&folder);
    let Summary {
        failed,
        nothing,
        called,
    } = summary;
    println!(
        "{count} graphs from seed {first}: {failed} failed, {nothing} seeds made none; {} of {} rows called",
        called.len(),
        TEMPLATES.rows.len()
    );
    let missing: Vec<&str> = TEMPLATES
        .rows
        .iter()
        .copied()
        .filter(|r| !called.contains(*r))
        .collect();
    println!("rows not called: {}", missing.join(" "));
    assert_eq!(failed, 0, "graphs fail");
    // The templates of most rows are found.
    let enough = (count * 2).min(300) as usize;
    assert!(called.len() >= enough, "only {} rows are called", called.len());
}

fn start(folder: &Path, (first, count): (u64, u64), ways: &str) -> Worker {
    let file = folder.join(format!("{first}.txt"));
    let program = std::env::current_exe().expect("this program");
    let child = Command::new(program)
        .args(["--nocapture", "--test-threads", "1", "compiled_graphs_compute"])
        .env("FXC_FIRST_GRAPH", first.to_string())
        .env("FXC_GRAPHS", count.to_string())
        .env("FXC_GRAPH_CHUNK", &file)
        .env("FXC_GRAPH_WAYS", ways)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("a process");
    Worker {
        child,
        file,
        end: first + count,
        at: (first, Instant::now()),
    }
}

/// Looks at a process. If it has ended, returns the seeds that it left.
fn poll(w: &mut Worker, summary: &mut Summary) -> Option<(u64, u64)> {
    let text = std::fs::read_to_string(&w.file).unwrap_or_default();
    let at = text.lines().rev().find_map(|l| l.strip_prefix("at ")?.parse().ok());
    if let Some(seed) = at
        && seed != w.at.0
    {
        w.at = (seed, Instant::now());
    }
    let ended = w.child.try_wait().expect("a child");
    let hangs = ended.is_none() && w.at.1.elapsed() > PATIENCE;
    if hangs {
        let _ = w.child.kill();
        let _ = w.child.wait();
    } else if ended.is_none() {
        return None;
    }
    let text = std::fs::read_to_string(&w.file).unwrap_or_default();
    for line in text.lines().filter(|l| !l.starts_with("at ")) {
        match line.strip_prefix("called ") {
            Some(rows) => summary.called.extend(rows.split(' ').map(str::to_string)),
            None if line == "nothing" => summary.nothing += 1,
            None => {
                summary.failed += line.starts_with("FAILED") as usize;
                println!("{line}");
            }
        }
    }
    if text.lines().any(|l| l.starts_with("called")) {
        return Some((w.end, w.end));
    }
    let what = if hangs { "hangs" } else { "ends the process" };
    println!("FAILED {}: {what}; FXC_GRAPH={} runs it alone", w.at.0, w.at.0);
    summary.failed += 1;
    Some((w.at.0 + 1, w.end))
}
