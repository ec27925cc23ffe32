//! A text with parts removed, and the original offset of each of its bytes.

use super::ast::File;
use super::spans;
use crate::diag::Diagnostic;
use crate::source::Span;

/// A text with its surroundings removed.
pub(super) struct Clean {
    /// The remaining text.
    pub text: String,
    /// The offsets at which each piece begins, in the remaining text and in the text before the removal. There is one
    /// list for each removal step, the last step first.
    starts: Vec<Vec<(u32, u32)>>,
}

impl Clean {
    /// Makes a text of pieces that begin at `starts`: offsets in this text and in the original one.
    pub(super) fn new(text: String, starts: Vec<(u32, u32)>) -> Clean {
        Clean {
            text,
            starts: vec![starts],
        }
    }

    /// Appends the removal step `next`, which was applied to this text.
    pub(super) fn compose_with(&mut self, next: Clean) {
        self.text = next.text;
        self.starts.splice(0..0, next.starts);
    }

    /// Maps the spans of a tree and of errors back to the original text.
    pub(super) fn restore(&self, file: &mut File, errors: &mut [Diagnostic]) {
        let mut place = |s: &mut Span| {
            (s.start, s.end) = (self.original_offset(s.start, false), self.original_offset(s.end, true));
            s.end = s.end.max(s.start);
        };
        spans::visit_file(file, &mut place);
        for d in errors {
            d.labels.iter_mut().for_each(|l| place(&mut l.span));
            d.suggestions.iter_mut().for_each(|s| place(&mut s.span));
        }
    }

    /// The original offset of a byte. The end of a line is mapped to the same line.
    fn original_offset(&self, offset: u32, end: bool) -> u32 {
        self.starts.iter().fold(offset, |at, starts| {
            let after = starts.partition_point(|s| if end { s.0 < at } else { s.0 <= at });
            match after.checked_sub(1).and_then(|i| starts.get(i)) {
                Some((clean, original)) => original + (at - clean),
                None => starts.first().map_or(at, |s| s.1),
            }
        })
    }
}
