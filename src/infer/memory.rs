//! What inference knows about memory: the layouts of results, and which nodes are the same Python object.

use super::call::has_unknown;
use super::resolved::{Operand, Resolved};
use crate::graph::NodeId;
use crate::op::layout::{self, Layout, StridedWindow};
use crate::op::{Call, Meaning, MemoryUse, OpError, OpId, OpResult};
use crate::types::{ScalarKind, TensorType, Type, Val};
use cranelift_entity::SecondaryMap;

/// What is known about the nodes of a graph up to a point.
pub(super) struct MemoryFacts {
    /// The current types of the nodes so far: `x.unsqueeze_(0)` changes the type of `x`.
    pub(super) types: SecondaryMap<NodeId, Type>,
    /// The layouts of tensors. For a node with several results, it says whether they have memory of their own.
    layouts: SecondaryMap<NodeId, Option<Layout>>,
    /// Whether torch is certain to use the layout in `layouts`. This holds for inputs and for the results of views and
    /// pointwise ops on them; the layouts of other ops' results are guesses.
    certain: SecondaryMap<NodeId, bool>,
    /// The first node that is the same Python object, if this node is not the first.
    objects: SecondaryMap<NodeId, Option<NodeId>>,
}

impl MemoryFacts {
    pub(super) fn new() -> MemoryFacts {
        MemoryFacts {
            types: SecondaryMap::with_default(Val::Unknown),
            layouts: SecondaryMap::new(),
            certain: SecondaryMap::new(),
            objects: SecondaryMap::new(),
        }
    }

    /// Records an input or attribute, which is assumed to be row-major. `certain` says whether it is known to be: fxc's
    /// own inputs are.
    pub(super) fn note_plain(&mut self, n: NodeId, ty: &Type, certain: bool) {
        self.certain[n] = certain;
        self.types[n] = ty.clone();
        let shape = ty.as_leaf().and_then(|t| t.shape.as_deref());
        self.layouts[n] = shape.map(Layout::contiguous);
    }

    /// Records the result of a call.
    pub(super) fn record_call(&mut self, n: NodeId, resolved: &Resolved, ty: &Type) {
        self.types[n] = ty.clone();
        self.certain[n] = self.is_certain(resolved);
        let layout = result_layout(resolved, ty, &|o| self.layout(o));
        let Some(Operand::Node(target)) = resolved.written() else {
            self.layouts[n] = layout;
            if let Some(target) = self.same_object(resolved, ty) {
                self.objects[n] = Some(self.objects[target].unwrap_or(target));
            }
            return;
        };
        let object = self.objects[target].unwrap_or(target);
        self.objects[n] = Some(object);
        let reshapes = resolved.op().is_some_and(|op| op.view.is_some() && op.aliases) && resolved.out.is_empty();
        if !reshapes {
            self.layouts[n] = self.layouts[target].clone();
            return;
        }
        self.layouts[n] = layout.clone();
        let same: Vec<NodeId> = self
            .objects
            .keys()
            .filter(|&m| self.objects[m] == Some(object))
            .collect();
        for m in same.into_iter().chain([object]) {
            self.types[m] = ty.clone();
            self.layouts[m] = layout.clone();
        }
    }

    /// Refines the type of a call's result by what depends on memory: evaluates `stride()` and similar ops, and checks
    /// that `as_strided` stays within its storage.
    pub(super) fn in_memory(&self, resolved: &Resolved, ty: Type) -> OpResult<Type> {
        let (Some(op), Some(types)) = (resolved.op(), resolved.types()) else {
            return Ok(ty);
        };
        // An operand of unknown type is not an error by itself.
        if ty == Val::Unknown || types.args.iter().any(has_unknown) {
            return Ok(ty);
        }
        let used = op.facts.memory;
        if !matches!(used, MemoryUse::Asks | MemoryUse::Checks | MemoryUse::Window) {
            return Ok(ty);
        }
        let operands = resolved.call();
        let operand = operands.as_ref().and_then(|c| c.args.first()?.as_leaf());
        let layout = operand.and_then(|o| self.layout(o));
        if used == MemoryUse::Checks {
            let certain = operand.is_some_and(|o| matches!(o, Operand::Node(n) if self.certain[*n]));
            // A bare name is the canonical op: its view copies where it must, and its assertions have been checked
            // before.
            if resolved.path().is_some_and(|p| p.contains('.')) {
                check_layout(&types, &ty, layout, certain)?;
            }
            return Ok(ty);
        }
        if used == MemoryUse::Asks {
            let value = layout
                .as_ref()
                .map(|layout| layout::host_value(&types, layout))
                .transpose()?;
            return Ok(value.flatten().unwrap_or_else(|| forget_value(ty)));
        }
        if let (Some(layout), Ok(x)) = (layout, types.leaf("self")) {
            let mut window = StridedWindow::from_call(&types)?;
            window.offset.get_or_insert(layout.offset);
            window.check_bounds(&layout.storage, x.dtype)?;
        }
        Ok(ty)
    }

