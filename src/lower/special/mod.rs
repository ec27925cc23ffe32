//! Ops with loop nests of their own: concatenation, row gathers, padding, pooling, running sums.

mod concat;
pub(super) mod kernels;
mod scan;
mod small;

use self::small::{LANES, gather_few, has_small_volumes};
use crate::lower::ir::{Def, ScanOp, SpatialWindow, Special, Tir, ValueId};
use crate::op::emit::ints_val;
use crate::op::{Build, Call, OpId, OpResult};
use crate::tensor::Scalar;
use crate::types::{DType, Dim, TensorType, Val};

/// The value of a call that has a special kernel, or `None`.
pub(in crate::lower) fn recognise_special(
    tir: &mut Tir,
    types: &Call<TensorType>,
    ids: &Call<ValueId>,
) -> OpResult<Option<ValueId>> {
    match types.op.id() {
        Some(OpId::Cat) => concat(tir, ids),
        Some(OpId::Embedding) => named_rows(tir, *ids.leaf("weight")?, *ids.leaf("indices")?),
        Some(OpId::IndexSelect) if ids.int("dim").is_ok_and(|d| d == 0) => {
            let (table, rows) = (*ids.leaf("self")?, *ids.leaf("index")?);
            // A number as the table, or as the index, counts as a vector of one: the result has the table's dims.
            if [table, rows].iter().any(|&v| tir.value(v).shape.is_empty()) {
                return Ok(None);
            }
            named_rows(tir, table, rows)
        }
        Some(OpId::Index) => index_rows(tir, ids),
        Some(OpId::Gather) => gather_few(tir, ids),
        Some(OpId::ConstantPadNd) => pad(tir, ids),
        Some(OpId::MaxPool1d | OpId::MaxPool2d | OpId::MaxPool3d) => max_pool(tir, types, ids),
        Some(OpId::AvgPool1d | OpId::AvgPool2d | OpId::AvgPool3d) => avg_pool(tir, types, ids),
        Some(OpId::AdaptiveAvgPool1d | OpId::AdaptiveAvgPool2d | OpId::AdaptiveAvgPool3d) => {
            adaptive_avg_pool(tir, ids, spatial_dims(types.op.name))
        }
        Some(OpId::AdaptiveMaxPool1d | OpId::AdaptiveMaxPool2d | OpId::AdaptiveMaxPool3d) => {
            adaptive_max_pool(tir, ids, spatial_dims(types.op.name))
        }
        Some(OpId::Cumsum) => push_scan(tir, types, ids, ScanOp::Sum),
        Some(OpId::Cumprod) => push_scan(tir, types, ids, ScanOp::Product),
        Some(OpId::ScaledDotProductAttention | OpId::BiasedAttention) => {
            crate::lower::contract::attention::recognise_attention(tir, types, ids)
        }
        Some(OpId::GroupedMm | OpId::GroupedLinear) => {
            crate::lower::contract::grouped::recognise_grouped(tir, types, ids)
        }
        _ => Ok(None),
    }
}

fn concat(tir: &mut Tir, ids: &Call<ValueId>) -> OpResult<Option<ValueId>> {
    let all: Vec<ValueId> = ids.leaves("tensors")?.into_iter().copied().collect();
    // Like torch, skip one-dimensional empty tensors.
    let parts: Vec<ValueId> = all.iter().copied().filter(|&v| tir.value(v).shape != [0]).collect();
    let Some(&first) = parts.first() else { return Ok(None) };
    let dtype = tir.value(first).dtype;
    if all.iter().any(|&v| tir.value(v).dtype != dtype) {
        return Ok(None);
    }
    let mut shape = tir.value(first).shape.clone();
    if shape.is_empty() {
        return Ok(None);
    }
    let dim = crate::op::wrap_dim(ids.int("dim")?, shape.len())?;
    shape[dim] = parts.iter().map(|&v| tir.value(v).shape[dim]).sum();
    tir.push(
        dtype,
        &shape,
        Def::Special {
            args: parts,
            special: Special::Concat { dim },
        },
    )
    .map(Some)
}

