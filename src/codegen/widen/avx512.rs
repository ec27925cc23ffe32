//! Rewriting for AVX-512F.

mod halves;
mod masks;
mod rounding;
mod tails;

use super::codes::{
    clears_register, is_scalar, match_exchange, match_splat, merges_rows, swaps_lanes, takes_first_lane, wider,
    wider_blend, wider_comparison,
};
use super::crossing::{Crossing, Shape, match_crossing};
use super::flow::{Flow, OperandPlace};
use super::operands::{copy_memory_operand, encode_error, is_broadcast, is_move, loads_part, narrow_store, to_zmm};
use super::{CodeOutput, Reject, extends_register, has_vectors, is_return, memory_operand};
use iced_x86::{Code, FlowControl, Instruction, InstructionInfoFactory, MemoryOperand, OpKind, Register};
use masks::MaskRegister;
use std::collections::HashMap;
use tails::TailMasks;

/// The number of registers that Cranelift does not use: zmm16 to zmm31.
const FREE: usize = 16;

struct Avx512Rewrite<'a> {
    flow: &'a Flow,
    out: CodeOutput,
    /// The masks, by vector register.
    masks: [Option<MaskRegister>; 16],
    next_k: u32,
    tails: TailMasks,
    spills: HashMap<u64, Register>,
    pinned: HashMap<u64, Register>,
    info: InstructionInfoFactory,
    /// Whether a store of two f64 means a streaming store.
    may_stream: bool,
    /// Whether a streaming store was emitted.
    streams: bool,
    rare: rounding::RareConversions,
}

/// Rewrites the function's instructions for 64-byte vectors.
pub(super) fn rewrite(flow: &Flow, may_stream: bool) -> Result<Vec<Instruction>, Reject> {
    let mut r = Avx512Rewrite {
        flow,
        out: CodeOutput::new(),
        masks: [None; 16],
        next_k: 0,
        tails: TailMasks::new(flow)?,
        spills: HashMap::new(),
        pinned: HashMap::new(),
        info: InstructionInfoFactory::new(),
        may_stream,
        streams: false,
        rare: rounding::RareConversions::default(),
    };
    r.assign_registers()?;
    let mut pinned: Vec<(u64, Register)> = r.pinned.iter().map(|(&d, &z)| (d, z)).collect();
    pinned.sort_unstable();
    for (d, z) in pinned {
        let operand = MemoryOperand::with_base_displ(Register::R8, d as i64);
        r.emit_reg_mem(Code::EVEX_Vmovups_zmm_k1z_zmmm512, z, operand)?;
    }
    for i in r.tails.prologue()? {
        r.out.push(i);
    }
    for n in 0..flow.ins.len() {
        r.rewrite_inst(n)?;
    }
    r.out.ins.extend(r.rare.finish());
    halves::convert_from_memory(&mut r.out.ins, &flow.targets);
    Ok(r.out.ins)
}

