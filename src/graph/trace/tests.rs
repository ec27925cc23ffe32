use super::*;

struct Twice;
impl Module for Twice {
    fn forward(&self, _tracer: &Tracer, inputs: &[Proxy]) -> Proxy {
        2 * &inputs[0]
    }
}

fn text(g: &Graph) -> Vec<String> {
    g.iter().map(|n| format!("{} {}", g[n].op(), g[n].target())).collect()
}

#[test]
fn modules_are_leaves_by_choice() {
    let f = |t: &Tracer, p: &[Proxy]| t.module("twice", &Twice, p);
    let open = Graph::trace(&["x"], f);
    assert_eq!(
        text(&open),
        ["placeholder x", "call_function operator.mul", "output output"]
    );
    let closed = Graph::trace_with(&["x"], |path, _| path == "twice", f);
    assert_eq!(text(&closed), ["placeholder x", "call_module twice", "output output"]);
}

#[test]
fn nodes_know_their_modules_and_places() {
    let g = Graph::trace(&["x"], |t, p| {
        t.record_stack_traces();
        let y = t.annotate("stage", "one", || t.module("twice", &Twice, p));
        &y + 1
    });
    let meta = |name: &str| &g[g.find(name).unwrap()].meta;
    let modules = &meta("mul").modules;
    assert_eq!((&*modules[0].path, modules[0].class_name()), ("twice", "Twice"));
    assert!(meta("add").modules.is_empty() && meta("add").custom.is_empty());
    assert_eq!(meta("mul").custom, [("stage".into(), "one".into())]);
    let (mul, add) = (meta("mul").loc.as_ref().unwrap(), meta("add").loc.as_ref().unwrap());
    assert!(
        mul.file.ends_with("trace/tests.rs") && &*mul.function == "Twice",
        "{mul:?}"
    );
    assert!(mul.line > 0 && mul.line < add.line, "{mul:?} {add:?}");
}

#[test]
fn literals_stand_on_either_side() {
    let g = Graph::trace(&["x"], |_, p| {
        let y = 1.0 - &p[0];
        let z = (-&y).pow(2) % 3;
        (z.item(0).named("first"), vec![y, p[0].clone()], true)
    });
    let sub = g.find("sub").unwrap();
    assert_eq!(g[sub].args(), [Val::Float(1.0), Val::Leaf(g.find("x").unwrap())]);
    assert!(g.find("first").is_some());
    assert!(!super::super::lint::lint_graph("g", &g, None).has_errors());
}
