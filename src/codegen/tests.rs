//! Compares compiled kernels with the kernel interpreter and the polynomials with f64.

mod accuracy;
mod division;
mod doubles;
mod f16c;
mod halves;
mod kernels;
mod narrowing;
mod objects;
mod ops;
mod packed;
mod python;
mod random;
mod reductions;
mod rows;
mod snapshots;
mod tails;
mod transposes;
mod widths;

use super::*;
use crate::code::CompiledKernels;
use crate::kernel::{Buf, BufferRole, Kernel, Status, interpret};
use crate::target::Target;
use crate::tensor::{AlignedBytes, Scalar, SplitMix};
use crate::types::DType;

/// The number of random cases in a test: `n`, or the value in the environment
/// (`PROPTEST_CASES=100000 cargo test --release codegen::`).
fn cases(n: u32) -> u32 {
    let given = std::env::var("PROPTEST_CASES").ok().and_then(|v| v.parse().ok());
    given.unwrap_or(n)
}

/// The bytes of a tensor of these values, converted to `dtype`.
fn bytes(dtype: DType, values: &[Scalar]) -> Vec<u8> {
    let mut out = vec![0; values.len() * dtype.size()];
    for (i, v) in values.iter().enumerate() {
        v.cast(dtype).write(&mut out, i);
    }
    out
}

