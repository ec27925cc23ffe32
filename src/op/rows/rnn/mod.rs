//! Recurrent networks: LSTM, GRU and plain RNNs over whole sequences, and their cells.

mod cells;
mod gates;
mod products;
mod steps;

use self::cells::{cell_module_rows, cell_rows};
use self::steps::{CellKind, Sequence};
use crate::op::rows::spell::list_text;
use crate::op::{Build, Call, Effect, Meaning, Op, OpError, OpId, OpResult, Traced};
use crate::types::{DType, Dim, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    let mut v = sequence_rows();
    v.extend(module_rows());
    v.extend(cell_rows());
    v.extend(cell_module_rows());
    v
}

fn sequence_rows() -> Vec<Op> {
    let sequence = |name, schema, paths, doc| {
        Op::new((name, schema), |c, _| sequence_type(c), Meaning::Routine(Sequence::run))
            .doc(doc)
            .spelled(paths)
            .effect(Effect::Random)
    };
    vec![
        sequence(
            "lstm",
            "lstm(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool \
             bidirectional, bool batch_first) -> (Tensor, Tensor, Tensor)",
            "aten.lstm.input torch.lstm torch._VF.lstm",
            "an LSTM over a sequence: outputs, last hidden states, last cell states",
        ),
        sequence(
            "gru",
            "gru(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool \
             bidirectional, bool batch_first) -> (Tensor, Tensor)",
            "aten.gru.input torch.gru torch._VF.gru",
            "a GRU over a sequence: outputs, last hidden states",
        ),
        sequence(
            "rnn_tanh",
            "rnn_tanh(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, \
             bool bidirectional, bool batch_first) -> (Tensor, Tensor)",
            "aten.rnn_tanh.input torch.rnn_tanh torch._VF.rnn_tanh",
            "h = tanh(W x + U h) over a sequence: outputs, last hidden states",
        ),
        sequence(
            "rnn_relu",
            "rnn_relu(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, \
             bool bidirectional, bool batch_first) -> (Tensor, Tensor)",
            "aten.rnn_relu.input torch.rnn_relu torch._VF.rnn_relu",
            "h = relu(W x + U h) over a sequence: outputs, last hidden states",
        ),
    ]
}

/// The kind of cell for a row's name.
pub(in crate::op::rows) fn kind_of(name: &str) -> CellKind {
    match name {
        "lstm" => CellKind::Lstm,
        "gru" => CellKind::Gru,
        "rnn_tanh" => CellKind::Tanh,
        _ => CellKind::Relu,
    }
}

/// Whether the call applies dropout between its layers.
pub(in crate::op::rows) fn has_dropout<T: Clone>(c: &Call<T>) -> OpResult<bool> {
    Ok(c.bool("train")? && c.f64("dropout")? != 0.0 && c.int("num_layers")? > 1)
}

fn sequence_type(c: &Call<TensorType>) -> OpResult<Type> {
    let (d, x) = c.shaped("input")?;
    let kind = kind_of(c.op.name);
    if !d.is_float() {
        return Err(crate::op::pointwise::not_implemented(c.op.name, d));
    }
    let [a, b, _] = x else {
        return Err(OpError::shape(format!(
            "{}: Expected input to be 3D, got {}D tensor",
            c.op.name,
            x.len()
        )));
    };
    let p = c.f64("dropout")?;
    if has_dropout(c)? && !(0.0..=1.0).contains(&p) {
        let title = format!("dropout probability has to be between 0 and 1, but got {p}");
        return Err(OpError::arg("dropout", title));
    }
    let batch = if c.bool("batch_first")? { a } else { b };
    let states = hidden_states(c, kind)?;
    check_params(c, kind, d, x)?;
    let directions = 1 + c.bool("bidirectional")? as i64;
    let layers = Dim::Const(c.int("num_layers")?.saturating_mul(directions));
    for s in &states {
        check_state(s, &layers, batch)?;
    }
    let hidden = states[0].shape.as_deref().map_or(Dim::Unknown, |s| s[2].clone());
    let shape = vec![a.clone(), b.clone(), hidden.mul(&Dim::Const(directions))];
    let mut out = vec![Val::Leaf(TensorType::new(d, shape))];
    out.extend(states.into_iter().cloned().map(Val::Leaf));
    Ok(Val::Tuple(out))
}

