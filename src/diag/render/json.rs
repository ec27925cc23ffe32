//! One JSON object per diagnostic, each on its own line.

use super::severity_name;
use super::view::SourceView;
use crate::diag::words::clip_text;
use crate::diag::{Applicability, Diagnostic, Label, Suggestion};
use crate::source::Span;
use serde_json::{Map, Value, json};

/// The object and a newline. `file`, `line`, `column` and `span` are absent if the diagnostic has no location.
pub(super) fn render_line(view: &SourceView, d: &Diagnostic) -> String {
    let mut o = Map::new();
    o.insert("code".into(), d.code.name().into());
    o.insert("severity".into(), severity_name(d.severity).into());
    o.insert("message".into(), clip_text(d.title.clone()).into());
    if let Some(p) = view.primary_place(d) {
        o.extend(place_fields(view, p.span));
    }
    let label = |l: &Label| {
        let mut o = place_fields(view, l.span);
        o.insert("text".into(), clip_text(l.text.clone()).into());
        o.insert("primary".into(), l.primary.into());
        Value::Object(o)
    };
    let suggestion = |s: &Suggestion| {
        let mut o = place_fields(view, s.span);
        o.insert("replacement".into(), s.replacement.clone().into());
        o.insert("text".into(), clip_text(s.text.clone()).into());
        o.insert("applicability".into(), applicability_name(s).into());
        Value::Object(o)
    };
    let texts = |list: &[String]| -> Value { list.iter().map(|t| clip_text(t.clone())).collect() };
    o.insert("labels".into(), d.labels.iter().map(label).collect());
    o.insert("notes".into(), texts(&d.notes));
    o.insert("help".into(), texts(&d.help));
    o.insert("suggestions".into(), d.suggestions.iter().map(suggestion).collect());
    Value::Object(o).to_string() + "\n"
}

/// `safe` or `unsure`: whether a tool may apply the suggestion automatically.
pub(super) fn applicability_name(s: &Suggestion) -> &'static str {
    match s.applicability {
        Applicability::Safe => "safe",
        Applicability::Unsure => "unsure",
    }
}

fn place_fields(view: &SourceView, span: Span) -> Map<String, Value> {
    let p = view.place_of(span);
    let range = view.fit_span(span);
    let mut o = Map::new();
    o.insert("file".into(), p.file.into());
    o.insert("line".into(), p.line.into());
    o.insert("column".into(), p.column.into());
    o.insert("span".into(), json!({"start": range.start, "end": range.end}));
    o
}
