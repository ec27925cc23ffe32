//! Snapshots of the text of a few kernels.

use super::*;
use crate::kernel::python;
use crate::target::{Isa, Target};

/// `gelu(x + b)` over rows, with torch's exact gelu.
fn bias_gelu() -> Kernel {
    kernel(
        "kernel bias_gelu
        in x: f32[16, 64]
        in b: f32[64]
        out out: f32[16, 64]
        parallel for i0 in 16 {
            vector for i1 in 64 {
                v0: f32 = x[64 * i0 + i1]
                v1: f32 = b[i1]
                v2: f32 = add(v0, v1)
                v3: f32 = f32(0.5)
                v4: f32 = f32(0.70710677)
                v5: f32 = f32(1.0)
                v6: f32 = mul(v2, v4)
                v7: f32 = erf(v6)
                v8: f32 = add(v7, v5)
                v9: f32 = mul(v2, v3)
                v10: f32 = mul(v9, v8)
                out[64 * i0 + i1] = v10
            }
        }",
        &[],
    )
}

/// `relu(x) * 2` of i32, with a tail.
fn small_integers() -> Kernel {
    kernel(
        "kernel twice_positive
        in x: i32[7]
        out out: i32[7]
        parallel vector for i0 in 7 {
            v0: i32 = x[i0]
            v1: i32 = i32(0)
            v2: i32 = max(v0, v1)
            v3: i32 = add(v2, v2)
            out[i0] = v3
        }",
        &[],
    )
}

#[test]
fn texts() {
    let kernels = [bias_gelu(), super::kernels::softmax(4, 20), small_integers()];
    let compiled = compile_kernels(
        &kernels,
        CodegenOptions {
            text: true,
            width: Some(16),
            ..CodegenOptions::default()
        },
    )
    .expect("compiles");
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots");
    insta::with_settings!({snapshot_path => dir, prepend_module_to_snapshot => false, omit_expression => true}, {
        for (i, k) in kernels.iter().enumerate() {
            insta::assert_snapshot!(format!("kernel_{}_python", k.name), python::print_function(k));
            // The CLIF differs on targets without fused multiply-add.
            if Target::native().isa() != Isa::Portable {
                insta::assert_snapshot!(format!("kernel_{}_clif", k.name), compiled.clif(i));
            }
        }
    });
}
