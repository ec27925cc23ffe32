//! A model with state.

use crate::args::{CallSignature, Library};
use crate::model::{ModelState, lock};
use crate::process::{Era, Gil, refuse_after_busy_fork};
use crate::results::Maker;
use crate::{errors, inputs, ndarray, torch, writes};
use fxc::Tensor;
use fxc::graph::AttributeKind;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// A model that keeps its state between calls: each call starts with the buffers that the previous one left.
#[pyclass(frozen, module = "fxc", name = "Session")]
pub(crate) struct Session {
    model: Arc<ModelState>,
    signature: Arc<CallSignature>,
    live: Mutex<Live>,
}

struct Live {
    era: Era,
    /// Always present, except while it is replaced.
    session: Option<fxc::Session>,
}

impl Session {
    pub(crate) fn new(py: Python<'_>, model: Arc<ModelState>) -> PyResult<Session> {
        let code = model.code(py)?;
        Ok(Session {
            signature: code.signature.clone(),
            live: Mutex::new(Live {
                era: code.era,
                session: Some(code.compiled.session()),
            }),
            model,
        })
    }

    /// Calls a function with the session. In a forked process, the code is recompiled and the state is kept.
    fn with<R>(&self, py: Python<'_>, work: impl FnOnce(&mut fxc::Session) -> PyResult<R>) -> PyResult<R> {
        refuse_after_busy_fork()?;
        let mut live = lock(py, &self.live);
        if !live.era.is_of_this_process() || live.session.is_none() {
            let code = self.model.code(py)?;
            let mut next = code.compiled.session();
            if let Some(before) = live.session.take() {
                for (path, t) in before.state() {
                    next.set_state(&path, t).map_err(|e| errors::raise(py, &e))?;
                }
            }
            (live.era, live.session) = (code.era, Some(next));
        }
        let Some(session) = live.session.as_mut() else {
            return Err(PyTypeError::new_err("the session is being replaced"));
        };
        work(session)
    }
}

#[pymethods]
impl Session {
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = args.py();
        let arguments = self.signature.read(args, kwargs)?;
        let outputs = self.with(py, |s| {
            self.model.run(py, Gil::Release, &arguments, &self.signature, |inputs| {
                s.run_with(inputs)
            })
        })?;
        writes::hand_back(&outputs, &self.signature, args, kwargs)?;
        Maker::new(py, arguments.library)?.outputs(outputs, self.model.restore.as_ref())
    }

    /// The buffers by name with their current values, as copies: torch tensors if torch is loaded, else arrays.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let mut all: BTreeMap<String, Tensor> = BTreeMap::new();
        for (path, a) in &lock(py, &self.model.model).module().attributes {
            if let (AttributeKind::Buffer, Some(t)) = (a.kind, &a.value) {
                all.insert(path.to_string(), t.clone());
            }
        }
        all.extend(self.with(py, |s| Ok(s.state()))?);
        to_dict(py, all)
    }

    /// Sets the values of buffers for the next call.
    fn load_state_dict(&self, py: Python<'_>, state: &Bound<'_, PyDict>) -> PyResult<()> {
        let mut values = vec![];
        for (key, value) in state.iter() {
            let path: String = key.extract()?;
            values.push((path.clone(), to_tensor(&value, &path)?));
        }
        self.with(py, |s| {
            let done = values.into_iter().try_for_each(|(path, t)| s.set_state(&path, t));
            done.map_err(|e| errors::raise(py, &e))
        })
    }

    /// Resets all buffers to their initial values.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |s| {
            s.reset();
            Ok(())
        })
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<fxc.Session of {}>", lock(py, &self.model.model).module().name)
    }
}

/// Copies a Python array or tensor.
pub(crate) fn to_tensor(value: &Bound<'_, PyAny>, place: &str) -> PyResult<Tensor> {
    let py = value.py();
    let array = match torch::loaded(py)? {
        Some(torch) if torch.is_tensor(value)? => torch.read(&value.call_method0("detach")?)?,
        _ if ndarray::is_array(value) => ndarray::read(value)?,
        _ => {
            let words = format!("`{place}` is neither a tensor nor an array");
            return Err(PyTypeError::new_err(words));
        }
    };
    inputs::to_tensor(&array).map_err(|e| PyValueError::new_err(e.to_string()))
}

/// Copies of tensors by name: torch tensors if torch is loaded, else arrays.
pub(crate) fn to_dict(py: Python<'_>, all: impl IntoIterator<Item = (String, Tensor)>) -> PyResult<Bound<'_, PyDict>> {
    let library = match torch::loaded(py)? {
        Some(_) => Library::Torch,
        None => Library::Numpy,
    };
    let maker = Maker::new(py, library)?;
    let dict = PyDict::new(py);
    for (path, t) in all {
        dict.set_item(path, maker.tensor(t.deep_copy())?)?;
    }
    Ok(dict)
}
