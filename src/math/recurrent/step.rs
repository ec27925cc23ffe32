//! The kernel of one step: products of rows with blocks of units, and the cells.

use super::{PROJECTED, StepJob};
use crate::math::contract::RecurrentCell;
use crate::math::isa::per_isa;
#[cfg(target_arch = "x86_64")]
use crate::math::simd::Avx512;
use crate::math::simd::Simd;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m512, __m512bh, _mm512_dpbf16_ps};
#[cfg(target_arch = "x86_64")]
use std::mem::transmute;

/// The words that a step multiplies.
trait Factors<S: Simd> {
    /// Adds the products of words to sums.
    ///
    /// # Safety
    /// The machine has the instructions.
    unsafe fn multiply_add(x: S::V, w: S::V, sums: S::V) -> S::V;
}

/// Elements of f32.
struct Elements;

impl<S: Simd> Factors<S> for Elements {
    #[inline(always)]
    unsafe fn multiply_add(x: S::V, w: S::V, sums: S::V) -> S::V {
        // SAFETY: plain arithmetic on vectors.
        unsafe { S::fma(x, w, sums) }
    }
}

/// Pairs of bf16.
#[cfg(target_arch = "x86_64")]
struct Pairs;

#[cfg(target_arch = "x86_64")]
impl Factors<Avx512> for Pairs {
    #[inline(always)]
    unsafe fn multiply_add(x: __m512, w: __m512, sums: __m512) -> __m512 {
        // SAFETY: all 512-bit vectors have the same representation; the caller knows the machine.
        unsafe { _mm512_dpbf16_ps(sums, transmute::<__m512, __m512bh>(x), transmute::<__m512, __m512bh>(w)) }
    }
}

#[inline(always)]
unsafe fn step_body<S: Simd>(j: &StepJob) {
    // SAFETY: guaranteed by the caller.
    unsafe { run_step::<S, Elements>(j) }
}

/// [`step`] with a state and a weight of pairs of bf16.
///
/// # Safety
/// The operands are valid for the job, and the machine has AVX-512 with BF16.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bf16,avx2,fma")]
pub(super) unsafe fn step_of_pairs(j: &StepJob) {
    // SAFETY: guaranteed by the caller.
    unsafe { run_step::<Avx512, Pairs>(j) }
}

#[inline(always)]
unsafe fn run_step<S: Simd, F: Factors<S>>(j: &StepJob) {
    // SAFETY: the caller provides operands valid for the job.
    unsafe {
        match j.desc.cell {
            _ if j.inputs.is_null() => run_blocks::<S, F, 1, PROJECTED, PROJECTED, PROJECTED, PROJECTED>(j),
            RecurrentCell::Lstm => run_blocks::<S, F, 4, 2, 8, 1, 4>(j),
            RecurrentCell::Gru => run_blocks::<S, F, 3, 2, 6, 1, 3>(j),
            RecurrentCell::Tanh | RecurrentCell::Relu => run_blocks::<S, F, 1, 4, 4, 4, 4>(j),
        }
    }
}

/// The most vectors of sums.
const SUMS: usize = 24;

/// The number of rows of the batch that are multiplied together, of `left`. More rows share the loads of the weight, if there are registers
/// for their sums.
fn rows_at_once<S: Simd>(left: usize) -> usize {
    match left {
        6.. if S::LANES == 16 => 6,
        4.. if S::LANES == 16 => 4,
        2..4 if S::LANES == 16 => left,
        _ => 1,
    }
}

/// Computes blocks of `U` vectors of units with `G` gates, `V` vectors in all. Three rows and more read `W` vectors of units at a time, whose
/// gates are `A` vectors.
#[inline(always)]
unsafe fn run_blocks<S, F, const G: usize, const U: usize, const V: usize, const W: usize, const A: usize>(j: &StepJob)
where
    S: Simd,
    F: Factors<S>,
{
    let (b0, b1) = (j.blocks[0], j.blocks[1]);
    for i in b0..b1 {
        let block = if j.backwards { b1 - 1 - (i - b0) } else { i };
        let mut row = 0;
        while row < j.desc.batch {
            let rows = rows_at_once::<S>(j.desc.batch - row);
            let units = if rows > 2 { W } else { U };
            for first in (0..U).step_by(units) {
                // SAFETY: the caller provides operands valid for the job.
                unsafe {
                    let sums = match rows {
                        6 => multiply_rows::<S, F, 6, G, U, W, A>(j, block, row, first),
                        4 => multiply_rows::<S, F, 4, G, U, W, A>(j, block, row, first),
                        3 => multiply_rows::<S, F, 3, G, U, W, A>(j, block, row, first),
                        2 => multiply_rows::<S, F, 2, G, U, U, V>(j, block, row, first),
                        _ => multiply_rows::<S, F, 1, G, U, U, V>(j, block, row, first),
                    };
                    finish_rows::<S, G>(j, &sums, [row, rows], [block * U + first, units]);
                }
            }
            row += rows;
        }
    }
}

/// Multiplies `R` rows of the batch by `W` vectors of a block's units, from vector `first` on. With their gates these are `A` vectors.
/// Returns the sums row by row, gate by gate.
#[inline(always)]
unsafe fn multiply_rows<S, F, const R: usize, const G: usize, const U: usize, const W: usize, const A: usize>(
    j: &StepJob,
    block: usize,
    row: usize,
    first: usize,
) -> [S::V; SUMS]
where
    S: Simd,
    F: Factors<S>,
{
    let depth = j.depth;
    // SAFETY: the caller provides operands valid for the job.
    unsafe {
        let mut acc = [[S::splat(0.0); A]; R];
        let mut w = j.weight.add((block * depth * G * U + first) * S::LANES);
        let x = j.factors.add(row * depth);
        for k in 0..depth {
            for v in 0..A {
                let w = S::load(w.add((v / W * U + v % W) * S::LANES));
                for r in 0..R {
                    acc[r][v] = F::multiply_add(S::splat(*x.add(r * depth + k)), w, acc[r][v]);
                }
            }
            w = w.add(G * U * S::LANES);
        }
        let mut sums = [S::splat(0.0); SUMS];
        for r in 0..R {
            for v in 0..A {
                sums[r * A + v] = acc[r][v];
            }
        }
        sums
    }
}

