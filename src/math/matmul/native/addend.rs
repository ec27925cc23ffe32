//! What is applied to finished products: the factors, the addend and the activation.

use super::MatrixOperands;
use crate::math::contract::MatMul;
use crate::math::isa::per_isa;
use crate::math::matmul::Rect;
use crate::math::simd::Simd;
use crate::target::Isa;

/// One rectangle of a result.
struct AddendJob {
    c: *mut f32,
    c_row: usize,
    addend: *const f32,
    /// The strides of the addend, if it is read.
    strides: Option<[usize; 2]>,
    rows: usize,
    cols: usize,
    /// The factors of the product and of the addend.
    factors: [f32; 2],
    clamp: (f32, f32),
}

/// `c = activation(alpha * c + beta * addend)` on a rectangle.
///
/// # Safety
/// The machine supports `isa`. The operands are valid; nothing else uses the rectangle.
pub(super) unsafe fn add_after(isa: Isa, d: &MatMul, x: &MatrixOperands, r: Rect) {
    let strides = d.addend.filter(|_| d.beta != 0.0).map(|a| [a.row, a.col]);
    let bounds = d.activation.bounds();
    if strides.is_none() && d.alpha == 1.0 && bounds.is_none() {
        return;
    }
    let [row, col] = strides.unwrap_or_default();
    let job = AddendJob {
        c: x.c.wrapping_add(r.row * d.c_row + r.col),
        c_row: d.c_row,
        addend: x.addend.wrapping_add(r.row * row + r.col * col),
        strides,
        rows: r.rows,
        cols: r.cols,
        factors: [d.alpha as f32, d.beta as f32],
        clamp: bounds.unwrap_or((f32::NEG_INFINITY, f32::INFINITY)),
    };
    // SAFETY: guaranteed by the caller.
    unsafe { finish(isa)(&job) };
}

#[inline(always)]
unsafe fn finish_body<S: Simd>(j: &AddendJob) {
    for i in 0..j.rows {
        let mut at = 0;
        while at < j.cols {
            let n = (j.cols - at).min(S::LANES);
            // SAFETY: the columns lie in the rectangle.
            unsafe { finish_columns::<S>(j, i, at, n) };
            at += n;
        }
    }
}

/// Finishes `n` columns, at most a vector, of row `i`.
#[inline(always)]
unsafe fn finish_columns<S: Simd>(j: &AddendJob, i: usize, at: usize, n: usize) {
    // SAFETY: the caller provides the columns.
    unsafe {
        let (c, whole) = (j.c.add(i * j.c_row + at), n == S::LANES);
        let sum = if whole { S::load(c) } else { S::load_first(c, n) };
        let mut y = S::mul(S::splat(j.factors[0]), sum);
        if let Some([row, col]) = j.strides {
            let addend = load_addend::<S>(j.addend.add(i * row + at * col), col, n);
            y = S::add(y, S::mul(S::splat(j.factors[1]), addend));
        }
        let (lo, hi) = j.clamp;
        y = S::min(S::splat(hi), S::max(S::splat(lo), y));
        if whole {
            S::store(c, y);
        } else {
            S::store_first(c, n, y);
        }
    }
}

/// `n` elements of the addend, `step` apart.
#[inline(always)]
unsafe fn load_addend<S: Simd>(p: *const f32, step: usize, n: usize) -> S::V {
    // SAFETY: the caller provides the elements.
    unsafe {
        match step {
            0 => S::splat(*p),
            1 if n == S::LANES => S::load(p),
            1 => S::load_first(p, n),
            _ => {
                let mut lanes = [0f32; 16];
                for l in 0..n {
                    lanes[l] = *p.add(l * step);
                }
                S::load(lanes.as_ptr())
            }
        }
    }
}

per_isa! {
    /// See [`finish_body`].
    fn finish = finish_body(j: &AddendJob)
}
