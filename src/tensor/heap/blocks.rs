//! Small free blocks of one thread, in a stack for each size.
//!
//! Compilation allocates and frees hundreds of thousands of small objects: lists of operands, shapes, names. The system's allocator keeps
//! seven blocks of a size at hand, and takes ten times as long for the others. Here the blocks that a thread frees stay in its stacks, up to
//! [`MOST`] bytes of each size, and its next allocations take them. Every small allocation is a whole block, whoever frees it. The stacks
//! hold addresses and do not touch the blocks: after a run that reads all weights no block is in the cache, and to read an address from
//! each one would wait for memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ptr::null_mut;

/// Sizes are multiples of this, which is also the alignment of blocks.
const STEP: usize = 16;
/// Larger allocations are the system's.
const LARGEST: usize = 512;
/// The maximum number of bytes in a stack, and of blocks.
const MOST: usize = 256 << 10;
const MOST_BLOCKS: usize = 4096;
/// How many allocations ahead a block is loaded to the cache.
const AHEAD: usize = 4;

/// The free blocks of a size.
struct FreeStack {
    /// Room for [`FreeStack::capacity`] addresses, made for the first block.
    blocks: *mut *mut u8,
    count: usize,
}

struct Stacks(UnsafeCell<[FreeStack; LARGEST / STEP]>);

thread_local! {
    static STACKS: Stacks = const { Stacks(UnsafeCell::new([const { FreeStack::EMPTY }; LARGEST / STEP])) };
}

/// Whether allocations of this layout are blocks.
pub(super) fn is_block(layout: Layout) -> bool {
    layout.size() <= LARGEST && layout.align() <= STEP && layout.size() > 0
}

/// The layout to ask the system for: a whole block for a small one.
pub(super) fn whole_block(layout: Layout) -> Layout {
    match is_block(layout) {
        // SAFETY: the size is at most `LARGEST`, and the alignment a power of two.
        true => unsafe { Layout::from_size_align_unchecked(layout.size().next_multiple_of(STEP), STEP) },
        false => layout,
    }
}

/// A free block of this thread.
pub(super) fn take(layout: Layout) -> Option<*mut u8> {
    if !is_block(layout) {
        return None;
    }
    with_stack(layout, |stack| {
        stack.count = stack.count.checked_sub(1)?;
        // SAFETY: the stack has `count` addresses, and this one is given away.
        unsafe {
            prefetch(*stack.blocks.add(stack.count.saturating_sub(AHEAD)));
            Some(*stack.blocks.add(stack.count))
        }
    })
    .flatten()
}

/// Loads the beginning of a block to the cache.
fn prefetch(block: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect on memory, whatever the address is.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(block.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = block;
}

/// Keeps a free block. Returns `false` if it is not one, or if there are enough of its size.
///
/// # Safety
/// It was allocated with this layout, and nothing uses it.
pub(super) unsafe fn keep(block: *mut u8, layout: Layout) -> bool {
    is_block(layout)
        && with_stack(layout, |stack| {
            let capacity = capacity((layout.size() - 1) / STEP);
            if stack.count == capacity || (stack.blocks.is_null() && !stack.make_room(capacity)) {
                return false;
            }
            // SAFETY: there is room for `capacity` addresses.
            unsafe { stack.blocks.add(stack.count).write(block) };
            stack.count += 1;
            true
        })
        .unwrap_or(false)
}

/// The maximum number of blocks in stack `i`.
fn capacity(i: usize) -> usize {
    (MOST / ((i + 1) * STEP)).min(MOST_BLOCKS)
}

impl FreeStack {
    const EMPTY: FreeStack = FreeStack {
        blocks: null_mut(),
        count: 0,
    };

    fn make_room(&mut self, capacity: usize) -> bool {
        // SAFETY: the layout is not empty.
        self.blocks = unsafe { System.alloc(room_layout(capacity)) }.cast();
        !self.blocks.is_null()
    }
}

fn room_layout(capacity: usize) -> Layout {
    // SAFETY: the size is at most that of `MOST_BLOCKS` addresses.
    unsafe { Layout::from_size_align_unchecked(capacity * size_of::<*mut u8>(), align_of::<*mut u8>()) }
}

/// Calls a function with the stack of a block's size; not if the thread is ending.
fn with_stack<R>(layout: Layout, f: impl FnOnce(&mut FreeStack) -> R) -> Option<R> {
    STACKS
        .try_with(|stacks| {
            // SAFETY: stacks belong to one thread, and `f` does not come here again, so there is no other reference.
            f(unsafe { &mut (*stacks.0.get())[(layout.size() - 1) / STEP] })
        })
        .ok()
}

impl Drop for Stacks {
    /// Returns the blocks of a thread that ends.
    fn drop(&mut self) {
        for (i, stack) in self.0.get_mut().iter_mut().enumerate() {
            if stack.blocks.is_null() {
                continue;
            }
            // SAFETY: the stack has `count` blocks, which the system gave with this layout, and its own memory.
            unsafe {
                let layout = Layout::from_size_align_unchecked((i + 1) * STEP, STEP);
                (0..stack.count).for_each(|b| System.dealloc(*stack.blocks.add(b), layout));
                System.dealloc(stack.blocks.cast(), room_layout(capacity(i)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::CountingAllocator;
    use super::*;

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 8).expect("a valid layout")
    }

    #[test]
    fn freed_blocks_serve_the_next_allocations_of_their_size() {
        let heap = CountingAllocator;
        // SAFETY: each block is freed once, with the layout that it was allocated or moved with.
        unsafe {
            let first = heap.alloc(layout(40));
            heap.dealloc(first, layout(40));
            let second = heap.alloc(layout(33));
            assert_eq!(first, second);
            second.write_bytes(7, 33);
            let grown = heap.realloc(second, layout(33), 48);
            assert_eq!(second, grown);
            let moved = heap.realloc(grown, layout(48), 4000);
            assert_ne!(grown, moved);
            let back = heap.realloc(moved, layout(4000), 20);
            assert!(std::slice::from_raw_parts(back, 20).iter().all(|b| *b == 7));
            heap.dealloc(back, layout(20));
            let zeros = heap.alloc_zeroed(layout(30));
            assert_eq!(back, zeros);
            assert!(std::slice::from_raw_parts(zeros, 30).iter().all(|b| *b == 0));
            heap.dealloc(zeros, layout(30));
        }
    }

    #[test]
    fn a_stack_is_bounded_and_ends_with_its_thread() {
        let run = || {
            let heap = CountingAllocator;
            let alloc = |_| {
                // SAFETY: as above.
                unsafe { heap.alloc(layout(500)) }
            };
            let all: Vec<*mut u8> = (0..3 * MOST / 512).map(alloc).collect();
            all.into_iter().for_each(|block| {
                // SAFETY: as above.
                unsafe { heap.dealloc(block, layout(500)) }
            });
            with_stack(layout(500), |stack| stack.count)
        };
        assert_eq!(std::thread::spawn(run).join().expect("no panic"), Some(MOST / 512));
    }
}
