//! The memory of tensors.

mod kept;
mod life;
mod prefault;
mod slab;

use super::Tensor;
use super::element::{Element, cast_slice_mut};
use super::guard::{guarded_pages, guards_buffers};
use super::quantized::Quantized;
use crate::budget;
use memmap2::{Mmap, MmapMut};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

pub(crate) use life::{BytesId, Life};
pub use prefault::Prefault;
use slab::Slab;

/// The alignment of every buffer: one cache line, one 512-bit vector. On unaligned data in the L1 cache, kernels with
/// such vectors take half as long again.
pub(crate) const ALIGN: usize = 64;

/// The size from which a buffer is allocated in separate pages, which are returned to the system when it is dropped.
/// In the allocator's memory, a weight that is scaled, packed and dropped would leave holes.
const PAGES: usize = 64 << 10;

/// The size from which huge pages are requested: they cause fewer page faults at the first write, and fewer TLB
/// misses afterwards.
const HUGE: usize = 2 << 20;

/// Sizes below this are assumed to be available.
const PROBED: usize = 1 << 30;

/// Whether this much memory may be allocated now: within the limits ([`budget`]), and granted by the system, which is
/// asked only for more than a GiB. Check sizes that depend on a file or the command line before allocating, so that the
/// error says what was too large: [`AlignedBytes::zeroed`] can only unwind.
pub(crate) fn is_available(bytes: usize) -> bool {
    budget::allows_bytes(bytes) && (bytes <= PROBED || MmapMut::map_anon(bytes).is_ok())
}

/// Zero-initialised bytes aligned to [`ALIGN`].
pub struct AlignedBytes {
    ptr: NonNull<u8>,
    len: usize,
    /// The pages that contain them, unless they are in the allocator's memory.
    pages: Option<Pages>,
}

/// Pages that contain a buffer.
enum Pages {
    /// Anonymous pages.
    Own(MmapMut),
    /// Pages that several buffers share.
    Shared(Arc<Slab>),
    /// Pages of a file, which is never written.
    File(#[allow(dead_code, reason = "kept while they are used")] Arc<Mmap>),
}

// SAFETY: the pointer owns its memory and nothing else refers to it.
unsafe impl Send for AlignedBytes {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBytes {}

impl AlignedBytes {
    fn alloc_layout(len: usize) -> Layout {
        Layout::from_size_align(len.max(1), ALIGN).unwrap_or_else(|_| budget::refuse_bytes(len))
    }

    /// `len` zeros. Unwinds to [`budget::catch_refusal`] if the memory is not allowed or not available.
    pub fn zeroed(len: usize) -> AlignedBytes {
        let layout = Self::alloc_layout(len);
        if len >= PAGES && !budget::allows_bytes(len) {
            budget::refuse_bytes(len);
        }
        if let Some(b) = Self::between_guards(len).or_else(|| Self::in_pages(len)) {
            return b;
        }
        // SAFETY: the layout's size is at least one.
        let ptr = unsafe { alloc_zeroed(layout) };
        let ptr = NonNull::new(ptr).unwrap_or_else(|| budget::refuse_bytes(len));
        AlignedBytes { ptr, len, pages: None }
    }

    /// `len` zeros next to a protected page, if tests ask for that.
    fn between_guards(len: usize) -> Option<AlignedBytes> {
        let (pages, offset) = guarded_pages(len)?;
        Self::part_of(pages, offset, len)
    }

    /// `len` zeros in pages of their own; `None` if the size is too small or the system refuses.
    fn in_pages(len: usize) -> Option<AlignedBytes> {
        let (pages, offset) = (len >= PAGES).then(|| kept::zeroed_pages(len))??;
        Self::part_of(pages, offset, len)
    }

    /// `len` bytes of `pages`.
    fn part_of(mut pages: MmapMut, offset: usize, len: usize) -> Option<AlignedBytes> {
        let ptr = NonNull::new(pages.as_mut_ptr().wrapping_add(offset))?;
        budget::add_held(len);
        Some(AlignedBytes {
            ptr,
            len,
            pages: Some(Pages::Own(pages)),
        })
    }

