//! Rewriting for AVX2: the same instructions on 256 bits. Masks stay vectors and constants stay in memory. Spilled
//! vectors are rejected.

use super::codes::{
    Exchange, clears_register, is_scalar, match_exchange, match_splat, merges_rows, swaps_lanes, takes_first_lane,
    wider, wider_blend, wider_comparison, wider_packed,
};
use super::crossing::{Crossing, LOW_PARTS, Shape, match_crossing};
use super::flow::{Flow, OperandPlace};
use super::operands::loads_part;
use super::{CodeOutput, Reject, extends_register, has_vectors, is_return, memory_operand};
use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};

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
        if loads_part(i, place) || is_scalar(i.mnemonic()) || takes_first_lane(i) {
            out.push(*i);
        } else if let Some(code) = wider_packed(i.code()) {
            out.push(with_ymm(i, code));
        } else if let Some(c) = match_crossing(i).filter(|_| match_exchange(i).is_none()) {
            if c.shape == Shape::ToHalf && i.mnemonic() == Mnemonic::Vpshufd {
                // Within each part first.
                let gather = Instruction::with3(
                    Code::VEX_Vpshufd_ymm_ymmm256_imm8,
                    to_ymm(i.op0_register()),
                    to_ymm(i.op1_register()),
                    LOW_PARTS as u32,
                );
                out.push(gather.map_err(encode_error)?);
            }
            out.push(widen_crossing(i, c)?);
        } else {
            out.push(widen_inst(i)?);
        }
    }
    Ok(out.ins)
}

fn to_ymm(r: Register) -> Register {
    Register::YMM0 + r.number() as u32
}

fn encode_error(e: iced_x86::IcedError) -> Reject {
    Reject::Encode(e.to_string())
}

/// The wider form of an instruction that relates vectors and halves of vectors.
fn widen_crossing(i: &Instruction, c: Crossing) -> Result<Instruction, Reject> {
    let code = c.ymm.ok_or(Reject::Code(i.code()))?;
    if memory_operand(i).is_some() {
        // Half a vector, or a vector, of data or of a constant.
        let reads = [
            Code::VEX_Vcvtps2pd_ymm_xmmm128,
            Code::VEX_Vcvtdq2pd_ymm_xmmm128,
            Code::VEX_Vpmovsxdq_ymm_xmmm128,
        ];
        let to = match code {
            Code::VEX_Vcvtpd2ps_xmm_ymmm256 => i.op0_register(),
            _ if reads.contains(&code) => to_ymm(i.op0_register()),
            _ => return Err(Reject::Memory(i.code())),
        };
        let mut j = *i;
        j.set_code(code);
        j.set_op0_register(to);
        return Ok(j);
    }
    let half = |r: Register| Register::XMM0 + r.number() as u32;
    let (to, from) = (i.op0_register(), i.op1_register());
    match c.shape {
        Shape::FromHalf => Instruction::with2(code, to_ymm(to), half(from)),
        // The second of two steps.
        Shape::ToHalf if i.mnemonic() == Mnemonic::Vpshufd => {
            Instruction::with3(code, to_ymm(to), to_ymm(to), 0b00_00_10_00u32)
        }
        Shape::ToHalf => Instruction::with2(code, half(to), to_ymm(from)),
        Shape::Upper => Instruction::with3(code, half(to), to_ymm(from), 1u32),
        Shape::Join => Instruction::with4(code, to_ymm(to), to_ymm(from), half(i.op2_register()), 1u32),
        Shape::Rounded | Shape::Whole | Shape::Binary => return Err(Reject::Code(i.code())),
    }
    .map_err(encode_error)
}

fn widen_inst(i: &Instruction) -> Result<Instruction, Reject> {
    if extends_register(i) {
        return Err(Reject::Code(i.code()));
    }
    if clears_register(i) {
        let r = to_ymm(i.op0_register());
        return Instruction::with3(Code::VEX_Vpxor_ymm_ymm_ymmm256, r, r, r).map_err(encode_error);
    }
    if let Some(w) = match_splat(i) {
        return Instruction::with2(w.ymm, to_ymm(i.op0_register()), i.op1_register()).map_err(encode_error);
    }
    if match_exchange(i) == Some(Exchange::Halves) {
        let (to, from) = (to_ymm(i.op0_register()), to_ymm(i.op1_register()));
        let code = Code::VEX_Vperm2f128_ymm_ymm_ymmm256_imm8;
        return Instruction::with4(code, to, from, from, 1u32).map_err(encode_error);
    }
    Ok(with_ymm(i, wider_code(i).ok_or(Reject::Code(i.code()))?))
}

/// The instruction with opcode `code` and wide registers.
fn with_ymm(i: &Instruction, code: Code) -> Instruction {
    let mut j = *i;
    j.set_code(code);
    let broadcast = is_broadcast(code);
    for k in 0..i.op_count() {
        if i.op_kind(k) == OpKind::Register && i.op_register(k).is_xmm() && !(broadcast && k == 1) {
            j.set_op_register(k, Register::YMM0 + i.op_register(k).number() as u32);
        }
    }
    j
}

/// The 256-bit form of an instruction that differs from it only in its code and the width of its operands.
fn wider_code(i: &Instruction) -> Option<Code> {
    let code = match i {
        i if swaps_lanes(i) => Code::VEX_Vpshufd_ymm_ymmm256_imm8,
        i if merges_rows(i) => Code::VEX_Vshufps_ymm_ymm_ymmm256_imm8,
        i if i.code() == Code::VEX_Vptest_xmm_xmmm128 => Code::VEX_Vptest_ymm_ymmm256,
        i => wider(i.code())
            .map(|w| w.ymm)
            .or_else(|| wider_comparison(i.code()).map(|c| c.0.ymm))
            .or_else(|| wider_blend(i.code()))?,
    };
    Some(match code {
        // A broadcast has two encodings: from memory and from a register.
        Code::VEX_Vbroadcastsd_ymm_m64 if memory_operand(i).is_none() => Code::VEX_Vbroadcastsd_ymm_xmm,
        c => c,
    })
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
