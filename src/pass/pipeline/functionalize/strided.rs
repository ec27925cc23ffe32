//! `as_strided`: views of the memory itself.

use super::write::{replace_node, written_back};
use super::{
    Functionalize, FunctionalizeError, ViewPlace, ViewStep, node_of, point_after, tensor_type, traced_step, written_at,
};
use crate::graph::{Arg, Graph, InsertPoint, NodeId};
use crate::infer::{self, Operand, Resolved};
use crate::op::emit::{dims_val, ints_val};
use crate::op::layout::{Layout, StridedWindow, resize_order, template_format};
use crate::op::sharing::is_expanded;
use crate::op::view::{BITS, scattered_view};
use crate::op::{Build, Call, MemoryUse, Op, OpBuilder, OpError, OpId, OpResult, lift_literal};
use crate::pass::build::full_args;
use crate::types::{DType, Dim, TensorType, Val};

/// Whether the call reads the memory of its first argument rather than its elements.
pub(super) fn reads_storage(resolved: &Resolved) -> bool {
    let used = resolved.op().map(|op| op.facts.memory);
    matches!(used, Some(MemoryUse::Window | MemoryUse::Resizes))
}

impl Functionalize<'_> {
    /// Records the memory layout of a call's result, if it is not a view and not in row-major order.
    pub(super) fn note_layout(&mut self, graph: &Graph, n: NodeId, resolved: &Resolved) {
        let Some(ty) = graph[n].meta.ty.as_ref() else { return };
        let known = |o: &Operand| match o {
            Operand::Node(i) => self.layout_of(graph, *i),
            Operand::Attr(path) => {
                let ty = infer::attribute_type(self.normalize.module(), path);
                Some(Layout::contiguous(ty.as_leaf()?.shape.as_deref()?))
            }
            Operand::Item(..) => None,
        };
        let layout = infer::result_layout(resolved, ty, &known);
        let plain = tensor_type(graph, n)
            .and_then(|t| layout.as_ref()?.is_contiguous(&t.shape?))
            .unwrap_or(false);
        if !plain {
            self.layouts.insert(n, layout);
        }
    }

    pub(super) fn layout_of(&self, graph: &Graph, n: NodeId) -> Option<Layout> {
        match self.places.get(&n) {
            Some(place) => place.layout.clone(),
            None => self.root_layout(graph, n),
        }
    }

    /// The memory layout of a value that owns its memory.
    pub(super) fn root_layout(&self, graph: &Graph, n: NodeId) -> Option<Layout> {
        match self.layouts.get(&n) {
            Some(layout) => layout.clone(),
            None => {
                let shape = tensor_type(graph, n)?.shape?;
                Some(Layout::contiguous(&shape))
            }
        }
    }

    /// Rewrites a call that reads the memory of its first argument.
    pub(super) fn rewrite_strided(
        &mut self,
        graph: &mut Graph,
        n: NodeId,
        op: &'static Op,
        resolved: &Resolved,
    ) -> Result<(), FunctionalizeError> {
        self.normalize.rewrite(graph, n, resolved)?;
        if op.facts.memory == MemoryUse::Resizes {
            return self.rewrite_resize(graph, n, op);
        }
        if op.facts.scatter_to.is_none() {
            if resolved.copies_result() {
                copy_result(graph, n)?;
            }
            return self.strided_view(graph, n, op).map(|_| ());
        }
        let (parent, steps, _) = self.requested_window(graph, n, op)?;
        self.scatter(graph, n, op, parent, steps)
    }

    /// Rewrites `resize`, which takes the first elements of the memory. The operand is permuted into its memory order,
    /// and `preserve_format` becomes the template's format.
    fn rewrite_resize(&mut self, graph: &mut Graph, n: NodeId, op: &'static Op) -> Result<(), FunctionalizeError> {
        let mut args = full_args(op, graph, n)?;
        let operand = |p: usize| {
            let x = *args.get(p)?.as_leaf()?;
            Some((x, tensor_type(graph, x)?.shape?, self.layout_of(graph, x)?))
        };
        let memory = operand(0).and_then(|(x, shape, layout)| Some((x, resize_order(&shape, &layout)?)));
        if matches!(&args[2], Val::TorchName(f) if f.ends_with("preserve_format")) {
            let format = operand(1).map(|(_, shape, layout)| template_format(&shape, &layout));
            args[2] = format.unwrap_or(Val::None);
        }
        if let Some((x, order)) = memory {
            args[0] = written_at(graph, n, InsertPoint::Before(n), |b| -> OpResult<Arg> {
                let x = b
                    .traced(x)
                    .ok_or_else(|| OpError::shape("the argument of `resize` is not a tensor"))?;
                let b: &mut dyn Build = b;
                Ok(Val::Leaf(node_of(&b.permute(&x, &order)?)))
            })?;
        }
        let format = args.split_off(2);
        graph.set_args(n, args);
        let named = format.into_iter().filter(|f| !f.is_none());
        graph.set_kwargs(n, named.map(|f| ("memory_format".into(), f)).collect());
        Ok(())
    }

    /// Rewrites `slice_scatter` and its like if the operand covers only a part of its memory and the graph reads
    /// memory: torch copies the rest of the memory too.
    pub(super) fn scatter_in_memory(
        &mut self,
        graph: &mut Graph,
        n: NodeId,
        op: &'static Op,
        resolved: &Resolved,
    ) -> Result<(), FunctionalizeError> {
        self.normalize.rewrite(graph, n, resolved)?;
        let call = Call {
            op,
            args: full_args(op, graph, n)?,
        };
        let (Some(x), Some(view)) = (call.args.first().and_then(Val::as_leaf), scattered_view(&call)) else {
            return Ok(());
        };
        let parent = self.place_of(graph, *x);
        let (Some(ty), Some(layout)) = (tensor_type(graph, *x), &parent.layout) else {
            return Ok(());
        };
        let count = ty.numel();
        let shape = ty.shape.unwrap_or_default();
        let whole = layout.storage == count && layout.dense_order(&shape).is_some();
        if whole
            || count == Dim::Const(0)
            || is_expanded(&shape, &layout.strides)
            || self.repeats_elements(graph, &parent)
        {
            return Ok(());
        }
        let source = call.args.get(1).and_then(Val::as_leaf);
        let part = source.and_then(|&s| graph[s].meta.ty.clone());
        let mut steps = parent.steps.clone();
        steps.push(ViewStep {
            op: view.op,
            args: view.args,
            ty: part.unwrap_or(Val::Unknown),
        });
        self.scatter(graph, n, op, parent, steps)
    }

    /// Replaces node `n`, an `as_strided`, by the view that it is, and returns the view.
    pub(super) fn strided_view(
        &mut self,
        graph: &mut Graph,
        n: NodeId,
        op: &'static Op,
    ) -> Result<NodeId, FunctionalizeError> {
        let (parent, steps, layout) = self.requested_window(graph, n, op)?;
        let root = &self.roots[&parent.root];
        let (base, version) = (root.value, root.version);
        let value = written_at(graph, n, InsertPoint::Before(n), |b| {
            steps.iter().fold(base, |value, step| {
                let call = traced_step(b, step, value);
                b.node(&call, step.ty.clone())
            })
        });
        replace_node(graph, n, &Val::Leaf(value));
        let place = ViewPlace {
            root: parent.root,
            steps,
            version,
            layout: Some(layout),
        };
        self.places.insert(value, place);
        Ok(value)
    }

    /// Rewrites a scatter: copies the memory, writes to it through `steps`, and returns the view of the copy.
    fn scatter(
        &mut self,
        graph: &mut Graph,
        n: NodeId,
        op: &'static Op,
        parent: ViewPlace,
        steps: Vec<ViewStep>,
    ) -> Result<(), FunctionalizeError> {
        let base = self.roots[&parent.root].value;
        let args = full_args(op, graph, n)?;
        let dtype = tensor_type(graph, n).map(|t| t.dtype);
        let (root, value) = written_at(graph, n, InsertPoint::Before(n), |b| -> OpResult<_> {
            let src = args.get(1).and_then(Val::as_leaf).and_then(|&s| b.traced(s));
            let src = src.ok_or_else(|| OpError::shape("the target of a write is not a tensor"))?;
            let src = (b as &mut dyn Build).to_dtype(&src, dtype.unwrap_or(src.dtype()))?;
            let root = written_back(b, base, &steps, node_of(&src))?;
            let value = parent.steps.iter().fold(root, |value, step| {
                let call = traced_step(b, step, value);
                b.node(&call, step.ty.clone())
            });
            Ok((root, value))
        })?;
        replace_node(graph, n, &Val::Leaf(value));
        let order = self.root_layout(graph, parent.root);
        self.layouts.insert(root, order);
        self.place_of(graph, root);
        if root != value {
            let place = ViewPlace {
                root,
                version: 0,
                ..parent
            };
            self.places.insert(value, place);
        }
        Ok(())
    }

    /// The location of the first argument of node `n`, and the steps and layout of the requested window of its root.
    fn requested_window(
        &mut self,
        graph: &Graph,
        n: NodeId,
        op: &'static Op,
    ) -> OpResult<(ViewPlace, Vec<ViewStep>, Layout)> {
        let args = full_args(op, graph, n)?;
        let x = args.first().and_then(Val::as_leaf).copied();
        let x = x.ok_or_else(|| OpError::shape("the argument of `as_strided` is not a tensor"))?;
        let parent = self.place_of(graph, x);
        let operand =
            tensor_type(graph, x).ok_or_else(|| OpError::shape("the argument of `as_strided` is not a tensor"))?;
        let ty = |i: NodeId| graph[i].meta.ty.clone().unwrap_or(Val::Unknown);
        let call: Call<TensorType> = Call {
            op,
            args: args.iter().map(|a| infer::arg_type(a, &ty)).collect(),
        };
        let mut window = StridedWindow::from_call(&call)?;
        let parent_offset = parent.layout.as_ref().map(|layout| layout.offset.clone());
        let Some(offset) = window.offset.clone().or(parent_offset) else {
            return Err(unknown_order_error(n, graph));
        };
        window.offset = Some(offset.clone());
        let (mut steps, storage) = self
            .storage_steps(graph, parent.root, operand.dtype)
            .ok_or_else(|| unknown_order_error(n, graph))?;
        window.check_bounds(&storage, operand.dtype)?;
        steps.push(window_step(&window, &offset, operand.dtype)?);
        let layout = Layout {
            offset,
            strides: window.strides,
            storage,
        };
        Ok((parent, steps, layout))
    }

    /// The views that turn a root into its elements in memory order, as numbers of `dtype`, and the number of elements.
    pub(super) fn storage_steps(&self, graph: &Graph, root: NodeId, dtype: DType) -> Option<(Vec<ViewStep>, Dim)> {
        let ty = tensor_type(graph, root)?;
        let shape = ty.shape.clone()?;
        let order = self.root_layout(graph, root)?.dense_order(&shape)?;
        let mut steps = vec![];
        let mut current = ty;
        if order.iter().enumerate().any(|(i, &d)| i != d) {
            current.shape = Some(order.iter().map(|&d| shape[d].clone()).collect());
            let dims: Vec<i64> = order.iter().map(|&d| d as i64).collect();
            steps.push(view_step(OpId::Permute, vec![ints_val(&dims)], &current));
        }
        let mut count = current.numel();
        if current.dtype != dtype {
            current.shape = Some(vec![count.clone()]);
            steps.push(view_step(
                OpId::Reshape,
                vec![dims_val(std::slice::from_ref(&count))],
                &current,
            ));
            let bytes = count.mul(&Dim::from(current.dtype.size()));
            count = bytes.exact_div(&Dim::from(dtype.size()))?;
            current = TensorType::new(dtype, vec![count.clone()]);
            steps.push(view_step(BITS, vec![Val::DType(dtype)], &current));
        }
        Some((steps, count))
    }
}

