//! Small f32 products: one matrix, or a batch of them. Each is multiplied where it is, row by row: packing it, or cutting it
//! into blocks, would take longer than the product.

use super::{Offsets, Rect, run_tail};
use crate::math::contract::{MatMul, MatMulArgs, MatMulConstants, MatMulPlan};
use crate::math::isa::per_isa;
use crate::math::pack::pack_panel;
use crate::math::scratch::{self, SharedPtr};
use crate::math::simd::Simd;
use crate::parallel::Pool;
use crate::target::Isa;

/// The largest number of multiply-adds of a small product, its columns rounded up to whole vectors.
pub(super) const MACS: usize = 32 << 10;
/// The largest number of elements of a matrix times one column. Larger ones are computed as dot products.
const COLUMN: usize = 64;
/// The largest number of elements of B for which its columns are moved to rows whatever the number of rows of A.
const TINY: usize = 64;
/// The number of elements of B that are packed at once. If each matrix were multiplied directly after it was packed, its
/// vectors would be read before the single elements in them are stored.
const PACKED: usize = 4 << 10;
/// The number of multiply-adds in a chunk.
const CHUNK: usize = 100_000;

/// A plan of such a product.
pub(super) struct SmallPlan {
    desc: MatMul,
    isa: Isa,
    /// Whether the rows of B are not contiguous, and have to be made.
    packs: bool,
}

/// Whether the product is of this kind.
pub(super) fn is_applicable(d: &MatMul, isa: Isa, constants: &MatMulConstants) -> bool {
    if constants.a.is_some() || constants.b.is_some() || d.addend.is_some_and(|a| a.col > 1) {
        return false;
    }
    let macs = |n: usize| n.checked_mul(d.m)?.checked_mul(d.k.max(1));
    let columns = d.n.checked_next_multiple_of(isa.lanes());
    let fits = columns.and_then(macs).is_some_and(|n| n <= MACS);
    let [a, b] = [d.m, d.n].map(|n| n.saturating_mul(d.k));
    let suits = match has_rows(d) {
        _ if d.n == 1 => a <= COLUMN,
        true => d.m > 1 || b <= TINY,
        false => d.m > 2 || b <= TINY,
    };
    fits && suits
}

/// Whether the rows of B are contiguous.
fn has_rows(d: &MatMul) -> bool {
    d.b[1] == 1 || d.n <= 1
}

impl SmallPlan {
    /// Plans `desc`, for which [`is_applicable`] holds and whose extents were checked.
    pub(super) fn new(isa: Isa, desc: &MatMul) -> SmallPlan {
        SmallPlan {
            desc: desc.clone(),
            isa,
            packs: !has_rows(desc) && desc.k > 0,
        }
    }

    /// Computes the matrices `first..end` of the batch.
    ///
    /// # Safety
    /// `args` is as for [`MatMulPlan::run`]; no other thread writes these matrices.
    unsafe fn run_matrices(&self, args: &MatMulArgs, first: usize, end: usize) {
        let d = &self.desc;
        let row = d.batch.last().map_or(1, |b| b.size);
        let mut at = first;
        while at < end {
            // Along the last dimension of the batch, the strides are the same.
            let count = (row - at % row).min(end - at);
            let o = Offsets::for_matrix(d, at);
            // SAFETY: guaranteed by the caller.
            unsafe {
                self.run_row(args, &o, count);
                self.run_tails(args, &o, at, count);
            }
            at += count;
        }
    }

    /// Computes `count` matrices along the last dimension of the batch, from the one at `o` on.
    ///
    /// # Safety
    /// As for [`SmallPlan::run_matrices`].
    pub(super) unsafe fn run_row(&self, args: &MatMulArgs, o: &Offsets, count: usize) {
        let job = self.job(args, o, count);
        let kernel = self.kernel();
        if !self.packs {
            // SAFETY: the operands are valid for these matrices.
            return unsafe { kernel(&job) };
        }
        let (d, size) = (&self.desc, self.desc.k * self.desc.n);
        let together = (PACKED / size).clamp(1, count);
        let mut packed = scratch::take_buffer(together * size);
        for i in (0..count).step_by(together) {
            let some = together.min(count - i);
            // SAFETY: as above; the buffer holds `together` matrices.
            unsafe {
                for j in 0..some {
                    let b = job.b.add((i + j) * job.step.b);
                    pack_panel(b, d.b[1], d.b[0], d.n, d.n, d.k, packed.as_mut_ptr().add(j * size));
                }
                kernel(&SmallJob {
                    a: job.a.wrapping_add(i * job.step.a),
                    b: packed.as_ptr(),
                    b_row: d.n,
                    c: job.c.wrapping_add(i * job.step.c),
                    addend: job.addend.wrapping_add(i * job.step.addend),
                    step: Offsets { b: size, ..job.step },
                    count: some,
                    ..job
                });
            }
        }
    }

