//! Every file of `tests/ui/` shows a finding. Its name starts with the code. Its first line may specify how it is run
//! (`# run: ARGS`, or a whole command, `# fxc ARGS`, which may name a file of `fixtures`); otherwise it is checked. The
//! snapshot in `snapshots/ui/` contains the source and the output.

use crate::fixtures;
use crate::support::{Dir, codes, files, fxc_in, root, snapshot_in};
use fxc::diag::Code;
use std::path::Path;

/// Codes that no file can cause: errors of programs that edit graphs, and internal errors of fxc.
const NO_INPUT: [Code; 5] = [Code::E0107, Code::E0109, Code::E0512, Code::E0602, Code::E0603];

fn arguments<'a>(text: &'a str, file: &'a str) -> Vec<&'a str> {
    let first = text.lines().next().unwrap_or("");
    if let Some(args) = first.strip_prefix("# run:") {
        ["run", file].into_iter().chain(args.split_whitespace()).collect()
    } else if let Some(command) = first.strip_prefix("# fxc ") {
        command.split_whitespace().collect()
    } else {
        vec!["check", file]
    }
}

#[test]
fn every_file_shows_what_its_name_says() {
    let dir = Dir::new("ui");
    fixtures::write(&dir);
    for path in files("tests/ui", ".fxir") {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        std::fs::copy(&path, dir.0.join(&name)).unwrap();
    }
    let mut failures = vec![];
    for path in files("tests/ui", ".fxir") {
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        let stem = file.trim_end_matches(".fxir");
        let text = std::fs::read_to_string(&path).unwrap();
        let args = arguments(&text, &file);
        let json = fxc_in(&dir.0, &[&["--message-format", "json"], &args[..]].concat());
        let code = &stem[..5];
        if !codes(&json.err).iter().any(|c| c == code) {
            failures.push(format!("{file}: wants {code}, gives {:?}", codes(&json.err)));
        }
        let human = fxc_in(&dir.0, &args);
        assert_eq!(human.code, json.code);
        let shown = if text.len() < 4000 {
            text.clone()
        } else {
            format!("{} bytes\n", text.len())
        };
        let command = args.join(" ");
        snapshot_in(
            "ui",
            stem,
            &format!("{shown}\n$ fxc {command}\n{}exit code {}\n", human.err, human.code),
        );
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn every_code_has_a_file() {
    let names: Vec<String> = files("tests/ui", ".fxir")
        .iter()
        .map(|p| p.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    let missing: Vec<&str> = Code::ALL
        .iter()
        .filter(|c| !NO_INPUT.contains(c))
        .map(|c| c.name())
        .filter(|c| !names.iter().any(|n| n.starts_with(c)))
        .collect();
    assert!(missing.is_empty(), "codes without a file in tests/ui: {missing:?}");
}

#[test]
fn every_snapshot_has_its_file() {
    for path in files("snapshots/ui", ".snap") {
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        let source = root().join("tests/ui").join(format!("{stem}.fxir"));
        assert!(Path::new(&source).exists(), "{} is left over", path.display());
    }
}
