//! Buffers that runs write in place: who owns them, and how a failed run restores them.
//!
//! Two buffers of the program with the place of one input are versions of the same memory: a step writes the newer one over the
//! older one. The executable must own that memory alone. Otherwise it copies it, once: from the initial value, or because a
//! caller kept the state.

use super::executable::{Executable, RunError};
use super::plan::Action;
use crate::program::{BufferId, BufferPlace, Program, Step};
use crate::tensor::{SavedBytes, Tensor, ViewMut};
use crate::types::Val;
use std::collections::HashMap;
use std::sync::Arc;

/// The buffers of an executable that its runs write in place.
pub(super) struct InPlaceState {
    /// Each buffer's input and path.
    inputs: Vec<(usize, Arc<str>)>,
    /// The steps that overwrite them, in order: the step, the position in `inputs`, and the bytes that this run has overwritten.
    steps: Vec<(usize, usize, SavedBytes)>,
}

impl InPlaceState {
    pub(super) fn find_in(program: &Program) -> InPlaceState {
        let mut found = InPlaceState {
            inputs: vec![],
            steps: vec![],
        };
        for (i, step) in program.steps.iter().enumerate() {
            let Some(input) = overwritten_input(program, step) else {
                continue;
            };
            let known = found.inputs.iter().position(|(n, _)| *n == input);
            let slot = known.unwrap_or_else(|| {
                found.inputs.push((input, program.inputs[input].name.clone()));
                found.inputs.len() - 1
            });
            found.steps.push((i, slot, SavedBytes::default()));
        }
        found
    }

    /// Forgets what was overwritten, after a run that succeeded.
    pub(super) fn clear(&mut self) {
        self.steps.iter_mut().for_each(|(_, _, saved)| saved.clear());
    }
}

/// The input whose memory a step writes.
pub(super) fn overwritten_input(program: &Program, step: &Step) -> Option<usize> {
    let Step::Routine { outs, .. } = step else { return None };
    match program.buffers[outs.first()?.0].place {
        BufferPlace::Input(n) => Some(n),
        _ => None,
    }
}

impl Executable {
    /// Takes the values of buffers from `state`. Those that runs write in place are moved, so that this executable alone owns them;
    /// the others are shared, if `others`.
    pub fn lend_state(&mut self, state: &mut HashMap<Arc<str>, Tensor>, others: bool) {
        self.restore_buffers();
        for (_, path) in &self.in_place.inputs {
            if let Some(t) = state.remove(path) {
                self.state.insert(path.clone(), t);
            }
        }
        if others {
            state.iter().for_each(|(path, t)| self.set_state(path, t));
        }
    }

    /// Moves the buffers that runs write in place back to `state`. After a run that was unwound, they have their former values.
    pub fn return_state(&mut self, state: &mut HashMap<Arc<str>, Tensor>) {
        self.restore_buffers();
        for (_, path) in &self.in_place.inputs {
            if let Some(t) = self.state.remove(path) {
                state.insert(path.clone(), t);
            }
        }
    }

    /// Makes the memory of the buffers that runs write in place unshared.
    pub(super) fn own_buffers_in_place(&mut self) {
        self.restore_buffers();
        for (n, path) in &self.in_place.inputs {
            let input = &self.program.inputs[*n];
            let fits = |t: &Tensor| {
                input
                    .ty
                    .as_ref()
                    .is_some_and(|(d, s)| *d == t.dtype() && s == t.shape())
            };
            if !self.state.get(path).is_some_and(fits)
                && let Some(first) = &input.state
            {
                self.state.insert(path.clone(), first.clone());
            }
            if let Some(t) = self.state.get_mut(path) {
                t.bytes_mut();
            }
        }
    }

    /// Sets the addresses of these buffers.
    pub(super) fn bind_buffers_in_place(&mut self) {
        for (n, path) in &self.in_place.inputs {
            let address = self.state.get_mut(path).and_then(Tensor::own_address);
            let address = address.expect("the memory was made unshared");
            for (b, to) in self.program.buffers.iter().zip(&mut self.addresses) {
                if matches!(b.place, BufferPlace::Input(m) if m == *n) {
                    *to = address;
                }
            }
        }
    }

    /// Restores what a run that failed has overwritten.
    pub(super) fn restore_buffers(&mut self) {
        for (_, slot, saved) in self.in_place.steps.iter_mut().rev() {
            if !saved.is_empty()
                && let Some(t) = self.state.get_mut(&self.in_place.inputs[*slot].1)
            {
                saved.restore(t.bytes_mut());
            }
        }
    }

    /// Runs a step that overwrites elements of a buffer.
    pub(super) fn run_overwrite(&mut self, step: usize) -> Result<(), RunError> {
        let Step::Routine { call, outs } = &self.program.steps[step] else {
            unreachable!("the action of a step has its kind")
        };
        let others = call.args.iter().skip(1).map(|v| v.map(|o| self.lend_operand(o)));
        let args: Vec<Val<Tensor>> = [Val::None].into_iter().chain(others).collect();
        let BufferId(b) = outs[0];
        let buffer = &self.program.buffers[b];
        // SAFETY: the buffer has these elements. The executable owns their memory alone, and no other operand is in it.
        let view = unsafe { ViewMut::from_raw_parts(buffer.dtype, &buffer.shape, self.addresses[b]) };
        let mut view = view.expect("buffers have sizes and aligned memory");
        let saved = self.in_place.steps.iter_mut().find(|s| s.0 == step);
        let (_, _, saved) = saved.expect("the steps were found in the program");
        let Action::Overwrite(_, overwrite) = &self.actions[step] else {
            unreachable!("the action of a step has its kind")
        };
        overwrite(args, &mut view, saved)
    }
}
