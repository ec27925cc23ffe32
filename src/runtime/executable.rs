//! The executable: a program with everything it needs to run.

use super::plan::{self, Action, Follow, Plan};
use super::shared;
use crate::codegen::{self, CompiledKernels, compile_shared};
use crate::diag::{Code, Diagnostic};
use crate::graph::Mutation;
use crate::kernel::{Fault, Status};
use crate::lower::{BufferId, Input, Operand, Place, Program, Step};
use crate::math::contract::{AttentionArgs, Cell, ConvArgs, Library, MatMulArgs, RecurrentArgs};
use crate::op::Meaning;
use crate::parallel::Pool;
use crate::tensor::{AlignedBytes, Tensor};
use crate::types::Val;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Why a run failed.
pub type RunError = Box<Diagnostic>;

/// How to make an executable.
#[derive(Clone)]
pub struct Options {
    /// The threads to run on.
    pub pool: Arc<Pool>,
    /// What computes contractions.
    pub library: Arc<dyn Library>,
    /// What to do besides compiling the kernels.
    pub codegen: codegen::Options,
    /// What there is already of other executables.
    pub shared: Arc<shared::Shared>,
}

/// A program ready to run.
pub struct Executable {
    program: Program,
    kernels: CompiledKernels,
    actions: Vec<Action>,
    pool: Arc<Pool>,
    arena: AlignedBytes,
    scratch: AlignedBytes,
    /// The buffers that runs give new values, by path.
    state: HashMap<Arc<str>, Tensor>,
    /// Memory for results, used again when the caller has dropped the last run's.
    results: Vec<Tensor>,
    /// Memory of results that somebody still held when the next run began. The state of a buffer is held for one run: two
    /// memories take turns.
    spare: Vec<Option<Tensor>>,
    /// For each input its number among those that are tensors.
    tensor_inputs: Vec<Option<usize>>,
    /// The address of every buffer during a run.
    addresses: Vec<*mut u8>,
    /// Whether runs read each buffer.
    read: Vec<bool>,
    /// The pointers handed to a kernel.
    args: Vec<*mut u8>,
    /// For each step the total and the shortest time.
    times: Option<Vec<(Duration, Duration)>>,
}

// SAFETY: the addresses point into memory that the executable owns or borrows only during `run`, which takes `&mut`.
unsafe impl Send for Executable {}

/// Times of one step over the runs since profiling began.
#[derive(Clone, Debug)]
pub struct ProfileRow {
    /// The kernel's name, or the contraction and how it is computed, or the library call.
    pub name: String,
    /// Total time.
    pub time: Duration,
    /// The shortest run.
    pub min: Duration,
    /// Bytes of the buffers it reads and writes, once.
    pub bytes: usize,
    /// Multiply-adds; 0 for kernels.
    pub macs: f64,
}

/// Times of every step.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// One per step, in order.
    pub rows: Vec<ProfileRow>,
}

