//! Finds attention (and rolls and slices, see `shifts`) that was written out op by op, as `run_decompositions` of `torch.export` leaves it.
//!
//! (Nodes are nested here where the graph names each.) The safe softmax, which gives zeros for a row that is masked
//! throughout, is what attention means; a plain softmax would give NaN there, so that it is taken for attention only
//! where there is no mask.
//!
#![doc = include_str!("examples/recognise.md")]

use super::build::{GraphBuilder, Source, full_args};
use super::{Context, canonical_op, dce, each_graph, shifts};
use crate::diag::Diagnostic;
use crate::graph::{Arg, Graph, GraphModule, InsertPoint, NodeId, Opcode};
use crate::op::{Build, by_name};
use crate::types::{TensorType, Val};

/// See the module.
pub fn run(module: &mut GraphModule, cx: &mut Context) -> Result<usize, Diagnostic> {
    let found = each_graph(module, |module, graph| {
        let mut changed = 0;
        for n in graph.ids() {
            if !graph.is_live(n) {
                continue;
            }
            changed += shifts::rewrite(module, graph, n) as usize;
            if !graph.is_live(n) {
                continue;
            }
            let m = Matcher { module, graph };
            if let Some(a) = m.attention(n) {
                changed += a.rewrite(graph, n) as usize;
            }
        }
        Ok(changed)
    })?;
    if found > 0 {
        dce::run(module, cx)?;
    }
    Ok(found)
}

/// Attention as it was found.
struct Attention {
    query: NodeId,
    key: NodeId,
    value: NodeId,
    mask: Option<NodeId>,
    scale: f64,
}

impl Attention {
    fn rewrite(&self, graph: &mut Graph, n: NodeId) -> bool {
        let ty = graph[n].meta.ty.clone();
        let source = Source::of(graph, n, "recognise");
        let point = graph.insert_point();
        graph.set_insert_point(InsertPoint::Before(n));
        let mut b = GraphBuilder::new(graph, source, |_| true);
        let arg = |b: &GraphBuilder<'_>, n: NodeId| b.trace(&Val::Leaf(n));
        let args = vec![
            arg(&b, self.query),
            arg(&b, self.key),
            arg(&b, self.value),
            self.mask.map_or(Val::None, |m| arg(&b, m)),
            Val::Float(0.0),
            Val::Bool(false),
            Val::Float(self.scale),
        ];
        let result = b.call("scaled_dot_product_attention", args);
        graph.set_insert_point(point);
        let Ok(Val::Leaf(new)) = result else { return false };
        let new = NodeId::from_u32(new.id);
        if graph[new].meta.ty != ty {
            // Not the same after all: what was just made is dead.
            let _ = graph.erase_node(new);
            return false;
        }
        graph.replace_all_uses_with(n, new);
        graph.erase_node(n).is_ok()
    }
}

struct Matcher<'g> {
    module: &'g GraphModule,
    graph: &'g Graph,
}

