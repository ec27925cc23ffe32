//! Diagnostics in the style of rustc.
//!
//! A [`Diagnostic`] has a code from a single table ([`codes`]), a title that says what is wrong in this case, labels
//! that point at source, notes with reasons, and help that says what to write. Stages add them to a [`Diagnostics`]
//! list and continue, so one run reports every error of a file. Rendering (`render`) is separate from the type.

pub mod codes;
pub mod fix;
pub(crate) mod limits;
pub mod nearest;
#[cfg(feature = "compiler")]
pub mod render;
pub mod words;

use crate::source::Span;
pub use codes::Code;
pub use nearest::{NameIndex, nearest};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use words::clip_text;

/// The severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// Information; compilation continues.
    Note,
    /// Suspicious input; compilation continues.
    Warning,
    /// Invalid input.
    Error,
}

/// A span with a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Label {
    /// The span.
    pub span: Span,
    /// The message; may be empty.
    pub text: String,
    /// Whether the diagnostic is about this span. Other labels explain it.
    pub primary: bool,
}

/// Whether a suggestion can be applied without review.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Applicability {
    /// It is certainly correct: `fxc check --fix` applies it.
    Safe,
    /// It may be correct.
    Unsure,
}

/// A change to the source that would correct the error.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Suggestion {
    /// The span to replace.
    pub span: Span,
    /// The new text.
    pub replacement: String,
    /// The reason, as a sentence without an initial capital: `there is an op with a similar name`.
    pub text: String,
    /// Whether it can be applied without review.
    pub applicability: Applicability,
}

impl Suggestion {
    /// The maximum length of a suggested replacement, in bytes. Longer ones would hide what they change.
    pub const LONGEST: usize = 4096;
}

/// One error, warning or note.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Diagnostic {
    /// Its kind, explained by `fxc explain CODE`.
    pub code: Code,
    /// The table's default severity, unless changed by [`Diagnostic::severity`].
    pub severity: Severity,
    /// What is wrong in this case, in one line without a full stop.
    pub title: String,
    /// Labels. The first primary one is the location of the diagnostic.
    pub labels: Vec<Label>,
    /// Reasons; each is a `note:` line.
    pub notes: Vec<String>,
    /// What to write instead; each is a `help:` line.
    pub help: Vec<String>,
    /// Edits that would correct the error.
    pub suggestions: Vec<Suggestion>,
}

impl Diagnostic {
    /// Creates a diagnostic of kind `code` with its default severity.
    pub fn new(code: Code, title: impl Into<String>) -> Diagnostic {
        Diagnostic {
            code,
            severity: code.severity(),
            title: clip_text(title.into()),
            labels: vec![],
            notes: vec![],
            help: vec![],
            suggestions: vec![],
        }
    }

    /// Adds the primary label.
    pub fn at(mut self, span: Span, text: impl Into<String>) -> Diagnostic {
        self.labels.push(Label {
            span,
            text: clip_text(text.into()),
            primary: true,
        });
        self
    }

    /// Adds the primary label if there is a span.
    pub fn at_opt(self, span: Option<Span>, text: impl Into<String>) -> Diagnostic {
        match span {
            Some(s) => self.at(s, text),
            None => self,
        }
    }

    /// Adds a secondary label.
    pub fn see(mut self, span: Span, text: impl Into<String>) -> Diagnostic {
        self.labels.push(Label {
            span,
            text: clip_text(text.into()),
            primary: false,
        });
        self
    }

    /// Adds a `note:` line.
    pub fn note(mut self, text: impl Into<String>) -> Diagnostic {
        self.notes.push(clip_text(text.into()));
        self
    }

    /// Adds a `help:` line.
    pub fn help(mut self, text: impl Into<String>) -> Diagnostic {
        self.help.push(clip_text(text.into()));
        self
    }

    /// Adds an edit that may be correct.
    pub fn suggest(self, span: Span, replacement: impl Into<String>, text: impl Into<String>) -> Diagnostic {
        self.edit(span, replacement.into(), text.into(), Applicability::Unsure)
    }

    /// Adds an edit that is certainly correct and can be applied without review.
    pub fn fix(self, span: Span, replacement: impl Into<String>, text: impl Into<String>) -> Diagnostic {
        self.edit(span, replacement.into(), text.into(), Applicability::Safe)
    }

    /// Adds an edit, unless it is too long to be readable.
    pub fn edit(mut self, span: Span, replacement: String, text: String, applicability: Applicability) -> Diagnostic {
        if replacement.len() <= Suggestion::LONGEST {
            self.suggestions.push(Suggestion {
                span,
                replacement,
                text: clip_text(text),
                applicability,
            });
        }
        self
    }

    /// Whether this is an error.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// The diagnostics of a run, in the order in which they were reported.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
    /// The positions of diagnostics in `list`, by hash. They keep `push` cheap for files with very many errors.
    seen: HashMap<u64, Vec<usize>>,
}

impl Diagnostics {
    /// An empty list.
    pub fn new() -> Diagnostics {
        Diagnostics::default()
    }

    /// Adds a diagnostic, unless an identical one has been added already.
    pub fn push(&mut self, d: Diagnostic) {
        let mut hasher = DefaultHasher::new();
        d.hash(&mut hasher);
        let same = self.seen.entry(hasher.finish()).or_default();
        if !same.iter().any(|&i| self.list[i] == d) {
            same.push(self.list.len());
            self.list.push(d);
        }
    }

    /// Whether any of them is an error.
    pub fn has_errors(&self) -> bool {
        self.list.iter().any(Diagnostic::is_error)
    }

    /// The diagnostics.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.list.iter()
    }

    /// The number of diagnostics.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Sorts the diagnostics by location, those without one first.
    pub fn sort_by_place(&mut self) {
        let place = |d: &Diagnostic| {
            d.labels
                .iter()
                .find(|l| l.primary)
                .or(d.labels.first())
                .map(|l| (l.span.file, l.span.start))
        };
        let mut list = std::mem::take(self).list;
        list.sort_by_key(place);
        self.extend(list);
    }

    /// `Ok(value)` if there are no errors, else the diagnostics.
    pub fn into_result<T>(self, value: T) -> Result<(T, Diagnostics), Diagnostics> {
        if self.has_errors() {
            Err(self)
        } else {
            Ok((value, self))
        }
    }
}

impl Extend<Diagnostic> for Diagnostics {
    fn extend<I: IntoIterator<Item = Diagnostic>>(&mut self, iter: I) {
        iter.into_iter().for_each(|d| self.push(d));
    }
}

impl IntoIterator for Diagnostics {
    type Item = Diagnostic;
    type IntoIter = std::vec::IntoIter<Diagnostic>;
    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(d: Diagnostic) -> Diagnostics {
        let mut list = Diagnostics::new();
        list.push(d);
        list
    }
}
