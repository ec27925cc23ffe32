//! Kernels of every shape that lowering writes.

use super::*;
use crate::kernel::{Affine, Bound, Cond, Fault, Index, KernelBuilder, ReduceOp, Var};
use crate::scalar::{Binary, Compare, Unary};
use crate::types::DType::*;

/// Sums of floats in another order: equal to a few parts in a million of the largest.
fn sums(d: DType, a: &[u8], b: &[u8], i: usize) -> bool {
    if !d.is_float() {
        return distance(d, a, b, i) == 0;
    }
    let (x, y) = (Scalar::read(d, a, i).to_f64(), Scalar::read(d, b, i).to_f64());
    (x.is_nan() && y.is_nan()) || x == y || (x - y).abs() <= 4e-6 * x.abs().max(y.abs()).max(1.0)
}

fn check_sums(k: &Kernel, inputs: &[Vec<u8>]) {
    check_close(k, inputs, &sums);
}

pub(super) fn softmax(rows: usize, n: usize) -> Kernel {
    let mut k = KernelBuilder::new("softmax");
    let (x, out) = (k.input("x", F32, &[rows, n]), k.output("out", F32, &[rows, n]));
    let row = k.local("row", F32, &[n]);
    k.parallel(&[rows], |k, i| {
        let at = |j: Var| i[0] * n as i64 + j;
        let max = k.vector_reduce(ReduceOp::Max, F32, n, |k, j| k.load(x, at(j)));
        let sum = k.vector_reduce(ReduceOp::Add, F32, n, |k, j| {
            let v = k.load(x, at(j));
            let d = k.binary(Binary::Sub, v, max);
            let e = k.unary(Unary::Exp, d);
            k.mark_share(e);
            k.store(row, j, e);
            e
        });
        k.vector(n, |k, j| {
            let e = k.load(row, j);
            let r = k.binary(Binary::Div, e, sum);
            k.store(out, at(j), r);
        });
    });
    k.finish().expect("verifies")
}

#[test]
fn softmax_rows() {
    let mut rng = Rng::new(1);
    for (rows, n) in [(1, 1), (3, 3), (4, 17), (39, 64), (123, 17), (2, 1000), (7, 1000)] {
        check_sums(&softmax(rows, n), &[rng.tensor(F32, rows * n)]);
    }
}

#[test]
fn layer_norm_rows() {
    let (rows, n) = (5usize, 77usize);
    let mut k = KernelBuilder::new("layer_norm");
    let (x, w, b) = (
        k.input("x", F32, &[rows, n]),
        k.input("w", F32, &[n]),
        k.input("b", F32, &[n]),
    );
    let out = k.output("out", F32, &[rows, n]);
    k.parallel(&[rows], |k, i| {
        let at = |j: Var| i[0] * n as i64 + j;
        let sum = k.vector_reduce(ReduceOp::Add, F32, n, |k, j| k.load(x, at(j)));
        let count = k.constant(Scalar::F32(n as f32));
        let mean = k.binary(Binary::Div, sum, count);
        let squares = k.vector_reduce(ReduceOp::Add, F32, n, |k, j| {
            let v = k.load(x, at(j));
            let d = k.binary(Binary::Sub, v, mean);
            k.binary(Binary::Mul, d, d)
        });
        let var = k.binary(Binary::Div, squares, count);
        let eps = k.constant(Scalar::F32(1e-5));
        let var = k.binary(Binary::Add, var, eps);
        let r = k.unary(Unary::Rsqrt, var);
        k.vector(n, |k, j| {
            let v = k.load(x, at(j));
            let d = k.binary(Binary::Sub, v, mean);
            let v = k.binary(Binary::Mul, d, r);
            let (w, b) = (k.load(w, j), k.load(b, j));
            let v = k.fma(v, w, b);
            k.store(out, at(j), v);
        });
    });
    let mut rng = Rng::new(2);
    let inputs = [rng.tensor(F32, rows * n), rng.tensor(F32, n), rng.tensor(F32, n)];
    check_sums(&k.finish().expect("verifies"), &inputs);
}

