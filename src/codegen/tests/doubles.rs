//! f64 functions that kernels of wide vectors compute in place.

use super::widths::compare;
use super::*;
use crate::kernel::{Affine, KernelBuilder};
use crate::scalar::Unary;
use crate::types::DType::F64;

/// Special values, and random ones of all magnitudes that the functions distinguish.
fn doubles(n: usize) -> Vec<u8> {
    let mut random = SplitMix::new(7);
    let ends = [
        709.79,
        -745.2,
        -708.5,
        1023.9,
        -1074.5,
        36.8,
        -37.5,
        std::f64::consts::SQRT_2,
        2.2e-308,
        5e-324,
    ];
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MAX,
        f64::MIN,
    ];
    let all = (0..n).map(|i| match i % 8 {
        0 => ends[i / 8 % ends.len()],
        1 => special[i / 8 % special.len()],
        2 => f64::from_bits(random.next_u64()),
        k => (random.next_u64() as f64 / 2f64.powi(63) - 1.0) * [0.5, 1.0, 8.0, 60.0, 800.0][k - 3],
    });
    all.flat_map(f64::to_le_bytes).collect()
}

/// Kernels of 16-byte vectors call the functions, wider ones compute in place.
#[test]
fn f64_functions_have_the_same_bits_in_place_and_by_a_call() {
    const N: usize = 20_011;
    use Unary::*;
    for op in [Exp, Exp2, Expm1, Sigmoid, Log, Log1p] {
        let mut k = KernelBuilder::new(format!("{op:?}"));
        let x = k.input("x", F64, &[N]);
        let out = k.output("out", F64, &[N]);
        k.vector(N, |k, i| {
            let v = k.load(x, Affine::from(i));
            let v = k.unary(op, v);
            k.store(out, Affine::from(i), v);
        });
        let k = k.finish().unwrap_or_else(|e| panic!("{e}"));
        let used = compare(&k, &[doubles(N)]);
        assert_eq!(used, wide::widest_vectors(Target::native()), "{op:?} was not widened");
    }
}
