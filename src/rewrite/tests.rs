//! Tests of matching and replacing on texts: a model with rules, and the result.

use super::torch::{
    MatchOptions, NamedMatcher, SubgraphMatcher, compare_graphs, replace_pattern, replace_pattern_with_filters,
};
use super::{RewriteOptions, RewriteReport, Rule, compile, rewrite};
use crate::graph::trace::{IntoArg, Proxy};
use crate::graph::{Arg, Graph, GraphModule};
use crate::infer::{InferOptions, infer};
use crate::source::FileId;
use crate::types::Val;

fn run(text: &str) -> (GraphModule, RewriteReport) {
    let (tree, found) = crate::syntax::parse_text(FileId(0), text);
    assert!(found.is_empty(), "{found:?}");
    let (rules, found) = compile(&tree);
    assert!(found.is_empty(), "{found:?}");
    let (mut module, found) = crate::graph::build(&tree, "g");
    assert!(found.is_empty(), "{found:?}");
    let found = infer(&mut module, &InferOptions::default());
    assert!(found.is_empty(), "{found:?}");
    let options = RewriteOptions {
        fast: true,
        remarks: true,
        ..RewriteOptions::default()
    };
    let report = rewrite(&mut module, &rules, &options).unwrap_or_else(|d| panic!("{d:?}"));
    let mut again = module.clone();
    let found = infer(&mut again, &InferOptions::default());
    assert!(
        found.is_empty() && !crate::graph::lint(&again).has_errors(),
        "{found:?}"
    );
    (module, report)
}

/// The targets of the remaining calls.
fn targets(m: &GraphModule) -> Vec<String> {
    let g = m.entry().unwrap();
    let calls = g.iter().filter(|&n| g[n].op().is_call());
    calls.map(|n| g[n].target().to_string()).collect()
}

fn failure(r: &RewriteReport, rule: &str) -> String {
    let near = r.remarks.iter().find(|m| &*m.rule == rule && m.failed.is_some());
    near.and_then(|m| m.failed.clone()).unwrap_or_default()
}

const RELU_OF_SUM: &str = "rewrite rule(%a, %b) {
    %s = call_function add(%a, %b)
    %r = call_function relu(%s)
    output %r
} => {
    %m = call_function maximum(%a, %b)
    output %m
}";

#[test]
fn spellings_styles_and_orders_are_one() {
    for line in [
        "%s = call_function operator.add(%x, %y)\n%r = call_function torch.nn.functional.relu(%s, inplace=False)",
        "%s = call_function torch.add(%x, other=%y)\n%r = call_method relu(%s)",
        "%s = call_method add(%y, %x, alpha=1)\n%r = call_function torch.ops.aten.relu.default(%s)",
        "%s = call_function aten.add.Tensor(%x, %x)\n%r = call_function relu(%s)",
    ] {
        let model = format!(
            "graph g {{ %x : f32[2] = placeholder x\n%y : f32[2] = placeholder y\n{line}\noutput %r }}\n{RELU_OF_SUM}"
        );
        let (m, r) = run(&model);
        assert_eq!((r.total(), targets(&m)), (1, vec!["maximum".to_string()]), "{line}");
    }
}

#[test]
fn what_is_something_else_does_not_match() {
    for (line, why) in [
        (
            "%s = call_function torch.add(%x, %y, alpha=2)\n%r = call_method relu(%s)",
            "2 is not 1",
        ),
        (
            "%s = call_function torch.sub(%x, %y)\n%r = call_method relu(%s)",
            "`%s` is `sub`, not `add`",
        ),
        (
            "%s = call_function torch.add(%x, %y)\n%q = call_method relu(%s)\n%r = call_function torch.mul(%q, %s)",
            "`%s`, inside the match, is used by `%r` outside it",
        ),
        ("%s = call_function torch.add(%x, %y)\n%r = call_method relu_(%s)", ""),
    ] {
        let model = format!(
            "graph g {{ %x : f32[2] = placeholder x\n%y : f32[2] = placeholder y\n{line}\noutput %r }}\n{RELU_OF_SUM}"
        );
        let (_, r) = run(&model);
        assert_eq!((r.total(), failure(&r, "rule").as_str()), (0, why), "{line}");
    }
}

#[test]
fn operands_that_are_scaled_keep_their_order() {
    let (_, r) = run(
        "graph g { %x : f32[2] = placeholder x\n%n = call_method neg(%x)\n%s = call_function torch.add(%n, %x, alpha=2)\noutput %s }
        rewrite rule(%a, %b, $k) { %n = call_function neg(%b)\n%s = call_function add(%a, %n, alpha=$k)\noutput %s }
        => { %s = call_function sub(%a, %b, alpha=$k)\noutput %s }",
    );
    assert_eq!(r.total(), 0);
}

