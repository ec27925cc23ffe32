//! Running extrema with their positions: cummax and cummin.

use super::cumulative::scan_type;
use super::half_order::{BF16_INFINITY, F16_INFINITY, order_key};
use super::scan::lines_of;
use crate::op::rows::fill::{run_pairs, units_per_part};
use crate::op::rows::index::combine::{Cell, with_cell};
use crate::op::rows::lines::{DimLines, WideValues, tensor_of};
use crate::op::{Call, Meaning, Op, OpError, OpResult};
use crate::parallel::{Columns, Pool};
use crate::tensor::{Tensor, ViewMut, WideLoop, cells_of, cells_of_mut, run_wide};
use crate::types::{DType, TensorType, Type, Val};
use std::hint::select_unpredictable;
use std::marker::PhantomData;

pub(super) fn rows() -> Vec<Op> {
    vec![
        Op::new(
            "cummax(Tensor self, int dim) -> (Tensor values, Tensor indices)",
            |c, _| running_type(c),
            Meaning::Fill(|c, outs, pool| running_extremum(c, outs, true, pool)),
        )
        .doc("the cumulative maximum along a dim, and the index of its last occurrence; NaN propagates")
        .spelled("aten.@ torch.@ Tensor.@"),
        Op::new(
            "cummin(Tensor self, int dim) -> (Tensor values, Tensor indices)",
            |c, _| running_type(c),
            Meaning::Fill(|c, outs, pool| running_extremum(c, outs, false, pool)),
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

fn running_extremum(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], largest: bool, pool: &Pool) -> OpResult<()> {
    let t = c.leaf("self")?;
    let lines = lines_of(c, t)?;
    let [values, indices] = outs else {
        return Err(OpError::arg("self", "values and indices are two results"));
    };
    let indices = indices.as_mut_slice::<i64>();
    if t.dtype().is_half() {
        let (bits, values) = (cells_of(t.bytes()), cells_of_mut(values.bytes_mut()));
        match t.dtype() {
            DType::F16 => run_lines::<_, ByBits<F16_INFINITY>>(bits, values, indices, &lines, largest, pool),
            _ => run_lines::<_, ByBits<BF16_INFINITY>>(bits, values, indices, &lines, largest, pool),
        }
        return Ok(());
    }
    with_cell!(t.dtype(), T => {
        run_lines::<_, ByValue>(t.as_slice::<T>(), values.as_mut_slice::<T>(), indices, &lines, largest, pool);
    }, else {
        let mut picked = WideValues::from_tensor(t);
        match &mut picked {
            WideValues::Float(v) => run_lines::<_, ByValue>(&v.clone(), v, indices, &lines, largest, pool),
            WideValues::Int(v) => run_lines::<_, ByValue>(&v.clone(), v, indices, &lines, largest, pool),
        }
        values.bytes_mut().copy_from_slice(tensor_of(t.dtype(), t.shape(), &picked).bytes());
    });
    Ok(())
}

/// The running extrema of all lines with their last positions. NaN stays.
fn run_lines<T: Cell, O: Order<T>>(
    v: &[T],
    values: &mut [T],
    indices: &mut [i64],
    lines: &DimLines,
    largest: bool,
    pool: &Pool,
) {
    match largest {
        true => run_lines_towards::<T, O, true>(v, values, indices, lines, pool),
        false => run_lines_towards::<T, O, false>(v, values, indices, lines, pool),
    }
}

/// [`run_lines`] for the largest or the smallest elements.
fn run_lines_towards<T: Cell, O: Order<T>, const LARGEST: bool>(
    v: &[T],
    values: &mut [T],
    indices: &mut [i64],
    lines: &DimLines,
    pool: &Pool,
) {
    let (n, inner) = (lines.len, lines.inner);
    if v.is_empty() {
        return;
    }
    let block = n * inner;
    if run_some_columns::<T, O, LARGEST>(v, (values, indices), lines, pool) {
        return;
    }
    let len = block * units_per_part(lines.outer, 2 * block * (size_of::<T>() + 8), pool);
    run_pairs(pool, (values, len), (indices, len), |i, values, indices| {
        let v = &v[i * len..][..values.len()];
        if inner == 1 {
            return run_wide(RunningRows::<_, _, LARGEST> {
                v,
                values,
                indices,
                n,
                order: PhantomData::<O>,
            });
        }
        let blocks = values.chunks_exact_mut(block).zip(indices.chunks_exact_mut(block));
        for ((values, indices), v) in blocks.zip(v.chunks_exact(block)) {
            RunningColumns::<_, _, LARGEST> {
                v,
                values,
                indices,
                inner,
                order: PhantomData::<O>,
            }
            .run_by_width();
        }
    });
}

/// [`run_lines_towards`] where threads take columns of each block of `n` rows; returns false if that does not save time.
fn run_some_columns<T: Cell, O: Order<T>, const LARGEST: bool>(
    v: &[T],
    (values, indices): (&mut [T], &mut [i64]),
    lines: &DimLines,
    pool: &Pool,
) -> bool {
    let (n, inner) = (lines.len, lines.inner);
    let columns = units_per_part(inner, 2 * n * (size_of::<T>() + 8), pool).next_multiple_of(COLUMNS);
    if columns >= inner || pool.threads() == 1 || lines.outer >= 4 * pool.threads() {
        return false;
    }
    let block = n * inner;
    let blocks = values.chunks_exact_mut(block).zip(indices.chunks_exact_mut(block));
    for (outs, v) in blocks.zip(v.chunks_exact(block)) {
        pool.run_column_pairs(outs, inner, columns, |i, values, indices| {
            run_wide(SomeColumns::<_, _, LARGEST> {
                v: &v[i * columns..],
                rows: n,
                inner,
                values,
                indices,
                order: PhantomData::<O>,
            });
        });
    }
    true
}

/// How elements are compared.
trait Order<T> {
    /// Whether `x` becomes the extremum, which is the largest element or the smallest one. NaN stays, because no number is at least or at
    /// most NaN. A direction that is no constant would keep loops from becoming vector code.
    fn takes<const LARGEST: bool>(x: T, best: T) -> bool;
}

struct ByValue;

impl<T: Cell> Order<T> for ByValue {
    #[inline(always)]
    fn takes<const LARGEST: bool>(x: T, best: T) -> bool {
        x.is_nan() | if LARGEST { x >= best } else { x <= best }
    }
}

/// The elements are the bits of 16-bit floats.
struct ByBits<const INFINITY: i16>;

impl<const INFINITY: i16> Order<i16> for ByBits<INFINITY> {
    #[inline(always)]
    fn takes<const LARGEST: bool>(x: i16, best: i16) -> bool {
        let [x, best] = [order_key::<INFINITY>(x, LARGEST), order_key::<INFINITY>(best, LARGEST)];
        if LARGEST { x >= best } else { x <= best }
    }
}

/// The number of elements of a row that are compared with the extremum before them at once.
const BLOCK: usize = 16;

/// The number of short rows that are handled at once, and the most elements of such a row.
const TOGETHER: usize = 4;
const SHORT_ROW: usize = 128;

/// The running extrema of rows of `n` elements. After the first elements of a row a new extremum is rare.
struct RunningRows<'a, T, O, const LARGEST: bool> {
    v: &'a [T],
    values: &'a mut [T],
    indices: &'a mut [i64],
    n: usize,
    order: PhantomData<O>,
}

impl<T: Cell, O: Order<T>, const LARGEST: bool> WideLoop for RunningRows<'_, T, O, LARGEST> {
    #[inline(always)]
    fn run(self) {
        let RunningRows {
            mut v,
            mut values,
            mut indices,
            n,
            ..
        } = self;
        let group = n * TOGETHER;
        while n <= SHORT_ROW && v.len() >= group {
            run_together::<T, O, LARGEST>(v, &mut values[..group], &mut indices[..group], n);
            (v, values, indices) = (&v[group..], &mut values[group..], &mut indices[group..]);
        }
        let rows = values.chunks_exact_mut(n).zip(indices.chunks_exact_mut(n));
        for ((values, indices), v) in rows.zip(v.chunks_exact(n)) {
            let mut best = (v[0], 0);
            let ((values, last_values), (indices, last_indices)) =
                (values.as_chunks_mut::<BLOCK>(), indices.as_chunks_mut::<BLOCK>());
            let (blocks, last) = v.as_chunks::<BLOCK>();
            for (b, ((values, indices), v)) in values.iter_mut().zip(indices).zip(blocks).enumerate() {
                let any = v.iter().fold(false, |any, &x| any | O::takes::<LARGEST>(x, best.0));
                if any {
                    best = run_block::<T, O, LARGEST>(v, values, indices, best, b * BLOCK);
                } else {
                    values.fill(best.0);
                    indices.fill(best.1);
                }
            }
            run_block::<T, O, LARGEST>(last, last_values, last_indices, best, blocks.len() * BLOCK);
        }
    }
}

