//! Constant folding: computes values that depend only on constants.
//!
//! The interpreter does the computing, so a folded value equals the value at run time. Results above the size limit,
//! random draws and effects are not folded. Results that take the place of a constant may be larger: weights that are
//! normalised in every call, or stored as 8-bit floats. So may products of constants. A result whose elements are all equal becomes `full`, which needs no memory.
//!
#![doc = include_str!("../examples/fold.md")]

mod budget;

use crate::diag::Diagnostic;
use crate::graph::purity::canonical_effect;
use crate::graph::{Arg, Graph, GraphModule, NodeId, Opcode};
use crate::infer::{self, Operand};
use crate::interp;
use crate::op::{Effect, Filled, Meaning, Op, OpId};
use crate::pass::build::{NodeOrigin, full_args};
use crate::pass::{PassContext, canonical_op, each_graph};
use crate::tensor::{FEWEST_INTEGERS, Scalar, Tensor, byte_len};
use crate::types::{Category, DType, TensorType, Type, Val};
use budget::FoldBudget;

/// The most views between a constant and the node that computes from it.
const VIEWS: usize = 16;

/// See the module.
pub(crate) fn run(module: &mut GraphModule, cx: &mut PassContext) -> Result<usize, Diagnostic> {
    let mut budget = FoldBudget::new(cx.options.fold_limit);
    each_graph(module, |module, graph| {
        let mut changed = 0;
        for n in graph.ids() {
            if let Some(v) = filled_value(graph, n) {
                replace_with_full(graph, n, v);
                changed += 1;
            } else if let Some(t) = constant_value(module, graph, n, &mut budget) {
                replace_with_constant(module, graph, n, t);
                changed += 1;
            }
        }
        Ok(changed)
    })
}

/// The uniform value of a node that takes only shape and dtype from its operand.
fn filled_value(graph: &Graph, n: NodeId) -> Option<Arg> {
    let op = canonical_op(graph, n)?;
    let ty = graph[n].meta.ty.as_ref()?.as_leaf()?;
    ty.fixed_shape().filter(|_| ty.dtype.is_computed())?;
    let whole = |v: i64| match ty.dtype.category() {
        Category::Bool => Some(Val::Bool(v != 0)),
        Category::Int => Some(Val::int(v)),
        Category::Float => Some(Val::Float(v as f64)),
        Category::Complex => None,
    };
    // Without a tensor operand there is nothing to fold.
    graph[n].args().first()?.as_leaf()?;
    match op.filled()? {
        Filled::Number(v) => whole(v),
        Filled::Parameter(p) => {
            let args = full_args(op, graph, n).ok()?;
            let value = &args[p];
            // Only if the dtype represents the number exactly: nothing is rounded here.
            match (ty.dtype.category(), value) {
                (Category::Float, Val::Int(_) | Val::Float(_)) => value.as_f64().map(Val::Float),
                (Category::Int, Val::Int(_)) => value.as_int().map(Val::int),
                (Category::Bool, Val::Bool(b)) => Some(Val::Bool(*b)),
                _ => None,
            }
        }
    }
}

/// The value of a node that depends only on constants.
fn constant_value(module: &GraphModule, graph: &Graph, n: NodeId, budget: &mut FoldBudget) -> Option<Tensor> {
    let op = canonical_op(graph, n)?;
    if canonical_effect(op, graph, n, module) != Effect::Pure || op.is(OpId::Full) || graph[n].users().len() == 0 {
        return None;
    }
    let ty = graph[n].meta.ty.as_ref()?.as_leaf()?;
    let allowed = match () {
        // Products read stored integers, so the result is not a second copy in memory for long.
        _ if unpacks_integers(module, graph, n, ty) => usize::MAX,
        _ if replaces_constant(module, graph, n, op, ty) || decodes_float8(module, graph, n, ty) => {
            budget.for_replacement()
        }
        _ if budget.folds_product(graph, n, op, ty) => budget.for_replacement(),
        _ => budget.limit,
    };
    let size = byte_len(ty.dtype, &ty.fixed_shape()?)?;
    if size > allowed || is_generated_result(op, graph, n) || widens_integers(module, graph, n, ty) {
        return None;
    }
    let value = evaluate_node(module, graph, n, allowed).filter(|t| t.ty() == *ty)?;
    budget.spend(graph, n, op, (ty, size));
    Some(value)
}