#[test]
fn nodes_stand_in_lists_and_slices() {
    let (m, r) = run("graph g {
            %x : f32[4, 3] = placeholder x
            %y : f32[4, 2] = placeholder y
            %i = call_function operator.getitem(%x, (slice(None, None, None), slice(1, None, None)))
            %c = call_function torch.cat([%i, %y, %y], 1)
            output %c
        }
        rewrite rule(%x, $s, *%rest) {
            %i = call_function operator.getitem(%x, (slice(None, None, None), $s))
            %c = call_function cat([%i, *%rest], 1)
            output %c
        } => {
            %n = call_function neg(%x)
            %i = call_function operator.getitem(%n, (slice(None, None, None), $s))
            %c = call_function torch.cat([*%rest, %i], dim=len(%rest) - 1)
            output %c
        } where len(%rest) == 2 and size(%x, -1) == 3 and users(%x) == 1");
    assert_eq!(r.total(), 1);
    assert_eq!(targets(&m), ["neg", "operator.getitem", "torch.cat"]);
}

/// A parameter in place of a list matches a list of any length; a number matches a list of equal items.
#[test]
fn a_parameter_is_a_whole_list() {
    let model = |call: &str| {
        format!(
            "graph g {{ %x : f32[1, 2, 8, 8] = placeholder x\n%r = call_function {call}\noutput %r }}
            rewrite pool(%x, $k, $s, $p) {{ %r = call_function max_pool2d(%x, $k, $s, $p)\noutput %r }}
            => {{ %n = call_function neg(%x)\n%r = call_function avg_pool2d(%n, $k, $s, $p)\noutput %r }}
            rewrite flat(%x, $a) {{ %r = call_function reshape(%x, $a)\noutput %r }}
            => {{ %n = call_function neg(%x)\n%r = call_function view(%n, $a)\noutput %r }}
            rewrite last(%x) {{ %r = call_function sum(%x, len([1, 1]))\noutput %r }}
            => {{ %r = call_function amax(%x, 2)\noutput %r }}"
        )
    };
    for (call, becomes, want) in [
        (
            "max_pool2d(%x, 2)",
            "avg_pool2d",
            "[List([Int(Const(2)), Int(Const(2))]), List([]), List([Int(Const(0)), Int(Const(0))])]",
        ),
        (
            "max_pool2d(%x, [3, 2], (2, 1), [1, 0])",
            "avg_pool2d",
            "[List([Int(Const(3)), Int(Const(2))]), List([Int(Const(2)), Int(Const(1))]), List([Int(Const(1)), Int(Const(0))])]",
        ),
        (
            "reshape(%x, (4, -1, 8))",
            "view",
            "[List([Int(Const(4)), Int(Const(-1)), Int(Const(8))])]",
        ),
        ("reshape(%x, 4, 32)", "view", "[List([Int(Const(4)), Int(Const(32))])]"),
        ("reshape(%x, -1)", "view", "[List([Int(Const(-1))])]"),
        ("sum(%x, [2])", "amax", "[Int(Const(2))]"),
    ] {
        let (m, r) = run(&model(call));
        assert_eq!((r.total(), targets(&m).pop().as_deref()), (1, Some(becomes)), "{call}");
        let g = m.entry().unwrap();
        let last = g.iter().rfind(|&n| g[n].op().is_call()).unwrap();
        assert_eq!(format!("{:?}", &g[last].args()[1..]), want, "{call}");
    }
    assert_eq!(run(&model("sum(%x, [2, 1])")).1.total(), 0);
}

#[test]
fn a_parameter_that_stands_twice_is_one_value() {
    let model = |b: &str| {
        format!(
            "graph g {{ %x : f32[2] = placeholder x\n%y : f32[2] = placeholder y\n%s = call_function torch.sub(%x, {b})\n\
             %t = call_function torch.mul(%s, %x)\noutput %t }}
            rewrite rule(%a, %b) {{ %s = call_function sub(%a, %b)\n%t = call_function mul(%a, %s)\noutput %t }}
            => {{ %n = call_function neg(%b)\n%t = call_function mul(%a, %n)\noutput %t }}"
        )
    };
    // The product's operands are in the other order; two parameters may match the same value.
    for b in ["%y", "%x"] {
        assert_eq!(run(&model(b)).1.total(), 1, "{b}");
    }
    let other = model("%y").replace("torch.mul(%s, %x)", "torch.mul(%s, %y)");
    let (_, r) = run(&other);
    assert_eq!(
        (r.total(), failure(&r, "rule").as_str()),
        (0, "`%a` would be both `%y` and `%x`")
    );
}

