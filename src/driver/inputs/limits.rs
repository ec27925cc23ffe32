//! Determines which integers an input takes from its uses in the graph: rows of an embedding, indices along a dim,
//! classes, offsets of bags. Generated inputs stay within these limits.

use super::fill::Fill;
use crate::graph::{Graph, GraphModule, NodeId, Opcode};
use crate::infer::{self, InferOptions};
use crate::op;
use crate::op::IndexLimit;
use crate::pass::build::full_args;
use crate::pass::{PassManager, PassOptions};
use crate::types::{Category, Dim, Type, Val};
use std::collections::{BTreeMap, HashSet};

/// The tightest limit found for an input.
#[derive(Clone, Copy, Default)]
struct Limit {
    /// The exclusive upper bound of the values.
    below: Option<u64>,
    /// Values increase along the last dim, up to this number of indices.
    offsets: Option<u64>,
}

impl Limit {
    fn least(a: Option<u64>, b: Option<u64>) -> Option<u64> {
        a.into_iter().chain(b).min()
    }

    fn meet(&mut self, other: Limit) {
        self.below = Limit::least(self.below, other.below);
        self.offsets = Limit::least(self.offsets, other.offsets);
    }
}

/// How to fill the integer inputs of the entry graph that are indices, by input name. `seed` varies their random
/// numbers. Empty for a graph that does not check.
pub(crate) fn index_fills(module: &GraphModule, seed: u64) -> BTreeMap<String, Fill> {
    let mut module = module.clone();
    let wrong = infer::infer(&mut module, &InferOptions::default()).has_errors();
    let passes = PassManager::from_names(&["inline", "functionalize", "normalize"]);
    let (false, Ok(mut passes)) = (wrong, passes) else {
        return BTreeMap::new();
    };
    if passes
        .run(&mut module, &PassOptions::default(), &mut |_, _| {})
        .is_err()
    {
        return BTreeMap::new();
    }
    let Some(graph) = module.entry() else {
        return BTreeMap::new();
    };
    let mut out = BTreeMap::new();
    for (p, i) in graph.placeholders().into_iter().zip(0..) {
        let ty = graph[p].meta.ty.as_ref().and_then(|t| t.as_leaf());
        if ty.is_none_or(|t| t.dtype.category() != Category::Int) {
            continue;
        }
        let limit = limit_of(graph, p);
        let fill = match (limit.offsets, limit.below) {
            (Some(count), _) => Fill::Offsets { count },
            (None, Some(below)) => Fill::Index { seed: seed + i, below },
            (None, None) => continue,
        };
        out.insert(graph[p].target().to_string(), fill);
    }
    out
}

/// The limit of a placeholder: the tightest one of all calls that its elements reach unchanged.
fn limit_of(graph: &Graph, p: NodeId) -> Limit {
    let mut out = Limit::default();
    let mut seen = HashSet::from([p]);
    let mut todo = vec![p];
    while let Some(n) = todo.pop() {
        for user in graph[n].users() {
            if graph[user].op() != Opcode::CallFunction {
                continue;
            }
            out.meet(limit_of_call(graph, user, n));
            let first = graph[user].args().first().is_some_and(|a| a.leaves().contains(&&n));
            if first && op::by_name(graph[user].target()).is_some_and(op::Op::has_same_elements) && seen.insert(user) {
                todo.push(user);
            }
        }
    }
    out
}

/// The limit that the canonical call `user` imposes on its operand `n`.
fn limit_of_call(graph: &Graph, user: NodeId, n: NodeId) -> Limit {
    let mut out = Limit::default();
    let Some(op) = op::by_name(graph[user].target()) else {
        return out;
    };
    let Ok(args) = full_args(op, graph, user) else {
        return out;
    };
    let is = |name: &str| named_arg(&args, op, name).and_then(|a| a.as_leaf()) == Some(&n);
    for &(param, limit) in op.facts.index_limits {
        let (indices, by) = (named_arg(&args, op, param), named_arg(&args, op, limit.param()));
        match (limit, by) {
            (IndexLimit::DimByDim(_), _) => out.meet(limit_of_index_list(graph, indices, by, n)),
            (_, Some(by)) if is(param) => out.meet(limit_by(graph, limit, by)),
            _ => {}
        }
    }
    if let Some(dim) = named_arg(&args, op, "dim").and_then(Val::as_int)
        && ["index", "indices"].iter().any(|i| is(i))
    {
        let size = named_arg(&args, op, "self").and_then(|a| dim_size(graph, a.as_leaf()?, dim));
        out.below = Limit::least(out.below, size);
    }
    out
}

