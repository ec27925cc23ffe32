//! Instructions whose wider form is not the same operation on every part: conversions between lanes of 32 and 64 bits,
//! and the instructions that stand for others ([`natives`](crate::codegen::natives)).
//!
//! A conversion to wider lanes reads the lower half of a vector, and a conversion to narrower lanes writes one. In
//! 128-bit code these halves have 64 bits; in the wider forms they are halves of the wide vector. `vpshufd` with order
//! 0xee moves the upper half down, `vpunpcklqdq` joins two lower halves, and `vpshufd` with order 0x88 gathers the low
//! parts of 64-bit lanes in the lower half.

use super::Reject;
use super::operands::{copy_memory_operand, encode_error, to_zmm};
use iced_x86::{Code, Instruction, OpKind, Register};

/// How a wider form uses its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// From the lower half of a vector to a vector.
    FromHalf,
    /// From a vector to the lower half of a vector.
    ToHalf,
    /// From a vector to the lower half of a vector, rounded to nearest: an immediate 0 follows the operands.
    Rounded,
    /// From a vector to a vector.
    Whole,
    /// Of two vectors.
    Binary,
    /// Moves the upper half down. An immediate 1 follows the operands.
    Upper,
    /// Joins two lower halves. An immediate 1 follows the operands.
    Join,
}

/// A wider form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Crossing {
    pub shape: Shape,
    /// The AVX2 form, if there is one.
    pub ymm: Option<Code>,
    /// The AVX-512 form.
    pub zmm: Code,
}

impl Crossing {
    /// The AVX-512 form of `i`, which is not [`Shape::Binary`]. `register` replaces its memory operand.
    pub(super) fn with_512_bits(self, i: &Instruction, register: Option<Register>) -> Result<Instruction, Reject> {
        let half = |r: Register| Register::YMM0 + r.number() as u32;
        let to = to_zmm(i.op0_register());
        let last = if self.shape == Shape::Join { 2 } else { 1 };
        let from = match i.op_kind(last) {
            OpKind::Register => Some(to_zmm(i.op_register(last))),
            _ => register,
        };
        let Some(from) = from else {
            let to = match self.shape {
                Shape::FromHalf => to,
                Shape::ToHalf if i.code() == Code::VEX_Vcvtpd2ps_xmm_xmmm128 => half(to),
                _ => return Err(Reject::Memory(i.code())),
            };
            return Instruction::with2(self.zmm, to, copy_memory_operand(i)).map_err(encode_error);
        };
        match self.shape {
            Shape::FromHalf => Instruction::with2(self.zmm, to, half(from)),
            Shape::ToHalf => Instruction::with2(self.zmm, half(to), from),
            Shape::Rounded => Instruction::with3(self.zmm, half(to), from, 0u32),
            Shape::Upper => Instruction::with3(self.zmm, half(to), from, 1u32),
            Shape::Join => Instruction::with4(self.zmm, to, to_zmm(i.op1_register()), half(from), 1u32),
            Shape::Whole | Shape::Binary => Instruction::with2(self.zmm, to, from),
        }
        .map_err(encode_error)
    }
}

/// The order of the shuffle that gathers the low parts of 64-bit lanes.
pub(super) const LOW_PARTS: u8 = 0x88;
const UPPER_HALF: u8 = 0xee;

