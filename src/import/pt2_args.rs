//! Arguments of nodes in an archive: the union `Argument` of torch's schema.

use super::json::{Bad, boolean, float, get, int, items, optional, text, union};
use super::pt2_graph::{Context, Scope};
use crate::graph::Arg;
use crate::op::Literal;
use crate::types::{DType, Val};
use serde_json::Value;

/// How deep arguments may nest; the JSON reader has a limit of its own, in levels of JSON.
const MAX_DEPTH: usize = 64;

/// torch's `ScalarType`.
pub(super) fn dtype(v: &Value) -> Result<DType, Bad> {
    Ok(match int(v)? {
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
        31 => return Err("unsupported: the dtype float8_e4m3fnuz".into()),
        32 => return Err("unsupported: the dtype float8_e5m2fnuz".into()),
        33 => return Err("unsupported: the dtype float8_e8m0fnu".into()),
        n => return Err(format!("{n} is no dtype")),
    })
}

fn layout<T>(v: &Value) -> Result<Val<T>, Bad> {
    let name = match int(v)? {
        1 => "sparse_coo",
        2 => "sparse_csr",
        3 => "sparse_csc",
        4 => "sparse_bsr",
        5 => "sparse_bsc",
        6 => "_mkldnn",
        7 => "strided",
        n => return Err(format!("{n} is no layout")),
    };
    Ok(Val::TorchName(name.into()))
}

fn memory_format<T>(v: &Value) -> Result<Val<T>, Bad> {
    let name = match int(v)? {
        1 => "contiguous_format",
        2 => "channels_last",
        3 => "channels_last_3d",
        4 => "preserve_format",
        n => return Err(format!("{n} is no memory format")),
    };
    Ok(Val::TorchName(name.into()))
}

fn device<T>(v: &Value) -> Result<Val<T>, Bad> {
    let ty = text(v, "type")?;
    Ok(Val::Device(match optional(v, "index") {
        Some(i) => format!("{ty}:{}", int(i)?).into(),
        None => ty.into(),
    }))
}

/// The union `ConstantValue`: the value of an input that tracing fixed.
pub(super) fn constant(v: &Value) -> Result<Literal, Bad> {
    let (kind, v) = union(v)?;
    scalar(kind, v)?.ok_or_else(|| format!("`{kind}` is no constant"))
}

/// The kinds of arguments that refer to nothing.
fn scalar<T>(kind: &str, v: &Value) -> Result<Option<Val<T>>, Bad> {
    Ok(Some(match kind {
        "as_none" => Val::None,
        "as_int" => Val::int(int(v)?),
        "as_float" => Val::Float(float(v)?),
        "as_bool" => Val::Bool(boolean(v)?),
        "as_string" => Val::str(v.as_str().ok_or("expected a string")?),
        "as_scalar_type" => Val::DType(dtype(v)?),
        "as_layout" => layout(v)?,
        "as_memory_format" => memory_format(v)?,
        "as_device" => device(v)?,
        "as_complex" => Val::Complex(float(get(v, "real")?)?, float(get(v, "imag")?)?),
        "as_operator" => {
            let path = v.as_str().ok_or("expected a string")?;
            // In arguments torch prints an overload without `torch.ops.`.
            Val::Opaque(path.strip_prefix("torch.ops.").unwrap_or(path).into())
        }
        _ => return Ok(None),
    }))
}

fn seq(v: &Value, mut f: impl FnMut(&Value) -> Result<Arg, Bad>) -> Result<Arg, Bad> {
    items(v)?
        .iter()
        .map(&mut f)
        .collect::<Result<Vec<_>, _>>()
        .map(Val::List)
}

impl<'a> Scope<'a> {
    /// One argument. Graphs in it become graphs of the module.
    pub fn argument(&mut self, v: &'a Value, cx: &mut Context, depth: usize) -> Result<Arg, Bad> {
        if depth > MAX_DEPTH {
            return Err(format!("unsupported: arguments nested more than {MAX_DEPTH} deep"));
        }
        let (kind, v) = union(v)?;
        if let Some(value) = scalar(kind, v)? {
            return Ok(value);
        }
        match kind {
            "as_tensor" => self.tensor(v),
            "as_tensors" => seq(v, |v| self.tensor(v)),
            "as_nested_tensors" => seq(v, |v| seq(v, |v| self.tensor(v))),
            "as_optional_tensor" => self.optional_tensor(v),
            "as_optional_tensors" => seq(v, |v| self.optional_tensor(v)),
            "as_sym_int" | "as_sym_float" | "as_sym_bool" => self.symbolic(v),
            "as_sym_ints" | "as_sym_floats" | "as_sym_bools" => seq(v, |v| self.symbolic(v)),
            "as_ints" => seq(v, |v| int(v).map(Val::int)),
            "as_floats" => seq(v, |v| float(v).map(Val::Float)),
            "as_bools" => seq(v, |v| boolean(v).map(Val::Bool)),
            "as_strings" => seq(v, |v| Ok(Val::str(v.as_str().ok_or("expected a string")?))),
            "as_int_lists" => seq(v, |v| {
                let ints = items(v)?
                    .iter()
                    .map(|v| int(v).map(Val::int))
                    .collect::<Result<Vec<_>, _>>()?;
                Ok(Val::Tuple(ints))
            }),
            "as_float_lists" => seq(v, |v| seq(v, |v| float(v).map(Val::Float))),
            "as_string_to_argument" => {
                let object = v.as_object().ok_or("expected an object")?;
                let pairs = object
                    .iter()
                    .map(|(k, v)| Ok((Val::str(k), self.argument(v, cx, depth + 1)?)));
                Ok(Val::Dict(pairs.collect::<Result<Vec<_>, Bad>>()?))
            }
            "as_graph" => cx.graph(v),
            "as_custom_obj" => Err(format!(
                "unsupported: the custom object `{}`",
                text(v, "class_fqn").unwrap_or("of an unknown class")
            )),
            _ => Err(format!("unsupported: an argument of kind `{kind}`")),
        }
    }

    fn tensor(&self, v: &Value) -> Result<Arg, Bad> {
        self.value(text(v, "name")?).map(Val::Leaf)
    }

    fn optional_tensor(&self, v: &Value) -> Result<Arg, Bad> {
        match union(v)? {
            ("as_none", _) => Ok(Val::None),
            (_, v) => self.tensor(v),
        }
    }

    /// A symbolic number: the name of a node, or a constant.
    fn symbolic(&self, v: &Value) -> Result<Arg, Bad> {
        match union(v)? {
            ("as_name", name) => self.value(name.as_str().ok_or("expected a name")?).map(Val::Leaf),
            (kind, v) => scalar(kind, v)?.ok_or_else(|| format!("`{kind}` is no number")),
        }
    }
}
