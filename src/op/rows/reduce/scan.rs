//! Positions of extrema, medians, and scans along a dim.

use super::{reduced_shape, sum_dtype};
use crate::op::pointwise::not_implemented;
use crate::op::rows::index::combine::{Cell, with_cell};
use crate::op::rows::lines::{DimLines, WideValues, tensor_of};
use crate::op::rows::order::{Wanted, for_each_ordered_line};
use crate::op::{Call, Meaning, Op, OpError, OpResult, wrap_dim};
use crate::parallel::Pool;
use crate::tensor::{Scalar, Tensor, ViewMut};
use crate::types::{DType, Dim, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    [arg_rows(), median_rows(), cumulative_rows(), super::running::rows()]
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
fn place_type(c: &Call<TensorType>, dtype: DType) -> OpResult<TensorType> {
    let t = c.leaf("self")?;
    let Some(shape) = &t.shape else {
        return Ok(TensorType { dtype, shape: None });
    };
    let dim = dim_of(c, shape.len())?;
    let name = if c.op.name.contains("median") {
        "median"
    } else {
        c.op.name
    };
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

fn arg_rows() -> Vec<Op> {
    vec![
        Op::new(
            "argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor",
            |c, _| arg_type(c),
            Meaning::Fill(|c, outs, _| arg_extremum(c, &mut outs[0], true)),
        )
        .doc("the index of the first maximum; NaN is the largest")
        .spelled("aten.@ torch.@ Tensor.@"),
        Op::new(
            "argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor",
            |c, _| arg_type(c),
            Meaning::Fill(|c, outs, _| arg_extremum(c, &mut outs[0], false)),
        )
        .doc("the index of the first minimum; NaN is the smallest")
        .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

fn arg_type(c: &Call<TensorType>) -> OpResult<Type> {
    match c.leaf("self")?.dtype {
        DType::B8 => Err(OpError::dtype(format!("{}(): does not support bool input", c.op.name))),
        d if !d.is_computed() => Err(not_implemented(c.op.name, d)),
        _ => place_type(c, DType::I64).map(Val::Leaf),
    }
}

/// The position within a line of the first element that no other element beats.
fn best_in_line<T: Cell>(line: &[T], largest: bool) -> usize {
    const LANES: usize = 16;
    let Some(&first) = line.first() else { return 0 };
    let better = |x: T, best: T| if largest { x > best } else { x < best };
    let (mut best, mut nan) = ([first; LANES], false);
    let (chunks, rest) = line.as_chunks::<LANES>();
    for chunk in chunks {
        for (b, &x) in best.iter_mut().zip(chunk) {
            *b = if better(x, *b) { x } else { *b };
            nan |= x.is_nan();
        }
    }
    if nan || rest.iter().any(|x| x.is_nan()) {
        return line.iter().position(|x| x.is_nan()).unwrap_or(0);
    }
    let best = best
        .iter()
        .chain(rest)
        .fold(first, |b, &x| if better(x, b) { x } else { b });
    line.iter().position(|&x| x == best).unwrap_or(0)
}

/// [`best_in_line`] of all lines whose elements are `inner` apart.
fn best_in_columns<T: Cell>(rows: &[T], largest: bool, out: &mut [i64]) {
    let mut best = rows[..out.len()].to_vec();
    out.fill(0);
    for (k, row) in rows.chunks_exact(out.len()).enumerate().skip(1) {
        for ((b, o), &x) in best.iter_mut().zip(out.iter_mut()).zip(row) {
            let better = if largest { x > *b } else { x < *b };
            let take = !b.is_nan() && (x.is_nan() || better);
            *b = if take { x } else { *b };
            *o = if take { k as i64 } else { *o };
        }
    }
}

/// The lines of a call: along its dim, or all elements as a single line.
pub(super) fn lines_of(c: &Call<Tensor>, t: &Tensor) -> OpResult<DimLines> {
    Ok(match dim_of(c, t.rank())? {
        Some(d) => DimLines::new(t.shape(), d),
        None => DimLines::new(&[t.numel()], 0),
    })
}

fn arg_extremum(c: &Call<Tensor>, out: &mut ViewMut<'_>, largest: bool) -> OpResult<()> {
    let t = c.leaf("self")?;
    let lines = lines_of(c, t)?;
    let out = out.as_mut_slice::<i64>();
    with_cell!(t.dtype(), T => arg_lines(t.as_slice::<T>(), &lines, largest, out), else {
        match WideValues::from_tensor(t) {
            WideValues::Float(v) => arg_lines(&v, &lines, largest, out),
            WideValues::Int(v) => arg_lines(&v, &lines, largest, out),
        }
    });
    Ok(())
}

fn arg_lines<T: Cell>(v: &[T], lines: &DimLines, largest: bool, out: &mut [i64]) {
    if v.is_empty() {
        return;
    }
    if lines.inner == 1 {
        let places = v.chunks_exact(lines.len).map(|line| best_in_line(line, largest));
        return out.iter_mut().zip(places).for_each(|(o, p)| *o = p as i64);
    }
    let blocks = v.chunks_exact(lines.len * lines.inner);
    out.chunks_exact_mut(lines.inner)
        .zip(blocks)
        .for_each(|(o, rows)| best_in_columns(rows, largest, o));
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

fn median(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], _: &Pool) -> OpResult<()> {
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
    let (dst, mut indices) = (values.bytes_mut(), indices.first_mut().map(|i| i.as_mut_slice::<i64>()));
    for_each_ordered_line(t, &lines, false, &wanted, &mut |line, order| {
        let (o, i) = (line / lines.inner, line % lines.inner);
        let at = order.first().map(|&k| (o * lines.len + k) * lines.inner + i);
        at.map_or(nothing, |at| t.get(at)).write(dst, line);
        if let Some(indices) = &mut indices {
            indices[line] = order.first().map_or(0, |&k| k as i64);
        }
    });
    Ok(())
}

fn cumulative_rows() -> Vec<Op> {
    vec![
        Op::new(
            "cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor",
            |c, _| scan_type(c),
            Meaning::Routine(|c| scan_tensor(c, 0., |a, x| a + x, i64::wrapping_add)),
        )
        .doc("the cumulative sum along a dim; integers and bools yield i64")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ Tensor.@_")
        .in_place_if(keeps_dtype),
        Op::new(
            "cumprod(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor",
            |c, _| scan_type(c),
            Meaning::Routine(|c| scan_tensor(c, 1., |a, x| a * x, i64::wrapping_mul)),
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
            Meaning::Routine(|c| scan_tensor(c, f64::NEG_INFINITY, log_add_exp, |a, _| a)),
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
/// floats it begins with `start`, so that an initial -0.0 becomes 0.0.
fn scan_tensor(
    c: &Call<Tensor>,
    start: f64,
    float: fn(f64, f64) -> f64,
    int: fn(i64, i64) -> i64,
) -> OpResult<Val<Tensor>> {
    fn scan_lines<N: Copy>(v: &mut [N], lines: &DimLines, start: Option<N>, f: fn(N, N) -> N) -> OpResult<()> {
        lines.for_each_line(|line| {
            let mut acc = start;
            for at in line {
                let x = acc.map_or(v[at], |a| f(a, v[at]));
                (v[at], acc) = (x, Some(x));
            }
            Ok(())
        })
    }
    scan_type(&c.map(Tensor::ty))?;
    let t = c.leaf("self")?;
    let dtype = scan_dtype(c, t.dtype());
    let t = t.to(dtype);
    let lines = lines_of(c, &t)?;
    let mut values = WideValues::from_tensor(&t);
    match &mut values {
        // torch returns a 0-dim tensor unchanged.
        WideValues::Float(v) => scan_lines(v, &lines, (t.rank() > 0).then_some(start), float)?,
        WideValues::Int(v) => scan_lines(v, &lines, None, int)?,
    }
    Ok(Val::Leaf(tensor_of(dtype, t.shape(), &values)))
}
