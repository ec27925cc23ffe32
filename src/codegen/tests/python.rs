//! Compares the Python text of kernels with the compiled kernels.

use super::ops::{Case, binary_cases, cast_cases, unary_cases};
use super::*;
use crate::kernel::{ReduceOp, python};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A temporary directory that is removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let dir = std::env::temp_dir().join(format!("fxc-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("the temporary directory can be written");
        Scratch(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn numpy(d: DType) -> &'static str {
    match d {
        DType::F64 => "f8",
        DType::F32 => "f4",
        DType::F16 => "f2",
        DType::BF16 => "u2",
        DType::I64 => "i8",
        DType::I32 => "i4",
        DType::I16 => "i2",
        DType::I8 => "i1",
        DType::U8 => "u1",
        _ => "?",
    }
}

/// Python code that runs kernel `n` of a module on files in `dir` and writes its results there.
fn driver(n: usize, k: &Kernel, dir: &Path, out: &mut String) {
    let mut names = vec![];
    for (i, (_, b)) in k.params().enumerate() {
        let path = dir.join(format!("{n}.{i}"));
        let _ = writeln!(out, "b{i} = np.fromfile({path:?}, '{}')", numpy(b.dtype));
        names.push(format!("b{i}"));
    }
    let _ = writeln!(out, "{}({})", python::safe_identifier(&k.name), names.join(", "));
    for (i, (_, b)) in k.params().enumerate() {
        if b.role != BufferRole::In {
            let path = dir.join(format!("{n}.{i}.out"));
            let _ = writeln!(out, "b{i}.tofile({path:?})");
        }
    }
}

/// Runs the cases as Python, all in one process, and compares the results. Without numpy it prints a notice and passes.
fn python_agrees(name: &str, mut cases: Vec<Case>) {
    let numpy = Command::new("python3").args(["-c", "import numpy"]).output();
    if !numpy.is_ok_and(|o| o.status.success()) {
        eprintln!("SKIPPED: python3 with numpy is not installed, so the kernels' Python text is not run");
        return;
    }
    let dir = Scratch::new(name);
    let mut compiled = vec![];
    let mut calls = String::from("import warnings\nwarnings.filterwarnings('ignore')\n");
    for (n, (k, inputs, _)) in cases.iter_mut().enumerate() {
        k.name = format!("{}_{n}", k.name);
        let mut buffers = fill(k, inputs);
        for (i, b) in buffers.iter().enumerate() {
            std::fs::write(dir.0.join(format!("{n}.{i}")), b.bytes()).expect("a file is written");
        }
        driver(n, k, &dir.0, &mut calls);
        let c = compile_kernels(std::slice::from_ref(k), CodegenOptions::default()).expect("compiles");
        assert_eq!(run(&c, k, &mut buffers, usize::MAX >> 1), Status::OK);
        compiled.push(buffers);
    }
    let source = python::print_module(cases.iter().map(|c| &c.0)) + "\n\n" + &calls;
    let script = dir.0.join("kernels.py");
    std::fs::write(&script, &source).expect("a file is written");
    let out = Command::new("python3").arg(&script).output().expect("python3 just ran");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let mut wrong = vec![];
    for (n, ((k, _, _), buffers)) in cases.iter().zip(&compiled).enumerate() {
        for (i, (_, b)) in k.params().enumerate().filter(|p| p.1.1.role != BufferRole::In) {
            let got = std::fs::read(dir.0.join(format!("{n}.{i}.out"))).expect("Python wrote it");
            let bad = (0..b.numel()).find(|&e| !near(b.dtype, &got, buffers[i].bytes(), e));
            if let Some(e) = bad {
                let read = |bytes| Scalar::read(b.dtype, bytes, e);
                let values = (read(&got), read(buffers[i].bytes()));
                wrong.push(format!(
                    "{}: {}[{e}] is {:?} in Python, {:?} compiled",
                    k.name, b.name, values.0, values.1
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Equal, or floats within the tolerance for different implementations of a function and different orders of a sum.
fn near(d: DType, a: &[u8], b: &[u8], i: usize) -> bool {
    if !d.is_float() || distance(d, a, b, i) == 0 {
        return distance(d, a, b, i) == 0;
    }
    let (x, y) = (Scalar::read(d, a, i).to_f64(), Scalar::read(d, b, i).to_f64());
    let tolerance = if d == DType::F64 { 1e-11 } else { 2e-6 };
    (x - y).abs() <= tolerance * x.abs().max(y.abs()) || (x - y).abs() < 2e-45
}

#[test]
fn operations() {
    let mut cases = unary_cases();
    cases.extend(binary_cases());
    cases.extend(cast_cases());
    python_agrees("operations", cases);
}

#[test]
fn random_kernels() {
    let cases = (0..60).map(|seed| {
        let (k, inputs) = super::random::kernel(seed * 977 + 5);
        (k, inputs, 0)
    });
    python_agrees("random", cases.collect());
}

#[test]
fn rows_and_windows() {
    let mut rng = Rng::new(21);
    let mut cases = vec![];
    for k in [
        super::kernels::softmax(4, 17),
        super::kernels::max_pool(8, 11, 1, 1),
        super::reductions::arg_rows(ReduceOp::ArgMax, DType::F32, 50),
        super::reductions::arg_rows(ReduceOp::ArgMin, DType::I32, 7),
    ] {
        let inputs = k.params().filter(|(_, b)| b.role == BufferRole::In);
        let inputs = inputs.map(|(_, b)| rng.tensor(b.dtype, b.numel())).collect();
        cases.push((k, inputs, 0));
    }
    python_agrees("rows", cases);
}
