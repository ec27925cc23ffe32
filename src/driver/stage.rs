//! The stages by name, and what may watch them.

use crate::graph::GraphModule;
use crate::pass::PassRun;
use crate::program::Program;
use crate::runtime::Executable;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The stages of a compilation, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Bytes to a module of graphs: parsing and building, or reading an archive; weights are mapped.
    Load,
    /// Lint and inference: every node gets its type.
    Check,
    /// The passes.
    Optimize,
    /// Fusion, schedules, memory plan.
    Lower,
    /// Machine code.
    Compile,
    /// Packed weights, and memory. Packing needs all weights, so reading their file is a part of it.
    Pack,
}

impl Stage {
    /// All of them.
    pub const ALL: [Stage; 6] = [
        Stage::Load,
        Stage::Check,
        Stage::Optimize,
        Stage::Lower,
        Stage::Compile,
        Stage::Pack,
    ];

    /// Its name in reports.
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

/// What a stage made.
#[derive(Clone, Copy)]
pub enum StageProduct<'a> {
    /// After `Load` (untyped), `Check` (typed) and `Optimize` (canonical).
    Module(&'a GraphModule),
    /// After `Lower`.
    Program(&'a Program),
    /// After `Compile` and `Pack`.
    Executable(&'a Executable),
}

/// Watches a compilation: prints, measures, verifies.
pub trait Observer {
    /// Called when a stage is done, with what it made and how long it took.
    fn after_stage(&mut self, _stage: Stage, _product: StageProduct, _time: Duration) {}

    /// Called when a pass has run (whether or not it changed anything), with the module as it left it.
    fn after_pass(&mut self, _run: &PassRun, _module: &GraphModule) {}
}

/// Records how long each stage took.
#[derive(Clone, Debug, Default)]
pub struct Timer {
    /// In the order the stages ran.
    pub times: Vec<(Stage, Duration)>,
}

impl Observer for Timer {
    fn after_stage(&mut self, stage: Stage, _product: StageProduct, time: Duration) {
        self.times.push((stage, time));
    }
}

impl Timer {
    /// `load 1.2 ms, check 0.1 ms, …`
    pub fn summary_line(&self) -> String {
        let parts = self
            .times
            .iter()
            .map(|(s, t)| format!("{} {:.1}", s.name(), t.as_secs_f64() * 1e3));
        parts.collect::<Vec<_>>().join(", ")
    }
}

/// What an observer that others hold too has seen. (A panic elsewhere leaves it whole: each report is one call.)
pub fn lock_observer<O>(observer: &Mutex<O>) -> MutexGuard<'_, O> {
    observer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A shared observer, which its owner can read while the session has it too.
impl<O: Observer> Observer for Arc<Mutex<O>> {
    fn after_stage(&mut self, stage: Stage, product: StageProduct, time: Duration) {
        lock_observer(self).after_stage(stage, product, time);
    }

    fn after_pass(&mut self, run: &PassRun, module: &GraphModule) {
        lock_observer(self).after_pass(run, module);
    }
}
