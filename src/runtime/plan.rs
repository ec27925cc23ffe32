//! Plans a program's steps: divides kernels into chunks, and plans contractions with packed constants.

use super::executable::{Executable, ExecutableOptions, OverwriteFn, RoutineFn, RunError, cancelled};
use super::overwrite::overwritten_input;
use crate::code::CompiledKernels;
use crate::diag::limits::check_time;
use crate::diag::{Code, Diagnostic};
use crate::kernel::{Kernel, estimate};
use crate::math::contract::{
    AttentionPlan, Constant, ConvConstants, ConvPlan, ExpansionPlan, GroupedPlan, MatMulConstants, MatMulPlan, Pack,
    Packer, PlanError, RecurrentConstants, RecurrentPlan,
};
use crate::program::{
    self, AffineTail, BufferId, BufferOperand, BufferPlace, Contract, Program, RecurrentOperands, Step,
    recurrent_operands, whole_buffer,
};
use crate::tensor::{ALIGN, Tensor};
use std::sync::{Arc, Mutex};

/// A kernel with less estimated work than this runs on one thread: distributing chunks would cost more than it saves.
const PARALLEL_NANOSECONDS: f64 = 5_000.0;
/// Chunks per thread: enough that other threads can take over the work of a delayed one, few enough that they cost
/// nothing.
const CHUNKS_PER_THREAD: usize = 4;

/// A plan of `math` with its operands.
pub(super) enum ContractPlan {
    MatMul(Box<dyn MatMulPlan>),
    Conv(Box<dyn ConvPlan>),
    /// An expansion, with the kernel between its convolutions, and whether each convolution has a bias.
    Expansion(Box<dyn ExpansionPlan>, Option<usize>, [bool; 2]),
    Attention(Box<dyn AttentionPlan>),
    Grouped(Box<dyn GroupedPlan>),
    Recurrent(Box<dyn RecurrentPlan>, RecurrentOperands),
}

/// How to run a step.
pub(super) enum Action {
    Kernel {
        index: usize,
        buffers: Vec<BufferId>,
        /// The iterations of the parallel loop, and the number of iterations in a chunk.
        extent: usize,
        chunk: usize,
        /// Scratch bytes per chunk.
        scratch: usize,
    },
    Contract {
        plan: ContractPlan,
        operands: Vec<BufferOperand>,
        out: BufferId,
        /// The kernel that follows, and its affine form, if it has one.
        tail: Option<(program::KernelTail, Option<AffineTail>)>,
    },
    Routine(usize, RoutineFn),
    /// A routine that writes its result over its first operand, the memory of a buffer.
    Overwrite(usize, OverwriteFn),
    /// A control-flow step, with the executables that it runs.
    Control(usize, Vec<Executable>),
}

/// The actions of a program's steps, and the packed constants that they read, without duplicates.
pub(super) struct Planned {
    pub actions: Vec<Action>,
    pub packed: Vec<Pack>,
}

/// The maximum number of bytes by which packed weights may exceed the original weights. The process should need less
/// than 40 MB besides weights and arena; the compiler, its kernels and working memory need the rest of that.
const ROOM: usize = 8 << 20;

/// For each step, whether its weight may be packed in a form that is larger. The smallest weights come first, until
/// [`ROOM`] is used up. The gain per byte is nearly the same for all weights, but larger for small weights of large
/// images.
fn choose_roomy_weights(program: &Program, options: &ExecutableOptions) -> Vec<bool> {
    let mut out = vec![false; program.steps.len()];
    let wants = program.steps.iter().enumerate().filter_map(|(i, step)| match step {
        Step::Contract {
            contract: Contract::Conv(d, o),
            ..
        } => {
            let extra = o
                .get(1)
                .and_then(|w| constant_tensor(program, w))
                .map(|_| options.library.extra_weight_bytes(d));
            extra.filter(|e| *e > 0).map(|e| (e, i))
        }
        _ => None,
    });
    let mut wants: Vec<(usize, usize)> = wants.collect();
    wants.sort_unstable();
    let mut taken = 0usize;
    for (extra, i) in wants {
        taken = taken.saturating_add(extra);
        out[i] = taken <= ROOM;
    }
    out
}

/// Plans every step. Most of the time is spent on packing constants, which uses all threads.
pub(super) fn plan_actions(
    program: &Program,
    kernels: &CompiledKernels,
    options: &ExecutableOptions,
) -> Result<Planned, RunError> {
    let planner = StepPlanner {
        program,
        kernels,
        options,
        packer: Packer::new(&options.shared.packs),
        roomy: choose_roomy_weights(program, options),
    };
    let planned: Vec<Mutex<Option<Result<Action, RunError>>>> =
        program.steps.iter().map(|_| Mutex::new(None)).collect();
    // The largest first: no thread is left alone with a large weight at the end, and originals and copies take the
    // most memory together while little has been packed.
    let mut order: Vec<usize> = (0..planned.len()).collect();
    order.sort_by_cached_key(|&i| std::cmp::Reverse(constant_bytes(program, &program.steps[i])));
    options.pool.run(planned.len(), |i| {
        let i = order[i];
        let step = &program.steps[i];
        let done = match options.cancel.is_cancelled() {
            true => Err(Box::new(cancelled())),
            false => check_time().map_err(Box::new).and_then(|()| planner.plan_action(i)),
        };
        if let Ok(mut place) = planned[i].lock() {
            *place = Some(done);
        }
        // Runs read only the packed copy. If it existed before, planning has read nothing.
        if planner.packer.has_packed() {
            contract_constants(program, step).for_each(Tensor::release_pages);
        }
    });
    let all = planned.into_iter().map(|m| m.into_inner().ok().flatten());
    let actions = all.map(|a| a.expect("every step was planned"));
    let actions: Vec<Action> = actions.collect::<Result<_, _>>()?;
    read_tables_sparsely(program);
    let packed = collect_packed(planner.packer, &actions);
    Ok(Planned { actions, packed })
}

