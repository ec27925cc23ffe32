//! Text copied from a terminal, log, mail or web page: recognises the decoration before and around its lines.
//!
//! ```text
//! >>> print(gm.graph)                      |  12 | graph():                  V1121 12:00:00.123 7 graph.py:9] graph():
//! graph():                                 |  13 |     %x : … = placeholder  V1121 12:00:00.124 7 graph.py:9]     %x : …
//!     %x : [num_users=1] = placeholder[…]  |
//! ```
//!
//! A line that begins one of torch's texts shows the decoration before it: a log header, a line number, or a quotation
//! or comment mark. The same decoration (with other digits) is removed from the other lines. In a page with code
//! fences, only the fenced text counts. Text outside of the graphs is prose if no part of it is FXIR or torch's. Only
//! text that cannot be read unchanged is treated this way, and all positions refer to the original text.

use super::clean::Clean;
use super::plain::strip_markup;

/// A part of the decoration before a line.
#[derive(Clone, PartialEq)]
enum DecorationPiece {
    /// A number with any digits.
    Digits,
    /// Spaces that pad a number.
    Room,
    Char(char),
}

/// Removes the decoration; `None` if there is none, or too much.
pub(super) fn clean(text: &str) -> Option<Clean> {
    if text.len() > u32::MAX as usize {
        return None;
    }
    let Some(mut plain) = strip_markup(text) else {
        return by_lines(text);
    };
    if let Some(lines) = by_lines(&plain.text) {
        plain.compose_with(lines);
    }
    Some(plain)
}

/// [`clean`] for the decoration before and around lines.
fn by_lines(text: &str) -> Option<Clean> {
    let mut cleaner = LineCleaner::new(text);
    let mut out = String::with_capacity(text.len());
    let mut starts = vec![];
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        let start = end;
        end += line.len();
        let line = line.trim_end_matches(['\n', '\r']);
        if cleaner.skips(line) {
            continue;
        }
        let rest = cleaner.strip(line);
        starts.push((out.len() as u32, (start + line.len() - rest.len()) as u32));
        out.push_str(rest);
        out.push('\n');
    }
    (out.trim_end() != text.trim_end()).then(|| Clean::new(out, starts))
}

/// Removes decoration line by line.
struct LineCleaner {
    /// Whether the text has code fences, and whether the next line is within one.
    fenced: bool,
    within: bool,
    /// The decoration before the lines, as last seen.
    decoration: Option<Vec<DecorationPiece>>,
    /// The indentation of a traceback frame on the line before.
    frame: Option<usize>,
}

impl LineCleaner {
    fn new(text: &str) -> LineCleaner {
        let fenced = text.lines().any(is_fence);
        let without_head = |l| decoration_before(&l[log_head(l)..]).filter(|d| !d.is_empty());
        LineCleaner {
            fenced,
            within: !fenced,
            decoration: text.lines().find_map(without_head),
            frame: None,
        }
    }

    /// Whether the line is left out: a fence, a line outside of fences, a traceback, or input at a prompt.
    fn skips(&mut self, line: &str) -> bool {
        if self.fenced && is_fence(line) {
            self.within = !self.within;
            return true;
        }
        let indent = line.len() - line.trim_start().len();
        if is_frame(line) {
            self.frame = Some(indent);
            return true;
        }
        // The code of a traceback frame is on the next line, further indented.
        if self.frame.take().is_some_and(|f| indent > f) {
            return true;
        }
        let prompted = self.decoration.as_ref().is_some_and(|d| strip_line(line, d).is_some());
        !self.within || is_typed(line) && !prompted
    }

    /// The line without its decoration.
    fn strip<'a>(&mut self, line: &'a str) -> &'a str {
        let body = line.strip_prefix('\u{feff}').unwrap_or(line);
        let body = &body[log_head(body)..];
        if let Some(decoration) = decoration_before(body) {
            let known = self.decoration.as_ref().and_then(|d| strip_line(body, d));
            if known.is_none_or(|rest| decoration_before(rest).is_none_or(|d| !d.is_empty())) {
                self.decoration = Some(decoration);
            }
        }
        let rest = self
            .decoration
            .as_ref()
            .and_then(|d| strip_line(body, d))
            .unwrap_or(body);
        let has_file_name = |&end: &usize| {
            let file = without_file(&rest[..end]);
            file.len() < end && file.trim().is_empty()
        };
        find_marker(rest).filter(has_file_name).map_or(rest, |at| &rest[at..])
    }
}

