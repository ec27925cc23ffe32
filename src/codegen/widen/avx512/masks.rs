//! Masks: comparisons write mask registers, which blends and tests read. A mask is written to its vector register only
//! where an instruction reads it as a vector.

use super::Avx512Rewrite;
use crate::codegen::widen::Reject;
use crate::codegen::widen::flow::OperandPlace;
use crate::codegen::widen::operands::{copy_memory_operand, encode_error, to_zmm};
use iced_x86::{Code, Instruction, OpAccess, OpKind, Register};

/// The mask register that holds the same mask as a vector register.
#[derive(Clone, Copy)]
pub(super) struct MaskRegister {
    k: Register,
    /// Whether lanes have 64 bits.
    long: bool,
    /// Whether the mask was also written to the vector register.
    stored: bool,
}

impl Avx512Rewrite<'_> {
    /// Writes live masks that only mask registers hold to their vector registers, and forgets all mask registers.
    pub(super) fn settle_masks(&mut self, live: u16) -> Result<(), Reject> {
        for z in 0..16 {
            if live >> z & 1 == 1 {
                self.store_mask(z)?;
            }
            self.masks[z] = None;
        }
        Ok(())
    }

    /// Writes the mask of vector register `z` to it.
    fn store_mask(&mut self, z: usize) -> Result<(), Reject> {
        let Some(m) = &mut self.masks[z] else { return Ok(()) };
        if std::mem::replace(&mut m.stored, true) {
            return Ok(());
        }
        let (k, code) = match m.long {
            true => (m.k, Code::EVEX_Vpternlogq_zmm_k1z_zmm_zmmm512b64_imm8),
            false => (m.k, Code::EVEX_Vpternlogd_zmm_k1z_zmm_zmmm512b32_imm8),
        };
        let r = Register::ZMM0 + z as u32;
        let mut i = Instruction::with4(code, r, r, r, 0xffu32).map_err(encode_error)?;
        i.set_op_mask(k);
        i.set_zeroing_masking(true);
        self.out.push(i);
        Ok(())
    }

    /// Allocates a mask register. If the mask it holds is live, writes that mask to its vector register first.
    pub(super) fn take_k(&mut self, live: u16) -> Result<Register, Reject> {
        let k = Register::K1 + self.next_k;
        self.next_k = (self.next_k + 1) % self.tails.free_registers();
        for z in 0..16 {
            if self.masks[z].is_some_and(|m| m.k == k) {
                if live >> z & 1 == 1 {
                    self.store_mask(z)?;
                }
                self.masks[z] = None;
            }
        }
        Ok(k)
    }

    /// Writes the masks that an instruction reads as vectors to their vector registers.
    pub(super) fn store_read_masks(&mut self, i: &Instruction) -> Result<(), Reject> {
        let used = self.info.info(i).used_registers();
        let read: Vec<usize> = used
            .iter()
            .filter(|u| {
                u.register().is_vector_register() && u.access() != OpAccess::Write && u.register().number() < 16
            })
            .map(|u| u.register().number())
            .collect();
        read.into_iter().try_for_each(|z| self.store_mask(z))
    }

    /// Whether any bit of the conjunction of two vectors is set, in the zero flag.
    pub(super) fn emit_test(&mut self, n: usize, i: &Instruction) -> Result<(), Reject> {
        if i.op_kind(1) != OpKind::Register {
            return Err(Reject::Memory(i.code()));
        }
        let k = self.take_k(self.flow.live_out[n])?;
        let (a, b) = (to_zmm(i.op0_register()), to_zmm(i.op1_register()));
        let test = Instruction::with3(Code::EVEX_Vptestmd_kr_k1_zmm_zmmm512b32, k, a, b).map_err(encode_error)?;
        let any = Instruction::with2(Code::VEX_Kortestw_kr_kr, k, k).map_err(encode_error)?;
        self.out.push(test);
        self.out.push(any);
        Ok(())
    }

    pub(super) fn emit_comparison(
        &mut self,
        n: usize,
        i: &Instruction,
        place: Option<OperandPlace>,
        code: Code,
        long: bool,
    ) -> Result<(), Reject> {
        let z = i.op0_register().number();
        let same = i.op_kind(2) == OpKind::Register && i.op1_register() == i.op2_register();
        let ones = matches!(
            i.code(),
            Code::VEX_Vpcmpeqd_xmm_xmm_xmmm128 | Code::VEX_Vpcmpeqq_xmm_xmm_xmmm128
        ) && same;
        if ones {
            let r = Register::ZMM0 + z as u32;
            let all = Code::EVEX_Vpternlogd_zmm_k1z_zmm_zmmm512b32_imm8;
            self.out
                .push(Instruction::with4(all, r, r, r, 0xffu32).map_err(encode_error)?);
            self.masks[z] = None;
            return Ok(());
        }
        if matches!(place, Some(OperandPlace::Slot | OperandPlace::Behind)) {
            return Err(Reject::Memory(i.code()));
        }
        // The destination register may hold an older mask. The operands' masks were already stored.
        self.masks[z] = None;
        let k = self.take_k(self.flow.live_out[n])?;
        let mut j = self.widen_operands(i, code, place);
        j.set_op0_register(k);
        self.out.push(j);
        self.masks[z] = Some(MaskRegister { k, long, stored: false });
        Ok(())
    }

    /// The mask register that holds the mask in vector register `m` before instruction `n`, and whether its lanes have
    /// 64 bits.
    fn load_mask(&mut self, n: usize, m: usize) -> Result<(Register, bool), Reject> {
        if let Some(m) = self.masks[m] {
            return Ok((m.k, m.long));
        }
        let k = self.take_k(self.flow.live_in[n])?;
        let z = Register::ZMM0 + m as u32;
        let test = Instruction::with3(Code::EVEX_Vptestmd_kr_k1_zmm_zmmm512b32, k, z, z);
        self.out.push(test.map_err(encode_error)?);
        self.masks[m] = Some(MaskRegister {
            k,
            long: false,
            stored: true,
        });
        Ok((k, false))
    }

    /// `mask ? third : second`.
    pub(super) fn emit_blend(&mut self, n: usize, i: &Instruction, place: Option<OperandPlace>) -> Result<(), Reject> {
        if matches!(place, Some(OperandPlace::Slot | OperandPlace::Behind)) {
            return Err(Reject::Memory(i.code()));
        }
        let (d, a, m) = (
            i.op0_register().number(),
            i.op1_register().number(),
            i.op3_register().number(),
        );
        self.store_mask(a)?;
        if i.op_kind(2) == OpKind::Register {
            self.store_mask(i.op2_register().number())?;
        }
        let (k, long) = self.load_mask(n, m)?;
        let code = match long {
            true => Code::EVEX_Vblendmpd_zmm_k1z_zmm_zmmm512b64,
            false => Code::EVEX_Vblendmps_zmm_k1z_zmm_zmmm512b32,
        };
        let register = match place {
            None => Some(to_zmm(i.op2_register())),
            place => self.register_of(place),
        };
        let (to, first) = (Register::ZMM0 + d as u32, Register::ZMM0 + a as u32);
        let mut j = match register {
            Some(r) => Instruction::with3(code, to, first, r),
            None => Instruction::with3(code, to, first, copy_memory_operand(i)),
        }
        .map_err(encode_error)?;
        j.set_op_mask(k);
        self.out.push(j);
        self.masks[d] = None;
        Ok(())
    }
}
