//! `.safetensors`: eight bytes with the length of the header, the header (JSON: name to dtype, shape and offsets), and the
//! tensors' bytes without gaps.
//!
//! This reads the format itself rather than through the `safetensors` crate, because errors must name the tensor and
//! the numbers. The crate writes it.

use super::{Array, Contents, FileProblem, Problem, checked_sizes, parse_json, whole_file};
use crate::tensor::Tensor;
use crate::types::DType;
use memmap2::Mmap;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

/// The maximal length of a header, as in the format's own implementation.
const MAX_HEADER: u64 = 100_000_000;

/// The format's names of the element types.
const TYPES: &[(&str, DType, safetensors::Dtype)] = &[
    ("F64", DType::F64, safetensors::Dtype::F64),
    ("F32", DType::F32, safetensors::Dtype::F32),
    ("F16", DType::F16, safetensors::Dtype::F16),
    ("BF16", DType::BF16, safetensors::Dtype::BF16),
    ("I64", DType::I64, safetensors::Dtype::I64),
    ("I32", DType::I32, safetensors::Dtype::I32),
    ("I16", DType::I16, safetensors::Dtype::I16),
    ("I8", DType::I8, safetensors::Dtype::I8),
    ("U8", DType::U8, safetensors::Dtype::U8),
    ("BOOL", DType::B8, safetensors::Dtype::BOOL),
    ("U16", DType::U16, safetensors::Dtype::U16),
    ("U32", DType::U32, safetensors::Dtype::U32),
    ("U64", DType::U64, safetensors::Dtype::U64),
    ("F8_E4M3", DType::F8E4M3FN, safetensors::Dtype::F8_E4M3),
    ("F8_E5M2", DType::F8E5M2, safetensors::Dtype::F8_E5M2),
    ("F8_E4M3FNUZ", DType::F8E4M3FNUZ, safetensors::Dtype::F8_E4M3FNUZ),
    ("F8_E5M2FNUZ", DType::F8E5M2FNUZ, safetensors::Dtype::F8_E5M2FNUZ),
    ("F8_E8M0", DType::F8E8M0FNU, safetensors::Dtype::F8_E8M0),
];

/// One tensor of the header.
struct Info<'a> {
    name: &'a str,
    dtype: &'a str,
    shape: Vec<u64>,
    begin: u64,
    end: u64,
}

/// Reads a file's header.
pub(super) fn open(map: &Arc<Mmap>) -> Result<Contents, FileProblem> {
    let have = map.len() as u64;
    let Some(len) = map.get(..8) else {
        return Err(whole_file(Problem::Truncated { need: 8, have }));
    };
    let says = len.iter().rev().fold(0u64, |a, &b| a << 8 | b as u64);
    if says > have - 8 || says > MAX_HEADER {
        return Err(whole_file(Problem::HeaderLength { says, have: have - 8 }));
    }
    let data = 8 + says as usize;
    let header = |what: String| whole_file(Problem::Header(what));
    let text = std::str::from_utf8(&map[8..data]).map_err(|e| header(format!("it is not UTF-8: {e}")))?;
    let object: Map<String, Value> = parse_json(text.as_bytes()).map_err(|e| header(e.to_string()))?;
    let mut infos = vec![];
    for (name, value) in object.iter().filter(|(name, _)| *name != "__metadata__") {
        infos.push(parse_info(name, value).map_err(|what| (Some(name.clone()), Problem::Header(what)))?);
    }
    check_layout(&infos, have - data as u64)?;
    let mut file = Contents::default();
    for i in &infos {
        let array = match TYPES.iter().find(|t| t.0 == i.dtype) {
            None => Err(i.dtype.to_owned()),
            Some(&(_, dtype, _)) => {
                let at = |p: Problem| (Some(i.name.to_owned()), p);
                let (shape, need) = checked_sizes(dtype, &i.shape).map_err(at)?;
                if need as u64 != i.end - i.begin {
                    return Err(at(Problem::Length {
                        need: need as u64,
                        have: i.end - i.begin,
                    }));
                }
                Ok(Array::from_mapped(map, data + i.begin as usize, dtype, shape, need))
            }
        };
        file.insert(i.name.to_owned(), array);
    }
    Ok(file)
}

/// One tensor's description.
fn parse_info<'a>(name: &'a str, value: &'a Value) -> Result<Info<'a>, String> {
    let numbers = |key: &str| -> Result<Vec<u64>, String> {
        let list = value
            .get(key)
            .and_then(Value::as_array)
            .ok_or(format!("the list `{key}` is missing"))?;
        let sizes: Option<Vec<u64>> = list.iter().map(Value::as_u64).collect();
        sizes.ok_or(format!("`{key}` is not a list of sizes"))
    };
    let dtype = value
        .get("dtype")
        .and_then(Value::as_str)
        .ok_or("the string `dtype` is missing")?;
    let (shape, offsets) = (numbers("shape")?, numbers("data_offsets")?);
    match offsets[..] {
        [begin, end] if begin <= end => Ok(Info {
            name,
            dtype,
            shape,
            begin,
            end,
        }),
        _ => Err(format!("`data_offsets` {offsets:?} are not a valid range")),
    }
}

/// Checks that the tensors fill the `have` bytes after the header without gaps or overlaps.
fn check_layout(infos: &[Info], have: u64) -> Result<(), FileProblem> {
    let mut order: Vec<&Info> = infos.iter().collect();
    order.sort_by_key(|i| (i.begin, i.end));
    let mut end = 0;
    for i in order {
        let at = |p: Problem| Err((Some(i.name.to_owned()), p));
        if i.end > have {
            return at(Problem::Truncated { need: i.end, have });
        }
        if i.begin < end {
            return at(Problem::Layout(format!(
                "its bytes from {} overlap another tensor",
                i.begin
            )));
        }
        if i.begin > end {
            return at(Problem::Layout(format!(
                "bytes {end} to {} before it belong to no tensor",
                i.begin
            )));
        }
        end = i.end;
    }
    if end != have {
        return Err(whole_file(Problem::Layout(format!(
            "the last {} bytes belong to no tensor",
            have - end
        ))));
    }
    Ok(())
}

/// A tensor in the form that the crate writes.
struct SafetensorView<'a>(&'a Tensor, safetensors::Dtype);

impl safetensors::View for SafetensorView<'_> {
    fn dtype(&self) -> safetensors::Dtype {
        self.1
    }
    fn shape(&self) -> &[usize] {
        self.0.shape()
    }
    fn data(&self) -> Cow<'_, [u8]> {
        self.0.bytes().into()
    }
    fn data_len(&self) -> usize {
        self.0.bytes().len()
    }
}

/// Writes tensors with distinct names.
pub(super) fn write(path: &Path, tensors: &[(&str, &Tensor)]) -> Result<(), FileProblem> {
    let mut views = vec![];
    for &(name, tensor) in tensors {
        let at = |p: Problem| (Some(name.to_owned()), p);
        let dtype = TYPES
            .iter()
            .find(|t| t.1 == tensor.dtype())
            .ok_or(at(Problem::Dtype(tensor.dtype())))?
            .2;
        views.push((name, SafetensorView(tensor, dtype)));
    }
    safetensors::serialize_to_file(views, None, path).map_err(|e| whole_file(Problem::Io(e.to_string())))
}
