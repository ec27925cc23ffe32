//! Matrix product, convolution and attention directly from their definitions, over [`Tensor`]s.
//!
//! Floats of every width accumulate in f64 and round once at the end. Integers wrap. There is no blocking and no
//! threading, so the code is simple enough to trust.

use super::add_plane;
use crate::math::contract::{Conv, ConvLayout};
use crate::math::number::Number;
use crate::tensor::{Element, Scalar, Tensor, contiguous_strides};
use crate::types::{Category, DType};

/// The types that the reference accumulates in: f64 for floats, i64 for integers.
trait Sum: Number {
    /// `x`, rounded or wrapped.
    fn from_i64(x: i64) -> Self;
    /// The value as f64.
    fn to_f64(self) -> f64;
    /// The value as i64.
    fn to_i64(self) -> i64;
}

macro_rules! sums {
    ($($t:ty),*) => { $(
        impl Sum for $t {
            fn from_i64(x: i64) -> $t { x as $t }
            fn to_f64(self) -> f64 { self as f64 }
            fn to_i64(self) -> i64 { self as i64 }
        }
    )* };
}
sums!(f64, i64);

/// The elements converted to the accumulation type: f64 for floats, i64 for integers.
fn widen_elements<T: Sum>(t: &Tensor) -> Vec<T> {
    fn convert_elements<E: Element, T: Sum>(t: &Tensor, f: impl Fn(E) -> f64) -> Vec<T> {
        t.as_slice::<E>().iter().map(|&x| T::from_f64(f(x))).collect()
    }
    match t.dtype() {
        DType::F32 => convert_elements::<f32, T>(t, |x| x as f64),
        DType::F64 => convert_elements::<f64, T>(t, |x| x),
        DType::I64 => t.as_slice::<i64>().iter().map(|&x| T::from_i64(x)).collect(),
        _ => (0..t.numel())
            .map(|i| match t.get(i) {
                Scalar::Int(_, x) => T::from_i64(x),
                s => T::from_f64(s.to_f64()),
            })
            .collect(),
    }
}

/// The sums rounded (or wrapped) to `dtype`.
fn narrow_sums<T: Sum>(dtype: DType, shape: &[usize], sums: &[T]) -> Tensor {
    if dtype == DType::F32 {
        let v: Vec<f32> = sums.iter().map(|x| x.to_f64() as f32).collect();
        return Tensor::from_slice(shape, &v);
    }
    Tensor::from_fn(dtype, shape, |i| match dtype.category() {
        Category::Int => Scalar::from_i64(dtype, sums[i].to_i64()),
        _ => Scalar::F64(sums[i].to_f64()),
    })
}

/// `a[…, m, k] · b[…, k, n]` with equal batch dimensions and dtypes: `torch.bmm` for any number of batch dimensions.
/// Panics if the shapes do not match.
pub(in crate::math) fn matmul_ref(a: &Tensor, b: &Tensor) -> Tensor {
    let (ra, rb) = (a.rank(), b.rank());
    assert!(ra >= 2 && ra == rb && a.dtype() == b.dtype(), "operands of matmul_ref");
    let (m, k, n) = (a.shape()[ra - 2], a.shape()[ra - 1], b.shape()[rb - 1]);
    assert_eq!((&a.shape()[..ra - 2], k), (&b.shape()[..rb - 2], b.shape()[rb - 2]));
    let shape = [&a.shape()[..ra - 1], &[n]].concat();
    match a.dtype().category() {
        Category::Int => narrow_sums(a.dtype(), &shape, &matmul_sums::<i64>(a, b, m, k, n)),
        _ => narrow_sums(a.dtype(), &shape, &matmul_sums::<f64>(a, b, m, k, n)),
    }
}

