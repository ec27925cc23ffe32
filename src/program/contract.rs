//! Steps that `math` computes: matrix products, also of groups of rows, convolutions, attention and recurrent layers.

use super::{BufferId, BufferOperand, KernelTail};
use crate::math::contract::{Attention, Conv, Expansion, Grouped, MatMul, Recurrent, RecurrentCell};
use serde::{Deserialize, Serialize};

/// A contraction with its operands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Contract {
    /// A product of matrices: A, B and the addend.
    MatMul(MatMul, Vec<BufferOperand>),
    /// A convolution: input, weight and bias.
    Conv(Conv, Vec<BufferOperand>),
    /// A 1x1 convolution followed by a depthwise convolution: input, weight and bias of the first, weight and bias of
    /// the second.
    Expansion(Box<Expansion>, Vec<BufferOperand>, Between),
    /// A recurrent layer: inputs, states, recurrent weight and bias.
    Recurrent(Recurrent, Vec<BufferOperand>),
    /// Attention: q, k, v, the mask and the bias.
    Attention(Box<Attention>, Vec<BufferOperand>),
    /// Products of groups of rows: A, the matrices and the integers that tell the groups.
    Grouped(Grouped, Vec<BufferOperand>),
}

impl Contract {
    /// The operands.
    pub fn operands(&self) -> &[BufferOperand] {
        match self {
            Contract::MatMul(_, o) | Contract::Conv(_, o) | Contract::Attention(_, o) | Contract::Recurrent(_, o) => o,
            Contract::Expansion(_, o, _) | Contract::Grouped(_, o) => o,
        }
    }

    /// Multiply-adds, for estimates.
    pub fn macs(&self) -> f64 {
        match self {
            Contract::MatMul(d, _) => d.batch_size() as f64 * d.m as f64 * d.n as f64 * d.k as f64,
            Contract::Conv(d, _) => d.macs(),
            Contract::Expansion(d, ..) => d.macs(),
            Contract::Recurrent(d, _) => d.macs(),
            Contract::Grouped(d, _) => d.macs(),
            Contract::Attention(d, _) => {
                let scores = d.batch as f64 * d.heads as f64 * d.queries as f64 * d.keys as f64;
                scores * (d.size + d.value_size) as f64
            }
        }
    }
}

/// The kernel between the two convolutions of an [`Expansion`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Between {
    /// The buffer of the first result, which is never complete in memory
    /// ([`Place::Pieces`](super::BufferPlace::Pieces)).
    pub buffer: BufferId,
    /// A kernel that reads and writes only this buffer.
    pub tail: Option<KernelTail>,
}

/// The maximum number of parameters of a kernel between the convolutions of an [`Expansion`]; all of them are the
/// same buffer.
pub(crate) const MAX_BETWEEN_BUFFERS: usize = 4;

/// The positions of a recurrent layer's operands after its inputs and first state.
#[derive(Clone, Copy)]
pub(crate) struct RecurrentOperands {
    /// The first cell state of an LSTM.
    pub cell: Option<usize>,
    /// The recurrent weight.
    pub weight: usize,
    /// The projection of the output.
    pub projection: Option<usize>,
    /// The recurrent bias.
    pub bias: Option<usize>,
}

/// Computes the positions of a layer's operands.
pub(crate) fn recurrent_operands(d: &Recurrent) -> RecurrentOperands {
    let lstm = d.cell == RecurrentCell::Lstm;
    let weight = 2 + lstm as usize;
    let projected = d.projected.is_some();
    RecurrentOperands {
        cell: lstm.then_some(2),
        weight,
        projection: projected.then_some(weight + 1),
        bias: d.bias.then_some(weight + 1 + projected as usize),
    }
}

/// The buffer of a contraction's operand, if the operand is the whole buffer. Packing a constant requires this.
pub(crate) fn whole_buffer(o: &BufferOperand) -> Option<BufferId> {
    (o.offset == 0).then_some(o.buffer)
}
