//! Layouts of the results of calls.

use super::{Layout, channels_last_order, pointwise_layout};
use crate::op::emit::call_of;
use crate::op::rows::spell::list_text;
use crate::op::sharing::is_expanded;
use crate::op::view::{BITS, scattered_view};
use crate::op::{Build, Call, Decompose, Meaning, MemoryOrder, Op, OpError, OpId, OpResult, Sizes, Traced, wrap_dim};
use crate::types::{Dim, TensorType, Type, Val};

/// The layout of a result that is not a view of the operands; `layout_of` returns the layout of the tensor given for a
/// parameter. `None` if it is unknown.
pub(crate) fn of_result(
    call: &Call<TensorType>,
    out: &TensorType,
    layout_of: &dyn Fn(usize) -> Option<Layout>,
) -> Option<Layout> {
    let shape = out.shape.as_deref()?;
    if let Some(asked) = memory_format(call) {
        match asked {
            "contiguous_format" => return Some(Layout::contiguous(shape)),
            "channels_last" if shape.len() == 4 => return channels_last(shape),
            "channels_last_3d" if shape.len() == 5 => return channels_last(shape),
            _ => {}
        }
    }
    if scattered_view(call).is_some()
        && let Some(source) = layout_of(0).filter(|own| !is_expanded(shape, &own.strides))
    {
        return Some(source);
    }
    let operands = match order_of(call) {
        ResultOrder::Known(MemoryOrder::RowMajor) => return Some(Layout::contiguous(shape)),
        ResultOrder::Known(MemoryOrder::Columns) => return Some(Layout::column_major(shape)),
        ResultOrder::Parts(f) => return decomposed_layout(call, f, layout_of),
        ResultOrder::Known(MemoryOrder::First) => 1,
        ResultOrder::Known(MemoryOrder::Operands) => call.args.len(),
    };
    let mut layouts = vec![];
    for (i, v) in call.args.iter().enumerate().take(operands) {
        if let Val::Leaf(t) = v {
            layouts.push((t.shape.clone()?, layout_of(i)?));
        }
    }
    let operands: Vec<(&[Dim], &Layout)> = layouts.iter().map(|(s, l)| (&s[..], l)).collect();
    pointwise_layout(shape, &operands)
}

/// The order of dims in which `resize` reads its operand, which is that of a copy's memory; `None` if it is their own.
pub(crate) fn resize_order(shape: &[Dim], layout: &Layout) -> Option<Vec<usize>> {
    let order = pointwise_layout(shape, &[(shape, layout)])?.dense_order(shape)?;
    order.iter().enumerate().any(|(i, &d)| i != d).then_some(order)
}

/// The memory format that `preserve_format` stands for in a call of `resize_as` with this template.
pub(crate) fn template_format<T>(shape: &[Dim], layout: &Layout) -> Val<T> {
    match layout.dense_order(shape).as_deref() {
        Some([0, 2, 3, 1]) => Val::TorchName("channels_last".into()),
        Some([0, 2, 3, 4, 1]) => Val::TorchName("channels_last_3d".into()),
        _ => Val::None,
    }
}

/// The layout of the single tensor that a call returns: a view of an operand, or a tensor of its own.
pub(crate) fn of_call(
    call: &Call<TensorType>,
    out: &TensorType,
    layout_of: &dyn Fn(usize) -> Option<Layout>,
) -> Option<Layout> {
    let from = call.args.first().and_then(Val::as_leaf);
    let (true, Some(from)) = (
        call.op.aliases && !matches!(call.op.meaning, Meaning::Decompose(_)),
        from,
    ) else {
        return of_result(call, out, layout_of);
    };
    let source = layout_of(0)?;
    if call.op.is(OpId::Contiguous) {
        return match has_format(call, &source)? {
            true => Some(source),
            false => of_result(call, out, layout_of),
        };
    }
    if call.op.view.is_none() && !call.op.is(BITS) {
        // Conversions to the same type and similar ops return their operand.
        return match from == out {
            true => Some(source),
            false => of_result(call, out, layout_of),
        };
    }
    // A reshape that cannot be a view copies.
    let known = source.known_strides().is_some() && from.fixed_shape().is_some() && out.fixed_shape().is_some();
    let copied = || Some(Layout::contiguous(out.shape.as_deref()?)).filter(|_| known && !call.op.is(BITS));
    of_view(call, &source).or_else(copied)
}

