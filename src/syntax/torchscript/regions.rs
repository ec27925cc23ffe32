//! Finds the scripts in a text.

use std::ops::Range;

/// A region goes from a line `graph(%…`, or the first statement without one, to the line that returns.
pub(super) fn find_regions(text: &str) -> Vec<Range<usize>> {
    let mut out = vec![];
    let mut open: Option<OpenScript> = None;
    let mut offset = 0;
    let mut lines = text.split_inclusive('\n').peekable();
    while let Some(raw) = lines.next() {
        let (line, end) = (raw.trim(), offset + raw.trim_end().len());
        let next = lines.peek().map_or("", |l| l.trim());
        if begins_script(line, next) {
            out.extend(open.take().and_then(OpenScript::into_range));
            open = Some(OpenScript::starting_at(offset, line.ends_with('{')));
        } else if open.is_none() && is_statement(line) {
            open = Some(OpenScript::starting_at(offset, false));
        }
        if let Some(o) = &mut open {
            if line.contains("::") || line.starts_with("->") {
                o.last = end;
            }
            let ends = o.returned || is_return(line);
            o.returned = ends && o.braces && !line.ends_with('}');
            if ends && !(o.returned && next == "}") {
                out.push(o.from..end);
                open = None;
            }
        }
        offset += raw.len();
    }
    out.extend(open.and_then(OpenScript::into_range));
    // A graph without operators is one of torch.fx with parameters in its header.
    out.retain(|r| text[r.clone()].contains("::") && !text[r.clone()].contains("[target="));
    out
}

/// A script whose end has not been found.
struct OpenScript {
    from: usize,
    /// The end of the last line that certainly belongs to it.
    last: usize,
    /// Whether a brace opened it. A brace after the result then closes it.
    braces: bool,
    returned: bool,
}

impl OpenScript {
    fn starting_at(from: usize, braces: bool) -> OpenScript {
        OpenScript {
            from,
            last: from,
            braces,
            returned: false,
        }
    }

    /// The range of a script without a return.
    fn into_range(self) -> Option<Range<usize>> {
        (self.last > self.from).then_some(self.from..self.last)
    }
}

/// Whether a line is the header of a script.
fn begins_script(line: &str, next: &str) -> bool {
    let Some(rest) = line.strip_prefix("graph") else {
        return false;
    };
    if rest == "():" {
        return next.contains("= prim::") || next.contains("= aten::");
    }
    let named = rest.trim_start_matches(' ');
    let name = match rest.starts_with(' ') {
        true => named.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_'),
        false => rest,
    };
    name.starts_with("(%") || (name.starts_with('(') && name.len() == 1 && next.starts_with('%'))
}

/// Whether a line is a statement.
fn is_statement(line: &str) -> bool {
    let operator = |op: &str| ["prim::", "aten::"].iter().any(|p| op.trim_start().starts_with(p));
    let right = || line.split('=').nth(1).is_some_and(operator);
    line.starts_with('%') && right()
}

fn is_return(line: &str) -> bool {
    let result = |r: &str| r.trim_start().starts_with(['(', '%']);
    line.strip_prefix("return").is_some_and(result)
        || line.split(" return").skip(1).any(|r| result(r) && !line.contains('#'))
}
