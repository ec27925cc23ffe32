//! Passes against the interpreter: a graph must compute the same before and after.

use super::*;
use crate::graph::Arg;
use crate::graph::lint;
use crate::infer::{InferOptions, infer};
use crate::interp;
use crate::tensor::{Scalar, Tensor};
use crate::types::{DType, TensorType, Val};

struct G {
    graph: Graph,
}

fn x(n: NodeId) -> Arg {
    Val::Leaf(n)
}

impl G {
    fn new() -> G {
        G { graph: Graph::new() }
    }

    fn input(&mut self, name: &str, dtype: DType, shape: &[usize]) -> NodeId {
        let n = self.graph.placeholder(name, None);
        let meta = self.graph.meta_mut(n);
        meta.ty = Some(Val::Leaf(TensorType::with_fixed_shape(dtype, shape)));
        meta.declared = true;
        n
    }

    fn f(&mut self, target: &str, args: Vec<Arg>) -> NodeId {
        self.graph.call_function(target, args, vec![])
    }

    fn m(&mut self, target: &str, args: Vec<Arg>) -> NodeId {
        self.graph.call_method(target, args, vec![])
    }

    fn module(mut self, result: Arg) -> GraphModule {
        self.graph.set_output(result);
        let mut m = GraphModule::new("g", self.graph);
        let d = infer(&mut m, &InferOptions::default());
        assert!(d.is_empty(), "{d:?}");
        m
    }
}

fn random(ty: &TensorType, seed: &mut u64) -> Tensor {
    // Every symbolic size is 3.
    let dims = ty.shape.as_ref().unwrap().iter();
    let shape: Vec<usize> = dims.map(|d| d.as_const().unwrap_or(3) as usize).collect();
    Tensor::from_fn(ty.dtype, &shape, |_| {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        Scalar::F64((*seed >> 40) as f64 / (1 << 22) as f64 - 2.0)
    })
}

/// Runs the module and returns the results that the user sees, flattened.
fn results(m: &GraphModule, inputs: &[interp::RuntimeValue]) -> Vec<interp::RuntimeValue> {
    let v = interp::run(m, inputs.to_vec()).unwrap_or_else(|d| panic!("{d:?}"));
    let lead = m.entry().unwrap().mutations.len();
    v.flatten().into_iter().skip(lead).cloned().collect()
}

fn same(m: GraphModule, run: impl Fn(&mut GraphModule)) -> GraphModule {
    alike(m, 0.0, run)
}

/// Runs passes, and compares the graph's results before and after. Numbers may differ by at most `most`.
pub(super) fn alike(m: GraphModule, most: f64, run: impl Fn(&mut GraphModule)) -> GraphModule {
    let mut after = m.clone();
    run(&mut after);
    let found = lint(&after);
    assert!(!found.has_errors(), "{found:?}\n{:?}", after.entry());
    let mut typed = after.clone();
    let d = infer(&mut typed, &InferOptions::default());
    assert!(d.is_empty(), "{d:?}");
    let graph = m.entry().unwrap();
    let mut seed = 1;
    let inputs: Vec<_> = graph
        .placeholders()
        .iter()
        .map(|&p| match graph[p].meta.ty.as_ref().unwrap() {
            Val::Leaf(t) => Val::Leaf(random(t, &mut seed)),
            t => panic!("{t}"),
        })
        .collect();
    let (before, now) = (results(&m, &inputs), results(&after, &inputs));
    let near = |a: &interp::RuntimeValue, b: &interp::RuntimeValue| match (a, b) {
        (Val::Leaf(a), Val::Leaf(b)) if most > 0.0 && a.ty() == b.ty() => {
            (0..a.numel()).all(|i| (a.get(i).to_f64() - b.get(i).to_f64()).abs() <= most)
        }
        _ => a == b,
    };
    let agree = before.len() == now.len() && before.iter().zip(&now).all(|(a, b)| near(a, b));
    assert!(agree, "{before:?}\n{now:?}\n{:?}", names(&after));
    after
}

fn names(m: &GraphModule) -> Vec<String> {
    let g = m.entry().unwrap();
    g.iter()
        .map(|n| format!("{} = {} {:?}", g[n].name(), g[n].target(), g[n].args()))
        .collect()
}

