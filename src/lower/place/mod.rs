//! Assigns intermediate buffers to memory, and chooses how kernels store to it.

mod in_place;
mod memory;

pub(in crate::lower) use in_place::update_in_place;

use crate::kernel::{BufferRole, LARGE};
use crate::program::{BufferPlace, Program, Step};

/// Assigns the buffers to offsets in the arena.
pub(in crate::lower) fn place_buffers(program: &mut Program) {
    let mut lives: Vec<Option<memory::LiveRange>> = vec![None; program.buffers.len()];
    for (i, step) in program.steps.iter().enumerate() {
        step.visit_buffers(&mut |b| {
            let size = program.buffers[b.0].byte_count();
            let first = lives[b.0].map_or(i, |l| l.first);
            lives[b.0] = Some(memory::LiveRange { size, first, last: i });
        });
    }
    let in_arena = |b: &usize| matches!(program.buffers[*b].place, BufferPlace::Arena(_));
    let in_arena: Vec<usize> = (0..lives.len()).filter(in_arena).collect();
    let lives: Vec<memory::LiveRange> = in_arena.iter().map(|&b| lives[b].unwrap_or_default()).collect();
    let (offsets, total) = memory::plan_offsets(&lives);
    for (&b, offset) in in_arena.iter().zip(offsets) {
        program.buffers[b].place = BufferPlace::Arena(offset);
    }
    let sizes = lives.iter().map(|l| l.size.next_multiple_of(crate::tensor::ALIGN));
    program.arena = total;
    program.naive_arena = sizes.fold(0, usize::saturating_add);
}

/// Uses stores through the caches for data that the next step reads, unless it is so large that its beginning would
/// have been evicted by then.
pub(in crate::lower) fn keep_in_caches(p: &mut Program) {
    for i in 1..p.steps.len() {
        let Step::Kernel { kernel, buffers } = &p.steps[i - 1] else {
            continue;
        };
        let next = &p.steps[i];
        let of_params = p.kernels[*kernel]
            .buffers
            .iter_mut()
            .filter(|b| b.role != BufferRole::Local);
        for (b, id) in of_params.zip(buffers).filter(|(b, id)| b.streams && next.uses(**id)) {
            b.streams &= p.buffers[id.0].byte_count() >= 2 * LARGE;
        }
    }
}