#[test]
fn permuted_broadcast_and_reversed_views() {
    // out[i, j, k] = x[k, i, j] + y[j] - z[i, 0, n - 1 - k], over an f64, an i32 and an f32.
    let (a, b, c) = (3usize, 5usize, 9usize);
    let mut k = KernelBuilder::new("views");
    let (x, y, z) = (
        k.input("x", F64, &[c, a, b]),
        k.input("y", I32, &[b]),
        k.input("z", F32, &[a, 1, c]),
    );
    let out = k.output("out", F64, &[a, b, c]);
    k.parallel(&[a, b], |k, v| {
        let yv = k.load(y, v[1]);
        let yv = k.cast(F64, yv);
        k.vector(c, |k, l| {
            let xv = k.load(x, Affine::strided(0, &[l, v[0], v[1]], &[(a * b) as i64, b as i64, 1]));
            let zv = k.load(z, Affine::from(c as i64 - 1) - l + v[0] * c as i64);
            let zv = k.cast(F64, zv);
            let s = k.binary(Binary::Add, xv, yv);
            let s = k.binary(Binary::Sub, s, zv);
            k.store(out, Affine::row_major(&[v[0], v[1], l], &[a, b, c]), s);
        });
    });
    let mut rng = Rng::new(3);
    let inputs = [rng.tensor(F64, a * b * c), rng.tensor(I32, b), rng.tensor(F32, a * c)];
    check(&k.finish().expect("verifies"), &inputs, 0);
}

#[test]
fn reductions_of_every_kind() {
    let mut rng = Rng::new(4);
    for d in [F32, F64, I64, I32, I16, U8, B8] {
        for op in [
            ReduceOp::Add,
            ReduceOp::Mul,
            ReduceOp::Max,
            ReduceOp::Min,
            ReduceOp::And,
            ReduceOp::Or,
        ] {
            if d.is_float() && matches!(op, ReduceOp::And | ReduceOp::Or) {
                continue;
            }
            for n in [0, 1, 3, 4, 15, 16, 37, 100] {
                let mut k = KernelBuilder::new(format!("{op:?}_{d}_{n}"));
                let (x, out) = (k.input("x", d, &[2, n]), k.output("out", d, &[2]));
                k.parallel(&[2], |k, i| {
                    let r = k.vector_reduce(op, d, n, |k, j| k.load(x, i[0] * n as i64 + j));
                    k.store(out, i[0], r);
                });
                let k = k.finish().expect("verifies");
                let mut data = rng.tensor(d, 2 * n);
                check_sums(&k, std::slice::from_ref(&data));
                if d == F32 && n > 1 && matches!(op, ReduceOp::Max | ReduceOp::Min) {
                    data[4 * (n - 1)..4 * n].copy_from_slice(&f32::NAN.to_le_bytes());
                    check_sums(&k, &[data]);
                }
            }
        }
    }
}

#[test]
fn column_sums_and_a_sum_of_all() {
    let (r, c) = (9usize, 21usize);
    let mut k = KernelBuilder::new("columns");
    let (x, out) = (k.input("x", F32, &[r, c]), k.output("out", F32, &[c]));
    k.parallel_vector(c, |k, j| {
        let s = k.serial_reduce(ReduceOp::Add, F32, r, |k, i| k.load(x, i * c as i64 + j));
        k.store(out, j, s);
    });
    let mut rng = Rng::new(5);
    check(&k.finish().expect("verifies"), &[rng.tensor(F32, r * c)], 0);

    let mut k = KernelBuilder::new("all");
    let (x, out) = (k.input("x", F32, &[5000]), k.output("out", F32, &[]));
    let zero = k.constant(Scalar::F32(0.0));
    let s = k.reduce(5, false, &[(ReduceOp::Add, &[zero])], |k, i| {
        vec![k.vector_reduce(ReduceOp::Add, F32, 1000, |k, j| k.load(x, i * 1000 + j))]
    })[0];
    k.store(out, 0, s);
    check_sums(&k.finish().expect("verifies"), &[rng.tensor(F32, 5000)]);
}

