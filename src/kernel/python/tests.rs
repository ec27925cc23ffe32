//! What is written is Python, and numpy computes the same with it.

use super::*;
use std::process::Command;

fn softmax() -> Kernel {
    let mut k = KernelBuilder::new("softmax");
    let (x, out) = (k.input("x", DType::F32, &[4, 8]), k.output("out", DType::F32, &[4, 8]));
    let row = k.local("row", DType::F32, &[8]);
    k.parallel(&[4], |k, i| {
        let max = k.vector_reduce(ReduceOp::Max, DType::F32, 8, |k, j| k.load(x, i[0] * 8 + j));
        let sum = k.vector_reduce(ReduceOp::Add, DType::F32, 8, |k, j| {
            let v = k.load(x, i[0] * 8 + j);
            let d = k.binary(Binary::Sub, v, max);
            let e = k.unary(Unary::Exp, d);
            k.store(row, j, e);
            e
        });
        k.vector(8, |k, j| {
            let e = k.load(row, j);
            let r = k.binary(Binary::Div, e, sum);
            k.store(out, i[0] * 8 + j, r);
        });
    });
    k.finish().unwrap()
}

#[test]
fn reads_as_python() {
    let text = function(&softmax());
    assert!(text.starts_with("def softmax(x, out):\n"), "{text}");
    assert!(text.contains("for i0 in range(4):  # in parallel"), "{text}");
    assert!(text.contains("np.add.reduce(np.broadcast_to("), "{text}");
}

/// Runs a module with numpy; `None`, loudly, on a machine without it.
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
    let mut source = module([&softmax()]);
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
