//! Quotients, remainders and shifts: integers by constants and by variables, and floats of very different magnitudes, at
//! all vector widths, compared with the interpreter bit for bit.

use super::*;
use crate::kernel::KernelBuilder;
use crate::scalar::Binary;

const INTS: [DType; 5] = [DType::I64, DType::I32, DType::I16, DType::I8, DType::U8];
const DIVISIONS: [Binary; 4] = [Binary::FloorDiv, Binary::TruncDiv, Binary::Mod, Binary::Fmod];

fn ends(d: DType) -> (i64, i64) {
    let (lo, hi) = (crate::kernel::lowest_value(d), crate::kernel::highest_value(d));
    (lo.to_i64(), hi.to_i64())
}

/// Integers of every magnitude, the ends of the dtype, and what surrounds multiples of `d`.
fn integers(dtype: DType, d: i64, rng: &mut Rng) -> Vec<Scalar> {
    let (lo, hi) = ends(dtype);
    let mut all = vec![lo, lo + 1, hi, hi - 1, 0, 1, -1, 2, -2];
    for _ in 0..400 {
        let x = rng.0.next_u64() as i64 >> rng.below(64);
        all.push(x);
        let multiple = (x / d.max(1)).wrapping_mul(d);
        all.extend([multiple, multiple.wrapping_add(1), multiple.wrapping_sub(1)]);
    }
    all.into_iter()
        .map(|x| Scalar::from_i64(dtype, x.clamp(lo, hi)))
        .collect()
}

fn by_constant(op: Binary, dtype: DType, c: i64, x: &[Scalar]) {
    let mut k = KernelBuilder::new(format!("{op:?}_{dtype}_by_{c}"));
    let (b, n) = (k.input("x", dtype, &[x.len()]), x.len());
    k.parallel_vector(n, |k, i| {
        let v = k.load(b, i);
        let c = k.constant(Scalar::from_i64(dtype, c));
        let r = k.binary(op, v, c);
        let o = k.output("out", dtype, &[n]);
        k.store(o, i, r);
    });
    check(&k.finish().expect("a kernel"), &[bytes(dtype, x)], 0);
}

fn by_variable(op: Binary, dtype: DType, x: &[Scalar], y: &[Scalar]) {
    let mut k = KernelBuilder::new(format!("{op:?}_{dtype}"));
    let n = x.len();
    let (a, b) = (k.input("x", dtype, &[n]), k.input("y", dtype, &[n]));
    k.parallel_vector(n, |k, i| {
        let (v, w) = (k.load(a, i), k.load(b, i));
        let r = k.binary(op, v, w);
        let o = k.output("out", dtype, &[n]);
        k.store(o, i, r);
    });
    check(&k.finish().expect("a kernel"), &[bytes(dtype, x), bytes(dtype, y)], 0);
}

#[test]
fn integers_by_constants() {
    let mut rng = Rng::new(5);
    for dtype in INTS {
        let (lo, hi) = ends(dtype);
        let all = [
            1,
            -1,
            2,
            -2,
            3,
            -3,
            5,
            7,
            -7,
            8,
            10,
            -16,
            64,
            100,
            127,
            lo,
            lo + 1,
            hi,
            hi / 2 + 1,
        ];
        for c in all.into_iter().filter(|c| (lo..=hi).contains(c) && *c != 0) {
            let x = integers(dtype, c, &mut rng);
            DIVISIONS.into_iter().for_each(|op| by_constant(op, dtype, c, &x));
        }
        let x = integers(dtype, 1, &mut rng);
        let width = 8 * dtype.size() as i64;
        for n in [0, 1, 3, width - 1, width, width + 1, 100, -1]
            .into_iter()
            .filter(|n| *n >= lo)
        {
            [Binary::Shl, Binary::Shr]
                .into_iter()
                .for_each(|op| by_constant(op, dtype, n, &x));
        }
    }
}

#[test]
fn integers_by_variables() {
    let mut rng = Rng::new(6);
    for dtype in INTS {
        let x = integers(dtype, 1, &mut rng);
        let mut y = integers(dtype, 1, &mut rng);
        let counts: Vec<Scalar> = (0..y.len())
            .map(|i| Scalar::from_i64(dtype, i as i64 % 71 - if dtype == DType::U8 { 0 } else { 3 }))
            .collect();
        [Binary::Shl, Binary::Shr]
            .into_iter()
            .for_each(|op| by_variable(op, dtype, &x, &counts));
        y.retain(|s| s.to_i64() != 0);
        // Pairs of every magnitude and their multiples.
        let products = y.iter().rev().zip(&y).map(|(a, b)| a.to_i64().wrapping_mul(b.to_i64()));
        let (lo, hi) = ends(dtype);
        let products: Vec<Scalar> = products.map(|p| Scalar::from_i64(dtype, p.clamp(lo, hi))).collect();
        let divisors: Vec<Scalar> = y.iter().rev().copied().collect();
        for op in DIVISIONS {
            by_variable(op, dtype, &x[..y.len()], &y);
            by_variable(op, dtype, &products, &divisors);
        }
    }
}

#[test]
fn floats_of_all_magnitudes() {
    let mut rng = Rng::new(7);
    for dtype in [DType::F32, DType::F64] {
        let mut number = |near: bool| {
            let bits = rng.0.next_u64();
            match (dtype, near) {
                (DType::F32, false) => Scalar::F32(f32::from_bits(bits as u32)),
                (_, false) => Scalar::F64(f64::from_bits(bits)),
                // Few bits, so that quotients are often integers or nearly so.
                _ => Scalar::from_f64(dtype, (bits as i8) as f64 * 2f64.powi((bits >> 8) as i32 % 5)),
            }
        };
        let specials = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            5e-324,
            1e-45,
            -1e-40,
            3e38,
            f64::MAX,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
        ];
        let specials: Vec<Scalar> = specials.map(|x| Scalar::from_f64(dtype, x)).to_vec();
        let mut x: Vec<Scalar> = (0..3000).map(|i| number(i % 2 == 0)).collect();
        let mut y: Vec<Scalar> = (0..3000).map(|i| number(i % 4 < 2)).collect();
        for a in &specials {
            for b in &specials {
                x.push(*a);
                y.push(*b);
            }
        }
        for op in [Binary::Fmod, Binary::Mod, Binary::FloorDiv] {
            by_variable(op, dtype, &x, &y);
        }
    }
}