fn targets(m: &GraphModule) -> Vec<String> {
    let g = m.entry().unwrap();
    g.iter()
        .filter(|&n| g[n].op().is_call())
        .map(|n| g[n].target().to_string())
        .collect()
}

fn optimized(m: &mut GraphModule) {
    let options = PassOptions {
        verify_each: true,
        ..PassOptions::default()
    };
    optimize(m, &options).unwrap_or_else(|d| panic!("{d:?}"));
}

#[test]
fn writes_through_views_of_views_are_seen() {
    let mut g = G::new();
    let a = g.input("a", DType::F32, &[3, 4]);
    let y = g.f("torch.exp", vec![x(a)]);
    let t = g.m("transpose", vec![x(y), Val::int(0), Val::int(1)]);
    let row = g.m("select", vec![x(t), Val::int(0), Val::int(2)]);
    let early = g.f("torch.neg", vec![x(y)]);
    g.m("add_", vec![x(row), Val::int(5)]);
    let s = g.f("torch.sin", vec![x(y)]);
    g.m("mul_", vec![x(y), x(y)]);
    let m = g.module(Val::Tuple(vec![x(row), x(t), x(y), x(s), x(early)]));
    let after = same(m, |m| {
        functionalize(m).unwrap();
    });
    assert!(
        !targets(&after).iter().any(|t| t.ends_with('_')),
        "{:?}",
        targets(&after)
    );
}

#[test]
fn writes_to_the_first_elements_leave_the_others() {
    let mut g = G::new();
    let a = g.input("a", DType::F32, &[5, 4]);
    let y = g.f("torch.exp", vec![x(a)]);
    let slice = |g: &mut G, of, dim, from, to| g.f("torch.ops.aten.slice.Tensor", vec![x(of), dim, from, to]);
    let rows = slice(&mut g, y, Val::int(0), Val::int(0), Val::int(-2));
    let corner = slice(&mut g, rows, Val::int(1), Val::int(0), Val::int(3));
    g.m("fill_", vec![x(corner), Val::int(7)]);
    let t = g.m("t", vec![x(y)]);
    let columns = slice(&mut g, t, Val::int(0), Val::int(0), Val::int(2));
    g.m("neg_", vec![x(columns)]);
    same(g.module(Val::Tuple(vec![x(y), x(columns), x(corner)])), |m| {
        functionalize(m).unwrap();
    });
}

#[test]
fn a_reshape_that_copies_does_not_alias() {
    for (method, split) in [("reshape", false), ("reshape", true)] {
        let mut g = G::new();
        let a = g.input("a", DType::F32, &[3, 4]);
        let y = g.f("torch.exp", vec![x(a)]);
        let t = g.m("transpose", vec![x(y), Val::int(0), Val::int(1)]);
        let sizes = if split { vec![4, 3, 1] } else { vec![12] };
        let r = g.m(method, vec![x(t), Val::List(sizes.into_iter().map(Val::int).collect())]);
        g.m("add_", vec![x(r), Val::int(1)]);
        same(g.module(Val::Tuple(vec![x(y), x(r)])), |m| {
            functionalize(m).unwrap();
        });
    }
}

#[test]
fn chunks_and_metadata_writes() {
    let mut g = G::new();
    let a = g.input("a", DType::F32, &[6, 2]);
    let y = g.f("torch.exp", vec![x(a)]);
    let c = g.f("torch.chunk", vec![x(y), Val::int(3)]);
    let first = g.f("operator.getitem", vec![x(c), Val::int(1)]);
    g.m("relu_", vec![x(first)]);
    g.m("sub_", vec![x(first), Val::Float(0.5)]);
    g.m("unsqueeze_", vec![x(y), Val::int(0)]);
    let s = g.m("sum", vec![x(y), Val::int(1)]);
    same(g.module(Val::Tuple(vec![x(y), x(s), x(first)])), |m| {
        functionalize(m).unwrap();
    });
}

#[test]
fn written_inputs_are_recorded() {
    let mut g = G::new();
    let a = g.input("a", DType::F32, &[2]);
    g.m("add_", vec![x(a), Val::int(1)]);
    let y = g.f("torch.exp", vec![x(a)]);
    let after = same(g.module(x(y)), |m| {
        functionalize(m).unwrap();
    });
    assert_eq!(
        after.entry().unwrap().mutations,
        [crate::graph::Mutation::Input("a".into())]
    );
}

