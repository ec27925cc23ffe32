//! The polynomials against f64 over samples of all f32.

use super::*;
use crate::kernel::KernelBuilder;
use crate::scalar::Unary;
use crate::scalar::math::f64_unary;

/// The largest error of `op` in ULP of the true value, over every `step`-th bit pattern, and where it is.
fn worst(op: Unary, step: usize) -> (f64, f32) {
    let xs: Vec<f32> = (0..u32::MAX).step_by(step).map(f32::from_bits).collect();
    let mut k = KernelBuilder::new("f");
    let (x, out) = (
        k.input("x", DType::F32, &[xs.len()]),
        k.output("out", DType::F32, &[xs.len()]),
    );
    k.parallel_vector(xs.len(), |k, i| {
        let v = k.load(x, i);
        let r = k.unary(op, v);
        k.store(out, i, r);
    });
    let k = k.finish().expect("verifies");
    let c = compile(std::slice::from_ref(&k), Options::default()).expect("compiles");
    let mut buffers = [
        AlignedBytes::from_slice(&xs.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>()),
        AlignedBytes::zeroed(xs.len() * 4),
    ];
    run(&c, &k, &mut buffers, usize::MAX >> 1);
    let f = f64_unary(op).expect("a float function");
    let mut max = (0.0, 0.0);
    for (i, &x) in xs.iter().enumerate() {
        let Scalar::F32(got) = Scalar::read(DType::F32, buffers[1].bytes(), i) else {
            unreachable!("f32 elements")
        };
        let want = f(x as f64);
        if want.is_nan() || (want as f32).is_infinite() || got.is_infinite() {
            let ok = (got.is_nan() && want.is_nan()) || got == want as f32;
            // A rounding apart from overflow is one ULP.
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
