//! What sections of native parts hold.

use crate::code::HostCall;
use crate::types::DType;
use serde::{Deserialize, Serialize};

/// What a program section holds.
#[derive(Serialize, Deserialize)]
pub(super) struct ProgramRecord<P> {
    pub(super) program: P,
    /// The program's tensors, in its order.
    pub(super) tensors: Vec<TensorRecord>,
    pub(super) functions: Vec<FunctionRecord>,
    /// The function of each kernel: of the program, then of those that its steps run.
    pub(super) kernels: Vec<u32>,
    pub(super) packs: Vec<PackRecord>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct TensorRecord {
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    /// The first byte in the file; `None` for a weight of which steps read packed forms alone.
    pub(super) at: Option<u64>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct FunctionRecord {
    /// Where its code is in the code section, and how long it is.
    pub(super) code: (usize, usize),
    pub(super) calls: Vec<HostCall>,
    /// Where the constants are that it reads.
    pub(super) constants: (usize, usize),
    pub(super) width: usize,
    pub(super) scratch: usize,
    pub(super) refused: Option<String>,
    pub(super) narrow: Option<String>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct PackRecord {
    /// Which of the tensors is packed, and from which byte on.
    pub(super) tensor: usize,
    pub(super) at: usize,
    /// Names the form.
    pub(super) key: Vec<usize>,
    pub(super) place: (u64, u64),
}