#[test]
fn the_pipeline_keeps_meaning() {
    let mut g = G::new();
    let a = g.input("a", DType::F32, &[2, 6]);
    let b = g.f("torch.nn.functional.gelu", vec![x(a)]);
    let c = g.m("view", vec![x(b), Val::int(3), Val::int(-1)]);
    let d = g.f("operator.add", vec![x(c), x(c)]);
    let e = g.f("torch.add", vec![x(c), x(c)]);
    let f = g.f("operator.mul", vec![x(d), x(e)]);
    let unused = g.f("torch.exp", vec![x(f)]);
    let _ = unused;
    let k = g.f("torch.arange", vec![Val::int(4)]);
    let k2 = g.f("operator.mul", vec![x(k), Val::int(3)]);
    let h = g.f("operator.add", vec![x(f), x(k2)]);
    let after = same(g.module(x(h)), optimized);
    assert_eq!(targets(&after), ["gelu", "view", "add", "mul", "add"]);
    assert!(after.attributes.keys().any(|k| k.starts_with("_folded_")));
}

fn attribute(m: &mut GraphModule, path: &str, value: Tensor) {
    let a = crate::graph::Attribute {
        kind: crate::graph::AttributeKind::Parameter,
        ty: None,
        value: Some(value),
        span: None,
    };
    m.attributes.insert(path.into(), a);
}

/// A convolution or product followed by a batch normalisation of its `channels` channels.
fn normalised(target: &str, input: &[usize], weight: &[usize], rest: Vec<Arg>, channels: usize) -> GraphModule {
    let mut g = G::new();
    let a = g.input("a", DType::F64, input);
    let get = |g: &mut G, p: &str| g.graph.get_attr(p);
    let (w, b) = (get(&mut g, "w"), get(&mut g, "b"));
    let mut args = vec![x(a), x(w), x(b)];
    args.extend(rest);
    let c = g.f(target, args);
    let stats: Vec<Arg> = ["gamma", "beta", "mean", "var"]
        .iter()
        .map(|p| x(g.graph.get_attr(p)))
        .collect();
    let mut args = vec![x(c)];
    args.extend(stats);
    args.extend([Val::Bool(false), Val::Float(0.1), Val::Float(1e-5), Val::Bool(true)]);
    let n = g.f("aten.batch_norm.default", args);
    g.graph.set_output(x(n));
    let mut m = GraphModule::new("g", g.graph);
    let mut seed = 7;
    attribute(
        &mut m,
        "w",
        random(&TensorType::with_fixed_shape(DType::F64, weight), &mut seed),
    );
    for p in ["b", "gamma", "beta", "mean"] {
        attribute(
            &mut m,
            p,
            random(&TensorType::with_fixed_shape(DType::F64, &[channels]), &mut seed),
        );
    }
    let var = random(&TensorType::with_fixed_shape(DType::F64, &[channels]), &mut seed);
    let var = Tensor::from_fn(DType::F64, &[channels], |i| {
        Scalar::F64(var.get(i).to_f64().abs() + 0.1)
    });
    attribute(&mut m, "var", var);
    let d = infer(&mut m, &InferOptions::default());
    assert!(d.is_empty(), "{d:?}");
    m
}

#[test]
fn batch_normalisation_folds_into_every_producer() {
    let two = |v: i64| Val::List(vec![Val::int(v); 2]);
    let plain = |groups: i64| vec![two(2), two(1), two(1), Val::int(groups)];
    let back = |groups: i64| vec![two(2), two(1), two(1), Val::int(groups), two(1)];
    let cases = [
        normalised("aten.conv2d.default", &[2, 4, 5, 5], &[6, 2, 3, 3], plain(2), 6),
        normalised("aten.conv_transpose2d.input", &[2, 4, 5, 5], &[4, 3, 3, 3], back(2), 6),
        normalised("aten.linear.default", &[3, 4], &[5, 4], vec![], 5),
    ];
    for m in cases {
        let mut after = m.clone();
        optimized(&mut after);
        assert_eq!(targets(&after).len(), 1, "{:?}", names(&after));
        let g = m.entry().unwrap();
        let ty = g[g.first().unwrap()].meta.ty.clone().unwrap();
        let input = vec![ty.map(|t| random(t, &mut 3))];
        let (a, b) = (results(&m, &input), results(&after, &input));
        let (a, b) = (a[0].as_leaf().unwrap(), b[0].as_leaf().unwrap());
        for i in 0..a.numel() {
            let (p, q) = (a.get(i).to_f64(), b.get(i).to_f64());
            assert!((p - q).abs() < 1e-12 * (1.0 + p.abs()), "{p} {q}");
        }
    }
}

