//! Tails that scale and shift the columns of a bf16 result: batch normalisations, with what commonly follows them.
//!
//! The runtime tells plans about such tails, because they can apply them to sums in registers.

use super::{BufferId, BufferPlace, Contract, KernelTail, Program, Repeat};
use crate::kernel::{Buf, Index, Inst, Kernel, Stmt, Value};
use crate::math::contract::ConvLayout;
use crate::scalar::{Binary, ScalarOp};
use crate::tensor::Tensor;
use crate::types::DType;
use std::collections::HashMap;

/// The operands of a tail that is a [`ColumnAffine`](crate::math::contract::ColumnAffine).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AffineTail {
    /// The positions of the operands among the buffers of the tail.
    pub scale: usize,
    pub shift: usize,
    /// A bf16 buffer with one element for each of the result.
    pub addend: Option<usize>,
    /// The bounds. NaN stays NaN.
    pub bounds: Option<(f32, f32)>,
}

impl AffineTail {
    /// Matches the kernel of a tail. `None` if it computes anything else.
    pub(crate) fn find(p: &Program, contract: &Contract, out: BufferId, tail: &KernelTail) -> Option<AffineTail> {
        let columns = column_count(contract)?;
        let values = FlatValues::new(p.kernels.get(tail.kernel)?)?;
        let found = values.affine_tail(|i| tail.buffers.get(i) == Some(&out))?;
        let is_column = |i: usize| is_of_columns(p, tail.buffers[i], tail.repeats[i], columns);
        let is_like_result = |i: usize| tail.repeats[i].is_none() && p.buffers[tail.buffers[i].0].dtype == DType::BF16;
        let fits = is_column(found.scale) && is_column(found.shift) && found.addend.is_none_or(is_like_result);
        fits.then_some(found)
    }
}

/// The number of columns, if the result is a bf16 matrix without gaps.
fn column_count(contract: &Contract) -> Option<usize> {
    match contract {
        Contract::MatMul(d, _) => (d.dtype == DType::BF16 && d.c_row == d.n).then_some(d.n),
        Contract::Conv(d, _) => {
            let is_last = d.output_layout == ConvLayout::ChannelsLast;
            (d.dtype == DType::BF16 && is_last).then_some(d.out_channels)
        }
        _ => None,
    }
}

/// Whether the buffer has one f32 for each column. Constants may have been written out several times.
fn is_of_columns(p: &Program, buffer: BufferId, repeat: Option<Repeat>, columns: usize) -> bool {
    let b = &p.buffers[buffer.0];
    let is_periodic = |t: &Tensor| {
        t.with_bytes(|bytes| {
            let row = columns * size_of::<f32>();
            bytes.chunks(row).all(|c| bytes.get(..c.len()) == Some(c))
        })
    };
    match repeat {
        Some(r) if b.dtype != DType::F32 || columns == 0 || r.period % columns != 0 => false,
        Some(r) if r.period == columns => true,
        Some(_) => matches!(&b.place, BufferPlace::Constant(t) if is_periodic(t)),
        None => false,
    }
}

/// The values of a kernel that is one loop over the elements of its buffers.
struct FlatValues<'a> {
    definitions: HashMap<Value, &'a Inst>,
    /// The position among the parameters.
    params: HashMap<Buf, usize>,
    /// The index of the only store, and its value.
    place: &'a Index,
    stored: Value,
}

