//! Every vector width gives the same results, bit for bit where each element is computed by itself.

use super::*;
use crate::kernel::{Affine, KernelBuilder, ReduceOp, Value};
use crate::scalar::{Binary, Compare, Unary};
use crate::target::Target;
use crate::types::DType::*;
use proptest::prelude::{ProptestConfig, proptest};

/// The vector widths of this machine. On a machine without wide vectors there is nothing to compare.
fn widths() -> Vec<usize> {
    let all: Vec<usize> = [16, 32, 64]
        .into_iter()
        .filter(|&w| w <= wide::widest_vectors(Target::native()))
        .collect();
    if all.len() < 3 {
        eprintln!("only vectors of {all:?} bytes are compared: this machine has no wider ones");
    }
    all
}

/// The results of `k` at a width, and the width it was compiled for.
fn at(k: &Kernel, inputs: &[Vec<u8>], width: usize) -> (Vec<AlignedBytes>, usize) {
    let options = CodegenOptions {
        text: false,
        width: Some(width),
        ..CodegenOptions::default()
    };
    let c = compile_kernels(std::slice::from_ref(k), options).unwrap_or_else(|e| panic!("{e}\n{k:#?}"));
    if let Some(why) = c.why_not_widened(0) {
        eprintln!("{} at width {width}: {why}", k.name);
    }
    let mut buffers = fill(k, inputs);
    run(&c, k, &mut buffers, usize::MAX >> 1);
    (buffers, c.vector_bytes(0))
}

/// Compares all widths. Returns the widest one that was used.
pub(super) fn compare(k: &Kernel, inputs: &[Vec<u8>]) -> usize {
    let (want, mut widest) = at(k, inputs, 16);
    for w in widths() {
        let (got, used) = at(k, inputs, w);
        widest = widest.max(used);
        for (n, (_, b)) in k.params().enumerate() {
            for i in 0..b.numel() {
                assert!(
                    distance(b.dtype, got[n].bytes(), want[n].bytes(), i) == 0,
                    "{}: {}[{i}] is {:?} at width {used}, {:?} at 16",
                    k.name,
                    b.name,
                    Scalar::read(b.dtype, got[n].bytes(), i),
                    Scalar::read(b.dtype, want[n].bytes(), i)
                );
            }
        }
    }
    widest
}

/// Ordinary and special values.
pub(super) fn values(n: usize) -> Vec<u8> {
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        1e-40,
        3e38,
        -88.5,
        0.62,
        17.25,
    ];
    let all: Vec<Scalar> = (0..n)
        .map(|i| match i % 3 {
            0 => Scalar::F32(special[i / 3 % special.len()] as f32),
            _ => Scalar::F32((i as f32 * 0.37).sin() * 9.0),
        })
        .collect();
    bytes(F32, &all)
}

fn pointwise(name: &str, n: usize, f: impl FnOnce(&mut KernelBuilder, Value, Value) -> Value) -> usize {
    let mut k = KernelBuilder::new(name.to_string());
    let (x, y) = (k.input("x", F32, &[n]), k.input("y", F32, &[n]));
    k.vector(n, |k, i| {
        let (a, b) = (k.load(x, Affine::from(i)), k.load(y, Affine::from(i)));
        let v = f(k, a, b);
        let out = k.output("out", k.dtype(v), &[n]);
        k.store(out, Affine::from(i), v);
    });
    let k = k.finish().unwrap_or_else(|e| panic!("{e}"));
    let mut other = values(n + 5);
    other.drain(..20);
    compare(&k, &[values(n), other])
}

