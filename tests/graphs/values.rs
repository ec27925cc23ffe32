//! Random elements of tensors.

use fxc::internals::tensor::{Scalar, SplitMix, Tensor};
use fxc::types::DType;

/// How the elements of an input are chosen.
#[derive(Clone, Copy)]
enum Style {
    /// Multiples of 1/4 of small magnitude, on which sums and products are exact.
    Sharp,
    /// Any numbers near 0.
    Smooth,
    /// Numbers in (0, 1), for probabilities and logarithms.
    Unit,
    /// Small integers, some of them equal.
    Ties,
    /// As `Smooth`, with some that are infinite, NaN, signed zeros, very large or denormal.
    Special,
}

/// A tensor of random elements.
pub fn random_tensor(dtype: DType, shape: &[usize], r: &mut SplitMix) -> Tensor {
    let style = match r.next_below(16) {
        0..5 => Style::Sharp,
        5..11 => Style::Smooth,
        11..13 => Style::Unit,
        13..15 => Style::Ties,
        _ => Style::Special,
    };
    Tensor::from_fn(dtype, shape, |_| match dtype {
        DType::B8 => Scalar::Bool(r.one_in(2)),
        d if d.is_float() => float(style, r),
        d => integer(d, style, r),
    })
}

fn float(style: Style, r: &mut SplitMix) -> Scalar {
    const SPECIAL: [f64; 9] = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        0.0,
        -0.0,
        1e30,
        -65504.0,
        1e-41,
        2147483648.0,
    ];
    let smooth = r.next_unit() * 6.0 - 3.0;
    Scalar::F64(match style {
        Style::Sharp => (r.next_below(33) as f64 - 16.0) / 4.0,
        Style::Unit => (r.next_unit() * 0.98) + 0.01,
        Style::Ties => r.next_below(4) as f64,
        Style::Special if r.one_in(4) => r.pick(&SPECIAL),
        _ => smooth,
    })
}

/// Small numbers are valid indices more often.
fn integer(dtype: DType, style: Style, r: &mut SplitMix) -> Scalar {
    const LIMITS: [i64; 6] = [i64::MIN, i64::MAX, i32::MIN as i64, 127, -128, 255];
    let signed = !matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64);
    let x = match style {
        Style::Special if r.one_in(6) => r.pick(&LIMITS),
        Style::Smooth if signed => r.next_below(41) as i64 - 20,
        Style::Sharp => r.next_below(3) as i64,
        _ => r.next_below(2) as i64,
    };
    Scalar::from_i64(dtype, x)
}
