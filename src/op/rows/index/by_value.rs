//! Ops whose result depends on values: nonzero, masked_select, one_hot, counting.

mod bincount;
mod counting;
mod nonzero;
mod unique;

use self::counting::{by_max, histogram_rows};
pub(super) use self::nonzero::nonzero;
use self::unique::unique;
use crate::op::emit::dims_val;
use crate::op::rows::dense::zeros;
use crate::op::rows::fill::{expanded, units_per_part, with_size};
use crate::op::{Build, Call, Meaning, MemoryOrder, Op, OpBuilder, OpError, OpId, OpResult, Sizes, Traced};
use crate::parallel::Pool;
use crate::tensor::{Tensor, ViewMut, with_wide_vectors};
use crate::types::{DType, Dim, TensorType, Val};

pub(super) fn rows() -> Vec<Op> {
    let mut v = nonzero_rows();
    v.extend(nonzero_form_rows());
    v.extend(masked_rows());
    v.extend(histogram_rows());
    v.extend(bincount::rows());
    v.push(by_max());
    v.extend(unique_rows());
    v
}

fn nonzero_rows() -> Vec<Op> {
    vec![
        Op::new(
            "nonzero(Tensor self) -> Tensor",
            |c, _| {
                let rank = c.shaped("self")?.1.len();
                Ok(Val::Leaf(TensorType::new(
                    DType::I64,
                    vec![Dim::Unknown, Dim::from(rank)],
                )))
            },
            Meaning::Routine(|c| nonzero(c.leaf("self")?).map(Val::Leaf)),
        )
        .order(MemoryOrder::Columns)
        .doc("the indices of nonzero elements, as rows")
        .spelled("aten.@ aten.argwhere.default torch.argwhere Tensor.argwhere torch.@ Tensor.@"),
        Op::composite("nonzero_tuple(Tensor self, *, bool as_tuple) -> Any", |b, c| {
            match c.bool("as_tuple")? {
                true => b.call(OpId::WhereNonzero, vec![c.get("self").clone()]),
                false => b.call(OpId::Nonzero, vec![c.get("self").clone()]),
            }
        })
        .doc("the indices of nonzero elements, as rows or as one tensor per dim")
        .spelled("torch.nonzero Tensor.nonzero"),
    ]
}

/// `nonzero` with a given number of results, and as a tuple.
fn nonzero_form_rows() -> Vec<Op> {
    vec![
        Op::new(
            "nonzero_static(Tensor self, *, SymInt size, int fill_value=-1) -> Tensor",
            |c, _| {
                let rank = c.shaped("self")?.1.len();
                Ok(Val::Leaf(TensorType::new(
                    DType::I64,
                    vec![c.dims("size")?[0].clone(), Dim::from(rank)],
                )))
            },
            Meaning::Routine(nonzero_static),
        )
        .doc("the first `size` rows of nonzero, padded with a fill value")
        .spelled("aten.@ torch.@ Tensor.@"),
        Op::composite("where_nonzero(Tensor condition) -> Tensor[]", |b, c| {
            let x = b.atleast_1d(c.leaf("condition")?)?;
            let rows = b.nonzero(&x)?;
            b.call(OpId::Unbind, vec![rows.into(), Val::int(1)])
        })
        .doc("the indices of nonzero elements, as one tensor per dim")
        .spelled("aten.where.default aten.nonzero_numpy.default torch.where"),
    ]
}

