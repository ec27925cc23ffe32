//! Compares random products of every dtype, layout, level and operand kind with the reference.

mod halves;

use super::super::contract::*;
use super::super::reference::matmul_ref;
use super::plan;
use crate::math::pairs::{PairKernels, tests::all_kernels};
use crate::parallel::Pool;
use crate::target::Target;
use crate::tensor::{Scalar, Tensor};
use crate::types::DType;
use proptest::prelude::*;
use std::ffi::c_void;

/// The number of random cases; more if the kernels are optimised.
const CASES: u32 = if cfg!(debug_assertions) { 40 } else { 400 };

/// A random product: sizes, transposition flags, and which operands are constant.
#[derive(Clone, Debug)]
struct Case {
    dtype: DType,
    batch: [usize; 2],
    m: usize,
    n: usize,
    k: usize,
    a_transposed: bool,
    b_transposed: bool,
    b_broadcast: bool,
    constant: u8,
    addend: u8,
    alpha: f64,
    beta: f64,
    activation: Activation,
    gap: usize,
    seed: u64,
}

fn case() -> impl Strategy<Value = Case> {
    let dtype = prop_oneof![
        6 => Just(DType::F32), 1 => Just(DType::F64), 1 => Just(DType::F16), 3 => Just(DType::BF16),
        1 => Just(DType::I64), 1 => Just(DType::I32), 1 => Just(DType::U8), 1 => Just(DType::I8), 1 => Just(DType::I16)
    ];
    let size = || prop_oneof![4 => 0..20usize, 4 => 1..80usize, 1 => 80..300usize];
    let batch = prop_oneof![3 => Just([1, 1]), 1 => [1..4usize, 1..3usize]];
    let k = prop_oneof![6 => 0..100usize, 1 => 300..900usize];
    let activation = prop_oneof![
        2 => Just(Activation::None), 1 => Just(Activation::Relu), 1 => Just(Activation::Clamp(-1.0, 2.0))
    ];
    let factor = || prop_oneof![3 => Just(1.0), 1 => Just(0.0), 1 => Just(2.0), 1 => Just(-3.0)];
    (
        (dtype, batch, size(), size(), k, any::<[bool; 3]>()),
        (0..3u8, 0..4u8, factor(), factor(), activation, 0..3usize, any::<u64>()),
    )
        .prop_map(
            |((dtype, batch, m, n, k, [a_transposed, b_transposed, b_broadcast]), rest)| {
                let (constant, addend, alpha, beta, activation, gap, seed) = rest;
                Case {
                    dtype,
                    batch,
                    m,
                    n,
                    k,
                    a_transposed,
                    b_transposed,
                    b_broadcast,
                    constant,
                    addend,
                    alpha,
                    beta,
                    activation,
                    gap,
                    seed,
                }
            },
        )
}

/// Small values that are exact in every dtype, so that short sums are exact too.
fn fill(dtype: DType, shape: &[usize], seed: &mut u64) -> Tensor {
    Tensor::from_fn(dtype, shape, |_| {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        Scalar::from_f64(dtype, ((*seed >> 40) % 17) as f64 * 0.25 - 2.0)
    })
}

fn transpose(t: &Tensor) -> Tensor {
    let s = t.shape();
    let (b, r, c) = (s[0], s[1], s[2]);
    Tensor::from_fn(t.dtype(), &[b, c, r], |i| {
        let (bi, ci, ri) = (i / (r * c).max(1), i / r.max(1) % c.max(1), i % r.max(1));
        t.get((bi * r + ri) * c + ci)
    })
}

/// The descriptor, the operands as stored, and the expected result.
fn build(c: &Case) -> (MatMul, Tensor, Tensor, Option<Tensor>, Tensor) {
    let mut seed = c.seed;
    let nb = c.batch[0] * c.batch[1];
    let a = fill(c.dtype, &[nb, c.m, c.k], &mut seed);
    let b = fill(c.dtype, &[if c.b_broadcast { 1 } else { nb }, c.k, c.n], &mut seed);
    let addend_shape = [(0, 0), (1, c.n), (c.m, c.n), (c.m, 1)][c.addend as usize];
    let addend = (c.addend > 0).then(|| fill(c.dtype, &[addend_shape.0, addend_shape.1], &mut seed));
    let c_row = c.n + c.gap;
    let (am, bm) = (c.m * c.k, if c.b_broadcast { 0 } else { c.k * c.n });
    let dims = |size: usize, times: usize| BatchDim {
        size,
        a: am * times,
        b: bm * times,
        c: c.m * c_row * times,
        addend: 0,
    };
    let strides = [(0, 0), (0, 1), (c.n, 1), (1, 0)][c.addend as usize];
    let desc = MatMul {
        dtype: c.dtype,
        batch: vec![dims(c.batch[0], c.batch[1]), dims(c.batch[1], 1)],
        m: c.m,
        n: c.n,
        k: c.k,
        a: if c.a_transposed { [1, c.m] } else { [c.k, 1] },
        b: if c.b_transposed { [1, c.k] } else { [c.n, 1] },
        c_row,
        addend: addend.as_ref().map(|_| Addend {
            row: strides.0,
            col: strides.1,
        }),
        alpha: c.alpha,
        beta: c.beta,
        activation: c.activation,
        quantized: None,
        exact_in_bf16: false,
        a_is_i8: false,
        bytes: None,
    };
    let want = expected(c, &a, &b, addend.as_ref(), strides);
    let a = if c.a_transposed { transpose(&a) } else { a };
    let b = if c.b_transposed { transpose(&b) } else { b };
    (desc, a, b, addend, want)
}