/// The limit that `by`, the argument that determines it, gives to indices.
fn limit_by(graph: &Graph, limit: IndexLimit, by: &Val<NodeId>) -> Limit {
    let size = |dim: i64| by.as_leaf().and_then(|n| dim_size(graph, n, dim));
    let below = match limit {
        IndexLimit::Rows(_) => size(0),
        IndexLimit::Classes(_) => size(1).or_else(|| size(0)),
        IndexLimit::Below(_) => by.as_int().and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0),
        IndexLimit::DimByDim(_) | IndexLimit::Offsets(_) => None,
    };
    let offsets = match limit {
        IndexLimit::Offsets(_) => by.as_leaf().and_then(|n| known_numel(graph, n)),
        _ => None,
    };
    Limit { below, offsets }
}

/// `x[i, :, j]`: each tensor of the list indexes the dim at its position.
fn limit_of_index_list(graph: &Graph, indices: Option<&Val<NodeId>>, x: Option<&Val<NodeId>>, n: NodeId) -> Limit {
    let (Some(items), Some(x)) = (indices.and_then(|i| i.items()), x.and_then(|x| x.as_leaf())) else {
        return Limit::default();
    };
    let places = items.iter().zip(0..).filter(|(i, _)| i.as_leaf() == Some(&n));
    Limit {
        below: places.filter_map(|(_, d)| dim_size(graph, x, d)).min(),
        offsets: None,
    }
}

fn named_arg<'a>(args: &'a [Val<NodeId>], op: &op::Op, name: &str) -> Option<&'a Val<NodeId>> {
    args.get(op.schema.index_of(name)?)
}

fn shape_of<'a>(graph: &'a Graph, n: &NodeId) -> Option<&'a [Dim]> {
    let ty: &Type = graph[*n].meta.ty.as_ref()?;
    ty.as_leaf()?.shape.as_deref()
}

/// The size of a dim, if known. A negative `dim` counts from the end.
fn dim_size(graph: &Graph, n: &NodeId, dim: i64) -> Option<u64> {
    let shape = shape_of(graph, n)?;
    let dim = if dim < 0 { dim + shape.len() as i64 } else { dim };
    let known = shape.get(usize::try_from(dim).ok()?)?.as_const()?;
    u64::try_from(known).ok().filter(|s| *s > 0)
}

fn known_numel(graph: &Graph, n: &NodeId) -> Option<u64> {
    shape_of(graph, n)?
        .iter()
        .try_fold(1u64, |all, d| all.checked_mul(u64::try_from(d.as_const()?).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::FileId;

    fn fills(body: &str) -> BTreeMap<String, Fill> {
        let text = format!("param w : f32[7, 4]\ngraph g {{ {body} }}");
        let (file, d) = crate::syntax::parse_text(FileId(0), &text);
        assert!(!d.has_errors(), "{d:?}");
        let (module, d) = crate::graph::build(&file, "g");
        assert!(!d.has_errors(), "{d:?}");
        index_fills(&module, 0)
    }

    #[test]
    fn inputs_are_told_by_what_reads_them() {
        let found = fills(
            "%i : i64[2, 5] = placeholder i
             %o : i64[2, 3] = placeholder o
             %g : i64[3, 4] = placeholder g
             %t : i64[3] = placeholder t
             %x : f32[3, 6] = placeholder x
             %n : i64[3] = placeholder n
             %k : i64[4] = placeholder k
             %r : i64[2] = placeholder r
             %w = get_attr w
             %i0 = call_function operator.getitem(%i, 0)
             %o0 = call_function operator.getitem(%o, 1)
             %bags = call_function torch.nn.functional.embedding_bag(%i0, %w, %o0, mode=\"sum\")
             %e = call_function torch.nn.functional.embedding(%i, %w)
             %p = call_function torch.gather(%x, 1, %g)
             %q = call_method view(%t, 3)
             %l = call_function torch.nn.functional.cross_entropy(%x, %q)
             %s = call_function operator.getitem(%x, (slice(None, None, None), %t))
             %m = call_function operator.mul(%n, 2)
             %h = call_function torch.nn.functional.one_hot(%k, 9)
             %v = call_function torch.ones([3, 2])
             %z = call_function torch.ops.aten.index_put.default(%x, [None, %r], %v)
             output (%bags, %e, %p, %l, %s, %m, %h, %z)",
        );
        let want = [
            ("g", Fill::Index { seed: 2, below: 6 }),
            ("i", Fill::Index { seed: 0, below: 7 }),
            ("k", Fill::Index { seed: 6, below: 9 }),
            ("o", Fill::Offsets { count: 5 }),
            ("r", Fill::Index { seed: 7, below: 6 }),
            ("t", Fill::Index { seed: 3, below: 6 }),
        ];
        let want: BTreeMap<String, Fill> = want.map(|(n, f)| (n.to_string(), f)).into();
        assert_eq!(found, want);
    }
}
