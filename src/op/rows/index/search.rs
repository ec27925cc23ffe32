//! Searching in sorted lines.

use super::combine::{Cell, with_cell};
use super::sort::float_order;
use crate::op::rows::fill::units_per_part;
use crate::op::{Call, Meaning, Op, OpError, OpResult, Sizes};
use crate::parallel::Pool;
use crate::tensor::{Scalar, Tensor, ViewMut};
use crate::types::{DType, TensorType, Type, Val};
use std::cmp::Ordering;
use std::hint::select_unpredictable;

pub(super) fn rows() -> Vec<Op> {
    [search_rows(), bucket_rows()].into_iter().flatten().collect()
}

/// Rows that search in sorted boundaries.
fn search_rows() -> Vec<Op> {
    vec![
        Op::new(
            "searchsorted(Tensor sorted_sequence, Any self, *, bool out_int32=False, bool right=False, str? side=None, \
             Tensor? sorter=None) -> Tensor",
            search_type,
            Meaning::Fill(|c, outs, pool| {
                let right = c.bool("right")? || c.get("side").as_str() == Some("right");
                let sorted = match c.opt_leaf("sorter") {
                    Some(s) => apply_sorter(c.leaf("sorted_sequence")?, s)?,
                    None => c.leaf("sorted_sequence")?.clone(),
                };
                search_sorted(&sorted, c.get("self"), right, &mut outs[0], pool)
            }),
        )
        .doc("the insertion index of each value in a sorted row")
        .spelled("aten.@.Tensor aten.@.Scalar torch.@"),
    ]
}

fn bucket_rows() -> Vec<Op> {
    vec![
        Op::new(
            "bucketize(Any self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor",
            |c, _| {
                let b = c.shaped("boundaries")?.1;
                if b.len() != 1 {
                    return Err(OpError::shape(format!(
                        "boundaries tensor must be 1 dimension, but got dim({})",
                        b.len()
                    )));
                }
                search_result(c)
            },
            Meaning::Fill(|c, outs, pool| {
                search_sorted(
                    c.leaf("boundaries")?,
                    c.get("self"),
                    c.bool("right")?,
                    &mut outs[0],
                    pool,
                )
            }),
        )
        .doc("the index of the interval between boundaries that contains each value")
        .spelled("aten.@.Tensor aten.@.Scalar torch.@"),
    ]
}

fn search_result(c: &Call<TensorType>) -> OpResult<Type> {
    let dtype = if c.bool("out_int32")? { DType::I32 } else { DType::I64 };
    let shape = match c.get("self") {
        Val::Leaf(t) => t.shape.clone(),
        Val::Unknown => None,
        Val::Int(_) | Val::Float(_) | Val::Bool(_) | Val::Any(_) => Some(vec![]),
        _ => return Err(OpError::arg("self", "the values must be a tensor or a number")),
    };
    Ok(Val::Leaf(TensorType { dtype, shape }))
}

fn search_type(c: &Call<TensorType>, sizes: &mut Sizes) -> OpResult<Type> {
    if c.bool("right")? && c.get("side").as_str() == Some("left") {
        return Err(OpError::arg(
            "side",
            "side and right can't be set to opposites, got side of left while right was True",
        ));
    }
    let s = c.shaped("sorted_sequence")?.1;
    if let (true, Some(Val::Leaf(v))) = (s.len() != 1, c.args.get(1)) {
        let v = v.shape.clone().unwrap_or_default();
        let text = || {
            "boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor and input value tensor must \
             match"
                .to_string()
        };
        if v.len() != s.len() {
            return Err(OpError::shape(text()));
        }
        for (a, b) in s.iter().zip(&v).take(s.len().saturating_sub(1)) {
            sizes.unify_dims(a, b, text)?;
        }
    }
    search_result(c)
}

fn apply_sorter(x: &Tensor, order: &Tensor) -> OpResult<Tensor> {
    if x.shape() != order.shape() || order.dtype() != DType::I64 {
        return Err(OpError::shape(
            "boundary and sorter must have the same size, and the sorter must be i64",
        ));
    }
    let n = x.shape().last().copied().unwrap_or(1).max(1);
    for &i in order.as_slice::<i64>() {
        crate::op::rows::dense::in_range(i, n, 0)?;
    }
    let places = order.as_slice::<i64>();
    Ok(Tensor::from_fn(x.dtype(), x.shape(), |i| {
        x.get(i / n * n + places[i] as usize)
    }))
}