/// The extreme values of six rows and their indices.
pub(super) fn arg_rows(op: ReduceOp, d: DType, n: usize) -> Kernel {
    let mut k = KernelBuilder::new(format!("{op:?}_{d}_{n}"));
    let (x, values, indices) = (
        k.input("x", d, &[6, n]),
        k.output("values", d, &[6]),
        k.output("indices", I64, &[6]),
    );
    k.parallel(&[6], |k, i| {
        let init = [k.constant(op.identity(d)), k.constant(Scalar::Int(I64, i64::MAX))];
        let r = k.reduce(n, true, &[(op, &init)], |k, j| {
            let v = k.load(x, i[0] * n as i64 + j);
            vec![v, k.index(j)]
        });
        k.store(values, i[0], r[0]);
        k.store(indices, i[0], r[1]);
    });
    k.finish().expect("verifies")
}

#[test]
fn argmax_takes_the_first_and_nan_wins() {
    for d in [F32, F64, I64, I32, B8] {
        for op in [ReduceOp::ArgMax, ReduceOp::ArgMin] {
            for n in [1, 2, 5, 16, 50] {
                let mut rng = Rng::new(n as u64);
                // Few different values, so that there are ties.
                let mut data: Vec<Scalar> = (0..6 * n).map(|_| Scalar::from_i64(d, rng.below(4) as i64)).collect();
                if d.is_float() {
                    data[n / 2] = Scalar::from_f64(d, f64::NAN);
                    data[n - 1] = Scalar::from_f64(d, f64::NAN);
                    data[2 * n - 1] = Scalar::from_f64(d, f64::INFINITY);
                }
                check(&arg_rows(op, d, n), &[bytes(d, &data)], 0);
            }
        }
    }
}

/// `max_pool2d` with indices of two images, kernel 3, stride `s`, padding `p`.
pub(super) fn max_pool(h: usize, w: usize, s: usize, p: usize) -> Kernel {
    let (oh, ow) = ((h + 2 * p - 3) / s + 1, (w + 2 * p - 3) / s + 1);
    let mut k = KernelBuilder::new("max_pool");
    let (x, out, idx) = (
        k.input("x", F32, &[2, h, w]),
        k.output("out", F32, &[2, oh, ow]),
        k.output("indices", I64, &[2, oh, ow]),
    );
    k.parallel(&[2, oh], |k, v| {
        k.vector(ow, |k, j| {
            let init = [
                k.constant(Scalar::F32(f32::NEG_INFINITY)),
                k.constant(Scalar::Int(I64, 0)),
            ];
            let r = k.scan(3, &init, |k, kh, acc| {
                k.scan(3, acc, |k, kw, acc| {
                    let row = v[1] * s as i64 + kh - p as i64;
                    let col = j * s as i64 + kw - p as i64;
                    let at = row.clone() * w as i64 + col.clone();
                    let x = k.load_or(
                        x,
                        at.clone() + v[0] * (h * w) as i64,
                        vec![Cond::within(row, h), Cond::within(col, w)],
                        Scalar::F32(f32::NEG_INFINITY),
                    );
                    let here = k.index(at);
                    let more = k.compare(Compare::Gt, x, acc[0]);
                    vec![k.select(more, x, acc[0]), k.select(more, here, acc[1])]
                })
            });
            let at = Affine::row_major(&[v[0], v[1], j], &[2, oh, ow]);
            k.store(out, at.clone(), r[0]);
            k.store(idx, at, r[1]);
        });
    });
    k.finish().expect("verifies")
}

#[test]
fn padded_windows() {
    for (h, w, s, p) in [
        (8usize, 11usize, 1usize, 1usize),
        (9, 23, 2, 1),
        (5, 5, 3, 0),
        (4, 40, 1, 1),
    ] {
        let mut rng = Rng::new(6);
        check(&max_pool(h, w, s, p), &[rng.tensor(F32, 2 * h * w)], 0);
    }
}

#[test]
fn padding_of_a_flat_parallel_loop() {
    for (n, before, after) in [(10usize, 3i64, 5i64), (40, 1, 0), (2, 30, 30)] {
        let total = n + (before + after) as usize;
        let mut k = KernelBuilder::new("pad");
        let (x, out) = (k.input("x", I16, &[n]), k.output("out", I16, &[total]));
        k.parallel_vector(total, |k, i| {
            let v = k.load_or(x, i - before, vec![Cond::within(i - before, n)], Scalar::Int(I16, -9));
            k.store(out, i, v);
        });
        let mut rng = Rng::new(7);
        check(&k.finish().expect("verifies"), &[rng.tensor(I16, n)], 0);
    }
}

