//! Numbers, dtypes and tensors as the recorded answers hold them.

use fxc::internals::tensor::{Scalar, Tensor};
use fxc::types::DType;
use serde_json::Value as Json;

/// A number, with the names of those that JSON lacks.
pub fn number(v: &Json) -> Scalar {
    match v {
        Json::Bool(b) => Scalar::Bool(*b),
        Json::Number(n) if n.is_i64() => Scalar::Int(DType::I64, n.as_i64().expect("an int")),
        Json::Number(n) if n.is_u64() => Scalar::Int(DType::U64, n.as_u64().expect("an int") as i64),
        Json::Number(n) => Scalar::F64(n.as_f64().expect("a float")),
        Json::String(s) => Scalar::F64(s.parse().expect("nan or inf")),
        v => panic!("{v} is not a number"),
    }
}

/// A dtype by its short name.
pub fn dtype(v: &Json) -> DType {
    DType::from_short(v.as_str().expect("a dtype")).expect("a dtype")
}

/// A tensor: `{"t": dtype, "s": shape, "v": values}`.
pub fn tensor(v: &Json) -> Tensor {
    let dims = v["s"].as_array().expect("a shape").iter();
    let shape: Vec<usize> = dims.map(|d| d.as_u64().expect("a size") as usize).collect();
    let values: Vec<Scalar> = v["v"].as_array().expect("values").iter().map(number).collect();
    Tensor::from_scalars(dtype(&v["t"]), &shape, &values)
}
