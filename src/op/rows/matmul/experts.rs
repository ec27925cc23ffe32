//! Products of a mixture of experts.

mod blocks;

use crate::op::rows::dense::{Number, native, with_number, zeros};
use crate::op::rows::spell::list_text;
use crate::op::{Call, Meaning, Op, OpError, OpId, OpResult, Sizes};
use crate::parallel::{Columns, Pool};
use crate::tensor::{Tensor, ViewMut, WideLoop, run_wide, widen_bf16, widen_f16};
use crate::types::{DType, TensorType, Type, Val};
use blocks::{GroupElement, MANY_ROWS};
use half::{bf16, f16};
use std::ops::Range;

pub(super) fn rows() -> Vec<Op> {
    vec![
        Op::new(
            "grouped_mm(Tensor input, Tensor weight, Tensor offs) -> Tensor",
            grouped_type,
            Meaning::Fill(grouped_mm),
        )
        .doc("each group of rows of input, delimited by offsets, times its matrix")
        .spelled("transformers.grouped_mm_fallback.default"),
        Op::new(
            "grouped_linear(Tensor input, Tensor weight, Tensor offs) -> Tensor",
            grouped_type,
            Meaning::Fill(grouped_mm),
        )
        .doc("each group of rows of input, delimited by offsets, times its transposed matrix: grouped_mm of transposed weights"),
    ]
}

fn grouped_type(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Type> {
    let (d, x) = c.shaped("input")?;
    let (wd, w) = c.shaped("weight")?;
    let (od, offs) = c.shaped("offs")?;
    crate::op::rows::matmul::same_dtype(d, wd)?;
    if !matches!(od, DType::I32 | DType::I64) {
        return Err(OpError::dtype(format!(
            "offs must be an integer tensor, got torch.{}",
            od.torch_name()
        )));
    }
    let ([rows, k], [groups, w1, w2], [count]) = (x, w, offs) else {
        return Err(OpError::shape(format!(
            "grouped_mm expects ranks 2, 3 and 1, got {}, {} and {}",
            list_text(x),
            list_text(w),
            list_text(offs)
        )));
    };
    s.unify_dims(groups, count, || {
        format!("offs length {count} must match number of experts {groups}")
    })?;
    let (wk, n) = if is_transposed(c) { (w2, w1) } else { (w1, w2) };
    s.unify_dims(k, wk, || format!("input_dim mismatch: input has {k}, weight has {wk}"))?;
    Ok(Val::Leaf(TensorType::new(d, vec![rows.clone(), n.clone()])))
}

/// Whether the rows of the matrices are the columns of the product.
fn is_transposed<V>(c: &Call<V>) -> bool {
    c.op.is(OpId::GroupedLinear)
}

/// Reads only the matrices of groups with rows: a mixture of experts has many matrices, and a token chooses few.
fn grouped_mm(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], pool: &Pool) -> OpResult<()> {
    let (x, w, offs) = (c.leaf("input")?, c.leaf("weight")?, c.leaf("offs")?.to(DType::I64));
    let groups = find_groups(offs.as_slice(), x.shape()[0])?;
    let (dtype, compute) = (x.dtype(), native(x.dtype()));
    let transposed = is_transposed(c);
    let sizes = [x.shape()[1], w.shape()[if transposed { 1 } else { 2 }]];
    let xs = x.to(compute);
    let mut out = zeros(compute, &[x.shape()[0], sizes[1]])?;
    let call = GroupedCall {
        groups: &groups,
        sizes,
        transposed,
        pool,
    };
    match dtype {
        DType::F16 => call.run(xs.as_slice(), w.as_slice::<f16>(), widen_f16, out.as_mut_slice::<f32>()),
        DType::BF16 => call.run(
            xs.as_slice(),
            w.as_slice::<bf16>(),
            widen_bf16,
            out.as_mut_slice::<f32>(),
        ),
        _ => with_number!(dtype, T => {
            let w = w.to(compute);
            call.run(xs.as_slice(), w.as_slice::<T>(), |v| v, out.as_mut_slice::<T>());
        }),
    }
    outs[0].bytes_mut().copy_from_slice(out.to(dtype).bytes());
    Ok(())
}

/// Some rows of the input, which are multiplied with the same matrix.
struct Group {
    rows: Range<usize>,
    matrix: usize,
}

/// The groups that have rows.
fn find_groups(offs: &[i64], rows: usize) -> OpResult<Vec<Group>> {
    let (mut start, mut groups) = (0usize, vec![]);
    for (matrix, &end) in offs.iter().enumerate() {
        let end = usize::try_from(end).ok().filter(|&e| e >= start && e <= rows);
        let end = end.ok_or_else(|| OpError::value("grouped_mm: offsets must be ascending and within the rows"))?;
        if end > start {
            groups.push(Group {
                rows: start..end,
                matrix,
            });
        }
        start = end;
    }
    Ok(groups)
}

