//! Human-readable output: codespan draws the source excerpt, followed by suggestions as the corrected line.

use super::view::{LineWindows, SourceView, shown_text, strip_control_chars};
use crate::diag::{Diagnostic, Severity, Suggestion};
use codespan_reporting::diagnostic as cs;
use codespan_reporting::term::{self, termcolor};
use std::io::Write as _;
use termcolor::{Buffer, Color, ColorSpec, WriteColor};

/// The maximum length of a displayed line in a suggestion, in bytes.
const LONGEST_LINE: usize = 400;

/// Renders one diagnostic, ending in a newline.
pub(super) fn render(view: &SourceView, d: &Diagnostic, color: bool) -> String {
    let mut out = if color { Buffer::ansi() } else { Buffer::no_color() };
    let (files, spans) = LineWindows::around_labels(view, &d.labels);
    let labels = d.labels.iter().zip(spans).map(|(l, span)| {
        let new = if l.primary {
            cs::Label::primary
        } else {
            cs::Label::secondary
        };
        new(l.span.file, span).with_message(shown_text(&l.text))
    });
    let notes = d.notes.iter().map(|n| format!("note: {}", shown_text(n)));
    let help = d.help.iter().map(|h| format!("help: {}", shown_text(h)));
    let diagnostic = cs::Diagnostic::new(codespan_severity(d.severity))
        .with_code(d.code.name())
        .with_message(shown_text(&d.title))
        .with_labels(labels.collect())
        .with_notes(notes.chain(help).collect());
    let drawn = term::emit_to_write_style(&mut out, &term::Config::default(), &files, &diagnostic);
    if drawn.is_err() {
        // Only a span outside of its file could cause this, and spans have been corrected. Print the message without an
        // excerpt.
        let (severity, title) = (super::severity_name(d.severity), shown_text(&d.title));
        let _ = writeln!(out, "{severity}[{}]: {title}", d.code);
    }
    let mut bytes = out.into_inner();
    // codespan ends with an empty line, but the caller adds separators.
    while bytes.ends_with(b"\n\n") {
        bytes.pop();
    }
    let drawn_part = String::from_utf8_lossy(&bytes).into_owned();
    let suggestions: String = d
        .suggestions
        .iter()
        .map(|s| render_suggestion(view, s, color))
        .collect();
    strip_control(&drawn_part, color) + &suggestions
}

fn codespan_severity(severity: Severity) -> cs::Severity {
    match severity {
        Severity::Error => cs::Severity::Error,
        Severity::Warning => cs::Severity::Warning,
        Severity::Note => cs::Severity::Note,
    }
}

/// `help:` with the corrected line, in which the new part is underlined.
fn render_suggestion(view: &SourceView, s: &Suggestion, color: bool) -> String {
    let mut out = if color { Buffer::ansi() } else { Buffer::no_color() };
    // Writing to a buffer in memory cannot fail.
    let _ = write_suggestion(view, s, &mut out);
    String::from_utf8_lossy(&out.into_inner()).into_owned()
}

/// The most bytes of a line that are shown on each side of a suggestion.
const CONTEXT: usize = 120;

fn first_bytes(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

fn last_bytes(text: &str, most: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(most))..]
}

fn write_suggestion(view: &SourceView, s: &Suggestion, out: &mut Buffer) -> std::io::Result<()> {
    let (file, span) = (s.span.file, view.fit_span(s.span));
    let text = view.text(file);
    let first = view.line_of(file, span.start);
    let line = view.line_span(file, first);
    let rest = view.line_span(file, view.line_of(file, span.end));
    let head = strip_control_chars(last_bytes(&text[line.start..span.start], CONTEXT));
    let after = first_bytes(&text[span.end..rest.end.max(span.end)], CONTEXT);
    let tail = strip_control_chars(after.trim_end_matches(['\n', '\r']));
    let number = (first + 1).to_string();
    let gutter = " ".repeat(number.len());
    let mut bold = ColorSpec::new();
    bold.set_fg(Some(Color::Cyan)).set_bold(true);
    write_colored(out, &bold, "help")?;
    writeln!(out, ": {}", shown_text(&s.text))?;
    writeln!(out, "{gutter} │")?;
    let mut green = ColorSpec::new();
    green.set_fg(Some(Color::Green));
    let replacement = strip_control_chars(&s.replacement);
    write!(out, "{number} │ {head}")?;
    for (i, part) in replacement.split('\n').enumerate() {
        if i > 0 {
            write!(out, "\n{n:w$} │ ", n = first + 1 + i, w = number.len())?;
        }
        write_colored(out, &green, &part[..part.floor_char_boundary(LONGEST_LINE)])?;
    }
    writeln!(out, "{tail}")?;
    if !replacement.contains('\n') {
        let blank: String = head.chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let width = replacement.chars().take(LONGEST_LINE).count().max(1);
        write_colored(out, &green, &format!("{gutter} │ {blank}{}", "~".repeat(width)))?;
        writeln!(out)?;
    }
    Ok(())
}

fn write_colored(out: &mut Buffer, color: &ColorSpec, text: &str) -> std::io::Result<()> {
    out.set_color(color)?;
    write!(out, "{text}")?;
    out.reset()
}

/// codespan copies source lines unchanged. This replaces their control characters but keeps codespan's own colours.
fn strip_control(text: &str, color: bool) -> String {
    if !color {
        return strip_control_chars(text);
    }
    // A colour is ESC [ digits-and-semicolons m. All other escapes come from the source.
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(i) = rest.find('\u{1b}') {
        out.push_str(&strip_control_chars(&rest[..i]));
        let tail = &rest[i + 1..];
        let body = tail.strip_prefix('[').map(|t| {
            let n = t.find(|c: char| !c.is_ascii_digit() && c != ';').unwrap_or(t.len());
            (&t[..n], &t[n..])
        });
        match body {
            Some((code, after)) if after.starts_with('m') => {
                out.push_str(&format!("\u{1b}[{code}m"));
                rest = &after[1..];
            }
            _ => {
                out.push(char::REPLACEMENT_CHARACTER);
                rest = tail;
            }
        }
    }
    out.push_str(&strip_control_chars(rest));
    out
}
