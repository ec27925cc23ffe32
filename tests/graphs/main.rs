//! Random graphs over every op of the table: compiled code must compute what the interpreter computes.
//!
//! A seed gives a graph of up to thirty calls (`grow.rs`): calls that the table's examples and the recorded cases make of
//! each row (`templates.rs`), with other sizes, dtypes and arguments, on values that earlier calls made; views of views,
//! writes in place and control flow (`control.rs`). It runs in the interpreter and compiled, with different threads, targets,
//! passes and precisions (`ways.rs`). How far results may differ follows from the graph itself (`spread.rs`). A graph that
//! fails is reduced and printed with its inputs.
//!
//! `cargo test --test graphs` runs the seeds 0 to 499, each plainly and in another way that the seed chooses, in two processes. A longer run, with
//! four ways a seed:
//!
//! ```text
//! FXC_GRAPHS=100000 FXC_FIRST_GRAPH=0 cargo test --release --test graphs -- --nocapture
//! ```
//!
//! `FXC_GRAPH=SEED` prints and runs one; `FXC_GRAPH_FILES=FOLDER` also writes it and its inputs as files. `FXC_GRAPH_WAYS` is the
//! number of ways besides the plain one, or `all`.

mod chunks;
mod control;
mod grow;
mod outcome;
mod shapes;
mod spread;
mod templates;
mod values;
mod ways;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// The seeds of `cargo test`, each in one way besides the plain one. They take less than a minute.
const TESTED: u64 = 500;

/// What a seed came to.
enum Verdict {
    /// All ways agree on this many calls.
    Agreed { calls: Vec<String> },
    /// No graph was made that runs.
    Nothing,
    /// The report of a failure.
    Failed(String),
}

/// Makes and checks the graph of a seed.
fn check_seed(seed: u64) -> Verdict {
    let made = catch_unwind(AssertUnwindSafe(|| grow::grow(seed)));
    let case = match made {
        Ok(Some(case)) => case,
        Ok(None) => return Verdict::Nothing,
        Err(e) => return Verdict::Failed(format!("making the graph panics: {}", outcome::panic_text(&*e))),
    };
    match ways::check(&case, seed) {
        Ok(()) => Verdict::Agreed { calls: case.calls },
        Err(failure) => Verdict::Failed(ways::reduced_report(&case, &failure)),
    }
}

#[test]
fn compiled_graphs_compute_what_the_interpreter_computes() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    if let Some(seed) = number("FXC_GRAPH") {
        return chunks::show(seed);
    }
    let first = number("FXC_FIRST_GRAPH").unwrap_or(0);
    match (number("FXC_GRAPHS"), std::env::var("FXC_GRAPH_CHUNK")) {
        (Some(count), Ok(file)) => chunks::run_chunk(first, count, file.as_ref()),
        (Some(count), Err(_)) => chunks::run_all(first, count, ways::USUAL_WAYS),
        (None, _) => chunks::run_all(first, TESTED, 1),
    }
}
