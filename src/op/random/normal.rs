//! Normal numbers by the Box-Muller transform (1958), in the order and the arithmetic of torch's CPU kernels.
//!
//! For 16 elements or more, torch transforms blocks of 16. For f32 it uses the polynomials of Cephes (`log256_ps`, `sincos256_ps`
//! of `avx_mathfun.h`), which its AVX2 build contracts to fused multiply-adds. Shorter tensors are drawn one by one in f64, and
//! also scaled by a fused multiply-add.
// The constants are written as in Cephes.
#![allow(clippy::excessive_precision)]

use super::{Generator, round_to_dtype};
use crate::tensor::{Scalar, ViewMut, WideLoop, round_to_bf16, round_to_f16, run_wide};
use crate::types::DType;
use half::{bf16, f16};

/// torch transforms this many numbers at once: pairs of the first and the second half.
const BLOCK: usize = 16;
/// The number of elements that are drawn and transformed while they are in cache. A multiple of [`BLOCK`].
const PART: usize = 1024;

impl Generator {
    /// Fills a float tensor with normal numbers.
    pub fn fill_normal(&mut self, out: &mut ViewMut<'_>, mean: f64, std: f64) {
        let dtype = out.dtype();
        let n = out.bytes_mut().len() / dtype.size();
        if n < BLOCK {
            for i in 0..n {
                let x = round_to_dtype(dtype, self.normal().mul_add(std, mean));
                Scalar::from_f64(dtype, x).write(out.bytes_mut(), i);
            }
            return;
        }
        match dtype {
            DType::F32 => self.normal_f32(out.as_mut_slice(), mean as f32, std as f32),
            DType::F64 => self.normal_f64(out.as_mut_slice(), mean, std),
            DType::F16 => self.normal_half(out.as_mut_slice::<f16>(), round_to_f16, mean as f32, std as f32),
            _ => self.normal_half(out.as_mut_slice::<bf16>(), round_to_bf16, mean as f32, std as f32),
        }
    }

    fn normal_f32(&mut self, out: &mut [f32], mean: f32, std: f32) {
        for part in out.chunks_mut(PART) {
            self.fill_unit_f32(part);
            run_wide(NormalBlocks(part, mean, std));
        }
        if let Some(tail) = last_block(out) {
            self.fill_unit_f32(tail);
            run_wide(NormalBlocks(tail, mean, std));
        }
    }

    fn normal_f64(&mut self, out: &mut [f64], mean: f64, std: f64) {
        for part in out.chunks_mut(PART) {
            self.fill_unit_f64(part);
            transform_blocks_f64(part, mean, std);
        }
        if let Some(tail) = last_block(out) {
            self.fill_unit_f64(tail);
            transform_blocks_f64(tail, mean, std);
        }
    }

    /// Half types are computed in f32, and draw for whole blocks only.
    fn normal_half<T>(&mut self, out: &mut [T], round: impl Fn(f32) -> T, mean: f32, std: f32) {
        let mut wide = [0f32; PART];
        let mut draw = |out: &mut [T]| {
            let wide = &mut wide[..out.len()];
            self.fill_unit_f32(wide);
            run_wide(NormalBlocks(wide, mean, std));
            out.iter_mut().zip(&*wide).for_each(|(o, &x)| *o = round(x));
        };
        let whole = out.len() - out.len() % BLOCK;
        out[..whole].chunks_mut(PART).for_each(&mut draw);
        if let Some(tail) = last_block(out) {
            draw(tail);
        }
    }
}

/// The last block, which is drawn again if the elements are not whole blocks.
fn last_block<T>(out: &mut [T]) -> Option<&mut [T]> {
    let n = out.len();
    (!n.is_multiple_of(BLOCK)).then(|| &mut out[n - BLOCK..])
}

/// Uniform numbers that become normal ones of this mean and standard deviation, block by block.
struct NormalBlocks<'a>(&'a mut [f32], f32, f32);

impl WideLoop for NormalBlocks<'_> {
    #[inline(always)]
    fn run(self) {
        let NormalBlocks(numbers, mean, std) = self;
        for block in numbers.as_chunks_mut::<BLOCK>().0 {
            let (a, b) = block.split_at_mut(BLOCK / 2);
            for (a, b) in a.iter_mut().zip(b) {
                (*a, *b) = pair_f32(*a, *b, mean, std);
            }
        }
    }
}

fn transform_blocks_f64(numbers: &mut [f64], mean: f64, std: f64) {
    for block in numbers.as_chunks_mut::<BLOCK>().0 {
        let (a, b) = block.split_at_mut(BLOCK / 2);
        for (a, b) in a.iter_mut().zip(b) {
            (*a, *b) = pair_f64(*a, *b, mean, std);
        }
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

#[inline(always)]
fn pair_f32(a: f32, b: f32, mean: f32, std: f32) -> (f32, f32) {
    let radius = (-2.0 * cephes_ln(1.0 - a)).sqrt();
    let (sin, cos) = sin_cos(2.0 * std::f32::consts::PI * b);
    ((radius * cos).mul_add(std, mean), (radius * sin).mul_add(std, mean))
}

/// Cephes' `logf` for positive, finite arguments.
#[inline(always)]
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
#[inline(always)]
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
