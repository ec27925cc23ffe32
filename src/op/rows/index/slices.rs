//! Writing slices that an index tensor names along a dim: index_add, index_copy, index_reduce, index_fill.

use super::combine::{Cell, Reduce, with_cell};
use super::named::NamedSlices;
use super::rounded::{AddHalves, AddRounded, AsStored, Widened, with_half};
use super::scatter::{either, scalar_arg};
use crate::op::pointwise::not_implemented;
use crate::op::rows::dense::{in_bounds, in_range};
use crate::op::rows::fill::{copy_all, units_per_part, with_size};
use crate::op::rows::spell::list_text;
use crate::op::sharing::always_shared;
use crate::op::{Call, Meaning, MemoryOrder, Op, OpError, OpResult, Sizes, wrap_dim};
use crate::parallel::Pool;
use crate::tensor::{F16c, SavedBytes, Tensor, ViewMut, cells_of, cells_of_mut, copy_row};
use crate::types::{DType, Dim, TensorType, Type, Val};
use half::f16;

pub(super) fn rows() -> Vec<Op> {
    let mut rows = source_rows();
    rows.push(fill_row());
    rows
}

fn source_rows() -> Vec<Op> {
    vec![
        Op::new(
            "index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor",
            index_source_type,
            Meaning::Fill(index_add),
        )
        .updates()
        .doc("a copy with the slices of source added to those selected by index along dim")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ Tensor.@_"),
        Op::new(
            "index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor",
            index_source_type,
            Meaning::Fill(index_copy),
        )
        .overwrites(overwrite_slices)
        .updates()
        .doc("a copy with the slices selected by index along dim replaced by those of source")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ Tensor.@_"),
        Op::new(
            "index_reduce(Tensor self, int dim, Tensor index, Tensor source, str reduce, *, bool include_self=True) -> Tensor",
            index_reduce_type,
            Meaning::Fill(index_reduce),
        )
        .updates()
        .doc("slices of source reduced into the slices of self selected by index")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ Tensor.@_"),
    ]
}

fn fill_row() -> Op {
    Op::new(
        "index_fill(Tensor self, int dim, Tensor index, Any value) -> Tensor",
        |c, _| {
            wrap_dim(c.int("dim")?, c.shaped("self")?.1.len())?;
            Ok(Val::Leaf(c.leaf("self")?.clone()))
        },
        Meaning::Fill(index_fill),
    )
    .updates()
    .order(MemoryOrder::First)
    .doc("a copy with the slices selected by index along dim filled with a number")
    .spelled("aten.@.int_Scalar aten.@.int_Tensor torch.@ Tensor.@")
    .inplace("aten.@_.int_Scalar aten.@_.int_Tensor Tensor.@_")
    .shared_writes(always_shared)
}

fn index_source_type(c: &Call<TensorType>, sizes: &mut Sizes) -> OpResult<Type> {
    let x = c.leaf("self")?;
    let shape = c.shaped("self")?.1;
    let dim = wrap_dim(c.int("dim")?, shape.len())?;
    let (id, index) = c.shaped("index")?;
    let (sd, source) = c.shaped("source")?;
    let op = format!("{}()", c.op.name);
    if !matches!(id, DType::I64 | DType::I32) {
        return Err(OpError::dtype(format!(
            "{op}: Expected dtype int32/int64 for index but got: {}",
            id.scalar_type_name()
        )));
    }
    if sd != x.dtype {
        return Err(OpError::dtype(format!(
            "{op}: self ({}) and source ({}) must have the same scalar type",
            x.dtype.scalar_type_name(),
            sd.scalar_type_name()
        )));
    }
    check_ranks(&op, [shape.len(), index.len(), source.len()])?;
    let count = index.first().cloned().unwrap_or(Dim::Const(1));
    for (d, (s, n)) in source.iter().zip(shape).enumerate() {
        let want = if d == dim { &count } else { n };
        sizes.unify_dims(want, s, || {
            format!(
                "{op}: source has size {s} at dimension {d}, expected {want} (self {}, source {})",
                list_text(shape),
                list_text(source)
            )
        })?;
    }
    Ok(Val::Leaf(x.clone()))
}

