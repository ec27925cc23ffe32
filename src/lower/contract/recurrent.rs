//! Recurrent networks: each layer and direction becomes one product for all inputs and one [`Recurrent`] step.

use crate::lower::LowerError;

use crate::lower::ir::{Def, Special, Tir, ValueId, same_dim};
use crate::math::contract::{Recurrent, RecurrentCell};
use crate::op::{AffineIndex, Build, Call, IndexMap, OpId, OpResult, Traced};
use crate::program::{BufferOperand, Contract};
use crate::types::{DType, TensorType, Val};

/// Recognises `lstm`, `gru`, `rnn_tanh` and `rnn_relu` without dropout, and lowers them to steps. Returns `None` for
/// other calls, which stay library calls.
///
/// Half types are computed in f32. The output of each layer is rounded, as in torch. The states between steps keep f32; products of bf16 round
/// them ([`Recurrent::in_bf16`]).
pub(in crate::lower) fn recognise_recurrent(
    tir: &mut Tir,
    types: &Call<TensorType>,
    ids: &Call<ValueId>,
) -> OpResult<Option<Val<Traced>>> {
    let cell = match types.op.id() {
        Some(OpId::Lstm) => RecurrentCell::Lstm,
        Some(OpId::Gru) => RecurrentCell::Gru,
        Some(OpId::RnnTanh) => RecurrentCell::Tanh,
        Some(OpId::RnnRelu) => RecurrentCell::Relu,
        _ => return Ok(None),
    };
    // Dropout between layers draws random numbers, which only the library call does.
    if types.bool("train")? && types.f64("dropout")? != 0.0 && types.int("num_layers")? > 1 {
        return Ok(None);
    }
    let x = *ids.leaf("input")?;
    let mut params: Vec<ValueId> = ids.leaves("params")?.into_iter().copied().collect();
    let mut states: Vec<ValueId> = match cell {
        RecurrentCell::Lstm => ids.leaves("hx")?.into_iter().copied().collect(),
        _ => vec![*ids.leaf("hx")?],
    };
    let mut net = RecurrentNetwork {
        cell,
        dtype: tir.value(x).dtype,
        biases: ids.bool("has_biases")?,
        projected: false,
        layers: ids.int("num_layers")?.max(0) as usize,
        directions: 1 + ids.bool("bidirectional")? as usize,
        batch_first: ids.bool("batch_first")?,
    };
    let sets = net.layers.saturating_mul(net.directions);
    net.projected = cell == RecurrentCell::Lstm && params.len() == sets.saturating_mul(net.per_set() + 1);
    if !net.is_supported(tir, x, &params, &states) {
        return Ok(None);
    }
    for v in params.iter_mut().chain(&mut states) {
        *v = widen(tir, *v)?;
    }
    net.build(tir, x, &params, &states).map(Some)
}

/// A value of a half type as f32. Constants are widened now, rather than in each call.
fn widen(tir: &mut Tir, v: ValueId) -> OpResult<ValueId> {
    let value = tir.value(v);
    match &value.def {
        Def::Constant(t) if value.dtype != DType::F32 && t.quantized().is_none() => {
            let (shape, wide) = (value.shape.clone(), t.to(DType::F32));
            tir.push(DType::F32, &shape, Def::Constant(wide))
        }
        _ => tir.convert(v, DType::F32),
    }
}

struct RecurrentNetwork {
    cell: RecurrentCell,
    /// The dtype of all operands and results.
    dtype: DType,
    biases: bool,
    /// Whether each parameter set ends with the projection of the output.
    projected: bool,
    layers: usize,
    directions: usize,
    batch_first: bool,
}

impl RecurrentNetwork {
    fn per_set(&self) -> usize {
        let base = if self.biases { 4 } else { 2 };
        base + self.projected as usize
    }

