//! The functions compared with those of [`scalar::math`](crate::scalar::math), at every level.

use super::*;
use crate::scalar::math::{f32_binary, f64_binary, f64_unary};
use crate::target::Target;
use std::collections::HashMap;

fn apply<T: Copy + Default>(op: LaneOp, wide: bool, isa: Isa, x: &[T], y: &[T]) -> Vec<T> {
    let f = lane_function(op, wide, isa).expect("has vector code");
    let mut out = vec![T::default(); x.len()];
    // SAFETY: the machine has the level, and all slices have the same length.
    unsafe { f(x.len(), x.as_ptr().cast(), y.as_ptr().cast(), out.as_mut_ptr().cast()) };
    out
}

fn oracle(op: LaneOp, x: f64, y: f64) -> f64 {
    match op {
        LaneOp::Unary(u) => f64_unary(u).expect("a float function")(x),
        LaneOp::Binary(b) => f64_binary(b).expect("a float function")(x, y),
    }
}

/// Numbers of all exponents and both signs, many near 1, and special ones.
fn numbers(count: usize, wide: bool) -> Vec<f64> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        state ^ state >> 29
    };
    let mut v = vec![
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        2.0,
        -2.0,
        3.0,
        10.0,
        1000.0,
        709.0,
        710.3,
        -745.0,
        0.25,
        1.5,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        5e-324,
        -5e-324,
        1e-310,
        f64::MAX,
        f64::MIN,
        f64::MIN_POSITIVE,
        1e-20,
        -3.5,
        22.0,
        100.5,
    ];
    for i in 0..count {
        let r = random();
        let unit = (r >> 11) as f64 / (1u64 << 53) as f64;
        v.push(match i % 5 {
            0 => f64::from_bits(r),
            1 => unit * 2.0 - 1.0,
            2 => (unit - 0.5) * 20.0,
            3 => (unit - 0.5) * 1400.0,
            _ => unit * 4.0,
        });
    }
    if !wide {
        v.iter_mut().for_each(|x| *x = *x as f32 as f64);
    }
    v
}

/// The distance of `got` from `want` in ULP of `want`, for results with `digits` bits and the least exponent `least`.
fn distance(got: f64, want: f64, digits: i32, least: i32) -> f64 {
    if got == want || (got.is_nan() && want.is_nan()) {
        let same = got.is_nan() || got != 0.0 || got.is_sign_negative() == want.is_sign_negative();
        return if same { 0.0 } else { f64::INFINITY };
    }
    if !got.is_finite() || !want.is_finite() {
        return f64::INFINITY;
    }
    let exponent = (libm::ilogb(want).max(least)) - (digits - 1);
    (got - want).abs() / libm::ldexp(1.0, exponent)
}

/// The largest error of an operation and where.
fn worst(op: LaneOp, wide: bool, isa: Isa, xs: &[f64], ys: &[f64]) -> (f64, f64, f64) {
    let got: Vec<f64> = match wide {
        true => apply(op, true, isa, xs, ys),
        false => {
            let narrow = |v: &[f64]| v.iter().map(|&x| x as f32).collect::<Vec<f32>>();
            let out = apply(op, false, isa, &narrow(xs), &narrow(ys));
            out.into_iter().map(|x| x as f64).collect()
        }
    };
    let mut worst = (0.0, 0.0, 0.0);
    for ((&x, &y), got) in xs.iter().zip(ys).zip(got) {
        let want = match (op, wide) {
            // The neighbours of an f32 are not those of the same f64.
            (LaneOp::Binary(b @ Binary::Nextafter), false) => {
                f32_binary(b).expect("a float function")(x as f32, y as f32) as f64
            }
            _ => oracle(op, x, y),
        };
        let d = match wide {
            true => distance(got, want, 53, -1022),
            false if got == want as f32 as f64 => 0.0,
            false if (want as f32).is_infinite() || got.is_infinite() => {
                match want.abs() > 3.4028e38 && got.abs() > 3.4028e38 {
                    true => 0.0,
                    false => f64::INFINITY,
                }
            }
            false => distance(got, want, 24, -126),
        };
        // Near a root, the error is that of the larger terms, on either side.
        let d = if near_root(op, x) && (got - want).abs() < 1e-14 {
            0.0
        } else {
            d
        };
        if d > worst.0 {
            worst = (d, x, y);
        }
    }
    worst
}

/// Whether this is near a root of digamma, or of lgamma below 0.
fn near_root(op: LaneOp, x: f64) -> bool {
    match op {
        LaneOp::Unary(Unary::Digamma) => x < 2.0,
        LaneOp::Unary(Unary::Lgamma) => x < 0.0,
        _ => false,
    }
}

