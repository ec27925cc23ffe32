//! Running sums, products and logarithms of sums along a dim.

use super::scan::lines_of;
use super::sum_dtype;
use crate::op::pointwise::not_implemented;
use crate::op::rows::fill::units_per_part;
use crate::op::rows::lines::{DimLines, WideValues, tensor_of};
use crate::op::{Call, Meaning, Op, OpError, OpResult, wrap_dim};
use crate::parallel::Pool;
use crate::tensor::{Tensor, ViewMut};
use crate::types::{DType, Dim, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    vec![
        Op::new(
            "cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor",
            |c, _| scan_type(c),
            Meaning::Fill(|c, outs, pool| {
                scan_tensor(c, (&mut outs[0], pool), |x| 0. + x, |a, x| a + x, i64::wrapping_add)
            }),
        )
        .doc("the cumulative sum along a dim; integers and bools yield i64")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ Tensor.@_")
        .in_place_if(keeps_dtype),
        Op::new(
            "cumprod(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor",
            |c, _| scan_type(c),
            Meaning::Fill(|c, outs, pool| scan_tensor(c, (&mut outs[0], pool), |x| x, |a, x| a * x, i64::wrapping_mul)),
        )
        .doc("the cumulative product along a dim; integers and bools yield i64")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ Tensor.@_")
        .in_place_if(keeps_dtype),
        Op::new(
            "logcumsumexp(Tensor self, int dim) -> Tensor",
            |c, _| {
                let d = c.leaf("self")?.dtype;
                match d.is_float() {
                    true => scan_type(c),
                    false => Err(not_implemented("logcumsumexp_out_cpu", d)),
                }
            },
            Meaning::Fill(|c, outs, pool| scan_log_sums(c, &mut outs[0], pool)),
        )
        .doc("the logarithm of the cumulative sum of exponentials along a dim")
        .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

/// An in-place scan must keep its operand's dtype. torch has no scan of bools, but does not check this if there is
/// nothing to scan.
fn keeps_dtype(c: &Call<TensorType>) -> OpResult<()> {
    let t = c.leaf("self")?;
    let dtype = c.opt_dtype("dtype").unwrap_or(t.dtype);
    if dtype != t.dtype {
        return Err(OpError::dtype(format!(
            "Bad in-place call: input tensor dtype {} and output tensor dtype {} should match",
            t.dtype.cpp_name(),
            dtype.cpp_name()
        )));
    }
    let nothing = t
        .shape
        .as_ref()
        .is_some_and(|s| s.is_empty() || s.contains(&Dim::Const(0)));
    match t.dtype {
        DType::B8 if !nothing && t.shape.is_some() => Err(not_implemented(&format!("{}_out_cpu", c.op.name), t.dtype)),
        _ => Ok(()),
    }
}

fn log_add_exp(a: f64, x: f64) -> f64 {
    let (low, high) = if a < x { (a, x) } else { (x, a) };
    if low.is_nan() || high.is_nan() {
        f64::NAN
    } else if low == high && low.is_infinite() {
        low
    } else {
        high + (low - high).exp().ln_1p()
    }
}

/// The number of elements whose exponentials are computed independently of each other.
const LOG_BLOCK: usize = 32;

/// The largest distance of elements of a block from their maximum. The error of a logarithm grows with it.
const LOG_SPAN: f64 = 30.0;

/// The logarithms of running sums of exponentials.
fn scan_log_sums(c: &Call<Tensor>, out: &mut ViewMut<'_>, pool: &Pool) -> OpResult<()> {
    let t = c.leaf("self")?;
    let lines = lines_of(c, t)?;
    if lines.inner != 1 || t.rank() == 0 || t.numel() == 0 {
        // The logarithm of a single exponential takes no exponential.
        return scan_tensor(c, (out, pool), |x| 0. + x, log_add_exp, |a, _| a);
    }
    let mut wide = t.to(DType::F64);
    let rows = units_per_part(lines.outer, 64 * lines.len, pool);
    pool.run_parts(wide.as_mut_slice::<f64>(), rows * lines.len, |_, rows| {
        for row in rows.chunks_exact_mut(lines.len) {
            let mut before = f64::NEG_INFINITY;
            for block in row.chunks_mut(LOG_BLOCK) {
                before = scan_log_block(before, block);
            }
        }
    });
    out.fill_from(&wide.to(t.dtype()));
    Ok(())
}

/// Replaces elements by the logarithms of running sums, of which `before` is the last. Returns the new last one. The exponentials are
/// relative to one maximum, so that only additions depend on each other.
fn scan_log_block(before: f64, block: &mut [f64]) -> f64 {
    let (low, high) = block
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &x| {
            (low.min(x), high.max(x))
        });
    let most = high.max(before);
    // False for infinities.
    let near = most - low <= LOG_SPAN;
    if !near || block.iter().any(|x| x.is_nan()) || before.is_nan() {
        return block.iter_mut().fold(before, |sum, x| {
            *x = log_add_exp(sum, *x);
            *x
        });
    }
    let (first, mut sum) = (block[0], (before - most).exp());
    for x in block.iter_mut() {
        sum += (*x - most).exp();
        *x = sum;
    }
    block.iter_mut().for_each(|x| *x = most + x.ln());
    if before == f64::NEG_INFINITY {
        block[0] = first;
    }
    block.last().copied().unwrap_or(before)
}

fn scan_dtype<T>(c: &Call<T>, operand: DType) -> DType {
    match c.op.schema.index_of("dtype") {
        Some(_) => sum_dtype(c, operand),
        None => operand,
    }
}

pub(super) fn scan_type(c: &Call<TensorType>) -> OpResult<Type> {
    let t = c.leaf("self")?;
    let dtype = scan_dtype(c, t.dtype);
    for d in [t.dtype, dtype] {
        if !d.is_computed() {
            return Err(not_implemented(&format!("{}_out_cpu", c.op.name), d));
        }
    }
    if let Some(rank) = t.rank() {
        wrap_dim(c.int("dim")?, rank)?;
    }
    Ok(Val::Leaf(TensorType {
        dtype,
        shape: t.shape.clone(),
    }))
}

/// A running combination, in f64 for floats (torch also accumulates f32 in f64) and in wrapping i64 for integers. For
/// floats `first` gives the first result, so that an initial -0.0 becomes 0.0 in sums.
fn scan_tensor(
    c: &Call<Tensor>,
    (out, pool): (&mut ViewMut<'_>, &Pool),
    first: fn(f64) -> f64,
    float: fn(f64, f64) -> f64,
    int: fn(i64, i64) -> i64,
) -> OpResult<()> {
    scan_type(&c.map(Tensor::ty))?;
    let t = c.leaf("self")?;
    let dtype = scan_dtype(c, t.dtype());
    let t = t.to(dtype);
    let lines = lines_of(c, &t)?;
    let mut values = WideValues::from_tensor(&t);
    match &mut values {
        // torch returns a 0-dim tensor unchanged.
        WideValues::Float(v) => scan_lines(v, &lines, (t.rank() > 0).then_some(first), float, pool),
        WideValues::Int(v) => scan_lines(v, &lines, None, int, pool),
    }
    out.fill_from(&tensor_of(dtype, t.shape(), &values));
    Ok(())
}

fn scan_lines<N: Copy + Send + Sync>(
    v: &mut [N],
    lines: &DimLines,
    first: Option<fn(N) -> N>,
    f: fn(N, N) -> N,
    pool: &Pool,
) {
    let (n, inner) = (lines.len, lines.inner);
    if v.is_empty() {
        return;
    }
    // A function of two numbers takes as long as reading several.
    let cost = 8 * n * size_of::<N>();
    if lines.outer < 4 * pool.threads()
        && pool.threads() > 1
        && let Some(columns) = columns_per_part(inner, cost, pool)
    {
        let blocks = v.chunks_exact_mut(n * inner);
        return blocks.for_each(|rows| scan_columns(rows, (n, inner), columns, first, f, pool));
    }
    let blocks = units_per_part(lines.outer, cost * inner, pool);
    pool.run_parts(v, blocks * n * inner, |_, v| {
        for rows in v.chunks_exact_mut(n * inner) {
            if let Some(first) = first {
                rows[..inner].iter_mut().for_each(|x| *x = first(*x));
            }
            for k in inner..rows.len() {
                rows[k] = f(rows[k - inner], rows[k]);
            }
        }
    });
}

/// Threads take a multiple of this number of columns, if there are many: no two write to the same cache line.
const COLUMNS: usize = 8;

/// The number of columns of `inner` that a thread scans at once; `None` if that does not save time. A column costs as much as reading so
/// many bytes.
fn columns_per_part(inner: usize, cost: usize, pool: &Pool) -> Option<usize> {
    let columns = units_per_part(inner, cost, pool);
    let columns = match inner <= COLUMNS * pool.threads() {
        true => columns.max(inner.div_ceil(pool.threads())),
        false => columns.next_multiple_of(COLUMNS),
    };
    (columns < inner).then_some(columns)
}

/// The elements that a thread computes before it stores them: where rows are short, threads write to the same cache lines, and should do
/// so seldom.
const STORED: usize = 1024;

/// Scans the columns of a matrix of `n` rows of `inner` elements, of which a thread takes some at once.
fn scan_columns<N: Copy + Send + Sync>(
    matrix: &mut [N],
    (n, inner): (usize, usize),
    columns: usize,
    first: Option<fn(N) -> N>,
    f: fn(N, N) -> N,
    pool: &Pool,
) {
    pool.run_columns(matrix, inner, columns, |_, mut part| {
        let mut sums: Vec<N> = part.row(0).to_vec();
        if let Some(first) = first {
            sums.iter_mut().for_each(|x| *x = first(*x));
        }
        part.row(0).copy_from_slice(&sums);
        let rows = STORED.div_ceil(sums.len());
        let mut done = Vec::with_capacity(rows * sums.len());
        for from in (1..n).step_by(rows) {
            let block = from..n.min(from + rows);
            done.clear();
            for k in block.clone() {
                for (sum, &x) in sums.iter_mut().zip(&*part.row(k)) {
                    *sum = f(*sum, x);
                }
                done.extend_from_slice(&sums);
            }
            for (k, row) in block.zip(done.chunks_exact(sums.len())) {
                part.row(k).copy_from_slice(row);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_logarithms_are_those_of_single_elements() {
        let inf = f64::INFINITY;
        let rows: [&dyn Fn(usize) -> f64; 6] = [
            &|k| (k as f64 * 0.7).sin() * 3.0,
            &|k| k as f64 * 2.5 - 60.0,
            &|k| -(k as f64) * 40.0,
            &|k| if k < 3 { -inf } else { 1e-9 * k as f64 },
            &|k| if k == 40 { inf } else { 0.5 },
            &|k| if k == 40 { f64::NAN } else { 0.5 },
        ];
        for (r, f) in rows.iter().enumerate() {
            let mut got: Vec<f64> = (0..80).map(f).collect();
            let mut before = -inf;
            for block in got.chunks_mut(LOG_BLOCK) {
                before = scan_log_block(before, block);
            }
            let mut want = -inf;
            for (k, &got) in got.iter().enumerate() {
                want = log_add_exp(want, f(k));
                let near = (got - want).abs() <= 1e-13 * (1.0 + want.abs());
                let equal = got == want || (got.is_nan() && want.is_nan());
                assert!(near || equal, "row {r}, element {k}: {got} {want}");
            }
        }
    }

    #[test]
    fn threads_scan_as_one_does() {
        for (outer, len, inner) in [(1, 7, 5000), (2, 300, 90), (40, 9, 70), (1, 5000, 3)] {
            let v: Vec<f64> = (0..outer * len * inner).map(|i| (i * 37 % 101) as f64 * 0.1).collect();
            let lines = DimLines { outer, len, inner };
            let by = |threads: usize| {
                let mut v = v.clone();
                scan_lines(&mut v, &lines, Some(|x| 0.0 + x), log_add_exp, &Pool::new(threads));
                v
            };
            assert!(by(1) == by(2) && by(1) == by(3), "{outer} {len} {inner}");
        }
    }
}