/// The rows of a table at some indices. Empty rows are left to the routine, because a kernel over no elements would check no index.
fn named_rows(tir: &mut Tir, table: ValueId, rows: ValueId) -> OpResult<Option<ValueId>> {
    match tir.value(table).shape.contains(&0) {
        true => Ok(None),
        false => gather_rows(tir, table, rows, false).map(Some),
    }
}

fn gather_rows(tir: &mut Tir, table: ValueId, rows: ValueId, wrap: bool) -> OpResult<ValueId> {
    let mut shape = tir.value(rows).shape.clone();
    shape.extend_from_slice(&tir.value(table).shape[1..]);
    let dtype = tir.value(table).dtype;
    tir.push(
        dtype,
        &shape,
        Def::Special {
            args: vec![table, rows],
            special: Special::Rows { wrap },
        },
    )
}

/// `x[i]` with one tensor of integers. Negative indices count from the end.
fn index_rows(tir: &mut Tir, ids: &Call<ValueId>) -> OpResult<Option<ValueId>> {
    let table = *ids.leaf("self")?;
    let [Val::Leaf(rows)] = ids.get("indices").items().unwrap_or_default() else {
        return Ok(None);
    };
    let is_number = matches!(tir.value(*rows).dtype, DType::I64 | DType::I32);
    if !is_number || tir.value(table).shape.is_empty() || !tir.value(table).dtype.is_computed() {
        return Ok(None);
    }
    gather_rows(tir, table, *rows, true).map(Some)
}

fn pad(tir: &mut Tir, ids: &Call<ValueId>) -> OpResult<Option<ValueId>> {
    let x = *ids.leaf("self")?;
    let (dtype, mut shape) = (tir.value(x).dtype, tir.value(x).shape.clone());
    let amounts = ids.ints("pad")?;
    let value = match ids.get("value") {
        v if v.is_none() => Scalar::from_i64(dtype, 0),
        v => match (v.as_int(), v.as_f64()) {
            (Some(i), _) => Scalar::Int(DType::I64, i).cast(dtype),
            (None, Some(f)) => Scalar::from_f64(dtype, f),
            _ => return Ok(None),
        },
    };
    if amounts.len() / 2 > shape.len() {
        return Ok(None);
    }
    let rank = shape.len();
    let mut before = vec![0; rank];
    for (i, pair) in amounts.chunks_exact(2).enumerate() {
        let d = rank - 1 - i;
        before[d] = pair[0];
        let size = shape[d] as i64 + pair[0] + pair[1];
        let Ok(size) = usize::try_from(size) else {
            return Ok(None);
        };
        shape[d] = size;
    }
    tir.push(
        dtype,
        &shape,
        Def::Special {
            args: vec![x],
            special: Special::Pad { before, value },
        },
    )
    .map(Some)
}

fn sizes_arg(ids: &Call<ValueId>, name: &str, n: usize) -> OpResult<Option<Vec<usize>>> {
    let v = ids.ints(name)?;
    let v: Option<Vec<usize>> = v.iter().map(|&x| usize::try_from(x).ok()).collect();
    Ok(v.map(|v| if v.len() == 1 { vec![v[0]; n] } else { v })
        .filter(|v| v.len() == n))
}

/// Windows over the last dims of a value of `rank`.
fn window_args(ids: &Call<ValueId>, rank: usize, spatial: usize, dilated: bool) -> OpResult<Option<SpatialWindow>> {
    let Some(kernel) = sizes_arg(ids, "kernel_size", spatial)? else {
        return Ok(None);
    };
    let stride = match ids.ints("stride") {
        Ok(s) if !s.is_empty() => sizes_arg(ids, "stride", spatial)?,
        _ => Some(kernel.clone()),
    };
    let padding = sizes_arg(ids, "padding", spatial)?;
    let dilation = if dilated {
        sizes_arg(ids, "dilation", spatial)?
    } else {
        Some(vec![1; spatial])
    };
    Ok(match (stride, padding, dilation) {
        (Some(stride), Some(padding), Some(dilation)) => Some(SpatialWindow {
            first: rank.saturating_sub(spatial),
            kernel,
            stride,
            padding,
            dilation,
        }),
        _ => None,
    })
}

