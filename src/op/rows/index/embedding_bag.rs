//! Embedding bags: sums, means or maxima over rows of a table.

use super::bags::{Bags, MAXIMUM};
use crate::op::IndexLimit;
use crate::op::rows::dense::{in_range, native, to_i64_indices, with_number};
use crate::op::{Build, Call, Meaning, Op, OpBuilder, OpError, OpId, OpResult, Sizes, Traced};
use crate::parallel::Pool;
use crate::tensor::{Tensor, ViewMut};
use crate::types::{DType, Dim, TensorType, Type, Val, promote_types};
use half::{bf16, f16};

pub(super) fn rows() -> Vec<Op> {
    [bag_rows(), bag_form_rows()].into_iter().flatten().collect()
}

fn bag_rows() -> Vec<Op> {
    vec![
        Op::new("embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0, bool \
             sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False, int? padding_idx=None) -> (Tensor, \
             Tensor, Tensor, Tensor)",
            bag_type,
            Meaning::Fill(combine_bags),
        )
        .doc("the sum (mode 0), mean (1) or maximum (2) of the rows of weight for every bag of indices")
        .index_limits(&[("indices", IndexLimit::Rows("weight")), ("offsets", IndexLimit::Offsets("indices"))])
        .spelled("aten.@ aten.@.padding_idx torch.@",
        ),
        Op::composite("_embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0, bool \
             sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False, int padding_idx=-1) -> (Tensor, \
             Tensor, Tensor, Tensor)",
            |b, c| {
                let mut args = c.args.clone();
                if c.int("padding_idx")? < 0 {
                    args[8] = Val::None;
                }
                b.call(OpId::EmbeddingBag, args)
            },
        )
        .doc("embedding_bag; a negative padding_idx means none")
        .index_limits(&[("indices", IndexLimit::Rows("weight")), ("offsets", IndexLimit::Offsets("indices"))])
        .spelled(
            "aten._embedding_bag.default aten._embedding_bag_forward_only.default torch._embedding_bag \
             torch._embedding_bag_forward_only",
        ),
    ]
}

/// Bags of packed tables and of matrices of indices.
fn bag_form_rows() -> Vec<Op> {
    vec![
        Op::composite("embedding_bag_byte_unpack(Tensor weight) -> Tensor",
            byte_unpack,
        )
        .doc("rows of bytes, each followed by its f32 scale and offset, converted to f32")
        .spelled("quantized.@.default"),
        Op::composite("embedding_bag_mode(Tensor input, Tensor weight, Tensor? offsets=None, float? max_norm=None, float norm_type=2.0, bool \
             scale_grad_by_freq=False, str mode='mean', bool sparse=False, Tensor? per_sample_weights=None, bool \
             include_last_offset=False, int? padding_idx=None) -> Tensor",
            by_mode,
        )
        .doc("embedding_bag with a named mode; without offsets, every row of input is a bag")
        .index_limits(&[("input", IndexLimit::Rows("weight")), ("offsets", IndexLimit::Offsets("input"))])
        .spelled("torch.nn.functional.embedding_bag")
        .module(
            "EmbeddingBag(num_embeddings, embedding_dim, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, mode='mean', \
             sparse=False, _weight=None, include_last_offset=False, padding_idx=None) = embedding_bag_mode($0, \
             @weight[num_embeddings, embedding_dim], $1?, \
             max_norm, norm_type, scale_grad_by_freq, mode, sparse, $2?, include_last_offset, padding_idx)",
        ),
    ]
}

