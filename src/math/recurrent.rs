//! Recurrent layers: one product of a matrix with the state per step, and the cell right behind it.
//!
//! The recurrent weight is packed once so that a block of hidden units has all of its gates side by side: whoever computes a
//! block has everything its cell needs, and one hand-over between threads per step is enough. Each thread keeps to its
//! part of the units, so that its part of the weight stays in its own cache; every other step goes through the blocks in
//! reverse, so that of a part larger than the cache the half that was read last is still there.
//!
//! Every element is summed in the order of the hidden units, whatever the number of threads.

use super::contract::{Cell, Constant, PlanError, Recurrent, RecurrentArgs, RecurrentPlan};
use super::isa::{Isa, per_isa};
use super::scratch::{self, Shared};
use super::simd::Simd;
use crate::parallel::Pool;
use crate::tensor::AlignedBytes;
use std::sync::Arc;

/// Multiply-adds of a step below which it stays on one thread.
const ALONE: usize = 60_000;

/// Vectors of hidden units in a block: with the gates about eight sums are in flight.
const fn units(cell: Cell) -> usize {
    match cell {
        Cell::Lstm | Cell::Gru => 2,
        Cell::Tanh | Cell::Relu => 4,
    }
}

/// Plans a recurrent layer; a constant weight (as bytes of f32) is packed now.
pub fn plan(isa: Isa, desc: &Recurrent, weight: Option<Constant>) -> Result<Box<dyn RecurrentPlan>, PlanError> {
    let [_, _, need, ..] = desc.extents().ok_or(PlanError::Size)?;
    let mut plan = Plan {
        desc: *desc,
        isa,
        packed: None,
    };
    if let Some(bytes) = weight {
        if bytes.len() < need * 4 {
            return Err(PlanError::Constant {
                need: need * 4,
                got: bytes.len(),
            });
        }
        let key = [
            4,
            desc.cell as usize,
            desc.hidden,
            plan.block_units(),
            plan.packed_len(),
        ];
        plan.packed = Some(bytes.packed(&key, |bytes| {
            let w = super::matmul::packed::aligned(bytes);
            let mut packed = AlignedBytes::zeroed(plan.packed_len() * 4);
            // SAFETY: the weight has its extent, the destination the length of the packed one.
            unsafe { plan.pack(w.as_ptr(), packed.bytes_mut().as_mut_ptr().cast()) };
            packed
        }));
    }
    Ok(Box::new(plan))
}

struct Plan {
    desc: Recurrent,
    isa: Isa,
    packed: Option<Arc<AlignedBytes>>,
}

/// A part of a step: some blocks of units, all rows of the batch.
#[derive(Clone, Copy)]
pub struct StepJob {
    desc: Recurrent,
    weight: *const f32,
    /// `[batch, gates * hidden]` of this step.
    inputs: *const f32,
    bias: *const f32,
    before: *const f32,
    after: *mut f32,
    /// The cell states, updated in place.
    cell: *mut f32,
    blocks: [usize; 2],
    backwards: bool,
}

impl Plan {
    fn block_units(&self) -> usize {
        units(self.desc.cell) * self.isa.lanes()
    }

    fn blocks(&self) -> usize {
        self.desc.hidden.div_ceil(self.block_units())
    }

    fn packed_len(&self) -> usize {
        self.blocks() * self.block_units() * self.desc.cell.gates() * self.desc.hidden
    }

    /// Packs the weight as `[block][k][gate][unit]`, units beyond the last as zeros.
    ///
    /// # Safety
    /// `w` is readable for the weight's extent, `to` writable for the packed length.
    unsafe fn pack(&self, w: *const f32, to: *mut f32) {
        let (h, n, gates) = (self.desc.hidden, self.block_units(), self.desc.cell.gates());
        for b in 0..self.blocks() {
            for g in 0..gates {
                let count = n.min(h - b * n);
                // SAFETY: rows `g * h + b * n ..` of the weight; the gate's columns of the block.
                unsafe {
                    let src = w.add((g * h + b * n) * h);
                    let dst = to.add(b * h * gates * n + g * n);
                    for k in 0..h {
                        for u in 0..n {
                            *dst.add(k * gates * n + u) = if u < count { *src.add(u * h + k) } else { 0.0 };
                        }
                    }
                }
            }
        }
    }

