//! The stages by name, and the trait for observing them.

use crate::graph::GraphModule;
use crate::pass::PassRun;
use crate::program::Program;
use crate::runtime::Executable;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The stages of a compilation, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Turns bytes into a module of graphs: parses and builds a text, or reads an archive. Maps weights.
    Load,
    /// Lints the module and infers the type of every node.
    Check,
    /// Runs the passes.
    Optimize,
    /// Fuses, schedules and plans memory.
    Lower,
    /// Generates machine code.
    Compile,
    /// Packs weights and allocates memory. Packing needs all weights, so it includes reading their file.
    Pack,
}

impl Stage {
    /// All stages.
    pub const ALL: [Stage; 6] = [
        Stage::Load,
        Stage::Check,
        Stage::Optimize,
        Stage::Lower,
        Stage::Compile,
        Stage::Pack,
    ];

    /// The stage's name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Load => "load",
            Stage::Check => "check",
            Stage::Optimize => "optimize",
            Stage::Lower => "lower",
            Stage::Compile => "compile",
            Stage::Pack => "pack",
        }
    }
}

/// The product of a stage.
#[derive(Clone, Copy)]
pub enum StageProduct<'a> {
    /// After `Load` (untyped), `Check` (typed) and `Optimize` (canonical).
    Module(&'a GraphModule),
    /// After `Lower`.
    Program(&'a Program),
    /// After `Compile` and `Pack`.
    Executable(&'a Executable),
}

/// Observes a compilation, to print, measure or verify.
pub trait Observer {
    /// Called after a stage, with its product and duration.
    fn after_stage(&mut self, _stage: Stage, _product: StageProduct, _time: Duration) {}

    /// Called after a pass (whether or not it changed anything), with the resulting module.
    fn after_pass(&mut self, _run: &PassRun, _module: &GraphModule) {}
}

/// Records the duration of each stage.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timer {
    /// In the order in which the stages ran.
    pub times: Vec<(Stage, Duration)>,
}

impl Observer for Timer {
    fn after_stage(&mut self, stage: Stage, _product: StageProduct, time: Duration) {
        self.times.push((stage, time));
    }
}

impl Timer {
    /// `load 1.2 ms, check 0.1 ms, …`
    pub(crate) fn summary_line(&self) -> String {
        let parts = self
            .times
            .iter()
            .map(|(s, t)| format!("{} {:.1}", s.name(), t.as_secs_f64() * 1e3));
        parts.collect::<Vec<_>>().join(", ")
    }
}

/// Locks a shared observer. (After a panic elsewhere it is still consistent, since each report is a single call.)
pub(crate) fn lock_observer<O>(observer: &Mutex<O>) -> MutexGuard<'_, O> {
    observer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A shared observer, which its owner can read while the session uses it.
impl<O: Observer> Observer for Arc<Mutex<O>> {
    fn after_stage(&mut self, stage: Stage, product: StageProduct, time: Duration) {
        lock_observer(self).after_stage(stage, product, time);
    }

    fn after_pass(&mut self, run: &PassRun, module: &GraphModule) {
        lock_observer(self).after_pass(run, module);
    }
}