/// The result of a node whose operands are constants that fit the limit.
fn evaluate_node(module: &GraphModule, graph: &Graph, n: NodeId, limit: usize) -> Option<Tensor> {
    // Evaluating an operand, such as a transposed weight, is wasted if another depends on the inputs.
    if !graph[n].inputs().into_iter().all(|i| may_be_constant(graph, i)) {
        return None;
    }
    let resolved = infer::resolve_node(module, graph, n).ok()?;
    if resolved.written().is_some() {
        return None;
    }
    let mut constant = true;
    let call = resolved.apply(&mut |o| {
        let value = match o {
            Operand::Node(i) => value_of(module, graph, *i, limit),
            _ => None,
        };
        value.unwrap_or_else(|| {
            constant = false;
            Val::Unknown
        })
    })?;
    if !constant || !inputs_fit(&call.args, limit) {
        return None;
    }
    // An error here is also an error at run time, where it is reported with its location.
    let value = interp::evaluate_call(&call).ok()?;
    value.as_leaf().cloned()
}

/// Whether the result takes the place of a constant that is at least as large and unused afterwards, such as a weight that is normalised
/// in every call. Folding then needs no further memory, and a product or convolution can pack the result. Rearranged elements stay
/// views, which cost nothing.
fn replaces_constant(module: &GraphModule, graph: &Graph, n: NodeId, op: &Op, ty: &TensorType) -> bool {
    let size = ty.fixed_shape().and_then(|shape| byte_len(ty.dtype, &shape));
    let is_larger = |source: &NodeId| {
        let value = module.attributes.get(graph[*source].target());
        let bytes = value.and_then(|a| a.value.as_ref()).map(|t| t.byte_count());
        bytes >= size
    };
    let is_view = matches!(op.meaning, Meaning::View(_));
    size.is_some()
        && !is_view
        && graph[n]
            .inputs()
            .into_iter()
            .filter_map(|i| only_used_constant(graph, i))
            .any(|s| is_larger(&s))
}

/// The constant that a node is, or that it is a view of, if nothing else reads it.
fn only_used_constant(graph: &Graph, mut n: NodeId) -> Option<NodeId> {
    for _ in 0..=VIEWS {
        let readers = graph[n].users().filter(|&u| reads_elements(graph, u, n));
        if readers.take(2).count() != 1 {
            return None;
        }
        if graph[n].op() == Opcode::GetAttr {
            return Some(n);
        }
        n = viewed_operand(graph, n)?;
    }
    None
}

/// Whether a user of `n` reads its elements. `reshape_as` and the like take only the shape from their second operand.
fn reads_elements(graph: &Graph, user: NodeId, n: NodeId) -> bool {
    viewed_operand(graph, user).is_none_or(|viewed| viewed == n)
}

/// The operand of a view.
fn viewed_operand(graph: &Graph, n: NodeId) -> Option<NodeId> {
    let op = canonical_op(graph, n).filter(|op| matches!(op.meaning, Meaning::View(_)))?;
    (!op.is(OpId::Full)).then(|| graph[n].args().first()?.as_leaf().copied())?
}

/// Whether the node converts a constant of 8-bit floats, that nothing else reads, to larger ones. Kernels do not compute with 8-bit floats,
/// so every call would convert the whole weight.
fn decodes_float8(module: &GraphModule, graph: &Graph, n: NodeId, ty: &TensorType) -> bool {
    let source = graph[n].inputs().first().and_then(|&i| only_used_constant(graph, i));
    let value = source.and_then(|s| module.attributes.get(graph[s].target())?.value.as_ref());
    let numel = ty.fixed_shape().and_then(|shape| byte_len(DType::U8, &shape));
    let is_source = |t: &Tensor| t.dtype().is_float8() && Some(t.numel()) == numel;
    ty.dtype.is_float() && !ty.dtype.is_float8() && value.is_some_and(is_source)
}

