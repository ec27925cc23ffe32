//! Loads and stores with masks, which end vector loops (see [`tails`](crate::codegen::tails)).
//!
//! A mask of the first lanes takes two instructions. The masks that a function uses are made at its start, as far as there are
//! registers.

use crate::codegen::widen::Reject;
use crate::codegen::widen::flow::{Flow, OperandPlace};
use crate::codegen::widen::memory_operand;
use crate::codegen::widen::operands::{copy_memory_operand, encode_error, to_zmm};
use crate::codegen::widen::tagged::{MaskedLanes, Stored, split_offset};
use iced_x86::{Code, Instruction, Register};

/// The registers that hold masks throughout the function, at most.
const KEPT: usize = 3;

/// The masks of the first lanes that a function uses.
#[derive(Default)]
pub(super) struct TailMasks {
    /// The numbers of lanes whose masks are kept in registers: k7, k6 and so on.
    kept: Vec<u32>,
    /// Whether another register is for further masks.
    others: bool,
}

/// The lanes of the masked load or store that an instruction stands for, and the offset of its address.
fn masked_access(i: &Instruction) -> Result<Option<(MaskedLanes, i64)>, Reject> {
    let offset = i.memory_displacement64() as i64;
    match i.code() {
        Code::VEX_Vpextrb_r32m8_xmm_imm8 if i.immediate8() == 0 => Ok(None),
        Code::VEX_Vpextrb_r32m8_xmm_imm8 | Code::VEX_Vpmovzxdq_xmm_xmmm64 => {
            let split = i32::try_from(offset).ok().and_then(split_offset);
            let (offset, lanes) = split.ok_or(Reject::Memory(i.code()))?;
            Ok(Some((lanes, offset.into())))
        }
        _ => Ok(None),
    }
}

/// The load and the store of 64-byte vectors whose lanes are such elements in memory.
fn codes_of(stored: Stored) -> [Code; 2] {
    match stored {
        Stored::Whole => [Code::EVEX_Vmovups_zmm_k1z_zmmm512, Code::EVEX_Vmovups_zmmm512_k1z_zmm],
        Stored::Half => [Code::EVEX_Vpmovzxwd_zmm_k1z_ymmm256, Code::EVEX_Vpmovdw_ymmm256_k1z_zmm],
        Stored::SignedHalf => [Code::EVEX_Vpmovsxwd_zmm_k1z_ymmm256, Code::EVEX_Vpmovdw_ymmm256_k1z_zmm],
        Stored::Byte => [Code::EVEX_Vpmovzxbd_zmm_k1z_xmmm128, Code::EVEX_Vpmovdb_xmmm128_k1z_zmm],
        Stored::SignedByte => [Code::EVEX_Vpmovsxbd_zmm_k1z_xmmm128, Code::EVEX_Vpmovdb_xmmm128_k1z_zmm],
    }
}

impl TailMasks {
    pub(super) fn new(flow: &Flow) -> Result<TailMasks, Reject> {
        let mut kept: Vec<u32> = vec![];
        for i in &flow.ins {
            match masked_access(i)? {
                Some((m, _)) if !kept.contains(&m.lanes) => kept.push(m.lanes),
                _ => {}
            }
        }
        let others = kept.len() > KEPT;
        kept.truncate(KEPT);
        Ok(TailMasks { kept, others })
    }

    /// The number of mask registers that are free for comparisons, from k1 on.
    pub(super) fn free_registers(&self) -> u32 {
        7 - self.kept.len() as u32 - u32::from(self.others)
    }

    /// The instructions at the start of the function.
    pub(super) fn prologue(&self) -> Result<Vec<Instruction>, Reject> {
        let masks = self.kept.iter().enumerate();
        let made: Result<Vec<_>, Reject> = masks
            .map(|(n, &lanes)| mask_of_first(Register::K7 - n as u32, lanes))
            .collect();
        Ok(made?.into_iter().flatten().collect())
    }

    /// What replaces an instruction that stands for a masked load or store.
    pub(super) fn rewrite(
        &self,
        i: &Instruction,
        place: Option<OperandPlace>,
    ) -> Result<Option<Vec<Instruction>>, Reject> {
        let Some((MaskedLanes { lanes, stored }, offset)) = masked_access(i)? else {
            return Ok(None);
        };
        if place != Some(OperandPlace::Memory) {
            return Err(Reject::Memory(i.code()));
        }
        let (k, mut out) = match self.kept.iter().position(|&n| n == lanes) {
            Some(n) => (Register::K7 - n as u32, vec![]),
            None => {
                let k = Register::K7 - KEPT as u32;
                (k, mask_of_first(k, lanes)?.to_vec())
            }
        };
        let operand = copy_memory_operand(i);
        let [load, store] = codes_of(stored);
        let mut access = match memory_operand(i) {
            Some(0) => Instruction::with2(store, operand, to_zmm(i.op1_register())),
            _ => Instruction::with2(load, to_zmm(i.op0_register()), operand),
        }
        .map_err(encode_error)?;
        access.set_memory_displacement64(offset as u64);
        access.set_op_mask(k);
        access.set_zeroing_masking(memory_operand(i) != Some(0));
        out.push(access);
        Ok(Some(out))
    }
}

/// Sets the lowest bits of a mask register.
fn mask_of_first(k: Register, lanes: u32) -> Result<[Instruction; 2], Reject> {
    let ones = Instruction::with3(Code::VEX_Kxnorw_kr_kr_kr, k, k, k).map_err(encode_error)?;
    let shifted = Instruction::with3(Code::VEX_Kshiftrw_kr_kr_imm8, k, k, 16 - lanes).map_err(encode_error)?;
    Ok([ones, shifted])
}
