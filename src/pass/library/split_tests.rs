//! Tests of splitting, specializing and canonical order, against the interpreter and against each other.

use super::partition::Partitioner;
use super::split::split_module;
use super::split_by::{move_non_tensor_nodes_on_boundary, split_by_size, split_by_tags, split_const_subgraphs};
use crate::graph::{Graph, GraphModule, lint, print};
use crate::infer::{InferOptions, infer};
use crate::interp;
use crate::pass::{PassManager, PassOptions, specialize};
use crate::tensor::Tensor;
use crate::types::{DType, TensorType, Val};
use std::collections::HashMap;

fn module(g: Graph) -> GraphModule {
    let mut m = GraphModule::new("main", g);
    let inputs =
        vec![Val::Leaf(TensorType::with_fixed_shape(DType::F32, &[4])); m.entry().unwrap().placeholders().len()];
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

fn result(m: &GraphModule) -> interp::RuntimeValue {
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
        for horizontal in [false, true] {
            let mut p = Partitioner::new(Some(&whole), g, |g, n| g[n].target() != unsupported);
            p.allow_single_node = true;
            p.skip_horizontal_fusion = !horizontal;
            let parts = p.propose();
            let mut m = whole.clone();
            super::split::fuse(&mut m, "main", &parts).unwrap();
            assert_eq!(result(&m), result(&whole), "{unsupported}: {}", print(&m));
        }
    }
}

