//! Conversions of whole tensors, as vector code: each element becomes a number that holds it exactly, and that number the result.

use super::element::{cast_slice, cast_slice_mut};
use super::halves::round_to_bf16;
use super::wide::{WideLoop, run_wide};
use super::{Element, Tensor};
use crate::types::DType;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// The number of elements that are converted at once. Their numbers stay in the first cache.
const BLOCK: usize = 512;

/// A number that holds elements exactly, and its conversions, which are those of `Scalar::cast`.
trait Exact: Element + Default {
    fn to_f64(self) -> f64;
    fn to_f32(self) -> f32;
    fn to_i64(self) -> i64;
    /// The integer that narrow integers take their low bits from.
    fn to_i32(self) -> i32;
    fn is_zero(self) -> bool;
}

macro_rules! floats {
    ($($t:ty),*) => { $(impl Exact for $t {
        #[inline(always)]
        fn to_f64(self) -> f64 { self as f64 }
        #[inline(always)]
        fn to_f32(self) -> f32 { self as f32 }
        #[inline(always)]
        fn to_i64(self) -> i64 {
            let x = self as f64;
            let within = (-9.223372036854776e18..9.223372036854776e18).contains(&x);
            if within { x as i64 } else { i64::MIN }
        }
        #[inline(always)]
        fn to_i32(self) -> i32 {
            let x = self as f64;
            let within = (x > -2147483649.0) & (x < 2147483648.0);
            if within { x as i32 } else { i32::MIN }
        }
        #[inline(always)]
        fn is_zero(self) -> bool { self == 0.0 }
    })* };
}
floats!(f32, f64);

impl Exact for i64 {
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self as f64
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self as f32
    }
    #[inline(always)]
    fn to_i64(self) -> i64 {
        self
    }
    #[inline(always)]
    fn to_i32(self) -> i32 {
        self as i32
    }
    #[inline(always)]
    fn is_zero(self) -> bool {
        self == 0
    }
}

/// `out[i] = f(x[i])`.
struct Each<'a, A, B, F>(&'a [A], &'a mut [B], F);

impl<A: Copy, B, F: Fn(A) -> B> WideLoop for Each<'_, A, B, F> {
    #[inline(always)]
    fn run(self) {
        self.0.iter().zip(self.1).for_each(|(&x, o)| *o = (self.2)(x));
    }
}

/// The tensor with its elements converted; `None` if a dtype is not one that fxc computes with.
pub(super) fn convert(t: &Tensor, to: DType) -> Option<Tensor> {
    let computed = |d| DType::COMPUTED.contains(&d);
    if !computed(t.dtype()) || !computed(to) {
        return None;
    }
    let mut out = Tensor::zeros(to, t.shape());
    let (size, bytes) = (t.dtype().size(), t.bytes());
    let parts = bytes.chunks(BLOCK * size);
    for (x, y) in parts.zip(out.bytes_mut().chunks_mut(BLOCK * to.size())) {
        match t.dtype() {
            DType::F64 => encode(cast_slice::<f64>(x), to, y),
            DType::I64 => encode(cast_slice::<i64>(x), to, y),
            DType::F32 => encode(cast_slice::<f32>(x), to, y),
            DType::F16 | DType::BF16 => {
                let mut wide = [0f32; BLOCK];
                let wide = &mut wide[..x.len() / size];
                if t.dtype() == DType::F16 {
                    cast_slice::<f16>(x).convert_to_f32_slice(wide);
                } else {
                    run_wide(Each(cast_slice(x), wide, bf16::to_f32));
                }
                encode(wide, to, y);
            }
            d => {
                let mut wide = [0i64; BLOCK];
                let wide = &mut wide[..x.len() / size];
                decode_integers(d, x, wide);
                encode(wide, to, y);
            }
        }
    }
    Some(out)
}

fn decode_integers(dtype: DType, x: &[u8], out: &mut [i64]) {
    match dtype {
        DType::I32 => run_wide(Each(cast_slice(x), out, |x: i32| x as i64)),
        DType::I16 => run_wide(Each(cast_slice(x), out, |x: i16| x as i64)),
        DType::I8 => run_wide(Each(cast_slice(x), out, |x: i8| x as i64)),
        DType::B8 => run_wide(Each(x, out, |x: u8| (x != 0) as i64)),
        _ => run_wide(Each(x, out, |x: u8| x as i64)),
    }
}

fn encode<A: Exact>(x: &[A], to: DType, out: &mut [u8]) {
    match to {
        DType::F64 => run_wide(Each(x, cast_slice_mut(out), A::to_f64)),
        DType::F32 => run_wide(Each(x, cast_slice_mut(out), A::to_f32)),
        DType::BF16 => run_wide(Each(x, cast_slice_mut(out), |x: A| round_to_bf16(x.to_f32()))),
        DType::I64 => run_wide(Each(x, cast_slice_mut(out), A::to_i64)),
        DType::I32 => run_wide(Each(x, cast_slice_mut(out), A::to_i32)),
        DType::I16 => run_wide(Each(x, cast_slice_mut(out), |x: A| x.to_i32() as i16)),
        DType::I8 => run_wide(Each(x, cast_slice_mut(out), |x: A| x.to_i32() as i8)),
        DType::U8 => run_wide(Each(x, out, |x: A| x.to_i32() as u8)),
        DType::F16 => {
            let mut single = [0f32; BLOCK];
            let single = &mut single[..x.len()];
            run_wide(Each(x, single, A::to_f32));
            cast_slice_mut::<f16>(out).convert_from_f32_slice(single);
        }
        _ => run_wide(Each(x, out, |x: A| !x.is_zero() as u8)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Scalar;

    #[test]
    fn conversions_are_those_of_single_elements() {
        let mut values = vec![
            0.0,
            -0.0,
            1.0,
            -1.5,
            2.9,
            -2.9,
            127.5,
            128.0,
            255.9,
            300.0,
            -129.0,
            65519.0,
            65520.0,
            1e-8,
            3e-41,
            16777217.0,
            2147483647.0,
            2147483647.5,
            2147483648.0,
            -2147483648.0,
            -2147483648.5,
            -2147483649.0,
            4294967296.0,
            9.2e18,
            9.3e18,
            -9.2e18,
            -9.3e18,
            1e30,
            -1e300,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            1.00390625,
            1.01171875,
            33.0 / 32768.0,
        ];
        values.extend((0..1000).map(|i| (i as f64 - 500.0) * 1.37));
        let scalars: Vec<Scalar> = values.iter().map(|&x| Scalar::F64(x)).collect();
        for from in DType::COMPUTED {
            let x = Tensor::from_scalars(from, &[values.len()], &scalars);
            for to in DType::COMPUTED {
                let want = Tensor::from_fn(to, x.shape(), |i| x.get(i));
                let got = convert(&x, to).expect("dtypes that fxc computes with");
                for i in 0..values.len() {
                    let (got, want) = (got.get(i), want.get(i));
                    assert!(
                        got.bits() == want.bits(),
                        "{from} {to} {:?}: {got:?} {want:?}",
                        x.get(i)
                    );
                }
            }
        }
        assert_eq!(
            convert(&Tensor::zeros(DType::F32, &[0]), DType::U8).map(|t| t.numel()),
            Some(0)
        );
    }
}
