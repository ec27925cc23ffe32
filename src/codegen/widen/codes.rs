//! The whitelist: 128-bit instructions and their forms on wider vectors.
//!
//! Every instruction here computes each 128-bit part of its result from the same part of its operands (broadcasts: from
//! one scalar). Its wider form does the same for every part of the wider vector. A load that extends narrow elements
//! reads correspondingly fewer bytes per part, from addresses correspondingly closer together.

use iced_x86::{Code, Instruction, Mnemonic, OpKind};

/// An instruction's forms for 32-byte and 64-byte vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wider {
    /// The AVX2 form.
    pub ymm: Code,
    /// The AVX-512F form.
    pub zmm: Code,
}

macro_rules! table {
    ($($from:ident => $ymm:ident, $zmm:ident;)*) => {
        /// The wider forms of a lane-wise instruction; `None` if it is not on the list.
        pub(super) fn wider(code: Code) -> Option<Wider> {
            match code {
                $(Code::$from => Some(Wider { ymm: Code::$ymm, zmm: Code::$zmm }),)*
                _ => None,
            }
        }
    };
}

table! {
    VEX_Vaddps_xmm_xmm_xmmm128 => VEX_Vaddps_ymm_ymm_ymmm256, EVEX_Vaddps_zmm_k1z_zmm_zmmm512b32_er;
    VEX_Vaddpd_xmm_xmm_xmmm128 => VEX_Vaddpd_ymm_ymm_ymmm256, EVEX_Vaddpd_zmm_k1z_zmm_zmmm512b64_er;
    VEX_Vsubps_xmm_xmm_xmmm128 => VEX_Vsubps_ymm_ymm_ymmm256, EVEX_Vsubps_zmm_k1z_zmm_zmmm512b32_er;
    VEX_Vsubpd_xmm_xmm_xmmm128 => VEX_Vsubpd_ymm_ymm_ymmm256, EVEX_Vsubpd_zmm_k1z_zmm_zmmm512b64_er;
    VEX_Vmulps_xmm_xmm_xmmm128 => VEX_Vmulps_ymm_ymm_ymmm256, EVEX_Vmulps_zmm_k1z_zmm_zmmm512b32_er;
    VEX_Vmulpd_xmm_xmm_xmmm128 => VEX_Vmulpd_ymm_ymm_ymmm256, EVEX_Vmulpd_zmm_k1z_zmm_zmmm512b64_er;
    VEX_Vdivps_xmm_xmm_xmmm128 => VEX_Vdivps_ymm_ymm_ymmm256, EVEX_Vdivps_zmm_k1z_zmm_zmmm512b32_er;
    VEX_Vdivpd_xmm_xmm_xmmm128 => VEX_Vdivpd_ymm_ymm_ymmm256, EVEX_Vdivpd_zmm_k1z_zmm_zmmm512b64_er;
    VEX_Vmaxps_xmm_xmm_xmmm128 => VEX_Vmaxps_ymm_ymm_ymmm256, EVEX_Vmaxps_zmm_k1z_zmm_zmmm512b32_sae;
    VEX_Vmaxpd_xmm_xmm_xmmm128 => VEX_Vmaxpd_ymm_ymm_ymmm256, EVEX_Vmaxpd_zmm_k1z_zmm_zmmm512b64_sae;
    VEX_Vminps_xmm_xmm_xmmm128 => VEX_Vminps_ymm_ymm_ymmm256, EVEX_Vminps_zmm_k1z_zmm_zmmm512b32_sae;
    VEX_Vminpd_xmm_xmm_xmmm128 => VEX_Vminpd_ymm_ymm_ymmm256, EVEX_Vminpd_zmm_k1z_zmm_zmmm512b64_sae;
    VEX_Vsqrtps_xmm_xmmm128 => VEX_Vsqrtps_ymm_ymmm256, EVEX_Vsqrtps_zmm_k1z_zmmm512b32_er;
    VEX_Vroundps_xmm_xmmm128_imm8 => VEX_Vroundps_ymm_ymmm256_imm8, EVEX_Vrndscaleps_zmm_k1z_zmmm512b32_imm8_sae;
    VEX_Vfmadd213ps_xmm_xmm_xmmm128 => VEX_Vfmadd213ps_ymm_ymm_ymmm256, EVEX_Vfmadd213ps_zmm_k1z_zmm_zmmm512b32_er;
    VEX_Vfnmadd213ps_xmm_xmm_xmmm128 => VEX_Vfnmadd213ps_ymm_ymm_ymmm256, EVEX_Vfnmadd213ps_zmm_k1z_zmm_zmmm512b32_er;
    VEX_Vfmsub213ps_xmm_xmm_xmmm128 => VEX_Vfmsub213ps_ymm_ymm_ymmm256, EVEX_Vfmsub213ps_zmm_k1z_zmm_zmmm512b32_er;
    VEX_Vfnmsub213ps_xmm_xmm_xmmm128 => VEX_Vfnmsub213ps_ymm_ymm_ymmm256, EVEX_Vfnmsub213ps_zmm_k1z_zmm_zmmm512b32_er;
    VEX_Vfmadd132ps_xmm_xmm_xmmm128 => VEX_Vfmadd132ps_ymm_ymm_ymmm256, EVEX_Vfmadd132ps_zmm_k1z_zmm_zmmm512b32_er;
    VEX_Vfnmadd132ps_xmm_xmm_xmmm128 => VEX_Vfnmadd132ps_ymm_ymm_ymmm256, EVEX_Vfnmadd132ps_zmm_k1z_zmm_zmmm512b32_er;
    VEX_Vfmsub132ps_xmm_xmm_xmmm128 => VEX_Vfmsub132ps_ymm_ymm_ymmm256, EVEX_Vfmsub132ps_zmm_k1z_zmm_zmmm512b32_er;
    VEX_Vfnmsub132ps_xmm_xmm_xmmm128 => VEX_Vfnmsub132ps_ymm_ymm_ymmm256, EVEX_Vfnmsub132ps_zmm_k1z_zmm_zmmm512b32_er;
    VEX_Vfmadd231ps_xmm_xmm_xmmm128 => VEX_Vfmadd231ps_ymm_ymm_ymmm256, EVEX_Vfmadd231ps_zmm_k1z_zmm_zmmm512b32_er;
    VEX_Vfnmadd231ps_xmm_xmm_xmmm128 => VEX_Vfnmadd231ps_ymm_ymm_ymmm256, EVEX_Vfnmadd231ps_zmm_k1z_zmm_zmmm512b32_er;
    VEX_Vfmsub231ps_xmm_xmm_xmmm128 => VEX_Vfmsub231ps_ymm_ymm_ymmm256, EVEX_Vfmsub231ps_zmm_k1z_zmm_zmmm512b32_er;
    VEX_Vfnmsub231ps_xmm_xmm_xmmm128 => VEX_Vfnmsub231ps_ymm_ymm_ymmm256, EVEX_Vfnmsub231ps_zmm_k1z_zmm_zmmm512b32_er;
    VEX_Vandps_xmm_xmm_xmmm128 => VEX_Vandps_ymm_ymm_ymmm256, EVEX_Vpandd_zmm_k1z_zmm_zmmm512b32;
    VEX_Vandnps_xmm_xmm_xmmm128 => VEX_Vandnps_ymm_ymm_ymmm256, EVEX_Vpandnd_zmm_k1z_zmm_zmmm512b32;
    VEX_Vorps_xmm_xmm_xmmm128 => VEX_Vorps_ymm_ymm_ymmm256, EVEX_Vpord_zmm_k1z_zmm_zmmm512b32;
    VEX_Vxorps_xmm_xmm_xmmm128 => VEX_Vxorps_ymm_ymm_ymmm256, EVEX_Vpxord_zmm_k1z_zmm_zmmm512b32;
    VEX_Vsqrtpd_xmm_xmmm128 => VEX_Vsqrtpd_ymm_ymmm256, EVEX_Vsqrtpd_zmm_k1z_zmmm512b64_er;
    VEX_Vroundpd_xmm_xmmm128_imm8 => VEX_Vroundpd_ymm_ymmm256_imm8, EVEX_Vrndscalepd_zmm_k1z_zmmm512b64_imm8_sae;
    VEX_Vfmadd213pd_xmm_xmm_xmmm128 => VEX_Vfmadd213pd_ymm_ymm_ymmm256, EVEX_Vfmadd213pd_zmm_k1z_zmm_zmmm512b64_er;
    VEX_Vfnmadd213pd_xmm_xmm_xmmm128 => VEX_Vfnmadd213pd_ymm_ymm_ymmm256, EVEX_Vfnmadd213pd_zmm_k1z_zmm_zmmm512b64_er;
    VEX_Vfmsub213pd_xmm_xmm_xmmm128 => VEX_Vfmsub213pd_ymm_ymm_ymmm256, EVEX_Vfmsub213pd_zmm_k1z_zmm_zmmm512b64_er;
    VEX_Vfnmsub213pd_xmm_xmm_xmmm128 => VEX_Vfnmsub213pd_ymm_ymm_ymmm256, EVEX_Vfnmsub213pd_zmm_k1z_zmm_zmmm512b64_er;
    VEX_Vfmadd132pd_xmm_xmm_xmmm128 => VEX_Vfmadd132pd_ymm_ymm_ymmm256, EVEX_Vfmadd132pd_zmm_k1z_zmm_zmmm512b64_er;
    VEX_Vfnmadd132pd_xmm_xmm_xmmm128 => VEX_Vfnmadd132pd_ymm_ymm_ymmm256, EVEX_Vfnmadd132pd_zmm_k1z_zmm_zmmm512b64_er;
    VEX_Vfmsub132pd_xmm_xmm_xmmm128 => VEX_Vfmsub132pd_ymm_ymm_ymmm256, EVEX_Vfmsub132pd_zmm_k1z_zmm_zmmm512b64_er;
    VEX_Vfnmsub132pd_xmm_xmm_xmmm128 => VEX_Vfnmsub132pd_ymm_ymm_ymmm256, EVEX_Vfnmsub132pd_zmm_k1z_zmm_zmmm512b64_er;
    VEX_Vfmadd231pd_xmm_xmm_xmmm128 => VEX_Vfmadd231pd_ymm_ymm_ymmm256, EVEX_Vfmadd231pd_zmm_k1z_zmm_zmmm512b64_er;
    VEX_Vfnmadd231pd_xmm_xmm_xmmm128 => VEX_Vfnmadd231pd_ymm_ymm_ymmm256, EVEX_Vfnmadd231pd_zmm_k1z_zmm_zmmm512b64_er;
    VEX_Vfmsub231pd_xmm_xmm_xmmm128 => VEX_Vfmsub231pd_ymm_ymm_ymmm256, EVEX_Vfmsub231pd_zmm_k1z_zmm_zmmm512b64_er;
    VEX_Vfnmsub231pd_xmm_xmm_xmmm128 => VEX_Vfnmsub231pd_ymm_ymm_ymmm256, EVEX_Vfnmsub231pd_zmm_k1z_zmm_zmmm512b64_er;
    VEX_Vandpd_xmm_xmm_xmmm128 => VEX_Vandpd_ymm_ymm_ymmm256, EVEX_Vpandq_zmm_k1z_zmm_zmmm512b64;
    VEX_Vandnpd_xmm_xmm_xmmm128 => VEX_Vandnpd_ymm_ymm_ymmm256, EVEX_Vpandnq_zmm_k1z_zmm_zmmm512b64;
    VEX_Vorpd_xmm_xmm_xmmm128 => VEX_Vorpd_ymm_ymm_ymmm256, EVEX_Vporq_zmm_k1z_zmm_zmmm512b64;
    VEX_Vxorpd_xmm_xmm_xmmm128 => VEX_Vxorpd_ymm_ymm_ymmm256, EVEX_Vpxorq_zmm_k1z_zmm_zmmm512b64;
    VEX_Vpand_xmm_xmm_xmmm128 => VEX_Vpand_ymm_ymm_ymmm256, EVEX_Vpandd_zmm_k1z_zmm_zmmm512b32;
    VEX_Vpandn_xmm_xmm_xmmm128 => VEX_Vpandn_ymm_ymm_ymmm256, EVEX_Vpandnd_zmm_k1z_zmm_zmmm512b32;
    VEX_Vpor_xmm_xmm_xmmm128 => VEX_Vpor_ymm_ymm_ymmm256, EVEX_Vpord_zmm_k1z_zmm_zmmm512b32;
    VEX_Vpxor_xmm_xmm_xmmm128 => VEX_Vpxor_ymm_ymm_ymmm256, EVEX_Vpxord_zmm_k1z_zmm_zmmm512b32;
    VEX_Vpaddd_xmm_xmm_xmmm128 => VEX_Vpaddd_ymm_ymm_ymmm256, EVEX_Vpaddd_zmm_k1z_zmm_zmmm512b32;
    VEX_Vpsubd_xmm_xmm_xmmm128 => VEX_Vpsubd_ymm_ymm_ymmm256, EVEX_Vpsubd_zmm_k1z_zmm_zmmm512b32;
    VEX_Vpmulld_xmm_xmm_xmmm128 => VEX_Vpmulld_ymm_ymm_ymmm256, EVEX_Vpmulld_zmm_k1z_zmm_zmmm512b32;
    VEX_Vpmaxsd_xmm_xmm_xmmm128 => VEX_Vpmaxsd_ymm_ymm_ymmm256, EVEX_Vpmaxsd_zmm_k1z_zmm_zmmm512b32;
    VEX_Vpminsd_xmm_xmm_xmmm128 => VEX_Vpminsd_ymm_ymm_ymmm256, EVEX_Vpminsd_zmm_k1z_zmm_zmmm512b32;
    VEX_Vpaddq_xmm_xmm_xmmm128 => VEX_Vpaddq_ymm_ymm_ymmm256, EVEX_Vpaddq_zmm_k1z_zmm_zmmm512b64;
    VEX_Vpsubq_xmm_xmm_xmmm128 => VEX_Vpsubq_ymm_ymm_ymmm256, EVEX_Vpsubq_zmm_k1z_zmm_zmmm512b64;
    VEX_Vpmuludq_xmm_xmm_xmmm128 => VEX_Vpmuludq_ymm_ymm_ymmm256, EVEX_Vpmuludq_zmm_k1z_zmm_zmmm512b64;
    VEX_Vpabsd_xmm_xmmm128 => VEX_Vpabsd_ymm_ymmm256, EVEX_Vpabsd_zmm_k1z_zmmm512b32;
    VEX_Vpslld_xmm_xmm_imm8 => VEX_Vpslld_ymm_ymm_imm8, EVEX_Vpslld_zmm_k1z_zmmm512b32_imm8;
    VEX_Vpsrld_xmm_xmm_imm8 => VEX_Vpsrld_ymm_ymm_imm8, EVEX_Vpsrld_zmm_k1z_zmmm512b32_imm8;
    VEX_Vpsrad_xmm_xmm_imm8 => VEX_Vpsrad_ymm_ymm_imm8, EVEX_Vpsrad_zmm_k1z_zmmm512b32_imm8;
    VEX_Vpsllq_xmm_xmm_imm8 => VEX_Vpsllq_ymm_ymm_imm8, EVEX_Vpsllq_zmm_k1z_zmmm512b64_imm8;
    VEX_Vpsrlq_xmm_xmm_imm8 => VEX_Vpsrlq_ymm_ymm_imm8, EVEX_Vpsrlq_zmm_k1z_zmmm512b64_imm8;
    VEX_Vcvtdq2ps_xmm_xmmm128 => VEX_Vcvtdq2ps_ymm_ymmm256, EVEX_Vcvtdq2ps_zmm_k1z_zmmm512b32_er;
    VEX_Vcvttps2dq_xmm_xmmm128 => VEX_Vcvttps2dq_ymm_ymmm256, EVEX_Vcvttps2dq_zmm_k1z_zmmm512b32_sae;
    VEX_Vmovups_xmm_xmmm128 => VEX_Vmovups_ymm_ymmm256, EVEX_Vmovups_zmm_k1z_zmmm512;
    VEX_Vmovups_xmmm128_xmm => VEX_Vmovups_ymmm256_ymm, EVEX_Vmovups_zmmm512_k1z_zmm;
    Movups_xmm_xmmm128 => VEX_Vmovups_ymm_ymmm256, EVEX_Vmovups_zmm_k1z_zmmm512;
    Movups_xmmm128_xmm => VEX_Vmovups_ymmm256_ymm, EVEX_Vmovups_zmmm512_k1z_zmm;
    VEX_Vmovupd_xmm_xmmm128 => VEX_Vmovups_ymm_ymmm256, EVEX_Vmovups_zmm_k1z_zmmm512;
    VEX_Vmovupd_xmmm128_xmm => VEX_Vmovups_ymmm256_ymm, EVEX_Vmovups_zmmm512_k1z_zmm;
    Movupd_xmm_xmmm128 => VEX_Vmovups_ymm_ymmm256, EVEX_Vmovups_zmm_k1z_zmmm512;
    Movupd_xmmm128_xmm => VEX_Vmovups_ymmm256_ymm, EVEX_Vmovups_zmmm512_k1z_zmm;
    VEX_Vmovaps_xmm_xmmm128 => VEX_Vmovups_ymm_ymmm256, EVEX_Vmovups_zmm_k1z_zmmm512;
    VEX_Vmovaps_xmmm128_xmm => VEX_Vmovups_ymmm256_ymm, EVEX_Vmovups_zmmm512_k1z_zmm;
    Movaps_xmm_xmmm128 => VEX_Vmovups_ymm_ymmm256, EVEX_Vmovups_zmm_k1z_zmmm512;
    Movaps_xmmm128_xmm => VEX_Vmovups_ymmm256_ymm, EVEX_Vmovups_zmmm512_k1z_zmm;
    VEX_Vmovapd_xmm_xmmm128 => VEX_Vmovups_ymm_ymmm256, EVEX_Vmovups_zmm_k1z_zmmm512;
    VEX_Vmovapd_xmmm128_xmm => VEX_Vmovups_ymmm256_ymm, EVEX_Vmovups_zmmm512_k1z_zmm;
    Movapd_xmm_xmmm128 => VEX_Vmovups_ymm_ymmm256, EVEX_Vmovups_zmm_k1z_zmmm512;
    Movapd_xmmm128_xmm => VEX_Vmovups_ymmm256_ymm, EVEX_Vmovups_zmmm512_k1z_zmm;
    VEX_Vmovdqu_xmm_xmmm128 => VEX_Vmovups_ymm_ymmm256, EVEX_Vmovups_zmm_k1z_zmmm512;
    VEX_Vmovdqu_xmmm128_xmm => VEX_Vmovups_ymmm256_ymm, EVEX_Vmovups_zmmm512_k1z_zmm;
    Movdqu_xmm_xmmm128 => VEX_Vmovups_ymm_ymmm256, EVEX_Vmovups_zmm_k1z_zmmm512;
    Movdqu_xmmm128_xmm => VEX_Vmovups_ymmm256_ymm, EVEX_Vmovups_zmmm512_k1z_zmm;
    VEX_Vmovdqa_xmm_xmmm128 => VEX_Vmovups_ymm_ymmm256, EVEX_Vmovups_zmm_k1z_zmmm512;
    VEX_Vmovdqa_xmmm128_xmm => VEX_Vmovups_ymmm256_ymm, EVEX_Vmovups_zmmm512_k1z_zmm;
    Movdqa_xmm_xmmm128 => VEX_Vmovups_ymm_ymmm256, EVEX_Vmovups_zmm_k1z_zmmm512;
    Movdqa_xmmm128_xmm => VEX_Vmovups_ymmm256_ymm, EVEX_Vmovups_zmmm512_k1z_zmm;
    EVEX_Vpmullq_xmm_k1z_xmm_xmmm128b64 => EVEX_Vpmullq_ymm_k1z_ymm_ymmm256b64, EVEX_Vpmullq_zmm_k1z_zmm_zmmm512b64;
    EVEX_Vpabsq_xmm_k1z_xmmm128b64 => EVEX_Vpabsq_ymm_k1z_ymmm256b64, EVEX_Vpabsq_zmm_k1z_zmmm512b64;
    EVEX_Vpsraq_xmm_k1z_xmmm128b64_imm8 => EVEX_Vpsraq_ymm_k1z_ymmm256b64_imm8, EVEX_Vpsraq_zmm_k1z_zmmm512b64_imm8;
    VEX_Vpmovzxwd_xmm_xmmm64 => VEX_Vpmovzxwd_ymm_xmmm128, EVEX_Vpmovzxwd_zmm_k1z_ymmm256;
    VEX_Vpmovsxwd_xmm_xmmm64 => VEX_Vpmovsxwd_ymm_xmmm128, EVEX_Vpmovsxwd_zmm_k1z_ymmm256;
    VEX_Vpmovzxbw_xmm_xmmm64 => VEX_Vpmovzxbd_ymm_xmmm64, EVEX_Vpmovzxbd_zmm_k1z_xmmm128;
    VEX_Vpmovsxbw_xmm_xmmm64 => VEX_Vpmovsxbd_ymm_xmmm64, EVEX_Vpmovsxbd_zmm_k1z_xmmm128;
    VEX_Vbroadcastss_xmm_xmm => VEX_Vbroadcastss_ymm_xmm, EVEX_Vbroadcastss_zmm_k1z_xmmm32;
    VEX_Vbroadcastss_xmm_m32 => VEX_Vbroadcastss_ymm_m32, EVEX_Vbroadcastss_zmm_k1z_xmmm32;
    VEX_Vmovddup_xmm_xmmm64 => VEX_Vbroadcastsd_ymm_m64, EVEX_Vbroadcastsd_zmm_k1z_xmmm64;
    VEX_Vpbroadcastd_xmm_xmmm32 => VEX_Vpbroadcastd_ymm_xmmm32, EVEX_Vpbroadcastd_zmm_k1z_xmmm32;
    VEX_Vpbroadcastq_xmm_xmmm64 => VEX_Vpbroadcastq_ymm_xmmm64, EVEX_Vpbroadcastq_zmm_k1z_xmmm64;
}

