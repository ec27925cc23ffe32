//! Reductions of every kind: of rows, of columns and of all elements.

use super::kernels::check_sums;
use super::*;
use crate::kernel::ReduceOp;
use crate::scalar::text::print_constant;
use crate::types::DType::*;

const REDUCTION: &str = "kernel {op}_{d}_{n}
    in x: {d}[2, {n}]
    out out: {d}[2]
    parallel for i0 in 2 {
        v0: {d} = {first}
        vector for i1 in {n} {
            v1: {d} = x[{n} * i0 + i1]
            reduce {op} v1 from v0 to v2: {d}
        }
        out[i0] = v2
    }";

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
                let first = match op {
                    ReduceOp::Add => Scalar::from_i64(d, 0),
                    op => op.identity(d),
                };
                let text = REDUCTION
                    .replace("{op}", &format!("{op:?}").to_lowercase())
                    .replace("{first}", &print_constant(first))
                    .replace("{d}", d.short_name());
                let k = kernel(&text, &[("n", n)]);
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

/// A reduced value that the next loop repeats in all lanes of its vectors.
const REPEATED: &str = "kernel {op}_{d}_{n}
    in x: {d}[2, {n}]
    out out: {d}[2, {n}]
    parallel for i0 in 2 {
        v0: {d} = {first}
        vector for i1 in {n} {
            v1: {d} = x[{n} * i0 + i1]
            reduce {op} v1 from v0 to v2: {d}
        }
        vector for i2 in {n} {
            v3: {d} = x[{n} * i0 + i2]
            v4: {d} = mul(v3, v2)
            out[{n} * i0 + i2] = v4
        }
    }";

#[test]
fn reduced_values_are_repeated_in_all_lanes() {
    let mut rng = Rng::new(14);
    for d in [F32, F64, I64, I32, I16, I8, U8] {
        for (op, first) in [
            (ReduceOp::Add, Scalar::from_i64(d, 0)),
            (ReduceOp::Max, ReduceOp::Max.identity(d)),
            (ReduceOp::Min, ReduceOp::Min.identity(d)),
        ] {
            for n in [1, 5, 8, 16, 32, 37, 64, 128] {
                let text = REPEATED
                    .replace("{op}", &format!("{op:?}").to_lowercase())
                    .replace("{first}", &print_constant(first))
                    .replace("{d}", d.short_name());
                let k = kernel(&text, &[("n", n)]);
                check_sums(&k, &[rng.tensor(d, 2 * n)]);
            }
        }
    }
}

#[test]
fn column_sums_and_a_sum_of_all() {
    let mut rng = Rng::new(5);
    let columns = kernel(
        "kernel columns
        in x: f32[9, 21]
        out out: f32[21]
        parallel vector for i0 in 21 {
            v0: f32 = f32(0.0)
            for i1 in 9 {
                v1: f32 = x[i0 + 21 * i1]
                reduce add v1 from v0 to v2: f32
            }
            out[i0] = v2
        }",
        &[],
    );
    check(&columns, &[rng.tensor(F32, 189)], 0);
    let all = kernel(
        "kernel all
        in x: f32[5000]
        out out: f32[]
        v0: f32 = f32(0.0)
        for i0 in 5 {
            vector for i1 in 1000 {
                v1: f32 = x[1000 * i0 + i1]
                reduce add v1 from v0 to v2: f32
            }
            reduce add v2 from v0 to v3: f32
        }
        out[0] = v3",
        &[],
    );
    check_sums(&all, &[rng.tensor(F32, 5000)]);
}

/// The extreme values of six rows and their indices.
pub(super) fn arg_rows(op: ReduceOp, d: DType, n: usize) -> Kernel {
    let text = "kernel {op}_{d}_{n}
        in x: {d}[6, {n}]
        out values: {d}[6]
        out indices: i64[6]
        parallel for i0 in 6 {
            v0: {d} = {first}
            v1: i64 = i64(9223372036854775807)
            vector for i1 in {n} {
                v2: {d} = x[{n} * i0 + i1]
                v3: i64 = index i1
                reduce {op} v2, v3 from v0, v1 to v4: {d}, v5: i64
            }
            values[i0] = v4
            indices[i0] = v5
        }";
    let text = text.replace("{op}", &format!("{op:?}").to_lowercase());
    let text = text
        .replace("{first}", &print_constant(op.identity(d)))
        .replace("{d}", d.short_name());
    kernel(&text, &[("n", n)])
}

#[test]
fn argmax_takes_the_first_and_nan_wins() {
    for d in [F32, F64, I64, I32, B8] {
        for op in [ReduceOp::ArgMax, ReduceOp::ArgMin] {
            for n in [1, 2, 5, 16, 50] {
                let mut rng = Rng::new(n as u64);
                // Few different values, so that ties occur.
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

#[test]
fn long_sums_keep_their_digits() {
    let n = 1_000_003;
    let k = kernel(
        "kernel long
        in x: f32[{n}]
        out out: f32[]
        v0: f32 = f32(0.0)
        vector for i0 in {n} {
            v1: f32 = x[i0]
            reduce add v1 from v0 to v2: f32
        }
        out[0] = v2",
        &[("n", n)],
    );
    let values: Vec<f32> = (0..n).map(|i| 0.1 + (i % 97) as f32 * 1e-3).collect();
    let want: f64 = values.iter().map(|&x| x as f64).sum();
    let mut buffers = [
        AlignedBytes::from_slice(&values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>()),
        AlignedBytes::zeroed(4),
    ];
    let c = compile_kernels(std::slice::from_ref(&k), CodegenOptions::default()).expect("compiles");
    run(&c, &k, &mut buffers, 1);
    let got = Scalar::read(F32, buffers[1].bytes(), 0).to_f64();
    assert!((got - want).abs() < 8e-7 * want, "{got} {want}");
}
