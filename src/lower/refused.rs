//! Why lowering produced no program: it refused the graph, or something is wrong.

use crate::diag::Diagnostic;
use crate::op::OpError;
use crate::source::Span;

/// Why lowering refuses a valid graph. The user is told; the interpreter can run the graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused(Box<Diagnostic>);

impl Refused {
    /// The construct that has no compiled form.
    pub fn reason(&self) -> &str {
        &self.0.title
    }

    /// The source location of the construct.
    pub fn span(&self) -> Option<Span> {
        self.0.labels.first().map(|l| l.span)
    }
}

/// Why a graph cannot be lowered.
#[derive(Clone, Debug, PartialEq)]
pub enum LowerError {
    /// The graph has no compiled form.
    Refused(Refused),
    /// The graph is invalid, or the compiler has a bug.
    Failed(Box<Diagnostic>),
}

impl LowerError {
    /// The diagnostic to report if only a program will do.
    pub fn into_diagnostic(self) -> Diagnostic {
        match self {
            LowerError::Refused(Refused(d)) | LowerError::Failed(d) => *d,
        }
    }

    /// The same error with a source location.
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
