use super::*;
use crate::scalar::eval_element;

fn run(text: &str, compute: DType, x: Scalar) -> Result<Scalar> {
    let mut e = ScalarExpr::new();
    let settings = DTypeSettings {
        compute,
        storage: compute,
    };
    let r = parse(text, settings, &mut e, &mut |name, e| match name {
        "x" => {
            let x = e.arg(0, x.dtype());
            Some(ParsedValue::Value(e.cast(compute, x)))
        }
        "k" => Some(ParsedValue::Number(UntypedNumber::Int(3))),
        _ => None,
    })?;
    e.roots = vec![r];
    Ok(eval_element(&e, &[x], &[7, 5]).expect("evaluates")[0])
}

#[test]
fn follows_python_s_precedence() {
    let f = |t: &str| run(t, DType::F64, Scalar::F64(2.0)).expect(t).to_f64();
    assert_eq!(f("-x ** 2"), -4.0);
    assert_eq!(f("x ** -1"), 0.5);
    assert_eq!(f("2 ** x ** 3"), 256.0);
    assert_eq!(f("1 - x - 3"), -4.0);
    assert_eq!(f("x * 3 // 4 + 7 % 4"), 4.0);
    assert_eq!(f("where((x > 1) | (x < 0), 10, 20)"), 10.0);
    assert_eq!(f("t = x * x; t / (1 + t)"), 0.8);
    assert_eq!(f("sqrt(k + 1) * min(x, 1e0)"), 2.0);
    assert_eq!(f("(x > 1) + 1"), 2.0);
    assert_eq!(f("compute(i0) + 10 * compute(i1)"), 75.0);
}

#[test]
fn types_numbers_by_what_they_meet() {
    let got = run("x + 300", DType::U8, Scalar::Int(DType::U8, 1));
    assert_eq!(got, Ok(Scalar::Int(DType::U8, 45)));
    // 1 / 3 is folded in f64 and rounded once.
    assert_eq!(run("1 / 3", DType::F32, Scalar::F32(0.0)), Ok(Scalar::F32(1.0 / 3.0)));
    assert_eq!(
        run("x == 2", DType::I32, Scalar::Int(DType::I32, 2)),
        Ok(Scalar::Bool(true))
    );
}

#[test]
fn shares_equal_parts() {
    let mut e = ScalarExpr::new();
    let settings = DTypeSettings {
        compute: DType::F32,
        storage: DType::F32,
    };
    parse("exp(a) / (1 + exp(a))", settings, &mut e, &mut |_, e| {
        Some(ParsedValue::Value(e.arg(0, DType::F32)))
    })
    .expect("parses");
    assert_eq!(e.len(), 5);
}

#[test]
fn errors_are_values_with_offsets() {
    for (text, offset) in [
        ("", 0),
        ("x +", 3),
        ("x + yy", 4),
        ("sin(x", 5),
        ("sinn(x)", 0),
        ("x $ 1", 2),
        ("max(x)", 0),
        ("x < 1 < 2", 6),
        ("x & 1", 2),
        ("i0 + x", 3),
        ("sqrt(i0)", 0),
        ("where(x, 1, 2)", 0),
        ("1.2.3", 0),
        ("t = 1", 5),
        ("é", 0),
    ] {
        let e = run(text, DType::F32, Scalar::F32(1.0)).expect_err(text);
        assert_eq!(e.offset, offset, "{text}: {e}");
    }
    let deep = "(".repeat(100_000);
    assert!(run(&deep, DType::F32, Scalar::F32(1.0)).is_err());
    let long = format!("x{}", " + x".repeat(50_000));
    assert_eq!(run(&long, DType::F64, Scalar::F64(1.0)), Ok(Scalar::F64(50_001.0)));
}