fn matmul_sums<T: Sum>(a: &Tensor, b: &Tensor, m: usize, k: usize, n: usize) -> Vec<T> {
    let (x, y) = (widen_elements::<T>(a), widen_elements::<T>(b));
    let batch: usize = a.shape()[..a.rank() - 2].iter().product();
    let mut c = vec![T::default(); batch * m * n];
    for i in 0..batch * m {
        let c = &mut c[i * n..][..n];
        for p in 0..k {
            let (f, row) = (x[i * k + p], &y[(i / m * k + p) * n..][..n]);
            for (c, &y) in c.iter_mut().zip(row) {
                *c = c.add(f.mul(y));
            }
        }
    }
    c
}

/// The convolution that `conv` describes, without its activation. `x` is `[N, C, D, H, W]`, `w` is in torch's order
/// with three spatial dimensions, and the result is `[N, O, D, H, W]`. Missing dimensions have size 1. Supports only
/// [`ConvLayout::ChannelsFirst`]. Panics if the shapes do not match the descriptor or the descriptor is invalid.
pub(in crate::math) fn conv_ref(x: &Tensor, w: &Tensor, bias: Option<&Tensor>, conv: &Conv) -> Tensor {
    assert!(conv.input_layout == ConvLayout::ChannelsFirst && conv.output_layout == ConvLayout::ChannelsFirst);
    let [nx, nw, ..] = conv.extents().expect("a legal convolution");
    assert_eq!((x.numel(), w.numel()), (nx, nw), "operands of conv_ref");
    let [d, h, wd] = conv.output_size().expect("a legal convolution");
    let shape = [conv.batch, conv.out_channels, d, h, wd];
    match x.dtype().category() {
        Category::Int => narrow_sums(x.dtype(), &shape, &conv_sums::<i64>(x, w, bias, conv)),
        _ => narrow_sums(x.dtype(), &shape, &conv_sums::<f64>(x, w, bias, conv)),
    }
}

fn conv_sums<T: Sum>(x: &Tensor, w: &Tensor, bias: Option<&Tensor>, c: &Conv) -> Vec<T> {
    let (x, w) = (widen_elements::<T>(x), widen_elements::<T>(w));
    let bias = bias.map(widen_elements::<T>);
    let out = c.output_size().expect("checked by the caller");
    let (in_size, out_size): (usize, usize) = (c.input.iter().product(), out.iter().product());
    let taps: usize = c.kernel.iter().product();
    let (gi, go) = (c.in_channels / c.groups, c.out_channels / c.groups);
    let mut y = vec![T::default(); c.batch * c.out_channels * out_size];
    for image in 0..c.batch {
        for o in 0..c.out_channels {
            let y = &mut y[(image * c.out_channels + o) * out_size..][..out_size];
            y.fill(bias.as_ref().map_or(T::default(), |b| b[o]));
            for i in 0..gi {
                let channel = o / go * gi + i;
                let x = &x[(image * c.in_channels + channel) * in_size..][..in_size];
                let place = if c.transposed {
                    channel * go + o % go
                } else {
                    o * gi + i
                };
                add_plane(c, out, x, &w[place * taps..][..taps], y);
            }
        }
    }
    y
}

