//! Sigmoid and tanh of many f64, as vector code: the approximations of Cephes, within 3 units in the last place.
//!
//! Results do not depend on the machine: no products are fused with sums.

use crate::tensor::{WideLoop, run_wide};

/// What a [`WideLoop`] replaces each element by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Sigmoid,
    Tanh,
}

/// Replaces each element by its sigmoid.
pub(super) fn sigmoid_each(x: &mut [f64]) {
    run_wide(Apply(Function::Sigmoid, x));
}

/// Replaces each element by its tanh.
pub(super) fn tanh_each(x: &mut [f64]) {
    run_wide(Apply(Function::Tanh, x));
}

struct Apply<'a>(Function, &'a mut [f64]);

impl WideLoop for Apply<'_> {
    #[inline(always)]
    fn run(self) {
        match self.0 {
            Function::Sigmoid => {
                for x in self.1 {
                    *x = sigmoid(*x);
                }
            }
            Function::Tanh => {
                for x in self.1 {
                    *x = tanh(*x);
                }
            }
        }
    }
}

/// `exp(x)` for `x` in `-708..=708`, or NaN.
#[inline(always)]
fn exp(x: f64) -> f64 {
    // 2 ** 52 * 1.5: a sum with it has the integer in its lowest bits.
    const MAGIC: f64 = 6755399441055744.0;
    let shifted = x * std::f64::consts::LOG2_E + MAGIC;
    let n = shifted - MAGIC;
    let r = (x - n * 6.931_457_519_531_25e-1) - n * 1.428_606_820_309_417_2e-6;
    let z = r * r;
    let p = ((1.261_771_930_748_105_9e-4 * z + 3.029_944_077_074_419_6e-2) * z + 1.0) * r;
    let q = ((3.001_985_051_386_644_6e-6 * z + 2.524_483_403_496_841e-3) * z + 2.272_655_482_081_550_3e-1) * z + 2.0;
    let scale = f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52);
    (1.0 + 2.0 * (p / (q - p))) * scale
}

/// `1 / (1 + exp(-x))` without overflow on either side.
#[inline(always)]
fn sigmoid(x: f64) -> f64 {
    let below = -x.abs();
    let e = exp(if below < -708.0 { -708.0 } else { below });
    let d = 1.0 / (1.0 + e);
    let below_half = if x < -745.0 { 0.0 } else { e * d };
    if x < 0.0 { below_half } else { d }
}

#[inline(always)]
fn tanh(x: f64) -> f64 {
    let size = x.abs();
    let bounded = if size > 350.0 { 350.0 } else { size };
    let far = (1.0 - 2.0 / (exp(bounded + bounded) + 1.0)).copysign(x);
    let z = x * x;
    let p = (-9.643_991_794_250_523e-1 * z - 9.928_772_310_019_186e1) * z - 1.614_687_684_417_084_5e3;
    let q = ((z + 1.128_116_784_916_329_3e2) * z + 2.235_488_390_601_004_5e3) * z + 4.844_063_053_251_255e3;
    let near = x + x * (z * (p / q));
    // The sum of a negative zero and a positive one is positive.
    if size < 0.625 { near.copysign(x) } else { far }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_those_of_single_elements() {
        let some = (-4000..4000).map(|i| f64::from(i) * 0.0137);
        let special = [
            0.0,
            -0.0,
            1e-300,
            -1e-300,
            709.0,
            -709.0,
            1e9,
            f64::INFINITY,
            -f64::INFINITY,
        ];
        let x: Vec<f64> = some.chain(special).collect();
        let (mut s, mut t) = (x.clone(), x.clone());
        sigmoid_each(&mut s);
        tanh_each(&mut t);
        for (i, &x) in x.iter().enumerate() {
            let close = |got: f64, want: f64| (got - want).abs() <= 1e-15 * want.abs() + 1e-300;
            assert!(close(s[i], 1.0 / (1.0 + (-x).exp())), "{x} {}", s[i]);
            assert!(close(t[i], x.tanh()), "{x} {}", t[i]);
            assert_eq!(t[i].is_sign_negative(), x.is_sign_negative(), "{x}");
        }
        assert_eq!(s[x.len() - 1], 0.0);
        let mut nan = [f64::NAN; 2];
        sigmoid_each(&mut nan[..1]);
        tanh_each(&mut nan[1..]);
        assert!(nan.iter().all(|x| x.is_nan()));
    }
}
