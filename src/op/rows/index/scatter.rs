//! Writing elements at computed positions: scatter, index_add, index_copy, index_fill, and writes through views.

use super::gather::for_each_indexed;
use crate::op::layout::StridedWindow;
use crate::op::rows::dense::{in_bounds, native, sizes_around, to_i64_indices};
use crate::op::rows::spell::list_text;
use crate::op::sharing::always_shared;
use crate::op::view::scattered_view;
use crate::op::{Call, Meaning, MemoryOrder, MemoryUse, Op, OpBuilder, OpError, OpId, OpResult, Sizes, View, wrap_dim};
use crate::tensor::{Scalar, Tensor};
use crate::types::{DType, Dim, TensorType, Type, Val};

/// How a written element is combined with the existing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::op::rows) enum Reduce {
    Replace,
    Sum,
    Prod,
    Max,
    Min,
}

impl Reduce {
    fn parse(s: &str) -> OpResult<Reduce> {
        Ok(match s {
            "add" | "sum" | "mean" => Reduce::Sum,
            "multiply" | "prod" => Reduce::Prod,
            "amax" => Reduce::Max,
            "amin" => Reduce::Min,
            _ => {
                return Err(OpError::arg(
                    "reduce",
                    format!("reduce argument must be either sum, prod, mean, amax or amin, got {s}"),
                ));
            }
        })
    }

    fn combine(self, dtype: DType, a: Scalar, b: Scalar) -> Scalar {
        if self == Reduce::Replace {
            return b;
        }
        if native(dtype) == DType::I64 {
            let (x, y) = (a.to_i64(), b.to_i64());
            let v = match self {
                Reduce::Sum => x.wrapping_add(y),
                Reduce::Prod => x.wrapping_mul(y),
                Reduce::Max => x.max(y),
                _ => x.min(y),
            };
            return Scalar::Int(DType::I64, v).cast(dtype);
        }
        let (x, y) = (a.to_f64(), b.to_f64());
        // For f32 operands, rounding the f64 sum or product to f32 gives the f32 result.
        let v = match self {
            Reduce::Sum => x + y,
            Reduce::Prod => x * y,
            _ if x.is_nan() || y.is_nan() => f64::NAN,
            Reduce::Max => {
                if y > x {
                    y
                } else {
                    x
                }
            }
            _ => {
                if y < x {
                    y
                } else {
                    x
                }
            }
        };
        Scalar::from_f64(dtype, v)
    }

    /// Combines `v` with element `at` of `bytes`.
    pub(in crate::op::rows) fn update_element(self, dtype: DType, bytes: &mut [u8], at: usize, v: Scalar) {
        let old = Scalar::read(dtype, bytes, at);
        self.combine(dtype, old, v.cast(dtype)).write(bytes, at);
    }
}

pub(super) fn rows() -> Vec<Op> {
    let mut v = scatter_rows();
    v.extend(by_index());
    v.extend(through_views());
    v
}

fn scatter_rows() -> Vec<Op> {
    vec![
        Op::new("scatter(Tensor self, int dim, Tensor index, Tensor src, *, str? reduce=None) -> Tensor",
            scatter_type,
            Meaning::Routine(|c| scatter(c, reduce_of(c)?)),
        )
        .doc("a copy with the elements of src written at the indices along dim")
        .spelled("aten.@.src aten.@.reduce torch.@ Tensor.@")
        .inplace("aten.@_.src aten.@_.reduce Tensor.@_"),
        Op::new("scatter_value(Tensor self, int dim, Tensor index, Scalar value, *, str? reduce=None) -> Tensor",
            scatter_type,
            Meaning::Routine(|c| scatter(c, reduce_of(c)?)),
        )
        .doc("a copy with a number written at the indices along dim")
        .spelled("aten.scatter.value aten.scatter.value_reduce torch.scatter Tensor.scatter")
        .inplace("aten.scatter_.value aten.scatter_.value_reduce Tensor.scatter_"),
        Op::new("scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor",
            scatter_type,
            Meaning::Routine(|c| scatter(c, Reduce::Sum)),
        )
        .doc("a copy with the elements of src added at the indices along dim")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ Tensor.@_"),
        Op::new("scatter_reduce(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True) -> Tensor",
            scatter_type,
            Meaning::Routine(scatter_reduce),
        )
        .doc("a copy with the elements of src reduced into it at the indices along dim")
        .spelled("aten.@.two torch.@ Tensor.@")
        .inplace("aten.@_.two Tensor.@_"),
    ]
}

