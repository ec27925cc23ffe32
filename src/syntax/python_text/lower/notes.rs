//! Comments that say where a statement comes from.

use crate::source::Span;
use crate::syntax::ast::Loc;

/// `# File: zoo/nets.py:12 in forward, code: return self.net(x)`.
pub(super) fn parse_loc(comment: &str, span: Span) -> Option<Loc> {
    let rest = &comment[comment.find("File: ")? + "File: ".len()..];
    let (place, code) = rest.split_once(", code: ").unwrap_or((rest, ""));
    let (file, function) = place.rsplit_once(" in ").unwrap_or((place, ""));
    let (file, line) = file.rsplit_once(':')?;
    Some(Loc {
        file: file.into(),
        line: line.parse().ok()?,
        function: (!function.is_empty()).then(|| function.into()),
        code: (!code.is_empty()).then(|| code.into()),
        span,
    })
}

/// Removes terminal colours from a text.
pub(super) fn without_colours(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    let mut parts = s.split("\x1b[");
    out.push_str(parts.next().unwrap_or_default());
    parts.for_each(|p| out.push_str(p.split_once('m').map_or("", |(_, rest)| rest)));
    out
}
