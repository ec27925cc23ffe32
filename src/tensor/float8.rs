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
    let Some(f) = format_of(dtype) else {
        return power_of_two(x);
    };
    let sign = if x.is_sign_negative() { 0x80u8 } else { 0 };
    if x.is_nan() {
        return f.only_nan.unwrap_or(sign | 0x7f);
    }
    let size = x.abs() as f64;
    let least = 1 - f.bias;
    let exponent = if size == 0.0 {
        least
    } else {
        (size.log2().floor() as i32).max(least)
    };
    // Rounding up to the next power of two carries into the exponent's code.
    let steps = (size / 2f64.powi(exponent - f.fraction as i32)).round_ties_even();
    let code = (exponent.saturating_add(f.bias - 1) as f64) * (1u32 << f.fraction) as f64 + steps;
    // For infinity this is NaN, so no comparison with it holds.
    let fits = code < f.above as f64;
    if !fits {
        return f.only_nan.unwrap_or(sign | f.large);
    }
    match (code as u8, f.only_nan) {
        (0, Some(_)) => 0,
        (code, _) => sign | code,
    }
}

/// torch's rounding to `float8_e8m0fnu`: the exponent's bits, rounded up from a factor of one and a half. The sign is
/// dropped.
fn power_of_two(x: f32) -> u8 {
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
