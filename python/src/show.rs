//! Texts and drawings of a model's stages.

use crate::args::CallSignature;
use crate::errors;
use crate::model::{CompiledModel, ModelState, lock};
use crate::process::{Cancellable, detached, interruptible};
use crate::settings::Settings;
use fxc::Limits;
use fxc::diag::{Code, Diagnostic, Diagnostics};
use fxc::graph::GraphModule;
use fxc::internals::driver::form::{PrintForm, fused_groups, write_form};
use fxc::internals::driver::text::Artifact;
use fxc::internals::driver::{
    self, BoundInputs, Given, LoadedModel, Provided, Reported, Request, Session, Staged, run_limited,
};
use fxc::source::Sources;
use fxc::types::{Type, Val};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::collections::BTreeMap;

/// A copy of a model for the tools, with the types that it is compiled for.
pub(crate) struct Subject {
    pub(crate) session: Session,
    pub(crate) module: GraphModule,
    pub(crate) request: Request,
    pub(crate) bound: Option<BoundInputs>,
    pub(crate) sources: Sources,
    limits: Limits,
}

/// The session's diagnostics say why the work failed.
struct Failed {
    cancelled: bool,
}

impl Cancellable for Failed {
    fn is_cancelled(&self) -> bool {
        self.cancelled
    }
}

impl Subject {
    /// Prepares the model for the arguments of a call, if there are any; else for the given sizes, with small
    /// defaults.
    pub(crate) fn new<'py>(
        state: &ModelState,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
        dims: BTreeMap<String, i64>,
    ) -> PyResult<Subject> {
        let py = args.py();
        let model = lock(py, &state.model).clone();
        let (module, sources) = (model.module().clone(), model.sources().clone());
        let mut session = Session::new();
        session.sources = sources.clone();
        session.exact = state.settings.exact;
        session.precision = state.settings.precision;
        session.target = state.settings.targets.last().copied();
        session.cancel = state.token().clone();
        let mut subject = Subject {
            request: Request {
                threads: state.settings.threads,
                passes: state.settings.pass_options(),
                ..Request::default()
            },
            bound: None,
            session,
            module,
            sources,
            limits: state.settings.limits.clone(),
        };
        if args.is_empty() && kwargs.is_none_or(|k| k.is_empty()) {
            subject.assume_sizes(py, dims)?;
        } else {
            subject.bind_call(args, kwargs, dims)?;
        }
        Ok(subject)
    }

    /// The subject of a call. `function` needs its arguments.
    pub(crate) fn of_call<'py>(
        state: &ModelState,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
        function: &str,
    ) -> PyResult<Subject> {
        let subject = Subject::new(state, args, kwargs, BTreeMap::new())?;
        match subject.bound {
            Some(_) => Ok(subject),
            None => Err(PyTypeError::new_err(format!(
                "pass the arguments of a call to {function}"
            ))),
        }
    }

    fn assume_sizes(&mut self, py: Python<'_>, dims: BTreeMap<String, i64>) -> PyResult<()> {
        let assumed = driver::sizes::assumed_dims(&self.module, dims);
        let (dims, _) = assumed.map_err(|d| errors::raise_findings(py, vec![d], &self.sources))?;
        self.request.inputs = Some(driver::input_types(&self.module, &dims));
        self.request.dims = dims;
        Ok(())
    }

    fn bind_call<'py>(
        &mut self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
        dims: BTreeMap<String, i64>,
    ) -> PyResult<()> {
        let py = args.py();
        let signature = CallSignature::from_module(&self.module);
        let arguments = signature.read(args, kwargs)?;
        let mut provided = vec![];
        for (slot, name) in arguments.slots.iter().zip(&signature.inputs) {
            let Some(value) = slot else { continue };
            let value = crate::inputs::to_value(value, &arguments.arrays);
            provided.push(Provided {
                name: name.clone(),
                given: Given::Value(value.map_err(|e| PyValueError::new_err(e.to_string()))?),
                origin: "the call".into(),
                must_match: true,
            });
        }
        let (bound, findings) = driver::bind::bind_inputs(&self.module, provided, dims);
        let bound = bound.ok_or_else(|| errors::raise_findings(py, findings.into_iter().collect(), &self.sources))?;
        self.request.inputs = Some(bound.types.clone());
        self.request.dims = bound.dims.clone();
        self.bound = Some(bound);
        Ok(())
    }

    /// Runs stages of the compiler without the interpreter's lock, within the model's limits, until Ctrl-C.
    pub(crate) fn run<R: Send>(
        &mut self,
        py: Python<'_>,
        mut work: impl FnMut(&mut Subject) -> Staged<R> + Send,
    ) -> PyResult<R> {
        let token = self.session.cancel.clone();
        let limits = self.limits.clone();
        let done = interruptible(py, &token, || {
            self.session.diagnostics = Diagnostics::new();
            let done = run_limited(&limits, || work(self)).unwrap_or_else(|refusal| {
                self.session.report(*refusal);
                Err(Reported)
            });
            let cancelled = |d: &Diagnostic| d.code == Code::E0512;
            done.map_err(|Reported| Failed {
                cancelled: self.session.diagnostics.iter().any(cancelled),
            })
        })?;
        done.map_err(|Failed { .. }| {
            let findings = std::mem::take(&mut self.session.diagnostics);
            errors::raise_findings(py, findings.into_iter().collect(), &self.sources)
        })
    }

    /// The texts of stages.
    fn texts(&mut self, artifacts: &[Artifact]) -> Staged<Vec<String>> {
        let request = Request {
            artifacts: artifacts.to_vec(),
            ..self.request.clone()
        };
        let model = LoadedModel::new(self.module.name.clone(), self.module.clone());
        let compilation = driver::compile(&mut self.session, model, &request)?;
        Ok(compilation.texts.into_iter().map(|(_, text)| text).collect())
    }
}

