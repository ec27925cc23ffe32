//! Medians, and scans along a dim.

use super::short_medians::write_short_medians;
use super::{reduced_shape, sum_dtype};
use crate::op::pointwise::not_implemented;
use crate::op::rows::fill::units_per_part;
use crate::op::rows::lines::{DimLines, WideValues, tensor_of};
use crate::op::rows::order::{Wanted, for_each_ordered_line};
use crate::op::{Call, Meaning, Op, OpError, OpResult, wrap_dim};
use crate::parallel::Pool;
use crate::tensor::{Scalar, Tensor, ViewMut};
use crate::types::{DType, Dim, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    [
        super::extrema::rows(),
        median_rows(),
        cumulative_rows(),
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

fn cumulative_rows() -> Vec<Op> {
    vec![
        Op::new(
            "cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor",
            |c, _| scan_type(c),
            Meaning::Fill(|c, outs, pool| {
                scan_tensor(c, (&mut outs[0], pool), |x| 0. + x, |a, x| a + x, i64::wrapping_add)
            }),
        )
        .doc("the cumulative sum along a dim; integers and bools yield i64")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ Tensor.@_")
        .in_place_if(keeps_dtype),
        Op::new(
            "cumprod(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor",
            |c, _| scan_type(c),
            Meaning::Fill(|c, outs, pool| scan_tensor(c, (&mut outs[0], pool), |x| x, |a, x| a * x, i64::wrapping_mul)),
        )
        .doc("the cumulative product along a dim; integers and bools yield i64")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ Tensor.@_")
        .in_place_if(keeps_dtype),
        Op::new(
            "logcumsumexp(Tensor self, int dim) -> Tensor",
            |c, _| {
                let d = c.leaf("self")?.dtype;
                match d.is_float() {
                    true => scan_type(c),
                    false => Err(not_implemented("logcumsumexp_out_cpu", d)),
                }
            },
            Meaning::Fill(|c, outs, pool| scan_log_sums(c, &mut outs[0], pool)),
        )
        .doc("the logarithm of the cumulative sum of exponentials along a dim")
        .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

/// An in-place scan must keep its operand's dtype. torch has no scan of bools, but does not check this if there is
/// nothing to scan.
fn keeps_dtype(c: &Call<TensorType>) -> OpResult<()> {
    let t = c.leaf("self")?;
    let dtype = c.opt_dtype("dtype").unwrap_or(t.dtype);
    if dtype != t.dtype {
        return Err(OpError::dtype(format!(
            "Bad in-place call: input tensor dtype {} and output tensor dtype {} should match",
            t.dtype.cpp_name(),
            dtype.cpp_name()
        )));
    }
    let nothing = t
        .shape
        .as_ref()
        .is_some_and(|s| s.is_empty() || s.contains(&Dim::Const(0)));
    match t.dtype {
        DType::B8 if !nothing && t.shape.is_some() => Err(not_implemented(&format!("{}_out_cpu", c.op.name), t.dtype)),
        _ => Ok(()),
    }
}

fn log_add_exp(a: f64, x: f64) -> f64 {
    let (low, high) = if a < x { (a, x) } else { (x, a) };
    if low.is_nan() || high.is_nan() {
        f64::NAN
    } else if low == high && low.is_infinite() {
        low
    } else {
        high + (low - high).exp().ln_1p()
    }
}

/// The number of elements whose exponentials are computed independently of each other.
const LOG_BLOCK: usize = 32;

/// The largest distance of elements of a block from their maximum. The error of a logarithm grows with it.
const LOG_SPAN: f64 = 30.0;

/// The logarithms of running sums of exponentials.
fn scan_log_sums(c: &Call<Tensor>, out: &mut ViewMut<'_>, pool: &Pool) -> OpResult<()> {
    let t = c.leaf("self")?;
    let lines = lines_of(c, t)?;
    if lines.inner != 1 || t.rank() == 0 || t.numel() == 0 {
        // The logarithm of a single exponential takes no exponential.
        return scan_tensor(c, (out, pool), |x| 0. + x, log_add_exp, |a, _| a);
    }
    let mut wide = t.to(DType::F64);
    let rows = units_per_part(lines.outer, 64 * lines.len, pool);
    pool.run_parts(wide.as_mut_slice::<f64>(), rows * lines.len, |_, rows| {
        for row in rows.chunks_exact_mut(lines.len) {
            let mut before = f64::NEG_INFINITY;
            for block in row.chunks_mut(LOG_BLOCK) {
                before = scan_log_block(before, block);
            }
        }
    });
    out.fill_from(&wide.to(t.dtype()));
    Ok(())
}

/// Replaces elements by the logarithms of running sums, of which `before` is the last. Returns the new last one. The exponentials are
/// relative to one maximum, so that only additions depend on each other.
fn scan_log_block(before: f64, block: &mut [f64]) -> f64 {
    let (low, high) = block
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &x| {
            (low.min(x), high.max(x))
        });
    let most = high.max(before);
    // False for infinities.
    let near = most - low <= LOG_SPAN;
    if !near || block.iter().any(|x| x.is_nan()) || before.is_nan() {
        return block.iter_mut().fold(before, |sum, x| {
            *x = log_add_exp(sum, *x);
            *x
        });
    }
    let (first, mut sum) = (block[0], (before - most).exp());
    for x in block.iter_mut() {
        sum += (*x - most).exp();
        *x = sum;
    }
    block.iter_mut().for_each(|x| *x = most + x.ln());
    if before == f64::NEG_INFINITY {
        block[0] = first;
    }
    block.last().copied().unwrap_or(before)
}

fn scan_dtype<T>(c: &Call<T>, operand: DType) -> DType {
    match c.op.schema.index_of("dtype") {
        Some(_) => sum_dtype(c, operand),
        None => operand,
    }
}

pub(super) fn scan_type(c: &Call<TensorType>) -> OpResult<Type> {
    let t = c.leaf("self")?;
    let dtype = scan_dtype(c, t.dtype);
    for d in [t.dtype, dtype] {
        if !d.is_computed() {
            return Err(not_implemented(&format!("{}_out_cpu", c.op.name), d));
        }
    }
    if let Some(rank) = t.rank() {
        wrap_dim(c.int("dim")?, rank)?;
    }
    Ok(Val::Leaf(TensorType {
        dtype,
        shape: t.shape.clone(),
    }))
}

/// A running combination, in f64 for floats (torch also accumulates f32 in f64) and in wrapping i64 for integers. For
/// floats `first` gives the first result, so that an initial -0.0 becomes 0.0 in sums.
fn scan_tensor(
    c: &Call<Tensor>,
    (out, pool): (&mut ViewMut<'_>, &Pool),
    first: fn(f64) -> f64,
    float: fn(f64, f64) -> f64,
    int: fn(i64, i64) -> i64,
) -> OpResult<()> {
    scan_type(&c.map(Tensor::ty))?;
    let t = c.leaf("self")?;
    let dtype = scan_dtype(c, t.dtype());
    let t = t.to(dtype);
    let lines = lines_of(c, &t)?;
    let mut values = WideValues::from_tensor(&t);
    match &mut values {
        // torch returns a 0-dim tensor unchanged.
        WideValues::Float(v) => scan_lines(v, &lines, (t.rank() > 0).then_some(first), float, pool),
        WideValues::Int(v) => scan_lines(v, &lines, None, int, pool),
    }
    out.fill_from(&tensor_of(dtype, t.shape(), &values));
    Ok(())
}

fn scan_lines<N: Copy + Send + Sync>(
    v: &mut [N],
    lines: &DimLines,
    first: Option<fn(N) -> N>,
    f: fn(N, N) -> N,
    pool: &Pool,
) {
    let (n, inner) = (lines.len, lines.inner);
    if v.is_empty() {
        return;
    }
    // A function of two numbers takes as long as reading several.
    let blocks = units_per_part(lines.outer, 8 * n * inner * size_of::<N>(), pool);
    pool.run_parts(v, blocks * n * inner, |_, v| {
        for rows in v.chunks_exact_mut(n * inner) {
            if let Some(first) = first {
                rows[..inner].iter_mut().for_each(|x| *x = first(*x));
            }
            for k in inner..rows.len() {
                rows[k] = f(rows[k - inner], rows[k]);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_logarithms_are_those_of_single_elements() {
        let inf = f64::INFINITY;
        let rows: [&dyn Fn(usize) -> f64; 6] = [
            &|k| (k as f64 * 0.7).sin() * 3.0,
            &|k| k as f64 * 2.5 - 60.0,
            &|k| -(k as f64) * 40.0,
            &|k| if k < 3 { -inf } else { 1e-9 * k as f64 },
            &|k| if k == 40 { inf } else { 0.5 },
            &|k| if k == 40 { f64::NAN } else { 0.5 },
        ];
        for (r, f) in rows.iter().enumerate() {
            let mut got: Vec<f64> = (0..80).map(f).collect();
            let mut before = -inf;
            for block in got.chunks_mut(LOG_BLOCK) {
                before = scan_log_block(before, block);
            }
            let mut want = -inf;
            for (k, &got) in got.iter().enumerate() {
                want = log_add_exp(want, f(k));
                let near = (got - want).abs() <= 1e-13 * (1.0 + want.abs());
                let equal = got == want || (got.is_nan() && want.is_nan());
                assert!(near || equal, "row {r}, element {k}: {got} {want}");
            }
        }
    }
}