/// The work of a call.
struct GroupedCall<'a> {
    groups: &'a [Group],
    /// The rows and columns of a matrix.
    sizes: [usize; 2],
    /// Whether columns are contiguous rather than rows.
    transposed: bool,
    pool: &'a Pool,
}

impl GroupedCall<'_> {
    /// Adds the products of `x` and the matrices `w`, whose elements `read` converts, to `out`. Threads take columns.
    fn run<S: Copy + Sync, T: GroupElement>(
        &self,
        x: &[T],
        w: &[S],
        read: impl Fn(S) -> T + Copy + Sync,
        out: &mut [T],
    ) {
        let [k, n] = self.sizes;
        if k == 0 || n == 0 {
            return;
        }
        let bytes = self.groups.len() * k * n * size_of::<S>();
        let is_large = bytes >= BYTES_PER_PART;
        let parts = if is_large { self.pool.threads() } else { 1 };
        let width = n.div_ceil(parts).next_multiple_of(LINE_ELEMENTS);
        let is_long = |g: &&Group| g.rows.len() >= MANY_ROWS && T::ADD_PRODUCT.is_some();
        let (long, short): (Vec<&Group>, Vec<&Group>) = self.groups.iter().partition(is_long);
        self.pool.run_columns(out, n, width, |part, out| {
            let mut products = ColumnProducts {
                x,
                w,
                sizes: self.sizes,
                groups: &short,
                first: part * width,
                width: width.min(n - part * width),
                out,
                read,
            };
            if let Some(product) = T::ADD_PRODUCT {
                long.iter()
                    .for_each(|g| products.multiply_blocks(g, self.transposed, product));
            }
            match self.transposed {
                true => run_wide(TransposedProducts(products)),
                false => run_wide(products),
            }
        });
    }
}

/// The columns that are computed together: the lines of a matrix and the results stay in the L1 cache.
const COLUMNS: usize = 256;

/// The lines of a matrix that are added to each result at once, so that results are loaded and stored less often.
const DEPTH: usize = 8;

/// Parts begin at multiples of this, so that threads share no cache lines.
const LINE_ELEMENTS: usize = 64;

/// A matrix that is smaller is not worth another thread.
const BYTES_PER_PART: usize = 1 << 16;

/// Some columns of the products of all groups.
struct ColumnProducts<'a, S, T, R> {
    x: &'a [T],
    w: &'a [S],
    sizes: [usize; 2],
    groups: &'a [&'a Group],
    /// The first column, and the number of columns.
    first: usize,
    width: usize,
    out: Columns<'a, T>,
    read: R,
}

impl<S: Copy, T: Number, R: Fn(S) -> T + Copy> ColumnProducts<'_, S, T, R> {
    /// Reads some lines of a matrix. Those after its end are 0.
    #[inline(always)]
    fn read_lines(&self, lines: &mut [[T; COLUMNS]; DEPTH], matrix: usize, from: usize, at: usize, width: usize) {
        let [k, n] = self.sizes;
        for (i, line) in lines.iter_mut().enumerate() {
            if from + i >= k {
                line.fill(T::default());
                continue;
            }
            let source = &self.w[(matrix * k + from + i) * n + self.first + at..][..width];
            for (to, v) in line.iter_mut().zip(source) {
                *to = (self.read)(*v);
            }
        }
    }

    /// Adds the products of a row's elements `from..` and the lines.
    #[inline(always)]
    fn add_lines(&mut self, lines: &[[T; COLUMNS]; DEPTH], row: usize, from: usize, at: usize, width: usize) {
        let k = self.sizes[0];
        let mut x = [T::default(); DEPTH];
        let given = &self.x[row * k..(row + 1) * k][from..k.min(from + DEPTH)];
        x[..given.len()].copy_from_slice(given);
        let out = &mut self.out.row(row)[at..at + width];
        for (j, o) in out.iter_mut().enumerate().take(COLUMNS) {
            for i in 0..DEPTH {
                *o = o.add(x[i].mul(lines[i][j]));
            }
        }
    }
}

impl<S: Copy, T: Number, R: Fn(S) -> T + Copy> WideLoop for ColumnProducts<'_, S, T, R> {
    #[inline(always)]
    fn run(mut self) {
        let mut lines = [[T::default(); COLUMNS]; DEPTH];
        let groups = self.groups;
        for at in (0..self.width).step_by(COLUMNS) {
            let width = COLUMNS.min(self.width - at);
            for group in groups {
                for from in (0..self.sizes[0]).step_by(DEPTH) {
                    self.read_lines(&mut lines, group.matrix, from, at, width);
                    for row in group.rows.clone() {
                        self.add_lines(&lines, row, from, at, width);
                    }
                }
            }
        }
    }
}

/// The columns of transposed matrices that are multiplied with a row at once.
const DOTS: usize = 8;