    fn chunks(&self, threads: usize) -> usize {
        let d = &self.desc;
        let macs = d.batch * d.cell.gates() * d.hidden * d.hidden;
        if macs < ALONE { 1 } else { threads.min(self.blocks()) }
    }
}

impl RecurrentPlan for Plan {
    unsafe fn run(&self, pool: &Pool, args: &RecurrentArgs) {
        let d = self.desc;
        let state = d.batch * d.hidden;
        if state == 0 || d.time == 0 {
            return;
        }
        let mut own = scratch::take(if self.packed.is_some() { 0 } else { self.packed_len() });
        let weight = match &self.packed {
            Some(p) => p.bytes().as_ptr().cast::<f32>(),
            None => {
                // SAFETY: the caller gives the weight; the buffer has the packed length.
                unsafe { self.pack(args.weight, own.as_mut_ptr()) };
                own.as_ptr()
            }
        };
        let cells = args.out.wrapping_add(d.time * state);
        if d.cell == Cell::Lstm {
            // SAFETY: the row of cell states follows the steps.
            unsafe { std::ptr::copy_nonoverlapping(args.cell, cells, state) };
        }
        let (blocks, chunks, kernel) = (self.blocks(), self.chunks(pool.threads()), step(self.isa));
        let mut before = args.state;
        for i in 0..d.time {
            let t = if d.reverse { d.time - 1 - i } else { i };
            let after = args.out.wrapping_add(t * state);
            let shared = Shared(&mut StepJob {
                desc: d,
                weight,
                inputs: args.inputs.wrapping_add(t * state * d.cell.gates()),
                bias: if d.bias { args.bias } else { std::ptr::null() },
                before,
                after,
                cell: cells,
                blocks: [0, 0],
                backwards: i % 2 == 1,
            } as *mut StepJob);
            pool.run(chunks, |c| {
                // SAFETY: the job outlives the run and is only read.
                let job = StepJob {
                    blocks: [c * blocks / chunks, (c + 1) * blocks / chunks],
                    ..unsafe { std::ptr::read(shared.get()) }
                };
                // SAFETY: the caller's promise; a chunk writes the units of its blocks and reads the state of the step
                // before, which no chunk writes.
                unsafe { kernel(&job) };
            });
            before = after;
        }
    }

    fn describe(&self) -> String {
        let packed = if self.packed.is_some() { "W packed" } else { "dynamic" };
        format!("recurrent {:?} f32 {packed} {}", self.desc.cell, self.isa)
    }
}

#[inline(always)]
unsafe fn step_body<S: Simd>(j: &StepJob) {
    // SAFETY: the caller gives operands valid for the job.
    unsafe {
        match j.desc.cell {
            Cell::Lstm => layer::<S, 4, 2, 8>(j),
            Cell::Gru => layer::<S, 3, 2, 6>(j),
            Cell::Tanh | Cell::Relu => layer::<S, 1, 4, 4>(j),
        }
    }
}

#[inline(always)]
unsafe fn layer<S: Simd, const G: usize, const U: usize, const V: usize>(j: &StepJob) {
    let (b0, b1) = (j.blocks[0], j.blocks[1]);
    for i in b0..b1 {
        let block = if j.backwards { b1 - 1 - (i - b0) } else { i };
        let mut row = 0;
        // SAFETY: the caller gives operands valid for the job.
        unsafe {
            if S::LANES == 16 {
                while row + 2 <= j.desc.batch {
                    rows::<S, 2, G, U, V>(j, block, row);
                    row += 2;
                }
            }
            while row < j.desc.batch {
                rows::<S, 1, G, U, V>(j, block, row);
                row += 1;
            }
        }
    }
}