/// The states before the first step: hidden and cell state of an LSTM, or the hidden state.
fn hidden_states(c: &Call<TensorType>, kind: CellKind) -> OpResult<Vec<&TensorType>> {
    let (states, count) = match kind {
        CellKind::Lstm => (c.leaves("hx")?, 2),
        _ => (vec![c.leaf("hx")?], 1),
    };
    match states.len() == count {
        true => Ok(states),
        false => Err(OpError::arg(
            "hx",
            format!("{} expects {count} hidden states", c.op.name),
        )),
    }
}

/// Returns an error if a state is not `[layers, batch, size]`.
fn check_state(state: &TensorType, layers: &Dim, batch: &Dim) -> OpResult<()> {
    let Some([l, n, h]) = state.shape.as_deref() else {
        return Err(OpError::shape("the hidden state must have 3 dims"));
    };
    let differ = |a: &Dim, b: &Dim| a.sub(b).as_const().is_some_and(|d| d != 0);
    if differ(l, layers) || differ(n, batch) {
        return Err(OpError::shape(format!(
            "Expected hidden size [{layers}, {batch}, {h}], got {}",
            list_text(&[l.clone(), n.clone(), h.clone()])
        )));
    }
    Ok(())
}

fn check_params(c: &Call<TensorType>, kind: CellKind, d: DType, x: &[Dim]) -> OpResult<()> {
    let params = c.leaves("params")?;
    let sets = c.int("num_layers")?.saturating_mul(1 + c.bool("bidirectional")? as i64);
    let base = if c.bool("has_biases")? { 4 } else { 2 };
    let n = params.len() as i64;
    let projected = kind == CellKind::Lstm && n == sets.saturating_mul(base + 1);
    if sets < 1 || (n != sets.saturating_mul(base) && !projected) {
        return Err(OpError::arg(
            "params",
            format!("{}: got an incorrect number of RNN parameters: {n}", c.op.name),
        ));
    }
    if let Some(p) = params.iter().find(|p| p.dtype != d) {
        return Err(OpError::dtype(format!(
            "input and parameters must have the same dtype, got {} and {}",
            d.scalar_type_name(),
            p.dtype.scalar_type_name()
        )));
    }
    if let Some([_, k]) = params[0].shape.as_deref()
        && k.sub(&x[2]).as_const().is_some_and(|d| d != 0)
    {
        return Err(OpError::shape(format!(
            "input.size(-1) must be equal to input_size. Expected {k}, got {}",
            x[2]
        )));
    }
    Ok(())
}

/// The rows behind the module classes: states default to zeros, and the batch dim is optional.
type Composite = fn(&mut dyn Build, &Call<Traced>) -> OpResult<Val<Traced>>;

/// The forward method of a module over whole sequences.
fn module_row(name: &'static str, schema: &'static str, forward: Composite, module: &'static str) -> Op {
    Op::composite((name, schema), forward)
        .doc("the module's forward method: allows a missing state (zeros) and sequences without a batch dim")
        .effect(Effect::Random)
        .module(module)
}

fn module_rows() -> Vec<Op> {
    vec![
        module_row(
            "lstm_module",
            "lstm_module(Tensor input, Any hx, Tensor[] params, int hidden_size, int num_layers, bool bias, bool batch_first, bool \
             bidirectional, int proj_size, float dropout, bool training) -> Any",
            |b, c| run_module(b, c, OpId::Lstm),
            "LSTM(input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0, bidirectional=False, \
             proj_size=0) = lstm_module($0:input, $1:hx?, @rnn_weights, hidden_size, num_layers, bias, batch_first, \
             bidirectional, proj_size, dropout, training)",
        ),
        module_row(
            "gru_module",
            "gru_module(Tensor input, Any hx, Tensor[] params, int hidden_size, int num_layers, bool bias, bool batch_first, bool \
             bidirectional, int proj_size, float dropout, bool training) -> Any",
            |b, c| run_module(b, c, OpId::Gru),
            "GRU(input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0, bidirectional=False) = \
             gru_module($0:input, $1:hx?, @rnn_weights, hidden_size, num_layers, bias, batch_first, bidirectional, 0, \
             dropout, training)",
        ),
        module_row(
            "rnn_module",
            "rnn_module(Tensor input, Any hx, Tensor[] params, int hidden_size, int num_layers, bool bias, bool batch_first, bool \
             bidirectional, int proj_size, float dropout, bool training, str nonlinearity='tanh') -> Any",
            |b, c| {
                let op = if c.str("nonlinearity")? == "relu" {
                    OpId::RnnRelu
                } else {
                    OpId::RnnTanh
                };
                run_module(b, c, op)
            },
            "RNN(input_size, hidden_size, num_layers=1, nonlinearity='tanh', bias=True, batch_first=False, dropout=0.0, \
             bidirectional=False) = rnn_module($0:input, $1:hx?, @rnn_weights, hidden_size, num_layers, bias, batch_first, \
             bidirectional, 0, dropout, training, nonlinearity)",
        ),
    ]
}

