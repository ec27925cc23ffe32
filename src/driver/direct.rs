//! The fast path for calls of a function with tensors only: no lookup by name, no repeated checks.

use super::call_result::{CallResult, split_results};
use super::function::{Function, Version};
use super::inputs::bind::{BoundInputs, type_of};
use super::ready::{BufferState, Ready};
use super::run::input_positions;
use super::session::{Reported, Session, Staged};
use crate::diag::Diagnostic;
use crate::graph::{GraphModule, Mutation};
use crate::runtime::RunInput;
use crate::tensor::ViewMut;
use crate::types::{DType, Type, Val};
use smallvec::SmallVec;

/// Maps a call's tensors to an executable's inputs.
pub(super) struct DirectInputs {
    types: Vec<(DType, Vec<usize>)>,
    /// For each input of the executable, the position of the call's input.
    positions: Vec<usize>,
    /// Whether the model writes its result as a tuple.
    is_tuple: bool,
    /// Whether the first results are new values of buffers and inputs.
    mutates: bool,
    /// See [`Program::is_quick`](crate::program::Program::is_quick).
    is_quick: bool,
}

impl DirectInputs {
    /// `None` if some input is not a tensor, or part of the module is not compiled.
    pub(super) fn find(module: &GraphModule, ready: &Ready, types: &[Type], is_tuple: bool) -> Option<DirectInputs> {
        let (executable, entry) = (ready.whole_executable()?, module.entry()?);
        let types: Option<Vec<_>> = types
            .iter()
            .map(|t| match t {
                Val::Leaf(t) => Some((t.dtype, t.fixed_shape()?)),
                _ => None,
            })
            .collect();
        Some(DirectInputs {
            types: types?,
            positions: input_positions(executable, entry)?,
            is_tuple,
            mutates: !entry.mutations.is_empty(),
            is_quick: executable.program().is_quick(),
        })
    }

    fn fit<I: RunInput>(&self, inputs: &[I]) -> bool {
        let same = |(t, v): (&(DType, Vec<usize>), &I)| t.0 == v.dtype() && t.1 == v.shape();
        self.types.len() == inputs.len() && self.types.iter().zip(inputs).all(same)
    }

    fn pick<I: Copy>(&self, inputs: &[I]) -> SmallVec<[I; 8]> {
        self.positions.iter().map(|&i| inputs[i]).collect()
    }
}

impl Function {
    /// Calls the model on dense tensors, one per input, if there is code for their types. Otherwise returns `None`;
    /// [`Function::call`] then compiles it.
    pub fn call_direct<I: RunInput + Copy>(
        &mut self,
        session: &mut Session,
        inputs: &[I],
    ) -> Option<Staged<CallResult>> {
        let (version, state) = self.direct_version(inputs)?;
        let direct = version.direct.as_ref()?;
        let picked = direct.pick(inputs);
        let executable = version.ready.executable_mut()?;
        let result = executable.run(&picked);
        executable.return_state(state);
        let called = result.map(|result| match direct.mutates {
            true => split_results(&version.module, result, direct.is_tuple),
            false => CallResult {
                result,
                written: vec![],
            },
        });
        Some(match called {
            Ok(called) => {
                self.keep_written(&called);
                Ok(called)
            }
            Err(d) => Err(self.report_direct(session, *d, inputs)),
        })
    }

    /// Whether the last call took so little work that there is no point in letting others work meanwhile.
    pub fn is_quick(&self) -> bool {
        let last = self.versions.last().and_then(|v| v.direct.as_ref());
        last.is_some_and(|d| d.is_quick)
    }

    /// Whether [`Function::call_direct`] has code for these inputs.
    pub fn has_direct<I: RunInput>(&self, inputs: &[I]) -> bool {
        let fits = |v: &Version| v.direct.as_ref().is_some_and(|d| d.fit(inputs));
        self.versions.iter().any(fits)
    }

    /// [`Function::call_direct`], with the result's tensors in the caller's memory. Also returns `None` if the call
    /// changes an input: its new value is a result for which the caller has no memory.
    pub fn call_direct_into<I: RunInput + Copy>(
        &mut self,
        session: &mut Session,
        inputs: &[I],
        targets: &mut [ViewMut<'_>],
    ) -> Option<Staged<()>> {
        let (version, state) = self.direct_version(inputs)?;
        let mutations = &version.module.entry()?.mutations;
        let executable = version.ready.executable_mut()?;
        if mutations.iter().any(|m| !matches!(m, Mutation::Buffer(_))) {
            executable.return_state(state);
            return None;
        }
        let picked = version.direct.as_ref()?.pick(inputs);
        let done = executable.run_into(&picked, targets);
        executable.return_state(state);
        if let Err(d) = done {
            return Some(Err(self.report_direct(session, *d, inputs)));
        }
        let written = mutations.iter().filter_map(|m| match m {
            Mutation::Buffer(path) => executable.state().get_key_value(path),
            _ => None,
        });
        for (path, t) in written {
            match state.get_mut(path) {
                Some(old) => *old = t.clone(),
                None => drop(state.insert(path.clone(), t.clone())),
            }
        }
        Some(Ok(()))
    }

    /// The version for these inputs, which becomes the last one used, with the current state, and the function's state, which lacks
    /// the buffers that the version writes in place.
    fn direct_version<I: RunInput>(&mut self, inputs: &[I]) -> Option<(&mut Version, &mut BufferState)> {
        let fits = |v: &Version| v.direct.as_ref().is_some_and(|d| d.fit(inputs));
        let index = self.versions.iter().rposition(fits)?;
        if index + 1 < self.versions.len() {
            let version = self.versions.remove(index);
            self.versions.push(version);
        }
        let version = self.versions.last_mut()?;
        let is_stale = self.state_of.replace(version.id) != Some(version.id);
        version.ready.executable_mut()?.lend_state(&mut self.state, is_stale);
        Some((version, &mut self.state))
    }

    fn report_direct<I: RunInput>(&self, session: &mut Session, d: Diagnostic, inputs: &[I]) -> Reported {
        let values: Vec<_> = inputs.iter().map(|v| Val::Leaf(v.keep())).collect();
        let bound = BoundInputs {
            types: values.iter().map(type_of).collect(),
            values,
            ..BoundInputs::default()
        };
        session.report(self.locate_finding(d, &bound));
        Reported
    }
}
