//! Small products of 16-bit floats, and products of many rows with few columns: pieces of the operands are converted to f32,
//! multiplied and rounded while they are in the L1 cache.

use crate::math::contract::{BatchDim, MatMul, MatMulArgs, MatMulConstants, MatMulPlan, strided_extent};
use crate::math::convert::{narrow_row, widen_row};
use crate::math::matmul::small::{self, SmallPlan};
use crate::math::matmul::{Offsets, Rect, run_tail};
use crate::math::scratch::{self, SharedPtr};
use crate::parallel::Pool;
use crate::target::Isa;
use crate::types::DType;

/// The number of elements of an operand that are converted at once.
const PIECE: usize = 4 << 10;
/// The rows of a piece of a tall matrix.
const ROWS: usize = 64;
/// The maximum number of product indices of such a product.
const DEEPEST: usize = 64;

/// A plan of such a product.
pub(super) struct PiecesPlan {
    /// The product as it was given, for the tail.
    given: MatMul,
    /// The product with pieces of rows as matrices, and the product of the remaining rows.
    parts: Vec<Part>,
}

/// A batch of small matrices.
struct Part {
    desc: MatMul,
    inner: SmallPlan,
    /// The first element of each operand.
    first: Offsets,
    /// The extents of a matrix's operands.
    extents: Offsets,
    /// The number of matrices that are converted at once.
    together: usize,
}

impl PiecesPlan {
    /// The plan of `desc`, or `None` if it is not of this kind. Its extents were checked.
    pub(super) fn new(isa: Isa, desc: &MatMul, constants: &MatMulConstants) -> Option<PiecesPlan> {
        let narrow = desc.n <= isa.lanes() && desc.k <= DEEPEST && desc.m > ROWS;
        let parts = match narrow {
            true => cut_rows(desc),
            false => vec![(desc.clone(), Offsets::default())],
        };
        let parts = parts.into_iter().map(|(d, first)| Part::new(isa, d, first, constants));
        let parts = parts.collect::<Option<Vec<Part>>>()?;
        Some(PiecesPlan {
            given: desc.clone(),
            parts,
        })
    }
}

/// The rows in pieces of [`ROWS`], as a batch dimension, and the rest.
fn cut_rows(d: &MatMul) -> Vec<(MatMul, Offsets)> {
    let row = d.addend.map_or(0, |a| a.row);
    let mut whole = MatMul { m: ROWS, ..d.clone() };
    whole.batch.push(BatchDim {
        size: d.m / ROWS,
        a: ROWS * d.a[0],
        b: 0,
        c: ROWS * d.c_row,
        addend: ROWS * row,
    });
    let done = d.m / ROWS * ROWS;
    let first = Offsets {
        a: done * d.a[0],
        b: 0,
        c: done * d.c_row,
        addend: done * row,
    };
    let rest = MatMul {
        m: d.m - done,
        ..d.clone()
    };
    let parts = [(whole, Offsets::default()), (rest, first)];
    parts.into_iter().filter(|(d, _)| d.m > 0).collect()
}

impl Part {
    fn new(isa: Isa, desc: MatMul, first: Offsets, constants: &MatMulConstants) -> Option<Part> {
        let wide = MatMul {
            dtype: DType::F32,
            ..desc.clone()
        };
        if !small::is_applicable(&wide, isa, constants) {
            return None;
        }
        let extent = |dims: [(usize, usize); 2]| strided_extent(4, dims.into_iter());
        let addend = desc.addend.filter(|_| desc.beta != 0.0);
        let extents = Offsets {
            a: extent([(desc.m, desc.a[0]), (desc.k, desc.a[1])])?,
            b: extent([(desc.k, desc.b[0]), (desc.n, desc.b[1])])?,
            c: extent([(desc.m, desc.c_row), (desc.n, 1)])?,
            addend: addend.map_or(Some(0), |a| extent([(desc.m, a.row), (desc.n, a.col)]))?,
        };
        let step = desc.batch.last().copied().map_or(Offsets::default(), Offsets::along);
        let pairs = [
            (extents.a, step.a),
            (extents.b, step.b),
            (extents.c, step.c),
            (extents.addend, step.addend),
        ];
        // What lies between the elements is converted too.
        if pairs.iter().any(|p| p.0 > 2 * PIECE.max(small::MACS)) || is_sparse(&desc, &extents) {
            return None;
        }
        let is_dense = pairs.iter().all(|&(len, step)| step <= 2 * len.max(1));
        let longest = pairs.iter().map(|&(len, step)| len.max(step)).max().unwrap_or(1).max(1);
        Some(Part {
            inner: SmallPlan::new(isa, &wide),
            together: if is_dense { (PIECE / longest).max(1) } else { 1 },
            desc,
            first,
            extents,
        })
    }

