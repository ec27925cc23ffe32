//! Applies suggestions to a text.

use super::{Applicability, Diagnostic};
use crate::source::{FileId, Span};

/// Applies the safe suggestions of `diagnostics` to `text`, the content of `file`; `None` if there are none. Of suggestions
/// that overlap, only the first is applied. Checking the result again finds the others.
pub fn apply_safe<'d>(
    text: &str,
    file: FileId,
    diagnostics: impl IntoIterator<Item = &'d Diagnostic>,
) -> Option<String> {
    let mut edits: Vec<(Span, &str)> = vec![];
    for d in diagnostics {
        // Several suggestions of one diagnostic are alternatives.
        let safe = d.suggestions.iter().find(|s| s.applicability == Applicability::Safe);
        edits.extend(safe.filter(|s| s.span.file == file).map(|s| (s.span, &*s.replacement)));
    }
    edits.sort_by_key(|(s, _)| (s.start, s.end));
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    let mut last: Option<Span> = None;
    for (span, replacement) in edits {
        let separate = last.is_none_or(|l| span.start > l.end || span.start == l.end && (span.end > span.start));
        let (start, end) = (span.start as usize, span.end as usize);
        if !separate || start < done || text.get(start..end).is_none() {
            continue;
        }
        out.push_str(&text[done..start]);
        out.push_str(replacement);
        (done, last) = (end, Some(span));
    }
    last?;
    out.push_str(&text[done..]);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diag::Code;

    #[test]
    fn edits_that_overlap_wait_for_the_next_round() {
        let at = |a, b| Span::new(FileId(0), a, b);
        let d = |s, text: &str| Diagnostic::new(Code::E0001, "").fix(s, text, "");
        let found = [d(at(4, 5), "X"), d(at(0, 2), "A"), d(at(1, 3), "B"), d(at(6, 6), "!")];
        assert_eq!(apply_safe("abcdef", FileId(0), &found).as_deref(), Some("AcdXf!"));
        assert_eq!(apply_safe("abcdef", FileId(1), &found), None);
        let unsure = Diagnostic::new(Code::E0001, "").suggest(at(0, 1), "X", "");
        assert_eq!(apply_safe("abcdef", FileId(0), [&unsure]), None);
    }
}