/// `scaled_dot_product_attention(q, k, v, mask, is_causal, scale)` without dropout: q `[B, H, L, E]`, k
/// `[B, Hk, S, E]`, v `[B, Hk, S, Ev]`. The mask (b8 or float) broadcasts to `[B, H, L, S]`. Rows whose keys are all
/// masked become zero. Panics if the shapes do not match.
pub(in crate::math) fn attention_ref(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    masks: &[&Tensor],
    causal: bool,
    scale: f64,
) -> Tensor {
    let (&[b, h, l, e], &[kb, hk, s, ke]) = (q.shape(), k.shape()) else {
        panic!("attention_ref expects 4-D operands")
    };
    let ev = v.shape()[3];
    assert_eq!(
        (b, e, &[b, hk, s][..]),
        (kb, ke, &v.shape()[..3]),
        "operands of attention_ref"
    );
    let (qd, kd, vd) = (
        widen_elements::<f64>(q),
        widen_elements::<f64>(k),
        widen_elements::<f64>(v),
    );
    let masks: Vec<_> = masks.iter().map(|m| (m, mask_strides(m, [b, h, l, s]))).collect();
    let mut out = vec![0f64; b * h * l * ev];
    for row in 0..b * h * l {
        let (bi, hi, li) = (row / (h * l), row / l % h, row % l);
        let kv = (bi * hk + hi / (h / hk)) * s;
        let score = |j: usize| {
            let dot: f64 = (0..e).map(|i| qd[row * e + i] * kd[(kv + j) * e + i]).sum();
            let masked = masks
                .iter()
                .fold(dot * scale, |x, (m, strides)| add_mask(x, m, strides, [bi, hi, li, j]));
            if causal && j > li { f64::NEG_INFINITY } else { masked }
        };
        let mut p: Vec<f64> = (0..s).map(score).collect();
        softmax(&mut p);
        for (j, &p) in p.iter().enumerate() {
            for i in 0..ev {
                out[row * ev + i] += p * vd[(kv + j) * ev + i];
            }
        }
    }
    narrow_sums(q.dtype(), &[b, h, l, ev], &out)
}

/// The score `x` with the element of a mask applied: added, or minus infinity where a b8 mask is false.
fn add_mask(x: f64, mask: &Tensor, strides: &[usize; 4], index: [usize; 4]) -> f64 {
    let element = mask.get(index.iter().zip(strides).map(|(i, s)| i * s).sum());
    match mask.dtype() {
        DType::B8 if element.to_bool() => x,
        DType::B8 => f64::NEG_INFINITY,
        _ => x + element.to_f64(),
    }
}

/// Strides of a mask broadcast to `to`.
fn mask_strides(m: &Tensor, to: [usize; 4]) -> [usize; 4] {
    let own = contiguous_strides(m.shape());
    let pad = 4 - m.rank();
    std::array::from_fn(|i| match i.checked_sub(pad) {
        Some(j) if m.shape()[j] == to[i] && to[i] != 1 => own[j],
        Some(j) => {
            assert_eq!(m.shape()[j], 1, "a mask broadcasts");
            0
        }
        None => 0,
    })
}

