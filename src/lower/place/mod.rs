//! Where buffers are: results, and everything else in the arena.

mod memory;

use crate::diag::{Code, Diagnostic};
use crate::kernel::{LARGE, Role};
use crate::lower::ir::ValueId;
use crate::lower::ir::access::access;
use crate::lower::{LowerError, Lowering};
use crate::program::{Place, Program, Step};

impl Lowering<'_> {
    pub(in crate::lower) fn outputs(&mut self) -> Result<(), LowerError> {
        let Some(output) = &self.tir.output else {
            return Err(Box::new(Diagnostic::new(Code::E0601, "the graph has no output")));
        };
        let stored = |v: ValueId| self.fusion.stored[v.0 as usize];
        let result = output.map(|&v| {
            let a = access(self.tir, v, &stored).expect("results have buffers");
            (v, a.base)
        });
        let bases: Vec<ValueId> = result.leaves().iter().map(|(_, b)| *b).collect();
        let mut n = 0;
        for b in bases {
            let id = self.buffer(b);
            let place = &mut self.program.buffers[id.0].place;
            if matches!(place, Place::Arena(_)) {
                *place = Place::Output(n);
                n += 1;
            }
        }
        self.program.outputs = n;
        self.program.output = Some(result.map(|(v, b)| (self.buffer_of[b], self.tir.value(*v).shape.clone())));
        Ok(())
    }

    /// Places the buffers in the arena.
    pub(in crate::lower) fn place(&mut self) {
        let mut lives: Vec<Option<memory::Life>> = vec![None; self.program.buffers.len()];
        for (i, step) in self.program.steps.iter().enumerate() {
            for b in step.buffers() {
                let size = self.program.buffers[b.0].bytes();
                let first = lives[b.0].map_or(i, |l| l.first);
                lives[b.0] = Some(memory::Life { size, first, last: i });
            }
        }
        let in_arena = |b: &usize| matches!(self.program.buffers[*b].place, Place::Arena(_));
        let in_arena: Vec<usize> = (0..lives.len()).filter(in_arena).collect();
        let lives: Vec<memory::Life> = in_arena.iter().map(|&b| lives[b].unwrap_or_default()).collect();
        let (offsets, total) = memory::plan(&lives);
        for (&b, offset) in in_arena.iter().zip(offsets) {
            self.program.buffers[b].place = Place::Arena(offset);
        }
        let apart = lives.iter().map(|l| l.size.next_multiple_of(crate::tensor::ALIGN));
        self.program.arena = total;
        self.program.naive_arena = apart.fold(0, usize::saturating_add);
    }
}

/// Writes through the caches what the next step reads, unless it is so large that nothing of its beginning would be left there.
pub(in crate::lower) fn keep_in_caches(p: &mut Program) {
    for i in 1..p.steps.len() {
        let Step::Kernel { kernel, buffers } = &p.steps[i - 1] else {
            continue;
        };
        let next = p.steps[i].buffers();
        let of_params = p.kernels[*kernel].buffers.iter_mut().filter(|b| b.role != Role::Local);
        for (b, id) in of_params.zip(buffers).filter(|(_, id)| next.contains(id)) {
            b.streams &= p.buffers[id.0].bytes() >= 2 * LARGE;
        }
    }
}
