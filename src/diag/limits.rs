//! The diagnostics of work that exceeds its limits.

use super::{Code, Diagnostic};
use crate::budget::{self, Limits, RefusedBytes};

/// The time limit has passed.
pub(crate) fn out_of_time() -> Diagnostic {
    Diagnostic::new(Code::E0513, "the work takes longer than the time limit")
        .help("raise the limit: `--max-time SECONDS`, or the option `max_time` in a program")
}

/// A model, or a value in it, has too many nodes or items. `what` is a sentence without its end: "inlining `g` creates".
pub(crate) fn too_many_nodes(what: &str) -> Diagnostic {
    beyond_nodes(format!(
        "{what} more than {} nodes and items of values",
        budget::max_nodes()
    ))
}

/// The value of a node has too many items.
pub(crate) fn too_many_items(node: &str, most: usize) -> Diagnostic {
    beyond_nodes(format!("the value of `%{node}` has more than {most} items"))
}

fn beyond_nodes(title: String) -> Diagnostic {
    Diagnostic::new(Code::E0114, title).help(
        "raise the limit, if the model is meant to be so large: `--max-nodes NUMBER`, or the option `max_nodes` in a program",
    )
}

/// An allocation exceeds the limit, or what the system has.
pub(crate) fn out_of_memory(refused: RefusedBytes) -> Diagnostic {
    let title = format!("an allocation of {} bytes exceeds the available memory", refused.0);
    Diagnostic::new(Code::E0509, title).note(memory_note())
}

/// The memory that is held and allowed, for a note.
pub(crate) fn memory_note() -> String {
    match budget::memory_limit() {
        usize::MAX => format!("fxc holds {} bytes", budget::held_bytes()),
        limit => format!(
            "fxc holds {} bytes and may hold {limit} (`--max-memory`)",
            budget::held_bytes()
        ),
    }
}

/// An error if the time is over.
pub(crate) fn check_time() -> Result<(), Diagnostic> {
    match budget::is_late() {
        true => Err(out_of_time()),
        false => Ok(()),
    }
}

/// Runs `work` within limits. An allocation that is refused unwinds it and is the error (E0509).
pub fn run_limited<R>(limits: &Limits, work: impl FnOnce() -> R) -> Result<R, Box<Diagnostic>> {
    // The note of the error states the limit, so it is made while the limit holds.
    budget::with_limits(limits, || {
        budget::catch_refusal(work).map_err(|refused| Box::new(out_of_memory(refused)))
    })
}
