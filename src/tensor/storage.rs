//! The memory of tensors.

use super::Tensor;
use super::element::{Element, cast_slice_mut};
use memmap2::{Mmap, MmapMut};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::any::Any;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock, Weak};

/// Every buffer begins at a multiple of this: one cache line, one 512-bit vector.
pub const ALIGN: usize = 64;

/// From this size on memory comes in pages of its own, which are the system's again when it is dropped: in the allocator's memory a
/// weight that is scaled, packed and dropped would leave holes.
const PAGES: usize = 64 << 10;

/// From this size on the system is asked to make the pages huge: fewer faults when they are first written, fewer misses of the
/// TLB ever after.
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
    pages: Option<Pages>,
}

/// Pages that bytes lie in.
enum Pages {
    /// Only theirs.
    Own(#[allow(dead_code, reason = "kept while they are used")] MmapMut),
    /// A file's, which are never written.
    File(#[allow(dead_code, reason = "kept while they are used")] Arc<Mmap>),
}

// SAFETY: the pointer owns its memory and nothing else refers to it.
unsafe impl Send for AlignedBytes {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBytes {}

impl AlignedBytes {
    fn alloc_layout(len: usize) -> Layout {
        Layout::from_size_align(len.max(1), ALIGN).expect("the length fits the address space")
    }

    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> AlignedBytes {
        let layout = Self::alloc_layout(len);
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
        if len < PAGES {
            return None;
        }
        // What lies in front of the first huge page is never touched.
        let ahead = if len < HUGE { 0 } else { HUGE };
        let mut pages = MmapMut::map_anon(len.checked_add(ahead)?).ok()?;
        let offset = if ahead == 0 {
            0
        } else {
            pages.as_ptr().align_offset(HUGE)
        };
        #[cfg(target_os = "linux")]
        if ahead > 0 {
            // Where there are no huge pages, ordinary ones do.
            let _ = pages.advise_range(memmap2::Advice::HugePage, offset, len);
        }
        let ptr = NonNull::new(pages.get_mut(offset..offset + len)?.as_mut_ptr())?;
        Some(AlignedBytes {
            ptr,
            len,
            pages: Some(Pages::Own(pages)),
        })
    }

    /// Bytes of a mapped file, which are not copied until they are written. `None` if the file has not so many, or if they are not
    /// aligned to [`ALIGN`].
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
        // SAFETY: the allocation holds `len` initialised bytes for as long as `self` lives.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }

    /// The bytes as elements, for writing. Panics if they are not a whole number of elements.
    pub fn as_mut_slice<T: Element>(&mut self) -> &mut [T] {
        cast_slice_mut(self.bytes_mut())
    }

    /// Where the bytes begin. Writing there needs that nothing else reads them, and that they are not a file's
    /// ([`AlignedBytes::mapped`]).
    pub fn address(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// The bytes, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        if matches!(self.pages, Some(Pages::File(_))) {
            *self = AlignedBytes::from_slice(self.bytes());
        }
        // SAFETY: as in `bytes`, and `&mut self` makes the access unique; a file's pages were just copied.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBytes {
    fn drop(&mut self) {
        if self.pages.is_some() {
            return;
        }
        // SAFETY: allocated in `zeroed` with the same layout.
        unsafe { dealloc(self.ptr.as_ptr(), Self::alloc_layout(self.len)) }
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
    /// The caller's. Whatever keeps a tensor for longer than a call copies what has no owner: see [`Tensor::detach`].
    Borrowed(BorrowedBytes),
}

/// Bytes of memory that a caller lends.
pub struct BorrowedBytes {
    ptr: NonNull<u8>,
    len: usize,
    /// Keeps the memory; without an owner it lasts for one call.
    owner: Option<MemoryKeeper>,
}

/// Something that keeps memory as long as it lives itself.
pub(super) type MemoryKeeper = Arc<dyn Any + Send + Sync>;

// SAFETY: the bytes are only read, and whoever made this vouches that nobody writes them meanwhile.
unsafe impl Send for BorrowedBytes {}
// SAFETY: as for `Send`.
unsafe impl Sync for BorrowedBytes {}

impl BorrowedBytes {
    /// The `len` bytes at `ptr`.
    ///
    /// # Safety
    /// The bytes are initialised, and nobody frees or writes them while this lives.
    pub unsafe fn new(ptr: *const u8, len: usize) -> BorrowedBytes {
        // An address of no bytes may be null.
        let ptr = NonNull::new(ptr.cast_mut()).filter(|_| len > 0);
        BorrowedBytes {
            ptr: ptr.unwrap_or(NonNull::dangling()),
            len,
            owner: None,
        }
    }

    /// The bytes with what keeps their memory.
    pub fn kept_by(self, owner: MemoryKeeper) -> BorrowedBytes {
        BorrowedBytes {
            owner: Some(owner),
            ..self
        }
    }

    /// Whether the memory lasts for one call only.
    pub fn is_of_a_call(&self) -> bool {
        self.owner.is_none()
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the maker's promise; the pointer is not null.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

/// Bytes that are computed from a tensor when they are first read.
pub struct Deferred {
    base: Tensor,
    /// What is computed: equal words and equal bases mean equal bytes.
    what: Arc<[u64]>,
    len: usize,
    compute: Box<dyn Fn(&Tensor) -> AlignedBytes + Send + Sync>,
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
    /// `len` bytes that `compute` makes of `base`. `what` says what it computes: where it and the elements of the base are equal,
    /// the bytes are.
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
            made: OnceLock::new(),
        })
    }

    /// `f` of the bytes. Deferred ones that nobody has read yet are gone again afterwards.
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

    /// Lets the system drop the pages of a mapped file from memory; they are read again when they are used again.
    pub fn release_pages(&self) {
        match self {
            Storage::Deferred(d) => d.base.release_pages(),
            _ => self.release_part(0..self.len()),
        }
    }

    /// [`Storage::release_pages`] of some bytes. Does nothing where the bytes are not a file's.
    pub fn release_part(&self, bytes: Range<usize>) {
        #[cfg(unix)]
        if let Storage::Mapped { map, offset, len } = self {
            let bytes = bytes.start.min(*len)..bytes.end.min(*len);
            let (from, n) = (offset + bytes.start, bytes.len());
            // SAFETY: the mapping is of a file and never written, so that its pages come back with the same contents.
            let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, from, n) };
        }
        #[cfg(not(unix))]
        let _ = bytes;
    }

    /// Says that few of a mapped file's bytes will be read, here and there: then the system should not bring more than
    /// those into memory. (Where it has the file in huge pages, it maps 2 MiB for one element of a table.)
    pub fn read_sparsely(&self) {
        #[cfg(target_os = "linux")]
        if let Storage::Mapped { map, offset, len } = self
            && *len >= HUGE
        {
            // Where there are no huge pages there is nothing to say.
            let _ = map.advise_range(memmap2::Advice::NoHugePage, *offset, *len);
            self.release_pages();
        }
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        match self {
            Storage::Owned(b) => b.len,
            Storage::Mapped { len, .. } => *len,
            Storage::Deferred(d) => d.len,
            Storage::Borrowed(b) => b.len,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Names bytes: equal for the same bytes of one mapped file, and for the same computation on the same bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BytesId {
    at: usize,
    what: Option<Arc<[u64]>>,
}

/// The life of a tensor's elements: they stay where they are, unchanged, while it lasts. Writing to a tensor that has one gives it
/// new memory.
pub struct Life {
    memory: MemoryOwner,
    place: BytesId,
}

/// What bytes live as long as.
enum MemoryOwner {
    Own(Weak<Storage>),
    File(Weak<Mmap>),
}

impl Life {
    /// The life of a storage's bytes.
    pub(super) fn of_storage(storage: &Arc<Storage>) -> Life {
        let own = |s: &Arc<Storage>| (MemoryOwner::Own(Arc::downgrade(s)), Arc::as_ptr(s) as usize);
        let plain = |s: &Arc<Storage>| match &**s {
            Storage::Mapped { map, offset, .. } => {
                (MemoryOwner::File(Arc::downgrade(map)), map.as_ptr() as usize + offset)
            }
            _ => own(s),
        };
        let ((memory, at), what) = match &**storage {
            // What is computed from something computed is known by its own address.
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

    /// Names the elements among all that live or whose life is kept.
    pub fn bytes_id(&self) -> &BytesId {
        &self.place
    }

    /// Whether some tensor still has the elements.
    pub fn is_alive(&self) -> bool {
        match &self.memory {
            MemoryOwner::Own(s) => s.strong_count() > 0,
            MemoryOwner::File(m) => m.strong_count() > 0,
        }
    }
}

#[cfg(test)]
mod tests;