fn search_sorted(
    sorted: &Tensor,
    values: &Val<Tensor>,
    right: bool,
    out: &mut ViewMut<'_>,
    pool: &Pool,
) -> OpResult<()> {
    let values = match values {
        Val::Leaf(t) => t.clone(),
        Val::Float(x) => Tensor::scalar(*x),
        v => Tensor::scalar(
            v.as_int()
                .ok_or_else(|| OpError::arg("self", "the values must be a tensor or a number"))?,
        ),
    };
    if values.numel() == 0 {
        return Ok(());
    }
    if out.dtype() == DType::I64 {
        search_all(sorted, &values, right, out.as_mut_slice(), pool);
    } else {
        let mut found = vec![0; values.numel()];
        search_all(sorted, &values, right, &mut found, pool);
        out.fill_from(&Tensor::from_slice(values.shape(), &found).to(out.dtype()));
    }
    Ok(())
}

fn search_all(sorted: &Tensor, values: &Tensor, right: bool, found: &mut [i64], pool: &Pool) {
    let is_half = |t: &Tensor| t.dtype().is_half();
    // Processors compare f32. Few values are not worth converting the sequence.
    if is_half(sorted) && is_half(values) && sorted.numel() / 4 <= values.numel() {
        let [sorted, values] = [sorted, values].map(|t| t.to(DType::F32));
        return search_all(&sorted, &values, right, found, pool);
    }
    // A search reads about ten elements.
    let len = units_per_part(found.len(), 10 * sorted.dtype().size(), pool);
    pool.run_parts(found, len, |part, found| {
        if !search_cells(sorted, values, right, part * len, found) {
            search_scalars(sorted, values, right, part * len, found);
        }
    });
}

/// The number of values for each line of the sorted sequence, and the length of a line. A 1-dim sequence is used for all
/// values; otherwise each line has its own.
fn search_lines(sorted: &Tensor, values: &Tensor) -> (usize, usize) {
    let per_line = match sorted.rank() {
        0 | 1 => values.numel().max(1),
        _ => values.shape().last().copied().unwrap_or(1).max(1),
    };
    (per_line, sorted.shape().last().copied().unwrap_or(1))
}

/// Searches for the values from `first` on, if both tensors have one dtype that has cells. Otherwise returns false.
fn search_cells(sorted: &Tensor, values: &Tensor, right: bool, first: usize, found: &mut [i64]) -> bool {
    if sorted.dtype() != values.dtype() {
        return false;
    }
    let (per_line, n) = search_lines(sorted, values);
    with_cell!(values.dtype(), T => {
        let (sorted, values) = (sorted.as_slice::<T>(), &values.as_slice::<T>()[first..]);
        let (mut done, count) = (0, found.len());
        while done < count {
            let r = (first + done) / per_line;
            let next = ((r + 1) * per_line - first).min(count);
            let line = &sorted[r * n..][..n];
            search_line(line, &values[done..next], right, &mut found[done..next]);
            done = next;
        }
        true
    }, else false)
}

/// [`search_cells`] for any dtypes.
fn search_scalars(sorted: &Tensor, values: &Tensor, right: bool, first: usize, found: &mut [i64]) {
    let (per_line, n) = search_lines(sorted, values);
    for (i, found) in (first..).zip(found) {
        let (base, v) = (i / per_line * n, values.get(i));
        *found = partition_point(n, |k| {
            let order = match (sorted.get(base + k), v) {
                (Scalar::Int(_, a), Scalar::Int(_, b)) => a.cmp(&b),
                (s, v) => float_order(s.to_f64(), v.to_f64()),
            };
            order == Ordering::Less || (right && order == Ordering::Equal)
        }) as i64;
    }
}

/// For each value, the number of elements of an ordered line that come before it; with `right`, also those that are equal. NaN is the
/// greatest.
fn search_line<T: Cell>(line: &[T], values: &[T], right: bool, found: &mut [i64]) {
    let numbers = partition_point(line.len(), |k| !line[k].is_nan());
    let (line, before_nan) = (&line[..numbers], if right { line.len() } else { numbers });
    match right {
        true => search_numbers(line, values, before_nan, |a, v| a <= v, found),
        false => search_numbers(line, values, before_nan, |a, v| a < v, found),
    }
}

