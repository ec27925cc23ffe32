//! Rewrites writes: the op without its write, and the new value of the memory.

use super::alias::is_disabled_dropout;
use super::{
    Functionalize, FunctionalizeError, Root, ViewPlace, ViewStep, node_of, point_after, strided, tensor_type,
    traced_step, written_at,
};
use crate::graph::{Arg, Graph, InsertPoint, NodeId};
use crate::infer::{self, Operand, Resolved};
use crate::op::drawing::{draw_order, draw_permutations};
use crate::op::layout::{Layout, StridedWindow};
use crate::op::sharing::{expanded_write_error, is_expanded, may_share, takes_shared, write_changes};
use crate::op::view::write_through;
use crate::op::{Build, Call, Op, OpError, OpId, OpResult, Sizes, Traced, running};
use crate::pass::build::{GraphBuilder, full_args, replace_with_value};
use crate::types::{TensorType, Type, Val};

impl Functionalize<'_> {
    /// Rewrites a node that writes its result to `target` as the op without the write.
    pub(super) fn rewrite_write(
        &mut self,
        graph: &mut Graph,
        n: NodeId,
        op: &'static Op,
        resolved: &Resolved,
        target: &Operand,
    ) -> Result<(), FunctionalizeError> {
        let x = target_node(target)?;
        self.normalize.rewrite(graph, n, resolved)?;
        let ty = infer::infer_node(self.normalize.module(), graph, n)?;
        graph.meta_mut(n).ty = Some(ty.clone());
        let n = match self.drawn_in_order(graph, n, op, resolved)? {
            Some(drawn @ Val::Leaf(m)) => {
                replace_node(graph, n, &drawn);
                m
            }
            _ => n,
        };
        if strided::reads_storage(resolved) && resolved.out.is_empty() {
            // `x.as_strided_(…)`: from here on, `x` is that view.
            let value = self.strided_view(graph, n, op)?;
            self.newest.insert(x, value);
            return Ok(());
        }
        if op.view.is_some() && op.aliases && resolved.out.is_empty() {
            return self.rewrite_view_in_place(graph, n, op, x);
        }
        let target_type = graph[x].meta.ty.clone().unwrap_or(Val::Unknown);
        let value = self.convert_to_target(graph, n, &ty, &target_type)?;
        let place = self.place_of(graph, x);
        let may =
            |layout: &Layout| resolved.out.is_empty() && resolved.types().is_some_and(|c| takes_shared(&c, layout));
        let shared = place.layout.as_ref().is_some_and(may);
        self.store_in_root(graph, x, value, place, shared)
    }

    /// Rewrites a view in place, such as `x.unsqueeze_(0)`: from here on, `x` is the view.
    fn rewrite_view_in_place(
        &mut self,
        graph: &mut Graph,
        n: NodeId,
        op: &'static Op,
        x: NodeId,
    ) -> Result<(), FunctionalizeError> {
        let parent = self.place_of(graph, x);
        let from = tensor_type(graph, x).ok_or_else(|| OpError::shape("the argument of a view is not a tensor"))?;
        if let Some(place) = self.place_through_view(graph, n, op, &parent, &from)? {
            self.places.insert(n, place);
        }
        self.newest.insert(x, n);
        Ok(())
    }

    /// Rewrites a random draw so that it follows the memory order of its operand.
    pub(super) fn rewrite_draw(
        &mut self,
        graph: &mut Graph,
        n: NodeId,
        op: &'static Op,
        resolved: &Resolved,
    ) -> Result<(), FunctionalizeError> {
        match self.drawn_in_order(graph, n, op, resolved)? {
            Some(value) => {
                replace_node(graph, n, &value);
                Ok(())
            }
            // Without writes it does not matter which memory the result has.
            None if !self.is_written && !is_disabled_dropout(resolved) => Ok(()),
            None => self.rewrite_shared(graph, n, op, resolved),
        }
    }

    /// The replacement of a node that draws in an order other than that of its dims: the draw for its operand permuted.
    fn drawn_in_order(
        &mut self,
        graph: &mut Graph,
        n: NodeId,
        op: &'static Op,
        resolved: &Resolved,
    ) -> Result<Option<Arg>, FunctionalizeError> {
        let operand = resolved.call().and_then(|c| c.args.first()?.as_leaf().cloned());
        let (Some(types), Some(Operand::Node(x))) = (resolved.types(), operand) else {
            return Ok(None);
        };
        let operand_layout = self.layout_of(graph, x);
        let in_place = resolved.is_inplace();
        let Some(order) = operand_layout.and_then(|layout| draw_order(&types, &layout, in_place)) else {
            return Ok(None);
        };
        self.normalize.rewrite(graph, n, resolved)?;
        let args = full_args(op, graph, n)?;
        let value = written_at(graph, n, InsertPoint::Before(n), |b| -> OpResult<_> {
            let [forth, back] = draw_permutations(&order);
            let mut traced: Vec<Val<Traced>> = args.iter().map(|a| b.trace(a)).collect();
            traced[0] = b.call_row(OpId::Permute.op(), vec![traced[0].clone(), forth])?;
            let drawn = b.call_row(op, traced)?;
            let results: Val<Traced> =
                drawn.try_map(&mut |t: &Traced| b.call_row(OpId::Permute.op(), vec![t.into(), back.clone()]))?;
            Ok(GraphBuilder::to_arg(&results))
        })?;
        self.reordered_draws += 1;
        if let (Val::Leaf(v), Some(layout)) = (&value, self.layouts.get(&n).cloned()) {
            self.layouts.insert(*v, layout);
        }
        Ok(Some(value))
    }

    /// Rewrites a node that writes its results to several tensors: `topk(x, 3, out=(values, indices))`.
    pub(super) fn write_several(
        &mut self,
        graph: &mut Graph,
        n: NodeId,
        op: &'static Op,
        resolved: &Resolved,
    ) -> Result<(), FunctionalizeError> {
        let outs = resolved.out.iter().map(|(o, _)| target_node(o));
        let targets = outs.collect::<OpResult<Vec<NodeId>>>()?;
        self.normalize.rewrite(graph, n, resolved)?;
        let args = full_args(op, graph, n)?;
        let target_types: Vec<_> = targets.iter().map(|&x| tensor_type(graph, x)).collect();
        let values = written_at(graph, n, InsertPoint::Before(n), |b| -> OpResult<_> {
            let traced = args.iter().map(|a| b.trace(a)).collect();
            let results = b.call_row(op, traced)?;
            let results = results.items().unwrap_or_default().to_vec();
            let b: &mut dyn Build = b;
            let cast = |(v, want): (Val<Traced>, Option<TensorType>)| match (v, want) {
                (Val::Leaf(t), Some(want)) => b.to_dtype(&t, want.dtype).map(|t| node_of(&t)),
                _ => Err(OpError::arg("out", "`out` must be tensors")),
            };
            results
                .into_iter()
                .zip(target_types)
                .map(cast)
                .collect::<OpResult<Vec<NodeId>>>()
        })?;
        if values.len() != targets.len() {
            return Err(infer::wrong_number(targets.len(), values.len()).into());
        }
        for (&x, &value) in targets.iter().zip(&values) {
            let place = self.place_of(graph, x);
            self.store_in_root(graph, x, value, place, false)?;
        }
        let all = Val::Tuple(values.into_iter().map(Val::Leaf).collect());
        replace_node(graph, n, &all);
        Ok(())
    }

    /// Rewrites a batch normalisation in training as its functional form and writes of the running statistics.
    pub(super) fn rewrite_statistics(
        &mut self,
        graph: &mut Graph,
        n: NodeId,
        op: &'static Op,
        resolved: &Resolved,
    ) -> Result<(), FunctionalizeError> {
        self.normalize.rewrite(graph, n, resolved)?;
        let args = full_args(op, graph, n)?;
        let (own_results, writes) = written_at(graph, n, InsertPoint::Before(n), |b| -> OpResult<_> {
            let call = Call {
                op,
                args: args.iter().map(|a| b.trace(a)).collect(),
            };
            let form =
                running::functional_form(&call).ok_or_else(|| OpError::shape("there are no statistics to update"))?;
            let results = b.call_row(form.call.op, form.call.args.clone())?;
            let results = results.items().unwrap_or_default();
            Ok((
                GraphBuilder::to_arg(&form.own_result(&call, results)),
                form.written_params(results),
            ))
        })?;
        for (param, new) in writes {
            if let (Val::Leaf(x), Val::Leaf(t)) = (&args[param], new) {
                let place = self.place_of(graph, *x);
                self.store_in_root(graph, *x, node_of(&t), place, false)?;
            }
        }
        replace_node(graph, n, &own_results);
        Ok(())
    }

    /// The value of node `n`, of type `ty`, converted to the dtype of the tensor it is written to.
    fn convert_to_target(&mut self, graph: &mut Graph, n: NodeId, ty: &Type, target: &Type) -> OpResult<NodeId> {
        let (Val::Leaf(have), Val::Leaf(want)) = (ty, target) else {
            return Ok(n);
        };
        if have.dtype == want.dtype {
            return Ok(n);
        }
        let point = point_after(graph, n);
        let cast = written_at(graph, n, point, |b| {
            let x = b
                .traced(n)
                .ok_or_else(|| OpError::shape("the argument of a cast is not a tensor"))?;
            let b: &mut dyn Build = b;
            b.to_dtype(&x, want.dtype)
        })?;
        let cast = node_of(&cast);
        graph.replace_uses_where(n, cast, |_, u| u != cast);
        Ok(cast)
    }

    /// How a write to `x` at `place` reaches its root. If a view of the chain repeats elements, writing back through it
    /// would let the other copies of an element overwrite the new value, so the write goes to the memory directly.
    fn write_route(&self, graph: &Graph, x: NodeId, place: &ViewPlace) -> OpResult<WriteRoute> {
        let Some(layout) = place.layout.as_ref().filter(|_| self.repeats_elements(graph, place)) else {
            return Ok(WriteRoute::Views);
        };
        let Some(TensorType {
            dtype,
            shape: Some(size),
        }) = tensor_type(graph, x)
        else {
            return Ok(WriteRoute::Views);
        };
        let Some((mut steps, _)) = self.storage_steps(graph, place.root, dtype) else {
            return Ok(WriteRoute::Views);
        };
        let window = StridedWindow {
            size,
            strides: layout.strides.clone(),
            offset: Some(layout.offset.clone()),
        };
        steps.push(strided::window_step(&window, &layout.offset, dtype)?);
        Ok(match may_share(&window.size, &window.strides) {
            true => WriteRoute::Changes(steps, window),
            false => WriteRoute::Window(steps),
        })
    }

    /// Whether one of the views repeats elements.
    pub(super) fn repeats_elements(&self, graph: &Graph, place: &ViewPlace) -> bool {
        let mut from = graph[place.root].meta.ty.clone();
        place.steps.iter().any(|step| {
            let operand = from.replace(step.ty.clone());
            let (Some(rule), Some(Val::Leaf(operand))) = (step.op.view, operand) else {
                return false;
            };
            let ty = |i: NodeId| graph[i].meta.ty.clone().unwrap_or(Val::Unknown);
            let mut args: Vec<Val<TensorType>> = step.args.iter().map(|a| infer::arg_type(a, &ty)).collect();
            args[0] = Val::Leaf(operand.clone());
            let Ok(view) = rule(&Call { op: step.op, args }, &mut Sizes::default()) else {
                return false;
            };
            let strides = view.offset_and_strides(&operand.shape.unwrap_or_default()).1;
            may_share(&view.shape, &strides)
        })
    }

    /// Gives the root of `place` a new value that holds `value` at that place. `shared`: whether elements may share
    /// memory there.
    fn store_in_root(
        &mut self,
        graph: &mut Graph,
        x: NodeId,
        value: NodeId,
        place: ViewPlace,
        shared: bool,
    ) -> Result<(), FunctionalizeError> {
        let root = &self.roots[&place.root];
        let (base, version) = (root.value, root.version + 1);
        let point = point_after(graph, value);
        let route = self.write_route(graph, x, &place)?;
        let shares = matches!(route, WriteRoute::Changes(..));
        if !shared && route.is_expanded() {
            return Err(expanded_write_error().into());
        }
        let new_base = written_at(graph, value, point, |b| match &route {
            WriteRoute::Views => written_back(b, base, &place.steps, value),
            WriteRoute::Window(steps) => written_back(b, base, steps, value),
            WriteRoute::Changes(steps, window) => changes_written(b, base, steps, window, value),
        })?;
        let new_root = Root {
            value: new_base,
            version,
        };
        self.roots.insert(place.root, new_root);
        let root_place = ViewPlace {
            steps: vec![],
            version,
            ..place.clone()
        };
        self.places.insert(new_base, root_place);
        // Where elements share memory, the value there may differ from `value`: readers must view the root again.
        let version = if shares { version - 1 } else { version };
        self.places.insert(value, ViewPlace { version, ..place });
        if x != value {
            self.newest.insert(x, value);
        }
        Ok(())
    }
}