/// The text of a stage: `graph`, `typed`, `optimized`, `optimized-code`, `tir`, `fusion`, `kernel-ir`, `kernels`, `clif` or `asm`.
#[pyfunction]
#[pyo3(signature = (model, stage, args, kwargs, dims))]
pub(crate) fn stage_text<'py>(
    py: Python<'py>,
    model: &CompiledModel,
    stage: &str,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
    dims: BTreeMap<String, i64>,
) -> PyResult<String> {
    let names = Artifact::ALL.map(Artifact::name).join(", ");
    let unknown = || PyValueError::new_err(format!("unknown stage `{stage}`; the stages are {names}"));
    let artifact = Artifact::from_name(stage).ok_or_else(unknown)?;
    let mut subject = Subject::new(&model.state, args, kwargs, dims)?;
    let texts = subject.run(py, |subject| subject.texts(&[artifact]))?;
    Ok(texts.into_iter().next().unwrap_or_default())
}

/// The model in a format of `fxc print`; `fused` draws the steps of the compiled program.
#[pyfunction]
#[pyo3(signature = (model, form, fused = false))]
pub(crate) fn print_form(py: Python<'_>, model: &CompiledModel, form: &str, fused: bool) -> PyResult<String> {
    let unknown = || PyValueError::new_err(format!("unknown format `{form}`"));
    let form = PrintForm::from_name(form).ok_or_else(unknown)?;
    if !fused {
        let model = lock(py, &model.state.model).clone();
        return detached(py, || write_form(model.module(), form, &Default::default()));
    }
    let mut subject = Subject::new(
        &model.state,
        &PyTuple::empty(py),
        None,
        model.state.settings.dims.clone(),
    )?;
    subject.run(py, |subject| {
        let (dims, types) = (
            subject.request.dims.clone(),
            subject.request.inputs.clone().unwrap_or_default(),
        );
        let groups = fused_groups(&mut subject.session, &mut subject.module, &dims, &types)?;
        Ok(write_form(&subject.module, form, &groups))
    })
}

/// The inputs and results with their types in fxc's notation, or None for an unknown type.
#[pyfunction]
#[pyo3(signature = (model))]
#[allow(clippy::type_complexity, reason = "two lists of pairs")]
pub(crate) fn describe(
    py: Python<'_>,
    model: &CompiledModel,
) -> PyResult<(Vec<(String, Option<String>)>, Vec<(String, Option<String>)>)> {
    let model = lock(py, &model.state.model).clone();
    let text = |ty: Option<Type>| ty.filter(|t| *t != Val::Unknown).map(|t| t.to_string());
    let pairs = |v: Vec<fxc::ValueInfo>| v.into_iter().map(|v| (v.name, text(v.ty))).collect();
    let outputs = detached(py, || model.outputs())?.unwrap_or_default();
    Ok((pairs(model.inputs()), pairs(outputs)))
}

/// Checks a model or a rules file without compiling it, and returns all diagnostics.
#[pyfunction]
#[pyo3(signature = (source, *, text = false, lints = false, **options))]
pub(crate) fn check<'py>(
    py: Python<'py>,
    source: std::path::PathBuf,
    text: bool,
    lints: bool,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyList>> {
    let settings = Settings::from_kwargs(options)?;
    let session = detached(py, || {
        let mut session = Session::new();
        session.lints = lints;
        session.allowed = settings.allowed;
        let source = source.to_string_lossy();
        // What fails is among the session's findings.
        let _ = session.run_limited(&settings.limits, |session| {
            let mut model = match text {
                true => session.load_text("<text>", &source),
                false => session.load_any(&source),
            }?;
            // Check the graphs even if the rules have errors.
            let _ = model.tree.as_ref().map(|tree| session.check_rules(tree));
            session.check(&mut model.module, &[])
        });
        session
    })?;
    errors::to_list(py, session.diagnostics, &session.sources)
}

/// Writes a whole file. A reader sees either the old content or the new one, and an error leaves the old one.
#[pyfunction]
pub(crate) fn write_file(py: Python<'_>, path: std::path::PathBuf, data: &[u8]) -> PyResult<()> {
    Ok(detached(py, || driver::files::write_bytes(&path, data))??)
}