/// The packed constants of the actions, and of the graphs that they run, without duplicates.
fn collect_packed(packer: Packer, actions: &[Action]) -> Vec<Pack> {
    let mut packed = packer.into_packed();
    for action in actions {
        let Action::Control(_, graphs) = action else { continue };
        packed.extend(graphs.iter().flat_map(|g| g.packed_constants().iter().cloned()));
    }
    packed.sort_by_key(|p| Arc::as_ptr(&p.bytes) as usize);
    packed.dedup_by(|a, b| Arc::ptr_eq(&a.bytes, &b.bytes));
    packed
}

/// If a kernel gathers rows of a table (an embedding), only these rows are copied from the file.
fn read_tables_sparsely(program: &Program) {
    for step in &program.steps {
        let Step::Kernel { buffers, .. } = step else { continue };
        let buffers = || buffers.iter().map(|b| &program.buffers[b.0]);
        for b in buffers() {
            let others: usize = buffers().map(|o| o.byte_count()).sum::<usize>() - b.byte_count();
            if let BufferPlace::Constant(t) = &b.place
                && b.byte_count() / 4 > others
            {
                t.read_sparsely();
            }
        }
    }
}

/// The size in bytes of the constants of a step's contraction.
fn constant_bytes(program: &Program, step: &Step) -> usize {
    let constants = contract_constants(program, step);
    constants.map(|t| t.numel().saturating_mul(t.dtype().size())).sum()
}

/// The constant operands of a step's contraction.
fn contract_constants<'a>(program: &'a Program, step: &'a Step) -> impl Iterator<Item = &'a Tensor> {
    let operands = match step {
        Step::Contract { contract, .. } => contract.operands(),
        _ => &[],
    };
    operands.iter().filter_map(|o| constant_tensor(program, o))
}

/// Plans the steps of a program.
struct StepPlanner<'a> {
    program: &'a Program,
    kernels: &'a CompiledKernels,
    options: &'a ExecutableOptions,
    packer: Packer<'a>,
    /// For each step, whether its weight may be packed in a form that is larger.
    roomy: Vec<bool>,
}

impl StepPlanner<'_> {
    fn plan_action(&self, i: usize) -> Result<Action, RunError> {
        let impossible = |title: String| Diagnostic::new(Code::E0601, title);
        Ok(match &self.program.steps[i] {
            Step::Kernel { kernel, buffers } => {
                let k = &self.program.kernels[*kernel];
                let (extent, chunk) = partition_loop(k, self.options.pool.threads());
                Action::Kernel {
                    index: *kernel,
                    buffers: buffers.clone(),
                    extent,
                    chunk,
                    scratch: self.kernels.scratch_bytes(*kernel).next_multiple_of(ALIGN),
                }
            }
            Step::Contract { contract, out, tail } => self.contract_action(i, contract, *out, tail.as_ref())?,
            Step::Routine { call, .. } => {
                let missing = || impossible(format!("the op `{}` has no implementation", call.op));
                let routines = &self.options.routines;
                match overwritten_input(self.program, &self.program.steps[i]) {
                    Some(_) => Action::Overwrite(i, routines.find_overwrite(&call.op).ok_or_else(missing)?),
                    None => Action::Routine(i, routines.find(&call.op).ok_or_else(missing)?),
                }
            }
            Step::Control { graphs, .. } => {
                let executables = graphs.iter().map(|g| Executable::new(g.clone(), self.options));
                Action::Control(i, executables.collect::<Result<Vec<_>, _>>()?)
            }
        })
    }

    fn contract_action(
        &self,
        i: usize,
        contract: &Contract,
        out: BufferId,
        tail: Option<&program::KernelTail>,
    ) -> Result<Action, RunError> {
        let plan = self.plan_contract(contract, self.roomy[i]).map_err(|e| {
            let name = &self.program.buffers[out.0].name;
            Diagnostic::new(Code::E0601, format!("cannot compute `{name}`: {e}"))
        })?;
        let affine = |t| AffineTail::find(self.program, contract, out, t);
        Ok(Action::Contract {
            plan,
            operands: contract.operands().to_vec(),
            out,
            tail: tail.map(|t| (t.clone(), affine(t))),
        })
    }

    /// The operand's value, if it is constant.
    fn constant(&self, o: Option<&BufferOperand>) -> Option<Constant<'_>> {
        let tensor = constant_tensor(self.program, o?)?;
        Some(Constant::from_tensor(tensor, &self.packer))
    }

    /// Plans a contraction. `room` states whether its weight may be packed in a form that is larger.
    fn plan_contract(&self, contract: &Contract, room: bool) -> Result<ContractPlan, PlanError> {
        let library = &*self.options.library;
        Ok(match contract {
            Contract::MatMul(d, o) => {
                let (a, b) = (self.constant(o.first()), self.constant(o.get(1)));
                ContractPlan::MatMul(library.plan_matmul(d, MatMulConstants { a, b })?)
            }
            Contract::Conv(d, o) => {
                let (weight, bias) = (self.constant(o.get(1)), self.constant(o.get(2)));
                let weight = weight.map(|w| if room { w.with_room() } else { w });
                ContractPlan::Conv(library.plan_conv(d, ConvConstants { weight, bias })?)
            }
            Contract::Expansion(d, o, between) => {
                let constants_at = |i: usize, bias: bool| ConvConstants {
                    weight: self.constant(o.get(i)),
                    bias: self.constant(o.get(i + 1).filter(|_| bias)),
                };
                let biases = [d.first.bias, d.second.bias];
                let second = 2 + d.first.bias as usize;
                let constants = [constants_at(1, biases[0]), constants_at(second, biases[1])];
                let kernel = between.tail.as_ref().map(|t| t.kernel);
                ContractPlan::Expansion(library.plan_expansion(d, constants)?, kernel, biases)
            }
            Contract::Attention(d, _) => ContractPlan::Attention(library.plan_attention(d)?),
            Contract::Grouped(d, o) => ContractPlan::Grouped(library.plan_grouped(d, self.constant(o.get(1)))?),
            Contract::Recurrent(d, o) => {
                let places = recurrent_operands(d);
                let constants = RecurrentConstants {
                    weight: self.constant(o.get(places.weight)),
                    projection: places.projection.and_then(|i| self.constant(o.get(i))),
                };
                ContractPlan::Recurrent(library.plan_recurrent(d, constants)?, places)
            }
        })
    }
}