/// A shuffle that repeats the first lane, of 32 or 64 bits, which is how Cranelift splats a scalar. The wider forms are broadcasts.
pub(super) fn match_splat(i: &Instruction) -> Option<Wider> {
    use Code::*;
    let register = (0..i.op_count()).all(|k| i.op_kind(k) != OpKind::Memory);
    let long = match (i.code(), i.immediate8()) {
        (VEX_Vpshufd_xmm_xmmm128_imm8, 0) => false,
        (VEX_Vpshufd_xmm_xmmm128_imm8, 0b01_00_01_00) => true,
        (VEX_Vshufps_xmm_xmm_xmmm128_imm8, 0) if i.op1_register() == i.op2_register() => false,
        _ => return None,
    };
    let (ymm, zmm) = match long {
        true => (VEX_Vpbroadcastq_ymm_xmmm64, EVEX_Vpbroadcastq_zmm_k1z_xmmm64),
        false => (VEX_Vbroadcastss_ymm_xmm, EVEX_Vbroadcastss_zmm_k1z_xmmm32),
    };
    register.then_some(Wider { ymm, zmm })
}

/// A permutation of the 128-bit parts of a wide vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exchange {
    /// Swaps the halves.
    Halves,
    /// Swaps the first part with the second and the third with the fourth.
    Neighbours,
}

