//! Views: their location in the memory they share.

use super::write::replace_node;
use super::{Functionalize, FunctionalizeError, ViewPlace, ViewStep, tensor_type};
use crate::graph::{Graph, NodeId};
use crate::infer::{self, Operand, Resolved};
use crate::op::layout::{Layout, has_format, of_view};
use crate::op::view::BITS;
use crate::op::{Call, Meaning, Op, OpId, OpResult};
use crate::pass::build::full_args;
use crate::pass::decompose_node;
use crate::types::{TensorType, Val};
use cranelift_entity::EntityRef;

/// Whether a conversion changes the memory order of its operand, in which case it copies.
fn changes_memory_order(call: &Call<TensorType>, layout: Option<&Layout>) -> bool {
    let format = call.op.schema.index_of("memory_format").map(|i| &call.args[i]);
    let plain = |f: &Val<TensorType>| matches!(f, Val::TorchName(n) if n.ends_with("preserve_format"));
    format.is_some_and(|f| !f.is_none() && !plain(f))
        && layout.and_then(|layout| has_format(call, layout)) != Some(true)
}

/// Whether a conversion to the operand's own type makes a new tensor. One that converts nothing returns its operand.
fn converts(graph: &Graph, n: NodeId, op: &'static Op, operand: &ViewPlace) -> OpResult<bool> {
    let copies = full_args(op, graph, n)?.contains(&Val::Bool(true)) && op.is(OpId::To);
    Ok(copies || changes_memory_order(&types_of(graph, n, op)?, operand.layout.as_ref()))
}

