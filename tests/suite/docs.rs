//! Tests of generated documents and of the commands in documents.

use crate::support::{fences, fxc, root};

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

#[test]
fn the_page_of_ops_is_current() {
    let ran = fxc(&["ops", "--format", "markdown"]);
    assert!(
        ran.out == read("docs/ops.md"),
        "docs/ops.md is out of date: cargo run -- ops --format markdown > docs/ops.md"
    );
}

/// A dependency, or the group of lines that it is in, follows a comment that says what it is for.
#[test]
fn dependencies_have_their_reasons() {
    let mut seen = 0;
    for manifest in [
        "Cargo.toml",
        "python/Cargo.toml",
        "capi/Cargo.toml",
        "examples/runner/Cargo.toml",
    ] {
        let (mut in_table, mut explained) = (false, false);
        for line in read(manifest).lines() {
            match line.chars().next() {
                Some('[') => (in_table, explained) = (line.contains("dependencies]"), false),
                Some('#') => explained = true,
                None => explained = false,
                Some(_) if in_table && !line.contains("path = ") => {
                    assert!(explained, "{manifest}: `{line}` has no reason");
                    seen += 1;
                }
                Some(_) => {}
            }
        }
    }
    assert!(seen > 30, "{seen} dependencies");
}

/// The entry points in the table of stages are defined in their folders.
#[test]
fn entries_of_stages_exist() {
    let mut seen = 0;
    for row in read("ARCHITECTURE.md").lines() {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, folder, _, entries, _] = cells[..] else {
            continue;
        };
        let stage = root().join("src").join(folder.trim_matches(['`', '/']));
        let files = match (stage.is_dir(), stage.is_file()) {
            (true, _) => crate::layers::rust_files(&stage),
            (_, true) => vec![stage],
            _ => continue,
        };
        let text: String = files.iter().map(|f| std::fs::read_to_string(f).unwrap()).collect();
        for entry in entries.split('`').skip(1).step_by(2) {
            let name = entry.rsplit("::").next().unwrap_or(entry);
            let defined = ["fn", "struct", "enum", "trait"].map(|word| format!("{word} {name}"));
            let follows = |at: usize| text[at..].starts_with(|c: char| !c.is_alphanumeric() && c != '_');
            let is_defined = |d: &String| text.match_indices(d.as_str()).any(|(i, _)| follows(i + d.len()));
            assert!(defined.iter().any(is_defined), "{folder} has no `{entry}`");
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen} entries");
}

/// The folders and files that documents name in backticks exist: paths from the root or from `src/`, and bare names of
/// source files.
#[test]
fn paths_in_documents_exist() {
    let sources = crate::layers::rust_files(&root().join("src"));
    let is_source = |name: &str| sources.iter().any(|f| f.file_name().is_some_and(|n| n == name));
    let exists = |path: &str| root().join(path).exists() || root().join("src").join(path).exists();
    // Folders that commands write, such as `dist/`, are absent from a clean checkout.
    let ignored = read(".gitignore");
    let is_generated = |word: &str| ignored.lines().any(|l| l.trim_start_matches('/') == word);
    let mut seen = 0;
    for page in [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "docs/artifacts.md",
        "docs/inputs.md",
        "docs/language.md",
        "docs/rules.md",
        "docs/tour.md",
    ] {
        let text = read(page);
        for word in text.lines().flat_map(|l| l.split('`').skip(1).step_by(2)) {
            let path = word.strip_suffix('/').unwrap_or(word);
            let is_file = [".rs", ".md", ".py", ".lalrpop"].iter().any(|e| word.ends_with(e));
            let plain = path.bytes().all(|b| b.is_ascii_alphanumeric() || b"_/.-".contains(&b));
            // `model.py` and the like are the user's files.
            let ours = word.contains('/') || word.ends_with(".rs");
            if !plain || !ours || !(is_file || word.ends_with('/')) {
                continue;
            }
            seen += 1;
            assert!(
                exists(path) || is_source(path) || is_folder_of_table(path) || is_generated(word),
                "{page} names `{word}`"
            );
        }
    }
    assert!(seen > 80, "{seen} paths");
}

