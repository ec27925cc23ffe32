//! Evaluates one call by its op's meaning.

use super::cell::{TensorCell, apply_view};
use super::{contract, reduce};
use crate::budget;
use crate::diag::Code;
use crate::op::drawing::{draw_order, draw_permutations};
use crate::op::emit::call_of;
use crate::op::layout::{self, Layout, resize_order, template_format};
use crate::op::pointwise::instantiate;
use crate::op::rows::fill_new;
use crate::op::view::{BITS, scattered_view};
use crate::op::{Build, Call, Decompose, Meaning, MemoryUse, Op, OpError, OpId, OpResult, Sizes, Traced};
use crate::scalar::eval_tensors;
use crate::tensor::Tensor;
use crate::types::{TensorType, Type, Val};

/// The type of a value.
pub(super) fn type_of(v: &Val<TensorCell>) -> Type {
    v.map(TensorCell::ty)
}

/// The result of `call`. The op's type rule runs first, since it contains torch's checks.
pub(super) fn apply_op(call: &Call<TensorCell>) -> OpResult<Val<TensorCell>> {
    let types = call.map(TensorCell::ty);
    let ty = call.op.result_type(&types, &mut Sizes::default())?;
    super::check_size(&ty, call.op.name)?;
    let result = match call.args.first() {
        Some(Val::Leaf(x)) if call.op.gives_operand(&types, &ty, Some(&x.layout())) => Ok(Val::Leaf(x.clone())),
        _ => budget::catch_refusal(|| eval_meaning(call, &types, ty)).unwrap_or_else(|refused| {
            // A size that only the values determine, or memory for parts of the result.
            let title = format!("not enough memory for `{}`: it needs {} bytes", call.op.name, refused.0);
            Err(OpError::new(Code::E0509, title))
        }),
    };
    // Functionalisation follows the declarations, and would lose later writes to the other tensor.
    #[cfg(test)]
    assert!(
        declares_sharing(call.op) || !result.as_ref().is_ok_and(|r| shares_memory(r, call)),
        "`{}` shares memory with an argument, which its row does not declare",
        call.op.name
    );
    result
}

/// Whether functionalisation knows that the result may share memory: the row says so, the op is a view or reads memory, it passes on items
/// of any kind, or it is a write.
#[cfg(test)]
fn declares_sharing(op: &Op) -> bool {
    let reads_memory = matches!(op.facts.memory, MemoryUse::Window | MemoryUse::Resizes);
    let passes_on = op
        .schema
        .params
        .first()
        .is_some_and(|p| p.ty == crate::op::ParamType::Any);
    op.aliases || op.view.is_some() || reads_memory || passes_on || op.is(OpId::Setitem)
}

/// Whether a tensor of the result has the memory of an argument.
#[cfg(test)]
fn shares_memory(result: &Val<TensorCell>, call: &Call<TensorCell>) -> bool {
    let args: Vec<&TensorCell> = call.args.iter().flat_map(Val::leaves).collect();
    let mut all = result.leaves().into_iter().filter(|r| r.tensor().numel() > 0);
    all.any(|r| args.iter().any(|a| r.shares_with(a)))
}

/// The result of a call that draws random numbers in the memory order of its operand; `None` for any other call.
pub(super) fn apply_in_draw_order(call: &Call<TensorCell>, in_place: bool) -> Option<OpResult<Val<TensorCell>>> {
    let x = call.args.first()?.as_leaf()?;
    let order = draw_order(&call.map(TensorCell::ty), &x.layout(), in_place)?;
    let [forth, back] = draw_permutations(&order);
    let permuted = |x: &TensorCell, by: &Val<TensorCell>| {
        apply_op(&call_of(OpId::Permute.op(), vec![Val::Leaf(x.clone()), by.clone()]))
    };
    let draw = || {
        let mut turned = call.clone();
        turned.args[0] = permuted(x, &forth)?;
        apply_op(&turned)?.try_map(&mut |c: &TensorCell| permuted(c, &back))
    };
    Some(draw())
}

