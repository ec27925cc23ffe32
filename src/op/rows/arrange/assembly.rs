//! Ops that assemble or rearrange tensors: blocks, shifts, indexed writes, renormalisation.

use crate::op::emit::ints_val;
use crate::op::rows::fill::units_per_part;
use crate::op::{Build, Call, Meaning, MemoryOrder, Op, OpBuilder, OpError, OpId, OpResult, Traced, wrap_dim};
use crate::parallel::Pool;
use crate::tensor::{Tensor, ViewMut, copy_row};
use crate::types::{DType, Dim, Promotion, TensorType, Type, Val, result_type};

pub(super) fn rows() -> Vec<Op> {
    [layout_rows(), index_write_rows(), reduction_rows()]
        .into_iter()
        .flatten()
        .collect()
}

fn layout_rows() -> Vec<Op> {
    vec![
        Op::new(
            "block_diag(Tensor[] tensors) -> Tensor",
            |c, _| block_diag_type(c),
            Meaning::Fill(block_diag),
        )
        .doc("the block-diagonal matrix of the given matrices")
        .spelled("aten.@ torch.@ torch.functional.@"),
        Op::composite("fft_fftshift(Tensor self, int[1]? dim=None) -> Tensor", |b, c| {
            fft_shift(b, c, 0)
        })
        .doc("each dim with its two halves swapped")
        .spelled("aten.@ torch.fft.fftshift"),
        Op::composite("fft_ifftshift(Tensor self, int[1]? dim=None) -> Tensor", |b, c| {
            fft_shift(b, c, 1)
        })
        .doc("the inverse of fftshift")
        .spelled("aten.@ torch.fft.ifftshift"),
        Op::composite(
            "linalg_diagonal(Tensor A, *, int offset=0, int dim1=-2, int dim2=-1) -> Tensor",
            |b, c| b.call(OpId::Diagonal, c.args.clone()),
        )
        .doc("the diagonal of the last two dims")
        .spelled("aten.@ torch.linalg.diagonal")
        .aliasing(),
    ]
}

fn index_write_rows() -> Vec<Op> {
    vec![
        Op::composite(
            "put(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor",
            |b, c| {
                let x = c.leaf("self")?;
                let shape = x.shape()?.to_vec();
                let flat = |b: &mut dyn Build, name: &str| b.ravel(c.leaf(name)?);
                let (all, index, source) = (flat(b, "self")?, flat(b, "index")?, flat(b, "source")?);
                let places = Val::List(vec![index.into()]);
                let out = b.op(
                    OpId::IndexPut,
                    [all.into(), places, source.into(), c.get("accumulate").clone()],
                )?;
                b.reshape(&out, &shape).map(Val::Leaf)
            },
        )
        .doc("a copy with elements written at the given row-major indices")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ Tensor.@_"),
    ]
}

fn reduction_rows() -> Vec<Op> {
    vec![
        Op::composite("sum_to_size(Tensor self, SymInt[] size) -> Tensor", sum_to_size)
            .doc("the inverse of broadcasting: the sum over the expanded dims")
            .spelled("aten.@ Tensor.@")
            .aliasing()
            .same_object(|_, _| true),
        Op::composite(
            "renorm(Tensor self, Scalar p, int dim, Scalar maxnorm) -> Tensor",
            renorm,
        )
        .order(MemoryOrder::RowMajor)
        .doc("the slices along a dim, scaled down to a maximum norm")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ Tensor.@_"),
        Op::composite("mvlgamma(Tensor self, int p) -> Tensor", mvlgamma)
            .doc("the logarithm of the multivariate gamma function")
            .spelled(
                "aten.mvlgamma.default torch.mvlgamma Tensor.mvlgamma aten.special_multigammaln.default \
                 torch.special.multigammaln",
            )
            .inplace("aten.@_ Tensor.@_"),
    ]
}

/// The matrix that a block is: vectors count as rows, numbers as 1 x 1.
fn block_size<T: Clone>(shape: &[T], one: T) -> Option<[T; 2]> {
    match shape {
        [] => Some([one.clone(), one]),
        [n] => Some([one, n.clone()]),
        [m, n] => Some([m.clone(), n.clone()]),
        _ => None,
    }
}

