//! Working memory of kernels. Buffers come from a thread-local store and return to it, so nothing is allocated after
//! the first call.

use crate::tensor::AlignedBytes;
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// The number of buffers that a thread keeps.
const KEEP: usize = 8;

thread_local! {
    static STORE: RefCell<Vec<AlignedBytes>> = const { RefCell::new(Vec::new()) };
}

/// A 64-byte aligned buffer of f32. Its contents are whatever the last user left.
pub(crate) struct Scratch {
    bytes: Option<AlignedBytes>,
    len: usize,
}

/// Takes a buffer of `len` f32. Panics if its size in bytes overflows; callers check the problem's sizes first.
pub(crate) fn take_buffer(len: usize) -> Scratch {
    let need = len.checked_mul(4).expect("the size of the working memory fits");
    let bytes = STORE.with_borrow_mut(|store| {
        // Take the smallest buffer that is large enough. If there is none, replace the largest by a larger one.
        let best = (0..store.len())
            .filter(|&i| store[i].bytes().len() >= need)
            .min_by_key(|&i| store[i].bytes().len());
        match best {
            Some(i) => store.swap_remove(i),
            None => {
                if let Some(i) = (0..store.len()).max_by_key(|&i| store[i].bytes().len()) {
                    store.swap_remove(i);
                }
                AlignedBytes::zeroed_in_huge_pages(need.max(4096))
            }
        }
    });
    Scratch {
        bytes: Some(bytes),
        len,
    }
}

impl Deref for Scratch {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        let b = self.bytes.as_ref().expect("a buffer until it is dropped").bytes();
        // SAFETY: the buffer holds at least `4 * len` initialised bytes and is 64-byte aligned; any bits are an f32.
        unsafe { std::slice::from_raw_parts(b.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [f32] {
        let b = self.bytes.as_mut().expect("a buffer until it is dropped").bytes_mut();
        // SAFETY: as in `deref`, and the borrow is unique.
        unsafe { std::slice::from_raw_parts_mut(b.as_mut_ptr().cast(), self.len) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(b) = self.bytes.take() {
            // The store is gone only while the thread ends. The buffer is then freed here.
            let _ = STORE.try_with(|s| {
                if let Ok(mut s) = s.try_borrow_mut()
                    && s.len() < KEEP
                {
                    s.push(b);
                }
            });
        }
    }
}

/// A pointer that a job's chunks share. Each chunk reads and writes its own part of the memory.
#[derive(Clone, Copy)]
pub(crate) struct SharedPtr<T>(pub *mut T);

// SAFETY: the kernels that send it partition the memory it points to; see the type.
unsafe impl<T> Send for SharedPtr<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for SharedPtr<T> {}

impl<T> SharedPtr<T> {
    /// The pointer. This is a method so that closures capture the wrapper, not the bare pointer.
    pub(super) fn get(self) -> *mut T {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_reused() {
        let p = {
            let a = take_buffer(5000);
            a.as_ptr()
        };
        let b = take_buffer(4000);
        assert_eq!(b.as_ptr(), p);
        let c = take_buffer(10);
        assert_ne!(c.as_ptr(), p);
        assert_eq!(c.as_ptr() as usize % 64, 0);
        assert_eq!((b.len(), c.len()), (4000, 10));
    }
}
