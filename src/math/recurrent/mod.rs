//! Recurrent layers: each step is one matrix product with the state, followed directly by the cell.
//!
//! The recurrent weight is packed once so that a block of hidden units has all of its gates side by side. Whoever
//! computes a block has everything that its cell needs, so threads synchronise only once per step. Each thread keeps
//! its part of the units, so its part of the weight stays in its own cache. Every other step visits the blocks in
//! reverse: of a part larger than the cache, the half that was read last is still cached.
//!
//! Every element is summed in the order of the hidden units, whatever the number of threads.

#[cfg(test)]
mod tests;
mod weight;

use super::contract::{
    Constant, PlanError, Recurrent, RecurrentArgs, RecurrentCell, RecurrentConstants, RecurrentPlan,
};
use super::isa::per_isa;
use super::scratch::{self, SharedPtr};
use super::simd::Simd;
use crate::parallel::Pool;
use crate::target::Isa;
use crate::tensor::AlignedBytes;
use std::sync::Arc;
use weight::Matrix;

/// The number of vectors of hidden units in a block. Together with the gates, about eight sums are in flight.
const fn unit_vectors(cell: RecurrentCell) -> usize {
    match cell {
        RecurrentCell::Lstm | RecurrentCell::Gru => 2,
        RecurrentCell::Tanh | RecurrentCell::Relu => 4,
    }
}

/// The number of vectors of a projection's outputs in a block.
const PROJECTED: usize = 4;

/// Plans a recurrent layer. Constant weights (as bytes of f32) are packed now.
pub(super) fn plan(
    isa: Isa,
    desc: &Recurrent,
    constants: RecurrentConstants,
) -> Result<Box<dyn RecurrentPlan>, PlanError> {
    desc.extents().ok_or(PlanError::Size)?;
    if desc.projected.is_some() && desc.cell != RecurrentCell::Lstm {
        return Err(PlanError::Size);
    }
    let weight = Matrix {
        groups: desc.cell.gates(),
        units: desc.hidden,
        columns: desc.state_size(),
        block: unit_vectors(desc.cell) * isa.lanes(),
    };
    let projection = desc.projected.map(|units| Matrix {
        groups: 1,
        units,
        columns: desc.hidden,
        block: PROJECTED * isa.lanes(),
    });
    let packed = |m: Matrix, c: Option<Constant>| c.map(|c| m.pack_constant(c)).transpose();
    Ok(Box::new(F32RecurrentPlan {
        desc: *desc,
        isa,
        weight,
        packed: packed(weight, constants.weight)?,
        projection,
        packed_projection: match projection {
            Some(m) => packed(m, constants.projection)?,
            None => None,
        },
    }))
}

struct F32RecurrentPlan {
    desc: Recurrent,
    isa: Isa,
    weight: Matrix,
    packed: Option<Arc<AlignedBytes>>,
    projection: Option<Matrix>,
    packed_projection: Option<Arc<AlignedBytes>>,
}

/// A part of a step: some blocks of units, for all rows of the batch.
#[derive(Clone, Copy)]
pub(super) struct StepJob {
    desc: Recurrent,
    /// The numbers of units and columns of the multiplied weight.
    units: usize,
    columns: usize,
    weight: *const f32,
    /// `[batch, gates * hidden]` of this step. Null for a projection, a product without a cell.
    inputs: *const f32,
    bias: *const f32,
    /// `[batch, columns]`.
    before: *const f32,
    /// `[batch, units]`.
    after: *mut f32,
    /// The cell states, updated in place.
    cell: *mut f32,
    blocks: [usize; 2],
    backwards: bool,
}

/// Packs a dynamic weight for one run.
///
/// # Safety
/// `raw` is readable for the weight's extent unless the weight is already packed.
unsafe fn pack_fresh(m: &Matrix, packed: &Option<Arc<AlignedBytes>>, raw: *const f32) -> scratch::Scratch {
    let mut own = scratch::take_buffer(if packed.is_some() { 0 } else { m.len() });
    if packed.is_none() {
        // SAFETY: guaranteed by the caller; the buffer has the packed length.
        unsafe { m.pack(raw, own.as_mut_ptr()) };
    }
    own
}

fn weight_start(packed: &Option<Arc<AlignedBytes>>, own: &[f32]) -> *const f32 {
    packed.as_ref().map_or(own.as_ptr(), |p| p.bytes().as_ptr().cast())
}

/// The projection of a run's cell outputs.
struct Projector<'a> {
    matrix: &'a Matrix,
    packed: &'a Option<Arc<AlignedBytes>>,
    /// The weight packed for this run, if it is dynamic.
    own: scratch::Scratch,
    /// The output of one step's cell, before the projection.
    cell_output: scratch::Scratch,
}

impl Projector<'_> {
    /// The product that follows the step of `cell`.
    fn projection_job(&self, cell: StepJob, after: *mut f32) -> StepJob {
        StepJob {
            units: self.matrix.units,
            columns: self.matrix.columns,
            weight: weight_start(self.packed, &self.own),
            inputs: std::ptr::null(),
            before: self.cell_output.as_ptr(),
            after,
            ..cell
        }
    }
}