fn block_diag_type(c: &Call<TensorType>) -> OpResult<Type> {
    let tensors = c.leaves("tensors")?;
    let promotions = tensors.iter().map(|t| match t.rank() {
        Some(0) => Promotion::ZeroDim(t.dtype),
        _ => Promotion::Dimensioned(t.dtype),
    });
    let Some(dtype) = result_type(promotions) else {
        return match tensors.is_empty() {
            true => Ok(Val::Leaf(TensorType::new(DType::F32, [Dim::Const(1), Dim::Const(0)]))),
            false => Err(OpError::dtype("block_diag: these dtypes have no common dtype")),
        };
    };
    let mut sum = [Dim::Const(0), Dim::Const(0)];
    for (i, t) in tensors.iter().enumerate() {
        let Some(shape) = t.shape.as_deref() else {
            return Ok(Val::Leaf(TensorType { dtype, shape: None }));
        };
        let size = block_size(shape, Dim::Const(1)).ok_or_else(|| {
            OpError::shape(format!(
                "torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {i} has {} dimensions",
                shape.len()
            ))
        })?;
        sum = std::array::from_fn(|d| sum[d].add(&size[d]));
    }
    Ok(Val::Leaf(TensorType::new(dtype, sum)))
}

/// Copies the rows of the matrices to their places on the diagonal, between zeros.
fn block_diag(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], pool: &Pool) -> OpResult<()> {
    let (dtype, width) = (outs[0].dtype(), outs[0].shape()[1]);
    let row = width * dtype.size();
    if row == 0 || outs[0].shape()[0] == 0 {
        return Ok(());
    }
    // Each block with the rows and the bytes of a row that come before it.
    let (mut blocks, mut above, mut left) = (vec![], 0, 0);
    for t in c.leaves("tensors")? {
        let [m, n] = block_size(t.shape(), 1).unwrap_or_default();
        blocks.push((t.to(dtype), above..above + m, left..left + n * dtype.size()));
        (above, left) = (above + m, left + n * dtype.size());
    }
    let rows = units_per_part(above, row, pool);
    pool.run_parts(outs[0].bytes_mut(), rows * row, |i, part| {
        let first = i * rows;
        let mut block = blocks.partition_point(|b| b.1.end <= first);
        for (k, out) in part.chunks_exact_mut(row).enumerate() {
            while blocks[block].1.end <= first + k {
                block += 1;
            }
            let (t, lines, columns) = &blocks[block];
            let len = columns.len();
            out[..columns.start].fill(0);
            copy_row(
                &t.bytes()[(first + k - lines.start) * len..][..len],
                &mut out[columns.clone()],
            );
            out[columns.end..].fill(0);
        }
    });
    Ok(())
}

/// Rolls each dim by half of its size, rounded down, or rounded up if `up` is 1.
fn fft_shift(b: &mut dyn Build, c: &Call<Traced>, up: i64) -> OpResult<Val<Traced>> {
    let x = c.leaf("self")?;
    let rank = x.rank()?;
    let dims = match c.opt_ints("dim")? {
        Some(d) => d,
        None => (0..rank as i64).collect(),
    };
    let mut by = vec![];
    for &d in &dims {
        let size = x.shape()?.get(wrap_dim(d, rank)?).and_then(Dim::as_const);
        let size = size.ok_or_else(|| OpError::shape("fftshift requires known sizes"))?;
        by.push((size + up) / 2);
    }
    if dims.is_empty() {
        return Ok(x.into());
    }
    b.op(OpId::Roll, [x.into(), ints_val(&by), ints_val(&dims)])
        .map(Val::Leaf)
}

fn sum_to_size(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, size) = (c.leaf("self")?, c.dims("size")?);
    let shape = x.shape()?.to_vec();
    let fits = shape.len().checked_sub(size.len());
    let lead = fits.ok_or_else(|| OpError::shape("size is not expandable to the tensor's size"))?;
    let mut dims: Vec<i64> = (0..lead as i64).collect();
    for (i, (want, have)) in size.iter().zip(&shape[lead..]).enumerate() {
        if *want == Dim::Const(1) && *have != Dim::Const(1) {
            dims.push((lead + i) as i64);
        } else if want.sub(have).as_const().is_some_and(|d| d != 0) {
            return Err(OpError::shape(format!("size {want} is not expandable to size {have}")));
        }
    }
    // torch also sums a 0-dim tensor, which turns integers into i64.
    if dims.is_empty() && !size.is_empty() {
        return Ok(x.into());
    }
    let sum = b.op(OpId::Sum, [x.into(), ints_val(&dims), Val::Bool(true)])?;
    b.reshape(&sum, &size).map(Val::Leaf)
}

