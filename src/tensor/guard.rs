//! Buffers next to protected pages, so that an access outside them ends the process: for tests of kernels.
//!
//! `FXC_GUARD=end` (or 1) lets every buffer end at a protected page, up to the alignment; with `FXC_GUARD=begin` it begins
//! after one. Each buffer then takes three pages at least.

use super::storage::ALIGN;
use memmap2::MmapMut;
use std::sync::OnceLock;

/// Where the protected page is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GuardPage {
    Off,
    End,
    Begin,
}

/// What the environment asks for, once for the process.
fn guard() -> GuardPage {
    static GUARD: OnceLock<GuardPage> = OnceLock::new();
    *GUARD.get_or_init(|| match std::env::var("FXC_GUARD").as_deref() {
        Ok("1" | "end") => GuardPage::End,
        Ok("begin") => GuardPage::Begin,
        _ => GuardPage::Off,
    })
}

/// Whether buffers are next to protected pages.
pub(super) fn guards_buffers() -> bool {
    guard() != GuardPage::Off
}

/// New pages with `len` bytes next to a protected page, and the offset of the bytes; `None` if guards are off or the system
/// refuses.
pub(super) fn guarded_pages(len: usize) -> Option<(MmapMut, usize)> {
    match guard() {
        GuardPage::Off => None,
        guard => protect(len, guard),
    }
}

/// The size of the system's pages.
#[cfg(unix)]
pub(super) fn page_size() -> Option<usize> {
    // SAFETY: asks for a constant of the system.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()
}

#[cfg(not(unix))]
fn protect(_len: usize, _guard: GuardPage) -> Option<(MmapMut, usize)> {
    None
}

#[cfg(unix)]
fn protect(len: usize, guard: GuardPage) -> Option<(MmapMut, usize)> {
    let page = page_size()?;
    let room = len.max(1).checked_next_multiple_of(ALIGN)?;
    let whole = room.checked_next_multiple_of(page)?;
    let mut pages = MmapMut::map_anon(whole.checked_add(page)?).ok()?;
    let (closed, offset) = match guard {
        GuardPage::Begin => (0, page),
        _ => (whole, whole - room),
    };
    let address = pages.as_mut_ptr().wrapping_add(closed);
    // SAFETY: the page is within the new mapping, and nothing refers to its bytes: the buffer is in the other pages.
    let closed = unsafe { libc::mprotect(address.cast(), page, libc::PROT_NONE) };
    (closed == 0).then_some((pages, offset))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_touch_the_protected_page() {
        for len in [0, 1, 63, 64, 4095, 4096, 4097] {
            for guard in [GuardPage::Begin, GuardPage::End] {
                let (pages, offset) = protect(len, guard).unwrap();
                let start = pages.as_ptr() as usize + offset;
                assert!(start.is_multiple_of(ALIGN) && offset + len <= pages.len());
                let page = 4096;
                match guard {
                    GuardPage::End => assert!(pages.len() - page - (offset + len) < ALIGN.max(1) + (len == 0) as usize),
                    _ => assert_eq!(offset % page, 0),
                }
            }
        }
    }
}
