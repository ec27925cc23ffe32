//! Parameters, buffers and constants of an archive: a JSON table with names and strided views of raw entries.

use super::archive::{Archive, Payload};
use super::json::{Bad, get_list, get_member, get_text, read_bool, read_int};
use super::pickle::SavedTensor;
use super::pt2_scalars::read_dtype;
use crate::budget;
use crate::diag::{Code, Diagnostic, Diagnostics, nearest};
use crate::graph::{GraphModule, MAX_PART_DEPTH};
use crate::tensor::files::MAX_RANK;
use crate::tensor::{AlignedBytes, Storage, Tensor, byte_len};
use crate::types::{DType, Val};
use serde_json::Value;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// What the copies of views that are not contiguous may take in all: a fixed amount, and a multiple of the file's size. With a stride of
/// 0, a view of four bytes can have any size.
const COPIES_FIXED: usize = 1 << 28;
const COPIES_RATIO: usize = 16;

/// A row of a table.
enum Row {
    View(WeightView),
    /// A tensor of a Python class: the entry of its file.
    Saved(String),
}

/// The size in bytes that pickles may have in all before those that were read are forgotten.
const KEPT_PICKLES: usize = 1 << 22;

/// The location and layout of a tensor. Tied weights have equal views.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct WeightView {
    entry: String,
    /// The bytes of the entry that hold the tensor, if it is a file of its own.
    part: Option<Range<usize>>,
    dtype: DType,
    shape: Vec<usize>,
    strides: Vec<usize>,
    offset: usize,
}

/// The weights of one model in an archive.
pub(super) struct ArchiveWeights<'a> {
    archive: &'a Archive,
    rows: HashMap<String, Result<Row, Bad>>,
    /// Files of tensors of Python classes, by entry.
    saved: HashMap<String, SavedTensor>,
    /// The size in bytes of the pickles in `saved`.
    pickles: usize,
    loaded: HashMap<WeightView, Tensor>,
    /// The bytes of all copies.
    copied: usize,
}