/// Applies the cell to rows `row..row + rows` and vectors `first..first + units` of units, whose products with the state are `sums`.
#[inline(always)]
unsafe fn finish_rows<S: Simd, const G: usize>(
    j: &StepJob,
    sums: &[S::V; SUMS],
    [row, rows]: [usize; 2],
    [first, units]: [usize; 2],
) {
    for r in 0..rows {
        for u in 0..units {
            let unit = (first + u) * S::LANES;
            if unit < j.units {
                // SAFETY: the caller provides operands valid for the job.
                unsafe {
                    let mut gates = [S::splat(0.0); G];
                    for g in 0..G {
                        gates[g] = sums[(r * G + g) * units + u];
                    }
                    finish_cell::<S, G>(j, row + r, unit, &gates);
                }
            }
        }
    }
}

/// Applies the cell to one vector of units. `sums` are the gates' products with the state.
#[inline(always)]
unsafe fn finish_cell<S: Simd, const G: usize>(j: &StepJob, row: usize, unit: usize, sums: &[S::V; G]) {
    let h = j.units;
    let n = S::LANES.min(h - unit);
    // SAFETY: `n` units from `unit` on are valid in every operand.
    unsafe {
        if j.inputs.is_null() {
            S::store_first(j.after.add(row * h + unit), n, sums[0]);
            return;
        }
        let x = j.inputs.add(row * G * h + unit);
        let (mut xs, mut us) = (*sums, *sums);
        for g in 0..G {
            xs[g] = S::load_first(x.add(g * h), n);
            if !j.bias.is_null() {
                us[g] = S::add(us[g], S::load_first(j.bias.add(g * h + unit), n));
            }
        }
        let place = row * h + unit;
        let y = match j.desc.cell {
            RecurrentCell::Lstm => lstm_output::<S, G>(j.cell.add(place), n, &xs, &us),
            RecurrentCell::Gru => {
                let r = sigmoid::<S>(S::add(xs[0], us[0]));
                let z = sigmoid::<S>(S::add(xs[1 % G], us[1 % G]));
                let new = tanh::<S>(S::fma(r, us[2 % G], xs[2 % G]));
                S::fma(S::sub(S::load_first(j.before.add(place), n), new), z, new)
            }
            RecurrentCell::Tanh => tanh::<S>(S::add(xs[0], us[0])),
            RecurrentCell::Relu => S::max(S::splat(0.0), S::add(xs[0], us[0])),
        };
        S::store_first(j.after.add(place), n, y);
    }
}

/// Updates `n` cell states of an LSTM, and returns the outputs. `xs` and `us` are the gates' products with the input and
/// the state.
#[inline(always)]
unsafe fn lstm_output<S: Simd, const G: usize>(cell: *mut f32, n: usize, xs: &[S::V; G], us: &[S::V; G]) -> S::V {
    // SAFETY: the caller provides `n` cell states.
    unsafe {
        let i = sigmoid::<S>(S::add(xs[0], us[0]));
        let f = sigmoid::<S>(S::add(xs[1 % G], us[1 % G]));
        let g = tanh::<S>(S::add(xs[2 % G], us[2 % G]));
        let o = sigmoid::<S>(S::add(xs[3 % G], us[3 % G]));
        let new = S::fma(f, S::load_first(cell, n), S::mul(i, g));
        S::store_first(cell, n, new);
        S::mul(o, tanh::<S>(new))
    }
}

/// `1 / (1 + exp(-x))` without overflow on either side. NaN stays NaN.
#[inline(always)]
unsafe fn sigmoid<S: Simd>(x: S::V) -> S::V {
    // SAFETY: plain arithmetic on vectors.
    unsafe {
        let (zero, one) = (S::splat(0.0), S::splat(1.0));
        let e = crate::math::attention::exp::<S>(S::min(x, S::sub(zero, x)));
        let d = S::div(one, S::add(one, e));
        S::select_lt(x, zero, S::mul(e, d), d)
    }
}

/// `tanh`, within 3 ULP: by exponentials, near zero by the polynomial of Cephes' tanhf. NaN stays NaN.
#[inline(always)]
unsafe fn tanh<S: Simd>(x: S::V) -> S::V {
    // SAFETY: plain arithmetic on vectors.
    unsafe {
        let (zero, one) = (S::splat(0.0), S::splat(1.0));
        let below = S::min(x, S::sub(zero, x));
        let e = crate::math::attention::exp::<S>(S::add(below, below));
        let t = S::div(S::sub(one, e), S::add(one, e));
        let far = S::select_lt(x, zero, S::sub(zero, t), t);
        let z = S::mul(x, x);
        let mut p = S::splat(-5.704_988_7e-3);
        for c in [2.063_909e-2, -5.373_971_6e-2, 1.333_144_2e-1, -3.333_328e-1] {
            p = S::fma(p, z, S::splat(c));
        }
        let near = S::fma(S::mul(p, z), x, x);
        S::select_lt(S::splat(-0.625), below, near, far)
    }
}

per_isa! {
    /// The kernel of one level: computes the blocks of one step.
    pub(super) fn step = step_body(j: &StepJob)
}