/// The table of larger folders names parts by their last component.
fn is_folder_of_table(name: &str) -> bool {
    let src = root().join("src");
    let large = [
        "linalg", "op", "op/rows", "syntax", "graph", "pass", "math", "lower", "codegen", "driver",
    ];
    large.iter().any(|d| src.join(d).join(name).is_dir())
}

/// The arguments of the commands in a document's shell blocks that start fxc.
fn commands(path: &str) -> Vec<Vec<String>> {
    let blocks = fences(&read(path)).into_iter().filter(|(info, _)| info == "sh");
    let lines: Vec<String> = blocks
        .flat_map(|(_, b)| b.lines().map(str::to_string).collect::<Vec<_>>())
        .collect();
    let strip = |l: &String| {
        let l = l.split(" #").next().unwrap().trim().to_string();
        let rest = l
            .strip_prefix("cargo run --release -- ")
            .or_else(|| l.strip_prefix("fxc "))?;
        Some(
            rest.split_whitespace()
                .map(|w| w.trim_matches('"').to_string())
                .collect(),
        )
    };
    lines.iter().filter_map(strip).collect()
}

#[test]
fn commands_of_the_readme_run() {
    let commands = commands("README.md");
    assert!(!commands.is_empty());
    for c in &commands {
        let args: Vec<&str> = c.iter().map(String::as_str).collect();
        let ran = fxc(&args);
        assert_eq!(ran.code, 0, "fxc {}\n{}{}", args.join(" "), ran.out, ran.err);
    }
}

#[test]
fn commands_of_the_examples_run() {
    for path in crate::support::examples() {
        let text = read(&path);
        let lines = text
            .lines()
            .filter_map(|l| l.trim_start_matches('#').trim().strip_prefix("fxc "));
        for line in lines {
            let ran = fxc(&line.split_whitespace().collect::<Vec<_>>());
            assert_eq!(ran.code, 0, "{path}: fxc {line}\n{}{}", ran.out, ran.err);
        }
    }
}

/// Every FXIR block of the language page can be parsed and built. Blocks with fragments or errors are marked
/// `fxir,ignore`.
#[test]
fn examples_of_the_language_page_parse() {
    use fxc::source::Sources;
    for (info, text) in fences(&read("docs/language.md")) {
        if info != "fxir" {
            continue;
        }
        let mut sources = Sources::new();
        let file = sources.add("language.md", text.as_str());
        let (_, found) = fxc::internals::syntax::parse(&sources, file);
        let found: Vec<_> = found.iter().collect();
        let shown = fxc::diag::render::render(&sources, &found, fxc::diag::render::DiagnosticFormat::Human, false);
        assert!(found.is_empty(), "{shown}");
    }
}

