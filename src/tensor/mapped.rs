//! Files that are mapped for reading.

use super::{Storage, Tensor};
use crate::fs::open_regular;
use crate::types::DType;
use memmap2::Mmap;
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// The first bytes of a compiled model. The line ends reveal that a file was converted as if it were text.
pub(crate) const COMPILED_MAGIC: &[u8; 8] = b"\x8aFXC\r\n\x1a\n";

/// Why a file cannot be mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapError {
    /// The system reported an error.
    Io(String),
    /// The file has no bytes.
    Empty,
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapError::Io(e) => f.write_str(e),
            MapError::Empty => f.write_str("the file is empty"),
        }
    }
}

/// Maps the regular file at `path` for reading. If this process already maps the file and it has not changed since, returns the
/// same mapping, so that all readers share what is derived from its weights.
pub(crate) fn map_file(path: &Path) -> Result<Arc<Mmap>, MapError> {
    let io = |e: std::io::Error| MapError::Io(e.to_string());
    let (file, meta) = open_regular(path).map_err(io)?;
    if meta.len() == 0 {
        return Err(MapError::Empty);
    }
    let Ok(mut known) = MAPPED.get_or_init(Mutex::default).lock() else {
        return map_open_file(&file).map_err(io);
    };
    let id = identity(&meta);
    if let Some(map) = id.as_ref().and_then(|id| known.get(id)?.upgrade()) {
        return Ok(map);
    }
    let map = map_open_file(&file).map_err(io)?;
    known.retain(|_, m| m.strong_count() > 0);
    known.extend(id.map(|id| (id, Arc::downgrade(&map))));
    Ok(map)
}

/// All bytes of a mapped file, as a tensor.
pub(crate) fn mapped_bytes(map: &Arc<Mmap>) -> Tensor {
    let len = map.len();
    let storage = Storage::Mapped {
        map: map.clone(),
        offset: 0,
        len,
    };
    Tensor::from_storage(DType::U8, &[len], storage)
}

/// Identifies a version of a file: device, number, length, and the seconds and nanoseconds of its last modification and
/// status change.
type Identity = [i128; 7];

/// The files that are currently mapped.
static MAPPED: OnceLock<Mutex<HashMap<Identity, Weak<Mmap>>>> = OnceLock::new();

#[cfg(unix)]
fn identity(m: &std::fs::Metadata) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    let changed = [m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec()].map(i128::from);
    let [a, b, c, d] = changed;
    m.is_file()
        .then_some([m.dev().into(), m.ino().into(), m.len().into(), a, b, c, d])
}

#[cfg(not(unix))]
fn identity(_: &std::fs::Metadata) -> Option<Identity> {
    None
}

fn map_open_file(file: &File) -> std::io::Result<Arc<Mmap>> {
    // SAFETY: the mapping is private to reads; as with every mapped file, another process that shortens the file while
    // it is in use makes later reads fail.
    Ok(Arc::new(unsafe { Mmap::map(file) }?))
}
