//! Compiled models for Python.

use crate::args::{Arguments, CallSignature};
use crate::graph::{GraphRef, PyGraph};
use crate::process::{Era, Gil, detached, interruptible, interruptible_with, signal_token};
use crate::results::Maker;
use crate::session::{self, Session};
use crate::settings::Settings;
use crate::{errors, inputs, tree, writes};
use fxc::{CancelToken, Compiled, Error, Input, Model, Outputs};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A model that is shared with its graphs.
pub(crate) type SharedModel = Arc<Mutex<Model>>;

/// Locks data shared between Python's threads. Code that may panic must not run while the lock is held.
pub(crate) fn lock<'a, T>(py: Python<'_>, shared: &'a Mutex<T>) -> MutexGuard<'a, T> {
    shared.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
}

/// The code of a model and its calling convention.
pub(crate) struct Code {
    pub(crate) era: Era,
    pub(crate) compiled: Compiled,
    pub(crate) signature: Arc<CallSignature>,
}

impl Code {
    /// What becomes of the interpreter's lock during the next call.
    pub(crate) fn gil(&self) -> Gil {
        if self.compiled.is_quick() {
            Gil::Keep
        } else {
            Gil::Release
        }
    }
}

/// The state that a model, its graphs and its sessions share.
pub(crate) struct ModelState {
    pub(crate) model: SharedModel,
    pub(crate) settings: Settings,
    code: Mutex<Option<Arc<Code>>>,
    /// Creates results of classes other than tuples, lists and dicts.
    pub(crate) restore: Option<Py<PyAny>>,
    pub(crate) path: Option<PathBuf>,
    was_called: AtomicBool,
    /// Cancels compilations and calls on Ctrl-C.
    token: CancelToken,
}

impl ModelState {
    /// The code for this process and the current number of threads; compiles it if needed.
    pub(crate) fn code(&self, py: Python<'_>) -> PyResult<Arc<Code>> {
        let era = Era::now(self.settings.threads);
        {
            let code = lock(py, &self.code);
            if let Some(code) = code.as_ref().filter(|c| c.era == era) {
                return Ok(code.clone());
            }
        }
        self.compile(py, era)
    }

    fn compile(&self, py: Python<'_>, era: Era) -> PyResult<Arc<Code>> {
        let model = lock(py, &self.model).clone();
        let signature = Arc::new(CallSignature::from_module(model.signature()));
        let options = self.settings.options(era, &self.token);
        let _watch = Watch::start(py, &format!("compiling {}", model.signature().name))?;
        let compiled = interruptible(py, &self.token, || model.compile(&options))?;
        let compiled = compiled.map_err(|e| errors::raise(py, &e))?;
        let code = Arc::new(Code {
            era,
            compiled,
            signature,
        });
        let before = lock(py, &self.code).replace(code.clone());
        // Drop it after releasing the lock: this may be the last reference to the code.
        drop(before);
        Ok(code)
    }

    /// Runs a call without the interpreter's lock.
    pub(crate) fn run<'a>(
        &self,
        py: Python<'_>,
        gil: Gil,
        arguments: &'a Arguments,
        signature: &'a CallSignature,
        mut call: impl FnMut(&[Input<'a>]) -> Result<Outputs, Error> + Send,
    ) -> PyResult<Outputs> {
        let inputs = inputs::of_call(arguments, signature).map_err(|e| PyValueError::new_err(e.to_string()))?;
        let run = interruptible_with(py, gil, &self.token, || call(&inputs))?;
        run.map_err(|e| errors::raise(py, &e))
    }

    /// Cancels compilations and calls on Ctrl-C.
    pub(crate) fn token(&self) -> &CancelToken {
        &self.token
    }

    /// Makes the next call recompile, because the graphs were edited.
    pub(crate) fn forget_code(&self, py: Python<'_>) {
        let before = lock(py, &self.code).take();
        drop(before);
    }

    /// Whether there has been no call yet. The first one may compile for its sizes.
    pub(crate) fn is_first_call(&self) -> bool {
        !self.was_called.load(Relaxed) && !self.was_called.swap(true, Relaxed)
    }
}

/// Shows progress on a terminal or in a notebook until it is dropped.
pub(crate) struct Watch<'py>(Bound<'py, PyAny>);