fn by_index() -> Vec<Op> {
    vec![
        Op::new(
            "index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor",
            index_source_type,
            Meaning::Routine(|c| {
                let alpha = scalar_arg(c.get("alpha"))?;
                index_write(c, Reduce::Sum, &move |v, d| Reduce::Prod.combine(d, v, alpha.cast(d)))
            }),
        )
        .doc("a copy with the slices of source added to those selected by index along dim")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ Tensor.@_"),
        Op::new(
            "index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor",
            index_source_type,
            Meaning::Routine(|c| index_write(c, Reduce::Replace, &|v, _| v)),
        )
        .doc("a copy with the slices selected by index along dim replaced by those of source")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ Tensor.@_"),
        Op::new(
            "index_fill(Tensor self, int dim, Tensor index, Any value) -> Tensor",
            |c, _| {
                wrap_dim(c.int("dim")?, c.shaped("self")?.1.len())?;
                Ok(Val::Leaf(c.leaf("self")?.clone()))
            },
            Meaning::Routine(index_fill),
        )
        .order(MemoryOrder::First)
        .doc("a copy with the slices selected by index along dim filled with a number")
        .spelled("aten.@.int_Scalar aten.@.int_Tensor torch.@ Tensor.@")
        .inplace("aten.@_.int_Scalar aten.@_.int_Tensor Tensor.@_")
        .shared_writes(always_shared),
    ]
}

fn through_views() -> Vec<Op> {
    let op = |name, schema, rule, routine| Op::new((name, schema), rule, Meaning::Routine(routine));
    vec![
        op(
            "slice_scatter",
            "slice_scatter(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor",
            write_type,
            write_view,
        )
        .scatters_to(OpId::Slice)
        .doc("a copy with src written to a slice")
        .spelled("aten.@ torch.@ Tensor.@"),
        op(
            "select_scatter",
            "select_scatter(Tensor self, Tensor src, int dim, SymInt index) -> Tensor",
            write_type,
            write_view,
        )
        .scatters_to(OpId::Select)
        .doc("a copy with src written at one index of a dim")
        .spelled("aten.@ torch.@ Tensor.@"),
        op(
            "diagonal_scatter",
            "diagonal_scatter(Tensor self, Tensor src, int offset=0, int dim1=0, int dim2=1) -> Tensor",
            write_type,
            write_view,
        )
        .scatters_to(OpId::Diagonal)
        .doc("a copy with src written to a diagonal")
        .spelled("aten.@ torch.@ Tensor.@"),
        op(
            "as_strided_scatter",
            "as_strided_scatter(Tensor self, Tensor src, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor",
            write_type,
            write_view,
        )
        .memory(MemoryUse::Window)
        .scatters_to(OpId::AsStrided)
        .doc("a copy with src written to a strided view of its memory")
        .spelled("aten.@ torch.@ Tensor.@"),
        Op::composite("strided_scatter(Tensor self, Tensor src, SymInt[] size, SymInt[] stride, SymInt storage_offset=0) -> Tensor",
            |b, c| {
                let x = c.leaf("self")?;
                let window = StridedWindow::from_call(&c.types())?;
                window.check_bounds(&x.ty.numel(), x.dtype())?;
                let rows = b.contiguous(x)?;
                let mut args = c.args.clone();
                args[0] = (&rows).into();
                b.op(OpId::AsStridedScatter, args).map(Val::Leaf)
            },
        )
        .doc("a copy with src written to a strided view of the elements in row-major order"),
    ]
}