fn eval_meaning(call: &Call<TensorCell>, types: &Call<TensorType>, ty: Type) -> OpResult<Val<TensorCell>> {
    let new = |t: Tensor| Ok(Val::Leaf(TensorCell::new(t)));
    let tensors = || call.map(|c| c.tensor().clone());
    match call.op.meaning {
        Meaning::Pointwise(_) => match (&ty, call.args.first()) {
            // `x.to(x.dtype)` is `x` itself.
            (Val::Leaf(ty), Some(Val::Leaf(x))) if call.op.aliases && *ty == x.ty() => Ok(Val::Leaf(x.clone())),
            (Val::Leaf(_), _) => place_result(call, types, eval_pointwise(call, types)?),
            // Arithmetic of sizes and numbers.
            _ => python_value(call, ty),
        },
        Meaning::Reduce(f) => {
            let r = f(types)?;
            new(reduce::eval_reduction(&r, tensor_operand(call, r.operand)?.tensor())?)
        }
        Meaning::View(f) => {
            let view = f(types)?;
            let x = tensor_operand(call, view.operand)?;
            let copies = call.op.is(OpId::Contiguous) && layout::has_format(types, &x.layout()) != Some(true);
            if call.op.aliases && !copies {
                return Ok(Val::Leaf(x.view(&view)?));
            }
            place_result(call, types, apply_view(x.tensor(), &view)?)
        }
        Meaning::Decompose(f) => eval_decomposition(call, types, f),
        Meaning::Contract(f) => {
            let operands: Vec<_> = call.args.iter().map(|v| v.as_leaf().map(TensorCell::tensor)).collect();
            new(contract::eval_contraction(&f(types)?, &operands)?)
        }
        Meaning::Routine(f) if call.op.is(BITS) => match f(&tensors())? {
            Val::Leaf(t) => tensor_operand(call, 0)?.view_as_dtype(t).map(Val::Leaf),
            v => Ok(v.map(|t| TensorCell::new(t.clone()))),
        },
        Meaning::Routine(_) | Meaning::Fill(_) if let Some(view) = scattered_view(types) => eval_scatter(call, &view),
        Meaning::Fill(f) => place_results(call, types, fill_new(&tensors(), f)?),
        Meaning::Routine(f) => place_results(call, types, f(&tensors())?),
        Meaning::Control(_) => Err(OpError::value(format!("`{}` calls graphs", call.op.name))),
        Meaning::Host => eval_host(call, types, ty),
    }
}

fn eval_decomposition(
    call: &Call<TensorCell>,
    types: &Call<TensorType>,
    decompose: Decompose,
) -> OpResult<Val<TensorCell>> {
    if call.op.facts.memory == MemoryUse::Resizes {
        let call = in_memory_order(call)?;
        return eval_parts(&call, &call.map(TensorCell::ty), decompose);
    }
    eval_parts(call, types, decompose)
}

fn eval_parts(call: &Call<TensorCell>, types: &Call<TensorType>, decompose: Decompose) -> OpResult<Val<TensorCell>> {
    let mut e = DecompositionEvaluator::default();
    let traced = Call {
        op: call.op,
        args: call.args.iter().map(|v| e.trace(v)).collect(),
    };
    let result = decompose(&mut e, &traced)?;
    let result = e.untrace(&result);
    match layout::has_own_order(types) {
        true => place_results(call, types, result.map(|c| c.tensor().clone())),
        false => Ok(result),
    }
}

/// `resize` and `resize_as` take the first elements in the order of memory, so the operand is permuted into that order.
fn in_memory_order(call: &Call<TensorCell>) -> OpResult<Call<TensorCell>> {
    let mut call = call.clone();
    let operand = |v: &Val<TensorCell>| Some((v.as_leaf()?.ty().shape?, v.as_leaf()?.layout()));
    if let Some(order) = operand(&call.args[0]).and_then(|(shape, layout)| resize_order(&shape, &layout)) {
        let dims = Val::List(order.into_iter().map(|d| Val::int(d as i64)).collect());
        call.args[0] = apply_op(&call_of(OpId::Permute.op(), vec![call.args[0].clone(), dims]))?;
    }
    if matches!(&call.args[2], Val::TorchName(f) if f.ends_with("preserve_format")) {
        let format = operand(&call.args[1]).map(|(shape, layout)| template_format(&shape, &layout));
        call.args[2] = format.unwrap_or(Val::None);
    }
    Ok(call)
}

fn eval_host(call: &Call<TensorCell>, types: &Call<TensorType>, ty: Type) -> OpResult<Val<TensorCell>> {
    match (call.op.facts.memory, call.args.first()) {
        (MemoryUse::Asks, Some(Val::Leaf(x))) => {
            let value = layout::host_value(types, &x.layout())?;
            python_value(call, value.unwrap_or(ty))
        }
        _ => python_value(call, ty),
    }
}