/// The extent of the parallel loops and the size of a chunk. The partition depends only on the kernel and the number
/// of threads, and does not affect results.
fn partition_loop(k: &Kernel, threads: usize) -> (usize, usize) {
    let extent = k.parallel_extent();
    if threads < 2 || k.parallel_loops().next().is_none() || estimate::kernel_nanoseconds(k) < PARALLEL_NANOSECONDS {
        return (extent, extent.max(1));
    }
    let chunk = extent.div_ceil(threads * CHUNKS_PER_THREAD).max(1);
    // Align chunks of a flat kernel to vectors.
    let flat = k.parallel_loops().all(|l| l.vector);
    (extent, if flat { chunk.next_multiple_of(64) } else { chunk })
}

/// The buffers that runs read directly. Constants that contractions have packed are not among them, unless another step
/// reads them.
pub(super) fn read_buffers(program: &Program) -> Vec<bool> {
    let mut read = vec![false; program.buffers.len()];
    let results = program.output.iter().flat_map(|o| o.leaves());
    results.for_each(|(b, _)| read[b.0] = true);
    for step in &program.steps {
        let packed: Vec<BufferId> = match step {
            Step::Contract { contract, tail, .. } => {
                let in_tail = |b: BufferId| tail.iter().any(|t| t.buffers.contains(&b));
                let packed = packed_operands(program, contract).into_iter().flatten();
                packed.map(|o| o.buffer).filter(|&b| !in_tail(b)).collect()
            }
            _ => vec![],
        };
        let others = step.buffers().into_iter().filter(|b| !packed.contains(b));
        others.for_each(|b| read[b.0] = true);
    }
    read
}

/// The constant operands that a contraction's plan packs, so that its runs do not read them.
fn packed_operands<'a>(program: &Program, contract: &'a Contract) -> [Option<&'a BufferOperand>; 2] {
    let constant = |o: Option<&'a BufferOperand>| o.filter(|o| constant_tensor(program, o).is_some());
    match contract {
        // B is packed unless A is.
        Contract::MatMul(_, o) => match constant(o.first()) {
            None => [constant(o.get(1)), None],
            a => [a, None],
        },
        Contract::Conv(_, o) => [constant(o.get(1)), None],
        Contract::Expansion(d, o, _) => [constant(o.get(1)), constant(o.get(2 + d.first.bias as usize))],
        Contract::Recurrent(d, o) => {
            let places = recurrent_operands(d);
            [o.get(places.weight), places.projection.and_then(|i| o.get(i))].map(constant)
        }
        Contract::Grouped(d, o) if d.packs_constants() => [constant(o.get(1)), None],
        Contract::Attention(..) | Contract::Grouped(..) => [None, None],
    }
}

fn constant_tensor<'a>(program: &'a Program, o: &BufferOperand) -> Option<&'a Tensor> {
    match &program.buffers[whole_buffer(o)?.0].place {
        BufferPlace::Constant(t) => Some(t),
        _ => None,
    }
}
