//! Every case of `tests/data/{views,index,nn}.json` (what PyTorch gives; see `make_nn.py`) against the op table: the
//! spelling resolves, the type rule's type is the value's, the interpreted value is torch's, what torch refuses is
//! refused, and the type rule holds for symbolic sizes too.

use fxc::interp;
use fxc::op::{self, Call, Spelling};
use fxc::tensor::{Scalar, Tensor};
use fxc::types::{DType, Dim, TensorType, Type, Val};
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
    let all = |v: &Json| -> Vec<Val<Tensor>> {
        let items = v.as_array().expect("a list");
        items.iter().map(|v| value(v, inputs)).collect()
    };
    match v {
        Json::Null => Val::None,
        Json::Bool(b) => Val::Bool(*b),
        Json::Number(n) => Val::int(n.as_i64().expect("an int")),
        Json::String(s) => Val::str(s),
        Json::Array(_) => Val::List(all(v)),
        Json::Object(o) => match o.iter().next().map(|(k, v)| (k.as_str(), v)) {
            Some(("in", name)) => Val::Leaf(inputs[name.as_str().expect("a name")].clone()),
            Some(("float", f)) => Val::Float(number(f).to_f64()),
            Some(("dtype", d)) => Val::DType(dtype(d)),
            Some(("tuple", v)) => Val::Tuple(all(v)),
            Some(("slice", v)) => Val::Slice(Box::new(all(v).try_into().expect("three parts"))),
            Some(("ellipsis", _)) => Val::Ellipsis,
            Some(("device", d)) => Val::Device(d.as_str().expect("a device").into()),
            Some(("name", n)) => Val::TorchName(n.as_str().expect("a name").into()),
            _ => Val::Leaf(tensor(v)),
        },
    }
}

/// The case's call, with its spelling; or why it does not resolve.
fn resolve(case: &Json, inputs: &Inputs) -> Result<(Spelling, Call<Tensor>), String> {
    let path = case["path"].as_str().expect("a path");
    let items = case["args"].as_array().expect("arguments");
    let args: Vec<Val<Tensor>> = items.iter().map(|v| value(v, inputs)).collect();
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
    let call = spelling.apply(&args, &kwargs);
    Ok((spelling, call))
}

/// Relative to the largest magnitude of the result: sums are taken in another order than torch's.
fn tolerance(d: DType) -> f64 {
    match d {
        DType::F16 => 2e-3,
        DType::BF16 => 1.6e-2,
        DType::F32 => 1e-5,
        DType::F64 => 1e-7,
        _ => 0.0,
    }
}

fn differs(got: &Tensor, want: &Tensor) -> Option<String> {
    if got.dtype() != want.dtype() || got.shape() != want.shape() {
        return Some(format!("{} instead of {}", got.ty(), want.ty()));
    }
    let finite = (0..want.numel())
        .map(|i| want.get(i).to_f64().abs())
        .filter(|x| x.is_finite());
    let largest = finite.fold(0.0, f64::max);
    let limit = tolerance(want.dtype()) * largest;
    for i in 0..want.numel() {
        let (g, w) = (got.get(i).to_f64(), want.get(i).to_f64());
        let same = if g.is_nan() || w.is_nan() {
            g.is_nan() && w.is_nan()
        } else if want.dtype().is_int() {
            got.get(i).to_i64() == want.get(i).to_i64()
        } else {
            g == w || (g - w).abs() <= limit
        };
        if !same {
            return Some(format!("element {i} is {} instead of {}", got.get(i), want.get(i)));
        }
    }
    None
}

fn differ(got: &Val<Tensor>, want: &Val<Tensor>) -> Option<String> {
    match (got, want) {
        (Val::Leaf(g), Val::Leaf(w)) => differs(g, w),
        (Val::Tuple(g) | Val::List(g), Val::Tuple(w) | Val::List(w)) if g.len() == w.len() => {
            g.iter().zip(w).find_map(|(g, w)| differ(g, w))
        }
        _ if got == want => None,
        _ => Some(format!("{got:?} instead of {want:?}")),
    }
}

/// Python's list of results, whatever it is called here.
fn flat(v: Val<Tensor>) -> Val<Tensor> {
    match v {
        Val::Tuple(v) => Val::List(v),
        v => v,
    }
}

/// Types that are equal up to sizes that only run time knows.
fn fits(rule: &Type, value: &Type) -> bool {
    match (rule, value) {
        (Val::Leaf(a), Val::Leaf(b)) => {
            let same = |(x, y): (&Dim, &Dim)| x == y || *x == Dim::Unknown;
            a.dtype == b.dtype
                && match (&a.shape, &b.shape) {
                    (Some(x), Some(y)) => x.len() == y.len() && x.iter().zip(y).all(same),
                    _ => a.shape.is_none(),
                }
        }
        (Val::Tuple(a), Val::Tuple(b)) | (Val::List(a), Val::List(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| fits(a, b))
        }
        (Val::List(_) | Val::Unknown, _) => true,
        (Val::Any(_), _) => true,
        _ => rule == value,
    }
}

