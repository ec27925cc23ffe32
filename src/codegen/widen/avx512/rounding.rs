//! Exact conversions from f32 to bf16.
//!
//! `vcvtneps2bf16` rounds to nearest even and keeps NaN, but takes denormal numbers for zero. It rounds them correctly after the exponent
//! of the smallest normal number is set in them, which adds that number. Subtracting it from the bits of the result gives theirs.

use super::Avx512Rewrite;
use crate::codegen::widen::Reject;
use crate::codegen::widen::flow::OperandPlace;
use crate::codegen::widen::operands::{encode_error, to_zmm};
use iced_x86::{Code, Instruction, Register};

/// The register that the conversions need besides their operands.
const WORK: Register = Register::ZMM16;
/// Denormal numbers, for `vfpclassps`.
const DENORMAL: u32 = 0x20;
/// The bits of a bf16 below its exponent.
const FRACTION_BITS: u32 = 7;

/// Whether an instruction stands for such a conversion.
pub(super) fn needs_working_register(i: &Instruction) -> bool {
    i.code() == Code::VEX_Vpcmpgtb_xmm_xmm_xmmm128
}

/// The conversions of a function whose operands have denormal elements, to be placed after its code.
#[derive(Default)]
pub(super) struct RareConversions {
    code: Vec<Instruction>,
    /// The number of labels that were taken. They are addresses before those of the function.
    labels: u64,
}

impl RareConversions {
    fn take_label(&mut self) -> u64 {
        self.labels += 1;
        self.labels
    }

    /// Adds a conversion of `x` to `to`, with these labels before and after it. `lift` sets the exponents of the denormal elements, which
    /// its mask selects, in the working register.
    fn push_conversion(
        &mut self,
        [before, after]: [u64; 2],
        lift: Instruction,
        to: Register,
        x: Register,
    ) -> Result<(), Reject> {
        use Code::*;
        let (first, work) = (self.code.len(), ymm(WORK));
        let all = [
            Instruction::with2(EVEX_Vmovaps_zmm_k1z_zmmm512, WORK, x),
            Ok(lift),
            Instruction::with2(EVEX_Vcvtneps2bf16_ymm_k1z_zmmm512b32, to, WORK),
            // All ones, shifted, are minus the smallest normal number.
            Instruction::with2(EVEX_Vpmovm2w_ymm_kr, work, lift.op_mask()),
            Instruction::with3(EVEX_Vpsllw_ymm_k1z_ymmm256_imm8, work, work, FRACTION_BITS),
            Instruction::with3(EVEX_Vpaddw_ymm_k1z_ymm_ymmm256, to, to, work),
            Instruction::with_branch(Jmp_rel32_64, after),
        ];
        for i in all {
            self.code.push(i.map_err(encode_error)?);
        }
        self.code[first].set_ip(before);
        Ok(())
    }

    /// The code.
    pub(super) fn finish(self) -> Vec<Instruction> {
        self.code
    }
}

impl Avx512Rewrite<'_> {
    /// Emits the conversion that instruction `n` stands for. Denormal elements, which are rare, are looked for while the elements are
    /// rounded, so that the results need not wait.
    pub(super) fn round_to_bf16(
        &mut self,
        n: usize,
        i: &Instruction,
        place: Option<OperandPlace>,
    ) -> Result<(), Reject> {
        use Code::*;
        let k = self.take_k(self.flow.live_out[n])?;
        let (to, x) = (ymm(i.op0_register()), to_zmm(i.op1_register()));
        let [rare, done] = [self.rare.take_label(), self.rare.take_label()];
        let usual = [
            Instruction::with3(EVEX_Vfpclassps_kr_k1_zmmm512b32_imm8, k, x, DENORMAL),
            Instruction::with2(VEX_Kortestw_kr_kr, k, k),
            Instruction::with_branch(Jne_rel32_64, rare),
            Instruction::with2(EVEX_Vcvtneps2bf16_ymm_k1z_zmmm512b32, to, x),
        ];
        for i in usual {
            self.out.push(i.map_err(encode_error)?);
        }
        let mut after = Instruction::with(Nopd);
        after.set_ip(done);
        self.out.ins.push(after);
        let mut lift = self.widen_operands(i, EVEX_Vpord_zmm_k1z_zmm_zmmm512b32, place);
        lift.set_op0_register(WORK);
        lift.set_op_mask(k);
        lift.set_ip(0);
        self.rare.push_conversion([rare, done], lift, to, x)
    }
}

/// The lower half of a vector.
fn ymm(r: Register) -> Register {
    Register::YMM0 + r.number() as u32
}