#[test]
fn gathers_check_wrap_and_clamp() {
    let (rows, dim, n) = (6usize, 21usize, 13usize);
    for bound in [Bound::Check, Bound::Wrap, Bound::Clamp] {
        let mut k = KernelBuilder::new(format!("{bound:?}"));
        let (ids, table, out) = (
            k.input("ids", I64, &[n]),
            k.input("table", F32, &[rows, dim]),
            k.output("out", F32, &[n, dim]),
        );
        // The same elements through a dynamic index that differs over the lanes.
        let out2 = k.output("out2", F32, &[dim, n]);
        k.parallel(&[1], |k, _| {
            k.serial(n, |k, i| {
                let id = k.load(ids, i);
                let id = k.bounded(id, rows, bound);
                k.vector(dim, |k, j| {
                    let v = k.load(table, Index::from(j).plus(id, dim as i64));
                    k.store(out, i * dim as i64 + j, v);
                });
            });
            k.serial(dim, |k, j| {
                k.vector(n, |k, i| {
                    let id = k.load(ids, i);
                    let id = k.bounded(id, rows, bound);
                    let v = k.load(table, Index::from(j).plus(id, dim as i64));
                    k.store(out2, j * n as i64 + i, v);
                });
            });
        });
        let k = k.finish().expect("verifies");
        let mut rng = Rng::new(8);
        let table = rng.tensor(F32, rows * dim);
        let low = if bound == Bound::Check { 0 } else { -(rows as i64) };
        let ids: Vec<Scalar> = (0..n)
            .map(|i| Scalar::Int(I64, (i as i64 * 7) % rows as i64 + low * (i as i64 % 2)))
            .collect();
        check(&k, &[bytes(I64, &ids), table.clone()], 0);
        for bad in [rows as i64, -(rows as i64) - 1, i64::MIN, i64::MAX] {
            let mut ids = ids.clone();
            ids[9] = Scalar::Int(I64, bad);
            check(&k, &[bytes(I64, &ids), table.clone()], 0);
        }
    }
}

#[test]
fn a_bad_index_is_reported() {
    let mut k = KernelBuilder::new("bad");
    let (ids, out) = (k.input("ids", I64, &[1]), k.output("out", I64, &[1]));
    k.parallel_vector(1, |k, i| {
        let v = k.load(ids, i);
        let v = k.bounded(v, 5, Bound::Check);
        k.store(out, i, v);
    });
    let k = k.finish().expect("verifies");
    let c = compile(std::slice::from_ref(&k), Options::default()).expect("compiles");
    let mut buffers = [AlignedBytes::from_slice(&5i64.to_le_bytes()), AlignedBytes::zeroed(8)];
    assert_eq!(run(&c, &k, &mut buffers, 1).fault(), Some(Fault::Index));
}

#[test]
fn scans_and_concatenations() {
    let (r, n) = (3usize, 20usize);
    let mut k = KernelBuilder::new("cumsum_cat");
    let (x, y) = (k.input("x", F32, &[r, n]), k.input("y", F32, &[r, 7]));
    let out = k.output("out", F32, &[r, n + 7]);
    k.parallel(&[r], |k, i| {
        let zero = k.constant(Scalar::F32(0.0));
        let width = (n + 7) as i64;
        let last = k.scan(n, &[zero], |k, j, acc| {
            let v = k.load(x, i[0] * n as i64 + j);
            let s = k.binary(Binary::Add, acc[0], v);
            k.store(out, i[0] * width + j, s);
            vec![s]
        });
        k.vector(7, |k, j| {
            let v = k.load(y, i[0] * 7 + j);
            let v = k.binary(Binary::Mul, v, last[0]);
            k.store(out, i[0] * width + j + n as i64, v);
        });
    });
    let mut rng = Rng::new(9);
    check(
        &k.finish().expect("verifies"),
        &[rng.tensor(F32, r * n), rng.tensor(F32, r * 7)],
        0,
    );
}

