//! Writing elements at the positions that an index tensor names: scatter, scatter_add, scatter_reduce.

use super::combine::{Cell, Reduce, with_cell};
use super::indexed::IndexedRows;
use super::rounded::{Half, PartView, Widened, with_half};
use crate::op::rows::dense::{native, to_i64_indices};
use crate::op::rows::fill::{copy_all, with_word};
use crate::op::rows::spell::list_text;
use crate::op::{Call, Meaning, Op, OpError, OpResult, Sizes, wrap_dim};
use crate::parallel::Pool;
use crate::tensor::{F16c, Scalar, Tensor, ViewMut, cells_of, cells_of_mut, with_wide_vectors};
use crate::types::{DType, Dim, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    let mut v = scatter_rows();
    v.extend(super::slices::rows());
    v.extend(super::write_view::rows());
    v
}

fn scatter_rows() -> Vec<Op> {
    vec![
        Op::new("scatter(Tensor self, int dim, Tensor index, Tensor src, *, str? reduce=None) -> Tensor",
            scatter_type,
            Meaning::Fill(|c, outs, pool| scatter(c, &mut outs[0], pool, reduce_of(c)?)),
        )
        .updates()
        .doc("a copy with the elements of src written at the indices along dim")
        .spelled("aten.@.src aten.@.reduce torch.@ Tensor.@")
        .inplace("aten.@_.src aten.@_.reduce Tensor.@_"),
        Op::new("scatter_value(Tensor self, int dim, Tensor index, Scalar value, *, str? reduce=None) -> Tensor",
            scatter_type,
            Meaning::Fill(|c, outs, pool| scatter(c, &mut outs[0], pool, reduce_of(c)?)),
        )
        .updates()
        .doc("a copy with a number written at the indices along dim")
        .spelled("aten.scatter.value aten.scatter.value_reduce torch.scatter Tensor.scatter")
        .inplace("aten.scatter_.value aten.scatter_.value_reduce Tensor.scatter_"),
        Op::new("scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor",
            scatter_type,
            Meaning::Fill(|c, outs, pool| scatter(c, &mut outs[0], pool, Reduce::Sum)),
        )
        .updates()
        .doc("a copy with the elements of src added at the indices along dim")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ Tensor.@_"),
        Op::new("scatter_reduce(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True) -> Tensor",
            scatter_type,
            Meaning::Fill(scatter_reduce),
        )
        .updates()
        .doc("a copy with the elements of src reduced into it at the indices along dim")
        .spelled("aten.@.two torch.@ Tensor.@")
        .inplace("aten.@_.two Tensor.@_"),
    ]
}

pub(super) fn scalar_arg(v: &Val<Tensor>) -> OpResult<Scalar> {
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
    let op = c.op.name;
    if !matches!(id, DType::I64 | DType::I32) {
        return Err(OpError::dtype(format!("{op}(): Expected dtype int32/int64 for index")));
    }
    let dim = wrap_dim(c.int("dim")?, shape.len())?;
    if shape.len().max(1) != index.len().max(1) {
        return Err(OpError::shape(
            "Index tensor must have the same number of dimensions as self tensor",
        ));
    }
    let src = c.op.schema.index_of("src").and_then(|i| c.args[i].as_leaf());
    if src.is_some_and(|src| src.dtype != x.dtype) {
        return Err(OpError::dtype(format!(
            "{op}(): Expected self.dtype to be equal to src.dtype"
        )));
    }
    let src = src.map(|_| c.shaped("src")).transpose()?.map(|s| s.1);
    check_index_size(index, shape, dim, src)?;
    Ok(Val::Leaf(x.clone()))
}

/// Checks that the index is no larger than `shape` apart from `dim`, and no larger than the source.
fn check_index_size(index: &[Dim], shape: &[Dim], dim: usize, src: Option<&[Dim]>) -> OpResult<()> {
    let larger = |i: &Dim, n: &Dim| i.sub(n).as_const().is_some_and(|over| over > 0);
    let mut pairs = index.iter().zip(shape).enumerate();
    let over_self = pairs.any(|(d, (i, n))| d != dim && larger(i, n));
    let over_src =
        src.is_some_and(|s| s.len().max(1) != index.len().max(1) || index.iter().zip(s).any(|(i, n)| larger(i, n)));
    if !over_self && !over_src || index.contains(&Dim::Const(0)) {
        return Ok(());
    }
    let mut title = format!(
        "Expected index {} to be no larger than self {} apart from dimension {dim}",
        list_text(index),
        list_text(shape)
    );
    if let Some(s) = src {
        title += &format!(" and to be no larger size than src {}", list_text(s));
    }
    Err(OpError::shape(title))
}

