//! Python's own functions on numbers: `round(x, 2)`, `divmod(a, b)`, `math.log(n)`. Sizes in traced graphs pass through
//! these.

mod functions;

use self::functions::{exponential_rows, hyperbolic_rows, other_function_rows, trigonometric_rows};
use crate::op::number;
use crate::op::{Call, Meaning, Op, OpError, OpId, OpResult, RowDeclaration, TypeRule};
use crate::types::{Dim, ScalarKind, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    [
        quotient_rows(),
        integer_rows(),
        exponential_rows(),
        trigonometric_rows(),
        hyperbolic_rows(),
        other_function_rows(),
        of_two(),
        predicate_rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Rounding, quotients and modular powers.
fn quotient_rows() -> Vec<Op> {
    vec![
        host("math_round_to(Any a, Any ndigits) -> Any", |c, _| {
            round_to(c.get("a"), c.get("ndigits"))
        })
        .doc("a number rounded to a number of decimals, with exact halves rounded to even")
        .spelled("builtins.round"),
        host("divmod(Any a, Any b) -> Any", |c, _| {
            let part = |op: OpId| {
                let args = [c.get("a").clone(), c.get("b").clone()];
                number::eval_op(op, &args).unwrap_or_else(|| Err(OpError::arg("a", "divmod() expects two numbers")))
            };
            Ok(Val::Tuple(vec![part(OpId::FloorDivide)?, part(OpId::Remainder)?]))
        })
        .doc("the quotient rounded down, and the remainder")
        .spelled("builtins.divmod"),
        host("pow_mod(Any base, Any exp, Any mod) -> int", pow_mod)
            .doc("an integer power modulo an integer")
            .spelled("builtins.pow"),
    ]
}

/// Functions of integers, and a logarithm to any base.
fn integer_rows() -> Vec<Op> {
    vec![
        host("math_gcd(Any a, Any b) -> int", |c, _| of_ints(c, gcd))
            .doc("the greatest common divisor")
            .spelled("math.gcd"),
        host("math_lcm(Any a, Any b) -> int", |c, _| {
            of_ints(c, |a, b| match gcd(a, b)? {
                0 => Some(0),
                g => (a / g).checked_mul(b)?.checked_abs(),
            })
        })
        .doc("the least common multiple")
        .spelled("math.lcm"),
        host("math_isqrt(Any n) -> int", |c, _| match c.get("n").as_int() {
            Some(n) if n < 0 => Err(OpError::value("isqrt() argument must be nonnegative")),
            Some(n) => Ok(Val::int(n.isqrt())),
            None => Ok(Val::Any(ScalarKind::Int)),
        })
        .doc("the integer square root")
        .spelled("math.isqrt"),
        host("math_log_base(Any x, Any base) -> float", |c, _| {
            let (x, base) = (c.get("x").as_f64(), c.get("base").as_f64());
            match (x, base) {
                (Some(x), Some(b)) if x <= 0.0 || b <= 0.0 => Err(OpError::value("math domain error")),
                (_, Some(1.0)) => Err(OpError::value("ZeroDivisionError: float division by zero")),
                (Some(x), Some(b)) => Ok(Val::Float(x.ln() / b.ln())),
                _ => Ok(Val::Any(ScalarKind::Float)),
            }
        })
        .doc("a logarithm to any base")
        .spelled("math.log"),
    ]
}

fn host(declared: impl Into<RowDeclaration>, rule: TypeRule) -> Op {
    Op::new(declared, rule, Meaning::Host)
}

macro_rules! of_two {
    ($name:literal, $schema:literal, $paths:literal, $f:expr) => {
        host(($name, $schema), |c, _| {
            match (c.get("x").as_f64(), c.get("y").as_f64()) {
                (Some(x), Some(y)) => checked($f(x, y), x.is_nan() || y.is_nan(), x.is_finite() && y.is_finite()),
                _ => unknown(&[c.get("x"), c.get("y")]),
            }
        })
        .doc(concat!($schema, ", of numbers"))
        .spelled($paths)
    };
}

fn of_two() -> Vec<Op> {
    vec![
        of_two!(
            "math_pow",
            "pow(Any x, Any y) -> float",
            "math.pow",
            |x: f64, y: f64| match x == 0.0 && y < 0.0 {
                true => f64::NAN,
                false => x.powf(y),
            }
        ),
        of_two!(
            "math_fmod",
            "fmod(Any x, Any y) -> float",
            "math.fmod",
            |x: f64, y: f64| x % y
        ),
        of_two!(
            "math_copysign",
            "copysign(Any x, Any y) -> float",
            "math.copysign",
            f64::copysign
        ),
        of_two!("math_atan2", "atan2(Any x, Any y) -> float", "math.atan2", f64::atan2),
        of_two!("math_hypot", "hypot(Any x, Any y) -> float", "math.hypot", f64::hypot),
    ]
}

fn predicate_rows() -> Vec<Op> {
    vec![
        host("math_isnan(Any x) -> bool", |c, _| {
            eval_predicate(c.get("x"), f64::is_nan)
        })
        .doc("whether a number is NaN")
        .spelled("math.isnan"),
        host("math_isinf(Any x) -> bool", |c, _| {
            eval_predicate(c.get("x"), f64::is_infinite)
        })
        .doc("whether a number is infinite")
        .spelled("math.isinf"),
        host("math_isfinite(Any x) -> bool", |c, _| {
            eval_predicate(c.get("x"), f64::is_finite)
        })
        .doc("whether a number is finite")
        .spelled("math.isfinite"),
    ]
}

fn eval_predicate(v: &Type, f: fn(f64) -> bool) -> OpResult<Type> {
    match v.as_f64() {
        Some(x) => Ok(Val::Bool(f(x))),
        None => unknown(&[v]).map(|_| Val::Any(ScalarKind::Bool)),
    }
}

fn of_float(v: &Type, f: impl Fn(f64) -> f64) -> OpResult<Type> {
    match v.as_f64() {
        Some(x) => checked(f(x), x.is_nan(), x.is_finite()),
        None => unknown(&[v]),
    }
}

/// The result, or Python's error: only NaN may give NaN, and only non-finite arguments may give infinity.
fn checked(y: f64, of_nan: bool, of_finite: bool) -> OpResult<Type> {
    if y.is_nan() && !of_nan {
        return Err(OpError::value("math domain error"));
    }
    if y.is_infinite() && of_finite {
        return Err(OpError::value("math range error"));
    }
    Ok(Val::Float(y))
}

/// The type of an unknown float, computed from numbers of unknown value.
fn unknown(args: &[&Type]) -> OpResult<Type> {
    for v in args {
        match v {
            Val::Unknown => return Ok(Val::Unknown),
            Val::Int(_)
            | Val::Float(_)
            | Val::Bool(_)
            | Val::Any(ScalarKind::Int | ScalarKind::Float | ScalarKind::Bool) => {}
            v => return Err(OpError::dtype(format!("must be real number, not {}", v.kind_name()))),
        }
    }
    Ok(Val::Any(ScalarKind::Float))
}

fn of_ints(c: &Call<TensorType>, f: fn(i64, i64) -> Option<i64>) -> OpResult<Type> {
    match (c.get("a"), c.get("b")) {
        (Val::Float(_), _) | (_, Val::Float(_)) => {
            Err(OpError::dtype("'float' object cannot be interpreted as an integer"))
        }
        (a, b) => Ok(match (a.as_int(), b.as_int()) {
            (Some(a), Some(b)) => f(a, b).map_or(Val::Any(ScalarKind::Int), Val::int),
            _ => Val::Any(ScalarKind::Int),
        }),
    }
}

fn gcd(a: i64, b: i64) -> Option<i64> {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    i64::try_from(a).ok()
}

fn pow_mod(c: &Call<TensorType>, _: &mut crate::op::Sizes) -> OpResult<Type> {
    let argument = |name: &str| c.get(name).as_int();
    let (Some(base), Some(exp), Some(modulus)) = (argument("base"), argument("exp"), argument("mod")) else {
        return Ok(Val::Any(ScalarKind::Int));
    };
    if modulus == 0 {
        return Err(OpError::value("pow() 3rd argument cannot be 0"));
    }
    if exp < 0 {
        return Ok(Val::Any(ScalarKind::Int));
    }
    let m = modulus as i128;
    let (mut result, mut square, mut left) = (1i128.rem_euclid(m.abs()), (base as i128).rem_euclid(m.abs()), exp);
    while left > 0 {
        if left & 1 == 1 {
            result = result * square % m.abs();
        }
        square = square * square % m.abs();
        left >>= 1;
    }
    // The result has the sign of the modulus, as with `%`.
    let signed = if m < 0 && result != 0 { result + m } else { result };
    Ok(Val::int(signed as i64))
}

fn round_to(v: &Type, digits: &Type) -> OpResult<Type> {
    let known = match digits {
        Val::None => None,
        d => match d.as_int() {
            Some(n) if !matches!(d, Val::Float(_)) => Some(n),
            _ => return Ok(Val::Any(ScalarKind::Float)),
        },
    };
    match (v, known) {
        (Val::Float(x), None) => match x.round_ties_even() {
            r if r.abs() < 9.2e18 => Ok(Val::int(r as i64)),
            _ => Err(OpError::value(format!("cannot convert float {x} to integer"))),
        },
        (Val::Float(x), Some(n)) => Ok(Val::Float(round_float(*x, n))),
        (Val::Int(_), None | Some(0..)) => Ok(v.clone()),
        (Val::Bool(b), None | Some(0..)) => Ok(Val::int(*b as i64)),
        (Val::Int(Dim::Const(i)), Some(n)) => {
            Ok(round_int(*i, n.unsigned_abs()).map_or(Val::Any(ScalarKind::Int), Val::int))
        }
        (Val::Bool(_), Some(_)) => Ok(Val::int(0)),
        (Val::Int(_) | Val::Any(ScalarKind::Int | ScalarKind::Bool), _) | (Val::Any(ScalarKind::Float), None) => {
            Ok(Val::Any(ScalarKind::Int))
        }
        (Val::Any(ScalarKind::Float), Some(_)) => Ok(Val::Any(ScalarKind::Float)),
        (Val::Unknown, _) => Ok(Val::Unknown),
        (v, _) => Err(OpError::dtype(format!(
            "type {} doesn't define __round__ method",
            v.kind_name()
        ))),
    }
}

/// Rounds `i` to a multiple of `10^zeros`, with ties to even.
fn round_int(i: i64, zeros: u64) -> Option<i64> {
    let Some(unit) = u32::try_from(zeros).ok().and_then(|n| 10i128.checked_pow(n)) else {
        return Some(0);
    };
    let (down, rest) = ((i as i128).div_euclid(unit), (i as i128).rem_euclid(unit));
    let up = 2 * rest > unit || 2 * rest == unit && down % 2 != 0;
    i64::try_from((down + up as i128) * unit).ok()
}

/// Rounds `x` to `digits` decimals: takes the decimal nearest to its exact value, then the float nearest to that.
fn round_float(x: f64, digits: i64) -> f64 {
    // With more than 323 decimals every float is unchanged; below -308 every float rounds to zero.
    if !x.is_finite() || digits > 323 || x == 0.0 {
        return x;
    }
    if digits < -308 {
        return 0f64.copysign(x);
    }
    // The exact decimal expansion of a float has at most 1074 decimals.
    let exact = format!("{:.1074}", x.abs());
    let (whole, decimals) = exact.split_once('.').unwrap_or((&exact, ""));
    let all: Vec<u8> = whole.bytes().chain(decimals.bytes()).collect();
    let keep = whole.len() as i64 + digits;
    if keep < 0 {
        return 0f64.copysign(x);
    }
    let (rounded, rest) = all.split_at((keep as usize).min(all.len()));
    let mut rounded = [b"0", rounded].concat();
    let half = rest.first().is_some_and(|&d| d == b'5') && rest[1..].iter().all(|&d| d == b'0');
    let odd = rounded.last().is_some_and(|d| d % 2 == 1);
    if rest.first().is_some_and(|&d| d >= b'5') && (!half || odd) {
        for d in rounded.iter_mut().rev() {
            if *d != b'9' {
                *d += 1;
                break;
            }
            *d = b'0';
        }
    }
    let text = format!("{}e{}", String::from_utf8_lossy(&rounded), -digits);
    text.parse::<f64>().map_or(x, |r| r.copysign(x))
}

#[cfg(test)]
mod tests;
