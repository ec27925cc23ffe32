//! Tensors in files of `torch.save`: a zip archive with a pickle, which refers to raw storages by number.
//!
//! `torch.export.save` writes tensors of Python classes in this way, for example torchao's quantized weights. Such a tensor has no
//! storage of its own; its attributes are tensors, and graphs read them with `export.access_subclass_inner_tensor`.

mod machine;

use super::json::Bad;
use crate::tensor::files::open_zip;
use crate::types::DType;
use machine::{Id, Object, Pickle};
use std::collections::HashMap;
use std::ops::Range;
use zip::CompressionMethod;

/// The maximum size of a pickle, in bytes. That of a tensor has less than ten thousand, and its objects take up to 50 times as much.
const MAX_PICKLE: usize = 1 << 16;
/// The longest name of an attribute, in bytes.
const MAX_NAME: usize = 128;

/// The entry with the pickle.
const PICKLE: &str = "data.pkl";

/// How many calls of functions that rebuild a tensor may contain each other, for example that of a parameter.
const MAX_CALLS: usize = 8;

/// A file of `torch.save` that holds one tensor.
pub(super) struct SavedTensor {
    pickle: Pickle,
    /// The items of the pickle's dicts, by dict and name.
    items: HashMap<(Id, String), Id>,
    /// The bytes of the file's entries, by their names without the common folder.
    entries: HashMap<String, Range<usize>>,
}

/// A strided view of bytes of the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SavedView {
    /// The bytes of the storage in the file.
    pub storage: Range<usize>,
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub strides: Vec<usize>,
    /// The first element, in elements.
    pub offset: usize,
}

impl SavedTensor {
    /// Reads the pickle and the directory of a file. Entries that are compressed, which torch does not write, count as missing.
    pub(super) fn read(bytes: &[u8]) -> Result<SavedTensor, Bad> {
        let mut zip = open_zip(bytes).map_err(|e| format!("it is not a file of `torch.save`: {e}"))?;
        let mut entries = HashMap::new();
        for index in 0..zip.len() {
            let Ok(file) = zip.by_index_raw(index) else { continue };
            let (Ok(name), Some(start)) = (file.name(), file.data_start()) else {
                continue;
            };
            let plain = file.compression() == CompressionMethod::Stored && !file.encrypted();
            let (start, end) = (start as usize, start.saturating_add(file.size()));
            if plain && end <= bytes.len() as u64 {
                let inner = name.split_once('/').map_or(&*name, |(_, rest)| rest);
                entries.entry(inner.to_string()).or_insert(start..end as usize);
            }
        }
        if entries.get("byteorder").is_some_and(|r| &bytes[r.clone()] != b"little") {
            return Err(Bad::unsupported("it was saved on a big-endian machine"));
        }
        let pickle = entries.get(PICKLE).ok_or("its file has no entry `data.pkl`")?;
        if pickle.len() > MAX_PICKLE {
            return Err(Bad::unsupported(format!("its pickle exceeds {MAX_PICKLE} bytes")));
        }
        let pickle = Pickle::read(&bytes[pickle.clone()])?;
        let items = named_items(&pickle);
        Ok(SavedTensor { pickle, items, entries })
    }

    /// The size of the pickle in bytes.
    pub(super) fn pickle_len(&self) -> usize {
        self.entries.get(PICKLE).map_or(0, |r| r.len())
    }

    /// The tensor itself if `path` is empty, or else the attribute of an attribute … at the path: `qdata`, `a.b`.
    pub(super) fn find_view(&self, path: &str) -> Result<SavedView, Bad> {
        let mut at = self.pickle.root();
        for attribute in path.split('.').filter(|a| !a.is_empty()) {
            at = self.attribute(at, attribute)?;
        }
        let (function, args) = self.tensor_call(at)?;
        match function {
            "torch._utils._rebuild_tensor_v2" | "torch._utils._rebuild_tensor_v3" => self.read_view(args),
            WRAPPER => {
                let class = args.first().map_or("an unknown class", |c| self.name(*c));
                let what =
                    format!("it is a tensor of the Python class `{class}`, which only its own code can compute with");
                Err(Bad::unsupported(what))
            }
            other => Err(Bad::unsupported(format!(
                "it is a Python object that `{other}` creates"
            ))),
        }
    }

    /// The attribute of a tensor of a Python class.
    fn attribute(&self, tensor: Id, name: &str) -> Result<Id, Bad> {
        let (_, args) = self.call(tensor)?;
        // `_rebuild_from_type_v2(function, class, args, state)`; the state may be a pair of attributes and slots.
        let state = args.get(3).and_then(|s| match self.pickle.get(*s) {
            Object::Tuple(pair) => pair.first(),
            _ => Some(s),
        });
        let found = state.and_then(|dict| self.items.get(&(*dict, name.to_string())));
        found
            .copied()
            .ok_or_else(|| format!("it has no attribute `{name}`").into())
    }

