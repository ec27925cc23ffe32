//! The README's examples: their commands run on the files that its Python blocks wrote (`tests/torch/readme.py
//! --record`).

use crate::docs::is_excerpt;
use crate::support::{Dir, Ran, fences, fxc_in, root};

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The section of the second level with this heading.
fn section(page: &str, title: &str) -> String {
    let start = page.find(&format!("\n## {title}\n")).expect(title) + 1;
    let end = page[start..].find("\n## ").map_or(page.len(), |n| start + n);
    page[start..end].to_string()
}

/// A folder with the recorded files and the files that blocks of the page define.
fn folder(name: &str, blocks: &[(String, String)]) -> Dir {
    let dir = Dir::new(name);
    let recorded = root().join("tests/data/readme");
    for entry in std::fs::read_dir(&recorded).expect("the recorded files") {
        let from = entry.unwrap().path();
        std::fs::copy(&from, dir.0.join(from.file_name().unwrap())).unwrap();
    }
    for (info, text) in blocks {
        if let Some((_, name)) = info.split_once(' ') {
            std::fs::write(dir.0.join(name), text).unwrap();
        }
    }
    dir
}

/// Runs a command of the page: fxc, or `cat FILE… > FILE`.
fn run(dir: &Dir, command: &str) -> Ran {
    let words: Vec<&str> = command.split_whitespace().collect();
    match &words[..] {
        ["fxc", args @ ..] => fxc_in(&dir.0, args),
        ["cat", from @ .., ">", to] => {
            let texts = from.iter().map(|f| std::fs::read_to_string(dir.0.join(f)).unwrap());
            std::fs::write(dir.0.join(to), texts.collect::<String>()).unwrap();
            Ran {
                code: 0,
                out: String::new(),
                err: String::new(),
            }
        }
        _ => panic!("`{command}` is not a command of this page"),
    }
}

/// Every command prints what the page shows below it.
#[test]
fn the_answers_show_what_is_written() {
    let page = section(&read("README.md"), "Questions people ask next");
    let blocks = fences(&page);
    let dir = folder("answers", &blocks);
    let mut shown = 0;
    for (_, block) in blocks.iter().filter(|(info, _)| info == "console") {
        for command in format!("\n{block}").split("\n$ ").skip(1) {
            let (command, text) = command.split_once('\n').unwrap_or((command, ""));
            let ran = run(&dir, command);
            let written = format!("{}{}", ran.out, ran.err);
            assert!(is_excerpt(text, &written), "{command}\n{written}");
            shown += 1;
        }
    }
    assert!(shown > 12, "{shown}");
}

/// The commands in the table of questions succeed.
#[test]
fn the_commands_for_troubles_run() {
    let page = section(&read("README.md"), "Questions people ask next");
    let dir = folder("troubles", &fences(&page));
    let commands: Vec<&str> = page
        .lines()
        .filter(|l| l.starts_with('|'))
        .filter_map(|l| l.split('`').find(|w| w.starts_with("fxc ")))
        .collect();
    assert!(commands.len() > 6, "{}", commands.len());
    for command in commands {
        let ran = run(&dir, command);
        assert_eq!(ran.code, 0, "{command}\n{}{}", ran.out, ran.err);
    }
}

/// The recorded files come from the page's current Python blocks. If not: `python tests/torch/readme.py --record`.
#[test]
fn the_recorded_files_are_of_these_blocks() {
    let blocks = fences(&read("README.md"));
    let python: String = blocks
        .into_iter()
        .filter(|(i, _)| i == "python")
        .map(|(_, b)| b)
        .collect();
    assert_eq!(read("tests/data/readme/blocks.txt"), python);
}
