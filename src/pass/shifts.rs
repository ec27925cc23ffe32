//! `index_select` at constant places that follow each other: a slice, or a roll where they wrap around.
//!
//! `run_decompositions` of `torch.export` leaves `roll(x, s, d)` as `index_select(x, d, (arange(n) + n - s) % n)`; the
//! indices are constants once they are folded.

use super::build::{GraphBuilder, Source, full_args};
use super::canonical_op;
use crate::graph::{Graph, GraphModule, InsertPoint, NodeId, Opcode};
use crate::op::Build;
use crate::tensor::Tensor;
use crate::types::{Category, Val};
use cranelift_entity::EntityRef;

/// Indices of more elements than this are not looked at.
const LONGEST: usize = 1 << 20;

/// How the places follow each other.
#[derive(Debug, PartialEq)]
enum Run {
    /// From this one on.
    Slice(i64),
    /// All of them, the first being this one.
    Roll(i64),
}

/// The run that indices into a dim of `n` elements are.
fn run(index: &[i64], n: i64) -> Option<Run> {
    let first = *index.first().filter(|&&f| (0..n).contains(&f))?;
    let count = index.len() as i64;
    let follows = |wrap: bool| {
        let place = |i: i64| if wrap { (first + i) % n } else { first + i };
        index.iter().zip(0..).all(|(&at, i)| at == place(i))
    };
    if first + count <= n && follows(false) {
        return Some(Run::Slice(first));
    }
    (count == n && follows(true)).then_some(Run::Roll(first))
}

/// The values of a constant vector of integers.
fn constant(module: &GraphModule, graph: &Graph, n: NodeId) -> Option<Vec<i64>> {
    let node = &graph[n];
    if node.op() != Opcode::GetAttr || graph.writes_buffer(node.target()) {
        return None;
    }
    let t: &Tensor = module.attributes.get(node.target())?.value.as_ref()?;
    let vector = t.rank() == 1 && t.numel() <= LONGEST && t.dtype().category() == Category::Int;
    vector.then(|| (0..t.numel()).map(|i| t.get(i).to_i64()).collect())
}

/// Replaces `n` if it selects consecutive places; gives whether it did.
pub(super) fn rewrite(module: &GraphModule, graph: &mut Graph, n: NodeId) -> bool {
    replaced(module, graph, n).is_some()
}

fn replaced(module: &GraphModule, graph: &mut Graph, n: NodeId) -> Option<()> {
    let op = canonical_op(graph, n).filter(|op| op.name == "index_select")?;
    let args = full_args(op, graph, n).ok()?;
    let (x, dim) = (*args[0].as_leaf()?, args[1].as_int()?);
    let index = constant(module, graph, *args[2].as_leaf()?)?;
    let shape = graph[x].meta.ty.as_ref()?.as_leaf()?.fixed_shape()?;
    let dim = if dim < 0 { dim + shape.len() as i64 } else { dim };
    let size = *shape.get(usize::try_from(dim).ok()?)? as i64;
    let run = run(&index, size)?;
    let ty = graph[n].meta.ty.clone();
    let source = Source::of(graph, n, "recognise");
    let point = graph.insert_point();
    graph.set_insert_point(InsertPoint::Before(n));
    let mut b = GraphBuilder::new(graph, source, |_| true);
    let x = b.trace(&Val::Leaf(x));
    let (name, args) = match run {
        Run::Slice(0) if index.len() as i64 == size => ("clone", vec![x]),
        Run::Slice(first) => {
            let end = first + index.len() as i64;
            ("slice", vec![x, Val::int(dim), Val::int(first), Val::int(end)])
        }
        Run::Roll(first) => {
            let one = |i| Val::List(vec![Val::int(i)]);
            ("roll", vec![x, one(size - first), one(dim)])
        }
    };
    let made = b.call(name, args);
    graph.set_insert_point(point);
    let Ok(Val::Leaf(new)) = made else { return None };
    let new = NodeId::new(new.id as usize);
    if graph[new].meta.ty != ty {
        // Not the same after all: what was just made is dead.
        let _ = graph.erase_node(new);
        return None;
    }
    graph.replace_all_uses_with(n, new);
    graph.erase_node(n).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_places_are_slices_and_rolls() {
        assert_eq!(run(&[2, 3, 4], 6), Some(Run::Slice(2)));
        assert_eq!(run(&[2, 3, 0, 1], 4), Some(Run::Roll(2)));
        assert_eq!(run(&[0, 1], 2), Some(Run::Slice(0)));
        for (index, n) in [
            (&[2, 4][..], 6),
            (&[3, 0], 4),
            (&[-1, 0], 4),
            (&[3, 4], 4),
            (&[], 4),
            (&[1, 0], 0),
        ] {
            assert_eq!(run(index, n), None, "{index:?} of {n}");
        }
    }
}