impl Functionalize<'_> {
    /// Rewrites a node whose result may share memory with its first argument.
    pub(super) fn rewrite_alias(
        &mut self,
        graph: &mut Graph,
        n: NodeId,
        op: &'static Op,
        resolved: &Resolved,
    ) -> Result<(), FunctionalizeError> {
        if self.is_operand(graph, n, op, resolved)? {
            return Ok(());
        }
        self.normalize.rewrite(graph, n, resolved)?;
        let decomposes = matches!(op.meaning, Meaning::Decompose(_)) && op.aliases;
        if decomposes && !matches!(op.id(), Some(OpId::To | OpId::TypeAs)) {
            return self.decompose_views(graph, n, op);
        }
        let Some(Val::Leaf(x)) = graph[n].args().first().cloned() else {
            return Ok(());
        };
        let (Some(from), Some(to)) = (tensor_type(graph, x), tensor_type(graph, n)) else {
            return Ok(());
        };
        if op.is(BITS) && from.dtype != to.dtype {
            let parent = self.place_of(graph, x);
            let layout = self.view_layout(graph, n, op, &parent)?;
            let place = step_from(graph, n, op, &parent, layout)?;
            self.places.insert(n, place);
            return Ok(());
        }
        let parent = self.place_of(graph, x);
        if op.view.is_none() {
            if from == to && !converts(graph, n, op, &parent)? {
                self.places.insert(n, parent);
            }
            return Ok(());
        }
        if let Some(place) = self.place_through_view(graph, n, op, &parent, &from)? {
            self.places.insert(n, place);
        }
        Ok(())
    }

    /// Decomposes a call that makes several views, such as `split`, `chunk` or `getattr(x, "T")`, and rewrites these one
    /// by one.
    fn decompose_views(&mut self, graph: &mut Graph, n: NodeId, op: &'static Op) -> Result<(), FunctionalizeError> {
        let first_new = graph.id_bound();
        if decompose_node(graph, n, op, |_| false)? {
            for i in (first_new..graph.id_bound()).map(NodeId::new) {
                self.visit_node(graph, i)?;
            }
        }
        Ok(())
    }

    /// Rewrites a call that writes nothing. Its result may be its operand, or a view of it.
    pub(super) fn rewrite_shared(
        &mut self,
        graph: &mut Graph,
        n: NodeId,
        op: &'static Op,
        resolved: &Resolved,
    ) -> Result<(), FunctionalizeError> {
        match op.aliases && !resolved.copies_result() || is_disabled_dropout(resolved) {
            true => self.rewrite_alias(graph, n, op, resolved),
            false => Ok(()),
        }
    }

    /// Replaces a call that returns its operand by the operand. Returns whether it did.
    fn is_operand(
        &mut self,
        graph: &mut Graph,
        n: NodeId,
        op: &'static Op,
        resolved: &Resolved,
    ) -> Result<bool, FunctionalizeError> {
        let (Some(types), Some(ty)) = (resolved.types(), graph[n].meta.ty.clone()) else {
            return Ok(false);
        };
        let Some(Operand::Node(x)) = resolved.call().and_then(|c| c.args.first()?.as_leaf().cloned()) else {
            return Ok(false);
        };
        let same = op.gives_operand(&types, &ty, self.layout_of(graph, x).as_ref());
        if same {
            replace_node(graph, n, &Val::Leaf(x));
        }
        Ok(same)
    }

    /// The location of the view `n` of a value at `parent`; `None` if torch copies.
    pub(super) fn place_through_view(
        &self,
        graph: &Graph,
        n: NodeId,
        op: &'static Op,
        parent: &ViewPlace,
        from: &TensorType,
    ) -> OpResult<Option<ViewPlace>> {
        let call = types_of(graph, n, op)?;
        if op.view.is_none() {
            return Ok(None);
        }
        if op.is(OpId::Contiguous) && parent.layout.as_ref().and_then(|layout| has_format(&call, layout)) == Some(false)
        {
            return Ok(None);
        }
        let layout = parent.layout.as_ref().and_then(|layout| of_view(&call, layout));
        let sizes = parent
            .layout
            .as_ref()
            .and_then(Layout::known_strides)
            .and(from.fixed_shape());
        if layout.is_none() && sizes.is_some() && tensor_type(graph, n).is_some_and(|t| t.fixed_shape().is_some()) {
            // No strides can express the reshape.
            return Ok(None);
        }
        step_from(graph, n, op, parent, layout).map(Some)
    }

    /// The memory layout of the view `n` of a value at `parent`, if known.
    fn view_layout(&self, graph: &Graph, n: NodeId, op: &'static Op, parent: &ViewPlace) -> OpResult<Option<Layout>> {
        let call = types_of(graph, n, op)?;
        Ok(parent.layout.as_ref().and_then(|layout| of_view(&call, layout)))
    }
}

/// The canonical call of node `n`, with types as arguments.
fn types_of(graph: &Graph, n: NodeId, op: &'static Op) -> OpResult<Call<TensorType>> {
    let ty = |i: NodeId| graph[i].meta.ty.clone().unwrap_or(Val::Unknown);
    let args = full_args(op, graph, n)?;
    Ok(Call {
        op,
        args: args.iter().map(|a| infer::arg_type(a, &ty)).collect(),
    })
}

/// The location of the view `n` of a value at `parent`.
fn step_from(
    graph: &Graph,
    n: NodeId,
    op: &'static Op,
    parent: &ViewPlace,
    layout: Option<Layout>,
) -> OpResult<ViewPlace> {
    let mut steps = parent.steps.clone();
    let args = full_args(op, graph, n)?;
    let ty = graph[n].meta.ty.clone().unwrap_or(Val::Unknown);
    steps.push(ViewStep { op, args, ty });
    Ok(ViewPlace {
        root: parent.root,
        steps,
        version: parent.version,
        layout,
    })
}

/// Whether the node is a dropout that drops nothing, for which torch returns the operand itself.
pub(super) fn is_disabled_dropout(resolved: &Resolved) -> bool {
    resolved.types().is_some_and(|call| {
        let number = |p: &str| call.args.get(call.op.schema.index_of(p)?)?.as_f64();
        call.op.drops_nothing(number)
    })
}