impl<'a> ArchiveWeights<'a> {
    /// Reads the tables. If a table cannot be read, the error is reported, and its tensors count as missing.
    pub(super) fn open(archive: &'a Archive, model: &str, out: &mut Diagnostics) -> ArchiveWeights<'a> {
        let mut rows = HashMap::new();
        for folder in ["constants", "weights"] {
            let path = format!("data/{folder}/{model}_{folder}_config.json");
            if folder == "constants" && !archive.has_entry(&path) {
                continue;
            }
            match archive.read_json(&path) {
                Ok(v) => match v.get("config").and_then(Value::as_object) {
                    Some(table) => {
                        let prefix = format!("data/{folder}/");
                        rows.extend(table.iter().map(|(name, v)| (name.clone(), read_row(v, &prefix))));
                    }
                    None => out.push(Diagnostic::new(
                        Code::E0403,
                        format!("`{path}` in `{}` lacks the table `config`", archive.name),
                    )),
                },
                Err(d) => out.push(d),
            }
        }
        ArchiveWeights {
            archive,
            rows,
            saved: HashMap::new(),
            pickles: 0,
            loaded: HashMap::new(),
            copied: 0,
        }
    }

    /// Sets the value of every attribute of the module, and reports all failures.
    pub(super) fn fill_attributes(&mut self, module: &mut GraphModule, out: &mut Diagnostics) {
        let mut missing = vec![];
        for (name, attribute) in &mut module.attributes {
            match self
                .find_view(name)
                .and_then(|v| v.map(|v| self.load_view(&v)).transpose())
            {
                Ok(None) => missing.push(name.clone()),
                Ok(Some(t)) => {
                    if let Some(Val::Leaf(ty)) = &attribute.ty
                        && *ty != t.ty()
                    {
                        let title = format!("`{name}` is {} in the weights of `{}`", t.ty(), self.archive.name);
                        out.push(Diagnostic::new(Code::E0406, title).note(format!("the graph declares {ty}")));
                    }
                    attribute.ty = Some(Val::Leaf(t.ty()));
                    attribute.value = Some(t);
                }
                Err(WeightFailure::Archive(d)) => out.push(d),
                Err(WeightFailure::View(e)) => out.push(self.unreadable_weight(name, e)),
            }
        }
        if !missing.is_empty() {
            out.push(self.missing_weights(&missing));
        }
    }

    fn missing_weights(&self, names: &[Arc<str>]) -> Diagnostic {
        let list: Vec<String> = names.iter().take(20).map(|n| format!("`{n}`")).collect();
        let more = names.len().saturating_sub(20);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        let title = match names {
            [one] => format!("`{}` has no weight `{one}`", self.archive.name),
            _ => format!("`{}` lacks {} weights", self.archive.name, names.len()),
        };
        let mut d = Diagnostic::new(Code::E0401, title);
        if names.len() > 1 {
            d = d.note(format!("missing: {}{more}", list.join(", ")));
        }
        match nearest(&names[0], self.rows.keys().map(String::as_str)) {
            Some(near) => d.help(format!("there is a weight with a similar name: `{near}`")),
            None => d,
        }
    }

    fn unreadable_weight(&self, name: &str, why: Bad) -> Diagnostic {
        let (code, why) = why.into_code_and_text();
        Diagnostic::new(
            code,
            format!("the weight `{name}` of `{}` cannot be read", self.archive.name),
        )
        .note(why)
    }

    /// The view of a tensor: that of the name, or of an attribute of a tensor of a Python class (`weight.qdata`).
    fn find_view(&mut self, name: &str) -> Result<Option<WeightView>, WeightFailure> {
        let mut owner = name;
        for _ in 0..=MAX_PART_DEPTH {
            match self.rows.get(owner) {
                Some(Ok(Row::View(view))) if owner.len() == name.len() => return Ok(Some(view.clone())),
                Some(Ok(Row::Saved(entry))) => {
                    let entry = entry.clone();
                    return self
                        .find_saved(entry, name[owner.len()..].trim_start_matches('.'))
                        .map(Some);
                }
                Some(Err(e)) => return Err(WeightFailure::View(e.clone())),
                _ => {}
            }
            match owner.rsplit_once('.') {
                Some((outer, _)) => owner = outer,
                None => break,
            }
        }
        Ok(None)
    }

    /// The view of the tensor at `path` in an entry that is a file of `torch.save`.
    fn find_saved(&mut self, entry: String, path: &str) -> Result<WeightView, WeightFailure> {
        if !self.saved.contains_key(&entry) {
            let payload = self.archive.read_payload(&entry).map_err(WeightFailure::Archive)?;
            let saved = SavedTensor::read(self.archive.bytes(&payload)).map_err(WeightFailure::View)?;
            self.pickles += saved.pickle_len();
            if self.pickles > KEPT_PICKLES {
                self.saved.clear();
                self.pickles = saved.pickle_len();
            }
            self.saved.insert(entry.clone(), saved);
        }
        let view = self.saved[&entry].find_view(path).map_err(WeightFailure::View)?;
        let view = WeightView {
            entry,
            part: Some(view.storage),
            dtype: view.dtype,
            shape: view.shape,
            strides: view.strides,
            offset: view.offset,
        };
        view.check_rank().map_err(WeightFailure::View)?;
        Ok(view)
    }

    fn load_view(&mut self, view: &WeightView) -> Result<Tensor, WeightFailure> {
        if let Some(t) = self.loaded.get(view) {
            return Ok(t.clone());
        }
        let t = self.read_view(view)?;
        self.loaded.insert(view.clone(), t.clone());
        Ok(t)
    }

    fn read_view(&mut self, view: &WeightView) -> Result<Tensor, WeightFailure> {
        let len = byte_len(view.dtype, &view.shape).ok_or_else(|| WeightFailure::view("its size overflows"))?;
        if len == 0 {
            return Ok(Tensor::zeros(view.dtype, &view.shape));
        }
        let payload = self.archive.read_payload(&view.entry).map_err(WeightFailure::Archive)?;
        let whole = self.archive.bytes(&payload);
        let part = view.part.clone().unwrap_or(0..whole.len());
        let bytes = &whole[part.clone()];
        let start = view.check_bounds(bytes.len()).map_err(WeightFailure::View)?;
        let contiguous = view.is_contiguous();
        if let (Payload::Mapped { offset, .. }, true) = (&payload, contiguous) {
            let offset = offset + part.start + start;
            if offset.is_multiple_of(view.dtype.size()) {
                let storage = Storage::Mapped {
                    map: self.archive.map.clone(),
                    offset,
                    len,
                };
                return Ok(Tensor::from_storage(view.dtype, &view.shape, storage));
            }
        }
        let storage = if contiguous {
            AlignedBytes::from_slice(&bytes[start..start + len])
        } else {
            self.allow_copy(len)?;
            view.gather_elements(bytes, len)
        };
        Ok(Tensor::from_storage(view.dtype, &view.shape, Storage::Owned(storage)))
    }

    /// Counts the copy of a view; an error if the copies are too large for the archive or the memory.
    fn allow_copy(&mut self, len: usize) -> Result<(), WeightFailure> {
        self.copied = self.copied.saturating_add(len);
        let most = COPIES_FIXED.saturating_add(COPIES_RATIO.saturating_mul(self.archive.map.len()));
        if self.copied > most {
            let why = format!(
                "it is a view whose copy takes {len} bytes, and copies of views in an archive of this size may take {most} in all"
            );
            return Err(WeightFailure::view(&why));
        }
        match budget::allows_bytes(len) {
            true => Ok(()),
            false => Err(WeightFailure::view(&format!(
                "its {len} bytes exceed the available memory"
            ))),
        }
    }
}

enum WeightFailure {
    Archive(Diagnostic),
    View(Bad),
}

impl WeightFailure {
    fn view(why: &str) -> WeightFailure {
        WeightFailure::View(why.into())
    }
}

impl WeightView {
    fn check_rank(&self) -> Result<(), Bad> {
        let (sizes, strides) = (self.shape.len(), self.strides.len());
        if sizes > MAX_RANK {
            return Err(format!("it has {sizes} dimensions; tensors have at most {MAX_RANK}").into());
        }
        match sizes == strides {
            true => Ok(()),
            false => Err(format!("it has {sizes} sizes but {strides} strides").into()),
        }
    }

