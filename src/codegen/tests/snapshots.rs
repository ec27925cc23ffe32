//! The texts of a few kernels.

use super::*;
use crate::kernel::{KernelBuilder, python};
use crate::math::Isa;
use crate::scalar::{Binary, Unary};

/// `gelu(x + b)` over rows, with torch's exact gelu.
fn bias_gelu() -> Kernel {
    let mut k = KernelBuilder::new("bias_gelu");
    let (x, b, out) = (
        k.input("x", DType::F32, &[16, 64]),
        k.input("b", DType::F32, &[64]),
        k.output("out", DType::F32, &[16, 64]),
    );
    k.parallel(&[16], |k, i| {
        k.vector(64, |k, j| {
            let (x, b) = (k.load(x, i[0] * 64 + j), k.load(b, j));
            let x = k.binary(Binary::Add, x, b);
            let c = |k: &mut KernelBuilder, v| k.constant(Scalar::F32(v));
            let (half, root, one) = (c(k, 0.5), c(k, std::f32::consts::FRAC_1_SQRT_2), c(k, 1.0));
            let e = k.binary(Binary::Mul, x, root);
            let e = k.unary(Unary::Erf, e);
            let e = k.binary(Binary::Add, e, one);
            let h = k.binary(Binary::Mul, x, half);
            let r = k.binary(Binary::Mul, h, e);
            k.store(out, i[0] * 64 + j, r);
        });
    });
    k.finish().expect("verifies")
}

/// `relu(x) * 2` of i32, with a tail.
fn small_integers() -> Kernel {
    let mut k = KernelBuilder::new("twice_positive");
    let (x, out) = (k.input("x", DType::I32, &[7]), k.output("out", DType::I32, &[7]));
    k.parallel_vector(7, |k, i| {
        let x = k.load(x, i);
        let zero = k.constant(Scalar::from_i64(DType::I32, 0));
        let x = k.binary(Binary::Max, x, zero);
        let r = k.binary(Binary::Add, x, x);
        k.store(out, i, r);
    });
    k.finish().expect("verifies")
}

#[test]
fn texts() {
    let kernels = [bias_gelu(), super::kernels::softmax(4, 20), small_integers()];
    let compiled = compile(
        &kernels,
        Options {
            text: true,
            width: Some(16),
            ..Options::default()
        },
    )
    .expect("compiles");
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots");
    insta::with_settings!({snapshot_path => dir, prepend_module_to_snapshot => false, omit_expression => true}, {
        for (i, k) in kernels.iter().enumerate() {
            insta::assert_snapshot!(format!("kernel_{}_python", k.name), python::function(k));
            // Without fused multiplication the CLIF is another one.
            if Isa::best() != Isa::Portable {
                insta::assert_snapshot!(format!("kernel_{}_clif", k.name), compiled.clif(i));
            }
        }
    });
}