/// Whether the node takes apart constants of 8-bit integers, such as weights of 4 bits: it computes 8-bit integers from them, at most as
/// many as there are halves of bytes. Lowering can multiply by constant integers, but not by computed ones.
fn unpacks_integers(module: &GraphModule, graph: &Graph, n: NodeId, ty: &TensorType) -> bool {
    let inputs = graph[n].inputs();
    let sizes: Option<Vec<usize>> = inputs.iter().map(|&i| constant_bytes(module, graph, i)).collect();
    let total = sizes.and_then(|s| s.into_iter().try_fold(0usize, usize::checked_add));
    match (ty.fixed_shape(), total) {
        (Some(shape), Some(total)) => {
            !inputs.is_empty() && is_byte(ty.dtype) && byte_len(ty.dtype, &shape).is_some_and(|size| size <= total)
        }
        _ => false,
    }
}

/// Whether the node makes floats of a large constant of 8-bit integers. As integers they need a quarter of the memory, and products can
/// read them.
fn widens_integers(module: &GraphModule, graph: &Graph, n: NodeId, ty: &TensorType) -> bool {
    let numel = ty.fixed_shape().and_then(|shape| byte_len(DType::U8, &shape));
    let is_source = |&i: &NodeId| constant_bytes(module, graph, i) == numel;
    ty.dtype.is_float() && numel.is_some_and(|n| n >= FEWEST_INTEGERS) && graph[n].inputs().iter().any(is_source)
}

fn is_byte(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::U8)
}

/// The size of a constant of 8-bit integers.
fn constant_bytes(module: &GraphModule, graph: &Graph, n: NodeId) -> Option<usize> {
    let node = Some(&graph[n]).filter(|node| node.op() == Opcode::GetAttr && !graph.writes_buffer(node.target()))?;
    let value = module.attributes.get(node.target())?.value.as_ref()?;
    is_byte(value.dtype()).then(|| value.byte_count())
}

/// Whether the node computes its elements from numbers alone, and is only returned. A constant would be read and copied for each call,
/// which takes longer than computing the elements.
fn is_generated_result(op: &Op, graph: &Graph, n: NodeId) -> bool {
    let mut users = graph[n].users();
    matches!(op.meaning, Meaning::Pointwise(_))
        && graph[n].inputs().is_empty()
        && users.all(|u| graph[u].op() == Opcode::Output)
}

/// Whether the inputs are small enough. Folding reads all of them: a table of millions of elements is not worth reading
/// for one row.
fn inputs_fit(args: &[Val<Tensor>], limit: usize) -> bool {
    let bytes: usize = args
        .iter()
        .flat_map(|a| a.leaves())
        .map(|t| t.numel() * t.dtype().size())
        .sum();
    bytes <= limit.saturating_mul(16)
}

/// Whether [`value_of`] may have a value for the node. Nothing is evaluated to find out.
fn may_be_constant(graph: &Graph, mut n: NodeId) -> bool {
    for _ in 0..=VIEWS {
        let node = &graph[n];
        if node.op() == Opcode::GetAttr || node.calls(OpId::Full) {
            return true;
        }
        match viewed_operand(graph, n) {
            Some(viewed) => n = viewed,
            None => return node.op().is_call() && node.meta.ty.as_ref().is_some_and(infer::is_value),
        }
    }
    false
}