/// How a write reaches the root.
enum WriteRoute {
    /// Back through the views.
    Views,
    /// Through these steps to a window of the root's memory.
    Window(Vec<ViewStep>),
    /// Like `Window`, whose last step is the window, but its elements may share memory.
    Changes(Vec<ViewStep>, StridedWindow),
}

impl WriteRoute {
    /// Whether the write reaches a window with several elements in one place.
    fn is_expanded(&self) -> bool {
        matches!(self, WriteRoute::Changes(_, window) if is_expanded(&window.size, &window.strides))
    }
}

/// Writes the elements of `value` that differ from the window's to the window, which is the last step. Returns the new
/// `base`.
fn changes_written(
    b: &mut GraphBuilder<'_>,
    base: NodeId,
    steps: &[ViewStep],
    window: &StridedWindow,
    value: NodeId,
) -> OpResult<NodeId> {
    let before = &steps[..steps.len().saturating_sub(1)];
    let memory = before.iter().fold(base, |operand, step| {
        let call = traced_step(b, step, operand);
        b.node(&call, step.ty.clone())
    });
    let traced = |b: &GraphBuilder<'_>, n| {
        b.traced(n)
            .ok_or_else(|| OpError::shape("the target of a write is not a tensor"))
    };
    let (memory, value) = (traced(b, memory)?, traced(b, value)?);
    let new = write_changes(b, &memory, window, &value)?;
    written_back(b, base, before, node_of(&new))
}