    /// Computes `count` matrices along the last dimension of the batch, from number `first` on.
    ///
    /// # Safety
    /// `args` is as for [`MatMulPlan::run`]; no other thread writes these matrices.
    unsafe fn run_matrices(&self, args: &MatMulArgs, first: usize, count: usize) {
        let (d, e) = (&self.desc, &self.extents);
        let (o, begin) = (Offsets::for_matrix(d, first), &self.first);
        let step = d.batch.last().copied().map_or(Offsets::default(), Offsets::along);
        let span = |len: usize, step: usize| if len == 0 { 0 } else { (count - 1) * step + len };
        let lens = [
            span(e.a, step.a),
            span(e.b, step.b),
            span(e.addend, step.addend),
            span(e.c, step.c),
        ];
        let starts = [begin.a + o.a, begin.b + o.b, begin.addend + o.addend].map(|at| 2 * at);
        // The operands are apart, and aligned.
        let room = lens.map(|n| n.next_multiple_of(16));
        let mut all = scratch::take_buffer(room.iter().sum());
        let (a, rest) = all.split_at_mut(room[0]);
        let (b, rest) = rest.split_at_mut(room[1]);
        let (addend, c) = rest.split_at_mut(room[2]);
        let given = [args.a, args.b, args.addend];
        // SAFETY: the matrices lie in the operands, and their copies in the buffer.
        unsafe {
            for (i, to) in [&mut *a, &mut *b, &mut *addend].into_iter().enumerate() {
                widen_row(d.dtype, given[i].wrapping_add(starts[i]), &mut to[..lens[i]]);
            }
            let wide = MatMulArgs {
                a: a.as_ptr().cast(),
                b: b.as_ptr().cast(),
                addend: addend.as_ptr().cast(),
                c: c.as_mut_ptr().cast(),
                tail: None,
            };
            self.inner.run_row(&wide, &Offsets::default(), count);
            self.round(&c[..lens[3]], args.c.add(2 * (begin.c + o.c)), [count, step.c]);
        }
    }

    /// Rounds `count` matrices, `step` elements apart.
    ///
    /// # Safety
    /// They are writable at `to`.
    unsafe fn round(&self, c: &[f32], to: *mut u8, [count, step]: [usize; 2]) {
        let d = &self.desc;
        // SAFETY: guaranteed by the caller.
        unsafe {
            if c.len() == count * d.m * d.n {
                return narrow_row(d.dtype, c, to);
            }
            for at in (0..count).flat_map(|i| (0..d.m).map(move |r| i * step + r * d.c_row)) {
                narrow_row(d.dtype, &c[at..at + d.n], to.add(2 * at));
            }
        }
    }

    /// Computes all matrices.
    ///
    /// # Safety
    /// `args` is as for [`MatMulPlan::run`].
    unsafe fn run(&self, pool: &Pool, args: &MatMulArgs) {
        let row = self.desc.batch.last().map_or(1, |b| b.size);
        let per = row.div_ceil(self.together);
        let shared = SharedPtr(args as *const MatMulArgs as *mut MatMulArgs);
        pool.run(self.desc.batch_size() / row.max(1) * per, |i| {
            let at = i % per * self.together;
            let count = self.together.min(row - at);
            // SAFETY: guaranteed by the caller; `args` outlives the job, and chunks own different matrices.
            unsafe { self.run_matrices(&*shared.get(), i / per * row + at, count) };
        });
    }
}

/// Whether more than half of an operand's extent is not read.
fn is_sparse(d: &MatMul, e: &Offsets) -> bool {
    let most = |n: usize| 2 * n.max(16);
    e.a > most(d.m * d.k) || e.b > most(d.k * d.n) || e.addend > most(d.m * d.n) || e.c > most(d.m * d.n)
}

impl MatMulPlan for PiecesPlan {
    unsafe fn run(&self, pool: &Pool, args: &MatMulArgs) {
        let d = &self.given;
        if d.m == 0 || d.n == 0 || d.batch_size() == 0 {
            return;
        }
        for part in &self.parts {
            // SAFETY: guaranteed by the caller.
            unsafe { part.run(pool, args) };
        }
        let Some(tail) = args.tail else { return };
        let (per, c) = ((PIECE / d.n).clamp(1, d.m), SharedPtr(args.c));
        let pieces = d.m.div_ceil(per);
        pool.run(d.batch_size() * pieces, |i| {
            let (batch, row) = (i / pieces, i % pieces * per);
            let rect = Rect {
                batch,
                row,
                col: 0,
                rows: per.min(d.m - row),
                cols: d.n,
            };
            // SAFETY: the rows are finished and belong to this chunk.
            unsafe { run_tail(d, &tail, c.get(), Offsets::for_matrix(d, batch).c, rect) };
        });
    }

    fn describe(&self) -> String {
        let inner = self.parts.first().map_or(String::new(), |p| p.inner.describe());
        inner.replace("f32", &format!("{} in f32", self.given.dtype))
    }
}