/// `bytes * scale + offset`. The last eight bytes of each row hold the bits of scale and offset.
fn byte_unpack(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("weight")?;
    let last = x.rank()?.checked_sub(1);
    let columns = last.and_then(|d| x.shape().ok()?[d].as_const()).filter(|n| *n >= 8);
    let (Some(dim), Some(columns), DType::U8) = (last, columns, x.dtype()) else {
        return Err(OpError::arg("weight", "expected rows of at least 8 bytes"));
    };
    let part = |b: &mut dyn Build, from: i64, to: i64| b.slice(x, dim, Dim::Const(from), Dim::Const(to), 1);
    let float = |b: &mut dyn Build, from: i64| {
        let bytes = part(b, from, from + 4)?;
        let bytes = b.clone(&bytes)?;
        b.view_dtype(bytes, Val::DType(DType::F32))
    };
    let (scale, offset) = (float(b, columns - 8)?, float(b, columns - 4)?);
    let values = part(b, 0, columns - 8)?;
    let values = b.to_dtype(&values, DType::F32)?;
    let scaled = b.mul(&values, &scale)?;
    b.add(&scaled, &offset).map(Val::Leaf)
}

/// The operands of an embedding bag, flattened to one dim.
struct BagInput {
    input: Traced,
    weights: Option<Traced>,
    offsets: Traced,
}

