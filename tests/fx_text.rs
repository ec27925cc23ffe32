//! Graphs that torch.fx printed, read and printed again in each of torch's ways.

use fxc::graph::{GraphModule, build, dot, lint, python, tabular, torch_print};
use fxc::source::Sources;
use std::path::{Path, PathBuf};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fx").join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn read(name: &str) -> GraphModule {
    let mut sources = Sources::new();
    let file = sources.add(name, text(&format!("{name}.graph")));
    let (ast, found) = fxc::syntax::parse(&sources, file);
    assert!(!found.has_errors(), "{name}: {:?}", found.iter().collect::<Vec<_>>());
    let (module, found) = build(&ast, name);
    assert!(!found.has_errors(), "{name}: {:?}", found.iter().collect::<Vec<_>>());
    module
}

const CASES: [&str; 4] = ["traced", "built", "functions", "resnet18"];

#[test]
fn print_graph_is_torchs() {
    for name in CASES {
        let m = read(name);
        assert!(!lint(&m).has_errors(), "{name}");
        assert_eq!(
            torch_print::print(m.entry().unwrap(), Some(&m)),
            text(&format!("{name}.graph")),
            "{name}"
        );
    }
}

#[test]
fn code_is_torchs() {
    for name in CASES {
        let m = read(name);
        assert_eq!(
            python::code(m.entry().unwrap(), Some(&m)).source,
            text(&format!("{name}.py")),
            "{name}"
        );
    }
}

#[test]
fn table_and_drawing_are_torchs() {
    let m = read("functions");
    let g = m.entry().unwrap();
    assert_eq!(tabular::print_tabular(g, Some(&m)), text("functions.table"));
    assert_eq!(dot::dot(g, "functions", Some(&m)), text("functions.dot"));
}
