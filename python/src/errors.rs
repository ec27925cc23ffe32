//! Findings as Python objects, and errors that carry them.

use fxc::diag::render::{DiagnosticFormat, render};
use fxc::diag::{Applicability, Code, Diagnostic, Label, Severity, Suggestion};
use fxc::source::{Sources, Span};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyList;

/// A range in a source text. Lines and columns are 1-based, and the end is exclusive.
#[pyclass(frozen, eq, module = "fxc", name = "Span", get_all)]
#[derive(Clone, PartialEq)]
pub(crate) struct PySpan {
    file: String,
    line: usize,
    column: usize,
    end_line: usize,
    end_column: usize,
    text: String,
}

#[pymethods]
impl PySpan {
    fn __repr__(&self) -> String {
        format!("Span('{}:{}:{}')", self.file, self.line, self.column)
    }

    fn __str__(&self) -> String {
        format!("{}:{}:{}", self.file, self.line, self.column)
    }
}

impl PySpan {
    fn new(sources: &Sources, span: Span) -> PySpan {
        let source = sources.get(span.file);
        let place = |offset: usize| {
            let before = source.text.get(..offset).unwrap_or(&source.text);
            let line_start = before.rfind('\n').map_or(0, |i| i + 1);
            (
                before.matches('\n').count() + 1,
                before[line_start..].chars().count() + 1,
            )
        };
        let ((line, column), (end_line, end_column)) = (place(span.range().start), place(span.range().end));
        PySpan {
            file: source.name.clone(),
            line,
            column,
            end_line,
            end_column,
            text: sources.text(span).to_string(),
        }
    }
}

/// A source range with a message.
#[pyclass(frozen, module = "fxc", name = "Label", get_all)]
pub(crate) struct PyLabel {
    span: PySpan,
    text: String,
    primary: bool,
}

/// An edit of the text that would correct the error.
#[pyclass(frozen, module = "fxc", name = "Suggestion", get_all)]
pub(crate) struct PySuggestion {
    span: PySpan,
    replacement: String,
    text: String,
    safe: bool,
}

/// An error, a warning or a note.
#[pyclass(frozen, module = "fxc", name = "Diagnostic")]
pub(crate) struct PyDiagnostic {
    diagnostic: Diagnostic,
    sources: Sources,
}

#[pymethods]
impl PyDiagnostic {
    #[getter]
    fn code(&self) -> &'static str {
        self.diagnostic.code.name()
    }

    #[getter]
    fn severity(&self) -> &'static str {
        severity_name(self.diagnostic.severity)
    }

    #[getter]
    fn title(&self) -> &str {
        &self.diagnostic.title
    }

    #[getter]
    fn notes(&self) -> Vec<String> {
        self.diagnostic.notes.clone()
    }

    #[getter]
    fn help(&self) -> Vec<String> {
        self.diagnostic.help.clone()
    }

    /// The primary source range.
    #[getter]
    fn span(&self) -> Option<PySpan> {
        let labels = &self.diagnostic.labels;
        let label = labels.iter().find(|l| l.primary).or(labels.first())?;
        Some(PySpan::new(&self.sources, label.span))
    }

    #[getter]
    fn labels(&self) -> Vec<PyLabel> {
        let convert = |l: &Label| PyLabel {
            span: PySpan::new(&self.sources, l.span),
            text: l.text.clone(),
            primary: l.primary,
        };
        self.diagnostic.labels.iter().map(convert).collect()
    }

    #[getter]
    fn suggestions(&self) -> Vec<PySuggestion> {
        let convert = |s: &Suggestion| PySuggestion {
            span: PySpan::new(&self.sources, s.span),
            replacement: s.replacement.clone(),
            text: s.text.clone(),
            safe: s.applicability == Applicability::Safe,
        };
        self.diagnostic.suggestions.iter().map(convert).collect()
    }

    /// The diagnostic in the command line's format.
    #[pyo3(signature = (color = false))]
    fn render(&self, color: bool) -> String {
        let text = render(&self.sources, &[&self.diagnostic], DiagnosticFormat::Human, color);
        text.trim_end().to_string()
    }

    fn __str__(&self) -> String {
        self.render(false)
    }

    fn __repr__(&self) -> String {
        format!("<{} {}: {}>", self.severity(), self.code(), self.title())
    }
}

fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Warning => "warning",
        Severity::Error => "error",
        _ => "note",
    }
}

/// Diagnostics as a list.
pub(crate) fn to_list<'py>(
    py: Python<'py>,
    findings: impl IntoIterator<Item = Diagnostic>,
    sources: &Sources,
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for diagnostic in findings {
        let sources = sources.clone();
        list.append(Bound::new(py, PyDiagnostic { diagnostic, sources })?)?;
    }
    Ok(list)
}

/// The exception for an error of the library.
pub(crate) fn raise(py: Python<'_>, error: &fxc::Error) -> PyErr {
    let list = to_list(py, error.diagnostics().iter().cloned(), error.sources());
    let code = error.code().map(Code::name);
    list.and_then(|list| exception(py, code, &format!("{error:#}"), list))
        .unwrap_or_else(|e| e)
}

/// The exception for diagnostics of the driver, one of which is an error.
pub(crate) fn raise_findings(py: Python<'_>, findings: Vec<Diagnostic>, sources: &Sources) -> PyErr {
    let all: Vec<&Diagnostic> = findings.iter().collect();
    let text = render(sources, &all, DiagnosticFormat::Human, false);
    let code = findings.iter().find(|d| d.is_error()).map(|d| d.code.name());
    let list = to_list(py, findings.iter().cloned(), sources);
    list.and_then(|list| exception(py, code, text.trim_end(), list))
        .unwrap_or_else(|e| e)
}

fn exception(py: Python<'_>, code: Option<&str>, text: &str, findings: Bound<'_, PyList>) -> PyResult<PyErr> {
    let module = py.import(intern!(py, "fxc._errors"))?;
    let error = module.call_method1("make", (code, text, findings))?;
    Ok(PyErr::from_value(error))
}

/// The explanation of a code, as printed by `fxc explain`.
#[pyfunction]
pub(crate) fn explain(code: &str) -> PyResult<&'static str> {
    let explanation = Code::from_name(code).map(Code::explanation);
    explanation.ok_or_else(|| pyo3::exceptions::PyKeyError::new_err(format!("unknown code `{code}`")))
}