#[test]
fn every_lane_wise_operation_is_the_same_in_all_widths() {
    use Binary::*;
    use Unary::*;
    let unary = [
        Neg, Abs, Sign, Floor, Ceil, Round, Trunc, Sqrt, Rsqrt, Recip, Exp, Exp2, Expm1, Log, Log2, Log10, Log1p, Tanh,
        Erf, Sigmoid, Sin, Cos, Tan, Asin, Acos, Atan, Sinh, Cosh, Asinh, Acosh, Atanh, Erfc, Erfinv,
    ];
    for op in unary {
        let used = pointwise(&format!("{op:?}"), 211, |k, x, _| k.unary(op, x));
        assert_eq!(used, wide::widest_vectors(Target::native()), "{op:?} was not widened");
    }
    let binary = [
        Add, Sub, Mul, Div, Max, Min, Fmax, Fmin, Copysign, TruncDiv, Fmod, Mod, FloorDiv, Atan2, Pow, Hypot,
    ];
    for op in binary {
        let used = pointwise(&format!("{op:?}"), 211, |k, x, y| k.binary(op, x, y));
        assert_eq!(used, wide::widest_vectors(Target::native()), "{op:?} was not widened");
    }
    for op in Compare::ALL {
        let used = pointwise(&format!("{op:?}"), 211, |k, x, y| {
            let c = k.compare(op, x, y);
            k.select(c, y, x)
        });
        assert_eq!(used, wide::widest_vectors(Target::native()), "{op:?} was not widened");
    }
}

/// Whole groups, single vectors and single iterations, with strides of either sign.
#[test]
fn a_loop_index_as_a_value_is_the_same_in_all_widths() {
    const N: usize = 211;
    for stride in [1, 3, -7, i64::MAX / 512] {
        for to in [I64, F32, I32, B8] {
            let mut k = KernelBuilder::new(format!("index times {stride} as {to}"));
            k.vector(N, |k, i| {
                let v = k.index(Affine::from(i) * stride + 5);
                let v = match to {
                    B8 => {
                        let limit = k.index(Affine::from(100));
                        k.compare(Compare::Lt, v, limit)
                    }
                    I64 => v,
                    to => k.cast(to, v),
                };
                let out = k.output("out", to, &[N]);
                k.store(out, Affine::from(i), v);
            });
            let k = k.finish().unwrap_or_else(|e| panic!("{e}"));
            let used = compare(&k, &[]);
            assert_eq!(used, wide::widest_vectors(Target::native()), "{to} was not widened");
        }
    }
}

/// The width that an expression over two inputs of a dtype is compiled for.
fn of_dtype(d: DType, n: usize, f: impl FnOnce(&mut KernelBuilder, Value, Value) -> Value) -> usize {
    let mut k = KernelBuilder::new(format!("{d}"));
    let (x, y) = (k.input("x", d, &[n]), k.input("y", d, &[n]));
    k.vector(n, |k, i| {
        let (a, b) = (k.load(x, Affine::from(i)), k.load(y, Affine::from(i)));
        let v = f(k, a, b);
        let out = k.output("out", k.dtype(v), &[n]);
        k.store(out, Affine::from(i), v);
    });
    let k = k.finish().unwrap_or_else(|e| panic!("{e}"));
    let inputs = Rng::new(n as u64).inputs(&k, &[x, y]);
    compare(&k, &inputs)
}

#[test]
fn lanes_of_64_bits_are_the_same_in_all_widths() {
    use Binary::*;
    for d in [F64, I64] {
        for op in [Add, Sub, Mul, Max, Min] {
            let used = of_dtype(d, 211, |k, x, y| k.binary(op, x, y));
            assert_eq!(
                used,
                wide::widest_vectors(Target::native()),
                "{op:?} of {d} was not widened"
            );
        }
        for op in [Compare::Eq, Compare::Lt, Compare::Ge] {
            let used = of_dtype(d, 211, |k, x, y| {
                let c = k.compare(op, x, y);
                k.select(c, y, x)
            });
            assert_eq!(
                used,
                wide::widest_vectors(Target::native()),
                "{op:?} of {d} was not widened"
            );
        }
        for op in [Unary::Neg, Unary::Sign] {
            let used = of_dtype(d, 211, |k, x, _| k.unary(op, x));
            assert_eq!(
                used,
                wide::widest_vectors(Target::native()),
                "{op:?} of {d} was not widened"
            );
        }
    }
    for op in [Unary::Abs, Unary::Sqrt, Unary::Floor, Unary::Round, Unary::Recip] {
        let used = of_dtype(F64, 211, |k, x, _| k.unary(op, x));
        assert_eq!(used, wide::widest_vectors(Target::native()), "{op:?} was not widened");
    }
}

