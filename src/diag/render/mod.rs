//! Renders diagnostics as text: human-readable, one line each, JSON, or SARIF.
//!
//! All formats have the same content, except that only `human` shows the source. This module only returns text; the
//! caller writes it, once.

mod human;
mod json;
mod sarif;
mod view;

use super::words::count as count_of;
use super::{Diagnostic, Severity};
use crate::source::Sources;
use view::SourceView;

/// Output formats of diagnostics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum DiagnosticFormat {
    /// Source excerpts with labels, notes and help, as rustc draws them.
    #[default]
    Human,
    /// `file:line:column: severity[code]: title`, one line each.
    Short,
    /// One JSON object per line.
    Json,
    /// One SARIF 2.1.0 document, for code-scanning services.
    Sarif,
}

/// The maximum number of diagnostics that `human` and `short` print; the rest is counted. JSON and SARIF have all.
pub const SHOWN: usize = 200;

/// Renders `list` in `format`, with ANSI colours if `color` (only `human` has any). Ends in a newline unless it is
/// empty.
pub fn render(sources: &Sources, list: &[&Diagnostic], format: DiagnosticFormat, color: bool) -> String {
    let view = SourceView::new(sources);
    match format {
        DiagnosticFormat::Human => join_capped(list, "\n", |d| human::render(&view, d, color)),
        DiagnosticFormat::Short => join_capped(list, "", |d| render_short(&view, d)),
        DiagnosticFormat::Json => list.iter().map(|d| json::render_line(&view, d)).collect(),
        DiagnosticFormat::Sarif => sarif::render_document(&view, list),
    }
}

fn join_capped(list: &[&Diagnostic], separator: &str, render_one: impl Fn(&Diagnostic) -> String) -> String {
    let mut out = String::new();
    let mut order = list.to_vec();
    if order.len() > SHOWN {
        // Sorted by severity, so that warnings do not crowd out errors.
        order.sort_by_key(|d| std::cmp::Reverse(d.severity));
    }
    for d in order.into_iter().take(SHOWN) {
        out.push_str(&render_one(d));
        out.push_str(separator);
    }
    if let Some(hidden) = list.len().checked_sub(SHOWN).filter(|&n| n > 0) {
        let all = list.len();
        out.push_str(&format!(
            "note: {hidden} more of {all} diagnostics are not shown; use --message-format json to see all\n{separator}"
        ));
    }
    out
}

/// The last line of a run with errors: ``could not compile `mlp.fxir`: 3 errors, 1 warning``. `None` if there is
/// nothing to summarise.
pub fn summary_line(name: &str, list: &[&Diagnostic]) -> Option<String> {
    let count = |s: Severity| list.iter().filter(|d| d.severity == s).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    // Errors in inputs and results (E05xx) are not errors of the model.
    let of_model = |d: &&Diagnostic| d.severity == Severity::Error && !d.code.name().starts_with("E05");
    let verb = if list.iter().any(of_model) { "compile" } else { "run" };
    match (errors, warnings) {
        (0, 0) => None,
        (0, w) => Some(format!("warning: `{name}`: {}", count_of(w, "warning"))),
        (e, 0) => Some(format!("error: could not {verb} `{name}`: {}", count_of(e, "error"))),
        (e, w) => Some(format!(
            "error: could not {verb} `{name}`: {}, {}",
            count_of(e, "error"),
            count_of(w, "warning")
        )),
    }
}

fn render_short(view: &SourceView, d: &Diagnostic) -> String {
    let place = match view.primary_place(d) {
        Some(p) => format!("{}:{}:{}: ", p.file, p.line, p.column),
        None => String::new(),
    };
    let title = view::shown_text(&d.title).replace('\n', " ");
    format!("{place}{}[{}]: {title}\n", severity_name(d.severity), d.code)
}