/// The running extrema of the first rows, [`TOGETHER`] of them. An extremum waits for the one before it, but not for those of other
/// rows.
#[inline(always)]
fn run_together<T: Cell, O: Order<T>, const LARGEST: bool>(v: &[T], values: &mut [T], indices: &mut [i64], n: usize) {
    let v: [&[T]; TOGETHER] = std::array::from_fn(|r| &v[r * n..][..n]);
    let (mut values, mut indices) = (values.chunks_exact_mut(n), indices.chunks_exact_mut(n));
    let values: [&mut [T]; TOGETHER] = std::array::from_fn(|_| values.next().unwrap_or_default());
    let indices: [&mut [i64]; TOGETHER] = std::array::from_fn(|_| indices.next().unwrap_or_default());
    let mut best = v.map(|row| (row[0], 0));
    for k in 0..n {
        for r in 0..TOGETHER {
            let (x, best) = (v[r][k], &mut best[r]);
            let takes = O::takes::<LARGEST>(x, best.0);
            best.0 = select_unpredictable(takes, x, best.0);
            best.1 = select_unpredictable(takes, k as i64, best.1);
            (values[r][k], indices[r][k]) = *best;
        }
    }
}

/// The running extrema of elements that begin at index `first` of a row, whose extremum before them is `best`. Returns the last one.
#[inline(always)]
fn run_block<T: Cell, O: Order<T>, const LARGEST: bool>(
    v: &[T],
    values: &mut [T],
    indices: &mut [i64],
    mut best: (T, i64),
    first: usize,
) -> (T, i64) {
    for (k, (&x, (value, index))) in v.iter().zip(values.iter_mut().zip(indices)).enumerate() {
        let takes = O::takes::<LARGEST>(x, best.0);
        best.0 = select_unpredictable(takes, x, best.0);
        best.1 = select_unpredictable(takes, (first + k) as i64, best.1);
        (*value, *index) = best;
    }
    best
}

