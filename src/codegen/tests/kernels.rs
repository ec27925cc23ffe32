//! Kernels of every form that lowering produces.

use super::*;
use crate::kernel::Fault;
use crate::types::DType::*;

/// Float sums in another order: equal to a few parts per million of the largest term.
fn sums(d: DType, a: &[u8], b: &[u8], i: usize) -> bool {
    if !d.is_float() {
        return distance(d, a, b, i) == 0;
    }
    let (x, y) = (Scalar::read(d, a, i).to_f64(), Scalar::read(d, b, i).to_f64());
    (x.is_nan() && y.is_nan()) || x == y || (x - y).abs() <= 4e-6 * x.abs().max(y.abs()).max(1.0)
}

pub(super) fn check_sums(k: &Kernel, inputs: &[Vec<u8>]) {
    check_close(k, inputs, &sums);
}

pub(super) fn softmax(rows: usize, n: usize) -> Kernel {
    kernel(
        "kernel softmax
        in x: f32[{rows}, {n}]
        out out: f32[{rows}, {n}]
        local row: f32[{n}]
        parallel for i0 in {rows} {
            v0: f32 = f32(-inf)
            vector for i1 in {n} {
                v1: f32 = x[{n} * i0 + i1]
                reduce max v1 from v0 to v2: f32
            }
            v3: f32 = f32(0.0)
            vector for i2 in {n} {
                v4: f32 = x[{n} * i0 + i2]
                v5: f32 = sub(v4, v2)
                v6: f32 = exp(v5) share
                row[i2] = v6
                reduce add v6 from v3 to v7: f32
            }
            vector for i3 in {n} {
                v8: f32 = row[i3]
                v9: f32 = div(v8, v7)
                out[{n} * i0 + i3] = v9
            }
        }",
        &[("rows", rows), ("n", n)],
    )
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
    let k = kernel(
        "kernel layer_norm
        in x: f32[5, 77]
        in w: f32[77]
        in b: f32[77]
        out out: f32[5, 77]
        parallel for i0 in 5 {
            v0: f32 = f32(0.0)
            vector for i1 in 77 {
                v1: f32 = x[77 * i0 + i1]
                reduce add v1 from v0 to v2: f32
            }
            v3: f32 = f32(77.0)
            v4: f32 = div(v2, v3)
            vector for i2 in 77 {
                v5: f32 = x[77 * i0 + i2]
                v6: f32 = sub(v5, v4)
                v7: f32 = mul(v6, v6)
                reduce add v7 from v0 to v8: f32
            }
            v9: f32 = div(v8, v3)
            v10: f32 = f32(1e-5)
            v11: f32 = add(v9, v10)
            v12: f32 = rsqrt(v11)
            vector for i3 in 77 {
                v13: f32 = x[77 * i0 + i3]
                v14: f32 = sub(v13, v4)
                v15: f32 = mul(v14, v12)
                v16: f32 = w[i3]
                v17: f32 = b[i3]
                v18: f32 = fma(v15, v16, v17)
                out[77 * i0 + i3] = v18
            }
        }",
        &[],
    );
    let mut rng = Rng::new(2);
    check_sums(&k, &[rng.tensor(F32, 385), rng.tensor(F32, 77), rng.tensor(F32, 77)]);
}

#[test]
fn permuted_broadcast_and_reversed_views() {
    // out[i, j, k] = x[k, i, j] + y[j] - z[i, 0, n - 1 - k], over an f64, an i32 and an f32.
    let k = kernel(
        "kernel views
        in x: f64[9, 3, 5]
        in y: i32[5]
        in z: f32[3, 1, 9]
        out out: f64[3, 5, 9]
        parallel for i0, i1 in 3, 5 {
            v0: i32 = y[i1]
            v1: f64 = f64.cast(v0)
            vector for i2 in 9 {
                v2: f64 = x[15 * i2 + 5 * i0 + i1]
                v3: f32 = z[9 * i0 - i2 + 8]
                v4: f64 = f64.cast(v3)
                v5: f64 = add(v2, v1)
                v6: f64 = sub(v5, v4)
                out[45 * i0 + 9 * i1 + i2] = v6
            }
        }",
        &[],
    );
    let mut rng = Rng::new(3);
    check(&k, &[rng.tensor(F64, 135), rng.tensor(I32, 5), rng.tensor(F32, 27)], 0);
}

