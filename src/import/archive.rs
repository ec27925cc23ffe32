//! Memory-mapped zip archives.

use super::parts::GraphParts;
use crate::budget;
use crate::diag::{Code, Diagnostic};
use crate::tensor::files::{self, Bytes, EntrySizes, FileKind, HEAD, MappedArchive, parse_json};
use crate::tensor::map_file;
use memmap2::Mmap;
use serde_json::Value;
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use zip::CompressionMethod;

/// The maximum size of a document in an archive, uncompressed.
const MAX_TEXT: u64 = 1 << 30;
/// The maximum size of a compressed tensor, uncompressed.
const MAX_BLOB: u64 = 1 << 33;

/// The maximum size of a pickle that is decompressed to identify it.
const MAX_PICKLE: u64 = 1 << 24;

/// What the entries of an archive may unpack to, in all: a fixed amount, and a multiple of the file's size. Text of JSON is packed to a
/// tenth or less, and weights hardly at all.
const UNPACKED_FIXED: u64 = 1 << 28;
const UNPACKED_RATIO: u64 = 64;

/// The content of an entry.
pub(super) enum Payload {
    /// Stored without compression: `len` bytes of the mapped file from `offset`.
    Mapped { offset: usize, len: usize },
    /// Decompressed.
    Owned(Vec<u8>),
}

/// A zip archive with all entries in one folder, as torch writes it.
pub(super) struct Archive {
    /// The whole file.
    pub map: Arc<Mmap>,
    /// Its path as the user gave it.
    pub name: String,
    /// Entries by path, without the common folder.
    entries: HashMap<String, ArchiveEntry>,
    /// The directory, read once.
    zip: MappedArchive,
    /// The bytes that were unpacked so far.
    unpacked: AtomicU64,
}

/// The location of an entry.
struct ArchiveEntry {
    index: usize,
    size: u64,
    /// The offset of the first byte, if the entry is not compressed.
    stored: Option<u64>,
}

impl Archive {
    /// Opens an archive.
    pub(super) fn open(path: &Path) -> Result<Archive, Diagnostic> {
        let name = path.display().to_string();
        let map = map_file(path).map_err(|e| Diagnostic::new(Code::E0402, format!("cannot read `{name}`: {e}")))?;
        Archive::from_map(name, map)
    }

    /// An archive that is mapped already.
    pub(super) fn from_map(name: String, map: Arc<Mmap>) -> Result<Archive, Diagnostic> {
        let mut zip = open_zip(&map, &name)?;
        let mut entries = HashMap::new();
        let mut sizes = EntrySizes::new(map.len());
        for index in 0..zip.len() {
            // An entry that cannot be found counts as missing. It is reported if it is needed.
            let Ok(file) = zip.by_index_raw(index) else { continue };
            let Ok(path) = file.name() else { continue };
            sizes
                .add(file.compressed_size())
                .map_err(|why| invalid_zip(&name, why))?;
            let plain = file.compression() == CompressionMethod::Stored && !file.encrypted();
            let stored = file.data_start().filter(|_| plain);
            let inner = path.split_once('/').map_or(&*path, |(_, rest)| rest).to_string();
            entries.entry(inner).or_insert(ArchiveEntry {
                index,
                size: file.size(),
                stored,
            });
        }
        Ok(Archive {
            map,
            name,
            entries,
            zip,
            unpacked: AtomicU64::new(0),
        })
    }

    /// Whether there is an entry at `path`.
    pub(super) fn has_entry(&self, path: &str) -> bool {
        self.entries.contains_key(path)
    }

    /// The paths of all entries, sorted.
    pub(super) fn entry_paths(&self) -> Vec<&str> {
        let mut paths: Vec<&str> = self.entries.keys().map(String::as_str).collect();
        paths.sort_unstable();
        paths
    }

    /// The kind of the archive, determined by its entries.
    pub(super) fn kind(&self) -> FileKind {
        let head = |path: &str| match self.read_entry(path, MAX_PICKLE, true) {
            Ok(Payload::Mapped { offset, len }) => self.map[offset..offset + len.min(HEAD)].to_vec(),
            Ok(Payload::Owned(bytes)) => bytes,
            Err(_) => vec![],
        };
        FileKind::of_entries(self.entries.keys().map(String::as_str), head)
    }

    /// The bytes of an entry.
    pub(super) fn read_payload(&self, path: &str) -> Result<Payload, Diagnostic> {
        self.read_entry(path, MAX_BLOB, true)
    }

    /// The bytes of a payload.
    pub(super) fn bytes<'a>(&'a self, payload: &'a Payload) -> &'a [u8] {
        match payload {
            Payload::Mapped { offset, len } => &self.map[*offset..offset + len],
            Payload::Owned(bytes) => bytes,
        }
    }