/// The number of calls of `target`.
fn calls(m: &GraphModule, target: &str) -> usize {
    m.graphs
        .values()
        .map(|g| g.iter().filter(|&n| g[n].target() == target).count())
        .sum()
}

/// Passes neither add nor remove random draws, even if a draw is unused or two draws look the same.
#[test]
fn random_ops_are_never_merged_folded_or_dropped() {
    let mut g = G::new();
    let i = g.input("x", DType::F32, &[4]);
    let p = || vec![x(i), Val::Float(0.5), Val::Bool(true)];
    let size = || vec![Val::List(vec![Val::int(3)])];
    let (a, b) = (g.f("torch.rand", size()), g.f("torch.rand", size()));
    let (c, d) = (
        g.f("torch.nn.functional.dropout", p()),
        g.f("torch.nn.functional.dropout", p()),
    );
    g.f("torch.randn", size());
    g.f("torch.nn.functional.dropout", p());
    let perm = g.f("torch.randperm", vec![Val::int(5)]);
    g.f(
        "torch.nn.functional.dropout",
        vec![x(i), Val::Float(0.5), Val::Bool(false)],
    );
    let mut m = g.module(Val::Tuple(vec![x(a), x(b), x(c), x(d), x(perm)]));
    let input = interp::RuntimeValue::Leaf(Tensor::from_slice(&[4], &[1.0f32, 2.0, 3.0, 4.0]));
    optimize(&mut m, &PassOptions::default()).unwrap();
    let found = ["rand", "randn", "randperm", "dropout"].map(|t| calls(&m, t));
    assert_eq!(found, [2, 1, 1, 3], "{}", crate::graph::print(&m));
    let first = results(&m, &[input]);
    assert_ne!(first[0], first[1]);
}

/// An unused `cond` is dropped, but not if a branch draws random numbers.
#[test]
fn control_flow_does_what_its_graphs_do() {
    let branch = |target: &str, args: fn(NodeId) -> Vec<Arg>| {
        let mut g = Graph::new();
        let p = g.placeholder("x", None);
        let y = g.call_function(target, args(p), vec![]);
        g.set_output(x(y));
        g
    };
    let mut g = G::new();
    let i = g.input("x", DType::F32, &[4]);
    let p = g.input("p", DType::B8, &[]);
    let cond = |name: &str| {
        vec![
            x(p),
            Val::Graph(name.into()),
            Val::Graph("pure".into()),
            Val::Tuple(vec![x(i)]),
        ]
    };
    g.f("torch.cond", cond("random"));
    g.f("torch.cond", cond("pure"));
    g.graph.set_output(x(i));
    let mut m = GraphModule::new("g", g.graph);
    m.graphs.insert("pure".into(), branch("torch.relu", |p| vec![x(p)]));
    m.graphs
        .insert("random".into(), branch("torch.rand_like", |p| vec![x(p)]));
    let found = infer(&mut m, &InferOptions::default());
    assert!(found.is_empty(), "{found:?}");
    optimize(
        &mut m,
        &PassOptions {
            verify_each: true,
            ..PassOptions::default()
        },
    )
    .unwrap();
    assert_eq!(calls(&m, "cond"), 1);
}

#[test]
fn branches_that_are_known_are_called() {
    let text = "graph main {\n %x : f32[2, 3] = placeholder x\n %n = call_method size(%x, 0)\n %p = call_function operator.gt(%n, 1)\n %y = call_function torch.cond(%p, @a, @b, (%x,))\n output %y\n}\ngraph a { %x = placeholder x  %y = call_function torch.relu(%x)  output %y }\ngraph b { %x = placeholder x  output %x }";
    let (file, _) = crate::syntax::parse_text(crate::source::FileId(0), text);
    let (mut m, _) = crate::graph::build(&file, "m");
    let found = infer(&mut m, &InferOptions::default());
    assert!(found.is_empty(), "{found:?}");
    optimize(&mut m, &PassOptions::default()).unwrap();
    assert_eq!((calls(&m, "cond"), calls(&m, "relu"), m.graphs.len()), (0, 1, 1));
}