/// `max_pool2d` with indices, of two images: kernel 3, stride `s`, padding `p`.
pub(super) fn max_pool(h: usize, w: usize, s: usize, p: usize) -> Kernel {
    let (oh, ow) = ((h + 2 * p - 3) / s + 1, (w + 2 * p - 3) / s + 1);
    let text = "kernel max_pool
        in x: f32[2, {h}, {w}]
        out out: f32[2, {oh}, {ow}]
        out indices: i64[2, {oh}, {ow}]
        parallel for i0, i1 in 2, {oh} {
            vector for i2 in {ow} {
                v0: f32 = f32(-inf)
                v1: i64 = i64(0)
                for i3 in 3 {
                    carry v2: f32 from v0 by v11 to v13: f32
                    carry v3: i64 from v1 by v12 to v14: i64
                    for i4 in 3 {
                        carry v4: f32 from v2 by v9 to v11: f32
                        carry v5: i64 from v3 by v10 to v12: i64
                        v6: f32 = x[{hw} * i0 + {sw} * i1 + {s} * i2 + {w} * i3 + i4 - {pw} - {p}] where 0 <= {s} * i1 + i3 - {p} < {h} and 0 <= {s} * i2 + i4 - {p} < {w} else f32(-inf)
                        v7: i64 = index {sw} * i1 + {s} * i2 + {w} * i3 + i4 - {pw} - {p}
                        v8: b8 = gt(v6, v4)
                        v9: f32 = select(v8, v6, v4)
                        v10: i64 = select(v8, v7, v5)
                    }
                }
                out[{ohw} * i0 + {ow} * i1 + i2] = v13
                indices[{ohw} * i0 + {ow} * i1 + i2] = v14
            }
        }";
    let sizes = [("h", h), ("w", w), ("oh", oh), ("ow", ow), ("s", s), ("p", p)];
    let products = [("hw", h * w), ("sw", s * w), ("pw", p * w), ("ohw", oh * ow)];
    kernel(text, &[&sizes[..], &products].concat())
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
    for (n, before, after) in [(10usize, 3usize, 5usize), (40, 1, 0), (2, 30, 30)] {
        let total = n + before + after;
        let k = kernel(
            "kernel pad
            in x: i16[{n}]
            out out: i16[{total}]
            parallel vector for i0 in {total} {
                v0: i16 = x[i0 - {before}] where 0 <= i0 - {before} < {n} else i16(-9)
                out[i0] = v0
            }",
            &[("n", n), ("total", total), ("before", before)],
        );
        let mut rng = Rng::new(7);
        check(&k, &[rng.tensor(I16, n)], 0);
    }
}

