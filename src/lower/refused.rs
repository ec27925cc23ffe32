//! Why there is no program of a graph: it is refused, or something is wrong.

use crate::diag::Diagnostic;
use crate::op::OpError;
use crate::source::Span;

/// Why a sound graph has no program. The interpreter can run it, which the user is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused(Box<Diagnostic>);

impl Refused {
    /// What it is that has no compiled form.
    pub fn reason(&self) -> &str {
        &self.0.title
    }

    /// Where that stands.
    pub fn span(&self) -> Option<Span> {
        self.0.labels.first().map(|l| l.span)
    }
}

/// Why a graph cannot be lowered.
#[derive(Clone, Debug, PartialEq)]
pub enum LowerError {
    /// It has no compiled form.
    Refused(Refused),
    /// It is wrong, or the compiler is.
    Failed(Box<Diagnostic>),
}

impl LowerError {
    /// What is said where nothing but a program will do.
    pub fn into_diagnostic(self) -> Diagnostic {
        match self {
            LowerError::Refused(Refused(d)) | LowerError::Failed(d) => *d,
        }
    }

    /// The same error with its place.
    pub(super) fn with_place(self, place: impl FnOnce(Diagnostic) -> Diagnostic) -> LowerError {
        match self {
            LowerError::Refused(Refused(d)) => LowerError::Refused(Refused(Box::new(place(*d)))),
            LowerError::Failed(d) => LowerError::Failed(Box::new(place(*d))),
        }
    }
}

impl From<OpError> for LowerError {
    fn from(e: OpError) -> LowerError {
        match e.refused {
            true => LowerError::Refused(Refused(Box::new(e.diagnostic()))),
            false => LowerError::Failed(Box::new(e.diagnostic())),
        }
    }
}

impl From<Diagnostic> for LowerError {
    fn from(d: Diagnostic) -> LowerError {
        LowerError::Failed(Box::new(d))
    }
}

impl From<Refused> for Diagnostic {
    fn from(r: Refused) -> Diagnostic {
        *r.0
    }
}
