//! Pass managers: lists of passes with ordering constraints and checks between passes (torch's `PassManager`).

use super::{Pass, PassContext, PassOptions, PassReport, PassRun, by_name, node_count, verify};
use crate::diag::{Code, Diagnostic, Diagnostics, nearest};
use crate::graph::GraphModule;
use std::time::Instant;

/// A pass: it changes a module and returns the number of changes.
pub type PassFn<'a> = Box<dyn FnMut(&mut GraphModule, &mut PassContext) -> Result<usize, Diagnostic> + 'a>;

/// A check that runs after each pass.
pub type PassCheck<'a> = Box<dyn Fn(&GraphModule) -> Result<(), Diagnostic> + 'a>;

/// An entry of the list.
struct PassEntry<'a> {
    name: &'static str,
    run: PassFn<'a>,
    /// What must hold before the pass (torch's `requires`).
    requires: Option<PassCheck<'a>>,
    /// What must hold after the pass (torch's `ensures`).
    ensures: Option<PassCheck<'a>>,
}

/// A list of passes, run in order. Built-in passes are added by name; a function can be a pass too.
#[derive(Default)]
pub struct PassManager<'a> {
    passes: Vec<PassEntry<'a>>,
    constraints: Vec<(String, String)>,
    checks: Vec<PassCheck<'a>>,
    /// Whether the checks run only once, after the last pass, rather than after each.
    pub check_at_end: bool,
    /// Whether a failed check becomes a remark of the pass rather than an error (torch's `suppress_check_failures`).
    pub suppress_check_failures: bool,
    /// The maximal number of rounds. A round that changes nothing is the last.
    pub steps: usize,
}

/// Pairs of passes `(first, second)`: if a list has both, `first` must come first, since `second` only handles what
/// `first` produces. All passes that are not [`LEVEL_FREE`] must also come after `normalize`.
pub const ORDER: [(&str, &str); 2] = [("inline", "functionalize"), ("functionalize", "normalize")];

/// The passes that work on graphs at any level. All others only look at canonical calls.
pub const LEVEL_FREE: [&str; 6] = [
    "inline",
    "functionalize",
    "normalize",
    "dead-inputs",
    "canonicalise",
    "assert-sizes",
];

fn usage_error(title: String) -> Diagnostic {
    Diagnostic::new(Code::E0807, title)
}