#[test]
fn strided_stores_and_swapped_carries() {
    // A Fibonacci-like scan swaps its carried values; its results go to every third element.
    let mut k = KernelBuilder::new("swap");
    let (x, out) = (k.input("x", I64, &[30]), k.output("out", I64, &[90]));
    let (a, b) = (k.constant(Scalar::Int(I64, 0)), k.constant(Scalar::Int(I64, 1)));
    k.scan(30, &[a, b], |k, i, c| {
        let v = k.load(x, i);
        let s = k.binary(Binary::Add, c[0], v);
        k.store(out, i * 3, s);
        vec![c[1], s]
    });
    k.vector(30, |k, i| {
        let v = k.load(x, i);
        k.store(out, i * 3 + 1, v);
        k.store(out, Affine::from(89) - i * 3, v);
    });
    let mut rng = Rng::new(10);
    check(&k.finish().expect("verifies"), &[rng.tensor(I64, 30)], 0);
}

#[test]
fn in_place_updates() {
    let mut k = KernelBuilder::new("scatter_add");
    let (ids, src) = (k.input("ids", I64, &[50]), k.input("src", F32, &[50]));
    let acc = k.buffer("acc", F32, &[8], crate::kernel::Role::InOut);
    k.serial(50, |k, i| {
        let id = k.load(ids, i);
        let id = k.bounded(id, 8, Bound::Wrap);
        let v = k.load(src, i);
        let old = k.load(acc, Index::default().plus(id, 1));
        let new = k.binary(Binary::Add, old, v);
        k.store(acc, Index::default().plus(id, 1), new);
    });
    let k = k.finish().expect("verifies");
    let mut rng = Rng::new(11);
    let ids: Vec<Scalar> = (0..50).map(|_| Scalar::Int(I64, rng.below(16) as i64 - 8)).collect();
    let inputs = [bytes(I64, &ids), rng.tensor(F32, 50), rng.tensor(F32, 8)];
    // In place: a second chunked run would add twice, but there is only one iteration to chunk.
    check(&k, &inputs, 0);
}

#[test]
fn equal_kernels_share_code() {
    let mut a = softmax(4, 64);
    let b = softmax(4, 64);
    let c = softmax(4, 65);
    a.name = "another".into();
    let kernels = [a, b, c];
    let options = Options {
        text: true,
        width: Some(16),
        ..Options::default()
    };
    let compiled = compile(&kernels, options).expect("compiles");
    assert_eq!((compiled.len(), compiled.functions()), (3, 2));
    let asm = compiled.asm(2, &kernels[2], "#", &|_| String::new());
    assert!(compiled.code_bytes(0) > 0 && asm.contains("ret") && compiled.clif(0).contains("f32x4"));
}

#[test]
fn long_sums_keep_their_digits() {
    let n = 1_000_003;
    let mut k = KernelBuilder::new("long");
    let (x, out) = (k.input("x", F32, &[n]), k.output("out", F32, &[]));
    let s = k.vector_reduce(ReduceOp::Add, F32, n, |k, j| k.load(x, j));
    k.store(out, 0, s);
    let k = k.finish().expect("verifies");
    let values: Vec<f32> = (0..n).map(|i| 0.1 + (i % 97) as f32 * 1e-3).collect();
    let want: f64 = values.iter().map(|&x| x as f64).sum();
    let mut buffers = [
        AlignedBytes::from_slice(&values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>()),
        AlignedBytes::zeroed(4),
    ];
    let c = compile(std::slice::from_ref(&k), Options::default()).expect("compiles");
    run(&c, &k, &mut buffers, 1);
    let got = Scalar::read(F32, buffers[1].bytes(), 0).to_f64();
    assert!((got - want).abs() < 8e-7 * want, "{got} {want}");
}

#[test]
fn every_second_and_reversed_elements() {
    for d in [F32, I32, F64, BF16] {
        for (stride, base, n) in [
            (2i64, 0i64, 43usize),
            (2, 1, 16),
            (-1, 42, 43),
            (-1, 15, 16),
            (3, 0, 20),
            (-2, 60, 30),
        ] {
            let len = (base + stride.max(0) * (n as i64 - 1) + 1) as usize;
            let mut k = KernelBuilder::new(format!("{d}_{stride}"));
            let (x, out) = (k.input("x", d, &[len]), k.output("out", d, &[n]));
            k.parallel_vector(n, |k, i| {
                let v = k.load(x, i * stride + base);
                k.store(out, i, v);
            });
            let mut rng = Rng::new(31);
            check(&k.finish().expect("verifies"), &[rng.tensor(d, len)], 0);
        }
    }
}
