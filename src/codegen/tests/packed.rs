//! Kernels with packed lanes, and 16-bit floats that need no rounding, compared with the interpreter.

use super::*;
use crate::codegen::packed::choose_packing;
use crate::kernel::{Affine, Cond, KernelBuilder, ReduceOp, Value, highest_value, lowest_value};
use crate::scalar::{Binary, Compare, Unary};
use crate::types::DType::*;

/// Values over the whole range of a dtype.
fn spread(d: DType, n: usize) -> Vec<u8> {
    let mut r = Rng::new(n as u64);
    let value = |r: &mut Rng| match d {
        B8 => Scalar::Bool(r.below(3) == 0),
        d if d.is_float() => r.value(d),
        d => {
            let low = lowest_value(d).to_i64();
            let span = highest_value(d).to_i64() - low + 1;
            Scalar::from_i64(d, low + r.below(span as usize) as i64)
        }
    };
    let all: Vec<Scalar> = (0..n).map(|_| value(&mut r)).collect();
    bytes(d, &all)
}

/// Compares `k`, which must be packed, with the interpreter.
fn check_packed(k: &Kernel, inputs: &[Vec<u8>]) {
    let packing = choose_packing(k, 64);
    assert!(packing.is_some(), "{} is not packed", k.name);
    check(k, inputs, 0);
}

/// `out[i] = f(x[i], y[i])`.
fn check_map(name: &str, d: DType, f: impl Fn(&mut KernelBuilder, Value, Value) -> Value) {
    for n in [32, 64, 225, 300] {
        let mut k = KernelBuilder::new(format!("{name}_{d}_{n}"));
        let (x, y) = (k.input("x", d, &[n]), k.input("y", d, &[n]));
        k.parallel_vector(n, |k, i| {
            let (a, b) = (k.load(x, i), k.load(y, i));
            let r = f(k, a, b);
            let out = k.output("out", k.dtype(r), &[n]);
            k.store(out, i, r);
        });
        let k = k.finish().unwrap_or_else(|e| panic!("{e}"));
        let mut other = spread(d, n + 1);
        other.drain(..d.size());
        check_packed(&k, &[spread(d, n), other]);
    }
}

#[test]
fn operations_on_narrow_integers_are_packed() {
    use Binary::*;
    for d in [U8, I8, I16] {
        for op in [Add, Sub, Mul, And, Or, Xor, Max, Min, Fmax, Fmin] {
            check_map(&format!("{op:?}"), d, |k, x, y| k.binary(op, x, y));
        }
        for op in [Unary::Neg, Unary::Abs, Unary::BitNot] {
            check_map(&format!("{op:?}"), d, |k, x, y| {
                let v = k.unary(op, x);
                k.binary(Sub, v, y)
            });
        }
    }
    for d in [U8, I8, B8] {
        for op in Compare::ALL {
            check_map(&format!("{op:?}"), d, |k, x, y| k.compare(op, x, y));
        }
        check_map("select", d, |k, x, y| {
            let less = k.compare(Compare::Lt, x, y);
            k.select(less, x, y)
        });
        check_map("cast", d, |k, x, y| {
            let (a, b) = (k.cast(B8, x), k.cast(B8, y));
            let both = k.binary(And, a, b);
            let sum = k.cast(U8, both);
            let sign = k.unary(Unary::SignBit, x);
            k.select(sign, sum, sum)
        });
    }
    check_map("sign", I8, |k, x, _| k.unary(Unary::Sign, x));
    check_map("sign", U8, |k, x, _| k.unary(Unary::Sign, x));
    check_map("constant", U8, |k, x, _| {
        let three = k.constant(Scalar::from_i64(U8, 3));
        k.binary(Mul, x, three)
    });
}

#[test]
fn copies_of_narrow_elements_are_packed() {
    for d in [U8, I8, B8, I16, F16, BF16] {
        for n in [64, 225] {
            let mut k = KernelBuilder::new(format!("copies_{d}_{n}"));
            let (x, out) = (k.input("x", d, &[3, n]), k.output("out", d, &[3, n]));
            let (back, padded) = (k.output("back", d, &[3, n]), k.output("padded", d, &[3, n]));
            let other = lowest_value(d);
            k.parallel(&[3], |k, r| {
                k.vector(n, |k, i| {
                    let v = k.load(x, r[0] * n as i64 + i);
                    k.store(out, r[0] * n as i64 + i, v);
                });
                k.vector(n, |k, i| {
                    let last = r[0] * n as i64 + n as i64 - 1;
                    let v = k.load(x, last + Affine::from(i) * -1);
                    k.store(back, r[0] * n as i64 + i, v);
                });
                k.vector(n, |k, i| {
                    let from = Affine::from(i) - 5;
                    let conds = vec![Cond::within(from.clone(), n), Cond::within(r[0] - 1, 3)];
                    let v = k.load_or(x, Affine::from(r[0]) * n as i64 - n as i64 + from, conds, other);
                    k.store(padded, r[0] * n as i64 + i, v);
                });
            });
            let k = k.finish().unwrap_or_else(|e| panic!("{e}"));
            check_packed(&k, &[spread(d, 3 * n)]);
        }
    }
}

#[test]
fn a_splat_is_packed() {
    for d in [U8, B8, I16, BF16] {
        let n = 225;
        let mut k = KernelBuilder::new(format!("splat_{d}"));
        let (x, out) = (k.input("x", d, &[3]), k.output("out", d, &[3, n]));
        k.parallel(&[3], |k, r| {
            let v = k.load(x, r[0]);
            k.vector(n, |k, i| k.store(out, r[0] * n as i64 + i, v));
        });
        let k = k.finish().unwrap_or_else(|e| panic!("{e}"));
        check_packed(&k, &[spread(d, 3)]);
    }
}