fn scalar_arg(v: &Val<Tensor>) -> OpResult<Scalar> {
    match v {
        Val::Leaf(t) => t
            .item()
            .ok_or_else(|| OpError::arg("value", "the value must have one element")),
        Val::Float(x) => Ok(Scalar::F64(*x)),
        Val::Bool(x) => Ok(Scalar::Bool(*x)),
        v => v
            .as_int()
            .map(|i| Scalar::Int(DType::I64, i))
            .ok_or_else(|| OpError::arg("value", "the value must be a number")),
    }
}

fn reduce_of(c: &Call<Tensor>) -> OpResult<Reduce> {
    match c.get("reduce").as_str() {
        None => Ok(Reduce::Replace),
        Some(r @ ("add" | "multiply")) => Reduce::parse(r),
        Some(_) => Err(OpError::arg(
            "reduce",
            "reduce argument must be either add or multiply.",
        )),
    }
}

fn scatter_type(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<Type> {
    let x = c.leaf("self")?;
    let (id, index) = c.shaped("index")?;
    let shape = c.shaped("self")?.1;
    let what = c.op.name;
    if !matches!(id, DType::I64 | DType::I32) {
        return Err(OpError::dtype(format!(
            "{what}(): Expected dtype int32/int64 for index"
        )));
    }
    let dim = wrap_dim(c.int("dim")?, shape.len())?;
    if shape.len().max(1) != index.len().max(1) {
        return Err(OpError::shape(
            "Index tensor must have the same number of dimensions as self tensor",
        ));
    }
    let larger = |i: &Dim, n: &Dim| i.sub(n).as_const().is_some_and(|over| over > 0);
    let over_self = index
        .iter()
        .zip(shape)
        .enumerate()
        .any(|(d, (i, n))| d != dim && larger(i, n));
    let empty = index.contains(&Dim::Const(0));
    if let Some(src) = c.op.schema.index_of("src").and_then(|i| c.args[i].as_leaf()) {
        if src.dtype != x.dtype {
            return Err(OpError::dtype(format!(
                "{what}(): Expected self.dtype to be equal to src.dtype"
            )));
        }
        let s = c.shaped("src")?.1;
        let over_src = s.len().max(1) != index.len().max(1) || index.iter().zip(s).any(|(i, n)| larger(i, n));
        if (over_self || over_src) && !empty {
            return Err(OpError::shape(format!(
                "Expected index {} to be no larger than self {} apart from dimension {dim} and to be no larger size than src {}",
                list_text(index),
                list_text(shape),
                list_text(s)
            )));
        }
    } else if over_self && !empty {
        return Err(OpError::shape(format!(
            "Expected index {} to be no larger than self {} apart from dimension {dim}",
            list_text(index),
            list_text(shape)
        )));
    }
    Ok(Val::Leaf(x.clone()))
}

/// The position in `src` for each element of the index tensor; the source may be larger.
fn source_positions(index: &[usize], src: &[usize]) -> Vec<usize> {
    let mut strides: Vec<i64> = crate::tensor::contiguous_strides(src)
        .iter()
        .map(|&s| s as i64)
        .collect();
    strides.resize(index.len(), 0);
    let mut out = vec![];
    crate::op::view::strided_positions(index, 0, &strides, &mut |_, p| out.push(p));
    out
}

fn scatter(c: &Call<Tensor>, how: Reduce) -> OpResult<Val<Tensor>> {
    let (x, index) = (c.leaf("self")?, c.leaf("index")?);
    let dim = wrap_dim(c.int("dim")?, x.rank())?;
    let (mut out, dtype) = (x.clone(), x.dtype());
    let src = c.op.schema.index_of("src").map(|_| c.leaf("src")).transpose()?;
    let value = if src.is_none() {
        scalar_arg(c.get("value"))?.cast(dtype)
    } else {
        Scalar::Bool(false)
    };
    let from = src.map_or(vec![], |s| source_positions(index.shape(), s.shape()));
    let bytes = out.bytes_mut();
    for_each_indexed(index, x.shape(), dim, &mut |i, p| {
        how.update_element(dtype, bytes, p, src.map_or(value, |s| s.get(from[i])));
    })?;
    Ok(Val::Leaf(out))
}

fn scatter_reduce(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (x, index, src) = (c.leaf("self")?, c.leaf("index")?, c.leaf("src")?);
    let (how, mean) = (Reduce::parse(c.str("reduce")?)?, c.str("reduce")? == "mean");
    let dim = wrap_dim(c.int("dim")?, x.rank())?;
    let include = c.bool("include_self")?;
    let (mut out, dtype) = (x.clone(), x.dtype());
    let from = source_positions(index.shape(), src.shape());
    let mut count = vec![include as i64; x.numel()];
    let bytes = out.bytes_mut();
    for_each_indexed(index, x.shape(), dim, &mut |i, p| {
        let v = src.get(from[i]);
        // Without `include_self`, the first written element replaces the old value. Sums start from 0.0 instead, so
        // that a single -0.0 becomes 0.0.
        let first = count[p] == 0;
        if first && matches!(how, Reduce::Sum) {
            Reduce::Replace.update_element(dtype, bytes, p, Scalar::from_i64(dtype, 0));
        }
        let replaces = first && !matches!(how, Reduce::Sum);
        if replaces { Reduce::Replace } else { how }.update_element(dtype, bytes, p, v);
        count[p] += 1;
    })?;
    if mean {
        for (p, &n) in count.iter().enumerate().filter(|&(_, &n)| n > 1) {
            let v = Scalar::read(dtype, bytes, p);
            let v = match native(dtype) {
                DType::I64 => Scalar::Int(DType::I64, v.to_i64().div_euclid(n)),
                _ => Scalar::F64(v.to_f64() / n as f64),
            };
            v.cast(dtype).write(bytes, p);
        }
    }
    Ok(Val::Leaf(out))
}

fn index_source_type(c: &Call<TensorType>, sizes: &mut Sizes) -> OpResult<Type> {
    let x = c.leaf("self")?;
    let shape = c.shaped("self")?.1;
    let dim = wrap_dim(c.int("dim")?, shape.len())?;
    let (id, index) = c.shaped("index")?;
    let (sd, source) = c.shaped("source")?;
    let what = format!("{}()", c.op.name);
    if !matches!(id, DType::I64 | DType::I32) {
        return Err(OpError::dtype(format!(
            "{what}: Expected dtype int32/int64 for index but got: {}",
            id.scalar_type_name()
        )));
    }
    if sd != x.dtype {
        return Err(OpError::dtype(format!(
            "{what}: self ({}) and source ({}) must have the same scalar type",
            x.dtype.scalar_type_name(),
            sd.scalar_type_name()
        )));
    }
    if index.len() > 1 {
        return Err(OpError::shape(format!(
            "{what}: Index is supposed to be a vector, but got dim: {}",
            index.len()
        )));
    }
    if source.len() != shape.len() && !source.is_empty() && !shape.is_empty() {
        return Err(OpError::shape(format!(
            "{what}: source and self must have the same number of dims, got {} and {}",
            source.len(),
            shape.len()
        )));
    }
    let count = index.first().cloned().unwrap_or(Dim::Const(1));
    for (d, (s, n)) in source.iter().zip(shape).enumerate() {
        let want = if d == dim { &count } else { n };
        sizes.unify_dims(want, s, || {
            format!(
                "{what}: source has size {s} at dimension {d}, expected {want} (self {}, source {})",
                list_text(shape),
                list_text(source)
            )
        })?;
    }
    Ok(Val::Leaf(x.clone()))
}

fn index_write(c: &Call<Tensor>, how: Reduce, change: &dyn Fn(Scalar, DType) -> Scalar) -> OpResult<Val<Tensor>> {
    let (x, index, source) = (c.leaf("self")?, c.leaf("index")?, c.leaf("source")?);
    let dim = wrap_dim(c.int("dim")?, x.rank())?;
    let (outer, n, inner) = sizes_around(x.shape(), dim);
    let index = to_i64_indices(index, "Expected dtype int32/int64 for index")?;
    let (mut out, dtype) = (x.clone(), x.dtype());
    let bytes = out.bytes_mut();
    let count = index.numel();
    for o in 0..outer {
        for (k, &i) in index.as_slice::<i64>().iter().enumerate() {
            let at = in_bounds(i, n, dim)?;
            for j in 0..inner {
                let v = change(source.get((o * count + k) * inner + j), dtype);
                how.update_element(dtype, bytes, (o * n + at) * inner + j, v);
            }
        }
    }
    Ok(Val::Leaf(out))
}

fn index_fill(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (x, index) = (c.leaf("self")?, c.leaf("index")?);
    let dim = wrap_dim(c.int("dim")?, x.rank())?;
    let (outer, n, inner) = sizes_around(x.shape(), dim);
    let index = to_i64_indices(index, "index_fill_(): Expected dtype int64 for index.")?;
    let (mut out, dtype) = (x.clone(), x.dtype());
    let v = scalar_arg(c.get("value"))?.cast(dtype);
    let bytes = out.bytes_mut();
    for o in 0..outer {
        for &i in index.as_slice::<i64>() {
            let at = in_bounds(i, n, dim)?;
            (0..inner).for_each(|j| v.write(bytes, (o * n + at) * inner + j));
        }
    }
    Ok(Val::Leaf(out))
}

/// The view row's call on the tensor that is written to.
fn view_call(c: &Call<TensorType>) -> OpResult<Call<TensorType>> {
    scattered_view(c).ok_or_else(|| OpError::shape(format!("`{}` does not write to a view", c.op.name)))
}

fn write_type(c: &Call<TensorType>, sizes: &mut Sizes) -> OpResult<Type> {
    let (x, src) = (c.leaf("self")?, c.leaf("src")?);
    let call = view_call(c)?;
    let part = (call.op.rule)(&call, sizes)?;
    let part = part.as_leaf().and_then(|t| t.shape.clone()).unwrap_or_default();
    let have = c.shaped("src")?.1;
    let text = || {
        format!(
            "expected src to have a size equal to the slice of self. src size = {}, slice size = {}",
            list_text(have),
            list_text(&part)
        )
    };
    if have.len() != part.len() {
        return Err(OpError::shape(text()));
    }
    for (a, b) in have.iter().zip(&part) {
        sizes.unify_dims(a, b, text)?;
    }
    let _ = src;
    Ok(Val::Leaf(x.clone()))
}

fn write_view(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (x, src) = (c.leaf("self")?, c.leaf("src")?);
    let call = view_call(&c.types())?;
    let Meaning::View(f) = call.op.meaning else {
        return Err(OpError::shape(format!("`{}` is not a view", call.op.name)));
    };
    let part: View = f(&call)?;
    if call.op.is(OpId::AsStrided) {
        StridedWindow::from_call(&call)?.check_bounds(&Dim::from(x.numel()), x.dtype())?;
    }
    let src = src.to(x.dtype());
    let mut out = x.clone();
    let size = x.dtype().size();
    let bytes = out.bytes_mut();
    part.for_each(x.shape(), |i, p| {
        super::gather::copy_element(bytes, p, src.bytes(), i, size)
    });
    Ok(Val::Leaf(out))
}