/// torch's safe softmax: all zeros if every score is minus infinity.
fn softmax(p: &mut [f64]) {
    let max = p.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if max == f64::NEG_INFINITY && !p.iter().any(|x| x.is_nan()) {
        p.fill(0.0);
        return;
    }
    p.iter_mut().for_each(|x| *x = (*x - max).exp());
    let sum: f64 = p.iter().sum();
    p.iter_mut().for_each(|x| *x /= sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_wrap_and_round_once() {
        let a = Tensor::from_slice::<i8>(&[1, 2], &[100, 100]);
        let b = Tensor::from_slice::<i8>(&[2, 1], &[2, 1]);
        assert_eq!(matmul_ref(&a, &b).as_slice::<i8>(), &[300i64 as i8]);
        let a = Tensor::from_slice::<f32>(&[1, 3], &[1e8, 1.0, -1e8]);
        let b = Tensor::from_slice::<f32>(&[3, 1], &[1.0; 3]);
        assert_eq!(matmul_ref(&a, &b).as_slice::<f32>(), &[1.0]);
    }

    /// Values from torch 2.15.
    #[test]
    fn convolutions_are_those_of_torch() {
        let x = Tensor::from_fn(DType::F32, &[1, 1, 1, 3, 3], |i| Scalar::F32(i as f32));
        let w = Tensor::from_slice::<f32>(&[1, 1, 1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
        let conv = Conv::new2d(1, 1, [3, 3], [2, 2]);
        assert_eq!(
            conv_ref(&x, &w, None, &conv).as_slice::<f32>(),
            &[27.0, 37.0, 57.0, 67.0]
        );
        let conv = Conv {
            transposed: true,
            stride: [1, 2, 2],
            padding: [0, 1, 1],
            ..conv
        };
        let want = [
            0.0, 3.0, 4.0, 6.0, 6.0, 4.0, 8.0, 5.0, 12.0, 12.0, 16.0, 15.0, 12.0, 7.0, 14.0, 8.0,
        ];
        let y = conv_ref(&x, &w, None, &conv);
        assert_eq!(y.shape(), &[1, 1, 1, 4, 4]);
        assert_eq!(y.as_slice::<f32>(), &want);
    }

    /// `x[i] = i % 7 - 3`, `w[i] = i % 5 - 2` in torch 2.15: `conv_transpose1d(x[2, 4, 5], w[4, 3, 3], stride=2,
    /// padding=1, dilation=2, output_padding=1, groups=2)`.
    #[test]
    fn transposed_groups_are_those_of_torch() {
        let conv = Conv {
            batch: 2,
            in_channels: 4,
            out_channels: 6,
            groups: 2,
            stride: [1, 1, 2],
            padding: [0, 0, 1],
            dilation: [1, 1, 2],
            output_padding: [0, 0, 1],
            transposed: true,
            ..Conv::new2d(1, 1, [1, 5], [1, 3])
        };
        let y = ramp_conv(&conv, 40, 36);
        assert_eq!(y.shape(), &[2, 6, 1, 1, 12]);
        // Only odd positions are listed: the others are zero.
        let want = [
            9, -10, 0, 3, 3, 1, -6, 8, 5, -5, -3, -4, -6, 1, 5, 2, 1, 1, -1, -1, 3, 0, -8, 10, 3, -1, -4, 0, 1, -3, -3,
            4, 4, -10, 5, -1,
        ];
        for (i, &v) in y.as_slice::<f32>()[..72].iter().enumerate() {
            assert_eq!(v as i32, if i % 2 == 0 { 0 } else { want[i / 2] }, "element {i}");
        }
    }

    /// The same ramps: `conv3d(x[1, 4, 3, 4, 3], w[4, 2, 2, 1, 2], stride=(1, 2, 1), padding=(1, 0, 1),
    /// dilation=(1, 1, 2), groups=2)`.
    #[test]
    fn grouped_volumes_are_those_of_torch() {
        let conv = Conv {
            in_channels: 4,
            out_channels: 4,
            groups: 2,
            input: [3, 4, 3],
            kernel: [2, 1, 2],
            stride: [1, 2, 1],
            padding: [1, 0, 1],
            dilation: [1, 1, 2],
            ..Conv::new2d(1, 1, [1, 1], [1, 1])
        };
        let y = ramp_conv(&conv, 144, 32);
        assert_eq!(y.shape(), &[1, 4, 4, 2, 3]);
        let want = [
            -2, 1, 1, -3, 1, 2, 7, -3, 5, 9, -7, -1, 4, 10, -14, -8, 6, 1, -5, -6, 2, -2, -3, 2, 4, 3, 2, 7, -8, 2,
        ];
        let got: Vec<i32> = y.as_slice::<f32>()[..30].iter().map(|&v| v as i32).collect();
        assert_eq!(got, want);
    }

    fn ramp_conv(conv: &Conv, nx: usize, nw: usize) -> Tensor {
        let x = Tensor::from_fn(DType::F32, &[nx], |i| Scalar::F32((i % 7) as f32 - 3.0));
        let w = Tensor::from_fn(DType::F32, &[nw], |i| Scalar::F32((i % 5) as f32 - 2.0));
        conv_ref(&x, &w, None, conv)
    }

    #[test]
    fn masked_rows_are_zero() {
        let q = Tensor::from_slice::<f32>(&[1, 1, 2, 1], &[1.0, 1.0]);
        let mask = Tensor::from_fn(DType::B8, &[2, 2], |i| Scalar::Bool(i < 2));
        let y = attention_ref(&q, &q, &q, &[&mask], false, 1.0);
        assert_eq!(y.as_slice::<f32>(), &[1.0, 0.0]);
    }
}