/// `R` rows of the batch times one block of units, then the cell.
#[inline(always)]
unsafe fn rows<S: Simd, const R: usize, const G: usize, const U: usize, const V: usize>(
    j: &StepJob,
    block: usize,
    row: usize,
) {
    let h = j.desc.hidden;
    // SAFETY: the caller gives operands valid for the job.
    unsafe {
        let mut acc = [[S::splat(0.0); V]; R];
        let mut w = j.weight.add(block * h * V * S::LANES);
        let x = j.before.add(row * h);
        for k in 0..h {
            for r in 0..R {
                let s = S::splat(*x.add(r * h + k));
                for v in 0..V {
                    acc[r][v] = S::fma(s, S::load(w.add(v * S::LANES)), acc[r][v]);
                }
            }
            w = w.add(V * S::LANES);
        }
        for r in 0..R {
            for u in 0..U {
                let unit = (block * U + u) * S::LANES;
                if unit < h {
                    let mut sums = [S::splat(0.0); G];
                    for g in 0..G {
                        sums[g] = acc[r][g * U + u];
                    }
                    finish::<S, G>(j, row + r, unit, &sums);
                }
            }
        }
    }
}

/// The cell of one vector of units: `sums` are the gates' products with the state.
#[inline(always)]
unsafe fn finish<S: Simd, const G: usize>(j: &StepJob, row: usize, unit: usize, sums: &[S::V; G]) {
    let h = j.desc.hidden;
    let n = S::LANES.min(h - unit);
    // SAFETY: `n` units from `unit` on are valid in every operand.
    unsafe {
        let x = j.inputs.add(row * G * h + unit);
        let (mut xs, mut us) = (*sums, *sums);
        for g in 0..G {
            xs[g] = S::load_first(x.add(g * h), n);
            if !j.bias.is_null() {
                us[g] = S::add(us[g], S::load_first(j.bias.add(g * h + unit), n));
            }
        }
        let at = row * h + unit;
        let y = match j.desc.cell {
            Cell::Lstm => {
                let c = j.cell.add(at);
                let i = sigmoid::<S>(S::add(xs[0], us[0]));
                let f = sigmoid::<S>(S::add(xs[1 % G], us[1 % G]));
                let g = tanh::<S>(S::add(xs[2 % G], us[2 % G]));
                let o = sigmoid::<S>(S::add(xs[3 % G], us[3 % G]));
                let new = S::fma(f, S::load_first(c, n), S::mul(i, g));
                S::store_first(c, n, new);
                S::mul(o, tanh::<S>(new))
            }
            Cell::Gru => {
                let r = sigmoid::<S>(S::add(xs[0], us[0]));
                let z = sigmoid::<S>(S::add(xs[1 % G], us[1 % G]));
                let new = tanh::<S>(S::fma(r, us[2 % G], xs[2 % G]));
                S::fma(S::sub(S::load_first(j.before.add(at), n), new), z, new)
            }
            Cell::Tanh => tanh::<S>(S::add(xs[0], us[0])),
            Cell::Relu => S::max(S::splat(0.0), S::add(xs[0], us[0])),
        };
        S::store_first(j.after.add(at), n, y);
    }
}

/// `1 / (1 + exp(-x))`, without overflow on either side; NaN stays.
#[inline(always)]
unsafe fn sigmoid<S: Simd>(x: S::V) -> S::V {
    // SAFETY: plain arithmetic on vectors.
    unsafe {
        let (zero, one) = (S::splat(0.0), S::splat(1.0));
        let e = super::attention::exp::<S>(S::min(x, S::sub(zero, x)));
        let d = S::div(one, S::add(one, e));
        S::select_lt(x, zero, S::mul(e, d), d)
    }
}

