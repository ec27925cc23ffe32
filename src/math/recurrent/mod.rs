//! Recurrent layers: each step is one matrix product with the state, followed directly by the cell.
//!
//! The recurrent weight is packed once so that a block of hidden units has all of its gates side by side. Whoever
//! computes a block has everything that its cell needs, so threads synchronise only once per step. Each thread keeps
//! its part of the units, so its part of the weight stays in its own cache. Every other step visits the blocks in
//! reverse: of a part larger than the cache, the half that was read last is still cached.
//!
//! Every element is summed in the order of the hidden units, whatever the number of threads.
//!
//! With AVX-512 BF16, layers of bf16 ([`Recurrent::in_bf16`]) keep their weights in 16 bits and multiply pairs (`vdpbf16ps`), as torch's
//! kernel does. The state is rounded for the product only.

mod step;
#[cfg(test)]
mod tests;
mod weight;

use super::contract::{
    Constant, PlanError, Recurrent, RecurrentArgs, RecurrentCell, RecurrentConstants, RecurrentPlan,
};
use super::pairs::PairKernels;
use super::scratch::{self, SharedPtr};
use crate::parallel::Pool;
use crate::target::Isa;
use crate::tensor::AlignedBytes;
use std::sync::Arc;
use step::step;
#[cfg(target_arch = "x86_64")]
use step::step_of_pairs;
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

/// Plans a recurrent layer for the instruction sets of `kernels`, which the machine must support. Constant weights (as bytes of f32) are
/// packed now.
pub(super) fn plan(
    kernels: &PairKernels,
    desc: &Recurrent,
    constants: RecurrentConstants,
) -> Result<Box<dyn RecurrentPlan>, PlanError> {
    desc.extents().ok_or(PlanError::Size)?;
    if desc.projected.is_some() && desc.cell != RecurrentCell::Lstm {
        return Err(PlanError::Size);
    }
    let isa = kernels.isa;
    let in_pairs = desc.in_bf16 && kernels.rounds_blocks();
    let weight = Matrix {
        in_pairs,
        isa,
        groups: desc.cell.gates(),
        units: desc.hidden,
        columns: desc.state_size(),
        block: unit_vectors(desc.cell) * isa.lanes(),
    };
    let projection = desc.projected.map(|units| Matrix {
        in_pairs,
        isa,
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
    /// The number of units of the multiplied weight, and of words in a row of it.
    units: usize,
    depth: usize,
    /// Words: f32, or pairs of bf16.
    weight: *const f32,
    /// `[batch, depth]`: the words of `before`.
    factors: *const f32,
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
            depth: self.matrix.depth(),
            weight: weight_start(self.packed, &self.own),
            inputs: std::ptr::null(),
            before: self.cell_output.as_ptr(),
            factors: self.cell_output.as_ptr(),
            after,
            ..cell
        }
    }
}

impl F32RecurrentPlan {
    /// Copies the initial cell states, if the cell has any, to the block after the steps, where they are updated.
    ///
    /// # Safety
    /// `args` is as for [`RecurrentPlan::run`].
    unsafe fn init_cells(&self, args: &RecurrentArgs) -> *mut f32 {
        let d = self.desc;
        let cells = args.out.wrapping_add(d.time * d.batch * d.state_size());
        if d.cell == RecurrentCell::Lstm {
            // SAFETY: guaranteed by the caller.
            unsafe { std::ptr::copy_nonoverlapping(args.cell, cells, d.batch * d.hidden) };
        }
        cells
    }

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
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(unused_mut, reason = "only x86-64 multiplies pairs")
    )]
    unsafe fn run_product(&self, pool: &Pool, m: &Matrix, mut job: StepJob) {
        let (blocks, chunks) = (m.blocks(), m.chunk_count(self.desc.batch, pool.threads()));
        let mut kernel = step(self.isa);
        let mut pairs = scratch::take_buffer(if m.in_pairs { self.desc.batch * m.depth() } else { 0 });
        #[cfg(target_arch = "x86_64")]
        if m.in_pairs {
            // SAFETY: guaranteed by the caller; the buffer has the pairs.
            unsafe { m.round_rows(job.before, self.desc.batch, pairs.as_mut_ptr()) };
            job.factors = pairs.as_ptr();
            kernel = step_of_pairs;
        }
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
        // SAFETY: guaranteed by the caller.
        let (cells, own, mut projector) = unsafe {
            let own = pack_fresh(&self.weight, &self.packed, args.weight);
            (self.init_cells(args), own, self.begin_projection(args))
        };
        let mut before = args.state;
        for i in 0..d.time {
            let t = if d.reverse { d.time - 1 - i } else { i };
            let after = args.out.wrapping_add(t * state);
            let job = StepJob {
                desc: d,
                units: d.hidden,
                depth: self.weight.depth(),
                weight: weight_start(&self.packed, &own),
                inputs: args.inputs.wrapping_add(t * units * d.cell.gates()),
                bias: if d.bias { args.bias } else { std::ptr::null() },
                before,
                factors: before,
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
        let (dtype, unit) = match self.weight.in_pairs {
            true => ("bf16", "avx512bf16".to_string()),
            false => ("f32", self.isa.to_string()),
        };
        format!("recurrent {:?} {dtype} {packed}{projected} {unit}", self.desc.cell)
    }
}
