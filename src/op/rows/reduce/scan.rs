//! Medians, and the lines of reductions to positions and of scans.

use super::reduced_shape;
use super::short_medians::write_short_medians;
use crate::op::pointwise::not_implemented;
use crate::op::rows::fill::units_per_part;
use crate::op::rows::lines::DimLines;
use crate::op::rows::order::{Wanted, for_each_ordered_line};
use crate::op::{Call, Meaning, Op, OpError, OpResult, wrap_dim};
use crate::parallel::Pool;
use crate::tensor::{Scalar, Tensor, ViewMut};
use crate::types::{DType, Dim, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    [
        super::extrema::rows(),
        median_rows(),
        super::cumulative::rows(),
        super::running::rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The given dim, or `None` for all dims.
fn dim_of<T>(c: &Call<T>, rank: usize) -> OpResult<Option<usize>> {
    c.opt_int("dim")?.map(|d| wrap_dim(d, rank)).transpose()
}

/// The shape without `dim`, or without all dims if it is `None`.
fn shape_without<D: Clone + From<usize>>(shape: &[D], dim: Option<usize>, keepdim: bool) -> Vec<D> {
    let dims: Vec<usize> = match dim {
        Some(d) => vec![d],
        None => (0..shape.len()).collect(),
    };
    reduced_shape(shape, &dims, keepdim)
}

fn keeps_dim<T>(c: &Call<T>) -> OpResult<bool> {
    c.op.schema.index_of("keepdim").map_or(Ok(false), |_| c.bool("keepdim"))
}

/// The result type of a reduction to a position; an error if the dim is empty.
pub(super) fn place_type(c: &Call<TensorType>, dtype: DType) -> OpResult<TensorType> {
    let t = c.leaf("self")?;
    let Some(shape) = &t.shape else {
        return Ok(TensorType { dtype, shape: None });
    };
    let dim = dim_of(c, shape.len())?;
    let median = c.op.name.contains("median").then_some("median");
    let name = median.unwrap_or(c.op.name);
    match dim {
        Some(d) if shape.get(d) == Some(&Dim::Const(0)) => {
            return Err(OpError::shape(format!(
                "{name}(): Expected reduction dim {d} to have non-zero size."
            )));
        }
        None if shape.contains(&Dim::Const(0)) && name.starts_with("arg") => {
            return Err(OpError::shape(format!(
                "{name}(): Expected reduction dim to be specified for input.numel() == 0."
            )));
        }
        _ => {}
    }
    Ok(TensorType::new(dtype, shape_without(shape, dim, keeps_dim(c)?)))
}

/// The lines of a call: along its dim, or all elements as a single line.
pub(super) fn lines_of(c: &Call<Tensor>, t: &Tensor) -> OpResult<DimLines> {
    Ok(match dim_of(c, t.rank())? {
        Some(d) => DimLines::new(t.shape(), d),
        None => DimLines::new(&[t.numel()], 0),
    })
}

fn median_rows() -> Vec<Op> {
    let (all, along) = (
        "median(Tensor self) -> Tensor",
        "median(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
    );
    vec![
        Op::new(("median", all), |c, _| median_type(c), Meaning::Fill(median))
            .doc("the median (the lower of two middle elements); NaN if any element is NaN")
            .spelled("aten.median.default torch.median Tensor.median"),
        Op::new(("median_dim", along), |c, _| median_type(c), Meaning::Fill(median))
            .doc("the median along a dim (the lower of two middle elements) and its index; NaN if any element is NaN")
            .spelled("aten.median.dim torch.median Tensor.median"),
        Op::new(("nanmedian", all), |c, _| median_type(c), Meaning::Fill(median))
            .doc("the median of the elements that are not NaN (the lower of two middle elements)")
            .spelled("aten.nanmedian.default torch.nanmedian Tensor.nanmedian"),
        Op::new(
            ("nanmedian_dim", along),
            |c, _| median_type(c),
            Meaning::Fill(median),
        )
        .doc(
            "the median along a dim of the elements that are not NaN (the lower of two middle elements), and its index",
        )
        .spelled("aten.nanmedian.dim torch.nanmedian Tensor.nanmedian"),
    ]
}

fn median_type(c: &Call<TensorType>) -> OpResult<Type> {
    let d = c.leaf("self")?.dtype;
    if d == DType::B8 || !d.is_computed() {
        let kernel = if c.op.schema.results == 1 {
            "median_cpu"
        } else {
            "median_out"
        };
        return Err(not_implemented(kernel, d));
    }
    if c.op.schema.results == 1 {
        return Ok(Val::Leaf(TensorType::new(d, [])));
    }
    let values = place_type(c, d)?;
    let indices = TensorType {
        dtype: DType::I64,
        ..values.clone()
    };
    Ok(Val::Tuple(vec![Val::Leaf(values), Val::Leaf(indices)]))
}

fn median(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], pool: &Pool) -> OpResult<()> {
    let t = c.leaf("self")?;
    let lines = match c.op.schema.results {
        1 => DimLines::new(&[t.numel()], 0),
        _ => lines_of(c, t)?,
    };
    let wanted = match c.op.name.starts_with("nan") {
        true => Wanted::MedianOfNumbers,
        false => Wanted::Median,
    };
    // The median of no elements is NaN, or the least integer.
    let nothing = Scalar::F64(f64::NAN).cast(t.dtype());
    let [values, indices @ ..] = outs else {
        return Err(OpError::arg("self", "a median has a value"));
    };
    let (size, number) = (t.dtype().size(), lines.outer * lines.inner);
    if number == 0 {
        return Ok(());
    }
    let mut unused = vec![0; if indices.is_empty() { number } else { 0 }];
    let given = indices.first_mut().map(|i| i.as_mut_slice::<i64>());
    let indices = given.unwrap_or(&mut unused);
    if write_short_medians(t, &lines, (&mut *values, &mut *indices), pool) {
        return Ok(());
    }
    let count = units_per_part(number, 8 * lines.len * size, pool);
    let mut parts: Vec<_> = values
        .bytes_mut()
        .chunks_mut(count * size)
        .zip(indices.chunks_mut(count))
        .collect();
    let write = |(values, indices): &mut (&mut [u8], &mut [i64]), n: usize, line: usize, order: &[usize]| {
        let (o, i) = (line / lines.inner, line % lines.inner);
        let place = order.first().map(|&k| (o * lines.len + k) * lines.inner + i);
        place.map_or(nothing, |p| t.get(p)).write(values, n);
        indices[n] = order.first().map_or(0, |&k| k as i64);
    };
    for_each_ordered_line(t, &lines, (false, &wanted), (&mut parts, count), pool, write);
    Ok(())
}
