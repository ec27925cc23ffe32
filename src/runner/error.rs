//! Errors of running compiled models.

use crate::diag::{Code, Diagnostic};
use std::fmt;

/// An error in opening or running a compiled model.
///
/// `{}` is one line: the code and title of the diagnostic. `{:#}` adds its notes and help.
#[derive(Clone)]
pub struct RunnerError(Box<Diagnostic>);

impl RunnerError {
    /// The code, which `fxc explain CODE` explains.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The diagnostic.
    pub fn diagnostic(&self) -> &Diagnostic {
        &self.0
    }
}

impl From<Diagnostic> for RunnerError {
    fn from(d: Diagnostic) -> RunnerError {
        RunnerError(Box::new(d))
    }
}

impl fmt::Display for RunnerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code, self.0.title)?;
        if f.alternate() {
            self.0.notes.iter().try_for_each(|n| write!(f, "\n = note: {n}"))?;
            self.0.help.iter().try_for_each(|h| write!(f, "\n = help: {h}"))?;
        }
        Ok(())
    }
}

/// The whole diagnostic. `unwrap`, and a `main` that returns an error, print it.
impl fmt::Debug for RunnerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#}")
    }
}

impl std::error::Error for RunnerError {}