    /// The node that is the same Python object as the result of a call.
    fn same_object(&self, resolved: &Resolved, ty: &Type) -> Option<NodeId> {
        let (op, types, operands) = (resolved.op()?, resolved.types()?, resolved.call()?);
        let Some(Operand::Node(x)) = operands.args.first()?.as_leaf() else {
            return None;
        };
        let same = !resolved.copies_result() && op.gives_operand(&types, ty, self.layouts[*x].as_ref());
        same.then_some(*x)
    }

    /// Whether the layout of a call's result is certain, not a guess.
    fn is_certain(&self, resolved: &Resolved) -> bool {
        let Some(op) = resolved.op() else { return false };
        let plain = op.view.is_some() || matches!(op.meaning, Meaning::Pointwise(_));
        let known = |o: &Operand| matches!(o, Operand::Node(n) if self.certain[*n]);
        let by_name = resolved.kwargs.iter().map(|(_, v)| v);
        plain && resolved.args.iter().chain(by_name).flat_map(Val::leaves).all(known)
    }

    /// The layout of an operand.
    fn layout(&self, o: &Operand) -> Option<Layout> {
        match o {
            Operand::Node(n) => self.layouts[*n].clone(),
            _ => None,
        }
    }
}

/// The type of a number or bool without its value.
fn forget_value(ty: Type) -> Type {
    match ty {
        Val::Int(_) => Val::Any(ScalarKind::Int),
        Val::Bool(_) => Val::Any(ScalarKind::Bool),
        Val::Tuple(v) => Val::Tuple(v.into_iter().map(forget_value).collect()),
        ty => ty,
    }
}

/// The layout of a call's result of type `ty`; `layout_of` returns the layouts of operands. For several results, it says
/// whether they have memory of their own.
pub(crate) fn result_layout(
    resolved: &Resolved,
    ty: &Type,
    layout_of: &dyn Fn(&Operand) -> Option<Layout>,
) -> Option<Layout> {
    let (op, types, operands) = (resolved.op()?, resolved.types()?, resolved.call()?);
    let of_param = |i: usize| layout_of(operands.args.get(i)?.as_leaf()?);
    let Val::Leaf(out) = ty else {
        return layout::of_results(&types, &of_param).filter(|_| !op.aliases);
    };
    let shape = out.shape.as_deref()?;
    let items = types.args.first().is_some_and(|v| v.items().is_some());
    if items && op.is(OpId::ItemOf) {
        // An item of several results.
        let first = of_param(0)?;
        return Some(match first.strides.len() == shape.len() {
            true => first,
            false => Layout::contiguous(shape),
        });
    }
    match resolved.copies_result() {
        true => Some(Layout::contiguous(shape)),
        false => layout::of_call(&types, out, &of_param),
    }
}

/// Checks a call that depends on the layout of its first operand. Only a layout that is `certain` is an error.
fn check_layout(types: &Call<TensorType>, ty: &Type, layout: Option<Layout>, certain: bool) -> OpResult<()> {
    let checked = layout.map(|layout| layout::check_strides(types, ty, &layout));
    match (checked, types.op.id()) {
        (Some(Err(e)), _) if certain => Err(e),
        (None | Some(Err(_)), Some(OpId::_AssertTensorMetadata)) if !types.is_none("stride") => {
            let e = OpError::arg("stride", "the strides of `a` are unknown here and cannot be compared");
            Err(e.help("omit `stride`; sizes, dtype and layout are still compared"))
        }
        _ => Ok(()),
    }
}