    /// The content of a text entry, trimmed.
    pub(super) fn read_text(&self, path: &str) -> Result<String, Diagnostic> {
        let bytes = self.unpack_entry(path)?;
        let text = String::from_utf8(bytes).map_err(|_| self.unreadable_entry(path, "it is not UTF-8 text"))?;
        Ok(text.trim().to_string())
    }

    /// A JSON entry.
    pub(super) fn read_json(&self, path: &str) -> Result<Value, Diagnostic> {
        let bytes = self.unpack_entry(path)?;
        parse_json(&bytes).map_err(|e| self.not_json(path, &e))
    }

    /// A graph's JSON entry, split into parts.
    pub(super) fn read_graph_json(&self, path: &str) -> Result<(Value, GraphParts), Diagnostic> {
        let bytes = self.unpack_entry(path)?;
        GraphParts::split_document(bytes).map_err(|e| self.not_json(path, &e))
    }

    fn not_json(&self, path: &str, e: &serde_json::Error) -> Diagnostic {
        Diagnostic::new(Code::E0403, format!("`{path}` in `{}` is not JSON: {e}", self.name))
    }

    fn unpack_entry(&self, path: &str) -> Result<Vec<u8>, Diagnostic> {
        match self.read_entry(path, MAX_TEXT, false)? {
            Payload::Owned(bytes) => Ok(bytes),
            Payload::Mapped { offset, len } => Ok(self.map[offset..offset + len].to_vec()),
        }
    }

    /// With `in_place`, the result for an uncompressed entry is its location, and its checksum is not verified.
    fn read_entry(&self, path: &str, limit: u64, in_place: bool) -> Result<Payload, Diagnostic> {
        let Some(&ArchiveEntry { index, size, stored }) = self.entries.get(path) else {
            return Err(Diagnostic::new(
                Code::E0402,
                format!("`{}` has no entry `{path}`", self.name),
            ));
        };
        if let (Some(start), true) = (stored, in_place) {
            let end = start.checked_add(size).filter(|e| *e <= self.map.len() as u64);
            if end.is_none() {
                return Err(self.unreadable_entry(path, "it extends past the end of the file"));
            }
            return Ok(Payload::Mapped {
                offset: start as usize,
                len: size as usize,
            });
        }
        self.allow_unpacking(size, limit)
            .map_err(|why| self.unreadable_entry(path, &why))?;
        let mut zip = self.zip.clone();
        let file = zip
            .by_index(index)
            .map_err(|e| self.unreadable_entry(path, &e.to_string()))?;
        let mut bytes = vec![];
        file.take(limit + 1)
            .read_to_end(&mut bytes)
            .map_err(|e| self.unreadable_entry(path, &e.to_string()))?;
        if bytes.len() as u64 != size {
            return Err(self.unreadable_entry(
                path,
                &format!("it contains {} bytes, but its recorded size is {size}", bytes.len()),
            ));
        }
        Ok(Payload::Owned(bytes))
    }

    /// Counts an entry that unpacks to `size` bytes; an error if that is too large for an entry, the archive or the memory.
    fn allow_unpacking(&self, size: u64, limit: u64) -> Result<(), String> {
        if size > limit {
            return Err(format!("its size of {size} bytes exceeds the limit of {limit}"));
        }
        let most = UNPACKED_FIXED.saturating_add(UNPACKED_RATIO.saturating_mul(self.map.len() as u64));
        if self.unpacked.fetch_add(size, Relaxed).saturating_add(size) > most {
            return Err(format!(
                "it unpacks to {size} bytes, and the entries of an archive of this size may unpack to {most} in all"
            ));
        }
        match usize::try_from(size).is_ok_and(budget::allows_bytes) {
            true => Ok(()),
            false => Err(format!("its size of {size} bytes exceeds the available memory")),
        }
    }

    fn unreadable_entry(&self, path: &str, why: &str) -> Diagnostic {
        Diagnostic::new(
            Code::E0402,
            format!("the entry `{path}` of `{}` cannot be read", self.name),
        )
        .note(why.to_string())
    }
}

fn open_zip(map: &Arc<Mmap>, name: &str) -> Result<MappedArchive, Diagnostic> {
    files::open_zip(Bytes(map.clone())).map_err(|e| invalid_zip(name, &e.to_string()))
}

fn invalid_zip(name: &str, why: &str) -> Diagnostic {
    Diagnostic::new(Code::E0402, format!("`{name}` is not a valid or complete zip archive"))
        .note(why)
        .help("create it with `torch.export.save(exported_program, \"model.pt2\")`, and copy it in binary mode")
}
