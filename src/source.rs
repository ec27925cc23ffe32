//! Source files and spans.
//!
//! Every diagnostic points to a [`Span`]: a byte range of one file in a [`Sources`] store. Spans are plain values.
//! Tokens, syntax nodes and graph nodes carry them through all stages.

use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

/// Identifies one file of a [`Sources`] store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct FileId(pub u32);

/// A byte range of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Span {
    /// The file that contains the range.
    pub file: FileId,
    /// First byte.
    pub start: u32,
    /// The exclusive end.
    pub end: u32,
}

impl Span {
    /// The span of bytes `start..end` of `file`.
    pub fn new(file: FileId, start: usize, end: usize) -> Span {
        Span {
            file,
            start: start as u32,
            end: end as u32,
        }
    }

    /// The smallest span that contains both, which must be in the same file.
    pub fn to(self, other: Span) -> Span {
        Span {
            file: self.file,
            start: self.start.min(other.start),
            end: self.end.max(other.end),
        }
    }

    /// The byte range.
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// One source file: its name as the user wrote it, and its text.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Source {
    /// The path as given, `<stdin>`, or a made-up name for text without a file.
    pub name: String,
    /// The text; bytes that are not UTF-8 are replaced when the file is read.
    pub text: Arc<str>,
}

/// All source files of one compilation.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    files: Vec<Source>,
}

impl Sources {
    /// An empty store.
    pub fn new() -> Sources {
        Sources::default()
    }

    /// Adds a file and returns its id.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<Arc<str>>) -> FileId {
        self.files.push(Source {
            name: name.into(),
            text: text.into(),
        });
        FileId(self.files.len() as u32 - 1)
    }

    /// The file with this id.
    pub fn get(&self, id: FileId) -> &Source {
        &self.files[id.0 as usize]
    }

    /// The text of `span`.
    pub fn text(&self, span: Span) -> &str {
        self.get(span.file).text.get(span.range()).unwrap_or("")
    }

    /// All files with their ids, in insertion order.
    pub fn iter(&self) -> impl Iterator<Item = (FileId, &Source)> {
        self.files.iter().enumerate().map(|(i, f)| (FileId(i as u32), f))
    }
}

/// A location in the user's Python.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Loc {
    /// The file as the tracer saw it.
    pub file: Arc<str>,
    /// The line number, starting at 1.
    pub line: u32,
    /// The enclosing function; may be empty.
    pub function: Arc<str>,
}