#[test]
fn narrow_elements_are_the_same_in_all_widths() {
    // AVX2 cannot store narrow elements.
    let widest = if wide::widest_vectors(Target::native()) == 64 {
        64
    } else {
        16
    };
    for d in [F16, BF16] {
        let used = of_dtype(d, 211, |k, x, y| {
            let (x, y) = (k.cast(F32, x), k.cast(F32, y));
            let s = k.binary(Binary::Mul, x, y);
            let s = k.unary(Unary::Tanh, s);
            k.cast(d, s)
        });
        assert_eq!(used, widest, "{d} was not widened");
    }
    // Narrow integers alone are packed, for which there are vectors of 32 bytes.
    let packed = wide::widest_vectors(Target::native()).min(32);
    for d in [I16, I8, U8] {
        let used = of_dtype(d, 227, |k, x, y| {
            let s = k.binary(Binary::Add, x, y);
            k.binary(Binary::Max, s, y)
        });
        assert_eq!(used, packed, "{d} was not widened");
        let used = of_dtype(d, 211, |k, x, y| {
            let s = k.binary(Binary::Max, x, y);
            k.cast(I32, s)
        });
        assert_eq!(used, wide::widest_vectors(Target::native()), "{d} was not widened");
    }
    let used = of_dtype(F32, 211, |k, x, y| k.compare(Compare::Lt, x, y));
    assert_eq!(used, widest, "a comparison was not widened");
    let used = of_dtype(B8, 227, |k, x, y| k.binary(Binary::Xor, x, y));
    assert_eq!(used, packed, "b8 was not widened");
    for d in [F16, BF16, I16, I8, U8, B8] {
        let used = of_dtype(d, 211, |k, x, _| k.cast(F32, x));
        assert_eq!(
            used,
            wide::widest_vectors(Target::native()),
            "loads of {d} were not widened"
        );
    }
}

/// Kernels that AVX2 cannot run at full width run at that of AVX-512, or at 128 bits.
#[test]
fn integer_arithmetic_and_conversions_are_widened() {
    use Binary::{FloorDiv, Fmod, Mod, Shl, Shr, TruncDiv};
    let widest = wide::widest_vectors(Target::native());
    if widest < 64 {
        eprintln!("skipped: this machine has no AVX-512");
        return;
    }
    for d in [I64, I32, I16, I8, U8] {
        for op in [FloorDiv, TruncDiv, Mod, Fmod, Shl, Shr] {
            let used = of_dtype(d, 211, |k, x, _| {
                let three = k.constant(Scalar::from_i64(d, 3));
                k.binary(op, x, three)
            });
            assert_eq!(used, widest, "{op:?} of {d} by 3 was not widened");
            let used = of_dtype(d, 211, |k, x, y| {
                let one = k.constant(Scalar::from_i64(d, 1));
                let y = k.binary(Binary::Or, y, one);
                k.binary(op, x, y)
            });
            assert_eq!(used, widest, "{op:?} of {d} was not widened");
        }
    }
    for from in DType::COMPUTED {
        for to in DType::COMPUTED {
            let used = of_dtype(from, 227, |k, x, _| k.cast(to, x));
            // Conversions between bytes, and copies of words, are packed.
            let packed = from.size() == 1 && to.size() == 1 || from == to && from.size() == 2;
            let wide = if packed { 32 } else { widest };
            assert!(used >= wide, "the conversion from {from} to {to} was not widened");
        }
    }
}

#[test]
fn every_operation_on_every_dtype_is_the_same_in_all_widths() {
    let all = ops::unary_cases().into_iter().chain(ops::binary_cases());
    for (k, inputs, _) in all.chain(ops::cast_cases()) {
        compare(&k, &inputs);
    }
}

