//! Compares Winograd's convolutions with sums of products in f64.

use super::super::direct::Direct;
use super::super::{ConvPlan, F32ConvPlan, Method};
use super::{Winograd, WinogradWay, choose_way, extra_weight_bytes};
use crate::math::contract::{Activation, Conv, ConvArgs, ConvConstants, ConvLayout};
use crate::parallel::Pool;
use crate::target::{Isa, Target};
use crate::types::DType;
use half::bf16;
use proptest::prelude::*;

const CASES: u32 = if cfg!(debug_assertions) { 20 } else { 300 };

fn uniform(n: usize, seed: &mut u64) -> Vec<f32> {
    let mut next = || {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*seed >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn bytes(v: &[f32]) -> &[u8] {
    // SAFETY: an f32 is four readable bytes.
    unsafe { std::slice::from_raw_parts(v.as_ptr().cast(), 4 * v.len()) }
}

/// The index of element `(c, p)` of image `n`.
fn at(layout: ConvLayout, channels: usize, pixels: usize, n: usize, c: usize, p: usize) -> usize {
    match layout {
        ConvLayout::ChannelsFirst => (n * channels + c) * pixels + p,
        ConvLayout::ChannelsLast => (n * pixels + p) * channels + c,
    }
}

fn run(isa: Isa, conv: &Conv, (side, fresh): (usize, bool), pool: &Pool, x: &[f32], w: &[f32], b: &[f32]) -> Vec<f32> {
    let constants = ConvConstants {
        weight: Some(bytes(w).into()),
        bias: conv.bias.then(|| bytes(b).into()),
    };
    let method = Winograd::new(isa, conv, WinogradWay { side, fresh }).expect("a plan");
    let plan = F32ConvPlan::new(Box::new(method), conv, constants);
    run_plan(&plan, conv, pool, x, 77f32)
}

/// The result of a plan with constant parameters, whose elements were `old` before.
fn run_plan<T: Copy>(plan: &F32ConvPlan, conv: &Conv, pool: &Pool, x: &[T], old: T) -> Vec<T> {
    let mut y = vec![old; conv.extents().expect("legal")[3]];
    let args = ConvArgs {
        x: x.as_ptr().cast(),
        weight: std::ptr::null(),
        bias: std::ptr::null(),
        y: y.as_mut_ptr().cast(),
        tail: None,
    };
    // SAFETY: the operands hold the descriptor's extents.
    unsafe { plan.run(pool, &args) };
    y
}

/// The sums in f64, in the output's layout.
fn sums(conv: &Conv, x: &[f32], w: &[f32], b: &[f32]) -> Vec<f64> {
    let [_, h, wd] = conv.input;
    let [_, oh, ow] = conv.output_size().expect("legal");
    let (ci, co) = (conv.in_channels, conv.out_channels);
    let mut y = vec![0f64; conv.batch * co * oh * ow];
    for n in 0..conv.batch {
        for o in 0..co {
            for p in 0..oh * ow {
                let mut s = if conv.bias { b[o] as f64 } else { 0.0 };
                for t in 0..9 {
                    let (i, j) = (p / ow + t / 3, p % ow + t % 3);
                    let (i, j) = (i.wrapping_sub(conv.padding[1]), j.wrapping_sub(conv.padding[2]));
                    for c in (0..ci).filter(|_| i < h && j < wd) {
                        let v = x[at(conv.input_layout, ci, h * wd, n, c, i * wd + j)];
                        s += v as f64 * w[(o * ci + c) * 9 + t] as f64;
                    }
                }
                let (lo, hi) = conv.activation.bounds().unwrap_or((f32::NEG_INFINITY, f32::INFINITY));
                y[at(conv.output_layout, co, oh * ow, n, o, p)] = s.clamp(lo as f64, hi as f64);
            }
        }
    }
    y
}

fn conv() -> impl Strategy<Value = (Conv, u64)> {
    let layout = || prop_oneof![Just(ConvLayout::ChannelsFirst), Just(ConvLayout::ChannelsLast)];
    let image = (1..20usize, 1..20usize, 0..4usize, 0..4usize);
    let rest = (any::<bool>(), any::<bool>(), layout(), layout(), any::<u64>());
    ((1..4usize, 1..40usize, 1..70usize), image, rest).prop_map(|((batch, c, k), (h, w, ph, pw), rest)| {
        let (bias, relu, input_layout, output_layout, seed) = rest;
        let conv = Conv {
            batch,
            padding: [0, ph, pw],
            bias,
            input_layout,
            output_layout,
            activation: if relu { Activation::Relu } else { Activation::None },
            ..Conv::new2d(c, k, [h, w], [3, 3])
        };
        (conv, seed)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn tiles_agree_with_the_sums((conv, mut seed) in conv()) {
        let Some([nx, nw, ..]) = conv.extents().filter(|e| e[3] > 0) else { return Ok(()) };
        let (x, w, b) = (uniform(nx, &mut seed), uniform(nw, &mut seed), uniform(conv.out_channels, &mut seed));
        let want = sums(&conv, &x, &w, &b);
        let scale = (9 * conv.in_channels) as f64;
        for isa in Isa::available() {
            for side in [(2, false), (4, false), (2, true), (4, true)] {
                let one = run(isa, &conv, side, &Pool::new(1), &x, &w, &b);
                for (i, (&y, &z)) in one.iter().zip(&want).enumerate() {
                    prop_assert!((y as f64 - z).abs() <= 2e-6 * scale, "{isa} {side:?} element {i}: {y} and {z}");
                }
                let three = run(isa, &conv, side, &Pool::new(3), &x, &w, &b);
                prop_assert!(one.iter().zip(&three).all(|(a, b)| a.to_bits() == b.to_bits()), "threads change the result");
            }
        }
    }
}

/// bf16 is widened and rounded by the transforms. Borders, partial tiles and partial vectors of channels.
#[test]
fn transforms_read_and_write_bf16() {
    let bits = |v: &[f32]| v.iter().map(|&x| bf16::from_f32(x).to_bits()).collect::<Vec<u16>>();
    let widen = |v: &[u16]| v.iter().map(|&x| bf16::from_bits(x).to_f32()).collect::<Vec<f32>>();
    let conv = Conv {
        dtype: DType::BF16,
        batch: 2,
        padding: [0, 1, 2],
        bias: true,
        input_layout: ConvLayout::ChannelsLast,
        output_layout: ConvLayout::ChannelsLast,
        activation: Activation::Relu,
        ..Conv::new2d(21, 37, [11, 6], [3, 3])
    };
    let (mut seed, [nx, nw, nb, _]) = (11, conv.extents().expect("legal"));
    let (x, w, b) = (
        bits(&uniform(nx, &mut seed)),
        uniform(nw, &mut seed),
        uniform(nb, &mut seed),
    );
    let want = sums(&conv, &widen(&x), &w, &b);
    for (isa, side, fresh) in Isa::available()
        .into_iter()
        .flat_map(|i| [(i, 2, false), (i, 4, false), (i, 4, true)])
    {
        let method = Winograd::new(isa, &conv, WinogradWay { side, fresh }).expect("a plan");
        let constants = ConvConstants {
            weight: Some(bytes(&w).into()),
            bias: Some(bytes(&b).into()),
        };
        let plan = F32ConvPlan::new(Box::new(method), &conv, constants);
        for threads in [1, 3] {
            let y = run_plan(&plan, &conv, &Pool::new(threads), &x, 0u16);
            for (y, z) in widen(&y).into_iter().zip(&want) {
                assert!(
                    (y as f64 - z).abs() <= z.abs() / 256.0 + 1e-4,
                    "{isa} {side} {fresh}: {y} and {z}"
                );
            }
        }
    }
}

/// Compares the root mean square of the error, relative to that of the result, with the documented bounds.
#[test]
fn errors_are_those_documented() {
    let conv = Conv {
        padding: [0, 1, 1],
        ..Conv::new2d(256, 32, [8, 8], [3, 3])
    };
    let mut seed = 5;
    let (x, w) = (uniform(256 * 64, &mut seed), uniform(32 * 256 * 9, &mut seed));
    let x: Vec<f32> = x.iter().map(|v| v.max(0.0)).collect();
    let want = sums(&conv, &x, &w, &[]);
    let rms = |v: &mut dyn Iterator<Item = f64>| v.map(|e| e * e).sum::<f64>().sqrt();
    let size = rms(&mut want.iter().copied());
    for (side, most) in [
        ((2, false), 6e-7),
        ((4, false), 2e-6),
        ((2, true), 6e-7),
        ((4, true), 2e-6),
    ] {
        let got = run(Target::native().isa(), &conv, side, &Pool::new(1), &x, &w, &[]);
        let error = rms(&mut got.iter().zip(&want).map(|(&y, z)| y as f64 - z)) / size;
        assert!(error < most, "side {side:?}: {error:e}");
        println!("side {side:?}: {error:e}");
    }
}

#[test]
fn it_is_chosen_where_it_pays() {
    let square = |c: usize, size: usize| Conv {
        padding: [0, 1, 1],
        ..Conv::new2d(c, c, [size, size], [3, 3])
    };
    let ways = |side: usize, fresh: bool| Some(WinogradWay { side, fresh });
    assert_eq!(choose_way(&square(64, 56), true, 1), ways(4, false));
    assert_eq!(choose_way(&square(64, 56), false, 1), ways(4, true));
    assert_eq!(extra_weight_bytes(&square(64, 56), 1), 27 * 4 * 64 * 64);
    assert_eq!(choose_way(&square(256, 14), false, 1), ways(2, true));
    assert_eq!(choose_way(&square(512, 7), false, 1), ways(2, true));
    assert_eq!(choose_way(&square(128, 4), false, 1), None);
    assert_eq!(extra_weight_bytes(&square(512, 7), 1), 7 * 4 * 512 * 512);
    let many = Conv {
        batch: 8,
        ..square(512, 7)
    };
    assert_eq!(choose_way(&many, false, 1), ways(4, true));
    assert_eq!(
        (
            choose_way(&square(4, 56), true, 1),
            extra_weight_bytes(&square(4, 56), 1)
        ),
        (None, 0)
    );
    let strided = Conv {
        stride: [1, 2, 2],
        ..square(64, 56)
    };
    assert_eq!(choose_way(&strided, true, 1), None);
    let narrow = |c: usize, size: usize| Conv {
        dtype: DType::BF16,
        input_layout: ConvLayout::ChannelsLast,
        output_layout: ConvLayout::ChannelsLast,
        ..square(c, size)
    };
    // The direct method with twice the rate is beaten on large images only, and one with eight times never.
    assert_eq!(choose_way(&narrow(64, 56), true, 2), ways(4, false));
    assert_eq!(extra_weight_bytes(&narrow(64, 56), 2), (4 * 36 - 2 * 9) * 64 * 64);
    assert_eq!(choose_way(&narrow(256, 14), true, 2), None);
    assert_eq!(choose_way(&narrow(64, 56), true, 8), None);
    // With few channels, transforms take most of the time.
    assert_eq!(choose_way(&narrow(32, 256), true, 2), None);
    let first = Conv {
        input_layout: ConvLayout::ChannelsFirst,
        ..narrow(64, 56)
    };
    assert_eq!(choose_way(&first, true, 2), None);
}

/// Transformed weights need the announced number of bytes. Other forms of a weight are shared by all sizes.
#[test]
fn packed_weights_are_as_large_as_said_or_shared_by_sizes() {
    for channels in [16, 64, 96, 128, 192, 256, 512] {
        for ((size, batch), room) in [(7, 1), (14, 1), (56, 1), (7, 8), (28, 8)]
            .into_iter()
            .flat_map(|size| [(size, true), (size, false)])
        {
            let conv = Conv {
                padding: [0, 1, 1],
                batch,
                ..Conv::new2d(channels, channels, [size, size], [3, 3])
            };
            let plain = Direct::new(Target::native().isa(), &conv).expect("a plan");
            let Some(way) = choose_way(&conv, room, 1) else {
                continue;
            };
            assert_eq!(way.fresh, !room);
            let method = Winograd::new(Target::native().isa(), &conv, way).expect("a plan");
            let more = method.packed_len() - plain.packed_len();
            match room {
                // Zeros fill up the last panel.
                true if channels < 64 => assert!(4 * more >= extra_weight_bytes(&conv, 1)),
                true => assert_eq!(4 * more, extra_weight_bytes(&conv, 1)),
                false => assert_eq!((method.packing_key(), more), (plain.packing_key(), 0)),
            }
        }
    }
}
