//! Literal values in an archive: numbers, strings, dtypes, layouts, devices.

use super::json::{Bad, get_member, get_optional, get_text, read_bool, read_float, read_int, read_union};
use crate::op::Literal;
use crate::types::{DType, Val};
use serde_json::Value;

/// Decodes torch's `ScalarType`.
pub(super) fn read_dtype(v: &Value) -> Result<DType, Bad> {
    Ok(match read_int(v)? {
        1 => DType::U8,
        2 => DType::I8,
        3 => DType::I16,
        4 => DType::I32,
        5 => DType::I64,
        6 => DType::F16,
        7 => DType::F32,
        8 => DType::F64,
        9 => DType::C32,
        10 => DType::C64,
        11 => DType::C128,
        12 => DType::B8,
        13 => DType::BF16,
        28 => DType::U16,
        29 => DType::F8E4M3FN,
        30 => DType::F8E5M2,
        34 => DType::U32,
        35 => DType::U64,
        31 => DType::F8E4M3FNUZ,
        32 => DType::F8E5M2FNUZ,
        33 => DType::F8E8M0FNU,
        n => return Err(format!("{n} is not a dtype").into()),
    })
}

fn read_layout<T>(v: &Value) -> Result<Val<T>, Bad> {
    let name = match read_int(v)? {
        1 => "sparse_coo",
        2 => "sparse_csr",
        3 => "sparse_csc",
        4 => "sparse_bsr",
        5 => "sparse_bsc",
        6 => "_mkldnn",
        7 => "strided",
        n => return Err(format!("{n} is not a layout").into()),
    };
    Ok(Val::TorchName(name.into()))
}

fn read_memory_format<T>(v: &Value) -> Result<Val<T>, Bad> {
    let name = match read_int(v)? {
        1 => "contiguous_format",
        2 => "channels_last",
        3 => "channels_last_3d",
        4 => "preserve_format",
        n => return Err(format!("{n} is not a memory format").into()),
    };
    Ok(Val::TorchName(name.into()))
}

fn read_device<T>(v: &Value) -> Result<Val<T>, Bad> {
    let ty = get_text(v, "type")?;
    Ok(Val::Device(match get_optional(v, "index") {
        Some(i) => format!("{ty}:{}", read_int(i)?).into(),
        None => ty.into(),
    }))
}

/// Reads the union `ConstantValue`: the value of an input that tracing specialised to a constant.
pub(super) fn read_constant(v: &Value) -> Result<Literal, Bad> {
    let (kind, v) = read_union(v)?;
    read_scalar(kind, v)?.ok_or_else(|| format!("`{kind}` is not a constant").into())
}

/// Reads an argument if its kind is a literal.
pub(super) fn read_scalar<T>(kind: &str, v: &Value) -> Result<Option<Val<T>>, Bad> {
    Ok(Some(match kind {
        "as_none" => Val::None,
        "as_int" => Val::int(read_int(v)?),
        "as_float" => Val::Float(read_float(v)?),
        "as_bool" => Val::Bool(read_bool(v)?),
        "as_string" => Val::str(v.as_str().ok_or("expected a string")?),
        "as_scalar_type" => Val::DType(read_dtype(v)?),
        "as_layout" => read_layout(v)?,
        "as_memory_format" => read_memory_format(v)?,
        "as_device" => read_device(v)?,
        "as_complex" => Val::Complex(read_float(get_member(v, "real")?)?, read_float(get_member(v, "imag")?)?),
        "as_operator" => {
            let path = v.as_str().ok_or("expected a string")?;
            // In arguments, torch prints overloads without `torch.ops.`.
            Val::Opaque(path.strip_prefix("torch.ops.").unwrap_or(path).into())
        }
        _ => return Ok(None),
    }))
}
