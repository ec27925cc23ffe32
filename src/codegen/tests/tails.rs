//! Short rows, borders and triangles: the last iterations of vector loops, with masks and without.

use super::widths::{compare, values};
use super::*;
use crate::kernel::{Affine, Cond, KernelBuilder};
use crate::scalar::{Binary, Compare, Unary};
use crate::types::DType::*;

/// All chunks of a parallel loop give what the interpreter gives, at every width.
fn check_all(k: &Kernel, inputs: &[Vec<u8>]) -> usize {
    check(k, inputs, 0);
    compare(k, inputs)
}

/// Rows of `n` elements with a result of 32 and one of 64 bits, in a parallel loop over two dims.
fn rows(n: usize) -> Kernel {
    kernel(
        "kernel rows
        in x: f32[3, 5, {n}]
        in z: f64[5, {n}]
        out out: f32[3, 5, {n}]
        out wide: f64[3, 5, {n}]
        parallel for i0, i1 in 3, 5 {
            vector for i2 in {n} {
                v0: f32 = x[{m} * i0 + {n} * i1 + i2]
                v1: f64 = z[{n} * i1 + i2]
                v2: f32 = neg(v0)
                out[{m} * i0 + {n} * i1 + i2] = v2
                v3: f64 = f64.cast(v0)
                v4: f64 = add(v3, v1)
                wide[{m} * i0 + {n} * i1 + i2] = v4
            }
        }",
        &[("n", n), ("m", 5 * n)],
    )
}

#[test]
fn short_rows_touch_nothing_else() {
    let most = wide::widest_vectors(Target::native());
    for n in [1, 2, 3, 7, 8, 9, 13, 15, 16, 17, 31, 33, 40, 65] {
        let z: Vec<Scalar> = (0..5 * n).map(|i| Scalar::F64(i as f64 / 3.0)).collect();
        let used = check_all(&rows(n), &[values(15 * n), bytes(F64, &z)]);
        // Vectors of 32 bytes, without masks, need fewer steps for 9 and 40.
        assert!(![13, 15, 31].contains(&n) || most < 64 || used == 64, "{n}: {used}");
    }
}

/// A matrix with a border, whose function is not what the border holds.
fn padded(n: usize, before: i64, after: usize) -> Kernel {
    let mut k = KernelBuilder::new("padded");
    let m = (n as i64 + before) as usize + after;
    let (x, y) = (k.input("x", F32, &[4, n]), k.output("y", F32, &[6, m]));
    k.parallel(&[6], |k, v| {
        let row = v[0] - 1;
        k.vector(m, |k, j| {
            let at = j - before;
            let conds = vec![Cond::within(row.clone(), 4), Cond::within(at.clone(), n)];
            let v = k.load_or(x, row.clone() * n as i64 + at, conds, Scalar::F32(2.5));
            let v = k.unary(Unary::Neg, v);
            k.store(y, v_index(m, j, &row), v);
        });
    });
    k.finish().unwrap_or_else(|e| panic!("{e}"))
}

fn v_index(m: usize, j: crate::kernel::Var, row: &Affine) -> Affine {
    (row.clone() + 1) * m as i64 + j
}

#[test]
fn borders_are_constant() {
    for (n, before, after) in [(7, 3, 3), (1, 0, 5), (17, 1, 0), (33, 40, 19), (64, -5, 3), (5, 0, 0)] {
        check_all(&padded(n, before, after), &[values(4 * n)]);
    }
}

