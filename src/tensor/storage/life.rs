//! What identifies the bytes of tensors, and whether they are still there.

use super::Storage;
use memmap2::Mmap;
use std::sync::{Arc, Weak};

/// Identifies bytes: equal for the same range of a mapped file, and for the same computation on the same bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BytesId {
    at: usize,
    what: Option<Arc<[u64]>>,
}

impl BytesId {
    /// Numbers that identify the bytes while they are alive.
    pub(in crate::tensor) fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        let what = self.what.iter().flat_map(|w| w.iter().copied());
        std::iter::once(self.at as u64).chain(what)
    }
}

/// Keeps a tensor's elements in place and unchanged while it lives. Writing to a tensor whose elements have one
/// copies them first.
pub struct Life {
    memory: MemoryOwner,
    place: BytesId,
}

/// The object that owns the bytes.
enum MemoryOwner {
    Own(Weak<Storage>),
    File(Weak<Mmap>),
}

impl Life {
    /// Creates a token for a storage's bytes.
    pub(in crate::tensor) fn of_storage(storage: &Arc<Storage>) -> Life {
        let own = |s: &Arc<Storage>| (MemoryOwner::Own(Arc::downgrade(s)), Arc::as_ptr(s) as usize);
        let plain = |s: &Arc<Storage>| match &**s {
            Storage::Mapped { map, offset, .. } => {
                (MemoryOwner::File(Arc::downgrade(map)), map.as_ptr() as usize + offset)
            }
            _ => own(s),
        };
        let ((memory, at), what) = match &**storage {
            // Bytes that are computed from computed bytes are identified by their own address.
            Storage::Deferred(d) if !matches!(&*d.base.storage, Storage::Deferred(_)) => {
                (plain(&d.base.storage), Some(d.what.clone()))
            }
            _ => (plain(storage), None),
        };
        Life {
            memory,
            place: BytesId { at, what },
        }
    }

    /// Identifies the elements among all that are alive or have a token.
    pub fn bytes_id(&self) -> &BytesId {
        &self.place
    }

    /// Whether a tensor still has the elements.
    pub fn is_alive(&self) -> bool {
        match &self.memory {
            MemoryOwner::Own(s) => s.strong_count() > 0,
            MemoryOwner::File(m) => m.strong_count() > 0,
        }
    }
}
