//! Conversions of single halves without branches and calls, so that loops of them become vector code. Those of the crate `half`
//! ask for the processor's features at every element.

use half::{bf16, f16};

/// [`bf16::from_f32`] without branches, so that loops of it become vector code.
#[inline(always)]
pub(crate) fn round_to_bf16(x: f32) -> bf16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    // The quiet NaN with these bits.
    let quiet = bits >> 16 | 0x40;
    bf16::from_bits(if x.is_nan() { quiet } else { rounded } as u16)
}

/// [`f16::to_f32`]: shifts the exponent into place and corrects its bias with a multiplication, which also handles denormals
/// (F. Giesen's conversion).
#[inline(always)]
pub(crate) fn widen_f16(x: f16) -> f32 {
    let magnitude = u32::from(x.to_bits() & 0x7fff);
    let sign = u32::from(x.to_bits() & 0x8000) << 16;
    let scaled = (f32::from_bits(magnitude << 13) * f32::from_bits((254 - 15) << 23)).to_bits();
    let special = if magnitude > 0x7c00 { 511 << 22 } else { 255 << 23 };
    let bits = if magnitude > 0x7bff { scaled | special } else { scaled };
    f32::from_bits(bits | sign)
}

/// [`f16::from_f32`]. Normal results add the rounding bias to the bits; denormal results add a float that aligns the mantissa
/// (F. Giesen's conversion).
#[inline(always)]
pub(crate) fn round_to_f16(x: f32) -> f16 {
    const ALIGN: u32 = ((127 - 15) + (23 - 10) + 1) << 23;
    let f = x.to_bits() & 0x7fff_ffff;
    let sign = (x.to_bits() >> 16) & 0x8000;
    let normal = f.wrapping_sub((127 - 15) << 23).wrapping_add(0xfff + (f >> 13 & 1)) >> 13;
    let denormal = (f32::from_bits(f) + f32::from_bits(ALIGN))
        .to_bits()
        .wrapping_sub(ALIGN);
    let finite = if f < 113 << 23 { denormal } else { normal };
    let special = if x.is_nan() { 0x7e00 | (f >> 13 & 0x1ff) } else { 0x7c00 };
    let bits = if f >= (127 + 16) << 23 { special } else { finite };
    f16::from_bits((bits | sign) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_that_of_the_formats() {
        let some = (0..200_000u32).map(|i| f32::from_bits(i.wrapping_mul(0x9e37_79b9)));
        let edges = [0.0, -0.0, f32::MAX, 65519.996, 65520.0, 6.1e-5, 2.98e-8, 2.99e-8, 1e-45];
        let special = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN];
        let ties = (0..0x8000).map(|i| f32::from_bits(0x3300_0000 + i * 0x800));
        for x in some.chain(edges).chain(special).chain(ties) {
            assert_eq!(round_to_bf16(x).to_bits(), bf16::from_f32(x).to_bits(), "{x:?}");
            let (got, want) = (round_to_f16(x), f16::from_f32(x));
            assert!(
                got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
                "{x:?}"
            );
        }
    }

    #[test]
    fn every_f16_is_widened() {
        for x in (0..=u16::MAX).map(f16::from_bits) {
            let (got, want) = (widen_f16(x), x.to_f32());
            assert!(
                got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
                "{x:?}"
            );
        }
    }
}
