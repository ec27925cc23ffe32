//! Writes the bounds of symbolic sizes, and the conditions under which an archive was traced, into the graph as
//! assertions.
//!
//! This is torch's `insert_deferred_runtime_asserts`: a graph that is exported carries the conditions under which it is
//! valid. Sizes that no input has as a plain dim, and conditions that are not linear in one size, are left out with a
//! remark.
//!
#![doc = include_str!("../examples/assert-sizes.md")]

use crate::diag::Diagnostic;
use crate::graph::{Arg, Graph, GraphModule, InsertPoint, NodeId, Opcode};
use crate::infer;
use crate::pass::PassContext;
use crate::scalar::Compare;
use crate::types::{Dim, Val};
use std::collections::HashMap;
use std::sync::Arc;

/// See the module. Only the entry graph has inputs of its own.
pub(crate) fn run(module: &mut GraphModule, cx: &mut PassContext) -> Result<usize, Diagnostic> {
    let mut conditions: Vec<(Dim, Compare, Dim)> = vec![];
    for (name, range) in &module.dims {
        let size = Dim::var(name);
        conditions.push((size.clone(), Compare::Ge, range.min.into()));
        if let Some(max) = range.max {
            conditions.push((size, Compare::Le, max.into()));
        }
    }
    let guards = module.guards.iter();
    conditions.extend(guards.map(|g| (g.left.clone(), g.compare, g.right.clone())));
    let mut graph = match module.entry_mut() {
        Some(g) => std::mem::take(g),
        None => return Ok(0),
    };
    let written = write_conditions(module, &mut graph, &conditions, cx);
    if let Some(slot) = module.entry_mut() {
        *slot = graph;
    }
    written
}

/// Writes the conditions after the inputs. Returns how many were written.
fn write_conditions(
    module: &GraphModule,
    graph: &mut Graph,
    conditions: &[(Dim, Compare, Dim)],
    cx: &mut PassContext,
) -> Result<usize, Diagnostic> {
    let Some(last) = graph.placeholders().last().copied() else {
        return Ok(0);
    };
    let first = graph.next(last);
    let before = graph.insert_point();
    graph.set_insert_point(first.map_or(InsertPoint::End, InsertPoint::Before));
    let mut writer = AssertionWriter {
        graph,
        sizes: HashMap::new(),
    };
    let mut written = 0;
    for (left, compare, right) in conditions {
        match writer.assertion(left, *compare, right) {
            Some(()) => written += 1,
            None => cx
                .remarks
                .push(format!("cannot check {left} and {right}: no input has these sizes")),
        }
    }
    graph.set_insert_point(before);
    let mut current = graph.next(last);
    while let Some(n) = current.filter(|_| current != first) {
        let ty = infer::infer_node(module, graph, n)?;
        graph.meta_mut(n).ty = (ty != Val::Unknown).then_some(ty);
        current = graph.next(n);
    }
    Ok(written)
}

struct AssertionWriter<'g> {
    graph: &'g mut Graph,
    /// The nodes that give sizes by name.
    sizes: HashMap<Arc<str>, NodeId>,
}

impl AssertionWriter<'_> {
    fn call(&mut self, target: &str, args: Vec<Arg>) -> NodeId {
        let n = self.graph.create_node(Opcode::CallFunction, target, args, vec![], None);
        self.graph.meta_mut(n).provenance = vec!["assert-sizes".into()];
        n
    }

    fn assertion(&mut self, left: &Dim, compare: Compare, right: &Dim) -> Option<()> {
        if left.as_const().is_some() && right.as_const().is_some() {
            return None;
        }
        let (a, b) = (self.size_value(left)?, self.size_value(right)?);
        let target = match compare {
            Compare::Eq => "operator.eq",
            Compare::Ne => "operator.ne",
            Compare::Lt => "operator.lt",
            Compare::Le => "operator.le",
            Compare::Gt => "operator.gt",
            Compare::Ge => "operator.ge",
        };
        let sign = compare.sign();
        let n = self.call(target, vec![a, b]);
        let name = self.graph[n].name();
        let text = format!("Runtime assertion failed for expression {left} {sign} {right} on node '{name}'");
        self.call(
            "torch.ops.aten._assert_scalar.default",
            vec![Val::Leaf(n), Val::str(&text)],
        );
        Some(())
    }

    /// A size that is a number, or `a*N + b`.
    fn size_value(&mut self, d: &Dim) -> Option<Arg> {
        if let Some(c) = d.as_const() {
            return Some(Val::int(c));
        }
        let (name, scale, offset) = d.as_linear()?;
        let mut value = Val::Leaf(self.size(name)?);
        if scale != 1 {
            value = Val::Leaf(self.call("operator.mul", vec![value, Val::int(scale)]));
        }
        if offset != 0 {
            value = Val::Leaf(self.call("operator.add", vec![value, Val::int(offset)]));
        }
        Some(value)
    }

    /// The node that reads a size from the first input that has it.
    fn size(&mut self, name: &str) -> Option<NodeId> {
        if let Some(&n) = self.sizes.get(name) {
            return Some(n);
        }
        let graph = &*self.graph;
        let (input, dim) = graph.placeholders().into_iter().find_map(|p| {
            let shape = graph[p].meta.ty.as_ref()?.as_leaf()?.shape.as_ref()?;
            Some((p, shape.iter().position(|d| d.as_var() == Some(name))?))
        })?;
        let n = self.call(
            "torch.ops.aten.sym_size.int",
            vec![Val::Leaf(input), Val::int(dim as i64)],
        );
        self.sizes.insert(name.into(), n);
        Some(n)
    }
}