fn view_step(id: OpId, rest: Vec<Arg>, ty: &TensorType) -> ViewStep {
    let op = id.op();
    let mut args = vec![Val::None];
    args.extend(rest);
    args.extend(
        op.schema
            .params
            .iter()
            .skip(args.len())
            .map(|p| p.default.as_ref().map_or(Val::None, lift_literal)),
    );
    ViewStep {
        op,
        args,
        ty: Val::Leaf(ty.clone()),
    }
}

pub(super) fn window_step(window: &StridedWindow, offset: &Dim, dtype: DType) -> OpResult<ViewStep> {
    let args = vec![
        dims_val(&window.size),
        dims_val(&window.strides),
        Val::Int(offset.clone()),
    ];
    Ok(view_step(
        OpId::Strided,
        args,
        &TensorType::new(dtype, window.size.clone()),
    ))
}

fn unknown_order_error(n: NodeId, graph: &Graph) -> OpError {
    let title = format!(
        "the memory order of the operand of `{}` depends on sizes",
        graph[n].target()
    );
    OpError::refused(title).help("fix the sizes (`--fix`), or call `contiguous` on the operand first")
}

/// Copies the result of `n` for its users: later writes to the memory do not reach the copy.
fn copy_result(graph: &mut Graph, n: NodeId) -> OpResult<()> {
    let users: Vec<NodeId> = graph[n].users().collect();
    let copy = written_at(graph, n, point_after(graph, n), |b| {
        let x = b.traced(n);
        let x = x.ok_or_else(|| OpError::shape("the result of a view is not a tensor"))?;
        let b: &mut dyn Build = b;
        b.clone(&x).map(|t| node_of(&t))
    })?;
    for u in users {
        graph.replace_input_with(u, n, copy);
    }
    Ok(())
}
