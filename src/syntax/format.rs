//! Prints a syntax tree as canonical text with its comments.
//!
//! There is one item or statement per line. Statements are indented by four spaces, `:` and `=` have a space on each
//! side. Blank lines of the source are kept, at most one in a row, and graphs and rules are always surrounded by one. A
//! comment stays before or after its line; a comment inside a statement moves before it. A graph that torch printed is
//! not changed: that text is its canonical form. Formatting is idempotent.

use super::ast::*;
use super::write::write_label;
use crate::types::write_str;

/// Formats `file`, which was parsed from `text`. For a tree without text, `text` is empty and the spans are ignored.
/// Pasted text is not changed.
pub fn format(file: &File, text: &str) -> String {
    if file.pasted {
        return text.to_string();
    }
    let mut p = Printer {
        out: String::new(),
        text,
        comments: if text.is_empty() { &[] } else { &file.comments },
        indent: 0,
        fresh: true,
        blank: false,
    };
    for item in &file.items {
        p.print_item(item);
    }
    p.comments_before(u32::MAX);
    p.out
}

/// Longer conditions are broken at their `and`s, and longer one-line rules before `where` and `=>`. In characters.
const WIDTH: usize = 120;

struct Printer<'a> {
    out: String,
    text: &'a str,
    /// The comments that have not been written yet.
    comments: &'a [Comment],
    indent: usize,
    /// Whether the current block is still empty, so that it does not begin with a blank line.
    fresh: bool,
    /// Whether a blank line is required before the next line.
    blank: bool,
}

fn write_const(c: &ConstDecl) -> String {
    let value = c.value.as_ref().map_or(String::new(), |v| format!(" = {v}"));
    format!("const {} : {}{value}", write_label(&c.name.text), c.ty)
}