fn severity_name(s: Severity) -> &'static str {
    match s {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diag::Code;
    use crate::source::{FileId, Span};

    const TEXT: &str = "graph g {\n    %a = call_function rleu(%x)\n    output %a\n}\n";

    fn sources() -> (Sources, FileId) {
        let mut s = Sources::new();
        let id = s.add("g.fxir", TEXT);
        (s, id)
    }

    fn finding(id: FileId) -> Diagnostic {
        let at = TEXT.find("rleu").unwrap();
        let target = Span::new(id, at, at + 4);
        Diagnostic::new(Code::E0201, "unknown op `rleu`")
            .at(target, "not an op of the table")
            .see(Span::new(id, 6, 7), "in this graph")
            .note("ops are listed by `fxc ops`")
            .suggest(target, "relu", "an op with there is a similar name")
    }

    #[test]
    fn human_shows_source_notes_and_the_mended_line() {
        let (s, id) = sources();
        let text = render(&s, &[&finding(id)], DiagnosticFormat::Human, false);
        let want = "\
error[E0201]: unknown op `rleu`
  ┌─ g.fxir:2:24
  │
1 │ graph g {
  │       - in this graph
2 │     %a = call_function rleu(%x)
  │                        ^^^^ not an op of the table
  │
  = note: ops are listed by `fxc ops`
help: an op with there is a similar name
  │
2 │     %a = call_function relu(%x)
  │                        ~~~~

";
        assert_eq!(text, want);
        assert!(render(&s, &[&finding(id)], DiagnosticFormat::Human, true).contains("\u{1b}["));
    }

    #[test]
    fn short_is_one_line() {
        let (s, id) = sources();
        let text = render(&s, &[&finding(id)], DiagnosticFormat::Short, false);
        assert_eq!(text, "g.fxir:2:24: error[E0201]: unknown op `rleu`\n");
        let none = Diagnostic::new(Code::E0401, "no weight `a`");
        assert_eq!(
            render(&s, &[&none], DiagnosticFormat::Short, false),
            "error[E0401]: no weight `a`\n"
        );
    }

    #[test]
    fn json_holds_every_field() {
        let (s, id) = sources();
        let text = render(&s, &[&finding(id)], DiagnosticFormat::Json, false);
        assert_eq!(text.lines().count(), 1);
        let v: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(v["code"], "E0201");
        assert_eq!(v["severity"], "error");
        assert_eq!(v["message"], "unknown op `rleu`");
        assert_eq!(
            (&v["file"], &v["line"], &v["column"]),
            (&"g.fxir".into(), &2.into(), &24.into())
        );
        let at = TEXT.find("rleu").unwrap();
        assert_eq!(v["span"], serde_json::json!({"start": at, "end": at + 4}));
        assert_eq!(v["labels"].as_array().unwrap().len(), 2);
        assert_eq!(v["suggestions"][0]["replacement"], "relu");
    }

    #[test]
    fn sarif_is_one_document_with_rules_and_results() {
        let (s, id) = sources();
        let text = render(&s, &[&finding(id), &finding(id)], DiagnosticFormat::Sarif, false);
        let v: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(v["version"], "2.1.0");
        assert_eq!(v["runs"][0]["results"].as_array().unwrap().len(), 2);
        assert_eq!(v["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap().len(), 1);
        let region = &v["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"];
        assert_eq!(region["startLine"], 2);
        assert_eq!(region["startColumn"], 24);
        assert_eq!(region["endColumn"], 28);
    }

    #[test]
    fn long_lines_and_odd_spans_are_shown_in_part() {
        let mut s = Sources::new();
        let text = "(".repeat(100_000) + "é\u{1b}";
        let n = text.len();
        let id = s.add("deep.fxir", text);
        for (a, b) in [
            (0, 1),
            (99_990, 100_000),
            (0, n),
            (100_001, 100_001),
            (n, n),
            (n + 5, n + 9),
            (7, 3),
        ] {
            let d = Diagnostic::new(Code::E0001, "nested too deeply")
                .at(Span::new(id, a, b), "here")
                .see(Span::new(id, 3, 4), "opened here");
            let out = render(&s, &[&d], DiagnosticFormat::Human, false);
            assert!(out.len() < 3000, "{}", out.len());
            assert!(out.contains("deep.fxir:1:") && !out.contains('\u{1b}'), "{out}");
            render(&s, &[&d], DiagnosticFormat::Sarif, false);
        }
    }

    #[test]
    fn many_findings_are_counted_and_summed_up() {
        let s = Sources::new();
        let list: Vec<Diagnostic> = (0..1000)
            .map(|i| Diagnostic::new(Code::E0101, format!("no node `{i}`")))
            .collect();
        let refs: Vec<&Diagnostic> = list.iter().collect();
        let text = render(&s, &refs, DiagnosticFormat::Short, false);
        assert_eq!(text.lines().count(), SHOWN + 1);
        assert!(text.contains("800 more of 1000"));
        assert_eq!(
            summary_line("a.fxir", &refs[..1]).unwrap(),
            "error: could not compile `a.fxir`: 1 error"
        );
        assert_eq!(summary_line("a.fxir", &[]), None);
        let w = Diagnostic::new(Code::L0001, "unused");
        assert_eq!(summary_line("a.fxir", &[&w]).unwrap(), "warning: `a.fxir`: 1 warning");
    }
}
