//! Runs one step: a kernel over its chunks, a contraction, an op's routine, or control flow.

use super::executable::{Executable, RoutineFn, RunError};
use super::plan::{Action, ContractPlan};
use super::tail::{Alone, Follow};
use crate::code::CompiledKernels;
use crate::diag::{Code, Diagnostic};
use crate::kernel::{Fault, Status};
use crate::math::contract::{
    AttentionArgs, ConvArgs, ExpansionArgs, ExpansionPlan, GroupedArgs, GroupedPlan, MatMulArgs, RecurrentArgs,
    TileTail,
};
use crate::program::{BufferId, BufferOperand, RecurrentOperands, Step};
use crate::tensor::{BorrowedBytes, Storage, Tensor, View, ViewMut};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU32, Ordering};

impl Executable {
    pub(super) fn run_step(&mut self, i: usize) -> Result<(), RunError> {
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
                // SAFETY: the previous steps have computed its inputs.
                unsafe { self.tables.fetch_rows(i, &self.addresses) };
                let status = self.run_kernel(index, extent, chunk, size);
                self.check_status(i, status)
            }
            Action::Contract {
                plan,
                operands,
                out,
                tail,
            } => {
                self.args.clear();
                let buffers = tail.iter().flat_map(|(t, _)| &t.buffers);
                self.args.extend(buffers.map(|b| self.addresses[b.0]));
                let follow = tail
                    .as_ref()
                    .map(|(t, affine)| Follow::new(&self.kernels, (t, *affine), &self.args));
                if let ContractPlan::Grouped(plan) = plan {
                    return self.run_grouped(&**plan, operands, *out);
                }
                self.run_contract(plan, operands, *out, follow.as_ref());
                Ok(())
            }
            Action::Routine(step, routine) => self.run_routine(*step, routine),
            Action::Overwrite(step, _) => self.run_overwrite(*step),
            Action::Control(..) => self.run_control_step(i),
        }
    }

    fn run_kernel(&mut self, index: usize, extent: usize, chunk: usize, scratch: usize) -> Status {
        let status = AtomicU32::new(0);
        let shared = Chunks {
            kernels: &self.kernels,
            args: &self.args,
            memory: self.scratch.bytes_mut().as_mut_ptr(),
        };
        self.pool.run(extent.div_ceil(chunk.max(1)), |c| {
            let s = &shared;
            let begin = c * chunk;
            let end = (begin + chunk).min(extent);
            // SAFETY: the arguments point to buffers of the sizes and dtypes that the kernel was verified for. Chunks
            // write disjoint elements, because iterations of the parallel loop are independent. Every chunk has
            // separate scratch memory.
            let s = unsafe { s.kernels.run(index, s.args, begin, end, s.memory.add(c * scratch)) };
            if s != Status::OK {
                status.fetch_or(s.0, Ordering::Relaxed);
            }
        });
        Status(status.load(Ordering::Relaxed))
    }

    fn check_status(&self, i: usize, status: Status) -> Result<(), RunError> {
        let title = match status.first_fault() {
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
    fn operand_address(&self, o: &BufferOperand) -> *mut u8 {
        let size = self.program.buffers[o.buffer.0].dtype.size() as isize;
        // SAFETY: views stay within their buffer.
        unsafe { self.addresses[o.buffer.0].offset(o.offset as isize * size) }
    }

    /// Runs two convolutions as one, with the kernel between them. `operand` returns the address of an operand.
    ///
    /// # Safety
    /// As for [`ExpansionPlan::run`].
    unsafe fn run_expansion(
        &self,
        plan: &dyn ExpansionPlan,
        kernel: Option<usize>,
        biases: [bool; 2],
        operand: &dyn Fn(usize) -> *const u8,
        y: *mut u8,
        tail: Option<TileTail>,
    ) {
        let middle = kernel.map(|kernel| Alone {
            kernels: &self.kernels,
            kernel,
            buffers: self.kernels.buffer_count(kernel),
        });
        let second = 2 + biases[0] as usize;
        let bias = |i: usize, has: bool| if has { operand(i) } else { std::ptr::null() };
        let args = ExpansionArgs {
            x: operand(0),
            weights: [operand(1), operand(second)],
            biases: [bias(2, biases[0]), bias(second + 1, biases[1])],
            y,
            middle: middle.as_ref().map(Alone::as_tail),
            tail,
        };
        // SAFETY: guaranteed by the caller.
        unsafe { plan.run(&self.pool, &args) };
    }

    fn run_contract(&self, plan: &ContractPlan, operands: &[BufferOperand], out: BufferId, follow: Option<&Follow>) {
        let tail = follow.map(Follow::as_tail);
        let operand = |i: usize| {
            operands
                .get(i)
                .map_or(std::ptr::null::<u8>(), |o| self.operand_address(o).cast_const())
        };
        let c = self.addresses[out.0];
        // SAFETY: the descriptors were built from the shapes and strides of the operands, the buffers have these
        // sizes, and the memory plan never lets the result of a step overlap its operands.
        unsafe {
            match plan {
                ContractPlan::MatMul(p) => p.run(&self.pool, &matmul_args(&operand, c, tail)),
                ContractPlan::Conv(p) => p.run(
                    &self.pool,
                    &ConvArgs {
                        x: operand(0),
                        weight: operand(1),
                        bias: operand(2),
                        y: c,
                        tail,
                    },
                ),
                ContractPlan::Expansion(p, kernel, biases) => {
                    self.run_expansion(&**p, *kernel, *biases, &operand, c, tail)
                }
                ContractPlan::Recurrent(p, o) => p.run(&self.pool, &recurrent_args(o, &operand, c)),
                ContractPlan::Attention(p) => p.run(&self.pool, &attention_args(&operand, c)),
                ContractPlan::Grouped(_) => unreachable!("the caller runs products of groups, which can fail"),
            }
        }
    }

    fn run_grouped(&self, plan: &dyn GroupedPlan, operands: &[BufferOperand], out: BufferId) -> Result<(), RunError> {
        let operand = |i: usize| self.operand_address(&operands[i]).cast_const();
        let args = GroupedArgs {
            a: operand(0),
            b: operand(1),
            integers: operand(2),
            c: self.addresses[out.0],
        };
        // SAFETY: as in `run_contract`.
        let done = unsafe { plan.run(&self.pool, &args) };
        done.map_err(|e| Box::new(Diagnostic::new(Code::E0502, e.to_string())))
    }

    fn run_routine(&self, step: usize, routine: &RoutineFn) -> Result<(), RunError> {
        let Step::Routine { call, outs } = &self.program.steps[step] else {
            unreachable!("the action of a step has its kind")
        };
        let args = call.args.iter().map(|v| v.map(|o| self.lend_operand(o))).collect();
        let result = |b: &BufferId| {
            let buffer = &self.program.buffers[b.0];
            // SAFETY: the buffer has these elements, and the memory plan keeps it separate from the operands. The exception is an operand
            // that the routine updates in place, which it does not read.
            let view = unsafe { ViewMut::from_raw_parts(buffer.dtype, &buffer.shape, self.addresses[b.0]) };
            view.expect("buffers have sizes and aligned memory")
        };
        let mut results: Vec<ViewMut> = outs.iter().map(result).collect();
        routine(args, &mut results, &self.pool)
    }

    /// An operand as a tensor that borrows its memory for the step, if its elements are dense.
    pub(super) fn lend_operand(&self, o: &BufferOperand) -> Tensor {
        let buffer = &self.program.buffers[o.buffer.0];
        let size = buffer.dtype.size();
        let n: usize = o.shape.iter().product();
        if n == 0 || !has_row_major_strides(o) {
            return self.gather_operand(o);
        }
        // SAFETY: views stay within their buffer, which is not written while it is read (see `in_place`). Routines keep no operand.
        let bytes = unsafe {
            let first = self.addresses[o.buffer.0].offset(o.offset as isize * size as isize);
            BorrowedBytes::new(first, n * size)
        };
        Tensor::from_storage(buffer.dtype, &o.shape, Storage::Borrowed(bytes))
    }

    fn run_control_step(&mut self, i: usize) -> Result<(), RunError> {
        let Action::Control(step, graphs) = &mut self.actions[i] else {
            unreachable!("the caller matched the action")
        };
        // Taken out of the action for the run, because the operands are read from `self`.
        let (step, mut graphs) = (*step, std::mem::take(graphs));
        let Step::Control { op, parts, outs, .. } = &self.program.steps[step] else {
            unreachable!("the action of a step has its kind")
        };
        let tensors = parts.map(|o| self.gather_operand(o));
        let result = super::control::run_control_call(op, &tensors, &mut graphs);
        let stored = result.and_then(|v| v.iter().zip(outs).try_for_each(|(t, b)| self.store_tensor(t, *b, op)));
        self.actions[i] = Action::Control(step, graphs);
        stored
    }

    /// Copies a tensor that `op` returned to a buffer.
    fn store_tensor(&self, t: &Tensor, b: BufferId, op: &str) -> Result<(), RunError> {
        let buffer = &self.program.buffers[b.0];
        if t.dtype() != buffer.dtype || t.numel() * t.dtype().size() != buffer.byte_count() {
            let (dtype, shape) = (buffer.dtype, &buffer.shape);
            let title = format!("`{op}` returned {} instead of {dtype}{shape:?}", t.ty());
            return Err(Box::new(Diagnostic::new(Code::E0603, title)));
        }
        // SAFETY: the buffer has exactly these bytes, and no tensor shares them.
        unsafe { std::ptr::copy_nonoverlapping(t.bytes().as_ptr(), self.addresses[b.0], t.bytes().len()) };
        Ok(())
    }

    /// A copy of an operand.
    fn gather_operand(&self, o: &BufferOperand) -> Tensor {
        let strides: SmallVec<[isize; 6]> = o.strides.iter().map(|&s| s as isize).collect();
        let dtype = self.program.buffers[o.buffer.0].dtype;
        // SAFETY: operands stay within their buffer, which is not written during the step.
        let view = unsafe { View::from_raw_parts(dtype, &o.shape, Some(&strides), self.operand_address(o)) };
        view.expect("an operand has a stride for each dim and fits its buffer")
            .to_tensor()
    }
}

/// The arguments of a product. `operand` returns the address of an operand.
fn matmul_args(operand: &dyn Fn(usize) -> *const u8, c: *mut u8, tail: Option<TileTail>) -> MatMulArgs {
    MatMulArgs {
        a: operand(0),
        b: operand(1),
        addend: operand(2),
        c,
        tail,
    }
}

/// The arguments of an attention step. `operand` returns the address of an operand.
fn attention_args(operand: &dyn Fn(usize) -> *const u8, out: *mut u8) -> AttentionArgs {
    AttentionArgs {
        q: operand(0),
        k: operand(1),
        v: operand(2),
        mask: operand(3),
        bias: operand(4),
        out,
    }
}

/// The arguments of a recurrent step. `operand` returns the address of an operand.
fn recurrent_args(o: &RecurrentOperands, operand: &dyn Fn(usize) -> *const u8, out: *mut u8) -> RecurrentArgs {
    let optional = |i: Option<usize>| i.map_or(std::ptr::null(), |i| operand(i).cast());
    RecurrentArgs {
        inputs: operand(0).cast(),
        state: operand(1).cast(),
        cell: optional(o.cell),
        weight: operand(o.weight).cast(),
        projection: optional(o.projection),
        bias: optional(o.bias),
        out: out.cast(),
    }
}

pub(super) fn has_row_major_strides(o: &BufferOperand) -> bool {
    let mut dense = 1i64;
    o.shape.iter().zip(&o.strides).rev().all(|(&n, &stride)| {
        let fits = n == 1 || stride == dense;
        dense = dense.saturating_mul(n as i64);
        fits
    })
}

/// The state that the chunks of a kernel share.
struct Chunks<'a> {
    kernels: &'a CompiledKernels,
    args: &'a [*mut u8],
    memory: *mut u8,
}
// SAFETY: each chunk writes different elements and separate scratch memory.
unsafe impl Sync for Chunks<'_> {}
