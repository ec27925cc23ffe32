//! Finds the cause of a wrong result: a node that compiled code computes differently, or a pass that changes a result.

use crate::model::CompiledModel;
use crate::process::detached;
use crate::show::Subject;
use fxc::internals::driver::bisect::{BisectOutcome, Blame, find_bad_node, find_bad_pass};
use fxc::internals::driver::compare::Tolerance;
use fxc::internals::driver::{Reported, Staged};
use fxc::pass;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// The pass or node, the result or the node's target, the numbers of elements that differ and of all, the largest difference, and why
/// the values cannot be compared.
type BlameRow = (String, String, usize, usize, f64, Option<String>);

/// What is searched, and which differences count.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Search {
    passes: bool,
    every: bool,
    rtol: f64,
    atol: f64,
}

/// Runs a call in compiled code and in the interpreter, and returns the first node that differs; with `passes`, runs the interpreter after
/// each pass, and returns the first pass that changes a result. None if nothing differs.
#[pyfunction]
pub(crate) fn bisect<'py>(
    py: Python<'py>,
    model: &CompiledModel,
    search: Search,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Option<BlameRow>> {
    let mut subject = Subject::of_call(&model.state, args, kwargs, "bisect")?;
    match detached(py, || find(&mut subject, &search))? {
        Ok(blame) => Ok(blame.map(row)),
        Err(Reported) => Err(subject.failed(py)),
    }
}

fn find(subject: &mut Subject, search: &Search) -> Staged<Option<Blame>> {
    let tolerance = Tolerance {
        rtol: search.rtol,
        atol: search.atol,
    };
    let Some(bound) = &subject.bound else {
        return Ok(None);
    };
    let (session, passes) = (&mut subject.session, &subject.request.passes);
    let mut module = subject.module.clone();
    session.check(&mut module, &bound.types)?;
    if search.passes {
        let skipped = |name: &str| passes.skip.iter().any(|s| s == name);
        let all: Vec<_> = pass::PIPELINE.iter().filter(|p| !skipped(p.name)).collect();
        return find_bad_pass(session, module, &all, passes, bound, tolerance);
    }
    session.optimize(&mut module, passes)?;
    match find_bad_node(session, &module, bound, tolerance, search.every)? {
        BisectOutcome::Agree { .. } => Ok(None),
        BisectOutcome::Differ(blame) => Ok(Some(blame)),
    }
}

fn row(blame: Blame) -> BlameRow {
    let d = blame.difference;
    (blame.name, blame.value, d.outside, d.count, d.max_abs, d.mismatch)
}
