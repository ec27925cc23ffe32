//! Rows that run four in lockstep give the same bits as rows run one by one, wherever a chunk starts and ends.

use super::kernels::softmax;
use super::*;
use crate::codegen::prefetch::find_prefetches;
use crate::codegen::row_plan::{ROWS, in_step};
use crate::types::DType::*;

/// Over `[a, b]` rows of `n` elements: the sum, the maximum, its index, a sum of integers, and the row minus its mean.
fn many_ends(a: usize, b: usize, n: usize) -> Kernel {
    kernel(
        "kernel many_ends
        in x: f32[{a}, {b}, {n}]
        out sum: f32[{a}, {b}]
        out largest: f32[{a}, {b}]
        out place: i64[{a}, {b}]
        out whole: i32[{a}, {b}]
        out out: f32[{a}, {b}, {n}]
        local scratch: f32[{n}]
        parallel for i0, i1 in {a}, {b} {
            v0: f32 = f32(0.0)
            vector for i2 in {n} {
                v1: f32 = x[{bn} * i0 + {n} * i1 + i2]
                v2: f32 = add(v1, v1)
                scratch[i2] = v2
                reduce add v1 from v0 to v3: f32
            }
            v4: f32 = f32(-inf)
            v5: i64 = i64(9223372036854775807)
            v6: i32 = i32(0)
            vector for i3 in {n} {
                v7: f32 = x[{bn} * i0 + {n} * i1 + i3]
                v8: i64 = index i3
                v9: i32 = i32.cast(v7)
                reduce max v7 from v4 to v10: f32
                reduce argmax v7, v8 from v4, v5 to v11: f32, v12: i64
                reduce add v9 from v6 to v13: i32
            }
            v14: f32 = f32({n}.0)
            v15: f32 = div(v3, v14)
            sum[{b} * i0 + i1] = v3
            largest[{b} * i0 + i1] = v10
            place[{b} * i0 + i1] = v12
            whole[{b} * i0 + i1] = v13
            vector for i4 in {n} {
                v16: f32 = scratch[i4]
                v17: f32 = sub(v16, v15)
                v18: f32 = abs(v17)
                out[{bn} * i0 + {n} * i1 + i4] = v18
            }
        }",
        &[("a", a), ("b", b), ("n", n), ("bn", b * n)],
    )
}

/// Sums differ from the interpreter's only in their order.
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
        // A NaN in the second row, and zeros of both signs in the third.
        if a * b > 2 {
            data[n] = Scalar::F32(f32::NAN);
            (2 * n..3 * n).for_each(|i| data[i] = Scalar::F32(if i % 3 == 0 { -0.0 } else { 0.0 }));
        }
        check_close(&k, &[bytes(F32, &data)], &close);
    }
}

/// A NaN makes its own row NaN and no other, although the maximum may not propagate it.
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

/// The second pass over a row of a large input prefetches the next row if a later loop has streaming stores.
#[test]
fn a_second_reading_asks_for_the_next_row() {
    let (rows, n) = (258, 1025);
    let mut data = vec![0.0; rows * n];
    data.iter_mut().enumerate().for_each(|(i, x)| *x = (i % 97) as f32);
    let data: Vec<Scalar> = data.into_iter().map(Scalar::F32).collect();
    let mut k = softmax(rows, n);
    assert!(find_prefetches(&k).is_empty(), "nothing goes past the caches");
    k.buffers[1].streams = true;
    assert_eq!(find_prefetches(&k).values().collect::<Vec<_>>(), [&(4 * n as i64)]);
    check_close(&k, &[bytes(F32, &data)], &close);
    let mut small = softmax(8, n);
    small.buffers[1].streams = true;
    assert!(find_prefetches(&small).is_empty(), "the cache holds it");
}