impl<'py> Watch<'py> {
    pub(crate) fn start(py: Python<'py>, task: &str) -> PyResult<Watch<'py>> {
        let module = py.import(intern!(py, "fxc._progress"))?;
        Ok(Watch(module.call_method1(intern!(py, "start"), (task,))?))
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        // Ignore errors of clearing the progress line.
        let _ = self.0.call_method0("stop");
    }
}

/// A compiled model, called like the module that it was compiled from.
#[pyclass(subclass, frozen, weakref, module = "fxc._fxc", name = "CompiledModel")]
pub(crate) struct CompiledModel {
    pub(crate) state: Arc<ModelState>,
}

impl CompiledModel {
    pub(crate) fn from_model(
        py: Python<'_>,
        model: SharedModel,
        settings: Settings,
        path: Option<PathBuf>,
    ) -> PyResult<CompiledModel> {
        let spec = lock(py, &model).signature().call_spec.clone();
        let restore = match spec {
            Some(spec) if !tree::is_plain(&spec.results) => {
                let module = py.import(intern!(py, "fxc._tree"))?;
                Some(module.call_method1("Restorer", (&*spec.results,))?.unbind())
            }
            _ => None,
        };
        Ok(CompiledModel {
            state: Arc::new(ModelState {
                model,
                settings,
                code: Mutex::new(None),
                restore,
                path,
                was_called: AtomicBool::new(false),
                token: signal_token(),
            }),
        })
    }
}

#[pymethods]
impl CompiledModel {
    /// Reads a model from a file, from a text if `text` is true, or from the content of a file; or takes the model of a graph or another
    /// model. `keep_path`: whether the file persists, so that copies can be read from it. Keyword arguments are compile options.
    #[new]
    #[pyo3(signature = (source, *, text = false, keep_path = true, **options))]
    fn new(
        source: &Bound<'_, PyAny>,
        text: bool,
        keep_path: bool,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<CompiledModel> {
        let py = source.py();
        let settings = Settings::from_kwargs(options)?;
        if let Ok(graph) = source.cast::<PyGraph>() {
            return CompiledModel::from_model(py, graph.get().graph.model.clone(), settings, None);
        }
        if let Ok(model) = source.cast::<CompiledModel>() {
            return CompiledModel::from_model(py, model.get().state.model.clone(), settings, None);
        }
        let _watch = Watch::start(py, "reading the model")?;
        if let Ok(bytes) = source.cast::<PyBytes>() {
            let content = bytes.as_bytes();
            let read = detached(py, || Model::from_bytes_with(content, &settings.reading()))?;
            let model = read.map_err(|e| errors::raise(py, &e))?;
            return CompiledModel::from_model(py, Arc::new(Mutex::new(model)), settings, None);
        }
        let source: PathBuf = source.extract()?;
        let reading = settings.reading();
        let read = detached(py, || match text {
            true => Model::from_text_with(&source.to_string_lossy(), &reading),
            false => Model::open_with(&source, &reading),
        })?;
        let model = read.map_err(|e| errors::raise(py, &e))?;
        let path = (!text && keep_path).then_some(source);
        CompiledModel::from_model(py, Arc::new(Mutex::new(model)), settings, path)
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = args.py();
        let code = self.state.code(py)?;
        let arguments = code.signature.read(args, kwargs)?;
        let watch = self
            .state
            .is_first_call()
            .then(|| Watch::start(py, "compiling for these sizes"))
            .transpose()?;
        let run = self.state.run(py, code.gil(), &arguments, &code.signature, |inputs| {
            code.compiled.run_with(inputs)
        });
        drop(watch);
        let outputs = run?;
        writes::hand_back(&outputs, &code.signature, args, kwargs)?;
        Maker::new(py, arguments.library)?.outputs(outputs, self.state.restore.as_ref())
    }

    /// Compiles everything that can be compiled without inputs.
    fn compile(&self, py: Python<'_>) -> PyResult<()> {
        self.state.code(py).map(|_| ())
    }

    /// Recompiles the model after its graphs were edited.
    fn recompile(&self, py: Python<'_>) -> PyResult<()> {
        self.state.forget_code(py);
        self.compile(py)
    }

    /// Starts a session, which keeps the state that calls change.
    fn session(&self, py: Python<'_>) -> PyResult<Session> {
        Session::new(py, self.state.clone())
    }

    /// The entry graph. Edits take effect in calls after `recompile`.
    #[getter]
    fn graph(&self, py: Python<'_>) -> PyResult<PyGraph> {
        let graph = GraphRef::entry(py, &self.state.model)?;
        Ok(PyGraph { graph })
    }

    /// The parameters, buffers and constants by name, as copies: torch tensors if torch is loaded, else arrays.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let model = lock(py, &self.state.model).clone();
        let attributes = model.module().attributes.iter();
        session::to_dict(
            py,
            attributes.filter_map(|(path, a)| Some((path.to_string(), a.value.clone()?))),
        )
    }

