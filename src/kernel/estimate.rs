//! Estimates of a kernel's work. They decide whether a kernel is worth several threads and which values are computed
//! together.

use super::{Inst, Kernel, Stmt};
use crate::scalar::{Binary, ScalarOp, Unary};

/// The estimated speedup of vector loops. It is less than the number of lanes of the widest vectors because memory
/// limits them.
pub(crate) const LANES: f64 = 8.0;

/// Estimated nanoseconds of one whole run of a kernel on one thread.
pub(crate) fn kernel_nanoseconds(k: &Kernel) -> f64 {
    block_nanoseconds(k, &k.body)
}

fn block_nanoseconds(k: &Kernel, body: &[Stmt]) -> f64 {
    body.iter().map(|s| stmt_nanoseconds(k, s)).sum()
}

fn stmt_nanoseconds(k: &Kernel, s: &Stmt) -> f64 {
    match s {
        Stmt::Let(_, inst) => inst_nanoseconds(inst),
        Stmt::Store(..) => 0.3,
        Stmt::Loop(l) => {
            let n: f64 = l.vars.iter().map(|&v| k.extent(v) as f64).product();
            let lanes = if l.vector { LANES } else { 1.0 };
            n * (block_nanoseconds(k, &l.body) + 0.2) / lanes
        }
    }
}

fn inst_nanoseconds(inst: &Inst) -> f64 {
    match inst {
        Inst::Op(ScalarOp::Const(_)) | Inst::Index(_) => 0.0,
        Inst::Load(..) => 0.3,
        Inst::Op(ScalarOp::Unary(op, _)) => unary_nanoseconds(*op),
        Inst::Op(ScalarOp::Binary(op, ..)) => binary_nanoseconds(*op),
        _ => 0.25,
    }
}

/// Estimated nanoseconds of one unary operation on a scalar.
pub(crate) fn unary_nanoseconds(op: Unary) -> f64 {
    match op {
        Unary::Neg | Unary::Abs | Unary::Not | Unary::BitNot => 0.2,
        Unary::Sqrt | Unary::Rsqrt | Unary::Recip => 1.5,
        _ => 4.0,
    }
}

/// Estimated nanoseconds of one binary operation on scalars.
pub(crate) fn binary_nanoseconds(op: Binary) -> f64 {
    match op {
        Binary::Pow | Binary::Atan2 | Binary::Fmod | Binary::Mod => 20.0,
        Binary::Div | Binary::FloorDiv | Binary::TruncDiv => 1.5,
        _ => 0.25,
    }
}