/// `select(stride * column op row + base, x, y)` of rows of `n` elements.
fn triangle(n: usize, op: Compare, stride: i64, base: i64) -> Kernel {
    let mut k = KernelBuilder::new(format!("triangle {op:?}"));
    let (x, y) = (k.input("x", F32, &[90, n]), k.output("y", F32, &[90, n]));
    k.parallel(&[90], |k, v| {
        k.vector(n, |k, j| {
            let a = k.index(j * stride);
            let row = k.index(v[0]);
            let base = k.constant(Scalar::Int(I64, base));
            let b = k.binary(Binary::Add, row, base);
            let c = k.compare(op, a, b);
            let row_at = v[0] * n as i64;
            let v = k.load(x, row_at.clone() + j);
            let other = k.constant(Scalar::F32(-1.0));
            let v = k.select(c, v, other);
            k.store(y, row_at + j, v);
        });
    });
    k.finish().unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn triangles_are_split_where_they_turn() {
    for op in Compare::ALL {
        for (n, stride, base) in [
            (64, 1, 0),
            (67, 1, -3),
            (129, 2, 5),
            (100, -1, -60),
            (75, 3, 1000),
            (75, 1, -1000),
        ] {
            check_all(&triangle(n, op, stride, base), &[values(90 * n)]);
        }
    }
}

/// A single row is a parallel loop, whose chunks start anywhere.
#[test]
fn chunks_of_a_row_are_split_where_they_turn() {
    for op in Compare::ALL {
        for (n, stride, turn) in [(64, 1, 0), (500, 1, 333), (500, 1, 900), (300, -1, -150), (129, 3, 200)] {
            let mut k = KernelBuilder::new(format!("row {op:?}"));
            let (x, y) = (k.input("x", F32, &[n]), k.output("y", F32, &[n]));
            k.parallel_vector(n, |k, j| {
                let index = k.index(j * stride);
                let turn = k.constant(Scalar::Int(I64, turn));
                let c = k.compare(op, index, turn);
                let v = k.load(x, j);
                let other = k.constant(Scalar::F32(-1.0));
                let v = k.select(c, v, other);
                k.store(y, j, v);
            });
            check_all(&k.finish().unwrap_or_else(|e| panic!("{e}")), &[values(n)]);
        }
    }
}

/// Rows of `n` narrow elements: copied, and as f32, also negated and narrowed again.
fn narrow_rows(d: DType, n: usize, copies: bool) -> Kernel {
    let mut k = KernelBuilder::new(format!("narrow {d} {n}"));
    let (x, out) = (k.input("x", d, &[5, n]), k.output("out", d, &[5, n]));
    let wide = (!copies).then(|| k.output("wide", F32, &[5, n]));
    k.parallel(&[5], |k, v| {
        k.vector(n, |k, i| {
            let at = v[0] * n as i64 + i;
            let mut y = k.load(x, at.clone());
            if let Some(wide) = wide {
                let f = k.cast(F32, y);
                k.store(wide, at.clone(), f);
                let f = k.unary(Unary::Neg, f);
                y = k.cast(d, f);
            }
            k.store(out, at, y);
        });
    });
    k.finish().unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn short_rows_of_narrow_elements_touch_nothing_else() {
    for d in [BF16, F16, I16, I8, U8, B8] {
        for n in [1, 3, 7, 15, 17, 28, 31, 35, 50, 67] {
            let x: Vec<Scalar> = (0..5 * n).map(|i| Scalar::from_i64(d, (i * 7 % 60) as i64)).collect();
            for copies in [true, false] {
                check_all(&narrow_rows(d, n, copies || d == U8), &[bytes(d, &x)]);
            }
        }
    }
}

/// The offset of a masked load also holds its number of lanes.
#[test]
fn masked_loads_read_at_large_offsets() {
    for (n, from) in [(19, 1 << 20), (19, (1 << 20) - 16), (21, 4_194_300), (7, 4_194_304)] {
        let k = kernel(
            "kernel far
            in x: f32[{m}]
            out out: f32[{n}]
            parallel for i0 in 1 {
                vector for i1 in {n} {
                    v0: f32 = x[i1 + {from}]
                    v1: f32 = x[i1]
                    v2: f32 = add(v0, v1)
                    out[i1] = v2
                }
            }",
            &[("n", n), ("from", from), ("m", n + from)],
        );
        check_all(&k, &[values(n + from)]);
    }
}