/// A reduction of each of `rows` rows of `n` elements.
fn reduce_rows(op: ReduceOp, d: DType, rows: usize, n: usize) -> Kernel {
    let mut k = KernelBuilder::new(format!("reduce_{n}"));
    let (x, out) = (k.input("x", d, &[rows, n]), k.output("out", d, &[rows]));
    k.parallel(&[rows], |k, v| {
        let init = k.initial_value(op, d);
        let r = k.reduce(n, true, &[(op, &[init])], |k, j| {
            vec![k.load(x, Affine::row_major(&[v[0], j], &[rows, n]))]
        })[0];
        k.store(out, Affine::from(v[0]), r);
    });
    k.finish().unwrap_or_else(|e| panic!("{e}"))
}

/// Rows of whole numbers, whose sums are the same in every order. Each row ends with steps across the lanes of a
/// vector.
#[test]
fn reductions_of_rows_are_the_same_in_all_widths() {
    for (d, op) in [F32, F64, I32, I64]
        .into_iter()
        .flat_map(|d| [ReduceOp::Add, ReduceOp::Max, ReduceOp::Min].map(|op| (d, op)))
    {
        for (n, rows) in [1, 3, 4, 8, 16, 17, 33, 64, 96, 211]
            .into_iter()
            .flat_map(|n| [(n, 3), (n, 6)])
        {
            let k = reduce_rows(op, d, rows, n);
            let whole: Vec<Scalar> = (0..rows * n)
                .map(|i| Scalar::from_i64(d, (i * 7919 % 2003) as i64 - 1000))
                .collect();
            let used = compare(&k, &[bytes(d, &whole)]);
            assert!(
                n < 64 || used == wide::widest_vectors(Target::native()),
                "{op:?} of {n} {d} was not widened"
            );
            check(&k, &[bytes(d, &whole)], 0);
        }
    }
}

/// The exponentials of a softmax.
#[test]
fn shares_are_the_same_in_all_widths() {
    let used = pointwise("share", 211, |k, x, _| {
        let negative = k.unary(Unary::Abs, x);
        let negative = k.unary(Unary::Neg, negative);
        let e = k.unary(Unary::Exp, negative);
        k.mark_share(e);
        e
    });
    assert_eq!(used, wide::widest_vectors(Target::native()), "shares were not widened");
}

/// `1 + erf` and `1 + tanh`, each computed as one function.
#[test]
fn one_plus_a_function_is_the_same_in_all_widths() {
    for op in [Unary::Erf, Unary::Tanh] {
        let used = pointwise(&format!("1 + {op:?}"), 211, |k, x, _| {
            let (one, y) = (k.constant(Scalar::F32(1.0)), k.unary(op, x));
            k.binary(Binary::Add, one, y)
        });
        assert_eq!(used, wide::widest_vectors(Target::native()), "{op:?} was not widened");
    }
}