/// Flattens rows of equal length, which have no offsets, and computes their offsets.
fn flatten_bags(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<BagInput> {
    let mut input = c.leaf("input")?.clone();
    let mut weights = c.opt_leaf("per_sample_weights").cloned();
    let offsets = match (c.opt_leaf("offsets"), input.shape()?.to_vec().as_slice()) {
        (None, [rows, len]) => {
            let n = rows.mul(len);
            input = b.reshape(&input, std::slice::from_ref(&n))?;
            weights = weights.map(|w| b.reshape(&w, std::slice::from_ref(&n))).transpose()?;
            let index = b.op(
                OpId::Arange,
                [
                    Val::int(0),
                    Val::Int(rows.clone()),
                    Val::int(1),
                    Val::DType(input.dtype()),
                ],
            )?;
            b.mul(&index, Val::Int(len.clone()))?
        }
        (Some(_), [_, _]) => return Err(OpError::shape("if input is 2D, then offsets has to be None")),
        (Some(o), [_]) => o.clone(),
        (None, [_]) => return Err(OpError::shape("offsets has to be a 1D Tensor but got None")),
        (_, s) => {
            return Err(OpError::shape(format!(
                "input has to be 1D or 2D Tensor, but got Tensor of dimension {}",
                s.len()
            )));
        }
    };
    Ok(BagInput {
        input,
        weights,
        offsets,
    })
}

fn by_mode(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    if !c.is_none("max_norm") {
        return Err(OpError::arg(
            "max_norm",
            "embedding_bag with max_norm, which modifies its weight, is not supported",
        ));
    }
    let mode = match c.str("mode")? {
        "sum" => 0,
        "mean" => 1,
        "max" => 2,
        _ => return Err(OpError::arg("mode", "mode has to be one of sum, mean or max")),
    };
    let BagInput {
        input,
        weights,
        offsets,
    } = flatten_bags(b, c)?;
    let args = vec![
        c.get("weight").clone(),
        input.into(),
        offsets.into(),
        Val::Bool(false),
        Val::int(mode),
        Val::Bool(false),
        weights.map_or(Val::None, Val::Leaf),
        c.get("include_last_offset").clone(),
        c.get("padding_idx").clone(),
    ];
    let all = b.call_many(OpId::EmbeddingBag, args)?;
    all.into_iter()
        .next()
        .map(Val::Leaf)
        .ok_or_else(|| OpError::arg("input", "embedding_bag returns four tensors"))
}

/// Checks a call with indices of dtype `id`, and gives its mode: 0 (sum), 1 (mean) or 2 (max).
fn bag_mode(c: &Call<TensorType>, id: DType) -> OpResult<i64> {
    if !matches!(id, DType::I64 | DType::I32) {
        return Err(OpError::dtype(format!(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got {} instead",
            id.scalar_type_name()
        )));
    }
    let mode = c.int("mode")?;
    if !(0..=2).contains(&mode) {
        return Err(OpError::arg(
            "mode",
            "embedding_bag: mode must be 0 (sum), 1 (mean) or 2 (max)",
        ));
    }
    if !c.is_none("per_sample_weights") && mode != 0 {
        return Err(OpError::arg(
            "per_sample_weights",
            "per_sample_weights only supported with mode='sum'",
        ));
    }
    Ok(mode)
}

/// An error unless there is a weight for each index.
fn check_sample_weights(c: &Call<TensorType>, indices: &Dim, sizes: &mut Sizes) -> OpResult<()> {
    if c.is_none("per_sample_weights") {
        return Ok(());
    }
    let title = || "expected per_sample_weights to have one element for each index".to_string();
    match c.shaped("per_sample_weights")?.1 {
        [n] => sizes.unify_dims(n, indices, title).map(drop),
        _ => Err(OpError::shape(title())),
    }
}

/// The number of bags.
fn bag_count(c: &Call<TensorType>, offsets: &Dim) -> OpResult<Dim> {
    match c.bool("include_last_offset")? {
        true if *offsets == Dim::Const(0) => {
            let title = "include_last_offset: number of offset should be at least 1";
            Err(OpError::shape(title))
        }
        true => Ok(offsets.sub(&Dim::Const(1))),
        false => Ok(offsets.clone()),
    }
}

fn bag_type(c: &Call<TensorType>, sizes: &mut Sizes) -> OpResult<Type> {
    let (d, w) = c.shaped("weight")?;
    let (id, i) = c.shaped("indices")?;
    let offsets = c.shaped("offsets")?.1;
    if w.len() != 2 {
        return Err(OpError::shape("weight has to be a 2D Tensor"));
    }
    let (1, 1) = (i.len(), offsets.len()) else {
        return Err(OpError::shape("embedding_bag: indices and offsets must be vectors"));
    };
    // torch converts both to their promoted dtype.
    let id = promote_types(id, c.leaf("offsets")?.dtype).unwrap_or(id);
    let mode = bag_mode(c, id)?;
    check_sample_weights(c, &i[0], sizes)?;
    let n = bag_count(c, &offsets[0])?;
    let leaf = |d: DType, shape: Vec<Dim>| Val::Leaf(TensorType::new(d, shape));
    let max = if mode == 2 {
        vec![n.clone(), w[1].clone()]
    } else {
        vec![n.clone()]
    };
    Ok(Val::Tuple(vec![
        leaf(d, vec![n.clone(), w[1].clone()]),
        leaf(
            DType::I64,
            vec![if sums_directly(c, d)? {
                Dim::Const(0)
            } else {
                i[0].clone()
            }],
        ),
        leaf(DType::I64, vec![n]),
        leaf(DType::I64, max),
    ]))
}

/// Whether torch sums without recording the bag of each index (its `is_fast_path`). Then the second result is empty.
fn sums_directly<T: Clone>(c: &Call<T>, weight: DType) -> OpResult<bool> {
    let narrow = matches!(weight, DType::F32 | DType::F16 | DType::BF16);
    Ok(narrow && c.int("mode")? == 0 && c.opt_int("padding_idx")?.is_none())
}

/// The begin and end of each bag in the list of indices.
fn bag_bounds(offsets: &[i64], indices: usize, last_is_end: bool) -> OpResult<Vec<(usize, usize)>> {
    if let Some(first) = offsets.first().filter(|f| **f != 0) {
        return Err(OpError::value(format!(
            "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. However, got {first}"
        )));
    }
    let bags = offsets.len() - (last_is_end && !offsets.is_empty()) as usize;
    let of_bag = |k: usize| {
        let (begin, end) = (offsets[k], offsets.get(k + 1).copied().unwrap_or(indices as i64));
        match 0 <= begin && begin <= end && end <= indices as i64 {
            true => Ok((begin as usize, end as usize)),
            false => Err(OpError::value(
                "embedding_bag: offsets must rise and be within the indices",
            )),
        }
    };
    (0..bags).map(of_bag).collect()
}

/// An error if a bag has an index that is not a row of the table.
fn check_rows(indices: &[i64], bounds: &[(usize, usize)], rows: usize) -> OpResult<()> {
    let used = bounds.iter().flat_map(|&(begin, end)| &indices[begin..end]);
    { used }.try_for_each(|&row| match in_range(row, rows, 0) {
        Ok(_) => Ok(()),
        Err(_) => Err(OpError::value("index out of range in self")),
    })
}

fn combine_bags(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], pool: &Pool) -> OpResult<()> {
    let w = c.leaf("weight")?;
    let (i, o) = (
        to_i64_indices(&c.leaf("indices")?.to(DType::I64), "indices must be integers")?,
        to_i64_indices(&c.leaf("offsets")?.to(DType::I64), "offsets must be integers")?,
    );
    let (i, o) = (i.as_slice::<i64>(), o.as_slice::<i64>());
    let bounds = bag_bounds(o, i.len(), c.bool("include_last_offset")?)?;
    let rows = w.shape()[0];
    check_rows(i, &bounds, rows)?;
    let padding = c.opt_int("padding_idx")?;
    let bags = Bags {
        indices: i,
        bounds: &bounds,
        padding: padding.map(|p| if p < 0 { p + rows as i64 } else { p }),
        dim: w.shape()[1],
        mode: c.int("mode")?,
    };
    let [out, of_bag, count, max] = outs else { return Ok(()) };
    bags.write_bag_numbers(of_bag.as_mut_slice());
    bags.write_counts(count.as_mut_slice());
    let max = max.as_mut_slice::<i64>();
    if bags.mode != MAXIMUM {
        bags.write_counts(max);
    }
    let weights = c.opt_leaf("per_sample_weights").map(|t| t.to(native(w.dtype())));
    match w.dtype() {
        DType::F32 => bags.run::<f32>(w, weights.as_ref(), out, max, pool),
        DType::F64 => bags.run::<f64>(w, weights.as_ref(), out, max, pool),
        DType::F16 => bags.run::<f16>(w, weights.as_ref(), out, max, pool),
        DType::BF16 => bags.run::<bf16>(w, weights.as_ref(), out, max, pool),
        d => {
            let wide = w.to(native(d));
            let mut y = Tensor::zeros(wide.dtype(), out.shape());
            with_number!(d, T => bags.run::<T>(&wide, weights.as_ref(), &mut (&mut y).into(), max, pool));
            out.fill_from(&y.to(d));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a call is accepted, with two indices and this many sample weights and offsets.
    fn is_accepted(weights: Option<&[usize]>, offsets: usize, has_end: bool) -> bool {
        let ty = |d: DType, shape: &[usize]| Val::Leaf(TensorType::with_fixed_shape(d, shape));
        let call = Call {
            op: crate::op::by_name("embedding_bag").expect("a row"),
            args: vec![
                ty(DType::F32, &[5, 3]),
                ty(DType::I64, &[2]),
                ty(DType::I64, &[offsets]),
                Val::Bool(false),
                Val::int(0),
                Val::Bool(false),
                weights.map_or(Val::None, |shape| ty(DType::F32, shape)),
                Val::Bool(has_end),
                Val::None,
            ],
        };
        call.op.result_type(&call, &mut Sizes::default()).is_ok()
    }

    #[test]
    fn every_index_has_a_weight_and_ends_need_an_offset() {
        assert!(is_accepted(None, 1, false) && is_accepted(Some(&[2]), 1, false) && is_accepted(None, 1, true));
        assert!(!is_accepted(Some(&[0]), 1, false) && !is_accepted(Some(&[3]), 1, false));
        assert!(!is_accepted(Some(&[2, 1]), 1, false) && !is_accepted(None, 0, true));
    }
}