/// The number of searches that run in step. The steps of one search wait for each other.
const SEARCHES: usize = 8;

/// [`search_line`] of a line without NaN. The answer for NaN is given.
fn search_numbers<T: Cell>(
    line: &[T],
    values: &[T],
    before_nan: usize,
    before: impl Fn(T, T) -> bool,
    found: &mut [i64],
) {
    let answer = |v: T, at: usize| if v.is_nan() { before_nan as i64 } else { at as i64 };
    let (blocks, rest) = values.as_chunks::<SEARCHES>();
    let (found, last) = found.as_chunks_mut::<SEARCHES>();
    for (values, found) in blocks.iter().zip(found) {
        let (mut low, mut left) = ([0; SEARCHES], line.len());
        while left > 1 {
            let half = left / 2;
            for (low, &v) in low.iter_mut().zip(values) {
                // The compiler would branch, and predict half of the answers wrongly.
                *low = select_unpredictable(before(line[*low + half - 1], v), *low + half, *low);
            }
            left -= half;
        }
        if left == 1 {
            for (low, &v) in low.iter_mut().zip(values) {
                *low = select_unpredictable(before(line[*low], v), *low + 1, *low);
            }
        }
        for ((found, &low), &v) in found.iter_mut().zip(&low).zip(values) {
            *found = answer(v, low);
        }
    }
    for (found, &v) in last.iter_mut().zip(rest) {
        *found = answer(v, partition_point(line.len(), |k| before(line[k], v)));
    }
}

/// The first of `n` positions that is not `before`. The steps do not depend on the answers, so that no branch is mispredicted.
#[inline(always)]
fn partition_point(n: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut left) = (0, n);
    while left > 1 {
        let half = left / 2;
        low += half * before(low + half - 1) as usize;
        left -= half;
    }
    low + (left == 1 && before(low)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sequences of several lengths, with and without NaN, and more values than run in step.
    #[test]
    fn searches_count_what_comes_before() {
        let nan = f32::NAN;
        let line = [-f32::INFINITY, -1.0, -0.0, 0.0, 0.0, 2.5, 7.0, f32::INFINITY, nan, nan];
        let values: Vec<f32> = line.iter().copied().chain([-3.0, 1.0, 7.5, 2.5, -0.5]).collect();
        let before = |a: f32, b: f32| a < b || (b.is_nan() && !a.is_nan());
        for line in [
            &line[..0],
            &line[..1],
            &line[..7],
            &line[..8],
            &line[..9],
            &line,
            &line[8..],
        ] {
            for right in [false, true] {
                let count = |v: f32| {
                    line.iter()
                        .filter(|&&a| if right { !before(v, a) } else { before(a, v) })
                        .count()
                };
                let want: Vec<i64> = values.iter().map(|&v| count(v) as i64).collect();
                let mut found = vec![0; values.len()];
                search_line(line, &values, right, &mut found);
                assert_eq!(found, want, "{line:?} {right}");
            }
        }
    }

    /// Halves are searched as f32 if there are enough values, else one by one.
    #[test]
    fn halves_are_found_as_f32() {
        let line = Tensor::from_slice(&[8], &[-2.0f32, -0.0, 0.0, 1.5, 1.5, 2.0, 3.0, f32::NAN]);
        let few = Tensor::from_slice(&[1], &[1.5f32]);
        let many = Tensor::from_slice(&[4], &[0.0f32, 1.5, f32::NAN, -3.0]);
        for (dtype, values) in [
            (DType::BF16, &few),
            (DType::BF16, &many),
            (DType::F16, &few),
            (DType::F16, &many),
        ] {
            let by = |dtype: DType, right: bool| {
                let mut found = vec![0; values.numel()];
                search_all(&line.to(dtype), &values.to(dtype), right, &mut found, &Pool::new(1));
                found
            };
            assert_eq!(by(dtype, false), by(DType::F32, false));
            assert_eq!(by(dtype, true), by(DType::F32, true));
        }
    }
}
