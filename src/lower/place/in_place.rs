//! Writes the new values of buffers over the old ones.

use crate::op;
use crate::program::{BufferId, BufferOperand, BufferPlace, Contract, Program, RoutineCall, Step};
use crate::types::{Mutation, Val};

/// Moves a buffer's new value to the memory of the old one, if steps compute it by overwriting some of its elements
/// ([`Facts::overwrite`](crate::op::Facts)), and nothing reads the old value after that. A step of text generation writes one
/// row of each cache; copying the caches would take longer than the attention that reads them.
pub(in crate::lower) fn update_in_place(program: &mut Program) {
    let uses = BufferUses::of_program(program);
    for i in 0..program.mutations.len() {
        if let Some((input, versions)) = find_versions(program, &uses, i) {
            for v in versions {
                program.buffers[v.0].place = BufferPlace::Input(input);
            }
        }
    }
    build_in_results(program, &uses);
    renumber_results(program);
    skip_unused_positions(program);
}

/// The steps that use each buffer.
struct BufferUses {
    /// The last step that reads or writes it, if any.
    last: Vec<Option<usize>>,
    /// The routine whose only result it is, if any.
    writer: Vec<Option<usize>>,
}

impl BufferUses {
    fn of_program(program: &Program) -> BufferUses {
        let none = || vec![None; program.buffers.len()];
        let (mut last, mut writer) = (none(), none());
        for (i, step) in program.steps.iter().enumerate() {
            step.visit_buffers(&mut |b| last[b.0] = Some(i));
            if let Step::Routine { outs, .. } = step
                && let [out] = outs[..]
            {
                writer[out.0].get_or_insert(i);
            }
        }
        BufferUses { last, writer }
    }
}

/// Lets the operand of a routine that updates a copy of it be computed in the memory of the routine's result, if nothing else reads
/// it. The routine then copies nothing: `diag_embed` fills its result with zeros and writes the diagonal.
fn build_in_results(program: &mut Program, uses: &BufferUses) {
    for writer in (0..program.steps.len()).rev() {
        let Step::Routine { call, outs } = &program.steps[writer] else {
            continue;
        };
        let (true, [new]) = (call.updates, &outs[..]) else {
            continue;
        };
        let place = program.buffers[new.0].place.clone();
        let old = overwritten_operand(program, uses, writer, *new);
        if let (BufferPlace::Output(_), Some(old)) = (&place, old)
            && matches!(program.buffers[old.0].place, BufferPlace::Arena(_))
        {
            program.buffers[old.0].place = place;
        }
    }
}

/// Lets attention over caches that are buffers read only the keys up to the last one that its mask shows. What comes after is the
/// initial value or what an earlier text left.
fn skip_unused_positions(program: &mut Program) {
    let is_buffer = |o: &BufferOperand| match program.buffers[o.buffer.0].place {
        BufferPlace::Input(n) => program.inputs[n].state.is_some(),
        _ => false,
    };
    for step in &mut program.steps {
        if let Step::Contract {
            contract: Contract::Attention(d, operands),
            ..
        } = step
        {
            d.skips_hidden = operands[1..3].iter().all(is_buffer);
        }
    }
}

/// The input that holds the old value of mutation `i`, and the buffers of its new versions, if all of them can be in its memory.
fn find_versions(program: &Program, uses: &BufferUses, i: usize) -> Option<(usize, Vec<BufferId>)> {
    let Mutation::Buffer(path) = &program.mutations[i] else {
        return None;
    };
    let results: Vec<BufferId> = program.output.as_ref()?.leaves().into_iter().map(|(b, _)| *b).collect();
    let is_result = |b: BufferId| results.contains(&b);
    let mut version = *results.get(i)?;
    if results.iter().filter(|&&b| b == version).count() > 1 {
        return None;
    }
    let mut versions = vec![];
    loop {
        versions.push(version);
        let old = overwritten_by(program, uses, version)?;
        if is_result(old) {
            return None;
        }
        match program.buffers[old.0].place {
            BufferPlace::Input(n) => {
                let input = &program.inputs[n];
                return (input.state.is_some() && input.name == *path).then_some((n, versions));
            }
            BufferPlace::Arena(_) => version = old,
            _ => return None,
        }
    }
}

