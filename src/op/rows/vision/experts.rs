//! Products of a mixture of experts.

use crate::op::rows::dense::{Number, native, with_number, zeros};
use crate::op::rows::spell::list_text;
use crate::op::{Call, Meaning, Op, OpError, OpResult, Sizes};
use crate::parallel::Pool;
use crate::tensor::{AlignedBytes, Storage, Tensor, ViewMut};
use crate::types::{DType, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    vec![
        Op::new(
            "grouped_mm(Tensor input, Tensor weight, Tensor offs) -> Tensor",
            grouped_type,
            Meaning::Fill(grouped_mm),
        )
        .doc("each group of rows of input, delimited by offsets, times its matrix")
        .spelled("transformers.grouped_mm_fallback.default"),
    ]
}

fn grouped_type(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Type> {
    let (d, x) = c.shaped("input")?;
    let (wd, w) = c.shaped("weight")?;
    let (od, offs) = c.shaped("offs")?;
    crate::op::rows::matmul::same_dtype(d, wd)?;
    if !matches!(od, DType::I32 | DType::I64) {
        return Err(OpError::dtype(format!(
            "offs must be an integer tensor, got torch.{}",
            od.torch_name()
        )));
    }
    let ([rows, k], [groups, wk, n], [count]) = (x, w, offs) else {
        return Err(OpError::shape(format!(
            "grouped_mm expects ranks 2, 3 and 1, got {}, {} and {}",
            list_text(x),
            list_text(w),
            list_text(offs)
        )));
    };
    s.unify_dims(groups, count, || {
        format!("offs length {count} must match number of experts {groups}")
    })?;
    s.unify_dims(k, wk, || format!("input_dim mismatch: input has {k}, weight has {wk}"))?;
    Ok(Val::Leaf(TensorType::new(d, vec![rows.clone(), n.clone()])))
}

/// Reads only the matrices of groups with rows: a mixture of experts has many matrices, and a token chooses few.
fn grouped_mm(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], pool: &Pool) -> OpResult<()> {
    let (x, w, offs) = (c.leaf("input")?, c.leaf("weight")?, c.leaf("offs")?.to(DType::I64));
    let (rows, k, n) = (x.shape()[0], x.shape()[1], w.shape()[2]);
    let compute = native(x.dtype());
    let xs = x.to(compute);
    let mut out = zeros(compute, &[rows, n])?;
    let mut start = 0usize;
    for (g, &end) in offs.as_slice::<i64>().iter().enumerate() {
        let end = usize::try_from(end).ok().filter(|&e| e >= start && e <= rows);
        let end = end.ok_or_else(|| OpError::value("grouped_mm: offsets must be ascending and within the rows"))?;
        if end > start && k > 0 && n > 0 {
            let converted = (w.dtype() != compute).then(|| matrix_of(w, g, compute));
            with_number!(x.dtype(), T => {
                let b = match &converted {
                    Some(matrix) => matrix.as_slice::<T>(),
                    None => &w.as_slice::<T>()[g * k * n..(g + 1) * k * n],
                };
                let (a, out) = (&xs.as_slice::<T>()[start * k..end * k], out.as_mut_slice::<T>());
                accumulate_matmul(a, b, [k, n], &mut out[start * n..end * n], pool);
            });
        }
        start = end;
    }
    outs[0].bytes_mut().copy_from_slice(out.to(x.dtype()).bytes());
    Ok(())
}

/// Matrix `g` of a stack, converted.
fn matrix_of(stack: &Tensor, g: usize, dtype: DType) -> Tensor {
    let shape = &stack.shape()[1..];
    let size = shape.iter().product::<usize>() * stack.dtype().size();
    let bytes = AlignedBytes::from_slice(&stack.bytes()[g * size..(g + 1) * size]);
    Tensor::from_storage(stack.dtype(), shape, Storage::Owned(bytes)).to(dtype)
}

/// `out += a @ b`, by rows of `b`, so that the inner loop accesses memory sequentially.
fn accumulate_matmul<T: Number>(a: &[T], b: &[T], [k, n]: [usize; 2], out: &mut [T], pool: &Pool) {
    // Parts of rows, because there are often fewer rows than threads.
    let parts = [8, 4, 2].into_iter().find(|p| n.is_multiple_of(*p) && n / p >= 64);
    let len = n / parts.unwrap_or(1);
    pool.run_parts(out, len, |i, out| {
        let (row, column) = (i * len / n, i * len % n);
        for (&x, line) in a[row * k..(row + 1) * k].iter().zip(b.chunks_exact(n)) {
            let line = &line[column..column + len];
            out.iter_mut().zip(line).for_each(|(o, &y)| *o = o.add(x.mul(y)));
        }
    });
}