/// A random expression of lane-wise operations.
fn expression(k: &mut KernelBuilder, rng: &mut Rng, mut pool: Vec<Value>) -> Value {
    for _ in 0..rng.below(24) + 1 {
        let of = |k: &KernelBuilder, pool: &[Value], d: DType| -> Vec<Value> {
            pool.iter().copied().filter(|&v| k.dtype(v) == d).collect()
        };
        let d = rng.pick(&[F32, F32, I32]);
        let same = of(k, &pool, d);
        if same.is_empty() {
            continue;
        }
        let (x, y) = (rng.pick(&same), rng.pick(&same));
        let v = match rng.below(6) {
            0 => k.cast(if d == F32 { I32 } else { F32 }, x),
            1 if d == F32 => {
                use Unary::*;
                k.unary(
                    rng.pick(&[Neg, Abs, Sign, Round, Exp, Tanh, Erf, Log1p, Sqrt, Sigmoid]),
                    x,
                )
            }
            2 => {
                let c = k.compare(rng.pick(&[Compare::Lt, Compare::Ge, Compare::Eq, Compare::Ne]), x, y);
                pool.push(c);
                continue;
            }
            3 => {
                let conds = of(k, &pool, B8);
                if conds.is_empty() {
                    continue;
                }
                let mut c = rng.pick(&conds);
                if rng.below(3) == 0 {
                    let o = rng.pick(&conds);
                    c = k.binary(rng.pick(&[Binary::And, Binary::Or, Binary::Xor]), c, o);
                }
                if rng.below(4) == 0 {
                    c = k.unary(Unary::Not, c);
                }
                k.select(c, x, y)
            }
            4 => {
                let c = rng.value(d);
                let c = k.constant(c);
                k.binary(rng.pick(&[Binary::Add, Binary::Mul, Binary::Max]), x, c)
            }
            _ => k.binary(
                rng.pick(&[Binary::Add, Binary::Sub, Binary::Mul, Binary::Max, Binary::Min]),
                x,
                y,
            ),
        };
        pool.push(v);
    }

    *pool.iter().rfind(|&&v| k.dtype(v) != B8).expect("inputs are numbers")
}

/// Rows of random expressions: stored, or reduced in an order that does not change the result.
fn kernel(seed: u64) -> (Kernel, Vec<Vec<u8>>) {
    let mut rng = Rng::new(seed);
    let (rows, n) = (rng.below(4) + 1, rng.pick(&[8, 16, 31, 64, 100, 131, 300]));
    let mut k = KernelBuilder::new(format!("wide_{seed}"));
    let mut inputs = vec![];
    k.parallel(&[rows], |k, vars| {
        let mut element = |k: &mut KernelBuilder, j: crate::kernel::Var| {
            let mut pool = vec![];
            for _ in 0..rng.below(3) + 1 {
                let b = k.input(&format!("x{}", inputs.len()), rng.pick(&[F32, F32, I32]), &[rows, n]);
                inputs.push(b);
                let at = if rng.below(4) == 0 {
                    // One number per row.
                    Affine::from(vars[0]) * n as i64
                } else {
                    Affine::row_major(&[vars[0], j], &[rows, n])
                };
                pool.push(k.load(b, at));
            }
            expression(k, &mut rng, pool)
        };
        if seed.is_multiple_of(3) {
            let op = [ReduceOp::Max, ReduceOp::Min, ReduceOp::Add][seed as usize / 3 % 3];
            let d = if op == ReduceOp::Add { I32 } else { F32 };
            let init = k.initial_value(op, d);
            let r = k.reduce(n, true, &[(op, &[init])], |k, j| {
                let v = element(k, j);
                let v = k.cast(d, v);
                // Of zeros of both signs, the order decides which is the result. This sum has no negative ones.
                let zero = k.constant(Scalar::from_i64(d, 0));
                vec![k.binary(Binary::Add, v, zero)]
            })[0];
            let out = k.output("out", d, &[rows]);
            k.store(out, Affine::from(vars[0]), r);
        } else {
            k.vector(n, |k, j| {
                let v = element(k, j);
                let out = k.output("out", k.dtype(v), &[rows, n]);
                k.store(out, Affine::row_major(&[vars[0], j], &[rows, n]), v);
            });
        }
    });
    let k = k.finish().unwrap_or_else(|e| panic!("{e}"));
    let data = Rng::new(seed ^ 0x7777).inputs(&k, &inputs);
    (k, data)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(400), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_kernels_are_the_same_in_all_widths(seed: u64) {
        let (k, inputs) = kernel(seed);
        compare(&k, &inputs);
    }
}

#[test]
fn most_random_kernels_are_widened() {
    if wide::widest_vectors(Target::native()) == 16 {
        eprintln!("skipped: this machine has no wide vectors");
        return;
    }
    let wide = (0..100).filter(|&seed| {
        let (k, inputs) = kernel(seed);
        compare(&k, &inputs) > 16
    });
    let n = wide.count();
    assert!(n > 40, "only {n} of 100 random kernels were widened");
}