    /// Whether the steps here support these dtypes and sizes. The library call reports what is wrong with others.
    fn is_supported(&self, tir: &Tir, x: ValueId, params: &[ValueId], states: &[ValueId]) -> bool {
        let sets = self.layers * self.directions;
        let alike = params.iter().chain(states).all(|&v| tir.value(v).dtype == self.dtype);
        let has_steps = alike && matches!(self.dtype, DType::F32 | DType::F16 | DType::BF16);
        let shape = &tir.value(x).shape;
        let state_count = if self.cell == RecurrentCell::Lstm { 2 } else { 1 };
        if !has_steps || sets == 0 || params.len() != sets * self.per_set() || shape.len() != 3 || shape.contains(&0) {
            return false;
        }
        let batch = shape[!self.batch_first as usize];
        let size = |s: Option<&ValueId>| s.and_then(|&s| tir.value(s).shape.last().copied()).unwrap_or(0);
        let (state, hidden) = (size(states.first()), size(states.last()));
        let fits = |s: &ValueId, n: usize| tir.value(*s).shape == [sets, batch, n];
        let sized = states.first().is_some_and(|s| fits(s, state)) && states.last().is_some_and(|s| fits(s, hidden));
        if hidden == 0 || state == 0 || states.len() != state_count || !sized || (state != hidden && !self.projected) {
            return false;
        }
        let rows = self.cell.gates() * hidden;
        params.chunks(self.per_set()).enumerate().all(|(i, p)| {
            let input = if i < self.directions {
                shape[2]
            } else {
                state * self.directions
            };
            let want: [&[usize]; 4] = [&[rows, input], &[rows, state], &[rows], &[rows]];
            let (weights, projection) = p.split_at(self.per_set() - self.projected as usize);
            let good = |(&v, w): (&ValueId, &[usize])| tir.value(v).shape == w;
            weights.iter().zip(want).all(good) && projection.iter().all(|&v| tir.value(v).shape == [state, hidden])
        })
    }

    fn build(&self, tir: &mut Tir, x: ValueId, params: &[ValueId], states: &[ValueId]) -> OpResult<Val<Traced>> {
        let mut x = if self.batch_first {
            swap_leading_dims(tir, x)?
        } else {
            x
        };
        x = widen(tir, x)?;
        let mut last: Vec<Vec<ValueId>> = vec![vec![]; states.len()];
        for layer in 0..self.layers {
            let mut outs = vec![];
            for d in 0..self.directions {
                let set = layer * self.directions + d;
                let p = &params[set * self.per_set()..(set + 1) * self.per_set()];
                let (out, finals) = self.push_direction(tir, x, p, states, set, d == 1)?;
                outs.push(out);
                last.iter_mut().zip(finals).for_each(|(l, f)| l.push(f));
            }
            x = if outs.len() == 1 {
                outs[0]
            } else {
                concat_values(tir, &outs, 2)?
            };
            if layer + 1 < self.layers {
                x = tir.convert(x, self.dtype)?;
                x = widen(tir, x)?;
            }
        }
        x = tir.convert(x, self.dtype)?;
        if self.batch_first {
            x = swap_leading_dims(tir, x)?;
        }
        let mut results = vec![Val::Leaf(tir.traced(x))];
        for l in &last {
            let v = if l.len() == 1 { l[0] } else { concat_values(tir, l, 0)? };
            let v = tir.convert(v, self.dtype)?;
            results.push(Val::Leaf(tir.traced(v)));
        }
        Ok(Val::Tuple(results))
    }

    /// What a layer does in a step.
    fn step(&self, reverse: bool) -> Special {
        Special::Recurrent {
            cell: self.cell,
            reverse,
            projected: self.projected,
            in_bf16: self.dtype == DType::BF16,
        }
    }

    /// Pushes one layer in one direction. Returns its outputs `[time, batch, hidden]` and its last states `[1, batch,
    /// hidden]`.
    fn push_direction(
        &self,
        tir: &mut Tir,
        x: ValueId,
        p: &[ValueId],
        states: &[ValueId],
        set: usize,
        reverse: bool,
    ) -> OpResult<(ValueId, Vec<ValueId>)> {
        let (p, projection) = p.split_at(p.len() - self.projected as usize);
        let inputs = push_linear(tir, x, p[0], p.get(2).copied())?;
        let (time, batch) = (tir.value(x).shape[0], tir.value(x).shape[1]);
        let state = tir.value(states[0]).shape[2];
        let hidden = states.last().map_or(state, |&s| tir.value(s).shape[2]);
        let mut operands = vec![inputs];
        for &s in states {
            operands.push(slice_items(tir, s, set, 1)?);
        }
        operands.push(p[1]);
        operands.extend(projection);
        operands.extend(p.get(3));
        let operands = operands.into_iter().map(|o| make_contiguous(tir, o));
        let args = operands.collect::<OpResult<Vec<_>>>()?;
        let special = self.step(reverse);
        let lstm = (self.cell == RecurrentCell::Lstm) as usize;
        let def = Def::Special { args, special };
        let steps = time * batch * state;
        let all = tir.push(DType::F32, &[steps + lstm * batch * hidden], def)?;
        let out = flat_view(tir, all, 0, [time, batch, state])?;
        let last = if reverse { 0 } else { time - 1 };
        let mut finals = vec![flat_view(tir, all, last * batch * state, [1, batch, state])?];
        if lstm == 1 {
            finals.push(flat_view(tir, all, steps, [1, batch, hidden])?);
        }
        Ok((out, finals))
    }
}