impl F32RecurrentPlan {
    /// Packs the weight of the projection, if there is one, and allocates the memory for what it projects.
    ///
    /// # Safety
    /// `args` is as for [`RecurrentPlan::run`].
    unsafe fn begin_projection(&self, args: &RecurrentArgs) -> Option<Projector<'_>> {
        let matrix = self.projection.as_ref()?;
        Some(Projector {
            matrix,
            packed: &self.packed_projection,
            // SAFETY: the caller provides the dynamic weight.
            own: unsafe { pack_fresh(matrix, &self.packed_projection, args.projection) },
            cell_output: scratch::take_buffer(self.desc.batch * self.desc.hidden),
        })
    }

    /// Runs one product and the cell that follows it, on as many threads as are worthwhile.
    ///
    /// # Safety
    /// The job's operands are valid.
    unsafe fn run_product(&self, pool: &Pool, m: &Matrix, mut job: StepJob) {
        let (blocks, chunks, kernel) = (
            m.blocks(),
            m.chunk_count(self.desc.batch, pool.threads()),
            step(self.isa),
        );
        let shared = SharedPtr(&mut job as *mut StepJob);
        pool.run(chunks, |c| {
            // SAFETY: the job outlives the run and is only read.
            let job = StepJob {
                blocks: [c * blocks / chunks, (c + 1) * blocks / chunks],
                ..unsafe { std::ptr::read(shared.get()) }
            };
            // SAFETY: guaranteed by the caller; a chunk writes the units of its blocks and reads the state of the step
            // before, which no chunk writes.
            unsafe { kernel(&job) };
        });
    }
}

impl RecurrentPlan for F32RecurrentPlan {
    unsafe fn run(&self, pool: &Pool, args: &RecurrentArgs) {
        let d = self.desc;
        let (state, units) = (d.batch * d.state_size(), d.batch * d.hidden);
        if units == 0 || d.time == 0 {
            return;
        }
        // SAFETY: the caller provides the dynamic weights.
        let own = unsafe { pack_fresh(&self.weight, &self.packed, args.weight) };
        let cells = args.out.wrapping_add(d.time * state);
        if d.cell == RecurrentCell::Lstm {
            // SAFETY: the block of cell states follows the steps.
            unsafe { std::ptr::copy_nonoverlapping(args.cell, cells, units) };
        }
        // SAFETY: as above.
        let mut projector = unsafe { self.begin_projection(args) };
        let mut before = args.state;
        for i in 0..d.time {
            let t = if d.reverse { d.time - 1 - i } else { i };
            let after = args.out.wrapping_add(t * state);
            let job = StepJob {
                desc: d,
                units: d.hidden,
                columns: d.state_size(),
                weight: weight_start(&self.packed, &own),
                inputs: args.inputs.wrapping_add(t * units * d.cell.gates()),
                bias: if d.bias { args.bias } else { std::ptr::null() },
                before,
                after: projector.as_mut().map_or(after, |p| p.cell_output.as_mut_ptr()),
                cell: cells,
                blocks: [0, 0],
                backwards: i % 2 == 1,
            };
            // SAFETY: guaranteed by the caller.
            unsafe {
                self.run_product(pool, &self.weight, job);
                if let Some(p) = &projector {
                    self.run_product(pool, p.matrix, p.projection_job(job, after));
                }
            }
            before = after;
        }
    }

    fn describe(&self) -> String {
        let packed = if self.packed.is_some() { "W packed" } else { "dynamic" };
        let projected = if self.projection.is_some() { " projected" } else { "" };
        format!("recurrent {:?} f32 {packed}{projected} {}", self.desc.cell, self.isa)
    }
}

#[inline(always)]
unsafe fn step_body<S: Simd>(j: &StepJob) {
    // SAFETY: the caller provides operands valid for the job.
    unsafe {
        match j.desc.cell {
            _ if j.inputs.is_null() => run_blocks::<S, 1, PROJECTED, PROJECTED>(j),
            RecurrentCell::Lstm => run_blocks::<S, 4, 2, 8>(j),
            RecurrentCell::Gru => run_blocks::<S, 3, 2, 6>(j),
            RecurrentCell::Tanh | RecurrentCell::Relu => run_blocks::<S, 1, 4, 4>(j),
        }
    }
}

#[inline(always)]
unsafe fn run_blocks<S: Simd, const G: usize, const U: usize, const V: usize>(j: &StepJob) {
    let (b0, b1) = (j.blocks[0], j.blocks[1]);
    for i in b0..b1 {
        let block = if j.backwards { b1 - 1 - (i - b0) } else { i };
        let mut row = 0;
        // SAFETY: the caller provides operands valid for the job.
        unsafe {
            if S::LANES == 16 {
                while row + 2 <= j.desc.batch {
                    multiply_rows::<S, 2, G, U, V>(j, block, row);
                    row += 2;
                }
            }
            while row < j.desc.batch {
                multiply_rows::<S, 1, G, U, V>(j, block, row);
                row += 1;
            }
        }
    }
}

/// Multiplies `R` rows of the batch by one block of units and applies the cell.
#[inline(always)]
unsafe fn multiply_rows<S: Simd, const R: usize, const G: usize, const U: usize, const V: usize>(
    j: &StepJob,
    block: usize,
    row: usize,
) {
    let columns = j.columns;
    // SAFETY: the caller provides operands valid for the job.
    unsafe {
        let mut acc = [[S::splat(0.0); V]; R];
        let mut w = j.weight.add(block * columns * V * S::LANES);
        let x = j.before.add(row * columns);
        for k in 0..columns {
            for r in 0..R {
                let s = S::splat(*x.add(r * columns + k));
                for v in 0..V {
                    acc[r][v] = S::fma(s, S::load(w.add(v * S::LANES)), acc[r][v]);
                }
            }
            w = w.add(V * S::LANES);
        }
        for r in 0..R {
            for u in 0..U {
                let unit = (block * U + u) * S::LANES;
                if unit < j.units {
                    let mut sums = [S::splat(0.0); G];
                    for g in 0..G {
                        sums[g] = acc[r][g * U + u];
                    }
                    finish_cell::<S, G>(j, row + r, unit, &sums);
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
