//! The kernels of [`Special`] values: concatenation, row gathers, borders, pooling windows and running sums.

use crate::kernel::{
    Affine, Buf, Cond, Index, IndexBound, KernelBuilder, ReduceOp, Value, Var, VerifyError, lowest_value,
};
use crate::lower::ir::access::{Access, resolve_access};
use crate::lower::ir::{Def, Scheduled, SpatialWindow, Special, Stored, Tir, ValueId};
use crate::scalar::{Binary, Compare};
use crate::tensor::Scalar;
use crate::types::DType;

/// A special kernel being written.
struct SpecialWriter<'a> {
    tir: &'a Tir,
    stored: &'a dyn Fn(ValueId) -> bool,
    k: KernelBuilder,
    buffers: Vec<ValueId>,
}

impl SpecialWriter<'_> {
    fn bind_operand(&mut self, v: ValueId) -> (Buf, Access) {
        let a = resolve_access(self.tir, v, self.stored).expect("views have strides, see Tir::view");
        if let Some(i) = self.buffers.iter().position(|&b| b == a.base) {
            return (Buf(i as u32), a);
        }
        let def = self.tir.value(a.base);
        let name = format!("{}_{}", def.name, self.buffers.len());
        self.buffers.push(a.base);
        (self.k.input(&name, def.dtype, &def.shape), a)
    }

    fn bind_result(&mut self, v: ValueId) -> (Buf, Access) {
        let def = self.tir.value(v);
        self.buffers.push(v);
        (
            self.k.output(&def.name, def.dtype, &def.shape),
            Access::whole_buffer(v, &def.shape),
        )
    }
}

pub(super) fn element_index(a: &Access, vars: &[Affine]) -> Affine {
    let terms = vars.iter().zip(&a.strides).map(|(v, &s)| v.clone() * s);
    terms.fold(Affine::from(a.offset), |x, t| x + t)
}

pub(super) fn affine_vars(vars: &[Var]) -> Vec<Affine> {
    vars.iter().map(|&v| Affine::from(v)).collect()
}

/// The kernel of a special value.
pub(crate) fn write_kernel(tir: &Tir, v: ValueId, stored: &dyn Fn(ValueId) -> bool) -> Result<Scheduled, VerifyError> {
    let def = tir.value(v);
    let Def::Special { args, special } = &def.def else {
        unreachable!("the caller matched it")
    };
    let mut w = SpecialWriter {
        tir,
        stored,
        k: KernelBuilder::new(&*def.name),
        buffers: vec![],
    };
    let operands: Vec<(Buf, Access)> = args.iter().map(|&a| w.bind_operand(a)).collect();
    let out = w.bind_result(v);
    let sizes: Vec<Vec<usize>> = args.iter().map(|&a| tir.value(a).shape.clone()).collect();
    write_loops(&mut w.k, special, (&operands, &sizes), &out, (&def.shape, def.dtype));
    Ok(Scheduled {
        kernel: w.k.finish()?,
        buffers: w.buffers.into_iter().map(Stored::Value).collect(),
    })
}

/// The loops that compute a special value from its operands and their shapes. The result has this shape and dtype.
fn write_loops(
    k: &mut KernelBuilder,
    special: &Special,
    (operands, sizes): (&[(Buf, Access)], &[Vec<usize>]),
    out: &(Buf, Access),
    (shape, stored): (&[usize], DType),
) {
    let (x, first) = (&operands[0], &sizes[0]);
    match special {
        Special::Concat { dim } => super::concat::write_concat(k, operands, sizes, out, *dim),
        Special::Rows { wrap } => write_rows(k, operands, out, first, &sizes[1], *wrap),
        Special::Gather { dim } => write_gather(k, operands, out, (first, shape), *dim),
        Special::Pad { before, value } => store_each(k, shape, out, |k, i| {
            let src: Vec<Affine> = i.iter().zip(before).map(|(i, &b)| i.clone() - b).collect();
            let conds = src.iter().zip(first).map(|(s, &n)| Cond::within(s.clone(), n));
            k.load_or(x.0, element_index(&x.1, &src), conds.collect(), *value)
        }),
        Special::MaxPool(_) | Special::AvgPool { .. } => {
            let dtype = stored.compute_dtype();
            let sizes = first;
            let x = WindowedInput {
                stored,
                dtype,
                sizes,
                x,
            };
            store_each(k, shape, out, |k, i| {
                let y = pool_element(k, special, &x, i);
                convert(k, dtype, stored, y)
            });
        }
        Special::Scan { dim, op } => super::scan::write_scan(k, x, out, shape, *dim, *op),
        Special::Attention(_) | Special::Recurrent { .. } | Special::Grouped(_) => {
            unreachable!("a contraction, see `contract`")
        }
    }
}

