//! Compares products and convolutions of bytes, with and without epilogues, with their definition.

use super::contract::*;
use super::pairs::{PairKernels, tests::byte_kernels};
use super::{conv, matmul};
use crate::parallel::Pool;
use crate::types::DType;
use std::ffi::c_void;

/// Bytes without a pattern, the extremes among them.
fn random(n: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        match state >> 28 {
            0 => 0,
            1 => 255,
            2 => 128,
            _ => (state >> 20) as u8,
        }
    };
    (0..n).map(|_| next()).collect()
}

fn value(input: ByteInput, byte: u8) -> i32 {
    match input {
        ByteInput::Unsigned => byte.into(),
        ByteInput::Signed => (byte as i8).into(),
    }
}

/// What [`store_low_bytes`] writes.
struct LowBytes {
    result: *mut u8,
    seen: std::sync::atomic::AtomicUsize,
}

/// An epilogue that stores the low byte of each sum, plus its column, at the sum's place in a result of bytes.
unsafe extern "C" fn store_low_bytes(context: *const c_void, tile: *const Tile) {
    // SAFETY: the plan passes a finished tile of i32, which lies in the result.
    unsafe {
        let (c, t) = (&*context.cast::<LowBytes>(), &*tile);
        c.seen.fetch_add(t.rows * t.cols, std::sync::atomic::Ordering::Relaxed);
        for (i, j) in (0..t.rows).flat_map(|i| (0..t.cols).map(move |j| (i, j))) {
            let sum = *t.data.cast::<i32>().add(i * t.data_stride + j);
            *c.result.add(t.offset + i * t.row_stride + j) = (sum as u8).wrapping_add((t.col + j) as u8);
        }
    }
}

/// Runs a plan without and with the epilogue, and compares both results with `want`, whose columns are `cols`.
fn check(name: &str, want: &[i32], cols: usize, run: impl Fn(*mut u8, Option<TileTail>)) {
    let mut sums = vec![0i32; want.len()];
    run(sums.as_mut_ptr().cast(), None);
    assert_eq!(sums, want, "{name}");
    let mut bytes = vec![0u8; want.len()];
    let context = LowBytes {
        result: bytes.as_mut_ptr(),
        seen: Default::default(),
    };
    let tail = TileTail::new(store_low_bytes, (&raw const context).cast());
    run(context.result, Some(tail));
    assert_eq!(context.seen.into_inner(), want.len(), "{name}");
    let low = |(i, &x): (usize, &i32)| (x as u8).wrapping_add((i % cols) as u8);
    assert_eq!(bytes, want.iter().enumerate().map(low).collect::<Vec<_>>(), "{name}");
}

#[test]
fn products_of_bytes_are_exact() {
    let pools = [Pool::new(1), Pool::new(2)];
    for ([m, n, k], seed) in [[1, 5, 3], [7, 64, 64], [40, 33, 130], [70, 600, 64], [3, 32, 4096]]
        .into_iter()
        .zip(1..)
    {
        for input in [ByteInput::Unsigned, ByteInput::Signed] {
            let (a, b) = (random(m * k, seed), random(n * k, seed + 100));
            let sum = |i: usize, j: usize| {
                let products = (0..k).map(|p| value(input, a[i * k + p]) * (b[j * k + p] as i8 as i32));
                products.fold(0, i32::wrapping_add)
            };
            let want: Vec<i32> = (0..m * n).map(|i| sum(i / n, i % n)).collect();
            let desc = MatMul {
                bytes: Some(input),
                ..MatMul::linear(DType::I32, m, n, k)
            };
            let cases = byte_kernels()
                .into_iter()
                .flat_map(|k| pools.iter().map(move |p| (k, p)));
            for ((kernels, pool), constant) in cases.flat_map(|c| [(c, true), (c, false)]) {
                let constants = MatMulConstants {
                    a: None,
                    b: constant.then(|| b[..].into()),
                };
                let plan = matmul::plan(kernels, Precision::F32, &desc, constants).expect("a plan");
                check(&plan.describe(), &want, n, |c, tail| {
                    let args = MatMulArgs {
                        a: a.as_ptr(),
                        b: b.as_ptr(),
                        addend: std::ptr::null(),
                        c,
                        tail,
                    };
                    // SAFETY: the operands hold the descriptor's extents.
                    unsafe { plan.run(pool, &args) };
                });
            }
        }
    }
}

