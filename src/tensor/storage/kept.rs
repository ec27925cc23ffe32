//! Pages of dropped buffers, which the next buffers of the same size take over. Routines allocate their temporary tensors in every call,
//! and each of the 64 pages of 256 KiB would cost a page fault, which takes longer than clearing the page.

use memmap2::MmapMut;
use std::sync::Mutex;

/// The most bytes that are kept.
const MOST: usize = 8 << 20;

/// The kept pages, the oldest first.
static KEPT: Mutex<Vec<MmapMut>> = Mutex::new(vec![]);

/// Kept pages of this size, with what the dropped buffer contained.
pub(super) fn take_pages(len: usize) -> Option<MmapMut> {
    // A thread that finds the list in use does without it.
    let mut kept = KEPT.try_lock().ok()?;
    let i = kept.iter().rposition(|p| p.len() == len)?;
    Some(kept.remove(i))
}

/// Keeps pages for [`take_pages`], and returns the oldest ones to the system if there are too many.
pub(super) fn keep_pages(pages: MmapMut) {
    let Ok(mut kept) = KEPT.try_lock() else { return };
    kept.push(pages);
    let mut sum: usize = kept.iter().map(|p| p.len()).sum();
    while sum > MOST {
        sum -= kept.remove(0).len();
    }
}

#[cfg(test)]
mod tests {
    use crate::tensor::AlignedBytes;

    /// A size that no other test uses.
    const SIZE: usize = (64 << 10) + 4096 * 3;

    #[test]
    fn pages_that_are_taken_over_contain_zeros() {
        for _ in 0..3 {
            let mut b = AlignedBytes::zeroed(SIZE);
            assert!(b.bytes().iter().all(|&x| x == 0));
            b.bytes_mut().fill(7);
        }
    }
}
