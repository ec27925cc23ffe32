//! Recurrent networks: LSTM, GRU and plain RNNs over whole sequences, and their cells.

mod steps;

use self::steps::{CellKind, Sequence};
use crate::op::rows::spell::list_text;
use crate::op::{Build, Call, Effect, Meaning, Op, OpBuilder, OpError, OpId, OpResult, Traced};
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
    let (states, wanted) = match kind {
        CellKind::Lstm => (c.leaves("hx")?, 2),
        _ => (vec![c.leaf("hx")?], 1),
    };
    match states.len() == wanted {
        true => Ok(states),
        false => Err(OpError::arg(
            "hx",
            format!("{} expects {wanted} hidden states", c.op.name),
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

/// The states before the first step, `[layers * directions, batch, size]` each: the given ones (without the batch dim
/// if the input is `alone`), else zeros.
fn initial_states(
    b: &mut dyn Build,
    c: &Call<Traced>,
    x: &Traced,
    batch: &Dim,
    lstm: bool,
    alone: bool,
) -> OpResult<Vec<Traced>> {
    let given: Vec<Traced> = match c.get("hx") {
        Val::None => vec![],
        Val::Leaf(t) => vec![t.clone()],
        Val::Tuple(v) | Val::List(v) => v.iter().filter_map(|v| v.as_leaf().cloned()).collect(),
        v => {
            let kind = v.kind_name();
            let title = format!("the state must be a tensor or a tuple of tensors, not {kind}");
            return Err(OpError::arg("hx", title));
        }
    };
    let sets = c.int("num_layers")?.saturating_mul(1 + c.bool("bidirectional")? as i64);
    let hidden = c.int("hidden_size")?;
    let width = match c.int("proj_size")? {
        0 => hidden,
        p => p,
    };
    let mut states = vec![];
    for (i, size) in [width, hidden].into_iter().take(1 + lstm as usize).enumerate() {
        if let Some(found) = given.get(i).map(Traced::shape).transpose()?.and_then(<[_]>::last)
            && found.as_const().is_some_and(|n| n != size)
        {
            let title = format!("Expected hidden[{i}] size ({sets}, {batch}, {size}), got one of size {found}");
            return Err(OpError::shape(title));
        }
        states.push(match given.get(i) {
            Some(t) if alone => b.unsqueeze(t, 1)?,
            Some(t) => t.clone(),
            None => {
                let shape = [Dim::Const(sets), batch.clone(), Dim::Const(size)];
                b.full(&shape, Val::int(0), x.dtype())?
            }
        });
    }
    Ok(states)
}

fn run_module(b: &mut dyn Build, c: &Call<Traced>, op: OpId) -> OpResult<Val<Traced>> {
    let x = c.leaf("input")?;
    let batch_first = c.bool("batch_first")?;
    let alone = x.rank()? == 2;
    let at = if batch_first { 0 } else { 1 };
    let x = if alone { b.unsqueeze(x, at)? } else { x.clone() };
    if x.rank()? != 3 {
        return Err(OpError::shape(format!(
            "{op}: Expected input to be 2D or 3D, got {}D instead",
            x.rank()?
        )));
    }
    let states = initial_states(b, c, &x, &x.shape()?[at], op == OpId::Lstm, alone)?;
    let hx = if op == OpId::Lstm {
        crate::op::emit::list_val(&states)
    } else {
        (&states[0]).into()
    };
    let g = |n: &str| c.get(n).clone();
    let args = vec![
        x.into(),
        hx,
        g("params"),
        g("bias"),
        g("num_layers"),
        g("dropout"),
        g("training"),
        g("bidirectional"),
        g("batch_first"),
    ];
    let mut all = b.call_many(op, args)?;
    if alone {
        for (i, t) in all.iter_mut().enumerate() {
            *t = b.squeeze(t, if i == 0 { at } else { 1 })?;
        }
    }
    let states: Vec<Val<Traced>> = all[1..].iter().map(Val::from).collect();
    let state = if op == OpId::Lstm {
        Val::Tuple(states)
    } else {
        states.into_iter().next().unwrap_or(Val::None)
    };
    Ok(Val::Tuple(vec![(&all[0]).into(), state]))
}

fn cell_rows() -> Vec<Op> {
    vec![
        Op::composite("lstm_cell(Tensor input, Tensor[] hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> (Tensor, \
             Tensor)",
            |b, c| {
                let hx: Vec<Traced> = c.leaves("hx")?.into_iter().cloned().collect();
                let [h, cell] = &hx[..] else { return Err(OpError::arg("hx", "lstm_cell expects two hidden states")) };
                lstm_cell(b, c, h, cell).map(|(h, c)| Val::Tuple(vec![h.into(), c.into()]))
            },
        )
        .doc("one step of an LSTM: hidden and cell state")
        .spelled("aten.@ torch.@ torch._VF.@"),
        Op::composite("gru_cell(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> Tensor",
            gru_cell,
        )
        .doc("one step of a GRU")
        .spelled("aten.@ torch.@ torch._VF.@"),
        Op::composite("rnn_tanh_cell(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> Tensor",
            |b, c| plain_cell(b, c, OpId::Tanh),
        )
        .doc("one step of an RNN: tanh(W x + U h)")
        .spelled("aten.@ torch.@ torch._VF.@"),
        Op::composite("rnn_relu_cell(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> Tensor",
            |b, c| plain_cell(b, c, OpId::Relu),
        )
        .doc("one step of an RNN: relu(W x + U h)")
        .spelled("aten.@ torch.@ torch._VF.@"),
    ]
}

/// The forward methods of cells' modules.
fn cell_module_rows() -> Vec<Op> {
    vec![
        Op::composite("cell_module(Tensor input, Any hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh, int hidden_size, str kind) -> \
             Any",
            cell_module,
        )
        .doc("the forward method of a cell's module: allows a missing state (zeros) and an input without a batch dim")
        .module(
            "LSTMCell(input_size, hidden_size, bias=True) = cell_module($0:input, $1:hx?, @weight_ih[4 * hidden_size, \
             input_size], @weight_hh[4 * hidden_size, hidden_size], @bias_ih[4 * hidden_size] if bias, \
             @bias_hh[4 * hidden_size] if bias, hidden_size, 'lstm_cell')",
        )
        .module(
            "GRUCell(input_size, hidden_size, bias=True) = cell_module($0:input, $1:hx?, @weight_ih[3 * hidden_size, \
             input_size], @weight_hh[3 * hidden_size, hidden_size], @bias_ih[3 * hidden_size] if bias, \
             @bias_hh[3 * hidden_size] if bias, hidden_size, 'gru_cell')",
        )
        .module(
            "RNNCell(input_size, hidden_size, bias=True, nonlinearity='tanh') = cell_module($0:input, $1:hx?, \
             @weight_ih[hidden_size, input_size], \
             @weight_hh[hidden_size, hidden_size], @bias_ih[hidden_size] if bias, @bias_hh[hidden_size] if bias, \
             hidden_size, 'rnn_relu_cell') when nonlinearity='relu'",
        )
        .module(
            "RNNCell(input_size, hidden_size, bias=True, nonlinearity='tanh') = cell_module($0:input, $1:hx?, \
             @weight_ih[hidden_size, input_size], \
             @weight_hh[hidden_size, hidden_size], @bias_ih[hidden_size] if bias, @bias_hh[hidden_size] if bias, \
             hidden_size, 'rnn_tanh_cell')",
        ),
    ]
}

/// The states of a recurrent cell, with a batch: those given, or zeros. Given states have no batch if the input is `alone`.
fn cell_states(b: &mut dyn Build, c: &Call<Traced>, x: &Traced, count: usize, alone: bool) -> OpResult<Vec<Traced>> {
    let given: Vec<Traced> = match c.get("hx") {
        Val::None => vec![],
        Val::Leaf(t) => vec![t.clone()],
        v => v
            .items()
            .unwrap_or_default()
            .iter()
            .filter_map(|v| v.as_leaf().cloned())
            .collect(),
    };
    let mut states = vec![];
    for i in 0..count {
        states.push(match given.get(i) {
            Some(t) if alone => b.unsqueeze(t, 0)?,
            Some(t) => t.clone(),
            None => b.full(
                &[x.shape()?[0].clone(), Dim::Const(c.int("hidden_size")?)],
                Val::int(0),
                x.dtype(),
            )?,
        });
    }
    Ok(states)
}

fn cell_module(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("input")?;
    let alone = match x.rank()? {
        1 => true,
        2 => false,
        n => {
            return Err(OpError::shape(format!(
                "Expected input to be 1D or 2D, got {n}D instead"
            )));
        }
    };
    let x = if alone { b.unsqueeze(x, 0)? } else { x.clone() };
    let kind = c.str("kind")?;
    let (op, wanted) = match kind {
        "lstm_cell" => (OpId::LstmCell, 2),
        "gru_cell" => (OpId::GruCell, 1),
        "rnn_relu_cell" => (OpId::RnnReluCell, 1),
        "rnn_tanh_cell" => (OpId::RnnTanhCell, 1),
        _ => return Err(OpError::arg("kind", format!("`{kind}` is not a recurrent cell"))),
    };
    let states = cell_states(b, c, &x, wanted, alone)?;
    let hx = if wanted == 2 {
        crate::op::emit::list_val(&states)
    } else {
        (&states[0]).into()
    };
    let mut args = vec![x.into(), hx];
    args.extend(c.args[2..6].iter().cloned());
    let out = b.call(op, args)?;
    if alone { drop_batch(b, out) } else { Ok(out) }
}

/// Removes the batch of size 1 from a cell's results.
fn drop_batch(b: &mut dyn Build, out: Val<Traced>) -> OpResult<Val<Traced>> {
    match out {
        Val::Leaf(t) => b.squeeze(&t, 0).map(Val::Leaf),
        Val::Tuple(v) => {
            let v = v
                .iter()
                .filter_map(Val::as_leaf)
                .map(|t| b.squeeze(t, 0).map(Val::Leaf));
            Ok(Val::Tuple(v.collect::<OpResult<_>>()?))
        }
        v => Ok(v),
    }
}

/// `input @ w_ih.T + b_ih` and `h @ w_hh.T + b_hh`.
fn gate_projections(b: &mut dyn Build, c: &Call<Traced>, h: &Traced) -> OpResult<[Traced; 2]> {
    let g = |n: &str| c.get(n).clone();
    let x = b.op(OpId::Linear, [g("input"), g("w_ih"), g("b_ih")])?;
    let h = b.op(OpId::Linear, [h.into(), g("w_hh"), g("b_hh")])?;
    Ok([x, h])
}

/// Splits the last dim into `n` equal parts.
fn split_gates(b: &mut dyn Build, x: &Traced, n: i64) -> OpResult<Vec<Traced>> {
    b.call_many(OpId::Chunk, [x.into(), Val::int(n), Val::int(-1)])
}

fn lstm_cell(b: &mut dyn Build, c: &Call<Traced>, h: &Traced, cell: &Traced) -> OpResult<(Traced, Traced)> {
    let [x, h] = gate_projections(b, c, h)?;
    let all = b.add(&x, &h)?;
    let parts = split_gates(b, &all, 4)?;
    let [i, f, g, o] = &parts[..] else {
        return Err(OpError::shape("lstm_cell: the weights must hold four gates"));
    };
    let (i, f, o) = (b.sigmoid(i)?, b.sigmoid(f)?, b.sigmoid(o)?);
    let g = b.tanh(g)?;
    let kept = b.mul(&f, cell)?;
    let new = b.mul(&i, &g)?;
    let cell = b.add(&kept, &new)?;
    let t = b.tanh(&cell)?;
    Ok((b.mul(&o, &t)?, cell))
}

/// `(h - n) * z + n` with the candidate `n = tanh(W x + r * (U h))`.
fn gru_cell(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let h = c.leaf("hx")?;
    let [x, u] = gate_projections(b, c, h)?;
    let (x, u) = (split_gates(b, &x, 3)?, split_gates(b, &u, 3)?);
    let ([xr, xz, xn], [ur, uz, un]) = (&x[..], &u[..]) else {
        return Err(OpError::shape("gru_cell: the weights must hold three gates"));
    };
    let r = b.add(xr, ur)?;
    let r = b.sigmoid(&r)?;
    let z = b.add(xz, uz)?;
    let z = b.sigmoid(&z)?;
    let n = b.mul(&r, un)?;
    let n = b.add(xn, &n)?;
    let n = b.tanh(&n)?;
    let y = b.sub(h, &n)?;
    let y = b.mul(&y, &z)?;
    b.add(&y, &n).map(Val::Leaf)
}

fn plain_cell(b: &mut dyn Build, c: &Call<Traced>, f: OpId) -> OpResult<Val<Traced>> {
    let [x, u] = gate_projections(b, c, c.leaf("hx")?)?;
    let y = b.add(&x, &u)?;
    b.unary(f, &y).map(Val::Leaf)
}
