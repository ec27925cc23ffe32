//! Runs compiled models without the compiler.
//!
//! A [`Runner`] reads only the native parts of a compiled model: no graph, no text, no op table. It is part of every
//! build of the library. A build with only the feature `runtime` contains nothing else.

mod error;
mod part;
#[cfg(test)]
mod tests;

pub use error::RunnerError;

use crate::artifact::{Container, open_compiled};
use crate::budget::Limits;
use crate::diag::limits::run_limited;
use crate::diag::{Code, Diagnostic};
use crate::parallel::CancelToken;
use crate::runtime::Executable;
use crate::tensor::{StridedCopies, Tensor, View, ViewMut};
use crate::types::{Mutation, TensorType, Val};
use part::{NativePart, load_part};
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How a [`Runner`] runs.
#[derive(Clone, Debug, Default)]
pub struct RunnerOptions {
    threads: usize,
    cancel: CancelToken,
    limits: Limits,
}

impl RunnerOptions {
    /// The default options.
    pub fn new() -> RunnerOptions {
        RunnerOptions::default()
    }

    /// The number of threads for a call, including the caller's; 0, the default, means one per processor.
    pub fn threads(mut self, threads: usize) -> RunnerOptions {
        self.threads = threads;
        self
    }

    /// Sets a token that can cancel calls.
    pub fn cancel(mut self, token: CancelToken) -> RunnerOptions {
        self.cancel = token;
        self
    }

    /// The memory that fxc may hold in this process while it opens or calls the model, in bytes: results and intermediate values, but not
    /// the mapped file. Work that needs more fails with E0509. The default is what the machine has available.
    pub fn max_memory(mut self, bytes: usize) -> RunnerOptions {
        self.limits.memory = Some(bytes);
        self
    }

    /// The time that opening or a call may take. It is checked between steps, and a call that takes longer fails with E0513. The default is
    /// any time.
    pub fn max_time(mut self, time: Duration) -> RunnerOptions {
        self.limits.time = Some(time);
        self
    }
}

/// A compiled model that runs without the compiler.
///
/// Inputs are the model's tensors in order, nested ones flattened. Inputs that are not tensors have the values that the model was
/// compiled with. Buffers that calls write keep their values from call to call. Runners of one file share its mapped weights;
/// programs that call it from several threads open one for each.
///
/// ```no_run
/// use fxc::{Runner, RunnerOptions, View};
///
/// let mut runner = Runner::open("mlp.fxc", &RunnerOptions::new().threads(2))?;
/// let x = [0.5f32; 64];
/// let results = runner.run(&[View::from_slice(&[1, 64], &x)?])?;
/// println!("{:?}", results[0].as_slice::<f32>());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Runner {
    file: Container,
    options: RunnerOptions,
    /// The native parts that fit this build and processor.
    parts: Vec<NativePart>,
    /// The parts that have been used, by index in `parts`. The last one ran last and holds the values of buffers.
    loaded: Vec<(usize, Executable)>,
    changed: Vec<(Arc<str>, Tensor)>,
    /// Copies of inputs that code cannot read in place.
    copies: StridedCopies,
}

impl Runner {
    /// Opens a compiled model, whose name must end in `.fxc`, and loads its first native part that can run here. A
    /// compiled model contains machine code: open it only if you would run a program from the same source.
    ///
    /// Returns E0604 if no native part can run: all are for other processors or for another build of fxc, or need ops
    /// that this program does not have.
    pub fn open(path: impl AsRef<Path>, options: &RunnerOptions) -> Result<Runner, RunnerError> {
        run_limited(&options.limits, || {
            let (file, manifest) = open_compiled(path.as_ref())?;
            let parts = part::fitting_parts(&file, &manifest)?;
            let mut runner = Runner {
                file,
                options: options.clone(),
                parts,
                loaded: vec![],
                changed: vec![],
                copies: StridedCopies::default(),
            };
            runner.use_part(0)?;
            Ok(runner)
        })
        .unwrap_or_else(|refusal| Err((*refusal).into()))
    }