fn spatial_dims(name: &str) -> usize {
    name.trim_end_matches('d')
        .chars()
        .last()
        .and_then(|c| c.to_digit(10))
        .unwrap_or(2) as usize
}

fn push_pool(tir: &mut Tir, types: &Call<TensorType>, x: ValueId, pool: Special) -> OpResult<Option<ValueId>> {
    let out = types.op.result_type(types, &mut Default::default())?;
    let shape = out.as_leaf().and_then(|t| t.fixed_shape());
    let dtype = tir.value(x).dtype;
    match shape {
        Some(shape) => tir
            .push(
                dtype,
                &shape,
                Def::Special {
                    args: vec![x],
                    special: pool,
                },
            )
            .map(Some),
        None => Ok(None),
    }
}

fn max_pool(tir: &mut Tir, types: &Call<TensorType>, ids: &Call<ValueId>) -> OpResult<Option<ValueId>> {
    let spatial = spatial_dims(types.op.name);
    let x = *ids.leaf("self")?;
    let Some(w) = window_args(ids, tir.value(x).shape.len(), spatial, true)? else {
        return Ok(None);
    };
    push_pool(tir, types, x, Special::MaxPool(w))
}

fn avg_pool(tir: &mut Tir, types: &Call<TensorType>, ids: &Call<ValueId>) -> OpResult<Option<ValueId>> {
    let x = *ids.leaf("self")?;
    let spatial = spatial_dims(types.op.name);
    let f = tir.value(x).dtype;
    if !f.is_float() || f.is_float8() || ids.bool("ceil_mode")? {
        return Ok(None);
    }
    let has_divisor = types.op.schema.index_of("divisor_override").is_some();
    let divisor = if has_divisor {
        ids.opt_int("divisor_override")?
    } else {
        None
    };
    let Some(window) = window_args(ids, tir.value(x).shape.len(), spatial, false)? else {
        return Ok(None);
    };
    if has_small_volumes(&tir.value(x).shape, &window) {
        return Ok(None);
    }
    let count_include_pad = ids.bool("count_include_pad")?;
    // Widening first converts each element once, not once per window. f16 is also slow to convert between strided loads.
    let (windows, elements): (usize, usize) = (window.kernel.iter().product(), window.stride.iter().product());
    let widens = f == DType::F16 || f == DType::BF16 && windows >= elements.saturating_mul(2);
    let wide = if widens { DType::F32 } else { f };
    let x = tir.convert(x, wide)?;
    let mean = push_pool(
        tir,
        types,
        x,
        Special::AvgPool {
            window,
            count_include_pad,
            divisor,
        },
    )?;
    mean.map(|mean| tir.convert(mean, f)).transpose()
}

/// The windows of an adaptive pool.
enum AdaptiveWindows {
    /// One window over all spatial dims, which are these.
    Whole(Vec<usize>),
    /// Adjacent windows of this size, as `kernel_size` of a pool.
    Adjacent(Vec<i64>),
}

/// The windows of an adaptive pool, if they all have the same size.
fn adaptive_windows(tir: &Tir, ids: &Call<ValueId>, spatial: usize) -> OpResult<Option<AdaptiveWindows>> {
    let shape = &tir.value(*ids.leaf("self")?).shape;
    let sizes: Vec<Option<i64>> = match ids.get("output_size") {
        Val::List(v) | Val::Tuple(v) if v.len() == spatial => v.iter().map(|s| s.as_int()).collect(),
        v => vec![v.as_int(); spatial],
    };
    let Some(first) = shape.len().checked_sub(spatial) else {
        return Ok(None);
    };
    let mut kernel = vec![];
    for (&s, o) in shape[first..].iter().zip(sizes) {
        match o.and_then(|o| usize::try_from(o).ok()) {
            Some(o) if o > 0 && s > 0 && s.is_multiple_of(o) => kernel.push((s / o) as i64),
            _ => return Ok(None),
        }
    }
    let is_whole = shape[first..].iter().zip(&kernel).all(|(&s, &k)| s as i64 == k);
    Ok(Some(if is_whole {
        AdaptiveWindows::Whole((first..shape.len()).collect())
    } else {
        AdaptiveWindows::Adjacent(kernel)
    }))
}

