//! Every scalar operation on every dtype, on special values, in vectors and in scalars.

use super::*;
use crate::kernel::{KernelBuilder, Value};
use crate::scalar::{Binary, Compare, Unary};

const UNARY: &[Unary] = &[
    Unary::Neg,
    Unary::Abs,
    Unary::Sign,
    Unary::Not,
    Unary::BitNot,
    Unary::Floor,
    Unary::Ceil,
    Unary::Round,
    Unary::Trunc,
    Unary::Sqrt,
    Unary::Rsqrt,
    Unary::Recip,
    Unary::Exp,
    Unary::Exp2,
    Unary::Expm1,
    Unary::Log,
    Unary::Log2,
    Unary::Log10,
    Unary::Log1p,
    Unary::Sin,
    Unary::Cos,
    Unary::Tan,
    Unary::Asin,
    Unary::Acos,
    Unary::Atan,
    Unary::Sinh,
    Unary::Cosh,
    Unary::Tanh,
    Unary::Asinh,
    Unary::Acosh,
    Unary::Atanh,
    Unary::Erf,
    Unary::Erfc,
    Unary::Erfcx,
    Unary::Erfinv,
    Unary::Lgamma,
    Unary::Digamma,
    Unary::I0,
    Unary::I0e,
    Unary::I1,
    Unary::I1e,
    Unary::Ndtri,
    Unary::Sigmoid,
    Unary::IsNan,
    Unary::IsInf,
    Unary::SignBit,
];

const BINARY: &[Binary] = &[
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::Div,
    Binary::FloorDiv,
    Binary::TruncDiv,
    Binary::Mod,
    Binary::Fmod,
    Binary::Pow,
    Binary::Atan2,
    Binary::Max,
    Binary::Min,
    Binary::Fmax,
    Binary::Fmin,
    Binary::And,
    Binary::Or,
    Binary::Xor,
    Binary::Shl,
    Binary::Shr,
    Binary::Copysign,
    Binary::Hypot,
    Binary::Nextafter,
    Binary::Gcd,
    Binary::Zeta,
];

/// Error-prone integers, besides the ends of a dtype.
const INTS: [i64; 13] = [0, 1, -1, 2, -2, 3, 7, -7, 10, 31, 32, 63, 64];

/// Error-prone floats, for every float dtype.
#[rustfmt::skip]
const FLOATS: [f64; 34] = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 1e-3, -0.3, 0.7, -7.25, 20.0, 88.5, -88.5, 100.0, -104.0, 1000.25,
    65504.0, 65520.0, 1e6, -2147483648.0, 2147483647.0, 3e9, -1e19, 1e-8, 6e-5, -5.5e-6, 1e-38,
    f64::INFINITY, f64::NEG_INFINITY, f64::NAN,
];

/// Error-prone values of a dtype.
fn special(d: DType) -> Vec<Scalar> {
    if d == DType::B8 {
        return vec![Scalar::Bool(false), Scalar::Bool(true)];
    }
    if d.is_int() {
        let (lo, hi) = (
            crate::kernel::lowest_value(d).to_i64(),
            crate::kernel::highest_value(d).to_i64(),
        );
        let all = INTS.into_iter().chain([lo, lo + 1, hi, hi - 1, hi / 2]);
        return all.map(|x| Scalar::from_i64(d, x)).collect();
    }
    let more: &[f64] = match d {
        DType::F64 => &[1e300, -1e-310, 9.3e18, 4503599627370497.5],
        DType::F32 => &[3e38, -1e-40, 1e-45, 16777217.0],
        _ => &[],
    };
    FLOATS.iter().chain(more).map(|&x| Scalar::from_f64(d, x)).collect()
}

/// Every pair of a value of `x` and a value of `y`.
fn pairs(x: &[Scalar], y: &[Scalar]) -> (Vec<Scalar>, Vec<Scalar>) {
    x.iter().flat_map(|&a| y.iter().map(move |&b| (a, b))).unzip()
}

