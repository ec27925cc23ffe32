//! The error type.

use crate::diag::render::{DiagnosticFormat, render};
use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::source::Sources;
use std::fmt;
use std::sync::Arc;

/// An error in reading, compiling or running a model.
///
/// `{}` is one line: the code and title of the first error, and the number of further errors. `{:#}` is the command line's report,
/// with snippets, causes and help.
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

    /// All diagnostics, errors and warnings, in the order of the stages.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.0.diagnostics
    }

    /// The source texts of the diagnostics.
    pub fn sources(&self) -> &Sources {
        &self.0.sources
    }

    /// The code of the first error, which `fxc explain CODE` explains.
    pub fn code(&self) -> Option<Code> {
        self.first_error().map(|d| d.code)
    }

    /// The report in the command line's format, with terminal colours if `color` is set.
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

/// The report, which `unwrap` and a `main` that returns an error show.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#}")
    }
}

impl std::error::Error for Error {}
