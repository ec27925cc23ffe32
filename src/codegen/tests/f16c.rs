//! Conversions of f16 by the processor give what conversions in integer arithmetic give, down to the payloads of NaN.

use super::*;
use crate::kernel::{Affine, KernelBuilder};
use crate::target::Feature;
use crate::types::DType::*;

/// `x` converted from `from` to `to`, by a loop over vectors or over scalars.
fn conversion(from: DType, to: DType, n: usize, vector: bool) -> Kernel {
    let mut k = KernelBuilder::new(format!("{from}_to_{to}"));
    let (x, y) = (k.input("x", from, &[n]), k.output("y", to, &[n]));
    let convert = |k: &mut KernelBuilder, i| {
        let x = k.load(x, Affine::from(i));
        let x = k.cast(to, x);
        k.store(y, Affine::from(i), x);
    };
    match vector {
        true => k.vector(n, convert),
        false => k.parallel(&[n], |k, i| convert(k, i[0])),
    }
    k.finish().unwrap_or_else(|e| panic!("{e}"))
}

/// What `k` writes if it is compiled for `target`, and its machine code as text.
fn run_for(k: &Kernel, input: &[u8], target: Target, width: usize) -> (Vec<AlignedBytes>, String) {
    let options = CodegenOptions {
        text: true,
        width: Some(width),
        target: Some(target),
        ..CodegenOptions::default()
    };
    let c = compile_kernels(std::slice::from_ref(k), options).unwrap_or_else(|e| panic!("{e}"));
    let mut buffers = fill(k, &[input.to_vec()]);
    run(&c, k, &mut buffers, usize::MAX >> 1);
    (buffers, c.asm(0, k, "#", &|_| String::new()))
}

/// Compares the conversions of `input` by F16C, at all widths, with those in integer arithmetic.
fn compare(from: DType, to: DType, input: &[u8], instruction: &str) {
    let native = Target::native();
    if !native.has(Feature::F16c) {
        return eprintln!("skipped: this machine has no F16C");
    }
    for (vector, width) in [(false, 16), (true, 16), (true, 32), (true, 64)] {
        let k = conversion(from, to, input.len() / from.size(), vector);
        let (want, asm) = run_for(&k, input, native.without(Feature::F16c), 16);
        assert!(!asm.contains("vcvtp"), "{asm}");
        let (got, asm) = run_for(&k, input, native, width);
        // Vectors of AVX2 are converted in integer arithmetic, too.
        assert!(asm.contains(instruction) || width == 32, "{asm}");
        let same = got.iter().zip(&want).all(|(got, want)| got.bytes() == want.bytes());
        assert!(same, "{} differs at width {width}", k.name);
    }
}

#[test]
fn every_f16_is_converted_to_the_same_f32() {
    let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    compare(F16, F32, &all, "vcvtph2ps");
}

/// Every f16, the numbers halfway between two of them, and their neighbours.
#[test]
fn ties_and_their_neighbours_are_rounded_to_the_same_f16() {
    let magnitudes = (0..=0x7c00u16).map(half::f16::from_bits).map(f32::from);
    let next = (1..=0x7c01u16).map(half::f16::from_bits).map(f32::from);
    let places = magnitudes.zip(next).flat_map(|(x, next)| [x, (x + next) / 2.0]);
    let special = [f32::MIN_POSITIVE, 1e-40, f32::MAX, 65519.99, 65520.0];
    let payloads = [0x7f80_0001, 0x7fc0_2000, 0x7fbf_ffff, 0x7fff_ffff].map(f32::from_bits);
    let near = |x: f32| [-1, 0, 1].map(|step| f32::from_bits(x.to_bits().saturating_add_signed(step)));
    let signed = |x: f32| [x, -x];
    let all = places.chain(special).flat_map(near).chain(payloads).flat_map(signed);
    let all: Vec<u8> = all.flat_map(f32::to_le_bytes).collect();
    compare(F32, F16, &all, "vcvtps2ph");
}
