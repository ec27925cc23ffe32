//! The polynomials compared with f64 on samples of all f32 values.

use super::*;
use crate::scalar::Unary;
use crate::scalar::lower_case as name;
use crate::scalar::math::f64_unary;
use crate::target::Target;

/// Applies a function of f32 to every number of `xs`. `function` is the text lines that compute `v1` from `v0`.
fn results(xs: &[f32], function: &str) -> Vec<f32> {
    results_of(&[xs], "in x: f32[{n}]", function, None)
}

/// Applies a function to the numbers of lists of the same length. `inputs` declares the buffers of the lists.
fn results_of(lists: &[&[f32]], inputs: &str, function: &str, target: Option<Target>) -> Vec<f32> {
    let text = "kernel f
        {inputs}
        out out: f32[{n}]
        parallel vector for i0 in {n} {
            v0: f32 = x[i0]
            {function}
            out[i0] = v1
        }";
    let n = lists[0].len();
    let text = text.replace("{inputs}", inputs).replace("{function}", function);
    let k = kernel(&text, &[("n", n)]);
    let options = CodegenOptions {
        target,
        ..CodegenOptions::default()
    };
    let c = compile_kernels(std::slice::from_ref(&k), options).expect("compiles");
    let bytes = |xs: &&[f32]| AlignedBytes::from_slice(&xs.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>());
    let mut buffers: Vec<AlignedBytes> = lists.iter().map(bytes).chain([AlignedBytes::zeroed(n * 4)]).collect();
    run(&c, &k, &mut buffers, usize::MAX >> 1);
    let read = |i| match Scalar::read(DType::F32, buffers[lists.len()].bytes(), i) {
        Scalar::F32(y) => y,
        _ => unreachable!("f32 elements"),
    };
    (0..n).map(read).collect()
}

/// The largest error of `op` in ULP of the true value over every `step`-th bit pattern from `start`, and the argument where
/// it occurs.
fn worst(op: Unary, step: usize, start: u32, target: Option<Target>) -> (f64, f32) {
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
    let some = (start..u32::MAX).step_by(step).map(f32::from_bits);
    let xs: Vec<f32> = some.chain(special).collect();
    let all = results_of(&[&xs], "in x: f32[{n}]", &format!("v1: f32 = {}(v0)", name(op)), target);
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
fn polynomials_are_within_their_limits() {
    for (op, limit) in LIMITS {
        let (e, x) = worst(*op, 4099, 0, None);
        println!("{op:?}: {e:.3} ULP at {x:e}");
        assert!(e <= *limit, "{op:?} is {e} ULP off at {x:e}");
    }
}

/// Integers are near multiples of pi / 2 more often than samples of all numbers.
#[test]
fn tangents_of_integers_are_accurate_with_and_without_fused_multiply_add() {
    let xs: Vec<f32> = (-47_999..48_000).map(|i| i as f32).collect();
    for (target, limit) in [(None, 0.9), (Target::parse("x86-64-v2").ok(), 2.5)] {
        for (function, exact) in [
            ("tan", f64::tan as fn(f64) -> f64),
            ("sin", f64::sin),
            ("cos", f64::cos),
        ] {
            let got = results_of(&[&xs], "in x: f32[{n}]", &format!("v1: f32 = {function}(v0)"), target);
            for (&x, got) in xs.iter().zip(got) {
                let want = exact(x as f64);
                let ulp = (f32::from_bits((want as f32).abs().to_bits() + 1) - (want as f32).abs()) as f64;
                let error = (got as f64 - want).abs() / ulp;
                assert!(error <= limit, "{function}({x}) for {target:?} is {error} ULP off");
            }
        }
    }
}

/// What the formulas state is for targets with fused multiply-add. Others round more often.
#[test]
fn polynomials_are_within_four_units_without_fused_multiply_add() {
    let Ok(target) = Target::parse("x86-64-v2") else { return };
    for (op, _) in LIMITS {
        let (e, x) = worst(*op, 4099, 0, Some(target));
        println!("{op:?}: {e:.3} ULP at {x:e}");
        assert!(e <= 4.0, "{op:?} is {e} ULP off at {x:e}");
    }
}

/// Every f32 number: `cargo test --release --lib every_number -- --ignored --nocapture` takes minutes.
#[test]
#[ignore = "takes minutes"]
fn polynomials_are_within_their_limits_on_every_number() {
    const PARTS: usize = 256;
    for (op, limit) in LIMITS {
        let parts = (0..PARTS as u32).map(|start| worst(*op, PARTS, start, None));
        let (e, x) = parts.max_by(|a, b| a.0.total_cmp(&b.0)).expect("parts");
        println!("{op:?}: {e:.3} ULP at {x:e}");
        assert!(e <= *limit, "{op:?} is {e} ULP off at {x:e}");
    }
}

/// Pairs of special, small, large and neighbouring numbers.
fn pairs_of_numbers() -> (Vec<f32>, Vec<f32>) {
    let specials = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        1e-45,
        -1e-45,
        f32::MAX,
    ];
    let spread = (0..200u32).map(|i| f32::from_bits(i.wrapping_mul(21_474_836)));
    let sides: Vec<f32> = spread
        .chain((-40..40).map(|i| i as f32 / 4.0))
        .chain(specials)
        .collect();
    let near = |y: f32| (1..99).map(move |i| y * i as f32 / 50.0);
    let pairs = sides
        .iter()
        .flat_map(|&y| sides.iter().copied().chain(near(y)).map(move |x| (x, y)));
    pairs.unzip()
}