fn check_ranks(op: &str, [rank, index, source]: [usize; 3]) -> OpResult<()> {
    if index > 1 {
        let title = format!("{op}: Index is supposed to be a vector, but got dim: {index}");
        return Err(OpError::shape(title));
    }
    if source != rank && source != 0 && rank != 0 {
        let title = format!("{op}: source and self must have the same number of dims, got {source} and {rank}");
        return Err(OpError::shape(title));
    }
    Ok(())
}

fn index_reduce_type(c: &Call<TensorType>, sizes: &mut Sizes) -> OpResult<Type> {
    let reduce = c.str("reduce")?;
    if !matches!(reduce, "prod" | "mean" | "amax" | "amin") {
        return Err(OpError::arg(
            "reduce",
            format!("index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}."),
        ));
    }
    let dtype = c.leaf("self")?.dtype;
    if dtype == DType::B8 {
        return Err(not_implemented("index_reduce", dtype));
    }
    index_source_type(c, sizes)
}

const INDEX_DTYPE: &str = "Expected dtype int32/int64 for index";

fn index_copy(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], pool: &Pool) -> OpResult<()> {
    let (x, source) = (c.leaf("self")?, c.leaf("source")?);
    let slices = NamedSlices::new(c, INDEX_DTYPE, in_range)?;
    copy_all(x, &mut outs[0], pool);
    copy_slices(&slices, source, outs[0].bytes_mut(), Some(pool));
    Ok(())
}

fn copy_slices(slices: &NamedSlices, source: &Tensor, dst: &mut [u8], pool: Option<&Pool>) {
    with_size!(source.dtype().size(), N => {
        let (src, dst) = (source.bytes().as_chunks::<N>().0, dst.as_chunks_mut::<N>().0);
        match slices.inner {
            1 => slices.write(dst, pool, |to, from| to[0] = src[from]),
            _ => slices.write(dst, pool, |to, from| copy_row(&src[from..][..to.len()], to)),
        }
    });
}

fn overwrite_slices(c: &Call<Tensor>, x: &mut ViewMut<'_>, saved: &mut SavedBytes) -> OpResult<()> {
    let source = c.leaf("source")?;
    let slices = NamedSlices::of_shape(c, x.shape(), INDEX_DTYPE, in_range)?;
    let (size, bytes) = (x.dtype().size(), x.bytes_mut());
    slices.for_each(|to, _| saved.save(bytes, to.start * size..to.end * size));
    copy_slices(&slices, source, bytes, None);
    Ok(())
}

fn index_add(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], pool: &Pool) -> OpResult<()> {
    let (x, source) = (c.leaf("self")?, c.leaf("source")?);
    let (dtype, alpha) = (x.dtype(), scalar_arg(c.get("alpha"))?.cast(x.dtype()));
    let slices = NamedSlices::new(c, INDEX_DTYPE, in_range)?;
    copy_all(x, &mut outs[0], pool);
    let dst = outs[0].bytes_mut();
    if dtype == DType::B8 {
        let (src, dst) = (cells_of::<u8>(source.bytes()), cells_of_mut::<u8>(dst));
        if alpha.to_bool() {
            slices.combine(src, dst, pool, either);
        }
        return Ok(());
    }
    let plain = alpha.to_f64() == 1.0;
    if plain && add_halves(&slices, source, dst, sums_in_f32(c)?, pool) {
        return Ok(());
    }
    with_cell!(dtype, T => {
        let (src, dst, alpha) = (source.as_slice::<T>(), cells_of_mut::<T>(dst), T::from_scalar(alpha));
        let c = F16c::of_thread();
        match (plain, slices.are_elements()) {
            (true, _) => slices.combine(src, dst, pool, |d: T, s: T| d.plus(s)),
            (false, true) => slices.combine(src, dst, pool, move |d: T, s: T| d.plus_alone(s.times_alone(alpha, c), c)),
            (false, false) => slices.combine(src, dst, pool, |d: T, s: T| d.plus(s.times(alpha))),
        }
    }, else slices.for_each(|to, from| {
        for (at, k) in to.zip(from) {
            let v = Reduce::Prod.combine(dtype, source.get(k), alpha);
            Reduce::Sum.update_element(dtype, dst, at, v);
        }
    }));
    Ok(())
}

