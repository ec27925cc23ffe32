//! The descriptor of recurrent layers.

use super::Constant;
use crate::parallel::Pool;
use serde::{Deserialize, Serialize};

/// The computation in one step of a recurrent layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecurrentCell {
    /// Long short-term memory. Gates are in torch's order: input, forget, candidate, output.
    Lstm,
    /// Gated recurrent unit. Gates are in torch's order: reset, update, candidate.
    Gru,
    /// `tanh(x + u)`.
    Tanh,
    /// `relu(x + u)`.
    Relu,
}

impl RecurrentCell {
    /// The number of gates.
    pub fn gates(self) -> usize {
        match self {
            RecurrentCell::Lstm => 4,
            RecurrentCell::Gru => 3,
            RecurrentCell::Tanh | RecurrentCell::Relu => 1,
        }
    }
}

/// One f32 layer of a recurrent network in one direction, whose inputs are already projected (`torch.lstm`,
/// `torch.gru`, `torch.rnn_tanh`, `torch.rnn_relu` after `x @ w_ih.T + b_ih`).
///
/// Operands are row-major and contiguous: the projected inputs `[time, batch, gates * hidden]`, the initial hidden
/// state `[batch, hidden]`, for an LSTM the initial cell state, the recurrent weight `[gates * hidden, hidden]`, and
/// the recurrent bias `[gates * hidden]`. The result is `[time, batch, hidden]`, the hidden state after every step. For
/// an LSTM one more block of `[batch, hidden]` follows: the final cell state.
///
/// An LSTM may project its output (`proj_size`). The hidden state then has the size [`Recurrent::state_size`], which is
/// also the number of columns of the recurrent weight, and each step multiplies the cell's output by `[state, hidden]`.
/// The cell state keeps its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recurrent {
    /// The computation in one step.
    pub cell: RecurrentCell,
    /// The number of steps.
    pub time: usize,
    /// The number of sequences processed together.
    pub batch: usize,
    /// The number of hidden units.
    pub hidden: usize,
    /// The size that an LSTM's output is projected to; `None` without a projection.
    pub projected: Option<usize>,
    /// Whether the steps run from last to first.
    pub reverse: bool,
    /// Whether there is a recurrent bias.
    pub bias: bool,
    /// Whether products may round weights and states to bf16, where that is faster. The weights of a layer of bf16 are not changed by it.
    pub in_bf16: bool,
}

impl Recurrent {
    /// The size of the hidden state.
    pub fn state_size(&self) -> usize {
        self.projected.unwrap_or(self.hidden)
    }

    /// The number of elements of inputs, state, weight, bias and result. `None` if an operand does not fit the address
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

    /// The number of multiply-adds.
    pub fn macs(&self) -> f64 {
        let rows = self.cell.gates() as f64 * self.hidden as f64;
        let projection = self.projected.unwrap_or(0) as f64 * self.hidden as f64;
        self.time as f64 * self.batch as f64 * (rows * self.state_size() as f64 + projection)
    }
}

/// The addresses of a [`Recurrent`]'s operands.
#[derive(Clone, Copy)]
pub struct RecurrentArgs {
    /// The projected inputs.
    pub inputs: *const f32,
    /// The initial hidden state.
    pub state: *const f32,
    /// The initial cell state. Read for an LSTM only.
    pub cell: *const f32,
    /// The recurrent weight. Not read if it is constant.
    pub weight: *const f32,
    /// The projection of the output. Not read if there is none or it is constant.
    pub projection: *const f32,
    /// The recurrent bias. Not read if there is none.
    pub bias: *const f32,
    /// The result. It must not overlap any other operand.
    pub out: *mut f32,
}

/// The constant operands of a [`Recurrent`], as bytes of f32.
#[derive(Clone, Copy, Default)]
pub struct RecurrentConstants<'a> {
    /// The recurrent weight.
    pub weight: Option<Constant<'a>>,
    /// The projection of the output.
    pub projection: Option<Constant<'a>>,
}

/// A plan that computes a [`Recurrent`].
pub trait RecurrentPlan: Send + Sync {
    /// Computes the result.
    ///
    /// # Safety
    /// Every operand that is read is valid for the descriptor's extents and aligned; the result is writable and overlaps
    /// no other operand.
    unsafe fn run(&self, pool: &Pool, args: &RecurrentArgs);
    /// A description of the method, for reports.
    fn describe(&self) -> String;
}
