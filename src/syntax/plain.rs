//! Removes characters that terminals, web pages and string literals insert into text: colours, non-breaking spaces,
//! tags and entities, triple quotes, and `\n` for a newline.

use super::clean::Clean;

/// Builds a text piece by piece and records the original offset of each piece.
struct OffsetWriter<'t> {
    text: &'t str,
    out: String,
    starts: Vec<(u32, u32)>,
    /// The offset up to which the text has been copied or skipped.
    offset: usize,
}

impl OffsetWriter<'_> {
    /// Copies up to `end`.
    fn copy_to(&mut self, end: usize) {
        if end > self.offset {
            self.starts.push((self.out.len() as u32, self.offset as u32));
            self.out.push_str(&self.text[self.offset..end]);
            self.offset = end;
        }
    }

    /// Replaces the next `len` bytes with `by`.
    fn replace(&mut self, len: usize, by: &str) {
        if !by.is_empty() {
            self.starts.push((self.out.len() as u32, self.offset as u32));
            self.out.push_str(by);
        }
        self.offset += len;
    }
}

/// The text without these; `None` if there are none. The text has fewer than 2^32 bytes.
pub(super) fn strip_markup(text: &str) -> Option<Clean> {
    let page = text.contains("<pre") || text.contains("<code");
    let quote = find_escaped_text(text);
    let odd = |c: char| matches!(c, '\u{1b}' | '\u{a0}' | '\u{200b}');
    if !page && quote.is_none() && !text.contains(odd) && !text.contains("\"\"\"") && !text.contains("'''") {
        return None;
    }
    let mut w = OffsetWriter {
        text,
        out: String::with_capacity(text.len()),
        starts: vec![],
        offset: 0,
    };
    let mut offset = 0;
    while let Some(skipped) = text[offset..].find(['\u{1b}', '\u{a0}', '\u{200b}', '<', '&', '"', '\'', '\\']) {
        offset += skipped;
        let rest = &text[offset..];
        let of_page = || page.then(|| match_tag(rest)).flatten();
        let piece = match_control(rest)
            .or_else(of_page)
            .or_else(|| quote.and_then(|(from, q)| (offset >= from).then(|| match_escape(rest, q)).flatten()));
        match piece {
            Some((len, by)) => {
                w.copy_to(offset);
                w.replace(len, by);
                offset += len;
            }
            None => offset += rest.chars().next().map_or(1, char::len_utf8),
        }
    }
    w.copy_to(text.len());
    Some(Clean::new(w.out, w.starts))
}

/// A control sequence that a terminal or an editor inserts: its length and its replacement.
fn match_control(rest: &str) -> Option<(usize, &'static str)> {
    if let Some(after) = rest.strip_prefix("\u{1b}[") {
        let parameters = after.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, ';' | '?'));
        let end = parameters.chars().next().filter(char::is_ascii_alphabetic)?;
        return Some((rest.len() - parameters.len() + end.len_utf8(), ""));
    }
    let (from, to) = [("\u{a0}", " "), ("\u{200b}", ""), ("\"\"\"", ""), ("'''", "")]
        .into_iter()
        .find(|(from, _)| rest.starts_with(from))?;
    Some((from.len(), to))
}

/// A tag around code, or an HTML entity: its length and its replacement.
fn match_tag(rest: &str) -> Option<(usize, &'static str)> {
    if ["<pre", "<code", "</pre", "</code"].iter().any(|t| rest.starts_with(t)) {
        let end = rest.find('>').filter(|e| !rest[..*e].contains('\n'))?;
        return Some((end + 1, ""));
    }
    let entities = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&amp;", "&"),
        ("&quot;", "\""),
        ("&#39;", "'"),
        ("&#x27;", "'"),
        ("&nbsp;", " "),
    ];
    let (from, to) = entities.into_iter().find(|(from, _)| rest.starts_with(from))?;
    Some((from.len(), to))
}

/// The start of a string literal that contains one of torch's texts, and its quote: `'graph():\n    %x : …'`.
fn find_escaped_text(text: &str) -> Option<(usize, char)> {
    let begins = ["graph():\\n", "ExportedProgram:\\n", "(torch.nn.Module):\\n"];
    let find_quote = |b: &str| {
        let start = text.find(b)?;
        let before = text[..start].rfind(['\n', '"', '\''])?;
        let quote = text[before..].chars().next().filter(|c| *c != '\n')?;
        Some((before, quote))
    };
    begins.into_iter().find_map(find_quote)
}

/// An escape in a string literal, or its quote: its length and its replacement.
fn match_escape(rest: &str, quote: char) -> Option<(usize, &'static str)> {
    if rest.starts_with(quote) {
        return Some((1, "\n"));
    }
    let escapes = [
        ("\\n", "\n"),
        ("\\t", "\t"),
        ("\\\"", "\""),
        ("\\'", "'"),
        ("\\\\", "\\"),
    ];
    let (from, to) = escapes.into_iter().find(|(from, _)| rest.starts_with(from))?;
    Some((from.len(), to))
}
