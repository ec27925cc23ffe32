//! Rows that run four in step: the same bits as one by one, whatever a chunk begins and ends with.

use super::kernels::softmax;
use super::*;
use crate::codegen::ahead::ahead;
use crate::codegen::rows::{ROWS, in_step};
use crate::kernel::{Affine, KernelBuilder, ReduceOp};
use crate::scalar::{Binary, Unary};
use crate::types::DType::*;

/// Over `[a, b]` rows of `n`: the sum, the largest, the place of the largest, a sum of integers, and the row with its mean taken off.
fn many_ends(a: usize, b: usize, n: usize) -> Kernel {
    let mut k = KernelBuilder::new("many_ends");
    let shape = [a, b, n];
    let x = k.input("x", F32, &shape);
    let (sum, largest, place) = (
        k.output("sum", F32, &[a, b]),
        k.output("largest", F32, &[a, b]),
        k.output("place", I64, &[a, b]),
    );
    let (whole, out) = (k.output("whole", I32, &[a, b]), k.output("out", F32, &shape));
    let scratch = k.local("scratch", F32, &[n]);
    k.parallel(&[a, b], |k, v| {
        let (i, j) = (v[0], v[1]);
        let at = |m| Affine::row_major(&[i, j, m], &shape);
        let row = Affine::row_major(&[i, j], &[a, b]);
        let total = k.vector_reduce(ReduceOp::Add, F32, n, |k, m| {
            let v = k.load(x, at(m));
            let twice = k.binary(Binary::Add, v, v);
            k.store(scratch, m, twice);
            v
        });
        let inits: Vec<Vec<_>> = [(ReduceOp::Max, F32), (ReduceOp::ArgMax, F32), (ReduceOp::Add, I32)]
            .iter()
            .map(|&(op, d)| {
                let first = k.initial(op, d);
                match op.arity() {
                    1 => vec![first],
                    _ => vec![first, k.constant(Scalar::Int(I64, i64::MAX))],
                }
            })
            .collect();
        let ops = [
            (ReduceOp::Max, &inits[0][..]),
            (ReduceOp::ArgMax, &inits[1][..]),
            (ReduceOp::Add, &inits[2][..]),
        ];
        let ends = k.reduce(n, true, &ops, |k, m| {
            let (v, index) = (k.load(x, at(m)), k.index(m));
            let whole = k.cast(I32, v);
            vec![v, v, index, whole]
        });
        let count = k.constant(Scalar::F32(n as f32));
        let mean = k.binary(Binary::Div, total, count);
        for (to, v) in [(sum, total), (largest, ends[0]), (place, ends[2]), (whole, ends[3])] {
            k.store(to, row.clone(), v);
        }
        k.vector(n, |k, m| {
            let twice = k.load(scratch, m);
            let off = k.binary(Binary::Sub, twice, mean);
            let y = k.unary(Unary::Abs, off);
            k.store(out, at(m), y);
        });
    });
    k.finish().unwrap_or_else(|e| panic!("{e}"))
}

/// Sums differ from the interpreter's in order only.
fn close(d: DType, a: &[u8], b: &[u8], i: usize) -> bool {
    let (x, y) = (Scalar::read(d, a, i).to_f64(), Scalar::read(d, b, i).to_f64());
    (x.is_nan() && y.is_nan()) || (x - y).abs() <= 4e-6 * x.abs().max(y.abs()).max(100.0) * f64::from(d.is_float())
}

#[test]
fn rows_in_step_are_the_rows() {
    let mut rng = Rng::new(11);
    for (a, b, n) in [(32, 67, 1), (2, 65, 16), (5, 9, 64), (1, 27, 77), (4, 5, 130)] {
        let k = many_ends(a, b, n);
        assert_eq!(in_step(&k), ROWS, "{a} {b} {n}");
        let mut data: Vec<Scalar> = (0..a * b * n)
            .map(|_| Scalar::F32(rng.below(4001) as f32 / 16.0 - 125.0))
            .collect();
        // A NaN in the second row, zeros of both signs in the third.
        if a * b > 2 {
            data[n] = Scalar::F32(f32::NAN);
            (2 * n..3 * n).for_each(|i| data[i] = Scalar::F32(if i % 3 == 0 { -0.0 } else { 0.0 }));
        }
        check_close(&k, &[bytes(F32, &data)], &close);
    }
}

/// A NaN makes its row NaN and no other one, though the maximum may lose it.
#[test]
fn a_nan_fills_its_row_of_a_softmax() {
    let (rows, n) = (54, 40);
    for nan in [0, 17, 39] {
        let mut data = vec![Scalar::F32(0.5); rows * n];
        data[2 * n + nan] = Scalar::F32(f32::NAN);
        data[5 * n + nan] = Scalar::F32(f32::NAN);
        check_close(&softmax(rows, n), &[bytes(F32, &data)], &close);
    }
}

/// The second reading of a row of a large input asks for the next row if a later loop writes past the caches.
#[test]
fn a_second_reading_asks_for_the_next_row() {
    let (rows, n) = (258, 1025);
    let mut data = vec![0.0; rows * n];
    data.iter_mut().enumerate().for_each(|(i, x)| *x = (i % 97) as f32);
    let data: Vec<Scalar> = data.into_iter().map(Scalar::F32).collect();
    let mut k = softmax(rows, n);
    assert!(ahead(&k).is_empty(), "nothing goes past the caches");
    k.buffers[1].streams = true;
    assert_eq!(ahead(&k).values().collect::<Vec<_>>(), [&(4 * n as i64)]);
    check_close(&k, &[bytes(F32, &data)], &close);
    let mut small = softmax(8, n);
    small.buffers[1].streams = true;
    assert!(ahead(&small).is_empty(), "the cache holds it");
}