    /// The kernel: if a matrix is one tile, one for its number of rows.
    fn kernel(&self) -> unsafe fn(&SmallJob) {
        match self.desc.m {
            _ if self.desc.n > self.isa.lanes() => matrices(self.isa),
            1 => tiles::<1>(self.isa),
            2 => tiles::<2>(self.isa),
            3 => tiles::<3>(self.isa),
            4 => tiles::<4>(self.isa),
            5 => tiles::<5>(self.isa),
            6 => tiles::<6>(self.isa),
            7 => tiles::<7>(self.isa),
            8 => tiles::<8>(self.isa),
            _ => matrices(self.isa),
        }
    }

    /// The job of `count` matrices from the one at `o` on.
    fn job(&self, args: &MatMulArgs, o: &Offsets, count: usize) -> SmallJob {
        let d = &self.desc;
        let addend = d.addend.filter(|_| d.beta != 0.0);
        let step = d.batch.last().copied().map_or(Offsets::default(), Offsets::along);
        SmallJob {
            a: args.a.cast::<f32>().wrapping_add(o.a),
            a_strides: d.a,
            b: args.b.cast::<f32>().wrapping_add(o.b),
            b_row: d.b[0],
            c: args.c.cast::<f32>().wrapping_add(o.c),
            c_row: d.c_row,
            addend: args.addend.cast::<f32>().wrapping_add(o.addend),
            addend_strides: addend.map(|a| [a.row, a.col]),
            step,
            count,
            size: [d.m, d.n, d.k],
            factors: [d.alpha as f32, d.beta as f32],
            clamp: d.activation.bounds(),
        }
    }

    /// Runs the tail, if there is one, on `count` matrices from the one at `o` on, which is number `first` of the batch.
    ///
    /// # Safety
    /// The matrices are finished and belong to this thread.
    unsafe fn run_tails(&self, args: &MatMulArgs, o: &Offsets, first: usize, count: usize) {
        let (d, Some(tail)) = (&self.desc, &args.tail) else {
            return;
        };
        let step = d.batch.last().map_or(0, |b| b.c);
        for i in 0..count {
            let rect = Rect {
                batch: first + i,
                row: 0,
                col: 0,
                rows: d.m,
                cols: d.n,
            };
            // SAFETY: guaranteed by the caller.
            unsafe { run_tail(d, tail, args.c, o.c + i * step, rect) };
        }
    }
}

impl MatMulPlan for SmallPlan {
    unsafe fn run(&self, pool: &Pool, args: &MatMulArgs) {
        let (d, batch) = (&self.desc, self.desc.batch_size());
        if d.m == 0 || d.n == 0 || batch == 0 {
            return;
        }
        let per = CHUNK.div_ceil((d.m * d.n * d.k).max(d.m * d.n));
        if batch <= per {
            // SAFETY: guaranteed by the caller.
            return unsafe { self.run_matrices(args, 0, batch) };
        }
        let shared = SharedPtr(args as *const MatMulArgs as *mut MatMulArgs);
        pool.run(batch.div_ceil(per), |i| {
            // SAFETY: as above; `args` outlives the job, and chunks own different matrices.
            unsafe { self.run_matrices(&*shared.get(), i * per, ((i + 1) * per).min(batch)) };
        });
    }

    fn describe(&self) -> String {
        format!("matmul f32 small {}", self.isa)
    }
}

/// Some matrices, `step` apart. Columns of C, and of the addend unless it has one, are contiguous.
struct SmallJob {
    a: *const f32,
    /// The strides between rows of A and between product indices.
    a_strides: [usize; 2],
    b: *const f32,
    b_row: usize,
    c: *mut f32,
    c_row: usize,
    addend: *const f32,
    /// The strides of the addend, if there is one.
    addend_strides: Option<[usize; 2]>,
    step: Offsets,
    count: usize,
    /// `m`, `n` and `k`.
    size: [usize; 3],
    /// The factors of the product and of the addend.
    factors: [f32; 2],
    clamp: Option<(f32, f32)>,
}

/// The first elements of one of a job's matrices.
struct Matrix {
    a: *const f32,
    b: *const f32,
    c: *mut f32,
    addend: *const f32,
}

impl SmallJob {
    /// Matrix `i`.
    #[inline(always)]
    fn matrix(&self, i: usize) -> Matrix {
        Matrix {
            a: self.a.wrapping_add(i * self.step.a),
            b: self.b.wrapping_add(i * self.step.b),
            c: self.c.wrapping_add(i * self.step.c),
            addend: self.addend.wrapping_add(i * self.step.addend),
        }
    }
}

/// Matrices of `R` rows and at most one vector of columns.
#[inline(always)]
unsafe fn tiles_body<S: Simd, const R: usize>(j: &SmallJob) {
    for i in 0..j.count {
        // SAFETY: the caller provides the matrices.
        unsafe { multiply_tile::<S, 1, R>(j, &j.matrix(i), 0, 0, j.size[1]) };
    }
}