#[test]
fn gathers_check_wrap_and_clamp() {
    let (rows, dim, n) = (6usize, 21usize, 13usize);
    for bound in ["check", "wrap", "clamp"] {
        // The second result has the same elements, loaded through a dynamic index that varies over the lanes.
        let text = "kernel {bound}
            in ids: i64[13]
            in table: f32[6, 21]
            out out: f32[13, 21]
            out out2: f32[21, 13]
            parallel for i0 in 1 {
                for i1 in 13 {
                    v0: i64 = ids[i1]
                    v1: i64 = bounded(v0, 6, {bound})
                    vector for i2 in 21 {
                        v2: f32 = table[i2 + 21 * v1]
                        out[21 * i1 + i2] = v2
                    }
                }
                for i3 in 21 {
                    vector for i4 in 13 {
                        v3: i64 = ids[i4]
                        v4: i64 = bounded(v3, 6, {bound})
                        v5: f32 = table[i3 + 21 * v4]
                        out2[13 * i3 + i4] = v5
                    }
                }
            }";
        let k = kernel(&text.replace("{bound}", bound), &[]);
        let mut rng = Rng::new(8);
        let table = rng.tensor(F32, rows * dim);
        let low = if bound == "check" { 0 } else { -(rows as i64) };
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
    let k = kernel(
        "kernel bad
        in ids: i64[1]
        out out: i64[1]
        parallel vector for i0 in 1 {
            v0: i64 = ids[i0]
            v1: i64 = bounded(v0, 5, check)
            out[i0] = v1
        }",
        &[],
    );
    let c = compile_kernels(std::slice::from_ref(&k), CodegenOptions::default()).expect("compiles");
    let mut buffers = [AlignedBytes::from_slice(&5i64.to_le_bytes()), AlignedBytes::zeroed(8)];
    assert_eq!(run(&c, &k, &mut buffers, 1).first_fault(), Some(Fault::Index));
}

#[test]
fn scans_and_concatenations() {
    let k = kernel(
        "kernel cumsum_cat
        in x: f32[3, 20]
        in y: f32[3, 7]
        out out: f32[3, 27]
        parallel for i0 in 3 {
            v0: f32 = f32(0.0)
            for i1 in 20 {
                carry v1: f32 from v0 by v3 to v4: f32
                v2: f32 = x[20 * i0 + i1]
                v3: f32 = add(v1, v2)
                out[27 * i0 + i1] = v3
            }
            vector for i2 in 7 {
                v5: f32 = y[7 * i0 + i2]
                v6: f32 = mul(v5, v4)
                out[27 * i0 + i2 + 20] = v6
            }
        }",
        &[],
    );
    let mut rng = Rng::new(9);
    check(&k, &[rng.tensor(F32, 60), rng.tensor(F32, 21)], 0);
}

#[test]
fn strided_stores_and_swapped_carries() {
    // A Fibonacci-like scan that swaps its carried values. Its results go to every third element.
    let k = kernel(
        "kernel swap
        in x: i64[30]
        out out: i64[90]
        v0: i64 = i64(0)
        v1: i64 = i64(1)
        for i0 in 30 {
            carry v2: i64 from v0 by v3 to v6: i64
            carry v3: i64 from v1 by v5 to v7: i64
            v4: i64 = x[i0]
            v5: i64 = add(v2, v4)
            out[3 * i0] = v5
        }
        vector for i1 in 30 {
            v8: i64 = x[i1]
            out[3 * i1 + 1] = v8
            out[89 - 3 * i1] = v8
        }",
        &[],
    );
    let mut rng = Rng::new(10);
    check(&k, &[rng.tensor(I64, 30)], 0);
}

#[test]
fn in_place_updates() {
    let k = kernel(
        "kernel scatter_add
        in ids: i64[50]
        in src: f32[50]
        inout acc: f32[8]
        for i0 in 50 {
            v0: i64 = ids[i0]
            v1: i64 = bounded(v0, 8, wrap)
            v2: f32 = src[i0]
            v3: f32 = acc[0 + 1 * v1]
            v4: f32 = add(v3, v2)
            acc[0 + 1 * v1] = v4
        }",
        &[],
    );
    let mut rng = Rng::new(11);
    let ids: Vec<Scalar> = (0..50).map(|_| Scalar::Int(I64, rng.below(16) as i64 - 8)).collect();
    let inputs = [bytes(I64, &ids), rng.tensor(F32, 50), rng.tensor(F32, 8)];
    // In place: a second chunked run would add twice, but the loop has only one iteration, so it is not chunked.
    check(&k, &inputs, 0);
}

#[test]
fn equal_kernels_share_code() {
    let mut a = softmax(4, 64);
    let b = softmax(4, 64);
    let c = softmax(4, 65);
    a.name = "another".into();
    let kernels = [a, b, c];
    let options = CodegenOptions {
        text: true,
        width: Some(16),
        ..CodegenOptions::default()
    };
    let compiled = compile_kernels(&kernels, options).expect("compiles");
    assert_eq!((compiled.len(), compiled.function_count()), (3, 2));
    let asm = compiled.asm(2, &kernels[2], "#", &|_| String::new());
    assert!(compiled.code_bytes(0) > 0 && asm.contains("ret") && compiled.clif(0).contains("f32x4"));
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
            let text = "kernel strided
                in x: {d}[{len}]
                out out: {d}[{n}]
                parallel vector for i0 in {n} {
                    v0: {d} = x[{stride} * i0 + {base}]
                    out[i0] = v0
                }";
            let text = text
                .replace("{d}", d.short_name())
                .replace("{stride}", &stride.to_string());
            let k = kernel(&text, &[("len", len), ("n", n), ("base", base as usize)]);
            let mut rng = Rng::new(31);
            check(&k, &[rng.tensor(d, len)], 0);
        }
    }
}

#[test]
fn parallel_loops_form_one_range() {
    // A chunk may end in the middle of a loop, cover several, or begin after the first.
    for (a, b, rows) in [(70usize, 33usize, 3usize), (1, 200, 1), (0, 5, 2), (64, 0, 4)] {
        let k = kernel(
            "kernel parts
            in x: f32[{a}]
            in y: f32[{b}]
            out out: f32[{total}]
            parallel vector for i0 in {a} {
                v0: f32 = x[i0]
                out[i0] = v0
            }
            parallel for i1, i2 in {rows}, 2 {
                vector for i3 in 5 {
                    v1: f32 = f32(2.0)
                    out[10 * i1 + 5 * i2 + i3 + {a}] = v1
                }
            }
            parallel vector for i4 in {b} {
                v2: f32 = y[i4]
                out[i4 + {after}] = v2
            }",
            &[
                ("a", a),
                ("b", b),
                ("rows", rows),
                ("after", a + 10 * rows),
                ("total", a + b + 10 * rows),
            ],
        );
        assert_eq!(k.parallel_extent(), a + b + 2 * rows);
        let mut rng = Rng::new(11);
        check(&k, &[rng.tensor(F32, a), rng.tensor(F32, b)], 0);
    }
}
