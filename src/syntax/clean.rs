//! A text with parts of it taken off, and where each byte of it stood.

use super::ast::File;
use super::spans;
use crate::diag::Diagnostic;
use crate::source::Span;

/// A text without what was around it.
pub(super) struct Clean {
    /// What is left.
    pub text: String,
    /// Where each piece of it begins, there and in the text as it was given. Of what was taken off in several steps, the last
    /// stands first.
    starts: Vec<Vec<(u32, u32)>>,
}

impl Clean {
    /// A text of pieces that begin at `starts`: there, and in the text as it was given.
    pub(super) fn new(text: String, starts: Vec<(u32, u32)>) -> Clean {
        Clean {
            text,
            starts: vec![starts],
        }
    }

    /// The text after `next`, which was made from it.
    pub(super) fn compose_with(&mut self, next: Clean) {
        self.text = next.text;
        self.starts.splice(0..0, next.starts);
    }

    /// Puts the places of a tree and of findings back into the text as it was given.
    pub(super) fn restore(&self, file: &mut File, errors: &mut [Diagnostic]) {
        let mut place = |s: &mut Span| {
            (s.start, s.end) = (self.original_offset(s.start, false), self.original_offset(s.end, true));
            s.end = s.end.max(s.start);
        };
        spans::of_file(file, &mut place);
        for d in errors {
            d.labels.iter_mut().for_each(|l| place(&mut l.span));
            d.suggestions.iter_mut().for_each(|s| place(&mut s.span));
        }
    }

    /// The place of a byte. The end of a line is on that line.
    fn original_offset(&self, at: u32, end: bool) -> u32 {
        self.starts.iter().fold(at, |at, starts| {
            let after = starts.partition_point(|s| if end { s.0 < at } else { s.0 <= at });
            match after.checked_sub(1).and_then(|i| starts.get(i)) {
                Some((clean, original)) => original + (at - clean),
                None => starts.first().map_or(at, |s| s.1),
            }
        })
    }
}
