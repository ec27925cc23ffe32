//! Explain pages: the first FXIR example of each yields exactly its code, the later ones are corrected.
//!
//! A fence is `fxir` (checked), `fxir,run ARGS` (run), and so for `compile`, `rewrite`, `opt`, `generate`, or `fxir,ignore-WHY`.

use crate::fixtures;
use crate::support::{Dir, codes, fences, fxc_in};
use fxc::diag::{Code, Severity};

#[test]
fn pages_begin_with_the_title_of_the_table() {
    for c in Code::ALL {
        let want = format!("# {c}: {}\n\n", c.title());
        assert!(
            c.explanation().starts_with(&want),
            "the page of {c} does not begin with {want:?}"
        );
        assert!(
            c.explanation().ends_with('\n') && !c.explanation().ends_with("\n\n"),
            "{c}"
        );
    }
}

#[test]
fn examples_do_what_the_page_says() {
    let dir = Dir::new("explain");
    fixtures::write(&dir);
    let mut failures = vec![];
    for c in Code::ALL {
        let blocks: Vec<(String, String)> = fences(c.explanation())
            .into_iter()
            .filter(|(info, _)| info.starts_with("fxir"))
            .collect();
        for (i, (info, text)) in blocks.iter().enumerate() {
            dir.file("page.fxir", text);
            let Some(args) = arguments(info) else { continue };
            let ran = fxc_in(&dir.0, &args);
            let mut found = codes(&ran.err);
            // Notes with codes other than the page's are not findings.
            found.retain(|f| Code::from_name(f).is_none_or(|c| c.severity() != Severity::Note) || f == c.name());
            let want: Vec<String> = if i == 0 { vec![c.name().to_string()] } else { vec![] };
            found.dedup();
            if found != want {
                failures.push(format!("{c}, example {}: wants {want:?}\n{}", i + 1, ran.err));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn arguments(info: &str) -> Option<Vec<&str>> {
    let json = ["--message-format", "json"];
    match info.strip_prefix("fxir").expect("chosen by it").strip_prefix(',') {
        None => Some([&json[..], &["check", "page.fxir"]].concat()),
        Some(i) if i.starts_with("ignore-") => None,
        Some(run) => {
            let (command, args) = run.split_once(' ').unwrap_or((run, ""));
            let known = ["run", "compile", "rewrite", "opt", "generate"];
            assert!(known.contains(&command), "unknown fence {info:?}");
            let args = args.split_whitespace();
            Some(json.into_iter().chain([command, "page.fxir"]).chain(args).collect())
        }
    }
}

#[test]
fn the_command_prints_a_page_or_names_a_near_code() {
    let dir = Dir::new("explain-command");
    let page = fxc_in(&dir.0, &["explain", "e0201"]);
    assert_eq!((page.code, page.out.as_str()), (0, Code::E0201.explanation()));
    let wrong = fxc_in(&dir.0, &["explain", "E0231"]);
    assert_eq!(wrong.code, 2);
    assert!(
        wrong.err.contains("there is a code with a similar name"),
        "{}",
        wrong.err
    );
    let table = fxc_in(&dir.0, &["explain"]);
    assert_eq!(table.out.lines().count(), Code::ALL.len());
}