    /// The offset of the first byte, if the whole view is inside the `stored` bytes of the entry.
    fn check_bounds(&self, stored: usize) -> Result<usize, Bad> {
        let last = self
            .shape
            .iter()
            .zip(&self.strides)
            .try_fold(self.offset, |at, (&n, &s)| {
                // No size is zero here.
                at.checked_add((n - 1).checked_mul(s)?)
            });
        let end = last.and_then(|l| l.checked_add(1)?.checked_mul(self.dtype.size()));
        match end {
            Some(end) if end <= stored => Ok(self.offset * self.dtype.size()),
            _ => Err(format!(
                "it exceeds the {stored} bytes of `{}`: {} elements of {}, starting at element {}",
                self.entry,
                self.shape.iter().map(|n| n.to_string()).collect::<Vec<_>>().join("×"),
                self.dtype,
                self.offset
            )
            .into()),
        }
    }

    fn is_contiguous(&self) -> bool {
        let mut expected = 1usize;
        for (&n, &s) in self.shape.iter().zip(&self.strides).rev() {
            if n != 1 && s != expected {
                return false;
            }
            expected = expected.saturating_mul(n);
        }
        true
    }

    /// Copies the elements in row-major order. The view has been checked against `bytes`.
    fn gather_elements(&self, bytes: &[u8], len: usize) -> AlignedBytes {
        let size = self.dtype.size();
        let mut out = AlignedBytes::zeroed(len);
        let mut index = vec![0usize; self.shape.len()];
        let mut offset = self.offset;
        for chunk in out.bytes_mut().chunks_exact_mut(size) {
            chunk.copy_from_slice(&bytes[offset * size..(offset + 1) * size]);
            for d in (0..index.len()).rev() {
                index[d] += 1;
                offset += self.strides[d];
                if index[d] < self.shape[d] {
                    break;
                }
                offset -= self.strides[d] * self.shape[d];
                index[d] = 0;
            }
        }
        out
    }
}

fn read_row(v: &Value, prefix: &str) -> Result<Row, Bad> {
    let entry = format!("{prefix}{}", get_text(v, "path_name")?);
    if read_bool(get_member(v, "use_pickle")?)? {
        return Ok(Row::Saved(entry));
    }
    let meta = get_member(v, "tensor_meta")?;
    let sizes = |key: &str| -> Result<Vec<usize>, Bad> { get_list(meta, key)?.iter().map(read_count).collect() };
    if meta.get("layout").map(read_int).transpose()?.is_some_and(|l| l != 7) {
        return Err(Bad::unsupported("it is not a dense tensor"));
    }
    let view = WeightView {
        entry,
        part: None,
        dtype: read_dtype(get_member(meta, "dtype")?)?,
        shape: sizes("sizes")?,
        strides: sizes("strides")?,
        offset: read_count(get_member(meta, "storage_offset")?)?,
    };
    view.check_rank()?;
    Ok(Row::View(view))
}

fn read_count(v: &Value) -> Result<usize, Bad> {
    let n = read_int(get_member(v, "as_int")?)?;
    usize::try_from(n).map_err(|_| format!("{n} is not a size").into())
}