fn masked_rows() -> Vec<Op> {
    vec![
        Op::composite("masked_select(Tensor self, Tensor mask) -> Tensor", |b, c| {
            let (x, mask) = (c.leaf("self")?, c.leaf("mask")?);
            if mask.dtype() != DType::B8 {
                return Err(OpError::dtype("masked_select: expected BoolTensor for mask"));
            }
            let shape = Sizes::default().broadcast(x.shape()?, mask.shape()?)?;
            let (x, mask) = (b.expand(x, &shape)?, b.expand(mask, &shape)?);
            let (x, mask) = (b.ravel(&x)?, b.ravel(&mask)?);
            b.index(x, Val::List(vec![mask.into()])).map(Val::Leaf)
        })
        .doc("the elements where the mask is true, as a vector")
        .spelled("aten.@ torch.@ Tensor.@"),
        Op::new(
            "masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor",
            |c, s| {
                let (d, x) = c.shaped("self")?;
                let (md, mask) = c.shaped("mask")?;
                if md != DType::B8 {
                    return Err(OpError::dtype(
                        "masked_scatter_ only supports boolean masks, but got mask with dtype ".to_string()
                            + md.torch_name(),
                    ));
                }
                if c.leaf("source")?.dtype != d {
                    return Err(OpError::dtype(
                        "masked_scatter: expected self and source to have same dtypes",
                    ));
                }
                Ok(Val::Leaf(TensorType::new(d, s.broadcast(x, mask)?)))
            },
            Meaning::Fill(masked_scatter),
        )
        .doc("a copy with consecutive elements of source written where the mask is true")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ Tensor.@_"),
    ]
}

fn unique_rows() -> Vec<Op> {
    vec![
        Op::new("unique(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False) -> (Tensor, Tensor, \
             Tensor)",
            |c, _| {
                let x = c.leaf("self")?;
                let vector = |d| Val::Leaf(TensorType::new(d, vec![Dim::Unknown]));
                let inverse = match c.bool("return_inverse")? || c.bool("return_counts")? {
                    true => Val::Leaf(TensorType { dtype: DType::I64, shape: x.shape.clone() }),
                    false => Val::Leaf(TensorType::new(DType::I64, vec![Dim::Const(0)])),
                };
                let counts = match c.bool("return_counts")? {
                    true => vector(DType::I64),
                    false => Val::Leaf(TensorType::new(DType::I64, vec![Dim::Const(0)])),
                };
                Ok(Val::Tuple(vec![vector(x.dtype), inverse, counts]))
            },
            Meaning::Routine(unique),
        )
        .doc("the sorted unique elements, the index of each element among them, and their counts")
        .spelled("aten._unique2.default"),
        Op::composite("unique_as_asked(Tensor input, bool sorted=True, bool return_inverse=False, bool return_counts=False, int? dim=None) -> Any",
            unique_as_asked,
        )
        .doc("the sorted unique elements, and on request the inverse indices and counts")
        .spelled("torch.unique torch.functional.unique Tensor.unique"),
        Op::composite("isin(Any elements, Any test_elements, *, bool assume_unique=False, bool invert=False) -> Tensor",
            isin,
        )
        .doc("whether each element is in a set of elements")
        .spelled("aten.@.Tensor_Tensor aten.@.Tensor_Scalar aten.@.Scalar_Tensor torch.@"),
    ]
}

/// Returns one tensor, or a tuple of those that the flags request.
fn unique_as_asked(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (inverse, counts) = (c.bool("return_inverse")?, c.bool("return_counts")?);
    let mut args = ["input", "sorted", "return_inverse", "return_counts"]
        .map(|p| c.get(p).clone())
        .to_vec();
    let op = if c.is_none("dim") {
        OpId::Unique
    } else {
        OpId::UniqueDim
    };
    if !c.is_none("dim") {
        args.insert(1, c.get("dim").clone());
    }
    let Val::Tuple(all) = b.call(op, args)? else {
        return Err(OpError::arg("input", "unique returns three results"));
    };
    let wanted = all.into_iter().zip([true, inverse, counts]).filter(|(_, asked)| *asked);
    let mut wanted: Vec<Val<Traced>> = wanted.map(|(v, _)| v).collect();
    Ok(if wanted.len() == 1 {
        wanted.remove(0)
    } else {
        Val::Tuple(wanted)
    })
}

