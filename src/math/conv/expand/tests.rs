//! Expansions match the two separate convolutions bit for bit.

use super::*;
use crate::math::contract::{Activation, ConvArgs, ConvLayout, Precision};
use crate::math::pairs::PairKernels;
use crate::target::PairUnit;
use proptest::prelude::*;
use std::ffi::c_void;

/// The number of random cases; more if the kernels are optimised.
const CASES: u32 = if cfg!(debug_assertions) { 40 } else { 600 };

fn expansion() -> impl Strategy<Value = Expansion> {
    let taps = || prop_oneof![Just(3usize), Just(5usize), Just(7usize)];
    let act = || {
        prop_oneof![
            Just(Activation::None),
            Just(Activation::Relu),
            Just(Activation::Clamp(-1.0, 2.0))
        ]
    };
    let sizes = (1..3usize, 1..20usize, 2..90usize, 1..24usize, 1..40usize);
    let window = (taps(), taps(), 1..4usize, 1..3usize, 0..4usize, 0..4usize);
    let fits = |e: &Expansion| e.is_supported();
    (sizes, window, act(), act(), any::<[bool; 2]>())
        .prop_map(
            |((batch, c, between, h, w), (kh, kw, sh, sw, ph, pw), one, two, bias)| {
                let first = Conv {
                    batch,
                    bias: bias[0],
                    activation: one,
                    input_layout: ConvLayout::ChannelsLast,
                    output_layout: ConvLayout::ChannelsLast,
                    ..Conv::new2d(c, between, [h, w], [1, 1])
                };
                let second = Conv {
                    in_channels: between,
                    groups: between,
                    kernel: [1, kh, kw],
                    stride: [1, sh, sw],
                    padding: [0, ph, pw],
                    bias: bias[1],
                    activation: two,
                    ..first.clone()
                };
                Expansion { first, second }
            },
        )
        .prop_filter("they fit together", fits)
}

fn data(n: usize, seed: usize) -> Vec<f32> {
    (0..n)
        .map(|i| ((i * 7919 + seed * 31) % 1013) as f32 * 0.002 - 1.0)
        .collect()
}

fn bytes(v: &[f32]) -> &[u8] {
    // SAFETY: any f32 is four bytes.
    unsafe { std::slice::from_raw_parts(v.as_ptr().cast(), v.len() * 4) }
}

/// Doubles every element of a tile.
unsafe extern "C" fn double(_: *const c_void, tile: *const Tile) {
    // SAFETY: the tile is valid.
    unsafe {
        let t = &*tile;
        for r in 0..t.rows {
            for c in 0..t.cols {
                *t.data.cast::<f32>().add(r * t.row_stride + c) *= 2.0;
            }
        }
    }
}

/// Adds to each element its index in the whole result.
unsafe extern "C" fn number(_: *const c_void, tile: *const Tile) {
    // SAFETY: the tile is valid.
    unsafe {
        let t = &*tile;
        for r in 0..t.rows {
            for c in 0..t.cols {
                let i = r * t.row_stride + c;
                *t.data.cast::<f32>().add(i) += (t.offset + i) as f32;
            }
        }
    }
}

fn tail(call: unsafe extern "C" fn(*const c_void, *const Tile)) -> Option<TileTail> {
    Some(TileTail::new(call, std::ptr::null()))
}

/// Runs one convolution on its own.
fn alone(isa: Isa, conv: &Conv, x: &[f32], w: &[f32], b: &[f32], tail: Option<TileTail>) -> Vec<f32> {
    let constants = ConvConstants {
        weight: Some(bytes(w).into()),
        bias: conv.bias.then(|| bytes(b).into()),
    };
    let mut y = vec![0f32; conv.extents().unwrap()[3]];
    let plan = super::super::plan(
        PairKernels::new(PairUnit::Widening, isa),
        true,
        Precision::F32,
        conv,
        constants,
    )
    .unwrap();
    let args = ConvArgs {
        x: x.as_ptr().cast(),
        weight: std::ptr::null(),
        bias: std::ptr::null(),
        y: y.as_mut_ptr().cast(),
        tail,
    };
    // SAFETY: the operands hold the descriptor's extents.
    unsafe { plan.run(&Pool::new(1), &args) };
    y
}

fn check_case(e: &Expansion, constant: bool, tails: bool) {
    let [nx, nw, nb, _] = e.first.extents().unwrap();
    let [_, nw2, nb2, ny] = e.second.extents().unwrap();
    let (x, w, b, w2, b2) = (data(nx, 1), data(nw, 2), data(nb, 3), data(nw2, 4), data(nb2, 5));
    let middle = if tails { tail(double) } else { None };
    let last = if tails { tail(number) } else { None };
    for isa in Isa::available() {
        let between = alone(isa, &e.first, &x, &w, &b, middle);
        let want = alone(isa, &e.second, &between, &w2, &b2, last);
        let constants = |w, b, bias: bool| ConvConstants {
            weight: constant.then(|| bytes(w).into()),
            bias: (constant && bias).then(|| bytes(b).into()),
        };
        let constants = [constants(&w, &b, e.first.bias), constants(&w2, &b2, e.second.bias)];
        let plan = plan(isa, e, constants).unwrap();
        for threads in [1, 3] {
            let mut y = vec![f32::NAN; ny];
            let args = ExpansionArgs {
                x: x.as_ptr().cast(),
                weights: [w.as_ptr().cast(), w2.as_ptr().cast()],
                biases: [b.as_ptr().cast(), b2.as_ptr().cast()],
                y: y.as_mut_ptr().cast(),
                middle,
                tail: last,
            };
            // SAFETY: the operands hold the descriptors' extents.
            unsafe { plan.run(&Pool::new(threads), &args) };
            let same = want.iter().zip(&y).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{isa} {threads} threads {e:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn equals_the_two_convolutions(e in expansion(), constant in any::<bool>(), tails in any::<bool>()) {
        check_case(&e, constant, tails);
    }
}

#[test]
fn large_maps_are_cut_into_bands_and_parts() {
    for [c, between, size, k, s] in [[4, 96, 112, 3, 2], [8, 144, 56, 5, 1], [3, 480, 28, 3, 1]] {
        check_case(&Expansion::new2d(c, between, size, k, s), true, true);
    }
}

#[test]
fn other_pairs_have_no_plan() {
    let good = Expansion::new2d(8, 16, 9, 3, 1);
    assert!(good.is_supported());
    let with = |f: fn(&mut Expansion)| {
        let mut e = good.clone();
        f(&mut e);
        assert!(!e.is_supported() && plan(Isa::Portable, &e, [ConvConstants::default(); 2]).is_err());
    };
    with(|e| e.second.groups = 1);
    with(|e| e.second.dilation = [1, 2, 2]);
    with(|e| e.second.input = [1, 8, 9]);
    with(|e| e.second.padding = [0, 3, 0]);
    with(|e| e.first.stride = [1, 2, 2]);
    with(|e| e.first.output_layout = ConvLayout::ChannelsFirst);
    with(|e| e.first.out_channels = 15);
}
