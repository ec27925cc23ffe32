//! The one error type.

use crate::diag::render::{DiagnosticFormat, render};
use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::source::Sources;
use std::fmt;
use std::sync::Arc;

/// Why a model could not be read, compiled or run.
///
/// `{}` is one line: the code and title of the first error, and how many there are. `{:#}` is the report that the command line
/// prints, with snippets, causes and help.
#[derive(Clone)]
pub struct Error(Arc<ErrorReport>);

struct ErrorReport {
    /// At least one of them is an error.
    diagnostics: Vec<Diagnostic>,
    sources: Sources,
}

impl Error {
    pub(super) fn new(diagnostics: Diagnostics, sources: &Sources) -> Error {
        Error(Arc::new(ErrorReport {
            diagnostics: diagnostics.into_iter().collect(),
            sources: sources.clone(),
        }))
    }

    /// All that was found, errors and warnings, in the order of the stages.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.0.diagnostics
    }

    /// The texts that the findings point at.
    pub fn sources(&self) -> &Sources {
        &self.0.sources
    }

    /// The code of the first error: `fxc explain CODE` tells more of it.
    pub fn code(&self) -> Option<Code> {
        self.first_error().map(|d| d.code)
    }

    /// The report as the command line prints it; `color` with terminal colors.
    pub fn report(&self, color: bool) -> String {
        let all: Vec<&Diagnostic> = self.0.diagnostics.iter().collect();
        render(&self.0.sources, &all, DiagnosticFormat::Human, color)
    }

    fn first_error(&self) -> Option<&Diagnostic> {
        self.0.diagnostics.iter().find(|d| d.is_error())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return f.write_str(self.report(false).trim_end());
        }
        let Some(first) = self.first_error() else {
            return f.write_str("no error was reported");
        };
        write!(f, "{}: {}", first.code, first.title)?;
        match self.0.diagnostics.iter().filter(|d| d.is_error()).count() {
            0 | 1 => Ok(()),
            n => write!(f, " (and {} more)", n - 1),
        }
    }
}

/// The report: what `unwrap` and a `main` that returns an error show.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#}")
    }
}

impl std::error::Error for Error {}
