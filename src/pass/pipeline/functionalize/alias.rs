//! Views: where they lie in the memory they share.

use super::{Fail, Functionalize, Place, Step, tensor_type};
use crate::graph::{Graph, NodeId};
use crate::infer::{self, Resolved};
use crate::interp::cell::reshape_strides;
use crate::op::view::{BITS, DimMap};
use crate::op::{Call, Meaning, Op, OpResult, Sizes};
use crate::pass::build::full_args;
use crate::pass::decompose_node;
use crate::tensor::contiguous_strides;
use crate::types::{TensorType, Val};
use cranelift_entity::EntityRef;

impl Functionalize<'_> {
    /// A node whose result may share memory with its first argument.
    pub(super) fn alias(
        &mut self,
        graph: &mut Graph,
        n: NodeId,
        op: &'static Op,
        resolved: &Resolved,
    ) -> Result<(), Fail> {
        if matches!(op.meaning, Meaning::Decompose(_)) && !matches!(op.name, "to" | "type_as") && op.aliases {
            // `split`, `chunk`, `getattr(x, "T")`: views one by one.
            self.normalize.rewrite(graph, n, resolved)?;
            let made = graph.id_bound();
            if decompose_node(graph, n, op, |_| false)? {
                for i in (made..graph.id_bound()).map(NodeId::new) {
                    self.node(graph, i)?;
                }
            }
            return Ok(());
        }
        self.normalize.rewrite(graph, n, resolved)?;
        let Some(Val::Leaf(x)) = graph[n].args().first().cloned() else {
            return Ok(());
        };
        let (Some(from), Some(to)) = (tensor_type(graph, x), tensor_type(graph, n)) else {
            return Ok(());
        };
        if op.name == BITS && from.dtype != to.dtype {
            let parent = self.place(graph, x);
            let same = from.dtype.size() == to.dtype.size();
            let strides = parent.strides.clone().filter(|_| same);
            let place = step_from(graph, n, op, &parent, strides)?;
            self.places.insert(n, place);
            return Ok(());
        }
        if op.view.is_none() {
            // A conversion that converts nothing gives its operand.
            let copies = full_args(op, graph, n)?.contains(&Val::Bool(true)) && op.name == "to";
            if from == to && !copies {
                let place = self.place(graph, x);
                self.places.insert(n, place);
            }
            return Ok(());
        }
        let parent = self.place(graph, x);
        if let Some(place) = self.through(graph, n, op, &parent, &from)? {
            self.places.insert(n, place);
        }
        Ok(())
    }

    /// The place of the view `n` of a value at `parent`; `None` where torch copies.
    pub(super) fn through(
        &self,
        graph: &Graph,
        n: NodeId,
        op: &'static Op,
        parent: &Place,
        from: &TensorType,
    ) -> OpResult<Option<Place>> {
        let args = full_args(op, graph, n)?;
        let ty = |i: NodeId| graph[i].meta.ty.clone().unwrap_or(Val::Unknown);
        let call: Call<TensorType> = Call {
            op,
            args: args.iter().map(|a| infer::arg_type(a, &ty)).collect(),
        };
        let Some(rule) = op.view else { return Ok(None) };
        let view = rule(&call, &mut Sizes::default())?;
        let known = |d: &[crate::types::Dim]| -> Option<Vec<usize>> {
            d.iter().map(|d| usize::try_from(d.as_const()?).ok()).collect()
        };
        let strides = match (&view.map, &parent.strides, known(&view.shape), from.fixed_shape()) {
            (DimMap::Reshape, Some(s), Some(new), Some(old)) => {
                let in_order = contiguous_strides(&old).iter().zip(s).all(|(a, b)| *a as i64 == *b);
                if op.name == "contiguous" && !in_order {
                    return Ok(None);
                }
                match reshape_strides(&old, s, &new) {
                    Some(s) => Some(s),
                    None => return Ok(None),
                }
            }
            (DimMap::Affine(map), Some(s), Some(new), _) => {
                let mut out = vec![0; new.len()];
                for (x, s) in map.iter().zip(s) {
                    x.terms.iter().for_each(|&(d, c)| out[d] += c * s);
                }
                Some(out)
            }
            (DimMap::Strided { strides, .. }, ..) => strides.iter().map(|d| d.as_const()).collect(),
            _ => None,
        };
        step_from(graph, n, op, parent, strides).map(Some)
    }
}

/// The place of the view `n` of a value at `parent`.
fn step_from(graph: &Graph, n: NodeId, op: &'static Op, parent: &Place, strides: Option<Vec<i64>>) -> OpResult<Place> {
    let mut steps = parent.steps.clone();
    let args = full_args(op, graph, n)?;
    let ty = graph[n].meta.ty.clone().unwrap_or(Val::Unknown);
    steps.push(Step { op, args, ty });
    Ok(Place {
        root: parent.root,
        steps,
        version: parent.version,
        strides,
    })
}

/// Whether the node is a dropout that drops nothing: torch gives the operand itself.
pub(super) fn is_disabled_dropout(resolved: &Resolved) -> bool {
    let Some(call) = resolved.types().filter(|c| c.op.name.contains("dropout")) else {
        return false;
    };
    let off = |name: &str| {
        call.op
            .schema
            .index_of(name)
            .is_some_and(|i| call.args[i] == Val::Bool(false))
    };
    off("train") || off("training")
}
