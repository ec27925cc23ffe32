//! Lowers calls of ops to values of the tensor IR, and implements the builder that decompositions use.

use crate::lower::ir::known::{KnownMeaning, KnownPointwise, KnownView, call_key};
use crate::lower::ir::{Def, Tir, TirRoutineCall, ValueId};
use crate::math::contract::Activation;
use crate::op::{
    self, Build, Call, Contraction, IndexMap, Meaning, Op, OpError, OpResult, Reduction, Sizes, SoftmaxPart, Traced,
    lift_literal,
};
use crate::types::{DType, TensorType, Val};
use std::sync::Arc;

impl Tir {
    /// Lowers a call to values.
    pub(in crate::lower) fn push_call(&mut self, call: Call<Traced>) -> OpResult<Val<Traced>> {
        let key = is_by_types(call.op).then(|| call_key(&call)).flatten();
        if let Some(known) = key.as_ref().and_then(|k| self.known.meaning(k)) {
            let operand = |i: usize| Ok(ValueId(known_operand(&call, i)?.id));
            let pushed = self.push_known(&known, operand)?;
            return Ok(Val::Leaf(self.traced(pushed)));
        }
        let types = call.map(|t| t.ty.clone());
        let ids = call.map(|t| ValueId(t.id));
        if let Some(number) = number_result(&types) {
            return Ok(number);
        }
        if let Some(r) = crate::lower::special::recognise_special(self, &types, &ids)? {
            debug_assert!(!is_by_types(call.op), "{} has a special kernel", call.op.name);
            return Ok(Val::Leaf(self.traced(r)));
        }
        match call.op.meaning {
            Meaning::Pointwise(_) | Meaning::Reduce(_) | Meaning::View(_) => {
                let meaning = meaning_by_types(&types)?;
                let operand = |i: usize| tensor_operand(&ids, i);
                let pushed = self.push_known(&meaning, operand)?;
                key.into_iter().for_each(|k| self.known.set_meaning(k, meaning.clone()));
                Ok(Val::Leaf(self.traced(pushed)))
            }
            Meaning::Decompose(f) => f(self, &call),
            Meaning::Contract(f) => {
                let contraction = f(&types)?;
                match crate::lower::contract::recognise_product(self, &contraction, &ids)? {
                    Some(v) => Ok(Val::Leaf(self.traced(v))),
                    None => self.contract(contraction, &ids),
                }
            }
            Meaning::Host => push_host_call(&types),
            Meaning::Control(_) => {
                let op = call.op.name;
                let title = format!("`{op}` calls graphs, which is not possible in a decomposition");
                Err(OpError::refused(title))
            }
            Meaning::Routine(_) | Meaning::Fill(_) => {
                match crate::lower::contract::recurrent::recognise_recurrent(self, &types, &ids)? {
                    Some(r) => Ok(r),
                    None => self.routine(call.op, ids, &types),
                }
            }
        }
    }

    /// The value of a call with this meaning. `operand` finds the argument of a parameter.
    pub(super) fn push_known(
        &mut self,
        meaning: &KnownMeaning,
        operand: impl Fn(usize) -> OpResult<ValueId>,
    ) -> OpResult<ValueId> {
        match meaning {
            KnownMeaning::Pointwise(p) => {
                let args = p.operands.iter().map(|&i| operand(i)).collect::<OpResult<_>>()?;
                let expr = p.expr.clone();
                let v = self.push(p.dtype, &p.shape, Def::Pointwise { expr, args })?;
                if let Some(a) = p.activation {
                    self.activations.insert(v, a);
                }
                Ok(v)
            }
            KnownMeaning::Reduce(r) => self.reduce(r, operand(r.operand)?),
            KnownMeaning::View(view) => self.view(operand(view.operand)?, view.map.clone(), &view.shape),
        }
    }

    fn reduce(&mut self, reduction: &Arc<Reduction>, arg: ValueId) -> OpResult<ValueId> {
        let mut reduced_shape = self.value(arg).shape.clone();
        reduction.dims.iter().for_each(|&d| reduced_shape[d] = 1);
        let out = known_shape(&reduction.out)?;
        let def = Def::Reduce {
            arg,
            dims: reduction.dims.clone(),
            reduction: reduction.clone(),
        };
        let v = self.push(reduction.out.dtype, &reduced_shape, def)?;
        self.view(v, IndexMap::Reshape, &out)
    }

    fn contract(&mut self, mut contraction: Contraction, ids: &Call<ValueId>) -> OpResult<Val<Traced>> {
        let mut args = vec![];
        for operand in contraction.operands_mut() {
            args.push(tensor_operand(ids, *operand)?);
            *operand = args.len() - 1;
        }
        crate::lower::contract::prepare_operands(self, &contraction, &mut args)?;
        let shape = known_shape(contraction.out())?;
        let v = self.push(contraction.out().dtype, &shape, Def::Contract { args, contraction })?;
        Ok(Val::Leaf(self.traced(v)))
    }

