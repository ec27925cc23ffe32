//! Splitting, fixing and canonical order against the interpreter and against each other.

use super::split::{propose_partitions, split_module};
use super::{PassManager, PassOptions, specialize};
use crate::graph::{Graph, GraphModule, lint, print};
use crate::infer::{InferOptions, infer};
use crate::interp;
use crate::tensor::Tensor;
use crate::types::{DType, TensorType, Val};
use std::collections::HashMap;

fn module(g: Graph) -> GraphModule {
    let mut m = GraphModule::new("main", g);
    let inputs = vec![Val::Leaf(TensorType::fixed(DType::F32, &[4])); m.entry().unwrap().placeholders().len()];
    let found = infer(&mut m, &InferOptions { inputs });
    assert!(found.is_empty(), "{found:?}");
    m
}

fn chain() -> Graph {
    Graph::trace(&["x"], |_, p| {
        let a = p[0].method("exp", ()) + 1;
        let b = a.method("sin", ());
        let c = &a * &b;
        (c.method("neg", ()), a, b)
    })
}

fn result(m: &GraphModule) -> interp::Value {
    let x = Val::Leaf(Tensor::from_slice(&[4], &[0.5f32, -1.0, 2.0, 0.0]));
    interp::run(m, vec![x]).unwrap_or_else(|d| panic!("{d:?}"))
}

#[test]
fn parts_compute_what_the_whole_did() {
    let whole = module(chain());
    for parts in 1..4 {
        let mut m = whole.clone();
        let count = std::cell::Cell::new(0);
        let made = split_module(&mut m, "main", |_, _| {
            count.set(count.get() + 1);
            (count.get() - 1) * parts / 5
        })
        .unwrap();
        assert_eq!(made.len(), parts as usize);
        assert!(!lint(&m).has_errors(), "{}", print(&m));
        assert_eq!(result(&m), result(&whole), "{}", print(&m));
    }
    let mut m = whole.clone();
    let e = split_module(&mut m, "main", |g, n| matches!(g[n].target(), "sin") as i64).unwrap_err();
    assert_eq!(e.0, "cycle exists between partitions!");
}

#[test]
fn proposed_parts_never_need_each_other() {
    let whole = module(chain());
    let g = whole.entry().unwrap();
    for unsupported in ["exp", "sin", "operator.add", "operator.mul", "neg"] {
        let parts = propose_partitions(g, |g, n| g[n].target() != unsupported, 1);
        let mut m = whole.clone();
        super::split::fuse(&mut m, "main", &parts).unwrap();
        assert_eq!(result(&m), result(&whole), "{unsupported}: {}", print(&m));
    }
}

#[test]
fn equal_graphs_print_equally() {
    let a = Graph::trace(&["x"], |_, p| {
        let s = p[0].method("sin", ()).named("first");
        let c = p[0].method("cos", ());
        &s + &c
    });
    let b = Graph::trace(&["x"], |_, p| {
        let c = p[0].method("cos", ()).named("other");
        let s = p[0].method("sin", ());
        &c + &s
    });
    let canonical = |g: Graph| {
        let mut m = module(g);
        let mut passes = PassManager::of(&["normalize", "canonicalise"]).unwrap();
        passes.run(&mut m, &PassOptions::default(), &mut |_, _| {}).unwrap();
        print(&m)
    };
    assert_eq!(canonical(a), canonical(b));
}

#[test]
fn fixed_inputs_are_literals() {
    let g = Graph::trace(&["x", "k"], |_, p| &p[0] * &p[1]);
    let mut m = GraphModule::new("main", g);
    let changed = specialize(&mut m, &[("k".into(), Val::Float(2.0))], &HashMap::new()).unwrap();
    assert_eq!(changed, 1);
    let g = m.entry().unwrap();
    let mul = g.find("mul").unwrap();
    assert_eq!(g[mul].args()[1], Val::Float(2.0));
    assert_eq!(g.placeholders().len(), 1);
    assert!(specialize(&mut m, &[("q".into(), Val::None)], &HashMap::new()).is_err());
}
