//! Common mistakes: each yields one finding whose suggestions correct it. `snapshots/mistakes.snap` shows the messages.

use crate::support::{Dir, fxc_in, root, snapshot_in};
use fxc::diag::{Applicability, Diagnostic, Diagnostics, fix};
use fxc::internals::driver::Session;
use fxc::source::FileId;
use std::fmt::Write;

struct Case {
    name: String,
    text: String,
    /// Whether the suggestions, including the unsafe ones, correct the file.
    fixed: bool,
    errors: usize,
}

/// The blocks of `tests/mistakes.txt`.
fn cases() -> Vec<Case> {
    let text = std::fs::read_to_string(root().join("tests/mistakes.txt")).unwrap();
    let mut out: Vec<(String, bool, Vec<&str>)> = vec![];
    for line in text.lines() {
        match (line.strip_prefix("- "), line.strip_prefix("= "), out.last_mut()) {
            (Some(name), ..) => out.push((name.into(), true, vec![])),
            (_, Some(name), _) => out.push((name.into(), false, vec![])),
            (.., Some((_, _, lines))) => lines.push(line),
            _ => assert!(line.is_empty() || line.starts_with('#'), "{line}"),
        }
    }
    out.into_iter()
        .map(|(head, framed, lines)| case(&head, framed, &lines))
        .collect()
}

fn case(head: &str, framed: bool, lines: &[&str]) -> Case {
    let marks: Vec<&str> = head
        .split('[')
        .skip(1)
        .map(|m| m.trim().trim_end_matches(']'))
        .collect();
    let number = match marks.contains(&"valid") {
        true => Some("0"),
        false => marks.iter().find_map(|m| m.strip_suffix(" errors")),
    };
    let text = match framed {
        true => {
            let head = "graph main {\n    %x : f32[2, 3] = placeholder x\n    %w : f32[2, 3] = placeholder w\n";
            let body: String = lines.iter().map(|l| format!("    {l}\n")).collect();
            format!("{head}{body}    output %y\n}}\n")
        }
        false => lines.join("\n") + "\n",
    };
    Case {
        name: head.split(" [").next().unwrap().into(),
        text,
        fixed: marks.contains(&"fixed"),
        errors: number.map_or(1, |n| n.parse().unwrap()),
    }
}

fn found(text: &str) -> Diagnostics {
    let mut session = Session::new();
    if let Ok(mut model) = session.load_text("mistake.fxir", text) {
        let _ = session.check_rules(model.tree.as_ref().unwrap());
        let _ = session.check(&mut model.module, &[]);
    }
    session.diagnostics
}

fn errors(d: &Diagnostics) -> Vec<&Diagnostic> {
    d.iter().filter(|d| d.is_error()).collect()
}

/// Writes a finding in a few lines.
fn say(out: &mut String, text: &str, d: &Diagnostic) {
    let label = d.labels.iter().find(|l| l.primary).or(d.labels.first());
    let at = label.map_or(String::new(), |l| {
        text[l.span.range()].split_whitespace().collect::<Vec<_>>().join(" ")
    });
    let _ = writeln!(out, "    {}: {} | `{at}`", d.code, d.title);
    for h in &d.help {
        let _ = writeln!(out, "        help: {h}");
    }
    for s in &d.suggestions {
        let safe = if s.applicability == Applicability::Safe {
            "fix"
        } else {
            "maybe"
        };
        let replacement = s.replacement.replace('\n', "⏎");
        let _ = writeln!(
            out,
            "        {safe}: `{}` -> `{replacement}` ({})",
            &text[s.span.range()].replace('\n', "⏎"),
            s.text
        );
    }
}

/// Applies the first suggestion of every finding until there is none.
fn with_suggestions(text: &str) -> String {
    let mut text = text.to_string();
    for _ in 0..10 {
        let mut all: Vec<Diagnostic> = found(&text).into_iter().filter(Diagnostic::is_error).collect();
        for d in &mut all {
            d.suggestions
                .iter_mut()
                .for_each(|s| s.applicability = Applicability::Safe);
        }
        match fix::apply_safe(&text, FileId(0), all.iter()) {
            Some(next) if next != text => text = next,
            _ => break,
        }
    }
    text
}