    fn routine(&mut self, op: &'static Op, call: Call<ValueId>, types: &Call<TensorType>) -> OpResult<Val<Traced>> {
        let ty = op.result_type(types, &mut Sizes::default())?;
        let index = self.calls.len();
        let mut results = vec![];
        let out = ty.try_map(&mut |t: &TensorType| {
            let shape = t.fixed_shape().ok_or_else(|| {
                OpError::refused(format!("the size of the result of `{}` is data-dependent", op.name))
                    .help("`fxc run` compiles the operations before it and interprets the rest")
            })?;
            let v = self.push(
                t.dtype,
                &shape,
                Def::Routine {
                    call: index,
                    result: results.len(),
                },
            )?;
            results.push(v);
            Ok(Val::Leaf(self.traced(v)))
        })?;
        self.add_call(TirRoutineCall {
            call,
            results,
            graphs: vec![],
        })?;
        Ok(out)
    }
}

/// The result of an op that runs before the program: only values that are known from the types.
fn push_host_call(types: &Call<TensorType>) -> OpResult<Val<Traced>> {
    let op = types.op;
    let refused = |t: &TensorType| OpError::refused(format!("`{}` returns a tensor {t} on the host", op.name));
    op.result_type(types, &mut Sizes::default())?
        .try_map(&mut |t| Err(refused(t)))
}

impl Build for Tir {
    fn call_row(&mut self, op: &'static Op, args: Vec<Val<Traced>>) -> OpResult<Val<Traced>> {
        self.push_call(with_defaults(op, args))
    }

    fn note_softmax(&mut self, value: &Traced, part: SoftmaxPart) {
        let v = ValueId(value.id);
        if value.dtype() == DType::F32 && matches!(self.value(v).def, Def::Pointwise { .. }) {
            self.softmax.insert(v, part);
        }
    }
}

/// The call, with defaults for omitted trailing parameters.
pub(in crate::lower) fn with_defaults<T: Clone>(op: &'static Op, mut args: Vec<Val<T>>) -> Call<T> {
    for p in op.schema.params.iter().skip(args.len()) {
        args.push(p.default.as_ref().map_or(Val::None, lift_literal));
    }
    Call { op, args }
}

/// The result of Python arithmetic on known numbers, which needs no code.
fn number_result(types: &Call<TensorType>) -> Option<Val<Traced>> {
    if types.args.iter().any(|a| !a.leaves().is_empty()) {
        return None;
    }
    match types.op.result_type(types, &mut Sizes::default()).ok()? {
        Val::Bool(b) => Some(Val::Bool(b)),
        Val::Int(d) => Some(Val::Int(d)),
        Val::Float(x) => Some(Val::Float(x)),
        _ => None,
    }
}

/// Whether the types of a call determine its definition. No op with such a meaning has a special kernel.
pub(super) fn is_by_types(op: &Op) -> bool {
    matches!(
        op.meaning,
        Meaning::Pointwise(_) | Meaning::Reduce(_) | Meaning::View(_)
    )
}

fn meaning_by_types(types: &Call<TensorType>) -> OpResult<KnownMeaning> {
    match types.op.meaning {
        Meaning::Reduce(f) => return Ok(KnownMeaning::Reduce(Arc::new(f(types)?))),
        Meaning::View(f) => {
            let view = f(types)?;
            return Ok(KnownMeaning::View(Arc::new(KnownView {
                operand: view.operand,
                map: view.map,
                shape: view.shape,
            })));
        }
        _ => {}
    }
    let p = op::instantiate(types)?;
    let pointwise = KnownPointwise {
        shape: known_shape(&p.out)?,
        dtype: p.out.dtype,
        expr: Arc::new(p.expr),
        operands: p.operands,
        activation: activation_of(types),
    };
    Ok(KnownMeaning::Pointwise(Arc::new(pointwise)))
}

/// The tensor that an argument is.
fn known_operand<T>(call: &Call<T>, param: usize) -> OpResult<&T> {
    let operand = call.args[param].as_leaf();
    operand.ok_or_else(|| OpError::refused(format!("`{}` requires a tensor here", call.op.name)))
}

fn tensor_operand(call: &Call<ValueId>, param: usize) -> OpResult<ValueId> {
    known_operand(call, param).copied()
}

fn known_shape(t: &TensorType) -> OpResult<Vec<usize>> {
    t.fixed_shape()
        .ok_or_else(|| OpError::refused(format!("the size of {t} is unknown")))
}

/// The activation of `math` that the pointwise call equals, if any.
fn activation_of(call: &Call<TensorType>) -> Option<Activation> {
    let bounds = call.op.facts.clamp?;
    if call.leaf("self").ok()?.dtype != DType::F32 {
        return None;
    }
    Some(match bounds(call)? {
        (0.0, f32::INFINITY) => Activation::Relu,
        (low, high) => Activation::Clamp(low, high),
    })
}