/// A builder that traces a decomposition and records the layout of each value.
#[derive(Default)]
struct LayoutTracer {
    layouts: Vec<Option<Layout>>,
}

impl LayoutTracer {
    fn trace_value(&mut self, ty: &TensorType, layout: Option<Layout>) -> Traced {
        self.layouts.push(layout);
        Traced {
            id: self.layouts.len() as u32 - 1,
            ty: ty.clone(),
        }
    }
}

impl Build for LayoutTracer {
    fn call_row(&mut self, op: &'static Op, args: Vec<Val<Traced>>) -> OpResult<Val<Traced>> {
        let call = call_of(op, args);
        if let Meaning::Decompose(f) = call.op.meaning {
            let result = f(self, &call)?;
            if has_own_order(&call.types()) {
                let row_major = |t: &Traced| t.ty.shape.as_deref().map(Layout::contiguous);
                return Ok(result.map(|t| self.trace_value(&t.ty, row_major(t))));
            }
            return Ok(result);
        }
        let types = call.types();
        let ty = call.op.result_type(&types, &mut Sizes::default())?;
        let layouts = &self.layouts;
        let layout_of = |i: usize| layouts[call.args[i].as_leaf()?.id as usize].clone();
        Ok(match &ty {
            Val::Leaf(t) => {
                let layout = of_call(&types, t, &layout_of);
                Val::Leaf(self.trace_value(t, layout))
            }
            ty => ty.map(|t| {
                let copied = t.shape.as_deref().filter(|_| !call.op.aliases);
                self.trace_value(t, copied.map(Layout::contiguous))
            }),
        })
    }
}

fn decomposed_layout(
    call: &Call<TensorType>,
    f: Decompose,
    layout_of: &dyn Fn(usize) -> Option<Layout>,
) -> Option<Layout> {
    let mut placed = LayoutTracer::default();
    let mut args = vec![];
    for (i, v) in call.args.iter().enumerate() {
        args.push(match v {
            Val::Leaf(t) => Val::Leaf(placed.trace_value(t, layout_of(i))),
            v => v.map(|t| placed.trace_value(t, None)),
        });
    }
    match f(&mut placed, &Call { op: call.op, args }).ok()? {
        Val::Leaf(t) => placed.layouts.get(t.id as usize)?.clone(),
        _ => None,
    }
}

/// What determines the memory order of a result's dims.
#[derive(Clone, Copy)]
enum ResultOrder {
    Known(MemoryOrder),
    /// The op's decomposition.
    Parts(Decompose),
}

fn order_of(call: &Call<TensorType>) -> ResultOrder {
    // The result of `2 ** x` is row-major, unlike that of `x ** 2`.
    if call.op.is(OpId::Pow) && call.args.first().is_some_and(|x| x.as_leaf().is_none()) {
        return ResultOrder::Known(MemoryOrder::RowMajor);
    }
    match (call.op.facts.order, &call.op.meaning) {
        (Some(order), _) => ResultOrder::Known(order),
        (None, Meaning::Pointwise(_)) => ResultOrder::Known(MemoryOrder::Operands),
        (None, Meaning::Decompose(f)) => ResultOrder::Parts(*f),
        _ => ResultOrder::Known(MemoryOrder::RowMajor),
    }
}

/// Whether the layout of the results is declared rather than derived from what the op computes.
pub(crate) fn has_own_order(call: &Call<TensorType>) -> bool {
    match order_of(call) {
        ResultOrder::Known(MemoryOrder::First) => true,
        ResultOrder::Known(_) => matches!(call.op.meaning, Meaning::Decompose(_)),
        ResultOrder::Parts(_) => false,
    }
}

/// The layout of each of several results.
pub(crate) fn of_results(call: &Call<TensorType>, layout_of: &dyn Fn(usize) -> Option<Layout>) -> Option<Layout> {
    let first = call.args.first().and_then(Val::as_leaf);
    match (order_of(call), first) {
        (ResultOrder::Known(MemoryOrder::First), Some(x)) => {
            pointwise_layout(x.shape.as_deref()?, &[(x.shape.as_deref()?, &layout_of(0)?)])
        }
        _ => Some(Layout::contiguous(&[])),
    }
}

fn memory_format(call: &Call<TensorType>) -> Option<&str> {
    let i = call.op.schema.index_of("memory_format")?;
    match call.args.get(i)? {
        Val::TorchName(name) => Some(name.strip_prefix("torch.").unwrap_or(name)),
        _ => None,
    }
}