#[test]
fn patterns_compute_with_literals() {
    let model = |end: i64| {
        format!(
            "graph g {{ %x : f32[9] = placeholder x\n%s = call_function slice(%x, 0, 3, {end})\noutput %s }}
            rewrite rule(%x, $a) {{ %s = call_function slice(%x, 0, $a, $a + 4)\noutput %s }}
            => {{ %s = call_function narrow(%x, 0, $a, 2 * 2)\noutput %s }} where $a % 2 == 1 and not $a in [1, 5]"
        )
    };
    let (m, r) = run(&model(7));
    assert_eq!((r.total(), targets(&m)), (1, vec!["narrow".to_string()]));
    let (_, r) = run(&model(6));
    assert_eq!(r.total(), 0);
    assert!(failure(&r, "rule").contains("`$a + 4` is 7, not 6"), "{r:?}");
}

#[test]
fn nodes_stand_in_slices() {
    let (m, r) = run("graph g {
            %x : f32[9] = placeholder x
            %n : int = placeholder n
            %m = call_function operator.add(%n, 1)
            %s = call_function operator.getitem(%x, slice(%n, %m, None))
            output %s
        }
        rewrite rule(%x, %n) {
            %m = call_function operator.add(%n, 1)
            %s = call_function operator.getitem(%x, slice(%n, %m, None))
            output %s
        } => {
            %s = call_function torch.narrow(%x, 0, %n, 1)
            output %s
        }");
    assert_eq!((r.total(), targets(&m)), (1, vec!["torch.narrow".to_string()]), "{r:?}");
}