impl Printer<'_> {
    fn print_item(&mut self, item: &Item) {
        let block = match item {
            Item::Rewrite(r) => !r.one_line,
            _ => matches!(item, Item::Graph(_) | Item::Signature(_)),
        };
        self.blank |= block;
        match item {
            Item::Weights(w) => self.print_line_item(item, format!("weights {}", write_str(&w.path.text))),
            Item::Module(m) => {
                let class = write_label(&m.class.text);
                self.print_line_item(
                    item,
                    format!("module {} = {class}{}", write_label(&m.name.text), m.args),
                );
            }
            Item::Const(c) => self.print_line_item(item, write_const(c)),
            Item::Tensor(t) => {
                let word = if t.buffer { "buffer" } else { "param" };
                self.print_line_item(item, format!("{word} {} : {}", write_label(&t.name.text), t.ty));
            }
            Item::Dim(d) => {
                let max = d.max.map_or(String::new(), |m| m.to_string());
                self.print_line_item(item, format!("dim {} in {}..{max}", d.name.text, d.min));
            }
            Item::Guard(g) => self.print_line_item(item, format!("dim where {}", g.condition)),
            Item::Pointwise(p) => {
                let (schema, expr) = (write_str(&p.schema.text), write_str(&p.expr.text));
                self.print_line_item(item, format!("pointwise {schema} = {expr}"));
            }
            Item::Graph(g) => self.print_graph(g),
            Item::Rewrite(r) if r.one_line => self.print_line_item(item, one_line(r)),
            Item::Rewrite(r) => self.print_rewrite(r),
            Item::Signature(s) => self.print_line_item(item, s.to_string()),
            Item::Frame(d) => self.print_line_item(item, d.to_string()),
            Item::Scope(d) => self.print_line_item(item, d.to_string()),
        }
        self.blank |= block;
    }

    /// Writes an item of one line.
    fn print_line_item(&mut self, item: &Item, line: String) {
        let span = item.span();
        self.print_line(span.start, span.end, &line);
    }

    fn print_graph(&mut self, g: &Graph) {
        if g.dialect != Dialect::Fxir && !self.text.is_empty() {
            let raw = self.text[g.span.range()].to_string();
            self.comments_before(g.span.start);
            self.blank_before(g.span.start);
            self.out.push_str(&raw);
            self.end_line(g.span.end);
            return;
        }
        let mut head = format!("graph {}", g.name.as_ref().map_or("main", |n| &n.text));
        if let Some(a) = &g.attribute {
            head.push_str(&format!(" as {}", write_label(&a.text)));
        }
        if !g.updates.is_empty() {
            let list: Vec<String> = g.updates.iter().map(write_update).collect();
            head.push_str(&format!(" updates ({})", list.join(", ")));
        }
        if let Some(c) = &g.called {
            let list = |names: &[Name]| {
                names
                    .iter()
                    .map(|n| write_label(&n.text))
                    .collect::<Vec<_>>()
                    .join(", ")
            };
            head.push_str(&format!(" called ({})", list(&c.args)));
            head.push_str(&c.kwargs.as_ref().map_or(String::new(), |k| format!(" ({})", list(k))));
        }
        self.print_body(&head, g.span.start, &g.body, "", 0);
        self.end_line(g.span.end);
    }

    fn print_rewrite(&mut self, r: &Rewrite) {
        let params: Vec<String> = r.params.iter().map(write_rewrite_param).collect();
        let head = format!("{}rewrite {}({})", mark_prefix(r), r.name.text, params.join(", "));
        self.print_body(&head, r.span.start, &r.pattern, "", 0);
        self.out.push_str(" =>");
        let condition = r.condition.as_ref().map_or(String::new(), where_clause);
        self.print_body("", r.span.start, &r.replacement, &condition, r.span.end);
        self.end_line(r.span.end);
    }

    /// Writes `head { … }tail`, with no newline after the tail. Comments before byte `end` are part of the body.
    fn print_body(&mut self, head: &str, start: u32, b: &Body, tail: &str, end: u32) {
        if head.is_empty() {
            self.out.push(' ');
        } else {
            self.comments_before(start);
            self.blank_before(start);
            self.comments_within(b.open.start);
        }
        self.out.push_str(head);
        self.out.push_str(if head.is_empty() { "{" } else { " {" });
        self.end_line(b.open.end);
        self.indent += 1;
        self.fresh = true;
        for s in &b.stmts {
            self.print_line(s.span.start, s.span.end, &s.to_string());
        }
        self.comments_before(b.close.start);
        self.comments_within(end);
        self.indent -= 1;
        self.fresh = false;
        self.blank = false;
        self.out.push_str(&"    ".repeat(self.indent));
        self.out.push('}');
        self.out.push_str(tail);
    }

    /// Writes one line for bytes `start..end` of the text.
    fn print_line(&mut self, start: u32, end: u32, line: &str) {
        self.comments_before(start);
        self.blank_before(start);
        self.comments_within(end);
        self.out.push_str(&"    ".repeat(self.indent));
        self.out.push_str(line);
        self.end_line(end);
    }

    /// Ends the line, with the comment that follows byte `end` on its line.
    fn end_line(&mut self, end: u32) {
        if let Some((c, rest)) = self.comments.split_first() {
            let between = self.text.get(end as usize..c.span.start as usize);
            if between.is_some_and(|t| !t.contains('\n') && t.trim().is_empty()) {
                self.out.push_str("  ");
                self.out.push_str(&c.text);
                self.comments = rest;
            }
        }
        self.out.push('\n');
        self.fresh = false;
    }

    /// Writes the comments that begin before byte `before`, each on its own line.
    fn comments_before(&mut self, before: u32) {
        while let Some((c, rest)) = self.comments.split_first().filter(|(c, _)| c.span.start < before) {
            self.blank_before(c.span.start);
            self.out.push_str(&"    ".repeat(self.indent));
            self.out.push_str(&c.text);
            self.out.push('\n');
            self.comments = rest;
            self.fresh = false;
        }
    }

    /// Writes the comments inside a line up to byte `end`, each on its own line before it.
    fn comments_within(&mut self, end: u32) {
        while let Some((c, rest)) = self.comments.split_first().filter(|(c, _)| c.span.start < end) {
            self.out.push_str(&"    ".repeat(self.indent));
            self.out.push_str(&c.text);
            self.out.push('\n');
            self.comments = rest;
        }
    }

    /// Writes a blank line if one is required or the text has one before byte `offset`.
    fn blank_before(&mut self, offset: u32) {
        let before = self.text.get(..offset as usize).unwrap_or("");
        let gap = &before[before.trim_end().len()..];
        let blank = self.blank || gap.matches('\n').count() > 1;
        if blank && !self.fresh {
            self.out.push('\n');
        }
        self.blank = false;
        self.fresh = false;
    }
}

fn mark_prefix(r: &Rewrite) -> &'static str {
    match r.mark {
        None => "",
        Some(RewriteMark::Exact) => "exact ",
        Some(RewriteMark::Fast) => "fast ",
    }
}

/// `rewrite name: pattern => replacement where condition`. Parts that do not fit go on further lines.
fn one_line(r: &Rewrite) -> String {
    let side = |b: &Body| b.result().map_or(String::new(), Value::to_string);
    let mut line = format!("{}rewrite {}: {}", mark_prefix(r), r.name.text, side(&r.pattern));
    let mut column = line.len();
    let mut add = |part: String| {
        column += part.len();
        if column > WIDTH {
            line.push_str("\n   ");
            column = 3 + part.len();
        }
        line.push_str(&part);
    };
    add(format!(" => {}", side(&r.replacement)));
    r.condition.iter().for_each(|c| add(where_clause(c)));
    line
}

