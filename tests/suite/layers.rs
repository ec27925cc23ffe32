//! A folder under `src/` is a stage, and only uses stages before it.

use crate::support::root;
use std::path::{Path, PathBuf};

/// The order. ARCHITECTURE.md explains it.
const ORDER: [&str; 31] = [
    "budget", "source", "target", "types", "diag", "fs", "tensor", "control", "parallel", "linalg", "scalar", "syntax",
    "op", "graph", "import", "infer", "interp", "rewrite", "pass", "math", "kernel", "program", "lower", "code",
    "codegen", "runtime", "artifact", "runner", "driver", "api", "cli",
];

#[test]
fn stages_use_only_stages_before_them() {
    let src = root().join("src");
    let mut wrong = vec![];
    for file in rust_files(&src) {
        let inner = file.strip_prefix(&src).unwrap();
        let stage = inner
            .iter()
            .next()
            .unwrap()
            .to_string_lossy()
            .trim_end_matches(".rs")
            .to_string();
        if matches!(stage.as_str(), "lib" | "main" | "internals") {
            continue;
        }
        let Some(own) = ORDER.iter().position(|s| *s == stage) else {
            wrong.push(format!("src/{stage} is not a stage of the order"));
            continue;
        };
        for used in uses(&file) {
            match ORDER.iter().position(|s| *s == used) {
                Some(i) if i <= own => {}
                Some(_) => wrong.push(format!("{} uses `{used}`, a later stage", inner.display())),
                None => wrong.push(format!("{} uses `{used}`, which is not a stage", inner.display())),
            }
        }
    }
    wrong.sort();
    wrong.dedup();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The parts of lowering, in order.
const LOWER: [&str; 16] = [
    "refused",
    "ir",
    "weights",
    "contract",
    "special",
    "read",
    "integers",
    "pools",
    "layout",
    "fuse",
    "schedule",
    "emit",
    "place",
    "pipeline",
    "tests",
    "random_tests",
];

/// The files of code generation, in order.
const CODEGEN: [&str; 44] = [
    "widen",
    "table",
    "inline",
    "analysis",
    "lanes",
    "row_plan",
    "masking",
    "vector_loops",
    "natives",
    "asm",
    "f16c",
    "calls",
    "forms",
    "convert",
    "elements",
    "poly",
    "exp",
    "formulas",
    "integers",
    "remainder",
    "halves",
    "ops",
    "folds",
    "state",
    "tails",
    "splits",
    "inst",
    "memory",
    "transposes",
    "reduce",
    "packed",
    "prefetch",
    "inside",
    "rows",
    "loops",
    "vector",
    "func",
    "wide",
    "conditions",
    "function",
    "cache",
    "jit",
    "object",
    "tests",
];

#[test]
fn parts_of_lowering_use_only_parts_before_them() {
    assert_ordered("lower", &LOWER);
}

#[test]
fn parts_of_codegen_use_only_parts_before_them() {
    assert_ordered("codegen", &CODEGEN);
}

/// Fails if a part of a stage is missing in `order`, or uses one that comes after it.
fn assert_ordered(stage: &str, order: &[&str]) {
    let folder = root().join("src").join(stage);
    let mut wrong = vec![];
    for file in rust_files(&folder) {
        let inner = file.strip_prefix(&folder).unwrap();
        let part = inner.iter().next().unwrap().to_string_lossy();
        let part = part.trim_end_matches(".rs");
        if part == "mod" {
            continue;
        }
        let Some(own) = order.iter().position(|p| *p == part) else {
            wrong.push(format!("{part} is not a part of the order"));
            continue;
        };
        let mut used = named_after(&file, &format!("crate::{stage}::"));
        // A part that is a single file refers to others by `super`.
        if inner.iter().count() == 1 {
            used.extend(named_after(&file, "super::"));
        }
        let later = used
            .iter()
            .filter(|u| order.iter().position(|p| p == u).is_some_and(|i| i > own));
        wrong.extend(later.map(|u| format!("{} uses `{u}`, a later part", inner.display())));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Earlier stages that a stage nevertheless does not use: compiled models run without them.
const APART: [(&str, &[&str]); 5] = [
    (
        "program",
        &[
            "linalg", "syntax", "op", "graph", "import", "infer", "interp", "rewrite", "pass",
        ],
    ),
    (
        "code",
        &[
            "linalg", "syntax", "op", "graph", "import", "infer", "interp", "rewrite", "pass", "lower",
        ],
    ),
    (
        "runtime",
        &[
            "linalg", "syntax", "op", "graph", "import", "infer", "interp", "rewrite", "pass", "lower", "codegen",
        ],
    ),
    (
        "artifact",
        &[
            "linalg", "syntax", "op", "graph", "import", "infer", "interp", "rewrite", "pass", "lower", "codegen",
        ],
    ),
    (
        "runner",
        &[
            "linalg", "syntax", "op", "graph", "import", "infer", "interp", "rewrite", "pass", "lower", "codegen",
        ],
    ),
];

#[test]
fn programs_run_without_the_compiler() {
    for (stage, apart) in APART {
        for file in rust_files(&root().join("src").join(stage)) {
            let used = uses(&file);
            let wrong: Vec<_> = apart.iter().filter(|a| used.iter().any(|u| u == *a)).collect();
            assert!(wrong.is_empty(), "{} uses {wrong:?}", file.display());
        }
    }
}

/// What opens, creates or moves a file.
const ACCESS: [&str; 12] = [
    "std::fs::write",
    "std::fs::read(",
    "std::fs::read_to_string",
    "std::fs::rename",
    "std::fs::copy",
    "std::fs::File",
    "use std::fs::{",
    "use std::fs;",
    "File::create",
    "File::open",
    "OpenOptions",
    "serialize_to_file",
];

/// Files that access something other than the user's: what the system says about the process, and the cache's own folder.
const OWN_ACCESS: [&str; 9] = [
    "runtime/code.rs",
    "cli/bench/memory.rs",
    "cli/signals.rs",
    // A temporary folder for models that are tried.
    "cli/reduce/trial.rs",
    "driver/cache/folder.rs",
    "driver/cache/known.rs",
    // Reads how much memory the system has.
    "budget/machine.rs",
    // Maps a file that `fs` has opened.
    "tensor/mapped.rs",
    // Writes the table of ops in a test.
    "op/id.rs",
];

#[test]
fn the_users_files_are_opened_and_written_in_one_place() {
    let mut wrong = vec![];
    for folder in ["src", "python/src", "capi/src"] {
        let folder = root().join(folder);
        for file in rust_files(&folder) {
            let inner = file.strip_prefix(&folder).unwrap().display().to_string();
            if inner.starts_with("fs/") || OWN_ACCESS.contains(&&*inner) {
                continue;
            }
            let code = code_of(&file);
            // `OutputFile::create` is something else.
            let is_word = |at: usize| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            let found = ACCESS
                .iter()
                .filter(|a| code.match_indices(*a).any(|(at, _)| is_word(at)));
            wrong.extend(found.map(|a| format!("{inner} has `{a}`: use `fs`")));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn only_the_target_asks_the_processor() {
    let src = root().join("src");
    let asks = ["is_x86_feature_detected", "is_aarch64_feature_detected", "__cpuid"];
    let files = rust_files(&src).into_iter().filter(|f| *f != src.join("target.rs"));
    let wrong: Vec<_> = files.filter(|f| asks.iter().any(|a| code_of(f).contains(a))).collect();
    assert!(
        wrong.is_empty(),
        "take a `Target`, so that `--target` is followed: {wrong:?}"
    );
}

#[test]
fn files_are_short_enough_to_read() {
    let src = root().join("src");
    let long: Vec<String> = rust_files(&src)
        .into_iter()
        .filter_map(|f| {
            let n = std::fs::read_to_string(&f).unwrap().lines().count();
            let f = f.strip_prefix(&src).unwrap().display().to_string();
            let most = if f.contains("tests") { 500 } else { 400 };
            (n > most).then(|| format!("{f}: {n} lines, at most {most}"))
        })
        .collect();
    assert!(long.is_empty(), "split these files by subject: {long:#?}");
}

/// The most lines of a function outside of tests.
const LONGEST: usize = 40;

#[test]
fn functions_are_short_enough_to_read() {
    let mut long = vec![];
    for folder in ["src", "python/src", "capi/src"] {
        let folder = root().join(folder);
        for file in rust_files(&folder) {
            let inner = file.strip_prefix(&folder).unwrap().display().to_string();
            let functions = function_lengths(&code_of(&file)).into_iter();
            let too_long = functions.filter(|(_, lines)| *lines > LONGEST);
            long.extend(too_long.map(|(name, lines)| format!("{inner}: `{name}` has {lines} lines")));
        }
    }
    assert!(
        long.is_empty(),
        "at most {LONGEST} lines; split these functions: {long:#?}"
    );
}

/// The name and the number of lines of each function in formatted code.
fn function_lengths(code: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = code.lines().map(str::trim_end).collect();
    let mut found = vec![];
    for (i, line) in lines.iter().enumerate() {
        let inner = line.trim_start();
        let indent = &line[..line.len() - inner.len()];
        let mut words = inner.split(' ').skip_while(|w| *w != "fn");
        let modifiers = inner.split(' ').take_while(|w| *w != "fn");
        let declares =
            { modifiers }.all(|w| w.starts_with("pub") || ["const", "unsafe", "extern", "\"C\""].contains(&w));
        let Some(name) = words.nth(1).filter(|_| declares) else {
            continue;
        };
        // rustfmt puts the last brace of a body, and only it, at the depth of `fn`. What a macro takes may have no body.
        let rest = &lines[i..];
        let mut head = rest.iter().take_while(|l| l.starts_with(indent) && !l.ends_with(';'));
        let Some(body) = head.position(|l| l.ends_with('{')) else {
            continue;
        };
        let end = rest[body..].iter().position(|l| *l == format!("{indent}}}"));
        found.extend(end.map(|end| (word(name), body + end + 1)));
    }
    found
}

pub fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut out = vec![];
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            out.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
    out
}

/// The stages that a file refers to, outside of its tests and comments.
fn uses(file: &Path) -> Vec<String> {
    named_after(file, "crate::")
}

/// The modules that a file names after `prefix`, outside of its tests and comments.
fn named_after(file: &Path, prefix: &str) -> Vec<String> {
    let code = code_of(file);
    let mut out = vec![];
    for (i, _) in code.match_indices(prefix) {
        let rest = &code[i + prefix.len()..];
        match rest.strip_prefix('{') {
            Some(group) => {
                let group = &group[..group.find("};").unwrap_or(group.len())];
                out.extend(heads(group));
            }
            None => out.push(word(rest)),
        }
    }
    // A lower-case word is a module; crate-level macros are called, and items start with a capital.
    out.retain(|w| w.chars().next().is_some_and(char::is_lowercase));
    out
}

/// The text of a file without its tests and comments.
fn code_of(file: &Path) -> String {
    let name = file.file_name().unwrap().to_string_lossy().into_owned();
    let under_tests = file.components().any(|c| c.as_os_str() == "tests");
    if name.ends_with("tests.rs") || under_tests {
        return String::new();
    }
    let text = std::fs::read_to_string(file).unwrap();
    let code = text.split("\nmod tests {").next().unwrap();
    let uncommented = |l: &str| l.split("//").next().unwrap_or("").to_string() + "\n";
    code.lines().map(uncommented).collect()
}

/// The first words of a group's items, at depth zero.
fn heads(group: &str) -> Vec<String> {
    let mut depth = 0;
    let mut out = vec![];
    let mut item = String::new();
    for c in group.chars().chain([',']) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => out.push(word(std::mem::take(&mut item).trim())),
            c => item.push(c),
        }
    }
    out.retain(|w| !w.is_empty());
    out
}

fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}
