//! Finds the cause of a wrong result: a node that compiled code computes differently, or a pass that changes a result. Runs the
//! interpreter.

use crate::args::CallSignature;
use crate::model::CompiledModel;
use crate::results::Maker;
use crate::show::Subject;
use fxc::Tensor;
use fxc::internals::driver::bisect::{BisectOutcome, Blame, find_bad_node, find_bad_pass};
use fxc::internals::driver::compare::Tolerance;
use fxc::internals::driver::run::user_result;
use fxc::internals::driver::{self, Staged};
use fxc::pass;
use pyo3::exceptions::PyTypeError;
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
    rtol: Option<f64>,
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
    let blame = subject.run(py, |subject| find(subject, &search))?;
    Ok(blame.map(row))
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

/// The result of a call in the interpreter, which computes each operation of the graph separately.
#[pyfunction]
pub(crate) fn interpret<'py>(
    py: Python<'py>,
    model: &CompiledModel,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let state = &model.state;
    let mut subject = Subject::new(state, args, kwargs, state.settings.dims.clone())?;
    let takes_inputs = subject.module.entry().is_some_and(|g| !g.placeholders().is_empty());
    if subject.bound.is_none() && takes_inputs {
        return Err(PyTypeError::new_err("pass the arguments of a call to interpret"));
    }
    let result = subject.run(py, |subject| {
        let values = subject.bound.as_ref().map(|b| b.values.clone()).unwrap_or_default();
        let types = subject.bound.as_ref().map(|b| b.types.clone()).unwrap_or_default();
        let mut module = subject.module.clone();
        subject.session.check(&mut module, &types)?;
        let result = driver::interpret(&mut subject.session, &module, values)?;
        let own = match module.entry() {
            Some(graph) => user_result(graph, result),
            None => result,
        };
        // Results may be inputs or weights, and Python may write to them.
        Ok(own.map(Tensor::deep_copy))
    })?;
    let library = CallSignature::from_module(&subject.module).read(args, kwargs)?.library;
    Maker::new(py, library)?.result(result, state.restore.as_ref())
}