fn scatter(c: &Call<Tensor>, out: &mut ViewMut<'_>, pool: &Pool, reduce: Reduce) -> OpResult<()> {
    let x = c.leaf("self")?;
    copy_all(x, out, pool);
    let index = to_i64_indices(c.leaf("index")?, "expected i64 or i32 indices")?;
    if index.numel() == 0 {
        return Ok(());
    }
    let rows = IndexedRows::new(&index, x.shape(), wrap_dim(c.int("dim")?, x.rank())?);
    let dtype = x.dtype();
    let Some(i) = c.op.schema.index_of("src") else {
        let value = scalar_arg(c.get("value"))?.cast(dtype);
        return scatter_each(
            &rows,
            &Tensor::from_scalars(dtype, &[], &[value]),
            None,
            out.bytes_mut(),
            reduce,
            pool,
        );
    };
    let src = c.args[i]
        .as_leaf()
        .ok_or_else(|| OpError::arg("src", "src must be a tensor"))?;
    scatter_each(
        &rows,
        src,
        Some(&rows.strides_of(src.shape())),
        out.bytes_mut(),
        reduce,
        pool,
    )
}

/// Combines elements of `src` with those that `rows` name; `strides` are those of `src`, none if it is one number for all.
fn scatter_each(
    rows: &IndexedRows,
    src: &Tensor,
    strides: Option<&[usize]>,
    dst: &mut [u8],
    reduce: Reduce,
    pool: &Pool,
) -> OpResult<()> {
    let (dtype, bytes) = (src.dtype(), src.bytes());
    if reduce == Reduce::Replace {
        return with_word!(dtype.size(), bytes, dst, |src, dst| rows.scatter(
            src,
            strides,
            dst,
            |_, b| b,
            pool
        ));
    }
    if dtype == DType::B8 {
        let (src, dst) = (cells_of::<u8>(bytes), cells_of_mut::<u8>(dst));
        return match reduce {
            Reduce::Prod | Reduce::Min => rows.scatter(src, strides, dst, |a, b| u8::from(a != 0 && b != 0), pool),
            _ => rows.scatter(src, strides, dst, either, pool),
        };
    }
    if is_rounded_once(dtype, reduce) {
        return with_half!(dtype, H => scatter_halves::<H>(rows, cells_of(bytes), strides, cells_of_mut(dst), reduce, pool));
    }
    with_cell!(dtype, T => {
        scatter_cells(rows, src.as_slice::<T>(), strides, cells_of_mut::<T>(dst), reduce, pool)
    }, else rows.for_each_place(strides, |at, from| reduce.update_element(dtype, dst, at, src.get(from))))
}

/// The sum of two conditions.
#[inline(always)]
pub(super) fn either(a: u8, b: u8) -> u8 {
    u8::from((a | b) != 0)
}

/// Whether results are computed in f32 and rounded once, as in torch. Extremes need no rounding.
fn is_rounded_once(dtype: DType, reduce: Reduce) -> bool {
    dtype.is_half() && matches!(reduce, Reduce::Sum | Reduce::Prod)
}

/// [`scatter_each`] for sums or products of halves.
fn scatter_halves<H: Half>(
    rows: &IndexedRows,
    src: &[H],
    strides: Option<&[usize]>,
    dst: &mut [H],
    reduce: Reduce,
    pool: &Pool,
) -> OpResult<()> {
    let view = Widened(F16c::of_thread());
    match reduce {
        Reduce::Prod => rows.scatter_as(&view, src, strides, dst, f32::times, pool),
        _ => rows.scatter_as(&view, src, strides, dst, f32::plus, pool),
    }
}

/// [`scatter_each`] for one element type, with a loop for each way.
fn scatter_cells<T: Cell>(
    rows: &IndexedRows,
    src: &[T],
    strides: Option<&[usize]>,
    dst: &mut [T],
    reduce: Reduce,
    pool: &Pool,
) -> OpResult<()> {
    let c = F16c::of_thread();
    match reduce {
        Reduce::Replace => rows.scatter(src, strides, dst, |_, b| b, pool),
        Reduce::Sum => rows.scatter(src, strides, dst, T::plus, pool),
        Reduce::Prod => rows.scatter(src, strides, dst, T::times, pool),
        Reduce::Max => rows.scatter(src, strides, dst, move |a: T, b: T| a.larger_alone(b, c), pool),
        Reduce::Min => rows.scatter(src, strides, dst, move |a: T, b: T| a.smaller_alone(b, c), pool),
    }
}

