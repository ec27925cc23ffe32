//! The windows of an input as the columns of a matrix, which has a row for each element of a channel's kernel.

use crate::math::contract::Conv;
use crate::math::lanes::{Columns, LaneElement};

/// The maximum number of columns of a panel.
const WIDEST: usize = 32;

/// The windows of some channels of an image.
pub(super) struct Windows<'a, T> {
    conv: &'a Conv,
    out: [usize; 3],
    x: *const T,
    /// The pixel of the output that column 0 computes.
    first: usize,
}

/// Neighbouring pixels of a row of the output.
#[derive(Clone, Copy, Default)]
struct Run {
    /// The first pixel.
    at: [usize; 3],
    len: usize,
    /// The column of the first pixel in the panel.
    col: usize,
}

/// Elements of a channel's plane that go to neighbouring columns.
#[derive(Clone, Copy, Default)]
struct Piece {
    /// The offset of the first element in the plane.
    from: usize,
    len: usize,
    col: usize,
}

impl<'a, T> Windows<'a, T> {
    /// The windows of an image whose first channel is at `x`, from that of pixel `first` of an output of size `out` on.
    pub(super) fn new(conv: &'a Conv, out: [usize; 3], x: *const T, first: usize) -> Windows<'a, T> {
        Windows { conv, out, x, first }
    }

    /// The runs of `cols` pixels from `pixel` on, and their number.
    fn runs(&self, mut pixel: usize, cols: usize) -> ([Run; WIDEST], usize) {
        let [_, height, width] = self.out;
        let (mut runs, mut n, mut col) = ([Run::default(); WIDEST], 0, 0);
        while col < cols {
            let x = pixel % width;
            let len = (width - x).min(cols - col);
            let at = [pixel / width / height, pixel / width % height, x];
            runs[n] = Run { at, len, col };
            (n, col, pixel) = (n + 1, col + len, pixel + len);
        }
        (runs, n)
    }

    /// What element `tap` of the kernel reads for a run, unless it is all padding.
    fn piece(&self, run: &Run, tap: [usize; 3]) -> Option<Piece> {
        let c = self.conv;
        let place = |d: usize| (run.at[d] * c.stride[d] + tap[d] * c.dilation[d]).checked_sub(c.padding[d]);
        let depth = place(0).filter(|&p| p < c.input[0])?;
        let height = place(1).filter(|&p| p < c.input[1])?;
        // The first pixel and the end of those that read the input: pixel `i` reads element `start + i * stride - padding`.
        let (start, step, width) = (
            run.at[2] * c.stride[2] + tap[2] * c.dilation[2],
            c.stride[2],
            c.input[2],
        );
        let first = c.padding[2].saturating_sub(start).div_ceil(step);
        let end = (width + c.padding[2]).saturating_sub(start).div_ceil(step).min(run.len);
        if first >= end {
            return None;
        }
        let row = (depth * c.input[1] + height) * width;
        Some(Piece {
            from: row + start + first * step - c.padding[2],
            len: end - first,
            col: run.col + first,
        })
    }
}

impl<T: LaneElement> Columns<T> for Windows<'_, T> {
    unsafe fn pack(&self, [k0, k1]: [usize; 2], [first, cols]: [usize; 2], width: usize, dst: *mut T::Lane) {
        let c = self.conv;
        let [_, height, across] = c.kernel;
        let (plane, taps): (usize, usize) = (c.input.iter().product(), c.kernel.iter().product());
        let (runs, n) = self.runs(self.first + first, cols.min(WIDEST));
        // SAFETY: guaranteed by the caller.
        let dst = unsafe { std::slice::from_raw_parts_mut(dst, (k1 - k0) * width) };
        for tap in 0..taps.min(k1) {
            let at = [tap / across / height, tap / across % height, tap % across];
            let (mut pieces, mut count, mut covered) = ([Piece::default(); WIDEST], 0, 0);
            for piece in runs[..n].iter().filter_map(|run| self.piece(run, at)) {
                pieces[count] = piece;
                (count, covered) = (count + 1, covered + piece.len);
            }
            let mut channel = k0.saturating_sub(tap).div_ceil(taps);
            while channel * taps + tap < k1 {
                let row = &mut dst[(channel * taps + tap - k0) * width..][..width];
                if covered < width {
                    row.fill(T::Lane::default());
                }
                for p in &pieces[..count] {
                    let to = &mut row[p.col..][..p.len];
                    // SAFETY: the piece lies in the plane.
                    unsafe { copy(self.x.add(channel * plane + p.from), c.stride[2], to) };
                }
                channel += 1;
            }
        }
    }
}

/// Copies elements that are `step` apart.
///
/// # Safety
/// There are as many as in `to`.
#[inline(always)]
unsafe fn copy<T: LaneElement>(from: *const T, step: usize, to: &mut [T::Lane]) {
    if step == 1 {
        // SAFETY: guaranteed by the caller.
        let from = unsafe { std::slice::from_raw_parts(from, to.len()) };
        for (to, x) in to.iter_mut().zip(from) {
            *to = x.widen();
        }
        return;
    }
    for (i, to) in to.iter_mut().enumerate() {
        // SAFETY: as above.
        *to = unsafe { (*from.add(i * step)).widen() };
    }
}
