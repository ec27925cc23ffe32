//! Facts about loop bodies that decide how loops are lowered.

use super::inline::{is_inline_binary, is_inline_unary};
use crate::kernel::{self, Affine, Inst, Kernel, Stmt, Var};
use crate::math::functions::{LANE_OPS, LaneOp};
use crate::scalar::{Binary, ScalarOp, Unary};
use crate::tensor::Scalar;
use crate::types::DType;
use std::collections::{HashMap, HashSet};

/// The values of a kernel that are indices.
pub(super) fn find_indices(k: &Kernel) -> HashMap<kernel::Value, &Affine> {
    fn visit<'a>(body: &'a [Stmt], out: &mut HashMap<kernel::Value, &'a Affine>) {
        for s in body {
            match s {
                Stmt::Let(v, Inst::Index(a)) => drop(out.insert(*v, a)),
                Stmt::Loop(l) => visit(&l.body, out),
                Stmt::Let(..) | Stmt::Store(..) => {}
            }
        }
    }
    let mut out = HashMap::new();
    visit(&k.body, &mut out);
    out
}

/// A loop is unrolled if its iterations times [`body_weight`] are at most this.
pub(super) const UNROLL: usize = 48;

/// The approximate number of instructions in a body. A loop inside makes it too heavy to unroll.
pub(super) fn body_weight(body: &[Stmt]) -> usize {
    body.iter()
        .map(|s| match s {
            Stmt::Let(_, Inst::Op(ScalarOp::Const(_)) | Inst::Index(_)) => 0,
            Stmt::Let(_, i) if is_heavy_inst(i) => 12,
            Stmt::Let(..) | Stmt::Store(..) => 1,
            Stmt::Loop(_) => UNROLL + 1,
        })
        .sum::<usize>()
        .max(1)
}

/// Whether an instruction lowers to many machine instructions.
fn is_heavy_inst(i: &Inst) -> bool {
    use Unary::*;
    let Inst::Op(ScalarOp::Unary(op, _)) = i else {
        return matches!(
            i,
            Inst::Op(ScalarOp::Binary(
                Binary::Pow | Binary::Atan2 | Binary::FloorDiv | Binary::Mod,
                ..
            ))
        );
    };
    !matches!(
        op,
        Neg | Abs | Sign | Not | BitNot | Floor | Ceil | Round | Trunc | Sqrt | Rsqrt | Recip | IsNan | IsInf | SignBit
    )
}

/// Collects the constants of a body. Returns false if the body contains loops.
pub(super) fn constants_of(body: &[Stmt], out: &mut Vec<(kernel::Value, Scalar)>) -> bool {
    for s in body {
        match s {
            Stmt::Let(v, Inst::Op(ScalarOp::Const(s))) => out.push((*v, *s)),
            Stmt::Loop(_) => return false,
            _ => {}
        }
    }
    true
}

/// Properties of a loop body that decide the group size.
pub(super) struct BodyShape {
    /// Whether an inner loop has reductions.
    pub reduces: bool,
    /// Whether one of those reductions is long.
    pub columns: bool,
    /// Whether there are operations that lower to many instructions.
    pub heavy: bool,
    /// Whether there are 64-bit values.
    pub wide: bool,
    /// Whether there are calls of vector functions.
    pub calls: bool,
}

pub(super) fn body_shape(body: &[Stmt], k: &Kernel) -> BodyShape {
    let mut r = BodyShape {
        reduces: false,
        columns: false,
        heavy: false,
        wide: false,
        calls: false,
    };
    for s in body {
        match s {
            Stmt::Let(v, i) => {
                r.heavy |= is_heavy_inst(i);
                let register = !matches!(i, Inst::Op(ScalarOp::Const(_)) | Inst::Index(_));
                r.wide |= register && k.dtype(*v).size() == 8;
                r.calls |= calls_function(i, k);
            }
            Stmt::Store(..) => {}
            Stmt::Loop(l) => {
                let inner = body_shape(&l.body, k);
                r.reduces |= inner.reduces || !l.reduces.is_empty();
                let long = l.vars.iter().any(|&v| k.extent(v) > 16);
                r.columns |= inner.columns || (long && !l.reduces.is_empty());
                r.heavy |= inner.heavy;
                r.wide |= inner.wide;
                r.calls |= inner.calls;
            }
        }
    }
    r
}

/// Whether an instruction becomes a call of a vector function.
fn calls_function(i: &Inst, k: &Kernel) -> bool {
    let (op, x) = match i {
        Inst::Op(ScalarOp::Unary(op, x)) => (LaneOp::Unary(*op), *x),
        Inst::Op(ScalarOp::Binary(op, x, _)) => (LaneOp::Binary(*op), *x),
        _ => return false,
    };
    let inline = match op {
        LaneOp::Unary(op) => is_inline_unary(op),
        LaneOp::Binary(op) => is_inline_binary(op),
    };
    let inline = inline && k.dtype(x) == DType::F32;
    k.dtype(x).is_float() && !inline && LANE_OPS.contains(&op)
}

