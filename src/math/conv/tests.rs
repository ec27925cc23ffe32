//! Compares random convolutions of every kind, dtype, layout and level with the reference.

mod edges;
mod groups;

use super::super::contract::*;
use super::super::reference::conv_ref;
use super::plan;
use crate::math::pairs::{PairKernels, tests::all_kernels};
use crate::parallel::Pool;
use crate::target::Target;
use crate::tensor::{Scalar, Tensor};
use crate::types::DType;
use proptest::prelude::*;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of random cases; more if the kernels are optimised.
const CASES: u32 = if cfg!(debug_assertions) { 40 } else { 600 };

/// A random descriptor and the other random choices.
#[derive(Clone, Debug)]
struct Case {
    conv: Conv,
    constant: bool,
    constant_bias: bool,
    /// Whether Winograd's transforms are disabled.
    exact: bool,
    /// Values are exact in bf16, so products are exact in either case.
    precision: Precision,
    seed: u64,
}

fn dim() -> impl Strategy<Value = [usize; 6]> {
    // Input, kernel, stride, padding, dilation, output padding.
    let input = prop_oneof![2 => 1..9usize, 2 => 9..40usize];
    (input, 1..6usize, 1..4usize, 0..4usize, 1..4usize, 0..3usize).prop_map(|(i, k, s, p, d, o)| [i, k, s, p, d, o])
}

fn conv() -> impl Strategy<Value = Conv> {
    let dtype = prop_oneof![
        8 => Just(DType::F32), 1 => Just(DType::F64), 1 => Just(DType::F16), 3 => Just(DType::BF16),
        1 => Just(DType::I64), 1 => Just(DType::I32), 1 => Just(DType::U8)
    ];
    // (groups, input channels per group, output channels per group)
    let channels = prop_oneof![
        4 => (Just(1usize), 1..40usize, 1..70usize),
        2 => (2..5usize, 1..6usize, 1..40usize),
        1 => (2..20usize, 1..9usize, 1..9usize),
        1 => (1..5usize).prop_map(|g| (4 * g, 4, 4)),
        1 => (2..6usize, 8..50usize, 8..50usize),
        3 => (2..40usize, Just(1usize), 1..3usize),
    ];
    let layout = || prop_oneof![Just(ConvLayout::ChannelsFirst), Just(ConvLayout::ChannelsLast)];
    let activation =
        prop_oneof![2 => Just(Activation::None), 1 => Just(Activation::Relu), 1 => Just(Activation::Clamp(-1.0, 2.0))];
    let small = (1..5usize, 1..3usize, 1..3usize, 0..2usize, 1..3usize);
    (
        (dtype, 0..4usize, channels, [dim(), dim()], small, 0..6usize),
        (any::<[bool; 2]>(), layout(), layout(), activation),
    )
        .prop_map(
            |((dtype, batch, (groups, gi, go), [h, w], (id, kd, sd, pd, dd), rank), rest)| {
                let ([transposed, bias], input_layout, output_layout, activation) = rest;
                let deep = rank == 0;
                let line = rank == 1;
                let d = if deep {
                    [id, kd, sd, pd, dd, 0]
                } else {
                    [1, 1, 1, 0, 1, 0]
                };
                let h = if line { [1, 1, 1, 0, 1, 0] } else { h };
                let column = |i: usize| [d[i], h[i], w[i]];
                // Equal channel counts make pointwise and depthwise cases common enough.
                Conv {
                    dtype,
                    batch,
                    in_channels: groups * gi,
                    out_channels: groups * go,
                    groups,
                    input: column(0),
                    kernel: column(1),
                    stride: column(2),
                    padding: column(3),
                    dilation: column(4),
                    transposed: transposed && rank != 2,
                    output_padding: column(5),
                    bias,
                    input_layout,
                    output_layout,
                    activation,
                    exact_in_bf16: false,
                    bytes: None,
                }
            },
        )
}

fn case() -> impl Strategy<Value = Case> {
    (conv(), any::<[bool; 2]>(), any::<u64>(), 0..4u8).prop_map(|(mut conv, [constant, constant_bias], seed, plain)| {
        if plain == 0 {
            // The special case of a single tap.
            (conv.kernel, conv.stride, conv.padding) = ([1; 3], [1; 3], [0; 3]);
        }
        if !conv.transposed {
            conv.output_padding = [0; 3];
        }
        Case {
            conv,
            constant,
            constant_bias,
            exact: seed % 2 == 0,
            precision: if seed.is_multiple_of(3) {
                Precision::Bf16
            } else {
                Precision::F32
            },
            seed,
        }
    })
}