    /// The names of the tensors that a call takes, in order.
    pub fn input_names(&self) -> Vec<&str> {
        let program = self.loaded.first().map(|(_, e)| e.program());
        let inputs = program.into_iter().flat_map(|p| &p.inputs);
        let call_inputs = inputs.filter(|i| i.ty.is_some() && i.state.is_none());
        call_inputs.map(|i| &*i.name).collect()
    }

    /// The input types that the file has code for: for each native part that can run here, the type of each tensor.
    pub fn input_types(&self) -> Vec<&[TensorType]> {
        self.parts.iter().map(|p| &p.inputs[..]).collect()
    }

    /// Calls the model. Returns the tensors of its result, flattened.
    pub fn run(&mut self, inputs: &[View<'_>]) -> Result<Vec<Tensor>, RunnerError> {
        self.run_within_limits(|runner| runner.run_part(inputs))
    }

    fn run_part(&mut self, inputs: &[View<'_>]) -> Result<Vec<Tensor>, RunnerError> {
        let (mutations, result) = self.with_dense(inputs, |runner, views| {
            let executable = runner.find_executable(views)?;
            let picked: SmallVec<[&View<'_>; 8]> = views.iter().collect();
            let result = executable.run(&picked).map_err(|d| *d)?;
            Ok((executable.program().mutations.clone(), result))
        })?;
        Ok(self.keep_changed(&mutations, result))
    }

    /// [`Runner::run`] that writes the results to the caller's memory, which must have their types. Only the first
    /// call with a native part allocates heap memory. The new values of inputs that the model mutates are not kept.
    pub fn run_into(&mut self, inputs: &[View<'_>], outputs: &mut [ViewMut<'_>]) -> Result<(), RunnerError> {
        self.run_within_limits(|runner| {
            runner.changed.clear();
            runner.with_dense(inputs, |runner, views| {
                let executable = runner.find_executable(views)?;
                let picked: SmallVec<[&View<'_>; 8]> = views.iter().collect();
                executable.run_into(&picked, outputs).map_err(|d| (*d).into())
            })
        })
    }

    /// Calls `work` with the inputs, of which those that code cannot read in place are copied.
    fn with_dense<R>(
        &mut self,
        inputs: &[View<'_>],
        work: impl FnOnce(&mut Runner, &[View<'_>]) -> Result<R, RunnerError>,
    ) -> Result<R, RunnerError> {
        // Taken out for the call, which changes the runner.
        let mut copies = std::mem::take(&mut self.copies);
        let views = dense_views(inputs, copies.update(inputs.iter().map(Some)));
        let done = work(self, &views);
        drop(views);
        self.copies = copies;
        done
    }

    fn run_within_limits<R>(
        &mut self,
        work: impl FnOnce(&mut Runner) -> Result<R, RunnerError>,
    ) -> Result<R, RunnerError> {
        let limits = self.options.limits.clone();
        run_limited(&limits, || work(self)).unwrap_or_else(|refusal| {
            self.reload();
            Err((*refusal).into())
        })
    }

    /// Drops executables whose run was unwound: their memory may be in any state. Buffers change only at the end of a run.
    fn reload(&mut self) {
        let state = self.loaded.last().map(|(i, e)| (*i, e.state().clone()));
        self.loaded.clear();
        let Some((part, values)) = state else { return };
        // The part was loaded within the limits before. If the machine has no memory now, the next call reports that.
        if let Ok(Ok(executable)) = run_limited(&Limits::default(), || self.use_part(part)) {
            values.iter().for_each(|(path, t)| executable.set_state(path, t));
        }
    }

    /// The inputs that the last [`Runner::run`] mutated, by name, with their new values. The caller's memory is not
    /// written.
    pub fn changed_inputs(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.changed.iter().map(|(name, t)| (&**name, t))
    }

    /// The buffers that calls write, by path.
    pub fn state(&self) -> BTreeMap<String, Tensor> {
        let state = self.loaded.last().into_iter().flat_map(|(_, e)| e.state());
        state.map(|(path, t)| (path.to_string(), t.clone())).collect()
    }

    /// Sets the value that the next call finds in a buffer that calls write.
    pub fn set_state(&mut self, path: &str, value: &Tensor) -> Result<(), RunnerError> {
        let Some((_, executable)) = self.loaded.last_mut() else {
            return Ok(());
        };
        let input = executable.program().inputs.iter().find(|i| *i.name == *path);
        let Some(first) = input.and_then(|i| i.state.as_ref()) else {
            let d = Diagnostic::new(Code::E0505, format!("calls do not write a buffer `{path}`"));
            return Err(d
                .help("the values of weights are part of the code: recompile the model")
                .into());
        };
        if (first.dtype(), first.shape()) != (value.dtype(), value.shape()) {
            let title = format!("buffer `{path}` must be {}, not {}", first.ty(), value.ty());
            return Err(Diagnostic::new(Code::E0504, title).into());
        }
        executable.set_state(path, value);
        Ok(())
    }

    /// Resets all buffers to their initial values.
    pub fn reset(&mut self) {
        for (_, e) in &mut self.loaded {
            let inputs = e.program().inputs.iter();
            let first = inputs.filter_map(|i| Some((i.name.clone(), i.state.clone()?)));
            let first: Vec<_> = first.collect();
            first.iter().for_each(|(path, t)| e.set_state(path, t));
        }
    }

    /// The executable for inputs of these types, with the current values of buffers.
    fn find_executable(&mut self, inputs: &[View<'_>]) -> Result<&mut Executable, RunnerError> {
        let fits = |p: &NativePart| p.fits(inputs);
        if let Some((last, _)) = self.loaded.last()
            && fits(&self.parts[*last])
        {
            return self.use_part(*last);
        }
        let part = self.parts.iter().position(fits);
        let part = part.ok_or_else(|| part::no_code_for(&self.file, &self.parts, inputs))?;
        self.use_part(part)
    }

    /// Loads a part if necessary and makes it the last one used.
    fn use_part(&mut self, which: usize) -> Result<&mut Executable, RunnerError> {
        let index = match self.loaded.iter().position(|(i, _)| *i == which) {
            Some(index) => index,
            None => {
                let executable = load_part(&self.file, &self.parts[which], &self.options)?;
                self.loaded.insert(0, (which, executable));
                0
            }
        };
        let last = self.loaded.len() - 1;
        if index < last {
            let mut state = HashMap::new();
            self.loaded[last].1.return_state(&mut state);
            let shared = self.loaded[last].1.state().clone();
            self.loaded[index..].rotate_left(1);
            let executable = &mut self.loaded[last].1;
            executable.lend_state(&mut state, true);
            shared.iter().for_each(|(path, t)| executable.set_state(path, t));
        }
        Ok(&mut self.loaded[last].1)
    }

    /// Splits the new values of inputs off the leading results, and returns the other results.
    fn keep_changed(&mut self, mutations: &[Mutation], result: Val<Tensor>) -> Vec<Tensor> {
        let mut tensors: Vec<Tensor> = result.leaves().into_iter().cloned().collect();
        let rest = tensors.split_off(mutations.len().min(tensors.len()));
        let written = mutations.iter().zip(tensors).filter_map(|(m, t)| match m {
            Mutation::Input(name) => Some((name.clone(), t)),
            _ => None,
        });
        self.changed = written.collect();
        rest
    }
}

/// The inputs, or their copies.
fn dense_views<'a>(inputs: &[View<'a>], copies: &'a [Option<Tensor>]) -> SmallVec<[View<'a>; 8]> {
    let dense = |(i, v): (usize, &View<'a>)| match copies.get(i) {
        Some(Some(copy)) => copy.into(),
        _ => v.clone(),
    };
    inputs.iter().enumerate().map(dense).collect()
}
