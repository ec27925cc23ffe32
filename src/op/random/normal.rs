//! Normal numbers by the Box-Muller transform (1958), in the order and the arithmetic of torch's CPU kernels.
//!
//! For 16 elements or more, torch transforms blocks of 16. For f32 it uses the polynomials of Cephes (`log256_ps`, `sincos256_ps`
//! of `avx_mathfun.h`), which its AVX2 build contracts to fused multiply-adds. Shorter tensors are drawn one by one in f64, and
//! also scaled by a fused multiply-add.
// The constants are written as in Cephes.
#![allow(clippy::excessive_precision)]

use super::{Generator, round_to_dtype};
use crate::types::DType;

const BLOCK: usize = 16;

/// Draws `n` normal numbers, rounded to `dtype`.
pub fn normal_values(g: &mut Generator, dtype: DType, n: usize, mean: f64, std: f64) -> Vec<f64> {
    if n < BLOCK {
        return (0..n)
            .map(|_| round_to_dtype(dtype, g.normal().mul_add(std, mean)))
            .collect();
    }
    // Half types draw for whole blocks only; f32 and f64 draw for every element.
    let drawn = match dtype {
        DType::F32 | DType::F64 => n,
        _ => n - n % BLOCK,
    };
    let mut out: Vec<f64> = (0..drawn).map(|_| g.unit_interval(dtype)).collect();
    out.resize(n, 0.0);
    for block in out.chunks_exact_mut(BLOCK) {
        box_muller_block(dtype, block, mean, std);
    }
    if !n.is_multiple_of(BLOCK) {
        // The last 16 are drawn again.
        let tail = &mut out[n - BLOCK..];
        tail.iter_mut().for_each(|x| *x = g.unit_interval(dtype));
        box_muller_block(dtype, tail, mean, std);
    }
    out
}

fn box_muller_block(dtype: DType, block: &mut [f64], mean: f64, std: f64) {
    for j in 0..BLOCK / 2 {
        let (a, b) = (block[j], block[j + BLOCK / 2]);
        let (x, y) = match dtype {
            DType::F64 => pair_f64(a, b, mean, std),
            // Half types are rounded at the end.
            _ => {
                let (x, y) = pair_f32(a as f32, b as f32, mean as f32, std as f32);
                (round_to_dtype(dtype, x as f64), round_to_dtype(dtype, y as f64))
            }
        };
        (block[j], block[j + BLOCK / 2]) = (x, y);
    }
}

fn pair_f64(a: f64, b: f64, mean: f64, std: f64) -> (f64, f64) {
    let radius = (-2.0 * (1.0 - a).ln()).sqrt();
    let theta = std::f64::consts::TAU * b;
    (
        (radius * theta.cos()).mul_add(std, mean),
        (radius * theta.sin()).mul_add(std, mean),
    )
}

fn pair_f32(a: f32, b: f32, mean: f32, std: f32) -> (f32, f32) {
    let radius = (-2.0 * cephes_ln(1.0 - a)).sqrt();
    let (sin, cos) = sin_cos(2.0 * std::f32::consts::PI * b);
    ((radius * cos).mul_add(std, mean), (radius * sin).mul_add(std, mean))
}

/// Cephes' `logf` for positive, finite arguments.
fn cephes_ln(x: f32) -> f32 {
    const P: [f32; 9] = [
        7.0376836292E-2,
        -1.1514610310E-1,
        1.1676998740E-1,
        -1.2420140846E-1,
        1.4249322787E-1,
        -1.6668057665E-1,
        2.0000714765E-1,
        -2.4999993993E-1,
        3.3333331174E-1,
    ];
    let bits = x.max(f32::MIN_POSITIVE).to_bits();
    let mut e = ((bits >> 23) as i32 - 0x7f) as f32 + 1.0;
    let mut x = f32::from_bits((bits & !0x7f80_0000) | 0.5f32.to_bits());
    let extra = if x < std::f32::consts::FRAC_1_SQRT_2 {
        e -= 1.0;
        x
    } else {
        0.0
    };
    x = x - 1.0 + extra;
    let z = x * x;
    let mut y = P[0];
    for p in &P[1..] {
        y = y.mul_add(x, *p);
    }
    y *= x;
    y = y.mul_add(z, e * -2.12194440E-4);
    y = (-z).mul_add(0.5, y);
    e.mul_add(0.693_359_375, x + y)
}

/// Cephes' `sincosf` for arguments in 0..2π.
fn sin_cos(x: f32) -> (f32, f32) {
    let j = (x * 1.273_239_544_735_16) as i32;
    let j = (j + 1) & !1;
    let y = j as f32;
    let sin_sign = (j & 4) << 29;
    let cos_sign = (!(j - 2) & 4) << 29;
    let x = y.mul_add(-0.785_156_25, x);
    let x = y.mul_add(-2.418_756_484_985_351_6e-4, x);
    let x = y.mul_add(-3.774_894_977_445_941e-8, x);
    let z = x * x;
    let c = 2.443315711809948E-5f32
        .mul_add(z, -1.388731625493765E-3)
        .mul_add(z, 4.166664568298827E-2)
        * z;
    let c = c.mul_add(z, -(z * 0.5)) + 1.0;
    let s = (-1.9515295891E-4f32)
        .mul_add(z, 8.3321608736E-3)
        .mul_add(z, -1.6666654611E-1)
        * z;
    let s = s.mul_add(x, x);
    let (sin, cos) = if j & 2 == 0 { (s, c) } else { (c, s) };
    let flip = |v: f32, sign: i32| f32::from_bits(v.to_bits() ^ sign as u32);
    (flip(sin, sin_sign), flip(cos, cos_sign))
}
