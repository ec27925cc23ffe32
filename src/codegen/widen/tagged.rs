//! How a load says that it has a mask: by the upper bits of its offset.

/// The bits of a masked load's offset that are the offset.
const OFFSET_BITS: u32 = 24;

/// Offsets of masked loads are smaller than this.
pub(in crate::codegen) const NEAR: i32 = 1 << (OFFSET_BITS - 2);

/// The lanes of a vector.
const LANES: usize = 16;

/// The offset of a masked load of so many 32-bit lanes.
pub(in crate::codegen) fn tagged_offset(offset: i32, lanes: usize) -> i32 {
    debug_assert!(offset.abs() < NEAR && (1..LANES).contains(&lanes));
    offset + ((lanes as i32) << OFFSET_BITS)
}

/// The offset and the number of lanes of a [`tagged_offset`]. `None` if it cannot be one.
pub(super) fn split_offset(tagged: i32) -> Option<(i32, u32)> {
    let half = 1 << (OFFSET_BITS - 1);
    let lanes = tagged.checked_add(half)? >> OFFSET_BITS;
    let offset = tagged - (lanes << OFFSET_BITS);
    ((1..LANES as i32).contains(&lanes) && offset.abs() < half).then_some((offset, lanes as u32))
}