/// The value of `base` with `value` written to the view that `steps` describe.
pub(super) fn written_back(
    b: &mut GraphBuilder<'_>,
    base: NodeId,
    steps: &[ViewStep],
    value: NodeId,
) -> OpResult<NodeId> {
    // The calls of the views, from the root down.
    let mut calls = vec![];
    let mut current = base;
    for (i, step) in steps.iter().enumerate() {
        let call = traced_step(b, step, current);
        if i + 1 < steps.len() {
            current = b.node(&call, step.ty.clone());
        }
        calls.push(call);
    }
    let mut new = b
        .traced(value)
        .ok_or_else(|| OpError::shape("the target of a write is not a tensor"))?;
    for call in calls.iter().rev() {
        new = write_through(b, call, &new)?;
    }
    // A view of everything in the same order gives the value itself. But view and base are two tensors: a call such as `unsqueeze_`
    // changes the shape of one of them.
    if node_of(&new) == value && !calls.is_empty() {
        let b: &mut dyn Build = b;
        new = b.op(OpId::Alias, [(&new).into()])?;
    }
    Ok(node_of(&new))
}

/// Replaces the uses of node `n` by `value` and erases the node.
pub(super) fn replace_node(graph: &mut Graph, n: NodeId, value: &Arg) {
    replace_with_value(graph, n, value);
    // It has no users any more, so erasing it cannot fail.
    let _ = graph.erase_node(n);
}

/// The node that is written to.
fn target_node(target: &Operand) -> OpResult<NodeId> {
    match target {
        Operand::Node(x) => Ok(*x),
        _ => Err(OpError::refused("a write to a list item cannot be functionalized")),
    }
}
