//! Positions of extrema.

use super::columns::arg_columns;
use super::half_order::{are_short_rows, arg_halves, arg_short_rows};
use super::packed::{BestInFewColumns, BestInShortLines, FEW, Placed, SHORT, are_few_long_columns};
use super::scan::{lines_of, place_type};
use crate::op::pointwise::not_implemented;
use crate::op::rows::fill::units_per_part;
use crate::op::rows::index::combine::Cell;
use crate::op::rows::lines::{DimLines, WideValues};
use crate::op::{Call, Meaning, Op, OpError, OpResult};
use crate::parallel::Pool;
use crate::tensor::{Tensor, ViewMut, WideLoop, cells_of, run_wide};
use crate::types::{DType, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    vec![
        Op::new(
            "argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor",
            |c, _| arg_type(c),
            Meaning::Fill(|c, outs, pool| arg_extremum(c, &mut outs[0], true, pool)),
        )
        .doc("the index of the first maximum; NaN is the largest")
        .spelled("aten.@ torch.@ Tensor.@"),
        Op::new(
            "argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor",
            |c, _| arg_type(c),
            Meaning::Fill(|c, outs, pool| arg_extremum(c, &mut outs[0], false, pool)),
        )
        .doc("the index of the first minimum; NaN is the smallest")
        .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

fn arg_type(c: &Call<TensorType>) -> OpResult<Type> {
    match c.leaf("self")?.dtype {
        DType::B8 => Err(OpError::dtype(format!("{}(): does not support bool input", c.op.name))),
        d if !d.is_computed() => Err(not_implemented(c.op.name, d)),
        _ => place_type(c, DType::I64).map(Val::Leaf),
    }
}

/// The elements of a line that are compared at once: several vectors, because each comparison waits for the one before it.
const LANES: usize = 32;

/// The position within a line of the first element that no other element beats.
#[inline(always)]
fn best_in_line<T: Cell>(line: &[T], largest: bool) -> usize {
    let Some(&first) = line.first() else { return 0 };
    let better = |x: T, best: T| {
        let wins = if largest { x > best } else { x < best };
        if wins { x } else { best }
    };
    let (mut best, mut nan) = ([first; LANES], false);
    let (chunks, rest) = line.as_chunks::<LANES>();
    for chunk in chunks {
        for (b, &x) in best.iter_mut().zip(chunk) {
            *b = better(x, *b);
            nan |= x.is_nan();
        }
    }
    for (b, &x) in best.iter_mut().zip(rest) {
        *b = better(x, *b);
        nan |= x.is_nan();
    }
    if nan {
        return first_place(line, |x| x.is_nan());
    }
    let mut half = LANES / 2;
    while half > 0 {
        let (low, high) = best.split_at_mut(half);
        low.iter_mut().zip(high).for_each(|(b, x)| *b = better(*x, *b));
        half /= 2;
    }
    first_place(line, |x| x == best[0])
}

/// The position of the first element that matches; 0 if there is none.
#[inline(always)]
fn first_place<T: Copy>(line: &[T], matches: impl Fn(T) -> bool) -> usize {
    let (chunks, _) = line.as_chunks::<LANES>();
    // A whole chunk is searched without branches.
    let any = |chunk: &[T; LANES]| chunk.iter().fold(false, |any, &x| any | matches(x));
    let before = LANES * chunks.iter().position(any).unwrap_or(chunks.len());
    let within = line[before..].iter().position(|&x| matches(x));
    within.map_or(0, |k| before + k)
}

/// [`best_in_line`] of lines of `n` elements.
struct BestInLines<'a, T> {
    v: &'a [T],
    n: usize,
    largest: bool,
    out: &'a mut [i64],
}

impl<T: Cell> WideLoop for BestInLines<'_, T> {
    #[inline(always)]
    fn run(self) {
        for (o, line) in self.out.iter_mut().zip(self.v.chunks_exact(self.n)) {
            *o = best_in_line(line, self.largest) as i64;
        }
    }
}

fn arg_extremum(c: &Call<Tensor>, out: &mut ViewMut<'_>, largest: bool, pool: &Pool) -> OpResult<()> {
    let t = c.leaf("self")?;
    let lines = lines_of(c, t)?;
    let out = out.as_mut_slice::<i64>();
    if lines.len == 1 {
        pool.run_parts(out, units_per_part(out.len(), size_of::<i64>(), pool), |_, out| {
            out.fill(0)
        });
        return Ok(());
    }
    if t.dtype().is_half() {
        arg_halves(t.dtype(), cells_of(t.bytes()), &lines, largest, out, pool);
        return Ok(());
    }
    if are_short_rows(&lines) && arg_short_integers(t, lines.len, largest, out, pool) {
        return Ok(());
    }
    match t.dtype() {
        DType::F32 => arg_lines(t.as_slice::<f32>(), &lines, largest, out, pool),
        DType::F64 => arg_lines(t.as_slice::<f64>(), &lines, largest, out, pool),
        DType::I64 => arg_lines(t.as_slice::<i64>(), &lines, largest, out, pool),
        DType::I32 => arg_lines(t.as_slice::<i32>(), &lines, largest, out, pool),
        DType::I16 => arg_lines(t.as_slice::<i16>(), &lines, largest, out, pool),
        DType::I8 => arg_bytes(t.as_slice::<i8>(), &lines, largest, out, pool),
        DType::U8 => arg_bytes(t.as_slice::<u8>(), &lines, largest, out, pool),
        _ => match WideValues::from_tensor(t) {
            WideValues::Float(v) => arg_lines(&v, &lines, largest, out, pool),
            WideValues::Int(v) => arg_lines(&v, &lines, largest, out, pool),
        },
    }
    Ok(())
}

