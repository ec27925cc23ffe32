//! `--max-memory`, `--max-nodes` and `--max-time`: limits on the work of every command.
//!
//! Stages ask before they allocate, and report what was too large. What they cannot foresee ends the program: the allocator counts all
//! memory, and a thread watches the time. Both write a diagnostic that was prepared before, and exit with 2.

use crate::budget::{self, Limits};
use crate::diag::render::{self, DiagnosticFormat};
use crate::diag::{Code, Diagnostic, limits};
use crate::driver::{MAX_THREADS, parse_size};
use crate::fs::abandon_outputs;
use crate::parallel::start_thread;
use crate::source::Sources;
use crate::tensor::{CountingAllocator, end_process};
use std::io::Write;
use std::sync::OnceLock;
use std::time::Duration;

#[derive(clap::Args)]
pub(super) struct LimitArgs {
    /// Memory that fxc may allocate, such as 512MB or 4GiB; mapped files do not count [default: what the machine has available]
    #[arg(long, global = true, help_heading = "Limits", value_name = "SIZE", value_parser = parse_memory)]
    max_memory: Option<usize>,
    /// Nodes of a model's graphs, after inlining, and items of its nested values [default: 1000000]
    #[arg(long, global = true, help_heading = "Limits", value_name = "NUMBER")]
    max_nodes: Option<usize>,
    /// Seconds that the command may take [default: any number]
    #[arg(long, global = true, help_heading = "Limits", value_name = "SECONDS", value_parser = parse_seconds)]
    max_time: Option<Duration>,
}

/// The time after the limit that stages have to report it themselves, with the place where they are.
const GRACE: Duration = Duration::from_millis(100);

/// The exit code of work that could not be done.
const FAILED: i32 = 2;

impl LimitArgs {
    /// Sets the limits of the process.
    pub(super) fn enforce(&self, format: DiagnosticFormat, color: bool) {
        let text = |d: Diagnostic| render::render(&Sources::new(), &[&d], format, color);
        let _ = MEMORY_TEXT.set(text(self.memory_text()));
        budget::set_process_limits(&Limits {
            memory: self.max_memory,
            nodes: self.max_nodes,
            time: self.max_time,
        });
        if let Some(time) = self.max_time {
            watch_time(time.saturating_add(GRACE), text(limits::out_of_time()));
        }
    }

    fn memory_text(&self) -> Diagnostic {
        let d = Diagnostic::new(Code::E0509, "the work needs more memory than is available");
        match self.max_memory {
            Some(bytes) => d.note(format!("it may hold {bytes} bytes (`--max-memory`)")),
            None => d.note("it may hold what the machine had available at the start"),
        }
    }
}

/// Lets the program end with a message when memory ends, from its first allocation on.
pub(super) fn report_exhaustion_of_memory() {
    CountingAllocator::on_exhaustion(report_exhaustion);
}

/// What is written when memory ends: then there may be none to make a text.
static MEMORY_TEXT: OnceLock<String> = OnceLock::new();

fn report_exhaustion(_bytes: usize) -> ! {
    let text = MEMORY_TEXT.get().map_or("error: not enough memory\n", String::as_str);
    end_process(text.as_bytes(), abandon_outputs, FAILED)
}

/// Ends the program after `time`. If the system refuses the thread, stages still watch the time between steps.
fn watch_time(time: Duration, text: String) {
    let watch = move || {
        std::thread::sleep(time);
        let _ = std::io::stderr().write_all(text.as_bytes());
        abandon_outputs();
        std::process::exit(FAILED)
    };
    let _ = start_thread("fxc-time", watch);
}

fn parse_memory(text: &str) -> Result<usize, String> {
    let size = parse_size(text).and_then(|n| usize::try_from(n).ok());
    size.ok_or_else(|| "expected a size such as 512MB or 4GiB".into())
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    seconds.ok_or_else(|| "expected a number of seconds such as 10 or 0.5".into())
}

/// The number of threads for `--threads`; 0 means one per processor.
pub(super) fn parse_threads(text: &str) -> Result<usize, String> {
    let threads = text.parse().map_err(|_| "expected a number".to_string())?;
    match threads <= MAX_THREADS {
        true => Ok(threads),
        false => Err(format!("fxc runs on at most {MAX_THREADS} threads")),
    }
}
