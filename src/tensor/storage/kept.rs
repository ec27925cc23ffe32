//! The pages of buffers. Those of a dropped buffer go to the next one of the same size. Routines allocate their temporary tensors in every call,
//! and each of the 64 pages of 256 KiB would cost a page fault, which takes longer than clearing the page.

use super::HUGE;
use memmap2::MmapMut;
use std::sync::Mutex;

/// The most bytes that are kept.
const MOST: usize = 16 << 20;

/// The kept pages, the oldest first.
static KEPT: Mutex<Vec<MmapMut>> = Mutex::new(vec![]);

/// Pages with `len` zeros from the returned offset; `None` if the system refuses.
pub(super) fn zeroed_pages(len: usize) -> Option<(MmapMut, usize)> {
    let huge = in_huge_pages(len);
    let size = if huge > 0 { huge.checked_add(HUGE)? } else { len };
    if let Some(mut pages) = take_pages(size) {
        let offset = first_huge_page(&pages, huge);
        pages.get_mut(offset..)?.get_mut(..len)?.fill(0);
        return Some((pages, offset));
    }
    // The memory before the first huge page is never touched.
    let pages = MmapMut::map_anon(size).ok()?;
    let offset = first_huge_page(&pages, huge);
    #[cfg(target_os = "linux")]
    if huge > 0 {
        // Systems without huge pages reject this request, which is fine.
        let _ = pages.advise_range(memmap2::Advice::HugePage, offset, huge);
    }
    Some((pages, offset))
}

/// The memory in huge pages for a buffer of `len` bytes: none for a small one. If most of the last huge page is used, it is whole,
/// because its parts would cause hundreds of page faults.
fn in_huge_pages(len: usize) -> usize {
    let whole = len.checked_next_multiple_of(HUGE).unwrap_or(len);
    match len {
        ..HUGE => 0,
        _ if whole - len < HUGE / 4 => whole,
        _ => len,
    }
}

/// Where a buffer begins in its pages: at the first huge page, if it has `huge` bytes in such.
fn first_huge_page(pages: &MmapMut, huge: usize) -> usize {
    match huge {
        0 => 0,
        _ => pages.as_ptr().align_offset(HUGE),
    }
}

/// Kept pages of this size, with what the dropped buffer contained.
fn take_pages(len: usize) -> Option<MmapMut> {
    // A thread that finds the list in use does without it.
    let mut kept = KEPT.try_lock().ok()?;
    let i = kept.iter().rposition(|p| p.len() == len)?;
    Some(kept.remove(i))
}

/// Keeps pages for [`take_pages`], and returns the oldest ones to the system if there are too many. Those of a large buffer go to the
/// system: they would replace all others.
pub(super) fn keep_pages(pages: MmapMut) {
    if pages.len() > MOST / 2 {
        return;
    }
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

    /// Sizes that no other test uses: in small pages, in huge pages, and in one huge page and small ones.
    const SIZES: [usize; 3] = [(64 << 10) + 4096 * 3, (4 << 20) - 12_288, (3 << 20) + 4096 * 5];

    #[test]
    fn pages_that_are_taken_over_contain_zeros() {
        for size in SIZES {
            for _ in 0..3 {
                let mut b = AlignedBytes::zeroed(size);
                assert!(b.bytes().len() == size && b.bytes().iter().all(|&x| x == 0));
                b.bytes_mut().fill(7);
            }
        }
    }
}