/// The products of a dot product that are summed apart, so that they are vector code.
const LANES: usize = 16;

/// [`ColumnProducts`] of matrices whose columns are contiguous.
struct TransposedProducts<'a, S, T, R>(ColumnProducts<'a, S, T, R>);

impl<S: Copy, T: Number, R: Fn(S) -> T + Copy> TransposedProducts<'_, S, T, R> {
    /// The products of a row and `N` columns of a matrix.
    #[inline(always)]
    fn dots<const N: usize>(&mut self, matrix: usize, row: usize, at: usize) {
        let p = &mut self.0;
        let [k, n] = p.sizes;
        let x = &p.x[row * k..(row + 1) * k];
        let w = &p.w[(matrix * n + p.first + at) * k..][..N * k];
        let mut sums = [[T::default(); LANES]; N];
        let whole = k / LANES * LANES;
        for from in (0..whole).step_by(LANES) {
            let x: &[T; LANES] = x[from..].first_chunk().expect("a whole chunk");
            for (j, sums) in sums.iter_mut().enumerate() {
                let w: &[S; LANES] = w[j * k + from..].first_chunk().expect("a whole chunk");
                for l in 0..LANES {
                    sums[l] = sums[l].add(x[l].mul((p.read)(w[l])));
                }
            }
        }
        let out = &mut p.out.row(row)[at..at + N];
        for (j, o) in out.iter_mut().enumerate() {
            *o = sum_lanes(sums[j]);
            for l in whole..k {
                *o = o.add(x[l].mul((p.read)(w[j * k + l])));
            }
        }
    }
}

/// The sum of all lanes, by halves as vector code does it.
#[inline(always)]
fn sum_lanes<T: Number>(mut sums: [T; LANES]) -> T {
    let mut half = LANES / 2;
    while half > 0 {
        for l in 0..half {
            sums[l] = sums[l].add(sums[l + half]);
        }
        half /= 2;
    }
    sums[0]
}

impl<S: Copy, T: Number, R: Fn(S) -> T + Copy> WideLoop for TransposedProducts<'_, S, T, R> {
    #[inline(always)]
    fn run(mut self) {
        let (groups, width) = (self.0.groups, self.0.width);
        // Loops rather than iterators: functions of iterators might not be inlined, and would not be vector code then.
        for group in groups {
            let mut at = 0;
            while at + DOTS <= width {
                for row in group.rows.clone() {
                    self.dots::<DOTS>(group.matrix, row, at);
                }
                at += DOTS;
            }
            for at in at..width {
                for row in group.rows.clone() {
                    self.dots::<1>(group.matrix, row, at);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of rows of the input. One of them belongs to no group.
    const ROWS: usize = 30;

    const GROUPS: [Group; 4] = [
        Group { rows: 0..1, matrix: 2 },
        Group { rows: 1..6, matrix: 0 },
        Group { rows: 7..9, matrix: 3 },
        Group { rows: 9..30, matrix: 1 },
    ];

    /// The products by a formula.
    fn expected([k, n]: [usize; 2], x: &[f32], w: impl Fn(usize, usize, usize) -> f32) -> Vec<f32> {
        let mut out = vec![0.0; x.len() / k * n];
        for g in &GROUPS {
            for row in g.rows.clone() {
                let x = &x[row * k..][..k];
                for (j, o) in out[row * n..][..n].iter_mut().enumerate() {
                    *o = x.iter().enumerate().map(|(p, x)| x * w(g.matrix, p, j)).sum();
                }
            }
        }
        out
    }

    #[test]
    fn products_of_groups_are_exact_in_small_integers() {
        for (k, n) in [(1, 1), (7, 5), (16, 8), (37, 300), (300, 70), (64, 513)] {
            let number = |i: usize| (i * 7 % 11) as f32 - 5.0;
            let x: Vec<f32> = (0..ROWS * k).map(number).collect();
            let w: Vec<bf16> = (0..4 * k * n).map(|i| bf16::from_f32(number(i * 3))).collect();
            for (threads, transposed) in [(1, false), (3, false), (1, true), (3, true)] {
                let pool = Pool::new(threads);
                let sizes = [k, n];
                let call = GroupedCall {
                    groups: &GROUPS,
                    sizes,
                    transposed,
                    pool: &pool,
                };
                let mut out = vec![0f32; ROWS * n];
                call.run(&x, &w, bf16::to_f32, &mut out);
                let at = |m: usize, p: usize, j: usize| {
                    if transposed {
                        (m * n + j) * k + p
                    } else {
                        (m * k + p) * n + j
                    }
                };
                let want = expected(sizes, &x, |m, p, j| w[at(m, p, j)].to_f32());
                assert_eq!(out, want, "{k} x {n}, {threads} threads, transposed: {transposed}");
            }
        }
    }
}
