//! Contractions with the kernels that run on pieces of their results.

use super::ProgramBuilder;
use crate::lower::LowerError;
use crate::lower::contract::byte_input;
use crate::lower::fuse::flatten::{FlatKernel, flatten};
use crate::lower::fuse::tail::{Host, TailRefusal, is_flat};
use crate::lower::ir::{Def, ValueId};
use crate::lower::schedule::{Scheduled, Stored};
use crate::program::{Buffer, BufferId, BufferPlace, KernelTail, MAX_TAIL_BUFFERS, Repeat, Step};
use crate::tensor::{AlignedBytes, Storage, Tensor};

/// The number of elements up to which constants that repeat are written out: a call of the kernel for each row of a few
/// channels would cost more than the row.
const WRITTEN_OUT: usize = 1024;
/// Shorter rows of other values are not worth a call of the kernel for each.
const SHORTEST_ROW: usize = 32;

impl ProgramBuilder<'_> {
    /// Emits the contraction `host` and the kernel that reads it: as one step, if the kernel can be its tail.
    pub(super) fn after_contraction(&mut self, host: Host, s: Scheduled) -> Result<(), LowerError> {
        let Host {
            contraction: host,
            result,
        } = host;
        let def = &self.tir.value(host).def;
        let args = self.tir.operands(host);
        let [a, b] = [host, result].map(|v| &*self.tir.value(v).name);
        let Some(flat) = self.flat_kernel(&s, host) else {
            self.program.fusion.note_apart(a, b, TailRefusal::Places);
            self.emit_contract(host, def, &args)?;
            return self.emit_kernel(s);
        };
        let note = "epilogue on each tile of the result while it is in cache";
        self.program.fusion.note_together(a, b, note);
        let out = self.buffer(result);
        // The contraction writes its result to the buffer of the kernel's, and the kernel overwrites each piece in
        // place.
        self.buffer_of[host.0 as usize] = Some(out);
        self.emit_contract(host, def, &args)?;
        let mut sums = None;
        if byte_input(self.tir, host).is_some() {
            // Sums of bytes are larger than the result, and stay in working memory.
            self.buffer_of[host.0 as usize] = None;
            let buffer = self.buffer(host);
            self.program.buffers[buffer.0].place = BufferPlace::Pieces;
            sums = s.buffers.iter().position(|&v| v == Stored::Value(host));
        }
        let tail = self.kernel_tail(&s, flat, sums);
        if let Some(Step::Contract { tail: place, .. }) = self.program.steps.last_mut() {
            *place = Some(tail);
        }
        Ok(())
    }

    /// The kernel as one loop over the elements of the result of `host`. `None` if it is not an epilogue.
    fn flat_kernel(&self, s: &Scheduled, host: ValueId) -> Option<FlatKernel> {
        let numel = self.tir.value(host).numel();
        let flat = match is_flat(s, host, numel) {
            true => Some(FlatKernel {
                repeats: vec![None; s.buffers.len()],
                kernel: s.kernel.clone(),
            }),
            false => flatten(s, host, numel),
        };
        let fits = byte_input(self.tir, host).is_none() || s.buffers.len() <= MAX_TAIL_BUFFERS;
        let is_constant =
            |v: &Stored| matches!(v, Stored::Value(v) if matches!(self.tir.value(*v).def, Def::Constant(_)));
        let is_long = |(v, r): (&Stored, &Option<Repeat>)| r.is_none_or(|r| r.period >= SHORTEST_ROW) || is_constant(v);
        flat.filter(|f| fits && s.buffers.iter().zip(&f.repeats).all(is_long))
    }

    /// Adds the kernel to the program, with its buffers.
    fn kernel_tail(&mut self, s: &Scheduled, flat: FlatKernel, sums: Option<usize>) -> KernelTail {
        let FlatKernel { kernel, mut repeats } = flat;
        let mut buffers: Vec<BufferId> = s.buffers.iter().map(|&v| self.stored_buffer(v)).collect();
        for (buffer, repeat) in buffers.iter_mut().zip(&mut repeats) {
            if let Some(r) = repeat
                && let Some(longer) = self.write_out(*buffer, r)
            {
                *buffer = longer;
            }
        }
        self.program.kernels.push(kernel);
        KernelTail {
            kernel: self.program.kernels.len() - 1,
            buffers,
            repeats,
            sums,
        }
    }

    /// A buffer with several periods of a constant that repeats, and changes the period. `None` if there is none.
    fn write_out(&mut self, buffer: BufferId, repeat: &mut Repeat) -> Option<BufferId> {
        let (times, b) = (WRITTEN_OUT / repeat.period.max(1), &self.program.buffers[buffer.0]);
        let BufferPlace::Constant(t) = &b.place else {
            return None;
        };
        if times < 2 || t.numel() != repeat.period {
            return None;
        }
        let numel = times * repeat.period;
        let bytes = t.with_bytes(|bytes| AlignedBytes::from_slice(&bytes.repeat(times)));
        let constant = Tensor::from_storage(t.dtype(), &[numel], Storage::Owned(bytes));
        let longer = Buffer {
            name: b.name.clone(),
            dtype: b.dtype,
            shape: vec![numel],
            place: BufferPlace::Constant(constant),
        };
        repeat.period = numel;
        self.program.buffers.push(longer);
        Some(BufferId(self.program.buffers.len() - 1))
    }
}