/// ` where …`. A condition that is too long has one part per line.
fn where_clause(c: &Value) -> String {
    let line = format!(" where {c}");
    if line.len() <= WIDTH {
        return line;
    }
    let mut parts = vec![];
    let mut rest = c;
    while let ValueKind::Binary(BinaryOp::And, a, b) = &rest.kind {
        parts.push(within_and(b));
        rest = a;
    }
    parts.push(within_and(rest));
    parts.reverse();
    format!(" where {}", parts.join("\n    and "))
}

/// Writes a condition as an operand of `and`.
fn within_and(v: &Value) -> String {
    match &v.kind {
        ValueKind::Binary(BinaryOp::Or | BinaryOp::And, ..) => format!("({v})"),
        _ => v.to_string(),
    }
}

fn write_update(u: &Update) -> String {
    match u {
        Update::Buffer(n) => format!("buffer {}", write_label(&n.text)),
        Update::Input(n) => format!("%{}", n.text),
    }
}

fn write_rewrite_param(p: &RewriteParam) -> String {
    match p {
        RewriteParam::Node(n, None) => format!("%{}", n.text),
        RewriteParam::Node(n, Some(ty)) => format!("%{} : {ty}", n.text),
        RewriteParam::Rest(n) => format!("*%{}", n.text),
        RewriteParam::Literal(n) => format!("${}", n.text),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse_text;
    use super::*;
    use crate::source::FileId;

    fn formatted(text: &str) -> String {
        let (file, findings) = parse_text(FileId(0), text);
        assert!(findings.is_empty(), "{text}\n{findings:#?}");
        format(&file, text)
    }

    #[track_caller]
    fn stable(text: &str) -> String {
        let once = formatted(text);
        assert_eq!(formatted(&once), once);
        once
    }

    #[test]
    fn the_whole_language_is_stable() {
        let text = include_str!("testdata/language.fxir");
        let once = stable(text);
        let comments = |t: &str| t.matches('#').count();
        assert_eq!(comments(&once), comments(text));
    }

    #[test]
    fn comments_and_blank_lines_stay_where_they_are() {
        let text = "# top\n\n\n\nweights   'w'# trailing\n# before graph\ngraph a{ # open\n\n  # first\n  %x:f32[ 2,N ]=placeholder x\n\n\n  %y = call_function f(%x, # inner\n   1)   # behind\n  output(%x,%y)\n # last\n} # close\n# end";
        let want = "# top\n\nweights \"w\"  # trailing\n\n# before graph\ngraph a {  # open\n    # first\n    %x : f32[2, N] = placeholder x\n\n    # inner\n    %y = call_function f(%x, 1)  # behind\n    output (%x, %y)\n    # last\n}  # close\n\n# end\n";
        assert_eq!(stable(text), want);
    }

    #[test]
    fn rules_and_odd_comments_are_stable() {
        let text = stable(
            "fast rewrite r(%x, # a\n $b) # b\n{ output %x } # c\n => # d\n { # e\n output max(%x, 1) # f\n } # g\n where # h\n ($b + 1)*2 - (3 - 4) == -$b and not (rank(%x) in [1]) or 1 < 2 # i\n",
        );
        for comment in 'a'..='i' {
            assert_eq!(
                text.matches(&format!("# {comment}\n")).count(),
                1,
                "# {comment} in {text}"
            );
        }
    }

    #[test]
    fn a_rule_keeps_its_form() {
        let lines = "exact rewrite one: neg(neg(%x)) => %x  # c\nrewrite two: relu(%n = abs(%x : f32[A])) => %n where A > 1\nrewrite three: f(%x) => {\"a\": %x}\nrewrite four: f(%x) => {} where True\n";
        assert_eq!(stable(lines), lines);
        let loose = "rewrite  f :mul( %x,\n  $a ) # c\n=> add(%x,alpha = $a)\n\n\ngraph g { output () }";
        let want = "# c\nrewrite f: mul(%x, $a) => add(%x, alpha=$a)\n\ngraph g {\n    output ()\n}\n";
        assert_eq!(stable(loose), want);
    }

    #[test]
    fn a_rule_that_does_not_fit_a_line_goes_on() {
        let (x, y) = (format!("%{}", "x".repeat(50)), format!("%{}", "y".repeat(50)));
        let text = format!("rewrite f: add({x}, {y}) => mul({y}, {x}) where dtype({x}) == dtype({y})\n");
        let want = format!("rewrite f: add({x}, {y})\n    => mul({y}, {x})\n    where dtype({x}) == dtype({y})\n");
        assert_eq!(stable(&text), want);
    }

    #[test]
    fn torchs_text_stays() {
        let print = include_str!("testdata/print.txt");
        assert_eq!(formatted(print), print);
        let mixed =
            "# c\nmodule   lin=Linear(1,2)\ngraph():\n    %x : [num_users=1] = placeholder[target=x]\n    return x\n";
        assert_eq!(
            stable(mixed),
            "# c\nmodule lin = Linear(1, 2)\n\ngraph():\n    %x : [num_users=1] = placeholder[target=x]\n    return x\n"
        );
    }
}