fn renorm(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, p, most) = (c.leaf("self")?, c.f64("p")?, c.f64("maxnorm")?);
    let rank = x.rank()?;
    if rank < 2 || p <= 0.0 || most < 0.0 {
        return Err(OpError::arg(
            "self",
            format!(
                "renorm needs at least 2 dims, p > 0 and maxnorm >= 0, but got {rank} dims, p={p} and maxnorm={most}"
            ),
        ));
    }
    let dim = wrap_dim(c.int("dim")?, rank)?;
    let rest: Vec<i64> = (0..rank).filter(|&d| d != dim).map(|d| d as i64).collect();
    let wide = b.to_dtype(x, x.dtype().compute_dtype())?;
    let norm = b.op(
        OpId::LinalgVectorNorm,
        [(&wide).into(), c.get("p").clone(), ints_val(&rest), Val::Bool(true)],
    )?;
    let over = b.gt(&norm, Val::Float(most))?;
    let below = b.add(&norm, Val::Float(1e-7))?;
    let factor = b.reciprocal(&below)?;
    let factor = b.mul(&factor, Val::Float(most))?;
    let factor = b.r#where(over, factor, Val::Float(1.0))?;
    let out = b.mul(&wide, &factor)?;
    b.to_dtype(&out, x.dtype()).map(Val::Leaf)
}

/// The sum of `lgamma(self - j / 2)` for j from 0 to p - 1, plus `p (p - 1) / 4 log(pi)`.
fn mvlgamma(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, p) = (c.leaf("self")?, c.int("p")?);
    if !(1..=1 << 10).contains(&p) {
        return Err(OpError::arg(
            "p",
            "p has to be greater than or equal to 1 (and at most 1024)",
        ));
    }
    let constant = (p * (p - 1)) as f64 / 4.0 * std::f64::consts::PI.ln();
    // In torch, arguments and terms are tensors, so they are rounded to the dtype. Their sum is computed in a wider
    // dtype and rounded once.
    let term = |b: &mut dyn Build, arg: &Traced| {
        let term = b.lgamma(arg)?;
        b.to_dtype(&term, term.dtype().compute_dtype())
    };
    let mut sum = term(b, x)?;
    for j in 1..p {
        let arg = b.sub(x, Val::Float(j as f64 / 2.0))?;
        let term = term(b, &arg)?;
        sum = b.add(&sum, &term)?;
    }
    if x.dtype().is_float() {
        sum = b.to_dtype(&sum, x.dtype())?;
    }
    b.add(&sum, Val::Float(constant)).map(Val::Leaf)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::by_name;
    use crate::tensor::Scalar;

    #[test]
    fn blocks_are_on_the_diagonal() {
        let shapes: [&[usize]; 6] = [&[2, 3], &[], &[0, 2], &[4], &[3, 0], &[5, 1]];
        let blocks = shapes.map(|s| Tensor::from_fn(DType::F32, s, |i| Scalar::F32(i as f32 + 1.0)));
        let (m, n) = (12, 11);
        let mut want = vec![0f32; m * n];
        let (mut above, mut left) = (0, 0);
        for t in &blocks {
            let [rows, columns] = block_size(t.shape(), 1).expect("a matrix");
            for (i, &v) in t.as_slice::<f32>().iter().enumerate() {
                want[(above + i / columns) * n + left + i % columns] = v;
            }
            (above, left) = (above + rows, left + columns);
        }
        let call = Call {
            op: by_name("block_diag").expect("a row"),
            args: vec![Val::List(blocks.map(Val::Leaf).to_vec())],
        };
        for threads in [1, 3] {
            let mut out = vec![7f32; m * n];
            let view = ViewMut::from_slice(&[m, n], &mut out).expect("a view");
            block_diag(&call, &mut [view], &Pool::new(threads)).expect("a matrix");
            assert_eq!(out, want);
        }
    }
}
