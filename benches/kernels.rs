//! Benchmarks of compiled kernels on one thread: nanoseconds per element, and the time that compiling takes.
//! `cargo bench --bench kernels -- [substring]`.

mod timing;

use fxc::internals::codegen::{CodegenOptions, compile_kernels};
use fxc::internals::kernel::{BufferRole, Kernel, KernelBuilder, ReduceOp, Value};
use fxc::internals::scalar::{Binary, Unary};
use fxc::internals::tensor::{AlignedBytes, Scalar};
use fxc::types::DType::{self, F32};
use std::time::Instant;
use timing::time;

fn k(b: &mut KernelBuilder, x: f32) -> Value {
    b.constant(Scalar::F32(x))
}

/// A flat kernel over `n` elements of f32 inputs.
fn map(name: &str, n: usize, inputs: usize, f: impl FnOnce(&mut KernelBuilder, &[Value]) -> Value) -> Kernel {
    let mut b = KernelBuilder::new(name);
    let xs: Vec<_> = (0..inputs).map(|i| b.input(&format!("x{i}"), F32, &[n])).collect();
    let out = b.output("out", F32, &[n]);
    b.parallel_vector(n, |b, i| {
        let v: Vec<Value> = xs.iter().map(|&x| b.load(x, i)).collect();
        let r = f(b, &v);
        b.store(out, i, r);
    });
    b.finish().expect("verifies")
}

fn relu_axpy(n: usize) -> Kernel {
    map("relu(ax+b)+r", n, 2, |b, x| {
        let (a, c, z) = (k(b, 1.5), k(b, 0.25), k(b, 0.0));
        let v = b.fma(x[0], a, c);
        let v = b.binary(Binary::Max, v, z);
        b.binary(Binary::Add, v, x[1])
    })
}

fn gelu_erf(n: usize) -> Kernel {
    map("gelu", n, 1, |b, x| {
        let (h, r) = (k(b, 0.5), k(b, std::f32::consts::FRAC_1_SQRT_2));
        let half = b.binary(Binary::Mul, x[0], h);
        let e = b.binary(Binary::Mul, x[0], r);
        let e = b.unary(Unary::Erf, e);
        b.fma(half, e, half)
    })
}

fn gelu_tanh(n: usize) -> Kernel {
    map("gelu-tanh", n, 1, |b, x| {
        let (h, c, d) = (k(b, 0.5), k(b, 0.797_884_6 * 0.044715), k(b, 0.797_884_6));
        let x2 = b.binary(Binary::Mul, x[0], x[0]);
        let u = b.fma(x2, c, d);
        let u = b.binary(Binary::Mul, u, x[0]);
        let t = b.unary(Unary::Tanh, u);
        let half = b.binary(Binary::Mul, x[0], h);
        b.fma(half, t, half)
    })
}

fn silu(n: usize) -> Kernel {
    map("silu", n, 1, |b, x| {
        let s = b.unary(Unary::Sigmoid, x[0]);
        b.binary(Binary::Mul, x[0], s)
    })
}

fn one(op: Unary, n: usize) -> Kernel {
    map(&format!("{op:?}").to_lowercase(), n, 1, |b, x| b.unary(op, x[0]))
}

fn cast_half(d: DType, n: usize) -> Kernel {
    let mut b = KernelBuilder::new(format!("{d} * 2"));
    let (x, out) = (b.input("x", d, &[n]), b.output("out", d, &[n]));
    b.parallel_vector(n, |b, i| {
        let v = b.load(x, i);
        let v = b.cast(F32, v);
        let v = b.binary(Binary::Add, v, v);
        b.store(out, i, v);
    });
    b.finish().expect("verifies")
}

fn softmax(rows: usize, n: usize) -> Kernel {
    let mut b = KernelBuilder::new(format!("softmax[{rows},{n}]"));
    let (x, out) = (b.input("x", F32, &[rows, n]), b.output("out", F32, &[rows, n]));
    b.parallel(&[rows], |b, i| {
        let at = |j| i[0] * n as i64 + j;
        let max = b.vector_reduce(ReduceOp::Max, F32, n, |b, j| b.load(x, at(j)));
        let sum = b.vector_reduce(ReduceOp::Add, F32, n, |b, j| {
            let v = b.load(x, at(j));
            let v = b.binary(Binary::Sub, v, max);
            let v = b.unary(Unary::Exp, v);
            b.store(out, at(j), v);
            v
        });
        let r = b.unary(Unary::Recip, sum);
        b.vector(n, |b, j| {
            let v = b.load(out, at(j));
            let v = b.binary(Binary::Mul, v, r);
            b.store(out, at(j), v);
        });
    });
    b.finish().expect("verifies")
}

