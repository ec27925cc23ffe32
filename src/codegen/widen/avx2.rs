//! Rewriting for AVX2: the same instructions on 256 bits. Masks stay vectors and constants stay in memory. Spilled
//! vectors are rejected.

use super::codes::{
    Exchange, is_scalar, match_exchange, match_splat, merges_rows, swaps_lanes, wider, wider_blend, wider_comparison,
};
use super::flow::{Flow, OperandPlace};
use super::{CodeOutput, Reject, extends_register, has_vectors, is_return, memory_operand};
use iced_x86::{Code, Instruction, OpKind, Register};

/// Rewrites the function's instructions for 32-byte vectors.
pub(super) fn rewrite(flow: &Flow) -> Result<Vec<Instruction>, Reject> {
    let mut out = CodeOutput::new();
    for (n, i) in flow.ins.iter().enumerate() {
        out.set_label(i.ip());
        if is_return(i) {
            out.push(Instruction::with(Code::VEX_Vzeroupper));
        }
        if !has_vectors(i) {
            out.push(*i);
            continue;
        }
        let place = memory_operand(i).map(|_| flow.operand_place(n)).transpose()?;
        if matches!(place, Some(OperandPlace::Spill(_))) {
            return Err(Reject::Spills(1));
        }
        let narrow = place == Some(OperandPlace::Slot) && i.op_kind(0) != OpKind::Memory;
        out.push(if narrow || is_scalar(i.mnemonic()) {
            *i
        } else {
            widen_inst(i)?
        });
    }
    Ok(out.ins)
}

fn widen_inst(i: &Instruction) -> Result<Instruction, Reject> {
    if extends_register(i) {
        return Err(Reject::Code(i.code()));
    }
    if let Some(w) = match_splat(i) {
        let to = Register::YMM0 + i.op0_register().number() as u32;
        return Instruction::with2(w.ymm, to, i.op1_register()).map_err(|e| Reject::Encode(e.to_string()));
    }
    if match_exchange(i) == Some(Exchange::Halves) {
        let (to, from) = (
            Register::YMM0 + i.op0_register().number() as u32,
            Register::YMM0 + i.op1_register().number() as u32,
        );
        let j = Instruction::with4(Code::VEX_Vperm2f128_ymm_ymm_ymmm256_imm8, to, from, from, 1u32);
        return j.map_err(|e| Reject::Encode(e.to_string()));
    }
    let swap = swaps_lanes(i).then_some(Code::VEX_Vpshufd_ymm_ymmm256_imm8);
    let merge = merges_rows(i).then_some(Code::VEX_Vshufps_ymm_ymm_ymmm256_imm8);
    let code = swap
        .or(merge)
        .or_else(|| wider(i.code()).map(|w| w.ymm))
        .or_else(|| wider_comparison(i.code()).map(|c| c.0.ymm))
        .or_else(|| wider_blend(i.code()))
        .ok_or(Reject::Code(i.code()))?;
    let code = match code {
        // A broadcast has two encodings: from memory and from a register.
        Code::VEX_Vbroadcastsd_ymm_m64 if memory_operand(i).is_none() => Code::VEX_Vbroadcastsd_ymm_xmm,
        c => c,
    };
    let mut j = *i;
    j.set_code(code);
    let broadcast = is_broadcast(code);
    for k in 0..i.op_count() {
        if i.op_kind(k) == OpKind::Register && i.op_register(k).is_xmm() && !(broadcast && k == 1) {
            j.set_op_register(k, Register::YMM0 + i.op_register(k).number() as u32);
        }
    }
    Ok(j)
}

fn is_broadcast(c: Code) -> bool {
    use Code::*;
    matches!(
        c,
        VEX_Vbroadcastss_ymm_xmm
            | VEX_Vbroadcastss_ymm_m32
            | VEX_Vbroadcastsd_ymm_xmm
            | VEX_Vbroadcastsd_ymm_m64
            | VEX_Vpbroadcastd_ymm_xmmm32
            | VEX_Vpbroadcastq_ymm_xmmm64
    )
}
