//! Finds torch's `print(graph)` output in a text.
//!
//! A region is a header line (`graph():`, `# Graph fragment:`) or a first statement, and the statements after it, up to
//! and including `return`. Strings and tensors may contain newlines, so a statement continues until it is complete or
//! the next one begins.

use std::ops::Range;

/// The statements of one printed graph, as byte ranges of the text.
#[derive(Debug)]
pub(super) struct GraphRegion {
    /// The header line, including any prefix.
    pub header: Option<Range<usize>>,
    /// Whether the header is torch's `graph(…):` and not Inductor's.
    pub whole: bool,
    /// Statements from the start of their line; the last may be a `return`.
    pub stmts: Vec<Range<usize>>,
    /// All of it.
    pub range: Range<usize>,
}

/// The kind of a line, determined by its start.
#[derive(Clone, Copy, PartialEq, Debug)]
enum LineHead {
    Graph,
    Fragment,
    Stmt,
    /// `%…` that is not one of torch's statements. Inside a region, it is a malformed one.
    Percent,
    Return,
    Comment,
    Blank,
    Other,
}

/// The text after ` = ` in torch's statements.
pub(super) const OPENERS: [&str; 7] = [
    " = placeholder[target=",
    " = PlaceHolder[target=",
    " = get_attr[target=",
    " = call_function[target=",
    " = call_method[target=",
    " = call_module[target=",
    " = self.",
];

/// A line without its newline, and whether it begins with `#`.
struct PrintedLine<'a> {
    range: Range<usize>,
    text: &'a str,
    head: LineHead,
    commented: bool,
}

/// The length of the indentation before a statement: white space, and `#` with white space.
pub(super) fn indent_len(line: &str) -> usize {
    let rest = line.trim_start();
    let rest = rest.strip_prefix('#').map_or(rest, str::trim_start);
    line.len() - rest.len()
}

fn line_head(line: &str) -> LineHead {
    let body = &line[indent_len(line)..];
    let commented = line.trim_start().starts_with('#');
    if body.is_empty() {
        return if commented { LineHead::Comment } else { LineHead::Blank };
    }
    if body.starts_with('%') {
        let stmt = OPENERS.iter().any(|o| body.contains(o)) && body.contains(" : ");
        let old_attr = !body.contains("[target=") && !body.contains("users=") && !body.contains("uses=");
        return if stmt && !old_attr {
            LineHead::Stmt
        } else {
            LineHead::Percent
        };
    }
    match body.trim_end() {
        "Graph fragment:" => LineHead::Fragment,
        b if b.starts_with("graph(") && b.ends_with(':') => LineHead::Graph,
        b if b == "return" || b.starts_with("return ") => LineHead::Return,
        _ if commented => LineHead::Comment,
        _ => LineHead::Other,
    }
}

fn split_lines(text: &str) -> Vec<PrintedLine<'_>> {
    let mut offset = 0;
    let mut out = vec![];
    for raw in text.split_inclusive('\n') {
        let line = raw.trim_end_matches(['\n', '\r']);
        out.push(PrintedLine {
            range: offset..offset + line.len(),
            text: line,
            head: line_head(line),
            commented: line.trim_start().starts_with('#'),
        });
        offset += raw.len();
    }
    out
}

/// Finds every printed graph. Graphs in comments count only if the whole text is comments, since comments in FXIR stay
/// comments.
pub(super) fn find_regions(text: &str) -> Vec<GraphRegion> {
    if !text.contains("[target=") && !text.contains("graph(") {
        return vec![];
    }
    let lines = split_lines(text);
    let all_comments = lines.iter().all(|l| l.commented || l.head == LineHead::Blank);
    let mut out = vec![];
    let mut i = 0;
    while i < lines.len() {
        let begins = matches!(lines[i].head, LineHead::Graph | LineHead::Fragment | LineHead::Stmt);
        if begins && (!lines[i].commented || all_comments) {
            let (region, next) = region_at(&lines, i);
            out.extend(region);
            i = next;
        } else {
            i += 1;
        }
    }
    out
}

/// The region that begins at line `i`, and the line after it. A fragment header without a statement is not a region.
fn region_at(lines: &[PrintedLine<'_>], i: usize) -> (Option<GraphRegion>, usize) {
    let first = &lines[i];
    let whole = first.head == LineHead::Graph;
    let header = (first.head != LineHead::Stmt).then(|| first.range.clone());
    let begin = i + usize::from(header.is_some());
    let (stmts, next) = statements_from(lines, begin, whole, first.commented);
    let end = stmts.last().or(header.as_ref()).map_or(first.range.start, |r| r.end);
    let region = GraphRegion {
        header,
        whole,
        stmts,
        range: first.range.start..end,
    };
    ((whole || !region.stmts.is_empty()).then_some(region), next)
}

/// The statements of the region whose first is at line `i`, and the line after the last one that belongs to it.
fn statements_from(lines: &[PrintedLine<'_>], i: usize, whole: bool, commented: bool) -> (Vec<Range<usize>>, usize) {
    let mut stmts: Vec<Range<usize>> = vec![];
    let mut open: Option<Ending> = None;
    let mut next = i;
    for (i, line) in lines.iter().enumerate().skip(i) {
        let begins = match line.head {
            LineHead::Stmt => true,
            LineHead::Percent => whole && open.is_none(),
            LineHead::Return => open.is_none() || line.text.starts_with("    return "),
            _ => false,
        };
        if begins && line.commented == commented {
            open = Some(Ending::for_line(line.text));
            stmts.push(line.range.clone());
        } else if let Some(s) = stmts
            .last_mut()
            .filter(|_| open.is_some() && line.commented == commented)
        {
            s.end = line.range.end;
        } else if !matches!(line.head, LineHead::Blank | LineHead::Comment) {
            break;
        }
        if let Some(ending) = &mut open {
            next = i + 1;
            if ending.reaches_end(line.text) {
                let returned = matches!(ending, Ending::Return(_));
                open = None;
                if returned {
                    break;
                }
            }
        }
    }
    (stmts, next)
}

/// How the last line of a statement is recognised.
enum Ending {
    /// `})` of a call.
    Call,
    /// `]` of a target or `)` of a default.
    Bracket,
    /// The statement has one line.
    Line,
    /// `return` ends when its brackets are closed. The number is the count of open brackets so far.
    Return(i64),
}

impl Ending {
    /// The ending of the statement that begins with `line`.
    fn for_line(line: &str) -> Ending {
        if line[indent_len(line)..].starts_with("return") {
            return Ending::Return(0);
        }
        match OPENERS.iter().filter_map(|o| line.find(o).map(|i| (i, *o))).min() {
            None | Some((_, " = self.")) => Ending::Line,
            Some((_, o)) if o.starts_with(" = call") => Ending::Call,
            Some(_) => Ending::Bracket,
        }
    }

    /// Whether `line`, the next line of the statement, is its last.
    fn reaches_end(&mut self, line: &str) -> bool {
        let line = line.trim_end();
        match self {
            Ending::Call => line.ends_with("})"),
            Ending::Bracket => line.ends_with([']', ')']),
            Ending::Line => true,
            Ending::Return(depth) => {
                *depth += line.chars().fold(0, |d, c| match c {
                    '(' | '[' | '{' => d + 1,
                    ')' | ']' | '}' => d - 1,
                    _ => d,
                });
                *depth <= 0
            }
        }
    }
}