/// The errors in ULP of f64 that docs/accuracy.md states, by the functions' names.
fn stated_errors() -> HashMap<String, f64> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/accuracy.md");
    let text = std::fs::read_to_string(path).expect("the page exists");
    let rows = text.lines().filter_map(|l| l.strip_prefix("| `")?.strip_suffix(" |"));
    let mut stated = HashMap::new();
    for row in rows {
        let (names, limit) = row.split_once("` | ").expect("two columns");
        let limit: f64 = limit.parse().expect("a number of ULP");
        stated.extend(names.split("` `").map(|n| (n.to_string(), limit)));
    }
    stated
}

/// The name of an operation on the page.
fn name(op: LaneOp) -> String {
    match op {
        LaneOp::Unary(op) => format!("{op:?}").to_lowercase(),
        LaneOp::Binary(op) => format!("{op:?}").to_lowercase(),
    }
}

fn levels() -> Vec<Isa> {
    match Target::native().isa() {
        Isa::Avx512 => vec![Isa::Portable, Isa::Avx2, Isa::Avx512],
        Isa::Avx2 => vec![Isa::Portable, Isa::Avx2],
        Isa::Portable => vec![Isa::Portable],
    }
}

#[test]
fn functions_are_as_exact_as_stated() {
    let mut wrong = vec![];
    let stated = stated_errors();
    assert_eq!(stated.len(), LANE_OPS.len());
    for &op in LANE_OPS {
        for wide in [false, true] {
            let xs = numbers(40_000, wide);
            let mut ys = numbers(40_000, wide);
            ys.rotate_left(7);
            let isa = Target::native().isa();
            let (e, x, y) = worst(op, wide, isa, &xs, &ys);
            println!(
                "{op:?} {}: {e:.3} ULP at {x:e}, {y:e}",
                if wide { "f64" } else { "f32" }
            );
            let limit = if wide { stated[&name(op)] } else { 0.51 };
            if e.is_nan() || e > limit {
                wrong.push(format!("{op:?} wide {wide}: {e} ULP at {x:e}, {y:e}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn all_levels_and_places_give_the_same_bits() {
    for &op in LANE_OPS {
        let (xs, ys) = (numbers(997, true), numbers(997, true));
        let ys: Vec<f64> = ys.into_iter().rev().collect();
        let bits = |v: Vec<f64>| {
            v.into_iter()
                .map(|x| if x.is_nan() { 1 } else { x.to_bits() })
                .collect::<Vec<_>>()
        };
        let first = bits(apply(op, true, Isa::Portable, &xs, &ys));
        for isa in levels() {
            assert_eq!(first, bits(apply(op, true, isa, &xs, &ys)), "{op:?} {isa:?}");
            let single = xs.iter().zip(&ys).flat_map(|(&x, &y)| apply(op, true, isa, &[x], &[y]));
            assert_eq!(first, bits(single.collect()), "{op:?} {isa:?}, one by one");
        }
    }
}

/// A large exponent shows the error of the logarithm. Significands below 1 whose last bit is set once lost it.
#[test]
fn powers_with_large_exponents_are_exact() {
    let exponents = [531.4252054757101, -531.4252054757101, 300.25, -600.5];
    let bases = (0..2000u64).map(|i| f64::from_bits(3.2f64.to_bits() + ((i << 40) | (i % 4))));
    let (xs, ys): (Vec<f64>, Vec<f64>) = bases.flat_map(|x| exponents.map(|y| (x, y))).unzip();
    let op = LaneOp::Binary(Binary::Pow);
    let (e, x, y) = worst(op, true, Target::native().isa(), &xs, &ys);
    assert!(e <= 1.5, "{x:e} ** {y} is {e} ULP off");
}

/// Beside the roots below zero the polynomial for f32 had an error of up to 40 ULP.
#[test]
fn lgamma_of_f32_is_exact_beside_its_roots() {
    let op = LaneOp::Unary(Unary::Lgamma);
    for root in [-2.4570247f32, -2.7476826, -3.143581, -3.9552944, -4.0393615, -4.991544] {
        let xs: Vec<f32> = (0..2001).map(|i| f32::from_bits(root.to_bits() - 1000 + i)).collect();
        let got = apply(op, false, Target::native().isa(), &xs, &xs);
        for (&x, got) in xs.iter().zip(got) {
            let want = oracle(op, x as f64, 0.0);
            let off = distance(got as f64, want, 24, -126);
            assert!(
                off <= 0.6 || (got as f64 - want).abs() < 1e-14,
                "lgamma({x}) is {got:e} instead of {want:e}, {off} ULP"
            );
        }
    }
}
