//! Every case of `tests/data/*.json` (what PyTorch gives; see the generators beside them) against the op table: the
//! spelling resolves, the type rule's type is torch's, the interpreted value is torch's within torch's own tolerances,
//! and what torch refuses is refused with its message.

use fxc::interp;
use fxc::op::{self, Call};
use fxc::tensor::{Scalar, Tensor};
use fxc::types::{DType, Type, Val};
use serde_json::Value as Json;
use std::collections::HashMap;

type Inputs = HashMap<String, Tensor>;

fn number(v: &Json) -> Scalar {
    match v {
        Json::Bool(b) => Scalar::Bool(*b),
        Json::Number(n) if n.is_i64() => Scalar::Int(DType::I64, n.as_i64().expect("an int")),
        Json::Number(n) => Scalar::F64(n.as_f64().expect("a float")),
        Json::String(s) => Scalar::F64(s.parse().expect("nan or inf")),
        v => panic!("{v} is no number"),
    }
}

fn dtype(v: &Json) -> DType {
    DType::from_short(v.as_str().expect("a dtype")).expect("a dtype")
}

fn tensor(v: &Json) -> Tensor {
    let dims = v["s"].as_array().expect("a shape").iter();
    let shape: Vec<usize> = dims.map(|d| d.as_u64().expect("a size") as usize).collect();
    let values: Vec<Scalar> = v["v"].as_array().expect("values").iter().map(number).collect();
    Tensor::from_scalars(dtype(&v["t"]), &shape, &values)
}

fn value(v: &Json, inputs: &Inputs) -> Val<Tensor> {
    match v {
        Json::Null => Val::None,
        Json::Bool(b) => Val::Bool(*b),
        Json::Number(n) => Val::int(n.as_i64().expect("an int")),
        Json::String(s) => Val::str(s),
        Json::Array(items) => Val::List(items.iter().map(|v| value(v, inputs)).collect()),
        Json::Object(o) => match (o.get("in"), o.get("float"), o.get("dtype")) {
            (Some(name), ..) => Val::Leaf(inputs[name.as_str().expect("a name")].clone()),
            (_, Some(f), _) => Val::Float(number(f).to_f64()),
            (_, _, Some(d)) => Val::DType(dtype(d)),
            _ => Val::Leaf(tensor(v)),
        },
    }
}

/// Runs a case: the value, or what refuses it.
fn run(case: &Json, inputs: &Inputs) -> Result<(Type, Val<Tensor>), String> {
    let path = case["path"].as_str().expect("a path");
    let args: Vec<Val<Tensor>> = case["args"]
        .as_array()
        .expect("arguments")
        .iter()
        .map(|v| value(v, inputs))
        .collect();
    let kwargs: Vec<(&str, Val<Tensor>)> = match &case["kwargs"] {
        Json::Object(o) => o.iter().map(|(k, v)| (k.as_str(), value(v, inputs))).collect(),
        _ => vec![],
    };
    let ty = |v: &Val<Tensor>| v.map(Tensor::ty);
    let arg_types: Vec<Type> = args.iter().map(ty).collect();
    let kwarg_types: Vec<(&str, Type)> = kwargs.iter().map(|(k, v)| (*k, ty(v))).collect();
    let kwarg_types: Vec<(&str, &Type)> = kwarg_types.iter().map(|(k, v)| (*k, v)).collect();
    let kwargs: Vec<(&str, &Val<Tensor>)> = kwargs.iter().map(|(k, v)| (*k, v)).collect();
    let spelling = op::resolve(path, &arg_types, &kwarg_types).map_err(|e| match e {
        None => format!("`{path}` is not in the table"),
        Some((_, e)) => format!("`{path}` does not bind: {e:?}"),
    })?;
    let call: Call<Tensor> = spelling.apply(&args, &kwargs);
    let ty = (call.op.rule)(&call.map(Tensor::ty), &mut Default::default()).map_err(|e| e.title)?;
    let out = interp::evaluate(&call).map_err(|e| e.title)?;
    Ok((ty, out))
}

/// torch.testing.assert_close's tolerances: relative and absolute.
fn tolerance(d: DType) -> (f64, f64) {
    match d {
        DType::F16 => (1e-3, 1e-5),
        DType::BF16 => (1.6e-2, 1e-5),
        DType::F32 => (1.3e-6, 1e-5),
        DType::F64 => (1e-7, 1e-7),
        _ => (0.0, 0.0),
    }
}

fn differs(got: &Tensor, want: &Tensor) -> Option<String> {
    if got.dtype() != want.dtype() || got.shape() != want.shape() {
        return Some(format!("{} instead of {}", got.ty(), want.ty()));
    }
    let (rtol, atol) = tolerance(want.dtype());
    for i in 0..want.numel() {
        let (g, w) = (got.get(i).to_f64(), want.get(i).to_f64());
        let same = if g.is_nan() || w.is_nan() {
            g.is_nan() && w.is_nan()
        } else if w == 0.0 && g == 0.0 {
            g.is_sign_negative() == w.is_sign_negative()
        } else if want.dtype().is_int() {
            got.get(i).to_i64() == want.get(i).to_i64()
        } else {
            g == w || (g - w).abs() <= atol + rtol * w.abs()
        };
        if !same {
            return Some(format!("element {i} is {} instead of {}", got.get(i), want.get(i)));
        }
    }
    None
}

/// What is wrong with a case, if anything.
fn check(case: &Json, inputs: &Inputs) -> Option<String> {
    let result = run(case, inputs);
    if let Some(error) = case["error"].as_str() {
        return match result {
            Ok((ty, _)) => Some(format!("gives {ty} instead of the error {error:?}")),
            Err(e) if e == error => None,
            Err(e) => Some(format!("says {e:?}\n     instead of {error:?}")),
        };
    }
    let (ty, got) = match result {
        Ok(r) => r,
        Err(e) => return Some(e),
    };
    if ty.to_string() != got.map(Tensor::ty).to_string() {
        return Some(format!("the type rule says {ty}, the value is {}", got.map(Tensor::ty)));
    }
    let want: Vec<Tensor> = match &case["out"] {
        Json::Array(v) => v.iter().map(tensor).collect(),
        v => vec![tensor(v)],
    };
    let got = got.leaves();
    if got.len() != want.len() {
        return Some(format!("{} results instead of {}", got.len(), want.len()));
    }
    got.iter().zip(&want).find_map(|(g, w)| differs(g, w))
}

fn check_file(text: &str) {
    let data: Json = serde_json::from_str(text).expect("valid JSON");
    let inputs: Inputs = data["inputs"]
        .as_object()
        .expect("inputs")
        .iter()
        .map(|(n, v)| (n.clone(), tensor(v)))
        .collect();
    let cases = data["cases"].as_array().expect("cases");
    let mut failures = vec![];
    for case in cases {
        if let Some(what) = check(case, &inputs) {
            let call = format!(
                "{}({}) {}",
                case["path"].as_str().unwrap_or("?"),
                case["args"],
                case["kwargs"]
            );
            failures.push(format!("{call}\n     {what}"));
        }
    }
    let shown = failures.iter().take(400).cloned().collect::<Vec<_>>().join("\n");
    assert!(
        failures.is_empty(),
        "{} of {} cases differ from torch:\n{shown}",
        failures.len(),
        cases.len()
    );
}

#[test]
fn pointwise_and_creation_ops_agree_with_torch() {
    check_file(include_str!("data/pointwise.json"));
}

#[test]
fn reductions_and_scans_agree_with_torch() {
    check_file(include_str!("data/reductions.json"));
}