fn expected(c: &Case, a: &Tensor, b: &Tensor, addend: Option<&Tensor>, s: (usize, usize)) -> Tensor {
    let nb = c.batch[0] * c.batch[1];
    let whole = Tensor::from_fn(c.dtype, &[nb, c.k, c.n], |i| {
        b.get(if c.b_broadcast { i % (c.k * c.n) } else { i })
    });
    // 16-bit floats round once, at the end.
    let wide = if c.dtype.compute_dtype() == DType::F32 && c.dtype != DType::F32 {
        DType::F32
    } else {
        c.dtype
    };
    let product = matmul_ref(&a.to(wide), &whole.to(wide));
    let (lo, hi) = c.activation.bounds().unwrap_or((f32::NEG_INFINITY, f32::INFINITY));
    Tensor::from_fn(c.dtype, &[nb, c.m, c.n], |i| {
        let (r, j) = (i / c.n % c.m, i % c.n);
        let extra = addend.filter(|_| c.beta != 0.0).map(|t| t.get(r * s.0 + j * s.1));
        if c.dtype.is_int() {
            let x = product.get(i).to_i64().wrapping_mul(c.alpha as i64);
            let y = x.wrapping_add(extra.map_or(0, |e| e.to_i64().wrapping_mul(c.beta as i64)));
            let y = Scalar::from_i64(c.dtype, y).to_i64();
            let least = if c.dtype == DType::U8 { 0 } else { lo.max(-200.0) as i64 };
            let y = if c.activation == Activation::None {
                y
            } else {
                y.clamp(least, hi.min(1e18) as i64)
            };
            return Scalar::from_i64(c.dtype, y);
        }
        let y = product.get(i).to_f64() * c.alpha + extra.map_or(0.0, |e| e.to_f64() * c.beta);
        Scalar::F64(y.clamp(lo as f64, hi as f64))
    })
}

/// Runs a plan on one pool. The result includes the gaps between rows, whose bytes must not change.
fn run(
    c: &Case,
    isa: PairKernels,
    pool: &Pool,
    parts: (&MatMul, &Tensor, &Tensor, Option<&Tensor>),
) -> (Tensor, Vec<u8>) {
    let (desc, a, b, addend) = parts;
    let constants = MatMulConstants {
        a: (c.constant == 1).then(|| a.bytes().into()),
        b: (c.constant == 2).then(|| b.bytes().into()),
    };
    // Values are exact in bf16, so products are exact in either case.
    let precision = if c.seed.is_multiple_of(3) {
        Precision::Bf16
    } else {
        Precision::F32
    };
    let plan = plan(isa, precision, desc, constants).expect("a plan");
    let nb = c.batch[0] * c.batch[1];
    let mut out = Tensor::from_fn(c.dtype, &[nb, c.m, desc.c_row], |_| Scalar::from_f64(c.dtype, 77.0));
    let null = std::ptr::null();
    let args = MatMulArgs {
        a: if c.constant == 1 { null } else { a.bytes().as_ptr() },
        b: if c.constant == 2 { null } else { b.bytes().as_ptr() },
        addend: addend.map_or(null, |t| t.bytes().as_ptr()),
        c: out.bytes_mut().as_mut_ptr(),
        tail: None,
    };
    // SAFETY: the operands hold the descriptor's extents.
    unsafe { plan.run(pool, &args) };
    for r in 0..nb * c.m {
        for j in c.n..desc.c_row {
            assert_eq!(out.get(r * desc.c_row + j).to_f64(), 77.0, "a gap was written");
        }
    }
    let bytes = out.bytes().to_vec();
    let packed = Tensor::from_fn(c.dtype, &[nb, c.m, c.n], |i| out.get(i / c.n * desc.c_row + i % c.n));
    (packed, bytes)
}

