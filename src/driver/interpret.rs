//! Runs the interpreter until the session's work is cancelled.

use super::inputs::bind::Value;
use super::session::{Reported, Session, Staged};
use crate::graph::GraphModule;
use crate::interp::{Hooked, Hooks, Interpreter, RunningNode};
use crate::parallel::CancelToken;
use crate::runtime::cancelled;

/// Hooks that end a run between two nodes.
pub(super) struct UntilCancelled(pub(super) CancelToken);

impl UntilCancelled {
    pub(super) fn check(&self) -> Hooked {
        match self.0.is_cancelled() {
            true => Err(cancelled()),
            false => Ok(None),
        }
    }
}

impl Hooks for UntilCancelled {
    fn run_node(&mut self, _node: RunningNode<'_>) -> Hooked {
        self.check()
    }
}

/// The interpreter's result for a checked module, with the leading new values of buffers and inputs.
pub fn interpret(session: &mut Session, module: &GraphModule, values: Vec<Value>) -> Staged<Value> {
    let mut hooks = UntilCancelled(session.cancel.clone());
    Interpreter::new(module).run_with(values, &mut hooks).map_err(|d| {
        session.report(d);
        Reported
    })
}
