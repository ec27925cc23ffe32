//! Conversions of whole tensors, as vector code: each element becomes a number that holds it exactly, and that number the result.

use super::element::{cast_slice, cast_slice_mut};
use super::half_rows::{round_to_f16s, widen_bf16s, widen_f16s};
use super::halves::round_to_bf16;
use super::wide::{WideLoop, run_wide};
use super::{Element, Tensor, float8};
use crate::types::DType;

/// The number of elements that are converted at once. Their numbers stay in the first cache.
const BLOCK: usize = 512;

/// A number that holds elements exactly, and its conversions, which are those of `Scalar::cast`.
trait Exact: Element + Default {
    fn to_f64(self) -> f64;
    fn to_f32(self) -> f32;
    fn to_i64(self) -> i64;
    fn to_u64(self) -> u64;
    /// The integer that narrow integers take their low bits from.
    fn to_i32(self) -> i32;
    fn is_zero(self) -> bool;
}

/// The methods that are the same for all numbers.
macro_rules! widen {
    () => {
        #[inline(always)]
        fn to_f64(self) -> f64 {
            self as f64
        }
        #[inline(always)]
        fn to_f32(self) -> f32 {
            self as f32
        }
    };
}

macro_rules! floats {
    ($($t:ty),*) => { $(impl Exact for $t {
        widen!();
        #[inline(always)]
        fn to_i64(self) -> i64 {
            let x = self as f64;
            let within = (-9.223372036854776e18..9.223372036854776e18).contains(&x);
            if within { x as i64 } else { i64::MIN }
        }
        #[inline(always)]
        fn to_u64(self) -> u64 {
            let x = self as f64;
            let above = (9.223372036854776e18..1.8446744073709552e19).contains(&x);
            let beyond = x >= 1.8446744073709552e19;
            if above { x as u64 } else if beyond { 0 } else { self.to_i64() as u64 }
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

macro_rules! integers {
    ($($t:ty),*) => { $(impl Exact for $t {
        widen!();
        #[inline(always)]
        fn to_i64(self) -> i64 { self as i64 }
        #[inline(always)]
        fn to_u64(self) -> u64 { self as u64 }
        #[inline(always)]
        fn to_i32(self) -> i32 { self as i32 }
        #[inline(always)]
        fn is_zero(self) -> bool { self == 0 }
    })* };
}
integers!(i64, u64);

/// `out[i] = f(x[i])`.
struct Each<'a, A, B, F>(&'a [A], &'a mut [B], F);

impl<A: Copy, B, F: Fn(A) -> B> WideLoop for Each<'_, A, B, F> {
    #[inline(always)]
    fn run(self) {
        self.0.iter().zip(self.1).for_each(|(&x, o)| *o = (self.2)(x));
    }
}

/// The tensor with its elements converted; `None` if a dtype is complex.
pub(super) fn convert(t: &Tensor, to: DType) -> Option<Tensor> {
    if !t.dtype().is_held() || !to.is_held() {
        return None;
    }
    let mut out = Tensor::zeros(to, t.shape());
    if to == DType::I32 && widen_integers(t.dtype(), t.bytes(), out.as_mut_slice()) {
        return Some(out);
    }
    let float8 = t.dtype().is_float8().then(|| float8_values(t.dtype(), to));
    let parts = t.bytes().chunks(BLOCK * t.dtype().size());
    for (x, y) in parts.zip(out.bytes_mut().chunks_mut(BLOCK * to.size())) {
        match &float8 {
            Some(values) => {
                let mut wide = [0f32; BLOCK];
                let wide = &mut wide[..x.len()];
                x.iter()
                    .zip(&mut *wide)
                    .for_each(|(&code, w)| *w = values[usize::from(code)]);
                encode(wide, to, y);
            }
            None => convert_block(t.dtype(), x, to, y),
        }
    }
    Some(out)
}

/// Converts narrow integers to i32 without wider numbers between; returns whether the elements are such integers.
fn widen_integers(from: DType, x: &[u8], out: &mut [i32]) -> bool {
    match from {
        DType::I16 => run_wide(Each(cast_slice(x), out, |x: i16| x as i32)),
        DType::I8 => run_wide(Each(cast_slice(x), out, |x: i8| x as i32)),
        DType::U8 => run_wide(Each(x, out, |x: u8| x as i32)),
        DType::B8 => run_wide(Each(x, out, |x: u8| (x != 0) as i32)),
        _ => return false,
    }
    true
}

/// Converts up to [`BLOCK`] elements, which are not 8-bit floats.
fn convert_block(from: DType, x: &[u8], to: DType, y: &mut [u8]) {
    match from {
        DType::F64 => encode(cast_slice::<f64>(x), to, y),
        DType::I64 => encode(cast_slice::<i64>(x), to, y),
        DType::U64 => encode(cast_slice::<u64>(x), to, y),
        DType::F32 => encode(cast_slice::<f32>(x), to, y),
        DType::F16 | DType::BF16 => {
            let mut wide = [0f32; BLOCK];
            let wide = &mut wide[..x.len() / from.size()];
            if from == DType::F16 {
                widen_f16s(cast_slice(x), wide);
            } else {
                widen_bf16s(cast_slice(x), wide);
            }
            encode(wide, to, y);
        }
        _ => {
            let mut wide = [0i64; BLOCK];
            let wide = &mut wide[..x.len() / from.size()];
            decode_integers(from, x, wide);
            encode(wide, to, y);
        }
    }
}

/// The numbers of all codes of an 8-bit float, to be converted to `to`.
fn float8_values(dtype: DType, to: DType) -> [f32; 256] {
    std::array::from_fn(|code| match float8::decode(dtype, code as u8) {
        // Rounding would keep the payload, which torch does not.
        x if x.is_nan() && to == DType::BF16 => f32::NAN,
        x => x,
    })
}

fn decode_integers(dtype: DType, x: &[u8], out: &mut [i64]) {
    match dtype {
        DType::I32 => run_wide(Each(cast_slice(x), out, |x: i32| x as i64)),
        DType::I16 => run_wide(Each(cast_slice(x), out, |x: i16| x as i64)),
        DType::I8 => run_wide(Each(cast_slice(x), out, |x: i8| x as i64)),
        DType::B8 => run_wide(Each(x, out, |x: u8| (x != 0) as i64)),
        DType::U16 => run_wide(Each(cast_slice(x), out, |x: u16| x as i64)),
        DType::U32 => run_wide(Each(cast_slice(x), out, |x: u32| x as i64)),
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
        DType::U16 => run_wide(Each(x, cast_slice_mut(out), |x: A| x.to_i32() as u16)),
        DType::U32 => run_wide(Each(x, cast_slice_mut(out), |x: A| x.to_i64() as u32)),
        DType::U64 => run_wide(Each(x, cast_slice_mut(out), A::to_u64)),
        DType::F16 => {
            let mut single = [0f32; BLOCK];
            let single = &mut single[..x.len()];
            run_wide(Each(x, single, A::to_f32));
            round_to_f16s(single, cast_slice_mut(out));
        }
        DType::B8 => run_wide(Each(x, out, |x: A| !x.is_zero() as u8)),
        to => match float8::Encoder::of(to) {
            Some(encoder) => run_wide(Each(x, out, |x: A| encoder.encode(x.to_f32()))),
            None => run_wide(Each(x, out, |x: A| float8::power_of_two(x.to_f32()))),
        },
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
        let held = || DType::all().filter(|d| d.is_held());
        for from in held() {
            let x = Tensor::from_scalars(from, &[values.len()], &scalars);
            for to in held() {
                let want = Tensor::from_fn(to, x.shape(), |i| x.get(i));
                let got = convert(&x, to).expect("dtypes that tensors hold");
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
