//! Diagnostics in rustc's manner.
//!
//! A [`Diagnostic`] has a code from the one table ([`codes`]), a title that says what is wrong *here*, labels that point
//! at source, notes that say why and help that says what to write. Stages push them into a [`Diagnostics`] list and go
//! on, so that one run reports every error of a file. Rendering (`render`) is apart from the type.

pub mod codes;
pub mod fix;
pub mod nearest;
pub mod render;
pub mod words;

use crate::source::Span;
pub use codes::Code;
pub use nearest::{NameIndex, nearest};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use words::clip_text;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing; the work goes on.
    Note,
    /// Suspicious; the work goes on.
    Warning,
    /// The input is wrong.
    Error,
}

/// A place and what is to be said of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Label {
    /// Where.
    pub span: Span,
    /// What to say there; may be empty.
    pub text: String,
    /// The place the diagnostic is about, as against a place that explains it.
    pub primary: bool,
}

/// Whether a suggestion can be applied without anybody looking at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Applicability {
    /// It is what was meant: `fxc check --fix` applies it.
    Safe,
    /// It may be what was meant.
    Unsure,
}

/// A change to the source that would mend it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Suggestion {
    /// What to replace.
    pub span: Span,
    /// With what.
    pub replacement: String,
    /// Why, as a sentence that begins in lower case: `an op with a similar name exists`.
    pub text: String,
    /// Whether it can be applied without anybody looking at it.
    pub applicability: Applicability,
}

impl Suggestion {
    /// The longest replacement that is suggested, in bytes: a longer one would bury what it changes.
    pub const LONGEST: usize = 4096;
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Diagnostic {
    /// The kind of finding, explained by `fxc explain CODE`.
    pub code: Code,
    /// Error unless changed by [`Diagnostic::severity`]; the table gives the default.
    pub severity: Severity,
    /// What is wrong here, in one line without a full stop.
    pub title: String,
    /// Places; the first primary one is where the diagnostic stands.
    pub labels: Vec<Label>,
    /// Why it is wrong; each a `note:` line.
    pub notes: Vec<String>,
    /// What to write instead; each a `help:` line.
    pub help: Vec<String>,
    /// Edits that would mend it.
    pub suggestions: Vec<Suggestion>,
}

impl Diagnostic {
    /// A finding of kind `code` with its default severity.
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

    /// Adds the primary place.
    pub fn at(mut self, span: Span, text: impl Into<String>) -> Diagnostic {
        self.labels.push(Label {
            span,
            text: clip_text(text.into()),
            primary: true,
        });
        self
    }

    /// Adds the primary place if there is one.
    pub fn at_opt(self, span: Option<Span>, text: impl Into<String>) -> Diagnostic {
        match span {
            Some(s) => self.at(s, text),
            None => self,
        }
    }

    /// Adds a place that explains.
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

    /// Adds an edit that may be what was meant.
    pub fn suggest(self, span: Span, replacement: impl Into<String>, text: impl Into<String>) -> Diagnostic {
        self.edit(span, replacement.into(), text.into(), Applicability::Unsure)
    }

    /// Adds an edit that is what was meant, so that it can be applied without anybody looking at it.
    pub fn fix(self, span: Span, replacement: impl Into<String>, text: impl Into<String>) -> Diagnostic {
        self.edit(span, replacement.into(), text.into(), Applicability::Safe)
    }

    /// Adds an edit. One that is too long to be read is left out.
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

/// The findings of a run, in the order they were made.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
    /// Positions in `list` by the finding's hash: what makes `push` cheap for a file with very many errors.
    seen: HashMap<u64, Vec<usize>>,
}

impl Diagnostics {
    /// An empty list.
    pub fn new() -> Diagnostics {
        Diagnostics::default()
    }

    /// Adds a finding, unless the very same one is there already.
    pub fn push(&mut self, d: Diagnostic) {
        let mut hasher = DefaultHasher::new();
        d.hash(&mut hasher);
        let same = self.seen.entry(hasher.finish()).or_default();
        if !same.iter().any(|&i| self.list[i] == d) {
            same.push(self.list.len());
            self.list.push(d);
        }
    }

    /// Whether any is an error.
    pub fn has_errors(&self) -> bool {
        self.list.iter().any(Diagnostic::is_error)
    }

    /// The findings.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.list.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Puts the findings in the order of their places, those without one first.
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

    /// `Ok(value)` if no finding is an error, else the findings.
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