    /// Adds a parameter (or a buffer) that graphs can read with `get_attr`.
    #[pyo3(signature = (name, value, *, buffer = false))]
    fn add_parameter(&self, py: Python<'_>, name: &str, value: &Bound<'_, PyAny>, buffer: bool) -> PyResult<()> {
        let value = session::to_tensor(value, name)?;
        let mut model = lock(py, &self.state.model);
        match buffer {
            true => model.module_mut().add_buffer(name, value),
            false => model.module_mut().add_parameter(name, value),
        }
        Ok(())
    }

    /// The warnings of reading and compiling so far.
    #[getter]
    fn warnings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let code = lock(py, &self.state.code).clone();
        let model = lock(py, &self.state.model).clone();
        let mut warnings: Vec<_> = model.warnings().cloned().collect();
        warnings.extend(code.into_iter().flat_map(|c| c.compiled.warnings()));
        errors::to_list(py, warnings, model.sources())
    }

    /// The parameters in Python syntax.
    #[getter]
    fn signature_text(&self, py: Python<'_>) -> String {
        CallSignature::from_module(lock(py, &self.state.model).signature()).text()
    }

    /// The model's name.
    #[getter]
    fn name(&self, py: Python<'_>) -> String {
        lock(py, &self.state.model).signature().name.clone()
    }

    /// The file that the model was read from.
    #[getter]
    fn path(&self) -> Option<PathBuf> {
        self.state.path.clone()
    }

    /// The specification of the result's nesting, if the model came from an archive.
    #[getter]
    fn result_spec(&self, py: Python<'_>) -> Option<String> {
        let model = lock(py, &self.state.model);
        model.signature().call_spec.as_ref().map(|c| c.results.to_string())
    }

    /// Writes the model as FXIR with its weights in a second file, or with its code if the path ends in `.fxc`.
    /// `code_only` leaves out the graphs and their weights.
    #[pyo3(signature = (path, *, code_only = false))]
    fn save(&self, py: Python<'_>, path: PathBuf, code_only: bool) -> PyResult<()> {
        let state = &self.state;
        let model = lock(py, &state.model).clone();
        let saved = match path.extension().is_some_and(|e| e == "fxc") {
            true => {
                let options = state.settings.options(Era::now(state.settings.threads), &state.token);
                let options = options.code_only(code_only);
                let _watch = Watch::start(py, &format!("compiling {}", model.module().name))?;
                interruptible(py, &state.token, || model.save_compiled(&path, &options))?
            }
            false => detached(py, || model.save(&path))?,
        };
        saved.map_err(|e| errors::raise(py, &e))
    }
}