/// Stores `value` of the index to each element of the result.
fn store_each(
    k: &mut KernelBuilder,
    shape: &[usize],
    out: &(Buf, Access),
    value: impl FnOnce(&mut KernelBuilder, &[Affine]) -> Value,
) {
    loop_over(k, shape, |k, i| {
        let x = value(k, i);
        k.store(out.0, element_index(&out.1, i), x);
    });
}

/// Loops over all of `shape`: parallel outside, a vector loop over the last dim.
pub(super) fn loop_over(k: &mut KernelBuilder, shape: &[usize], body: impl FnOnce(&mut KernelBuilder, &[Affine])) {
    match shape {
        [] => body(k, &[]),
        [n] => k.parallel_vector(*n, |k, v| body(k, &[v.into()])),
        [outer @ .., n] => k.parallel(outer, |k, o| {
            let mut vars = affine_vars(o);
            k.vector(*n, |k, v| {
                vars.push(v.into());
                body(k, &vars);
            });
        }),
    }
}

fn write_rows(
    k: &mut KernelBuilder,
    operands: &[(Buf, Access)],
    out: &(Buf, Access),
    table: &[usize],
    rows: &[usize],
    wrap: bool,
) {
    let bound = if wrap { IndexBound::Wrap } else { IndexBound::Check };
    let body = |k: &mut KernelBuilder, outer: &[Affine]| {
        let id = k.load(operands[1].0, element_index(&operands[1].1, outer));
        let id = k.cast(DType::I64, id);
        // The verifier accepts a value from memory as an index only if it is bounded.
        let id = k.bounded(id, table[0], bound);
        let row = Access {
            strides: operands[0].1.strides[1..].to_vec(),
            ..operands[0].1.clone()
        };
        let stride = operands[0].1.strides[0];
        let copy = |k: &mut KernelBuilder, inner: &[Affine]| {
            let index = Index::from(element_index(&row, inner)).plus_dynamic(id, stride);
            let x = k.load(operands[0].0, index);
            let full: Vec<Affine> = outer.iter().chain(inner).cloned().collect();
            k.store(out.0, element_index(&out.1, &full), x);
        };
        if table.len() == 1 {
            copy(k, &[]);
        } else {
            k.map_nest(&table[1..], |k, v| copy(k, &affine_vars(v)));
        }
    };
    if rows.is_empty() {
        body(k, &[]);
    } else {
        k.parallel(rows, |k, v| body(k, &affine_vars(v)));
    }
}

/// A gather from a tensor of shape `table` along `dim`, whose result has `shape`.
fn write_gather(
    k: &mut KernelBuilder,
    operands: &[(Buf, Access)],
    out: &(Buf, Access),
    (table, shape): (&[usize], &[usize]),
    dim: usize,
) {
    k.parallel(shape, |k, v| {
        let mut at = affine_vars(v);
        let to = element_index(&out.1, &at);
        let id = k.load(operands[1].0, element_index(&operands[1].1, &at));
        let id = k.cast(DType::I64, id);
        let id = k.bounded(id, table[dim], IndexBound::Check);
        at[dim] = Affine::from(0);
        let from = &operands[0].1;
        let x = k.load(
            operands[0].0,
            Index::from(element_index(from, &at)).plus_dynamic(id, from.strides[dim]),
        );
        k.store(out.0, to, x);
    });
}

/// `x` of dtype `from` as `to`.
fn convert(k: &mut KernelBuilder, from: DType, to: DType, x: Value) -> Value {
    if from == to { x } else { k.cast(to, x) }
}

/// The input of a pooling op.
struct WindowedInput<'a> {
    /// The dtype in memory.
    stored: DType,
    /// The dtype of the computation.
    dtype: DType,
    sizes: &'a [usize],
    x: &'a (Buf, Access),
}

