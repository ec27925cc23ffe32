//! Histograms with bin edges.

use crate::op::pointwise::not_implemented;
use crate::op::rows::dense::zeros;
use crate::op::{Build, Call, Meaning, Op, OpError, OpId, OpResult, Traced};
use crate::tensor::{Scalar, Tensor};
use crate::types::{DType, Dim, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    [histogram_rows(), histogramdd_rows(), histogramdd_part_rows()]
        .into_iter()
        .flatten()
        .collect()
}

fn histogram_rows() -> Vec<Op> {
    vec![
        Op::new("histogram(Tensor self, Any bins=100, *, float[]? range=None, Tensor? weight=None, bool density=False) -> (Tensor, \
             Tensor)",
            |c, _| one_dim(c),
            Meaning::Routine(|c| {
                let x = c.leaf("self")?.reshape(&[c.leaf("self")?.numel(), 1]);
                let axes = bin_edges(c, &x, std::slice::from_ref(c.get("bins")))?;
                let hist = count_bins(c, &x, &axes)?;
                let edges = axes.into_iter().next().map(|e| vector_tensor(x.dtype(), e)).transpose()?;
                Ok(Val::Tuple(vec![Val::Leaf(hist), edges.map_or(Val::None, Val::Leaf)]))
            }),
        )
        .doc("the number of elements, or their total weight, in each bin, and the bin edges")
        .form(
            "aten.histogram.bin_ct torch.histogram Tensor.histogram",
            "histogram(Tensor self, int bins=100, *, float[]? range=None, Tensor? weight=None, bool density=False) -> (Tensor, \
             Tensor)",
        )
        .form(
            "aten.histogram.bins_tensor torch.histogram Tensor.histogram",
            "histogram(Tensor self, Tensor bins, *, Tensor? weight=None, bool density=False) -> (Tensor, Tensor)",
        ),
    ]
}

/// `histogramdd` over rows of coordinates.
fn histogramdd_rows() -> Vec<Op> {
    vec![
        Op::new("histogramdd(Tensor self, Any bins, float[]? range=None, Tensor? weight=None, bool density=False) -> (Tensor, \
             Tensor[])",
            |c, _| several_dims(c),
            Meaning::Routine(|c| {
                let x = rows_of(c.leaf("self")?);
                let bins = per_column(c, x.shape()[1]);
                let axes = bin_edges(c, &x, &bins)?;
                let hist = count_bins(c, &x, &axes)?;
                let edges: OpResult<Vec<Val<Tensor>>> = axes.into_iter().map(|e| vector_tensor(x.dtype(), e).map(Val::Leaf)).collect();
                Ok(Val::Tuple(vec![Val::Leaf(hist), Val::List(edges?)]))
            }),
        )
        .doc("the number of rows, or their total weight, in each cell of a grid, and the bin edges along each axis")
        .form(
            "aten.histogramdd.int_bins torch.histogramdd",
            "histogramdd(Tensor self, int bins, float[]? range=None, Tensor? weight=None, bool density=False) -> (Tensor, \
             Tensor[])",
        )
        .form(
            "aten.histogramdd.default torch.histogramdd",
            "histogramdd(Tensor self, int[] bins, float[]? range=None, Tensor? weight=None, bool density=False) -> (Tensor, \
             Tensor[])",
        )
        .form(
            "aten.histogramdd.TensorList_bins torch.histogramdd",
            "histogramdd(Tensor self, Tensor[] bins, float[]? range=None, Tensor? weight=None, bool density=False) -> (Tensor, \
             Tensor[])",
        ),
    ]
}

/// The counts of `histogramdd`, and its edges.
fn histogramdd_part_rows() -> Vec<Op> {
    vec![
        Op::composite("_histogramdd_from_bins(Tensor self, Any bins, *, float[]? range=None, Tensor? weight=None, bool density=False) -> \
             Tensor",
            |b, c| Ok(parts_of(b, c)?.0),
        )
        .doc("histogramdd without the edges")
        .form(
            "aten._histogramdd_from_bin_cts.default",
            "_histogramdd_from_bin_cts(Tensor self, int[] bins, *, float[]? range=None, Tensor? weight=None, bool density=False) \
             -> Tensor",
        )
        .form(
            "aten._histogramdd_from_bin_tensors.default",
            "_histogramdd_from_bin_tensors(Tensor self, Tensor[] bins, *, Tensor? weight=None, bool density=False) -> Tensor",
        ),
        Op::composite("_histogramdd_bin_edges(Tensor self, int[] bins, *, float[]? range=None, Tensor? weight=None, bool density=False) -> \
             Tensor[]",
            |b, c| Ok(parts_of(b, c)?.1),
        )
        .doc("histogramdd's bin edges along each axis")
        .spelled("aten.@"),
    ]
}

