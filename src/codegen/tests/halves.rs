//! Kernels of f16 and bf16 are widened, and give the same results in all widths.

use super::widths::{compare, values};
use super::*;
use crate::kernel::{Affine, KernelBuilder, ReduceOp};
use crate::scalar::Binary;
use crate::target::Target;
use crate::types::DType::*;

/// The sums of the rows of `x * y + x`, rounded after each step.
fn sum_rounded_rows(d: DType, rows: usize, n: usize) -> Kernel {
    let mut k = KernelBuilder::new(format!("sum_{d}"));
    let (x, y) = (k.input("x", d, &[rows, n]), k.input("y", d, &[rows, n]));
    let out = k.output("out", d, &[rows]);
    k.parallel(&[rows], |k, v| {
        let init = k.initial_value(ReduceOp::Add, F32);
        let sum = k.reduce(n, true, &[(ReduceOp::Add, &[init])], |k, j| {
            let [x, y] = [x, y].map(|b| {
                let x = k.load(b, Affine::row_major(&[v[0], j], &[rows, n]));
                k.cast(F32, x)
            });
            let product = k.binary(Binary::Mul, x, y);
            let product = k.cast(d, product);
            let product = k.cast(F32, product);
            let sum = k.binary(Binary::Add, product, x);
            let sum = k.cast(d, sum);
            vec![k.cast(F32, sum)]
        })[0];
        let sum = k.cast(d, sum);
        k.store(out, Affine::from(v[0]), sum);
    });
    k.finish().unwrap_or_else(|e| panic!("{e}"))
}

