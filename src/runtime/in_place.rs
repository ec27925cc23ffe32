//! Results that have the memory of an input: the state of a loop, of which each iteration changes a part.
//!
//! A routine such as `index_copy` copies its operand and changes some rows of the copy. If the operand is an input that nothing
//! reads afterwards, and the input is this executable's own result of the last iteration, which no other tensor shares, the
//! routine gets its memory for the result too, and copies nothing.

use super::executable::{Executable, RunError};
use super::input::RunInput;
use super::steps::has_row_major_strides;
use crate::program::{BufferId, BufferOperand, BufferPlace, Program, RoutineCall, Step};
use crate::tensor::Tensor;
use crate::types::{DType, Val};

/// An input of an iteration.
enum LoopInput {
    /// A tensor that is only read.
    Read(Tensor),
    /// The memory of the result that takes its place.
    Updated {
        dtype: DType,
        shape: Vec<usize>,
        address: *const u8,
    },
}

impl RunInput for LoopInput {
    fn dtype(&self) -> DType {
        match self {
            LoopInput::Read(t) => t.dtype(),
            LoopInput::Updated { dtype, .. } => *dtype,
        }
    }

    fn shape(&self) -> &[usize] {
        match self {
            LoopInput::Read(t) => t.shape(),
            LoopInput::Updated { shape, .. } => shape,
        }
    }

    fn address(&self) -> *const u8 {
        match self {
            LoopInput::Read(t) => RunInput::address(t),
            LoopInput::Updated { address, .. } => *address,
        }
    }

    fn keep(&self) -> Tensor {
        match self {
            LoopInput::Read(t) => RunInput::keep(t),
            LoopInput::Updated { .. } => unreachable!("an updated input is not a result"),
        }
    }
}

impl Executable {
    /// [`Executable::run`] on inputs that the caller gives away. Results of the last run among them may be overwritten.
    pub(super) fn run_in_place(&mut self, mut inputs: Vec<Tensor>) -> Result<Val<Tensor>, RunError> {
        let mut updated = vec![None; inputs.len()];
        for (result, input) in self.results.iter_mut().zip(&self.updated_inputs) {
            let Some(i) = input.filter(|i| *i < inputs.len()) else {
                continue;
            };
            let t = &mut inputs[i];
            if t.numel() == 0 || t.bytes().as_ptr() != result.bytes().as_ptr() {
                continue;
            }
            let ty = (t.dtype(), t.shape().to_vec());
            *t = Tensor::zeros(t.dtype(), &[0]);
            match result.own_address() {
                Some(address) => updated[i] = Some((ty, address.cast_const())),
                None => *t = result.reshape(&ty.1),
            }
        }
        let inputs = inputs.into_iter().zip(updated).map(|(t, updated)| match updated {
            None => LoopInput::Read(t),
            Some(((dtype, shape), address)) => LoopInput::Updated { dtype, shape, address },
        });
        self.run(&inputs.collect::<Vec<_>>())
    }
}

/// For each result that is allocated for each run, the tensor input whose memory it may have.
pub(super) fn updated_inputs(program: &Program, tensor_inputs: &[Option<usize>]) -> Vec<Option<usize>> {
    let mut found = vec![None; program.outputs];
    for (i, step) in program.steps.iter().enumerate() {
        let Step::Routine { call, outs } = step else { continue };
        let Some((operand, out)) = updated_operand(call).zip(outs.first()) else {
            continue;
        };
        let (from, to) = (&program.buffers[operand.buffer.0], &program.buffers[out.0]);
        let (BufferPlace::Input(k), BufferPlace::Output(n)) = (&from.place, &to.place) else {
            continue;
        };
        let whole = operand.offset == 0
            && has_row_major_strides(operand)
            && from.dtype == to.dtype
            && from.byte_count() == to.byte_count()
            && operand.shape.iter().product::<usize>() * from.dtype.size() == from.byte_count();
        if whole && program.inputs[*k].state.is_none() && is_last_use(program, i, operand.buffer) {
            found[*n] = tensor_inputs[*k];
        }
    }
    found
}

/// The operand that a routine updates.
fn updated_operand(call: &RoutineCall) -> Option<&BufferOperand> {
    let (first, others) = call.args.split_first()?;
    let operand = first.as_leaf().filter(|_| call.updates)?;
    let mut read = others.iter().flat_map(Val::leaves);
    read.all(|o| o.buffer != operand.buffer).then_some(operand)
}

/// Whether nothing reads a buffer after step `i`.
fn is_last_use(program: &Program, i: usize, b: BufferId) -> bool {
    let read = program.steps[i + 1..].iter().any(|s| s.buffers().contains(&b));
    let returned = program.output.iter().flat_map(Val::leaves).any(|(r, _)| *r == b);
    !read && !returned
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{Buffer, ProgramInput};

    fn operand(b: usize, offset: i64) -> Val<BufferOperand> {
        Val::Leaf(BufferOperand {
            buffer: BufferId(b),
            offset,
            shape: vec![8, 4],
            strides: vec![4, 1],
        })
    }

    fn call(args: Vec<Val<BufferOperand>>, updates: bool, out: usize) -> Step {
        let op = "index_copy".into();
        Step::Routine {
            call: RoutineCall { op, args, updates },
            outs: vec![BufferId(out)],
        }
    }

    /// The inputs that results may take, of a program of two inputs and two results with these steps.
    fn updated(steps: Vec<Step>, returned: &[usize]) -> Vec<Option<usize>> {
        use BufferPlace::{Input, Output};
        let buffer = |place| Buffer {
            name: "b".into(),
            dtype: DType::F32,
            shape: vec![8, 4],
            place,
        };
        let input = || ProgramInput {
            name: "x".into(),
            ty: Some((DType::F32, vec![8, 4])),
            state: None,
        };
        let results = returned.iter().map(|&b| Val::Leaf((BufferId(b), vec![8, 4])));
        let program = Program {
            buffers: [Input(0), Input(1), Output(0), Output(1)].map(buffer).into(),
            inputs: vec![input(), input()],
            steps,
            output: Some(Val::Tuple(results.collect())),
            outputs: 2,
            ..Program::default()
        };
        updated_inputs(&program, &[Some(0), Some(1)])
    }

    #[test]
    fn only_inputs_that_nothing_else_needs_are_updated() {
        let copy = || call(vec![operand(0, 0), operand(1, 0)], true, 2);
        assert_eq!(updated(vec![copy()], &[2]), [Some(0), None]);
        // Read before.
        let other = || call(vec![operand(1, 0), operand(0, 0)], false, 3);
        assert_eq!(updated(vec![other(), copy()], &[2, 3]), [Some(0), None]);
        // Returned too, read afterwards, read by the routine itself, not a whole input, not an update.
        assert_eq!(updated(vec![copy()], &[2, 0]), [None, None]);
        assert_eq!(updated(vec![copy(), other()], &[2, 3]), [None, None]);
        assert_eq!(
            updated(vec![call(vec![operand(0, 0), operand(0, 0)], true, 2)], &[2]),
            [None, None]
        );
        assert_eq!(
            updated(vec![call(vec![operand(0, 4), operand(1, 0)], true, 2)], &[2]),
            [None, None]
        );
        assert_eq!(
            updated(vec![call(vec![operand(0, 0), operand(1, 0)], false, 2)], &[2]),
            [None, None]
        );
    }
}