#[test]
fn several_results_are_replaced_as_one() {
    let (m, r) = run("graph g {
            %x : f32[4] = placeholder x
            %s = call_function torch.sin(%x)  loc(\"m.py\":7 in forward)
            %e = call_function torch.exp(%x)
            %c = call_function torch.cos(%x)
            %a = call_function torch.sub(%s, %c)
            output (%a, %e)
        }
        rewrite rule(%x) {
            %s = call_function sin(%x)
            %c = call_function cos(%x)
            output (%s, %c)
        } => {
            %n = call_function neg(%x)
            %p = call_function tanh(%n)
            %q = call_function exp(%n)
            output (%p, %q)
        } where users(%s) == 1");
    let g = m.entry().unwrap();
    assert_eq!(r.total(), 1);
    let p = g.find("p").unwrap();
    let meta = &g[p].meta;
    assert_eq!(meta.loc.as_ref().map(|l| l.line), Some(7));
    assert_eq!(
        meta.provenance.iter().map(|p| &**p).collect::<Vec<_>>(),
        ["s", "c", "rule"]
    );
}

#[test]
fn types_sizes_and_constants_decide() {
    let model = |ty: &str| {
        format!(
            "const half : f32[] = 0.5
            graph g {{ %x : {ty} = placeholder x\n%h = get_attr half\n%r = call_function torch.mul(%x, %h)\noutput %r }}
            rewrite rule(%x : f32[N, M], %c) {{ %r = call_function mul(%x, %c)\noutput %r }}
            => {{ %r = call_function div(%x, 1 / value(%c))\noutput %r }} where is_const(%c) and N == 2 * M"
        )
    };
    let (m, r) = run(&model("f32[4, 2]"));
    assert_eq!((r.total(), targets(&m)), (1, vec!["div".to_string()]));
    let (_, r) = run(&model("f32[4, 3]"));
    assert!(failure(&r, "rule").contains("is false"), "{r:?}");
    let (_, r) = run(&model("f32[K, 3]"));
    assert!(failure(&r, "rule").contains("cannot be proved"), "{r:?}");
    let (_, r) = run(&model("f64[4, 2]"));
    assert!(failure(&r, "rule").contains("f64[4, 2], not f32[N, M]"), "{r:?}");
}

#[test]
fn modules_are_the_ops_they_stand_for() {
    let (m, r) = run("module fc = Linear(2, 3)
        param fc.weight : f32[3, 2]
        param fc.bias : f32[3]
        graph g { %x : f32[4, 2] = placeholder x\n%y = call_module fc(%x)\noutput %y }
        rewrite rule(%x, %w, %b) { %r = call_function linear(%x, %w, %b)\noutput %r }
        => { %t = call_function t(%w)\n%r = call_function addmm(%b, %x, %t)\noutput %r }");
    assert_eq!(
        (r.total(), targets(&m)),
        (1, vec!["t".to_string(), "addmm".to_string()])
    );
}

#[test]
fn nothing_moves_across_a_write() {
    let model = |between: &str| {
        format!(
            "graph g {{ %x : f32[2] = placeholder x\n%s = call_function torch.add(%x, 1)\n{between}\n%r = call_method relu(%s)\n\
             output (%r, %x) }}\n{RELU_OF_SUM}"
        )
    };
    let (_, r) = run(&model("%w = call_method mul_(%x, 2)"));
    assert_eq!(r.total(), 0);
    assert!(failure(&r, "rule").contains("writes in place"), "{r:?}");
}

#[test]
fn torchs_replace_pattern_takes_overlaps_once() {
    let relu2 = Graph::trace(&["x"], |t, p| {
        let a = t.function("torch.relu", (&p[0],), &[]);
        t.function("torch.relu", (a,), &[])
    });
    let neg = Graph::trace(&["x"], |t, p| t.function("torch.neg", (&p[0],), &[]));
    let mut g = Graph::trace(&["x"], |t, p| {
        let mut v = p[0].clone();
        for _ in 0..3 {
            v = t.function("torch.relu", (v,), &[]);
        }
        v
    });
    let done = replace_pattern(&mut g, &relu2, &neg).unwrap();
    assert_eq!(done.len(), 1);
    assert_eq!(g.len(), 4);
    let accept_none = |_: &super::torch::InternalMatch, _: &Graph, _: &Graph| false;
    let done = replace_pattern_with_filters(
        &mut g,
        &neg,
        Some(&relu2),
        &[&accept_none],
        MatchOptions::default(),
        None,
    )
    .unwrap();
    assert!(done.is_empty());
}

#[test]
fn patterns_name_their_nodes() {
    let pattern = Graph::trace(&["a", "b"], |_, p| {
        let sum = &p[0] + &p[1];
        let result = sum.method("relu", ());
        let named = |n: &str, p: &Proxy| (Val::str(n), p.clone().into_arg());
        let dict: Arg = Val::Dict(vec![named("sum", &sum), named("act", &result)]);
        (result, dict)
    });
    let graph = Graph::trace(&["x"], |_, p| ((&p[0] + 1).method("relu", ()) + 2).method("exp", ()));
    let found = NamedMatcher::new(&pattern, MatchOptions::default())
        .unwrap()
        .match_graph(&graph);
    assert_eq!(found.len(), 1);
    let node = |n: &str| *found[0].name_node_map[n].as_leaf().unwrap();
    assert_eq!(
        (node("sum"), node("act")),
        (graph.find("add").unwrap(), graph.find("relu").unwrap())
    );
    let e = NamedMatcher::new(&graph, MatchOptions::default()).err().unwrap();
    assert_eq!(
        e.0,
        "Expecting the input graph to have a dict output as the last element"
    );
    // Matches by name, whatever the node calls.
    let options = MatchOptions {
        node_name_match: "exp".into(),
        ..MatchOptions::default()
    };
    let relu = Graph::trace(&["a"], |_, p| p[0].method("relu", ()));
    assert_eq!(
        SubgraphMatcher::new(&relu, options).unwrap().match_graph(&graph).len(),
        2
    );
}

#[test]
fn graphs_are_compared_node_by_node() {
    let one = |name: &str, k: i64| {
        Graph::trace(&[name], |_, p| {
            let a = p[0].method("exp", ());
            (&a + k, a.method("sin", ()))
        })
    };
    assert!(compare_graphs(&one("x", 1), &one("y", 1)));
    assert!(!compare_graphs(&one("x", 1), &one("y", 2)));
    let other = Graph::trace(&["x"], |_, p| p[0].method("exp", ()));
    assert!(!compare_graphs(&one("x", 1), &other) && !compare_graphs(&other, &one("x", 1)));
}

#[test]
fn torchs_matcher_has_torchs_limits_and_words() {
    let product = Graph::trace(&["a", "b"], |_, p| &p[0] * &p[1]);
    let square = Graph::trace(&["x"], |_, p| &p[0] * &p[0]);
    let matcher = SubgraphMatcher::new(&product, MatchOptions::default()).unwrap();
    assert!(matcher.match_graph(&square).is_empty());
    let rule = Rule::from_graphs("r", &product, &product).unwrap();
    let mut views = super::view::Views::default();
    let module = GraphModule::default();
    let mul = square.find("mul").unwrap();
    assert!(
        super::Matcher::new(&module, "", &square, &rule, &mut views)
            .match_at(mul)
            .is_some()
    );

    let dead = Graph::trace(&["a"], |t, p| {
        t.function("torch.relu", (&p[0],), &[]);
        &p[0] + 1
    });
    let e = SubgraphMatcher::new(&dead, MatchOptions::default()).err().unwrap();
    assert_eq!(
        e.0,
        "SubgraphMatcher cannot be initialized with a pattern with dead code"
    );
    let one = Graph::trace(&["a"], |_, p| -&p[0]);
    let e = replace_pattern(&mut square.clone(), &product, &one);
    assert!(e.is_ok_and(|r| r.is_empty()));
    let mut both = Graph::trace(&["x", "y"], |_, p| &p[0] * &p[1]);
    let e = replace_pattern(&mut both, &product, &one).unwrap_err();
    assert_eq!(e.0, "Placeholder count mismatch: 2 vs 1");
}
