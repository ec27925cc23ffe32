//! SARIF 2.1.0 (OASIS): one run, one result per diagnostic, one rule per code used.

use super::json;
use super::view::SourceView;
use crate::diag::words::clip_text;
use crate::diag::{Code, Diagnostic, Severity};
use crate::source::Span;
use serde_json::{Value, json};

/// The document and a newline.
pub(super) fn render_document(view: &SourceView, list: &[&Diagnostic]) -> String {
    let mut codes: Vec<Code> = list.iter().map(|d| d.code).collect();
    codes.sort();
    codes.dedup();
    let rules: Vec<Value> = codes.iter().map(|&c| rule_object(c)).collect();
    let results: Vec<Value> = list.iter().map(|d| result_object(view, d, &codes)).collect();
    let doc = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "fxc", "version": env!("CARGO_PKG_VERSION"), "rules": rules}},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    });
    format!("{doc:#}\n")
}

fn rule_object(c: Code) -> Value {
    json!({
        "id": c.name(),
        "shortDescription": {"text": c.title()},
        "fullDescription": {"text": c.explanation(), "markdown": c.explanation()},
        "defaultConfiguration": {"level": level_name(c.severity())},
    })
}

fn result_object(view: &SourceView, d: &Diagnostic, codes: &[Code]) -> Value {
    let mut text = clip_text(d.title.clone());
    for line in d.notes.iter().map(|n| format!("\nnote: {}", clip_text(n.clone()))) {
        text.push_str(&line);
    }
    for line in d.help.iter().map(|n| format!("\nhelp: {}", clip_text(n.clone()))) {
        text.push_str(&line);
    }
    let primary = view.primary_place(d).map(|p| location_object(view, p.span, None));
    let related = d.labels.iter().filter(|l| !l.primary);
    let related: Vec<Value> = related.map(|l| location_object(view, l.span, Some(&l.text))).collect();
    let fixes = d.suggestions.iter().map(|s| {
        json!({
            "description": {"text": clip_text(s.text.clone())},
            "properties": {"applicability": json::applicability_name(s)},
            "artifactChanges": [{
                "artifactLocation": {"uri": view.name(s.span.file)},
                "replacements": [{"deletedRegion": region_object(view, s.span), "insertedContent": {"text": s.replacement}}],
            }],
        })
    });
    json!({
        "ruleId": d.code.name(),
        "ruleIndex": codes.iter().position(|&c| c == d.code),
        "level": level_name(d.severity),
        "message": {"text": text},
        "locations": primary.into_iter().collect::<Vec<_>>(),
        "relatedLocations": related,
        "fixes": fixes.collect::<Vec<_>>(),
    })
}

fn location_object(view: &SourceView, span: Span, text: Option<&str>) -> Value {
    let mut v = json!({
        "physicalLocation": {"artifactLocation": {"uri": view.name(span.file)}, "region": region_object(view, span)},
    });
    if let Some(t) = text {
        v["message"] = json!({ "text": clip_text(t.to_string()) });
    }
    v
}

fn region_object(view: &SourceView, span: Span) -> Value {
    let r = view.fit_span(span);
    json!({
        "startLine": view.line_of(span.file, r.start) + 1,
        "startColumn": view.column_of(span.file, r.start),
        "endLine": view.line_of(span.file, r.end) + 1,
        "endColumn": view.column_of(span.file, r.end),
        "byteOffset": r.start,
        "byteLength": r.len(),
    })
}

fn level_name(s: Severity) -> &'static str {
    match s {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}
