//! The intended meaning of bare names from other languages and libraries.

use super::ast::ValueKind;
use crate::diag::nearest;
use crate::types::DType;

/// A constant of Python, numpy, JSON or C: its FXIR spelling and its value.
pub(super) fn foreign_constant(name: &str) -> Option<(String, ValueKind)> {
    let module = ["math.", "np.", "numpy.", "torch.", "float.", "cmath."];
    let bare = module.iter().find_map(|m| name.strip_prefix(m));
    let number = |x: f64| Some((crate::types::write_float(x), ValueKind::Float(x)));
    match (bare.unwrap_or(name).to_ascii_lowercase().as_str(), bare.is_some()) {
        ("true", false) => Some(("True".into(), ValueKind::Bool(true))),
        ("false", false) => Some(("False".into(), ValueKind::Bool(false))),
        ("none" | "null" | "nil" | "undefined" | "nullptr", false) => Some(("None".into(), ValueKind::None)),
        ("nan", _) => Some(("float(\"nan\")".into(), ValueKind::Float(f64::NAN))),
        ("inf" | "infinity" | "infty", _) => Some(("float(\"inf\")".into(), ValueKind::Float(f64::INFINITY))),
        ("pi", true) => number(std::f64::consts::PI),
        ("e", true) => number(std::f64::consts::E),
        ("tau", true) => number(std::f64::consts::TAU),
        _ => None,
    }
}

/// The dtype that a misspelt name probably means, in torch's spelling.
pub(super) fn near_dtype(name: &str) -> Option<String> {
    let bare = name.rsplit('.').next().unwrap_or(name);
    let names = || DType::all().map(DType::torch_name);
    nearest(bare, names()).map(|n| format!("torch.{n}"))
}

/// The dtype that a name of numpy or Python means, in torch's spelling.
pub(super) fn foreign_dtype(name: &str) -> Option<String> {
    let bare = ["np.", "numpy.", "jnp.", "tf.", "torch."]
        .iter()
        .find_map(|m| name.strip_prefix(m));
    let dtype = match bare.unwrap_or(name) {
        // Python's own types, as torch interprets them.
        "float" if bare.is_none() => DType::F64,
        "int" if bare.is_none() => DType::I64,
        "float_" | "double" => DType::F64,
        "int_" | "long" | "longlong" => DType::I64,
        "bool_" => DType::from_torch("bool")?,
        other => DType::from_torch(other)?,
    };
    Some(format!("torch.{}", dtype.torch_name()))
}

/// Every dtype, in torch's spelling.
pub(super) fn torch_dtypes() -> impl Iterator<Item = String> {
    DType::all().map(|d| format!("torch.{}", d.torch_name()))
}