/// Whether a kernel has no f64 values. In such kernels a store of two f64 is free to mean a streaming store; see
/// [`widen`](super::widen).
pub(super) fn may_stream(k: &Kernel) -> bool {
    let buffers = k.buffers.iter().map(|b| b.dtype);
    !k.values
        .iter()
        .copied()
        .chain(buffers)
        .any(|d| d == crate::types::DType::F64)
}

/// Collects the load conditions that depend on `var`.
pub(super) fn collect_guards(body: &[Stmt], var: Var, out: &mut Vec<kernel::Cond>) {
    for s in body {
        match s {
            Stmt::Let(_, Inst::Load(_, _, Some(g))) => {
                out.extend(g.conds.iter().filter(|c| c.expr.stride(var) != 0).cloned());
            }
            Stmt::Loop(l) => collect_guards(&l.body, var, out),
            _ => {}
        }
    }
}

/// Collects the stores of a body, including those in nested loops.
pub(super) fn stores_of<'s>(body: &'s [Stmt], out: &mut Vec<(kernel::Buf, &'s kernel::Index)>) {
    for s in body {
        match s {
            Stmt::Store(b, i, _) => out.push((*b, i)),
            Stmt::Loop(l) => stores_of(&l.body, out),
            Stmt::Let(..) => {}
        }
    }
}

/// Collects the variables of all loops in a body.
pub(super) fn loop_vars(body: &[Stmt], out: &mut Vec<Var>) {
    for s in body {
        if let Stmt::Loop(l) = s {
            out.extend(&l.vars);
            loop_vars(&l.body, out);
        }
    }
}

/// Finds the values that vary over the iterations of `var`'s loop. Calls `uniform` with every other operand of the
/// instructions that compute them.
pub(super) fn find_varying(
    body: &[Stmt],
    var: Var,
    varying: &mut HashSet<kernel::Value>,
    uniform: &mut dyn FnMut(kernel::Value, &HashSet<kernel::Value>),
) {
    for s in body {
        match s {
            Stmt::Let(v, i) => {
                let mut any = false;
                i.visit_operands(&mut |x| any |= varying.contains(&x));
                match i {
                    Inst::Load(_, index, _) => any |= index.affine.stride(var) != 0,
                    Inst::Index(a) => any |= a.stride(var) != 0,
                    _ if any => i.visit_operands(&mut |x| uniform(x, varying)),
                    _ => {}
                }
                if any {
                    varying.insert(*v);
                }
            }
            Stmt::Store(_, i, v) => {
                if i.affine.stride(var) != 0 {
                    uniform(*v, varying);
                }
            }
            Stmt::Loop(l) => {
                // Within a group, every loop-carried value and reduction result has one lane per iteration.
                varying.extend(l.carries.iter().flat_map(|c| [c.phi, c.out]));
                varying.extend(l.reduces.iter().flat_map(|r| r.out.iter().copied()));
                find_varying(&l.body, var, varying, uniform);
            }
        }
    }
}

/// A serial loop over the rows of a tile, and in it a vector loop over its columns, that only copies. The source is
/// contiguous along the rows' variable, forwards or backwards; the result along the columns' variable.
pub(super) struct TransposedCopy<'k> {
    pub source: (kernel::Buf, &'k kernel::Index),
    pub result: (kernel::Buf, &'k kernel::Index),
    pub row: Var,
    pub column: Var,
}

/// The copy that a nest of two loops makes, if it is a transposed one.
pub(super) fn transposed_copy<'k>(k: &Kernel, l: &'k kernel::Loop) -> Option<TransposedCopy<'k>> {
    let [Stmt::Loop(inner)] = &l.body[..] else { return None };
    let [
        Stmt::Let(v, Inst::Load(from, source, None)),
        Stmt::Store(to, result, stored),
    ] = &inner.body[..]
    else {
        return None;
    };
    let (&[row], &[column]) = (&l.vars[..], &inner.vars[..]) else {
        return None;
    };
    let plain = |l: &kernel::Loop| !l.parallel && l.reduces.is_empty() && l.carries.is_empty();
    let affine = source.dynamic.is_empty() && result.dynamic.is_empty();
    let copies = v == stored && from != to && affine && k.buffer(*from).dtype.size() <= 8;
    let lines = source.affine.stride(column).abs() > 1 && source.affine.stride(row).abs() == 1;
    let loops = plain(l) && !l.vector && plain(inner) && inner.vector;
    (loops && copies && lines && result.affine.stride(column) == 1).then_some(TransposedCopy {
        source: (*from, source),
        result: (*to, result),
        row,
        column,
    })
}
