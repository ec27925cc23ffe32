//! Text generation.

use crate::errors;
use crate::model::{CompiledModel, ModelState, lock};
use crate::process::interruptible;
use fxc::{GenerateOptions, GenerateStats, Session};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Arc, Mutex};

/// The tokens of a generation, computed one by one.
#[pyclass(frozen, module = "fxc", name = "Generation")]
pub(crate) struct PyGeneration {
    model: Arc<ModelState>,
    live: Mutex<fxc::Generation<Session>>,
}

#[pymethods]
impl PyGeneration {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<i64>> {
        let mut guard = lock(py, &self.live);
        let live = &mut *guard;
        let token = interruptible(py, self.model.token(), || live.next().transpose())?;
        token.map_err(|e| errors::raise(py, &e))
    }

    /// The number of tokens of the prompt.
    #[getter]
    fn prompt_tokens(&self, py: Python<'_>) -> usize {
        self.stats(py).prompt_tokens
    }

    /// The seconds that compilation took: for the length of the prompt, and for single tokens.
    #[getter]
    fn compile_seconds(&self, py: Python<'_>) -> f64 {
        self.stats(py).compile.as_secs_f64()
    }

    /// The seconds of the calls with the prompt, without compilation.
    #[getter]
    fn prefill_seconds(&self, py: Python<'_>) -> f64 {
        self.stats(py).prefill.as_secs_f64()
    }

    /// The number of generated tokens after the first, which the prompt's call gives.
    #[getter]
    fn decoded_tokens(&self, py: Python<'_>) -> usize {
        self.stats(py).decoded_tokens
    }

    /// The seconds of the calls with one token, without compilation.
    #[getter]
    fn decode_seconds(&self, py: Python<'_>) -> f64 {
        self.stats(py).decode.as_secs_f64()
    }
}

impl PyGeneration {
    fn stats(&self, py: Python<'_>) -> GenerateStats {
        lock(py, &self.live).stats()
    }
}

/// Begins to generate the tokens that follow `prompt`.
#[pyfunction]
#[pyo3(signature = (model, prompt, **options))]
pub(crate) fn generate(
    py: Python<'_>,
    model: &CompiledModel,
    prompt: Vec<i64>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<PyGeneration> {
    let options = read_options(options)?;
    let session = model.state.code(py)?.compiled.session();
    let live = session.into_generation(&prompt, &options);
    Ok(PyGeneration {
        model: model.state.clone(),
        live: Mutex::new(live.map_err(|e| errors::raise(py, &e))?),
    })
}

fn read_options(given: Option<&Bound<'_, PyDict>>) -> PyResult<GenerateOptions> {
    let mut options = GenerateOptions::new();
    for (key, value) in given.into_iter().flatten() {
        options = match &*key.extract::<String>()? {
            "max_new_tokens" => options.max_new_tokens(value.extract()?),
            "temperature" => options.temperature(value.extract()?),
            "top_k" => options.top_k(value.extract()?),
            "top_p" => options.top_p(value.extract()?),
            "seed" => options.seed(value.extract()?),
            "stop" => options.stop(value.extract::<Vec<i64>>()?),
            other => return Err(PyTypeError::new_err(format!("unknown option `{other}`"))),
        };
    }
    Ok(options)
}