/// A graph that is called with other types becomes a separate graph.
#[test]
fn graphs_are_typed_for_each_call() {
    let mut rows = Graph::new();
    let p = rows.placeholder("x", None);
    let n = rows.call_method("size", vec![x(p), Val::int(0)], vec![]);
    let y = rows.call_function("operator.mul", vec![x(p), x(n)], vec![]);
    rows.set_output(x(y));
    let mut g = G::new();
    let a = g.input("a", DType::F32, &[2]);
    let b = g.input("b", DType::F32, &[3]);
    let cond = |of| {
        vec![
            Val::Bool(true),
            Val::Graph("rows".into()),
            Val::Graph("rows".into()),
            Val::Tuple(vec![x(of)]),
        ]
    };
    let (c, d) = (g.f("torch.cond", cond(a)), g.f("torch.cond", cond(b)));
    let (e, f) = (g.f("rows", vec![x(a)]), g.f("rows", vec![x(b)]));
    g.graph.set_output(Val::Tuple(vec![x(c), x(d), x(e), x(f)]));
    let mut m = GraphModule::new("g", g.graph);
    m.graphs.insert("rows".into(), rows);
    let found = infer(&mut m, &InferOptions::default());
    assert!(found.is_empty(), "{found:?}");
    let inputs = [2, 3].map(|n: usize| interp::RuntimeValue::Leaf(Tensor::from_slice(&[n], &vec![1.0f32; n])));
    let before = results(&m, &inputs);
    optimize(
        &mut m,
        &PassOptions {
            verify_each: true,
            ..PassOptions::default()
        },
    )
    .unwrap();
    assert_eq!(before, results(&m, &inputs));
    let last = |v: &interp::RuntimeValue| v.as_leaf().unwrap().get(0).to_f64();
    assert_eq!(before.iter().map(last).collect::<Vec<_>>(), [2.0, 3.0, 2.0, 3.0]);
}

/// Run-time checks stay: assertions that fail, and declared sizes of results whose sizes depend on values.
#[test]
fn what_only_running_tells_is_not_optimised_away() {
    let x = || Val::Leaf(Tensor::from_slice(&[4], &[1f32, 0., 0., 2.]));
    for body in [
        "%n : i64[4, 1] = call_function torch.nonzero(%x)
        %s = call_function torch.ops.aten.sym_size.int(%n, 0)
        %e = call_function operator.eq(%s, 4)
        %a = call_function torch.ops.aten._assert_scalar.default(%e, \"four\")
        output %s",
        "%m = call_function torch.gt(%x, 0)
        %v : f32[3] = call_function torch.masked_select(%x, %m)
        output %x",
        "%m = call_function torch.gt(%x, 0)
        %v : f32[3] = call_function operator.getitem(%x, %m)
        %n = call_method size(%v, 0)
        output %n",
        "%m = call_function torch.gt(%x, 0)
        %all = call_function torch.all(%m)
        %a = call_function torch.ops.aten._assert_async.default(%all)
        output %x",
        "%m = call_function torch.gt(%x, 0)
        %a = call_function torch._check_tensor_all(%m)
        output %x",
        "%s = call_function torch.sum(%x)
        %i = call_method item(%s)
        %b = call_function operator.gt(%i, 5)
        %a = call_function torch._check(%b)
        output %x",
        "%s = call_function torch.argmax(%x)
        %i = call_method item(%s)
        %a = call_function torch.ops.aten.sym_constrain_range.default(%i, min=4, max=9)
        output %x",
        "%s = call_function torch.argmax(%x)
        %i = call_method item(%s)
        %j = call_function operator.neg(%i)
        %a = call_function torch.ops.aten.sym_constrain_range_for_size.default(%j)
        output %x",
        "%s = call_function torch.argmax(%x)
        %i = call_method item(%s)
        %a = call_function torch._check_is_size(%i, max=2)
        output %x",
    ] {
        let mut m = crate::interp::tests::module(&format!("graph g {{ %x : f32[4] = placeholder x\n{body} }}"));
        assert!(crate::interp::run(&m, vec![x()]).is_err(), "{body}");
        super::optimize(&mut m, &PassOptions::default()).unwrap_or_else(|d| panic!("{body}: {d:?}"));
        assert!(crate::interp::run(&m, vec![x()]).is_err(), "optimised: {body}");
    }
}