/// Whether a line begins or ends a fenced code block.
fn is_fence(line: &str) -> bool {
    let line = line.trim_start_matches(['>', ' ', '\t']);
    line.starts_with("```") || line.starts_with("~~~")
}

/// Whether the line is a traceback frame, `  File "model.py", line 7, in forward`.
fn is_frame(line: &str) -> bool {
    line.trim_start().starts_with("File \"") && line.contains("\", line ")
}

/// Whether the line was typed at a prompt.
fn is_typed(line: &str) -> bool {
    let line = line.trim_start();
    let prompt =
        line.starts_with(">>>") || line.starts_with("... ") || line.starts_with("In [") || line.starts_with("$ ");
    prompt && find_marker(line).is_none()
}

/// The offset in a line at which one of torch's texts begins, after any decoration.
fn find_marker(line: &str) -> Option<usize> {
    let class = || {
        let start = line.find("class ")?;
        line[start..].contains("torch.nn.Module):").then_some(start)
    };
    let node = || {
        let start = line.find('%')?;
        let rest = &line[start + 1..];
        let name = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
        let tagged = rest[name..].starts_with(" : ") && (rest.contains("users=") || rest.contains("uses="));
        (name > 0 && tagged && rest.contains("[target=")).then_some(start)
    };
    let bare = || {
        let start = line.find('%')?;
        // In FXIR, comments stay comments.
        (is_bare(&line[start..]) && !line[..start].contains('#')).then_some(start)
    };
    let word = |w: &str| line.find(w);
    let markers = [
        word("graph():"),
        word("graph(%"),
        word("ExportedProgram:"),
        word("def forward("),
        class(),
        node(),
        bare(),
    ];
    markers.into_iter().flatten().min()
}

/// The length of a line's header in torch's logs, before the message: `V1121 12:00:00.123 77
/// torch/_dynamo/graph.py:1423] [0/0] [__graph] `.
fn log_head(line: &str) -> usize {
    let start = match line.strip_prefix("[rank") {
        Some(rest) => line.len() - rest.find("]:").map_or(rest, |i| &rest[i + 2..]).len(),
        None => 0,
    };
    let body = &line[start..];
    let level = body.starts_with(['V', 'D', 'I', 'W', 'E', 'C']);
    let date = matches!(body.as_bytes().get(1..6), Some([date @ .., b' ']) if date.iter().all(u8::is_ascii_digit));
    let Some(end) = body.find("] ").or(body.ends_with(']').then(|| body.len() - 1)) else {
        return 0;
    };
    if !level || !date || !body[..end].contains(".py:") {
        return 0;
    }
    let mut stop = start + end + 1;
    // Groups such as the frame number and the artifact name.
    while let Some(group) = line[stop..].strip_prefix(" [") {
        let Some(len) = group.find(']').filter(|&i| !group[..i].contains([' ', ','])) else {
            break;
        };
        stop += 2 + len + 1;
    }
    stop + usize::from(line[stop..].starts_with(' '))
}

/// `before` without the file that torch names before a class (`/…/graph_module.py class …`, `<eval_with_key>.1 from
/// …`), and without one space before that.
fn without_file(before: &str) -> &str {
    let mut offset = 0;
    for word in before.split_inclusive(' ') {
        let name = word.trim_end();
        let is_file = name.contains(".py") && !name.ends_with(']') || name.starts_with("<eval_with_key>");
        if is_file && word.len() > name.len() {
            return before[..offset].strip_suffix(' ').unwrap_or(&before[..offset]);
        }
        offset += word.len();
    }
    before
}

/// The decoration of a line that begins one of torch's texts; empty if there is only indentation.
fn decoration_before(line: &str) -> Option<Vec<DecorationPiece>> {
    let before = without_file(&line[..find_marker(line)?]);
    if before.trim().is_empty() {
        return Some(vec![]);
    }
    let ends = before.ends_with([' ', '\t', '>', '|', ']', '#', '+', ':']);
    ends.then(|| split_decoration(before))
}

