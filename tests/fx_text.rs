//! Graphs that torch.fx printed, read and printed again in each of torch's ways.

use fxc::graph::{GraphModule, build, dot, lint, python, readable, tabular, torch_print};
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
    let (ast, found) = fxc::internals::syntax::parse(&sources, file);
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

/// What `torch.export.load` of the archives prints: `print(exported_program)` and the code of its graph module.
const PROGRAMS: [&str; 11] = [
    "autocast",
    "branches",
    "buffers",
    "control",
    "dropping",
    "mlp",
    "mutating",
    "random",
    "subclasses",
    "unsigned",
    "wrapped",
];

fn data(name: &str, ext: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(format!("{name}.{ext}"))
}

fn read_text(name: &str, ext: &str) -> (GraphModule, String) {
    let text = std::fs::read_to_string(data(name, ext)).unwrap_or_else(|e| panic!("{name}.{ext}: {e}"));
    let mut sources = Sources::new();
    let file = sources.add(name, text.as_str());
    let (ast, found) = fxc::internals::syntax::parse(&sources, file);
    assert!(found.is_empty(), "{name}.{ext}: {:?}", found.iter().collect::<Vec<_>>());
    let (module, found) = build(&ast, name);
    assert!(found.is_empty(), "{name}.{ext}: {:?}", found.iter().collect::<Vec<_>>());
    (module, text)
}

#[test]
fn exported_programs_print_as_torch_prints_them() {
    for name in PROGRAMS {
        let (m, found) = fxc::internals::import::read_exported(&data(name, "pt2")).expect("a sound archive");
        assert!(found.is_empty(), "{name}");
        let (again, text) = read_text(name, "program");
        // Reading the archive, torch forgets the range of a size that only a loop's graph has.
        let ranges = |t: &str| t.split("Range constraints").next().map(str::to_string);
        match name {
            "control" => assert_eq!(ranges(&readable::print_program(&m)), ranges(&text), "{name}"),
            _ => assert_eq!(readable::print_program(&m), text, "{name}"),
        }
        // The text itself reads in, and prints the same.
        assert_eq!(readable::print_program(&again), text, "{name} read from text");
        let code = std::fs::read_to_string(data(name, "code")).expect("the code");
        for m in [&m, &again] {
            assert_eq!(python::code(m.entry().unwrap(), Some(m)).source, code, "{name}");
        }
        let graphs = [&m, &again].map(|m| torch_print::print(m.entry().unwrap(), Some(m)));
        assert_eq!(graphs[0], graphs[1], "{name}");
    }
}

/// The program that the text of an archive holds is the one that the archive holds.
#[test]
fn programs_from_text_are_those_of_the_archives() {
    for name in PROGRAMS {
        let (archive, _) = fxc::internals::import::read_pt2(&data(name, "pt2")).expect("a sound archive");
        let (mut text, _) = read_text(name, "program");
        fxc::graph::unlift(&mut text).expect("a signature that fits");
        assert!(
            !lint(&text).has_errors(),
            "{name}: {:?}",
            lint(&text).iter().collect::<Vec<_>>()
        );
        let attributes = |m: &GraphModule| m.attributes.keys().map(|k| k.to_string()).collect::<Vec<_>>();
        assert_eq!(attributes(&archive), attributes(&text), "{name}");
        let steps = |m: &GraphModule| {
            m.entry()
                .unwrap()
                .iter()
                .filter(|&n| m.entry().unwrap()[n].op().is_call())
                .count()
        };
        assert_eq!(steps(&archive), steps(&text), "{name}");
        if name != "control" {
            assert_eq!(archive.dims.len(), text.dims.len(), "{name}");
        }
    }
}

/// `gm.code` reads in, and prints as itself; where it says as much as `print(graph)`, it prints that too.
#[test]
fn code_reads_in() {
    for name in CASES {
        let (m, text) = read_text(&format!("fx/{name}"), "py");
        assert_eq!(python::code(m.entry().unwrap(), Some(&m)).source, text, "{name}");
    }
    let (m, _) = read_text("fx/resnet18", "py");
    assert_eq!(
        torch_print::print(m.entry().unwrap(), Some(&m)),
        self::text("resnet18.graph")
    );
}