impl Exchange {
    /// The order of the parts of a 64-byte vector, as an immediate with two bits each.
    pub(super) fn of_four(self) -> u32 {
        match self {
            Exchange::Halves => 0b01_00_11_10,
            Exchange::Neighbours => 0b10_11_00_01,
        }
    }
}

/// The exchange that an instruction encodes: a saturating addition of 16-bit integers to themselves, which kernels do
/// not otherwise use.
pub(super) fn match_exchange(i: &Instruction) -> Option<Exchange> {
    match i.code() {
        Code::VEX_Vpaddusw_xmm_xmm_xmmm128 => Some(Exchange::Halves),
        Code::VEX_Vpaddsw_xmm_xmm_xmmm128 => Some(Exchange::Neighbours),
        _ => None,
    }
}

/// Whether an instruction selects lanes of two vectors, within each part, in one of the orders that merge the
/// reductions of four rows ([`rows`](crate::codegen::rows)). Other orders are not on the whitelist because they change
/// the lane width.
pub(super) fn merges_rows(i: &Instruction) -> bool {
    i.code() == Code::VEX_Vshufps_xmm_xmm_xmmm128_imm8 && matches!(i.immediate8(), 0x11 | 0xbb | 0x77 | 0x22)
}

/// Whether an instruction swaps neighbouring lanes, or neighbouring pairs of lanes, within each part: the last steps of
/// a reduction. Other orders are not on the whitelist because they change the lane width.
pub(super) fn swaps_lanes(i: &Instruction) -> bool {
    i.code() == Code::VEX_Vpshufd_xmm_xmmm128_imm8 && matches!(i.immediate8(), 0b10_11_00_01 | 0b01_00_11_10)
}