/// Parses a kernel's text, with `{n}` and the like replaced by sizes.
fn kernel(text: &str, sizes: &[(&str, usize)]) -> Kernel {
    let text = sizes.iter().fold(text.to_string(), |text, (name, size)| {
        text.replace(&format!("{{{name}}}"), &size.to_string())
    });
    Kernel::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Runs a compiled kernel over `buffers` in chunks of at most `chunk` parallel iterations.
fn run(c: &CompiledKernels, k: &Kernel, buffers: &mut [AlignedBytes], chunk: usize) -> Status {
    let mut scratch = AlignedBytes::zeroed(c.scratch_bytes(0));
    let pointers: Vec<*mut u8> = buffers.iter_mut().map(|b| b.bytes_mut().as_mut_ptr()).collect();
    let n = k.parallel_extent();
    let mut status = Status::OK;
    let mut at = 0;
    while at < n {
        let end = (at + chunk).min(n);
        // SAFETY: the buffers have the declared sizes, as the caller's `fill` made them; one thread uses them.
        let s = unsafe { c.run(0, &pointers, at, end, scratch.bytes_mut().as_mut_ptr()) };
        status = status.union(s);
        at = end;
    }
    status
}

/// How far apart two elements are: 0 for equal bits or two NaNs, else the difference in ULP, or of integers.
fn distance(dtype: DType, a: &[u8], b: &[u8], i: usize) -> u64 {
    let (x, y) = (Scalar::read(dtype, a, i), Scalar::read(dtype, b, i));
    let order = |bits: i64, width: u32| {
        if bits < 0 {
            (1i64 << (width - 1)).wrapping_neg().wrapping_sub(bits)
        } else {
            bits
        }
    };
    match (x, y) {
        _ if x.to_f64().is_nan() && y.to_f64().is_nan() => 0,
        _ if x.to_f64().is_nan() != y.to_f64().is_nan() => u64::MAX,
        (Scalar::F32(x), Scalar::F32(y)) | (Scalar::Half(_, x), Scalar::Half(_, y)) => {
            if x.to_bits() == y.to_bits() {
                return 0;
            }
            let scale = match dtype {
                DType::F16 => 13,
                DType::BF16 => 16,
                _ => 0,
            };
            let (x, y) = (
                order(x.to_bits() as i32 as i64, 32),
                order(y.to_bits() as i32 as i64, 32),
            );
            (x.abs_diff(y) >> scale).max(1)
        }
        (Scalar::F64(x), Scalar::F64(y)) => {
            if x.to_bits() == y.to_bits() {
                return 0;
            }
            order(x.to_bits() as i64, 64)
                .abs_diff(order(y.to_bits() as i64, 64))
                .max(1)
        }
        _ => x.to_i64().abs_diff(y.to_i64()),
    }
}

/// The buffers of a kernel: `inputs` where it reads, zeros elsewhere.
fn fill(k: &Kernel, inputs: &[Vec<u8>]) -> Vec<AlignedBytes> {
    let mut inputs = inputs.iter();
    let buffers = k.params().map(|(_, b)| {
        let n = b.numel() * b.dtype.size();
        match b.role {
            BufferRole::In | BufferRole::InOut => {
                let data = inputs.next().expect("one input for each buffer that is read");
                assert_eq!(data.len(), n, "size of {}", b.name);
                AlignedBytes::from_slice(data)
            }
            _ => AlignedBytes::zeroed(n),
        }
    });
    buffers.collect()
}

/// Compiles a kernel, runs it whole and in chunks, and interprets it. Faults must be the same and results must agree
/// within `ulps`. The chunked run must give the same bits as the whole run.
fn check(k: &Kernel, inputs: &[Vec<u8>], ulps: u64) {
    check_close(k, inputs, &|d, a, b, i| distance(d, a, b, i) <= ulps);
}

/// Whether an element is close enough to the expected one: dtype, both buffers, index.
type Closeness<'a> = &'a dyn Fn(DType, &[u8], &[u8], usize) -> bool;

/// [`check`] with another comparison.
fn check_close(k: &Kernel, inputs: &[Vec<u8>], close: Closeness) {
    for width in [16, 32, 64]
        .into_iter()
        .filter(|&w| w <= wide::widest_vectors(Target::native()))
    {
        check_width(k, inputs, close, width);
    }
}

fn check_width(k: &Kernel, inputs: &[Vec<u8>], close: Closeness, width: usize) {
    let options = CodegenOptions {
        text: true,
        width: Some(width),
        ..CodegenOptions::default()
    };
    let c = compile_kernels(std::slice::from_ref(k), options).unwrap_or_else(|e| panic!("{e}\n{k:#?}"));
    let fill = || fill(k, inputs);
    let mut want = fill();
    let want_status = {
        let mut slices: Vec<&mut [u8]> = want.iter_mut().map(|b| b.bytes_mut()).collect();
        interpret(k, &mut slices, 0, k.parallel_extent())
    };
    let mut whole = fill();
    let status = run(&c, k, &mut whole, usize::MAX >> 1);
    assert_eq!(status, want_status, "faults of {}", k.name);
    let mut parts = fill();
    run(&c, k, &mut parts, 5);
    if status != Status::OK {
        return;
    }
    for (n, (_, b)) in k.params().enumerate() {
        let (got, want) = (whole[n].bytes(), want[n].bytes());
        assert!(
            got == parts[n].bytes(),
            "{} of {} depends on the chunks",
            b.name,
            k.name
        );
        for i in 0..b.numel() {
            assert!(
                close(b.dtype, got, want, i),
                "{}: {}[{i}] is {:?}, should be {:?}\n{}",
                k.name,
                b.name,
                Scalar::read(b.dtype, got, i),
                Scalar::read(b.dtype, want, i),
                c.clif(0)
            );
        }
    }
}

/// A source of random numbers and data.
struct Rng(SplitMix);

impl Rng {
    fn new(seed: u64) -> Rng {
        Rng(SplitMix::new(seed))
    }

    /// A random number below `n`.
    fn below(&mut self, n: usize) -> usize {
        self.0.next_below(n)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        self.0.pick(from)
    }

    /// An ordinary random value of `dtype`: a float around 1, or a small integer.
    fn value(&mut self, dtype: DType) -> Scalar {
        if dtype.is_float() {
            Scalar::from_f64(dtype, self.0.next_unit() * 6.0 - 3.0)
        } else {
            Scalar::from_i64(dtype, self.below(11) as i64 - 5)
        }
    }

    fn tensor(&mut self, dtype: DType, n: usize) -> Vec<u8> {
        let values: Vec<Scalar> = (0..n).map(|_| self.value(dtype)).collect();
        bytes(dtype, &values)
    }

    /// Random data for the input parameters of a kernel.
    fn inputs(&mut self, k: &Kernel, inputs: &[Buf]) -> Vec<Vec<u8>> {
        let params = k.params().filter(|(b, _)| inputs.contains(b));
        params.map(|(_, b)| self.tensor(b.dtype, b.numel())).collect()
    }
}