impl Matcher<'_> {
    fn ty(&self, n: NodeId) -> Option<&TensorType> {
        self.graph[n].meta.ty.as_ref()?.as_leaf()
    }

    fn rank(&self, n: NodeId) -> Option<usize> {
        self.ty(n)?.rank()
    }

    /// The arguments of `n`, one per parameter, if it calls one of these ops.
    fn call(&self, n: NodeId, ops: &[&str]) -> Option<Vec<Arg>> {
        let op = canonical_op(self.graph, n).filter(|op| ops.contains(&op.name))?;
        full_args(op, self.graph, n).ok()
    }

    fn leaf(&self, args: &[Arg], i: usize) -> Option<NodeId> {
        args.get(i)?.as_leaf().copied()
    }

    /// The operand of a one-operand op.
    fn of(&self, n: NodeId, ops: &[&str]) -> Option<NodeId> {
        self.leaf(&self.call(n, ops)?, 0)
    }

    /// Looks through reshapes to the `[B, H, L, E]` behind a `[B*H, L, E]`, whose last two sizes are the same. An
    /// expansion that does nothing was removed before.
    fn unflatten(&self, n: NodeId) -> Option<NodeId> {
        let mut at = n;
        while self.rank(at)? != 4 {
            at = self.of(at, &["view", "reshape"])?;
        }
        let (a, b) = (self.ty(n)?.shape.as_ref()?, self.ty(at)?.shape.as_ref()?);
        (a[a.len() - 2..] == b[2..]).then_some(at)
    }

    /// The two four-dimensional operands of a batched product that is seen as four-dimensional.
    fn product(&self, n: NodeId) -> Option<(NodeId, NodeId)> {
        if let Some(args) = self.call(n, &["matmul", "bmm"]) {
            let (a, b) = (self.leaf(&args, 0)?, self.leaf(&args, 1)?);
            return (self.rank(a)? == 4 && self.rank(b)? == 4).then_some((a, b));
        }
        let flat = self.of(n, &["view", "reshape"])?;
        let args = self.call(flat, &["bmm"])?;
        let (shape, product) = (self.ty(n)?.shape.as_ref()?, self.ty(flat)?.shape.as_ref()?);
        let same = shape.len() == 4 && shape[2..] == product[1..];
        let (a, b) = (
            self.unflatten(self.leaf(&args, 0)?)?,
            self.unflatten(self.leaf(&args, 1)?)?,
        );
        let batch = |n: NodeId| Some(self.ty(n)?.shape.as_ref()?[..2].to_vec());
        (same && batch(a)? == shape[..2] && batch(b)? == shape[..2]).then_some((a, b))
    }

    fn attention(&self, n: NodeId) -> Option<Attention> {
        if self.rank(n)? != 4 {
            return None;
        }
        let (p, value) = self.product(n)?;
        let (scores, safe) = self.probabilities(p)?;
        let (scores, mask) = match self.call(scores, &["add"]) {
            Some(args) if self.is_one(args.get(2)) => {
                let (a, b) = (self.leaf(&args, 0)?, self.leaf(&args, 1)?);
                if self.product(a).is_some() || self.scaled(a).is_some() {
                    (a, Some(b))
                } else {
                    (b, Some(a))
                }
            }
            _ => (scores, None),
        };
        if mask.is_some() && (!safe || self.ty(mask?)?.dtype != self.ty(n)?.dtype) {
            return None;
        }
        let (scores, s0) = self.scaled(scores).unwrap_or((scores, 1.0));
        let (q, kt) = self.product(scores)?;
        let (query, s1) = self.scaled(q).unwrap_or((q, 1.0));
        let (kt, s2) = self.scaled(kt).unwrap_or((kt, 1.0));
        let args = self.call(kt, &["permute", "transpose"])?;
        let (key, s3) = {
            let k = self.leaf(&args, 0)?;
            self.scaled(k).unwrap_or((k, 1.0))
        };
        self.swaps_last_two(kt, &args).then_some(Attention {
            query,
            key,
            value,
            mask,
            scale: s0 * s1 * s2 * s3,
        })
    }

    fn is_one(&self, a: Option<&Arg>) -> bool {
        a.is_none_or(|a| a.as_f64() == Some(1.0))
    }

    fn swaps_last_two(&self, n: NodeId, args: &[Arg]) -> bool {
        let ints = |a: &Arg| -> Option<Vec<i64>> { a.items()?.iter().map(Val::as_int).collect() };
        match self.graph[n].target() {
            "permute" => {
                ints(&args[1]).is_some_and(|d| d.iter().map(|d| d.rem_euclid(4)).collect::<Vec<_>>() == [0, 1, 3, 2])
            }
            _ => {
                let at = |i: usize| args.get(i).and_then(Val::as_int).map(|d| d.rem_euclid(4));
                matches!((at(1), at(2)), (Some(2), Some(3)) | (Some(3), Some(2)))
            }
        }
    }

    /// `x` and the number it is multiplied by.
    fn scaled(&self, n: NodeId) -> Option<(NodeId, f64)> {
        if let Some(args) = self.call(n, &["mul"]) {
            let (a, b) = (&args[0], &args[1]);
            return match (a, b) {
                (Val::Leaf(x), s) | (s, Val::Leaf(x)) => Some((*x, self.number(s)?)),
                _ => None,
            };
        }
        let args = self.call(n, &["div"])?;
        let mode = by_name("div").and_then(|op| op.schema.index_of("rounding_mode"));
        if mode.is_some_and(|i| !args[i].is_none()) {
            return None;
        }
        Some((self.leaf(&args, 0)?, 1.0 / self.number(&args[1])?))
    }

    /// A Python number, or a constant 0-d tensor.
    fn number(&self, a: &Arg) -> Option<f64> {
        let Val::Leaf(n) = a else { return a.as_f64() };
        let node = &self.graph[*n];
        if node.op() == Opcode::GetAttr && !self.graph.writes_buffer(node.target()) {
            let value = self.module.attributes.get(node.target())?.value.as_ref()?;
            return (value.rank() == 0).then(|| value.get(0).to_f64());
        }
        let args = self.call(*n, &["full"])?;
        (self.rank(*n)? == 0).then(|| args[1].as_f64())?
    }

    /// The scores of a softmax over the last dim, and whether it is the safe one.
    fn probabilities(&self, n: NodeId) -> Option<(NodeId, bool)> {
        if let Some(s) = self.of(n, &["_safe_softmax"]) {
            return self.over_last(n).then_some((s, true));
        }
        if let Some(s) = self.softmax(n) {
            return Some((s, false));
        }
        // `where(not any, 0, p)`, or turned round by the simplifier.
        let args = self.call(n, &["where"])?;
        let test = self.leaf(&args, 0)?;
        let (any, zero, p) = match self.of(test, &["logical_not"]) {
            Some(any) => (any, &args[1], self.leaf(&args, 2)?),
            None => (test, &args[2], self.leaf(&args, 1)?),
        };
        let scores = self.softmax(p)?;
        let any_args = self.call(any, &["any"])?;
        let kept = self.leaf(&any_args, 0)?;
        let eq = match self.of(kept, &["logical_not"]) {
            Some(masked) => self.call(masked, &["eq"])?,
            None => self.call(kept, &["ne"])?,
        };
        let is_masked = self.leaf(&eq, 0)? == scores && self.number(&eq[1])? == f64::NEG_INFINITY;
        (is_masked && self.is_zero(zero) && self.keeps_rows(any, scores)).then_some((scores, true))
    }

    fn softmax(&self, n: NodeId) -> Option<NodeId> {
        let x = self.of(n, &["softmax", "_softmax"])?;
        let same = self.ty(n)?.dtype == self.ty(x)?.dtype;
        (same && self.over_last(n)).then_some(x)
    }

    fn over_last(&self, n: NodeId) -> bool {
        let dim = self.graph[n].args().get(1).and_then(Val::as_int);
        dim.is_some_and(|d| d == -1 || Some(d) == self.rank(n).map(|r| r as i64 - 1))
    }

    /// Whether the reduction gives one value per row of the scores.
    fn keeps_rows(&self, any: NodeId, scores: NodeId) -> bool {
        let (Some(a), Some(s)) = (self.ty(any), self.ty(scores)) else {
            return false;
        };
        let (Some(a), Some(s)) = (&a.shape, &s.shape) else {
            return false;
        };
        let rows = s.len() - 1;
        a.len() == s.len() && a[..rows] == s[..rows] && a[rows].as_const() == Some(1)
    }

    fn is_zero(&self, a: &Arg) -> bool {
        let Val::Leaf(n) = a else {
            return a.as_f64() == Some(0.0);
        };
        if self.call(*n, &["zeros_like", "zeros"]).is_some() {
            return true;
        }
        let value = self.call(*n, &["full", "full_like"]);
        value.is_some_and(|args| args.get(1).and_then(Val::as_f64) == Some(0.0))
    }
}