#[test]
fn every_mistake_is_one_finding_and_its_suggestions_mend_it() {
    let (mut shown, mut wrong) = (String::new(), vec![]);
    for case in cases() {
        let all = found(&case.text);
        let list = errors(&all);
        let _ = writeln!(shown, "{}", case.name);
        list.iter().for_each(|d| say(&mut shown, &case.text, d));
        if list.len() != case.errors {
            wrong.push(format!("{}: {} errors, not {}", case.name, list.len(), case.errors));
        }
        let mended = with_suggestions(&case.text);
        let left = found(&mended);
        if case.fixed && !errors(&left).is_empty() {
            let title = &errors(&left)[0].title;
            wrong.push(format!("{}: the suggestions leave `{title}` in\n{mended}", case.name));
        }
    }
    snapshot_in(".", "mistakes", &shown);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every suggestion marked safe removes its own finding and causes no other.
#[test]
fn every_safe_suggestion_mends_its_finding() {
    let mut wrong = vec![];
    for case in cases() {
        let before = found(&case.text);
        for d in errors(&before) {
            let Some(next) = fix::apply_safe(&case.text, FileId(0), [d]) else {
                continue;
            };
            let after = found(&next);
            let others = |d: &Diagnostic| !errors(&before).iter().any(|b| b.title == d.title);
            let there = errors(&after).iter().filter(|a| a.title == d.title).count();
            let were = errors(&before).iter().filter(|a| a.title == d.title).count();
            if there >= were || errors(&after).iter().any(|d| others(d)) {
                wrong.push(format!(
                    "{}: {}\n{next}{:?}",
                    case.name,
                    d.title,
                    errors(&after)[0].title
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn check_fix_writes_what_is_safe_and_diff_only_shows_it() {
    let dir = Dir::new("check-fix");
    let broken =
        "graph main {\n    %x : f32[2, 3] = placeholder x\n    %y = F.relu(%x + 1) // twice\n    return %y\n}\n";
    let path = dir.file("a.fxir", broken);
    let shown = fxc_in(&dir.0, &["check", "a.fxir", "--diff"]);
    assert!(
        shown.code == 1 && shown.out.contains("\n-    return %y\n") && shown.out.contains("\n+    output %y\n"),
        "{}",
        shown.out
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), broken);
    let fixed = fxc_in(&dir.0, &["check", "a.fxir", "--fix"]);
    assert_eq!(fixed.code, 0, "{}", fixed.err);
    let want = "graph main {\n    %x : f32[2, 3] = placeholder x\n    %y_1 = call_function operator.add(%x, 1)\n    \
                %y = call_function F.relu(%y_1) # twice\n    output %y\n}\n";
    assert_eq!(std::fs::read_to_string(&path).unwrap(), want);
    let left: Vec<_> = std::fs::read_dir(&dir.0)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(left, ["a.fxir"], "nothing is left beside the file");
    // Unsafe suggestions are not applied.
    dir.file("a.fxir", want.replace("relu", "rleu"));
    let unsure = fxc_in(&dir.0, &["check", "a.fxir", "--fix"]);
    assert!(
        unsure.code == 1 && unsure.err.contains("help: there is an op with a similar name"),
        "{}",
        unsure.err
    );
}

/// Finding suggestions for a large number of unknown names does not compare all pairs, which would take minutes here.
#[test]
fn thousands_of_unknown_names_are_reported() {
    let n = 2_000;
    let (mut nodes, mut ops) = (String::new(), String::new());
    for i in 0..n {
        let _ = writeln!(nodes, "    %value_{i} = call_function torch.relu(%valve_{i})");
        let _ = writeln!(ops, "    %y{i} = call_function torch.frobnicate_{i}(%x)");
    }
    for text in [nodes, ops] {
        let text = format!("graph main {{\n    %x : f32[2] = placeholder x\n{text}    output %x\n}}\n");
        assert_eq!(errors(&found(&text)).len(), n);
    }
}

/// Names and lines of a quarter of a megabyte are truncated in all messages.
#[test]
fn no_message_is_longer_than_can_be_read() {
    let dir = Dir::new("long-names");
    let long = "a".repeat(1 << 18);
    let graph = |line: &str| format!("graph main {{\n    %x : f32[2] = placeholder x\n    {line}\n    output %x\n}}\n");
    for (name, line) in [
        ("op", format!("%y = call_function {long}(%x)")),
        ("node", format!("%y = call_function torch.relu(%{long})")),
        ("keyword", format!("%y = call_function torch.relu(%x, {long}=1)")),
        ("string", format!("%y = call_function torch.relu(\"{long}\")")),
        ("bare", format!("%y = call_function torch.relu({long})")),
        ("bare node", format!("{long} = call_function torch.relu(%x)")),
        ("module", format!("%y = call_module {long}(%x)")),
        ("attribute", format!("%y = get_attr {long}")),
        ("opcode", format!("%y = {long}(%x)")),
        ("sum", format!("%y = %{long} + %x")),
        ("return", format!("return {long}")),
        ("type", format!("%y : {long}[2] = call_function torch.relu(%x)")),
        ("text", long.replace('a', "?")),
    ] {
        dir.file("long.fxir", graph(&line));
        for format in ["human", "short", "json", "sarif"] {
            let shown = fxc_in(&dir.0, &["check", "long.fxir", "--message-format", format]);
            assert!(shown.err.len() < 30_000, "{name}, {format}: {} bytes", shown.err.len());
        }
    }
}
