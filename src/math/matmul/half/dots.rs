//! Products of 16-bit floats in which up to eight vectors are multiplied with many lines: the rows of A with the columns of B, or
//! the columns of B with the rows of A. Some lines at a time are converted to f32 and multiplied while they are in cache.

use crate::math::contract::{MatMul, MatMulArgs, MatMulConstants, MatMulPlan};
use crate::math::convert::{narrow_row, widen_row};
use crate::math::matmul::dot::{self, DotJob};
use crate::math::matmul::{Offsets, Rect, run_tail};
use crate::math::scratch::{self, Scratch, SharedPtr};
use crate::math::transpose::permute;
use crate::parallel::Pool;
use crate::target::Isa;
use crate::tensor::widen_f16;
use crate::types::DType;
use half::{bf16, f16};

/// The minimum number of product indices, and of lines.
const LEAST: usize = 64;
/// The number of elements that are converted at once.
const PIECE: usize = 16 << 10;

/// A plan of such a product.
pub(super) struct DotsPlan {
    desc: MatMul,
    isa: Isa,
    /// Whether the lines are rows of A rather than columns of B.
    by_rows: bool,
    vectors: usize,
    lines: usize,
    /// The strides between the vectors and along them, and between the lines.
    vector: [usize; 2],
    line: usize,
}

/// The operands of a piece of lines of one matrix.
struct Piece<'a> {
    args: &'a MatMulArgs,
    offsets: Offsets,
    batch: usize,
    /// The vectors as f32.
    vectors: &'a [f32],
    first: usize,
    count: usize,
}

impl DotsPlan {
    /// The plan of `desc`, or `None` if it is not of this kind.
    pub(super) fn new(isa: Isa, desc: &MatMul, constants: &MatMulConstants) -> Option<DotsPlan> {
        let d = desc;
        let is_dynamic = constants.a.is_none() && constants.b.is_none();
        let by_columns = d.m <= dot::ROWS && d.b[0] == 1 && d.n >= LEAST;
        let by_rows = !by_columns && d.n <= dot::ROWS && d.a[1] == 1 && d.m >= LEAST;
        if !is_dynamic || d.k < LEAST || !by_columns && !by_rows {
            return None;
        }
        Some(DotsPlan {
            desc: desc.clone(),
            isa,
            by_rows,
            vectors: if by_rows { d.n } else { d.m },
            lines: if by_rows { d.m } else { d.n },
            vector: if by_rows { [d.b[1], d.b[0]] } else { d.a },
            line: if by_rows { d.a[0] } else { d.b[1] },
        })
    }

    /// The vectors of a matrix as f32.
    ///
    /// # Safety
    /// They are readable.
    unsafe fn widen_vectors(&self, pool: &Pool, src: *const u8) -> Scratch {
        let (n, k) = (self.vectors, self.desc.k);
        let mut wide = scratch::take_buffer(n * k);
        let mut narrow = scratch::take_buffer((n * k).div_ceil(2));
        // SAFETY: guaranteed by the caller; the buffers have the elements.
        unsafe {
            let copy = narrow.as_mut_ptr().cast();
            permute(pool, 2, &[n, k], &self.vector, src, copy);
            widen_row(self.desc.dtype, copy, &mut wide);
        }
        wide
    }

    /// Computes a piece.
    ///
    /// # Safety
    /// The operands are valid; no other thread writes this part of the result.
    unsafe fn run_piece(&self, p: &Piece) {
        let (d, k) = (&self.desc, self.desc.k);
        let mut lines = scratch::take_buffer(p.count * k);
        let mut sums = scratch::take_buffer(self.vectors * p.count);
        let (src, offset) = match self.by_rows {
            true => (p.args.a, p.offsets.a),
            false => (p.args.b, p.offsets.b),
        };
        let src = src.wrapping_add(2 * (offset + p.first * self.line));
        // SAFETY: guaranteed by the caller; the buffers have the elements.
        unsafe {
            if self.line == k {
                widen_row(d.dtype, src, &mut lines);
            } else {
                for (i, line) in lines.chunks_exact_mut(k).enumerate() {
                    widen_row(d.dtype, src.add(2 * i * self.line), line);
                }
            }
            dot::kernel(self.isa)(&DotJob {
                a: p.vectors.as_ptr(),
                a_row: k,
                rows: self.vectors,
                b: lines.as_ptr(),
                b_col: k,
                cols: p.count,
                k,
                c: sums.as_mut_ptr(),
                c_row: p.count,
            });
            self.store(p, &mut sums);
        }
    }