/// The buffer that the step of `new` may overwrite: no other operand of the step and no later step reads it.
fn overwritten_by(program: &Program, uses: &BufferUses, new: BufferId) -> Option<BufferId> {
    let writer = uses.writer[new.0]?;
    let Step::Routine { call, .. } = &program.steps[writer] else {
        return None;
    };
    op::by_name(&call.op)?.facts.overwrite?;
    overwritten_operand(program, uses, writer, new)
}

/// The buffer of the first argument of the routine that computes `new`, if it has the size of `new` and nothing else reads it then or
/// later.
fn overwritten_operand(program: &Program, uses: &BufferUses, writer: usize, new: BufferId) -> Option<BufferId> {
    let Step::Routine { call, .. } = &program.steps[writer] else {
        return None;
    };
    let old = whole_operand(program, call)?;
    let mut other_operands = call.args[1..].iter().flat_map(Val::leaves);
    let is_read_again = other_operands.any(|o| o.buffer == old) || uses.last[old.0] > Some(writer);
    let [from, to] = [old, new].map(|b| &program.buffers[b.0]);
    let same_type = from.dtype == to.dtype && from.byte_count() == to.byte_count();
    (same_type && !is_read_again).then_some(old)
}

/// The buffer of the first argument, if it is the whole buffer in its own order.
fn whole_operand(program: &Program, call: &RoutineCall) -> Option<BufferId> {
    let Some(Val::Leaf(BufferOperand {
        buffer,
        offset: 0,
        shape,
        strides,
    })) = call.args.first()
    else {
        return None;
    };
    let row_major = crate::tensor::contiguous_strides(shape);
    let mut dims = shape.iter().zip(strides).zip(row_major);
    let is_dense = dims.all(|((&n, &stride), dense)| n == 1 || stride == dense as i64);
    let is_whole = shape.iter().product::<usize>() == program.buffers[buffer.0].shape.iter().product::<usize>();
    (is_dense && is_whole).then_some(*buffer)
}

/// Numbers the results that are still allocated for each run.
fn renumber_results(program: &mut Program) {
    let mut is_used = vec![false; program.outputs];
    for b in &program.buffers {
        if let BufferPlace::Output(n) = b.place {
            is_used[n] = true;
        }
    }
    let before = |n: usize| is_used[..n].iter().filter(|u| **u).count();
    for b in &mut program.buffers {
        if let BufferPlace::Output(n) = &mut b.place {
            *n = before(*n);
        }
    }
    program.outputs = before(program.outputs);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Buffer;
    use crate::types::DType;

    fn operand(b: usize) -> Val<BufferOperand> {
        Val::Leaf(BufferOperand {
            buffer: BufferId(b),
            offset: 0,
            shape: vec![8, 8],
            strides: vec![8, 1],
        })
    }

    fn routine(args: [usize; 2], updates: bool, out: usize) -> Step {
        let (op, args) = ("diagonal_scatter".into(), args.map(operand).into());
        Step::Routine {
            call: RoutineCall { op, args, updates },
            outs: vec![BufferId(out)],
        }
    }

    /// The places of an input, an intermediate value and two results after these steps.
    fn places(steps: Vec<Step>) -> Vec<String> {
        use BufferPlace::{Arena, Input, Output};
        let buffer = |place| Buffer {
            name: "b".into(),
            dtype: DType::F32,
            shape: vec![8, 8],
            place,
        };
        let mut program = Program {
            buffers: [Input(0), Arena(0), Output(0), Output(1)].map(buffer).into(),
            steps,
            outputs: 2,
            ..Program::default()
        };
        update_in_place(&mut program);
        program.buffers.iter().map(|b| format!("{:?}", b.place)).collect()
    }

    #[test]
    fn what_a_routine_updates_is_computed_in_its_result() {
        let updated = ["Input(0)", "Output(0)", "Output(0)", "Output(1)"];
        let apart = ["Input(0)", "Arena(0)", "Output(0)", "Output(1)"];
        assert_eq!(places(vec![routine([1, 0], true, 2)]), updated);
        // Read by the routine itself or afterwards, not an update, not an intermediate value.
        assert_eq!(places(vec![routine([1, 1], true, 2)]), apart);
        assert_eq!(places(vec![routine([1, 0], true, 2), routine([0, 1], false, 3)]), apart);
        assert_eq!(places(vec![routine([1, 0], false, 2)]), apart);
        assert_eq!(places(vec![routine([0, 1], true, 2)]), apart);
    }
}
