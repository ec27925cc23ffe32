//! Kernels of f16 and bf16 are widened, and give the same results in all widths.

use super::widths::{compare, reduce_rows, values};
use super::*;
use crate::kernel::{Affine, KernelBuilder, ReduceOp};
use crate::scalar::Binary;
use crate::target::Target;
use crate::types::DType::*;

/// Conversions of halves take few enough registers that sums of several rows at a time are widened.
#[test]
fn reductions_of_halves_are_widened() {
    let widest = wide::widest_vectors(Target::native());
    for d in [F16, BF16] {
        let k = reduce_rows(ReduceOp::Add, d, 8, 256);
        let whole: Vec<Scalar> = (0..8 * 256).map(|i| Scalar::from_i64(d, i % 7 - 3)).collect();
        let used = compare(&k, &[bytes(d, &whole)]);
        assert!(widest < 64 || used == 64, "a sum of {d} was not widened");
        check(&k, &[bytes(d, &whole)], 0);
    }
}

/// A half that is the same for all elements is converted once, as a scalar, and stored to each.
#[test]
fn a_uniform_half_is_stored_to_every_element() {
    let widest = wide::widest_vectors(Target::native());
    for (d, flushes) in [(F16, false), (BF16, false), (BF16, true)] {
        let mut k = KernelBuilder::new(format!("uniform_{d}"));
        let (x, w) = (k.input("x", F32, &[1]), k.input("w", F32, &[211]));
        let (y, z) = (k.output("y", d, &[211]), k.output("z", d, &[211]));
        if flushes {
            k.flush_denormals();
        }
        k.vector(211, |k, i| {
            let (x, w) = (k.load(x, Affine::from(0)), k.load(w, Affine::from(i)));
            let (uniform, varying) = (k.cast(d, x), k.cast(d, w));
            k.store(y, Affine::from(i), uniform);
            k.store(z, Affine::from(i), varying);
        });
        let k = k.finish().unwrap_or_else(|e| panic!("{e}"));
        let whole: Vec<Scalar> = (0..211).map(|i| Scalar::from_i64(F32, i)).collect();
        let inputs = [bytes(F32, &[Scalar::F32(3.0625)]), bytes(F32, &whole)];
        let used = compare(&k, &inputs);
        assert!(widest < 64 || used == 64, "{d} was not widened");
        check(&k, &inputs, 0);
    }
}

/// A half that was rounded is converted back in the same kernel, and perhaps stored too.
#[test]
fn rounded_halves_are_converted_back() {
    let widest = wide::widest_vectors(Target::native());
    for (d, is_stored) in [F16, BF16].into_iter().flat_map(|d| [(d, false), (d, true)]) {
        let mut k = KernelBuilder::new(format!("back_{d}"));
        let (x, y) = (k.input("x", F32, &[211]), k.output("y", d, &[211]));
        let z = k.output("z", d, &[211]);
        k.vector(211, |k, i| {
            let x = k.load(x, Affine::from(i));
            let half = k.cast(d, x);
            let wide = k.cast(F32, half);
            let twice = k.binary(Binary::Add, wide, wide);
            let twice = k.cast(d, twice);
            k.store(y, Affine::from(i), if is_stored { half } else { twice });
            k.store(z, Affine::from(i), twice);
        });
        let k = k.finish().unwrap_or_else(|e| panic!("{e}"));
        let used = compare(&k, &[values(211)]);
        assert!(widest < 64 || used == 64, "{d} was not widened");
        check(&k, &[values(211)], 0);
    }
}
