//! Cells: one step of an LSTM, a GRU or a plain RNN.

use crate::op::{Build, Call, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::types::{Dim, Val};

pub(super) fn cell_rows() -> Vec<Op> {
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
pub(super) fn cell_module_rows() -> Vec<Op> {
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

/// The states of a recurrent cell, with a batch: those given, or zeros. Given states have no batch if the input is `unbatched`.
fn cell_states(
    b: &mut dyn Build,
    c: &Call<Traced>,
    x: &Traced,
    count: usize,
    unbatched: bool,
) -> OpResult<Vec<Traced>> {
    let passed: Vec<Traced> = match c.get("hx") {
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
        states.push(match passed.get(i) {
            Some(t) if unbatched => b.unsqueeze(t, 0)?,
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
    let unbatched = match x.rank()? {
        1 => true,
        2 => false,
        n => {
            return Err(OpError::shape(format!(
                "Expected input to be 1D or 2D, got {n}D instead"
            )));
        }
    };
    let x = if unbatched { b.unsqueeze(x, 0)? } else { x.clone() };
    let kind = c.str("kind")?;
    let (op, count) = match kind {
        "lstm_cell" => (OpId::LstmCell, 2),
        "gru_cell" => (OpId::GruCell, 1),
        "rnn_relu_cell" => (OpId::RnnReluCell, 1),
        "rnn_tanh_cell" => (OpId::RnnTanhCell, 1),
        _ => return Err(OpError::arg("kind", format!("`{kind}` is not a recurrent cell"))),
    };
    let states = cell_states(b, c, &x, count, unbatched)?;
    let hx = if count == 2 {
        crate::op::emit::list_val(&states)
    } else {
        (&states[0]).into()
    };
    let mut args = vec![x.into(), hx];
    args.extend(c.args[2..6].iter().cloned());
    let out = b.call(op, args)?;
    if unbatched { drop_batch(b, out) } else { Ok(out) }
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
    let remembered = b.mul(&f, cell)?;
    let new = b.mul(&i, &g)?;
    let cell = b.add(&remembered, &new)?;
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
