//! The random numbers of random ops: torch's stream on the CPU.
//!
//! The process has one stream, seeded by [`seed`] (like `torch.manual_seed`) and initially by 0. Numbers come from the Mersenne
//! twister and are drawn element by element in row-major order, so that equal seeds and equal ops in equal order give torch's
//! values bit for bit. This holds for uniform, normal (16 elements and more in torch's blocks of 16), Bernoulli and so dropout,
//! integers, permutations, exponential, multinomial and Poisson. Where torch's values depend on the machine, these are the values
//! of its portable kernels: on Intel processors torch draws Bernoulli and exponential numbers through MKL instead. torch also fills
//! tensors with permuted memory in the order of their memory.

mod blocks;
mod normal;
mod permutation;
mod twister;

use crate::types::DType;
use half::{bf16, f16};
use std::sync::{LazyLock, Mutex, PoisonError};
use twister::Twister;

static STREAM: LazyLock<Mutex<Generator>> = LazyLock::new(|| Mutex::new(Generator::new(0)));

/// Restarts the process's stream, like `torch.manual_seed`.
pub fn seed(seed: u64) {
    with_stream(|g| *g = Generator::new(seed));
}

/// Draws from the process's stream, which is locked while `f` runs.
pub fn with_stream<R>(f: impl FnOnce(&mut Generator) -> R) -> R {
    f(&mut STREAM.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Rounds `x` to `dtype`; half types are rounded via f32, as torch casts.
pub(in crate::op) fn round_to_dtype(dtype: DType, x: f64) -> f64 {
    match dtype {
        DType::F32 => x as f32 as f64,
        DType::F16 => f16::from_f32(x as f32).to_f64(),
        DType::BF16 => bf16::from_f32(x as f32).to_f64(),
        _ => x,
    }
}

/// A stream of random numbers (torch's `CPUGeneratorImpl`).
#[derive(Clone)]
pub struct Generator {
    twister: Twister,
    /// The second number of the last pair of the Box-Muller transform.
    next_normal: Option<f64>,
}

impl Generator {
    /// The stream for a seed. As in torch, only the low 32 bits of the seed are used.
    pub fn new(seed: u64) -> Generator {
        Generator {
            twister: Twister::new(seed),
            next_normal: None,
        }
    }

    /// A number in [0, 1) for computations in `dtype`: 53 random bits for f64, else 24.
    #[inline]
    pub fn unit_interval(&mut self, dtype: DType) -> f64 {
        let (bits, digits) = match dtype {
            DType::F64 => (self.twister.next_u64(), 53),
            _ => (self.twister.next_u32() as u64, 24),
        };
        (bits & ((1 << digits) - 1)) as f64 / (1u64 << digits) as f64
    }

    /// A value of `dtype` in `from..to`.
    pub fn uniform(&mut self, dtype: DType, from: f64, to: f64) -> f64 {
        let x = self.unit_interval(dtype);
        if dtype == DType::F64 {
            return x.mul_add(to - from, from);
        }
        let (from, to) = (round_to_dtype(dtype, from), round_to_dtype(dtype, to));
        let x = (x as f32).mul_add(to as f32 - from as f32, from as f32) as f64;
        // Rounding to a half type may reach the excluded upper bound.
        match round_to_dtype(dtype, x) {
            y if dtype != DType::F32 && y >= to => from,
            y => y,
        }
    }

    /// A standard normal number, computed in f64 (Box & Muller 1958). The numbers are generated in pairs.
    pub fn normal(&mut self) -> f64 {
        if let Some(x) = self.next_normal.take() {
            return x;
        }
        let (u, v) = (self.unit_interval(DType::F64), self.unit_interval(DType::F64));
        let radius = (-2.0 * (-v).ln_1p()).sqrt();
        let theta = std::f64::consts::TAU * u;
        self.next_normal = Some(radius * theta.sin());
        radius * theta.cos()
    }

    /// Whether an event of probability `p` occurs.
    pub fn bernoulli(&mut self, p: f64) -> bool {
        self.unit_interval(DType::F64) < p
    }

    /// An integer in `low..high`, which must not be empty.
    pub fn integer(&mut self, low: i64, high: i64) -> i64 {
        self.integer_in_span(low, high.wrapping_sub(low) as u64)
    }

    /// One of the `span` integers from `low` on; a span of 0 means all 2^64.
    pub fn integer_in_span(&mut self, low: i64, span: u64) -> i64 {
        if span == 0 {
            return self.twister.next_u64() as i64;
        }
        let bits = match span >= 1 << 28 {
            true => self.twister.next_u64(),
            false => self.twister.next_u32() as u64,
        };
        low.wrapping_add((bits % span) as i64)
    }

    /// An integer from 0 to the largest bound up to which `dtype` represents all integers.
    pub fn exact_integer(&mut self, dtype: DType) -> i64 {
        let below = |bits: u32| (1u64 << bits) + 1;
        match dtype {
            DType::F64 => (self.twister.next_u64() % below(53)) as i64,
            DType::F32 => (self.twister.next_u32() as u64 % below(24)) as i64,
            DType::F16 => (self.twister.next_u32() as u64 % below(11)) as i64,
            DType::BF16 => (self.twister.next_u32() as u64 % below(8)) as i64,
            DType::I64 => (self.twister.next_u64() & i64::MAX as u64) as i64,
            DType::I32 => (self.twister.next_u32() & i32::MAX as u32) as i64,
            DType::I16 => (self.twister.next_u32() & i16::MAX as u32) as i64,
            DType::I8 => (self.twister.next_u32() & i8::MAX as u32) as i64,
            DType::U8 => (self.twister.next_u32() & u8::MAX as u32) as i64,
            _ => (self.twister.next_u32() & 1) as i64,
        }
    }

    /// An exponentially distributed number.
    pub fn exponential(&mut self, lambda: f64) -> f64 {
        -1.0 / lambda * (-self.unit_interval(DType::F64)).ln_1p()
    }

    /// A Poisson-distributed number: by products of uniform numbers for small means, else by transformed rejection
    /// (Hörmann 1993).
    pub fn poisson(&mut self, mean: f64) -> i64 {
        if mean == 0.0 {
            return 0;
        }
        if mean < 10.0 {
            let (mut n, mut product, limit) = (0, 1.0, (-mean).exp());
            loop {
                product *= self.unit_interval(DType::F64);
                if product <= limit {
                    return n;
                }
                n += 1;
            }
        }
        let b = 0.931 + 2.53 * mean.sqrt();
        let a = -0.059 + 0.02483 * b;
        let inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
        let accept = 0.9277 - 3.6224 / (b - 2.0);
        loop {
            let u = self.unit_interval(DType::F64) - 0.5;
            let v = self.unit_interval(DType::F64);
            let us = 0.5 - u.abs();
            let k = ((2.0 * a / us + b) * u + mean + 0.43).floor();
            if us >= 0.07 && v <= accept {
                return truncate(k);
            }
            if k < 0.0 || (us < 0.013 && v > us) {
                continue;
            }
            let left = v.ln() + inverse_alpha.ln() - (a / (us * us) + b).ln();
            if left <= -mean + k * mean.ln() - libm::lgamma(k + 1.0) {
                return truncate(k);
            }
        }
    }
}

/// The integer as x86 converts it: NaN and numbers out of range become the least one.
fn truncate(x: f64) -> i64 {
    if x.abs() < 9_223_372_036_854_775_808.0 {
        x as i64
    } else {
        i64::MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{Tensor, ViewMut};

    #[test]
    fn poisson_numbers_of_huge_means_are_torchs() {
        for mean in [1e19, 1e30, f64::INFINITY] {
            assert_eq!(Generator::new(7).poisson(mean), i64::MIN, "{mean}");
        }
        assert_eq!(Generator::new(7).poisson(1e18) as f32, 1e18);
    }

    /// Each number is the result of torch 2.15 after `torch.manual_seed(7)`.
    #[test]
    fn numbers_are_those_of_torch() {
        let fresh = || Generator::new(7);
        let g = &mut fresh();
        let u: Vec<f64> = (0..3).map(|_| g.uniform(DType::F32, 0.0, 1.0)).collect();
        assert_eq!(u, UNIFORM);
        let normal = |dtype, n| {
            let mut t = Tensor::zeros(dtype, &[n]);
            fresh().fill_normal(&mut ViewMut::from(&mut t), 0.0, 1.0);
            t
        };
        let n = normal(DType::F32, 20);
        assert_eq!(
            n.as_slice::<f32>().iter().map(|x| x.to_bits()).collect::<Vec<_>>(),
            NORMAL
        );
        assert_eq!(normal(DType::F64, 3).as_slice::<f64>(), NORMAL_F64);
        let g = &mut fresh();
        assert_eq!((0..5).map(|_| g.integer(-3, 10)).collect::<Vec<_>>(), INTEGERS);
        let mut order = [0; 6];
        fresh().fill_permutation(&mut order);
        assert_eq!(order, PERMUTATION);
        let g = &mut fresh();
        let kept: Vec<bool> = (0..8).map(|_| g.bernoulli(0.5)).collect();
        assert_eq!(kept, KEPT);
        let g = &mut fresh();
        let p: Vec<i64> = (0..20).map(|i| g.poisson((i as f32 * 20.0 / 19.0) as f64)).collect();
        assert_eq!(p, POISSON);
    }

    #[test]
    fn half_types_stay_below_the_upper_bound() {
        let g = &mut Generator::new(3);
        assert!((0..20_000).all(|_| g.uniform(DType::BF16, 0.0, 1.0) < 1.0));
        assert_eq!(g.integer(i64::MAX - 1, i64::MAX), i64::MAX - 1);
        assert!((0..100).all(|_| g.integer(i64::MIN, i64::MAX) < i64::MAX));
    }

    const UNIFORM: [f64; 3] = [0.5349225401878357, 0.19880318641662598, 0.6592116951942444];
    const NORMAL: [u32; 20] = [
        3209819222, 1053462571, 1063657182, 3216095032, 1045116206, 1061697002, 1065681275, 3208214921, 3210301971,
        3214656600, 3181768357, 1068385573, 3221483329, 1059885533, 3215549285, 3215854825, 3210600488, 3205522110,
        3221462293, 3199640662,
    ];
    const NORMAL_F64: [f64; 3] = [-0.1467950974849952, 0.7861412987235358, 0.9468216090039564];
    const INTEGERS: [i64; 5] = [3, 9, 1, 1, 0];
    const PERMUTATION: [i64; 6] = [3, 0, 1, 5, 2, 4];
    const KEPT: [bool; 8] = [true, true, false, false, false, false, true, false];
    const POISSON: [i64; 20] = [0, 0, 4, 4, 1, 1, 3, 12, 5, 12, 9, 17, 15, 15, 15, 16, 16, 15, 19, 16];
}