#[test]
fn reductions_of_narrow_integers_are_packed() {
    let ops = [ReduceOp::Max, ReduceOp::Min, ReduceOp::And, ReduceOp::Or];
    for (d, op) in [U8, I8, B8, I16].into_iter().flat_map(|d| ops.map(|op| (d, op))) {
        for n in [64, 97, 225] {
            let mut k = KernelBuilder::new(format!("reduce_{op:?}_{d}_{n}"));
            let (x, rows) = (k.input("x", d, &[5, n]), k.output("rows", d, &[5]));
            k.parallel(&[5], |k, v| {
                let init = k.initial_value(op, d);
                let load = |k: &mut KernelBuilder, j| vec![k.load(x, v[0] * n as i64 + j)];
                let r = k.reduce(n, true, &[(op, &[init])], load)[0];
                k.store(rows, Affine::from(v[0]), r);
            });
            let k = k.finish().unwrap_or_else(|e| panic!("{e}"));
            check_packed(&k, &[spread(d, 5 * n)]);
            let mut k = KernelBuilder::new(format!("columns_{op:?}_{d}_{n}"));
            let (x, columns) = (k.input("x", d, &[5, n]), k.output("columns", d, &[n]));
            k.parallel_vector(n, |k, j| {
                let init = k.initial_value(op, d);
                let load = |k: &mut KernelBuilder, i| vec![k.load(x, Affine::from(i) * n as i64 + j)];
                let r = k.reduce(5, false, &[(op, &[init])], load)[0];
                k.store(columns, j, r);
            });
            let k = k.finish().unwrap_or_else(|e| panic!("{e}"));
            check_packed(&k, &[spread(d, 5 * n)]);
        }
    }
}

#[test]
fn wider_values_and_short_loops_are_not_packed() {
    let map = |d: DType, n: usize, f: &dyn Fn(&mut KernelBuilder, Value) -> Value| {
        let mut k = KernelBuilder::new("plain");
        let x = k.input("x", d, &[n]);
        k.parallel_vector(n, |k, i| {
            let v = k.load(x, i);
            let r = f(k, v);
            let out = k.output("out", k.dtype(r), &[n]);
            k.store(out, i, r);
        });
        choose_packing(&k.finish().unwrap_or_else(|e| panic!("{e}")), 64)
    };
    assert_eq!(map(F32, 256, &|_, x| x), None);
    assert_eq!(map(U8, 256, &|k, x| k.cast(F32, x)), None);
    assert_eq!(map(U8, 256, &|k, x| k.binary(Binary::FloorDiv, x, x)), None);
    assert_eq!(map(U8, 12, &|_, x| x), None);
    let copied = map(U8, 256, &|_, x| x).map(|p| (p.lane, p.width));
    assert_eq!(copied, Some((1, 64)));
    let added = map(I16, 256, &|k, x| k.binary(Binary::Add, x, x)).map(|p| (p.lane, p.width));
    assert_eq!(added, Some((2, 32)));
}

/// Every second element, and elements in reverse order, of kernels that compute in 32-bit lanes.
#[test]
fn strided_loads_of_narrow_elements() {
    for d in [U8, I8, I16, F16, BF16, I32, F32] {
        let n = 37;
        let mut k = KernelBuilder::new(format!("strided_{d}"));
        let (x, out) = (k.input("x", d, &[2 * n - 1]), k.output("out", F32, &[n]));
        k.parallel_vector(n, |k, i| {
            let (a, b) = (k.load(x, i * 2), k.load(x, Affine::from(i) * -1 + n as i64 - 1));
            let (a, b) = (k.cast(F32, a), k.cast(F32, b));
            let r = k.binary(Binary::Sub, a, b);
            k.store(out, i, r);
        });
        let k = k.finish().unwrap_or_else(|e| panic!("{e}"));
        check(&k, &[spread(d, 2 * n - 1)], 0);
    }
}

/// What picks a bf16 or changes its sign is stored without rounding.
#[test]
fn exact_results_of_bf16() {
    let special = [
        0.0,
        -0.0,
        1.0,
        -2.5,
        0.75,
        127.5,
        -300.0,
        1e38,
        1e-40,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ];
    let n = 120;
    let values = |step: usize| -> Vec<u8> {
        let all: Vec<Scalar> = (0..n).map(|i| Scalar::F64(special[i / step % special.len()])).collect();
        bytes(BF16, &all)
    };
    let mut k = KernelBuilder::new("exact");
    let (x, y) = (k.input("x", BF16, &[n]), k.input("y", BF16, &[n]));
    let outs: Vec<Buf> = (0..8).map(|i| k.output(&format!("out{i}"), BF16, &[n])).collect();
    k.parallel_vector(n, |k, i| {
        let (a, b) = (k.load(x, i), k.load(y, i));
        let (a, b) = (k.cast(F32, a), k.cast(F32, b));
        let limit = k.constant(Scalar::F32(1.0078125));
        let fine = k.constant(Scalar::F32(1.0 + 1.0 / 256.0));
        let less = k.compare(Compare::Lt, a, b);
        let results = [
            k.unary(Unary::Neg, a),
            k.unary(Unary::Abs, a),
            k.unary(Unary::Floor, a),
            k.binary(Binary::Copysign, a, b),
            k.binary(Binary::Max, a, b),
            k.binary(Binary::Fmin, a, limit),
            k.binary(Binary::Min, a, fine),
            k.select(less, a, b),
        ];
        for (out, r) in outs.iter().zip(results) {
            let r = k.cast(BF16, r);
            k.store(*out, i, r);
        }
    });
    let k = k.finish().unwrap_or_else(|e| panic!("{e}"));
    check(&k, &[values(1), values(10)], 0);
}