/// Adds 16-bit floats, rounding each sum, or only the last one of an element if sums are `in_f32`. Returns false for other dtypes, and for
/// bf16 with rounded sums, which needs no instructions of its own.
fn add_halves(slices: &NamedSlices, source: &Tensor, dst: &mut [u8], in_f32: bool, pool: &Pool) -> bool {
    let (dtype, c) = (source.dtype(), F16c::of_thread());
    if in_f32 && dtype.is_half() {
        let (view, how) = (Widened(c), AddHalves(c));
        with_half!(dtype, H => slices.combine_as::<H, f32, H>(&view, source.as_slice(), cells_of_mut(dst), pool, &how));
        return true;
    }
    if dtype == DType::F16 {
        let (src, dst) = (source.as_slice::<f16>(), cells_of_mut::<f16>(dst));
        slices.combine_as(&AsStored, src, dst, pool, &AddRounded(c));
        return true;
    }
    false
}

/// Whether `index_add` of 16-bit floats without a factor sums in f32 and rounds once. torch does so where it calls `scatter_add`, and
/// elsewhere rounds each sum.
fn sums_in_f32(c: &Call<Tensor>) -> OpResult<bool> {
    let rank = c.leaf("self")?.rank();
    let dim = wrap_dim(c.int("dim")?, rank)?;
    Ok(rank > 1 && (dim == 0 || dim + 1 == rank) && c.leaf("index")?.dtype() == DType::I64)
}

fn index_reduce(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], pool: &Pool) -> OpResult<()> {
    let (x, source) = (c.leaf("self")?, c.leaf("source")?);
    let slices = NamedSlices::new(c, INDEX_DTYPE, |i, n, dim| {
        in_range(i, n, dim).map_err(|_| OpError::value("index out of range in self"))
    })?;
    let reduction = SliceReduction {
        reduce: Reduce::parse(c.str("reduce")?)?,
        mean: c.str("reduce")? == "mean",
        include_self: c.bool("include_self")?,
    };
    copy_all(x, &mut outs[0], pool);
    let (dtype, dst) = (x.dtype(), outs[0].bytes_mut());
    with_cell!(dtype, T => {
        let dst = cells_of_mut::<T>(dst);
        match reduction.reduce {
            Reduce::Prod => reduction.run(&slices, source.as_slice(), dst, pool, T::times),
            Reduce::Max => reduction.run(&slices, source.as_slice(), dst, pool, T::larger),
            Reduce::Min => reduction.run(&slices, source.as_slice(), dst, pool, T::smaller),
            Reduce::Sum | Reduce::Replace => reduction.run(&slices, source.as_slice(), dst, pool, T::plus),
        }
    }, else return Err(not_implemented("index_reduce", dtype)));
    Ok(())
}

/// How slices are reduced.
struct SliceReduction {
    reduce: Reduce,
    mean: bool,
    include_self: bool,
}

impl SliceReduction {
    fn run<T: Cell>(
        &self,
        slices: &NamedSlices,
        src: &[T],
        dst: &mut [T],
        pool: &Pool,
        combine: impl Fn(T, T) -> T + Sync,
    ) {
        if !self.include_self {
            slices.write(dst, Some(pool), |to, _| to.fill(T::identity(self.reduce)));
        }
        slices.combine(src, dst, pool, combine);
        if !self.mean || slices.inner == 0 {
            return;
        }
        let mut count = vec![self.include_self as u32; slices.n];
        slices.places().iter().for_each(|&p| count[p as usize] += 1);
        let part = units_per_part(dst.len() / slices.inner, 4 * slices.inner * size_of::<T>(), pool);
        pool.run_parts(dst, part * slices.inner, |i, dst| {
            let counts = count.iter().cycle().skip(i * part % slices.n);
            let slice = dst.chunks_exact_mut(slices.inner).zip(counts);
            for (slice, &n) in slice.filter(|(_, n)| **n > 1) {
                slice.iter_mut().for_each(|v| *v = v.over(n));
            }
        });
    }
}