fn channels_last(shape: &[Dim]) -> Option<Layout> {
    let mut strides = vec![Dim::Const(0); shape.len()];
    let mut step = Dim::Const(1);
    for d in channels_last_order(shape.len()) {
        strides[d] = step.clone();
        step = step.mul(&shape[d].max_of(&Dim::Const(1)));
    }
    Some(Layout::from_dense_strides(shape, strides))
}

/// The layout of the result of a view row; `None` if torch copies or if it is unknown.
pub(crate) fn of_view(call: &Call<TensorType>, layout: &Layout) -> Option<Layout> {
    let from = call.leaf("self").ok()?;
    if call.op.is(BITS) {
        let Some(Val::DType(to)) = call.args.get(1) else {
            return None;
        };
        return of_bits(layout, from.dtype.size(), to.size());
    }
    let rule = call.op.view?;
    let view = rule(call, &mut Sizes::default()).ok()?;
    layout.apply_view(from.shape.as_deref()?, &view)
}

/// Returns an error if a call of `view` has no strides for its result, or if `_assert_tensor_metadata` expects other
/// strides than those of its tensor, whose layout is `layout`. `out` is the type of the call's result.
pub(crate) fn check_strides(call: &Call<TensorType>, out: &Type, layout: &Layout) -> OpResult<()> {
    if call.op.view.is_some() {
        let from = call.leaf("self")?;
        let fixed = layout.known_strides().is_some() && from.fixed_shape().is_some();
        let shape = out.as_leaf().and_then(TensorType::fixed_shape);
        return match of_view(call, layout) {
            None if fixed && shape.is_some() => Err(OpError::shape(
                "view size is not compatible with input tensor's size and stride (at least one dimension spans across two \
                 contiguous subspaces). Use .reshape(...) instead.",
            )),
            _ => Ok(()),
        };
    }
    if call.is_none("stride") {
        return Ok(());
    }
    let want = call.dims("stride")?;
    let differs = |(a, b): (&Dim, &Dim)| a.sub(b).as_const().is_some_and(|d| d != 0);
    match want.len() != layout.strides.len() || want.iter().zip(&layout.strides).any(differs) {
        true => Err(OpError::shape(format!(
            "Tensor strides mismatch! Expected: {}, Got: {}",
            list_text(&want),
            list_text(&layout.strides)
        ))),
        false => Ok(()),
    }
}

/// The layout of elements of `from` bytes reinterpreted as elements of `to` bytes, along the last dim.
fn of_bits(layout: &Layout, from: usize, to: usize) -> Option<Layout> {
    if from == to {
        return Some(layout.clone());
    }
    let scaled = |x: &Dim| x.mul(&Dim::from(from)).exact_div(&Dim::from(to));
    let (last, outer) = layout.strides.split_last()?;
    let mut strides = outer.iter().map(scaled).collect::<Option<Vec<_>>>()?;
    strides.push(last.clone());
    Some(Layout {
        offset: scaled(&layout.offset)?,
        strides,
        storage: scaled(&layout.storage)?,
    })
}

/// The value of `stride()`, `is_contiguous()` or `storage_offset()`; `None` for other calls and for unknown values.
pub(crate) fn host_value(call: &Call<TensorType>, layout: &Layout) -> OpResult<Option<Type>> {
    Ok(match call.op.id() {
        Some(OpId::StorageOffset) => Some(Val::Int(layout.offset.clone())),
        Some(OpId::IsContiguous) => has_format(call, layout).map(Val::Bool),
        Some(OpId::Stride) => {
            let strides = &layout.strides;
            Some(match call.opt_int("dim")? {
                None => Val::Tuple(strides.iter().cloned().map(Val::Int).collect()),
                Some(d) => Val::Int(strides[wrap_dim(d, strides.len())?].clone()),
            })
        }
        _ => None,
    })
}

/// Whether `contiguous` returns its operand itself; `None` if that depends on sizes.
pub(crate) fn has_format(call: &Call<TensorType>, layout: &Layout) -> Option<bool> {
    let shape = call.leaf("self").ok()?.shape.as_deref()?;
    match memory_format(call) {
        Some("channels_last" | "channels_last_3d") => layout.is_channels_last(shape),
        Some("preserve_format") => Some(true),
        _ => layout.is_contiguous(shape),
    }
}
