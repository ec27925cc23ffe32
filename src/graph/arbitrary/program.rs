//! Random graphs that can be run: every op exists and every shape fits.

use super::Rng;
use crate::graph::{Arg, Graph, NodeId};
use crate::types::{DType, TensorType, Val};

/// Generates a graph of `nodes` canonical ops on f32 tensors of fitting shapes, with typed placeholders and one to
/// three results.
pub fn program(seed: u64, nodes: usize) -> Graph {
    let r = &mut Rng::new(seed);
    let mut g = Graph::new();
    let mut live: Vec<(NodeId, Vec<usize>)> = vec![];
    for i in 0..r.next_below(3) + 1 {
        let shape: Vec<usize> = (0..r.next_below(3) + 1)
            .map(|_| [1, 2, 3, 5, 8, 17][r.next_below(6)])
            .collect();
        let x = g.placeholder(&format!("x{i}"), None);
        let meta = g.meta_mut(x);
        meta.ty = Some(Val::Leaf(TensorType::with_fixed_shape(DType::F32, &shape)));
        meta.declared = true;
        live.push((x, shape));
    }
    for _ in 0..nodes {
        let (x, shape) = live[r.next_below(live.len())].clone();
        let added = add_step(r, &mut g, &live, x, &shape);
        live.push(added);
    }
    let first = live.len().saturating_sub(r.next_below(3) + 1);
    let results: Vec<Arg> = live[first..].iter().map(|(n, _)| Val::Leaf(*n)).collect();
    g.set_output(Val::Tuple(results));
    g
}

/// Adds one op on `x`.
fn add_step(
    r: &mut Rng,
    g: &mut Graph,
    live: &[(NodeId, Vec<usize>)],
    x: NodeId,
    shape: &[usize],
) -> (NodeId, Vec<usize>) {
    let rank = shape.len();
    let leaf = Val::Leaf;
    match r.next_below(10) {
        0..=2 => {
            let op = r.pick(&["relu", "exp", "tanh", "neg", "abs", "sigmoid", "sin", "erf", "floor"]);
            (g.call_function(op, vec![leaf(x)], vec![]), shape.to_vec())
        }
        3 | 4 => add_binary(r, g, live, x, shape),
        5 => {
            let scalar = Val::Float(((r.next_unit() * 2.0 - 1.0) * 8.0).round() / 4.0);
            let op = r.pick(&["add", "sub", "mul"]);
            (g.call_function(op, vec![leaf(x), scalar], vec![]), shape.to_vec())
        }
        6 if rank > 0 => add_reduction(r, g, x, shape),
        7 if rank > 0 => {
            let args = vec![leaf(x), Val::int(r.next_below(rank) as i64)];
            (g.call_function("softmax", args, vec![]), shape.to_vec())
        }
        8 if rank > 1 => {
            let (a, b) = (r.next_below(rank), r.next_below(rank));
            let mut out = shape.to_vec();
            out.swap(a, b);
            let args = vec![leaf(x), Val::int(a as i64), Val::int(b as i64)];
            (g.call_function("transpose", args, vec![]), out)
        }
        _ => {
            let n: usize = shape.iter().product();
            let args = vec![leaf(x), Val::List(vec![Val::int(n as i64)])];
            (g.call_function("reshape", args, vec![]), vec![n])
        }
    }
}

/// Adds an op on `x` and another value to which its shape can be broadcast.
fn add_binary(
    r: &mut Rng,
    g: &mut Graph,
    live: &[(NodeId, Vec<usize>)],
    x: NodeId,
    shape: &[usize],
) -> (NodeId, Vec<usize>) {
    let op = r.pick(&["add", "sub", "mul", "div", "maximum", "minimum"]);
    let fitting = live
        .iter()
        .filter_map(|(n, s)| broadcast_shapes(shape, s).map(|out| (*n, out)));
    let fitting: Vec<_> = fitting.collect();
    let (y, out) = fitting[r.next_below(fitting.len())].clone();
    (g.call_function(op, vec![Val::Leaf(x), Val::Leaf(y)], vec![]), out)
}

fn add_reduction(r: &mut Rng, g: &mut Graph, x: NodeId, shape: &[usize]) -> (NodeId, Vec<usize>) {
    let d = r.next_below(shape.len());
    let keep = r.one_in(2);
    let op = r.pick(&["sum", "mean", "amax"]);
    let args = vec![Val::Leaf(x), Val::List(vec![Val::int(d as i64)]), Val::Bool(keep)];
    let mut out = shape.to_vec();
    if keep {
        out[d] = 1;
    } else {
        out.remove(d);
    }
    (g.call_function(op, args, vec![]), out)
}

/// The broadcast shape of two shapes; `None` if there is none, or if it has more than 4096 elements.
fn broadcast_shapes(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let aligned = |s: &[usize], i: usize| (i + s.len()).checked_sub(rank).map_or(1, |j| s[j]);
    let size = |i| match (aligned(a, i), aligned(b, i)) {
        (x, y) if x == y || y == 1 => Some(x),
        (1, y) => Some(y),
        _ => None,
    };
    let out: Option<Vec<usize>> = (0..rank).map(size).collect();
    out.filter(|s| s.iter().product::<usize>() <= 4096)
}
