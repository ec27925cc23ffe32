//! 8-bit floats: the value of each of the 256 codes, and the code that torch rounds a number to.

use crate::types::DType;

/// The bit layout of an 8-bit float.
struct Float8Format {
    /// The number of fraction bits.
    fraction: u32,
    /// The exponent's code for 1.0.
    bias: i32,
    /// The first code above the finite numbers.
    above: u8,
    /// The code for numbers above the largest finite one.
    large: u8,
    /// The only code of NaN, whatever the sign, for formats without a negative zero.
    only_nan: Option<u8>,
}

fn format_of(dtype: DType) -> Option<Float8Format> {
    let (fraction, bias, above, large, only_nan) = match dtype {
        DType::F8E4M3FN => (3, 7, 0x7f, 0x7e, None),
        DType::F8E5M2 => (2, 15, 0x7c, 0x7c, None),
        DType::F8E4M3FNUZ => (3, 8, 0x80, 0x80, Some(0x80)),
        DType::F8E5M2FNUZ => (2, 16, 0x80, 0x80, Some(0x80)),
        _ => return None,
    };
    Some(Float8Format {
        fraction,
        bias,
        above,
        large,
        only_nan,
    })
}

/// torch's f32 for the NaN of a format that has only one.
const ONLY_NAN: f32 = f32::from_bits(0x7f80_0001);

/// The value of `code`, which f32 represents exactly.
pub(super) fn decode(dtype: DType, code: u8) -> f32 {
    let Some(f) = format_of(dtype) else {
        // `float8_e8m0fnu`: a power of two.
        return if code == 0xff {
            ONLY_NAN
        } else {
            (code as f64 - 127.0).exp2() as f32
        };
    };
    if f.only_nan == Some(code) {
        return ONLY_NAN;
    }
    let sign = if code & 0x80 != 0 { -1.0 } else { 1.0 };
    let size = code & 0x7f;
    if f.only_nan.is_none() && size >= f.above {
        return match (dtype, size) {
            (DType::F8E5M2, 0x7c) => sign * f32::INFINITY,
            // The bits that torch returns.
            (DType::F8E5M2, 0x7e) => f32::from_bits(0x7fc0_0000).copysign(sign),
            (DType::F8E5M2, _) => f32::from_bits(0x7fe0_0000).copysign(sign),
            _ => f32::from_bits(0x7ff0_0000).copysign(sign),
        };
    }
    let (exponent, fraction) = ((size >> f.fraction) as i32, (size & ((1 << f.fraction) - 1)) as f32);
    let unit = (1u32 << f.fraction) as f32;
    let value = match exponent {
        0 => fraction / unit * 2f32.powi(1 - f.bias),
        e => (1.0 + fraction / unit) * 2f32.powi(e - f.bias),
    };
    sign * value
}

/// The code of the number nearest to `x`, ties to even.
pub(super) fn encode(dtype: DType, x: f32) -> u8 {
    match Encoder::of(dtype) {
        Some(e) => e.encode(x),
        None => power_of_two(x),
    }
}

/// Rounds numbers to the codes of a format with a sign, without branches.
#[derive(Clone, Copy)]
pub(super) struct Encoder {
    /// The number of fraction bits of f32 that a code lacks.
    shift: u32,
    /// The bits of the smallest normal number, as f32.
    least: u32,
    /// What the exponents of f32 exceed the code's by, at the place of the code's exponent.
    rebias: u32,
    /// A number whose last bit in f32 is the smallest number of the format.
    magic: f32,
    /// The first code above the finite numbers.
    above: u32,
    /// The codes for NaN and for numbers above the largest finite one.
    nan: u8,
    large: u8,
    /// Whether these codes have a sign, and zero has one.
    signed: bool,
}

impl Encoder {
    /// The encoder for a dtype; `None` for `float8_e8m0fnu` and others.
    pub(super) fn of(dtype: DType) -> Option<Encoder> {
        let f = format_of(dtype)?;
        let exponent = |e: i32| ((127 + e) as u32) << 23;
        Some(Encoder {
            shift: 23 - f.fraction,
            least: exponent(1 - f.bias),
            rebias: ((127 - f.bias) as u32) << f.fraction,
            magic: f32::from_bits(exponent(24 - f.bias - f.fraction as i32)),
            above: u32::from(f.above),
            nan: f.only_nan.unwrap_or(0x7f),
            large: f.only_nan.unwrap_or(f.large),
            signed: f.only_nan.is_none(),
        })
    }

    /// The code of `x`.
    #[inline(always)]
    pub(super) fn encode(self, x: f32) -> u8 {
        let size = x.to_bits() & 0x7fff_ffff;
        let sign = (x.to_bits() >> 24) as u8 & 0x80;
        // Rounding up to the next power of two carries into the exponent.
        let half = (1 << (self.shift - 1)) - 1 + (size >> self.shift & 1);
        let normal = ((size + half) >> self.shift).wrapping_sub(self.rebias);
        let small = (f32::from_bits(size) + self.magic)
            .to_bits()
            .wrapping_sub(self.magic.to_bits());
        let code = if size >= self.least { normal } else { small };
        let fits = code < self.above;
        let is_nan = size > f32::INFINITY.to_bits();
        let other = if is_nan { self.nan } else { self.large };
        let code = if fits { code as u8 } else { other };
        let keeps_sign = self.signed | fits & (code != 0);
        code | if keeps_sign { sign } else { 0 }
    }
}