fn fill(dtype: DType, shape: &[usize], seed: &mut u64) -> Tensor {
    Tensor::from_fn(dtype, shape, |_| {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        Scalar::from_f64(dtype, ((*seed >> 40) % 17) as f64 * 0.25 - 2.0)
    })
}

/// Permutes `[n, c, pixels]` to `[n, pixels, c]`, or back if the sizes are swapped.
fn swap(t: &Tensor, n: usize, c: usize, pixels: usize) -> Tensor {
    Tensor::from_fn(t.dtype(), &[n, pixels, c], |i| {
        let (image, p, ch) = (i / (pixels * c), i / c % pixels, i % c);
        t.get((image * c + ch) * pixels + p)
    })
}

/// Input, weight and bias, channels first.
fn operands(case: &Case) -> (Tensor, Tensor, Option<Tensor>) {
    let c = &case.conv;
    let [nx, nw, nb, _] = c.extents().expect("a legal convolution");
    let mut seed = case.seed;
    let (x, w) = (fill(c.dtype, &[nx], &mut seed), fill(c.dtype, &[nw], &mut seed));
    (x, w, c.bias.then(|| fill(c.dtype, &[nb], &mut seed)))
}

/// The reference result with the activation, channels first.
fn expected(c: &Conv, x: &Tensor, w: &Tensor, b: Option<&Tensor>) -> Tensor {
    let first = Conv {
        input_layout: ConvLayout::ChannelsFirst,
        output_layout: ConvLayout::ChannelsFirst,
        ..c.clone()
    };
    let y = conv_ref(x, w, b, &first);
    let Some((lo, hi)) = c.activation.bounds() else {
        return y;
    };
    Tensor::from_fn(c.dtype, y.shape(), |i| match y.get(i) {
        Scalar::Int(d, v) => {
            let lo = if d == DType::U8 { lo.max(0.0) } else { lo };
            Scalar::Int(d, v.clamp(lo as i64, hi as i64))
        }
        s => Scalar::F64(s.to_f64().clamp(lo as f64, hi as f64)),
    })
}

/// Runs the plan. The result is channels first.
fn run(
    case: &Case,
    isa: PairKernels,
    pool: &Pool,
    x: &Tensor,
    w: &Tensor,
    b: Option<&Tensor>,
    tail: Option<TileTail>,
) -> Tensor {
    let c = &case.conv;
    let constants = ConvConstants {
        weight: case.constant.then(|| w.bytes().into()),
        bias: b.filter(|_| case.constant_bias).map(|b| b.bytes().into()),
    };
    let plan = plan(isa, case.exact, case.precision, c, constants).expect("a plan");
    let (in_pixels, out) = (c.input.iter().product(), c.output_size().expect("legal"));
    let out_pixels: usize = out.iter().product();
    let x = match c.input_layout {
        ConvLayout::ChannelsFirst => x.clone(),
        ConvLayout::ChannelsLast => swap(x, c.batch, c.in_channels, in_pixels),
    };
    let mut y = Tensor::from_fn(c.dtype, &[c.batch, out_pixels * c.out_channels], |_| {
        Scalar::from_f64(c.dtype, 77.0)
    });
    let args = ConvArgs {
        x: x.bytes().as_ptr(),
        weight: w.bytes().as_ptr(),
        bias: b.map_or(std::ptr::null(), |b| b.bytes().as_ptr()),
        y: y.bytes_mut().as_mut_ptr(),
        tail,
    };
    // SAFETY: the operands hold the descriptor's extents.
    unsafe { plan.run(pool, &args) };
    match c.output_layout {
        ConvLayout::ChannelsFirst => y,
        ConvLayout::ChannelsLast => swap(&y, c.batch, out_pixels, c.out_channels),
    }
}

fn close(c: &Conv, got: &Tensor, want: &Tensor, what: &str) {
    // The factors of the sum of products, and of the result for its own rounding.
    let (sum, own) = match got.dtype() {
        DType::F32 => (1e-5, 1e-5),
        DType::F64 => (1e-13, 1e-13),
        DType::F16 => (1e-5, 4.9e-4),
        DType::BF16 => (1e-5, 3.91e-3),
        _ => (0.0, 0.0),
    };
    let scale = (c.in_channels / c.groups * c.kernel.iter().product::<usize>()) as f64;
    assert_eq!(got.numel(), want.numel());
    for i in 0..got.numel() {
        let (x, y) = (got.get(i).to_f64(), want.get(i).to_f64());
        assert!(
            (x - y).abs() <= sum * (scale + y.abs()) + own * y.abs(),
            "{what} element {i}: {x} and {y}"
        );
    }
}

