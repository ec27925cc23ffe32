//! The recorded cases: tensors and arguments as JSON, and the calls they make.

use super::json::{dtype, number, tensor};
use fxc::internals::op::{self, Call};
use fxc::internals::tensor::Tensor;
use fxc::interp;
use fxc::types::{Type, Val};
use serde_json::Value as Json;
use std::collections::HashMap;

/// The file's tensors by name.
pub type Inputs = HashMap<String, Tensor>;

/// An argument or result.
pub fn value(v: &Json, inputs: &Inputs) -> Val<Tensor> {
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

/// The case's call; or why it does not resolve.
pub fn resolve(case: &Json, inputs: &Inputs) -> Result<Call<Tensor>, String> {
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
    spelling.check_demands(&arg_types, &kwarg_types).map_err(|e| e.title)?;
    Ok(spelling.apply(&args, &kwargs))
}

/// A case that ran: its call, what the type rule says of it, and its value.
pub struct Ran {
    pub call: Call<Tensor>,
    pub rule: Type,
    pub value: Val<Tensor>,
}

/// Runs a case; or what refuses it.
pub fn run(case: &Json, inputs: &Inputs) -> Result<Ran, String> {
    let call = resolve(case, inputs)?;
    let rule = (call.op.rule)(&call.map(Tensor::ty), &mut Default::default()).map_err(|e| e.title)?;
    let value = interp::evaluate_call(&call).map_err(|e| e.title)?;
    Ok(Ran { call, rule, value })
}

/// Whether the tensors agree: dtype, shape, NaN where there is NaN, integers equal, floats as `close` says of the value and
/// the wanted one; else how they do not.
pub fn differs(got: &Tensor, want: &Tensor, close: impl Fn(f64, f64) -> bool) -> Option<String> {
    if got.dtype() != want.dtype() || got.shape() != want.shape() {
        return Some(format!("{} instead of {}", got.ty(), want.ty()));
    }
    for i in 0..want.numel() {
        let (g, w) = (got.get(i).to_f64(), want.get(i).to_f64());
        let same = if g.is_nan() || w.is_nan() {
            g.is_nan() && w.is_nan()
        } else if want.dtype().is_int() {
            got.get(i).to_i64() == want.get(i).to_i64()
        } else {
            close(g, w)
        };
        if !same {
            return Some(format!("element {i} is {} instead of {}", got.get(i), want.get(i)));
        }
    }
    None
}

/// Checks every case of a file: none may fail. `check` says what is wrong with one.
pub fn check_file(text: &str, mut check: impl FnMut(&Json, &Inputs) -> Option<String>) {
    let data: Json = serde_json::from_str(text).expect("valid JSON");
    let named = data["inputs"].as_object().expect("inputs").iter();
    let inputs: Inputs = named.map(|(n, v)| (n.clone(), tensor(v))).collect();
    let cases = data["cases"].as_array().expect("cases");
    assert!(!cases.is_empty(), "a file without cases");
    let mut failures = vec![];
    for case in cases {
        if let Some(what) = check(case, &inputs) {
            let path = case["path"].as_str().unwrap_or("?");
            let mut call = format!("{path}({}) {}", case["args"], case["kwargs"]);
            if let Some((end, _)) = call.char_indices().nth(300) {
                call.truncate(end);
            }
            failures.push(format!("{call}\n     {what}"));
        }
    }
    let shown = failures.iter().take(100).cloned().collect::<Vec<_>>().join("\n");
    let (wrong, all) = (failures.len(), cases.len());
    assert!(
        failures.is_empty(),
        "{wrong} of {all} cases differ from torch:\n{shown}"
    );
}