/// torch's rounding to `float8_e8m0fnu`: the exponent's bits, rounded up from a factor of one and a half. The sign is
/// dropped.
pub(super) fn power_of_two(x: f32) -> u8 {
    let bits = x.to_bits();
    let exponent = (bits >> 23 & 0xff) as u8;
    if exponent == 0xff {
        return 0xff;
    }
    let (guard, rest) = (bits & 0x40_0000 != 0, bits & 0x3f_ffff != 0);
    let up = guard && (exponent > 0 || rest);
    exponent + up as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [DType; 5] = [
        DType::F8E4M3FN,
        DType::F8E5M2,
        DType::F8E4M3FNUZ,
        DType::F8E5M2FNUZ,
        DType::F8E8M0FNU,
    ];

    /// The nearest code found by comparing all of them.
    fn nearest(d: DType, x: f32) -> u8 {
        let f = format_of(d).unwrap();
        let size = f64::from(x.abs());
        let value = |c: u8| f64::from(decode(d, c));
        let limit = value(f.above - 1);
        let step = limit - value(f.above - 2);
        // The next number would be the first that does not exist. Half of the way rounds to it if its code is even.
        let over = size - (limit + step / 2.0);
        if over > 0.0 || over == 0.0 && f.above.is_multiple_of(2) {
            return f.only_nan.unwrap_or(f.large | if x < 0.0 { 0x80 } else { 0 });
        }
        let mut best = 0u8;
        for c in 1..f.above {
            let (old, new) = ((size - value(best)).abs(), (size - value(c)).abs());
            if new < old || new == old && c.is_multiple_of(2) {
                best = c;
            }
        }
        let signed = f.only_nan.is_none() || best != 0;
        best | if signed && x.is_sign_negative() { 0x80 } else { 0 }
    }

    #[test]
    fn the_nearest_code_is_found() {
        for d in &ALL[..4] {
            for i in 0..4000u32 {
                // All exponents from 2^-24 to 2^18, ties included.
                let bits = (103 << 23) + i * 88_001;
                for x in [bits, bits & !0xf_ffff, bits & !0x7_ffff].map(f32::from_bits) {
                    for x in [x, -x] {
                        assert_eq!(encode(*d, x), nearest(*d, x), "{d} {x}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_code_comes_back() {
        for d in ALL {
            for code in 0..=255u8 {
                let x = decode(d, code);
                let back = encode(d, x);
                assert!(
                    back == code || x.is_nan() && decode(d, back).is_nan(),
                    "{d} {code:#x}: {x} {back:#x}"
                );
            }
        }
    }

    /// Numbers and codes from PyTorch 2.15 (`torch.tensor(x).to(dtype).view(torch.uint8)`).
    #[test]
    fn rounds_as_torch_does() {
        for (d, x, want) in [
            (DType::F8E4M3FN, 448.0, 0x7e),
            (DType::F8E4M3FN, 464.0, 0x7e),
            (DType::F8E4M3FN, 465.0, 0x7e),
            (DType::F8E4M3FN, -1e9, 0xfe),
            (DType::F8E4M3FN, f32::INFINITY, 0x7e),
            (DType::F8E4M3FN, f32::NAN, 0x7f),
            (DType::F8E4M3FN, -0.0, 0x80),
            (DType::F8E4M3FN, 0.0009765625, 0x00),
            (DType::F8E4M3FN, 0.0009765626, 0x01),
            (DType::F8E4M3FN, 1.0625, 0x38),
            (DType::F8E4M3FN, 1.1875, 0x3a),
            (DType::F8E5M2, 61440.0, 0x7c),
            (DType::F8E5M2, 61439.0, 0x7b),
            (DType::F8E5M2, f32::NEG_INFINITY, 0xfc),
            (DType::F8E4M3FNUZ, -0.0, 0x00),
            (DType::F8E4M3FNUZ, 240.0, 0x7f),
            (DType::F8E4M3FNUZ, 248.0, 0x80),
            (DType::F8E5M2FNUZ, 57344.0, 0x7f),
            (DType::F8E5M2FNUZ, f32::INFINITY, 0x80),
            (DType::F8E8M0FNU, 1.5, 0x80),
            (DType::F8E8M0FNU, 1.49, 0x7f),
            (DType::F8E8M0FNU, f32::INFINITY, 0xff),
        ] {
            assert_eq!(encode(d, x), want, "{d} {x}");
        }
    }
    /// `torch.tensor([code], dtype=torch.uint8).view(d).to(torch.float32)`.
    #[test]
    fn nan_has_torchs_bits() {
        use crate::tensor::Scalar;
        for (d, code, want) in [
            (DType::F8E4M3FNUZ, 0x80, 0x7f80_0001),
            (DType::F8E5M2FNUZ, 0x80, 0x7f80_0001),
            (DType::F8E8M0FNU, 0xff, 0x7f80_0001),
            (DType::F8E4M3FN, 0x7f, 0x7ff0_0000),
            (DType::F8E5M2, 0xff, 0xffe0_0000u32),
        ] {
            let x = Scalar::read(d, &[code], 0);
            let Scalar::F32(y) = x.cast(DType::F32) else {
                panic!("no f32")
            };
            assert_eq!(y.to_bits(), want, "{d}");
            let mut half = [0; 2];
            x.cast(DType::BF16).write(&mut half, 0);
            assert_eq!(u16::from_le_bytes(half), 0x7fc0, "{d}");
        }
    }
}
