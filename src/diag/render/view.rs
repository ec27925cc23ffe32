//! The renderers' view of the sources: cached line tables, spans clamped to the text, long lines truncated.

use crate::diag::words::clip_text;
use crate::diag::{Diagnostic, Label};
use crate::source::{FileId, Sources, Span};
use codespan_reporting::files::{Error, Files};
use std::cell::OnceCell;
use std::ops::Range;

/// The maximum length of a displayed line, in bytes.
const WIDTH: usize = 200;
/// The number of bytes shown before the first label on a long line.
const LEAD: usize = 40;

/// The location of a diagnostic.
pub(super) struct SourcePlace<'a> {
    pub file: &'a str,
    /// One-based.
    pub line: usize,
    /// One-based, in characters.
    pub column: usize,
    pub span: Span,
}

/// A [`Sources`] store with line tables.
pub(super) struct SourceView<'a> {
    sources: &'a Sources,
    /// The offset of each line, by file.
    starts: Vec<OnceCell<Vec<usize>>>,
}

impl<'a> SourceView<'a> {
    pub(super) fn new(sources: &'a Sources) -> SourceView<'a> {
        let starts = sources.iter().map(|_| OnceCell::new()).collect();
        SourceView { sources, starts }
    }

    pub(super) fn name(&self, file: FileId) -> &'a str {
        &self.sources.get(file).name
    }

    pub(super) fn text(&self, file: FileId) -> &'a str {
        &self.sources.get(file).text
    }

    /// The span clamped to the text, with both ends on character boundaries and in order.
    pub(super) fn fit_span(&self, span: Span) -> Range<usize> {
        let text = self.text(span.file);
        let start = text.floor_char_boundary(span.start as usize);
        let end = text.ceil_char_boundary(span.end as usize);
        start..end.max(start)
    }

    /// The zero-based line that contains `byte`.
    pub(super) fn line_of(&self, file: FileId, byte: usize) -> usize {
        self.line_starts(file).partition_point(|&s| s <= byte).saturating_sub(1)
    }

    /// The byte range of a line, including its newline.
    pub(super) fn line_span(&self, file: FileId, line: usize) -> Range<usize> {
        let starts = self.line_starts(file);
        let end = starts.get(line + 1).copied().unwrap_or(self.text(file).len());
        starts.get(line).copied().unwrap_or(end)..end
    }

    /// The one-based column of `byte`, in characters.
    pub(super) fn column_of(&self, file: FileId, byte: usize) -> usize {
        let start = self.line_span(file, self.line_of(file, byte)).start;
        self.text(file)[start..byte].chars().count() + 1
    }

    /// The location of the diagnostic: that of its first primary label, or else of its first label.
    pub(super) fn primary_place(&self, d: &Diagnostic) -> Option<SourcePlace<'a>> {
        let label = d.labels.iter().find(|l| l.primary).or(d.labels.first())?;
        Some(self.place_of(label.span))
    }

    /// The location at which a span begins.
    pub(super) fn place_of(&self, span: Span) -> SourcePlace<'a> {
        let start = self.fit_span(span).start;
        SourcePlace {
            file: self.name(span.file),
            line: self.line_of(span.file, start) + 1,
            column: self.column_of(span.file, start),
            span,
        }
    }

    fn line_starts(&self, file: FileId) -> &[usize] {
        self.starts[file.0 as usize].get_or_init(|| {
            let ends = self
                .text(file)
                .bytes()
                .enumerate()
                .filter(|(_, b)| *b == b'\n')
                .map(|(i, _)| i + 1);
            std::iter::once(0).chain(ends).collect()
        })
    }
}

/// A view in which only a window of each long line is visible. codespan draws from it.
pub(super) struct LineWindows<'v, 'a> {
    view: &'v SourceView<'a>,
    windows: Vec<(FileId, usize, Range<usize>)>,
}

impl<'v, 'a> LineWindows<'v, 'a> {
    /// Creates windows around `labels`, and returns the labels' spans clamped to them.
    pub(super) fn around_labels(
        view: &'v SourceView<'a>,
        labels: &[Label],
    ) -> (LineWindows<'v, 'a>, Vec<Range<usize>>) {
        let mut windows: Vec<(FileId, usize, Range<usize>)> = vec![];
        let spans: Vec<Range<usize>> = labels.iter().map(|l| view.fit_span(l.span)).collect();
        for (label, span) in labels.iter().zip(&spans) {
            let file = label.span.file;
            for byte in [span.start, span.end] {
                let line = view.line_of(file, byte);
                let whole = view.line_span(file, line);
                if whole.len() <= WIDTH || windows.iter().any(|(f, l, _)| (*f, *l) == (file, line)) {
                    continue;
                }
                // The window begins before the first label on the line, since codespan counts columns from there.
                let first = labels.iter().zip(&spans).filter(|(l, _)| l.span.file == file);
                let first = first
                    .flat_map(|(_, s)| [s.start, s.end])
                    .filter(|b| whole.contains(b))
                    .min();
                let text = view.text(file);
                let start = text.floor_char_boundary(first.unwrap_or(byte).saturating_sub(LEAD).max(whole.start));
                let end = text.floor_char_boundary((start + WIDTH).min(whole.end));
                windows.push((file, line, start..end));
            }
        }
        let windows = LineWindows { view, windows };
        let fitted = labels
            .iter()
            .zip(spans)
            .map(|(l, s)| windows.clip_span(l.span.file, s))
            .collect();
        (windows, fitted)
    }

    fn window_of(&self, file: FileId, line: usize) -> Option<Range<usize>> {
        self.windows
            .iter()
            .find(|(f, l, _)| (*f, *l) == (file, line))
            .map(|(_, _, w)| w.clone())
    }

    fn clip_span(&self, file: FileId, span: Range<usize>) -> Range<usize> {
        let clip_byte = |byte: usize| match self.window_of(file, self.view.line_of(file, byte)) {
            Some(w) => byte.clamp(w.start, w.end),
            None => byte,
        };
        clip_byte(span.start)..clip_byte(span.end)
    }
}

impl<'f> Files<'f> for LineWindows<'_, '_> {
    type FileId = FileId;
    type Name = &'f str;
    type Source = &'f str;

    fn name(&'f self, id: FileId) -> Result<&'f str, Error> {
        Ok(self.view.name(id))
    }

    fn source(&'f self, id: FileId) -> Result<&'f str, Error> {
        Ok(self.view.text(id))
    }

    fn line_index(&'f self, id: FileId, byte: usize) -> Result<usize, Error> {
        Ok(self.view.line_of(id, byte))
    }

    fn line_range(&'f self, id: FileId, line: usize) -> Result<Range<usize>, Error> {
        Ok(self
            .window_of(id, line)
            .unwrap_or_else(|| self.view.line_span(id, line)))
    }

    fn column_number(&'f self, id: FileId, _line: usize, byte: usize) -> Result<usize, Error> {
        Ok(self.view.column_of(id, byte))
    }
}

/// A message's text for display: truncated to a readable length, without control characters.
pub(super) fn shown_text(text: &str) -> String {
    strip_control_chars(&clip_text(text.to_string()))
}

/// The text without control characters, except newlines and tabs. A file must not be able to control the terminal.
pub(super) fn strip_control_chars(text: &str) -> String {
    let keep = |c: char| !c.is_control() || c == '\n' || c == '\t';
    text.chars()
        .map(|c| if keep(c) { c } else { char::REPLACEMENT_CHARACTER })
        .collect()
}
