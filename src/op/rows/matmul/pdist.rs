//! Distances between all pairs of rows of one matrix. The loops over the second row of the pairs are vector code: its columns are copied
//! to blocks in which neighbours are of neighbouring rows.

use crate::op::rows::dense::zeros;
use crate::op::rows::fill::units_per_part;
use crate::op::{Call, Meaning, Op, OpError, OpResult};
use crate::parallel::Pool;
use crate::tensor::{Element, Tensor, ViewMut, WideLoop, run_wide};
use crate::types::{DType, Dim, TensorType, Type, Val};
use std::ops::{Add, Mul, Range, Sub};

pub(super) fn row() -> Op {
    Op::new(
        "pdist(Tensor self, float p=2.0) -> Tensor",
        |c, _| pdist_type(c),
        Meaning::Fill(pdist),
    )
    .doc("the p-norm distances between all pairs of rows")
    .spelled("aten.@ torch.@ torch.nn.functional.@")
}

fn pdist_type(c: &Call<TensorType>) -> OpResult<Type> {
    let (dtype, x) = c.shaped("self")?;
    let [n, _] = x else {
        return Err(OpError::shape(format!(
            "pdist only supports 2D tensors, got: {}D",
            x.len()
        )));
    };
    if !dtype.is_float() {
        return Err(OpError::dtype("pdist only supports floating-point dtypes"));
    }
    let p = c.f64("p")?;
    if p < 0.0 {
        return Err(OpError::arg(
            "p",
            format!("pdist only supports non-negative p values, but got {p}"),
        ));
    }
    if n.as_const().is_some_and(|n| n > 1 << 31) {
        return Err(OpError::shape("pdist: more than 2^31 rows are not supported"));
    }
    let pairs = n.mul(&n.sub(&Dim::Const(1))).floordiv(&Dim::Const(2));
    Ok(Val::Leaf(TensorType::new(dtype, [pairs])))
}

fn pdist(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], pool: &Pool) -> OpResult<()> {
    let (x, p) = (c.leaf("self")?, c.f64("p")?);
    match x.dtype() {
        DType::F32 => all_distances(x.as_slice::<f32>(), x.shape(), p, outs[0].as_mut_slice(), pool),
        DType::F64 => all_distances(x.as_slice::<f64>(), x.shape(), p, outs[0].as_mut_slice(), pool),
        dtype => {
            let (wide, mut out) = (x.to(DType::F32), zeros(DType::F32, outs[0].shape())?);
            all_distances(wide.as_slice::<f32>(), x.shape(), p, out.as_mut_slice(), pool);
            outs[0].fill_from(&out.to(dtype));
        }
    }
    Ok(())
}

/// The numbers that distances are computed in.
trait Real: Element + Default + PartialOrd + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> {
    const ONE: Self;
    fn size(self) -> Self;
    fn root(self) -> Self;
    fn power(self, p: f64) -> Self;
}

macro_rules! reals {
    ($($t:ty),*) => { $(impl Real for $t {
        const ONE: $t = 1.0;
        #[inline(always)]
        fn size(self) -> $t { self.abs() }
        #[inline(always)]
        fn root(self) -> $t { self.sqrt() }
        fn power(self, p: f64) -> $t { self.powf(p as $t) }
    })* };
}
reals!(f32, f64);

/// The pairs whose first row is in a range, with their distances.
struct Pairs<'a, T> {
    first: Range<usize>,
    out: &'a mut [T],
}

/// The index of the first pair of row `i`, of `n`.
fn pairs_before(i: usize, n: usize) -> usize {
    i * (2 * n - i).saturating_sub(1) / 2
}

fn all_distances<T: Real>(x: &[T], shape: &[usize], p: f64, mut out: &mut [T], pool: &Pool) {
    let (n, columns) = (shape[0], shape[1]);
    // Each part copies the columns.
    let rows = match pool.threads() {
        1 => n.max(1),
        _ => units_per_part(n, columns.max(1) * n.max(1) * size_of::<T>(), pool),
    };
    let mut parts = vec![];
    for from in (0..n).step_by(rows) {
        let first = from..n.min(from + rows);
        let part;
        (part, out) = out.split_at_mut(pairs_before(first.end, n) - pairs_before(from, n));
        parts.push(Pairs { first, out: part });
    }
    pool.run_parts(&mut parts, 1, |_, part| distances(x, [n, columns], p, &mut part[0]));
}

/// The distances of some pairs. Powers that are products need no `pow`.
fn distances<T: Real>(x: &[T], size: [usize; 2], p: f64, pairs: &mut Pairs<'_, T>) {
    macro_rules! run {
        ($add:expr, $join:expr, $finish:expr) => {
            run_wide(Distances {
                x,
                size,
                pairs,
                add: $add,
                join: $join,
                finish: $finish,
            })
        };
    }
    let (plus, inverse) = (|s: T, part: T| s + part, 1.0 / p);
    match p {
        0.0 => run!(
            // NaN stays, as in torch.
            |s, d: T| s + if d.size() > T::default() { T::ONE } else { d.size() },
            plus,
            |s| s
        ),
        1.0 => run!(|s, d: T| s + d.size(), plus, |s| s),
        2.0 => run!(|s, d: T| s + d * d, plus, T::root),
        3.0 => run!(|s, d: T| s + d * d * d.size(), plus, |s: T| s.power(inverse)),
        // The maximum, and NaN if there is one.
        f64::INFINITY => run!(larger, larger, |s| s),
        _ => run!(|s, d: T| s + d.size().power(p), plus, |s: T| s.power(inverse)),
    }
}

