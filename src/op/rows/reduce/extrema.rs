//! Positions of extrema.

use super::scan::{lines_of, place_type};
use crate::op::pointwise::not_implemented;
use crate::op::rows::fill::units_per_part;
use crate::op::rows::index::combine::{Cell, with_cell};
use crate::op::rows::lines::{DimLines, WideValues};
use crate::op::{Call, Meaning, Op, OpError, OpResult};
use crate::parallel::Pool;
use crate::tensor::{Tensor, ViewMut, WideLoop, run_wide};
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

/// The position within a line of the first element that no other element beats.
fn best_in_line<T: Cell>(line: &[T], largest: bool) -> usize {
    const LANES: usize = 16;
    let Some(&first) = line.first() else { return 0 };
    let better = |x: T, best: T| if largest { x > best } else { x < best };
    let (mut best, mut nan) = ([first; LANES], false);
    let (chunks, rest) = line.as_chunks::<LANES>();
    for chunk in chunks {
        for (b, &x) in best.iter_mut().zip(chunk) {
            *b = if better(x, *b) { x } else { *b };
            nan |= x.is_nan();
        }
    }
    if nan || rest.iter().any(|x| x.is_nan()) {
        return line.iter().position(|x| x.is_nan()).unwrap_or(0);
    }
    let best = best
        .iter()
        .chain(rest)
        .fold(first, |b, &x| if better(x, b) { x } else { b });
    line.iter().position(|&x| x == best).unwrap_or(0)
}

/// [`best_in_line`] of some columns, from `first` on, of rows of `width` elements.
struct BestInColumns<'a, T> {
    rows: &'a [T],
    width: usize,
    first: usize,
    largest: bool,
    best: Vec<T>,
    out: &'a mut [i64],
}

impl<T: Cell> WideLoop for BestInColumns<'_, T> {
    #[inline(always)]
    fn run(mut self) {
        self.out.fill(0);
        for (k, row) in self.rows.chunks_exact(self.width).enumerate().skip(1) {
            let row = &row[self.first..][..self.out.len()];
            for ((b, o), &x) in self.best.iter_mut().zip(self.out.iter_mut()).zip(row) {
                let better = if self.largest { x > *b } else { x < *b };
                let take = !b.is_nan() & (x.is_nan() | better);
                *b = if take { x } else { *b };
                *o = if take { k as i64 } else { *o };
            }
        }
    }
}

fn arg_extremum(c: &Call<Tensor>, out: &mut ViewMut<'_>, largest: bool, pool: &Pool) -> OpResult<()> {
    let t = c.leaf("self")?;
    let lines = lines_of(c, t)?;
    let out = out.as_mut_slice::<i64>();
    with_cell!(t.dtype(), T => arg_lines(t.as_slice::<T>(), &lines, largest, out, pool), else {
        match WideValues::from_tensor(t) {
            WideValues::Float(v) => arg_lines(&v, &lines, largest, out, pool),
            WideValues::Int(v) => arg_lines(&v, &lines, largest, out, pool),
        }
    });
    Ok(())
}

fn arg_lines<T: Cell>(v: &[T], lines: &DimLines, largest: bool, out: &mut [i64], pool: &Pool) {
    if v.is_empty() {
        return;
    }
    let (n, width) = (lines.len, lines.inner);
    let count = units_per_part(out.len(), n * size_of::<T>(), pool);
    if width == 1 {
        return pool.run_parts(out, count, |i, out| {
            let places = v[i * count * n..]
                .chunks_exact(n)
                .map(|line| best_in_line(line, largest));
            out.iter_mut().zip(places).for_each(|(o, p)| *o = p as i64);
        });
    }
    let columns = |rows: &[T], first: usize, out: &mut [i64]| {
        let best = rows[first..][..out.len()].to_vec();
        run_wide(BestInColumns {
            rows,
            width,
            first,
            largest,
            best,
            out,
        });
    };
    if lines.outer == 1 {
        return pool.run_parts(out, count, |i, out| columns(v, i * count, out));
    }
    let blocks = count.div_ceil(width);
    pool.run_parts(out, blocks * width, |i, out| {
        let v = v[i * blocks * n * width..].chunks_exact(n * width);
        out.chunks_exact_mut(width)
            .zip(v)
            .for_each(|(o, rows)| columns(rows, 0, o));
    });
}