/// The sums of a convolution of channels-last images by its definition, channels last too.
fn convolve(c: &Conv, input: ByteInput, x: &[u8], w: &[u8]) -> Vec<i32> {
    let out = c.output_size().expect("valid parameters");
    let ([_, h, wide], [_, kh, kw]) = (c.input, c.kernel);
    let (own, per) = (c.in_channels / c.groups, c.out_channels / c.groups);
    let mut sums = vec![];
    for at in 0..c.batch * out[1] * out[2] * c.out_channels {
        let (o, pixel) = (at % c.out_channels, at / c.out_channels);
        let (col, row, n) = (pixel % out[2], pixel / out[2] % out[1], pixel / out[2] / out[1]);
        let mut sum = 0i32;
        for (y, z) in (0..kh).flat_map(|y| (0..kw).map(move |z| (y, z))) {
            let place = |at: usize, stride: usize, tap: usize, dilation: usize, padding: usize, size: usize| {
                (at * stride + tap * dilation)
                    .checked_sub(padding)
                    .filter(|&p| p < size)
            };
            let i = place(row, c.stride[1], y, c.dilation[1], c.padding[1], h);
            let j = place(col, c.stride[2], z, c.dilation[2], c.padding[2], wide);
            let (Some(i), Some(j)) = (i, j) else { continue };
            for ch in 0..own {
                let x = x[((n * h + i) * wide + j) * c.in_channels + o / per * own + ch];
                let w = w[((o * own + ch) * kh + y) * kw + z] as i8;
                sum += value(input, x) * w as i32;
            }
        }
        sums.push(sum);
    }
    sums
}

/// A convolution of channels-last images with `groups` groups of `own` input channels.
fn conv_of([groups, own, out]: [usize; 3], size: [usize; 2], kernel: usize, stride: usize, dilation: usize) -> Conv {
    Conv {
        dtype: DType::I32,
        batch: 2,
        in_channels: groups * own,
        out_channels: groups * out,
        groups,
        stride: [1, stride, stride],
        padding: [0, kernel / 2, kernel / 2],
        dilation: [1, dilation, dilation],
        input_layout: ConvLayout::ChannelsLast,
        output_layout: ConvLayout::ChannelsLast,
        ..Conv::new2d(groups * own, groups * out, size, [kernel, kernel])
    }
}

#[test]
fn convolutions_of_bytes_are_exact() {
    let pools = [Pool::new(1), Pool::new(2)];
    // Pointwise, gathered and direct taps, depthwise, and other groups.
    for (c, seed) in [
        conv_of([1, 64, 40], [5, 6], 1, 1, 1),
        conv_of([1, 3, 33], [17, 12], 7, 2, 1),
        conv_of([1, 64, 70], [9, 9], 3, 1, 1),
        conv_of([1, 60, 32], [7, 8], 3, 2, 2),
        conv_of([40, 1, 1], [11, 9], 3, 1, 1),
        conv_of([24, 1, 1], [12, 12], 5, 2, 1),
        conv_of([130, 1, 1], [9, 21], 3, 2, 1),
        conv_of([72, 1, 1], [13, 11], 5, 1, 1),
        conv_of([16, 1, 1], [8, 7], 7, 1, 1),
        conv_of([70, 1, 1], [2, 3], 5, 1, 1),
        conv_of([16, 1, 2], [8, 6], 3, 1, 2),
        conv_of([4, 8, 6], [6, 7], 3, 1, 1),
        conv_of([5, 16, 16], [6, 7], 3, 1, 1),
        conv_of([2, 40, 40], [9, 5], 1, 2, 1),
    ]
    .into_iter()
    .zip(1..)
    {
        for input in [ByteInput::Unsigned, ByteInput::Signed] {
            let c = Conv {
                bytes: Some(input),
                ..c.clone()
            };
            let [nx, nw, ..] = c.extents().expect("valid parameters");
            let (x, w) = (random(nx, seed), random(nw, seed + 50));
            let want = convolve(&c, input, &x, &w);
            for (kernels, pool) in byte_kernels()
                .into_iter()
                .flat_map(|k| pools.iter().map(move |p| (k, p)))
            {
                let constants = ConvConstants {
                    weight: Some(w[..].into()),
                    bias: None,
                };
                let plan = conv::plan(kernels, false, Precision::F32, &c, constants).expect("a plan");
                check(&plan.describe(), &want, c.out_channels, |y, tail| {
                    let args = ConvArgs {
                        x: x.as_ptr(),
                        weight: std::ptr::null(),
                        bias: std::ptr::null(),
                        y,
                        tail,
                    };
                    // SAFETY: the operands hold the descriptor's extents.
                    unsafe { plan.run(pool, &args) };
                });
            }
        }
    }
}