/// The element of a pooling op's result at index `i`.
fn pool_element(k: &mut KernelBuilder, pool: &Special, x: &WindowedInput, i: &[Affine]) -> Value {
    match pool {
        Special::AvgPool {
            window,
            count_include_pad,
            divisor,
        } => {
            // Elements outside of the input add nothing. Whether they count is a matter of the divisor.
            let zero = Scalar::from_i64(x.stored, 0);
            let sum = WindowReduction::new(ReduceOp::Add, window, x, i, zero).write(k);
            let n = match divisor {
                Some(d) => k.constant(Scalar::Int(DType::I64, *d)),
                None => count_elements(k, window, x.sizes, i, *count_include_pad),
            };
            let n = k.cast(x.dtype, n);
            k.binary(Binary::Div, sum, n)
        }
        Special::MaxPool(window) => WindowReduction::new(ReduceOp::Max, window, x, i, lowest_value(x.stored)).write(k),
        _ => unreachable!("the caller matched a pooling op"),
    }
}

/// A reduction over the window at one index of the result.
struct WindowReduction<'a> {
    op: ReduceOp,
    window: &'a SpatialWindow,
    x: &'a WindowedInput<'a>,
    /// The index of the result.
    i: &'a [Affine],
    /// The value of elements outside of the input.
    outside: Scalar,
}

impl<'a> WindowReduction<'a> {
    fn new(
        op: ReduceOp,
        window: &'a SpatialWindow,
        x: &'a WindowedInput<'a>,
        i: &'a [Affine],
        outside: Scalar,
    ) -> WindowReduction<'a> {
        WindowReduction {
            op,
            window,
            x,
            i,
            outside,
        }
    }

    fn write(&self, k: &mut KernelBuilder) -> Value {
        let init = k.initial_value(self.op, self.x.dtype);
        self.reduce_dim(k, 0, self.i.to_vec(), vec![], init)
    }

    /// Reduces over dim `s` of the window and those after it. `index` has the input's index in the dims before.
    fn reduce_dim(
        &self,
        k: &mut KernelBuilder,
        s: usize,
        mut index: Vec<Affine>,
        mut conds: Vec<Cond>,
        init: Value,
    ) -> Value {
        let (w, d) = (self.window, self.window.first + s);
        let (buffer, access) = self.x.x;
        if s == w.kernel.len() {
            let index = element_index(access, &index);
            let x = match conds.is_empty() {
                true => k.load(*buffer, index),
                false => k.load_or(*buffer, index, conds, self.outside),
            };
            return convert(k, self.x.stored, self.x.dtype, x);
        }
        k.reduce(w.kernel[s], false, &[(self.op, &[init])], |k, v| {
            let pos = self.i[d].clone() * w.stride[s] as i64 + v * w.dilation[s] as i64 - w.padding[s] as i64;
            conds.push(Cond::within(pos.clone(), self.x.sizes[d]));
            index[d] = pos;
            // The outer loop adds the initial value. Inner loops would add it again in each of its iterations.
            let inner = k.constant(self.op.identity(self.x.dtype));
            vec![self.reduce_dim(k, s + 1, index, conds, inner)]
        })[0]
    }
}

/// The number of elements of the window at index `i`, as an i64 value.
fn count_elements(k: &mut KernelBuilder, w: &SpatialWindow, from: &[usize], i: &[Affine], include_pad: bool) -> Value {
    let lead = w.first;
    if include_pad || w.padding.iter().all(|&p| p == 0) {
        let whole: usize = w.kernel.iter().product();
        return k.constant(Scalar::Int(DType::I64, whole as i64));
    }
    let mut n = k.constant(Scalar::Int(DType::I64, 1));
    for s in 0..w.kernel.len() {
        let start = i[lead + s].clone() * w.stride[s] as i64 - w.padding[s] as i64;
        let end = k.index(start.clone() + w.kernel[s] as i64);
        let start = k.index(start);
        let (zero, size) = (
            k.constant(Scalar::Int(DType::I64, 0)),
            k.constant(Scalar::Int(DType::I64, from[lead + s] as i64)),
        );
        let below = k.compare(Compare::Lt, start, zero);
        let start = k.select(below, zero, start);
        let above = k.compare(Compare::Gt, end, size);
        let end = k.select(above, size, end);
        let len = k.binary(Binary::Sub, end, start);
        n = k.binary(Binary::Mul, n, len);
    }
    n
}
