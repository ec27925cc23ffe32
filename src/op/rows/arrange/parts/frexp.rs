//! Numbers taken apart into mantissas and exponents of two.

use crate::op::rows::dense::zeros;
use crate::op::rows::fill::{run_pairs, units_per_part};
use crate::op::{Call, Meaning, Op, OpError, OpResult};
use crate::parallel::Pool;
use crate::tensor::{Tensor, ViewMut, WideLoop, round_to_bf16, round_to_f16, run_wide, widen_bf16, widen_f16};
use crate::types::{DType, TensorType, Type, Val};
use half::{bf16, f16};

pub(super) fn row() -> Op {
    Op::new(
        "frexp(Tensor self) -> (Tensor, Tensor)",
        |c, _| frexp_type(c),
        Meaning::Fill(frexp),
    )
    .doc("a mantissa in [0.5, 1) and an exponent of two")
    .spelled("aten.@.Tensor torch.@ Tensor.@")
}

fn frexp_type(c: &Call<TensorType>) -> OpResult<Type> {
    let x = c.leaf("self")?;
    if !x.dtype.is_float() {
        return Err(OpError::dtype("torch.frexp() only supports floating-point dtypes"));
    }
    let with_dtype = |dtype| {
        Val::Leaf(TensorType {
            dtype,
            shape: x.shape.clone(),
        })
    };
    Ok(Val::Tuple(vec![with_dtype(x.dtype), with_dtype(DType::I32)]))
}

fn frexp(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], pool: &Pool) -> OpResult<()> {
    let x = c.leaf("self")?;
    let [mantissas, exponents] = outs else {
        return Err(OpError::arg("self", "mantissas and exponents are two results"));
    };
    let e = exponents.as_mut_slice::<i32>();
    match x.dtype() {
        DType::F32 => take_apart(x.as_slice(), mantissas.as_mut_slice(), e, pool, of_f32),
        DType::F64 => take_apart(x.as_slice(), mantissas.as_mut_slice(), e, pool, of_f64),
        DType::F16 => take_apart(x.as_slice(), mantissas.as_mut_slice(), e, pool, of_f16),
        DType::BF16 => take_apart(x.as_slice(), mantissas.as_mut_slice(), e, pool, of_bf16),
        dtype => {
            let mut parts = zeros(DType::F64, x.shape())?;
            take_apart(x.to(DType::F64).as_slice(), parts.as_mut_slice(), e, pool, of_f64);
            mantissas.fill_from(&parts.to(dtype));
        }
    }
    Ok(())
}

fn take_apart<T: Copy + Send + Sync>(
    x: &[T],
    mantissas: &mut [T],
    exponents: &mut [i32],
    pool: &Pool,
    of: impl Fn(T) -> (T, i32) + Copy + Sync,
) {
    let len = units_per_part(x.len(), size_of::<T>() + 4, pool);
    run_pairs(pool, (mantissas, len), (exponents, len), |i, mantissas, exponents| {
        let x = &x[i * len..][..mantissas.len()];
        run_wide(Parts {
            x,
            mantissas,
            exponents,
            of,
        });
    });
}

struct Parts<'a, T, F> {
    x: &'a [T],
    mantissas: &'a mut [T],
    exponents: &'a mut [i32],
    of: F,
}

impl<T: Copy, F: Fn(T) -> (T, i32)> WideLoop for Parts<'_, T, F> {
    #[inline(always)]
    fn run(self) {
        let n = self.x.len();
        let (mantissas, exponents) = (&mut self.mantissas[..n], &mut self.exponents[..n]);
        for i in 0..n {
            (mantissas[i], exponents[i]) = (self.of)(self.x[i]);
        }
    }
}

/// Defines C's `frexp` of a float type: its bits, the number of those before the exponent, and the mask of the exponent.
macro_rules! frexp_of {
    ($name:ident, $t:ty, $bits:ty, $digits:expr, $mask:expr) => {
        #[inline(always)]
        fn $name(x: $t) -> ($t, i32) {
            // The exponent of one half.
            const HALF: $bits = $mask / 2 - 1;
            // Subnormal numbers are scaled to normal ones.
            const SCALE: $t = (1u64 << ($digits + 1)) as $t;
            let is_tiny = x.to_bits() >> $digits & $mask == 0;
            let scaled = if is_tiny { x * SCALE } else { x };
            let bits = scaled.to_bits();
            let power = bits >> $digits & $mask;
            let down = if is_tiny { $digits + 1 } else { 0 };
            let mantissa = <$t>::from_bits(bits & !($mask << $digits) | HALF << $digits);
            let is_whole = (power == 0) | (power == $mask);
            (
                if is_whole { x } else { mantissa },
                if is_whole {
                    0
                } else {
                    power as i32 - HALF as i32 - down
                },
            )
        }
    };
}
frexp_of!(of_f32, f32, u32, 23, 0xff);
frexp_of!(of_f64, f64, u64, 52, 0x7ff);

// A mantissa has the digits of its number, so that no rounding changes it.

#[inline(always)]
fn of_f16(x: f16) -> (f16, i32) {
    let (mantissa, exponent) = of_f32(widen_f16(x));
    (round_to_f16(mantissa), exponent)
}

#[inline(always)]
fn of_bf16(x: bf16) -> (bf16, i32) {
    let (mantissa, exponent) = of_f32(widen_bf16(x));
    (round_to_bf16(mantissa), exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_those_of_c() {
        let all = [
            0.0,
            -0.0,
            1.0,
            -1.5,
            0.5,
            3e-39,
            -1e-45,
            2e-310,
            -5e-324,
            1e30,
            f64::INFINITY,
            f64::MAX,
        ];
        for x in all {
            assert_eq!(of_f64(x), libm::frexp(x), "{x}");
            assert_eq!(of_f64(x).0.to_bits(), libm::frexp(x).0.to_bits(), "{x}");
            let (y, z) = (x as f32, f16::from_f64(x));
            assert_eq!(of_f32(y), libm::frexpf(y), "{x}");
            let wide = libm::frexpf(z.to_f32());
            assert_eq!(of_f16(z), (f16::from_f32(wide.0), wide.1), "{x}");
            let z = bf16::from_f64(x);
            let wide = libm::frexpf(z.to_f32());
            assert_eq!(of_bf16(z), (bf16::from_f32(wide.0), wide.1), "{x}");
        }
        assert!(of_f32(f32::NAN).0.is_nan() && of_f64(f64::NAN).1 == 0);
    }
}