impl Executable {
    /// Compiles a program's kernels, packs its weights and takes its memory.
    pub fn new(program: Program, options: &Options) -> Result<Executable, RunError> {
        let kernels = compile_shared(&program.kernels, options.codegen, &options.shared.kernels).map_err(|e| {
            Box::new(
                Diagnostic::new(Code::E0603, format!("the kernels do not compile: {e}"))
                    .help("this is a fault in fxc; run the graph with --interpret, and please report it"),
            )
        })?;
        let actions = plan::actions(&program, options)?;
        let scratch = actions.iter().map(|a| match a {
            Action::Kernel {
                extent, chunk, scratch, ..
            } => extent.div_ceil((*chunk).max(1)) * scratch,
            _ => 0,
        });
        let scratch = AlignedBytes::zeroed(scratch.max().unwrap_or(0));
        let arena = AlignedBytes::zeroed(program.arena);
        let results = result_memory(&program);
        let read = plan::read_buffers(&program);
        let addresses = vec![std::ptr::null_mut(); program.buffers.len()];
        let mut tensors = 0..;
        let tensor_inputs = program.inputs.iter().map(|i| match (&i.state, &i.ty) {
            (None, Some(_)) => tensors.next(),
            _ => None,
        });
        let tensor_inputs = tensor_inputs.collect();
        let state = program.inputs.iter();
        let state = state.filter_map(|i| Some((i.name.clone(), i.state.clone()?))).collect();
        Ok(Executable {
            kernels,
            tensor_inputs,
            state,
            actions,
            pool: options.pool.clone(),
            arena,
            scratch,
            spare: vec![None; results.len()],
            results,
            addresses,
            read,
            args: vec![],
            times: None,
            program,
        })
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The compiled kernels.
    pub fn kernels(&self) -> &CompiledKernels {
        &self.kernels
    }

    /// The values of the buffers that runs change, by path: at first the module's, then those that the last run left. (A
    /// buffer that runs only write to is there after the first run.)
    pub fn state(&self) -> &HashMap<Arc<str>, Tensor> {
        &self.state
    }

    /// Gives a buffer that runs change the value that the next run finds. Other paths, and tensors of another type than the
    /// buffer's, are left out.
    pub fn set_state(&mut self, path: &str, value: &Tensor) {
        let wanted = |i: &&Input| i.state.is_some() && *i.name == *path;
        let input = self.program.inputs.iter().find(wanted);
        if let Some((name, ty)) = input.and_then(|i| Some((&i.name, i.ty.as_ref()?)))
            && ty.0 == value.dtype()
            && ty.1 == value.shape()
        {
            self.state.insert(name.clone(), value.clone());
        }
    }

    /// Runs on inputs in the order of the program's tensor inputs, and gives the results in their structure. New values of
    /// buffers lead the results ([`Program::mutations`]); the next run finds them there.
    pub fn run(&mut self, inputs: &[Tensor]) -> Result<Val<Tensor>, RunError> {
        self.steps(inputs)?;
        let result = self.output(inputs);
        self.keep(&result);
        Ok(result)
    }

    /// Runs without handing out results: they stay in the executable's memory, see [`Executable::results`]. Allocates nothing after
    /// the first call, library calls and programs with state apart.
    pub fn execute(&mut self, inputs: &[Tensor]) -> Result<(), RunError> {
        self.steps(inputs)?;
        if !self.program.mutations.is_empty() {
            let result = self.output(inputs);
            self.keep(&result);
        }
        Ok(())
    }

    fn steps(&mut self, inputs: &[Tensor]) -> Result<(), RunError> {
        self.check_inputs(inputs)?;
        self.bind(inputs);
        for i in 0..self.actions.len() {
            let start = self.times.is_some().then(Instant::now);
            self.step(i)?;
            if let (Some(start), Some(times)) = (start, &mut self.times) {
                let t = start.elapsed();
                times[i] = (times[i].0 + t, times[i].1.min(t));
            }
        }
        Ok(())
    }

    /// Keeps the new values of buffers for the next run.
    fn keep(&mut self, result: &Val<Tensor>) {
        let Val::Tuple(items) = result else { return };
        for (m, v) in self.program.mutations.iter().zip(items) {
            if let (Mutation::Buffer(path), Val::Leaf(t)) = (m, v) {
                self.state.insert(path.clone(), t.clone());
            }
        }
    }

    /// The results that have memory of their own, as the last run left them.
    pub fn results(&self) -> &[Tensor] {
        &self.results
    }

    /// Measures every step from now on.
    pub fn start_profile(&mut self) {
        self.times = Some(vec![(Duration::ZERO, Duration::MAX); self.actions.len()]);
    }

    /// What was measured since [`Executable::start_profile`].
    pub fn profile(&self) -> Profile {
        let times = self.times.as_deref().unwrap_or_default();
        let rows = self
            .program
            .steps
            .iter()
            .zip(&self.actions)
            .zip(times)
            .map(|((s, a), &(time, min))| {
                let bytes = s.buffers().iter().map(|b| self.program.buffers[b.0].bytes()).sum();
                let macs = match s {
                    Step::Contract { what, .. } => what.macs(),
                    _ => 0.0,
                };
                ProfileRow {
                    name: self.step_name(s, a),
                    time,
                    min,
                    bytes,
                    macs,
                }
            });
        Profile { rows: rows.collect() }
    }

    fn step_name(&self, s: &Step, a: &Action) -> String {
        match (s, a) {
            (Step::Kernel { kernel, .. }, _) => {
                let bits = 8 * self.kernels.width(*kernel);
                let why = self
                    .kernels
                    .refused(*kernel)
                    .map(|r| format!(": {r}"))
                    .unwrap_or_default();
                format!("{} [{bits} bits{why}]", self.program.kernels[*kernel].name)
            }
            (Step::Contract { out, tail, .. }, Action::Contract { plan, .. }) => {
                let how = match plan {
                    Plan::MatMul(p) => p.describe(),
                    Plan::Conv(p) => p.describe(),
                    Plan::Attention(p) => p.describe(),
                    Plan::Recurrent(p, _) => p.describe(),
                };
                let then = if tail.is_some() { ", then its kernel" } else { "" };
                format!("{} [{how}{then}]", self.program.buffers[out.0].name)
            }
            (Step::Routine { call, .. }, _) => format!("{} (library)", call.op.name),
            (Step::Control { call, .. }, _) => format!("{} (control flow)", call.op.name),
            _ => String::new(),
        }
    }

    fn check_inputs(&self, inputs: &[Tensor]) -> Result<(), RunError> {
        let wanted = || {
            let given = self.program.inputs.iter().filter(|i| i.state.is_none());
            given.filter_map(|i| i.ty.as_ref().map(|t| (&i.name, t)))
        };
        let count = wanted().count();
        if count != inputs.len() {
            let title = format!("expected {count} inputs but got {}", inputs.len());
            return Err(Box::new(Diagnostic::new(Code::E0501, title)));
        }
        for ((name, (dtype, shape)), t) in wanted().zip(inputs) {
            if t.dtype() != *dtype || t.shape() != shape {
                let want = crate::types::TensorType::fixed(*dtype, shape);
                let title = format!("input `{name}` must be {want}, but is {}", t.ty());
                return Err(Box::new(Diagnostic::new(Code::E0503, title)));
            }
        }
        Ok(())
    }

    /// Points every buffer at its memory.
    fn bind(&mut self, inputs: &[Tensor]) {
        for (r, spare) in self.results.iter_mut().zip(&mut self.spare) {
            if !r.is_unique() {
                let free = spare.take().and_then(|mut t| t.is_unique().then_some(t));
                let next = free.unwrap_or_else(|| Tensor::zeros(r.dtype(), r.shape()));
                *spare = Some(std::mem::replace(r, next));
            }
        }
        let arena = self.arena.bytes_mut().as_mut_ptr();
        let read = self.read.iter();
        for ((b, address), read) in self.program.buffers.iter().zip(&mut self.addresses).zip(read) {
            *address = match &b.place {
                // Inputs and constants are only read; the cast is for the common table.
                Place::Input(n) => {
                    let t = given(&self.program.inputs[*n], self.tensor_inputs[*n], &self.state, inputs);
                    t.map_or(std::ptr::null_mut(), |t| t.bytes().as_ptr().cast_mut())
                }
                // Reading it would keep a copy that only packing needed.
                Place::Constant(_) if !read => std::ptr::null_mut(),
                Place::Constant(t) => t.bytes().as_ptr().cast_mut(),
                // SAFETY: the memory plan keeps every buffer within the arena.
                Place::Arena(offset) => unsafe { arena.add(*offset) },
                Place::Output(n) => self.results[*n].bytes_mut().as_mut_ptr(),
            };
        }
    }

    fn step(&mut self, i: usize) -> Result<(), RunError> {
        match &self.actions[i] {
            Action::Kernel {
                index,
                buffers,
                extent,
                chunk,
                scratch,
            } => {
                self.args.clear();
                self.args.extend(buffers.iter().map(|b| self.addresses[b.0]));
                let (index, extent, chunk, size) = (*index, *extent, *chunk, *scratch);
                let status = self.kernel(index, extent, chunk, size);
                self.fault(i, status)
            }
            Action::Contract {
                plan,
                operands,
                out,
                tail,
            } => {
                self.args.clear();
                let buffers = tail.iter().flat_map(|t| &t.buffers);
                self.args.extend(buffers.map(|b| self.addresses[b.0]));
                let follow = tail.as_ref().map(|t| Follow {
                    kernels: &self.kernels,
                    kernel: t.kernel,
                    args: &self.args,
                });
                self.contract(plan, operands, *out, follow.as_ref());
                Ok(())
            }
            Action::Routine(step) => self.routine(*step),
            Action::Control(..) => self.control(i),
        }
    }

    fn kernel(&mut self, index: usize, extent: usize, chunk: usize, scratch: usize) -> Status {
        let status = AtomicU32::new(0);
        let shared = Shared {
            kernels: &self.kernels,
            args: &self.args,
            memory: self.scratch.bytes_mut().as_mut_ptr(),
        };
        self.pool.run(extent.div_ceil(chunk.max(1)), |c| {
            let s = &shared;
            let begin = c * chunk;
            let end = (begin + chunk).min(extent);
            // SAFETY: the arguments point at buffers of the sizes and dtypes the kernel was verified for; chunks write
            // disjoint elements, because iterations of the parallel loop are independent; every chunk has scratch of
            // its own.
            let s = unsafe { s.kernels.run(index, s.args, begin, end, s.memory.add(c * scratch)) };
            if s != Status::OK {
                status.fetch_or(s.0, Ordering::Relaxed);
            }
        });
        Status(status.load(Ordering::Relaxed))
    }

    fn fault(&self, i: usize, status: Status) -> Result<(), RunError> {
        let title = match status.fault() {
            None => return Ok(()),
            Some(Fault::Index) => "index out of range",
            Some(Fault::ZeroDivision) => "ZeroDivisionError",
        };
        let name = self.step_name(&self.program.steps[i], &self.actions[i]);
        Err(Box::new(
            Diagnostic::new(Code::E0502, title).note(format!("while running the kernel of `{name}`")),
        ))
    }

    /// The address of an operand's first element.
    fn address(&self, o: &Operand) -> *mut u8 {
        let size = self.program.buffers[o.buffer.0].dtype.size() as isize;
        // SAFETY: views stay within their buffer.
        unsafe { self.addresses[o.buffer.0].offset(o.offset as isize * size) }
    }

    fn contract(&self, plan: &Plan, operands: &[Operand], out: BufferId, follow: Option<&Follow>) {
        let tail = follow.map(Follow::tail);
        let at = |i: usize| {
            operands
                .get(i)
                .map_or(std::ptr::null(), |o| self.address(o).cast_const())
        };
        let c = self.addresses[out.0];
        // SAFETY: the descriptors were made from the operands' shapes and strides, the buffers have these sizes, and
        // the memory plan never lets a step's result overlap its operands.
        unsafe {
            match plan {
                Plan::MatMul(p) => {
                    p.run(
                        &self.pool,
                        &MatMulArgs {
                            a: at(0),
                            b: at(1),
                            addend: at(2),
                            c,
                            tail,
                        },
                    );
                }
                Plan::Conv(p) => p.run(
                    &self.pool,
                    &ConvArgs {
                        x: at(0),
                        weight: at(1),
                        bias: at(2),
                        y: c,
                        tail,
                    },
                ),
                Plan::Recurrent(p, cell) => {
                    let lstm = (*cell == Cell::Lstm) as usize;
                    p.run(
                        &self.pool,
                        &RecurrentArgs {
                            inputs: at(0).cast(),
                            state: at(1).cast(),
                            cell: at(2).cast(),
                            weight: at(2 + lstm).cast(),
                            bias: at(3 + lstm).cast(),
                            out: c.cast(),
                        },
                    );
                }
                Plan::Attention(p) => {
                    p.run(
                        &self.pool,
                        &AttentionArgs {
                            q: at(0),
                            k: at(1),
                            v: at(2),
                            mask: at(3),
                            out: c,
                        },
                    );
                }
            }
        }
    }

    fn routine(&mut self, step: usize) -> Result<(), RunError> {
        let Step::Routine { call, outs } = &self.program.steps[step] else {
            unreachable!("see `action`")
        };
        let Meaning::Routine(f) = call.op.meaning else {
            unreachable!("lowering made it a routine")
        };
        let call = call.map(|o| self.gather(o));
        let result = f(&call).map_err(|e| {
            let mut d = Diagnostic::new(e.code, e.title);
            d.notes = e.notes;
            d.help = e.help;
            d.notes.push(format!("while running `{}`", call.op.name));
            Box::new(d)
        })?;
        let name = call.op.name;
        result
            .leaves()
            .into_iter()
            .zip(outs)
            .try_for_each(|(t, b)| self.store(t, *b, name))
    }

    fn control(&mut self, i: usize) -> Result<(), RunError> {
        let Action::Control(step, graphs) = &mut self.actions[i] else {
            unreachable!("the caller looked")
        };
        let (step, mut graphs) = (*step, std::mem::take(graphs));
        let Step::Control { call, outs, .. } = &self.program.steps[step] else {
            unreachable!("see `action`")
        };
        let tensors = call.map(|o| self.gather(o));
        let result = super::control::evaluate(&tensors, &mut graphs);
        let stored = result.and_then(|v| {
            v.iter()
                .zip(outs)
                .try_for_each(|(t, b)| self.store(t, *b, call.op.name))
        });
        self.actions[i] = Action::Control(step, graphs);
        stored
    }

    /// Copies a tensor that `op` gave to a buffer.
    fn store(&self, t: &Tensor, b: BufferId, op: &str) -> Result<(), RunError> {
        let buffer = &self.program.buffers[b.0];
        if t.dtype() != buffer.dtype || t.numel() * t.dtype().size() != buffer.bytes() {
            let (dtype, shape) = (buffer.dtype, &buffer.shape);
            let title = format!("`{op}` gave {} instead of {dtype}{shape:?}", t.ty());
            return Err(Box::new(Diagnostic::new(Code::E0603, title)));
        }
        // SAFETY: the buffer has exactly these bytes and no tensor shares them.
        unsafe { std::ptr::copy_nonoverlapping(t.bytes().as_ptr(), self.addresses[b.0], t.bytes().len()) };
        Ok(())
    }

    /// An operand as a tensor of its own.
    fn gather(&self, o: &Operand) -> Tensor {
        let buffer = &self.program.buffers[o.buffer.0];
        let size = buffer.dtype.size();
        let mut t = Tensor::zeros(buffer.dtype, &o.shape);
        let n = t.numel();
        let base = self.addresses[o.buffer.0];
        let mut index = vec![0usize; o.shape.len()];
        let mut at = o.offset;
        let out = t.bytes_mut();
        for i in 0..n {
            // SAFETY: views stay within their buffer.
            let from = unsafe { std::slice::from_raw_parts(base.offset(at as isize * size as isize), size) };
            out[i * size..(i + 1) * size].copy_from_slice(from);
            for d in (0..index.len()).rev() {
                index[d] += 1;
                at += o.strides[d];
                if index[d] < o.shape[d] {
                    break;
                }
                at -= o.strides[d] * o.shape[d] as i64;
                index[d] = 0;
            }
        }
        t
    }

    fn output(&self, inputs: &[Tensor]) -> Val<Tensor> {
        let output = self.program.output.as_ref().expect("lowering sets the output");
        output.map(|(b, shape)| match &self.program.buffers[b.0].place {
            Place::Input(n) => {
                let t = given(&self.program.inputs[*n], self.tensor_inputs[*n], &self.state, inputs);
                t.expect("a tensor input").reshape(shape)
            }
            Place::Constant(t) => t.reshape(shape),
            Place::Output(n) => self.results[*n].reshape(shape),
            Place::Arena(_) => unreachable!("results are placed as outputs"),
        })
    }
}

/// The tensor of an input: a buffer's present value, or the given one with its number.
fn given<'a>(
    input: &Input,
    number: Option<usize>,
    state: &'a HashMap<Arc<str>, Tensor>,
    inputs: &'a [Tensor],
) -> Option<&'a Tensor> {
    match input.state {
        Some(_) => state.get(&input.name),
        None => inputs.get(number?),
    }
}

/// What the chunks of a kernel share.
struct Shared<'a> {
    kernels: &'a CompiledKernels,
    args: &'a [*mut u8],
    memory: *mut u8,
}
// SAFETY: each chunk writes elements and scratch memory of its own.
unsafe impl Sync for Shared<'_> {}

fn result_memory(program: &Program) -> Vec<Tensor> {
    let mut results = vec![None; program.outputs];
    for b in &program.buffers {
        if let Place::Output(n) = b.place {
            results[n] = Some(Tensor::zeros(b.dtype, &b.shape));
        }
    }
    results
        .into_iter()
        .map(|r| r.expect("every output has a buffer"))
        .collect()
}