/// The running extrema of columns.
struct RunningColumns<'a, T, O, const LARGEST: bool> {
    v: &'a [T],
    values: &'a mut [T],
    indices: &'a mut [i64],
    inner: usize,
    order: PhantomData<O>,
}

impl<T: Cell, O: Order<T>, const LARGEST: bool> RunningColumns<'_, T, O, LARGEST> {
    /// Runs the loop for as many columns.
    fn run_by_width(self) {
        match self.inner {
            ..=8 => run_wide(FewColumns::<_, _, LARGEST, 8>(self)),
            9..=16 => run_wide(FewColumns::<_, _, LARGEST, 16>(self)),
            _ => run_wide(self),
        }
    }
}

impl<T: Cell, O: Order<T>, const LARGEST: bool> WideLoop for RunningColumns<'_, T, O, LARGEST> {
    #[inline(always)]
    fn run(self) {
        let (v, inner) = (self.v, self.inner);
        self.values[..inner].copy_from_slice(&v[..inner]);
        self.indices[..inner].fill(0);
        for k in 1..v.len() / inner {
            let (done, rest) = self.values.split_at_mut(k * inner);
            let (done_at, rest_at) = self.indices.split_at_mut(k * inner);
            let (best, at) = (&done[(k - 1) * inner..], &done_at[(k - 1) * inner..]);
            let row = rest.iter_mut().zip(rest_at).zip(&v[k * inner..]);
            for (((value, index), &x), (&b, &a)) in row.zip(best.iter().zip(at)) {
                let take = O::takes::<LARGEST>(x, b);
                *value = if take { x } else { b };
                *index = if take { k as i64 } else { a };
            }
        }
    }
}

