//! Rules and passes applied to models.

use crate::errors;
use crate::model::{CompiledModel, lock};
use crate::process::detached;
use fxc::Model;
use fxc::diag::Diagnostics;
use fxc::graph::GraphModule;
use fxc::internals::driver::{Reported, Session, Staged};
use fxc::pass::{self, PassManager};
use fxc::rewrite::{self, RewriteOptions, Rule, Samples, Verdict};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex};

/// Edits a copy of a model's graphs and returns a model with it.
fn edited<R: Send>(
    py: Python<'_>,
    model: &CompiledModel,
    work: impl FnOnce(&mut Session, &mut GraphModule) -> Staged<R> + Send,
) -> PyResult<(CompiledModel, R)> {
    let mut copy: Model = lock(py, &model.state.model).clone();
    let mut session = Session::new();
    session.sources = copy.sources().clone();
    let limits = &model.state.settings.limits;
    let done = detached(py, || {
        session.run_limited(limits, |session| work(session, copy.module_mut()))
    })?;
    match done {
        Ok(result) => Ok((
            CompiledModel::from_model(py, Arc::new(Mutex::new(copy)), model.state.settings.clone(), None)?,
            result,
        )),
        Err(_) => {
            let findings = session.diagnostics.into_iter().collect();
            Err(errors::raise_findings(py, findings, &session.sources))
        }
    }
}

fn reported<T, E: Into<Diagnostics>>(session: &mut Session, result: Result<T, E>) -> Staged<T> {
    result.map_err(|findings| {
        session.diagnostics.extend(findings.into());
        Reported
    })
}

/// A rule that fired (`why` is None) or nearly matched: the rule, the node, and the reason.
type RemarkRow = (String, String, Option<String>);

/// The options for applying rules.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct RuleOptions {
    fast: bool,
    remarks: bool,
    budget: Option<usize>,
    once: bool,
    verify: bool,
}

/// Applies the rules of a text or a file. Returns the model, the number of times that each rule fired, and the remarks.
#[pyfunction]
#[allow(clippy::type_complexity, reason = "three results")]
pub(crate) fn rewrite_model(
    py: Python<'_>,
    model: &CompiledModel,
    rules: String,
    is_path: bool,
    options: RuleOptions,
) -> PyResult<(CompiledModel, Vec<(String, usize)>, Vec<RemarkRow>)> {
    let mut settings = RewriteOptions::default();
    (settings.fast, settings.remarks) = (options.fast, options.remarks);
    (settings.budget, settings.once) = (options.budget, options.once);
    let (compiled, report) = edited(py, model, |session, module| {
        let rules = match is_path {
            true => session.load_rules(&rules)?,
            false => {
                let read = session.load_text("<rules>", &rules)?;
                let rules = read.tree.as_ref().map(|t| session.check_rules(t)).transpose()?;
                rules.unwrap_or_default()
            }
        };
        session.check(module, &[])?;
        if options.verify {
            verify_rules(session, module, &rules)?;
        }
        let report = rewrite::rewrite(module, &rules, &settings);
        let report = reported(session, report)?;
        session.check(module, &[])?;
        Ok(report)
    })?;
    let fired = report.fired.into_iter().map(|(name, n)| (name.to_string(), n));
    let remarks = report.remarks.into_iter();
    let remarks = remarks.map(|r| (r.rule.to_string(), r.node, r.failed));
    Ok((compiled, fired.collect(), remarks.collect()))
}

/// Tries rules on random values, and reports those that change a result.
fn verify_rules(session: &mut Session, module: &GraphModule, rules: &[Rule]) -> Staged<()> {
    let samples = Samples::of_module(module);
    let mut failed = false;
    for rule in rules {
        if let Verdict::Failed(example) = rewrite::verify(rule, rewrite::TRIALS, &samples) {
            session.report(example.to_diagnostic(rule));
            failed = true;
        }
    }
    match failed {
        true => Err(Reported),
        false => Ok(()),
    }
}

/// Runs the named passes, or the default pipeline without names. Returns the model and the number of changes of each pass.
#[pyfunction]
#[pyo3(signature = (model, names))]
pub(crate) fn run_passes(
    py: Python<'_>,
    model: &CompiledModel,
    names: Option<Vec<String>>,
) -> PyResult<(CompiledModel, Vec<(String, usize)>)> {
    let options = model.state.settings.pass_options();
    let (compiled, report) = edited(py, model, |session, module| {
        session.check(module, &[])?;
        let Some(names) = names else {
            return session.optimize(module, &options);
        };
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut manager = reported(session, PassManager::from_names(&names))?;
        session.run_passes(module, &mut manager, &options)
    })?;
    let changed = report.runs.iter().map(|r| (r.name.to_string(), r.changed));
    Ok((compiled, changed.collect()))
}

/// The passes with their descriptions, those of the default pipeline first.
#[pyfunction]
pub(crate) fn passes() -> Vec<(&'static str, &'static str)> {
    pass::all_passes().map(|p| (p.name, p.reason)).collect()
}
