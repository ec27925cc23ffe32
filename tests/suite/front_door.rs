//! The public types of the library can grow without breaking the programs that use them.

use crate::layers::rust_files;
use crate::support::root;
use std::path::{Path, PathBuf};

/// The modules that `src/lib.rs` makes public.
const PUBLIC: [&str; 9] = [
    "api",
    "diag",
    "graph",
    "infer",
    "interp",
    "pass",
    "rewrite",
    "source.rs",
    "types",
];

/// Public types that other crates may match completely or construct field by field, with the reason.
const COMPLETE: [(&str, &[&str]); 6] = [
    ("torch.fx has exactly these opcodes", &["Opcode"]),
    (
        "a size is a constant, a polynomial or unknown, and so is every sum and product of sizes",
        &["Dim"],
    ),
    (
        "code that converts values handles every kind: a new kind must not compile until it is handled",
        &["Val"],
    ),
    (
        "places in texts and what diagnostics say about them, which callers write",
        &["Span", "Loc", "Label", "Suggestion"],
    ),
    (
        "parts of graphs that callers write, as torch.fx's users do",
        &[
            "Attribute",
            "CallSpec",
            "DimRange",
            "InputSpec",
            "ModuleDecl",
            "ModuleFrame",
            "OpDecl",
            "OutputSpec",
            "PyTree",
            "PyTreeParams",
            "Signature",
            "SizeGuard",
            "TensorType",
        ],
    ),
    ("arguments of passes, which callers write", &["DTypes", "Pass"]),
];

/// A public type: its name, its file, and whether it is marked `#[non_exhaustive]`.
struct PublicType {
    name: String,
    file: PathBuf,
    marked: bool,
}

#[test]
fn public_types_can_grow() {
    let types = public_types();
    assert!(types.len() > 60, "only {} public types were found", types.len());
    let complete = |t: &PublicType| COMPLETE.iter().any(|(_, names)| names.contains(&&*t.name));
    let wrong: Vec<String> = types
        .iter()
        .filter(|t| t.marked == complete(t))
        .map(|t| match t.marked {
            true => format!("{} is marked, so it is not an exception", t.name),
            false => format!("mark {} in {} `#[non_exhaustive]`", t.name, t.file.display()),
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    for name in COMPLETE.iter().flat_map(|(_, names)| *names) {
        assert!(types.iter().any(|t| t.name == *name), "{name} is not a public type");
    }
}

/// The enums of the public modules and their structs without private fields, and those that `src/lib.rs` re-exports.
fn public_types() -> Vec<PublicType> {
    let src = root().join("src");
    let mut found = vec![];
    for module in PUBLIC {
        let path = src.join(module);
        let files = if path.is_dir() { rust_files(&path) } else { vec![path] };
        found.extend(files.iter().flat_map(|f| types_of(f)));
    }
    for (module, names) in re_exports(&src) {
        let files = rust_files(&src.join(&module)).into_iter();
        let types = files.flat_map(|f| types_of(&f));
        found.extend(types.filter(|t| names.contains(&t.name)));
    }
    found
}

/// The folders whose types `src/lib.rs` re-exports by name, with these names.
fn re_exports(src: &Path) -> Vec<(String, Vec<String>)> {
    let text = std::fs::read_to_string(src.join("lib.rs")).unwrap();
    let outer = text.split("pub mod internals").next().unwrap();
    let statements = outer.split("pub use ").skip(1).map(|s| s.split(';').next().unwrap());
    statements
        .map(|s| {
            let path = s.strip_prefix("crate::").unwrap_or(s);
            let words = path
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .filter(|w| !w.is_empty());
            let words: Vec<String> = words.map(String::from).collect();
            (words[0].clone(), words[1..].to_vec())
        })
        .filter(|(module, _)| src.join(module).is_dir())
        .collect()
}

fn types_of(file: &Path) -> Vec<PublicType> {
    let text = std::fs::read_to_string(file).unwrap();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut found = vec![];
    for (i, line) in lines.iter().enumerate() {
        let is_enum = line.starts_with("pub enum ");
        let Some(rest) = line.strip_prefix("pub enum ").or(line.strip_prefix("pub struct ")) else {
            continue;
        };
        let body: Vec<&str> = lines[i + 1..].iter().take_while(|l| **l != "}").copied().collect();
        let is_open = is_enum || line.ends_with('{') && has_only_public_fields(&body);
        if !is_open {
            continue;
        }
        let above = lines[..i]
            .iter()
            .rev()
            .take_while(|l| l.starts_with("#[") || l.starts_with("///"));
        found.push(PublicType {
            name: rest.chars().take_while(|c| c.is_alphanumeric()).collect(),
            file: file.to_path_buf(),
            marked: { above }.any(|l| *l == "#[non_exhaustive]"),
        });
    }
    found
}

fn has_only_public_fields(body: &[&str]) -> bool {
    let is_field = |l: &&&str| l.contains(": ") && !l.starts_with("//") && !l.starts_with('#');
    body.iter()
        .filter(is_field)
        .all(|l| l.starts_with("pub ") && !l.starts_with("pub("))
}