/// A comparison that produces a mask: its wider forms, and whether its lanes have 64 bits.
pub(super) fn wider_comparison(code: Code) -> Option<(Wider, bool)> {
    use Code::*;
    let (ymm, zmm, long) = match code {
        VEX_Vcmpps_xmm_xmm_xmmm128_imm8 => (
            VEX_Vcmpps_ymm_ymm_ymmm256_imm8,
            EVEX_Vcmpps_kr_k1_zmm_zmmm512b32_imm8_sae,
            false,
        ),
        VEX_Vcmppd_xmm_xmm_xmmm128_imm8 => (
            VEX_Vcmppd_ymm_ymm_ymmm256_imm8,
            EVEX_Vcmppd_kr_k1_zmm_zmmm512b64_imm8_sae,
            true,
        ),
        VEX_Vpcmpeqd_xmm_xmm_xmmm128 => (VEX_Vpcmpeqd_ymm_ymm_ymmm256, EVEX_Vpcmpeqd_kr_k1_zmm_zmmm512b32, false),
        VEX_Vpcmpgtd_xmm_xmm_xmmm128 => (VEX_Vpcmpgtd_ymm_ymm_ymmm256, EVEX_Vpcmpgtd_kr_k1_zmm_zmmm512b32, false),
        VEX_Vpcmpeqq_xmm_xmm_xmmm128 => (VEX_Vpcmpeqq_ymm_ymm_ymmm256, EVEX_Vpcmpeqq_kr_k1_zmm_zmmm512b64, true),
        VEX_Vpcmpgtq_xmm_xmm_xmmm128 => (VEX_Vpcmpgtq_ymm_ymm_ymmm256, EVEX_Vpcmpgtq_kr_k1_zmm_zmmm512b64, true),
        _ => return None,
    };
    Some((Wider { ymm, zmm }, long))
}