/// `tanh`: by exponentials, near zero the polynomial of Cephes' tanhf; NaN stays. Within 3 ULP.
#[inline(always)]
unsafe fn tanh<S: Simd>(x: S::V) -> S::V {
    // SAFETY: plain arithmetic on vectors.
    unsafe {
        let (zero, one) = (S::splat(0.0), S::splat(1.0));
        let below = S::min(x, S::sub(zero, x));
        let e = super::attention::exp::<S>(S::add(below, below));
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
    /// The kernel of one level: the blocks of one step.
    pub fn step = step_body(j: &StepJob)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(n: usize, seed: usize) -> Vec<f32> {
        (0..n)
            .map(|i| ((i * 37 + seed * 11) % 61) as f32 / 30.0 - 1.0)
            .collect()
    }

    /// The definition in f64: hidden states after every step, then the cell states.
    fn expected(d: &Recurrent, x: &[f32], h0: &[f32], c0: &[f32], w: &[f32], b: &[f32]) -> Vec<f64> {
        let (h, g) = (d.hidden, d.cell.gates());
        let mut out = vec![0.0; (d.time + 1) * d.batch * h];
        let mut cell: Vec<f64> = c0.iter().map(|&v| v as f64).collect();
        let mut state: Vec<f64> = h0.iter().map(|&v| v as f64).collect();
        let sigmoid = |v: f64| 1.0 / (1.0 + (-v).exp());
        for i in 0..d.time {
            let t = if d.reverse { d.time - 1 - i } else { i };
            let old = state.clone();
            for n in 0..d.batch {
                for k in 0..h {
                    let xg = |q: usize| x[((t * d.batch + n) * g + q) * h + k] as f64;
                    let ug = |q: usize| {
                        let row = &w[(q * h + k) * h..][..h];
                        let sum: f64 = row.iter().zip(&old[n * h..]).map(|(&a, &b)| a as f64 * b).sum();
                        sum + if d.bias { b[q * h + k] as f64 } else { 0.0 }
                    };
                    let at = n * h + k;
                    state[at] = match d.cell {
                        Cell::Lstm => {
                            let a = |q| xg(q) + ug(q);
                            cell[at] = sigmoid(a(1)) * cell[at] + sigmoid(a(0)) * a(2).tanh();
                            sigmoid(a(3)) * cell[at].tanh()
                        }
                        Cell::Gru => {
                            let (r, z) = (sigmoid(xg(0) + ug(0)), sigmoid(xg(1) + ug(1)));
                            let new = (xg(2) + r * ug(2)).tanh();
                            (old[at] - new) * z + new
                        }
                        Cell::Tanh => (xg(0) + ug(0)).tanh(),
                        Cell::Relu => (xg(0) + ug(0)).max(0.0),
                    };
                    out[t * d.batch * h + at] = state[at];
                }
            }
        }
        let tail = d.time * d.batch * h;
        out[tail..].copy_from_slice(&cell);
        out
    }

    fn check(d: &Recurrent, isa: Isa, threads: usize, constant: bool) -> Vec<f32> {
        let [inputs, state, weight, rows, out] = d.extents().expect("small sizes");
        let (x, h0, c0) = (values(inputs, 1), values(state, 2), values(state, 3));
        let w: Vec<f32> = values(weight, 4).iter().map(|v| v / d.hidden as f32).collect();
        let b = values(rows, 5);
        let mut y = vec![f32::NAN; out];
        let bytes: Vec<u8> = w.iter().flat_map(|v| v.to_le_bytes()).collect();
        let plan = plan(isa, d, constant.then_some(Constant::bytes(&bytes))).expect("a plan");
        let args = RecurrentArgs {
            inputs: x.as_ptr(),
            state: h0.as_ptr(),
            cell: c0.as_ptr(),
            weight: w.as_ptr(),
            bias: b.as_ptr(),
            out: y.as_mut_ptr(),
        };
        // SAFETY: the arrays have the descriptor's extents.
        unsafe { plan.run(&Pool::new(threads), &args) };
        let want = expected(d, &x, &h0, &c0, &w, &b);
        for (i, (&y, &want)) in y.iter().zip(&want).enumerate() {
            assert!(
                (y as f64 - want).abs() < 2e-6 * want.abs().max(1.0),
                "{d:?} {isa} {i}: {y} {want}"
            );
        }
        y
    }

    #[test]
    fn layers_are_what_their_definition_says() {
        for cell in [Cell::Lstm, Cell::Gru, Cell::Tanh, Cell::Relu] {
            for (time, batch, hidden) in [(1, 1, 1), (5, 1, 33), (3, 3, 70), (2, 5, 128)] {
                for reverse in [false, true] {
                    let d = Recurrent {
                        cell,
                        time,
                        batch,
                        hidden,
                        reverse,
                        bias: hidden != 33,
                    };
                    for isa in Isa::available() {
                        let one = check(&d, isa, 1, true);
                        assert_eq!(one, check(&d, isa, 3, true), "the same bits with three threads");
                        assert_eq!(
                            one,
                            check(&d, isa, 1, false),
                            "the same bits with a weight that is not constant"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        let d = Recurrent {
            cell: Cell::Lstm,
            time: 1,
            batch: 1,
            hidden: usize::MAX / 8,
            reverse: false,
            bias: false,
        };
        assert!(matches!(plan(Isa::Portable, &d, None), Err(PlanError::Size)));
    }
}
