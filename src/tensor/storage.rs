//! The memory behind tensors.

use super::Tensor;
use super::element::{Element, cast_slice_mut};
use memmap2::{Mmap, MmapMut};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

/// Every buffer begins at a multiple of this: one cache line, one 512-bit vector.
pub const ALIGN: usize = 64;

/// From this size on memory comes in pages of its own, which the system is asked to make huge: fewer faults when it is first
/// written, fewer misses of the TLB ever after.
const HUGE: usize = 2 << 20;

/// Less is taken to be there.
const PROBED: usize = 1 << 30;

/// Whether the system would give this much memory now: it is asked for more than a GiB. What is to be as large as a file or
/// a command line says is checked before it is made, because memory that is refused ends the program.
pub fn is_available(bytes: usize) -> bool {
    bytes <= PROBED || MmapMut::map_anon(bytes).is_ok()
}

/// Zero-initialised bytes aligned to [`ALIGN`].
pub struct AlignedBytes {
    ptr: NonNull<u8>,
    len: usize,
    /// The pages they lie in, if not in the allocator's memory.
    pages: Option<MmapMut>,
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
        if let Some(b) = Self::in_pages(len) {
            return b;
        }
        // SAFETY: the layout's size is at least one.
        let ptr = unsafe { alloc_zeroed(layout) };
        let ptr = NonNull::new(ptr).unwrap_or_else(|| handle_alloc_error(layout));
        AlignedBytes { ptr, len, pages: None }
    }

    /// `len` zero bytes in fresh pages; `None` if they are too few or the system refuses.
    fn in_pages(len: usize) -> Option<AlignedBytes> {
        if len < HUGE {
            return None;
        }
        // What lies in front of the first huge page is never touched.
        let mut pages = MmapMut::map_anon(len.checked_add(HUGE)?).ok()?;
        let offset = pages.as_ptr().align_offset(HUGE);
        #[cfg(target_os = "linux")]
        {
            // Where there are no huge pages, ordinary ones do.
            let _ = pages.advise_range(memmap2::Advice::HugePage, offset, len);
        }
        let ptr = NonNull::new(pages.get_mut(offset..offset + len)?.as_mut_ptr())?;
        Some(AlignedBytes {
            ptr,
            len,
            pages: Some(pages),
        })
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

    /// The bytes as elements, for writing. Panics if they are not a whole number of elements.
    pub fn as_mut_slice<T: Element>(&mut self) -> &mut [T] {
        cast_slice_mut(self.bytes_mut())
    }

    /// The bytes, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBytes {
    fn drop(&mut self) {
        if self.pages.is_some() {
            return;
        }
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
    /// To be computed from another tensor when it is first read.
    Deferred(Deferred),
}

/// Bytes that are computed from a tensor when they are first read.
pub struct Deferred {
    base: Tensor,
    len: usize,
    compute: Box<dyn Fn(&Tensor) -> AlignedBytes + Send + Sync>,
    made: OnceLock<AlignedBytes>,
}

impl Deferred {
    fn make(&self) -> AlignedBytes {
        let made = (self.compute)(&self.base);
        assert_eq!(made.len, self.len, "bytes that were computed late");
        made
    }
}

impl Storage {
    /// `len` bytes that `compute` makes of `base`.
    pub fn deferred(
        base: Tensor,
        len: usize,
        compute: impl Fn(&Tensor) -> AlignedBytes + Send + Sync + 'static,
    ) -> Storage {
        Storage::Deferred(Deferred {
            base,
            len,
            compute: Box::new(compute),
            made: OnceLock::new(),
        })
    }

    /// `f` of the bytes. Deferred ones that nobody has read yet are gone again afterwards.
    pub fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Storage::Deferred(d) if d.made.get().is_none() => f(d.make().bytes()),
            _ => f(self.bytes()),
        }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Storage::Owned(b) => b.bytes(),
            Storage::Mapped { map, offset, len } => &map[*offset..*offset + *len],
            Storage::Deferred(d) => d.made.get_or_init(|| d.make()).bytes(),
        }
    }

    /// Lets the system drop the pages of a mapped file from memory; they are read again when they are used again.
    pub fn release_pages(&self) {
        if let Storage::Deferred(d) = self {
            d.base.release_pages();
        }
        #[cfg(unix)]
        if let Storage::Mapped { map, offset, len } = self {
            // SAFETY: the mapping is of a file and never written, so that its pages come back with the same contents.
            let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, *offset, *len) };
        }
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        match self {
            Storage::Owned(b) => b.len,
            Storage::Mapped { len, .. } => *len,
            Storage::Deferred(d) => d.len,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
