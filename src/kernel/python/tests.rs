//! The printed text is valid Python, and numpy computes the same results with it.

use super::*;
use std::process::Command;

fn softmax() -> Kernel {
    let text = "kernel softmax
        in x: f32[4, 8]
        out out: f32[4, 8]
        local row: f32[8]
        parallel for i0 in 4 {
            v0: f32 = f32(-inf)
            vector for i1 in 8 {
                v1: f32 = x[8 * i0 + i1]
                reduce max v1 from v0 to v2: f32
            }
            v3: f32 = f32(0.0)
            vector for i2 in 8 {
                v4: f32 = x[8 * i0 + i2]
                v5: f32 = sub(v4, v2)
                v6: f32 = exp(v5)
                row[i2] = v6
                reduce add v6 from v3 to v7: f32
            }
            vector for i3 in 8 {
                v8: f32 = row[i3]
                v9: f32 = div(v8, v7)
                out[8 * i0 + i3] = v9
            }
        }";
    Kernel::parse(text).unwrap()
}

#[test]
fn reads_as_python() {
    let text = print_function(&softmax());
    assert!(text.starts_with("def softmax(x, out):\n"), "{text}");
    assert!(text.contains("for i0 in range(4):  # in parallel"), "{text}");
    assert!(text.contains("np.add.reduce(np.broadcast_to("), "{text}");
}

/// Runs a module with numpy. Prints a notice and returns `None` on a machine without it.
fn run(source: &str) -> Option<String> {
    let numpy = Command::new("python3").args(["-c", "import numpy"]).output();
    if !numpy.is_ok_and(|o| o.status.success()) {
        eprintln!("SKIPPED: python3 with numpy is not installed, so generated kernels are not run");
        return None;
    }
    let out = Command::new("python3")
        .args(["-c", source])
        .output()
        .expect("python3 just ran");
    assert!(
        out.status.success(),
        "{}\n{source}",
        String::from_utf8_lossy(&out.stderr)
    );
    Some(String::from_utf8_lossy(&out.stdout).into_owned())
}

#[test]
fn runs_and_computes_the_same() {
    let mut source = print_module([&softmax()]);
    source.push_str(
        "\nx = np.linspace(-3, 3, 32).astype(np.float32)\nout = np.zeros(32, np.float32)\nsoftmax(x, out)\n\
         e = np.exp(x.reshape(4, 8) - x.reshape(4, 8).max(1, keepdims=True))\n\
         print(np.abs(out.reshape(4, 8) - e / e.sum(1, keepdims=True)).max() < 1e-6)\n",
    );
    if let Some(out) = run(&source) {
        assert_eq!(out.trim(), "True");
    }
}

#[test]
fn the_prelude_computes_special_functions() {
    let mut source = PRELUDE.to_string();
    source.push_str(
        "\nprint(abs(erfinv(0.5) - 0.4769362762044699) < 1e-12, abs(digamma(1.0) + 0.5772156649015329) < 1e-12, \
         abs(bessel_i1(1.0) - 0.565159103992485) < 1e-12, abs(zeta(2.0, 1.0) - math.pi**2 / 6) < 1e-12, \
         abs(erfcx(10.0) - 0.05614099274382259) < 1e-12, to_int(np.float32(300), np.uint8), to_int(math.nan, np.int64), \
         hex(to_bf16(np.float32(1.004))))\n",
    );
    if let Some(out) = run(&source) {
        assert_eq!(out.trim(), "True True True True True 44 -9223372036854775808 0x3f81");
    }
}