/// [`arg_lines`] of bytes. Masks of bytes would have to be extended to select places, so they are compared as wider integers.
fn arg_bytes<T: Cell + Into<i16>>(v: &[T], lines: &DimLines, largest: bool, out: &mut [i64], pool: &Pool) {
    if lines.inner == 1 && lines.len > SHORT {
        return arg_rows(v, lines.len, largest, out, pool);
    }
    if lines.inner > FEW {
        return match largest {
            true => arg_columns::<_, _, true>(v, T::into, lines, out, pool),
            false => arg_columns::<_, _, false>(v, T::into, lines, out, pool),
        };
    }
    let wide: Vec<i16> = v.iter().map(|&x| x.into()).collect();
    arg_lines(&wide, lines, largest, out, pool);
}

/// The positions of the extrema in short rows of `n` narrow integers; returns whether the elements are such integers.
fn arg_short_integers(t: &Tensor, n: usize, largest: bool, out: &mut [i64], pool: &Pool) -> bool {
    let bytes = t.bytes();
    let key = move |x: i32| if largest { x } else { !x };
    match t.dtype() {
        DType::U8 => arg_short_rows(cells_of(bytes), n, |x: u8| key(x.into()), out, pool),
        DType::I8 => arg_short_rows(cells_of(bytes), n, |x: i8| key(x.into()), out, pool),
        DType::I16 => arg_short_rows(cells_of(bytes), n, |x: i16| key(x.into()), out, pool),
        _ => return false,
    }
    true
}

/// The positions of the extrema of all lines.
pub(super) fn arg_lines<T: Placed>(v: &[T], lines: &DimLines, largest: bool, out: &mut [i64], pool: &Pool) {
    if v.is_empty() {
        return;
    }
    if lines.inner == 1 && !are_short(lines) {
        return arg_rows(v, lines.len, largest, out, pool);
    }
    match largest {
        true => arg_beside::<T, true>(v, lines, out, pool),
        false => arg_beside::<T, false>(v, lines, out, pool),
    }
}

/// The positions of the extrema of rows of `n` elements.
fn arg_rows<T: Cell>(v: &[T], n: usize, largest: bool, out: &mut [i64], pool: &Pool) {
    let count = units_per_part(out.len(), n * size_of::<T>(), pool);
    pool.run_parts(out, count, |i, out| {
        let v = &v[i * count * n..];
        run_wide(BestInLines { v, n, largest, out });
    });
}

/// Whether many lines are so short that they are looked through together.
fn are_short(lines: &DimLines) -> bool {
    lines.outer > 1 && lines.len <= SHORT && lines.inner <= FEW
}

/// [`arg_lines`] for lines that lie side by side or are short. The direction is a constant, because these loops do not become vector code
/// otherwise. Long lines do, and only then are those of i64 fast.
fn arg_beside<T: Placed, const LARGEST: bool>(v: &[T], lines: &DimLines, out: &mut [i64], pool: &Pool) {
    let (n, width, short) = (lines.len, lines.inner, are_short(lines));
    if !short && !are_few_long_columns(n, width) {
        return arg_columns::<_, _, LARGEST>(v, |x| x, lines, out, pool);
    }
    let blocks = units_per_part(out.len(), n * size_of::<T>(), pool).div_ceil(width);
    pool.run_parts(out, blocks * width, |i, out| {
        let v = &v[i * blocks * n * width..][..out.len() * n];
        if short {
            return run_wide(BestInShortLines::<_, LARGEST> { v, n, width, out });
        }
        for (out, v) in out.chunks_exact_mut(width).zip(v.chunks_exact(n * width)) {
            run_wide(BestInFewColumns::<_, LARGEST> { v, out });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_integers_have_the_places_of_wide_ones() {
        for shape in [[40, 7, 1], [3, 50, 9], [1, 300, 2], [2, 500, 1]] {
            let v: Vec<i64> = (0..shape.iter().product::<usize>() as i64)
                .map(|i| i * 37 % 101)
                .collect();
            let wide = Tensor::from_slice(&shape, &v);
            let places = |t: &Tensor| {
                let call = Call {
                    op: crate::op::by_name("argmax").expect("a row"),
                    args: vec![Val::Leaf(t.clone()), Val::int(1), Val::Bool(false)],
                };
                let mut out = Tensor::zeros(DType::I64, &[shape[0], shape[2]]);
                arg_extremum(&call, &mut ViewMut::from(&mut out), true, &Pool::new(1)).expect("places");
                out.as_slice::<i64>().to_vec()
            };
            for dtype in [DType::U8, DType::I8, DType::I16] {
                assert_eq!(places(&wide.to(dtype)), places(&wide), "{dtype} {shape:?}");
            }
        }
    }
}
