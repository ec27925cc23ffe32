//! Measures the steps of a run.

use super::executable::Executable;
use super::plan::{Action, ContractPlan};
use crate::program::Step;
use std::time::Duration;

/// Times of one step since profiling began.
#[derive(Clone, Debug)]
pub struct ProfileRow {
    /// The name of the kernel, the method of the contraction, or the library call.
    pub name: String,
    /// Total time.
    pub time: Duration,
    /// The shortest run.
    pub min: Duration,
    /// Bytes of the buffers that it reads and writes, each counted once.
    pub bytes: usize,
    /// Multiply-adds; 0 for kernels.
    pub macs: f64,
}

/// Times of every step.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// One per step, in order.
    pub rows: Vec<ProfileRow>,
}

impl Executable {
    /// Starts measuring every step.
    pub fn start_profile(&mut self) {
        self.times = Some(vec![(Duration::ZERO, Duration::MAX); self.actions.len()]);
    }

    /// The measurements since [`Executable::start_profile`].
    pub fn profile(&self) -> Profile {
        let times = self.times.as_deref().unwrap_or_default();
        let rows = self
            .program
            .steps
            .iter()
            .zip(&self.actions)
            .zip(times)
            .map(|((s, a), &(time, min))| {
                let bytes = s.buffers().iter().map(|b| self.program.buffers[b.0].byte_count()).sum();
                let macs = match s {
                    Step::Contract { contract, .. } => contract.macs(),
                    _ => 0.0,
                };
                ProfileRow {
                    name: self.step_name(s, a),
                    time,
                    min,
                    bytes,
                    macs,
                }
            });
        Profile { rows: rows.collect() }
    }

    pub(super) fn step_name(&self, s: &Step, a: &Action) -> String {
        match (s, a) {
            (Step::Kernel { kernel, .. }, _) => {
                let bits = 8 * self.kernels.vector_bytes(*kernel);
                let reason = self
                    .kernels
                    .why_not_widened(*kernel)
                    .map(|r| format!(": {r}"))
                    .unwrap_or_default();
                format!("{} [{bits} bits{reason}]", self.program.kernels[*kernel].name)
            }
            (Step::Contract { out, tail, .. }, Action::Contract { plan, .. }) => {
                let method = match plan {
                    ContractPlan::MatMul(p) => p.describe(),
                    ContractPlan::Conv(p) => p.describe(),
                    ContractPlan::Expansion(p, ..) => p.describe(),
                    ContractPlan::Attention(p) => p.describe(),
                    ContractPlan::Grouped(p) => p.describe(),
                    ContractPlan::Recurrent(p, _) => p.describe(),
                };
                let then = if tail.is_some() { ", then its kernel" } else { "" };
                format!("{} [{method}{then}]", self.program.buffers[out.0].name)
            }
            (Step::Routine { call, .. }, _) => format!("{} (library)", call.op),
            (Step::Control { op, .. }, _) => format!("{op} (control flow)"),
            _ => String::new(),
        }
    }
}