/// The AVX2 form of an operation on lanes of 8 or 16 bits, which packed kernels have. AVX-512 replaces some of these instructions
/// ([`natives`](crate::codegen::natives)).
pub(super) fn wider_packed(code: Code) -> Option<Code> {
    use Code::*;
    Some(match code {
        VEX_Vpaddb_xmm_xmm_xmmm128 => VEX_Vpaddb_ymm_ymm_ymmm256,
        VEX_Vpsubb_xmm_xmm_xmmm128 => VEX_Vpsubb_ymm_ymm_ymmm256,
        VEX_Vpmaxub_xmm_xmm_xmmm128 => VEX_Vpmaxub_ymm_ymm_ymmm256,
        VEX_Vpminub_xmm_xmm_xmmm128 => VEX_Vpminub_ymm_ymm_ymmm256,
        VEX_Vpmaxsb_xmm_xmm_xmmm128 => VEX_Vpmaxsb_ymm_ymm_ymmm256,
        VEX_Vpminsb_xmm_xmm_xmmm128 => VEX_Vpminsb_ymm_ymm_ymmm256,
        VEX_Vpcmpeqb_xmm_xmm_xmmm128 => VEX_Vpcmpeqb_ymm_ymm_ymmm256,
        VEX_Vpcmpgtb_xmm_xmm_xmmm128 => VEX_Vpcmpgtb_ymm_ymm_ymmm256,
        VEX_Vpaddw_xmm_xmm_xmmm128 => VEX_Vpaddw_ymm_ymm_ymmm256,
        VEX_Vpsubw_xmm_xmm_xmmm128 => VEX_Vpsubw_ymm_ymm_ymmm256,
        VEX_Vpmaxsw_xmm_xmm_xmmm128 => VEX_Vpmaxsw_ymm_ymm_ymmm256,
        VEX_Vpminsw_xmm_xmm_xmmm128 => VEX_Vpminsw_ymm_ymm_ymmm256,
        VEX_Vpmaxuw_xmm_xmm_xmmm128 => VEX_Vpmaxuw_ymm_ymm_ymmm256,
        VEX_Vpminuw_xmm_xmm_xmmm128 => VEX_Vpminuw_ymm_ymm_ymmm256,
        VEX_Vpcmpeqw_xmm_xmm_xmmm128 => VEX_Vpcmpeqw_ymm_ymm_ymmm256,
        VEX_Vpcmpgtw_xmm_xmm_xmmm128 => VEX_Vpcmpgtw_ymm_ymm_ymmm256,
        VEX_Vpmullw_xmm_xmm_xmmm128 => VEX_Vpmullw_ymm_ymm_ymmm256,
        VEX_Vpsrlw_xmm_xmm_imm8 => VEX_Vpsrlw_ymm_ymm_imm8,
        VEX_Vpabsb_xmm_xmmm128 => VEX_Vpabsb_ymm_ymmm256,
        VEX_Vpabsw_xmm_xmmm128 => VEX_Vpabsw_ymm_ymmm256,
        _ => return None,
    })
}

