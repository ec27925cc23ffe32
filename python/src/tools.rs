//! What the command line shows of files, the cache and the op table.

use crate::errors;
use crate::process::detached;
use fxc::diag::{Code, Diagnostic};
use fxc::internals::driver::{self, Cache, CompiledFile, NoCache, describe, load};
use fxc::internals::{op, syntax};
use fxc::source::Sources;
use pyo3::prelude::*;

fn failed(py: Python<'_>, d: Diagnostic) -> PyErr {
    errors::raise_findings(py, vec![d], &Sources::new())
}

/// What a compiled model contains, as JSON. `verify` checks the checksums of all sections.
#[pyfunction]
#[pyo3(signature = (path, verify = false))]
pub(crate) fn info(py: Python<'_>, path: std::path::PathBuf, verify: bool) -> PyResult<String> {
    let described = detached(py, || {
        let file = CompiledFile::open(&path).map_err(Box::new)?;
        if verify {
            file.verify().map_err(Box::new)?;
        }
        Ok(describe::describe_file(&file).to_string())
    })?;
    described.map_err(|d: Box<Diagnostic>| failed(py, *d))
}

/// The cache of compiled models; `None` if it is off.
fn user_cache(py: Python<'_>) -> PyResult<Option<std::sync::Arc<Cache>>> {
    match Cache::of_user() {
        Ok(cache) => Ok(Some(cache)),
        Err(NoCache::Off) => Ok(None),
        Err(NoCache::Unusable(reason)) => {
            let title = format!("the cache of compiled models cannot be used: {reason}");
            Err(failed(py, Diagnostic::new(Code::E0701, title)))
        }
    }
}

/// The cache of compiled models as JSON; `None` if it is off.
#[pyfunction]
pub(crate) fn cache_info(py: Python<'_>) -> PyResult<Option<String>> {
    let Some(cache) = user_cache(py)? else { return Ok(None) };
    detached(py, || Some(describe::describe_cache(&cache).to_string()))
}

/// Empties the cache of compiled models. Returns the number of bytes that were freed.
#[pyfunction]
pub(crate) fn clear_cache(py: Python<'_>) -> PyResult<u64> {
    let Some(cache) = user_cache(py)? else { return Ok(0) };
    let cleared = detached(py, || cache.clear())?;
    cleared.map_err(|e| {
        let title = format!("cannot clear `{}`: {e}", cache.folder().display());
        failed(py, Diagnostic::new(Code::E0702, title))
    })
}

/// The op table as JSON.
#[pyfunction]
pub(crate) fn ops() -> String {
    let rows = op::all().iter().map(describe::describe_op);
    serde_json::Value::Array(rows.collect()).to_string()
}

/// A text of FXIR in the standard format, with its comments.
#[pyfunction]
pub(crate) fn format(py: Python<'_>, text: &str) -> PyResult<String> {
    let mut sources = Sources::new();
    let formatted = detached(py, || {
        let (tree, _, findings) = load::parse_text(&mut sources, "<text>", text);
        match findings.has_errors() {
            true => Err(findings),
            false => Ok(syntax::format(&tree, text)),
        }
    })?;
    formatted.map_err(|findings| errors::raise_findings(py, findings.into_iter().collect(), &sources))
}

/// A text with the safe suggestions of its diagnostics.
#[pyfunction]
pub(crate) fn fix(py: Python<'_>, text: &str) -> PyResult<String> {
    detached(py, || driver::mend_text("<text>", text, &[]))
}

/// Restarts the stream of random numbers, like `torch.manual_seed`.
#[pyfunction]
pub(crate) fn manual_seed(seed: u64) {
    fxc::manual_seed(seed);
}