fn scatter_reduce(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], pool: &Pool) -> OpResult<()> {
    let (x, src) = (c.leaf("self")?, c.leaf("src")?);
    let (reduce, mean) = (Reduce::parse(c.str("reduce")?)?, c.str("reduce")? == "mean");
    let include = c.bool("include_self")?;
    let out = &mut outs[0];
    if include && !mean {
        return scatter(c, out, pool, reduce);
    }
    copy_all(x, out, pool);
    let index = to_i64_indices(c.leaf("index")?, "expected i64 or i32 indices")?;
    if index.numel() == 0 {
        return Ok(());
    }
    let rows = IndexedRows::new(&index, x.shape(), wrap_dim(c.int("dim")?, x.rank())?);
    let strides = rows.strides_of(src.shape());
    let (dtype, dst) = (x.dtype(), out.bytes_mut());
    let how = Reduction { reduce, mean, include };
    if is_rounded_once(dtype, reduce) {
        let src = src.to(DType::F32);
        let wide = |dst: &mut [f32]| how.run(&rows, src.as_slice(), &strides, dst, pool);
        return with_half!(dtype, H => Widened(F16c::of_thread()).update(cells_of_mut::<H>(dst), pool, wide));
    }
    with_cell!(dtype, T => {
        how.run(&rows, src.as_slice::<T>(), &strides, cells_of_mut(dst), pool)?;
    }, else {
        let mut count = vec![include as u32; x.numel()];
        scatter_scalars(&rows, src, dtype, dst, reduce, &mut count)?;
        if mean {
            divide_by_counts(dtype, dst, &count);
        }
    });
    Ok(())
}

/// How `scatter_reduce` reduces.
#[derive(Clone, Copy)]
struct Reduction {
    reduce: Reduce,
    mean: bool,
    include: bool,
}

impl Reduction {
    /// Reduces elements of `src`, whose strides are given. Without `include`, the first written element replaces the old value. Sums
    /// start from 0.0 instead, so that a single -0.0 becomes 0.0.
    fn run<T: Cell>(
        self,
        rows: &IndexedRows,
        src: &[T],
        strides: &[usize],
        dst: &mut [T],
        pool: &Pool,
    ) -> OpResult<()> {
        if !self.include {
            rows.scatter(&[T::identity(self.reduce)], None, dst, |_, b| b, pool)?;
        }
        scatter_cells(rows, src, Some(strides), dst, self.reduce, pool)?;
        if self.mean {
            let mut count = vec![self.include as u32; dst.len()];
            rows.scatter(&[1], None, &mut count, |a, b| a + b, pool)?;
            with_wide_vectors(|| dst.iter_mut().zip(&count).for_each(|(v, &n)| *v = v.over(n.max(1))));
        }
        Ok(())
    }
}

/// Scatters elements of a dtype without compiled loops. `count` is the number of values combined in each element so far;
/// the first value replaces an element whose count is 0.
fn scatter_scalars(
    rows: &IndexedRows,
    src: &Tensor,
    dtype: DType,
    dst: &mut [u8],
    reduce: Reduce,
    count: &mut [u32],
) -> OpResult<()> {
    rows.for_each_place(Some(&rows.strides_of(src.shape())), |p, k| {
        if count[p] == 0 && reduce == Reduce::Sum {
            Scalar::from_i64(dtype, 0).write(dst, p);
        }
        let replaces = count[p] == 0 && reduce != Reduce::Sum;
        if replaces { Reduce::Replace } else { reduce }.update_element(dtype, dst, p, src.get(k));
        count[p] += 1;
    })
}

/// Divides sums of dtypes without loops of their own by their numbers of elements.
fn divide_by_counts(dtype: DType, sums: &mut [u8], count: &[u32]) {
    for (p, &n) in count.iter().enumerate().filter(|&(_, &n)| n > 1) {
        let v = Scalar::read(dtype, sums, p);
        let v = match native(dtype) {
            DType::I64 => Scalar::Int(DType::I64, v.to_i64().over(n)),
            _ => Scalar::F64(v.to_f64().over(n)),
        };
        v.cast(dtype).write(sums, p);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scattered(x: Tensor, src: Tensor) -> Tensor {
        let index = Tensor::zeros(DType::I64, src.shape());
        let call = Call {
            op: crate::op::by_name("scatter_add").expect("a row"),
            args: [Val::Leaf(x.clone()), Val::int(0), Val::Leaf(index), Val::Leaf(src)].to_vec(),
        };
        let mut out = Tensor::zeros(x.dtype(), x.shape());
        scatter(&call, &mut ViewMut::from(&mut out), &Pool::new(1), Reduce::Sum).expect("sums");
        out
    }

    #[test]
    fn sums_of_halves_are_rounded_once_and_those_of_conditions_are_true() {
        for dtype in [DType::BF16, DType::F16] {
            let ones = Tensor::from_slice(&[4000], &[1.0f32; 4000]).to(dtype);
            assert_eq!(scattered(Tensor::zeros(dtype, &[2]), ones).get(0).to_f64(), 4000.0);
        }
        let conditions = |v: &[i64]| Tensor::from_slice(&[v.len()], v).to(DType::B8);
        let got = scattered(conditions(&[0, 0, 1]), conditions(&[0, 1, 0]));
        assert_eq!(got.bytes(), [1, 0, 1]);
    }
}