impl<'a> FlatValues<'a> {
    /// `None` if the kernel has several stores or nested loops.
    fn new(kernel: &'a Kernel) -> Option<FlatValues<'a>> {
        let body = &kernel.parallel_loop()?.body;
        let mut definitions = HashMap::new();
        let mut stores = vec![];
        for stmt in kernel.body.iter().chain(body) {
            match stmt {
                Stmt::Let(v, inst) => drop(definitions.insert(*v, inst)),
                Stmt::Store(_, index, v) => stores.push((index, *v)),
                Stmt::Loop(_) => {}
            }
        }
        let nests = body.iter().any(|s| matches!(s, Stmt::Loop(_)));
        let [(place, stored)] = stores[..] else { return None };
        (!nests).then(|| FlatValues {
            definitions,
            params: kernel.params().enumerate().map(|(i, (b, _))| (b, i)).collect(),
            place,
            stored,
        })
    }

    fn op(&self, v: Value) -> Option<&ScalarOp<Value>> {
        match self.definitions.get(&v)? {
            Inst::Op(op) => Some(op),
            _ => None,
        }
    }

    /// The value that `v` is converted from.
    fn before_cast(&self, v: Value, to: DType) -> Option<Value> {
        match self.op(v)? {
            ScalarOp::Cast(dtype, x) if *dtype == to => Some(*x),
            _ => None,
        }
    }

    /// The parameter that `v` is loaded from, at the index of the store.
    fn loaded(&self, v: Value) -> Option<usize> {
        match self.definitions.get(&v)? {
            Inst::Load(b, index, None) if index == self.place => self.params.get(b).copied(),
            _ => None,
        }
    }

    /// The operands of a commutative operation, in both orders.
    fn operands(&self, v: Value, wanted: Binary) -> Option<[(Value, Value); 2]> {
        match self.op(v)? {
            ScalarOp::Binary(op, x, y) if *op == wanted => Some([(*x, *y), (*y, *x)]),
            _ => None,
        }
    }

    /// The bound of a maximum or minimum with a constant, and the other operand.
    fn bound(&self, v: Value, op: Binary) -> Option<(f32, Value)> {
        let constant = |v: Value| match self.op(v)? {
            ScalarOp::Const(c) if c.dtype() == DType::F32 => Some(c.to_f64() as f32),
            _ => None,
        };
        let [a, b] = self.operands(v, op)?;
        [a, b].into_iter().find_map(|(x, y)| Some((constant(x)?, y)))
    }

    /// The bounds, and the value that is clamped to them.
    fn clamped(&self, v: Value) -> (Option<(f32, f32)>, Value) {
        let (hi, below) = self.bound(v, Binary::Min).unwrap_or((f32::INFINITY, v));
        match self.bound(below, Binary::Max) {
            Some((lo, x)) => (Some((lo, hi)), x),
            None => (None, v),
        }
    }

    /// Matches the stored value. `is_result` tells whether a parameter is the contraction's result.
    fn affine_tail(&self, is_result: impl Fn(usize) -> bool) -> Option<AffineTail> {
        let (bounds, value) = self.clamped(self.before_cast(self.stored, DType::BF16)?);
        let affine = |v: Value| {
            let of_product = |(product, shift): (Value, Value)| {
                let shift = self.loaded(shift)?;
                let factors = self.operands(product, Binary::Mul)?;
                let scale = factors.into_iter().find_map(|(x, scale)| {
                    let x = self.loaded(self.before_cast(x, DType::F32)?)?;
                    is_result(x).then(|| self.loaded(scale)).flatten()
                });
                scale.map(|scale| (scale, shift))
            };
            self.operands(v, Binary::Add)?.into_iter().find_map(of_product)
        };
        let found = |(scale, shift): (usize, usize), addend| AffineTail {
            scale,
            shift,
            addend,
            bounds,
        };
        if let Some(operands) = affine(value) {
            return Some(found(operands, None));
        }
        self.operands(value, Binary::Add)?.into_iter().find_map(|(x, addend)| {
            let rounded = self.before_cast(self.before_cast(x, DType::F32)?, DType::BF16)?;
            let addend = self.loaded(self.before_cast(addend, DType::F32)?)?;
            let operands = affine(rounded)?;
            (!is_result(addend)).then(|| found(operands, Some(addend)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the tail computes of `x`, with `s`, `h` and `r` besides.
    fn find(body: &str) -> Option<AffineTail> {
        let text = format!(
            "kernel tail\nin x: bf16[8]\nin s: f32[8]\nin h: f32[8]\nin r: bf16[8]\nout y: bf16[8]\n\
             parallel vector for i0 in 8 {{\n{body}}}\n"
        );
        let kernel = Kernel::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        FlatValues::new(&kernel)?.affine_tail(|i| i == 0)
    }

    /// `x * s + h` in v5.
    const AFFINE: &str = "v0: bf16 = x[i0]\nv1: f32 = f32.cast(v0)\nv2: f32 = s[i0]\nv3: f32 = mul(v2, v1)\nv4: f32 = h[i0]\n\
                          v5: f32 = add(v4, v3)\n";
    const ROUNDED: &str =
        "v6: bf16 = bf16.cast(v5) flush\nv7: f32 = f32.cast(v6)\nv8: bf16 = r[i0]\nv9: f32 = f32.cast(v8)\n";

    #[test]
    fn scales_shifts_addends_and_bounds_are_found() {
        let found = AffineTail {
            scale: 1,
            shift: 2,
            addend: None,
            bounds: None,
        };
        assert_eq!(
            find(&format!("{AFFINE}v6: bf16 = bf16.cast(v5)\ny[i0] = v6\n")),
            Some(found)
        );
        let clamped = "v6: f32 = f32(0.0)\nv7: f32 = max(v5, v6)\nv8: f32 = f32(6.0)\nv9: f32 = min(v8, v7)\n\
                       v10: bf16 = bf16.cast(v9)\ny[i0] = v10\n";
        let bounds = Some((0.0, 6.0));
        assert_eq!(
            find(&format!("{AFFINE}{clamped}")),
            Some(AffineTail { bounds, ..found })
        );
        let added = "v10: f32 = add(v9, v7)\nv11: f32 = f32(0.0)\nv12: f32 = max(v10, v11)\nv13: bf16 = bf16.cast(v12)\ny[i0] = v13\n";
        let with_addend = AffineTail {
            addend: Some(3),
            bounds: Some((0.0, f32::INFINITY)),
            ..found
        };
        assert_eq!(find(&format!("{AFFINE}{ROUNDED}{added}")), Some(with_addend));
    }

    #[test]
    fn other_functions_are_not_affine() {
        for last in [
            // An addend that is not rounded first.
            "v6: bf16 = r[i0]\nv7: f32 = f32.cast(v6)\nv8: f32 = add(v5, v7)\nv9: bf16 = bf16.cast(v8)\ny[i0] = v9\n",
            "v6: f32 = neg(v5)\nv7: bf16 = bf16.cast(v6)\ny[i0] = v7\n",
            "v6: f32 = f32(2.0)\nv7: f32 = min(v5, v6)\nv8: bf16 = bf16.cast(v7)\ny[i0] = v8\n",
            "v6: f32 = s[7 - i0]\nv7: f32 = mul(v1, v6)\nv8: f32 = add(v7, v4)\nv9: bf16 = bf16.cast(v8)\ny[i0] = v9\n",
            "v6: f32 = mul(v4, v2)\nv7: f32 = add(v6, v4)\nv8: bf16 = bf16.cast(v7)\ny[i0] = v8\n",
        ] {
            assert_eq!(find(&format!("{AFFINE}{last}")), None, "{last}");
        }
    }
}
