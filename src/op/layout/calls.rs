//! Where the results of calls lie.

use super::{Layout, channels_last_order, iterated};
use crate::op::emit::call_of;
use crate::op::view::BITS;
use crate::op::{Build, Call, Decompose, Meaning, Op, OpResult, Sizes, Traced, wrap_dim};
use crate::types::{Dim, TensorType, Type, Val};

/// The layout of the tensor that a call makes, which is no view of its operands. `at` gives the layout of the tensor that
/// stands for a parameter. `None` if it is not known.
pub fn of_result(call: &Call<TensorType>, out: &TensorType, at: &dyn Fn(usize) -> Option<Layout>) -> Option<Layout> {
    let shape = out.shape.as_deref()?;
    if let Some(asked) = memory_format(call) {
        match asked {
            "contiguous_format" => return Some(Layout::contiguous(shape)),
            "channels_last" if shape.len() == 4 => return channels_last(shape),
            "channels_last_3d" if shape.len() == 5 => return channels_last(shape),
            _ => {}
        }
    }
    if !keeps_order(call.op) {
        return match call.op.meaning {
            Meaning::Decompose(f) => decomposed(call, f, at),
            _ => Some(Layout::contiguous(shape)),
        };
    }
    let mut layouts = vec![];
    for (i, v) in call.args.iter().enumerate() {
        if let Val::Leaf(t) = v {
            layouts.push((t.shape.clone()?, at(i)?));
        }
    }
    let operands: Vec<(&[Dim], &Layout)> = layouts.iter().map(|(s, l)| (&s[..], l)).collect();
    iterated(shape, &operands)
}

/// Where the one tensor that a call gives lies: a view of an operand, or a tensor of its own.
pub fn of_call(call: &Call<TensorType>, out: &TensorType, at: &dyn Fn(usize) -> Option<Layout>) -> Option<Layout> {
    let from = call.args.first().and_then(Val::as_leaf);
    let (true, Some(from)) = (
        call.op.aliases && !matches!(call.op.meaning, Meaning::Decompose(_)),
        from,
    ) else {
        return of_result(call, out, at);
    };
    let own = at(0)?;
    if call.op.name == "contiguous" {
        return match has_format(call, &own)? {
            true => Some(own),
            false => of_result(call, out, at),
        };
    }
    if call.op.view.is_none() && call.op.name != BITS {
        // Conversions that convert nothing, and the like.
        return match from == out {
            true => Some(own),
            false => of_result(call, out, at),
        };
    }
    // Where a reshape is no view, it copies.
    let known = own.known_strides().is_some() && from.fixed_shape().is_some() && out.fixed_shape().is_some();
    let copied = || Some(Layout::contiguous(out.shape.as_deref()?)).filter(|_| known && call.op.name != BITS);
    of_view(call, &own).or_else(copied)
}

/// Follows a decomposition, noting where each value lies.
#[derive(Default)]
struct Placed {
    layouts: Vec<Option<Layout>>,
}

impl Placed {
    fn traced(&mut self, ty: &TensorType, layout: Option<Layout>) -> Traced {
        self.layouts.push(layout);
        Traced {
            id: self.layouts.len() as u32 - 1,
            ty: ty.clone(),
        }
    }
}

impl Build for Placed {
    fn call(&mut self, op: &str, args: Vec<Val<Traced>>) -> OpResult<Val<Traced>> {
        let call = call_of(op, args)?;
        if let Meaning::Decompose(f) = call.op.meaning {
            return f(self, &call);
        }
        let types = call.types();
        let ty = (call.op.rule)(&types, &mut Sizes::default())?;
        let layouts = &self.layouts;
        let at = |i: usize| layouts[call.args[i].as_leaf()?.id as usize].clone();
        Ok(match &ty {
            Val::Leaf(t) => {
                let found = of_call(&types, t, &at);
                Val::Leaf(self.traced(t, found))
            }
            ty => ty.map(|t| {
                let own = t.shape.as_deref().filter(|_| !call.op.aliases);
                self.traced(t, own.map(Layout::contiguous))
            }),
        })
    }
}

fn decomposed(call: &Call<TensorType>, f: Decompose, at: &dyn Fn(usize) -> Option<Layout>) -> Option<Layout> {
    let mut placed = Placed::default();
    let mut args = vec![];
    for (i, v) in call.args.iter().enumerate() {
        args.push(match v {
            Val::Leaf(t) => Val::Leaf(placed.traced(t, at(i))),
            v => v.map(|t| placed.traced(t, None)),
        });
    }
    match f(&mut placed, &Call { op: call.op, args }).ok()? {
        Val::Leaf(t) => placed.layouts.get(t.id as usize)?.clone(),
        _ => None,
    }
}

/// Whether the result has its operands' order of dims in memory.
fn keeps_order(op: &Op) -> bool {
    match op.meaning {
        Meaning::Pointwise(_) => !matches!(op.name, "masked_fill" | "full" | "zeros" | "ones"),
        _ => matches!(op.name, "clone" | "flip") || op.name.ends_with("_like"),
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
    Some(Layout::dense(shape, strides))
}

/// The layout of the view that a call of a view row takes of its operand; `None` if torch copies, or if it is not known.
pub fn of_view(call: &Call<TensorType>, at: &Layout) -> Option<Layout> {
    let from = call.leaf("self").ok()?;
    if call.op.name == BITS {
        let same = matches!(call.args.get(1), Some(Val::DType(d)) if d.size() == from.dtype.size());
        return same.then(|| at.clone());
    }
    let rule = call.op.view?;
    let view = rule(call, &mut Sizes::default()).ok()?;
    at.through(from.shape.as_deref()?, &view)
}

/// The value of `stride()`, `is_contiguous()` or `storage_offset()`; `None` for other calls, and where it is not known.
pub fn host_value(call: &Call<TensorType>, at: &Layout) -> OpResult<Option<Type>> {
    Ok(match call.op.name {
        "storage_offset" => Some(Val::Int(at.offset.clone())),
        "is_contiguous" => has_format(call, at).map(Val::Bool),
        "stride" => {
            let strides = &at.strides;
            Some(match call.opt_int("dim")? {
                None => Val::Tuple(strides.iter().cloned().map(Val::Int).collect()),
                Some(d) => Val::Int(strides[wrap_dim(d, strides.len())?].clone()),
            })
        }
        _ => None,
    })
}

/// Whether `contiguous` gives its operand itself: `None` if that depends on sizes.
pub fn has_format(call: &Call<TensorType>, at: &Layout) -> Option<bool> {
    let shape = call.leaf("self").ok()?.shape.as_deref()?;
    match memory_format(call) {
        Some("channels_last" | "channels_last_3d") => at.is_channels_last(shape),
        Some("preserve_format") => Some(true),
        _ => at.is_contiguous(shape),
    }
}
