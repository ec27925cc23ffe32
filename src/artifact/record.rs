//! The content of the sections of native parts.

use crate::code::HostCall;
use crate::types::DType;
use serde::{Deserialize, Serialize};

/// The content of a program section.
#[derive(Serialize, Deserialize)]
pub(super) struct ProgramRecord<P> {
    pub(super) program: P,
    /// The program's tensors, in program order.
    pub(super) tensors: Vec<TensorRecord>,
    pub(super) functions: Vec<FunctionRecord>,
    /// The function of each kernel: first the program's kernels, then those of the programs that its steps run.
    pub(super) kernels: Vec<u32>,
    pub(super) packs: Vec<PackRecord>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct TensorRecord {
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    /// Offset in the file; `None` for a weight that steps read only in packed form.
    pub(super) at: Option<u64>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct FunctionRecord {
    /// The location of its code in the code section, and the length.
    pub(super) code: (usize, usize),
    pub(super) calls: Vec<HostCall>,
    /// The location of the constants that it reads.
    pub(super) constants: (usize, usize),
    pub(super) width: usize,
    pub(super) scratch: usize,
    pub(super) refused: Option<String>,
    pub(super) narrow: Option<String>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct PackRecord {
    /// The tensor that is packed, and the offset at which the packed part begins.
    pub(super) tensor: usize,
    pub(super) at: usize,
    /// Identifies the packed form.
    pub(super) key: Vec<usize>,
    pub(super) place: (u64, u64),
}
