//! `.safetensors`: eight bytes with the length of the header, the header (JSON: name to dtype, shape and offsets), and the
//! tensors' bytes without gaps.
//!
//! This reads the format itself rather than through the `safetensors` crate, because errors must name the tensor and
//! the numbers. The crate forms the header that is written.

use super::{Array, Contents, FileProblem, Problem, checked_sizes, io_problem, parse_json, whole_file};
use crate::fs::OutputFile;
use crate::tensor::Tensor;
use crate::types::DType;
use memmap2::Mmap;
use safetensors::tensor::{Metadata, TensorInfo};
use serde_json::{Map, Value};
use std::io::Write;
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
                let in_array = |p: Problem| (Some(i.name.to_owned()), p);
                let (shape, need) = checked_sizes(dtype, &i.shape).map_err(in_array)?;
                if need as u64 != i.end - i.begin {
                    return Err(in_array(Problem::Length {
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
        let in_array = |p: Problem| Err((Some(i.name.to_owned()), p));
        if i.end > have {
            return in_array(Problem::Truncated { need: i.end, have });
        }
        if i.begin < end {
            return in_array(Problem::Layout(format!(
                "its bytes from {} overlap another tensor",
                i.begin
            )));
        }
        if i.begin > end {
            return in_array(Problem::Layout(format!(
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

/// Writes tensors with distinct names, as `save_file` of Python's safetensors does: those with wide elements first, so that all are
/// aligned, then by name.
pub(super) fn write(to: &mut OutputFile, tensors: &[(&str, &Tensor)]) -> Result<(), FileProblem> {
    let mut all = vec![];
    for &(name, tensor) in tensors {
        let dtype = TYPES.iter().find(|t| t.1 == tensor.dtype());
        let dtype = dtype.ok_or((Some(name.to_owned()), Problem::Dtype(tensor.dtype())))?.2;
        all.push((dtype, name, tensor));
    }
    all.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    let header = header_of(&all).map_err(|e| whole_file(Problem::Header(e)))?;
    let length = (header.len() as u64).to_le_bytes();
    let mut parts = [&length[..], &header]
        .into_iter()
        .chain(all.iter().map(|(.., t)| t.bytes()));
    parts.try_for_each(|bytes| to.write_all(bytes)).map_err(io_problem)
}

/// The header as the crate forms it, padded so that the elements are aligned.
fn header_of(tensors: &[(safetensors::Dtype, &str, &Tensor)]) -> Result<Vec<u8>, String> {
    let mut end = 0;
    let infos = tensors.iter().map(|(dtype, name, tensor)| {
        let begin = end;
        end += tensor.bytes().len();
        let info = TensorInfo {
            dtype: *dtype,
            shape: tensor.shape().to_vec(),
            data_offsets: (begin, end),
        };
        (name.to_string(), info)
    });
    let metadata = Metadata::new(None, infos.collect()).map_err(|e| e.to_string())?;
    let mut header = serde_json::to_vec(&metadata).map_err(|e| e.to_string())?;
    header.resize(header.len().next_multiple_of(8), b' ');
    if header.len() as u64 > MAX_HEADER {
        return Err(format!("the names and shapes need more than {MAX_HEADER} bytes"));
    }
    Ok(header)
}
