//! Attributes of Python objects, and items of lists, tuples and dicts.

use crate::op::{Build, Call, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::types::{Dim, Val};

pub(super) fn getattr(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let name = c.str("name")?;
    let x = match c.get("self") {
        Val::Leaf(x) => x,
        Val::Unknown => return Ok(Val::Unknown),
        Val::Device(d) => {
            let (kind, index) = d.split_once(':').unwrap_or((d, ""));
            return match name {
                "type" => Ok(Val::str(kind)),
                "index" => Ok(index.parse().map_or(Val::None, Val::int)),
                _ => Err(no_attribute("torch.device", name)),
            };
        }
        Val::DType(d) => {
            return match name {
                "is_floating_point" => Ok(Val::Bool(d.is_float())),
                "itemsize" => Ok(Val::int(d.size() as i64)),
                _ => Err(no_attribute("torch.dtype", name)),
            };
        }
        // Results with named fields: `torch.max(x, 0).indices`.
        v @ Val::Tuple(items) => {
            return match (name, &items[..]) {
                (
                    "values" | "sign" | "Q" | "mantissa" | "eigenvalues" | "LU" | "LD" | "min" | "hist" | "solution"
                    | "result" | "inverse" | "output",
                    [first, ..],
                ) => Ok(first.clone()),
                (
                    "indices" | "logabsdet" | "R" | "exponent" | "eigenvectors" | "pivots" | "max" | "bin_edges"
                    | "residuals" | "loss",
                    [_, second, ..],
                ) => Ok(second.clone()),
                _ => Err(no_attribute(v.kind_name(), name)),
            };
        }
        v => return Err(no_attribute(v.kind_name(), name)),
    };
    tensor_attribute(b, x, name)
}

fn no_attribute(kind: &str, name: &str) -> OpError {
    OpError::arg("name", format!("'{kind}' object has no attribute '{name}'"))
}

fn tensor_attribute(b: &mut dyn Build, x: &Traced, name: &str) -> OpResult<Val<Traced>> {
    Ok(match name {
        "shape" => Val::Tuple(x.shape()?.iter().map(|d| Val::Int(d.clone())).collect()),
        "ndim" => Val::int(x.rank()? as i64),
        "dtype" => Val::DType(x.dtype()),
        "device" => Val::Device("cpu".into()),
        "layout" => Val::TorchName("strided".into()),
        "itemsize" => Val::int(x.dtype().size() as i64),
        "nbytes" => Val::Int(x.ty.numel().mul(&Dim::Const(x.dtype().size() as i64))),
        "requires_grad" | "is_cuda" | "is_sparse" | "is_quantized" | "is_meta" | "is_mkldnn" | "is_nested" => {
            Val::Bool(false)
        }
        "is_cpu" | "is_leaf" => Val::Bool(true),
        "grad" | "grad_fn" | "names" => Val::None,
        "data" => b.op(OpId::Detach, [x.into()])?.into(),
        "real" => x.into(),
        "H" | "mT" | "mH" if x.rank()? == 0 => x.into(),
        "T" => b.numpy_T(x)?.into(),
        "mT" | "mH" => b.mT(x)?.into(),
        "H" => b.t(x)?.into(),
        _ => return Err(no_attribute("Tensor", name)),
    })
}

pub(super) fn item_of(_: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let index = c.get("index");
    match c.get("self") {
        Val::List(v) => sequence_item(v, index, Val::List),
        Val::Tuple(v) => sequence_item(v, index, Val::Tuple),
        Val::Dict(v) => {
            let entry = v.iter().find(|(k, _)| same_key(k, index));
            let text = || OpError::arg("index", format!("KeyError: the dict has no key {}", key_text(index)));
            entry.map(|(_, x)| x.clone()).ok_or_else(text)
        }
        Val::Unknown => Ok(Val::Unknown),
        v => Err(OpError::arg(
            "self",
            format!("'{}' object is not subscriptable", v.kind_name()),
        )),
    }
}

fn same_key<T>(a: &Val<T>, b: &Val<T>) -> bool {
    match (a, b) {
        (Val::Str(a), Val::Str(b)) => a == b,
        _ => a.as_f64().is_some() && a.as_f64() == b.as_f64(),
    }
}

fn key_text<T>(v: &Val<T>) -> String {
    match v {
        Val::Str(s) => format!("'{s}'"),
        v => v.as_int().map_or_else(|| v.kind_name().to_string(), |i| i.to_string()),
    }
}

type Wrap = fn(Vec<Val<Traced>>) -> Val<Traced>;

fn sequence_item(v: &[Val<Traced>], index: &Val<Traced>, wrap: Wrap) -> OpResult<Val<Traced>> {
    if let Val::Slice(s) = index {
        return sliced_items(v, s).map(wrap);
    }
    let n = v.len() as i64;
    let Some(i) = index.as_int() else {
        return Err(OpError::arg("index", "the index of a list item must be a constant"));
    };
    let position = if i < 0 { i.saturating_add(n) } else { i };
    let fail = || OpError::arg("index", format!("index {i} is out of range of {n} items"));
    let item = usize::try_from(position).ok().and_then(|p| v.get(p));
    item.cloned().ok_or_else(fail)
}

/// The items that a slice selects, as in Python.
fn sliced_items(v: &[Val<Traced>], slice: &[Val<Traced>; 3]) -> OpResult<Vec<Val<Traced>>> {
    let n = v.len() as i64;
    let step = match &slice[2] {
        Val::None => Some(1),
        v => v.as_int().filter(|&s| s != 0),
    };
    let step = step.ok_or_else(|| OpError::arg("index", "slice step must be a constant other than 0"))?;
    let forward = step > 0;
    let (low, high) = if forward { (0, n) } else { (-1, n - 1) };
    let bound = |x: &Val<Traced>, default: i64| match x {
        Val::None => Some(default),
        x => x.as_int().map(|i| {
            if i < 0 {
                i.saturating_add(n).max(low)
            } else {
                i.min(high)
            }
        }),
    };
    let (first, end) = if forward { (0, n) } else { (n - 1, -1) };
    let (Some(start), Some(end)) = (bound(&slice[0], first), bound(&slice[1], end)) else {
        return Err(OpError::arg(
            "index",
            "the bounds of a slice of a list must be constants",
        ));
    };
    let mut out = vec![];
    let mut i = start;
    while if forward { i < end } else { i > end } {
        out.push(v[i as usize].clone());
        i = i.saturating_add(step);
    }
    Ok(out)
}
