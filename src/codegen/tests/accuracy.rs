//! The polynomials compared with f64 on samples of all f32 values.

use super::*;
use crate::scalar::Unary;
use crate::scalar::lower_case as name;
use crate::scalar::math::f64_unary;

/// Applies a function of f32 to every number of `xs`. `function` is the text lines that compute `v1` from `v0`.
fn results(xs: &[f32], function: &str) -> Vec<f32> {
    let text = "kernel f
        in x: f32[{n}]
        out out: f32[{n}]
        parallel vector for i0 in {n} {
            v0: f32 = x[i0]
            {function}
            out[i0] = v1
        }";
    let k = kernel(&text.replace("{function}", function), &[("n", xs.len())]);
    let c = compile_kernels(std::slice::from_ref(&k), CodegenOptions::default()).expect("compiles");
    let mut buffers = [
        AlignedBytes::from_slice(&xs.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>()),
        AlignedBytes::zeroed(xs.len() * 4),
    ];
    run(&c, &k, &mut buffers, usize::MAX >> 1);
    let read = |i| match Scalar::read(DType::F32, buffers[1].bytes(), i) {
        Scalar::F32(y) => y,
        _ => unreachable!("f32 elements"),
    };
    (0..xs.len()).map(read).collect()
}

/// The largest error of `op` in ULP of the true value over every `step`-th bit pattern, and the argument where it
/// occurs.
fn worst(op: Unary, step: usize) -> (f64, f32) {
    let special = [
        0.0,
        -0.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        1.0,
        -1.0,
        f32::MAX,
        f32::MIN,
    ];
    let some = (0..u32::MAX).step_by(step).map(f32::from_bits);
    let xs: Vec<f32> = some.chain(special).collect();
    let all = results(&xs, &format!("v1: f32 = {}(v0)", name(op)));
    let f = f64_unary(op).expect("a float function");
    let mut max = (0.0, 0.0);
    for (&x, got) in xs.iter().zip(all) {
        let want = f(x as f64);
        if want.is_nan() || (want as f32).is_infinite() || got.is_infinite() {
            let ok = (got.is_nan() && want.is_nan()) || got == want as f32;
            // Near overflow a rounding error decides between a finite result and infinity.
            let near = got.is_infinite() && want.abs() > 3.4028e38 || want.abs() > 3.4028e38 && got.abs() > 3.4028e38;
            assert!(ok || near, "{op:?}({x:e}) is {got}, should be {want}");
            continue;
        }
        let w = want as f32;
        assert!(
            w != 0.0 || got != 0.0 || w.is_sign_negative() == got.is_sign_negative(),
            "sign of {op:?}({x:e})"
        );
        let ulp = (f32::from_bits(w.abs().to_bits() + 1) - w.abs()) as f64;
        let e = (got as f64 - want).abs() / ulp;
        if e > max.0 || e.is_nan() {
            max = (e, x);
        }
    }
    max
}

/// `1 + erf(x)` and `1 + tanh(x)` are within 1.5 ULP of a number between one and two.
#[test]
fn one_plus_a_function_is_as_near_as_the_rounded_sum() {
    for op in [Unary::Erf, Unary::Tanh] {
        let specials = [
            f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            0.0,
            -0.0,
            1e30,
            -1e30,
            1e-40,
        ];
        let xs: Vec<f32> = (-40_000..40_000).map(|i| i as f32 / 3000.0).chain(specials).collect();
        let function = format!("v2: f32 = f32(1.0)\nv3: f32 = {}(v0)\nv1: f32 = add(v3, v2)", name(op));
        let got = results(&xs, &function);
        let f = f64_unary(op).expect("a float function");
        for (&x, got) in xs.iter().zip(got) {
            let want = 1.0 + f(x as f64);
            assert!(
                (got.is_nan() && want.is_nan()) || (got as f64 - want).abs() < 1.8e-7,
                "1 + {op:?}({x:e}) is {got:e}, should be {want:e}"
            );
        }
    }
}

/// The accuracy that [`Kernel::shares`] guarantees.
#[test]
fn shares_are_near_and_exact_at_their_ends() {
    let ends = [0.0, -0.0, f32::NEG_INFINITY, f32::MIN, -104.5, -1e-40, f32::NAN];
    let xs: Vec<f32> = (0..100_000).map(|i| i as f32 / -900.0).chain(ends).collect();
    let got = results(&xs, "v1: f32 = exp(v0) share");
    for (&x, got) in xs.iter().zip(got) {
        let want = (x as f64).exp();
        let limit = if want > 1e-20 { 3e-7 } else { 4e-7 };
        let near = (got as f64 - want).abs() <= limit * want + 1.5e-45;
        assert!(
            near || (got.is_nan() && x.is_nan()),
            "exp({x:e}) is {got:e}, should be {want:e}"
        );
        assert!(x != 0.0 || got == 1.0, "exp(0) is {got:e}");
    }
}

#[test]
fn polynomials_are_within_two_units() {
    for (op, limit) in [
        (Unary::Exp, 1.0),
        (Unary::Exp2, 1.0),
        (Unary::Expm1, 1.5),
        (Unary::Log, 1.0),
        (Unary::Log2, 1.5),
        (Unary::Log10, 1.5),
        (Unary::Log1p, 1.5),
        (Unary::Sin, 1.6),
        (Unary::Cos, 1.6),
        (Unary::Tanh, 2.0),
        (Unary::Erf, 1.0),
    ] {
        let (e, x) = worst(op, 4099);
        println!("{op:?}: {e:.3} ULP at {x:e}");
        assert!(e <= limit, "{op:?} is {e} ULP off at {x:e}");
    }
}