    /// Stores the sums of a piece, which are in rows for each vector.
    ///
    /// # Safety
    /// As for [`DotsPlan::run_piece`].
    unsafe fn store(&self, p: &Piece, sums: &mut [f32]) {
        let d = &self.desc;
        let rect = match self.by_rows {
            true => [p.first, 0, p.count, d.n],
            false => [0, p.first, d.m, p.count],
        };
        let [row, col, rows, cols] = rect;
        let mut line = scratch::take_buffer(cols);
        for r in 0..rows {
            for (c, y) in line.iter_mut().enumerate() {
                *y = if self.by_rows {
                    sums[c * rows + r]
                } else {
                    sums[r * cols + c]
                };
            }
            // SAFETY: guaranteed by the caller.
            unsafe {
                self.finish(p, [row + r, col], &mut line);
                let at = p.offsets.c + (row + r) * d.c_row + col;
                narrow_row(d.dtype, &line, p.args.c.add(2 * at));
            }
        }
        let rect = Rect {
            batch: p.batch,
            row,
            col,
            rows,
            cols,
        };
        if let Some(tail) = &p.args.tail {
            // SAFETY: the piece is finished.
            unsafe { run_tail(d, tail, p.args.c, p.offsets.c, rect) };
        }
    }

    /// Scales the elements of a row from column `col` on, adds the addend and clamps.
    ///
    /// # Safety
    /// The addend is readable.
    unsafe fn finish(&self, p: &Piece, [row, col]: [usize; 2], line: &mut [f32]) {
        let d = &self.desc;
        let (alpha, beta) = (d.alpha as f32, d.beta as f32);
        if alpha != 1.0 {
            line.iter_mut().for_each(|y| *y *= alpha);
        }
        if let Some(s) = d.addend.filter(|_| d.beta != 0.0) {
            let addend = p.args.addend.cast::<u16>();
            for (c, y) in line.iter_mut().enumerate() {
                // SAFETY: guaranteed by the caller.
                let bits = unsafe { *addend.add(p.offsets.addend + row * s.row + (col + c) * s.col) };
                let x = match d.dtype {
                    DType::F16 => widen_f16(f16::from_bits(bits)),
                    _ => bf16::from_bits(bits).to_f32(),
                };
                *y += beta * x;
            }
        }
        if let Some((lo, hi)) = d.activation.bounds() {
            for y in line {
                let x = if lo > *y { lo } else { *y };
                *y = if hi < x { hi } else { x };
            }
        }
    }
}

impl MatMulPlan for DotsPlan {
    unsafe fn run(&self, pool: &Pool, args: &MatMulArgs) {
        let d = &self.desc;
        if d.m == 0 || d.n == 0 {
            return;
        }
        let per = (PIECE / d.k).max(4);
        for batch in 0..d.batch_size() {
            let offsets = Offsets::for_matrix(d, batch);
            let (given, offset) = if self.by_rows {
                (args.b, offsets.b)
            } else {
                (args.a, offsets.a)
            };
            // SAFETY: guaranteed by the caller.
            let vectors = unsafe { self.widen_vectors(pool, given.wrapping_add(2 * offset)) };
            let vectors: &[f32] = &vectors;
            let shared = SharedPtr(args as *const MatMulArgs as *mut MatMulArgs);
            pool.run(self.lines.div_ceil(per), |i| {
                // SAFETY: as above; `args` outlives the job, and chunks own different parts of the result.
                unsafe {
                    self.run_piece(&Piece {
                        args: &*shared.get(),
                        offsets,
                        batch,
                        vectors,
                        first: i * per,
                        count: per.min(self.lines - i * per),
                    });
                }
            });
        }
    }

    fn describe(&self) -> String {
        format!("matmul {} in f32 dots {}", self.desc.dtype, self.isa)
    }
}
