//! Contractions computed directly from their definitions. The fast kernels are tested against them.

mod direct;

pub(super) use direct::{attention_ref, conv_ref, matmul_ref};

use super::contract::Conv;
use super::number::Number;

/// Adds one input channel times one kernel to one output channel of a convolution whose output has size `out`.
fn add_plane<T: Number>(c: &Conv, out: [usize; 3], x: &[T], w: &[T], y: &mut [T]) {
    // A plain convolution reads `in = out * stride + tap * dilation - padding`. A transposed one swaps `in` and `out`.
    let (from, to) = if c.transposed { (c.input, out) } else { (out, c.input) };
    let reach = |d: usize, at: usize, tap: usize| {
        let p = at * c.stride[d] + tap * c.dilation[d];
        p.checked_sub(c.padding[d]).filter(|&p| p < to[d])
    };
    for (t, &f) in w.iter().enumerate() {
        let tap = [
            t / (c.kernel[1] * c.kernel[2]),
            t / c.kernel[2] % c.kernel[1],
            t % c.kernel[2],
        ];
        for a in 0..from[0] {
            let Some(pa) = reach(0, a, tap[0]) else { continue };
            for b in 0..from[1] {
                let Some(pb) = reach(1, b, tap[1]) else { continue };
                let (row, prow) = ((a * from[1] + b) * from[2], (pa * to[1] + pb) * to[2]);
                for e in 0..from[2] {
                    let Some(pe) = reach(2, e, tap[2]) else { continue };
                    let (i, o) = if c.transposed {
                        (row + e, prow + pe)
                    } else {
                        (prow + pe, row + e)
                    };
                    y[o] = y[o].add(x[i].mul(f));
                }
            }
        }
    }
}