/// The names of the nodes of each proposed part.
fn proposed(g: &Graph, set: impl Fn(&mut Partitioner<'_>)) -> Vec<Vec<String>> {
    let mut p = Partitioner::new(None, g, |g, n| g[n].target() != "sin");
    set(&mut p);
    let mut parts = p.propose();
    p.remove_bookend_non_compute_ops(&mut parts);
    let names = |p: super::split::GraphPart| p.nodes.iter().map(|&n| g[n].name().to_string()).collect();
    parts.into_iter().map(names).collect()
}

#[test]
fn options_decide_what_is_a_part() {
    let g = Graph::trace(&["x", "y"], |_, p| {
        let a = p[0].method("exp", ());
        let b = a.method("sin", ());
        let c = p[1].method("cos", ());
        let parts = b.method("chunk", (2,));
        (parts.item(0) + c, parts.item(1).method("view", (-1,)))
    });
    // At most one part where parts need not use each other: `chunk` and what follows need `sin`, which needs `exp`.
    let all = proposed(&g, |_| {});
    assert_eq!(
        all,
        [vec!["exp", "cos"], vec!["chunk", "getitem", "add", "getitem_1", "view"]]
    );
    let vertical = proposed(&g, |p| p.skip_horizontal_fusion = true);
    assert_eq!(vertical.len(), 1, "{vertical:?}");
    let single = proposed(&g, |p| {
        p.skip_horizontal_fusion = true;
        p.allowed_single_node_ops = vec!["torch.exp".into()];
    });
    assert_eq!(single[0], ["exp"]);
    let idle = proposed(&g, |p| p.non_compute_ops = vec!["torch.ops.aten.view.default".into()]);
    assert_eq!(idle[1], ["chunk", "getitem", "add", "getitem_1"]);
}

#[test]
fn effects_keep_their_order_in_parts() {
    let g = Graph::trace(&["x"], |t, p| {
        let a = t.function("torch.rand", (4,), &[]);
        let b = t.function("torch.randn", (4,), &[]);
        let c = t.function("torch.rand", (4,), &[]);
        &p[0] + a + b + c
    });
    let p = Partitioner::new(None, &g, |g, n| g[n].target() == "torch.rand");
    let mut p = p;
    p.allow_single_node = true;
    let parts = p.propose();
    assert_eq!(parts.len(), 2);
    super::split::fuse(&mut GraphModule::new("main", g.clone()), "main", &parts).unwrap();
}

#[test]
fn tags_and_sizes_split() {
    let whole = module(chain());
    let mut m = whole.clone();
    let first = |g: &Graph, n| {
        Some(
            if matches!(g[n].target(), "exp" | "operator.add") {
                "ro"
            } else {
                "main"
            }
            .into(),
        )
    };
    let names = split_by_tags(&mut m, "main", &["ro", "main"], first).unwrap();
    assert_eq!(names.iter().map(|n| &**n).collect::<Vec<_>>(), ["ro", "main_1"]);
    assert_eq!(result(&m), result(&whole), "{}", print(&m));
    let e = split_by_tags(&mut whole.clone(), "main", &["main", "ro"], first).unwrap_err();
    assert_eq!(
        e.0,
        "Component main order must be >= max of its upstream components, order=0 and max=1"
    );
    let e = split_by_tags(&mut whole.clone(), "main", &["ro"], |_, _| None).unwrap_err();
    assert!(e.0.starts_with("Node does not have tag: %exp : "), "{}", e.0);

    for (most, parts) in [(1, 5), (2, 3), (100, 1)] {
        let mut m = whole.clone();
        let made = split_by_size(&mut m, "main", most, |_, _, _| 1).unwrap();
        assert_eq!(made.len(), parts);
        assert_eq!(result(&m), result(&whole), "{}", print(&m));
    }
}

#[test]
fn sizes_move_to_where_they_are_used() {
    let g = Graph::trace(&["x"], |_, p| {
        let a = p[0].method("exp", ());
        let n = a.method("size", (0,));
        let twice = n * 2;
        a.method("expand", (&twice,))
    });
    let m = {
        let mut m = GraphModule::new("main", g);
        let inputs = vec![Val::Leaf(TensorType::with_fixed_shape(DType::F32, &[1]))];
        infer(&mut m, &InferOptions { inputs });
        m
    };
    let g = m.entry().unwrap();
    let find = |n: &str| g.find(n).unwrap();
    let part = |nodes: &[&str]| super::split::GraphPart {
        name: "p".into(),
        nodes: nodes.iter().map(|n| find(n)).collect(),
    };
    let mut parts = [part(&["exp", "size", "mul"]), part(&["expand"])];
    move_non_tensor_nodes_on_boundary(g, &mut parts);
    assert_eq!(parts[0].nodes, [find("exp")]);
    assert_eq!(parts[1].nodes, [find("size"), find("mul"), find("expand")]);
}

#[test]
fn what_depends_on_attributes_alone_is_folded() {
    let g = Graph::trace(&["x"], |t, p| {
        let w = t.attribute("w");
        let half = (&w * 2).method("sin", ());
        let noise = t.function("torch.rand_like", (&w,), &[]);
        (&p[0] + half, noise.method("shape", ()).named("odd"), w)
    });
    let g = {
        let mut g = g;
        let odd = g.find("odd").unwrap();
        let w = g.find("w").unwrap();
        g.replace_all_uses_with(odd, w);
        g.erase_node(odd).unwrap();
        g
    };
    let mut m = GraphModule::new("main", g);
    m.add_parameter("w", Tensor::from_slice(&[4], &[0.5f32, 1.0, 1.5, 2.0]));
    let mut folded = split_const_subgraphs(&m, "main", |_, _| false).unwrap();
    assert_eq!(folded.names.len(), 1);
    let x = Val::Leaf(Tensor::from_slice(&[4], &[0.5f32, -1.0, 2.0, 0.0]));
    assert!(interp::run(&folded.module, vec![x]).is_err());
    folded.run_folding().unwrap();
    let (a, b) = (result(&folded.module), result(&m));
    assert_eq!(a.items().unwrap()[0], b.items().unwrap()[0]);
    let calls = folded.module.entry().unwrap();
    assert!(calls.find_calls("sin").is_empty() && calls.find_calls("torch.rand_like").len() == 1);
    let none = split_const_subgraphs(&m, "main", |_, _| true).unwrap();
    assert!(none.constants.is_none());
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
        let mut passes = PassManager::from_names(&["normalize", "canonicalise"]).unwrap();
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
