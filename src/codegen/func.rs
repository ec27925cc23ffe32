//! Lowers one kernel to one CLIF function.

use super::analysis::{find_indices, may_stream};
use super::asm::CodeOrigin;
use super::folds::find_folds;
use super::lanes::{Emitter, MEM};
use super::packed::PackedLanes;
use super::prefetch::find_prefetches;
use super::state::{FunctionLowering, LoweredValue, VarAt};
use super::table::ConstantTable;
use crate::kernel::{BufferRole, Kernel, Stmt};
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{AbiParam, InstBuilder, SourceLoc, StackSlot, StackSlotData, StackSlotKind, Value};
use cranelift_codegen::isa::TargetIsa;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use std::collections::{HashMap, HashSet};

/// The signature of compiled kernels: `(buffers, begin, end, scratch, constants) -> status`.
pub(super) fn kernel_signature(isa: &dyn TargetIsa) -> cranelift_codegen::ir::Signature {
    let mut s = cranelift_codegen::ir::Signature::new(isa.default_call_conv());
    s.params.extend([AbiParam::new(I64); 5]);
    s.returns.push(AbiParam::new(I32));
    s
}

/// Whether a flag of the target ISA is set.
pub(super) fn has_isa_flag(isa: &dyn TargetIsa, name: &str) -> bool {
    isa.isa_flags()
        .iter()
        .any(|f| f.name == name && f.as_bool() == Some(true))
}

/// Begins the function's first block, and returns its parameters.
fn enter_function(b: &mut FunctionBuilder<'_>) -> [Value; 5] {
    let entry = b.create_block();
    b.append_block_params_for_function_params(entry);
    b.switch_to_block(entry);
    b.seal_block(entry);
    let params = b.block_params(entry).try_into();
    params.expect("kernels have five parameters")
}

/// Lowers `k` into `func`, whose signature is that of [`kernel_signature`]. The vectors of a group are `width` bytes
/// apart, and lanes have at least `lane` bytes. With `places`, each instruction records the statement that it comes from.
pub(super) fn define_function(
    k: &Kernel,
    isa: &dyn TargetIsa,
    shape: PackedLanes,
    func: &mut cranelift_codegen::ir::Function,
    frontend: &mut FunctionBuilderContext,
    table: &mut ConstantTable,
    places: bool,
) {
    let x86 = isa.name() == "x64";
    let mut b = FunctionBuilder::new(func, frontend);
    let [buffers, begin, end, scratch, constants] = enter_function(&mut b);
    let (slot, status) = create_slot(&mut b, shape.width > 16 || shape.lane < 4);
    let e = Emitter {
        b,
        table,
        table_ptr: constants,
        slot,
        status,
        groups: None,
        scalar: true,
        elements: 1,
        tail: None,
        width: shape.width,
        packed: shape.lane,
        narrows: shape.narrows,
        f16c: shape.f16c,
        single: shape.single,
        fma: !x86 || has_isa_flag(isa, "has_fma"),
        x86,
    };
    let mut s = FunctionLowering::new(k, e, (begin, end), places);
    s.bind_buffers(buffers, scratch);
    s.lower_kernel();
    s.e.b.finalize(isa.frontend_config());
}

/// Creates the function's one stack slot. It holds the status, after scratch space for taking vectors apart if `parts`.
/// Returns the slot and the offset of the status.
fn create_slot(b: &mut FunctionBuilder, parts: bool) -> (StackSlot, i32) {
    let (bytes, status) = if parts { (super::widen::SLOT, 64) } else { (4, 0) };
    let data = StackSlotData::new(StackSlotKind::ExplicitSlot, bytes, 2);
    (b.create_sized_stack_slot(data), status)
}

impl<'a> FunctionLowering<'a> {
    /// The state at the beginning of `k`. `range` is the part of the parallel loop to run.
    fn new(k: &'a Kernel, e: Emitter<'a>, range: (Value, Value), places: bool) -> FunctionLowering<'a> {
        FunctionLowering {
            e,
            k,
            buffers: vec![],
            vars: vec![VarAt::Const(0); k.extents.len()],
            vals: vec![LoweredValue::None; k.values.len()],
            lane: None,
            partials: HashMap::new(),
            splats: HashMap::new(),
            range,
            aligned: false,
            outside: None,
            inside: None,
            decided: HashMap::new(),
            unused: HashSet::new(),
            may_stream: may_stream(k),
            folds: find_folds(k),
            indices: find_indices(k),
            prefetches: find_prefetches(k),
            in_step: vec![],
            places,
        }
    }

    /// Lowers the kernel's body, between a status of 0 and the return of the status.
    fn lower_kernel(&mut self) {
        let zero = self.e.b.ins().iconst(I32, 0);
        let status = self.e.status_address();
        self.e.b.ins().store(MEM.with_aligned(), zero, status, 0);
        let k = self.k;
        self.lower_body(&k.body);
        let status = self.e.status_address();
        let r = self.e.b.ins().load(I32, MEM.with_aligned(), status, 0);
        self.e.b.ins().return_(&[r]);
    }

    fn bind_buffers(&mut self, list: Value, scratch: Value) {
        let (offsets, _) = self.k.scratch_layout();
        let mut n = 0;
        for (b, off) in self.k.buffers.iter().zip(offsets) {
            self.buffers.push(if b.role == BufferRole::Local {
                self.e.b.ins().iadd_imm_s(scratch, off as i64)
            } else {
                n += 1;
                self.e.b.ins().load(I64, MEM.with_aligned(), list, 8 * (n - 1))
            });
        }
    }

    /// Lowers statements in order.
    pub(super) fn lower_body(&mut self, body: &[Stmt]) {
        for s in body {
            self.note_place(s);
            match s {
                Stmt::Let(v, _) if self.unused.contains(v) => {}
                Stmt::Let(v, i) => {
                    let x = self.lower_inst(*v, i);
                    self.vals[v.0 as usize] = x;
                }
                Stmt::Store(b, i, v) => self.lower_store(*b, i, *v),
                Stmt::Loop(l) => self.lower_loop(l),
            }
        }
        if self.places {
            self.e.b.set_srcloc(SourceLoc::default());
        }
    }

    /// Attributes the code emitted from now on to this statement.
    fn note_place(&mut self, s: &Stmt) {
        if self.places {
            self.e.b.set_srcloc(match s {
                Stmt::Let(v, _) => CodeOrigin::Value(v.0).to_srcloc(),
                Stmt::Store(b, ..) => CodeOrigin::Store(b.0).to_srcloc(),
                Stmt::Loop(_) => SourceLoc::default(),
            });
        }
    }

    /// Drops the values that a body defined; they go out of scope at its end.
    pub(super) fn forget(&mut self, body: &[Stmt]) {
        for s in body {
            match s {
                Stmt::Let(v, _) => self.vals[v.0 as usize] = LoweredValue::None,
                Stmt::Store(..) => {}
                Stmt::Loop(l) => {
                    let outs = l.reduces.iter().flat_map(|r| r.out.iter().copied());
                    for v in outs.chain(l.carries.iter().flat_map(|c| [c.phi, c.out])) {
                        self.vals[v.0 as usize] = LoweredValue::None;
                    }
                    self.forget(&l.body);
                }
            }
        }
    }
}