#[test]
fn functions_of_two_numbers_are_within_their_limits() {
    type Exact = fn(f64, f64) -> f64;
    let functions: [(&str, Exact, f64); 3] = [
        ("atan2", f64::atan2, 1.0),
        ("pow", f64::powf, 0.9),
        ("hypot", f64::hypot, 1.0),
    ];
    let (xs, ys) = pairs_of_numbers();
    // Without fused multiply-add there are more roundings.
    let unfused = Target::parse("x86-64-v2").ok();
    let each_target = |f: (&'static str, Exact, f64)| [(f, None), ((f.0, f.1, f.2 + 1.0), unfused)];
    for ((name, exact, limit), target) in functions.into_iter().flat_map(each_target) {
        let inputs = "in x: f32[{n}]\n in y: f32[{n}]";
        let function = format!("v2: f32 = y[i0]\nv1: f32 = {name}(v0, v2)");
        let got = results_of(&[&xs, &ys], inputs, &function, target);
        for ((&x, &y), got) in xs.iter().zip(&ys).zip(got) {
            let want = exact(x as f64, y as f64);
            let w = want as f32;
            let ulp = (f32::from_bits(w.abs().to_bits() + 1) - w.abs()) as f64;
            let close = (got as f64 - want).abs() <= limit * ulp && w.is_sign_negative() == got.is_sign_negative();
            // Near overflow a rounding error decides between a finite result and infinity.
            let same = got == w || got.is_nan() && w.is_nan() || want.abs() > 3.4028e38 && got.abs() > 3.4028e38;
            assert!(close || same, "{name}({x:e}, {y:e}) is {got:e}, should be {want:e}");
        }
    }
}

/// The largest errors in ULP, as docs/accuracy.md states them.
const LIMITS: &[(Unary, f64)] = &[
    (Unary::Exp, 1.0),
    (Unary::Exp2, 1.0),
    (Unary::Expm1, 1.2),
    (Unary::Log, 1.0),
    (Unary::Log2, 1.0),
    (Unary::Log10, 1.0),
    (Unary::Log1p, 1.1),
    (Unary::Sin, 0.9),
    (Unary::Cos, 0.9),
    (Unary::Tanh, 1.1),
    (Unary::Erf, 1.0),
    (Unary::Tan, 0.9),
    (Unary::Asin, 0.7),
    (Unary::Acos, 1.0),
    (Unary::Atan, 1.1),
    (Unary::Sinh, 1.7),
    (Unary::Cosh, 1.5),
    (Unary::Asinh, 0.9),
    (Unary::Acosh, 1.6),
    (Unary::Atanh, 0.8),
    (Unary::Erfc, 1.0),
    (Unary::Erfinv, 1.0),
];
