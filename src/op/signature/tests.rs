use super::*;
use crate::types::DType;

fn tensor(dtype: DType, shape: &[usize]) -> Type {
    Val::Leaf(TensorType::with_fixed_shape(dtype, shape))
}

fn takes(path: &str, args: &[Type], kwargs: &[(&str, Type)]) -> bool {
    let kwargs: Vec<(&str, &Type)> = kwargs.iter().map(|(k, v)| (*k, v)).collect();
    check_call(path, args, &kwargs) == Ok(true)
}

#[test]
fn every_signature_is_parsed_and_found() {
    for text in [PYTHON, WRITTEN, MODULES, ATEN] {
        let mut before = "";
        for line in text.lines() {
            let path = line.split('(').next().expect("a path");
            assert!(before <= path, "{path} is out of order");
            before = path;
            assert!(!parse_cached(lines_of_path(text, path)).is_empty(), "{path}");
        }
    }
    assert!(signatures_of("aten.add").0.len() > 2 && signatures_of("aten.frobnicate").0.is_empty());
}

#[test]
fn functions_are_stricter_than_overloads() {
    let x = || tensor(DType::F32, &[2, 3]);
    let cases = [
        (Val::Bool(true), false, true),
        (Val::int(0), true, true),
        (Val::Float(0.0), false, false),
        (Val::List(vec![Val::int(0)]), true, true),
        (Val::List(vec![Val::Bool(true)]), false, true),
        (tensor(DType::I64, &[]), true, false),
    ];
    for (dim, function, overload) in cases {
        assert_eq!(
            takes("torch.sum", &[x(), dim.clone()], &[]),
            function,
            "torch.sum {dim}"
        );
        let path = "aten.sum.dim_IntList";
        assert_eq!(takes(path, &[x(), dim.clone()], &[]), overload, "{path} {dim}");
    }
    assert!(!takes(
        "torch.sum",
        &[x()],
        &[("dim", Val::int(0)), ("keepdim", Val::int(1))]
    ));
    assert!(takes(
        "torch.sum",
        &[x()],
        &[("axis", Val::int(0)), ("keepdims", Val::Bool(true))]
    ));
    assert!(takes("aten.sum.dim_IntList", &[x(), Val::int(0), Val::int(1)], &[]));
}

#[test]
fn the_nearest_signature_gives_the_reason() {
    let x = tensor(DType::F32, &[2, 3]);
    for (name, v) in [("dim", Val::Bool(true)), ("dim", Val::str("0"))] {
        let found = check_call("torch.sum", std::slice::from_ref(&x), &[(name, &v)]);
        assert!(
            matches!(found, Err(BindError::WrongType { ref param, .. }) if param == "dim"),
            "{found:?}"
        );
    }
    let (dim, keepdim) = (Val::int(0), Val::int(1));
    let found = check_call("torch.sum", &[x], &[("dim", &dim), ("keepdim", &keepdim)]);
    assert!(
        matches!(found, Err(BindError::WrongType { ref param, .. }) if param == "keepdim"),
        "{found:?}"
    );
}

#[test]
fn sizes_are_spread_over_the_arguments_of_methods_alone() {
    let x = || tensor(DType::F32, &[6]);
    let two = |a, b| vec![x(), Val::int(a), Val::int(b)];
    assert!(takes("Tensor.view", &two(2, 3), &[]) && takes("Tensor.reshape", &[x(), Val::int(6)], &[]));
    assert!(!takes("torch.reshape", &two(2, 3), &[]) && !takes("torch.reshape", &[x(), Val::int(6)], &[]));
    assert!(!takes("Tensor.view", &[x()], &[("size", Val::int(6))]));
    assert!(takes("torch.zeros", &[Val::int(2), Val::int(3)], &[]));
}

#[test]
fn numbers_stand_for_tensors_where_torch_takes_them() {
    let x = || tensor(DType::F32, &[2, 3]);
    for (path, taken) in [
        ("torch.add", true),
        ("torch.eq", true),
        ("torch.maximum", false),
        ("torch.ldexp", false),
        ("aten.eq.Tensor", false),
        ("aten.eq.Scalar", true),
        ("aten.mul.Tensor", true),
        ("operator.and_", true),
        ("Tensor.__radd__", true),
    ] {
        assert_eq!(takes(path, &[x(), Val::int(2)], &[]), taken, "{path}");
    }
    assert!(!takes("aten.mul.Scalar", &[x(), x()], &[]));
    assert!(takes("operator.sub", &[Val::int(2), x()], &[]));
    assert!(!takes("torch.clamp_min", &[x(), Val::str("a")], &[]));
}