impl<'a> PassManager<'a> {
    /// An empty list.
    pub fn new() -> PassManager<'a> {
        PassManager {
            steps: 1,
            ..PassManager::default()
        }
    }

    /// A list of built-in passes, by name. Their order must satisfy [`ORDER`].
    pub fn from_names(names: &[&str]) -> Result<PassManager<'a>, Diagnostic> {
        let mut m = PassManager::new();
        for name in names {
            m.add(by_name(name).ok_or_else(|| unknown_pass_error(name))?);
        }
        for (a, b) in ORDER {
            m.add_constraint(a, b);
        }
        let canonical = names.iter().filter(|n| !LEVEL_FREE.contains(n));
        canonical.for_each(|n| m.add_constraint("normalize", n));
        Ok(m)
    }

    /// The first pass that needs canonical calls and has no `normalize` before it.
    pub fn before_normalize(&self) -> Option<&'static str> {
        let first = self.passes.iter().take_while(|p| p.name != "normalize");
        first
            .map(|p| p.name)
            .find(|n| by_name(n).is_some() && !LEVEL_FREE.contains(n))
    }

    /// Adds a built-in pass.
    pub fn add(&mut self, pass: &'static Pass) {
        self.add_pass(pass.name, pass.run);
    }

    /// Adds a custom pass.
    pub fn add_pass(
        &mut self,
        name: &'static str,
        run: impl FnMut(&mut GraphModule, &mut PassContext) -> Result<usize, Diagnostic> + 'a,
    ) {
        self.passes.push(PassEntry {
            name,
            run: Box::new(run),
            requires: None,
            ensures: None,
        });
    }

    /// Adds a custom pass with checks that run before and after it (torch's `PassBase`).
    pub fn add_pass_with(
        &mut self,
        name: &'static str,
        requires: impl Fn(&GraphModule) -> Result<(), Diagnostic> + 'a,
        run: impl FnMut(&mut GraphModule, &mut PassContext) -> Result<usize, Diagnostic> + 'a,
        ensures: impl Fn(&GraphModule) -> Result<(), Diagnostic> + 'a,
    ) {
        self.passes.push(PassEntry {
            name,
            run: Box::new(run),
            requires: Some(Box::new(requires)),
            ensures: Some(Box::new(ensures)),
        });
    }

    /// Requires every pass named `before` to come before every pass named `after`.
    pub fn add_constraint(&mut self, before: &str, after: &str) {
        self.constraints.push((before.into(), after.into()));
    }

    /// Requires every pass of `before` to come before every pass of `after` (torch's
    /// `these_before_those_pass_constraint`).
    pub fn add_constraints(&mut self, before: &[&str], after: &[&str]) {
        for a in before {
            after.iter().for_each(|b| self.add_constraint(a, b));
        }
    }

    /// Adds a check that runs after each pass.
    pub fn add_check(&mut self, check: impl Fn(&GraphModule) -> Result<(), Diagnostic> + 'a) {
        self.checks.push(Box::new(check));
    }

    /// The names of the passes, in order.
    pub fn names(&self) -> Vec<&'static str> {
        self.passes.iter().map(|p| p.name).collect()
    }

    /// Returns an error (E0807, in torch's words) if the order violates a constraint.
    pub fn validate(&self) -> Result<(), Diagnostic> {
        let names = self.names();
        for (i, a) in names.iter().enumerate() {
            for (j, b) in names.iter().enumerate().skip(i + 1) {
                if self.constraints.iter().any(|(x, y)| x == b && y == a) {
                    return Err(usage_error(format!(
                        "pass schedule constraint violated. Expected {b} before {a} but found {a} at index {i} and {b} at \
                         index {j} in pass list."
                    )));
                }
            }
        }
        Ok(())
    }

    /// Reorders the passes to satisfy the constraints. Keeps the given order where the constraints allow it.
    pub fn solve_constraints(&mut self) -> Result<(), Diagnostic> {
        let mut left = std::mem::take(&mut self.passes);
        let mut out: Vec<PassEntry<'a>> = vec![];
        while !left.is_empty() {
            let free = (0..left.len()).find(|&i| {
                let name = left[i].name;
                let mut others = left.iter().enumerate().filter(|(j, _)| *j != i);
                !others.any(|(_, o)| o.name != name && self.constraints.iter().any(|(x, y)| x == o.name && y == name))
            });
            let Some(i) = free else {
                let names: Vec<&str> = left.iter().map(|p| p.name).collect();
                let title = format!(
                    "Circular dependency detected within the following passes: {}",
                    names.join(", ")
                );
                out.extend(left);
                self.passes = out;
                return Err(usage_error(title));
            };
            out.push(left.remove(i));
        }
        self.passes = out;
        Ok(())
    }

    /// Runs the list `steps` times, or until a round changes nothing. `observe` is called after each pass.
    ///
    /// # Errors
    /// An order that violates a constraint; whatever a pass or check reports, with a note that names the pass and those
    /// before it.
    pub fn run(
        &mut self,
        module: &mut GraphModule,
        options: &PassOptions,
        observe: &mut dyn FnMut(&PassRun, &GraphModule),
    ) -> Result<PassReport, Diagnostics> {
        self.validate()?;
        let mut report = PassReport::default();
        let limit = options.limit.unwrap_or(usize::MAX);
        for _ in 0..self.steps.max(1) {
            let mut changed = 0;
            for i in 0..self.passes.len() {
                if report.runs.len() >= limit {
                    return Ok(report);
                }
                let before: Vec<&str> = report.runs.iter().map(|r| r.name).collect();
                let note = format!(
                    "An error occurred when running the '{}' pass after the following passes: [{}]",
                    self.passes[i].name,
                    before.join(", ")
                );
                let run = self
                    .run_pass(i, module, options)
                    .map_err(|findings| note_all(findings, &note))?;
                changed += run.changed;
                observe(&run, module);
                report.runs.push(run);
            }
            if changed == 0 {
                break;
            }
        }
        Ok(report)
    }

    fn run_pass(&mut self, i: usize, module: &mut GraphModule, options: &PassOptions) -> Result<PassRun, Diagnostics> {
        let last = i + 1 == self.passes.len();
        let entry = &mut self.passes[i];
        let mut cx = PassContext {
            options,
            remarks: vec![],
        };
        if let Some(requires) = &entry.requires {
            requires(module)?;
        }
        let before = node_count(module);
        let start = Instant::now();
        let changed = (entry.run)(module, &mut cx)?;
        let time = start.elapsed();
        if options.verify_each {
            verify(entry.name, module)?;
        }
        if let Some(ensures) = &entry.ensures {
            ensures(module)?;
        }
        let checks = self.checks.iter().filter(|_| last || !self.check_at_end);
        for finding in checks.filter_map(|check| check(module).err()) {
            if !self.suppress_check_failures {
                return Err(finding.into());
            }
            cx.remarks.push(format!("a check failed: {}", finding.title));
        }
        Ok(PassRun {
            name: entry.name,
            changed,
            before,
            after: node_count(module),
            time,
            remarks: cx.remarks,
        })
    }
}

/// A pass that repeats `pass` until it changes nothing, at most `rounds` times (torch's `loop_pass`).
pub fn loop_pass<'a>(
    mut pass: impl FnMut(&mut GraphModule, &mut PassContext) -> Result<usize, Diagnostic> + 'a,
    rounds: usize,
) -> impl FnMut(&mut GraphModule, &mut PassContext) -> Result<usize, Diagnostic> + 'a {
    move |module, cx| {
        let mut total = 0;
        for _ in 0..rounds {
            let changed = pass(module, cx)?;
            total += changed;
            if changed == 0 {
                break;
            }
        }
        Ok(total)
    }
}

fn note_all(findings: Diagnostics, note: &str) -> Diagnostics {
    let mut out = Diagnostics::new();
    findings.into_iter().for_each(|d| out.push(d.note(note)));
    out
}

fn unknown_pass_error(name: &str) -> Diagnostic {
    let names: Vec<&str> = super::all_passes().map(|p| p.name).collect();
    let d = usage_error(format!("unknown pass `{name}`"));
    match nearest(name, names.iter().copied()) {
        Some(n) => d.help(format!("there is a pass with a similar name: `{n}`")),
        None => d.help(format!("the passes are {}", names.join(", "))),
    }
}

#[cfg(test)]
mod tests;
