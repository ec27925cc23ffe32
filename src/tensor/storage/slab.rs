//! Buffers that share huge pages.
//!
//! A program reads its packed weights and its working memory in every run. In pages of 4 KiB they need more address
//! translations than a processor keeps, and a matrix product waits for them: up to a fifth of its time on a virtual
//! machine, where a translation takes two walks. Buffers that are smaller than a huge page, or not a whole number of
//! them, are therefore placed one after the other in a slab.

use super::super::guard::guards_buffers;
#[cfg(target_os = "linux")]
use super::super::guard::page_size;
use super::prefault::take_ready;
use super::{ALIGN, AlignedBytes, HUGE, Pages};
use crate::budget;
use memmap2::MmapMut;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The size of a slab. The system provides its pages when they are first written.
pub(super) const SIZE: usize = 64 << 20;
/// The sizes of the buffers that are placed in slabs. Smaller ones are the allocator's; larger ones fill huge pages of
/// their own.
pub(super) const BUFFERS: std::ops::Range<usize> = 16 << 10..SIZE / 4;

/// Pages that buffers share. They are unmapped when the last buffer is dropped.
pub(super) struct Slab {
    pages: MmapMut,
    /// The offset of the first huge page.
    first: usize,
}

/// The slab that is being filled.
struct Current {
    slab: Weak<Slab>,
    /// The number of bytes that have been handed out. They are never handed out again.
    used: usize,
}

static CURRENT: Mutex<Current> = Mutex::new(Current {
    slab: Weak::new(),
    used: 0,
});

impl AlignedBytes {
    /// `len` zeros in huge pages, if the system has them, for memory that is used in every run. A slab's addresses are not
    /// handed out again, so temporary values should not be there. Unwinds like [`AlignedBytes::zeroed`].
    pub fn zeroed_in_huge_pages(len: usize) -> AlignedBytes {
        if guards_buffers() || !budget::allows_bytes(len) {
            return AlignedBytes::zeroed(len);
        }
        match Slab::take(len) {
            Some((slab, ptr)) => {
                budget::add_held(len);
                AlignedBytes {
                    ptr,
                    len,
                    pages: Some(Pages::Shared(slab)),
                }
            }
            None => AlignedBytes::zeroed(len),
        }
    }
}

impl Slab {
    pub(super) fn map() -> Option<Slab> {
        let pages = MmapMut::map_anon(SIZE + HUGE).ok()?;
        let first = pages.as_ptr().align_offset(HUGE);
        #[cfg(target_os = "linux")]
        // Systems without huge pages reject this request, which is fine.
        let _ = pages.advise_range(memmap2::Advice::HugePage, first, SIZE);
        Some(Slab { pages, first })
    }

    /// Writes a zero, so that the system provides the page at this offset.
    pub(super) fn touch(&mut self, offset: usize) {
        self.pages[self.first + offset] = 0;
    }

    /// `len` zeros that nothing else uses; `None` if buffers of this size have pages of their own, or if the system
    /// refuses.
    pub(super) fn take(len: usize) -> Option<(Arc<Slab>, NonNull<u8>)> {
        if !BUFFERS.contains(&len) {
            return None;
        }
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        let slab = match current.slab.upgrade().filter(|_| current.used + len <= SIZE) {
            Some(slab) => slab,
            None => {
                let slab = Arc::new(take_ready().or_else(Slab::map)?);
                *current = Current {
                    slab: Arc::downgrade(&slab),
                    used: 0,
                };
                slab
            }
        };
        let start = slab.pages.as_ptr().wrapping_add(slab.first + current.used);
        current.used += len.next_multiple_of(ALIGN);
        let start = NonNull::new(start.cast_mut())?;
        Some((slab, start))
    }

    /// Returns the memory of a buffer to the system, except for the pages that it shares with its neighbours.
    ///
    /// # Safety
    /// The buffer was taken from this slab and is no longer used.
    pub(super) unsafe fn release(&self, buffer: NonNull<u8>, len: usize) {
        #[cfg(target_os = "linux")]
        if let Some(page) = page_size() {
            let start = buffer.addr().get() - self.pages.as_ptr().addr();
            let (from, to) = (start.next_multiple_of(page), (start + len) / page * page);
            if from < to {
                // SAFETY: guaranteed by the caller: these pages are the buffer's alone. The system may refuse; the memory is
                // then returned with the slab.
                let _ = unsafe {
                    self.pages
                        .unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, from, to - from)
                };
            }
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (buffer, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_in_a_slab_are_zeros_that_do_not_overlap() {
        let sizes = [16 << 10, 70_001, 3 << 20, 16 << 10, (3 << 20) + 5];
        for _ in 0..20 {
            let mut buffers: Vec<AlignedBytes> = sizes.map(AlignedBytes::zeroed_in_huge_pages).into();
            for (i, b) in buffers.iter_mut().enumerate() {
                assert!(b.bytes().iter().all(|&x| x == 0) && b.bytes().len() == sizes[i]);
                assert!(b.address().addr().is_multiple_of(ALIGN));
                b.bytes_mut().fill(i as u8 + 1);
            }
            // Dropping one buffer leaves the bytes of its neighbours alone.
            buffers.remove(2);
            for (b, i) in buffers.iter().zip([1, 2, 4, 5]) {
                assert!(b.bytes().iter().all(|&x| x == i));
            }
        }
    }
}