    /// Bytes of a mapped file, which are copied when they are first written. `None` if the file is too short, or if
    /// the bytes are not aligned to [`ALIGN`].
    pub fn mapped(map: &Arc<Mmap>, bytes: Range<usize>) -> Option<AlignedBytes> {
        let part = map.get(bytes)?;
        let ptr = NonNull::new(part.as_ptr().cast_mut())?;
        (ptr.as_ptr() as usize).is_multiple_of(ALIGN).then(|| AlignedBytes {
            ptr,
            len: part.len(),
            pages: Some(Pages::File(map.clone())),
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
        // SAFETY: the allocation has `len` initialised bytes for as long as `self` lives.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }

    /// The bytes as elements, for writing. Panics if they are not a whole number of elements.
    pub fn as_mut_slice<T: Element>(&mut self) -> &mut [T] {
        cast_slice_mut(self.bytes_mut())
    }

    /// The address of the bytes. Callers may write there only if nothing else reads them and they are not in a file
    /// ([`AlignedBytes::mapped`]).
    pub fn address(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// The bytes, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        if matches!(self.pages, Some(Pages::File(_))) {
            *self = AlignedBytes::from_slice(self.bytes());
        }
        // SAFETY: as in `bytes`, and `&mut self` makes the access unique; bytes in a file were copied above.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBytes {
    fn drop(&mut self) {
        if let Some(pages) = self.pages.take() {
            match pages {
                Pages::Own(pages) => {
                    budget::subtract_held(self.len);
                    if !guards_buffers() {
                        kept::keep_pages(pages);
                    }
                }
                Pages::Shared(slab) => {
                    // SAFETY: the buffer came from this slab, and this is its end.
                    unsafe { slab.release(self.ptr, self.len) };
                    budget::subtract_held(self.len);
                }
                // The system's.
                Pages::File(_) => {}
            }
            return;
        }
        // The allocator counts the memory that it manages.
        // SAFETY: allocated in `zeroed` with the same layout.
        unsafe { dealloc(self.ptr.as_ptr(), Self::alloc_layout(self.len)) }
    }
}

/// The location of a tensor's bytes.
pub enum Storage {
    /// Owned memory.
    Owned(AlignedBytes),
    /// In a mapped file: `len` bytes from `offset`.
    Mapped {
        /// The file.
        map: Arc<Mmap>,
        /// First byte, a multiple of the element size.
        offset: usize,
        /// The number of bytes.
        len: usize,
    },
    /// Computed from another tensor when it is first read.
    Deferred(Deferred),
    /// The caller's memory. Code that keeps a tensor beyond the call copies bytes that have no owner: see
    /// [`Tensor::detach`].
    Borrowed(BorrowedBytes),
}

/// Bytes in the caller's memory.
pub struct BorrowedBytes {
    ptr: NonNull<u8>,
    len: usize,
    /// Keeps the memory valid. Without an owner, the memory is valid for one call.
    owner: Option<MemoryKeeper>,
}

/// An object that owns memory.
pub(super) type MemoryKeeper = Arc<dyn Any + Send + Sync>;

// SAFETY: the bytes are only read, and the creator guarantees that they are not written during that time.
unsafe impl Send for BorrowedBytes {}
// SAFETY: as for `Send`.
unsafe impl Sync for BorrowedBytes {}

impl BorrowedBytes {
    /// The `len` bytes at `ptr`.
    ///
    /// # Safety
    /// The bytes are initialised, and are neither freed nor written while this lives.
    pub unsafe fn new(ptr: *const u8, len: usize) -> BorrowedBytes {
        // The address may be null if there are no bytes.
        let ptr = NonNull::new(ptr.cast_mut()).filter(|_| len > 0);
        BorrowedBytes {
            ptr: ptr.unwrap_or(NonNull::dangling()),
            len,
            owner: None,
        }
    }

    /// The bytes and the owner of their memory.
    pub fn kept_by(self, owner: MemoryKeeper) -> BorrowedBytes {
        BorrowedBytes {
            owner: Some(owner),
            ..self
        }
    }

    /// Whether the memory is valid for one call only.
    pub fn is_of_a_call(&self) -> bool {
        self.owner.is_none()
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: guaranteed by the creator; the pointer is not null.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

/// Bytes that are computed from a tensor when they are first read.
pub struct Deferred {
    base: Tensor,
    /// Identifies the computation: equal keys and equal bases mean equal bytes.
    what: Arc<[u64]>,
    len: usize,
    compute: Box<dyn Fn(&Tensor) -> AlignedBytes + Send + Sync>,
    /// The integers and scales that the bytes are computed from, if they are.
    quantized: Option<Arc<Quantized>>,
    made: OnceLock<AlignedBytes>,
}

impl Deferred {
    fn compute_bytes(&self) -> AlignedBytes {
        let made = (self.compute)(&self.base);
        assert_eq!(made.len, self.len, "bytes that were computed late");
        made
    }
}

impl Storage {
    /// `len` bytes that `compute` derives from `base`. `what` identifies the computation: if it and the elements of
    /// the base are equal, so are the bytes.
    pub fn deferred(
        base: Tensor,
        what: Arc<[u64]>,
        len: usize,
        compute: impl Fn(&Tensor) -> AlignedBytes + Send + Sync + 'static,
    ) -> Storage {
        Storage::Deferred(Deferred {
            base,
            what,
            len,
            compute: Box::new(compute),
            quantized: None,
            made: OnceLock::new(),
        })
    }

    /// `len` bytes of the elements of a quantized matrix. `what` and the integers identify them.
    pub(super) fn quantized(matrix: Arc<Quantized>, what: Arc<[u64]>, len: usize) -> Storage {
        let computed = matrix.clone();
        Storage::Deferred(Deferred {
            base: matrix.integers.clone(),
            what,
            len,
            compute: Box::new(move |_| computed.compute_bytes()),
            quantized: Some(matrix),
            made: OnceLock::new(),
        })
    }

    /// The quantized matrix whose elements these are.
    pub(super) fn as_quantized(&self) -> Option<&Quantized> {
        match self {
            Storage::Deferred(d) => d.quantized.as_deref(),
            _ => None,
        }
    }

    /// Calls `f` with the bytes. Deferred bytes that have not been read before are dropped afterwards.
    pub fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Storage::Deferred(d) if d.made.get().is_none() => f(d.compute_bytes().bytes()),
            _ => f(self.bytes()),
        }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Storage::Owned(b) => b.bytes(),
            Storage::Mapped { map, offset, len } => &map[*offset..*offset + *len],
            Storage::Deferred(d) => d.made.get_or_init(|| d.compute_bytes()).bytes(),
            Storage::Borrowed(b) => b.bytes(),
        }
    }

    /// Lets the system drop the resident pages of a mapped file. They are read again on the next access.
    pub fn release_pages(&self) {
        match self {
            Storage::Deferred(d) => d.base.release_pages(),
            _ => self.release_part(0..self.len()),
        }
    }

    /// [`Storage::release_pages`] for a range of bytes. Does nothing unless the bytes are in a file.
    pub fn release_part(&self, bytes: Range<usize>) {
        #[cfg(unix)]
        if let Storage::Mapped { map, offset, len } = self {
            let bytes = bytes.start.min(*len)..bytes.end.min(*len);
            let (from, n) = (offset + bytes.start, bytes.len());
            // SAFETY: the mapping is of a file and never written, so its pages are reloaded with the same contents.
            let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, from, n) };
        }
        #[cfg(not(unix))]
        let _ = bytes;
    }

    /// Advises the system that only a few scattered bytes of a mapped file will be read, so that it loads only their
    /// pages. (Where the file is in huge pages, the system maps 2 MiB for one element of a table.)
    pub fn read_sparsely(&self) {
        #[cfg(target_os = "linux")]
        if let Storage::Mapped { map, offset, len } = self
            && *len >= HUGE
        {
            // Systems without huge pages reject this request, which is fine.
            let _ = map.advise_range(memmap2::Advice::NoHugePage, *offset, *len);
            self.release_pages();
        }
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        match self {
            Storage::Owned(b) => b.len,
            Storage::Mapped { len, .. } => *len,
            Storage::Deferred(d) => d.len,
            Storage::Borrowed(b) => b.len,
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests;