#[inline(always)]
unsafe fn matrices_body<S: Simd>(j: &SmallJob) {
    for i in 0..j.count {
        let x = j.matrix(i);
        let mut col = 0;
        while col < j.size[1] {
            let left = j.size[1] - col;
            // SAFETY: the caller provides the matrices.
            unsafe {
                if left > S::LANES {
                    multiply_columns::<S, 2>(j, &x, col, left.min(2 * S::LANES));
                } else {
                    multiply_columns::<S, 1>(j, &x, col, left);
                }
            }
            col += 2 * S::LANES;
        }
    }
}

/// Computes `cols` columns from `col` on, which fill `V` vectors: at most eight sums of vectors at once.
#[inline(always)]
unsafe fn multiply_columns<S: Simd, const V: usize>(j: &SmallJob, x: &Matrix, col: usize, cols: usize) {
    let most = 8 / V;
    let mut row = 0;
    while row < j.size[0] {
        let left = j.size[0] - row;
        // The last two tiles are about equal.
        let rows = match left {
            n if n <= most => n,
            n if n < 2 * most => n.div_ceil(2),
            _ => most,
        };
        // SAFETY: the caller provides the matrices; the rows and columns lie in them.
        unsafe {
            match rows {
                1 => multiply_tile::<S, V, 1>(j, x, row, col, cols),
                2 => multiply_tile::<S, V, 2>(j, x, row, col, cols),
                3 => multiply_tile::<S, V, 3>(j, x, row, col, cols),
                4 => multiply_tile::<S, V, 4>(j, x, row, col, cols),
                // With two vectors, there are at most four rows.
                5 if V == 1 => multiply_tile::<S, V, 5>(j, x, row, col, cols),
                6 if V == 1 => multiply_tile::<S, V, 6>(j, x, row, col, cols),
                7 if V == 1 => multiply_tile::<S, V, 7>(j, x, row, col, cols),
                _ => multiply_tile::<S, V, 8>(j, x, row, col, cols),
            }
        }
        row += rows;
    }
}

/// The number of columns of vector `v`, of `cols` in all.
#[inline(always)]
fn lanes_of<S: Simd>(v: usize, cols: usize) -> usize {
    (cols - v * S::LANES).min(S::LANES)
}

#[inline(always)]
unsafe fn multiply_tile<S: Simd, const V: usize, const R: usize>(
    j: &SmallJob,
    x: &Matrix,
    row: usize,
    col: usize,
    cols: usize,
) {
    // SAFETY: the caller provides the matrices; masks restrict reads to existing columns.
    unsafe {
        let mut acc = [[S::splat(0.0); V]; R];
        let mut masks = [S::mask(S::LANES); V];
        masks[V - 1] = S::mask(lanes_of::<S>(V - 1, cols));
        let [a_row, a_k] = j.a_strides;
        let (mut a, mut b) = (x.a.wrapping_add(row * a_row), x.b.wrapping_add(col));
        for _ in 0..j.size[2] {
            let mut bv = [S::splat(0.0); V];
            for v in 0..V {
                bv[v] = S::load_masked(b.add(v * S::LANES), masks[v]);
            }
            for r in 0..R {
                let f = S::splat(*a.add(r * a_row));
                for v in 0..V {
                    acc[r][v] = S::fma(f, bv[v], acc[r][v]);
                }
            }
            a = a.wrapping_add(a_k);
            b = b.wrapping_add(j.b_row);
        }
        for r in 0..R {
            for v in 0..V {
                finish_vector::<S>(j, x, [row + r, col + v * S::LANES], lanes_of::<S>(v, cols), acc[r][v]);
            }
        }
    }
}

/// Scales `n` columns of a row, adds the addend, clamps and stores them.
#[inline(always)]
unsafe fn finish_vector<S: Simd>(j: &SmallJob, x: &Matrix, [row, col]: [usize; 2], n: usize, sum: S::V) {
    let [alpha, beta] = j.factors;
    // SAFETY: the caller provides `n` columns of the row.
    unsafe {
        let mut y = sum;
        if alpha != 1.0 {
            y = S::mul(S::splat(alpha), y);
        }
        if let Some([s_row, s_col]) = j.addend_strides {
            let p = x.addend.add(row * s_row + col * s_col);
            let mut addend = match s_col {
                0 => S::splat(*p),
                _ => S::load_first(p, n),
            };
            if beta != 1.0 {
                addend = S::mul(S::splat(beta), addend);
            }
            y = S::add(y, addend);
        }
        if let Some((lo, hi)) = j.clamp {
            y = S::min(S::splat(hi), S::max(S::splat(lo), y));
        }
        let c = x.c.add(row * j.c_row + col);
        if n == S::LANES {
            S::store(c, y);
        } else {
            S::store_first(c, n, y);
        }
    }
}

per_isa! {
    /// See [`tiles_body`].
    fn tiles = tiles_body<R: usize>(j: &SmallJob)
}

per_isa! {
    /// See [`matrices_body`].
    fn matrices = matrices_body(j: &SmallJob)
}