/// A select by a mask whose lanes are all ones or all zeros: its AVX2 form.
pub(super) fn wider_blend(code: Code) -> Option<Code> {
    use Code::*;
    match code {
        VEX_Vpblendvb_xmm_xmm_xmmm128_xmm => Some(VEX_Vpblendvb_ymm_ymm_ymmm256_ymm),
        VEX_Vblendvps_xmm_xmm_xmmm128_xmm => Some(VEX_Vblendvps_ymm_ymm_ymmm256_ymm),
        VEX_Vblendvpd_xmm_xmm_xmmm128_xmm => Some(VEX_Vblendvpd_ymm_ymm_ymmm256_ymm),
        _ => None,
    }
}

/// Whether an instruction clears a register, in the encoding that Cranelift uses within conversions of scalars.
pub(super) fn clears_register(i: &Instruction) -> bool {
    let clears = matches!(i.code(), Code::Xorpd_xmm_xmmm128 | Code::Xorps_xmm_xmmm128);
    clears && i.op_kind(1) == OpKind::Register && i.op0_register() == i.op1_register()
}

/// Whether an instruction extracts the first lane, as scalar code does. Lane-by-lane code extracts other lanes too,
/// which is rejected.
pub(super) fn takes_first_lane(i: &Instruction) -> bool {
    i.code() == Code::VEX_Vpextrd_rm32_xmm_imm8 && i.immediate8() == 0
}