impl Avx512Rewrite<'_> {
    /// Assigns the free registers to spilled vectors and to the constants of the innermost loops.
    fn assign_registers(&mut self) -> Result<(), Reject> {
        let mut weights: HashMap<u64, u64> = HashMap::new();
        let free = FREE - usize::from(self.flow.ins.iter().any(rounding::needs_working_register));
        let mut free = (0..free as u32).map(|k| Register::ZMM31 - k);
        for (n, i) in self.flow.ins.iter().enumerate() {
            if !has_vectors(i) || memory_operand(i).is_none() {
                continue;
            }
            match self.flow.operand_place(n)? {
                OperandPlace::Spill(d) if !is_scalar(i.mnemonic()) => {
                    if let std::collections::hash_map::Entry::Vacant(e) = self.spills.entry(d) {
                        let z = free.next().ok_or(Reject::Spills(FREE + 1))?;
                        e.insert(z);
                    }
                }
                OperandPlace::Spill(_) => return Err(Reject::Memory(i.code())),
                OperandPlace::Constant(d) if i.memory_size().size() == 16 && self.flow.depth[n] > 0 => {
                    *weights.entry(d).or_default() += 1 << (4 * self.flow.depth[n].min(8));
                }
                _ => {}
            }
        }
        let mut all: Vec<(u64, u64)> = weights.into_iter().map(|(d, w)| (w, d)).collect();
        all.sort_unstable_by_key(|&(w, d)| (std::cmp::Reverse(w), d));
        self.pinned = all.into_iter().map(|(_, d)| d).zip(free).collect();
        Ok(())
    }

    fn emit_reg_mem(&mut self, code: Code, a: Register, b: MemoryOperand) -> Result<(), Reject> {
        let i = Instruction::with2(code, a, b).map_err(encode_error)?;
        self.out.push(i);
        Ok(())
    }

    fn rewrite_inst(&mut self, n: usize) -> Result<(), Reject> {
        let i = &self.flow.ins[n];
        let targeted = self.flow.targets.contains(&i.ip());
        if targeted {
            // These writes belong to the path that falls through to the branch target.
            self.settle_masks(self.flow.live_in[n])?;
        }
        self.out.set_label(i.ip());
        if i.flow_control() != FlowControl::Next {
            self.settle_masks(self.flow.live_in[n])?;
            if is_return(i) {
                if self.streams {
                    self.out.push(Instruction::with(Code::Sfence));
                }
                self.out.push(Instruction::with(Code::VEX_Vzeroupper));
            }
            self.out.push(*i);
        } else if !has_vectors(i) {
            self.out.push(*i);
        } else {
            self.rewrite_vector_inst(n, i)?;
        }
        self.out.end_instruction(targeted);
        Ok(())
    }

    fn rewrite_vector_inst(&mut self, n: usize, i: &Instruction) -> Result<(), Reject> {
        let place = memory_operand(i).map(|_| self.flow.operand_place(n)).transpose()?;
        if wider_blend(i.code()).is_some() {
            return self.emit_blend(n, i, place);
        }
        self.store_read_masks(i)?;
        let defined = self.defined_vector(i);
        if let Some((w, long)) = wider_comparison(i.code()) {
            return self.emit_comparison(n, i, place, w.zmm, long);
        }
        if i.code() == Code::VEX_Vptest_xmm_xmmm128 {
            self.emit_test(n, i)?;
        } else if rounding::needs_working_register(i) {
            self.round_to_bf16(n, i, place)?;
        } else if let Some(masked) = self.tails.rewrite(i, place)? {
            masked.into_iter().for_each(|j| self.out.push(j));
        } else {
            let j = match self.widen_stream(i, place)? {
                Some(j) => j,
                None => self.widen_inst(i, place)?,
            };
            self.out.push(j);
        }
        if let Some(z) = defined {
            self.masks[z] = None;
        }
        Ok(())
    }

    /// The 512-bit form of an instruction that neither reads nor defines a mask.
    fn widen_inst(&self, i: &Instruction, place: Option<OperandPlace>) -> Result<Instruction, Reject> {
        if is_scalar(i.mnemonic()) || takes_first_lane(i) || loads_part(i, place) {
            return Ok(*i);
        }
        let to = to_zmm(i.op0_register());
        if let Some(w) = match_splat(i) {
            return Instruction::with2(w.zmm, to, i.op1_register()).map_err(encode_error);
        }
        if extends_register(i) {
            return Err(Reject::Code(i.code()));
        }
        if let Some(store) = narrow_store(i) {
            return match place {
                Some(OperandPlace::Memory) => store,
                _ => Err(Reject::Code(i.code())),
            };
        }
        if let Some(order) = match_exchange(i) {
            let z = to_zmm(i.op1_register());
            let code = Code::EVEX_Vshuff32x4_zmm_k1z_zmm_zmmm512b32_imm8;
            return Instruction::with4(code, to, z, z, order.of_four()).map_err(encode_error);
        }
        if let Some(c) = match_crossing(i) {
            return self.widen_crossing(i, c, place);
        }
        if clears_register(i) {
            return Instruction::with3(Code::EVEX_Vpxord_zmm_k1z_zmm_zmmm512b32, to, to, to).map_err(encode_error);
        }
        let code = match i {
            i if swaps_lanes(i) => Code::EVEX_Vpshufd_zmm_k1z_zmmm512b32_imm8,
            i if merges_rows(i) => Code::EVEX_Vshufps_zmm_k1z_zmm_zmmm512b32_imm8,
            i => wider(i.code()).ok_or(Reject::Code(i.code()))?.zmm,
        };
        Ok(self.widen_operands(i, code, place))
    }

    /// The streaming store or the prefetch that an instruction stands for, if it is one of these. Kernels encode them as
    /// moves of two f64; without f64 values they have no other use for these moves.
    fn widen_stream(&mut self, i: &Instruction, place: Option<OperandPlace>) -> Result<Option<Instruction>, Reject> {
        if !self.may_stream || place != Some(OperandPlace::Memory) {
            return Ok(None);
        }
        match i.code() {
            Code::VEX_Vmovupd_xmmm128_xmm => {
                let mut j = *i;
                j.set_code(Code::EVEX_Vmovntps_m512_zmm);
                j.set_op1_register(to_zmm(i.op1_register()));
                self.streams = true;
                Ok(Some(j))
            }
            Code::VEX_Vmovupd_xmm_xmmm128 => {
                let j = Instruction::with1(Code::Prefetcht1_m8, copy_memory_operand(i));
                j.map(Some).map_err(encode_error)
            }
            _ => Ok(None),
        }
    }

    /// The vector register that an instruction writes.
    fn defined_vector(&self, i: &Instruction) -> Option<usize> {
        let first = i.op_kind(0) == OpKind::Register && i.op0_register().is_vector_register();
        let writes = i.code() != Code::VEX_Vptest_xmm_xmmm128;
        (first && writes).then(|| i.op0_register().number())
    }

    /// The instruction with opcode `code`, wide registers, and registers in place of pinned or spilled memory operands.
    fn widen_operands(&self, i: &Instruction, code: Code, place: Option<OperandPlace>) -> Instruction {
        let register = match place {
            Some(OperandPlace::Constant(d)) if i.memory_size().size() == 16 => self.pinned.get(&d).copied(),
            Some(OperandPlace::Spill(d)) => self.spills.get(&d).copied(),
            _ => None,
        };
        let scalar_source = is_broadcast(code);
        if let (Some(r), true, true) = (register, i.op_count() == 2, is_move(code)) {
            // A move from or to memory becomes a move between registers.
            let (to, from) = match i.op_kind(0) {
                OpKind::Memory => (r, to_zmm(i.op1_register())),
                _ => (to_zmm(i.op0_register()), r),
            };
            return Instruction::with2(Code::EVEX_Vmovaps_zmm_k1z_zmmm512, to, from).unwrap_or(*i);
        }
        let mut j = *i;
        j.set_code(code);
        for k in 0..i.op_count() {
            match i.op_kind(k) {
                OpKind::Register if !(scalar_source && k == 1) => j.set_op_register(k, to_zmm(i.op_register(k))),
                OpKind::Memory => {
                    if let Some(r) = register {
                        j.set_op_kind(k, OpKind::Register);
                        j.set_op_register(k, r);
                    }
                }
                _ => {}
            }
        }
        j
    }

    /// The register that holds a memory operand, if one does.
    fn register_of(&self, place: Option<OperandPlace>) -> Option<Register> {
        match place? {
            OperandPlace::Spill(d) => self.spills.get(&d).copied(),
            OperandPlace::Constant(d) => self.pinned.get(&d).copied(),
            _ => None,
        }
    }

    /// The wider form of an instruction that relates vectors and halves of vectors.
    fn widen_crossing(&self, i: &Instruction, c: Crossing, place: Option<OperandPlace>) -> Result<Instruction, Reject> {
        if c.shape == Shape::Binary {
            return Ok(self.widen_operands(i, c.zmm, place));
        }
        let readable = matches!(place, None | Some(OperandPlace::Memory | OperandPlace::Constant(_)));
        let register = self.register_of(place);
        match register.is_some() || readable {
            true => c.with_512_bits(i, register),
            false => Err(Reject::Memory(i.code())),
        }
    }
}