fn close(got: &Tensor, want: &Tensor, scale: f64) {
    // The factors of the sum of products, and of the result for its own rounding.
    let (sum, own) = match got.dtype() {
        DType::F32 => (1e-5, 1e-5),
        DType::F64 => (1e-13, 1e-13),
        DType::F16 => (1e-5, 4.9e-4),
        DType::BF16 => (1e-5, 3.91e-3),
        _ => (0.0, 0.0),
    };
    for i in 0..got.numel() {
        let (x, y) = (got.get(i).to_f64(), want.get(i).to_f64());
        assert!(
            (x - y).abs() <= sum * (scale + y.abs()) + own * y.abs(),
            "element {i}: {x} and {y}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn products_agree_with_the_reference(c in case()) {
        let (desc, a, b, addend, want) = build(&c);
        let (one, two) = (Pool::new(1), Pool::new(3));
        for isa in all_kernels() {
            let parts = (&desc, &a, &b, addend.as_ref());
            let (got, bytes) = run(&c, isa, &one, parts);
            close(&got, &want, c.k as f64);
            let (_, again) = run(&c, isa, &two, parts);
            prop_assert_eq!(bytes, again, "{}: threads change the result", isa);
        }
    }
}

/// Products large enough for slabs, groups and blocks of the product index.
#[test]
fn blocked_products_agree() {
    let (one, two) = (Pool::new(1), Pool::new(2));
    // In f32, in bf16, in f16, and in f32 with operands that are rounded.
    let kinds = [(DType::F32, 5), (DType::BF16, 5), (DType::F16, 5), (DType::F32, 6)];
    for (m, n, k, constants) in [
        (230, 530, 390, 0..1),
        (1, 500, 800, 0..3),
        (2, 700, 151, 0..1),
        (3, 300, 400, 0..3),
        (240, 33, 390, 0..3),
        (500, 1, 800, 0..3),
        (1, 1, 3000, 0..3),
        // Few product indices, and one column of a transposed matrix.
        (100, 300, 12, 0..3),
        (5000, 1, 131, 0..1),
    ] {
        for (constant, (dtype, seed)) in constants.flat_map(|c| kinds.map(|k| (c, k))) {
            let c = Case {
                dtype,
                batch: [1, 1],
                m,
                n,
                k,
                a_transposed: k == 131,
                b_transposed: m != 2,
                b_broadcast: false,
                constant,
                addend: if k == 12 { 2 } else { 1 },
                alpha: 1.0,
                beta: 1.0,
                activation: Activation::Relu,
                gap: 0,
                seed,
            };
            let (desc, a, b, addend, want) = build(&c);
            for isa in all_kernels() {
                let parts = (&desc, &a, &b, addend.as_ref());
                let (got, bytes) = run(&c, isa, &one, parts);
                close(&got, &want, k as f64);
                assert_eq!(bytes, run(&c, isa, &two, parts).1);
            }
        }
    }
}

/// Doubles a tile and adds its coordinates, which shows that every element is visited once.
unsafe extern "C" fn double(context: *const c_void, tile: *const Tile) {
    // SAFETY: the plan passes a finished tile of f32.
    unsafe {
        let t = &*tile;
        let seen = context.cast::<std::sync::atomic::AtomicUsize>();
        (*seen).fetch_add(t.rows * t.cols, std::sync::atomic::Ordering::Relaxed);
        for i in 0..t.rows {
            for j in 0..t.cols {
                let p = t.data.cast::<f32>().add(i * t.row_stride + j);
                *p = *p * 2.0 + (t.row + i) as f32 + 1000.0 * (t.col + j) as f32 + 1e6 * t.batch as f32;
            }
        }
    }
}

#[test]
fn tails_see_every_element_once() {
    let shapes = [(0, 5, 70, 8), (2, 100, 300, 400), (1, 60, 90, 33), (0, 2, 500, 300)];
    let precisions = [Precision::F32, Precision::Bf16];
    for ((constant, m, n, k), precision) in shapes.into_iter().flat_map(|s| precisions.map(|p| (s, p))) {
        let c = Case {
            dtype: DType::F32,
            batch: [2, 1],
            m,
            n,
            k,
            a_transposed: false,
            b_transposed: true,
            b_broadcast: true,
            constant,
            addend: 0,
            alpha: 1.0,
            beta: 1.0,
            activation: Activation::None,
            gap: 0,
            seed: 9,
        };
        let (desc, a, b, _, want) = build(&c);
        let constants = MatMulConstants {
            a: (constant == 1).then(|| a.bytes().into()),
            b: (constant == 2).then(|| b.bytes().into()),
        };
        let plan = plan(PairKernels::for_target(Target::native()), precision, &desc, constants).expect("a plan");
        let mut out = Tensor::zeros(DType::F32, &[2, m, n]);
        let seen = std::sync::atomic::AtomicUsize::new(0);
        let args = MatMulArgs {
            a: a.bytes().as_ptr(),
            b: b.bytes().as_ptr(),
            addend: std::ptr::null(),
            c: out.bytes_mut().as_mut_ptr(),
            tail: Some(TileTail::new(double, (&raw const seen).cast())),
        };
        // SAFETY: the operands hold the descriptor's extents.
        unsafe { plan.run(&Pool::new(2), &args) };
        assert_eq!(seen.into_inner(), 2 * m * n);
        for i in 0..2 * m * n {
            let (b, r, j) = (i / (m * n), i / n % m, i % n);
            let x = want.get(i).to_f64() * 2.0 + r as f64 + 1000.0 * j as f64 + 1e6 * b as f64;
            assert!((out.get(i).to_f64() - x).abs() <= 0.2, "element {i}");
        }
    }
}