/// Stores the results of a call in the memory layout that torch gives them.
fn place_results(call: &Call<TensorCell>, types: &Call<TensorType>, results: Val<Tensor>) -> OpResult<Val<TensorCell>> {
    if let Val::Leaf(t) = results {
        return place_result(call, types, t);
    }
    let layout_of = |i: usize| call.args[i].as_leaf().map(TensorCell::layout);
    let layout = layout::of_results(types, &layout_of);
    Ok(results.map(|t| TensorCell::laid_out(t.clone(), layout.as_ref().filter(|l| l.strides.len() == t.rank()))))
}

/// Stores a result of a call in the memory layout that torch gives it.
fn place_result(call: &Call<TensorCell>, types: &Call<TensorType>, t: Tensor) -> OpResult<Val<TensorCell>> {
    let layout_of = |i: usize| call.args[i].as_leaf().map(TensorCell::layout);
    let layout: Option<Layout> = layout::of_result(types, &t.ty(), &layout_of);
    Ok(Val::Leaf(TensorCell::laid_out(t, layout.as_ref())))
}

/// `as_strided_scatter` and its like: copies the operand's storage, writes to the copy, and returns the operand's view
/// of it.
fn eval_scatter(call: &Call<TensorCell>, view: &Call<TensorType>) -> OpResult<Val<TensorCell>> {
    let x = tensor_operand(call, 0)?;
    let copy = match x.is_expanded() {
        true => TensorCell::new(x.tensor().clone()),
        false => x.with_own_storage(),
    };
    let Meaning::View(f) = view.op.meaning else {
        return Err(OpError::shape(format!("`{}` is not a view", view.op.name)));
    };
    let src = tensor_operand(call, 1)?.tensor().to(copy.tensor().dtype());
    copy.view(&f(view)?)?.write(&src, false)?;
    Ok(Val::Leaf(copy.fresh()))
}

/// The value of a call whose result is not a tensor. The type rule has computed it already.
fn python_value(call: &Call<TensorCell>, ty: Type) -> OpResult<Val<TensorCell>> {
    let name = call.op.name;
    let value = ty.try_map(&mut |t| Err(OpError::value(format!("`{name}` has no value at run time: {t}"))))?;
    match value {
        Val::Unknown | Val::Any(_) => Err(OpError::value(format!(
            "`{name}` cannot be evaluated for these arguments"
        ))),
        v => Ok(v),
    }
}

fn tensor_operand(call: &Call<TensorCell>, i: usize) -> OpResult<&TensorCell> {
    let name = call.op.schema.params.get(i).map_or("", |p| &p.name);
    call.args.get(i).and_then(Val::as_leaf).ok_or_else(|| {
        OpError::arg(
            name,
            format!("argument `{name}` of `{}` must be a tensor", call.op.name),
        )
    })
}

fn eval_pointwise(call: &Call<TensorCell>, types: &Call<TensorType>) -> OpResult<Tensor> {
    let p = instantiate(types)?;
    let operands = p
        .operands
        .iter()
        .map(|&i| tensor_operand(call, i).map(TensorCell::tensor));
    let operands = operands.collect::<OpResult<Vec<_>>>()?;
    let shape = p
        .out
        .fixed_shape()
        .ok_or_else(|| OpError::shape(format!("the size of {} is unknown", p.out)))?;
    let result = eval_tensors(&p.expr, &operands, &shape).map_err(OpError::from_eval_error)?;
    result
        .into_iter()
        .next()
        .ok_or_else(|| OpError::value("the expression has no result"))
}

/// Evaluates a decomposition op by op.
#[derive(Default)]
struct DecompositionEvaluator {
    cells: Vec<TensorCell>,
}

impl DecompositionEvaluator {
    fn trace(&mut self, v: &Val<TensorCell>) -> Val<Traced> {
        v.map(|c| {
            self.cells.push(c.clone());
            Traced {
                id: self.cells.len() as u32 - 1,
                ty: c.ty(),
            }
        })
    }

    fn untrace(&self, v: &Val<Traced>) -> Val<TensorCell> {
        v.map(|t| self.cells[t.id as usize].clone())
    }
}

impl Build for DecompositionEvaluator {
    fn call_row(&mut self, op: &'static Op, args: Vec<Val<Traced>>) -> OpResult<Val<Traced>> {
        let args = args.iter().map(|v| self.untrace(v)).collect();
        let call = call_of(op, args);
        let result = match call.op.meaning {
            // The type rule of a composite op is often its decomposition; the rules of the parts do the checks.
            Meaning::Decompose(_) => eval_meaning(&call, &call.map(TensorCell::ty), Val::Unknown)?,
            _ => apply_op(&call)?,
        };
        Ok(self.trace(&result))
    }
}
