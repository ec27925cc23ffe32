//! Kernels that run on the pieces of a contraction's result.

use crate::code::CompiledKernels;
use crate::math::contract::{ColumnAffine, Tile, TileTail};
use crate::program::{AffineTail, KernelTail, MAX_BETWEEN_BUFFERS, MAX_TAIL_BUFFERS, Repeat};
use std::ffi::c_void;

/// A kernel that runs on pieces of a result that is never complete in memory. All its buffers are that result.
pub(super) struct Alone<'a> {
    pub kernels: &'a CompiledKernels,
    pub kernel: usize,
    /// The number of its buffers.
    pub buffers: usize,
}

impl Alone<'_> {
    /// The kernel in the form that `math` calls.
    pub(super) fn as_tail(&self) -> TileTail {
        unsafe extern "C" fn call(context: *const c_void, tile: *const Tile) {
            // SAFETY: the context is the `Alone` that outlives the contraction; the tile belongs to the caller.
            let (a, t) = unsafe { (&*context.cast::<Alone>(), &*tile) };
            let args = [t.data; MAX_BETWEEN_BUFFERS];
            // SAFETY: the kernel is flat over its buffers, all of which are this piece. The piece is complete, and no
            // other thread uses it.
            unsafe {
                let args = &args[..a.buffers.min(MAX_BETWEEN_BUFFERS)];
                a.kernels.run(a.kernel, args, 0, t.cols, std::ptr::null_mut())
            };
        }
        TileTail::new(call, std::ptr::from_ref(self).cast())
    }
}

/// The kernel that runs on the pieces of a contraction's result.
pub(super) struct Follow<'a> {
    kernels: &'a CompiledKernels,
    kernel: usize,
    args: &'a [*mut u8],
    /// How the elements of each buffer repeat.
    repeats: &'a [Option<Repeat>],
    /// The parameter whose elements are those of the piece, 4 bytes each.
    sums: Option<usize>,
    affine: Option<AffineTail>,
}

/// The size of a sum of bytes.
const SUM: usize = size_of::<i32>();

impl<'a> Follow<'a> {
    /// The kernel of `tail` with the addresses of its buffers, and its affine form, if it has one.
    pub(super) fn new(
        kernels: &'a CompiledKernels,
        (tail, affine): (&'a KernelTail, Option<AffineTail>),
        args: &'a [*mut u8],
    ) -> Follow<'a> {
        Follow {
            kernels,
            kernel: tail.kernel,
            args,
            repeats: &tail.repeats,
            sums: tail.sums,
            affine,
        }
    }

    /// Runs the kernel on a range of elements of the result, the first of which is at `piece`.
    ///
    /// # Safety
    /// The elements are complete, and no other thread uses them.
    unsafe fn run(&self, piece: *mut u8, mut begin: usize, end: usize) {
        let null = std::ptr::null_mut();
        let sums = piece.wrapping_sub(begin * SUM);
        if self.sums.is_none() && self.repeats.iter().all(Option::is_none) {
            // SAFETY: the kernel is flat over the result and uses no scratch memory. It only reads the other buffers.
            unsafe { self.kernels.run(self.kernel, self.args, begin, end, null) };
            return;
        }
        let mut args = [null; MAX_TAIL_BUFFERS];
        while begin < end {
            let mut stop = end;
            for ((arg, base), repeat) in args.iter_mut().zip(self.args).zip(self.repeats) {
                *arg = match repeat {
                    Some(r) => {
                        let start = begin - begin % r.period;
                        stop = stop.min(start + r.period);
                        base.wrapping_sub(start * r.size)
                    }
                    None => *base,
                };
            }
            if let Some(i) = self.sums {
                args[i] = sums;
            }
            let args = &args[..self.args.len().min(MAX_TAIL_BUFFERS)];
            // SAFETY: as above. Buffers that repeat are read between two multiples of their period, relative to the first.
            unsafe { self.kernels.run(self.kernel, args, begin, stop, null) };
            begin = stop;
        }
    }

    /// The addresses of the operands of an affine tail.
    fn column_affine(&self) -> Option<ColumnAffine> {
        let a = self.affine?;
        Some(ColumnAffine {
            scale: self.args.get(a.scale)?.cast(),
            shift: self.args.get(a.shift)?.cast(),
            addend: a
                .addend
                .map_or(Some(std::ptr::null()), |i| Some(self.args.get(i)?.cast_const().cast()))?,
            bounds: a.bounds,
        })
    }

    /// The kernel in the form that `math` calls.
    pub(super) fn as_tail(&self) -> TileTail {
        unsafe extern "C" fn call(context: *const c_void, tile: *const Tile) {
            // SAFETY: the context is the `Follow` that outlives the contraction; the tile belongs to the caller.
            let (f, t) = unsafe { (&*context.cast::<Follow>(), &*tile) };
            // Rows without gaps are one piece.
            let whole = t.row_stride == t.cols && t.data_stride == t.cols;
            let (rows, cols) = if whole { (1, t.rows * t.cols) } else { (t.rows, t.cols) };
            for row in 0..rows {
                let begin = t.offset + row * t.row_stride;
                let piece = t.data.wrapping_add(row * t.data_stride * SUM);
                // SAFETY: the tile's elements are complete, and no other thread uses them.
                unsafe { f.run(piece, begin, begin + cols) };
            }
        }
        TileTail {
            call,
            context: std::ptr::from_ref(self).cast(),
            affine: self.column_affine(),
        }
    }
}