    /// The innermost function that rebuilds a tensor, and its arguments.
    fn tensor_call(&self, mut at: Id) -> Result<(&str, &[Id]), Bad> {
        for _ in 0..MAX_CALLS {
            let (function, args) = self.call(at)?;
            match (function, args) {
                // The data of a parameter.
                ("torch._utils._rebuild_parameter", [data, ..]) => at = *data,
                ("torch._tensor._rebuild_from_type_v2", [inner, _, args, ..]) => {
                    return Ok((self.name(*inner), self.elements(*args)));
                }
                _ => return Ok((function, args)),
            }
        }
        Err("its pickle nests calls too deeply".into())
    }

    fn call(&self, at: Id) -> Result<(&str, &[Id]), Bad> {
        match self.pickle.get(at) {
            Object::Call { function, args } => Ok((self.name(*function), self.elements(*args))),
            _ => Err(Bad::unsupported("it is not a tensor")),
        }
    }

    /// The name of a class or function.
    fn name(&self, at: Id) -> &str {
        match self.pickle.get(at) {
            Object::Global(name) => name,
            _ => "an object",
        }
    }

    fn elements(&self, at: Id) -> &[Id] {
        match self.pickle.get(at) {
            Object::Tuple(items) | Object::List(items) => items,
            _ => &[],
        }
    }

    /// Reads `(storage, offset, sizes, strides, requires_grad, hooks, …)`. Version 3 adds the dtype; version 2 adds flags, if any is set.
    fn read_view(&self, args: &[Id]) -> Result<SavedView, Bad> {
        let [storage, offset, sizes, strides, ..] = args else {
            return Err("its pickle lacks arguments".into());
        };
        let sizes_of =
            |list: &Id| -> Result<Vec<usize>, Bad> { self.elements(*list).iter().map(|n| self.size(*n)).collect() };
        let Object::Persistent(key) = self.pickle.get(*storage) else {
            return Err("its pickle lacks a storage".into());
        };
        let [_, class, key, ..] = self.elements(*key) else {
            return Err("its pickle does not describe the storage".into());
        };
        let Object::Text(key) = self.pickle.get(*key) else {
            return Err("its pickle does not number the storage".into());
        };
        let dtype = match args.get(6).map(|a| (self.pickle.get(*a), self.name(*a))) {
            Some((Object::Global(_), dtype)) => dtype,
            Some((Object::Dict(marks), _)) if !marks.is_empty() => {
                return Err(Bad::unsupported("it is conjugated or negated when it is read"));
            }
            _ => self.name(*class),
        };
        let entry = format!("data/{key}");
        Ok(SavedView {
            storage: self
                .entries
                .get(&entry)
                .cloned()
                .ok_or_else(|| format!("its file has no entry `{entry}`"))?,
            dtype: parse_dtype(dtype)?,
            shape: sizes_of(sizes)?,
            strides: sizes_of(strides)?,
            offset: self.size(*offset)?,
        })
    }

    fn size(&self, at: Id) -> Result<usize, Bad> {
        match self.pickle.get(at) {
            Object::Int(n) if *n >= 0 => usize::try_from(*n).map_err(|_| format!("{n} is not a size").into()),
            _ => Err("its pickle has a size that is not a number".into()),
        }
    }
}

/// The items of all dicts whose keys are text. Of equal keys, the last one counts.
fn named_items(pickle: &Pickle) -> HashMap<(Id, String), Id> {
    let mut named = HashMap::new();
    for (dict, items) in pickle.dicts() {
        for (key, value) in items {
            if let Object::Text(name) = pickle.get(*key)
                && name.len() <= MAX_NAME
            {
                named.insert((dict, name.clone()), *value);
            }
        }
    }
    named
}

/// The function that rebuilds a tensor without storage.
const WRAPPER: &str = "torch._utils._rebuild_wrapper_subclass";

/// The dtype of a class of storages, or of a dtype's name: `torch.CharStorage`, `torch.float8_e4m3fn`.
fn parse_dtype(name: &str) -> Result<DType, Bad> {
    let short = name.strip_prefix("torch.").unwrap_or(name);
    Ok(match short {
        "FloatStorage" => DType::F32,
        "DoubleStorage" => DType::F64,
        "HalfStorage" => DType::F16,
        "BFloat16Storage" => DType::BF16,
        "CharStorage" => DType::I8,
        "ByteStorage" => DType::U8,
        "ShortStorage" => DType::I16,
        "IntStorage" => DType::I32,
        "LongStorage" => DType::I64,
        "BoolStorage" => DType::B8,
        "ComplexFloatStorage" => DType::C64,
        "ComplexDoubleStorage" => DType::C128,
        _ => return DType::from_torch(name).ok_or_else(|| Bad::unsupported(format!("its elements are `{name}`"))),
    })
}