/// The form of an instruction of this kind.
pub(super) fn match_crossing(i: &Instruction) -> Option<Crossing> {
    use Code::*;
    use Shape::*;
    let order = |o: u8| i.immediate8() == o;
    let (shape, ymm, zmm) = match i.code() {
        VEX_Vcvtps2pd_xmm_xmmm64 => (
            FromHalf,
            VEX_Vcvtps2pd_ymm_xmmm128,
            EVEX_Vcvtps2pd_zmm_k1z_ymmm256b32_sae,
        ),
        VEX_Vcvtdq2pd_xmm_xmmm64 => (
            FromHalf,
            VEX_Vcvtdq2pd_ymm_xmmm128,
            EVEX_Vcvtdq2pd_zmm_k1z_ymmm256b32_er,
        ),
        VEX_Vpmovsxdq_xmm_xmmm64 => (FromHalf, VEX_Vpmovsxdq_ymm_xmmm128, EVEX_Vpmovsxdq_zmm_k1z_ymmm256),
        VEX_Vcvtpd2ps_xmm_xmmm128 => (ToHalf, VEX_Vcvtpd2ps_xmm_ymmm256, EVEX_Vcvtpd2ps_ymm_k1z_zmmm512b64_er),
        VEX_Vpshufd_xmm_xmmm128_imm8 if order(UPPER_HALF) => (
            Upper,
            VEX_Vextracti128_xmmm128_ymm_imm8,
            EVEX_Vextracti64x4_ymmm256_k1z_zmm_imm8,
        ),
        VEX_Vpshufd_xmm_xmmm128_imm8 if order(LOW_PARTS) => {
            (ToHalf, VEX_Vpermq_ymm_ymmm256_imm8, EVEX_Vpmovqd_ymmm256_k1z_zmm)
        }
        VEX_Vpunpcklqdq_xmm_xmm_xmmm128 => (
            Join,
            VEX_Vinserti128_ymm_ymm_xmmm128_imm8,
            EVEX_Vinserti64x4_zmm_k1z_zmm_ymmm256_imm8,
        ),
        _ => return match_native(i),
    };
    Some(Crossing {
        shape,
        ymm: Some(ymm),
        zmm,
    })
}

/// The form of an instruction that stands for an operation of [`natives`](crate::codegen::natives).
fn match_native(i: &Instruction) -> Option<Crossing> {
    use Code::*;
    use Shape::*;
    let (shape, zmm) = match i.code() {
        VEX_Vpsubusw_xmm_xmm_xmmm128 => (Binary, EVEX_Vscalefps_zmm_k1z_zmm_zmmm512b32_er),
        VEX_Vpsubsw_xmm_xmm_xmmm128 => (Binary, EVEX_Vscalefpd_zmm_k1z_zmm_zmmm512b64_er),
        VEX_Vpsubw_xmm_xmm_xmmm128 => (Binary, EVEX_Vpsllvd_zmm_k1z_zmm_zmmm512b32),
        VEX_Vpsubsb_xmm_xmm_xmmm128 => (Binary, EVEX_Vpsravd_zmm_k1z_zmm_zmmm512b32),
        VEX_Vpsubusb_xmm_xmm_xmmm128 => (Binary, EVEX_Vpsllvq_zmm_k1z_zmm_zmmm512b64),
        VEX_Vpsubb_xmm_xmm_xmmm128 => (Binary, EVEX_Vpsravq_zmm_k1z_zmm_zmmm512b64),
        VEX_Vpaddsb_xmm_xmm_xmmm128 => (Whole, EVEX_Vcvtqq2pd_zmm_k1z_zmmm512b64_er),
        VEX_Vphaddw_xmm_xmm_xmmm128 => (Whole, EVEX_Vcvtps2dq_zmm_k1z_zmmm512b32_er),
        VEX_Vpaddusb_xmm_xmm_xmmm128 => (Whole, EVEX_Vcvttpd2qq_zmm_k1z_zmmm512b64_sae),
        VEX_Vpaddb_xmm_xmm_xmmm128 => (Whole, EVEX_Vcvtpd2qq_zmm_k1z_zmmm512b64_er),
        VEX_Vpavgb_xmm_xmm_xmmm128 => (ToHalf, EVEX_Vcvtqq2ps_ymm_k1z_zmmm512b64_er),
        VEX_Vpavgw_xmm_xmm_xmmm128 => (ToHalf, EVEX_Vcvtneps2bf16_ymm_k1z_zmmm512b32),
        VEX_Vpaddw_xmm_xmm_xmmm128 => (FromHalf, EVEX_Vpmovzxwd_zmm_k1z_ymmm256),
        VEX_Vpmullw_xmm_xmm_xmmm128 => (ToHalf, EVEX_Vpmovdw_ymmm256_k1z_zmm),
        VEX_Vpacksswb_xmm_xmm_xmmm128 => (FromHalf, EVEX_Vcvtph2ps_zmm_k1z_ymmm256_sae),
        VEX_Vpackuswb_xmm_xmm_xmmm128 => (Rounded, EVEX_Vcvtps2ph_ymmm256_k1z_zmm_imm8_sae),
        _ => return None,
    };
    // What stands for an operation on one vector names it twice.
    let same = i.op_kind(2) == OpKind::Register && i.op_register(1) == i.op_register(2);
    (shape == Binary || same).then_some(Crossing { shape, ymm: None, zmm })
}