fn value_of(module: &GraphModule, graph: &Graph, n: NodeId, limit: usize) -> Option<interp::RuntimeValue> {
    let node = &graph[n];
    match node.op() {
        Opcode::GetAttr if graph.writes_buffer(node.target()) => None,
        Opcode::GetAttr => Some(Val::Leaf(module.attributes.get(node.target())?.value.clone()?)),
        Opcode::CallFunction if node.calls(OpId::Full) => {
            let ty = node.meta.ty.as_ref()?.as_leaf()?;
            let value = to_scalar(node.args().get(1)?)?;
            let shape = ty.fixed_shape()?;
            byte_len(ty.dtype, &shape).filter(|&b| b <= 1 << 24)?;
            Some(Val::Leaf(Tensor::from_fn(ty.dtype, &shape, |_| value)))
        }
        _ => {
            let ty: &Type = node.meta.ty.as_ref().filter(|_| node.op().is_call())?;
            if viewed_operand(graph, n).is_some() {
                let size = ty.as_leaf().and_then(|t| byte_len(t.dtype, &t.fixed_shape()?));
                let fits = size.is_some_and(|size| size <= limit);
                return fits
                    .then(|| evaluate_node(module, graph, n, limit))
                    .flatten()
                    .map(Val::Leaf);
            }
            infer::is_value(ty).then(|| ty.map(|_| unreachable!("a value contains no tensors")))
        }
    }
}

fn to_scalar(v: &Arg) -> Option<Scalar> {
    match v {
        Val::Bool(b) => Some(Scalar::Bool(*b)),
        Val::Float(x) => Some(Scalar::F64(*x)),
        v => v.as_int().map(|i| Scalar::Int(DType::I64, i)),
    }
}

fn replace_with_constant(module: &mut GraphModule, graph: &mut Graph, n: NodeId, value: Tensor) {
    let source = NodeOrigin::from_node(graph, n, "fold");
    let ty = Val::Leaf(value.ty());
    let point = graph.insert_point();
    graph.set_insert_point(crate::graph::InsertPoint::Before(n));
    let new = match uniform_value(&value) {
        Some(v) => full(graph, value.dtype(), value.shape(), v),
        None => {
            let hint = format!("_folded_{}", graph[n].name());
            let name = module.add_constant(&hint, value);
            graph.get_attr(&name)
        }
    };
    graph.set_insert_point(point);
    source.mark(graph, new, ty);
    graph.replace_all_uses_with(n, new);
    // Its uses were just replaced, so erasing it cannot fail.
    let _ = graph.erase_node(n);
}

/// A node whose elements all equal `value`.
fn full(graph: &mut Graph, dtype: DType, shape: &[usize], value: Arg) -> NodeId {
    let shape = shape.iter().map(|&d| Val::int(d as i64)).collect();
    let args = vec![Val::List(shape), value, Val::DType(dtype)];
    graph.call_op(OpId::Full, args)
}

fn replace_with_full(graph: &mut Graph, n: NodeId, value: Arg) {
    let source = NodeOrigin::from_node(graph, n, "fold");
    let Some(Val::Leaf(ty)) = graph[n].meta.ty.clone() else {
        return;
    };
    let Some(shape) = ty.fixed_shape() else { return };
    let point = graph.insert_point();
    graph.set_insert_point(crate::graph::InsertPoint::Before(n));
    let new = full(graph, ty.dtype, &shape, value);
    graph.set_insert_point(point);
    source.mark(graph, new, Val::Leaf(ty));
    graph.replace_all_uses_with(n, new);
    // Its uses were just replaced, so erasing it cannot fail.
    let _ = graph.erase_node(n);
}

/// The value that all elements share, as an argument that reproduces it bit for bit.
pub(crate) fn uniform_value(t: &Tensor) -> Option<Arg> {
    // `full` only makes the dtypes that can be computed with.
    if !t.dtype().is_computed() {
        return None;
    }
    let size = t.dtype().size();
    let first = t.bytes().get(..size)?;
    if t.bytes().chunks(size).any(|c| c != first) {
        return None;
    }
    let v = t.get(0);
    match t.dtype().category() {
        Category::Bool => Some(Val::Bool(v.to_bool())),
        Category::Int => Some(Val::int(v.to_i64())),
        // A NaN literal does not preserve the NaN's bits.
        Category::Float => Some(v.to_f64()).filter(|x| !x.is_nan()).map(Val::Float),
        Category::Complex => None,
    }
}
