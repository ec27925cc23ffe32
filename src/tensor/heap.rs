//! An allocator that counts, and keeps small blocks for the threads that free them.

mod blocks;

use crate::budget;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// The system's allocator, which counts the memory that the program holds and ends the program with a message when it may not hold more: see
/// [`CountingAllocator::on_exhaustion`]. Programs install it with `#[global_allocator]`.
pub struct CountingAllocator;

/// Threads report to the shared counter when they have allocated or freed this much, so that they do not contend for it.
const BATCH: isize = 256 << 10;

thread_local! {
    /// What the thread has allocated and not reported. It needs no destructor, so it may be used at any time.
    static UNREPORTED: Cell<isize> = const { Cell::new(0) };
}

type ExhaustionHandler = fn(usize) -> !;

static HANDLER: OnceLock<ExhaustionHandler> = OnceLock::new();

/// Whether the handler runs, which may allocate a little.
static EXHAUSTED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether the handler runs on this thread.
    static ENDS: Cell<bool> = const { Cell::new(false) };
}

impl CountingAllocator {
    /// Sets what happens once the program may not hold more memory, or the system has no more: `handler` ends the program. It must not wait
    /// for other threads, which may wait for it. Its argument is the size of the allocation. Without a handler, allocations are only counted.
    pub fn on_exhaustion(handler: ExhaustionHandler) {
        let _ = HANDLER.set(handler);
    }

    fn count(change: isize) {
        let sum = UNREPORTED.get() + change;
        if sum.abs() < BATCH {
            UNREPORTED.set(sum);
            return;
        }
        UNREPORTED.set(0);
        if sum < 0 {
            budget::subtract_held(sum.unsigned_abs());
            return;
        }
        let held = budget::add_held(sum.unsigned_abs()) as isize;
        if held > 0 && held as usize > budget::max_held() {
            Self::end_program(sum.unsigned_abs());
        }
    }

    /// Calls the handler, once, unless there is none. Other threads stay here: they would abort the process before the handler ends it.
    fn end_program(bytes: usize) {
        let Some(handler) = HANDLER.get() else { return };
        if !EXHAUSTED.swap(true, Relaxed) {
            ENDS.set(true);
            handler(bytes);
        }
        while !ENDS.get() {
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    fn checked(ptr: *mut u8, bytes: usize) -> *mut u8 {
        if ptr.is_null() {
            Self::end_program(bytes);
        }
        ptr
    }
}

// SAFETY: all memory comes from the system's allocator, with the caller's layouts. The counters allocate nothing. The handler ends the
// program and never unwinds.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count(layout.size() as isize);
        // SAFETY: the caller's guarantees are the same, here and below.
        Self::checked(unsafe { BlockAllocator.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::count(layout.size() as isize);
        // SAFETY: as above.
        Self::checked(unsafe { BlockAllocator.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        Self::count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { BlockAllocator.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Self::count(size as isize - layout.size() as isize);
        // SAFETY: as above.
        Self::checked(unsafe { BlockAllocator.realloc(ptr, layout, size) }, size)
    }
}

/// The system's allocator, and blocks that threads keep when they free small allocations. It counts nothing: for libraries, whose host's
/// memory is not theirs to limit.
pub struct BlockAllocator;

// SAFETY: all memory comes from the system's allocator, with the caller's layouts, or with larger ones for small blocks.
unsafe impl GlobalAlloc for BlockAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's guarantees are those that the system's allocator demands; a block is at least as large.
        blocks::take(layout).unwrap_or_else(|| unsafe { System.alloc(blocks::whole_block(layout)) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match blocks::take(layout) {
            Some(block) => {
                // SAFETY: the block has at least this size, and nothing uses it.
                unsafe { block.write_bytes(0, layout.size()) };
                block
            }
            // SAFETY: as for `alloc`.
            None => unsafe { System.alloc_zeroed(blocks::whole_block(layout)) },
        }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller allocated it here with this layout and does not use it again. The system's allocator gave it as a block.
        unsafe {
            if !blocks::keep(ptr, layout) {
                System.dealloc(ptr, blocks::whole_block(layout));
            }
        }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that the size, rounded up to the alignment, is valid.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if !blocks::is_block(layout) {
            // SAFETY: as for `alloc`.
            return unsafe { System.realloc(ptr, layout, blocks::whole_block(new).size()) };
        }
        // Most vectors begin as a small block, and many grow within it.
        if blocks::whole_block(new).size() == blocks::whole_block(layout).size() {
            return ptr;
        }
        // SAFETY: both blocks have at least the smaller size, and they are different memory.
        unsafe {
            let moved = self.alloc(new);
            if !moved.is_null() {
                ptr.copy_to_nonoverlapping(moved, layout.size().min(size));
                self.dealloc(ptr, layout);
            }
            moved
        }
    }
}
