//! Unpooling, and pooling over windows at random positions.

mod fractional;

use self::fractional::fractional_rows;
use super::window::{Kind, Pool};
use crate::op::emit::{dims_val, ints_val};
use crate::op::rows::dense::{to_i64_indices, zeros};
use crate::op::rows::fill::with_size;
use crate::op::rows::spell::{list_text, text};
use crate::op::{Build, Call, Meaning, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::tensor::Tensor;
use crate::types::{DType, Dim, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    let mut v = unpool_rows();
    v.extend([nn_unpool_row::<1>(), nn_unpool_row::<2>(), nn_unpool_row::<3>()]);
    v.extend(fractional_rows());
    v.extend(backward_rows());
    v
}

fn unpool_rows() -> Vec<Op> {
    vec![
        Op::new(
            "max_unpool2d(Tensor self, Tensor indices, SymInt[2] output_size) -> Tensor",
            |c, _| unpool_type(c, 2),
            Meaning::Routine(|c| unpool(c, 2)),
        )
        .doc("elements written to the given indices in each plane, with zeros elsewhere")
        .spelled("aten.@ torch._C._nn.@"),
        Op::new(
            "max_unpool3d(Tensor self, Tensor indices, SymInt[3] output_size, int[3] stride, int[3] padding) -> Tensor",
            |c, _| unpool_type(c, 3),
            Meaning::Routine(|c| unpool(c, 3)),
        )
        .doc("elements written to the given indices in each volume, with zeros elsewhere")
        .spelled("aten.@ torch._C._nn.@"),
    ]
}

/// The row of torch.nn's function and module for `N` dims.
fn nn_unpool_row<const N: usize>() -> Op {
    Op::composite((text!("nn_max_unpool{N}d"), text!(
            "max_unpool{N}d(Tensor input, Tensor indices, int[{N}] kernel_size, int[{N}]? stride=None, int[{N}] padding=0, \
             int[]? output_size=None) -> Tensor"
        )),
        |b, c| by_windows(b, c, N),
    )
    .doc("the inverse of max pooling: elements at their original positions, with zeros elsewhere")
    .spelled(text!("torch.nn.functional.max_unpool{N}d"))
    .module(text!(
        "MaxUnpool{N}d(kernel_size, stride=None, padding=0) = nn_max_unpool{N}d($0:input, $1:indices, kernel_size, \
         stride, padding, $2:output_size?)"
    ))
}

fn backward_rows() -> Vec<Op> {
    vec![
        Op::composite("max_pool2d_with_indices_backward(Tensor grad_output, Tensor self, int[2] kernel_size, int[2] stride, int[2] padding, \
             int[2] dilation, bool ceil_mode, Tensor indices) -> Tensor",
            |b, c| {
                let (grad, x, at) = (c.leaf("grad_output")?, c.leaf("self")?, c.leaf("indices")?);
                let shape = x.shape()?.to_vec();
                let rank = shape.len();
                check_pooled(&c.types())?;
                let flat = |b: &mut dyn Build, t: &Traced| -> OpResult<Traced> {
                    let [lead @ .., height, width] = t.shape()? else {
                        return Err(OpError::shape("non-empty 3D or 4D (batch mode) tensor expected for input"));
                    };
                    b.reshape(t, &[lead, &[height.mul(width)]].concat())
                };
                let zeros = b.full(&shape, Val::int(0), x.dtype())?;
                let (zeros, at, grad) = (flat(b, &zeros)?, flat(b, at)?, flat(b, grad)?);
                let dim = Val::int(rank as i64 - 2);
                let out = b.scatter_add(zeros, dim, at, grad)?;
                b.reshape(&out, &shape).map(Val::Leaf)
            },
        )
        .doc("gradients added at the positions of the maxima, with zeros elsewhere")
        .spelled("aten.@"),
    ]
}

/// Rejects a gradient whose sizes differ from those of the pooled result.
fn check_pooled(c: &Call<TensorType>) -> OpResult<()> {
    let out = Pool::from_call(c, 2, Kind::Max)?.out;
    let grad = c.shaped("grad_output")?.1;
    let differs = |(a, b): (&Dim, &Dim)| a.sub(b).as_const().is_some_and(|d| d != 0);
    match grad.len() != out.len() || grad.iter().zip(&out).any(differs) {
        false => Ok(()),
        true => Err(OpError::shape(format!(
            "Expected a tensor of sizes {} but got {}",
            list_text(&out),
            list_text(grad)
        ))),
    }
}

// --- unpooling ---------------------------------------------------------------------------------------------------------

fn unpool_type(c: &Call<TensorType>, n: usize) -> OpResult<Type> {
    let (d, x) = c.shaped("self")?;
    let (at, size) = (c.leaf("indices")?, c.dims("output_size")?);
    if at.dtype != DType::I64 {
        return Err(OpError::dtype("elements in indices should be type int64"));
    }
    if x.len() != n + 1 && x.len() != n + 2 {
        return Err(OpError::shape(format!(
            "Input to max_unpooling{n}d should be a {}d or {}d Tensor",
            n + 1,
            n + 2
        )));
    }
    if n == 3 && c.ints("stride")?.iter().any(|&s| s <= 0) {
        return Err(OpError::arg("stride", "strides should be greater than zero"));
    }
    if size.len() != n {
        return Err(OpError::shape(format!(
            "There should be exactly {n} elements in output_size"
        )));
    }
    let differs = |s: &[Dim]| {
        s.len() != x.len()
            || s.iter()
                .zip(x)
                .any(|(a, b)| a.sub(b).as_const().is_some_and(|d| d != 0))
    };
    if at.shape.as_deref().is_some_and(differs) {
        return Err(OpError::shape(
            "Expected shape of indices to be same as that of the input tensor",
        ));
    }
    let shape = [&x[..x.len() - n], &size[..]].concat();
    Ok(Val::Leaf(TensorType::new(d, shape)))
}

fn unpool(c: &Call<Tensor>, n: usize) -> OpResult<Val<Tensor>> {
    let (x, at) = (
        c.leaf("self")?,
        to_i64_indices(c.leaf("indices")?, "elements in indices should be type int64")?,
    );
    let ty = unpool_type(&c.types(), n)?;
    let shape = ty.as_leaf().and_then(TensorType::fixed_shape);
    let shape = shape.ok_or_else(|| OpError::shape("the sizes of the result are unknown"))?;
    let lead = x.rank() - n;
    let (from, to): (usize, usize) = (x.shape()[lead..].iter().product(), shape[lead..].iter().product());
    let mut out = zeros(x.dtype(), &shape)?;
    let at = at.as_slice::<i64>();
    if let Some(k) = at.iter().find(|&&k| k as u64 >= to as u64) {
        return Err(OpError::value(format!(
            "Found an invalid max index: {k} (output volumes are of size {to})"
        )));
    }
    with_size!(x.dtype().size(), N => {
        let (src, dst) = (x.bytes().as_chunks::<N>().0, out.bytes_mut().as_chunks_mut::<N>().0);
        let lines = at.chunks(from.max(1)).zip(src.chunks(from.max(1)));
        for ((at, src), dst) in lines.zip(dst.chunks_mut(to.max(1))) {
            at.iter().zip(src).for_each(|(&k, x)| dst[k as usize] = *x);
        }
    });
    Ok(Val::Leaf(out))
}

fn by_windows(b: &mut dyn Build, c: &Call<Traced>, n: usize) -> OpResult<Val<Traced>> {
    let (x, at) = (c.leaf("input")?, c.leaf("indices")?);
    let rank = x.rank()?;
    if rank < n + 1 {
        return Err(OpError::shape(format!(
            "Input to max_unpool{n}d should have {} or {} dims",
            n + 1,
            n + 2
        )));
    }
    let windows = window_params(c, n)?;
    let mut size = pooled_sizes(c, &x.shape()?[rank - n..], &windows)?;
    match n {
        3 => {
            let [_, stride, padding] = windows.map(|v| ints_val(&v));
            b.call(
                OpId::MaxUnpool3d,
                vec![x.into(), at.into(), dims_val(&size), stride, padding],
            )
        }
        2 => b.call(OpId::MaxUnpool2d, vec![x.into(), at.into(), dims_val(&size)]),
        _ => {
            let (x, at) = (b.unsqueeze(x, rank)?, b.unsqueeze(at, rank)?);
            size.push(Dim::Const(1));
            let out = b.max_unpool2d(x, at, dims_val(&size))?;
            b.squeeze(&out, rank).map(Val::Leaf)
        }
    }
}

/// Kernel sizes, strides and paddings, one per dim.
fn window_params(c: &Call<Traced>, n: usize) -> OpResult<[Vec<i64>; 3]> {
    let per_dim = |v: Vec<i64>| if v.len() == 1 { vec![v[0]; n] } else { v };
    let kernel = per_dim(c.ints("kernel_size")?);
    let stride = match c.opt_ints("stride")? {
        Some(v) if !v.is_empty() => per_dim(v),
        _ => kernel.clone(),
    };
    let all = [kernel, stride, per_dim(c.ints("padding")?)];
    match all.iter().all(|v| v.len() == n) {
        true => Ok(all),
        false => Err(OpError::shape(format!(
            "max_unpool{n}d expects {n} window sizes, strides and paddings"
        ))),
    }
}

/// The sizes before pooling: those computed from the windows, or the given ones, which must be close to them.
fn pooled_sizes(c: &Call<Traced>, pooled: &[Dim], [kernel, stride, padding]: &[Vec<i64>; 3]) -> OpResult<Vec<Dim>> {
    let n = pooled.len();
    let usual = |d: usize| {
        let steps = pooled[d].sub(&Dim::Const(1)).mul(&Dim::Const(stride[d]));
        let both = Dim::Const(padding[d]).mul(&Dim::Const(2));
        steps.add(&Dim::Const(kernel[d])).sub(&both)
    };
    let usual: Vec<Dim> = (0..n).map(usual).collect();
    if c.is_none("output_size") {
        return Ok(usual);
    }
    let given = c.dims("output_size")?;
    let given = given[given.len().saturating_sub(n)..].to_vec();
    if given.len() != n {
        let title = format!("output_size should be a sequence containing {n} or {} elements", n + 2);
        return Err(OpError::arg("output_size", title));
    }
    for (d, g) in given.iter().enumerate() {
        let far = g.sub(&usual[d]).as_const();
        if far.is_some_and(|far| far.saturating_abs() >= stride[d]) {
            let title = format!("invalid output_size {g} (dim {d} must be near {})", usual[d]);
            return Err(OpError::arg("output_size", title));
        }
    }
    Ok(given)
}

// --- fractional pooling ------------------------------------------------------------------------------------------------

fn unravel_index(mut i: usize, shape: &[usize]) -> Vec<usize> {
    let mut out = vec![0; shape.len()];
    for (d, n) in shape.iter().enumerate().rev() {
        out[d] = i % n;
        i /= n;
    }
    out
}