/// A flat kernel `out = f(inputs)`, or `None` if the dtype does not have the operation.
fn map(name: &str, inputs: &[(DType, usize)], f: impl FnOnce(&mut KernelBuilder, &[Value]) -> Value) -> Option<Kernel> {
    let mut k = KernelBuilder::new(name);
    let n = inputs[0].1;
    let bufs: Vec<_> = inputs
        .iter()
        .enumerate()
        .map(|(i, &(d, n))| k.input(&format!("x{i}"), d, &[n]))
        .collect();
    k.parallel_vector(n, |k, i| {
        let args: Vec<Value> = bufs.iter().map(|&b| k.load(b, i)).collect();
        let r = f(k, &args);
        let o = k.output("out", k.dtype(r), &[n]);
        k.store(o, i, r);
    });
    k.finish().ok()
}

fn exact(op: Unary) -> bool {
    use Unary::*;
    matches!(
        op,
        Neg | Abs | Sign | Not | BitNot | Floor | Ceil | Round | Trunc | Sqrt | Rsqrt | Recip | IsNan | IsInf | SignBit
    )
}

/// The error allowed to functions of floats, in ULP. `math::functions` tests each against its own limit. Results near a root of
/// digamma have few exact bits, here and in the oracle.
fn tolerance(d: DType) -> u64 {
    match d {
        DType::F32 => 2,
        DType::F64 => 128,
        _ => 0,
    }
}

/// A kernel, its inputs, and the maximum error of its results in ULP.
pub(super) type Case = (Kernel, Vec<Vec<u8>>, u64);

/// The dtypes that kernels compute in.
const DTYPES: [DType; 8] = [
    DType::F32,
    DType::F64,
    DType::I64,
    DType::I32,
    DType::I16,
    DType::I8,
    DType::U8,
    DType::B8,
];

pub(super) fn unary_cases() -> Vec<Case> {
    let mut cases = vec![];
    for d in DTYPES {
        for &op in UNARY {
            let values: Vec<Scalar> = special(d).into_iter().cycle().take(51).collect();
            let k = map(&format!("{op:?}_{d}"), &[(d, values.len())], |k, x| k.unary(op, x[0]));
            let ulps = if exact(op) { 0 } else { tolerance(d) };
            cases.extend(k.map(|k| (k, vec![bytes(d, &values)], ulps)));
        }
    }
    cases
}

pub(super) fn binary_cases() -> Vec<Case> {
    let mut cases = vec![];
    for d in DTYPES {
        let two = |x: &[Scalar], y: &[Scalar]| vec![bytes(d, x), bytes(d, y)];
        for &op in BINARY {
            let divides = matches!(op, Binary::FloorDiv | Binary::TruncDiv | Binary::Mod | Binary::Fmod);
            let mut divisors = special(d);
            if divides && d.is_int() {
                divisors.retain(|s| s.to_i64() != 0);
            }
            let (x, y) = pairs(&special(d), &divisors);
            let n = x.len();
            let k = map(&format!("{op:?}_{d}"), &[(d, n), (d, n)], |k, x| {
                k.binary(op, x[0], x[1])
            });
            let approximate = matches!(op, Binary::Pow | Binary::Atan2 | Binary::Hypot | Binary::Zeta);
            let ulps = if approximate { tolerance(d) } else { 0 };
            cases.extend(k.map(|k| (k, two(&x, &y), ulps)));
        }
        for op in Compare::ALL {
            let (x, y) = pairs(&special(d), &special(d));
            let n = x.len();
            let k = map(&format!("{op:?}_{d}"), &[(d, n), (d, n)], |k, x| {
                k.compare(op, x[0], x[1])
            });
            cases.push((k.expect("compares"), two(&x, &y), 0));
        }
    }
    cases
}

pub(super) fn cast_cases() -> Vec<Case> {
    let mut cases = vec![];
    for from in DType::COMPUTED {
        for to in DType::COMPUTED {
            let values: Vec<Scalar> = special(from).into_iter().cycle().take(75).collect();
            let k = map(&format!("{from}_{to}"), &[(from, values.len())], |k, x| {
                k.cast(to, x[0])
            });
            cases.push((k.expect("casts"), vec![bytes(from, &values)], 0));
        }
    }
    cases
}