/// Images whose channels are first are accepted too, without an epilogue.
#[test]
fn channels_of_bytes_may_be_first() {
    for channels in [[1, 5, 40], [1, 3, 33], [4, 1, 1]] {
        let last = conv_of(channels, [6, 5], 3, 1, 1);
        let [nx, nw, _, ny] = last.extents().expect("valid parameters");
        let (x, w) = (random(nx, 1), random(nw, 2));
        let want = convolve(&last, ByteInput::Unsigned, &x, &w);
        let first = Conv {
            bytes: Some(ByteInput::Unsigned),
            input_layout: ConvLayout::ChannelsFirst,
            output_layout: ConvLayout::ChannelsFirst,
            ..last.clone()
        };
        let to_first = |at: usize, channels: usize| {
            let (n, c, p) = (at / (channels * 30), at / 30 % channels, at % 30);
            (n * 30 + p) * channels + c
        };
        let moved: Vec<u8> = (0..nx).map(|i| x[to_first(i, last.in_channels)]).collect();
        let want: Vec<i32> = (0..ny).map(|i| want[to_first(i, last.out_channels)]).collect();
        for kernels in byte_kernels() {
            let constants = ConvConstants {
                weight: Some(w[..].into()),
                bias: None,
            };
            let plan = conv::plan(kernels, false, Precision::F32, &first, constants).expect("a plan");
            let mut y = vec![0i32; ny];
            let args = ConvArgs {
                x: moved.as_ptr(),
                weight: std::ptr::null(),
                bias: std::ptr::null(),
                y: y.as_mut_ptr().cast(),
                tail: None,
            };
            // SAFETY: the operands hold the descriptor's extents.
            unsafe { plan.run(&Pool::new(1), &args) };
            assert_eq!(y, want, "{}", plan.describe());
        }
    }
}

#[test]
fn only_constant_weights_without_bias_are_planned() {
    let good = Conv {
        bytes: Some(ByteInput::Unsigned),
        ..conv_of([1, 4, 4], [3, 3], 1, 1, 1)
    };
    let weight = [1u8; 16];
    let constants = ConvConstants {
        weight: Some(weight[..].into()),
        bias: None,
    };
    let with_bias = Conv {
        bias: true,
        ..good.clone()
    };
    let kernels = byte_kernels()[0];
    let plan = |c: &Conv, constants| conv::plan(kernels, false, Precision::F32, c, constants);
    assert!(plan(&good, constants).is_ok());
    assert!(plan(&with_bias, constants).is_err());
    assert!(plan(&good, ConvConstants::default()).is_err());
}

/// The kernels of this machine take their name from the unit.
#[test]
fn plans_name_their_unit() {
    let desc = MatMul {
        bytes: Some(ByteInput::Unsigned),
        ..MatMul::linear(DType::I32, 8, 8, 64)
    };
    let weight = [1u8; 512];
    let constants = MatMulConstants {
        a: None,
        b: Some(weight[..].into()),
    };
    let kernels: PairKernels = byte_kernels().pop().expect("portable kernels");
    let plan = matmul::plan(kernels, Precision::F32, &desc, constants).expect("a plan");
    assert_eq!(plan.describe(), "matmul int8 B packed 8x32 portable");
}
