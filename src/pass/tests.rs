//! Passes against the interpreter: a graph computes the same before and after.

use super::*;
use crate::graph::Arg;
use crate::infer::infer;
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
        meta.ty = Some(Val::Leaf(TensorType::fixed(dtype, shape)));
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
    Tensor::from_fn(ty.dtype, &ty.fixed_shape().unwrap(), |_| {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        Scalar::F64((*seed >> 40) as f64 / (1 << 22) as f64 - 2.0)
    })
}

/// Runs the module, and gives the results the user sees, flattened.
fn results(m: &GraphModule, inputs: &[interp::Value]) -> Vec<interp::Value> {
    let v = interp::run(m, inputs.to_vec()).unwrap_or_else(|d| panic!("{d:?}"));
    let lead = m.entry().unwrap().mutations.len();
    v.flatten().into_iter().skip(lead).cloned().collect()
}

fn same(m: GraphModule, run: impl Fn(&mut GraphModule)) -> GraphModule {
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
    assert_eq!(results(&m, &inputs), results(&after, &inputs), "{:?}", names(&after));
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
