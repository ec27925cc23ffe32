//! The memory behind tensors.

use memmap2::Mmap;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

/// Every buffer begins at a multiple of this: one cache line, one 512-bit vector.
pub const ALIGN: usize = 64;

/// Zero-initialised bytes aligned to [`ALIGN`].
pub struct AlignedBytes {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: the pointer owns its memory and nothing else refers to it.
unsafe impl Send for AlignedBytes {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBytes {}

impl AlignedBytes {
    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len.max(1), ALIGN).expect("the length fits the address space")
    }

    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> AlignedBytes {
        let layout = Self::layout(len);
        // SAFETY: the layout's size is at least one.
        let ptr = unsafe { alloc_zeroed(layout) };
        let ptr = NonNull::new(ptr).unwrap_or_else(|| handle_alloc_error(layout));
        AlignedBytes { ptr, len }
    }

    /// A copy of `bytes`.
    pub fn from_slice(bytes: &[u8]) -> AlignedBytes {
        let mut b = AlignedBytes::zeroed(bytes.len());
        b.bytes_mut().copy_from_slice(bytes);
        b
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the allocation holds `len` initialised bytes for as long as `self` lives.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }

    /// The bytes, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBytes {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with the same layout.
        unsafe { dealloc(self.ptr.as_ptr(), Self::layout(self.len)) }
    }
}

/// Where a tensor's bytes are.
pub enum Storage {
    /// In memory of its own.
    Owned(AlignedBytes),
    /// In a mapped file: `len` bytes from `offset`.
    Mapped {
        /// The file.
        map: Arc<Mmap>,
        /// First byte, a multiple of the element size.
        offset: usize,
        /// How many bytes.
        len: usize,
    },
}

impl Storage {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Storage::Owned(b) => b.bytes(),
            Storage::Mapped { map, offset, len } => &map[*offset..*offset + *len],
        }
    }

    /// Lets the system drop the pages of a mapped file from memory; they are read again when they are used again.
    pub fn release_pages(&self) {
        #[cfg(unix)]
        if let Storage::Mapped { map, offset, len } = self {
            // SAFETY: the mapping is of a file and never written, so that its pages come back with the same contents.
            let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, *offset, *len) };
        }
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
