//! Positions of extrema, medians, and scans along a dim.

use super::{reduced_shape, sum_dtype};
use crate::op::pointwise::not_implemented;
use crate::op::rows::lines::{DimLines, OrderedNumber, WideValues, tensor_of};
use crate::op::{Call, Meaning, Op, OpError, OpResult, wrap_dim};
use crate::tensor::Tensor;
use crate::types::{DType, Dim, TensorType, Type, Val};
use std::cmp::Ordering;

pub(super) fn rows() -> Vec<Op> {
    [arg_rows(), median_rows(), cumulative_rows(), cumulative_extremum_rows()]
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
            Meaning::Routine(|c| arg_extremum(c, Ordering::Greater)),
        )
        .doc("the index of the first maximum; NaN is the largest")
        .spelled("aten.@ torch.@ Tensor.@"),
        Op::new(
            "argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor",
            |c, _| arg_type(c),
            Meaning::Routine(|c| arg_extremum(c, Ordering::Less)),
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

/// The position within the line of the first element that no other element beats.
fn best_in_line<N: OrderedNumber>(v: &[N], line: &mut dyn Iterator<Item = usize>, wanted: Ordering) -> usize {
    let mut best: Option<(usize, N)> = None;
    for (k, at) in line.enumerate() {
        let x = v[at];
        let better = best.is_none_or(|(_, b)| !b.is_nan() && (x.is_nan() || x.cmp_nan_last(b) == wanted));
        if better {
            best = Some((k, x));
        }
    }
    best.map_or(0, |b| b.0)
}

/// The lines of a call: along its dim, or all elements as a single line.
fn lines_of(c: &Call<Tensor>, t: &Tensor) -> OpResult<DimLines> {
    Ok(match dim_of(c, t.rank())? {
        Some(d) => DimLines::new(t.shape(), d),
        None => DimLines::new(&[t.numel()], 0),
    })
}

fn arg_extremum(c: &Call<Tensor>, wanted: Ordering) -> OpResult<Val<Tensor>> {
    arg_type(&c.map(Tensor::ty))?;
    let t = c.leaf("self")?;
    let mut out: Vec<i64> = vec![];
    let values = WideValues::from_tensor(t);
    lines_of(c, t)?.for_each_line(|line| {
        out.push(match &values {
            WideValues::Float(v) => best_in_line(v, line, wanted),
            WideValues::Int(v) => best_in_line(v, line, wanted),
        } as i64);
        Ok(())
    })?;
    let shape = shape_without(t.shape(), dim_of(c, t.rank())?, keeps_dim(c)?);
    Ok(Val::Leaf(Tensor::from_slice(&shape, &out)))
}

fn median_rows() -> Vec<Op> {
    let (all, along) = (
        "median(Tensor self) -> Tensor",
        "median(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
    );
    vec![
        Op::new(("median", all), |c, _| median_type(c), Meaning::Routine(median))
            .doc("the median (the lower of two middle elements); NaN if any element is NaN")
            .spelled("aten.median.default torch.median Tensor.median"),
        Op::new(("median_dim", along), |c, _| median_type(c), Meaning::Routine(median))
            .doc("the median along a dim (the lower of two middle elements) and its index; NaN if any element is NaN")
            .spelled("aten.median.dim torch.median Tensor.median"),
        Op::new(("nanmedian", all), |c, _| median_type(c), Meaning::Routine(median))
            .doc("the median of the elements that are not NaN (the lower of two middle elements)")
            .spelled("aten.nanmedian.default torch.nanmedian Tensor.nanmedian"),
        Op::new(
            ("nanmedian_dim", along),
            |c, _| median_type(c),
            Meaning::Routine(median),
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

/// The position of the median in `line`. If there are NaNs and they are not ignored, the first NaN is the median.
fn median_in_line<N: OrderedNumber>(v: &[N], line: Vec<usize>, ignore_nan: bool) -> Option<usize> {
    let mut order: Vec<usize> = (0..line.len()).collect();
    if let Some(nan) = order.iter().position(|&k| v[line[k]].is_nan())
        && !ignore_nan
    {
        return Some(nan);
    }
    order.sort_by(|&a, &b| v[line[a]].cmp_nan_last(v[line[b]]));
    let there = order.iter().filter(|&&k| !v[line[k]].is_nan()).count();
    order.get(there.max(1).saturating_sub(1) / 2).copied()
}

fn median(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    median_type(&c.map(Tensor::ty))?;
    let t = c.leaf("self")?;
    let whole = c.op.schema.results == 1;
    let ignore_nan = c.op.name.starts_with("nan");
    let lines = if whole {
        DimLines::new(&[t.numel()], 0)
    } else {
        lines_of(c, t)?
    };
    let (values, mut at, mut places) = (WideValues::from_tensor(t), vec![], vec![]);
    lines.for_each_line(|line| {
        let line: Vec<usize> = line.collect();
        let k = match &values {
            WideValues::Float(v) => median_in_line(v, line.clone(), ignore_nan),
            WideValues::Int(v) => median_in_line(v, line.clone(), ignore_nan),
        };
        at.push(k.map(|k| line[k]));
        places.push(k.unwrap_or(0) as i64);
        Ok(())
    })?;
    // The median of no elements is NaN, or the least integer.
    let nothing = crate::tensor::Scalar::F64(f64::NAN);
    let pick = |shape: &[usize]| Tensor::from_fn(t.dtype(), shape, |i| at[i].map_or(nothing, |k| t.get(k)));
    if whole {
        return Ok(Val::Leaf(pick(&[])));
    }
    let shape = shape_without(t.shape(), dim_of(c, t.rank())?, keeps_dim(c)?);
    let indices = Tensor::from_slice(&shape, &places);
    Ok(Val::Tuple(vec![Val::Leaf(pick(&shape)), Val::Leaf(indices)]))
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

fn scan_type(c: &Call<TensorType>) -> OpResult<Type> {
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

fn cumulative_extremum_rows() -> Vec<Op> {
    vec![
        Op::new(
            "cummax(Tensor self, int dim) -> (Tensor values, Tensor indices)",
            |c, _| running_type(c),
            Meaning::Routine(|c| running_extremum(c, Ordering::Greater)),
        )
        .doc("the cumulative maximum along a dim, and the index of its last occurrence; NaN propagates")
        .spelled("aten.@ torch.@ Tensor.@"),
        Op::new(
            "cummin(Tensor self, int dim) -> (Tensor values, Tensor indices)",
            |c, _| running_type(c),
            Meaning::Routine(|c| running_extremum(c, Ordering::Less)),
        )
        .doc("the cumulative minimum along a dim, and the index of its last occurrence; NaN propagates")
        .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

fn running_type(c: &Call<TensorType>) -> OpResult<Type> {
    let values = scan_type(c)?;
    let shape = c.leaf("self")?.shape.clone();
    let indices = TensorType {
        dtype: DType::I64,
        shape,
    };
    Ok(Val::Tuple(vec![values, Val::Leaf(indices)]))
}

fn running_extremum(c: &Call<Tensor>, wanted: Ordering) -> OpResult<Val<Tensor>> {
    fn replaces_best<N: OrderedNumber>(v: &[N], best: usize, x: usize, wanted: Ordering) -> bool {
        let (b, x) = (v[best], v[x]);
        let at_least = x.cmp_nan_last(b) == wanted || x.cmp_nan_last(b) == Ordering::Equal;
        x.is_nan() || (!b.is_nan() && at_least)
    }
    running_type(&c.map(Tensor::ty))?;
    let t = c.leaf("self")?;
    let values = WideValues::from_tensor(t);
    let (mut at, mut places) = (vec![0usize; t.numel()], vec![0i64; t.numel()]);
    lines_of(c, t)?.for_each_line(|line| {
        let mut best: Option<(usize, usize)> = None;
        for (k, x) in line.enumerate() {
            let take = best.is_none_or(|(b, _)| match &values {
                WideValues::Float(v) => replaces_best(v, b, x, wanted),
                WideValues::Int(v) => replaces_best(v, b, x, wanted),
            });
            let b = if take { (x, k) } else { best.unwrap_or((x, k)) };
            best = Some(b);
            (at[x], places[x]) = (b.0, b.1 as i64);
        }
        Ok(())
    })?;
    let picked = Tensor::from_fn(t.dtype(), t.shape(), |i| t.get(at[i]));
    let indices = Tensor::from_slice(t.shape(), &places);
    Ok(Val::Tuple(vec![Val::Leaf(picked), Val::Leaf(indices)]))
}