#[test]
fn unary_operations() {
    let cases = unary_cases();
    assert!(cases.len() > 110, "{}", cases.len());
    cases.iter().for_each(|(k, inputs, ulps)| check(k, inputs, *ulps));
}

#[test]
fn binary_operations() {
    let cases = binary_cases();
    assert!(cases.len() > 160, "{}", cases.len());
    cases.iter().for_each(|(k, inputs, ulps)| check(k, inputs, *ulps));
}

#[test]
fn casts() {
    cast_cases()
        .iter()
        .for_each(|(k, inputs, ulps)| check(k, inputs, *ulps));
}

#[test]
fn halves_round_to_nearest_even() {
    // All f16 and bf16 values in both directions, and f32 values around all their midpoints.
    for d in [DType::F16, DType::BF16] {
        let all: Vec<u8> = (0..=u16::MAX).flat_map(|b| b.to_le_bytes()).collect();
        let k = map("widen", &[(d, 65536)], |k, x| k.cast(DType::F32, x[0])).expect("casts");
        check(&k, &[all], 0);
        let shift = if d == DType::F16 { 12 } else { 15 };
        let mut rng = Rng::new(7);
        let near: Vec<u8> = (0..20011)
            .flat_map(|_| {
                let x = (rng.0.next_u64() as u32 >> shift << shift)
                    .wrapping_add(rng.below(3) as u32)
                    .wrapping_sub(1);
                x.to_le_bytes()
            })
            .collect();
        let k = map("narrow", &[(DType::F32, 20011)], |k, x| k.cast(d, x[0])).expect("casts");
        check(&k, &[near], 0);
    }
}

#[test]
fn select_and_fma() {
    for d in DType::COMPUTED {
        let (x, y) = pairs(&special(d), &special(d));
        let n = x.len();
        let c: Vec<Scalar> = (0..n).map(|i| Scalar::Bool(i % 3 == 0)).collect();
        let k = map(&format!("select_{d}"), &[(DType::B8, n), (d, n), (d, n)], |k, x| {
            k.select(x[0], x[1], x[2])
        });
        check(
            &k.expect("selects"),
            &[bytes(DType::B8, &c), bytes(d, &x), bytes(d, &y)],
            0,
        );
        if matches!(d, DType::F32 | DType::F64) {
            let z: Vec<Scalar> = y.iter().rev().copied().collect();
            let k = map("fma", &[(d, n), (d, n), (d, n)], |k, x| k.fma(x[0], x[1], x[2])).expect("multiplies");
            check(&k, &[bytes(d, &x), bytes(d, &y), bytes(d, &z)], 0);
        }
    }
}

#[test]
fn maxima_with_constants() {
    for d in [DType::F32, DType::F64] {
        for (op, c, left) in [
            (Binary::Max, 0.0, false),
            (Binary::Max, -0.0, true),
            (Binary::Min, 6.0, false),
            (Binary::Min, 6.0, true),
            (Binary::Max, f64::NAN, false),
        ] {
            let values = special(d);
            let k = map(&format!("{op:?}_{c}"), &[(d, values.len())], |k, x| {
                let c = k.constant(Scalar::from_f64(d, c));
                if left {
                    k.binary(op, c, x[0])
                } else {
                    k.binary(op, x[0], c)
                }
            });
            check(&k.expect("compares"), &[bytes(d, &values)], 0);
        }
    }
}

#[test]
fn division_by_zero_is_a_fault_and_not_a_trap() {
    for d in [DType::I64, DType::I32, DType::I8, DType::U8] {
        for op in [Binary::FloorDiv, Binary::TruncDiv, Binary::Mod, Binary::Fmod] {
            for n in [3, 19] {
                let k = map("divide", &[(d, n), (d, n)], |k, x| k.binary(op, x[0], x[1])).expect("divides");
                let ones: Vec<Scalar> = (0..n).map(|_| Scalar::from_i64(d, 1)).collect();
                let mut y = ones.clone();
                check(&k, &[bytes(d, &ones), bytes(d, &y)], 0);
                y[n - 2] = Scalar::from_i64(d, 0);
                check(&k, &[bytes(d, &ones), bytes(d, &y)], 0);
            }
        }
    }
}