/// The counts and the edges that `histogramdd` returns for the same arguments.
fn parts_of(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<(Val<Traced>, Val<Traced>)> {
    match b.call(OpId::Histogramdd, c.args.clone())? {
        Val::Tuple(parts) if parts.len() == 2 => Ok((parts[0].clone(), parts[1].clone())),
        _ => Err(OpError::arg("self", "histogramdd returns counts and edges")),
    }
}

/// The number of edges, given a number of bins or a tensor of edges.
fn edges_of(v: &Val<TensorType>) -> OpResult<Dim> {
    match v {
        Val::Leaf(t) => match t.shape.as_deref() {
            Some([Dim::Const(0 | 1)]) => Err(OpError::arg("bins", "torch.histogram(): bins must be > 0, but got 0")),
            Some([n]) => Ok(n.clone()),
            _ => Err(OpError::shape(
                "torch.histogramdd: bins tensor should have one dimension",
            )),
        },
        v => match v.as_int() {
            Some(n) if n > 0 && n < i64::MAX => Ok(Dim::Const(n + 1)),
            _ => Err(OpError::arg("bins", "torch.histogram(): bins must be > 0")),
        },
    }
}

fn check_operands(c: &Call<TensorType>) -> OpResult<DType> {
    let d = c.leaf("self")?.dtype;
    if !matches!(d, DType::F32 | DType::F64) {
        return Err(not_implemented("histogram_cpu", d));
    }
    if let Some(w) = c.opt_leaf("weight")
        && w.dtype != d
    {
        return Err(OpError::dtype(
            "torch.histogramdd: if weight tensor is provided, input tensor and weight tensor should have the same dtype",
        ));
    }
    Ok(d)
}

fn one_dim(c: &Call<TensorType>) -> OpResult<Type> {
    let d = check_operands(c)?;
    let edges = edges_of(c.get("bins"))?;
    let tensor = |n: Dim| Val::Leaf(TensorType::new(d, vec![n]));
    Ok(Val::Tuple(vec![tensor(edges.sub(&Dim::Const(1))), tensor(edges)]))
}

fn several_dims(c: &Call<TensorType>) -> OpResult<Type> {
    let d = check_operands(c)?;
    let (_, shape) = c.shaped("self")?;
    let columns = shape.last().and_then(|n| n.as_const()).filter(|n| (0..64).contains(n));
    let columns =
        columns.ok_or_else(|| OpError::shape("torch.histogramdd: input tensor should have at least 2 dimensions"))?;
    let bins = per_column(c, columns as usize);
    if bins.len() as i64 != columns || shape.len() < 2 {
        return Err(OpError::shape(format!(
            "torch.histogramdd: The number of bins, {}, must be equal to the innermost dimension of the input, {columns}",
            bins.len()
        )));
    }
    let edges: Vec<Dim> = bins.iter().map(edges_of).collect::<OpResult<_>>()?;
    let cells = edges.iter().map(|n| n.sub(&Dim::Const(1))).collect();
    let tensor = |s| Val::Leaf(TensorType::new(d, s));
    Ok(Val::Tuple(vec![
        tensor(cells),
        Val::List(edges.into_iter().map(|n| tensor(vec![n])).collect()),
    ]))
}

/// The bins of each column; a single value applies to all.
fn per_column<T: Clone>(c: &Call<T>, columns: usize) -> Vec<Val<T>> {
    match c.get("bins") {
        Val::List(v) | Val::Tuple(v) => v.clone(),
        v => vec![v.clone(); columns],
    }
}

fn rows_of(x: &Tensor) -> Tensor {
    let n = x.shape().last().copied().unwrap_or(1);
    x.reshape(&[x.shape().iter().rev().skip(1).product(), n])
}

fn vector_tensor(dtype: DType, v: Vec<f64>) -> OpResult<Tensor> {
    crate::op::rows::linalg::results::tensor_from_numbers(dtype, &[v.len()], v)
}

/// The edges for each column of `x`.
fn bin_edges(c: &Call<Tensor>, x: &Tensor, bins: &[Val<Tensor>]) -> OpResult<Vec<Vec<f64>>> {
    let range = c.get("range").items();
    let range: Option<Vec<f64>> = range.map(|v| v.iter().filter_map(Val::as_f64).collect());
    if range.as_ref().is_some_and(|r| r.len() != 2 * bins.len()) {
        return Err(OpError::arg(
            "range",
            format!("torch.histogramdd: range should have {} elements", 2 * bins.len()),
        ));
    }
    let mut out = vec![];
    for (j, b) in bins.iter().enumerate() {
        if let Val::Leaf(t) = b {
            out.push((0..t.numel()).map(|i| t.get(i).to_f64()).collect());
            continue;
        }
        let (low, high) = match &range {
            Some(r) => (r[2 * j], r[2 * j + 1]),
            None => column_range(x, j),
        };
        if !low.is_finite() || !high.is_finite() {
            return Err(OpError::value(format!(
                "torch.histogramdd: dimension {j}'s range [{low}, {high}] is not finite"
            )));
        }
        if low > high {
            return Err(OpError::value("torch.histogramdd: min should not exceed max"));
        }
        let (low, high) = if low == high {
            (low - 0.5, high + 0.5)
        } else {
            (low, high)
        };
        out.push(linspace_edges(low, high, b.as_int().unwrap_or(1) as usize, x.dtype()));
    }
    Ok(out)
}

fn column_range(x: &Tensor, j: usize) -> (f64, f64) {
    let [n, columns] = *x.shape() else { return (0.0, 1.0) };
    let column = (0..n).map(|i| x.get(i * columns + j).to_f64());
    match n {
        0 => (0.0, 1.0),
        _ => column.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| match x.is_nan() {
            true => (x, x),
            false => (if x < a { x } else { a }, if x > b { x } else { b }),
        }),
    }
}