/// The states in the argument `hx`, if there are any.
fn passed_states(c: &Call<Traced>) -> OpResult<Vec<Traced>> {
    Ok(match c.get("hx") {
        Val::None => vec![],
        Val::Leaf(t) => vec![t.clone()],
        Val::Tuple(v) | Val::List(v) => v.iter().filter_map(|v| v.as_leaf().cloned()).collect(),
        v => {
            let kind = v.kind_name();
            let title = format!("the state must be a tensor or a tuple of tensors, not {kind}");
            return Err(OpError::arg("hx", title));
        }
    })
}

/// The states before the first step, `[layers * directions, batch, size]` each: the given ones (without the batch dim
/// if the input is `unbatched`), else zeros.
fn initial_states(
    b: &mut dyn Build,
    c: &Call<Traced>,
    x: &Traced,
    batch: &Dim,
    lstm: bool,
    unbatched: bool,
) -> OpResult<Vec<Traced>> {
    let passed = passed_states(c)?;
    let sets = c.int("num_layers")?.saturating_mul(1 + c.bool("bidirectional")? as i64);
    let hidden = c.int("hidden_size")?;
    let width = match c.int("proj_size")? {
        0 => hidden,
        p => p,
    };
    let mut states = vec![];
    for (i, size) in [width, hidden].into_iter().take(1 + lstm as usize).enumerate() {
        if let Some(found) = passed.get(i).map(Traced::shape).transpose()?.and_then(<[_]>::last)
            && found.as_const().is_some_and(|n| n != size)
        {
            let title = format!("Expected hidden[{i}] size ({sets}, {batch}, {size}), got one of size {found}");
            return Err(OpError::shape(title));
        }
        states.push(match passed.get(i) {
            Some(t) if unbatched => b.unsqueeze(t, 1)?,
            Some(t) => t.clone(),
            None => {
                let shape = [Dim::Const(sets), batch.clone(), Dim::Const(size)];
                b.full(&shape, Val::int(0), x.dtype())?
            }
        });
    }
    Ok(states)
}

/// The parameters that the modules' rows share with the rows of the functions.
const SHARED_PARAMS: [&str; 7] = [
    "params",
    "bias",
    "num_layers",
    "dropout",
    "training",
    "bidirectional",
    "batch_first",
];

fn run_module(b: &mut dyn Build, c: &Call<Traced>, op: OpId) -> OpResult<Val<Traced>> {
    let x = c.leaf("input")?;
    let batch_dim = if c.bool("batch_first")? { 0 } else { 1 };
    let unbatched = x.rank()? == 2;
    let x = if unbatched {
        b.unsqueeze(x, batch_dim)?
    } else {
        x.clone()
    };
    if x.rank()? != 3 {
        return Err(OpError::shape(format!(
            "{op}: Expected input to be 2D or 3D, got {}D instead",
            x.rank()?
        )));
    }
    let states = initial_states(b, c, &x, &x.shape()?[batch_dim], op == OpId::Lstm, unbatched)?;
    let hx = match op {
        OpId::Lstm => crate::op::emit::list_val(&states),
        _ => (&states[0]).into(),
    };
    let mut args = vec![x.into(), hx];
    args.extend(SHARED_PARAMS.map(|name| c.get(name).clone()));
    let mut all = b.call_many(op, args)?;
    if unbatched {
        for (i, t) in all.iter_mut().enumerate() {
            *t = b.squeeze(t, if i == 0 { batch_dim } else { 1 })?;
        }
    }
    let states: Vec<Val<Traced>> = all[1..].iter().map(Val::from).collect();
    let state = match op {
        OpId::Lstm => Val::Tuple(states),
        _ => states.into_iter().next().unwrap_or(Val::None),
    };
    Ok(Val::Tuple(vec![(&all[0]).into(), state]))
}