fn index_fill(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], pool: &Pool) -> OpResult<()> {
    let x = c.leaf("self")?;
    let slices = NamedSlices::new(c, "index_fill_(): Expected dtype int64 for index.", in_bounds)?;
    let value = scalar_arg(c.get("value"))?.cast(x.dtype());
    let value = Tensor::from_scalars(x.dtype(), &[], &[value]);
    copy_all(x, &mut outs[0], pool);
    let dst = outs[0].bytes_mut();
    with_size!(x.dtype().size(), N => {
        let (value, dst) = (value.bytes().as_chunks::<N>().0[0], dst.as_chunks_mut::<N>().0);
        slices.write(dst, Some(pool), |to, _| to.fill(value));
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 301 times 1 in bf16, which has no 257, at index 0 of a dim.
    #[test]
    fn sums_of_halves_are_rounded_once_where_torch_does_so() {
        let halves = |shape: &[usize]| Tensor::from_slice(shape, &vec![1.0f32; shape.iter().product()]).to(DType::BF16);
        for (dim, [before, after], once) in [(0, [1, 1], true), (1, [3, 1], true), (1, [2, 4], false)] {
            let shape = |n: usize| match (dim, after) {
                (0, _) => vec![n, 2],
                (_, 1) => vec![before, n],
                _ => vec![before, n, after],
            };
            for dtype in [DType::I64, DType::I32] {
                let index = Tensor::zeros(dtype, &[301]);
                let args = [Val::Leaf(halves(&shape(2))), Val::int(dim), Val::Leaf(index)];
                let call = Call {
                    op: crate::op::by_name("index_add").expect("a row"),
                    args: [args.to_vec(), vec![Val::Leaf(halves(&shape(301))), Val::int(1)]].concat(),
                };
                let mut out = Tensor::zeros(DType::BF16, &shape(2));
                index_add(&call, &mut [ViewMut::from(&mut out)], &Pool::new(1)).expect("sums");
                let want = if once && dtype == DType::I64 { 302.0 } else { 256.0 };
                assert_eq!(out.get(0).to_f64(), want, "dim {dim} {dtype}");
            }
        }
    }

    /// Only index_fill counts negative indices from the end, as in torch.
    #[test]
    fn negative_indices_are_refused_where_torch_refuses_them() {
        let x = || Val::Leaf(Tensor::from_slice(&[3, 2], &[1.0f32; 6]));
        let index = |i: i64| Val::Leaf(Tensor::from_slice(&[1], &[i]));
        let source = || Val::Leaf(Tensor::from_slice(&[1, 2], &[5.0f32; 2]));
        type Routine = fn(&Call<Tensor>, &mut [ViewMut<'_>], &Pool) -> OpResult<()>;
        let rows: [(&str, Routine, Vec<Val<Tensor>>); 4] = [
            ("index_add", index_add, vec![source(), Val::int(1)]),
            ("index_copy", index_copy, vec![source()]),
            (
                "index_reduce",
                index_reduce,
                vec![source(), Val::str("amax"), Val::Bool(true)],
            ),
            ("index_fill", index_fill, vec![Val::Float(5.0)]),
        ];
        for (name, routine, more) in rows {
            for (i, refused) in [(2, false), (-1, name != "index_fill"), (3, true), (-4, true)] {
                let call = Call {
                    op: crate::op::by_name(name).expect("a row"),
                    args: [vec![x(), Val::int(0), index(i)], more.clone()].concat(),
                };
                let mut out = Tensor::zeros(DType::F32, &[3, 2]);
                let done = routine(&call, &mut [ViewMut::from(&mut out)], &Pool::new(1));
                assert_eq!(done.is_err(), refused, "{name} of {i}");
                if !refused {
                    assert!(out.get(5).to_f64() >= 5.0, "{name} of {i}");
                }
            }
        }
    }
}