fn layer_norm(rows: usize, n: usize) -> Kernel {
    let mut b = KernelBuilder::new(format!("layer_norm[{rows},{n}]"));
    let (x, w, c) = (
        b.input("x", F32, &[rows, n]),
        b.input("w", F32, &[n]),
        b.input("b", F32, &[n]),
    );
    let out = b.output("out", F32, &[rows, n]);
    b.parallel(&[rows], |b, i| {
        let at = |j| i[0] * n as i64 + j;
        let count = k(b, 1.0 / n as f32);
        let sum = b.vector_reduce(ReduceOp::Add, F32, n, |b, j| b.load(x, at(j)));
        let mean = b.binary(Binary::Mul, sum, count);
        let sum = b.vector_reduce(ReduceOp::Add, F32, n, |b, j| {
            let v = b.load(x, at(j));
            let v = b.binary(Binary::Sub, v, mean);
            b.binary(Binary::Mul, v, v)
        });
        let eps = k(b, 1e-5);
        let var = b.fma(sum, count, eps);
        let r = b.unary(Unary::Rsqrt, var);
        b.vector(n, |b, j| {
            let v = b.load(x, at(j));
            let v = b.binary(Binary::Sub, v, mean);
            let v = b.binary(Binary::Mul, v, r);
            let (w, c) = (b.load(w, j), b.load(c, j));
            let v = b.fma(v, w, c);
            b.store(out, at(j), v);
        });
    });
    b.finish().expect("verifies")
}

fn sum_rows(rows: usize, n: usize) -> Kernel {
    let mut b = KernelBuilder::new(format!("sum[{rows},{n}]"));
    let (x, out) = (b.input("x", F32, &[rows, n]), b.output("out", F32, &[rows]));
    b.parallel(&[rows], |b, i| {
        let s = b.vector_reduce(ReduceOp::Add, F32, n, |b, j| b.load(x, i[0] * n as i64 + j));
        b.store(out, i[0], s);
    });
    b.finish().expect("verifies")
}

fn sum_columns(rows: usize, n: usize) -> Kernel {
    let mut b = KernelBuilder::new(format!("sum columns[{rows},{n}]"));
    let (x, out) = (b.input("x", F32, &[rows, n]), b.output("out", F32, &[n]));
    b.parallel_vector(n, |b, j| {
        let s = b.serial_reduce(ReduceOp::Add, F32, rows, |b, i| b.load(x, i * n as i64 + j));
        b.store(out, j, s);
    });
    b.finish().expect("verifies")
}

fn run(kernel: &Kernel) {
    let t = Instant::now();
    let c = compile_kernels(std::slice::from_ref(kernel), CodegenOptions::default()).expect("compiles");
    let compiled = t.elapsed().as_secs_f64();
    let mut buffers: Vec<AlignedBytes> = vec![];
    let mut elements = 0;
    for (_, b) in kernel.params() {
        let mut data = AlignedBytes::zeroed(b.numel() * b.dtype.size());
        if b.role == BufferRole::In {
            elements = elements.max(b.numel());
            for i in 0..b.numel() {
                let x = ((i * 2_654_435_761) % 6001) as f64 / 1000.0 - 3.0;
                Scalar::from_f64(b.dtype, x).write(data.bytes_mut(), i);
            }
        }
        buffers.push(data);
    }
    let mut scratch = AlignedBytes::zeroed(kernel.scratch_layout().1);
    let pointers: Vec<*mut u8> = buffers.iter_mut().map(|b| b.bytes_mut().as_mut_ptr()).collect();
    let n = kernel.parallel_extent();
    let [_, s] = time(|| {
        // SAFETY: the buffers have the sizes that the kernel declares, and one thread uses them.
        unsafe { c.run(0, &pointers, 0, n, scratch.bytes_mut().as_mut_ptr()) };
    });
    println!(
        "{:28} {:>9} elements  {:>10.3} us  {:>7.3} ns/element  compiled in {:>6.0} us, {:>5} bytes",
        kernel.name,
        elements,
        s * 1e6,
        s * 1e9 / elements as f64,
        compiled * 1e6,
        c.code_bytes(0)
    );
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let mut kernels = vec![];
    for n in [1024, 16384, 262144] {
        kernels.extend([relu_axpy(n), gelu_erf(n), gelu_tanh(n), silu(n)]);
    }
    let ops = [
        Unary::Exp,
        Unary::Log,
        Unary::Tanh,
        Unary::Erf,
        Unary::Sin,
        Unary::Cos,
        Unary::Expm1,
        Unary::Log1p,
        Unary::Tan,
    ];
    kernels.extend(ops.map(|op| one(op, 16384)));
    kernels.extend([DType::F16, DType::BF16].map(|d| cast_half(d, 16384)));
    kernels.extend([softmax(16, 64), softmax(32, 512), softmax(256, 1024)]);
    kernels.extend([layer_norm(1, 768), layer_norm(16, 768), layer_norm(341, 768)]);
    kernels.extend([sum_rows(1, 16384), sum_rows(256, 1024), sum_rows(4096, 64)]);
    kernels.extend([sum_columns(16, 1024), sum_columns(256, 1024), sum_columns(4096, 64)]);
    for kernel in &kernels {
        if wanted.is_empty() || wanted.iter().any(|w| kernel.name.contains(&**w)) {
            run(kernel);
        }
    }
}