/// `torch.linspace(low, high, bins + 1)` in the dtype.
fn linspace_edges(low: f64, high: f64, bins: usize, dtype: DType) -> Vec<f64> {
    let step = (high - low) / bins as f64;
    let edge = |i: usize| match i < bins.div_ceil(2) {
        true => low + step * i as f64,
        false => high - step * (bins - i) as f64,
    };
    let rounded = |x: f64| if dtype == DType::F32 { x as f32 as f64 } else { x };
    (0..=bins).map(|i| rounded(edge(i))).collect()
}

/// The bin of `x`. The last bin includes its right edge.
fn find_bin(edges: &[f64], x: f64) -> Option<usize> {
    let (first, last) = (*edges.first()?, *edges.last()?);
    if !(x >= first && x <= last) || edges.len() < 2 {
        return None;
    }
    Some((edges.partition_point(|e| *e <= x) - 1).min(edges.len() - 2))
}

fn count_bins(c: &Call<Tensor>, x: &Tensor, axes: &[Vec<f64>]) -> OpResult<Tensor> {
    let cells: Vec<usize> = axes.iter().map(|e| e.len().saturating_sub(1)).collect();
    let mut out = zeros(x.dtype(), &cells)?;
    let mut sums = vec![0f64; out.numel()];
    let columns = axes.len();
    let weight = c.opt_leaf("weight");
    if weight.is_some_and(|w| w.numel() != x.numel() / columns.max(1)) {
        return Err(OpError::shape(
            "torch.histogramdd: if weight tensor is provided it should have the same shape as the input tensor excluding its \
             innermost dimension",
        ));
    }
    let (wide, wide_weight) = (x.to(DType::F64), weight.map(|w| w.to(DType::F64)));
    let (x, weight) = (
        wide.as_slice::<f64>(),
        wide_weight.as_ref().map(|w| w.as_slice::<f64>()),
    );
    for i in 0..wide.shape()[0] {
        let bins = axes.iter().enumerate().map(|(j, e)| find_bin(e, x[i * columns + j]));
        let place = bins.zip(&cells).try_fold(0, |p, (bin, n)| bin.map(|b| p * n + b));
        if let Some(p) = place {
            sums[p] += weight.map_or(1.0, |w| w[i]);
        }
    }
    if c.bool("density")? {
        let total: f64 = sums.iter().sum();
        for (p, sum) in sums.iter_mut().enumerate() {
            let (mut rest, mut volume) = (p, 1.0);
            for (e, n) in axes.iter().zip(&cells).rev() {
                volume *= e[rest % n + 1] - e[rest % n];
                rest /= n;
            }
            *sum /= total * volume;
        }
    }
    sums.iter().enumerate().for_each(|(i, s)| out.set(i, Scalar::F64(*s)));
    Ok(out)
}
