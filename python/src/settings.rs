//! Compile options.

use crate::process::Era;
use fxc::internals::driver::parse_size;
use fxc::pass::PassOptions;
use fxc::{CancelToken, Limits, Options, Precision, Target};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The options for compiling a model.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    /// 0 for the package's default.
    pub(crate) threads: usize,
    pub(crate) exact: bool,
    pub(crate) precision: Precision,
    pub(crate) fast_math: bool,
    pub(crate) skip: Vec<String>,
    pub(crate) dims: BTreeMap<String, i64>,
    /// Whether to use the user's cache.
    pub(crate) cache: bool,
    /// Sizes to compile for before the first call.
    pub(crate) at: BTreeMap<String, Vec<i64>>,
    /// The processors to compile for; empty for the machine's.
    pub(crate) targets: Vec<Target>,
    /// Whether compiled models are refused.
    pub(crate) no_code: bool,
    /// Folders in which weights files may be that a text names.
    pub(crate) allowed: Vec<PathBuf>,
    /// The file to read the weights from.
    pub(crate) weights: Option<PathBuf>,
    /// Whether code of a compiled model that does not fit is an error.
    pub(crate) no_fallback: bool,
    /// What reading, compiling and a call may use.
    pub(crate) limits: Limits,
}

impl Settings {
    /// The settings from keyword arguments.
    pub(crate) fn from_kwargs(kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<Settings> {
        let mut settings = Settings::default();
        for (key, value) in kwargs.into_iter().flatten() {
            match &*key.extract::<String>()? {
                "threads" => settings.threads = value.extract::<Option<usize>>()?.unwrap_or(0),
                "exact" => settings.exact = value.extract()?,
                "precision" => {
                    let name = value.extract::<String>()?;
                    settings.precision = Precision::parse(&name).map_err(PyValueError::new_err)?;
                }
                "fast_math" => settings.fast_math = value.extract()?,
                "skip_passes" => settings.skip = value.extract::<Option<_>>()?.unwrap_or_default(),
                "weights" => settings.weights = value.extract()?,
                "fallback" => settings.no_fallback = !value.extract::<bool>()?,
                "at" => settings.at = value.extract::<Option<_>>()?.unwrap_or_default(),
                "targets" => settings.targets = read_targets(&value)?,
                "allow_code" => settings.no_code = !value.extract::<bool>()?,
                "allow_paths" => settings.allowed = value.extract::<Option<_>>()?.unwrap_or_default(),
                "cache" => settings.cache = value.extract()?,
                "max_memory" => settings.limits.memory = read_size(&value)?,
                "max_nodes" => settings.limits.nodes = value.extract()?,
                "max_time" => settings.limits.time = read_seconds(&value)?,
                "dims" => settings.dims = value.extract::<Option<_>>()?.unwrap_or_default(),
                other => {
                    let words = format!("unknown option `{other}`");
                    return Err(pyo3::exceptions::PyTypeError::new_err(words));
                }
            }
        }
        Ok(settings)
    }

    /// The options for optimising the graph.
    pub(crate) fn pass_options(&self) -> PassOptions {
        let mut passes = PassOptions::default();
        passes.fast_math = self.fast_math;
        passes.skip = self.skip.clone();
        passes
    }

    /// The options for reading a model.
    pub(crate) fn reading(&self) -> Options {
        let options = Options::new()
            .cache(self.cache)
            .allow_code(!self.no_code)
            .limits(self.limits.clone());
        let options = self.allowed.iter().fold(options, |o, folder| o.allow_path(folder));
        self.weights.iter().fold(options, |o, file| o.weights(file))
    }

    /// The options for compiling a model.
    pub(crate) fn options(&self, era: Era, token: &CancelToken) -> Options {
        let options = Options::new()
            .limits(self.limits.clone())
            .cancel(token.clone())
            .threads(era.thread_count())
            .exact(self.exact)
            .fallback(!self.no_fallback)
            .precision(self.precision)
            .cache(self.cache)
            .passes(self.pass_options());
        let dims = self.dims.iter();
        let options = dims.fold(options, |o, (name, size)| o.dim(name.clone(), *size));
        let planned_sizes = self.at.iter();
        let options = planned_sizes.fold(options, |o, (names, sizes)| o.at(names, sizes.iter().copied()));
        self.targets.iter().fold(options, |o, &t| o.target(t))
    }
}

/// A number of bytes, or a size such as `"512MB"`.
fn read_size(value: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    let Ok(text) = value.extract::<String>() else {
        return value.extract();
    };
    let size = parse_size(&text).and_then(|n| usize::try_from(n).ok());
    let wrong = || PyValueError::new_err(format!("`{text}` is not a size such as 512MB or 4GiB"));
    size.map(Some).ok_or_else(wrong)
}

fn read_seconds(value: &Bound<'_, PyAny>) -> PyResult<Option<Duration>> {
    let seconds: Option<f64> = value.extract()?;
    let time = seconds.map(Duration::try_from_secs_f64).transpose();
    time.map_err(|_| PyValueError::new_err(format!("max_time={value} is not a number of seconds")))
}

fn read_targets(value: &Bound<'_, PyAny>) -> PyResult<Vec<Target>> {
    let names: Vec<String> = value.extract::<Option<_>>()?.unwrap_or_default();
    let parse =
        |name: &String| Target::parse(name).map_err(|reason| PyValueError::new_err(format!("`{name}`: {reason}")));
    names.iter().map(parse).collect()
}
