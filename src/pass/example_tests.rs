//! The passes' examples: each pass does what its documentation shows, and keeps the metadata of nodes.

use super::tests::alike;
use super::*;
use crate::infer::{InferOptions, infer};

fn parsed(text: &str) -> GraphModule {
    let (file, d) = crate::syntax::parse_text(crate::source::FileId(0), text);
    assert!(!d.has_errors(), "{d:?}");
    let (mut m, d) = crate::graph::build(&file, "g");
    assert!(!d.has_errors(), "{d:?}");
    let d = infer(&mut m, &InferOptions::default());
    assert!(d.is_empty(), "{d:?}");
    m
}

/// The two graphs of a pass's example.
fn example(text: &str) -> (&str, &str) {
    let mut blocks = text
        .split("```fxir\n")
        .skip(1)
        .map(|b| b.split("```").next().unwrap_or(""));
    (blocks.next().unwrap(), blocks.next().unwrap())
}

#[test]
fn the_examples_are_what_the_passes_do() {
    let decompose = Pass {
        name: "decompose",
        reason: "",
        example: include_str!("examples/decompose.md"),
        run: |m, _| decompose(m, |_| false),
    };
    let mut list: Vec<&Pass> = all_passes().collect();
    list.push(&decompose);
    for p in list {
        let (before, after) = example(p.example);
        let m = parsed(before);
        // The layer's op adds in a different order.
        let most = if p.name == "recurrent" { 1e-5 } else { 0.0 };
        let now = alike(m, most, |m| {
            let options = PassOptions {
                verify_each: true,
                ..PassOptions::default()
            };
            let run = run_pass(p, m, &options).unwrap_or_else(|d| panic!("{}: {d:?}", p.name));
            assert!(run.changed > 0, "{} changed nothing", p.name);
        });
        assert_eq!(crate::graph::print(&now), after, "{}", p.name);
    }
}

/// Every call has a type, and the source location and module of the node it replaces. A new node names that node in its
/// provenance.
#[test]
fn passes_keep_what_is_known_of_nodes() {
    let options = PassOptions::default();
    // The nodes that `assert-sizes` adds correspond to nothing in the user's program.
    for p in all_passes().filter(|p| p.name != "assert-sizes") {
        let mut m = parsed(example(p.example).0);
        let mut old = std::collections::HashSet::new();
        for g in m.graphs.values_mut() {
            for n in g.ids() {
                let meta = g.meta_mut(n);
                meta.loc = Some(crate::graph::Loc {
                    file: "model.py".into(),
                    line: 7,
                    function: "forward".into(),
                });
                meta.modules = std::sync::Arc::new([crate::graph::ModuleFrame {
                    path: "block".into(),
                    class: "m.Block".into(),
                }]);
                old.insert(g[n].name().to_string());
            }
        }
        run_pass(p, &mut m, &options).unwrap_or_else(|d| panic!("{}: {d:?}", p.name));
        for g in m.graphs.values() {
            for n in g.iter().filter(|&n| g[n].op().is_call()) {
                let (node, meta) = (&g[n], &g[n].meta);
                let what = format!("{}: `%{}`: {meta:?}", p.name, node.name());
                assert!(meta.ty.is_some(), "{what}");
                assert!(meta.loc.is_some() && !meta.modules.is_empty(), "{what}");
                assert!(
                    old.contains(node.name()) || !meta.provenance.is_empty() || p.name == "canonicalise",
                    "{what}"
                );
            }
        }
    }
}