#[inline(always)]
fn larger<T: Real>(most: T, d: T) -> T {
    let d = d.size();
    let wins = (d > most) | d.partial_cmp(&d).is_none();
    if wins { d } else { most }
}

/// The number of second rows that are handled at once.
const WIDTH: usize = 64;

/// Parts of a block are multiples of this.
const LANES: usize = 16;

/// The number of terms of partial sums, whose rounding errors are smaller than those of one sum.
const TERMS: usize = 128;

struct Distances<'a, 'b, T, A, J, F> {
    x: &'a [T],
    /// The numbers of rows and columns.
    size: [usize; 2],
    pairs: &'a mut Pairs<'b, T>,
    /// A sum, or the maximum, with the difference of another column.
    add: A,
    /// A sum with a partial one.
    join: J,
    /// The distance from the sum.
    finish: F,
}

impl<T: Real, A: Fn(T, T) -> T, J: Fn(T, T) -> T, F: Fn(T) -> T> WideLoop for Distances<'_, '_, T, A, J, F> {
    #[inline(always)]
    #[expect(
        clippy::needless_range_loop,
        reason = "loops over indices become vector code more often"
    )]
    fn run(self) {
        let [n, columns] = self.size;
        let first = self.pairs.first.clone();
        let mut block = vec![[T::default(); WIDTH]; columns];
        for from in (first.start + 1..n).step_by(WIDTH) {
            let width = WIDTH.min(n - from);
            for j in 0..width {
                let row = &self.x[(from + j) * columns..][..columns];
                for k in 0..columns {
                    block[k][j] = row[k];
                }
            }
            for i in first.start..first.end.min(from + width - 1) {
                let row = &self.x[i * columns..][..columns];
                // The second row of a pair comes after the first.
                let skipped = (i + 1).saturating_sub(from);
                let sums = match skipped < LANES && width > WIDTH - LANES {
                    true => self.sums(row, &block, 0..WIDTH),
                    false => self.sums(row, &block, skipped / LANES * LANES..width.next_multiple_of(LANES)),
                };
                let at = pairs_before(i, n) - pairs_before(first.start, n) + (from + skipped - i - 1);
                let out = &mut self.pairs.out[at..][..width - skipped];
                for j in 0..out.len() {
                    out[j] = (self.finish)(sums[skipped + j]);
                }
            }
        }
    }
}

impl<T: Real, A: Fn(T, T) -> T, J: Fn(T, T) -> T, F> Distances<'_, '_, T, A, J, F> {
    /// The sums of a row's differences from some rows of a block.
    #[inline(always)]
    fn sums(&self, row: &[T], block: &[[T; WIDTH]], others: Range<usize>) -> [T; WIDTH] {
        let mut sums = [T::default(); WIDTH];
        for (row, block) in row.chunks(TERMS).zip(block.chunks(TERMS)) {
            let mut part = [T::default(); WIDTH];
            for k in 0..row.len() {
                let (x, y) = (row[k], &block[k]);
                for j in others.clone() {
                    part[j] = (self.add)(part[j], x - y[j]);
                }
            }
            for j in others.clone() {
                sums[j] = (self.join)(sums[j], part[j]);
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_all_pairs_in_order() {
        for (n, columns) in [(0, 3), (1, 2), (2, 0), (2, 1), (65, 3), (66, 1), (130, 2), (70, 130)] {
            let x: Vec<f64> = (0..n * columns).map(|i| ((i * 37) % 19) as f64 / 4.0 - 2.0).collect();
            for p in [0.0, 0.5, 1.0, 2.0, 2.5, 3.0, f64::INFINITY] {
                let mut want = vec![];
                for (i, j) in (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j))) {
                    let d = (0..columns).map(|k| (x[i * columns + k] - x[j * columns + k]).abs());
                    want.push(match p {
                        0.0 => d.filter(|d| *d != 0.0).count() as f64,
                        f64::INFINITY => d.fold(0.0, f64::max),
                        _ => d.map(|d| d.powf(p)).sum::<f64>().powf(1.0 / p),
                    });
                }
                for threads in [1, 3] {
                    let mut got = vec![-1.0; want.len()];
                    all_distances(&x, &[n, columns], p, &mut got, &Pool::new(threads));
                    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-12 * b.abs();
                    assert!(got.iter().zip(&want).all(near), "{n} x {columns}, {p}");
                }
            }
        }
    }

    #[test]
    fn nan_is_the_largest_difference_and_counts_as_nan() {
        let x = [0f32, f32::NAN, 1.0, 2.0, 3.0, 4.0];
        let mut out = [0f32; 3];
        all_distances(&x, &[3, 2], f64::INFINITY, &mut out, &Pool::new(1));
        assert!(out[0].is_nan() && out[1].is_nan() && out[2] == 2.0);
        all_distances(&x, &[3, 2], 0.0, &mut out, &Pool::new(1));
        assert!(out[0].is_nan() && out[1].is_nan() && out[2] == 2.0);
    }
}
