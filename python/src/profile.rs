//! Measures the steps of a call.

use crate::model::CompiledModel;
use crate::process::Gil;
use crate::show::Subject;
use fxc::internals::driver::{self, BufferState, LoadedModel, Reported, Request, Stage, Staged};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::time::{Duration, Instant};

/// A step: its name, the nodes that it computes, the bytes of its buffers, its multiply-adds, and its seconds in each run.
type Row = (String, Vec<String>, usize, f64, Vec<f64>);

/// The measurements.
struct Measured {
    rows: Vec<Row>,
    runs: Vec<f64>,
    interpreted: usize,
}

/// Runs a call `runs` times and measures every step. Returns the steps, the seconds of each run, and the number of interpreted operations.
#[pyfunction]
pub(crate) fn profile<'py>(
    py: Python<'py>,
    model: &CompiledModel,
    runs: usize,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<(Vec<Row>, Vec<f64>, usize)> {
    let mut subject = Subject::of_call(&model.state, args, kwargs, "profile")?;
    match subject.run(py, |subject| measure(subject, runs))? {
        Some(m) => Ok((m.rows, m.runs, m.interpreted)),
        None => Err(PyRuntimeError::new_err(
            "no part of the model is compiled, so there is nothing to measure",
        )),
    }
}

/// The measurements; `None` if no part of the model is compiled.
fn measure(subject: &mut Subject, runs: usize) -> Staged<Option<Measured>> {
    let request = Request {
        until: Some(Stage::Compile),
        ..subject.request.clone()
    };
    let model = LoadedModel::new(subject.module.name.clone(), subject.module.clone());
    let compilation = driver::compile(&mut subject.session, model, &request)?;
    let bound = subject.bound.as_ref().ok_or(Reported)?;
    let mut ready = compilation.ready.ok_or(Reported)?;
    let mut run = |ready: &mut driver::Ready| {
        let start = Instant::now();
        match ready.run(&compilation.module, bound, &mut BufferState::new()) {
            Ok(_) => Ok(start.elapsed()),
            Err(d) => {
                subject.session.report(d);
                Err(Reported)
            }
        }
    };
    // The first runs touch memory for the first time.
    let warm = Instant::now();
    while warm.elapsed() < Duration::from_millis(50) {
        run(&mut ready)?;
    }
    measure_steps(&mut ready, runs, run)
}

/// Measures `runs` runs step by step. `run` runs the model once, and returns the time that it took.
fn measure_steps(
    ready: &mut driver::Ready,
    runs: usize,
    mut run: impl FnMut(&mut driver::Ready) -> Staged<Duration>,
) -> Staged<Option<Measured>> {
    let mut measured = Measured {
        rows: rows_of(ready),
        runs: vec![],
        interpreted: ready.interpreted_count(),
    };
    if measured.rows.is_empty() {
        return Ok(None);
    }
    for _ in 0..runs.max(1) {
        ready.executable_mut().ok_or(Reported)?.start_profile();
        measured.runs.push(run(ready)?.as_secs_f64());
        let profile = ready.executable().ok_or(Reported)?.profile();
        for (row, step) in measured.rows.iter_mut().zip(profile.rows) {
            row.4.push(step.time.as_secs_f64());
        }
    }
    Ok(Some(measured))
}

/// The steps of the compiled part, before measurement.
fn rows_of(ready: &mut driver::Ready) -> Vec<Row> {
    let Some(executable) = ready.executable_mut() else {
        return vec![];
    };
    executable.start_profile();
    let program = executable.program();
    let names = |i: usize| program.nodes.get(i).map(|n| n.iter().map(|n| n.to_string()).collect());
    let steps = executable.profile().rows.into_iter().enumerate();
    let row = |(i, s): (usize, fxc::internals::runtime::ProfileRow)| {
        (s.name, names(i).unwrap_or_default(), s.bytes, s.macs, vec![])
    };
    steps.map(row).collect()
}

/// The seconds that a call takes without Python: what `benches/overhead.py` subtracts.
#[pyfunction]
pub(crate) fn native_seconds<'py>(
    py: Python<'py>,
    model: &CompiledModel,
    calls: u32,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<f64> {
    let code = model.state.code(py)?;
    let arguments = code.signature.read(args, kwargs)?;
    let mut spent = Duration::ZERO;
    model
        .state
        .run(py, Gil::Release, &arguments, &code.signature, |inputs| {
            let start = Instant::now();
            for _ in 1..calls {
                code.compiled.run_with(inputs)?;
            }
            let last = code.compiled.run_with(inputs);
            spent = start.elapsed();
            last
        })?;
    Ok(spent.as_secs_f64() / f64::from(calls.max(1)))
}