/// Threads take a multiple of this number of columns.
const COLUMNS: usize = 64;

/// The running extrema of some columns of rows of `inner` elements; `v` begins with the first of them.
struct SomeColumns<'a, T, O, const LARGEST: bool> {
    v: &'a [T],
    rows: usize,
    inner: usize,
    values: Columns<'a, T>,
    indices: Columns<'a, i64>,
    order: PhantomData<O>,
}

impl<T: Cell, O: Order<T>, const LARGEST: bool> WideLoop for SomeColumns<'_, T, O, LARGEST> {
    #[inline(always)]
    fn run(mut self) {
        let width = self.values.row(0).len();
        let (mut best, mut at) = (self.v[..width].to_vec(), vec![0; width]);
        for k in 0..self.rows {
            let row = &self.v[k * self.inner..][..width];
            for ((best, at), &x) in best.iter_mut().zip(&mut at).zip(row) {
                let take = O::takes::<LARGEST>(x, *best);
                *best = if take { x } else { *best };
                *at = if take { k as i64 } else { *at };
            }
            self.values.row(k).copy_from_slice(&best);
            self.indices.row(k).copy_from_slice(&at);
        }
    }
}

/// The running extrema of at most `N` columns, which are one vector. What a row stores beyond its end is overwritten by the next row.
struct FewColumns<'a, T, O, const LARGEST: bool, const N: usize>(RunningColumns<'a, T, O, LARGEST>);

impl<T: Cell, O: Order<T>, const LARGEST: bool, const N: usize> WideLoop for FewColumns<'_, T, O, LARGEST, N> {
    #[inline(always)]
    fn run(self) {
        let RunningColumns {
            v,
            values,
            indices,
            inner,
            ..
        } = self.0;
        let (mut best, mut at) = ([v[0]; N], [0; N]);
        best[..inner].copy_from_slice(&v[..inner]);
        let rows = v.len() / inner;
        // Rows with a whole vector up to the end.
        let whole = (v.len() + inner).saturating_sub(N) / inner;
        for k in 0..whole.min(rows) {
            let begin = k * inner;
            let x = v[begin..].first_chunk::<N>().unwrap_or(&best);
            let mut row = [v[0]; N];
            for j in 0..N {
                let takes = O::takes::<LARGEST>(x[j], best[j]);
                row[j] = if takes { x[j] } else { best[j] };
                at[j] = if takes { k as i64 } else { at[j] };
            }
            best = row;
            values[begin..][..N].copy_from_slice(&best);
            indices[begin..][..N].copy_from_slice(&at);
        }
        for k in whole.min(rows)..rows {
            for j in 0..inner {
                let x = v[k * inner + j];
                let takes = O::takes::<LARGEST>(x, best[j]);
                best[j] = if takes { x } else { best[j] };
                at[j] = if takes { k as i64 } else { at[j] };
            }
            values[k * inner..][..inner].copy_from_slice(&best[..inner]);
            indices[k * inner..][..inner].copy_from_slice(&at[..inner]);
        }
    }
}

#[cfg(test)]
mod tests;