/// The rule with every size of the tensors a variable (equal sizes the same one): where it gives a type, the type with
/// the sizes put in is the known one.
fn symbolic(call: &Call<Tensor>, known: &Type) -> Option<String> {
    let name = |n: &Dim| match n {
        Dim::Const(c) if *c > 1 => Dim::var(&format!("n{c}")),
        d => d.clone(),
    };
    let types = call.map(|t| TensorType {
        dtype: t.dtype(),
        shape: t.ty().shape.map(|s| s.iter().map(name).collect()),
    });
    let Ok(ty) = (call.op.rule)(&types, &mut Default::default()) else {
        return None;
    };
    let size = |v: &str| v.strip_prefix('n').and_then(|n| n.parse::<i64>().ok()).map(Dim::Const);
    let put = |t: &TensorType| TensorType {
        dtype: t.dtype,
        shape: t
            .shape
            .as_ref()
            .map(|s| s.iter().map(|d| d.substitute(&size)).collect()),
    };
    let fixed: Result<Type, ()> = ty.try_map(&mut |t| Ok(Val::Leaf(put(t))));
    let fixed = substitute_ints(&fixed.expect("no errors"), &size);
    // Bounds of slices count as within symbolic dims, which these cases' are not.
    if matches!(
        call.op.name,
        "slice" | "getitem" | "tensor_split_at" | "split_with_sizes"
    ) {
        return None;
    }
    (!fits(&fixed, known)).then(|| format!("with symbolic sizes the rule says {ty}, known it is {known}"))
}

fn substitute_ints(v: &Type, size: &dyn Fn(&str) -> Option<Dim>) -> Type {
    match v {
        Val::Int(d) => Val::Int(d.substitute(size)),
        Val::Tuple(v) => Val::Tuple(v.iter().map(|v| substitute_ints(v, size)).collect()),
        Val::List(v) => Val::List(v.iter().map(|v| substitute_ints(v, size)).collect()),
        v => v.clone(),
    }
}

/// What is wrong with a case, if anything.
fn check(case: &Json, inputs: &Inputs, texts: &mut [usize; 2]) -> Option<String> {
    let run = resolve(case, inputs).and_then(|(_, call)| {
        let ty = (call.op.rule)(&call.map(Tensor::ty), &mut Default::default()).map_err(|e| e.title)?;
        let out = interp::evaluate(&call).map_err(|e| e.title)?;
        Ok((call, ty, out))
    });
    if let Some(error) = case["error"].as_str() {
        texts[1] += 1;
        return match run {
            Ok((_, _, v)) => Some(format!("gives {} instead of the error {error:?}", v.map(Tensor::ty))),
            Err(e) => {
                texts[0] += (e == error) as usize;
                if std::env::var("SHOW_ERRORS").is_ok() && e != error {
                    println!("{}: {e:?}\n     torch: {error:?}", case["path"]);
                }
                None
            }
        };
    }
    let (call, ty, got) = match run {
        Ok(r) => r,
        Err(e) => return Some(e),
    };
    let got_ty = got.map(Tensor::ty);
    if !fits(&ty, &got_ty) {
        return Some(format!("the type rule says {ty}, the value is {got_ty}"));
    }
    let (got, want) = (flat(got), flat(value(&case["out"], inputs)));
    differ(&got, &want).or_else(|| symbolic(&call, &got_ty))
}

/// At least this part of the refusals says what torch says.
const SAME_TEXTS: f64 = 0.5;

fn check_file(text: &str) {
    let data: Json = serde_json::from_str(text).expect("valid JSON");
    let named = data["inputs"].as_object().expect("inputs").iter();
    let inputs: Inputs = named.map(|(n, v)| (n.clone(), tensor(v))).collect();
    let cases = data["cases"].as_array().expect("cases");
    let (mut failures, mut texts) = (vec![], [0, 0]);
    for case in cases {
        if let Some(what) = check(case, &inputs, &mut texts) {
            let path = case["path"].as_str().unwrap_or("?");
            let mut call = format!("{path}({}) {}", case["args"], case["kwargs"]);
            if let Some((end, _)) = call.char_indices().nth(300) {
                call.truncate(end);
            }
            failures.push(format!("{call}\n     {what}"));
        }
    }
    let shown = failures.iter().take(100).cloned().collect::<Vec<_>>().join("\n");
    assert!(
        failures.is_empty(),
        "{} of {} cases differ from torch:\n{shown}",
        failures.len(),
        cases.len()
    );
    println!("{} of {} refusals in torch's words", texts[0], texts[1]);
    assert!(
        texts[0] as f64 >= SAME_TEXTS * texts[1] as f64,
        "only {} of {} refusals in torch's words",
        texts[0],
        texts[1]
    );
}

#[test]
fn views_agree_with_torch() {
    check_file(include_str!("data/views.json"));
}

#[test]
fn indexing_and_joining_agree_with_torch() {
    check_file(include_str!("data/index.json"));
}

#[test]
fn products_and_nn_ops_agree_with_torch() {
    check_file(include_str!("data/nn.json"));
}