/// Whether an instruction operates on one scalar. Such instructions stay as they are because they read only the lowest
/// lane.
pub(super) fn is_scalar(m: Mnemonic) -> bool {
    use Mnemonic::*;
    let moves = matches!(m, Vmovss | Vmovsd | Vmovd | Vmovq);
    let compares = matches!(m, Vcmpss | Vcmpsd | Vucomiss | Vucomisd | Ucomiss | Ucomisd);
    moves || compares || is_scalar_arithmetic(m) || is_scalar_conversion(m)
}

#[rustfmt::skip]
fn is_scalar_arithmetic(m: Mnemonic) -> bool {
    use Mnemonic::*;
    matches!(
        m,
        Vaddss | Vsubss | Vmulss | Vdivss | Vsqrtss | Vminss | Vmaxss | Vroundss
            | Vfmadd132ss | Vfmadd213ss | Vfmadd231ss | Vfnmadd132ss | Vfnmadd213ss | Vfnmadd231ss
            | Vfmsub132ss | Vfmsub213ss | Vfmsub231ss | Vfnmsub132ss | Vfnmsub213ss | Vfnmsub231ss
            | Vaddsd | Vsubsd | Vmulsd | Vdivsd | Vsqrtsd | Vminsd | Vmaxsd | Vroundsd
            | Vfmadd132sd | Vfmadd213sd | Vfmadd231sd | Vfnmadd132sd | Vfnmadd213sd | Vfnmadd231sd
            | Vfmsub132sd | Vfmsub213sd | Vfmsub231sd | Vfnmsub132sd | Vfnmsub213sd | Vfnmsub231sd
    )
}

#[rustfmt::skip]
fn is_scalar_conversion(m: Mnemonic) -> bool {
    use Mnemonic::*;
    matches!(
        m,
        Vcvtsi2ss | Vcvttss2si | Vcvtsi2sd | Vcvttsd2si | Vcvtss2sd | Vcvtsd2ss | Cvttss2si | Cvttsd2si
            | Vcvtph2ps | Vcvtps2ph
    )
}
