//! The descriptor of recurrent layers.

use super::Constant;
use crate::parallel::Pool;

/// What a step of a recurrent layer computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecurrentCell {
    /// Long short-term memory; gates in torch's order: input, forget, candidate, output.
    Lstm,
    /// Gated recurrent unit; gates in torch's order: reset, update, candidate.
    Gru,
    /// `tanh(x + u)`.
    Tanh,
    /// `relu(x + u)`.
    Relu,
}

impl RecurrentCell {
    /// How many gates it has.
    pub fn gates(self) -> usize {
        match self {
            RecurrentCell::Lstm => 4,
            RecurrentCell::Gru => 3,
            RecurrentCell::Tanh | RecurrentCell::Relu => 1,
        }
    }
}

/// One layer of a recurrent network in one direction, f32, its inputs multiplied already (`torch.lstm`, `torch.gru`,
/// `torch.rnn_tanh`, `torch.rnn_relu` after `x @ w_ih.T + b_ih`).
///
/// Operands are row-major without gaps: the projected inputs `[time, batch, gates * hidden]`, the first hidden state
/// `[batch, hidden]`, for an LSTM the first cell state, the recurrent weight `[gates * hidden, hidden]`, the
/// recurrent bias `[gates * hidden]`. The result is `[time, batch, hidden]`, the hidden state after every step; for an LSTM
/// one more row of `[batch, hidden]` follows, the last cell state.
///
/// An LSTM may project its output (`proj_size`): the hidden states then have the size [`Recurrent::state_size`], also among the columns
/// of the recurrent weight, and a step multiplies what the cell gives by `[state, hidden]`. The cell keeps its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recurrent {
    /// What a step computes.
    pub cell: RecurrentCell,
    /// Steps.
    pub time: usize,
    /// Sequences side by side.
    pub batch: usize,
    /// Hidden units.
    pub hidden: usize,
    /// The size that an LSTM's output is projected to; `None` for a hidden state as it leaves the cell.
    pub projected: Option<usize>,
    /// Whether the steps go from the last to the first.
    pub reverse: bool,
    /// Whether there is a recurrent bias.
    pub bias: bool,
}

impl Recurrent {
    /// Size of the hidden state.
    pub fn state_size(&self) -> usize {
        self.projected.unwrap_or(self.hidden)
    }

    /// How many elements each of inputs, state, weight, bias and result has; `None` if one does not fit the address
    /// space.
    pub fn extents(&self) -> Option<[usize; 5]> {
        let rows = self.cell.gates().checked_mul(self.hidden)?;
        let state = self.batch.checked_mul(self.state_size())?;
        let inputs = self.time.checked_mul(self.batch)?.checked_mul(rows)?;
        let weight = rows.checked_mul(self.state_size())?;
        let cells = match self.cell {
            RecurrentCell::Lstm => self.batch.checked_mul(self.hidden)?,
            _ => 0,
        };
        let out = self.time.checked_mul(state)?.checked_add(cells)?;
        let all = [inputs, state, weight, rows, out];
        let fits = |n: &usize| n.checked_mul(4).is_some_and(|b| b <= isize::MAX as usize / 4);
        all.iter().all(fits).then_some(all)
    }

    /// Multiply-adds.
    pub fn macs(&self) -> f64 {
        let rows = self.cell.gates() as f64 * self.hidden as f64;
        let projection = self.projected.unwrap_or(0) as f64 * self.hidden as f64;
        self.time as f64 * self.batch as f64 * (rows * self.state_size() as f64 + projection)
    }
}

/// Where the operands of a [`Recurrent`] are.
#[derive(Clone, Copy)]
pub struct RecurrentArgs {
    /// The projected inputs.
    pub inputs: *const f32,
    /// The first hidden state.
    pub state: *const f32,
    /// The first cell state; read for an LSTM only.
    pub cell: *const f32,
    /// The recurrent weight; not read if it was constant.
    pub weight: *const f32,
    /// The projection of the output; not read if there is none or it was constant.
    pub projection: *const f32,
    /// The recurrent bias; not read if there is none.
    pub bias: *const f32,
    /// The result; overlaps no other operand.
    pub out: *mut f32,
}

/// The operands of a [`Recurrent`] that are constant, as bytes of f32.
#[derive(Clone, Copy, Default)]
pub struct RecurrentConstants<'a> {
    /// The recurrent weight.
    pub weight: Option<Constant<'a>>,
    /// The projection of the output.
    pub projection: Option<Constant<'a>>,
}

/// A [`Recurrent`] ready to run.
pub trait RecurrentPlan: Send + Sync {
    /// Computes the result.
    ///
    /// # Safety
    /// Every operand that is read is valid for the descriptor's extents and aligned; the result is writable and overlaps
    /// no other operand.
    unsafe fn run(&self, pool: &Pool, args: &RecurrentArgs);
    /// How it computes, for reports.
    fn describe(&self) -> String;
}
