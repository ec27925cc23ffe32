//! Finds the Python that torch printed in a text.
//!
//! A region begins with `class NAME(torch.nn.Module):`, `def forward(…`, `ExportedProgram:` or a `wrap` line, and
//! continues as long as lines are indented further. The prefix of its first line (`# `, `>>> `, the header of a log
//! line) is also the prefix of all its other lines.

use std::ops::Range;

/// The kind of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RegionKind {
    /// A function, with the `wrap` lines before it.
    Code,
    /// A class.
    Class,
    /// `print(exported_program)`.
    Program,
}

/// The lines of one region.
#[derive(Debug)]
pub(crate) struct PythonRegion {
    /// What it holds.
    pub kind: RegionKind,
    /// The lines that belong to it, without the prefix before the Python.
    pub lines: Vec<Range<usize>>,
    /// Its range.
    pub range: Range<usize>,
}

/// A line of the text.
struct PythonLine<'a> {
    /// Without the prefix before the Python, and without the newline.
    range: Range<usize>,
    /// The text of the range.
    text: &'a str,
    /// The start of the line.
    start: usize,
    /// The prefix before the Python.
    prefix: Prefix,
}

/// A prefix that a tool may insert before each line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Prefix {
    None,
    /// `# `
    Comment,
    /// `>>> ` or `... `
    Prompt,
    /// `V1121 08:10:45.123000 12 torch/file.py:16] [0/0] [__graph_code] `, from TORCH_LOGS.
    Log,
}

/// The kind and length of a line's prefix.
fn line_prefix(line: &str) -> (Prefix, usize) {
    let log = line.starts_with(['V', 'I', 'W', 'E', 'D']) && line[1..].starts_with(|c: char| c.is_ascii_digit());
    if log && let Some(start) = line.rfind("[__") {
        let rest = &line[start..];
        if let Some(close) = rest.find(']') {
            let end = start + close + 1;
            let space = line[end..].starts_with(' ') as usize;
            return (Prefix::Log, end + space);
        }
    }
    if line.starts_with(">>> ") || line.starts_with("... ") {
        return (Prefix::Prompt, 4);
    }
    if let Some(rest) = line.strip_prefix("# ") {
        let begins = region_kind(rest).is_some() || rest.starts_with(' ');
        return if begins {
            (Prefix::Comment, 2)
        } else {
            (Prefix::None, 0)
        };
    }
    (Prefix::None, 0)
}

/// The kind of region that a line begins, if any.
fn region_kind(line: &str) -> Option<RegionKind> {
    let body = line.trim_start();
    let class = body.strip_prefix("class ").and_then(|r| r.split_once('('));
    if class.is_some_and(|(_, r)| r.trim_end().ends_with("Module):")) {
        return Some(RegionKind::Class);
    }
    if body.starts_with("def ") && body.contains('(') && (body.contains("(self") || body.starts_with("def forward(")) {
        return Some(RegionKind::Code);
    }
    if body.trim_end() == "ExportedProgram:" {
        return Some(RegionKind::Program);
    }
    let wrap = body.starts_with("torch.fx._symbolic_trace.wrap(") || body.starts_with("torch.fx.wrap(");
    (wrap || body.starts_with("wrap(\"")).then_some(RegionKind::Code)
}

fn split_lines(text: &str) -> Vec<PythonLine<'_>> {
    let mut offset = 0;
    let mut out = vec![];
    for raw in text.split_inclusive('\n') {
        let line = raw.trim_end_matches(['\n', '\r']);
        let (prefix, skip) = line_prefix(line);
        out.push(PythonLine {
            range: offset + skip..offset + line.len(),
            text: &line[skip..],
            start: offset,
            prefix,
        });
        offset += raw.len();
    }
    out
}

fn indent_width(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Finds the regions. Those in comments count only if the whole text is comments, since comments in FXIR stay comments.
pub(crate) fn find_regions(text: &str) -> Vec<PythonRegion> {
    if !["def ", "class ", "ExportedProgram:"].iter().any(|w| text.contains(w)) {
        return vec![];
    }
    let lines = split_lines(text);
    let comment = |l: &PythonLine| text[l.start..].starts_with('#') || l.text.trim().is_empty();
    let all_comments = lines.iter().all(comment);
    let mut out = vec![];
    let mut i = 0;
    while i < lines.len() {
        let kind = region_kind(lines[i].text).filter(|_| all_comments || lines[i].prefix != Prefix::Comment);
        match kind {
            Some(kind) => {
                let end = end_of(&lines, i, kind);
                let last = &lines[end - 1];
                out.push(PythonRegion {
                    kind,
                    lines: lines[i..end].iter().map(|l| l.range.clone()).collect(),
                    range: lines[i].start..last.range.end,
                });
                i = end;
            }
            None => i += 1,
        }
    }
    out
}

/// The line after the region that begins at line `first`.
fn end_of(lines: &[PythonLine<'_>], first: usize, kind: RegionKind) -> usize {
    let (base, prefix) = (indent_width(lines[first].text), lines[first].prefix);
    // A `wrap` line belongs to the function after it.
    let mut defined = kind != RegionKind::Code || lines[first].text.trim_start().starts_with("def ");
    let mut end = first + 1;
    let mut open = open_brackets_after(0, lines[first].text);
    for (i, line) in lines.iter().enumerate().skip(first + 1) {
        let text = line.text.trim();
        let blank = text.is_empty() || (text == "#" && prefix == Prefix::Comment);
        let continues = match kind {
            _ if blank => continue,
            _ if line.prefix != prefix && prefix != Prefix::None && prefix != Prefix::Prompt => false,
            _ if indent_width(line.text) > base || open > 0 => true,
            RegionKind::Program => text.starts_with("Graph signature:") || text.starts_with("Range constraints:"),
            RegionKind::Code if !defined => region_kind(line.text) == Some(RegionKind::Code),
            _ => false,
        };
        if !continues {
            break;
        }
        defined |= text.starts_with("def ");
        open = open_brackets_after(open, line.text);
        end = i + 1;
    }
    end
}

/// The number of open brackets after `line`, given the number before it.
fn open_brackets_after(open: usize, line: &str) -> usize {
    let code = outside_strings(line).take_while(|(_, c)| *c != '#');
    code.fold(open, |open, (_, c)| match c {
        '(' | '[' | '{' => open + 1,
        ')' | ']' | '}' => open.saturating_sub(1),
        _ => open,
    })
}

/// The characters of a line that are outside of strings, with their offsets.
pub(crate) fn outside_strings(line: &str) -> impl Iterator<Item = (usize, char)> + '_ {
    let mut quote = None;
    let mut escaped = false;
    line.char_indices().filter(move |&(_, c)| match quote {
        Some(q) => {
            if c == q && !escaped {
                quote = None;
            }
            escaped = c == '\\' && !escaped;
            false
        }
        None => {
            if matches!(c, '\'' | '"') {
                quote = Some(c);
            }
            true
        }
    })
}
