//! Conversions from f32 to bf16 that may flush denormal numbers, compared with the interpreter on others, and to integers.

use super::*;
use crate::kernel::KernelBuilder;
use crate::scalar::{Binary, Unary};
use crate::types::DType::*;

/// Ties and other numbers around them, numbers that round to infinity, and numbers that are not rounded.
fn numbers(n: usize) -> Vec<u8> {
    let special = [
        0.0,
        -0.0,
        1.0 + 1.0 / 256.0,
        1.0 + 3.0 / 256.0,
        -1.0 - 1.0 / 512.0,
        -3.9999,
        2e-38,
        f32::MAX,
        f32::MIN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        -f32::NAN,
        f32::from_bits(0x7fff_ffff),
        3.39e38,
    ];
    let mut r = Rng::new(7);
    let mut number = |i: usize| match i % 3 {
        0 => special[i / 3 % special.len()],
        _ => (r.below(1 << 20) as f32 - 500_000.0) / 4096.0,
    };
    let all: Vec<Scalar> = (0..n).map(|i| Scalar::F32(number(i))).collect();
    bytes(F32, &all)
}

/// Results that are only stored, stored and used, only used, clamped, and stored twice.
#[test]
fn flushed_conversions_agree_with_the_interpreter() {
    for n in [16, 48, 200, 333] {
        let mut k = KernelBuilder::new("narrow");
        k.flush_denormals();
        let x = k.input("x", F32, &[n]);
        let outs: Vec<Buf> = (0..5).map(|i| k.output(&format!("out{i}"), BF16, &[n])).collect();
        k.parallel_vector(n, |k, i| {
            let x = k.load(x, i);
            let [two, zero, six] = [2.0, 0.0, 6.0].map(|c| k.constant(Scalar::F32(c)));
            let only_stored = k.cast(BF16, x);
            let doubled = k.binary(Binary::Mul, x, two);
            let used = k.cast(BF16, doubled);
            let wide = k.cast(F32, used);
            let next = k.binary(Binary::Add, wide, two);
            let low = k.binary(Binary::Max, wide, zero);
            let clamped = k.binary(Binary::Min, low, six);
            for (out, v) in outs.iter().zip([only_stored, used, next, clamped, only_stored]) {
                k.store(*out, i, v);
            }
        });
        let k = k.finish().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(k.flushing.len(), 4, "{k}");
        check(&k, &[numbers(n)], 0);
    }
}

/// Rounding and conversion to an integer are one instruction where the processor has it: stored, used, and of every width.
#[test]
fn rounded_integers_agree_with_the_interpreter() {
    for n in [16, 48, 200, 333] {
        let mut k = KernelBuilder::new("quantize");
        let x = k.input("x", F32, &[n]);
        let dtypes = [U8, I8, I16, I32, I32];
        let outs: Vec<Buf> = (0..5).map(|i| k.output(&format!("out{i}"), dtypes[i], &[n])).collect();
        k.parallel_vector(n, |k, i| {
            let x = k.load(x, i);
            let [low, high] = [-9.0, 100.0].map(|c| k.constant(Scalar::F32(c)));
            let rounded = k.unary(Unary::Round, x);
            let lower = k.binary(Binary::Max, rounded, low);
            let clamped = k.binary(Binary::Min, lower, high);
            let bytes = k.cast(I8, rounded);
            let used = k.cast(I32, bytes);
            let values = [
                k.cast(U8, clamped),
                k.cast(I8, clamped),
                k.cast(I16, rounded),
                k.cast(I32, rounded),
                used,
            ];
            for (out, v) in outs.iter().zip(values) {
                k.store(*out, i, v);
            }
        });
        let k = k.finish().unwrap_or_else(|e| panic!("{e}"));
        check(&k, &[numbers(n)], 0);
    }
}

/// The text of a kernel keeps the mark.
#[test]
fn flushing_is_part_of_the_text() {
    let mut k = KernelBuilder::new("narrow");
    k.flush_denormals();
    let (x, y) = (k.input("x", F32, &[8]), k.output("y", BF16, &[8]));
    k.parallel_vector(8, |k, i| {
        let x = k.load(x, i);
        k.store(y, i, x);
    });
    let k = k.finish().unwrap_or_else(|e| panic!("{e}"));
    let text = k.to_string();
    assert!(text.contains("bf16.cast(v0) flush"), "{text}");
    let parsed = Kernel::parse(&text).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(parsed.flushing, k.flushing);
}