fn nonzero_static(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let all = nonzero(c.leaf("self")?)?;
    let size = usize::try_from(c.int("size")?)
        .map_err(|_| OpError::arg("size", "nonzero_static: 'size' must be an non-negative integer"))?;
    let rank = all.shape()[1];
    let (fill, src) = (c.int("fill_value")?, all.as_slice::<i64>());
    let mut out = zeros(DType::I64, &[size, rank])?;
    for (i, v) in out.as_mut_slice::<i64>().iter_mut().enumerate() {
        *v = src.get(i).copied().unwrap_or(fill);
    }
    Ok(Val::Leaf(out))
}

fn masked_scatter(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], pool: &Pool) -> OpResult<()> {
    let (x, mask, source) = (c.leaf("self")?, c.leaf("mask")?, c.leaf("source")?);
    let shape = outs[0].shape().to_vec();
    let (x, mask) = (expanded(x, &shape), expanded(mask, &shape));
    let mask = mask.bytes();
    let len = units_per_part(mask.len(), x.dtype().size(), pool);
    // The number of elements of the source that the parts before each part take.
    let mut starts = vec![0; mask.len().div_ceil(len)];
    pool.run_parts(&mut starts, 1, |i, start| {
        let mask = &mask[i * len..mask.len().min((i + 1) * len)];
        start[0] = with_wide_vectors(|| mask.iter().map(|&m| (m != 0) as usize).sum());
    });
    let mut all = 0;
    starts.iter_mut().for_each(|s| all += std::mem::replace(s, all));
    if all > source.numel() {
        return Err(OpError::value("Number of elements of source < number of ones in mask"));
    }
    let (last, dst) = (source.numel().saturating_sub(1), outs[0].bytes_mut());
    if source.numel() == 0 {
        dst.copy_from_slice(x.bytes());
        return Ok(());
    }
    with_size!(x.dtype().size(), N => {
        let (from, new) = (x.bytes().as_chunks::<N>().0, source.bytes().as_chunks::<N>().0);
        pool.run_parts(dst.as_chunks_mut::<N>().0, len, |i, dst| {
            let mut next = starts[i];
            // No branch on the mask: its values are hard to predict.
            for ((d, old), &m) in dst.iter_mut().zip(&from[i * len..]).zip(&mask[i * len..]) {
                let candidates = [*old, new[next.min(last)]];
                *d = candidates[(m != 0) as usize];
                next += (m != 0) as usize;
            }
        });
    });
    Ok(())
}

fn isin(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, y) = (c.get("elements").clone(), c.get("test_elements").clone());
    for (v, name) in [(&x, "elements"), (&y, "test_elements")] {
        let number = matches!(
            v,
            Val::Int(_) | Val::Float(_) | Val::Bool(_) | Val::Complex(..) | Val::Any(_)
        );
        if !number && !matches!(v, Val::Leaf(_) | Val::Unknown) {
            let what = format!(
                "argument `{name}` of `isin` must be a tensor or a number, not {}",
                v.kind_name()
            );
            return Err(OpError::arg(name, what));
        }
    }
    let hit = match (&x, &y) {
        (Val::Leaf(x), Val::Leaf(y)) => {
            let flat = b.ravel(y)?;
            let rank = x.rank()?;
            let wide = b.unsqueeze(x, rank)?;
            let eq = b.eq(&wide, &flat)?;
            b.reduce(OpId::Any, &eq, &[rank], false)?
        }
        (Val::Leaf(x), y) => b.eq(x, y.clone())?,
        (x, Val::Leaf(y)) => {
            let eq = b.eq(y, x.clone())?;
            let flat = b.op(OpId::Reshape, [eq.into(), dims_val(&[Dim::Const(-1)])])?;
            b.reduce(OpId::Any, &flat, &[0], false)?
        }
        _ => return Err(OpError::arg("elements", "isin requires a tensor")),
    };
    if c.bool("invert")? {
        return b.logical_not(&hit).map(Val::Leaf);
    }
    Ok(hit.into())
}