/// An adaptive mean whose windows all have the same size: a mean over the spatial dims, or adjacent windows.
fn adaptive_avg_pool(tir: &mut Tir, ids: &Call<ValueId>, spatial: usize) -> OpResult<Option<ValueId>> {
    let Some(windows) = adaptive_windows(tir, ids, spatial)? else {
        return Ok(None);
    };
    let x = *ids.leaf("self")?;
    // A mean of half types is summed in f32 and rounded once, as torch's pool is.
    let d = tir.value(x).dtype;
    if !d.is_float() || d.is_float8() {
        return Ok(None);
    }
    let input = tir.traced(x);
    let b: &mut dyn Build = tir;
    let result = match windows {
        AdaptiveWindows::Whole(dims) => b.reduce(OpId::Mean, &input, &dims, true)?,
        AdaptiveWindows::Adjacent(kernel) => {
            let op = [OpId::AvgPool1d, OpId::AvgPool2d, OpId::AvgPool3d][spatial - 1];
            b.op(op, [Val::Leaf(input), ints_val(&kernel)])?
        }
    };
    Ok(Some(ValueId(result.id)))
}

/// An adaptive maximum whose windows all have the same size: a maximum over the spatial dims, or adjacent windows.
fn adaptive_max_pool(tir: &mut Tir, ids: &Call<ValueId>, spatial: usize) -> OpResult<Option<ValueId>> {
    let Some(windows) = adaptive_windows(tir, ids, spatial)? else {
        return Ok(None);
    };
    let input = tir.traced(*ids.leaf("self")?);
    let b: &mut dyn Build = tir;
    let result = match windows {
        AdaptiveWindows::Whole(dims) => b.reduce(OpId::Amax, &input, &dims, true)?,
        // The rows of such windows fill vectors.
        AdaptiveWindows::Adjacent(kernel) if kernel.last().is_some_and(|&n| n >= LANES as i64) => {
            let mut sizes = input.shape()?[..input.rank()? - spatial].to_vec();
            let mut dims = vec![];
            for (n, &k) in input.shape()?[sizes.len()..].iter().zip(&kernel) {
                sizes.extend([n.floordiv(&Dim::Const(k)), Dim::Const(k)]);
                dims.push(sizes.len() - 1);
            }
            let parts = b.reshape(&input, &sizes)?;
            b.reduce(OpId::Amax, &parts, &dims, false)?
        }
        AdaptiveWindows::Adjacent(kernel) => {
            let op = [OpId::MaxPool1d, OpId::MaxPool2d, OpId::MaxPool3d][spatial - 1];
            b.op(op, [Val::Leaf(input), ints_val(&kernel)])?
        }
    };
    Ok(Some(ValueId(result.id)))
}

fn push_scan(tir: &mut Tir, types: &Call<TensorType>, ids: &Call<ValueId>, op: ScanOp) -> OpResult<Option<ValueId>> {
    let x = *ids.leaf("self")?;
    let shape = tir.value(x).shape.clone();
    let out = types.op.result_type(types, &mut Default::default())?;
    let Some(dtype) = out.as_leaf().map(|t| t.dtype) else {
        return Ok(None);
    };
    if shape.is_empty() || dtype == DType::B8 {
        return Ok(None);
    }
    let dim = crate::op::wrap_dim(ids.int("dim")?, shape.len())?;
    // Half precision is computed in f32, and each result is rounded.
    let x = tir.convert(x, dtype)?;
    let x = tir.convert(x, dtype.compute_dtype())?;
    let y = tir.push(
        dtype.compute_dtype(),
        &shape,
        Def::Special {
            args: vec![x],
            special: Special::Scan { dim, op },
        },
    )?;
    tir.convert(y, dtype).map(Some)
}
