//! Operands and codes of wide instructions.

use super::Reject;
use super::flow::OperandPlace;
use iced_x86::{Code, Instruction, MemoryOperand, OpKind, Register};

/// The 64-byte register of a vector register; other registers as they are.
pub(super) fn to_zmm(r: Register) -> Register {
    if r.is_vector_register() {
        Register::ZMM0 + r.number() as u32
    } else {
        r
    }
}

/// The encoder's complaint as a reason.
pub(super) fn encode_error(e: iced_x86::IcedError) -> Reject {
    Reject::Encode(e.to_string())
}

/// The memory operand of an instruction.
pub(super) fn copy_memory_operand(i: &Instruction) -> MemoryOperand {
    MemoryOperand::new(
        i.memory_base(),
        i.memory_index(),
        i.memory_index_scale(),
        i.memory_displacement64() as i64,
        i.memory_displ_size(),
        false,
        Register::None,
    )
}

/// The store that a store of one narrow element encodes: of every lane's low bits or, for the second element of 16 bits, of
/// the lower half.
pub(super) fn narrow_store(i: &Instruction) -> Option<Result<Instruction, Reject>> {
    let to = copy_memory_operand(i);
    let from = i.op1_register();
    let store = match (i.code(), i.immediate8()) {
        (Code::VEX_Vpextrw_r32m16_xmm_imm8, 0) => {
            Instruction::with2(Code::EVEX_Vpmovdw_ymmm256_k1z_zmm, to, to_zmm(from))
        }
        (Code::VEX_Vpextrb_r32m8_xmm_imm8, 0) => {
            Instruction::with2(Code::EVEX_Vpmovdb_xmmm128_k1z_zmm, to, to_zmm(from))
        }
        (Code::VEX_Vpextrw_r32m16_xmm_imm8, 1) => {
            let half = Register::YMM0 + from.number() as u32;
            Instruction::with2(Code::VEX_Vmovups_ymmm256_ymm, to, half)
        }
        (Code::VEX_Vpextrw_r32m16_xmm_imm8 | Code::VEX_Vpextrb_r32m8_xmm_imm8, _) => {
            return Some(Err(Reject::Code(i.code())));
        }
        _ => return None,
    };
    Some(store.map_err(encode_error))
}

/// Whether a 64-byte instruction moves a vector from or to memory.
pub(super) fn is_move(c: Code) -> bool {
    matches!(
        c,
        Code::EVEX_Vmovups_zmm_k1z_zmmm512 | Code::EVEX_Vmovups_zmmm512_k1z_zmm
    )
}

/// Whether a 64-byte instruction repeats a scalar.
pub(super) fn is_broadcast(c: Code) -> bool {
    use Code::*;
    matches!(
        c,
        EVEX_Vbroadcastss_zmm_k1z_xmmm32
            | EVEX_Vbroadcastsd_zmm_k1z_xmmm64
            | EVEX_Vpbroadcastd_zmm_k1z_xmmm32
            | EVEX_Vpbroadcastq_zmm_k1z_xmmm64
    )
}

/// Whether an instruction loads one part of the vector in the slot. A broadcast from there repeats a scalar, which all parts need.
pub(super) fn loads_part(i: &Instruction, place: Option<OperandPlace>) -> bool {
    use Code::*;
    let repeats = matches!(
        i.code(),
        VEX_Vbroadcastss_xmm_m32
            | VEX_Vmovddup_xmm_xmmm64
            | VEX_Vpbroadcastb_xmm_xmmm8
            | VEX_Vpbroadcastw_xmm_xmmm16
            | VEX_Vpbroadcastd_xmm_xmmm32
            | VEX_Vpbroadcastq_xmm_xmmm64
    );
    place == Some(OperandPlace::Slot) && i.op_kind(0) != OpKind::Memory && !repeats
}