/// Sums of halves are widened. AVX-512 converts f16 by its own instructions: others take a dozen registers, which spill.
#[test]
fn reductions_of_halves_are_widened() {
    let widest = wide::widest_vectors(Target::native());
    for d in [F16, BF16] {
        let k = sum_rounded_rows(d, 8, 256);
        let whole: Vec<Scalar> = (0..8 * 256).map(|i| Scalar::from_i64(d, i % 7 - 3)).collect();
        let inputs = [bytes(d, &whole), bytes(d, &whole)];
        let used = compare(&k, &inputs);
        assert!(widest < 64 || used == 64, "a sum of {d} was not widened");
        check(&k, &inputs, 0);
        if d == F16 && widest == 64 {
            let options = CodegenOptions {
                text: true,
                ..CodegenOptions::default()
            };
            let c = compile_kernels(std::slice::from_ref(&k), options).unwrap_or_else(|e| panic!("{e}"));
            let asm = c.asm(0, &k, "#", &|_| String::new());
            assert!(asm.contains("vcvtph2ps") && asm.contains("vcvtps2ph"), "{asm}");
        }
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

/// Where several vectors at once spill more than there are registers for, loops run one vector at a time.
#[test]
fn long_chains_of_halves_are_widened() {
    let text = "
        kernel huber
        in x: bf16[4, 512]
        in y: bf16[4, 512]
        out out: f32[4]
        parallel for i0 in 4 {
            v0: f32 = f32(-0.0)
            vector for i1 in 512 {
                v1: bf16 = x[512 * i0 + i1]
                v2: f32 = f32.cast(v1)
                v3: bf16 = y[512 * i0 + i1]
                v4: f32 = f32.cast(v3)
                v5: f32 = sub(v2, v4)
                v6: bf16 = bf16.cast(v5)
                v7: bf16 = abs(v6)
                v8: f32 = f32.cast(v6)
                v9: f32 = abs(v8)
                v10: f32 = f32(0.5)
                v11: f32 = mul(v9, v10)
                v12: bf16 = bf16.cast(v11)
                v13: f32 = f32.cast(v12)
                v14: f32 = mul(v13, v9)
                v15: bf16 = bf16.cast(v14)
                v16: f32 = sub(v9, v10)
                v17: bf16 = bf16.cast(v16)
                v18: f32 = f32.cast(v17)
                v19: f32 = f32(1.0)
                v20: f32 = mul(v18, v19)
                v21: bf16 = bf16.cast(v20)
                v22: b8 = le(v9, v19)
                v23: f32 = f32.cast(v15)
                v24: f32 = f32.cast(v21)
                v25: f32 = select(v22, v23, v24)
                v26: bf16 = select(v22, v15, v21)
                v27: f32 = f32.cast(v26)
                reduce add v27 from v0 to v28: f32
            }
            out[i0] = v28
        }";
    let k = kernel(text, &[]);
    let whole: Vec<Scalar> = (0..4 * 512).map(|i| Scalar::from_i64(BF16, i % 7 - 3)).collect();
    let other: Vec<Scalar> = (0..4 * 512).map(|i| Scalar::from_i64(BF16, i % 5)).collect();
    let inputs = [bytes(BF16, &whole), bytes(BF16, &other)];
    let used = compare(&k, &inputs);
    let widest = wide::widest_vectors(Target::native());
    assert!(widest < 64 || used == 64, "it was not widened");
    check(&k, &inputs, 0);
}

/// Conversions to bf16 round denormal numbers, ties and the largest numbers as one element after the other, and keep NaN.
#[test]
fn conversions_to_bf16_round_every_kind_of_number() {
    let widest = wide::widest_vectors(Target::native());
    let highs = [
        0, 1, 2, 0x7e, 0x7f, 0x80, 0x81, 0xff, 0x100, 0x3f80, 0x7f7f, 0x7f80, 0x7fbf, 0x7fff,
    ];
    let lows = [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff];
    let both = |high: u32| [high, high | 0x8000];
    let bits = highs.into_iter().flat_map(both).flat_map(|h| lows.map(|l| h << 16 | l));
    let numbers: Vec<Scalar> = bits.map(|b| Scalar::F32(f32::from_bits(b))).collect();
    let n = numbers.len();
    for is_stored in [false, true] {
        let mut k = KernelBuilder::new("round");
        let (x, y) = (k.input("x", F32, &[n]), k.output("y", BF16, &[n]));
        let z = k.output("z", F32, &[n]);
        k.vector(n, |k, i| {
            let x = k.load(x, Affine::from(i));
            let half = k.cast(BF16, x);
            let wide = k.cast(F32, half);
            let twice = k.binary(Binary::Add, wide, wide);
            let twice = k.cast(BF16, twice);
            k.store(y, Affine::from(i), if is_stored { half } else { twice });
            k.store(z, Affine::from(i), wide);
        });
        let k = k.finish().unwrap_or_else(|e| panic!("{e}"));
        let used = compare(&k, &[bytes(F32, &numbers)]);
        assert!(widest < 64 || used == 64, "conversions were not widened");
        check(&k, &[bytes(F32, &numbers)], 0);
    }
}

/// Exponentials that are rounded to 16 bits soon are at most one unit away from the rounded results of f32, and rarely so.
#[test]
fn exponentials_of_halves_are_rounded_as_those_of_f32() {
    let text = "
        kernel soon
        in x: {d}[65536]
        out e: {d}[65536]
        out s: {d}[65536]
        out u: {d}[65536]
        parallel vector for i0 in 65536 {
            v0: {d} = x[i0]
            v1: f32 = f32.cast(v0)
            v2: f32 = exp(v1)
            v3: {d} = {d}.cast(v2)
            e[i0] = v3
            v4: f32 = sigmoid(v1)
            v5: {d} = {d}.cast(v4)
            s[i0] = v5
            v6: f32 = neg(v1)
            v7: f32 = exp(v6)
            v8: f32 = f32(1.0)
            v9: f32 = add(v8, v7)
            v10: f32 = div(v1, v9)
            v11: {d} = {d}.cast(v10)
            u[i0] = v11
        }";
    let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_ne_bytes).collect();
    // The distance of neighbours, relative and for the smallest numbers. Sigmoid takes the exponential of 89 for infinity, as torch does.
    for (d, relative, least) in [
        ("f16", 2f64.powi(-10), 2f64.powi(-24)),
        ("bf16", 2f64.powi(-7), 2f64.powi(-126)),
    ] {
        let k = kernel(&text.replace("{d}", d), &[]);
        let (different, most) = (std::cell::Cell::new(0), 3 * 65536 / 1000);
        let close = |dtype, got: &[u8], want: &[u8], i| {
            if distance(dtype, got, want, i) == 0 {
                return true;
            }
            different.set(different.get() + 1);
            let [got, want] = [got, want].map(|b| Scalar::read(dtype, b, i).to_f64());
            (got - want).abs() <= (want.abs() * relative).max(least) && different.get() <= most
        };
        for width in [16, 32, 64] {
            if width <= wide::widest_vectors(Target::native()) {
                different.set(0);
                check_width(&k, std::slice::from_ref(&all), &close, width);
            }
        }
        eprintln!("{d}: {} of {} differ", different.get(), 3 * 65536);
    }
}

/// gelu in 16 bits is as close to that of f32 as the f32 sum `1 + erf(x)` is to the right one.
#[test]
fn gelu_of_halves_is_that_of_f32() {
    let text = "
        kernel gelu
        in x: {d}[65536]
        out g: {d}[65536]
        parallel vector for i0 in 65536 {
            v0: {d} = x[i0]
            v1: f32 = f32.cast(v0)
            v2: f32 = f32(0.70710677)
            v3: f32 = mul(v1, v2)
            v4: f32 = erf(v3)
            v5: f32 = f32(1.0)
            v6: f32 = add(v5, v4)
            v7: f32 = mul(v1, v6)
            v8: {d} = {d}.cast(v7)
            g[i0] = v8
        }";
    let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_ne_bytes).collect();
    for (d, relative) in [("f16", 2f64.powi(-10)), ("bf16", 2f64.powi(-7))] {
        let k = kernel(&text.replace("{d}", d), &[]);
        let close = |dtype, got: &[u8], want: &[u8], i| {
            let [x, g, w] = [&all[..], got, want].map(|b| Scalar::read(dtype, b, i).to_f64());
            let bound = (w.abs() * relative).max(2e-7 * x.abs().min(10.0));
            distance(dtype, got, want, i) == 0 || (g - w).abs() <= bound
        };
        check_close(&k, std::slice::from_ref(&all), &close);
    }
}
