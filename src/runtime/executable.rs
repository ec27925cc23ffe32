//! The executable: a program with everything it needs to run.

use super::code;
use super::in_place;
use super::input::RunInput;
use super::memory::{check_memory, scratch_bytes};
use super::overwrite::InPlaceState;
use super::plan::{self, Action};
use super::results::{kept_results, result_leaves, result_memory};
use super::shared;
use super::tables::Tables;
use crate::code::{CompileKernels, CompiledKernels};
use crate::diag::limits::check_time;
use crate::diag::words;
use crate::diag::{Code, Diagnostic};
use crate::math::contract::{Library, Pack};
use crate::parallel::{CancelToken, Pool};
use crate::program::{BufferId, BufferPlace, Program, ProgramInput};
use crate::target::{Target, with_target};
use crate::tensor::{AlignedBytes, SavedBytes, Tensor, ViewMut};
use crate::types::{Mutation, Val};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The error of a run.
pub(crate) type RunError = Box<Diagnostic>;

/// The function of an op that computes whole tensors. It takes one value per parameter of the op's schema and writes
/// its results to the views.
pub(crate) type RoutineFn =
    Box<dyn Fn(Vec<Val<Tensor>>, &mut [ViewMut<'_>], &Pool) -> Result<(), RunError> + Send + Sync>;

/// The function of an op that overwrites elements of its first operand, which is the view. The arguments have `None` in its place.
/// The former bytes are saved first; a call that fails has written nothing.
pub(crate) type OverwriteFn =
    Box<dyn Fn(Vec<Val<Tensor>>, &mut ViewMut<'_>, &mut SavedBytes) -> Result<(), RunError> + Send + Sync>;

/// Resolves the names of routines in a program.
pub trait Routines: Send + Sync {
    /// The function of the op `name`.
    fn find(&self, name: &str) -> Option<RoutineFn>;

    /// The function of the op `name` that overwrites its first operand, if it has one.
    fn find_overwrite(&self, _name: &str) -> Option<OverwriteFn> {
        None
    }
}

/// The options of an executable.
#[derive(Clone)]
pub struct ExecutableOptions {
    /// The thread pool for runs.
    pub pool: Arc<Pool>,
    /// The library of contraction kernels.
    pub library: Arc<dyn Library>,
    /// The source of the kernels' machine code.
    pub compiler: Arc<dyn CompileKernels>,
    /// The functions of ops that compute whole tensors.
    pub routines: Arc<dyn Routines>,
    /// Packed weights that executables share.
    pub shared: Arc<shared::Shared>,
    /// Stops packing and runs between two steps.
    pub cancel: CancelToken,
    /// The features that routines may use. The library and the machine code have been chosen for them.
    pub target: Target,
}

/// The error of work that was cancelled.
pub(crate) fn cancelled() -> Diagnostic {
    Diagnostic::new(Code::E0512, "the run was cancelled").note("its cancel token was set; buffers are unchanged")
}

/// A program ready to run.
pub struct Executable {
    pub(super) program: Program,
    pub(super) kernels: CompiledKernels,
    pub(super) actions: Vec<Action>,
    /// The packed constants, without duplicates.
    packed: Vec<Pack>,
    pub(super) pool: Arc<Pool>,
    arena: AlignedBytes,
    pub(super) scratch: AlignedBytes,
    /// The buffers that runs update, by path.
    pub(super) state: HashMap<Arc<str>, Tensor>,
    /// The buffers that runs write in place.
    pub(super) in_place: InPlaceState,
    /// Memory for the new values of buffers.
    values: Vec<Tensor>,
    /// Memory for results. It is reused once the caller has dropped the last run's results.
    pub(super) results: Vec<Tensor>,
    /// Memory of results that were still in use when the next run began. The state of a buffer is in use for one run,
    /// so two allocations alternate.
    spare: Vec<Option<Tensor>>,
    /// The address of every result's memory during a run.
    outputs: Vec<*mut u8>,
    /// The results, flattened: buffers, and the shapes that callers see.
    pub(super) result_leaves: Vec<(BufferId, Vec<usize>)>,
    /// Whether each result is returned as a copy.
    pub(super) kept_results: Vec<bool>,
    /// Memory that the caller lends for the results of this run; null for the other results.
    pub(super) lent: Vec<*mut u8>,
    cancel: CancelToken,
    target: Target,
    /// For each input, its index among the inputs that are tensors.
    pub(super) tensor_inputs: Vec<Option<usize>>,
    /// For each result that is allocated for each run, the tensor input whose memory it may have.
    pub(super) updated_inputs: Vec<Option<usize>>,
    /// The tables whose rows are read on demand.
    pub(super) tables: Tables,
    /// The address of every buffer during a run.
    pub(super) addresses: Vec<*mut u8>,
    /// Whether runs read each buffer directly.
    read: Vec<bool>,
    /// The pointers that are passed to a kernel.
    pub(super) args: Vec<*mut u8>,
    /// The duration of the build: machine code, then packing and memory.
    built: [Duration; 2],
    /// For each step, the total and the shortest time.
    pub(super) times: Option<Vec<(Duration, Duration)>>,
}

// SAFETY: the addresses point into memory that the executable owns or borrows only during `run`, which takes `&mut`.
unsafe impl Send for Executable {}

/// Compiles a program's kernels, and releases the compiler's memory.
fn compile_kernels(program: &Program, options: &ExecutableOptions) -> Result<CompiledKernels, RunError> {
    let kernels = options.compiler.compile(&program.kernels).map_err(|e| {
        Diagnostic::new(Code::E0603, format!("the kernels failed to compile: {e}"))
            .help("this is a bug in fxc; please report it, and run the graph with --interpret meanwhile")
    })?;
    if options.compiler.is_compiler() {
        code::release_compiler();
    }
    Ok(kernels)
}

/// For each input, its index among the caller's tensors.
fn number_tensor_inputs(program: &Program) -> Vec<Option<usize>> {
    let mut tensors = 0..;
    let number = |i: &ProgramInput| match (&i.state, &i.ty) {
        (None, Some(_)) => tensors.next(),
        _ => None,
    };
    program.inputs.iter().map(number).collect()
}

/// The values of the buffers that runs update, before the first run.
fn initial_state(program: &Program) -> HashMap<Arc<str>, Tensor> {
    let buffers = program.inputs.iter();
    buffers
        .filter_map(|i| Some((i.name.clone(), i.state.clone()?)))
        .collect()
}

impl Executable {
    /// Compiles a program's kernels, packs its weights and allocates its memory.
    pub fn new(program: Program, options: &ExecutableOptions) -> Result<Executable, RunError> {
        let begin = Instant::now();
        let kernels = compile_kernels(&program, options)?;
        let code = begin.elapsed();
        let plan::Planned { actions, packed } = plan::plan_actions(&program, &kernels, options)?;
        let scratch = actions.iter().map(scratch_bytes).max().unwrap_or(0);
        check_memory(&program, scratch)?;
        let [scratch, arena] = [scratch, program.arena].map(AlignedBytes::zeroed_in_huge_pages);
        let (results, leaves) = (result_memory(&program), result_leaves(&program));
        let read = plan::read_buffers(&program);
        let tensor_inputs = number_tensor_inputs(&program);
        Ok(Executable {
            kernels,
            updated_inputs: in_place::updated_inputs(&program, &tensor_inputs),
            tensor_inputs,
            state: initial_state(&program),
            in_place: InPlaceState::find_in(&program),
            values: vec![],
            actions,
            packed,
            pool: options.pool.clone(),
            arena,
            scratch,
            spare: vec![None; results.len()],
            outputs: vec![std::ptr::null_mut(); results.len()],
            lent: vec![std::ptr::null_mut(); results.len()],
            kept_results: kept_results(&program, &leaves),
            result_leaves: leaves,
            cancel: options.cancel.clone(),
            target: options.target,
            results,
            tables: Tables::find_in(&program),
            addresses: vec![std::ptr::null_mut(); program.buffers.len()],
            read,
            args: vec![],
            built: [code, begin.elapsed() - code],
            times: None,
            program,
        })
    }

    /// The duration of the build: the machine code, then packing constants and allocating memory.
    pub fn build_times(&self) -> [Duration; 2] {
        self.built
    }

    /// The packed constants that steps read, without duplicates. Other executables may share them.
    pub fn packed_constants(&self) -> &[Pack] {
        &self.packed
    }

    /// Whether runs read a buffer directly, and not only in packed form.
    pub fn reads(&self, b: BufferId) -> bool {
        self.read[b.0]
    }

    /// The executables that the steps run, in order.
    pub fn nested(&self) -> impl Iterator<Item = &Executable> {
        self.actions.iter().flat_map(|a| match a {
            Action::Control(_, graphs) => &graphs[..],
            _ => &[],
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

    /// The values of the buffers that runs update, by path: first the module's values, then those of the last run. (A
    /// buffer that runs only write exists after the first run.)
    pub fn state(&self) -> &HashMap<Arc<str>, Tensor> {
        &self.state
    }

    /// Sets the value of a buffer for the next run. Ignores unknown paths and tensors of another type.
    pub fn set_state(&mut self, path: &str, value: &Tensor) {
        let is_state = |i: &&ProgramInput| i.state.is_some() && *i.name == *path;
        let input = self.program.inputs.iter().find(is_state);
        if let Some((name, ty)) = input.and_then(|i| Some((&i.name, i.ty.as_ref()?)))
            && ty.0 == value.dtype()
            && ty.1 == value.shape()
        {
            self.state.insert(name.clone(), value.clone());
        }
    }

    /// Runs on inputs in the order of the program's tensor inputs, and returns the results in their structure. The
    /// new values of buffers are the leading results ([`Program::mutations`]); the next run starts with them.
    pub fn run<I: RunInput>(&mut self, inputs: &[I]) -> Result<Val<Tensor>, RunError> {
        self.run_steps(inputs)?;
        // Before the state is replaced: a result may be the old value of a buffer.
        let result = self.collect_output(inputs);
        self.keep_buffer_values(inputs);
        Ok(result)
    }

    /// Runs without returning results: they stay in the executable's memory, see [`Executable::results`]. After the
    /// first call only library calls allocate.
    pub fn execute<I: RunInput>(&mut self, inputs: &[I]) -> Result<(), RunError> {
        self.run_steps(inputs)?;
        self.keep_buffer_values(inputs);
        Ok(())
    }

    pub(super) fn run_steps<I: RunInput>(&mut self, inputs: &[I]) -> Result<(), RunError> {
        self.check_inputs(inputs)?;
        self.own_buffers_in_place();
        self.bind_buffers(inputs);
        let done = with_target(self.target, || self.run_actions());
        match done {
            Ok(()) => self.in_place.clear(),
            Err(_) => self.restore_buffers(),
        }
        done
    }

    fn run_actions(&mut self) -> Result<(), RunError> {
        // The body of an endless loop may have no steps.
        check_time()?;
        for i in 0..self.actions.len() {
            // Only between steps. The state is replaced after the last step, or restored, so a cancelled run leaves it unchanged.
            if self.cancel.is_cancelled() {
                return Err(Box::new(cancelled()));
            }
            check_time()?;
            let start = self.times.is_some().then(Instant::now);
            self.run_step(i)?;
            if let (Some(start), Some(times)) = (start, &mut self.times) {
                let t = start.elapsed();
                times[i] = (times[i].0 + t, times[i].1.min(t));
            }
        }
        Ok(())
    }

    /// Stores the new values of buffers for the next run.
    pub(super) fn keep_buffer_values<I: RunInput>(&mut self, inputs: &[I]) {
        let Some(Val::Tuple(items)) = &self.program.output else {
            return;
        };
        let mutations = &self.program.mutations;
        let of_buffers = || {
            let all = mutations.iter().zip(items);
            all.filter_map(|(m, v)| match (m, v) {
                (Mutation::Buffer(path), Val::Leaf(v)) => Some((path, v)),
                _ => None,
            })
        };
        // Read all values before replacing any: the new value of one buffer may be the old value of another.
        let mut values = std::mem::take(&mut self.values);
        values.extend(of_buffers().map(|(_, (b, shape))| self.result_tensor(*b, shape, inputs)));
        for ((path, _), t) in of_buffers().zip(values.drain(..)) {
            match self.state.get_mut(path) {
                Some(old) => *old = t,
                None => drop(self.state.insert(path.clone(), t)),
            }
        }
        self.values = values;
    }

    /// The results of the last run that are allocated for each run.
    pub fn results(&self) -> &[Tensor] {
        &self.results
    }

    fn check_inputs<I: RunInput>(&self, inputs: &[I]) -> Result<(), RunError> {
        let expected = || {
            let inputs = self.program.inputs.iter().filter(|i| i.state.is_none());
            inputs.filter_map(|i| i.ty.as_ref().map(|t| (&i.name, t)))
        };
        if expected().count() != inputs.len() {
            let title = format!(
                "expected {} but got {}",
                words::count(expected().count(), "input"),
                inputs.len()
            );
            return Err(Box::new(Diagnostic::new(Code::E0501, title)));
        }
        for ((name, (dtype, shape)), t) in expected().zip(inputs) {
            if t.dtype() != *dtype || t.shape() != shape {
                let want = crate::types::TensorType::with_fixed_shape(*dtype, shape);
                let title = format!("input `{name}` must be {want}, not {}", t.ty());
                return Err(Box::new(Diagnostic::new(Code::E0503, title)));
            }
        }
        Ok(())
    }

    /// Sets the address of every result's memory.
    fn bind_results(&mut self) {
        let results = self.results.iter_mut().zip(&mut self.spare);
        for (((r, spare), output), lent) in results.zip(&mut self.outputs).zip(&self.lent) {
            if !lent.is_null() {
                *output = *lent;
                continue;
            }
            // If the caller still has the last result, this run writes to other memory.
            *output = r.own_address().unwrap_or_else(|| {
                let free = spare.take().and_then(|mut t| t.is_unique().then_some(t));
                let next = free.unwrap_or_else(|| Tensor::zeros(r.dtype(), r.shape()));
                *spare = Some(std::mem::replace(r, next));
                r.bytes_mut().as_mut_ptr()
            });
        }
    }

    /// Sets the address of every buffer.
    fn bind_buffers<I: RunInput>(&mut self, inputs: &[I]) {
        self.bind_results();
        let arena = self.arena.bytes_mut().as_mut_ptr();
        let read = self.read.iter();
        for ((b, address), read) in self.program.buffers.iter().zip(&mut self.addresses).zip(read) {
            *address = match &b.place {
                // Inputs and constants are only read. The cast is needed because all addresses share one table.
                BufferPlace::Input(n) => {
                    let input = &self.program.inputs[*n];
                    let data = match input.state {
                        Some(_) => self.state.get(&input.name).map(|t| t.bytes().as_ptr()),
                        None => self.tensor_inputs[*n].map(|i| inputs[i].address()),
                    };
                    data.map_or(std::ptr::null_mut(), <*const u8>::cast_mut)
                }
                // Only packing needed this constant. Reading it would keep a second copy in memory.
                BufferPlace::Constant(_) if !read => std::ptr::null_mut(),
                BufferPlace::Constant(t) => t.bytes().as_ptr().cast_mut(),
                // SAFETY: the memory plan keeps every buffer within the arena.
                BufferPlace::Arena(offset) => unsafe { arena.add(*offset) },
                BufferPlace::Output(n) => self.outputs[*n],
                BufferPlace::Pieces => std::ptr::null_mut(),
            };
        }
        for table in &mut self.tables.all {
            self.addresses[table.buffer.0] = table.address();
        }
        self.bind_buffers_in_place();
    }
}
