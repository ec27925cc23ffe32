//! SARIF 2.1.0 (OASIS): one run, one result per diagnostic, one rule per code used.

use super::json;
use super::view::View;
use crate::diag::words::clip;
use crate::diag::{Code, Diagnostic, Severity};
use crate::source::Span;
use serde_json::{Value, json};

/// The document and a newline.
pub(super) fn document(view: &View, list: &[&Diagnostic]) -> String {
    let mut codes: Vec<Code> = list.iter().map(|d| d.code).collect();
    codes.sort();
    codes.dedup();
    let rules: Vec<Value> = codes.iter().map(|&c| rule(c)).collect();
    let results: Vec<Value> = list.iter().map(|d| result(view, d, &codes)).collect();
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

fn rule(c: Code) -> Value {
    json!({
        "id": c.name(),
        "shortDescription": {"text": c.title()},
        "fullDescription": {"text": c.explanation(), "markdown": c.explanation()},
        "defaultConfiguration": {"level": level(c.severity())},
    })
}

fn result(view: &View, d: &Diagnostic, codes: &[Code]) -> Value {
    let mut text = clip(d.title.clone());
    for line in d.notes.iter().map(|n| format!("\nnote: {}", clip(n.clone()))) {
        text.push_str(&line);
    }
    for line in d.help.iter().map(|n| format!("\nhelp: {}", clip(n.clone()))) {
        text.push_str(&line);
    }
    let primary = view.place(d).map(|p| location(view, p.span, None));
    let related = d.labels.iter().filter(|l| !l.primary);
    let related: Vec<Value> = related.map(|l| location(view, l.span, Some(&l.text))).collect();
    let fixes = d.suggestions.iter().map(|s| {
        json!({
            "description": {"text": clip(s.text.clone())},
            "properties": {"applicability": json::applicability(s)},
            "artifactChanges": [{
                "artifactLocation": {"uri": view.name(s.span.file)},
                "replacements": [{"deletedRegion": region(view, s.span), "insertedContent": {"text": s.replacement}}],
            }],
        })
    });
    json!({
        "ruleId": d.code.name(),
        "ruleIndex": codes.iter().position(|&c| c == d.code),
        "level": level(d.severity),
        "message": {"text": text},
        "locations": primary.into_iter().collect::<Vec<_>>(),
        "relatedLocations": related,
        "fixes": fixes.collect::<Vec<_>>(),
    })
}

fn location(view: &View, span: Span, text: Option<&str>) -> Value {
    let mut v = json!({
        "physicalLocation": {"artifactLocation": {"uri": view.name(span.file)}, "region": region(view, span)},
    });
    if let Some(t) = text {
        v["message"] = json!({ "text": clip(t.to_string()) });
    }
    v
}

fn region(view: &View, span: Span) -> Value {
    let r = view.fit(span);
    json!({
        "startLine": view.line_of(span.file, r.start) + 1,
        "startColumn": view.column(span.file, r.start),
        "endLine": view.line_of(span.file, r.end) + 1,
        "endColumn": view.column(span.file, r.end),
        "byteOffset": r.start,
        "byteLength": r.len(),
    })
}

fn level(s: Severity) -> &'static str {
    match s {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}