/// For every model of the page of rules, `fxc rewrite FILE --remarks` prints the block that follows it: remarks, then
/// the graph.
#[test]
fn examples_of_the_page_of_rules_do_what_it_says() {
    let dir = crate::support::Dir::new("rules");
    let blocks = fences(&read("docs/rules.md"));
    let mut seen = 0;
    for pair in blocks.windows(2).filter(|p| p[0].0 == "fxir") {
        std::fs::write(dir.0.join("model.fxir"), &pair[0].1).unwrap();
        let ran = crate::support::fxc_in(&dir.0, &["rewrite", "model.fxir", "--remarks", "--fast-math"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert_eq!(pair[1].0, "text", "{}", pair[0].1);
        assert_eq!(
            format!("{}\n{}", ran.err, ran.out).trim(),
            pair[1].1.trim(),
            "{}",
            pair[0].1
        );
        seen += 1;
    }
    assert!(seen > 8, "{seen} examples");
}

#[path = "../../examples/custom_op.rs"]
mod custom_op;

/// Checking, inference and the compiler find the op of the example, and its results come from its own code.
#[test]
fn the_example_of_a_custom_op_runs() {
    custom_op::add_op();
    let results = custom_op::compile_and_run().unwrap();
    let [gelu, scales] = results.tensors()[..] else {
        panic!("{} results", results.len())
    };
    assert_eq!((gelu.shape(), scales.shape()), (&[3, 4][..], &[3][..]));
    // Every row was divided by its largest magnitude, so gelu(1) or gelu(-1) is among its elements.
    let data = gelu.as_slice::<f32>();
    let has = |row: &[f32]| {
        row.iter()
            .any(|x| (x - 0.841_344_7).abs() < 1e-6 || (x + 0.158_655_3).abs() < 1e-6)
    };
    assert!(data.chunks(4).all(has), "{data:?}");
}

/// Whether `text`, the output of a command, matches `shown`. There, `…` stands for any lines or for the rest of a line.
pub fn is_excerpt(shown: &str, text: &str) -> bool {
    let mut lines = text.lines();
    let mut gap = false;
    for want in shown.lines() {
        if want == "…" {
            gap = true;
            continue;
        }
        let fits = |line: &str| match want.strip_suffix('…') {
            Some(start) => line.starts_with(start),
            None => line == want,
        };
        let found = match gap {
            true => lines.any(fits),
            false => lines.next().is_some_and(fits),
        };
        if !found {
            return false;
        }
        gap = false;
    }
    gap || lines.all(str::is_empty)
}

/// Every command of the tour prints what the page shows.
#[test]
fn the_tour_shows_what_is_written() {
    let page = read("docs/tour.md");
    let mut shown = 0;
    for (_, block) in fences(&page).iter().filter(|(info, _)| info == "console") {
        let (command, text) = block.split_once('\n').unwrap();
        let args = command.strip_prefix("$ fxc ").expect("a command of fxc");
        let ran = fxc(&args.split_whitespace().collect::<Vec<_>>());
        // Reports go to standard error. They come after the requested output, except for those of the passes, which
        // come before it.
        let [first, last] = [format!("{}{}", ran.out, ran.err), format!("{}{}", ran.err, ran.out)];
        assert!(
            is_excerpt(text, &first) || is_excerpt(text, &last),
            "{command}\n{first}"
        );
        shown += 1;
    }
    assert!(shown > 5, "{shown}");
    let source = read("docs/tour.fxir");
    let (_, graph) = fences(&page).into_iter().find(|(info, _)| info == "fxir").unwrap();
    assert!(source.ends_with(&graph), "the graph is not that of the example");
}

/// Every command of the page on inputs prints what the page shows. Its files are the blocks with a file name.
#[test]
fn the_page_of_inputs_shows_what_is_written() {
    let dir = crate::support::Dir::new("inputs");
    let blocks = fences(&read("docs/inputs.md"));
    for (info, text) in &blocks {
        if let Some((_, name)) = info.split_once(' ') {
            std::fs::write(dir.0.join(name), text).unwrap();
        }
    }
    let mut shown = 0;
    for (_, block) in blocks.iter().filter(|(info, _)| info == "console") {
        for command in block.split("$ fxc ").skip(1) {
            let (command, text) = command.split_once('\n').unwrap();
            let ran = crate::support::fxc_in(&dir.0, &command.split_whitespace().collect::<Vec<_>>());
            let written = format!("{}{}", ran.out, ran.err);
            assert!(is_excerpt(text, &written), "{command}\n{written}");
            shown += 1;
        }
    }
    assert!(shown > 6, "{shown}");
}

#[test]
fn excerpts_are_told_from_other_texts() {
    assert!(is_excerpt("a\n…\nd\n", "a\nb\nc\nd\n"));
    assert!(is_excerpt("a\nb…\n", "a\nb and c\n"));
    assert!(!is_excerpt("a\nd\n", "a\nb\nd\n"));
    assert!(!is_excerpt("a\n", "a\nb\n"));
    assert!(!is_excerpt("…\nx\n…\n", "a\nb\n"));
}

/// The row that ARCHITECTURE.md shows is in the table, word for word.
#[test]
fn rows_that_are_shown_are_in_the_table() {
    let words = |s: &str| s.split_whitespace().map(str::to_string).collect::<Vec<_>>().join(" ");
    let rows: String = crate::support::files_below("src/op/rows", ".rs")
        .iter()
        .map(|p| words(&std::fs::read_to_string(p).unwrap()))
        .collect();
    let shown: Vec<_> = ["ARCHITECTURE.md", "CONTRIBUTING.md"]
        .iter()
        .flat_map(|p| fences(&read(p)))
        .filter(|(info, _)| info == "rust")
        .collect();
    assert!(!shown.is_empty());
    for (_, row) in shown {
        assert!(rows.contains(&words(&row)), "no such row:\n{row}");
    }
}