fn check(case: &Case, one: &Pool, two: &Pool) {
    let c = &case.conv;
    let (x, w, b) = operands(case);
    let want = expected(c, &x, &w, b.as_ref());
    for isa in all_kernels() {
        let got = run(case, isa, one, &x, &w, b.as_ref(), None);
        close(c, &got, &want, &format!("{isa}"));
        assert_eq!(
            got,
            run(case, isa, two, &x, &w, b.as_ref(), None),
            "{isa}: threads change the result"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn convolutions_agree_with_the_reference(case in case()) {
        prop_assume!(case.conv.extents().is_some());
        check(&case, &Pool::new(1), &Pool::new(3));
    }
}

fn square(c: usize, o: usize, groups: usize, size: usize, kernel: usize, stride: usize) -> Conv {
    Conv {
        groups,
        stride: [1, stride, stride],
        padding: [0, kernel / 2, kernel / 2],
        bias: true,
        ..Conv::new2d(c, o, [size, size], [kernel, kernel])
    }
}

/// Layers of real networks in two dims, dense and in groups: large enough to be split and to have gaps between pixels.
fn plain_layers() -> Vec<Conv> {
    vec![
        square(3, 40, 1, 31, 7, 2),
        square(40, 40, 1, 17, 3, 1),
        square(512, 40, 1, 5, 3, 1),
        square(96, 64, 1, 15, 3, 2),
        square(200, 33, 1, 9, 3, 1),
        square(40, 70, 1, 28, 1, 2),
        square(70, 64, 1, 20, 1, 1),
        square(512, 40, 1, 7, 1, 1),
        square(8, 8, 8, 40, 3, 1),
        square(8, 8, 8, 50, 5, 2),
        square(70, 70, 70, 14, 3, 1),
        square(20, 20, 20, 13, 5, 2),
        square(20, 20, 20, 13, 5, 1),
        square(20, 20, 20, 13, 7, 1),
        square(20, 20, 20, 13, 3, 2),
        square(32, 32, 4, 12, 3, 1),
        square(64, 64, 16, 20, 3, 1),
        square(80, 80, 20, 31, 5, 2),
        square(48, 48, 6, 33, 3, 2),
        square(40, 40, 5, 40, 3, 1),
        square(36, 24, 4, 29, 3, 1),
        square(72, 144, 3, 15, 3, 2),
        square(64, 64, 4, 20, 3, 1),
        square(80, 80, 5, 9, 1, 2),
        square(128, 96, 2, 11, 1, 1),
    ]
}

/// Transposed layers, batches, long rows, and layers in three dims.
fn other_layers() -> Vec<Conv> {
    vec![
        Conv {
            transposed: true,
            ..square(16, 20, 1, 14, 4, 2)
        },
        Conv {
            transposed: true,
            padding: [0; 3],
            batch: 2,
            ..square(64, 32, 1, 9, 2, 2)
        },
        Conv {
            batch: 5,
            ..square(16, 24, 1, 20, 3, 2)
        },
        // A row long enough to be split.
        Conv {
            padding: [0, 0, 2],
            ..Conv::new2d(20, 40, [1, 500], [1, 5])
        },
        Conv {
            padding: [0, 0, 1],
            stride: [1, 1, 2],
            ..Conv::new2d(24, 33, [2, 613], [1, 3])
        },
        // Rows in which most taps read padding.
        Conv {
            input: [3, 4, 14],
            kernel: [3; 3],
            padding: [1; 3],
            ..square(16, 40, 1, 14, 3, 1)
        },
        Conv {
            input: [2, 3, 15],
            kernel: [3, 5, 3],
            padding: [2, 6, 2],
            dilation: [2, 2, 2],
            ..square(20, 36, 1, 14, 3, 1)
        },
    ]
}

#[test]
fn layers_agree() {
    let (one, two) = (Pool::new(1), Pool::new(2));
    for (i, conv) in plain_layers().into_iter().chain(other_layers()).enumerate() {
        let layouts = [ConvLayout::ChannelsFirst, ConvLayout::ChannelsLast];
        let kinds = [
            (DType::F32, Precision::F32),
            (DType::BF16, Precision::F32),
            (DType::F32, Precision::Bf16),
        ];
        for (layout, (dtype, precision)) in layouts.into_iter().flat_map(|l| kinds.map(|k| (l, k))) {
            let conv = Conv {
                dtype,
                input_layout: layout,
                output_layout: layout,
                ..conv.clone()
            };
            check(
                &Case {
                    conv,
                    constant: i % 2 == 0 || dtype == DType::BF16,
                    constant_bias: true,
                    exact: true,
                    precision,
                    seed: i as u64,
                },
                &one,
                &two,
            );
        }
    }
}

/// Adds to each element its index, and counts the elements.
unsafe extern "C" fn place(context: *const c_void, tile: *const Tile) {
    // SAFETY: the plan passes a finished tile of f32.
    unsafe {
        let t = &*tile;
        (*context.cast::<AtomicUsize>()).fetch_add(t.rows * t.cols, Ordering::Relaxed);
        for i in 0..t.rows {
            for j in 0..t.cols {
                let p = t.data.cast::<f32>().add(i * t.row_stride + j);
                *p += 1000.0 * (t.row + i) as f32 + 10.0 * (t.col + j) as f32 + 1e5 * t.batch as f32;
            }
        }
    }
}

#[test]
fn tails_see_every_element_once() {
    let pool = Pool::new(2);
    for conv in [
        square(3, 40, 1, 20, 3, 1),
        square(16, 40, 1, 12, 1, 1),
        square(16, 16, 16, 30, 3, 1),
        square(16, 16, 16, 10, 3, 1),
        Conv {
            transposed: true,
            ..square(8, 6, 1, 9, 3, 2)
        },
        Conv {
            dtype: DType::F64,
            ..square(8, 6, 1, 9, 3, 2)
        },
    ] {
        let layouts = [ConvLayout::ChannelsFirst, ConvLayout::ChannelsLast];
        let precisions = [Precision::F32, Precision::Bf16];
        for (layout, precision) in layouts.into_iter().flat_map(|l| precisions.map(|p| (l, p))) {
            let first = layout == ConvLayout::ChannelsFirst;
            let conv = Conv {
                batch: 2,
                input_layout: layout,
                output_layout: layout,
                ..conv.clone()
            };
            let case = Case {
                conv,
                constant: true,
                constant_bias: true,
                exact: false,
                precision,
                seed: 3,
            };
            let c = &case.conv;
            let (x, w, b) = operands(&case);
            let kernels = PairKernels::for_target(Target::native());
            if c.dtype != DType::F32 {
                continue;
            }
            let run_with = |tail| run(&case, kernels, &pool, &x, &w, b.as_ref(), tail);
            let plain = run_with(None);
            let seen = AtomicUsize::new(0);
            let tail = TileTail::new(place, (&raw const seen).cast());
            let got = run_with(Some(tail));
            assert_eq!(seen.into_inner(), got.numel());
            let pixels = got.numel() / (c.batch * c.out_channels);
            for i in 0..got.numel() {
                let (n, ch, p) = (i / pixels / c.out_channels, i / pixels % c.out_channels, i % pixels);
                let (row, col) = if first { (ch, p) } else { (p, ch) };
                let want = plain.get(i).to_f64() + 1000.0 * row as f64 + 10.0 * col as f64 + 1e5 * n as f64;
                assert!((got.get(i).to_f64() - want).abs() < 0.1, "{:?} element {i}", c);
            }
        }
    }
}

/// A plan for this machine.
fn native_plan(desc: &Conv, constants: ConvConstants) -> Result<Box<dyn ConvPlan>, PlanError> {
    let kernels = PairKernels::for_target(Target::native());
    plan(kernels, true, Precision::F32, desc, constants)
}

#[test]
fn illegal_parameters_are_refused() {
    let good = Conv::new2d(4, 4, [5, 5], [3, 3]);
    for bad in [
        Conv {
            groups: 3,
            ..good.clone()
        },
        Conv {
            groups: 0,
            ..good.clone()
        },
        Conv {
            stride: [1, 0, 1],
            ..good.clone()
        },
        Conv {
            dilation: [1, 1, 0],
            ..good.clone()
        },
        Conv {
            kernel: [1, 6, 6],
            ..good.clone()
        },
        Conv {
            dtype: DType::B8,
            ..good.clone()
        },
        Conv {
            padding: [0, usize::MAX / 2 + 1, 0],
            ..good.clone()
        },
        Conv {
            padding: [0, 1 << 40, 1 << 40],
            ..good.clone()
        },
        Conv {
            batch: usize::MAX,
            ..good.clone()
        },
    ] {
        assert!(native_plan(&bad, ConvConstants::default()).is_err(), "{bad:?}");
    }
    let short = ConvConstants {
        weight: Some(Constant::from_bytes(&[0; 8])),
        bias: None,
    };
    let refused = native_plan(&good, short).err();
    assert_eq!(refused, Some(PlanError::Constant { need: 576, got: 8 }));
}