fn push_linear(tir: &mut Tir, x: ValueId, weight: ValueId, bias: Option<ValueId>) -> OpResult<ValueId> {
    let traced = |v: ValueId| Val::Leaf(tir.traced(v));
    let args = vec![traced(x), traced(weight), bias.map_or(Val::None, traced)];
    match tir.call(OpId::Linear, args)? {
        Val::Leaf(t) => Ok(ValueId(t.id)),
        _ => unreachable!("linear returns one tensor"),
    }
}

/// The value itself if its elements are contiguous in memory, else a copy.
fn make_contiguous(tir: &mut Tir, v: ValueId) -> OpResult<ValueId> {
    let contiguous = tir.access(v).is_some_and(|a| a.is_contiguous(&tir.value(v).shape));
    if contiguous { Ok(v) } else { tir.copy(v) }
}

/// `[a, b, n]` as a view `[b, a, n]`.
fn swap_leading_dims(tir: &mut Tir, v: ValueId) -> OpResult<ValueId> {
    let s = tir.value(v).shape.clone();
    let map = IndexMap::Affine(vec![same_dim(1), same_dim(0), same_dim(2)]);
    tir.view(v, map, &[s[1], s[0], s[2]])
}

/// A view of shape `shape` of a flat value, in row-major order from element `first` on.
fn flat_view(tir: &mut Tir, v: ValueId, first: usize, shape: [usize; 3]) -> OpResult<ValueId> {
    let steps = [(shape[1] * shape[2]) as i64, shape[2] as i64, 1];
    let index = AffineIndex {
        offset: first as i64,
        terms: steps.into_iter().enumerate().collect(),
    };
    tir.view(v, IndexMap::Affine(vec![index]), &shape)
}

/// Items `first .. first + count` along dim 0.
fn slice_items(tir: &mut Tir, v: ValueId, first: usize, count: usize) -> OpResult<ValueId> {
    let mut shape = tir.value(v).shape.clone();
    if (first, count) == (0, shape[0]) {
        return Ok(v);
    }
    shape[0] = count;
    let index = AffineIndex {
        offset: first as i64,
        terms: vec![(0, 1)],
    };
    tir.view(v, IndexMap::Affine(vec![index, same_dim(1), same_dim(2)]), &shape)
}

fn concat_values(tir: &mut Tir, parts: &[ValueId], dim: usize) -> OpResult<ValueId> {
    let mut shape = tir.value(parts[0]).shape.clone();
    shape[dim] = parts.iter().map(|&v| tir.value(v).shape[dim]).sum();
    let def = Def::Special {
        args: parts.to_vec(),
        special: Special::Concat { dim },
    };
    tir.push(DType::F32, &shape, def)
}

/// The step of a recurrent layer. The operands are those of one layer in one direction.
pub(in crate::lower) fn recurrent_step(special: &Special, operands: &[BufferOperand]) -> Result<Contract, LowerError> {
    let &Special::Recurrent {
        cell,
        reverse,
        projected,
        in_bf16,
    } = special
    else {
        unreachable!("the caller matched recurrent layers");
    };
    let lstm = (cell == RecurrentCell::Lstm) as usize;
    let (inputs, state) = (&operands[0].shape, &operands[1].shape);
    let width = *state.last().unwrap_or(&0);
    let desc = Recurrent {
        cell,
        time: inputs[0],
        batch: inputs[1],
        hidden: inputs[2] / cell.gates(),
        projected: projected.then_some(width),
        reverse,
        bias: operands.len() > 3 + lstm + projected as usize,
        in_bf16,
    };
    Ok(Contract::Recurrent(desc, operands.to_vec()))
}
