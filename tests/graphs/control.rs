//! Control flow over random graphs.

use crate::grow::Grower;
use fxc::graph::{Arg, Graph, NodeId};
use fxc::internals::tensor::{SplitMix, Tensor};
use fxc::types::{DType, Val};
use std::sync::Arc;

/// Adds a call of graphs on the values so far.
pub fn add(g: &mut Grower) -> Option<String> {
    let (n, x) = g.pick(|t| t.dtype().is_float() && (1..=256).contains(&t.numel()))?;
    let (name, result) = match g.r.next_below(5) {
        0 => ("cond", cond(g, n, &x)?),
        1 => ("while_loop", while_loop(g, n, &x)?),
        2 => ("scan", scan(g, n, &x)?),
        3 => ("map_impl", map(g, n, &x)?),
        _ => ("associative_scan", associative_scan(g, n, &x)?),
    };
    for i in 0..result.1 {
        g.graph()
            .call_function("operator.getitem", vec![Val::Leaf(result.0), Val::int(i)], vec![]);
    }
    Some(name.to_string())
}

/// The call and the number of its results.
type Results = Option<(NodeId, i64)>;

fn call(g: &mut Grower, target: &str, args: Vec<Arg>) -> NodeId {
    g.graph().call_function(target, args, vec![])
}

/// Adds a graph that computes values of the types of `results` from inputs like `operands`.
fn add_graph(g: &mut Grower, operands: &[Tensor], results: &[Tensor]) -> Option<Arg> {
    let mut inner = Grower::new(SplitMix::new(g.r.next_u64()), true);
    for t in operands {
        inner.add_input_value(t.clone());
    }
    let count = 1 + g.r.next_below(3);
    inner.add_calls(count);
    let mut outputs = vec![];
    for wanted in results {
        let (n, t) = inner.pick(|t| t.dtype().is_float() && t.numel() > 0)?;
        outputs.push(Val::Leaf(inner.adapt(n, &t, (wanted.dtype(), wanted.shape()))?));
    }
    inner.graph().set_output(Val::Tuple(outputs));
    let graph = inner.module.graphs.swap_remove("main")?;
    Some(Val::Graph(insert(g, graph)))
}

fn insert(g: &mut Grower, graph: Graph) -> Arc<str> {
    let name: Arc<str> = format!("graph_{}", g.module.graphs.len()).into();
    g.module.graphs.insert(name.clone(), graph);
    name
}

fn cond(g: &mut Grower, n: NodeId, x: &Tensor) -> Results {
    let operands = [x.clone()];
    let (a, b) = (add_graph(g, &operands, &operands)?, add_graph(g, &operands, &operands)?);
    let sum = call(g, "torch.sum", vec![Val::Leaf(n)]);
    let p = call(g, "torch.gt", vec![Val::Leaf(sum), Val::int(0)]);
    let c = call(
        g,
        "torch.cond",
        vec![Val::Leaf(p), a, b, Val::Tuple(vec![Val::Leaf(n)])],
    );
    Some((c, 1))
}

/// A loop that counts to a small number.
fn while_loop(g: &mut Grower, n: NodeId, x: &Tensor) -> Results {
    let mut test = Graph::new();
    let i = test.placeholder("i", None);
    test.placeholder("x", None);
    let less = test.call_function(
        "torch.lt",
        vec![Val::Leaf(i), Val::int(g.r.next_below(4) as i64)],
        vec![],
    );
    test.set_output(Val::Leaf(less));
    let test = insert(g, test);
    let Val::Graph(body) = add_graph(g, &[Tensor::scalar(0i64), x.clone()], std::slice::from_ref(x))? else {
        return None;
    };
    // The body's first input is the counter.
    let graph = &mut g.module.graphs[&body];
    let i = graph.placeholders()[0];
    let output = graph.output()?;
    let next = graph.inserting_before(Some(output), |b| {
        b.call_function("torch.add", vec![Val::Leaf(i), Val::int(1)], vec![])
    });
    let results = graph[output].args()[0].items()?.to_vec();
    graph.set_args(
        output,
        vec![Val::Tuple([vec![Val::Leaf(next.ok()?)], results].concat())],
    );
    let zero = call(g, "aten.full.default", vec![Val::List(vec![]), Val::int(0)]);
    let zero = g
        .graph()
        .call_method("to", vec![Val::Leaf(zero), Val::DType(DType::I64)], vec![]);
    let carried = Val::Tuple(vec![Val::Leaf(zero), Val::Leaf(n)]);
    Some((
        call(
            g,
            "torch.while_loop",
            vec![Val::Graph(test), Val::Graph(body), carried, Val::Tuple(vec![])],
        ),
        2,
    ))
}

/// The rows of a tensor along its first dim: the shape without it, and a row.
fn row(x: &Tensor) -> Option<Tensor> {
    let shape = x.shape().get(1..)?;
    Some(Tensor::from_fn(x.dtype(), shape, |i| x.get(i)))
}

fn scan(g: &mut Grower, n: NodeId, x: &Tensor) -> Results {
    let row = row(x)?;
    let operands = [row.clone(), row.clone()];
    let f = add_graph(g, &operands, &operands)?;
    let h = call(g, "aten.select.int", vec![Val::Leaf(n), Val::int(0), Val::int(0)]);
    let list = |n| Val::List(vec![Val::Leaf(n)]);
    let call = call(
        g,
        "torch.ops.higher_order.scan",
        vec![f, list(h), list(n), Val::Tuple(vec![])],
    );
    Some((call, 2))
}

fn map(g: &mut Grower, n: NodeId, x: &Tensor) -> Results {
    let row = row(x)?;
    let f = add_graph(g, std::slice::from_ref(&row), std::slice::from_ref(&row))?;
    let rows = Val::List(vec![Val::Leaf(n)]);
    Some((
        call(g, "torch.ops.higher_order.map_impl", vec![f, rows, Val::List(vec![])]),
        1,
    ))
}

fn associative_scan(g: &mut Grower, n: NodeId, x: &Tensor) -> Results {
    row(x)?;
    let mut f = Graph::new();
    let (a, b) = (f.placeholder("a", None), f.placeholder("b", None));
    let combine = g.r.pick(&["torch.add", "torch.maximum", "torch.mul", "torch.minimum"]);
    let y = f.call_function(combine, vec![Val::Leaf(a), Val::Leaf(b)], vec![]);
    f.set_output(Val::Tuple(vec![Val::Leaf(y)]));
    let f = Val::Graph(insert(g, f));
    let rows = Val::List(vec![Val::Leaf(n)]);
    Some((
        call(
            g,
            "torch.ops.higher_order.associative_scan",
            vec![f, rows, Val::Tuple(vec![])],
        ),
        1,
    ))
}
