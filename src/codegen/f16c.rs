//! Conversions of f16 by the instructions of F16C, for scalars and for vectors of 16 bytes.
//!
//! CLIF cannot express them. Each is emitted as an instruction that kernels do not otherwise have, and
//! [`insert_conversions`] replaces it in Cranelift's code by a conversion of the same length. In contrast to
//! [`natives`](super::natives), this happens before the code is widened and also to code that is not.

use super::asm::decode_instructions;
use super::lanes::{Emitter, Lanes};
use cranelift_codegen::ir::types::{F32X4, I16X8, I32X4};
use cranelift_codegen::ir::{InstBuilder, Value};
use iced_x86::{Code, Encoder, Instruction, OpKind};

/// The distance by which the stand-in for a rounding rotates the bytes of a vector. Kernels rotate whole lanes only.
const ROTATION: u8 = 1;
/// The rounding mode of `vcvtps2ph`: to nearest, ties to even.
const NEAREST: u32 = 0;

impl Emitter<'_> {
    /// Whether [`widen_by_f16c`](Self::widen_by_f16c) and [`round_by_f16c`](Self::round_by_f16c) may be used in the current form.
    pub(super) fn has_f16c(&self) -> bool {
        self.f16c && (self.scalar || self.width == 16)
    }

    /// The f16 elements whose bits are in I32 lanes, as F32 lanes.
    pub(super) fn widen_by_f16c(&mut self, bits: &Lanes) -> Lanes {
        self.map1(bits, |e, x| {
            let halves = match e.scalar {
                true => e.b.ins().scalar_to_vector(I32X4, x),
                false => {
                    let packed = e.b.ins().unarrow(x, x);
                    e.bitcast(I32X4, packed)
                }
            };
            let wide = e.b.ins().uwiden_low(halves);
            let wide = e.bitcast(F32X4, wide);
            e.first_if_scalar(wide)
        })
    }

    /// F32 lanes rounded to the bits of f16 elements, in I32 lanes.
    pub(super) fn round_by_f16c(&mut self, x: &Lanes) -> Lanes {
        let mut rotated = [0; 16];
        for (to, from) in rotated.iter_mut().zip(ROTATION..) {
            *to = from;
        }
        self.map1(x, |e, x| {
            let x = match e.scalar {
                true => e.b.ins().scalar_to_vector(F32X4, x),
                false => x,
            };
            let halves = e.shuffle(x, x, rotated);
            if e.scalar {
                let halves = e.bitcast(I32X4, halves);
                let both = e.first_if_scalar(halves);
                return e.b.ins().band_imm_u(both, 0xffff);
            }
            let halves = e.bitcast(I16X8, halves);
            e.b.ins().uwiden_low(halves)
        })
    }

    /// The first lane of `v` in code for scalars, and `v` elsewhere.
    fn first_if_scalar(&mut self, v: Value) -> Value {
        match self.scalar {
            true => self.b.ins().extractlane(v, 0),
            false => v,
        }
    }
}

/// Replaces the stand-ins in the code of a function, which is followed by its constants.
pub(super) fn insert_conversions(code: &mut [u8]) -> Result<(), String> {
    for i in decode_instructions(code) {
        let Some(conversion) = conversion_for(&i) else {
            continue;
        };
        let mut encoder = Encoder::new(64);
        let failed = |e: iced_x86::IcedError| e.to_string();
        let length = encoder.encode(&conversion.map_err(failed)?, i.ip()).map_err(failed)?;
        let place = i.ip() as usize..i.next_ip() as usize;
        match code.get_mut(place) {
            Some(bytes) if length == bytes.len() => bytes.copy_from_slice(&encoder.take_buffer()),
            _ => return Err("a conversion of f16 has another length than its stand-in".into()),
        }
    }
    Ok(())
}

/// The conversion that `i` stands for.
fn conversion_for(i: &Instruction) -> Option<Result<Instruction, iced_x86::IcedError>> {
    let registers = (0..i.op_count()).all(|k| i.op_kind(k) != OpKind::Memory);
    match i.code() {
        Code::VEX_Vpmovzxdq_xmm_xmmm64 if registers => Some(Instruction::with2(
            Code::VEX_Vcvtph2ps_xmm_xmmm64,
            i.op0_register(),
            i.op1_register(),
        )),
        Code::VEX_Vpalignr_xmm_xmm_xmmm128_imm8
            if registers && i.immediate8() == ROTATION && i.op1_register() == i.op2_register() =>
        {
            Some(Instruction::with3(
                Code::VEX_Vcvtps2ph_xmmm64_xmm_imm8,
                i.op0_register(),
                i.op1_register(),
                NEAREST,
            ))
        }
        _ => None,
    }
}