fn split_decoration(before: &str) -> Vec<DecorationPiece> {
    let mut out: Vec<DecorationPiece> = vec![];
    let mut chars = before.chars().peekable();
    while let Some(c) = chars.next() {
        if c.is_ascii_digit() {
            if out.last() != Some(&DecorationPiece::Digits) {
                out.push(DecorationPiece::Digits);
            }
            continue;
        }
        out.push(DecorationPiece::Char(c));
        if c == ' ' && chars.peek().is_some_and(char::is_ascii_digit) {
            while out.last() == Some(&DecorationPiece::Char(' ')) {
                out.pop();
            }
            out.push(DecorationPiece::Room);
        }
    }
    // The first number may have no padding at all.
    if out.first() == Some(&DecorationPiece::Digits) {
        out.insert(0, DecorationPiece::Room);
    }
    out
}

/// Removes the decoration from a line; `None` if the line has a different one. On an empty line, its trailing spaces
/// may be missing.
fn strip_line<'l>(line: &'l str, decoration: &[DecorationPiece]) -> Option<&'l str> {
    let mut rest = line;
    for (i, piece) in decoration.iter().enumerate() {
        rest = match piece {
            DecorationPiece::Room => rest.trim_start_matches(' '),
            DecorationPiece::Digits => {
                let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
                if after.len() == rest.len() {
                    return None;
                }
                after
            }
            DecorationPiece::Char(c) => match rest.strip_prefix(*c) {
                Some(after) => after,
                None => {
                    let blank = decoration[i..]
                        .iter()
                        .all(|p| matches!(p, DecorationPiece::Char(' ' | '\t')));
                    return (rest.is_empty() && blank && i > 0).then_some(rest);
                }
            },
        };
    }
    Some(rest)
}

/// Blanks out the lines of prose in `rest`, the text outside of the graphs. Changes nothing if that contains a graph of
/// FXIR.
pub(super) fn without_prose(rest: &str) -> String {
    let holds_graph = |l: &str| {
        let mut words = l.split_whitespace();
        let item = matches!(words.next(), Some("graph" | "rewrite" | "exact" | "fast" | "signature"));
        item && l.contains(['{', '('])
    };
    if rest.lines().any(holds_graph) {
        return rest.to_string();
    }
    let keep = |line: &str| match is_prose(line) {
        true => " ".repeat(line.len()),
        false => line.to_string(),
    };
    let lines: Vec<String> = rest.split('\n').map(keep).collect();
    lines.join("\n")
}

/// Whether no part of the line is FXIR or torch's.
fn is_prose(line: &str) -> bool {
    let line = line.trim();
    let mut words = line.split_whitespace();
    let declares = match words.next() {
        Some("weights") => line.contains('"'),
        Some("module") => line.contains('='),
        Some("const" | "param" | "buffer") => line.contains(':'),
        Some("dim") => line.contains("..") || line.contains("where"),
        Some("pointwise" | "frame" | "scope") => line.contains('='),
        Some("return" | "output") => true,
        _ => false,
    };
    let names_node = line.match_indices('%').any(|(i, _)| {
        let next = line[i + 1..].chars().next();
        next.is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
    });
    let torchs = ["call_", "[target=", "placeholder", "get_attr", "aten::", "prim::"];
    // AOTAutograd's log describes inputs and results with words that also occur in graphs.
    if line.starts_with("aot_config id:") {
        return true;
    }
    // A line that opens a body is an item, though it may be misspelt.
    let opens = line.ends_with('{');
    !(line.is_empty() || opens || declares || names_node || torchs.iter().any(|t| line.contains(t)))
}

/// Whether a line is a statement of FXIR, which may be outside of a graph.
pub(super) fn is_bare(line: &str) -> bool {
    const CALLS: [&str; 5] = [
        "placeholder ",
        "get_attr ",
        "call_function ",
        "call_method ",
        "call_module ",
    ];
    let Some(rest) = line.trim_start().strip_prefix('%') else {
        return false;
    };
    let name = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let typed = name.trim_start().strip_prefix(':').is_some();
    let Some((before, call)) = name.split_once('=') else {
        return false;
    };
    let called = CALLS.iter().any(|c| call.trim_start().starts_with(c));
    name.len() < rest.len() && called && (typed || before.trim().is_empty())
}

/// Whether an exported program is entirely in comments. Its signature would then be parsed as more comments.
pub(super) fn is_commented_program(text: &str) -> bool {
    text.lines()
        .any(|l| l.starts_with('#') && l.trim_end().ends_with("ExportedProgram:"))
}

#[cfg(test)]
mod tests;
